/* Covers object/multipart.c and op/complete_multipart_upload.c: a part that arrives while its
 * upload is aborted, and the ETags by which a completion names parts. */
#include "../unit.h"

#include <stdio.h>

#include "fake.h"
#include "s3/object/multipart.h"

static struct fake_call call;			 /* the last one */
static char upload_query[24 + S3_UPLOAD_ID_LEN]; /* of the last create */

static int open_all(void **state)
{
	if (fake_open(state))
		return -1;
	fake_call_init(&call, "PUT", "/bkt", "");
	fake_call_run(fake_s3, &call);
	return 0;
}

static int close_all(void **state)
{
	fake_call_free(&call);
	fake_deleted = NULL;
	return fake_close(state);
}

static void begin(const char *method, const char *query)
{
	fake_call_free(&call);
	fake_call_init(&call, method, "/bkt/key", query);
}

static void run(uint32_t status, const char *code)
{
	fake_call_run(fake_s3, &call);
	if (call.reply.status != status)
		fail_msg("answered %u: %.*s", call.reply.status, (int)call.reply_body.len,
			call.reply_body.data);
	if (code)
		assert_true(fake_reply_has(&call, code));
}

static void create(void)
{
	ptrdiff_t at;

	begin("POST", "uploads");
	run(200, NULL);
	at = slice_find(buf_slice(&call.reply_body), SLICE("<UploadId>"));
	assert_true(at > 0);
	snprintf(upload_query, sizeof(upload_query), "uploadId=%.*s", (int)S3_UPLOAD_ID_LEN,
		call.reply_body.data + at + strlen("<UploadId>"));
}

static void put_part(int number, char ret_etag[40])
{
	char query[sizeof(upload_query) + 32];

	snprintf(query, sizeof(query), "partNumber=%d&%s", number, upload_query);
	begin("PUT", query);
	fake_call_body(&call, SLICE("part"));
	run(200, NULL);
	assert_int_equal(slice_copy_str(fake_reply_header(&call, "etag"), ret_etag, 40), 0);
}

static uint64_t objects_of_uploads(void)
{
	struct store_quota used;

	assert_int_equal(store_bucket_usage(fake_store, SLICE(S3_UPLOADS_BUCKET), &used), 0);
	return used.objects;
}

/* ---- A part that arrives while its upload is aborted. ---- */

static void put_late_part(void)
{
	struct fake_call aborting = call;
	char etag[40];

	fake_deleted = NULL;
	fake_call_init(&call, "GET", "/bkt/key", "");
	put_part(2, etag);
	fake_call_free(&call);
	call = aborting;
}

/* It arrives when the parts are deleted and the record is not yet, so its request succeeds. */
static void test_a_part_during_an_abort(void **state)
{
	char etag[40];

	(void)state;
	create();
	put_part(1, etag);
	begin("DELETE", upload_query);
	fake_deleted = put_late_part;
	run(204, NULL);
	assert_null(fake_deleted);
	assert_int_equal(objects_of_uploads(), 0);
	begin("GET", upload_query);
	run(404, "NoSuchUpload");
}

/* ---- ETags. ---- */

static void complete(const char *etag, uint32_t status, const char *code)
{
	char xml[256];

	snprintf(xml, sizeof(xml),
		"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>%s</ETag></Part>"
		"</CompleteMultipartUpload>",
		etag);
	begin("POST", upload_query);
	fake_call_body(&call, slice_str(xml));
	run(status, code);
}

/* One part has one ETag, with its quotes or without. */
static void test_etags_of_a_completion(void **state)
{
	char etag[40], text[96];

	(void)state;
	create();
	put_part(1, etag);
	complete("*", 400, "InvalidPart");
	complete("\"*\"", 400, "InvalidPart");
	complete("", 400, "InvalidPart");
	snprintf(text, sizeof(text), "\"other\", %s", etag);
	complete(text, 400, "InvalidPart");
	snprintf(text, sizeof(text), "%s,", etag);
	complete(text, 400, "InvalidPart");
	begin("GET", "");
	run(404, "NoSuchKey");
	snprintf(text, sizeof(text), "%.32s", etag + 1);
	complete(text, 200, NULL);
	create();
	put_part(1, etag);
	complete(etag, 200, NULL);
	create();
	put_part(1, etag);
	snprintf(text, sizeof(text), "&quot;%.32s&quot;", etag + 1);
	complete(text, 200, NULL);
}

static int tests_run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_part_during_an_abort, open_all, close_all),
		cmocka_unit_test_setup_teardown(test_etags_of_a_completion, open_all, close_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return fake_main(tests_run);
}
