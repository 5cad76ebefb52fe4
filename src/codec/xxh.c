/* codec/xxh.c: xxHash by libxxhash's header. */
#include "codec/xxh.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

_Static_assert(
	sizeof(XXH64_state_t) <= sizeof(struct xxh64), "libxxhash's state of XXH64 fits ours");
_Static_assert(sizeof(XXH3_state_t) <= sizeof(struct xxh3), "libxxhash's state of XXH3 fits ours");
_Static_assert(_Alignof(XXH3_state_t) <= _Alignof(struct xxh3), "and is aligned");

void xxh64_init(struct xxh64 *xxh64)
{
	XXH64_reset((XXH64_state_t *)xxh64, 0);
}

void xxh64_update(struct xxh64 *xxh64, const void *data, size_t len)
{
	XXH64_update((XXH64_state_t *)xxh64, data, len);
}

static void put_canonical(uint64_t hash, uint8_t *ret_digest)
{
	XXH64_canonical_t canonical;

	XXH64_canonicalFromHash(&canonical, hash);
	memcpy(ret_digest, canonical.digest, sizeof(canonical.digest));
}

void xxh64_final(struct xxh64 *xxh64, uint8_t ret_digest[XXH64_BYTES])
{
	put_canonical(XXH64_digest((XXH64_state_t *)xxh64), ret_digest);
}

void xxh3_init(struct xxh3 *xxh3)
{
	XXH3_64bits_reset((XXH3_state_t *)xxh3);
}

void xxh3_update(struct xxh3 *xxh3, const void *data, size_t len)
{
	XXH3_64bits_update((XXH3_state_t *)xxh3, data, len);
}

void xxh3_final(struct xxh3 *xxh3, uint8_t ret_digest[XXH3_BYTES])
{
	put_canonical(XXH3_64bits_digest((XXH3_state_t *)xxh3), ret_digest);
}

void xxh3_final128(struct xxh3 *xxh3, uint8_t ret_digest[XXH128_BYTES])
{
	XXH128_canonical_t canonical;

	XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest((XXH3_state_t *)xxh3));
	memcpy(ret_digest, canonical.digest, sizeof(canonical.digest));
}
