/* tests/unit/rdma/test_verbs_dc.c: covers the part of rdma/verbs/dc.c that needs no device: the
 * calls of libmlx5's request builder for each posted request. The test's own builder records its
 * calls. */
#include "tests/unit/unit.h"

#include <errno.h>

#include "rdma/verbs/dc.h"

#define CALLS_MAX 64u

enum call { START, SEND, SEND_IMM, WRITE, WRITE_IMM, READ, CAS, ADD, TO, SGES, INLINE, COMPLETE };
struct told {
	enum call call;
	uint64_t wr_id, remote_addr, a, b;
	uint32_t rkey, flags, count, imm;
	const void *ah;
};
static struct told calls[CALLS_MAX];
static uint32_t call_count;
static int complete_result;

static struct told *tell(struct ibv_qp_ex *qp, enum call call)
{
	struct told *told = &calls[call_count++];

	assert_true(call_count < CALLS_MAX);
	*told = (struct told){.call = call, .wr_id = qp->wr_id, .flags = qp->wr_flags};
	return told;
}

static void told_start(struct ibv_qp_ex *qp)
{
	tell(qp, START);
}

static int told_complete(struct ibv_qp_ex *qp)
{
	tell(qp, COMPLETE);
	return complete_result;
}

static void told_send(struct ibv_qp_ex *qp)
{
	tell(qp, SEND);
}

static void told_send_imm(struct ibv_qp_ex *qp, __be32 imm)
{
	tell(qp, SEND_IMM)->imm = ntohl(imm);
}

static void one_sided(struct told *told, uint32_t rkey, uint64_t addr)
{
	told->rkey = rkey;
	told->remote_addr = addr;
}

static void told_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr)
{
	one_sided(tell(qp, WRITE), rkey, addr);
}

static void told_write_imm(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, __be32 imm)
{
	struct told *told = tell(qp, WRITE_IMM);

	one_sided(told, rkey, addr);
	told->imm = ntohl(imm);
}

static void told_read(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr)
{
	one_sided(tell(qp, READ), rkey, addr);
}

static void told_cas(
	struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, uint64_t compare, uint64_t swap)
{
	struct told *told = tell(qp, CAS);

	one_sided(told, rkey, addr);
	told->a = compare;
	told->b = swap;
}

static void told_add(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, uint64_t add)
{
	struct told *told = tell(qp, ADD);

	one_sided(told, rkey, addr);
	told->a = add;
}

static void told_sges(struct ibv_qp_ex *qp, size_t count, const struct ibv_sge *sges)
{
	struct told *told = tell(qp, SGES);

	told->count = (uint32_t)count;
	told->a = count ? sges[0].addr : 0;
	told->b = count ? sges[0].length : 0;
	told->rkey = count ? sges[0].lkey : 0;
}

static void told_inline(struct ibv_qp_ex *qp, size_t count, const struct ibv_data_buf *bufs)
{
	struct told *told = tell(qp, INLINE);

	told->count = (uint32_t)count;
	told->a = (uintptr_t)bufs[0].addr;
	told->b = bufs[0].length;
}

static struct ibv_qp_ex builder = {
	.wr_start = told_start,
	.wr_complete = told_complete,
	.wr_send = told_send,
	.wr_send_imm = told_send_imm,
	.wr_rdma_write = told_write,
	.wr_rdma_write_imm = told_write_imm,
	.wr_rdma_read = told_read,
	.wr_atomic_cmp_swp = told_cas,
	.wr_atomic_fetch_add = told_add,
	.wr_set_sge_list = told_sges,
	.wr_set_inline_data_list = told_inline,
};

static void told_to(struct mlx5dv_qp_ex *direct, struct ibv_ah *ah, uint32_t number, uint64_t key)
{
	struct told *told = tell(&builder, TO);

	(void)direct;
	told->ah = ah;
	told->count = number;
	told->a = key;
}

static struct mlx5dv_qp_ex direct = {.wr_set_dc_addr = told_to};
static struct verbs_dci dci;
static struct verbs_qp qp;
static struct ibv_qp device_qp;
static struct ibv_ah device_ahs[2];
static struct verbs_ah ahs[2];

static int set_up(void **state)
{
	(void)state;
	call_count = 0;
	complete_result = 0;
	dci = (struct verbs_dci){.wr = &builder, .direct = &direct};
	qp = (struct verbs_qp){.handle = VERBS_HANDLE_QP,
		.type = RP_QP_DCI,
		.dci = &dci,
		.qp = &device_qp,
		.base = {.ops = &rp_verbs_ops,
			.magic = RP_QP,
			.type = RP_QP_DCI,
			.cap = {.max_send_sge = 2, .max_inline_data = 64}}};
	atomic_store(&qp.state, RP_QPS_RTS);
	for (size_t i = 0; i < ARRAY_LEN(ahs); i++)
		ahs[i] = (struct verbs_ah){.base = {&rp_verbs_ops, RP_AH}, .ah = &device_ahs[i]};
	return 0;
}

static const struct rp_sge payload[2] = {{0x1000, 512, 7}, {0x9000, 512, 8}};

static struct rp_send_wr request(enum rp_opcode opcode, uint64_t wr_id)
{
	return (struct rp_send_wr){
		.wr_id = wr_id,
		.opcode = opcode,
		.flags = RP_SEND_SIGNALED,
		.sg_list = payload,
		.sge_count = 2,
		.imm = 0x01020304,
		.remote_addr = 0xabcd000,
		.rkey = 0x42,
		.ah = &ahs[0].base,
		.remote_qpn = 0x123456,
		.dc_key = 0xffeeddcc,
	};
}

static void expect_to(
	const struct told *told, const struct ibv_ah *ah, uint32_t number, uint64_t key)
{
	assert_int_equal(told->call, TO);
	assert_ptr_equal(told->ah, ah);
	assert_int_equal(told->count, number);
	assert_int_equal(told->a, key);
}

static void test_each_opcode(void **state)
{
	static const enum rp_opcode opcodes[] = {
		RP_SEND, RP_SEND_IMM, RP_WRITE, RP_WRITE_IMM, RP_READ};
	static const enum call expected[] = {SEND, SEND_IMM, WRITE, WRITE_IMM, READ};
	struct rp_send_wr wrs[ARRAY_LEN(opcodes)];
	uint32_t posted;

	(void)state;
	for (uint32_t i = 0; i < ARRAY_LEN(opcodes); i++)
		wrs[i] = request(opcodes[i], 100 + i);
	assert_int_equal(verbs_post_send(&qp.base, wrs, ARRAY_LEN(wrs), &posted), 0);
	assert_int_equal(posted, ARRAY_LEN(wrs));
	/* One doorbell for all. */
	assert_int_equal(call_count, 2 + 3 * ARRAY_LEN(wrs));
	assert_int_equal(calls[0].call, START);
	assert_int_equal(calls[call_count - 1].call, COMPLETE);
	for (uint32_t i = 0; i < ARRAY_LEN(opcodes); i++) {
		const struct told *told = &calls[1 + 3 * i];

		assert_int_equal(told->call, expected[i]);
		assert_int_equal(told->wr_id, 100 + i);
		assert_int_equal(told->flags, IBV_SEND_SIGNALED);
		if (opcodes[i] == RP_SEND_IMM || opcodes[i] == RP_WRITE_IMM)
			assert_int_equal(told->imm, 0x01020304);
		if (opcodes[i] >= RP_WRITE) {
			assert_int_equal(told->rkey, 0x42);
			assert_int_equal(told->remote_addr, 0xabcd000);
		}
		expect_to(told + 1, &device_ahs[0], 0x123456, 0xffeeddcc);
		assert_int_equal(told[2].call, SGES);
		assert_int_equal(told[2].count, 2);
		assert_int_equal(told[2].a, 0x1000);
		assert_int_equal(told[2].b, 512);
		assert_int_equal(told[2].rkey, 7);
	}
}

static void test_atomics_and_inline(void **state)
{
	struct rp_sge word = {0x2000, 8, 9};
	struct rp_send_wr wrs[3] = {
		request(RP_CMP_SWAP, 1), request(RP_FETCH_ADD, 2), request(RP_WRITE, 3)};
	uint32_t posted;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(wrs); i++) {
		wrs[i].sg_list = &word;
		wrs[i].sge_count = 1;
		wrs[i].compare_add = 5 + i;
		wrs[i].swap = 77;
	}
	wrs[2].flags = RP_SEND_INLINE;
	assert_int_equal(verbs_post_send(&qp.base, wrs, 3, &posted), 0);
	assert_int_equal(calls[1].call, CAS);
	assert_int_equal(calls[1].a, 5);
	assert_int_equal(calls[1].b, 77);
	assert_int_equal(calls[4].call, ADD);
	assert_int_equal(calls[4].a, 6);
	assert_int_equal(calls[7].flags, IBV_SEND_INLINE);
	assert_int_equal(calls[9].call, INLINE);
	assert_int_equal(calls[9].a, 0x2000);
	assert_int_equal(calls[9].b, 8);
}

static void test_aim(void **state)
{
	struct rp_send_wr wrs[2] = {request(RP_WRITE, 1), request(RP_WRITE, 2)};
	uint32_t posted;

	(void)state;
	wrs[0].ah = NULL;
	/* Not aimed at any target. */
	assert_int_equal(verbs_post_send(&qp.base, wrs, 1, &posted), -EINVAL);
	assert_int_equal(posted, 0);
	assert_int_equal(rp_dci_aim(&qp.base, NULL, 9, 1), -EINVAL);
	assert_int_equal(rp_dci_aim(&qp.base, &ahs[1].base, 1u << 24, 1), -EINVAL);
	assert_int_equal(rp_dci_aim(&qp.base, &ahs[1].base, 9, 0x1122334455667788), 0);
	call_count = 0;
	assert_int_equal(verbs_post_send(&qp.base, wrs, 2, &posted), 0);
	expect_to(&calls[2], &device_ahs[1], 9, 0x1122334455667788);
	/* Its own address comes first. */
	expect_to(&calls[5], &device_ahs[0], 0x123456, 0xffeeddcc);
}

static void test_refusals(void **state)
{
	struct rp_send_wr wrs[3] = {
		request(RP_WRITE, 1), request(RP_WRITE, 2), request(RP_WRITE, 3)};
	uint32_t posted;

	(void)state;
	wrs[1].sge_count = 3;
	assert_int_equal(verbs_post_send(&qp.base, wrs, 3, &posted), -EINVAL);
	assert_int_equal(posted, 1);
	complete_result = ENOMEM;
	assert_int_equal(verbs_post_send(&qp.base, wrs, 1, &posted), -ENOMEM);
	assert_int_equal(posted, 0);
	/* A queue pair that is not an initiator cannot be aimed, and a target cannot post. */
	qp.dci = NULL;
	assert_int_equal(verbs_dci_aim(&qp.base, &ahs[0].base, 9, 1), -EINVAL);
	atomic_store(&qp.state, RP_QPS_RTR);
	assert_int_equal(verbs_post_send(&qp.base, wrs, 1, &posted), -ENOTCONN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_each_opcode, set_up),
		cmocka_unit_test_setup(test_atomics_and_inline, set_up),
		cmocka_unit_test_setup(test_aim, set_up),
		cmocka_unit_test_setup(test_refusals, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
