/* s3/replicate/job.c: what a row asks to be sent: the version with its headers, tags, lock and
 * checksum as its replica gets them; and the word that tells how it ended. */
#include <errno.h>
#include <stdio.h>

#include "codec/codec.h"
#include "s3/auth/acl.h"
#include "s3/replicate/replicate.h"
#include "s3/sse/sse.h"

#define NEWER_MAX 100u /* versions of a marker's key that are looked at */

/* ---- Its headers. ---- */

static int header_add(struct s3_replicate_job *job, struct slice name, struct slice value)
{
	struct s3_header *header = &job->headers[job->header_count];

	if (job->header_count == S3_REPLICATE_HEADERS_MAX) {
		job->why = "it has too many headers";
		return -EOPNOTSUPP;
	}
	header->name = mem_arena_copy(&job->arena, name);
	header->value = mem_arena_copy(&job->arena, value);
	job->header_count++;
	return header->name.data && header->value.data ? 0 : -ENOMEM;
}

static int plain_add(struct s3_replicate_job *job)
{
	struct slice rest = slice_of(job->meta->headers, s3_meta_plain_len(job->meta)), name, value;
	int ret = 0;

	while (!ret && s3_meta_next(&rest, &name, &value))
		ret = header_add(job, name, value);
	return ret;
}

/* As x-amz-tagging has them. */
static int tags_add(struct s3_replicate_job *job, const struct s3_tags *tags)
{
	struct buf text;
	int ret = 0;

	buf_init(&text, LIMIT_HTTP_HEAD_BYTES_MAX);
	for (uint32_t i = 0; i < tags->count; i++) {
		if (i)
			buf_put_str(&text, "&");
		uri_encode(tags->items[i].key, 0, &text);
		buf_put_str(&text, "=");
		uri_encode(tags->items[i].value, 0, &text);
	}
	if (tags->count)
		ret = text.failed ? -ENOMEM
				  : header_add(job, SLICE("x-amz-tagging"), buf_slice(&text));
	buf_free(&text);
	return ret;
}

static void lock_read(struct s3_replicate_job *job, struct slice hidden)
{
	int64_t until_ms;

	job->lock_mode = s3_meta_hidden(hidden, SLICE(S3_LOCK_MODE_HEADER));
	job->lock_until = s3_meta_hidden(hidden, SLICE(S3_LOCK_UNTIL_HEADER));
	job->hold = s3_meta_hidden(hidden, SLICE(S3_LOCK_HOLD_HEADER));
	job->lock_over =
		job->lock_mode.len && (date_iso_parse(job->lock_until, &until_ms) ||
					      until_ms <= (int64_t)(clock_real_ns() / NS_PER_MS));
}

/* A retention that is over needs none at the target, which would refuse it. */
static int lock_add(struct s3_replicate_job *job)
{
	int ret = 0;

	if (job->lock_mode.len && !job->lock_over) {
		ret = header_add(job, SLICE("x-amz-object-lock-mode"), job->lock_mode);
		if (!ret)
			ret = header_add(
				job, SLICE("x-amz-object-lock-retain-until-date"), job->lock_until);
	}
	if (!ret && slice_eq(job->hold, SLICE("ON")))
		ret = header_add(job, SLICE("x-amz-object-lock-legal-hold"), job->hold);
	return ret;
}

/* Under the rule's key; without a rule the row asks for something else than the object. */
static int kms_add(struct s3_replicate_job *job, const struct s3_replication_rule *rule)
{
	int ret;

	job->etag_is_own = true;
	if (job->row->kind != S3_REPLICATE_PUT)
		return 0;
	if (!rule || !rule->kms) {
		job->why = "it is encrypted under a key of a key service (SSE-KMS), and its rule "
			   "has no SseKmsEncryptedObjects";
		return -EOPNOTSUPP;
	}
	ret = header_add(job, SLICE("x-amz-server-side-encryption"), SLICE("aws:kms"));
	return ret ? ret
		   : header_add(job, SLICE("x-amz-server-side-encryption-aws-kms-key-id"),
			     rule->kms_key);
}

static int sse_add(
	struct s3_replicate_job *job, const struct s3_replication_rule *rule, struct slice hidden)
{
	struct s3_sse sse;

	s3_sse_describe(hidden, &sse);
	if (sse.kind == S3_SSE_KMS)
		return kms_add(job, rule);
	if (sse.kind == S3_SSE_CUSTOMER) {
		job->why = "it is encrypted by its client's own key (SSE-C)";
		return -EOPNOTSUPP;
	}
	return sse.kind == S3_SSE_S3
		       ? header_add(job, SLICE("x-amz-server-side-encryption"), SLICE("AES256"))
		       : 0;
}

static int checksum_keep(struct s3_replicate_job *job)
{
	enum checksum_kind kind = (enum checksum_kind)job->meta->checksum_type;
	char text[S3_CHECKSUM_LEN_MAX];
	size_t len = s3_checksum_format(job->meta, text);

	if (!len)
		return 0;
	job->composite = job->meta->checksum_flags & S3_FLAG_COMPOSITE;
	job->checksum_name = checksum_name(kind);
	job->checksum_header = checksum_header(kind);
	job->checksum = mem_arena_copy(&job->arena, slice_of(text, len));
	return job->checksum.data ? 0 : -ENOMEM;
}

static int headers_make(struct s3_replicate_job *job, const struct s3_replication_rule *rule,
	const struct s3_tags *tags)
{
	struct slice hidden = slice_of(job->meta->headers, job->meta->headers_len);
	struct slice class =
		rule && rule->class.len ? rule->class : s3_meta_storage_class(job->meta);
	struct slice redirect = s3_meta_hidden(hidden, SLICE(S3_REDIRECT_HEADER));
	int ret = plain_add(job);

	lock_read(job, hidden);
	if (!ret)
		ret = tags_add(job, tags);
	if (!ret)
		ret = lock_add(job);
	if (!ret && !slice_eq(class, SLICE("STANDARD")))
		ret = header_add(job, SLICE("x-amz-storage-class"), class);
	if (!ret && redirect.len)
		ret = header_add(job, SLICE("x-amz-website-redirect-location"), redirect);
	if (!ret)
		ret = sse_add(job, rule, hidden);
	if (!ret)
		ret = header_add(job, SLICE(S3_REPLICA_REQUEST), job->row->version_id);
	return ret ? ret : checksum_keep(job);
}

/* ---- Opening. ---- */

/* Whether the bucket's rules still send to the row's target, which its account still may use. */
static int rules_check(struct s3 *s3, struct s3_replicate_job *job,
	const struct s3_settings *settings, uint32_t *ret_target)
{
	const struct s3_replication *replication = settings->parsed[S3_CONFIG_REPLICATION];
	struct slice name = job->row->target;

	if (!replication || !s3_replication_target_find(replication, name, ret_target))
		return -ECANCELED;
	if (!s3_replicate_registered(s3, name))
		job->why = "the target is no longer registered";
	else if (!s3_replicate_allowed(s3, name, settings->bucket.owner))
		job->why = "the bucket's account may no longer use the target";
	return job->why ? -EOPNOTSUPP : 0;
}

static bool was_sent(const struct s3_replica_of *replica)
{
	return replica->id.len || replica->state == S3_REPLICA_COMPLETED;
}

struct newer {
	struct s3 *s3;
	const struct s3_replicate_row *row; /* of a marker */
	bool past;			    /* the rest is not newer */
	bool found;
	int ret;
};

static void newer_visit(const struct store_list_entry *entry, void *arg)
{
	struct newer *newer = arg;
	const struct store_name name = {.bucket = newer->row->bucket,
		.key = newer->row->key,
		.version_id = slice_str(entry->meta->version_id)};
	struct store_get *get;
	bool ignored;
	int ret;

	newer->past |= !slice_eq(entry->key, name.key) ||
		       slice_eq(name.version_id, newer->row->version_id);
	if (newer->past || newer->found || newer->ret || entry->meta->delete_marker)
		return;
	ret = store_get_open_version(newer->s3->store, &name, &get, &ignored);
	if (!ret) {
		const struct store_meta *meta = store_get_meta(get);
		struct slice headers = slice_of(meta->headers, meta->headers_len);
		struct s3_replica_of replica = s3_replica_of(headers, newer->row->target);

		newer->found = was_sent(&replica) || s3_replica_is_replica(headers);
		store_get_close(get);
	} else if (ret != -ENOENT) {
		newer->ret = ret;
	}
}

/* A marker has no note that it was sent. At the target it would hide a newer version that is there
 * already; one that is not there yet is sent behind it. -EALREADY: the target has a newer one. */
static int marker_check(struct s3 *s3, const struct s3_replicate_row *row)
{
	const struct store_list_opts opts = {
		.bucket = row->bucket, .prefix = row->key, .entries_max = NEWER_MAX};
	struct newer newer = {.s3 = s3, .row = row};
	bool ignored;
	int ret = store_list_versions(s3->store, &opts, newer_visit, &newer, &ignored);

	if (ret || newer.ret)
		return ret ? ret : newer.ret;
	return newer.found ? -EALREADY : 0;
}

/* The bucket's owner, for whom the object is sent, may read only its own account's objects and
 * those whose lists let it. */
static int owner_check(
	struct s3 *s3, struct s3_replicate_job *job, const struct s3_settings *settings)
{
	static const enum s3_permission NEEDED[] = {S3_PERMISSION_READ, S3_PERMISSION_READ_ACP};
	struct slice hidden = slice_of(job->meta->headers, job->meta->headers_len);
	struct iam_principal principal = {.who = {.owner = slice_str(settings->bucket.owner)}};
	struct iam_owner owner;
	int ret = 0;

	if (!(job->meta->checksum_flags & S3_FLAG_FOREIGN))
		return 0;
	iam_owner_or_id(s3->iam, principal.who.owner, &owner);
	principal.who.account = slice_str(owner.account);
	for (size_t i = 0; i < ARRAY_LEN(NEEDED) && !ret; i++)
		ret = s3_acl_of_foreign(s3, settings, hidden, &principal, NEEDED[i], &job->arena);
	if (ret != -EACCES && ret != -EINVAL)
		return ret;
	job->why = "it belongs to another account, and its access control list does not let the "
		   "bucket's owner read it and the list";
	return -EOPNOTSUPP;
}

static int job_fill(struct s3 *s3, struct s3_replicate_job *job, const struct s3_settings *settings,
	uint32_t target)
{
	const struct s3_replication *replication = settings->parsed[S3_CONFIG_REPLICATION];
	struct slice hidden = slice_of(job->meta->headers, job->meta->headers_len);
	const struct s3_replication_rule *rule;
	struct s3_replica_of replica;
	struct s3_tags tags;
	int ret;

	if (job->row->kind == S3_REPLICATE_MARKER)
		return s3_replication_marker_rule(replication, target, job->row->key)
			       ? marker_check(s3, job->row)
			       : -ECANCELED;
	if (s3_replica_is_replica(hidden))
		return -EALREADY;
	replica = s3_replica_of(hidden, job->row->target);
	job->target_version = replica.id;
	/* With the id of a replica, the object itself has been sent. */
	if (job->row->kind == S3_REPLICATE_PUT && was_sent(&replica))
		return -EALREADY;
	ret = owner_check(s3, job, settings);
	if (ret)
		return ret;
	if (s3_tags_decode(s3_tags_of_object(job->meta), &job->arena, &tags))
		return -ENOMEM;
	job->tags = s3_tags_of_object(job->meta);
	rule = s3_replication_rule_of(replication, target, job->row->key, &tags);
	if (!rule && job->row->kind == S3_REPLICATE_PUT)
		return -ECANCELED;
	job->lockable = settings->bucket.flags & STORE_BUCKET_LOCK;
	job->bytes = job->meta->bytes;
	job->part_count = s3_meta_parts(job->meta, 1).count;
	snprintf(job->etag, sizeof(job->etag), "%s", job->meta->etag);
	return headers_make(job, rule, &tags);
}

static void any_visit(const struct store_list_entry *entry, void *arg)
{
	struct newer *any = arg;

	any->found |= slice_eq(entry->key, any->row->key);
}

/* A lifecycle rule takes out a marker that is the last version of its key, also before it was sent:
 * the target gets it nevertheless, and does not keep the object. -ENOENT: the key goes on, or the
 * row is of an earlier bucket of that name. */
static int gone_check(struct s3 *s3, const struct s3_replicate_row *row,
	const struct s3_settings *settings, uint32_t target)
{
	const struct store_list_opts opts = {
		.bucket = row->bucket, .prefix = row->key, .entries_max = 1};
	struct newer any = {.s3 = s3, .row = row};
	bool ignored;
	int ret;

	if (row->kind != S3_REPLICATE_MARKER || row->time_ns < settings->bucket.created_ns)
		return -ENOENT;
	if (!s3_replication_marker_rule(settings->parsed[S3_CONFIG_REPLICATION], target, row->key))
		return -ECANCELED;
	ret = store_list_versions(s3->store, &opts, any_visit, &any, &ignored);
	return !ret && any.found ? -ENOENT : ret;
}

static int version_open(struct s3 *s3, struct s3_replicate_job *job,
	const struct s3_settings *settings, uint32_t target)
{
	const struct s3_replicate_row *row = job->row;
	const struct store_name name = {
		.bucket = row->bucket, .key = row->key, .version_id = row->version_id};
	bool ignored;
	int ret = store_get_open_version(s3->store, &name, &job->get, &ignored);

	if (ret)
		return ret == -ENOENT ? gone_check(s3, row, settings, target) : ret;
	job->meta = store_get_meta(job->get);
	return job->meta->delete_marker == (row->kind == S3_REPLICATE_MARKER)
		       ? job_fill(s3, job, settings, target)
		       : -ENOENT;
}

int s3_replicate_open(struct s3 *s3, struct flow_core *core, const struct s3_replicate_row *row,
	struct s3_replicate_job *job)
{
	struct s3_settings *settings;
	uint32_t target = 0;
	int ret;

	memset(job, 0, offsetof(struct s3_replicate_job, arena));
	job->why = NULL;
	job->row = row;
	mem_arena_init(&job->arena);
	ret = s3_settings_get(s3, core, row->bucket, &settings);
	if (ret)
		return ret;
	ret = rules_check(s3, job, settings, &target);
	if (!ret)
		ret = version_open(s3, job, settings, target);
	s3_settings_put(settings);
	if (ret)
		s3_replicate_close(job);
	return ret;
}

void s3_replicate_close(struct s3_replicate_job *job)
{
	store_get_close(job->get);
	job->get = NULL;
	mem_arena_free(&job->arena);
}

struct s3_replicate_part s3_replicate_part(const struct s3_replicate_job *job, uint32_t number)
{
	struct s3_parts part = s3_meta_parts(job->meta, number);

	return (struct s3_replicate_part){.offset = part.offset,
		.bytes = part.bytes,
		.checksum = job->composite ? s3_meta_part_sum(job->meta, number) : SLICE_NONE};
}

/* ---- How it ended. ---- */

struct note {
	const struct s3_replicate_row *row;
	enum s3_replicate_end end;
	struct slice target_version;
	struct mem_arena arena;
};

static bool is_one_change(enum s3_replicate_kind kind)
{
	return kind == S3_REPLICATE_TAGS || kind == S3_REPLICATE_RETENTION ||
	       kind == S3_REPLICATE_HOLD;
}

static int edit_status(const struct store_meta *current, struct slice *ret_headers, void *arg)
{
	static const enum s3_replica_state STATES[] = {
		[S3_REPLICATE_END_SENT] = S3_REPLICA_COMPLETED,
		[S3_REPLICATE_END_FAILED] = S3_REPLICA_FAILED,
		[S3_REPLICATE_END_DROPPED] = S3_REPLICA_NONE,
	};
	struct note *note = arg;
	struct slice headers = slice_of(current->headers, current->headers_len);
	struct s3_replica_of replica = s3_replica_of(headers, note->row->target);

	if (current->delete_marker || s3_replica_is_replica(headers))
		return -ECANCELED;
	/* An earlier change failed meanwhile: the replica lacks that one. */
	if (replica.state == S3_REPLICA_FAILED && note->end == S3_REPLICATE_END_SENT &&
		is_one_change(note->row->kind))
		return -ECANCELED;
	replica.state = STATES[note->end];
	if (note->target_version.len)
		replica.id = note->target_version;
	return s3_replica_set(headers, note->row->target, &replica, &note->arena, ret_headers);
}

int s3_replicate_note_with(struct s3 *s3, const struct s3_replicate_row *row,
	enum s3_replicate_end end, struct slice target_version, struct store_outbox_row *outbox_row)
{
	const struct store_name name = {
		.bucket = row->bucket, .key = row->key, .version_id = row->version_id};
	/* An id ends at a space there. */
	struct note note = {
		.row = row, .end = end, .target_version = slice_split(&target_version, ' ')};
	int ret;

	if (row->kind == S3_REPLICATE_MARKER || row->kind == S3_REPLICATE_NOTHING)
		return 0;
	mem_arena_init(&note.arena);
	ret = store_edit(s3->store, &name, edit_status, &note, outbox_row);
	mem_arena_free(&note.arena);
	return ret == -ECANCELED ? 0 : ret;
}

int s3_replicate_note(struct s3 *s3, const struct s3_replicate_row *row, enum s3_replicate_end end,
	struct slice target_version)
{
	return s3_replicate_note_with(s3, row, end, target_version, NULL);
}
