/* s3/object/origin.h: requests to a bucket with an origin: what is not here is asked there. */
#ifndef S3_OBJECT_ORIGIN_H
#define S3_OBJECT_ORIGIN_H

#include "s3/object/object.h"
#include "s3/origin.h"

/* GetObject of a missing key: waits until the object came from the bucket's origin, and opens it;
 * or, when its first bytes came, begins a read with a stream, which the caller closes.
 * Any other error than that of a missing key, or of a bucket without an origin, is returned
 * unchanged. */
const struct s3_error *s3_origin_get(
	struct s3_call *call, const struct s3_error *error, struct s3_read *ret_read);
/* HeadObject of a missing key: answers what the origin tells; nothing is fetched. */
const struct s3_error *s3_origin_head(struct s3_call *call, const struct s3_error *error);
/* The ETag that the object has at its origin becomes that of its copy here. */
void s3_origin_keep(const struct s3_call *call, struct store_meta *meta);
/* Answers the header that tells about the hidden one, and counts a read of a fetched object. */
void s3_origin_answer(struct s3_call *call, struct slice value);
/* ---- For the other files that ask origins. ---- */
/* When a copy was compared with its origin last, as s3_origin_used_s. */
uint64_t s3_origin_checked_s(struct slice bucket, struct slice key);
void s3_origin_check_note(struct slice bucket, struct slice key);
/* It was not compared, after all: the next reader does it. */
void s3_origin_check_forget(struct slice bucket, struct slice key);
/* False: the bucket has no origin. */
bool s3_origin_ask_of(struct s3_call *call, struct s3_origin_ask *ret_ask);
const struct s3_error *s3_origin_hook_of(struct s3_call *call, const struct s3_origin_ask *ask,
	const struct s3_origin_hook **ret_hook);
/* NULL: the origin gave what was asked for, or gives it. */
const struct s3_error *s3_origin_error(struct s3_call *call, const struct s3_origin_told *told);

#endif
