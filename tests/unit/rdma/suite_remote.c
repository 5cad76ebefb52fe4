/* tests/unit/rdma/suite_remote.c: the provider suite between two processes. */
#include "tests/unit/rdma/suite.h"

#include <string.h>

static const struct end_opts patient = {.attr = {.rnr_retry_count = 7, .retry_count = 7}};

static void close_both(struct end *end, struct remote *remote)
{
	rp_disconnect(end->qp);
	end_close(end);
	remote_join(remote);
}

static void echo_once(struct end *end, uint32_t bytes, uint32_t round)
{
	struct rp_send_wr wr = {.wr_id = 7, .opcode = RP_SEND, .imm = round};
	struct rp_wc wc;

	for (uint32_t i = 0; i < bytes; i++)
		end->mem[i] = (uint8_t)(i * 7 + round);
	assert_int_equal(post_recv_at(end, 9, MIB / 2, MIB / 4), 0);
	if (round % 2)
		wr.opcode = RP_SEND_IMM;
	assert_int_equal(post_send_sge(end, wr, sge_at(end, 0, bytes)), 0);
	wc = wc_expect(end, NULL, 9, RP_WC_SUCCESS);
	assert_int_equal(wc.byte_len, bytes);
	assert_int_equal(wc.has_imm, round % 2);
	if (wc.has_imm)
		assert_int_equal(wc.imm, round);
	assert_memory_equal(end->mem, end->mem + MIB / 2, bytes);
}

static void run_echo(enum remote_job job)
{
	static const uint32_t sizes[] = {0, 1, 31, 64, 1056, 1057, 4096, 16384, 65536, 256 * 1024};
	struct remote_opts opts = {.job = job, .end = patient};
	struct remote remote;
	struct end end;

	remote_start(&remote, &opts);
	end_open(&end, &patient);
	remote_connect(&remote, &end);
	for (uint32_t round = 0; round < 200; round++)
		echo_once(&end, sizes[round % ARRAY_LEN(sizes)], round);
	close_both(&end, &remote);
}

static void test_echo_spinning(void **state)
{
	(void)state;
	run_echo(REMOTE_ECHO);
}

static void test_echo_sleeping(void **state)
{
	(void)state;
	run_echo(REMOTE_SLEEP);
}

static void run_one_sided(bool anonymous)
{
	struct remote_opts opts = {.job = REMOTE_ECHO, .end = patient};
	struct rp_send_wr wr = {.flags = RP_SEND_SIGNALED};
	struct remote remote;
	struct end end;
	struct prng prng;

	opts.end.mem_anonymous = anonymous;
	prng_seed(&prng, 5);
	remote_start(&remote, &opts);
	end_open(&end, &patient);
	remote_connect(&remote, &end);
	for (int round = 0; round < 100; round++) {
		uint32_t bytes = (uint32_t)prng_below(&prng, MIB / 2);

		prng_fill(&prng, end.mem, bytes);
		wr.wr_id = 1;
		wr.rkey = remote.rkey;
		wr.remote_addr = remote.addr + prng_below(&prng, remote.bytes - bytes);
		wr.opcode = RP_WRITE;
		assert_int_equal(post_send_sge(&end, wr, sge_at(&end, 0, bytes)), 0);
		wc_expect(&end, NULL, 1, RP_WC_SUCCESS);
		wr.opcode = RP_READ;
		assert_int_equal(post_send_sge(&end, wr, sge_at(&end, MIB / 2, bytes)), 0);
		assert_int_equal(wc_expect(&end, NULL, 1, RP_WC_SUCCESS).byte_len, bytes);
		assert_memory_equal(end.mem, end.mem + MIB / 2, bytes);
	}
	close_both(&end, &remote);
}

static void test_one_sided_shared(void **state)
{
	(void)state;
	run_one_sided(false);
}

static void test_one_sided_anonymous(void **state)
{
	(void)state;
	run_one_sided(true);
}

const struct CMUnitTest suite_remote_tests[] = {
	cmocka_unit_test(test_echo_spinning),
	cmocka_unit_test(test_echo_sleeping),
	cmocka_unit_test(test_one_sided_shared),
	cmocka_unit_test(test_one_sided_anonymous),
};
const size_t suite_remote_count = ARRAY_LEN(suite_remote_tests);
