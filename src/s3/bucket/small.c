/* s3/bucket/small.c: bucket configurations of one word: request payment, acceleration. */
#include <errno.h>

#include "s3/auth/access.h"
#include "s3/bucket/bucket.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/core/xml_in.h"

/* Reads the root's only child, which must be one of the words. */
static const struct s3_error *check_word(struct s3_call *call, struct slice body, const char *root,
	const char *child, const struct slice *words, struct slice *ret_document)
{
	const struct s3_error *error;
	struct s3_xml *tree;
	struct slice word;

	error = s3_config_xml(call, body, root, &tree);
	if (error)
		return error;
	word = s3_xml_text(tree, child);
	for (; words->len; words++)
		if (slice_eq(word, *words))
			return s3_config_xml_text(call, tree, ret_document);
	return s3_error_at(S3_E_MALFORMED_XML);
}

static const struct s3_error *check_payment(
	struct s3_call *call, struct slice body, struct slice *ret_document)
{
	static const struct slice words[] = {SLICE("Requester"), SLICE("BucketOwner"), SLICE_NONE};

	return check_word(call, body, "RequestPaymentConfiguration", "Payer", words, ret_document);
}

/* Not NULL: the requester pays. */
static int load_payment(struct slice document, struct mem_arena *arena, const void **ret_parsed)
{
	struct s3_xml *tree;
	int ret = s3_xml_parse(document, arena, &tree);

	if (ret)
		return ret;
	*ret_parsed = slice_eq(s3_xml_text(tree, "Payer"), SLICE("Requester")) ? tree : NULL;
	return 0;
}

const struct s3_config_ops s3_config_request_payment = {
	.check = check_payment,
	.load = load_payment,
	.answer = s3_config_answer_xml,
	.put_status = 200,
};

const struct s3_error *s3_payer_check(struct s3_call *call)
{
	const struct s3_settings *settings;
	const struct s3_error *error = s3_call_settings(call, &settings);

	return error || !settings ? error : s3_call_pays(call, settings);
}

/* In S3, names with dots have no accelerated endpoint. */
static const struct s3_error *check_accelerate(
	struct s3_call *call, struct slice body, struct slice *ret_document)
{
	static const struct slice words[] = {SLICE("Enabled"), SLICE("Suspended"), SLICE_NONE};

	if (slice_find(call->bucket, SLICE(".")) >= 0)
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"S3 Transfer Acceleration is not supported for buckets with periods (.) in "
			"their names");
	return check_word(call, body, "AccelerateConfiguration", "Status", words, ret_document);
}

const struct s3_config_ops s3_config_accelerate = {
	.check = check_accelerate,
	.load = s3_config_load_nothing,
	.answer = s3_config_answer_xml,
	.put_status = 200,
};
