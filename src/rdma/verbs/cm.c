/* rdma/verbs/cm.c: the life of a queue pair's connection over rdma_cm: connecting, the moves to RTR
 * and RTS, ending, and the events of it that we make ourselves. */
#include <errno.h>
#include <stdio.h>

#include "rdma/verbs/verbs_priv.h"

#define RESOLVE_MS_MAX	60000
#define REJECT_CONSUMER 28 /* IBTA 12.6.7.2: the application rejected it */
/* Attributes of a reliable connection's end that an unreliable one's does not take. */
#define RC_ONLY_TO_RTR (IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RC_ONLY_TO_RTS \
	(IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)

bool verbs_is_ours(const struct verbs_device *device, const struct rdma_cm_id *id)
{
	return id->verbs &&
	       !strcmp(ibv_get_device_name(id->verbs->device), verbs_device_name(device));
}

/* ---- Events that we make. All locked from here on. ---- */

static void tell(struct verbs_qp *qp, enum rp_cm_type type)
{
	struct verbs_device *device = qp->device;

	if (!list_empty(&qp->told_link))
		return;
	CHECK(type != RP_CM_CONNECT_REQUEST);
	if (list_empty(&device->told))
		rp_event_fd_set(device->event_fd);
	qp->told = type;
	list_push_back(&device->told, &qp->told_link);
}

static void bell_clear(struct verbs_device *device)
{
	if (list_empty(&device->told) && !device->failure_waits)
		rp_event_fd_clear(device->event_fd);
}

static void untell(struct verbs_qp *qp)
{
	struct verbs_device *device = qp->device;

	if (list_empty(&qp->told_link))
		return;
	list_remove(&qp->told_link);
	bell_clear(device);
}

void verbs_failure_tell(struct verbs_device *device)
{
	device->failure_waits = true;
	rp_event_fd_set(device->event_fd);
}

bool verbs_told_pop(struct verbs_device *device, struct rp_cm_event *ret_event)
{
	struct verbs_qp *qp;

	if (device->failure_waits) {
		device->failure_waits = false;
		bell_clear(device);
		*ret_event = (struct rp_cm_event){.type = RP_CM_DEVICE_FATAL};
		return true;
	}
	if (list_empty(&device->told))
		return false;
	qp = CONTAINER_OF(device->told.next, struct verbs_qp, told_link);
	untell(qp);
	*ret_event = (struct rp_cm_event){.type = qp->told, .qp = &qp->base, .late = qp->told_late};
	memcpy(ret_event->peer, qp->peer, sizeof(qp->peer));
	return true;
}

/* ---- The queue pair's moves. ---- */

/* The attempt failed: the queue pair is as before. */
static void attempt_fail(struct verbs_qp *qp, enum rp_cm_type type, const char *why)
{
	log_info("rdma", "%s: no connection to %s: %s", verbs_device_name(qp->device), qp->peer,
		why);
	verbs_id_close(qp);
	qp->conn = VERBS_CONN_NONE;
	verbs_timer_update(qp->device);
	qp->told_late = false;
	tell(qp, type);
}

/* Nobody answered. */
void verbs_attempt_late(struct verbs_qp *qp)
{
	attempt_fail(qp, RP_CM_UNREACHABLE, "no answer in time");
	qp->told_late = true;
}

void verbs_conn_down(struct verbs_qp *qp, enum rp_cm_type type)
{
	bool had_one = qp->conn != VERBS_CONN_NONE;

	if (qp->conn == VERBS_CONN_DOWN)
		return;
	qp->conn = VERBS_CONN_DOWN;
	atomic_store(&qp->state, RP_QPS_ERR);
	verbs_qp_flush(qp);
	/* One that is joined by hand and a DC initiator have no connection, and who polls events
	 * does not know them. */
	if (had_one)
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

int verbs_qp_bring_up(struct verbs_qp *qp, const struct verbs_request *passive)
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

struct rdma_conn_param verbs_conn_param(const struct verbs_qp *qp)
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
	qp->hello_bytes = verbs_hello_pack(qp->device, qp->type, private_data, qp->hello);
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
			found, verbs_device_name(qp->device));
		attempt_fail(qp, RP_CM_UNREACHABLE, "it is not on this device's network");
	} else if (rdma_resolve_route(qp->id, RESOLVE_MS_MAX)) {
		attempt_fail(qp, RP_CM_UNREACHABLE, strerror(errno));
	}
}

static void on_route_resolved(struct verbs_qp *qp)
{
	struct rdma_conn_param param = verbs_conn_param(qp);

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
	if (!verbs_hello_unpack(data, ret_event, &type, &qp->peer_mtu)) {
		attempt_fail(qp, RP_CM_UNREACHABLE, "the reply is of another protocol");
		return false;
	}
	if (!verbs_is_iwarp(qp->device)) {
		err = verbs_qp_bring_up(qp, NULL);
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
		!verbs_hello_unpack(data, ret_event, &type, &mtu)) {
		attempt_fail(qp, RP_CM_UNREACHABLE, "nothing listens there");
		return false;
	}
	verbs_id_close(qp);
	qp->conn = VERBS_CONN_NONE;
	verbs_timer_update(qp->device);
	return true;
}

/* ---- Ending. ---- */

void verbs_disconnect(struct rp_qp *base)
{
	struct verbs_qp *qp = verbs_qp(base);

	verbs_qp_error(base);
	pthread_mutex_lock(&qp->device->lock);
	if (verbs_is_trying(qp)) {
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
bool verbs_qp_notice(
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
		if (verbs_is_trying(qp))
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
		verbs_device_fail(qp->device);
		return false;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		if (verbs_is_trying(qp) && notice->type == RDMA_CM_EVENT_UNREACHABLE)
			verbs_attempt_late(qp);
		else if (verbs_is_trying(qp))
			attempt_fail(qp, RP_CM_UNREACHABLE, failure_text(notice));
		else
			verbs_conn_down(qp, RP_CM_DISCONNECTED);
		return false;
	default:
		log_debug("rdma", "%s: %s", qp->peer, rdma_event_str(notice->type));
		return false;
	}
}
