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
	uint32_t retry_s;      /* how old an event may be when it is tried again; 0: the default */
};
/* -EINVAL: targets cannot be read (logged). */
int s3_notify_open(const struct s3_notify_opts *opts, struct s3_notify **ret_notify);
/* Gives what is queued a last moment, then drops it. No reactor runs; takes NULL. */
void s3_notify_close(struct s3_notify *notify);
bool s3_notify_has(const struct s3_notify *notify, struct slice target);
/* Queues a copy of the text; counts and logs what cannot be. Any thread, never waits for a target.
 */
void s3_notify_send(struct s3_notify *notify, struct slice target, struct slice text);
/* Grows with each call. */
uint64_t s3_notify_sequence(struct s3_notify *notify);

#endif
