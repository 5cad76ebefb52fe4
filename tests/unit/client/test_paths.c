/* Several paths between libnebulaio and one server: requests spread, those of a path that dies move
 * to another and are done once, the path comes back. A simulated device that goes silent after so
 * many transmissions of a queue pair represents a path that is cut. */
#include "../unit.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/life.h"
#include "rig.h"

#define B     "bucket"
#define BYTES 20000u
/* HELLO, PROOF and one request; then nothing of it arrives any more. */
#define CUT_AFTER_ONE "simulated:vanish=3"
#define PLAIN	      "simulated"
#define SOON	      (80 * NS_PER_MS)
#define PATIENCE      (100 * NS_PER_S)
#define WINDOW	      24u
#define WRITES	      96u

static const struct rig_opts TWO = {.second = PLAIN};

static struct neb_client *client_open_kept(const char *endpoints, const char *devices,
	enum neb_transport transport, uint64_t keepalive_ns)
{
	const struct neb_options options = {.endpoints = endpoints,
		.access_key = RIG_ACCESS_KEY,
		.secret_key = RIG_SECRET_KEY,
		.transport = transport,
		.device_name = devices,
		.request_timeout_ns = PATIENCE,
		.connect_timeout_ns = PATIENCE,
		.one_sided_reads = true,
		.keepalive_ns = keepalive_ns};
	struct neb_client *client;

	assert_int_equal(neb_client_open(&options, &client), 0);
	return client;
}

static struct neb_client *client_open(
	const char *endpoints, const char *devices, enum neb_transport transport)
{
	return client_open_kept(endpoints, devices, transport, SOON);
}

static struct neb_stats stats_of(struct neb_client *client)
{
	struct neb_stats stats;

	neb_client_stats(client, &stats);
	return stats;
}

/* Waits until the client has sessions on so many paths. */
static void paths_await(struct neb_client *client, uint64_t up)
{
	uint64_t deadline_ns = clock_now_ns() + PATIENCE;

	while (stats_of(client).paths_up != up) {
		assert_int_equal(neb_poll(client, NULL, 0), 0);
		assert_true(clock_now_ns() < deadline_ns);
	}
}

static struct neb_client *both_open(struct rig *rig, const char *devices)
{
	struct neb_client *client = client_open(rig_endpoint(rig), devices, NEB_STRICT);

	paths_await(client, 2);
	return client;
}

/* A write of a key that must be new. */
static struct neb_request new_of(const char *key, const struct neb_iov *body)
{
	static const struct neb_header header = {"If-None-Match", "*"};

	return (struct neb_request){.op = NEB_PUT_OBJECT,
		.bucket = B,
		.key = key,
		.headers = &header,
		.header_count = 1,
		.body = body,
		.body_count = 1};
}

static int put_new(
	struct neb_client *client, const char *key, uint8_t *data, struct neb_result *result)
{
	struct neb_iov body = {data, BYTES};
	const struct neb_request put = new_of(key, &body);

	return neb_perform(client, &put, result);
}

static void results_take(struct neb_client *client, uint32_t count)
{
	struct neb_result result;

	while (count--) {
		assert_int_equal(neb_wait(client, &result, 1, PATIENCE), 1);
		assert_string_equal(result.message, "");
		assert_int_equal(result.error, 0);
	}
}

/* Two paths on one device, and on a device each: both carry requests. */
static void spread(const char *devices, bool encrypted)
{
	const struct rig_opts opts = {.second = PLAIN, .encrypted = encrypted};
	struct rig *rig = rig_open(&opts);
	struct neb_client *client = both_open(rig, devices);
	static uint8_t data[WINDOW][BYTES];
	char keys[WINDOW][16];

	for (uint32_t i = 0; i < 2 * WINDOW; i++) {
		uint32_t at = i % WINDOW;
		struct neb_iov iov = {data[at], BYTES};
		struct neb_request request = {.op = i < WINDOW ? NEB_PUT_OBJECT : NEB_GET_OBJECT,
			.bucket = B,
			.key = keys[at]};

		snprintf(keys[at], sizeof(keys[at]), "key-%u", at);
		if (i < WINDOW) {
			rig_fill(data[at], BYTES, at);
			request.body = &iov;
			request.body_count = 1;
		} else {
			request.into = &iov;
			request.into_count = 1;
		}
		assert_int_equal(neb_submit(client, &request, NULL), 0);
		if (at == WINDOW - 1)
			results_take(client, WINDOW);
	}
	assert_true(rig_path_requests(rig, 0) > WINDOW / 4);
	assert_true(rig_path_requests(rig, 1) > WINDOW / 4);
	assert_int_equal(stats_of(client).requests_moved, 0);
	assert_int_equal(rig_sessions(rig), 2);
	neb_client_close(client);
	rig_close(rig);
}

static void test_spreads(void **state)
{
	(void)state;
	spread(PLAIN, false);
	spread(PLAIN " " PLAIN ":seed=2", false);
	spread(PLAIN, true);
}

/* The answer of a conditional write is lost with its path, after the write was done: the repetition
 * gets it, and does nothing. */
static void test_answer_lost(void **state)
{
	struct rig *rig = rig_open(&TWO);
	struct neb_client *client = both_open(rig, CUT_AFTER_ONE " " PLAIN);
	uint8_t data[BYTES], in[BYTES];
	struct neb_iov body = {data, BYTES};
	const struct neb_request put = new_of("late-1", &body);
	struct neb_result result;

	(void)state;
	rig_fill(data, BYTES, 3);
	assert_int_equal(neb_submit(client, &put, NULL), 0);
	/* The write is done, and its answer held, when the client gives the path up. */
	while (!fake_s3_puts(rig_s3(rig)) || !stats_of(client).requests_moved)
		assert_int_equal(neb_poll(client, NULL, 0), 0);
	rig_release_held(rig);
	assert_int_equal(neb_wait(client, &result, 1, PATIENCE), 1);
	assert_int_equal(result.status, 200);
	assert_int_equal(strlen(result.etag), 16);
	assert_int_equal(fake_s3_puts(rig_s3(rig)), 1);
	assert_int_equal(stats_of(client).sessions_lost, 1);
	/* A new one of the same key is refused, as it should be. */
	assert_int_equal(put_new(client, "late-1", data, &result), -ESTALE);
	assert_int_equal(neb_get(client, B, "late-1", in, BYTES, NULL), 0);
	assert_memory_equal(in, data, BYTES);
	neb_client_close(client);
	rig_close(rig);
}

/* The answer is withheld, because the store may have another owner: the write is asked for again,
 * by its number, and is not done twice. */
static void test_answer_withheld(void **state)
{
	struct rig *rig = rig_open(NULL);
	struct neb_client *client = client_open(rig_endpoint(rig), PLAIN, NEB_RDMA);
	uint8_t data[BYTES];
	struct neb_iov body = {data, BYTES};
	const struct neb_request put = new_of("new", &body);
	static struct life life;
	struct neb_result result;

	(void)state;
	rig_fill(data, BYTES, 3);
	assert_int_equal(neb_put(client, B, "first", data, BYTES, NULL), 0);
	life_renew(&life, 1);
	assert_int_equal(neb_submit(client, &put, NULL), 0);
	while (!stats_of(client).retries)
		assert_int_equal(neb_poll(client, &result, 1), 0);
	life_end(&life);
	assert_int_equal(neb_wait(client, &result, 1, PATIENCE), 1);
	assert_int_equal(result.status, 200);
	assert_int_equal(fake_s3_puts(rig_s3(rig)), 2);
	neb_client_close(client);
	rig_close(rig);
}

/* False: the next server did not answer within the keepalive time, and the probe was dropped with
 * its session, because that session's device is silent after a request, too. */
static bool outcome_unknown(uint64_t keepalive_ns)
{
	struct rig *first = rig_open(NULL), *second = rig_open(NULL);
	uint8_t data[BYTES] = {0};
	struct neb_client *client;
	struct neb_result result;
	char endpoints[160];
	uint64_t lost;
	bool kept;
	int error;

	snprintf(endpoints, sizeof(endpoints), "%s,%s", rig_endpoint(first), rig_endpoint(second));
	client = client_open_kept(endpoints, CUT_AFTER_ONE " " PLAIN, NEB_RDMA, keepalive_ns);
	assert_int_equal(put_new(client, "late-1", data, &result), -EIO);
	assert_string_equal(result.code, "OutcomeUnknown");
	assert_int_equal(fake_s3_puts(rig_s3(second)), 0);
	/* A write that may be done twice goes on. */
	lost = stats_of(client).sessions_lost;
	error = neb_put(client, B, "plain", data, BYTES, NULL);
	kept = stats_of(client).sessions_lost == lost;
	if (kept) {
		assert_int_equal(error, 0);
		assert_int_equal(fake_s3_puts(rig_s3(second)), 1);
	}
	rig_release_held(first);
	neb_client_close(client);
	rig_close(first);
	rig_close(second);
	return kept;
}

/* The same where the next endpoint is another server, which knows nothing: the client is told. */
static void test_outcome_unknown(void **state)
{
	uint64_t keepalive_ns = SOON;

	(void)state;
	while (!outcome_unknown(keepalive_ns)) {
		keepalive_ns *= 2;
		assert_true(keepalive_ns < PATIENCE);
	}
}

/* Submits conditional writes of new keys, a window at a time: each is done once. */
static void writes_run(struct neb_client *client, struct rig *rig)
{
	static uint8_t data[BYTES];
	struct neb_iov body = {data, BYTES};
	uint64_t before = fake_s3_puts(rig_s3(rig));
	uint32_t flying = 0;
	char key[16];

	for (uint32_t i = 0; i < WRITES; i++) {
		const struct neb_request put = new_of(key, &body);

		snprintf(key, sizeof(key), "new-%u", i);
		body.bytes = i % 3 ? BYTES : 100; /* some inside the capsule */
		assert_int_equal(neb_submit(client, &put, NULL), 0);
		if (++flying < WINDOW)
			continue;
		results_take(client, 1);
		flying--;
	}
	results_take(client, flying);
	assert_int_equal(fake_s3_puts(rig_s3(rig)), before + WRITES);
}

/* One path is cut at a random moment, again and again as it comes back: for what the client sends,
 * or for what the server sends. */
static void test_cut_at_random(void **state)
{
	struct prng prng;

	(void)state;
	prng_seed(&prng, 86);
	for (uint32_t round = 0; round < 12; round++) {
		bool server = round % 2;
		char cut[64];
		struct rig_opts opts = {.second = PLAIN, .keepalive_ns = SOON};
		struct neb_client *client;
		struct rig *rig;

		snprintf(cut, sizeof(cut), "simulated:vanish=%llu",
			(unsigned long long)(4 + prng_below(&prng, 40)));
		if (server)
			opts.second = cut;
		rig = rig_open(&opts);
		client = both_open(rig, PLAIN);
		if (!server) {
			neb_client_close(client);
			strcat(cut, " " PLAIN);
			client = both_open(rig, cut);
		}
		writes_run(client, rig);
		assert_true(stats_of(client).sessions_lost > 0);
		neb_client_close(client);
		assert_true(rig_sessions_become(rig, 0));
		rig_close(rig);
	}
}

/* A path that was cut is tried again, and used again. */
static void test_comes_back(void **state)
{
	struct rig *rig = rig_open(&TWO);
	struct neb_client *client = both_open(rig, "simulated:vanish=6 " PLAIN);
	uint8_t data[BYTES];

	(void)state;
	for (uint32_t i = 0; !stats_of(client).sessions_lost; i++)
		assert_int_equal(neb_put(client, B, "key", data, BYTES, NULL), 0);
	assert_int_equal(stats_of(client).paths, 2);
	paths_await(client, 2);
	assert_true(stats_of(client).sessions_opened >= 3);
	assert_int_equal(neb_get(client, B, "key", data, BYTES, NULL), 0);
	neb_client_close(client);
	rig_close(rig);
}

/* A lease of one path is read by that path's keys, also when another path has more room. */
static void test_leases(void **state)
{
	struct rig *rig = rig_open(&TWO);
	struct neb_client *client = both_open(rig, PLAIN " " PLAIN ":seed=2");
	uint8_t data[100], in[100], held[100];
	struct neb_iov into = {held, sizeof(held)};
	const struct neb_request wait = {
		.op = NEB_GET_OBJECT, .bucket = B, .key = "held-1", .into = &into, .into_count = 1};
	struct neb_result result;

	(void)state;
	rig_fill(data, sizeof(data), 7);
	assert_int_equal(neb_put(client, B, "held-1", data, sizeof(data), NULL), 0);
	assert_int_equal(neb_put(client, B, "hot", data, sizeof(data), NULL), 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(neb_get(client, B, "hot", in, sizeof(in), &result), 0);
	assert_true(result.one_sided);
	/* The first path, which has the lease, has less room now. */
	assert_int_equal(neb_submit(client, &wait, NULL), 0);
	assert_int_equal(neb_get(client, B, "hot", in, sizeof(in), &result), 0);
	assert_true(result.one_sided);
	assert_memory_equal(in, data, sizeof(data));
	rig_release_held(rig);
	results_take(client, 1);
	neb_client_close(client);
	rig_close(rig);
}

/* A request that a lease of another path has no answer for goes out with its own path's keys. */
static void test_lease_ran_out(void **state)
{
	const struct rig_opts opts = {.second = PLAIN, .lease_ns = 1};
	struct rig *rig = rig_open(&opts);
	struct neb_client *client = both_open(rig, PLAIN " " PLAIN ":seed=2");
	uint8_t data[100], held[100];
	struct neb_iov into = {held, sizeof(held)};
	const struct neb_request wait = {
		.op = NEB_GET_OBJECT, .bucket = B, .key = "held-1", .into = &into, .into_count = 1};
	struct neb_result result;
	void *in;

	(void)state;
	assert_int_equal(neb_buffer_alloc(client, sizeof(data), &in), 0);
	rig_fill(data, sizeof(data), 7);
	assert_int_equal(neb_put(client, B, "held-1", data, sizeof(data), NULL), 0);
	assert_int_equal(neb_put(client, B, "hot", data, sizeof(data), NULL), 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(neb_get(client, B, "hot", in, sizeof(data), NULL), 0);
	assert_true(stats_of(client).leases > 0);
	/* The first path, which has the lease, has less room now. */
	assert_int_equal(neb_submit(client, &wait, NULL), 0);
	memset(in, 0, sizeof(data));
	assert_int_equal(neb_get(client, B, "hot", in, sizeof(data), &result), 0);
	assert_false(result.one_sided);
	assert_memory_equal(in, data, sizeof(data));
	assert_int_equal(stats_of(client).sessions_lost, 0);
	assert_true(rig_path_requests(rig, 1) > 0);
	rig_release_held(rig);
	results_take(client, 1);
	neb_buffer_free(client, in);
	neb_client_close(client);
	rig_close(rig);
}

/* All devices of a server share its places: here 8. */
static void test_places(void **state)
{
	struct rig *rig = rig_open(&TWO);
	struct neb_client *clients[6];
	uint64_t deadline_ns = clock_now_ns() + PATIENCE, up = 0;

	(void)state;
	for (uint32_t i = 0; i < ARRAY_LEN(clients); i++)
		clients[i] = client_open(rig_endpoint(rig), PLAIN, NEB_RDMA);
	/* A place is kept for other keys. */
	while (up < 7) {
		up = 0;
		for (uint32_t i = 0; i < ARRAY_LEN(clients); i++) {
			(void)neb_ping(clients[i], NULL); /* it may be refused */
			up += stats_of(clients[i]).paths_up;
		}
		assert_true(up <= 8 && clock_now_ns() < deadline_ns);
	}
	for (uint32_t i = 0; i < ARRAY_LEN(clients); i++)
		neb_client_close(clients[i]);
	rig_close(rig);
}

/* ---- Addresses that the server tells. ---- */

static const struct rig_opts TELLS = {.second = PLAIN, .tells = true, .store_id = 77};

static void path_used(struct neb_client *client, struct rig *rig, uint8_t *data)
{
	struct neb_iov body = {data, BYTES};
	char keys[WINDOW][16];

	for (uint32_t i = 0; i < WINDOW; i++) {
		const struct neb_request put = {.op = NEB_PUT_OBJECT,
			.bucket = B,
			.key = keys[i],
			.body = &body,
			.body_count = 1};

		snprintf(keys[i], sizeof(keys[i]), "told-%u", i);
		assert_int_equal(neb_submit(client, &put, NULL), 0);
	}
	results_take(client, WINDOW);
	assert_true(rig_path_requests(rig, 0) > 0);
	assert_true(rig_path_requests(rig, 1) > 0);
}

/* A client that was given one address uses both, on a device that it has and on one that it opens
 * for it, whose keys for the pool and for registered memory it then has. */
static void told(const char *devices, bool encrypted)
{
	static uint8_t data[BYTES];
	struct rig_opts opts = TELLS;
	struct neb_client *client;
	struct rig *rig;
	void *pooled;

	opts.encrypted = encrypted;
	rig = rig_open(&opts);
	client = client_open(rig_endpoint_first(rig), devices, NEB_STRICT);
	assert_int_equal(neb_register(client, data, sizeof(data)), 0);
	assert_int_equal(neb_buffer_alloc(client, BYTES, &pooled), 0);
	paths_await(client, 2);
	assert_int_equal(stats_of(client).paths, 2);
	assert_string_equal(neb_client_device(client), devices);
	rig_fill(data, BYTES, 9);
	memcpy(pooled, data, BYTES);
	path_used(client, rig, data);
	path_used(client, rig, pooled);
	/* The second path's session told the same: nothing new. */
	assert_int_equal(stats_of(client).sessions_opened, 2);
	assert_int_equal(neb_unregister(client, data), 0);
	neb_client_close(client);
	rig_close(rig);
}

static void test_told(void **state)
{
	(void)state;
	told(PLAIN, false);
	told(PLAIN " " PLAIN ":seed=2", false);
	told(PLAIN " " PLAIN ":seed=2", true);
}

/* A told path takes the requests of the given one, which is lost. */
static void test_told_takes_over(void **state)
{
	struct rig *rig = rig_open(&TELLS);
	struct neb_client *client =
		client_open(rig_endpoint_first(rig), "simulated:vanish=40 " PLAIN, NEB_STRICT);

	(void)state;
	paths_await(client, 2);
	writes_run(client, rig);
	assert_true(stats_of(client).sessions_lost > 0);
	neb_client_close(client);
	rig_close(rig);
}

static void given_alone(struct rig *rig, const char *suffix)
{
	struct neb_client *client;
	char endpoint[80];

	snprintf(endpoint, sizeof(endpoint), "%s%s", rig_endpoint_first(rig), suffix);
	client = client_open(endpoint, PLAIN, NEB_STRICT);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(neb_ping(client, NULL), 0);
	assert_int_equal(stats_of(client).paths, 1);
	assert_int_equal(stats_of(client).sessions_opened, 1);
	assert_int_equal(rig_sessions(rig), 1);
	neb_client_close(client);
	assert_true(rig_sessions_become(rig, 0));
}

/* Nothing is used but what was given: because the program says so, because nothing is told, or
 * because the server does not name its store. */
static void test_given(void **state)
{
	struct rig_opts opts = TELLS;
	struct rig *rig = rig_open(&opts);

	(void)state;
	given_alone(rig, "?paths=given");
	rig_close(rig);
	opts.tells = false;
	rig = rig_open(&opts);
	given_alone(rig, "");
	rig_close(rig);
	opts.tells = true;
	opts.store_id = 0;
	rig = rig_open(&opts);
	given_alone(rig, "");
	rig_close(rig);
}

static void note_log(void *arg, enum neb_log_level level, const char *text)
{
	bool *seen = arg;

	assert_true(level < NEB_LOG_WARN);
	*seen |= strstr(text, "another store") != NULL;
}

/* A told address where another store listens gets no request, and one where nobody listens does not
 * disturb. */
static void test_told_another(void **state)
{
	struct rig *other = rig_open(&(struct rig_opts){.store_id = 78});
	struct rig_opts opts = {.tells = true, .store_id = 77, .tells_port = rig_port(other)};
	struct rig *rig = rig_open(&opts);
	bool seen = false;
	const struct neb_options options = {.endpoints = rig_endpoint_first(rig),
		.access_key = RIG_ACCESS_KEY,
		.secret_key = RIG_SECRET_KEY,
		.transport = NEB_RDMA,
		.device_name = PLAIN,
		.log = note_log,
		.log_arg = &seen};
	uint64_t deadline_ns = clock_now_ns() + PATIENCE;
	uint8_t data[BYTES] = {0};
	struct neb_client *client;

	(void)state;
	assert_int_equal(neb_client_open(&options, &client), 0);
	do {
		assert_int_equal(neb_put(client, B, "key", data, BYTES, NULL), 0);
		assert_true(clock_now_ns() < deadline_ns);
	} while (!seen);
	assert_int_equal(stats_of(client).paths_up, 1);
	assert_int_equal(fake_s3_puts(rig_s3(other)), 0);
	rig_close(other);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(neb_put(client, B, "key", data, BYTES, NULL), 0);
	neb_client_close(client);
	rig_close(rig);
}

static void *drain(void *arg)
{
	rig_drain(arg);
	return NULL;
}

/* The client sees its sessions end meanwhile, so that they end at once. */
static void server_end(struct rig *rig, struct neb_client *client)
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, drain, rig), 0);
	paths_await(client, 0);
	pthread_join(thread, NULL);
	rig_close(rig);
}

/* A server that comes back tells other addresses: the old ones are forgotten, and their places used
 * again. */
static void test_told_anew(void **state)
{
	struct rig_opts opts = TELLS;
	struct neb_client *client;
	struct rig *rig;

	(void)state;
	rig = rig_open(&opts);
	opts.port = rig_port(rig);
	client = client_open(rig_endpoint_first(rig), PLAIN, NEB_RDMA);
	assert_int_equal(neb_ping(client, NULL), 0);
	for (uint32_t i = 0; i < 9; i++) {
		paths_await(client, opts.tells ? 2 : 1);
		assert_int_equal(stats_of(client).paths, opts.tells ? 2 : 1);
		server_end(rig, client);
		opts.tells = i % 3 != 1;
		opts.store_id += i % 3 == 0; /* it may have a new store, too */
		rig = rig_open(&opts);
		assert_int_equal(neb_ping(client, NULL), 0);
	}
	neb_client_close(client);
	rig_close(rig);
}

/* Further sessions leave half of the places to clients that have none: here 4 of 8, of which one is
 * kept for other keys. */
static void test_told_places(void **state)
{
	struct rig *rig = rig_open(&TELLS);
	struct neb_client *clients[5];

	(void)state;
	for (uint32_t i = 0; i < ARRAY_LEN(clients); i++) {
		clients[i] = client_open(rig_endpoint_first(rig), PLAIN, NEB_RDMA);
		for (uint32_t j = 0; j < 3; j++)
			for (uint32_t k = 0; k <= i; k++)
				assert_int_equal(neb_ping(clients[k], NULL), 0);
	}
	assert_true(rig_sessions(rig) <= 7);
	for (uint32_t i = 0; i < ARRAY_LEN(clients); i++)
		neb_client_close(clients[i]);
	rig_close(rig);
}

static void text_refused(const char *endpoints)
{
	const struct neb_options options = {
		.endpoints = endpoints, .access_key = RIG_ACCESS_KEY, .secret_key = RIG_SECRET_KEY};
	struct neb_client *client;

	assert_int_equal(neb_client_open(&options, &client), -EINVAL);
}

static void test_texts(void **state)
{
	(void)state;
	text_refused("127.0.0.1:9100");
	text_refused("http://127.0.0.1:9000,127.0.0.1:9001");
	text_refused("rdma://127.0.0.1,:9100");
	text_refused("rdma://a,b:0");
	text_refused("rdma://127.0.0.1:9100?paths=all");
	text_refused("http://127.0.0.1:9000?paths=given");
	text_refused("rdma://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3,127.0.0.1:4,127.0.0.1:5,"
		     "127.0.0.1:6,127.0.0.1:7,127.0.0.1:8,127.0.0.1:9");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spreads),
		cmocka_unit_test(test_answer_lost),
		cmocka_unit_test(test_answer_withheld),
		cmocka_unit_test(test_outcome_unknown),
		cmocka_unit_test(test_cut_at_random),
		cmocka_unit_test(test_comes_back),
		cmocka_unit_test(test_leases),
		cmocka_unit_test(test_lease_ran_out),
		cmocka_unit_test(test_places),
		cmocka_unit_test(test_told),
		cmocka_unit_test(test_told_takes_over),
		cmocka_unit_test(test_given),
		cmocka_unit_test(test_told_another),
		cmocka_unit_test(test_told_anew),
		cmocka_unit_test(test_told_places),
		cmocka_unit_test(test_texts),
	};

	return cmocka_run_group_tests_name("client_paths", tests, NULL, NULL);
}
