/* s3/object/carry.h: copies between stores of a cluster: the source is answered by the process of
 * its store, and comes to the process of the target as the body of the request (docs/spec/via.md).
 */
#ifndef S3_OBJECT_CARRY_H
#define S3_OBJECT_CARRY_H

#include "s3/object/object.h"

/* Answers the source of the copy that the call asks for, if the caller may read it. */
const struct s3_error *s3_carry_give(struct s3_call *call);
/* Opens the source that comes as the body: `from` and the source of its bytes. */
const struct s3_error *s3_carry_take(struct s3_call *call, struct s3_copy *copy);

#endif
