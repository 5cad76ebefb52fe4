/* tests/unit/server/test_numa.c: the choice of a node, with an emulated sysfs; the effect of a plan
 * on a thread, on this host. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "server/numa.h"
#include "sysfs.h"

#define MPOL_DEFAULT   0
#define MPOL_PREFERRED 1

static struct config config;
static struct numa_plan plan;
static cpu_set_t allowed;

static void set(const char *path, const char *value)
{
	struct config_error error;

	assert_int_equal(config_set(&config, path, value, "test", &error), 0);
}

static void assert_plan(int ret, int node, const char *why)
{
	assert_int_equal(numa_plan(&config, sysfs, &plan), ret);
	if (!strstr(plan.why, why))
		fail_msg("it said \"%s\", not \"%s\"", plan.why, why);
	assert_int_equal(plan.node, node);
	assert_int_equal(plan.cpu_count, CPU_COUNT(&plan.cpus));
	assert_true(plan.cpu_count > 0);
}

static int setup(void **state)
{
	config_defaults(&config);
	assert_int_equal(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
	return sysfs_make(state);
}

/* Node 1 has all processors, node 0 none. */
static void make_two_nodes(void)
{
	sysfs_put("devices/system/node/online", "0-1\n");
	sysfs_put("devices/system/node/node0/cpulist", "\n");
	sysfs_put("devices/system/node/node1/cpulist", "0-511,512,513-1023\n");
}

static void test_one_node(void **state)
{
	(void)state;
	/* A kernel without NUMA has no such folder. */
	for (int i = 0; i < 2; i++) {
		set("numa.node", "auto");
		assert_plan(0, -1, "auto: this host has one NUMA node: no placement needed");
		set("numa.node", "0");
		assert_plan(0, -1, "0: this host has one NUMA node: no placement needed");
		assert_true(CPU_EQUAL(&plan.cpus, &allowed));
		set("numa.node", "7");
		assert_plan(-EINVAL, -1, "no node 7");
		sysfs_put("devices/system/node/online", "0\n");
	}
}

static void test_named(void **state)
{
	(void)state;
	make_two_nodes();
	set("numa.node", "none");
	assert_plan(0, -1, "");
	assert_string_equal(plan.why, "");
	set("numa.node", "1");
	assert_plan(0, 1, "node 1, as configured");
	assert_true(CPU_EQUAL(&plan.cpus, &allowed));
	set("numa.node", "0");
	assert_plan(-EINVAL, -1, "node 0 has no processor that this process may use");
	set("numa.node", "2");
	assert_plan(-EINVAL, -1, "no node 2");
	set("numa.node", "9999");
	assert_plan(-EINVAL, -1, "no node 9999");
}

static void test_memory_elsewhere(void **state)
{
	(void)state;
	set("numa.node", "none");
	set("numa.memory_node", "0");
	assert_plan(0, -1, "");
	assert_int_equal(plan.memory_node, 0);
	make_two_nodes();
	sysfs_put("devices/system/node/has_memory", "1-2\n");
	assert_plan(-EINVAL, -1, "numa.memory_node: no node 0 with memory");
	set("numa.memory_node", "2");
	assert_plan(0, -1, "");
	assert_int_equal(plan.memory_node, 2);
	set("numa.node", "1");
	assert_plan(0, 1, "node 1, as configured");
	assert_int_equal(plan.memory_node, 2);
	set("numa.memory_node", "9999");
	assert_plan(-EINVAL, 1, "no node 9999 with memory");
	set("numa.memory_node", "");
	assert_plan(0, 1, "node 1");
	assert_int_equal(plan.memory_node, 1);
}

static void test_some_processors(void **state)
{
	char list[64];
	int last = CPU_SETSIZE - 1;

	(void)state;
	while (!CPU_ISSET(last, &allowed))
		last--;
	snprintf(list, sizeof(list), "%d\n", last);
	make_two_nodes();
	sysfs_put("devices/system/node/node1/cpulist", list);
	set("numa.node", "1");
	assert_plan(0, 1, "node 1");
	assert_int_equal(plan.cpu_count, 1);
	assert_int_equal(numa_cpu(&plan, 0), last);
	assert_int_equal(numa_cpu(&plan, 1), -1);
	/* A text that is not a list names no processor. */
	sysfs_put("devices/system/node/node1/cpulist", "x\n");
	assert_plan(-EINVAL, -1, "no processor");
}

static void test_auto(void **state)
{
	(void)state;
	make_two_nodes();
	set("http.address", "0.0.0.0:9000");
	assert_plan(0, -1, "no RDMA device");
	/* The interface that HTTP listens on. */
	set("http.address", "127.0.0.1:9000");
	assert_plan(0, -1, "the node of lo is unknown");
	sysfs_put("class/net/lo/device/numa_node", "1\n");
	assert_plan(0, 1, "auto: node 1, the node of lo");
	/* The RDMA device is preferred, unless it does not exist. */
	set("rdma.enabled", "true");
	set("rdma.device_name", "simulated:seed=1");
	assert_plan(0, 1, "auto: node 1, the node of lo");
	set("rdma.device_name", "mlx5_0:1");
	assert_plan(0, -1, "the node of mlx5_0 is unknown");
	sysfs_put("class/infiniband/mlx5_0/device/numa_node", "-1\n");
	assert_plan(0, -1, "the node of mlx5_0 is unknown");
	sysfs_put("class/infiniband/mlx5_0/device/numa_node", "1\n");
	assert_plan(0, 1, "auto: node 1, the node of mlx5_0");
	/* An impossible choice is no error. */
	sysfs_put("class/infiniband/mlx5_0/device/numa_node", "0\n");
	assert_plan(0, -1, "node 0 has no processor");
	assert_true(CPU_EQUAL(&plan.cpus, &allowed));
}

/* ---- On this host: node 0 is there. ---- */

static void *apply_main(void *arg)
{
	unsigned long nodes[CPU_SETSIZE / (8 * sizeof(long))] = {0};
	const unsigned long first = 1;
	int mode = -1;
	cpu_set_t now;

	(void)arg;
	numa_apply(&plan);
	assert_int_equal(sched_getaffinity(0, sizeof(now), &now), 0);
	assert_true(CPU_EQUAL(&now, &plan.cpus));
	/* If the kernel has memory policies, and this process may set one. */
	if (syscall(SYS_set_mempolicy, MPOL_PREFERRED, &first, 64) == 0) {
		assert_int_equal(syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0), 0);
		numa_apply(&plan);
		assert_int_equal(syscall(SYS_get_mempolicy, &mode, nodes, CPU_SETSIZE, NULL, 0), 0);
		assert_int_equal(mode, MPOL_PREFERRED);
		assert_int_equal(nodes[0], 1);
	}
	return NULL;
}

static void test_apply(void **state)
{
	pthread_t thread;

	(void)state;
	set("numa.node", "none");
	assert_plan(0, -1, "");
	plan.node = 0;
	plan.cpus = allowed;
	/* One processor less, if there are two. */
	if (CPU_COUNT(&plan.cpus) > 1)
		CPU_CLR(numa_cpu(&plan, 0), &plan.cpus);
	assert_int_equal(pthread_create(&thread, NULL, apply_main, NULL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_one_node, setup, sysfs_remove),
		cmocka_unit_test_setup_teardown(test_named, setup, sysfs_remove),
		cmocka_unit_test_setup_teardown(test_memory_elsewhere, setup, sysfs_remove),
		cmocka_unit_test_setup_teardown(test_some_processors, setup, sysfs_remove),
		cmocka_unit_test_setup_teardown(test_auto, setup, sysfs_remove),
		cmocka_unit_test_setup_teardown(test_apply, setup, sysfs_remove),
	};

	return cmocka_run_group_tests_name("numa", tests, NULL, NULL);
}
