/* tests/unit/rdma/suite.c: common parts of the provider suite's tests: ends, pairs, waits and the
 * second process. */
#include "tests/unit/rdma/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define POLLS_FOR_NOTHING 20000
#define ECHO_BYTES	  (256 * KIB)
#define DEVICES_MAX	  256u /* a failed test leaves its devices open */
#define EARLY_MAX	  256u
#define ECHO_RECVS	  16u

/* ---- Devices. ---- */

/* A connection is established when both ends poll their events. So a wait for one device also polls
 * the others; their events are kept for later. */
static struct {
	struct rp_device *device;
	struct rp_cm_event early[EARLY_MAX];
	uint32_t early_count;
} joined[DEVICES_MAX];

static void device_join(struct rp_device *device)
{
	size_t i = 0;

	while (i < DEVICES_MAX && joined[i].device)
		i++;
	assert_true(i < DEVICES_MAX);
	joined[i].device = device;
	joined[i].early_count = 0;
}

static void device_leave(struct rp_device *device)
{
	for (size_t i = 0; i < DEVICES_MAX; i++) {
		if (joined[i].device == device)
			joined[i].device = NULL;
	}
}

static bool early_take(struct rp_device *device, struct rp_cm_event *ret_event)
{
	for (size_t i = 0; i < DEVICES_MAX; i++) {
		if (joined[i].device != device || !joined[i].early_count)
			continue;
		*ret_event = joined[i].early[0];
		joined[i].early_count--;
		memmove(&joined[i].early[0], &joined[i].early[1],
			joined[i].early_count * sizeof(struct rp_cm_event));
		return true;
	}
	return false;
}

/* Polls every device but one. */
static void others_progress(const struct rp_device *but)
{
	for (size_t i = 0; i < DEVICES_MAX; i++) {
		struct rp_cm_event event;

		if (!joined[i].device || joined[i].device == but)
			continue;
		if (rp_cm_poll(joined[i].device, &event) == 1) {
			assert_true(joined[i].early_count < EARLY_MAX);
			joined[i].early[joined[i].early_count++] = event;
		}
	}
}

/* ---- Ends. ---- */

static void mem_open(struct end *end, const struct end_opts *opts)
{
	struct rp_mr_opts mr = {
		.access = opts->mem_access ? opts->mem_access : ACCESS_ALL, .fd = -1};

	end->mem_bytes = opts->mem_bytes ? opts->mem_bytes : MIB;
	end->mem_fd = -1;
	if (opts->mem_anonymous) {
		end->mem = mmap(NULL, end->mem_bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	} else {
		end->mem_fd = memfd_create("suite", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		assert_true(end->mem_fd >= 0);
		assert_int_equal(ftruncate(end->mem_fd, (off_t)end->mem_bytes), 0);
		assert_int_equal(fcntl(end->mem_fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
		end->mem = mmap(
			NULL, end->mem_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, end->mem_fd, 0);
	}
	assert_ptr_not_equal(end->mem, MAP_FAILED);
	mr.addr = end->mem;
	mr.bytes = end->mem_bytes;
	mr.fd = end->mem_fd;
	assert_int_equal(rp_mr_open(end->pd, &mr, &end->mr), 0);
}

void end_new_qp(struct end *end, const struct end_opts *opts)
{
	struct rp_qp_attr attr = opts->attr;

	attr.send_cq = attr.send_cq ? attr.send_cq : end->cq;
	attr.recv_cq = attr.recv_cq ? attr.recv_cq : end->cq;
	attr.context = end;
	assert_int_equal(rp_qp_open(end->pd, &attr, &end->qp), 0);
}

void end_open(struct end *end, const struct end_opts *opts)
{
	struct rp_open_opts open = {
		.device_name = opts->device_name ? opts->device_name : suite->device_name,
		.gid_index = suite->gid_index,
		.path_mtu = opts->path_mtu};

	*end = (struct end){.device = opts->share};
	if (!end->device) {
		assert_int_equal(rp_open(&open, &end->device), 0);
		device_join(end->device);
	}
	assert_int_equal(rp_pd_open(end->device, &end->pd), 0);
	assert_int_equal(
		rp_cq_open(end->device, opts->cqe_count ? opts->cqe_count : 1024, &end->cq), 0);
	mem_open(end, opts);
	end_new_qp(end, opts);
}

void end_close(struct end *end)
{
	rp_qp_close(end->qp);
	rp_mr_close(end->mr);
	munmap(end->mem, end->mem_bytes);
	if (end->mem_fd >= 0)
		close(end->mem_fd);
	rp_cq_close(end->cq);
	rp_pd_close(end->pd);
	device_leave(end->device);
	rp_close(end->device);
}

/* ---- Waiting. ---- */

void cm_expect(struct rp_device *device, enum rp_cm_type type, struct rp_cm_event *ret_event)
{
	struct rp_cm_event event = {0};
	struct pollfd wait = {.fd = rp_cm_fd(device), .events = POLLIN};
	uint64_t deadline_ns = clock_now_ns() + SUITE_DEADLINE_NS;
	int got = early_take(device, &event);

	while (!got && !(got = rp_cm_poll(device, &event))) {
		assert_true(clock_now_ns() < deadline_ns);
		others_progress(device);
		poll(&wait, 1, 1);
	}
	assert_int_equal(got, 1);
	assert_int_equal(event.type, type);
	if (ret_event)
		*ret_event = event;
}

struct rp_wc wc_next(struct end *end, struct end *other)
{
	uint64_t deadline_ns = clock_now_ns() + SUITE_DEADLINE_NS;
	struct rp_wc wc;

	for (;;) {
		int got = rp_cq_poll(end->cq, &wc, 1);

		assert_true(got >= 0);
		if (got)
			return wc;
		if (other) {
			struct rp_wc unexpected;

			assert_int_equal(rp_cq_poll(other->cq, &unexpected, 1), 0);
		}
		assert_true(clock_now_ns() < deadline_ns);
	}
}

struct rp_wc wc_expect(struct end *end, struct end *other, uint64_t wr_id, enum rp_status status)
{
	struct rp_wc wc = wc_next(end, other);

	if (wc.status != status || wc.wr_id != wr_id)
		print_error("completion %llu: %s\n", (unsigned long long)wc.wr_id,
			rp_status_str(wc.status));
	assert_int_equal(wc.wr_id, wr_id);
	assert_int_equal(wc.status, status);
	return wc;
}

void wc_expect_none(struct end *end, struct end *other)
{
	struct rp_wc wc;

	for (int i = 0; i < POLLS_FOR_NOTHING; i++) {
		assert_int_equal(rp_cq_poll(end->cq, &wc, 1), 0);
		if (other)
			assert_int_equal(rp_cq_poll(other->cq, &wc, 1), 0);
	}
}

/* ---- Posting. ---- */

struct rp_sge sge_at(const struct end *end, uint64_t offset, uint32_t length)
{
	return (struct rp_sge){(uintptr_t)end->mem + offset, length, rp_mr_lkey(end->mr)};
}

int post_send_sge(struct end *end, struct rp_send_wr wr, struct rp_sge sge)
{
	uint32_t posted;

	wr.sg_list = &sge;
	wr.sge_count = 1;
	return rp_post_send(end->qp, &wr, 1, &posted);
}

void wc_expect_local(struct end *end, struct end *other, uint64_t wr_id, enum rp_status status)
{
	struct rp_wc wc = wc_next(end, other);

	assert_int_equal(wc.wr_id, wr_id);
	if (!suite->soft_roce || wc.status != RP_WC_GENERAL_ERR)
		assert_int_equal(wc.status, status);
}

void atomic_refused(struct end *end, struct end *other, struct rp_send_wr wr)
{
	int err = post_send_sge(end, wr, sge_at(end, 0, 8));

	assert_int_equal(err, suite->soft_roce ? -EINVAL : 0);
	if (!err)
		wc_expect(end, other, wr.wr_id, RP_WC_REM_INV_REQ_ERR);
}

int post_recv_at(struct end *end, uint64_t wr_id, uint64_t offset, uint32_t length)
{
	struct rp_sge sge = sge_at(end, offset, length);
	struct rp_recv_wr wr = {wr_id, &sge, 1};
	uint32_t posted;

	return rp_post_recv(end->qp, &wr, 1, &posted);
}

struct rp_send_wr one_sided(
	enum rp_opcode opcode, uint64_t wr_id, const struct end *to, uint64_t offset)
{
	return (struct rp_send_wr){
		.wr_id = wr_id,
		.opcode = opcode,
		.flags = RP_SEND_SIGNALED,
		.remote_addr = (uintptr_t)to->mem + offset,
		.rkey = rp_mr_rkey(to->mr),
	};
}

/* ---- Pairs. ---- */

void pair_open(struct pair *pair, const struct end_opts *a, const struct end_opts *b)
{
	static const struct end_opts plain = {.attr = {.rnr_retry_count = 7, .retry_count = 7}};
	struct rp_cm_event event;

	end_open(&pair->a, a ? a : &plain);
	end_open(&pair->b, b ? b : &plain);
	assert_int_equal(rp_listen(pair->b.device, suite->address, 0, pair, &pair->listener), 0);
	assert_int_equal(rp_connect(pair->a.qp, suite->address, rp_listener_port(pair->listener),
				 NULL, 0, clock_now_ns() + SUITE_DEADLINE_NS),
		0);
	cm_expect(pair->b.device, RP_CM_CONNECT_REQUEST, &event);
	assert_ptr_equal(rp_listener_context(event.listener), pair);
	assert_int_equal(rp_accept(event.request, pair->b.qp, NULL, 0), 0);
	cm_expect(pair->a.device, RP_CM_ESTABLISHED, &event);
	assert_ptr_equal(event.qp, pair->a.qp);
	cm_expect(pair->b.device, RP_CM_ESTABLISHED, &event);
	assert_ptr_equal(event.qp, pair->b.qp);
}

void pair_close(struct pair *pair)
{
	rp_listener_close(pair->listener);
	end_close(&pair->a);
	end_close(&pair->b);
}

/* ---- The second process. ---- */

struct remote_hello {
	uint64_t addr;
	uint64_t bytes;
	uint32_t rkey;
};

static void echo(struct end *end, const struct rp_wc *wc)
{
	struct rp_send_wr wr = {.wr_id = wc->wr_id, .opcode = RP_SEND, .flags = RP_SEND_SIGNALED};

	if (wc->opcode != RP_RECV && wc->opcode != RP_RECV_WRITE_IMM) {
		/* Sent: the buffer can receive again. */
		assert_int_equal(
			post_recv_at(end, wc->wr_id, wc->wr_id * ECHO_BYTES, ECHO_BYTES), 0);
		return;
	}
	wr.opcode = wc->has_imm ? RP_SEND_IMM : RP_SEND;
	wr.imm = wc->imm;
	assert_int_equal(post_send_sge(end, wr,
				 sge_at(end, wc->wr_id * ECHO_BYTES,
					 wc->opcode == RP_RECV ? wc->byte_len : 0)),
		0);
}

static void remote_wait(struct end *end)
{
	struct pollfd waits[2] = {
		{.fd = rp_cq_fd(end->cq), .events = POLLIN},
		{.fd = rp_cm_fd(end->device), .events = POLLIN},
	};

	if (!rp_cq_arm(end->cq))
		return;
	assert_true(poll(waits, 2, (int)(SUITE_DEADLINE_NS / NS_PER_MS)) > 0);
	rp_cq_disarm(end->cq);
}

static void remote_serve(struct end *end, enum remote_job job)
{
	struct rp_cm_event event;
	uint32_t turn = 0;

	for (;;) {
		struct rp_wc wc;
		int got = rp_cq_poll(end->cq, &wc, 1);

		assert_true(got >= 0);
		if (got && !wc.status)
			echo(end, &wc);
		if (!got && job == REMOTE_SLEEP)
			remote_wait(end);
		if ((job != REMOTE_SLEEP && ++turn % 1024) || rp_cm_poll(end->device, &event) != 1)
			continue;
		if (event.type == RP_CM_DISCONNECTED)
			return;
		assert_int_equal(event.type, RP_CM_ESTABLISHED);
	}
}

static void remote_main(const struct remote_opts *opts, int pipe_fd)
{
	struct end_opts end_opts = opts->end;
	struct remote_hello hello;
	struct rp_listener *listener;
	struct rp_cm_event event;
	struct end end;
	uint16_t port;

	if (!end_opts.mem_bytes)
		end_opts.mem_bytes = ECHO_RECVS * ECHO_BYTES;
	end_open(&end, &end_opts);
	assert_int_equal(rp_listen(end.device, suite->address, 0, NULL, &listener), 0);
	port = rp_listener_port(listener);
	assert_int_equal(write(pipe_fd, &port, sizeof(port)), sizeof(port));
	for (uint32_t i = 0; opts->job != REMOTE_STILL && i < ECHO_RECVS; i++)
		assert_int_equal(post_recv_at(&end, i, i * ECHO_BYTES, ECHO_BYTES), 0);
	cm_expect(end.device, RP_CM_CONNECT_REQUEST, &event);
	hello = (struct remote_hello){(uintptr_t)end.mem, end.mem_bytes, rp_mr_rkey(end.mr)};
	assert_int_equal(rp_accept(event.request, end.qp, &hello, sizeof(hello)), 0);
	remote_serve(&end, opts->job);
	rp_listener_close(listener);
	end_close(&end);
}

void remote_start(struct remote *remote, const struct remote_opts *opts)
{
	int pipe_fds[2];

	*remote = (struct remote){0};
	assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
	fflush(NULL);
	remote->pid = fork();
	assert_true(remote->pid >= 0);
	if (!remote->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		memset(joined, 0, sizeof(joined));
		remote_main(opts, pipe_fds[1]);
		_exit(0);
	}
	close(pipe_fds[1]);
	assert_int_equal(
		read(pipe_fds[0], &remote->port, sizeof(remote->port)), sizeof(remote->port));
	close(pipe_fds[0]);
}

void remote_connect(struct remote *remote, struct end *end)
{
	struct remote_hello hello;
	struct rp_cm_event event;

	assert_int_equal(rp_connect(end->qp, suite->address, remote->port, NULL, 0,
				 clock_now_ns() + SUITE_DEADLINE_NS),
		0);
	cm_expect(end->device, RP_CM_ESTABLISHED, &event);
	assert_int_equal(event.private_len, sizeof(hello));
	memcpy(&hello, event.private_data, sizeof(hello));
	remote->addr = hello.addr;
	remote->bytes = hello.bytes;
	remote->rkey = hello.rkey;
}

void remote_join(struct remote *remote)
{
	int status;

	assert_int_equal(waitpid(remote->pid, &status, 0), remote->pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

void remote_kill(struct remote *remote)
{
	int status;

	assert_int_equal(kill(remote->pid, SIGKILL), 0);
	assert_int_equal(waitpid(remote->pid, &status, 0), remote->pid);
	assert_true(WIFSIGNALED(status));
}
