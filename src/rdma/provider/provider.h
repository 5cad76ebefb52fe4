/* rdma/provider/provider.h: what a provider is: one typed ops table with every slot filled, and
 * handles whose first member leads back to it. rdma.c checks arguments that are wrong for every
 * provider and then calls through the table; nothing above knows which provider it talks to. */
#ifndef RDMA_PROVIDER_PROVIDER_H
#define RDMA_PROVIDER_PROVIDER_H

#include "base/counter.h"
#include "rdma/rdma.h"

struct rp_ops;

/* The common part of every handle; a provider embeds it first in its own struct. */
struct rp_device {
	const struct rp_ops *ops;
};
struct rp_pd {
	const struct rp_ops *ops;
};
struct rp_mr {
	const struct rp_ops *ops;
	uint32_t lkey;
	uint32_t rkey;
	uint32_t access; /* enum rp_access */
};
struct rp_mw {
	const struct rp_ops *ops;
	uint32_t rkey;
};
struct rp_cq {
	const struct rp_ops *ops;
	int fd;	     /* rp_cq_fd() */
	bool failed; /* completions were lost, and the log has said so */
};
struct rp_srq {
	const struct rp_ops *ops;
};
struct rp_ah {
	const struct rp_ops *ops;
};
struct rp_group {
	const struct rp_ops *ops;
	struct rp_ah *ah; /* once joined */
};
struct rp_flow {
	const struct rp_ops *ops;
};
struct rp_target;
struct rp_qp {
	const struct rp_ops *ops;
	void *context;
	struct rp_cq *send_cq, *recv_cq;
	enum rp_qp_type type;
	uint32_t num;
	uint32_t qkey;	      /* UD */
	struct rp_qp_cap cap; /* as granted */
	/* Set while the queue pair is a target of a region's rings. */
	struct rp_target *target;
	void (*target_release)(struct rp_target *target);
};
struct rp_listener {
	const struct rp_ops *ops;
	void *context;
	uint16_t port;
};
struct rp_conn_request {
	const struct rp_ops *ops;
};

/* What a provider's queue pairs took, by kind, and what of it failed, by enum rp_status. */
enum rp_kind {
	RP_KIND_SEND,
	RP_KIND_SEND_IMM,
	RP_KIND_WRITE,
	RP_KIND_WRITE_IMM,
	RP_KIND_READ,
	RP_KIND_ATOMIC,
	RP_KIND_RECV,
	RP_KIND_BIND,
	RP_KIND_COUNT
};
struct rp_counts {
	struct counter asked[RP_KIND_COUNT];
	struct counter failed[RP_WC_GENERAL_ERR + 1]; /* of RP_WC_SUCCESS: nothing */
};
#define RP_COUNT_ASKED(provider, what)                                                     \
	{                                                                                  \
		.name = "nebulaio_rdma_work_requests_total",                               \
		.labels = "provider=\"" provider "\",kind=\"" what "\"",                   \
		.help = "Work requests that queue pairs took, by provider and operation.", \
	}
#define RP_COUNT_FAILED(provider, what)                                                  \
	{                                                                                \
		.name = "nebulaio_rdma_completion_errors_total",                         \
		.labels = "provider=\"" provider "\",status=\"" what "\"",               \
		.help = "Work requests that failed, by provider and completion status.", \
	}
/* The counts of the provider of that name. They join the registry before main(). */
#define RP_COUNTS(provider)                                                                    \
	{                                                                                      \
		.asked =                                                                       \
			{                                                                      \
				[RP_KIND_SEND] = RP_COUNT_ASKED(provider, "send"),             \
				[RP_KIND_SEND_IMM] = RP_COUNT_ASKED(provider, "send_imm"),     \
				[RP_KIND_WRITE] = RP_COUNT_ASKED(provider, "write"),           \
				[RP_KIND_WRITE_IMM] = RP_COUNT_ASKED(provider, "write_imm"),   \
				[RP_KIND_READ] = RP_COUNT_ASKED(provider, "read"),             \
				[RP_KIND_ATOMIC] = RP_COUNT_ASKED(provider, "atomic"),         \
				[RP_KIND_RECV] = RP_COUNT_ASKED(provider, "recv"),             \
				[RP_KIND_BIND] = RP_COUNT_ASKED(provider, "bind"),             \
			},                                                                     \
		.failed = {                                                                    \
			[RP_WC_LOC_LEN_ERR] = RP_COUNT_FAILED(provider, "local_length"),       \
			[RP_WC_LOC_PROT_ERR] = RP_COUNT_FAILED(provider, "local_protection"),  \
			[RP_WC_WR_FLUSH_ERR] = RP_COUNT_FAILED(provider, "flushed"),           \
			[RP_WC_REM_INV_REQ_ERR] =                                              \
				RP_COUNT_FAILED(provider, "remote_invalid_request"),           \
			[RP_WC_REM_ACCESS_ERR] = RP_COUNT_FAILED(provider, "remote_access"),   \
			[RP_WC_REM_OP_ERR] = RP_COUNT_FAILED(provider, "remote_operation"),    \
			[RP_WC_RETRY_EXC_ERR] = RP_COUNT_FAILED(provider, "retries_exceeded"), \
			[RP_WC_RNR_RETRY_EXC_ERR] =                                            \
				RP_COUNT_FAILED(provider, "receiver_not_ready"),               \
			[RP_WC_GENERAL_ERR] = RP_COUNT_FAILED(provider, "general"),            \
		},                                                                             \
	}

/* Contracts are those of the rp_ functions of the same name in rdma.h. The dispatcher has already
 * refused NULL and out-of-range arguments, filled in a queue pair's default capacities, and copied
 * context, so a provider needs not. */
struct rp_ops {
	const char *name; /* "simulated" */
	struct rp_counts *counts;
	/* True when this provider is the one to open such a name. */
	bool (*claims)(const char *device_name);
	/* Appends the names of the devices there are, for the log line of -ENODEV. */
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
	/* Finds a cleared struct. */
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

/* A device's own descriptors, which are there as long as it is: an eventfd that says whether
 * something waits (set only when it is clear, cleared only when it is set), and a timer. */
void rp_event_fd_set(int fd);
void rp_event_fd_clear(int fd);
struct itimerspec;
void rp_timer_fd_set(int fd, const struct itimerspec *when);

/* ---- Counts of what queue pairs are asked to do, by provider (count_dp.c). ---- */
void rp_count_sends(const struct rp_ops *ops, const struct rp_send_wr *wrs, uint32_t count);
void rp_count_recvs(const struct rp_ops *ops, uint32_t count);
void rp_count_bind(const struct rp_ops *ops);
/* What was not taken, for want of room. */
void rp_count_send_full(void);
void rp_count_recv_full(void);
/* Of what a completion queue gave: failed ones by status, or that it lost some. */
void rp_count_completions(const struct rp_cq *cq, const struct rp_wc *wcs, int got);

/* Logs why a queue pair failed, with all that is known of it. */
void rp_qp_log_failure(const struct rp_qp_info *info, const char *why);

/* The providers there are, in the order in which a device's name is offered to them: providers.c.
 * Whoever links the library and has a provider of its own defines both instead. */
extern const struct rp_ops *const rp_providers[];
extern const size_t rp_provider_count;
extern const struct rp_ops rp_simulated_ops;
extern const struct rp_ops rp_verbs_ops;

#endif
