/* tests/unit/fuzz.h: the sessions of a test that falsifies its messages: a fixed number of sessions
 * from a seed, or, for scripts/fuzz, sessions of the seed FUZZ_SEED for FUZZ_SECONDS. FUZZ_FIRST
 * starts with a later session: the one that a failure names. */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"

static uint64_t fuzz_session; /* number of the next session */

static inline uint64_t fuzz_number(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 10) : otherwise;
}

/* Whether to run another session; seeds its generator. A test starts with until_ns 0. */
static inline bool fuzz_next(struct prng *prng, uint64_t count, uint64_t *until_ns)
{
	uint64_t seconds = fuzz_number("FUZZ_SECONDS", 0), seed = fuzz_number("FUZZ_SEED", 1);

	if (!*until_ns) {
		fuzz_session = fuzz_number("FUZZ_FIRST", 0);
		*until_ns = clock_now_ns() + seconds * NS_PER_S;
	}
	if (seconds ? clock_now_ns() >= *until_ns : fuzz_session >= count)
		return false;
	prng_seed(prng, seed << 32 | fuzz_session++);
	return true;
}

/* The result for main. */
static inline int fuzz_done(int failed)
{
	if (failed)
		printf("# seed %" PRIu64 ", session %" PRIu64 "\n", fuzz_number("FUZZ_SEED", 1),
			fuzz_session - 1);
	return failed;
}

#endif
