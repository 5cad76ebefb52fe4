/* codec/crc.c: CRC32 and CRC32C by ISA-L, the joins of all three CRCs, and the polynomial
 * arithmetic below them. CRC64NVME's own loop, which ISA-L lacks, is in crc64_dp.c.
 *
 * Why a join works: with register r, appending B to A gives A * x^(bits of B) + B modulo P. The
 * all-ones before and after cancel out of that sum, because both CRCs carry them. */
#include "codec/crc.h"

#include <isa-l/crc.h>

#include "codec/codec_priv.h"

static const struct crc_field crc32_field = {.polynomial = 0xedb88320, .one = 1u << 31};
static const struct crc_field crc32c_field = {.polynomial = 0x82f63b78, .one = 1u << 31};
const struct crc_field crc64nvme_field = {.polynomial = 0x9a6c9329ac4bc9b5, .one = 1ull << 63};

/* crc32_iscsi takes its length as an int. */
#define ISCSI_STEP_BYTES (1ull << 30)

uint32_t crc32_update(uint32_t crc, const void *data, size_t len)
{
	/* This one inverts before and after by itself. */
	return crc32_gzip_refl(crc, data, len);
}

uint32_t crc32c_update(uint32_t crc, const void *data, size_t len)
{
	/* ISA-L reads through this pointer only, though it is not declared const. */
	unsigned char *pos = (unsigned char *)(uintptr_t)data;
	unsigned int rest = ~crc;

	/* This one does not invert. */
	for (; len > ISCSI_STEP_BYTES; len -= ISCSI_STEP_BYTES, pos += ISCSI_STEP_BYTES)
		rest = crc32_iscsi(pos, (int)ISCSI_STEP_BYTES, rest);
	return ~crc32_iscsi(pos, (int)len, rest);
}

/* Without branches: the bits of a CRC are random, so half of the predictions would be wrong. */
static uint64_t times_x(const struct crc_field *field, uint64_t a)
{
	return (a >> 1) ^ (field->polynomial & -(a & 1));
}

/* a times b. */
static uint64_t field_multiply(const struct crc_field *field, uint64_t a, uint64_t b)
{
	uint64_t product = 0;

	/* Sum of a_i * (b * x^i), from x^0 at the top bit down. */
	for (uint64_t bit = field->one; bit; bit >>= 1) {
		product ^= b & -(uint64_t)((a & bit) != 0);
		b = times_x(field, b);
	}
	return product;
}

uint64_t crc_field_power(const struct crc_field *field, uint64_t n)
{
	uint64_t square = times_x(field, field->one); /* x^1, x^2, x^4, ... */
	uint64_t power = field->one;

	for (; n; n >>= 1) {
		if (n & 1)
			power = field_multiply(field, power, square);
		square = field_multiply(field, square, square);
	}
	return power;
}

/* x^(8 * 2^i): the factor that 2^i following bytes apply to a CRC, for the three fields in the
 * order of join_kind. */
enum join_kind { JOIN_CRC32, JOIN_CRC32C, JOIN_CRC64NVME, JOIN_KIND_COUNT };
static uint64_t shifts[JOIN_KIND_COUNT][64];
static const struct crc_field *const fields[JOIN_KIND_COUNT] = {
	&crc32_field, &crc32c_field, &crc64nvme_field};

/* Runs before main, so that no join has to test whether the tables exist. */
__attribute__((constructor)) static void prepare(void)
{
	for (int kind = 0; kind < JOIN_KIND_COUNT; kind++) {
		uint64_t shift = crc_field_power(fields[kind], 8);

		for (int i = 0; i < 64; i++) {
			shifts[kind][i] = shift;
			shift = field_multiply(fields[kind], shift, shift);
		}
	}
}

static uint64_t join(enum join_kind kind, uint64_t crc_a, uint64_t crc_b, uint64_t b_bytes)
{
	for (int i = 0; b_bytes; i++, b_bytes >>= 1) {
		if (b_bytes & 1)
			crc_a = field_multiply(fields[kind], crc_a, shifts[kind][i]);
	}
	return crc_a ^ crc_b;
}

uint32_t crc32_join(uint32_t crc_a, uint32_t crc_b, uint64_t b_bytes)
{
	return (uint32_t)join(JOIN_CRC32, crc_a, crc_b, b_bytes);
}

uint32_t crc32c_join(uint32_t crc_a, uint32_t crc_b, uint64_t b_bytes)
{
	return (uint32_t)join(JOIN_CRC32C, crc_a, crc_b, b_bytes);
}

uint64_t crc64nvme_join(uint64_t crc_a, uint64_t crc_b, uint64_t b_bytes)
{
	return join(JOIN_CRC64NVME, crc_a, crc_b, b_bytes);
}
