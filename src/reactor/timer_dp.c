/* reactor/timer_dp.c: the timer wheel. Setting and cancelling take constant time, a tick costs
 * nothing, and eight words give the next due time, so that an idle reactor sleeps until exactly
 * then. */
#include "reactor/reactor_priv.h"

void wheel_init(struct wheel *wheel, uint64_t now_ns)
{
	wheel->tick = now_ns >> TICK_SHIFT;
	for (uint32_t level = 0; level < WHEEL_LEVELS; level++) {
		wheel->occupied[level] = 0;
		for (uint32_t slot = 0; slot < WHEEL_SLOTS; slot++)
			list_init(&wheel->slots[level][slot]);
	}
	list_init(&wheel->due);
}

/* The first tick that begins at or after ns, so that no timer is early. */
static uint64_t tick_at(uint64_t ns)
{
	uint64_t tick = ns >> TICK_SHIFT;

	return (ns & ((1ull << TICK_SHIFT) - 1)) ? tick + 1 : tick;
}

static void place(struct wheel *wheel, struct reactor_timer *timer)
{
	uint64_t tick = tick_at(timer->due_ns);
	uint32_t level, slot;

	if (tick <= wheel->tick)
		tick = wheel->tick + 1;
	level = (63 - (uint32_t)__builtin_clzll(tick ^ wheel->tick)) / WHEEL_DIGIT_BITS;
	slot = (uint32_t)(tick >> (level * WHEEL_DIGIT_BITS)) % WHEEL_SLOTS;
	list_push_back(&wheel->slots[level][slot], &timer->link);
	wheel->occupied[level] |= 1ull << slot;
	timer->slot = level * WHEEL_SLOTS + slot;
}

static void take(struct wheel *wheel, struct reactor_timer *timer)
{
	uint32_t level = timer->slot / WHEEL_SLOTS;
	uint32_t slot = timer->slot % WHEEL_SLOTS;

	list_remove(&timer->link);
	if (timer->slot != WHEEL_SLOT_DUE && list_empty(&wheel->slots[level][slot]))
		wheel->occupied[level] &= ~(1ull << slot);
}

/* The lowest level with timers has the earliest of all: higher ones differ from now in a higher
 * digit. Within it the lowest slot is the earliest; none lies behind the current digit. */
static bool first_slot(const struct wheel *wheel, uint32_t *ret_level, uint64_t *ret_tick)
{
	for (uint32_t level = 0; level < WHEEL_LEVELS; level++) {
		uint32_t shift = level * WHEEL_DIGIT_BITS;
		uint64_t slot, above;

		if (!wheel->occupied[level])
			continue;
		slot = (uint64_t)__builtin_ctzll(wheel->occupied[level]);
		above = shift + WHEEL_DIGIT_BITS;
		*ret_level = level;
		*ret_tick = (wheel->tick >> above << above) | slot << shift;
		return true;
	}
	return false;
}

/* Moves the slot's timers to the due list, or down to lower levels. */
static void open_slot(struct wheel *wheel, uint32_t level)
{
	uint32_t slot = (uint32_t)__builtin_ctzll(wheel->occupied[level]);
	struct list *link;

	wheel->occupied[level] &= ~(1ull << slot);
	while ((link = list_pop(&wheel->slots[level][slot])) != NULL) {
		struct reactor_timer *timer = CONTAINER_OF(link, struct reactor_timer, link);

		if (tick_at(timer->due_ns) <= wheel->tick) {
			list_push_back(&wheel->due, link);
			timer->slot = WHEEL_SLOT_DUE;
		} else {
			place(wheel, timer);
		}
	}
}

/* The common case: no timer is due. The slots stay right without being examined, because now did
 * not reach the first of them. */
static void advance(struct wheel *wheel, uint64_t now_tick)
{
	uint64_t tick;
	uint32_t level;

	while (first_slot(wheel, &level, &tick) && tick <= now_tick) {
		wheel->tick = tick;
		open_slot(wheel, level);
	}
	wheel->tick = now_tick;
}

uint32_t wheel_turn(struct wheel *wheel, uint64_t now_ns)
{
	uint64_t now_tick = now_ns >> TICK_SHIFT;
	uint32_t count = 0;
	struct list *link;

	if (now_tick <= wheel->tick)
		return 0;
	advance(wheel, now_tick);
	/* Timers that the functions set go to the wheel, so this ends; cancelled timers leave the
	 * list.
	 */
	while ((link = list_pop(&wheel->due)) != NULL) {
		struct reactor_timer *timer = CONTAINER_OF(link, struct reactor_timer, link);

		timer->armed = false;
		timer->fn(timer, timer->arg);
		count++;
	}
	return count;
}

uint64_t wheel_next_ns(const struct wheel *wheel)
{
	uint64_t tick;
	uint32_t level;

	if (!first_slot(wheel, &level, &tick))
		return DEADLINE_NONE;
	return tick <= DEADLINE_NONE >> TICK_SHIFT ? tick << TICK_SHIFT : DEADLINE_NONE;
}

void reactor_timer_set(struct reactor *reactor, struct reactor_timer *timer, uint64_t due_ns)
{
	if (timer->armed)
		take(&reactor->wheel, timer);
	timer->due_ns = due_ns;
	timer->armed = true;
	place(&reactor->wheel, timer);
}

void reactor_timer_cancel(struct reactor *reactor, struct reactor_timer *timer)
{
	if (!timer->armed)
		return;
	take(&reactor->wheel, timer);
	timer->armed = false;
}
