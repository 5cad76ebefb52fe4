#include "../unit.h"

#include <stdio.h>

#include "server/resources.h"

static struct config config;

static void share(uint64_t limit, uint64_t host)
{
	const struct cgroup_limits limits = {.memory_bytes = limit};

	resources_share(&config, &limits, host);
}

static void test_auto_is_a_share_of_the_memory_beside_the_region(void **state)
{
	(void)state;
	config_defaults(&config);
	config.memory.bytes = 1 * GIB;
	share(UINT64_MAX, 64 * GIB);
	assert_int_equal(config.memory.records_bytes, (63 * GIB - 192 * MIB) / 8);
	assert_int_equal(config.memory.index_cache_bytes, (63 * GIB - 192 * MIB) / 16);
	assert_int_equal(config.memory.list_bytes, (63 * GIB - 192 * MIB) / 16);
}

static void test_a_limit_below_the_hosts_memory_counts(void **state)
{
	(void)state;
	config_defaults(&config);
	config.memory.bytes = 1 * GIB;
	share(4 * GIB, 64 * GIB);
	assert_int_equal(config.memory.records_bytes, (3 * GIB - 192 * MIB) / 8);
	assert_int_equal(config.memory.index_cache_bytes, (3 * GIB - 192 * MIB) / 16);
}

static uint64_t origin_bytes(uint64_t limit, uint64_t host)
{
	const struct cgroup_limits limits = {.memory_bytes = limit};

	config_defaults(&config);
	config.memory.bytes = 1 * GIB;
	share(limit, host);
	return resources_origin_bytes(&config, &limits, host);
}

/* A container as the guides size it, twice the region, must not be killed by what readers fetch. */
static void test_origins_have_a_part_of_the_rest(void **state)
{
	(void)state;
	assert_int_equal(origin_bytes(UINT64_MAX, 64 * GIB), 512 * MIB);
	assert_int_equal(origin_bytes(2 * GIB, 64 * GIB), (832 - 104 - 64 - 52) * MIB / 4);
	assert_int_equal(origin_bytes(1 * GIB, 64 * GIB), 64 * MIB);
	assert_int_equal(origin_bytes(UINT64_MAX, 0), 64 * MIB);
}

static uint64_t replication_bytes(uint64_t limit, uint64_t host)
{
	const struct cgroup_limits limits = {.memory_bytes = limit};

	(void)origin_bytes(limit, host);
	return resources_replication_bytes(&config, &limits, host);
}

static void test_so_has_replication(void **state)
{
	(void)state;
	assert_int_equal(replication_bytes(UINT64_MAX, 64 * GIB), 512 * MIB);
	assert_int_equal(replication_bytes(2 * GIB, 64 * GIB), (832 - 104 - 64 - 52) * MIB / 4);
	assert_int_equal(replication_bytes(512 * MIB, 64 * GIB), 32 * MIB);
}

static void test_a_small_host_has_the_least(void **state)
{
	(void)state;
	config_defaults(&config);
	config.memory.bytes = 4 * GIB;
	share(UINT64_MAX, 1 * GIB);
	assert_int_equal(config.memory.records_bytes, 64 * MIB);
	assert_int_equal(config.memory.index_cache_bytes, 64 * MIB);
	assert_int_equal(config.memory.list_bytes, 0);
	config_defaults(&config);
	share(UINT64_MAX, 0);
	assert_int_equal(config.memory.records_bytes, 64 * MIB);
}

static void test_a_number_stays(void **state)
{
	(void)state;
	config_defaults(&config);
	config.memory.records_bytes = 1 * MIB;
	config.memory.index_cache_bytes = 2 * MIB;
	config.memory.list_bytes = 3 * MIB;
	share(UINT64_MAX, 64 * GIB);
	assert_int_equal(config.memory.records_bytes, 1 * MIB);
	assert_int_equal(config.memory.index_cache_bytes, 2 * MIB);
	assert_int_equal(config.memory.list_bytes, 3 * MIB);
}

/* Connections, and descriptors of a store and of a gateway beside them, with a limit of open files.
 */
static void files(uint64_t limit, uint32_t links, struct resources_files *ret_files)
{
	resources_files_share(&config, limit, 2, links, ret_files);
}

static void test_connections_leave_files_to_the_index(void **state)
{
	struct resources_files got;

	(void)state;
	config_defaults(&config);
	snprintf(config.http.address, sizeof(config.http.address), "127.0.0.1:1");
	config.https.address[0] = '\0';
	files(1u << 20, 0, &got);
	assert_int_equal(got.http, LIMIT_HTTP_CONNECTIONS_MAX);
	assert_int_equal(got.admin, RESOURCES_ADMIN_CONNECTIONS_MAX);
	assert_int_equal(got.console, RESOURCES_CONSOLE_CONNECTIONS_MAX);
	assert_int_equal(got.index, 0);
	for (uint64_t limit = 640; limit < 33000; limit += 77) {
		files(limit, 0, &got);
		assert_in_range(got.index, 128, limit);
		assert_true(got.http + got.admin + got.console + got.index + 256 <= limit);
	}
	assert_int_equal(got.http, LIMIT_HTTP_CONNECTIONS_MAX);
	snprintf(config.https.address, sizeof(config.https.address), "127.0.0.1:2");
	files(4096, 0, &got);
	assert_true(2 * got.http + got.admin + got.console + 128 + 256 <= 4096 && got.http > 1500);
	files(4096, 1, &got);
	assert_true(got.http > 700 && 4 * got.http + got.admin + got.console + 256 <= 4096);
	files(16, 0, &got);
	assert_true(got.http && got.admin && got.console && got.index);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_auto_is_a_share_of_the_memory_beside_the_region),
		cmocka_unit_test(test_a_limit_below_the_hosts_memory_counts),
		cmocka_unit_test(test_origins_have_a_part_of_the_rest),
		cmocka_unit_test(test_so_has_replication),
		cmocka_unit_test(test_a_small_host_has_the_least),
		cmocka_unit_test(test_a_number_stays),
		cmocka_unit_test(test_connections_leave_files_to_the_index),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
