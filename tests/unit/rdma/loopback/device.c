/* tests/unit/rdma/loopback/device.c: the loopback provider's device, protection domains, memory
 * regions and address handles, and its ops table. */
#include "tests/unit/rdma/loopback/loopback.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define NAME "loopback"

pthread_mutex_t loop_lock = PTHREAD_MUTEX_INITIALIZER;
static struct loop_mr *mrs[LOOP_MRS_MAX];

void loop_count(struct loop_device *device, int change)
{
	pthread_mutex_lock(&loop_lock);
	device->open_objects += (uint32_t)change;
	pthread_mutex_unlock(&loop_lock);
}

/* ---- Device. ---- */

static bool claims(const char *device_name)
{
	return strcmp(device_name, NAME) == 0;
}

static void list_devices(struct buf *out)
{
	buf_put_str(out, " " NAME);
}

static int device_open(const struct rp_open_opts *opts, struct rp_device **ret_device)
{
	struct loop_device *device = calloc(1, sizeof(*device));

	(void)opts;
	if (!device)
		return -ENOMEM;
	device->base.ops = &loop_ops;
	list_init(&device->events);
	list_init(&device->qps);
	device->cm_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (device->cm_fd < 0) {
		int err = -errno;

		free(device);
		return err;
	}
	*ret_device = &device->base;
	return 0;
}

static void device_close(struct rp_device *base)
{
	struct loop_device *device = CONTAINER_OF(base, struct loop_device, base);

	CHECK(device->open_objects == 0);
	CHECK(list_empty(&device->qps));
	pthread_mutex_lock(&loop_lock);
	loop_cm_fini(device);
	pthread_mutex_unlock(&loop_lock);
	close(device->cm_fd);
	free(device);
}

static void device_attr(const struct rp_device *base, struct rp_device_attr *ret_attr)
{
	(void)base;
	*ret_attr = (struct rp_device_attr){
		.name = NAME,
		.provider = NAME,
		.transport = NAME,
		.simulated = true,
		.max_qp_wr = LOOP_WRS_MAX,
		.max_sge = LIMIT_SGE_MAX,
		.max_cqe = LOOP_CQES_MAX,
		.max_mr = LOOP_MRS_MAX,
		.max_inline_data = LOOP_INLINE_BYTES,
		.active_mtu = LOOP_MTU,
		.qp_types = 1u << RP_QP_RC,
		.atomics = true,
		.srq = true,
	};
}

/* ---- Protection domains. ---- */

static int pd_open(struct rp_device *base, struct rp_pd **ret_pd)
{
	struct loop_pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return -ENOMEM;
	pd->base.ops = &loop_ops;
	pd->device = CONTAINER_OF(base, struct loop_device, base);
	loop_count(pd->device, 1);
	*ret_pd = &pd->base;
	return 0;
}

static void pd_close(struct rp_pd *base)
{
	struct loop_pd *pd = CONTAINER_OF(base, struct loop_pd, base);

	loop_count(pd->device, -1);
	free(pd);
}

/* ---- Memory regions. ---- */

/* Locked. Finds a place in the table, and makes a key for it that cannot be guessed. */
static int mr_enlist(struct loop_mr *mr)
{
	uint32_t secret;

	for (uint32_t i = 0; i < LOOP_MRS_MAX; i++) {
		if (mrs[i])
			continue;
		random_fill(&secret, sizeof(secret));
		mr->base.lkey = mr->base.rkey = (secret & ~(LOOP_MRS_MAX - 1)) | i;
		mrs[i] = mr;
		return 0;
	}
	return -ENOMEM;
}

static int mr_open(struct rp_pd *base, const struct rp_mr_opts *opts, struct rp_mr **ret_mr)
{
	struct loop_mr *mr;
	int err;

	if (opts->dma_buf)
		return -EOPNOTSUPP;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return -ENOMEM;
	mr->base.ops = &loop_ops;
	mr->base.access = opts->access;
	mr->pd = CONTAINER_OF(base, struct loop_pd, base);
	mr->addr = (uintptr_t)opts->addr;
	mr->bytes = opts->bytes;
	pthread_mutex_lock(&loop_lock);
	err = mr_enlist(mr);
	pthread_mutex_unlock(&loop_lock);
	if (err) {
		free(mr);
		return err;
	}
	loop_count(mr->pd->device, 1);
	*ret_mr = &mr->base;
	return 0;
}

static void mr_close(struct rp_mr *base)
{
	struct loop_mr *mr = CONTAINER_OF(base, struct loop_mr, base);

	pthread_mutex_lock(&loop_lock);
	CHECK(mrs[base->lkey % LOOP_MRS_MAX] == mr);
	mrs[base->lkey % LOOP_MRS_MAX] = NULL;
	pthread_mutex_unlock(&loop_lock);
	loop_count(mr->pd->device, -1);
	free(mr);
}

struct loop_mr *loop_mr_find(
	const struct loop_pd *pd, uint32_t key, uint64_t addr, uint64_t bytes, uint32_t access)
{
	struct loop_mr *mr = mrs[key % LOOP_MRS_MAX];

	if (!mr || mr->base.lkey != key || mr->pd != pd || (mr->base.access & access) != access)
		return NULL;
	if (addr < mr->addr || bytes > mr->bytes || addr - mr->addr > mr->bytes - bytes)
		return NULL;
	return mr;
}

static int mw_open(struct rp_qp *qp, struct rp_mr *mr, uint64_t wr_id, struct rp_mw **ret_mw)
{
	(void)qp;
	(void)mr;
	(void)wr_id;
	(void)ret_mw;
	return -EOPNOTSUPP;
}

static void mw_close(struct rp_mw *mw)
{
	(void)mw;
}

/* ---- Address handles: there is one place only. ---- */

static int ah_open(struct rp_pd *base, const struct rp_address *to, struct rp_ah **ret_ah)
{
	struct loop_ah *ah;

	if (!to->has_gid)
		return -EINVAL;
	ah = calloc(1, sizeof(*ah));
	if (!ah)
		return -ENOMEM;
	ah->base.ops = &loop_ops;
	ah->pd = CONTAINER_OF(base, struct loop_pd, base);
	loop_count(ah->pd->device, 1);
	*ret_ah = &ah->base;
	return 0;
}

static void ah_close(struct rp_ah *base)
{
	struct loop_ah *ah = CONTAINER_OF(base, struct loop_ah, base);

	loop_count(ah->pd->device, -1);
	free(ah);
}

/* ---- Calls that this provider does not support. ---- */

static int ah_from_wc(
	struct rp_pd *base, const struct rp_wc *wc, const void *grh, struct rp_ah **ret_ah)
{
	(void)base;
	(void)wc;
	(void)grh;
	(void)ret_ah;
	return -EINVAL;
}

static int group_join(struct rp_qp *qp, const char *address, struct rp_group **ret_group)
{
	(void)qp;
	(void)address;
	(void)ret_group;
	return -EOPNOTSUPP;
}

static void group_leave(struct rp_group *group)
{
	(void)group;
}

static int flow_open(struct rp_qp *qp, const struct rp_flow_rule *rule, struct rp_flow **ret_flow)
{
	(void)qp;
	(void)rule;
	(void)ret_flow;
	return -EOPNOTSUPP;
}

static void flow_close(struct rp_flow *flow)
{
	(void)flow;
}

static int dci_aim(struct rp_qp *dci, struct rp_ah *ah, uint32_t target_qpn, uint64_t dc_key)
{
	(void)dci;
	(void)ah;
	(void)target_qpn;
	(void)dc_key;
	return -EOPNOTSUPP;
}

static struct rp_counts counts = RP_COUNTS(NAME);

const struct rp_ops loop_ops = {
	.name = NAME,
	.counts = &counts,
	.claims = claims,
	.list = list_devices,
	.open = device_open,
	.close = device_close,
	.device_attr = device_attr,
	.pd_open = pd_open,
	.pd_close = pd_close,
	.mr_open = mr_open,
	.mr_close = mr_close,
	.mw_open = mw_open,
	.mw_close = mw_close,
	.cq_open = loop_cq_open,
	.cq_close = loop_cq_close,
	.cq_poll = loop_cq_poll,
	.cq_arm = loop_cq_arm,
	.cq_disarm = loop_cq_disarm,
	.srq_open = loop_srq_open,
	.srq_close = loop_srq_close,
	.srq_post = loop_srq_post,
	.qp_open = loop_qp_open,
	.qp_close = loop_qp_close,
	.qp_state = loop_qp_state,
	.post_send = loop_post_send,
	.post_recv = loop_post_recv,
	.qp_error = loop_qp_error,
	.qp_info = loop_qp_info,
	.ah_open = ah_open,
	.ah_from_wc = ah_from_wc,
	.ah_close = ah_close,
	.group_join = group_join,
	.group_leave = group_leave,
	.flow_open = flow_open,
	.flow_close = flow_close,
	.dci_aim = dci_aim,
	.listen = loop_listen,
	.listener_close = loop_listener_close,
	.connect = loop_connect,
	.accept = loop_accept,
	.reject = loop_reject,
	.disconnect = loop_disconnect,
	.qp_address = loop_qp_address,
	.qp_join = loop_qp_join,
	.cm_poll = loop_cm_poll,
	.cm_fd = loop_cm_fd,
};
