/* tests/unit/rdma/suite_data.c: the provider suite's data tests between two ends of one process:
 * every verb, every refusal, every limit. */
#include "tests/unit/rdma/suite.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define S RP_SEND_SIGNALED

static const struct end_opts patient = {.attr = {.rnr_retry_count = 7, .retry_count = 7}};
static const struct end_opts big = {
	.attr = {.rnr_retry_count = 7,
		.retry_count = 7,
		.cap = {.max_send_sge = 8, .max_recv_sge = 8}},
	.mem_bytes = 16 * MIB,
};

static struct rp_send_wr send_wr(uint64_t wr_id, enum rp_opcode opcode, uint32_t flags)
{
	return (struct rp_send_wr){.wr_id = wr_id, .opcode = opcode, .flags = flags};
}

/* ---- Integrity. ---- */

/* Cuts [offset, offset + bytes) into count pieces at random places. */
static void cut(struct prng *prng, const struct end *end, uint64_t offset, uint32_t bytes,
	struct rp_sge *sges, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		uint32_t n = i + 1 == count ? bytes : (uint32_t)prng_below(prng, bytes + 1);

		sges[i] = sge_at(end, offset, n);
		offset += n;
		bytes -= n;
	}
}

static void one_random_transfer(struct pair *pair, struct prng *prng, enum rp_opcode opcode)
{
	static const uint32_t sizes_max[] = {64, 4096, 65536, 4 * MIB};
	uint32_t bytes = (uint32_t)prng_below(prng, sizes_max[prng_below(prng, 4)] + 1);
	uint32_t count = 1 + (uint32_t)prng_below(prng, 8);
	struct rp_sge local[8], remote[8];
	struct rp_send_wr wr = send_wr(1, opcode, S);
	struct rp_recv_wr recv = {2, remote, 8};
	uint8_t *from = pair->a.mem, *to = pair->b.mem;
	uint32_t posted;

	cut(prng, &pair->a, 0, bytes, local, count);
	prng_fill(prng, opcode == RP_READ ? to : from, bytes);
	wr.sg_list = local;
	wr.sge_count = count;
	wr.remote_addr = (uintptr_t)pair->b.mem;
	wr.rkey = rp_mr_rkey(pair->b.mr);
	if (opcode == RP_SEND) {
		cut(prng, &pair->b, 0, bytes + 17, remote, 8);
		assert_int_equal(rp_post_recv(pair->b.qp, &recv, 1, &posted), 0);
	}
	assert_int_equal(rp_post_send(pair->a.qp, &wr, 1, &posted), 0);
	if (opcode == RP_SEND) {
		/* A message longer than the ring needs progress at both ends. */
		struct rp_wc wc;
		bool sent = false, received = false;
		uint64_t deadline_ns = clock_now_ns() + SUITE_DEADLINE_NS;

		while (!sent || !received) {
			if (rp_cq_poll(pair->a.cq, &wc, 1) == 1) {
				assert_int_equal(wc.status, RP_WC_SUCCESS);
				sent = true;
			}
			if (rp_cq_poll(pair->b.cq, &wc, 1) == 1) {
				assert_int_equal(wc.status, RP_WC_SUCCESS);
				assert_int_equal(wc.byte_len, bytes);
				received = true;
			}
			assert_true(clock_now_ns() < deadline_ns);
		}
	} else {
		struct rp_wc wc = wc_expect(&pair->a, &pair->b, 1, RP_WC_SUCCESS);

		assert_int_equal(wc.opcode, opcode);
		if (opcode == RP_READ)
			assert_int_equal(wc.byte_len, bytes);
	}
	assert_memory_equal(from, to, bytes);
}

static void test_random_transfers(void **state)
{
	static const enum rp_opcode opcodes[] = {RP_SEND, RP_WRITE, RP_READ};
	struct prng prng;
	struct pair pair;

	(void)state;
	prng_seed(&prng, 20261121);
	pair_open(&pair, &big, &big);
	for (int i = 0; i < 150; i++)
		one_random_transfer(&pair, &prng, opcodes[i % 3]);
	pair_close(&pair);
}

/* ---- Counts. ---- */

struct counted {
	const char *name, *label;
	uint64_t value;
};

static void find_counted(const struct counter *counter, void *arg)
{
	struct counted *want = arg;
	char provider[64];
	bool ours;

	snprintf(provider, sizeof(provider), "provider=\"%s\"", suite->provider);
	ours = counter->labels && strstr(counter->labels, provider);
	if (strcmp(counter->name, want->name) == 0 && strstr(counter->labels, want->label) &&
		(ours || strncmp(want->name, "nebulaio_full_", 14) == 0))
		want->value += counter_read(counter);
}

static uint64_t counted(const char *name, const char *label)
{
	struct counted want = {.name = name, .label = label};

	counter_visit(find_counted, &want);
	return want.value;
}

static const char *const KINDS[] = {"kind=\"send\"", "kind=\"write\"", "kind=\"write_imm\"",
	"kind=\"read\"", "kind=\"atomic\"", "kind=\"recv\""};

static void test_work_is_counted_by_kind(void **state)
{
	static const enum rp_opcode opcodes[] = {
		RP_SEND, RP_WRITE, RP_WRITE_IMM, RP_READ, RP_FETCH_ADD};
	static const char REQUESTS[] = "nebulaio_rdma_work_requests_total";
	uint64_t before[ARRAY_LEN(KINDS)];
	struct pair pair;

	(void)state;
	pair_open(&pair, &patient, &patient);
	for (uint32_t i = 0; i < ARRAY_LEN(KINDS); i++)
		before[i] = counted(REQUESTS, KINDS[i]);
	for (uint32_t i = 0; i < ARRAY_LEN(opcodes); i++) {
		struct rp_send_wr wr = one_sided(opcodes[i], i, &pair.b, 0);
		bool told = opcodes[i] == RP_SEND || opcodes[i] == RP_WRITE_IMM;
		bool sent = false;

		if (told)
			assert_int_equal(post_recv_at(&pair.b, 100, 4096, 64), 0);
		assert_int_equal(post_send_sge(&pair.a, wr, sge_at(&pair.a, 0, 8)), 0);
		for (uint64_t until = clock_now_ns() + SUITE_DEADLINE_NS; !sent || told;) {
			struct rp_wc wc;

			sent |= rp_cq_poll(pair.a.cq, &wc, 1) == 1;
			told &= rp_cq_poll(pair.b.cq, &wc, 1) != 1;
			assert_true(clock_now_ns() < until);
		}
	}
	for (uint32_t i = 0; i < ARRAY_LEN(KINDS); i++)
		assert_int_equal(
			counted(REQUESTS, KINDS[i]) - before[i], i + 1 < ARRAY_LEN(KINDS) ? 1 : 2);
	pair_close(&pair);
}

static void test_write_imm(void **state)
{
	struct rp_send_wr wr;
	struct pair pair;
	struct rp_wc wc;

	(void)state;
	pair_open(&pair, NULL, NULL);
	memset(pair.a.mem, 0x5a, 1000);
	assert_int_equal(post_recv_at(&pair.b, 3, 0, 0), 0);
	wr = one_sided(RP_WRITE_IMM, 1, &pair.b, 512);
	wr.imm = 0xfeedbeef;
	assert_int_equal(post_send_sge(&pair.a, wr, sge_at(&pair.a, 0, 1000)), 0);
	wc = wc_expect(&pair.b, &pair.a, 3, RP_WC_SUCCESS);
	assert_int_equal(wc.opcode, RP_RECV_WRITE_IMM);
	assert_int_equal(wc.imm, 0xfeedbeef);
	assert_true(wc.has_imm);
	assert_int_equal(wc.byte_len, 1000);
	assert_memory_equal(pair.b.mem + 512, pair.a.mem, 1000);
	wc_expect(&pair.a, &pair.b, 1, RP_WC_SUCCESS);
	pair_close(&pair);
}

/* An empty write needs neither memory nor a key: it shows whether the peer's device is alive. */
static void test_empty_write(void **state)
{
	const struct rp_send_wr wr = {.wr_id = 1, .opcode = RP_WRITE, .flags = RP_SEND_SIGNALED};
	struct pair pair;
	uint32_t posted;

	(void)state;
	pair_open(&pair, NULL, NULL);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(rp_post_send(pair.a.qp, &wr, 1, &posted), 0);
		assert_int_equal(posted, 1);
		assert_int_equal(wc_expect(&pair.a, NULL, 1, RP_WC_SUCCESS).opcode, RP_WRITE);
	}
	wc_expect_none(&pair.b, &pair.a);
	pair_close(&pair);
}

static void test_atomics(void **state)
{
	uint64_t value = 40, old;
	struct rp_send_wr wr;
	struct pair pair;

	(void)state;
	pair_open(&pair, NULL, NULL);
	memcpy(pair.b.mem + 64, &value, 8);
	wr = one_sided(RP_FETCH_ADD, 1, &pair.b, 64);
	wr.compare_add = 2;
	assert_int_equal(post_send_sge(&pair.a, wr, sge_at(&pair.a, 0, 8)), 0);
	wc_expect(&pair.a, &pair.b, 1, RP_WC_SUCCESS);
	memcpy(&old, pair.a.mem, 8);
	memcpy(&value, pair.b.mem + 64, 8);
	assert_int_equal(old, 40);
	assert_int_equal(value, 42);
	wr = one_sided(RP_CMP_SWAP, 2, &pair.b, 64);
	wr.compare_add = 41;
	wr.swap = 7;
	for (uint64_t expect = 42; expect > 40; expect--) {
		assert_int_equal(post_send_sge(&pair.a, wr, sge_at(&pair.a, 0, 8)), 0);
		wc_expect(&pair.a, &pair.b, 2, RP_WC_SUCCESS);
		memcpy(&old, pair.a.mem, 8);
		memcpy(&value, pair.b.mem + 64, 8);
		assert_int_equal(old, 42);
		assert_int_equal(value, expect == 42 ? 42 : 7);
		wr.compare_add = 42;
	}
	wr.sge_count = 0;
	assert_int_equal(post_send_sge(&pair.a, wr, sge_at(&pair.a, 0, 4)), -EINVAL);
	wr.remote_addr += 4;
	atomic_refused(&pair.a, &pair.b, wr);
	pair_close(&pair);
}

static void test_inline_and_unsignaled(void **state)
{
	struct rp_send_wr wr = send_wr(1, RP_SEND, RP_SEND_INLINE);
	uint8_t data[64];
	struct rp_sge sge = {(uintptr_t)data, sizeof(data), 0};
	struct rp_qp_cap cap;
	struct pair pair;

	(void)state;
	pair_open(&pair, NULL, NULL);
	rp_qp_cap(pair.a.qp, &cap);
	assert_true(cap.max_inline_data >= 64);
	/* No receive yet, so the message waits; its buffer is ours again anyway. */
	memset(data, 'x', sizeof(data));
	assert_int_equal(post_send_sge(&pair.a, wr, sge), 0);
	memset(data, 'y', sizeof(data));
	wr.wr_id = 2;
	wr.flags |= S;
	assert_int_equal(post_send_sge(&pair.a, wr, sge), 0);
	assert_int_equal(post_recv_at(&pair.b, 10, 0, 64), 0);
	assert_int_equal(post_recv_at(&pair.b, 11, 64, 64), 0);
	/* Both ends make progress; only the second of the two sends has a completion. */
	for (int left = 3; left;) {
		struct rp_wc wc;

		if (rp_cq_poll(pair.a.cq, &wc, 1) == 1) {
			assert_int_equal(wc.wr_id, 2);
			assert_int_equal(wc.status, RP_WC_SUCCESS);
			left--;
		}
		if (rp_cq_poll(pair.b.cq, &wc, 1) == 1) {
			assert_int_equal(wc.status, RP_WC_SUCCESS);
			left--;
		}
	}
	wc_expect_none(&pair.a, &pair.b);
	assert_int_equal(pair.b.mem[0], 'x');
	assert_int_equal(pair.b.mem[127], 'y');
	pair_close(&pair);
}

/* ---- Refusals. ---- */

/* A one-sided operation that the responder must refuse; both ends are in error then. */
static void refused(enum rp_opcode opcode, uint32_t access, int64_t addr_off, uint32_t rkey_xor)
{
	struct end_opts closed = patient;
	struct rp_send_wr wr;
	struct pair pair;
	uint8_t before[64];

	closed.mem_access = access;
	pair_open(&pair, NULL, &closed);
	wr = one_sided(opcode, 1, &pair.b, 0);
	wr.remote_addr += (uint64_t)addr_off;
	wr.rkey ^= rkey_xor;
	memset(pair.a.mem, 0xee, 64);
	memcpy(before, pair.b.mem, 64);
	assert_int_equal(
		post_send_sge(&pair.a, wr, sge_at(&pair.a, 0, opcode >= RP_CMP_SWAP ? 8 : 64)), 0);
	assert_int_equal(post_send_sge(&pair.a, send_wr(2, RP_SEND, 0), sge_at(&pair.a, 0, 8)), 0);
	wc_expect(&pair.a, &pair.b, 1, RP_WC_REM_ACCESS_ERR);
	wc_expect(&pair.a, &pair.b, 2, RP_WC_WR_FLUSH_ERR);
	assert_int_equal(rp_qp_state(pair.a.qp), RP_QPS_ERR);
	assert_memory_equal(before, pair.b.mem, 64);
	pair_close(&pair);
}

/* A request that the peer refuses fails, and later ones are flushed. */
static void test_failures_are_counted_by_status(void **state)
{
	static const char ERRORS[] = "nebulaio_rdma_completion_errors_total";
	uint64_t failed = counted(ERRORS, "remote_access"), flushed = counted(ERRORS, "flushed");

	(void)state;
	refused(RP_WRITE, RP_ACCESS_LOCAL_WRITE, 0, 0);
	assert_int_equal(counted(ERRORS, "remote_access") - failed, 1);
	assert_int_equal(counted(ERRORS, "flushed") - flushed, 1);
}

static void test_refused_access(void **state)
{
	(void)state;
	refused(RP_WRITE, RP_ACCESS_LOCAL_WRITE, 0, 0);
	refused(RP_WRITE, RP_ACCESS_LOCAL_WRITE | RP_ACCESS_REMOTE_READ, 0, 0);
	refused(RP_READ, RP_ACCESS_LOCAL_WRITE | RP_ACCESS_REMOTE_WRITE, 0, 0);
	refused(RP_FETCH_ADD, RP_ACCESS_LOCAL_WRITE | RP_ACCESS_REMOTE_WRITE, 0, 0);
	refused(RP_CMP_SWAP, RP_ACCESS_LOCAL_WRITE | RP_ACCESS_REMOTE_READ, 0, 0);
}

static void test_refused_range(void **state)
{
	(void)state;
	refused(RP_WRITE, ACCESS_ALL, -1, 0);
	refused(RP_WRITE, ACCESS_ALL, (int64_t)MIB - 63, 0);
	refused(RP_READ, ACCESS_ALL, (int64_t)MIB, 0);
	refused(RP_READ, ACCESS_ALL, INT64_MIN, 0);
	refused(RP_FETCH_ADD, ACCESS_ALL, (int64_t)MIB, 0);
}

static void test_refused_keys(void **state)
{
	(void)state;
	refused(RP_WRITE, ACCESS_ALL, 0, 1);
	refused(RP_READ, ACCESS_ALL, 0, 0x80000000u);
	refused(RP_WRITE, ACCESS_ALL, 0, 0x01010101u);
}

static void test_refused_pd_and_closed_region(void **state)
{
	for (int closed = 0; closed < 2; closed++) {
		struct rp_mr_opts opts = {.access = ACCESS_ALL, .fd = -1};
		struct rp_send_wr wr;
		struct rp_pd *other;
		struct rp_mr *mr;
		struct pair pair;

		(void)state;
		pair_open(&pair, NULL, NULL);
		assert_int_equal(rp_pd_open(pair.b.device, &other), 0);
		opts.addr = pair.b.mem;
		opts.bytes = 4096;
		assert_int_equal(rp_mr_open(closed ? pair.b.pd : other, &opts, &mr), 0);
		wr = one_sided(RP_WRITE, 1, &pair.b, 0);
		wr.rkey = rp_mr_rkey(mr);
		if (closed)
			rp_mr_close(mr);
		assert_int_equal(post_send_sge(&pair.a, wr, sge_at(&pair.a, 0, 64)), 0);
		wc_expect(&pair.a, &pair.b, 1, RP_WC_REM_ACCESS_ERR);
		if (!closed)
			rp_mr_close(mr);
		rp_pd_close(other);
		pair_close(&pair);
	}
}

static void local_refusal(enum rp_opcode opcode, uint32_t access, uint64_t offset, uint32_t key_xor)
{
	struct end_opts mine = patient;
	struct rp_sge sge;
	struct pair pair;

	mine.mem_access = access;
	pair_open(&pair, &mine, NULL);
	sge = sge_at(&pair.a, offset, 64);
	sge.lkey ^= key_xor;
	assert_int_equal(post_recv_at(&pair.b, 9, 0, 64), 0);
	assert_int_equal(post_send_sge(&pair.a, one_sided(opcode, 1, &pair.b, 0), sge), 0);
	wc_expect_local(&pair.a, &pair.b, 1, RP_WC_LOC_PROT_ERR);
	assert_int_equal(rp_qp_state(pair.a.qp), RP_QPS_ERR);
	pair_close(&pair);
}

static void test_local_protection(void **state)
{
	(void)state;
	local_refusal(RP_SEND, ACCESS_ALL, 0, 1);
	local_refusal(RP_WRITE, ACCESS_ALL, MIB - 63, 0);
	local_refusal(RP_READ, RP_ACCESS_REMOTE_READ, 0, 0);
}

static void test_receive_protection(void **state)
{
	struct end_opts closed = patient;
	struct pair pair;

	(void)state;
	closed.mem_access = RP_ACCESS_REMOTE_READ;
	pair_open(&pair, NULL, &closed);
	assert_int_equal(post_recv_at(&pair.b, 9, 0, 64), 0);
	assert_int_equal(post_send_sge(&pair.a, send_wr(1, RP_SEND, S), sge_at(&pair.a, 0, 8)), 0);
	wc_expect_local(&pair.b, NULL, 9, RP_WC_LOC_PROT_ERR);
	wc_expect(&pair.a, NULL, 1, RP_WC_REM_OP_ERR);
	pair_close(&pair);
}

static void test_receive_too_small(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, NULL, NULL);
	assert_int_equal(post_recv_at(&pair.b, 9, 0, 63), 0);
	assert_int_equal(post_recv_at(&pair.b, 10, 0, 64), 0);
	assert_int_equal(post_send_sge(&pair.a, send_wr(1, RP_SEND, 0), sge_at(&pair.a, 0, 64)), 0);
	wc_expect_local(&pair.b, NULL, 9, RP_WC_LOC_LEN_ERR);
	wc_expect(&pair.b, NULL, 10, RP_WC_WR_FLUSH_ERR);
	wc_expect(&pair.a, NULL, 1, suite->soft_roce ? RP_WC_REM_OP_ERR : RP_WC_REM_INV_REQ_ERR);
	assert_int_equal(rp_qp_state(pair.b.qp), RP_QPS_ERR);
	pair_close(&pair);
}

/* ---- Order and limits. ---- */

static void test_blocked_send_holds_back(void **state)
{
	struct rp_send_wr wr;
	struct pair pair;

	(void)state;
	pair_open(&pair, NULL, NULL);
	memset(pair.a.mem, 1, 64);
	assert_int_equal(post_send_sge(&pair.a, send_wr(1, RP_SEND, S), sge_at(&pair.a, 0, 64)), 0);
	wr = one_sided(RP_WRITE, 2, &pair.b, 4096);
	wr.flags |= RP_SEND_FENCE;
	assert_int_equal(post_send_sge(&pair.a, wr, sge_at(&pair.a, 0, 64)), 0);
	wc_expect_none(&pair.a, &pair.b);
	assert_int_equal(pair.b.mem[4096], 0);
	assert_int_equal(post_recv_at(&pair.b, 3, 0, 64), 0);
	for (int next_a = 1, next_b = 3; next_a < 3 || next_b < 4;) {
		struct rp_wc wc;

		if (rp_cq_poll(pair.a.cq, &wc, 1) == 1)
			assert_int_equal(wc.wr_id, next_a++);
		if (rp_cq_poll(pair.b.cq, &wc, 1) == 1)
			assert_int_equal(wc.wr_id, next_b++);
	}
	assert_int_equal(pair.b.mem[4096], 1);
	pair_close(&pair);
}

static void test_rnr_exceeded(void **state)
{
	struct end_opts impatient = {.attr = {.rnr_retry_count = 2, .retry_count = 2}};
	struct pair pair;

	(void)state;
	pair_open(&pair, &impatient, NULL);
	/* The peer shows that it is alive; then it is only not ready. */
	wc_expect_none(&pair.a, &pair.b);
	assert_int_equal(post_send_sge(&pair.a, send_wr(1, RP_SEND, 0), sge_at(&pair.a, 0, 64)), 0);
	wc_expect(&pair.a, &pair.b, 1, RP_WC_RNR_RETRY_EXC_ERR);
	assert_int_equal(rp_qp_state(pair.a.qp), RP_QPS_ERR);
	pair_close(&pair);
}

static void test_queue_full(void **state)
{
	struct end_opts tiny = patient;
	struct rp_send_wr wr = send_wr(1, RP_SEND, S);
	struct rp_qp_cap cap;
	uint64_t full = counted(COUNTER_FULL, "rdma_send_queue");
	uint64_t depth = counted(COUNTER_FULL_DEPTH, "rdma_send_queue");
	struct pair pair;
	uint32_t count = 0;
	int err;

	(void)state;
	tiny.attr.cap.max_send_wr = 4;
	tiny.attr.cap.max_recv_wr = 4;
	pair_open(&pair, &tiny, &tiny);
	rp_qp_cap(pair.a.qp, &cap);
	assert_true(cap.max_send_wr >= 4 && cap.max_recv_wr >= 4);
	for (; !(err = post_send_sge(&pair.a, wr, sge_at(&pair.a, 0, 8))); count++)
		assert_true(count < 4 * cap.max_send_wr);
	assert_int_equal(err, -ENOMEM);
	assert_true(suite->soft_roce ? count >= cap.max_send_wr : count == cap.max_send_wr);
	assert_int_equal(counted(COUNTER_FULL, "rdma_send_queue") - full, 1);
	assert_int_equal(counted(COUNTER_FULL_DEPTH, "rdma_send_queue") - depth, cap.max_send_wr);
	full = counted(COUNTER_FULL, "rdma_receive_queue");
	depth = counted(COUNTER_FULL_DEPTH, "rdma_receive_queue");
	for (count = 0; !(err = post_recv_at(&pair.a, count, 0, 8)); count++)
		assert_true(count < 4 * cap.max_recv_wr);
	assert_int_equal(err, -ENOMEM);
	assert_true(suite->soft_roce ? count >= cap.max_recv_wr : count == cap.max_recv_wr);
	assert_int_equal(counted(COUNTER_FULL, "rdma_receive_queue") - full, 1);
	assert_int_equal(
		counted(COUNTER_FULL_DEPTH, "rdma_receive_queue") - depth, cap.max_recv_wr);
	pair_close(&pair);
}

static void test_cq_overrun(void **state)
{
	struct end_opts tiny = patient;
	struct rp_wc wcs[64];
	struct pair pair;
	int got, all = 0;

	(void)state;
	tiny.cqe_count = 8;
	pair_open(&pair, &tiny, NULL);
	for (int i = 0; i < 64; i++)
		assert_int_equal(post_send_sge(&pair.a, one_sided(RP_WRITE, 1, &pair.b, 0),
					 sge_at(&pair.a, 0, 8)),
			0);
	while ((got = rp_cq_poll(pair.a.cq, wcs, 64)) > 0)
		all += got;
	assert_int_equal(got, -EIO);
	assert_true(all >= 8 && all < 64);
	rp_cq_poll(pair.a.cq, wcs, 64);
	assert_int_equal(rp_qp_state(pair.a.qp), RP_QPS_ERR);
	pair_close(&pair);
}

static void test_shared_receive_queue(void **state)
{
	struct end_opts shared = patient;
	struct rp_recv_wr recv;
	struct rp_srq *srq;
	struct rp_sge sge;
	struct pair pair;
	uint32_t posted, count;
	int err;

	(void)state;
	pair_open(&pair, NULL, NULL);
	assert_int_equal(rp_srq_open(pair.b.pd, 2, 1, &srq), 0);
	rp_qp_close(pair.a.qp);
	rp_qp_close(pair.b.qp);
	end_new_qp(&pair.a, &patient);
	shared.attr.srq = srq;
	end_new_qp(&pair.b, &shared);
	{
		struct rp_cm_event event;

		assert_int_equal(
			rp_connect(pair.a.qp, suite->address, rp_listener_port(pair.listener), NULL,
				0, clock_now_ns() + SUITE_DEADLINE_NS),
			0);
		cm_expect(pair.b.device, RP_CM_CONNECT_REQUEST, &event);
		assert_int_equal(rp_accept(event.request, pair.b.qp, NULL, 0), 0);
		cm_expect(pair.a.device, RP_CM_ESTABLISHED, NULL);
		cm_expect(pair.b.device, RP_CM_ESTABLISHED, NULL);
	}
	assert_int_equal(post_recv_at(&pair.b, 1, 0, 8), -EINVAL);
	assert_int_equal(post_send_sge(&pair.a, send_wr(1, RP_SEND, S), sge_at(&pair.a, 0, 64)), 0);
	wc_expect_none(&pair.a, &pair.b);
	sge = sge_at(&pair.b, 128, 64);
	recv = (struct rp_recv_wr){5, &sge, 1};
	assert_int_equal(rp_srq_post(srq, &recv, 1, &posted), 0);
	wc_expect(&pair.b, NULL, 5, RP_WC_SUCCESS);
	wc_expect(&pair.a, NULL, 1, RP_WC_SUCCESS);
	for (count = 0; !(err = rp_srq_post(srq, &recv, 1, &posted)); count++)
		assert_true(count < 8);
	assert_int_equal(err, -ENOMEM);
	assert_true(suite->soft_roce ? count >= 2 : count == 2);
	rp_qp_close(pair.b.qp);
	pair.b.qp = NULL;
	rp_srq_close(srq);
	pair_close(&pair);
}

static void test_arm(void **state)
{
	struct pollfd wait;
	struct pair pair;

	(void)state;
	pair_open(&pair, NULL, NULL);
	assert_int_equal(post_recv_at(&pair.b, 1, 0, 64), 0);
	wc_expect_none(&pair.b, &pair.a);
	wait = (struct pollfd){.fd = rp_cq_fd(pair.b.cq), .events = POLLIN};
	assert_true(rp_cq_arm(pair.b.cq));
	assert_int_equal(poll(&wait, 1, 0), 0);
	assert_int_equal(post_send_sge(&pair.a, send_wr(1, RP_SEND, S), sge_at(&pair.a, 0, 64)), 0);
	assert_int_equal(poll(&wait, 1, 60000), 1);
	rp_cq_disarm(pair.b.cq);
	wc_expect(&pair.b, NULL, 1, RP_WC_SUCCESS);
	wc_expect(&pair.a, NULL, 1, RP_WC_SUCCESS);
	/* With a completion waiting, the wait does not sleep. */
	assert_int_equal(
		post_send_sge(&pair.a, one_sided(RP_WRITE, 2, &pair.b, 0), sge_at(&pair.a, 0, 8)),
		0);
	while (rp_cq_arm(pair.a.cq)) {
		wait.fd = rp_cq_fd(pair.a.cq);
		assert_int_equal(poll(&wait, 1, 60000), 1);
		rp_cq_disarm(pair.a.cq);
	}
	wc_expect(&pair.a, NULL, 2, RP_WC_SUCCESS);
	pair_close(&pair);
}

/* Reads 64 bytes of to's memory with this key. */
static enum rp_status window_read(struct end *end, struct end *to, uint32_t rkey)
{
	struct rp_send_wr wr = one_sided(RP_READ, 1, to, 0);

	wr.rkey = rkey;
	memset(end->mem, 0, 64);
	assert_int_equal(post_send_sge(end, wr, sge_at(end, 0, 64)), 0);
	return wc_next(end, to).status;
}

/* A second connection into b's domain, by a queue pair of its own. */
static void second_open(struct pair *pair, struct end *ret_c, struct rp_qp **ret_qp)
{
	const struct end_opts plain = {.attr = {.rnr_retry_count = 7, .retry_count = 7}};
	struct rp_qp *first = pair->b.qp;
	struct rp_cm_event event;

	end_open(ret_c, &plain);
	end_new_qp(&pair->b, &plain);
	*ret_qp = pair->b.qp;
	pair->b.qp = first;
	assert_int_equal(rp_connect(ret_c->qp, suite->address, rp_listener_port(pair->listener),
				 NULL, 0, clock_now_ns() + SUITE_DEADLINE_NS),
		0);
	cm_expect(pair->b.device, RP_CM_CONNECT_REQUEST, &event);
	assert_int_equal(rp_accept(event.request, *ret_qp, NULL, 0), 0);
	cm_expect(ret_c->device, RP_CM_ESTABLISHED, NULL);
	cm_expect(pair->b.device, RP_CM_ESTABLISHED, NULL);
}

/* A window's key gives the peer of its queue pair access to the region, but not the peer of another
 * queue pair in the same protection domain. The region's own key gives no access. */
static void test_window(void **state)
{
	struct rp_device_attr device;
	struct rp_mr_opts opts = {.access = RP_ACCESS_WINDOW};
	struct rp_qp *other;
	struct rp_mr *mr;
	struct rp_mw *mw;
	struct pair pair;
	struct end c;
	uint32_t key;

	(void)state;
	pair_open(&pair, NULL, NULL);
	rp_device_attr(pair.b.device, &device);
	if (!device.windows) {
		pair_close(&pair);
		skip();
	}
	second_open(&pair, &c, &other);
	opts.addr = pair.b.mem;
	opts.bytes = 4096;
	opts.fd = pair.b.mem_fd;
	assert_int_equal(rp_mr_open(pair.b.pd, &opts, &mr), 0);
	assert_int_equal(rp_mw_open(pair.b.qp, pair.b.mr, 9, &mw), -EINVAL);
	assert_int_equal(rp_mw_open(pair.b.qp, mr, 9, &mw), 0);
	key = rp_mw_rkey(mw);
	wc_expect_none(&pair.b, NULL);
	memset(pair.b.mem, 0x5c, 64);
	assert_int_equal(window_read(&pair.a, &pair.b, key), RP_WC_SUCCESS);
	assert_memory_equal(pair.a.mem, pair.b.mem, 64);
	assert_int_equal(window_read(&c, &pair.b, key), RP_WC_REM_ACCESS_ERR);
	assert_int_equal(c.mem[0], 0);
	assert_int_equal(window_read(&pair.a, &pair.b, rp_mr_rkey(mr)), RP_WC_REM_ACCESS_ERR);
	assert_int_equal(pair.a.mem[0], 0);
	rp_mw_close(mw);
	rp_mr_close(mr);
	rp_qp_close(other);
	end_close(&c);
	pair_close(&pair);
}

/* A closed window gives no access. */
static void test_window_closed(void **state)
{
	struct rp_device_attr device;
	struct rp_mr_opts opts = {.access = RP_ACCESS_WINDOW, .bytes = 4096};
	struct rp_mr *mr;
	struct rp_mw *mw;
	struct pair pair;
	uint32_t key;

	(void)state;
	pair_open(&pair, NULL, NULL);
	rp_device_attr(pair.b.device, &device);
	if (!device.windows) {
		pair_close(&pair);
		skip();
	}
	opts.addr = pair.b.mem;
	opts.fd = pair.b.mem_fd;
	assert_int_equal(rp_mr_open(pair.b.pd, &opts, &mr), 0);
	assert_int_equal(rp_mw_open(pair.b.qp, mr, 9, &mw), 0);
	key = rp_mw_rkey(mw);
	assert_int_equal(window_read(&pair.a, &pair.b, key), RP_WC_SUCCESS);
	rp_mw_close(mw);
	assert_int_equal(window_read(&pair.a, &pair.b, key), RP_WC_REM_ACCESS_ERR);
	rp_mr_close(mr);
	pair_close(&pair);
}

const struct CMUnitTest suite_window_tests[] = {
	cmocka_unit_test(test_window),
	cmocka_unit_test(test_window_closed),
};
const size_t suite_window_count = ARRAY_LEN(suite_window_tests);

const struct CMUnitTest suite_data_tests[] = {
	cmocka_unit_test(test_random_transfers),
	cmocka_unit_test(test_work_is_counted_by_kind),
	cmocka_unit_test(test_failures_are_counted_by_status),
	cmocka_unit_test(test_write_imm),
	cmocka_unit_test(test_empty_write),
	cmocka_unit_test(test_atomics),
	cmocka_unit_test(test_inline_and_unsignaled),
	cmocka_unit_test(test_refused_access),
	cmocka_unit_test(test_refused_range),
	cmocka_unit_test(test_refused_keys),
	cmocka_unit_test(test_refused_pd_and_closed_region),
	cmocka_unit_test(test_local_protection),
	cmocka_unit_test(test_receive_protection),
	cmocka_unit_test(test_receive_too_small),
	cmocka_unit_test(test_blocked_send_holds_back),
	cmocka_unit_test(test_rnr_exceeded),
	cmocka_unit_test(test_queue_full),
	cmocka_unit_test(test_cq_overrun),
	cmocka_unit_test(test_shared_receive_queue),
	cmocka_unit_test(test_arm),
};
const size_t suite_data_count = ARRAY_LEN(suite_data_tests);
