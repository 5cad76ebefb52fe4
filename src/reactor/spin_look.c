/* reactor/spin_look.c: lets the spinning of an event loop follow what it met: some times a second
 * while it has work, never while it has none. */
#include "reactor/reactor_priv.h"

void spin_begin(struct reactor *reactor)
{
	reactor->spin.spin_ns = reactor->idle_spin_ns;
	reactor->looked_ns = clock_now_ns();
	reactor->look_due_ns = reactor->looked_ns + SPIN_LOOK_NS;
}

void spin_look(struct reactor *reactor)
{
	struct spin_sample *sample = &reactor->sample;
	enum spin_verdict verdict;
	uint32_t count = 0;

	reactor->look_due_ns = reactor->now_ns + SPIN_LOOK_NS;
	for (uint32_t i = 0; i < SPIN_PLACES; i++)
		count += sample->waits[i];
	if (count < SPIN_WAITS_MIN)
		return;
	sample->time_ns = reactor->now_ns - reactor->looked_ns;
	verdict = spin_judge(&reactor->spin, sample, reactor->now_ns);
	if (verdict != SPIN_STAYS) {
		__atomic_store_n(&reactor->idle_spin_ns, reactor->spin.spin_ns, __ATOMIC_RELAXED);
		stat_add(verdict == SPIN_CROWDED ? &reactor->stats.spin_crowded
						 : &reactor->stats.spin_changes,
			1);
	}
	*sample = (struct spin_sample){0};
	reactor->looked_ns = reactor->now_ns;
}
