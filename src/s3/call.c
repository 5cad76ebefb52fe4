/* s3/call.c: one request being answered: its memory, its headers and parameters, how it fails. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "s3/s3_priv.h"

#define ARENA_BLOCK_BYTES 8192u
#define ARENA_ALIGN	  16u

void s3_arena_init(struct s3_arena *arena)
{
	arena->at = arena->first;
	arena->end = arena->first + sizeof(arena->first);
	arena->blocks = NULL;
}

void s3_arena_free(struct s3_arena *arena)
{
	while (arena->blocks) {
		struct s3_arena_block *block = arena->blocks;

		arena->blocks = block->next;
		free(block);
	}
	s3_arena_init(arena);
}

/* A block for what did not fit; a large request gets a block of its own size. */
static bool arena_grow(struct s3_arena *arena, size_t bytes)
{
	size_t header = (sizeof(struct s3_arena_block) + ARENA_ALIGN - 1) & ~(ARENA_ALIGN - 1);
	size_t body = bytes < ARENA_BLOCK_BYTES ? ARENA_BLOCK_BYTES : bytes;
	struct s3_arena_block *block = malloc(header + body);

	if (!block)
		return false;
	block->next = arena->blocks;
	arena->blocks = block;
	arena->at = (char *)block + header;
	arena->end = arena->at + body;
	return true;
}

void *s3_arena_get(struct s3_arena *arena, size_t bytes)
{
	size_t skip = -(uintptr_t)arena->at & (ARENA_ALIGN - 1);
	char *at;

	if ((size_t)(arena->end - arena->at) < skip ||
		(size_t)(arena->end - arena->at) - skip < bytes) {
		if (!arena_grow(arena, bytes))
			return NULL;
		skip = 0;
	}
	at = arena->at + skip;
	arena->at = at + bytes;
	return at;
}

struct slice s3_arena_copy(struct s3_arena *arena, struct slice s)
{
	char *copy = s3_arena_get(arena, s.len + 1);

	if (!copy)
		return SLICE_NONE;
	if (s.len)
		memcpy(copy, s.data, s.len);
	copy[s.len] = '\0';
	return slice_of(copy, s.len);
}

static const struct s3_header *find_header(const struct s3_call *call, struct slice name)
{
	const struct s3_request *request = call->request;

	for (uint32_t i = 0; i < request->header_count; i++)
		if (slice_eq_nocase(request->headers[i].name, name))
			return &request->headers[i];
	return NULL;
}

struct slice s3_call_header(const struct s3_call *call, struct slice name)
{
	const struct s3_header *header = find_header(call, name);

	return header ? header->value : SLICE_NONE;
}

bool s3_call_has_header(const struct s3_call *call, struct slice name)
{
	return find_header(call, name) != NULL;
}

bool s3_call_param(const struct s3_call *call, struct slice name, struct slice *ret_value)
{
	const struct s3_param *param = s3_query_find(&call->params, name);

	if (param && ret_value)
		*ret_value = param->value;
	return param != NULL;
}

const struct s3_error *s3_fail(struct s3_call *call, enum s3_error_id id, const char *fmt, ...)
{
	char text[512];
	va_list args;
	int len;

	va_start(args, fmt);
	len = vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (len > 0)
		call->message = s3_arena_copy(&call->arena, slice_str(text)).data;
	return s3_error_at(id);
}

void s3_fail_detail(struct s3_call *call, const char *name, struct slice value)
{
	struct slice grown;
	struct buf xml;

	if (!utf8_is_valid(value))
		return;
	buf_init(&xml, SIGV4_CANONICAL_BYTES_MAX * 8);
	buf_put_slice(&xml, call->detail);
	xml_element(name, value, &xml);
	if (!xml.failed) {
		grown = s3_arena_copy(&call->arena, buf_slice(&xml));
		if (grown.data)
			call->detail = grown;
	}
	buf_free(&xml);
}

const struct s3_error *s3_fail_errno(struct s3_call *call, int error)
{
	const struct s3_error *found = s3_error_of(error);

	if (found->status == 500)
		log_error("s3", "%s %.*s/%.*s failed: %s (request %s)", call->operation->name,
			SLICE_FMT(call->bucket), SLICE_FMT(call->key), strerror(-error),
			call->request->request_id);
	return found;
}

const struct s3_error *s3_call_bucket(struct s3_call *call, struct store_bucket *ret_bucket)
{
	int ret = store_bucket_get(call->s3->store, call->bucket, ret_bucket);

	if (ret == -ENOENT)
		return s3_error_at(S3_E_NO_SUCH_BUCKET);
	return ret ? s3_fail_errno(call, ret) : NULL;
}
