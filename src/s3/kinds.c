/* s3/kinds.c: the configurations of a bucket: s3_config_table.inc as records. */
#include "s3/bucket/bucket.h"
#include "s3/replicate/replicate.h"
#include "s3/core/settings.h"
#include "s3/event/notification.h"
#include "s3/object/lock.h"

/* The macros of a row. The first argument of each, S3's name of the request, is for documents
 * only. */
#define GETS(name_, action_, log_)    .get = {.action = action_, .log = log_}
#define PUTS(name_, action_, log_)    .put = {.action = action_, .log = log_}
#define DELETES(name_, action_, log_) .delete = {.action = action_, .log = log_}
#define MISSING(error_)		      .missing = S3_E_##error_
#define EMPTY(root_, inside_)	      .empty = S3_CONFIG_XML(root_, inside_)
#define EXPRESS(who_)		      .express = S3_EXPRESS_##who_

const struct s3_config_kind s3_config_kinds[S3_CONFIG_COUNT] = {
#define CONFIG(id_, param_, ops_, ...) \
	[S3_CONFIG_##id_] = {          \
		.id = S3_CONFIG_##id_, .param = SLICE(param_), .ops = &ops_, __VA_ARGS__},
#include "s3/s3_config_table.inc"
};
