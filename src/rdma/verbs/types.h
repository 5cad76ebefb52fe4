/* rdma/verbs/types.h: the structures of the verbs provider: devices, queues, queue pairs,
 * connections. */
#ifndef RDMA_VERBS_TYPES_H
#define RDMA_VERBS_TYPES_H

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>

#include "rdma/provider/provider.h"
#include "rdma/verbs/address.h"

/* Work requests in one post, and completions in one poll of the device. */
#define VERBS_BATCH	    32u
#define VERBS_MIN_RNR_TIMER 12 /* IBTA 9.7.5.2.8: 0.64 ms between tries */
#define VERBS_HOPS_MAX	    64
/* How long connections outlive their port: as long as a peer's retries last with the default
 * settings. */
#define VERBS_PORT_DOWN_NS (3 * NS_PER_S)
/* The longest time from a packet that cannot leave until its port is known to be down. */
#define VERBS_CALM_NS (300 * NS_PER_MS)
/* Outstanding one-sided reads and atomics that one queue pair asks of its peer. */
#define VERBS_READS_MAX 16u

#define VERBS_LIKELY(x)	  __builtin_expect(!!(x), 1)
#define VERBS_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* ---- Names and GIDs (verbs/gid.c). ---- */
struct verbs_name {
	char device[IBV_SYSFS_NAME_MAX];
	uint8_t port;  /* 0: not said */
	int gid_index; /* -1: not said */
};
/* "DEVICE", "DEVICE:PORT" or "DEVICE:PORT:GID"; -EINVAL. */
int verbs_name_parse(const char *text, struct verbs_name *ret_name);
/* The GID of a numeric address; false: the text is NULL, empty or none. */
bool verbs_gid_of(const char *address, union ibv_gid *ret_gid);
/* How good a GID is to meet peers with; the link is up when its network device is; it is asked for
 * when it belongs to the address that the device was opened for. */
uint32_t verbs_gid_score(const struct ibv_gid_entry *entry, bool link_up, bool asked_for);
/* The text of a GID: an IPv4 address where it stands for one. */
void verbs_gid_text(const union ibv_gid *gid, char *text, size_t text_bytes);
struct verbs_device;
/* The address that the device's GID stands for, to leave from; false: let routing decide. */
bool verbs_gid_address(
	const struct verbs_device *device, int family, union verbs_address *ret_address);

/* ---- Devices (verbs/device.c). ---- */
/* Private data as it is sent: its length and flags, the data, the path MTU's code. */
#define VERBS_HELLO_BYTES (RP_PRIVATE_BYTES_MAX + 2u)

struct verbs_device {
	struct rp_device base;
	struct ibv_context *context;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	uint8_t port_num;
	bool has_gid;
	bool gid_named; /* by the caller: connections must leave from it */
	struct ibv_gid_entry gid;
	uint32_t inline_bytes_max;
	uint8_t traffic_class; /* the IP header's, of what we send */
	uint8_t service_level;
	enum ibv_mtu mtu_limit; /* of our own choice; 0: none, the port's */
	bool dc;		/* dynamically connected transport */
	int raw_err;		/* 0: there are raw packet queue pairs, or why not */
	atomic_uint open_objects;
	atomic_bool port_lost; /* down for so long that its connections ended */
	/* The connection manager's part: all below under the lock. */
	pthread_mutex_t lock;
	struct rdma_event_channel *channel;
	int epoll_fd; /* rp_cm_fd(): the four below */
	int timer_fd;
	int event_fd;		   /* readable while told is not empty, or the failure waits */
	uint64_t port_deadline_ns; /* it went down: connections end then; or DEADLINE_NONE */
	struct list qps;	   /* struct verbs_qp.link */
	struct list kept;	   /* identifiers that end when the port is back: verbs/async.c */
	struct list told;   /* struct verbs_qp.told_link: an event waits for the application */
	bool failed;	    /* for good */
	bool failure_waits; /* the application is not told yet */
};

struct verbs_pd {
	struct rp_pd base;
	struct verbs_device *device;
	struct ibv_pd *pd;
};

struct verbs_mr {
	struct rp_mr base;
	struct verbs_device *device;
	struct ibv_mr *mr;
};

struct verbs_mw {
	struct rp_mw base;
	struct verbs_device *device;
	struct ibv_mw *mw;
};

struct verbs_cq {
	struct rp_cq base;
	struct verbs_device *device;
	struct ibv_cq *cq;
	struct ibv_comp_channel *channel;
	bool armed;			/* the device will report the next completion */
	uint32_t row;			/* completions taken since the queue was last found empty */
	atomic_bool overrun;		/* the device said so: rp_cq_poll() answers -EIO */
	uint32_t kept_head, kept_count; /* taken already, to be handed out first */
	uint32_t kept_slots;
	struct rp_wc *kept;
};

struct verbs_srq {
	struct rp_srq base;
	struct verbs_device *device;
	struct ibv_srq *srq;
	uint32_t wr_max, sge_max;
};

/* The kind of object that an rdma_cm identifier's context points at. */
enum verbs_handle {
	VERBS_HANDLE_LISTENER,
	VERBS_HANDLE_REQUEST,
	VERBS_HANDLE_QP,
	VERBS_HANDLE_GROUP,
	VERBS_HANDLE_KEPT,
};

/* The life of a queue pair's connection:
 *
 *   active   NONE -> RESOLVING (address, then route) -> CONNECTING -> UP -> DOWN
 *   passive  NONE -> ACCEPTED -> UP -> DOWN
 *   UD, raw  NONE, and RTS from the beginning
 *
 * A failed attempt goes back to NONE, the queue pair still in INIT. A queue pair is RTS from
 * ESTABLISHED (active) or from before the reply is sent (passive). */
enum verbs_conn {
	VERBS_CONN_NONE,
	VERBS_CONN_RESOLVING,
	VERBS_CONN_CONNECTING,
	VERBS_CONN_ACCEPTED,
	VERBS_CONN_UP,
	VERBS_CONN_DOWN,
};

struct verbs_dci;
struct verbs_qp {
	enum verbs_handle handle;
	struct rp_qp base;
	struct verbs_device *device;
	struct ibv_qp *qp;
	struct verbs_cq *send_cq, *recv_cq;
	enum rp_qp_type type;
	bool has_srq;
	bool failed;  /* and the failure is logged; under the device's lock */
	bool cut_off; /* failed as with a port that goes down; likewise */
	bool joined;  /* by hand: without the connection manager, and without its events */
	uint32_t psn; /* of our first packet, when joined by hand */
	_Atomic(enum rp_qp_state) state;
	uint8_t retry_count, rnr_retry_count, timeout; /* as IBTA encodes it: 4.096 us << timeout */
	struct verbs_dci *dci;			       /* of an initiator */
	/* The rest under the device's lock. */
	enum verbs_conn conn;
	struct rdma_cm_id *id; /* NULL while there is no connection and none is tried */
	uint64_t deadline_ns;
	char peer[64];
	enum ibv_mtu peer_mtu; /* the peer's limit; 0: the peer sent none */
	uint8_t hello[VERBS_HELLO_BYTES];
	uint8_t hello_bytes;
	struct list link;
	struct list told_link;
	enum rp_cm_type told;
	bool told_late;
};

struct verbs_listener {
	enum verbs_handle handle;
	struct rp_listener base;
	struct verbs_device *device;
	struct rdma_cm_id *id;
};

struct verbs_ah {
	struct rp_ah base;
	struct verbs_device *device;
	struct ibv_ah *ah;
};

/* A group, joined through an rdma_cm identifier of its own; the queue pair is attached when the
 * fabric has admitted it. */
struct verbs_group {
	enum verbs_handle handle;
	struct rp_group base;
	struct verbs_qp *qp;
	struct rdma_cm_id *id;
	struct sockaddr_storage address;
	struct verbs_ah ah;
	union ibv_gid gid;
	uint16_t lid;
	bool attached, failed;
};

/* A copy of an rdma_cm event, so that the event can be acknowledged before it is handled: closing
 * an identifier waits for its events. */
struct verbs_notice {
	enum rdma_cm_event_type type;
	int status;
	struct rdma_cm_id *id;
	uint8_t responder_resources, initiator_depth;
	uint8_t data[VERBS_HELLO_BYTES];
	uint8_t data_bytes;
	struct ibv_ah_attr group; /* of a group that was joined */
	uint32_t group_qkey;
};

struct verbs_request {
	enum verbs_handle handle;
	struct rp_conn_request base;
	struct verbs_device *device;
	struct rdma_cm_id *id;
	enum rp_qp_type type;
	bool gone; /* the peer gave up */
	enum ibv_mtu peer_mtu;
	uint8_t responder_resources, initiator_depth;
	char peer[64];
};

/* Undoes the count of the open. */
static inline void verbs_object_gone(struct verbs_device *device)
{
	uint32_t before = atomic_fetch_sub(&device->open_objects, 1);

	CHECK(before > 0);
}

static inline void verbs_cq_check(const struct verbs_cq *cq)
{
	CHECK(cq->kept_head <= cq->kept_count);
	CHECK(cq->kept_count <= cq->kept_slots);
}

static inline void verbs_qp_check(const struct verbs_qp *qp)
{
	CHECK(qp->handle == VERBS_HANDLE_QP);
	CHECK(qp->qp != NULL);
}

_Static_assert(VERBS_HELLO_BYTES == 56, "all that InfiniBand's REQ carries past rdma_cm's own");
_Static_assert(VERBS_READS_MAX <= UINT8_MAX, "rdma_cm counts them in a byte");
_Static_assert(RP_GRH_BYTES == sizeof(struct ibv_grh), "what a device puts before a datagram");
_Static_assert((int)RP_QPS_INIT == 0, "a queue pair that is zero is unconnected");

static inline const char *verbs_device_name(const struct verbs_device *device)
{
	return ibv_get_device_name(device->context->device);
}

static inline bool verbs_is_iwarp(const struct verbs_device *device)
{
	return device->context->device->transport_type == IBV_TRANSPORT_IWARP;
}

static inline struct verbs_device *verbs_device(const struct rp_device *base)
{
	return CONTAINER_OF(base, struct verbs_device, base);
}

/* Connecting, and neither there nor given up. */
static inline bool verbs_is_trying(const struct verbs_qp *qp)
{
	return qp->conn == VERBS_CONN_RESOLVING || qp->conn == VERBS_CONN_CONNECTING;
}

static inline struct verbs_qp *verbs_qp(const struct rp_qp *base)
{
	return CONTAINER_OF(base, struct verbs_qp, base);
}

static inline struct verbs_cq *verbs_cq(const struct rp_cq *base)
{
	return CONTAINER_OF(base, struct verbs_cq, base);
}

#endif
