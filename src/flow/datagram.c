/* flow/datagram.c: opens and closes datagram streams: queue pairs, groups, addresses. Slow path. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flow/datagram_priv.h"
#include "rdma/port.h"

#define QPN_MAX 0xffffffu

void datagram_fail(struct flow_datagram *self, int error, const char *why)
{
	if (self->error)
		return;
	self->error = error;
	snprintf(self->why, sizeof(self->why), "%s", why);
	if (self->opts.failed && self->joined)
		self->opts.failed(self->opts.arg);
	if (self->waiter)
		fiber_wake(self->waiter);
}

bool datagram_event(struct flow_fabric *fabric, const struct rp_cm_event *event)
{
	bool ours = false;

	LIST_FOR_EACH (at, &fabric->datagrams) {
		struct flow_datagram *self = CONTAINER_OF(at, struct flow_datagram, link);

		if (event->type == RP_CM_DEVICE_FATAL) {
			datagram_fail(self, -ENODEV, "the RDMA device failed");
			continue;
		}
		if (!event->qp || event->qp != self->qp)
			continue;
		ours = true;
		if (event->type == RP_CM_GROUP_JOINED)
			self->joined = true;
		else if (event->type == RP_CM_GROUP_FAILED)
			datagram_fail(self, -ECONNREFUSED, "the network refuses the group");
		else
			datagram_fail(self, -ENODEV, "the port is lost");
		if (self->waiter)
			fiber_wake(self->waiter);
	}
	return ours;
}

/* ---- Addresses. ---- */

/* "GID/NUMBER". */
static bool peer_parse(const char *text, struct rp_address *ret_address)
{
	const char *slash = strrchr(text, '/');
	char gid[64], *end;
	unsigned long qpn;

	*ret_address = (struct rp_address){.has_gid = true};
	if (!slash || slash - text >= (ptrdiff_t)sizeof(gid))
		return false;
	snprintf(gid, sizeof(gid), "%.*s", (int)(slash - text), text);
	qpn = strtoul(slash + 1, &end, 10);
	ret_address->qpn = (uint32_t)qpn;
	return slash[1] >= '0' && slash[1] <= '9' && !*end && qpn <= QPN_MAX &&
	       inet_pton(AF_INET6, gid, ret_address->gid) == 1;
}

static int name_make(struct flow_datagram *self)
{
	const uint8_t *mac = self->opts.mac;
	struct rp_address own;
	char gid[INET6_ADDRSTRLEN];
	int ret;

	if (self->opts.raw) {
		snprintf(self->name, sizeof(self->name),
			"raw:%02x-%02x-%02x-%02x-%02x-%02x,vlan=%u", mac[0], mac[1], mac[2], mac[3],
			mac[4], mac[5], self->opts.vlan);
		return 0;
	}
	if (self->opts.to[0]) {
		snprintf(self->name, sizeof(self->name), "ud:%s", self->opts.to);
		return 0;
	}
	ret = rp_qp_address(self->qp, &own);
	if (ret)
		return ret;
	inet_ntop(AF_INET6, own.gid, gid, sizeof(gid));
	snprintf(self->name, sizeof(self->name), "ud:%s/%u", gid, own.qpn);
	return 0;
}

/* ---- Opening. ---- */

static int qp_open(struct flow_datagram *self)
{
	struct flow_fabric *fabric = self->fabric;
	const struct rp_qp_attr attr = {
		.type = self->opts.raw ? RP_QP_RAW : RP_QP_UD,
		.qkey = self->opts.raw ? 0 : RP_GROUP_QKEY,
		.send_cq = fabric->cq,
		.recv_cq = fabric->cq,
		.cap = {.max_send_wr = 2 * DATAGRAM_BATCH,
			.max_recv_wr = DATAGRAM_WINDOW,
			.max_send_sge = 2,
			.max_recv_sge = 2},
	};
	int ret = rp_qp_open(fabric->pd, &attr, &self->qp);

	return ret ? ret : rp_qp_target(self->qp, fabric->core->region, &self->target);
}

/* Parks until the group is joined. */
static int group_join(struct flow_datagram *self)
{
	const uint64_t deadline_ns = clock_now_ns() + DATAGRAM_JOIN_NS;
	int ret = rp_group_join(self->qp, self->opts.to, &self->group);

	if (ret)
		return ret;
	self->waiter = fiber_self();
	while (!self->joined && !self->error) {
		if (fiber_park_until(deadline_ns) == -ETIMEDOUT)
			datagram_fail(self, -ETIMEDOUT, "the network does not answer");
	}
	self->waiter = NULL;
	if (!self->error)
		rp_target_aim(self->qp, rp_group_ah(self->group), RP_GROUP_QPN, RP_GROUP_QKEY);
	return self->error;
}

static int ways_open(struct flow_datagram *self)
{
	struct rp_flow_rule rule = {.ether_type = self->opts.ether_type, .vlan = self->opts.vlan};
	struct rp_address peer;
	int ret;

	if (self->opts.raw) {
		memcpy(rule.dst_mac, self->opts.mac, sizeof(rule.dst_mac));
		return self->opts.sends ? 0 : rp_flow_open(self->qp, &rule, &self->flow);
	}
	if (!self->opts.to[0])
		return self->opts.sends ? -EINVAL : 0;
	if (!strchr(self->opts.to, '/'))
		return group_join(self);
	if (!self->opts.sends || !peer_parse(self->opts.to, &peer))
		return -EINVAL;
	ret = rp_ah_reach(self->fabric->pd, &peer, &self->ah);
	if (!ret)
		rp_target_aim(self->qp, self->ah, peer.qpn, RP_GROUP_QKEY);
	return ret;
}

static int memory_open(struct flow_datagram *self)
{
	const uint32_t bytes = self->opts.sends ? DATAGRAM_BATCH * DATAGRAM_SEND_SLOT
						: DATAGRAM_WINDOW * DATAGRAM_RECEIVE_SLOT;
	const struct flow_want want = {.frame_count = region_frames_for(bytes),
		.owner = OWNER_RDMA,
		.deadline_ns = DEADLINE_NONE};

	if (!self->opts.sends) {
		self->receives = calloc(DATAGRAM_WINDOW, sizeof(*self->receives));
		if (!self->receives)
			return -ENOMEM;
	}
	return flow_lease(self->core, &want, &self->heads);
}

static void ends_init(struct flow_datagram *self)
{
	const struct rp_device_attr *attr = &self->fabric->attr;

	self->front = !self->opts.raw	? RP_GRH_BYTES
		      : self->opts.vlan ? DATAGRAM_ETHER_BYTES + DATAGRAM_TAG_BYTES
					: DATAGRAM_ETHER_BYTES;
	self->payload_bytes = self->opts.raw
				      ? DATAGRAM_RAW_PAYLOAD
				      : (uint32_t)ALIGN_DOWN(MIN(attr->active_mtu, FRAME_BYTES) -
								     sizeof(struct datagram_head),
						DATAGRAM_UNIT);
	random_fill((uint8_t *)&self->stream, sizeof(self->stream));
	random_fill(self->own_mac, sizeof(self->own_mac));
	self->own_mac[0] = 0x02; /* locally administered */
	self->source = (struct flow_source){.magic = FLOW_SOURCE_MAGIC,
		.ops = &DATAGRAM_SOURCE_OPS,
		.core = self->core,
		.bytes_total = UINT64_MAX,
		.deadline_ns = DEADLINE_NONE};
	self->sink = (struct flow_sink){.magic = FLOW_SINK_MAGIC,
		.ops = &DATAGRAM_SINK_OPS,
		.core = self->core,
		.deadline_ns = DEADLINE_NONE};
}

int flow_datagram_open(struct flow_fabric *fabric, const struct flow_datagram_opts *opts,
	struct flow_datagram **ret_datagram)
{
	struct flow_datagram *self = calloc(1, sizeof(*self));
	int ret;

	if (!self)
		return -ENOMEM;
	self->fabric = fabric;
	self->core = fabric->core;
	self->opts = *opts;
	ends_init(self);
	list_push_back(&fabric->datagrams, &self->link);
	ret = self->payload_bytes ? memory_open(self) : -EOPNOTSUPP;
	if (!ret)
		ret = qp_open(self);
	if (!ret)
		ret = ways_open(self);
	if (!ret)
		ret = name_make(self);
	if (ret) {
		snprintf(fabric->why, sizeof(fabric->why), "%s",
			self->why[0] ? self->why : strerror(-ret));
		flow_datagram_close(self);
		return ret;
	}
	self->joined = true;
	*ret_datagram = self;
	return 0;
}

/* ---- Closing. ---- */

static bool is_idle(const struct flow_datagram *self)
{
	bool idle = true;

	for (uint32_t i = 0; self->receives && i < DATAGRAM_WINDOW; i++)
		idle &= !self->receives[i].io.pending;
	return idle;
}

void flow_datagram_close(struct flow_datagram *self)
{
	struct region *region;

	if (!self)
		return;
	region = self->core->region;
	self->opts.failed = NULL;
	self->waiter = NULL;
	rp_flow_close(self->flow);
	rp_group_leave(self->group);
	rp_qp_close(self->qp); /* outstanding receives complete as cancelled */
	self->qp = NULL;
	rp_ah_close(self->ah);
	while (!is_idle(self))
		fiber_yield();
	for (uint32_t i = 0; self->receives && i < DATAGRAM_WINDOW; i++) {
		if (self->receives[i].span.data)
			region_give(region, self->receives[i].span, OWNER_RDMA);
	}
	if (self->heads.data)
		region_give(region, self->heads, OWNER_RDMA);
	list_remove(&self->link);
	free(self->receives);
	free(self);
}

const char *flow_datagram_name(const struct flow_datagram *self)
{
	return self->name;
}

const char *flow_datagram_why(const struct flow_datagram *self)
{
	return self->why;
}

void flow_datagram_stats(const struct flow_datagram *self, struct flow_datagram_stats *ret_stats)
{
	*ret_stats = self->stats;
}

void flow_datagram_interrupt(struct flow_datagram *self)
{
	self->interrupted = true;
	if (self->waiter)
		fiber_wake(self->waiter);
}

void flow_datagram_cut(struct flow_datagram *self)
{
	self->cutting = true;
	if (self->waiter)
		fiber_wake(self->waiter);
}

/* ---- The wire. ---- */

int datagram_head_decode(const void *data, uint32_t bytes, struct datagram_head *ret_head)
{
	struct datagram_head head;

	if (bytes < sizeof(head))
		return -EPROTO;
	memcpy(&head, data, sizeof(head));
	if (head.magic != DATAGRAM_MAGIC || head.version != DATAGRAM_VERSION ||
		head.kind < DATAGRAM_DATA || head.kind > DATAGRAM_FAILED ||
		(head.kind != DATAGRAM_END && head.crc))
		return -EPROTO;
	/* A datagram has a byte at least, and its payload a frame at most. */
	if (head.number > head.bytes || (head.bytes && !head.number) ||
		head.bytes / FRAME_BYTES > head.number)
		return -EPROTO;
	*ret_head = head;
	return 0;
}
