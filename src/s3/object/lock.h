/* s3/object/lock.h: object lock, which prevents the deletion of a version. It is stored with the
 * version as hidden headers; a bucket's default is a configuration of the bucket. */
#ifndef S3_LOCK_H
#define S3_LOCK_H

#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/core/stored.h"

#define S3_LOCK_DAYS_MAX  36500u
#define S3_LOCK_YEARS_MAX 100u

/* The default lock of a bucket's new objects, parsed from S3_CONFIG_OBJECT_LOCK. */
struct s3_lock_default {
	struct slice mode; /* empty: no default lock */
	uint32_t days;
};

/* Adds the lock of the request, or the bucket's default, to the headers of a new object. */
const struct s3_error *s3_lock_gather(struct s3_call *call, struct store_meta *meta);
/* Moves the lock headers of `from` into `headers` and leaves the others. -ENOMEM. */
int s3_lock_carry(struct slice from, struct mem_arena *arena, struct slice *headers);
/* Whether the version with these headers may not be deleted now. */
bool s3_lock_holds(struct slice headers, int64_t now_ms, bool bypass);
/* NULL when the call's bucket has object lock. */
const struct s3_error *s3_lock_check_bucket(struct s3_call *call);
/* Adds the answer's headers for a hidden header; false: it is not a lock header. */
bool s3_lock_answer(struct s3_call *call, struct slice name, struct slice value);

extern const struct s3_config_ops s3_config_object_lock;

#endif
