/* flow/fan_out_priv.h: interface between the files of groups: fan_out.c, their start and their
 * waits; fan_cast.c, their multicast. */
#ifndef FLOW_FAN_OUT_PRIV_H
#define FLOW_FAN_OUT_PRIV_H

#include <pthread.h>

#include "flow/fan_out.h"
#include "rdma/datagram.h"

#define FAN_LOOK_NS (250 * NS_PER_MS) /* how often a waiting read looks whether its client left */
/* A group is over after so many patiences without a read, or when after one patience a newcomer
 * begins at the start: the same job, started again. Readers that read piecewise say no goodbye.
 * A part of a multicast waits as many for those before it. */
#define FAN_SILENT_MAX 30u

#define CAST_BATCH 8u /* datagrams in flight; networks keep as few for a slow receiver */

/* The multicast of a group. Opening → on → off; the member is used by the fiber that opens it, then
 * by the one that sends. */
struct fan_cast {
	struct list link; /* of the dead */
	const struct flow_cast_opts *opts;
	uint32_t address; /* its number */
	struct rp_member member;
	struct cast_grant grant;
	struct aead *aead;
	bool opening, sending;
	const char *off;		  /* why there is none (any more); NULL: it is on */
	uint64_t sent;			  /* all before this went out, */
	uint64_t sent_ns;		  /* the last of it then; 0: nothing yet */
	const struct fan_member *lagging; /* one that had not asked for the next part; or NULL */
	uint64_t blocked_ns;		  /* since when the next part waits for such; 0: not */
	uint64_t waited_ns;		  /* in all, before that */
	uint64_t rate, due_ns;		  /* the pace: bytes a second; when the next batch may go */
	uint64_t slowed_at;		  /* what was sent when it was last slowed down */
	uint32_t flying;		  /* sends without a completion */
};

struct flow_fans {
	pthread_mutex_t lock; /* of everything below, and of all groups */
	struct flow_fans_opts opts;
	struct list groups;
	uint32_t group_count;
	uint32_t gathering; /* requests that wait for a start; and of each principal: */
	uint16_t gathering_of[FLOW_SHARES];
	uint32_t casts;	  /* multicast addresses in use, a bit each */
	struct list dead; /* multicasts of groups that are over, to be closed without the lock */
	bool stopped;
};

struct fan_member {
	struct list link;
	uint64_t number;
	uint64_t reached; /* of the object: what its reads have delivered, or began with */
	uint64_t moved_ns;
	uint32_t reads; /* open */
	bool counts;	/* others wait for it */
	bool slow;
	bool casts;	/* the multicast waits for it */
	uint64_t asked; /* it has receives posted for all before this */
};

struct fan_group {
	struct list link;
	struct slice object, name; /* in texts */
	uint64_t object_bytes;
	uint32_t count; /* of members that it waits for */
	uint32_t member_count;
	uint32_t reads; /* open */
	uint16_t share; /* whose first member made it */
	bool running;
	uint64_t start_by_ns, start_ns, idle_ns;
	uint64_t floor;	    /* UINT64_MAX: nobody counts */
	uint64_t top;	    /* where the fastest was */
	uint64_t stood_ns;  /* since when the floor stands while somebody waits */
	uint64_t wait_ns;   /* since when somebody waits */
	uint64_t waited_ns; /* in all, before that */
	uint32_t pacing;    /* reads that wait for the floor */
	struct list members;
	struct list waiters;
	struct fan_cast *cast; /* NULL: nobody asked for multicast */
	char texts[];
};

/* ---- fan_out.c; all under the lock, which those that wait give up meanwhile. ---- */
/* The member of the read, which becomes one when it begins at the start. */
enum flow_fan_role fan_join(struct flow_fans *fans, const struct flow_fan_ask *ask, uint64_t now_ns,
	struct flow_fan_read *read);
/* Waits for the start. False: the client has left. */
bool fan_gather(struct flow_fans *fans, const struct flow_fan_ask *ask, struct fan_group *group);
bool fan_client_left(struct flow_fans *fans, const struct flow_fan_ask *ask);
/* Waits until that time, or until somebody wakes the reads of the group. */
void fan_wait(struct flow_fans *fans, struct fan_group *group, uint64_t offset, uint64_t until_ns);
/* Wakes those that need not wait for the floor any more. */
void fan_wake(struct flow_fans *fans, struct fan_group *group);
/* Ends the read. all: every byte was delivered; otherwise the member leaves the group. */
void fan_leave(struct flow_fans *fans, struct flow_fan_read *read, bool all);
void fan_groups_tidy(struct flow_fans *fans, uint64_t now_ns);

/* ---- fan_cast.c ---- */
/* The group is over: its multicast goes to the dead. Under the lock. */
void fan_cast_drop(struct flow_fans *fans, struct fan_group *group);
/* The multicast waits for the member no more. Under the lock. */
void fan_cast_leave(struct flow_fans *fans, struct fan_group *group, struct fan_member *member);
/* Closes all dead. */
void fan_casts_close(struct flow_fans *fans);
/* Closes the dead, on a helper thread. Fiber call, without the lock. */
void fan_casts_bury(struct flow_fans *fans);

/* ---- fan_cast_dp.c ---- */
/* Moves the source's bytes, which begin at the offset of the object, to the group. Closes the
 * source. */
int fan_cast_run(struct fan_cast *cast, struct flow_source *source, uint64_t offset, uint64_t end);

#endif
