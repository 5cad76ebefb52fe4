/* tests/unit/base/test_cgroup.c: the limits of control groups, of versions 1 and 2, as hosts and
 * containers show them. */
#include "../unit.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"
#include "base/cgroup.h"

static char root[512];

static int root_make(void **state)
{
	const char *base = getenv("TMPDIR");

	(void)state;
	snprintf(root, sizeof(root), "%s/nebulaio-cgroup-XXXXXX", base ? base : ".");
	return mkdtemp(root) ? 0 : -1;
}

static int root_remove(void **state)
{
	char command[600];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf '%s'", root);
	return system(command);
}

/* A file below the root, with its folders. */
static void file_make(const char *name, const char *text)
{
	char path[1024];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')); at++) {
		*at = '\0';
		mkdir(path, 0700);
		*at = '/';
	}
	file = fopen(path, "we");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static struct cgroup_limits limits_of_root(void)
{
	struct cgroup_limits limits;

	cgroup_limits_read(root, &limits);
	return limits;
}

static void assert_no_limits(struct cgroup_limits limits)
{
	assert_true(limits.memory_bytes == UINT64_MAX);
	assert_true(limits.memory_free == UINT64_MAX);
	assert_int_equal(limits.cpus, UINT32_MAX);
}

static void test_a_host_without_groups_has_no_limits(void **state)
{
	(void)state;
	assert_no_limits(limits_of_root());
	file_make("proc/self/cgroup", "0::/\n");
	assert_no_limits(limits_of_root());
	file_make("proc/self/cgroup", "nonsense\n0:\n");
	assert_no_limits(limits_of_root());
}

static void test_the_least_limit_of_all_levels_counts(void **state)
{
	struct cgroup_limits limits;

	(void)state;
	file_make("proc/self/cgroup", "0::/user.slice/app.service\n");
	file_make("sys/fs/cgroup/user.slice/app.service/memory.max", "max\n");
	file_make("sys/fs/cgroup/user.slice/app.service/memory.current", "1048576\n");
	file_make("sys/fs/cgroup/user.slice/app.service/cpu.max", "250000 100000\n");
	limits = limits_of_root();
	assert_true(limits.memory_bytes == UINT64_MAX);
	assert_int_equal(limits.cpus, 3);
	file_make("sys/fs/cgroup/user.slice/memory.max", "1073741824\n");
	file_make("sys/fs/cgroup/user.slice/memory.current", "900000000\n");
	file_make("sys/fs/cgroup/user.slice/memory.stat",
		"anon 100000000\nfile 800000000\ninactive_file 700000000\n");
	file_make("sys/fs/cgroup/user.slice/cpu.max", "max 100000\n");
	limits = limits_of_root();
	assert_int_equal(limits.memory_bytes, GIB);
	assert_int_equal(limits.memory_free, GIB - 200000000);
	assert_int_equal(limits.cpus, 3);
	/* Half of a processor is one event loop. */
	file_make("sys/fs/cgroup/user.slice/cpu.max", "50000 100000\n");
	assert_int_equal(limits_of_root().cpus, 1);
}

/* More in use than the limit, which was lowered: nothing is free. */
static void test_a_group_over_its_limit_has_nothing_free(void **state)
{
	(void)state;
	file_make("proc/self/cgroup", "0::/\n");
	file_make("sys/fs/cgroup/memory.max", "1000000\n");
	file_make("sys/fs/cgroup/memory.current", "3000000\n");
	assert_int_equal(limits_of_root().memory_free, 0);
}

/* Version 1, and a path of the host's that the container does not see. */
static void test_a_container_sees_its_group_as_the_root(void **state)
{
	struct cgroup_limits limits;

	(void)state;
	file_make("proc/self/cgroup",
		"5:cpuset:/\n4:memory:/docker/0123\n3:cpu,cpuacct:/docker/0123\n0::/docker/0123\n");
	file_make("sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n");
	file_make("sys/fs/cgroup/memory/memory.usage_in_bytes", "100000000\n");
	file_make(
		"sys/fs/cgroup/memory/memory.stat", "inactive_file 5\ntotal_inactive_file 1000\n");
	file_make("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n");
	file_make("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
	limits = limits_of_root();
	assert_int_equal(limits.memory_bytes, 256 * MIB);
	assert_int_equal(limits.memory_free, 256 * MIB - 100000000 + 1000);
	assert_int_equal(limits.cpus, 4);
	file_make("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	file_make("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
	assert_no_limits(limits_of_root());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_a_host_without_groups_has_no_limits, root_make, root_remove),
		cmocka_unit_test_setup_teardown(
			test_the_least_limit_of_all_levels_counts, root_make, root_remove),
		cmocka_unit_test_setup_teardown(
			test_a_group_over_its_limit_has_nothing_free, root_make, root_remove),
		cmocka_unit_test_setup_teardown(
			test_a_container_sees_its_group_as_the_root, root_make, root_remove),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
