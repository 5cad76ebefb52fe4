/* server/lifecycle.c: implements the lifecycle job's functions by S3's rules. */
#include "server/lifecycle.h"

#define INTERVAL_NS_MIN (NS_PER_S)
#define INTERVAL_NS_MAX (3600 * NS_PER_S)
/* Walks in a day of the rules, within the bounds below. */
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

static int renew(void *rules)
{
	return s3_lifecycle_renew(rules);
}

static bool is_current(const void *rules)
{
	return s3_lifecycle_is_current(rules);
}

static enum store_lifecycle_verdict judge(
	void *rules, const struct store_lifecycle_version *version, struct store_flags *ret_flags)
{
	return s3_lifecycle_judge(rules, version, ret_flags);
}

static struct store_outbox_row *tell_begin(void *rules, const struct store_lifecycle_action *action)
{
	return s3_lifecycle_tell_begin(rules, action);
}

static void tell_end(void *rules, const struct store_outcome *outcome)
{
	s3_lifecycle_tell_end(rules, outcome);
}

static int abort_uploads(void *rules, uint32_t *ret_count)
{
	return s3_lifecycle_abort_uploads(rules, ret_count);
}

static const struct job_lifecycle_ops ops = {
	.open = rules_open,
	.close = rules_close,
	.renew = renew,
	.is_current = is_current,
	.judge = judge,
	.may_delete = s3_lifecycle_may_delete,
	.tell_begin = tell_begin,
	.tell_end = tell_end,
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
