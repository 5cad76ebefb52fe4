/* replicate/late.c: looks which rows wait longer than the threshold of their rules, in the order of
 * their commits, also those that are in the store alone. */
#include "replicate/replicate_priv.h"

#include <stdlib.h>

#define LOOK_NS_MAX (5 * NS_PER_S)
#define LOOK_NS_MIN (200 * NS_PER_MS)

/* Sent a moment ago, its row may still be there. */
static bool still_waits(struct replicate *replicate, const struct s3_replicate_row *row)
{
	struct s3_replicate_job *job = malloc(sizeof(*job));
	int ret = job ? s3_replicate_open(replicate->opts.s3, replicate->opts.core, row, job) : -1;

	if (!ret)
		s3_replicate_close(job);
	free(job);
	return !ret;
}

/* Rows come in the order of their commits: behind one that is not late, none is, or but a little.
 */
static bool visit(uint64_t number, struct slice version_id, struct slice text, void *arg)
{
	struct replicate *replicate = arg;
	struct s3_replicate_row row;

	if (atomic_load(&replicate->ending))
		return false;
	if (s3_replicate_row_parse(number, version_id, text, &row)) {
		/* The clock was ahead. It is looked at again, or passed with a later one. */
		if (row.time_ns > clock_real_ns()) {
			fiber_yield();
			return true;
		}
		if (s3_replicate_late_ns(replicate->opts.s3, &row) > clock_real_ns())
			return false;
		/* Before it waits: a lane that has sent the row looks at this. */
		replicate->late_number = number;
		if (row.rule.len && still_waits(replicate, &row))
			s3_replicate_tell_missed(replicate->opts.s3, replicate->opts.core, &row);
		/* There may be a million of them. */
		if (row.rule.len)
			fiber_yield();
	}
	replicate->late_number = number;
	return true;
}

void late_main(void *arg)
{
	static const struct s3_replicate_row NOW = {.time_ns = 0};
	struct replicate *replicate = arg;
	uint64_t look_ns = MIN(
		LOOK_NS_MAX, s3_replicate_late_ns(replicate->opts.s3, &NOW) / S3_REPLICATE_MINUTES);

	replicate->late_fiber = fiber_self();
	look_ns = MAX(look_ns, LOOK_NS_MIN);
	while (!atomic_load(&replicate->ending)) {
		uint64_t until_ns = clock_now_ns() + look_ns;

		if (store_outbox_visit_all(
			    replicate->opts.store, replicate->late_number, visit, replicate))
			log_warn("replicate", "cannot read which rows are late");
		while (!atomic_load(&replicate->ending) && clock_now_ns() < until_ns)
			(void)fiber_park_until(until_ns);
	}
	replicate->late_fiber = NULL;
	replicate->late_ended = true;
	if (replicate->closer)
		fiber_wake(replicate->closer);
}
