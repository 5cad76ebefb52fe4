/* s3/event/notify.h: delivers events: to webhooks, by HTTP POST, and to a log file, one line per
 * event. Each target has a bounded queue and a thread of its own, so that a target that does not
 * answer delays neither requests nor other targets. An event that its target refuses is set aside,
 * so that it does not delay other events. An event takes its place in the queue before its write
 * commits, so that the store never keeps more events than the queues hold (event/outbox.c). An
 * event that was retried may arrive twice. */
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
	/* Limits: further events are dropped. Per target, and for all targets together; a target of
	 * the configuration, or all topics of an account, may have at most as much as remains free,
	 * and a topic at most as much as its account may then still have. If there are targets of
	 * the configuration, all topics together have at most half. 0: the default. */
	uint32_t queue_events;
	uint64_t queue_bytes;
	/* The endpoints that clients' topics may have. */
	enum s3_notify_topics { S3_TOPICS_NOWHERE, S3_TOPICS_PUBLIC, S3_TOPICS_ANYWHERE } topics;
	uint32_t retry_s; /* maximum age of an event for another try; 0: the default */
};
/* -EINVAL: the targets are invalid (logged). */
int s3_notify_open(const struct s3_notify_opts *opts, struct s3_notify **ret_notify);
/* Gives queued events a last moment. After that, stored events wait for the next start, and the
 * others are dropped. Blocks; may be called more than once. */
void s3_notify_stop(struct s3_notify *notify);
/* Stops, and frees. Takes NULL. */
void s3_notify_close(struct s3_notify *notify);
bool s3_notify_has(const struct s3_notify *notify, struct slice target);
bool s3_notify_takes_topics(const struct s3_notify *notify);

/* A target of the configuration; or, with a URL, an endpoint that a client named. S3_TOPICS_PUBLIC:
 * sends only to addresses outside private, local and reserved networks; the address is checked
 * after the name is resolved, at each send. The maximum number of topics with waiting events, of
 * which an account gets one more only while it has no more than are left. */
#define S3_NOTIFY_TOPICS_ACTIVE_MAX 64u
struct s3_notify_endpoint {
	struct slice name; /* of a topic: "ACCOUNT:NAME"; identifies it, whatever its URL */
	struct slice url;
	bool any_certificate;
};
/* An event's place in a queue: reserved → queued or cancelled. Any thread; none of these calls
 * waits for a target. */
struct s3_notice;
/* -ENOENT: no such target, or sending to clients' endpoints is disabled; -ENOBUFS: the queue, or
 * all queues together, are full; -EBUSY: too many endpoints, or too many of the account, have
 * events; -ENOMEM.
 */
int s3_notify_reserve(struct s3_notify *notify, const struct s3_notify_endpoint *endpoint,
	size_t bytes, struct s3_notice **ret_notice);
/* Queues a copy of the text, which is not longer than reserved. number: queued after lower numbers;
 * 0: after all. kept: s3_notify_take_done reports it. */
void s3_notify_queue(struct s3_notice *notice, struct slice text, uint64_t number, bool kept);
void s3_notify_cancel(struct s3_notice *notice); /* takes NULL */
/* Counts and logs an event that is given up because of the error of reserve. */
void s3_notify_refused(
	struct s3_notify *notify, const struct s3_notify_endpoint *endpoint, int error);
/* Numbers of stored events that were sent or given up, each once. */
uint32_t s3_notify_take_done(struct s3_notify *notify, uint64_t *numbers, uint32_t max);
/* Registers fn to be called on any thread, under a lock, whenever a place in a queue becomes free;
 * NULL: no more calls. */
void s3_notify_on_room(struct s3_notify *notify, void (*fn)(void *arg), void *arg);
/* A topic has another endpoint: waiting events go there at once. Without a URL the topic was
 * deleted, and waiting events are given up. */
void s3_notify_move(struct s3_notify *notify, const struct s3_notify_endpoint *endpoint);

#endif
