/* s3/operation.h: every operation's handler, by s3_operation_table.inc: one file each, op/. */
#ifndef S3_OPERATION_H
#define S3_OPERATION_H

#include "s3/core/call.h"

#define OPERATION(id, name, run, action) s3_operation_fn run;
#include "s3/s3_operation_table.inc"
#undef OPERATION

#endif
