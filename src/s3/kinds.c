/* s3/kinds.c: the kinds of configuration that a bucket can have. */
#include "s3/bucket/bucket.h"
#include "s3/core/settings.h"
#include "s3/event/notification.h"
#include "s3/object/lock.h"

const struct s3_config_kind s3_config_kinds[S3_CONFIG_COUNT] = {
#define ACTIONS(get, put, delete) "s3:" get, "s3:" put, "s3:" delete
#define EMPTY(root, inside)	  S3_CONFIG_XML(root, inside)
#define CONFIG(config_id, config_param, actions, config_missing, config_empty, config_ops)         \
	[S3_CONFIG_##config_id] = KIND(S3_CONFIG_##config_id, config_param, actions, config_empty, \
		config_missing, &config_ops),
#define KIND(kind_id, kind_param, ...)                  \
	{                                               \
		kind_id, SLICE(kind_param), __VA_ARGS__ \
	}
#include "s3/s3_config_table.inc"
#undef CONFIG
};
