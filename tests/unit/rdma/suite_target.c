/* tests/unit/rdma/suite_target.c: the provider suite's tests of queue pairs as targets of the
 * region's rings. */
#include "tests/unit/rdma/suite.h"

#include "rdma/provider/provider.h"

#include <errno.h>
#include <string.h>

#define MINE 77u

struct rig {
	struct region *region;
	struct region_ring *ring;
	struct rp_mr *mr;
	struct pair pair;
	uint16_t target;
	uint32_t others;
};

static const struct end_opts patient = {.attr = {.rnr_retry_count = 7, .retry_count = 7}};

static void rig_open_with(struct rig *rig, const struct end_opts *end)
{
	const struct region_opts opts = {
		.name = "suite", .bytes = 4 * MIB, .core_count = 1, .ring_entries = 64};
	struct region_arena arena;
	struct rp_mr_opts mr = {.access = ACCESS_ALL};

	*rig = (struct rig){0};
	assert_int_equal(region_open(&opts, &rig->region), 0);
	rig->ring = region_ring(rig->region, 0);
	pair_open(&rig->pair, end, &patient);
	arena = region_arena(rig->region, 0);
	mr.addr = arena.base;
	mr.bytes = arena.bytes;
	mr.fd = arena.fd;
	assert_int_equal(rp_mr_open(rig->pair.a.pd, &mr, &rig->mr), 0);
	assert_int_equal(rp_qp_target(rig->pair.a.qp, rig->region, &rig->target), 0);
	assert_int_equal(rp_qp_target(rig->pair.a.qp, rig->region, &rig->target), -EEXIST);
}

static void rig_open(struct rig *rig)
{
	rig_open_with(rig, &patient);
}

static void rig_close(struct rig *rig)
{
	rp_mr_close(rig->mr);
	pair_close(&rig->pair);
	region_close(rig->region);
}

static struct region_wr ring_wr(
	struct rig *rig, enum region_op op, uint64_t user_data, const void *data, uint32_t len)
{
	return (struct region_wr){
		.opcode = (uint8_t)op,
		.target = rig->target,
		.sge_count = 1,
		.user_data = user_data,
		.remote_addr = (uintptr_t)rig->pair.b.mem,
		.rkey = rp_mr_rkey(rig->pair.b.mr),
		.sge = {{(uintptr_t)data, len, rp_mr_lkey(rig->mr)}},
	};
}

static void other_wc(void *arg, const struct rp_wc *wc)
{
	struct rig *rig = arg;

	assert_int_equal(wc->wr_id, MINE);
	rig->others++;
}

/* Turns and drains until there is a region completion. */
static struct region_cqe next_cqe(struct rig *rig)
{
	uint64_t deadline_ns = clock_now_ns() + SUITE_DEADLINE_NS;
	struct region_cqe cqe;
	struct rp_wc wc;

	while (!region_reap(rig->ring, &cqe, 1)) {
		region_ring_turn(rig->ring);
		rp_cq_drain(rig->pair.a.cq, rig->ring, other_wc, rig);
		rp_cq_poll(rig->pair.b.cq, &wc, 1);
		assert_true(clock_now_ns() < deadline_ns);
	}
	return cqe;
}

static void test_ring_operations(void **state)
{
	struct region_span span;
	struct region_cqe cqe;
	struct region_wr wr;
	struct rig rig;

	(void)state;
	rig_open(&rig);
	assert_int_equal(region_lease(rig.region, 2, OWNER_APP, &span), 0);
	memset(span.data, 0x11, 4096);
	wr = ring_wr(&rig, REGION_OP_RDMA_WRITE, 1, span.data, 4096);
	wr.flags = REGION_F_UNSIGNALED;
	assert_int_equal(region_submit_wr(rig.ring, &wr), 0);
	wr = ring_wr(&rig, REGION_OP_RDMA_READ, 2, span.data + 4096, 4096);
	assert_int_equal(region_submit_wr(rig.ring, &wr), 0);
	cqe = next_cqe(&rig);
	assert_int_equal(cqe.user_data, 2);
	assert_int_equal(cqe.result, 4096);
	assert_int_equal(cqe.target, rig.target);
	assert_int_equal(cqe.opcode, REGION_OP_RDMA_READ);
	assert_memory_equal(span.data, span.data + 4096, 4096);
	/* A message each way, and a completion that is not the ring's in between. */
	assert_int_equal(post_recv_at(&rig.pair.b, 0, 8192, 64), 0);
	wr = ring_wr(&rig, REGION_OP_SEND, 3, span.data, 64);
	assert_int_equal(region_submit_wr(rig.ring, &wr), 0);
	cqe = next_cqe(&rig);
	assert_int_equal(cqe.user_data, 3);
	assert_int_equal(cqe.result, 64);
	assert_int_equal(post_send_sge(&rig.pair.a, one_sided(RP_WRITE, MINE, &rig.pair.b, 0),
				 sge_at(&rig.pair.a, 0, 8)),
		0);
	wr = ring_wr(&rig, REGION_OP_RECV, 4, span.data, 4096);
	assert_int_equal(region_submit_wr(rig.ring, &wr), 0);
	region_ring_turn(rig.ring);
	assert_int_equal(
		post_send_sge(&rig.pair.b, (struct rp_send_wr){.opcode = RP_SEND_IMM, .imm = 9},
			sge_at(&rig.pair.b, 0, 100)),
		0);
	cqe = next_cqe(&rig);
	assert_int_equal(cqe.user_data, 4);
	assert_int_equal(cqe.result, 100);
	assert_int_equal(cqe.imm, 9);
	assert_int_equal(rig.others, 1);
	region_give(rig.region, span, OWNER_APP);
	rig_close(&rig);
}

static void test_ring_many_unsignaled(void **state)
{
	struct region_span span;
	struct region_wr wr;
	struct rig rig;

	(void)state;
	rig_open(&rig);
	assert_int_equal(region_lease(rig.region, 1, OWNER_APP, &span), 0);
	/* Far more than the queue pair holds: none of them has a completion, and none blocks the
	 * next. */
	for (uint32_t i = 0; i < 2000; i++) {
		wr = ring_wr(&rig, REGION_OP_RDMA_WRITE, i, span.data, 8);
		wr.flags = REGION_F_UNSIGNALED;
		assert_int_equal(region_submit_wr(rig.ring, &wr), 0);
		region_ring_turn(rig.ring);
		rp_cq_drain(rig.pair.a.cq, rig.ring, other_wc, &rig);
	}
	wr = ring_wr(&rig, REGION_OP_RDMA_READ, 5000, span.data, 8);
	assert_int_equal(region_submit_wr(rig.ring, &wr), 0);
	assert_int_equal(next_cqe(&rig).user_data, 5000);
	region_give(rig.region, span, OWNER_APP);
	rig_close(&rig);
}

static void test_ring_errors(void **state)
{
	const struct region_sqe sqe = {.opcode = REGION_OP_FLUSH, .user_data = 1};
	struct region_sqe base = sqe;
	struct region_span span;
	struct region_cqe cqe;
	struct region_wr wr;
	struct rig rig;

	(void)state;
	rig_open(&rig);
	assert_int_equal(region_lease(rig.region, 1, OWNER_APP, &span), 0);
	base.target = rig.target;
	assert_int_equal(region_submit(rig.ring, &base), 0);
	assert_int_equal(next_cqe(&rig).result, -EOPNOTSUPP);
	wr = ring_wr(&rig, REGION_OP_FETCH_ADD, 2, span.data, 4);
	assert_int_equal(region_submit_wr(rig.ring, &wr), 0);
	cqe = next_cqe(&rig);
	assert_int_equal(cqe.user_data, 2);
	assert_int_equal(cqe.result, -EINVAL);
	wr = ring_wr(&rig, REGION_OP_RDMA_WRITE, 3, span.data, 8);
	wr.rkey ^= 1;
	wr.flags = REGION_F_UNSIGNALED;
	assert_int_equal(region_submit_wr(rig.ring, &wr), 0);
	wr = ring_wr(&rig, REGION_OP_RDMA_WRITE, 4, span.data, 8);
	assert_int_equal(region_submit_wr(rig.ring, &wr), 0);
	cqe = next_cqe(&rig);
	assert_int_equal(cqe.user_data, 3);
	assert_int_equal(cqe.result, -EACCES);
	cqe = next_cqe(&rig);
	assert_int_equal(cqe.user_data, 4);
	assert_int_equal(cqe.result, -ECANCELED);
	region_give(rig.region, span, OWNER_APP);
	rig_close(&rig);
}

/* A queue that cannot hold its completions loses some: their entries are cancelled, and so are
 * later ones. No entry waits for ever. */
static void test_ring_of_a_lost_queue(void **state)
{
	struct end_opts tiny = patient;
	uint32_t done = 0, cancelled = 0;
	struct region_span span;
	struct region_wr wr;
	struct rig rig;

	(void)state;
	tiny.cqe_count = 8;
	rig_open_with(&rig, &tiny);
	assert_int_equal(region_lease(rig.region, 1, OWNER_APP, &span), 0);
	for (uint32_t i = 0; i < 32; i++) {
		wr = ring_wr(&rig, REGION_OP_RDMA_WRITE, i, span.data, 8);
		assert_int_equal(region_submit_wr(rig.ring, &wr), 0);
	}
	for (uint32_t i = 0; i < 32; i++) {
		struct region_cqe cqe = next_cqe(&rig);

		assert_int_equal(cqe.user_data, i);
		assert_true(cqe.result == 8 || cqe.result == -ECANCELED);
		done += cqe.result == 8;
		cancelled += cqe.result == -ECANCELED;
	}
	assert_true(done >= 8 && cancelled > 0);
	assert_int_equal(rp_qp_state(rig.pair.a.qp), RP_QPS_ERR);
	wr = ring_wr(&rig, REGION_OP_RDMA_WRITE, 99, span.data, 8);
	assert_int_equal(region_submit_wr(rig.ring, &wr), 0);
	assert_int_equal(next_cqe(&rig).result, -ECANCELED);
	region_give(rig.region, span, OWNER_APP);
	rig_close(&rig);
}

/* A queue of a device that reports the same completion twice. */
static struct rp_wc repeated;

static int poll_repeats(struct rp_cq *cq, struct rp_wc *wcs, uint32_t max)
{
	(void)cq;
	assert_true(max >= 2);
	wcs[0] = wcs[1] = repeated;
	return 2;
}

/* A completion of an operation that is not in flight is ignored, and does not abort the program. */
static void test_ring_completed_twice(void **state)
{
	const struct rp_ops ops = {.cq_poll = poll_repeats};
	struct rp_cq repeating = {.ops = &ops, .magic = RP_CQ};
	struct region_cqe cqes[2];
	struct region_span span;
	struct region_wr wr;
	struct rig rig;

	(void)state;
	rig_open(&rig);
	assert_int_equal(region_lease(rig.region, 1, OWNER_APP, &span), 0);
	wr = ring_wr(&rig, REGION_OP_RDMA_WRITE, 5, span.data, 8);
	assert_int_equal(region_submit_wr(rig.ring, &wr), 0);
	region_ring_turn(rig.ring);
	repeated = wc_next(&rig.pair.a, &rig.pair.b);
	assert_true(repeated.wr_id & RP_WR_ID_RING);
	rp_cq_drain(&repeating, rig.ring, other_wc, &rig);
	assert_int_equal(region_reap(rig.ring, cqes, 2), 1);
	assert_int_equal(cqes[0].user_data, 5);
	assert_int_equal(cqes[0].result, 8);
	region_give(rig.region, span, OWNER_APP);
	rig_close(&rig);
}

static void test_ring_close_cancels(void **state)
{
	struct region_span span;
	struct region_cqe cqe;
	struct region_wr wr;
	struct rig rig;

	(void)state;
	rig_open(&rig);
	assert_int_equal(region_lease(rig.region, 1, OWNER_APP, &span), 0);
	wr = ring_wr(&rig, REGION_OP_RECV, 6, span.data, 64);
	assert_int_equal(region_submit_wr(rig.ring, &wr), 0);
	region_ring_turn(rig.ring);
	rp_qp_close(rig.pair.a.qp);
	rig.pair.a.qp = NULL;
	assert_int_equal(region_reap(rig.ring, &cqe, 1), 1);
	assert_int_equal(cqe.user_data, 6);
	assert_int_equal(cqe.result, -ECANCELED);
	region_give(rig.region, span, OWNER_APP);
	rig_close(&rig);
}

const struct CMUnitTest suite_target_tests[] = {
	cmocka_unit_test(test_ring_operations),
	cmocka_unit_test(test_ring_many_unsignaled),
	cmocka_unit_test(test_ring_errors),
	cmocka_unit_test(test_ring_of_a_lost_queue),
	cmocka_unit_test(test_ring_completed_twice),
	cmocka_unit_test(test_ring_close_cancels),
};
const size_t suite_target_count = ARRAY_LEN(suite_target_tests);
