/* s3/event/access_log.h: server access logging: a line for each request to a bucket that asks for
 * it, kept in memory for a while, then put as an object into the bucket that is to have it. As in
 * S3 it is a best effort: what has not been put when the server dies is lost.
 *
 * Source: S3 User Guide, "Logging requests with server access logging", "Amazon S3 server access
 * log format". */
#ifndef S3_ACCESS_LOG_H
#define S3_ACCESS_LOG_H

#include "s3/core/call.h"

struct s3_settings;

#define S3_ACCESS_LOG_FLUSH_S_DEFAULT 60u
/* Of one bucket, between two objects; what comes beyond is counted and dropped. */
#define S3_ACCESS_LOG_BYTES_MAX (1 * MIB)

#define S3_LOG_SERVICE	  "logging.s3.amazonaws.com" /* who delivers logs, as policies name it */
#define S3_LOG_PREFIX_MAX 512u

/* How the names of logs are made: the prefix and a time; or also whose logs they are, with the day
 * that they are put, or that what they tell of happened. */
enum s3_log_keys { S3_LOG_SIMPLE, S3_LOG_BY_DELIVERY, S3_LOG_BY_EVENT };
struct s3_logging {
	struct slice bucket, prefix;
	struct slice grants; /* grantees of logs besides their bucket's owner; auth/acl.h */
	enum s3_log_keys keys;
};

/* Whether the policy or the list of the bucket there lets the service that delivers logs put those
 * of the call's bucket. */
bool s3_log_is_let_in(struct s3_call *call, const struct s3_logging *logging);

/* The same of any two buckets and the prefix of the logs' names. */
bool s3_log_is_allowed(struct s3_call *call, const struct store_bucket *from,
	const struct s3_settings *to, struct slice prefix);

struct s3_access_log;
int s3_access_log_open(uint32_t flush_s, struct s3_access_log **ret_log);
void s3_access_log_close(struct s3_access_log *log); /* no reactor runs; takes NULL */
/* Once the call is answered. error: what it was answered with, or NULL. */
void s3_access_log_request(struct s3_call *call, const struct s3_error *error);
/* Of one key among many that a request deletes: a line of its own, beside the request's. */
void s3_access_log_deletion(struct s3_call *call, struct slice key, struct slice version_id,
	const struct s3_error *error);

#endif
