/* tests/e2e/vm/tsc_khz.c: prints how fast this processor's cycle counter is, in kHz. An emulator's
 * guests see it as theirs. */
#include <stdio.h>

#include "base/base.h"

#define SPAN_NS	 (200 * NS_PER_MS)
#define READINGS 1000u

struct reading {
	uint64_t ns;
	uint64_t ticks;
};

/* Of many readings the one that was interrupted least. */
static struct reading read_both(void)
{
	struct reading best = {0, 0};
	uint64_t best_ticks = UINT64_MAX;

	for (uint32_t i = 0; i < READINGS; i++) {
		uint64_t before = clock_ticks();
		uint64_t ns = clock_now_ns();
		uint64_t after = clock_ticks();

		if (after - before >= best_ticks)
			continue;
		best_ticks = after - before;
		best = (struct reading){ns, before + best_ticks / 2};
	}
	return best;
}

static uint64_t tsc_khz(void)
{
	struct reading first = read_both(), last = first;

	while (last.ns - first.ns < SPAN_NS)
		last = read_both();
	return (last.ticks - first.ticks) * NS_PER_MS / (last.ns - first.ns);
}

int main(void)
{
	printf("%llu\n", (unsigned long long)tsc_khz());
	return 0;
}
