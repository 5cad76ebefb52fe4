#include "../unit.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sanitizer.h"
#include "base/slab.h"

#define MANY 200000u

static void fill(uint8_t *memory, size_t bytes, uint32_t seed)
{
	for (size_t i = 0; i < bytes; i++)
		assert_int_equal(memory[i], 0);
	memset(memory, (int)(seed % 255 + 1), bytes);
}

static size_t bytes_of(uint32_t i)
{
	return i % 37 == 0 ? 1025 + i % 512 : 1 + i * 7u % SLAB_STRUCT_BYTES_MAX;
}

/* All sizes, freed in another order: zeroed at first and again, aligned, and never shared. */
static void test_structs_are_zeroed_and_apart(void **state)
{
	uint8_t **all = calloc(MANY / 10, sizeof(*all));

	(void)state;
	assert_non_null(all);
	for (int round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < MANY / 10; i++) {
			all[i] = slab_alloc(bytes_of(i));
			assert_non_null(all[i]);
			assert_int_equal((uintptr_t)all[i] % 16, 0);
			fill(all[i], bytes_of(i), i);
		}
		for (uint32_t n = 0; n < MANY / 10; n++) {
			uint32_t i = (uint32_t)((uint64_t)n * 7919 % (MANY / 10));

			assert_int_equal(all[i][0], i % 255 + 1);
			assert_int_equal(all[i][bytes_of(i) - 1], i % 255 + 1);
			slab_free(all[i], bytes_of(i));
		}
	}
	slab_free(NULL, 5);
	free(all);
}

static uint64_t mapped_bytes(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	unsigned long pages = 0;

	assert_non_null(file);
	assert_int_equal(fscanf(file, "%lu", &pages), 1);
	fclose(file);
	return (uint64_t)pages * 4096;
}

/* Empty slabs are unmapped. */
static void test_memory_goes_back(void **state)
{
	void **all = calloc(MANY, sizeof(*all));
	uint64_t before, full;

	(void)state;
	if (SANITIZER_ADDRESS) {
		free(all);
		skip();
	}
	assert_non_null(all);
	slab_huge_pages(false);
	before = mapped_bytes();
	for (uint32_t i = 0; i < MANY; i++) {
		all[i] = slab_alloc(200);
		assert_non_null(all[i]);
	}
	full = mapped_bytes();
	/* 224 bytes each; a slab may have been there before. */
	assert_in_range(
		full - before, (uint64_t)MANY * 224 - (4 << 20), (uint64_t)MANY * 224 + (8 << 20));
	for (uint32_t i = 0; i < MANY; i++)
		slab_free(all[i], 200);
	assert_true(mapped_bytes() - before <= 8 << 20);
	slab_huge_pages(true);
	free(all);
}

static void *churn(void *arg)
{
	uint32_t seed = (uint32_t)(uintptr_t)arg;
	uint8_t *mine[64] = {0};

	for (uint32_t i = 0; i < 100000; i++) {
		uint32_t at = (i * 31 + seed) % 64;
		size_t bytes = 1 + at * 16;

		if (mine[at] &&
			(mine[at][0] != (uint8_t)seed || mine[at][bytes - 1] != (uint8_t)seed))
			return "another thread's bytes";
		slab_free(mine[at], bytes);
		mine[at] = slab_alloc(bytes);
		if (!mine[at] || mine[at][0] || mine[at][bytes - 1])
			return "not zeroed";
		memset(mine[at], (int)seed, bytes);
	}
	for (uint32_t at = 0; at < 64; at++)
		slab_free(mine[at], 1 + at * 16);
	return NULL;
}

static void test_threads(void **state)
{
	pthread_t threads[4];
	void *why;

	(void)state;
	for (uintptr_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)), 0);
	for (uint32_t i = 0; i < 4; i++) {
		pthread_join(threads[i], &why);
		assert_null(why);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_structs_are_zeroed_and_apart),
		cmocka_unit_test(test_memory_goes_back),
		cmocka_unit_test(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
