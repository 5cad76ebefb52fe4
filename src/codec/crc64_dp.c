/* codec/crc64_dp.c: CRC64NVME at memory speed, by carry-less multiplication.
 *
 * Folding. Cut the message into 128-bit blocks. A block B that stands D bits before another, C, may
 * be replaced by B * x^D mod P added to C: the remainder of the whole stays. With B = L * x^64 + H
 * (L its first eight bytes, H its last) that is
 *
 *     L * (x^(D + 64) mod P)  +  H * (x^D mod P)
 *
 * two 64 by 64 bit carry-less products that fit 128 bits. In reflected order such a product comes
 * out multiplied by x once too often (127 bits in a field of 128), so each constant has an exponent
 * one less: x^(D + 63) and x^(D - 1). They are computed at start from that formula, as the tables
 * are.
 *
 * Several blocks are folded side by side to hide the multiplier's latency. In the end one block is
 * left, and it goes through the tables as if it were sixteen bytes of message.
 *
 * The register goes in before the first eight bytes by addition, as in any CRC. */
#include "codec/crc.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/base.h"
#include "codec/codec_priv.h"

#define SLICES 8

/* table[i][b]: the effect of byte b on the register when i more bytes follow it in the same
 * step. */
static uint64_t table[SLICES][256];

/* Works on the bare register, without the inversions. */
static uint64_t by_tables(uint64_t crc, const uint8_t *pos, size_t len)
{
	for (; len >= 8; len -= 8, pos += 8) {
		uint64_t word;

		memcpy(&word, pos, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
		word = __builtin_bswap64(word);
#endif
		word ^= crc;
		crc = table[7][word & 0xff] ^ table[6][word >> 8 & 0xff] ^
		      table[5][word >> 16 & 0xff] ^ table[4][word >> 24 & 0xff] ^
		      table[3][word >> 32 & 0xff] ^ table[2][word >> 40 & 0xff] ^
		      table[1][word >> 48 & 0xff] ^ table[0][word >> 56];
	}
	for (; len; len--, pos++)
		crc = table[0][(crc ^ *pos) & 0xff] ^ crc >> 8;
	return crc;
}

#if defined(__x86_64__)

/* For one distance: x^(D + 63) for a block's first half, x^(D - 1) for its second half. */
struct fold {
	uint64_t first;
	uint64_t second;
};

static struct fold fold_16, fold_64, fold_128, fold_256;

/* Below this many bytes the set-up costs more than the tables do. */
#define PCLMUL_BYTES_MIN  128u
#define VPCLMUL_BYTES_MIN 256u

/* The blocks of one loop stay in registers only when the loop over them is unrolled. */
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

#define PCLMUL	__attribute__((target("pclmul,sse2")))
#define VPCLMUL __attribute__((target("avx512f,avx512dq,vpclmulqdq,pclmul")))

static inline PCLMUL __m128i load_fold(const struct fold *fold)
{
	return _mm_set_epi64x((long long)fold->second, (long long)fold->first);
}

static inline PCLMUL __m128i load_16(const uint8_t *pos)
{
	return _mm_loadu_si128((const __m128i *)(const void *)pos);
}

static inline PCLMUL __m128i fold_into(__m128i block, __m128i constants, __m128i next)
{
	__m128i first = _mm_clmulepi64_si128(block, constants, 0x00);
	__m128i second = _mm_clmulepi64_si128(block, constants, 0x11);

	return _mm_xor_si128(_mm_xor_si128(first, second), next);
}

/* Folds sixteen bytes at a time as long as there are as many, then ends by the tables. */
static PCLMUL uint64_t fold_tail(__m128i block, const uint8_t *pos, size_t len)
{
	__m128i constants = load_fold(&fold_16);
	uint8_t last[16];

	for (; len >= 16; len -= 16, pos += 16)
		block = fold_into(block, constants, load_16(pos));
	_mm_storeu_si128((__m128i *)(void *)last, block);
	return by_tables(by_tables(0, last, sizeof(last)), pos, len);
}

static PCLMUL uint64_t by_pclmul(uint64_t crc, const uint8_t *pos, size_t len)
{
	__m128i constants = load_fold(&fold_128);
	__m128i block[8];

	if (len < PCLMUL_BYTES_MIN)
		return by_tables(crc, pos, len);
	UNROLL
	for (int i = 0; i < 8; i++)
		block[i] = load_16(pos + 16 * i);
	block[0] = _mm_xor_si128(block[0], _mm_cvtsi64_si128((long long)crc));
	for (pos += 128, len -= 128; len >= 128; pos += 128, len -= 128) {
		UNROLL
		for (int i = 0; i < 8; i++)
			block[i] = fold_into(block[i], constants, load_16(pos + 16 * i));
	}
	constants = load_fold(&fold_16);
	UNROLL
	for (int i = 0; i < 7; i++)
		block[i + 1] = fold_into(block[i], constants, block[i + 1]);
	return fold_tail(block[7], pos, len);
}

static inline VPCLMUL __m512i fold_into_64(__m512i blocks, __m512i constants, __m512i next)
{
	__m512i first = _mm512_clmulepi64_epi128(blocks, constants, 0x00);
	__m512i second = _mm512_clmulepi64_epi128(blocks, constants, 0x11);

	return _mm512_ternarylogic_epi64(first, second, next, 0x96); /* the sum of all three */
}

static inline VPCLMUL __m512i load_fold_64(const struct fold *fold)
{
	return _mm512_broadcast_i32x4(load_fold(fold));
}

static VPCLMUL uint64_t by_vpclmul(uint64_t crc, const uint8_t *pos, size_t len)
{
	__m512i constants, blocks[4];
	__m128i block, by_16;

	if (len < VPCLMUL_BYTES_MIN)
		return by_pclmul(crc, pos, len);
	UNROLL
	for (int i = 0; i < 4; i++)
		blocks[i] = _mm512_loadu_si512(pos + 64 * i);
	blocks[0] = _mm512_xor_si512(
		blocks[0], _mm512_zextsi128_si512(_mm_cvtsi64_si128((long long)crc)));
	constants = load_fold_64(&fold_256);
	for (pos += 256, len -= 256; len >= 256; pos += 256, len -= 256) {
		UNROLL
		for (int i = 0; i < 4; i++)
			blocks[i] = fold_into_64(
				blocks[i], constants, _mm512_loadu_si512(pos + 64 * i));
	}
	constants = load_fold_64(&fold_64);
	UNROLL
	for (int i = 0; i < 3; i++)
		blocks[i + 1] = fold_into_64(blocks[i], constants, blocks[i + 1]);
	for (; len >= 64; pos += 64, len -= 64)
		blocks[3] = fold_into_64(blocks[3], constants, _mm512_loadu_si512(pos));

	by_16 = load_fold(&fold_16);
	block = _mm512_extracti32x4_epi32(blocks[3], 0);
	block = fold_into(block, by_16, _mm512_extracti32x4_epi32(blocks[3], 1));
	block = fold_into(block, by_16, _mm512_extracti32x4_epi32(blocks[3], 2));
	block = fold_into(block, by_16, _mm512_extracti32x4_epi32(blocks[3], 3));
	return fold_tail(block, pos, len);
}

static struct fold fold_for(unsigned bytes)
{
	return (struct fold){
		.first = crc_field_power(&crc64nvme_field, 8 * bytes + 63),
		.second = crc_field_power(&crc64nvme_field, 8 * bytes - 1),
	};
}

static enum crc64_way prepare_folds(void)
{
	fold_16 = fold_for(16);
	fold_64 = fold_for(64);
	fold_128 = fold_for(128);
	fold_256 = fold_for(256);
	__builtin_cpu_init();
	if (!__builtin_cpu_supports("pclmul") || !__builtin_cpu_supports("sse2"))
		return CRC64_TABLES;
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
		__builtin_cpu_supports("vpclmulqdq"))
		return CRC64_VPCLMUL;
	return CRC64_PCLMUL;
}

#else

static uint64_t by_pclmul(uint64_t crc, const uint8_t *pos, size_t len)
{
	return by_tables(crc, pos, len);
}

static uint64_t by_vpclmul(uint64_t crc, const uint8_t *pos, size_t len)
{
	return by_tables(crc, pos, len);
}

static enum crc64_way prepare_folds(void)
{
	return CRC64_TABLES;
}

#endif

static uint64_t (*const ways[CRC64_WAY_COUNT])(uint64_t crc, const uint8_t *pos, size_t len) = {
	[CRC64_TABLES] = by_tables,
	[CRC64_PCLMUL] = by_pclmul,
	[CRC64_VPCLMUL] = by_vpclmul,
};
static enum crc64_way way_here;

/* Runs before main, so that the hot call has nothing to test. */
__attribute__((constructor)) static void prepare(void)
{
	for (unsigned byte = 0; byte < 256; byte++) {
		uint64_t crc = byte;

		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc64nvme_field.polynomial & -(crc & 1));
		table[0][byte] = crc;
	}
	for (int i = 1; i < SLICES; i++) {
		for (unsigned byte = 0; byte < 256; byte++) {
			uint64_t crc = table[i - 1][byte];

			table[i][byte] = table[0][crc & 0xff] ^ crc >> 8;
		}
	}
	way_here = prepare_folds();
}

enum crc64_way crc64nvme_way(void)
{
	return way_here;
}

uint64_t crc64nvme_update(uint64_t crc, const void *data, size_t len)
{
	return ~ways[way_here](~crc, data, len);
}

uint64_t crc64nvme_update_by(enum crc64_way way, uint64_t crc, const void *data, size_t len)
{
	CHECK(way <= way_here);
	return ~ways[way](~crc, data, len);
}
