/* flow/pcapng.c: the blocks of a pcapng body. Source: draft-ietf-opsawg-pcapng, sections 4.1 to
 * 4.6. */
#include <string.h>

#include "flow/ingest.h"

#define BLOCK_SECTION	 0x0a0d0d0au
#define BLOCK_INTERFACE	 1u
#define BLOCK_STATISTICS 5u
#define BLOCK_PACKET	 6u
#define BYTE_ORDER_MAGIC 0x1a2b3c4du
#define LINK_ETHERNET	 1u
#define RESOLUTION_NS	 9u

enum { OPT_END = 0, OPT_SECTION_APPLICATION = 4, OPT_NAME = 2, OPT_RESOLUTION = 9 };
enum { OPT_START = 2, OPT_END_TIME = 3, OPT_RECEIVED = 4, OPT_DROPPED = 5 };

static uint8_t *put16(uint8_t *at, uint16_t value)
{
	memcpy(at, &value, sizeof(value));
	return at + sizeof(value);
}

static uint8_t *put32(uint8_t *at, uint32_t value)
{
	memcpy(at, &value, sizeof(value));
	return at + sizeof(value);
}

static uint8_t *put64(uint8_t *at, uint64_t value)
{
	memcpy(at, &value, sizeof(value));
	return at + sizeof(value);
}

/* An option: code, length, value, zeros to a multiple of 4. */
static uint8_t *put_option(uint8_t *at, uint16_t code, const void *value, uint32_t bytes)
{
	at = put16(at, code);
	at = put16(at, (uint16_t)bytes);
	memset(at, 0, ALIGN_UP(bytes, 4u));
	memcpy(at, value, bytes);
	return at + ALIGN_UP(bytes, 4u);
}

/* Times are two words, the high one first, whatever the byte order. */
static uint8_t *put_time(uint8_t *at, uint64_t real_ns)
{
	return put32(put32(at, (uint32_t)(real_ns >> 32)), (uint32_t)real_ns);
}

static uint8_t *put_time_option(uint8_t *at, uint16_t code, uint64_t real_ns)
{
	uint8_t value[8];

	put_time(value, real_ns);
	return put_option(at, code, value, sizeof(value));
}

static uint8_t *put_count_option(uint8_t *at, uint16_t code, uint64_t count)
{
	return put_option(at, code, &count, sizeof(count));
}

/* Ends the options and the block, and writes its length at both ends. */
static uint8_t *block_end(uint8_t *block, uint8_t *at)
{
	uint32_t bytes;

	at = put16(put16(at, OPT_END), 0);
	bytes = (uint32_t)(at + 4 - block);
	put32(block + 4, bytes);
	return put32(at, bytes);
}

uint32_t pcapng_head(uint8_t out[PCAPNG_HEAD_BYTES_MAX], const char *interface)
{
	static const char APPLICATION[] = "nebulaio";
	const uint8_t resolution = RESOLUTION_NS;
	uint8_t *at = out;
	uint8_t *block = at;

	at = put32(at, BLOCK_SECTION) + 4;
	at = put32(at, BYTE_ORDER_MAGIC);
	at = put16(put16(at, 1), 0); /* version 1.0 */
	at = put64(at, UINT64_MAX);  /* the section's length is not given */
	at = put_option(at, OPT_SECTION_APPLICATION, APPLICATION, sizeof(APPLICATION) - 1);
	at = block_end(block, at);

	block = at;
	at = put32(at, BLOCK_INTERFACE) + 4;
	at = put16(put16(at, LINK_ETHERNET), 0);
	at = put32(at, 0); /* packets are whole */
	at = put_option(at, OPT_NAME, interface, (uint32_t)strnlen(interface, 64));
	at = put_option(at, OPT_RESOLUTION, &resolution, sizeof(resolution));
	at = block_end(block, at);
	return (uint32_t)(at - out);
}

static uint32_t packet_block_bytes(uint32_t bytes)
{
	return PCAPNG_PACKET_BYTES + ALIGN_UP(bytes, 4u);
}

void pcapng_packet_head(uint8_t out[28], uint64_t real_ns, uint32_t bytes, uint32_t bytes_on_wire)
{
	out = put32(out, BLOCK_PACKET);
	out = put32(out, packet_block_bytes(bytes));
	out = put32(out, 0); /* of the first interface */
	out = put_time(out, real_ns);
	out = put32(out, bytes);
	put32(out, bytes_on_wire);
}

uint32_t pcapng_packet_tail(uint8_t out[8], uint32_t bytes)
{
	uint32_t padding = ALIGN_UP(bytes, 4u) - bytes;

	memset(out, 0, padding);
	put32(out + padding, packet_block_bytes(bytes));
	return padding + 4;
}

void pcapng_statistics(
	uint8_t out[PCAPNG_STATISTICS_BYTES], const struct pcapng_statistics *statistics)
{
	uint8_t *at = put32(out, BLOCK_STATISTICS) + 4;

	at = put32(at, 0);
	at = put_time(at, statistics->end_ns);
	at = put_time_option(at, OPT_START, statistics->start_ns);
	at = put_time_option(at, OPT_END_TIME, statistics->end_ns);
	at = put_count_option(at, OPT_RECEIVED, statistics->received);
	at = put_count_option(at, OPT_DROPPED, statistics->dropped);
	at = block_end(out, at);
	CHECK(at - out == PCAPNG_STATISTICS_BYTES);
}
