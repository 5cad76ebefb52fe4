/* tests/unit/codec/vectors.h: published vectors are written as hex in the tests; this turns them
 * into bytes and compares, without the decoder under test. */
#ifndef TESTS_UNIT_CODEC_VECTORS_H
#define TESTS_UNIT_CODEC_VECTORS_H

#include "../unit.h"

#include <stdio.h>
#include <string.h>

#define VECTOR_BYTES_MAX 256

/* Converts the hex text to ret_bytes; returns the number of bytes. */
static inline size_t from_hex(const char *text, uint8_t ret_bytes[VECTOR_BYTES_MAX])
{
	size_t len = strlen(text) / 2;

	assert_in_range(len, 0, VECTOR_BYTES_MAX);
	for (size_t i = 0; i < len; i++) {
		unsigned int byte;

		assert_int_equal(sscanf(text + 2 * i, "%2x", &byte), 1);
		ret_bytes[i] = (uint8_t)byte;
	}
	return len;
}

static inline void assert_bytes_are(const void *bytes, const char *hex)
{
	uint8_t expected[VECTOR_BYTES_MAX];

	assert_memory_equal(bytes, expected, from_hex(hex, expected));
}

#endif
