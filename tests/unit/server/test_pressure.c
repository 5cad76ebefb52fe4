#include "sysfs.h"

#include "server/pressure.h"

#define STEP (64 * MIB)

/* ---- Reading. ---- */

static struct pressure_sample sample_read(void)
{
	struct pressure_sample sample;

	pressure_read(sysfs, &sample);
	return sample;
}

static void test_nothing_there(void **state)
{
	struct pressure_sample sample = sample_read();

	(void)state;
	assert_int_equal(sample.stalled_centi, 0);
	assert_true(sample.free_bytes > 1ull << 60);
}

static void test_of_the_host(void **state)
{
	struct pressure_sample sample;

	(void)state;
	sysfs_put("proc/pressure/memory", "some avg10=12.34 avg60=1.00 avg300=0.10 total=5\n"
					  "full avg10=99.00 avg60=0.00 avg300=0.00 total=1\n");
	sysfs_put("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 5 kB\nMemAvailable: 300 kB\n");
	sample = sample_read();
	assert_int_equal(sample.stalled_centi, 1234);
	assert_int_equal(sample.free_bytes, 300 * KIB);
	assert_int_equal(sample.all_bytes, 1000 * KIB);
}

static void test_of_control_groups(void **state)
{
	struct pressure_sample sample;

	(void)state;
	sysfs_put("proc/pressure/memory", "some avg10=0.50 avg60=0.00 avg300=0.00 total=5\n");
	sysfs_put("proc/meminfo", "MemTotal: 1000000 kB\nMemAvailable: 900000 kB\n");
	sysfs_put("proc/self/cgroup", "0::/a/b\n");
	sysfs_put("sys/fs/cgroup/a/b/memory.pressure", "some avg10=3.07 avg60=0.00\n");
	sysfs_put("sys/fs/cgroup/a/memory.pressure", "some avg10=2.00 avg60=0.00\n");
	sysfs_put("sys/fs/cgroup/a/b/memory.max", "104857600\n");
	sysfs_put("sys/fs/cgroup/a/b/memory.current", "52428800\n");
	sysfs_put("sys/fs/cgroup/a/b/memory.high", "max\n");
	sample = sample_read();
	assert_int_equal(sample.stalled_centi, 307);
	assert_int_equal(sample.free_bytes, 50 * MIB);
	assert_int_equal(sample.all_bytes, 100 * MIB);
	sysfs_put("sys/fs/cgroup/a/b/memory.high", "62914560\n");
	sample = sample_read();
	assert_int_equal(sample.free_bytes, 10 * MIB);
	assert_int_equal(sample.all_bytes, 60 * MIB);
	/* The page cache that the kernel can drop is free, there and below memory.max. */
	sysfs_put("sys/fs/cgroup/a/b/memory.current", "62914560\n");
	sysfs_put("sys/fs/cgroup/a/b/memory.stat", "anon 20971520\ninactive_file 41943040\n");
	sample = sample_read();
	assert_int_equal(sample.free_bytes, 40 * MIB);
	assert_int_equal(sample.all_bytes, 60 * MIB);
	sysfs_put("sys/fs/cgroup/a/b/memory.current", "52428800\n");
	sysfs_put("sys/fs/cgroup/a/b/memory.stat", "anon 52428800\ninactive_file 0\n");
	/* Above it, nothing is free. */
	sysfs_put("sys/fs/cgroup/a/b/memory.high", "41943040\n");
	assert_int_equal(sample_read().free_bytes, 0);
}

static void test_noise_is_no_pressure(void **state)
{
	static const char *const TEXTS[] = {"", "\n", "some\n", "some avg10=\n", "some avg10=x.y\n",
		"full avg10=50.00\n", "some avg10=-1.00\n"};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(TEXTS); i++) {
		sysfs_put("proc/pressure/memory", TEXTS[i]);
		assert_int_equal(sample_read().stalled_centi, 0);
	}
}

/* ---- The rules. ---- */

struct play {
	struct pressure pressure;
	uint64_t now_ns;
};
static const struct pressure_sample CALM = {0, 50 * GIB, 100 * GIB};
static const struct pressure_sample PRESSED = {1000, 50 * GIB, 100 * GIB};
static const struct pressure_sample BETWEEN = {500, 50 * GIB, 100 * GIB};

/* Seconds until the verdict is not to stay; 0: it stays for an hour and more. */
static uint32_t seconds_to(
	struct play *play, struct pressure_sample sample, bool wanted, enum pressure_verdict wants)
{
	for (uint32_t s = 1; s <= 4000; s++) {
		enum pressure_verdict verdict;

		play->now_ns += NS_PER_S;
		verdict = pressure_judge(&play->pressure, &sample, STEP, wanted, play->now_ns);
		if (verdict == PRESSURE_STAY)
			continue;
		assert_int_equal(verdict, wants);
		pressure_changed(&play->pressure, verdict, play->now_ns);
		return s;
	}
	return 0;
}

static void test_grows_when_it_is_calm(void **state)
{
	struct play play = {.now_ns = NS_PER_S};

	(void)state;
	assert_int_equal(seconds_to(&play, CALM, false, PRESSURE_STAY), 0);
	assert_int_equal(seconds_to(&play, BETWEEN, true, PRESSURE_STAY), 0);
	assert_int_equal(seconds_to(&play, CALM, true, PRESSURE_GROW), 11);
	assert_int_equal(seconds_to(&play, CALM, true, PRESSURE_GROW), 10);
	/* The free memory must exceed the step by an eighth of all. */
	assert_int_equal(
		seconds_to(&play, (struct pressure_sample){0, 100 * GIB / 8 + STEP - 1, 100 * GIB},
			true, PRESSURE_STAY),
		0);
	assert_int_equal(
		seconds_to(&play, (struct pressure_sample){0, STEP, 100}, true, PRESSURE_STAY), 0);
}

static void test_shrinks_under_pressure(void **state)
{
	struct play play = {.now_ns = NS_PER_S};

	(void)state;
	assert_int_equal(seconds_to(&play, PRESSED, true, PRESSURE_SHRINK), 4);
	assert_int_equal(seconds_to(&play, PRESSED, true, PRESSURE_SHRINK), 10);
	/* Too little free memory is pressure, too. */
	play = (struct play){.now_ns = NS_PER_S};
	assert_int_equal(
		seconds_to(&play, (struct pressure_sample){0, 100 * GIB / 32 - 1, 100 * GIB}, true,
			PRESSURE_SHRINK),
		4);
}

static void test_swings_more_and_more_slowly(void **state)
{
	struct play play = {.now_ns = NS_PER_S};
	uint32_t last = 0;

	(void)state;
	for (uint32_t i = 0; i < 10; i++) {
		uint32_t waited;

		assert_true(seconds_to(&play, PRESSED, true, PRESSURE_SHRINK) > 0);
		waited = seconds_to(&play, CALM, true, PRESSURE_GROW);
		assert_true(waited >= 60 && waited <= 3600);
		assert_true(waited >= 2 * last || waited >= 3500);
		last = waited - 1;
	}
	/* After two hours in peace, the wait is the least again. */
	play.now_ns += 7300 * NS_PER_S;
	assert_true(seconds_to(&play, PRESSED, true, PRESSURE_SHRINK) > 0);
	assert_int_equal(seconds_to(&play, CALM, true, PRESSURE_GROW), 60);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_nothing_there, sysfs_make, sysfs_remove),
		cmocka_unit_test_setup_teardown(test_of_the_host, sysfs_make, sysfs_remove),
		cmocka_unit_test_setup_teardown(test_of_control_groups, sysfs_make, sysfs_remove),
		cmocka_unit_test_setup_teardown(
			test_noise_is_no_pressure, sysfs_make, sysfs_remove),
		cmocka_unit_test(test_grows_when_it_is_calm),
		cmocka_unit_test(test_shrinks_under_pressure),
		cmocka_unit_test(test_swings_more_and_more_slowly),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
