/* replicate/lane.c: sends one row at a time: a fiber that reads the version, and a thread for what
 * blocks, requests to the target and a file for long bodies. */
#include "replicate/replicate_priv.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>

/* ---- The thread. ---- */

static void done_arrived(struct reactor_msg *msg)
{
	struct lane *lane = CONTAINER_OF(msg, struct lane, done_msg);

	lane->done = true;
	fiber_wake(lane->fiber);
}

static void *thread_main(void *arg)
{
	struct lane *lane = arg;
	struct reactor *reactor = lane->course->replicate->opts.core->reactor;

	pthread_setname_np(pthread_self(), "replicate");
	pthread_mutex_lock(&lane->lock);
	for (;;) {
		while (!lane->fn && !lane->leaving)
			pthread_cond_wait(&lane->wake, &lane->lock);
		if (!lane->fn)
			break;
		pthread_mutex_unlock(&lane->lock);
		lane->fn(lane, lane->arg);
		pthread_mutex_lock(&lane->lock);
		lane->fn = NULL;
		reactor_help_end(reactor, &lane->done_msg);
	}
	pthread_mutex_unlock(&lane->lock);
	lane->course->replicate->opts.sender->close(lane->link);
	return NULL;
}

void lane_do(struct lane *lane, void (*fn)(struct lane *lane, void *arg), void *arg)
{
	lane->done = false;
	lane->done_msg.fn = done_arrived;
	reactor_help_begin(lane->course->replicate->opts.core->reactor);
	pthread_mutex_lock(&lane->lock);
	lane->arg = arg;
	lane->fn = fn;
	pthread_cond_signal(&lane->wake);
	pthread_mutex_unlock(&lane->lock);
	while (!lane->done)
		fiber_park();
}

static int thread_start(struct lane *lane)
{
	sigset_t all, before;
	int error;

	/* Signals are for the threads that expect them. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&lane->thread, NULL, thread_main, lane);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -error;
}

/* ---- The fiber. ---- */

/* Of a target that is gone all rows fail: the first one tells it. */
static void tell_failed(struct course *course, const struct window_row *row, const char *why)
{
	if (course->told_gone)
		return;
	course->told_gone = !course->generation;
	log_warn("replicate",
		"%s: %.*s/%.*s, version %.*s (request %.*s) can not be replicated: %s",
		course->name, SLICE_FMT(row->row.bucket), SLICE_FMT(row->row.key),
		SLICE_FMT(row->row.version_id), SLICE_FMT(row->row.request_id), why);
}

static void tell_refused(const struct course *course, struct window_row *row, const char *why)
{
	if (row->told)
		return;
	row->told = true;
	log_warn("replicate",
		"%s: the target does not take %.*s/%.*s, version %.*s (request %.*s): %s; the "
		"server tries again",
		course->name, SLICE_FMT(row->row.bucket), SLICE_FMT(row->row.key),
		SLICE_FMT(row->row.version_id), SLICE_FMT(row->row.request_id), why);
}

static void row_done(struct course *course, struct window_row *row, enum outcome outcome)
{
	struct s3 *s3 = course->replicate->opts.s3;

	row->phase = WINDOW_DONE;
	if (row->row.kind == S3_REPLICATE_NOTHING)
		return;
	s3_replicate_pend(s3, &row->row, -1);
	if (outcome == OUTCOME_SENT || outcome == OUTCOME_FAILED)
		s3_replicate_count_end(s3, &row->row, outcome == OUTCOME_SENT);
}

/* Nothing is sent for a while, longer after each time; the first success ends that. */
static void course_pause(struct course *course, const char *why)
{
	uint64_t now_ns = clock_now_ns();

	if (now_ns < course->paused_until_ns)
		return;
	course->pause_ns =
		course->pause_ns ? MIN(2 * course->pause_ns, WINDOW_PAUSE_MAX) : WINDOW_PAUSE_MIN;
	course->paused_until_ns = now_ns + course->pause_ns;
	if (!course->told_away)
		log_warn("replicate",
			"%s: the target takes nothing now: %s; the server tries again",
			course->name, why);
	course->told_away = true;
}

/* A failure that cannot be noted now is tried again. */
static enum outcome note_failed(
	const struct course *course, const struct window_row *row, const char *why)
{
	const struct replicate_opts *opts = &course->replicate->opts;
	int ret = s3_replicate_note_failed(opts->s3, opts->core, &row->row, why);

	return ret && ret != -ENOENT ? OUTCOME_REFUSED : OUTCOME_FAILED;
}

static void row_end(
	struct lane *lane, struct window_row *row, enum outcome outcome, const char *why)
{
	struct course *course = lane->course;

	if (outcome == OUTCOME_FAILED)
		outcome = note_failed(course, row, why);
	row->maybe_sent |= outcome >= OUTCOME_FAILED;
	if (outcome >= OUTCOME_FAILED)
		snprintf(course->error, sizeof(course->error), "%s", why);
	/* A row that fails again while others are taken is at fault itself. */
	if (outcome == OUTCOME_AWAY && row->sent_at && row->sent_at < course->sent)
		outcome = OUTCOME_REFUSED;
	if (outcome == OUTCOME_AWAY) {
		row->phase = WINDOW_WAITS;
		row->sent_at = course->sent;
		course_pause(course, why);
		return;
	}
	if (outcome == OUTCOME_REFUSED) {
		tell_refused(course, row, why);
		window_refused(row, clock_now_ns());
		return;
	}
	if (outcome == OUTCOME_FAILED)
		tell_failed(course, row, why);
	if (outcome == OUTCOME_SENT && course->told_away)
		log_info("replicate", "%s: the target takes objects again", course->name);
	/* Others that it refused may pass now, too. */
	if (row->was_parked)
		course->slots[row->slot].retry_ns = 0;
	if (outcome == OUTCOME_SENT) {
		course->sent++;
		course->told_away = false;
		course->pause_ns = 0;
		course->error[0] = '\0';
	}
	row_done(course, row, outcome);
}

static void lane_main(void *arg)
{
	struct lane *lane = arg;
	struct course *course = lane->course;
	struct replicate *replicate = course->replicate;
	char why[S3_REPLICATE_ERROR_BYTES];

	lane->fiber = fiber_self();
	while (!course_ending(course)) {
		uint64_t now_ns = clock_now_ns();
		bool paused = now_ns < course->paused_until_ns;
		struct window_row *row = paused ? NULL : window_take(&course->window, now_ns);
		uint64_t next_ns = window_next_ns(&course->window);

		if (!row) {
			(void)fiber_park_until(MAX(next_ns, paused ? course->paused_until_ns : 0));
			continue;
		}
		why[0] = '\0';
		/* A field of the row's text, which ends with a NUL. */
		fiber_request_set(row->row.request_id.len ? row->row.request_id.data : "");
		row_end(lane, row, send_row(lane, row, why), why);
		fiber_request_set("");
		course_poke(course);
		course_wake_lanes(course);
	}
	lane->ended = true;
	if (replicate->closer)
		fiber_wake(replicate->closer);
}

/* ---- Its life. ---- */

int lane_open(struct lane *lane, struct course *course)
{
	int ret;

	memset(lane, 0, offsetof(struct lane, answer));
	lane->course = course;
	body_init(&lane->body);
	pthread_mutex_init(&lane->lock, NULL);
	pthread_cond_init(&lane->wake, NULL);
	ret = thread_start(lane);
	if (ret)
		return ret;
	ret = fiber_spawn(course->replicate->opts.core->reactor, "replicate", lane_main, lane);
	if (ret) {
		lane->ended = true;
		lane_close(lane);
	}
	return ret;
}

void lane_close(struct lane *lane)
{
	while (!lane->ended) {
		if (lane->fiber)
			fiber_wake(lane->fiber);
		fiber_park();
	}
	pthread_mutex_lock(&lane->lock);
	lane->leaving = true;
	pthread_cond_signal(&lane->wake);
	pthread_mutex_unlock(&lane->lock);
	pthread_join(lane->thread, NULL);
	pthread_cond_destroy(&lane->wake);
	pthread_mutex_destroy(&lane->lock);
	body_free(&lane->body);
}
