/* s3/notify.h: where events go: webhooks, by HTTP POST, and a log file, a line for each event. Each
 * target has a queue in memory, bounded, and a thread of its own, so that one that does not answer
 * holds up neither requests nor others. What is queued when the server dies is lost; what was tried
 * again may come twice. */
#ifndef S3_NOTIFY_H
#define S3_NOTIFY_H

#include "base/base.h"

#define S3_TARGETS_MAX		  16u
#define S3_TARGET_NAME_MAX	  64u
#define S3_TARGET_URL_MAX	  1024u
#define S3_TARGET_LOG		  "log" /* the name of the log file as a target */
#define S3_NOTIFY_EVENTS_DEFAULT  10000u
#define S3_NOTIFY_RETRY_S_DEFAULT 300u

struct s3_notify;
struct s3_notify_opts {
	const char *targets;   /* "NAME=URL,NAME=URL"; NULL: none */
	const char *log_file;  /* NULL or empty: none */
	uint32_t queue_events; /* of each target; 0: the default. What comes beyond is dropped. */
	/* Where events go that topics of clients ask for. */
	enum s3_notify_topics { S3_TOPICS_NOWHERE, S3_TOPICS_PUBLIC, S3_TOPICS_ANYWHERE } topics;
	uint32_t retry_s; /* how old an event may be when it is tried again; 0: the default */
};
/* -EINVAL: targets cannot be read (logged). */
int s3_notify_open(const struct s3_notify_opts *opts, struct s3_notify **ret_notify);
/* Gives what is queued a last moment, then drops it. No reactor runs; takes NULL. */
void s3_notify_close(struct s3_notify *notify);
bool s3_notify_has(const struct s3_notify *notify, struct slice target);
/* Queues a copy of the text; counts and logs what cannot be. Any thread, never waits for a target.
 */
void s3_notify_send(struct s3_notify *notify, struct slice target, struct slice text);
/* The same to an endpoint that a client named. S3_TOPICS_PUBLIC: only to addresses that are of no
 * private, local or reserved network, whatever its name stands for when it is sent. So many can
 * have events waiting at a time; for others they are dropped. */
#define S3_NOTIFY_TOPICS_ACTIVE_MAX 64u
struct s3_notify_endpoint {
	struct slice name; /* of who reads the log */
	struct slice url;
	bool any_certificate;
};
bool s3_notify_takes_topics(const struct s3_notify *notify);
void s3_notify_send_to(
	struct s3_notify *notify, const struct s3_notify_endpoint *endpoint, struct slice text);
/* Whether an address is one that anybody may be reached at. */
struct sockaddr;
bool s3_address_is_public(const struct sockaddr *address);
/* Grows with each call. */
uint64_t s3_notify_sequence(struct s3_notify *notify);

#endif
