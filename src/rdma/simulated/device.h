/* rdma/simulated/device.h: the simulated provider's faults, devices, peers and registrations. */
#ifndef RDMA_SIMULATED_DEVICE_H
#define RDMA_SIMULATED_DEVICE_H

#include <pthread.h>
#include <sys/types.h>

#include "rdma/provider/provider.h"
#include "rdma/simulated/wire.h"

#define SIM_BACKINGS_MAX      1024u
#define SIM_INLINE_BYTES_MAX  1024u
#define SIM_INLINE_BYTES_MIN  64u
#define SIM_QP_WRS_MAX	      32768u
#define SIM_CQES_MAX	      (1u << 22)
#define SIM_MESSAGE_BYTES_MAX (1u << 30)
/* With more queue pairs than this, a completion queue looks at bells instead of at every ring. */
#define SIM_SCAN_QPS_MAX 4u
#define SIM_RNR_WAIT_NS	 (100 * NS_PER_US)
#define SIM_TIMEOUT_NS	 (200 * NS_PER_US)

/* ---- Fault injection: probabilities as thresholds of a 32-bit draw. ---- */
struct sim_faults {
	bool any;
	bool no_direct; /* direct=0: every one-sided access is executed by the responder */
	uint64_t seed;
	uint64_t delay_ns;
	uint64_t drop, rnr, bad_rkey, qp_error, half_write, peer_death;
	uint64_t vanish, fatal; /* after this many transmissions of a queue pair; 0: never */
};
enum sim_fault {
	SIM_FAULT_NONE,
	SIM_FAULT_DROP,
	SIM_FAULT_RNR,
	SIM_FAULT_BAD_RKEY,
	SIM_FAULT_QP_ERROR,
	SIM_FAULT_HALF_WRITE,
	SIM_FAULT_PEER_DEATH,
	SIM_FAULT_FATAL,
};
/* -EINVAL: an unknown key or a bad value, logged. */
int sim_faults_parse(const char *device_name, struct sim_faults *ret_faults);

/* ---- Device. ---- */
/* A file of ours that peers may map: an arena. It is shared from the first memory region with
 * remote access, or window, in it until the last of them closes, and only with the peers of the
 * queue pairs that its key is good on. */
struct sim_backing {
	uint32_t refs;
	uint32_t pd, qpn; /* qpn 0: all of the domain */
	int fd;		  /* ours; without write permission unless writable */
	dev_t dev;
	ino_t ino;
	bool writable;
	uint64_t bytes;
	uint32_t generation; /* of this slot; outlives the file */
	uint32_t num;
};

/* A device that we are connected to, in our process or in another. The inode of its table
 * identifies it: a process without the file cannot forge that. Shared by all connections to the
 * device. */
struct sim_mapping {
	_Atomic(uint8_t *) base;
	uint64_t bytes;
	uint32_t backing; /* the newest number known of this slot */
	bool writable;
};
struct sim_peer {
	struct list link;
	uint32_t refs;
	dev_t dev;
	ino_t ino;
	pid_t pid; /* 0: not visible from here */
	int pidfd; /* or -1 */
	/* The memory that its process had at the greeting, whatever it executes later. -1: not
	 * accessible, so the peer must help. */
	int mem_fd;
	bool same_process;
	const struct sim_entry *table;
	struct sim_bell *bells;
	struct sim_mapping mappings[SIM_BACKINGS_MAX];
};

struct sim_cq;
struct sim_qp;
struct sim_device {
	struct rp_device base;
	struct sim_faults faults;
	char name[32];
	pthread_mutex_t lock;
	int table_fd, bell_fd;
	struct sim_entry *table;
	struct sim_bell *bells;
	uint32_t mr_count, mr_hint;
	uint32_t next_qpn, next_pd;
	uint32_t open_objects; /* pds, cqs, qps, listeners: must be 0 at close */
	uint64_t cqs_used[SIM_CQS_MAX / 64];
	struct sim_backing backings[SIM_BACKINGS_MAX];
	struct list peers, conns, listeners, events;
	struct list events_spare; /* memory for events to come */
	struct list joins;	  /* struct sim_qp.joining: those that wait for a call */
	struct rp_listener *join_listener;
	uint8_t gid[16];
	uint8_t witness[SIM_WITNESS_BYTES]; /* proof that our memory is ours: struct sim_packet */
	int epoll_fd, timer_fd, event_fd;
	bool timer_set;
	_Atomic bool failed; /* injected */
};

struct sim_pd {
	struct rp_pd base;
	struct sim_device *device;
	uint32_t num;
};

struct sim_ah {
	struct rp_ah base;
	struct sim_device *device;
	uint8_t gid[16]; /* of a device, or of a group */
};

struct sim_mr {
	struct rp_mr base;
	struct sim_pd *pd;
	struct sim_entry *entry;
	struct rp_mr_opts opts;
};

struct sim_mw {
	struct rp_mw base;
	struct sim_device *device;
	struct sim_entry *entry;
};

#endif
