/* tests/unit/rdma/test_loopback.c: the provider suite over the loopback provider: everything except
 * tests that need a second process, datagrams, UC or windows. It is the only provider in this
 * program's list. */
#include "rdma/provider/provider.h"
#include "tests/unit/rdma/loopback/loopback.h"
#include "tests/unit/rdma/suite.h"

static const struct suite loopback = {
	.provider = "loopback", .device_name = "loopback", .address = "127.0.0.1"};
const struct suite *suite = &loopback;

const struct rp_ops *const rp_providers[] = {&loop_ops};
const size_t rp_provider_count = ARRAY_LEN(rp_providers);

static int run(const char *name, const struct CMUnitTest *tests, size_t count)
{
	return _cmocka_run_group_tests(name, tests, count, NULL, NULL);
}

int main(void)
{
	int failed;

	/* The tests provoke many errors. */
	log_set_level(LOG_ERROR + 1);
	failed = run("conn", suite_conn_tests, suite_conn_count);
	failed += run("data", suite_data_tests, suite_data_count);
	failed += run("target", suite_target_tests, suite_target_count);
	return failed;
}
