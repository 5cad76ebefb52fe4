#include "region_test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

static int open_with(struct region_opts opts)
{
	struct region *region = NULL;
	int ret = region_open(&opts, &region);

	if (ret < 0)
		assert_null(region);
	region_close(region);
	return ret;
}

static void test_bounds(void **state)
{
	const struct region_opts good = {.bytes = 1, .core_count = 1};
	struct region_opts opts;

	(void)state;
	assert_int_equal(open_with(good), 0);
	opts = good, opts.bytes = 0;
	assert_int_equal(open_with(opts), -EINVAL);
	opts = good, opts.bytes = LIMIT_ARENAS_MAX * LIMIT_ARENA_BYTES_MAX + 1;
	assert_int_equal(open_with(opts), -EINVAL);
	/* The maximum of data, but no room for the header before it. */
	opts = good, opts.bytes = LIMIT_ARENAS_MAX * LIMIT_ARENA_BYTES_MAX;
	assert_int_equal(open_with(opts), -EINVAL);
	opts = good, opts.core_count = 0;
	assert_int_equal(open_with(opts), -EINVAL);
	opts = good, opts.core_count = LIMIT_CORES_MAX + 1;
	assert_int_equal(open_with(opts), -EINVAL);
	opts = good, opts.ring_entries = 12;
	assert_int_equal(open_with(opts), -EINVAL);
	opts = good, opts.ring_entries = 2 * LIMIT_RING_ENTRIES_MAX;
	assert_int_equal(open_with(opts), -EINVAL);
	opts = good, opts.name = "";
	assert_int_equal(open_with(opts), -EINVAL);
	opts = good, opts.name = "a/b";
	assert_int_equal(open_with(opts), -EINVAL);
	opts = good, opts.name = "a name of more than thirty-one bytes";
	assert_int_equal(open_with(opts), -EINVAL);
}

/* A region larger than the host's memory is refused before any of it is touched. */
static void test_no_memory(void **state)
{
	struct region_opts opts = {.core_count = 1, .bytes = 60 * GIB};
	uint64_t pages = (uint64_t)sysconf(_SC_PHYS_PAGES);

	(void)state;
	if (pages * (uint64_t)sysconf(_SC_PAGESIZE) > opts.bytes) {
		print_message("skipped: this host has more than 60 GiB of memory\n");
		skip();
	}
	assert_int_equal(open_with(opts), -ENOMEM);
}

static void test_no_files(void **state)
{
	const struct region_opts opts = {.bytes = 1, .core_count = 1};
	struct rlimit limit, none;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){.rlim_cur = 3, .rlim_max = limit.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	assert_int_equal(open_with(opts), -EMFILE);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(open_with(opts), 0);
}

static void test_no_more_regions(void **state)
{
	const struct region_opts opts = {.bytes = 1, .core_count = 1, .ring_entries = 8};
	static struct region *regions[REGIONS_MAX];
	uint32_t count = 0;

	(void)state;
	while (count < REGIONS_MAX && region_open(&opts, &regions[count]) == 0)
		count++;
	assert_int_equal(count, REGIONS_MAX);
	assert_int_equal(open_with(opts), -EMFILE);
	region_close(regions[5]);
	assert_int_equal(region_open(&opts, &regions[5]), 0);
	while (count > 0)
		region_close(regions[--count]);
}

/* The region opens without options that the host does not support. */
static void test_best_effort(void **state)
{
	struct region_opts opts = {
		.bytes = 4 * MIB, .core_count = 1, .huge_pages = true, .numa_bind = true};

	(void)state;
	assert_int_equal(open_with(opts), 0);
	opts.numa_node = UINT32_MAX;
	assert_int_equal(open_with(opts), 0);
	/* Unless nothing else is wanted. */
	opts.numa_only = true;
	assert_int_equal(open_with(opts), -EINVAL);
}

static void test_arenas(void **state)
{
	struct region *region = region_test_open(4 * MIB);
	struct region_arena arena = region_arena(region, 0);
	struct stat stat;

	(void)state;
	assert_int_equal(region_arena_count(region), 1);
	assert_int_equal(fstat(arena.fd, &stat), 0);
	assert_int_equal(stat.st_size, arena.bytes);
	assert_true(arena.bytes >= 4 * MIB);
	assert_int_equal(fcntl(arena.fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW);
	assert_int_equal(ftruncate(arena.fd, 0), -1);
	assert_int_equal(region_arena_of(region, arena.base, arena.bytes), 0);
	assert_int_equal(region_arena_of(region, arena.base, arena.bytes + 1), -1);
	assert_int_equal(region_arena_of(region, arena.base - 1, 1), -1);
	assert_int_equal(region_arena_of(region, arena.base + arena.bytes, 0), -1);
	assert_int_equal(region_arena_of(region, arena.base + 1, SIZE_MAX), -1);
	assert_int_equal(region_arena_of(region, &arena, 1), -1);
	assert_int_equal(region_arena_of(region, NULL, 0), -1);
	region_close(region);
	region_close(NULL);
}

/* Data is mapped before its first use: touching it causes no page fault. */
static void test_prefaulted(void **state)
{
	struct region *region = region_test_open(4 * MIB);
	struct region_arena arena = region_arena(region, 0);
	struct region_span span;
	unsigned char resident[1024];

	(void)state;
	assert_int_equal(region_lease(region, 1024, OWNER_APP, &span), 0);
	assert_int_equal(mincore(span.data, region_span_bytes(span), resident), 0);
	for (uint32_t i = 0; i < ARRAY_LEN(resident); i++)
		assert_int_equal(resident[i] & 1, 1);
	assert_true(span.data > arena.base);
	region_give(region, span, OWNER_APP);
	region_close(region);
}

/* A region larger than an arena's maximum has several adjacent arenas, and no lease crosses from
 * one to the next. */
static void test_two_arenas(void **state)
{
	static struct region_span spans[300];
	struct region *region = region_test_open(LIMIT_ARENA_BYTES_MAX + 64 * MIB);
	struct region_arena first, second;
	bool seen[2] = {false};
	uint32_t count = 0;

	(void)state;
	assert_int_equal(region_arena_count(region), 2);
	first = region_arena(region, 0);
	second = region_arena(region, 1);
	assert_int_equal(first.bytes, LIMIT_ARENA_BYTES_MAX);
	assert_int_equal(region_arena_of(region, second.base, second.bytes), 1);
	assert_ptr_equal(first.base + first.bytes, second.base);
	assert_int_equal(region_arena_of(region, second.base - 1, 1), 0);
	assert_int_equal(region_arena_of(region, second.base - 1, 2), -1);
	while (region_lease(region, LIMIT_SPAN_FRAMES_MAX, OWNER_APP, &spans[count]) == 0) {
		int arena =
			region_arena_of(region, spans[count].data, region_span_bytes(spans[count]));

		assert_in_range(arena, 0, 1);
		seen[arena] = true;
		count++;
	}
	assert_int_equal(count, (LIMIT_ARENA_BYTES_MAX + 64 * MIB) / (4 * MIB));
	assert_true(seen[0] && seen[1]);
	while (count > 0)
		region_give(region, spans[--count], OWNER_APP);
	region_close(region);
}

static uint32_t no_submit(
	void *device, struct region_ring *ring, const struct region_sqe *entries, uint32_t count)
{
	(void)device, (void)ring, (void)entries;
	return count;
}

static uint32_t no_submit_wr(
	void *device, struct region_ring *ring, const struct region_wr *entries, uint32_t count)
{
	(void)device, (void)ring, (void)entries;
	return count;
}

static void no_bell(void *device, struct region_ring *ring)
{
	(void)device, (void)ring;
}

static void test_tables_fill_up(void **state)
{
	static const struct region_device_ops ops = {
		.name = "none", .submit = no_submit, .submit_wr = no_submit_wr, .bell = no_bell};
	struct region *region = region_test_open(4 * MIB);
	struct region_mr mr = {.addr = 4096, .bytes = 4096, .device = "dev"};
	uint32_t mr_idx;
	uint16_t target;

	(void)state;
	for (uint32_t i = 0; i < LIMIT_REGION_TARGETS_MAX; i++)
		assert_int_equal(region_target_add(region, &ops, NULL, NULL, &target), 0);
	assert_int_equal(region_target_add(region, &ops, NULL, NULL, &target), -ENOSPC);
	region_target_remove(region, 17);
	assert_int_equal(region_target_add(region, &ops, NULL, NULL, &target), 0);
	assert_int_equal(target, 17);
	/* One that is kept is not given to another until it is freed. */
	region_target_keep(region, 17);
	region_target_remove(region, 17);
	assert_int_equal(region_target_add(region, &ops, NULL, NULL, &target), -ENOSPC);
	region_target_free(region, 17);
	assert_int_equal(region_target_add(region, &ops, NULL, NULL, &target), 0);
	assert_int_equal(target, 17);
	for (uint32_t i = 0; i < LIMIT_REGION_MRS_MAX; i++)
		assert_int_equal(region_mr_add(region, &mr, &mr_idx), 0);
	assert_int_equal(region_mr_add(region, &mr, &mr_idx), -ENOSPC);
	region_mr_remove(region, 5);
	mr.bytes = 0;
	assert_int_equal(region_mr_add(region, &mr, &mr_idx), -EINVAL);
	mr.bytes = UINT64_MAX;
	assert_int_equal(region_mr_add(region, &mr, &mr_idx), -EINVAL);
	mr.bytes = 1;
	memset(mr.device, 'x', sizeof(mr.device));
	assert_int_equal(region_mr_add(region, &mr, &mr_idx), -EINVAL);
	mr.device[0] = '\0';
	assert_int_equal(region_mr_add(region, &mr, &mr_idx), 0);
	assert_int_equal(mr_idx, 5);
	region_close(region);
}

static void *copy_and_end(void *arg)
{
	char dst[8];

	region_copy(dst, arg, sizeof(dst), COPY_DECODE);
	return memcmp(dst, arg, sizeof(dst)) == 0 ? arg : NULL;
}

static void test_copies_are_counted(void **state)
{
	uint64_t align = region_copy_bytes(COPY_ALIGN);
	uint64_t decode = region_copy_bytes(COPY_DECODE);
	uint64_t all = region_copy_bytes_all();
	char src[] = "1234567";
	char dst[8] = "";

	(void)state;
	region_copy(dst, src, sizeof(src), COPY_ALIGN);
	assert_string_equal(dst, src);
	for (uint32_t i = 0; i < 10; i++) {
		pthread_t thread;
		void *copied;

		assert_int_equal(pthread_create(&thread, NULL, copy_and_end, src), 0);
		assert_int_equal(pthread_join(thread, &copied), 0);
		assert_ptr_equal(copied, src);
	}
	assert_int_equal(region_copy_bytes(COPY_ALIGN) - align, 8);
	assert_int_equal(region_copy_bytes(COPY_DECODE) - decode, 80);
	assert_int_equal(region_copy_bytes_all() - all, 88);
	assert_string_equal(region_copy_why_name(COPY_CLIENT), "client");
	assert_string_equal(region_copy_why_name(COPY_WHY_COUNT), "unknown");
	assert_string_equal(region_owner_name(OWNER_XDP), "xdp");
	assert_string_equal(region_owner_name(OWNER_COUNT), "unknown");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_no_files),
		cmocka_unit_test(test_no_more_regions),
		cmocka_unit_test(test_best_effort),
		cmocka_unit_test(test_arenas),
		cmocka_unit_test(test_prefaulted),
		cmocka_unit_test(test_two_arenas),
		cmocka_unit_test(test_tables_fill_up),
		cmocka_unit_test(test_copies_are_counted),
	};

	return cmocka_run_group_tests_name("region", tests, NULL, NULL);
}
