/* s3/bucket/tagging.c: the tags of a bucket. */
#include <errno.h>

#include "s3/bucket/bucket.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/core/tags.h"
#include "s3/core/xml_in.h"

static const struct s3_error *check(
	struct s3_call *call, struct slice body, struct slice *ret_document)
{
	const struct s3_error *error;
	struct s3_tags tags;
	struct s3_xml *root;

	error = s3_config_xml(call, body, "Tagging", &root);
	if (!error)
		error = s3_tags_of_xml(call, root, S3_TAGS_BUCKET_MAX, &tags);
	if (error)
		return error;
	*ret_document = s3_tags_encode(&tags, &call->arena);
	return tags.count && !ret_document->data ? s3_error_at(S3_E_SLOW_DOWN) : NULL;
}

static int load(struct slice document, struct mem_arena *arena, const void **ret_parsed)
{
	struct s3_tags *tags = mem_arena_get(arena, sizeof(*tags));

	*ret_parsed = tags;
	return tags ? s3_tags_decode(document, arena, tags) : -ENOMEM;
}

static const struct s3_error *answer(struct s3_call *call, struct slice document)
{
	struct s3_tags tags;
	int ret = s3_tags_decode(document, &call->arena, &tags);

	if (ret)
		return s3_fail_errno(call, ret);
	/* An empty tag set counts as no tag set. */
	return tags.count ? s3_tags_answer(call, &tags) : s3_error_at(S3_E_TAG_SET_MISSING);
}

const struct s3_config_ops s3_config_tagging = {
	.check = check,
	.load = load,
	.answer = answer,
	.put_status = 204,
};
