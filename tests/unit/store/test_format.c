/* tests/unit/store/test_format.c: indexes of earlier and later programs: upgraded, kept with
 * unknown rows, or refused. */
#include "rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/store_priv.h"

#define FEATURE_LATER  (1u << 31)
#define FEATURE_NEEDED (1u << 3)

/* A change that another program may have made to the closed store's index. */
struct index_edit {
	uint32_t version, features;
	const char *row; /* a row to put, with its key as its value; NULL: none */
};

static struct index *open_index(const struct rig *rig)
{
	struct index_opts opts = {.cache_bytes = MIB, .write_buffer_bytes = MIB};
	struct index *index;
	char path[600];

	snprintf(path, sizeof(path), "%s/index", rig->dir);
	opts.dir = path;
	assert_int_equal(index_open(&opts, &index), 0);
	return index;
}

static struct state_record edit(const struct rig *rig, const struct index_edit *edit)
{
	struct index *index = open_index(rig);
	struct state_record state;
	struct group *group;
	struct key key;

	assert_int_equal(index_state_read(index, &state), 0);
	if (edit) {
		state.version = edit->version;
		state.features = edit->features;
		assert_int_equal(group_open(&group), 0);
		if (edit->row) {
			key.len = (uint32_t)strlen(edit->row);
			memcpy(key.bytes, edit->row, key.len);
			assert_int_equal(
				group_reserve(group, MUTATION_BYTES(key.len, key.len), 0), 0);
			memcpy(group_add(group, MUTATION_PUT, 0, &key, key.len), edit->row,
				key.len);
		}
		assert_int_equal(
			index_write_group(index, slice_of(group->bytes, group->len), &state), 0);
		assert_int_equal(index_flush(index), 0);
		group_close(group);
	}
	index_close(index);
	return state;
}

static bool has_row(const struct rig *rig, const char *row)
{
	struct index *index = open_index(rig);
	struct key key = {.len = (uint32_t)strlen(row)};
	char *value;
	size_t len;
	int ret;

	memcpy(key.bytes, row, key.len);
	ret = index_get(index, &key, true, &value, &len);
	if (ret == 1)
		free(value);
	index_close(index);
	return ret == 1;
}

static void put_first(struct rig *rig, void *arg)
{
	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("first"), 70000, 1, NULL), 0);
}

static void nothing(struct rig *rig, void *arg)
{
	(void)rig;
	(void)arg;
}

/* Puts an outbox row, too, which an earlier program does not know. */
static void put_second(struct rig *rig, void *arg)
{
	struct store_outbox_row outbox_row = {.text = SLICE("told")};
	const struct put_how how = {.outbox_row = &outbox_row};

	(void)arg;
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("first"), 70000, 1), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("second"), 70000, 2, &how), 0);
}

static void make(struct rig *rig)
{
	rig_init(rig, 1);
	rig_run(rig, put_first, NULL);
}

static int fsck(const struct rig *rig, struct store_fsck_report *ret_report)
{
	struct buf out;
	int ret;

	buf_init(&out, MIB);
	ret = store_fsck(rig->dir, true, ret_report, &out);
	buf_free(&out);
	return ret;
}

static void test_earlier_indexes_are_marked_when_they_are_opened(void **state)
{
	static const struct index_edit earlier[] = {{.version = 1}, {.version = 2}};
	struct state_record now;
	struct rig rig;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(earlier); i++) {
		make(&rig);
		edit(&rig, &earlier[i]);
		/* Refused before anything is written. */
		rig_run(&rig, nothing, NULL);
		assert_int_equal(rig.open_result, 0);
		now = edit(&rig, NULL);
		assert_int_equal(now.version, INDEX_VERSION);
		assert_int_equal(now.features, INDEX_FEATURES);
		rig_run(&rig, put_second, NULL);
		now = edit(&rig, NULL);
		assert_int_equal(now.features, INDEX_FEATURES);
		rig_fsck(&rig);
		rig_dir_remove(&rig);
	}
}

static void test_rows_of_a_later_program_are_kept(void **state)
{
	const struct index_edit later = {.version = INDEX_VERSION,
		.features = INDEX_FEATURES | FEATURE_LATER,
		.row = "Xrow"};
	struct store_fsck_report report;
	struct state_record now;
	struct rig rig;

	(void)state;
	make(&rig);
	edit(&rig, &later);
	rig_run(&rig, put_second, NULL);
	assert_int_equal(rig.open_result, 0);
	now = edit(&rig, NULL);
	assert_int_equal(now.features, later.features);
	assert_true(has_row(&rig, "Xrow"));
	assert_int_equal(fsck(&rig, &report), 0);
	assert_int_equal(report.unknown_rows, 1);
	rig_dir_remove(&rig);
}

static void test_rows_of_no_feature_are_damage(void **state)
{
	const struct index_edit damage = {
		.version = INDEX_VERSION, .features = INDEX_FEATURES, .row = "\xffrow"};
	struct store_fsck_report report;
	struct rig rig;

	(void)state;
	make(&rig);
	edit(&rig, &damage);
	assert_int_equal(fsck(&rig, &report), -EUCLEAN);
	assert_int_equal(report.bad_records, 1);
	assert_int_equal(report.unknown_rows, 0);
	rig_dir_remove(&rig);
}

static void test_an_unknown_needed_feature_is_refused(void **state)
{
	static const struct index_edit refused[] = {
		{.version = INDEX_VERSION, .features = INDEX_FEATURES | FEATURE_NEEDED},
		{.version = INDEX_VERSION + 1, .features = INDEX_FEATURES},
		{.version = 0},
	};
	const struct index_edit fine = {.version = INDEX_VERSION, .features = INDEX_FEATURES};
	struct store_fsck_report report;
	struct state_record now;
	struct rig rig;

	(void)state;
	make(&rig);
	for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
		edit(&rig, &refused[i]);
		rig_run(&rig, nothing, NULL);
		assert_int_equal(rig.open_result, -EUCLEAN);
		assert_int_equal(fsck(&rig, &report), -EUCLEAN);
		now = edit(&rig, NULL);
		assert_int_equal(now.version, refused[i].version);
		assert_int_equal(now.features, refused[i].features);
	}
	edit(&rig, &fine);
	rig_run(&rig, put_second, NULL);
	assert_int_equal(rig.open_result, 0);
	rig_dir_remove(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_earlier_indexes_are_marked_when_they_are_opened),
		cmocka_unit_test(test_rows_of_a_later_program_are_kept),
		cmocka_unit_test(test_rows_of_no_feature_are_damage),
		cmocka_unit_test(test_an_unknown_needed_feature_is_refused),
	};

	return cmocka_run_group_tests_name("format", tests, NULL, NULL);
}
