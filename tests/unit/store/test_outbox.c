/* tests/unit/store/test_outbox.c: the outbox rows of commits: after the next start a row exists if
 * its commit does, numbered in commit order, until it is ended. test_crash checks that both survive
 * a crash together. */
#include "rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/store_priv.h"

#define SEEN_MAX 4096u

struct seen {
	uint32_t count;
	uint64_t numbers[SEEN_MAX];
	char ids[SEEN_MAX][40];
	char texts[SEEN_MAX][24];
	uint32_t stop_at; /* 0: never */
};
static struct seen seen;

static bool visit(uint64_t number, struct slice version_id, struct slice text, void *arg)
{
	struct seen *into = (struct seen *)arg;

	assert_true(into->count < SEEN_MAX);
	into->numbers[into->count] = number;
	assert_int_equal(slice_copy_str(version_id, into->ids[into->count], 40), 0);
	slice_copy_str(slice_to(text, 23), into->texts[into->count], 24);
	return ++into->count != into->stop_at;
}

static void visit_run(struct rig *rig, void *arg)
{
	uint64_t after = *(uint64_t *)arg;

	seen.count = 0;
	assert_int_equal(store_outbox_visit(rig->store, after, visit, &seen), 0);
}

static int refuse(const struct store_meta *current, void *arg)
{
	(void)current;
	(void)arg;
	return -ECANCELED;
}

static int versions_on(struct store_bucket *bucket, void *arg)
{
	(void)arg;
	bucket->versioning = STORE_VERSIONING_ENABLED;
	return 0;
}

static int same_headers(const struct store_meta *current, struct slice *ret_headers, void *arg)
{
	(void)arg;
	*ret_headers = slice_of(current->headers, current->headers_len);
	return 0;
}

/* ---- Every kind of commit. ---- */

static char put_id[33], marker_id[33];

static int note_id(const struct store_meta *current, struct slice *ret_headers, void *arg)
{
	(void)arg;
	memcpy(put_id, current->version_id, sizeof(put_id));
	return same_headers(current, ret_headers, NULL);
}

static void kinds_run(struct rig *rig, void *arg)
{
	static const struct store_name k = {.bucket = SLICE("v"), .key = SLICE("k")};
	struct store_outbox_row m = {.text = SLICE("put"), .marker_text = SLICE("marker")};
	struct put_how how = {.outbox_row = &m};
	struct store_deletion deletion = {.key = SLICE("k"), .outbox_row = &m};
	uint64_t last;

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(bucket_make(rig->store, "v"), 0);
	assert_int_equal(store_bucket_edit(rig->store, SLICE("v"), versions_on, NULL), 0);
	assert_int_equal(object_put_seeded(rig, "v", SLICE("k"), 100, 1, &how), 0);
	assert_true(m.number > 0);
	last = m.number;
	m.text = SLICE("edit");
	assert_int_equal(store_edit(rig->store, &k, note_id, NULL, &m), 0);
	assert_true(m.number > last);
	last = m.number;
	m.text = SLICE("flags");
	assert_int_equal(store_set_flags(rig->store, &k, (struct store_flags){0},
				 (struct store_condition){.check = NULL}, &m),
		0);
	assert_true(m.number > last);
	last = m.number;
	/* A delete marker, then the version under it, then a missing version. */
	m.text = SLICE("delete");
	assert_int_equal(store_delete_each(rig->store, SLICE("v"), 0, &deletion, 1), 0);
	assert_true(deletion.delete_marker && m.number > last);
	memcpy(marker_id, deletion.version_id_out, sizeof(marker_id));
	last = m.number;
	deletion.version_id = slice_str(put_id);
	assert_int_equal(store_delete_each(rig->store, SLICE("v"), 0, &deletion, 1), 0);
	assert_true(deletion.result == 0 && m.number > last);
	last = m.number;
	assert_int_equal(store_delete_each(rig->store, SLICE("v"), 0, &deletion, 1), 0);
	assert_int_equal(deletion.result, 0);
	assert_int_equal(m.number, 0);
	/* A missing key, deleted with success; a refused commit; a row with a number only. */
	m.text = SLICE("nothing");
	deletion.version_id = SLICE_NONE;
	assert_int_equal(store_delete_each(rig->store, SLICE("b"), 0, &deletion, 1), 0);
	assert_true(deletion.result == 0 && m.number > last);
	last = m.number;
	m.number = 0;
	how.check = refuse;
	assert_int_equal(object_put_seeded(rig, "b", SLICE("k"), 100, 1, &how), -ECANCELED);
	assert_int_equal(m.number, 0);
	how.check = NULL;
	m.text = SLICE_NONE;
	assert_int_equal(object_put_seeded(rig, "b", SLICE("k"), 70000, 1, &how), 0);
	assert_true(m.number > last);
}

static void end_run(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(store_outbox_end(rig->store, seen.numbers, seen.count), 0);
	/* Ending a deleted row again is allowed. */
	assert_int_equal(store_outbox_end(rig->store, seen.numbers, 1), 0);
}

static void assert_fsck(const struct rig *rig)
{
	struct store_fsck_report report;
	struct buf out;

	buf_init(&out, 64 * KIB);
	assert_int_equal(store_fsck(rig->dir, true, &report, &out), 0);
	buf_free(&out);
}

static void test_kinds(void **state)
{
	static const char *const texts[] = {"put", "edit", "flags", "marker", "delete", "nothing"};
	uint64_t after = 0;
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig_run(&rig, kinds_run, NULL);
	assert_fsck(&rig);
	rig_run(&rig, visit_run, &after);
	assert_int_equal(seen.count, ARRAY_LEN(texts));
	for (uint32_t i = 0; i < seen.count; i++) {
		assert_string_equal(seen.texts[i], texts[i]);
		assert_true(i == 0 || seen.numbers[i] > seen.numbers[i - 1]);
	}
	assert_string_equal(seen.ids[0], put_id);
	assert_string_equal(seen.ids[1], "");
	assert_string_equal(seen.ids[3], marker_id);
	assert_string_equal(seen.ids[4], put_id);
	rig_run(&rig, end_run, NULL);
	rig_run(&rig, visit_run, &after);
	assert_int_equal(seen.count, 0);
	rig_dir_remove(&rig);
}

/* ---- Many rows: pages, start, stop, and no rows of this start. ---- */

#define MANY 200u

static void many_run(struct rig *rig, void *arg)
{
	char *text = (char *)malloc(4 * KIB);

	(void)arg;
	memset(text, 'x', 4 * KIB);
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	for (uint32_t i = 0; i < MANY; i++) {
		struct store_outbox_row m = {.text = slice_of(text, 4 * KIB)};
		const struct put_how how = {.outbox_row = &m};
		char key[16];

		snprintf(key, sizeof(key), "%u", i);
		memcpy(text, "00000000", 8);
		memcpy(text, key, strlen(key));
		assert_int_equal(object_put_seeded(rig, "b", slice_str(key), 10, i, &how), 0);
	}
	seen.count = 0;
	assert_int_equal(store_outbox_visit(rig->store, 0, visit, &seen), 0);
	assert_int_equal(seen.count, 0);
	free(text);
}

static void test_many(void **state)
{
	uint64_t after = 0, last;
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig_run(&rig, many_run, NULL);
	rig_run(&rig, visit_run, &after);
	assert_int_equal(seen.count, MANY);
	after = seen.numbers[MANY - 3];
	last = seen.numbers[MANY - 1];
	seen.stop_at = 2;
	rig_run(&rig, visit_run, &after);
	assert_int_equal(seen.count, 2);
	assert_int_equal(seen.numbers[1], last);
	seen.stop_at = 5;
	after = 0;
	rig_run(&rig, visit_run, &after);
	assert_int_equal(seen.count, 5);
	seen.stop_at = 0;
	rig_dir_remove(&rig);
}

/* ---- Two rows of a commit, seen by the start that made them. ---- */

static void two_run(struct rig *rig, void *arg)
{
	struct store_outbox_row second = {
		.text = SLICE("second"), .marker_text = SLICE("marker 2")};
	struct store_outbox_row first = {
		.text = SLICE("first"), .marker_text = SLICE_NONE, .next = &second};
	const struct put_how how = {.outbox_row = &first};
	struct store_deletion deletion = {.key = SLICE("k"), .outbox_row = &first};
	uint64_t deadline_ns = clock_now_ns() + 30 * NS_PER_S;

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "v"), 0);
	assert_int_equal(store_bucket_edit(rig->store, SLICE("v"), versions_on, NULL), 0);
	assert_int_equal(object_put_seeded(rig, "v", SLICE("k"), 100, 1, &how), 0);
	assert_true(first.number && second.number > first.number);
	assert_int_equal(store_delete_each(rig->store, SLICE("v"), 0, &deletion, 1), 0);
	assert_true(deletion.delete_marker && second.number > first.number);
	/* The index has them soon. */
	do {
		seen.count = 0;
		assert_int_equal(store_outbox_visit_all(rig->store, 0, visit, &seen), 0);
		fiber_yield();
	} while (seen.count < 3 && clock_now_ns() < deadline_ns);
	assert_int_equal(seen.count, 3);
	assert_string_equal(seen.texts[0], "first");
	assert_string_equal(seen.texts[1], "second");
	assert_string_equal(seen.texts[2], "marker 2");
	assert_string_equal(seen.ids[0], seen.ids[1]);
	assert_int_equal(seen.numbers[2], second.number);
	seen.count = 0;
	assert_int_equal(store_outbox_visit(rig->store, 0, visit, &seen), 0);
	assert_int_equal(seen.count, 0);
	/* A deletion without a commit numbers neither. */
	deletion.version_id = SLICE("00000000000000ff");
	assert_int_equal(store_delete_each(rig->store, SLICE("v"), 0, &deletion, 1), 0);
	assert_true(first.number == 0 && second.number == 0);
}

static void test_two(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig_run(&rig, two_run, NULL);
	assert_fsck(&rig);
	rig_dir_remove(&rig);
}

/* ---- A row. ---- */

static void test_parse(void **state)
{
	static const char good[] = "\1\2\0\0idtext";
	struct slice version_id, text, value = slice_of(good, sizeof(good) - 1);
	uint64_t number;
	struct key key;
	char bad[8];

	(void)state;
	key_outbox(&key, 0x0102030405060708);
	assert_int_equal(
		outbox_row_parse(slice_of(key.bytes, key.len), value, &number, &version_id, &text),
		0);
	assert_int_equal(number, 0x0102030405060708);
	assert_true(slice_eq(version_id, SLICE("id")) && slice_eq(text, SLICE("text")));
	assert_int_equal(outbox_row_parse(slice_of(key.bytes, key.len - 1), value, &number,
				 &version_id, &text),
		-EUCLEAN);
	for (size_t len = 0; len < 6; len++)
		assert_int_equal(outbox_row_parse(slice_of(key.bytes, key.len),
					 slice_to(value, len), &number, &version_id, &text),
			-EUCLEAN);
	memcpy(bad, good, sizeof(bad));
	bad[0] = 2;
	assert_int_equal(outbox_row_parse(slice_of(key.bytes, key.len), slice_of(bad, sizeof(bad)),
				 &number, &version_id, &text),
		-EUCLEAN);
	memcpy(bad, good, sizeof(bad));
	bad[2] = 1;
	assert_int_equal(outbox_row_parse(slice_of(key.bytes, key.len), slice_of(bad, sizeof(bad)),
				 &number, &version_id, &text),
		-EUCLEAN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_two),
		cmocka_unit_test(test_parse),
	};

	return cmocka_run_group_tests_name("outbox", tests, NULL, NULL);
}
