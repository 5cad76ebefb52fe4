/* flow/link_wire.c: encodes and decodes hellos and controls of streams. */
#include <errno.h>
#include <string.h>

#include "flow/link_wire.h"

static bool power_of_two(uint32_t n)
{
	return n && !(n & (n - 1));
}

int link_hello_decode(const void *data, uint32_t bytes, struct link_hello *ret_hello)
{
	struct link_hello hello;

	if (bytes < sizeof(hello))
		return -EPROTO;
	memcpy(&hello, data, sizeof(hello));
	if (hello.magic != LINK_MAGIC || hello.version != LINK_VERSION || hello.reserved0 ||
		hello.reserved1)
		return -EPROTO;
	if (hello.role != LINK_SENDS && hello.role != LINK_RECEIVES)
		return -EPROTO;
	if (hello.record_bytes < LINK_RECORD_BYTES_MIN ||
		hello.record_bytes > LINK_RECORD_BYTES_MAX || hello.record_bytes % FRAME_BYTES)
		return -EPROTO;
	if (!power_of_two(hello.unit) || hello.unit > FRAME_BYTES)
		return -EPROTO;
	if (hello.role == LINK_SENDS && hello.credits)
		return -EPROTO;
	if (hello.role == LINK_RECEIVES &&
		(!hello.credits || hello.credits > LINK_CREDITS_MAX || hello.bytes_total))
		return -EPROTO;
	*ret_hello = hello;
	return 0;
}

int link_control_decode(const void *data, uint32_t bytes, struct link_control *ret_control)
{
	struct link_control control;

	if (bytes != sizeof(control))
		return -EPROTO;
	memcpy(&control, data, sizeof(control));
	if (control.magic != LINK_MAGIC || control.reserved || control.kind < LINK_GRANT ||
		control.kind > LINK_DONE || control.status >= LINK_STATUS_COUNT)
		return -EPROTO;
	control.why[LINK_WHY_BYTES - 1] = '\0';
	for (uint32_t i = 0; control.why[i]; i++) {
		if (control.why[i] < ' ' || control.why[i] > '~')
			control.why[i] = '?';
	}
	*ret_control = control;
	return 0;
}

bool link_refusal_is_busy(const void *data, uint32_t bytes)
{
	struct link_refusal refusal;

	if (bytes < sizeof(refusal))
		return false;
	memcpy(&refusal, data, sizeof(refusal));
	return refusal.magic == LINK_MAGIC && refusal.reason == LINK_BUSY;
}

const char *link_refusal_text(const void *data, uint32_t bytes)
{
	struct link_refusal refusal;

	if (bytes < sizeof(refusal))
		return "the peer gave no reason";
	memcpy(&refusal, data, sizeof(refusal));
	if (refusal.magic != LINK_MAGIC)
		return "the peer is no flow";
	switch (refusal.reason) {
	case LINK_SAME_ROLE:
		return "both ends would send, or both receive";
	case LINK_UNFIT_UNIT:
		return "the peer needs records in larger multiples than this source has";
	case LINK_BUSY:
		return "the peer is busy with another stream";
	default:
		return "the peer did not understand the hello";
	}
}
