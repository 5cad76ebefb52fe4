/* tests/unit/rdma/test_verbs_dead.c: the verbs provider over a device that does not exist: the
 * request that binds a memory window, and a device whose destructors fail, which must not end the
 * program. Functions of libibverbs are wrapped at link time; the other calls are in the context's
 * table. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "rdma/verbs/verbs_priv.h"

static int answer; /* result of every destructor */
static uint32_t destroyed, resets;
static struct ibv_send_wr posted;
static int post_answer;
/* While a queue pair is joined: its device, the result of each move, their count, and whether the
 * device dies meanwhile. */
static struct verbs_device *joining;
static int join_answer;
static uint32_t join_moves;
static struct verbs_qp *dying;

/* ---- The device. ---- */

int __wrap_ibv_destroy_cq(struct ibv_cq *cq);
int __wrap_ibv_destroy_qp(struct ibv_qp *qp);
int __wrap_ibv_destroy_srq(struct ibv_srq *srq);
int __wrap_ibv_destroy_ah(struct ibv_ah *ah);
int __wrap_ibv_dealloc_pd(struct ibv_pd *pd);
int __wrap_ibv_dereg_mr(struct ibv_mr *mr);
int __wrap_ibv_destroy_comp_channel(struct ibv_comp_channel *channel);
int __wrap_ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context);
int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);

#define DESTRUCTOR(name, type) \
	int name(type *it)     \
	{                      \
		(void)it;      \
		destroyed++;   \
		return answer; \
	}
DESTRUCTOR(__wrap_ibv_destroy_cq, struct ibv_cq)
DESTRUCTOR(__wrap_ibv_destroy_qp, struct ibv_qp)
DESTRUCTOR(__wrap_ibv_destroy_srq, struct ibv_srq)
DESTRUCTOR(__wrap_ibv_destroy_ah, struct ibv_ah)
DESTRUCTOR(__wrap_ibv_dealloc_pd, struct ibv_pd)
DESTRUCTOR(__wrap_ibv_dereg_mr, struct ibv_mr)
DESTRUCTOR(__wrap_ibv_destroy_comp_channel, struct ibv_comp_channel)
static DESTRUCTOR(mw_dealloc, struct ibv_mw)

	int __wrap_ibv_get_cq_event(
		struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context)
{
	(void)channel;
	(void)cq;
	(void)context;
	return -1;
}

int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	(void)qp;
	if (joining) {
		/* The call may take a second: other calls to the device go on. */
		assert_int_equal(pthread_mutex_trylock(&joining->lock), 0);
		pthread_mutex_unlock(&joining->lock);
		join_moves++;
		if (dying)
			atomic_store(&dying->state, RP_QPS_ERR);
		return join_answer;
	}
	assert_int_equal(mask, IBV_QP_STATE);
	resets += attr->qp_state == IBV_QPS_RESET;
	return EIO;
}

static int nothing_polled(struct ibv_cq *cq, int count, struct ibv_wc *wcs)
{
	(void)cq;
	(void)count;
	(void)wcs;
	return 0;
}

static int post(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	(void)qp;
	posted = *wr;
	*bad = wr;
	return post_answer;
}

static struct ibv_device card = {.name = "dead0"};
static struct ibv_context context = {.device = &card};
static struct ibv_pd the_pd = {.context = &context};

static struct ibv_mw *mw_alloc(struct ibv_pd *pd, enum ibv_mw_type type)
{
	static struct ibv_mw window;

	assert_int_equal(type, IBV_MW_TYPE_2);
	window = (struct ibv_mw){.context = &context, .pd = pd, .rkey = 0x1234ff, .type = type};
	return &window;
}

struct rig {
	struct verbs_device device;
	struct verbs_pd *pd;
	struct verbs_cq *cq;
	struct verbs_qp *qp;
	struct ibv_cq ibv_cq;
	struct ibv_qp ibv_qp;
};

static void *zeroed(size_t bytes)
{
	void *at = calloc(1, bytes);

	assert_non_null(at);
	return at;
}

static void rig_open(struct rig *rig)
{
	*rig = (struct rig){.device = {.context = &context, .port_deadline_ns = DEADLINE_NONE}};
	context.ops.poll_cq = nothing_polled;
	context.ops.post_send = post;
	context.ops.alloc_mw = mw_alloc;
	context.ops.dealloc_mw = mw_dealloc;
	destroyed = resets = 0;
	post_answer = 0;
	rig->device.base = (struct rp_device){.ops = &rp_verbs_ops, .magic = RP_DEVICE};
	pthread_mutex_init(&rig->device.lock, NULL);
	rig->device.timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	rig->device.event_fd = eventfd(0, EFD_CLOEXEC);
	list_init(&rig->device.qps);
	list_init(&rig->device.kept);
	list_init(&rig->device.told);
	rig->pd = zeroed(sizeof(*rig->pd));
	rig->pd->base = (struct rp_pd){.ops = &rp_verbs_ops, .magic = RP_PD};
	rig->pd->device = &rig->device;
	rig->pd->pd = &the_pd;
	rig->ibv_cq = (struct ibv_cq){.context = &context, .cqe = 16};
	rig->cq = zeroed(sizeof(*rig->cq));
	rig->cq->base = (struct rp_cq){.ops = &rp_verbs_ops, .magic = RP_CQ};
	rig->cq->device = &rig->device;
	rig->cq->cq = &rig->ibv_cq;
	rig->ibv_cq.cq_context = rig->cq;
	rig->ibv_qp = (struct ibv_qp){.context = &context, .pd = &the_pd};
	rig->qp = zeroed(sizeof(*rig->qp));
	rig->qp->base =
		(struct rp_qp){.ops = &rp_verbs_ops, .magic = RP_QP, .type = RP_QP_RC, .num = 17};
	rig->qp->handle = VERBS_HANDLE_QP;
	rig->qp->device = &rig->device;
	rig->qp->qp = &rig->ibv_qp;
	rig->qp->send_cq = rig->qp->recv_cq = rig->cq;
	list_init(&rig->qp->told_link);
	list_push_back(&rig->device.qps, &rig->qp->link);
	atomic_store(&rig->device.open_objects, 3);
}

/* Closes everything that it opened, whatever the device's results. */
static void rig_close(struct rig *rig)
{
	rp_qp_close(&rig->qp->base);
	rp_cq_close(&rig->cq->base);
	rp_pd_close(&rig->pd->base);
	assert_int_equal(atomic_load(&rig->device.open_objects), 0);
	pthread_mutex_destroy(&rig->device.lock);
	close(rig->device.timer_fd);
	close(rig->device.event_fd);
}

/* ---- Tests. ---- */

/* A device that was removed, or whose driver fails, refuses every destructor: everything is closed
 * as usual, its queue pair must not complete freed work, and no event reaches the queue. */
static void test_nothing_is_given_back(void **state)
{
	struct verbs_srq *srq = zeroed(sizeof(*srq));
	struct verbs_ah *ah = zeroed(sizeof(*ah));
	struct verbs_mr *mr = zeroed(sizeof(*mr));
	struct rig rig;

	(void)state;
	answer = EIO;
	rig_open(&rig);
	*srq = (struct verbs_srq){
		.base = {.ops = &rp_verbs_ops, .magic = RP_SRQ}, .device = &rig.device};
	*ah = (struct verbs_ah){.base = {&rp_verbs_ops, RP_AH}, .device = &rig.device};
	*mr = (struct verbs_mr){
		.base = {.ops = &rp_verbs_ops, .magic = RP_MR}, .device = &rig.device};
	atomic_fetch_add(&rig.device.open_objects, 3);
	rp_srq_close(&srq->base);
	rp_ah_close(&ah->base);
	rp_mr_close(&mr->base);
	rig_close(&rig);
	assert_int_equal(destroyed, 6);
	assert_int_equal(resets, 1);
	assert_null(rig.ibv_cq.cq_context);
}

/* A window is of type 2, is bound to its queue pair by a work request that only a failure
 * completes, opens the whole region for reading, and has the bound key, not the previous one. */
static void test_window_is_bound(void **state)
{
	struct verbs_mr mr = {
		.base = {.ops = &rp_verbs_ops, .magic = RP_MR, .access = RP_ACCESS_WINDOW}};
	struct ibv_mr region = {
		.context = &context, .pd = &the_pd, .addr = (void *)0x10000, .length = 8192};
	struct rp_mw *mw;
	struct rig rig;

	(void)state;
	answer = 0;
	mr.mr = &region;
	rig_open(&rig);
	assert_int_equal(rp_mw_open(&rig.qp->base, &mr.base, 77, &mw), 0);
	assert_int_equal(posted.opcode, IBV_WR_BIND_MW);
	assert_int_equal(posted.wr_id, 77);
	assert_int_equal(posted.send_flags, 0);
	assert_int_equal(posted.num_sge, 0);
	assert_null(posted.next);
	assert_int_equal(posted.bind_mw.rkey, 0x123400);
	assert_int_equal(rp_mw_rkey(mw), posted.bind_mw.rkey);
	assert_ptr_equal(posted.bind_mw.bind_info.mr, &region);
	assert_int_equal(posted.bind_mw.bind_info.addr, 0x10000);
	assert_int_equal(posted.bind_mw.bind_info.length, 8192);
	assert_int_equal(posted.bind_mw.bind_info.mw_access_flags, IBV_ACCESS_REMOTE_READ);
	rp_mw_close(mw);
	assert_int_equal(destroyed, 1);
	post_answer = ENOMEM;
	assert_int_equal(rp_mw_open(&rig.qp->base, &mr.base, 77, &mw), -ENOMEM);
	assert_int_equal(destroyed, 2);
	rig_close(&rig);
}

static uint32_t refusals;

static int notify_refused(struct ibv_cq *cq, int solicited)
{
	(void)cq;
	assert_int_equal(solicited, 0);
	refusals++;
	return EIO;
}

/* No event comes from a device that refuses to report one, so its owner may sleep; the next time it
 * asks again. */
static void test_a_refusal_to_report_keeps_nobody_awake(void **state)
{
	struct rig rig;

	(void)state;
	answer = 0;
	rig_open(&rig);
	context.ops.req_notify_cq = notify_refused;
	refusals = 0;
	assert_true(rp_cq_arm(&rig.cq->base));
	assert_true(rp_cq_arm(&rig.cq->base));
	assert_int_equal(refusals, 2);
	rig_close(&rig);
}

/* The descriptor of a removed device reports an error for ever. A thread that waits for its events
 * is told once, of the device and of each connection, and sleeps then. */
static void test_the_removal_keeps_nobody_awake(void **state)
{
	struct epoll_event async = {.events = EPOLLIN, .data.u32 = 1};
	struct rp_cm_event event;
	struct pollfd wait;
	struct rig rig;
	int ends[2];

	(void)state;
	rig_open(&rig);
	rig.device.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	assert_int_equal(pipe(ends), 0);
	close(ends[0]);
	context.async_fd = ends[1];
	assert_int_equal(epoll_ctl(rig.device.epoll_fd, EPOLL_CTL_ADD, ends[1], &async), 0);
	wait = (struct pollfd){.fd = rp_cm_fd(&rig.device.base), .events = POLLIN};
	rig.qp->conn = VERBS_CONN_UP;
	assert_int_equal(poll(&wait, 1, 0), 1);
	assert_int_equal(rp_cm_poll(&rig.device.base, &event), 1);
	assert_int_equal(event.type, RP_CM_DEVICE_FATAL);
	assert_null(event.qp);
	assert_int_equal(rp_cm_poll(&rig.device.base, &event), 1);
	assert_int_equal(event.type, RP_CM_DISCONNECTED);
	assert_ptr_equal(event.qp, &rig.qp->base);
	assert_int_equal(rp_cm_poll(&rig.device.base, &event), 0);
	assert_int_equal(poll(&wait, 1, 0), 0);
	close(rig.device.epoll_fd);
	close(ends[1]);
	rig_close(&rig);
}

/* A peer's address is looked for without the device's lock, and a device that dies meanwhile is not
 * taken for a connection. */
static void test_joining_holds_no_lock(void **state)
{
	const struct rp_address peer = {.has_gid = true, .qpn = 5, .mtu = 1024};
	struct rig rig;

	(void)state;
	answer = 0;
	rig_open(&rig);
	rig.device.has_gid = true;
	rig.device.port.active_mtu = IBV_MTU_1024;
	joining = &rig.device;
	join_moves = 0;
	join_answer = ETIMEDOUT;
	assert_int_equal(rp_qp_join(&rig.qp->base, &peer, true), -ETIMEDOUT);
	assert_int_equal(join_moves, 1);
	assert_false(rig.qp->joined);
	join_answer = 0;
	dying = rig.qp;
	assert_int_equal(rp_qp_join(&rig.qp->base, &peer, true), -EIO);
	assert_int_equal(atomic_load(&rig.qp->state), RP_QPS_ERR);
	dying = NULL;
	atomic_store(&rig.qp->state, RP_QPS_INIT);
	assert_int_equal(rp_qp_join(&rig.qp->base, &peer, true), 0);
	assert_int_equal(atomic_load(&rig.qp->state), RP_QPS_RTS);
	assert_int_equal(rp_qp_join(&rig.qp->base, &peer, true), -EISCONN);
	joining = NULL;
	rig_close(&rig);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_nothing_is_given_back),
	cmocka_unit_test(test_joining_holds_no_lock),
	cmocka_unit_test(test_window_is_bound),
	cmocka_unit_test(test_a_refusal_to_report_keeps_nobody_awake),
	cmocka_unit_test(test_the_removal_keeps_nobody_awake),
};

int main(void)
{
	log_set_level(LOG_ERROR + 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
