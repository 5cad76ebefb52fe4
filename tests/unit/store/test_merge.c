/* tests/unit/store/test_merge.c: a merge of many groups keeps the last mutation of each key, in key
 * order. */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/store_priv.h"

static void group_put(struct group *group, const struct key *key, const char *value)
{
	size_t len = strlen(value);

	assert_int_equal(group_reserve(group, MUTATION_BYTES(key->len, len), 0), 0);
	memcpy(group_add(group, MUTATION_PUT, 0, key, len), value, len);
}

static void group_delete(struct group *group, const struct key *key)
{
	assert_int_equal(group_reserve(group, MUTATION_BYTES(key->len, 0), 0), 0);
	group_add(group, MUTATION_DELETE, 0, key, 0);
}

static struct key object(const char *name)
{
	struct key key;

	key_object(&key, 1, slice_str(name));
	return key;
}

static void add(struct index_merge *merge, struct group *group)
{
	struct group_head head = {.seq = 1};

	group_seal(group, &head, 0, NULL);
	assert_int_equal(
		index_merge_add(merge, slice_of(group->bytes, group->len), group->count), 0);
}

static void assert_left(const struct index_merge *merge, uint32_t idx, const struct key *key,
	int op, const char *value)
{
	const struct mutation *row = merge->order[idx];

	assert_true(slice_eq(row->key, slice_of(key->bytes, key->len)));
	assert_int_equal(row->op, op);
	assert_true(slice_eq(row->value, slice_str(value)));
}

static void test_last_word(void **state)
{
	struct key a = object("a"), b = object("b"), c = object("c");
	struct group *first, *second;
	struct index_merge merge = {0};

	(void)state;
	assert_int_equal(group_open(&first), 0);
	assert_int_equal(group_open(&second), 0);
	group_put(first, &c, "c1");
	group_put(first, &a, "a1");
	group_put(first, &a, "a2");
	group_put(first, &b, "b1");
	group_delete(second, &b);
	group_put(second, &c, "c2");
	add(&merge, first);
	add(&merge, second);
	index_merge_settle(&merge);
	assert_int_equal(merge.count, 6);
	assert_int_equal(merge.settled_count, 3);
	assert_left(&merge, 0, &a, MUTATION_PUT, "a2");
	/* The index may have an older b, so the deletion stays. */
	assert_left(&merge, 1, &b, MUTATION_DELETE, "");
	assert_left(&merge, 2, &c, MUTATION_PUT, "c2");
	index_merge_reset(&merge);
	index_merge_settle(&merge);
	assert_int_equal(merge.settled_count, 0);
	index_merge_close(&merge);
	group_close(first);
	group_close(second);
}

static void test_bodies_that_came_and_went(void **state)
{
	struct key here, gone, segment, older;
	struct group *group;
	struct index_merge merge = {0};

	(void)state;
	key_inline(&here, 1);
	key_inline(&gone, 2);
	key_segment(&segment, 3, 0);
	key_inline(&older, 4);
	assert_int_equal(group_open(&group), 0);
	group_put(group, &here, "stays");
	group_put(group, &gone, "goes");
	group_put(group, &segment, "goes");
	group_delete(group, &segment);
	group_delete(group, &gone);
	group_delete(group, &older);
	add(&merge, group);
	index_merge_settle(&merge);
	assert_int_equal(merge.settled_count, 2);
	assert_left(&merge, 0, &here, MUTATION_PUT, "stays");
	assert_left(&merge, 1, &older, MUTATION_DELETE, "");
	index_merge_close(&merge);
	group_close(group);
}

static void test_grows(void **state)
{
	struct index_merge merge = {0};
	struct group *group;

	(void)state;
	assert_int_equal(group_open(&group), 0);
	for (uint32_t i = 0; i < 3000; i++) {
		char name[16];
		struct key key;

		snprintf(name, sizeof(name), "%04u", (i * 7919u) % 3000);
		key = object(name);
		group_put(group, &key, name);
	}
	add(&merge, group);
	index_merge_settle(&merge);
	assert_int_equal(merge.settled_count, 3000);
	for (uint32_t i = 0; i < 3000; i++) {
		char name[16];
		struct key key;

		snprintf(name, sizeof(name), "%04u", i);
		key = object(name);
		assert_left(&merge, i, &key, MUTATION_PUT, name);
	}
	index_merge_close(&merge);
	group_close(group);
}

/* A group whose header counts more mutations than it has. */
static void test_damaged_group(void **state)
{
	struct key a = object("a");
	struct group_head head = {.seq = 1};
	struct index_merge merge = {0};
	struct group *group;

	(void)state;
	assert_int_equal(group_open(&group), 0);
	group_put(group, &a, "a1");
	group_seal(group, &head, 0, NULL);
	assert_int_equal(index_merge_add(&merge, slice_of(group->bytes, group->len), 2), -EUCLEAN);
	index_merge_close(&merge);
	group_close(group);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_last_word),
		cmocka_unit_test(test_bodies_that_came_and_went),
		cmocka_unit_test(test_grows),
		cmocka_unit_test(test_damaged_group),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
