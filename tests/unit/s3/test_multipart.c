/* Covers multipart uploads: their life, the checks on them, and that they leave nothing behind. */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "document/document.h"
#include "fake.h"
#include "s3/object/multipart.h"
#include "s3/origin.h"

static struct fake_call call;	  /* the last one */
static char upload_id[64];	  /* of the last create */
static char big[5 * MIB + 12345]; /* a part */

static int open_all(void **state)
{
	for (size_t i = 0; i < sizeof(big); i++)
		big[i] = (char)(i * 7 + i / 4096);
	if (fake_open(state))
		return -1;
	fake_call_init(&call, "PUT", "/bkt", "");
	fake_call_run(fake_s3, &call);
	return 0;
}

static int close_all(void **state)
{
	fake_call_free(&call);
	return fake_close(state);
}

static void begin(const char *method, const char *path, const char *query)
{
	fake_call_free(&call);
	fake_call_init(&call, method, path, query);
}

static void run(uint32_t status, const char *code)
{
	char element[64];

	fake_call_run(fake_s3, &call);
	if (call.reply.status != status)
		fail_msg("answered %u: %.*s", call.reply.status, (int)call.reply_body.len,
			call.reply_body.data);
	if (!code)
		return;
	snprintf(element, sizeof(element), "<Code>%s</Code>", code);
	assert_true(fake_reply_has(&call, element));
}

static void create(const char *path, const char *algorithm)
{
	ptrdiff_t at;

	begin("POST", path, "uploads");
	fake_call_header(&call, "Content-Type", "text/plain");
	fake_call_header(&call, "x-amz-meta-a", "1");
	if (algorithm)
		fake_call_header(&call, "x-amz-checksum-algorithm", algorithm);
	run(200, NULL);
	at = slice_find(buf_slice(&call.reply_body), SLICE("<UploadId>"));
	assert_true(at > 0);
	snprintf(upload_id, sizeof(upload_id), "%.*s", (int)S3_UPLOAD_ID_LEN,
		call.reply_body.data + at + strlen("<UploadId>"));
}

static void part_begin(const char *path, int number)
{
	static char query[128];

	snprintf(query, sizeof(query), "partNumber=%d&uploadId=%s", number, upload_id);
	begin("PUT", path, query);
}

/* The parts' checksums in the completion of an upload with a composite checksum. */
static char sum_xml[4][128];

static void note_sum(int number)
{
	static const char *const names[][2] = {{"x-amz-checksum-crc32", "ChecksumCRC32"},
		{"x-amz-checksum-sha256", "ChecksumSHA256"}};

	if (number >= (int)ARRAY_LEN(sum_xml))
		return;
	sum_xml[number][0] = 0;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct slice sum = fake_reply_header(&call, names[i][0]);

		if (sum.len)
			snprintf(sum_xml[number], sizeof(sum_xml[number]), "<%s>%.*s</%s>",
				names[i][1], SLICE_FMT(sum), names[i][1]);
	}
}

/* Uploads a part and notes its ETag. */
static void put_part(const char *path, int number, struct slice text, char etag[40])
{
	part_begin(path, number);
	fake_call_body(&call, text);
	run(200, NULL);
	assert_int_equal(slice_copy_str(fake_reply_header(&call, "etag"), etag, 40), 0);
	note_sum(number);
}

static void complete(const char *path, const char *xml, uint32_t status, const char *code)
{
	static char query[128];

	snprintf(query, sizeof(query), "uploadId=%s", upload_id);
	begin("POST", path, query);
	fake_call_body(&call, slice_str(xml));
	run(status, code);
}

static void list(const char *query, const char *text)
{
	begin("GET", "/bkt", query);
	run(200, NULL);
	if (!fake_reply_has(&call, text))
		fail_msg("%s not in %.*s", text, (int)call.reply_body.len, call.reply_body.data);
}

static void upload(const char *path, const char *algorithm)
{
	char first[40], second[40], xml[512];

	create(path, algorithm);
	put_part(path, 1, slice_of(big, sizeof(big)), first);
	put_part(path, 3, SLICE("tail"), second);
	snprintf(xml, sizeof(xml),
		"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>%s</ETag>%s"
		"</Part><Part><ETag>%s</ETag><PartNumber>3</PartNumber>%s</Part>"
		"</CompleteMultipartUpload>",
		first, algorithm ? sum_xml[1] : "", second, algorithm ? sum_xml[3] : "");
	complete(path, xml, 200, NULL);
}

static void check_object(const char *path)
{
	begin("GET", path, "");
	fake_call_header(&call, "x-amz-checksum-mode", "ENABLED");
	run(200, NULL);
	assert_int_equal(call.reply_body.len, sizeof(big) + 4);
	assert_memory_equal(call.reply_body.data, big, sizeof(big));
	assert_memory_equal(call.reply_body.data + sizeof(big), "tail", 4);
	assert_true(slice_eq(fake_reply_header(&call, "content-type"), SLICE("text/plain")));
	assert_true(slice_eq(fake_reply_header(&call, "x-amz-meta-a"), SLICE("1")));
	assert_true(slice_ends(fake_reply_header(&call, "etag"), SLICE("-2\"")));
}

static void test_life(void **state)
{
	uint8_t digest[CHECKSUM_BYTES_MAX], md5s[2 * MD5_BYTES];
	char hex[2 * MD5_BYTES + 1] = "", text[CHECKSUM_TEXT_LEN_MAX];
	static char whole[sizeof(big) + 4];

	(void)state;
	upload("/bkt/a%20b", NULL);
	check_object("/bkt/a%20b");
	/* The published rule: the MD5 of the parts' MD5s. */
	md5_of(big, sizeof(big), md5s);
	md5_of("tail", 4, md5s + MD5_BYTES);
	md5_of(md5s, sizeof(md5s), digest);
	hex_encode(digest, MD5_BYTES, hex);
	assert_memory_equal(fake_reply_header(&call, "etag").data + 1, hex, 32);
	assert_true(
		slice_eq(fake_reply_header(&call, "x-amz-checksum-type"), SLICE("FULL_OBJECT")));
	/* The object's CRC, computed from the parts'. */
	memcpy(whole, big, sizeof(big));
	memcpy(whole + sizeof(big), "tail", 4);
	checksum_of(CHECKSUM_CRC64NVME, whole, sizeof(whole), digest);
	assert_true(slice_eq(fake_reply_header(&call, "x-amz-checksum-crc64nvme"),
		slice_of(text, base64_encode(digest, 8, text))));
	/* Nothing of the upload is left, and its hidden bucket is not visible. */
	list("uploads", "<IsTruncated>false</IsTruncated></ListMultipartUploadsResult>");
	begin("GET", "/", "");
	run(200, NULL);
	assert_false(fake_reply_has(&call, S3_UPLOADS_BUCKET));
	begin("GET", "/.uploads", "");
	run(400, "InvalidBucketName");
	complete("/bkt/a%20b", "<CompleteMultipartUpload/>", 404, "NoSuchUpload");
}

static void read_part(int number, uint64_t offset, uint64_t bytes)
{
	char query[32], range[64];

	snprintf(query, sizeof(query), "partNumber=%d", number);
	snprintf(range, sizeof(range), "bytes %llu-%llu/%llu", (unsigned long long)offset,
		(unsigned long long)(offset + bytes - 1), (unsigned long long)sizeof(big) + 4);
	begin("GET", "/bkt/read", query);
	run(206, NULL);
	assert_int_equal(call.reply_body.len, bytes);
	assert_true(slice_eq(fake_reply_header(&call, "content-range"), slice_str(range)));
	assert_true(slice_eq(fake_reply_header(&call, "x-amz-mp-parts-count"), SLICE("2")));
}

/* Reads by part number count the object's parts from 1, whatever their numbers were. */
static void test_read_by_parts(void **state)
{
	(void)state;
	upload("/bkt/read", NULL);
	read_part(1, 0, sizeof(big));
	read_part(2, sizeof(big), 4);
	assert_memory_equal(call.reply_body.data, "tail", 4);
	begin("GET", "/bkt/read", "partNumber=3");
	run(416, "InvalidPartNumber");
	begin("GET", "/bkt/read", "");
	run(200, NULL);
	assert_int_equal(fake_reply_header(&call, "x-nebulaio-parts").len, 0);
	begin("GET", "/bkt/read", "attributes");
	fake_call_header(&call, "x-amz-object-attributes", "ObjectParts");
	run(200, NULL);
	assert_true(fake_reply_has(
		&call, "<ObjectParts><PartsCount>2</PartsCount><PartNumberMarker>0"));
	/* A copy has one part, with an MD5 of its own. */
	begin("PUT", "/bkt/read2", "");
	fake_call_header(&call, "x-amz-copy-source", "bkt/read");
	run(200, NULL);
	begin("GET", "/bkt/read2", "partNumber=1");
	run(206, NULL);
	assert_int_equal(call.reply_body.len, sizeof(big) + 4);
	assert_int_equal(fake_reply_header(&call, "etag").len, 34);
	assert_true(slice_eq(fake_reply_header(&call, "x-amz-meta-a"), SLICE("1")));
}

static void test_composite_checksum(void **state)
{
	uint8_t sums[2 * CHECKSUM_BYTES_MAX], digest[CHECKSUM_BYTES_MAX];
	char text[CHECKSUM_TEXT_LEN_MAX + 8] = "";
	size_t len;

	(void)state;
	upload("/bkt/composite", "CRC32");
	check_object("/bkt/composite");
	checksum_of(CHECKSUM_CRC32, big, sizeof(big), sums);
	checksum_of(CHECKSUM_CRC32, "tail", 4, sums + 4);
	checksum_of(CHECKSUM_CRC32, sums, 8, digest);
	len = base64_encode(digest, 4, text);
	memcpy(text + len, "-2", 3);
	assert_true(slice_eq(fake_reply_header(&call, "x-amz-checksum-crc32"), slice_str(text)));
	assert_true(slice_eq(fake_reply_header(&call, "x-amz-checksum-type"), SLICE("COMPOSITE")));
}

/* Checks that the hidden bucket is empty: otherwise it could not be deleted. */
static void nothing_is_left(void)
{
	struct store_bucket bucket = {.name = S3_UPLOADS_BUCKET};

	assert_int_equal(store_bucket_delete(fake_store, SLICE(S3_UPLOADS_BUCKET), 0), 0);
	assert_int_equal(store_bucket_create(fake_store, &bucket), 0);
}

static void test_full_object_checksum_and_unnamed_parts(void **state)
{
	static char whole[sizeof(big) + 4];
	char first[40], second[40], ignored[40], xml[256], text[CHECKSUM_TEXT_LEN_MAX];
	uint8_t digest[CHECKSUM_BYTES_MAX];

	(void)state;
	begin("POST", "/bkt/full", "uploads");
	fake_call_header(&call, "x-amz-checksum-algorithm", "CRC32C");
	fake_call_header(&call, "x-amz-checksum-type", "FULL_OBJECT");
	run(200, NULL);
	snprintf(upload_id, sizeof(upload_id), "%.*s", (int)S3_UPLOAD_ID_LEN,
		call.reply_body.data +
			slice_find(buf_slice(&call.reply_body), SLICE("<UploadId>")) +
			strlen("<UploadId>"));
	put_part("/bkt/full", 1, SLICE("before"), ignored);
	put_part("/bkt/full", 2, slice_of(big, sizeof(big)), first);
	put_part("/bkt/full", 4, SLICE("between"), ignored);
	put_part("/bkt/full", 5, SLICE("tail"), second);
	put_part("/bkt/full", 10000, SLICE("after"), ignored);
	snprintf(xml, sizeof(xml),
		"<CompleteMultipartUpload><Part><PartNumber>2</PartNumber><ETag>%s</ETag></Part>"
		"<Part><ETag>%s</ETag><PartNumber>5</PartNumber></Part></CompleteMultipartUpload>",
		first, second);
	complete("/bkt/full", xml, 200, NULL);
	begin("GET", "/bkt/full", "");
	fake_call_header(&call, "x-amz-checksum-mode", "ENABLED");
	run(200, NULL);
	memcpy(whole, big, sizeof(big));
	memcpy(whole + sizeof(big), "tail", 4);
	assert_int_equal(call.reply_body.len, sizeof(whole));
	assert_memory_equal(call.reply_body.data, whole, sizeof(whole));
	checksum_of(CHECKSUM_CRC32C, whole, sizeof(whole), digest);
	assert_true(slice_eq(fake_reply_header(&call, "x-amz-checksum-crc32c"),
		slice_of(text, base64_encode(digest, 4, text))));
	nothing_is_left();
}

/* The commit's errors when the upload changes meanwhile. */
static void test_stale_completions(void **state)
{
	char etag[40], xml[256];

	(void)state;
	create("/bkt/stale", NULL);
	put_part("/bkt/stale", 1, SLICE("one"), etag);
	snprintf(xml, sizeof(xml),
		"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>%s</ETag></Part>"
		"</CompleteMultipartUpload>",
		etag);
	fake_commit_error = -ESTALE;
	complete("/bkt/stale", xml, 400, "InvalidPart");
	fake_commit_error = -EFBIG;
	complete("/bkt/stale", xml, 400, "EntityTooLarge");
	fake_commit_error = 0;
	begin("GET", "/bkt/stale", "");
	run(404, "NoSuchKey");
	complete("/bkt/stale", xml, 200, NULL);
	/* A repeated completion gets the same answer; one with other parts gets NoSuchUpload. */
	complete("/bkt/stale", xml, 200, NULL);
	complete("/bkt/stale",
		"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>x</ETag></Part>"
		"</CompleteMultipartUpload>",
		404, "NoSuchUpload");
	begin("PUT", "/bkt/stale", "");
	run(200, NULL);
	complete("/bkt/stale", xml, 404, "NoSuchUpload");
	nothing_is_left();
}

static void test_refused_completions(void **state)
{
	char first[40], second[40], xml[512];

	(void)state;
	create("/bkt/refused", "SHA256");
	put_part("/bkt/refused", 1, SLICE("small"), first);
	put_part("/bkt/refused", 2, SLICE("tail"), second);
	complete("/bkt/refused", "<Complete", 400, "MalformedXML");
	complete("/bkt/refused", "<CompleteMultipartUpload/>", 400, "MalformedXML");
	complete("/bkt/refused", "<CompleteMultipartUpload><Part/></CompleteMultipartUpload>", 400,
		"MalformedXML");
	snprintf(xml, sizeof(xml),
		"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>%s</ETag></Part>"
		"<Part><ETag>%s</ETag><PartNumber>2</PartNumber></Part></CompleteMultipartUpload>",
		first, second);
	complete("/bkt/refused", xml, 400, "InvalidRequest");
	snprintf(xml, sizeof(xml),
		"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>%s</ETag>%s"
		"</Part><Part><ETag>%s</ETag><PartNumber>2</PartNumber>%s</Part>"
		"</CompleteMultipartUpload>",
		first, sum_xml[1], second, sum_xml[2]);
	complete("/bkt/refused", xml, 400, "EntityTooSmall");
	snprintf(xml, sizeof(xml),
		"<CompleteMultipartUpload><Part><PartNumber>2</PartNumber><ETag>%s</ETag></Part>"
		"<Part><ETag>%s</ETag><PartNumber>1</PartNumber></Part></CompleteMultipartUpload>",
		second, first);
	complete("/bkt/refused", xml, 400, "InvalidPartOrder");
	snprintf(xml, sizeof(xml),
		"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>%s</ETag></Part>"
		"</CompleteMultipartUpload>",
		second);
	complete("/bkt/refused", xml, 400, "InvalidPart");
	snprintf(xml, sizeof(xml),
		"<CompleteMultipartUpload><Part><PartNumber>7</PartNumber><ETag>%s</ETag></Part>"
		"</CompleteMultipartUpload>",
		second);
	complete("/bkt/refused", xml, 400, "InvalidPart");
	snprintf(xml, sizeof(xml),
		"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>%s</ETag>"
		"<ChecksumSHA256>AAAA</ChecksumSHA256></Part></CompleteMultipartUpload>",
		first);
	complete("/bkt/refused", xml, 400, "InvalidPart");
	begin("GET", "/bkt/refused", "");
	run(404, "NoSuchKey");
}

static void test_parts(void **state)
{
	char etag[40], query[160];

	(void)state;
	create("/bkt/parts", NULL);
	put_part("/bkt/parts", 2, SLICE("two"), etag);
	put_part("/bkt/parts", 1, SLICE("one"), etag);
	put_part("/bkt/parts", 1, SLICE("uno!"), etag);
	part_begin("/bkt/parts", 0);
	run(400, "InvalidArgument");
	part_begin("/bkt/parts", 10001);
	run(400, "InvalidArgument");
	part_begin("/bkt/other", 1);
	run(404, "NoSuchUpload");
	part_begin("/bkt/parts", 3);
	fake_call_header(&call, "Content-MD5", "kV4WZNDI8GC5ZoiiPPhXHg==");
	fake_call_body(&call, SLICE("x"));
	run(400, "BadDigest");
	snprintf(query, sizeof(query), "uploadId=%s", upload_id);
	begin("GET", "/bkt/parts", query);
	run(200, NULL);
	assert_true(fake_reply_has(&call, "<PartNumber>1</PartNumber>"));
	assert_true(fake_reply_has(&call, "<Size>4</Size>"));
	assert_true(fake_reply_has(&call, "<PartNumber>2</PartNumber>"));
	assert_false(fake_reply_has(&call, "<PartNumber>3</PartNumber>"));
	/* It counts as a listing. */
	fake_walks_refused = true;
	begin("GET", "/bkt/parts", query);
	run(503, "SlowDown");
	assert_true(slice_eq(fake_reply_header(&call, "retry-after"), SLICE("1")));
	fake_walks_refused = false;
	snprintf(query, sizeof(query), "uploadId=%s&max-parts=1", upload_id);
	begin("GET", "/bkt/parts", query);
	run(200, NULL);
	assert_true(fake_reply_has(&call, "<NextPartNumberMarker>1</NextPartNumberMarker>"));
	snprintf(query, sizeof(query), "uploadId=%s&part-number-marker=1", upload_id);
	begin("GET", "/bkt/parts", query);
	run(200, NULL);
	assert_false(fake_reply_has(&call, "<PartNumber>1</PartNumber>"));
	snprintf(query, sizeof(query), "uploadId=%s", upload_id);
	begin("DELETE", "/bkt/parts", query);
	run(204, NULL);
	begin("DELETE", "/bkt/parts", query);
	run(404, "NoSuchUpload");
	begin("GET", "/bkt/parts", query);
	run(404, "NoSuchUpload");
}

static void test_copied_part(void **state)
{
	char xml[256], etag[40];
	ptrdiff_t at;

	(void)state;
	begin("PUT", "/bkt/whole", "");
	fake_call_body(&call, SLICE("0123456789"));
	run(200, NULL);
	create("/bkt/copied", NULL);
	part_begin("/bkt/copied", 1);
	fake_call_header(&call, "x-amz-copy-source", "bkt/whole");
	fake_call_header(&call, "x-amz-copy-source-range", "bytes=2-5");
	run(200, NULL);
	at = slice_find(buf_slice(&call.reply_body), SLICE("<ETag>&quot;"));
	snprintf(etag, sizeof(etag), "%.32s", call.reply_body.data + at + strlen("<ETag>&quot;"));
	part_begin("/bkt/copied", 2);
	fake_call_header(&call, "x-amz-copy-source", "bkt/whole");
	fake_call_header(&call, "x-amz-copy-source-range", "bytes=2-10");
	run(400, "InvalidArgument");
	part_begin("/bkt/copied", 2);
	fake_call_header(&call, "x-amz-copy-source", "bkt/whole");
	fake_call_header(&call, "x-amz-copy-source-range", "bytes=10-11");
	run(400, "InvalidRequest");
	part_begin("/bkt/copied", 2);
	fake_call_header(&call, "x-amz-copy-source", "bkt/whole");
	fake_call_header(&call, "x-amz-copy-source-range", "2-3");
	run(400, "InvalidArgument");
	snprintf(xml, sizeof(xml),
		"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>%s</ETag></Part>"
		"</CompleteMultipartUpload>",
		etag);
	complete("/bkt/copied", xml, 200, NULL);
	begin("GET", "/bkt/copied", "");
	run(200, NULL);
	assert_int_equal(call.reply_body.len, 4);
	assert_memory_equal(call.reply_body.data, "2345", 4);
}

static void test_uploads_are_listed(void **state)
{
	char query[256], id[64];

	(void)state;
	begin("PUT", "/lst", "");
	run(200, NULL);
	begin("GET", "/lst", "uploads");
	run(200, NULL);
	create("/lst/b/2", NULL);
	create("/lst/b/1", NULL);
	create("/lst/c", NULL);
	create("/lst/a", NULL);
	snprintf(id, sizeof(id), "%s", upload_id);
	begin("GET", "/lst", "uploads&delimiter=/");
	run(200, NULL);
	assert_true(fake_reply_has(&call, "<Key>a</Key>"));
	assert_true(fake_reply_has(&call, "<CommonPrefixes><Prefix>b/</Prefix></CommonPrefixes>"));
	begin("GET", "/lst", "uploads&prefix=b/&max-uploads=1");
	run(200, NULL);
	assert_true(fake_reply_has(&call, "<Key>b/1</Key>"));
	assert_true(fake_reply_has(&call, "<NextKeyMarker>b/1</NextKeyMarker>"));
	snprintf(query, sizeof(query), "uploads&key-marker=a&upload-id-marker=%s", id);
	begin("GET", "/lst", query);
	run(200, NULL);
	assert_false(fake_reply_has(&call, "<Key>a</Key>"));
	assert_true(fake_reply_has(&call, "<Key>b/1</Key>"));
	begin("GET", "/lst", "uploads&max-uploads=x");
	run(400, "InvalidArgument");
	/* Uploads are deleted with their bucket. */
	begin("DELETE", "/lst", "");
	run(204, NULL);
	begin("PUT", "/lst", "");
	run(200, NULL);
	begin("GET", "/lst", "uploads");
	run(200, NULL);
	assert_false(fake_reply_has(&call, "<Upload>"));
	complete("/lst/a", "<CompleteMultipartUpload/>", 404, "NoSuchUpload");
}

/* ---- A bucket that takes another one's name. ---- */

static void ask(const char *method, const char *path, const char *query, uint32_t status)
{
	begin(method, path, query);
	run(status, NULL);
}

static char former_id[64], next_id[64];

static const char CORS[] = "<CORSConfiguration><CORSRule><AllowedMethod>GET</AllowedMethod>"
			   "<AllowedOrigin>*</AllowedOrigin></CORSRule></CORSConfiguration>";

/* With an upload, a part of it and a configuration. */
static void make_used(char id[64])
{
	char etag[40];

	ask("PUT", "/used", "", 200);
	create("/used/key", NULL);
	put_part("/used/key", 1, SLICE("part"), etag);
	snprintf(id, sizeof(former_id), "%s", upload_id);
	begin("PUT", "/used", "cors");
	fake_call_body(&call, slice_str(CORS));
	run(200, NULL);
}

static void make_next(void)
{
	struct fake_call deletion = call;

	fake_bucket_deleted = NULL;
	fake_call_init(&call, "GET", "/", "");
	make_used(next_id);
	fake_call_free(&call);
	call = deletion;
}

static uint64_t records(void)
{
	struct store_bucket bucket;
	struct store_quota used;

	assert_int_equal(store_bucket_get(fake_store, SLICE(S3_UPLOADS_BUCKET), &bucket), 0);
	assert_int_equal(store_bucket_usage(fake_store, SLICE(S3_UPLOADS_BUCKET), &used), 0);
	return used.objects;
}

/* The next bucket's upload and configuration are there, and no upload of the former one. */
static void check_next(void)
{
	char query[128];

	begin("GET", "/used", "uploads");
	run(200, NULL);
	assert_true(fake_reply_has(&call, next_id));
	assert_false(fake_reply_has(&call, former_id));
	snprintf(query, sizeof(query), "uploadId=%s", former_id);
	begin("GET", "/used/key", query);
	run(404, "NoSuchUpload");
	snprintf(query, sizeof(query), "partNumber=1&uploadId=%s", former_id);
	begin("PUT", "/used/key", query);
	fake_call_body(&call, SLICE("part"));
	run(404, "NoSuchUpload");
	snprintf(query, sizeof(query), "uploads&key-marker=key&upload-id-marker=%s", former_id);
	begin("GET", "/used", query);
	run(400, "InvalidArgument");
	snprintf(query, sizeof(query), "uploadId=%s", next_id);
	begin("GET", "/used/key", query);
	run(200, NULL);
	assert_true(fake_reply_has(&call, "<PartNumber>1</PartNumber>"));
	ask("GET", "/used", "cors", 200);
}

/* A bucket made before the former one's uploads and configurations are deleted keeps its own. */
static void test_bucket_made_during_a_deletion(void **state)
{
	uint64_t before;

	(void)state;
	make_used(former_id);
	before = records();
	fake_bucket_deleted = make_next;
	ask("DELETE", "/used", "", 204);
	assert_int_equal(records(), before);
	check_next();
	ask("DELETE", "/used", "", 204);
	assert_int_equal(records(), before - 2);
}

/* A deletion that a crash cut short leaves rows that are nobody's; the next start deletes them. */
static void test_deletion_cut_short(void **state)
{
	struct store_bucket bucket;
	uint64_t before;

	(void)state;
	make_used(former_id);
	before = records();
	assert_int_equal(store_bucket_get(fake_store, SLICE("used"), &bucket), 0);
	assert_int_equal(store_bucket_delete(fake_store, SLICE("used"), bucket.id), 0);
	make_used(next_id);
	assert_int_equal(records(), before + 2);
	check_next();
	assert_int_equal(s3_uploads_sweep(fake_s3, &fake_core, NULL), 0);
	assert_int_equal(records(), before);
	check_next();
	/* The same without a next bucket. */
	assert_int_equal(store_bucket_get(fake_store, SLICE("used"), &bucket), 0);
	assert_int_equal(store_bucket_delete(fake_store, SLICE("used"), bucket.id), 0);
	assert_int_equal(s3_uploads_sweep(fake_s3, &fake_core, NULL), 0);
	assert_int_equal(records(), before - 2);
}

static void store_row(const char *kind, const char *id, const char *behind, const char *text)
{
	struct document_text row = {.bucket = SLICE(S3_UPLOADS_BUCKET), .text = slice_str(text)};
	char name[S3_UPLOAD_NAME_MAX];

	snprintf(name, sizeof(name), "%s/old/%s%s", kind, id, behind);
	row.key = slice_str(name);
	assert_int_equal(document_put_text(fake_store, &fake_core, &row), 0);
}

/* The id of an upload as an earlier version made it. */
static void former_version_id(const char *key, char id[64])
{
	uint8_t digest[SHA256_BYTES];

	snprintf(id, 64, "%016llx01020304", (unsigned long long)clock_real_ns());
	sha256_of(key, strlen(key), digest);
	hex_encode(digest, 8, id + 24);
	id[S3_UPLOAD_ID_LEN] = '\0';
}

/* A deletion that fails leaves its own rows to the next start, and no others. */
static void test_sweep_goes_on(void **state)
{
	char first[64], second[64];
	uint64_t before;

	(void)state;
	create("/bkt/any", NULL);
	before = records();
	for (uint32_t orphans = 0; orphans < 2; orphans++) {
		former_version_id("first", first);
		former_version_id("second", second);
		store_row("p", first, "/00001", "part");
		store_row("p", second, "/00001", "part");
		if (orphans) {
			store_row("u", first, "", "first");
			store_row("u", second, "", "second");
		}
		fake_delete_fails = 1;
		assert_int_equal(s3_uploads_sweep(fake_s3, &fake_core, NULL), -EIO);
		assert_int_equal(records(), before + 1 + orphans);
		assert_int_equal(s3_uploads_sweep(fake_s3, &fake_core, NULL), 0);
		assert_int_equal(records(), before);
	}
}

/* The record of a fetch, as if the clock had been ahead when it began. */
static void store_fetch(const char *bucket_name, int64_t ahead_s)
{
	struct document_text row = {.bucket = SLICE(S3_UPLOADS_BUCKET),
		.text = SLICE("key"),
		.headers = SLICE(S3_ORIGIN_HEADER "\0fetched=2026-11-29T00:00:00.000Z\0")};
	uint64_t ns = clock_real_ns() + (uint64_t)ahead_s * NS_PER_S;
	char name[S3_UPLOAD_NAME_MAX], id[S3_UPLOAD_ID_LEN + 1];
	struct store_bucket bucket;

	assert_int_equal(store_bucket_get(fake_store, slice_str(bucket_name), &bucket), 0);
	s3_upload_id_make(bucket.id, SLICE("key"), id);
	snprintf(
		name, sizeof(name), "u/%s/%016llx%s", bucket_name, (unsigned long long)ns, id + 16);
	row.key = slice_str(name);
	assert_int_equal(document_put_text(fake_store, &fake_core, &row), 0);
}

/* A fetch from before this start, or from a time when the clock was days ahead, is nobody's. */
static void test_fetches_of_an_earlier_run(void **state)
{
	static const int64_t AHEAD_S[] = {-3600, 60, 2 * 86400};
	uint64_t before;

	(void)state;
	create("/bkt/any", NULL);
	before = records();
	for (size_t i = 0; i < ARRAY_LEN(AHEAD_S); i++)
		store_fetch("bkt", AHEAD_S[i]);
	assert_int_equal(s3_uploads_sweep(fake_s3, &fake_core, NULL), 0);
	assert_int_equal(records(), before + 1);
}

static void make_next_that_fetches(void)
{
	make_next();
	store_fetch("used", 0);
}

/* A bucket made before the former one's uploads are deleted keeps its fetches. */
static void test_fetch_during_a_deletion(void **state)
{
	uint64_t before;

	(void)state;
	make_used(former_id);
	store_fetch("used", 0);
	before = records();
	fake_bucket_deleted = make_next_that_fetches;
	ask("DELETE", "/used", "", 204);
	assert_int_equal(records(), before);
	check_next();
	ask("DELETE", "/used", "", 204);
	assert_int_equal(records(), before - 3);
}

/* Uploads that an earlier version began go on, unless their bucket is younger than they; parts
 * whose upload has ended are deleted. */
static void test_uploads_of_an_earlier_version(void **state)
{
	uint64_t before;
	char id[64], query[128];

	(void)state;
	create("/bkt/any", NULL);
	ask("PUT", "/old", "", 200);
	before = records();
	former_version_id("key", id);
	store_row("u", id, "", "key");
	store_row("p", id, "/00001", "part");
	former_version_id("other", id);
	store_row("p", id, "/00001", "part");
	store_row("p", id, "/00002", "part");
	assert_int_equal(s3_uploads_sweep(fake_s3, &fake_core, NULL), 0);
	assert_int_equal(records(), before + 2);
	former_version_id("key", id);
	begin("GET", "/old", "uploads");
	run(200, NULL);
	assert_true(fake_reply_has(&call, "<Key>key</Key>"));
	assert_true(fake_reply_has(&call, id + 24));
	snprintf(id, sizeof(id), "%.*s", (int)S3_UPLOAD_ID_LEN,
		call.reply_body.data +
			slice_find(buf_slice(&call.reply_body), SLICE("<UploadId>")) + 10);
	snprintf(query, sizeof(query), "uploadId=%s", id);
	begin("GET", "/old/key", query);
	run(200, NULL);
	assert_true(fake_reply_has(&call, "<PartNumber>1</PartNumber>"));
	/* The next bucket of the name is younger. */
	assert_int_equal(store_bucket_delete(fake_store, SLICE("old"), 0), 0);
	ask("PUT", "/old", "", 200);
	begin("GET", "/old", "uploads");
	run(200, NULL);
	assert_false(fake_reply_has(&call, "<Upload>"));
	begin("GET", "/old/key", query);
	run(404, "NoSuchUpload");
	assert_int_equal(s3_uploads_sweep(fake_s3, &fake_core, NULL), 0);
	assert_int_equal(records(), before);
}

/* ---- A completion that is repeated while the first one is on its way. ---- */

static char twice_xml[256], twice_etag[64];

static void note_etag(char etag[64])
{
	ptrdiff_t at = slice_find(buf_slice(&call.reply_body), SLICE("<ETag>"));

	assert_true(at > 0);
	snprintf(etag, 64, "%.44s", call.reply_body.data + at);
}

/* The first one, which commits now. */
static void complete_first(void)
{
	struct fake_call second = call;

	fake_get_ended = NULL;
	call.awaited = NULL;
	fake_call_init(&call, "GET", "/", "");
	complete("/bkt/twice", twice_xml, 200, NULL);
	note_etag(twice_etag);
	fake_call_free(&call);
	call = second;
}

static void abort_first(void)
{
	struct fake_call second = call;
	char query[128];

	fake_call_init(&call, "GET", "/", "");
	snprintf(query, sizeof(query), "uploadId=%s", upload_id);
	begin("DELETE", "/bkt/twice", query);
	run(204, NULL);
	fake_call_free(&call);
	call = second;
}

/* With a part that the completion does not name. */
static void begin_twice(void)
{
	char etag[40];

	ask("DELETE", "/bkt/twice", "", 204);
	create("/bkt/twice", NULL);
	put_part("/bkt/twice", 2, SLICE("unnamed"), etag);
	put_part("/bkt/twice", 1, SLICE("one"), etag);
	snprintf(twice_xml, sizeof(twice_xml),
		"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>%s</ETag></Part>"
		"</CompleteMultipartUpload>",
		etag);
}

/* The second one; its body comes when `awaited` has run. */
static void complete_second(const char *xml, void (*awaited)(void), const char *condition)
{
	static char query[128]; /* the call keeps it */

	snprintf(query, sizeof(query), "uploadId=%s", upload_id);
	begin("POST", "/bkt/twice", query);
	fake_call_body(&call, slice_str(xml));
	if (condition)
		fake_call_header(&call, condition, "*");
	call.awaited = awaited;
}

static void check_second(void)
{
	char etag[64];

	run(200, NULL);
	note_etag(etag);
	assert_string_equal(etag, twice_etag);
	ask("GET", "/bkt/twice", "", 200);
	assert_int_equal(call.reply_body.len, 3);
}

static void test_completed_while_the_body_is_awaited(void **state)
{
	static const char other[] = "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber>"
				    "<ETag>x</ETag></Part></CompleteMultipartUpload>";

	(void)state;
	begin_twice();
	complete_second(twice_xml, complete_first, NULL);
	check_second();
	/* Not with other parts, and not when the upload was aborted. */
	begin_twice();
	complete_second(other, complete_first, NULL);
	run(404, "NoSuchUpload");
	begin_twice();
	complete_second(twice_xml, abort_first, NULL);
	run(404, "NoSuchUpload");
	assert_false(fake_reply_has(&call, "<PartNumber>"));
}

/* The first one commits when the second one has opened all parts. */
static void test_completed_before_the_commit(void **state)
{
	static const char *const conditions[] = {NULL, "If-None-Match"};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(conditions); i++) {
		begin_twice();
		complete_second(twice_xml, NULL, conditions[i]);
		fake_get_ended = complete_first;
		check_second();
		assert_null(fake_get_ended);
	}
}

static void test_checksum_requests(void **state)
{
	static const struct {
		const char *algorithm, *type;
		uint32_t status;
	} rows[] = {
		{"CRC32", "FULL_OBJECT", 200},
		{"CRC32", "COMPOSITE", 200},
		{"SHA256", "COMPOSITE", 200},
		{"SHA256", "FULL_OBJECT", 400},
		{"CRC64NVME", "COMPOSITE", 400},
		{"CRC32", "OTHER", 400},
		{"CRC16", "FULL_OBJECT", 400},
		{NULL, "FULL_OBJECT", 400},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		begin("POST", "/bkt/kinds", "uploads");
		if (rows[i].algorithm)
			fake_call_header(&call, "x-amz-checksum-algorithm", rows[i].algorithm);
		fake_call_header(&call, "x-amz-checksum-type", rows[i].type);
		run(rows[i].status, rows[i].status == 200 ? NULL : "InvalidRequest");
	}
	create("/bkt/kinds", "CRC32");
	part_begin("/bkt/kinds", 1);
	fake_call_header(&call, "x-amz-checksum-crc32c", "4waSgw==");
	fake_call_body(&call, SLICE("123456789"));
	run(400, "InvalidRequest");
	begin("POST", "/nobkt/kinds", "uploads");
	run(404, "NoSuchBucket");
}

/* An upload whose record cannot be read does not keep those behind it. */
static void test_abandoned_beside_a_damaged_one(void **state)
{
	static const char rules[] =
		"<LifecycleConfiguration><Rule><ID>r</ID><Status>Enabled</Status><Prefix></Prefix>"
		"<AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation>"
		"</AbortIncompleteMultipartUpload></Rule></LifecycleConfiguration>";
	struct s3_lifecycle *lifecycle;
	uint32_t count = 0;

	(void)state;
	begin("PUT", "/bkt", "lifecycle");
	fake_call_body(&call, slice_str(rules));
	run(200, NULL);
	fake_s3->lifecycle_day_s = 0; /* they are all due */
	assert_int_equal(s3_lifecycle_open(fake_s3, &fake_core, SLICE("bkt"), &lifecycle), 0);
	assert_int_equal(s3_lifecycle_abort_uploads(lifecycle, &count), 0);
	s3_lifecycle_close(lifecycle);
	for (int i = 0; i < 3; i++)
		create("/bkt/key", NULL);
	assert_int_equal(s3_lifecycle_open(fake_s3, &fake_core, SLICE("bkt"), &lifecycle), 0);
	fake_read_error = -EIO;
	fake_read_fails = 1;
	assert_int_equal(s3_lifecycle_abort_uploads(lifecycle, &count), -EIO);
	assert_int_equal(count, 2);
	assert_int_equal(s3_lifecycle_abort_uploads(lifecycle, &count), 0);
	assert_int_equal(count, 1);
	s3_lifecycle_close(lifecycle);
	begin("DELETE", "/bkt", "lifecycle");
	run(204, NULL);
}

static int tests_run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_life),
		cmocka_unit_test(test_read_by_parts),
		cmocka_unit_test(test_composite_checksum),
		cmocka_unit_test(test_full_object_checksum_and_unnamed_parts),
		cmocka_unit_test(test_stale_completions),
		cmocka_unit_test(test_refused_completions),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_copied_part),
		cmocka_unit_test(test_uploads_are_listed),
		cmocka_unit_test(test_bucket_made_during_a_deletion),
		cmocka_unit_test(test_deletion_cut_short),
		cmocka_unit_test(test_sweep_goes_on),
		cmocka_unit_test(test_fetches_of_an_earlier_run),
		cmocka_unit_test(test_fetch_during_a_deletion),
		cmocka_unit_test(test_uploads_of_an_earlier_version),
		cmocka_unit_test(test_completed_while_the_body_is_awaited),
		cmocka_unit_test(test_completed_before_the_commit),
		cmocka_unit_test(test_checksum_requests),
		cmocka_unit_test(test_abandoned_beside_a_damaged_one),
	};

	return cmocka_run_group_tests(tests, open_all, close_all);
}

int main(void)
{
	return fake_main(tests_run);
}
