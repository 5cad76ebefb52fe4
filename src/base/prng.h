/* base/prng.h: a seeded generator, so that any test run can be replayed (xoshiro256**, Blackman and
 * Vigna 2018, seeded by splitmix64). Never for secrets: those come from getrandom(2). */
#ifndef BASE_PRNG_H
#define BASE_PRNG_H

#include <stddef.h>
#include <stdint.h>

struct prng {
	uint64_t s[4];
};

void prng_seed(struct prng *prng, uint64_t seed);
uint64_t prng_next(struct prng *prng);
/* Uniform in [0, bound); bound must not be 0. */
uint64_t prng_below(struct prng *prng, uint64_t bound);
void prng_fill(struct prng *prng, void *buf, size_t len);
/* Fills buf with bytes fit for secrets from the kernel; aborts if there are none. */
void random_fill(void *buf, size_t len);

#endif
