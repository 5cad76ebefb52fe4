/* flow/fan_out.h: many reads of one object in step: the members of a group begin together, and none
 * is further ahead of the slowest than a window, so that the store reads each chunk once for all of
 * them (docs/design/fan-out.md).
 *
 * A group is the requests with one object and one name. Each is a transfer of its own, with its own
 * rights, frames and fiber; the group only makes the fast ones wait, for a bounded time. */
#ifndef FLOW_FAN_OUT_H
#define FLOW_FAN_OUT_H

#include "flow/flow.h"

#define FLOW_FAN_WINDOW_BYTES (32 * MIB)
#define FLOW_FAN_PATIENCE_NS  (5 * NS_PER_S)
#define FLOW_FAN_GROUPS_MAX   64u
#define FLOW_FAN_MEMBERS_MAX  1024u /* of a group; and requests of all groups that wait to begin */
#define FLOW_FAN_NAME_MAX     64u

struct flow_fans;
struct flow_fans_opts {
	uint64_t window_bytes; /* how far the fastest may be ahead of the slowest */
	/* How long the others wait for a member that does not move. In all, they wait no longer
	 * than this and a quarter of the time since the group began. */
	uint64_t patience_ns;
};
/* -ENOMEM. */
int flow_fans_open(const struct flow_fans_opts *opts, struct flow_fans **ret_fans);
/* Takes NULL. CHECKs that no read is open. */
void flow_fans_close(struct flow_fans *fans);
/* From now on no read waits for others. Any thread. */
void flow_fans_stop(struct flow_fans *fans);

/* A read that asks to be of a group. */
struct flow_fan_ask {
	struct slice object; /* names the bytes: another version has another text */
	struct slice name;
	uint64_t object_bytes;
	uint64_t offset;  /* of the first byte that is read */
	uint64_t member;  /* number of the reader, which may read piecewise; 0: it sends one
			     request */
	uint32_t count;	  /* of members that the group waits for */
	uint64_t wait_ns; /* how long it waits for the others, at most */
	bool (*left)(const void *arg); /* whether nobody waits for the bytes any more, or NULL */
	const void *arg;
	uint16_t share; /* of the principal: it may have half of the groups */
};
enum flow_fan_role {
	FLOW_FAN_MEMBER,
	FLOW_FAN_SMALL, /* the object has at most a window */
	FLOW_FAN_LATE,	/* the group is further than a window */
	FLOW_FAN_SLOW,	/* it was a member, and the others would have waited for it too long */
	FLOW_FAN_APART, /* it begins neither at the start nor near where its member is */
	FLOW_FAN_FULL	/* too many groups, members or waiting requests; or no memory */
};
/* In the caller's memory, from begin to end. */
struct flow_fan_read {
	struct flow_source source;
	struct flow_source *inner;
	struct flow_fans *fans;
	struct fan_group *group; /* NULL: alone */
	struct fan_member *member;
	uint64_t offset;  /* of the next piece, in the object */
	uint32_t members; /* of the group, when this read began */
};
/* Waits until the group begins. Only a member's read is in step; the others are served alone, and
 * need no end. Fiber call. */
enum flow_fan_role flow_fan_begin(
	struct flow_fans *fans, const struct flow_fan_ask *ask, struct flow_fan_read *ret_read);
/* Returns the member's source, which reads inner in step and closes it. */
struct flow_source *flow_fan_source(struct flow_fan_read *read, struct flow_source *inner);
/* all: every byte was delivered; otherwise the member leaves the group. */
void flow_fan_end(struct flow_fan_read *read, bool all);

#endif
