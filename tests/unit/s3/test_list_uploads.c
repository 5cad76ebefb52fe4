/* Covers op/list_multipart_uploads.c: pages of more uploads than the store's own pages have. Only
 * over a store on a volume: the one in memory has a frame for each record, and the region too few.
 */
#include "../unit.h"

#include <stdio.h>

#include "document/document.h"
#include "fake.h"
#include "reactor/reactor.h"
#include "s3/object/multipart.h"

static struct fake_call call; /* the last one */

static int close_all(void **state)
{
	fake_call_free(&call);
	return fake_close(state);
}

static void request(const char *method, const char *path, const char *query)
{
	fake_call_free(&call);
	fake_call_init(&call, method, path, query);
	fake_call_run(fake_s3, &call);
	if (call.reply.status != 200)
		fail_msg("answered %u: %.*s", call.reply.status, (int)call.reply_body.len,
			call.reply_body.data);
}

static void list(const char *query)
{
	request("GET", "/many", query);
}

static uint32_t uploads_shown(void)
{
	static const struct slice MARK = SLICE("<Upload>");
	struct slice rest = buf_slice(&call.reply_body);
	uint32_t count = 0;
	ptrdiff_t at;

	while ((at = slice_find(rest, MARK)) >= 0) {
		rest = slice_from(rest, (size_t)at + MARK.len);
		count++;
	}
	return count;
}

#define MANY	   20011u
#define MANY_LANES 64u

static uint64_t many_bucket_id;
static uint32_t many_lanes_left;

/* Puts the records of some uploads, as a create does. */
static void many_lane(void *arg)
{
	char id[S3_UPLOAD_ID_LEN + 1], name[S3_UPLOAD_NAME_MAX], key[16];

	for (uint32_t i = *(const uint32_t *)arg; i < MANY; i += MANY_LANES) {
		struct document_text record = {.bucket = SLICE(S3_UPLOADS_BUCKET)};

		/* In an order that is not that of their ids. */
		snprintf(key, sizeof(key), "k/%05u", i * 7919 % MANY);
		s3_upload_id_make(many_bucket_id, slice_str(key), id);
		record.key = s3_upload_name(SLICE("many"), id, 0, name);
		record.text = slice_str(key);
		assert_int_equal(document_put_text(fake_store, &fake_core, &record), 0);
	}
	many_lanes_left--;
}

static void many_make(void)
{
	uint32_t lanes[MANY_LANES];
	struct store_bucket bucket;

	request("PUT", "/many", "");
	request("POST", "/many/l", "uploads");
	assert_int_equal(store_bucket_get(fake_store, SLICE("many"), &bucket), 0);
	many_bucket_id = bucket.id;
	many_lanes_left = MANY_LANES;
	for (uint32_t i = 0; i < MANY_LANES; i++) {
		lanes[i] = i;
		assert_int_equal(fiber_spawn(reactor_self(), "lane", many_lane, &lanes[i]), 0);
	}
	while (many_lanes_left)
		fiber_yield();
}

static void test_any_number_of_uploads_is_listed(void **state)
{
	char query[128];

	(void)state;
	many_make();
	list("uploads");
	assert_int_equal(uploads_shown(), 1000);
	assert_true(fake_reply_has(&call, "<Key>k/00000</Key>"));
	assert_true(fake_reply_has(&call, "<NextKeyMarker>k/00999</NextKeyMarker>"));
	assert_true(fake_reply_has(&call, "<IsTruncated>true</IsTruncated>"));
	list("uploads&key-marker=k/00999&max-uploads=2");
	assert_int_equal(uploads_shown(), 2);
	assert_true(fake_reply_has(&call, "<NextKeyMarker>k/01001</NextKeyMarker>"));
	snprintf(query, sizeof(query), "uploads&key-marker=k/%05u", MANY - 4);
	list(query);
	assert_int_equal(uploads_shown(), 4);
	assert_true(fake_reply_has(&call, "<IsTruncated>false</IsTruncated>"));
	list("uploads&prefix=k/0001");
	assert_int_equal(uploads_shown(), 10);
	assert_true(fake_reply_has(&call, "<IsTruncated>false</IsTruncated>"));
	list("uploads&delimiter=/");
	assert_int_equal(uploads_shown(), 1);
	assert_true(fake_reply_has(&call, "<CommonPrefixes><Prefix>k/</Prefix></CommonPrefixes>"));
	list("uploads&delimiter=/&max-uploads=1");
	assert_int_equal(uploads_shown(), 0);
	assert_true(fake_reply_has(&call, "<NextKeyMarker>k/</NextKeyMarker>"));
	assert_true(fake_reply_has(&call, "<IsTruncated>true</IsTruncated>"));
}

static int tests(void)
{
	const struct CMUnitTest all[] = {
		cmocka_unit_test_setup_teardown(
			test_any_number_of_uploads_is_listed, fake_open, close_all),
	};

	return cmocka_run_group_tests(all, NULL, NULL);
}

int main(void)
{
	return fake_main(tests);
}
