/* Covers the ETags of copies of what came from a bucket's origin. */
#include "../unit.h"

#include "fake.h"
#include "s3/origin.h"
#include "s3/replicate/replicate.h"

#define TARGET                                                                            \
	"{\"endpoint\":\"http://127.0.0.1:9\",\"bucket\":\"copy\",\"access_key\":\"key\"" \
	",\"secret_key\":\"secret\"}"
#define ORIGIN "<OriginConfiguration><Target>t</Target></OriginConfiguration>"

static struct fake_call call; /* the last one */

static void begin(const char *method, const char *path, const char *query)
{
	fake_call_free(&call);
	fake_call_init(&call, method, path, query);
}

static void run(uint32_t status, const char *code)
{
	fake_call_run(fake_s3, &call);
	if (call.reply.status != status)
		fail_msg("%s answered %u: %.*s", call.request.path.data, call.reply.status,
			(int)call.reply_body.len, call.reply_body.data);
	if (code)
		assert_true(fake_reply_has(&call, code));
}

static int open_all(void **state)
{
	const struct s3_request request = {.core = &fake_core, .method = S3_PUT};
	const struct slice parts[] = {SLICE("targets"), SLICE("t")};
	struct s3_replicate_answer answer = {.json = NULL};
	int ret = fake_open(state);
	struct s3_call admin = {.s3 = fake_s3, .request = &request};
	json_t *body = json_loads(TARGET, 0, NULL);

	s3_replicate_admin(&admin, parts, 2, body, &answer);
	assert_int_equal(answer.status, 200);
	json_decref(answer.json);
	json_decref(body);
	begin("PUT", "/bkt", "");
	run(200, NULL);
	begin("PUT", "/bkt", "origin");
	fake_call_body(&call, SLICE(ORIGIN));
	run(200, NULL);
	return ret;
}

static int close_all(void **state)
{
	fake_call_free(&call);
	return fake_close(state);
}

static void etag_is(const char *path, const char *etag)
{
	begin("HEAD", path, "");
	run(200, NULL);
	if (!slice_eq(fake_reply_header(&call, "etag"), slice_str(etag)))
		fail_msg("%s has %.*s", path, SLICE_FMT(fake_reply_header(&call, "etag")));
}

/* An origin's ETag may look like an MD5 and be none: what a client copies has the body's MD5. */
static void test_a_copy_has_its_own_etag(void **state)
{
	static const char others[] = "0123456789abcdef0123456789abcdef";
	const struct s3_fetched fetched = {.etag = others, .note = SLICE("fetched=now")};

	(void)state;
	begin("PUT", "/bkt/key", "");
	fake_call_body(&call, SLICE("body"));
	call.request.fetched = &fetched;
	run(200, NULL);
	etag_is("/bkt/key", "\"0123456789abcdef0123456789abcdef\"");
	begin("PUT", "/bkt/copy", "");
	fake_call_header(&call, "x-amz-copy-source", "bkt/key");
	run(200, "841a2d689ad86bd1611447453c22c6fc");
	etag_is("/bkt/copy", "\"841a2d689ad86bd1611447453c22c6fc\"");
}

static int tests_run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_copy_has_its_own_etag, open_all, close_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return fake_main(tests_run);
}
