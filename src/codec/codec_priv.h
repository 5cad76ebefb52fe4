/* codec/codec_priv.h: shared by the files of codec: arithmetic modulo a CRC's polynomial.
 *
 * A polynomial over GF(2) of degree below width is kept reflected, as these CRCs keep it: bit
 * (width - 1 - i) is the coefficient of x^i. So 1 is the top bit, and times x is a shift right. */
#ifndef CODEC_CODEC_PRIV_H
#define CODEC_CODEC_PRIV_H

#include <stdint.h>

struct crc_field {
	uint64_t polynomial; /* reflected, without its x^width */
	uint64_t one;	     /* the top bit of the width */
};

extern const struct crc_field crc64nvme_field;

/* x to the n. */
uint64_t crc_field_power(const struct crc_field *field, uint64_t n);

#endif
