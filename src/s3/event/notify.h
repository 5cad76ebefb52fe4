/* s3/event/notify.h: where events go: webhooks, by HTTP POST, and a log file, a line for each
 * event. Each target has a queue, bounded, and a thread of its own, so that one that does not
 * answer holds up neither requests nor others; an event that its target refuses steps aside, so
 * that it holds up none either. An event takes its place in the queue before the write that it
 * tells of, so that what is kept in the store is never more than the queues hold (event/outbox.c);
 * what was tried again may come twice. */
#ifndef S3_NOTIFY_H
#define S3_NOTIFY_H

#include "base/base.h"

#define S3_TARGETS_MAX		  16u
#define S3_TARGET_NAME_MAX	  64u
#define S3_TARGET_URL_MAX	  1024u
#define S3_TARGET_LOG		  "log" /* the name of the log file as a target */
#define S3_NOTIFY_EVENTS_DEFAULT  10000u
#define S3_NOTIFY_BYTES_DEFAULT	  (64 * MIB)
#define S3_NOTIFY_RETRY_S_DEFAULT 86400u

struct s3_notify;
struct s3_notify_opts {
	const char *targets;  /* "NAME=URL,NAME=URL"; NULL: none */
	const char *log_file; /* NULL or empty: none */
	/* Further events are dropped: per target; for all targets together, of which one target has
	 * at most as much as remains free. 0: the default. */
	uint32_t queue_events;
	uint64_t queue_bytes;
	/* Where events go that topics of clients ask for. */
	enum s3_notify_topics { S3_TOPICS_NOWHERE, S3_TOPICS_PUBLIC, S3_TOPICS_ANYWHERE } topics;
	uint32_t retry_s; /* how old an event may be when it is tried again; 0: the default */
};
/* -EINVAL: targets cannot be read (logged). */
int s3_notify_open(const struct s3_notify_opts *opts, struct s3_notify **ret_notify);
/* Gives what is queued a last moment; then what is kept waits for the next start, and the rest is
 * dropped. Blocks; more than once is harmless. */
void s3_notify_stop(struct s3_notify *notify);
/* Stops, and frees. Takes NULL. */
void s3_notify_close(struct s3_notify *notify);
bool s3_notify_has(const struct s3_notify *notify, struct slice target);
bool s3_notify_takes_topics(const struct s3_notify *notify);

/* A target of the configuration; or, with a URL, an endpoint that a client named. S3_TOPICS_PUBLIC:
 * only at addresses that are of no private, local or reserved network, whatever its name stands for
 * when it is sent. The maximum number of topics with waiting events. */
#define S3_NOTIFY_TOPICS_ACTIVE_MAX 64u
struct s3_notify_endpoint {
	struct slice name; /* of a topic: one and the same, whatever its URL */
	struct slice url;
	bool any_certificate;
};
/* An event's place in a queue: reserved → queued or cancelled. Any thread; none of these waits for
 * a target. */
struct s3_notice;
/* -ENOENT: no such target, or nothing is sent to endpoints of clients; -ENOBUFS: the queue, or all
 * of them, are full; -EBUSY: too many endpoints have events; -ENOMEM. */
int s3_notify_reserve(struct s3_notify *notify, const struct s3_notify_endpoint *endpoint,
	size_t bytes, struct s3_notice **ret_notice);
/* Text of no more than was reserved, which is copied. number: queued behind those with lower ones;
 * 0: behind all. kept: it is told of by s3_notify_take_done. */
void s3_notify_queue(struct s3_notice *notice, struct slice text, uint64_t number, bool kept);
void s3_notify_cancel(struct s3_notice *notice); /* takes NULL */
/* Counts and logs an event that is given up for what reserve said. */
void s3_notify_refused(
	struct s3_notify *notify, const struct s3_notify_endpoint *endpoint, int error);
/* Numbers of kept events that were sent or given up, each once. */
uint32_t s3_notify_take_done(struct s3_notify *notify, uint64_t *numbers, uint32_t max);
/* Calls fn on any thread, under a lock, whenever a place in a queue was left; NULL: no more. */
void s3_notify_on_room(struct s3_notify *notify, void (*fn)(void *arg), void *arg);
/* A topic has another endpoint now: what waits goes there, at once. Without a URL it is gone, and
 * what waits is given up. */
void s3_notify_move(struct s3_notify *notify, const struct s3_notify_endpoint *endpoint);

#endif
