/* s3/object/sweep.c: deletes what nobody can reach any more of uploads: those of deleted buckets,
 * fetches of an earlier run, and parts whose upload has ended; and configurations of deleted
 * buckets. A deletion of a bucket that a crash cut short leaves the first and the configurations, a
 * crash behind the commit of a part the last of uploads. */
#include <errno.h>
#include <stdio.h>

#include "document/document.h"
#include "s3/core/call.h"
#include "s3/object/multipart.h"
#include "s3/origin.h"

/* Longer than a sweep takes. */
#define SWEEP_NS (86400 * NS_PER_S)

struct sweep {
	struct s3 *s3;
	struct flow_core *core;
	const _Atomic bool *ending; /* NULL: it runs to its end */
	/* Fetches from before it are swept, too; ids begin with their time. Empty: no fetches are
	 * swept but those of deleted buckets. */
	char until[17];
	char beyond[17]; /* and those from behind it: the clock was ahead */
	char last[S3_UPLOAD_NAME_MAX];
	uint32_t count;
	int ret; /* the first deletion that failed; the others go on */
};

/* Takes the result of a deletion. */
static void sweep_note(struct sweep *sweep, int ret)
{
	if (!ret)
		sweep->count++;
	else if (ret != -ENOENT && !sweep->ret)
		sweep->ret = ret;
}

static bool is_ending(const struct sweep *sweep)
{
	return sweep->ending && atomic_load(sweep->ending);
}

/* ---- Records. ---- */

/* Whether the bucket of the record "u/BUCKET/ID" was deleted. The bucket is looked up after the
 * record was seen: a record that is not of the bucket that has the name now is of none. One that
 * cannot be read stays. */
static bool is_orphan(const struct sweep *sweep, struct slice name, struct store_get *get)
{
	struct slice id = slice_from(name, name.len - S3_UPLOAD_ID_LEN);
	struct slice bucket_name = slice_to(slice_from(name, 2), name.len - S3_UPLOAD_ID_LEN - 3);
	struct store_bucket bucket;
	struct buf key;
	bool orphan = false;
	int ret;

	buf_init(&key, LIMIT_KEY_LEN_MAX);
	if (!s3_upload_key(sweep->core, get, &key)) {
		ret = store_bucket_get(sweep->s3->store, bucket_name, &bucket);
		orphan = ret == -ENOENT || (!ret && !s3_upload_is_of(id, buf_slice(&key), &bucket,
							    store_get_meta(get)->mtime_ns));
	}
	buf_free(&key);
	return orphan;
}

/* Whether a fetch is of an earlier run. */
static bool is_former(const struct sweep *sweep, struct slice name)
{
	struct slice time = slice_to(slice_from(name, name.len - S3_UPLOAD_ID_LEN), 16);

	if (!sweep->until[0])
		return false;
	return slice_cmp(time, slice_str(sweep->until)) < 0 ||
	       slice_cmp(time, slice_str(sweep->beyond)) > 0;
}

static void record_visit(const struct store_list_entry *entry, void *arg)
{
	struct sweep *sweep = arg;
	struct slice name = entry->key;
	struct store_get *get;
	bool ignored, ended;

	slice_copy_str(name, sweep->last, sizeof(sweep->last));
	if (is_ending(sweep) || name.len < S3_UPLOAD_ID_LEN + 4 ||
		store_get_open(sweep->s3->store, SLICE(S3_UPLOADS_BUCKET), name, &get, &ignored))
		return;
	ended = (s3_origin_is_copy(store_get_meta(get)) && is_former(sweep, name)) ||
		is_orphan(sweep, name, get);
	store_get_close(get);
	if (ended)
		sweep_note(sweep, s3_upload_drop(sweep->s3, name));
}

static int records_sweep(struct sweep *sweep, struct slice prefix)
{
	bool more = true;
	int ret = 0;

	sweep->last[0] = '\0';
	while (more && !ret && !is_ending(sweep)) {
		const struct store_list_opts opts = {.bucket = SLICE(S3_UPLOADS_BUCKET),
			.prefix = prefix,
			.after = slice_str(sweep->last),
			.entries_max = LIMIT_LIST_KEYS_MAX};

		ret = store_list(sweep->s3->store, &opts, record_visit, sweep, &more);
	}
	return ret;
}

/* ---- Parts. ---- */

static void part_visit(const struct store_list_entry *entry, void *arg)
{
	struct sweep *sweep = arg;

	slice_copy_str(entry->key, sweep->last, sizeof(sweep->last));
}

/* Of the upload whose first part is in `last`. An upload's record is there before its parts, and
 * as long as they. */
static void upload_parts_sweep(struct sweep *sweep)
{
	struct slice parts =
		slice_to(slice_str(sweep->last), strlen(sweep->last) - strlen("00001"));
	char record[S3_UPLOAD_NAME_MAX];
	struct store_get *get;
	bool ignored;
	int ret;

	snprintf(record, sizeof(record), "u%.*s",
		SLICE_FMT(slice_to(slice_from(parts, 1), parts.len - 2)));
	ret = store_get_open(
		sweep->s3->store, SLICE(S3_UPLOADS_BUCKET), slice_str(record), &get, &ignored);
	if (!ret)
		store_get_close(get);
	else if (ret == -ENOENT)
		sweep_note(sweep,
			document_delete_under(sweep->s3->store, SLICE(S3_UPLOADS_BUCKET), parts));
	else
		sweep_note(sweep, ret);
	/* Behind them. */
	slice_copy_str(SLICE("~"), sweep->last + parts.len, sizeof(sweep->last) - parts.len);
}

static int parts_sweep(struct sweep *sweep, struct slice prefix)
{
	bool more = true;
	int ret = 0;

	sweep->last[0] = '\0';
	while (more && !ret && !is_ending(sweep)) {
		struct store_list_opts opts = {.bucket = SLICE(S3_UPLOADS_BUCKET),
			.prefix = prefix,
			.after = slice_str(sweep->last),
			.entries_max = 1};

		ret = store_list(sweep->s3->store, &opts, part_visit, sweep, &more);
		/* Not when none was visited. */
		if (!ret && strlen(sweep->last) > S3_UPLOAD_ID_LEN &&
			!slice_ends(slice_str(sweep->last), SLICE("~")))
			upload_parts_sweep(sweep);
	}
	return ret;
}

/* ---- Both. ---- */

/* prefix: of the records' names; changed into that of the parts'. */
static int uploads_sweep(struct sweep *sweep, char *prefix)
{
	int ret = records_sweep(sweep, slice_str(prefix));

	if (!ret) {
		prefix[0] = 'p';
		ret = parts_sweep(sweep, slice_str(prefix));
	}
	return ret && ret != -ENOENT ? ret : sweep->ret;
}

int s3_uploads_delete_all(struct s3 *s3, struct flow_core *core, struct slice bucket)
{
	struct sweep sweep = {.s3 = s3, .core = core};
	char prefix[S3_UPLOAD_NAME_MAX];

	s3_upload_name(bucket, "", 0, prefix);
	return uploads_sweep(&sweep, prefix);
}

int s3_uploads_sweep(struct s3 *s3, struct flow_core *core, const _Atomic bool *ending)
{
	struct sweep sweep = {.s3 = s3, .core = core, .ending = ending};
	uint64_t now_ns = clock_real_ns();
	char prefix[] = "u/";
	int ret;

	snprintf(sweep.until, sizeof(sweep.until), "%016llx", (unsigned long long)now_ns);
	snprintf(sweep.beyond, sizeof(sweep.beyond), "%016llx",
		(unsigned long long)(now_ns + SWEEP_NS));
	ret = uploads_sweep(&sweep, prefix);
	if (sweep.count)
		log_info("s3", "%u uploads that an earlier run did not end were deleted",
			sweep.count);
	return ret;
}

/* ---- Configurations. ---- */

static bool has_no_bucket(const struct sweep *sweep, struct slice bucket, uint64_t owner)
{
	struct store_bucket now;
	int ret = store_bucket_get(sweep->s3->store, bucket, &now);

	return ret == -ENOENT || (!ret && now.id != owner);
}

/* A document "b/BUCKET/KIND". The bucket is looked up after the owner was read: a document whose
 * owner is not the bucket of that name now has none, or its bucket is being created. One that
 * cannot be read stays. */
static bool document_visit(struct slice name, void *arg)
{
	struct sweep *sweep = arg;
	struct slice rest = slice_from(name, 2), bucket;
	ptrdiff_t len = slice_find(rest, SLICE("/"));
	uint64_t owner;

	if (is_ending(sweep))
		return false;
	if (len < 0 || document_owner(sweep->s3->store, name, &owner) || !owner)
		return true;
	bucket = slice_to(rest, (size_t)len);
	if (!has_no_bucket(sweep, bucket, owner))
		return true;
	fiber_mutex_lock(&sweep->s3->owning);
	if (has_no_bucket(sweep, bucket, owner))
		sweep_note(sweep, document_delete_of(sweep->s3->store, name, owner));
	fiber_mutex_unlock(&sweep->s3->owning);
	return true;
}

int s3_configs_sweep(struct s3 *s3, const _Atomic bool *ending)
{
	struct sweep sweep = {.s3 = s3, .ending = ending};
	int ret = document_list(s3->store, SLICE("b/"), SLICE_NONE, document_visit, &sweep);

	if (sweep.count)
		log_info("s3", "%u configurations without their buckets were deleted", sweep.count);
	return ret ? ret : sweep.ret;
}
