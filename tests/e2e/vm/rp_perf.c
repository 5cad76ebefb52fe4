/* tests/e2e/vm/rp_perf.c: bandwidth of RDMA WRITE and latency of SEND over the provider interface,
 * for comparison with perftest's ib_write_bw and ib_send_lat on the same device.
 *
 *   rp_perf target DEVICE ADDRESS PORT              one client that writes, until it goes
 *   rp_perf echo   DEVICE ADDRESS PORT              one client that sends, until it goes
 *   rp_perf write  DEVICE ADDRESS PORT BYTES COUNT  prints MiB/s
 *   rp_perf send   DEVICE ADDRESS PORT BYTES COUNT  prints microseconds, half a round trip, median
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/base.h"
#include "rdma/rdma.h"

#define MEM_BYTES   (8 * MIB)
#define DEPTH	    128u
#define SIGNAL_EACH 32u
#define WAIT_NS	    (60 * NS_PER_S)
#define COUNT_MAX   100000u

struct end {
	struct rp_device *device;
	struct rp_pd *pd;
	struct rp_cq *cq;
	struct rp_qp *qp;
	struct rp_mr *mr;
	uint8_t *mem;
};

struct hello {
	uint64_t addr;
	uint32_t rkey;
	uint32_t unused;
};

static void die(const char *what, int err)
{
	fprintf(stderr, "rp_perf: %s: %s\n", what, strerror(-err));
	exit(1);
}

static void end_open(struct end *end, const char *device)
{
	const struct rp_open_opts open = {.device_name = device, .gid_index = -1};
	struct rp_qp_attr attr = {.retry_count = 7,
		.rnr_retry_count = 7,
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH}};
	struct rp_mr_opts mr = {.bytes = MEM_BYTES,
		.access = RP_ACCESS_LOCAL_WRITE | RP_ACCESS_REMOTE_WRITE,
		.fd = -1};
	int err = rp_open(&open, &end->device);

	end->mem = mmap(NULL, MEM_BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (end->mem == MAP_FAILED)
		err = -ENOMEM;
	mr.addr = end->mem;
	err = err ? err : rp_pd_open(end->device, &end->pd);
	err = err ? err : rp_cq_open(end->device, 4 * DEPTH, &end->cq);
	err = err ? err : rp_mr_open(end->pd, &mr, &end->mr);
	attr.send_cq = attr.recv_cq = end->cq;
	err = err ? err : rp_qp_open(end->pd, &attr, &end->qp);
	if (err)
		die(device, err);
}

static void end_close(struct end *end)
{
	rp_qp_close(end->qp);
	rp_mr_close(end->mr);
	rp_cq_close(end->cq);
	rp_pd_close(end->pd);
	rp_close(end->device);
	munmap(end->mem, MEM_BYTES);
}

static struct rp_cm_event event_next(struct end *end)
{
	struct pollfd wait = {.fd = rp_cm_fd(end->device), .events = POLLIN};
	struct rp_cm_event event;

	for (;;) {
		int got = rp_cm_poll(end->device, &event);

		if (got == 1)
			return event;
		if (got < 0 || poll(&wait, 1, (int)(WAIT_NS / NS_PER_MS)) <= 0)
			die("no event", got < 0 ? got : -ETIMEDOUT);
	}
}

static struct rp_sge sge_of(const struct end *end, uint64_t offset, uint32_t bytes)
{
	return (struct rp_sge){(uintptr_t)end->mem + offset, bytes, rp_mr_lkey(end->mr)};
}

static void post_recv(struct end *end)
{
	struct rp_sge sge = sge_of(end, MEM_BYTES / 2, (uint32_t)MIB);
	struct rp_recv_wr wr = {1, &sge, 1};
	uint32_t posted;
	int err = rp_post_recv(end->qp, &wr, 1, &posted);

	if (err)
		die("post receive", err);
}

static void post_send(struct end *end, uint32_t bytes)
{
	struct rp_sge sge = sge_of(end, 0, bytes);
	struct rp_send_wr wr = {.opcode = RP_SEND, .sg_list = &sge, .sge_count = 1};
	uint32_t posted;
	int err;

	wr.flags = RP_SEND_SIGNALED;
	err = rp_post_send(end->qp, &wr, 1, &posted);
	if (err)
		die("post send", err);
}

/* ---- Serving. ---- */

/* Writes need no help of their target, and a spinning target would take processor time from the
 * measurement. */
static void serve_target(struct end *end)
{
	struct pollfd wait = {.fd = rp_cm_fd(end->device), .events = POLLIN};
	struct rp_cm_event event;

	while (rp_cm_poll(end->device, &event) != 1 || event.type != RP_CM_DISCONNECTED)
		poll(&wait, 1, -1);
}

/* Sends back what it receives, and never sleeps: the other end measures the answer. */
static void serve_echo(struct end *end)
{
	struct rp_cm_event event;
	uint32_t turn = 0;

	for (;;) {
		struct rp_wc wc;

		if (rp_cq_poll(end->cq, &wc, 1) == 1 && !wc.status && wc.opcode == RP_RECV) {
			post_recv(end);
			post_send(end, wc.byte_len);
		}
		if (++turn % 1024 == 0 && rp_cm_poll(end->device, &event) == 1 &&
			event.type == RP_CM_DISCONNECTED)
			return;
	}
}

static void serve(
	const char *device, const char *address, uint16_t port, void (*serve_client)(struct end *))
{
	struct rp_listener *listener;
	struct rp_cm_event event;
	struct hello hello = {0};
	struct end end;
	int err;

	end_open(&end, device);
	err = rp_listen(end.device, address, port, NULL, &listener);
	if (err)
		die("listen", err);
	hello.addr = (uintptr_t)end.mem;
	hello.rkey = rp_mr_rkey(end.mr);
	for (uint32_t i = 0; i < DEPTH / 2; i++)
		post_recv(&end);
	printf("ready\n");
	fflush(stdout);
	event = event_next(&end);
	err = rp_accept(event.request, end.qp, &hello, sizeof(hello));
	if (err)
		die("accept", err);
	serve_client(&end);
	rp_listener_close(listener);
	end_close(&end);
}

/* ---- Measuring. ---- */

static void take(struct end *end, struct rp_wc *wc)
{
	uint64_t deadline_ns = 0;

	/* A guest's clock may cost a system call and a device register access, so it is read
	 * seldom. */
	for (uint32_t turn = 1; rp_cq_poll(end->cq, wc, 1) != 1; turn++) {
		if (turn % 1024)
			continue;
		if (!deadline_ns)
			deadline_ns = clock_now_ns() + WAIT_NS;
		if (clock_now_ns() > deadline_ns)
			die("completion", -ETIMEDOUT);
	}
	if (wc->status) {
		fprintf(stderr, "rp_perf: %s\n", rp_status_str(wc->status));
		exit(1);
	}
}

static void measure_write(struct end *end, const struct hello *to, uint32_t bytes, uint32_t count)
{
	uint64_t start_ns = clock_now_ns();
	uint32_t posted = 0, done = 0;

	while (done < count) {
		struct rp_send_wr wrs[SIGNAL_EACH];
		struct rp_sge sge = sge_of(end, 0, bytes);
		uint32_t batch = MIN(SIGNAL_EACH, count - posted), went;
		struct rp_wc wc;

		if (batch && posted - done + batch <= DEPTH) {
			for (uint32_t i = 0; i < batch; i++)
				wrs[i] = (struct rp_send_wr){.wr_id = batch,
					.opcode = RP_WRITE,
					.sg_list = &sge,
					.sge_count = 1,
					.remote_addr = to->addr,
					.rkey = to->rkey};
			wrs[batch - 1].flags = RP_SEND_SIGNALED;
			if (rp_post_send(end->qp, wrs, batch, &went))
				die("post write", -EIO);
			posted += batch;
			continue;
		}
		take(end, &wc);
		done += (uint32_t)wc.wr_id;
	}
	printf("%.2f\n", (double)bytes * count / (double)MIB /
				 ((double)(clock_now_ns() - start_ns) / (double)NS_PER_S));
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void measure_send(struct end *end, uint32_t bytes, uint32_t count)
{
	static uint64_t took_ns[COUNT_MAX];

	for (uint32_t i = 0; i < count; i++) {
		uint64_t start_ns = clock_now_ns();
		struct rp_wc wc;

		post_recv(end);
		post_send(end, bytes);
		do
			take(end, &wc);
		while (wc.opcode != RP_RECV);
		took_ns[i] = clock_now_ns() - start_ns;
	}
	qsort(took_ns, count, sizeof(took_ns[0]), by_size);
	printf("%.1f\n", (double)took_ns[count / 2] / 2 / (double)NS_PER_US);
}

static void measure(char **argv)
{
	uint32_t bytes = (uint32_t)atoi(argv[5]), count = (uint32_t)atoi(argv[6]);
	struct rp_cm_event event;
	struct hello hello;
	struct end end;
	int err;

	if (!bytes || bytes > MIB || !count || count > COUNT_MAX)
		die("BYTES, COUNT", -ERANGE);
	end_open(&end, argv[2]);
	err = rp_connect(
		end.qp, argv[3], (uint16_t)atoi(argv[4]), NULL, 0, clock_now_ns() + WAIT_NS);
	if (err)
		die(argv[3], err);
	event = event_next(&end);
	if (event.type != RP_CM_ESTABLISHED)
		die(argv[3], -ECONNREFUSED);
	memcpy(&hello, event.private_data, sizeof(hello));
	if (!strcmp(argv[1], "write"))
		measure_write(&end, &hello, bytes, count);
	else
		measure_send(&end, bytes, count);
	rp_disconnect(end.qp);
	end_close(&end);
}

int main(int argc, char **argv)
{
	if (argc == 5 && !strcmp(argv[1], "target")) {
		serve(argv[2], argv[3], (uint16_t)atoi(argv[4]), serve_target);
	} else if (argc == 5 && !strcmp(argv[1], "echo")) {
		serve(argv[2], argv[3], (uint16_t)atoi(argv[4]), serve_echo);
	} else if (argc == 7 && (!strcmp(argv[1], "write") || !strcmp(argv[1], "send"))) {
		measure(argv);
	} else {
		fprintf(stderr, "usage: rp_perf target|echo|write|send DEVICE ADDRESS PORT "
				"[BYTES COUNT]\n");
		return 2;
	}
	return 0;
}
