/* codec/hash.h: MD5, SHA-1, SHA-256, SHA-512, HMAC of the middle two, HKDF-SHA-256 and SipHash as
 * plain structs: no heap; copied by assignment (the copy is independent); no call is needed to free
 * them.
 *
 * Life of each: init, any number of updates, final; then init again. */
#ifndef CODEC_HASH_H
#define CODEC_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"

#define MD5_BYTES     16u
#define SHA1_BYTES    20u
#define SHA256_BYTES  32u
#define SHA512_BYTES  64u
#define SIPHASH_BYTES 16u

/* The bodies are libcrypto's own contexts; hash.c asserts that their sizes match. */
struct md5 {
	uint64_t state[12];
};
struct sha1 {
	uint64_t state[12];
};
struct sha256 {
	uint64_t state[14];
};
struct sha512 {
	uint64_t state[27];
};

void md5_init(struct md5 *md5);
void md5_update(struct md5 *md5, const void *data, size_t len);
void md5_final(struct md5 *md5, uint8_t ret_digest[MD5_BYTES]);

/* Updates several hashes at once, each with its part: up to five times as fast as one after the
 * other, where the processor has AVX2 or AVX-512. No hash may be among them twice. Changes parts.
 */
struct md5_part {
	struct md5 *md5;
	const void *data;
	size_t len;
};
#define MD5_LANES_MAX 16u /* parts that are hashed at once; more take turns */
void md5_update_parts(struct md5_part *parts, uint32_t count);
/* For tests: with no more lanes than these: 16, 8 or 1. */
void md5_update_parts_width(struct md5_part *parts, uint32_t count, uint32_t width_max);

void sha1_init(struct sha1 *sha1);
void sha1_update(struct sha1 *sha1, const void *data, size_t len);
void sha1_final(struct sha1 *sha1, uint8_t ret_digest[SHA1_BYTES]);

void sha256_init(struct sha256 *sha256);
void sha256_update(struct sha256 *sha256, const void *data, size_t len);
void sha256_final(struct sha256 *sha256, uint8_t ret_digest[SHA256_BYTES]);

void sha512_init(struct sha512 *sha512);
void sha512_update(struct sha512 *sha512, const void *data, size_t len);
void sha512_final(struct sha512 *sha512, uint8_t ret_digest[SHA512_BYTES]);

/* All at once. */
void md5_of(const void *data, size_t len, uint8_t ret_digest[MD5_BYTES]);
void sha256_of(const void *data, size_t len, uint8_t ret_digest[SHA256_BYTES]);

/* A prepared HMAC key: the two padded key blocks already hashed, so that a message of up to 55
 * bytes costs two compressions. Holds a secret: give it to secret_wipe when done. */
struct hmac_key {
	struct sha256 inner;
	struct sha256 outer;
};

/* A running HMAC; key is borrowed until final. */
struct hmac {
	struct sha256 inner;
	const struct hmac_key *key;
};

void hmac_key_init(struct hmac_key *key, const void *secret, size_t secret_len);
void hmac_init(struct hmac *hmac, const struct hmac_key *key);
void hmac_update(struct hmac *hmac, const void *data, size_t len);
void hmac_final(struct hmac *hmac, uint8_t ret_mac[SHA256_BYTES]);

/* All at once, by a prepared key or by the secret itself. ret_mac may lie over the secret: SigV4's
 * chain of keys is four calls on one buffer. */
void hmac_by_key(const struct hmac_key *key, struct slice message, uint8_t ret_mac[SHA256_BYTES]);
void hmac_sha256(struct slice secret, struct slice message, uint8_t ret_mac[SHA256_BYTES]);
/* RFC 2104 over SHA-1: only for signatures of older protocols. */
void hmac_sha1(struct slice secret, struct slice message, uint8_t ret_mac[SHA1_BYTES]);

/* RFC 5869, extract and expand. salt and info may be empty. -EINVAL when out_len is over
 * 255 * 32 bytes. */
int hkdf_sha256(
	struct slice secret, struct slice salt, struct slice info, void *ret_out, size_t out_len);

/* SipHash-2-4 with 128 bits out: a keyed MAC for short messages (capsules). */
void mac_siphash128(
	const uint8_t key[16], const void *data, size_t len, uint8_t ret_mac[SIPHASH_BYTES]);

/* True when equal, in a time that depends on len only. For every comparison with a secret. */
bool secret_equal(const void *a, const void *b, size_t len);
/* Zeroes memory in a way that the compiler keeps. */
void secret_wipe(void *data, size_t len);

#endif
