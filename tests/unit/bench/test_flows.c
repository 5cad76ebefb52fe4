#include "../unit.h"

#include <errno.h>

#include "bench/clients.h"
#include "bench/flows.h"
#include "bench/plan.h"

/* The output of `nebulaio flow --json`. */
static void test_took(void **state)
{
	static const char SUMMARY[] = "{\"latency\":{\"durable\":{\"count\":4,\"p50_us\":1.0,"
				      "\"histogram_ns\":[[10,1],[200,2],[3000,1]]},"
				      "\"peer\":{\"count\":0,\"histogram_ns\":[]}},\"error\":null}";
	struct hist hist;

	(void)state;
	hist_reset(&hist);
	assert_int_equal(bench_flow_took(SUMMARY, "peer", &hist), 0);
	assert_int_equal(hist.count, 0);
	assert_int_equal(bench_flow_took(SUMMARY, "durable", &hist), 0);
	assert_int_equal(hist.count, 4);
	assert_int_equal(hist.min, 10);
	assert_int_equal(hist.max, 3000);
	assert_int_equal(hist.sum, 10 + 2 * 200 + 3000);
	assert_int_equal(bench_flow_took(SUMMARY, "other", &hist), -EPROTO);
	assert_int_equal(bench_flow_took("{\"durable\":{}}", "durable", &hist), -EPROTO);
	assert_int_equal(
		bench_flow_took("{\"durable\":{\"histogram_ns\":[[1,2", "durable", &hist), -EPROTO);
	assert_int_equal(
		bench_flow_took("{\"durable\":{\"histogram_ns\":[[1", "durable", &hist), -EPROTO);
}

static int refuse(void *arg, struct neb_client **ret_client)
{
	(void)arg;
	(void)ret_client;
	return -ECONNREFUSED;
}

/* A process that cannot connect reports it, and no process stays behind. */
static void test_clients_that_cannot_connect(void **state)
{
	const struct bench_client_opts opts = {.op = NEB_PING, .depth = 16};
	struct bench_clients *clients;

	(void)state;
	assert_int_equal(bench_clients_open(&opts, refuse, NULL, &clients), -ECONNREFUSED);
	bench_clients_close(NULL);
}

/* Three of ten objects, in any counting. */
static void test_mixed(void **state)
{
	uint32_t writes = 0;

	(void)state;
	for (uint64_t i = 0; i < 1000; i++)
		writes += bench_mixed_writes(bench_data_pick(i, 1000));
	assert_int_equal(writes, 300);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_took),
		cmocka_unit_test(test_clients_that_cannot_connect),
		cmocka_unit_test(test_mixed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
