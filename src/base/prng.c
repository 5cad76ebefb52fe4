/* base/prng.c: the seeded generator, and the kernel's for secrets. */
#include "base/prng.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/check.h"

static uint64_t rotl(uint64_t x, int k)
{
	return (x << k) | (x >> (64 - k));
}

void prng_seed(struct prng *prng, uint64_t seed)
{
	for (int i = 0; i < 4; i++) {
		uint64_t z = (seed += 0x9e3779b97f4a7c15ull);

		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
		z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
		prng->s[i] = z ^ (z >> 31);
	}
}

uint64_t prng_next(struct prng *prng)
{
	uint64_t *s = prng->s;
	uint64_t result = rotl(s[1] * 5, 7) * 9;
	uint64_t t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotl(s[3], 45);
	return result;
}

uint64_t prng_below(struct prng *prng, uint64_t bound)
{
	CHECK(bound != 0);
	return (uint64_t)(((unsigned __int128)prng_next(prng) * bound) >> 64);
}

void prng_fill(struct prng *prng, void *buf, size_t len)
{
	uint8_t *out = buf;

	while (len) {
		uint64_t word = prng_next(prng);
		size_t n = len < sizeof(word) ? len : sizeof(word);

		memcpy(out, &word, n);
		out += n;
		len -= n;
	}
}

void random_fill(void *buf, size_t len)
{
	uint8_t *out = buf;

	while (len) {
		ssize_t got = getrandom(out, len, 0);

		if (got < 0 && errno == EINTR)
			continue;
		CHECK(got > 0);
		out += got;
		len -= (size_t)got;
	}
}
