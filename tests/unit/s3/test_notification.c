/* tests/unit/s3/test_notification.c: notification configurations: accepted and refused ones, the
 * events and keys that a rule selects; valid targets, and the places in their queues. */
#include "../unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "s3/core/call.h"
#include "s3/core/xml_in.h"
#include "s3/event/notification.h"
#include "s3/event/notify.h"
#include "s3/event/notify_send.h"
#include "arena.h"

#define TOPIC		  "<Topic>arn:aws:sns:us-east-1:000000000000:hook</Topic>"
#define PUT		  "<Event>s3:ObjectCreated:Put</Event>"
#define RULE(inside)	  "<N><TopicConfiguration>" TOPIC inside "</TopicConfiguration></N>"
#define FILTER(rules)	  "<Filter><S3Key>" rules "</S3Key></Filter>"
#define PART(name, value) "<FilterRule><Name>" name "</Name><Value>" value "</Value></FilterRule>"
#define TWO(first, second)                                            \
	"<N><TopicConfiguration>" TOPIC first "</TopicConfiguration>" \
	"<TopicConfiguration>" TOPIC second "</TopicConfiguration></N>"

static struct s3_notification parsed;
static struct s3_notification_wrong wrong;

static int parse(const char *text)
{
	struct s3_xml *tree;

	assert_int_equal(s3_xml_parse(slice_str(text), &arena, &tree), 0);
	return s3_notification_parse(tree, &arena, &parsed, &wrong);
}

static void test_rules(void **state)
{
	(void)state;
	assert_int_equal(parse("<N/>"), 0);
	assert_int_equal(parsed.count, 0);
	assert_int_equal(parse(RULE(PUT FILTER(PART("Prefix", "a/") PART("suffix", ".jpg")))), 0);
	assert_int_equal(parsed.count, 1);
	assert_true(slice_eq(parsed.rules[0].target, SLICE("hook")));
	assert_int_equal(parsed.rules[0].id.len, 24);
	assert_true(s3_notification_wants(&parsed.rules[0], S3_EVENT_PUT, SLICE("a/1.jpg")));
	assert_false(s3_notification_wants(&parsed.rules[0], S3_EVENT_COPY, SLICE("a/1.jpg")));
	assert_false(s3_notification_wants(&parsed.rules[0], S3_EVENT_PUT, SLICE("b/1.jpg")));
	assert_false(s3_notification_wants(&parsed.rules[0], S3_EVENT_PUT, SLICE("a/1.png")));
	assert_int_equal(parse("<N><CloudFunctionConfiguration><Id>i</Id>"
			       "<CloudFunction>arn:aws:lambda:r:1:function:f</CloudFunction>"
			       "<Event>s3:ObjectRemoved:*</Event></CloudFunctionConfiguration>"
			       "<QueueConfiguration><Queue>arn:aws:sqs:r:1:q</Queue>" PUT
			       "</QueueConfiguration></N>"),
		0);
	assert_int_equal(parsed.count, 2);
	assert_true(slice_eq(parsed.rules[0].id, SLICE("i")));
	assert_true(slice_eq(parsed.rules[0].target, SLICE("f")));
	assert_true(s3_notification_wants(&parsed.rules[0], S3_EVENT_MARKER, SLICE("x")));
	assert_true(slice_eq(parsed.rules[1].target, SLICE("q")));
}

static void test_refused(void **state)
{
	static const struct {
		const char *text;
		enum s3_error_id error;
	} cases[] = {
		{RULE(""), S3_E_MALFORMED_XML},
		{"<N><TopicConfiguration>" PUT "</TopicConfiguration></N>", S3_E_MALFORMED_XML},
		{"<N><Other/></N>", S3_E_MALFORMED_XML},
		{RULE(PUT "<Other/>"), S3_E_MALFORMED_XML},
		{RULE(PUT FILTER("<Other/>")), S3_E_MALFORMED_XML},
		{RULE("<Event>s3:Other</Event>"), S3_E_INVALID_ARGUMENT},
		{RULE("<Event>s3:Replication:OperationCompleted</Event>"), S3_E_INVALID_ARGUMENT},
		{RULE(PUT FILTER(PART("infix", "a"))), S3_E_INVALID_ARGUMENT},
		{RULE(PUT FILTER(PART("prefix", "a") PART("PREFIX", "b"))), S3_E_INVALID_ARGUMENT},
		{"<N><QueueConfiguration><Queue>arn:aws:sns:r:1:q</Queue>" PUT
		 "</QueueConfiguration></N>",
			S3_E_INVALID_ARGUMENT},
		{"<N><QueueConfiguration><Queue>arn:aws:sqs:r</Queue>" PUT
		 "</QueueConfiguration></N>",
			S3_E_INVALID_ARGUMENT},
		{TWO("<Id>a</Id>" PUT, "<Id>a</Id><Event>s3:ObjectAcl:Put</Event>"),
			S3_E_INVALID_ARGUMENT},
		{TWO(PUT, "<Event>s3:ObjectCreated:*</Event>"), S3_E_INVALID_ARGUMENT},
		{TWO(PUT FILTER(PART("prefix", "a")), PUT FILTER(PART("suffix", "b"))),
			S3_E_INVALID_ARGUMENT},
		{"<N><EventBridgeConfiguration/></N>", S3_E_NOT_IMPLEMENTED},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		assert_int_equal(parse(cases[i].text), -EINVAL);
		assert_int_equal(wrong.error, cases[i].error);
	}
	/* No key matches both of these. */
	assert_int_equal(
		parse(TWO(PUT FILTER(PART("prefix", "a")), PUT FILTER(PART("prefix", "b")))), 0);
}

static int open_targets(const char *targets, struct s3_notify **ret_notify)
{
	const struct s3_notify_opts opts = {.targets = targets};

	return s3_notify_open(&opts, ret_notify);
}

static void test_targets(void **state)
{
	static const char *const bad[] = {"a", "a=ftp://h", "=http://h", "a b=http://h",
		"a=http://h,a=http://i", "a=http://h,,"};
	struct s3_notify *notify;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(open_targets(bad[i], &notify), -EINVAL);
	assert_int_equal(open_targets("a=http://127.0.0.1:1/x?y=z, b=https://h", &notify), 0);
	assert_true(s3_notify_has(notify, SLICE("a")));
	assert_true(s3_notify_has(notify, SLICE("b")));
	assert_false(s3_notify_has(notify, SLICE("log")));
	s3_notify_close(notify);
}

/* ---- Places in queues. ---- */

static const struct s3_notify_endpoint to_log = {.name = SLICE(S3_TARGET_LOG)};

static struct s3_notice *reserve(struct s3_notify *notify, size_t bytes, int expected)
{
	struct s3_notice *notice = NULL;

	assert_int_equal(s3_notify_reserve(notify, &to_log, bytes, &notice), expected);
	return notice;
}

static void test_places(void **state)
{
	const struct s3_notify_opts opts = {.log_file = "/proc/none/log",
		.queue_events = 2,
		.queue_bytes = 1000,
		.targets = "other=http://127.0.0.1:1/"};
	const struct s3_notify_endpoint nobody = {.name = SLICE("nobody")};
	const struct s3_notify_endpoint url = {.name = SLICE("t"), .url = SLICE("http://h")};
	const struct s3_notify_endpoint other = {.name = SLICE("other")};
	struct s3_notice *first, *second, *third, *fourth;
	struct s3_notify *notify;

	(void)state;
	assert_int_equal(s3_notify_open(&opts, &notify), 0);
	assert_int_equal(s3_notify_reserve(notify, &nobody, 1, &first), -ENOENT);
	assert_int_equal(s3_notify_reserve(notify, &url, 1, &first), -ENOENT);
	first = reserve(notify, 200, 0);
	second = reserve(notify, 200, 0);
	/* Limits: events of a target, bytes of all targets. */
	reserve(notify, 1, -ENOBUFS);
	assert_int_equal(s3_notify_reserve(notify, &other, 601, &third), -ENOBUFS);
	assert_int_equal(s3_notify_reserve(notify, &other, 200, &third), 0);
	/* A target that has events leaves as much for others. */
	assert_int_equal(s3_notify_reserve(notify, &other, 101, &fourth), -ENOBUFS);
	assert_int_equal(s3_notify_reserve(notify, &other, 100, &fourth), 0);
	s3_notify_cancel(first);
	first = reserve(notify, 100, 0);
	s3_notify_cancel(first);
	s3_notify_cancel(second);
	s3_notify_cancel(third);
	s3_notify_cancel(fourth);
	s3_notify_cancel(NULL);
	s3_notify_close(notify);
}

/* Topics that cannot be reached, as many as there can be places. */
static struct s3_notice *dead[S3_NOTIFY_TOPICS_ACTIVE_MAX + 1];
static uint32_t dead_count;

static int reserve_topic(struct s3_notify *notify, const char *name, size_t bytes)
{
	const struct s3_notify_endpoint topic = {
		.name = slice_str(name), .url = SLICE("http://127.0.0.1:1/")};
	int ret = s3_notify_reserve(notify, &topic, bytes, &dead[dead_count]);

	if (!ret)
		dead_count++;
	return ret;
}

/* Events for topics of the account, one each, until none has a place: their count. */
static uint32_t take_topic_places(struct s3_notify *notify, const char *account)
{
	char name[32];
	uint32_t count;
	int ret = 0;

	for (count = 0; !ret; count++) {
		snprintf(name, sizeof(name), "%s:%u", account, count);
		ret = reserve_topic(notify, name, 1);
	}
	assert_int_equal(ret, -EBUSY);
	return count - 1;
}

static void cancel_dead(void)
{
	while (dead_count)
		s3_notify_cancel(dead[--dead_count]);
}

static void test_an_account_leaves_topic_places(void **state)
{
	const struct s3_notify_opts opts = {
		.topics = S3_TOPICS_ANYWHERE, .targets = "hook=http://127.0.0.1:1/"};
	const struct s3_notify_endpoint hook = {.name = SLICE("hook")};
	struct s3_notify *notify;
	struct s3_notice *notice;

	(void)state;
	assert_int_equal(s3_notify_open(&opts, &notify), 0);
	assert_int_equal(take_topic_places(notify, "a"), S3_NOTIFY_TOPICS_ACTIVE_MAX / 2 + 1);
	assert_int_equal(s3_notify_reserve(notify, &hook, 1, &notice), 0);
	s3_notify_cancel(notice);
	assert_int_equal(take_topic_places(notify, "b"), S3_NOTIFY_TOPICS_ACTIVE_MAX / 4);
	assert_int_equal(reserve_topic(notify, "ab:c", 1), 0);
	/* A topic that has a place keeps it. */
	assert_int_equal(reserve_topic(notify, "a:0", 1), 0);
	cancel_dead();
	s3_notify_close(notify);
}

static void test_an_account_leaves_bytes(void **state)
{
	struct s3_notify_opts opts = {.topics = S3_TOPICS_ANYWHERE,
		.queue_bytes = 1600,
		.targets = "hook=http://127.0.0.1:1/"};
	const struct s3_notify_endpoint hook = {.name = SLICE("hook")};
	struct s3_notify *notify;
	struct s3_notice *notice;

	(void)state;
	assert_int_equal(s3_notify_open(&opts, &notify), 0);
	/* All topics have 800. An account has half, and each topic leaves as much to the others of
	 * its account. */
	assert_int_equal(reserve_topic(notify, "a:0", 100), 0);
	assert_int_equal(reserve_topic(notify, "a:0", 100), 0);
	assert_int_equal(reserve_topic(notify, "a:0", 1), -ENOBUFS);
	assert_int_equal(reserve_topic(notify, "a:1", 100), 0);
	assert_int_equal(reserve_topic(notify, "a:1", 1), -ENOBUFS);
	assert_int_equal(reserve_topic(notify, "a:2", 100), 0);
	assert_int_equal(reserve_topic(notify, "a:3", 1), -ENOBUFS);
	assert_int_equal(reserve_topic(notify, "b:0", 400), 0);
	assert_int_equal(reserve_topic(notify, "c:0", 1), -ENOBUFS);
	/* The other half is for configured targets. */
	assert_int_equal(s3_notify_reserve(notify, &hook, 800, &notice), 0);
	s3_notify_cancel(notice);
	cancel_dead();
	s3_notify_close(notify);
	/* Without these, topics have all. */
	opts.targets = NULL;
	assert_int_equal(s3_notify_open(&opts, &notify), 0);
	assert_int_equal(reserve_topic(notify, "a:0", 1600), 0);
	cancel_dead();
	s3_notify_close(notify);
}

static void on_room(void *arg)
{
	sem_post((sem_t *)arg);
}

/* The log's folder is created after the first event was sent, so that the others wait in the
 * queue. */
static void test_order(void **state)
{
	char folder[] = "/tmp/nebulaio-test-XXXXXX", path[64], text[64] = "";
	struct s3_notify_opts opts = {.log_file = path};
	struct s3_notice *notices[4];
	struct s3_notify *notify;
	uint64_t numbers[4];
	FILE *log;
	sem_t room;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/later/log", folder);
	sem_init(&room, 0, 0);
	assert_int_equal(s3_notify_open(&opts, &notify), 0);
	s3_notify_on_room(notify, on_room, &room);
	for (uint32_t i = 0; i < 4; i++)
		notices[i] = reserve(notify, 1, 0);
	s3_notify_queue(notices[0], SLICE("a"), 1, true);
	s3_notify_queue(notices[1], SLICE("c"), 3, true);
	s3_notify_queue(notices[2], SLICE("b"), 2, true);
	s3_notify_queue(notices[3], SLICE("d"), 0, false);
	*strrchr(path, '/') = 0;
	assert_int_equal(mkdir(path, 0700), 0);
	path[strlen(path)] = '/';
	for (uint32_t i = 0; i < 4; i++)
		while (sem_wait(&room))
			;
	assert_int_equal(s3_notify_take_done(notify, numbers, 2), 2);
	assert_true(numbers[0] == 1 && numbers[1] == 2);
	assert_int_equal(s3_notify_take_done(notify, numbers, 4), 1);
	assert_int_equal(numbers[0], 3);
	log = fopen(path, "r");
	assert_non_null(log);
	assert_int_equal(fread(text, 1, sizeof(text) - 1, log), 8);
	fclose(log);
	assert_string_equal(text, "a\nb\nc\nd\n");
	/* Stored events that cannot be sent remain when the server ends. */
	unlink(path);
	*strrchr(path, '/') = 0;
	assert_int_equal(rmdir(path), 0);
	s3_notify_queue(reserve(notify, 1, 0), SLICE("e"), 4, true);
	s3_notify_stop(notify);
	assert_int_equal(s3_notify_take_done(notify, numbers, 4), 0);
	reserve(notify, 1, -ENOBUFS);
	s3_notify_close(notify);
	sem_destroy(&room);
	assert_int_equal(rmdir(folder), 0);
}

/* ---- Addresses that clients' topics may send to. ---- */

static bool is_public(const char *text)
{
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
	struct sockaddr_in v4 = {.sin_family = AF_INET};

	if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
		return s3_address_is_public((struct sockaddr *)&v4);
	assert_int_equal(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
	return s3_address_is_public((struct sockaddr *)&v6);
}

static void test_addresses(void **state)
{
	static const char *const fine[] = {"8.8.8.8", "1.1.1.1", "172.32.0.1", "192.169.0.1",
		"100.128.0.1", "223.255.255.255", "2606:4700::1111", "2a00:1450::1",
		"::ffff:8.8.8.8"};
	static const char *const refused[] = {"127.0.0.1", "0.0.0.0", "10.1.2.3", "172.16.0.1",
		"172.31.255.255", "192.168.1.1", "169.254.169.254", "100.64.0.1", "224.0.0.1",
		"255.255.255.255", "198.18.0.1", "::1", "::", "fe80::1", "fc00::1", "ff02::1",
		"::ffff:127.0.0.1", "::ffff:10.0.0.1", "2001:db8::1", "2002:7f00:1::1",
		"64:ff9b::7f00:1"};
	const struct sockaddr other = {.sa_family = AF_UNIX};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(fine); i++)
		assert_true(is_public(fine[i]));
	for (size_t i = 0; i < ARRAY_LEN(refused); i++)
		assert_false(is_public(refused[i]));
	assert_false(s3_address_is_public(&other));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rules),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_targets),
		cmocka_unit_test(test_places),
		cmocka_unit_test(test_an_account_leaves_topic_places),
		cmocka_unit_test(test_an_account_leaves_bytes),
		cmocka_unit_test(test_order),
	};

	return cmocka_run_group_tests_name("notification", tests, arena_setup, arena_teardown);
}
