/* s3/outbox.c: events that are kept in the store, each put there by the commit that it tells of:
 * what an earlier start left goes to the queues; what was sent, or given up, is deleted, many at a
 * time, so what a crash leaves between the two is sent again. */
#include "s3/s3.h"

#include <errno.h>
#include <stdlib.h>

#include "s3/notification.h"
#include "s3/notify.h"

#define SETTLE_NS    (100 * NS_PER_MS) /* what is done gathers for so long */
#define SETTLE_COUNT 256u

/* Two fibers of one reactor: one sends what an earlier start left, as the queues have room; the
 * other deletes what is done. */
struct s3_outbox {
	struct s3 *s3;
	struct reactor *reactor;
	struct reactor_msg msg; /* from the queues: a place was left */
	_Atomic bool posted;
	struct fiber *settler, *resumer; /* NULL: not yet, or not any more */
	struct fiber *stopper;
	bool resuming, stopping, ending, settled;
	bool room; /* a place in a queue was left since the resumer looked */
	uint32_t resumed;
};

/* ---- What an earlier start left. ---- */

static bool resume(uint64_t number, struct slice version_id, struct slice text, void *arg)
{
	struct s3_outbox *outbox = arg;
	int ret;

	for (;;) {
		if (outbox->stopping)
			return false;
		outbox->room = false;
		ret = s3_event_resume(outbox->s3, number, version_id, text);
		if (ret != -ENOBUFS && ret != -EBUSY && ret != -ENOMEM)
			break;
		while (!outbox->room && !outbox->stopping)
			fiber_park();
	}
	if (ret)
		(void)store_messages_end(outbox->s3->store, &number, 1);
	else
		outbox->resumed++;
	return true;
}

static void resume_main(void *arg)
{
	struct s3_outbox *outbox = arg;
	int ret;

	outbox->resumer = fiber_self();
	ret = store_messages_visit(outbox->s3->store, 0, resume, outbox);
	if (ret)
		log_error("s3", "events that an earlier start left cannot be read: %s; they stay",
			strerror(-ret));
	if (outbox->resumed)
		log_info("s3", "%u events that an earlier start left are sent", outbox->resumed);
	outbox->resumer = NULL;
	outbox->resuming = false;
	if (outbox->stopper)
		fiber_wake(outbox->stopper);
}

/* ---- What is done. ---- */

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
		int ret = store_messages_end(outbox->s3->store, numbers, count);

		if (ret)
			log_warn("s3",
				"%u events that were sent stay in the store: %s; the next start "
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
	s3_notify_watch(s3->notify, on_room, outbox);
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
	fiber_offload(stop_notify, s3->notify);
	s3_notify_watch(s3->notify, NULL, NULL);
	outbox->ending = true;
	if (outbox->settler)
		fiber_wake(outbox->settler);
	while (!outbox->settled)
		fiber_park();
	s3->outbox = NULL;
	free(outbox);
}
