/* tests/unit/rdma/suite_conn.c: the provider suite's connection tests: every way a connection can
 * come up, fail and end. */
#include "tests/unit/rdma/suite.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#define MANY 100u

static const struct end_opts patient = {.attr = {.rnr_retry_count = 7, .retry_count = 7}};
static const struct end_opts small = {
	.attr = {.rnr_retry_count = 7,
		.retry_count = 7,
		.cap = {.max_send_wr = 8, .max_recv_wr = 8}},
	.mem_bytes = 64 * KIB,
};

static int start_connect(struct end *end, uint16_t port, uint64_t wait_ns)
{
	return rp_connect(end->qp, suite->address, port, "hello", 5, clock_now_ns() + wait_ns);
}

/* Two ends, the second of which listens. Closed by meeting_close. */
static void meeting_open(struct pair *pair, const char *address)
{
	end_open(&pair->a, &patient);
	end_open(&pair->b, &patient);
	assert_int_equal(rp_listen(pair->b.device, address, 0, NULL, &pair->listener), 0);
}

static void ask(struct pair *pair, uint64_t wait_ns)
{
	assert_int_equal(start_connect(&pair->a, rp_listener_port(pair->listener), wait_ns), 0);
}

/* The first end connects, and the second has the request. */
static struct rp_cm_event asked(struct pair *pair, uint64_t wait_ns)
{
	struct rp_cm_event event;

	ask(pair, wait_ns);
	cm_expect(pair->b.device, RP_CM_CONNECT_REQUEST, &event);
	return event;
}

static void meeting_close(struct pair *pair)
{
	rp_listener_close(pair->listener);
	end_close(&pair->a);
	end_close(&pair->b);
}

/* On a network, a connect without a listener is rejected by the connection manager. */
static void nobody_expect(struct end *a)
{
	uint64_t deadline_ns = clock_now_ns() + 2 * SUITE_DEADLINE_NS;
	struct rp_cm_event event;
	int got;

	while (!(got = rp_cm_poll(a->device, &event)))
		assert_true(clock_now_ns() < deadline_ns);
	assert_int_equal(got, 1);
	assert_true(event.type == RP_CM_UNREACHABLE || event.type == RP_CM_REJECTED);
	assert_false(event.late);
	assert_ptr_equal(event.qp, a->qp);
}

static void test_device_names(void **state)
{
	struct rp_open_opts opts = {.device_name = "no-such-device"};
	struct rp_device *device = NULL;
	struct rp_device_attr attr;

	(void)state;
	assert_int_equal(rp_open(&opts, &device), -ENODEV);
	opts.device_name = "";
	assert_int_equal(rp_open(&opts, &device), -EINVAL);
	opts.device_name = suite->device_name;
	opts.gid_index = suite->gid_index;
	assert_int_equal(rp_open(&opts, &device), 0);
	rp_device_attr(device, &attr);
	assert_true(attr.qp_types & (1u << RP_QP_RC));
	assert_true(attr.max_qp_wr >= 128 && attr.max_sge >= 4 && attr.max_cqe >= 1024);
	assert_true(strlen(attr.name) > 0 && strlen(attr.provider) > 0);
	rp_close(device);
	rp_close(NULL);
}

static void test_private_data_both_ways(void **state)
{
	struct rp_cm_event event;
	struct pair pair;

	(void)state;
	meeting_open(&pair, suite->address);
	event = asked(&pair, SUITE_DEADLINE_NS);
	assert_ptr_equal(event.listener, pair.listener);
	assert_memory_equal(event.private_data, "hello", 5);
	assert_true(strlen(event.peer) > 0);
	assert_int_equal(rp_qp_state(pair.a.qp), RP_QPS_INIT);
	assert_int_equal(rp_accept(event.request, pair.b.qp, "welcome", 7), 0);
	cm_expect(pair.a.device, RP_CM_ESTABLISHED, &event);
	assert_memory_equal(event.private_data, "welcome", 7);
	cm_expect(pair.b.device, RP_CM_ESTABLISHED, &event);
	assert_int_equal(rp_qp_state(pair.a.qp), RP_QPS_RTS);
	assert_int_equal(rp_qp_state(pair.b.qp), RP_QPS_RTS);
	rp_listener_close(pair.listener);
	end_close(&pair.a);
	cm_expect(pair.b.device, RP_CM_DISCONNECTED, &event);
	assert_ptr_equal(event.qp, pair.b.qp);
	end_close(&pair.b);
}

static void test_reject_then_retry(void **state)
{
	struct rp_cm_event event;
	struct pair pair;

	(void)state;
	meeting_open(&pair, suite->address);
	event = asked(&pair, SUITE_DEADLINE_NS);
	rp_reject(event.request, "too busy", 8);
	cm_expect(pair.a.device, RP_CM_REJECTED, &event);
	assert_ptr_equal(event.qp, pair.a.qp);
	assert_int_equal(event.private_len, 8);
	assert_memory_equal(event.private_data, "too busy", 8);
	/* A new queue pair can connect, as with rdma_cm. */
	rp_qp_close(pair.a.qp);
	end_new_qp(&pair.a, &patient);
	event = asked(&pair, SUITE_DEADLINE_NS);
	assert_int_equal(rp_accept(event.request, pair.b.qp, NULL, 0), 0);
	cm_expect(pair.a.device, RP_CM_ESTABLISHED, NULL);
	meeting_close(&pair);
}

static void test_unreachable(void **state)
{
	struct rp_listener *listener;
	struct end a;
	uint16_t port;

	(void)state;
	end_open(&a, &patient);
	assert_int_equal(rp_listen(a.device, suite->address, 0, NULL, &listener), 0);
	port = rp_listener_port(listener);
	rp_listener_close(listener);
	assert_int_equal(start_connect(&a, port, SUITE_DEADLINE_NS), 0);
	nobody_expect(&a);
	assert_int_equal(rp_qp_state(a.qp), RP_QPS_INIT);
	end_close(&a);
}

static void test_deadline(void **state)
{
	struct rp_cm_event event, late;
	struct pair pair;

	(void)state;
	meeting_open(&pair, suite->address);
	event = asked(&pair, 500 * NS_PER_MS);
	/* Neither accepted nor rejected in time. */
	cm_expect(pair.a.device, RP_CM_UNREACHABLE, &late);
	assert_true(late.late);
	rp_reject(event.request, NULL, 0);
	meeting_close(&pair);
}

static void test_listener_close_drops_requests(void **state)
{
	struct rp_cm_event event;
	struct pair pair;

	(void)state;
	meeting_open(&pair, suite->address);
	ask(&pair, 2 * NS_PER_S);
	rp_listener_close(pair.listener);
	nobody_expect(&pair.a);
	assert_int_equal(rp_cm_poll(pair.b.device, &event), 0);
	end_close(&pair.a);
	end_close(&pair.b);
}

static void test_address_in_use(void **state)
{
	struct rp_listener *first, *second;
	struct end a;
	uint16_t port;

	(void)state;
	end_open(&a, &patient);
	assert_int_equal(rp_listen(a.device, suite->address, 0, NULL, &first), 0);
	port = rp_listener_port(first);
	assert_int_equal(rp_listen(a.device, suite->address, port, NULL, &second), -EADDRINUSE);
	rp_listener_close(first);
	assert_int_equal(rp_listen(a.device, suite->address, port, NULL, &second), 0);
	rp_listener_close(second);
	end_close(&a);
}

static void test_wildcard_listener(void **state)
{
	struct rp_cm_event event;
	struct pair pair;

	(void)state;
	meeting_open(&pair, "");
	event = asked(&pair, SUITE_DEADLINE_NS);
	assert_int_equal(rp_accept(event.request, pair.b.qp, NULL, 0), 0);
	cm_expect(pair.a.device, RP_CM_ESTABLISHED, NULL);
	meeting_close(&pair);
}

static void test_wrong_arguments(void **state)
{
	struct rp_mr *mr;
	struct rp_qp *qp;
	struct rp_cq *cq;
	struct end a;
	uint64_t word;
	struct rp_mr_opts opts = {
		.addr = &word, .bytes = 8, .access = RP_ACCESS_REMOTE_WRITE, .fd = -1};
	struct rp_qp_attr attr = {.retry_count = 8};
	struct rp_send_wr wr = {.opcode = RP_SEND};
	uint32_t posted = 9;
	uint8_t big[RP_PRIVATE_BYTES_MAX + 1] = {0};

	(void)state;
	end_open(&a, &patient);
	assert_int_equal(rp_mr_open(a.pd, &opts, &mr), -EINVAL);
	opts.access = 1u << 9;
	assert_int_equal(rp_mr_open(a.pd, &opts, &mr), -EINVAL);
	opts.access = 0;
	opts.bytes = 0;
	assert_int_equal(rp_mr_open(a.pd, &opts, &mr), -EINVAL);
	assert_int_equal(rp_cq_open(a.device, 0, &cq), -EINVAL);
	attr.send_cq = attr.recv_cq = a.cq;
	assert_int_equal(rp_qp_open(a.pd, &attr, &qp), -EINVAL);
	attr.retry_count = 0;
	attr.send_cq = NULL;
	assert_int_equal(rp_qp_open(a.pd, &attr, &qp), -EINVAL);
	assert_int_equal(rp_post_send(a.qp, &wr, 1, &posted), -ENOTCONN);
	assert_int_equal(posted, 0);
	assert_int_equal(
		rp_connect(a.qp, suite->address, 1, big, sizeof(big), DEADLINE_NONE), -EINVAL);
	assert_int_equal(rp_connect(a.qp, suite->address, 0, NULL, 0, DEADLINE_NONE), -EINVAL);
	end_close(&a);
}

static void test_disconnect_tells_both(void **state)
{
	struct rp_cm_event event;
	struct pair pair;

	(void)state;
	pair_open(&pair, NULL, NULL);
	assert_int_equal(post_recv_at(&pair.b, 4, 0, 64), 0);
	assert_int_equal(post_recv_at(&pair.a, 5, 0, 64), 0);
	rp_disconnect(pair.a.qp);
	assert_int_equal(rp_qp_state(pair.a.qp), RP_QPS_ERR);
	wc_expect(&pair.a, NULL, 5, RP_WC_WR_FLUSH_ERR);
	cm_expect(pair.a.device, RP_CM_DISCONNECTED, &event);
	assert_ptr_equal(event.qp, pair.a.qp);
	cm_expect(pair.b.device, RP_CM_DISCONNECTED, &event);
	assert_ptr_equal(event.qp, pair.b.qp);
	wc_expect(&pair.b, NULL, 4, RP_WC_WR_FLUSH_ERR);
	assert_int_equal(rp_qp_state(pair.b.qp), RP_QPS_ERR);
	/* Work posted from now on is flushed as well. */
	assert_int_equal(post_recv_at(&pair.b, 6, 0, 64), 0);
	wc_expect(&pair.b, NULL, 6, RP_WC_WR_FLUSH_ERR);
	assert_int_equal(post_send_sge(&pair.b, (struct rp_send_wr){.wr_id = 7, .opcode = RP_SEND},
				 sge_at(&pair.b, 0, 8)),
		0);
	wc_expect(&pair.b, NULL, 7, RP_WC_WR_FLUSH_ERR);
	pair_close(&pair);
}

/* One of many queue pairs wakes the sleeper on their common completion queue. */
static void sleep_and_be_woken(struct end *a, struct end *b, struct rp_qp *from, struct rp_qp *to)
{
	struct pollfd wait = {.fd = rp_cq_fd(b->cq), .events = POLLIN};
	struct rp_sge out = sge_at(a, 0, 8), in = sge_at(b, 0, 8);
	struct rp_send_wr wr = {.opcode = RP_SEND, .sg_list = &out, .sge_count = 1};
	struct rp_recv_wr recv = {1000, &in, 1};
	uint32_t posted;

	assert_int_equal(rp_post_recv(to, &recv, 1, &posted), 0);
	wc_expect_none(a, b);
	assert_true(rp_cq_arm(b->cq));
	assert_int_equal(rp_post_send(from, &wr, 1, &posted), 0);
	assert_int_equal(poll(&wait, 1, 60000), 1);
	rp_cq_disarm(b->cq);
	wc_expect(b, NULL, 1000, RP_WC_SUCCESS);
}

/* Many queue pairs on one completion queue: more than the number at which a queue uses bells. */
static void test_many_connections(void **state)
{
	static struct rp_qp *clients[MANY], *servers[MANY];
	struct rp_qp_attr attr = small.attr;
	struct rp_listener *listener;
	struct rp_cm_event event;
	struct end a, b;
	uint32_t up = 0, posted;

	(void)state;
	end_open(&a, &small);
	end_open(&b, &small);
	assert_int_equal(rp_listen(b.device, suite->address, 0, NULL, &listener), 0);
	for (uint32_t i = 0; i < MANY; i++) {
		struct rp_sge sge = sge_at(&b, i * 64, 64);
		struct rp_recv_wr recv = {i, &sge, 1};

		attr.send_cq = attr.recv_cq = a.cq;
		assert_int_equal(rp_qp_open(a.pd, &attr, &clients[i]), 0);
		attr.send_cq = attr.recv_cq = b.cq;
		assert_int_equal(rp_qp_open(b.pd, &attr, &servers[i]), 0);
		assert_int_equal(rp_post_recv(servers[i], &recv, 1, &posted), 0);
		assert_int_equal(rp_connect(clients[i], suite->address, rp_listener_port(listener),
					 &i, sizeof(i), clock_now_ns() + SUITE_DEADLINE_NS),
			0);
		cm_expect(b.device, RP_CM_CONNECT_REQUEST, &event);
		assert_int_equal(rp_accept(event.request, servers[i], NULL, 0), 0);
		cm_expect(a.device, RP_CM_ESTABLISHED, NULL);
		cm_expect(b.device, RP_CM_ESTABLISHED, NULL);
		up++;
	}
	assert_int_equal(up, MANY);
	for (uint32_t i = 0; i < MANY; i++) {
		uint32_t which = (i * 37) % MANY;
		struct rp_sge sge = sge_at(&a, which * 8, 8);
		struct rp_send_wr wr = {.wr_id = which,
			.opcode = RP_SEND,
			.flags = RP_SEND_SIGNALED,
			.sg_list = &sge,
			.sge_count = 1};

		memcpy(a.mem + which * 8, &which, sizeof(which));
		assert_int_equal(rp_post_send(clients[which], &wr, 1, &posted), 0);
		assert_int_equal(
			wc_expect(&b, &a, which, RP_WC_SUCCESS).qpn, rp_qp_num(servers[which]));
		assert_memory_equal(b.mem + which * 64, &which, sizeof(which));
		wc_expect(&a, &b, which, RP_WC_SUCCESS);
	}
	sleep_and_be_woken(&a, &b, clients[MANY / 2], servers[MANY / 2]);
	for (uint32_t i = 0; i < MANY; i++) {
		rp_qp_close(clients[i]);
		cm_expect(b.device, RP_CM_DISCONNECTED, &event);
		assert_ptr_equal(event.qp, servers[i]);
		rp_qp_close(servers[i]);
	}
	rp_listener_close(listener);
	end_close(&a);
	end_close(&b);
}

/* ---- Connected without a connection manager. ---- */

static void join_until_up(struct end *a, struct end *b)
{
	uint64_t deadline_ns = clock_now_ns() + SUITE_DEADLINE_NS;
	struct rp_cm_event event;

	while (rp_qp_state(a->qp) != RP_QPS_RTS || rp_qp_state(b->qp) != RP_QPS_RTS) {
		assert_int_equal(rp_cm_poll(a->device, &event), 0);
		assert_int_equal(rp_cm_poll(b->device, &event), 0);
		assert_true(clock_now_ns() < deadline_ns);
	}
}

static void joined_open(struct end *a, struct end *b)
{
	struct rp_address at_a, at_b;

	end_open(a, &patient);
	end_open(b, &patient);
	assert_int_equal(rp_qp_address(a->qp, &at_a), 0);
	assert_int_equal(rp_qp_address(b->qp, &at_b), 0);
	assert_int_equal(at_a.qpn, rp_qp_num(a->qp));
	assert_int_equal(rp_qp_join(b->qp, &at_a, true), 0);
	assert_int_equal(rp_qp_join(a->qp, &at_b, false), 0);
	join_until_up(a, b);
}

static void test_joined_by_hand(void **state)
{
	struct rp_cm_event event;
	struct rp_address peer;
	struct end a, b;

	(void)state;
	joined_open(&a, &b);
	memset(a.mem, 0x5a, 128 * KIB);
	assert_int_equal(
		post_send_sge(&a, one_sided(RP_WRITE, 1, &b, 0), sge_at(&a, 0, 64 * KIB)), 0);
	wc_expect(&a, &b, 1, RP_WC_SUCCESS);
	assert_memory_equal(b.mem, a.mem, 64 * KIB);
	memset(b.mem + 256 * KIB, 0xa5, 64 * KIB);
	assert_int_equal(
		post_send_sge(&a, one_sided(RP_READ, 2, &b, 256 * KIB), sge_at(&a, 0, 64 * KIB)),
		0);
	wc_expect(&a, &b, 2, RP_WC_SUCCESS);
	assert_memory_equal(a.mem, b.mem + 256 * KIB, 64 * KIB);
	/* A queue pair can be connected only once. */
	assert_int_equal(rp_qp_address(b.qp, &peer), 0);
	assert_int_equal(rp_qp_join(a.qp, &peer, false), -EISCONN);
	end_close(&b);
	assert_int_equal(rp_cm_poll(a.device, &event), 0);
	end_close(&a);
}

static void test_joined_wrong_key(void **state)
{
	struct end a, b;
	struct rp_send_wr wr;

	(void)state;
	joined_open(&a, &b);
	wr = one_sided(RP_WRITE, 7, &b, 0);
	wr.rkey ^= 0x40000000;
	assert_int_equal(post_send_sge(&a, wr, sge_at(&a, 0, 64)), 0);
	wc_expect(&a, &b, 7, RP_WC_REM_ACCESS_ERR);
	assert_int_equal(rp_qp_state(a.qp), RP_QPS_ERR);
	end_close(&a);
	end_close(&b);
}

static void test_join_arguments(void **state)
{
	struct rp_address peer;
	struct end a;

	(void)state;
	end_open(&a, &patient);
	assert_int_equal(rp_qp_address(a.qp, &peer), 0);
	peer.qpn = 1u << 24;
	assert_int_equal(rp_qp_join(a.qp, &peer, true), -EINVAL);
	peer.qpn = 1;
	peer.mtu = 1000;
	assert_int_equal(rp_qp_join(a.qp, &peer, true), -EINVAL);
	peer.mtu = 8192;
	assert_int_equal(rp_qp_join(a.qp, &peer, true), -EINVAL);
	peer.mtu = 1024;
	peer.psn = 1u << 24;
	assert_int_equal(rp_qp_join(a.qp, &peer, true), -EINVAL);
	assert_int_equal(rp_qp_state(a.qp), RP_QPS_INIT);
	end_close(&a);
}

static void test_address_handles(void **state)
{
	struct rp_address address, none = {0};
	struct rp_ah *ah;
	struct end a;

	(void)state;
	end_open(&a, &patient);
	assert_int_equal(rp_qp_address(a.qp, &address), 0);
	assert_true(address.has_gid || address.lid);
	assert_int_equal(rp_ah_open(a.pd, &none, &ah), -EINVAL);
	assert_int_equal(rp_ah_open(a.pd, &address, &ah), 0);
	assert_int_equal(rp_dci_aim(a.qp, ah, 1, 0), -EINVAL);
	rp_ah_close(ah);
	rp_ah_close(NULL);
	end_close(&a);
}

/* On a device without dynamic connection it is refused, never emulated. */
static void test_no_dynamic_connection(void **state)
{
	static const enum rp_qp_type types[] = {RP_QP_DCI, RP_QP_DCT};
	struct rp_device_attr can;
	struct rp_srq *srq;
	struct rp_qp *qp;
	struct end a;

	(void)state;
	end_open(&a, &patient);
	rp_device_attr(a.device, &can);
	assert_int_equal(rp_srq_open(a.pd, 16, 1, &srq), 0);
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		struct rp_qp_attr attr = {
			.type = types[i], .send_cq = a.cq, .recv_cq = a.cq, .srq = srq};
		int err = rp_qp_open(a.pd, &attr, &qp);

		assert_int_equal(err, can.qp_types & (1u << types[i]) ? 0 : -EOPNOTSUPP);
		if (!err)
			rp_qp_close(qp);
		attr.srq = NULL;
		attr.type = RP_QP_DCT;
		assert_int_equal(rp_qp_open(a.pd, &attr, &qp), -EINVAL);
	}
	rp_srq_close(srq);
	end_close(&a);
}

const struct CMUnitTest suite_conn_tests[] = {
	cmocka_unit_test(test_device_names),
	cmocka_unit_test(test_private_data_both_ways),
	cmocka_unit_test(test_reject_then_retry),
	cmocka_unit_test(test_unreachable),
	cmocka_unit_test(test_deadline),
	cmocka_unit_test(test_listener_close_drops_requests),
	cmocka_unit_test(test_address_in_use),
	cmocka_unit_test(test_wildcard_listener),
	cmocka_unit_test(test_wrong_arguments),
	cmocka_unit_test(test_disconnect_tells_both),
	cmocka_unit_test(test_many_connections),
	cmocka_unit_test(test_joined_by_hand),
	cmocka_unit_test(test_joined_wrong_key),
	cmocka_unit_test(test_join_arguments),
	cmocka_unit_test(test_address_handles),
	cmocka_unit_test(test_no_dynamic_connection),
};
const size_t suite_conn_count = ARRAY_LEN(suite_conn_tests);
