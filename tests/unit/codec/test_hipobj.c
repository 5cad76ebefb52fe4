/* tests/unit/codec/test_hipobj.c: tokens and control headers of hipobj-rc-v2: a vector both ways,
 * what other clients write, and every way to get a header wrong. */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "codec/hipobj.h"
#include "codec/text.h"

#define VECTOR                             \
	"01"                               \
	"03020100"                         \
	"00112233445566778899aabbccddeeff" \
	"78563412"                         \
	"0807060504030201"                 \
	"0000010000000000"                 \
	"01"                               \
	"0b0a"

static void test_token(void **state)
{
	struct hipobj_token token, again;
	char text[HIPOBJ_TOKEN_LEN];

	(void)state;
	assert_int_equal(strlen(VECTOR), HIPOBJ_TOKEN_LEN);
	assert_int_equal(hipobj_token_parse(SLICE(VECTOR), &token), 0);
	assert_int_equal(token.transport, HIPOBJ_TRANSPORT_RC);
	assert_int_equal(token.qpn, 0x010203);
	assert_int_equal(token.gid[0], 0);
	assert_int_equal(token.gid[15], 0xff);
	assert_int_equal(token.rkey, 0x12345678);
	assert_int_equal(token.addr, 0x0102030405060708);
	assert_int_equal(token.bytes, 0x10000);
	assert_int_equal(token.port, 1);
	assert_int_equal(token.lid, 0x0a0b);
	hipobj_token_format(&token, text);
	assert_memory_equal(text, VECTOR, sizeof(text));
	/* Either case, and what some append. */
	assert_int_equal(hipobj_token_parse(SLICE("01030201000011223344556677"
						  "8899AABBCCDDEEFF7856341208070605"
						  "04030201000001000000000001"
						  "0B0A:7f00:1000"),
				 &again),
		0);
	assert_int_equal(again.qpn, token.qpn);
	assert_int_equal(again.addr, token.addr);
}

static void test_token_malformed(void **state)
{
	static const char *const texts[] = {
		"",
		"01",
		VECTOR "0",
		VECTOR ":",
		VECTOR ":1",
		VECTOR ":1:",
		VECTOR "::1",
		VECTOR ":1:2:3",
		VECTOR ":g:1",
		VECTOR ":11223344556677889:1",
		" " VECTOR,
	};
	struct hipobj_token token;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		assert_int_equal(hipobj_token_parse(slice_str(texts[i]), &token), -EINVAL);
}

/* ---- The vectors of docs/spec/hipobj.md, which HIPOBJ_DOCUMENT names. ---- */

#define DOCUMENT_BYTES_MAX (64 * KIB)

/* Behind the line that begins so. */
static char *table(char *text, const char *head)
{
	char *at = strstr(text, head);

	assert_non_null(at);
	return strchr(strchr(at, '\n') + 1, '\n') + 1;
}

static void row_check(const char *row)
{
	unsigned long long transport, qpn, rkey, addr, bytes, port, lid;
	char text[HIPOBJ_TOKEN_LEN + 1], gid[33], hex[33], again[HIPOBJ_TOKEN_LEN];
	struct hipobj_token token;

	assert_int_equal(sscanf(row,
				 "| `%88[^`]` | %llu | %llu | %32s | %llx | %llx | %llu | %llu | "
				 "%llu |",
				 text, &transport, &qpn, gid, &rkey, &addr, &bytes, &port, &lid),
		9);
	assert_int_equal(hipobj_token_parse(slice_str(text), &token), 0);
	assert_int_equal(token.transport, transport);
	assert_int_equal(token.qpn, qpn);
	assert_int_equal(token.rkey, rkey);
	assert_int_equal(token.addr, addr);
	assert_int_equal(token.bytes, bytes);
	assert_int_equal(token.port, port);
	assert_int_equal(token.lid, lid);
	hex_encode(token.gid, sizeof(token.gid), hex);
	assert_memory_equal(hex, gid, 32);
	hipobj_token_format(&token, again);
	assert_memory_equal(again, text, sizeof(again));
}

static void test_document(void **state)
{
	char *text = calloc(1, DOCUMENT_BYTES_MAX), *at;
	const char *path = getenv("HIPOBJ_DOCUMENT");
	uint32_t good = 0, bad = 0;
	FILE *file;

	(void)state;
	assert_non_null(path);
	assert_non_null(text);
	file = fopen(path, "r");
	assert_non_null(file);
	assert_true(fread(text, 1, DOCUMENT_BYTES_MAX - 1, file) > 0 && feof(file));
	fclose(file);
	at = table(text, "| token | transport |");
	for (; *at == '|'; at = strchr(at, '\n') + 1, good++)
		row_check(at);
	at = table(text, "| text | why |");
	for (; *at == '|'; at = strchr(at, '\n') + 1, bad++) {
		struct hipobj_token token;
		char wrong[128];

		assert_int_equal(sscanf(at, "| `%127[^`]` |", wrong), 1);
		assert_int_equal(hipobj_token_parse(slice_str(wrong), &token), -EINVAL);
	}
	assert_int_equal(good, 3);
	assert_int_equal(bad, 4);
	free(text);
}

static void test_reply(void **state)
{
	struct hipobj_token token;

	(void)state;
	assert_int_equal(hipobj_reply_parse(SLICE("200:" VECTOR), &token), 0);
	assert_int_equal(hipobj_reply_parse(SLICE("200 " VECTOR), &token), 0);
	assert_int_equal(token.qpn, 0x010203);
	assert_int_equal(hipobj_reply_parse(SLICE("206:" VECTOR), &token), -EINVAL);
	assert_int_equal(hipobj_reply_parse(SLICE("200-" VECTOR), &token), -EINVAL);
	assert_int_equal(hipobj_reply_parse(SLICE("200:"), &token), -EINVAL);
	assert_int_equal(hipobj_reply_parse(SLICE("200"), &token), -EINVAL);
	assert_int_equal(hipobj_reply_parse(SLICE("200:" VECTOR ":1:1"), &token), -EINVAL);
}

static void test_names(void **state)
{
	enum hipobj_step step;

	(void)state;
	for (int i = 0; i < HIPOBJ_H_COUNT; i++) {
		struct slice name = hipobj_header((enum hipobj_header)i);

		assert_true(slice_starts(name, SLICE("x-amz-rdma-")));
		assert_int_equal(name.data[name.len], '\0');
	}
	for (int i = 0; i < HIPOBJ_STEPS; i++) {
		assert_int_equal(hipobj_step_of(hipobj_path((enum hipobj_step)i), &step), 0);
		assert_int_equal(step, i);
	}
	assert_int_equal(hipobj_step_of(SLICE("/.hipobj-rc/"), &step), -ENOENT);
	assert_int_equal(hipobj_step_of(SLICE("/.hipobj-rc/prepare/"), &step), -ENOENT);
}

/* ---- Requests. ---- */

struct line {
	const char *name, *value;
};
static const struct line PREPARE[] = {
	{"X-Amz-Rdma-Protocol", HIPOBJ_PROTOCOL},
	{"x-amz-rdma-token", VECTOR},
	{"x-amz-rdma-psn", "1"},
	{"x-amz-rdma-cookie", "BADCAFE"},
	{"x-amz-rdma-op", "GET"},
	{"x-amz-rdma-target", "/bucket/a/b%20c"},
	{"x-amz-rdma-size", "4096"},
};
static const struct line READY[] = {
	{"x-amz-rdma-protocol", HIPOBJ_PROTOCOL},
	{"x-amz-rdma-session", "00112233445566778899AABBCCDDEEFF"},
	{"x-amz-rdma-cookie", "0badcafe"},
	{"x-amz-rdma-qpn", "010203"},
	{"x-amz-rdma-mr-addr", "7f00deadbeef"},
	{"x-amz-rdma-mr-rkey", "ff"},
};

/* The lines with one of them replaced, or added. */
static enum hipobj_verdict check(enum hipobj_step step, const char *name, const char *value,
	struct hipobj_request *ret_request)
{
	const struct line *lines = step == HIPOBJ_PREPARE ? PREPARE : READY;
	size_t count = step == HIPOBJ_PREPARE ? ARRAY_LEN(PREPARE) : ARRAY_LEN(READY);
	enum hipobj_verdict verdict;
	const char *why;

	*ret_request = (struct hipobj_request){0};
	for (size_t i = 0; i < count; i++)
		if (!name || strcmp(name, lines[i].name) != 0)
			assert_true(hipobj_take(
				ret_request, slice_str(lines[i].name), slice_str(lines[i].value)));
	if (name && value)
		assert_true(hipobj_take(ret_request, slice_str(name), slice_str(value)));
	verdict = hipobj_check(ret_request, step, &why);
	assert_int_equal(why != NULL, verdict == HIPOBJ_BAD);
	return verdict;
}

static void test_prepare(void **state)
{
	struct hipobj_request request;

	(void)state;
	assert_int_equal(check(HIPOBJ_PREPARE, NULL, NULL, &request), HIPOBJ_GOOD);
	assert_false(request.put);
	assert_int_equal(request.psn, 1);
	assert_int_equal(request.cookie, 0xbadcafe);
	assert_int_equal(request.size, 4096);
	assert_int_equal(request.offset, 0);
	assert_true(slice_eq(request.path, SLICE("/bucket/a/b%20c")));
	assert_int_equal(request.query.len, 0);
	assert_int_equal(
		check(HIPOBJ_PREPARE, "x-amz-rdma-offset", "9223372036854771711", &request),
		HIPOBJ_GOOD);
	assert_int_equal(check(HIPOBJ_PREPARE, "x-amz-rdma-target", "/b/k?versionId=v", &request),
		HIPOBJ_GOOD);
	assert_true(slice_eq(request.query, SLICE("versionId=v")));
	assert_int_equal(
		check(HIPOBJ_PREPARE, "x-amz-rdma-size", "2147483647", &request), HIPOBJ_GOOD);
	assert_int_equal(
		check(HIPOBJ_PREPARE, "x-amz-rdma-size", "2147483648", &request), HIPOBJ_TOO_LARGE);
	assert_false(hipobj_take(&request, SLICE("x-amz-rdma-other"), SLICE("")));
	assert_false(hipobj_take(&request, SLICE("host"), SLICE("x")));
}

static void test_prepare_wrong(void **state)
{
	static const struct line wrongs[] = {
		{"x-amz-rdma-token", "00"
				     "03020100"
				     "00112233445566778899aabbccddeeff"
				     "78563412"
				     "0807060504030201"
				     "0000010000000000"
				     "01"
				     "0b0a"},
		{"x-amz-rdma-token", "01"
				     "00000000"
				     "00112233445566778899aabbccddeeff"
				     "78563412"
				     "0807060504030201"
				     "0000010000000000"
				     "01"
				     "0b0a"},
		{"x-amz-rdma-psn", "0"},
		{"x-amz-rdma-psn", "1000000"},
		{"x-amz-rdma-psn", ""},
		{"x-amz-rdma-psn", NULL},
		{"x-amz-rdma-cookie", "0"},
		{"x-amz-rdma-cookie", NULL},
		{"x-amz-rdma-cookie", "100000000"},
		{"x-amz-rdma-op", "HEAD"},
		{"x-amz-rdma-op", NULL},
		{"x-amz-rdma-target", "/"},
		{"x-amz-rdma-target", "/bucket"},
		{"x-amz-rdma-target", "/bucket/"},
		{"x-amz-rdma-target", "//key"},
		{"x-amz-rdma-target", "bucket/key"},
		{"x-amz-rdma-target", "/b/k?acl"},
		{"x-amz-rdma-target", "/b/k?uploadId=u"},
		{"x-amz-rdma-target", "/b/k?partNumber=1&partNumber=2"},
		{"x-amz-rdma-target", "/b/k?versionId="},
		{"x-amz-rdma-target", "/b/k?partNumber"},
		{"x-amz-rdma-target", NULL},
		{"x-amz-rdma-size", "0"},
		{"x-amz-rdma-size", "x"},
		{"x-amz-rdma-size", NULL},
		{"x-amz-rdma-offset", "-1"},
		{"x-amz-rdma-offset", "9223372036854775807"},
		{"x-amz-rdma-mr-rkey", "123456789"},
		{"x-amz-rdma-mr-addr", "x"},
		{"x-amz-rdma-qpn", "1000000"},
		/* A second one, in another case. */
		{"x-amz-rdma-protocol", HIPOBJ_PROTOCOL},
	};
	struct hipobj_request request;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(wrongs); i++)
		assert_int_equal(check(HIPOBJ_PREPARE, wrongs[i].name, wrongs[i].value, &request),
			HIPOBJ_BAD);
	assert_int_equal(check(HIPOBJ_PREPARE, "X-Amz-Rdma-Protocol", "hipobj-rc-v3", &request),
		HIPOBJ_NOT_SPOKEN);
	assert_int_equal(
		check(HIPOBJ_PREPARE, "X-Amz-Rdma-Protocol", NULL, &request), HIPOBJ_NOT_SPOKEN);
}

/* A write is of a whole object or of a part, from its beginning. */
static void test_prepare_put(void **state)
{
	static const struct {
		const char *target, *offset;
		enum hipobj_verdict verdict;
	} cases[] = {
		{"/b/k", "0", HIPOBJ_GOOD},
		{"/b/k", "1", HIPOBJ_BAD},
		{"/b/k?partNumber=1&uploadId=u", "0", HIPOBJ_GOOD},
		{"/b/k?uploadId=u&partNumber=1", "0", HIPOBJ_GOOD},
		{"/b/k?partNumber=1", "0", HIPOBJ_BAD},
		{"/b/k?versionId=v", "0", HIPOBJ_BAD},
		{"/b/k?partNumber=1&uploadId=u&x=y", "0", HIPOBJ_BAD},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct hipobj_request request = {0};
		const char *why;

		for (size_t j = 0; j < ARRAY_LEN(PREPARE); j++) {
			const char *value = PREPARE[j].value;

			if (strcmp(PREPARE[j].name, "x-amz-rdma-op") == 0)
				value = "PUT";
			if (strcmp(PREPARE[j].name, "x-amz-rdma-target") == 0)
				value = cases[i].target;
			hipobj_take(&request, slice_str(PREPARE[j].name), slice_str(value));
		}
		hipobj_take(&request, SLICE("x-amz-rdma-offset"), slice_str(cases[i].offset));
		assert_int_equal(hipobj_check(&request, HIPOBJ_PREPARE, &why), cases[i].verdict);
		assert_true(request.put);
	}
}

static void test_ready(void **state)
{
	struct hipobj_request request;

	(void)state;
	assert_int_equal(check(HIPOBJ_READY, NULL, NULL, &request), HIPOBJ_GOOD);
	assert_int_equal(request.session[15], 0xff);
	assert_int_equal(request.cookie, 0xbadcafe);
	assert_int_equal(request.qpn, 0x010203);
	assert_int_equal(request.addr, 0x7f00deadbeef);
	assert_int_equal(request.rkey, 0xff);
	assert_int_equal(check(HIPOBJ_READY, "x-amz-rdma-session", NULL, &request), HIPOBJ_BAD);
	assert_int_equal(check(HIPOBJ_READY, "x-amz-rdma-session", "00", &request), HIPOBJ_BAD);
	assert_int_equal(check(HIPOBJ_READY, "x-amz-rdma-cookie", NULL, &request), HIPOBJ_BAD);
	assert_int_equal(check(HIPOBJ_CANCEL, "x-amz-rdma-cookie", NULL, &request), HIPOBJ_GOOD);
	assert_int_equal(check(HIPOBJ_CANCEL, "x-amz-rdma-session", NULL, &request), HIPOBJ_BAD);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_token),
		cmocka_unit_test(test_token_malformed),
		cmocka_unit_test(test_document),
		cmocka_unit_test(test_reply),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_prepare),
		cmocka_unit_test(test_prepare_wrong),
		cmocka_unit_test(test_prepare_put),
		cmocka_unit_test(test_ready),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
