/* reactor/spin.h: the rules by which the spinning of an event loop without work follows its load
 * (docs/design/tuning.md). Pure: the caller measures. */
#ifndef REACTOR_SPIN_H
#define REACTOR_SPIN_H

#include "base/base.h"

/* Waits for work are counted by their length: place 0 has those below a unit, place n those from
 * 2^(n-1) to 2^n units, and the last place all longer ones. */
#define SPIN_PLACES  10u
#define SPIN_UNIT_NS 1024u
/* Fewer waits are too few to judge by. */
#define SPIN_WAITS_MIN 16u
/* The longest spinning that the rules choose. */
#define SPIN_NS_MAX (128u * SPIN_UNIT_NS)

/* A peer on the same processor needs less for its answer. */
#define SPIN_LOST_NS (100 * NS_PER_US)

/* One event loop's waits since the last look. */
struct spin_sample {
	uint32_t waits[SPIN_PLACES];
	uint64_t time_ns;
	uint64_t lost_ns; /* of it the loop spun, and others had its processor for SPIN_LOST_NS or
			     more at a time */
};

struct spin {
	uint64_t spin_ns; /* what the loop does now */
	uint32_t weights[SPIN_PLACES];
	uint64_t crowded_until_ns; /* 0: it is not crowded */
	uint64_t crowded_ns;	   /* how long it was, or was last */
	uint64_t probed_ns;	   /* when that ended */
	uint32_t choices;	   /* that it has until then */
};

static inline uint32_t spin_place(uint64_t wait_ns)
{
	uint64_t units = wait_ns / SPIN_UNIT_NS;

	return units ? MIN(64u - (uint32_t)__builtin_clzll(units), SPIN_PLACES - 1) : 0;
}

enum spin_verdict {
	SPIN_STAYS,
	SPIN_FOLLOWS, /* spin_ns has changed, because of the waits */
	SPIN_CROWDED, /* spin_ns is less, because others need the processor */
};
/* Judges a sample, and changes spin->spin_ns within 0 and SPIN_NS_MAX. */
enum spin_verdict spin_judge(struct spin *spin, const struct spin_sample *sample, uint64_t now_ns);

#endif
