/* s3/op/named_config.c: configurations of which a bucket can have many, each by an id: analytics,
 * intelligent tiering, inventory, metrics. None can be put (501), so none exist: programs that read
 * all configurations of a bucket are told so. */
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/operation.h"

static const struct s3_error *answer_none(struct s3_call *call)
{
	const struct s3_named_kind *kind = NULL;
	struct buf xml;

	for (uint32_t i = 0; !kind && i < call->params.count; i++)
		kind = s3_named_kind(call->params.items[i].name);
	CHECK(kind);
	s3_xml_begin(&xml, kind->list_root);
	buf_put_str(&xml, "<IsTruncated>false</IsTruncated>");
	s3_xml_end(&xml, kind->list_root);
	return s3_answer_xml(call, 200, &xml);
}

const struct s3_error *s3_op_get_named_config(struct s3_call *call)
{
	struct store_bucket bucket;
	const struct s3_error *error = s3_call_bucket(call, &bucket);

	if (error)
		return error;
	return s3_call_param(call, SLICE("id"), NULL) ? s3_error_at(S3_E_NO_SUCH_CONFIGURATION)
						      : answer_none(call);
}

const struct s3_error *s3_op_delete_named_config(struct s3_call *call)
{
	struct store_bucket bucket;
	const struct s3_error *error = s3_call_bucket(call, &bucket);

	return error ? error : s3_error_at(S3_E_NO_SUCH_CONFIGURATION);
}
