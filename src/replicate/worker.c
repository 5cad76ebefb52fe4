/* replicate/worker.c: the worker's own fiber: starts a course for each registered target, and for
 * those that are gone but have rows, counts what an earlier start left, and walks buckets whose
 * existing objects are to be replicated. */
#include "replicate/replicate_priv.h"

#include <errno.h>
#include <stdlib.h>

#define LOOK_NS	     (5 * NS_PER_S) /* without a notice */
#define HELD_PARTS   4u		    /* one part of the region in this many may be held by bodies */
#define STEP_REST_NS (10 * NS_PER_MS) /* between steps of a resync: requests go first */

static void work_arrived(struct reactor_msg *msg)
{
	struct replicate *replicate = CONTAINER_OF(msg, struct replicate, work_msg);

	atomic_store(&replicate->posted, false);
	replicate->poked = true;
	for (uint32_t i = 0; i < replicate->course_count; i++)
		course_poke(replicate->courses[i]);
	if (replicate->fiber && !replicate->ended)
		fiber_wake(replicate->fiber);
	if (replicate->closer)
		fiber_wake(replicate->closer);
}

/* On any thread. */
static void on_work(void *arg)
{
	struct replicate *replicate = arg;

	if (!atomic_exchange(&replicate->posted, true))
		reactor_post(replicate->opts.core->reactor, &replicate->work_msg);
}

/* ---- Courses. ---- */

static bool has_course(const struct replicate *replicate, struct slice name)
{
	for (uint32_t i = 0; i < replicate->course_count; i++)
		if (slice_eq(slice_str(replicate->courses[i]->name), name))
			return true;
	return false;
}

/* Ends the first course that is over, so that another one has its place. */
static void course_end_one(struct replicate *replicate)
{
	uint32_t count = replicate->course_count, i = 0;
	struct course *course;

	while (i < count && !replicate->courses[i]->over)
		i++;
	if (i == count)
		return;
	course = replicate->courses[i];
	memmove(replicate->courses + i, replicate->courses + i + 1,
		(count - i - 1) * sizeof(struct course *));
	replicate->course_count--;
	if (!replicate->closer)
		replicate->closer = fiber_self();
	course_close(course);
	if (replicate->closer == fiber_self())
		replicate->closer = NULL;
}

static void course_start(struct replicate *replicate, const char *name)
{
	struct course *course = NULL;
	int ret = -EDQUOT;

	if (replicate->course_count == COURSES_MAX)
		course_end_one(replicate);
	if (replicate->course_count < COURSES_MAX)
		ret = course_open(replicate, name, &course);
	if (!ret)
		replicate->courses[replicate->course_count++] = course;
	else if (!replicate->told_course)
		log_error("replicate", "%s: nothing is sent: %s; the server tries again", name,
			strerror(-ret));
	replicate->told_course = ret != 0;
}

/* A target that was removed by force, and whose rows have not all been failed yet. */
static void course_of_gone(struct replicate *replicate, struct slice target)
{
	char name[S3_REPLICATE_NAME_MAX + 1];
	struct s3_replicate_place place;
	int ret = s3_replicate_place(replicate->opts.s3, target, &place);

	secret_wipe(&place, sizeof(place));
	if (ret == -ENOENT && replicate->course_count < S3_REPLICATE_TARGETS_MAX &&
		!has_course(replicate, target) && !slice_copy_str(target, name, sizeof(name)))
		course_start(replicate, name);
}

/* ---- What an earlier start left. ---- */

static bool left_visit(uint64_t number, struct slice version_id, struct slice text, void *arg)
{
	struct replicate *replicate = arg;
	struct s3_replicate_row row;

	replicate->first_number = number;
	if (!s3_replicate_row_parse(number, version_id, text, &row) ||
		row.kind == S3_REPLICATE_NOTHING)
		return true;
	s3_replicate_pend(replicate->opts.s3, &row, 1);
	course_of_gone(replicate, row.target);
	return true;
}

/* The course of a target that is no longer registered fails the rows, and stays until its place is
 * needed. Rows that come for it later than that fail at the next start. */
static void courses_start(struct replicate *replicate)
{
	struct s3_replicate_told *list = calloc(S3_REPLICATE_TARGETS_MAX, sizeof(*list));
	uint32_t count = list ? s3_replicate_list(replicate->opts.s3, list) : 0;

	for (uint32_t i = 0; i < count; i++) {
		if (!has_course(replicate, slice_str(list[i].place.name)))
			course_start(replicate, list[i].place.name);
	}
	free(list);
}

/* ---- Resyncs. ---- */

/* True: there is more to do at once. */
static bool resync_step(struct replicate *replicate)
{
	struct s3_replicate_resync resync;
	bool more = false;
	int ret;

	if (clock_now_ns() < replicate->resync_ns)
		return false;
	ret = s3_replicate_resync_next(replicate->opts.s3, replicate->opts.core,
		slice_str(replicate->resync_failed), &resync);
	if (ret == -ENOENT)
		return false;
	if (!ret)
		ret = s3_replicate_resync_step(
			replicate->opts.s3, replicate->opts.core, &resync, &more);
	if (ret)
		memcpy(replicate->resync_failed, resync.name, sizeof(resync.name));
	if (ret && ret != -EAGAIN) {
		replicate->resync_ns = clock_now_ns() + LOOK_NS;
		log_warn("replicate", "resync of bucket %s: %s; the server tries again",
			resync.bucket, strerror(-ret));
	}
	if (!ret && !more)
		log_info("replicate", "resync of bucket %s: all that it had is noted",
			resync.bucket);
	return !ret;
}

/* ---- The fiber. ---- */

static void rest(struct replicate *replicate, uint64_t ns)
{
	uint64_t until_ns = clock_now_ns() + ns;

	while (!atomic_load(&replicate->ending) && !replicate->poked && clock_now_ns() < until_ns)
		(void)fiber_park_until(until_ns);
}

static void worker_main(void *arg)
{
	struct replicate *replicate = arg;
	bool more;

	replicate->fiber = fiber_self();
	if (store_outbox_visit(replicate->opts.store, 0, left_visit, replicate))
		log_warn("replicate", "cannot count what an earlier start left");
	while (!atomic_load(&replicate->ending)) {
		replicate->poked = false;
		courses_start(replicate);
		more = resync_step(replicate);
		rest(replicate, more ? STEP_REST_NS : LOOK_NS);
	}
	replicate->ended = true;
	if (replicate->closer)
		fiber_wake(replicate->closer);
}

int replicate_open(const struct replicate_opts *opts, struct replicate **ret_replicate)
{
	struct replicate *replicate = calloc(1, sizeof(*replicate));
	struct region_usage usage;
	int ret;

	if (!replicate)
		return -ENOMEM;
	replicate->opts = *opts;
	region_usage(opts->core->region, &usage);
	replicate->held_bytes_max = usage.frames_total * FRAME_BYTES / HELD_PARTS;
	replicate->work_msg.fn = work_arrived;
	ret = fiber_spawn(opts->core->reactor, "replicator", worker_main, replicate);
	if (ret) {
		free(replicate);
		return ret;
	}
	ret = fiber_spawn(opts->core->reactor, "replication late", late_main, replicate);
	if (ret) {
		replicate->late_ended = true;
		replicate_close(replicate);
		return ret;
	}
	s3_replicate_on_work(opts->s3, on_work, replicate);
	*ret_replicate = replicate;
	return 0;
}

void replicate_close(struct replicate *replicate)
{
	if (!replicate)
		return;
	s3_replicate_on_work(replicate->opts.s3, NULL, NULL);
	replicate->closer = fiber_self();
	atomic_store(&replicate->ending, true);
	while (!replicate->ended || !replicate->late_ended) {
		if (replicate->fiber && !replicate->ended)
			fiber_wake(replicate->fiber);
		if (replicate->late_fiber)
			fiber_wake(replicate->late_fiber);
		fiber_park();
	}
	for (uint32_t i = 0; i < replicate->course_count; i++)
		course_close(replicate->courses[i]);
	while (atomic_load(&replicate->posted))
		fiber_park();
	free(replicate);
}
