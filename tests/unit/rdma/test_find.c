/* Finds the device for an address, on a host without a card; with a card, test_verbs.c tests
 * more. */
#include "tests/unit/unit.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "rdma/rdma.h"

static bool host_has_cards(void)
{
	DIR *dir = opendir("/sys/class/infiniband");
	struct dirent *entry;
	bool found = false;

	while (dir && (entry = readdir(dir)) != NULL)
		found |= entry->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return found;
}

static void test_this_host(void **state)
{
	static const char *const HERE[] = {"127.0.0.1", "127.1.2.3"};
	struct rp_found found;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(HERE) && !host_has_cards(); i++) {
		assert_int_equal(rp_find(HERE[i], 9100, &found), 0);
		assert_string_equal(found.device_name, "simulated");
		assert_non_null(strstr(found.why, HERE[i]));
	}
	assert_int_equal(rp_find_listening("127.0.0.1", &found), 0);
	assert_string_equal(found.device_name, "simulated");
}

/* A server's own listener is found by its exact address, and by the wildcard address. */
static void test_a_listener_is_found(void **state)
{
	static const char *const ADDRESSES[] = {"127.0.0.1", ""};
	const struct rp_open_opts opts = {.device_name = "simulated", .gid_index = -1};
	struct rp_device *device;
	struct rp_found found;

	(void)state;
	assert_int_equal(rp_open(&opts, &device), 0);
	for (size_t i = 0; i < ARRAY_LEN(ADDRESSES); i++) {
		struct rp_listener *listener;

		assert_int_equal(rp_listen(device, ADDRESSES[i], 0, NULL, &listener), 0);
		assert_int_equal(rp_find("127.0.0.1", rp_listener_port(listener), &found), 0);
		assert_string_equal(found.device_name, "simulated");
		rp_listener_close(listener);
	}
	rp_close(device);
}

static void test_sources(void **state)
{
	char source[RP_ADDRESS_TEXT_BYTES] = "none";

	(void)state;
	assert_int_equal(rp_source("no address", source), -EINVAL);
	assert_string_equal(source, "none");
	assert_int_equal(rp_source("127.0.0.1", source), 0);
	assert_string_equal(source, "127.0.0.1");
	assert_int_equal(rp_source("127.1.2.3", source), 0);
	assert_string_equal(source, "127.0.0.1");
}

static void test_other_hosts(void **state)
{
	struct rp_found found = {0};

	(void)state;
	assert_int_equal(rp_find("no address", 9100, &found), -ENODEV);
	assert_non_null(strstr(found.why, "not an address"));
	assert_int_equal(rp_find_listening("no address", &found), -ENODEV);
	if (host_has_cards())
		return;
	/* RFC 5737: an address without a host. */
	assert_int_equal(rp_find("192.0.2.1", 9100, &found), -ENODEV);
	assert_string_equal(found.device_name, "");
	assert_non_null(strstr(found.why, "192.0.2.1"));
	/* A server continues, and logs the consequence. */
	assert_int_equal(rp_find_listening("", &found), 0);
	assert_string_equal(found.device_name, "simulated");
	assert_non_null(strstr(found.why, "other hosts cannot reach it by RDMA"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_this_host),
		cmocka_unit_test(test_a_listener_is_found),
		cmocka_unit_test(test_sources),
		cmocka_unit_test(test_other_hosts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
