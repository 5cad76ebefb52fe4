/* tests/unit/rdma/test_simulated.c: the provider suite over the simulated provider, and tests of
 * its own features: injected faults, help by the responder, and shared memory that a peer may
 * damage. */
#include "tests/unit/abort.h"
#include "tests/unit/counted.h"
#include "tests/unit/rdma/suite.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sanitizer.h"
#include "rdma/simulated/packet.h"
#include "rdma/simulated/simulated_priv.h"

#define SCRIBBLES 400u

static const struct suite simulated = {
	.provider = "simulated", .device_name = "simulated", .address = "127.0.0.1"};
static const struct suite assisted = {
	.provider = "simulated", .device_name = "simulated:direct=0", .address = "127.0.0.1"};
static const struct suite lossy = {.provider = "simulated",
	.device_name = "simulated:seed=3,drop=0.02,rnr=0.02,delay_us=1",
	.address = "localhost"};
const struct suite *suite = &simulated;

/* ---- Bugs of the caller. ---- */

static void poll_as_a_queue(void *handle)
{
	struct rp_wc wc;

	rp_cq_poll(handle, &wc, 1);
}

static void read_key(void *handle)
{
	rp_mr_rkey(handle);
}

static void close_with_a_queue(void *handle)
{
	rp_close(handle);
}

static void overfill(void *handle)
{
	struct sim_qp *qp = CONTAINER_OF((struct rp_qp *)handle, struct sim_qp, base);

	qp->rq.tail = qp->rq.head + qp->rq.wr_max + 1;
	rp_post_recv(handle, &(struct rp_recv_wr){.wr_id = 1}, 1, &(uint32_t){0});
	rp_qp_close(handle);
}

/* A handle of another kind, a device with open objects, a queue with impossible positions. */
static void test_closed_handles(void **state)
{
	struct end end;

	(void)state;
	end_open(&end, &(struct end_opts){0});
	abort_expected(poll_as_a_queue, end.qp);
	abort_expected(read_key, end.cq);
	abort_expected(close_with_a_queue, end.device);
	abort_expected(overfill, end.qp);
	end_close(&end);
}

/* ---- Faults. ---- */

static void test_device_keys(void **state)
{
	static const char *const wrong[] = {"simulated:flip=1", "simulated:drop=2",
		"simulated:drop=", "simulated:drop=x", "simulated:seed=-1", "simulated:direct=2",
		"simulated:drop", "simulated:drop=0.1,,seed=1", "simulated:delay_us=9999999999"};
	struct rp_open_opts opts = {0};
	struct rp_device *device;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		opts.device_name = wrong[i];
		assert_int_equal(rp_open(&opts, &device), -EINVAL);
	}
	opts.device_name = "simulatedly";
	assert_int_equal(rp_open(&opts, &device), -ENODEV);
	opts.device_name = "simulated:seed=7,drop=0.01,delay_us=50,rnr=0.02,bad_rkey=0.01,"
			   "qp_error=0.001,half_write=0.001,peer_death=0.0001,direct=1";
	assert_int_equal(rp_open(&opts, &device), 0);
	rp_close(device);
}

/* One write by a faulty end; returns its status. */
static enum rp_status faulty_write(const char *device_name, uint8_t retry_count, struct pair *pair)
{
	struct end_opts faulty = {.device_name = device_name,
		.attr = {.retry_count = retry_count, .rnr_retry_count = 1, .timeout_us = 10}};

	pair_open(pair, &faulty, NULL);
	memset(pair->a.mem, 0xab, 1000);
	assert_int_equal(post_send_sge(&pair->a, one_sided(RP_WRITE, 1, &pair->b, 0),
				 sge_at(&pair->a, 0, 1000)),
		0);
	return wc_next(&pair->a, &pair->b).status;
}

static void test_each_fault(void **state)
{
	struct pair pair;

	(void)state;
	assert_int_equal(faulty_write("simulated:drop=1", 3, &pair), RP_WC_RETRY_EXC_ERR);
	pair_close(&pair);
	assert_int_equal(faulty_write("simulated:rnr=1", 7, &pair), RP_WC_RNR_RETRY_EXC_ERR);
	pair_close(&pair);
	assert_int_equal(faulty_write("simulated:bad_rkey=1", 7, &pair), RP_WC_REM_ACCESS_ERR);
	assert_int_equal(pair.b.mem[0], 0);
	pair_close(&pair);
	assert_int_equal(faulty_write("simulated:qp_error=1", 7, &pair), RP_WC_WR_FLUSH_ERR);
	assert_int_equal(pair.b.mem[0], 0);
	pair_close(&pair);
	assert_int_equal(faulty_write("simulated:half_write=1", 7, &pair), RP_WC_RETRY_EXC_ERR);
	assert_int_equal(pair.b.mem[499], 0xab);
	assert_int_equal(pair.b.mem[500], 0);
	pair_close(&pair);
	assert_int_equal(faulty_write("simulated:peer_death=1", 7, &pair), RP_WC_WR_FLUSH_ERR);
	cm_expect(pair.a.device, RP_CM_DISCONNECTED, NULL);
	cm_expect(pair.b.device, RP_CM_DISCONNECTED, NULL);
	pair_close(&pair);
}

/* A failed device fails every queue pair of it, and opens no more; another opening of it works. */
static void test_device_failure(void **state)
{
	struct rp_qp_attr attr = {.type = RP_QP_RC};
	struct rp_cm_event event;
	struct rp_qp *qp;
	uint64_t before = counted("nebulaio_rdma_device_failures_total");
	struct pair pair;

	(void)state;
	/* The first write is the transmission that still succeeds. */
	assert_int_equal(faulty_write("simulated:fatal=1", 7, &pair), RP_WC_SUCCESS);
	assert_int_equal(post_send_sge(&pair.a, one_sided(RP_WRITE, 2, &pair.b, 0),
				 sge_at(&pair.a, 0, 1000)),
		0);
	assert_int_equal(wc_next(&pair.a, &pair.b).status, RP_WC_WR_FLUSH_ERR);
	cm_expect(pair.a.device, RP_CM_DEVICE_FATAL, &event);
	assert_null(event.qp);
	cm_expect(pair.a.device, RP_CM_DISCONNECTED, NULL);
	cm_expect(pair.b.device, RP_CM_DISCONNECTED, NULL);
	attr.send_cq = attr.recv_cq = pair.a.cq;
	assert_int_equal(rp_qp_open(pair.a.pd, &attr, &qp), -EIO);
	assert_int_equal(counted("nebulaio_rdma_device_failures_total"), before + 1);
	pair_close(&pair);
	assert_int_equal(faulty_write("simulated:fatal=1", 7, &pair), RP_WC_SUCCESS);
	pair_close(&pair);
}

/* Without acknowledgements, losses are silent: the sender gets success, and none or half of a write
 * arrives. */
static void test_unreliable_faults(void **state)
{
	static const char *const losses[] = {
		"simulated:drop=1", "simulated:rnr=1", "simulated:bad_rkey=1"};
	struct end_opts faulty = {.attr = {.type = RP_QP_UC}}, plain = faulty;
	struct pair pair;

	(void)state;
	for (size_t i = 0; i <= ARRAY_LEN(losses); i++) {
		bool half = i == ARRAY_LEN(losses);

		faulty.device_name = half ? "simulated:half_write=1" : losses[i];
		pair_open(&pair, &faulty, &plain);
		memset(pair.a.mem, 0xab, 1000);
		assert_int_equal(post_send_sge(&pair.a, one_sided(RP_WRITE, 1, &pair.b, 0),
					 sge_at(&pair.a, 0, 1000)),
			0);
		wc_expect(&pair.a, &pair.b, 1, RP_WC_SUCCESS);
		assert_int_equal(pair.b.mem[0], half ? 0xab : 0);
		assert_int_equal(pair.b.mem[500], 0);
		pair_close(&pair);
	}
}

/* The number of a hundred datagrams that arrive: the same seed gives the same result. */
static uint32_t datagrams_arrived(const char *device_name)
{
	struct end_opts opts = {.device_name = device_name, .attr = {.type = RP_QP_UD}};
	struct rp_send_wr wr = {.wr_id = 1, .opcode = RP_SEND, .flags = RP_SEND_SIGNALED};
	struct rp_address address;
	uint32_t arrived = 0;
	struct end a;

	end_open(&a, &opts);
	assert_int_equal(rp_qp_address(a.qp, &address), 0);
	assert_int_equal(rp_ah_open(a.pd, &address, &wr.ah), 0);
	wr.remote_qpn = address.qpn;
	for (uint32_t i = 0; i < 100; i++) {
		struct rp_wc wc;

		assert_int_equal(post_recv_at(&a, 2, 4096, 64 + RP_GRH_BYTES), 0);
		assert_int_equal(post_send_sge(&a, wr, sge_at(&a, 0, 64)), 0);
		do {
			wc = wc_next(&a, NULL);
			arrived += wc.wr_id == 2;
		} while (wc.wr_id != 1);
		while (rp_cq_poll(a.cq, &wc, 1) == 1)
			arrived += wc.wr_id == 2;
	}
	rp_ah_close(wr.ah);
	end_close(&a);
	return arrived;
}

static void test_datagram_faults(void **state)
{
	uint32_t arrived = datagrams_arrived("simulated:seed=5,drop=0.3,delay_us=20");

	(void)state;
	assert_true(arrived > 40 && arrived < 95);
	assert_int_equal(datagrams_arrived("simulated:seed=5,drop=0.3"), arrived);
	assert_int_equal(datagrams_arrived("simulated"), 100);
	assert_int_equal(datagrams_arrived("simulated:drop=1"), 0);
}

/* A datagram that is not in our format is ignored. */
static void test_nonsense_datagrams(void **state)
{
	struct end_opts opts = {.attr = {.type = RP_QP_UD}};
	uint8_t bytes[5000];
	struct prng prng;
	struct sim_qp *qp;
	struct sockaddr_un addr;
	socklen_t len = sizeof(addr);
	struct end a;
	int fd;

	(void)state;
	end_open(&a, &opts);
	qp = CONTAINER_OF(a.qp, struct sim_qp, base);
	assert_int_equal(post_recv_at(&a, 2, 0, 65536), 0);
	assert_int_equal(getsockname(qp->dgram->fds[0], (struct sockaddr *)&addr, &len), 0);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	prng_seed(&prng, 3);
	for (int i = 0; i < 2000; i++) {
		struct rp_wc wc;
		size_t bytes_sent = prng_below(&prng, sizeof(bytes));

		prng_fill(&prng, bytes, bytes_sent);
		if (i % 2) {
			/* Valid except for one part of the header. */
			const uint32_t head[2] = {SIM_MAGIC, SIM_VERSION};

			memcpy(bytes, head, sizeof(head));
			bytes[prng_below(&prng, 7)] ^= 0x10;
		}
		assert_true(sendto(fd, bytes, bytes_sent, 0, (struct sockaddr *)&addr, len) >= 0);
		assert_int_equal(rp_cq_poll(a.cq, &wc, 1), 0);
	}
	close(fd);
	end_close(&a);
}

/* The number of writes until one fails: the same seed gives the same result. */
static uint32_t writes_until_failure(const char *device_name)
{
	struct end_opts faulty = {.device_name = device_name};
	struct pair pair;
	uint32_t count = 0;

	pair_open(&pair, &faulty, NULL);
	while (!post_send_sge(&pair.a, one_sided(RP_WRITE, 1, &pair.b, 0), sge_at(&pair.a, 0, 8)) &&
		!wc_next(&pair.a, &pair.b).status)
		assert_true(++count < 100000);
	pair_close(&pair);
	return count;
}

static void test_seed_repeats(void **state)
{
	uint32_t first = writes_until_failure("simulated:seed=11,bad_rkey=0.001");

	(void)state;
	assert_int_equal(writes_until_failure("simulated:seed=11,bad_rkey=0.001"), first);
	assert_int_not_equal(writes_until_failure("simulated:seed=12,bad_rkey=0.001"), first);
}

/* ---- Damage. ---- */

/* Any call may be refused, none may crash or hang: the ends try all verbs on a wire that other code
 * overwrites. */
static void try_all(struct pair *pair, struct prng *prng)
{
	static const enum rp_opcode opcodes[] = {
		RP_SEND, RP_WRITE, RP_READ, RP_WRITE_IMM, RP_FETCH_ADD};
	struct end *end = prng_below(prng, 2) ? &pair->a : &pair->b;
	struct end *other = end == &pair->a ? &pair->b : &pair->a;
	enum rp_opcode opcode = opcodes[prng_below(prng, ARRAY_LEN(opcodes))];
	uint32_t bytes = opcode == RP_FETCH_ADD ? 8 : (uint32_t)prng_below(prng, 8192);
	struct rp_wc wcs[16];

	post_recv_at(other, 1, 0, 8192);
	post_send_sge(end, one_sided(opcode, 1, other, 0), sge_at(end, 0, bytes));
	for (int i = 0; i < 80; i++) {
		assert_true(rp_cq_poll(end->cq, wcs, 16) >= 0);
		assert_true(rp_cq_poll(other->cq, wcs, 16) >= 0);
	}
}

static void test_scribbled_wire(void **state)
{
	struct prng prng;

	(void)state;
	for (uint64_t seed = 0; seed < SCRIBBLES; seed++) {
		struct pair pair;
		struct sim_qp *qp;
		uint8_t *wire;

		prng_seed(&prng, seed);
		pair_open(&pair, NULL, NULL);
		qp = CONTAINER_OF(pair.a.qp, struct sim_qp, base);
		wire = (uint8_t *)qp->wire;
		for (int i = 0; i < 12; i++) {
			size_t at = prng_below(&prng, 4) ? prng_below(&prng, 512)
							 : prng_below(&prng, sizeof(*qp->wire) - 8);
			/* Often the record that is read next. */
			if (prng_below(&prng, 2)) {
				at = (size_t)((uint8_t *)&qp->rx[qp->rx_next % SIM_SLOTS] - wire);
				prng_fill(&prng, wire + at, 28);
				qp->rx[qp->rx_next % SIM_SLOTS].head.type =
					(uint8_t)prng_below(&prng, 5);
				atomic_store(
					&qp->rx[qp->rx_next % SIM_SLOTS].marker, qp->rx_next + 1);
			} else {
				prng_fill(&prng, wire + at, 1 + prng_below(&prng, 8));
			}
			try_all(&pair, &prng);
		}
		pair_close(&pair);
	}
}

/* Bells that were all set by another party cause only useless visits; key 0 is never a key. */
static void test_damaged_bells_and_no_key(void **state)
{
	struct rp_send_wr wr;
	struct sim_qp *qp;
	struct pair pair;

	(void)state;
	pair_open(&pair, NULL, NULL);
	qp = CONTAINER_OF(pair.a.qp, struct sim_qp, base);
	memset(qp->bells[0].bell, 0xff, sizeof(struct sim_bell));
	assert_int_equal(post_recv_at(&pair.b, 2, 0, 64), 0);
	assert_int_equal(post_send_sge(&pair.a,
				 (struct rp_send_wr){
					 .wr_id = 1, .opcode = RP_SEND, .flags = RP_SEND_SIGNALED},
				 sge_at(&pair.a, 0, 64)),
		0);
	wc_expect(&pair.b, NULL, 2, RP_WC_SUCCESS);
	wc_expect(&pair.a, NULL, 1, RP_WC_SUCCESS);
	wr = one_sided(RP_WRITE, 3, &pair.b, 0);
	wr.rkey = 0;
	assert_int_equal(post_send_sge(&pair.a, wr, sge_at(&pair.a, 0, 64)), 0);
	wc_expect(&pair.a, NULL, 3, RP_WC_REM_ACCESS_ERR);
	pair_close(&pair);
}

/* Work that comes one by one always takes the first entries of its queues; what is added to a queue
 * that is not empty goes behind the rest. */
static void test_empty_queues_begin_again(void **state)
{
	const struct rp_send_wr wr = {.wr_id = 1, .opcode = RP_SEND, .flags = RP_SEND_SIGNALED};
	struct sim_cq *cq;
	struct sim_qp *qp;
	struct pair pair;

	(void)state;
	pair_open(&pair, NULL, NULL);
	qp = CONTAINER_OF(pair.a.qp, struct sim_qp, base);
	cq = CONTAINER_OF(pair.b.cq, struct sim_cq, base);
	for (uint32_t i = 0; i < 5; i++) {
		assert_int_equal(post_recv_at(&pair.b, 2, 0, 64), 0);
		assert_int_equal(post_send_sge(&pair.a, wr, sge_at(&pair.a, 0, 64)), 0);
		assert_int_equal(qp->sq_tail, 1);
		wc_expect(&pair.b, NULL, 2, RP_WC_SUCCESS);
		assert_int_equal(cq->tail, 0);
		wc_expect(&pair.a, NULL, 1, RP_WC_SUCCESS);
	}
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(post_recv_at(&pair.b, 2 + i, 64 * i, 64), 0);
		assert_int_equal(post_send_sge(&pair.a, wr, sge_at(&pair.a, 64 * i, 64)), 0);
		assert_int_equal(qp->sq_tail, i + 1);
	}
	for (uint32_t i = 0; i < 3; i++)
		wc_expect(&pair.b, NULL, 2 + i, RP_WC_SUCCESS);
	assert_int_equal(cq->tail, 0);
	for (uint32_t i = 0; i < 3; i++)
		wc_expect(&pair.a, NULL, 1, RP_WC_SUCCESS);
	pair_close(&pair);
}

/* More private data than an event has room for is refused. */
static void test_private_bytes_of_a_packet(void **state)
{
	struct sim_packet packet = {.type = SIM_PKT_REJECT}, got;
	int pair[2], fds[SIM_HELLO_FDS], count;
	struct ucred sender;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair), 0);
	for (uint32_t over = 0; over < 2; over++) {
		packet.private_len = RP_PRIVATE_BYTES_MAX + over;
		assert_int_equal(sim_packet_send(pair[0], &packet, NULL, 0), 0);
		count = 0;
		assert_int_equal(
			sim_packet_recv(pair[1], &got, fds, &count, &sender), over ? -EPROTO : 0);
	}
	close(pair[0]);
	close(pair[1]);
}

/* A process that sends garbage to a listener is dropped, and the next one is served. */
static void test_nonsense_on_the_socket(void **state)
{
	struct sim_packet packets[3] = {{.type = SIM_PKT_HELLO},
		{.type = SIM_PKT_HELLO, .private_len = 57}, {.type = SIM_PKT_REPLY}};
	struct rp_cm_event event;
	struct sockaddr_un addr;
	struct pair pair;
	ssize_t got;
	char byte;

	(void)state;
	pair_open(&pair, NULL, NULL);
	for (size_t i = 0; i < ARRAY_LEN(packets); i++) {
		socklen_t len = sim_address(suite->address, rp_listener_port(pair.listener), &addr);
		int fd = sim_socket();

		assert_true(fd >= 0);
		assert_int_equal(connect(fd, (struct sockaddr *)&addr, len), 0);
		assert_int_equal(sim_packet_send(fd, &packets[i], NULL, 0), 0);
		assert_int_equal(rp_cm_poll(pair.b.device, &event), 0);
		got = recv(fd, &byte, 1, MSG_DONTWAIT);
		assert_true(got == 0 || (got < 0 && errno == ECONNRESET));
		close(fd);
	}
	rp_qp_close(pair.a.qp);
	cm_expect(pair.b.device, RP_CM_DISCONNECTED, NULL);
	end_new_qp(&pair.a, &(struct end_opts){0});
	assert_int_equal(rp_connect(pair.a.qp, suite->address, rp_listener_port(pair.listener),
				 NULL, 0, clock_now_ns() + SUITE_DEADLINE_NS),
		0);
	cm_expect(pair.b.device, RP_CM_CONNECT_REQUEST, &event);
	rp_reject(event.request, NULL, 0);
	cm_expect(pair.a.device, RP_CM_REJECTED, NULL);
	pair_close(&pair);
}

/* A process without the right packet number is not accepted as the peer; one with it is. */
static void test_join_refused(void **state)
{
	const struct end_opts plain = {.attr = {.retry_count = 7}};
	struct rp_address at_a, at_b, wrong;
	struct rp_cm_event event;
	struct end a, b, c;

	(void)state;
	end_open(&a, &plain);
	end_open(&b, &plain);
	end_open(&c, &plain);
	assert_int_equal(rp_qp_address(a.qp, &at_a), 0);
	assert_int_equal(rp_qp_address(b.qp, &at_b), 0);
	assert_int_equal(rp_qp_join(b.qp, &at_a, true), 0);
	wrong = at_b;
	wrong.psn ^= 1;
	assert_int_equal(rp_qp_join(c.qp, &wrong, false), 0);
	while (rp_qp_state(c.qp) == RP_QPS_INIT) {
		assert_int_equal(rp_cm_poll(b.device, &event), 0);
		assert_int_equal(rp_cm_poll(c.device, &event), 0);
	}
	assert_int_equal(rp_qp_state(c.qp), RP_QPS_ERR);
	assert_int_equal(rp_qp_state(b.qp), RP_QPS_INIT);
	assert_int_equal(rp_qp_join(a.qp, &at_b, false), 0);
	while (rp_qp_state(a.qp) != RP_QPS_RTS) {
		assert_int_equal(rp_cm_poll(b.device, &event), 0);
		assert_int_equal(rp_cm_poll(a.device, &event), 0);
	}
	assert_int_equal(rp_qp_state(b.qp), RP_QPS_RTS);
	end_close(&a);
	end_close(&b);
	end_close(&c);
}

/* ---- Access to files. ---- */

/* A client that connects by itself, to see every file that it gets. */
struct watcher {
	int fd;
	int fds[SIM_HELLO_FDS];
	void *maps[3];
};

static void watcher_connect(struct watcher *watcher, uint16_t port)
{
	static const uint64_t bytes[] = {sizeof(struct sim_wire),
		SIM_CQS_MAX * sizeof(struct sim_bell), SIM_MRS_MAX * sizeof(struct sim_entry)};
	struct sim_packet hello = {.type = SIM_PKT_HELLO, .qp_type = RP_QP_RC};
	struct sockaddr_un addr;

	for (int i = 0; i < 3; i++)
		assert_int_equal(sim_shared_file("watcher", bytes[i], true, &watcher->fds[i],
					 &watcher->maps[i]),
			0);
	for (int i = 3; i < 5; i++)
		watcher->fds[i] = eventfd(0, EFD_CLOEXEC);
	watcher->fd = sim_socket();
	assert_int_equal(connect(watcher->fd, (struct sockaddr *)&addr,
				 sim_address(suite->address, port, &addr)),
		0);
	assert_int_equal(sim_packet_send(watcher->fd, &hello, watcher->fds, SIM_HELLO_FDS), 0);
}

/* The next packet's type; 0: none. */
static uint16_t watcher_next(struct watcher *watcher)
{
	int fds[SIM_HELLO_FDS], count;
	struct sim_packet packet;
	struct ucred sender;
	int err = sim_packet_recv(watcher->fd, &packet, fds, &count, &sender);

	sim_fds_close(fds, SIM_HELLO_FDS);
	assert_true(!err || err == -EAGAIN);
	return err ? 0 : packet.type;
}

static void watcher_close(struct watcher *watcher)
{
	close(watcher->fd);
	sim_fds_close(watcher->fds, SIM_HELLO_FDS);
	munmap(watcher->maps[0], sizeof(struct sim_wire));
	munmap(watcher->maps[1], SIM_CQS_MAX * sizeof(struct sim_bell));
	munmap(watcher->maps[2], SIM_MRS_MAX * sizeof(struct sim_entry));
}

/* A queue pair that is put into its error state has what its peer sent and acknowledged before: a
 * card would have completed it. */
static void test_before_an_error(void **state)
{
	struct pair pair;

	(void)state;
	pair_open(&pair, NULL, NULL);
	assert_int_equal(post_recv_at(&pair.b, 5, 0, 64), 0);
	wc_expect_none(&pair.a, &pair.b);
	assert_int_equal(post_send_sge(&pair.a,
				 (struct rp_send_wr){
					 .wr_id = 6, .opcode = RP_SEND, .flags = RP_SEND_SIGNALED},
				 sge_at(&pair.a, 0, 64)),
		0);
	wc_expect(&pair.b, NULL, 5, RP_WC_SUCCESS);
	rp_qp_error(pair.a.qp);
	wc_expect(&pair.a, NULL, 6, RP_WC_SUCCESS);
	pair_close(&pair);

	pair_open(&pair, NULL, NULL);
	assert_int_equal(post_recv_at(&pair.b, 7, 0, 64), 0);
	wc_expect_none(&pair.a, &pair.b);
	assert_int_equal(post_send_sge(&pair.a, (struct rp_send_wr){.opcode = RP_SEND},
				 sge_at(&pair.a, 0, 64)),
		0);
	rp_qp_error(pair.b.qp);
	wc_expect(&pair.b, NULL, 7, RP_WC_SUCCESS);
	pair_close(&pair);
}

/* The peer of a window's queue pair gets the window's file, and the peers of a region's protection
 * domain get the region's file. Other clients get neither, before and after. */
static void test_files_go_where_keys_do(void **state)
{
	const struct end_opts no_access = {
		.attr = {.retry_count = 7}, .mem_access = RP_ACCESS_WINDOW};
	struct rp_mr_opts open_to_all = {
		.bytes = 4096, .access = RP_ACCESS_LOCAL_WRITE | RP_ACCESS_REMOTE_READ};
	struct watcher watcher;
	struct rp_cm_event event;
	struct rp_mw *mw[2];
	struct rp_qp *first;
	struct rp_mr *mr;
	struct pair pair;

	(void)state;
	pair_open(&pair, NULL, &no_access);
	assert_int_equal(rp_mw_open(pair.b.qp, pair.b.mr, 0, &mw[0]), 0);
	watcher_connect(&watcher, rp_listener_port(pair.listener));
	cm_expect(pair.b.device, RP_CM_CONNECT_REQUEST, &event);
	first = pair.b.qp;
	end_new_qp(&pair.b, &no_access);
	assert_int_equal(rp_accept(event.request, pair.b.qp, NULL, 0), 0);
	assert_int_equal(watcher_next(&watcher), SIM_PKT_REPLY);
	assert_int_equal(watcher_next(&watcher), 0);
	assert_int_equal(rp_mw_open(first, pair.b.mr, 0, &mw[1]), 0);
	assert_int_equal(watcher_next(&watcher), 0);
	rp_mw_close(mw[1]);
	assert_int_equal(watcher_next(&watcher), 0);

	assert_int_equal(rp_mw_open(pair.b.qp, pair.b.mr, 0, &mw[1]), 0);
	assert_int_equal(watcher_next(&watcher), SIM_PKT_BACKING);
	rp_mw_close(mw[1]);
	assert_int_equal(watcher_next(&watcher), SIM_PKT_GONE);
	open_to_all.addr = pair.b.mem;
	open_to_all.fd = pair.b.mem_fd;
	assert_int_equal(rp_mr_open(pair.b.pd, &open_to_all, &mr), 0);
	assert_int_equal(watcher_next(&watcher), SIM_PKT_BACKING);
	rp_mr_close(mr);
	rp_mw_close(mw[0]);
	assert_int_equal(watcher_next(&watcher), SIM_PKT_GONE);
	assert_int_equal(watcher_next(&watcher), 0);
	watcher_close(&watcher);
	rp_qp_close(first);
	pair_close(&pair);
}

/* ---- Processes of other users. ---- */

#define FOREIGN_UID 61234

/* Another user's process connects to a port: like the provider, and like a program without the
 * provider's own check. */
static void foreign_main(uint16_t port)
{
	struct rp_cm_event event;
	struct sockaddr_un addr;
	struct sim_packet hello = {.type = SIM_PKT_HELLO}, answer;
	int fds[SIM_HELLO_FDS], count;
	struct ucred sender;
	struct pollfd wait;
	struct end end;

	assert_int_equal(setuid(FOREIGN_UID), 0);
	end_open(&end, &(struct end_opts){0});
	assert_int_equal(rp_connect(end.qp, suite->address, port, NULL, 0,
				 clock_now_ns() + SUITE_DEADLINE_NS),
		0);
	cm_expect(end.device, RP_CM_REJECTED, &event);
	assert_non_null(strstr(event.why, "same user"));
	assert_non_null(strstr(event.why, "HTTP"));
	end_close(&end);

	wait = (struct pollfd){.fd = sim_socket(), .events = POLLIN};
	for (size_t i = 0; i < SIM_HELLO_FDS; i++)
		fds[i] = memfd_create("foreign", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(connect(wait.fd, (struct sockaddr *)&addr,
				 sim_address(suite->address, port, &addr)),
		0);
	/* The peer may have closed the connection by now. */
	sim_packet_send(wait.fd, &hello, fds, SIM_HELLO_FDS);
	assert_int_equal(poll(&wait, 1, (int)(SUITE_DEADLINE_NS / NS_PER_MS)), 1);
	assert_int_equal(sim_packet_recv(wait.fd, &answer, fds, &count, &sender), -ECONNRESET);
}

/* Waits for the child while a device makes progress; its exit must be clean. */
static void child_join(pid_t pid, struct rp_device *device)
{
	struct rp_cm_event event;
	int status;

	while (waitpid(pid, &status, WNOHANG) == 0)
		assert_int_equal(rp_cm_poll(device, &event), 0);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static pid_t child_fork(void)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

/* The process of another user is not served and gets no file, whichever of the two listens. */
static void test_other_users(void **state)
{
	const struct rp_open_opts open = {.device_name = suite->device_name};
	struct rp_listener *listener;
	struct rp_cm_event event;
	struct rp_device *device;
	int pipe_fds[2];
	uint16_t port;
	struct end end;
	pid_t pid;

	(void)state;
	if (geteuid() != 0)
		skip();
	assert_int_equal(rp_open(&open, &device), 0);
	assert_int_equal(rp_listen(device, suite->address, 0, NULL, &listener), 0);
	port = rp_listener_port(listener);
	pid = child_fork();
	if (!pid) {
		foreign_main(port);
		_exit(0);
	}
	child_join(pid, device);
	rp_listener_close(listener);
	rp_close(device);

	assert_int_equal(pipe(pipe_fds), 0);
	pid = child_fork();
	if (!pid) {
		assert_int_equal(setuid(FOREIGN_UID), 0);
		assert_int_equal(rp_open(&open, &device), 0);
		assert_int_equal(rp_listen(device, suite->address, 0, NULL, &listener), 0);
		port = rp_listener_port(listener);
		assert_int_equal(write(pipe_fds[1], &port, sizeof(port)), sizeof(port));
		pause();
	}
	assert_int_equal(read(pipe_fds[0], &port, sizeof(port)), sizeof(port));
	end_open(&end, &(struct end_opts){0});
	assert_int_equal(rp_connect(end.qp, suite->address, port, NULL, 0,
				 clock_now_ns() + SUITE_DEADLINE_NS),
		0);
	cm_expect(end.device, RP_CM_REJECTED, &event);
	assert_non_null(event.why);
	end_close(&end);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
}

/* Address of the memory that a process registers, and of the memory that it has after it executed
 * another program. */
/* The address is unused, and the sanitizer leaves room there. */
#define VICTIM_AT    (SANITIZER_THREAD ? 0x2000000000ul : 0x200000000000ul)
#define VICTIM_BYTES (64 * KIB)
#define VICTIM	     "--victim"

static uint8_t *victim_map(void)
{
	void *at = mmap((void *)VICTIM_AT, VICTIM_BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	assert_ptr_equal(at, (void *)VICTIM_AT);
	return at;
}

/* The executed program: reports that it runs, and checks its memory when told to. */
static int victim_main(void)
{
	uint8_t *at = victim_map();
	char byte = 'v';

	if (write(STDOUT_FILENO, &byte, 1) != 1 || read(STDIN_FILENO, &byte, 1) != 0)
		return 2;
	for (size_t i = 0; i < VICTIM_BYTES; i++) {
		if (at[i])
			return 1;
	}
	return 0;
}

/* Registers, connects, lets a helper keep the wire open, and executes another program when told
 * to. */
static void registers_then_executes(int from_parent, int to_parent)
{
	struct rp_mr_opts opts = {
		.addr = victim_map(), .bytes = VICTIM_BYTES, .access = ACCESS_ALL, .fd = -1};
	struct rp_mr *mr;
	struct end end;
	uint32_t rkey;
	uint16_t port;
	char byte;

	assert_int_equal(read(from_parent, &port, sizeof(port)), sizeof(port));
	end_open(&end, &(struct end_opts){0});
	assert_int_equal(rp_mr_open(end.pd, &opts, &mr), 0);
	rkey = rp_mr_rkey(mr);
	assert_int_equal(rp_connect(end.qp, suite->address, port, &rkey, sizeof(rkey),
				 clock_now_ns() + SUITE_DEADLINE_NS),
		0);
	cm_expect(end.device, RP_CM_ESTABLISHED, NULL);
	if (!child_fork()) {
		/* Ends with the process whose wire it keeps open. */
		pause();
		_exit(0);
	}
	assert_int_equal(read(from_parent, &byte, 1), 1);
	assert_int_equal(dup2(from_parent, STDIN_FILENO), STDIN_FILENO);
	assert_int_equal(dup2(to_parent, STDOUT_FILENO), STDOUT_FILENO);
	closefrom(STDERR_FILENO + 1);
	execl("/proc/self/exe", "test_simulated", VICTIM, (char *)NULL);
	_exit(3);
}

/* Bytes go to the registered memory, never to the memory of a program that the process, with the
 * same number, has executed since. */
static void test_executed_since(void **state)
{
	struct rp_send_wr wr = {.wr_id = 1,
		.opcode = RP_WRITE,
		.flags = RP_SEND_SIGNALED,
		.remote_addr = VICTIM_AT};
	struct rp_listener *listener;
	struct rp_cm_event event;
	int to[2], from[2], status;
	struct end end;
	uint16_t port;
	char byte = 0;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(to), 0);
	assert_int_equal(pipe(from), 0);
	pid = child_fork();
	if (!pid) {
		close(to[1]);
		close(from[0]);
		registers_then_executes(to[0], from[1]);
	}
	close(to[0]);
	close(from[1]);
	end_open(&end, &(struct end_opts){0});
	assert_int_equal(rp_listen(end.device, suite->address, 0, NULL, &listener), 0);
	port = rp_listener_port(listener);
	assert_int_equal(write(to[1], &port, sizeof(port)), sizeof(port));
	cm_expect(end.device, RP_CM_CONNECT_REQUEST, &event);
	memcpy(&wr.rkey, event.private_data, sizeof(wr.rkey));
	assert_int_equal(rp_accept(event.request, end.qp, NULL, 0), 0);
	cm_expect(end.device, RP_CM_ESTABLISHED, NULL);
	/* Only direct access makes this test meaningful. */
	assert_true(CONTAINER_OF(end.qp, struct sim_qp, base)->peer->mem_fd >= 0);
	memset(end.mem, 0xab, VICTIM_BYTES);
	assert_int_equal(post_send_sge(&end, wr, sge_at(&end, 0, VICTIM_BYTES)), 0);
	wc_expect(&end, NULL, 1, RP_WC_SUCCESS);

	assert_int_equal(write(to[1], &byte, 1), 1);
	assert_int_equal(read(from[0], &byte, 1), 1);
	assert_int_equal(byte, 'v');
	assert_int_equal(post_send_sge(&end, wr, sge_at(&end, 0, VICTIM_BYTES)), 0);
	wc_expect(&end, NULL, 1, RP_WC_RETRY_EXC_ERR);
	close(to[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	close(from[0]);
	rp_listener_close(listener);
	end_close(&end);
}

/* A greeting of a process whose memory does not contain its witness, for example because its number
 * means another process here: its memory is not accessed directly, and the process must help. */
static void test_witness(void **state)
{
	struct remote_opts opts = {.job = REMOTE_STILL};
	struct sim_packet hello = {.type = SIM_PKT_HELLO};
	struct sim_device *device;
	struct remote remote;
	struct sim_peer *peer;
	struct end end;
	int fds[2];

	(void)state;
	remote_start(&remote, &opts);
	end_open(&end, &(struct end_opts){0});
	remote_connect(&remote, &end);
	device = CONTAINER_OF(end.device, struct sim_device, base);
	assert_true(CONTAINER_OF(end.qp, struct sim_qp, base)->peer->mem_fd >= 0);
	hello.witness_addr = (uintptr_t)device->witness;
	memcpy(hello.witness, device->witness, sizeof(hello.witness));
	/* The other process was forked before this device drew its witness. */
	fds[0] = device->bell_fd;
	fds[1] = device->table_fd;
	assert_int_equal(sim_peer_get(device, &hello, fds, remote.pid, &peer), 0);
	assert_int_equal(peer->mem_fd, -1);
	sim_peer_put(peer);
	rp_disconnect(end.qp);
	end_close(&end);
	remote_join(&remote);
}

/* A flood of failures on one device does not hide those on another. */
static void test_failures_are_limited_by_device(void **state)
{
	const struct rp_open_opts opts = {.device_name = "simulated", .gid_index = -1};
	const struct rp_qp_info info = {.device = "simulated"};
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC), before = dup(STDERR_FILENO);
	enum log_level level = log_level_now;
	struct rp_device *flooded, *other;

	(void)state;
	log_set_level(LOG_WARN);
	assert_int_equal(rp_open(&opts, &flooded), 0);
	assert_int_equal(rp_open(&opts, &other), 0);
	assert_true(null >= 0 && before >= 0 && dup2(null, STDERR_FILENO) >= 0);
	for (uint32_t i = 0; i < 10 * LOG_LIMITED_BURST; i++)
		rp_qp_log_failure(flooded, &info, "flood");
	rp_qp_log_failure(other, &info, "fault");
	assert_true(dup2(before, STDERR_FILENO) >= 0);
	log_set_level(level);
	close(before);
	close(null);
	assert_true(atomic_load(&flooded->failures.left_out) > 0);
	assert_int_equal(atomic_load(&other->failures.left_out), 0);
	assert_true(atomic_load(&other->failures.spent_ns) > 0);
	rp_close(other);
	rp_close(flooded);
}

static const struct CMUnitTest own_tests[] = {
	cmocka_unit_test(test_before_an_error),
	cmocka_unit_test(test_files_go_where_keys_do),
	cmocka_unit_test(test_other_users),
	cmocka_unit_test(test_executed_since),
	cmocka_unit_test(test_witness),
	cmocka_unit_test(test_closed_handles),
	cmocka_unit_test(test_failures_are_limited_by_device),
	cmocka_unit_test(test_device_keys),
	cmocka_unit_test(test_each_fault),
	cmocka_unit_test(test_device_failure),
	cmocka_unit_test(test_seed_repeats),
	cmocka_unit_test(test_unreliable_faults),
	cmocka_unit_test(test_datagram_faults),
	cmocka_unit_test(test_nonsense_datagrams),
	cmocka_unit_test(test_scribbled_wire),
	cmocka_unit_test(test_damaged_bells_and_no_key),
	cmocka_unit_test(test_empty_queues_begin_again),
	cmocka_unit_test(test_private_bytes_of_a_packet),
	cmocka_unit_test(test_nonsense_on_the_socket),
	cmocka_unit_test(test_join_refused),
};

static int run(const char *name, const struct CMUnitTest *tests, size_t count)
{
	return _cmocka_run_group_tests(name, tests, count, NULL, NULL);
}

int main(int argc, char **argv)
{
	int failed;

	if (argc == 2 && !strcmp(argv[1], VICTIM))
		return victim_main();
	/* Errors are provoked here by the dozen. */
	log_set_level(LOG_ERROR + 1);
	failed = run("own", own_tests, ARRAY_LEN(own_tests));
	failed += run("conn", suite_conn_tests, suite_conn_count);
	failed += run("data", suite_data_tests, suite_data_count);
	failed += run("window", suite_window_tests, suite_window_count);
	failed += run("target", suite_target_tests, suite_target_count);
	failed += run("unreliable", suite_unreliable_tests, suite_unreliable_count);
	failed += run("remote", suite_remote_tests, suite_remote_count);
	suite = &assisted;
	failed += run("assisted window", suite_window_tests, suite_window_count);
	failed += run("assisted remote", suite_remote_tests, suite_remote_count);
	suite = &lossy;
	failed += run("lossy remote", suite_remote_tests, suite_remote_count);
	return failed;
}
