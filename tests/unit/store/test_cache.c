/* tests/unit/store/test_cache.c: chunks in region frames: bounded, shared with readers, and given
 * back under pressure. */
#include "../unit.h"

#include <errno.h>
#include <string.h>

#include "store/store_priv.h"

#define REGION_FRAMES 8192u

static struct region *region;
static struct cache *cache;

static int setup(void **state)
{
	struct region_opts opts = {.bytes = (uint64_t)REGION_FRAMES * FRAME_BYTES,
		.core_count = 1,
		.ring_entries = 64};

	(void)state;
	return region_open(&opts, &region);
}

static int teardown(void **state)
{
	struct region_usage usage;

	(void)state;
	region_usage(region, &usage);
	for (uint32_t owner = OWNER_FREE + 1; owner < OWNER_COUNT; owner++)
		assert_int_equal(usage.frames_by_owner[owner], 0);
	region_close(region);
	return 0;
}

static bool chunk_add(uint64_t data_id, uint32_t chunk_idx, uint32_t frames, uint32_t bytes)
{
	struct cache_offer offer = {
		.data_id = data_id, .chunk_idx = chunk_idx, .bytes = bytes, .owner = OWNER_DISK};

	assert_int_equal(region_lease(region, frames, OWNER_DISK, &offer.span), 0);
	memset(offer.span.data, (int)data_id, bytes);
	if (cache_add(cache, &offer))
		return true;
	region_give(region, offer.span, OWNER_DISK);
	return false;
}

static void test_finds_what_was_added(void **state)
{
	struct region_span span;

	(void)state;
	assert_int_equal(cache_open(region, 8 * MIB, &cache), 0);
	assert_true(chunk_add(1, 0, 4, 4 * FRAME_BYTES));
	assert_true(chunk_add(1, 1, 1, 100));
	assert_false(chunk_add(1, 1, 1, 100));	/* already cached */
	assert_false(chunk_add(2, 0, 64, 100)); /* the span is far too large for the chunk */
	assert_true(cache_find(cache, 1, 1, 100, &span));
	assert_int_equal(span.data[0], 1);
	assert_false(cache_find(cache, 1, 1, 99, &span)); /* not the whole chunk */
	assert_false(cache_find(cache, 1, 2, 100, &span));
	assert_int_equal(cache_bytes(cache), 5 * FRAME_BYTES);
	/* Dropped while being read: the reader keeps its frames. */
	cache_drop(cache, 1, 2);
	assert_int_equal(cache_bytes(cache), 0);
	assert_int_equal(span.data[0], 1);
	assert_true(region_put(region, span, OWNER_CACHE));
	cache_close(cache);
}

static void test_stays_within_its_bound(void **state)
{
	struct region_span span;
	uint32_t found = 0;

	(void)state;
	assert_int_equal(cache_open(region, 4 * MIB, &cache), 0);
	assert_false(chunk_add(1000, 0, 1024, 4 * MIB)); /* one chunk may not fill the cache */
	for (uint64_t id = 1; id <= 500; id++) {
		assert_true(chunk_add(id, 0, 16, 16 * FRAME_BYTES));
		assert_true(cache_bytes(cache) <= 4 * MIB);
		/* The first one is used all the time, so it stays. */
		if (cache_find(cache, 1, 0, 16 * FRAME_BYTES, &span)) {
			found++;
			region_put(region, span, OWNER_CACHE);
		}
	}
	assert_int_equal(found, 500);
	assert_true(cache_bytes(cache) > 3 * MIB);
	cache_close(cache);
}

static void test_gives_frames_back_under_pressure(void **state)
{
	struct region_usage usage;
	struct region_span held;

	(void)state;
	assert_int_equal(cache_open(region, 16 * MIB, &cache), 0);
	for (uint64_t id = 1; id <= 100; id++)
		assert_true(chunk_add(id, 0, 32, 32 * FRAME_BYTES));
	assert_true(cache_find(cache, 50, 0, 32 * FRAME_BYTES, &held));
	assert_true(cache_shrink(cache, 64, false) >= 64);
	assert_int_equal(cache_shrink(cache, UINT32_MAX, false), 100 * 32 - 64 - 32);
	region_usage(region, &usage);
	assert_int_equal(usage.frames_by_owner[OWNER_CACHE], 32);
	assert_int_equal(held.data[0], 50);
	assert_true(region_put(region, held, OWNER_CACHE));
	assert_int_equal(cache_shrink(cache, 1, false), 0);
	cache_close(cache);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_finds_what_was_added, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stays_within_its_bound, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_gives_frames_back_under_pressure, setup, teardown),
	};

	return cmocka_run_group_tests_name("cache", tests, NULL, NULL);
}
