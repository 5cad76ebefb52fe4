/* s3/op_get_config.c: what a bucket answers when it is asked for a configuration that it does not
 * have: S3 has an error for some, an empty document for others. Clients ask for these on their own.
 */
#include "s3/s3_priv.h"

static const struct {
	struct slice param;
	const char *document; /* its root; NULL: an error instead */
	const char *inside;
	enum s3_error_id missing;
} configs[] = {
	{SLICE("accelerate"), "AccelerateConfiguration", "", S3_E_INTERNAL},
	{SLICE("logging"), "BucketLoggingStatus", "", S3_E_INTERNAL},
	{SLICE("notification"), "NotificationConfiguration", "", S3_E_INTERNAL},
	{SLICE("requestPayment"), "RequestPaymentConfiguration", "<Payer>BucketOwner</Payer>",
		S3_E_INTERNAL},
	{SLICE("versioning"), "VersioningConfiguration", "", S3_E_INTERNAL},
	{SLICE("cors"), NULL, NULL, S3_E_CORS_MISSING},
	{SLICE("encryption"), NULL, NULL, S3_E_ENCRYPTION_MISSING},
	{SLICE("lifecycle"), NULL, NULL, S3_E_LIFECYCLE_MISSING},
	{SLICE("object-lock"), NULL, NULL, S3_E_OBJECT_LOCK_MISSING},
	{SLICE("ownershipControls"), NULL, NULL, S3_E_OWNERSHIP_MISSING},
	{SLICE("policy"), NULL, NULL, S3_E_POLICY_MISSING},
	{SLICE("policyStatus"), NULL, NULL, S3_E_POLICY_MISSING},
	{SLICE("publicAccessBlock"), NULL, NULL, S3_E_PUBLIC_ACCESS_MISSING},
	{SLICE("replication"), NULL, NULL, S3_E_REPLICATION_MISSING},
	{SLICE("tagging"), NULL, NULL, S3_E_TAG_SET_MISSING},
	{SLICE("website"), NULL, NULL, S3_E_WEBSITE_MISSING},
};

static const struct s3_error *answer_document(
	struct s3_call *call, const char *root, const char *inside)
{
	struct buf xml;

	s3_xml_begin(&xml, root);
	buf_put_str(&xml, inside);
	s3_xml_end(&xml, root);
	return s3_answer_xml(call, 200, &xml);
}

/* An object without tags has an empty set of them; a bucket has none at all. */
static const struct s3_error *answer_object_tags(struct s3_call *call)
{
	struct store_get *get;
	const struct s3_error *error = s3_open_object(call, call->bucket, call->key, &get);

	if (error)
		return error;
	store_get_close(get);
	return answer_document(call, "Tagging", "<TagSet></TagSet>");
}

const struct s3_error *s3_op_get_config(struct s3_call *call)
{
	const struct s3_error *error;
	struct store_bucket bucket;

	if (call->key.len)
		return answer_object_tags(call);
	error = s3_call_bucket(call, &bucket);
	for (size_t i = 0; !error && i < sizeof(configs) / sizeof(configs[0]); i++) {
		if (!s3_call_param(call, configs[i].param, NULL))
			continue;
		if (configs[i].document)
			return answer_document(call, configs[i].document, configs[i].inside);
		error = s3_error_at(configs[i].missing);
	}
	CHECK(error);
	return error;
}
