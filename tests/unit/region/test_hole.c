/* No mapping at a fixed address of the region's reservation fails: the kernel would leave a hole
 * there, in which other threads' memory could be, and the next mapping would replace it. */
#include "region_test.h"

#include <errno.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>

void *__real_mmap64(void *at, size_t bytes, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *at, size_t bytes, int prot, int flags, int fd, off_t offset);

static uint32_t refused, holes;

static bool is_huge(int fd)
{
	struct statfs fs;

	return fd >= 0 && fstatfs(fd, &fs) == 0 && fs.f_type == HUGETLBFS_MAGIC;
}

/* A host without huge pages. */
void *__wrap_mmap64(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	if (!is_huge(fd))
		return __real_mmap64(at, bytes, prot, flags, fd, offset);
	refused++;
	holes += (flags & MAP_FIXED) != 0;
	errno = ENOMEM;
	return MAP_FAILED;
}

static void test_no_huge_pages(void **state)
{
	const struct region_opts opts = {.name = "test",
		.bytes = 4 * MIB,
		.bytes_max = 16 * MIB,
		.extension_bytes = 4 * MIB,
		.core_count = 1,
		.ring_entries = 8,
		.huge_pages = true};
	struct region *region = NULL;
	char why[128];

	(void)state;
	assert_int_equal(region_open(&opts, &region), 0);
	assert_int_equal(
		region_extension_commit(region, region_arena_count(region) - 1, why, sizeof(why)),
		0);
	region_close(region);
	if (!refused)
		skip(); /* this kernel has no such files */
	assert_int_equal(holes, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_huge_pages)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
