/* tests/e2e/token/token_peer.c: the memory and the queue pairs of a client of the RDMA token
 * contract: its parent makes the requests and signatures. The parent sees the memory, which is a
 * file.
 *
 *   token_peer DEVICE FILE
 *
 * Orders come by standard input, one a line; each is answered by one line, "ok …" or "error …":
 *
 *   reg ACCESS               r, w or rw: what the other end may do → ok ADDR BYTES RKEY
 *   unreg RKEY
 *   qp                       → ok NUMBER LID QPN HAS_GID GID PSN MTU
 *   join NUMBER LID QPN HAS_GID GID PSN MTU        once the other end has
 *   state NUMBER             → ok init, rtr, rts or err
 *   recv NUMBER              for a write with an immediate that comes
 *   immediate NUMBER         waits for it → ok IMMEDIATE BYTES
 *   write NUMBER OFFSET BYTES ADDR RKEY IMMEDIATE  of our memory, in one message; waits → ok STATUS
 *   close NUMBER */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "codec/codec.h"
#include "rdma/rdma.h"

#define QPS_MAX 1024u
#define MRS_MAX 16u
#define WAIT_NS (60 * NS_PER_S) /* only for what hangs */

struct peer {
	struct rp_device *device;
	struct rp_pd *pd;
	struct rp_cq *cq;
	uint8_t *mem;
	size_t mem_bytes;
	struct rp_mr *mrs[MRS_MAX];
	struct rp_qp *qps[QPS_MAX];
	struct rp_wc sent[QPS_MAX], got[QPS_MAX];
	bool is_sent[QPS_MAX], is_got[QPS_MAX];
	uint32_t qp_count;
};

/* Work requests: the queue pair, and whether it is a receive. */
static uint64_t wr_id_of(uint32_t number, bool recv)
{
	return (uint64_t)number << 1 | recv;
}

static void die(const char *what, int err)
{
	fprintf(stderr, "token_peer: %s: %s\n", what, strerror(-err));
	exit(1);
}

static void progress(struct peer *peer)
{
	struct rp_cm_event event;
	struct rp_wc wc;

	while (rp_cm_poll(peer->device, &event) > 0)
		continue;
	while (rp_cq_poll(peer->cq, &wc, 1) > 0) {
		uint32_t number = (uint32_t)(wc.wr_id >> 1);

		(wc.wr_id & 1 ? peer->got : peer->sent)[number] = wc;
		(wc.wr_id & 1 ? peer->is_got : peer->is_sent)[number] = true;
	}
}

static void peer_open(struct peer *peer, const char *device, const char *path)
{
	const struct rp_open_opts open_opts = {.device_name = device, .gid_index = -1};
	int fd = open(path, O_RDWR | O_CLOEXEC), err;
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		die(path, -errno);
	peer->mem_bytes = (size_t)st.st_size;
	peer->mem = mmap(NULL, peer->mem_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (peer->mem == MAP_FAILED)
		die(path, -errno);
	close(fd);
	err = rp_open(&open_opts, &peer->device);
	if (!err)
		err = rp_pd_open(peer->device, &peer->pd);
	if (!err)
		err = rp_cq_open(peer->device, 2 * QPS_MAX, &peer->cq);
	if (err)
		die(device, err);
}

/* ---- Orders. ---- */

static int order_reg(struct peer *peer, const char *rest)
{
	struct rp_mr_opts opts = {.addr = peer->mem, .bytes = peer->mem_bytes, .fd = -1};
	uint32_t idx = 0;
	int err;

	if (strchr(rest, 'r'))
		opts.access |= RP_ACCESS_REMOTE_READ;
	if (strchr(rest, 'w'))
		opts.access |= RP_ACCESS_REMOTE_WRITE | RP_ACCESS_LOCAL_WRITE;
	while (idx < MRS_MAX && peer->mrs[idx])
		idx++;
	if (idx == MRS_MAX)
		return -ENOSPC;
	err = rp_mr_open(peer->pd, &opts, &peer->mrs[idx]);
	if (!err)
		printf("ok %llu %zu %u\n", (unsigned long long)(uintptr_t)peer->mem,
			peer->mem_bytes, rp_mr_rkey(peer->mrs[idx]));
	return err;
}

static int order_unreg(struct peer *peer, const char *rest)
{
	uint32_t rkey = (uint32_t)strtoul(rest, NULL, 10);

	for (uint32_t i = 0; i < MRS_MAX; i++) {
		if (!peer->mrs[i] || rp_mr_rkey(peer->mrs[i]) != rkey)
			continue;
		rp_mr_close(peer->mrs[i]);
		peer->mrs[i] = NULL;
		printf("ok\n");
		return 0;
	}
	return -ENOENT;
}

static int order_qp(struct peer *peer, const char *rest)
{
	const struct rp_qp_attr attr = {.type = RP_QP_RC,
		.send_cq = peer->cq,
		.recv_cq = peer->cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1},
		.retry_count = 7,
		.rnr_retry_count = 7};
	struct rp_address address;
	char gid[33] = "";
	int err;

	(void)rest;
	if (peer->qp_count == QPS_MAX)
		return -ENOSPC;
	err = rp_qp_open(peer->pd, &attr, &peer->qps[peer->qp_count]);
	if (!err)
		err = rp_qp_address(peer->qps[peer->qp_count], &address);
	if (err)
		return err;
	hex_encode(address.gid, sizeof(address.gid), gid);
	printf("ok %u %u %u %d %s %u %u\n", peer->qp_count++, address.lid, address.qpn,
		address.has_gid, gid, address.psn, address.mtu);
	return 0;
}

static struct rp_qp *qp_of(struct peer *peer, const char *rest)
{
	unsigned long number = strtoul(rest, NULL, 10);

	return number < peer->qp_count ? peer->qps[number] : NULL;
}

static int order_join(struct peer *peer, const char *rest)
{
	struct rp_qp *qp = qp_of(peer, rest);
	uint64_t until_ns = clock_now_ns() + WAIT_NS;
	struct rp_address to;
	unsigned int lid, has_gid;
	char gid[33];
	int err;

	if (!qp || sscanf(rest, "%*u %u %u %u %32s %u %u", &lid, &to.qpn, &has_gid, gid, &to.psn,
			   &to.mtu) != 6)
		return -EINVAL;
	if (hex_decode(slice_str(gid), to.gid, sizeof(to.gid)))
		return -EINVAL;
	to.lid = (uint16_t)lid;
	to.has_gid = has_gid != 0;
	err = rp_qp_join(qp, &to, false);
	while (!err && rp_qp_state(qp) == RP_QPS_INIT) {
		progress(peer);
		if (clock_now_ns() > until_ns)
			err = -ETIMEDOUT;
	}
	if (!err && rp_qp_state(qp) != RP_QPS_RTS)
		err = -ECONNREFUSED;
	if (!err)
		printf("ok\n");
	return err;
}

static int order_state(struct peer *peer, const char *rest)
{
	static const char *const names[] = {"init", "rtr", "rts", "err"};
	struct rp_qp *qp = qp_of(peer, rest);

	if (!qp)
		return -EINVAL;
	progress(peer);
	printf("ok %s\n", names[rp_qp_state(qp)]);
	return 0;
}

/* Waits for a completion. */
static int wait_for(struct peer *peer, const bool *done)
{
	uint64_t until_ns = clock_now_ns() + WAIT_NS;

	while (!*done) {
		progress(peer);
		if (clock_now_ns() > until_ns)
			return -ETIMEDOUT;
	}
	return 0;
}

static int order_recv(struct peer *peer, const char *rest)
{
	uint32_t number = (uint32_t)strtoul(rest, NULL, 10), posted;
	const struct rp_recv_wr wr = {.wr_id = wr_id_of(number, true)};
	struct rp_qp *qp = qp_of(peer, rest);
	int err = qp ? rp_post_recv(qp, &wr, 1, &posted) : -EINVAL;

	if (err)
		return err;
	peer->is_got[number] = false;
	printf("ok\n");
	return 0;
}

static int order_immediate(struct peer *peer, const char *rest)
{
	uint32_t number = (uint32_t)strtoul(rest, NULL, 10);
	int err = qp_of(peer, rest) ? wait_for(peer, &peer->is_got[number]) : -EINVAL;

	if (err)
		return err;
	if (peer->got[number].status != RP_WC_SUCCESS || !peer->got[number].has_imm)
		return -EIO;
	printf("ok %u %u\n", peer->got[number].imm, peer->got[number].byte_len);
	return 0;
}

static int order_write(struct peer *peer, const char *rest)
{
	uint32_t number = (uint32_t)strtoul(rest, NULL, 10), posted;
	unsigned long long offset, addr;
	struct rp_sge sge = {.lkey = peer->mrs[0] ? rp_mr_lkey(peer->mrs[0]) : 0};
	struct rp_send_wr wr = {.wr_id = wr_id_of(number, false),
		.opcode = RP_WRITE_IMM,
		.flags = RP_SEND_SIGNALED,
		.sg_list = &sge,
		.sge_count = 1};
	struct rp_qp *qp = qp_of(peer, rest);
	int err;

	if (!qp || sscanf(rest, "%*u %llu %u %llu %u %u", &offset, &sge.length, &addr, &wr.rkey,
			   &wr.imm) != 5)
		return -EINVAL;
	sge.addr = (uint64_t)(uintptr_t)peer->mem + offset;
	wr.remote_addr = addr;
	peer->is_sent[number] = false;
	err = rp_post_send(qp, &wr, 1, &posted);
	if (!err)
		err = wait_for(peer, &peer->is_sent[number]);
	if (!err)
		printf("ok %s\n", rp_status_str(peer->sent[number].status));
	return err;
}

static int order_close(struct peer *peer, const char *rest)
{
	struct rp_qp *qp = qp_of(peer, rest);

	if (!qp)
		return -EINVAL;
	rp_qp_close(qp);
	peer->qps[strtoul(rest, NULL, 10)] = NULL;
	printf("ok\n");
	return 0;
}

static const struct {
	const char *name;
	int (*run)(struct peer *peer, const char *rest);
} ORDERS[] = {
	{"reg", order_reg},
	{"unreg", order_unreg},
	{"qp", order_qp},
	{"join", order_join},
	{"state", order_state},
	{"recv", order_recv},
	{"immediate", order_immediate},
	{"write", order_write},
	{"close", order_close},
};

static void obey(struct peer *peer, char *line)
{
	char *rest = strchr(line, ' ');
	int err = -ENOSYS;

	if (rest)
		*rest++ = '\0';
	for (size_t i = 0; i < ARRAY_LEN(ORDERS); i++)
		if (strcmp(line, ORDERS[i].name) == 0)
			err = ORDERS[i].run(peer, rest ? rest : "");
	if (err)
		printf("error %s\n", strerror(-err));
	fflush(stdout);
}

/* ---- Between orders the device's own events are handled. ---- */

static void peer_wait(struct peer *peer)
{
	struct pollfd waits[3] = {
		{.fd = STDIN_FILENO, .events = POLLIN},
		{.fd = rp_cm_fd(peer->device), .events = POLLIN},
		{.fd = rp_cq_fd(peer->cq), .events = POLLIN},
	};

	if (rp_cq_arm(peer->cq))
		poll(waits, ARRAY_LEN(waits), -1);
	rp_cq_disarm(peer->cq);
}

int main(int argc, char **argv)
{
	static struct peer peer;
	char line[512];
	size_t len = 0;

	if (argc != 3) {
		fprintf(stderr, "usage: token_peer DEVICE FILE\n");
		return 2;
	}
	peer_open(&peer, argv[1], argv[2]);
	fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
	for (;;) {
		ssize_t got = read(STDIN_FILENO, line + len, 1);

		progress(&peer);
		if (got == 0)
			break;
		if (got < 0) {
			peer_wait(&peer);
			continue;
		}
		if (line[len] != '\n') {
			len = MIN(len + 1, sizeof(line) - 1);
			continue;
		}
		line[len] = '\0';
		len = 0;
		obey(&peer, line);
	}
	for (uint32_t i = 0; i < peer.qp_count; i++)
		rp_qp_close(peer.qps[i]);
	for (uint32_t i = 0; i < MRS_MAX; i++)
		rp_mr_close(peer.mrs[i]);
	rp_cq_close(peer.cq);
	rp_pd_close(peer.pd);
	rp_close(peer.device);
	return 0;
}
