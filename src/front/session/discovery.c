/* front/session/discovery.c: answers clients that look for servers on the fabric: a UD queue pair
 * in a multicast group, with its own device handle and thread, so that it does not affect requests.
 * Abuse is limited: an answer is as long as its question, and the number of answers per second is
 * bounded. */
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
#include "rdma/datagram.h"

#define SLOTS	     16u
#define ANSWERS_MAX  64u /* in a burst, and per second */
#define ANSWER_EVERY (NS_PER_S / ANSWERS_MAX)

DEFINE_COUNTER(answers, "nebulaio_discovery_total", "result=\"answered\"",
	"Datagrams that looked for servers.");
DEFINE_COUNTER(refusals, "nebulaio_discovery_total", "result=\"too_many\"",
	"Datagrams that looked for servers.");
DEFINE_COUNTER(failures, "nebulaio_discovery_total", "result=\"failed\"",
	"Datagrams that looked for servers.");
DEFINE_COUNTER(nonsense, "nebulaio_discovery_total", "result=\"malformed\"",
	"Datagrams that looked for servers.");

struct front_discovery {
	struct rp_member member;
	struct discovery_wire about;
	uint64_t credit_ns; /* of answers not sent */
	uint64_t credited_ns;
	int stop_fd;
	bool started;
	pthread_t thread;
};

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

/* True: an answer was posted, and the slot is busy until it completes. */
static bool answer(struct front_discovery *front, const struct rp_wc *wc)
{
	const uint8_t *in = rp_member_in(&front->member, wc->wr_id) + RP_GRH_BYTES;
	struct discovery_wire *reply = (void *)rp_member_out(&front->member, wc->wr_id);
	uint64_t nonce;

	if (wc->byte_len < RP_GRH_BYTES ||
		!discovery_is_ask(in, wc->byte_len - RP_GRH_BYTES, &nonce)) {
		counter_add(&nonsense, 1);
		return false;
	}
	if (!may_answer(front)) {
		counter_add(&refusals, 1);
		return false;
	}
	*reply = front->about;
	discovery_answer(nonce, reply);
	if (rp_member_answer(&front->member, wc)) {
		counter_add(&failures, 1);
		return false;
	}
	counter_add(&answers, 1);
	return true;
}

static void on_wc(struct front_discovery *front, const struct rp_wc *wc)
{
	if (wc->opcode == RP_RECV && wc->status == RP_WC_SUCCESS && answer(front, wc))
		return;
	if (rp_qp_state(front->member.qp) == RP_QPS_RTS &&
		rp_member_post(&front->member, wc->wr_id))
		log_warn("discovery", "a receive cannot be posted");
}

static bool event_take(struct front_discovery *front)
{
	struct rp_cm_event event;

	if (rp_cm_poll(front->member.device, &event) <= 0)
		return false;
	if (event.type == RP_CM_GROUP_FAILED)
		log_warn("discovery", "the group cannot be joined: `nebulaio discover` cannot find "
				      "this server");
	return true;
}

static bool completion_take(struct front_discovery *front)
{
	struct rp_wc wc;

	if (rp_cq_poll(front->member.cq, &wc, 1) <= 0)
		return false;
	on_wc(front, &wc);
	return true;
}

/* The device was removed or reset: its descriptors report that for ever. */
static bool device_lost(const struct pollfd *wait)
{
	return wait->revents & (POLLERR | POLLNVAL) && !(wait->revents & POLLIN);
}

/* Looks whether it is to stop after a few of each, however fast datagrams come. */
static void *discovery_main(void *arg)
{
	struct front_discovery *front = arg;
	struct pollfd waits[] = {{.fd = front->stop_fd, .events = POLLIN},
		{.fd = rp_cm_fd(front->member.device), .events = POLLIN},
		{.fd = rp_cq_fd(front->member.cq), .events = POLLIN}};

	while (!(waits[0].revents & POLLIN)) {
		bool more = false;

		if (device_lost(&waits[1]) || device_lost(&waits[2])) {
			log_warn("discovery", "the device is gone: `nebulaio discover` cannot find "
					      "this server");
			break;
		}
		for (uint32_t i = 0; i < SLOTS; i++)
			more = event_take(front) + completion_take(front) > 0;
		if (!more && rp_cq_arm(front->member.cq))
			poll(waits, ARRAY_LEN(waits), -1);
		else
			poll(waits, ARRAY_LEN(waits), 0);
		rp_cq_disarm(front->member.cq);
	}
	return NULL;
}

/* ---- Opening and closing. ---- */

/* An address of "any" is useless to a client, so the device's own address is sent. */
static void address_say(struct front_discovery *front, const char *address)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	struct rp_device_attr attr;
	struct rp_address at;
	char *text = front->about.address;
	size_t room = sizeof(front->about.address);

	rp_device_attr(front->member.device, &attr);
	if (address[0] && strcmp(address, "0.0.0.0") != 0 && strcmp(address, "::") != 0)
		snprintf(text, room, "%s", address);
	else if (attr.simulated)
		snprintf(text, room, "127.0.0.1");
	else if (!rp_qp_address(front->member.qp, &at) && at.has_gid) {
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

	rp_device_attr(front->member.device, &attr);
	about->rdma_port = opts->rdma_port;
	about->http_port = opts->http_port;
	if (!rp_qp_address(front->member.qp, &at))
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

int front_discovery_open(
	const struct front_discovery_opts *opts, struct front_discovery **ret_front)
{
	const struct rp_member_opts member = {.device = opts->device,
		.group = opts->group,
		.slot_count = SLOTS,
		.bytes = DISCOVERY_BYTES};
	struct front_discovery *front = calloc(1, sizeof(*front));
	int err;

	if (!front)
		return -ENOMEM;
	front->credited_ns = clock_now_ns();
	front->credit_ns = ANSWERS_MAX * ANSWER_EVERY;
	front->stop_fd = eventfd(0, EFD_CLOEXEC);
	err = front->stop_fd < 0 ? -errno : rp_member_open(&member, &front->member);
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
	ssize_t written;

	if (!front)
		return;
	if (front->started) {
		written = write(front->stop_fd, &one, sizeof(one));
		CHECK(written == sizeof(one));
		pthread_join(front->thread, NULL);
	}
	rp_member_close(&front->member);
	if (front->stop_fd >= 0)
		close(front->stop_fd);
	free(front);
}
