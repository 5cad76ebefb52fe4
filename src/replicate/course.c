/* replicate/course.c: one target: its fiber fills the window from the rows that the store keeps,
 * and ends the rows that were sent, many at a time. The other rows stay in the store. */
#include "replicate/replicate_priv.h"

#include <errno.h>
#include <stdlib.h>

#define POLL_NS_MIN (30 * NS_PER_MS) /* a row is in the index soon after its commit */
#define POLL_NS_MAX (2 * NS_PER_S)
#define SETTLE_NS   (50 * NS_PER_MS) /* rows that were sent are collected for this long */
#define RETRY_ROWS  32u		     /* parked rows that are tried again at once */

/* To the window, or behind a parked one of its key. False: there is no room. */
static bool row_add(struct course *course, const struct s3_replicate_row *row,
	struct slice version_id, struct slice text)
{
	uint64_t hash;

	if (!course->parked.count)
		return window_add(&course->window, row->number, version_id, text);
	hash = parked_hash(row);
	if (!parked_has(&course->parked, hash))
		return window_add(&course->window, row->number, version_id, text);
	if (parked_reserve(&course->parked, 1))
		return false;
	parked_add(&course->parked, row->number, hash, row->time_ns);
	return true;
}

static bool row_visit(uint64_t number, struct slice version_id, struct slice text, void *arg)
{
	struct course *course = arg;
	struct s3_replicate_row row;

	if (s3_replicate_row_parse(number, version_id, text, &row) &&
		slice_eq(row.target, slice_str(course->name)) &&
		!row_add(course, &row, version_id, text))
		return false;
	course->cursor = number;
	return !atomic_load(&course->replicate->ending);
}

/* True: there were new rows of this target. */
static bool fill(struct course *course)
{
	uint32_t before = course->window.count;
	int ret;

	if (before > WINDOW_ROWS_MAX / 2)
		return false;
	ret = store_outbox_visit_all(
		course->replicate->opts.store, course->cursor, row_visit, course);
	if (ret)
		log_warn("replicate", "%s: cannot read what waits: %s; the server tries again",
			course->name, strerror(-ret));
	return course->window.count > before;
}

/* ---- Rows that the target refuses. ---- */

/* Too many of them leave no room for others: they wait in the store. */
static void shed(struct course *course)
{
	uint64_t now_ns = clock_now_ns();
	uint32_t stuck;

	if (course->window.count <= WINDOW_ROWS_MAX / 2)
		return;
	stuck = window_stuck_count(&course->window, now_ns);
	if (stuck <= WINDOW_ROWS_MAX / 4 || parked_reserve(&course->parked, stuck))
		return;
	if (!course->parked.count)
		course->retry_ns = now_ns + WINDOW_PAUSE_MAX;
	window_shed(&course->window, now_ns, &course->parked);
}

struct back {
	struct course *course;
	uint64_t number;
	bool failed;
};

static bool back_visit(uint64_t number, struct slice version_id, struct slice text, void *arg)
{
	struct back *back = arg;
	struct window *window = &back->course->window;
	struct window_row *row;

	if (number != back->number)
		return false;
	back->failed = !window_add(window, number, version_id, text);
	if (back->failed)
		return false;
	row = window->rows[window->count - 1];
	row->was_parked = row->told = true;
	row->tries = 6; /* refused again, it waits for WINDOW_PAUSE_MAX */
	return false;
}

/* Each in its turn, a few at once, until the target takes them. */
static void retry(struct course *course)
{
	uint64_t now_ns = clock_now_ns();
	struct parked *parked = &course->parked;

	if (!parked->count || now_ns < course->retry_ns)
		return;
	course->retry_ns = now_ns + WINDOW_PAUSE_MAX;
	for (uint32_t i = 0; i < RETRY_ROWS && course->window.count < WINDOW_ROWS_MAX; i++) {
		struct back back = {
			.course = course, .number = parked_next(parked, course->parked_at)};

		if (!back.number) {
			course->parked_at = 0;
			break;
		}
		/* Without memory, or when the index cannot be read: later. */
		if (store_outbox_visit_all(
			    course->replicate->opts.store, back.number - 1, back_visit, &back) ||
			back.failed)
			break;
		parked_remove(parked, back.number);
		course->parked_at = back.number;
	}
	if (!parked->count)
		parked_free(parked);
	course_wake_lanes(course);
}

static void end_done(struct course *course)
{
	uint64_t numbers[WINDOW_ROWS_MAX];
	uint32_t count = window_reap(&course->window, numbers, WINDOW_ROWS_MAX);
	int ret = count ? store_outbox_end(course->replicate->opts.store, numbers, count) : 0;

	if (ret)
		log_warn("replicate",
			"%s: %u rows that were sent remain in the store: %s; the next start finds "
			"them sent",
			course->name, count, strerror(-ret));
}

static void tell(const struct course *course)
{
	bool away = clock_now_ns() < course->paused_until_ns || course->told_away;
	const struct parked *parked = &course->parked;
	struct s3_replicate_state state = {
		.refused = window_refused_count(&course->window) + parked->count,
		.transport = course->transport,
		.oldest_ns = course->window.count ? course->window.rows[0]->row.time_ns : 0};

	if (parked->count && (!state.oldest_ns || parked->rows[0].time_ns < state.oldest_ns))
		state.oldest_ns = parked->rows[0].time_ns;
	state.word = away		    ? "away"
		     : state.refused	    ? "refused"
		     : course->window.count ? "sending"
					    : "idle";
	memcpy(state.error, course->error, sizeof(state.error));
	s3_replicate_tell(course->replicate->opts.s3, slice_str(course->name), &state);
}

/* Other keys or another address: what was refused is tried at once. */
static void look_at_place(struct course *course)
{
	struct s3_replicate_place place = {.generation = 0};
	int ret = s3_replicate_place(course->replicate->opts.s3, slice_str(course->name), &place);

	if (!ret && place.generation != course->generation) {
		course->generation = place.generation;
		course->paused_until_ns = 0;
		course->pause_ns = 0;
		window_hurry(&course->window);
		course->retry_ns = 0;
		course_wake_lanes(course);
	}
	secret_wipe(&place, sizeof(place));
}

static void rest(struct course *course, bool found)
{
	uint64_t now_ns = clock_now_ns();
	uint64_t settle_ns = now_ns + SETTLE_NS;

	if (course->poked || found)
		course->poll_ns = POLL_NS_MIN;
	course->poked = false;
	if (found)
		return;
	while (!atomic_load(&course->replicate->ending) &&
		clock_now_ns() < now_ns + course->poll_ns &&
		!(course->poked && clock_now_ns() >= settle_ns))
		(void)fiber_park_until(course->poked ? MIN(settle_ns, now_ns + course->poll_ns)
						     : now_ns + course->poll_ns);
	course->poll_ns = MIN(2 * course->poll_ns, POLL_NS_MAX);
}

static void course_main(void *arg)
{
	struct course *course = arg;
	struct replicate *replicate = course->replicate;
	bool found;

	course->fiber = fiber_self();
	while (!atomic_load(&replicate->ending)) {
		look_at_place(course);
		shed(course);
		retry(course);
		found = fill(course);
		if (found)
			course_wake_lanes(course);
		end_done(course);
		tell(course);
		rest(course, found);
	}
	end_done(course);
	course->ended = true;
	if (replicate->closer)
		fiber_wake(replicate->closer);
}

void course_poke(struct course *course)
{
	course->poked = true;
	if (course->fiber && !course->ended)
		fiber_wake(course->fiber);
}

void course_wake_lanes(struct course *course)
{
	for (uint32_t i = 0; i < course->lane_count; i++)
		if (course->lanes[i].fiber && !course->lanes[i].ended)
			fiber_wake(course->lanes[i].fiber);
}

int course_open(struct replicate *replicate, const char *name, struct course **ret_course)
{
	struct course *course = calloc(1, sizeof(*course));
	int ret = course ? 0 : -ENOMEM;

	if (ret)
		return ret;
	course->replicate = replicate;
	course->poll_ns = POLL_NS_MIN;
	course->sent = 1;
	slice_copy_str(slice_str(name), course->name, sizeof(course->name));
	while (!ret && course->lane_count < LANES) {
		ret = lane_open(&course->lanes[course->lane_count], course);
		course->lane_count += !ret;
	}
	/* Fewer lanes do, too. */
	ret = course->lane_count ? fiber_spawn(replicate->opts.core->reactor, "replicate course",
					   course_main, course)
				 : ret;
	course->ended = ret != 0;
	*ret_course = course;
	return ret;
}

void course_close(struct course *course)
{
	for (uint32_t i = 0; i < course->lane_count; i++)
		lane_close(&course->lanes[i]);
	while (!course->ended) {
		if (course->fiber)
			fiber_wake(course->fiber);
		fiber_park();
	}
	window_free(&course->window);
	parked_free(&course->parked);
	free(course);
}
