/* Covers the operations on buckets, listing, routing and what is declined. */
#include "../unit.h"

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>

#include "codec/capsule.h"
#include "document/document.h"
#include "fake.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/core/text.h"
#include "s3/origin.h"
#include "s3/s3_priv.h"

static int open_all(void **state)
{
	const struct s3_opts opts = {.host_domain = "s3.example.com"};

	(void)state;
	return fake_open_with(&opts);
}

/* Status of a request without a body; its answer is checked for a text when one is given. */
static uint32_t ask(const char *method, const char *path, const char *query, const char *text)
{
	struct fake_call call;
	uint32_t status;

	fake_call_init(&call, method, path, query);
	fake_call_run(fake_s3, &call);
	status = call.reply.status;
	if (text && !fake_reply_has(&call, text))
		fail_msg("%s %s?%s answered %.*s", method, path, query, (int)call.reply_body.len,
			call.reply_body.data);
	if (strcmp(method, "HEAD") == 0)
		assert_int_equal(call.reply_body.len, 0);
	fake_call_free(&call);
	return status;
}

static uint32_t ask_with(const char *method, const char *path, const char *query, const char *body)
{
	struct fake_call call;
	uint32_t status;

	fake_call_init(&call, method, path, query);
	fake_call_body(&call, slice_str(body));
	fake_call_run(fake_s3, &call);
	status = call.reply.status;
	fake_call_free(&call);
	return status;
}

static void test_life(void **state)
{
	(void)state;
	assert_int_equal(ask("HEAD", "/one", "", NULL), 404);
	assert_int_equal(ask("PUT", "/one", "", NULL), 200);
	assert_int_equal(ask("PUT", "/one", "", NULL), 200);
	assert_int_equal(ask("HEAD", "/one", "", NULL), 200);
	assert_int_equal(ask_with("PUT", "/two", "",
				 "<CreateBucketConfiguration><LocationConstraint>eu-west-1"
				 "</LocationConstraint></CreateBucketConfiguration>"),
		200);
	assert_int_equal(ask("PUT", "/two", "", "<Code>BucketAlreadyOwnedByYou</Code>"), 409);
	assert_int_equal(ask("GET", "/two", "location", ">eu-west-1</LocationConstraint>"), 200);
	assert_int_equal(ask("GET", "/one", "location", "></LocationConstraint>"), 200);
	assert_int_equal(ask_with("PUT", "/two/key", "", "body"), 200);
	assert_int_equal(ask("DELETE", "/two", "", "<Code>BucketNotEmpty</Code>"), 409);
	assert_int_equal(ask("DELETE", "/two/key", "", NULL), 204);
	assert_int_equal(ask("DELETE", "/two", "", NULL), 204);
	assert_int_equal(ask("DELETE", "/two", "", "<Code>NoSuchBucket</Code>"), 404);
}

static void test_create_refusals(void **state)
{
	(void)state;
	assert_int_equal(ask("PUT", "/No", "", "<Code>InvalidBucketName</Code>"), 400);
	assert_int_equal(ask_with("PUT", "/new", "", "<CreateBucketConfig"), 400);
	assert_int_equal(ask_with("PUT", "/new", "", "<Other/>"), 400);
	assert_int_equal(ask_with("PUT", "/new", "",
				 "<CreateBucketConfiguration><LocationConstraint>EU!"
				 "</LocationConstraint></CreateBucketConfiguration>"),
		400);
	assert_int_equal(
		ask_with("PUT", "/new", "",
			"<CreateBucketConfiguration><Bucket><Type>Directory</Type></Bucket>"
			"</CreateBucketConfiguration>"),
		501);
	assert_int_equal(ask("HEAD", "/new", "", NULL), 404);
}

static void test_list_buckets(void **state)
{
	(void)state;
	ask("PUT", "/aaa", "", NULL);
	ask("PUT", "/bba", "", NULL);
	ask("PUT", "/bbb", "", NULL);
	ask("PUT", "/ccc", "", NULL);
	assert_int_equal(ask("GET", "/", "", "<Name>aaa</Name>"), 200);
	assert_int_equal(ask("GET", "/", "prefix=bb&max-buckets=1",
				 "</Buckets><ContinuationToken>YmJh</ContinuationToken>"),
		200);
	assert_int_equal(ask("GET", "/", "prefix=bb&max-buckets=1&continuation-token=YmJh",
				 "<Buckets><Bucket><Name>bbb</Name>"),
		200);
	assert_int_equal(
		ask("GET", "/", "prefix=bb&continuation-token=YmJi", "<Buckets></Buckets>"), 200);
	assert_int_equal(ask("GET", "/", "max-buckets=0", "InvalidArgument"), 400);
	assert_int_equal(ask("GET", "/", "max-buckets=10001", "InvalidArgument"), 400);
	assert_int_equal(ask("GET", "/", "continuation-token=!", "InvalidArgument"), 400);
}

/* Configurations that clients request by themselves, and refusals of those not served. */
static void test_configurations(void **state)
{
	static const struct {
		const char *method, *query, *text;
		uint32_t status;
	} rows[] = {
		{"GET", "versioning", "<VersioningConfiguration", 200},
		{"GET", "acl", "<Permission>FULL_CONTROL</Permission>", 200},
		{"GET", "logging", "<BucketLoggingStatus", 200},
		{"GET", "requestPayment", "<Payer>BucketOwner</Payer>", 200},
		{"GET", "policy", "<Code>NoSuchBucketPolicy</Code>", 404},
		{"GET", "lifecycle", "<Code>NoSuchLifecycleConfiguration</Code>", 404},
		{"GET", "tagging", "<Code>NoSuchTagSet</Code>", 404},
		{"GET", "cors", "<Code>NoSuchCORSConfiguration</Code>", 404},
		{"GET", "object-lock", "<Code>ObjectLockConfigurationNotFoundError</Code>", 404},
		{"PUT", "versioning", "<Code>MalformedXML</Code>", 400},
		{"PUT", "acl", "<Code>MissingSecurityHeader</Code>", 400},
		{"PUT", "policy", "<Code>MalformedPolicy</Code>", 400},
		{"GET", "policyStatus", "<IsPublic>false</IsPublic>", 200},
		{"PUT", "ownershipControls", "<Code>MalformedXML</Code>", 400},
		{"PUT", "publicAccessBlock", "<Code>MalformedXML</Code>", 400},
		{"DELETE", "policy", NULL, 204},
		{"DELETE", "acl", "<Code>NotImplemented</Code>", 501},
		{"GET", "inventory", "<IsTruncated>false</IsTruncated>", 200},
		{"GET", "inventory&id=a", "<Code>NoSuchConfiguration</Code>", 404},
		{"DELETE", "inventory&id=a", "<Code>NoSuchConfiguration</Code>", 404},
		{"PUT", "inventory&id=a", "<Code>NotImplemented</Code>", 501},
		{"POST", "", "<Code>PreconditionFailed</Code>", 412},
		{"PATCH", "", "<Code>MethodNotAllowed</Code>", 405},
		{"OPTIONS", "", "Origin", 400},
	};
	static const struct {
		const char *body;
		uint32_t status;
	} owners[] = {
		{"<OwnershipControls><Rule><ObjectOwnership> BucketOwnerEnforced "
		 "</ObjectOwnership></Rule></OwnershipControls>",
			200},
		{"<OwnershipControls/>", 400},
		{"<OwnershipControls><Rule/></OwnershipControls>", 400},
		{"<OwnershipControls><Rule/><Rule/></OwnershipControls>", 400},
	};

	(void)state;
	ask("PUT", "/config", "", NULL);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(ask(rows[i].method, "/config", rows[i].query, rows[i].text),
			rows[i].status);
	for (size_t i = 0; i < ARRAY_LEN(owners); i++)
		assert_int_equal(ask_with("PUT", "/config", "ownershipControls", owners[i].body),
			owners[i].status);
	assert_int_equal(ask("GET", "/config", "ownershipControls", "BucketOwnerEnforced"), 200);
	assert_int_equal(ask("GET", "/nowhere", "versioning", "NoSuchBucket"), 404);
	assert_int_equal(ask("POST", "/", "", "<Code>InvalidAction</Code>"), 400);
	assert_int_equal(ask("HEAD", "/config", "", NULL), 200);
}

static void test_list_pages(void **state)
{
	static const char *const keys[] = {"a", "b/1", "b/2", "c", "d/x/y", "e e", "f&g"};

	(void)state;
	ask("PUT", "/list", "", NULL);
	ask_with("PUT", "/list/a", "", "1");
	ask_with("PUT", "/list/b/1", "", "1");
	ask_with("PUT", "/list/b/2", "", "1");
	ask_with("PUT", "/list/c", "", "1");
	ask_with("PUT", "/list/d/x/y", "", "1");
	ask_with("PUT", "/list/e%20e", "", "1");
	ask_with("PUT", "/list/f%26g", "", "1");
	for (size_t i = 0; i < 5; i++) {
		char element[64];

		snprintf(element, sizeof(element), "<Key>%s</Key>", keys[i]);
		assert_int_equal(ask("GET", "/list", "", element), 200);
		assert_int_equal(ask("GET", "/list/", "list-type=2", element), 200);
	}
	ask("GET", "/list", "", "<Key>f&amp;g</Key>");
	ask("GET", "/list", "encoding-type=url", "<Key>e%20e</Key>");
	ask("GET", "/list", "", "<Owner><ID>");
	ask("GET", "/list", "delimiter=/", "<CommonPrefixes><Prefix>b/</Prefix></CommonPrefixes>");
	ask("GET", "/list", "delimiter=/&max-keys=2", "<NextMarker>b/</NextMarker>");
	ask("GET", "/list", "delimiter=/&max-keys=1&marker=b/", "<Key>c</Key>");
	ask("GET", "/list", "max-keys=1", "<IsTruncated>true</IsTruncated>");
	ask("GET", "/list", "max-keys=0", "<IsTruncated>false</IsTruncated>");
	ask("GET", "/list", "max-keys=5000", "<MaxKeys>1000</MaxKeys>");
	ask("GET", "/list", "prefix=zzz", "<Prefix>zzz</Prefix>");
	assert_int_equal(ask("GET", "/list", "max-keys=-1", "InvalidArgument"), 400);
	assert_int_equal(ask("GET", "/list", "max-keys=x", "InvalidArgument"), 400);
	assert_int_equal(ask("GET", "/list", "encoding-type=x", "InvalidArgument"), 400);
	assert_int_equal(ask("GET", "/nolist", "", "NoSuchBucket"), 404);
	assert_int_equal(ask("GET", "/list", "prefix=%ff", "InvalidArgument"), 400);
}

/* Each special character at each place of a key that is longer than two vectors. */
static void test_list_escapes(void **state)
{
	static const struct {
		const char *coded, *escaped;
	} specials[] = {{"%26", "&amp;"}, {"%3C", "&lt;"}, {"%3E", "&gt;"}, {"%22", "&quot;"},
		{"%27", "&#39;"}, {"%1F", "&#x1f;"}};
	const char *letters = "abcdefghijklmnopqrstuvwxyzabcdefghijklmn";
	int len = (int)strlen(letters);
	char path[128], element[128];

	(void)state;
	ask("PUT", "/escapes", "", NULL);
	for (size_t i = 0; i < ARRAY_LEN(specials); i++) {
		for (int at = 0; at <= len; at++) {
			snprintf(path, sizeof(path), "/escapes/%.*s%s%s", at, letters,
				specials[i].coded, letters + at);
			assert_int_equal(ask_with("PUT", path, "", "1"), 200);
			snprintf(element, sizeof(element), "<Key>%.*s%s%s</Key>", at, letters,
				specials[i].escaped, letters + at);
			ask("GET", "/escapes", "list-type=2", element);
			ask("GET", "/escapes", "list-type=2&fetch-owner=true", element);
			assert_int_equal(ask("DELETE", path, "", NULL), 204);
		}
	}
}

static void test_list_v2_pages(void **state)
{
	(void)state;
	ask("PUT", "/lis2", "", NULL);
	ask_with("PUT", "/lis2/a", "", "1");
	ask_with("PUT", "/lis2/b/1", "", "1");
	ask_with("PUT", "/lis2/b/2", "", "1");
	ask_with("PUT", "/lis2/c", "", "1");
	ask("GET", "/lis2", "list-type=2", "<KeyCount>4</KeyCount>");
	ask("GET", "/lis2", "list-type=2&delimiter=/", "<KeyCount>3</KeyCount>");
	ask("GET", "/lis2", "list-type=2&max-keys=1",
		"<NextContinuationToken>YQ==</NextContinuationToken>");
	ask("GET", "/lis2", "list-type=2&continuation-token=YQ%3D%3D&max-keys=1", "<Key>b/1</Key>");
	ask("GET", "/lis2", "list-type=2&continuation-token=YQ%3D%3D",
		"<ContinuationToken>YQ==</ContinuationToken>");
	ask("GET", "/lis2", "list-type=2&start-after=b/2", "<KeyCount>1</KeyCount>");
	ask("GET", "/lis2", "list-type=2&start-after=b/2", "<StartAfter>b/2</StartAfter>");
	ask("GET", "/lis2", "list-type=2&continuation-token=", "<KeyCount>4</KeyCount>");
	ask("GET", "/lis2", "list-type=2&max-keys=0", "<KeyCount>0</KeyCount>");
	ask("GET", "/lis2", "list-type=2&fetch-owner=true", "<Owner>");
	assert_int_equal(
		ask("GET", "/lis2", "list-type=2&continuation-token=%21", "InvalidArgument"), 400);
	assert_int_equal(ask("GET", "/lis2", "list-type=3", "InvalidArgument"), 400);
	ask("GET", "/lis2", "versions", "<VersionId>null</VersionId><IsLatest>true</IsLatest>");
	ask("GET", "/lis2", "versions&max-keys=1", "<NextKeyMarker>a</NextKeyMarker>");
}

/* A principal with its maximum of listings gets Retry-After; other requests are not listings. */
static void test_list_too_many(void **state)
{
	static const char *const queries[] = {"", "list-type=2", "versions", "uploads"};

	(void)state;
	ask("PUT", "/lis3", "", NULL);
	fake_walks_refused = true;
	for (uint32_t i = 0; i < ARRAY_LEN(queries); i++) {
		struct fake_call call;

		fake_call_init(&call, "GET", "/lis3", queries[i]);
		fake_call_run(fake_s3, &call);
		assert_int_equal(call.reply.status, 503);
		assert_true(fake_reply_has(&call, "<Code>SlowDown</Code>"));
		assert_true(slice_eq(fake_reply_header(&call, "retry-after"), SLICE("1")));
		fake_call_free(&call);
	}
	assert_int_equal(ask("HEAD", "/lis3", "", NULL), 200);
	fake_walks_refused = false;
	for (uint32_t i = 0; i < ARRAY_LEN(queries); i++)
		assert_int_equal(ask("GET", "/lis3", queries[i], NULL), 200);
	assert_int_equal(fake_walks, 0);
}

static void check_split(const char *path, const char *host, const char *bucket, const char *key)
{
	struct s3_header header = {SLICE("Host"), slice_str(host)};
	struct s3_request request = {
		.path = slice_str(path), .headers = &header, .header_count = 1};
	struct s3_call call = {.magic = S3_CALL_MAGIC,
		.s3 = fake_s3,
		.operation = s3_operation_at(S3_OPERATION_UNKNOWN)};
	enum s3_level level;

	s3_call_request(&call, &request);
	mem_arena_init(&call.arena);
	assert_int_equal(s3_split_path(&call, &level), 0);
	assert_true(slice_eq(call.bucket, slice_str(bucket)));
	assert_true(slice_eq(call.key, slice_str(key)));
	assert_int_equal(level, key[0]	    ? S3_LEVEL_OBJECT
				: bucket[0] ? S3_LEVEL_BUCKET
					    : S3_LEVEL_SERVICE);
	mem_arena_free(&call.arena);
}

static void test_paths(void **state)
{
	(void)state;
	check_split("/", "localhost:9000", "", "");
	check_split("/b", "localhost", "b", "");
	check_split("/b/", "localhost", "b", "");
	check_split("/b/k", "localhost", "b", "k");
	check_split("/b//k/", "localhost", "b", "/k/");
	check_split("/b/../k", "localhost", "b", "../k");
	check_split("/b/a%2Fb%25+c", "localhost", "b", "a/b%+c");
	check_split("/k/l", "bkt.s3.example.com:9000", "bkt", "k/l");
	check_split("/", "bkt.S3.Example.com", "bkt", "");
	check_split("/k", "a.b.s3.example.com", "a.b", "k");
	check_split("/b/k", "s3.example.com", "b", "k");
	check_split("/b/k", "evils3.example.com", "b", "k");
	assert_int_equal(ask("GET", "/b/%zz", "", "<Code>InvalidURI</Code>"), 400);
	assert_int_equal(ask("GET", "/bbb/%ff", "", "<Code>InvalidArgument</Code>"), 400);
	assert_int_equal(ask("GET", "/bbb/k", "a=%f", "<Code>InvalidURI</Code>"), 400);
}

static void test_many_parameters(void **state)
{
	struct buf query;

	(void)state;
	buf_init(&query, 4096);
	for (unsigned i = 0; i <= S3_PARAMS_MAX; i++)
		buf_put_str(&query, "a&");
	buf_put(&query, "a", 2);
	assert_int_equal(ask("GET", "/bbb", query.data, "<Code>InvalidURI</Code>"), 400);
	buf_free(&query);
}

/* An opcode of the native transport selects the operation; its query may not select another. */
static void test_foreign_parameters(void **state)
{
	static const struct {
		uint8_t opcode;
		const char *method, *query;
		uint32_t status;
	} rows[] = {
		{CAPSULE_OP_PUT, "PUT", "annotation", 501},
		{CAPSULE_OP_PUT, "PUT", "x-id=PutObject", 200},
		{CAPSULE_OP_DELETE, "DELETE", "annotation&annotationName=a", 501},
		{CAPSULE_OP_DELETE, "DELETE", "tagging", 501},
		{CAPSULE_OP_GET, "GET", "versionId=null", 200},
		{CAPSULE_OP_GET, "GET", "annotation", 501},
		{CAPSULE_OP_HEAD, "HEAD", "annotation", 501},
		{CAPSULE_OP_LIST, "GET", "max-keys=1&prefix=k", 200},
		{CAPSULE_OP_LIST, "GET", "uploads", 501},
	};

	(void)state;
	ask("PUT", "/foreign", "", NULL);
	assert_int_equal(ask_with("PUT", "/foreign/key", "", "kept"), 200);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct fake_call call;

		fake_call_init(&call, rows[i].method, "/", rows[i].query);
		call.request.opcode = rows[i].opcode;
		call.request.bucket = SLICE("foreign");
		if (rows[i].opcode != CAPSULE_OP_LIST)
			call.request.key = SLICE("key");
		if (rows[i].opcode == CAPSULE_OP_PUT)
			fake_call_body(&call, SLICE("kept"));
		fake_call_run(fake_s3, &call);
		assert_int_equal(call.reply.status, rows[i].status);
		fake_call_free(&call);
	}
	ask("GET", "/foreign/key", "", "kept");
	ask("GET", "/foreign/key", "v=3&n%ffxt", "kept");
	/* A parameter's name can have any bytes; a name that is not text is not repeated in the
	 * answer. */
	ask("DELETE", "/foreign/key", "n%c3%a4xt", "parameter n\xc3\xa4xt is");
	ask("DELETE", "/foreign/key", "n%ffxt", "<Message>A header or parameter you provided");
}

/* A bucket keeps the presets of its creation: it reads neither today's presets nor a document. */
static void test_presets(void **state)
{
	const struct s3_opts opts = {.root_access_key = "test",
		.root_secret_key = "secret",
		.closed_buckets = true,
		.encrypted_buckets = true};
	struct s3 *plain = fake_s3, *made;

	(void)state;
	assert_int_equal(s3_open(&opts, fake_store, &made), 0);
	fake_s3 = made;
	assert_int_equal(ask("PUT", "/preset", "", NULL), 200);
	fake_s3 = plain;
	s3_close(made);
	assert_int_equal(ask("PUT", "/open", "", NULL), 200);
	assert_int_equal(ask("GET", "/open", "encryption", NULL), 404);
	assert_int_equal(ask("GET", "/open", "ownershipControls", NULL), 404);
	assert_int_equal(ask("GET", "/open", "publicAccessBlock", NULL), 404);
	ask("GET", "/preset", "encryption", "<SSEAlgorithm>AES256</SSEAlgorithm>");
	ask("GET", "/preset", "ownershipControls", "BucketOwnerEnforced");
	ask("GET", "/preset", "publicAccessBlock", "<RestrictPublicBuckets>true<");
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ask("DELETE", "/preset", "encryption", NULL), 204);
		ask("GET", "/preset", "encryption",
			"ServerSideEncryptionConfigurationNotFoundError");
		assert_int_equal(ask("DELETE", "/preset", "ownershipControls", NULL), 204);
		ask("GET", "/preset", "ownershipControls", "OwnershipControlsNotFoundError");
	}
	ask("GET", "/preset", "publicAccessBlock", "<BlockPublicAcls>true<");
	/* A new bucket of that name has the presets of its own creation. */
	assert_int_equal(ask("DELETE", "/preset", "", NULL), 204);
	assert_int_equal(ask("PUT", "/preset", "", NULL), 200);
	assert_int_equal(ask("GET", "/preset", "publicAccessBlock", NULL), 404);
}

/* ---- A bucket that takes another one's name while a request's body is awaited. ---- */

static uint32_t ask_locked(const char *method, const char *path, const char *body)
{
	struct fake_call call;
	uint32_t status;

	fake_call_init(&call, method, path, "");
	fake_call_header(&call,
		body ? "x-amz-object-lock-legal-hold" : "x-amz-bucket-object-lock-enabled",
		body ? "ON" : "true");
	if (body)
		fake_call_body(&call, slice_str(body));
	fake_call_run(fake_s3, &call);
	status = call.reply.status;
	fake_call_free(&call);
	return status;
}

static bool lockable;

static void make_reused(void)
{
	if (lockable)
		assert_int_equal(ask_locked("PUT", "/reused", NULL), 200);
	else
		assert_int_equal(ask("PUT", "/reused", "", NULL), 200);
}

static void replace_reused(void)
{
	assert_int_equal(ask("DELETE", "/reused", "", NULL), 204);
	make_reused();
	if (lockable)
		assert_int_equal(ask_locked("PUT", "/reused/key", "next"), 200);
	else
		assert_int_equal(ask_with("PUT", "/reused/key", "", "next"), 200);
}

static const char ALLOW[] = "{\"Version\":\"2012-10-17\",\"Statement\":[{\"Effect\":\"Allow\","
			    "\"Principal\":\"*\",\"Action\":\"s3:*\",\"Resource\":"
			    "[\"arn:aws:s3:::reused\",\"arn:aws:s3:::reused/*\"]}]}";

static void allow_all(void)
{
	ask("DELETE", "/reused", "publicAccessBlock", NULL);
	assert_int_equal(ask_with("PUT", "/reused", "policy", ALLOW), 204);
}

#define TAGS                                                       \
	"<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag>" \
	"</TagSet></Tagging>"
static const char KEY_DELETION[] = "<Delete><Object><Key>key</Key></Object></Delete>";

/* Anybody's request, whose body comes when `awaited` has run. */
static uint32_t ask_held(const char *method, const char *path, const char *query, const char *body,
	void (*awaited)(void), const char *text)
{
	struct fake_call call;
	uint8_t digest[MD5_BYTES];
	char md5[BASE64_LEN(MD5_BYTES) + 1];
	uint32_t status;

	fake_call_init(&call, method, path, query);
	call.request.session = NULL;
	call.awaited = awaited;
	md5_of(body, strlen(body), digest);
	md5[base64_encode(digest, sizeof(digest), md5)] = '\0';
	fake_call_header(&call, "Content-MD5", md5);
	fake_call_body(&call, slice_str(body));
	fake_call_run(fake_s3, &call);
	status = call.reply.status;
	if (!fake_reply_has(&call, text))
		fail_msg("%s %s?%s: %u %.*s", method, path, query, status, (int)call.reply_body.len,
			call.reply_body.data);
	fake_call_free(&call);
	return status;
}

/* The rights were given on the bucket that is gone. */
static void test_replaced_bucket_is_left_alone(void **state)
{
	static const struct {
		const char *method, *path, *query, *body;
		bool lockable;
	} rows[] = {
		{"POST", "/reused", "delete", KEY_DELETION, false},
		{"PUT", "/reused", "tagging", TAGS, false},
		{"PUT", "/reused", "versioning",
			"<VersioningConfiguration><Status>Enabled</Status>"
			"</VersioningConfiguration>",
			false},
		{"PUT", "/reused/key", "tagging", TAGS, false},
		{"PUT", "/reused/key", "retention",
			"<Retention><Mode>GOVERNANCE</Mode><RetainUntilDate>2099-01-01T00:00:00Z"
			"</RetainUntilDate></Retention>",
			true},
		{"PUT", "/reused/key", "legal-hold", "<LegalHold><Status>OFF</Status></LegalHold>",
			true},
		{"PUT", "/reused", "object-lock",
			"<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled>"
			"<Rule><DefaultRetention><Mode>GOVERNANCE</Mode><Days>1</Days>"
			"</DefaultRetention></Rule></ObjectLockConfiguration>",
			true},
	};
	struct store_bucket bucket;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		lockable = rows[i].lockable;
		make_reused();
		allow_all();
		assert_int_equal(ask_held(rows[i].method, rows[i].path, rows[i].query, rows[i].body,
					 replace_reused, "NoSuchBucket"),
			404);
		assert_int_equal(ask("GET", "/reused/key", "", "next"), 200);
		assert_int_equal(ask("GET", "/reused", "tagging", "NoSuchTagSet"), 404);
		assert_int_equal(ask("GET", "/reused/key", "tagging", "<TagSet></TagSet>"), 200);
		assert_int_equal(store_bucket_get(fake_store, SLICE("reused"), &bucket), 0);
		assert_int_equal(bucket.versioning,
			lockable ? STORE_VERSIONING_ENABLED : STORE_VERSIONING_NEVER);
		if (lockable) {
			assert_int_equal(ask("GET", "/reused/key", "legal-hold", ">ON<"), 200);
			assert_int_equal(ask("GET", "/reused/key", "retention", NULL), 404);
		}
		s3_close(fake_s3);
		fake_store_close(fake_store);
		assert_int_equal(open_all(NULL), 0);
	}
}

static void deny_deletion(void)
{
	assert_int_equal(ask_with("PUT", "/reused", "policy",
				 "{\"Version\":\"2012-10-17\",\"Statement\":[{\"Effect\":\"Deny\","
				 "\"Principal\":\"*\",\"Action\":\"s3:DeleteObject\","
				 "\"Resource\":\"arn:aws:s3:::reused/*\"},{\"Effect\":\"Allow\","
				 "\"Principal\":\"*\",\"Action\":\"s3:*\","
				 "\"Resource\":\"arn:aws:s3:::reused\"}]}"),
		204);
}

/* Rights that are decided once the body is there are those of that moment. */
static void test_rights_taken_while_the_body_is_awaited(void **state)
{
	(void)state;
	lockable = false;
	make_reused();
	allow_all();
	assert_int_equal(ask_with("PUT", "/reused/key", "", "next"), 200);
	assert_int_equal(ask_held("POST", "/reused", "delete", KEY_DELETION, deny_deletion,
				 "<Code>AccessDenied</Code>"),
		200);
	assert_int_equal(ask("GET", "/reused/key", "", "next"), 200);
}

/* ---- A bucket that is made again. ---- */

#define CONFIGURED(tag)                                                                          \
	"<CreateBucketConfiguration><Tags><Tag><Key>b</Key><Value>2</Value></Tag><Tag><Key>" tag \
	"</Key><Value>1</Value></Tag></Tags></CreateBucketConfiguration>"
static const char OWNERSHIP[] = "x-amz-object-ownership";
static const char LOCK[] = "x-amz-bucket-object-lock-enabled";

/* With a header and a body, each of which may be NULL. */
static uint32_t make(const char *path, const char *header, const char *value, const char *body)
{
	struct fake_call call;
	uint32_t status;

	fake_call_init(&call, "PUT", path, "");
	if (header)
		fake_call_header(&call, header, value);
	if (body)
		fake_call_body(&call, slice_str(body));
	fake_call_run(fake_s3, &call);
	status = call.reply.status;
	if (status == 409)
		assert_true(fake_reply_has(&call, "<Code>BucketAlreadyExists</Code>"));
	fake_call_free(&call);
	return status;
}

/* Without a header or with the same ones it is a success, also when more was set since. */
static void test_made_again(void **state)
{
	static const char enforced[] = "BucketOwnerEnforced", writer[] = "ObjectWriter";

	(void)state;
	assert_int_equal(make("/again", OWNERSHIP, enforced, CONFIGURED("a")), 200);
	assert_int_equal(make("/again", OWNERSHIP, enforced, CONFIGURED("a")), 200);
	assert_int_equal(make("/again", OWNERSHIP, enforced, NULL), 200);
	assert_int_equal(make("/again", NULL, NULL, NULL), 200);
	assert_int_equal(make("/again", LOCK, "false", NULL), 200);
	assert_int_equal(make("/again", OWNERSHIP, writer, CONFIGURED("a")), 409);
	assert_int_equal(make("/again", NULL, NULL, CONFIGURED("c")), 409);
	assert_int_equal(make("/again", LOCK, "true", NULL), 409);
	ask("GET", "/again", "ownershipControls", enforced);
	assert_int_equal(ask("GET", "/again", "object-lock", NULL), 404);
	/* Tags that were deleted since do not come back. */
	assert_int_equal(ask("DELETE", "/again", "tagging", NULL), 204);
	assert_int_equal(make("/again", NULL, NULL, CONFIGURED("a")), 409);
	assert_int_equal(ask("GET", "/again", "tagging", NULL), 404);
	assert_int_equal(make("/again", NULL, NULL, NULL), 200);
	assert_int_equal(make("/again-locked", LOCK, "true", NULL), 200);
	assert_int_equal(make("/again-locked", LOCK, "true", NULL), 200);
	assert_int_equal(make("/again-locked", NULL, NULL, NULL), 200);
	assert_int_equal(ask_with("PUT", "/again-locked", "tagging", TAGS), 204);
	assert_int_equal(make("/again-locked", NULL, NULL, NULL), 200);
}

static void fail_the_next(void)
{
	fake_put_committed = NULL;
	fake_put_error = -ENOSPC;
}

/* A bucket that does not get all that it is to be made with is not made, so that the next try makes
 * it whole. */
static void test_making_cut_short(void **state)
{
	struct store_quota used, before;

	(void)state;
	assert_int_equal(store_bucket_usage(fake_store, SLICE(DOCUMENTS_BUCKET), &before), 0);
	for (int i = 0; i < 2; i++) {
		if (i)
			fake_put_committed = fail_the_next;
		else
			fail_the_next();
		assert_int_equal(make("/short", OWNERSHIP, "ObjectWriter", CONFIGURED("a")), 507);
		fake_put_error = 0;
		assert_null(fake_put_committed);
		assert_int_equal(ask("HEAD", "/short", "", NULL), 404);
		assert_int_equal(store_bucket_usage(fake_store, SLICE(DOCUMENTS_BUCKET), &used), 0);
		assert_int_equal(used.objects, before.objects);
	}
	assert_int_equal(make("/short", OWNERSHIP, "ObjectWriter", CONFIGURED("a")), 200);
	ask("GET", "/short", "ownershipControls", "ObjectWriter");
	ask("GET", "/short", "tagging", "<Key>a</Key><Value>1</Value>");
}

static uint64_t documents(void)
{
	struct store_quota used;

	assert_int_equal(store_bucket_usage(fake_store, SLICE(DOCUMENTS_BUCKET), &used), 0);
	return used.objects;
}

/* As a crash leaves them: the bucket is deleted, and its documents are not. */
static void make_and_lose(const char *path)
{
	assert_int_equal(make(path, OWNERSHIP, "ObjectWriter", CONFIGURED("a")), 200);
	assert_int_equal(store_bucket_delete(fake_store, slice_str(path + 1), 0), 0);
	s3_settings_changed(fake_s3, slice_str(path + 1));
}

/* The next start deletes them, and none of a bucket that is there, or has the name now. */
static void test_documents_of_deleted_buckets(void **state)
{
	uint64_t before;

	(void)state;
	assert_int_equal(make("/lives", OWNERSHIP, "ObjectWriter", CONFIGURED("a")), 200);
	before = documents();
	make_and_lose("/lost");
	make_and_lose("/lost-again");
	assert_int_equal(make("/lost-again", NULL, NULL, CONFIGURED("c")), 200);
	assert_int_equal(documents(), before + 4);
	/* A deletion that fails is the next start's, and the others are done. */
	fake_delete_fails = 1;
	assert_int_equal(s3_configs_sweep(fake_s3, NULL), -EIO);
	assert_int_equal(documents(), before + 2);
	assert_int_equal(s3_configs_sweep(fake_s3, NULL), 0);
	assert_int_equal(documents(), before + 1);
	ask("GET", "/lost-again", "tagging", "<Key>c</Key><Value>1</Value>");
	ask("GET", "/lives", "tagging", "<Key>a</Key><Value>1</Value>");
	ask("GET", "/lives", "ownershipControls", "ObjectWriter");
	assert_int_equal(s3_configs_sweep(fake_s3, NULL), 0);
	assert_int_equal(documents(), before + 1);
}

static bool swept;

static void sweep_main(void *arg)
{
	(void)arg;
	assert_int_equal(s3_configs_sweep(fake_s3, NULL), 0);
	swept = true;
}

static uint64_t documents_before;

/* All is there but the bucket, and what deletes documents without buckets runs. */
static void begin_sweep(void)
{
	fake_bucket_making = NULL;
	assert_int_equal(documents(), documents_before + 2);
	assert_int_equal(ask("HEAD", "/whole", "", NULL), 404);
	assert_int_equal(fiber_spawn(reactor_self(), "sweep", sweep_main, NULL), 0);
	for (int i = 0; i < 100; i++)
		fiber_yield();
	assert_false(swept);
}

static void test_a_bucket_is_seen_whole(void **state)
{
	(void)state;
	documents_before = documents();
	swept = false;
	fake_bucket_making = begin_sweep;
	assert_int_equal(make("/whole", OWNERSHIP, "ObjectWriter", CONFIGURED("a")), 200);
	assert_null(fake_bucket_making);
	while (!swept)
		fiber_yield();
	assert_int_equal(documents(), documents_before + 2);
	ask("GET", "/whole", "ownershipControls", "ObjectWriter");
	ask("GET", "/whole", "tagging", "<Key>a</Key><Value>1</Value>");
}

/* A refused bucket leaves nothing. After a write that failed, the next start may find the bucket,
 * and its documents stay as long. */
static void test_a_bucket_that_is_not_made(void **state)
{
	uint64_t before = documents();

	(void)state;
	fake_bucket_error = -EDQUOT;
	assert_int_equal(make("/unmade", OWNERSHIP, "ObjectWriter", CONFIGURED("a")), 400);
	assert_int_equal(documents(), before);
	fake_bucket_error = -EIO;
	assert_int_equal(make("/unmade", OWNERSHIP, "ObjectWriter", CONFIGURED("a")), 500);
	fake_bucket_error = 0;
	assert_int_equal(documents(), before + 2);
	assert_int_equal(ask("HEAD", "/unmade", "", NULL), 404);
	assert_int_equal(s3_configs_sweep(fake_s3, NULL), 0);
	assert_int_equal(documents(), before);
	assert_int_equal(make("/unmade", OWNERSHIP, "ObjectWriter", CONFIGURED("a")), 200);
	ask("GET", "/unmade", "tagging", "<Key>a</Key><Value>1</Value>");
}

static uint32_t claimed, released;

static int count_claim(void *arg, const char *bucket)
{
	(void)arg;
	(void)bucket;
	claimed++;
	return 0;
}

static int count_release(void *arg, const char *bucket)
{
	(void)arg;
	(void)bucket;
	released++;
	return 0;
}

/* The shared names lose a name only when this store certainly has no bucket of it, also not after
 * its next start. */
static void test_names_kept(void **state)
{
	static const struct {
		int error;
		uint32_t released; /* of a name without a bucket */
	} cases[] = {{-EIO, 0}, {-EHOSTDOWN, 0}, {-ESHUTDOWN, 0}, {-ENOMEM, 0}, {-EDQUOT, 1},
		{-ENOTSUP, 1}, {-ENOBUFS, 1}};

	(void)state;
	fake_s3->names.claim = count_claim;
	fake_s3->names.release = count_release;
	assert_int_equal(ask("PUT", "/named", "", NULL), 200);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		claimed = released = 0;
		fake_bucket_error = cases[i].error;
		assert_true(ask("PUT", "/named", "", NULL) >= 400);
		assert_int_equal(released, 0);
		assert_true(ask("PUT", "/unmade", "", NULL) >= 400);
		assert_int_equal(released, cases[i].released);
		assert_int_equal(claimed, 2);
	}
	/* So with the bucket's documents: an earlier try's bucket may be found by the next start.
	 */
	fake_bucket_error = 0;
	released = 0;
	fake_put_error = -EIO;
	assert_int_equal(make("/unmade-named", OWNERSHIP, "ObjectWriter", NULL), 500);
	assert_int_equal(released, 0);
	fake_put_error = -ENOSPC;
	assert_int_equal(make("/unmade-named", OWNERSHIP, "ObjectWriter", NULL), 507);
	assert_int_equal(released, 1);
	fake_put_error = 0;
	assert_int_equal(ask("DELETE", "/named", "", NULL), 204);
	assert_int_equal(released, 2);
	fake_s3->names = (struct s3_names){0};
}

/* ---- A map of names that does not answer for a while. ---- */

static sem_t map_answers;
static _Atomic bool map_asked;

static int slow_claim(void *arg, const char *bucket)
{
	(void)arg;
	(void)bucket;
	atomic_store(&map_asked, true);
	while (sem_wait(&map_answers))
		;
	return 0;
}

static void make_named(void *arg)
{
	*(uint32_t *)arg = ask("PUT", "/awaited", "", NULL);
}

static void look_at_owners(void *arg)
{
	fiber_mutex_lock(&fake_s3->owning);
	*(bool *)arg = true;
	fiber_mutex_unlock(&fake_s3->owning);
}

/* A bucket whose name the map has not answered for holds up nobody who looks who owns buckets. */
static void test_a_name_that_is_awaited(void **state)
{
	uint32_t status = 0;
	bool looked = false;

	(void)state;
	sem_init(&map_answers, 0, 0);
	fake_s3->names = (struct s3_names){.claim = slow_claim, .release = count_release};
	assert_int_equal(fiber_spawn(reactor_self(), "maker", make_named, &status), 0);
	while (!atomic_load(&map_asked))
		fiber_yield();
	assert_int_equal(fiber_spawn(reactor_self(), "looker", look_at_owners, &looked), 0);
	for (int i = 0; i < 100 && !looked; i++)
		fiber_yield();
	assert_true(looked);
	sem_post(&map_answers);
	while (!status)
		fiber_yield();
	assert_int_equal(status, 200);
	fake_s3->names = (struct s3_names){0};
	sem_destroy(&map_answers);
}

static int tests_run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_life),
		cmocka_unit_test(test_create_refusals),
		cmocka_unit_test(test_list_buckets),
		cmocka_unit_test(test_configurations),
		cmocka_unit_test(test_list_pages),
		cmocka_unit_test(test_list_escapes),
		cmocka_unit_test(test_list_v2_pages),
		cmocka_unit_test(test_list_too_many),
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_many_parameters),
		cmocka_unit_test(test_foreign_parameters),
		cmocka_unit_test(test_presets),
		cmocka_unit_test(test_replaced_bucket_is_left_alone),
		cmocka_unit_test(test_rights_taken_while_the_body_is_awaited),
		cmocka_unit_test(test_made_again),
		cmocka_unit_test(test_making_cut_short),
		cmocka_unit_test(test_names_kept),
		cmocka_unit_test(test_a_name_that_is_awaited),
		cmocka_unit_test(test_documents_of_deleted_buckets),
		cmocka_unit_test(test_a_bucket_is_seen_whole),
		cmocka_unit_test(test_a_bucket_that_is_not_made),
	};

	return cmocka_run_group_tests(tests, open_all, fake_close);
}

int main(void)
{
	return fake_main(tests_run);
}
