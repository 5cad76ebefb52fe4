/* rdma/verbs/cm_listen.c: the side that listens: listeners, and the requests of peers until they
 * are accepted or rejected. */
#include <errno.h>
#include <stdlib.h>

#include "rdma/verbs/verbs_priv.h"

#define BACKLOG 1024

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
			ibv_get_device_name(listener->id->verbs->device),
			verbs_device_name(device));
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

bool verbs_request_notice(struct verbs_device *device, const struct verbs_notice *notice,
	struct rp_cm_event *ret_event)
{
	enum verbs_handle *handle = notice->id->context;
	struct verbs_listener *listener = CONTAINER_OF(handle, struct verbs_listener, handle);
	struct verbs_request *request = calloc(1, sizeof(*request));
	const char *why = NULL;

	*ret_event =
		(struct rp_cm_event){.type = RP_CM_CONNECT_REQUEST, .listener = &listener->base};
	verbs_peer_text(notice->id, ret_event->peer);
	if (!request)
		why = "out of memory";
	else if (!verbs_is_ours(device, notice->id))
		why = "it arrived on another device";
	else if (!verbs_hello_unpack(slice_of(notice->data, notice->data_bytes), ret_event,
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
	struct rdma_conn_param param = verbs_conn_param(qp);
	uint8_t data[VERBS_HELLO_BYTES];
	int err;

	if (request->gone)
		return -ECONNRESET;
	if (qp->device != request->device || qp->conn != VERBS_CONN_NONE ||
		qp->type != request->type || atomic_load(&qp->state) != RP_QPS_INIT)
		return -EINVAL;
	param.responder_resources =
		(uint8_t)MIN(param.responder_resources, request->responder_resources);
	param.initiator_depth = (uint8_t)MIN(param.initiator_depth, request->initiator_depth);
	request->responder_resources = param.responder_resources;
	request->initiator_depth = param.initiator_depth;
	qp->id = request->id;
	qp->peer_mtu = request->peer_mtu;
	err = verbs_qp_bring_up(qp, request);
	if (err) {
		qp->id = NULL;
		return err;
	}
	param.private_data = data;
	param.private_data_len = verbs_hello_pack(qp->device, qp->type, private_data, data);
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
	if (!request->gone &&
		rdma_reject(request->id, data,
			verbs_hello_pack(request->device, RP_QP_RC, private_data, data)))
		log_debug("rdma", "%s did not wait for its rejection", request->peer);
	rdma_destroy_id(request->id);
	request_free(request);
	pthread_mutex_unlock(&device->lock);
}
