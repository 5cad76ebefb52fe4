/* tests/unit/rdma/test_simulated.c: the provider suite over the simulated provider. */
#include "tests/unit/rdma/suite.h"

#include <stdlib.h>
#include <string.h>

static const struct suite simulated = {.device_name = "simulated", .address = "127.0.0.1"};
const struct suite *suite = &simulated;

int main(void)
{
	log_set_level(LOG_ERROR);
	return _cmocka_run_group_tests(
		"rdma_simulated_remote", suite_remote_tests, suite_remote_count, NULL, NULL);
}
