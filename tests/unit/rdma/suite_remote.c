/* tests/unit/rdma/suite_remote.c: the provider suite between two processes. */
#include "tests/unit/rdma/suite.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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

/* Takes completions until all of count have come, with any status; none may be lost. */
static void drain_all(struct end *end, uint32_t count, uint32_t *ret_flushed)
{
	uint32_t flushed = 0;

	while (count--)
		flushed += wc_next(end, NULL).status == RP_WC_WR_FLUSH_ERR;
	*ret_flushed = flushed;
}

/* The peer dies with a long message half sent, with more queued after it and receives posted. */
static void test_peer_killed_in_transfer(void **state)
{
	struct remote_opts opts = {.job = REMOTE_STILL, .end = patient};
	struct rp_send_wr wr = {.opcode = RP_SEND, .flags = RP_SEND_SIGNALED};
	struct rp_cm_event event;
	struct remote remote;
	struct end end;
	uint32_t flushed;

	(void)state;
	remote_start(&remote, &opts);
	end_open(&end, &patient);
	remote_connect(&remote, &end);
	for (uint32_t i = 0; i < 4; i++) {
		wr.wr_id = i;
		assert_int_equal(post_recv_at(&end, 100 + i, 0, 64), 0);
		assert_int_equal(post_send_sge(&end, wr, sge_at(&end, 0, 512 * KIB)), 0);
	}
	remote_kill(&remote);
	cm_expect(end.device, RP_CM_DISCONNECTED, &event);
	assert_ptr_equal(event.qp, end.qp);
	drain_all(&end, 8, &flushed);
	assert_true(flushed >= 4);
	assert_int_equal(rp_qp_state(end.qp), RP_QPS_ERR);
	end_close(&end);
}

/* One-sided work to a process that is gone fails, too. */
static void test_peer_killed_then_write(void **state)
{
	struct remote_opts opts = {.job = REMOTE_STILL, .end = patient};
	struct rp_send_wr wr = {.wr_id = 5, .opcode = RP_WRITE, .flags = RP_SEND_SIGNALED};
	struct remote remote;
	struct end end;

	(void)state;
	opts.end.mem_anonymous = true;
	remote_start(&remote, &opts);
	end_open(&end, &patient);
	remote_connect(&remote, &end);
	remote_kill(&remote);
	wr.remote_addr = remote.addr;
	wr.rkey = remote.rkey;
	assert_int_equal(post_send_sge(&end, wr, sge_at(&end, 0, 64 * KIB)), 0);
	cm_expect(end.device, RP_CM_DISCONNECTED, NULL);
	assert_int_not_equal(wc_next(&end, NULL).status, RP_WC_SUCCESS);
	end_close(&end);
}

/* Both ends sleep between any two messages: a lost wakeup would make the test hang. */
static void test_both_sleep(void **state)
{
	struct remote_opts opts = {.job = REMOTE_SLEEP, .end = patient};
	struct rp_send_wr wr = {.wr_id = 7, .opcode = RP_SEND};
	struct remote remote;
	struct end end;

	(void)state;
	remote_start(&remote, &opts);
	end_open(&end, &patient);
	remote_connect(&remote, &end);
	for (uint32_t round = 0; round < 3000; round++) {
		struct pollfd wait = {.fd = rp_cq_fd(end.cq), .events = POLLIN};
		struct rp_wc wc;

		assert_int_equal(post_recv_at(&end, round, 64, 64), 0);
		assert_int_equal(post_send_sge(&end, wr, sge_at(&end, 0, 64)), 0);
		while (!rp_cq_poll(end.cq, &wc, 1)) {
			if (!rp_cq_arm(end.cq))
				continue;
			assert_int_equal(poll(&wait, 1, 60000), 1);
			rp_cq_disarm(end.cq);
		}
		assert_int_equal(wc.wr_id, round);
		assert_int_equal(wc.status, RP_WC_SUCCESS);
	}
	close_both(&end, &remote);
}

static void test_atomics_across(void **state)
{
	struct remote_opts opts = {.job = REMOTE_ECHO, .end = patient};
	struct rp_send_wr wr = {
		.wr_id = 1, .opcode = RP_FETCH_ADD, .flags = RP_SEND_SIGNALED, .compare_add = 3};
	struct remote remote;
	struct end end;
	uint64_t old;

	(void)state;
	for (int anonymous = 0; anonymous < 2; anonymous++) {
		opts.end.mem_anonymous = anonymous;
		remote_start(&remote, &opts);
		end_open(&end, &patient);
		remote_connect(&remote, &end);
		wr.remote_addr = remote.addr + 4096;
		wr.rkey = remote.rkey;
		for (uint64_t i = 0; i < 50; i++) {
			assert_int_equal(post_send_sge(&end, wr, sge_at(&end, 0, 8)), 0);
			wc_expect(&end, NULL, 1, RP_WC_SUCCESS);
			memcpy(&old, end.mem, 8);
			assert_int_equal(old, 3 * i);
		}
		close_both(&end, &remote);
	}
}

static void test_refused_across(void **state)
{
	struct remote_opts opts = {.job = REMOTE_ECHO, .end = patient};
	struct rp_send_wr wr = {.wr_id = 1, .opcode = RP_WRITE, .flags = RP_SEND_SIGNALED};
	struct remote remote;
	struct end end;

	(void)state;
	for (int round = 0; round < 3; round++) {
		remote_start(&remote, &opts);
		end_open(&end, &patient);
		remote_connect(&remote, &end);
		wr.remote_addr = remote.addr + (round == 0 ? remote.bytes - 7 : 0);
		wr.rkey = round == 1 ? remote.rkey ^ (1u << 20) : remote.rkey;
		wr.opcode = round == 2 ? RP_CMP_SWAP : RP_WRITE;
		wr.remote_addr += round == 2 ? 4 : 0;
		if (round == 2) {
			atomic_refused(&end, NULL, wr);
		} else {
			assert_int_equal(post_send_sge(&end, wr, sge_at(&end, 0, 8)), 0);
			wc_expect(&end, NULL, 1, RP_WC_REM_ACCESS_ERR);
		}
		close_both(&end, &remote);
	}
}

/* Redirects standard error to `into`, and returns the old descriptor. */
static int stderr_take(int into)
{
	int before = dup(STDERR_FILENO);

	assert_true(before >= 0);
	assert_int_equal(dup2(into, STDERR_FILENO), STDERR_FILENO);
	return before;
}

static void test_failure_is_told(void **state)
{
	struct remote_opts opts = {.job = REMOTE_ECHO, .end = patient};
	char line[128], text[4096];
	int file = memfd_create("log", 0), before;
	enum log_level level;
	struct rp_qp_info info;
	struct remote remote;
	struct end end;
	ssize_t got;

	(void)state;
	remote_start(&remote, &opts);
	end_open(&end, &patient);
	remote_connect(&remote, &end);
	rp_qp_info(end.qp, &info);
	assert_int_equal(info.state, RP_QPS_RTS);
	assert_int_equal(info.type, RP_QP_RC);
	assert_int_equal(info.qpn, rp_qp_num(end.qp));
	assert_int_equal(info.retry_count, patient.attr.retry_count);
	assert_int_equal(info.rnr_retry_count, patient.attr.rnr_retry_count);
	assert_true(info.path_mtu >= 256 && info.path_mtu <= 4096);
	assert_true(info.timeout_us > 0 && info.dest_qpn > 0);

	level = log_level_now;
	log_set_level(LOG_WARN);
	before = stderr_take(file);
	assert_int_equal(post_send_sge(&end,
				 (struct rp_send_wr){.wr_id = 1,
					 .opcode = RP_WRITE,
					 .flags = RP_SEND_SIGNALED,
					 .remote_addr = remote.addr,
					 .rkey = remote.rkey ^ (1u << 20)},
				 sge_at(&end, 0, 8)),
		0);
	wc_expect(&end, NULL, 1, RP_WC_REM_ACCESS_ERR);
	close(stderr_take(before));
	close(before);
	log_set_level(level);
	got = pread(file, text, sizeof(text) - 1, 0);
	assert_true(got > 0);
	text[got] = '\0';
	close(file);
	snprintf(line, sizeof(line), "RC queue pair %u of ", rp_qp_num(end.qp));
	assert_non_null(strstr(text, line));
	assert_non_null(strstr(text, "state ERR"));
	snprintf(line, sizeof(line), "dest_qpn %u, ", info.dest_qpn);
	assert_non_null(strstr(text, line));
	close_both(&end, &remote);
}

const struct CMUnitTest suite_remote_tests[] = {
	cmocka_unit_test(test_failure_is_told),
	cmocka_unit_test(test_echo_spinning),
	cmocka_unit_test(test_echo_sleeping),
	cmocka_unit_test(test_one_sided_shared),
	cmocka_unit_test(test_one_sided_anonymous),
	cmocka_unit_test(test_peer_killed_in_transfer),
	cmocka_unit_test(test_peer_killed_then_write),
	cmocka_unit_test(test_both_sleep),
	cmocka_unit_test(test_atomics_across),
	cmocka_unit_test(test_refused_across),
};
const size_t suite_remote_count = ARRAY_LEN(suite_remote_tests);
