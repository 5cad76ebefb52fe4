#include "../unit.h"

#include <string.h>

#include "flow/ingest.h"

/* The blocks of a pcapng body, read back by the draft's own rules: every block begins with its type
 * and its length, is a multiple of 4 long, and ends with the length again. */

static uint32_t word(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static uint16_t half(const uint8_t *at)
{
	uint16_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static uint32_t block_bytes(const uint8_t *block, uint32_t type)
{
	uint32_t bytes = word(block + 4);

	assert_int_equal(word(block), type);
	assert_int_equal(bytes % 4, 0);
	assert_int_equal(word(block + bytes - 4), bytes);
	return bytes;
}

/* The value and the length of an option; NULL: none. */
static const uint8_t *option(const uint8_t *at, uint16_t code, uint16_t *ret_bytes)
{
	while (half(at) != 0) {
		if (half(at) == code) {
			*ret_bytes = half(at + 2);
			return at + 4;
		}
		at += 4 + ALIGN_UP(half(at + 2), 4u);
	}
	return NULL;
}

static void heads_are_two_blocks(void **state)
{
	static const char *const names[] = {"", "e", "eth0",
		"a-name-of-64-bytes-that-does-not-fit-any-interface-but-fits-its-room",
		"longer than the sixty-four bytes which an interface's name may have in a head"};

	(void)state;
	for (uint32_t i = 0; i < ARRAY_LEN(names); i++) {
		uint8_t out[PCAPNG_HEAD_BYTES_MAX];
		uint32_t bytes = pcapng_head(out, names[i]), first;
		const uint8_t *value;
		uint16_t len;

		assert_in_range(bytes, 28 + 20, PCAPNG_HEAD_BYTES_MAX);
		first = block_bytes(out, 0x0a0d0d0a);
		assert_int_equal(word(out + 8), 0x1a2b3c4d);
		assert_int_equal(half(out + 12), 1);
		assert_int_equal(half(out + 14), 0);
		assert_int_equal(first + block_bytes(out + first, 1), bytes);
		assert_int_equal(half(out + first + 8), 1); /* Ethernet */
		value = option(out + first + 16, 2, &len);
		assert_non_null(value);
		assert_int_equal(len, MIN(strlen(names[i]), 64));
		assert_memory_equal(value, names[i], len);
		value = option(out + first + 16, 9, &len);
		assert_non_null(value);
		assert_int_equal(len, 1);
		assert_int_equal(*value, 9); /* nanoseconds */
	}
}

static void packets_are_padded(void **state)
{
	const uint64_t time_ns = 0x123456789abcdef0ull;

	(void)state;
	for (uint32_t bytes = 60; bytes < 70; bytes++) {
		uint8_t block[256] = {0};
		uint32_t tail;

		pcapng_packet_head(block, time_ns, bytes, bytes + 5);
		memset(block + 28, 0xaa, bytes);
		tail = pcapng_packet_tail(block + 28 + bytes, bytes);
		assert_int_equal(block_bytes(block, 6), 28 + bytes + tail);
		assert_int_equal(word(block + 8), 0);
		assert_int_equal(word(block + 12), (uint32_t)(time_ns >> 32));
		assert_int_equal(word(block + 16), (uint32_t)time_ns);
		assert_int_equal(word(block + 20), bytes);
		assert_int_equal(word(block + 24), bytes + 5);
		for (uint32_t i = 0; i + 4 < tail; i++)
			assert_int_equal(block[28 + bytes + i], 0);
	}
}

static uint64_t long_of(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static void statistics_end_a_body(void **state)
{
	const struct pcapng_statistics statistics = {
		.start_ns = 5, .end_ns = 1ull << 40, .received = 77, .dropped = 3};
	uint8_t out[PCAPNG_STATISTICS_BYTES];
	const uint8_t *value;
	uint16_t len;

	(void)state;
	pcapng_statistics(out, &statistics);
	assert_int_equal(block_bytes(out, 5), PCAPNG_STATISTICS_BYTES);
	assert_int_equal(word(out + 12), 1u << 8); /* the high word of the end's time first */
	assert_int_equal(word(out + 16), 0);
	value = option(out + 20, 4, &len);
	assert_non_null(value);
	assert_int_equal(len, 8);
	assert_int_equal(long_of(value), 77);
	value = option(out + 20, 5, &len);
	assert_non_null(value);
	assert_int_equal(long_of(value), 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(heads_are_two_blocks),
		cmocka_unit_test(packets_are_padded),
		cmocka_unit_test(statistics_end_a_body),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
