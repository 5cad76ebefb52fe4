/* flow/fan_out.h: many reads of one object in step: the members of a group begin together, and none
 * is further ahead of the slowest than a window, so that the store reads each chunk once for all of
 * them (docs/design/fan-out.md).
 *
 * A group is the requests with one object and one name. Each is a transfer of its own, with its own
 * rights, frames and fiber; the group only makes the fast ones wait, for a bounded time. */
#ifndef FLOW_FAN_OUT_H
#define FLOW_FAN_OUT_H

#include "codec/cast.h"
#include "flow/flow.h"

#define FLOW_FAN_WINDOW_BYTES (32 * MIB)
#define FLOW_FAN_PATIENCE_NS  (5 * NS_PER_S)
#define FLOW_FAN_GROUPS_MAX   64u
#define FLOW_FAN_MEMBERS_MAX  1024u /* of a group */
#define FLOW_FAN_WAITS_MAX    2048u /* requests that wait for a start, each with a fiber */
#define FLOW_FAN_NAME_MAX     64u

#define FLOW_CAST_GROUPS_MAX \
	8u /* at a time, each with an address of its own; of one principal half */
#define FLOW_CAST_RATE_MIN (4 * MIB)

/* Multicast: for groups whose members ask for it. */
struct flow_cast_opts {
	struct rp_open_opts device; /* the strings live as long as the groups */
	const char *group;	    /* IPv4: the first of FLOW_CAST_GROUPS_MAX addresses in a row */
	uint64_t rate; /* bytes a second of one group, at most; FLOW_CAST_RATE_MIN and more */
};

struct flow_fans;
struct flow_fans_opts {
	struct flow_cast_opts cast; /* group "" or NULL: none */
	uint64_t window_bytes;	    /* how far the fastest may be ahead of the slowest */
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
	uint16_t share; /* of the principal: it may have half of the groups, and of the waits */
	bool casts;	/* it asks for multicast, and has a number */
	uint64_t bytes; /* of the part that it asks for */
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
	uint64_t end;	  /* of the part, by multicast */
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

/* ---- Multicast: the bytes go out once, for all members that ask for it. ----
 *
 * A member enters the group, which gives it an address and a key; it joins, posts receives, and
 * asks for part after part, several at a time. A part goes out when all members that were there at
 * the start, or have caught up, have asked for it; one of them is told to send it. The answer to a
 * question comes when the part has been sent, so a member then knows what it missed and reads that
 * by itself. */

/* Makes the read's member of the group, and the multicast with the first one. FLOW_FAN_MEMBER: with
 * *ret_why NULL, and the grant; or with the reason why there is no multicast, and then it is a
 * member as any other. Fiber call. */
enum flow_fan_role flow_cast_enter(struct flow_fans *fans, const struct flow_fan_ask *ask,
	struct cast_grant *ret_grant, const char **ret_why);

enum flow_cast_part {
	FLOW_CAST_SEND, /* the caller is to send it */
	FLOW_CAST_SENT, /* while this read waited */
	FLOW_CAST_PAST, /* before */
	/* no multicast (any more), no part, or nobody asks for those before it */
	FLOW_CAST_OFF,
};
/* Waits until the part that begins at the read's offset was sent, or is to be sent. lost: how many
 * datagrams the member missed since it asked last. Then flow_fan_end, if FLOW_FAN_MEMBER. Fiber
 * call. */
enum flow_fan_role flow_cast_ask(struct flow_fans *fans, const struct flow_fan_ask *ask,
	uint64_t lost, struct flow_fan_read *ret_read, enum flow_cast_part *ret_part);
/* After FLOW_CAST_SEND: moves the source's bytes, which are the part's, to the group. 0 or -errno:
 * the multicast is then over. Closes the source. Fiber call. */
int flow_cast_send(struct flow_fan_read *read, struct flow_source *source);
/* After FLOW_CAST_SEND, when there is no source for that reason: the multicast is over. */
void flow_cast_fail(struct flow_fan_read *read, int error);

#endif
