/* codec/hash.c: the hashes by libcrypto, the MACs and key derivation built on them.
 *
 * libcrypto's one-algorithm calls are used, not EVP: their contexts are plain structs, so that a
 * request's hash costs no heap, can be copied, and starts in nanoseconds (EVP takes several
 * hundred). The assembly behind both is the same. libcrypto marks them deprecated, without a
 * replacement that has these properties. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "codec/hash.h"

#include <errno.h>
#include <string.h>

#include <openssl/md5.h>
#include <openssl/sha.h>
#include <sodium/crypto_shorthash_siphash24.h>

#include "base/base.h"

_Static_assert(sizeof(MD5_CTX) <= sizeof(struct md5), "libcrypto's MD5 context fits ours");
_Static_assert(sizeof(SHA_CTX) <= sizeof(struct sha1), "libcrypto's SHA-1 context fits ours");
_Static_assert(
	sizeof(SHA256_CTX) <= sizeof(struct sha256), "libcrypto's SHA-256 context fits ours");
_Static_assert(
	sizeof(SHA512_CTX) <= sizeof(struct sha512), "libcrypto's SHA-512 context fits ours");
_Static_assert(SIPHASH_BYTES == crypto_shorthash_siphashx24_BYTES, "libsodium's length is ours");

/* HMAC's block length for SHA-1 and SHA-256 (FIPS 198-1). */
#define HMAC_BLOCK_BYTES SHA256_CBLOCK
_Static_assert(SHA_CBLOCK == HMAC_BLOCK_BYTES, "both hashes have blocks of one length");
#define HKDF_ROUNDS_MAX 255u

void md5_init(struct md5 *md5)
{
	MD5_Init((MD5_CTX *)md5);
}

void md5_update(struct md5 *md5, const void *data, size_t len)
{
	MD5_Update((MD5_CTX *)md5, data, len);
}

void md5_final(struct md5 *md5, uint8_t ret_digest[MD5_BYTES])
{
	MD5_Final(ret_digest, (MD5_CTX *)md5);
}

void sha1_init(struct sha1 *sha1)
{
	SHA1_Init((SHA_CTX *)sha1);
}

void sha1_update(struct sha1 *sha1, const void *data, size_t len)
{
	SHA1_Update((SHA_CTX *)sha1, data, len);
}

void sha1_final(struct sha1 *sha1, uint8_t ret_digest[SHA1_BYTES])
{
	SHA1_Final(ret_digest, (SHA_CTX *)sha1);
}

void sha256_init(struct sha256 *sha256)
{
	SHA256_Init((SHA256_CTX *)sha256);
}

void sha256_update(struct sha256 *sha256, const void *data, size_t len)
{
	SHA256_Update((SHA256_CTX *)sha256, data, len);
}

void sha256_final(struct sha256 *sha256, uint8_t ret_digest[SHA256_BYTES])
{
	SHA256_Final(ret_digest, (SHA256_CTX *)sha256);
}

void sha512_init(struct sha512 *sha512)
{
	SHA512_Init((SHA512_CTX *)sha512);
}

void sha512_update(struct sha512 *sha512, const void *data, size_t len)
{
	SHA512_Update((SHA512_CTX *)sha512, data, len);
}

void sha512_final(struct sha512 *sha512, uint8_t ret_digest[SHA512_BYTES])
{
	SHA512_Final(ret_digest, (SHA512_CTX *)sha512);
}

void md5_of(const void *data, size_t len, uint8_t ret_digest[MD5_BYTES])
{
	struct md5 md5;

	md5_init(&md5);
	md5_update(&md5, data, len);
	md5_final(&md5, ret_digest);
}

void sha256_of(const void *data, size_t len, uint8_t ret_digest[SHA256_BYTES])
{
	struct sha256 sha256;

	sha256_init(&sha256);
	sha256_update(&sha256, data, len);
	sha256_final(&sha256, ret_digest);
}

void hmac_key_init(struct hmac_key *key, const void *secret, size_t secret_len)
{
	uint8_t block[HMAC_BLOCK_BYTES] = {0};

	if (secret_len > sizeof(block))
		sha256_of(secret, secret_len, block);
	else if (secret_len)
		memcpy(block, secret, secret_len);
	for (size_t i = 0; i < sizeof(block); i++)
		block[i] ^= 0x36;
	sha256_init(&key->inner);
	sha256_update(&key->inner, block, sizeof(block));
	for (size_t i = 0; i < sizeof(block); i++)
		block[i] ^= 0x36 ^ 0x5c;
	sha256_init(&key->outer);
	sha256_update(&key->outer, block, sizeof(block));
	secret_wipe(block, sizeof(block));
}

void hmac_init(struct hmac *hmac, const struct hmac_key *key)
{
	hmac->inner = key->inner;
	hmac->key = key;
}

void hmac_update(struct hmac *hmac, const void *data, size_t len)
{
	sha256_update(&hmac->inner, data, len);
}

void hmac_final(struct hmac *hmac, uint8_t ret_mac[SHA256_BYTES])
{
	struct sha256 outer = hmac->key->outer;
	uint8_t digest[SHA256_BYTES];

	sha256_final(&hmac->inner, digest);
	sha256_update(&outer, digest, sizeof(digest));
	sha256_final(&outer, ret_mac);
}

void hmac_by_key(const struct hmac_key *key, struct slice message, uint8_t ret_mac[SHA256_BYTES])
{
	struct hmac hmac;

	hmac_init(&hmac, key);
	hmac_update(&hmac, message.data, message.len);
	hmac_final(&hmac, ret_mac);
}

void hmac_sha256(struct slice secret, struct slice message, uint8_t ret_mac[SHA256_BYTES])
{
	struct hmac_key key;

	hmac_key_init(&key, secret.data, secret.len);
	hmac_by_key(&key, message, ret_mac);
	secret_wipe(&key, sizeof(key));
}

void hmac_sha1(struct slice secret, struct slice message, uint8_t ret_mac[SHA1_BYTES])
{
	uint8_t block[HMAC_BLOCK_BYTES] = {0};
	struct sha1 hash;

	if (secret.len > sizeof(block)) {
		sha1_init(&hash);
		sha1_update(&hash, secret.data, secret.len);
		sha1_final(&hash, block);
	} else if (secret.len) {
		memcpy(block, secret.data, secret.len);
	}
	for (size_t i = 0; i < sizeof(block); i++)
		block[i] ^= 0x36;
	sha1_init(&hash);
	sha1_update(&hash, block, sizeof(block));
	sha1_update(&hash, message.data, message.len);
	sha1_final(&hash, ret_mac);
	for (size_t i = 0; i < sizeof(block); i++)
		block[i] ^= 0x36 ^ 0x5c;
	sha1_init(&hash);
	sha1_update(&hash, block, sizeof(block));
	sha1_update(&hash, ret_mac, SHA1_BYTES);
	sha1_final(&hash, ret_mac);
	secret_wipe(block, sizeof(block));
	secret_wipe(&hash, sizeof(hash));
}

int hkdf_sha256(
	struct slice secret, struct slice salt, struct slice info, void *ret_out, size_t out_len)
{
	uint8_t block[SHA256_BYTES], *out = ret_out;
	struct hmac_key key;
	size_t block_len = 0; /* the first round has no block before it */

	if (out_len > HKDF_ROUNDS_MAX * SHA256_BYTES)
		return -EINVAL;
	hmac_sha256(salt, secret, block);
	hmac_key_init(&key, block, sizeof(block));
	for (uint8_t round = 1; out_len; round++) {
		struct hmac hmac;
		size_t step = MIN(out_len, sizeof(block));

		hmac_init(&hmac, &key);
		hmac_update(&hmac, block, block_len);
		hmac_update(&hmac, info.data, info.len);
		hmac_update(&hmac, &round, 1);
		hmac_final(&hmac, block);
		block_len = sizeof(block);
		memcpy(out, block, step);
		out += step;
		out_len -= step;
	}
	secret_wipe(block, sizeof(block));
	secret_wipe(&key, sizeof(key));
	return 0;
}

void mac_siphash128(
	const uint8_t key[16], const void *data, size_t len, uint8_t ret_mac[SIPHASH_BYTES])
{
	crypto_shorthash_siphashx24(ret_mac, data, len, key);
}

/* All bytes are read whatever they are, eight at a time. The barrier hides from the compiler that a
 * difference decides. */
bool secret_equal(const void *a, const void *b, size_t len)
{
	const uint8_t *left = a, *right = b;
	uint64_t differ = 0;

	for (; len >= sizeof(uint64_t); len -= sizeof(uint64_t)) {
		uint64_t x, y;

		memcpy(&x, left, sizeof(x));
		memcpy(&y, right, sizeof(y));
		differ |= x ^ y;
		__asm__("" : "+r"(differ));
		left += sizeof(x);
		right += sizeof(y);
	}
	for (; len; len--) {
		differ |= (uint64_t)(*left++ ^ *right++);
		__asm__("" : "+r"(differ));
	}
	return !differ;
}

void secret_wipe(void *data, size_t len)
{
	if (len) /* without bytes there may be no address */
		explicit_bzero(data, len);
}
