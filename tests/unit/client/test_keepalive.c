/* Keepalives between libnebulaio and the native front: a silent peer is probed, and one whose host
 * is gone is given up. A device that goes silent after so many operations represents a host that
 * vanished. */
#include "../unit.h"
#include "../counted.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "rig.h"

#define B     "bucket"
#define BYTES 100000u
/* The client sends HELLO, PROOF and a request; the server sends CHALLENGE and WELCOME. */
#define CLIENT_DEVICE "simulated:vanish=3"
#define SERVER_DEVICE "simulated:vanish=2"
/* A failure shows as a time-out of the waits. A healthy session may be silent for longer than SOON:
 * a probe of it does no harm, except where each session's device goes silent after the request. */
#define SOON	 (20 * NS_PER_MS)
#define PATIENCE (100 * NS_PER_S)

static struct neb_client *client_open(const char *endpoints, enum neb_transport transport,
	const char *device_name, uint64_t keepalive_ns)
{
	const struct neb_options options = {.endpoints = endpoints,
		.access_key = RIG_ACCESS_KEY,
		.secret_key = RIG_SECRET_KEY,
		.transport = transport,
		.device_name = device_name,
		.request_timeout_ns = PATIENCE,
		.keepalive_ns = keepalive_ns};
	struct neb_client *client;

	assert_int_equal(neb_client_open(&options, &client), 0);
	return client;
}

static void put_held(struct rig *rig, uint8_t *data)
{
	struct neb_client *client = rig_client(rig, NEB_STRICT);

	rig_fill(data, BYTES, 1);
	assert_int_equal(neb_put(client, B, "held-1", data, BYTES, NULL), 0);
	neb_client_close(client);
}

/* Waits until the client has probed its server so often. */
static void keepalives_await(struct neb_client *client, uint64_t count)
{
	struct neb_stats stats;

	do {
		assert_int_equal(neb_poll(client, NULL, 0), 0);
		neb_client_stats(client, &stats);
	} while (stats.keepalives < count);
	assert_int_equal(stats.sessions_lost, 0);
}

/* A slow server is probed again and again, without further effect. */
static void test_slow_server(void **state)
{
	struct rig *rig = rig_open(NULL);
	struct neb_client *client = client_open(rig_endpoint(rig), NEB_STRICT, NULL, SOON);
	uint8_t out[BYTES], in[BYTES];
	struct neb_iov into = {in, BYTES};
	const struct neb_request get = {
		.op = NEB_GET_OBJECT, .bucket = B, .key = "held-1", .into = &into, .into_count = 1};
	struct neb_result result;

	(void)state;
	put_held(rig, out);
	assert_int_equal(neb_submit(client, &get, NULL), 0);
	keepalives_await(client, 4);
	rig_release_held(rig);
	assert_int_equal(neb_wait(client, &result, 1, PATIENCE), 1);
	assert_int_equal(result.error, 0);
	assert_memory_equal(in, out, BYTES);
	neb_client_close(client);
	rig_close(rig);
}

/* A client that waits for a dead host notices it long before its request's time is up. */
static void test_server_vanishes(void **state)
{
	struct rig *rig = rig_open(NULL);
	struct neb_client *client = client_open(rig_endpoint(rig), NEB_STRICT, CLIENT_DEVICE, SOON);
	uint8_t data[BYTES];
	struct neb_result result;
	struct neb_stats stats;

	(void)state;
	put_held(rig, data);
	assert_int_equal(neb_get(client, B, "held-1", data, sizeof(data), &result), -EHOSTUNREACH);
	assert_int_equal(result.status, 0);
	assert_string_equal(result.message, "the server's device no longer answers");
	neb_client_stats(client, &stats);
	assert_int_equal(stats.keepalives, 1);
	assert_int_equal(stats.sessions_lost, 1);
	rig_release_held(rig);
	assert_true(rig_sessions_become(rig, 0));
	neb_client_close(client);
	rig_close(rig);
}

/* False: the second server did not answer within the keepalive time, and the probe was dropped with
 * its session, because that session's device is silent after the request, too. */
static bool fails_over(uint64_t keepalive_ns)
{
	struct rig *first = rig_open(NULL), *second = rig_open(NULL);
	uint8_t out[BYTES], in[BYTES];
	struct neb_client *client;
	struct neb_result result;
	struct neb_stats stats;
	char endpoints[160];
	int error;

	snprintf(endpoints, sizeof(endpoints), "%s,%s", rig_endpoint(first), rig_endpoint(second));
	client = client_open(endpoints, NEB_RDMA, CLIENT_DEVICE, keepalive_ns);
	put_held(first, out);
	put_held(second, out);
	rig_release_held(second);
	error = neb_get(client, B, "held-1", in, sizeof(in), &result);
	neb_client_stats(client, &stats);
	if (stats.sessions_lost <= 1) {
		assert_int_equal(error, 0);
		assert_int_equal(result.transport, NEB_RDMA);
		assert_memory_equal(in, out, BYTES);
		assert_int_equal(stats.sessions_opened, 2);
		assert_int_equal(stats.sessions_lost, 1);
	}
	neb_client_close(client);
	rig_release_held(first);
	rig_close(first);
	rig_close(second);
	return stats.sessions_lost == 1;
}

/* The request goes to the next endpoint at once. */
static void test_fails_over(void **state)
{
	uint64_t keepalive_ns = SOON;

	(void)state;
	while (!fails_over(keepalive_ns)) {
		keepalive_ns *= 2;
		assert_true(keepalive_ns < PATIENCE);
	}
}

static uint64_t server_keepalives(void)
{
	return counted("nebulaio_native_keepalives_total");
}

/* An idle client, which does not even poll, keeps its session. */
static void test_idle_client(void **state)
{
	const struct rig_opts opts = {.keepalive_ns = SOON};
	struct rig *rig = rig_open(&opts);
	struct neb_client *client = rig_client(rig, NEB_STRICT);
	uint64_t before = server_keepalives();

	(void)state;
	while (server_keepalives() < before + 4)
		assert_int_equal(rig_sessions(rig), 1);
	assert_int_equal(neb_ping(client, NULL), 0);
	neb_client_close(client);
	rig_close(rig);
}

/* A client whose host is gone loses its session, and the server frees its frames and its place. */
static void test_client_vanishes(void **state)
{
	const struct rig_opts opts = {.keepalive_ns = SOON, .device_name = SERVER_DEVICE};
	struct rig *rig = rig_open(&opts);
	struct neb_client *client = client_open(rig_endpoint(rig), NEB_STRICT, NULL, SOON);

	(void)state;
	assert_true(rig_sessions_become(rig, 0));
	assert_int_equal(rig_frames_used(rig), 0);
	neb_client_close(client);
	rig_close(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slow_server),
		cmocka_unit_test(test_server_vanishes),
		cmocka_unit_test(test_fails_over),
		cmocka_unit_test(test_idle_client),
		cmocka_unit_test(test_client_vanishes),
	};

	return cmocka_run_group_tests_name("client_keepalive", tests, NULL, NULL);
}
