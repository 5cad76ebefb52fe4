/* tests/unit/s3/test_sigv4.c: the examples that AWS publishes for S3 ("Signature Calculations for
 * the Authorization Header", "Authenticating Requests: Using Query Parameters", "Transferring
 * Payload in Multiple Chunks"), and requests that must be refused. */
#include "../unit.h"

#include "codec/codec.h"
#include "s3/auth/sigv4.h"
#include "s3/core/text.h"

#define KEY_ID "AKIAIOSFODNN7EXAMPLE"
#define SECRET "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
#define EMPTY  "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define HOST                                                           \
	{                                                              \
		SLICE("Host"), SLICE("examplebucket.s3.amazonaws.com") \
	}
#define DATE                                                   \
	{                                                      \
		SLICE("x-amz-date"), SLICE("20130524T000000Z") \
	}
#define SHA(s)                                          \
	{                                               \
		SLICE("x-amz-content-sha256"), SLICE(s) \
	}
#define AUTH(signed_headers, signature)                                     \
	"AWS4-HMAC-SHA256 Credential=" KEY_ID                               \
	"/20130524/us-east-1/s3/aws4_request,SignedHeaders=" signed_headers \
	",Signature=" signature

struct example {
	const char *method, *path, *query;
	const char *authorization; /* NULL: in the query */
	struct s3_header headers[10];
	uint32_t header_count;
	const char *signature;
};

static const struct example examples[] = {
	{"GET", "/test.txt", "",
		AUTH("host;range;x-amz-content-sha256;x-amz-date",
			"f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
		{HOST, {SLICE("Range"), SLICE("bytes=0-9")}, SHA(EMPTY), DATE}, 4,
		"f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
	{"PUT", "/test%24file.text", "",
		AUTH("date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
			"98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"),
		{HOST, {SLICE("Date"), SLICE("Fri, 24 May 2013 00:00:00 GMT")},
			SHA("44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"),
			DATE, {SLICE("x-amz-storage-class"), SLICE("REDUCED_REDUNDANCY")}},
		5, "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
	{"GET", "/", "lifecycle",
		AUTH("host;x-amz-content-sha256;x-amz-date",
			"fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
		{HOST, SHA(EMPTY), DATE}, 3,
		"fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
	{"GET", "/", "max-keys=2&prefix=J",
		AUTH("host;x-amz-content-sha256;x-amz-date",
			"34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
		{HOST, SHA(EMPTY), DATE}, 3,
		"34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
	/* The order of the query is not the order of the signature. */
	{"GET", "/", "prefix=J&max-keys=2",
		AUTH("host;x-amz-content-sha256;x-amz-date",
			"34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
		{HOST, SHA(EMPTY), DATE}, 3,
		"34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
	{"GET", "/test.txt",
		"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=" KEY_ID
		"%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&"
		"X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature="
		"aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404",
		NULL, {HOST}, 1,
		"aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"},
	{"PUT", "/examplebucket/chunkObject.txt", "",
		AUTH("content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;"
		     "x-amz-decoded-content-length;x-amz-storage-class",
			"4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"),
		{{SLICE("Host"), SLICE("s3.amazonaws.com")}, DATE,
			{SLICE("x-amz-storage-class"), SLICE("REDUCED_REDUNDANCY")},
			SHA("STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),
			{SLICE("Content-Encoding"), SLICE("aws-chunked")},
			{SLICE("x-amz-decoded-content-length"), SLICE("66560")},
			{SLICE("Content-Length"), SLICE("66824")}},
		7, "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"},
};

struct parsed {
	struct s3_request request;
	struct s3_param items[S3_PARAMS_MAX];
	char memory[1024];
	struct s3_params params;
	struct sigv4_claim claim;
	struct sigv4_refusal refusal;
};

static bool parse_example(const struct example *example, struct parsed *parsed)
{
	parsed->request = (struct s3_request){
		.method_text = slice_str(example->method),
		.path = slice_str(example->path),
		.query = slice_str(example->query),
		.headers = example->headers,
		.header_count = example->header_count,
	};
	assert_int_equal(s3_query_parse(parsed->request.query, parsed->items, parsed->memory,
				 &parsed->params),
		0);
	if (!example->authorization)
		return sigv4_parse_query(&parsed->params, &parsed->claim, &parsed->refusal);
	return sigv4_parse_header(
		       slice_str(example->authorization), &parsed->claim, &parsed->refusal) &&
	       sigv4_parse_times(&parsed->request, &parsed->claim, &parsed->refusal);
}

static void sign_example(const struct parsed *parsed, char ret_signature[65])
{
	struct buf canonical, string;
	struct hmac_key prepared;
	uint8_t key[32];

	buf_init(&canonical, SIGV4_CANONICAL_BYTES_MAX);
	buf_init(&string, SIGV4_CANONICAL_BYTES_MAX);
	sigv4_canonical(&parsed->request, &parsed->params, &parsed->claim, &canonical);
	signing_string(
		parsed->claim.timestamp, parsed->claim.scope_text, buf_slice(&canonical), &string);
	assert_false(canonical.failed || string.failed);
	signing_key(&parsed->claim.scope, SLICE(SECRET), key);
	hmac_key_init(&prepared, key, sizeof(key));
	signing_sign(&prepared, buf_slice(&string), ret_signature);
	ret_signature[64] = '\0';
	buf_free(&canonical);
	buf_free(&string);
}

static void test_published_examples(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
		struct parsed parsed;
		char signature[65];

		assert_true(parse_example(&examples[i], &parsed));
		assert_true(slice_eq(parsed.claim.access_key, SLICE(KEY_ID)));
		assert_true(slice_eq(
			parsed.claim.scope_text, SLICE("20130524/us-east-1/s3/aws4_request")));
		assert_int_equal(parsed.claim.time_ms, 1369353600000);
		sign_example(&parsed, signature);
		assert_string_equal(signature, examples[i].signature);
	}
}

static void test_payload_kinds(void **state)
{
	struct parsed parsed;

	(void)state;
	assert_true(parse_example(&examples[6], &parsed));
	assert_int_equal(parsed.claim.payload, S3_PAYLOAD_STREAMING_SIGNED);
	assert_true(parse_example(&examples[0], &parsed));
	assert_int_equal(parsed.claim.payload, S3_PAYLOAD_SHA256);
	assert_true(parse_example(&examples[5], &parsed));
	assert_int_equal(parsed.claim.payload, S3_PAYLOAD_UNSIGNED);
	assert_int_equal(parsed.claim.expires_s, 86400);
	assert_false(sigv4_parse_payload(SLICE("deadbeef"), &parsed.claim, &parsed.refusal));
	assert_string_equal(parsed.refusal.code, "InvalidArgument");
}

/* One changed byte anywhere changes the signature. */
static void test_every_part_counts(void **state)
{
	struct example changed = examples[0];
	struct parsed parsed;
	char signature[65];

	(void)state;
	changed.path = "/test.txu";
	assert_true(parse_example(&changed, &parsed));
	sign_example(&parsed, signature);
	assert_string_not_equal(signature, examples[0].signature);
	changed = examples[0];
	changed.method = "HEAD";
	assert_true(parse_example(&changed, &parsed));
	sign_example(&parsed, signature);
	assert_string_not_equal(signature, examples[0].signature);
	changed = examples[0];
	changed.headers[1].value = SLICE("bytes=0-8");
	assert_true(parse_example(&changed, &parsed));
	sign_example(&parsed, signature);
	assert_string_not_equal(signature, examples[0].signature);
	/* A header that is not signed does not change it. */
	changed = examples[0];
	changed.headers[changed.header_count++] =
		(struct s3_header){SLICE("Content-Type"), SLICE("text/plain")};
	assert_true(parse_example(&changed, &parsed));
	sign_example(&parsed, signature);
	assert_string_equal(signature, examples[0].signature);
}

static void check_canonical(const struct example *example, const char *wanted)
{
	struct parsed parsed;
	struct buf canonical;

	assert_true(parse_example(example, &parsed));
	buf_init(&canonical, SIGV4_CANONICAL_BYTES_MAX);
	sigv4_canonical(&parsed.request, &parsed.params, &parsed.claim, &canonical);
	assert_false(canonical.failed);
	assert_int_equal(canonical.len, strlen(wanted));
	assert_memory_equal(canonical.data, wanted, canonical.len);
	buf_free(&canonical);
}

/* S3's own rules: the path keeps its dots and slashes and is encoded once, whatever the client's
 * choice of escapes; parameters sort by name, then value, in their encoded form; values of one
 * header join, blanks inside fold. */
static void test_canonical_rules(void **state)
{
	const struct example example = {"GET", "/b/a//..%2f%7Ex%20y+z/%c3%a9",
		"b=2&a=%2B&a=&B&a=1+2&%61%2Da=~",
		AUTH("host;X-Two;x-amz-content-sha256;x-amz-date", EMPTY),
		{HOST, SHA("UNSIGNED-PAYLOAD"), DATE, {SLICE("x-two"), SLICE("  a   b ")},
			{SLICE("X-TWO"), SLICE("c")}},
		5, NULL};

	(void)state;
	check_canonical(&example,
		"GET\n/b/a//../~x%20y%2Bz/%C3%A9\nB=&a=&a=%2B&a=1%202&a-a=~&b=2\n"
		"host:examplebucket.s3.amazonaws.com\nx-two:a b,c\n"
		"x-amz-content-sha256:UNSIGNED-PAYLOAD\nx-amz-date:20130524T000000Z\n\n"
		"host;x-two;x-amz-content-sha256;x-amz-date\nUNSIGNED-PAYLOAD");
}

static void test_empty_parameters_sign_as_empty(void **state)
{
	const struct example example = {"GET", "/", "=&=", AUTH("host;x-amz-date", EMPTY),
		{HOST, SHA("UNSIGNED-PAYLOAD"), DATE}, 3, NULL};

	(void)state;
	check_canonical(&example,
		"GET\n/\n=&=\nhost:examplebucket.s3.amazonaws.com\n"
		"x-amz-date:20130524T000000Z\n\nhost;x-amz-date\nUNSIGNED-PAYLOAD");
}

static void test_missing_signed_header_signs_as_empty(void **state)
{
	const struct example example = {"GET", "/", "", AUTH("host;range;x-amz-date", EMPTY),
		{HOST, SHA("UNSIGNED-PAYLOAD"), DATE}, 3, NULL};

	(void)state;
	check_canonical(&example,
		"GET\n/\n\nhost:examplebucket.s3.amazonaws.com\nrange:\n"
		"x-amz-date:20130524T000000Z\n\nhost;range;x-amz-date\nUNSIGNED-PAYLOAD");
}

static void check_header_refused(const char *value, const char *code)
{
	struct sigv4_refusal refusal = {0};
	struct sigv4_claim claim;

	assert_false(sigv4_parse_header(slice_str(value), &claim, &refusal));
	assert_string_equal(refusal.code, code);
}

static void test_malformed_authorization(void **state)
{
	static const char *malformed = "AuthorizationHeaderMalformed";

	(void)state;
	check_header_refused("AWS4-ECDSA-P256-SHA256 Credential=a", "InvalidRequest");
	check_header_refused("Bearer x", "InvalidArgument");
	check_header_refused("AWS4-HMAC-SHA256", malformed);
	check_header_refused("AWS4-HMAC-SHA256 Credential=a", malformed);
	check_header_refused("AWS4-HMAC-SHA256 Credential=a/b/c/d", malformed);
	check_header_refused("AWS4-HMAC-SHA256 Credential=" KEY_ID
			     "/20130524/us-east-1/s3/aws4_request",
		malformed);
	check_header_refused(
		"AWS4-HMAC-SHA256 Credential=" KEY_ID
		"/20130524/us-east-1/ec2/aws4_request,SignedHeaders=host,Signature=" EMPTY,
		malformed);
	check_header_refused(
		"AWS4-HMAC-SHA256 Credential=" KEY_ID
		"/20130524/us-east-1/s3/aws3_request,SignedHeaders=host,Signature=" EMPTY,
		malformed);
	check_header_refused(
		"AWS4-HMAC-SHA256 Credential=" KEY_ID
		"/20131324/us-east-1/s3/aws4_request,SignedHeaders=host,Signature=" EMPTY,
		malformed);
	check_header_refused(AUTH("x-amz-date", EMPTY), malformed);
	check_header_refused(AUTH("host", "abcd"), "SignatureDoesNotMatch");
	check_header_refused(AUTH("host", EMPTY "00"), "SignatureDoesNotMatch");
}

static void check_times_refused(struct example example, const char *code)
{
	struct parsed parsed = {0};

	assert_false(parse_example(&example, &parsed));
	assert_string_equal(parsed.refusal.code, code);
	assert_true(!parsed.refusal.message || parsed.refusal.message[0]);
}

static void test_times(void **state)
{
	struct example example = examples[1];
	struct parsed parsed;

	(void)state;
	/* A Date header is accepted; it is converted to the format of the scope's time. */
	example.headers[3] = (struct s3_header){SLICE("x-other"), SLICE("1")};
	assert_true(parse_example(&example, &parsed));
	assert_true(slice_eq(parsed.claim.timestamp, SLICE("20130524T000000Z")));
	example.headers[1].value = SLICE("yesterday");
	check_times_refused(example, "AccessDenied");
	example.headers[1].value = SLICE("Sat, 25 May 2013 00:00:00 GMT");
	check_times_refused(example, "AuthorizationHeaderMalformed");
	example = examples[0];
	example.headers[2] = (struct s3_header){SLICE("x-other"), SLICE("1")};
	/* Without the header, the signature has the digest of an empty body (old curl). */
	assert_true(parse_example(&example, &parsed));
	assert_int_equal(parsed.claim.payload, S3_PAYLOAD_SHA256);
	assert_true(slice_eq(parsed.claim.payload_hash, SLICE(EMPTY)));
	example = examples[0];
	example.headers[0] = (struct s3_header){SLICE("x-other"), SLICE("1")};
	check_times_refused(example, "MissingSecurityHeader");
}

static void check_query_refused(const char *query, const char *code)
{
	const struct example example = {"GET", "/b/k", query, NULL, {HOST}, 1, NULL};
	struct parsed parsed = {0};

	assert_false(parse_example(&example, &parsed));
	assert_string_equal(parsed.refusal.code, code);
}

#define PRESIGNED(date, expires, signed_headers)                                                 \
	"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=" KEY_ID                              \
	"%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=" date "&X-Amz-Expires=" expires \
	"&X-Amz-SignedHeaders=" signed_headers "&X-Amz-Signature=" EMPTY

static void test_malformed_query(void **state)
{
	static const char *code = "AuthorizationQueryParametersError";

	(void)state;
	check_query_refused("X-Amz-Algorithm=AWS4-HMAC-SHA256", code);
	check_query_refused("X-Amz-Algorithm=AWS4&X-Amz-Signature=" EMPTY, code);
	check_query_refused(PRESIGNED("20130524T000000Z", "-1", "host"), "AccessDenied");
	check_query_refused(PRESIGNED("20130524T000000Z", "soon", "host"), code);
	check_query_refused(PRESIGNED("20130524T000000Z", "604801", "host"), "AccessDenied");
	check_query_refused(
		PRESIGNED("20130524T000000Z", "99999999999999999999999", "host"), "AccessDenied");
	check_query_refused(PRESIGNED("20130524", "60", "host"), code);
	check_query_refused(PRESIGNED("20130525T000000Z", "60", "host"), code);
	check_query_refused(PRESIGNED("20130524T000000Z", "60", "range"), code);
}

static void test_keys_are_cached_by_all_that_makes_them(void **state)
{
	struct sigv4_claim claim = {.access_key = SLICE("a/b"),
		.scope = {.date = SLICE("20130524"),
			.region = SLICE("us-east-1"),
			.service = SLICE("s3")}};
	struct sigv4_keys *keys;
	struct sigv4_key got;
	uint8_t wanted[32];

	(void)state;
	assert_int_equal(sigv4_keys_open(&keys), 0);
	for (int i = 0; i < 3; i++) {
		signing_key(&claim.scope, SLICE(SECRET), wanted);
		sigv4_keys_get(keys, &claim, SLICE(SECRET), &got);
		assert_memory_equal(got.bytes, wanted, 32);
	}
	/* The cache is not used for another secret of the same key id. */
	signing_key(&claim.scope, SLICE("other"), wanted);
	sigv4_keys_get(keys, &claim, SLICE("other"), &got);
	assert_memory_equal(got.bytes, wanted, 32);
	/* Nor for another service. */
	claim.scope.service = SLICE("iam");
	signing_key(&claim.scope, SLICE("other"), wanted);
	sigv4_keys_get(keys, &claim, SLICE("other"), &got);
	assert_memory_equal(got.bytes, wanted, 32);
	/* A client may sign with the region "". */
	claim.scope.region = SLICE_NONE;
	signing_key(&claim.scope, SLICE("other"), wanted);
	sigv4_keys_get(keys, &claim, SLICE("other"), &got);
	assert_memory_equal(got.bytes, wanted, 32);
	claim.scope.region = SLICE("a-region-of-more-than-thirty-two-characters");
	signing_key(&claim.scope, SLICE("other"), wanted);
	sigv4_keys_get(keys, &claim, SLICE("other"), &got);
	assert_memory_equal(got.bytes, wanted, 32);
	sigv4_keys_close(keys);
	sigv4_keys_close(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_published_examples),
		cmocka_unit_test(test_payload_kinds),
		cmocka_unit_test(test_every_part_counts),
		cmocka_unit_test(test_canonical_rules),
		cmocka_unit_test(test_empty_parameters_sign_as_empty),
		cmocka_unit_test(test_missing_signed_header_signs_as_empty),
		cmocka_unit_test(test_malformed_authorization),
		cmocka_unit_test(test_times),
		cmocka_unit_test(test_malformed_query),
		cmocka_unit_test(test_keys_are_cached_by_all_that_makes_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
