/* codec/checksum.c: one switch over S3's checksums, for code that moves bytes and does not depend
 * on the kind of checksum. */
#include "codec/checksum.h"

#include <errno.h>

#include "base/base.h"
#include "codec/crc.h"

static const struct {
	struct slice name;
	struct slice header; /* empty: S3 has no such header */
	size_t bytes;
} kinds[CHECKSUM_KIND_COUNT] = {
	[CHECKSUM_NONE] = {{"NONE", 4}, {"", 0}, 0},
	[CHECKSUM_CRC32] = {{"CRC32", 5}, {"x-amz-checksum-crc32", 20}, 4},
	[CHECKSUM_CRC32C] = {{"CRC32C", 6}, {"x-amz-checksum-crc32c", 21}, 4},
	[CHECKSUM_CRC64NVME] = {{"CRC64NVME", 9}, {"x-amz-checksum-crc64nvme", 24}, 8},
	[CHECKSUM_SHA1] = {{"SHA1", 4}, {"x-amz-checksum-sha1", 19}, SHA1_BYTES},
	[CHECKSUM_SHA256] = {{"SHA256", 6}, {"x-amz-checksum-sha256", 21}, SHA256_BYTES},
	[CHECKSUM_MD5] = {{"MD5", 3}, {"x-amz-checksum-md5", 18}, MD5_BYTES},
	[CHECKSUM_SHA512] = {{"SHA512", 6}, {"x-amz-checksum-sha512", 21}, SHA512_BYTES},
	[CHECKSUM_XXHASH64] = {{"XXHASH64", 8}, {"x-amz-checksum-xxhash64", 23}, XXH64_BYTES},
	[CHECKSUM_XXHASH3] = {{"XXHASH3", 7}, {"x-amz-checksum-xxhash3", 22}, XXH3_BYTES},
	[CHECKSUM_XXHASH128] = {{"XXHASH128", 9}, {"x-amz-checksum-xxhash128", 24}, XXH128_BYTES},
};

void checksum_init(struct checksum *sum, enum checksum_kind kind)
{
	sum->kind = kind;
	switch (kind) {
	case CHECKSUM_NONE:
		return;
	case CHECKSUM_CRC32:
	case CHECKSUM_CRC32C:
	case CHECKSUM_CRC64NVME:
		sum->as.crc = 0;
		return;
	case CHECKSUM_SHA1:
		sha1_init(&sum->as.sha1);
		return;
	case CHECKSUM_SHA256:
		sha256_init(&sum->as.sha256);
		return;
	case CHECKSUM_MD5:
		md5_init(&sum->as.md5);
		return;
	case CHECKSUM_SHA512:
		sha512_init(&sum->as.sha512);
		return;
	case CHECKSUM_XXHASH64:
		xxh64_init(&sum->as.xxh64);
		return;
	case CHECKSUM_XXHASH3:
	case CHECKSUM_XXHASH128:
		xxh3_init(&sum->as.xxh3);
		return;
	}
	CHECK_FAIL("a checksum kind out of range");
}

void checksum_update(struct checksum *sum, const void *data, size_t len)
{
	switch (sum->kind) {
	case CHECKSUM_NONE:
		return;
	case CHECKSUM_CRC32:
		sum->as.crc = crc32_update((uint32_t)sum->as.crc, data, len);
		return;
	case CHECKSUM_CRC32C:
		sum->as.crc = crc32c_update((uint32_t)sum->as.crc, data, len);
		return;
	case CHECKSUM_CRC64NVME:
		sum->as.crc = crc64nvme_update(sum->as.crc, data, len);
		return;
	case CHECKSUM_SHA1:
		sha1_update(&sum->as.sha1, data, len);
		return;
	case CHECKSUM_SHA256:
		sha256_update(&sum->as.sha256, data, len);
		return;
	case CHECKSUM_MD5:
		md5_update(&sum->as.md5, data, len);
		return;
	case CHECKSUM_SHA512:
		sha512_update(&sum->as.sha512, data, len);
		return;
	case CHECKSUM_XXHASH64:
		xxh64_update(&sum->as.xxh64, data, len);
		return;
	case CHECKSUM_XXHASH3:
	case CHECKSUM_XXHASH128:
		xxh3_update(&sum->as.xxh3, data, len);
		return;
	}
	CHECK_FAIL("a checksum kind out of range");
}

static void put_big_endian(uint64_t value, size_t bytes, uint8_t *ret_digest)
{
	for (size_t i = bytes; i > 0; i--, value >>= 8)
		ret_digest[i - 1] = (uint8_t)value;
}

static uint64_t get_big_endian(const uint8_t *digest, size_t bytes)
{
	uint64_t value = 0;

	for (size_t i = 0; i < bytes; i++)
		value = value << 8 | digest[i];
	return value;
}

size_t checksum_final(struct checksum *sum, uint8_t ret_digest[CHECKSUM_BYTES_MAX])
{
	switch (sum->kind) {
	case CHECKSUM_NONE:
		break;
	case CHECKSUM_CRC32:
	case CHECKSUM_CRC32C:
	case CHECKSUM_CRC64NVME:
		put_big_endian(sum->as.crc, kinds[sum->kind].bytes, ret_digest);
		break;
	case CHECKSUM_SHA1:
		sha1_final(&sum->as.sha1, ret_digest);
		break;
	case CHECKSUM_SHA256:
		sha256_final(&sum->as.sha256, ret_digest);
		break;
	case CHECKSUM_MD5:
		md5_final(&sum->as.md5, ret_digest);
		break;
	case CHECKSUM_SHA512:
		sha512_final(&sum->as.sha512, ret_digest);
		break;
	case CHECKSUM_XXHASH64:
		xxh64_final(&sum->as.xxh64, ret_digest);
		break;
	case CHECKSUM_XXHASH3:
		xxh3_final(&sum->as.xxh3, ret_digest);
		break;
	case CHECKSUM_XXHASH128:
		xxh3_final128(&sum->as.xxh3, ret_digest);
		break;
	}
	return checksum_bytes(sum->kind);
}

size_t checksum_of(enum checksum_kind kind, const void *data, size_t len,
	uint8_t ret_digest[CHECKSUM_BYTES_MAX])
{
	struct checksum sum;

	checksum_init(&sum, kind);
	checksum_update(&sum, data, len);
	return checksum_final(&sum, ret_digest);
}

size_t checksum_bytes(enum checksum_kind kind)
{
	CHECK((unsigned)kind < CHECKSUM_KIND_COUNT);
	return kinds[kind].bytes;
}

struct slice checksum_name(enum checksum_kind kind)
{
	CHECK((unsigned)kind < CHECKSUM_KIND_COUNT);
	return kinds[kind].name;
}

struct slice checksum_header(enum checksum_kind kind)
{
	CHECK((unsigned)kind < CHECKSUM_KIND_COUNT);
	return kinds[kind].header;
}

int checksum_kind_of_name(struct slice name, enum checksum_kind *ret_kind)
{
	for (unsigned i = 0; i < CHECKSUM_KIND_COUNT; i++) {
		if (kinds[i].header.len && slice_eq_nocase(name, kinds[i].name)) {
			*ret_kind = (enum checksum_kind)i;
			return 0;
		}
	}
	return -EINVAL;
}

int checksum_kind_of_header(struct slice header, enum checksum_kind *ret_kind)
{
	for (unsigned i = 0; i < CHECKSUM_KIND_COUNT; i++) {
		if (kinds[i].header.len && slice_eq_nocase(header, kinds[i].header)) {
			*ret_kind = (enum checksum_kind)i;
			return 0;
		}
	}
	return -EINVAL;
}

bool checksum_can_join(enum checksum_kind kind)
{
	return kind == CHECKSUM_CRC32 || kind == CHECKSUM_CRC32C || kind == CHECKSUM_CRC64NVME;
}

int checksum_join(enum checksum_kind kind, uint8_t a[CHECKSUM_BYTES_MAX],
	const uint8_t b[CHECKSUM_BYTES_MAX], uint64_t b_bytes)
{
	uint64_t crc_a, crc_b;

	if (!checksum_can_join(kind))
		return -EINVAL;
	crc_a = get_big_endian(a, kinds[kind].bytes);
	crc_b = get_big_endian(b, kinds[kind].bytes);
	if (kind == CHECKSUM_CRC32)
		crc_a = crc32_join((uint32_t)crc_a, (uint32_t)crc_b, b_bytes);
	else if (kind == CHECKSUM_CRC32C)
		crc_a = crc32c_join((uint32_t)crc_a, (uint32_t)crc_b, b_bytes);
	else
		crc_a = crc64nvme_join(crc_a, crc_b, b_bytes);
	put_big_endian(crc_a, kinds[kind].bytes, a);
	return 0;
}
