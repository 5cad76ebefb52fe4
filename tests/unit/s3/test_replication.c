/* tests/unit/s3/test_replication.c: replication configurations: accepted and refused ones, and the
 * rule that an object or a delete marker falls under. */
#include "../unit.h"

#include <errno.h>

#include "s3/core/call.h"
#include "s3/replicate/replicate.h"

#define TO(target) "<Destination><Bucket>arn:aws:s3:::" target "</Bucket></Destination>"
#define ON	   "<Status>Enabled</Status>"
#define MARKERS(status) \
	"<DeleteMarkerReplication><Status>" status "</Status></DeleteMarkerReplication>"
#define V2(id, priority, filter, markers)                                                      \
	"<Rule><ID>" id "</ID><Priority>" priority "</Priority><Filter>" filter "</Filter>" ON \
	MARKERS(markers) TO("t") "</Rule>"
#define ALL(rules)	"<R><Role>arn</Role>" rules "</R>"
#define TAG(key, value) "<Tag><Key>" key "</Key><Value>" value "</Value></Tag>"

static struct mem_arena arena;
static struct s3_replication parsed;
static struct s3_replication_wrong wrong;

static int setup(void **state)
{
	(void)state;
	mem_arena_init(&arena);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	mem_arena_free(&arena);
	return 0;
}

static int parse(const char *text)
{
	struct s3_xml *tree;

	assert_int_equal(s3_xml_parse(slice_str(text), &arena, &tree), 0);
	return s3_replication_parse(tree, &arena, &parsed, &wrong);
}

static const char *rule_of(const char *key, const char *tag, const char *value)
{
	const struct s3_tags tags = {
		.count = tag != NULL, .items = {{slice_str(tag), slice_str(value)}}};
	const struct s3_replication_rule *rule =
		s3_replication_rule_of(&parsed, slice_str(key), &tags);

	return rule ? mem_arena_copy(&arena, rule->id).data : "none";
}

static void test_rules(void **state)
{
	(void)state;
	assert_int_equal(parse(ALL(V2("low", "1", "<Prefix/>", "Enabled") V2("high", "7",
				 "<And><Prefix>a/</Prefix>" TAG("k", "v") "</And>", "Disabled")
					 V2("tag", "3", TAG("k", "w"), "Disabled"))),
		0);
	assert_int_equal(parsed.count, 3);
	assert_true(slice_eq(parsed.target, SLICE("t")));
	assert_string_equal(rule_of("a/1", "k", "v"), "high");
	assert_string_equal(rule_of("b/1", "k", "v"), "low");
	assert_string_equal(rule_of("b/1", "k", "w"), "tag");
	assert_string_equal(rule_of("b/1", NULL, NULL), "low");
	assert_true(slice_eq(s3_replication_marker_rule(&parsed, SLICE("a/1"))->id, SLICE("low")));
	/* The first version of the schema; MinIO's ARN; a rule that is off. */
	assert_int_equal(parse(ALL("<Rule><Prefix>p</Prefix>" ON
				   "<Destination><Bucket>arn:minio:replication:r:t:b</Bucket>"
				   "<StorageClass>GLACIER</StorageClass></Destination></Rule>")),
		0);
	assert_true(slice_eq(parsed.target, SLICE("t")) && slice_eq(parsed.bucket, SLICE("b")));
	assert_true(slice_eq(parsed.rules[0].class, SLICE("GLACIER")));
	assert_int_equal(parsed.rules[0].id.len, 24);
	assert_string_equal(rule_of("q", NULL, NULL), "none");
	assert_null(s3_replication_marker_rule(&parsed, SLICE("p")));
	assert_int_equal(parse(ALL("<Rule><ID>off</ID><Prefix/><Status>Disabled</Status>" TO(
				 "t") "</Rule>")),
		0);
	assert_string_equal(rule_of("p", NULL, NULL), "none");
}

static void test_refused(void **state)
{
	static const struct {
		const char *text;
		enum s3_error_id error;
	} cases[] = {
		{"<R/>", S3_E_MALFORMED_XML},
		{ALL("<Rule>" ON "</Rule>"), S3_E_MALFORMED_XML},
		{ALL("<Rule>" TO("t") "</Rule>"), S3_E_MALFORMED_XML},
		{ALL("<Rule><Status>On</Status>" TO("t") "</Rule>"), S3_E_MALFORMED_XML},
		{ALL("<Rule>" ON TO("") "</Rule>"), S3_E_MALFORMED_XML},
		{ALL("<Rule>" ON "<Other/>" TO("t") "</Rule>"), S3_E_MALFORMED_XML},
		{ALL("<Rule>" ON "<Filter/>" MARKERS("Enabled") TO("t") "</Rule>"),
			S3_E_INVALID_REQUEST},
		{ALL("<Rule>" ON "<Priority>1</Priority><Filter/>" TO("t") "</Rule>"),
			S3_E_INVALID_REQUEST},
		{ALL(V2("a", "x", "", "Enabled")), S3_E_MALFORMED_XML},
		{ALL(V2("a", "1", TAG("k", "v"), "Enabled")), S3_E_INVALID_REQUEST},
		{ALL(V2("a", "1", "<Prefix/>" TAG("k", "v"), "Disabled")), S3_E_MALFORMED_XML},
		{ALL(V2("a", "1", "<And>" TAG("k", "v") TAG("k", "w") "</And>", "Disabled")),
			S3_E_INVALID_REQUEST},
		{ALL(V2("a", "1", "", "Enabled") V2("a", "2", "", "Enabled")),
			S3_E_INVALID_ARGUMENT},
		{ALL(V2("a", "1", "", "Enabled") V2("b", "1", "", "Enabled")),
			S3_E_INVALID_REQUEST},
		{ALL("<Rule>" ON TO("t") "</Rule><Rule>" ON TO("u") "</Rule>"),
			S3_E_NOT_IMPLEMENTED},
		{ALL("<Rule>" ON "<DeleteReplication>" ON "</DeleteReplication>" TO("t") "</Rule>"),
			S3_E_NOT_IMPLEMENTED},
		{ALL("<Rule>" ON "<SourceSelectionCriteria><ReplicaModifications>" ON
		     "</ReplicaModifications></SourceSelectionCriteria>" TO("t") "</Rule>"),
			S3_E_NOT_IMPLEMENTED},
		{ALL("<Rule>" ON "<Destination><Bucket>arn:aws:s3:::t</Bucket><ReplicationTime>" ON
		     "</ReplicationTime></Destination></Rule>"),
			S3_E_NOT_IMPLEMENTED},
		{ALL("<Rule>" ON "<Destination><Bucket>arn:aws:s3:::t</Bucket>"
		     "<StorageClass>X</StorageClass></Destination></Rule>"),
			S3_E_MALFORMED_XML},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		assert_int_equal(parse(cases[i].text), -EINVAL);
		assert_int_equal(wrong.error, cases[i].error);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rules),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests_name("replication", tests, setup, teardown);
}
