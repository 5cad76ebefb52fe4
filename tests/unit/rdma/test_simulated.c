/* tests/unit/rdma/test_simulated.c: the provider suite over the simulated provider. */
#include "tests/unit/rdma/suite.h"

#include <stdlib.h>
#include <string.h>

static const struct suite simulated = {.device_name = "simulated", .address = "127.0.0.1"};
const struct suite *suite = &simulated;

static int run(const char *name, const struct CMUnitTest *tests, size_t count)
{
	return _cmocka_run_group_tests(name, tests, count, NULL, NULL);
}

int main(void)
{
	int failed;

	/* Errors are provoked here by the dozen. */
	log_set_level(LOG_ERROR + 1);
	failed = run("conn", suite_conn_tests, suite_conn_count);
	failed += run("data", suite_data_tests, suite_data_count);
	failed += run("target", suite_target_tests, suite_target_count);
	failed += run("remote", suite_remote_tests, suite_remote_count);
	return failed;
}
