/* tests/unit/rdma/suite.h: the provider suite: the same tests over every RDMA provider. A small
 * main per provider names the device, the address, and the provider's abilities. */
#ifndef TESTS_RDMA_SUITE_H
#define TESTS_RDMA_SUITE_H

#include "tests/unit/unit.h"

#include <sys/types.h>

#include "rdma/rdma.h"

struct suite {
	const char *provider;
	const char *device_name;
	const char *address; /* to listen on and to connect to */
	int gid_index;
	/* The kernel's soft-RoCE device follows the verbs less exactly than cards: it refuses a
	 * misaligned atomic when it is posted, may report an error of local memory as a general
	 * error, and its queues accept more than they grant. */
	bool soft_roce;
};
extern const struct suite *suite;

/* Every wait in the suite ends after this: a lost wakeup fails, it does not hang. */
#define SUITE_DEADLINE_NS (60 * NS_PER_S)

/* ---- One end: a device with one completion queue and one queue pair. ---- */
struct end {
	struct rp_device *device;
	struct rp_pd *pd;
	struct rp_cq *cq;
	struct rp_qp *qp;
	struct rp_mr *mr;
	uint8_t *mem;
	uint64_t mem_bytes;
	int mem_fd;
};
struct end_opts {
	const char *device_name; /* NULL: the suite's */
	uint32_t path_mtu;	 /* of the device; 0: the port's */
	uint32_t cqe_count;	 /* 0: 1024 */
	struct rp_qp_attr attr;	 /* queues and type are filled in */
	uint64_t mem_bytes;	 /* 0: 1 MiB */
	bool mem_anonymous;	 /* plain memory instead of a sealed memfd */
	uint32_t mem_access;	 /* 0: everything */
	struct rp_device *share; /* take this device instead of opening one */
};
#define ACCESS_ALL                                                                \
	(RP_ACCESS_LOCAL_WRITE | RP_ACCESS_REMOTE_WRITE | RP_ACCESS_REMOTE_READ | \
		RP_ACCESS_REMOTE_ATOMIC)

void end_open(struct end *end, const struct end_opts *opts);
void end_close(struct end *end);
void end_new_qp(struct end *end, const struct end_opts *opts);

/* ---- Two ends, connected within this process. ---- */
struct pair {
	struct end a, b; /* a connected, b accepted */
	struct rp_listener *listener;
};
void pair_open(struct pair *pair, const struct end_opts *a, const struct end_opts *b);
void pair_close(struct pair *pair);

/* ---- Waiting. ---- */
/* Takes exactly one event of this type; any other fails the test. */
void cm_expect(struct rp_device *device, enum rp_cm_type type, struct rp_cm_event *ret_event);
/* The next completion of end; other, when not NULL, is polled, too, so that it makes progress; it
 * must complete nothing. */
struct rp_wc wc_next(struct end *end, struct end *other);
/* The next completion, which must have this id and status. */
struct rp_wc wc_expect(struct end *end, struct end *other, uint64_t wr_id, enum rp_status status);
/* The same for an operation that local memory does not allow. */
void wc_expect_local(struct end *end, struct end *other, uint64_t wr_id, enum rp_status status);
/* A misaligned atomic of this id is refused. */
void atomic_refused(struct end *end, struct end *other, struct rp_send_wr wr);
/* Checks that nothing completes at either end during some thousand polls. */
void wc_expect_none(struct end *end, struct end *other);

/* ---- Posting. ---- */
struct rp_sge sge_at(const struct end *end, uint64_t offset, uint32_t length);
int post_send_sge(struct end *end, struct rp_send_wr wr, struct rp_sge sge);
int post_recv_at(struct end *end, uint64_t wr_id, uint64_t offset, uint32_t length);
/* A signalled one-sided operation on to's memory. */
struct rp_send_wr one_sided(
	enum rp_opcode opcode, uint64_t wr_id, const struct end *to, uint64_t offset);

/* ---- A second process: an end that serves until its peer is gone. ---- */
struct remote {
	pid_t pid;
	uint16_t port;
	struct rp_conn_request *unused;
	/* From its private data. */
	uint64_t addr;
	uint32_t rkey;
	uint64_t bytes;
};
enum remote_job {
	REMOTE_ECHO,  /* sends back each message */
	REMOTE_SLEEP, /* the same, but sleeps in poll(2) on an armed completion queue */
	REMOTE_STILL, /* serves its connection, posts no receives */
};
struct remote_opts {
	enum remote_job job;
	struct end_opts end;
	uint32_t qp_count; /* 0: 1 */
};
void remote_start(struct remote *remote, const struct remote_opts *opts);
/* Connects end's queue pair to it. */
void remote_connect(struct remote *remote, struct end *end);
/* Waits for its exit, which must be clean. */
void remote_join(struct remote *remote);
void remote_kill(struct remote *remote);

extern const struct CMUnitTest suite_conn_tests[], suite_data_tests[], suite_remote_tests[],
	suite_target_tests[], suite_unreliable_tests[], suite_window_tests[];
extern const size_t suite_conn_count, suite_data_count, suite_remote_count, suite_target_count,
	suite_unreliable_count, suite_window_count;

#endif
