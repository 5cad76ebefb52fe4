/* s3/object/origin_check.h: copies of an origin's objects, compared with them. */
#ifndef S3_OBJECT_ORIGIN_CHECK_H
#define S3_OBJECT_ORIGIN_CHECK_H

#include "s3/core/call.h"

/* Before a read of the call's key: if the bucket's origin wants it, and a copy is there that was
 * fetched, or compared, long enough ago, compares it with the object at the origin, and deletes it
 * when that is another. A copy stays when the origin does not answer. */
void s3_origin_check(struct s3_call *call);

#endif
