/* s3/bucket/bucket.h: the operations of each kind of bucket configuration (check, load, answer),
 * for the table of kinds; and the check for requester pays. */
#ifndef S3_BUCKET_BUCKET_H
#define S3_BUCKET_BUCKET_H

#include "s3/core/call.h"
#include "s3/core/settings.h"

extern const struct s3_config_ops s3_config_accelerate, s3_config_acl, s3_config_cors,
	s3_config_encryption, s3_config_lifecycle, s3_config_logging, s3_config_ownership,
	s3_config_policy, s3_config_public_access, s3_config_request_payment, s3_config_tagging,
	s3_config_versioning, s3_config_website;

/* s3_call_pays for the call's bucket. */
const struct s3_error *s3_payer_check(struct s3_call *call);

#endif
