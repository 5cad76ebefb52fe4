/* reactor/share_dp.c: decides which fiber runs next: fibers queue in the share of their principal,
 * and shares take turns at the processor.
 *
 * The server's own share is served first, once a round. The others are served by deficit round
 * robin (M. Shreedhar, G. Varghese, "Efficient fair queueing using deficit round robin", 1995),
 * counted in time, and a share that was empty goes before shares that were not (RFC 8290, section
 * 4.2). So a client that asks for little waits for at most one slice of another client, and a
 * client that asks for much waits for its own work.
 *
 *   idle   in no list, no fiber                     -> fresh by a fiber
 *   fresh  with a whole quantum                     -> old when that is used up or its fibers are
 *   old    waits for the shares before it           -> idle when it is served without a fiber */
#include "reactor/reactor_priv.h"

/* The time that a share may use before the next one is served. */
#define QUANTUM_NS (50 * NS_PER_US)
/* The largest debt of a share, in quanta. */
#define DEBT_QUANTA 64
/* How long clients' shares run before the loop looks for new events. */
#define ROUND_NS (100 * NS_PER_US)
/* Shares count as contending for this many rounds after the served share changed. */
#define ROUNDS_MIXED 200u
/* How often the counter's speed is measured again. */
#define SPEED_TICKS (1ull << 30)

/* Derives the counts of ticks from the counter's speed since the reactor was opened; in the first
 * millisecond from a guess. */
static void speed_measure(struct reactor *reactor)
{
	uint64_t ns = reactor->now_ns - reactor->open_ns;
	uint64_t ticks = reactor->now_ticks - reactor->open_ticks;
	uint64_t per_us = ns < NS_PER_MS ? 1000 : MAX(ticks / MAX(ns / NS_PER_US, 1), 1);

	reactor->quantum_ticks = (int64_t)(QUANTUM_NS / NS_PER_US * per_us);
	reactor->round_ticks = ROUND_NS / NS_PER_US * per_us;
	reactor->long_ticks = REACTOR_TURN_LONG_NS / NS_PER_US * per_us;
	reactor->tick_ns = NS_PER_US * REACTOR_TICK_NS_ONE / per_us;
	reactor->speed_due_ticks = reactor->now_ticks + (ns < NS_PER_S ? 0 : SPEED_TICKS);
}

void shares_init(struct reactor *reactor)
{
	list_init(&reactor->shares_fresh);
	list_init(&reactor->shares_old);
	for (uint32_t i = 0; i < REACTOR_SHARES; i++)
		list_init(&reactor->shares[i].runnable);
	speed_measure(reactor);
}

void share_push(struct reactor *reactor, struct fiber_place *place)
{
	struct share *share = &reactor->shares[place->share];

	place->round = reactor->round;
	list_push_back(&share->runnable, &place->link);
	reactor->runnable++;
	if (share->queued || !place->share)
		return;
	share->queued = share->fresh = true;
	share->credit_ticks = reactor->quantum_ticks;
	list_push_back(&reactor->shares_fresh, &share->link);
}

void share_take(struct reactor *reactor, struct fiber_place *place)
{
	list_remove(&place->link);
	reactor->runnable--;
}

/* The first of a share; NULL when there is none, or when it became runnable in this round. */
static struct fiber_place *share_first(const struct reactor *reactor, const struct share *share)
{
	struct fiber_place *place;

	if (list_empty(&share->runnable))
		return NULL;
	place = CONTAINER_OF(share->runnable.next, struct fiber_place, link);
	return place->round == reactor->round ? NULL : place;
}

/* Takes it out of its queue and runs it, until it stops or ends. */
static void place_run(struct reactor *reactor, struct fiber_place *place)
{
	struct fiber *fiber;

	share_take(reactor, place);
	if (place->is_start)
		fiber = fiber_begin(reactor, CONTAINER_OF(place, struct fiber_start, place));
	else
		fiber = CONTAINER_OF(place, struct fiber, place);
	fiber_enter(reactor, fiber);
}

static void share_retire(struct reactor *reactor, struct share *share)
{
	list_remove(&share->link);
	share->queued = share->fresh;
	share->fresh = false;
	if (share->queued)
		list_push_back(&reactor->shares_old, &share->link);
}

/* A share that has used up its quantum goes behind the others and gets another quantum. The debt of
 * a share that is alone is forgiven. */
static void share_rotate(struct reactor *reactor, struct share *share)
{
	list_remove(&share->link);
	if (list_empty(&reactor->shares_fresh) && list_empty(&reactor->shares_old))
		share->credit_ticks = 0;
	share->credit_ticks = MAX(share->credit_ticks, -DEBT_QUANTA * reactor->quantum_ticks) +
			      reactor->quantum_ticks;
	share->fresh = false;
	list_push_back(&reactor->shares_old, &share->link);
}

static struct share *share_next(struct reactor *reactor)
{
	struct list *from =
		list_empty(&reactor->shares_fresh) ? &reactor->shares_old : &reactor->shares_fresh;

	return list_empty(from) ? NULL : CONTAINER_OF(from->next, struct share, link);
}

/* Serves the shares of clients, until the round's time is over. */
static uint32_t serve_clients(struct reactor *reactor)
{
	uint64_t now_ticks = reactor->round_begin_ticks;
	struct share *share;
	struct list done;
	uint32_t count = 0;

	list_init(&done);
	while ((share = share_next(reactor)) != NULL) {
		struct fiber_place *first = share_first(reactor, share);
		uint64_t begin_ticks = now_ticks;

		if (!first && list_empty(&share->runnable)) {
			share_retire(reactor, share);
			continue;
		}
		if (!first) { /* its fibers became runnable in this round */
			list_remove(&share->link);
			share->fresh = false;
			list_push_back(&done, &share->link);
			continue;
		}
		if (share->credit_ticks <= 0) {
			share_rotate(reactor, share);
			continue;
		}
		if (first->share != reactor->share_last) {
			reactor->share_last = first->share;
			reactor->mixed_ticks = begin_ticks;
		}
		place_run(reactor, first);
		count++;
		now_ticks = clock_ticks();
		share->credit_ticks -= (int64_t)(now_ticks - begin_ticks);
		if (now_ticks - reactor->round_begin_ticks > reactor->round_ticks)
			break;
	}
	while (!list_empty(&done))
		list_push_back(&reactor->shares_old, list_pop(&done));
	return count;
}

uint32_t fibers_round(struct reactor *reactor)
{
	struct fiber_place *first;
	uint32_t count = 0;

	if (!reactor->runnable)
		return 0;
	if (__builtin_expect(reactor->now_ticks >= reactor->speed_due_ticks, 0))
		speed_measure(reactor);
	/* Fibers that become runnable during the round wait for the next. */
	reactor->round++;
	while ((first = share_first(reactor, &reactor->shares[0])) != NULL) {
		place_run(reactor, first);
		count++;
	}
	if (reactor->runnable) {
		reactor->round_begin_ticks = clock_ticks();
		count += serve_clients(reactor);
	}
	stat_add(&reactor->stats.fiber_switches, count);
	return count;
}

void fiber_share_set(uint16_t share)
{
	struct fiber *fiber = fiber_self();

	CHECK(share < REACTOR_SHARES);
	if (fiber)
		fiber->place.share = share;
}

uint16_t fiber_share(void)
{
	const struct fiber *fiber = fiber_self();

	return fiber ? fiber->place.share : 0;
}

bool fiber_contended(void)
{
	const struct fiber *fiber = fiber_self();
	const struct reactor *reactor = reactor_current;

	return !fiber || !fiber->place.share ||
	       reactor->round_begin_ticks - reactor->mixed_ticks <
		       ROUNDS_MIXED * reactor->round_ticks;
}

void fiber_yield_due(void)
{
	struct fiber *fiber = fiber_self();
	struct reactor *reactor = reactor_current;

	if (fiber && fiber->place.share &&
		clock_ticks() - reactor->round_begin_ticks > reactor->round_ticks)
		fiber_yield();
}
