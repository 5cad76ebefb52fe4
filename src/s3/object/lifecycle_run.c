/* s3/object/lifecycle_run.c: the rules of one bucket for the job that walks its versions: their
 * decision on each, the locks that forbid it, and the end of abandoned uploads. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "document/document.h"
#include "s3/core/settings.h"
#include "s3/core/stored.h"
#include "s3/core/tags.h"
#include "s3/event/notification.h"
#include "s3/object/lifecycle.h"
#include "s3/object/lock.h"
#include "s3/object/multipart.h"

struct s3_lifecycle {
	struct s3 *s3;
	struct flow_core *core;
	struct s3_settings *settings;
	const struct s3_lifecycle_rules *rules;
	struct s3_lifecycle_now now;
	struct s3_telling telling; /* event of the action that is being committed */
};

static int settings_take(struct s3 *s3, struct flow_core *core, struct slice bucket,
	struct s3_settings **ret_settings)
{
	struct s3_settings *settings;
	int ret = s3_settings_get(s3, core, bucket, &settings);

	if (ret)
		return ret;
	if (!settings->parsed[S3_CONFIG_LIFECYCLE]) {
		s3_settings_put(settings);
		return -ENOENT;
	}
	*ret_settings = settings;
	return 0;
}

int s3_lifecycle_open(struct s3 *s3, struct flow_core *core, struct slice bucket,
	struct s3_lifecycle **ret_lifecycle)
{
	struct s3_lifecycle *lifecycle;
	struct s3_settings *settings;
	int ret = settings_take(s3, core, bucket, &settings);

	if (ret)
		return ret;
	lifecycle = calloc(1, sizeof(*lifecycle));
	if (!lifecycle) {
		s3_settings_put(settings);
		return -ENOMEM;
	}
	*lifecycle = (struct s3_lifecycle){.s3 = s3,
		.core = core,
		.settings = settings,
		.rules = settings->parsed[S3_CONFIG_LIFECYCLE],
		.now = {.ms = (int64_t)(clock_real_ns() / NS_PER_MS),
			.day_ms = s3->lifecycle_day_s * 1000}};
	*ret_lifecycle = lifecycle;
	return 0;
}

void s3_lifecycle_close(struct s3_lifecycle *lifecycle)
{
	if (!lifecycle)
		return;
	s3_settings_put(lifecycle->settings);
	free(lifecycle);
}

int s3_lifecycle_renew(struct s3_lifecycle *lifecycle)
{
	struct s3_settings *settings;
	int ret;

	if (s3_lifecycle_is_current(lifecycle))
		return 0;
	ret = settings_take(lifecycle->s3, lifecycle->core, lifecycle->settings->name, &settings);
	if (ret)
		return ret;
	/* Another bucket, whose versions the next walk looks at. */
	if (settings->bucket.id != lifecycle->settings->bucket.id) {
		s3_settings_put(settings);
		return -ENOENT;
	}
	s3_settings_put(lifecycle->settings);
	lifecycle->settings = settings;
	lifecycle->rules = settings->parsed[S3_CONFIG_LIFECYCLE];
	return 0;
}

bool s3_lifecycle_is_current(const struct s3_lifecycle *lifecycle)
{
	return s3_settings_are_current(lifecycle->settings);
}

bool s3_lifecycle_may_delete(const struct store_meta *meta)
{
	struct slice headers = slice_of(meta->headers, meta->headers_len);

	return !s3_replica_is_pending(headers) &&
	       !s3_lock_holds(headers, (int64_t)(clock_real_ns() / NS_PER_MS), false);
}

/* Locked versions are skipped, and those that wait to be replicated. */
static enum store_lifecycle_verdict judge_deletion(
	const struct s3_lifecycle *lifecycle, const struct store_lifecycle_version *version)
{
	if (!(lifecycle->settings->bucket.flags & STORE_BUCKET_LOCK) &&
		!lifecycle->settings->parsed[S3_CONFIG_REPLICATION])
		return STORE_LIFECYCLE_DELETE_VERSION;
	if (!version->whole)
		return STORE_LIFECYCLE_LOOK;
	return s3_lifecycle_may_delete(version->meta) ? STORE_LIFECYCLE_DELETE_VERSION
						      : STORE_LIFECYCLE_KEEP;
}

enum store_lifecycle_verdict s3_lifecycle_judge(const struct s3_lifecycle *lifecycle,
	const struct store_lifecycle_version *version, struct store_flags *ret_flags)
{
	const struct s3_tags *known = NULL;
	enum s3_lifecycle_action action;
	struct mem_arena arena;
	struct s3_tags tags;
	uint8_t class = 0;

	mem_arena_init(&arena);
	if (version->whole && !s3_tags_decode(s3_tags_of_object(version->meta), &arena, &tags))
		known = &tags;
	action = s3_lifecycle_decide(lifecycle->rules, version, known, &lifecycle->now, &class);
	mem_arena_free(&arena);
	switch (action) {
	case S3_LIFECYCLE_KEEP:
		break;
	case S3_LIFECYCLE_NEEDS_TAGS:
		return version->whole ? STORE_LIFECYCLE_KEEP : STORE_LIFECYCLE_LOOK;
	case S3_LIFECYCLE_EXPIRE:
		return STORE_LIFECYCLE_EXPIRE;
	case S3_LIFECYCLE_DELETE_VERSION:
		return judge_deletion(lifecycle, version);
	case S3_LIFECYCLE_MOVE:
		*ret_flags = (struct store_flags){.mask = (uint8_t)(0xffu << S3_FLAG_CLASS_SHIFT),
			.flags = (uint8_t)(class << S3_FLAG_CLASS_SHIFT)};
		return STORE_LIFECYCLE_RECLASS;
	}
	return STORE_LIFECYCLE_KEEP;
}

struct store_outbox_row *s3_lifecycle_tell_begin(
	struct s3_lifecycle *lifecycle, const struct store_lifecycle_action *action)
{
	const struct store_meta classed = {.checksum_flags = action->flags.flags};
	const bool deletion = action->verdict != STORE_LIFECYCLE_RECLASS;
	const struct s3_event event = {.id = deletion ? S3_EVENT_EXPIRATION : S3_EVENT_TRANSITION,
		.key = action->key,
		.version_id = slice_str(action->meta->version_id),
		.meta = action->meta->delete_marker ? NULL : action->meta,
		.class = deletion ? SLICE_NONE : s3_meta_storage_class(&classed)};
	const struct s3_event marker = {.id = S3_EVENT_EXPIRATION_MARKER, .key = action->key};

	s3_event_begin_of_server(lifecycle->s3, lifecycle->settings, &event,
		action->verdict == STORE_LIFECYCLE_EXPIRE ? &marker : NULL, &lifecycle->telling);
	return s3_telling_outbox_row(&lifecycle->telling);
}

void s3_lifecycle_tell_end(struct s3_lifecycle *lifecycle, const struct store_outcome *outcome)
{
	s3_event_end(&lifecycle->telling, outcome);
}

/* ---- Uploads. ---- */

struct uploads {
	struct s3_lifecycle *lifecycle;
	struct slice prefix;
	uint32_t count;
	size_t last_len;
	char last[S3_UPLOAD_NAME_MAX];
	int ret;    /* ends the walk */
	int failed; /* the first error of an upload: those behind it are ended nevertheless */
};

static int record_key(struct s3_lifecycle *lifecycle, struct store_get *get, struct buf *key)
{
	return s3_upload_key(lifecycle->core, get, key);
}

static void upload_visit(const struct store_list_entry *entry, void *arg)
{
	struct uploads *uploads = arg;
	struct s3_lifecycle *lifecycle = uploads->lifecycle;
	struct store_get *get;
	struct buf key;
	bool ignored, due;
	int failed;

	uploads->last_len = MIN(entry->key.len, sizeof(uploads->last));
	memcpy(uploads->last, entry->key.data, uploads->last_len);
	if (uploads->ret || store_get_open(lifecycle->s3->store, SLICE(S3_UPLOADS_BUCKET),
				    entry->key, &get, &ignored))
		return;
	buf_init(&key, LIMIT_KEY_LEN_MAX);
	failed = record_key(lifecycle, get, &key);
	store_get_close(get);
	if (!failed)
		uploads->ret = s3_lifecycle_renew(lifecycle);
	due = !failed && !uploads->ret &&
	      s3_lifecycle_aborts(
		      lifecycle->rules, buf_slice(&key), entry->meta->mtime_ns, &lifecycle->now);
	buf_free(&key);
	if (due) {
		failed = s3_upload_drop(lifecycle->s3, entry->key);
		uploads->count += !failed;
	}
	if (!uploads->failed)
		uploads->failed = failed;
}

static bool any_aborts(const struct s3_lifecycle_rules *rules)
{
	for (uint32_t i = 0; i < rules->count; i++)
		if (rules->list[i].enabled && rules->list[i].abort_days)
			return true;
	return false;
}

int s3_lifecycle_abort_uploads(struct s3_lifecycle *lifecycle, uint32_t *ret_count)
{
	struct uploads uploads = {.lifecycle = lifecycle};
	char prefix[S3_UPLOAD_NAME_MAX];
	bool more = true;
	int ret = 0;

	snprintf(prefix, sizeof(prefix), "u/%s/", lifecycle->settings->bucket.name);
	while (more && !ret && any_aborts(lifecycle->rules)) {
		const struct store_list_opts opts = {.bucket = SLICE(S3_UPLOADS_BUCKET),
			.prefix = slice_str(prefix),
			.after = slice_of(uploads.last, uploads.last_len),
			.entries_max = LIMIT_LIST_KEYS_MAX};

		ret = store_list(lifecycle->s3->store, &opts, upload_visit, &uploads, &more);
		ret = ret ? ret : uploads.ret;
	}
	*ret_count = uploads.count;
	if (ret == -ENOENT)
		ret = 0;
	return ret ? ret : uploads.failed;
}
