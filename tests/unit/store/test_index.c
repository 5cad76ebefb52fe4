/* tests/unit/store/test_index.c: groups applied to RocksDB, prefixes deleted, walks bounded; and
 * records in and out, damaged ones refused. */
#include "../unit.h"

#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/store_priv.h"

struct fixture {
	char dir[512];
	struct index *index;
	struct group *group;
	struct state_record state;
};

static int setup(void **state)
{
	const char *base = getenv("TMPDIR");
	struct fixture *fixture = (struct fixture *)calloc(1, sizeof(*fixture));
	struct index_opts opts = {.cache_bytes = MIB, .write_buffer_bytes = MIB, .create = true};

	snprintf(fixture->dir, sizeof(fixture->dir), "%s/nebulaio-index-XXXXXX", base ? base : ".");
	assert_non_null(mkdtemp(fixture->dir));
	opts.dir = fixture->dir;
	assert_int_equal(index_open(&opts, &fixture->index), 0);
	assert_int_equal(group_open(&fixture->group), 0);
	*state = fixture;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fixture = (struct fixture *)*state;

	group_close(fixture->group);
	index_close(fixture->index);
	assert_int_equal(index_destroy(fixture->dir), 0);
	assert_int_equal(index_destroy(fixture->dir), 0); /* 0 also without a database */
	free(fixture);
	return 0;
}

static void add(
	struct fixture *fixture, enum mutation_op op, const struct key *key, const char *value)
{
	size_t len = value ? strlen(value) : 0;
	uint8_t *room;

	assert_int_equal(group_reserve(fixture->group, MUTATION_BYTES(key->len, len), 0), 0);
	room = group_add(fixture->group, op, 0, key, len);
	if (len)
		memcpy(room, value, len);
}

static void apply(struct fixture *fixture)
{
	fixture->state.applied_seq++;
	assert_int_equal(
		index_write_group(fixture->index,
			slice_of(fixture->group->bytes, fixture->group->len), &fixture->state),
		0);
	group_reset(fixture->group);
}

static int has(struct fixture *fixture, const struct key *key)
{
	char *value;
	size_t len;
	int ret = index_get(fixture->index, key, true, &value, &len);

	if (ret == 1)
		free(value);
	return ret;
}

static void test_applies_groups_with_their_state(void **state)
{
	struct fixture *fixture = (struct fixture *)*state;
	struct state_record got;
	struct key key;

	assert_int_equal(index_state_read(fixture->index, &got), -ENOENT);
	key_object(&key, 1, SLICE("a"));
	add(fixture, MUTATION_PUT, &key, "x");
	apply(fixture);
	assert_int_equal(has(fixture, &key), 1);
	assert_int_equal(index_state_read(fixture->index, &got), 0);
	assert_memory_equal(&got, &fixture->state, sizeof(got));
	add(fixture, MUTATION_DELETE, &key, NULL);
	apply(fixture);
	assert_int_equal(has(fixture, &key), 0);
	/* A damaged group changes nothing. */
	add(fixture, MUTATION_PUT, &key, "x");
	assert_int_equal(
		index_write_group(fixture->index,
			slice_of(fixture->group->bytes, fixture->group->len - 1), &fixture->state),
		-EUCLEAN);
	assert_int_equal(has(fixture, &key), 0);
}

static void test_a_prefix_goes_wherever_its_keys_are(void **state)
{
	struct fixture *fixture = (struct fixture *)*state;
	struct key keys[6], prefix;

	for (uint32_t i = 0; i < 3; i++)
		key_segment(&keys[i], 7, i);
	key_segment(&keys[3], 6, UINT32_MAX);
	key_segment(&keys[4], 8, 0);
	key_segment(&keys[5], 7, 9);
	key_segments(&prefix, 7);
	/* Rows in the index, earlier in the same group, and (it stays) later in the same group. */
	for (uint32_t i = 0; i < 2; i++)
		add(fixture, MUTATION_PUT, &keys[i], "old");
	add(fixture, MUTATION_PUT, &keys[3], "other");
	add(fixture, MUTATION_PUT, &keys[4], "other");
	assert_int_equal(index_flush(fixture->index), 0);
	apply(fixture);
	add(fixture, MUTATION_PUT, &keys[2], "same group");
	add(fixture, MUTATION_DELETE_PREFIX, &prefix, NULL);
	add(fixture, MUTATION_PUT, &keys[5], "later");
	apply(fixture);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(has(fixture, &keys[i]), 0);
	for (uint32_t i = 3; i < 6; i++)
		assert_int_equal(has(fixture, &keys[i]), 1);
}

static void test_memory_alone_does_not_block(void **state)
{
	struct fixture *fixture = (struct fixture *)*state;
	struct index_opts opts = {
		.dir = fixture->dir, .cache_bytes = MIB, .write_buffer_bytes = MIB};
	struct key key;
	char *value;
	size_t len;

	key_inline(&key, 5);
	add(fixture, MUTATION_PUT, &key, "body");
	apply(fixture);
	assert_int_equal(index_get(fixture->index, &key, false, &value, &len), 1);
	free(value);
	assert_int_equal(index_flush(fixture->index), 0);
	index_close(fixture->index);
	assert_int_equal(index_open(&opts, &fixture->index), 0);
	/* On disk only: not found in memory at first; after a read, found in the block cache. */
	assert_int_equal(index_get(fixture->index, &key, false, &value, &len), -EAGAIN);
	assert_int_equal(has(fixture, &key), 1);
	assert_int_equal(index_get(fixture->index, &key, false, &value, &len), 1);
	assert_int_equal(len, 4);
	free(value);
}

/* ---- Deleted keys. ---- */

#define DELETED_KEYS 80000u
#define PATIENCE_NS  (120 * NS_PER_S)

_Static_assert(DELETED_KEYS > INDEX_PASSED_OVER_MAX, "one walk asks for a compaction");

static void deleted_key(struct fixture *fixture, enum mutation_op op, uint32_t i)
{
	struct key key;
	char name[16];

	snprintf(name, sizeof(name), "%08u", i);
	key_object(&key, 1, slice_str(name));
	add(fixture, op, &key, op == MUTATION_PUT ? "value" : NULL);
	if (i % 500 == 499)
		apply(fixture);
}

/* How many entries a walk over all of bucket 1 passes over. */
static uint64_t walk_over(struct fixture *fixture)
{
	uint64_t before = index_passed_over(fixture->index);
	struct slice got, value;
	struct index_walk *walk;
	struct key from, to;

	key_object(&from, 1, SLICE_NONE);
	key_object(&to, 2, SLICE_NONE);
	assert_int_equal(index_walk_open(fixture->index, slice_of(from.bytes, from.len),
				 slice_of(to.bytes, to.len), &walk),
		0);
	assert_false(index_walk_get(walk, &got, &value));
	index_walk_close(walk);
	return index_passed_over(fixture->index) - before;
}

/* Puts and deletes are in one file each, so that RocksDB sees no reason to merge them by itself. */
static void deleted_keys_go(struct fixture *fixture)
{
	const enum mutation_op ops[] = {MUTATION_PUT, MUTATION_DELETE};
	uint64_t until_ns = clock_now_ns() + PATIENCE_NS;

	for (uint32_t k = 0; k < ARRAY_LEN(ops); k++) {
		for (uint32_t i = 0; i < DELETED_KEYS; i++)
			deleted_key(fixture, ops[k], i);
		assert_int_equal(index_flush(fixture->index), 0);
	}
	assert_true(walk_over(fixture) >= DELETED_KEYS);
	do {
		assert_true(clock_now_ns() < until_ns);
		index_tidy(fixture->index);
	} while (walk_over(fixture) >= DELETED_KEYS);
}

/* The first compaction makes a level below the files of flushes; the second one meets it. */
static void test_deleted_keys_go(void **state)
{
	struct fixture *fixture = (struct fixture *)*state;
	struct index_opts opts = {.dir = fixture->dir,
		.cache_bytes = MIB,
		.write_buffer_bytes = 64 * MIB,
		.create = true};

	index_close(fixture->index);
	assert_int_equal(index_destroy(fixture->dir), 0);
	assert_int_equal(index_open(&opts, &fixture->index), 0);
	deleted_keys_go(fixture);
	deleted_keys_go(fixture);
}

/* ---- Records. ---- */

static struct object *object_make(uint64_t bytes, struct segment **ret_segment)
{
	struct store_meta meta = {.bytes = bytes,
		.mtime_ns = 5,
		.etag = "etag",
		.version_id = "null",
		.checksum_type = 2,
		.checksum_len = 4,
		.checksum = {1, 2, 3, 4},
		.crc64 = 9,
		.headers = "a\0b",
		.headers_len = 4};
	struct object *object;

	assert_int_equal(object_open(&meta, 77, 0, &object), 0);
	assert_int_equal(segment_open(1, 4, ret_segment), 0);
	assert_int_equal(segment_add(*ret_segment, 1000, 10), 0);
	assert_int_equal(segment_add(*ret_segment, 1010, 6), 0); /* merged */
	assert_int_equal(segment_add(*ret_segment, 2000, 9), 0);
	(*ret_segment)->check_count = 2;
	(*ret_segment)->checks[1] = 0xabcdef;
	atomic_init(&object->segments[0], *ret_segment);
	return object;
}

static void test_records_come_back_as_they_went(void **state)
{
	struct segment *segment;
	struct object *object, *back;
	uint64_t offset, bytes;
	uint8_t *record;
	size_t len;

	(void)state;
	object = object_make(25 * 4096 - 5, &segment);
	assert_int_equal(segment->extent_count, 2);
	len = record_bytes(object);
	record = (uint8_t *)malloc(len);
	record_put(object, record);
	assert_int_equal(record_parse(slice_of(record, len), &back), 0);
	assert_int_equal(back->data_id, 77);
	assert_int_equal(back->meta.bytes, object->meta.bytes);
	assert_string_equal(back->meta.etag, "etag");
	assert_memory_equal(back->meta.headers, "a\0b", 4);
	segment = atomic_load(&back->segments[0]);
	assert_int_equal(segment->checks[1], 0xabcdef);
	assert_int_equal(segment_find(segment, 15 * 4096 + 1, &offset, &bytes), 0);
	assert_int_equal(offset, 1015 * 4096 + 1);
	assert_int_equal(bytes, 4095);
	assert_int_equal(segment_find(segment, 16 * 4096, &offset, &bytes), 0);
	assert_int_equal(offset, 2000 * 4096);
	assert_int_equal(bytes, 9 * 4096);
	assert_int_equal(segment_find(segment, 25 * 4096, &offset, &bytes), -EUCLEAN);
	object_put(NULL, back);
	object_put(NULL, object);
	free(record);
}

static void test_damaged_records_are_refused(void **state)
{
	struct segment *segment;
	struct object *object = object_make(25 * 4096, &segment), *back;
	size_t len = record_bytes(object);
	uint8_t *record = (uint8_t *)malloc(len), *copy = (uint8_t *)malloc(len);
	uint32_t refused = 0;
	struct prng prng;

	(void)state;
	prng_seed(&prng, 8);
	record_put(object, record);
	for (size_t cut = 0; cut < len; cut++) {
		memcpy(copy, record, cut);
		assert_int_equal(record_parse(slice_of(copy, cut), &back), -EUCLEAN);
	}
	for (uint32_t i = 0; i < 20000; i++) {
		memcpy(copy, record, len);
		for (uint32_t n = 0; n < 3; n++)
			copy[prng_below(&prng, len)] = (uint8_t)prng_next(&prng);
		if (record_parse(slice_of(copy, len), &back) == 0)
			object_put(NULL, back);
		else
			refused++;
	}
	assert_true(refused > 5000);
	object_put(NULL, object);
	free(record);
	free(copy);
}

/* A merge of the files of several flushes is a job until it has ended. */
static void test_jobs_are_seen_and_end(void **state)
{
	struct fixture *fixture = (struct fixture *)*state;
	const uint64_t until_ns = clock_now_ns() + 60 * NS_PER_S;
	struct key key;

	assert_int_equal(index_jobs(fixture->index), 0);
	key_bucket(&key, SLICE("b"));
	do {
		assert_true(clock_now_ns() < until_ns);
		add(fixture, MUTATION_PUT, &key, "x");
		apply(fixture);
		assert_int_equal(index_flush(fixture->index), 0);
	} while (!index_jobs(fixture->index));
	while (index_jobs(fixture->index))
		assert_true(clock_now_ns() < until_ns);
}

/* RocksDB writes down the options that it understood. */
static void test_a_batch_in_order_is_placed_by_a_hint(void **state)
{
	static const char *const HINT =
		"memtable_insert_with_hint_prefix_extractor=rocksdb.CappedPrefix.1";
	struct fixture *fixture = (struct fixture *)*state;
	DIR *dir = opendir(fixture->dir);
	uint32_t files = 0, hints = 0;
	struct dirent *entry;
	char line[1024];

	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		char path[1024];
		FILE *file;

		if (strncmp(entry->d_name, "OPTIONS-", strlen("OPTIONS-")) != 0)
			continue;
		files++;
		snprintf(path, sizeof(path), "%s/%s", fixture->dir, entry->d_name);
		file = fopen(path, "r");
		assert_non_null(file);
		while (fgets(line, sizeof(line), file))
			hints += strstr(line, HINT) != NULL;
		fclose(file);
	}
	closedir(dir);
	assert_true(files > 0);
	assert_int_equal(hints, files);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_applies_groups_with_their_state, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_a_prefix_goes_wherever_its_keys_are, setup, teardown),
		cmocka_unit_test_setup_teardown(test_memory_alone_does_not_block, setup, teardown),
		cmocka_unit_test_setup_teardown(test_deleted_keys_go, setup, teardown),
		cmocka_unit_test_setup_teardown(test_jobs_are_seen_and_end, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_a_batch_in_order_is_placed_by_a_hint, setup, teardown),
		cmocka_unit_test(test_records_come_back_as_they_went),
		cmocka_unit_test(test_damaged_records_are_refused),
	};

	return cmocka_run_group_tests_name("index", tests, NULL, NULL);
}
