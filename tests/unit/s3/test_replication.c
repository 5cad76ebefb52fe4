/* tests/unit/s3/test_replication.c: replication configurations: accepted and refused ones, and the
 * rule that an object or a delete marker falls under. */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>

#include "s3/core/call.h"
#include "s3/replicate/replicate.h"
#include "arena.h"

#define TO(target) "<Destination><Bucket>arn:aws:s3:::" target "</Bucket></Destination>"
#define TO_MINIO(target, bucket)                                                     \
	"<Destination><Bucket>arn:minio:replication::" target ":" bucket "</Bucket>" \
	"</Destination>"
#define ON "<Status>Enabled</Status>"
#define MARKERS(status) \
	"<DeleteMarkerReplication><Status>" status "</Status></DeleteMarkerReplication>"
#define V2(id, priority, filter, markers)                                                      \
	"<Rule><ID>" id "</ID><Priority>" priority "</Priority><Filter>" filter "</Filter>" ON \
	MARKERS(markers) TO("t") "</Rule>"
#define ALL(rules)	"<R><Role>arn</Role>" rules "</R>"
#define TAG(key, value) "<Tag><Key>" key "</Key><Value>" value "</Value></Tag>"

static struct s3_replication parsed;
static struct s3_replication_wrong wrong;

static int parse(const char *text)
{
	struct s3_xml *tree;

	assert_int_equal(s3_xml_parse(slice_str(text), &arena, &tree), 0);
	return s3_replication_parse(tree, &arena, &parsed, &wrong);
}

static const char *rule_to(uint32_t target, const char *key, const char *tag, const char *value)
{
	const struct s3_tags tags = {
		.count = tag != NULL, .items = {{slice_str(tag), slice_str(value)}}};
	const struct s3_replication_rule *rule =
		s3_replication_rule_of(&parsed, target, slice_str(key), &tags);

	return rule ? mem_arena_copy(&arena, rule->id).data : "none";
}

static const char *rule_of(const char *key, const char *tag, const char *value)
{
	return rule_to(0, key, tag, value);
}

static void test_rules(void **state)
{
	(void)state;
	assert_int_equal(parse(ALL(V2("low", "1", "<Prefix/>", "Enabled") V2("high", "7",
				 "<And><Prefix>a/</Prefix>" TAG("k", "v") "</And>", "Disabled")
					 V2("tag", "3", TAG("k", "w"), "Disabled"))),
		0);
	assert_int_equal(parsed.count, 3);
	assert_int_equal(parsed.target_count, 1);
	assert_true(slice_eq(parsed.targets[0].name, SLICE("t")));
	assert_string_equal(rule_of("a/1", "k", "v"), "high");
	assert_string_equal(rule_of("b/1", "k", "v"), "low");
	assert_string_equal(rule_of("b/1", "k", "w"), "tag");
	assert_string_equal(rule_of("b/1", NULL, NULL), "low");
	assert_true(
		slice_eq(s3_replication_marker_rule(&parsed, 0, SLICE("a/1"))->id, SLICE("low")));
	/* The first version of the schema; MinIO's ARN; a rule that is off. */
	assert_int_equal(parse(ALL("<Rule><Prefix>p</Prefix>" ON
				   "<Destination><Bucket>arn:minio:replication:r:t:b</Bucket>"
				   "<StorageClass>GLACIER</StorageClass></Destination></Rule>")),
		0);
	assert_true(slice_eq(parsed.targets[0].name, SLICE("t")) &&
		    slice_eq(parsed.targets[0].bucket, SLICE("b")));
	assert_true(slice_eq(parsed.rules[0].class, SLICE("GLACIER")));
	assert_int_equal(parsed.rules[0].id.len, 24);
	assert_string_equal(rule_of("q", NULL, NULL), "none");
	assert_null(s3_replication_marker_rule(&parsed, 0, SLICE("p")));
	assert_int_equal(parse(ALL("<Rule><ID>off</ID><Prefix/><Status>Disabled</Status>" TO(
				 "t") "</Rule>")),
		0);
	assert_string_equal(rule_of("p", NULL, NULL), "none");
	/* Metrics, which there are in any case. */
	assert_int_equal(
		parse(ALL("<Rule>" ON "<Destination><Bucket>arn:aws:s3:::t</Bucket><Metrics>" ON
			  "</Metrics></Destination></Rule>")),
		0);
}

#define MINUTES(element, minutes) "<" element "><Minutes>" minutes "</Minutes></" element ">"
#define CONTROL(n)		  "<ReplicationTime>" ON MINUTES("Time", n) "</ReplicationTime>"
#define TIMED(times)                                                         \
	ALL("<Rule>" ON "<Destination><Bucket>arn:aws:s3:::t</Bucket>" times \
	    "</Destination></Rule>")

static void test_times(void **state)
{
	(void)state;
	assert_int_equal(parse(TIMED("")), 0);
	assert_false(parsed.rules[0].metrics || parsed.rules[0].timed);
	assert_int_equal(parse(TIMED("<Metrics>" ON "</Metrics>")), 0);
	assert_true(parsed.rules[0].metrics && !parsed.rules[0].timed);
	assert_int_equal(
		parse(TIMED("<Metrics>" ON MINUTES("EventThreshold", "15") "</Metrics>")), 0);
	assert_true(parsed.rules[0].metrics && parsed.rules[0].timed);
	assert_int_equal(parse(TIMED(CONTROL("15") "<Metrics>" ON MINUTES(
				 "EventThreshold", "15") "</Metrics>")),
		0);
	assert_true(parsed.rules[0].timed);
	assert_int_equal(parse(TIMED("<ReplicationTime><Status>Disabled</Status>"
				     "</ReplicationTime><Metrics><Status>Disabled</Status>" MINUTES(
					     "EventThreshold", "15") "</Metrics>")),
		0);
	assert_false(parsed.rules[0].metrics || parsed.rules[0].timed);
}

/* Rows are counted by rule as they are left and end, in any order; a rule that finds no place; and
 * a place that is free again. */
static void test_ledger(void **state)
{
	static struct s3 s3;
	static struct s3_replicate_rule_told told[S3_REPLICATE_RULES_MAX];
	struct s3_replicate_row row = {.kind = S3_REPLICATE_PUT,
		.bytes = 10,
		.time_ns = clock_real_ns(),
		.target = SLICE("t"),
		.bucket = SLICE("bucket"),
		.rule = SLICE("r")};
	struct s3_replicate_row other = row;
	char name[16];

	(void)state;
	assert_int_equal(s3_replicate_registry_open(&s3.replicate), 0);
	other.rule = SLICE_NONE;
	s3_replicate_pend(&s3, &other, 1);
	assert_int_equal(s3_replicate_rules(&s3, told), 0);
	s3_replicate_pend(&s3, &row, 1);
	s3_replicate_pend(&s3, &row, 1);
	row.time_ns -= 3 * NS_PER_S;
	s3_replicate_pend(&s3, &row, -1);
	s3_replicate_count_end(&s3, &row, true);
	s3_replicate_count_end(&s3, &row, false);
	s3_replicate_count_missed(&s3, &row);
	assert_int_equal(s3_replicate_rules(&s3, told), 1);
	assert_string_equal(told[0].bucket, "bucket");
	assert_string_equal(told[0].rule, "r");
	assert_int_equal(told[0].pending, 1);
	assert_int_equal(told[0].pending_bytes, 10);
	assert_int_equal(told[0].sent, 1);
	assert_true(told[0].sent_ns >= 3 * NS_PER_S && told[0].sent_ns < 3600 * NS_PER_S);
	assert_int_equal(told[0].failed, 1);
	assert_int_equal(told[0].missed, 1);
	for (uint32_t i = 1; i <= S3_REPLICATE_RULES_MAX; i++) {
		snprintf(name, sizeof(name), "r%u", i);
		other.rule = slice_str(name);
		s3_replicate_pend(&s3, &other, 1);
	}
	assert_int_equal(s3_replicate_rules(&s3, told), S3_REPLICATE_RULES_MAX);
	assert_string_equal(told[S3_REPLICATE_RULES_MAX - 1].rule, "r255");
	/* The last one had no place: its row that ends changes nothing. */
	s3_replicate_pend(&s3, &other, -1);
	s3_replicate_pend(&s3, &row, -1);
	assert_int_equal(s3_replicate_rules(&s3, told), S3_REPLICATE_RULES_MAX);
	assert_string_equal(told[0].rule, "r");
	assert_int_equal(told[0].pending, 0);
	/* It takes the place of the rule that nothing waits for. A row may end before it was
	 * counted. */
	s3_replicate_pend(&s3, &other, 1);
	s3_replicate_pend(&s3, &other, -1);
	s3_replicate_pend(&s3, &other, -1);
	s3_replicate_rules(&s3, told);
	assert_string_equal(told[0].rule, "r256");
	assert_int_equal(told[0].pending, 0);
	assert_int_equal(told[0].pending_bytes, 0);
	s3_replicate_pend(&s3, &other, 1);
	s3_replicate_pend(&s3, &other, 1);
	s3_replicate_rules(&s3, told);
	assert_int_equal(told[0].pending, 1);
	s3_replicate_registry_close(s3.replicate);
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
		{ALL("<Rule>" ON TO_MINIO("t", "b") "</Rule><Rule>" ON TO_MINIO(
			 "t", "c") "</Rule>"),
			S3_E_INVALID_REQUEST},
		{ALL("<Rule>" ON "<SourceSelectionCriteria><SseKmsEncryptedObjects>" ON
		     "</SseKmsEncryptedObjects></SourceSelectionCriteria>" TO("t") "</Rule>"),
			S3_E_INVALID_REQUEST},
		{ALL("<Rule>" ON "<Destination><Bucket>arn:aws:s3:::t</Bucket>"
		     "<EncryptionConfiguration><ReplicaKmsKeyID>k</ReplicaKmsKeyID>"
		     "</EncryptionConfiguration></Destination></Rule>"),
			S3_E_INVALID_REQUEST},
		{ALL("<Rule>" ON "<DeleteReplication>" ON "</DeleteReplication>" TO("t") "</Rule>"),
			S3_E_NOT_IMPLEMENTED},
		{ALL("<Rule>" ON "<SourceSelectionCriteria><ReplicaModifications>" ON
		     "</ReplicaModifications></SourceSelectionCriteria>" TO("t") "</Rule>"),
			S3_E_NOT_IMPLEMENTED},
		{TIMED("<Metrics>" ON "<EventThreshold/></Metrics>"), S3_E_MALFORMED_XML},
		{TIMED("<Metrics>" MINUTES("EventThreshold", "15") "</Metrics>"),
			S3_E_MALFORMED_XML},
		{TIMED("<Metrics>" ON MINUTES("EventThreshold", "14") "</Metrics>"),
			S3_E_INVALID_ARGUMENT},
		{TIMED(CONTROL("16") "<Metrics>" ON MINUTES("EventThreshold", "15") "</Metrics>"),
			S3_E_INVALID_ARGUMENT},
		{TIMED("<ReplicationTime>" ON "</ReplicationTime>"), S3_E_MALFORMED_XML},
		{TIMED(CONTROL("15")), S3_E_INVALID_REQUEST},
		{TIMED(CONTROL("15") "<Metrics>" ON "</Metrics>"), S3_E_INVALID_REQUEST},
		{TIMED(CONTROL("15") "<Metrics><Status>Disabled</Status>" MINUTES(
			 "EventThreshold", "15") "</Metrics>"),
			S3_E_INVALID_REQUEST},
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

#define TO_RULE(id, priority, prefix, markers, target)                                  \
	"<Rule><ID>" id "</ID><Priority>" priority "</Priority><Filter><Prefix>" prefix \
	"</Prefix></Filter>" ON                                                         \
	MARKERS(markers) TO(target) "</Rule>"

/* Of the rules to each destination the one of the highest priority. */
static void test_destinations(void **state)
{
	char text[S3_REPLICATE_TARGETS_MAX * 400], one[400];
	uint32_t target;

	(void)state;
	assert_int_equal(parse(ALL(TO_RULE("t-low", "1", "", "Enabled", "t") TO_RULE("u", "2", "a/",
				 "Disabled", "u") TO_RULE("t-high", "3", "a/", "Disabled", "t"))),
		0);
	assert_int_equal(parsed.target_count, 2);
	assert_true(s3_replication_target_find(&parsed, SLICE("u"), &target));
	assert_int_equal(target, 1);
	assert_false(s3_replication_target_find(&parsed, SLICE("v"), &target));
	assert_string_equal(rule_to(0, "a/1", NULL, NULL), "t-high");
	assert_string_equal(rule_to(1, "a/1", NULL, NULL), "u");
	assert_string_equal(rule_to(0, "b", NULL, NULL), "t-low");
	assert_string_equal(rule_to(1, "b", NULL, NULL), "none");
	/* For markers, too, the rule of the highest priority counts. */
	assert_null(s3_replication_marker_rule(&parsed, 0, SLICE("a/1")));
	assert_non_null(s3_replication_marker_rule(&parsed, 0, SLICE("b")));
	assert_null(s3_replication_marker_rule(&parsed, 1, SLICE("a/1")));
	snprintf(text, sizeof(text), "<R>");
	for (uint32_t i = 0; i <= S3_REPLICATE_TARGETS_MAX; i++) {
		snprintf(one, sizeof(one),
			"<Rule>" ON "<Destination><Bucket>arn:aws:s3:::t%u</Bucket></Destination>"
			"</Rule>",
			i);
		strcat(text, one);
	}
	strcat(text, "</R>");
	assert_int_equal(parse(text), -EINVAL);
	assert_int_equal(wrong.error, S3_E_INVALID_REQUEST);
}

/* ---- The hidden header. ---- */

static struct slice headers;

static void set(const char *target, enum s3_replica_state state, const char *id)
{
	const struct s3_replica_of replica = {.state = state, .id = slice_str(id)};

	assert_int_equal(s3_replica_set(headers, slice_str(target), &replica, &arena, &headers), 0);
}

static struct slice value(void)
{
	return s3_meta_hidden(headers, SLICE(S3_REPLICA_HEADER));
}

static void value_is(const char *text)
{
	headers = SLICE_NONE;
	assert_int_equal(s3_meta_set_hidden(headers, SLICE(S3_REPLICA_HEADER), slice_str(text),
				 &arena, &headers),
		0);
}

static void assert_of(const char *target, enum s3_replica_state state, const char *id)
{
	struct s3_replica_of replica = s3_replica_of(headers, slice_str(target));

	assert_int_equal(replica.state, state);
	assert_true(slice_eq(replica.id, slice_str(id)));
}

static void test_status(void **state)
{
	(void)state;
	headers = SLICE_NONE;
	assert_of("t", S3_REPLICA_NONE, "");
	set("t", S3_REPLICA_PENDING, "");
	set("u", S3_REPLICA_PENDING, "");
	assert_true(slice_eq(value(), SLICE("PENDING @t:P @u:P")));
	set("t", S3_REPLICA_COMPLETED, "id:1/=");
	assert_true(slice_starts(value(), SLICE("PENDING ")));
	assert_of("t", S3_REPLICA_COMPLETED, "id:1/=");
	assert_of("u", S3_REPLICA_PENDING, "");
	assert_of("v", S3_REPLICA_NONE, "");
	set("u", S3_REPLICA_COMPLETED, "2");
	assert_true(slice_starts(value(), SLICE("COMPLETED ")));
	set("t", S3_REPLICA_FAILED, "id:1/=");
	set("v", S3_REPLICA_PENDING, "");
	assert_true(slice_starts(value(), SLICE("FAILED ")));
	/* Another target waits: lifecycle rules keep the version. */
	assert_true(s3_replica_is_pending(headers));
	/* One that is taken out counts no longer; without any there is no header. */
	set("t", S3_REPLICA_NONE, "");
	assert_true(slice_starts(value(), SLICE("PENDING ")));
	set("v", S3_REPLICA_NONE, "");
	assert_true(slice_eq(value(), SLICE("COMPLETED @u:C:2")));
	assert_false(s3_replica_is_pending(headers));
	set("v", S3_REPLICA_FAILED, "");
	assert_false(s3_replica_is_pending(headers));
	set("v", S3_REPLICA_NONE, "");
	set("u", S3_REPLICA_NONE, "");
	assert_int_equal(headers.len, 0);
	/* Without a target's name: of each; the first that is noted takes it over. */
	value_is("COMPLETED 17");
	assert_of("t", S3_REPLICA_COMPLETED, "17");
	set("t", S3_REPLICA_PENDING, "17");
	assert_true(slice_eq(value(), SLICE("PENDING @t:P:17")));
	value_is("PENDING");
	assert_true(s3_replica_is_pending(headers));
	value_is("REPLICA 17");
	assert_false(s3_replica_is_pending(headers));
	assert_true(s3_replica_is_replica(headers));
	assert_of("t", S3_REPLICA_NONE, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rules),
		cmocka_unit_test(test_times),
		cmocka_unit_test(test_ledger),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_destinations),
		cmocka_unit_test(test_status),
	};

	return cmocka_run_group_tests_name("replication", tests, arena_setup, arena_teardown);
}
