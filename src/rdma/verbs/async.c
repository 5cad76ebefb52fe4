/* rdma/verbs/async.c: the device's asynchronous events: its port, queues and queue pairs. A port
 * that goes down may come back; connections outlive it for a while. */
#include <errno.h>
#include <stdlib.h>

#include "rdma/verbs/verbs_priv.h"

/* ---- The port. ---- */

static bool known_down(const struct verbs_device *device)
{
	return device->port_deadline_ns != DEADLINE_NONE || atomic_load(&device->port_lost);
}

/* The port's event may still be on the way. */
static bool port_is_down(const struct verbs_device *device)
{
	struct ibv_port_attr port;

	return known_down(device) || (!ibv_query_port(device->context, device->port_num, &port) &&
					     port.state != IBV_PORT_ACTIVE);
}

/* An identifier whose connection is over, before its peer knows that. */
struct kept {
	enum verbs_handle handle;
	struct list link;
	struct rdma_cm_id *id;
	uint64_t due_ns; /* while the port is up: it ends then */
};

static void kept_end(struct kept *kept)
{
	list_remove(&kept->link);
	rdma_destroy_id(kept->id);
	free(kept);
}

static struct kept *kept_of(struct list *link)
{
	return CONTAINER_OF(link, struct kept, link);
}

uint64_t verbs_kept_due(const struct verbs_device *device)
{
	return known_down(device) || list_empty(&device->kept) ? DEADLINE_NONE
							       : kept_of(device->kept.next)->due_ns;
}

void verbs_kept_look(struct verbs_device *device, uint64_t now_ns)
{
	bool down = !list_empty(&device->kept) && port_is_down(device);

	LIST_FOR_EACH_SAFE (link, &device->kept) {
		struct kept *kept = kept_of(link);

		if (down)
			kept->due_ns = now_ns + VERBS_CALM_NS;
		else if (kept->due_ns <= now_ns)
			kept_end(kept);
	}
}

static void kept_end_all(struct verbs_device *device)
{
	LIST_FOR_EACH_SAFE (link, &device->kept)
		kept_end(kept_of(link));
}

void verbs_kept_free(struct verbs_device *device)
{
	while (!list_empty(&device->kept) && !port_is_down(device) &&
		clock_rest(kept_of(device->kept.prev)->due_ns))
		continue;
	kept_end_all(device);
}

/* While the port is down, the kernel's message to the peer at the end of an identifier would be
 * lost. With soft-RoCE the connection manager's own queue pair would be lost as well, permanently:
 * it goes to error when it has a packet and no route, and the kernel restores such a queue pair
 * only when nothing but its sends failed. Routes are removed some milliseconds before the port is
 * reported down. The first sign is a queue pair whose own packets fail, so its end waits until the
 * port's state is known. */
static bool must_wait(const struct verbs_qp *qp)
{
	return qp->cut_off || port_is_down(qp->device);
}

void verbs_farewell(struct verbs_qp *qp)
{
	if (must_wait(qp))
		verbs_id_close(qp);
	else if (rdma_disconnect(qp->id))
		log_debug("rdma", "%s: %s", qp->peer, strerror(errno));
}

void verbs_id_close(struct verbs_qp *qp)
{
	struct rdma_cm_id *id = qp->id;
	struct kept *kept = NULL;

	qp->id = NULL;
	if (!id)
		return;
	if (qp->conn >= VERBS_CONN_CONNECTING && must_wait(qp))
		kept = calloc(1, sizeof(*kept));
	if (!kept) {
		rdma_destroy_id(id);
		return;
	}
	kept->handle = VERBS_HANDLE_KEPT;
	kept->id = id;
	kept->due_ns = clock_now_ns() + VERBS_CALM_NS;
	id->context = &kept->handle;
	list_push_back(&qp->device->kept, &kept->link);
	verbs_timer_update(qp->device);
}

static void port_down(struct verbs_device *device)
{
	if (!known_down(device))
		device->port_deadline_ns = clock_now_ns() + VERBS_PORT_DOWN_NS;
	verbs_timer_update(device);
}

static void port_up(struct verbs_device *device)
{
	device->port_deadline_ns = DEADLINE_NONE;
	atomic_store(&device->port_lost, false);
	kept_end_all(device);
	verbs_timer_update(device);
}

/* An end that only polls memory for the peer's writes would never learn of it. */
void verbs_port_lose(struct verbs_device *device)
{
	log_warn("rdma", "%s port %u stays down: its connections end", verbs_device_name(device),
		device->port_num);
	device->port_deadline_ns = DEADLINE_NONE;
	atomic_store(&device->port_lost, true);
	LIST_FOR_EACH (link, &device->qps) {
		struct verbs_qp *qp = CONTAINER_OF(link, struct verbs_qp, link);

		if (qp->conn == VERBS_CONN_ACCEPTED || qp->conn == VERBS_CONN_UP)
			verbs_conn_down(qp, RP_CM_DISCONNECTED);
	}
}

/* ---- The device. ---- */

void verbs_device_fail(struct verbs_device *device)
{
	if (device->failed)
		return;
	device->failed = true;
	log_error("rdma",
		"%s failed: its connections end, and this process uses it no more; "
		"restart it when the device works again",
		verbs_device_name(device));
	verbs_failure_tell(device);
	LIST_FOR_EACH (link, &device->qps) {
		verbs_conn_down(CONTAINER_OF(link, struct verbs_qp, link), RP_CM_DISCONNECTED);
	}
}

/* ---- Queues and queue pairs. ---- */

static struct verbs_qp *qp_of(struct verbs_device *device, const struct ibv_qp *wanted)
{
	LIST_FOR_EACH (link, &device->qps) {
		struct verbs_qp *qp = CONTAINER_OF(link, struct verbs_qp, link);

		if (qp->qp == wanted)
			return qp;
	}
	return NULL;
}

static void qp_died(struct verbs_qp *qp, enum ibv_event_type type)
{
	log_warn("rdma", "%s: queue pair %u: %s", qp->peer, qp->base.num, ibv_event_type_str(type));
	qp->cut_off |= type == IBV_EVENT_QP_FATAL;
	if (qp->conn == VERBS_CONN_ACCEPTED || qp->conn == VERBS_CONN_UP)
		verbs_farewell(qp);
	verbs_conn_down(qp, RP_CM_DISCONNECTED);
}

static void cq_overran(struct verbs_device *device, struct verbs_cq *cq)
{
	log_error("rdma", "%s: a completion queue of %d entries overran", verbs_device_name(device),
		cq->cq->cqe);
	atomic_store(&cq->overrun, true);
	LIST_FOR_EACH (link, &device->qps) {
		struct verbs_qp *qp = CONTAINER_OF(link, struct verbs_qp, link);

		if (qp->send_cq != cq && qp->recv_cq != cq)
			continue;
		atomic_store(&qp->state, RP_QPS_ERR);
		if (qp->conn == VERBS_CONN_ACCEPTED || qp->conn == VERBS_CONN_UP)
			qp_died(qp, IBV_EVENT_CQ_ERR);
		else
			verbs_qp_flush(qp);
	}
}

/* ---- All of them. ---- */

static void async_handle(struct verbs_device *device, const struct ibv_async_event *event)
{
	struct verbs_qp *qp;

	switch (event->event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_PATH_MIG_ERR:
		qp = qp_of(device, event->element.qp);
		if (qp)
			qp_died(qp, event->event_type);
		break;
	case IBV_EVENT_COMM_EST:
		/* Data came before the message that completes the connection. That message may be
		 * lost. */
		qp = qp_of(device, event->element.qp);
		if (qp && qp->conn == VERBS_CONN_ACCEPTED)
			rdma_notify(qp->id, IBV_EVENT_COMM_EST);
		break;
	case IBV_EVENT_CQ_ERR:
		/* NULL: it is closed, but the device refused to destroy it. */
		if (event->element.cq->cq_context)
			cq_overran(device, event->element.cq->cq_context);
		break;
	case IBV_EVENT_DEVICE_FATAL:
		verbs_device_fail(device);
		break;
	case IBV_EVENT_PORT_ERR:
		log_warn("rdma", "%s port %d is down", verbs_device_name(device),
			event->element.port_num);
		if (event->element.port_num == device->port_num)
			port_down(device);
		break;
	case IBV_EVENT_PORT_ACTIVE:
		log_info("rdma", "%s port %d is up", verbs_device_name(device),
			event->element.port_num);
		if (event->element.port_num == device->port_num)
			port_up(device);
		break;
	default:
		log_info("rdma", "%s: %s", verbs_device_name(device),
			ibv_event_type_str(event->event_type));
	}
}

void verbs_async_take(struct verbs_device *device)
{
	struct ibv_async_event event;

	while (!ibv_get_async_event(device->context, &event)) {
		async_handle(device, &event);
		ibv_ack_async_event(&event);
	}
}

void verbs_async_read(struct verbs_device *device)
{
	pthread_mutex_lock(&device->lock);
	verbs_async_take(device);
	pthread_mutex_unlock(&device->lock);
}
