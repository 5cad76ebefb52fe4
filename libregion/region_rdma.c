/* libregion/region_rdma.c: the region's RDMA device and its connections. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libregion/region_lib.h"

#define CONNECT_NS (10 * NS_PER_S)
/* A span and its parts, up to the device's limit. */
#define SGE_COUNT(region) MIN(1 + NEB_PARTS_MAX, (region)->device_attr.max_sge)

/* ---- Events. ---- */

static void on_event(struct neb_region *self, struct rp_cm_event *event)
{
	struct lib_conn *conn = event->qp ? rp_qp_context(event->qp) : NULL;

	if (event->type == RP_CM_CONNECT_REQUEST) {
		if (self->request.request)
			rp_reject(event->request, NULL, 0);
		else
			self->request = *event;
	} else if (conn &&
		   (event->type == RP_CM_ESTABLISHED || event->type == RP_CM_GROUP_JOINED)) {
		conn->connected = true;
	} else if (conn) {
		conn->connected = false;
		conn->failed = true;
		rp_qp_error(conn->qp);
	}
}

static uint32_t cm_poll(void *arg)
{
	struct neb_region *self = arg;
	struct rp_cm_event event;
	uint32_t count = 0;

	while (count < LIB_CONNS_MAX && rp_cm_poll(self->device, &event) > 0) {
		on_event(self, &event);
		count++;
	}
	return count;
}

static bool cm_arm(void *arg)
{
	(void)arg;
	return true;
}

static void cm_disarm(void *arg)
{
	(void)arg;
}

static void stray(void *arg, const struct rp_wc *wc)
{
	(void)arg;
	log_trace("region", "a stray completion: %s", rp_status_str(wc->status));
}

static uint32_t cq_poll(void *arg)
{
	struct neb_region *self = arg;

	return rp_cq_drain(self->cq, self->ring, stray, NULL);
}

static bool cq_arm(void *arg)
{
	return rp_cq_arm(((struct neb_region *)arg)->cq);
}

static void cq_disarm(void *arg)
{
	rp_cq_disarm(((struct neb_region *)arg)->cq);
}

/* ---- The device. ---- */

int neb_attach_rdma(struct neb_region *region, const char *device)
{
	const struct rp_open_opts opts = {.device_name = device, .gid_index = -1};
	int ret;

	if (region->device)
		return -EEXIST;
	ret = rp_open(&opts, &region->device);
	if (ret)
		return ret;
	rp_device_attr(region->device, &region->device_attr);
	ret = rp_pd_open(region->device, &region->pd);
	if (!ret)
		ret = rp_arenas_open(&region->arenas, region_ring(region->region, 0), region->pd,
			region->device_attr.name, RP_ACCESS_LOCAL_WRITE);
	if (!ret)
		ret = rp_cq_open(
			region->device, MIN(4096u, region->device_attr.max_cqe), &region->cq);
	if (ret) {
		lib_rdma_close(region);
		return ret;
	}
	region->cq_poller = (struct reactor_poller){.name = "rdma",
		.poll = cq_poll,
		.arm = cq_arm,
		.disarm = cq_disarm,
		.arg = region,
		.event_fd = rp_cq_fd(region->cq)};
	region->cm_poller = (struct reactor_poller){.name = "connections",
		.poll = cm_poll,
		.arm = cm_arm,
		.disarm = cm_disarm,
		.arg = region,
		.event_fd = rp_cm_fd(region->device)};
	reactor_poller_add(region->reactor, &region->cq_poller);
	reactor_poller_add(region->reactor, &region->cm_poller);
	return 0;
}

/* ---- Connections. ---- */

void lib_conn_close(struct lib_conn *conn)
{
	rp_flow_close(conn->flow);
	rp_group_leave(conn->group);
	rp_disconnect(conn->qp);
	rp_qp_close(conn->qp);
	*conn = (struct lib_conn){0};
}

static int receives_post(struct neb_region *region, const struct lib_conn *conn,
	const struct neb_rdma_options *options)
{
	for (uint32_t i = 0; i < options->receives; i++) {
		struct neb_work work = {.op = NEB_RECV, .target = conn->target};
		int ret = neb_span_lease(region, options->receive_bytes, &work.span);

		if (!ret)
			ret = neb_work_submit(region, &work);
		if (ret && work.span.data)
			neb_span_give(region, &work.span);
		if (ret)
			return ret;
	}
	/* The receives are at the device before the peer knows of us. */
	reactor_turn(region->reactor);
	return 0;
}

int lib_conn_open(struct neb_region *region, enum rp_qp_type type,
	const struct neb_rdma_options *options, struct lib_conn **ret_conn)
{
	struct rp_qp_attr attr = {.type = type,
		.qkey = type == RP_QP_UD ? RP_GROUP_QKEY : 0,
		.send_cq = region->cq,
		.recv_cq = region->cq,
		.cap = {.max_send_wr = 256,
			.max_recv_wr = 256,
			.max_send_sge = SGE_COUNT(region),
			.max_recv_sge = SGE_COUNT(region)},
		.retry_count = 7,
		.rnr_retry_count = 7};
	struct lib_conn *conn = NULL;
	int ret;

	if (!region->device)
		return -ENODEV;
	if (options->receives > 256)
		return -EINVAL;
	for (uint32_t i = 0; i < LIB_CONNS_MAX && !conn; i++)
		conn = region->conns[i].used ? NULL : &region->conns[i];
	if (!conn)
		return -ENOSPC;
	attr.context = conn;
	ret = rp_qp_open(region->pd, &attr, &conn->qp);
	if (ret)
		return ret;
	conn->region = region;
	conn->used = true;
	ret = rp_qp_target(conn->qp, region->region, &conn->target);
	if (!ret)
		ret = receives_post(region, conn, options);
	if (ret) {
		lib_conn_close(conn);
		return ret;
	}
	*ret_conn = conn;
	return 0;
}

int lib_conn_wait(struct lib_conn *conn, uint64_t deadline_ns, uint16_t *ret_target)
{
	int ret;

	while (!conn->connected && !conn->failed && clock_now_ns() < deadline_ns)
		reactor_turn_wait(conn->region->reactor, deadline_ns);
	if (conn->connected) {
		*ret_target = conn->target;
		return 0;
	}
	ret = conn->failed ? -ECONNREFUSED : -ETIMEDOUT;
	lib_conn_close(conn);
	return ret;
}

int neb_rdma_listen(struct neb_region *region, const char *address, uint16_t *port)
{
	int ret;

	if (!region->device)
		return -ENODEV;
	if (region->listener)
		return -EEXIST;
	ret = rp_listen(region->device, address, *port, region, &region->listener);
	if (!ret)
		*port = rp_listener_port(region->listener);
	return ret;
}

static uint64_t options_deadline(const struct neb_rdma_options *options)
{
	return lib_deadline(options->timeout_ns ? options->timeout_ns : NEB_FOREVER);
}

static enum rp_qp_type type_of(const struct neb_rdma_options *options)
{
	return options->type == NEB_UC ? RP_QP_UC : RP_QP_RC;
}

int neb_rdma_accept(
	struct neb_region *region, const struct neb_rdma_options *options, uint16_t *ret_target)
{
	uint64_t deadline_ns = options_deadline(options);
	struct rp_conn_request *request;
	struct lib_conn *conn;
	int ret;

	if (!region->listener)
		return -EINVAL;
	reactor_turn(region->reactor);
	while (!region->request.request && clock_now_ns() < deadline_ns)
		reactor_turn_wait(region->reactor, deadline_ns);
	request = region->request.request;
	region->request.request = NULL;
	if (!request)
		return -ETIMEDOUT;
	ret = lib_conn_open(region, type_of(options), options, &conn);
	if (ret) {
		rp_reject(request, NULL, 0);
		return ret;
	}
	ret = rp_accept(request, conn->qp, NULL, 0);
	if (ret) {
		rp_reject(request, NULL, 0);
		lib_conn_close(conn);
		return ret;
	}
	return lib_conn_wait(conn, MIN(deadline_ns, clock_now_ns() + CONNECT_NS), ret_target);
}

int neb_rdma_connect(struct neb_region *region, const char *address, uint16_t port,
	const struct neb_rdma_options *options, uint16_t *ret_target)
{
	uint64_t deadline_ns = MIN(options_deadline(options), clock_now_ns() + CONNECT_NS);
	struct lib_conn *conn;
	int ret = lib_conn_open(region, type_of(options), options, &conn);

	if (ret)
		return ret;
	ret = rp_connect(conn->qp, address, port, NULL, 0, deadline_ns);
	if (ret) {
		lib_conn_close(conn);
		return ret;
	}
	return lib_conn_wait(conn, deadline_ns, ret_target);
}

bool neb_rdma_connected(const struct neb_region *region, uint16_t target)
{
	const struct lib_conn *conn = lib_conn_of(region, target);

	return conn && conn->connected;
}

void neb_rdma_disconnect(struct neb_region *region, uint16_t target)
{
	struct lib_conn *conn = lib_conn_of(region, target);

	if (conn)
		lib_conn_close(conn);
}

/* ---- Memory that peers may access. ---- */

int neb_rdma_expose(
	struct neb_region *region, const struct neb_span *span, bool writable, uint32_t *ret_rkey)
{
	const uint32_t access = RP_ACCESS_LOCAL_WRITE | RP_ACCESS_REMOTE_READ |
				(writable ? RP_ACCESS_REMOTE_WRITE : 0);
	int arena = region_arena_of(region->region, span->data, span->bytes);
	int owner = neb_span_owner(region, span);
	struct rp_mr_opts opts = {.addr = span->data, .bytes = span->bytes, .access = access};

	if (!region->device)
		return -ENODEV;
	if (owner != NEB_APP || arena < 0)
		return owner < 0 ? owner : -EPERM;
	opts.fd = region_arena(region->region, (uint32_t)arena).fd;
	opts.fd_offset = (uint64_t)((uint8_t *)span->data -
				    region_arena(region->region, (uint32_t)arena).base);
	for (uint32_t i = 0; i < LIB_EXPOSED_MAX; i++) {
		struct lib_exposed *exposed = &region->exposed[i];
		int ret;

		if (exposed->mr)
			continue;
		ret = rp_mr_open(region->pd, &opts, &exposed->mr);
		if (ret)
			return ret;
		exposed->frame = span->frame;
		region->exposed_count++;
		*ret_rkey = rp_mr_rkey(exposed->mr);
		return 0;
	}
	return -ENOSPC;
}

int neb_rdma_conceal(struct neb_region *region, uint32_t rkey)
{
	for (uint32_t i = 0; i < LIB_EXPOSED_MAX; i++) {
		struct lib_exposed *exposed = &region->exposed[i];

		if (!exposed->mr || rp_mr_rkey(exposed->mr) != rkey)
			continue;
		rp_mr_close(exposed->mr);
		exposed->mr = NULL;
		region->exposed_count--;
		return 0;
	}
	return -ENOENT;
}

void lib_rdma_close(struct neb_region *region)
{
	if (!region->device)
		return;
	for (uint32_t i = 0; i < LIB_CONNS_MAX; i++) {
		if (region->conns[i].used)
			lib_conn_close(&region->conns[i]);
	}
	if (region->request.request)
		rp_reject(region->request.request, NULL, 0);
	if (region->listener)
		rp_listener_close(region->listener);
	if (region->cm_poller.arg) {
		reactor_poller_remove(region->reactor, &region->cm_poller);
		reactor_poller_remove(region->reactor, &region->cq_poller);
	}
	if (region->cq)
		rp_cq_close(region->cq);
	for (uint32_t i = 0; i < LIB_EXPOSED_MAX; i++) {
		if (region->exposed[i].mr)
			rp_mr_close(region->exposed[i].mr);
	}
	rp_arenas_close(&region->arenas);
	if (region->pd)
		rp_pd_close(region->pd);
	rp_close(region->device);
	region->device = NULL;
}
