/* tests/unit/store/test_list_table.c: rows for lists in memory against the index that they are
 * read from: a range that the table has is the index's. */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/store_priv.h"

#define BUCKETS 3u
#define NAMES	5000u
#define BUCKET	7u /* the first one */

struct fixture {
	char dir[512];
	struct index *index;
	struct list_table *table;
	struct group *group;
	struct state_record state;
	struct prng prng;
	uint32_t served, refused;
};

static int setup(void **state)
{
	const char *base = getenv("TMPDIR");
	struct fixture *fixture = (struct fixture *)calloc(1, sizeof(*fixture));
	struct index_opts opts = {.cache_bytes = MIB, .write_buffer_bytes = MIB, .create = true};

	snprintf(fixture->dir, sizeof(fixture->dir), "%s/nebulaio-lists-XXXXXX", base ? base : ".");
	assert_non_null(mkdtemp(fixture->dir));
	opts.dir = fixture->dir;
	assert_int_equal(index_open(&opts, &fixture->index), 0);
	assert_int_equal(group_open(&fixture->group), 0);
	prng_seed(&fixture->prng, 1);
	*state = fixture;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fixture = (struct fixture *)*state;

	list_table_close(fixture->table);
	group_close(fixture->group);
	index_close(fixture->index);
	assert_int_equal(index_destroy(fixture->dir), 0);
	free(fixture);
	return 0;
}

static uint32_t below(struct fixture *fixture, uint32_t bound)
{
	return (uint32_t)prng_below(&fixture->prng, bound);
}

/* Names of several lengths, two levels of prefixes. */
static void name_key(struct key *key, uint64_t bucket_id, uint32_t i)
{
	char name[64];

	snprintf(name, sizeof(name), "%c/%02u/%.*s%u", (int)('a' + i % 5), i % 71, (int)(i % 20),
		"................................", i);
	key_object(key, bucket_id, slice_str(name));
}

/* A value that begins like a record: record_meta_bytes() is all of it, or less. */
static void change_add(struct fixture *fixture, const struct key *key, bool is_put)
{
	uint8_t value[160] = {0};
	size_t len = is_put ? 1 + below(fixture, sizeof(value)) : 0;
	uint8_t *room;

	for (size_t i = 48; i < len; i++)
		value[i] = (uint8_t)below(fixture, 256);
	/* The ETag's length. */
	value[5] = len >= 48 ? (uint8_t)below(fixture, (uint32_t)len - 47) : 0;
	assert_int_equal(group_reserve(fixture->group, MUTATION_BYTES(key->len, len), 0), 0);
	room = group_add(fixture->group, is_put ? MUTATION_PUT : MUTATION_DELETE, 0, key, len);
	if (len)
		memcpy(room, value, len);
}

/* To the index, then to the table: as a group, or as a merge of groups. */
static void change_apply(struct fixture *fixture)
{
	struct group_head head = {.seq = ++fixture->state.applied_seq};
	struct index_merge merge = {0};
	struct slice group;

	group_seal(fixture->group, &head, 0, NULL);
	group = slice_of(fixture->group->bytes, fixture->group->len);
	if (below(fixture, 2)) {
		assert_int_equal(index_write_group(fixture->index, group, &fixture->state), 0);
		list_table_change_group(fixture->table, group);
	} else {
		assert_int_equal(index_merge_add(&merge, group, fixture->group->count), 0);
		index_merge_settle(&merge);
		assert_int_equal(index_write_merged(fixture->index, &merge, &fixture->state), 0);
		list_table_change(fixture->table, merge.order, merge.settled_count);
		index_merge_close(&merge);
	}
	group_reset(fixture->group);
}

static void change(struct fixture *fixture, uint64_t bucket_id, uint32_t count, uint32_t puts_of_10)
{
	struct key key;

	for (uint32_t i = 0; i < count; i++) {
		name_key(&key, bucket_id, below(fixture, NAMES));
		change_add(fixture, &key, below(fixture, 10) < puts_of_10);
	}
	/* Rows of other kinds are none of the table's. */
	key_null(&key, bucket_id, SLICE("a/00/0"));
	change_add(fixture, &key, true);
	change_apply(fixture);
}

/* ---- Comparing. ---- */

static void rows_compare(
	struct fixture *fixture, struct list_walk *walk, const struct list_range *range)
{
	struct slice key, record, index_key, value;
	struct index_walk *wanted;
	uint32_t rows = 0;
	bool more;

	assert_int_equal(
		index_walk_open(fixture->index, slice_of(range->from->bytes, range->from->len),
			slice_of(range->to->bytes, range->to->len), &wanted),
		0);
	for (;;) {
		more = index_walk_get(wanted, &index_key, &value);
		if (!range->skips && rows == range->rows)
			break;
		assert_int_equal(list_walk_get(walk, &key, &record), more);
		if (!more)
			break;
		assert_true(slice_eq(key, slice_from(index_key, 9)));
		assert_true(slice_eq(record, slice_to(value, record_meta_bytes(value))));
		rows++;
		if (range->skips && below(fixture, 50) == 0) {
			struct key to;

			name_key(&to, range->bucket_id, below(fixture, NAMES));
			index_walk_seek(wanted, slice_of(to.bytes, to.len));
			list_walk_seek(walk, &to);
			if (rows > 500)
				break;
			continue;
		}
		index_walk_next(wanted);
		list_walk_next(walk);
	}
	index_walk_close(wanted);
}

/* Counts a few rows of the range without walking over them. */
static void rows_count(
	struct fixture *fixture, const struct list_walk *walk, const struct list_range *range)
{
	struct list_walk counted = *walk;
	uint32_t rows = 0, limit = 1 + below(fixture, range->rows);
	struct slice key, record;

	for (; rows < limit && list_walk_get(&counted, &key, &record); rows++)
		list_walk_next(&counted);
	assert_int_equal(list_walk_has(walk, limit), rows == limit);
}

/* Whether the table has a random range of the bucket; if so, it has what the index has. */
static bool compare(struct fixture *fixture, uint64_t bucket_id)
{
	struct key from, to;
	struct list_walk walk;
	struct slice name;
	const struct list_range range = {
		.bucket_id = bucket_id,
		.from = &from,
		.to = &to,
		.rows = 1 + below(fixture, 300),
		.skips = below(fixture, 4) == 0,
		.may_wait = below(fixture, 2) == 0,
	};

	name_key(&from, bucket_id, below(fixture, NAMES));
	if (below(fixture, 3) == 0)
		key_object(&from, bucket_id, SLICE_NONE);
	name = slice_of(from.bytes + 9, from.len - 9);
	key_object(&to, bucket_id, slice_to(name, below(fixture, 4)));
	assert_true(key_successor(&to));
	if (!list_walk_open(fixture->table, &range, &walk)) {
		fixture->refused++;
		return false;
	}
	rows_count(fixture, &walk, &range);
	rows_compare(fixture, &walk, &range);
	list_walk_close(&walk);
	fixture->served++;
	return true;
}

static void fill_all(struct fixture *fixture)
{
	while (list_table_wants(fixture->table))
		list_table_fill(fixture->table, fixture->index);
}

/* ---- Tests. ---- */

static void at_random(struct fixture *fixture, uint64_t bytes_max)
{
	assert_int_equal(list_table_open(bytes_max, &fixture->table), 0);
	for (uint32_t i = 0; i < BUCKETS; i++)
		for (uint32_t round = 0; round < 20; round++)
			change(fixture, BUCKET + i, 200, 10);
	for (uint32_t step = 0; step < 6000; step++) {
		uint64_t bucket_id = BUCKET + below(fixture, BUCKETS);

		if (below(fixture, 3) == 0)
			change(fixture, bucket_id, 1 + below(fixture, 40),
				step % 1000 < 500 ? 7 : 3);
		if (below(fixture, 3) == 0 && list_table_wants(fixture->table))
			list_table_fill(fixture->table, fixture->index);
		assert_true(list_table_bytes(fixture->table) <= bytes_max);
		if (!compare(fixture, bucket_id))
			list_table_missed(fixture->table, bucket_id, below(fixture, 100));
	}
	assert_true(fixture->served > 1000);
}

static void test_rows_are_those_of_the_index(void **state)
{
	struct fixture *fixture = (struct fixture *)*state;

	at_random(fixture, 64 * MIB);
	/* Each bucket came into memory as a whole, sooner or later. */
	assert_true(fixture->refused < fixture->served);
}

static void test_so_they_are_when_memory_is_scarce(void **state)
{
	struct fixture *fixture = (struct fixture *)*state;

	at_random(fixture, 600 * KIB);
	assert_true(fixture->refused > 100);
}

static void test_misses_earn_rows(void **state)
{
	struct fixture *fixture = (struct fixture *)*state;
	struct key first, to;
	struct list_walk walk;
	struct list_range range = {
		.bucket_id = BUCKET, .from = &first, .to = &to, .rows = 100, .may_wait = true};

	assert_int_equal(list_table_open(64 * MIB, &fixture->table), 0);
	for (uint32_t round = 0; round < 20; round++)
		change(fixture, BUCKET, 200, 10);
	key_object(&first, BUCKET, SLICE_NONE);
	key_object(&to, BUCKET + 1, SLICE_NONE);
	assert_false(list_table_wants(fixture->table));
	list_table_fill(fixture->table, fixture->index);
	assert_int_equal(list_table_bytes(fixture->table), 0);
	assert_true(list_table_missed(fixture->table, BUCKET, 100));
	fill_all(fixture);
	/* One for each that was read. */
	assert_true(list_walk_open(fixture->table, &range, &walk));
	list_walk_close(&walk);
	range.rows = 101;
	assert_false(list_walk_open(fixture->table, &range, &walk));
	/* A list that skips may go anywhere in its range. */
	range.rows = 1;
	range.skips = true;
	assert_false(list_walk_open(fixture->table, &range, &walk));
	/* Short lists cost, too. */
	assert_true(list_table_missed(fixture->table, BUCKET, 0));
	fill_all(fixture);
	range = (struct list_range){
		.bucket_id = BUCKET, .from = &first, .to = &to, .rows = 164, .may_wait = true};
	assert_true(list_walk_open(fixture->table, &range, &walk));
	list_walk_close(&walk);
	/* Once all are there, skips are, too. */
	assert_true(list_table_missed(fixture->table, BUCKET, NAMES));
	fill_all(fixture);
	range.skips = true;
	assert_true(list_walk_open(fixture->table, &range, &walk));
	list_walk_seek(&walk, &to); /* of the next bucket */
	assert_false(list_walk_get(&walk, &(struct slice){0}, &(struct slice){0}));
	list_walk_close(&walk);
}

static void test_an_empty_bucket_is_known_to_be_empty(void **state)
{
	struct fixture *fixture = (struct fixture *)*state;
	struct key first, to;
	struct list_walk walk;
	const struct list_range range = {.bucket_id = BUCKET,
		.from = &first,
		.to = &to,
		.rows = 1,
		.skips = true,
		.may_wait = true};
	struct slice key, record;

	assert_int_equal(list_table_open(MIB, &fixture->table), 0);
	change(fixture, BUCKET + 1, 10, 10);
	key_object(&first, BUCKET, SLICE_NONE);
	key_object(&to, BUCKET + 1, SLICE_NONE);
	list_table_missed(fixture->table, BUCKET, 0);
	fill_all(fixture);
	assert_true(list_walk_open(fixture->table, &range, &walk));
	assert_false(list_walk_get(&walk, &key, &record));
	list_walk_close(&walk);
	change(fixture, BUCKET, 1, 10);
	assert_true(list_walk_open(fixture->table, &range, &walk));
	assert_true(list_walk_get(&walk, &key, &record));
	list_walk_close(&walk);
}

static void test_more_buckets_than_places(void **state)
{
	struct fixture *fixture = (struct fixture *)*state;

	assert_int_equal(list_table_open(64 * MIB, &fixture->table), 0);
	for (uint32_t i = 0; i < 100; i++) {
		change(fixture, BUCKET + i, 20, 10);
		list_table_missed(fixture->table, BUCKET + i, 1000);
		fill_all(fixture);
	}
	/* None has been quiet, so the first 64 keep theirs. */
	for (uint32_t i = 0; i < 100; i++)
		assert_int_equal(compare(fixture, BUCKET + i), i < 64);
}

static void test_without_memory_nothing_is_kept(void **state)
{
	struct fixture *fixture = (struct fixture *)*state;

	assert_int_equal(list_table_open(0, &fixture->table), 0);
	change(fixture, BUCKET, 100, 10);
	assert_false(list_table_missed(fixture->table, BUCKET, 1000));
	assert_false(compare(fixture, BUCKET));
	assert_int_equal(list_table_bytes(fixture->table), 0);
	list_table_close(fixture->table);
	/* Too little for any row: the index thread is not asked. */
	assert_int_equal(list_table_open(64 * KIB, &fixture->table), 0);
	assert_false(list_table_missed(fixture->table, BUCKET, 1000));
	assert_false(list_table_wants(fixture->table));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_rows_are_those_of_the_index, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_so_they_are_when_memory_is_scarce, setup, teardown),
		cmocka_unit_test_setup_teardown(test_misses_earn_rows, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_an_empty_bucket_is_known_to_be_empty, setup, teardown),
		cmocka_unit_test_setup_teardown(test_more_buckets_than_places, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_without_memory_nothing_is_kept, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
