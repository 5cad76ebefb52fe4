/* tests/unit/codec/test_elbencho.c: paths, control headers and tokens of elbencho's dialect, and
 * every way to get one wrong. */
#include "../unit.h"

#include <errno.h>
#include <string.h>

#include "base/base.h"
#include "codec/elbencho.h"

#define ID "000102030405060708090a0b0c0d0e0f"
#define PEER                                           \
	"01640000000000000000000000000000000000000000" \
	"00000000000000000000000000000000000000010700"

static void test_paths(void **state)
{
	enum elbencho_step step;

	(void)state;
	for (int i = 0; i < ELBENCHO_STEPS; i++) {
		assert_int_equal(elbencho_step_of(elbencho_path((enum elbencho_step)i), &step), 0);
		assert_int_equal(step, i);
	}
	assert_int_equal(elbencho_step_of(SLICE("/.s3rdma-rc/"), &step), -ENOENT);
	assert_int_equal(elbencho_step_of(SLICE("/.s3rdma-rc/connect/"), &step), -ENOENT);
}

static void test_token(void **state)
{
	struct elbencho_token token;
	const char *why;

	(void)state;
	assert_int_equal(elbencho_token_parse(SLICE("rc:" ID ":00007f30a0b0c000:00011171:5eed0001"),
				 &token, &why),
		0);
	assert_int_equal(token.session[0], 0);
	assert_int_equal(token.session[15], 15);
	assert_int_equal(token.addr, 0x7f30a0b0c000);
	assert_int_equal(token.bytes, 70001);
	assert_int_equal(token.rkey, 0x5eed0001);
	/* Without leading zeros, of either case; up to the end of the address space. */
	assert_int_equal(
		elbencho_token_parse(SLICE("rc:" ID ":FFFFFFFFFFFFFFFE:1:aB"), &token, &why), 0);
	assert_int_equal(token.addr, UINT64_MAX - 1);
	assert_int_equal(token.bytes, 1);
	assert_int_equal(token.rkey, 0xab);
}

static void test_token_malformed(void **state)
{
	static const char *const texts[] = {
		"",
		"rc:",
		"rc:" ID,
		"rc:" ID ":1:1",
		"rc:" ID ":1:1:",
		"rc:" ID ":1::1",
		"rc:" ID "::1:1",
		"rc:" ID ":1:1:1:",
		"rc:" ID ":1:1:1:1",
		"rc:" ID "0:1:1:1",
		"rc:0" ID ":1:1:1",
		"rc::1:1:1",
		"RC:" ID ":1:1:1",
		" rc:" ID ":1:1:1",
		"rc:" ID ":g:1:1",
		"rc:" ID ":1:100000000:1",
		"rc:" ID ":1:1:100000000",
		"rc:" ID ":10000000000000000:1:1",
		"rc:" ID ":ffffffffffffffff:2:1",
	};
	struct elbencho_token token;
	const char *why;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		why = NULL;
		assert_int_equal(elbencho_token_parse(slice_str(texts[i]), &token, &why), -EINVAL);
		assert_non_null(why);
	}
	assert_false(elbencho_is_token(SLICE("rc")));
	assert_true(elbencho_is_token(SLICE("rc:")));
}

static const char *checked(
	enum elbencho_step step, const char *peer, const char *psn, const char *session)
{
	struct hipobj_request request = {0};

	if (peer)
		hipobj_take(&request, hipobj_header(HIPOBJ_H_TOKEN), slice_str(peer));
	if (psn)
		hipobj_take(&request, hipobj_header(HIPOBJ_H_PSN), slice_str(psn));
	if (session)
		hipobj_take(&request, hipobj_header(HIPOBJ_H_SESSION), slice_str(session));
	return elbencho_check(&request, step);
}

static void test_requests(void **state)
{
	struct hipobj_request twice = {0};
	char dc[] = PEER, nobody[] = PEER;

	(void)state;
	dc[1] = '0';
	memset(nobody + 2, '0', 8);
	assert_null(checked(ELBENCHO_CONNECT, PEER, "00000a", NULL));
	assert_null(checked(ELBENCHO_DISCONNECT, NULL, NULL, ID));
	assert_non_null(checked(ELBENCHO_CONNECT, NULL, "1", NULL));
	assert_non_null(checked(ELBENCHO_CONNECT, PEER, NULL, NULL));
	assert_non_null(checked(ELBENCHO_CONNECT, PEER, "0", NULL));
	assert_non_null(checked(ELBENCHO_CONNECT, PEER, "1000000", NULL));
	assert_non_null(checked(ELBENCHO_CONNECT, ID, "1", NULL));
	assert_non_null(checked(ELBENCHO_CONNECT, dc, "1", NULL));
	assert_non_null(checked(ELBENCHO_CONNECT, nobody, "1", NULL));
	assert_non_null(checked(ELBENCHO_DISCONNECT, PEER, "1", NULL));
	assert_non_null(checked(ELBENCHO_DISCONNECT, NULL, NULL, "1"));
	for (int i = 0; i < 2; i++)
		hipobj_take(&twice, hipobj_header(HIPOBJ_H_SESSION), SLICE(ID));
	assert_non_null(elbencho_check(&twice, ELBENCHO_DISCONNECT));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_token),
		cmocka_unit_test(test_token_malformed),
		cmocka_unit_test(test_requests),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
