/* tests/unit/codec/test_discovery.c: covers codec/discovery.c: round trips of both datagrams, and
 * every fault that one can have. */
#include "../unit.h"

#include <string.h>

#include "codec/discovery.h"

static struct discovery_wire about(void)
{
	struct discovery_wire wire = {.rdma_port = 9100, .http_port = 9000};

	memcpy(wire.name, "host", 5);
	memcpy(wire.address, "192.0.2.1", 10);
	memset(wire.note, 'x', sizeof(wire.note) - 1);
	return wire;
}

static void test_there_and_back(void **state)
{
	struct discovery_wire ask, answer = about(), taken;
	uint64_t nonce = 0;

	(void)state;
	discovery_ask(0x1122334455667788, &ask);
	assert_true(discovery_is_ask(&ask, sizeof(ask), &nonce));
	assert_int_equal(nonce, 0x1122334455667788);
	assert_false(discovery_is_answer(&ask, sizeof(ask), nonce, &taken));
	discovery_answer(nonce, &answer);
	assert_true(discovery_is_answer(&answer, sizeof(answer), nonce, &taken));
	assert_memory_equal(&taken, &answer, sizeof(taken));
	assert_false(discovery_is_ask(&answer, sizeof(answer), &nonce));
	/* Byte for byte as in the specification. */
	assert_memory_equal(&ask, "NBD1\1\0\1\0\x88\x77\x66\x55\x44\x33\x22\x11", 16);
	assert_memory_equal((uint8_t *)&answer + 16, "\x8c\x23\x28\x23", 4);
}

static void test_wrong_asks(void **state)
{
	struct discovery_wire ask;
	uint64_t nonce;

	(void)state;
	for (size_t at = 0; at < sizeof(ask); at++) {
		discovery_ask(7, &ask);
		((uint8_t *)&ask)[at] ^= 0x20;
		/* The nonce may be any number; no other byte may differ. */
		assert_int_equal(discovery_is_ask(&ask, sizeof(ask), &nonce), at >= 8 && at < 16);
	}
	discovery_ask(7, &ask);
	assert_false(discovery_is_ask(&ask, sizeof(ask) - 1, &nonce));
	assert_false(discovery_is_ask(&ask, 0, &nonce));
}

static bool answer_taken(const struct discovery_wire *answer)
{
	struct discovery_wire taken;

	return discovery_is_answer(answer, sizeof(*answer), 7, &taken);
}

static void test_wrong_answers(void **state)
{
	struct discovery_wire answer = about(), taken;

	(void)state;
	discovery_answer(7, &answer);
	assert_true(answer_taken(&answer));
	assert_false(discovery_is_answer(&answer, sizeof(answer), 8, &taken));
	assert_false(discovery_is_answer(&answer, sizeof(answer) - 1, 7, &taken));
	answer.note[sizeof(answer.note) - 1] = 'x'; /* not terminated */
	assert_false(answer_taken(&answer));
	answer = about();
	discovery_answer(7, &answer);
	answer.name[5] = 'x'; /* has bytes after its end */
	assert_false(answer_taken(&answer));
	answer.name[5] = 0;
	answer.name[1] = '\033';
	assert_false(answer_taken(&answer));
	answer.name[1] = (char)0x9b;
	assert_false(answer_taken(&answer));
	answer.name[1] = 'o';
	answer.padding[3] = 1;
	assert_false(answer_taken(&answer));
	answer.padding[3] = 0;
	answer.reserved2 = 1;
	assert_false(answer_taken(&answer));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_there_and_back),
		cmocka_unit_test(test_wrong_asks),
		cmocka_unit_test(test_wrong_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
