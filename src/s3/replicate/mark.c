/* s3/replicate/mark.c: what replication adds to a commit: the word PENDING with the object, and an
 * outbox row for the worker; of a replica the word alone, so that it is not replicated again.
 *
 * A row's text is a NUL, by which it differs from those of events, its kind, and fields that end
 * with a NUL each: version id (32 bytes, filled with spaces; empty: the one that the commit made),
 * target, bucket, bytes, time, request, of an object whose rule has metrics (kind p) the rule's id;
 * then the key, which may have any bytes. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>

#include "s3/core/answer.h"
#include "s3/replicate/replicate.h"

#define HOLE_BYTES 32u /* a version id */
#define HOLE_AT	   2u  /* behind the NUL and the kind */
#define KIND_RULED 'p' /* an object, with the id of its rule */

/* ---- Rows. ---- */

struct slice s3_replicate_row_text(const struct s3_replicate_row *row, struct mem_arena *arena)
{
	const bool ruled = row->kind == S3_REPLICATE_PUT && row->rule.len;
	size_t bytes = 128 + row->target.len + row->bucket.len + row->request_id.len +
		       row->rule.len + row->key.len;
	char *text = mem_arena_get(arena, bytes);
	int len;

	if (!text)
		return SLICE_NONE;
	len = snprintf(text, bytes, "%c%c%-*s%c%.*s%c%.*s%c%llu%c%llu%c%.*s%c", '\0',
		ruled ? KIND_RULED : (char)row->kind, (int)HOLE_BYTES, "", '\0',
		SLICE_FMT(row->target), '\0', SLICE_FMT(row->bucket), '\0',
		(unsigned long long)row->bytes, '\0', (unsigned long long)row->time_ns, '\0',
		SLICE_FMT(row->request_id), '\0');
	if (ruled)
		len += snprintf(
			text + len, bytes - (size_t)len, "%.*s%c", SLICE_FMT(row->rule), '\0');
	slice_copy(row->key, text + len);
	return slice_of(text, (size_t)len + row->key.len);
}

void s3_replicate_row_fill(char *text, enum s3_replicate_kind kind, const char *version_id)
{
	size_t len = strlen(version_id);

	CHECK(len <= HOLE_BYTES);
	if (kind != S3_REPLICATE_PUT || text[1] != KIND_RULED)
		text[1] = (char)kind;
	memset(text + HOLE_AT, ' ', HOLE_BYTES);
	memcpy(text + HOLE_AT, version_id, len);
}

bool s3_replicate_row_parse(uint64_t number, struct slice version_id, struct slice text,
	struct s3_replicate_row *ret_row)
{
	struct slice rest = slice_from(text, HOLE_AT), hole;
	uint64_t bytes, time_ns;

	if (!s3_replicate_is_row(text) || text.len < HOLE_AT + 1 ||
		!strchr("PpDTRHAN", text.data[1]))
		return false;
	*ret_row = (struct s3_replicate_row){.kind = text.data[1] == KIND_RULED
							     ? S3_REPLICATE_PUT
							     : (enum s3_replicate_kind)text.data[1],
		.number = number};
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
	if (text.data[1] == KIND_RULED)
		ret_row->rule = slice_split(&rest, '\0');
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

/* The right to it has been checked (auth/access.c, op/delete_objects.c), but for a form, which has
 * no such field. */
static struct slice replica_of(const struct s3_call *call)
{
	return call->request->header_count && call->operation->id != S3_OPERATION_POST_OBJECT
		       ? s3_call_header(call, SLICE(S3_REPLICA_REQUEST))
		       : SLICE_NONE;
}

/* A row of each of the rules' targets, without a text. */
static int rows_make(struct s3_call *call, struct s3_replica_mark *mark,
	const struct s3_replication *replication)
{
	mark->s3 = call->s3;
	mark->bucket = call->bucket;
	mark->arena = &call->arena;
	mark->rows = mem_arena_get(&call->arena, replication->target_count * sizeof(*mark->rows));
	if (!mark->rows)
		return -ENOMEM;
	mark->count = replication->target_count;
	for (uint32_t i = 0; i < mark->count; i++) {
		mark->rows[i] = (struct s3_replica_row){.target = replication->targets[i].name};
		mark->rows[i].row.next = i + 1 < mark->count ? &mark->rows[i + 1].row : NULL;
	}
	return 0;
}

static int row_text(struct s3_call *call, const struct s3_replica_mark *mark,
	const struct s3_replica_row *of, struct slice key, struct slice *ret_text)
{
	const struct s3_replicate_row row = {.kind = mark->kind,
		.bytes = mark->bytes,
		.time_ns = clock_real_ns(),
		.target = of->target,
		.rule = of->rule,
		.bucket = call->bucket,
		.key = key,
		.request_id = slice_str(call->request->request_id)};

	*ret_text = s3_replicate_row_text(&row, &call->arena);
	return ret_text->data ? 0 : -ENOMEM;
}

/* A version id of a server that replicates to this one. */
static struct slice clean_id(struct slice id)
{
	for (size_t i = 0; i < id.len; i++)
		if (!isalnum((unsigned char)id.data[i]) && !strchr("-_.", id.data[i]))
			return SLICE_NONE;
	return id.len <= HOLE_BYTES ? id : SLICE_NONE;
}

static int replica_mark(struct s3_call *call, struct store_meta *meta, struct slice of)
{
	struct slice headers = slice_of(meta->headers, meta->headers_len), id = clean_id(of), value;
	char text[sizeof("REPLICA ") + HOLE_BYTES];
	int ret;

	value = slice_of(text, (size_t)snprintf(text, sizeof(text), "REPLICA%s%.*s",
				       id.len ? " " : "", SLICE_FMT(id)));
	ret = s3_meta_set_hidden(headers, SLICE(S3_REPLICA_HEADER), value, &call->arena, &headers);
	meta->headers = headers.data;
	meta->headers_len = (uint32_t)headers.len;
	return ret;
}

/* For one target: a row, and PENDING; nothing waits for a target that is gone. */
static int put_mark(struct s3_call *call, struct store_meta *meta,
	const struct s3_replica_mark *mark, struct s3_replica_row *row)
{
	const bool registered = s3_replicate_registered(call->s3, row->target);
	const struct s3_replica_of replica = {
		.state = registered ? S3_REPLICA_PENDING : S3_REPLICA_FAILED};
	struct slice headers = slice_of(meta->headers, meta->headers_len);
	int ret = s3_replica_set(headers, row->target, &replica, &call->arena, &headers);

	meta->headers = headers.data;
	meta->headers_len = (uint32_t)headers.len;
	if (!ret && registered)
		ret = row_text(call, mark, row, call->key, &row->row.text);
	return ret;
}

static int rows_put(struct s3_call *call, struct store_meta *meta,
	const struct s3_replication *replication, struct s3_replica_mark *ret_mark)
{
	struct s3_tags tags = {.count = 0};
	int ret;

	ret = s3_tags_decode(s3_tags_of_object(meta), &call->arena, &tags);
	if (ret)
		return ret == -ENOMEM ? ret : 0;
	ret = rows_make(call, ret_mark, replication);
	for (uint32_t i = 0; i < ret_mark->count && !ret; i++) {
		const struct s3_replication_rule *rule =
			s3_replication_rule_of(replication, i, call->key, &tags);

		if (rule && rule->metrics)
			ret_mark->rows[i].rule = rule->id;
		if (rule)
			ret = put_mark(call, meta, ret_mark, &ret_mark->rows[i]);
	}
	return ret;
}

int s3_replica_begin_put(
	struct s3_call *call, struct store_meta *meta, struct s3_replica_mark *ret_mark)
{
	const struct s3_replication *replication = rules_of(call);
	struct slice of = replica_of(call);

	*ret_mark = (struct s3_replica_mark){.kind = S3_REPLICATE_PUT, .bytes = meta->bytes};
	if (of.len)
		return replica_mark(call, meta, of);
	return replication ? rows_put(call, meta, replication, ret_mark) : 0;
}

int s3_replica_begin_delete(
	struct s3_call *call, struct slice key, struct s3_replica_mark *ret_mark)
{
	const struct s3_replication *replication = rules_of(call);
	int ret;

	*ret_mark = (struct s3_replica_mark){.kind = S3_REPLICATE_MARKER};
	if (!replication || replica_of(call).len)
		return 0;
	ret = rows_make(call, ret_mark, replication);
	for (uint32_t i = 0; i < ret_mark->count && !ret; i++) {
		struct s3_replica_row *row = &ret_mark->rows[i];

		if (s3_replication_marker_rule(replication, i, key) &&
			s3_replicate_registered(call->s3, row->target))
			ret = row_text(call, ret_mark, row, key, &row->row.marker_text);
	}
	return ret;
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
	ret = rows_make(call, ret_mark, replication);
	for (uint32_t i = 0; i < ret_mark->count && !ret; i++) {
		struct s3_replica_row *row = &ret_mark->rows[i];

		if (!s3_replicate_registered(call->s3, row->target))
			continue;
		ret = row_text(call, ret_mark, row, call->key, &row->row.text);
		row->text = (char *)(uintptr_t)row->row.text.data;
	}
	return ret;
}

/* The target has the object, or will have it. */
static bool follows(const struct s3_replica_of *replica)
{
	return replica->state == S3_REPLICA_PENDING || replica->state == S3_REPLICA_COMPLETED ||
	       replica->id.len;
}

/* An earlier change that failed goes with this one, whose success would hide it. */
static enum s3_replicate_kind kind_after(
	const struct s3_replica_mark *mark, const struct s3_replica_of *replica)
{
	if (!follows(replica))
		return S3_REPLICATE_NOTHING;
	return replica->state == S3_REPLICA_FAILED ? S3_REPLICATE_CHANGES : mark->kind;
}

/* The call's fiber waits meanwhile, so this function may use its arena. A row's length is fixed
 * before the commit, so a version that is not replicated gets a row that says so. */
int s3_replica_edit(const struct store_meta *current, struct slice *ret_headers, void *arg)
{
	struct s3_replica_mark *mark = arg;
	int ret = mark->edit(current, ret_headers, mark->edit_arg);

	for (uint32_t i = 0; i < mark->count && !ret; i++) {
		struct s3_replica_row *row = &mark->rows[i];
		struct s3_replica_of replica = s3_replica_of(*ret_headers, row->target);
		enum s3_replicate_kind kind = kind_after(mark, &replica);

		if (row->text)
			s3_replicate_row_fill(row->text, kind, current->version_id);
		replica.state = row->text ? S3_REPLICA_PENDING : S3_REPLICA_FAILED;
		if (kind != S3_REPLICATE_NOTHING)
			ret = s3_replica_set(
				*ret_headers, row->target, &replica, mark->arena, ret_headers);
	}
	return ret;
}

void s3_replica_end(struct s3_replica_mark *mark, const struct store_outcome *outcome)
{
	bool left = false;

	for (uint32_t i = 0; i < mark->count && !outcome->ret; i++) {
		const struct s3_replica_row *row = &mark->rows[i];

		if (!row->row.number ||
			!(outcome->delete_marker ? row->row.marker_text.data : row->row.text.data))
			continue;
		if (row->text && row->text[1] == S3_REPLICATE_NOTHING)
			continue;
		s3_replicate_pend(mark->s3,
			&(struct s3_replicate_row){.target = row->target,
				.bucket = mark->bucket,
				.rule = row->rule,
				.bytes = mark->bytes},
			1);
		left = true;
	}
	if (left)
		s3_replicate_poke(mark->s3);
}

/* The resync that the rules ask for may have passed the key before the commit. */
static __attribute__((noinline)) void catch_up(
	struct s3_call *call, struct slice key, const struct store_outcome *outcome)
{
	const struct store_name name = {
		.bucket = call->bucket, .key = key, .version_id = outcome->version_id};
	struct s3_settings *settings;
	int ret = s3_settings_get(call->s3, call->request->core, call->bucket, &settings);

	if (ret == -ENOENT)
		return;
	if (ret) {
		log_warn("replicate",
			"%.*s/%.*s was stored while its bucket's settings changed, and may not be "
			"replicated: %s; nebulaio admin resync %.*s replicates it",
			SLICE_FMT(call->bucket), SLICE_FMT(key), strerror(-ret),
			SLICE_FMT(call->bucket));
		return;
	}
	if (settings->parsed[S3_CONFIG_REPLICATION] &&
		settings->bucket.id == call->settings->bucket.id)
		s3_replicate_version(call->s3, settings, &name, outcome->delete_marker);
	s3_settings_put(settings);
}

void s3_replica_catch_up(
	struct s3_call *call, struct slice key, const struct store_outcome *outcome)
{
	if (!outcome->ret && call->settings && !s3_settings_are_current(call->settings) &&
		!replica_of(call).len)
		catch_up(call, key, outcome);
}

/* ---- Answers. ---- */

void s3_replica_answer(struct s3_call *call, struct slice value)
{
	struct slice word = slice_split(&value, ' ');

	s3_answer_header(call, SLICE("x-amz-replication-status"), word);
	if (slice_eq(word, SLICE("REPLICA")) && value.len)
		s3_answer_header(call, SLICE(S3_REPLICA_REQUEST), value);
}
