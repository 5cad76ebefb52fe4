/* tests/unit/rdma/test_verbs.c: the provider suite over a verbs device: test_rdma_verbs DEVICE
 * ADDRESS, where ADDRESS is one of the device's own. tests/vm runs it where there is a device. */
#include "tests/unit/rdma/suite.h"

#include <stdio.h>
#include <string.h>

static struct suite verbs = {.gid_index = -1};
const struct suite *suite = &verbs;

static int run(const char *name, const struct CMUnitTest *tests, size_t count)
{
	return _cmocka_run_group_tests(name, tests, count, NULL, NULL);
}

int main(int argc, char **argv)
{
	int failed;

	if (argc != 3) {
		fprintf(stderr, "usage: %s DEVICE ADDRESS\n", argv[0]);
		return 2;
	}
	verbs.device_name = argv[1];
	verbs.address = argv[2];
	verbs.soft_roce = !strncmp(argv[1], "rxe", 3);
	/* Errors are provoked here by the dozen. */
	log_set_level(LOG_ERROR + 1);
	failed = run("conn", suite_conn_tests, suite_conn_count);
	failed += run("data", suite_data_tests, suite_data_count);
	failed += run("remote", suite_remote_tests, suite_remote_count);
	return failed;
}
