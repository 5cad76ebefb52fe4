/* flow/link_wire.h: the wire format of streams in C: docs/spec/wire.md, "Streams". Everything
 * received is untrusted input: decoding checks every field. */
#ifndef FLOW_LINK_WIRE_H
#define FLOW_LINK_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

#define LINK_MAGIC	      0x3153424eu
#define LINK_VERSION	      1u
#define LINK_RECORD_BYTES_MAX (1u << 20)
#define LINK_RECORD_BYTES_MIN FRAME_BYTES
#define LINK_CREDITS_MAX      256u
#define LINK_IMM_CONTROL      1u
#define LINK_CONTROL_RECEIVES 8u

_Static_assert(LINK_RECORD_BYTES_MAX <= LIMIT_SPAN_FRAMES_MAX * FRAME_BYTES, "a record is a span");

enum link_role { LINK_SENDS = 1, LINK_RECEIVES = 2 };

struct link_hello {
	uint32_t magic;
	uint16_t version;
	uint8_t role;
	uint8_t reserved0;
	uint32_t record_bytes;
	uint32_t credits;
	uint32_t unit;
	uint32_t reserved1;
	uint64_t bytes_total;
};
_Static_assert(sizeof(struct link_hello) == 32, "as specified");

enum link_reason {
	LINK_MALFORMED = 1,
	LINK_SAME_ROLE = 2,
	LINK_UNFIT_UNIT = 3,
	LINK_BUSY = 4,
};
struct link_refusal {
	uint32_t magic;
	uint16_t version;
	uint16_t reason;
};
_Static_assert(sizeof(struct link_refusal) == 8, "as specified");

enum link_kind { LINK_GRANT = 1, LINK_END = 2, LINK_DONE = 3 };
enum link_status {
	LINK_GOOD,
	LINK_FAILED,
	LINK_NO_SPACE,
	LINK_INTERRUPTED,
	LINK_DIFFERS,
	LINK_STATUS_COUNT
};
#define LINK_WHY_BYTES 24u
struct link_control {
	uint32_t magic;
	uint16_t kind;
	uint16_t status;
	uint32_t granted;
	uint32_t reserved;
	uint64_t records;
	uint64_t bytes;
	uint64_t crc;
	char why[LINK_WHY_BYTES];
};
_Static_assert(sizeof(struct link_control) == 64, "as specified");

/* 0, or -EPROTO. The result's text is terminated and printable. */
int link_hello_decode(const void *data, uint32_t bytes, struct link_hello *ret_hello);
int link_control_decode(const void *data, uint32_t bytes, struct link_control *ret_control);
/* "it is busy with another stream". Static; also for data that does not decode. */
bool link_refusal_is_busy(const void *data, uint32_t bytes);
const char *link_refusal_text(const void *data, uint32_t bytes);

#endif
