/* reactor/uring_dp.c: operations into the ring, completions out of it. */
#include "reactor/reactor_priv.h"

#include <errno.h>

DEFINE_COUNTER_FULL(submission_full, "io_uring_submission");
DEFINE_COUNTER_FULL(completion_full, "io_uring_completion");
DEFINE_COUNTER_FULL_DEPTH(submission_depth, "io_uring_submission");
DEFINE_COUNTER_FULL_DEPTH(completion_depth, "io_uring_completion");

struct io_uring *reactor_uring(struct reactor *reactor)
{
	return &reactor->ring;
}

void uring_flush(struct reactor *reactor)
{
	int count;

	if (!io_uring_sq_ready(&reactor->ring))
		return;
	count = io_uring_submit(&reactor->ring);
	stat_add(&reactor->stats.uring_submits, 1);
	if (count < 0)
		uring_flush_stuck(reactor, count);
}

struct io_uring_sqe *reactor_sqe(struct reactor *reactor, struct uring_op *op)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&reactor->ring);

	if (!sqe) {
		counter_add(&submission_full, 1);
		counter_add(&submission_depth, io_uring_sq_ready(&reactor->ring));
		if (!reactor->bound)
			uring_bind(reactor);
		uring_flush(reactor);
		sqe = io_uring_get_sqe(&reactor->ring);
		CHECK(sqe != NULL);
	}
	io_uring_sqe_set_data(sqe, op);
	return sqe;
}

/* Completions wait in the kernel until we enter it; it says so in a flag. */
static bool must_enter(const struct io_uring *ring)
{
	return __atomic_load_n(ring->sq.kflags, __ATOMIC_RELAXED) &
	       (IORING_SQ_CQ_OVERFLOW | IORING_SQ_TASKRUN);
}

uint32_t uring_reap(struct reactor *reactor)
{
	struct io_uring *ring = &reactor->ring;
	struct io_uring_cqe *cqe;
	uint32_t count = 0;
	unsigned head;

	if (must_enter(ring)) {
		if (__atomic_load_n(ring->sq.kflags, __ATOMIC_RELAXED) & IORING_SQ_CQ_OVERFLOW) {
			counter_add(&completion_full, 1);
			counter_add(&completion_depth, io_uring_cq_ready(ring));
		}
		io_uring_get_events(ring);
	}
	io_uring_for_each_cqe(ring, head, cqe)
	{
		struct uring_op *op = io_uring_cqe_get_data(cqe);
		uint32_t cqe_flags = cqe->flags;
		int result = cqe->res;

		/* Before done is called: operations that done submits may need the room. */
		io_uring_cq_advance(ring, 1);
		if (op)
			op->done(op, result, cqe_flags);
		if (++count == ring->cq.ring_entries)
			break;
	}
	return count;
}

void uring_sleep(struct reactor *reactor, uint64_t deadline_ns)
{
	struct __kernel_timespec ts;
	struct io_uring_cqe *cqe;
	int error;

	if (deadline_ns != DEADLINE_NONE) {
		uint64_t now_ns = clock_now_ns();
		uint64_t wait_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;

		ts.tv_sec = (long long)(wait_ns / NS_PER_S);
		ts.tv_nsec = (long long)(wait_ns % NS_PER_S);
	}
	if (io_uring_sq_ready(&reactor->ring))
		stat_add(&reactor->stats.uring_submits, 1);
	error = io_uring_submit_and_wait_timeout(
		&reactor->ring, &cqe, 1, deadline_ns == DEADLINE_NONE ? NULL : &ts, NULL);
	if (error < 0 && error != -ETIME && error != -EINTR)
		uring_flush_stuck(reactor, error);
}

/* One operation of one fiber, on its stack. */
struct call {
	struct uring_op op;
	struct fiber *fiber;
	struct reactor_timer timer;
	int result;
	bool cancelled;
};

static void call_done(struct uring_op *op, int result, uint32_t cqe_flags)
{
	struct call *call = CONTAINER_OF(op, struct call, op);

	/* A zero-copy send completes twice: with its result, and when the kernel releases the
	 * buffer. */
	if (!(cqe_flags & IORING_CQE_F_NOTIF))
		call->result = result;
	if (!(cqe_flags & IORING_CQE_F_MORE))
		fiber_resume(call->fiber);
}

static void call_deadline(struct reactor_timer *timer, void *arg)
{
	struct call *call = arg;
	struct io_uring_sqe *sqe;

	(void)timer;
	/* The cancellation's own completion has no receiver. The operation's completion still
	 * comes. */
	call->cancelled = true;
	sqe = reactor_sqe(call->fiber->reactor, NULL);
	io_uring_prep_cancel(sqe, &call->op, 0);
}

int fiber_uring(uring_prep_fn *prep, void *arg, uint64_t deadline_ns)
{
	struct call call = {.op.done = call_done, .fiber = fiber_self()};
	struct reactor *reactor = reactor_current;

	CHECK(call.fiber != NULL);
	prep(reactor_sqe(reactor, &call.op), arg);
	if (deadline_ns != DEADLINE_NONE) {
		call.timer.fn = call_deadline;
		call.timer.arg = &call;
		reactor_timer_set(reactor, &call.timer, deadline_ns);
	}
	fiber_wait();
	reactor_timer_cancel(reactor, &call.timer);
	if (call.cancelled && (call.result == -ECANCELED || call.result == -EINTR))
		return -ETIMEDOUT;
	return call.result;
}
