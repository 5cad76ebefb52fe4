/* remote/remote_priv.h: shared by the files of remote. */
#ifndef REMOTE_REMOTE_PRIV_H
#define REMOTE_REMOTE_PRIV_H

#include "disk/disk.h"
#include "rdma/port.h"
#include "remote/remote.h"
#include "remote/wire.h"

#include <pthread.h>
#include <semaphore.h>

#define REMOTE_DEPTH	      32u
#define REMOTE_SPARE_RECVS    4u
#define REMOTE_SETUP_NS	      (3 * NS_PER_S)
#define REMOTE_COMMAND_NS     (10 * NS_PER_S)
#define REMOTE_SLOW_NS	      (120 * NS_PER_S) /* growing, deallocating, zeroing */
#define REMOTE_IDLE_NS	      (3 * NS_PER_S)  /* after this the initiator sends a keep-alive word */
#define REMOTE_SILENCE_NS     (15 * NS_PER_S) /* after this the target closes */
#define REMOTE_TICK_NS	      (500 * NS_PER_MS)
#define REMOTE_BACKOFF_NS     (50 * NS_PER_MS)
#define REMOTE_BACKOFF_MAX_NS (5 * NS_PER_S)
#define REMOTE_LANES_MAX      128u /* of one reactor */
/* Frames of a reactor for a copy when the region has none free. */
#define REMOTE_SPARE_FRAMES 16u
/* Of a lane: each command and a word of set-up, and one more. */
#define REMOTE_SENDS	(REMOTE_DEPTH + 1u)
#define REMOTE_SEND_WRS (REMOTE_SENDS + 1u)
#define REMOTE_RECVS	(REMOTE_DEPTH + REMOTE_SPARE_RECVS)
/* When a lane ends, everything that it posted goes into the completion queue at once. */
#define REMOTE_LANE_CQES (REMOTE_SEND_WRS + REMOTE_RECVS)
#define REMOTE_CQES	 (REMOTE_LANES_MAX * REMOTE_LANE_CQES)

/* The data that both ends send when they connect. */
struct remote_private {
	uint32_t magic;
	uint16_t version;
	uint16_t reserved;
};
_Static_assert(sizeof(struct remote_private) == 8, "as specified");

/* Ids of a lane's work requests: the lane, and which of its lives. Bit 63 belongs to the rings. */
enum remote_work { WORK_SEND, WORK_RECV, WORK_READ };
static inline uint64_t work_id(uint32_t lane, uint16_t life, enum remote_work work, uint32_t n)
{
	return (uint64_t)life << 40 | (uint64_t)lane << 24 | (uint64_t)work << 16 | n;
}
static inline uint32_t work_lane(uint64_t id)
{
	return id >> 24 & 0xffff;
}
static inline uint16_t work_life(uint64_t id)
{
	return (uint16_t)(id >> 40);
}
static inline enum remote_work work_kind(uint64_t id)
{
	return (enum remote_work)(id >> 16 & 0xff);
}
static inline uint32_t work_n(uint64_t id)
{
	return id & 0xffff;
}

/* capsules.c: the memory of a lane's capsules, at either end. */
struct capsules {
	struct region_span span; /* data NULL: none */
	union wire_capsule *sends, *recvs;
	uint32_t lkey;
};
/* counts: sends, receives. */
int capsules_open(struct region *region, struct rp_port *port, const uint32_t counts[2],
	struct capsules *ret_capsules);
void capsules_close(struct region *region, struct capsules *capsules);
/* Post the capsule of the id's number, sends signalled. */
int capsules_recv_post(const struct capsules *capsules, struct rp_qp *qp, uint64_t id);
int capsules_send_post(const struct capsules *capsules, struct rp_qp *qp, uint64_t id);

struct remote {
	struct remote_opts opts;
	char secret[REMOTE_SECRET_BYTES];
	char device_name[64];
	uint8_t holder[WIRE_HOLDER_BYTES];
	struct disk_driver driver;
	/* For blocking calls: our own reactor, on its own thread. */
	pthread_mutex_t lock;
	bool started;
	pthread_t thread;
	struct reactor *reactor;
	struct region *region;
	struct remote_port *ports[LIMIT_CORES_MAX + 1]; /* by lane number */
};

/* The device, as one reactor has it open for all volumes. */
struct remote_port {
	struct remote *remote;
	struct reactor *reactor;
	struct region *region;
	struct rp_port *port;
	uint32_t number;
	struct remote_lane *lanes[REMOTE_LANES_MAX];
	uint32_t lane_count, lanes_max; /* as many as the completion queue holds */
	struct region_span spare;
	bool spare_used;
	struct reactor_timer tick;
};

/*	WAITING → CONNECTING → HELLO → PROOF → OPEN; from each → FAILED → WAITING */
enum lane_state {
	LANE_WAITING,
	LANE_CONNECTING,
	LANE_HELLO, /* sent, a challenge is awaited */
	LANE_PROOF, /* sent, a welcome is awaited */
	LANE_OPEN,
	LANE_FAILED,
};

struct remote_slot {
	struct disk_io *io; /* NULL: a keep-alive word */
	uint64_t deadline_ns;
	uint8_t *data; /* the caller's */
	uint32_t bytes;
	uint8_t op;		   /* enum wire_op */
	struct region_span bounce; /* data NULL: the caller's memory is the region's */
	bool sent, answered;	   /* a slot is free when both are set again */
	bool busy;
};

/* One volume on one reactor: a queue pair. */
struct remote_lane {
	struct remote_volume *volume;
	struct remote_port *port;
	uint32_t idx;
	uint16_t life;
	enum lane_state state;
	struct rp_qp *qp;
	struct capsules capsules; /* sends: depth and one for set-up */
	struct wire_hello hello;
	struct wire_keys keys;
	uint64_t counter_out, counter_in;
	uint32_t depth, in_flight;
	struct remote_slot slots[REMOTE_DEPTH];
	struct disk_io *first, *last; /* not issued entirely yet */
	struct reactor_timer timer;   /* the end of the state's wait */
	uint64_t since_ns, said_ns;
	uint64_t backoff_ns;
	int error;  /* why the last life ended */
	bool quiet; /* it was logged */
};

struct remote_volume {
	struct remote *remote;
	char path[300];
	char host[200];
	char name[WIRE_NAME_MAX + 1];
	uint16_t port;
	bool read_only;
	bool quiet; /* do not log that it cannot be reached */
	_Atomic bool gone;
	_Atomic uint32_t lanes_open, lanes_all;
	struct remote_lane *lanes[LIMIT_CORES_MAX + 1];
	pthread_mutex_t lock;
	pthread_cond_t changed; /* of lane 0 */
	/* Under the lock. */
	uint32_t tries;
	int try_error;
	struct wire_identity identity;
};

/* A blocking call, on its way to our reactor. */
struct remote_call {
	struct reactor_msg msg;
	struct remote_volume *volume;
	struct disk_io io;
	struct iovec iov;
	uint8_t op; /* enum wire_op */
	int32_t result;
	sem_t done;
};
void remote_call_done(struct disk_io *io, int32_t result);

/* initiator.c */
int remote_lane_add(struct remote_port *port, struct remote_volume *volume);
/* On its reactor, or after that has stopped; no operation of a user may be in progress. */
void remote_lane_remove(struct remote_lane *lane);
void remote_lane_fail(struct remote_lane *lane, int error, const char *why);
void remote_setup_heard(
	struct remote_lane *lane, const union wire_capsule *capsule, uint32_t bytes);
int remote_recv_post(struct remote_lane *lane, uint32_t n);
int remote_send(struct remote_lane *lane, uint32_t n);
void remote_event(void *arg, struct rp_cm_event *event);

/* initiator_dp.c */
void remote_start(struct remote_lane *lane, struct disk_io *io);
void remote_pump(struct remote_lane *lane);
/* Sends a command without data that nobody waits for, to check that the target answers. */
void remote_word(struct remote_lane *lane);
void remote_wc(void *arg, const struct rp_wc *wc);
/* Completes all operations of a lane with -ENOTCONN; its queue pair is closed. */
void remote_drop(struct remote_lane *lane);

/* volume.c: a lane reports to its volume. */
void remote_volume_opened(struct remote_lane *lane, const struct wire_identity *identity);
/* Rare: takes the volume's lock. */
void remote_volume_grown(struct remote_volume *volume, const struct wire_response *response);
/* was_open: operations may have been lost. */
void remote_volume_lost(struct remote_lane *lane, bool was_open);

#endif
