/* s3/bucket/encryption.c: a bucket's default encryption, for writes that do not specify any. */
#include <errno.h>

#include "s3/bucket/bucket.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/core/xml_in.h"
#include "s3/sse/sse.h"

static const struct s3_xml *preset_of(const struct s3_xml *root)
{
	const struct s3_xml *rule = s3_xml_child(root, "Rule");

	return rule ? s3_xml_child(rule, "ApplyServerSideEncryptionByDefault") : NULL;
}

/* The answer has the bucket-key setting even if the rule lacks it. */
static const struct s3_error *say_bucket_key(struct s3_call *call, const struct s3_xml *root)
{
	const struct s3_xml *rule = s3_xml_child(root, "Rule");
	struct s3_xml *last = rule->child, *node;

	if (s3_xml_child(rule, "BucketKeyEnabled"))
		return NULL;
	node = mem_arena_get(&call->arena, sizeof(*node));
	if (!node)
		return s3_error_at(S3_E_SLOW_DOWN);
	*node = (struct s3_xml){.name = SLICE("BucketKeyEnabled"), .text = SLICE("false")};
	while (last->next)
		last = last->next;
	last->next = node;
	return NULL;
}

static const struct s3_error *check(
	struct s3_call *call, struct slice body, struct slice *ret_document)
{
	const struct s3_xml *preset;
	const struct s3_error *error;
	struct slice algorithm;
	struct s3_xml *root;
	bool has_key;

	error = s3_config_xml(call, body, "ServerSideEncryptionConfiguration", &root);
	if (error)
		return error;
	preset = preset_of(root);
	if (!preset || root->child->next)
		return s3_error_at(S3_E_MALFORMED_XML);
	algorithm = s3_xml_text(preset, "SSEAlgorithm");
	has_key = s3_xml_text(preset, "KMSMasterKeyID").len > 0;
	if (slice_eq(algorithm, SLICE("aws:kms:dsse")))
		return s3_fail(call, S3_E_NOT_IMPLEMENTED,
			"Encryption in two layers (aws:kms:dsse) is not implemented.");
	if (!slice_eq(algorithm, SLICE("AES256")) && !slice_eq(algorithm, SLICE("aws:kms")))
		return s3_error_at(S3_E_MALFORMED_XML);
	if (has_key && slice_eq(algorithm, SLICE("AES256")))
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"a KMSMasterKeyID is not applicable if the default sse algorithm is not "
			"aws:kms or aws:kms:dsse");
	error = say_bucket_key(call, root);
	return error ? error : s3_config_xml_text(call, root, ret_document);
}

static int load(struct slice document, struct mem_arena *arena, const void **ret_parsed)
{
	struct s3_sse_default *sse = mem_arena_get(arena, sizeof(*sse));
	const struct s3_xml *preset;
	struct s3_xml *root;
	int ret = sse ? s3_xml_parse(document, arena, &root) : -ENOMEM;

	if (ret)
		return ret;
	preset = preset_of(root);
	if (!preset)
		return -EINVAL;
	*sse = (struct s3_sse_default){
		.kms = slice_eq(s3_xml_text(preset, "SSEAlgorithm"), SLICE("aws:kms")),
		.kms_key = s3_xml_text(preset, "KMSMasterKeyID"),
		.bucket_key = slice_eq(s3_xml_text(s3_xml_child(root, "Rule"), "BucketKeyEnabled"),
			SLICE("true"))};
	*ret_parsed = sse;
	return 0;
}

const struct s3_config_ops s3_config_encryption = {
	.check = check,
	.load = load,
	.answer = s3_config_answer_xml,
	.put_status = 200,
};
