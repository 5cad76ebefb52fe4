/* rdma/provider/provider.h: the interface of a provider: one typed ops table with every slot
 * filled, and handles whose first member points to it. rdma.c checks arguments that are wrong for
 * every provider and then calls through the table; code above it does not know which provider it
 * uses. */
#ifndef RDMA_PROVIDER_PROVIDER_H
#define RDMA_PROVIDER_PROVIDER_H

#include "rdma/provider/counts.h"
#include "rdma/provider/handles.h"
#include "rdma/datagram.h"

/* Contracts are those of the rp_ functions of the same name in rdma.h. The dispatcher has already
 * refused NULL and out-of-range arguments, checked handles, filled in a queue pair's default
 * capacities, and copied context, so a provider need not do that. */
struct rp_ops {
	const char *name; /* "simulated" */
	struct rp_counts *counts;
	/* True when this provider opens devices of this name. */
	bool (*claims)(const char *device_name);
	/* Appends the names of the existing devices, for the log line of -ENODEV. */
	void (*list)(struct buf *out);
	int (*open)(const struct rp_open_opts *opts, struct rp_device **ret_device);
	void (*close)(struct rp_device *device);
	void (*device_attr)(const struct rp_device *device, struct rp_device_attr *ret_attr);
	int (*pd_open)(struct rp_device *device, struct rp_pd **ret_pd);
	void (*pd_close)(struct rp_pd *pd);
	int (*mr_open)(struct rp_pd *pd, const struct rp_mr_opts *opts, struct rp_mr **ret_mr);
	void (*mr_close)(struct rp_mr *mr);
	int (*mw_open)(struct rp_qp *qp, struct rp_mr *mr, uint64_t wr_id, struct rp_mw **ret_mw);
	void (*mw_close)(struct rp_mw *mw);
	int (*cq_open)(struct rp_device *device, uint32_t cqe_count, struct rp_cq **ret_cq);
	void (*cq_close)(struct rp_cq *cq);
	int (*cq_poll)(struct rp_cq *cq, struct rp_wc *wcs, uint32_t max);
	bool (*cq_arm)(struct rp_cq *cq);
	void (*cq_disarm)(struct rp_cq *cq);
	int (*srq_open)(
		struct rp_pd *pd, uint32_t max_wr, uint32_t max_sge, struct rp_srq **ret_srq);
	void (*srq_close)(struct rp_srq *srq);
	int (*srq_post)(struct rp_srq *srq, const struct rp_recv_wr *wrs, uint32_t count,
		uint32_t *ret_posted);
	int (*qp_open)(struct rp_pd *pd, const struct rp_qp_attr *attr, struct rp_qp **ret_qp);
	void (*qp_close)(struct rp_qp *qp);
	enum rp_qp_state (*qp_state)(const struct rp_qp *qp);
	int (*post_send)(struct rp_qp *qp, const struct rp_send_wr *wrs, uint32_t count,
		uint32_t *ret_posted);
	int (*post_recv)(struct rp_qp *qp, const struct rp_recv_wr *wrs, uint32_t count,
		uint32_t *ret_posted);
	void (*qp_error)(struct rp_qp *qp);
	/* The struct is zeroed before the call. */
	void (*qp_info)(struct rp_qp *qp, struct rp_qp_info *ret_info);
	int (*ah_open)(struct rp_pd *pd, const struct rp_address *to, struct rp_ah **ret_ah);
	int (*ah_from_wc)(
		struct rp_pd *pd, const struct rp_wc *wc, const void *grh, struct rp_ah **ret_ah);
	void (*ah_close)(struct rp_ah *ah);
	int (*group_join)(struct rp_qp *qp, const char *address, struct rp_group **ret_group);
	void (*group_leave)(struct rp_group *group);
	int (*flow_open)(
		struct rp_qp *qp, const struct rp_flow_rule *rule, struct rp_flow **ret_flow);
	void (*flow_close)(struct rp_flow *flow);
	int (*dci_aim)(struct rp_qp *dci, struct rp_ah *ah, uint32_t target_qpn, uint64_t dc_key);
	int (*listen)(struct rp_device *device, const char *address, uint16_t port,
		struct rp_listener **ret_listener);
	void (*listener_close)(struct rp_listener *listener);
	int (*connect)(struct rp_qp *qp, const char *address, uint16_t port,
		struct slice private_data, uint64_t deadline_ns);
	int (*accept)(struct rp_conn_request *request, struct rp_qp *qp, struct slice private_data);
	void (*reject)(struct rp_conn_request *request, struct slice private_data);
	void (*disconnect)(struct rp_qp *qp);
	int (*qp_address)(struct rp_qp *qp, struct rp_address *ret_address);
	int (*qp_join)(struct rp_qp *qp, const struct rp_address *peer, bool first);
	int (*cm_poll)(struct rp_device *device, struct rp_cm_event *ret_event);
	int (*cm_fd)(const struct rp_device *device);
};

/* A device's own descriptors, which live as long as the device: an eventfd that says whether an
 * event waits (set only when it is clear, cleared only when it is set), and a timer. */
void rp_event_fd_set(int fd);
void rp_event_fd_clear(int fd);
struct itimerspec;
void rp_timer_fd_set(int fd, const struct itimerspec *when);

/* Logs why a queue pair of the device failed, with all its known attributes. Peers can cause that
 * as often as they like: the lines are limited, those of each device by themselves. */
void rp_qp_log_failure(struct rp_device *device, const struct rp_qp_info *info, const char *why);

/* The list of providers, in the order in which they are offered a device's name: providers.c. A
 * program that links the library and has its own provider defines both instead. */
extern const struct rp_ops *const rp_providers[];
extern const size_t rp_provider_count;
extern const struct rp_ops rp_simulated_ops;
extern const struct rp_ops rp_verbs_ops;

#endif
