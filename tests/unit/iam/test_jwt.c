/* Covers iam/jwt.c: tokens with valid and with invalid signatures. Keys and tokens were made with
 * openssl for this test. */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "document/json.h"
#include "iam/jwt.h"

/* clang-format off */
static const char rs256[] =
	"eyJhbGciOiAiUlMyNTYiLCAidHlwIjogIkpXVCIsICJraWQiOiAicnNhIn0.eyJpc3MiOiAiaHR0cHM6Ly9p"
	"ZC5leGFtcGxlLmNvbSIsICJzdWIiOiAiYWxpY2UiLCAiYXVkIjogWyJhcHAiXSwgImV4cCI6IDIwMDAwMDAw"
	"MDB9.ECKqnj7rR_DbkwyqLtcFW5gyTxk3EBhUp29thaNGHf1H3cFiyCTMCZ1JXylRVlPdvCccKQc6crvKQ7r"
	"LlyAbVj5IExpAvzskN-mgaZpK12BP6fkCewtAqGV438RJ93TQOu4UALUFZCrQKsDwbFlAyLlfcQNOtlic_9W"
	"9Aa8aikr-dP02fWkDKoHrEoUIi6LdvmmkqG_DI4_0XEcdBFfdgtrNsO5IXl_W5JfDFm4z6JFPqmwj8ejv7sL"
	"q9gaV8SatEmNLFZ7SjGUBf_wqRusJeoLv6D6tCJ8GK2uIylsH4_6iEyFS8es16w3Rwt_BHQ6bnurksU85PtW"
	"18Qv97SMemA";
static const char rs512[] =
	"eyJhbGciOiAiUlM1MTIiLCAidHlwIjogIkpXVCIsICJraWQiOiAicnNhIn0.eyJpc3MiOiAiaHR0cHM6Ly9p"
	"ZC5leGFtcGxlLmNvbSIsICJzdWIiOiAiYWxpY2UiLCAiYXVkIjogWyJhcHAiXSwgImV4cCI6IDIwMDAwMDAw"
	"MDB9.ay85aXAPtdWZXgX1FGgAyEHEd7mLlDhZXeTHLP9oXQ2NQFHGo5ZkNGADU14T-ZlQGizRjhp5vMB7DZF"
	"8J0Agbfe0mwpgq5M0-987IBlDugj7brj3iVVEPdkRl_sALuL8eH3uTihZTtjrfmMkfjwEtkjB6qzqw1UbZIy"
	"XWsRBGYO4cRrEg0Gmgs5DaUKmPBHmdV-g6mDfpTRAxQ29ZCDFoXJB7xEGZGFrYojI3G0Qv7AtOO0vYkuoMiY"
	"qtmoTOi0WjH9oioEvqHRQsCVM5CHoENUNkO-yrb8AEeucAuNIRyGfKAGKFhX6RTCrHRqL_RMwzgT28_KalxS"
	"cg8cQTQNIzg";
static const char es256[] =
	"eyJhbGciOiAiRVMyNTYiLCAidHlwIjogIkpXVCIsICJraWQiOiAicDI1NiJ9.eyJpc3MiOiAiaHR0cHM6Ly9"
	"pZC5leGFtcGxlLmNvbSIsICJzdWIiOiAiYWxpY2UiLCAiYXVkIjogWyJhcHAiXSwgImV4cCI6IDIwMDAwMDA"
	"wMDB9.kelq3_GXZNYz2wxwwU412EPeHdJWAYhtywFnm9bxoRMz1FleMJ9Pn_4a6QMG-uuYx2H_3jzOwGpllf"
	"diiQHoDQ";
static const char es384[] =
	"eyJhbGciOiAiRVMzODQiLCAidHlwIjogIkpXVCIsICJraWQiOiAicDM4NCJ9.eyJpc3MiOiAiaHR0cHM6Ly9"
	"pZC5leGFtcGxlLmNvbSIsICJzdWIiOiAiYWxpY2UiLCAiYXVkIjogWyJhcHAiXSwgImV4cCI6IDIwMDAwMDA"
	"wMDB9.FgX3n98A3KVbDoWn0rK9Y8FJPOmBsK9YrBQv6QYtYysUK4Fnd6NbTXWx77ob2Auwfm_EBG0k7lLRDX"
	"NdOh40C_pIQJ36XLoZHDR8tg3MrWuB8CGfOY0EwTj9d1PFHmiO";
#define KEY_RSA \
	"{\"kty\":\"RSA\",\"use\":\"sig\",\"n\":\"sBt5KVu40mVlGah5WRV_-RjBmnVChFyQSrYZWajOLk6" \
	"u9qMuMZT-ASSOQiq09fxChDcxkCYeluL7tMsy4IDysVQjGF90ZyOWYnaZl3s8DY3QGook5uwKN4OOsSHAtcb" \
	"NvG_n4Ef0hPh9GeK2B5i7INP9Hmqx4jtMVFM2FCcEXyY3FETwmBZuWmziPjxRHUBEueQH45rTh2TVFS00IVS" \
	"7pcwhP2vtwTFUTxsoyOZxHv20VZCy3ZF-5ZcjWBXwdHe0oqLJGvj6zxeamj0KC7XxPz9D8XFJRJ8czQRBsmt" \
	"oiO6bn86__-9njWRZ_OQT2eMiBLZJDPtavgKkfzRNhjsoIQ\",\"e\":\"AQAB\",\"kid\":\"rsa\"}"
#define KEY_P256 \
	"{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"1bdK0OTz5fk-yOpWB7w6NOdwiuja_GX8Q9EF4tzKLF" \
	"I\",\"y\":\"ogrxygq_aC89P9ak3BZNixQN-SPppUIt6sIcZUt3D7g\",\"kid\":\"p256\"}"
#define KEY_P384 \
	"{\"kty\":\"EC\",\"crv\":\"P-384\",\"x\":\"BFlBXp1Qo4rGYAxZ6Fr-_BKlLpsWDxi2vtq25E-8w7" \
	"a2QRx4EFnxeI4TCWuxfUGx\",\"y\":\"Fyu-ByuDSEFyuuUzQwVESNlyvamWf8eyp8tigovX5pzu-_6jRH-" \
	"ZBMAYm57_iolf\",\"kid\":\"p384\",\"alg\":\"ES384\"}"
/* Signed by "a-secret", by HMAC with SHA-512 and with SHA-256. */
#define HS512_BEGIN \
	"eyJhbGciOiAiSFM1MTIiLCAidHlwIjogIkpXVCJ9.eyJleHAiOiA0MDAwMDAwMDAwLCAic3ViIjogImFsaWN" \
	"lIiwgImlzcyI6ICJwcm9tZXRoZXVzIn0."
static const char hs512[] = HS512_BEGIN
	"erExh3oTB3SWI00d1vzxYKLqfZjMRhDQwvLWvKuXnAwwiZLJygzlj9323pQjC9wiAGSvufFZFEHIxynrLc_VvA";
static const char hs256[] =
	"eyJhbGciOiAiSFMyNTYiLCAidHlwIjogIkpXVCJ9.eyJleHAiOiA0MDAwMDAwMDAwLCAic3ViIjogImFsaWN"
	"lIiwgImlzcyI6ICJwcm9tZXRoZXVzIn0.UaCIMsevAvsdZNwtQ6faBoOzVrk3m-UKGfbA2f6k4dM";
/* clang-format on */
#define SET(keys) "{\"keys\":[" keys "]}"

/* Returns the result of verification; parsing must succeed. */
static int verify(const char *token, const char *set)
{
	struct jwt_keys *keys;
	struct jwt jwt;
	int ret;

	assert_int_equal(jwt_parse(slice_str(token), &jwt), 0);
	assert_int_equal(jwt_keys_parse(slice_str(set), &keys), 0);
	ret = jwt_verify(&jwt, keys);
	jwt_keys_put(keys);
	jwt_free(&jwt);
	return ret;
}

static int parse(const char *token)
{
	struct jwt jwt;
	int ret = jwt_parse(slice_str(token), &jwt);

	jwt_free(&jwt);
	return ret;
}

/* A token with this header, the claims {} and a signature of one byte. */
static int parse_header(const char *header)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	char text[1024];
	size_t len = 0, bytes = strlen(header);

	for (size_t i = 0; i < bytes; i += 3) {
		uint32_t word = (uint32_t)(uint8_t)header[i] << 16;

		if (i + 1 < bytes)
			word |= (uint32_t)(uint8_t)header[i + 1] << 8;
		if (i + 2 < bytes)
			word |= (uint8_t)header[i + 2];
		for (size_t k = 0; k < MIN(bytes - i, 3u) + 1; k++)
			text[len++] = digits[word >> (18 - 6 * k) & 63];
	}
	snprintf(text + len, sizeof(text) - len, ".e30.AA");
	return parse(text);
}

static void test_signatures(void **state)
{
	static const char all[] = SET(KEY_P256 "," KEY_RSA "," KEY_P384);

	(void)state;
	assert_int_equal(verify(rs256, all), 0);
	assert_int_equal(verify(rs512, all), 0);
	assert_int_equal(verify(es256, all), 0);
	assert_int_equal(verify(es384, all), 0);
	assert_int_equal(verify(rs256, SET(KEY_P256 "," KEY_P384)), -ENOKEY);
	assert_int_equal(verify(rs256, SET("")), -ENOKEY);
}

static void test_claims(void **state)
{
	struct jwt jwt;

	(void)state;
	assert_int_equal(jwt_parse(slice_str(es256), &jwt), 0);
	assert_int_equal(jwt.algorithm, JWT_ES256);
	assert_string_equal(jwt.key_id, "p256");
	assert_true(slice_eq(json_member_text(jwt.claims, "sub"), SLICE("alice")));
	jwt_free(&jwt);
}

/* One changed bit in any part: the token is malformed, of an unknown key, or its signature is
 * wrong. */
static void test_changed(void **state)
{
	char text[sizeof(es256)];

	(void)state;
	for (size_t i = 0; i + 1 < sizeof(es256); i++) {
		struct jwt_keys *keys;
		struct jwt jwt;

		memcpy(text, es256, sizeof(text));
		text[i] = (char)(text[i] == 'A' ? 'B' : 'A');
		if (jwt_parse(slice_str(text), &jwt) == 0) {
			assert_int_equal(jwt_keys_parse(SLICE(SET(KEY_P256)), &keys), 0);
			assert_int_not_equal(jwt_verify(&jwt, keys), 0);
			jwt_keys_put(keys);
		}
		jwt_free(&jwt);
	}
}

static void test_headers(void **state)
{
	(void)state;
	assert_int_equal(parse_header("{\"alg\":\"RS256\"}"), 0);
	assert_int_equal(parse_header("{\"alg\":\"RS256\",\"kid\":\"\",\"typ\":\"JWT\"}"), 0);
	assert_int_equal(parse_header("{\"alg\":\"none\"}"), -EBADMSG);
	assert_int_equal(parse_header("{\"alg\":\"HS256\"}"), -EBADMSG);
	assert_int_equal(parse_header("{\"alg\":\"rs256\"}"), -EBADMSG);
	assert_int_equal(parse_header("{\"alg\":7}"), -EBADMSG);
	assert_int_equal(parse_header("{}"), -EBADMSG);
	assert_int_equal(parse_header("[]"), -EBADMSG);
	assert_int_equal(parse_header("{\"alg\":\"RS256\",\"alg\":\"ES256\"}"), -EBADMSG);
	assert_int_equal(parse_header("{\"alg\":\"RS256\",\"crit\":[\"b64\"]}"), -EBADMSG);
	assert_int_equal(
		parse_header("{\"alg\":\"RS256\",\"x\":[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]}"),
		-EBADMSG);
}

static void test_texts_that_are_none(void **state)
{
	char *text = malloc(JWT_LEN_MAX + 2);

	(void)state;
	assert_non_null(text);
	assert_int_equal(parse(""), -EBADMSG);
	assert_int_equal(parse("a.b"), -EBADMSG);
	assert_int_equal(parse("eyJhbGciOiJSUzI1NiJ9.e30"), -EBADMSG);
	assert_int_equal(parse("eyJhbGciOiJSUzI1NiJ9.e30."), -EBADMSG);
	assert_int_equal(parse("eyJhbGciOiJSUzI1NiJ9.e30.AA.AA"), -EBADMSG);
	assert_int_equal(parse("eyJhbGciOiJSUzI1NiJ9.e30=.AA"), -EBADMSG);
	assert_int_equal(parse("eyJhbGciOiJSUzI1NiJ9.e30.A"), -EBADMSG);
	assert_int_equal(parse("eyJhbGciOiJSUzI1NiJ9.e30.+/AA"), -EBADMSG);
	assert_int_equal(parse("eyJhbGciOiJSUzI1NiJ9.e30.AA"), 0);
	memset(text, 'A', JWT_LEN_MAX + 1);
	text[JWT_LEN_MAX + 1] = '\0';
	assert_int_equal(parse(text), -EBADMSG);
	free(text);
}

static uint32_t count(const char *set)
{
	struct jwt_keys *keys;
	uint32_t found;

	assert_int_equal(jwt_keys_parse(slice_str(set), &keys), 0);
	found = jwt_keys_count(keys);
	jwt_keys_put(keys);
	return found;
}

static void test_sets(void **state)
{
	struct jwt_keys *keys;

	(void)state;
	assert_int_equal(count(SET(KEY_RSA "," KEY_P256 "," KEY_P384)), 3);
	assert_int_equal(count(SET("7,null,{},{\"kty\":\"oct\",\"k\":\"AAAA\"}")), 0);
	/* Not for signatures; too short; a point not on its curve; an exponent of one. */
	assert_int_equal(count(SET("{\"kty\":\"EC\",\"use\":\"enc\",\"crv\":\"P-256\"}")), 0);
	assert_int_equal(count(SET("{\"kty\":\"RSA\",\"n\":\"AQAB\",\"e\":\"AQAB\"}")), 0);
	assert_int_equal(count(SET("{\"kty\":\"EC\",\"crv\":\"P-256\","
				   "\"x\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE\","
				   "\"y\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE\"}")),
		0);
	assert_int_equal(jwt_keys_parse(SLICE("{}"), &keys), -EBADMSG);
	assert_int_equal(jwt_keys_parse(SLICE("[]"), &keys), -EBADMSG);
	assert_int_equal(jwt_keys_parse(SLICE("{\"keys\":7}"), &keys), -EBADMSG);
	assert_int_equal(jwt_keys_parse(SLICE(""), &keys), -EBADMSG);
}

static int parse_shared(const char *token)
{
	struct jwt jwt;
	int ret = jwt_shared_parse(slice_str(token), &jwt);

	jwt_free(&jwt);
	return ret;
}

static void test_shared_secrets(void **state)
{
	struct jwt jwt;

	(void)state;
	assert_int_equal(jwt_shared_parse(slice_str(hs512), &jwt), 0);
	assert_true(slice_eq(json_member_text(jwt.claims, "sub"), SLICE("alice")));
	assert_true(jwt_shared_verify(&jwt, SLICE("a-secret")));
	assert_false(jwt_shared_verify(&jwt, SLICE("another-secret")));
	assert_false(jwt_shared_verify(&jwt, SLICE("a-secreT")));
	assert_false(jwt_shared_verify(&jwt, SLICE_NONE));
	jwt.signature[63] ^= 1;
	assert_false(jwt_shared_verify(&jwt, SLICE("a-secret")));
	jwt_free(&jwt);
	/* Another algorithm; a signature that is too short, or none. */
	assert_int_equal(parse_shared(hs256), -EBADMSG);
	assert_int_equal(parse_shared(HS512_BEGIN "erExh3oTB3SWI00d"), -EBADMSG);
	assert_int_equal(parse_shared(HS512_BEGIN), -EBADMSG);
	/* Neither kind is accepted as the other. */
	assert_int_equal(parse_shared(rs512), -EBADMSG);
	assert_int_equal(parse(hs512), -EBADMSG);
	assert_int_equal(parse(hs256), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_signatures),
		cmocka_unit_test(test_claims),
		cmocka_unit_test(test_changed),
		cmocka_unit_test(test_headers),
		cmocka_unit_test(test_texts_that_are_none),
		cmocka_unit_test(test_sets),
		cmocka_unit_test(test_shared_secrets),
	};

	return cmocka_run_group_tests_name("iam: jwt", tests, NULL, NULL);
}
