/* rdma/simulated/device.c: the simulated provider's device, protection domains and memory regions,
 * and its ops table. Queues are in simulated/qp.c, connections in simulated/cm.c, moves in *_dp.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sanitizer.h"
#include "rdma/simulated/simulated_priv.h"

#define PREFIX		 "simulated"
#define HAZARD_WAIT_NS	 (2 * NS_PER_S)
#define SEALS_FIXED_SIZE (F_SEAL_SHRINK | F_SEAL_GROW)

/* ---- Shared files. ---- */

void *sim_pairing(int wire_fd)
{
	static uint64_t words[SANITIZER_THREAD ? 4096 : 1];
	struct stat st = {0};

	if (SANITIZER_THREAD)
		fstat(wire_fd, &st);
	return &words[st.st_ino % ARRAY_LEN(words)];
}

/* A new file of fixed size, mapped. When future_write is false, later mappings cannot be written
 * to. */
int sim_shared_file(const char *name, uint64_t bytes, bool future_write, int *ret_fd, void **ret)
{
	int seals = SEALS_FIXED_SIZE | F_SEAL_SEAL | (future_write ? 0 : F_SEAL_FUTURE_WRITE);
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *base;
	int err;

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)bytes))
		goto fail;
	base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		goto fail;
	if (fcntl(fd, F_ADD_SEALS, seals)) {
		err = -errno;
		munmap(base, bytes);
		close(fd);
		return err;
	}
	*ret_fd = fd;
	*ret = base;
	return 0;
fail:
	err = -errno;
	close(fd);
	return err;
}

int sim_shared_check(int fd, uint64_t bytes)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return -EPROTO;
	if (fstat(fd, &st) || st.st_size < 0 || (uint64_t)st.st_size < bytes)
		return -EPROTO;
	return 0;
}

/* ---- Device. ---- */

static bool sim_claims(const char *device_name)
{
	size_t len = strlen(PREFIX);

	return !strncmp(device_name, PREFIX, len) &&
	       (device_name[len] == ':' || device_name[len] == '\0');
}

static void sim_list(struct buf *out)
{
	buf_put_str(out, " " PREFIX);
}

static void device_free(struct sim_device *device)
{
	if (device->table)
		munmap(device->table, SIM_MRS_MAX * sizeof(struct sim_entry));
	if (device->bells)
		munmap(device->bells, SIM_CQS_MAX * sizeof(struct sim_bell));
	if (device->table_fd >= 0)
		close(device->table_fd);
	if (device->bell_fd >= 0)
		close(device->bell_fd);
	pthread_mutex_destroy(&device->lock);
	free(device);
}

static int sim_open(const struct rp_open_opts *opts, struct rp_device **ret_device)
{
	struct sim_device *device = calloc(1, sizeof(*device));
	int err;

	if (!device)
		return -ENOMEM;
	device->base.ops = &rp_simulated_ops;
	device->table_fd = -1;
	device->bell_fd = -1;
	device->next_qpn = 1;
	device->next_pd = 1;
	pthread_mutex_init(&device->lock, NULL);
	random_fill(device->witness, sizeof(device->witness));
	snprintf(device->name, sizeof(device->name), "%s", PREFIX);
	err = sim_faults_parse(opts->device_name, &device->faults);
	if (err)
		goto fail;
	err = sim_shared_file("nebulaio-sim-table", SIM_MRS_MAX * sizeof(struct sim_entry), false,
		&device->table_fd, (void **)&device->table);
	if (err)
		goto fail;
	err = sim_shared_file("nebulaio-sim-bells", SIM_CQS_MAX * sizeof(struct sim_bell), true,
		&device->bell_fd, (void **)&device->bells);
	if (err)
		goto fail;
	err = sim_cm_init(device);
	if (err)
		goto fail;
	if (device->faults.any)
		log_warn("rdma", "%s injects faults, seed %llu", opts->device_name,
			(unsigned long long)device->faults.seed);
	*ret_device = &device->base;
	return 0;
fail:
	device_free(device);
	return err;
}

static void sim_close(struct rp_device *base)
{
	struct sim_device *device = CONTAINER_OF(base, struct sim_device, base);

	if (device->join_listener)
		device->base.ops->listener_close(device->join_listener);
	CHECK(list_empty(&device->listeners));
	CHECK(list_empty(&device->joins));
	CHECK(device->open_objects == 0);
	CHECK(device->mr_count == 0);
	sim_cm_fini(device);
	device_free(device);
}

static void sim_device_attr(const struct rp_device *base, struct rp_device_attr *ret_attr)
{
	const struct sim_device *device = CONTAINER_OF(base, const struct sim_device, base);

	*ret_attr = (struct rp_device_attr){
		.provider = PREFIX,
		.transport = PREFIX,
		.simulated = true,
		.max_qp_wr = SIM_QP_WRS_MAX,
		.max_sge = LIMIT_SGE_MAX,
		.max_cqe = SIM_CQES_MAX,
		.max_mr = SIM_MRS_MAX,
		.max_inline_data = SIM_INLINE_BYTES_MAX,
		.active_mtu = SIM_MTU,
		.qp_types = 1u << RP_QP_RC | 1u << RP_QP_UC | 1u << RP_QP_UD | 1u << RP_QP_RAW,
		.atomics = true,
		.srq = true,
		.windows = true,
	};
	snprintf(ret_attr->name, sizeof(ret_attr->name), "%s", device->name);
}

/* ---- Protection domains. ---- */

static int sim_pd_open(struct rp_device *base, struct rp_pd **ret_pd)
{
	struct sim_device *device = CONTAINER_OF(base, struct sim_device, base);
	struct sim_pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return -ENOMEM;
	pd->base.ops = &rp_simulated_ops;
	pd->device = device;
	pthread_mutex_lock(&device->lock);
	pd->num = device->next_pd++;
	device->open_objects++;
	pthread_mutex_unlock(&device->lock);
	*ret_pd = &pd->base;
	return 0;
}

static void sim_pd_close(struct rp_pd *base)
{
	struct sim_pd *pd = CONTAINER_OF(base, struct sim_pd, base);

	pthread_mutex_lock(&pd->device->lock);
	CHECK(pd->device->open_objects > 0);
	pd->device->open_objects--;
	pthread_mutex_unlock(&pd->device->lock);
	free(pd);
}

/* ---- Memory regions. ---- */

/* Locked. A free entry of the table, or NULL. */
static struct sim_entry *entry_find(struct sim_device *device)
{
	for (uint32_t i = 0; i < SIM_MRS_MAX; i++) {
		struct sim_entry *entry = &device->table[(device->mr_hint + i) % SIM_MRS_MAX];

		if (!atomic_load_explicit(&entry->key, memory_order_relaxed)) {
			device->mr_hint = (device->mr_hint + i + 1) % SIM_MRS_MAX;
			return entry;
		}
	}
	return NULL;
}

/* A key that an older one does not reveal. */
static uint32_t key_make(const struct sim_device *device, const struct sim_entry *entry)
{
	uint32_t idx = (uint32_t)(entry - device->table), secret;

	do {
		random_fill(&secret, sizeof(secret));
		secret >>= SIM_MR_IDX_BITS;
	} while (!secret);
	return secret << SIM_MR_IDX_BITS | idx;
}

/* Locked. Publishes memory for remote use by what opts->access says; NULL: the table is full. */
static struct sim_entry *entry_open(struct sim_device *device, const struct rp_mr_opts *opts,
	uint32_t pd, uint32_t qpn, uint32_t *ret_key)
{
	const uint32_t remote =
		RP_ACCESS_REMOTE_READ | RP_ACCESS_REMOTE_WRITE | RP_ACCESS_REMOTE_ATOMIC;
	struct sim_entry *entry = entry_find(device);

	if (!entry)
		return NULL;
	CHECK(device->mr_count < SIM_MRS_MAX);
	entry->access = opts->access;
	entry->addr = (uintptr_t)opts->addr;
	entry->bytes = opts->bytes;
	entry->pd = pd;
	entry->qpn = qpn;
	entry->backing = 0;
	entry->backing_offset = opts->fd_offset;
	if (opts->fd >= 0 && (opts->access & remote))
		sim_backing_get(device, opts, entry);
	*ret_key = key_make(device, entry);
	device->mr_count++;
	atomic_store_explicit(&entry->key, *ret_key, memory_order_release);
	return entry;
}

static int sim_mr_open(struct rp_pd *base, const struct rp_mr_opts *opts, struct rp_mr **ret_mr)
{
	struct sim_pd *pd = CONTAINER_OF(base, struct sim_pd, base);
	struct sim_mr *mr;

	if (opts->dma_buf)
		return -EOPNOTSUPP;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return -ENOMEM;
	pthread_mutex_lock(&pd->device->lock);
	mr->entry = entry_open(pd->device, opts, pd->num, 0, &mr->base.rkey);
	pthread_mutex_unlock(&pd->device->lock);
	if (!mr->entry) {
		free(mr);
		return -ENOMEM;
	}
	mr->base.ops = &rp_simulated_ops;
	mr->base.lkey = mr->base.rkey;
	mr->pd = pd;
	mr->opts = *opts;
	*ret_mr = &mr->base;
	return 0;
}

/* True when the connection's peer may be moving bytes by a key for this queue pair (0: for any).
 * Once the queue pair of a window has failed, its peer is not waited for, as after a close. */
static bool may_use(const struct sim_conn *conn, uint32_t qpn)
{
	if (!conn->wire || !conn->peer)
		return false;
	return !qpn || (conn->qp && conn->qp->base.num == qpn &&
			       sim_qp_state(&conn->qp->base) != RP_QPS_ERR);
}

/* Locked. Waits until no peer is moving bytes by this key: each peer either saw that the key is
 * withdrawn, or shows it as its hazard. A peer that has ended, or still shows it after
 * HAZARD_WAIT_NS, is not waited for any longer. */
static void hazard_wait(struct sim_device *device, uint32_t key, uint32_t qpn)
{
	uint64_t give_up_ns = clock_now_ns() + HAZARD_WAIT_NS;

	atomic_thread_fence(memory_order_seq_cst);
	LIST_FOR_EACH (link, &device->conns) {
		struct sim_conn *conn = CONTAINER_OF(link, struct sim_conn, link);
		struct sim_side *theirs;

		if (!may_use(conn, qpn))
			continue;
		theirs = &conn->wire->sides[conn->active];
		while (atomic_load_explicit(&theirs->hazard, memory_order_acquire) == key) {
			clock_relax();
			if (!sim_peer_alive(conn->peer))
				break;
			if (clock_now_ns() > give_up_ns) {
				log_error("rdma",
					"pid %d goes on using a memory region that was closed",
					(int)conn->pid);
				break;
			}
		}
		sanitizer_acquire(conn->pairing);
	}
}

static void entry_close(struct sim_device *device, struct sim_entry *entry)
{
	uint32_t key, idx;

	pthread_mutex_lock(&device->lock);
	key = atomic_exchange(&entry->key, 0);
	idx = sim_key_idx(key);
	CHECK(key != 0);
	CHECK(&device->table[idx] == entry);
	CHECK(device->mr_count > 0);
	hazard_wait(device, key, entry->qpn);
	if (entry->backing)
		sim_backing_put(device, entry->backing);
	device->mr_count--;
	pthread_mutex_unlock(&device->lock);
}

static void sim_mr_close(struct rp_mr *base)
{
	struct sim_mr *mr = CONTAINER_OF(base, struct sim_mr, base);

	entry_close(mr->pd->device, mr->entry);
	free(mr);
}

/* ---- Memory windows. ---- */

static int sim_mw_open(
	struct rp_qp *base, struct rp_mr *base_mr, uint64_t wr_id, struct rp_mw **ret_mw)
{
	struct sim_qp *qp = CONTAINER_OF(base, struct sim_qp, base);
	struct sim_mr *mr = CONTAINER_OF(base_mr, struct sim_mr, base);
	struct rp_mr_opts opts = mr->opts;
	struct sim_mw *mw;

	(void)wr_id;
	if (sim_qp_state(base) != RP_QPS_RTS)
		return -ENOTCONN;
	if (qp->pd != mr->pd)
		return -EINVAL;
	mw = calloc(1, sizeof(*mw));
	if (!mw)
		return -ENOMEM;
	opts.access = RP_ACCESS_REMOTE_READ;
	mw->base.ops = &rp_simulated_ops;
	mw->device = qp->device;
	pthread_mutex_lock(&qp->device->lock);
	mw->entry = entry_open(qp->device, &opts, qp->pd->num, base->num, &mw->base.rkey);
	pthread_mutex_unlock(&qp->device->lock);
	if (!mw->entry) {
		free(mw);
		return -ENOMEM;
	}
	*ret_mw = &mw->base;
	return 0;
}

static void sim_mw_close(struct rp_mw *base)
{
	struct sim_mw *mw = CONTAINER_OF(base, struct sim_mw, base);

	entry_close(mw->device, mw->entry);
	free(mw);
}

static struct rp_counts counts = RP_COUNTS(PREFIX);

const struct rp_ops rp_simulated_ops = {
	.name = PREFIX,
	.counts = &counts,
	.claims = sim_claims,
	.list = sim_list,
	.open = sim_open,
	.close = sim_close,
	.device_attr = sim_device_attr,
	.pd_open = sim_pd_open,
	.pd_close = sim_pd_close,
	.mr_open = sim_mr_open,
	.mr_close = sim_mr_close,
	.mw_open = sim_mw_open,
	.mw_close = sim_mw_close,
	.cq_open = sim_cq_open,
	.cq_close = sim_cq_close,
	.cq_poll = sim_cq_poll,
	.cq_arm = sim_cq_arm,
	.cq_disarm = sim_cq_disarm,
	.srq_open = sim_srq_open,
	.srq_close = sim_srq_close,
	.srq_post = sim_srq_post,
	.qp_open = sim_qp_open,
	.qp_close = sim_qp_close,
	.qp_state = sim_qp_state,
	.post_send = sim_post_send,
	.post_recv = sim_post_recv,
	.qp_error = sim_qp_error,
	.qp_info = sim_qp_info,
	.ah_open = sim_ah_open,
	.ah_from_wc = sim_ah_from_wc,
	.ah_close = sim_ah_close,
	.group_join = sim_group_join,
	.group_leave = sim_group_leave,
	.flow_open = sim_flow_open,
	.flow_close = sim_flow_close,
	.dci_aim = sim_dci_aim,
	.listen = sim_listen,
	.listener_close = sim_listener_close,
	.connect = sim_connect,
	.accept = sim_accept,
	.reject = sim_reject,
	.disconnect = sim_disconnect,
	.qp_address = sim_qp_address,
	.qp_join = sim_qp_join,
	.cm_poll = sim_cm_poll,
	.cm_fd = sim_cm_fd,
};
