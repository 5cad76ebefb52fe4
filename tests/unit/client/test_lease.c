/* tests/unit/client/test_lease.c: one-sided reads of objects from the server's memory: when they
 * are used and when not, and that a changed object is never returned in its old state. */
#include "rig.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "../unit.h"
#include "base/life.h"

#define B "bucket"

struct fixture {
	struct rig *rig;
	struct neb_client *client;
	uint8_t *known; /* of the pool */
};

static struct fixture open_with(const struct rig_opts *opts, bool require_encryption)
{
	struct fixture f = {.rig = rig_open(opts)};
	const struct neb_options options = {.endpoints = rig_endpoint(f.rig),
		.access_key = RIG_ACCESS_KEY,
		.secret_key = RIG_SECRET_KEY,
		.transport = NEB_STRICT,
		.connect_timeout_ns = RIG_PATIENCE_NS,
		.request_timeout_ns = RIG_PATIENCE_NS,
		.require_encryption = require_encryption,
		.one_sided_reads = true};
	void *data;

	assert_int_equal(neb_client_open(&options, &f.client), 0);
	assert_int_equal(neb_buffer_alloc(f.client, 4096, &data), 0);
	f.known = data;
	return f;
}

static void close_all(struct fixture *f)
{
	neb_client_close(f->client);
	rig_close(f->rig);
}

static void put(struct fixture *f, const char *key, uint8_t fill, size_t bytes)
{
	uint8_t body[1024];

	memset(body, fill, bytes);
	assert_int_equal(neb_put(f->client, B, key, body, bytes, NULL), 0);
}

/* Gets the key and compares every byte with fill; checks whether the read was one-sided. */
static bool get(struct fixture *f, const char *key, uint8_t fill, size_t bytes, bool known)
{
	uint8_t heap[1024], *into = known ? f->known : heap;
	struct neb_result result;

	memset(into, (uint8_t)~fill, sizeof(heap));
	assert_int_equal(neb_get(f->client, B, key, into, sizeof(heap), &result), 0);
	assert_int_equal(result.status, 200);
	assert_int_equal(result.transport, NEB_RDMA);
	assert_int_equal(result.bytes, bytes);
	assert_int_equal(result.object_bytes, bytes);
	assert_int_equal(strlen(result.etag), 16);
	for (size_t i = 0; i < bytes; i++)
		assert_int_equal(into[i], fill);
	return result.one_sided;
}

static struct neb_stats stats_of(const struct fixture *f)
{
	struct neb_stats stats;

	neb_client_stats(f->client, &stats);
	return stats;
}

/* The first request is plain, the second grants a lease, and later reads are one-sided. */
static void test_third_read(void **state)
{
	struct fixture f = open_with(NULL, false);

	(void)state;
	put(&f, "a", 1, 1000);
	for (int i = 0; i < 10; i++)
		assert_int_equal(get(&f, "a", 1, 1000, i % 2), i >= 2);
	assert_int_equal(stats_of(&f).leases, 1);
	assert_int_equal(stats_of(&f).one_sided_reads, 8);
	assert_int_equal(stats_of(&f).one_sided_misses, 0);
	close_all(&f);
}

/* The client sees that an overwritten object's lease has ended, and the same answer grants another
 * one. */
static void test_overwritten(void **state)
{
	struct fixture f = open_with(NULL, false);

	(void)state;
	put(&f, "a", 1, 1000);
	get(&f, "a", 1, 1000, true);
	get(&f, "a", 1, 1000, true);
	for (uint8_t round = 2; round < 200; round++) {
		put(&f, "a", round, 900 + round % 3);
		assert_false(get(&f, "a", round, 900u + round % 3, round % 2));
		assert_true(get(&f, "a", round, 900u + round % 3, round % 2));
	}
	assert_int_equal(stats_of(&f).one_sided_misses, 198);
	assert_int_equal(neb_delete(f.client, B, "a", NULL), 0);
	assert_int_equal(neb_get(f.client, B, "a", f.known, 4096, NULL), -ENOENT);
	close_all(&f);
}

/* More objects than the pool holds: the oldest leases end, and objects are not mixed up. */
static void test_pool_goes_round(void **state)
{
	const struct rig_opts opts = {.lease_bytes = 16 * KIB};
	struct fixture f = open_with(&opts, false);
	uint32_t one_sided = 0;
	char key[16];

	(void)state;
	for (uint8_t i = 0; i < 40; i++) {
		snprintf(key, sizeof(key), "key-%u", i);
		put(&f, key, i, 300 + 17u * i);
	}
	for (int round = 0; round < 20; round++)
		for (uint8_t i = 0; i < 40; i++) {
			snprintf(key, sizeof(key), "key-%u", round % 3 ? i % 10 : i);
			one_sided += get(&f, key, round % 3 ? i % 10 : i,
				300 + 17u * (round % 3 ? i % 10 : i), i % 2);
		}
	assert_in_range(one_sided, 100, 700);
	assert_true(stats_of(&f).one_sided_misses > 0);
	close_all(&f);
}

static void test_time(void **state)
{
	const struct rig_opts opts = {.lease_ns = 1};
	struct fixture f = open_with(&opts, false);

	(void)state;
	put(&f, "a", 1, 1000);
	for (int i = 0; i < 10; i++)
		assert_false(get(&f, "a", 1, 1000, true));
	close_all(&f);
}

static void pass(uint64_t until_ns)
{
	while (clock_boot_ns() < until_ns)
		nanosleep(&(struct timespec){.tv_nsec = (long)NS_PER_MS}, NULL);
}

/* A read that began while the lease lasted, and whose client looks at it later, is not used. */
static void test_looked_at_late(void **state)
{
	const struct rig_opts opts = {.lease_ns = 200 * NS_PER_MS};
	struct fixture f = open_with(&opts, false);
	const struct neb_iov into = {f.known, 4096};
	const struct neb_request request = {
		.op = NEB_GET_OBJECT, .bucket = B, .key = "a", .into = &into, .into_count = 1};
	struct neb_result result;

	(void)state;
	put(&f, "a", 1, 1000);
	get(&f, "a", 1, 1000, true);
	get(&f, "a", 1, 1000, true);
	assert_int_equal(neb_submit(f.client, &request, NULL), 0);
	pass(clock_boot_ns() + 200 * NS_PER_MS);
	assert_int_equal(neb_wait(f.client, &result, 1, 60 * NS_PER_S), 1);
	assert_int_equal(result.error, 0);
	assert_int_equal(result.status, 200);
	assert_false(result.one_sided);
	close_all(&f);
}

/* The server's store may be taken over: no lease lasts longer than the server may answer. */
static void test_life_of_the_store(void **state)
{
	struct fixture f = open_with(NULL, false);
	struct life life = {0};
	uint64_t until_ns = clock_boot_ns() + 300 * NS_PER_MS;
	struct neb_result result;

	(void)state;
	put(&f, "a", 1, 1000);
	life_renew(&life, until_ns);
	for (int i = 0; i < 2; i++)
		neb_get(f.client, B, "a", f.known, 4096, NULL);
	pass(until_ns);
	life_renew(&life, clock_boot_ns() + 3600 * NS_PER_S);
	assert_false(get(&f, "a", 1, 1000, true));
	assert_int_equal(stats_of(&f).one_sided_misses, 0);
	/* That answer had a lease. */
	assert_true(get(&f, "a", 1, 1000, true));
	/* Its time is over: the object is neither answered nor leased. */
	put(&f, "b", 2, 1000);
	life_renew(&life, 1);
	assert_int_not_equal(neb_get(f.client, B, "b", f.known, 4096, &result), 0);
	assert_int_equal(result.status, 503);
	assert_string_equal(result.code, "SlowDown");
	life_end(&life);
	assert_false(get(&f, "b", 2, 1000, true));
	close_all(&f);
}

/* A request that asks for more than the whole object, or has no room for it, goes to the server. */
static void test_not_plain(void **state)
{
	struct fixture f = open_with(NULL, false);
	const struct neb_iov into = {f.known, 4096};
	struct neb_request request = {
		.op = NEB_GET_OBJECT, .bucket = B, .key = "a", .into = &into, .into_count = 1};
	struct neb_result result;

	(void)state;
	put(&f, "a", 1, 1000);
	for (int i = 0; i < 3; i++)
		get(&f, "a", 1, 1000, true);
	request.range_bytes = 10;
	assert_int_equal(neb_perform(f.client, &request, &result), 0);
	assert_false(result.one_sided);
	assert_int_equal(result.bytes, 10);
	request.range_bytes = 0;
	request.want_headers = true;
	assert_int_equal(neb_perform(f.client, &request, &result), 0);
	assert_false(result.one_sided);
	assert_true(strstr(result.headers, "x-amz-meta-colour") != NULL);
	assert_int_equal(neb_get(f.client, B, "a", f.known, 999, &result), -EMSGSIZE);
	assert_false(result.one_sided);
	assert_true(get(&f, "a", 1, 1000, true));
	close_all(&f);
}

/* An encrypted session has no leases, whose copies would be plain text. */
static void test_encrypted(void **state)
{
	struct fixture f = open_with(NULL, true);

	(void)state;
	put(&f, "a", 1, 1000);
	for (int i = 0; i < 10; i++)
		assert_false(get(&f, "a", 1, 1000, true));
	assert_int_equal(stats_of(&f).leases, 0);
	close_all(&f);
}

/* Many in flight at once, over objects that change meanwhile: each answer is a content that the
 * object had after the request began. */
static void test_in_flight(void **state)
{
	enum { DEPTH = 32, KEYS = 4, ROUNDS = 200 };
	struct fixture f = open_with(NULL, false);
	uint8_t versions[KEYS] = {0}, into[DEPTH][1024];
	char keys[KEYS][8];

	(void)state;
	for (int i = 0; i < KEYS; i++) {
		snprintf(keys[i], sizeof(keys[i]), "k%d", i);
		put(&f, keys[i], 0, 1000);
	}
	for (int round = 0; round < ROUNDS; round++) {
		struct neb_result results[DEPTH];
		uint32_t got = 0;

		for (uint32_t i = 0; i < DEPTH; i++) {
			const struct neb_iov iov = {into[i], sizeof(into[i])};
			const struct neb_request request = {.op = NEB_GET_OBJECT,
				.bucket = B,
				.key = keys[i % KEYS],
				.into = &iov,
				.into_count = 1,
				.user_data = (void *)(uintptr_t)i};

			assert_int_equal(neb_submit(f.client, &request, NULL), 0);
		}
		put(&f, keys[round % KEYS], (uint8_t)(versions[round % KEYS] + 1), 1000);
		while (got < DEPTH)
			got += (uint32_t)neb_wait(
				f.client, results + got, DEPTH - got, 60 * NS_PER_S);
		for (uint32_t i = 0; i < DEPTH; i++) {
			uint32_t slot = (uint32_t)(uintptr_t)results[i].user_data;
			uint8_t seen = into[slot][0];

			assert_int_equal(results[i].error, 0);
			for (int j = 0; j < 1000; j++)
				assert_int_equal(into[slot][j], seen);
			assert_true(seen == versions[slot % KEYS] ||
				    (slot % KEYS == (uint32_t)round % KEYS &&
					    seen == (uint8_t)(versions[slot % KEYS] + 1)));
		}
		versions[round % KEYS]++;
	}
	assert_true(stats_of(&f).one_sided_reads > ROUNDS);
	close_all(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_third_read),
		cmocka_unit_test(test_overwritten),
		cmocka_unit_test(test_pool_goes_round),
		cmocka_unit_test(test_time),
		cmocka_unit_test(test_looked_at_late),
		cmocka_unit_test(test_life_of_the_store),
		cmocka_unit_test(test_not_plain),
		cmocka_unit_test(test_encrypted),
		cmocka_unit_test(test_in_flight),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
