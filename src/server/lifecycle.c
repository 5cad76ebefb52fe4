/* server/lifecycle.c: the job's questions become S3's, and its answers the job's. */
#include "server/lifecycle.h"

#define INTERVAL_NS_MIN (NS_PER_S)
#define INTERVAL_NS_MAX (3600 * NS_PER_S)
/* Walks in a day, between those bounds. */
#define WALKS_A_DAY 10u

static int rules_open(void *arg, struct slice bucket, void **ret_rules)
{
	struct lifecycle *lifecycle = arg;
	struct s3_lifecycle *rules;
	int ret = s3_lifecycle_open(lifecycle->s3, lifecycle->core, bucket, &rules);

	if (!ret)
		*ret_rules = rules;
	return ret;
}

static void rules_close(void *rules)
{
	s3_lifecycle_close(rules);
}

static enum job_verdict judge(
	void *rules, const struct job_version *version, struct store_flags *ret_flags)
{
	static const enum job_verdict verdicts[] = {
		[S3_VERDICT_KEEP] = JOB_KEEP,
		[S3_VERDICT_LOOK] = JOB_LOOK,
		[S3_VERDICT_EXPIRE] = JOB_EXPIRE,
		[S3_VERDICT_DELETE_VERSION] = JOB_DELETE_VERSION,
		[S3_VERDICT_RECLASS] = JOB_RECLASS,
	};
	const struct s3_lifecycle_version asked = {.key = version->key,
		.meta = version->meta,
		.whole = version->whole,
		.current = version->current,
		.alone = version->alone,
		.noncurrent_ns = version->noncurrent_ns,
		.newer = version->newer};

	return verdicts[s3_lifecycle_judge(rules, &asked, ret_flags)];
}

static void tell(void *rules, const struct job_done *done)
{
	const struct s3_lifecycle_done told = {.deleted = done->verdict != JOB_RECLASS,
		.key = done->key,
		.meta = done->meta,
		.version_id = done->version_id,
		.delete_marker = done->delete_marker,
		.flags = done->flags};

	s3_lifecycle_tell(rules, &told);
}

static int abort_uploads(void *rules, uint32_t *ret_count)
{
	return s3_lifecycle_abort_uploads(rules, ret_count);
}

static const struct job_lifecycle_ops ops = {
	.open = rules_open,
	.close = rules_close,
	.judge = judge,
	.may_delete = s3_lifecycle_may_delete,
	.tell = tell,
	.abort_uploads = abort_uploads,
};

int lifecycle_open(struct lifecycle *lifecycle, struct store *store, uint64_t day_seconds)
{
	const struct job_lifecycle_opts opts = {.store = store,
		.interval_ns = MIN(MAX(day_seconds * NS_PER_S / WALKS_A_DAY, INTERVAL_NS_MIN),
			INTERVAL_NS_MAX),
		.ops = &ops,
		.arg = lifecycle};

	return job_lifecycle_open(lifecycle->core->reactor, &opts, &lifecycle->job);
}

void lifecycle_close(struct lifecycle *lifecycle)
{
	job_lifecycle_close(lifecycle->job);
	lifecycle->job = NULL;
}
