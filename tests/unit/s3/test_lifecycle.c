/* tests/unit/s3/test_lifecycle.c: lifecycle rules: accepted and refused rules, and their decisions
 * on versions at a given time. */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>

#include "s3/core/call.h"
#include "s3/core/stored.h"
#include "s3/core/tags.h"
#include "s3/core/xml_in.h"
#include "s3/object/lifecycle.h"
#include "arena.h"

#define RULE(inside) \
	"<L><Rule><ID>r</ID><Status>Enabled</Status><Prefix>p/</Prefix>" inside "</Rule></L>"
#define DAY_MS 86400000ll
#define NOON   (1700000000000ll / DAY_MS * DAY_MS + DAY_MS / 2)

static struct s3_lifecycle_rules rules;
static struct s3_lifecycle_wrong wrong;

static int parse(const char *text)
{
	struct s3_xml *tree;

	assert_int_equal(s3_xml_parse(slice_str(text), &arena, &tree), 0);
	return s3_lifecycle_parse(tree, &arena, &rules, &wrong);
}

static struct store_meta meta;
static struct store_lifecycle_version version;
static const struct s3_tags *tags_known;
static struct s3_lifecycle_now now;
static uint8_t class;

static void fresh(void)
{
	meta = (struct store_meta){.bytes = 10, .mtime_ns = (uint64_t)NOON * NS_PER_MS};
	version = (struct store_lifecycle_version){
		.key = SLICE("p/k"), .meta = &meta, .current = true};
	now = (struct s3_lifecycle_now){.ms = NOON, .day_ms = DAY_MS};
	tags_known = NULL;
	class = 0;
}

static enum s3_lifecycle_action decide(void)
{
	return s3_lifecycle_decide(&rules, &version, tags_known, &now, &class);
}

static void test_days_end_at_midnight(void **state)
{
	(void)state;
	fresh();
	assert_int_equal(parse(RULE("<Expiration><Days>2</Days></Expiration>")), 0);
	now.ms = NOON + 2 * DAY_MS + DAY_MS / 2 - 1;
	assert_int_equal(decide(), S3_LIFECYCLE_KEEP);
	now.ms++;
	assert_int_equal(decide(), S3_LIFECYCLE_EXPIRE);
	version.key = SLICE("q/k");
	assert_int_equal(decide(), S3_LIFECYCLE_KEEP);
	version.key = SLICE("p/k");
	version.current = false;
	assert_int_equal(decide(), S3_LIFECYCLE_KEEP);
	/* A short day is not rounded to midnight. */
	version.current = true;
	now = (struct s3_lifecycle_now){.ms = NOON + 1999, .day_ms = 1000};
	assert_int_equal(decide(), S3_LIFECYCLE_KEEP);
	now.ms++;
	assert_int_equal(decide(), S3_LIFECYCLE_EXPIRE);
}

static void test_versions_and_markers(void **state)
{
	(void)state;
	fresh();
	assert_int_equal(
		parse(RULE("<NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays>"
			   "<NewerNoncurrentVersions>2</NewerNoncurrentVersions>"
			   "</NoncurrentVersionExpiration><Expiration>"
			   "<ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker>"
			   "</Expiration>")),
		0);
	now.ms += 10 * DAY_MS;
	assert_int_equal(decide(), S3_LIFECYCLE_KEEP);
	meta.delete_marker = true;
	assert_int_equal(decide(), S3_LIFECYCLE_KEEP);
	version.alone = true;
	assert_int_equal(decide(), S3_LIFECYCLE_DELETE_VERSION);
	version = (struct store_lifecycle_version){.key = SLICE("p/k"),
		.meta = &meta,
		.noncurrent_ns = (uint64_t)now.ms * NS_PER_MS,
		.newer = 2};
	assert_int_equal(decide(), S3_LIFECYCLE_KEEP);
	version.noncurrent_ns = meta.mtime_ns;
	assert_int_equal(decide(), S3_LIFECYCLE_DELETE_VERSION);
	version.newer = 1;
	assert_int_equal(decide(), S3_LIFECYCLE_KEEP);
}

static void test_filters(void **state)
{
	struct s3_tags tags = {.count = 1, .items = {{SLICE("k"), SLICE("w")}}};

	(void)state;
	fresh();
	assert_int_equal(
		parse("<L><Rule><Status>Enabled</Status><Filter><And><Tag><Key>k</Key><Value>v"
		      "</Value></Tag><ObjectSizeGreaterThan>9</ObjectSizeGreaterThan>"
		      "<ObjectSizeLessThan>11</ObjectSizeLessThan></And></Filter>"
		      "<Expiration><Date>2020-01-01T00:00:00.000Z</Date></Expiration></Rule></L>"),
		0);
	assert_int_equal(decide(), S3_LIFECYCLE_NEEDS_TAGS);
	tags_known = &tags;
	assert_int_equal(decide(), S3_LIFECYCLE_KEEP);
	tags.items[0].value = SLICE("v");
	assert_int_equal(decide(), S3_LIFECYCLE_EXPIRE);
	meta.bytes = 9;
	assert_int_equal(decide(), S3_LIFECYCLE_KEEP);
	meta.bytes = 11;
	assert_int_equal(decide(), S3_LIFECYCLE_KEEP);
}

static void test_moves(void **state)
{
	(void)state;
	fresh();
	assert_int_equal(
		parse(RULE("<Transition><Days>0</Days><StorageClass>STANDARD_IA</StorageClass>"
			   "</Transition><Transition><Days>9</Days><StorageClass>ONEZONE_IA"
			   "</StorageClass></Transition>")),
		0);
	now.ms += DAY_MS;
	assert_int_equal(decide(), S3_LIFECYCLE_MOVE);
	assert_int_equal(class, 1);
	meta.checksum_flags = 1u << S3_FLAG_CLASS_SHIFT;
	assert_int_equal(decide(), S3_LIFECYCLE_KEEP);
	now.ms += 10 * DAY_MS;
	assert_int_equal(decide(), S3_LIFECYCLE_MOVE);
	assert_int_equal(class, 2);
}

#define MOVES(prefix, days, class)                                                         \
	"<Rule><Status>Enabled</Status><Prefix>" prefix "</Prefix><Transition><Days>" days \
	"</Days><StorageClass>" class "</StorageClass></Transition></Rule>"

/* The coldest class of all rules counts, in any order of the rules, and objects stay there. */
static void test_moves_go_down(void **state)
{
	static const char *const TEXTS[] = {"<L>" MOVES("", "30", "STANDARD_IA")
						    MOVES("p/", "60", "GLACIER") "</L>",
		"<L>" MOVES("p/", "60", "GLACIER") MOVES("", "30", "STANDARD_IA") "</L>"};
	uint8_t glacier, deep;

	(void)state;
	assert_true(s3_storage_class_find(SLICE("GLACIER"), &glacier));
	assert_true(s3_storage_class_find(SLICE("DEEP_ARCHIVE"), &deep));
	for (size_t i = 0; i < ARRAY_LEN(TEXTS); i++) {
		fresh();
		assert_int_equal(parse(TEXTS[i]), 0);
		now.ms += 31 * DAY_MS;
		assert_int_equal(decide(), S3_LIFECYCLE_MOVE);
		assert_int_equal(class, 1);
		now.ms += 30 * DAY_MS;
		assert_int_equal(decide(), S3_LIFECYCLE_MOVE);
		assert_int_equal(class, glacier);
		meta.checksum_flags = (uint8_t)(glacier << S3_FLAG_CLASS_SHIFT);
		assert_int_equal(decide(), S3_LIFECYCLE_KEEP);
		/* It was put into a colder class, or into one that is its bucket's alone. */
		meta.checksum_flags = (uint8_t)(deep << S3_FLAG_CLASS_SHIFT);
		assert_int_equal(decide(), S3_LIFECYCLE_KEEP);
		meta.checksum_flags = S3_STORAGE_CLASS_EXPRESS << S3_FLAG_CLASS_SHIFT;
		assert_int_equal(decide(), S3_LIFECYCLE_KEEP);
	}
}

/* AWS's waterfall. */
static void test_order_of_classes(void **state)
{
	static const struct slice ORDER[] = {SLICE("STANDARD"), SLICE("REDUCED_REDUNDANCY"),
		SLICE("STANDARD_IA"), SLICE("INTELLIGENT_TIERING"), SLICE("ONEZONE_IA"),
		SLICE("GLACIER_IR"), SLICE("GLACIER"), SLICE("DEEP_ARCHIVE")};
	uint8_t from, to;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(ORDER); i++)
		for (size_t k = 0; k < ARRAY_LEN(ORDER); k++) {
			assert_true(s3_storage_class_find(ORDER[i], &from));
			assert_true(s3_storage_class_find(ORDER[k], &to));
			assert_int_equal(s3_storage_class_is_colder(to, from), k > i);
		}
}

static void test_minimum_of_moves(void **state)
{
	static const struct {
		enum s3_lifecycle_minimum minimum;
		const char *class, *filter;
		uint64_t bytes;
		enum s3_lifecycle_action action;
	} rows[] = {
		{S3_LIFECYCLE_MOVE_ANY, "STANDARD_IA", "", 1, S3_LIFECYCLE_MOVE},
		{S3_LIFECYCLE_MOVE_LARGE, "STANDARD_IA", "", 131071, S3_LIFECYCLE_KEEP},
		{S3_LIFECYCLE_MOVE_LARGE, "STANDARD_IA", "", 131072, S3_LIFECYCLE_MOVE},
		{S3_LIFECYCLE_MOVE_LARGE, "GLACIER", "", 131071, S3_LIFECYCLE_KEEP},
		{S3_LIFECYCLE_MOVE_LARGE, "GLACIER",
			"<ObjectSizeGreaterThan>9</ObjectSizeGreaterThan>", 10, S3_LIFECYCLE_MOVE},
		{S3_LIFECYCLE_MOVE_LARGE_BUT_ARCHIVED, "GLACIER_IR", "", 1, S3_LIFECYCLE_KEEP},
		{S3_LIFECYCLE_MOVE_LARGE_BUT_ARCHIVED, "GLACIER", "", 1, S3_LIFECYCLE_MOVE},
		{S3_LIFECYCLE_MOVE_LARGE_BUT_ARCHIVED, "DEEP_ARCHIVE", "", 1, S3_LIFECYCLE_MOVE},
	};
	char text[512];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		fresh();
		snprintf(text, sizeof(text),
			"<L><Rule><Status>Enabled</Status><Filter>%s</Filter><Transition><Days>0"
			"</Days><StorageClass>%s</StorageClass></Transition></Rule></L>",
			rows[i].filter, rows[i].class);
		assert_int_equal(parse(text), 0);
		rules.minimum = rows[i].minimum;
		meta.bytes = rows[i].bytes;
		now.ms += DAY_MS;
		assert_int_equal(decide(), rows[i].action);
	}
}

static void test_expiry_and_uploads(void **state)
{
	static const struct s3_tags none;
	int64_t due_ms = 0;

	(void)state;
	fresh();
	tags_known = &none;
	assert_int_equal(
		parse("<L><Rule><ID>a</ID><Status>Enabled</Status><Prefix/><Expiration>"
		      "<Days>5</Days></Expiration></Rule><Rule><ID>b</ID><Status>Enabled"
		      "</Status><Prefix>p</Prefix><Expiration><Days>3</Days></Expiration>"
		      "<AbortIncompleteMultipartUpload><DaysAfterInitiation>1"
		      "</DaysAfterInitiation></AbortIncompleteMultipartUpload></Rule></L>"),
		0);
	assert_true(slice_eq(
		s3_lifecycle_expiry(&rules, &version, tags_known, &due_ms)->id, SLICE("b")));
	assert_int_equal(due_ms, NOON + DAY_MS / 2 + 3 * DAY_MS);
	version.key = SLICE("k");
	assert_true(slice_eq(
		s3_lifecycle_expiry(&rules, &version, tags_known, &due_ms)->id, SLICE("a")));
	assert_false(s3_lifecycle_aborts(&rules, SLICE("p"), meta.mtime_ns, &now));
	now.ms += 2 * DAY_MS;
	assert_true(s3_lifecycle_aborts(&rules, SLICE("p"), meta.mtime_ns, &now));
	assert_false(s3_lifecycle_aborts(&rules, SLICE("o"), meta.mtime_ns, &now));
}

static void test_refusals(void **state)
{
	static const struct {
		const char *text;
		enum s3_error_id error;
	} rows[] = {
		{"<L/>", S3_E_MALFORMED_XML},
		{"<L><Rule/></L>", S3_E_MALFORMED_XML},
		{"<L><Rule><Status>Enabled</Status><Prefix/></Rule></L>", S3_E_INVALID_REQUEST},
		{RULE(""), S3_E_INVALID_REQUEST},
		{RULE("<Expiration/>"), S3_E_MALFORMED_XML},
		{RULE("<Expiration><Days>0</Days></Expiration>"), S3_E_INVALID_ARGUMENT},
		{RULE("<Expiration><Days>-1</Days></Expiration>"), S3_E_INVALID_ARGUMENT},
		{RULE("<Expiration><Days>x</Days></Expiration>"), S3_E_MALFORMED_XML},
		{RULE("<Expiration><Days>99999</Days></Expiration>"), S3_E_INVALID_ARGUMENT},
		{RULE("<Expiration><Date>2020-01-01T01:00:00Z</Date></Expiration>"),
			S3_E_INVALID_ARGUMENT},
		{RULE("<Expiration><Date>soon</Date></Expiration>"), S3_E_MALFORMED_XML},
		{RULE("<Transition><Days>1</Days></Transition>"), S3_E_MALFORMED_XML},
		{RULE("<Transition><Days>1</Days><StorageClass>STANDARD</StorageClass>"
		      "</Transition>"),
			S3_E_MALFORMED_XML},
		{RULE("<Filter/><Expiration><Days>1</Days></Expiration>"), S3_E_MALFORMED_XML},
		{"<L><Rule><Status>Enabled</Status><Filter><Tag><Key/><Value/></Tag></Filter>"
		 "<Expiration><Days>1</Days></Expiration></Rule></L>",
			S3_E_MALFORMED_XML},
		{"<L><Rule><Status>Enabled</Status><Filter><And><ObjectSizeLessThan>x"
		 "</ObjectSizeLessThan></And></Filter></Rule></L>",
			S3_E_MALFORMED_XML},
		{"<L><Rule><Status>Enabled</Status><Filter><And>"
		 "<Tag><Key>k</Key><Value>1</Value></Tag><Tag><Key>k</Key><Value>2</Value></Tag>"
		 "</And></Filter>"
		 "<Expiration><Days>1</Days></Expiration></Rule></L>",
			S3_E_INVALID_REQUEST},
		{"<L><Rule><Status>Enabled</Status><Filter><Tag><Key>k</Key><Value/></Tag></Filter>"
		 "<AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation>"
		 "</AbortIncompleteMultipartUpload></Rule></L>",
			S3_E_INVALID_REQUEST},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(parse(rows[i].text), -EINVAL);
		if (wrong.error != rows[i].error)
			fail_msg("%s: error %d", rows[i].text, wrong.error);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_days_end_at_midnight),
		cmocka_unit_test(test_versions_and_markers),
		cmocka_unit_test(test_filters),
		cmocka_unit_test(test_moves),
		cmocka_unit_test(test_moves_go_down),
		cmocka_unit_test(test_order_of_classes),
		cmocka_unit_test(test_minimum_of_moves),
		cmocka_unit_test(test_expiry_and_uploads),
		cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests_name("lifecycle", tests, arena_setup, arena_teardown);
}
