/* tests/unit/front/fake_rdma.c: the device of fake_rdma.h. */
#include "fake_rdma.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define RECVS_MAX  512u
#define SENDS_MAX  512u
#define EVENTS_MAX 16u
#define HELD_MAX   64u

struct fake_rdma fake;

struct rp_pd {
	int unused;
};
struct rp_mw {
	uint32_t key;
};

struct rp_mr {
	uint32_t key;
};
struct rp_ah {
	int unused;
};
struct rp_listener {
	void *context;
	uint16_t port;
};
struct completion {
	struct list link;
	struct rp_wc wc;
	struct rp_qp *qp;
};
struct rp_cq {
	struct list completions;
	int fd;
	bool armed;
};
struct fake_send {
	struct rp_send_wr wr;
	struct rp_sge sge;
	uint8_t inlined[512];
};
struct rp_qp {
	struct list link; /* fake.qps */
	struct rp_qp_attr attr;
	struct rp_qp_cap cap;
	enum rp_qp_state state;
	uint32_t num;
	bool closed;
	struct rp_recv_wr recvs[RECVS_MAX];
	struct rp_sge recv_sges[RECVS_MAX];
	uint32_t recv_head, recv_tail;
	struct fake_send sends[SENDS_MAX];
	uint32_t send_head, send_tail; /* held */
	uint32_t unsignaled;	       /* done, but their place is not free yet */
	struct list outbox;
	struct region *region;
	uint16_t target;
	struct region_ring *held_ring;
	struct region_wr held[HELD_MAX];
	uint32_t held_count;
};
struct rp_device {
	struct rp_cm_event events[EVENTS_MAX];
	uint32_t head, tail;
	int fd;
	uint32_t keys;
};
static struct rp_device the_device;
static pthread_t loop;
static sem_t joins;

static int take(int *error)
{
	int ret = *error;

	*error = 0;
	return ret;
}

void fake_open(void)
{
	memset(&fake, 0, sizeof(fake));
	loop = pthread_self();
	sem_init(&joins, 0, 0);
	memset(&the_device, 0, sizeof(the_device));
	list_init(&fake.qps);
	fake.inline_bytes = 512;
	fake.attr = (struct rp_device_attr){.name = "fake",
		.windows = true,
		.provider = "fake",
		.transport = "fake",
		.max_qp_wr = 512,
		.max_sge = 4,
		.max_cqe = 1u << 16,
		.max_inline_data = 512,
		.qp_types = 1u << RP_QP_RC};
	the_device.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

void fake_close(void)
{
	struct list *link;
	struct fake_message *message;

	while ((link = list_pop(&fake.qps)) != NULL) {
		struct rp_qp *qp = CONTAINER_OF(link, struct rp_qp, link);

		CHECK(qp->closed);
		while ((message = fake_sent(qp)) != NULL)
			free(message);
		free(qp);
	}
	close(the_device.fd);
	sem_destroy(&joins);
}

struct rp_device *fake_device(void)
{
	return &the_device;
}

/* ---- Completions. ---- */

static void complete(struct rp_qp *qp, struct rp_cq *cq, uint64_t wr_id, enum rp_status status)
{
	struct completion *completion = calloc(1, sizeof(*completion));
	const uint64_t one = 1;

	completion->wc = (struct rp_wc){.wr_id = wr_id, .status = status, .qpn = qp->num};
	completion->qp = qp;
	list_push_back(&cq->completions, &completion->link);
	if (cq->armed && write(cq->fd, &one, sizeof(one)) < 0)
		CHECK_FAIL("an eventfd takes no more");
}

int rp_cq_open(struct rp_device *device, uint32_t cqe_count, struct rp_cq **ret_cq)
{
	struct rp_cq *cq;
	int ret = take(&fake.cq_open_error);

	(void)device;
	(void)cqe_count;
	if (ret)
		return ret;
	cq = calloc(1, sizeof(*cq));
	list_init(&cq->completions);
	cq->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	*ret_cq = cq;
	return 0;
}

void rp_cq_close(struct rp_cq *cq)
{
	struct list *link;

	if (!cq)
		return;
	while ((link = list_pop(&cq->completions)) != NULL)
		free(CONTAINER_OF(link, struct completion, link));
	close(cq->fd);
	free(cq);
}

bool rp_cq_arm(struct rp_cq *cq)
{
	cq->armed = list_empty(&cq->completions);
	return cq->armed;
}

void rp_cq_disarm(struct rp_cq *cq)
{
	uint64_t count;

	cq->armed = false;
	while (read(cq->fd, &count, sizeof(count)) > 0)
		continue;
}

int rp_cq_fd(const struct rp_cq *cq)
{
	return cq->fd;
}

uint32_t rp_cq_drain(struct rp_cq *cq, struct region_ring *ring, rp_wc_fn *fn, void *arg)
{
	struct list *link;
	uint32_t count = 0;

	(void)ring;
	while ((link = list_pop(&cq->completions)) != NULL) {
		struct completion *completion = CONTAINER_OF(link, struct completion, link);
		struct rp_wc wc = completion->wc;

		free(completion);
		fn(arg, &wc);
		count++;
	}
	return count;
}

/* ---- Queue pairs. ---- */

int rp_qp_open(struct rp_pd *pd, const struct rp_qp_attr *attr, struct rp_qp **ret_qp)
{
	static uint32_t numbers;
	struct rp_qp *qp;
	int ret = take(&fake.qp_open_error);

	(void)pd;
	if (ret)
		return ret;
	qp = calloc(1, sizeof(*qp));
	qp->attr = *attr;
	qp->cap = attr->cap;
	if (fake.send_room)
		qp->cap.max_send_wr = fake.send_room;
	qp->cap.max_inline_data = fake.inline_bytes;
	qp->num = ++numbers;
	qp->state = attr->type == RP_QP_RC ? RP_QPS_INIT : RP_QPS_RTS;
	list_init(&qp->outbox);
	list_push_back(&fake.qps, &qp->link);
	fake.qps_open++;
	*ret_qp = qp;
	return 0;
}

static void ring_end(struct rp_qp *qp, bool cancelled)
{
	struct region_ring *ring = qp->held_ring;

	for (uint32_t i = 0; i < qp->held_count; i++) {
		const struct region_wr *wr = &qp->held[i];
		struct region_cqe cqe;

		if (!cancelled && wr->rkey == FAKE_RKEY && qp->state == RP_QPS_RTS) {
			void *ours = (void *)(uintptr_t)wr->sge[0].addr;
			void *theirs = (void *)(uintptr_t)wr->remote_addr;

			if (wr->opcode == REGION_OP_RDMA_READ)
				memcpy(ours, theirs, wr->sge[0].len);
			else
				memcpy(theirs, ours, wr->sge[0].len);
			cqe = region_wr_done(wr, (int32_t)wr->sge[0].len);
		} else {
			cqe = region_wr_done(wr, wr->rkey == FAKE_RKEY ? -ECANCELED : -EACCES);
		}
		region_complete(ring, &cqe);
	}
	qp->held_count = 0;
}

void rp_qp_close(struct rp_qp *qp)
{
	struct rp_cq *cq;

	if (!qp)
		return;
	CHECK(!qp->closed);
	cq = qp->attr.send_cq;
	ring_end(qp, true);
	if (qp->region)
		region_target_remove(qp->region, qp->target);
	LIST_FOR_EACH_SAFE (link, &cq->completions) {
		struct completion *completion = CONTAINER_OF(link, struct completion, link);

		if (completion->qp != qp)
			continue;
		list_remove(&completion->link);
		free(completion);
	}
	qp->closed = true;
	qp->recv_head = qp->recv_tail;
	qp->send_head = qp->send_tail;
	fake.qps_open--;
}

bool fake_closed(const struct rp_qp *qp)
{
	return qp->closed;
}

void *rp_qp_context(const struct rp_qp *qp)
{
	return qp->attr.context;
}

enum rp_qp_state rp_qp_state(const struct rp_qp *qp)
{
	fake.state_asked++;
	return qp->state;
}

void fake_state(struct rp_qp *qp, enum rp_qp_state state)
{
	qp->state = state;
}

void rp_qp_cap(const struct rp_qp *qp, struct rp_qp_cap *ret_cap)
{
	*ret_cap = qp->cap;
}

void rp_qp_info(struct rp_qp *qp, struct rp_qp_info *ret_info)
{
	*ret_info = (struct rp_qp_info){.state = qp->state, .qpn = qp->num};
}

void rp_qp_info_text(const struct rp_qp_info *info, char *text, size_t size)
{
	(void)info;
	if (size)
		*text = '\0';
}

void fake_flush(struct rp_qp *qp)
{
	for (; qp->recv_head != qp->recv_tail; qp->recv_head++)
		complete(qp, qp->attr.recv_cq, qp->recvs[qp->recv_head % RECVS_MAX].wr_id,
			RP_WC_WR_FLUSH_ERR);
	for (; qp->send_head != qp->send_tail; qp->send_head++)
		complete(qp, qp->attr.send_cq, qp->sends[qp->send_head % SENDS_MAX].wr.wr_id,
			RP_WC_WR_FLUSH_ERR);
	ring_end(qp, true);
	qp->unsignaled = 0;
}

void rp_qp_error(struct rp_qp *qp)
{
	qp->state = RP_QPS_ERR;
	if (!fake.never_flushes)
		fake_flush(qp);
}

void rp_disconnect(struct rp_qp *qp)
{
	CHECK(!qp->closed);
}

void fake_break(struct rp_qp *qp, enum rp_status status)
{
	if (qp->send_head != qp->send_tail) {
		complete(qp, qp->attr.send_cq, qp->sends[qp->send_head % SENDS_MAX].wr.wr_id,
			status);
		qp->send_head++;
	}
	qp->state = RP_QPS_ERR;
	fake_flush(qp);
}

/* ---- Receiving. ---- */

int rp_post_recv(
	struct rp_qp *qp, const struct rp_recv_wr *wrs, uint32_t count, uint32_t *ret_posted)
{
	*ret_posted = 0;
	if (fake.post_recv_error && !fake.post_recvs)
		return take(&fake.post_recv_error);
	if (fake.post_recv_error)
		fake.post_recvs--;
	for (uint32_t i = 0; i < count; i++) {
		if (qp->recv_tail - qp->recv_head == qp->cap.max_recv_wr)
			return -ENOMEM;
		qp->recvs[qp->recv_tail % RECVS_MAX] = wrs[i];
		if (wrs[i].sge_count)
			qp->recv_sges[qp->recv_tail % RECVS_MAX] = wrs[i].sg_list[0];
		qp->recv_tail++;
		(*ret_posted)++;
	}
	return 0;
}

uint32_t fake_recvs(const struct rp_qp *qp)
{
	return qp->recv_tail - qp->recv_head;
}

bool fake_deliver(struct rp_qp *qp, const void *data, uint32_t bytes)
{
	const struct rp_recv_wr *wr = &qp->recvs[qp->recv_head % RECVS_MAX];
	const struct rp_sge *sge = &qp->recv_sges[qp->recv_head % RECVS_MAX];
	bool fits = bytes <= sge->length;

	if (qp->recv_head == qp->recv_tail)
		return false;
	if (fits)
		memcpy((void *)(uintptr_t)sge->addr, data, bytes);
	complete(qp, qp->attr.recv_cq, wr->wr_id, fits ? RP_WC_SUCCESS : RP_WC_LOC_LEN_ERR);
	CONTAINER_OF(qp->attr.recv_cq->completions.prev, struct completion, link)->wc.byte_len =
		bytes;
	qp->recv_head++;
	return true;
}

/* ---- Sending. ---- */

static const void *payload(const struct fake_send *send)
{
	return send->wr.flags & RP_SEND_INLINE ? send->inlined
					       : (const void *)(uintptr_t)send->sge.addr;
}

static void send_do(struct rp_qp *qp, const struct fake_send *send)
{
	const struct rp_send_wr *wr = &send->wr;
	struct fake_message *message;

	if (wr->opcode == RP_SEND) {
		message = malloc(sizeof(*message) + send->sge.length);
		message->bytes = send->sge.length;
		memcpy(message->data, payload(send), send->sge.length);
		list_push_back(&qp->outbox, &message->link);
	} else if (wr->sge_count && wr->rkey == FAKE_RKEY) {
		memcpy((void *)(uintptr_t)wr->remote_addr, payload(send), send->sge.length);
	} else if (wr->sge_count) {
		complete(qp, qp->attr.send_cq, wr->wr_id, RP_WC_REM_ACCESS_ERR);
		qp->state = RP_QPS_ERR;
		return;
	}
	if (wr->flags & RP_SEND_SIGNALED) {
		complete(qp, qp->attr.send_cq, wr->wr_id, RP_WC_SUCCESS);
		qp->unsignaled = 0;
	} else {
		qp->unsignaled++;
	}
}

void fake_sends_go(struct rp_qp *qp, uint32_t count)
{
	while (qp->state != RP_QPS_ERR && qp->send_head != qp->send_tail && count--)
		send_do(qp, &qp->sends[qp->send_head++ % SENDS_MAX]);
	if (qp->state == RP_QPS_ERR && !fake.never_flushes)
		fake_flush(qp);
}

uint32_t fake_sends(const struct rp_qp *qp)
{
	return qp->send_tail - qp->send_head;
}

int rp_post_send(
	struct rp_qp *qp, const struct rp_send_wr *wrs, uint32_t count, uint32_t *ret_posted)
{
	CHECK(!qp->closed);
	*ret_posted = 0;
	if (fake.post_send_error)
		return take(&fake.post_send_error);
	for (uint32_t i = 0; i < count; i++) {
		struct fake_send *send = &qp->sends[qp->send_tail % SENDS_MAX];

		if (fake_sends(qp) + qp->unsignaled >= qp->cap.max_send_wr) {
			if (!fake.hold_sends)
				fake_sends_go(qp, UINT32_MAX);
			return -ENOMEM;
		}
		send->wr = wrs[i];
		send->sge = wrs[i].sge_count ? wrs[i].sg_list[0] : (struct rp_sge){0};
		if (wrs[i].flags & RP_SEND_INLINE) {
			CHECK(send->sge.length <= qp->cap.max_inline_data);
			memcpy(send->inlined, (void *)(uintptr_t)send->sge.addr, send->sge.length);
		}
		qp->send_tail++;
		(*ret_posted)++;
	}
	if (!fake.hold_sends)
		fake_sends_go(qp, UINT32_MAX);
	return 0;
}

struct fake_message *fake_sent(struct rp_qp *qp)
{
	struct list *link = list_pop(&qp->outbox);

	return link ? CONTAINER_OF(link, struct fake_message, link) : NULL;
}

/* ---- The rings. ---- */

static uint32_t submit_none(
	void *device, struct region_ring *ring, const struct region_sqe *entries, uint32_t count)
{
	(void)device;
	(void)ring;
	(void)entries;
	(void)count;
	CHECK_FAIL("a queue pair takes no base entries");
}

static uint32_t submit_wr(
	void *device, struct region_ring *ring, const struct region_wr *entries, uint32_t count)
{
	struct rp_qp *qp = device;
	uint32_t taken = MIN(count, HELD_MAX - qp->held_count);
	bool held = fake.hold_ring && (!fake.hold_only || fake.hold_only == qp);

	qp->held_ring = ring;
	memcpy(qp->held + qp->held_count, entries, taken * sizeof(*entries));
	qp->held_count += taken;
	if (!held || (qp->state == RP_QPS_ERR && !fake.never_flushes))
		ring_end(qp, qp->state == RP_QPS_ERR);
	return taken;
}

static void bell(void *device, struct region_ring *ring)
{
	(void)device;
	(void)ring;
}

static const struct region_device_ops TARGET_OPS = {
	.name = "fake", .submit = submit_none, .submit_wr = submit_wr, .bell = bell};

int rp_qp_target(struct rp_qp *qp, struct region *region, uint16_t *ret_target)
{
	int ret = take(&fake.target_error);

	if (ret)
		return ret;
	ret = region_target_add(region, &TARGET_OPS, qp, "fake", &qp->target);
	if (ret)
		return ret;
	qp->region = region;
	*ret_target = qp->target;
	return 0;
}

void fake_ring_go(struct rp_qp *qp)
{
	ring_end(qp, false);
}

bool fake_ring_held(const struct rp_qp *qp)
{
	return qp->held_count > 0;
}

/* ---- Devices, domains, memory. ---- */

void rp_device_attr(const struct rp_device *device, struct rp_device_attr *ret_attr)
{
	(void)device;
	*ret_attr = fake.attr;
}

int rp_pd_open(struct rp_device *device, struct rp_pd **ret_pd)
{
	int ret = take(&fake.pd_open_error);

	(void)device;
	if (!ret)
		*ret_pd = calloc(1, sizeof(**ret_pd));
	return ret;
}

void rp_pd_close(struct rp_pd *pd)
{
	free(pd);
}

int rp_mr_open(struct rp_pd *pd, const struct rp_mr_opts *opts, struct rp_mr **ret_mr)
{
	int ret = take(&fake.mr_open_error);

	(void)pd;
	(void)opts;
	if (ret)
		return ret;
	*ret_mr = calloc(1, sizeof(**ret_mr));
	(*ret_mr)->key = ++the_device.keys;
	return 0;
}

void rp_mr_close(struct rp_mr *mr)
{
	free(mr);
}

uint32_t rp_mr_lkey(const struct rp_mr *mr)
{
	return mr->key;
}

uint32_t rp_mr_rkey(const struct rp_mr *mr)
{
	return mr->key;
}

int rp_mw_open(struct rp_qp *qp, struct rp_mr *mr, uint64_t wr_id, struct rp_mw **ret_mw)
{
	(void)mr;
	(void)wr_id;
	CHECK(qp->attr.type == RP_QP_RC);
	*ret_mw = calloc(1, sizeof(**ret_mw));
	(*ret_mw)->key = ++the_device.keys;
	return 0;
}

void rp_mw_close(struct rp_mw *mw)
{
	free(mw);
}

uint32_t rp_mw_rkey(const struct rp_mw *mw)
{
	return mw->key;
}

/* ---- Connections. ---- */

static void event_push(const struct rp_cm_event *event)
{
	const uint64_t one = 1;

	CHECK(the_device.tail - the_device.head < EVENTS_MAX);
	the_device.events[the_device.tail++ % EVENTS_MAX] = *event;
	if (write(the_device.fd, &one, sizeof(one)) < 0)
		CHECK_FAIL("an eventfd takes no more");
}

void fake_connect(struct rp_conn_request *request, const void *private_data, uint32_t private_len)
{
	struct rp_cm_event event = {
		.type = RP_CM_CONNECT_REQUEST, .request = request, .private_len = private_len};

	*request = (struct rp_conn_request){.qp = NULL};
	strcpy(event.peer, "192.0.2.7:1");
	memcpy(event.private_data, private_data, private_len);
	event_push(&event);
}

void fake_event(enum rp_cm_type type, struct rp_qp *qp)
{
	struct rp_cm_event event = {.type = type, .qp = qp};

	event_push(&event);
}

int rp_cm_poll(struct rp_device *device, struct rp_cm_event *ret_event)
{
	uint64_t count;

	if (device->head == device->tail) {
		while (read(device->fd, &count, sizeof(count)) > 0)
			continue;
		return 0;
	}
	*ret_event = device->events[device->head++ % EVENTS_MAX];
	return 1;
}

int rp_cm_fd(const struct rp_device *device)
{
	return device->fd;
}

int rp_listen(struct rp_device *device, const char *address, uint16_t port, void *context,
	struct rp_listener **ret_listener)
{
	int ret = take(&fake.listen_error);

	(void)device;
	(void)address;
	if (ret)
		return ret;
	*ret_listener = calloc(1, sizeof(**ret_listener));
	(*ret_listener)->context = context;
	(*ret_listener)->port = port ? port : 9100;
	return 0;
}

void rp_listener_close(struct rp_listener *listener)
{
	free(listener);
}

uint16_t rp_listener_port(const struct rp_listener *listener)
{
	return listener->port;
}

int rp_accept(struct rp_conn_request *request, struct rp_qp *qp, const void *private_data,
	uint32_t private_len)
{
	int ret = take(&fake.accept_error);

	(void)private_data;
	(void)private_len;
	if (ret)
		return ret;
	qp->state = RP_QPS_RTS;
	request->qp = qp;
	return 0;
}

void rp_reject(struct rp_conn_request *request, const void *private_data, uint32_t private_len)
{
	(void)private_data;
	(void)private_len;
	request->rejected = true;
	fake.rejected++;
}

/* ---- Connecting without a connection manager, and targets without a connection. ---- */

int rp_qp_address(struct rp_qp *qp, struct rp_address *ret_address)
{
	int ret = take(&fake.address_error);

	if (!ret)
		*ret_address = (struct rp_address){.lid = 1, .qpn = qp->num, .psn = 1, .mtu = 4096};
	return ret;
}

/* Of calls for which a card's driver looks for an address on the network. */
static void may_block(void)
{
	bool on_loop = pthread_equal(pthread_self(), loop);

	if (on_loop)
		atomic_fetch_add(&fake.loop_blocked, 1);
	if (on_loop || !atomic_load(&fake.hold_joins))
		return;
	atomic_fetch_add(&fake.joins_held, 1);
	while (sem_wait(&joins))
		continue;
}

void fake_joins_go(void)
{
	atomic_store(&fake.hold_joins, false);
	for (; atomic_load(&fake.joins_held); atomic_fetch_sub(&fake.joins_held, 1))
		sem_post(&joins);
}

int rp_qp_join(struct rp_qp *qp, const struct rp_address *peer, bool first)
{
	int ret;

	(void)peer;
	(void)first;
	may_block();
	ret = take(&fake.join_error);
	if (!ret)
		qp->state = RP_QPS_RTS;
	return ret;
}

int rp_ah_open(struct rp_pd *pd, const struct rp_address *to, struct rp_ah **ret_ah)
{
	int ret;

	(void)pd;
	(void)to;
	may_block();
	ret = take(&fake.ah_error);
	if (ret)
		return ret;
	*ret_ah = calloc(1, sizeof(**ret_ah));
	fake.ahs_open++;
	return 0;
}

void rp_ah_close(struct rp_ah *ah)
{
	if (!ah)
		return;
	free(ah);
	fake.ahs_open--;
}

int rp_dci_aim(struct rp_qp *dci, struct rp_ah *ah, uint32_t target_qpn, uint64_t dc_key)
{
	(void)dci;
	(void)ah;
	(void)target_qpn;
	(void)dc_key;
	return take(&fake.aim_error);
}

const char *rp_status_str(enum rp_status status)
{
	return status == RP_WC_SUCCESS ? "success" : "a failure";
}

int rp_status_errno(enum rp_status status)
{
	return status == RP_WC_SUCCESS ? 0 : status == RP_WC_WR_FLUSH_ERR ? -ECANCELED : -EIO;
}
