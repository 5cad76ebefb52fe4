/* tests/unit/rdma/test_verbs.c: the provider suite over a verbs device: test_rdma_verbs DEVICE
 * ADDRESS, where ADDRESS is one of the device's own. tests/e2e/vm runs it on a host with a
 * device. */
#include "tests/unit/rdma/suite.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static struct suite verbs = {.provider = "verbs", .gid_index = -1};
const struct suite *suite = &verbs;

/* ---- Features of this provider only. ---- */

static const struct end_opts plain = {.attr = {.rnr_retry_count = 7, .retry_count = 7}};

static int open_as(const char *suffix, int gid_index)
{
	struct rp_open_opts opts = {.gid_index = gid_index};
	struct rp_device *device;
	char name[96];
	int err;

	snprintf(name, sizeof(name), "%s%s", verbs.device_name, suffix);
	opts.device_name = name;
	err = rp_open(&opts, &device);
	if (!err)
		rp_close(device);
	return err;
}

static void test_port_and_gid(void **state)
{
	(void)state;
	assert_int_equal(open_as(":1", -1), 0);
	assert_int_equal(open_as(":1:0", -1), 0);
	assert_int_equal(open_as("", 0), 0);
	assert_int_equal(open_as(":1:9999", -1), -ENODEV);
	assert_int_equal(open_as("", 9999), -ENODEV);
	assert_int_equal(open_as(":9", -1), -ENODEV);
	assert_int_equal(open_as(":port", -1), -EINVAL);
	assert_int_equal(open_as(":1:2:3", -1), -EINVAL);
}

/* The device is found by its address, for a client and for a server. */
static void test_found_by_address(void **state)
{
	struct rp_found found;
	char name[64];

	(void)state;
	snprintf(name, sizeof(name), "%s:1", verbs.device_name);
	assert_int_equal(rp_find(verbs.address, 4791, &found), 0);
	assert_string_equal(found.device_name, name);
	assert_non_null(strstr(found.why, verbs.address));
	assert_int_equal(rp_find_listening(verbs.address, &found), 0);
	assert_string_equal(found.device_name, name);
	assert_int_equal(rp_find_listening("", &found), 0);
	assert_string_equal(found.device_name, name);
	assert_int_equal(rp_find_listening("127.0.0.1", &found), 0);
	assert_string_equal(found.device_name, "simulated");
}

static void listener_open(struct rp_device **ret_device, struct rp_listener **ret_listener)
{
	const struct rp_open_opts opts = {.device_name = "simulated", .gid_index = -1};

	assert_int_equal(rp_open(&opts, ret_device), 0);
	assert_int_equal(rp_listen(*ret_device, verbs.address, 0, NULL, ret_listener), 0);
}

/* On a host with a card, a server may still listen on the simulated device. */
static void test_simulated_server_is_found(void **state)
{
	struct rp_listener *listener;
	struct rp_device *device;
	struct rp_found found;
	uint16_t port;

	(void)state;
	listener_open(&device, &listener);
	port = rp_listener_port(listener);
	assert_int_equal(rp_find(verbs.address, port, &found), 0);
	assert_string_equal(found.device_name, "simulated");
	rp_listener_close(listener);
	rp_close(device);
	assert_int_equal(rp_find(verbs.address, port, &found), 0);
	assert_string_not_equal(found.device_name, "simulated");
}

static uint32_t mtu_between(uint32_t connecting, uint32_t accepting)
{
	const struct end_opts a = {.path_mtu = connecting, .attr = plain.attr};
	const struct end_opts b = {.path_mtu = accepting, .attr = plain.attr};
	struct rp_qp_info at_a, at_b;
	struct pair pair;

	pair_open(&pair, &a, &b);
	memset(pair.a.mem, (int)(connecting >> 8) + 1, 65536);
	memset(pair.b.mem, 0, 65536);
	assert_int_equal(post_send_sge(&pair.a, one_sided(RP_WRITE, 1, &pair.b, 0),
				 sge_at(&pair.a, 0, 65536)),
		0);
	wc_expect(&pair.a, &pair.b, 1, RP_WC_SUCCESS);
	assert_memory_equal(pair.b.mem, pair.a.mem, 65536);
	rp_qp_info(pair.a.qp, &at_a);
	rp_qp_info(pair.b.qp, &at_b);
	assert_int_equal(at_a.path_mtu, at_b.path_mtu);
	pair_close(&pair);
	return at_a.path_mtu;
}

/* Each end's limit applies to both, and the device uses it. */
static void test_path_mtu(void **state)
{
	struct rp_open_opts opts = {
		.device_name = verbs.device_name, .gid_index = -1, .path_mtu = 1024};
	struct rp_device_attr attr;
	struct rp_device *device;

	(void)state;
	assert_int_equal(mtu_between(256, 0), 256);
	assert_int_equal(mtu_between(0, 512), 512);
	assert_int_equal(mtu_between(1024, 256), 256);
	assert_int_equal(rp_open(&opts, &device), 0);
	rp_device_attr(device, &attr);
	assert_int_equal(attr.active_mtu, 1024);
	rp_close(device);
	opts.path_mtu = 1000;
	assert_int_equal(rp_open(&opts, &device), -EINVAL);
	opts.path_mtu = 128;
	assert_int_equal(rp_open(&opts, &device), -EINVAL);
	opts.path_mtu = 0;
	opts.service_level = 16;
	assert_int_equal(rp_open(&opts, &device), -EINVAL);
}

static void test_retries_and_timeout(void **state)
{
	const struct end_opts patient = {
		.attr = {.retry_count = 5, .rnr_retry_count = 6, .timeout_us = 67108}};
	struct rp_qp_info info;
	struct pair pair;

	(void)state;
	pair_open(&pair, &patient, NULL);
	rp_qp_info(pair.a.qp, &info);
	assert_int_equal(info.retry_count, 5);
	assert_int_equal(info.rnr_retry_count, 6);
	assert_int_equal(info.timeout_us, 67108);
	rp_qp_info(pair.b.qp, &info);
	assert_int_equal(info.retry_count, 7);
	assert_int_equal(info.rnr_retry_count, 7);
	pair_close(&pair);
}

static void test_an_address_without_a_host(void **state)
{
	struct rp_cm_event event;
	struct end end;

	(void)state;
	end_open(&end, &plain);
	/* TEST-NET-3: no host has it; then a text that is not an address. */
	assert_int_equal(
		rp_connect(end.qp, "203.0.113.77", 9100, NULL, 0, clock_now_ns() + NS_PER_S), 0);
	cm_expect(end.device, RP_CM_UNREACHABLE, &event);
	assert_ptr_equal(event.qp, end.qp);
	assert_int_equal(
		rp_connect(end.qp, "not-an-address", 9100, NULL, 0, DEADLINE_NONE), -EINVAL);
	assert_int_equal(rp_qp_state(end.qp), RP_QPS_INIT);
	end_close(&end);
}

/* A completion that was not polled does not outlive its queue pair. */
static void test_close_forgets_completions(void **state)
{
	struct rp_qp *other;
	struct pair pair;
	struct rp_wc wc;

	(void)state;
	pair_open(&pair, NULL, NULL);
	other = pair.a.qp;
	end_new_qp(&pair.a, &plain);
	assert_int_equal(post_recv_at(&pair.b, 5, 0, 64), 0);
	rp_qp_error(pair.b.qp);
	assert_int_equal(
		rp_post_recv(other, &(struct rp_recv_wr){.wr_id = 6}, 1, &(uint32_t){0}), 0);
	rp_qp_error(other);
	wc_expect(&pair.b, NULL, 5, RP_WC_WR_FLUSH_ERR);
	rp_qp_close(other);
	assert_int_equal(rp_cq_poll(pair.a.cq, &wc, 1), 0);
	pair_close(&pair);
}

/* ---- A peer that does not speak our private data. ---- */

struct foreign {
	uint16_t port;
	int result;
	atomic_bool done;
};

static int foreign_connect(uint16_t port)
{
	struct rdma_conn_param param = {.qp_num = 0x4711, .retry_count = 7};
	char service[8];
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *info;
	struct rdma_cm_id *id;
	int err;

	snprintf(service, sizeof(service), "%u", port);
	if (rdma_getaddrinfo(suite->address, service, &hints, &info))
		return -errno;
	/* Without a channel every call waits for its outcome. */
	if (rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP))
		return -errno;
	err = rdma_resolve_addr(id, NULL, info->ai_dst_addr, 2000) ||
			      rdma_resolve_route(id, 2000) || rdma_connect(id, &param)
		      ? -errno
		      : 0;
	rdma_destroy_id(id);
	rdma_freeaddrinfo(info);
	return err;
}

static void *foreign_main(void *arg)
{
	struct foreign *foreign = arg;

	foreign->result = foreign_connect(foreign->port);
	atomic_store(&foreign->done, true);
	return NULL;
}

static void test_foreign_peer_is_rejected(void **state)
{
	struct foreign foreign = {0};
	struct rp_listener *listener;
	struct rp_cm_event event;
	pthread_t thread;
	struct end end;

	(void)state;
	end_open(&end, &plain);
	assert_int_equal(rp_listen(end.device, suite->address, 0, NULL, &listener), 0);
	foreign.port = rp_listener_port(listener);
	assert_int_equal(pthread_create(&thread, NULL, foreign_main, &foreign), 0);
	while (!atomic_load(&foreign.done))
		assert_int_equal(rp_cm_poll(end.device, &event), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(foreign.result, -ECONNREFUSED);
	rp_listener_close(listener);
	end_close(&end);
}

static const struct CMUnitTest verbs_tests[] = {
	cmocka_unit_test(test_port_and_gid),
	cmocka_unit_test(test_found_by_address),
	cmocka_unit_test(test_simulated_server_is_found),
	cmocka_unit_test(test_path_mtu),
	cmocka_unit_test(test_retries_and_timeout),
	cmocka_unit_test(test_an_address_without_a_host),
	cmocka_unit_test(test_close_forgets_completions),
	cmocka_unit_test(test_foreign_peer_is_rejected),
};

static int run(const char *name, const struct CMUnitTest *tests, size_t count)
{
	return _cmocka_run_group_tests(name, tests, count, NULL, NULL);
}

int main(int argc, char **argv)
{
	int failed;

	if (argc != 3) {
		fprintf(stderr, "usage: %s DEVICE ADDRESS\n", argv[0]);
		return 2;
	}
	verbs.device_name = argv[1];
	verbs.address = argv[2];
	verbs.soft_roce = !strncmp(argv[1], "rxe", 3);
	/* The tests provoke many errors. */
	log_set_level(LOG_ERROR + 1);
	failed = run("conn", suite_conn_tests, suite_conn_count);
	failed += run("data", suite_data_tests, suite_data_count);
	failed += run("window", suite_window_tests, suite_window_count);
	failed += run("unreliable", suite_unreliable_tests, suite_unreliable_count);
	failed += run("remote", suite_remote_tests, suite_remote_count);
	failed += run("verbs", verbs_tests, ARRAY_LEN(verbs_tests));
	return failed;
}
