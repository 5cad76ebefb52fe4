/* Covers the operations on objects: headers kept, ranges, conditions, digests, copies, deletions.
 */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>

#include "codec/capsule.h"
#include "fake.h"

#define MD5_OF_BODY	    "841a2d689ad86bd1611447453c22c6fc" /* of "body" */
#define CRC64_OF_123456789  "rosUhgp5mIg="
#define SHA256_OF_123456789 "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"
#define SHA256_OF_123456788 "c3160e3801345cd7b525e1cc15fd4c2ac50269778a6390675dfbbeaa0d2402b4"

static struct fake_call call; /* the last one */

static int bucket_setup(void **state)
{
	(void)state;
	fake_call_init(&call, "PUT", "/bkt", "");
	fake_call_run(fake_s3, &call);
	return call.reply.status == 200 ? 0 : -1;
}

/* Checks that a request leaves nothing open. */
static int nothing_open(void **state)
{
	(void)state;
	fake_call_free(&call);
	fake_put_error = fake_commit_error = fake_read_error = 0;
	return fake_open_gets || fake_open_puts || fake_open_sources;
}

static void begin(const char *method, const char *path, const char *query)
{
	fake_call_free(&call);
	fake_call_init(&call, method, path, query);
}

static void header(const char *name, const char *value)
{
	fake_call_header(&call, name, value);
}

static void body(const char *text)
{
	fake_call_body(&call, slice_str(text));
}

static void run(uint32_t status, const char *code)
{
	char element[128];

	fake_call_run(fake_s3, &call);
	if (call.reply.status != status)
		fail_msg("%s answered %u: %.*s", call.request.path.data, call.reply.status,
			(int)call.reply_body.len, call.reply_body.data);
	if (!code)
		return;
	snprintf(element, sizeof(element), "<Code>%s</Code>", code);
	if (!fake_reply_has(&call, element))
		fail_msg("%s not in %.*s", element, (int)call.reply_body.len, call.reply_body.data);
}

static void put(const char *path, const char *text)
{
	begin("PUT", path, "");
	body(text);
	run(200, NULL);
}

static void check_header(const char *name, const char *value)
{
	struct slice got = fake_reply_header(&call, name);

	if (!slice_eq(got, slice_str(value)))
		fail_msg("%s is %.*s, not %s", name, SLICE_FMT(got), value);
}

static void check_body(const char *text)
{
	assert_int_equal(call.reply_body.len, strlen(text));
	assert_memory_equal(call.reply_body.data, text, strlen(text));
}

static void test_put_get_head_delete(void **state)
{
	(void)state;
	put("/bkt/key", "body");
	check_header("etag", "\"" MD5_OF_BODY "\"");
	begin("GET", "/bkt/key", "");
	run(200, NULL);
	check_body("body");
	check_header("etag", "\"" MD5_OF_BODY "\"");
	check_header("content-type", "binary/octet-stream");
	check_header("accept-ranges", "bytes");
	assert_int_equal(fake_reply_header(&call, "last-modified").len, DATE_HTTP_LEN);
	begin("HEAD", "/bkt/key", "");
	run(200, NULL);
	assert_int_equal(call.reply_bytes, 4);
	assert_int_equal(call.reply_body.len, 0);
	begin("DELETE", "/bkt/key", "");
	run(204, NULL);
	begin("DELETE", "/bkt/key", "");
	run(204, NULL);
	begin("GET", "/bkt/key", "");
	run(404, "NoSuchKey");
	assert_true(fake_reply_has(&call, "<BucketName>bkt</BucketName><Key>key</Key>"));
	assert_true(fake_reply_has(&call, "<Resource>/bkt/key</Resource>"));
	begin("HEAD", "/bkt/key", "");
	run(404, NULL);
	assert_int_equal(call.reply_body.len, 0);
	begin("GET", "/nobkt/key", "");
	run(404, "NoSuchBucket");
	begin("PUT", "/nobkt/key", "");
	body("x");
	run(404, "NoSuchBucket");
}

/* A session's small bodies count in their principal's share only when the front says so. */
static void test_small_bodies_count_when_told(void **state)
{
	uint32_t joins[2][3];

	(void)state;
	for (uint32_t reads = 0; reads < 2; reads++) {
		/* The first request of a principal computes its share for all. */
		for (uint32_t i = 0; i < 3; i++) {
			begin(reads ? "GET" : "PUT", "/bkt/small", "");
			if (!reads)
				body("text");
			call.counts = i == 2;
			fake_joins = 0;
			run(200, NULL);
			joins[reads][i] = fake_joins;
		}
		assert_int_equal(joins[reads][2], joins[reads][1] + 1);
	}
}

static void test_empty_object(void **state)
{
	(void)state;
	begin("PUT", "/bkt/empty", "");
	run(200, NULL);
	check_header("etag", "\"d41d8cd98f00b204e9800998ecf8427e\"");
	begin("GET", "/bkt/empty", "");
	run(200, NULL);
	assert_int_equal(call.reply_bytes, 0);
	begin("GET", "/bkt/empty", "");
	header("Range", "bytes=0-");
	run(416, "InvalidRange");
	check_header("content-range", "bytes */0");
}

static void test_headers_are_kept(void **state)
{
	(void)state;
	begin("PUT", "/bkt/meta", "");
	header("Content-Type", "text/html");
	header("Cache-Control", "no-cache");
	header("Content-Encoding", "aws-chunked, gzip");
	header("Content-Language", "nl");
	header("Content-Disposition", "inline");
	header("Expires", "Thu, 01 Dec 1994 16:00:00 GMT");
	header("X-Amz-Meta-One", "1");
	header("x-amz-meta-Two", "a");
	header("X-AMZ-META-TWO", "b");
	header("x-amz-storage-class", "STANDARD_IA");
	body("body");
	run(200, NULL);
	begin("GET", "/bkt/meta", "");
	run(200, NULL);
	check_header("content-type", "text/html");
	check_header("cache-control", "no-cache");
	check_header("content-encoding", "gzip");
	check_header("content-language", "nl");
	check_header("content-disposition", "inline");
	check_header("expires", "Thu, 01 Dec 1994 16:00:00 GMT");
	check_header("x-amz-meta-one", "1");
	check_header("x-amz-meta-two", "a,b");
	check_header("x-amz-storage-class", "STANDARD_IA");
	begin("GET", "/bkt", "");
	run(200, NULL);
	assert_true(fake_reply_has(&call, "<StorageClass>STANDARD_IA</StorageClass>"));
	begin("GET", "/bkt/meta",
		"response-content-type=a%2Fb&response-expires=0&response-cache-control=x");
	run(200, NULL);
	check_header("content-type", "a/b");
	check_header("expires", "0");
	check_header("cache-control", "x");
	check_header("content-language", "nl");
	/* A value that would end the header and start another. */
	begin("GET", "/bkt/meta", "response-content-type=a%0d%0aSet-Cookie:x");
	run(400, "InvalidArgument");
	begin("PUT", "/bkt/meta", "");
	header("x-amz-meta-a", "b\nc");
	run(400, "InvalidArgument");
	begin("PUT", "/bkt/meta", "");
	header("content-encoding", "aws-chunked");
	run(200, NULL);
	begin("GET", "/bkt/meta", "");
	run(200, NULL);
	check_header("content-encoding", "");
}

/* An error that is found when the object is open has none of the object's headers. */
static void test_errors_have_no_headers_of_objects(void **state)
{
	static const char *const METHODS[] = {"GET", "HEAD"};

	(void)state;
	begin("PUT", "/bkt/told", "");
	header("Content-Type", "text/html");
	header("x-amz-meta-one", "1");
	body("body");
	run(200, NULL);
	for (size_t i = 0; i < ARRAY_LEN(METHODS); i++) {
		begin(METHODS[i], "/bkt/told", "");
		header("x-nebulaio-fan-out", "bad!");
		run(400, i ? NULL : "InvalidArgument");
		check_header("content-type", i ? "" : "application/xml");
		check_header("x-amz-meta-one", "");
		check_header("etag", "");
	}
}

static void test_metadata_beyond_ascii(void **state)
{
	(void)state;
	begin("PUT", "/bkt/meta", "");
	header("x-amz-meta-utf8", "Gr\xc3\xbc\xc3\x9f"
				  "e");
	header("x-amz-meta-latin1", "Gr\xfc\xdf"
				    "e");
	header("x-amz-meta-broken", "\xc3\xbc\xff");
	header("x-amz-meta-told", "=?UTF-8?B?w7w=?=");
	run(200, NULL);
	begin("GET", "/bkt/meta", "");
	run(200, NULL);
	check_header("x-amz-meta-utf8", "=?UTF-8?B?R3LDvMOfZQ==?=");
	check_header("x-amz-meta-latin1", "=?UTF-8?B?R3LDvMOfZQ==?=");
	check_header("x-amz-meta-broken", "=?UTF-8?B?w4PCvMO/?=");
	check_header("x-amz-meta-told", "=?UTF-8?B?w7w=?=");
}

static void test_metadata_limit(void **state)
{
	char value[2049];

	(void)state;
	memset(value, 'v', sizeof(value));
	value[2047] = '\0';
	begin("PUT", "/bkt/meta", "");
	header("x-amz-meta-k", value);
	run(200, NULL);
	value[2047] = 'v';
	value[2048] = '\0';
	begin("PUT", "/bkt/meta", "");
	header("x-amz-meta-k", value);
	run(400, "MetadataTooLarge");
}

static void test_ranges(void **state)
{
	(void)state;
	put("/bkt/range", "0123456789");
	begin("GET", "/bkt/range", "");
	header("Range", "bytes=2-4");
	run(206, NULL);
	check_body("234");
	check_header("content-range", "bytes 2-4/10");
	begin("GET", "/bkt/range", "");
	header("Range", "bytes=-3");
	run(206, NULL);
	check_body("789");
	begin("GET", "/bkt/range", "");
	header("Range", "bytes=0-1,4-5");
	run(200, NULL);
	check_body("0123456789");
	begin("GET", "/bkt/range", "");
	header("Range", "bytes=10-");
	run(416, "InvalidRange");
	check_header("content-range", "bytes */10");
	assert_true(fake_reply_has(&call, "<ActualObjectSize>10</ActualObjectSize>"));
	begin("GET", "/bkt/range", "partNumber=1");
	run(206, NULL);
	check_header("content-range", "bytes 0-9/10");
	begin("GET", "/bkt/range", "partNumber=2");
	run(416, "InvalidPartNumber");
	begin("GET", "/bkt/range", "partNumber=0");
	run(400, "InvalidArgument");
	begin("HEAD", "/bkt/range", "");
	header("Range", "bytes=2-4");
	run(206, NULL);
	assert_int_equal(call.reply_bytes, 3);
	begin("GET", "/bkt/range", "");
	header("Range", "bytes=2-4");
	header("If-Range", "\"other\"");
	run(200, NULL);
}

static void test_conditions(void **state)
{
	char now[DATE_HTTP_LEN + 1] = "";

	(void)state;
	put("/bkt/cond", "body");
	begin("GET", "/bkt/cond", "");
	header("If-None-Match", "\"" MD5_OF_BODY "\"");
	run(304, NULL);
	assert_int_equal(call.reply_body.len, 0);
	check_header("etag", "\"" MD5_OF_BODY "\"");
	begin("GET", "/bkt/cond", "");
	header("If-Match", "\"x\"");
	run(412, "PreconditionFailed");
	begin("HEAD", "/bkt/cond", "");
	header("If-Modified-Since", "Fri, 01 Jan 2100 00:00:00 GMT");
	run(200, NULL);
	begin("HEAD", "/bkt/cond", "");
	date_http_format((int64_t)(clock_real_ns() / NS_PER_MS), now);
	header("If-Modified-Since", now);
	run(304, NULL);
	begin("PUT", "/bkt/cond", "");
	header("If-None-Match", "*");
	body("other");
	run(412, "PreconditionFailed");
	begin("PUT", "/bkt/cond", "");
	header("If-Match", "\"" MD5_OF_BODY "\"");
	body("other");
	run(200, NULL);
	begin("PUT", "/bkt/cond", "");
	header("If-Match", "\"" MD5_OF_BODY "\"");
	body("third");
	run(412, "PreconditionFailed");
	begin("PUT", "/bkt/nocond", "");
	header("If-Match", "\"" MD5_OF_BODY "\"");
	run(404, "NoSuchKey");
	begin("PUT", "/bkt/nocond", "");
	header("If-Match", "*");
	run(404, "NoSuchKey");
	begin("PUT", "/bkt/othercond", "");
	header("If-None-Match", "\"x\"");
	run(200, NULL);
	begin("PUT", "/bkt/cond", "");
	header("If-None-Match", "\"795f3202b17cb6bc3d4b771d8c6c9eaf\"");
	run(412, "PreconditionFailed");
	begin("DELETE", "/bkt/cond", "");
	header("If-Match", "\"x\"");
	run(412, "PreconditionFailed");
	begin("GET", "/bkt/cond", "");
	run(200, NULL);
	check_body("other");
}

static void put_with(const char *name, const char *value, uint32_t status, const char *code)
{
	begin("PUT", "/bkt/sum", "");
	header(name, value);
	body("123456789");
	run(status, code);
}

static void test_digests(void **state)
{
	(void)state;
	put_with("Content-MD5", "JfnnlDI7RTiF9RgfGq2vnw==", 400, "BadDigest");
	put_with("Content-MD5", "JfnnlDI7RTiF9RgfGNC3/w", 400, "InvalidDigest");
	put_with("Content-MD5", "", 400, "InvalidDigest");
	put_with("Content-MD5", "JfnnlDI7RTiF9RgfG2JNCw==", 200, NULL);
	put_with("x-amz-checksum-crc32", "y/Q5Jg==", 200, NULL);
	check_header("x-amz-checksum-crc32", "y/Q5Jg==");
	check_header("x-amz-checksum-type", "FULL_OBJECT");
	put_with("x-amz-checksum-crc32c", "4waSgw==", 200, NULL);
	put_with("x-amz-checksum-crc64nvme", CRC64_OF_123456789, 200, NULL);
	put_with("x-amz-checksum-sha1", "98O8HYCOBHMqz/6ZAgTkfSiNPqs=", 400, "BadDigest");
	put_with("x-amz-checksum-sha1", "98O8HYCOBHMq+kBZfKNEGDC/7jE=", 400, "BadDigest");
	put_with("x-amz-checksum-sha256", "FeKw09M81nwtmlDWjJyOtnIZ/aLf6ZN1zdkNAAAAAAA=", 400,
		"BadDigest");
	put_with("x-amz-checksum-crc32", "y/Q5Jw==", 400, "BadDigest");
	put_with("x-amz-checksum-crc32", "y/Q5", 400, "InvalidRequest");
	put_with("x-amz-checksum-crc32", "!", 400, "InvalidRequest");
	put_with("x-amz-sdk-checksum-algorithm", "CRC32", 400, "InvalidRequest");
	/* The signed digest of HTTP, on a session. */
	put_with("x-amz-content-sha256", SHA256_OF_123456789, 200, NULL);
	put_with("x-amz-content-sha256", SHA256_OF_123456788, 400, "XAmzContentSHA256Mismatch");
	put_with("x-amz-content-sha256", "UNSIGNED-PAYLOAD", 200, NULL);
	put_with("x-amz-content-sha256", "123", 400, "InvalidArgument");
	put_with("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER", 400,
		"InvalidRequest");
	put_with("x-amz-checksum-crc64nvme", CRC64_OF_123456789, 200, NULL);
	begin("PUT", "/bkt/sum", "");
	header("x-amz-checksum-crc32", "y/Q5Jg==");
	header("x-amz-checksum-crc32c", "4waSgw==");
	body("123456789");
	run(400, "InvalidRequest");
	/* A refused request left the object as it was. */
	begin("GET", "/bkt/sum", "");
	header("x-amz-checksum-mode", "ENABLED");
	run(200, NULL);
	check_header("x-amz-checksum-crc64nvme", CRC64_OF_123456789);
	begin("GET", "/bkt/sum", "");
	header("x-amz-checksum-mode", "ENABLED");
	header("Range", "bytes=0-1");
	run(206, NULL);
	check_header("x-amz-checksum-crc64nvme", "");
}

static void put_trailer(const char *trailer, uint32_t status, const char *code)
{
	begin("PUT", "/bkt/trailer", "");
	header("x-amz-trailer", "x-amz-checksum-crc32");
	header("x-amz-sdk-checksum-algorithm", "CRC32");
	body("123456789");
	call.trailer = slice_str(trailer);
	run(status, code);
}

static void test_trailers(void **state)
{
	(void)state;
	put_trailer("y/Q5Jg==", 200, NULL);
	check_header("x-amz-checksum-crc32", "y/Q5Jg==");
	put_trailer("y/Q5Jw==", 400, "BadDigest");
	put_trailer("", 400, "MalformedTrailerError");
	put_trailer("!!", 400, "MalformedTrailerError");
	begin("PUT", "/bkt/trailer", "");
	header("x-amz-trailer", "x-other");
	body("x");
	run(400, "InvalidRequest");
}

static void test_etag_by_transport(void **state)
{
	(void)state;
	begin("PUT", "/bkt/native", "");
	call.request.transport = "rdma";
	body("123456789");
	run(200, NULL);
	check_header("etag", "\"ae8b14860a799888-9\"");
	begin("PUT", "/bkt/native", "");
	call.request.transport = "rdma";
	header("x-nebulaio-etag", "md5");
	body("body");
	run(200, NULL);
	check_header("etag", "\"" MD5_OF_BODY "\"");
	/* A copy of an object that has none. */
	begin("PUT", "/bkt/native", "");
	call.request.transport = "rdma";
	body("body");
	run(200, NULL);
	begin("PUT", "/bkt/copy", "");
	call.request.transport = "rdma";
	header("x-amz-copy-source", "bkt/native");
	header("x-nebulaio-etag", "md5");
	run(200, NULL);
	assert_true(fake_reply_has(&call, MD5_OF_BODY));
}

/* A native request may have no headers at all; then the bucket's class is stored, too. */
static void test_class_of_a_memory_bucket(void **state)
{
	(void)state;
	begin("PUT", "/mem", "");
	header("x-nebulaio-memory", "bytes=1MiB");
	run(200, NULL);
	begin("PUT", "", "");
	call.request.opcode = CAPSULE_OP_PUT;
	call.request.bucket = SLICE("mem");
	call.request.key = SLICE("native");
	call.request.transport = "rdma";
	body("body");
	run(200, NULL);
	begin("HEAD", "/mem/native", "");
	run(200, NULL);
	/* The bucket's own store, in the engine on volumes, does not count what it closes. */
	fake_open_puts = fake_open_gets = 0;
	check_header("x-amz-storage-class", "MEMORY");
	begin("GET", "/mem", "");
	run(200, NULL);
	assert_true(fake_reply_has(&call, "<StorageClass>MEMORY</StorageClass>"));
}

static void test_native_opcodes(void **state)
{
	(void)state;
	begin("PUT", "", "");
	call.request.opcode = CAPSULE_OP_PUT;
	call.request.bucket = SLICE("bkt");
	call.request.key = SLICE("a/../b c");
	call.request.transport = "rdma";
	body("body");
	run(200, NULL);
	begin("GET", "", "");
	call.request.opcode = CAPSULE_OP_GET;
	call.request.bucket = SLICE("bkt");
	call.request.key = SLICE("a/../b c");
	run(200, NULL);
	check_body("body");
	begin("GET", "/bkt/a/../b%20c", "");
	run(200, NULL);
	check_body("body");
	begin("HEAD", "", "");
	call.request.opcode = CAPSULE_OP_HEAD;
	call.request.bucket = SLICE("bkt");
	call.request.key = SLICE("missing");
	run(404, NULL);
	begin("GET", "", "prefix=a/");
	call.request.opcode = CAPSULE_OP_LIST;
	call.request.bucket = SLICE("bkt");
	run(200, NULL);
	assert_true(fake_reply_has(&call, "<Key>a/../b c</Key>"));
	begin("PUT", "", "");
	call.request.opcode = CAPSULE_OP_PUT;
	call.request.bucket = SLICE("bkt");
	call.request.key = SLICE("copy");
	header("x-amz-copy-source", "bkt/a/../b%20c");
	run(200, NULL);
	assert_true(fake_reply_has(&call, "<CopyObjectResult"));
	begin("DELETE", "", "");
	call.request.opcode = CAPSULE_OP_DELETE;
	call.request.bucket = SLICE("bkt");
	call.request.key = SLICE("copy");
	run(204, NULL);
	begin("GET", "", "");
	call.request.opcode = CAPSULE_OP_GET;
	call.request.bucket = SLICE("bkt");
	call.request.key = SLICE("\xff");
	run(400, "InvalidArgument");
}

static void copy(const char *to, const char *from, uint32_t status, const char *code)
{
	begin("PUT", to, "");
	header("x-amz-copy-source", from);
	run(status, code);
}

static void test_copy(void **state)
{
	(void)state;
	begin("PUT", "/bkt/from%20+me", "");
	header("x-amz-meta-a", "1");
	header("content-type", "text/plain");
	header("x-amz-checksum-crc32c", "4waSgw==");
	body("123456789");
	run(200, NULL);
	copy("/bkt/to", "/bkt/from%20%2Bme", 200, NULL);
	assert_true(
		fake_reply_has(&call, "<ETag>&quot;25f9e794323b453885f5181f1b624d0b&quot;</ETag>"));
	assert_true(fake_reply_has(&call, "<ChecksumCRC32C>4waSgw==</ChecksumCRC32C>"));
	begin("GET", "/bkt/to", "");
	run(200, NULL);
	check_body("123456789");
	check_header("x-amz-meta-a", "1");
	check_header("content-type", "text/plain");
	copy("/bkt/to2", "bkt/from%20%2Bme?versionId=null", 200, NULL);
	copy("/bkt/to2", "bkt/from%20%2Bme?versionId=abc", 400, "InvalidArgument");
	copy("/bkt/to2", "bkt/from%20%2Bme?versionId=0123456789abcdef", 404, "NoSuchVersion");
	copy("/bkt/to2", "bkt/none", 404, "NoSuchKey");
	copy("/bkt/to2", "nobkt/none", 404, "NoSuchBucket");
	copy("/nobkt/to2", "bkt/to", 404, "NoSuchBucket");
	copy("/bkt/to2", "bkt", 400, "InvalidArgument");
	copy("/bkt/to2", "bkt/%zz", 400, "InvalidArgument");
	copy("/bkt/to", "bkt/to", 400, "InvalidRequest");
	begin("PUT", "/bkt/to", "");
	header("x-amz-copy-source", "bkt/to");
	header("x-amz-metadata-directive", "REPLACE");
	header("x-amz-meta-b", "2");
	header("x-amz-checksum-algorithm", "SHA256");
	run(200, NULL);
	assert_true(fake_reply_has(&call, "<ChecksumSHA256>"));
	begin("GET", "/bkt/to", "");
	run(200, NULL);
	check_body("123456789");
	check_header("x-amz-meta-a", "");
	check_header("x-amz-meta-b", "2");
	begin("PUT", "/bkt/to", "");
	header("x-amz-copy-source", "bkt/to");
	header("x-amz-metadata-directive", "SOME");
	run(400, "InvalidArgument");
}

static void copy_if(const char *name, const char *value, uint32_t status, const char *code)
{
	begin("PUT", "/bkt/copied", "");
	header("x-amz-copy-source", "bkt/source");
	header(name, value);
	run(status, code);
}

static void test_copy_conditions(void **state)
{
	char now[DATE_HTTP_LEN + 1] = "";

	(void)state;
	put("/bkt/source", "body");
	date_http_format((int64_t)(clock_real_ns() / NS_PER_MS), now);
	copy_if("x-amz-copy-source-if-match", "\"" MD5_OF_BODY "\"", 200, NULL);
	copy_if("x-amz-copy-source-if-match", "\"x\"", 412, "PreconditionFailed");
	copy_if("x-amz-copy-source-if-none-match", MD5_OF_BODY, 412, "PreconditionFailed");
	copy_if("x-amz-copy-source-if-none-match", "x", 200, NULL);
	copy_if("x-amz-copy-source-if-modified-since", "Fri, 01 Jan 2100 00:00:00 GMT", 200, NULL);
	copy_if("x-amz-copy-source-if-modified-since", now, 412, "PreconditionFailed");
	copy_if("x-amz-copy-source-if-unmodified-since", "Thu, 01 Jan 1998 00:00:00 GMT", 412,
		"PreconditionFailed");
}

static void test_delete_many(void **state)
{
	(void)state;
	put("/bkt/d1", "1");
	put("/bkt/d2", "2");
	begin("POST", "/bkt", "delete");
	header("Content-MD5", "kV4WZNDI8GC5ZoiiPPhXHg==");
	body("<Delete><Object><Key>d1</Key></Object></Delete>");
	run(400, "BadDigest");
	begin("POST", "/bkt", "delete");
	body("<Delete><Object><Key>d1</Key></Object></Delete>");
	run(400, "InvalidRequest");
	begin("POST", "/bkt", "delete");
	header("x-amz-checksum-crc32", "AAAAAA==");
	body("");
	run(400, "MissingRequestBodyError");
}

static void delete_many(const char *xml, uint32_t status, const char *code)
{
	char text[BASE64_LEN(4) + 1] = "";
	uint8_t digest[CHECKSUM_BYTES_MAX];

	checksum_of(CHECKSUM_CRC32, xml, strlen(xml), digest);
	base64_encode(digest, 4, text);
	begin("POST", "/bkt", "delete");
	header("x-amz-checksum-crc32", text);
	body(xml);
	run(status, code);
}

static void test_delete_outcomes(void **state)
{
	(void)state;
	put("/bkt/d1", "1");
	put("/bkt/d2", "2");
	delete_many("<Delete><Object><Key>d1</Key></Object><Object><Key>none&amp;</Key></Object>"
		    "<Object><Key>d2</Key><VersionId>abc</VersionId></Object></Delete>",
		200, NULL);
	assert_true(fake_reply_has(&call, "<Deleted><Key>d1</Key></Deleted>"));
	assert_true(fake_reply_has(&call, "<Deleted><Key>none&amp;</Key></Deleted>"));
	assert_true(fake_reply_has(
		&call, "<Error><Key>d2</Key><VersionId>abc</VersionId><Code>NoSuchVersion</Code>"));
	begin("GET", "/bkt/d1", "");
	run(404, NULL);
	delete_many(
		"<Delete><Quiet>true</Quiet><Object><Key>d2</Key></Object></Delete>", 200, NULL);
	assert_false(fake_reply_has(&call, "<Deleted>"));
	begin("GET", "/bkt/d2", "");
	run(404, NULL);
	delete_many("<Delete></Delete>", 400, "MalformedXML");
	delete_many("<Delete><Object></Object></Delete>", 400, "MalformedXML");
	delete_many("<Other/>", 400, "MalformedXML");
	delete_many("<Delete", 400, "MalformedXML");
}

static void test_delete_too_many(void **state)
{
	struct buf xml;

	(void)state;
	buf_init(&xml, MIB);
	buf_put_str(&xml, "<Delete>");
	for (int i = 0; i <= LIMIT_DELETE_KEYS_MAX; i++)
		buf_printf(&xml, "<Object><Key>%d</Key></Object>", i);
	buf_put(&xml, "</Delete>", sizeof("</Delete>"));
	delete_many(xml.data, 400, "MalformedXML");
	buf_free(&xml);
}

static void test_declined(void **state)
{
	static const char *const headers[][2] = {{"x-amz-write-offset-bytes", "1"},
		{"x-amz-rename-source", "/x"}, {"x-amz-server-side-encryption-context", "e30="}};

	(void)state;
	for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
		begin("PUT", "/bkt/declined", "");
		header(headers[i][0], headers[i][1]);
		body("x");
		run(501, "NotImplemented");
	}
	begin("GET", "/bkt/declined", "");
	run(404, "NoSuchKey");
	begin("PUT", "/bkt/declined", "");
	header("x-amz-acl", "private");
	run(200, NULL);
	begin("PUT", "/bkt/declined", "");
	header("x-amz-acl", "nonsense");
	run(400, "InvalidArgument");
	begin("PUT", "/bkt/declined", "");
	header("x-amz-grant-read", "id=1");
	run(400, "InvalidArgument");
	begin("PUT", "/bkt/declined", "");
	header("x-amz-storage-class", "nonsense");
	run(400, "InvalidStorageClass");
	begin("GET", "/bkt/declined", "tagging");
	run(200, NULL);
	assert_true(fake_reply_has(&call, "<TagSet></TagSet>"));
	begin("GET", "/bkt/declined", "versionId=abc");
	run(400, "InvalidArgument");
	begin("GET", "/bkt/declined", "versionId=");
	run(400, "InvalidArgument");
	begin("GET", "/bkt/declined", "versionId=0123456789abcdef");
	run(404, "NoSuchVersion");
	begin("PUT", "/bkt/declined", "");
	header("x-amz-object-lock-mode", "GOVERNANCE");
	body("x");
	run(400, "InvalidRequest");
}

static void test_lengths(void **state)
{
	(void)state;
	begin("PUT", "/bkt/length", "");
	body("x");
	call.body.bytes = UINT64_MAX;
	run(411, "MissingContentLength");
	begin("PUT", "/bkt/length", "");
	header("Transfer-Encoding", "chunked");
	body("x");
	call.body.bytes = UINT64_MAX;
	run(200, NULL);
	begin("PUT", "/bkt/length", "");
	body("x");
	call.body.bytes = LIMIT_PUT_BYTES_MAX + 1;
	run(400, "EntityTooLarge");
	begin("PUT", "/bkt/length", "");
	body("x");
	call.body.bytes = 2;
	run(400, "IncompleteBody");
	begin("POST", "/bkt", "delete");
	header("x-amz-checksum-crc32", "AAAAAA==");
	body("x");
	call.body.bytes = LIMIT_XML_BODY_BYTES_MAX + 1;
	run(400, "MaxMessageLengthExceeded");
}

static void test_failures(void **state)
{
	(void)state;
	put("/bkt/fail", "body");
	begin("PUT", "/bkt/fail", "");
	body("other");
	call.body_error = -EPIPE;
	run(400, "IncompleteBody");
	begin("PUT", "/bkt/fail", "");
	body("other");
	call.body_error = -EBADMSG;
	run(403, "SignatureDoesNotMatch");
	fake_put_error = -ENOSPC;
	begin("PUT", "/bkt/fail", "");
	body("other");
	run(507, "InsufficientStorage");
	fake_put_error = 0;
	fake_commit_error = -EIO;
	begin("PUT", "/bkt/fail", "");
	body("other");
	run(500, "InternalError");
	fake_commit_error = 0;
	begin("GET", "/bkt/fail", "");
	run(200, NULL);
	check_body("body");
	assert_false(call.reply.broken);
	/* After the head, a failure can only break the reply. */
	fake_read_error = -EIO;
	begin("GET", "/bkt/fail", "");
	run(200, NULL);
	assert_true(call.reply.broken);
}

static void test_attributes(void **state)
{
	(void)state;
	put("/bkt/attr", "123456789");
	begin("GET", "/bkt/attr", "attributes");
	header("x-amz-object-attributes", "ETag, ObjectSize");
	header("x-amz-object-attributes", "Checksum");
	run(200, NULL);
	assert_true(fake_reply_has(&call, "<ObjectSize>9</ObjectSize>"));
	assert_true(fake_reply_has(&call, "<ETag>25f9e794323b453885f5181f1b624d0b</ETag>"));
	assert_true(fake_reply_has(&call, "<ChecksumCRC64NVME>" CRC64_OF_123456789));
	assert_false(fake_reply_has(&call, "StorageClass"));
	begin("GET", "/bkt/attr", "attributes");
	run(400, "InvalidRequest");
	begin("GET", "/bkt/attr", "attributes");
	header("x-amz-object-attributes", "Colour");
	run(400, "InvalidArgument");
}

#define OBJECT_TEST(test) cmocka_unit_test_setup_teardown(test, bucket_setup, nothing_open)

static int tests_run(void)
{
	const struct CMUnitTest tests[] = {
		OBJECT_TEST(test_put_get_head_delete),
		OBJECT_TEST(test_empty_object),
		OBJECT_TEST(test_small_bodies_count_when_told),
		OBJECT_TEST(test_headers_are_kept),
		OBJECT_TEST(test_errors_have_no_headers_of_objects),
		OBJECT_TEST(test_metadata_beyond_ascii),
		OBJECT_TEST(test_metadata_limit),
		OBJECT_TEST(test_ranges),
		OBJECT_TEST(test_conditions),
		OBJECT_TEST(test_digests),
		OBJECT_TEST(test_trailers),
		OBJECT_TEST(test_etag_by_transport),
		OBJECT_TEST(test_class_of_a_memory_bucket),
		OBJECT_TEST(test_native_opcodes),
		OBJECT_TEST(test_copy),
		OBJECT_TEST(test_copy_conditions),
		OBJECT_TEST(test_delete_many),
		OBJECT_TEST(test_delete_outcomes),
		OBJECT_TEST(test_delete_too_many),
		OBJECT_TEST(test_declined),
		OBJECT_TEST(test_lengths),
		OBJECT_TEST(test_failures),
		OBJECT_TEST(test_attributes),
	};

	return cmocka_run_group_tests(tests, fake_open, fake_close);
}

int main(void)
{
	return fake_main(tests_run);
}
