/* tests/unit/rdma/suite_unreliable.c: the provider suite's tests of unreliable transports: UC, UD
 * with its groups, and raw Ethernet packets if the device has them. */
#include "tests/unit/rdma/suite.h"

#include "rdma/datagram.h"
#include "tests/unit/own.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define QKEY RP_GROUP_QKEY
#define GRH  RP_GRH_BYTES

static const struct end_opts unreliable = {.attr = {.type = RP_QP_UC}};
static const struct end_opts datagrams = {.attr = {.type = RP_QP_UD, .qkey = QKEY}};
static const struct end_opts packets = {.attr = {.type = RP_QP_RAW}};

static void unreliable_pair(struct pair *pair)
{
	pair_open(pair, &unreliable, &unreliable);
}

static struct rp_send_wr plain_send(uint64_t wr_id)
{
	return (struct rp_send_wr){.wr_id = wr_id, .opcode = RP_SEND, .flags = RP_SEND_SIGNALED};
}

/* ---- UC. ---- */

static void test_uc_moves(void **state)
{
	struct rp_send_wr wr;
	struct rp_wc wc;
	struct pair pair;

	(void)state;
	unreliable_pair(&pair);
	memset(pair.a.mem, 0x3c, 8192);
	wr = one_sided(RP_WRITE, 1, &pair.b, 8192);
	assert_int_equal(post_recv_at(&pair.b, 2, 0, 64), 0);
	assert_int_equal(post_recv_at(&pair.b, 6, 0, 0), 0);
	assert_int_equal(post_send_sge(&pair.a, wr, sge_at(&pair.a, 0, 8192)), 0);
	wc_expect(&pair.a, NULL, 1, RP_WC_SUCCESS);
	assert_int_equal(post_send_sge(&pair.a, plain_send(3), sge_at(&pair.a, 0, 64)), 0);
	wc_expect(&pair.a, NULL, 3, RP_WC_SUCCESS);
	/* In order: the write before the message has arrived with it. */
	wc_expect(&pair.b, &pair.a, 2, RP_WC_SUCCESS);
	assert_memory_equal(pair.b.mem + 8192, pair.a.mem, 8192);
	wr = one_sided(RP_WRITE_IMM, 5, &pair.b, 32768);
	wr.imm = 0xfeedbeef;
	assert_int_equal(post_send_sge(&pair.a, wr, sge_at(&pair.a, 0, 4096)), 0);
	wc_expect(&pair.a, NULL, 5, RP_WC_SUCCESS);
	wc = wc_expect(&pair.b, &pair.a, 6, RP_WC_SUCCESS);
	assert_int_equal(wc.imm, 0xfeedbeef);
	assert_int_equal(wc.opcode, RP_RECV_WRITE_IMM);
	assert_memory_equal(pair.b.mem + 32768, pair.a.mem, 4096);
	pair_close(&pair);
}

static void test_uc_refuses(void **state)
{
	static const enum rp_opcode opcodes[] = {RP_READ, RP_CMP_SWAP, RP_FETCH_ADD};
	struct pair pair;

	(void)state;
	unreliable_pair(&pair);
	for (size_t i = 0; i < ARRAY_LEN(opcodes); i++)
		assert_int_equal(post_send_sge(&pair.a, one_sided(opcodes[i], 4, &pair.b, 0),
					 sge_at(&pair.a, 0, 8)),
			-EINVAL);
	pair_close(&pair);
}

/* A message that cannot be received is lost; the sender does not know, and later ones arrive. */
static void test_uc_loses_in_silence(void **state)
{
	struct rp_send_wr wr;
	struct rp_wc wc;
	struct pair pair;

	(void)state;
	unreliable_pair(&pair);
	assert_int_equal(post_send_sge(&pair.a, plain_send(1), sge_at(&pair.a, 0, 64)), 0);
	wc_expect(&pair.a, NULL, 1, RP_WC_SUCCESS);
	wc_expect_none(&pair.b, &pair.a);
	wr = one_sided(RP_WRITE, 2, &pair.b, 0);
	wr.rkey ^= 0x40000000;
	memset(pair.a.mem, 0x77, 64);
	memset(pair.b.mem, 0, 64);
	assert_int_equal(post_send_sge(&pair.a, wr, sge_at(&pair.a, 0, 64)), 0);
	wc_expect(&pair.a, NULL, 2, RP_WC_SUCCESS);
	wc_expect_none(&pair.b, &pair.a);
	assert_int_equal(pair.b.mem[0], 0);
	/* The soft device ends a queue pair after a wrong key; a card drops the message and
	 * continues. */
	if (!suite->soft_roce) {
		assert_int_equal(post_recv_at(&pair.b, 3, 4096, 64), 0);
		assert_int_equal(post_send_sge(&pair.a, plain_send(4), sge_at(&pair.a, 0, 64)), 0);
		wc_expect(&pair.a, NULL, 4, RP_WC_SUCCESS);
		wc = wc_expect(&pair.b, &pair.a, 3, RP_WC_SUCCESS);
		assert_int_equal(wc.byte_len, 64);
	}
	pair_close(&pair);
}

static void test_types_must_match(void **state)
{
	static const struct end_opts reliable = {.attr = {.rnr_retry_count = 7}};
	struct rp_listener *listener;
	struct rp_cm_event event;
	struct end a, b;

	(void)state;
	end_open(&a, &unreliable);
	end_open(&b, &reliable);
	assert_int_equal(rp_listen(b.device, suite->address, 0, NULL, &listener), 0);
	assert_int_equal(rp_connect(a.qp, suite->address, rp_listener_port(listener), NULL, 0,
				 clock_now_ns() + SUITE_DEADLINE_NS),
		0);
	cm_expect(b.device, RP_CM_CONNECT_REQUEST, &event);
	assert_int_equal(rp_accept(event.request, b.qp, NULL, 0), -EINVAL);
	rp_reject(event.request, NULL, 0);
	cm_expect(a.device, RP_CM_REJECTED, NULL);
	rp_listener_close(listener);
	end_close(&a);
	end_close(&b);
}

/* ---- UD. ---- */

static struct rp_ah *handle_to(struct end *from, struct end *to)
{
	struct rp_address address;
	struct rp_ah *ah;

	assert_int_equal(rp_qp_address(to->qp, &address), 0);
	assert_int_equal(rp_ah_open(from->pd, &address, &ah), 0);
	return ah;
}

static int send_to(struct end *from, struct rp_ah *ah, uint32_t qpn, uint32_t qkey, uint32_t bytes)
{
	struct rp_send_wr wr = plain_send(7);

	wr.opcode = RP_SEND_IMM;
	wr.imm = 0x01020304;
	wr.ah = ah;
	wr.remote_qpn = qpn;
	wr.remote_qkey = qkey;
	return post_send_sge(from, wr, sge_at(from, 0, bytes));
}

static void sent(struct end *from, struct rp_ah *ah, struct end *to, uint32_t qkey, uint32_t bytes)
{
	assert_int_equal(send_to(from, ah, rp_qp_num(to->qp), qkey, bytes), 0);
	wc_expect(from, NULL, 7, RP_WC_SUCCESS);
}

static void test_ud_there_and_back(void **state)
{
	static const uint32_t sizes[] = {0, 1, 100, 1000};
	struct rp_ah *there, *back;
	struct rp_device_attr can;
	struct end a, b;
	struct rp_wc wc;

	(void)state;
	end_open(&a, &datagrams);
	end_open(&b, &datagrams);
	assert_int_equal(rp_qp_state(a.qp), RP_QPS_RTS);
	rp_device_attr(a.device, &can);
	assert_true(can.qp_types & (1u << RP_QP_UD));
	there = handle_to(&a, &b);
	for (size_t i = 0; i <= ARRAY_LEN(sizes); i++) {
		uint32_t bytes = i < ARRAY_LEN(sizes) ? sizes[i] : can.active_mtu;

		memset(a.mem, (int)(0x41 + i), bytes);
		assert_int_equal(post_recv_at(&b, 9, 65536, GRH + bytes), 0);
		sent(&a, there, &b, QKEY, bytes);
		wc = wc_expect(&b, NULL, 9, RP_WC_SUCCESS);
		assert_int_equal(wc.byte_len, GRH + bytes);
		assert_int_equal(wc.src_qpn, rp_qp_num(a.qp));
		assert_true(wc.has_imm);
		assert_int_equal(wc.imm, 0x01020304);
		if (bytes)
			assert_memory_equal(b.mem + 65536 + GRH, a.mem, bytes);
	}
	/* An answer needs only the completion and the header in front. */
	assert_int_equal(rp_ah_from_wc(b.pd, &wc, b.mem + 65536, &back), 0);
	assert_int_equal(post_recv_at(&a, 10, 65536, GRH + 5), 0);
	memcpy(b.mem, "hello", 5);
	assert_int_equal(send_to(&b, back, wc.src_qpn, QKEY, 5), 0);
	wc_expect(&b, NULL, 7, RP_WC_SUCCESS);
	wc_expect(&a, NULL, 10, RP_WC_SUCCESS);
	assert_memory_equal(a.mem + 65536 + GRH, "hello", 5);
	wc.has_grh = false;
	rp_ah_close(back);
	if (can.simulated)
		assert_int_equal(rp_ah_from_wc(b.pd, &wc, b.mem, &back), -EINVAL);
	rp_ah_close(there);
	end_close(&a);
	end_close(&b);
}

static void test_ud_drops(void **state)
{
	struct rp_ah *ah;
	struct end a, b;
	struct rp_wc wc;

	(void)state;
	end_open(&a, &datagrams);
	end_open(&b, &datagrams);
	ah = handle_to(&a, &b);
	/* No receive; then another key; then an unknown number; then too little room. */
	sent(&a, ah, &b, QKEY, 64);
	wc_expect_none(&b, &a);
	assert_int_equal(post_recv_at(&b, 1, 4096, GRH + 64), 0);
	sent(&a, ah, &b, QKEY + 1, 64);
	assert_int_equal(send_to(&a, ah, 0xfffff0, QKEY, 64), 0);
	wc_expect(&a, NULL, 7, RP_WC_SUCCESS);
	wc_expect_none(&b, &a);
	/* The soft device drops it, too, but has already used part of the receive. */
	if (!suite->soft_roce)
		sent(&a, ah, &b, QKEY, 65);
	for (int i = 0; i < 1000; i++) {
		int got = rp_cq_poll(b.cq, &wc, 1);

		/* Dropped, or the receive ends in an error: it is never a partial success. */
		assert_true(got == 0 || (got == 1 && wc.status != RP_WC_SUCCESS));
		if (got)
			assert_int_equal(post_recv_at(&b, 1, 4096, GRH + 64), 0);
	}
	sent(&a, ah, &b, QKEY, 64);
	wc_expect(&b, NULL, 1, RP_WC_SUCCESS);
	rp_ah_close(ah);
	end_close(&a);
	end_close(&b);
}

static void test_ud_refuses(void **state)
{
	char own[OWN_GROUP_BYTES];
	struct rp_device_attr can;
	struct rp_group *group;
	struct rp_flow *flow;
	struct rp_send_wr wr;
	struct rp_ah *ah;
	struct end a, b;

	(void)state;
	end_open(&a, &datagrams);
	end_open(&b, &unreliable);
	ah = handle_to(&a, &a);
	rp_device_attr(a.device, &can);
	assert_int_equal(send_to(&a, ah, 1, QKEY, can.active_mtu + 1), -EINVAL);
	assert_int_equal(send_to(&a, NULL, 1, QKEY, 8), -EINVAL);
	wr = one_sided(RP_WRITE, 1, &a, 0);
	wr.ah = ah;
	assert_int_equal(post_send_sge(&a, wr, sge_at(&a, 0, 8)), -EINVAL);
	wr.opcode = RP_READ;
	assert_int_equal(post_send_sge(&a, wr, sge_at(&a, 0, 8)), -EINVAL);
	assert_int_equal(
		rp_connect(a.qp, suite->address, 9100, NULL, 0, DEADLINE_NONE), -EOPNOTSUPP);
	assert_int_equal(rp_group_join(b.qp, own_group(0, own), &group), -EINVAL);
	assert_int_equal(rp_group_join(a.qp, "192.0.2.1", &group), -EINVAL);
	assert_int_equal(rp_group_join(a.qp, "no address", &group), -EINVAL);
	assert_int_equal(
		rp_flow_open(a.qp, &(struct rp_flow_rule){.everything = true}, &flow), -EINVAL);
	rp_group_leave(NULL);
	rp_flow_close(NULL);
	rp_ah_close(ah);
	end_close(&a);
	end_close(&b);
}

/* One queue pair, many peers: one of them another process, which sleeps until it gets a message. */
static void echo_once(int pipe_fd)
{
	struct rp_address address;
	struct pollfd wait;
	struct rp_ah *ah;
	struct end end;
	struct rp_wc wc;

	end_open(&end, &datagrams);
	assert_int_equal(post_recv_at(&end, 1, 0, GRH + 64), 0);
	assert_int_equal(rp_qp_address(end.qp, &address), 0);
	wait = (struct pollfd){.fd = rp_cq_fd(end.cq), .events = POLLIN};
	assert_int_equal(write(pipe_fd, &address, sizeof(address)), sizeof(address));
	while (rp_cq_poll(end.cq, &wc, 1) == 0) {
		if (rp_cq_arm(end.cq))
			assert_int_equal(poll(&wait, 1, (int)(SUITE_DEADLINE_NS / NS_PER_MS)), 1);
		rp_cq_disarm(end.cq);
	}
	assert_int_equal(wc.status, RP_WC_SUCCESS);
	assert_int_equal(rp_ah_from_wc(end.pd, &wc, end.mem, &ah), 0);
	memmove(end.mem, end.mem + GRH, 64);
	assert_int_equal(send_to(&end, ah, wc.src_qpn, QKEY, 64), 0);
	wc_expect(&end, NULL, 7, RP_WC_SUCCESS);
	rp_ah_close(ah);
	end_close(&end);
}

static void test_ud_between_processes(void **state)
{
	struct rp_address address;
	int pipe_fds[2], status;
	struct rp_ah *ah;
	struct end a;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(pipe_fds), 0);
	fflush(stdout);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		echo_once(pipe_fds[1]);
		_exit(0);
	}
	end_open(&a, &datagrams);
	assert_int_equal(read(pipe_fds[0], &address, sizeof(address)), sizeof(address));
	assert_int_equal(rp_ah_open(a.pd, &address, &ah), 0);
	assert_int_equal(post_recv_at(&a, 3, 4096, GRH + 64), 0);
	memset(a.mem, 0x6b, 64);
	assert_int_equal(send_to(&a, ah, address.qpn, QKEY, 64), 0);
	wc_expect(&a, NULL, 7, RP_WC_SUCCESS);
	wc_expect(&a, NULL, 3, RP_WC_SUCCESS);
	assert_memory_equal(a.mem + 4096 + GRH, a.mem, 64);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	rp_ah_close(ah);
	end_close(&a);
}

static void test_ud_shared_receives(void **state)
{
	struct end_opts shared = {.attr = {.type = RP_QP_UD, .qkey = QKEY}};
	struct rp_sge sge;
	struct rp_srq *srq;
	struct rp_ah *ah;
	uint32_t posted;
	struct end a, b;

	(void)state;
	end_open(&a, &datagrams);
	end_open(&b, &datagrams);
	assert_int_equal(rp_srq_open(b.pd, 16, 1, &srq), 0);
	rp_qp_close(b.qp);
	shared.attr.srq = srq;
	end_new_qp(&b, &shared);
	ah = handle_to(&a, &b);
	sge = sge_at(&b, 8192, 1024);
	assert_int_equal(rp_srq_post(srq, &(struct rp_recv_wr){4, &sge, 1}, 1, &posted), 0);
	memset(a.mem, 0x22, 128);
	sent(&a, ah, &b, QKEY, 128);
	wc_expect(&b, NULL, 4, RP_WC_SUCCESS);
	assert_memory_equal(b.mem + 8192 + GRH, a.mem, 128);
	rp_ah_close(ah);
	rp_qp_close(b.qp);
	rp_srq_close(srq);
	b.qp = NULL;
	end_close(&b);
	end_close(&a);
}

/* ---- Groups. ---- */

static struct rp_group *joined(struct end *end)
{
	char own[OWN_GROUP_BYTES];
	struct rp_cm_event event;
	struct rp_group *group;

	assert_int_equal(rp_group_join(end->qp, own_group(0, own), &group), 0);
	cm_expect(end->device, RP_CM_GROUP_JOINED, &event);
	assert_ptr_equal(event.group, group);
	assert_non_null(rp_group_ah(group));
	return group;
}

/* Answers a group's message to its sender only, who may have received its own message before. */
static void answered(struct end *from, const struct rp_wc *wc, struct end *asker)
{
	struct rp_ah *back;
	struct rp_wc got;

	assert_int_equal(rp_ah_from_wc(from->pd, wc, from->mem + 4096, &back), 0);
	assert_int_equal(post_recv_at(asker, 11, 65536, GRH + 64), 0);
	memcpy(from->mem, "here!", 5);
	assert_int_equal(send_to(from, back, wc->src_qpn, QKEY, 5), 0);
	wc_expect(from, NULL, 7, RP_WC_SUCCESS);
	do
		got = wc_next(asker, NULL);
	while (got.opcode != RP_RECV || got.byte_len != GRH + 5);
	assert_int_equal(got.src_qpn, rp_qp_num(from->qp));
	assert_memory_equal(asker->mem + (got.wr_id == 11 ? 65536 : 4096) + GRH, "here!", 5);
	rp_ah_close(back);
}

static void test_groups(void **state)
{
	struct rp_group *groups[3];
	struct end ends[4];
	struct rp_wc wc;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
		end_open(&ends[i], &datagrams);
		assert_int_equal(post_recv_at(&ends[i], i, 4096, GRH + 64), 0);
	}
	for (size_t i = 0; i < ARRAY_LEN(groups); i++)
		groups[i] = joined(&ends[i]);
	memset(ends[0].mem, 0x19, 64);
	assert_int_equal(send_to(&ends[0], rp_group_ah(groups[0]), RP_GROUP_QPN, QKEY, 64), 0);
	for (size_t i = 1; i < ARRAY_LEN(groups); i++) {
		wc = wc_expect(&ends[i], NULL, i, RP_WC_SUCCESS);
		assert_memory_equal(ends[i].mem + 4096 + GRH, ends[0].mem, 64);
		answered(&ends[i], &wc, &ends[0]);
		assert_int_equal(post_recv_at(&ends[i], i, 4096, GRH + 64), 0);
	}
	wc_expect_none(&ends[3], NULL);
	/* A member that left receives no more messages; the others still do. */
	rp_group_leave(groups[1]);
	assert_int_equal(send_to(&ends[0], rp_group_ah(groups[0]), RP_GROUP_QPN, QKEY, 64), 0);
	wc_expect(&ends[2], NULL, 2, RP_WC_SUCCESS);
	wc_expect_none(&ends[1], NULL);
	rp_group_leave(groups[0]);
	rp_group_leave(groups[2]);
	for (size_t i = 0; i < ARRAY_LEN(ends); i++)
		end_close(&ends[i]);
}

/* ---- Raw packets. ---- */

static bool has_raw(void)
{
	struct rp_open_opts opts = {
		.device_name = suite->device_name, .gid_index = suite->gid_index};
	struct rp_device_attr can;
	struct rp_device *device;

	assert_int_equal(rp_open(&opts, &device), 0);
	rp_device_attr(device, &can);
	rp_close(device);
	return can.qp_types & (1u << RP_QP_RAW);
}

static uint8_t macs[2][6]; /* test_raw_steering fills them */

static uint32_t frame_make(struct end *end, const uint8_t *to, uint16_t vlan, uint16_t type)
{
	uint8_t *at = end->mem;

	memcpy(at, to, 6);
	memcpy(at + 6, macs[0], 6);
	at += 12;
	if (vlan) {
		const uint8_t tag[4] = {0x81, 0, (uint8_t)(0x20 | vlan >> 8), (uint8_t)vlan};

		memcpy(at, tag, 4);
		at += 4;
	}
	*at++ = (uint8_t)(type >> 8);
	*at++ = (uint8_t)type;
	memset(at, 0x5d, 60);
	return (uint32_t)(at + 60 - end->mem);
}

static void frame_send(struct end *end, const uint8_t *to, uint16_t vlan, uint16_t type)
{
	uint32_t bytes = frame_make(end, to, vlan, type);

	assert_int_equal(post_send_sge(end, plain_send(7), sge_at(end, 0, bytes)), 0);
	wc_expect(end, NULL, 7, RP_WC_SUCCESS);
}

#define RECEIVE_BYTES	2048u
#define POLLS_FOR_FRAME 20000u

/* Where the receive of that number lies. */
static uint64_t receive_at(uint64_t wr_id)
{
	return 4096 * (wr_id + 1);
}

/* The next frame that has arrived from us. A rule for everything brings those of others, too. */
static bool frame_next(struct end *end, struct rp_wc *ret_wc)
{
	while (rp_cq_poll(end->cq, ret_wc, 1) == 1) {
		uint64_t at = receive_at(ret_wc->wr_id);

		assert_int_equal(ret_wc->status, RP_WC_SUCCESS);
		if (memcmp(end->mem + at + 6, macs[0], sizeof(macs[0])) == 0)
			return true;
		assert_int_equal(post_recv_at(end, ret_wc->wr_id, at, RECEIVE_BYTES), 0);
	}
	return false;
}

/* Sends a frame until it arrives: a switch drops those for which a port has no room, and others
 * send to that port, too. */
static struct rp_wc frame_arrives(
	struct end *from, struct end *to, const uint8_t *mac, uint16_t vlan, uint16_t type)
{
	uint64_t deadline_ns = clock_now_ns() + SUITE_DEADLINE_NS;
	struct rp_wc wc;

	for (;;) {
		frame_send(from, mac, vlan, type);
		for (uint32_t i = 0; i < POLLS_FOR_FRAME; i++)
			if (frame_next(to, &wc))
				return wc;
		assert_true(clock_now_ns() < deadline_ns);
	}
}

static void test_raw_steering(void **state)
{
	struct rp_flow_rule rule = {.ether_type = 0x88b5, .vlan = 100};
	struct rp_flow *flow, *all;
	struct end a, b;
	struct rp_wc wc;

	(void)state;
	/* Without raw packets, the next test checks that they are refused. */
	if (!has_raw())
		return;
	end_open(&a, &packets);
	end_open(&b, &packets);
	own_mac(1, macs[0]);
	own_mac(2, macs[1]);
	memcpy(rule.dst_mac, macs[1], 6);
	for (uint64_t i = 0; i < 4; i++)
		assert_int_equal(post_recv_at(&b, i, receive_at(i), RECEIVE_BYTES), 0);
	/* Without a rule no packet comes; then only those of the rule. */
	frame_send(&a, macs[1], 100, 0x88b5);
	wc_expect_none(&b, NULL);
	assert_int_equal(rp_flow_open(b.qp, &rule, &flow), 0);
	frame_send(&a, macs[0], 100, 0x88b5);
	frame_send(&a, macs[1], 101, 0x88b5);
	frame_send(&a, macs[1], 100, 0x88b6);
	wc = frame_arrives(&a, &b, macs[1], 100, 0x88b5);
	assert_int_equal(wc.wr_id, 0);
	assert_int_equal(wc.byte_len, 78);
	assert_memory_equal(b.mem + receive_at(0), a.mem, 78);
	wc_expect_none(&b, NULL);
	assert_int_equal(rp_flow_open(b.qp, &(struct rp_flow_rule){.everything = true}, &all), 0);
	wc = frame_arrives(&a, &b, macs[0], 0, 0x0800);
	assert_int_equal(wc.byte_len, 74);
	assert_memory_equal(b.mem + receive_at(wc.wr_id), a.mem, 74);
	rp_flow_close(all);
	rp_flow_close(flow);
	assert_false(frame_next(&b, &wc));
	frame_send(&a, macs[1], 100, 0x88b5);
	wc_expect_none(&b, &a);
	rule.vlan = 4095;
	assert_int_equal(rp_flow_open(b.qp, &rule, &flow), -EINVAL);
	end_close(&a);
	end_close(&b);
}

static void test_raw_refuses(void **state)
{
	struct rp_send_wr wr = plain_send(1);
	struct end a;

	(void)state;
	if (!has_raw()) {
		struct rp_qp_attr attr = {.type = RP_QP_RAW};
		struct rp_qp *qp;

		end_open(&a, &unreliable);
		attr.send_cq = attr.recv_cq = a.cq;
		assert_int_equal(rp_qp_open(a.pd, &attr, &qp), -EOPNOTSUPP);
		end_close(&a);
		return;
	}
	end_open(&a, &packets);
	assert_int_equal(post_send_sge(&a, wr, sge_at(&a, 0, 13)), -EINVAL);
	wr.opcode = RP_SEND_IMM;
	assert_int_equal(post_send_sge(&a, wr, sge_at(&a, 0, 64)), -EINVAL);
	wr = one_sided(RP_WRITE, 1, &a, 0);
	assert_int_equal(post_send_sge(&a, wr, sge_at(&a, 0, 64)), -EINVAL);
	end_close(&a);
}

const struct CMUnitTest suite_unreliable_tests[] = {
	cmocka_unit_test(test_uc_moves),
	cmocka_unit_test(test_uc_refuses),
	cmocka_unit_test(test_uc_loses_in_silence),
	cmocka_unit_test(test_types_must_match),
	cmocka_unit_test(test_ud_there_and_back),
	cmocka_unit_test(test_ud_drops),
	cmocka_unit_test(test_ud_refuses),
	cmocka_unit_test(test_ud_between_processes),
	cmocka_unit_test(test_ud_shared_receives),
	cmocka_unit_test(test_groups),
	cmocka_unit_test(test_raw_steering),
	cmocka_unit_test(test_raw_refuses),
};
const size_t suite_unreliable_count = ARRAY_LEN(suite_unreliable_tests);
