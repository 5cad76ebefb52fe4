/* reactor/mailbox_dp.c: messages from any thread, and wakes of fibers from other threads.
 *
 * No wake is lost: the reactor sets sleeping, then looks at the mailbox; a producer pushes, then
 * looks at sleeping; with a full fence between the two steps of each, one of them sees the other.
 */
#include "reactor/reactor_priv.h"

#include <errno.h>
#include <unistd.h>

#if SANITIZER_THREAD
_Atomic uint32_t reactor_fence_word;
#endif

void mailbox_ring(struct reactor *reactor)
{
	int saved_errno = errno; /* a signal handler may not change it */
	uint64_t one = 1;
	ssize_t bytes;

	do {
		bytes = write(reactor->wake_fd, &one, sizeof(one));
	} while (bytes < 0 && errno == EINTR);
	/* EAGAIN: the counter is full, so the reactor has been rung. */
	errno = saved_errno;
}

void reactor_post(struct reactor *reactor, struct reactor_msg *msg)
{
	mpsc_push(&reactor->mailbox, &msg->node);
	full_fence();
	/* The exchange lets only the first of several producers ring. */
	if (atomic_load_explicit(&reactor->sleeping, memory_order_relaxed) &&
		atomic_exchange_explicit(&reactor->sleeping, false, memory_order_relaxed))
		mailbox_ring(reactor);
}

uint32_t mailbox_drain(struct reactor *reactor)
{
	uint32_t count = 0;

	while (count < MESSAGES_PER_TURN_MAX) {
		struct mpsc_node *node = mpsc_pop(&reactor->mailbox);
		struct reactor_msg *msg;

		if (!node)
			break;
		msg = CONTAINER_OF(node, struct reactor_msg, node);
		msg->fn(msg);
		count++;
	}
	if (count)
		stat_add(&reactor->stats.messages, count);
	return count;
}

void fiber_wake_remote(struct fiber *fiber)
{
	/* Release: the fiber sees what the caller did before, also when this wake joins an earlier
	 * one. */
	if (!atomic_exchange_explicit(&fiber->remote_posted, true, memory_order_acq_rel))
		reactor_post(fiber->reactor, &fiber->remote_msg);
}

void fiber_remote_arrived(struct reactor_msg *msg)
{
	struct fiber *fiber = CONTAINER_OF(msg, struct fiber, remote_msg);

	/* First the flag, then the wake: a later wake posts again. */
	atomic_exchange_explicit(&fiber->remote_posted, false, memory_order_acq_rel);
	fiber_wake(fiber);
}
