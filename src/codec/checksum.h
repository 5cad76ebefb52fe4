/* codec/checksum.h: S3's object checksums, MD5 for ETags among them, behind one struct, so that
 * code that moves bytes can compute any of them.
 *
 * Source: S3 User Guide, "Checking object integrity". CRCs are written as big-endian bytes, which
 * S3 encodes in base64. */
#ifndef CODEC_CHECKSUM_H
#define CODEC_CHECKSUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"
#include "codec/hash.h"
#include "codec/xxh.h"

/* Stored on disk and sent on the wire: the numbers never change. */
enum checksum_kind {
	CHECKSUM_NONE = 0,
	CHECKSUM_CRC32 = 1,
	CHECKSUM_CRC32C = 2,
	CHECKSUM_CRC64NVME = 3,
	CHECKSUM_SHA1 = 4,
	CHECKSUM_SHA256 = 5,
	CHECKSUM_MD5 = 6,
	CHECKSUM_SHA512 = 7,
	CHECKSUM_XXHASH64 = 8,
	CHECKSUM_XXHASH3 = 9,
	CHECKSUM_XXHASH128 = 10,
};
#define CHECKSUM_KIND_COUNT 11

#define CHECKSUM_BYTES_MAX 64u
/* Longest base64 text of a digest: 64 bytes. */
#define CHECKSUM_TEXT_LEN_MAX 88u
/* All of S3's by name, as errors list them. */
#define CHECKSUM_NAMES \
	"CRC32, CRC32C, CRC64NVME, SHA1, SHA256, SHA512, MD5, XXHASH64, XXHASH3, XXHASH128"

/* Plain data: copied by assignment, no heap. XXH3 needs an alignment that malloc does not promise,
 * so keep it on the stack. CHECKSUM_NONE accepts any update and has a digest of 0 bytes. */
struct checksum {
	enum checksum_kind kind;
	union {
		uint64_t crc;
		struct md5 md5;
		struct sha1 sha1;
		struct sha256 sha256;
		struct sha512 sha512;
		struct xxh64 xxh64;
		struct xxh3 xxh3;
	} as;
};

void checksum_init(struct checksum *sum, enum checksum_kind kind);
void checksum_update(struct checksum *sum, const void *data, size_t len);
/* Writes checksum_bytes(kind) bytes and returns that number; then only init may follow. */
size_t checksum_final(struct checksum *sum, uint8_t ret_digest[CHECKSUM_BYTES_MAX]);

/* Computes the digest of a whole buffer in one call. */
size_t checksum_of(enum checksum_kind kind, const void *data, size_t len,
	uint8_t ret_digest[CHECKSUM_BYTES_MAX]);

/* Digest length in bytes: 0, 4, 4, 8, 20, 32, 16, 64, 8, 8, 16. */
size_t checksum_bytes(enum checksum_kind kind);

/* S3's name ("CRC32", "SHA256" ...) as x-amz-checksum-algorithm and XML have it; "NONE". */
struct slice checksum_name(enum checksum_kind kind);
/* Any case, as S3 accepts it. -EINVAL when S3 has no such checksum. */
int checksum_kind_of_name(struct slice name, enum checksum_kind *ret_kind);

/* The header that carries it in lower case, "x-amz-checksum-crc32"; empty for NONE. */
struct slice checksum_header(enum checksum_kind kind);
/* Any case. -EINVAL when the header is none of them. */
int checksum_kind_of_header(struct slice header, enum checksum_kind *ret_kind);

/* True for the CRCs: the digest of a whole can be computed from the digests of its parts. */
bool checksum_can_join(enum checksum_kind kind);
/* Digest of A followed by B into a. -EINVAL when the kind cannot join. */
int checksum_join(enum checksum_kind kind, uint8_t a[CHECKSUM_BYTES_MAX],
	const uint8_t b[CHECKSUM_BYTES_MAX], uint64_t b_bytes);

#endif
