/* Covers object/origin.c: chains of origins; and the ETags of copies of what came from one. */
#include "../unit.h"

#include <stdio.h>

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

/* ---- The origin, which has nothing. ---- */

static uint32_t asked;
static char told_via[S3_ORIGIN_VIA_BYTES];

static void fetch(void *arg, const struct s3_origin_ask *ask, struct s3_origin_told *ret_told)
{
	(void)arg;
	asked++;
	memcpy(told_via, ask->via, sizeof(told_via));
	*ret_told = (struct s3_origin_told){.end = S3_ORIGIN_ABSENT};
}

static const struct s3_origin_ops ops = {.fetch = fetch};
static const struct s3_origin_hook hook = {.ops = &ops};

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
	s3_origin_on(fake_s3, &hook);
	return ret;
}

static int close_all(void **state)
{
	fake_call_free(&call);
	s3_origin_on(fake_s3, NULL);
	return fake_close(state);
}

/* ---- Chains. ---- */

static void get_via(const char *via, bool asks)
{
	uint32_t before = asked;

	begin("GET", "/bkt/missing", "");
	if (via)
		fake_call_header(&call, S3_ORIGIN_VIA, via);
	run(asks ? 404 : 502, asks ? "NoSuchKey" : "OriginFailed");
	assert_int_equal(asked, before + asks);
}

/* The text names count other buckets, by ids that begin so. */
static const char *chain(uint32_t count, const char *id)
{
	static char text[1024];
	size_t len = 0;

	text[0] = '\0';
	for (uint32_t i = 0; i < count; i++)
		len += (size_t)snprintf(
			text + len, sizeof(text) - len, "%s%s%x", i ? "," : "", id, i);
	return text;
}

/* The ninth bucket does not ask, however short the ids are. */
static void test_a_chain_has_an_end(void **state)
{
	static const char *const ids[] = {"a-", "fedcba9876543210-fedcba987654321"};
	char own[sizeof(told_via)], text[sizeof(told_via)];

	(void)state;
	get_via(NULL, true);
	memcpy(own, told_via, sizeof(own));
	assert_true(own[0]);
	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		get_via(chain(1, ids[i]), true);
		get_via(chain(S3_ORIGIN_VIA_MAX - 1, ids[i]), true);
		assert_true(slice_ends(slice_str(told_via), slice_str(own)));
		get_via(chain(S3_ORIGIN_VIA_MAX, ids[i]), false);
		get_via(chain(S3_ORIGIN_VIA_MAX + 1, ids[i]), false);
	}
	snprintf(text, sizeof(text), "a-1, %s,a-2", own);
	get_via(text, false);
}

/* ---- Copies. ---- */

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
		cmocka_unit_test_setup_teardown(test_a_chain_has_an_end, open_all, close_all),
		cmocka_unit_test_setup_teardown(test_a_copy_has_its_own_etag, open_all, close_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return fake_main(tests_run);
}
