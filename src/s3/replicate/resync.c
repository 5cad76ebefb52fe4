/* s3/replicate/resync.c: replicates what a bucket had before its rules: a walk over its versions
 * that leaves rows for those that were not sent. Documents ("s/BUCKET") keep how far it came. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "s3/replicate/replicate.h"

#define NAME_PREFIX "s/"
#define NAME_BYTES  (LIMIT_BUCKET_LEN_MAX + 8u)
/* Of a key with more versions in one page, the newest ones. */
#define PAGE_ENTRIES LIMIT_LIST_KEYS_MAX
/* A bucket's rules are stored a moment behind the request for its resync. */
#define RULES_NS_MAX (60 * NS_PER_S)

/* ---- How far it came: "A" or "N" (again, or new ones only), then the last key. ---- */

static struct slice document_name(struct slice bucket, char text[NAME_BYTES])
{
	return slice_of(
		text, (size_t)snprintf(text, NAME_BYTES, NAME_PREFIX "%.*s", SLICE_FMT(bucket)));
}

static int remember(struct s3 *s3, struct flow_core *core, const struct s3_replicate_resync *resync)
{
	char name[NAME_BYTES], text[LIMIT_KEY_LEN_MAX + 1];
	const struct document document = {.text = slice_of(text, resync->after_len + 1)};

	text[0] = resync->again ? 'A' : 'N';
	memcpy(text + 1, resync->after, resync->after_len);
	return document_put(
		s3->store, core, document_name(slice_str(resync->bucket), name), &document, NULL);
}

int s3_replicate_resync_ask(struct s3 *s3, struct flow_core *core, struct slice bucket, bool again)
{
	struct s3_replicate_resync resync = {.again = again};
	int ret = slice_copy_str(bucket, resync.bucket, sizeof(resync.bucket));

	if (!ret)
		ret = remember(s3, core, &resync);
	if (!ret)
		s3_replicate_poke(s3);
	return ret;
}

static bool first(struct slice name, void *arg)
{
	struct s3_replicate_resync *resync = arg;

	slice_copy_str(
		slice_from(name, strlen(NAME_PREFIX)), resync->bucket, sizeof(resync->bucket));
	return false;
}

int s3_replicate_resync_next(
	struct s3 *s3, struct flow_core *core, struct s3_replicate_resync *ret_resync)
{
	struct document document;
	struct mem_arena arena;
	char text[NAME_BYTES];
	int ret;

	*ret_resync = (struct s3_replicate_resync){.again = false};
	ret = document_list(s3->store, SLICE(NAME_PREFIX), SLICE_NONE, first, ret_resync);
	if (ret || !ret_resync->bucket[0])
		return ret ? ret : -ENOENT;
	mem_arena_init(&arena);
	ret = document_get(s3->store, core, document_name(slice_str(ret_resync->bucket), text),
		&arena, &document);
	if (!ret) {
		struct slice after = slice_to(slice_from(document.text, 1), LIMIT_KEY_LEN_MAX);

		ret_resync->again = slice_starts(document.text, SLICE("A"));
		ret_resync->put_ns = document.put_ns;
		ret_resync->after_len = after.len;
		slice_copy(after, ret_resync->after);
	}
	mem_arena_free(&arena);
	return ret;
}

/* ---- One step. ---- */

struct found {
	char version_id[33];
	bool marker;
};

/* The listing has the versions of a key newest first; their rows go the other way. */
struct step {
	struct s3 *s3;
	const struct s3_replication *replication;
	struct s3_replicate_resync *resync;
	struct found *found; /* of the key */
	uint32_t count;
	size_t key_len;
	char key[LIMIT_KEY_LEN_MAX];
	uint32_t keys; /* that were marked */
	int error;
};

struct mark {
	const struct step *step;
	uint64_t bytes;
	struct mem_arena arena;
};

static struct slice key_of(const struct step *step)
{
	return slice_of(step->key, step->key_len);
}

/* In the commit: replicas are left as they are, and what was sent, which has its replica's id. A
 * row too many does no harm: its version has been sent when its turn comes. */
static int edit(const struct store_meta *current, struct slice *ret_headers, void *arg)
{
	struct mark *mark = arg;
	const struct step *step = mark->step;
	struct slice headers = slice_of(current->headers, current->headers_len);
	struct slice value = s3_meta_hidden(headers, SLICE(S3_REPLICA_HEADER));
	struct slice word = slice_split(&value, ' ');
	struct s3_tags tags;

	*ret_headers = headers;
	if (current->delete_marker)
		return s3_replication_marker_rule(step->replication, key_of(step)) ? 0 : -ECANCELED;
	if (slice_eq(word, SLICE("REPLICA")) || (!step->resync->again && value.len))
		return -ECANCELED;
	if (s3_tags_decode(s3_tags_of_object(current), &mark->arena, &tags) ||
		!s3_replication_rule_of(step->replication, key_of(step), &tags))
		return -ECANCELED;
	return s3_replica_set(headers, SLICE("PENDING"), SLICE_NONE, &mark->arena, ret_headers);
}

static void version_mark(struct step *step, const struct found *found)
{
	const struct store_name name = {.bucket = slice_str(step->resync->bucket),
		.key = key_of(step),
		.version_id = slice_str(found->version_id)};
	const struct s3_replicate_row row = {
		.kind = found->marker ? S3_REPLICATE_MARKER : S3_REPLICATE_PUT,
		.time_ns = clock_real_ns(),
		.target = step->replication->target,
		.bucket = name.bucket,
		.key = name.key,
		.request_id = SLICE("resync")};
	struct store_outbox_row left = {.number = 0};
	struct mark mark = {.step = step};
	int ret;

	mem_arena_init(&mark.arena);
	left.text = s3_replicate_row_text(&row, &mark.arena);
	ret = left.text.data ? 0 : -ENOMEM;
	if (!ret) {
		s3_replicate_row_fill(
			(char *)(uintptr_t)left.text.data, row.kind, found->version_id);
		ret = store_edit(step->s3->store, &name, edit, &mark, &left);
	}
	if (!ret)
		s3_replicate_add(step->s3, row.target, S3_REPLICATE_PENDING, 1);
	else if (ret != -ECANCELED && ret != -ENOENT)
		step->error = ret;
	mem_arena_free(&mark.arena);
}

static void key_mark(struct step *step)
{
	while (step->count && !step->error)
		version_mark(step, &step->found[--step->count]);
	if (step->error || !step->key_len)
		return;
	memcpy(step->resync->after, step->key, step->key_len);
	step->resync->after_len = step->key_len;
	step->keys++;
}

static void visit(const struct store_list_entry *entry, void *arg)
{
	struct step *step = arg;
	struct found *found;

	if (step->error)
		return;
	if (!slice_eq(entry->key, key_of(step))) {
		key_mark(step);
		step->key_len = entry->key.len;
		memcpy(step->key, entry->key.data, entry->key.len);
		step->count = 0;
	}
	found = &step->found[step->count++];
	memcpy(found->version_id, entry->meta->version_id, sizeof(found->version_id));
	found->marker = entry->meta->delete_marker;
}

/* The last key of a page may have versions in the next one: it is left to that one. */
static int page_walk(struct step *step, bool *ret_more)
{
	char after[LIMIT_KEY_LEN_MAX];
	const struct store_list_opts opts = {.bucket = slice_str(step->resync->bucket),
		.after = slice_of(after, step->resync->after_len),
		.entries_max = PAGE_ENTRIES};
	int ret;

	memcpy(after, step->resync->after, step->resync->after_len);
	ret = store_list_versions(step->s3->store, &opts, visit, step, ret_more);
	if (!ret && (!*ret_more || !step->keys))
		key_mark(step);
	return ret ? ret : step->error;
}

static int end(struct s3 *s3, const struct s3_replicate_resync *resync)
{
	char name[NAME_BYTES];

	return document_delete(s3->store, document_name(slice_str(resync->bucket), name));
}

int s3_replicate_resync_step(
	struct s3 *s3, struct flow_core *core, struct s3_replicate_resync *resync, bool *ret_more)
{
	struct step *step = calloc(1, sizeof(*step));
	struct s3_settings *settings = NULL;
	int ret = step ? s3_settings_get(s3, core, slice_str(resync->bucket), &settings) : -ENOMEM;

	*ret_more = false;
	if (!ret && !settings->parsed[S3_CONFIG_REPLICATION] &&
		clock_real_ns() < resync->put_ns + RULES_NS_MAX) {
		ret = -EAGAIN;
	} else if (ret == -ENOENT || (!ret && !settings->parsed[S3_CONFIG_REPLICATION])) {
		ret = end(s3, resync);
	} else if (!ret) {
		step->s3 = s3;
		step->resync = resync;
		step->replication = settings->parsed[S3_CONFIG_REPLICATION];
		step->found = calloc(PAGE_ENTRIES, sizeof(*step->found));
		ret = step->found ? page_walk(step, ret_more) : -ENOMEM;
		if (!ret)
			ret = *ret_more ? remember(s3, core, resync) : end(s3, resync);
		s3_replicate_poke(s3);
	}
	s3_settings_put(settings);
	if (step)
		free(step->found);
	free(step);
	return ret;
}
