/* Covers s3_call_read: rights that change while a request's document is awaited; and completions
 * that are sent again meanwhile. */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>

#include "fake.h"
#include "iam/iam.h"

#define CORS                                                                              \
	"<CORSConfiguration><CORSRule><AllowedMethod>GET</AllowedMethod><AllowedOrigin>*" \
	"</AllowedOrigin></CORSRule></CORSConfiguration>"

static struct fake_call call;
static struct s3_identity caller;

static void put_account(const char *number, const char *name, const char *secret)
{
	json_t *account = json_pack("{s:s, s:s, s:s+, s:s}", "account_id", number, "display_name",
		name, "access_key", number, "-KEY", "secret_key", secret);
	struct buf why;

	buf_init(&why, KIB);
	assert_int_equal(iam_put(fake_s3->iam, &fake_core, account, &why), 0);
	buf_free(&why);
	json_decref(account);
}

static void ask(const struct s3_identity *session, const char *method, const char *path,
	const char *query, const char *body)
{
	fake_call_free(&call);
	fake_call_init(&call, method, path, query);
	if (body)
		fake_call_body(&call, slice_str(body));
	call.request.session = session;
}

static void run(uint32_t status, const char *code)
{
	fake_call_run(fake_s3, &call);
	assert_int_equal(call.reply.status, status);
	if (code)
		assert_true(fake_reply_has(&call, code));
}

static void put_policy(const char *action)
{
	char text[256];

	snprintf(text, sizeof(text),
		"{\"Version\":\"2012-10-17\",\"Statement\":[{\"Effect\":\"Allow\","
		"\"Principal\":\"*\",\"Action\":\"%s\",\"Resource\":\"arn:aws:s3:::bkt\"}]}",
		action);
	ask(&fake_root, "PUT", "/bkt", "policy", text);
	run(204, NULL);
}

/* The caller has an account of its own and a right in the root's bucket. */
static int open_all(void **state)
{
	uint8_t key[32];
	int ret = fake_open(state);

	put_account("777", "one", "the-first-secret");
	assert_int_equal(
		s3_session_key(fake_s3, SLICE("777-KEY"), SLICE("context"), key, &caller), 0);
	ask(&fake_root, "PUT", "/bkt", "", NULL);
	run(200, NULL);
	ask(&fake_root, "DELETE", "/bkt", "publicAccessBlock", NULL);
	run(204, NULL);
	put_policy("s3:PutBucketCORS");
	return ret;
}

static int close_all(void **state)
{
	fake_call_free(&call);
	return fake_close(state);
}

/* A change meanwhile, by another call. */
static void by_others(void (*change)(void))
{
	struct fake_call own = call;

	fake_call_init(&call, "GET", "/", "");
	change();
	fake_call_free(&call);
	call = own;
}

static void delete_account(void)
{
	assert_int_equal(iam_delete(fake_s3->iam, &(struct iam_edit){.account = SLICE("777")}), 0);
}

static void change_secret(void)
{
	put_account("777", "one", "the-second-secret");
}

static void change_account(void)
{
	put_account("777", "two", "the-first-secret");
}

static void change_other_account(void)
{
	put_account("778", "other", "another-secret");
}

static void take_right(void)
{
	put_policy("s3:GetBucketCORS");
}

static void change_bucket(void)
{
	ask(&fake_root, "PUT", "/bkt", "cors", CORS);
	run(200, NULL);
}

static void awaited_delete(void)
{
	by_others(delete_account);
}

static void awaited_secret(void)
{
	by_others(change_secret);
}

static void awaited_account(void)
{
	by_others(change_account);
}

static void awaited_other(void)
{
	by_others(change_other_account);
}

static void awaited_right(void)
{
	by_others(take_right);
}

static void awaited_bucket(void)
{
	by_others(change_bucket);
}

static void put_cors(
	const struct s3_identity *session, void (*awaited)(void), uint32_t status, const char *code)
{
	ask(session, "PUT", "/bkt", "cors", CORS);
	call.awaited = awaited;
	run(status, code);
}

static void has_cors(uint32_t status)
{
	ask(&fake_root, "GET", "/bkt", "cors", NULL);
	run(status, NULL);
}

static void test_a_deleted_caller(void **state)
{
	(void)state;
	put_cors(&caller, awaited_delete, 403, "InvalidAccessKeyId");
	has_cors(404);
}

static void test_a_caller_with_another_secret(void **state)
{
	(void)state;
	put_cors(&caller, awaited_secret, 403, "InvalidAccessKeyId");
	has_cors(404);
}

/* Its rights may be others now: it asks again with these. */
static void test_a_changed_caller(void **state)
{
	(void)state;
	put_cors(&caller, awaited_account, 503, "SlowDown");
	has_cors(404);
	put_cors(&caller, NULL, 200, NULL);
	has_cors(200);
}

static void test_a_right_that_is_taken(void **state)
{
	(void)state;
	put_cors(&caller, awaited_right, 403, "AccessDenied");
	has_cors(404);
}

static void test_anybody_whose_right_is_taken(void **state)
{
	(void)state;
	put_cors(NULL, awaited_right, 403, "AccessDenied");
	has_cors(404);
}

static void test_changes_that_take_nothing(void **state)
{
	(void)state;
	put_cors(&caller, awaited_other, 200, NULL);
	put_cors(&caller, awaited_bucket, 200, NULL);
	put_cors(&fake_root, awaited_right, 200, NULL);
	has_cors(200);
}

/* ---- A completion that is sent again. ---- */

static char completion[256], completion_query[128];

/* Of the caller's own bucket. */
static void upload(void)
{
	char id[64], etag[64], query[128];
	ptrdiff_t at;

	ask(&caller, "PUT", "/own", "", NULL);
	run(200, NULL);
	ask(&caller, "POST", "/own/key", "uploads", NULL);
	run(200, NULL);
	at = slice_find(buf_slice(&call.reply_body), SLICE("<UploadId>"));
	assert_true(at > 0);
	snprintf(id, sizeof(id), "%.40s", call.reply_body.data + at + strlen("<UploadId>"));
	snprintf(query, sizeof(query), "partNumber=1&uploadId=%s", id);
	ask(&caller, "PUT", "/own/key", query, "part");
	run(200, NULL);
	assert_int_equal(slice_copy_str(fake_reply_header(&call, "etag"), etag, sizeof(etag)), 0);
	snprintf(completion, sizeof(completion),
		"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>%s</ETag></Part>"
		"</CompleteMultipartUpload>",
		etag);
	snprintf(completion_query, sizeof(completion_query), "uploadId=%s", id);
}

static void complete(void (*awaited)(void), uint32_t status, const char *code)
{
	ask(&caller, "POST", "/own/key", completion_query, completion);
	call.awaited = awaited;
	run(status, code);
}

/* The object is there: an answer that there is no such upload would say that it is not. */
static void test_a_completion_that_is_sent_again(void **state)
{
	(void)state;
	upload();
	complete(NULL, 200, NULL);
	complete(awaited_account, 503, "SlowDown");
	assert_false(fake_reply_has(&call, "<UploadId>"));
	complete(NULL, 200, NULL);
	ask(&caller, "POST", "/own/key", completion_query, completion);
	call.body_error = -EIO;
	run(500, "InternalError");
	complete(awaited_delete, 403, "InvalidAccessKeyId");
}

static void fail_gets(void)
{
	fake_get_ended = NULL;
	fake_get_error = -EIO;
}

static void test_a_completion_that_is_sent_again_of_an_object_that_cannot_be_read(void **state)
{
	(void)state;
	upload();
	complete(NULL, 200, NULL);
	/* Of the upload's record, which is not there any more. */
	fake_get_ended = fail_gets;
	complete(NULL, 500, "InternalError");
	fake_get_error = 0;
	complete(NULL, 200, NULL);
}

/* ---- What the front learns. ---- */

static bool proven, proven_then;
static uint32_t looks;

static void look(void)
{
	proven_then = proven;
	looks++;
}

static void ask_awaited(const struct s3_identity *session, const char *method, const char *path,
	const char *query, const char *body)
{
	ask(session, method, path, query, body);
	call.awaited = look;
	call.reply.ret_proven = &proven;
	proven = proven_then = false;
	looks = 0;
}

/* Anybody may be slow to send a form, or a document for a handler that decides by it: the front
 * learns that the caller may do what it asks for only when that is known. */
static void test_the_unknown_are_not_taken_for_known(void **state)
{
	(void)state;
	ask_awaited(&fake_root, "PUT", "/bkt", "cors", CORS);
	run(200, NULL);
	assert_int_equal(looks, 1);
	assert_true(proven_then);
	ask_awaited(&caller, "PUT", "/bkt", "cors", CORS);
	run(200, NULL);
	assert_true(looks == 1 && proven_then);
	ask_awaited(NULL, "POST", "/bkt", "delete", "<Delete></Delete>");
	fake_call_header(&call, "Content-MD5", "1B2M2Y8AsgTpgAmY7PhCfg==");
	fake_call_run(fake_s3, &call);
	assert_true(call.reply.status >= 400 && looks == 1 && !proven_then && !proven);
	ask_awaited(NULL, "POST", "/", "", "Action=AssumeRoleWithWebIdentity");
	fake_call_header(&call, "Content-Type", "application/x-www-form-urlencoded");
	fake_call_run(fake_s3, &call);
	assert_true(call.reply.status >= 400 && looks == 1 && !proven_then);
	ask_awaited(NULL, "POST", "/bkt", "", "--x\r\n");
	fake_call_header(&call, "Content-Type", "multipart/form-data; boundary=x");
	fake_call_run(fake_s3, &call);
	assert_true(call.reply.status >= 400 && looks == 1 && !proven_then && !proven);
	ask_awaited(NULL, "PUT", "/bkt/key", "", "text");
	run(403, NULL);
	assert_true(!looks && !proven);
	ask_awaited(&fake_root, "PUT", "/bkt/key", "", "text");
	run(200, NULL);
	assert_true(proven);
}

static int tests_run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_the_unknown_are_not_taken_for_known, open_all, close_all),
		cmocka_unit_test_setup_teardown(test_a_deleted_caller, open_all, close_all),
		cmocka_unit_test_setup_teardown(
			test_a_caller_with_another_secret, open_all, close_all),
		cmocka_unit_test_setup_teardown(test_a_changed_caller, open_all, close_all),
		cmocka_unit_test_setup_teardown(test_a_right_that_is_taken, open_all, close_all),
		cmocka_unit_test_setup_teardown(
			test_anybody_whose_right_is_taken, open_all, close_all),
		cmocka_unit_test_setup_teardown(
			test_changes_that_take_nothing, open_all, close_all),
		cmocka_unit_test_setup_teardown(
			test_a_completion_that_is_sent_again, open_all, close_all),
		cmocka_unit_test_setup_teardown(
			test_a_completion_that_is_sent_again_of_an_object_that_cannot_be_read,
			open_all, close_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return fake_main(tests_run);
}
