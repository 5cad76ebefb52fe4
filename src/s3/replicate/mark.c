/* s3/replicate/mark.c: what replication adds to a commit: the word PENDING with the object, and an
 * outbox row for the worker; of a replica the word alone, so that it is not replicated again.
 *
 * A row's text is a NUL, by which it differs from those of events, its kind, and fields that end
 * with a NUL each: version id (32 bytes, filled with spaces; empty: the one that the commit made),
 * target, bucket, bytes, time, request; then the key, which may have any bytes. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>

#include "s3/core/answer.h"
#include "s3/replicate/replicate.h"

#define HOLE_BYTES 32u /* a version id */
#define HOLE_AT	   2u  /* behind the NUL and the kind */

/* ---- Rows. ---- */

struct slice s3_replicate_row_text(const struct s3_replicate_row *row, struct mem_arena *arena)
{
	size_t bytes = 128 + row->target.len + row->bucket.len + row->request_id.len + row->key.len;
	char *text = mem_arena_get(arena, bytes);
	int len;

	if (!text)
		return SLICE_NONE;
	len = snprintf(text, bytes, "%c%c%-*s%c%.*s%c%.*s%c%llu%c%llu%c%.*s%c", '\0', row->kind,
		(int)HOLE_BYTES, "", '\0', SLICE_FMT(row->target), '\0', SLICE_FMT(row->bucket),
		'\0', (unsigned long long)row->bytes, '\0', (unsigned long long)row->time_ns, '\0',
		SLICE_FMT(row->request_id), '\0');
	slice_copy(row->key, text + len);
	return slice_of(text, (size_t)len + row->key.len);
}

void s3_replicate_row_fill(char *text, enum s3_replicate_kind kind, const char *version_id)
{
	size_t len = strlen(version_id);

	CHECK(len <= HOLE_BYTES);
	text[1] = (char)kind;
	memset(text + HOLE_AT, ' ', HOLE_BYTES);
	memcpy(text + HOLE_AT, version_id, len);
}

bool s3_replicate_row_parse(uint64_t number, struct slice version_id, struct slice text,
	struct s3_replicate_row *ret_row)
{
	struct slice rest = slice_from(text, HOLE_AT), hole;
	uint64_t bytes, time_ns;

	if (!s3_replicate_is_row(text) || text.len < HOLE_AT + 1 || !strchr("PDTRHN", text.data[1]))
		return false;
	*ret_row = (struct s3_replicate_row){
		.kind = (enum s3_replicate_kind)text.data[1], .number = number};
	hole = slice_trim(slice_split(&rest, '\0'));
	ret_row->version_id = hole.len ? hole : version_id;
	ret_row->target = slice_split(&rest, '\0');
	ret_row->bucket = slice_split(&rest, '\0');
	if (slice_to_u64(slice_split(&rest, '\0'), &bytes) ||
		slice_to_u64(slice_split(&rest, '\0'), &time_ns))
		return false;
	ret_row->bytes = bytes;
	ret_row->time_ns = time_ns;
	ret_row->request_id = slice_split(&rest, '\0');
	ret_row->key = rest;
	return ret_row->key.len && ret_row->key.len <= LIMIT_KEY_LEN_MAX;
}

/* ---- Before commits. ---- */

/* The rules of the call's bucket; NULL: none. */
static const struct s3_replication *rules_of(struct s3_call *call)
{
	const struct s3_settings *settings;

	if (s3_call_settings(call, &settings) || !settings)
		return NULL;
	return settings->parsed[S3_CONFIG_REPLICATION];
}

/* auth/access.c has checked the right to it, but for a form, which has no such field. */
static struct slice replica_of(const struct s3_call *call)
{
	return call->request->header_count && call->operation->id != S3_OPERATION_POST_OBJECT
		       ? s3_call_header(call, SLICE(S3_REPLICA_REQUEST))
		       : SLICE_NONE;
}

static int row_make(struct s3_call *call, struct s3_replica_mark *mark,
	const struct s3_replication *replication, struct slice key, struct slice *ret_text)
{
	const struct s3_replicate_row row = {.kind = mark->kind,
		.bytes = mark->bytes,
		.time_ns = clock_real_ns(),
		.target = replication->target,
		.bucket = call->bucket,
		.key = key,
		.request_id = slice_str(call->request->request_id)};

	mark->s3 = call->s3;
	mark->target = replication->target;
	mark->arena = &call->arena;
	*ret_text = s3_replicate_row_text(&row, &call->arena);
	return ret_text->data ? 0 : -ENOMEM;
}

int s3_replica_set(struct slice headers, struct slice word, struct slice id,
	struct mem_arena *arena, struct slice *ret_headers)
{
	size_t bytes = word.len + 1 + id.len;
	char *text = mem_arena_get(arena, bytes);

	if (!text)
		return -ENOMEM;
	slice_copy(word, text);
	text[word.len] = ' ';
	slice_copy(id, text + word.len + 1);
	return s3_meta_set_hidden(headers, SLICE(S3_REPLICA_HEADER),
		slice_of(text, id.len ? bytes : word.len), arena, ret_headers);
}

static int status_set(
	struct s3_call *call, struct store_meta *meta, struct slice word, struct slice id)
{
	struct slice headers = slice_of(meta->headers, meta->headers_len);
	int ret = s3_replica_set(headers, word, id, &call->arena, &headers);

	meta->headers = headers.data;
	meta->headers_len = (uint32_t)headers.len;
	return ret;
}

/* A version id of a server that replicates to this one. */
static struct slice clean_id(struct slice id)
{
	for (size_t i = 0; i < id.len; i++)
		if (!isalnum((unsigned char)id.data[i]) && !strchr("-_.", id.data[i]))
			return SLICE_NONE;
	return id.len <= HOLE_BYTES ? id : SLICE_NONE;
}

int s3_replica_begin_put(
	struct s3_call *call, struct store_meta *meta, struct s3_replica_mark *ret_mark)
{
	const struct s3_replication *replication = rules_of(call);
	struct slice of = replica_of(call);
	struct s3_tags tags = {.count = 0};
	int ret;

	*ret_mark = (struct s3_replica_mark){.kind = S3_REPLICATE_PUT, .bytes = meta->bytes};
	if (of.len)
		return status_set(call, meta, SLICE("REPLICA"), clean_id(of));
	if (!replication)
		return 0;
	ret = s3_tags_decode(s3_tags_of_object(meta), &call->arena, &tags);
	if (ret || !s3_replication_rule_of(replication, call->key, &tags))
		return ret == -ENOMEM ? ret : 0;
	ret = status_set(call, meta, SLICE("PENDING"), SLICE_NONE);
	return ret ? ret : row_make(call, ret_mark, replication, call->key, &ret_mark->row.text);
}

int s3_replica_begin_delete(
	struct s3_call *call, struct slice key, struct s3_replica_mark *ret_mark)
{
	const struct s3_replication *replication = rules_of(call);

	*ret_mark = (struct s3_replica_mark){.kind = S3_REPLICATE_MARKER};
	if (!replication || replica_of(call).len || !s3_replication_marker_rule(replication, key))
		return 0;
	return row_make(call, ret_mark, replication, key, &ret_mark->row.marker_text);
}

/* An access control list stays where it is. */
static enum s3_replicate_kind edit_kind(const struct s3_call *call)
{
	switch (call->operation->id) {
	case S3_OPERATION_PUT_OBJECT_TAGGING:
	case S3_OPERATION_DELETE_OBJECT_TAGGING:
		return S3_REPLICATE_TAGS;
	case S3_OPERATION_PUT_OBJECT_RETENTION:
		return S3_REPLICATE_RETENTION;
	case S3_OPERATION_PUT_OBJECT_LEGAL_HOLD:
		return S3_REPLICATE_HOLD;
	default:
		return S3_REPLICATE_NOTHING;
	}
}

int s3_replica_begin_edit(
	struct s3_call *call, store_edit_fn *edit, void *arg, struct s3_replica_mark *ret_mark)
{
	const struct s3_replication *replication = rules_of(call);
	int ret;

	*ret_mark =
		(struct s3_replica_mark){.kind = edit_kind(call), .edit = edit, .edit_arg = arg};
	if (!replication || replica_of(call).len || ret_mark->kind == S3_REPLICATE_NOTHING)
		return 0;
	ret = row_make(call, ret_mark, replication, call->key, &ret_mark->row.text);
	ret_mark->text = (char *)(uintptr_t)ret_mark->row.text.data;
	return ret;
}

/* The call's fiber waits meanwhile, so this function may use its arena. The row's length is fixed
 * before the commit, so a version that is not replicated gets a row that says so. */
int s3_replica_edit(const struct store_meta *current, struct slice *ret_headers, void *arg)
{
	struct s3_replica_mark *mark = arg;
	struct slice value, word;
	int ret = mark->edit(current, ret_headers, mark->edit_arg);

	if (ret || !mark->text)
		return ret;
	value = s3_meta_hidden(*ret_headers, SLICE(S3_REPLICA_HEADER));
	word = slice_split(&value, ' ');
	if (!slice_eq(word, SLICE("PENDING")) && !slice_eq(word, SLICE("COMPLETED"))) {
		s3_replicate_row_fill(mark->text, S3_REPLICATE_NOTHING, current->version_id);
		return 0;
	}
	s3_replicate_row_fill(mark->text, mark->kind, current->version_id);
	return s3_replica_set(*ret_headers, SLICE("PENDING"), value, mark->arena, ret_headers);
}

void s3_replica_end(struct s3_replica_mark *mark, const struct store_outcome *outcome)
{
	bool left = mark->row.number && !outcome->ret &&
		    (outcome->delete_marker ? mark->row.marker_text.data : mark->row.text.data);

	if (!left || (mark->text && mark->text[1] == S3_REPLICATE_NOTHING))
		return;
	s3_replicate_add(mark->s3, mark->target, S3_REPLICATE_PENDING, 1);
	s3_replicate_add(mark->s3, mark->target, S3_REPLICATE_PENDING_BYTES, (int64_t)mark->bytes);
	s3_replicate_poke(mark->s3);
}

/* ---- Answers. ---- */

void s3_replica_answer(struct s3_call *call, struct slice value)
{
	struct slice word = slice_split(&value, ' ');

	s3_answer_header(call, SLICE("x-amz-replication-status"), word);
	if (slice_eq(word, SLICE("REPLICA")) && value.len)
		s3_answer_header(call, SLICE(S3_REPLICA_REQUEST), value);
}
