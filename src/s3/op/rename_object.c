/* s3/op/rename_object.c: RenameObject: gives an object of a directory bucket another key, in one
 * commit that moves none of its bytes. The same commit replaces the object that had that key.
 *
 * Source: S3 API reference, RenameObject. */
#include <errno.h>

#include "s3/auth/access.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/conditions.h"
#include "s3/core/named.h"
#include "s3/core/settings.h"
#include "s3/core/stored.h"
#include "s3/operation.h"

#define RENAMED_HEADER	 S3_HIDDEN_PREFIX "renamed" /* "TOKEN SHA256-OF-SOURCE": its request */
#define TOKEN_LEN_MAX	 64u
#define RENAME_TRIES_MAX 8u

/* The target, decided at the commit. */
struct target {
	struct s3_write_condition tags;
	struct s3_conditions dates;
	struct slice mark;
	bool done; /* the check refused because the target has the mark */
};

/* Whether the object came to its key by the request with that mark. */
static bool has_mark(const struct store_meta *meta, struct slice mark)
{
	return mark.len && slice_eq(s3_meta_hidden(slice_of(meta->headers, meta->headers_len),
					    SLICE(RENAMED_HEADER)),
				   mark);
}

static int check_target(const struct store_meta *current, void *arg)
{
	struct target *target = arg;
	int ret;

	target->done = current && has_mark(current, target->mark);
	if (target->done)
		return -ECANCELED;
	ret = s3_write_condition_check(current, &target->tags);
	if (ret || !current ||
		s3_conditions_check(&target->dates, current->etag, current->mtime_ns) ==
			S3_CONDITION_HOLDS)
		return ret;
	target->tags.failed = S3_E_PRECONDITION_FAILED;
	return -ECANCELED;
}

/* "key", or "/bucket/key"; percent-encoded. */
static const struct s3_error *parse_source(struct s3_call *call, struct slice *ret_key)
{
	struct slice text = s3_call_header(call, SLICE("x-amz-rename-source"));
	char *decoded = mem_arena_get(&call->arena, text.len + 1);
	struct slice key;
	size_t len;

	if (!decoded)
		return s3_error_at(S3_E_SLOW_DOWN);
	if (uri_decode(text, 0, decoded, text.len, &len))
		return s3_fail(call, S3_E_INVALID_ARGUMENT, "Invalid rename source encoding");
	key = slice_of(decoded, len);
	if (slice_starts(key, SLICE("/"))) {
		struct slice rest = slice_from(key, 1);
		struct slice bucket = slice_split(&rest, '/');

		key = slice_eq(bucket, call->bucket) ? rest : slice_from(key, 1);
	}
	if (!key.len || key.len > LIMIT_KEY_LEN_MAX || !s3_key_valid(key))
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"x-amz-rename-source must name a key of the same bucket.");
	if (slice_eq(key, call->key))
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"This rename request is illegal because its source is its target.");
	*ret_key = key;
	return NULL;
}

/* The mark of this request on the object; empty without a token. */
static const struct s3_error *make_mark(
	struct s3_call *call, struct slice source, struct slice *ret_mark)
{
	struct slice token = s3_call_header(call, SLICE("x-amz-client-token"));
	char text[TOKEN_LEN_MAX + 1 + 2 * SHA256_BYTES];
	uint8_t digest[SHA256_BYTES];

	*ret_mark = SLICE_NONE;
	if (!token.len)
		return NULL;
	if (token.len > TOKEN_LEN_MAX || memchr(token.data, ' ', token.len) ||
		memchr(token.data, '\0', token.len))
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"x-amz-client-token must have 1 to %u characters and no space.",
			TOKEN_LEN_MAX);
	sha256_of(source.data, source.len, digest);
	memcpy(text, token.data, token.len);
	text[token.len] = ' ';
	hex_encode(digest, sizeof(digest), text + token.len + 1);
	*ret_mark =
		mem_arena_copy(&call->arena, slice_of(text, token.len + 1 + 2 * sizeof(digest)));
	return ret_mark->data ? NULL : s3_error_at(S3_E_SLOW_DOWN);
}

/* Whether the same request was done before: the client did not receive its answer, and meanwhile
 * the source's key may have another object, which a second rename would move. */
static const struct s3_error *find_done(struct s3_call *call, struct slice mark, bool *ret_done)
{
	const struct store_name name = {
		.bucket = call->bucket, .key = call->key, .bucket_id = s3_call_bucket_id(call)};
	struct store_get *get;
	bool exists;
	int ret =
		mark.len ? store_get_open_version(call->s3->store, &name, &get, &exists) : -ENOENT;

	*ret_done = !ret && has_mark(store_get_meta(get), mark);
	if (!ret)
		store_get_close(get);
	return ret && ret != -ENOENT ? s3_fail_errno(call, ret) : NULL;
}

static const struct s3_error *check_source(struct s3_call *call, const struct store_meta *meta)
{
	const struct s3_conditions conditions = {
		.if_match = s3_call_header(call, SLICE("x-amz-rename-source-if-match")),
		.if_none_match = s3_call_header(call, SLICE("x-amz-rename-source-if-none-match")),
		.if_modified_since =
			s3_call_header(call, SLICE("x-amz-rename-source-if-modified-since")),
		.if_unmodified_since =
			s3_call_header(call, SLICE("x-amz-rename-source-if-unmodified-since")),
	};

	if (s3_conditions_check(&conditions, meta->etag, meta->mtime_ns) != S3_CONDITION_HOLDS)
		return s3_error_at(S3_E_PRECONDITION_FAILED);
	return NULL;
}

/* *ret_ret -ESTALE: the source has changed since. */
static const struct s3_error *rename_once(
	struct s3_call *call, struct slice source, struct slice mark, int *ret_ret)
{
	const struct store_name from = {
		.bucket = call->bucket, .key = source, .bucket_id = s3_call_bucket_id(call)};
	struct target target = {
		.dates = {.if_modified_since = s3_call_header(call, SLICE("if-modified-since")),
			.if_unmodified_since = s3_call_header(call, SLICE("if-unmodified-since"))},
		.mark = mark};
	const struct store_condition condition = {.check = check_target, .arg = &target};
	const struct s3_error *error = s3_write_condition_parse(call, &target.tags);
	const struct store_meta *meta;
	struct store_get *get;
	struct slice headers;

	if (!error)
		error = s3_open_object(call, call->bucket, source, &get);
	if (error)
		return error;
	meta = store_get_meta(get);
	headers = slice_of(meta->headers, meta->headers_len);
	error = check_source(call, meta);
	if (!error &&
		s3_meta_set_hidden(headers, SLICE(RENAMED_HEADER), mark, &call->arena, &headers))
		error = s3_error_at(S3_E_SLOW_DOWN);
	if (!error)
		*ret_ret = store_rename(call->s3->store, &from, get, call->key, headers, condition);
	store_get_close(get);
	if (!error && *ret_ret == -ECANCELED && target.done)
		*ret_ret = 0;
	if (error || !*ret_ret || *ret_ret == -ESTALE)
		return error;
	return s3_write_failed(call, &target.tags, *ret_ret);
}

static const struct s3_error *rename_unless_done(
	struct s3_call *call, struct slice source, struct slice mark)
{
	const struct s3_error *error, *unknown;
	int ret = -ESTALE;
	bool done;

	error = find_done(call, mark, &done);
	if (error || done)
		return error;
	for (uint32_t i = 0; !error && ret == -ESTALE && i < RENAME_TRIES_MAX; i++)
		error = rename_once(call, source, mark, &ret);
	if (!error)
		return ret ? s3_error_at(S3_E_CONDITIONAL_REQUEST_CONFLICT) : NULL;
	/* The same request may have been done since, and is why the source is missing or another
	 * object. */
	unknown = find_done(call, mark, &done);
	if (unknown)
		return unknown;
	return done ? NULL : error;
}

const struct s3_error *s3_op_rename_object(struct s3_call *call)
{
	struct slice source, mark;
	const struct s3_error *error;

	if (!s3_express_bucket(call))
		return s3_fail(call, S3_E_NOT_IMPLEMENTED,
			"Only objects of directory buckets can be renamed.");
	error = parse_source(call, &source);
	if (!error)
		error = s3_call_may_read(call, call->bucket, source, SLICE_NONE);
	if (!error)
		error = s3_call_may(call, "s3:DeleteObject", source);
	if (!error)
		error = make_mark(call, source, &mark);
	if (!error)
		error = rename_unless_done(call, source, mark);
	return error ? error : s3_answer_empty(call, 200);
}
