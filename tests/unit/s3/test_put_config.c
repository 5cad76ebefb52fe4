/* Covers op/put_config.c: configurations that a bucket cannot have all at once, put at the same
 * time. */
#include "../unit.h"

#include "fake.h"
#include "s3/replicate/replicate.h"

#define TARGET                                                                            \
	"{\"endpoint\":\"http://127.0.0.1:9\",\"bucket\":\"copy\",\"access_key\":\"key\"" \
	",\"secret_key\":\"secret\"}"
#define ORIGIN "<OriginConfiguration><Target>t</Target></OriginConfiguration>"
#define VERSIONING(status)                                     \
	"<VersioningConfiguration><Status>" status "</Status>" \
	"</VersioningConfiguration>"
#define ENABLED	  VERSIONING("Enabled")
#define SUSPENDED VERSIONING("Suspended")
#define RULES                                                                            \
	"<ReplicationConfiguration><Role>r</Role><Rule><ID>1</ID><Priority>1</Priority>" \
	"<Filter/><Status>Enabled</Status><DeleteMarkerReplication><Status>Enabled"      \
	"</Status></DeleteMarkerReplication><Destination><Bucket>arn:aws:s3:::t"         \
	"</Bucket></Destination></Rule></ReplicationConfiguration>"

struct ask {
	const char *method, *query, *body;
	uint32_t status;
	const char *code;
};
struct answer {
	uint32_t status;
	bool has_code;
	char text[300]; /* its begin */
};

static struct answer answer_of(const struct ask *ask, void (*awaited)(void))
{
	struct answer answer;
	struct fake_call call;

	fake_call_init(&call, ask->method, "/bkt", ask->query);
	if (ask->body)
		fake_call_body(&call, slice_str(ask->body));
	call.awaited = awaited;
	fake_call_run(fake_s3, &call);
	answer.status = call.reply.status;
	answer.has_code = !ask->code || fake_reply_has(&call, ask->code);
	slice_copy_str(slice_to(buf_slice(&call.reply_body), sizeof(answer.text) - 1), answer.text,
		sizeof(answer.text));
	fake_call_free(&call);
	return answer;
}

static void check(const struct ask *ask, const struct answer *answer)
{
	if (answer->status != ask->status || !answer->has_code)
		fail_msg("%s %s answered %u: %s", ask->method, ask->query, answer->status,
			answer->text);
}

static void ask_with(const struct ask *ask, void (*awaited)(void))
{
	const struct answer answer = answer_of(ask, awaited);

	check(ask, &answer);
}

static void ask(const char *method, const char *query, const char *body, uint32_t status)
{
	ask_with(&(struct ask){method, query, body, status, NULL}, NULL);
}

static int open_all(void **state)
{
	const struct s3_request request = {.core = &fake_core, .method = S3_PUT};
	const struct slice parts[] = {SLICE("targets"), SLICE("t")};
	struct s3_replicate_answer answer = {.json = NULL};
	int ret = fake_open(state);
	struct s3_call call = {.s3 = fake_s3, .request = &request};
	json_t *body = json_loads(TARGET, 0, NULL);

	s3_replicate_admin(&call, parts, 2, body, &answer);
	assert_int_equal(answer.status, 200);
	json_decref(answer.json);
	json_decref(body);
	ask("PUT", "", NULL, 200);
	return ret;
}

static int close_all(void **state)
{
	fake_put_committed = NULL;
	return fake_close(state);
}

/* ---- One of two bodies is awaited for long. ---- */

static struct ask meanwhile;

static void ask_meanwhile(void)
{
	ask_with(&meanwhile, NULL);
}

static void test_an_origin_while_the_versioning_s_body_is_awaited(void **state)
{
	(void)state;
	meanwhile = (struct ask){"PUT", "origin", ORIGIN, 200, NULL};
	ask_with(&(struct ask){"PUT", "versioning", ENABLED, 409, "InvalidBucketState"},
		ask_meanwhile);
	ask("GET", "origin", NULL, 200);
	/* The bucket was never versioned: without its origin it can have another one. */
	ask("DELETE", "origin", NULL, 204);
	ask("PUT", "origin", ORIGIN, 200);
}

static void test_versioning_while_the_origin_s_body_is_awaited(void **state)
{
	(void)state;
	meanwhile = (struct ask){"PUT", "versioning", ENABLED, 200, NULL};
	ask_with(&(struct ask){"PUT", "origin", ORIGIN, 409, "InvalidBucketState"}, ask_meanwhile);
	ask("GET", "origin", NULL, 404);
}

/* ---- One of two documents is being stored. ---- */

static struct waiter *second_done;
static struct answer second_answer;

static void second(void *arg)
{
	struct waiter *done = arg;

	second_answer = answer_of(&meanwhile, NULL);
	waiter_wake(done);
}

/* The other request runs until it waits. */
static void begin_second(void)
{
	fake_put_committed = NULL;
	assert_int_equal(fiber_spawn(reactor_self(), "second", second, second_done), 0);
	fiber_yield();
}

/* The first one is committed, and requests do not see it yet; the second one awaits its end. */
static void put_both(const struct ask *one, const struct ask *other)
{
	struct answer answer;
	struct waiter done;

	waiter_init(&done);
	second_done = &done;
	meanwhile = *other;
	fake_put_committed = begin_second;
	answer = answer_of(one, NULL);
	assert_null(fake_put_committed);
	waiter_wait(&done);
	check(one, &answer);
	check(other, &second_answer);
}

static void test_versioning_while_the_rules_are_stored(void **state)
{
	(void)state;
	ask("PUT", "versioning", ENABLED, 200);
	put_both(&(struct ask){"PUT", "replication", RULES, 200, NULL},
		&(struct ask){"PUT", "versioning", SUSPENDED, 409, "InvalidBucketState"});
}

static void test_versioning_while_the_origin_is_stored(void **state)
{
	(void)state;
	put_both(&(struct ask){"PUT", "origin", ORIGIN, 200, NULL},
		&(struct ask){"PUT", "versioning", ENABLED, 409, "InvalidBucketState"});
}

#define CONFIG_TEST(test) cmocka_unit_test_setup_teardown(test, open_all, close_all)

static int tests_run(void)
{
	const struct CMUnitTest tests[] = {
		CONFIG_TEST(test_an_origin_while_the_versioning_s_body_is_awaited),
		CONFIG_TEST(test_versioning_while_the_origin_s_body_is_awaited),
		CONFIG_TEST(test_versioning_while_the_rules_are_stored),
		CONFIG_TEST(test_versioning_while_the_origin_is_stored),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return fake_main(tests_run);
}
