/* remote/initiator.c: the life of a lane, which is one queue pair of one reactor to one volume:
 * connecting, proving, failing, and connecting again after a while. Slow path. */
#include "remote/remote_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

DEFINE_COUNTER(connected, "nebulaio_remote_connections_total", "result=\"open\"",
	"Connections to volumes of other hosts, by result of the set-up.");
DEFINE_COUNTER(failed, "nebulaio_remote_connections_total", "result=\"failed\"",
	"Connections to volumes of other hosts, by result of the set-up.");
DEFINE_COUNTER(lost, "nebulaio_remote_connections_lost_total", NULL,
	"Connections to volumes of other hosts that broke.");

/* ---- Work requests. ---- */

int remote_recv_post(struct remote_lane *lane, uint32_t n)
{
	return capsules_recv_post(
		&lane->capsules, lane->qp, work_id(lane->idx, lane->life, WORK_RECV, n));
}

int remote_send(struct remote_lane *lane, uint32_t n)
{
	return capsules_send_post(
		&lane->capsules, lane->qp, work_id(lane->idx, lane->life, WORK_SEND, n));
}

/* ---- Connecting. ---- */

static void lane_go(struct remote_lane *lane, enum lane_state state)
{
	lane->state = state;
	lane->since_ns = clock_now_ns();
}

static int lane_qp_open(struct remote_lane *lane)
{
	struct rp_port *port = lane->port->port;
	const struct rp_qp_attr attr = {
		.type = RP_QP_RC,
		.send_cq = rp_port_cq(port),
		.recv_cq = rp_port_cq(port),
		.cap = {.max_send_wr = REMOTE_SEND_WRS,
			.max_recv_wr = REMOTE_RECVS,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.retry_count = 7,
		.rnr_retry_count = 7,
		.context = lane,
	};
	int ret = rp_qp_open(rp_port_pd(port), &attr, &lane->qp);

	for (uint32_t n = 0; n < REMOTE_RECVS && !ret; n++)
		ret = remote_recv_post(lane, n);
	return ret;
}

static void lane_connect(struct remote_lane *lane)
{
	const struct remote_private hello = {.magic = WIRE_MAGIC, .version = WIRE_VERSION};
	struct remote_volume *volume = lane->volume;
	int ret;

	lane->life++;
	lane->depth = 0;
	lane->counter_out = 0;
	lane->counter_in = 0;
	lane_go(lane, LANE_CONNECTING);
	ret = lane_qp_open(lane);
	if (!ret)
		ret = rp_connect(lane->qp, volume->host, volume->port, &hello, sizeof(hello),
			lane->since_ns + volume->remote->opts.setup_ns);
	if (ret)
		remote_lane_fail(lane, ret, strerror(-ret));
}

static void hello_send(struct remote_lane *lane)
{
	struct remote_volume *volume = lane->volume;
	struct wire_hello *hello = &lane->hello;

	memset(hello, 0, sizeof(*hello));
	wire_head_fill(&hello->head, WIRE_HELLO, sizeof(*hello), 0);
	hello->flags = volume->read_only ? WIRE_HELLO_READ_ONLY : 0;
	hello->depth = REMOTE_DEPTH;
	hello->lane = lane->port->number;
	memcpy(hello->holder, volume->remote->holder, sizeof(hello->holder));
	random_fill(hello->nonce, sizeof(hello->nonce));
	snprintf(hello->name, sizeof(hello->name), "%s", volume->name);
	wire_epoch_set(hello, volume->remote->opts.epoch);
	lane->capsules.sends[REMOTE_DEPTH].hello = *hello;
	lane_go(lane, LANE_HELLO);
	if (remote_send(lane, REMOTE_DEPTH))
		remote_lane_fail(lane, -EIO, "the hello cannot be posted");
}

static void proof_send(struct remote_lane *lane, const struct wire_challenge *challenge)
{
	struct wire_proof *proof = &lane->capsules.sends[REMOTE_DEPTH].proof;

	wire_keys_make(
		&lane->keys, slice_str(lane->volume->remote->secret), &lane->hello, challenge);
	lane->depth = MIN((uint32_t)challenge->depth, REMOTE_DEPTH);
	wire_head_fill(&proof->head, WIRE_PROOF, sizeof(*proof), 0);
	wire_proof_make(&lane->keys, proof->proof);
	lane_go(lane, LANE_PROOF);
	if (remote_send(lane, REMOTE_DEPTH))
		remote_lane_fail(lane, -EIO, "the proof cannot be posted");
}

static void welcomed(struct remote_lane *lane, const struct wire_welcome *welcome)
{
	uint8_t proof[SHA256_BYTES];

	wire_welcome_make(&lane->keys, &welcome->identity, proof);
	if (!secret_equal(proof, welcome->proof, sizeof(proof))) {
		remote_lane_fail(lane, -EACCES, "it does not know the secret");
		return;
	}
	lane_go(lane, LANE_OPEN);
	lane->said_ns = lane->since_ns;
	lane->backoff_ns = 0;
	lane->error = 0;
	lane->quiet = false;
	counter_add(&connected, 1);
	remote_volume_opened(lane, &welcome->identity);
}

static int refused_errno(uint32_t reason)
{
	switch (reason) {
	case WIRE_NO_VOLUME:
		return -ENXIO;
	case WIRE_WRONG_SECRET:
		return -EACCES;
	case WIRE_BUSY:
	case WIRE_FULL:
		return -EBUSY;
	case WIRE_STALE:
		return -ESTALE;
	default:
		return -EPROTO;
	}
}

void remote_setup_heard(struct remote_lane *lane, const union wire_capsule *capsule, uint32_t bytes)
{
	const struct remote_opts *opts = &lane->volume->remote->opts;

	if (wire_check(capsule, bytes, WIRE_REFUSE) == 0) {
		if (capsule->refuse.reason == WIRE_STALE && opts->stale)
			opts->stale(opts->stale_arg);
		remote_lane_fail(lane, refused_errno(capsule->refuse.reason),
			wire_reason_text(capsule->refuse.reason));
	} else if (lane->state == LANE_HELLO && wire_check(capsule, bytes, WIRE_CHALLENGE) == 0 &&
		   capsule->challenge.transfer_max >= WIRE_TRANSFER_MAX) {
		proof_send(lane, &capsule->challenge);
	} else if (lane->state == LANE_PROOF && wire_check(capsule, bytes, WIRE_WELCOME) == 0) {
		welcomed(lane, &capsule->welcome);
	} else {
		remote_lane_fail(lane, -EPROTO, "it sent an unexpected answer");
	}
}

void remote_event(void *arg, struct rp_cm_event *event)
{
	struct remote_port *port = (struct remote_port *)arg;
	struct remote_lane *lane =
		event->qp ? (struct remote_lane *)rp_qp_context(event->qp) : NULL;

	if (event->type == RP_CM_DEVICE_FATAL) {
		for (uint32_t i = 0; i < REMOTE_LANES_MAX; i++)
			if (port->lanes[i])
				remote_lane_fail(port->lanes[i], -ENODEV, "the device failed");
		return;
	}
	if (!lane || lane->qp != event->qp)
		return;
	if (event->type == RP_CM_ESTABLISHED) {
		if (lane->state == LANE_CONNECTING)
			hello_send(lane);
	} else if (event->type == RP_CM_REJECTED) {
		remote_lane_fail(lane, -ECONNREFUSED,
			event->why ? event->why
				   : "it refuses the connection, and its log says why");
	} else if (event->type == RP_CM_UNREACHABLE) {
		remote_lane_fail(lane, -EHOSTUNREACH,
			event->late ? "nobody answered there in time" : "nothing listens there");
	} else {
		remote_lane_fail(lane, -ENOTCONN, "it is gone");
	}
}

/* ---- Failing, and after it. ---- */

void remote_lane_fail(struct remote_lane *lane, int error, const char *why)
{
	bool was_open = lane->state == LANE_OPEN;

	if (lane->state == LANE_FAILED || lane->state == LANE_WAITING)
		return;
	lane_go(lane, LANE_FAILED);
	lane->error = error;
	counter_add(was_open ? &lost : &failed, 1);
	if (was_open || !lane->quiet)
		log_warn("remote", "%s, core %d: %s%s", lane->volume->path,
			(int)lane->port->number - 1,
			was_open ? "lost: " : "cannot be reached: ", why);
	lane->quiet = true;
	if (lane->qp) {
		rp_disconnect(lane->qp);
		rp_qp_error(lane->qp);
	}
	if (was_open)
		remote_volume_lost(lane, true);
	/* The queue pair is not closed here, because it may be the caller. */
	reactor_timer_set(lane->port->reactor, &lane->timer, 0);
}

/* The queue pair is closed first: then no peer reaches the memory of operations under way. */
static void lane_reap(struct remote_lane *lane)
{
	rp_qp_close(lane->qp);
	lane->qp = NULL;
	secret_wipe(&lane->keys, sizeof(lane->keys));
	remote_volume_lost(lane, false);
	remote_drop(lane);
}

static uint64_t backoff_next(struct remote_lane *lane)
{
	uint64_t jitter;

	lane->backoff_ns = lane->backoff_ns
				   ? MIN(lane->backoff_ns * 2, (uint64_t)REMOTE_BACKOFF_MAX_NS)
				   : (uint64_t)REMOTE_BACKOFF_NS;
	random_fill(&jitter, sizeof(jitter));
	return lane->backoff_ns / 2 + jitter % lane->backoff_ns;
}

static void lane_due(struct reactor_timer *timer, void *arg)
{
	struct remote_lane *lane = (struct remote_lane *)arg;

	if (lane->state == LANE_FAILED) {
		lane_reap(lane);
		lane_go(lane, LANE_WAITING);
		reactor_timer_set(lane->port->reactor, timer, clock_now_ns() + backoff_next(lane));
	} else if (lane->state == LANE_WAITING) {
		lane_connect(lane);
	} else if (lane->state == LANE_OPEN) {
		remote_pump(lane);
	}
}

static bool lane_overdue(const struct remote_lane *lane, uint64_t now_ns)
{
	for (uint32_t n = 0; n < lane->depth; n++)
		if (lane->slots[n].busy && now_ns > lane->slots[n].deadline_ns)
			return true;
	return false;
}

static void port_tick(struct reactor_timer *timer, void *arg)
{
	struct remote_port *port = (struct remote_port *)arg;
	uint64_t now_ns = clock_now_ns();

	for (uint32_t i = 0; i < REMOTE_LANES_MAX; i++) {
		struct remote_lane *lane = port->lanes[i];

		if (!lane || lane->state == LANE_WAITING || lane->state == LANE_FAILED)
			continue;
		if (lane->state != LANE_OPEN) {
			if (now_ns > lane->since_ns + port->remote->opts.setup_ns)
				remote_lane_fail(lane, -ETIMEDOUT, "it does not answer");
		} else if (lane_overdue(lane, now_ns)) {
			remote_lane_fail(lane, -ETIMEDOUT, "a command got no answer");
		} else if (now_ns > lane->said_ns + REMOTE_IDLE_NS) {
			remote_word(lane);
		}
	}
	reactor_timer_set(port->reactor, timer, now_ns + REMOTE_TICK_NS);
}

/* ---- Lanes of a reactor. ---- */

/* Each capsule lies in a place of its own. */
int remote_lane_add(struct remote_port *port, struct remote_volume *volume)
{
	struct remote_lane *lane = calloc(1, sizeof(*lane));
	uint32_t idx = 0;
	int ret;

	while (idx < port->lanes_max && port->lanes[idx])
		idx++;
	if (!lane || idx == port->lanes_max) {
		free(lane);
		return idx == port->lanes_max ? -ENOSPC : -ENOMEM;
	}
	lane->volume = volume;
	lane->port = port;
	lane->idx = idx;
	/* Completions of an earlier lane in this place must not match. */
	random_fill(&lane->life, sizeof(lane->life));
	lane->state = LANE_WAITING;
	lane->quiet = volume->quiet;
	lane->timer = (struct reactor_timer){.fn = lane_due, .arg = lane};
	ret = capsules_open(port->region, port->port,
		(const uint32_t[]){REMOTE_SENDS, REMOTE_RECVS}, &lane->capsules);
	if (ret) {
		free(lane);
		return ret;
	}
	port->lanes[idx] = lane;
	if (port->lane_count++ == 0) {
		port->tick = (struct reactor_timer){.fn = port_tick, .arg = port};
		reactor_timer_set(port->reactor, &port->tick, clock_now_ns() + REMOTE_TICK_NS);
	}
	atomic_fetch_add(&volume->lanes_all, 1);
	volume->lanes[port->number] = lane;
	reactor_timer_set(port->reactor, &lane->timer, 0);
	return 0;
}

void remote_lane_remove(struct remote_lane *lane)
{
	struct remote_port *port = lane->port;

	reactor_timer_cancel(port->reactor, &lane->timer);
	lane->state = LANE_FAILED;
	rp_qp_close(lane->qp);
	remote_drop(lane);
	secret_wipe(&lane->keys, sizeof(lane->keys));
	capsules_close(port->region, &lane->capsules);
	lane->volume->lanes[port->number] = NULL;
	port->lanes[lane->idx] = NULL;
	if (--port->lane_count == 0)
		reactor_timer_cancel(port->reactor, &port->tick);
	free(lane);
}
