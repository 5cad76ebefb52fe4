/* front/discovery.c: answers those who look for servers on the fabric: a UD queue pair in a
 * multicast group, on a device handle and a thread of its own, so that nothing of it touches a
 * request. What it gives away is bounded: an answer is as long as what asked for it, and there are
 * only so many of them a second. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "codec/discovery.h"
#include "front/front.h"

#define SLOTS	     16u
#define RECV_BYTES   (RP_GRH_BYTES + DISCOVERY_BYTES)
#define SLOT_BYTES   2048u
#define ANSWERS_MAX  64u /* in a burst, and a second */
#define ANSWER_EVERY (NS_PER_S / ANSWERS_MAX)

_Static_assert(RECV_BYTES + DISCOVERY_BYTES <= SLOT_BYTES, "a slot holds both");

DEFINE_COUNTER(answers, "nebulaio_discovery_total", "result=\"answered\"",
	"Datagrams that looked for servers.");
DEFINE_COUNTER(refusals, "nebulaio_discovery_total", "result=\"too_many\"",
	"Datagrams that looked for servers.");
DEFINE_COUNTER(failures, "nebulaio_discovery_total", "result=\"failed\"",
	"Datagrams that looked for servers.");
DEFINE_COUNTER(nonsense, "nebulaio_discovery_total", "result=\"malformed\"",
	"Datagrams that looked for servers.");

struct front_discovery {
	struct rp_device *device;
	struct rp_pd *pd;
	struct rp_cq *cq;
	struct rp_qp *qp;
	struct rp_mr *mr;
	struct rp_group *group;
	struct discovery_wire about;
	uint8_t *memory; /* SLOTS of what came in, then what goes out */
	struct rp_ah *to[SLOTS];
	uint64_t credit_ns; /* of answers not given */
	uint64_t credited_ns;
	int stop_fd;
	bool started;
	pthread_t thread;
};

static uint8_t *slot_at(const struct front_discovery *front, uint64_t slot)
{
	return front->memory + slot * SLOT_BYTES;
}

static int slot_post(struct front_discovery *front, uint64_t slot)
{
	struct rp_sge sge = {(uintptr_t)slot_at(front, slot), RECV_BYTES, rp_mr_lkey(front->mr)};
	uint32_t posted;

	return rp_post_recv(front->qp, &(struct rp_recv_wr){slot, &sge, 1}, 1, &posted);
}

/* ---- Answering. ---- */

static bool may_answer(struct front_discovery *front)
{
	uint64_t now_ns = clock_now_ns();

	front->credit_ns =
		MIN(front->credit_ns + now_ns - front->credited_ns, ANSWERS_MAX * ANSWER_EVERY);
	front->credited_ns = now_ns;
	if (front->credit_ns < ANSWER_EVERY)
		return false;
	front->credit_ns -= ANSWER_EVERY;
	return true;
}

/* True: an answer is on its way, and the slot busy until it went. */
static bool answer(struct front_discovery *front, const struct rp_wc *wc)
{
	uint8_t *slot = slot_at(front, wc->wr_id);
	struct discovery_wire *reply = (void *)(slot + RECV_BYTES);
	struct rp_sge sge = {(uintptr_t)reply, sizeof(*reply), rp_mr_lkey(front->mr)};
	struct rp_send_wr wr = {.wr_id = wc->wr_id,
		.opcode = RP_SEND,
		.flags = RP_SEND_SIGNALED,
		.sg_list = &sge,
		.sge_count = 1,
		.remote_qpn = wc->src_qpn,
		.remote_qkey = RP_GROUP_QKEY};
	uint64_t nonce;
	uint32_t posted;

	if (wc->byte_len < RP_GRH_BYTES ||
		!discovery_is_ask(slot + RP_GRH_BYTES, wc->byte_len - RP_GRH_BYTES, &nonce)) {
		counter_add(&nonsense, 1);
		return false;
	}
	if (!may_answer(front)) {
		counter_add(&refusals, 1);
		return false;
	}
	*reply = front->about;
	discovery_answer(nonce, reply);
	if (rp_ah_from_wc(front->pd, wc, slot, &wr.ah) ||
		rp_post_send(front->qp, &wr, 1, &posted)) {
		rp_ah_close(wr.ah);
		counter_add(&failures, 1);
		return false;
	}
	front->to[wc->wr_id] = wr.ah;
	counter_add(&answers, 1);
	return true;
}

static void on_wc(struct front_discovery *front, const struct rp_wc *wc)
{
	if (wc->opcode == RP_RECV && wc->status == RP_WC_SUCCESS && answer(front, wc))
		return;
	rp_ah_close(front->to[wc->wr_id]);
	front->to[wc->wr_id] = NULL;
	if (rp_qp_state(front->qp) == RP_QPS_RTS && slot_post(front, wc->wr_id))
		log_warn("discovery", "a receive cannot be posted");
}

static void *discovery_main(void *arg)
{
	struct front_discovery *front = arg;
	struct pollfd waits[] = {{.fd = front->stop_fd, .events = POLLIN},
		{.fd = rp_cm_fd(front->device), .events = POLLIN},
		{.fd = rp_cq_fd(front->cq), .events = POLLIN}};

	while (!(waits[0].revents & POLLIN)) {
		struct rp_cm_event event;
		struct rp_wc wc;

		while (rp_cm_poll(front->device, &event) > 0) {
			if (event.type == RP_CM_GROUP_FAILED)
				log_warn("discovery",
					"the group cannot be joined: `nebulaio discover` does not "
					"find this server");
		}
		while (rp_cq_poll(front->cq, &wc, 1) > 0)
			on_wc(front, &wc);
		if (rp_cq_arm(front->cq))
			poll(waits, ARRAY_LEN(waits), -1);
		else
			poll(waits, ARRAY_LEN(waits), 0);
		rp_cq_disarm(front->cq);
	}
	return NULL;
}

/* ---- Opening and closing. ---- */

/* An address of "any" says nothing to those who look: the device's own does. */
static void address_say(struct front_discovery *front, const char *address)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	struct rp_device_attr attr;
	struct rp_address at;
	char *text = front->about.address;
	size_t room = sizeof(front->about.address);

	rp_device_attr(front->device, &attr);
	if (address[0] && strcmp(address, "0.0.0.0") != 0 && strcmp(address, "::") != 0)
		snprintf(text, room, "%s", address);
	else if (attr.simulated)
		snprintf(text, room, "127.0.0.1");
	else if (!rp_qp_address(front->qp, &at) && at.has_gid) {
		if (!memcmp(at.gid, mapped, sizeof(mapped)))
			inet_ntop(AF_INET, at.gid + 12, text, (socklen_t)room);
		else
			inet_ntop(AF_INET6, at.gid, text, (socklen_t)room);
	}
}

static void about_fill(struct front_discovery *front, const struct front_discovery_opts *opts)
{
	struct discovery_wire *about = &front->about;
	struct rp_device_attr attr;
	struct rp_address at;

	rp_device_attr(front->device, &attr);
	about->rdma_port = opts->rdma_port;
	about->http_port = opts->http_port;
	if (!rp_qp_address(front->qp, &at))
		memcpy(about->gid, at.gid, sizeof(about->gid));
	if (gethostname(about->name, sizeof(about->name) - 1))
		snprintf(about->name, sizeof(about->name), "?");
	address_say(front, opts->address);
	slice_copy_str(slice_to(slice_str(attr.name), sizeof(about->device) - 1), about->device,
		sizeof(about->device));
	slice_copy_str(slice_to(slice_str(attr.transport), sizeof(about->transport) - 1),
		about->transport, sizeof(about->transport));
	snprintf(about->release, sizeof(about->release), "%s", opts->release);
	snprintf(about->zone, sizeof(about->zone), "%s", opts->zone);
	snprintf(about->note, sizeof(about->note), "%s", opts->note);
}

static int queues_open(struct front_discovery *front)
{
	struct rp_mr_opts mr = {
		.bytes = SLOTS * SLOT_BYTES, .access = RP_ACCESS_LOCAL_WRITE, .fd = -1};
	struct rp_qp_attr attr = {.type = RP_QP_UD,
		.qkey = RP_GROUP_QKEY,
		.cap = {.max_send_wr = SLOTS,
			.max_recv_wr = SLOTS,
			.max_send_sge = 1,
			.max_recv_sge = 1}};
	int err;

	front->memory = aligned_alloc(4096, SLOTS * SLOT_BYTES);
	if (!front->memory)
		return -ENOMEM;
	memset(front->memory, 0, SLOTS * SLOT_BYTES);
	mr.addr = front->memory;
	err = rp_pd_open(front->device, &front->pd);
	if (!err)
		err = rp_mr_open(front->pd, &mr, &front->mr);
	if (!err)
		err = rp_cq_open(front->device, 2 * SLOTS, front, &front->cq);
	attr.send_cq = attr.recv_cq = front->cq;
	if (!err)
		err = rp_qp_open(front->pd, &attr, &front->qp);
	for (uint64_t slot = 0; slot < SLOTS && !err; slot++)
		err = slot_post(front, slot);
	return err;
}

int front_discovery_open(
	const struct front_discovery_opts *opts, struct front_discovery **ret_front)
{
	struct front_discovery *front = calloc(1, sizeof(*front));
	int err;

	if (!front)
		return -ENOMEM;
	front->credited_ns = clock_now_ns();
	front->credit_ns = ANSWERS_MAX * ANSWER_EVERY;
	front->stop_fd = eventfd(0, EFD_CLOEXEC);
	err = front->stop_fd < 0 ? -errno : rp_open(&opts->device, &front->device);
	if (!err)
		err = queues_open(front);
	if (!err)
		err = rp_group_join(front->qp, opts->group, front, &front->group);
	if (!err) {
		about_fill(front, opts);
		err = -pthread_create(&front->thread, NULL, discovery_main, front);
		front->started = !err;
	}
	if (err) {
		front_discovery_close(front);
		return err;
	}
	*ret_front = front;
	return 0;
}

void front_discovery_close(struct front_discovery *front)
{
	const uint64_t one = 1;

	if (!front)
		return;
	if (front->started) {
		CHECK(write(front->stop_fd, &one, sizeof(one)) == sizeof(one));
		pthread_join(front->thread, NULL);
	}
	rp_group_leave(front->group);
	rp_qp_close(front->qp);
	for (size_t slot = 0; slot < SLOTS; slot++)
		rp_ah_close(front->to[slot]);
	rp_mr_close(front->mr);
	rp_cq_close(front->cq);
	rp_pd_close(front->pd);
	if (front->device)
		rp_close(front->device);
	if (front->stop_fd >= 0)
		close(front->stop_fd);
	free(front->memory);
	free(front);
}
