/* rdma/verbs/cm_poll.c: what the connection manager waits for, as events of one epoll descriptor:
 * rdma_cm's channel, the device, a timer for deadlines, and a bell for events that we make
 * ourselves. */
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "rdma/verbs/verbs_priv.h"

#define EVENTS_AT_ONCE 64

enum source { SOURCE_CHANNEL, SOURCE_ASYNC, SOURCE_TIMER, SOURCE_BELL };

/* ---- Deadlines. ---- */

void verbs_timer_update(struct verbs_device *device)
{
	uint64_t first_ns = MIN(device->port_deadline_ns, verbs_kept_due(device));
	struct itimerspec when = {0};

	LIST_FOR_EACH (link, &device->qps) {
		struct verbs_qp *qp = CONTAINER_OF(link, struct verbs_qp, link);

		if (verbs_is_trying(qp))
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

/* ---- rdma_cm's events. ---- */

static bool handle_notice(struct verbs_device *device, const struct verbs_notice *notice,
	struct rp_cm_event *ret_event)
{
	enum verbs_handle *handle = notice->id->context;

	if (notice->type == RDMA_CM_EVENT_CONNECT_REQUEST)
		return verbs_request_notice(device, notice, ret_event);
	switch (*handle) {
	case VERBS_HANDLE_QP:
		return verbs_qp_notice(
			CONTAINER_OF(handle, struct verbs_qp, handle), notice, ret_event);
	case VERBS_HANDLE_GROUP:
		return verbs_group_notice(
			CONTAINER_OF(handle, struct verbs_group, handle), notice, ret_event);
	case VERBS_HANDLE_REQUEST:
		CONTAINER_OF(handle, struct verbs_request, handle)->gone = true;
		return false;
	case VERBS_HANDLE_KEPT:
		return false;
	case VERBS_HANDLE_LISTENER:
		if (notice->type == RDMA_CM_EVENT_DEVICE_REMOVAL) {
			verbs_device_fail(device);
			return false;
		}
		log_warn("rdma", "%s: listener: %s", verbs_device_name(device),
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

		if (verbs_is_trying(qp) && now_ns >= qp->deadline_ns)
			verbs_attempt_late(qp);
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

/* The device was removed or reset. The descriptor reports that for ever, and whoever waits for the
 * events of both would never sleep again. */
static bool is_lost(struct verbs_device *device, const struct epoll_event *event)
{
	int fd = event->data.u32 == SOURCE_ASYNC ? device->context->async_fd : -1;

	if (fd < 0 || event->events & EPOLLIN || !(event->events & (EPOLLERR | EPOLLHUP)))
		return false;
	epoll_ctl(device->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
	return true;
}

int verbs_cm_poll(struct rp_device *base, struct rp_cm_event *ret_event)
{
	struct verbs_device *device = verbs_device(base);
	bool found;

	pthread_mutex_lock(&device->lock);
	found = verbs_told_pop(device, ret_event);
	for (int i = 0; !found && i < EVENTS_AT_ONCE; i++) {
		struct epoll_event event;

		if (epoll_wait(device->epoll_fd, &event, 1, 0) != 1)
			break;
		if (is_lost(device, &event))
			verbs_device_fail(device);
		else
			found = handle_source(device, event.data.u32, ret_event);
		found = found || verbs_told_pop(device, ret_event);
	}
	pthread_mutex_unlock(&device->lock);
	return found;
}

int verbs_cm_fd(const struct rp_device *base)
{
	return verbs_device(base)->epoll_fd;
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
