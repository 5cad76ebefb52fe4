/* s3/event/outbox.c: events stored in the outbox by their commits. Events of an earlier start are
 * put into the queues; events that were sent or given up are deleted, many at a time, so after a
 * crash between the two they are sent again. */
#include <errno.h>
#include <stdlib.h>

#include "s3/event/notification.h"
#include "s3/event/notify.h"
#include "s3/replicate/replicate.h"
#include "s3/s3.h"

#define SETTLE_NS    (100 * NS_PER_MS) /* completed events are collected for this long */
#define SETTLE_COUNT 256u
/* The rows of an earlier start have few targets: those that had waiting events at the same time.
 * Rows beyond this limit wait for the next start. */
#define COURSES_MAX 1024u
/* Pause between two walks over the rows: it grows while no event finds room. */
#define WALK_NS_MIN (10 * NS_PER_MS)
#define WALK_NS_MAX (10 * NS_PER_S)

/* One target of the rows of an earlier start: it gets its rows in order, even if other targets have
 * no room. */
struct course {
	uint64_t target;  /* SipHash of its name */
	uint64_t through; /* number of the last row that was queued or given up */
	bool held;	  /* in this walk, the next row had no room */
};

/* Two fibers of one reactor: one sends rows of an earlier start as the queues have room; the other
 * deletes completed rows. */
struct s3_outbox {
	struct s3 *s3;
	struct reactor *reactor;
	struct reactor_msg msg; /* from the queues: a place became free */
	_Atomic bool posted;
	struct fiber *settler, *resumer; /* NULL: not started, or ended */
	struct fiber *stopper;
	bool resuming, stopping, ending, settled;
	bool room; /* a place became free since the resumer looked */
	struct course courses[COURSES_MAX];
	uint32_t course_count;
	uint64_t first_held; /* a number; 0: none */
	uint32_t resumed, walk_resumed;
	bool left_over;
};

/* ---- The rows of an earlier start. ---- */

/* NULL: too many targets. */
static struct course *course_of(struct s3_outbox *outbox, struct slice text)
{
	static const uint8_t key[16];
	struct slice name = s3_event_target(text);
	uint64_t target[SIPHASH_BYTES / sizeof(uint64_t)];

	mac_siphash128(key, name.data, name.len, (uint8_t *)target);
	for (uint32_t i = 0; i < outbox->course_count; i++)
		if (outbox->courses[i].target == target[0])
			return &outbox->courses[i];
	if (outbox->course_count == COURSES_MAX)
		return NULL;
	outbox->courses[outbox->course_count] = (struct course){.target = target[0]};
	return &outbox->courses[outbox->course_count++];
}

static bool resume(uint64_t number, struct slice version_id, struct slice text, void *arg)
{
	struct s3_outbox *outbox = arg;
	struct course *course;
	int ret;

	if (outbox->stopping)
		return false;
	if (s3_replicate_is_row(text))
		return true;
	course = course_of(outbox, text);
	outbox->left_over |= !course;
	if (!course || course->held || number <= course->through)
		return true;
	ret = s3_event_resume(outbox->s3, number, version_id, text);
	if (ret == -ENOBUFS || ret == -EBUSY || ret == -ENOMEM) {
		course->held = true;
		if (!outbox->first_held)
			outbox->first_held = number;
		return true;
	}
	course->through = number;
	outbox->walk_resumed++;
	if (ret)
		(void)store_outbox_end(outbox->s3->store, &number, 1);
	else
		outbox->resumed++;
	return true;
}

/* Walks from the first row that had no room; the courses tell which later rows were queued. */
static int walk(struct s3_outbox *outbox)
{
	uint64_t after = outbox->first_held ? outbox->first_held - 1 : 0;

	for (uint32_t i = 0; i < outbox->course_count; i++)
		outbox->courses[i].held = false;
	outbox->first_held = 0;
	outbox->walk_resumed = 0;
	outbox->room = false;
	return store_outbox_visit(outbox->s3->store, after, resume, outbox);
}

/* Walks take a small part of the time. Places of topics can become free without a notice. */
static void rest(struct s3_outbox *outbox, uint64_t *pause_ns, uint64_t took_ns)
{
	uint64_t now_ns = clock_now_ns(), soon_ns;

	*pause_ns = outbox->walk_resumed ? 10 * took_ns : 2 * *pause_ns;
	*pause_ns = MIN(MAX(*pause_ns, WALK_NS_MIN), WALK_NS_MAX);
	soon_ns = now_ns + *pause_ns;
	while (!outbox->stopping && clock_now_ns() < soon_ns)
		(void)fiber_park_until(soon_ns);
	while (!outbox->stopping && !outbox->room && clock_now_ns() < now_ns + WALK_NS_MAX)
		(void)fiber_park_until(now_ns + WALK_NS_MAX);
}

static void resume_main(void *arg)
{
	struct s3_outbox *outbox = arg;
	uint64_t pause_ns = 0, start_ns;
	int ret;

	outbox->resumer = fiber_self();
	for (;;) {
		start_ns = clock_now_ns();
		ret = walk(outbox);
		if (ret || !outbox->first_held || outbox->stopping)
			break;
		rest(outbox, &pause_ns, clock_now_ns() - start_ns);
	}
	if (ret)
		log_error("s3",
			"cannot read the events of an earlier start: %s; they remain in the store",
			strerror(-ret));
	if (outbox->left_over && !outbox->stopping)
		log_warn("s3",
			"events of an earlier start are for more than %u targets: the next start "
			"sends the others",
			COURSES_MAX);
	if (outbox->resumed)
		log_info("s3", "%u events of an earlier start were sent", outbox->resumed);
	outbox->resumer = NULL;
	outbox->resuming = false;
	if (outbox->stopper)
		fiber_wake(outbox->stopper);
}

/* ---- Completed rows. ---- */

static void room_arrived(struct reactor_msg *msg)
{
	struct s3_outbox *outbox = CONTAINER_OF(msg, struct s3_outbox, msg);

	atomic_store(&outbox->posted, false);
	outbox->room = true;
	if (outbox->settler)
		fiber_wake(outbox->settler);
	if (outbox->resumer)
		fiber_wake(outbox->resumer);
}

/* On any thread. */
static void on_room(void *arg)
{
	struct s3_outbox *outbox = arg;

	if (!atomic_exchange(&outbox->posted, true))
		reactor_post(outbox->reactor, &outbox->msg);
}

static void settle(struct s3_outbox *outbox)
{
	uint64_t numbers[SETTLE_COUNT];
	uint32_t count;

	while ((count = s3_notify_take_done(outbox->s3->notify, numbers, SETTLE_COUNT))) {
		int ret = store_outbox_end(outbox->s3->store, numbers, count);

		if (ret)
			log_warn("s3",
				"cannot remove %u sent events from the store: %s; the next start "
				"sends them again",
				count, strerror(-ret));
	}
}

static void settle_main(void *arg)
{
	struct s3_outbox *outbox = arg;

	outbox->settler = fiber_self();
	while (!outbox->ending) {
		uint64_t until_ns;

		fiber_park();
		until_ns = clock_now_ns() + SETTLE_NS;
		while (!outbox->ending && fiber_park_until(until_ns) != -ETIMEDOUT)
			;
		settle(outbox);
	}
	settle(outbox);
	while (atomic_load(&outbox->posted))
		fiber_park();
	outbox->settled = true;
	fiber_wake(outbox->stopper);
}

/* ---- Its life. ---- */

int s3_outbox_start(struct s3 *s3)
{
	struct s3_outbox *outbox = calloc(1, sizeof(*outbox));
	struct reactor *reactor = reactor_self();
	int ret;

	if (!outbox)
		return -ENOMEM;
	outbox->s3 = s3;
	outbox->reactor = reactor;
	outbox->msg.fn = room_arrived;
	ret = fiber_spawn(reactor, "event settler", settle_main, outbox);
	if (ret) {
		free(outbox);
		return ret;
	}
	s3->outbox = outbox;
	s3_notify_on_room(s3->notify, on_room, outbox);
	ret = fiber_spawn(reactor, "event resumer", resume_main, outbox);
	outbox->resuming = !ret;
	return ret;
}

static void stop_notify(void *arg)
{
	s3_notify_stop(arg);
}

void s3_outbox_stop(struct s3 *s3)
{
	struct s3_outbox *outbox = s3->outbox;

	if (!outbox)
		return;
	outbox->stopper = fiber_self();
	outbox->stopping = true;
	if (outbox->resumer)
		fiber_wake(outbox->resumer);
	while (outbox->resuming)
		fiber_park();
	fiber_offload_long(stop_notify, s3->notify);
	s3_notify_on_room(s3->notify, NULL, NULL);
	outbox->ending = true;
	if (outbox->settler)
		fiber_wake(outbox->settler);
	while (!outbox->settled)
		fiber_park();
	s3->outbox = NULL;
	free(outbox);
}
