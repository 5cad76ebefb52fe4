/* rdma/verbs/device.c: the provider of real RDMA devices, through libibverbs and librdmacm:
 * InfiniBand, RoCE and iWARP are the same code. This file opens devices, chooses their port and
 * GID, and registers memory; the queues are in verbs/qp.c, the data path in verbs/qp_dp.c,
 * connections in verbs/cm.c. */
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rdma/verbs/verbs_priv.h"

#define GIDS_MAX	  512u
#define SERVICE_LEVEL_MAX 15u /* four bits, IBTA volume 1, 7.7.5 */

/* ---- Finding. ---- */

/* The device of this name, opened; NULL with errno. */
static struct ibv_context *open_named(const char *name)
{
	int count = 0;
	struct ibv_device **devices = ibv_get_device_list(&count);
	struct ibv_context *context = NULL;

	errno = ENODEV;
	for (int i = 0; devices && i < count; i++) {
		if (!strcmp(ibv_get_device_name(devices[i]), name)) {
			context = ibv_open_device(devices[i]);
			break;
		}
	}
	if (devices)
		ibv_free_device_list(devices);
	return context;
}

static bool verbs_claims(const char *device_name)
{
	struct slice rest = slice_str(device_name);
	struct slice want = slice_split(&rest, ':');
	int count = 0;
	struct ibv_device **devices = ibv_get_device_list(&count);
	bool found = false;

	for (int i = 0; devices && i < count && !found; i++)
		found = slice_eq(slice_str(ibv_get_device_name(devices[i])), want);
	if (devices)
		ibv_free_device_list(devices);
	return found;
}

static void verbs_list(struct buf *out)
{
	int count = 0;
	struct ibv_device **devices = ibv_get_device_list(&count);

	for (int i = 0; devices && i < count; i++)
		buf_printf(out, " %s", ibv_get_device_name(devices[i]));
	if (devices)
		ibv_free_device_list(devices);
}

/* ---- Ports. ---- */

static int choose_port(struct verbs_device *device, uint8_t wanted)
{
	uint8_t first = wanted ? wanted : 1;
	uint8_t last = wanted ? wanted : device->attr.phys_port_cnt;
	const char *name = verbs_device_name(device);

	if (wanted > device->attr.phys_port_cnt) {
		log_error("rdma", "%s has no port %u; it has %u", name, wanted,
			device->attr.phys_port_cnt);
		return -ENODEV;
	}
	for (uint8_t port = first; port <= last; port++) {
		if (!ibv_query_port(device->context, port, &device->port) &&
			device->port.state == IBV_PORT_ACTIVE) {
			device->port_num = port;
			return 0;
		}
	}
	if (wanted)
		log_error("rdma", "%s: port %u is not active; see `rdma link`", name, wanted);
	else
		log_error("rdma", "%s: no port is active; see `rdma link`", name);
	return -ENETDOWN;
}

/* False: no such MTU. */
static bool mtu_of(uint32_t bytes, enum ibv_mtu *ret_mtu)
{
	uint32_t code = bytes ? IBV_MTU_256 : 0;

	while (code && code < IBV_MTU_4096 && 128u << code < bytes)
		code++;
	*ret_mtu = (enum ibv_mtu)code;
	return !bytes || 128u << code == bytes;
}

static int limit_mtu(struct verbs_device *device)
{
	if (device->mtu_limit > device->port.active_mtu) {
		log_error("rdma",
			"%s: the configured path MTU is %u, but the port supports %u; the MTU of "
			"its network interface decides that (`ip link`)",
			verbs_device_name(device), 128u << device->mtu_limit,
			128u << device->port.active_mtu);
		return -EMSGSIZE;
	}
	if (device->mtu_limit)
		device->port.active_mtu = device->mtu_limit;
	return 0;
}

/* ---- GIDs. ---- */

static bool link_is_up(uint32_t ifindex, char name[IF_NAMESIZE])
{
	struct ifreq request = {0};
	int fd, err;

	name[0] = '\0';
	if (!ifindex || !if_indextoname(ifindex, name))
		return false;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	memcpy(request.ifr_name, name, IF_NAMESIZE);
	err = ioctl(fd, SIOCGIFFLAGS, &request);
	close(fd);
	return !err && (request.ifr_flags & IFF_UP) && (request.ifr_flags & IFF_RUNNING);
}

static const char *gid_type_text(const struct verbs_device *device)
{
	if (device->context->device->transport_type == IBV_TRANSPORT_IWARP)
		return "iwarp";
	if (device->port.link_layer == IBV_LINK_LAYER_INFINIBAND)
		return "infiniband";
	return device->has_gid && device->gid.gid_type == IBV_GID_TYPE_ROCE_V1 ? "roce-v1"
									       : "roce-v2";
}

static void log_choice(const struct verbs_device *device, bool asked, const char *netdev)
{
	char text[INET6_ADDRSTRLEN];

	verbs_gid_text(&device->gid.gid, text, sizeof(text));
	log_info("rdma", "%s port %u (%s): GID %u, %s%s%s, %s", verbs_device_name(device),
		device->port_num, gid_type_text(device), device->gid.gid_index, text,
		netdev[0] ? " on " : "", netdev, asked ? "as asked" : "chosen");
}

static bool is_gid_of(const struct ibv_gid_entry *entry, const char *address)
{
	union ibv_gid gid;

	return verbs_gid_of(address, &gid) && !memcmp(&gid, &entry->gid, sizeof(gid));
}

static int choose_gid(struct verbs_device *device, int wanted, const char *address)
{
	struct ibv_gid_entry *entries = calloc(GIDS_MAX, sizeof(*entries));
	ssize_t count = entries ? ibv_query_gid_table(device->context, entries, GIDS_MAX, 0) : 0;
	char netdev[IF_NAMESIZE] = "";
	uint32_t best = 0;

	for (ssize_t i = 0; i < count; i++) {
		char name[IF_NAMESIZE];
		bool link_up = link_is_up(entries[i].ndev_ifindex, name);
		uint32_t score =
			verbs_gid_score(&entries[i], link_up, is_gid_of(&entries[i], address));

		if (entries[i].port_num != device->port_num ||
			(wanted >= 0 && entries[i].gid_index != (uint32_t)wanted))
			continue;
		if (score > best) {
			best = score;
			device->gid = entries[i];
			device->has_gid = true;
			memcpy(netdev, name, sizeof(netdev));
		}
	}
	free(entries);
	device->gid_named = wanted >= 0;
	if (device->has_gid) {
		log_choice(device, wanted >= 0, netdev);
		return 0;
	}
	/* iWARP needs none. */
	if (wanted < 0 && device->context->device->transport_type == IBV_TRANSPORT_IWARP)
		return 0;
	log_error("rdma", "%s port %u has no GID%s; `ibv_devinfo -v` lists them",
		verbs_device_name(device), device->port_num, wanted >= 0 ? " of that index" : "");
	return -ENODEV;
}

/* ---- Opening. ---- */

/* No device reports how many bytes it takes inline; only an attempt shows it. */
static uint32_t probe_inline(struct verbs_device *device)
{
	struct ibv_pd *pd = ibv_alloc_pd(device->context);
	struct ibv_cq *cq = ibv_create_cq(device->context, 1, NULL, NULL, 0);
	uint32_t bytes = 512;

	for (; pd && cq && bytes; bytes /= 2) {
		struct ibv_qp_init_attr init = {
			.send_cq = cq,
			.recv_cq = cq,
			.qp_type = IBV_QPT_RC,
			.cap = {.max_send_wr = 1,
				.max_recv_wr = 1,
				.max_send_sge = 1,
				.max_recv_sge = 1,
				.max_inline_data = bytes},
		};
		struct ibv_qp *qp = ibv_create_qp(pd, &init);

		if (qp) {
			ibv_destroy_qp(qp);
			break;
		}
	}
	if (cq)
		ibv_destroy_cq(cq);
	if (pd)
		ibv_dealloc_pd(pd);
	return pd && cq ? bytes : 0;
}

static int open_context(
	struct verbs_device *device, const struct verbs_name *name, const char *address)
{
	int err;

	device->context = open_named(name->device);
	if (!device->context) {
		err = -errno;
		log_error("rdma", "cannot open %s: %s", name->device, strerror(-err));
		return err;
	}
	err = ibv_query_device(device->context, &device->attr);
	if (err)
		return -err;
	err = choose_port(device, name->port);
	if (!err)
		err = limit_mtu(device);
	if (!err)
		err = choose_gid(device, name->gid_index, address);
	if (err)
		return err;
	device->inline_bytes_max = probe_inline(device);
	device->dc = verbs_dc_probe(device);
	device->raw_err = verbs_raw_probe(device);
	return verbs_cm_init(device);
}

void verbs_ended(const struct verbs_device *device, const char *what, int err)
{
	if (err)
		log_warn("rdma", "%s: the device did not destroy a %s, which stays allocated: %s",
			verbs_device_name(device), what, strerror(abs(err)));
}

static void verbs_close(struct rp_device *base)
{
	struct verbs_device *device = verbs_device(base);

	CHECK(atomic_load(&device->open_objects) == 0);
	verbs_cm_fini(device);
	if (device->context)
		ibv_close_device(device->context);
	free(device);
}

static int verbs_open(const struct rp_open_opts *opts, struct rp_device **ret_device)
{
	struct verbs_device *device;
	struct verbs_name name;
	enum ibv_mtu mtu_limit;
	int err = verbs_name_parse(opts->device_name, &name);

	if (err) {
		log_error("rdma",
			"\"%s\" is no device name: DEVICE, DEVICE:PORT or DEVICE:PORT:GID",
			opts->device_name);
		return err;
	}
	if (!name.port)
		name.port = opts->ib_port;
	if (opts->service_level > SERVICE_LEVEL_MAX || !mtu_of(opts->path_mtu, &mtu_limit))
		return -EINVAL;
	if (name.gid_index < 0)
		name.gid_index = opts->gid_index;
	device = calloc(1, sizeof(*device));
	if (!device)
		return -ENOMEM;
	device->base.ops = &rp_verbs_ops;
	device->traffic_class = opts->traffic_class;
	device->service_level = opts->service_level;
	device->mtu_limit = mtu_limit;
	device->epoll_fd = device->timer_fd = device->event_fd = -1;
	err = open_context(device, &name, opts->address);
	if (err) {
		verbs_close(&device->base);
		return err;
	}
	*ret_device = &device->base;
	return 0;
}

static void verbs_device_attr(const struct rp_device *base, struct rp_device_attr *ret_attr)
{
	const struct verbs_device *device = verbs_device(base);
	const struct ibv_device_attr *attr = &device->attr;

	*ret_attr = (struct rp_device_attr){
		.provider = "verbs",
		.max_qp_wr = (uint32_t)attr->max_qp_wr,
		.max_sge = MIN((uint32_t)attr->max_sge, LIMIT_SGE_MAX),
		.max_cqe = (uint32_t)attr->max_cqe,
		.max_mr = (uint32_t)attr->max_mr,
		.max_inline_data = device->inline_bytes_max,
		.active_mtu = 128u << device->port.active_mtu,
		.qp_types = 1u << RP_QP_RC,
		.atomics = attr->atomic_cap != IBV_ATOMIC_NONE,
		.srq = attr->max_srq > 0,
		.windows = attr->device_cap_flags &
			   (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B),
		.port_lost = atomic_load(&device->port_lost),
	};
	/* iWARP has neither. */
	if (!verbs_is_iwarp(device))
		ret_attr->qp_types |= 1u << RP_QP_UC | 1u << RP_QP_UD;
	if (!device->raw_err)
		ret_attr->qp_types |= 1u << RP_QP_RAW;
	if (device->dc)
		ret_attr->qp_types |= 1u << RP_QP_DCI | 1u << RP_QP_DCT;
	snprintf(ret_attr->name, sizeof(ret_attr->name), "%s", verbs_device_name(device));
	snprintf(ret_attr->transport, sizeof(ret_attr->transport), "%s", gid_type_text(device));
}

/* ---- Protection domains and memory. ---- */

static int verbs_pd_open(struct rp_device *base, struct rp_pd **ret_pd)
{
	struct verbs_device *device = verbs_device(base);
	struct verbs_pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return -ENOMEM;
	pd->base.ops = &rp_verbs_ops;
	pd->device = device;
	pd->pd = ibv_alloc_pd(device->context);
	if (!pd->pd) {
		int err = -errno;

		free(pd);
		return err;
	}
	atomic_fetch_add(&device->open_objects, 1);
	*ret_pd = &pd->base;
	return 0;
}

static void verbs_pd_close(struct rp_pd *base)
{
	struct verbs_pd *pd = CONTAINER_OF(base, struct verbs_pd, base);

	verbs_ended(pd->device, "protection domain", ibv_dealloc_pd(pd->pd));
	verbs_object_gone(pd->device);
	free(pd);
}

static int mr_access(uint32_t access)
{
	int flags = 0;

	if (access & RP_ACCESS_LOCAL_WRITE)
		flags |= IBV_ACCESS_LOCAL_WRITE;
	if (access & RP_ACCESS_REMOTE_WRITE)
		flags |= IBV_ACCESS_REMOTE_WRITE;
	if (access & RP_ACCESS_REMOTE_READ)
		flags |= IBV_ACCESS_REMOTE_READ;
	if (access & RP_ACCESS_REMOTE_ATOMIC)
		flags |= IBV_ACCESS_REMOTE_ATOMIC;
	if (access & RP_ACCESS_WINDOW)
		flags |= IBV_ACCESS_MW_BIND;
	return flags;
}

static void log_unregistered(const struct rp_mr_opts *opts, int err)
{
	struct rlimit limit = {0};

	getrlimit(RLIMIT_MEMLOCK, &limit);
	if (err == -ENOMEM && limit.rlim_cur < opts->bytes)
		log_error("rdma",
			"cannot register %llu bytes: the locked-memory limit is %llu; raise it "
			"(`ulimit -l unlimited`, or LimitMEMLOCK=infinity in the service)",
			(unsigned long long)opts->bytes, (unsigned long long)limit.rlim_cur);
	else
		log_error("rdma", "cannot register %llu bytes: %s", (unsigned long long)opts->bytes,
			strerror(-err));
}

static int verbs_mr_open(struct rp_pd *base, const struct rp_mr_opts *opts, struct rp_mr **ret_mr)
{
	struct verbs_pd *pd = CONTAINER_OF(base, struct verbs_pd, base);
	struct verbs_mr *mr = calloc(1, sizeof(*mr));

	if (!mr)
		return -ENOMEM;
	if (opts->dma_buf)
		mr->mr = ibv_reg_dmabuf_mr(pd->pd, opts->fd_offset, opts->bytes,
			(uint64_t)(uintptr_t)opts->addr, opts->fd, mr_access(opts->access));
	else
		mr->mr = ibv_reg_mr(pd->pd, opts->addr, opts->bytes, mr_access(opts->access));
	if (!mr->mr) {
		int err = -errno;

		log_unregistered(opts, err);
		free(mr);
		return err;
	}
	mr->base = (struct rp_mr){.ops = &rp_verbs_ops, .lkey = mr->mr->lkey, .rkey = mr->mr->rkey};
	mr->device = pd->device;
	atomic_fetch_add(&mr->device->open_objects, 1);
	*ret_mr = &mr->base;
	return 0;
}

static void verbs_mr_close(struct rp_mr *base)
{
	struct verbs_mr *mr = CONTAINER_OF(base, struct verbs_mr, base);

	verbs_ended(mr->device, "memory region", ibv_dereg_mr(mr->mr));
	verbs_object_gone(mr->device);
	free(mr);
}

/* ---- Memory windows. ---- */

static int verbs_mw_open(
	struct rp_qp *base, struct rp_mr *base_mr, uint64_t wr_id, struct rp_mw **ret_mw)
{
	struct verbs_qp *qp = verbs_qp(base);
	struct ibv_mr *mr = CONTAINER_OF(base_mr, struct verbs_mr, base)->mr;
	struct ibv_send_wr wr = {.wr_id = wr_id, .opcode = IBV_WR_BIND_MW}, *bad;
	struct verbs_mw *mw = calloc(1, sizeof(*mw));
	int err;

	if (!mw)
		return -ENOMEM;
	mw->mw = ibv_alloc_mw(qp->qp->pd, IBV_MW_TYPE_2);
	err = mw->mw ? 0 : -errno;
	if (!err) {
		wr.bind_mw.mw = mw->mw;
		wr.bind_mw.rkey = ibv_inc_rkey(mw->mw->rkey);
		wr.bind_mw.bind_info = (struct ibv_mw_bind_info){.mr = mr,
			.addr = (uintptr_t)mr->addr,
			.length = mr->length,
			.mw_access_flags = IBV_ACCESS_REMOTE_READ};
		err = -abs(ibv_post_send(qp->qp, &wr, &bad));
	}
	if (err) {
		if (mw->mw)
			ibv_dealloc_mw(mw->mw);
		free(mw);
		return err;
	}
	mw->base = (struct rp_mw){.ops = &rp_verbs_ops, .rkey = wr.bind_mw.rkey};
	mw->device = qp->device;
	atomic_fetch_add(&mw->device->open_objects, 1);
	*ret_mw = &mw->base;
	return 0;
}

static void verbs_mw_close(struct rp_mw *base)
{
	struct verbs_mw *mw = CONTAINER_OF(base, struct verbs_mw, base);

	verbs_ended(mw->device, "memory window", ibv_dealloc_mw(mw->mw));
	verbs_object_gone(mw->device);
	free(mw);
}

static struct rp_counts counts = RP_COUNTS("verbs");

const struct rp_ops rp_verbs_ops = {
	.name = "verbs",
	.counts = &counts,
	.claims = verbs_claims,
	.list = verbs_list,
	.open = verbs_open,
	.close = verbs_close,
	.device_attr = verbs_device_attr,
	.pd_open = verbs_pd_open,
	.pd_close = verbs_pd_close,
	.mr_open = verbs_mr_open,
	.mr_close = verbs_mr_close,
	.mw_open = verbs_mw_open,
	.mw_close = verbs_mw_close,
	.cq_open = verbs_cq_open,
	.cq_close = verbs_cq_close,
	.cq_poll = verbs_cq_poll,
	.cq_arm = verbs_cq_arm,
	.cq_disarm = verbs_cq_disarm,
	.srq_open = verbs_srq_open,
	.srq_close = verbs_srq_close,
	.srq_post = verbs_srq_post,
	.qp_open = verbs_qp_open,
	.qp_close = verbs_qp_close,
	.qp_state = verbs_qp_state,
	.post_send = verbs_post_send,
	.post_recv = verbs_post_recv,
	.qp_error = verbs_qp_error,
	.qp_info = verbs_qp_info,
	.ah_open = verbs_ah_open,
	.ah_from_wc = verbs_ah_from_wc,
	.ah_close = verbs_ah_close,
	.group_join = verbs_group_join,
	.group_leave = verbs_group_leave,
	.flow_open = verbs_flow_open,
	.flow_close = verbs_flow_close,
	.dci_aim = verbs_dci_aim,
	.listen = verbs_listen,
	.listener_close = verbs_listener_close,
	.connect = verbs_connect,
	.accept = verbs_accept,
	.reject = verbs_reject,
	.disconnect = verbs_disconnect,
	.qp_address = verbs_qp_address,
	.qp_join = verbs_qp_join,
	.cm_poll = verbs_cm_poll,
	.cm_fd = verbs_cm_fd,
};
