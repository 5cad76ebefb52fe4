/* server/job/lifecycle.c: carries out buckets' lifecycle rules. One fiber walks the versions of
 * each bucket with rules, page by page, and rests between pages, so that requests go first. Its
 * commit decides every change again, so a version written meanwhile is not changed, one that became
 * current is not deleted as one that was not, and nothing is done by rules that were removed or
 * replaced meanwhile, nor by tags that the version no longer has: a later walk sees those. */
#include "server/job/job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_ENTRIES 500u
#define PAGE_REST_NS (2 * NS_PER_MS)

DEFINE_COUNTER(walks, "nebulaio_lifecycle_walks_total", NULL,
	"Passes over all buckets with lifecycle rules.");
DEFINE_COUNTER(
	expired, "nebulaio_lifecycle_expired_total", NULL, "Current objects that rules expired.");
DEFINE_COUNTER(deleted, "nebulaio_lifecycle_versions_deleted_total", NULL,
	"Versions and delete markers that rules deleted.");
DEFINE_COUNTER(reclassed, "nebulaio_lifecycle_transitions_total", NULL,
	"Versions whose storage class rules changed.");
DEFINE_COUNTER(aborted, "nebulaio_lifecycle_uploads_aborted_total", NULL,
	"Multipart uploads that rules aborted.");
DEFINE_COUNTER(failures, "nebulaio_lifecycle_failures_total", NULL,
	"Lifecycle steps that failed; the next walk tries them again.");

struct job_lifecycle {
	struct job_lifecycle_opts opts;
	struct fiber *closer;
	struct fiber *fiber;
	bool ending;
	bool ended;
};

/* The walk judges a version when it knows the next one: only then does it know whether the version
 * is the key's only one. */
struct kept {
	bool any;
	size_t key_len;
	char key[LIMIT_KEY_LEN_MAX];
	struct store_meta meta;
	bool current;
	uint64_t noncurrent_ns;
	uint32_t newer;
};

struct walk {
	struct job_lifecycle *job;
	struct slice bucket;
	uint64_t bucket_id; /* of the bucket whose rules these are */
	void *rules;
	struct kept last;
	int ret; /* why it ends before its last page */
};

/* ---- Actions. ---- */

struct decided {
	const struct walk *walk;
	const struct store_lifecycle_version *version;
	enum store_lifecycle_verdict verdict;
	struct store_flags flags;
};

/* The rules judge again: a user may have changed the version's tags or its lock. */
static int check_again(const struct store_meta *current, void *arg)
{
	const struct decided *decided = (const struct decided *)arg;
	const struct job_lifecycle_ops *ops = decided->walk->job->opts.ops;
	struct store_lifecycle_version version = *decided->version;
	struct store_flags flags = {.mask = 0};
	void *rules = decided->walk->rules;

	if (!current || current->mtime_ns != version.meta->mtime_ns || !ops->is_current(rules))
		return -ECANCELED;
	version.meta = current;
	version.whole = true;
	if (ops->judge(rules, &version, &flags) != decided->verdict ||
		flags.flags != decided->flags.flags)
		return -ECANCELED;
	if (decided->verdict == STORE_LIFECYCLE_DELETE_VERSION && !ops->may_delete(current))
		return -ECANCELED;
	return 0;
}

static void told(struct walk *walk, struct counter *counter, const struct store_outcome *outcome)
{
	if (!outcome->ret)
		counter_add(counter, 1);
	else if (outcome->ret != -ECANCELED && outcome->ret != -ENOENT)
		counter_add(&failures, 1);
	walk->job->opts.ops->tell_end(walk->rules, outcome);
}

static void version_end(
	struct walk *walk, const struct store_lifecycle_version *version, bool expire)
{
	const struct store_lifecycle_action action = {
		.verdict = expire ? STORE_LIFECYCLE_EXPIRE : STORE_LIFECYCLE_DELETE_VERSION,
		.key = version->key,
		.meta = version->meta};
	struct decided decided = {.walk = walk, .version = version, .verdict = action.verdict};
	struct store_deletion deletion = {.key = version->key,
		.noncurrent = !version->current,
		.check = check_again,
		.arg = &decided,
		.outbox_row = walk->job->opts.ops->tell_begin(walk->rules, &action)};
	struct store_outcome outcome;

	if (!expire)
		deletion.version_id = slice_str(version->meta->version_id);
	outcome.ret = store_delete_each(
		walk->job->opts.store, walk->bucket, walk->bucket_id, &deletion, 1);
	if (!outcome.ret)
		outcome.ret = deletion.result;
	outcome.delete_marker = expire && deletion.delete_marker;
	outcome.version_id = slice_str(deletion.version_id_out);
	told(walk, expire ? &expired : &deleted, &outcome);
}

static void version_reclass(
	struct walk *walk, const struct store_lifecycle_version *version, struct store_flags flags)
{
	struct decided decided = {.walk = walk,
		.version = version,
		.verdict = STORE_LIFECYCLE_RECLASS,
		.flags = flags};
	const struct store_condition condition = {.check = check_again, .arg = &decided};
	const struct store_name name = {.bucket = walk->bucket,
		.key = version->key,
		.version_id = slice_str(version->meta->version_id),
		.bucket_id = walk->bucket_id};
	const struct store_lifecycle_action action = {.verdict = STORE_LIFECYCLE_RECLASS,
		.key = version->key,
		.meta = version->meta,
		.flags = flags};
	struct store_outbox_row *outbox_row = walk->job->opts.ops->tell_begin(walk->rules, &action);
	struct store_outcome outcome = {.delete_marker = false};

	outcome.ret = store_set_flags(walk->job->opts.store, &name, flags, condition, outbox_row);
	told(walk, &reclassed, &outcome);
}

static void version_act(struct walk *walk, struct store_lifecycle_version *version)
{
	const struct job_lifecycle_ops *ops = walk->job->opts.ops;
	const struct store_name name = {.bucket = walk->bucket,
		.key = version->key,
		.version_id = slice_str(version->meta->version_id),
		.bucket_id = walk->bucket_id};
	struct store_flags flags = {.mask = 0};
	enum store_lifecycle_verdict verdict;
	struct store_get *get = NULL;
	bool ignored;

	walk->ret = ops->renew(walk->rules);
	if (walk->ret)
		return;
	verdict = ops->judge(walk->rules, version, &flags);
	if (verdict == STORE_LIFECYCLE_LOOK) {
		if (store_get_open_version(walk->job->opts.store, &name, &get, &ignored))
			return;
		version->meta = store_get_meta(get);
		version->whole = true;
		verdict = ops->judge(walk->rules, version, &flags);
	}
	if (verdict == STORE_LIFECYCLE_EXPIRE || verdict == STORE_LIFECYCLE_DELETE_VERSION)
		version_end(walk, version, verdict == STORE_LIFECYCLE_EXPIRE);
	else if (verdict == STORE_LIFECYCLE_RECLASS)
		version_reclass(walk, version, flags);
	store_get_close(get);
}

/* ---- Walking. ---- */

static void kept_act(struct walk *walk, bool alone)
{
	struct kept *kept = &walk->last;
	struct store_lifecycle_version version = {.key = slice_of(kept->key, kept->key_len),
		.meta = &kept->meta,
		.current = kept->current,
		.alone = alone,
		.noncurrent_ns = kept->noncurrent_ns,
		.newer = kept->newer};

	if (kept->any)
		version_act(walk, &version);
}

static void visit(const struct store_list_entry *entry, void *arg)
{
	struct walk *walk = (struct walk *)arg;
	struct kept *kept = &walk->last;
	bool same_key = kept->any && slice_eq(entry->key, slice_of(kept->key, kept->key_len));
	/* A page begins with the key's newest version again, if the version that the last page
	 * ended with is gone (store/call/list_versions.c): the count of newer ones begins again,
	 * too. */
	bool follows = same_key && !entry->is_latest;
	struct kept next = {
		.any = true, .key_len = entry->key.len, .meta = *entry->meta, .current = !follows};

	if (walk->job->ending || walk->ret)
		return;
	if (follows) {
		next.noncurrent_ns = kept->meta.mtime_ns;
		next.newer = kept->current ? 0 : kept->newer + 1;
	}
	kept_act(walk, kept->current && !same_key);
	memcpy(next.key, entry->key.data, entry->key.len);
	*kept = next;
}

static void job_rest(struct job_lifecycle *job, uint64_t ns);

static int bucket_walk(struct walk *walk)
{
	struct job_lifecycle *job = walk->job;
	bool more = true;
	int ret = 0;

	while (more && !ret && !job->ending) {
		/* Copies, because an action must not change where the next page starts. */
		char key[LIMIT_KEY_LEN_MAX], version[33];
		struct store_list_opts opts = {.bucket = walk->bucket, .entries_max = PAGE_ENTRIES};

		if (walk->last.any) {
			memcpy(key, walk->last.key, walk->last.key_len);
			memcpy(version, walk->last.meta.version_id, sizeof(version));
			opts.after = slice_of(key, walk->last.key_len);
			opts.version_after = slice_str(version);
		}
		ret = store_list_versions(job->opts.store, &opts, visit, walk, &more);
		ret = ret ? ret : walk->ret;
		job_rest(job, PAGE_REST_NS);
	}
	if (!ret && !job->ending)
		kept_act(walk, walk->last.current);
	return ret ? ret : walk->ret;
}

static void bucket_run(struct job_lifecycle *job, const char *name, uint64_t id)
{
	const struct job_lifecycle_ops *ops = job->opts.ops;
	struct walk *walk = (struct walk *)calloc(1, sizeof(*walk));
	uint32_t count = 0;
	int ret;

	if (!walk)
		return;
	walk->job = job;
	walk->bucket = slice_str(name);
	walk->bucket_id = id;
	ret = ops->open(job->opts.arg, walk->bucket, &walk->rules);
	if (!ret) {
		ret = bucket_walk(walk);
		if (!ret && !job->ending)
			ret = ops->abort_uploads(walk->rules, &count);
		counter_add(&aborted, count);
		ops->close(walk->rules);
	}
	free(walk);
	if (ret && ret != -ENOENT && ret != -ESHUTDOWN) {
		counter_add(&failures, 1);
		log_warn("job", "lifecycle of bucket %s: %s; the server will try again", name,
			strerror(-ret));
	}
}

struct next {
	bool any;
	uint64_t id;
	char name[LIMIT_BUCKET_LEN_MAX + 1];
};

static bool next_visit(const struct store_bucket *bucket, void *arg)
{
	struct next *next = (struct next *)arg;

	next->any = true;
	next->id = bucket->id;
	memcpy(next->name, bucket->name, sizeof(next->name));
	return false;
}

static void buckets_run(struct job_lifecycle *job)
{
	struct next next = {.any = true};

	while (next.any && !job->ending) {
		char after[LIMIT_BUCKET_LEN_MAX + 1];

		memcpy(after, next.name, sizeof(after));
		next.any = false;
		if (store_bucket_list(job->opts.store, slice_str(after), next_visit, &next))
			break;
		/* The names of the server's own buckets start with a dot. */
		if (next.any && next.name[0] != '.')
			bucket_run(job, next.name, next.id);
	}
	counter_add(&walks, 1);
}

/* ---- The fiber. ---- */

/* Sleeps for ns, or until the job ends. */
static void job_rest(struct job_lifecycle *job, uint64_t ns)
{
	uint64_t deadline_ns = clock_now_ns() + ns;

	while (!job->ending && clock_now_ns() < deadline_ns)
		(void)fiber_park_until(deadline_ns);
}

static void job_main(void *arg)
{
	struct job_lifecycle *job = (struct job_lifecycle *)arg;

	job->fiber = fiber_self();
	while (!job->ending) {
		job_rest(job, job->opts.interval_ns);
		if (!job->ending)
			buckets_run(job);
	}
	job->ended = true;
	if (job->closer)
		fiber_wake(job->closer);
}

int job_lifecycle_open(struct reactor *reactor, const struct job_lifecycle_opts *opts,
	struct job_lifecycle **ret_job)
{
	struct job_lifecycle *job = (struct job_lifecycle *)calloc(1, sizeof(*job));
	int ret;

	if (!job)
		return -ENOMEM;
	job->opts = *opts;
	ret = fiber_spawn(reactor, "lifecycle", job_main, job);
	if (ret) {
		free(job);
		return ret;
	}
	*ret_job = job;
	return 0;
}

void job_lifecycle_close(struct job_lifecycle *job)
{
	if (!job)
		return;
	job->ending = true;
	job->closer = fiber_self();
	if (job->fiber && !job->ended)
		fiber_wake(job->fiber);
	while (!job->ended)
		fiber_park();
	free(job);
}
