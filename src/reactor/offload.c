/* reactor/offload.c: helper threads, shared by all reactors, for calls that block: a few for short
 * calls and a few for long ones, so that index walks and waits for other hosts never delay a read.
 * They start when there is work and end after some time without work. A queue is never longer than
 * the number of fibers, because each fiber waits for one call.
 *
 * Shares take turns, one call each, after the server's own share. So a client with many calls waits
 * for its own calls. Clients' calls never keep all helpers busy: the server's own have the others,
 * also while every client's call waits for a medium. */
#include "reactor/reactor_priv.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/wake.h"

#define HELPERS_MAX	    12u /* of each pool */
#define HELPERS_CLIENTS_MAX 8u	/* of them, for calls of clients */
#define HELPER_IDLE_S	    10
#define HELPER_STACK_BYTES  MIB /* RocksDB and getaddrinfo need much stack */
/* Index walks on all helpers must not slow down the loops or the calls that a commit waits for. */
#define LONG_NICE 10

#define WAITING	     "nebulaio_helper_calls_waiting"
#define WAITING_HELP "Blocking calls that wait for a helper thread, by pool."

/* All of a pool's helpers are busy, so the call waits for one. */
DEFINE_COUNTER_FULL(short_calls_full, "helpers");
DEFINE_COUNTER_FULL(long_calls_full, "helpers_long");
DEFINE_COUNTER(short_calls_waiting, WAITING, "pool=\"short\"", WAITING_HELP);
DEFINE_COUNTER(long_calls_waiting, WAITING, "pool=\"long\"", WAITING_HELP);

/* On the fiber's stack. */
struct offload {
	struct list link;
	fiber_fn *fn;
	void *arg;
	struct fiber *fiber;
	struct reactor_msg done_msg;
};

/* The waiting calls of one share. */
struct turn {
	struct list link; /* in the pool's turns, while there are any */
	struct list calls;
	uint32_t count; /* of the calls */
};

struct pool {
	const char *name;
	int nice; /* added to the process's own, for the helpers */
	struct counter *full, *waiting;
	pthread_mutex_t lock;
	struct list sleepers;
	struct list turns;
	uint32_t queued, helpers, idle;
	uint32_t clients; /* the helpers that are in a client's call */
	struct turn turn_of[REACTOR_SHARES];
};

#define POOL(var, thread_name, more_nice)                   \
	static struct pool var = {                          \
		.name = thread_name,                        \
		.nice = more_nice,                          \
		.full = &var##_full,                        \
		.waiting = &var##_waiting,                  \
		.lock = PTHREAD_MUTEX_INITIALIZER,          \
		.sleepers = {&var.sleepers, &var.sleepers}, \
		.turns = {&var.turns, &var.turns},          \
	}
POOL(short_calls, "offload", 0);
POOL(long_calls, "offload-long", LONG_NICE);

void reactor_help_begin(struct reactor *reactor)
{
	atomic_fetch_add_explicit(&reactor->helpers, 1, memory_order_relaxed);
}

void reactor_help_end(struct reactor *reactor, struct reactor_msg *msg)
{
	/* After the post, the waiting fiber may have ended, and reactor_run may have returned. Only
	 * the count keeps the reactor's memory. */
	reactor_post(reactor, msg);
	atomic_fetch_sub_explicit(&reactor->helpers, 1, memory_order_release);
}

/* On the fiber's reactor. */
static void offload_done(struct reactor_msg *msg)
{
	fiber_resume(CONTAINER_OF(msg, struct offload, done_msg)->fiber);
}

static void offload_run(struct offload *offload)
{
	struct reactor *reactor = offload->fiber->reactor;

	fiber_helped_set(offload->fiber);
	offload->fn(offload->arg);
	fiber_helped_set(NULL);
	reactor_help_end(reactor, &offload->done_msg);
}

/* ---- The queue. Called with the lock held. ---- */

static void turn_add(struct pool *pool, uint16_t share)
{
	struct turn *turn = &pool->turn_of[share];

	if (share)
		list_push_back(&pool->turns, &turn->link);
	else
		list_push_front(&pool->turns, &turn->link);
}

static void queue_push(struct pool *pool, struct offload *offload)
{
	uint16_t share = offload->fiber->place.share;
	struct turn *turn = &pool->turn_of[share];

	if (!turn->count++) {
		list_init(&turn->calls);
		turn_add(pool, share);
	}
	list_push_back(&turn->calls, &offload->link);
	pool->queued++;
	counter_add(pool->waiting, 1);
}

/* Takes the call out of the queue. A share that has more calls queues again. */
static void queue_take(struct pool *pool, struct offload *offload)
{
	uint16_t share = offload->fiber->place.share;
	struct turn *turn = &pool->turn_of[share];

	list_remove(&offload->link);
	list_remove(&turn->link);
	if (--turn->count)
		turn_add(pool, share);
	pool->queued--;
	counter_sub(pool->waiting, 1);
}

static bool is_client(const struct offload *offload)
{
	return offload->fiber->place.share != 0;
}

/* The next call that a helper may take, or NULL. */
static struct offload *queue_first(const struct pool *pool)
{
	const struct turn *turn = CONTAINER_OF(pool->turns.next, struct turn, link);
	struct offload *offload;

	if (list_empty(&pool->turns))
		return NULL;
	offload = CONTAINER_OF(turn->calls.next, struct offload, link);
	return is_client(offload) && pool->clients == HELPERS_CLIENTS_MAX ? NULL : offload;
}

/* Whether the call that was queued last needs one more helper, and whether it may have one. Each of
 * the other calls that may run now has an idle helper, which has been woken or has not come yet. */
static bool needs_helper(const struct pool *pool, const struct offload *offload, bool *ret_may)
{
	uint32_t own = pool->turn_of[0].count, clients = pool->queued - own;
	uint32_t may_run = own + MIN(clients, HELPERS_CLIENTS_MAX - pool->clients);
	bool room = !is_client(offload) || pool->clients + clients <= HELPERS_CLIENTS_MAX;

	*ret_may = room && pool->helpers < HELPERS_MAX;
	return !room || may_run > pool->idle;
}

/* ---- */

/* Called with the lock held. The next job, or NULL when it is time for this helper to end. */
static struct offload *next(struct pool *pool)
{
	struct offload *offload;
	struct timespec until;
	int error = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += HELPER_IDLE_S;
	pool->idle++;
	while ((offload = queue_first(pool)) == NULL && error != ETIMEDOUT)
		error = wake_wait(&pool->sleepers, &pool->lock, &until);
	pool->idle--;
	if (offload)
		queue_take(pool, offload);
	return offload;
}

/* Linux has a priority for each thread (nice(2)). A helper that keeps the normal one still
 * works. */
static void helper_lower(const struct pool *pool)
{
	errno = 0;
	if (pool->nice && nice(pool->nice) == -1 && errno)
		log_debug("reactor", "%s: priority not lowered: %s", pool->name, strerror(errno));
}

static void *helper(void *arg)
{
	struct pool *pool = (struct pool *)arg;
	struct offload *offload;

	pthread_setname_np(pthread_self(), pool->name);
	helper_lower(pool);
	pthread_mutex_lock(&pool->lock);
	while ((offload = next(pool)) != NULL) {
		uint32_t client = is_client(offload);

		pool->clients += client;
		pthread_mutex_unlock(&pool->lock);
		offload_run(offload);
		pthread_mutex_lock(&pool->lock);
		pool->clients -= client;
	}
	pool->helpers--;
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

/* Called with the lock held. */
static int helper_start(struct pool *pool)
{
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t thread;
	int error;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, HELPER_STACK_BYTES);
	/* Signals are for the threads that expect them. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&thread, &attr, helper, pool);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	if (!error)
		pool->helpers++;
	return -error;
}

static void offload_to(struct pool *pool, fiber_fn *fn, void *arg)
{
	struct offload offload = {
		.fn = fn,
		.arg = arg,
		.fiber = fiber_self(),
		.done_msg.fn = offload_done,
	};
	bool may_start;
	int error = 0;

	CHECK(offload.fiber != NULL);
	reactor_help_begin(offload.fiber->reactor);
	pthread_mutex_lock(&pool->lock);
	queue_push(pool, &offload);
	if (needs_helper(pool, &offload, &may_start)) {
		if (may_start)
			error = helper_start(pool);
		else
			counter_add(pool->full, 1);
	}
	if (error && pool->helpers == 0) {
		/* No helper will ever take the call. */
		queue_take(pool, &offload);
		pthread_mutex_unlock(&pool->lock);
		atomic_fetch_sub_explicit(
			&offload.fiber->reactor->helpers, 1, memory_order_relaxed);
		log_warn("reactor", "no helper thread (%s): a blocking call blocks core %u",
			strerror(-error), offload.fiber->reactor->opts.core_idx);
		fn(arg);
		return;
	}
	wake_unlock(&pool->sleepers, &pool->lock, 1);
	fiber_wait();
}

void fiber_offload(fiber_fn *fn, void *arg)
{
	offload_to(&short_calls, fn, arg);
}

void fiber_offload_long(fiber_fn *fn, void *arg)
{
	offload_to(&long_calls, fn, arg);
}
