/* tests/unit/rdma/test_verbs_dc_open.c: covers how rdma/verbs/dc.c opens
 * targets and initiators: what libmlx5 and libibverbs are asked, recorded by
 * stand-ins for their functions. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rdma/verbs/dc.h"

#define MODIFIES_MAX 4u
#define PORT	     2
#define QPN	     0x123456u

struct modify {
	struct ibv_qp_attr attr;
	int mask;
};
static struct {
	struct ibv_qp qp;
	struct ibv_qp_init_attr_ex init;
	struct mlx5dv_qp_init_attr direct;
	struct modify modifies[MODIFIES_MAX];
	uint32_t modify_count, created, destroyed;
	uint32_t fails_at; /* 1: creation; 2, 3, 4: the changes of state; 0: nothing */
	struct ibv_qp_ex builder;
	struct mlx5dv_qp_ex direct_builder;
	bool supported;
	uint32_t pds, cqs;
	struct ibv_async_event event;
	uint32_t events;
} device;

/* ---- The stand-ins. ---- */

struct ibv_qp *__wrap_mlx5dv_create_qp(struct ibv_context *context,
	struct ibv_qp_init_attr_ex *init, struct mlx5dv_qp_init_attr *direct);
int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int __wrap_ibv_destroy_qp(struct ibv_qp *qp);
struct ibv_qp_ex *__wrap_ibv_qp_to_qp_ex(struct ibv_qp *qp);
struct mlx5dv_qp_ex *__wrap_mlx5dv_qp_ex_from_ibv_qp_ex(struct ibv_qp_ex *qp);
bool __wrap_mlx5dv_is_supported(struct ibv_device *of);
struct ibv_pd *__wrap_ibv_alloc_pd(struct ibv_context *context);
int __wrap_ibv_dealloc_pd(struct ibv_pd *pd);
struct ibv_cq *__wrap_ibv_create_cq(struct ibv_context *context, int entries, void *cq_context,
	struct ibv_comp_channel *channel, int vector);
int __wrap_ibv_destroy_cq(struct ibv_cq *cq);
int __wrap_ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event);
void __wrap_ibv_ack_async_event(struct ibv_async_event *event);

struct ibv_qp *__wrap_mlx5dv_create_qp(struct ibv_context *context,
	struct ibv_qp_init_attr_ex *init, struct mlx5dv_qp_init_attr *direct)
{
	(void)context;
	device.init = *init;
	device.direct = *direct;
	if (device.fails_at == 1) {
		errno = ENOMEM;
		return NULL;
	}
	device.created++;
	init->cap.max_inline_data = 60; /* a device may give more than it was asked for */
	return &device.qp;
}

int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	assert_ptr_equal(qp, &device.qp);
	assert_true(device.modify_count < MODIFIES_MAX);
	device.modifies[device.modify_count++] = (struct modify){*attr, mask};
	if (device.fails_at == device.modify_count + 1)
		return EINVAL;
	if (attr->qp_state == IBV_QPS_RTR)
		qp->qp_num = QPN; /* only from now on, as a target's */
	return 0;
}

int __wrap_ibv_destroy_qp(struct ibv_qp *qp)
{
	assert_ptr_equal(qp, &device.qp);
	device.destroyed++;
	return 0;
}

struct ibv_qp_ex *__wrap_ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	assert_ptr_equal(qp, &device.qp);
	return &device.builder;
}

struct mlx5dv_qp_ex *__wrap_mlx5dv_qp_ex_from_ibv_qp_ex(struct ibv_qp_ex *qp)
{
	assert_ptr_equal(qp, &device.builder);
	return &device.direct_builder;
}

bool __wrap_mlx5dv_is_supported(struct ibv_device *of)
{
	(void)of;
	return device.supported;
}

struct ibv_pd *__wrap_ibv_alloc_pd(struct ibv_context *context)
{
	static struct ibv_pd pd;

	pd.context = context;
	device.pds++;
	return &pd;
}

int __wrap_ibv_dealloc_pd(struct ibv_pd *pd)
{
	(void)pd;
	device.pds--;
	return 0;
}

struct ibv_cq *__wrap_ibv_create_cq(struct ibv_context *context, int entries, void *cq_context,
	struct ibv_comp_channel *channel, int vector)
{
	static struct ibv_cq cq;

	(void)context;
	(void)entries;
	(void)cq_context;
	(void)channel;
	(void)vector;
	device.cqs++;
	return &cq;
}

int __wrap_ibv_destroy_cq(struct ibv_cq *cq)
{
	(void)cq;
	device.cqs--;
	return 0;
}

int __wrap_ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	(void)context;
	if (!device.events)
		return -1;
	device.events--;
	*event = device.event;
	return 0;
}

void __wrap_ibv_ack_async_event(struct ibv_async_event *event)
{
	(void)event;
}

/* ---- A queue pair. ---- */

struct rig {
	struct ibv_context context;
	struct ibv_cq send_cq, recv_cq;
	struct ibv_srq shared;
	struct ibv_pd pd;
	struct verbs_device device;
	struct verbs_cq sends, recvs;
	struct verbs_srq srq;
	struct verbs_qp qp;
	struct rp_qp_attr attr;
};

static void rig_make(struct rig *rig, enum rp_qp_type type)
{
	memset(&device, 0, sizeof(device));
	memset(rig, 0, sizeof(*rig));
	rig->pd.context = &rig->context;
	rig->device.context = &rig->context;
	rig->device.port_num = PORT;
	rig->device.port.active_mtu = IBV_MTU_4096;
	rig->device.service_level = 3;
	rig->device.traffic_class = 104;
	rig->device.has_gid = true;
	rig->device.gid.gid_index = 5;
	rig->device.attr.max_qp_init_rd_atom = 128;
	rig->sends.cq = &rig->send_cq;
	rig->recvs.cq = &rig->recv_cq;
	rig->srq.srq = &rig->shared;
	rig->qp.device = &rig->device;
	rig->qp.timeout = 17;
	rig->qp.retry_count = 6;
	rig->qp.rnr_retry_count = 5;
	rig->attr = (struct rp_qp_attr){.type = type,
		.send_cq = &rig->sends.base,
		.recv_cq = &rig->recvs.base,
		.dc_key = 0xffeeddccu,
		.cap = {.max_send_wr = 64, .max_send_sge = 2, .max_inline_data = 32}};
	if (type == RP_QP_DCT)
		rig->attr.srq = &rig->srq.base;
}

static void check_init(const struct modify *modify, bool target)
{
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	assert_int_equal(modify->mask, target ? mask | IBV_QP_ACCESS_FLAGS : mask);
	assert_int_equal(modify->attr.qp_state, IBV_QPS_INIT);
	assert_int_equal(modify->attr.port_num, PORT);
	assert_int_equal(modify->attr.pkey_index, 0);
}

static void check_rtr(const struct modify *modify, bool target)
{
	int mask = IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV;

	assert_int_equal(modify->mask, target ? mask | IBV_QP_MIN_RNR_TIMER : mask);
	assert_int_equal(modify->attr.qp_state, IBV_QPS_RTR);
	assert_int_equal(modify->attr.path_mtu, IBV_MTU_4096);
	assert_int_equal(modify->attr.ah_attr.port_num, PORT);
	assert_int_equal(modify->attr.ah_attr.sl, 3);
	assert_int_equal(modify->attr.ah_attr.is_global, 1);
	assert_int_equal(modify->attr.ah_attr.grh.sgid_index, 5);
	assert_int_equal(modify->attr.ah_attr.grh.traffic_class, 104);
	assert_int_equal(modify->attr.ah_attr.grh.hop_limit, VERBS_HOPS_MAX);
}

static void test_target(void **state)
{
	struct rig rig;

	(void)state;
	rig_make(&rig, RP_QP_DCT);
	assert_int_equal(verbs_dc_create(&rig.qp, &rig.pd, &rig.attr), 0);
	assert_int_equal(device.init.qp_type, IBV_QPT_DRIVER);
	assert_int_equal(device.init.comp_mask, IBV_QP_INIT_ATTR_PD);
	assert_ptr_equal(device.init.pd, &rig.pd);
	assert_ptr_equal(device.init.srq, &rig.shared);
	assert_ptr_equal(device.init.recv_cq, &rig.recv_cq);
	assert_int_equal(device.direct.comp_mask, MLX5DV_QP_INIT_ATTR_MASK_DC);
	assert_int_equal(device.direct.dc_init_attr.dc_type, MLX5DV_DCTYPE_DCT);
	assert_int_equal(device.direct.dc_init_attr.dct_access_key, 0xffeeddccu);
	/* A target is never RTS. */
	assert_int_equal(device.modify_count, 2);
	check_init(&device.modifies[0], true);
	assert_int_equal(device.modifies[0].attr.qp_access_flags,
		IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	check_rtr(&device.modifies[1], true);
	assert_int_equal(device.modifies[1].attr.min_rnr_timer, VERBS_MIN_RNR_TIMER);
	assert_int_equal(rig.qp.base.num, QPN);
	assert_int_equal(rig.qp.base.cap.max_inline_data, 0);
	assert_int_equal(atomic_load(&rig.qp.state), RP_QPS_RTR);
	assert_null(rig.qp.dci);
}

static void test_initiator(void **state)
{
	const struct modify *rts = &device.modifies[2];
	struct rig rig;

	(void)state;
	rig_make(&rig, RP_QP_DCI);
	assert_int_equal(verbs_dc_create(&rig.qp, &rig.pd, &rig.attr), 0);
	assert_int_equal(device.init.qp_type, IBV_QPT_DRIVER);
	assert_int_equal(
		device.init.comp_mask, IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
	assert_true(device.init.send_ops_flags & IBV_QP_EX_WITH_RDMA_WRITE);
	assert_true(device.init.send_ops_flags & IBV_QP_EX_WITH_RDMA_READ);
	assert_int_equal(device.init.cap.max_send_wr, 64);
	assert_int_equal(device.init.cap.max_send_sge, 2);
	assert_int_equal(device.init.cap.max_inline_data, 32);
	assert_null(device.init.srq);
	assert_ptr_equal(device.init.send_cq, &rig.send_cq);
	assert_int_equal(device.direct.dc_init_attr.dc_type, MLX5DV_DCTYPE_DCI);
	assert_int_equal(device.direct.dc_init_attr.dct_access_key, 0);
	assert_int_equal(device.modify_count, 3);
	check_init(&device.modifies[0], false);
	check_rtr(&device.modifies[1], false);
	assert_int_equal(rts->mask, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
					    IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					    IBV_QP_MAX_QP_RD_ATOMIC);
	assert_int_equal(rts->attr.qp_state, IBV_QPS_RTS);
	assert_int_equal(rts->attr.timeout, 17);
	assert_int_equal(rts->attr.retry_cnt, 6);
	assert_int_equal(rts->attr.rnr_retry, 5);
	assert_int_equal(rts->attr.max_rd_atomic, VERBS_READS_MAX);
	assert_int_equal(rig.qp.base.cap.max_inline_data, 60);
	assert_int_equal(atomic_load(&rig.qp.state), RP_QPS_RTS);
	assert_ptr_equal(rig.qp.dci->wr, &device.builder);
	assert_ptr_equal(rig.qp.dci->direct, &device.direct_builder);
	verbs_dc_free(rig.qp.dci);
}

/* Nobody is told of the end of an initiator, which has no connection: its user finds out by its
 * completions. */
static void test_initiator_that_dies(void **state)
{
	static const enum verbs_conn CONNS[] = {VERBS_CONN_NONE, VERBS_CONN_CONNECTING};
	struct rp_cm_event event;
	struct rig rig;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(CONNS); i++) {
		rig_make(&rig, RP_QP_DCI);
		assert_int_equal(verbs_dc_create(&rig.qp, &rig.pd, &rig.attr), 0);
		list_init(&rig.device.qps);
		list_init(&rig.device.told);
		list_init(&rig.qp.told_link);
		list_push_back(&rig.device.qps, &rig.qp.link);
		rig.device.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		rig.qp.qp = &device.qp;
		rig.qp.conn = CONNS[i];
		device.event.event_type = IBV_EVENT_QP_FATAL;
		device.event.element.qp = &device.qp;
		device.events = 1;
		verbs_async_take(&rig.device);
		assert_int_equal(atomic_load(&rig.qp.state), RP_QPS_ERR);
		assert_int_equal(verbs_told_pop(&rig.device, &event), i > 0);
		close(rig.device.event_fd);
		verbs_dc_free(rig.qp.dci);
	}
}

/* A device that can have fewer reads outstanding, on InfiniBand without a GID.
 */
static void test_small_device(void **state)
{
	struct rig rig;

	(void)state;
	rig_make(&rig, RP_QP_DCI);
	rig.device.attr.max_qp_init_rd_atom = 4;
	rig.device.has_gid = false;
	assert_int_equal(verbs_dc_create(&rig.qp, &rig.pd, &rig.attr), 0);
	assert_int_equal(device.modifies[1].attr.ah_attr.is_global, 0);
	assert_int_equal(device.modifies[1].attr.ah_attr.grh.hop_limit, 0);
	assert_int_equal(device.modifies[2].attr.max_rd_atomic, 4);
	verbs_dc_free(rig.qp.dci);
}

/* Each step may fail: nothing is left. */
static void test_failures(void **state)
{
	static const struct {
		enum rp_qp_type type;
		uint32_t steps;
	} CASES[] = {{RP_QP_DCT, 3}, {RP_QP_DCI, 4}};
	struct rig rig;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
		for (uint32_t step = 1; step <= CASES[i].steps; step++) {
			rig_make(&rig, CASES[i].type);
			device.fails_at = step;
			assert_int_equal(verbs_dc_create(&rig.qp, &rig.pd, &rig.attr),
				step == 1 ? -ENOMEM : -EINVAL);
			assert_int_equal(device.created, step > 1);
			assert_int_equal(device.destroyed, device.created);
			assert_int_equal(device.modify_count, step - 1);
			assert_null(rig.qp.dci);
		}
	}
}

/* A device has the transport when an initiator can be made, which is given
 * back. */
static void test_probe(void **state)
{
	struct rig rig;

	(void)state;
	rig_make(&rig, RP_QP_DCI);
	assert_false(verbs_dc_probe(&rig.device));
	assert_int_equal(device.created, 0);
	device.supported = true;
	assert_true(verbs_dc_probe(&rig.device));
	assert_int_equal(device.direct.dc_init_attr.dc_type, MLX5DV_DCTYPE_DCI);
	assert_int_equal(device.destroyed, 1);
	device.fails_at = 1;
	assert_false(verbs_dc_probe(&rig.device));
	assert_int_equal(device.pds + device.cqs, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_target),
		cmocka_unit_test(test_initiator),
		cmocka_unit_test(test_initiator_that_dies),
		cmocka_unit_test(test_small_device),
		cmocka_unit_test(test_failures),
		cmocka_unit_test(test_probe),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
