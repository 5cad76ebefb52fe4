/* reactor/spin.c: decides how long an event loop without work spins before it sleeps. A wait that
 * ends while the loop spins costs its own length; one that does not costs the spinning, and a sleep
 * and a wake. The cheapest length for the waits of late is chosen.
 *
 * Hysteresis: a change must save a sixteenth. A loop that lost its processor spins for less,
 * for a while, and for twice as long when it loses it again. */
#include "reactor/spin.h"

/* A sleep and a wake take 20 µs of processor time, and the answer comes 25 µs later, each of which
 * is worth four of an idle processor. */
#define SLEEP_COST_NS (120 * NS_PER_US)
#define GAIN_PART     16u

/* Crowded: others had the processor for this part of the time, or for most of it. */
#define LOST_PART	16u
#define LOST_MOST_PART	2u
#define CROWDED_NS_MIN	(1 * NS_PER_S)
#define CROWDED_NS_MAX	(64 * NS_PER_S)
#define CROWDED_FORGETS 4u

/* Beside 0. A crowded loop has only the first few: those up to about the preset, or the one in
 * which it does not even yield. */
static const uint64_t CHOICES_NS[] = {
	8 * SPIN_UNIT_NS, 16 * SPIN_UNIT_NS, 32 * SPIN_UNIT_NS, 64 * SPIN_UNIT_NS, SPIN_NS_MAX};
#define CHOICES_SHORT	   3u
#define CHOICES_UNYIELDING 1u

_Static_assert(8 * SPIN_UNIT_NS < CLOCK_YIELD_NS && 16 * SPIN_UNIT_NS >= CLOCK_YIELD_NS,
	"only the first does not yield");

static uint64_t middle_ns(uint32_t place)
{
	return SPIN_UNIT_NS / 2 * (place ? 3ull << (place - 1) : 1);
}

static uint64_t cost(const struct spin *spin, uint64_t spin_ns)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < SPIN_PLACES; i++) {
		uint64_t wait_ns = middle_ns(i);

		sum += spin->weights[i] * (wait_ns <= spin_ns ? wait_ns : spin_ns + SLEEP_COST_NS);
	}
	return sum;
}

static void crowded_begin(struct spin *spin, uint32_t choices, uint64_t now_ns)
{
	bool again =
		spin->crowded_ns && now_ns - spin->probed_ns < CROWDED_FORGETS * spin->crowded_ns;

	spin->crowded_ns = again ? MIN(2 * spin->crowded_ns, CROWDED_NS_MAX) : CROWDED_NS_MIN;
	spin->crowded_until_ns = now_ns + spin->crowded_ns;
	spin->choices = choices;
}

static uint64_t cheapest(const struct spin *spin)
{
	size_t count = spin->crowded_until_ns ? spin->choices : ARRAY_LEN(CHOICES_NS);
	uint64_t best_ns = 0, best = cost(spin, 0);

	for (size_t i = 0; i < count; i++) {
		uint64_t one = cost(spin, CHOICES_NS[i]);

		if (one < best) {
			best = one;
			best_ns = CHOICES_NS[i];
		}
	}
	return best_ns;
}

/* How many choices a loop has that spun for too long beside others; 0: it did not. */
static uint32_t choices_left(const struct spin *spin, const struct spin_sample *sample)
{
	if (spin->spin_ns >= CLOCK_YIELD_NS && sample->lost_ns >= sample->time_ns / LOST_MOST_PART)
		return CHOICES_UNYIELDING;
	if (spin->spin_ns >= CHOICES_NS[CHOICES_SHORT] &&
		sample->lost_ns >= sample->time_ns / LOST_PART)
		return CHOICES_SHORT;
	return 0;
}

enum spin_verdict spin_judge(struct spin *spin, const struct spin_sample *sample, uint64_t now_ns)
{
	uint64_t best_ns, present;
	uint32_t choices;

	for (uint32_t i = 0; i < SPIN_PLACES; i++)
		spin->weights[i] = spin->weights[i] / 2 + sample->waits[i];
	if (spin->crowded_until_ns && now_ns >= spin->crowded_until_ns) {
		spin->crowded_until_ns = 0;
		spin->probed_ns = now_ns;
	}
	choices = choices_left(spin, sample);
	if (choices) {
		crowded_begin(spin, choices, now_ns);
		spin->spin_ns = cheapest(spin);
		return SPIN_CROWDED;
	}
	best_ns = cheapest(spin);
	present = cost(spin, spin->spin_ns);
	if (best_ns == spin->spin_ns || cost(spin, best_ns) >= present - present / GAIN_PART)
		return SPIN_STAYS;
	spin->spin_ns = best_ns;
	return SPIN_FOLLOWS;
}
