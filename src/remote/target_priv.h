/* remote/target_priv.h: shared by the files of the target. */
#ifndef REMOTE_TARGET_PRIV_H
#define REMOTE_TARGET_PRIV_H

#include "remote/remote_priv.h"

/* One server with a lane of each event loop, and one more, to each volume. */
#define TARGET_LANES_MAX (REMOTE_VOLUMES_MAX * (LIMIT_CORES_MAX + 1u))
/* The part of the memory that their capsules may take: the rest is for data. */
#define TARGET_LANES_PART 4u
#define TARGET_LANES_MIN  256u /* with however little memory */
/* This part of the lanes is for connections that have not proven the secret. */
#define TARGET_UNPROVEN_PART 4u
#define TARGET_RECVS	     (REMOTE_DEPTH + REMOTE_SPARE_RECVS)
/* A command may arrive before the send of the answer that granted its credit has completed. */
#define TARGET_SLOTS (2u * REMOTE_DEPTH)
#define TARGET_SENDS (TARGET_SLOTS + 2u)
/* For each queue pair: the data and the answer of each command, and the messages of set-up. */
#define TARGET_SEND_WRS (2u * TARGET_SLOTS + 4u)
/* When a lane ends, everything that it posted goes into the completion queue at once. */
#define TARGET_LANE_CQES (TARGET_SEND_WRS + TARGET_RECVS)
_Static_assert(TARGET_LANES_MAX <= UINT16_MAX, "in an id of work");

#define REMOTE_EPOCH_PATH 4200u

struct target_volume {
	struct remote_target *target;
	struct remote_export export;
	char name[WIRE_NAME_MAX + 1];
	uint8_t holder[WIRE_HOLDER_BYTES]; /* of the lanes that write */
	uint32_t writers;
	char epoch_path[REMOTE_EPOCH_PATH]; /* empty: none */
	uint64_t epoch;			    /* of the last owner that was heard of */
	uint64_t kept;			    /* of the last one in the file */
	bool keeping;			    /* a fiber writes the file */
};

struct remote_target {
	struct remote_target_opts opts;
	char secret[REMOTE_SECRET_BYTES];
	struct rp_port *port;
	struct rp_listener *listener;
	struct target_volume volumes[REMOTE_VOLUMES_MAX];
	struct target_lane *lanes[TARGET_LANES_MAX];
	/* As many as the memory, and the completion queue, hold. */
	uint32_t lane_count, lanes_max;
	struct list starved; /* slots that want frames */
	struct reactor_timer tick;
	uint32_t keepers; /* fibers that write a file */
	struct fiber *drainer;
};

/*	HELLO → PROOF → (FENCING →) OPEN, or REFUSED; from each → FAILED */
enum target_state {
	TARGET_HELLO, /* is awaited */
	TARGET_PROOF,
	TARGET_FENCING, /* earlier owners' work must end, and the epoch be stored, first */
	TARGET_OPEN,
	TARGET_REFUSED, /* the refusal is being sent */
	TARGET_FAILED,
};

/* A command under way. */
struct target_slot {
	struct target_lane *lane;
	uint32_t n;
	struct wire_command command;
	struct region_span span; /* data NULL: none */
	struct disk_io io;
	struct iovec iov;
	int error;
	struct list starved;
	bool busy;
	bool working; /* the volume or a helper works on it */
};

/* A connection. */
struct target_lane {
	struct remote_target *target;
	struct target_volume *volume;
	uint32_t idx;
	uint16_t life;
	enum target_state state;
	struct rp_qp *qp;
	char peer[64];
	struct capsules capsules;
	struct wire_hello hello;
	struct wire_challenge challenge;
	struct wire_keys keys;
	uint64_t counter_out, counter_in;
	struct target_volume *wanted; /* while FENCING */
	bool writes;		      /* holds the volume */
	uint32_t answering;	      /* commands without an answer */
	uint32_t working;
	uint64_t heard_ns; /* until the lane is open: when it was accepted */
	struct reactor_timer timer;
	struct target_slot slots[TARGET_SLOTS];
};

/* target.c */
void target_lane_fail(struct target_lane *lane, const char *why);
void target_setup_heard(
	struct target_lane *lane, const union wire_capsule *capsule, uint32_t bytes);
/* Ends a failed lane that has no operation in progress any more. */
void target_lane_settle(struct target_lane *lane);
int target_recv_post(struct target_lane *lane, uint32_t n);

void target_refuse(struct target_lane *lane, enum wire_reason reason);
/* The epochs allow it. */
void target_enter(struct target_lane *lane, struct target_volume *volume);

/* target_epoch.c */
/* Reads the file of a volume's last epoch. -EUCLEAN and errors of open(2); the log says why. */
int target_epoch_load(struct target_volume *volume);
/* The lane has proven the secret: enters or refuses it, now or when its epoch is stored. */
void target_admit(struct target_lane *lane, struct target_volume *volume);
/* A lane of the volume has ended. */
void target_fence_advance(struct target_volume *volume);

/* target_dp.c */
void target_wc(void *arg, const struct rp_wc *wc);
/* The queue pair is closed: frees the slots that no volume is working on. */
void target_slots_drop(struct target_lane *lane);
void target_starved_serve(struct remote_target *target);

#endif
