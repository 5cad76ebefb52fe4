/* s3/object/origin.c: requests to a bucket with an origin: GetObject waits until a missing object
 * came from there, and HeadObject tells what the origin tells. */
#include "s3/object/origin.h"

#include <errno.h>
#include <stdio.h>

#include "s3/auth/access.h"
#include "s3/core/answer.h"
#include "s3/core/conditions.h"
#include "s3/core/settings.h"
#include "s3/core/stored.h"
#include "s3/object/multipart.h"
#include "s3/object/origin_stream.h"

#define TURNS 3u

DEFINE_COUNTER(reads, "nebulaio_origin_reads_total", NULL,
	"GETs and HEADs of objects that came from their bucket's origin, and are here.");

void s3_origin_on(struct s3 *s3, const struct s3_origin_hook *hook)
{
	atomic_store(&s3->origin, hook);
}

void s3_origin_keep(const struct s3_call *call, struct store_meta *meta)
{
	const struct s3_fetched *fetched = call->request->fetched;

	if (fetched && fetched->etag[0])
		slice_copy_str(slice_str(fetched->etag), meta->etag, sizeof(meta->etag));
}

/* ---- Uses: when copies were read last, in a table of hashes. An entry that another key takes, or
 * that an earlier start had, is forgotten: then the copy counts from when it was fetched. ---- */

#define USES 65536u
/* The hash's upper half, and the second. */
static _Atomic uint64_t uses[USES];
static _Atomic uint64_t checks[USES]; /* the same, of when they were compared with the origin */

/* A copy whose hash another shares only stays longer. */
static uint64_t use_hash(struct slice bucket, struct slice key)
{
	return slice_hash_fixed(key, slice_hash_fixed(bucket, 0));
}

static void note(_Atomic uint64_t table[USES], struct slice bucket, struct slice key)
{
	uint64_t hash = use_hash(bucket, key);

	atomic_store_explicit(&table[hash % USES],
		(hash >> 32) << 32 | (uint32_t)(clock_real_ns() / NS_PER_S), memory_order_relaxed);
}

static uint64_t noted_s(_Atomic uint64_t table[USES], struct slice bucket, struct slice key)
{
	uint64_t hash = use_hash(bucket, key);
	uint64_t use = atomic_load_explicit(&table[hash % USES], memory_order_relaxed);

	return use >> 32 == hash >> 32 ? (uint32_t)use : 0;
}

uint64_t s3_origin_used_s(struct slice bucket, struct slice key)
{
	return noted_s(uses, bucket, key);
}

uint64_t s3_origin_checked_s(struct slice bucket, struct slice key)
{
	return noted_s(checks, bucket, key);
}

void s3_origin_check_note(struct slice bucket, struct slice key)
{
	note(checks, bucket, key);
}

void s3_origin_check_forget(struct slice bucket, struct slice key)
{
	uint64_t hash = use_hash(bucket, key);
	uint64_t check = atomic_load_explicit(&checks[hash % USES], memory_order_relaxed);

	if (check >> 32 == hash >> 32)
		atomic_compare_exchange_strong(&checks[hash % USES], &check, 0);
}

bool s3_origin_is_copy(const struct store_meta *meta)
{
	return s3_meta_hidden(slice_of(meta->headers, meta->headers_len), SLICE(S3_ORIGIN_HEADER))
		       .data != NULL;
}

void s3_origin_answer(struct s3_call *call, struct slice value)
{
	counter_add(&reads, 1);
	note(uses, call->bucket, call->key);
	s3_answer_header(call, SLICE(S3_ORIGIN_HEADER), value);
}

/* Empty: the bucket is among those that asked, or they are too many. */
static void via_make(struct s3_call *call, uint64_t bucket_id, char ret_via[S3_ORIGIN_VIA_BYTES])
{
	struct slice came = s3_call_header(call, SLICE(S3_ORIGIN_VIA)), rest = came;
	uint32_t count = 0;
	char own[40];
	int len;

	snprintf(own, sizeof(own), "%llx-%llx", (unsigned long long)call->s3->store_id,
		(unsigned long long)bucket_id);
	ret_via[0] = '\0';
	for (; rest.len; count++)
		if (slice_eq(slice_trim(slice_split(&rest, ',')), slice_str(own)))
			return;
	/* Ids have as many digits as they need, so that more than this would fit. */
	if (count >= S3_ORIGIN_VIA_MAX)
		return;
	len = snprintf(ret_via, S3_ORIGIN_VIA_BYTES, "%.*s%s%s", SLICE_FMT(came),
		came.len ? "," : "", own);
	if (len >= (int)S3_ORIGIN_VIA_BYTES)
		ret_via[0] = '\0';
}

bool s3_origin_ask_of(struct s3_call *call, struct s3_origin_ask *ask)
{
	const struct s3_settings *settings;

	if (s3_call_settings(call, &settings) || !settings || !settings->parsed[S3_CONFIG_ORIGIN])
		return false;
	*ask = (struct s3_origin_ask){.bucket = call->bucket,
		.key = call->key,
		.bucket_id = settings->bucket.id,
		.origin = settings->parsed[S3_CONFIG_ORIGIN],
		.share = s3_call_share(call),
		.core = call->request->core,
		.request_id = call->request->request_id};
	memcpy(ask->owner, settings->bucket.owner, sizeof(ask->owner));
	via_make(call, ask->bucket_id, ask->via);
	ask->deadline_ns = clock_now_ns() + ask->origin->wait_s * NS_PER_S;
	return true;
}

const struct s3_error *s3_origin_hook_of(struct s3_call *call, const struct s3_origin_ask *ask,
	const struct s3_origin_hook **ret_hook)
{
	if (!ask->via[0])
		return s3_fail(call, S3_E_ORIGIN_FAILED,
			"The bucket's origin, the target %.*s, leads back to this bucket, or "
			"through more than %u buckets.",
			SLICE_FMT(ask->origin->target), S3_ORIGIN_VIA_MAX);
	*ret_hook = atomic_load(&call->s3->origin);
	if (*ret_hook)
		return NULL;
	return s3_fail(call, S3_E_ORIGIN_FAILED,
		"The bucket has an origin, and this server cannot ask other servers.");
}

const struct s3_error *s3_origin_error(struct s3_call *call, const struct s3_origin_told *told)
{
	s3_call_check(call);
	switch (told->end) {
	case S3_ORIGIN_GIVEN:
	case S3_ORIGIN_COMING:
		/* Those of the error. */
		call->header_count = call->header_base;
		return NULL;
	case S3_ORIGIN_ABSENT:
		return s3_error_at(S3_E_NO_SUCH_KEY);
	case S3_ORIGIN_BUSY:
	case S3_ORIGIN_LATE:
		return s3_fail(call, S3_E_SLOW_DOWN, "%s", told->why);
	case S3_ORIGIN_FAILED:
		break;
	}
	return s3_fail(call, S3_E_ORIGIN_FAILED, "%s", told->why);
}

/* The rights were checked before the wait for the origin, when there was no object yet. */
static const struct s3_error *may_still(struct s3_call *call)
{
	call->judged = NULL;
	return s3_call_may(call, "s3:GetObject", call->key);
}

/* *ret_here: nothing was answered or opened, because the object is whole, or was a moment ago. */
static const struct s3_error *get_once(struct s3_call *call, const struct s3_origin_ask *ask,
	struct s3_origin_told *told, struct s3_read *ret_read, bool *ret_here)
{
	const struct s3_origin_hook *hook;
	const struct s3_error *error = s3_origin_hook_of(call, ask, &hook);

	if (error)
		return error;
	hook->ops->fetch(hook->arg, ask, told);
	error = s3_origin_error(call, told);
	*ret_here = !error;
	if (error || told->end != S3_ORIGIN_COMING)
		return error;
	error = may_still(call);
	if (error) {
		hook->ops->leave(told->stream);
		return error;
	}
	return s3_origin_stream_begin(call, ask, told, ret_read, ret_here);
}

/* As the origin tells it. */
static const struct s3_error *ask_head(struct s3_call *call, const struct s3_origin_ask *ask,
	struct s3_origin_told *told, struct store_meta *ret_meta)
{
	const struct s3_origin_hook *hook;
	const struct s3_error *error = s3_origin_hook_of(call, ask, &hook);

	if (error)
		return error;
	hook->ops->head(hook->arg, ask, told);
	*ret_meta = (struct store_meta){.bytes = told->object.bytes,
		.mtime_ns = told->object.mtime_ns,
		.headers = told->object.headers,
		.headers_len = told->object.headers_len};
	memcpy(ret_meta->etag, told->object.etag, sizeof(ret_meta->etag));
	return s3_origin_error(call, told);
}

/* *ret_whole: nothing was answered or opened: the request is not for a range of the object, or the
 * object cannot be asked for in pieces. */
static const struct s3_error *get_range(struct s3_call *call, const struct s3_origin_ask *ask,
	struct s3_origin_told *told, struct s3_read *ret_read, bool *ret_whole)
{
	struct store_meta *meta = mem_arena_get(&call->arena, sizeof(*meta));
	const struct s3_error *error;
	struct s3_range range;

	*ret_whole = false;
	if (!meta)
		return s3_error_at(S3_E_SLOW_DOWN);
	error = ask_head(call, ask, told, meta);
	if (error)
		return error;
	*ret_whole = !meta->etag[0] ||
		     s3_range_parse(s3_call_header(call, SLICE("range")), meta->bytes,
			     &range.offset, &range.bytes) == S3_RANGE_WHOLE ||
		     s3_call_has_header(call, SLICE("if-range"));
	if (*ret_whole)
		return NULL;
	error = may_still(call);
	return error ? error : s3_origin_range_begin(call, ask, told, meta, ret_read);
}

static bool wants_range_alone(const struct s3_call *call, const struct s3_origin_ask *ask)
{
	return ask->origin->ranges == S3_ORIGIN_ALONE && ask->follows &&
	       s3_call_has_header(call, SLICE("range"));
}

__attribute__((noinline)) const struct s3_error *s3_origin_get(
	struct s3_call *call, const struct s3_error *error, struct s3_read *ret_read)
{
	struct s3_origin_told *told;
	struct s3_origin_ask *ask;
	struct slice ignored;
	bool here = true;

	if (error != s3_error_at(S3_E_NO_SUCH_KEY))
		return error;
	told = mem_arena_get(&call->arena, sizeof(*told));
	ask = mem_arena_get(&call->arena, sizeof(*ask));
	if (!told || !ask)
		return s3_error_at(S3_E_SLOW_DOWN);
	if (!s3_origin_ask_of(call, ask))
		return error;
	/* Which parts the object has is known when it is whole. */
	ask->follows = !s3_call_param(call, SLICE("partNumber"), &ignored);
	error = NULL;
	if (wants_range_alone(call, ask))
		error = get_range(call, ask, told, ret_read, &here);
	if (error || !here)
		return error;
	/* It may be evicted again at once, when the bucket's bound is small. */
	for (uint32_t i = 0; i < TURNS; i++) {
		error = get_once(call, ask, told, ret_read, &here);
		if (error || !here)
			return error;
		error = may_still(call);
		if (!error)
			error = s3_read_begin(call, ret_read);
		if (error != s3_error_at(S3_E_NO_SUCH_KEY))
			return error;
	}
	return s3_error_at(S3_E_SLOW_DOWN);
}

/* ---- HEAD. ---- */

static enum s3_condition_result conditions_of(struct s3_call *call, const struct store_meta *meta)
{
	const struct s3_conditions conditions = {
		.if_match = s3_call_header(call, SLICE("if-match")),
		.if_none_match = s3_call_header(call, SLICE("if-none-match")),
		.if_modified_since = s3_call_header(call, SLICE("if-modified-since")),
		.if_unmodified_since = s3_call_header(call, SLICE("if-unmodified-since"))};

	return s3_conditions_check(&conditions, meta->etag, meta->mtime_ns);
}

const struct s3_error *s3_origin_head(struct s3_call *call, const struct s3_error *error)
{
	struct s3_origin_told *told;
	struct store_meta meta;
	enum s3_condition_result result;
	struct s3_origin_ask ask;

	if (error != s3_error_at(S3_E_NO_SUCH_KEY) || !s3_origin_ask_of(call, &ask))
		return error;
	told = mem_arena_get(&call->arena, sizeof(*told));
	if (!told)
		return s3_error_at(S3_E_SLOW_DOWN);
	error = ask_head(call, &ask, told, &meta);
	if (!error)
		error = may_still(call);
	if (error)
		return error;
	result = conditions_of(call, &meta);
	if (result == S3_CONDITION_FAILED)
		return s3_error_at(S3_E_PRECONDITION_FAILED);
	if (meta.etag[0])
		s3_answer_etag(call, meta.etag);
	if (meta.mtime_ns)
		s3_answer_time(call, &meta);
	if (result == S3_CONDITION_NOT_MODIFIED)
		return s3_answer_empty(call, 304);
	error = s3_meta_answer(call, &meta);
	if (error)
		return error;
	s3_answer_header(call, SLICE("Accept-Ranges"), SLICE("bytes"));
	if (call->reply->ops->head(call->reply, 200, call->headers, call->header_count, meta.bytes))
		call->reply->broken = true;
	return NULL;
}
