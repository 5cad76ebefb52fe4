/* s3/op/copy_object.c: CopyObject: from cache or extents into a new object, inside the server. */
#include <errno.h>

#include "s3/auth/access.h"
#include "s3/auth/acl.h"
#include "s3/body/body.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/conditions.h"
#include "s3/core/named.h"
#include "s3/core/settings.h"
#include "s3/core/stored.h"
#include "s3/core/tags.h"
#include "s3/event/notification.h"
#include "s3/object/lifecycle.h"
#include "s3/object/lock.h"
#include "s3/object/object.h"
#include "s3/operation.h"
#include "s3/origin.h"
#include "s3/sse/sse.h"

static const struct s3_error *parse_directive(
	struct s3_call *call, const struct s3_copy *copy, bool *ret_replace)
{
	struct slice directive = s3_call_header(call, SLICE("x-amz-metadata-directive"));
	bool same = slice_eq(copy->bucket, call->bucket) && slice_eq(copy->key, call->key) &&
		    !copy->version_id.len;

	*ret_replace = slice_eq(directive, SLICE("REPLACE"));
	if (directive.len && !*ret_replace && !slice_eq(directive, SLICE("COPY")))
		return s3_fail_argument(
			call, "x-amz-metadata-directive", directive, "Unknown metadata directive.");
	if (same && !*ret_replace && !s3_call_has_header(call, SLICE("x-amz-storage-class")) &&
		!s3_call_has_header(call, SLICE("x-amz-website-redirect-location")) &&
		!s3_sse_asked(call) &&
		!s3_call_has_header(call, SLICE(S3_SSE_COPY_CLIENT "algorithm")))
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"This copy request is illegal because it is trying to copy an object to "
			"itself without changing the object's metadata, storage class, website "
			"redirect location or encryption attributes.");
	return NULL;
}

/* Whether the source's ETag is the MD5 of the body, and may be the copy's. An origin's ETag may
 * have an MD5's form and be another sum; ETags of directory buckets are never MD5s. */
static bool etag_stays(const struct s3_call *call, const struct store_meta *from)
{
	return strlen(from->etag) == 2 * MD5_BYTES && !call->sse &&
	       !(from->checksum_flags & S3_FLAG_ENCRYPTED) && !s3_origin_is_copy(from) &&
	       !s3_express_bucket(call);
}

/* An ETag that does not stay is computed again. The checksum algorithm is the request's, otherwise
 * the source's. */
static const struct s3_error *plan_sums(struct s3_call *call, const struct store_meta *from,
	struct s3_sums *sums, struct store_meta *meta)
{
	struct slice name = s3_call_header(call, SLICE("x-amz-checksum-algorithm"));
	bool stays = etag_stays(call, from);

	*sums = (struct s3_sums){
		.kind = (enum checksum_kind)from->checksum_type,
		.etag_md5 = !stays && s3_etag_md5(call),
	};
	if (stays)
		memcpy(meta->etag, from->etag, sizeof(meta->etag));
	if (name.len && checksum_kind_of_name(name, &sums->kind))
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"Checksum algorithm provided is unsupported. Please try again with any of "
			"the valid types: [" CHECKSUM_NAMES "]");
	return NULL;
}

/* Owner and access control list come from the caller, never from the source. */
static int keep_access(struct s3_call *call, struct slice made, struct slice *headers)
{
	static const struct slice names[] = {SLICE(S3_OWNER_HEADER), SLICE(S3_ACL_HEADER)};
	int ret = 0;

	for (size_t i = 0; !ret && i < ARRAY_LEN(names); i++)
		ret = s3_meta_set_hidden(
			*headers, names[i], s3_meta_hidden(made, names[i]), &call->arena, headers);
	return ret;
}

/* Chooses the headers of the request or of the source, and the tags of either. */
static const struct s3_error *choose_headers(
	struct s3_call *call, const struct s3_copy *copy, bool replace, struct store_meta *meta)
{
	struct slice directive = s3_call_header(call, SLICE("x-amz-tagging-directive"));
	bool replace_tags = slice_eq(directive, SLICE("REPLACE"));
	struct slice headers = slice_of(meta->headers, meta->headers_len), made = headers;
	struct slice tags = replace_tags ? s3_meta_hidden(headers, SLICE(S3_TAGS_HEADER))
					 : s3_tags_of_object(copy->from);
	struct slice redirect;

	if (directive.len && !replace_tags && !slice_eq(directive, SLICE("COPY")))
		return s3_fail_argument(
			call, "x-amz-tagging-directive", directive, "Unknown tagging directive.");
	if (tags.len && !replace_tags) {
		const struct s3_error *error = s3_call_may_take_tags(call, copy);

		if (error)
			return error;
	}
	if (!replace)
		/* Memory of the source, valid until the source is closed. */
		headers = slice_of(copy->from->headers, s3_meta_plain_len(copy->from));
	redirect = s3_meta_hidden(
		slice_of(meta->headers, meta->headers_len), SLICE(S3_REDIRECT_HEADER));
	if (s3_meta_set_hidden(headers, SLICE(S3_TAGS_HEADER), tags, &call->arena, &headers) ||
		s3_meta_set_hidden(
			headers, SLICE(S3_REDIRECT_HEADER), redirect, &call->arena, &headers) ||
		s3_lock_carry(slice_of(meta->headers, meta->headers_len), &call->arena, &headers) ||
		keep_access(call, made, &headers))
		return s3_error_at(S3_E_SLOW_DOWN);
	meta->headers = headers.data;
	meta->headers_len = (uint32_t)headers.len;
	return NULL;
}

static const struct s3_error *move_bytes(struct s3_call *call, struct s3_copy *copy,
	const struct s3_sums *sums, struct store_put *put, struct store_meta *meta)
{
	const struct s3_range all = {.bytes = copy->from->bytes};
	struct flow_source *source;
	int ret = s3_copy_source(call, copy, all, &source);

	meta->bytes = all.bytes;
	if (ret)
		return s3_fail_errno(call, ret);
	return s3_store_source(call, sums, source, put, meta);
}

static const struct s3_error *store_copy(
	struct s3_call *call, struct s3_copy *copy, struct store_meta *meta)
{
	const struct store_put_opts opts = {.bucket = call->bucket,
		.key = call->key,
		.bytes = copy->from->bytes,
		.bucket_id = s3_call_bucket_id(call)};
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
	ret = s3_event_commit(call, S3_EVENT_COPY, put, meta, &condition);
	return ret ? s3_write_failed(call, &condition, ret) : NULL;
}

static void answer_source(struct s3_call *call, const struct s3_copy *copy)
{
	struct slice id = mem_arena_copy(&call->arena, slice_str(copy->from->version_id));

	if (id.data && !slice_eq(id, SLICE("null")))
		s3_answer_header(call, SLICE("x-amz-copy-source-version-id"), id);
}

static const struct s3_error *answer(struct s3_call *call, const struct store_meta *meta)
{
	struct buf xml;

	s3_answer_version(call, meta);
	s3_lifecycle_answer(call, meta);
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
	struct s3_copy copy = {0};
	struct slice record;
	struct s3_sse sse;
	bool replace = false;

	error = s3_copy_parse(call, &copy);
	if (!error)
		error = parse_directive(call, &copy, &replace);
	if (!error)
		error = s3_meta_gather(call, &meta);
	if (!error)
		error = s3_copy_open(call, &copy);
	if (error)
		return error;
	error = s3_sse_begin_copy(call, copy.encrypted, &sse, &record);
	if (!error && copy.from->bytes > LIMIT_PUT_BYTES_MAX)
		error = s3_fail(call, S3_E_INVALID_REQUEST,
			"The specified copy source is larger than the maximum allowable size for a "
			"copy source: 5368709120");
	if (!error)
		error = choose_headers(call, &copy, replace, &meta);
	if (!error)
		error = s3_sse_keep(call, record, &meta);
	call->sse = record.data ? &sse : NULL;
	if (!error)
		error = store_copy(call, &copy, &meta);
	call->sse = NULL;
	if (!error)
		s3_sse_answer(call, &sse);
	if (!error)
		answer_source(call, &copy);
	s3_copy_close(&copy);
	if (error)
		return error;
	return answer(call, &meta);
}
