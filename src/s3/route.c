/* s3/route.c: from method, host, path and query to an operation, a bucket and a key, by the rows of
 * s3_route_table.inc. */
#include <errno.h>

#include "s3/auth/auth.h"
#include "s3/bucket/website.h"
#include "s3/core/call.h"
#include "s3/core/text.h"
#include "s3/operation.h"
#include "s3/s3_priv.h"

const struct s3_operation s3_operations[S3_OPERATION_COUNT] = {
#define OPERATION(operation_id, operation_name, operation_run, operation_action) \
	[S3_OPERATION_##operation_id] = {.id = S3_OPERATION_##operation_id,      \
		.name = operation_name,                                          \
		.run = operation_run,                                            \
		.action = operation_action},
#include "s3/s3_operation_table.inc"
#undef OPERATION
};

/* What chooses operations of S3 that are not served here. */
#define S3_NOT_SERVED                                                                      \
	"abac analytics annotation intelligent-tiering inventory metadataAnnotationTable " \
	"metadataConfiguration metadataInventoryTable metadataJournalTable metadataTable " \
	"metrics select"

/* What a request of one kind has to have, and what it may have. */
struct s3_route {
	enum s3_method method;
	enum s3_level level;
	struct slice param;  /* must be in the query; empty: none need be */
	struct slice header; /* must be among the headers */
	enum s3_operation_id id;
	const char *log;     /* what access logs call it, behind "REST." */
	struct slice params; /* may be in the query: names with blanks between them */
};

static const struct s3_route routes[] = {
#define ROUTE(method, level, param, header, id, log, params)                                 \
	{S3_##method, S3_LEVEL_##level, SLICE(param), SLICE(header), S3_OPERATION_##id, log, \
		SLICE(params)},
#include "s3/s3_route_table.inc"
#undef ROUTE
};

static bool route_fits(
	const struct s3_route *route, const struct s3_call *call, enum s3_level level)
{
	return route->method == call->request->method && route->level == level &&
	       (!route->param.len || s3_call_param(call, route->param, NULL)) &&
	       (!route->header.len || s3_call_has_header(call, route->header) ||
		       s3_presigned_has(call, route->header));
}

static const struct s3_route *find_route(const struct s3_call *call, enum s3_level level)
{
	for (size_t i = 0; i < ARRAY_LEN(routes); i++)
		if (route_fits(&routes[i], call, level))
			return &routes[i];
	return NULL;
}

/* That of an operation that is chosen without the query: the row that needs nothing of it. */
static const struct s3_route *route_of(enum s3_operation_id id)
{
	for (size_t i = 0; i < ARRAY_LEN(routes); i++)
		if (routes[i].id == id)
			return &routes[i];
	return NULL;
}

static bool is_word_of(struct slice name, struct slice words)
{
	while (words.len)
		if (slice_eq(slice_split(&words, ' '), name))
			return true;
	return false;
}

/* Parameters that every request may have: SDKs name the operation, a presigned URL has its
 * signature there, and headers, and anybody may have notes for access logs ("x-"). */
static bool is_of_every_request(const struct s3_call *call, struct slice name)
{
	return !name.len || slice_eq_nocase(slice_to(name, 2), SLICE("x-")) ||
	       s3_presigned_takes(call, name);
}

/* Whether S3 has an operation that the parameter chooses: one that is served here, or another. */
static bool chooses_operation(struct slice name)
{
	for (size_t i = 0; i < ARRAY_LEN(routes); i++)
		if (slice_eq(name, routes[i].param))
			return true;
	return is_word_of(name, SLICE(S3_NOT_SERVED));
}

/* A read passes over what S3 does not know, as S3 does: "style.css?v=3". */
static bool is_passed_over(enum s3_method method, struct slice name)
{
	return (method == S3_GET || method == S3_HEAD) && !chooses_operation(name);
}

/* The first parameter that the row does not take; NULL: an operation without parameters. S3 tells
 * operations apart by parameters, and gets new ones every year: a request with one that is not
 * known may ask for something else than its method and path say, which must not overwrite or
 * delete. */
static struct slice foreign_param(const struct s3_call *call, const struct s3_route *route)
{
	enum s3_method method = route ? route->method : call->request->method;

	for (uint32_t i = 0; i < call->params.count; i++) {
		struct slice name = call->params.items[i].name;

		if (is_of_every_request(call, name) || is_passed_over(method, name) ||
			(route &&
				(slice_eq(name, route->param) || is_word_of(name, route->params))))
			continue;
		return name;
	}
	return SLICE_NONE;
}

/* Who has no signature to say it by (a session over RDMA) names the operation, as SDKs do. */
static bool is_directory_list(const struct s3_call *call, enum s3_level level)
{
	struct slice id;

	return level == S3_LEVEL_SERVICE && call->request->method == S3_GET &&
	       s3_call_param(call, SLICE("x-id"), &id) &&
	       slice_eq(id, SLICE("ListDirectoryBuckets"));
}

static void set_operation(
	struct s3_call *call, const struct s3_route *route, enum s3_operation_id id)
{
	struct slice foreign = foreign_param(call, route);

	call->log_name = route ? route->log : NULL;
	call->operation = &s3_operations[id];
	if (!foreign.len)
		return;
	call->log_name = NULL;
	call->declined = foreign;
	call->operation = &s3_operations[S3_OPERATION_DECLINED];
}

static void find_operation(struct s3_call *call, enum s3_level level)
{
	const struct s3_route *route;

	if (call->request->method == S3_OPTIONS) {
		call->log_name = "OPTIONS.PREFLIGHT";
		call->operation = &s3_operations[S3_OPERATION_OPTIONS];
		return;
	}
	route = is_directory_list(call, level) ? route_of(S3_OPERATION_LIST_DIRECTORY_BUCKETS)
					       : find_route(call, level);
	set_operation(call, route, route ? route->id : S3_OPERATION_UNKNOWN);
}

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
	bucket = s3_website_bucket(call);
	call->website = bucket.len > 0;
	if (!bucket.len)
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
		return s3_fail(call, S3_E_INVALID_ARGUMENT, "The key is not valid UTF-8.");
	return NULL;
}

/* A call of S3 Control, told from an object of that name by the account that it names. */
static bool find_account_operation(struct s3_call *call)
{
	static const enum s3_operation_id ids[] = {
		[S3_GET] = S3_OPERATION_GET_ACCOUNT_PUBLIC_ACCESS,
		[S3_HEAD] = S3_OPERATION_UNKNOWN,
		[S3_PUT] = S3_OPERATION_PUT_ACCOUNT_PUBLIC_ACCESS,
		[S3_POST] = S3_OPERATION_UNKNOWN,
		[S3_DELETE] = S3_OPERATION_DELETE_ACCOUNT_PUBLIC_ACCESS,
	};

	if (!slice_eq(call->request->path, SLICE("/v20180820/configuration/publicAccessBlock")) ||
		call->request->method > S3_DELETE ||
		!s3_call_has_header(call, SLICE("x-amz-account-id")))
		return false;
	call->operation = &s3_operations[ids[call->request->method]];
	return true;
}

/* An opcode of the native transport: it says what is asked for, but for what headers make of it. */
static const struct s3_error *route_native(struct s3_call *call)
{
	const struct s3_request *request = call->request;
	enum s3_operation_id id = s3_operation_native(request->op)->id;
	const struct s3_error *error = NULL;

	/* A copy is a PUT with a header. */
	if (id == S3_OPERATION_PUT_OBJECT && s3_call_has_header(call, SLICE("x-amz-copy-source")))
		id = S3_OPERATION_COPY_OBJECT;
	call->operation = &s3_operations[id];
	call->bucket = request->bucket;
	call->key = request->key;
	if (request->query.len)
		error = parse_query(call);
	if (error)
		return error;
	set_operation(call, route_of(id), id);
	return check_names(
		call, id == S3_OPERATION_LIST_OBJECTS_V2 ? S3_LEVEL_BUCKET : S3_LEVEL_OBJECT);
}

const struct s3_error *s3_route(struct s3_call *call)
{
	const struct s3_error *error;
	enum s3_level level;

	if (call->request->op != S3_OP_ROUTE)
		return route_native(call);
	if (find_account_operation(call)) {
		error = parse_query(call);
		if (!error)
			set_operation(call, NULL, call->operation->id);
		return error;
	}
	if (s3_split_path(call, &level))
		return s3_error_at(S3_E_INVALID_URI);
	if (call->website) {
		/* Pages have no parameters of ours. */
		call->operation = &s3_operations[S3_OPERATION_WEBSITE];
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

const struct s3_operation *s3_operation_native(enum s3_op op)
{
	static const enum s3_operation_id ids[] = {
		[S3_OP_ROUTE] = S3_OPERATION_UNKNOWN,
		[S3_OP_GET_OBJECT] = S3_OPERATION_GET_OBJECT,
		[S3_OP_PUT_OBJECT] = S3_OPERATION_PUT_OBJECT,
		[S3_OP_DELETE_OBJECT] = S3_OPERATION_DELETE_OBJECT,
		[S3_OP_HEAD_OBJECT] = S3_OPERATION_HEAD_OBJECT,
		[S3_OP_LIST_OBJECTS_V2] = S3_OPERATION_LIST_OBJECTS_V2,
	};

	CHECK((size_t)op < sizeof(ids) / sizeof(ids[0]));
	return &s3_operations[ids[op]];
}
