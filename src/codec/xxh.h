/* codec/xxh.h: xxHash as plain structs, as hash.h has the others: XXH64, and XXH3 of 64 and 128
 * bits, all with seed 0. Digests are big-endian, xxHash's canonical form.
 *
 * Source: xxHash's specification; the code is libxxhash's, compiled in from its header. */
#ifndef CODEC_XXH_H
#define CODEC_XXH_H

#include <stddef.h>
#include <stdint.h>

#define XXH64_BYTES  8u
#define XXH3_BYTES   8u
#define XXH128_BYTES 16u

/* The bodies are libxxhash's own states; xxh.c asserts that their sizes match. */
struct xxh64 {
	uint64_t state[11];
};
/* One state for both lengths: the caller chooses the length at the end. */
struct xxh3 {
	_Alignas(64) uint64_t state[72];
};

void xxh64_init(struct xxh64 *xxh64);
void xxh64_update(struct xxh64 *xxh64, const void *data, size_t len);
void xxh64_final(struct xxh64 *xxh64, uint8_t ret_digest[XXH64_BYTES]);

void xxh3_init(struct xxh3 *xxh3);
void xxh3_update(struct xxh3 *xxh3, const void *data, size_t len);
void xxh3_final(struct xxh3 *xxh3, uint8_t ret_digest[XXH3_BYTES]);
void xxh3_final128(struct xxh3 *xxh3, uint8_t ret_digest[XXH128_BYTES]);

#endif
