/* tests/unit/console/test_session.c: sessions are found by their cookies alone, end in time, and
 * leave room for other users; hosts that fail to sign in wait. */
#include "../unit.h"

#include <stdio.h>
#include <stdlib.h>

#include "console/console_priv.h"

#define IDLE_NS (100 * NS_PER_S)
#define ENDS_MS 1000000

static struct console_table table;
static struct console_limit limit;

static int begin(void **state)
{
	(void)state;
	table = (struct console_table){.session_s = ENDS_MS / 1000, .idle_timeout_ns = IDLE_NS};
	limit = (struct console_limit){0};
	return 0;
}

static int end(void **state)
{
	(void)state;
	console_table_free(&table);
	return 0;
}

static struct console_now at(uint64_t seconds)
{
	return (struct console_now){
		.mono_ns = seconds * NS_PER_S, .real_ms = (int64_t)seconds * 1000};
}

static const char *named_arn; /* NULL: of the name */
static const char *account = "";

static void add(const char *name, uint64_t seconds, char ret_cookie[CONSOLE_COOKIE_LEN + 1])
{
	struct console_session *session = calloc(1, sizeof(*session));

	assert_non_null(session);
	session->references = 1;
	session->expires_ms = ENDS_MS;
	snprintf(session->signed_in, sizeof(session->signed_in), "%s", name);
	snprintf(session->arn, sizeof(session->arn), "arn:%s", named_arn ? named_arn : name);
	snprintf(session->account, sizeof(session->account), "%s", account);
	console_table_add(&table, session, at(seconds), ret_cookie);
}

/* Whether the cookie has a session, which is not kept. */
static bool has(const char *cookie, uint64_t seconds, bool touch)
{
	struct console_session *session =
		console_table_get(&table, slice_str(cookie), at(seconds), touch);

	console_session_put(session);
	return session != NULL;
}

static void test_a_cookie_finds_its_session_only(void **state)
{
	char one[CONSOLE_COOKIE_LEN + 1], two[CONSOLE_COOKIE_LEN + 1];
	struct console_session *session;

	(void)state;
	add("one", 1, one);
	add("two", 1, two);
	assert_int_equal(strlen(one), CONSOLE_COOKIE_LEN);
	assert_string_not_equal(one, two);
	session = console_table_get(&table, slice_str(two), at(1), true);
	assert_non_null(session);
	assert_string_equal(session->signed_in, "two");
	/* The table does not hold what a browser would send. */
	assert_memory_not_equal(session->digest, two, sizeof(session->digest));
	console_session_put(session);
	two[0] = two[0] == 'a' ? 'b' : 'a';
	assert_false(has(two, 1, true));
	assert_false(has("", 1, true));
	two[10] = '\0';
	assert_false(has(two, 1, true));
}

static void test_an_idle_session_ends(void **state)
{
	char cookie[CONSOLE_COOKIE_LEN + 1];

	(void)state;
	add("one", 1, cookie);
	assert_true(has(cookie, 100, true));
	/* A page that looks by itself does not keep it. */
	assert_true(has(cookie, 199, false));
	assert_false(has(cookie, 200, false));
	assert_int_equal(console_table_count(&table), 0);
}

static void test_a_session_ends_with_its_credentials(void **state)
{
	char cookie[CONSOLE_COOKIE_LEN + 1];

	(void)state;
	add("one", 900, cookie);
	assert_true(has(cookie, 999, true));
	assert_false(has(cookie, ENDS_MS / 1000, true));
}

/* An identity provider's user, say, whose role allows longer sessions. */
static void test_a_session_does_not_outlast_the_setting(void **state)
{
	char cookie[CONSOLE_COOKIE_LEN + 1];

	(void)state;
	table.session_s = 60;
	add("one", 900, cookie);
	assert_true(has(cookie, 959, true));
	assert_false(has(cookie, 960, true));
}

static void test_a_removed_session_lives_while_it_is_used(void **state)
{
	char cookie[CONSOLE_COOKIE_LEN + 1];
	struct console_session *session;

	(void)state;
	add("one", 1, cookie);
	session = console_table_get(&table, slice_str(cookie), at(1), true);
	assert_non_null(session);
	console_table_remove(&table, session);
	assert_false(has(cookie, 1, true));
	assert_string_equal(session->signed_in, "one");
	console_session_put(session);
}

static void test_a_key_has_few_sessions(void **state)
{
	char first[CONSOLE_COOKIE_LEN + 1], other[CONSOLE_COOKIE_LEN + 1],
		cookie[CONSOLE_COOKIE_LEN + 1];

	(void)state;
	add("other", 0, other);
	add("one", 1, first);
	for (uint32_t i = 1; i < CONSOLE_SESSIONS_PER_KEY; i++)
		add("one", 2, cookie);
	assert_true(has(first, 2, false));
	add("one", 3, cookie);
	/* The oldest made room, not another user's. */
	assert_false(has(first, 3, false));
	assert_true(has(cookie, 3, false));
	assert_true(has(other, 3, false));
	assert_int_equal(console_table_count(&table), CONSOLE_SESSIONS_PER_KEY + 1);
}

/* A user of an identity provider may be named as somebody's access key is. */
static void test_a_name_is_nobodys(void **state)
{
	char first[CONSOLE_COOKIE_LEN + 1], cookie[CONSOLE_COOKIE_LEN + 1];

	(void)state;
	add("root", 1, first);
	named_arn = "assumed-role/guest/root";
	for (uint32_t i = 0; i < 2 * CONSOLE_SESSIONS_PER_KEY; i++)
		add("root", 2, cookie);
	named_arn = NULL;
	assert_true(has(first, 2, false));
	assert_int_equal(console_table_count(&table), CONSOLE_SESSIONS_PER_KEY + 1);
}

static void test_a_full_table_gives_up_the_most_idle(void **state)
{
	char cookies[CONSOLE_SESSIONS_MAX + 1][CONSOLE_COOKIE_LEN + 1], name[32];

	(void)state;
	for (uint32_t i = 0; i < CONSOLE_SESSIONS_MAX; i++) {
		snprintf(name, sizeof(name), "user%u", i);
		add(name, i < 8 ? 1 : 2, cookies[i]);
	}
	for (uint32_t i = 0; i < 7; i++)
		assert_true(has(cookies[i], 2, true));
	add("last", 3, cookies[CONSOLE_SESSIONS_MAX]);
	assert_int_equal(console_table_count(&table), CONSOLE_SESSIONS_MAX);
	assert_false(has(cookies[7], 3, false));
	assert_true(has(cookies[0], 3, false));
	assert_true(has(cookies[CONSOLE_SESSIONS_MAX], 3, false));
}

/* An account makes as many users as it likes: they take their own places, not those of others. */
static void test_an_account_leaves_places(void **state)
{
	char operator[CONSOLE_COOKIE_LEN + 1], other[CONSOLE_COOKIE_LEN + 1],
		cookie[CONSOLE_COOKIE_LEN + 1], name[32];

	(void)state;
	account = "000000000000";
	add("root", 1, operator);
	account = "111122223333";
	add("other", 1, other);
	account = "444455556666";
	for (uint32_t i = 0; i < 2 * CONSOLE_SESSIONS_MAX; i++) {
		snprintf(name, sizeof(name), "user%u", i);
		add(name, 2 + i / CONSOLE_SESSIONS_MAX, cookie);
	}
	assert_true(has(cookie, 3, false));
	assert_true(has(operator, 3, false));
	assert_true(has(other, 3, false));
	assert_int_equal(console_table_count(&table), CONSOLE_SESSIONS_MAX);
	/* And the others get one. */
	account = "111122223333";
	add("third", 3, cookie);
	assert_true(has(cookie, 3, false));
	assert_true(has(other, 3, false));
	account = "";
}

static bool may_try(const char *peer, uint64_t seconds)
{
	uint32_t wait_s = 0;
	bool may = console_limit_take(&limit, slice_str(peer), seconds * NS_PER_S, &wait_s);

	assert_int_equal(wait_s > 0, !may);
	return may;
}

static void test_a_host_that_fails_waits(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < CONSOLE_TRIES_MAX; i++)
		assert_true(may_try("192.0.2.1:1000", 50));
	/* Another port is the same host; another host is not. */
	assert_false(may_try("192.0.2.1:2000", 50));
	assert_true(may_try("192.0.2.2:1000", 50));
	assert_false(may_try("192.0.2.1:1000", 55));
	assert_true(may_try("192.0.2.1:1000", 56));
	assert_false(may_try("192.0.2.1:1000", 57));
	assert_true(may_try("192.0.2.1:1000", 1000));
}

static void test_a_success_does_not_count(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 3 * CONSOLE_TRIES_MAX; i++) {
		assert_true(may_try("192.0.2.1:1", 50));
		console_limit_give(&limit, SLICE("192.0.2.1:2"));
	}
}

static void test_an_ipv6_network_is_one_host(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < CONSOLE_TRIES_MAX; i++)
		assert_true(may_try(i % 2 ? "[2001:db8::1]:1" : "[2001:db8::ffff:2]:9", 50));
	assert_false(may_try("[2001:db8::3]:1", 50));
	assert_true(may_try("[2001:db8:0:1::3]:1", 50));
}

/* The table of hosts is bounded: the one that was quiet for longest is forgotten. */
static void test_many_hosts(void **state)
{
	char peer[32];

	(void)state;
	for (uint32_t i = 0; i < CONSOLE_TRIES_MAX; i++)
		may_try("192.0.2.1:1", 50);
	for (uint32_t i = 0; i < CONSOLE_HOSTS_MAX - 1; i++) {
		snprintf(peer, sizeof(peer), "198.51.%u.%u:1", i / 256, i % 256);
		assert_true(may_try(peer, 51));
	}
	assert_false(may_try("192.0.2.1:1", 52));
	assert_true(may_try("203.0.113.1:1", 53));
	assert_false(may_try("192.0.2.1:1", 53));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_cookie_finds_its_session_only, begin, end),
		cmocka_unit_test_setup_teardown(test_an_idle_session_ends, begin, end),
		cmocka_unit_test_setup_teardown(
			test_a_session_ends_with_its_credentials, begin, end),
		cmocka_unit_test_setup_teardown(
			test_a_session_does_not_outlast_the_setting, begin, end),
		cmocka_unit_test_setup_teardown(
			test_a_removed_session_lives_while_it_is_used, begin, end),
		cmocka_unit_test_setup_teardown(test_a_key_has_few_sessions, begin, end),
		cmocka_unit_test_setup_teardown(test_a_name_is_nobodys, begin, end),
		cmocka_unit_test_setup_teardown(
			test_a_full_table_gives_up_the_most_idle, begin, end),
		cmocka_unit_test_setup_teardown(test_an_account_leaves_places, begin, end),
		cmocka_unit_test_setup_teardown(test_a_host_that_fails_waits, begin, end),
		cmocka_unit_test_setup_teardown(test_a_success_does_not_count, begin, end),
		cmocka_unit_test_setup_teardown(test_an_ipv6_network_is_one_host, begin, end),
		cmocka_unit_test_setup_teardown(test_many_hosts, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
