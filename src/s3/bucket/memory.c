/* s3/bucket/memory.c: memory buckets as S3 shows them: the header that asks for one, requests that
 * they refuse because their objects end with the server, and how answers tell it. */
#include <errno.h>
#include <stdio.h>

#include "s3/auth/access.h"
#include "s3/bucket/bucket.h"
#include "s3/bucket/memory.h"
#include "s3/core/answer.h"
#include "s3/core/settings.h"

/* "bytes=64MiB, objects=1000, ttl=60, full=evict": bytes must be there, each once. */
static int memory_parse(struct slice text, struct store_memory *ret_memory)
{
	struct store_memory memory = {.bytes = 0};
	uint32_t seen = 0;

	while (text.len) {
		static const struct slice NAMES[] = {
			SLICE("bytes"), SLICE("objects"), SLICE("ttl"), SLICE("full")};
		struct slice value = slice_split(&text, ',');
		struct slice name = slice_trim(slice_split(&value, '='));
		uint64_t number = 0;
		uint32_t at = 0;
		int ret = 0;

		value = slice_trim(value);
		while (at < ARRAY_LEN(NAMES) && !slice_eq(name, NAMES[at]))
			at++;
		if (at == ARRAY_LEN(NAMES) || seen & 1u << at)
			return -EINVAL;
		seen |= 1u << at;
		if (at == 0)
			ret = slice_to_bytes(value, &memory.bytes);
		else if (at == 1)
			ret = slice_to_u64(value, &memory.objects);
		else if (at == 2)
			ret = slice_to_u64(value, &number);
		else if (slice_eq(value, SLICE("refuse")))
			memory.refuses = true;
		else if (!slice_eq(value, SLICE("evict")))
			ret = -EINVAL;
		if (ret || number > STORE_MEMORY_TTL_S_MAX)
			return -EINVAL;
		memory.ttl_s = at == 2 ? (uint32_t)number : memory.ttl_s;
	}
	*ret_memory = memory;
	return memory.bytes < STORE_MEMORY_BYTES_MIN ? -EINVAL : 0;
}

const struct s3_error *s3_memory_asked(struct s3_call *call, struct store_bucket *bucket)
{
	struct slice text = s3_call_header(call, SLICE(S3_MEMORY_HEADER));
	const struct s3_error *error = NULL;

	if (!s3_call_has_header(call, SLICE(S3_MEMORY_HEADER)))
		return NULL;
	if (!call->identity->root)
		error = s3_call_may_service(call, "nebulaio:CreateMemoryBucket",
			access_resource(call, call->bucket, SLICE_NONE));
	if (error)
		return error;
	if (memory_parse(text, &bucket->memory))
		return s3_fail_argument(call, S3_MEMORY_HEADER, text,
			"A memory bucket needs bytes=SIZE (at least 1MiB), and may have "
			"objects=COUNT, ttl=SECONDS (at most 400 days) and full=evict or "
			"full=refuse, with commas between them.");
	if (s3_express_bucket(call))
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"A directory bucket cannot be a memory bucket.");
	bucket->flags |= STORE_BUCKET_MEMORY;
	return NULL;
}

const struct s3_error *s3_memory_not_made(struct s3_call *call, int error)
{
	struct store_usage usage;

	if (error == -ENOTSUP)
		return s3_fail(call, S3_E_NOT_IMPLEMENTED,
			"Memory buckets are switched off: the server's memory.buckets_bytes is 0.");
	store_usage(call->s3->store, &usage);
	return s3_fail(call, S3_E_INSUFFICIENT_STORAGE,
		"The memory buckets of this server may have %llu bytes together "
		"(memory.buckets_bytes), and too little of them is left: ask for less, delete a "
		"memory bucket, or raise it.",
		(unsigned long long)usage.memory_bytes_max);
}

const struct s3_error *s3_memory_refuses(
	struct s3_call *call, const struct store_bucket *bucket, const char *what)
{
	if (!(bucket->flags & STORE_BUCKET_MEMORY))
		return NULL;
	return s3_fail(call, S3_E_INVALID_BUCKET_STATE,
		"%.*s is a memory bucket: its objects end with the server's process, so it has no "
		"%s.",
		SLICE_FMT(call->bucket), what);
}

const struct s3_error *s3_memory_refuses_config(
	struct s3_call *call, const struct store_bucket *bucket, enum s3_config_id id)
{
	const char *what = id == S3_CONFIG_VERSIONING	  ? "versioning"
			   : id == S3_CONFIG_OBJECT_LOCK  ? "object lock"
			   : id == S3_CONFIG_LIFECYCLE	  ? "lifecycle rules; its ttl ends objects"
			   : id == S3_CONFIG_NOTIFICATION ? "notification"
			   : id == S3_CONFIG_REPLICATION  ? "replication"
							  : NULL;

	return what ? s3_memory_refuses(call, bucket, what) : NULL;
}

void s3_memory_answer(struct s3_call *call, const struct store_bucket *bucket)
{
	const struct store_memory *memory = &bucket->memory;
	char text[120];
	struct slice value;

	if (!(bucket->flags & STORE_BUCKET_MEMORY))
		return;
	snprintf(text, sizeof(text), "bytes=%llu, objects=%llu, ttl=%u, full=%s",
		(unsigned long long)memory->bytes, (unsigned long long)memory->objects,
		memory->ttl_s, memory->refuses ? "refuse" : "evict");
	value = mem_arena_copy(&call->arena, slice_str(text));
	if (value.data)
		s3_answer_header(call, SLICE(S3_MEMORY_HEADER), value);
}

bool s3_memory_same(const struct store_bucket *a, const struct store_bucket *b)
{
	return !((a->flags ^ b->flags) & STORE_BUCKET_MEMORY) &&
	       a->memory.bytes == b->memory.bytes && a->memory.objects == b->memory.objects &&
	       a->memory.ttl_s == b->memory.ttl_s && a->memory.refuses == b->memory.refuses;
}
