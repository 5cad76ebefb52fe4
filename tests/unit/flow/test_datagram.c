#include "../unit.h"

#include <errno.h>

#include "flow/datagram_priv.h"

/* Everything in a head is checked; tests/e2e/flow/run-datagrams sends wrong streams. */
static void heads_are_checked(void **state)
{
	const struct datagram_head good = {.magic = DATAGRAM_MAGIC,
		.version = DATAGRAM_VERSION,
		.kind = DATAGRAM_DATA,
		.number = 3,
		.bytes = 3 * 512};
	struct datagram_head head = good, got;

	(void)state;
	assert_int_equal(datagram_head_decode(&head, sizeof(head), &got), 0);
	assert_memory_equal(&got, &head, sizeof(head));
	assert_int_equal(datagram_head_decode(&head, sizeof(head) - 1, &got), -EPROTO);
#define REFUSED(field, value)                                                               \
	do {                                                                                \
		head = good;                                                                \
		head.field = value;                                                         \
		assert_int_equal(datagram_head_decode(&head, sizeof(head), &got), -EPROTO); \
	} while (0)
	REFUSED(magic, 1);
	REFUSED(version, 2);
	REFUSED(kind, 0);
	REFUSED(kind, DATAGRAM_FAILED + 1);
	REFUSED(crc, 1);
	REFUSED(number, 0);
	REFUSED(number, 3 * 512 + 1);
	REFUSED(bytes, 2);
	REFUSED(bytes, 4 * FRAME_BYTES);
	REFUSED(bytes, UINT64_MAX);
	head = good;
	head.kind = DATAGRAM_END;
	head.crc = 9;
	assert_int_equal(datagram_head_decode(&head, sizeof(head), &got), 0);
	head = good;
	head.number = head.bytes = 0;
	assert_int_equal(datagram_head_decode(&head, sizeof(head), &got), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(heads_are_checked)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
