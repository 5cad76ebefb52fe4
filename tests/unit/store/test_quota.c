/* tests/unit/store/test_quota.c: quotas of buckets. Fibers of two cores put, join, append, rename
 * and delete in buckets that never had, have, and had versions: none ever holds more than its
 * quota, and what each is said to hold is the sum over its versions; also after a clean start,
 * after one that counts anew, and after fsck has. test_crash checks the same after each kill. */
#include "rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/index/index.h"
#include "store/log/key.h"
#include "store/store_priv.h"
#include "store/table/table.h"

#define BUCKETS	  3u
#define FIBERS	  12u /* on each core */
#define KEYS	  5u  /* of each */
#define TURNS	  60u
#define BYTES_MAX (3 * MIB)
#define MOST	  40u /* objects */

static const char *const NAMES[BUCKETS] = {"never", "on", "off"};

static int quota_edit(struct store_bucket *bucket, void *arg)
{
	bucket->quota = *(const struct store_quota *)arg;
	return 0;
}

static int quota_set(struct rig *rig, const char *bucket, uint64_t bytes, uint64_t objects)
{
	struct store_quota quota = {.bytes = bytes, .objects = objects};

	return store_bucket_edit(rig->store, slice_str(bucket), quota_edit, &quota);
}

static struct store_quota used_of(struct rig *rig, const char *bucket)
{
	struct store_quota used;

	assert_int_equal(store_bucket_usage(rig->store, slice_str(bucket), &used), 0);
	return used;
}

/* ---- What a listing adds up to. ---- */

struct sum {
	struct store_quota used;
	char key[LIMIT_KEY_LEN_MAX + 1], version_id[33];
};

static void sum_visit(const struct store_list_entry *entry, void *arg)
{
	struct sum *sum = (struct sum *)arg;

	slice_copy_str(entry->key, sum->key, sizeof(sum->key));
	memcpy(sum->version_id, entry->meta->version_id, sizeof(sum->version_id));
	if (entry->meta->delete_marker)
		return;
	sum->used.bytes += entry->meta->bytes;
	sum->used.objects++;
}

static void assert_counted(struct rig *rig, const char *bucket)
{
	struct store_quota used = used_of(rig, bucket);
	struct sum sum = {0};
	bool more = true;

	while (more) {
		char key[LIMIT_KEY_LEN_MAX + 1], version_id[33];
		struct store_list_opts opts = {.bucket = slice_str(bucket), .entries_max = 1000};

		memcpy(key, sum.key, sizeof(key));
		memcpy(version_id, sum.version_id, sizeof(version_id));
		opts.after = slice_str(key);
		opts.version_after = slice_str(version_id);
		assert_int_equal(store_list_versions(rig->store, &opts, sum_visit, &sum, &more), 0);
	}
	assert_int_equal(used.bytes, sum.used.bytes);
	assert_int_equal(used.objects, sum.used.objects);
}

/* ---- The load. ---- */

struct worker {
	uint32_t idx;
	uint32_t refused, done;
};
static struct worker workers[2 * FIBERS];

static int newest_delete(struct rig *rig, const char *bucket, struct slice key)
{
	struct store_deletion deletion = {.key = key};
	struct store_meta newest;
	int ret = store_newest(rig->store, slice_str(bucket), key, &newest);

	if (ret)
		return ret == -ENOENT ? 0 : ret;
	deletion.version_id = slice_str(newest.version_id);
	ret = store_delete_each(rig->store, slice_str(bucket), 0, &deletion, 1);
	return ret ? ret : deletion.result;
}

static int turn_run(struct rig *rig, struct prng *prng, const char *bucket, struct slice key)
{
	static const uint64_t SIZES[] = {0, 10, 2048, 3000, 65536, 70000, 400000};
	uint64_t bytes = SIZES[prng_below(prng, ARRAY_LEN(SIZES))];
	struct put_how how = {.length_unknown = prng_below(prng, 2) != 0};
	uint8_t *body;
	int ret;

	switch (prng_below(prng, 8)) {
	case 0:
		return store_delete(rig->store, slice_str(bucket), key, NULL, NULL);
	case 1:
		return newest_delete(rig, bucket, key);
	case 2:
		return object_join_seeded(
			rig, bucket, key, bytes, 1, 1 + (uint32_t)prng_below(prng, 3));
	case 3:
		if (bucket != NAMES[0])
			return object_put_seeded(rig, bucket, key, bytes, 1, &how);
		return object_grow_seeded(rig, bucket, key, bytes + 9, 1, 3);
	case 4:
		if (bucket != NAMES[0])
			return object_put_seeded(rig, bucket, key, bytes, 1, &how);
		body = (uint8_t *)calloc(1, bytes + 1);
		ret = object_append(rig, bucket, key, body, bytes + 1);
		free(body);
		return ret == -ENOENT ? 0 : ret;
	default:
		return object_put_seeded(rig, bucket, key, bytes, 1, &how);
	}
}

static void worker_run(struct rig *rig, void *arg)
{
	struct worker *worker = (struct worker *)arg;
	struct prng prng;

	prng_seed(&prng, worker->idx + 1);
	for (uint32_t turn = 0; turn < TURNS; turn++) {
		const char *bucket = NAMES[prng_below(&prng, BUCKETS)];
		struct store_quota used;
		char key[32];
		int ret;

		snprintf(key, sizeof(key), "w%02u/%llu", worker->idx,
			(unsigned long long)prng_below(&prng, KEYS));
		ret = turn_run(rig, &prng, bucket, slice_str(key));
		assert_true(ret == 0 || ret == -EDQUOT);
		worker->refused += ret != 0;
		worker->done += ret == 0;
		used = used_of(rig, bucket);
		assert_true(used.bytes <= BYTES_MAX);
		assert_true(used.objects <= MOST);
	}
}

static _Atomic bool ready;

static void load_run(struct rig *rig, void *arg)
{
	uint32_t core = reactor_core_idx(reactor_self());

	(void)arg;
	if (core == 0) {
		assert_int_equal(bucket_make(rig->store, "parts"), 0);
		for (uint32_t i = 0; i < BUCKETS; i++) {
			assert_int_equal(bucket_make(rig->store, NAMES[i]), 0);
			assert_int_equal(quota_set(rig, NAMES[i], BYTES_MAX, MOST), 0);
		}
		assert_int_equal(versioning_set(rig, "on", STORE_VERSIONING_ENABLED), 0);
		assert_int_equal(versioning_set(rig, "off", STORE_VERSIONING_ENABLED), 0);
		for (uint32_t k = 0; k < KEYS; k++) {
			char key[32];

			snprintf(key, sizeof(key), "w00/%u", k);
			assert_int_equal(
				object_put_seeded(rig, "off", slice_str(key), 100, 1, NULL), 0);
		}
		assert_int_equal(versioning_set(rig, "off", STORE_VERSIONING_SUSPENDED), 0);
		ready = true;
	}
	while (!ready)
		fiber_yield();
	rig_fibers(rig, FIBERS, worker_run, &workers[core * FIBERS], sizeof(*workers));
}

static void counted_run(struct rig *rig, void *arg)
{
	(void)arg;
	if (reactor_core_idx(reactor_self()))
		return;
	for (uint32_t i = 0; i < BUCKETS; i++) {
		struct store_bucket bucket;

		assert_counted(rig, NAMES[i]);
		assert_int_equal(store_bucket_get(rig->store, slice_str(NAMES[i]), &bucket), 0);
		assert_int_equal(bucket.quota.bytes, BYTES_MAX);
		assert_int_equal(bucket.quota.objects, MOST);
	}
	assert_counted(rig, "parts");
}

static void test_never_more(void **state)
{
	uint32_t refused = 0, done = 0;
	char space[600];
	struct rig rig;

	(void)state;
	rig_init(&rig, 2);
	for (uint32_t i = 0; i < ARRAY_LEN(workers); i++)
		workers[i] = (struct worker){.idx = i};
	rig_run(&rig, load_run, NULL);
	for (uint32_t i = 0; i < ARRAY_LEN(workers); i++) {
		refused += workers[i].refused;
		done += workers[i].done;
	}
	print_message("%u done, %u refused\n", done, refused);
	assert_true(refused > 100 && done > 100);
	/* fsck compares its own sums with those of the shutdown. */
	rig_fsck(&rig);
	rig_run(&rig, counted_run, NULL);
	/* A start that counts anew. */
	snprintf(space, sizeof(space), "%s/space", rig.dir);
	assert_int_equal(unlink(space), 0);
	rig_run(&rig, counted_run, NULL);
	rig_fsck(&rig);
	rig_dir_remove(&rig);
}

/* ---- The rules, one by one. ---- */

static void rules_run(struct rig *rig, void *arg)
{
	const struct put_how unknown = {.length_unknown = true};
	struct store_bucket bucket;
	struct store_put *put;
	struct store_put_opts opts = {.bucket = SLICE("b"), .key = SLICE("a"), .bytes = 101};

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(quota_set(rig, "b", 100, 2), 0);
	assert_int_equal(quota_set(rig, "no", 100, 2), -ENOENT);
	/* Early, when the length is known; else by the commit. */
	assert_int_equal(store_put_open(rig->store, &opts, &put), -EDQUOT);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("a"), 101, 1, &unknown), -EDQUOT);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("a"), 100, 1, NULL), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("b"), 1, 1, NULL), -EDQUOT);
	/* A replaced object makes room. */
	assert_int_equal(store_bucket_room(rig->store, SLICE("b"), SLICE("a"), 100), 0);
	assert_int_equal(store_bucket_room(rig->store, SLICE("b"), SLICE("b"), 1), -EDQUOT);
	assert_int_equal(store_bucket_room(rig->store, SLICE("no"), SLICE("b"), 1), -ENOENT);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("a"), 60, 1, NULL), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("b"), 40, 1, &unknown), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("c"), 0, 1, NULL), -EDQUOT);
	/* A quota below what the bucket holds refuses only what adds. */
	assert_int_equal(quota_set(rig, "b", 10, 1), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("a"), 61, 1, NULL), -EDQUOT);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("a"), 50, 1, NULL), 0);
	assert_int_equal(store_delete(rig->store, SLICE("b"), SLICE("b"), NULL, NULL), 0);
	/* A delete marker is always possible, and is no object. */
	assert_int_equal(versioning_set(rig, "b", STORE_VERSIONING_ENABLED), 0);
	assert_int_equal(store_delete(rig->store, SLICE("b"), SLICE("a"), NULL, NULL), 0);
	assert_int_equal(used_of(rig, "b").objects, 1);
	assert_int_equal(used_of(rig, "b").bytes, 50);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("a"), 1, 1, NULL), -EDQUOT);
	/* None. */
	assert_int_equal(quota_set(rig, "b", 0, 0), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("a"), 1000, 1, NULL), 0);
	assert_counted(rig, "b");
	/* The row goes with its bucket. */
	assert_int_equal(bucket_make(rig->store, "c"), 0);
	assert_int_equal(quota_set(rig, "c", UINT64_MAX / 2, 7), 0);
	assert_int_equal(bucket_make(rig->store, "d"), 0);
	assert_int_equal(quota_set(rig, "d", 5, 0), 0);
	assert_int_equal(store_bucket_delete(rig->store, SLICE("c"), 0), 0);
	assert_int_equal(bucket_make(rig->store, "c"), 0);
	assert_int_equal(store_bucket_get(rig->store, SLICE("c"), &bucket), 0);
	assert_int_equal(bucket.quota.bytes + bucket.quota.objects, 0);
}

static bool row_count(struct slice key, struct slice value, void *arg)
{
	(void)key;
	(void)value;
	++*(uint32_t *)arg;
	return true;
}

static void rules_last(struct rig *rig, void *arg)
{
	struct store_bucket bucket;
	uint32_t rows = 0;

	(void)arg;
	assert_int_equal(store_bucket_get(rig->store, SLICE("d"), &bucket), 0);
	assert_int_equal(bucket.quota.bytes, 5);
	assert_int_equal(bucket.quota.objects, 0);
	rig_index_wait(rig);
	assert_int_equal(index_visit(rig->store->index, SLICE("Q"), row_count, &rows), 0);
	assert_int_equal(rows, 1);
}

static void test_rules(void **state)
{
	(void)state;
	rig_once(rules_run, rules_last);
}

/* fsck finds a snapshot that is wrong. */
static void wrong_run(struct rig *rig, void *arg)
{
	struct bucket *bucket;

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("a"), 100, 1, NULL), 0);
	bucket = buckets_find(rig->store->buckets, SLICE("b"));
	bucket_used_add(bucket, 1, 0);
	bucket_put(bucket);
}

static void test_fsck(void **state)
{
	struct store_fsck_report report;
	struct rig rig;
	struct buf out;

	(void)state;
	rig_init(&rig, 1);
	rig_run(&rig, wrong_run, NULL);
	buf_init(&out, 64 * KIB);
	assert_int_equal(store_fsck(rig.dir, true, &report, &out), -EUCLEAN);
	assert_true(slice_find(buf_slice(&out),
			    SLICE("bucket b: 1 objects with 100 bytes, but the snapshot of the "
				  "last shutdown has 1 with 101")) >= 0);
	buf_free(&out);
	rig_dir_remove(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_never_more),
		cmocka_unit_test(test_rules),
		cmocka_unit_test(test_fsck),
	};

	log_set_level(LOG_WARN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
