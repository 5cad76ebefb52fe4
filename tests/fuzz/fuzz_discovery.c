/* Fuzzes the parsers of discovery's datagrams: the texts of an accepted datagram are terminated and
 * printable. */
#include <ctype.h>
#include <stdlib.h>

#include "codec/discovery.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *text, size_t bytes)
{
	size_t len = strnlen(text, bytes);

	CHECK(len < bytes);
	for (size_t i = 0; i < len; i++)
		CHECK(isprint((unsigned char)text[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct discovery_wire wire;
	uint64_t nonce = 0;
	void *copy;

	if (!size || size > 4096)
		return 0;
	/* A copy of exactly this length: the sanitizer sees reads past it. */
	copy = malloc(size);
	if (!copy)
		return 0;
	memcpy(copy, data, size);
	if (discovery_is_ask(copy, size, &nonce))
		CHECK(size == DISCOVERY_BYTES);
	if (size >= 16)
		memcpy(&nonce, data + 8, sizeof(nonce));
	if (discovery_is_answer(copy, size, nonce, &wire)) {
		CHECK(size == DISCOVERY_BYTES && wire.nonce == nonce);
		check_text(wire.name, sizeof(wire.name));
		check_text(wire.address, sizeof(wire.address));
		check_text(wire.device, sizeof(wire.device));
		check_text(wire.transport, sizeof(wire.transport));
		check_text(wire.release, sizeof(wire.release));
		check_text(wire.zone, sizeof(wire.zone));
		check_text(wire.note, sizeof(wire.note));
	}
	free(copy);
	return 0;
}
