/* rdma/verbs/cm.c: the verbs provider's connection manager, over rdma_cm's event channel. All waits
 * are events of one epoll descriptor: the channel, the device, a timer for deadlines, and a bell
 * for events that we make ourselves.
 *
 * Private data has two bytes of our own. The first one has the length, because InfiniBand pads
 * private data, and whether the queue pair is UC, because rdma_cm's exchange knows only RC. The
 * last one has the path MTU that the sender is limited to. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "rdma/verbs/verbs_priv.h"

#define BACKLOG		1024
#define EVENTS_AT_ONCE	64
#define RESOLVE_MS_MAX	60000
#define PRIVATE_UC	0x80u
#define PRIVATE_OURS	0x40u /* set always: a peer that sends nothing sends padding of zeros */
#define PRIVATE_LEN	0x3fu
#define REJECT_CONSUMER 28 /* IBTA 12.6.7.2: the application rejected it */
/* Attributes of a reliable connection's end that an unreliable one's does not take. */
#define RC_ONLY_TO_RTR (IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RC_ONLY_TO_RTS \
	(IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)

_Static_assert(RP_PRIVATE_BYTES_MAX <= PRIVATE_LEN, "the length leaves the flags' bits free");

enum source { SOURCE_CHANNEL, SOURCE_ASYNC, SOURCE_TIMER, SOURCE_BELL };

/* ---- Addresses. ---- */

int verbs_address_parse(const char *text, uint16_t port, union verbs_address *ret_address)
{
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_PASSIVE};
	struct addrinfo *found;

	if (getaddrinfo(text[0] ? text : "0.0.0.0", NULL, &hints, &found))
		return -EINVAL;
	memset(ret_address, 0, sizeof(*ret_address));
	memcpy(ret_address, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	/* Both families keep the port in the same place. */
	ret_address->in.sin_port = htons(port);
	return 0;
}

static void peer_text(struct rdma_cm_id *id, char text[64])
{
	const union verbs_address *peer = (const union verbs_address *)rdma_get_peer_addr(id);
	char host[INET6_ADDRSTRLEN] = "?";

	if (peer->any.sa_family == AF_INET6)
		inet_ntop(AF_INET6, &peer->in6.sin6_addr, host, sizeof(host));
	else
		inet_ntop(AF_INET, &peer->in.sin_addr, host, sizeof(host));
	snprintf(text, 64, peer->any.sa_family == AF_INET6 ? "[%s]:%u" : "%s:%u", host,
		ntohs(rdma_get_dst_port(id)));
}

bool verbs_gid_address(
	const struct verbs_device *device, int family, union verbs_address *ret_address)
{
	char text[INET6_ADDRSTRLEN];

	if (!device->has_gid || device->port.link_layer == IBV_LINK_LAYER_INFINIBAND)
		return false;
	verbs_gid_text(&device->gid.gid, text, sizeof(text));
	return !verbs_address_parse(text, 0, ret_address) && ret_address->any.sa_family == family &&
	       !(family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&ret_address->in6.sin6_addr));
}

static const char *device_name(const struct verbs_device *device)
{
	return ibv_get_device_name(device->context->device);
}

bool verbs_is_ours(const struct verbs_device *device, const struct rdma_cm_id *id)
{
	return id->verbs && !strcmp(ibv_get_device_name(id->verbs->device), device_name(device));
}

/* ---- Private data. ---- */

static uint8_t private_pack(const struct verbs_device *device, enum rp_qp_type type,
	struct slice data, uint8_t out[VERBS_HELLO_BYTES])
{
	CHECK(data.len <= RP_PRIVATE_BYTES_MAX);
	out[0] = (uint8_t)(data.len | PRIVATE_OURS | (type == RP_QP_UC ? PRIVATE_UC : 0));
	if (data.len)
		memcpy(out + 1, data.data, data.len);
	out[data.len + 1] = (uint8_t)device->mtu_limit;
	return (uint8_t)(data.len + 2);
}

/* False: a peer of ours does not send these bytes. */
static bool private_unpack(struct slice data, struct rp_cm_event *ret_event,
	enum rp_qp_type *ret_type, enum ibv_mtu *ret_mtu)
{
	uint8_t first, len, mtu;

	if (!data.len)
		return false;
	first = (uint8_t)data.data[0];
	len = first & PRIVATE_LEN;
	if (!(first & PRIVATE_OURS) || len > RP_PRIVATE_BYTES_MAX || len > data.len - 1)
		return false;
	ret_event->private_len = len;
	memcpy(ret_event->private_data, data.data + 1, len);
	mtu = data.len > len + 1u ? (uint8_t)data.data[len + 1] : 0;
	*ret_mtu = mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? mtu : 0;
	*ret_type = first & PRIVATE_UC ? RP_QP_UC : RP_QP_RC;
	return true;
}

/* ---- Events that we make. All locked from here on. ---- */

static void tell(struct verbs_qp *qp, enum rp_cm_type type)
{
	struct verbs_device *device = qp->device;

	if (qp->joined || !list_empty(&qp->told_link))
		return;
	CHECK(type != RP_CM_CONNECT_REQUEST);
	if (list_empty(&device->told))
		rp_event_fd_set(device->event_fd);
	qp->told = type;
	list_push_back(&device->told, &qp->told_link);
}

static void untell(struct verbs_qp *qp)
{
	struct verbs_device *device = qp->device;

	if (list_empty(&qp->told_link))
		return;
	list_remove(&qp->told_link);
	if (list_empty(&device->told))
		rp_event_fd_clear(device->event_fd);
}

static bool told_pop(struct verbs_device *device, struct rp_cm_event *ret_event)
{
	struct verbs_qp *qp;

	if (list_empty(&device->told))
		return false;
	qp = CONTAINER_OF(device->told.next, struct verbs_qp, told_link);
	untell(qp);
	*ret_event = (struct rp_cm_event){.type = qp->told, .qp = &qp->base, .late = qp->told_late};
	memcpy(ret_event->peer, qp->peer, sizeof(qp->peer));
	return true;
}

/* ---- Deadlines. ---- */

static bool is_trying(const struct verbs_qp *qp)
{
	return qp->conn == VERBS_CONN_RESOLVING || qp->conn == VERBS_CONN_CONNECTING;
}

void verbs_timer_update(struct verbs_device *device)
{
	uint64_t first_ns = MIN(device->port_deadline_ns, verbs_kept_due(device));
	struct itimerspec when = {0};

	LIST_FOR_EACH (link, &device->qps) {
		struct verbs_qp *qp = CONTAINER_OF(link, struct verbs_qp, link);

		if (is_trying(qp))
			first_ns = MIN(first_ns, qp->deadline_ns);
	}
	if (first_ns != DEADLINE_NONE) {
		/* Zero would disarm it. */
		first_ns = MAX(first_ns, 1);
		when.it_value.tv_sec = (time_t)(first_ns / NS_PER_S);
		when.it_value.tv_nsec = (long)(first_ns % NS_PER_S);
	}
	rp_timer_fd_set(device->timer_fd, &when);
}

/* ---- The queue pair's moves. ---- */

/* The attempt failed: the queue pair is as before. */
static void attempt_fail(struct verbs_qp *qp, enum rp_cm_type type, const char *why)
{
	log_info("rdma", "%s: no connection to %s: %s", device_name(qp->device), qp->peer, why);
	verbs_id_close(qp);
	qp->conn = VERBS_CONN_NONE;
	verbs_timer_update(qp->device);
	qp->told_late = false;
	tell(qp, type);
}

/* Nobody answered. */
static void attempt_late(struct verbs_qp *qp)
{
	attempt_fail(qp, RP_CM_UNREACHABLE, "no answer in time");
	qp->told_late = true;
}

void verbs_conn_down(struct verbs_qp *qp, enum rp_cm_type type)
{
	if (qp->conn == VERBS_CONN_DOWN)
		return;
	qp->conn = VERBS_CONN_DOWN;
	atomic_store(&qp->state, RP_QPS_ERR);
	verbs_qp_flush(qp);
	tell(qp, type);
}

static enum ibv_mtu mtu_least(enum ibv_mtu mtu, enum ibv_mtu limit)
{
	return limit && limit < mtu ? limit : mtu;
}

/* The attributes that rdma_cm gives for a state, with our own retries and timers. */
static int qp_move(
	struct verbs_qp *qp, enum ibv_qp_state state, const struct verbs_request *passive)
{
	struct ibv_qp_attr attr = {.qp_state = state};
	int mask = 0;

	if (rdma_init_qp_attr(qp->id, &attr, &mask))
		return -errno;
	if (mask & IBV_QP_ACCESS_FLAGS) {
		attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
		if (qp->type == RP_QP_RC)
			attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	}
	if (mask & IBV_QP_AV && attr.ah_attr.is_global && qp->device->traffic_class)
		attr.ah_attr.grh.traffic_class = qp->device->traffic_class;
	if (mask & IBV_QP_AV && qp->device->service_level)
		attr.ah_attr.sl = qp->device->service_level;
	if (mask & IBV_QP_PATH_MTU) {
		/* Both ends must have the same MTU, so each knows the other's limit. */
		attr.path_mtu = mtu_least(attr.path_mtu, qp->device->mtu_limit);
		attr.path_mtu = mtu_least(attr.path_mtu, qp->peer_mtu);
	}
	attr.min_rnr_timer = VERBS_MIN_RNR_TIMER;
	attr.retry_cnt = qp->retry_count;
	attr.rnr_retry = qp->rnr_retry_count;
	attr.timeout = qp->timeout;
	if (passive) {
		attr.max_dest_rd_atomic = passive->responder_resources;
		attr.max_rd_atomic = passive->initiator_depth;
	}
	if (qp->type == RP_QP_UC)
		mask &= ~(RC_ONLY_TO_RTR | RC_ONLY_TO_RTS);
	return -ibv_modify_qp(qp->qp, &attr, mask);
}

static int qp_bring_up(struct verbs_qp *qp, const struct verbs_request *passive)
{
	int err = qp_move(qp, IBV_QPS_INIT, passive);

	/* An iWARP device moves it to RTS itself, when the stream is up. */
	if (!err && !verbs_is_iwarp(qp->device))
		err = qp_move(qp, IBV_QPS_RTR, passive);
	if (!err && !verbs_is_iwarp(qp->device))
		err = qp_move(qp, IBV_QPS_RTS, passive);
	if (err)
		log_warn("rdma", "cannot bring queue pair %u up: %s", qp->base.num, strerror(-err));
	return err;
}

static struct rdma_conn_param conn_param(const struct verbs_qp *qp)
{
	const struct ibv_device_attr *attr = &qp->device->attr;

	return (struct rdma_conn_param){
		.responder_resources =
			(uint8_t)MIN((uint32_t)attr->max_qp_rd_atom, VERBS_READS_MAX),
		.initiator_depth =
			(uint8_t)MIN((uint32_t)attr->max_qp_init_rd_atom, VERBS_READS_MAX),
		.retry_count = qp->retry_count,
		.rnr_retry_count = qp->rnr_retry_count,
		.srq = qp->has_srq,
		.qp_num = qp->base.num,
	};
}

/* ---- Connecting. ---- */

static int connect_start(struct verbs_qp *qp, const char *address, uint16_t port)
{
	struct verbs_device *device = qp->device;
	union verbs_address to, from;
	int err = verbs_address_parse(address, port, &to);
	uint64_t now_ns = clock_now_ns();
	uint64_t left_ms = qp->deadline_ns > now_ns ? (qp->deadline_ns - now_ns) / NS_PER_MS : 0;
	bool leave_from;

	if (err)
		return err;
	if (rdma_create_id(device->channel, &qp->id, &qp->handle, RDMA_PS_TCP))
		return -errno;
	leave_from = device->gid_named && verbs_gid_address(device, to.any.sa_family, &from);
	if (rdma_resolve_addr(qp->id, leave_from ? &from.any : NULL, &to.any,
		    (int)MIN(left_ms + 1, RESOLVE_MS_MAX)))
		return -errno;
	return 0;
}

int verbs_connect(struct rp_qp *base, const char *address, uint16_t port, struct slice private_data,
	uint64_t deadline_ns)
{
	struct verbs_qp *qp = verbs_qp(base);
	int err;

	pthread_mutex_lock(&qp->device->lock);
	if (qp->conn != VERBS_CONN_NONE || qp->joined || atomic_load(&qp->state) != RP_QPS_INIT) {
		pthread_mutex_unlock(&qp->device->lock);
		return -EISCONN;
	}
	qp->deadline_ns = deadline_ns;
	qp->hello_bytes = private_pack(qp->device, qp->type, private_data, qp->hello);
	snprintf(qp->peer, sizeof(qp->peer), "%s:%u", address, port);
	untell(qp);
	qp->conn = VERBS_CONN_RESOLVING;
	err = connect_start(qp, address, port);
	if (err == -EINVAL && !qp->id) {
		qp->conn = VERBS_CONN_NONE;
	} else {
		/* An immediate answer of the network is handled like a later one. */
		if (err)
			attempt_fail(qp, RP_CM_UNREACHABLE, strerror(-err));
		verbs_timer_update(qp->device);
		err = 0;
	}
	pthread_mutex_unlock(&qp->device->lock);
	return err;
}

static void on_addr_resolved(struct verbs_qp *qp)
{
	const char *found =
		qp->id->verbs ? ibv_get_device_name(qp->id->verbs->device) : "no device";

	if (!verbs_is_ours(qp->device, qp->id)) {
		log_error("rdma", "the route to %s goes through %s, but %s was opened", qp->peer,
			found, device_name(qp->device));
		attempt_fail(qp, RP_CM_UNREACHABLE, "it is not on this device's network");
	} else if (rdma_resolve_route(qp->id, RESOLVE_MS_MAX)) {
		attempt_fail(qp, RP_CM_UNREACHABLE, strerror(errno));
	}
}

static void on_route_resolved(struct verbs_qp *qp)
{
	struct rdma_conn_param param = conn_param(qp);

	param.private_data = qp->hello;
	param.private_data_len = qp->hello_bytes;
	qp->conn = VERBS_CONN_CONNECTING;
	/* On iWARP the queue pair must know its port before the stream comes up. */
	if ((verbs_is_iwarp(qp->device) && qp_move(qp, IBV_QPS_INIT, NULL)) ||
		rdma_connect(qp->id, &param))
		attempt_fail(qp, RP_CM_UNREACHABLE, strerror(errno));
}

/* The reply has arrived. The queue pair leaves INIT only now. */
static bool on_reply(struct verbs_qp *qp, struct slice data, struct rp_cm_event *ret_event)
{
	enum rp_qp_type type;
	int err = 0;

	*ret_event = (struct rp_cm_event){.type = RP_CM_ESTABLISHED, .qp = &qp->base};
	memcpy(ret_event->peer, qp->peer, sizeof(qp->peer));
	if (!private_unpack(data, ret_event, &type, &qp->peer_mtu)) {
		attempt_fail(qp, RP_CM_UNREACHABLE, "the reply is of another protocol");
		return false;
	}
	if (!verbs_is_iwarp(qp->device)) {
		err = qp_bring_up(qp, NULL);
		if (!err && rdma_establish(qp->id))
			err = -errno;
	}
	qp->conn = VERBS_CONN_UP;
	verbs_timer_update(qp->device);
	if (err) {
		verbs_conn_down(qp, RP_CM_UNREACHABLE);
		return false;
	}
	atomic_store(&qp->state, RP_QPS_RTS);
	return true;
}

static bool on_rejected(
	struct verbs_qp *qp, int status, struct slice data, struct rp_cm_event *ret_event)
{
	enum rp_qp_type type;
	enum ibv_mtu mtu;

	*ret_event = (struct rp_cm_event){.type = RP_CM_REJECTED, .qp = &qp->base};
	memcpy(ret_event->peer, qp->peer, sizeof(qp->peer));
	/* Every other rejection comes from the peer's connection manager: nothing listens there. */
	if ((status != REJECT_CONSUMER && !verbs_is_iwarp(qp->device)) ||
		!private_unpack(data, ret_event, &type, &mtu)) {
		attempt_fail(qp, RP_CM_UNREACHABLE, "nothing listens there");
		return false;
	}
	verbs_id_close(qp);
	qp->conn = VERBS_CONN_NONE;
	verbs_timer_update(qp->device);
	return true;
}

/* ---- Requests. ---- */

static struct verbs_request *request_of(struct rp_conn_request *base)
{
	return CONTAINER_OF(base, struct verbs_request, base);
}

static void request_free(struct verbs_request *request)
{
	verbs_object_gone(request->device);
	free(request);
}

static bool on_request(struct verbs_device *device, const struct verbs_notice *notice,
	struct rp_cm_event *ret_event)
{
	enum verbs_handle *handle = notice->id->context;
	struct verbs_listener *listener = CONTAINER_OF(handle, struct verbs_listener, handle);
	struct verbs_request *request = calloc(1, sizeof(*request));
	const char *why = NULL;

	*ret_event =
		(struct rp_cm_event){.type = RP_CM_CONNECT_REQUEST, .listener = &listener->base};
	peer_text(notice->id, ret_event->peer);
	if (!request)
		why = "out of memory";
	else if (!verbs_is_ours(device, notice->id))
		why = "it arrived on another device";
	else if (!private_unpack(slice_of(notice->data, notice->data_bytes), ret_event,
			 &request->type, &request->peer_mtu))
		why = "its private data is of another protocol";
	if (why) {
		log_warn("rdma", "%s: connection rejected: %s", ret_event->peer, why);
		rdma_reject(notice->id, NULL, 0);
		rdma_destroy_id(notice->id);
		free(request);
		return false;
	}
	request->handle = VERBS_HANDLE_REQUEST;
	request->base.ops = &rp_verbs_ops;
	request->device = device;
	request->id = notice->id;
	request->responder_resources = notice->responder_resources;
	request->initiator_depth = notice->initiator_depth;
	memcpy(request->peer, ret_event->peer, sizeof(request->peer));
	request->id->context = &request->handle;
	atomic_fetch_add(&device->open_objects, 1);
	ret_event->request = &request->base;
	return true;
}

static int accept_locked(
	struct verbs_request *request, struct verbs_qp *qp, struct slice private_data)
{
	struct rdma_conn_param param = conn_param(qp);
	uint8_t data[VERBS_HELLO_BYTES];
	int err;

	if (request->gone)
		return -ECONNRESET;
	if (qp->device != request->device || qp->conn != VERBS_CONN_NONE ||
		qp->type != request->type || atomic_load(&qp->state) != RP_QPS_INIT)
		return -EINVAL;
	param.responder_resources = MIN(param.responder_resources, request->responder_resources);
	param.initiator_depth = MIN(param.initiator_depth, request->initiator_depth);
	request->responder_resources = param.responder_resources;
	request->initiator_depth = param.initiator_depth;
	qp->id = request->id;
	qp->peer_mtu = request->peer_mtu;
	err = qp_bring_up(qp, request);
	if (err) {
		qp->id = NULL;
		return err;
	}
	param.private_data = data;
	param.private_data_len = private_pack(qp->device, qp->type, private_data, data);
	qp->id->context = &qp->handle;
	qp->conn = VERBS_CONN_ACCEPTED;
	memcpy(qp->peer, request->peer, sizeof(qp->peer));
	atomic_store(&qp->state, RP_QPS_RTS);
	if (rdma_accept(qp->id, &param)) {
		log_info("rdma", "%s did not wait for its reply: %s", qp->peer, strerror(errno));
		verbs_conn_down(qp, RP_CM_DISCONNECTED);
	}
	request_free(request);
	return 0;
}

int verbs_accept(struct rp_conn_request *base, struct rp_qp *qp, struct slice private_data)
{
	struct verbs_request *request = request_of(base);
	struct verbs_device *device = request->device;
	int err;

	pthread_mutex_lock(&device->lock);
	err = accept_locked(request, verbs_qp(qp), private_data);
	pthread_mutex_unlock(&device->lock);
	return err;
}

void verbs_reject(struct rp_conn_request *base, struct slice private_data)
{
	struct verbs_request *request = request_of(base);
	struct verbs_device *device = request->device;
	uint8_t data[VERBS_HELLO_BYTES];

	pthread_mutex_lock(&device->lock);
	if (!request->gone && rdma_reject(request->id, data,
				      private_pack(request->device, RP_QP_RC, private_data, data)))
		log_debug("rdma", "%s did not wait for its rejection", request->peer);
	rdma_destroy_id(request->id);
	request_free(request);
	pthread_mutex_unlock(&device->lock);
}

/* ---- Ending. ---- */

void verbs_disconnect(struct rp_qp *base)
{
	struct verbs_qp *qp = verbs_qp(base);

	verbs_qp_error(base);
	pthread_mutex_lock(&qp->device->lock);
	if (is_trying(qp)) {
		attempt_fail(qp, RP_CM_UNREACHABLE, "given up");
	} else if (qp->conn == VERBS_CONN_ACCEPTED || qp->conn == VERBS_CONN_UP) {
		verbs_farewell(qp);
		verbs_conn_down(qp, RP_CM_DISCONNECTED);
	}
	pthread_mutex_unlock(&qp->device->lock);
}

void verbs_cm_forget(struct verbs_qp *qp)
{
	struct verbs_device *device = qp->device;

	pthread_mutex_lock(&device->lock);
	untell(qp);
	if (qp->conn == VERBS_CONN_ACCEPTED || qp->conn == VERBS_CONN_UP)
		verbs_farewell(qp);
	verbs_id_close(qp);
	qp->conn = VERBS_CONN_DOWN;
	list_remove(&qp->link);
	verbs_timer_update(device);
	pthread_mutex_unlock(&device->lock);
}

/* ---- rdma_cm's events. ---- */

static const char *failure_text(const struct verbs_notice *notice)
{
	return notice->status < 0 ? strerror(-notice->status) : rdma_event_str(notice->type);
}

/* True: an event for the application. */
static bool qp_notice(
	struct verbs_qp *qp, const struct verbs_notice *notice, struct rp_cm_event *ret_event)
{
	struct slice data = slice_of(notice->data, notice->data_bytes);

	switch (notice->type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		on_addr_resolved(qp);
		return false;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		on_route_resolved(qp);
		return false;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		return on_reply(qp, data, ret_event);
	case RDMA_CM_EVENT_ESTABLISHED:
		if (qp->conn == VERBS_CONN_CONNECTING)
			return on_reply(qp, data, ret_event);
		if (qp->conn != VERBS_CONN_ACCEPTED)
			return false;
		qp->conn = VERBS_CONN_UP;
		*ret_event = (struct rp_cm_event){.type = RP_CM_ESTABLISHED, .qp = &qp->base};
		memcpy(ret_event->peer, qp->peer, sizeof(qp->peer));
		return true;
	case RDMA_CM_EVENT_REJECTED:
		if (is_trying(qp))
			return on_rejected(qp, notice->status, data, ret_event);
		verbs_conn_down(qp, RP_CM_DISCONNECTED);
		return false;
	case RDMA_CM_EVENT_DISCONNECTED:
		/* The other side waits for our disconnect before it forgets the queue pair. */
		if (qp->conn != VERBS_CONN_DOWN)
			rdma_disconnect(qp->id);
		verbs_conn_down(qp, RP_CM_DISCONNECTED);
		return false;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		verbs_conn_down(qp, RP_CM_DEVICE_FATAL);
		return false;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		if (is_trying(qp) && notice->type == RDMA_CM_EVENT_UNREACHABLE)
			attempt_late(qp);
		else if (is_trying(qp))
			attempt_fail(qp, RP_CM_UNREACHABLE, failure_text(notice));
		else
			verbs_conn_down(qp, RP_CM_DISCONNECTED);
		return false;
	default:
		log_debug("rdma", "%s: %s", qp->peer, rdma_event_str(notice->type));
		return false;
	}
}

static bool handle_notice(struct verbs_device *device, const struct verbs_notice *notice,
	struct rp_cm_event *ret_event)
{
	enum verbs_handle *handle = notice->id->context;

	if (notice->type == RDMA_CM_EVENT_CONNECT_REQUEST)
		return on_request(device, notice, ret_event);
	switch (*handle) {
	case VERBS_HANDLE_QP:
		return qp_notice(CONTAINER_OF(handle, struct verbs_qp, handle), notice, ret_event);
	case VERBS_HANDLE_GROUP:
		return verbs_group_notice(
			CONTAINER_OF(handle, struct verbs_group, handle), notice, ret_event);
	case VERBS_HANDLE_REQUEST:
		CONTAINER_OF(handle, struct verbs_request, handle)->gone = true;
		return false;
	case VERBS_HANDLE_KEPT:
		return false;
	case VERBS_HANDLE_LISTENER:
		log_warn("rdma", "%s: listener: %s", device_name(device),
			rdma_event_str(notice->type));
		return false;
	}
	return false;
}

/* False: none waits. */
static bool notice_take(struct verbs_device *device, struct verbs_notice *ret_notice)
{
	struct rdma_cm_event *event;
	const struct rdma_conn_param *conn;
	bool group;

	if (rdma_get_cm_event(device->channel, &event))
		return false;
	conn = &event->param.conn;
	group = event->event == RDMA_CM_EVENT_MULTICAST_JOIN ||
		event->event == RDMA_CM_EVENT_MULTICAST_ERROR;
	*ret_notice = (struct verbs_notice){
		.type = event->event,
		.status = event->status,
		.id = event->id,
	};
	if (group) {
		ret_notice->group = event->param.ud.ah_attr;
		ret_notice->group_qkey = event->param.ud.qkey;
		rdma_ack_cm_event(event);
		return true;
	}
	ret_notice->responder_resources = conn->responder_resources;
	ret_notice->initiator_depth = conn->initiator_depth;
	if (conn->private_data) {
		ret_notice->data_bytes =
			(uint8_t)MIN(conn->private_data_len, sizeof(ret_notice->data));
		memcpy(ret_notice->data, conn->private_data, ret_notice->data_bytes);
	}
	rdma_ack_cm_event(event);
	return true;
}

/* ---- Polling. ---- */

static void timer_fired(struct verbs_device *device)
{
	uint64_t now_ns = clock_now_ns(), count;

	if (read(device->timer_fd, &count, sizeof(count)) < 0)
		return;
	if (now_ns >= device->port_deadline_ns)
		verbs_port_lose(device);
	verbs_kept_look(device, now_ns);
	LIST_FOR_EACH (link, &device->qps) {
		struct verbs_qp *qp = CONTAINER_OF(link, struct verbs_qp, link);

		if (is_trying(qp) && now_ns >= qp->deadline_ns)
			attempt_late(qp);
	}
	verbs_timer_update(device);
}

static bool handle_source(
	struct verbs_device *device, enum source source, struct rp_cm_event *ret_event)
{
	struct verbs_notice notice;

	switch (source) {
	case SOURCE_CHANNEL:
		return notice_take(device, &notice) && handle_notice(device, &notice, ret_event);
	case SOURCE_ASYNC:
		verbs_async_take(device);
		return false;
	case SOURCE_TIMER:
		timer_fired(device);
		return false;
	case SOURCE_BELL:
		return false;
	}
	return false;
}

int verbs_cm_poll(struct rp_device *base, struct rp_cm_event *ret_event)
{
	struct verbs_device *device = verbs_device(base);
	bool found;

	pthread_mutex_lock(&device->lock);
	found = told_pop(device, ret_event);
	for (int i = 0; !found && i < EVENTS_AT_ONCE; i++) {
		struct epoll_event event;

		if (epoll_wait(device->epoll_fd, &event, 1, 0) != 1)
			break;
		found = handle_source(device, event.data.u32, ret_event) ||
			told_pop(device, ret_event);
	}
	pthread_mutex_unlock(&device->lock);
	return found;
}

int verbs_cm_fd(const struct rp_device *base)
{
	return verbs_device(base)->epoll_fd;
}

/* ---- Listening. ---- */

int verbs_listen(struct rp_device *base, const char *address, uint16_t port,
	struct rp_listener **ret_listener)
{
	struct verbs_device *device = verbs_device(base);
	struct verbs_listener *listener;
	union verbs_address at;
	int err = verbs_address_parse(address, port, &at);

	if (err)
		return err;
	listener = calloc(1, sizeof(*listener));
	if (!listener)
		return -ENOMEM;
	listener->handle = VERBS_HANDLE_LISTENER;
	listener->base.ops = &rp_verbs_ops;
	listener->device = device;
	if (rdma_create_id(device->channel, &listener->id, &listener->handle, RDMA_PS_TCP))
		err = -errno;
	else if (rdma_bind_addr(listener->id, &at.any) || rdma_listen(listener->id, BACKLOG))
		err = -errno;
	if (!err && listener->id->verbs && !verbs_is_ours(device, listener->id)) {
		log_error("rdma", "%s is an address of %s, but %s was opened", address,
			ibv_get_device_name(listener->id->verbs->device), device_name(device));
		err = -EADDRNOTAVAIL;
	}
	if (err) {
		if (listener->id)
			rdma_destroy_id(listener->id);
		free(listener);
		return err;
	}
	listener->base.port = ntohs(rdma_get_src_port(listener->id));
	atomic_fetch_add(&device->open_objects, 1);
	*ret_listener = &listener->base;
	return 0;
}

void verbs_listener_close(struct rp_listener *base)
{
	struct verbs_listener *listener = CONTAINER_OF(base, struct verbs_listener, base);

	/* Requests that the application has not taken yet are rejected with it. */
	pthread_mutex_lock(&listener->device->lock);
	rdma_destroy_id(listener->id);
	pthread_mutex_unlock(&listener->device->lock);
	verbs_object_gone(listener->device);
	free(listener);
}

/* ---- Opening and closing. ---- */

static int watch(struct verbs_device *device, int fd, enum source source)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u32 = source};

	return epoll_ctl(device->epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static int set_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) ? -errno : 0;
}

int verbs_cm_init(struct verbs_device *device)
{
	int err = pthread_mutex_init(&device->lock, NULL);

	CHECK(err == 0);
	list_init(&device->qps);
	list_init(&device->told);
	list_init(&device->kept);
	device->port_deadline_ns = DEADLINE_NONE;
	device->channel = rdma_create_event_channel();
	if (!device->channel) {
		err = -errno;
		log_error("rdma", "no connection manager: %s; load the module rdma_ucm",
			strerror(-err));
		return err;
	}
	device->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	device->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	device->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (device->epoll_fd < 0 || device->timer_fd < 0 || device->event_fd < 0)
		return -EMFILE;
	err = set_nonblocking(device->channel->fd);
	if (!err)
		err = set_nonblocking(device->context->async_fd);
	if (!err)
		err = watch(device, device->channel->fd, SOURCE_CHANNEL);
	if (!err)
		err = watch(device, device->context->async_fd, SOURCE_ASYNC);
	if (!err)
		err = watch(device, device->timer_fd, SOURCE_TIMER);
	return err ? err : watch(device, device->event_fd, SOURCE_BELL);
}

void verbs_cm_fini(struct verbs_device *device)
{
	const int fds[] = {device->epoll_fd, device->timer_fd, device->event_fd};

	if (device->channel)
		verbs_kept_free(device);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
		if (fds[i] >= 0)
			close(fds[i]);
	}
	if (device->channel)
		rdma_destroy_event_channel(device->channel);
}
