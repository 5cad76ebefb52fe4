/* rdma/verbs/verbs_priv.h: shared by the files of the verbs provider.
 *
 * Queue pairs are made in our own device context, not on rdma_cm's identifier: the interface posts
 * receives before it connects, one registration serves every connection, and closing an identifier
 * does not take its queue pair along. rdma_cm then carries addresses, keys and private data only;
 * we move the queue pair ourselves with the attributes from rdma_init_qp_attr(3), and finish the
 * active side with rdma_establish(3). The kernel knows such a queue pair by its number alone, so
 * this is the same on soft-RoCE, RoCE and InfiniBand. */
#ifndef RDMA_VERBS_VERBS_PRIV_H
#define RDMA_VERBS_VERBS_PRIV_H

#include "rdma/verbs/types.h"

/* ---- Devices (verbs/device.c). ---- */
/* Logs an error when the device refused to destroy an object, as a lost device or a failing driver
 * may. The object's memory is then lost until the process ends. */
void verbs_ended(const struct verbs_device *device, const char *what, int err);

/* ---- Queues (verbs/qp.c). ---- */
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

/* ---- Datagrams (verbs/ud.c). ---- */
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

/* ---- Addresses (verbs/ah.c). ---- */
int verbs_ah_from_wc(
	struct rp_pd *pd, const struct rp_wc *wc, const void *grh, struct rp_ah **ret_ah);
int verbs_ah_open(struct rp_pd *pd, const struct rp_address *to, struct rp_ah **ret_ah);
void verbs_ah_close(struct rp_ah *base);
/* The address as the device wants it; -EINVAL: not an address of this fabric. */
int verbs_ah_attr(const struct verbs_device *device, const struct rp_address *to,
	struct ibv_ah_attr *ret_attr);

/* ---- Dynamically connected transport (verbs/dc.c); without libmlx5 there is none. ---- */
/* Whether the device has it, found out by an attempt. */
bool verbs_dc_probe(struct verbs_device *device);
/* Creates an initiator (RTS) or a target (RTR). */
int verbs_dc_create(struct verbs_qp *qp, struct ibv_pd *pd, const struct rp_qp_attr *attr);
/* Of an initiator, before it is freed; takes NULL. */
void verbs_dc_free(struct verbs_dci *dci);
int verbs_dci_aim(struct rp_qp *base, struct rp_ah *ah, uint32_t target_qpn, uint64_t dc_key);
/* Posts up to a batch, as verbs_post_send(); returns how many were posted, and why not all. */
uint32_t verbs_dc_send(
	struct verbs_qp *qp, const struct rp_send_wr *wrs, uint32_t count, int *ret_err);

/* ---- Data path (verbs/qp_dp.c). ---- */
int verbs_cq_poll(struct rp_cq *base, struct rp_wc *wcs, uint32_t max);
bool verbs_cq_arm(struct rp_cq *base);
void verbs_cq_disarm(struct rp_cq *base);
int verbs_post_send(
	struct rp_qp *base, const struct rp_send_wr *wrs, uint32_t count, uint32_t *ret_posted);
int verbs_post_recv(
	struct rp_qp *base, const struct rp_recv_wr *wrs, uint32_t count, uint32_t *ret_posted);
int verbs_srq_post(
	struct rp_srq *base, const struct rp_recv_wr *wrs, uint32_t count, uint32_t *ret_posted);
/* Errors that not all devices refuse by themselves. */
bool verbs_send_is_wrong(const struct verbs_qp *qp, const struct rp_send_wr *wr);
unsigned int verbs_send_flags(uint32_t flags);
/* Up to max completions straight from the device. */
int verbs_take(struct verbs_cq *cq, struct rp_wc *wcs, uint32_t max);

/* ---- Joining by hand (verbs/join.c). ---- */
int verbs_qp_address(struct rp_qp *base, struct rp_address *ret_address);
int verbs_qp_join(struct rp_qp *base, const struct rp_address *peer, bool first);

/* ---- Private data (verbs/hello.c). ---- */
/* Returns the length. */
uint8_t verbs_hello_pack(const struct verbs_device *device, enum rp_qp_type type, struct slice data,
	uint8_t out[VERBS_HELLO_BYTES]);
/* Sets the event's private data. False: a peer of ours does not send these bytes. */
bool verbs_hello_unpack(struct slice data, struct rp_cm_event *ret_event, enum rp_qp_type *ret_type,
	enum ibv_mtu *ret_mtu);

/* ---- The device's connection manager (verbs/cm_poll.c). ---- */
int verbs_cm_init(struct verbs_device *device);
void verbs_cm_fini(struct verbs_device *device); /* takes a half-built one */
int verbs_cm_poll(struct rp_device *base, struct rp_cm_event *ret_event);
int verbs_cm_fd(const struct rp_device *base);
/* Sets the timer to the first deadline there is. Locked. */
void verbs_timer_update(struct verbs_device *device);

/* ---- Listeners and requests (verbs/cm_listen.c). ---- */
int verbs_listen(struct rp_device *base, const char *address, uint16_t port,
	struct rp_listener **ret_listener);
void verbs_listener_close(struct rp_listener *base);
int verbs_accept(struct rp_conn_request *base, struct rp_qp *qp, struct slice private_data);
void verbs_reject(struct rp_conn_request *base, struct slice private_data);
/* A peer asks for a connection; true: an event for the application. Locked. */
bool verbs_request_notice(struct verbs_device *device, const struct verbs_notice *notice,
	struct rp_cm_event *ret_event);

/* ---- A queue pair's connection (verbs/cm.c). ---- */
int verbs_connect(struct rp_qp *base, const char *address, uint16_t port, struct slice private_data,
	uint64_t deadline_ns);
void verbs_disconnect(struct rp_qp *base);
/* Ends the connection, if any; no event of this queue pair comes after. */
void verbs_cm_forget(struct verbs_qp *qp);
/* rdma_cm found a device by address; it must be the one that we opened. */
bool verbs_is_ours(const struct verbs_device *device, const struct rdma_cm_id *id);
/* Our side's offer and demand for a connection. */
struct rdma_conn_param verbs_conn_param(const struct verbs_qp *qp);
/* Moves it to RTS, as far as that is not the device's own work. passive: the request that it
 * accepts, or NULL. Locked, as all below. */
int verbs_qp_bring_up(struct verbs_qp *qp, const struct verbs_request *passive);
/* rdma_cm's event of its identifier; true: an event for the application. */
bool verbs_qp_notice(
	struct verbs_qp *qp, const struct verbs_notice *notice, struct rp_cm_event *ret_event);
/* The attempt to connect lasted too long: nobody answered. */
void verbs_attempt_late(struct verbs_qp *qp);
/* The connection is over; its user gets the event. */
void verbs_conn_down(struct verbs_qp *qp, enum rp_cm_type type);
/* The application gets RP_CM_DEVICE_FATAL. */
void verbs_failure_tell(struct verbs_device *device);
/* The next event that we made ourselves; false: none. */
bool verbs_told_pop(struct verbs_device *device, struct rp_cm_event *ret_event);

/* ---- The device's asynchronous events (verbs/async.c). ---- */
/* Reads them: ports, queues, queue pairs. verbs_async_read() takes the lock; all others here are
 * called with it. */
void verbs_async_take(struct verbs_device *device);
void verbs_async_read(struct verbs_device *device);
/* The device failed or was removed: connections end, and the application is told once. */
void verbs_device_fail(struct verbs_device *device);
/* The port has not come back in time: connections end. */
void verbs_port_lose(struct verbs_device *device);
/* Tells the peer that the connection ends; while the port is down, or may be about to, later. */
void verbs_farewell(struct verbs_qp *qp);
/* Ends qp's identifier, if it has one; likewise. */
void verbs_id_close(struct verbs_qp *qp);
/* verbs_kept_due: when the first kept identifier is due. verbs_kept_look: ends those that are due,
 * unless the port is down. */
uint64_t verbs_kept_due(const struct verbs_device *device);
void verbs_kept_look(struct verbs_device *device, uint64_t now_ns);
/* Ends them all; waits for those that are not due yet, unless the port is down. */
void verbs_kept_free(struct verbs_device *device);

#endif
