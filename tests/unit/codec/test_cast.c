/* Datagrams of a multicast, and the grant. */
#include "../unit.h"

#include <errno.h>
#include <string.h>

#include "codec/cast.h"

#define STREAM 0x1234567890abcdefull
#define BYTES  4032u

static const uint8_t KEY[AEAD_KEY_BYTES] = "a key of thirty-two bytes, about";

static struct aead *key_open(const uint8_t *key)
{
	struct aead *aead = NULL;

	assert_int_equal(aead_open(key, &aead), 0);
	return aead;
}

static void fill(uint8_t *bytes, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		bytes[i] = (uint8_t)(i * 7);
}

static void payloads_fit_the_packet(void **state)
{
	(void)state;
	assert_int_equal(cast_payload_bytes(4096), 4032);
	assert_int_equal(cast_payload_bytes(1024), 960);
	assert_int_equal(cast_payload_bytes(256), 192);
	assert_int_equal(cast_payload_bytes(65536), CAST_PAYLOAD_MAX);
	assert_int_equal(cast_payload_bytes(CAST_OVERHEAD + 63), 0);
	assert_int_equal(cast_part_full(4032), MIB);
	assert_int_equal(cast_part_full(960), 256 * KIB);
	for (uint32_t bytes = 64; bytes <= CAST_PAYLOAD_MAX; bytes += 64)
		assert_in_range(cast_part_datagrams(cast_part_full(bytes), bytes),
			CAST_PART_DATAGRAMS, CAST_PART_DATAGRAMS_MAX);
	assert_int_equal(cast_part_bytes(10 * MIB, 0, 4032), MIB);
	assert_int_equal(cast_part_bytes(10 * MIB, 10 * MIB - 1, 4032), 1);
}

static void what_is_sealed_opens(void **state)
{
	uint8_t payload[BYTES], datagram[BYTES + CAST_OVERHEAD], out[BYTES];
	struct aead *aead = key_open(KEY);
	struct cast_head head;

	(void)state;
	fill(payload, BYTES);
	assert_int_equal(cast_seal(aead, STREAM, 8064, payload, BYTES, datagram), 0);
	assert_true(cast_look(datagram, sizeof(datagram), STREAM, &head));
	assert_int_equal(head.offset, 8064);
	assert_int_equal(head.bytes, BYTES);
	assert_int_equal(cast_unseal(aead, datagram, &head, out), 0);
	assert_memory_equal(out, payload, BYTES);
	assert_memory_not_equal(cast_payload(datagram), payload, BYTES);
	/* In its own place. */
	memcpy(cast_payload(datagram), payload, 100);
	assert_int_equal(cast_seal(aead, STREAM, 0, cast_payload(datagram), 100, datagram), 0);
	assert_true(cast_look(datagram, 100 + CAST_OVERHEAD, STREAM, &head));
	assert_int_equal(cast_unseal(aead, datagram, &head, out), 0);
	assert_memory_equal(out, payload, 100);
	aead_close(aead);
}

/* A neighbour that changes any byte, or has another key, or another start's datagrams. */
static void what_is_forged_does_not(void **state)
{
	static const uint8_t OTHER[AEAD_KEY_BYTES] = "another key of as many bytes, so";
	uint8_t payload[64], datagram[64 + CAST_OVERHEAD], out[64];
	struct aead *aead = key_open(KEY), *other = key_open(OTHER);
	struct cast_head head;

	(void)state;
	fill(payload, sizeof(payload));
	assert_int_equal(cast_seal(aead, STREAM, 64, payload, sizeof(payload), datagram), 0);
	assert_false(cast_look(datagram, sizeof(datagram), STREAM + 1, &head));
	assert_false(cast_look(datagram, sizeof(datagram) - 1, STREAM, &head));
	assert_false(cast_look(datagram, CAST_OVERHEAD, STREAM, &head));
	assert_false(cast_look(datagram, 3, STREAM, &head));
	for (size_t i = 0; i < sizeof(datagram); i++) {
		datagram[i] ^= 1;
		if (cast_look(datagram, sizeof(datagram), STREAM, &head))
			assert_int_equal(cast_unseal(aead, datagram, &head, out), -EBADMSG);
		datagram[i] ^= 1;
	}
	assert_true(cast_look(datagram, sizeof(datagram), STREAM, &head));
	assert_int_equal(cast_unseal(other, datagram, &head, out), -EBADMSG);
	assert_int_equal(cast_unseal(aead, datagram, &head, out), 0);
	aead_close(aead);
	aead_close(other);
}

static void grants_are_written_and_read(void **state)
{
	static const char *const BAD[] = {"", "group=239.1.2.3",
		"group=239.1.2.3; payload=64; more=1", "group=239.1.2.3; payload=4033",
		"group=239.1.2.3; payload=x", "payload=64",
		"group=239.1.2.3; payload=64; stream=12", "group=239.1.2.3; payload=64; key=12",
		"no; too many groups"};
	struct cast_grant grant = {
		.group = "239.192.78.128", .stream = STREAM, .payload_bytes = 4032};
	struct cast_grant got;
	char text[CAST_TEXT_BYTES];

	(void)state;
	memcpy(grant.key, KEY, sizeof(KEY));
	cast_grant_write(&grant, text);
	assert_int_equal(cast_grant_read(slice_str(text), &got), 0);
	assert_string_equal(got.group, grant.group);
	assert_true(got.stream == STREAM && got.payload_bytes == 4032);
	assert_memory_equal(got.key, KEY, sizeof(KEY));
	for (size_t i = 0; i < ARRAY_LEN(BAD); i++)
		assert_int_equal(cast_grant_read(slice_str(BAD[i]), &got), -EINVAL);
	/* A long address is cut nowhere. */
	memset(text, '1', sizeof(text));
	memcpy(text, "group=", 6);
	assert_int_equal(cast_grant_read(slice_of(text, 100), &got), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(payloads_fit_the_packet),
		cmocka_unit_test(what_is_sealed_opens), cmocka_unit_test(what_is_forged_does_not),
		cmocka_unit_test(grants_are_written_and_read)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
