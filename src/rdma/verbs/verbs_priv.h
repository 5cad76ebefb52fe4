/* rdma/verbs_priv.h: what the files of the verbs provider share.
 *
 * Queue pairs are made in our own device context, not on rdma_cm's identifier: the interface posts
 * receives before it connects, one registration serves every connection, and closing an identifier
 * does not take its queue pair along. rdma_cm then carries addresses, keys and private data only;
 * we move the queue pair ourselves with what rdma_init_qp_attr(3) says, and finish the active side
 * with rdma_establish(3). The kernel knows such a queue pair by its number alone, so this is the
 * same on soft-RoCE, RoCE and InfiniBand. */
#ifndef RDMA_VERBS_PRIV_H
#define RDMA_VERBS_PRIV_H

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>

#include "rdma/rdma_priv.h"

/* Work requests that go with one bell, and completions that one look takes. */
#define VERBS_BATCH	    32u
#define VERBS_MIN_RNR_TIMER 12 /* IBTA 9.7.5.2.8: 0.64 ms between tries */
#define VERBS_HOPS_MAX	    64
/* How long connections outlive their port: as long as a peer's retries last, as they are set unless
 * told otherwise. */
#define VERBS_PORT_DOWN_NS (3 * NS_PER_S)
/* From a packet that does not leave, at the latest, until its port is known to be down. */
#define VERBS_CALM_NS (300 * NS_PER_MS)
/* Outstanding one-sided reads and atomics that one queue pair asks of its peer. */
#define VERBS_READS_MAX 16u

#define VERBS_LIKELY(x)	  __builtin_expect(!!(x), 1)
#define VERBS_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* ---- Names and GIDs (verbs_gid.c). ---- */
struct verbs_name {
	char device[IBV_SYSFS_NAME_MAX];
	uint8_t port;  /* 0: not said */
	int gid_index; /* -1: not said */
};
/* "DEVICE", "DEVICE:PORT" or "DEVICE:PORT:GID"; -EINVAL. */
int verbs_name_parse(const char *text, struct verbs_name *ret_name);
/* How good a GID is to meet peers with; the link is up when its network device is. */
uint32_t verbs_gid_score(const struct ibv_gid_entry *entry, bool link_up);
/* The text of a GID: an IPv4 address where it stands for one. */
void verbs_gid_text(const union ibv_gid *gid, char *text, size_t text_bytes);

/* ---- Devices (verbs.c). ---- */
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
	int raw_err;		/* 0: raw packet queue pairs can be had, or why not */
	atomic_uint open_objects;
	atomic_bool port_lost; /* down for so long that its connections ended */
	/* The connection manager's part: all below under the lock. */
	pthread_mutex_t lock;
	struct rdma_event_channel *channel;
	int epoll_fd; /* rp_cm_fd(): the four below */
	int timer_fd;
	int event_fd;		   /* readable while told is not empty */
	uint64_t port_deadline_ns; /* it went down: connections end then; or DEADLINE_NONE */
	struct list qps;	   /* struct verbs_qp.link */
	struct list kept;	   /* identifiers that end when the port is back: verbs_async.c */
	struct list told; /* struct verbs_qp.told_link: an event waits for the application */
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
	bool armed;			/* the device will tell of the next completion */
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

/* What an rdma_cm identifier's context points at. */
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
	bool failed;  /* and the log has said how; under the device's lock */
	bool cut_off; /* in a way that a port does which goes down; likewise */
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
	enum ibv_mtu peer_mtu; /* that it is limited to; 0: it has not said */
	uint8_t hello[VERBS_HELLO_BYTES];
	uint8_t hello_bytes;
	struct list link;
	struct list told_link;
	enum rp_cm_type told;
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

/* A group: asked for through an rdma_cm identifier of its own; the queue pair is attached when the
 * fabric has let us in. */
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

/* What an rdma_cm event says, copied so that the event can be acknowledged before it is acted on:
 * closing an identifier waits for its events. */
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

static inline bool verbs_is_iwarp(const struct verbs_device *device)
{
	return device->context->device->transport_type == IBV_TRANSPORT_IWARP;
}

static inline struct verbs_device *verbs_device(const struct rp_device *base)
{
	return CONTAINER_OF(base, struct verbs_device, base);
}

static inline struct verbs_qp *verbs_qp(const struct rp_qp *base)
{
	return CONTAINER_OF(base, struct verbs_qp, base);
}

static inline struct verbs_cq *verbs_cq(const struct rp_cq *base)
{
	return CONTAINER_OF(base, struct verbs_cq, base);
}

/* What the device answered when something of it was given back. A device that is gone, or a driver
 * that fails, may refuse: that is told, and what it kept is lost until the process ends. */
void verbs_ended(const struct verbs_device *device, const char *what, int err);

/* ---- Queues (verbs_qp.c). ---- */
int verbs_cq_open(struct rp_device *base, uint32_t cqe_count, struct rp_cq **ret_cq);
void verbs_cq_close(struct rp_cq *base);
int verbs_srq_open(struct rp_pd *base, uint32_t max_wr, uint32_t max_sge, struct rp_srq **ret_srq);
void verbs_srq_close(struct rp_srq *base);
int verbs_qp_open(struct rp_pd *base, const struct rp_qp_attr *attr, struct rp_qp **ret_qp);
void verbs_qp_close(struct rp_qp *base);
enum rp_qp_state verbs_qp_state(const struct rp_qp *base);
void verbs_qp_error(struct rp_qp *base);
/* Keeps a completion for the next look. */
void verbs_cq_keep(struct verbs_cq *cq, const struct rp_wc *wc);
/* The queue was found full: reads whether it overran. Not for the data path. */
void verbs_cq_look(struct verbs_cq *cq);
void verbs_qp_info(struct rp_qp *base, struct rp_qp_info *ret_info);
/* Logs the queue pair's attributes, at its first failure. Takes the device's lock. */
void verbs_qp_failed(struct verbs_device *device, const struct ibv_wc *wc);
/* Flushes what was just posted: devices in software look at a queue in error only when moved. */
void verbs_qp_flush(struct verbs_qp *qp);

/* ---- Datagrams (verbs_ud.c). ---- */
/* Moves a new UD or raw queue pair, which is in INIT, to RTS. */
int verbs_ud_ready(struct verbs_qp *qp);
/* Why there are no raw packet queue pairs here; 0: there are. */
int verbs_raw_probe(struct verbs_device *device);
void verbs_raw_explain(const struct verbs_device *device);
int verbs_group_join(struct rp_qp *base, const char *address, struct rp_group **ret_group);
void verbs_group_leave(struct rp_group *base);
/* Locked. True: an event for the application. */
bool verbs_group_notice(struct verbs_group *group, const struct verbs_notice *notice,
	struct rp_cm_event *ret_event);
int verbs_flow_open(struct rp_qp *base, const struct rp_flow_rule *rule, struct rp_flow **ret_flow);
void verbs_flow_close(struct rp_flow *base);

/* ---- Addresses (verbs_ah.c). ---- */
int verbs_ah_from_wc(
	struct rp_pd *pd, const struct rp_wc *wc, const void *grh, struct rp_ah **ret_ah);
int verbs_ah_open(struct rp_pd *pd, const struct rp_address *to, struct rp_ah **ret_ah);
void verbs_ah_close(struct rp_ah *base);
/* The address as the device wants it; -EINVAL: none of this fabric's. */
int verbs_ah_attr(const struct verbs_device *device, const struct rp_address *to,
	struct ibv_ah_attr *ret_attr);

/* ---- Dynamically connected transport (verbs_dc.c); without libmlx5 there is none. ---- */
/* Whether the device has it, found out by asking. */
bool verbs_dc_probe(struct verbs_device *device);
/* Creates an initiator (RTS) or a target (RTR). */
int verbs_dc_create(struct verbs_qp *qp, struct ibv_pd *pd, const struct rp_qp_attr *attr);
/* Of an initiator, before it is freed; takes NULL. */
void verbs_dc_free(struct verbs_dci *dci);
int verbs_dci_aim(struct rp_qp *base, struct rp_ah *ah, uint32_t target_qpn, uint64_t dc_key);
/* Posts up to a batch, as verbs_post_send(); the count that went, and why it was not all. */
uint32_t verbs_dc_send(
	struct verbs_qp *qp, const struct rp_send_wr *wrs, uint32_t count, int *ret_err);

/* ---- Data path (verbs_dp.c). ---- */
int verbs_cq_poll(struct rp_cq *base, struct rp_wc *wcs, uint32_t max);
bool verbs_cq_arm(struct rp_cq *base);
void verbs_cq_disarm(struct rp_cq *base);
int verbs_post_send(
	struct rp_qp *base, const struct rp_send_wr *wrs, uint32_t count, uint32_t *ret_posted);
int verbs_post_recv(
	struct rp_qp *base, const struct rp_recv_wr *wrs, uint32_t count, uint32_t *ret_posted);
int verbs_srq_post(
	struct rp_srq *base, const struct rp_recv_wr *wrs, uint32_t count, uint32_t *ret_posted);
/* What devices do not all refuse by themselves. */
bool verbs_send_is_wrong(const struct verbs_qp *qp, const struct rp_send_wr *wr);
unsigned int verbs_send_flags(uint32_t flags);
/* Up to max completions straight from the device. */
int verbs_take(struct verbs_cq *cq, struct rp_wc *wcs, uint32_t max);

/* ---- Joining by hand (verbs_join.c). ---- */
int verbs_qp_address(struct rp_qp *base, struct rp_address *ret_address);
int verbs_qp_join(struct rp_qp *base, const struct rp_address *peer, bool first);

/* ---- Connection manager (verbs_cm.c). ---- */
int verbs_cm_init(struct verbs_device *device);
void verbs_cm_fini(struct verbs_device *device); /* takes a half-built one */
int verbs_listen(struct rp_device *base, const char *address, uint16_t port,
	struct rp_listener **ret_listener);
void verbs_listener_close(struct rp_listener *base);
int verbs_connect(struct rp_qp *base, const char *address, uint16_t port, struct slice private_data,
	uint64_t deadline_ns);
int verbs_accept(struct rp_conn_request *base, struct rp_qp *qp, struct slice private_data);
void verbs_reject(struct rp_conn_request *base, struct slice private_data);
void verbs_disconnect(struct rp_qp *base);
int verbs_cm_poll(struct rp_device *base, struct rp_cm_event *ret_event);
int verbs_cm_fd(const struct rp_device *base);
union verbs_address {
	struct sockaddr any;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	struct sockaddr_storage storage;
};
/* A numeric address; "" or "0.0.0.0" or "::" is any. */
int verbs_address_parse(const char *text, uint16_t port, union verbs_address *ret_address);
/* The address that the chosen GID stands for, to leave from; false: let routing decide. */
bool verbs_gid_address(
	const struct verbs_device *device, int family, union verbs_address *ret_address);
/* rdma_cm found a device by address; it must be the one that we opened. */
bool verbs_is_ours(const struct verbs_device *device, const struct rdma_cm_id *id);
/* Ends the connection, if any; no event of this queue pair comes after. */
void verbs_cm_forget(struct verbs_qp *qp);
/* Sets the timer to the first deadline there is. Locked, as all below but verbs_async_read(). */
void verbs_timer_update(struct verbs_device *device);
/* The connection is over; its user is told so. */
void verbs_conn_down(struct verbs_qp *qp, enum rp_cm_type type);

/* ---- The device's asynchronous events (verbs_async.c). ---- */
/* Reads them: ports, queues, queue pairs. verbs_async_read() takes the lock. */
void verbs_async_take(struct verbs_device *device);
void verbs_async_read(struct verbs_device *device);
/* The port's time to come back is over: connections end. */
void verbs_port_lose(struct verbs_device *device);
/* Tells the peer that the connection ends; while the port is down, or may be about to, later. */
void verbs_farewell(struct verbs_qp *qp);
/* Ends qp's identifier, if it has one; likewise. */
void verbs_id_close(struct verbs_qp *qp);
/* When the first of those that wait is due; ends those that are, if the port is up after all. */
uint64_t verbs_kept_due(const struct verbs_device *device);
void verbs_kept_look(struct verbs_device *device, uint64_t now_ns);
/* Ends them all, those that are not due in a moment. */
void verbs_kept_free(struct verbs_device *device);

#endif
