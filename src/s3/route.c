/* s3/route.c: from method, host, path and query to an operation, a bucket and a key. The routes are
 * a table: the first row that fits wins, rows with a parameter stand before rows without. */
#include <errno.h>

#include "s3/express.h"
#include "s3/website.h"

static const struct s3_operation operations[S3_OPERATION_COUNT] = {
#define OPERATION(operation_id, operation_name, operation_run, operation_action) \
	[S3_OPERATION_##operation_id] = {.id = S3_OPERATION_##operation_id,      \
		.name = operation_name,                                          \
		.run = operation_run,                                            \
		.action = operation_action},
#include "s3/s3_operation_table.inc"
#undef OPERATION
};

struct route {
	enum s3_method method;
	enum s3_level level;
	struct slice param;  /* must be in the query; empty: none need be */
	struct slice header; /* must be among the headers */
	enum s3_operation_id id;
};

#define PLAIN(method, level, id)                                         \
	{                                                                \
		method, level, SLICE_NONE, SLICE_NONE, S3_OPERATION_##id \
	}
#define PARAM(method, level, param, id)                                    \
	{                                                                  \
		method, level, SLICE(param), SLICE_NONE, S3_OPERATION_##id \
	}

static const struct route routes[] = {
	PARAM(S3_GET, S3_LEVEL_SERVICE, "max-directory-buckets", LIST_DIRECTORY_BUCKETS),
	PLAIN(S3_GET, S3_LEVEL_SERVICE, LIST_BUCKETS),
	PARAM(S3_POST, S3_LEVEL_SERVICE, TOKEN_CONNECT_PARAM, RDMA_CONNECT),
	PARAM(S3_DELETE, S3_LEVEL_SERVICE, TOKEN_CONNECT_PARAM, RDMA_DISCONNECT),

	PARAM(S3_GET, S3_LEVEL_BUCKET, "location", GET_BUCKET_LOCATION),
	PARAM(S3_GET, S3_LEVEL_BUCKET, "acl", GET_ACL),
	PARAM(S3_GET, S3_LEVEL_BUCKET, "accelerate", GET_CONFIG),
	PARAM(S3_GET, S3_LEVEL_BUCKET, "cors", GET_CONFIG),
	PARAM(S3_GET, S3_LEVEL_BUCKET, "encryption", GET_CONFIG),
	PARAM(S3_GET, S3_LEVEL_BUCKET, "lifecycle", GET_CONFIG),
	PARAM(S3_GET, S3_LEVEL_BUCKET, "logging", GET_CONFIG),
	PARAM(S3_GET, S3_LEVEL_BUCKET, "notification", GET_CONFIG),
	PARAM(S3_GET, S3_LEVEL_BUCKET, "object-lock", GET_OBJECT_LOCK),
	PARAM(S3_GET, S3_LEVEL_BUCKET, "ownershipControls", GET_CONFIG),
	PARAM(S3_GET, S3_LEVEL_BUCKET, "policy", GET_CONFIG),
	PARAM(S3_GET, S3_LEVEL_BUCKET, "session", CREATE_SESSION),
	PARAM(S3_GET, S3_LEVEL_BUCKET, "policyStatus", GET_POLICY_STATUS),
	PARAM(S3_GET, S3_LEVEL_BUCKET, "publicAccessBlock", GET_CONFIG),
	PARAM(S3_GET, S3_LEVEL_BUCKET, "replication", GET_CONFIG),
	PARAM(S3_GET, S3_LEVEL_BUCKET, "requestPayment", GET_CONFIG),
	PARAM(S3_GET, S3_LEVEL_BUCKET, "tagging", GET_CONFIG),
	PARAM(S3_GET, S3_LEVEL_BUCKET, "versioning", GET_BUCKET_VERSIONING),
	PARAM(S3_GET, S3_LEVEL_BUCKET, "website", GET_CONFIG),
	PARAM(S3_GET, S3_LEVEL_BUCKET, "versions", LIST_OBJECT_VERSIONS),
	PARAM(S3_GET, S3_LEVEL_BUCKET, "list-type", LIST_OBJECTS_V2),
	PARAM(S3_GET, S3_LEVEL_BUCKET, "uploads", LIST_MULTIPART_UPLOADS),
	PARAM(S3_PUT, S3_LEVEL_BUCKET, "acl", PUT_ACL),
	PARAM(S3_PUT, S3_LEVEL_BUCKET, "accelerate", PUT_CONFIG),
	PARAM(S3_PUT, S3_LEVEL_BUCKET, "cors", PUT_CONFIG),
	PARAM(S3_PUT, S3_LEVEL_BUCKET, "encryption", PUT_CONFIG),
	PARAM(S3_PUT, S3_LEVEL_BUCKET, "lifecycle", PUT_CONFIG),
	PARAM(S3_PUT, S3_LEVEL_BUCKET, "logging", PUT_CONFIG),
	PARAM(S3_PUT, S3_LEVEL_BUCKET, "notification", PUT_CONFIG),
	PARAM(S3_PUT, S3_LEVEL_BUCKET, "object-lock", PUT_CONFIG),
	PARAM(S3_PUT, S3_LEVEL_BUCKET, "ownershipControls", PUT_CONFIG),
	PARAM(S3_PUT, S3_LEVEL_BUCKET, "policy", PUT_CONFIG),
	PARAM(S3_PUT, S3_LEVEL_BUCKET, "publicAccessBlock", PUT_CONFIG),
	PARAM(S3_PUT, S3_LEVEL_BUCKET, "replication", PUT_CONFIG),
	PARAM(S3_PUT, S3_LEVEL_BUCKET, "requestPayment", PUT_CONFIG),
	PARAM(S3_PUT, S3_LEVEL_BUCKET, "tagging", PUT_CONFIG),
	PARAM(S3_PUT, S3_LEVEL_BUCKET, "versioning", PUT_CONFIG),
	PARAM(S3_PUT, S3_LEVEL_BUCKET, "website", PUT_CONFIG),
	PARAM(S3_DELETE, S3_LEVEL_BUCKET, "cors", DELETE_CONFIG),
	PARAM(S3_DELETE, S3_LEVEL_BUCKET, "encryption", DELETE_CONFIG),
	PARAM(S3_DELETE, S3_LEVEL_BUCKET, "lifecycle", DELETE_CONFIG),
	PARAM(S3_DELETE, S3_LEVEL_BUCKET, "ownershipControls", DELETE_CONFIG),
	PARAM(S3_DELETE, S3_LEVEL_BUCKET, "policy", DELETE_CONFIG),
	PARAM(S3_DELETE, S3_LEVEL_BUCKET, "publicAccessBlock", DELETE_CONFIG),
	PARAM(S3_DELETE, S3_LEVEL_BUCKET, "replication", DELETE_CONFIG),
	PARAM(S3_DELETE, S3_LEVEL_BUCKET, "tagging", DELETE_CONFIG),
	PARAM(S3_DELETE, S3_LEVEL_BUCKET, "website", DELETE_CONFIG),
	PARAM(S3_POST, S3_LEVEL_BUCKET, "delete", DELETE_OBJECTS),
	PLAIN(S3_HEAD, S3_LEVEL_BUCKET, HEAD_BUCKET),

	PARAM(S3_GET, S3_LEVEL_OBJECT, "acl", GET_ACL),
	PARAM(S3_PUT, S3_LEVEL_OBJECT, "acl", PUT_ACL),
	PARAM(S3_GET, S3_LEVEL_OBJECT, "attributes", GET_OBJECT_ATTRIBUTES),
	PARAM(S3_GET, S3_LEVEL_OBJECT, "legal-hold", GET_OBJECT_LEGAL_HOLD),
	PARAM(S3_PUT, S3_LEVEL_OBJECT, "legal-hold", PUT_OBJECT_LEGAL_HOLD),
	PARAM(S3_GET, S3_LEVEL_OBJECT, "retention", GET_OBJECT_RETENTION),
	PARAM(S3_PUT, S3_LEVEL_OBJECT, "retention", PUT_OBJECT_RETENTION),
	PARAM(S3_GET, S3_LEVEL_OBJECT, "tagging", GET_OBJECT_TAGGING),
	PARAM(S3_PUT, S3_LEVEL_OBJECT, "tagging", PUT_OBJECT_TAGGING),
	PARAM(S3_DELETE, S3_LEVEL_OBJECT, "tagging", DELETE_OBJECT_TAGGING),
	PLAIN(S3_HEAD, S3_LEVEL_OBJECT, HEAD_OBJECT),

	PARAM(S3_POST, S3_LEVEL_OBJECT, "restore", RESTORE_OBJECT),
	PARAM(S3_GET, S3_LEVEL_OBJECT, "torrent", GET_OBJECT_TORRENT),
	PARAM(S3_POST, S3_LEVEL_OBJECT, "uploads", CREATE_MULTIPART_UPLOAD),
	PARAM(S3_POST, S3_LEVEL_OBJECT, "uploadId", COMPLETE_MULTIPART_UPLOAD),
	{S3_PUT, S3_LEVEL_OBJECT, SLICE("uploadId"), SLICE("x-amz-copy-source"),
		S3_OPERATION_UPLOAD_PART_COPY},
	PARAM(S3_PUT, S3_LEVEL_OBJECT, "uploadId", UPLOAD_PART),
	PARAM(S3_PUT, S3_LEVEL_OBJECT, "renameObject", RENAME_OBJECT),
	PARAM(S3_DELETE, S3_LEVEL_OBJECT, "uploadId", ABORT_MULTIPART_UPLOAD),
	PARAM(S3_GET, S3_LEVEL_OBJECT, "uploadId", LIST_PARTS),
};

/* Where no row above fits, and the query names none of the parts of S3 that are not served. */
static const struct route plain_routes[] = {
	PLAIN(S3_GET, S3_LEVEL_BUCKET, LIST_OBJECTS),
	PLAIN(S3_PUT, S3_LEVEL_BUCKET, CREATE_BUCKET),
	PLAIN(S3_DELETE, S3_LEVEL_BUCKET, DELETE_BUCKET),
	PLAIN(S3_POST, S3_LEVEL_BUCKET, POST_OBJECT),
	PLAIN(S3_POST, S3_LEVEL_SERVICE, SERVICE), /* IAM, STS, SNS */
	PLAIN(S3_GET, S3_LEVEL_OBJECT, GET_OBJECT),
	{S3_PUT, S3_LEVEL_OBJECT, SLICE_NONE, SLICE("x-amz-copy-source"), S3_OPERATION_COPY_OBJECT},
	PLAIN(S3_PUT, S3_LEVEL_OBJECT, PUT_OBJECT),
	PLAIN(S3_DELETE, S3_LEVEL_OBJECT, DELETE_OBJECT),
};

static bool route_fits(const struct route *route, const struct s3_call *call, enum s3_level level)
{
	return route->method == call->request->method && route->level == level &&
	       (!route->param.len || s3_call_param(call, route->param, NULL)) &&
	       (!route->header.len || s3_call_has_header(call, route->header) ||
		       s3_presigned_has(call, route->header));
}

static const struct s3_operation *find(
	const struct route *table, size_t count, const struct s3_call *call, enum s3_level level)
{
	for (size_t i = 0; i < count; i++)
		if (route_fits(&table[i], call, level))
			return &operations[table[i].id];
	return NULL;
}

struct slice s3_subresource(const struct s3_params *params)
{
	static const struct slice names[] = {SLICE("accelerate"), SLICE("acl"), SLICE("analytics"),
		SLICE("attributes"), SLICE("cors"), SLICE("encryption"),
		SLICE("intelligent-tiering"), SLICE("inventory"), SLICE("legal-hold"),
		SLICE("lifecycle"), SLICE("location"), SLICE("logging"),
		SLICE("metadataConfiguration"), SLICE("metadataTable"), SLICE("metrics"),
		SLICE("notification"), SLICE("object-lock"), SLICE("ownershipControls"),
		SLICE("partNumber"), SLICE("policy"), SLICE("policyStatus"),
		SLICE("publicAccessBlock"), SLICE("rdma-connect"), SLICE("renameObject"),
		SLICE("replication"), SLICE("requestPayment"), SLICE("restore"), SLICE("retention"),
		SLICE("select"), SLICE("session"), SLICE("tagging"), SLICE("torrent"),
		SLICE("uploadId"), SLICE("uploads"), SLICE("versioning"), SLICE("versions"),
		SLICE("website")};

	if (!params->count)
		return SLICE_NONE;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (s3_query_find(params, names[i]))
			return names[i];
	return SLICE_NONE;
}

/* GET and HEAD of an object take partNumber themselves. */
static bool is_part_read(const struct s3_call *call, enum s3_level level, struct slice declined)
{
	return level == S3_LEVEL_OBJECT && call->request->method == S3_GET &&
	       slice_eq(declined, SLICE("partNumber")) &&
	       !s3_call_param(call, SLICE("uploadId"), NULL);
}

/* Who has no signature to say it by (a session over RDMA) names the operation, as SDKs do. */
static bool is_directory_list(const struct s3_call *call, enum s3_level level)
{
	struct slice id;

	return level == S3_LEVEL_SERVICE && call->request->method == S3_GET &&
	       s3_call_param(call, SLICE("x-id"), &id) &&
	       slice_eq(id, SLICE("ListDirectoryBuckets"));
}

static const struct s3_operation *find_operation(const struct s3_call *call, enum s3_level level)
{
	const struct s3_operation *found;
	struct slice declined;

	if (is_directory_list(call, level))
		return &operations[S3_OPERATION_LIST_DIRECTORY_BUCKETS];

	if (call->request->method == S3_OPTIONS)
		return &operations[S3_OPERATION_OPTIONS];
	found = find(routes, sizeof(routes) / sizeof(routes[0]), call, level);
	if (found)
		return found;
	declined = s3_subresource(&call->params);
	if (declined.len && level != S3_LEVEL_SERVICE && !is_part_read(call, level, declined))
		return &operations[S3_OPERATION_DECLINED];
	found = find(plain_routes, sizeof(plain_routes) / sizeof(plain_routes[0]), call, level);
	return found ? found : &operations[S3_OPERATION_UNKNOWN];
}

struct slice s3_host_bucket(const struct s3_call *call, struct slice domain)
{
	struct slice host, rest;

	if (!domain.len)
		return SLICE_NONE;
	rest = s3_call_header(call, SLICE("host"));
	host = slice_split(&rest, ':');
	if (host.len < domain.len + 2 ||
		!slice_eq_nocase(slice_from(host, host.len - domain.len), domain) ||
		host.data[host.len - domain.len - 1] != '.')
		return SLICE_NONE;
	return slice_to(host, host.len - domain.len - 1);
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
	call->operation = &operations[ids[call->request->method]];
	return true;
}

const struct s3_error *s3_route(struct s3_call *call)
{
	const struct s3_error *error = NULL;
	enum s3_level level;

	if (call->request->op != S3_OP_ROUTE) {
		call->operation = s3_operation_native(call->request->op);
		call->bucket = call->request->bucket;
		call->key = call->request->key;
		/* A copy is a PUT with a header. */
		if (call->operation->id == S3_OPERATION_PUT_OBJECT &&
			s3_call_has_header(call, SLICE("x-amz-copy-source")))
			call->operation = &operations[S3_OPERATION_COPY_OBJECT];
		if (call->request->query.len)
			error = parse_query(call);
		level = call->request->op == S3_OP_LIST_OBJECTS_V2 ? S3_LEVEL_BUCKET
								   : S3_LEVEL_OBJECT;
		return error ? error : check_names(call, level);
	}
	if (find_account_operation(call))
		return parse_query(call);
	if (s3_split_path(call, &level))
		return s3_error_at(S3_E_INVALID_URI);
	if (call->website) {
		/* Pages have no parameters of ours. */
		call->operation = &operations[S3_OPERATION_WEBSITE];
		return check_names(call, level);
	}
	error = parse_query(call);
	if (error)
		return error;
	call->operation = find_operation(call, level);
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
	return &operations[ids[op]];
}

const struct s3_operation *s3_operation_at(enum s3_operation_id id)
{
	CHECK(id < S3_OPERATION_COUNT);
	return &operations[id];
}
