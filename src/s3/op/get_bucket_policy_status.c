/* s3/op/get_bucket_policy_status.c: GetBucketPolicyStatus: whether a bucket is public. */
#include "s3/auth/access.h"
#include "s3/auth/acl.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/operation.h"

/* Whether the bucket's policy, or (ACL) its access control list, allows everybody. */
static bool settings_is_public(const struct s3_settings *settings)
{
	const struct policy *policy = settings->parsed[S3_CONFIG_POLICY];
	const struct s3_acl *acl = settings->parsed[S3_CONFIG_ACL];
	struct s3_public_access access = s3_settings_public_access(settings);

	if (acl && s3_acl_is_public(acl) && !access.ignore_acls &&
		s3_settings_ownership(settings) != S3_OWNERSHIP_ENFORCED)
		return true;
	return policy && policy_is_public(policy) && !access.restrict_buckets;
}

const struct s3_error *s3_op_get_policy_status(struct s3_call *call)
{
	const struct s3_settings *settings;
	const struct s3_error *error = s3_call_settings(call, &settings);
	struct buf xml;

	if (error || !settings)
		return error ? error : s3_error_at(S3_E_NO_SUCH_BUCKET);
	s3_xml_begin(&xml, "PolicyStatus");
	xml_element(
		"IsPublic", settings_is_public(settings) ? SLICE("true") : SLICE("false"), &xml);
	s3_xml_end(&xml, "PolicyStatus");
	return s3_answer_xml(call, 200, &xml);
}
