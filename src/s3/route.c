/* s3/route.c: from method, host, path and query to an operation, a bucket and a key, by the rows of
 * s3_operation_table.inc and s3_config_table.inc. */
#include <errno.h>

#include "s3/auth/auth.h"
#include "s3/bucket/website.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/core/text.h"
#include "s3/s3_priv.h"

/* The operation of a request, by a row of one of the two tables. */
struct choice {
	enum s3_operation_id id;
	struct slice param, takes; /* as in struct s3_route */
	const char *log;
};

static struct choice choice_of(enum s3_operation_id id)
{
	const struct s3_route *route = &s3_operation_at(id)->route;

	return (struct choice){id, route->param, route->takes, route->log};
}

/* ---- Which row. ---- */

static bool has_header(const struct s3_call *call, struct slice name)
{
	return !name.len || s3_call_has_header(call, name) || s3_presigned_has(call, name);
}

/* The rows of one level and method, in the table's order: most requests look at six instead of all.
 * Each row has the number behind the next one's; 0: it is the last. */
static uint8_t rows_first[S3_LEVEL_OBJECT + 1][S3_METHOD_OTHER + 1];
static uint8_t rows_next[S3_OPERATION_COUNT];
_Static_assert(S3_OPERATION_COUNT < UINT8_MAX, "a row's number fits a byte");

__attribute__((constructor)) static void index_rows(void)
{
	for (int id = S3_OPERATION_COUNT; id-- > 0;) {
		const struct s3_route *route = &s3_operations[id].route;
		uint8_t *first = &rows_first[route->level][route->method];

		rows_next[id] = *first;
		*first = (uint8_t)(id + 1);
	}
}

/* Finds the operation that this parameter selects (empty: that needs no parameter). An operation
 * selected by a header is preferred to one that needs no header. */
static bool find_row(const struct s3_call *call, enum s3_level level, struct slice param,
	struct choice *ret_choice)
{
	const struct s3_route *found = NULL;

	for (uint8_t row = rows_first[level][call->request->method]; row;
		row = rows_next[row - 1]) {
		const struct s3_route *route = &s3_operations[row - 1].route;

		if (!slice_eq(route->param, param) || (found && !route->header.len) ||
			!has_header(call, route->header))
			continue;
		found = route;
		*ret_choice = choice_of((enum s3_operation_id)(row - 1));
	}
	return found != NULL;
}

static const struct s3_config_verb *verb_of(
	const struct s3_config_kind *kind, enum s3_method method, enum s3_operation_id *ret_id)
{
	switch (method) {
	case S3_GET:
		*ret_id = S3_OPERATION_GET_CONFIG;
		return &kind->get;
	case S3_PUT:
		*ret_id = S3_OPERATION_PUT_CONFIG;
		return &kind->put;
	case S3_DELETE:
		*ret_id = S3_OPERATION_DELETE_CONFIG;
		return &kind->delete;
	default:
		return NULL;
	}
}

/* Finds a configuration that a bucket has once. */
static bool find_config(const struct s3_call *call, struct slice param, struct choice *ret_choice)
{
	for (int i = 0; i < S3_CONFIG_COUNT; i++) {
		const struct s3_config_kind *kind = &s3_config_kinds[i];
		const struct s3_config_verb *verb;
		enum s3_operation_id id;

		if (!slice_eq(kind->param, param))
			continue;
		verb = verb_of(kind, call->request->method, &id);
		if (!verb || !verb->action)
			return false;
		*ret_choice = (struct choice){id, kind->param, SLICE_NONE, verb->log};
		return true;
	}
	return false;
}

/* Finds a configuration that a bucket can have many of. */
static bool find_named_config(
	const struct s3_call *call, struct slice param, struct choice *ret_choice)
{
	const struct s3_named_kind *kind = s3_named_kind(param);
	enum s3_method method = call->request->method;

	if (!kind || (method != S3_GET && method != S3_DELETE))
		return false;
	*ret_choice = method == S3_GET ? (struct choice){S3_OPERATION_GET_NAMED_CONFIG, kind->param,
						 SLICE("id continuation-token"), kind->get_log}
				       : (struct choice){S3_OPERATION_DELETE_NAMED_CONFIG,
						 kind->param, SLICE("id"), kind->delete_log};
	return true;
}

/* The most specific row: by the first parameter that selects one, otherwise without a parameter. */
static bool find_choice(const struct s3_call *call, enum s3_level level, struct choice *ret_choice)
{
	for (uint32_t i = 0; i < call->params.count; i++) {
		struct slice param = call->params.items[i].name;

		if (param.len &&
			(find_row(call, level, param, ret_choice) ||
				(level == S3_LEVEL_BUCKET &&
					(find_config(call, param, ret_choice) ||
						find_named_config(call, param, ret_choice)))))
			return true;
	}
	return find_row(call, level, SLICE_NONE, ret_choice);
}

/* ---- Parameters that a row does not take. ---- */

static bool is_word_of(struct slice name, struct slice words)
{
	while (words.len)
		if (slice_eq(slice_split(&words, ' '), name))
			return true;
	return false;
}

/* Parameters that every request may have: SDKs name the operation, a presigned URL carries its
 * signature and headers in them, and any client may add notes for access logs ("x-"). */
static bool is_of_every_request(const struct s3_call *call, struct slice name)
{
	return !name.len || slice_eq_nocase(slice_to(name, 2), SLICE("x-")) ||
	       s3_presigned_takes(call, name);
}

/* Whether the parameter selects an operation of S3, served here or not. */
static bool chooses_operation(struct slice name)
{
	for (int i = 0; i < S3_OPERATION_COUNT; i++)
		if (slice_eq(name, s3_operations[i].route.param))
			return true;
	for (int i = 0; i < S3_CONFIG_COUNT; i++)
		if (slice_eq(name, s3_config_kinds[i].param))
			return true;
	return s3_named_kind(name) || s3_not_served(name);
}

/* A read ignores a parameter that S3 does not define, as S3 does: "style.css?v=3". */
static bool is_passed_over(const struct s3_call *call, struct slice name)
{
	enum s3_method method = call->request->method;

	return (method == S3_GET || method == S3_HEAD) && !chooses_operation(name);
}

/* The first parameter that the choice does not take. Parameters select S3's operations, and AWS
 * adds new ones every year. So a request with an unknown parameter may mean another operation than
 * its method and path say, and must not overwrite or delete. */
static struct slice foreign_param(const struct s3_call *call, const struct choice *choice)
{
	for (uint32_t i = 0; i < call->params.count; i++) {
		struct slice name = call->params.items[i].name;

		if (!is_of_every_request(call, name) && !slice_eq(name, choice->param) &&
			!is_word_of(name, choice->takes) && !is_passed_over(call, name))
			return name;
	}
	return SLICE_NONE;
}

static void set_operation(struct s3_call *call, const struct choice *choice)
{
	struct slice foreign = foreign_param(call, choice);

	call->log_name = choice->log;
	call->operation = s3_operation_at(choice->id);
	if (!foreign.len)
		return;
	call->log_name = NULL;
	call->declined = foreign;
	call->operation = s3_operation_at(S3_OPERATION_DECLINED);
}

/* A request without a signature (a session over RDMA) names the operation, as SDKs do. */
static bool is_directory_list(const struct s3_call *call, enum s3_level level)
{
	struct slice id;

	return level == S3_LEVEL_SERVICE && call->request->method == S3_GET &&
	       s3_call_param(call, SLICE("x-id"), &id) &&
	       slice_eq(id, SLICE("ListDirectoryBuckets"));
}

static void find_operation(struct s3_call *call, enum s3_level level)
{
	struct choice choice = choice_of(S3_OPERATION_UNKNOWN);

	if (call->request->method == S3_OPTIONS) {
		call->operation = s3_operation_at(S3_OPERATION_OPTIONS);
		call->log_name = call->operation->route.log;
		return;
	}
	if (is_directory_list(call, level))
		choice = choice_of(S3_OPERATION_LIST_DIRECTORY_BUCKETS);
	else
		find_choice(call, level, &choice);
	set_operation(call, &choice);
}

/* ---- The path. ---- */

/* Decodes into the arena; text without escapes stays where it is. */
static int decode(struct s3_call *call, struct slice text, struct slice *ret_decoded)
{
	char *memory;
	size_t len;
	int ret;

	if (!text.len || !memchr(text.data, '%', text.len)) {
		*ret_decoded = text;
		return 0;
	}
	memory = mem_arena_get(&call->arena, text.len);
	if (!memory)
		return -ENOMEM;
	ret = uri_decode(text, 0, memory, text.len, &len);
	if (ret)
		return ret;
	*ret_decoded = slice_of(memory, len);
	return 0;
}

int s3_split_path(struct s3_call *call, enum s3_level *ret_level)
{
	struct slice rest = call->request->path, bucket;
	int ret;

	if (!rest.len || rest.data[0] != '/')
		return -EINVAL;
	rest = slice_from(rest, 1);
	/* The Host of a control message says nothing of the object. */
	bucket = call->request->control ? SLICE_NONE : s3_website_bucket(call);
	call->website = bucket.len > 0;
	if (!bucket.len && !call->request->control)
		bucket = s3_host_bucket(call, slice_str(call->s3->host_domain));
	if (!bucket.len)
		bucket = slice_split(&rest, '/');
	ret = decode(call, bucket, &call->bucket);
	if (!ret)
		ret = decode(call, rest, &call->key);
	if (ret)
		return ret;
	*ret_level = !call->bucket.len ? S3_LEVEL_SERVICE
		     : !call->key.len  ? S3_LEVEL_BUCKET
				       : S3_LEVEL_OBJECT;
	return 0;
}

static const struct s3_error *parse_query(struct s3_call *call)
{
	struct slice query = call->request->query;
	uint32_t count = s3_query_count(query);
	struct s3_param *items;
	char *memory;
	int ret;

	if (!count)
		return NULL;
	if (count > S3_PARAMS_MAX)
		return s3_fail(call, S3_E_INVALID_URI,
			"The query string has more than %u parameters.", S3_PARAMS_MAX);
	items = mem_arena_get(&call->arena, count * sizeof(*items));
	memory = mem_arena_get(&call->arena, query.len);
	if (!items || !memory)
		return s3_error_at(S3_E_SLOW_DOWN);
	ret = s3_query_parse(query, items, memory, &call->params);
	return ret ? s3_error_at(S3_E_INVALID_URI) : NULL;
}

static const struct s3_error *check_names(struct s3_call *call, enum s3_level level)
{
	if (level == S3_LEVEL_SERVICE)
		return NULL;
	if (!s3_bucket_name_valid(call->bucket) &&
		!(call->s3->express && s3_express_zone(call->bucket).len))
		return s3_error_at(S3_E_INVALID_BUCKET_NAME);
	if (level == S3_LEVEL_BUCKET)
		return NULL;
	if (call->key.len > LIMIT_KEY_LEN_MAX) {
		char digits[SLICE_U64_MAX];

		s3_fail_detail(call, "Size", slice_of_u64(call->key.len, digits));
		s3_fail_detail(call, "MaxSizeAllowed", SLICE("1024"));
		return s3_error_at(S3_E_KEY_TOO_LONG);
	}
	if (!s3_key_valid(call->key))
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"The key is not valid UTF-8, or has a zero byte.");
	return NULL;
}

/* A call of S3 Control; its account header distinguishes it from an object of that name. */
static bool is_of_account(const struct s3_call *call)
{
	return slice_eq(call->request->path, SLICE("/v20180820/configuration/publicAccessBlock")) &&
	       call->request->method <= S3_DELETE &&
	       s3_call_has_header(call, SLICE("x-amz-account-id"));
}

/* An opcode of the native protocol selects the operation, except where a header changes it. */
static const struct s3_error *route_native(struct s3_call *call)
{
	const struct s3_request *request = call->request;
	const struct s3_operation *operation = s3_operation_of_opcode(request->opcode);
	const struct s3_error *error = NULL;
	struct choice choice;

	CHECK(operation && operation->direct);
	/* A copy is a PUT with a header. */
	if (operation->id == S3_OPERATION_PUT_OBJECT &&
		s3_call_has_header(call, SLICE("x-amz-copy-source")))
		operation = s3_operation_at(S3_OPERATION_COPY_OBJECT);
	call->operation = operation;
	call->bucket = request->bucket;
	call->key = request->key;
	if (request->query.len)
		error = parse_query(call);
	if (error)
		return error;
	choice = choice_of(operation->id);
	set_operation(call, &choice);
	return check_names(call, operation->route.level);
}

/* A control message that stands for no operation: for its own error, or to cancel. */
static const struct s3_error *route_control(struct s3_call *call)
{
	static const enum s3_operation_id ids[] = {
		[S3_CONTROL_PREPARE] = S3_OPERATION_RDMA_PREPARE,
		[S3_CONTROL_READY] = S3_OPERATION_RDMA_READY,
		[S3_CONTROL_CANCEL] = S3_OPERATION_RDMA_CANCEL,
		[S3_CONTROL_CONNECT] = S3_OPERATION_RDMA_SESSION_CONNECT,
		[S3_CONTROL_DISCONNECT] = S3_OPERATION_RDMA_SESSION_DISCONNECT,
	};

	call->operation = s3_operation_at(ids[call->request->control->step]);
	return NULL;
}

const struct s3_error *s3_route(struct s3_call *call)
{
	const struct s3_error *error;
	enum s3_level level;

	if (call->request->opcode)
		return route_native(call);
	if (call->request->control && !call->request->control->stands_for)
		return route_control(call);
	if (is_of_account(call)) {
		error = parse_query(call);
		if (!error)
			find_operation(call, S3_LEVEL_ACCOUNT);
		return error;
	}
	if (s3_split_path(call, &level))
		return s3_error_at(S3_E_INVALID_URI);
	if (call->website) {
		/* Website pages take none of S3's parameters. */
		call->operation = s3_operation_at(S3_OPERATION_WEBSITE);
		call->log_name = call->request->method == S3_HEAD ? "WEBSITE.HEAD.OBJECT"
								  : "WEBSITE.GET.OBJECT";
		return check_names(call, level);
	}
	error = parse_query(call);
	if (error)
		return error;
	find_operation(call, level);
	return check_names(call, level);
}
