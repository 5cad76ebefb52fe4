/* tests/unit/codec/test_via.c: covers codec/via.c: there and back, and every fault that a header
 * can have. */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "codec/via.h"

static const uint8_t secret[VIA_SECRET_BYTES] = "a secret of thirty-two bytes...";
#define NOW 1780000000

static struct via about(void)
{
	return (struct via){.store = SLICE("nebulaio.3"),
		.peer = SLICE("192.0.2.7:40001"),
		.transport = SLICE("https"),
		.id = SLICE("0123456789ABCDEF"),
		.time_s = NOW};
}

static int take(const char *text, const char *method, const char *target, int64_t now_s,
	struct via *ret_via)
{
	return via_read(
		secret, slice_str(text), slice_str(method), slice_str(target), now_s, ret_via);
}

static void test_there_and_back(void **state)
{
	char text[VIA_BYTES_MAX];
	struct via via = about(), got;

	(void)state;
	assert_int_equal(via_write(secret, &via, SLICE("GET"), SLICE("/a/b?c"), text), 0);
	assert_int_equal(take(text, "GET", "/a/b?c", NOW, &got), 0);
	assert_true(slice_eq(got.store, via.store) && slice_eq(got.peer, via.peer));
	assert_true(slice_eq(got.transport, via.transport) && slice_eq(got.id, via.id));
	assert_int_equal(got.time_s, NOW);
}

static void test_kinds(void **state)
{
	char text[VIA_BYTES_MAX];
	struct via via = about(), got;

	(void)state;
	for (int kind = VIA_SERVE; kind <= VIA_TAKE; kind++) {
		via.kind = (enum via_kind)kind;
		assert_int_equal(via_write(secret, &via, SLICE("PUT"), SLICE("/a/b"), text), 0);
		assert_int_equal(text[0], kind == VIA_SERVE ? '1' : '2');
		assert_int_equal(take(text, "PUT", "/a/b", NOW, &got), 0);
		assert_int_equal(got.kind, kind);
		assert_int_equal(got.time_s, NOW);
	}
}

static void test_forged(void **state)
{
	static const uint8_t other[VIA_SECRET_BYTES] = "another secret";
	char text[VIA_BYTES_MAX];
	struct via via = about(), got;

	(void)state;
	assert_int_equal(via_write(secret, &via, SLICE("GET"), SLICE("/a"), text), 0);
	assert_int_equal(take(text, "PUT", "/a", NOW, &got), -EPERM);
	assert_int_equal(take(text, "GET", "/b", NOW, &got), -EPERM);
	assert_int_equal(
		via_read(other, slice_str(text), SLICE("GET"), SLICE("/a"), NOW, &got), -EPERM);
	for (size_t i = 0; text[i]; i++) {
		text[i] ^= 1;
		assert_true(take(text, "GET", "/a", NOW, &got) < 0);
		text[i] ^= 1;
	}
	for (size_t len = 0; len < strlen(text); len++)
		assert_true(via_read(secret, slice_of(text, len), SLICE("GET"), SLICE("/a"), NOW,
				    &got) < 0);
}

static void test_time(void **state)
{
	char text[VIA_BYTES_MAX];
	struct via via = about(), got;

	(void)state;
	assert_int_equal(via_write(secret, &via, SLICE("GET"), SLICE("/a"), text), 0);
	assert_int_equal(take(text, "GET", "/a", NOW + VIA_AGE_S_MAX, &got), 0);
	assert_int_equal(take(text, "GET", "/a", NOW + VIA_AGE_S_MAX + 1, &got), -ESTALE);
	assert_int_equal(take(text, "GET", "/a", NOW - VIA_AGE_S_MAX - 1, &got), -ESTALE);
}

static void test_form(void **state)
{
	char text[VIA_BYTES_MAX], peer[VIA_BYTES_MAX];
	struct via got, wrong[] = {about(), about(), about(), about()};

	(void)state;
	memset(peer, '1', sizeof(peer));
	wrong[0].transport = SLICE("rdma");
	wrong[1].id = SLICE("0123456789abcdef");
	wrong[2].peer = slice_of(peer, VIA_PEER_BYTES);
	wrong[3].store = SLICE("");
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		assert_int_equal(via_write(secret, &wrong[i], SLICE("GET"), SLICE("/a"), text), 0);
		assert_int_equal(take(text, "GET", "/a", NOW, &got), -EINVAL);
	}
	wrong[2].peer = slice_of(peer, sizeof(peer));
	assert_int_equal(via_write(secret, &wrong[2], SLICE("GET"), SLICE("/a"), text), -EMSGSIZE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_there_and_back),
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_forged),
		cmocka_unit_test(test_time),
		cmocka_unit_test(test_form),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
