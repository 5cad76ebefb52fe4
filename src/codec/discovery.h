/* codec/discovery.h: the datagrams by which clients find servers on a fabric, byte for byte:
 * docs/spec/wire.md, "Discovery". Question and answer have the same size, so that an answer is
 * never larger than its question (no amplification). */
#ifndef CODEC_DISCOVERY_H
#define CODEC_DISCOVERY_H

#include <stdint.h>

#include "base/base.h"

#define DISCOVERY_BYTES	  512u
#define DISCOVERY_MAGIC	  0x3144424eu /* "NBD1" */
#define DISCOVERY_VERSION 1u
#define DISCOVERY_GROUP	  "239.192.78.66"

enum discovery_kind { DISCOVERY_ASK = 1, DISCOVERY_ANSWER = 2 };

struct discovery_wire {
	uint32_t magic;
	uint16_t version;
	uint8_t kind;
	uint8_t reserved;
	uint64_t nonce; /* chosen by the client; the answer repeats it */
	/* From here on, zero in a question. Texts end in zeros. */
	uint16_t rdma_port;
	uint16_t http_port;
	uint32_t reserved2;
	uint8_t gid[16];
	char name[64];
	char address[64];
	char device[32];
	char transport[16];
	char release[32];
	char zone[64];
	char note[128];
	uint8_t padding[72];
};
_Static_assert(sizeof(struct discovery_wire) == DISCOVERY_BYTES, "no padding but our own");

/* Builds a question. */
void discovery_ask(uint64_t nonce, struct discovery_wire *ret_wire);
/* True when it is a question; *ret_nonce is then the value that the answer repeats. */
bool discovery_is_ask(const void *bytes, size_t len, uint64_t *ret_nonce);
/* Turns about, whose texts and ports the caller has filled in, into the answer to that nonce. */
void discovery_answer(uint64_t nonce, struct discovery_wire *about);
/* Takes an answer to that nonce: true when it is one, and its texts end and hold no control
 * characters. */
bool discovery_is_answer(
	const void *bytes, size_t len, uint64_t nonce, struct discovery_wire *ret_wire);

#endif
