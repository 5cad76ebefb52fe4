/* tests/unit/s3/test_sigv2.c: the examples that AWS publishes ("Signing and authenticating REST
 * requests (AWS signature version 2)", "Authentication examples"), and requests that must be
 * refused. */
#include "../unit.h"

#include "codec/codec.h"
#include "s3/auth/sigv2.h"
#include "s3/core/text.h"

#define KEY_ID "AKIAIOSFODNN7EXAMPLE"
#define SECRET "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"

struct example {
	const char *method, *bucket, *path, *query;
	struct s3_header headers[12];
	uint32_t header_count;
	const char *string, *signature;
};

static const struct example examples[] = {
	{"GET", "awsexamplebucket1", "/photos/puppy.jpg", "",
		{{SLICE("Date"), SLICE("Tue, 27 Mar 2007 19:36:42 +0000")}}, 1,
		"GET\n\n\nTue, 27 Mar 2007 19:36:42 +0000\n/awsexamplebucket1/photos/puppy.jpg",
		"qgk2+6Sv9/oM7G3qLEjTH1a1l1g="},
	{"PUT", "awsexamplebucket1", "/photos/puppy.jpg", "",
		{{SLICE("Content-Type"), SLICE("image/jpeg")},
			{SLICE("Content-Length"), SLICE("94328")},
			{SLICE("Date"), SLICE("Tue, 27 Mar 2007 21:15:45 +0000")}},
		3,
		"PUT\n\nimage/jpeg\nTue, 27 Mar 2007 21:15:45 +0000\n"
		"/awsexamplebucket1/photos/puppy.jpg",
		"iqRzw+ileNPu1fhspnRs8nOjjIA="},
	{"GET", "awsexamplebucket1", "/", "prefix=photos&max-keys=50&marker=puppy",
		{{SLICE("User-Agent"), SLICE("Mozilla/5.0")},
			{SLICE("Date"), SLICE("Tue, 27 Mar 2007 19:42:41 +0000")}},
		2, "GET\n\n\nTue, 27 Mar 2007 19:42:41 +0000\n/awsexamplebucket1/",
		"m0WP8eCtspQl5Ahe6L1SozdX9YA="},
	{"GET", "awsexamplebucket1", "/", "acl",
		{{SLICE("Date"), SLICE("Tue, 27 Mar 2007 19:44:46 +0000")}}, 1,
		"GET\n\n\nTue, 27 Mar 2007 19:44:46 +0000\n/awsexamplebucket1/?acl",
		"82ZHiFIjc+WbcwFKGUVEQspPn+0="},
	{"DELETE", "", "/awsexamplebucket1/photos/puppy.jpg", "",
		{{SLICE("Date"), SLICE("Tue, 27 Mar 2007 21:20:26 +0000")}}, 1,
		"DELETE\n\n\nTue, 27 Mar 2007 21:20:26 +0000\n/awsexamplebucket1/photos/puppy.jpg",
		"XbyTlbQdu9Xw5o8P4iMwPktxQd8="},
	{"PUT", "static.johnsmith.net", "/db-backup.dat.gz", "",
		{{SLICE("Date"), SLICE("Tue, 27 Mar 2007 21:06:08 +0000")},
			{SLICE("x-amz-acl"), SLICE("public-read")},
			{SLICE("content-type"), SLICE("application/x-download")},
			{SLICE("Content-MD5"), SLICE("4gJE4saaMU4BqNR0kLY+lw==")},
			{SLICE("X-Amz-Meta-ReviewedBy"), SLICE("joe@johnsmith.net")},
			{SLICE("X-Amz-Meta-ReviewedBy"), SLICE("jane@johnsmith.net")},
			{SLICE("X-Amz-Meta-FileChecksum"), SLICE("0x02661779")},
			{SLICE("X-Amz-Meta-ChecksumAlgorithm"), SLICE("crc32")},
			{SLICE("Content-Encoding"), SLICE("gzip")}},
		9,
		"PUT\n4gJE4saaMU4BqNR0kLY+lw==\napplication/x-download\n"
		"Tue, 27 Mar 2007 21:06:08 +0000\nx-amz-acl:public-read\n"
		"x-amz-meta-checksumalgorithm:crc32\nx-amz-meta-filechecksum:0x02661779\n"
		"x-amz-meta-reviewedby:joe@johnsmith.net,jane@johnsmith.net\n"
		"/static.johnsmith.net/db-backup.dat.gz",
		"ilyl83RwaSoYIEdixDQcA4OnAnc="},
	{"GET", "", "/", "", {{SLICE("Date"), SLICE("Wed, 28 Mar 2007 01:29:59 +0000")}}, 1,
		"GET\n\n\nWed, 28 Mar 2007 01:29:59 +0000\n/", "qGdzdERIC03wnaRNKh6OqZehG9s="},
	{"GET", "", "/dictionary/fran%C3%A7ais/pr%c3%a9f%c3%a8re", "",
		{{SLICE("Date"), SLICE("Wed, 28 Mar 2007 01:49:49 +0000")}}, 1,
		"GET\n\n\nWed, 28 Mar 2007 01:49:49 +0000\n"
		"/dictionary/fran%C3%A7ais/pr%c3%a9f%c3%a8re",
		"DNEZGsoieTZ92F3bUfSPQcbGmlM="},
	{"GET", "johnsmith", "/photos/puppy.jpg",
		"AWSAccessKeyId=" KEY_ID
		"&Signature=NpgCjnDzrM%2BWFzoENXmpNDUsSn8%3D&Expires=1175139620",
		{{SLICE("Host"), SLICE("johnsmith.s3.us-west-1.amazonaws.com")}}, 1,
		"GET\n\n\n1175139620\n/johnsmith/photos/puppy.jpg", "NpgCjnDzrM+WFzoENXmpNDUsSn8="},
	/* x-amz-date replaces Date; only parameters that change the operation are signed, in order
	 * and decoded. */
	{"GET", "", "/b/k", "versionId=a%2Fb&x=1&response-content-type=a%20b&uploads&partNumber=",
		{{SLICE("Date"), SLICE("Bad")},
			{SLICE("x-amz-date"), SLICE("Tue, 27 Mar 2007 21:20:26 GMT")}},
		2,
		"GET\n\n\n\nx-amz-date:Tue, 27 Mar 2007 21:20:26 GMT\n"
		"/b/k?partNumber=&response-content-type=a b&uploads&versionId=a/b",
		NULL},
	/* A value signed as a header may be a parameter of the URL. */
	{"PUT", "", "/b/k",
		"Expires=1175139620&Signature=YQ%3D%3D&AWSAccessKeyId=" KEY_ID
		"&x-amz-acl=private&content-type=a/b",
		{{SLICE("x-amz-meta-a"), SLICE(" 1 ")}}, 1,
		"PUT\n\na/b\n1175139620\nx-amz-acl:private\nx-amz-meta-a:1\n/b/k", NULL},
};

static void check_example(const struct example *example)
{
	const struct s3_request request = {.method_text = slice_str(example->method),
		.path = slice_str(example->path),
		.headers = example->headers,
		.header_count = example->header_count};
	struct sigv4_refusal refusal = {0};
	struct s3_param items[S3_PARAMS_MAX];
	struct sigv4_claim claim;
	struct s3_params params;
	struct buf string;
	char memory[256];

	assert_int_equal(s3_query_parse(slice_str(example->query), items, memory, &params), 0);
	if (sigv2_is_query(&params))
		assert_true(sigv2_parse_query(&params, &claim, &refusal));
	else
		assert_true(sigv2_parse_header(
			SLICE("AWS " KEY_ID ":c2ln"), &request, &claim, &refusal));
	assert_true(slice_eq(claim.access_key, SLICE(KEY_ID)));
	buf_init(&string, SIGV4_CANONICAL_BYTES_MAX);
	sigv2_string_to_sign(
		&request, &params, &claim, slice_str(example->bucket), SIGV2_AWS, &string);
	assert_false(string.failed);
	assert_int_equal(string.len, strlen(example->string));
	assert_memory_equal(string.data, example->string, string.len);
	if (example->signature) {
		assert_true(sigv2_verify(
			SLICE(SECRET), buf_slice(&string), slice_str(example->signature)));
		if (claim.presigned)
			assert_true(slice_eq(claim.signature, slice_str(example->signature)));
	}
	buf_free(&string);
}

static void test_published_examples(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(examples); i++)
		check_example(&examples[i]);
}

static void check_dialect(enum sigv2_dialect dialect, const char *resource)
{
	const struct s3_request request = {
		.method_text = SLICE("PUT"), .path = SLICE("/bucket/"), .method = S3_PUT};
	const struct sigv4_claim claim = {.timestamp = SLICE("now")};
	struct s3_param items[S3_PARAMS_MAX];
	struct s3_params params;
	struct buf string;
	char memory[256];

	assert_int_equal(
		s3_query_parse(SLICE("policy=&retention&encryption=&object-lock&x=1&uploadId=7"),
			items, memory, &params),
		0);
	buf_init(&string, SIGV4_CANONICAL_BYTES_MAX);
	sigv2_string_to_sign(&request, &params, &claim, SLICE_NONE, dialect, &string);
	assert_false(string.failed);
	assert_true(slice_eq(
		slice_from(buf_slice(&string), strlen("PUT\n\n\nnow\n")), slice_str(resource)));
	buf_free(&string);
}

static void test_dialects(void **state)
{
	(void)state;
	check_dialect(SIGV2_AWS, "/bucket/?object-lock&policy=&uploadId=7");
	check_dialect(SIGV2_MINIO, "/bucket/?encryption&policy&retention&uploadId=7");
}

static void test_signatures_that_are_none(void **state)
{
	static const char *const wrong[] = {"", "a", "qgk2+6Sv9/oM7G3qLEjTH1a1l1g",
		"qgk2+6Sv9/oM7G3qLEjTH1a1l1h=", "qgk2+6Sv9/oM7G3qLEjTH1a1l1g=="};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		assert_false(sigv2_verify(
			SLICE(SECRET), slice_str(examples[0].string), slice_str(wrong[i])));
}

static void check_header_refused(const char *value, const char *date, const char *code)
{
	const struct s3_header header = {SLICE("Date"), slice_str(date)};
	const struct s3_request request = {.headers = &header, .header_count = date ? 1 : 0};
	struct sigv4_refusal refusal = {0};
	struct sigv4_claim claim;

	assert_true(sigv2_is_header(slice_str(value)));
	assert_false(sigv2_parse_header(slice_str(value), &request, &claim, &refusal));
	assert_string_equal(refusal.code, code);
	assert_true(refusal.message[0]);
}

static void test_malformed_headers(void **state)
{
	static const char date[] = "Tue, 27 Mar 2007 19:36:42 GMT";

	(void)state;
	check_header_refused("AWS HAHAHA", date, "InvalidArgument");
	check_header_refused("AWS :c2ln", date, "InvalidArgument");
	check_header_refused("AWS a:", date, "InvalidArgument");
	check_header_refused("AWS a:c2ln", NULL, "AccessDenied");
	check_header_refused("AWS a:c2ln", "", "AccessDenied");
	check_header_refused("AWS a:c2ln", "Bad Date", "AccessDenied");
	check_header_refused("AWS a:c2ln", "Tue, 07 Jul 1950 21:53:04 GMT", "AccessDenied");
	assert_false(sigv2_is_header(SLICE("AWS4-HMAC-SHA256 Credential=a")));
	assert_false(sigv2_is_header(SLICE("")));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_published_examples),
		cmocka_unit_test(test_dialects),
		cmocka_unit_test(test_signatures_that_are_none),
		cmocka_unit_test(test_malformed_headers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
