/* s3/bucket/versioning.c: the versioning of a bucket as a configuration: a PUT changes the bucket
 * itself, and the GET (op/get_bucket_versioning.c) reads the bucket. */
#include <errno.h>

#include "s3/bucket/bucket.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/core/xml_in.h"

struct wanted {
	uint8_t versioning;
};

static int set_versioning(struct store_bucket *bucket, void *arg)
{
	const struct wanted *wanted = arg;

	if ((bucket->flags & STORE_BUCKET_LOCK) && wanted->versioning != STORE_VERSIONING_ENABLED)
		return -EPERM;
	bucket->versioning = wanted->versioning;
	return 0;
}

static const struct s3_error *versioning_check(
	struct s3_call *call, struct slice body, struct slice *ret_document)
{
	struct wanted wanted = {.versioning = STORE_VERSIONING_ENABLED};
	const struct s3_settings *settings;
	const struct s3_error *error;
	struct s3_xml *tree;
	struct slice status;
	int ret;

	error = s3_config_xml(call, body, "VersioningConfiguration", &tree);
	if (error)
		return error;
	status = s3_xml_text(tree, "Status");
	if (slice_eq(s3_xml_text(tree, "MfaDelete"), SLICE("Enabled")))
		return s3_fail(call, S3_E_NOT_IMPLEMENTED,
			"This server has no multi-factor authentication: MfaDelete cannot be "
			"enabled.");
	if (!status.len)
		return s3_error_at(S3_E_ILLEGAL_VERSIONING);
	if (slice_eq(status, SLICE("Suspended")))
		wanted.versioning = STORE_VERSIONING_SUSPENDED;
	else if (!slice_eq(status, SLICE("Enabled")))
		return s3_error_at(S3_E_MALFORMED_XML);
	error = s3_call_settings(call, &settings);
	if (error)
		return error;
	if (settings && settings->parsed[S3_CONFIG_REPLICATION] &&
		wanted.versioning != STORE_VERSIONING_ENABLED)
		return s3_fail(call, S3_E_INVALID_BUCKET_STATE,
			"A replication configuration is present on this bucket, so the versioning "
			"state cannot be changed.");
	ret = s3_call_bucket_edit(call, set_versioning, &wanted);
	if (ret == -EPERM)
		return s3_fail(call, S3_E_INVALID_BUCKET_STATE,
			"An Object Lock configuration is present on this bucket, so the versioning "
			"state cannot be changed.");
	if (ret)
		return ret == -ENOENT ? s3_error_at(S3_E_NO_SUCH_BUCKET) : s3_fail_errno(call, ret);
	return s3_config_xml_text(call, tree, ret_document);
}

const struct s3_config_ops s3_config_versioning = {
	.check = versioning_check,
	.load = s3_config_load_nothing,
	.answer = s3_config_answer_xml,
	.put_status = 200,
};
