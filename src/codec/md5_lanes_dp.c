/* codec/md5_lanes_dp.c: MD5 of several messages at once, in the lanes of AVX-512 or AVX2. One
 * message alone cannot be hashed faster, because each step needs the one before it; so lanes pay
 * from two messages on. Other processors, and the rest of the longest messages, use libcrypto. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "codec/hash.h"

#include <string.h>

#include <openssl/md5.h>

#include "base/base.h"

#define MD5_BLOCK_BYTES 64u
/* A turn with few lanes takes as long as one with all: 0.99 GB/s with two, 7.8 with sixteen
 * (AVX-512; 3.7 with AVX2's eight), and libcrypto 0.77 for one message. */
#define LANES_USED_MIN 2u
_Static_assert(MD5_CBLOCK == MD5_BLOCK_BYTES, "libcrypto's block is MD5's");

struct md5_lane {
	uint32_t state[4];
	const uint8_t *data;
};

typedef void lanes_fn(struct md5_lane *lanes, size_t blocks);

#ifdef __x86_64__

/* The integer part of 2^32 times the sine's absolute value (RFC 1321, 3.4). */
static const uint32_t MD5_CONSTANTS[64] = {0xd76aa478u, 0xe8c7b756u, 0x242070dbu, 0xc1bdceeeu,
	0xf57c0fafu, 0x4787c62au, 0xa8304613u, 0xfd469501u, 0x698098d8u, 0x8b44f7afu, 0xffff5bb1u,
	0x895cd7beu, 0x6b901122u, 0xfd987193u, 0xa679438eu, 0x49b40821u, 0xf61e2562u, 0xc040b340u,
	0x265e5a51u, 0xe9b6c7aau, 0xd62f105du, 0x02441453u, 0xd8a1e681u, 0xe7d3fbc8u, 0x21e1cde6u,
	0xc33707d6u, 0xf4d50d87u, 0x455a14edu, 0xa9e3e905u, 0xfcefa3f8u, 0x676f02d9u, 0x8d2a4c8au,
	0xfffa3942u, 0x8771f681u, 0x6d9d6122u, 0xfde5380cu, 0xa4beea44u, 0x4bdecfa9u, 0xf6bb4b60u,
	0xbebfbc70u, 0x289b7ec6u, 0xeaa127fau, 0xd4ef3085u, 0x04881d05u, 0xd9d4d039u, 0xe6db99e5u,
	0x1fa27cf8u, 0xc4ac5665u, 0xf4292244u, 0x432aff97u, 0xab9423a7u, 0xfc93a039u, 0x655b59c3u,
	0x8f0ccc92u, 0xffeff47du, 0x85845dd1u, 0x6fa87e4fu, 0xfe2ce6e0u, 0xa3014314u, 0x4e0811a1u,
	0xf7537e82u, 0xbd3af235u, 0x2ad7d2bbu, 0xeb86d391u};

#define LANES	     8
#define LANES_TARGET "avx2"
#define LANES_NAME   lanes_avx2
#define LANES_LOW    0, 8, 1, 9, 2, 10, 3, 11
#define LANES_HIGH   4, 12, 5, 13, 6, 14, 7, 15
#include "codec/md5_lanes.inc"

#define LANES	     16
#define LANES_TARGET "avx512f"
#define LANES_NAME   lanes_avx512
#define LANES_LOW    0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define LANES_HIGH   8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#include "codec/md5_lanes.inc"

/* NULL: this processor has no lanes. */
static lanes_fn *lanes_of(uint32_t width_max, uint32_t *ret_width)
{
	*ret_width = 16;
	if (width_max >= 16 && __builtin_cpu_supports("avx512f"))
		return lanes_avx512;
	*ret_width = 8;
	return width_max >= 8 && __builtin_cpu_supports("avx2") ? lanes_avx2 : NULL;
}

#else

static lanes_fn *lanes_of(uint32_t width_max, uint32_t *ret_width)
{
	(void)width_max;
	*ret_width = 1;
	return NULL;
}

#endif

/* Completes a block that an earlier part began. */
static void part_align(struct md5_part *part)
{
	MD5_CTX *md5 = (MD5_CTX *)part->md5;
	size_t bytes = md5->num ? MIN((size_t)(MD5_BLOCK_BYTES - md5->num), part->len) : 0;

	if (bytes)
		MD5_Update(md5, part->data, bytes);
	part->data = (const uint8_t *)part->data + bytes;
	part->len -= bytes;
}

static void lane_load(struct md5_lane *lane, const struct md5_part *part)
{
	const MD5_CTX *md5 = (const MD5_CTX *)part->md5;

	*lane = (struct md5_lane){{md5->A, md5->B, md5->C, md5->D}, part->data};
}

static void lane_save(const struct md5_lane *lane, struct md5_part *part, size_t blocks)
{
	MD5_CTX *md5 = (MD5_CTX *)part->md5;
	size_t bytes = blocks * MD5_BLOCK_BYTES;
	uint64_t bits = ((uint64_t)md5->Nh << 32 | md5->Nl) + (uint64_t)bytes * 8;

	md5->A = lane->state[0];
	md5->B = lane->state[1];
	md5->C = lane->state[2];
	md5->D = lane->state[3];
	md5->Nl = (uint32_t)bits;
	md5->Nh = (uint32_t)(bits >> 32);
	part->data = (const uint8_t *)part->data + bytes;
	part->len -= bytes;
}

/* Hashes the shortest part's whole blocks of up to `width` parts; false: too few have any. */
static bool lanes_turn(struct md5_part *parts, uint32_t count, uint32_t width, lanes_fn *run)
{
	struct md5_part *taken[MD5_LANES_MAX];
	struct md5_lane lanes[MD5_LANES_MAX];
	size_t blocks = SIZE_MAX;
	uint32_t used = 0;

	for (uint32_t i = 0; i < count && used < width; i++) {
		if (parts[i].len < MD5_BLOCK_BYTES)
			continue;
		taken[used] = &parts[i];
		blocks = MIN(blocks, parts[i].len / MD5_BLOCK_BYTES);
		lane_load(&lanes[used++], &parts[i]);
	}
	if (used < LANES_USED_MIN)
		return false;
	for (uint32_t i = used; i < width; i++)
		lanes[i] = lanes[0];
	run(lanes, blocks);
	for (uint32_t i = 0; i < used; i++)
		lane_save(&lanes[i], taken[i], blocks);
	return true;
}

void md5_update_parts_width(struct md5_part *parts, uint32_t count, uint32_t width_max)
{
	uint32_t width;
	lanes_fn *run = lanes_of(width_max, &width);

	if (run && count >= LANES_USED_MIN) {
		for (uint32_t i = 0; i < count; i++)
			part_align(&parts[i]);
		while (lanes_turn(parts, count, width, run))
			;
	}
	for (uint32_t i = 0; i < count; i++)
		md5_update(parts[i].md5, parts[i].data, parts[i].len);
}

void md5_update_parts(struct md5_part *parts, uint32_t count)
{
	md5_update_parts_width(parts, count, MD5_LANES_MAX);
}
