/* Covers s3/auth/auth.c: whole requests with signatures in headers and in the query, and their
 * refusals.
 */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>

#include "fake.h"
#include "iam/iam.h"
#include "s3/auth/sigv2.h"
#include "s3/auth/sigv4.h"
#include "s3/core/call.h"
#include "s3/core/text.h"

#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static int open_all(void **state)
{
	const struct s3_opts opts = {.signature_v2 = true};
	struct fake_call call;

	(void)state;
	if (fake_open_with(&opts))
		return -1;
	fake_call_init(&call, "PUT", "/bkt", "");
	fake_call_run(fake_s3, &call);
	fake_call_free(&call);
	return 0;
}

struct signed_call {
	struct fake_call call;
	char timestamp[17], authorization[512], query[1024];
};

/* Fills in the claim of a request, which its signature covers. */
static void sign(struct signed_call *signed_call, const char *secret, struct sigv4_claim *claim,
	char signature[65])
{
	struct fake_call *call = &signed_call->call;
	struct s3_param items[S3_PARAMS_MAX];
	struct s3_params params;
	struct buf canonical, string;
	struct hmac_key prepared;
	char memory[1024];
	uint8_t key[32];

	call->request.headers = call->headers;
	assert_int_equal(s3_query_parse(call->request.query, items, memory, &params), 0);
	buf_init(&canonical, SIGV4_CANONICAL_BYTES_MAX);
	buf_init(&string, SIGV4_CANONICAL_BYTES_MAX);
	sigv4_canonical(&call->request, &params, claim, &canonical);
	signing_string(claim->timestamp, claim->scope_text, buf_slice(&canonical), &string);
	signing_key(&claim->scope, slice_str(secret), key);
	hmac_key_init(&prepared, key, sizeof(key));
	signing_sign(&prepared, buf_slice(&string), signature);
	signature[64] = '\0';
	buf_free(&canonical);
	buf_free(&string);
}

struct signing {
	const char *access_key, *secret, *payload, *signed_headers;
	int64_t skew_ms;
};
static const struct signing good = {
	"test", "secret", EMPTY, "host;x-amz-content-sha256;x-amz-date", 0};

static void start(struct signed_call *signed_call, const char *method, const char *path,
	const struct signing *signing)
{
	struct fake_call *call = &signed_call->call;
	int64_t now_ms = (int64_t)(clock_real_ns() / NS_PER_MS);

	fake_call_init(call, method, path, "");
	call->request.session = NULL;
	date_basic_format(now_ms + signing->skew_ms, signed_call->timestamp);
	signed_call->timestamp[16] = '\0';
	fake_call_header(call, "Host", "localhost:9000");
	fake_call_header(call, "X-Amz-Date", signed_call->timestamp);
	fake_call_header(call, "x-amz-content-sha256", signing->payload);
}

/* Signs the request as it is now, and runs it. */
static void finish(struct signed_call *signed_call, const struct signing *signing)
{
	struct sigv4_claim claim = {.scope.date = slice_of(signed_call->timestamp, 8),
		.scope.region = SLICE("mars-1"),
		.scope.service = SLICE("s3"),
		.signed_headers = slice_str(signing->signed_headers),
		.timestamp = slice_of(signed_call->timestamp, 16),
		.payload_hash = slice_str(signing->payload)};
	char scope[64], signature[65];

	snprintf(scope, sizeof(scope), "%.8s/mars-1/s3/aws4_request", signed_call->timestamp);
	claim.scope_text = slice_str(scope);
	sign(signed_call, signing->secret, &claim, signature);
	snprintf(signed_call->authorization, sizeof(signed_call->authorization),
		"AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s",
		signing->access_key, scope, signing->signed_headers, signature);
	fake_call_header(&signed_call->call, "Authorization", signed_call->authorization);
	fake_call_run(fake_s3, &signed_call->call);
}

static void check_refused(const struct fake_call *call, uint32_t status, const char *code)
{
	char element[128];

	snprintf(element, sizeof(element), "<Code>%s</Code>", code);
	if (call->reply.status != status || !fake_reply_has(call, element))
		fail_msg("not %s but %u %.*s", code, call->reply.status, (int)call->reply_body.len,
			call->reply_body.data);
	assert_true(fake_reply_has(call, "<RequestId>0123456789ABCDEF</RequestId><HostId>"));
}

static void test_header_signature(void **state)
{
	struct signed_call call;

	(void)state;
	/* Twice: the second time the key comes from the cache. Any region is accepted. */
	for (int i = 0; i < 2; i++) {
		start(&call, "GET", "/bkt", &good);
		fake_call_header(&call.call, "Content-Type", "not/signed");
		finish(&call, &good);
		assert_int_equal(call.call.reply.status, 200);
		fake_call_free(&call.call);
	}
}

/* An authenticated caller uses its own share of the processor; any other caller uses its address's
 * share. */
static void test_joins_when_it_is_known_who_asks(void **state)
{
	struct signing signing = good;
	struct signed_call call;

	(void)state;
	fake_joins = 0;
	start(&call, "GET", "/bkt", &good);
	finish(&call, &good);
	assert_int_equal(call.call.reply.status, 200);
	assert_true(fake_joins > 0);
	fake_call_free(&call.call);
	fake_joins = 0;
	signing.secret = "Secret";
	start(&call, "GET", "/bkt", &signing);
	finish(&call, &signing);
	assert_int_equal(call.call.reply.status, 403);
	assert_int_equal(fake_joins, 0);
	fake_call_free(&call.call);
}

static void check_signing(const struct signing *signing, uint32_t status, const char *code)
{
	struct signed_call call;

	start(&call, "GET", "/bkt", signing);
	finish(&call, signing);
	check_refused(&call.call, status, code);
	fake_call_free(&call.call);
}

static void test_refused_signatures(void **state)
{
	struct signing signing = good;
	struct signed_call call;

	(void)state;
	signing.secret = "Secret";
	check_signing(&signing, 403, "SignatureDoesNotMatch");
	signing = good;
	signing.access_key = "nobody";
	check_signing(&signing, 403, "InvalidAccessKeyId");
	signing = good;
	signing.skew_ms = -16 * 60 * 1000;
	check_signing(&signing, 403, "RequestTimeTooSkewed");
	signing.skew_ms = 16 * 60 * 1000;
	check_signing(&signing, 403, "RequestTimeTooSkewed");
	signing = good;
	signing.payload = "nonsense";
	check_signing(&signing, 400, "InvalidArgument");
	signing = good;
	signing.signed_headers = "x-amz-content-sha256;x-amz-date";
	check_signing(&signing, 400, "AuthorizationHeaderMalformed");
	signing = good;
	signing.signed_headers = "host;x-amz-content-sha256";
	check_signing(&signing, 403, "AccessDenied");
	start(&call, "GET", "/bkt", &good);
	fake_call_header(&call.call, "x-amz-security-token", "abc");
	finish(&call, &good);
	check_refused(&call.call, 400, "InvalidToken");
	fake_call_free(&call.call);
}

/* The error has the string that should have been signed. */
static void test_mismatch_tells_the_canonical_request(void **state)
{
	struct signing signing = good;
	struct signed_call call;

	(void)state;
	signing.secret = "other";
	start(&call, "GET", "/bkt", &signing);
	finish(&call, &signing);
	assert_true(fake_reply_has(&call.call, "<CanonicalRequest>GET"));
	assert_true(fake_reply_has(&call.call, "<StringToSign>AWS4-HMAC-SHA256"));
	assert_true(fake_reply_has(&call.call, "<StringToSignBytes>41 57 53 34 2d"));
	assert_true(fake_reply_has(&call.call, "<CanonicalRequestBytes>47 45 54 "));
	fake_call_free(&call.call);
}

static void test_tampering(void **state)
{
	struct signed_call call;

	(void)state;
	start(&call, "GET", "/bkt", &good);
	finish(&call, &good);
	fake_call_free(&call.call);
	/* The same signature on another path. */
	call.call.request.path = SLICE("/bkt2");
	buf_init(&call.call.reply_head, SIZE_MAX);
	buf_init(&call.call.reply_body, SIZE_MAX);
	call.call.heads = 0;
	call.call.reply.status = 0;
	fake_call_run(fake_s3, &call.call);
	check_refused(&call.call, 403, "SignatureDoesNotMatch");
	fake_call_free(&call.call);
}

static void test_payload_hash(void **state)
{
	struct signing signing = good;
	struct signed_call call;
	char hex[65] = "";
	uint8_t digest[32];

	(void)state;
	sha256_of("body", 4, digest);
	hex_encode(digest, 32, hex);
	signing.payload = hex;
	start(&call, "PUT", "/bkt/key", &signing);
	fake_call_body(&call.call, SLICE("body"));
	finish(&call, &signing);
	assert_int_equal(call.call.reply.status, 200);
	fake_call_free(&call.call);
	start(&call, "PUT", "/bkt/key", &signing);
	fake_call_body(&call.call, SLICE("bodY"));
	finish(&call, &signing);
	check_refused(&call.call, 400, "XAmzContentSHA256Mismatch");
	fake_call_free(&call.call);
	start(&call, "PUT", "/bkt2", &signing);
	fake_call_body(&call.call, SLICE("bodY"));
	finish(&call, &signing);
	check_refused(&call.call, 400, "XAmzContentSHA256Mismatch");
	fake_call_free(&call.call);
	assert_int_equal(fake_open_puts, 0);
}

/* Signs like old curl: over the digest of an empty body, without the header for it. */
static void ask_without_digest(struct signed_call *call, const char *method, const char *path)
{
	struct signing signing = good;

	start(call, method, path, &signing);
	call->call.request.header_count--;
	signing.signed_headers = "host;x-amz-date";
	finish(call, &signing);
}

static void test_without_a_digest_there_is_no_body(void **state)
{
	static const uint64_t announced[] = {4, UINT64_MAX};
	struct signed_call call;

	(void)state;
	ask_without_digest(&call, "GET", "/bkt");
	assert_int_equal(call.call.reply.status, 200);
	fake_call_free(&call.call);
	for (size_t i = 0; i < ARRAY_LEN(announced); i++) {
		struct signing signing = good;

		start(&call, "PUT", "/bkt/key", &signing);
		call.call.request.header_count--;
		fake_call_body(&call.call, SLICE("body"));
		call.call.body.bytes = announced[i];
		signing.signed_headers = "host;x-amz-date";
		finish(&call, &signing);
		check_refused(&call.call, 400, "InvalidRequest");
		assert_true(fake_reply_has(&call.call, "x-amz-content-sha256"));
		fake_call_free(&call.call);
	}
	ask_without_digest(&call, "PUT", "/bkt/key");
	assert_int_equal(call.call.reply.status, 200);
	fake_call_free(&call.call);
	assert_int_equal(fake_open_puts, 0);
}

/* The body gets the data to verify its chunks. */
static void test_chunk_signing(void **state)
{
	struct signing signing = good;
	struct signed_call call;
	uint8_t key[32];

	(void)state;
	signing.payload = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
	start(&call, "PUT", "/bkt/key", &signing);
	fake_call_body(&call.call, SLICE("body"));
	finish(&call, &signing);
	assert_int_equal(call.call.reply.status, 200);
	assert_int_equal(call.call.signing.payload, S3_PAYLOAD_STREAMING_SIGNED);
	assert_string_equal(call.call.signing.timestamp, call.timestamp);
	assert_int_equal(strlen(call.call.signing.seed_signature), 64);
	assert_non_null(strstr(call.authorization, call.call.signing.seed_signature));
	assert_non_null(strstr(call.authorization, call.call.signing.scope));
	signing_key(&(struct signing_scope){.date = slice_of(call.timestamp, 8),
			    .region = SLICE("mars-1"),
			    .service = SLICE("s3")},
		SLICE("secret"), key);
	assert_memory_equal(call.call.signing.signing_key, key, 32);
	fake_call_free(&call.call);
}

static void presign(struct signed_call *call, const char *method, int64_t skew_ms,
	const char *expires, const char *more)
{
	struct signing signing = {.payload = "UNSIGNED-PAYLOAD", .skew_ms = skew_ms};
	struct sigv4_claim claim = {.presigned = true,
		.scope.region = SLICE("mars-1"),
		.scope.service = SLICE("s3"),
		.signed_headers = SLICE("host"),
		.payload_hash = SLICE("UNSIGNED-PAYLOAD")};
	char scope[64], signature[65];

	start(call, method, "/bkt/key", &signing);
	call->call.request.header_count = 1;
	claim.scope.date = slice_of(call->timestamp, 8);
	claim.timestamp = slice_of(call->timestamp, 16);
	snprintf(scope, sizeof(scope), "%.8s/mars-1/s3/aws4_request", call->timestamp);
	claim.scope_text = slice_str(scope);
	snprintf(call->query, sizeof(call->query),
		"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=test%%2F%.8s%%2Fmars-1%%2Fs3"
		"%%2Faws4_request&X-Amz-Date=%s&X-Amz-Expires=%s&X-Amz-SignedHeaders=host%s",
		call->timestamp, call->timestamp, expires, more);
	call->call.request.query = slice_str(call->query);
	sign(call, "secret", &claim, signature);
	snprintf(call->query + strlen(call->query), 96, "&X-Amz-Signature=%s", signature);
	call->call.request.query = slice_str(call->query);
}

static void test_presigned(void **state)
{
	static const char *const added[] = {"x-amz-meta-added", "X-NebulaIO-Replica"};
	struct signed_call call;

	(void)state;
	presign(&call, "PUT", 0, "60", "&x-id=PutObject&x-amz-checksum-crc32=AAAAAA%3D%3D");
	fake_call_body(&call.call, SLICE("body"));
	fake_call_run(fake_s3, &call.call);
	/* A checksum in the query is not compared with the body. */
	assert_int_equal(call.call.reply.status, 200);
	fake_call_free(&call.call);
	presign(&call, "GET", -50000, "60", "&response-content-type=text%2Fx");
	fake_call_run(fake_s3, &call.call);
	assert_int_equal(call.call.reply.status, 200);
	assert_true(slice_eq(fake_reply_header(&call.call, "content-type"), SLICE("text/x")));
	fake_call_free(&call.call);
	presign(&call, "GET", -70000, "60", "");
	fake_call_run(fake_s3, &call.call);
	check_refused(&call.call, 403, "AccessDenied");
	assert_true(fake_reply_has(&call.call, "<Message>Request has expired</Message>"));
	fake_call_free(&call.call);
	presign(&call, "GET", 20 * 60 * 1000, "60", "");
	fake_call_run(fake_s3, &call.call);
	check_refused(&call.call, 403, "AccessDenied");
	fake_call_free(&call.call);
	presign(&call, "GET", 0, "604801", "");
	fake_call_run(fake_s3, &call.call);
	check_refused(&call.call, 403, "AccessDenied");
	fake_call_free(&call.call);
	for (size_t i = 0; i < ARRAY_LEN(added); i++) {
		presign(&call, "PUT", 0, "60", "");
		fake_call_header(&call.call, added[i], "1");
		fake_call_run(fake_s3, &call.call);
		check_refused(&call.call, 403, "AccessDenied");
		assert_true(fake_reply_has(&call.call, "<HeadersNotSigned>"));
		fake_call_free(&call.call);
	}
	presign(&call, "GET", 0, "60", "");
	fake_call_header(&call.call, "Authorization", "AWS4-HMAC-SHA256 x");
	fake_call_run(fake_s3, &call.call);
	check_refused(&call.call, 400, "InvalidArgument");
	fake_call_free(&call.call);
}

/* Its fields would name a second caller. */
static void test_a_form_is_signed_in_one_place(void **state)
{
	static const char field[] =
		"--B\r\nContent-Disposition: form-data; name=\"%s\"\r\n\r\n%s\r\n";
	static const char *const fields[][2] = {
		{"key", "k"},
		{"policy", "e30="},
		{"AWSAccessKeyId", "test"},
		{"signature", "AAAA"},
	};
	struct signing signing = good;
	struct signed_call call;
	struct buf form;

	(void)state;
	signing.payload = "UNSIGNED-PAYLOAD";
	for (size_t count = 1; count <= ARRAY_LEN(fields); count++) {
		buf_init(&form, 4096);
		for (size_t i = 0; i < count; i++)
			buf_printf(&form, field, fields[i][0], fields[i][1]);
		buf_put_str(&form,
			"--B\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nbody"
			"\r\n--B--\r\n");
		start(&call, "POST", "/bkt", &signing);
		fake_call_header(&call.call, "Content-Type", "multipart/form-data; boundary=B");
		fake_call_body(&call.call, buf_slice(&form));
		finish(&call, &signing);
		if (count == 1)
			assert_int_equal(call.call.reply.status, 204);
		else
			check_refused(&call.call, 400, "InvalidArgument");
		assert_int_equal(fake_reply_has(&call.call, "Only one auth mechanism"), count > 1);
		fake_call_free(&call.call);
		buf_free(&form);
	}
}

static void test_anonymous(void **state)
{
	struct fake_call call;

	(void)state;
	fake_call_init(&call, "GET", "/bkt/key", "");
	call.request.session = NULL;
	fake_call_run(fake_s3, &call);
	check_refused(&call, 403, "AccessDenied");
	fake_call_free(&call);
	/* The existence of a name is no secret: an attempt to create it would reveal it. */
	fake_call_init(&call, "HEAD", "/unknown", "");
	call.request.session = NULL;
	fake_call_run(fake_s3, &call);
	assert_int_equal(call.reply.status, 404);
	fake_call_free(&call);
}

struct old_signing {
	const char *secret, *date; /* NULL: now */
	int64_t skew_ms;
	bool x_amz_date;
	const char *added; /* a header */
};

/* A GET of the bucket's list, signed by Version 2. */
static void old_call(struct s3 *of, const struct old_signing *signing, struct fake_call *call)
{
	char date[64] = "", authorization[128], signature[SIGV2_SIGNATURE_LEN];
	struct sigv4_claim claim = {.version2 = true};
	uint8_t mac[SHA1_BYTES];
	struct buf string;

	fake_call_init(call, "GET", "/bkt", "acl");
	call->request.session = NULL;
	fake_call_header(call, "Host", "localhost:9000");
	fake_call_header(call, "x-amz-meta-a", "b");
	if (signing->added)
		fake_call_header(call, signing->added, "1");
	date_http_format((int64_t)(clock_real_ns() / NS_PER_MS) + signing->skew_ms, date);
	if (signing->date)
		snprintf(date, sizeof(date), "%s", signing->date);
	fake_call_header(call, signing->x_amz_date ? "x-amz-date" : "Date", date);
	claim.timestamp = signing->x_amz_date ? SLICE("") : slice_str(date);
	buf_init(&string, SIGV4_CANONICAL_BYTES_MAX);
	call->request.headers = call->headers;
	sigv2_string_to_sign(&call->request,
		&(struct s3_params){.items = &(struct s3_param){.name = SLICE("acl")}, .count = 1},
		&claim, SLICE_NONE, SIGV2_AWS, &string);
	hmac_sha1(slice_str(signing->secret), buf_slice(&string), mac);
	buf_free(&string);
	base64_encode(mac, sizeof(mac), signature);
	snprintf(authorization, sizeof(authorization), "AWS test:%.*s", (int)sizeof(signature),
		signature);
	fake_call_header(call, "Authorization", authorization);
	fake_call_run(of, call);
}

static void check_old(const struct old_signing *signing, uint32_t status, const char *code)
{
	struct fake_call call;

	old_call(fake_s3, signing, &call);
	if (code)
		check_refused(&call, status, code);
	else
		assert_int_equal(call.reply.status, status);
	fake_call_free(&call);
}

static void test_version_2(void **state)
{
	const struct s3_opts opts = {.root_access_key = "test", .root_secret_key = "secret"};
	const struct old_signing right = {.secret = "secret"};
	struct fake_call call;
	struct s3 *other;

	(void)state;
	check_old(&right, 200, NULL);
	check_old(&(struct old_signing){.secret = "secret", .x_amz_date = true}, 200, NULL);
	check_old(&(struct old_signing){.secret = "wrong"}, 403, "SignatureDoesNotMatch");
	check_old(&(struct old_signing){.secret = "secret", .added = "x-nebulaio-replica"}, 403,
		"AccessDenied");
	check_old(&(struct old_signing){.secret = "secret", .date = ""}, 403, "AccessDenied");
	check_old(&(struct old_signing){.secret = "secret", .date = "Bad"}, 403, "AccessDenied");
	check_old(&(struct old_signing){.secret = "secret",
			  .date = "Tue, 07 Jul 1950 21:53:04 GMT",
			  .x_amz_date = true},
		403, "AccessDenied");
	check_old(&(struct old_signing){.secret = "secret",
			  .date = "Tue, 07 Jul 9999 21:53:04 GMT",
			  .x_amz_date = true},
		403, "RequestTimeTooSkewed");
	check_old(&(struct old_signing){.secret = "secret", .skew_ms = 16 * 60 * 1000}, 403,
		"RequestTimeTooSkewed");
	check_old(&(struct old_signing){.secret = "secret", .skew_ms = -16 * 60 * 1000}, 403,
		"RequestTimeTooSkewed");
	assert_int_equal(s3_open(&opts, fake_store, &other), 0);
	old_call(other, &right, &call);
	check_refused(&call, 400, "InvalidRequest");
	fake_call_free(&call);
	s3_close(other);
}

/* A URL that Version 2 signs for one request, and a suffix that makes it another request. */
struct old_url {
	const char *method, *path, *query, *extra;
	uint32_t status;
	const char *code;
};

static void old_url(const struct old_url *url, enum sigv2_dialect dialect, struct fake_call *call)
{
	struct sigv4_claim claim = {
		.version2 = true, .presigned = true, .timestamp = SLICE("9999999999")};
	char signature[SIGV2_SIGNATURE_LEN], memory[256];
	static char whole[512];
	struct s3_param items[S3_PARAMS_MAX];
	struct s3_params params = {0};
	struct buf string, encoded;
	uint8_t mac[SHA1_BYTES];

	assert_int_equal(s3_query_parse(slice_str(url->query), items, memory, &params), 0);
	fake_call_init(call, url->method, url->path, url->query);
	call->request.session = NULL;
	fake_call_header(call, "Host", "localhost:9000");
	call->request.headers = call->headers;
	buf_init(&string, SIGV4_CANONICAL_BYTES_MAX);
	buf_init(&encoded, 256);
	sigv2_string_to_sign(&call->request, &params, &claim, SLICE_NONE, dialect, &string);
	hmac_sha1(SLICE("secret"), buf_slice(&string), mac);
	base64_encode(mac, sizeof(mac), signature);
	uri_encode(slice_of(signature, sizeof(signature)), 0, &encoded);
	snprintf(whole, sizeof(whole),
		"%s%sAWSAccessKeyId=test&Expires=9999999999&Signature=%.*s%s", url->query,
		url->query[0] ? "&" : "", SLICE_FMT(buf_slice(&encoded)), url->extra);
	call->request.query = slice_str(whole);
	buf_free(&string);
	buf_free(&encoded);
	fake_call_run(fake_s3, call);
}

static void test_version_2_signs_what_it_does(void **state)
{
	/* MinIO's libraries sign the parameter of the last four, so their signature differs. */
	static const struct old_url urls[] = {
		{"GET", "/bkt", "acl", "", 200, NULL},
		{"GET", "/bkt", "", "&prefix=a&max-keys=1&list-type=2", 200, NULL},
		{"GET", "/bkt", "", "&x-amz-acl=private", 403, "SignatureDoesNotMatch"},
		{"GET", "/bkt", "", "&acl", 403, "SignatureDoesNotMatch"},
		{"GET", "/bkt", "", "&session", 400, "InvalidRequest"},
		{"GET", "/bkt", "", "&attributes", 400, "InvalidRequest"},
		{"GET", "/", "", "&x-id=ListDirectoryBuckets", 400, "InvalidRequest"},
		{"PUT", "/bkt/key", "", "&renameObject", 400, "InvalidRequest"},
		{"PUT", "/bkt", "", "&publicAccessBlock", 400, "InvalidRequest"},
		{"PUT", "/bkt", "", "&ownershipControls", 400, "InvalidRequest"},
		{"DELETE", "/bkt", "", "&tomorrow", 400, "InvalidRequest"},
		{"PUT", "/bkt/key", "x-amz-meta-a=1%0Ax-amz-acl%3Aprivate", "", 400,
			"InvalidRequest"},
		{"GET", "/bkt", "encryption=", "", 403, "SignatureDoesNotMatch"},
		{"PUT", "/bkt/key", "", "&legal-hold", 403, "SignatureDoesNotMatch"},
		{"PUT", "/bkt/key", "", "&retention", 403, "SignatureDoesNotMatch"},
		{"DELETE", "/bkt", "", "&encryption", 403, "SignatureDoesNotMatch"},
	};
	const struct old_url of_minio = {"GET", "/bkt", "encryption=", "", 404, NULL};
	struct fake_call call;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(urls); i++) {
		old_url(&urls[i], SIGV2_AWS, &call);
		if (urls[i].code)
			check_refused(&call, urls[i].status, urls[i].code);
		else
			assert_int_equal(call.reply.status, urls[i].status);
		fake_call_free(&call);
	}
	old_url(&of_minio, SIGV2_MINIO, &call);
	assert_int_equal(call.reply.status, of_minio.status);
	fake_call_free(&call);
}

static void check_old_query(const char *query, uint32_t status, const char *code)
{
	struct fake_call call;

	fake_call_init(&call, "GET", "/bkt", query);
	call.request.session = NULL;
	fake_call_header(&call, "Host", "localhost:9000");
	fake_call_run(fake_s3, &call);
	check_refused(&call, status, code);
	fake_call_free(&call);
}

static void test_version_2_in_the_query(void **state)
{
	(void)state;
	check_old_query("AWSAccessKeyId=test&Signature=a", 403, "AccessDenied");
	check_old_query("AWSAccessKeyId=test&Signature=a&Expires=soon", 403, "AccessDenied");
	check_old_query(
		"AWSAccessKeyId=test&Signature=a&Expires=99999999999999", 403, "AccessDenied");
	check_old_query("AWSAccessKeyId=test&Signature=a&Expires=1000000000", 403, "AccessDenied");
	check_old_query(
		"AWSAccessKeyId=test&Signature=a&Expires=9999999999", 403, "SignatureDoesNotMatch");
	check_old_query(
		"AWSAccessKeyId=nobody&Signature=a&Expires=9999999999", 403, "InvalidAccessKeyId");
}

static void test_anonymous_read(void **state)
{
	const struct s3_opts opts = {
		.root_access_key = "test", .root_secret_key = "secret", .anonymous_read = true};
	struct fake_call call;
	struct s3 *open;

	(void)state;
	assert_int_equal(s3_open(&opts, fake_store, &open), 0);
	fake_call_init(&call, "GET", "/bkt/nokey", "");
	call.request.session = NULL;
	fake_call_run(open, &call);
	check_refused(&call, 404, "NoSuchKey");
	fake_call_free(&call);
	fake_call_init(&call, "PUT", "/bkt/nokey", "");
	call.request.session = NULL;
	fake_call_run(open, &call);
	check_refused(&call, 403, "AccessDenied");
	fake_call_free(&call);
	s3_close(open);
}

static void test_session_key(void **state)
{
	struct s3_identity identity;
	uint8_t key[32], wanted[32];

	(void)state;
	assert_int_equal(
		s3_session_key(fake_s3, SLICE("test"), SLICE("context"), key, &identity), 0);
	hmac_sha256(SLICE("NEBULA1secret"), SLICE("context"), wanted);
	assert_memory_equal(key, wanted, 32);
	assert_string_equal(identity.access_key, "test");
	assert_true(identity.root);
	assert_int_equal(
		s3_session_key(fake_s3, SLICE("tes"), SLICE("context"), key, &identity), -ENOENT);
}

static void put_account(const char *number, const char *access_key, const char *secret)
{
	json_t *account = json_pack("{s:s, s:s, s:s}", "account_id", number, "access_key",
		access_key, "secret_key", secret);
	struct buf why;

	buf_init(&why, KIB);
	assert_int_equal(iam_put(fake_s3->iam, &fake_core, account, &why), 0);
	buf_free(&why);
	json_decref(account);
}

static void session_asks(const struct s3_identity *identity, uint32_t status, const char *code)
{
	struct fake_call call;

	fake_call_init(&call, "GET", "/", "");
	call.request.session = identity;
	fake_call_run(fake_s3, &call);
	if (status == 200)
		assert_int_equal(call.reply.status, 200);
	else
		check_refused(&call, status, code);
	fake_call_free(&call);
}

/* A session has the rights of the secret that it has proven, not of the key's name. */
static void test_session_ends_with_its_secret(void **state)
{
	struct s3_identity first, second;
	uint8_t key[32];
	char arn[64];

	(void)state;
	put_account("777", "SESSIONKEY", "the-first-secret");
	assert_int_equal(
		s3_session_key(fake_s3, SLICE("SESSIONKEY"), SLICE("context"), key, &first), 0);
	session_asks(&first, 200, NULL);
	/* A change that leaves the secret. */
	put_account("777", "SESSIONKEY", "the-first-secret");
	session_asks(&first, 200, NULL);
	put_account("777", "SESSIONKEY", "the-second-secret");
	session_asks(&first, 403, "InvalidAccessKeyId");
	assert_int_equal(
		s3_session_key(fake_s3, SLICE("SESSIONKEY"), SLICE("context"), key, &second), 0);
	session_asks(&second, 200, NULL);
	s3_identity_arn(fake_s3, &second, arn, sizeof(arn));
	assert_string_equal(arn, "arn:aws:iam::777:root");
	s3_identity_arn(fake_s3, &first, arn, sizeof(arn));
	assert_string_equal(arn, "");
	/* The name of the key is another account's now. */
	assert_int_equal(iam_delete(fake_s3->iam, &(struct iam_edit){.account = SLICE("777")}), 0);
	session_asks(&second, 403, "InvalidAccessKeyId");
	put_account("778", "SESSIONKEY", "the-third-secret");
	session_asks(&second, 403, "InvalidAccessKeyId");
	assert_int_equal(iam_delete(fake_s3->iam, &(struct iam_edit){.account = SLICE("778")}), 0);
}

static void test_open_refuses(void **state)
{
	struct s3_opts opts = {.root_access_key = "", .root_secret_key = "secret"};
	char long_key[LIMIT_SECRET_KEY_LEN_MAX + 2];
	struct s3 *none;

	(void)state;
	assert_int_equal(s3_open(&opts, fake_store, &none), -EINVAL);
	memset(long_key, 'k', sizeof(long_key) - 1);
	long_key[sizeof(long_key) - 1] = '\0';
	opts.root_access_key = "a";
	opts.root_secret_key = long_key;
	assert_int_equal(s3_open(&opts, fake_store, &none), -ENAMETOOLONG);
	s3_close(NULL);
}

static int tests_run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_header_signature),
		cmocka_unit_test(test_joins_when_it_is_known_who_asks),
		cmocka_unit_test(test_refused_signatures),
		cmocka_unit_test(test_mismatch_tells_the_canonical_request),
		cmocka_unit_test(test_tampering),
		cmocka_unit_test(test_payload_hash),
		cmocka_unit_test(test_without_a_digest_there_is_no_body),
		cmocka_unit_test(test_chunk_signing),
		cmocka_unit_test(test_presigned),
		cmocka_unit_test(test_a_form_is_signed_in_one_place),
		cmocka_unit_test(test_anonymous),
		cmocka_unit_test(test_version_2),
		cmocka_unit_test(test_version_2_in_the_query),
		cmocka_unit_test(test_version_2_signs_what_it_does),
		cmocka_unit_test(test_anonymous_read),
		cmocka_unit_test(test_session_key),
		cmocka_unit_test(test_session_ends_with_its_secret),
		cmocka_unit_test(test_open_refuses),
	};

	return cmocka_run_group_tests(tests, open_all, fake_close);
}

int main(void)
{
	return fake_main(tests_run);
}
