/* s3/op_copy_object.c: CopyObject: from cache or extents into a new object, inside the server. */
#include <errno.h>

#include "s3/s3_priv.h"

struct copy {
	struct slice bucket, key; /* of the source, decoded */
	bool replace;		  /* metadata comes with the request */
	struct store_get *get;
	const struct store_meta *from;
};

/* "bucket/key?versionId=…", percent-encoded, maybe with a leading slash. */
static const struct s3_error *parse_source(struct s3_call *call, struct copy *copy)
{
	struct slice rest = s3_call_header(call, SLICE("x-amz-copy-source"));
	ptrdiff_t query = slice_find(rest, SLICE("?versionId="));
	struct slice version_id = SLICE_NONE;
	char *decoded;
	size_t len;

	if (query >= 0) {
		version_id = slice_from(rest, (size_t)query + strlen("?versionId="));
		rest = slice_to(rest, (size_t)query);
	}
	decoded = s3_arena_get(&call->arena, rest.len + 1);
	if (!decoded)
		return s3_error_at(S3_E_SLOW_DOWN);
	if (uri_decode(rest, 0, decoded, rest.len, &len))
		return s3_fail(call, S3_E_INVALID_ARGUMENT, "Invalid copy source encoding");
	rest = slice_of(decoded, len);
	if (rest.len && rest.data[0] == '/')
		rest = slice_from(rest, 1);
	copy->bucket = slice_split(&rest, '/');
	copy->key = rest;
	if (!copy->bucket.len || !copy->key.len)
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"Copy Source must mention the source bucket and key: "
			"sourcebucket/sourcekey");
	if (!s3_bucket_name_valid(copy->bucket))
		return s3_error_at(S3_E_INVALID_BUCKET_NAME);
	if (!s3_key_valid(copy->key))
		return s3_fail(call, S3_E_INVALID_ARGUMENT, "The source key is not valid.");
	return s3_version_check(call, version_id);
}

static const struct s3_error *parse_directive(struct s3_call *call, struct copy *copy)
{
	struct slice directive = s3_call_header(call, SLICE("x-amz-metadata-directive"));
	bool same = slice_eq(copy->bucket, call->bucket) && slice_eq(copy->key, call->key);

	copy->replace = slice_eq(directive, SLICE("REPLACE"));
	if (directive.len && !copy->replace && !slice_eq(directive, SLICE("COPY")))
		return s3_fail(call, S3_E_INVALID_ARGUMENT, "Unknown metadata directive.");
	if (same && !copy->replace && !s3_call_has_header(call, SLICE("x-amz-storage-class")))
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"This copy request is illegal because it is trying to copy an object to "
			"itself without changing the object's metadata, storage class, website "
			"redirect location or encryption attributes.");
	return NULL;
}

static const struct s3_error *check_source(struct s3_call *call, const struct copy *copy)
{
	const struct s3_conditions conditions = {
		.if_match = s3_call_header(call, SLICE("x-amz-copy-source-if-match")),
		.if_none_match = s3_call_header(call, SLICE("x-amz-copy-source-if-none-match")),
		.if_modified_since =
			s3_call_header(call, SLICE("x-amz-copy-source-if-modified-since")),
		.if_unmodified_since =
			s3_call_header(call, SLICE("x-amz-copy-source-if-unmodified-since")),
	};

	/* Here "not modified" is a failure like any other. */
	if (s3_conditions_check(&conditions, copy->from->etag, copy->from->mtime_ns) !=
		S3_CONDITION_HOLDS)
		return s3_error_at(S3_E_PRECONDITION_FAILED);
	if (copy->from->bytes > LIMIT_PUT_BYTES_MAX)
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"The specified copy source is larger than the maximum allowable size for a "
			"copy source: 5368709120");
	return NULL;
}

/* A plain MD5 goes with the bytes; any other ETag is made anew. The checksum is what the request
 * asks for, else of the source's kind. */
static const struct s3_error *plan_sums(struct s3_call *call, const struct store_meta *from,
	struct s3_sums *sums, struct store_meta *meta)
{
	struct slice name = s3_call_header(call, SLICE("x-amz-checksum-algorithm"));
	bool is_md5 = strlen(from->etag) == 2 * MD5_BYTES;

	*sums = (struct s3_sums){
		.kind = (enum checksum_kind)from->checksum_type,
		.etag_md5 = !is_md5 && call->etag_md5,
	};
	if (is_md5)
		memcpy(meta->etag, from->etag, sizeof(meta->etag));
	if (name.len && checksum_kind_of_name(name, &sums->kind))
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"Checksum algorithm provided is unsupported. Please try again with any of "
			"the valid types: [CRC32, CRC32C, CRC64NVME, SHA1, SHA256]");
	return NULL;
}

static const struct s3_error *move_bytes(struct s3_call *call, const struct copy *copy,
	const struct s3_sums *sums, struct store_put *put, struct store_meta *meta)
{
	struct flow_core *core = call->request->core;
	struct flow_source *source;
	int ret;

	meta->bytes = copy->from->bytes;
	if (meta->bytes)
		ret = flow_object_source_open(core, copy->get, 0, meta->bytes, &source);
	else
		ret = flow_memory_source_open(core, SLICE_NONE, &source);
	if (ret)
		return s3_fail_errno(call, ret);
	return s3_store_source(call, sums, source, put, meta);
}

static const struct s3_error *store_copy(
	struct s3_call *call, const struct copy *copy, struct store_meta *meta)
{
	const struct store_put_opts opts = {
		.bucket = call->bucket, .key = call->key, .bytes = copy->from->bytes};
	struct s3_write_condition condition;
	const struct s3_error *error;
	struct store_put *put;
	struct s3_sums sums;
	int ret;

	error = s3_write_condition_parse(call, &condition);
	if (!error)
		error = plan_sums(call, copy->from, &sums, meta);
	if (error)
		return error;
	ret = store_put_open(call->s3->store, &opts, &put);
	if (ret)
		return ret == -ENOENT ? s3_error_at(S3_E_NO_SUCH_BUCKET) : s3_fail_errno(call, ret);
	error = move_bytes(call, copy, &sums, put, meta);
	if (error) {
		store_put_abort(put);
		return error;
	}
	ret = store_put_commit(put, meta,
		s3_write_condition_any(&condition) ? s3_write_condition_check : NULL, &condition);
	return ret ? s3_write_failed(call, &condition, ret) : NULL;
}

static const struct s3_error *answer(struct s3_call *call, const struct store_meta *meta)
{
	struct buf xml;

	s3_xml_begin(&xml, "CopyObjectResult");
	s3_xml_time(&xml, "LastModified", meta->mtime_ns);
	s3_xml_etag(&xml, meta->etag);
	s3_xml_checksum(&xml, meta);
	s3_xml_end(&xml, "CopyObjectResult");
	return s3_answer_xml(call, 200, &xml);
}

const struct s3_error *s3_op_copy_object(struct s3_call *call)
{
	struct store_meta meta = {0};
	const struct s3_error *error;
	struct copy copy = {0};

	error = parse_source(call, &copy);
	if (!error)
		error = parse_directive(call, &copy);
	if (!error)
		error = s3_meta_gather(call, &meta);
	if (!error)
		error = s3_open_object(call, copy.bucket, copy.key, &copy.get);
	if (error)
		return error;
	copy.from = store_get_meta(copy.get);
	error = check_source(call, &copy);
	if (!copy.replace) {
		/* The source's own memory, which stays until it is closed. */
		meta.headers = copy.from->headers;
		meta.headers_len = copy.from->headers_len;
	}
	if (!error)
		error = store_copy(call, &copy, &meta);
	store_get_close(copy.get);
	return error ? error : answer(call, &meta);
}
