/* libregion/region_lib.h: shared by the files of libnebulaio-region. */
#ifndef LIBREGION_REGION_LIB_H
#define LIBREGION_REGION_LIB_H

#include "disk/disk.h"
#include "nebulaio/region.h"
#include "rdma/datagram.h"
#include "rdma/port.h"
#include "reactor/reactor.h"
#include "region/region.h"
#ifdef NEBULAIO_XDP
#include "xdp/xdp.h"
#endif

#define LIB_DISKS_MAX	16u
#define LIB_CONNS_MAX	64u
#define LIB_EXPOSED_MAX 256u
#define LIB_WORK_MAX	8192u

/* Work in progress: the user data of its entry is its index. */
struct lib_work {
	struct neb_work work;
	enum region_owner owner; /* the owner that the spans were given to; OWNER_FREE: none */
	int32_t result;		 /* of the parts that are done */
	uint8_t entries;	 /* in the ring, that are not done */
	uint8_t weight;		 /* all of them */
	uint16_t next;
	bool busy;
};

struct lib_disk {
	struct disk *disk;
	uint16_t target;
};

/* A span that peers may reach; mr NULL: none. */
struct lib_exposed {
	struct rp_mr *mr;
	uint32_t frame;
};

struct lib_conn {
	struct neb_region *region;
	struct rp_qp *qp;
	struct rp_group *group; /* UD */
	struct rp_flow *flow;	/* raw */
	uint16_t target;
	bool used, connected, failed;
};

#ifdef NEBULAIO_XDP
struct lib_port {
	struct xp_port *port;
	uint16_t targets[XP_QUEUES_MAX];
	bool sends[XP_QUEUES_MAX]; /* the target is there */
};
#endif

struct neb_region {
	struct region *region;
	struct reactor *reactor;
	struct region_ring *ring;
	struct reactor_poller rings;
	int rings_fd;

	struct lib_work works[LIB_WORK_MAX];
	uint16_t work_free;
	uint32_t work_count, work_max;
	struct neb_done dones[LIB_WORK_MAX]; /* a circle */
	uint32_t done_head, done_tail;

	struct lib_disk disks[LIB_DISKS_MAX];
	uint32_t disk_count;

	struct rp_device *device;
	struct rp_device_attr device_attr;
	struct rp_pd *pd;
	struct rp_cq *cq;
	struct rp_arenas arenas;
	struct reactor_poller cq_poller, cm_poller;
	struct rp_listener *listener;
	struct rp_cm_event request; /* request NULL: none waits */
	struct lib_conn conns[LIB_CONNS_MAX];
	struct lib_exposed exposed[LIB_EXPOSED_MAX];
	uint32_t exposed_count;

#ifdef NEBULAIO_XDP
	struct lib_port ports[NEB_INTERFACES_MAX];
	uint32_t port_count;
	uint32_t port_turn, queue_turn; /* which one is polled first */
	bool packet_targets[LIMIT_REGION_TARGETS_MAX];
#endif
};

/* ---- Between the files. ---- */
static inline struct region_span lib_span(const struct neb_span *span)
{
	return (struct region_span){.data = span->data,
		.frame_idx = span->frame,
		.frame_count = span->bytes / FRAME_BYTES,
		.generation = span->generation};
}

static inline struct neb_span neb_span_of(struct region_span span)
{
	return (struct neb_span){.data = span.data,
		.bytes = region_span_bytes(span),
		.frame = span.frame_idx,
		.generation = span.generation};
}

/* ---- region_span.c ---- */
uint64_t lib_deadline(uint64_t timeout_ns);
/* 0 when that owner holds it; -EPERM, or as neb_span_owner. */
int lib_span_held(
	const struct neb_region *region, const struct neb_span *span, enum neb_owner owner);
/* NULL: no such target. */
const struct lib_disk *lib_disk_of(const struct neb_region *region, uint16_t target);
struct lib_conn *lib_conn_of(const struct neb_region *region, uint16_t target);
/* The key of the arena that holds it. */
uint32_t lib_lkey(const struct neb_region *region, const void *data, uint32_t bytes);

/* ---- region_work.c ---- */
void lib_works_init(struct neb_region *region, uint32_t ring_entries);
int lib_rings_open(struct neb_region *region);
/* Ends all work; the devices' work in flight comes back as cancelled. */
void lib_works_end(struct neb_region *region);

/* ---- region_rdma.c, region_datagram.c, region_xdp.c ---- */
void lib_rdma_close(struct neb_region *region);
/* A queue pair that is a target, with its receives posted. -ENODEV, -ENOSPC, -EINVAL. */
int lib_conn_open(struct neb_region *region, enum rp_qp_type type,
	const struct neb_rdma_options *options, struct lib_conn **ret_conn);
/* Until it is connected; else it is closed. -ECONNREFUSED, -ETIMEDOUT. */
int lib_conn_wait(struct lib_conn *conn, uint64_t deadline_ns, uint16_t *ret_target);
void lib_conn_close(struct lib_conn *conn);
void lib_xdp_close(struct neb_region *region);
bool lib_xdp_sends(const struct neb_region *region, uint16_t target);

#endif
