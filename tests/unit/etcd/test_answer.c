/* tests/unit/etcd/test_answer.c: what etcd and former owners say is checked before it counts. */
#include "../unit.h"

#include <errno.h>

#include "etcd/etcd_priv.h"

static struct etcd_answer answer;

static int parse(const char *text)
{
	return etcd_answer_parse(slice_str(text), "p/owner", "p/life", &answer);
}

static void both_keys_are_read(void **state)
{
	(void)state;
	assert_int_equal(
		parse("{\"header\":{\"revision\":\"9\"},\"succeeded\":true,\"responses\":["
		      "{\"response_range\":{\"kvs\":[{\"key\":\"cC9vd25lcg==\",\"value\":\"MCA3\","
		      "\"mod_revision\":\"8\"}]}},"
		      "{\"response_range\":{\"kvs\":[{\"key\":\"cC9saWZl\","
		      "\"mod_revision\":6}]}}]}"),
		0);
	assert_true(answer.succeeded);
	assert_string_equal(answer.owner.text, "0 7");
	assert_int_equal(answer.owner.revision, 8);
	assert_string_equal(answer.life.text, "");
	assert_int_equal(answer.life.revision, 6);
	assert_int_equal(parse("{\"header\":{}}"), 0);
	assert_false(answer.succeeded);
	assert_int_equal(answer.owner.revision, 0);
}

static void other_answers_are_refused(void **state)
{
	static const char *const BAD[] = {"", "[]", "{}", "{\"header\":{}", "\"header\"",
		"{\"header\":{},\"responses\":[{\"response_range\":{\"kvs\":[{\"key\":1}]}}]}",
		"{\"header\":{},\"responses\":[{\"response_range\":{\"kvs\":[{\"key\":\"cC9saWZl\","
		"\"value\":\"?\",\"mod_revision\":\"1\"}]}}]}",
		/* a NUL in it */
		"{\"header\":{},\"responses\":[{\"response_range\":{\"kvs\":[{\"key\":\"cC9saWZl\","
		"\"value\":\"MQAx\",\"mod_revision\":\"1\"}]}}]}",
		"{\"header\":{},\"responses\":[{\"response_range\":{\"kvs\":[{\"key\":\"cC9saWZl\","
		"\"value\":\"MQ==\",\"mod_revision\":\"-1\"}]}}]}",
		"{\"header\":{},\"responses\":[{\"response_range\":{\"kvs\":[{\"key\":\"cC9saWZl\","
		"\"value\":\"MQ==\"}]}}]}"};

	(void)state;
	for (size_t i = 0; i < sizeof(BAD) / sizeof(*BAD); i++)
		assert_int_equal(parse(BAD[i]), -EPROTO);
}

static void tokens_become_headers(void **state)
{
	char token[8];

	(void)state;
	assert_int_equal(etcd_token_parse(SLICE("{\"token\":\"abc.7\"}"), token, sizeof(token)), 0);
	assert_string_equal(token, "abc.7");
	assert_int_equal(
		etcd_token_parse(SLICE("{\"token\":\"\"}"), token, sizeof(token)), -EPROTO);
	assert_int_equal(
		etcd_token_parse(SLICE("{\"token\":\"a\\nb\"}"), token, sizeof(token)), -EPROTO);
	assert_int_equal(
		etcd_token_parse(SLICE("{\"token\":\"12345678\"}"), token, sizeof(token)), -EPROTO);
	assert_int_equal(etcd_token_parse(SLICE("{}"), token, sizeof(token)), -EPROTO);
}

static void refusals_of_tokens(void **state)
{
	(void)state;
	/* As etcd 3.4 says them. */
	assert_true(etcd_refuses(401, "etcdserver: invalid auth token"));
	assert_true(etcd_refuses(403, "etcdserver: permission denied"));
	assert_true(etcd_refuses(400, "etcdserver: revision of auth store is old"));
	assert_true(etcd_refuses(
		400, "etcdserver: authentication failed, invalid user ID or password"));
	assert_false(etcd_refuses(400, "etcdserver: duplicate key given in txn request"));
	assert_false(etcd_refuses(503, "etcdserver: request timed out"));
}

static void records_are_checked(void **state)
{
	struct etcd_record record;

	(void)state;
	assert_int_equal(etcd_record_parse("1 12 host boot pid:[4] 77 1234 cookie", &record), 0);
	assert_true(record.owned);
	assert_int_equal(record.epoch, 12);
	assert_string_equal(record.process.host, "host");
	assert_int_equal(record.process.pid, 77);
	assert_int_equal(etcd_record_parse("0 12", &record), 0);
	assert_false(record.owned);
	assert_int_equal(record.epoch, 12);
	assert_int_equal(etcd_record_parse("", &record), -EUCLEAN);
	assert_int_equal(etcd_record_parse("0", &record), -EUCLEAN);
	assert_int_equal(etcd_record_parse("0 0", &record), -EUCLEAN);
	assert_int_equal(etcd_record_parse("1 5 host", &record), -EUCLEAN);
	assert_int_equal(etcd_record_parse("2 5 host boot pids 7 8 c", &record), -EUCLEAN);
	/* The next one must fit, too. */
	assert_int_equal(etcd_record_parse("0 9223372036854775807", &record), -EUCLEAN);
}

static void lives_are_bounded(void **state)
{
	uint64_t ms;

	(void)state;
	assert_int_equal(etcd_life_parse("7 15000", &ms), 0);
	assert_int_equal(ms, 15000);
	assert_int_equal(etcd_life_parse("7", &ms), -EUCLEAN);
	assert_int_equal(etcd_life_parse("7 3600001", &ms), -EUCLEAN);
}

static void endpoints_are_checked(void **state)
{
	(void)state;
	assert_true(etcd_endpoints_valid("http://a:2379"));
	assert_true(etcd_endpoints_valid("http://a:2379/, https://[::1]:2379"));
	assert_false(etcd_endpoints_valid(""));
	assert_false(etcd_endpoints_valid("a:2379"));
	assert_false(etcd_endpoints_valid("http://a,"
					  ",http://b"));
	assert_false(etcd_endpoints_valid("http://a/v3"));
	assert_false(etcd_endpoints_valid("http://a,http://a,http://a,http://a,http://a,http://a,"
					  "http://a,http://a,http://a"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_keys_are_read),
		cmocka_unit_test(other_answers_are_refused),
		cmocka_unit_test(tokens_become_headers),
		cmocka_unit_test(refusals_of_tokens),
		cmocka_unit_test(records_are_checked),
		cmocka_unit_test(lives_are_bounded),
		cmocka_unit_test(endpoints_are_checked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
