/* remote/target.c: exports this host's volumes: listens, sets connections up (hello, challenge,
 * proof), admits one writer to a volume, and ends connections that fail. Slow path. */
#include "remote/target_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

DEFINE_COUNTER(opened, "nebulaio_export_connections_total", "result=\"opened\"",
	"Connections of initiators, by result of the set-up.");
DEFINE_COUNTER(refused, "nebulaio_export_connections_total", "result=\"refused\"",
	"Connections of initiators, by result of the set-up.");

DEFINE_COUNTER(yielded, "nebulaio_export_connections_total", "result=\"yielded\"",
	"Connections of initiators, by result of the set-up.");

/* ---- Set-up. ---- */

int target_recv_post(struct target_lane *lane, uint32_t n)
{
	return capsules_recv_post(
		&lane->capsules, lane->qp, work_id(lane->idx, lane->life, WORK_RECV, n));
}

/* Sends the capsule in the last place of sends but one, or in the last. */
static void word_send(struct target_lane *lane, uint32_t n)
{
	if (capsules_send_post(
		    &lane->capsules, lane->qp, work_id(lane->idx, lane->life, WORK_SEND, n)))
		target_lane_fail(lane, "a word cannot be posted");
}

void target_refuse(struct target_lane *lane, enum wire_reason reason)
{
	struct wire_refuse *word = &lane->capsules.sends[TARGET_SLOTS].refuse;

	counter_add(&refused, 1);
	log_limited(LOG_WARN, "export", "%s: refused: %s", lane->peer, wire_reason_text(reason));
	memset(word, 0, sizeof(*word));
	wire_head_fill(&word->head, WIRE_REFUSE, sizeof(*word), 0);
	word->reason = reason;
	lane->state = TARGET_REFUSED;
	word_send(lane, TARGET_SLOTS);
}

static void hello_heard(struct target_lane *lane, const struct wire_hello *hello)
{
	struct wire_challenge *challenge = &lane->challenge;

	lane->hello = *hello;
	memset(challenge, 0, sizeof(*challenge));
	wire_head_fill(&challenge->head, WIRE_CHALLENGE, sizeof(*challenge), 0);
	challenge->depth = (uint16_t)MIN(hello->depth, REMOTE_DEPTH);
	challenge->transfer_max = WIRE_TRANSFER_MAX;
	random_fill(challenge->nonce, sizeof(challenge->nonce));
	lane->capsules.sends[TARGET_SLOTS].challenge = *challenge;
	lane->state = TARGET_PROOF;
	word_send(lane, TARGET_SLOTS);
}

/* One server at a time writes to a volume; of one server, a reactor has one connection. The earlier
 * connection's work at the volume must be over before a new one begins. */
static bool volume_busy(struct target_lane *lane, struct target_volume *volume)
{
	struct remote_target *target = lane->target;
	bool busy = false;

	if (lane->hello.flags & WIRE_HELLO_READ_ONLY)
		return false;
	if (volume->writers &&
		memcmp(volume->holder, lane->hello.holder, sizeof(volume->holder)) != 0)
		return true;
	for (uint32_t i = 0; i < TARGET_LANES_MAX; i++) {
		struct target_lane *other = target->lanes[i];

		if (!other || other == lane || other->volume != volume || !other->writes ||
			other->hello.lane != lane->hello.lane)
			continue;
		target_lane_fail(other, "its initiator connects again");
		busy = true;
	}
	return busy;
}

static struct target_volume *volume_of(struct remote_target *target, const char *name)
{
	for (uint32_t i = 0; i < target->opts.export_count; i++)
		if (strcmp(target->volumes[i].name, name) == 0)
			return &target->volumes[i];
	return NULL;
}

static void welcome(struct target_lane *lane, struct target_volume *volume)
{
	struct wire_welcome *word = &lane->capsules.sends[TARGET_SLOTS + 1].welcome;
	const struct disk *disk = volume->export.disk;
	struct wire_identity *identity = &word->identity;

	memset(word, 0, sizeof(*word));
	wire_head_fill(&word->head, WIRE_WELCOME, sizeof(*word), 0);
	identity->bytes = disk_bytes(disk);
	identity->medium_bytes = disk_medium_bytes(disk);
	identity->align = disk_align(disk);
	identity->flags = (disk_can_grow(disk) ? WIRE_CAN_GROW : 0) |
			  (disk_can_discard(disk) ? WIRE_CAN_DISCARD : 0);
	snprintf(identity->what, sizeof(identity->what), "%.63s", disk_describe(disk));
	wire_welcome_make(&lane->keys, identity, word->proof);
	lane->volume = volume;
	lane->writes = !(lane->hello.flags & WIRE_HELLO_READ_ONLY);
	if (lane->writes) {
		memcpy(volume->holder, lane->hello.holder, sizeof(volume->holder));
		volume->writers++;
	}
	lane->state = TARGET_OPEN;
	lane->heard_ns = clock_now_ns();
	counter_add(&opened, 1);
	log_info("export", "%s: %s volume %s, as its reactor %u", lane->peer,
		lane->writes ? "writes" : "reads", volume->name, lane->hello.lane);
	word_send(lane, TARGET_SLOTS + 1);
}

static void proof_heard(struct target_lane *lane, const struct wire_proof *proof)
{
	struct target_volume *volume = volume_of(lane->target, lane->hello.name);
	uint8_t wanted[SHA256_BYTES];

	wire_keys_make(
		&lane->keys, slice_str(lane->target->secret), &lane->hello, &lane->challenge);
	wire_proof_make(&lane->keys, wanted);
	if (!secret_equal(wanted, proof->proof, sizeof(wanted)))
		target_refuse(lane, WIRE_WRONG_SECRET);
	else if (!volume)
		target_refuse(lane, WIRE_NO_VOLUME);
	else
		target_admit(lane, volume);
}

void target_enter(struct target_lane *lane, struct target_volume *volume)
{
	if (volume_busy(lane, volume))
		target_refuse(lane, WIRE_BUSY);
	else
		welcome(lane, volume);
}

void target_setup_heard(struct target_lane *lane, const union wire_capsule *capsule, uint32_t bytes)
{
	if (lane->state == TARGET_HELLO && wire_check(capsule, bytes, WIRE_HELLO) == 0)
		hello_heard(lane, &capsule->hello);
	else if (lane->state == TARGET_PROOF && wire_check(capsule, bytes, WIRE_PROOF) == 0)
		proof_heard(lane, &capsule->proof);
	else if (lane->state != TARGET_REFUSED)
		target_refuse(lane, WIRE_MALFORMED);
}

/* ---- Connections. ---- */

void target_lane_fail(struct target_lane *lane, const char *why)
{
	if (lane->state == TARGET_FAILED)
		return;
	lane->state = TARGET_FAILED;
	if (why && lane->volume)
		log_info("export", "%s: %s: volume %s", lane->peer, why, lane->volume->name);
	else if (why)
		log_limited(LOG_INFO, "export", "%s: %s", lane->peer, why);
	rp_disconnect(lane->qp);
	rp_qp_error(lane->qp);
	/* The queue pair is not closed here, because it may be the caller. */
	reactor_timer_set(lane->target->opts.reactor, &lane->timer, 0);
}

void target_lane_settle(struct target_lane *lane)
{
	struct remote_target *target = lane->target;
	struct target_volume *volume = lane->volume;

	if (lane->qp || lane->working)
		return;
	if (lane->writes)
		lane->volume->writers--;
	reactor_timer_cancel(target->opts.reactor, &lane->timer);
	capsules_close(target->opts.region, &lane->capsules);
	secret_wipe(&lane->keys, sizeof(lane->keys));
	target->lanes[lane->idx] = NULL;
	target->lane_count--;
	if (target->drainer)
		fiber_wake(target->drainer);
	free(lane);
	if (volume)
		target_fence_advance(volume);
}

/* The queue pair is closed first: then nothing moves into or out of the frames. */
static void lane_due(struct reactor_timer *timer, void *arg)
{
	struct target_lane *lane = (struct target_lane *)arg;

	(void)timer;
	rp_qp_close(lane->qp);
	lane->qp = NULL;
	target_slots_drop(lane);
	target_lane_settle(lane);
}

static int lane_qp_open(struct target_lane *lane)
{
	struct remote_target *target = lane->target;
	const struct rp_qp_attr attr = {
		.type = RP_QP_RC,
		.send_cq = rp_port_cq(target->port),
		.recv_cq = rp_port_cq(target->port),
		.cap = {.max_send_wr = TARGET_SEND_WRS,
			.max_recv_wr = TARGET_RECVS,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.retry_count = 7,
		.rnr_retry_count = 7,
		.context = lane,
	};
	int ret = rp_qp_open(rp_port_pd(target->port), &attr, &lane->qp);

	for (uint32_t n = 0; n < TARGET_RECVS && !ret; n++)
		ret = target_recv_post(lane, n);
	return ret;
}

static int lane_init(struct target_lane *lane)
{
	struct remote_target *target = lane->target;
	int ret = capsules_open(target->opts.region, target->port,
		(const uint32_t[]){TARGET_SENDS, TARGET_RECVS}, &lane->capsules);

	if (ret)
		return ret;
	lane->timer = (struct reactor_timer){.fn = lane_due, .arg = lane};
	for (uint32_t n = 0; n < TARGET_SLOTS; n++) {
		lane->slots[n].lane = lane;
		lane->slots[n].n = n;
		list_init(&lane->slots[n].starved);
	}
	return lane_qp_open(lane);
}

static bool unproven(const struct target_lane *lane)
{
	return lane->state == TARGET_HELLO || lane->state == TARGET_PROOF ||
	       lane->state == TARGET_REFUSED;
}

/* Anybody on the fabric may connect: those who have not proven the secret have a part of the
 * places, and the one that has taken longest gives way to the next. Its place is free at once,
 * because others may follow before the next timers. */
static void unproven_limit(struct remote_target *target)
{
	struct target_lane *oldest = NULL;
	uint32_t count = 0;

	for (uint32_t i = 0; i < TARGET_LANES_MAX; i++) {
		struct target_lane *lane = target->lanes[i];

		if (!lane || !unproven(lane))
			continue;
		count++;
		if (!oldest || lane->heard_ns < oldest->heard_ns)
			oldest = lane;
	}
	if (oldest && count >= MAX(target->lanes_max / TARGET_UNPROVEN_PART, 1u)) {
		counter_add(&yielded, 1);
		target_lane_fail(oldest, "it has not proven the secret, and others come");
		lane_due(&oldest->timer, oldest);
	}
}

static int lane_accept(struct remote_target *target, struct rp_cm_event *event)
{
	const struct remote_private answer = {.magic = WIRE_MAGIC, .version = WIRE_VERSION};
	struct target_lane *lane = calloc(1, sizeof(*lane));
	uint32_t idx = 0;
	int ret;

	unproven_limit(target);
	while (idx < target->lanes_max && target->lanes[idx])
		idx++;
	if (!lane || idx == target->lanes_max) {
		free(lane);
		return -ENOSPC;
	}
	lane->target = target;
	lane->idx = idx;
	/* Completions of an earlier connection in this place must not match. */
	random_fill(&lane->life, sizeof(lane->life));
	lane->heard_ns = clock_now_ns();
	snprintf(lane->peer, sizeof(lane->peer), "%s", event->peer);
	ret = lane_init(lane);
	if (!ret)
		ret = rp_accept(event->request, lane->qp, &answer, sizeof(answer));
	if (ret) {
		rp_reject(event->request, NULL, 0);
		rp_qp_close(lane->qp);
		capsules_close(target->opts.region, &lane->capsules);
		free(lane);
		log_limited(LOG_WARN, "export", "%s: cannot be served: %s", event->peer,
			strerror(-ret));
		return 0;
	}
	target->lanes[idx] = lane;
	target->lane_count++;
	return 0;
}

static void on_request(struct remote_target *target, struct rp_cm_event *event)
{
	struct remote_private hello = {0};

	memcpy(&hello, event->private_data, MIN(sizeof(hello), (size_t)event->private_len));
	if (hello.magic == WIRE_MAGIC && hello.version == WIRE_VERSION && !hello.reserved &&
		!target->drainer && lane_accept(target, event) == 0)
		return;
	if (hello.magic == WIRE_MAGIC && target->lane_count >= target->lanes_max)
		log_limited(LOG_WARN, "export",
			"%s: rejected: %u connections are the most that this memory allows: each "
			"event loop of a server has one to each volume: more with --memory",
			event->peer, target->lanes_max);
	else
		log_limited(LOG_WARN, "export", "%s: rejected: %s", event->peer,
			hello.magic == WIRE_MAGIC
				? "no memory for a connection, or the server is draining"
				: "it is no initiator of volumes");
	rp_reject(event->request, NULL, 0);
}

static void on_event(void *arg, struct rp_cm_event *event)
{
	struct remote_target *target = (struct remote_target *)arg;
	struct target_lane *lane =
		event->qp ? (struct target_lane *)rp_qp_context(event->qp) : NULL;

	if (event->type == RP_CM_CONNECT_REQUEST) {
		on_request(target, event);
	} else if (event->type == RP_CM_DEVICE_FATAL) {
		for (uint32_t i = 0; i < TARGET_LANES_MAX; i++)
			if (target->lanes[i])
				target_lane_fail(target->lanes[i], "the device failed");
		if (target->opts.failed)
			target->opts.failed(target->opts.failed_arg);
	} else if (lane && lane->qp == event->qp && event->type != RP_CM_ESTABLISHED) {
		target_lane_fail(lane, "the connection ended");
	}
}

/* An initiator that is silent this long has ended, or has given up the volume. */
static void tick(struct reactor_timer *timer, void *arg)
{
	struct remote_target *target = (struct remote_target *)arg;
	uint64_t now_ns = clock_now_ns();

	for (uint32_t i = 0; i < TARGET_LANES_MAX; i++) {
		struct target_lane *lane = target->lanes[i];
		uint64_t wait_ns = lane && lane->state == TARGET_OPEN ? REMOTE_SILENCE_NS
								      : target->opts.setup_ns;

		if (lane && now_ns > lane->heard_ns + wait_ns)
			target_lane_fail(lane, "it is silent");
	}
	target_starved_serve(target);
	reactor_timer_set(target->opts.reactor, timer, now_ns + REMOTE_TICK_NS);
}

/* ---- Opening and closing. ---- */

static uint32_t lanes_for(struct region *region)
{
	uint32_t bytes = (TARGET_SENDS + TARGET_RECVS) * (uint32_t)sizeof(union wire_capsule);
	struct region_usage usage;

	region_usage(region, &usage);
	return (uint32_t)MIN(MAX(usage.frames_total / TARGET_LANES_PART / region_frames_for(bytes),
				     TARGET_LANES_MIN),
		(uint64_t)TARGET_LANES_MAX);
}

static void lanes_limit(struct remote_target *target)
{
	const struct rp_device_attr *attr = rp_port_attr(target->port);
	uint32_t wanted = target->lanes_max;

	target->lanes_max = MIN(wanted, attr->max_cqe / TARGET_LANE_CQES);
	if (target->lanes_max < wanted)
		log_warn("export",
			"%s: its completion queues have %u entries: %u connections instead of %u",
			attr->name, attr->max_cqe, target->lanes_max, wanted);
}

static int volume_init(struct remote_target *target, struct target_volume *volume,
	const struct remote_export *export)
{
	volume->target = target;
	volume->export = *export;
	snprintf(volume->name, sizeof(volume->name), "%s", export->name);
	if (export->epoch_path && slice_copy_str(slice_str(export->epoch_path), volume->epoch_path,
					  sizeof(volume->epoch_path)))
		return -ENAMETOOLONG;
	return target_epoch_load(volume);
}

int remote_target_open(const struct remote_target_opts *opts, struct remote_target **ret_target)
{
	struct remote_target *target = calloc(1, sizeof(*target));
	int ret;

	if (!target)
		return -ENOMEM;
	CHECK(opts->export_count <= REMOTE_VOLUMES_MAX);
	target->opts = *opts;
	target->opts.setup_ns = opts->setup_ns ? opts->setup_ns : REMOTE_SETUP_NS;
	list_init(&target->starved);
	snprintf(target->secret, sizeof(target->secret), "%s", opts->secret);
	for (uint32_t i = 0; i < opts->export_count; i++) {
		ret = volume_init(target, &target->volumes[i], &opts->exports[i]);
		if (ret) {
			remote_target_close(target);
			return ret;
		}
	}
	target->lanes_max = lanes_for(opts->region);
	const struct rp_port_opts port = {
		.device = opts->device,
		.reactor = opts->reactor,
		.region = opts->region,
		.access = RP_ACCESS_LOCAL_WRITE,
		.cqe_count = target->lanes_max * TARGET_LANE_CQES,
		.name = "exported volumes",
		.on_wc = target_wc,
		.on_event = on_event,
		.arg = target,
	};
	ret = rp_port_open(&port, &target->port);
	if (!ret)
		lanes_limit(target);
	if (!ret)
		ret = rp_listen(rp_port_device(target->port), opts->address, opts->port, target,
			&target->listener);
	if (ret) {
		log_error("export", "%s: cannot listen on %s:%u: %s", opts->device.device_name,
			opts->address, opts->port, strerror(-ret));
		remote_target_close(target);
		return ret;
	}
	target->tick = (struct reactor_timer){.fn = tick, .arg = target};
	reactor_timer_set(opts->reactor, &target->tick, clock_now_ns() + REMOTE_TICK_NS);
	*ret_target = target;
	return 0;
}

uint16_t remote_target_port(const struct remote_target *target)
{
	return rp_listener_port(target->listener);
}

const struct rp_device_attr *remote_target_device(const struct remote_target *target)
{
	return rp_port_attr(target->port);
}

void remote_target_drain(struct remote_target *target)
{
	target->drainer = fiber_self();
	rp_listener_close(target->listener);
	target->listener = NULL;
	for (uint32_t i = 0; i < TARGET_LANES_MAX; i++)
		if (target->lanes[i])
			target_lane_fail(target->lanes[i], "the target ends");
	while (target->lane_count || target->keepers)
		fiber_park();
}

void remote_target_close(struct remote_target *target)
{
	if (!target)
		return;
	CHECK(target->lane_count == 0);
	if (target->tick.arg)
		reactor_timer_cancel(target->opts.reactor, &target->tick);
	rp_listener_close(target->listener);
	rp_port_close(target->port);
	secret_wipe(target->secret, sizeof(target->secret));
	free(target);
}
