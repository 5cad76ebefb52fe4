/* tests/unit/remote/test_wire.c: capsules of volumes: accepted and refused ones. */
#include "../unit.h"

#include <errno.h>
#include <string.h>

#include "remote/wire.h"

static const uint8_t KEY[SIPHASH_BYTES] = "0123456789abcde";

static union wire_capsule hello_make(void)
{
	union wire_capsule capsule = {.hello = {.depth = 8, .name = "shard"}};

	wire_head_fill(&capsule.head, WIRE_HELLO, sizeof(capsule.hello), 0);
	return capsule;
}

static union wire_capsule command_make(void)
{
	union wire_capsule capsule = {
		.command = {.op = WIRE_WRITE, .slot = 3, .offset = 4096, .bytes = 8192}};

	wire_head_fill(&capsule.head, WIRE_COMMAND, sizeof(capsule.command), 1);
	wire_seal(&capsule, KEY);
	return capsule;
}

static void hello_is_checked(void **state)
{
	union wire_capsule good = hello_make(), bad;

	(void)state;
	assert_int_equal(wire_check(&good, sizeof(good.hello), WIRE_HELLO), 0);
	assert_int_equal(wire_check(&good, sizeof(good.hello) - 1, WIRE_HELLO), -EPROTO);
	assert_int_equal(wire_check(&good, sizeof(good.hello), WIRE_CHALLENGE), -EPROTO);
#define REFUSED(change)                                                                     \
	do {                                                                                \
		bad = good;                                                                 \
		change;                                                                     \
		assert_int_equal(wire_check(&bad, sizeof(bad.hello), WIRE_HELLO), -EPROTO); \
	} while (0)
	REFUSED(bad.head.magic++);
	REFUSED(bad.head.version++);
	REFUSED(bad.head.counter = 1);
	REFUSED(bad.head.bytes--);
	REFUSED(bad.hello.flags = 4);
	REFUSED(bad.hello.flags = WIRE_HELLO_EPOCH);
	REFUSED(wire_epoch_set(&bad.hello, (uint64_t)INT64_MAX + 1));
	REFUSED(bad.hello.depth = 0);
	REFUSED(bad.hello.depth = WIRE_DEPTH_MAX + 1);
	REFUSED(bad.hello.lane = LIMIT_CORES_MAX + 1);
	REFUSED(bad.hello.name[0] = '\0');
	REFUSED(memset(bad.hello.name, 'x', sizeof(bad.hello.name)));
#undef REFUSED
	assert_int_equal(wire_epoch(&good.hello), 0);
	wire_epoch_set(&good.hello, 77);
	assert_int_equal(wire_check(&good, sizeof(good.hello), WIRE_HELLO), 0);
	assert_int_equal(wire_epoch(&good.hello), 77);
}

static int command_check(const union wire_capsule *capsule, uint64_t counter)
{
	return wire_check_sealed(capsule, sizeof(capsule->command), WIRE_COMMAND, counter, KEY);
}

static void commands_are_sealed(void **state)
{
	union wire_capsule good = command_make();

	(void)state;
	assert_int_equal(command_check(&good, 1), 0);
	/* Replayed, or out of order. */
	assert_int_equal(command_check(&good, 2), -EPROTO);
	/* The tag protects each bit. */
	for (size_t bit = 0; bit < sizeof(good.command) * 8; bit++) {
		union wire_capsule bad = good;

		bad.room[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(command_check(&bad, 1), -EPROTO);
	}
}

static void commands_are_bounded(void **state)
{
	union wire_capsule capsule;

	(void)state;
#define REFUSED(change)                                                \
	do {                                                           \
		capsule = command_make();                              \
		change;                                                \
		wire_seal(&capsule, KEY);                              \
		assert_int_equal(command_check(&capsule, 1), -EPROTO); \
	} while (0)
	REFUSED(capsule.command.op = 0);
	REFUSED(capsule.command.op = WIRE_OP_END);
	REFUSED(capsule.command.slot = WIRE_DEPTH_MAX);
	REFUSED(capsule.command.bytes = 0);
	REFUSED(capsule.command.bytes = WIRE_TRANSFER_MAX + 1);
	REFUSED(capsule.command.offset = 1ull << 63);
	REFUSED(capsule.command.reserved0 = 1);
#undef REFUSED
}

static void both_ends_make_the_same_keys(void **state)
{
	union wire_capsule hello = hello_make();
	struct wire_challenge challenge = {.depth = 8};
	struct wire_keys one, other;
	uint8_t proofs[2][SHA256_BYTES];
	struct wire_identity identity = {.bytes = 1 << 20, .align = 512};

	(void)state;
	wire_keys_make(&one, SLICE("a secret of two hosts"), &hello.hello, &challenge);
	wire_keys_make(&other, SLICE("a secret of two hosts"), &hello.hello, &challenge);
	assert_memory_equal(&one, &other, sizeof(one));
	assert_memory_not_equal(one.initiator, one.target, SIPHASH_BYTES);
	/* Another secret, another nonce, other words: other proofs. */
	wire_keys_make(&other, SLICE("a secret of two hosts!"), &hello.hello, &challenge);
	wire_proof_make(&one, proofs[0]);
	wire_proof_make(&other, proofs[1]);
	assert_memory_not_equal(proofs[0], proofs[1], SHA256_BYTES);
	challenge.nonce[31]++;
	wire_keys_make(&other, SLICE("a secret of two hosts"), &hello.hello, &challenge);
	assert_memory_not_equal(one.key, other.key, SHA256_BYTES);
	wire_welcome_make(&one, &identity, proofs[0]);
	identity.bytes++;
	wire_welcome_make(&one, &identity, proofs[1]);
	assert_memory_not_equal(proofs[0], proofs[1], SHA256_BYTES);
}

static void errors_cross_the_wire(void **state)
{
	static const int SAME[] = {0, -EIO, -ENOSPC, -ERANGE, -EINVAL, -EOPNOTSUPP, -EROFS};

	(void)state;
	for (size_t i = 0; i < sizeof(SAME) / sizeof(*SAME); i++)
		assert_int_equal(wire_status_errno(wire_status_of(SAME[i])), SAME[i]);
	assert_int_equal(wire_status_errno(wire_status_of(-EDQUOT)), -ENOSPC);
	assert_int_equal(wire_status_errno(wire_status_of(-EBADF)), -EIO);
	assert_int_equal(wire_status_errno(999), -EIO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hello_is_checked),
		cmocka_unit_test(commands_are_sealed),
		cmocka_unit_test(commands_are_bounded),
		cmocka_unit_test(both_ends_make_the_same_keys),
		cmocka_unit_test(errors_cross_the_wire),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
