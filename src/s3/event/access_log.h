/* s3/event/access_log.h: server access logging: one line for each request to a bucket that has
 * logging enabled, kept in memory for a while, then put as an object into the target bucket. As in
 * S3 this is best effort: lines that were not put when the server dies are lost. Its orderly end
 * puts them (s3_access_log_stop).
 *
 * Source: S3 User Guide, "Logging requests with server access logging", "Amazon S3 server access
 * log format". */
#ifndef S3_ACCESS_LOG_H
#define S3_ACCESS_LOG_H

#include "s3/core/call.h"

struct s3_settings;

#define S3_ACCESS_LOG_FLUSH_S_DEFAULT 60u
/* Limit of one target between two objects; lines beyond it are counted and dropped. */
#define S3_ACCESS_LOG_BYTES_MAX (1 * MIB)
/* Limits of what waits: of the targets with lines, which differ by bucket, prefix, grants and
 * format, and of all lines. The buckets of one owner have at most half. */
#define S3_ACCESS_LOG_BATCHES_MAX   4096u
#define S3_ACCESS_LOG_ALL_BYTES_MAX (128 * MIB)

#define S3_LOG_SERVICE	  "logging.s3.amazonaws.com" /* the principal in policies */
#define S3_LOG_PREFIX_MAX 512u

/* The format of log keys: prefix and time; or also the source bucket and a day: the day of
 * delivery, or the day of the events. */
enum s3_log_keys { S3_LOG_SIMPLE, S3_LOG_BY_DELIVERY, S3_LOG_BY_EVENT };
struct s3_logging {
	struct slice bucket, prefix;
	struct slice grants; /* grantees of logs besides their bucket's owner; auth/acl.h */
	enum s3_log_keys keys;
};

/* The id of the target bucket, if its policy or access control list allows the log delivery service
 * to put the logs of the call's bucket; 0: it does not, or there is no such bucket. */
uint64_t s3_log_let_in(struct s3_call *call, const struct s3_logging *logging);

/* The same for any two buckets and the prefix of the logs' keys. */
bool s3_log_is_allowed(struct s3_call *call, const struct store_bucket *from,
	const struct s3_settings *to, struct slice prefix);

struct s3_access_log;
int s3_access_log_open(uint32_t flush_s, struct s3_access_log **ret_log);
void s3_access_log_close(struct s3_access_log *log); /* no reactor runs; takes NULL */
/* Call it after the call was answered. error: the error of the answer, or NULL. */
void s3_access_log_request(struct s3_call *call, const struct s3_error *error);
/* Logs one key of a request that deletes many: a line besides the request's own. */
void s3_access_log_deletion(struct s3_call *call, struct slice key, struct slice version_id,
	const struct s3_error *error);

#endif
