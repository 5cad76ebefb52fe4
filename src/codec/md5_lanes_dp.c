/* codec/md5_lanes_dp.c: many MD5s side by side. One MD5 is a chain of dependent steps that leaves
 * most of a core idle; sixteen of them, one per 32-bit lane of a 512-bit register, take hardly
 * longer than one. So concurrent uploads, each with its own hash, are summed together.
 *
 * Only whole 64-byte blocks go through the lanes. What stands before the first and after the last
 * goes through libcrypto, whose context stays the one truth between calls. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "codec/hash.h"

#include <openssl/md5.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/base.h"

#define BLOCK_BYTES 64u
/* With fewer parts than this, one after the other is faster. */
#define LANES_MIN 3u

/* One part's whole blocks, as far as they are not summed. */
struct lane {
	MD5_CTX *ctx;
	const uint8_t *pos;
	size_t block_count;
	size_t tail_bytes;
};

#if defined(__x86_64__)

#define LANES __attribute__((target("avx512f")))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* RFC 1321: the first 32 bits of the fraction of |sin(i + 1)|. */
static const uint32_t sines[64] = {
	0xd76aa478,
	0xe8c7b756,
	0x242070db,
	0xc1bdceee,
	0xf57c0faf,
	0x4787c62a,
	0xa8304613,
	0xfd469501,
	0x698098d8,
	0x8b44f7af,
	0xffff5bb1,
	0x895cd7be,
	0x6b901122,
	0xfd987193,
	0xa679438e,
	0x49b40821,
	0xf61e2562,
	0xc040b340,
	0x265e5a51,
	0xe9b6c7aa,
	0xd62f105d,
	0x02441453,
	0xd8a1e681,
	0xe7d3fbc8,
	0x21e1cde6,
	0xc33707d6,
	0xf4d50d87,
	0x455a14ed,
	0xa9e3e905,
	0xfcefa3f8,
	0x676f02d9,
	0x8d2a4c8a,
	0xfffa3942,
	0x8771f681,
	0x6d9d6122,
	0xfde5380c,
	0xa4beea44,
	0x4bdecfa9,
	0xf6bb4b60,
	0xbebfbc70,
	0x289b7ec6,
	0xeaa127fa,
	0xd4ef3085,
	0x04881d05,
	0xd9d4d039,
	0xe6db99e5,
	0x1fa27cf8,
	0xc4ac5665,
	0xf4292244,
	0x432aff97,
	0xab9423a7,
	0xfc93a039,
	0x655b59c3,
	0x8f0ccc92,
	0xffeff47d,
	0x85845dd1,
	0x6fa87e4f,
	0xfe2ce6e0,
	0xa3014314,
	0x4e0811a1,
	0xf7537e82,
	0xbd3af235,
	0x2ad7d2bb,
	0xeb86d391,
};

/* words[i] becomes the i-th 32-bit word of each row. */
static inline LANES void transpose(__m512i words[16])
{
	__m512i pairs[16];

	UNROLL
	for (int i = 0; i < 16; i += 2) {
		pairs[i] = _mm512_unpacklo_epi32(words[i], words[i + 1]);
		pairs[i + 1] = _mm512_unpackhi_epi32(words[i], words[i + 1]);
	}
	UNROLL
	for (int i = 0; i < 16; i += 4) {
		words[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
		words[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
		words[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
		words[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
	}
	/* Now the quarter q of words[4 * j + k] holds word 4 * q + k of the rows 4 * j to 4 * j
	 * + 3. */
	UNROLL
	for (int k = 0; k < 4; k++) {
		__m512i low_a = _mm512_shuffle_i32x4(words[k], words[4 + k], 0x44);
		__m512i low_b = _mm512_shuffle_i32x4(words[8 + k], words[12 + k], 0x44);
		__m512i high_a = _mm512_shuffle_i32x4(words[k], words[4 + k], 0xee);
		__m512i high_b = _mm512_shuffle_i32x4(words[8 + k], words[12 + k], 0xee);

		words[k] = _mm512_shuffle_i32x4(low_a, low_b, 0x88);
		words[4 + k] = _mm512_shuffle_i32x4(low_a, low_b, 0xdd);
		words[8 + k] = _mm512_shuffle_i32x4(high_a, high_b, 0x88);
		words[12 + k] = _mm512_shuffle_i32x4(high_a, high_b, 0xdd);
	}
}

/* The four functions of RFC 1321 as truth tables of x, y, z. */
#define F(x, y, z) _mm512_ternarylogic_epi32(x, y, z, 0xca) /* x ? y : z */
#define G(x, y, z) _mm512_ternarylogic_epi32(z, x, y, 0xca) /* z ? x : y */
#define H(x, y, z) _mm512_ternarylogic_epi32(x, y, z, 0x96) /* x ^ y ^ z */
#define I(x, y, z) _mm512_ternarylogic_epi32(x, y, z, 0x39) /* y ^ (x | ~z) */

#define STEP(f, a, b, c, d, word, step, shift)                                                     \
	do {                                                                                       \
		__m512i sum =                                                                      \
			_mm512_add_epi32(words[(word) % 16], _mm512_set1_epi32((int)sines[step])); \
		sum = _mm512_add_epi32(_mm512_add_epi32(a, sum), f(b, c, d));                      \
		a = _mm512_add_epi32(b, _mm512_rol_epi32(sum, shift));                             \
	} while (0)

/* One block of each lane: state is A, B, C, D. */
static inline LANES void sum_block(__m512i state[4], __m512i words[16])
{
	__m512i a = state[0], b = state[1], c = state[2], d = state[3];

	UNROLL
	for (int i = 0; i < 16; i += 4) {
		STEP(F, a, b, c, d, i, i, 7);
		STEP(F, d, a, b, c, i + 1, i + 1, 12);
		STEP(F, c, d, a, b, i + 2, i + 2, 17);
		STEP(F, b, c, d, a, i + 3, i + 3, 22);
	}
	UNROLL
	for (int i = 0; i < 16; i += 4) {
		STEP(G, a, b, c, d, 5 * i + 1, 16 + i, 5);
		STEP(G, d, a, b, c, 5 * i + 6, 17 + i, 9);
		STEP(G, c, d, a, b, 5 * i + 11, 18 + i, 14);
		STEP(G, b, c, d, a, 5 * i + 16, 19 + i, 20);
	}
	UNROLL
	for (int i = 0; i < 16; i += 4) {
		STEP(H, a, b, c, d, 3 * i + 5, 32 + i, 4);
		STEP(H, d, a, b, c, 3 * i + 8, 33 + i, 11);
		STEP(H, c, d, a, b, 3 * i + 11, 34 + i, 16);
		STEP(H, b, c, d, a, 3 * i + 14, 35 + i, 23);
	}
	UNROLL
	for (int i = 0; i < 16; i += 4) {
		STEP(I, a, b, c, d, 7 * i, 48 + i, 6);
		STEP(I, d, a, b, c, 7 * i + 7, 49 + i, 10);
		STEP(I, c, d, a, b, 7 * i + 14, 50 + i, 15);
		STEP(I, b, c, d, a, 7 * i + 21, 51 + i, 21);
	}
	state[0] = _mm512_add_epi32(state[0], a);
	state[1] = _mm512_add_epi32(state[1], b);
	state[2] = _mm512_add_epi32(state[2], c);
	state[3] = _mm512_add_epi32(state[3], d);
}

/* The next block_count blocks of every lane. The lanes above lane_count sum the first one's blocks
 * too, for nothing. */
static LANES void sum_lanes(struct lane *lanes, size_t lane_count, size_t block_count)
{
	uint32_t columns[4][MD5_LANES] = {{0}};
	const uint8_t *pos[MD5_LANES];
	__m512i state[4];

	for (size_t i = 0; i < MD5_LANES; i++) {
		const struct lane *lane = &lanes[i < lane_count ? i : 0];

		pos[i] = lane->pos;
		columns[0][i] = lane->ctx->A;
		columns[1][i] = lane->ctx->B;
		columns[2][i] = lane->ctx->C;
		columns[3][i] = lane->ctx->D;
	}
	for (int i = 0; i < 4; i++)
		state[i] = _mm512_loadu_si512(columns[i]);
	for (size_t offset = 0; offset < block_count * BLOCK_BYTES; offset += BLOCK_BYTES) {
		__m512i words[16];

		UNROLL
		for (int i = 0; i < 16; i++)
			words[i] = _mm512_loadu_si512(pos[i] + offset);
		transpose(words);
		sum_block(state, words);
	}
	for (int i = 0; i < 4; i++)
		_mm512_storeu_si512(columns[i], state[i]);
	for (size_t i = 0; i < lane_count; i++) {
		MD5_CTX *ctx = lanes[i].ctx;
		uint64_t bits = ((uint64_t)ctx->Nh << 32 | ctx->Nl) + 8 * BLOCK_BYTES * block_count;

		ctx->A = columns[0][i];
		ctx->B = columns[1][i];
		ctx->C = columns[2][i];
		ctx->D = columns[3][i];
		ctx->Nl = (uint32_t)bits;
		ctx->Nh = (uint32_t)(bits >> 32);
		lanes[i].pos += block_count * BLOCK_BYTES;
		lanes[i].block_count -= block_count;
	}
}

static bool have_lanes(void)
{
	return __builtin_cpu_supports("avx512f");
}

#else

static void sum_lanes(struct lane *lanes, size_t lane_count, size_t block_count)
{
	for (size_t i = 0; i < lane_count; i++) {
		MD5_Update(lanes[i].ctx, lanes[i].pos, block_count * BLOCK_BYTES);
		lanes[i].pos += block_count * BLOCK_BYTES;
		lanes[i].block_count -= block_count;
	}
}

static bool have_lanes(void)
{
	return false;
}

#endif

/* Brings the context to a block's edge. */
static struct lane lane_of(const struct md5_part *part)
{
	MD5_CTX *ctx = (MD5_CTX *)part->md5;
	size_t head = ctx->num ? MIN(part->len, BLOCK_BYTES - ctx->num) : 0;
	size_t rest = part->len - head;

	MD5_Update(ctx, part->data, head);
	return (struct lane){
		.ctx = ctx,
		.pos = (const uint8_t *)part->data + head,
		.block_count = rest / BLOCK_BYTES,
		.tail_bytes = rest % BLOCK_BYTES,
	};
}

static void finish(const struct lane *lane)
{
	MD5_Update(lane->ctx, lane->pos, lane->block_count * BLOCK_BYTES + lane->tail_bytes);
}

void md5_update_many(const struct md5_part *parts, size_t count)
{
	struct lane lanes[MD5_LANES];
	size_t lane_count = 0, next = 0;

	if (!have_lanes()) {
		for (; next < count; next++)
			md5_update(parts[next].md5, parts[next].data, parts[next].len);
		return;
	}
	for (;;) {
		size_t step = SIZE_MAX;

		while (lane_count < MD5_LANES && next < count)
			lanes[lane_count++] = lane_of(&parts[next++]);
		if (lane_count < LANES_MIN)
			break;
		for (size_t i = 0; i < lane_count; i++)
			step = MIN(step, lanes[i].block_count);
		if (step)
			sum_lanes(lanes, lane_count, step);
		/* Those that are through make room for the parts that wait. */
		for (size_t i = 0; i < lane_count;) {
			if (lanes[i].block_count) {
				i++;
				continue;
			}
			finish(&lanes[i]);
			lanes[i] = lanes[--lane_count];
		}
	}
	for (size_t i = 0; i < lane_count; i++)
		finish(&lanes[i]);
}
