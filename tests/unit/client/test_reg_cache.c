/* tests/unit/client/test_reg_cache.c: covers client/reg_cache.c: look-ups, eviction order,
 * overlaps, invalidation; and a long random run against a model. */
#include "../unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../../client/reg_cache.h"
#include "base/board.h"

#define PAGE   4096u
#define PAGES  256u
#define ACCESS (RP_ACCESS_LOCAL_WRITE | RP_ACCESS_REMOTE_WRITE | RP_ACCESS_REMOTE_READ)

static struct rp_device *device;
static struct rp_pd *pd;
static struct reg_cache *cache;
static uint8_t *memory;

static void cache_open(uint64_t pages)
{
	assert_int_equal(reg_cache_open(pd, pages * PAGE, ACCESS, &cache), 0);
}

static struct reg_entry *get(uint32_t page, uint32_t pages)
{
	struct reg_entry *entry = NULL;

	assert_int_equal(
		reg_cache_get(cache, memory + page * PAGE, (uint64_t)pages * PAGE, &entry), 0);
	return entry;
}

static uint32_t touch(uint32_t page, uint32_t pages)
{
	struct reg_entry *entry = get(page, pages);
	uint32_t rkey = reg_entry_rkey(entry);

	reg_cache_put(cache, entry);
	return rkey;
}

/* Checks the process's board, which sums all caches. */
static void shown_at_least(const char *name, uint64_t value)
{
	struct board_entry entries[BOARD_ENTRIES_MAX];
	int count = board_read(getpid(), entries, ARRAY_LEN(entries));

	for (int i = 0; i < count; i++) {
		if (!strcmp(entries[i].name, name)) {
			assert_true(entries[i].value >= value);
			return;
		}
	}
	fail_msg("%s is not shown", name);
}

static void expect(uint64_t hits, uint64_t misses, uint64_t evictions, uint32_t entries)
{
	struct reg_cache_stats stats;

	reg_cache_stats(cache, &stats);
	assert_int_equal(stats.hits, hits);
	assert_int_equal(stats.misses, misses);
	assert_int_equal(stats.evictions, evictions);
	assert_int_equal(stats.entries, entries);
}

static void test_hit_inside(void **state)
{
	struct reg_entry *entry;
	uint32_t rkey;

	(void)state;
	cache_open(PAGES);
	rkey = touch(10, 4);
	assert_int_equal(touch(10, 4), rkey);
	assert_int_equal(touch(12, 1), rkey);
	/* A few bytes inside the entry, and its last byte. */
	assert_int_equal(reg_cache_get(cache, memory + 10 * PAGE + 17, 100, &entry), 0);
	assert_int_equal(reg_entry_rkey(entry), rkey);
	reg_cache_put(cache, entry);
	assert_int_equal(reg_cache_get(cache, memory + 14 * PAGE - 1, 1, &entry), 0);
	assert_int_equal(reg_entry_rkey(entry), rkey);
	reg_cache_put(cache, entry);
	expect(4, 1, 0, 1);
	/* Its neighbours are not in the entry. */
	assert_int_not_equal(touch(14, 1), rkey);
	assert_int_not_equal(touch(9, 1), rkey);
	expect(4, 3, 0, 3);
	reg_cache_close(cache);
}

static void test_overlap_replaces(void **state)
{
	struct reg_entry *held, *entry;

	(void)state;
	cache_open(PAGES);
	touch(10, 4);
	touch(16, 4);
	/* Over both and the gap between them: one entry replaces them. */
	touch(12, 6);
	expect(0, 3, 2, 1);
	held = get(40, 4);
	assert_int_equal(reg_cache_get(cache, memory + 42 * PAGE, 4 * PAGE, &entry), -ENOSPC);
	reg_cache_put(cache, held);
	touch(42, 4);
	expect(0, 6, 3, 2);
	reg_cache_close(cache);
}

static void test_oldest_goes_first(void **state)
{
	struct reg_entry *held[3], *entry;
	uint32_t first;

	(void)state;
	cache_open(12);
	first = touch(0, 4);
	touch(10, 4);
	touch(20, 4);
	/* The first was used again, so the second goes. */
	assert_int_equal(touch(0, 4), first);
	touch(30, 4);
	expect(1, 4, 1, 3);
	assert_int_equal(touch(0, 4), first);
	/* A registration in use is not evicted; with all in use there is no room; one that is too
	 * large never fits. */
	held[0] = get(0, 4);
	held[1] = get(20, 4);
	held[2] = get(30, 4);
	assert_int_equal(reg_cache_get(cache, memory + 50 * PAGE, PAGE, &entry), -ENOSPC);
	reg_cache_put(cache, held[1]);
	touch(50, 1);
	assert_int_equal(reg_cache_get(cache, memory + 60 * PAGE, 13 * PAGE, &entry), -ENOSPC);
	reg_cache_put(cache, held[0]);
	reg_cache_put(cache, held[2]);
	reg_cache_close(cache);
}

static void test_forget(void **state)
{
	struct reg_entry *held;
	uint32_t rkey;

	(void)state;
	cache_open(PAGES);
	rkey = touch(10, 4);
	touch(20, 4);
	touch(30, 4);
	assert_int_equal(reg_cache_forget(cache, memory + 13 * PAGE, 8 * PAGE), 0);
	expect(0, 3, 0, 1);
	assert_int_equal(reg_cache_forget(cache, memory + 13 * PAGE, 8 * PAGE), 0);
	/* The same address is registered again. */
	assert_int_not_equal(touch(10, 4), rkey);
	/* In use: no longer found, and freed with its last user. */
	held = get(30, 4);
	rkey = reg_entry_rkey(held);
	assert_int_equal(reg_cache_forget(cache, memory + 30 * PAGE, 1), -EBUSY);
	assert_int_not_equal(touch(30, 4), rkey);
	reg_cache_put(cache, held);
	reg_cache_close(cache);
	reg_cache_close(NULL);
}

static void test_refused_by_the_device(void **state)
{
	struct reg_entry *entry;

	(void)state;
	cache_open(PAGES);
	/* Past the end of the address space: no device accepts that. */
	assert_int_equal(reg_cache_get(cache, NULL, 8, &entry), -EINVAL);
	expect(0, 1, 0, 0);
	/* Two buffers that share a page do not replace each other. */
	assert_int_equal(reg_cache_get(cache, memory, 5000, &entry), 0);
	reg_cache_put(cache, entry);
	assert_int_equal(reg_cache_get(cache, memory + 5000, 5000, &entry), 0);
	reg_cache_put(cache, entry);
	expect(0, 3, 0, 2);
	reg_cache_close(cache);
}

/* Every returned entry contains the request, the limit is kept, and intervals never overlap: the
 * keys of the device's table would show it. */
static void test_random(void **state)
{
	struct reg_entry *held[8] = {NULL};
	struct reg_cache_stats stats;
	struct prng prng;

	(void)state;
	cache_open(64);
	prng_seed(&prng, 17);
	for (int i = 0; i < 20000; i++) {
		uint32_t slot = (uint32_t)prng_below(&prng, ARRAY_LEN(held));
		uint32_t page = (uint32_t)prng_below(&prng, PAGES - 8);
		uint32_t pages = 1 + (uint32_t)prng_below(&prng, 7);
		int ret;

		if (held[slot]) {
			reg_cache_put(cache, held[slot]);
			held[slot] = NULL;
			continue;
		}
		if (!prng_below(&prng, 16)) {
			ret = reg_cache_forget(cache, memory + page * PAGE, pages * PAGE);
			assert_true(ret == 0 || ret == -EBUSY);
			continue;
		}
		ret = reg_cache_get(cache, memory + page * PAGE, pages * PAGE, &held[slot]);
		assert_true(ret == 0 || ret == -ENOSPC);
		assert_true(ret == 0 || !held[slot]);
		reg_cache_stats(cache, &stats);
		assert_true(stats.bytes <= 64 * PAGE && stats.entries <= 64);
	}
	assert_true(stats.hits > 100 && stats.misses > 100 && stats.evictions > 100);
	shown_at_least("nebulaio_client_registration_hits_total", stats.hits);
	shown_at_least("nebulaio_client_registration_misses_total", stats.misses);
	shown_at_least("nebulaio_client_registration_evictions_total", stats.evictions);
	shown_at_least("nebulaio_client_registration_nanoseconds_total", stats.misses);
	for (size_t i = 0; i < ARRAY_LEN(held); i++) {
		if (held[i])
			reg_cache_put(cache, held[i]);
	}
	assert_int_equal(reg_cache_forget(cache, memory, PAGES * PAGE), 0);
	reg_cache_stats(cache, &stats);
	assert_int_equal(stats.entries, 0);
	assert_int_equal(stats.bytes, 0);
	reg_cache_close(cache);
}

static int set_up(void **state)
{
	struct rp_open_opts opts = {.device_name = "simulated", .gid_index = -1};

	(void)state;
	memory = mmap(
		NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return memory == MAP_FAILED || rp_open(&opts, &device) || rp_pd_open(device, &pd);
}

static int tear_down(void **state)
{
	(void)state;
	rp_pd_close(pd);
	/* Ends the program when a registration is still open. */
	rp_close(device);
	return munmap(memory, PAGES * PAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hit_inside),
		cmocka_unit_test(test_overlap_replaces),
		cmocka_unit_test(test_oldest_goes_first),
		cmocka_unit_test(test_forget),
		cmocka_unit_test(test_refused_by_the_device),
		cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
