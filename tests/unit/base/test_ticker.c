/* tests/unit/base/test_ticker.c: a thread that sleeps between its looks is woken, and ended. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/ticker.h"

#define HOUR_MS (3600 * 1000)

struct looker {
	struct ticker ticker;
	int looked[2]; /* a pipe: one byte a look */
};

static void *run(void *arg)
{
	struct looker *looker = arg;

	do {
		CHECK(write(looker->looked[1], "", 1) == 1);
	} while (ticker_sleep(&looker->ticker, HOUR_MS));
	return NULL;
}

static void look_await(struct looker *looker)
{
	char byte;

	assert_int_equal(read(looker->looked[0], &byte, 1), 1);
}

static void test_woken_and_ended(void **state)
{
	struct looker looker = {0};

	(void)state;
	assert_int_equal(pipe(looker.looked), 0);
	assert_int_equal(ticker_open(&looker.ticker), 0);
	assert_int_equal(ticker_start(&looker.ticker, run, &looker), 0);
	look_await(&looker);
	ticker_wake(&looker.ticker);
	look_await(&looker);
	ticker_wake(&looker.ticker);
	look_await(&looker);
	ticker_stop(&looker.ticker);
	ticker_stop(&looker.ticker);
	ticker_close(&looker.ticker);
	close(looker.looked[0]);
	close(looker.looked[1]);
}

/* Before there is a thread, another may sleep, and be woken and ended. */
static void test_without_a_thread(void **state)
{
	struct ticker ticker = {0};

	(void)state;
	ticker_stop(&ticker);
	ticker_close(&ticker);
	assert_int_equal(ticker_open(&ticker), 0);
	assert_true(ticker_sleep(&ticker, 0));
	ticker_wake(&ticker);
	assert_true(ticker_sleep(&ticker, HOUR_MS));
	assert_true(ticker_sleep(&ticker, 0));
	ticker_stop(&ticker);
	assert_false(ticker_sleep(&ticker, HOUR_MS));
	ticker_close(&ticker);
}

static void test_no_descriptor(void **state)
{
	struct rlimit before, none;
	struct ticker ticker = {0};

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = before;
	none.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	assert_int_equal(ticker_open(&ticker), -EMFILE);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	ticker_stop(&ticker);
	ticker_close(&ticker);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_woken_and_ended),
		cmocka_unit_test(test_without_a_thread),
		cmocka_unit_test(test_no_descriptor),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
