/* tests/unit/s3/test_route.c: the routing of requests: each row of the tables is selected by its
 * own method, parameter and header, and by nothing else. */
#include "../unit.h"

#include <stdio.h>

#include "codec/capsule.h"
#include "fake.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/s3_priv.h"

static const char *const paths[] = {[S3_LEVEL_SERVICE] = "/",
	[S3_LEVEL_ACCOUNT] = "/v20180820/configuration/publicAccessBlock",
	[S3_LEVEL_BUCKET] = "/bucket",
	[S3_LEVEL_OBJECT] = "/bucket/key"};

/* The parts of a request that routing reads. */
struct asked {
	enum s3_method method;
	enum s3_level level;
	struct slice header; /* or empty */
	const char *query;
};

/* Routes the request. The call's own text is freed afterwards; only texts of the tables stay
 * valid. */
static struct s3_call route(const struct asked *asked)
{
	struct s3_header headers[2] = {{SLICE("x-amz-account-id"), SLICE("000000000000")},
		{asked->header, SLICE("/other/key")}};
	struct s3_request request = {.method = asked->method,
		.method_text = SLICE("METHOD"),
		.path = slice_str(paths[asked->level]),
		.query = slice_str(asked->query),
		.headers = asked->level == S3_LEVEL_ACCOUNT ? headers : headers + 1,
		.header_count = asked->level == S3_LEVEL_ACCOUNT || asked->header.len ? 1 : 0};
	struct s3_call call = {.magic = S3_CALL_MAGIC,
		.s3 = fake_s3,
		.operation = s3_operation_at(S3_OPERATION_UNKNOWN)};

	s3_call_request(&call, &request);
	mem_arena_init(&call.arena);
	assert_null(s3_route(&call));
	mem_arena_free(&call.arena);
	return call;
}

static void expect(const struct asked *asked, enum s3_operation_id id, const char *log)
{
	struct s3_call call = route(asked);

	if (call.operation->id != id)
		fail_msg("%s?%s with \"%.*s\" is %s, not %s", paths[asked->level], asked->query,
			SLICE_FMT(asked->header), call.operation->name, s3_operation_at(id)->name);
	if (log)
		assert_string_equal(call.log_name, log);
	else
		assert_null(call.log_name);
}

static const char *query_of(struct slice param, const char *rest, char buf[256])
{
	snprintf(buf, 256, "%.*s%s%s", SLICE_FMT(param), param.len && rest[0] ? "&" : "", rest);
	return buf;
}

static void test_each_row_is_chosen(void **state)
{
	char query[256];

	(void)state;
	for (int id = 0; id < S3_OPERATION_COUNT; id++) {
		const struct s3_route *row = &s3_operations[id].route;
		struct asked asked = {row->method, row->level, row->header, query};
		struct slice rest = row->takes;

		assert_int_equal(s3_operations[id].id, id);
		if (row->level == S3_LEVEL_NONE)
			continue;
		query_of(row->param, "x-id=Any", query);
		expect(&asked, (enum s3_operation_id)id, row->log);
		while (rest.len) {
			struct slice name = slice_split(&rest, ' ');
			char taken[128];

			snprintf(taken, sizeof(taken), "%.*s=1", SLICE_FMT(name));
			query_of(row->param, taken, query);
			expect(&asked, (enum s3_operation_id)id, row->log);
		}
		/* Another parameter is another operation; no row accepts it. */
		query_of(row->param, "abac", query);
		expect(&asked, S3_OPERATION_DECLINED, NULL);
	}
}

static void expect_verb(const struct s3_config_kind *kind, enum s3_method method,
	const struct s3_config_verb *verb, enum s3_operation_id id)
{
	char query[256];
	struct asked asked = {method, S3_LEVEL_BUCKET, SLICE_NONE, query};

	query_of(kind->param, "", query);
	if (verb->action)
		expect(&asked, id, verb->log);
	else
		assert_int_not_equal(route(&asked).operation->id, id);
	query_of(kind->param, "annotation", query);
	expect(&asked, S3_OPERATION_DECLINED, NULL);
	/* The row is for buckets, not for objects. */
	asked.level = S3_LEVEL_OBJECT;
	query_of(kind->param, "", query);
	assert_int_not_equal(route(&asked).operation->id, id);
}

static void test_each_configuration_is_chosen(void **state)
{
	(void)state;
	for (int i = 0; i < S3_CONFIG_COUNT; i++) {
		const struct s3_config_kind *kind = &s3_config_kinds[i];

		assert_int_equal(kind->id, i);
		expect_verb(kind, S3_GET, &kind->get, S3_OPERATION_GET_CONFIG);
		expect_verb(kind, S3_PUT, &kind->put, S3_OPERATION_PUT_CONFIG);
		expect_verb(kind, S3_DELETE, &kind->delete, S3_OPERATION_DELETE_CONFIG);
	}
	expect(&(struct asked){S3_GET, S3_LEVEL_BUCKET, SLICE_NONE, "metrics&id=a"},
		S3_OPERATION_GET_NAMED_CONFIG, "GET.METRICS");
	expect(&(struct asked){S3_DELETE, S3_LEVEL_BUCKET, SLICE_NONE, "id=a&inventory"},
		S3_OPERATION_DELETE_NAMED_CONFIG, "DELETE.INVENTORY");
	expect(&(struct asked){S3_PUT, S3_LEVEL_BUCKET, SLICE_NONE, "metrics&id=a"},
		S3_OPERATION_DECLINED, NULL);
}

static const char *declined_by(const char *query)
{
	static char name[32];
	struct s3_header none = {SLICE_NONE, SLICE_NONE};
	struct s3_request request = {.method = S3_PUT,
		.path = SLICE("/bucket/key"),
		.query = slice_str(query),
		.headers = &none};
	struct s3_call call = {.magic = S3_CALL_MAGIC,
		.s3 = fake_s3,
		.operation = s3_operation_at(S3_OPERATION_UNKNOWN)};

	s3_call_request(&call, &request);
	mem_arena_init(&call.arena);
	assert_null(s3_route(&call));
	slice_copy_str(call.declined, name, sizeof(name));
	mem_arena_free(&call.arena);
	return name;
}

/* A parameter is preferred to a header, whatever their order; of two parameters that select a row,
 * no row accepts the other. */
static void test_the_most_specific_row_is_chosen(void **state)
{
	static const struct slice copy = SLICE("x-amz-copy-source");

	(void)state;
	expect(&(struct asked){S3_PUT, S3_LEVEL_OBJECT, copy, "partNumber=1&uploadId=a"},
		S3_OPERATION_UPLOAD_PART_COPY, "COPY.PART");
	expect(&(struct asked){S3_PUT, S3_LEVEL_OBJECT, copy, "tagging"},
		S3_OPERATION_PUT_OBJECT_TAGGING, "PUT.OBJECT_TAGGING");
	expect(&(struct asked){S3_PUT, S3_LEVEL_OBJECT, copy, ""}, S3_OPERATION_COPY_OBJECT,
		"COPY.OBJECT");
	expect(&(struct asked){S3_PUT, S3_LEVEL_OBJECT, SLICE_NONE, "tagging&acl"},
		S3_OPERATION_DECLINED, NULL);
	expect(&(struct asked){S3_PUT, S3_LEVEL_OBJECT, SLICE_NONE, "acl&tagging"},
		S3_OPERATION_DECLINED, NULL);
	/* The answer names the second. */
	assert_string_equal(declined_by("tagging&acl"), "acl");
	assert_string_equal(declined_by("acl&tagging"), "tagging");
	expect(&(struct asked){S3_GET, S3_LEVEL_BUCKET, SLICE_NONE, "=tagging&&prefix=a"},
		S3_OPERATION_LIST_OBJECTS, "GET.BUCKET");
	expect(&(struct asked){S3_HEAD, S3_LEVEL_OBJECT, SLICE_NONE, "acl"}, S3_OPERATION_DECLINED,
		NULL);
	expect(&(struct asked){S3_POST, S3_LEVEL_ACCOUNT, SLICE_NONE, ""}, S3_OPERATION_UNKNOWN,
		NULL);
	expect(&(struct asked){S3_OPTIONS, S3_LEVEL_OBJECT, SLICE_NONE, "anything"},
		S3_OPERATION_OPTIONS, "OPTIONS.PREFLIGHT");
	expect(&(struct asked){S3_GET, S3_LEVEL_SERVICE, SLICE_NONE, "x-id=ListDirectoryBuckets"},
		S3_OPERATION_LIST_DIRECTORY_BUCKETS, "GET.SERVICE");
	expect(&(struct asked){S3_METHOD_OTHER, S3_LEVEL_OBJECT, SLICE_NONE, ""},
		S3_OPERATION_UNKNOWN, NULL);
}

/* The request that an opcode implies, written as HTTP, selects the operation with that opcode. */
static void test_opcodes(void **state)
{
	struct s3_native native;
	uint32_t count = 0;

	(void)state;
	for (int id = 0; id < S3_OPERATION_COUNT; id++) {
		const struct s3_operation *operation = &s3_operations[id];
		char query[256];
		struct asked asked = {
			.level = operation->route.level, .header = operation->route.header};

		if (!operation->opcode)
			continue;
		assert_true(s3_native(operation->opcode, &native));
		assert_int_equal(native.direct, operation->direct);
		asked.method = native.method;
		asked.query = native.query;
		/* The client sends this parameter with a value. */
		if (operation->route.param.len && !native.query[0])
			asked.query = query_of(operation->route.param, "", query);
		expect(&asked, (enum s3_operation_id)id, operation->route.log);
		count++;
	}
	assert_int_equal(count, CAPSULE_OP_GET_BUCKET_LOCATION);
	assert_false(s3_native(0, &native));
	assert_false(s3_native(CAPSULE_OP_S3, &native));
	assert_false(s3_native(CAPSULE_OP_PING, &native));
	assert_false(s3_native(UINT8_MAX, &native));
}

static int tests_run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_row_is_chosen),
		cmocka_unit_test(test_each_configuration_is_chosen),
		cmocka_unit_test(test_the_most_specific_row_is_chosen),
		cmocka_unit_test(test_opcodes),
	};

	return cmocka_run_group_tests(tests, fake_open, fake_close);
}

int main(void)
{
	return fake_main(tests_run);
}
