/* tests/unit/server/test_cache_share.c: the rules by which the cache's part of the region follows
 * the load, second by second. */
#include "../unit.h"

#include "server/cache_share.h"

struct play {
	struct cache_share share;
	uint64_t now_ns;
	uint32_t changes;
};

static void seconds(struct play *play, bool full, bool refused, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		uint32_t before = play->share.eighths;
		bool changed;

		play->now_ns += NS_PER_S;
		changed = cache_share_judge(&play->share, full, refused, play->now_ns);
		assert_int_equal(changed, before != play->share.eighths);
		assert_true(play->share.eighths <= CACHE_SHARE_EIGHTHS_MAX);
		play->changes += changed;
	}
}

static void test_grows_while_full(void **state)
{
	struct play play = {.now_ns = NS_PER_S};

	(void)state;
	seconds(&play, false, false, 100);
	assert_int_equal(play.share.eighths, 0);
	seconds(&play, true, false, 4);
	assert_int_equal(play.share.eighths, CACHE_SHARE_EIGHTHS_MAX);
	seconds(&play, true, false, 1000);
	seconds(&play, false, false, 1000);
	assert_int_equal(play.share.eighths, CACHE_SHARE_EIGHTHS_MAX);
	assert_int_equal(play.changes, 4);
}

static void test_transfers_come_first(void **state)
{
	struct play play = {.now_ns = NS_PER_S};

	(void)state;
	seconds(&play, true, true, 10);
	assert_int_equal(play.share.eighths, 0);
	seconds(&play, true, false, 4);
	seconds(&play, true, true, 1);
	assert_int_equal(play.share.eighths, 3);
	seconds(&play, true, true, 10);
	assert_int_equal(play.share.eighths, 0);
}

/* A load that needs the frames each time the cache has taken them causes few changes. */
static void test_does_not_swing(void **state)
{
	struct play play = {.now_ns = NS_PER_S};

	(void)state;
	for (uint32_t i = 0; i < 10 * 3600; i++)
		seconds(&play, true, play.share.eighths > 2, 1);
	assert_true(play.share.eighths >= 2);
	assert_true(play.changes < 50);
}

static void test_forgets_a_shortage(void **state)
{
	struct play play = {.now_ns = NS_PER_S};

	(void)state;
	for (uint32_t i = 0; i < 2000; i++)
		seconds(&play, true, play.share.eighths > 2, 1);
	seconds(&play, true, false, 5 * 3600);
	assert_int_equal(play.share.eighths, CACHE_SHARE_EIGHTHS_MAX);
	seconds(&play, true, true, 1);
	seconds(&play, true, false, 31);
	assert_int_equal(play.share.eighths, CACHE_SHARE_EIGHTHS_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_grows_while_full),
		cmocka_unit_test(test_transfers_come_first),
		cmocka_unit_test(test_does_not_swing),
		cmocka_unit_test(test_forgets_a_shortage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
