/* Fuzzes the messages between two flows, and the heads of datagrams. An accepted message must keep
 * the bounds of the specification. The first byte selects the parser. */
#include <string.h>

#include "flow/datagram_priv.h"
#include "flow/link_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct link_hello hello;
	struct link_control control;
	struct datagram_head head;
	uint32_t bytes;

	if (size == 0)
		return 0;
	bytes = (uint32_t)size - 1;
	if (data[0] % 4 == 0) {
		if (link_hello_decode(data + 1, bytes, &hello) == 0) {
			CHECK(hello.record_bytes >= LINK_RECORD_BYTES_MIN &&
				hello.record_bytes <= LINK_RECORD_BYTES_MAX);
			CHECK(hello.credits <= LINK_CREDITS_MAX);
			CHECK(hello.unit > 0 && hello.record_bytes % hello.unit == 0);
		}
	} else if (data[0] % 4 == 1) {
		if (link_control_decode(data + 1, bytes, &control) == 0)
			CHECK(strnlen(control.why, LINK_WHY_BYTES) < LINK_WHY_BYTES);
	} else if (data[0] % 4 == 2) {
		CHECK(link_refusal_text(data + 1, bytes)[0] != '\0');
	} else if (datagram_head_decode(data + 1, bytes, &head) == 0) {
		CHECK(bytes >= sizeof(head) && head.number <= head.bytes);
	}
	return 0;
}
