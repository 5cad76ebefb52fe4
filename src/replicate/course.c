/* replicate/course.c: one target: its fiber fills the window from the rows that the store keeps,
 * each bucket with its share, and ends the rows that were sent, many at a time. The other rows stay
 * in the store: a slot that has its share is behind, and goes on from a cursor of its own. */
#include "replicate/replicate_priv.h"

#include <errno.h>
#include <stdlib.h>

#define POLL_NS_MIN	 (30 * NS_PER_MS) /* a row is in the index soon after its commit */
#define POLL_NS_MAX	 (2 * NS_PER_S)
#define SETTLE_NS	 (50 * NS_PER_MS) /* rows that were sent are collected for this long */
#define RETRY_ROWS	 32u		  /* of a slot: parked rows that are tried again at once */
#define STUCK_ROWS	 16u		  /* of a slot: refused rows that stay in the window */
#define REFILL_VISITS	 16384u		  /* rows that are looked at for one slot at once */
#define PARKED_ROWS_SLOT 4096u		  /* a slot may have them in any case */

/* ---- Rows of the store. ---- */

/* Parked rows: a slot may have half of what is left, and some in any case. */
static bool parked_has_room(const struct course *course, const struct course_slot *slot)
{
	uint32_t left = PARKED_ROWS_MAX - MIN(PARKED_ROWS_MAX, course->parked);

	return slot->parked.count < MAX(left / 2, PARKED_ROWS_SLOT);
}

/* To the window, or behind a parked one of its key. False: there is no room. */
static bool row_add(struct course *course, const struct s3_replicate_row *row,
	struct slice version_id, struct slice text)
{
	uint32_t idx = window_slot(row->bucket);
	struct course_slot *slot = &course->slots[idx];
	uint64_t hash;

	if (!parked_has_room(course, slot))
		return false;
	hash = slot->parked.count ? parked_hash(row) : 0;
	if (!slot->parked.count || !parked_has(&slot->parked, hash))
		return window_has_room(&course->window, idx) &&
		       window_add(&course->window, row->number, version_id, text);
	if (parked_reserve(&slot->parked, 1))
		return false;
	parked_add(&slot->parked, row->number, hash, row->time_ns);
	course->parked++;
	return true;
}

/* Behind all rows that were looked at. Those of a slot without room are passed: it is behind. */
static bool tail_visit(uint64_t number, struct slice version_id, struct slice text, void *arg)
{
	struct course *course = arg;
	struct course_slot *slot;
	struct s3_replicate_row row;

	if (course->window.count == WINDOW_ROWS_MAX)
		return false;
	if (s3_replicate_row_parse(number, version_id, text, &row) &&
		slice_eq(row.target, slice_str(course->name))) {
		slot = &course->slots[window_slot(row.bucket)];
		if (!slot->behind && !row_add(course, &row, version_id, text)) {
			slot->behind = true;
			slot->cursor = number - 1;
		}
	}
	course->cursor = number;
	return !atomic_load(&course->replicate->ending);
}

struct refill {
	struct course *course;
	uint32_t slot, visits;
	bool full;
};

static bool refill_visit(uint64_t number, struct slice version_id, struct slice text, void *arg)
{
	struct refill *refill = arg;
	struct course *course = refill->course;
	struct s3_replicate_row row;

	if (number > course->cursor)
		return false;
	refill->full = ++refill->visits > REFILL_VISITS || atomic_load(&course->replicate->ending);
	if (!refill->full && s3_replicate_row_parse(number, version_id, text, &row) &&
		slice_eq(row.target, slice_str(course->name)) &&
		window_slot(row.bucket) == refill->slot)
		refill->full = !row_add(course, &row, version_id, text);
	if (refill->full)
		return false;
	course->slots[refill->slot].cursor = number;
	return true;
}

static bool is_hungry(const struct course *course, uint32_t idx)
{
	const struct course_slot *slot = &course->slots[idx];

	return slot->behind && window_has_room(&course->window, idx) &&
	       parked_has_room(course, slot) &&
	       course->window.of_slot[idx] <= (WINDOW_ROWS_MAX - course->window.count) / 2;
}

static bool any_hungry(const struct course *course)
{
	for (uint32_t i = 0; i < WINDOW_SLOTS; i++)
		if (is_hungry(course, i))
			return true;
	return false;
}

/* *ret_more: there were so many rows of others that the fiber looks at the next ones later. */
static int slot_refill(struct course *course, uint32_t idx, bool *ret_more)
{
	struct refill refill = {.course = course, .slot = idx};
	struct course_slot *slot = &course->slots[idx];
	int ret = store_outbox_visit_all(
		course->replicate->opts.store, slot->cursor, refill_visit, &refill);

	if (!ret && !refill.full)
		slot->behind = false;
	*ret_more |= refill.visits > REFILL_VISITS;
	return ret;
}

/* True: there were new rows of this target, or there may be. */
static bool fill(struct course *course)
{
	uint32_t before = course->window.count;
	bool more = false;
	int ret = store_outbox_visit_all(
		course->replicate->opts.store, course->cursor, tail_visit, course);

	for (uint32_t i = 0; i < WINDOW_SLOTS && !ret; i++) {
		uint32_t idx = (course->slot_next + i) % WINDOW_SLOTS;

		if (is_hungry(course, idx))
			ret = slot_refill(course, idx, &more);
	}
	course->slot_next = (course->slot_next + 1) % WINDOW_SLOTS;
	if (ret)
		log_warn("replicate", "%s: cannot read what waits: %s; the server tries again",
			course->name, strerror(-ret));
	return course->window.count > before || (more && !ret);
}

/* ---- Rows that the target refuses. ---- */

/* Too many of them leave no room for others: they wait in the store. */
static void shed(struct course *course, uint32_t idx)
{
	struct course_slot *slot = &course->slots[idx];
	uint64_t now_ns = clock_now_ns();
	uint32_t stuck = 0;

	if (course->window.of_slot[idx] > STUCK_ROWS)
		stuck = window_stuck_count(&course->window, idx, now_ns);
	if (stuck <= STUCK_ROWS || parked_reserve(&slot->parked, stuck))
		return;
	if (!slot->parked.count)
		slot->retry_ns = now_ns + WINDOW_PAUSE_MAX;
	window_shed(&course->window, idx, now_ns, &slot->parked);
	course->parked += stuck;
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
	row->was_parked = row->told = row->maybe_sent = true;
	row->tries = 6; /* refused again, it waits for WINDOW_PAUSE_MAX */
	return false;
}

/* Each in its turn, a few at once, until the target takes them. */
static void retry(struct course *course, uint32_t idx)
{
	struct course_slot *slot = &course->slots[idx];
	struct parked *parked = &slot->parked;
	uint64_t now_ns = clock_now_ns();

	if (!parked->count || now_ns < slot->retry_ns)
		return;
	slot->retry_ns = now_ns + WINDOW_PAUSE_MAX;
	for (uint32_t i = 0; i < RETRY_ROWS && window_has_room(&course->window, idx); i++) {
		struct back back = {
			.course = course, .number = parked_next(parked, slot->parked_at)};

		if (!back.number) {
			slot->parked_at = 0;
			break;
		}
		/* Without memory, or when the index cannot be read: later. */
		if (store_outbox_visit_all(
			    course->replicate->opts.store, back.number - 1, back_visit, &back) ||
			back.failed)
			break;
		parked_remove(parked, back.number);
		course->parked--;
		slot->parked_at = back.number;
	}
	if (!parked->count)
		parked_free(parked);
	course_wake_lanes(course);
}

static void look_at_refused(struct course *course)
{
	for (uint32_t i = 0; i < WINDOW_SLOTS; i++) {
		shed(course, i);
		retry(course, i);
	}
}

/* Rows that the store could not end stay in the window, and are tried again. */
static void end_done(struct course *course)
{
	uint64_t numbers[WINDOW_ROWS_MAX];
	uint32_t count = window_done(&course->window, numbers);
	int ret = count ? store_outbox_end(course->replicate->opts.store, numbers, count) : 0;

	if (!ret)
		window_reap(&course->window, numbers, count);
	else if (!course->told_kept)
		log_warn("replicate",
			"%s: %u rows that were sent remain in the store: %s; the server tries "
			"again, and the next start finds them sent",
			course->name, count, strerror(-ret));
	course->told_kept = ret != 0;
}

/* Real time of the oldest row in memory; 0: none. */
static uint64_t oldest_ns(const struct course *course)
{
	uint64_t oldest_ns = UINT64_MAX;

	for (uint32_t i = 0; i < course->window.count; i++)
		oldest_ns = MIN(oldest_ns, course->window.rows[i]->row.time_ns);
	for (uint32_t i = 0; i < WINDOW_SLOTS; i++)
		if (course->slots[i].parked.count)
			oldest_ns = MIN(oldest_ns, course->slots[i].parked.rows[0].time_ns);
	return oldest_ns == UINT64_MAX ? 0 : oldest_ns;
}

static void tell(const struct course *course)
{
	bool away = clock_now_ns() < course->paused_until_ns || course->told_away;
	struct s3_replicate_state state = {
		.refused = window_refused_count(&course->window) + course->parked,
		.transport = course->transport,
		.oldest_ns = oldest_ns(course)};

	state.word = away		    ? "away"
		     : state.refused	    ? "refused"
		     : course->window.count ? "sending"
					    : "idle";
	memcpy(state.error, course->error, sizeof(state.error));
	s3_replicate_tell(course->replicate->opts.s3, slice_str(course->name), &state);
}

/* Other keys, another address, or the target is gone: what was refused is tried at once. */
static void look_at_place(struct course *course)
{
	struct s3_replicate_place place = {.generation = 0};
	int ret = s3_replicate_place(course->replicate->opts.s3, slice_str(course->name), &place);

	course->over = ret == -ENOENT;
	if (ret)
		place.generation = 0;
	if (place.generation != course->generation) {
		course->generation = place.generation;
		course->told_gone = false;
		course->paused_until_ns = 0;
		course->pause_ns = 0;
		window_hurry(&course->window);
		for (uint32_t i = 0; i < WINDOW_SLOTS; i++)
			course->slots[i].retry_ns = 0;
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
	while (!course_ending(course) && clock_now_ns() < now_ns + course->poll_ns &&
		!(course->poked && (clock_now_ns() >= settle_ns || any_hungry(course))))
		(void)fiber_park_until(course->poked ? MIN(settle_ns, now_ns + course->poll_ns)
						     : now_ns + course->poll_ns);
	course->poll_ns = MIN(2 * course->poll_ns, POLL_NS_MAX);
}

/* Fewer lanes do, too; without any the course tries again at its next look. */
static void lanes_open(struct course *course)
{
	int ret = 0;

	if (course->lane_count)
		return;
	while (!ret && course->lane_count < LANES) {
		ret = lane_open(&course->lanes[course->lane_count], course);
		course->lane_count += !ret;
	}
	if (!course->lane_count && !course->told_lanes)
		log_error("replicate", "%s: nothing is sent: %s; the server tries again",
			course->name, strerror(-ret));
	course->told_lanes = !course->lane_count;
}

static bool has_rows(const struct course *course)
{
	bool behind = false;

	for (uint32_t i = 0; i < WINDOW_SLOTS; i++)
		behind = behind || course->slots[i].behind;
	return course->window.count || course->parked || behind;
}

static void course_main(void *arg)
{
	struct course *course = arg;
	struct replicate *replicate = course->replicate;
	bool found;

	course->fiber = fiber_self();
	while (!course_ending(course)) {
		lanes_open(course);
		look_at_place(course);
		look_at_refused(course);
		found = fill(course);
		if (found)
			course_wake_lanes(course);
		end_done(course);
		course->over = course->over && !found && !has_rows(course);
		tell(course);
		rest(course, found);
	}
	end_done(course);
	course->ended = true;
	if (replicate->closer)
		fiber_wake(replicate->closer);
}

bool course_ending(const struct course *course)
{
	return course->leaving || atomic_load(&course->replicate->ending);
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
	ret = fiber_spawn(replicate->opts.core->reactor, "replicate course", course_main, course);
	if (ret) {
		free(course);
		return ret;
	}
	*ret_course = course;
	return 0;
}

void course_close(struct course *course)
{
	course->leaving = true;
	for (uint32_t i = 0; i < course->lane_count; i++)
		lane_close(&course->lanes[i]);
	while (!course->ended) {
		if (course->fiber)
			fiber_wake(course->fiber);
		fiber_park();
	}
	window_free(&course->window);
	for (uint32_t i = 0; i < WINDOW_SLOTS; i++)
		parked_free(&course->slots[i].parked);
	free(course);
}
