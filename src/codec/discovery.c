/* codec/discovery.c: builds and parses the datagrams by which clients find servers. */
#include "codec/discovery.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is little-endian");

static void head_init(struct discovery_wire *wire, enum discovery_kind kind, uint64_t nonce)
{
	wire->magic = DISCOVERY_MAGIC;
	wire->version = DISCOVERY_VERSION;
	wire->kind = (uint8_t)kind;
	wire->reserved = 0;
	wire->nonce = nonce;
}

static bool head_is(const struct discovery_wire *wire, enum discovery_kind kind)
{
	return wire->magic == DISCOVERY_MAGIC && wire->version == DISCOVERY_VERSION &&
	       wire->kind == kind && !wire->reserved;
}

static bool all_zero(const void *bytes, size_t len)
{
	const uint8_t *at = bytes;

	for (size_t i = 0; i < len; i++) {
		if (at[i])
			return false;
	}
	return true;
}

/* The text ends within its field, has zeros after its end, and has no characters that a terminal
 * would interpret. */
static bool text_ok(const char *text, size_t bytes)
{
	size_t len = strnlen(text, bytes);

	if (len == bytes || !all_zero(text + len, bytes - len))
		return false;
	for (size_t i = 0; i < len; i++) {
		uint8_t c = (uint8_t)text[i];

		if (c < 0x20 || c >= 0x7f)
			return false;
	}
	return true;
}

void discovery_ask(uint64_t nonce, struct discovery_wire *ret_wire)
{
	memset(ret_wire, 0, sizeof(*ret_wire));
	head_init(ret_wire, DISCOVERY_ASK, nonce);
}

bool discovery_is_ask(const void *bytes, size_t len, uint64_t *ret_nonce)
{
	const size_t rest = offsetof(struct discovery_wire, rdma_port);
	struct discovery_wire wire;

	if (len != sizeof(wire))
		return false;
	memcpy(&wire, bytes, sizeof(wire));
	if (!head_is(&wire, DISCOVERY_ASK) ||
		!all_zero((const uint8_t *)bytes + rest, sizeof(wire) - rest))
		return false;
	*ret_nonce = wire.nonce;
	return true;
}

void discovery_answer(uint64_t nonce, struct discovery_wire *about)
{
	head_init(about, DISCOVERY_ANSWER, nonce);
}

bool discovery_is_answer(
	const void *bytes, size_t len, uint64_t nonce, struct discovery_wire *ret_wire)
{
	struct discovery_wire wire;

	if (len != sizeof(wire))
		return false;
	memcpy(&wire, bytes, sizeof(wire));
	if (!head_is(&wire, DISCOVERY_ANSWER) || wire.nonce != nonce || wire.reserved2 ||
		!all_zero(wire.padding, sizeof(wire.padding)) ||
		!text_ok(wire.name, sizeof(wire.name)) ||
		!text_ok(wire.address, sizeof(wire.address)) ||
		!text_ok(wire.device, sizeof(wire.device)) ||
		!text_ok(wire.transport, sizeof(wire.transport)) ||
		!text_ok(wire.release, sizeof(wire.release)) ||
		!text_ok(wire.zone, sizeof(wire.zone)) || !text_ok(wire.note, sizeof(wire.note)))
		return false;
	*ret_wire = wire;
	return true;
}
