/* base/mpsc.h: an intrusive queue, many producers on any thread, one consumer, no lock.
 * Producers only exchange one pointer; a consumer that meets a half-finished push sees "empty". */
#ifndef BASE_MPSC_H
#define BASE_MPSC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct mpsc_node {
	_Atomic(struct mpsc_node *) next;
};

struct mpsc {
	_Alignas(64) _Atomic(struct mpsc_node *) head; /* producers */
	_Alignas(64) struct mpsc_node *tail;	       /* the consumer */
	struct mpsc_node stub;
};

static inline void mpsc_init(struct mpsc *q)
{
	atomic_init(&q->stub.next, NULL);
	atomic_init(&q->head, &q->stub);
	q->tail = &q->stub;
}

/* Any thread. The node is the queue's until popped. */
static inline void mpsc_push(struct mpsc *q, struct mpsc_node *node)
{
	struct mpsc_node *prev;

	atomic_store_explicit(&node->next, NULL, memory_order_relaxed);
	prev = atomic_exchange_explicit(&q->head, node, memory_order_acq_rel);
	atomic_store_explicit(&prev->next, node, memory_order_release);
}

/* Consumer only. NULL when empty, or when the next push has not finished yet. */
static inline struct mpsc_node *mpsc_pop(struct mpsc *q)
{
	struct mpsc_node *tail = q->tail;
	struct mpsc_node *next = atomic_load_explicit(&tail->next, memory_order_acquire);

	if (tail == &q->stub) {
		if (!next)
			return NULL;
		q->tail = next;
		tail = next;
		next = atomic_load_explicit(&tail->next, memory_order_acquire);
	}
	if (next) {
		q->tail = next;
		return tail;
	}
	if (tail != atomic_load_explicit(&q->head, memory_order_acquire))
		return NULL;
	mpsc_push(q, &q->stub);
	next = atomic_load_explicit(&tail->next, memory_order_acquire);
	if (!next)
		return NULL;
	q->tail = next;
	return tail;
}

/* Consumer only. False also while a push is half-finished: an entry is there, or will be soon. */
static inline bool mpsc_empty(const struct mpsc *q)
{
	return q->tail == &q->stub &&
	       atomic_load_explicit(&q->head, memory_order_acquire) == &q->stub;
}

#endif
