/* s3/op/named_config.c: configurations of which a bucket can have many, each by an id: analytics,
 * intelligent tiering, inventory, metrics. None can be put (501), so there are none: programs that
 * look at all of a bucket hear so. */
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/operation.h"

/* S3 API reference: the roots of the lists' documents. */
static const struct {
	struct slice param;
	const char *list_root;
} kinds[] = {
	{SLICE("analytics"), "ListBucketAnalyticsConfigurationResult"},
	{SLICE("intelligent-tiering"), "ListBucketIntelligentTieringConfigurationsOutput"},
	{SLICE("inventory"), "ListInventoryConfigurationsResult"},
	{SLICE("metrics"), "ListMetricsConfigurationsResult"},
};

static const struct s3_error *answer_none(struct s3_call *call)
{
	size_t kind = 0;
	struct buf xml;

	while (!s3_call_param(call, kinds[kind].param, NULL)) {
		kind++;
		CHECK(kind < ARRAY_LEN(kinds));
	}
	s3_xml_begin(&xml, kinds[kind].list_root);
	buf_put_str(&xml, "<IsTruncated>false</IsTruncated>");
	s3_xml_end(&xml, kinds[kind].list_root);
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
