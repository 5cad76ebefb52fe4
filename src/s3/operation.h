/* s3/operation.h: every operation's handler, as named in s3_operation_table.inc; their files are in
 * op/. */
#ifndef S3_OPERATION_H
#define S3_OPERATION_H

#include "s3/core/call.h"

#define OPERATION(id, name, handler, ...) s3_operation_fn handler;
#include "s3/s3_operation_table.inc"

#endif
