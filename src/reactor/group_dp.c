/* reactor/group_dp.c: decides which fiber runs next: fibers queue in groups, and groups share the
 * processor.
 *
 * The server's own group is served first, once a round. The others are served by deficit round
 * robin (M. Shreedhar, G. Varghese, "Efficient fair queueing using deficit round robin", 1995),
 * counted in time, and a group that was empty goes before groups that were not (RFC 8290, section
 * 4.2). So a client that asks for little waits for at most one slice of another client, and a
 * client that asks for much waits for its own work.
 *
 *   idle   in no list, no fiber                     -> fresh by a fiber
 *   fresh  with a whole quantum                     -> old when that is used up or its fibers are
 *   old    waits until those before it had theirs   -> idle when it is served without a fiber */
#include "reactor/reactor_priv.h"

/* The time that a group may use before the next one is served. */
#define QUANTUM_NS (50 * NS_PER_US)
/* More than so many quanta nobody owes. */
#define DEBT_QUANTA 64
/* How long clients' groups run before the loop looks for what came meanwhile. */
#define ROUND_NS (100 * NS_PER_US)
/* For how many such times two groups are held to share, when both were served. */
#define ROUNDS_MIXED 200u
/* How often the counter's speed is measured again. */
#define SPEED_TICKS (1ull << 30)

/* By how far clock and counter have come since the reactor was opened; in the first millisecond by
 * a guess. */
static void speed_measure(struct reactor *reactor)
{
	uint64_t ns = reactor->now_ns - reactor->open_ns;
	uint64_t ticks = reactor->now_ticks - reactor->open_ticks;
	uint64_t per_us = ns < NS_PER_MS ? 1000 : MAX(ticks / MAX(ns / NS_PER_US, 1), 1);

	reactor->quantum_ticks = (int64_t)(QUANTUM_NS / NS_PER_US * per_us);
	reactor->round_ticks = ROUND_NS / NS_PER_US * per_us;
	reactor->speed_due_ticks = reactor->now_ticks + (ns < NS_PER_S ? 0 : SPEED_TICKS);
}

void groups_init(struct reactor *reactor)
{
	list_init(&reactor->groups_fresh);
	list_init(&reactor->groups_old);
	for (uint32_t i = 0; i < REACTOR_GROUPS; i++)
		list_init(&reactor->groups[i].runnable);
	speed_measure(reactor);
}

void group_push(struct reactor *reactor, struct fiber *fiber)
{
	struct group *group = &reactor->groups[fiber->group];

	fiber->round = reactor->round;
	list_push_back(&group->runnable, &fiber->link);
	reactor->runnable++;
	if (group->queued || !fiber->group)
		return;
	group->queued = group->fresh = true;
	group->credit_ticks = reactor->quantum_ticks;
	list_push_back(&reactor->groups_fresh, &group->link);
}

void group_take(struct reactor *reactor, struct fiber *fiber)
{
	list_remove(&fiber->link);
	reactor->runnable--;
}

/* The first fiber of a group that did not come in this round, or NULL. */
static struct fiber *group_first(const struct reactor *reactor, const struct group *group)
{
	struct fiber *fiber;

	if (list_empty(&group->runnable))
		return NULL;
	fiber = CONTAINER_OF(group->runnable.next, struct fiber, link);
	return fiber->round == reactor->round ? NULL : fiber;
}

static void group_retire(struct reactor *reactor, struct group *group)
{
	list_remove(&group->link);
	group->queued = group->fresh;
	group->fresh = false;
	if (group->queued)
		list_push_back(&reactor->groups_old, &group->link);
}

/* Used up: behind the others, with another quantum. A group that is alone is forgiven its further
 * debt. */
static void group_rotate(struct reactor *reactor, struct group *group)
{
	list_remove(&group->link);
	if (list_empty(&reactor->groups_fresh) && list_empty(&reactor->groups_old))
		group->credit_ticks = 0;
	group->credit_ticks = MAX(group->credit_ticks, -DEBT_QUANTA * reactor->quantum_ticks) +
			      reactor->quantum_ticks;
	group->fresh = false;
	list_push_back(&reactor->groups_old, &group->link);
}

static struct group *group_next(struct reactor *reactor)
{
	struct list *from =
		list_empty(&reactor->groups_fresh) ? &reactor->groups_old : &reactor->groups_fresh;

	return list_empty(from) ? NULL : CONTAINER_OF(from->next, struct group, link);
}

/* Serves the groups of clients, until the round's time is over. */
static uint32_t serve_clients(struct reactor *reactor)
{
	uint64_t now_ticks = reactor->round_begin_ticks;
	struct group *group;
	struct list done;
	uint32_t count = 0;

	list_init(&done);
	while ((group = group_next(reactor)) != NULL) {
		struct fiber *fiber = group_first(reactor, group);
		uint64_t begin_ticks = now_ticks;

		if (!fiber && list_empty(&group->runnable)) {
			group_retire(reactor, group);
			continue;
		}
		if (!fiber) { /* the rest of it came in this round */
			list_remove(&group->link);
			group->fresh = false;
			list_push_back(&done, &group->link);
			continue;
		}
		if (group->credit_ticks <= 0) {
			group_rotate(reactor, group);
			continue;
		}
		if (fiber->group != reactor->group_last) {
			reactor->group_last = fiber->group;
			reactor->mixed_ticks = begin_ticks;
		}
		group_take(reactor, fiber);
		fiber_enter(reactor, fiber);
		count++;
		now_ticks = clock_ticks();
		group->credit_ticks -= (int64_t)(now_ticks - begin_ticks);
		if (now_ticks - reactor->round_begin_ticks > reactor->round_ticks)
			break;
	}
	while (!list_empty(&done))
		list_push_back(&reactor->groups_old, list_pop(&done));
	return count;
}

uint32_t fibers_round(struct reactor *reactor)
{
	struct fiber *fiber;
	uint32_t count = 0;

	if (!reactor->runnable)
		return 0;
	if (__builtin_expect(reactor->now_ticks >= reactor->speed_due_ticks, 0))
		speed_measure(reactor);
	/* Fibers that become runnable during the round wait for the next. */
	reactor->round++;
	while ((fiber = group_first(reactor, &reactor->groups[0])) != NULL) {
		group_take(reactor, fiber);
		fiber_enter(reactor, fiber);
		count++;
	}
	if (reactor->runnable) {
		reactor->round_begin_ticks = clock_ticks();
		count += serve_clients(reactor);
	}
	stat_add(&reactor->stats.fiber_switches, count);
	return count;
}

void fiber_group_set(uint16_t group)
{
	struct fiber *fiber = fiber_self();

	CHECK(group < REACTOR_GROUPS);
	if (fiber)
		fiber->group = group;
}

bool fiber_shares(void)
{
	const struct fiber *fiber = fiber_self();
	const struct reactor *reactor = reactor_current;

	return !fiber || !fiber->group ||
	       reactor->round_begin_ticks - reactor->mixed_ticks <
		       ROUNDS_MIXED * reactor->round_ticks;
}

void fiber_yield_due(void)
{
	struct fiber *fiber = fiber_self();
	struct reactor *reactor = reactor_current;

	if (fiber && fiber->group &&
		clock_ticks() - reactor->round_begin_ticks > reactor->round_ticks)
		fiber_yield();
}
