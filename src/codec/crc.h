/* codec/crc.h: the three CRCs of S3, as running values.
 *
 * A running value is the CRC itself: 0 before the first byte, and after each update the finished
 * CRC of all bytes so far. So crc32_update(crc32_update(0, a), b) is the CRC of a followed by b,
 * and there is no final step.
 *
 * A join gives the CRC of two neighbours from their CRCs and the length of the second, in some
 * tens of nanoseconds for each one in the binary form of that length: parts of one object are
 * summed on different cores and in any order.
 *
 *            width  polynomial          reflected, init and xorout all ones; of "123456789"
 * CRC32      32     04c11db7            cbf43926           (IEEE 802.3, zlib)
 * CRC32C     32     1edc6f41            e3069283           (Castagnoli, RFC 3720)
 * CRC64NVME  64     ad93d23594c93659    ae8b14860a799888   (NVM Express, 64-bit guard)
 */
#ifndef CODEC_CRC_H
#define CODEC_CRC_H

#include <stddef.h>
#include <stdint.h>

uint32_t crc32_update(uint32_t crc, const void *data, size_t len);
uint32_t crc32c_update(uint32_t crc, const void *data, size_t len);
uint64_t crc64nvme_update(uint64_t crc, const void *data, size_t len);

/* The CRC of A followed by B, from crc_a, crc_b and B's length in bytes. */
uint32_t crc32_join(uint32_t crc_a, uint32_t crc_b, uint64_t b_bytes);
uint32_t crc32c_join(uint32_t crc_a, uint32_t crc_b, uint64_t b_bytes);
uint64_t crc64nvme_join(uint64_t crc_a, uint64_t crc_b, uint64_t b_bytes);

/* The implementations of crc64nvme_update, which uses the last one that the processor supports. For
 * tests and bench, crc64nvme_update_by computes the same with the given one. */
enum crc64_way {
	CRC64_TABLES,  /* any processor: eight table look-ups per eight bytes */
	CRC64_PCLMUL,  /* 128-bit carry-less multiply */
	CRC64_VPCLMUL, /* 512-bit carry-less multiply */
	CRC64_WAY_COUNT,
};

enum crc64_way crc64nvme_way(void); /* the implementation used on this processor */
/* way must not be above crc64nvme_way(). */
uint64_t crc64nvme_update_by(enum crc64_way way, uint64_t crc, const void *data, size_t len);

#endif
