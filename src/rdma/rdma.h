/* rdma/rdma.h: RDMA providers behind one verbs-shaped interface: device, protection domain, memory
 * region, completion queue, shared receive queue, queue pair, connection manager.
 *
 * Providers: `verbs` (libibverbs and librdmacm: InfiniBand, RoCE, iWARP) and `simulated` (device
 * name "simulated": processes on one host, real bytes). Semantics are those of ibv_* and rdma_cm
 * unless a comment says otherwise; one test suite runs over every provider.
 *
 * Threads: a queue pair and its completion queues are used by one thread at a time. Device, pd and
 * mr calls: any. Prefix rp_ (RDMA provider): librdmacm owns rdma_. */
#ifndef RDMA_RDMA_H
#define RDMA_RDMA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "region/region.h"

struct rp_device;
struct rp_pd;
struct rp_mr;
struct rp_mw;
struct rp_cq;
struct rp_srq;
struct rp_qp;
struct rp_listener;

/* For their uses see docs/guide/rdma.md. UC is RC without acknowledgements: lost messages are not
 * reported, there are no reads and no atomics, and a message for which no receive is posted is
 * dropped. UD and raw packets: rdma/datagram.h. The last two are the ends of mlx5's dynamically
 * connected transport. */
enum rp_qp_type { RP_QP_RC, RP_QP_UC, RP_QP_UD, RP_QP_RAW, RP_QP_DCI, RP_QP_DCT };
const char *rp_qp_type_str(enum rp_qp_type type);
enum rp_qp_state { RP_QPS_INIT, RP_QPS_RTR, RP_QPS_RTS, RP_QPS_ERR };

enum rp_access {
	RP_ACCESS_LOCAL_WRITE = 1u << 0,
	RP_ACCESS_REMOTE_WRITE = 1u << 1, /* needs LOCAL_WRITE */
	RP_ACCESS_REMOTE_READ = 1u << 2,
	RP_ACCESS_REMOTE_ATOMIC = 1u << 3, /* needs LOCAL_WRITE */
	RP_ACCESS_WINDOW = 1u << 4,	   /* memory windows may be opened on it */
};

enum rp_opcode {
	RP_SEND,
	RP_SEND_IMM,
	RP_WRITE,
	RP_WRITE_IMM,
	RP_READ,
	RP_CMP_SWAP, /* 8 bytes, aligned; the old value lands in sge[0] */
	RP_FETCH_ADD,
	RP_RECV,	  /* completions only */
	RP_RECV_WRITE_IMM /* completions only: a write-with-immediate consumed a receive */
};

enum rp_send_flags {
	RP_SEND_SIGNALED = 1u << 0,
	RP_SEND_INLINE =
		1u << 1, /* the payload is taken at post time; buffers may be reused at once */
	RP_SEND_SOLICITED = 1u << 2,
	RP_SEND_FENCE = 1u << 3,
};

enum rp_status { /* the order and meaning of enum ibv_wc_status's common ones */
	RP_WC_SUCCESS,
	RP_WC_LOC_LEN_ERR,
	RP_WC_LOC_PROT_ERR,
	RP_WC_WR_FLUSH_ERR,
	RP_WC_REM_INV_REQ_ERR,
	RP_WC_REM_ACCESS_ERR,
	RP_WC_REM_OP_ERR,
	RP_WC_RETRY_EXC_ERR,
	RP_WC_RNR_RETRY_EXC_ERR,
	RP_WC_GENERAL_ERR,
};
const char *rp_status_str(enum rp_status status);
/* The value in a region completion instead: 0 or -errno (flushed: -ECANCELED, remote access:
 * -EACCES, retries: -ETIMEDOUT, lengths: -EMSGSIZE, local protection: -EFAULT, others: -EIO). */
int rp_status_errno(enum rp_status status);

struct rp_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

struct rp_group;
struct rp_flow;
struct rp_ah; /* address handle, for UD and DCI: an address as the device wants it */

struct rp_send_wr {
	uint64_t wr_id;
	enum rp_opcode opcode;
	uint32_t flags;
	const struct rp_sge *sg_list;
	uint32_t sge_count;
	uint32_t imm;
	uint64_t remote_addr;
	uint32_t rkey;
	uint64_t compare_add;
	uint64_t swap;
	struct rp_ah *ah;    /* UD; DCI, unless it is aimed */
	uint32_t remote_qpn; /* with ah: UD's queue pair, DCI's target */
	uint32_t remote_qkey;
	uint64_t dc_key; /* with ah: DCI */
};

struct rp_recv_wr {
	uint64_t wr_id;
	const struct rp_sge *sg_list;
	uint32_t sge_count;
};

struct rp_wc {
	uint64_t wr_id;
	enum rp_status status;
	enum rp_opcode opcode;
	uint32_t byte_len; /* received or read */
	uint32_t imm;
	bool has_imm;
	bool has_grh;  /* UD: the first 40 bytes hold a routing header */
	uint16_t slid; /* UD, on InfiniBand */
	uint32_t qpn;
	uint32_t src_qpn; /* UD */
	uint8_t sl;	  /* UD, on InfiniBand */
	uint8_t path_bits;
};

struct rp_qp_cap {
	uint32_t max_send_wr;	  /* 0: 128 */
	uint32_t max_recv_wr;	  /* 0: 128 */
	uint32_t max_send_sge;	  /* 0: 4 */
	uint32_t max_recv_sge;	  /* 0: 4 */
	uint32_t max_inline_data; /* bytes; the provider may give more */
};

struct rp_qp_attr {
	enum rp_qp_type type;
	struct rp_cq *send_cq;
	struct rp_cq *recv_cq;
	struct rp_srq *srq; /* or NULL */
	struct rp_qp_cap cap;
	uint8_t retry_count;	 /* 0 to 7; transport retries */
	uint8_t rnr_retry_count; /* 7: without limit */
	uint32_t timeout_us;	 /* local ack timeout; 0: the provider's default */
	uint32_t qkey;		 /* UD */
	uint64_t dc_key;	 /* DCT: the key that senders need */
	void *context;
};

struct rp_device_attr {
	char name[32];
	char provider[16];  /* "simulated", "verbs" */
	char transport[16]; /* "simulated", "infiniband", "roce-v2", "iwarp" */
	bool simulated;
	uint32_t max_qp_wr, max_sge, max_cqe, max_mr, max_inline_data, active_mtu;
	uint32_t qp_types; /* 1 << enum rp_qp_type */
	bool atomics, srq;
	bool windows;
	bool port_lost; /* the port is down now, and did not come back before connections ended */
};

/* ---- Device. ---- */
struct rp_open_opts {
	/* "simulated" or "simulated:drop=0.01,seed=7,…" (docs/guide/simulated.md), or a verbs
	 * device "mlx5_0", "mlx5_0:1:3" (port, GID index). */
	const char *device_name;
	uint8_t ib_port; /* 0: the first active */
	int gid_index;	 /* -1: choose, and log the choice */
	/* Numeric: the choice prefers the GID that belongs to it. NULL or "": no address. */
	const char *address;
	/* For the packets that our queue pairs send; only the verbs provider uses them. */
	uint8_t traffic_class; /* the IP header's byte, on RoCE; 0: as the kernel has it */
	uint8_t service_level; /* 0 to 15; 0: as the connection manager says */
	/* Largest payload of a packet, 256 to 4096; for connections, the peer's limit applies too,
	 * if it sent one. 0: the port's. More than the port's is -EMSGSIZE, other values are
	 * -EINVAL. */
	uint32_t path_mtu;
};
/* -ENODEV: no such device (the log lists the devices); -EINVAL: the name does not parse. */
int rp_open(const struct rp_open_opts *opts, struct rp_device **ret_device);
/* Whether this host has the device that the name names; ret_names: all that it has, each after a
 * space.
 */
bool rp_device_known(const char *device_name, char *ret_names, size_t names_bytes);
void rp_close(
	struct rp_device *device); /* takes NULL; everything opened on it must be closed before */
void rp_device_attr(const struct rp_device *device, struct rp_device_attr *ret_attr);

/* The device that leads to an address by the host's routes. Nothing is sent, so only a connection
 * attempt shows whether a server answers there. */
struct rp_found {
	char device_name[64]; /* for rp_open: "mlx5_0:1", "simulated"; empty: none */
	char why[192];	      /* for people, in either case */
};
/* For a client: the card whose address is the source address of packets to that address. The
 * simulated device, when a server listens there on it, or when no card leads to an address of this
 * host. The address is numeric. -ENODEV: none. */
int rp_find(const char *address, uint16_t port, struct rp_found *ret_found);
/* The numeric address of this host that packets to a numeric address leave from, by the routes: of
 * the interface, also a VLAN's, whose GID a client's queue pairs should have. -EINVAL: not an
 * address; -ENETUNREACH and others: no route. */
#define RP_ADDRESS_TEXT_BYTES 64u
int rp_source(const char *address, char ret_source[RP_ADDRESS_TEXT_BYTES]);
/* For a server that listens at the address; "" and "0.0.0.0" are any address. The card that has the
 * address, or for any address the first card whose port is up. The simulated device, when only
 * processes of this host can reach the address, or when there is no card. */
int rp_find_listening(const char *address, struct rp_found *ret_found);
/* The RDMA library that cannot be loaded on this host, and why; NULL: none. */
const char *rp_lacking(void);

int rp_pd_open(struct rp_device *device, struct rp_pd **ret_pd);
void rp_pd_close(struct rp_pd *pd);

/* Registers [addr, addr + bytes) of this process. For memory of a memfd-backed arena, fd and
 * fd_offset name the file, which the simulated provider shares and others ignore; otherwise fd is
 * -1. Not for the request path. */
struct rp_mr_opts {
	void *addr;
	uint64_t bytes;
	uint32_t access; /* enum rp_access */
	int fd;
	uint64_t fd_offset;
	/* fd is a dma-buf of a GPU's memory, and work requests use addr for its fd_offset. Only on
	 * cards: -EOPNOTSUPP elsewhere. */
	bool dma_buf;
};
int rp_mr_open(struct rp_pd *pd, const struct rp_mr_opts *opts, struct rp_mr **ret_mr);
void rp_mr_close(struct rp_mr *mr);
uint32_t rp_mr_lkey(const struct rp_mr *mr);
uint32_t rp_mr_rkey(const struct rp_mr *mr);

/* ---- Memory windows: memory that only the peer of one queue pair may read. ---- */
/* A region's own key is good on every queue pair of its protection domain. That of a window (type 2
 * on cards: IBTA 10.6.7.2) is good on one, an RC queue pair in RTS of the same domain. Binding
 * takes a place in the send queue; it comes before later posts, and completes, with
 * wr_id, only when it fails. Close the window before its queue pair and its region, whose
 * descriptor is open until then. -EINVAL: the region was not registered for windows; -EOPNOTSUPP:
 * the device has none (rp_device_attr().windows); -ENOMEM: the send queue is full. The queue pair's
 * thread. */
int rp_mw_open(struct rp_qp *qp, struct rp_mr *mr, uint64_t wr_id, struct rp_mw **ret_mw);
void rp_mw_close(struct rp_mw *mw); /* takes NULL */
uint32_t rp_mw_rkey(const struct rp_mw *mw);

/* ---- Completion queues. ---- */
int rp_cq_open(struct rp_device *device, uint32_t cqe_count, struct rp_cq **ret_cq);
void rp_cq_close(struct rp_cq *cq);
/* Takes up to max completions; returns how many, or -EIO when the queue overran. In the simulated
 * provider the call also makes progress. No system call while both sides spin (except for simulated
 * datagrams). */
int rp_cq_poll(struct rp_cq *cq, struct rp_wc *wcs, uint32_t max);
/* Asks for an event on rp_cq_fd(). True: armed, or the device is gone; false: poll again first. */
bool rp_cq_arm(struct rp_cq *cq);
void rp_cq_disarm(struct rp_cq *cq);
int rp_cq_fd(const struct rp_cq *cq); /* readable when a completion came after arming */

/* ---- Shared receive queues: used by one thread at a time, together with their queue pairs. ----
 */
int rp_srq_open(struct rp_pd *pd, uint32_t max_wr, uint32_t max_sge, struct rp_srq **ret_srq);
void rp_srq_close(struct rp_srq *srq);
int rp_srq_post(
	struct rp_srq *srq, const struct rp_recv_wr *wrs, uint32_t count, uint32_t *ret_posted);

/* ---- Queue pairs. ---- */
int rp_qp_open(struct rp_pd *pd, const struct rp_qp_attr *attr, struct rp_qp **ret_qp);
void rp_qp_close(struct rp_qp *qp); /* takes NULL; disconnects */
uint32_t rp_qp_num(const struct rp_qp *qp);
void *rp_qp_context(const struct rp_qp *qp);
enum rp_qp_state rp_qp_state(const struct rp_qp *qp);
/* The granted capacities, which are at least the requested ones. */
void rp_qp_cap(const struct rp_qp *qp, struct rp_qp_cap *ret_cap);
/* Posts in order, with one doorbell for all. 0, or -ENOMEM (queue full), -EINVAL, -ENOTCONN;
 * *ret_posted is how many were posted. */
int rp_post_send(
	struct rp_qp *qp, const struct rp_send_wr *wrs, uint32_t count, uint32_t *ret_posted);
int rp_post_recv(
	struct rp_qp *qp, const struct rp_recv_wr *wrs, uint32_t count, uint32_t *ret_posted);
/* Moves the queue pair to the error state: outstanding work is flushed with RP_WC_WR_FLUSH_ERR, at
 * once. If a device has not flushed after RP_FLUSH_NS, it is broken, and its queue pair is to be
 * closed anyway. */
#define RP_FLUSH_NS (5 * NS_PER_S)
void rp_qp_error(struct rp_qp *qp);

/* The state and attributes of a queue pair, for people. A value that a provider or type does not
 * have is 0. On the simulated device a message has a sequence number, on a card a packet. */
struct rp_qp_info {
	char device[32];
	enum rp_qp_type type;
	enum rp_qp_state state;
	uint32_t qpn, dest_qpn;
	uint32_t sq_psn, rq_psn; /* the next to be sent, the next to be received */
	uint32_t timeout_us;
	uint32_t path_mtu;
	uint8_t retry_count, rnr_retry_count;
	uint8_t gid[16]; /* the peer's */
	bool has_gid;
};
/* As the device reports it now. Any thread, while the queue pair lives. */
void rp_qp_info(struct rp_qp *qp, struct rp_qp_info *ret_info);
/* One line: "RC queue pair 17 of rxe0: state ERR, sq_psn 0x…". Providers log it as a warning when
 * the first work request of a queue pair fails (a flushed one does not count). */
#define RP_QP_INFO_TEXT_BYTES 320u
void rp_qp_info_text(const struct rp_qp_info *info, char *text, size_t size);

/* ---- Connection manager: events, like rdma_cm's, by IP address and port. ---- */
enum rp_cm_type {
	RP_CM_CONNECT_REQUEST, /* on a listener: accept or reject it */
	RP_CM_ESTABLISHED,
	RP_CM_REJECTED,
	RP_CM_UNREACHABLE,
	RP_CM_DISCONNECTED, /* the peer closed, failed or exited; or our port is lost */
	RP_CM_DEVICE_FATAL, /* once, without a queue pair: nothing of the device works any more */
	RP_CM_GROUP_JOINED,
	RP_CM_GROUP_FAILED,
};
/* InfiniBand's REQ carries 56 bytes besides rdma_cm's own header; one of them has the length in
 * use, one the path MTU that the sender is limited to. */
#define RP_PRIVATE_BYTES_MAX 54u
struct rp_conn_request;
struct rp_cm_event {
	enum rp_cm_type type;
	struct rp_listener *listener;
	struct rp_conn_request *request; /* CONNECT_REQUEST: to be accepted or rejected */
	struct rp_qp *qp;		 /* the other types */
	struct rp_group *group;		 /* GROUP_JOINED, GROUP_FAILED */
	const char *why; /* REJECTED: a text for people; NULL: the peer gave no reason */
	bool late;	 /* UNREACHABLE: nobody answered in time; else nobody listens there */
	char peer[64];	 /* "192.0.2.1:40001"; simulated: "127.0.0.1:" and the process */
	uint8_t private_data[RP_PRIVATE_BYTES_MAX];
	uint32_t private_len;
};
/* address "" or "0.0.0.0": any. port 0: the call chooses a free one, which rp_listener_port()
 * returns. -EADDRINUSE. */
int rp_listen(struct rp_device *device, const char *address, uint16_t port, void *context,
	struct rp_listener **ret_listener);
void rp_listener_close(struct rp_listener *listener);
void *rp_listener_context(const struct rp_listener *listener);
uint16_t rp_listener_port(const struct rp_listener *listener);
/* Starts connecting an unconnected RC or UC queue pair; ESTABLISHED, REJECTED or UNREACHABLE
 * follows. Post receives before this call. */
int rp_connect(struct rp_qp *qp, const char *address, uint16_t port, const void *private_data,
	uint32_t private_len, uint64_t deadline_ns);
/* Takes the request. -errno: it is still the caller's, who rejects it: -ECONNRESET, the peer is
 * gone; -EINVAL, the queue pair has another type or device. */
int rp_accept(struct rp_conn_request *request, struct rp_qp *qp, const void *private_data,
	uint32_t private_len);
void rp_reject(struct rp_conn_request *request, const void *private_data, uint32_t private_len);
void rp_disconnect(struct rp_qp *qp);
/* The next event of this device: 1, 0 when there is none, or -errno. One thread at a time.
 * rp_cm_fd() is readable when there may be one. */
int rp_cm_poll(struct rp_device *device, struct rp_cm_event *ret_event);
int rp_cm_fd(const struct rp_device *device);

/* ---- Joining by hand: for ends that exchange their addresses in another way. ---- */
/* The address of a queue pair, as a peer uses it. On the simulated device gid names the device, lid
 * is 0. */
struct rp_address {
	uint8_t gid[16]; /* zeroes without has_gid */
	bool has_gid;
	uint16_t lid;
	uint32_t qpn; /* 24 bits */
	uint32_t psn; /* 24 bits: of the first packet that it sends */
	uint32_t mtu; /* 256 to 4096 bytes */
};
/* Reads the queue pair's own address; every call returns the same. */
int rp_qp_address(struct rp_qp *qp, struct rp_address *ret_address);
/* Joins an unconnected RC queue pair to that peer, with the smaller of both mtus. Both ends call
 * it; first is true at the end that calls it before the other. On a card the queue pair is in RTS
 * when this returns. On the simulated device both are in RTS once the second has called and both
 * have polled the connection manager; a refused one ends in ERR. A joined queue pair has no
 * connection events: read its state. On Ethernet the call takes a second when the network has no
 * such address, and so does rp_ah_open(): on an event loop, rdma/port.h has both. -EINVAL,
 * -EISCONN, -EOPNOTSUPP (not RC, or iWARP), or the device's own error. */
int rp_qp_join(struct rp_qp *qp, const struct rp_address *peer, bool first);

/* ---- Address handles. ---- */
/* Made from an address' lid and gid; the other fields are ignored. -EINVAL: not an address of this
 * fabric (no GID on Ethernet), -EOPNOTSUPP: iWARP. Must outlive the work requests posted with
 * it. */
int rp_ah_open(struct rp_pd *pd, const struct rp_address *to, struct rp_ah **ret_ah);
void rp_ah_close(struct rp_ah *ah); /* takes NULL */
/* To answer a datagram: grh is the first RP_GRH_BYTES (rdma/datagram.h) of its receive. -EINVAL: it
 * has none, and this fabric needs it to find the sender. */
int rp_ah_from_wc(struct rp_pd *pd, const struct rp_wc *wc, const void *grh, struct rp_ah **ret_ah);

/* ---- Dynamically connected transport (DC): mlx5 devices only; rp_device_attr().qp_types says
 * whether, and rp_qp_open() answers -EOPNOTSUPP elsewhere. ----
 *
 * An initiator, RP_QP_DCI, sends, writes and reads without a connection: each request says where it
 * goes, by an address handle, a target's number and its key. It receives nothing and is RTS from
 * the beginning. An error ends it: open another. A target, RP_QP_DCT, accepts requests that have
 * its key, and takes receives from its shared receive queue; it posts nothing. Initiators name it
 * by its rp_qp_num(). */
/* Later work requests without their own address handle go there; the region's rings use an
 * initiator this way. The handle must outlive the posted work requests. -EINVAL: not a DCI. */
int rp_dci_aim(struct rp_qp *dci, struct rp_ah *ah, uint32_t target_qpn, uint64_t dc_key);

/* ---- As a target of the unified rings. ---- */
/* Work request ids with this bit belong to the rings: other code must not use it on a queue pair
 * that is a target. */
#define RP_WR_ID_RING (1ull << 63)
/* Makes the queue pair a target of the region's RDMA rings: work requests submitted there are
 * posted in one batch a turn; rp_cq_drain() turns completions of ring work into region completions
 * and hands all others to fn. A queue that overran ends its queue pairs: the rings' work in flight
 * on them completes with -ECANCELED. -EEXIST: it is a target already. Ends when the queue pair
 * closes. */
int rp_qp_target(struct rp_qp *qp, struct region *region, uint16_t *ret_target);
typedef void rp_wc_fn(void *arg, const struct rp_wc *wc);
uint32_t rp_cq_drain(struct rp_cq *cq, struct region_ring *ring, rp_wc_fn *fn, void *arg);

#endif
