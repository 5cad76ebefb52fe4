/* s3/replicate/resync.c: replicates what a bucket had before its rules: a walk over its versions
 * that leaves rows for those that were not sent. Documents ("s/BUCKET", "s/BUCKET/KIND") keep how
 * far it came. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "s3/replicate/replicate.h"

#define NAME_PREFIX  "s/"
#define NAME_BYTES   (sizeof(NAME_PREFIX) + sizeof(((struct s3_replicate_resync *)0)->name))
#define PAGE_ENTRIES LIMIT_LIST_KEYS_MAX
/* A bucket's rules are stored a moment behind the request for its resync. */
#define RULES_NS_MAX (60 * NS_PER_S)

/* ---- How far it came: the letter of its kind, of rules their digest, then the last key. A small
 * letter: of this key the oldest versions, up to the one whose id stands before it. ---- */

#define DIGEST_LEN  16u
#define VERSION_LEN 32u /* filled with spaces */

static struct slice document_name(struct slice name, char text[NAME_BYTES])
{
	return slice_of(
		text, (size_t)snprintf(text, NAME_BYTES, NAME_PREFIX "%.*s", SLICE_FMT(name)));
}

/* A request for another resync may have taken its place: that one begins anew. */
static int remember(struct s3 *s3, struct flow_core *core, const struct s3_replicate_resync *resync)
{
	char name[NAME_BYTES], text[1 + DIGEST_LEN + VERSION_LEN + LIMIT_KEY_LEN_MAX + 1];
	bool within = resync->version[0];
	size_t len = (size_t)snprintf(text, sizeof(text), "%c%s%-*s",
		within ? tolower(resync->kind) : (int)resync->kind, resync->rules,
		within ? (int)VERSION_LEN : 0, resync->version);
	const struct document document = {.text = slice_of(text, len + resync->after_len)};
	int ret;

	memcpy(text + len, resync->after, resync->after_len);
	ret = document_put(s3->store, core, document_name(slice_str(resync->name), name), &document,
		resync->stamp[0] ? resync->stamp : NULL);
	return ret == -ESTALE ? 0 : ret;
}

static void digest(struct slice rules, char ret_text[DIGEST_LEN + 1])
{
	static const uint8_t key[16];
	uint64_t hash[SIPHASH_BYTES / sizeof(uint64_t)];

	mac_siphash128(key, rules.data, rules.len, (uint8_t *)hash);
	snprintf(ret_text, DIGEST_LEN + 1, "%016llx", (unsigned long long)hash[0]);
}

/* Each kind has its own walk: none takes the place of another one that is under way. */
static void name_make(struct s3_replicate_resync *resync)
{
	if (resync->kind == S3_REPLICATE_RESYNC_NEW)
		snprintf(resync->name, sizeof(resync->name), "%s", resync->bucket);
	else
		snprintf(resync->name, sizeof(resync->name), "%s/%c", resync->bucket,
			(char)resync->kind);
}

int s3_replicate_resync_ask(struct s3 *s3, struct flow_core *core, struct slice bucket,
	enum s3_replicate_resync_kind kind, struct slice rules)
{
	struct s3_replicate_resync resync = {.kind = kind};
	int ret = slice_copy_str(bucket, resync.bucket, sizeof(resync.bucket));

	name_make(&resync);
	if (rules.len)
		digest(rules, resync.rules);
	if (!ret)
		ret = remember(s3, core, &resync);
	if (!ret)
		s3_replicate_poke(s3);
	return ret;
}

static bool first(struct slice name, void *arg)
{
	struct s3_replicate_resync *resync = arg;

	name = slice_from(name, strlen(NAME_PREFIX));
	slice_copy_str(name, resync->name, sizeof(resync->name));
	slice_copy_str(slice_split(&name, '/'), resync->bucket, sizeof(resync->bucket));
	return false;
}

static void resync_read(const struct document *document, struct s3_replicate_resync *resync)
{
	struct slice after = slice_from(document->text, 1);
	bool within = document->text.len && islower((unsigned char)document->text.data[0]);

	if (document->text.len)
		resync->kind = (enum s3_replicate_resync_kind)toupper(
			(unsigned char)document->text.data[0]);
	if (resync->kind == S3_REPLICATE_RESYNC_RULES) {
		slice_copy_str(slice_to(after, DIGEST_LEN), resync->rules, sizeof(resync->rules));
		after = slice_from(after, DIGEST_LEN);
	}
	if (within) {
		slice_copy_str(slice_trim(slice_to(after, VERSION_LEN)), resync->version,
			sizeof(resync->version));
		after = slice_from(after, VERSION_LEN);
	}
	after = slice_to(after, LIMIT_KEY_LEN_MAX);
	resync->put_ns = document->put_ns;
	memcpy(resync->stamp, document->stamp, sizeof(resync->stamp));
	resync->after_len = after.len;
	slice_copy(after, resync->after);
}

int s3_replicate_resync_next(struct s3 *s3, struct flow_core *core, struct slice after,
	struct s3_replicate_resync *ret_resync)
{
	struct document document;
	struct mem_arena arena;
	char text[NAME_BYTES];
	int ret;

	*ret_resync = (struct s3_replicate_resync){.kind = S3_REPLICATE_RESYNC_NEW};
	ret = document_list(
		s3->store, SLICE(NAME_PREFIX), document_name(after, text), first, ret_resync);
	if (!ret && !ret_resync->name[0])
		ret = document_list(s3->store, SLICE(NAME_PREFIX), SLICE_NONE, first, ret_resync);
	if (ret || !ret_resync->name[0])
		return ret ? ret : -ENOENT;
	mem_arena_init(&arena);
	ret = document_get(s3->store, core, document_name(slice_str(ret_resync->name), text),
		&arena, &document);
	if (!ret)
		resync_read(&document, ret_resync);
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
	struct found *found; /* of the key; of PAGE_ENTRIES, from which later ones begin anew */
	uint32_t count;
	size_t key_len;
	char key[LIMIT_KEY_LEN_MAX];
	bool key_over;	  /* the walk has passed the versions that are left of it */
	uint32_t keys;	  /* that were marked */
	uint32_t skipped; /* versions that cannot be marked */
	int error;
};

struct mark {
	const struct step *step;
	uint32_t target;
	char *row_text;
	struct mem_arena arena;
};

static struct slice key_of(const struct step *step)
{
	return slice_of(step->key, step->key_len);
}

static bool rule_asks(const struct mark *mark, const struct s3_replication_rule *rule)
{
	return rule && (rule->existing || mark->step->resync->kind != S3_REPLICATE_RESYNC_RULES);
}

/* An object that was sent has its replica's id. */
static bool was_sent(const struct step *step, const struct s3_replica_of *replica)
{
	return step->resync->kind != S3_REPLICATE_RESYNC_ALL && replica->id.len;
}

/* In the commit: replicas are left as they are, and what was sent, unless a change of it failed. A
 * row too many does no harm: its version has been sent when its turn comes. */
static int edit(const struct store_meta *current, struct slice *ret_headers, void *arg)
{
	struct s3_replica_of replica, pending = {.state = S3_REPLICA_PENDING};
	struct mark *mark = arg;
	const struct step *step = mark->step;
	const struct s3_replication *replication = step->replication;
	struct slice name = replication->targets[mark->target].name;
	struct slice headers = slice_of(current->headers, current->headers_len);
	struct s3_tags tags;

	*ret_headers = headers;
	if (current->delete_marker)
		return rule_asks(mark,
			       s3_replication_marker_rule(replication, mark->target, key_of(step)))
			       ? 0
			       : -ECANCELED;
	replica = s3_replica_of(headers, name);
	if (s3_replica_is_replica(headers) ||
		(was_sent(step, &replica) && replica.state != S3_REPLICA_FAILED))
		return -ECANCELED;
	if (s3_tags_decode(s3_tags_of_object(current), &mark->arena, &tags) ||
		!rule_asks(mark,
			s3_replication_rule_of(replication, mark->target, key_of(step), &tags)))
		return -ECANCELED;
	if (was_sent(step, &replica)) {
		pending.id = replica.id;
		s3_replicate_row_fill(mark->row_text, S3_REPLICATE_CHANGES, current->version_id);
	}
	return s3_replica_set(headers, name, &pending, &mark->arena, ret_headers);
}

static void version_mark(struct step *step, const struct found *found, uint32_t target)
{
	const struct store_name name = {.bucket = slice_str(step->resync->bucket),
		.key = key_of(step),
		.version_id = slice_str(found->version_id)};
	const struct s3_replicate_row row = {
		.kind = found->marker ? S3_REPLICATE_MARKER : S3_REPLICATE_PUT,
		.time_ns = clock_real_ns(),
		.target = step->replication->targets[target].name,
		.bucket = name.bucket,
		.key = name.key,
		.request_id = SLICE("resync")};
	struct store_outbox_row left = {.number = 0};
	struct mark mark = {.step = step, .target = target};
	int ret;

	mem_arena_init(&mark.arena);
	left.text = s3_replicate_row_text(&row, &mark.arena);
	ret = left.text.data ? 0 : -ENOMEM;
	if (!ret) {
		mark.row_text = (char *)(uintptr_t)left.text.data;
		s3_replicate_row_fill(mark.row_text, row.kind, found->version_id);
		ret = store_edit(step->s3->store, &name, edit, &mark, &left);
	}
	if (!ret)
		s3_replicate_pend(step->s3, &row, 1);
	else if (ret != -ECANCELED && ret != -ENOENT)
		step->error = ret;
	mem_arena_free(&mark.arena);
}

static void version_mark_all(struct step *step, const struct found *found)
{
	for (uint32_t i = 0; i < step->replication->target_count && !step->error; i++)
		if (s3_replicate_registered(step->s3, step->replication->targets[i].name))
			version_mark(step, found, i);
}

void s3_replicate_version(struct s3 *s3, const struct s3_settings *settings,
	const struct store_name *name, bool marker)
{
	struct s3_replicate_resync *resync = calloc(1, sizeof(*resync));
	struct step *step = calloc(1, sizeof(*step));
	struct found found = {.marker = marker};
	int ret = -ENOMEM;

	if (resync && step) {
		resync->kind = S3_REPLICATE_RESYNC_NEW;
		slice_copy_str(name->bucket, resync->bucket, sizeof(resync->bucket));
		slice_copy_str(name->version_id, found.version_id, sizeof(found.version_id));
		*step = (struct step){.s3 = s3,
			.replication = settings->parsed[S3_CONFIG_REPLICATION],
			.resync = resync,
			.key_len = name->key.len};
		memcpy(step->key, name->key.data, name->key.len);
		version_mark_all(step, &found);
		ret = step->error;
	}
	if (ret)
		log_warn("replicate",
			"%.*s/%.*s was stored while its bucket got rules, and is not replicated: "
			"%s; nebulaio admin resync %.*s replicates it",
			SLICE_FMT(name->bucket), SLICE_FMT(name->key), strerror(-ret),
			SLICE_FMT(name->bucket));
	free(step);
	free(resync);
	s3_replicate_poke(s3);
}

/* The error is one of this version alone: the walk goes on. The first of a step is told. */
static void version_skip(struct step *step, const struct found *found)
{
	if (!step->skipped++)
		log_warn("replicate",
			"resync of bucket %s: version %s of %.*s, and perhaps others, cannot be "
			"noted: %s; it is not replicated",
			step->resync->bucket, found->version_id, SLICE_FMT(key_of(step)),
			strerror(-step->error));
	step->error = 0;
}

static void version_mark_or_skip(struct step *step, const struct found *found)
{
	version_mark_all(step, found);
	if (step->error == -EINVAL || step->error == -EIO)
		version_skip(step, found);
}

/* Of the step's key up to that version; empty: all. */
static void reached(struct step *step, const char *version)
{
	struct s3_replicate_resync *resync = step->resync;

	memcpy(resync->after, step->key, step->key_len);
	resync->after_len = step->key_len;
	snprintf(resync->version, sizeof(resync->version), "%s", version);
}

static void key_mark(struct step *step)
{
	while (step->count && !step->error)
		version_mark_or_skip(step, &step->found[--step->count]);
	if (step->error || !step->key_len)
		return;
	reached(step, "");
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

/* ---- A key with more versions than a page. ---- */

/* An earlier step marked it, or the version that it came to is gone: a higher id is newer. */
static bool is_passed(const struct s3_replicate_resync *resync, const char *id)
{
	const char *passed = resync->version;

	return passed[0] && (strcmp(id, passed) == 0 ||
				    (strcmp(id, "null") != 0 && strcmp(passed, "null") != 0 &&
					    strcmp(id, passed) < 0));
}

static void visit_versions(const struct store_list_entry *entry, void *arg)
{
	struct step *step = arg;
	struct found *found;

	step->key_over |= !slice_eq(entry->key, key_of(step)) ||
			  is_passed(step->resync, entry->meta->version_id);
	if (step->key_over)
		return;
	found = &step->found[step->count++ % PAGE_ENTRIES];
	memcpy(found->version_id, entry->meta->version_id, sizeof(found->version_id));
	found->marker = entry->meta->delete_marker;
}

/* The listing comes to the oldest versions last, and only this way. */
static int oldest_find(struct step *step)
{
	char last[sizeof(step->found->version_id)];
	struct store_list_opts opts = {.bucket = slice_str(step->resync->bucket),
		.prefix = key_of(step),
		.entries_max = PAGE_ENTRIES};
	bool more = true;
	int ret = 0;

	step->count = 0;
	step->key_over = false;
	while (!ret && more && !step->key_over) {
		ret = store_list_versions(step->s3->store, &opts, visit_versions, step, &more);
		if (!step->count)
			break;
		memcpy(last, step->found[(step->count - 1) % PAGE_ENTRIES].version_id,
			sizeof(last));
		opts.after = key_of(step);
		opts.version_after = slice_str(last);
	}
	return ret;
}

/* Marks a page of the oldest versions that are left of the step's key: the target gets them in
 * their order. */
static int versions_walk(struct step *step)
{
	int ret = oldest_find(step);
	uint32_t left = step->count;

	for (uint32_t i = 0; i < PAGE_ENTRIES && left && !ret; i++) {
		const struct found *found = &step->found[--left % PAGE_ENTRIES];

		version_mark_or_skip(step, found);
		ret = step->error;
		if (!ret)
			reached(step, found->version_id);
	}
	if (!ret && !left)
		reached(step, "");
	return ret;
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
	if (step->resync->version[0]) {
		step->key_len = step->resync->after_len;
		memcpy(step->key, step->resync->after, step->key_len);
		*ret_more = true;
		return versions_walk(step);
	}
	ret = store_list_versions(step->s3->store, &opts, visit, step, ret_more);
	ret = ret ? ret : step->error;
	if (!ret && *ret_more && !step->keys)
		return versions_walk(step);
	if (!ret && !*ret_more)
		key_mark(step);
	return ret ? ret : step->error;
}

static int end(struct s3 *s3, struct flow_core *core, const struct s3_replicate_resync *resync)
{
	char text[NAME_BYTES];
	struct slice name = document_name(slice_str(resync->name), text);
	struct document document;
	struct mem_arena arena;
	int ret;

	mem_arena_init(&arena);
	ret = document_get(s3->store, core, name, &arena, &document);
	if (!ret && strcmp(document.stamp, resync->stamp) == 0)
		ret = document_delete(s3->store, name);
	mem_arena_free(&arena);
	return ret == -ENOENT ? 0 : ret;
}

/* The rules that asked for the resync are stored a moment after they asked. */
static bool rules_are_stored(
	const struct s3_settings *settings, const struct s3_replicate_resync *resync)
{
	char text[DIGEST_LEN + 1];

	if (!settings->parsed[S3_CONFIG_REPLICATION])
		return false;
	digest(settings->documents[S3_CONFIG_REPLICATION], text);
	return !resync->rules[0] || strcmp(text, resync->rules) == 0;
}

static int walk(struct s3 *s3, struct s3_replicate_resync *resync,
	const struct s3_replication *replication, bool *ret_more)
{
	struct step *step = calloc(1, sizeof(*step));
	struct found *found = calloc(PAGE_ENTRIES, sizeof(*found));
	int ret = -ENOMEM;

	if (step && found) {
		*step = (struct step){
			.s3 = s3, .resync = resync, .replication = replication, .found = found};
		ret = page_walk(step, ret_more);
	}
	free(found);
	free(step);
	return ret;
}

int s3_replicate_resync_step(
	struct s3 *s3, struct flow_core *core, struct s3_replicate_resync *resync, bool *ret_more)
{
	struct s3_settings *settings = NULL;
	int ret = s3_settings_get(s3, core, slice_str(resync->bucket), &settings);

	*ret_more = false;
	if (ret == -ENOENT)
		return end(s3, core, resync);
	if (ret)
		return ret;
	if (!rules_are_stored(settings, resync)) {
		ret = clock_real_ns() < resync->put_ns + RULES_NS_MAX ? -EAGAIN
								      : end(s3, core, resync);
	} else {
		/* Commits that looked at the rules before they were stored, and that the walk may
		 * not see, learn of them when they are done. */
		if (!resync->after_len)
			s3_settings_changed(s3, slice_str(resync->bucket));
		ret = walk(s3, resync, settings->parsed[S3_CONFIG_REPLICATION], ret_more);
		if (ret)
			(void)remember(s3, core, resync);
		else
			ret = *ret_more ? remember(s3, core, resync) : end(s3, core, resync);
		if (!ret)
			s3_replicate_poke(s3);
	}
	s3_settings_put(settings);
	return ret;
}
