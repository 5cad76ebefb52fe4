/* tests/unit/client/test_batch.c: neb_get_batch: every item has its own result, whatever happens to
 * the others, the session or the batch. */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "rig.h"

#define B	   "bucket"
#define OBJECTS	   100u
#define BYTES(n)   (300u + 37u * ((uint32_t)(n) % OBJECTS))
#define ROOM_BYTES 4096u

struct fixture {
	struct rig *rig;
	struct neb_client *client;
	uint64_t count;
	struct neb_batch_item *items;
	char (*keys)[32];
	uint8_t *room; /* ROOM_BYTES for each item */
	uint64_t landed, asked;
	uint64_t end_at; /* the landed item that ends the batch; 0: none */
	bool close_at_end;
};

static void objects_put(struct fixture *f, const char *prefix)
{
	uint8_t body[ROOM_BYTES];
	char key[32];

	for (uint32_t i = 0; i < OBJECTS; i++) {
		snprintf(key, sizeof(key), "%s%u", prefix, i);
		rig_fill(body, BYTES(i), i);
		assert_int_equal(neb_put(f->client, B, key, body, BYTES(i), NULL), 0);
	}
}

static struct neb_client *client_with(struct rig *rig, bool one_sided)
{
	const struct neb_options options = {.endpoints = rig_endpoint(rig),
		.access_key = RIG_ACCESS_KEY,
		.secret_key = RIG_SECRET_KEY,
		.transport = NEB_STRICT,
		.connect_timeout_ns = RIG_PATIENCE_NS,
		.request_timeout_ns = RIG_PATIENCE_NS,
		.pool_bytes = 64 * MIB,
		.one_sided_reads = one_sided};
	struct neb_client *client;

	assert_int_equal(neb_client_open(&options, &client), 0);
	return client;
}

static void fixture_open(
	struct fixture *f, const struct rig_opts *opts, const char *prefix, uint64_t count)
{
	*f = (struct fixture){.rig = rig_open(opts), .count = count};
	f->client = client_with(f->rig, false);
	f->items = calloc(count, sizeof(*f->items));
	f->keys = calloc(count, sizeof(*f->keys));
	f->room = calloc(count, ROOM_BYTES);
	for (uint64_t i = 0; i < count; i++) {
		snprintf(f->keys[i], sizeof(f->keys[i]), "%s%u", prefix, (uint32_t)i % OBJECTS);
		f->items[i] = (struct neb_batch_item){.key = f->keys[i],
			.data = f->room + i * ROOM_BYTES,
			.data_bytes = ROOM_BYTES};
	}
	objects_put(f, prefix);
}

static void fixture_close(struct fixture *f)
{
	neb_client_close(f->client);
	if (f->rig)
		rig_close(f->rig);
	free(f->items);
	free(f->keys);
	free(f->room);
}

static bool on_landed(void *arg, struct neb_batch_item *item, const struct neb_result *result)
{
	struct fixture *f = arg;

	assert_int_equal(item->error, result->error);
	assert_int_equal(item->bytes_read, result->bytes);
	f->landed++;
	if (!f->end_at || f->landed != f->end_at)
		return true;
	if (!f->close_at_end)
		return false;
	rig_close(f->rig);
	f->rig = NULL;
	return true;
}

static int batch_get(struct fixture *f, struct neb_batch batch)
{
	batch.bucket = B;
	batch.items = f->items;
	batch.item_count = f->count;
	batch.done = on_landed;
	batch.arg = f;
	return neb_get_batch(f->client, &batch);
}

static void item_holds(const struct neb_batch_item *item, uint64_t n)
{
	uint8_t expected[ROOM_BYTES];

	assert_int_equal(item->error, 0);
	assert_int_equal(item->status, 200);
	assert_int_equal(item->transport, NEB_RDMA);
	assert_int_equal(item->bytes_read, BYTES(n));
	assert_int_equal(item->object_bytes, BYTES(n));
	assert_int_equal(strlen(item->etag), 16);
	rig_fill(expected, BYTES(n), n % OBJECTS);
	assert_memory_equal(item->data, expected, BYTES(n));
}

/* Thousands of items by a session that takes two requests at a time, and none of them leaves
 * anything behind. */
static void test_few_credits(void **state)
{
	const struct rig_opts opts = {.credits = 2};
	struct fixture f;

	(void)state;
	fixture_open(&f, &opts, "key-", 5000);
	assert_int_equal(batch_get(&f, (struct neb_batch){0}), 0);
	assert_int_equal(f.landed, f.count);
	for (uint64_t i = 0; i < f.count; i++)
		item_holds(&f.items[i], i);
	assert_int_equal(neb_in_flight(f.client), 0);
	fixture_close(&f);
}

/* Any window, in memory that is registered: no byte is copied. */
static void test_windows(void **state)
{
	static const uint32_t WINDOWS[] = {1, 7, 64, 1024};
	struct neb_stats before, after;
	struct fixture f;

	(void)state;
	fixture_open(&f, NULL, "key-", 2000);
	assert_int_equal(neb_register(f.client, f.room, f.count * ROOM_BYTES), 0);
	neb_client_stats(f.client, &before);
	for (size_t i = 0; i < ARRAY_LEN(WINDOWS); i++) {
		memset(f.room, 0, f.count * ROOM_BYTES);
		assert_int_equal(batch_get(&f, (struct neb_batch){.window = WINDOWS[i]}), 0);
		for (uint64_t j = 0; j < f.count; j++)
			item_holds(&f.items[j], j);
	}
	neb_client_stats(f.client, &after);
	assert_int_equal(after.bytes_copied, before.bytes_copied);
	assert_int_equal(after.registrations, before.registrations);
	assert_int_equal(batch_get(&f, (struct neb_batch){.window = 1025}), -EINVAL);
	f.count = 0;
	assert_int_equal(batch_get(&f, (struct neb_batch){0}), 0);
	assert_int_equal(neb_unregister(f.client, f.room), 0);
	fixture_close(&f);
}

static void item_fails(const struct neb_batch_item *item, int error, uint32_t status)
{
	assert_int_equal(item->error, error);
	assert_int_equal(item->status, status);
	assert_int_equal(item->bytes_read, 0);
}

/* Items that fail fail alone; the batch's error is the first one's. */
static void test_items_fail_alone(void **state)
{
	char long_key[LIMIT_KEY_LEN_MAX + 2];
	struct fixture f;

	(void)state;
	fixture_open(&f, NULL, "key-", 1000);
	memset(long_key, 'k', sizeof(long_key) - 1);
	long_key[sizeof(long_key) - 1] = '\0';
	f.items[10].key = "missing";
	f.items[20].data_bytes = 10;
	f.items[30].key = long_key;
	f.items[40].key = NULL;
	f.items[50].range_offset = 100;
	f.items[50].range_bytes = 17;
	f.items[60].range_offset = 1u << 20;
	f.items[60].range_bytes = 1;
	f.items[70].range_offset = UINT64_MAX;
	f.items[70].range_bytes = 2;
	f.items[80].range_offset = 290; /* past the end: what there is */
	f.items[80].range_bytes = ROOM_BYTES;
	assert_int_equal(batch_get(&f, (struct neb_batch){0}), -ENOENT);
	assert_int_equal(f.landed, f.count);
	item_fails(&f.items[10], -ENOENT, 404);
	item_fails(&f.items[20], -EMSGSIZE, 400);
	item_fails(&f.items[30], -EINVAL, 0);
	item_fails(&f.items[40], -EINVAL, 0);
	item_fails(&f.items[60], -ERANGE, 416);
	item_fails(&f.items[70], -EINVAL, 0);
	assert_int_equal(f.items[50].error, 0);
	assert_int_equal(f.items[50].status, 206);
	assert_int_equal(f.items[50].bytes_read, 17);
	assert_int_equal(f.items[80].bytes_read, BYTES(80) - 290);
	for (uint64_t i = 0; i < f.count; i++)
		if (i % 10 || !i || i > 80)
			item_holds(&f.items[i], i);
	fixture_close(&f);
}

/* Objects that are asked for again and again are read from the server's memory. */
static void test_leases(void **state)
{
	const struct rig_opts opts = {.lease_bytes = 1 * MIB};
	struct neb_stats stats;
	struct fixture f;
	uint64_t one_sided = 0;

	(void)state;
	fixture_open(&f, &opts, "key-", 3000);
	neb_client_close(f.client);
	f.client = client_with(f.rig, true);
	assert_int_equal(batch_get(&f, (struct neb_batch){.window = 4}), 0);
	for (uint64_t i = 0; i < f.count; i++) {
		item_holds(&f.items[i], i);
		one_sided += f.items[i].one_sided;
	}
	neb_client_stats(f.client, &stats);
	assert_int_equal(stats.one_sided_reads, one_sided);
	assert_true(one_sided > 500);
	fixture_close(&f);
}

/* ---- A batch that ends early. ---- */

/* The first `read` items were read or lost, in any order; all others have the error. */
static uint64_t rest_have(const struct fixture *f, int error)
{
	uint64_t read = 0;

	for (uint64_t i = 0; i < f->count; i++) {
		if (f->items[i].error == 0) {
			item_holds(&f->items[i], i);
			read++;
		} else {
			assert_int_equal(f->items[i].error, error);
		}
	}
	assert_int_equal(f->landed, f->count);
	assert_int_equal(neb_in_flight(f->client), 0);
	return read;
}

static void test_ended_by_done(void **state)
{
	struct fixture f;

	(void)state;
	fixture_open(&f, NULL, "key-", 1000);
	f.end_at = 100;
	assert_int_equal(batch_get(&f, (struct neb_batch){.window = 8}), -ECANCELED);
	assert_in_range(rest_have(&f, -ECANCELED), 100, 107 + 8);
	/* The client is as good as before. */
	f.end_at = 0;
	f.landed = 0;
	assert_int_equal(batch_get(&f, (struct neb_batch){0}), 0);
	fixture_close(&f);
}

static void test_ended_by_wake(void **state)
{
	struct fixture f;

	(void)state;
	fixture_open(&f, NULL, "key-", 1000);
	neb_wake(f.client);
	assert_int_equal(batch_get(&f, (struct neb_batch){.window = 8}), -ECANCELED);
	assert_in_range(rest_have(&f, -ECANCELED), 8, 16);
	f.landed = 0;
	assert_int_equal(batch_get(&f, (struct neb_batch){0}), 0);
	fixture_close(&f);
}

static bool release_and_end(void *arg)
{
	struct fixture *f = arg;
	uint32_t held = fake_s3_held(rig_s3(f->rig));

	if (held < 4) /* the server has not taken the whole window yet */
		return true;
	f->asked++;
	assert_int_equal(held, 4);
	rig_release_held(f->rig);
	return false;
}

/* While the server holds the answers back, the batch asks whether to keep on. */
static void test_ended_while_silent(void **state)
{
	struct fixture f;

	(void)state;
	fixture_open(&f, NULL, "held-", 1000);
	assert_int_equal(batch_get(&f, (struct neb_batch){.window = 4, .keep_on = release_and_end}),
		-ECANCELED);
	assert_int_equal(f.asked, 1);
	assert_int_equal(rest_have(&f, -ECANCELED), 4);
	fixture_close(&f);
}

static void test_timeout(void **state)
{
	struct fixture f;

	(void)state;
	fixture_open(&f, NULL, "held-", 1000);
	assert_int_equal(
		batch_get(&f, (struct neb_batch){.window = 4, .timeout_ns = 100 * NS_PER_MS}),
		-ETIMEDOUT);
	assert_int_equal(rest_have(&f, -ETIMEDOUT), 0);
	rig_release_held(f.rig);
	fixture_close(&f);
}

/* The server goes away in the middle: every item has a result, and the batch does not try each of
 * thousands. */
static void test_server_goes(void **state)
{
	struct fixture f;
	uint64_t read = 0, failed = 0;

	(void)state;
	fixture_open(&f, NULL, "key-", 5000);
	f.end_at = 1000;
	f.close_at_end = true;
	assert_true(batch_get(&f, (struct neb_batch){.window = 16}) < 0);
	assert_int_equal(f.landed, f.count);
	for (uint64_t i = 0; i < f.count; i++) {
		read += f.items[i].error == 0;
		/* No answer, or one of a server that is going. */
		failed += f.items[i].error != 0 &&
			  (f.items[i].status == 0 || f.items[i].status == 503);
		if (f.items[i].error == 0)
			item_holds(&f.items[i], i);
	}
	assert_in_range(read, 1000, 1000 + 2 * 16);
	assert_int_equal(read + failed, f.count);
	fixture_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_few_credits),
		cmocka_unit_test(test_windows),
		cmocka_unit_test(test_items_fail_alone),
		cmocka_unit_test(test_leases),
		cmocka_unit_test(test_ended_by_done),
		cmocka_unit_test(test_ended_by_wake),
		cmocka_unit_test(test_ended_while_silent),
		cmocka_unit_test(test_timeout),
		cmocka_unit_test(test_server_goes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
