/* s3/bucket/logging.c: the target of a bucket's access log: a bucket of the same region that allows
 * the log delivery service to put the logs. */
#include <errno.h>

#include "s3/auth/access.h"
#include "s3/auth/acl.h"
#include "s3/bucket/bucket.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/core/xml_in.h"
#include "s3/event/access_log.h"

static const struct s3_error *judge(struct s3_call *call, const struct store_bucket *from,
	const struct s3_settings *to, struct slice prefix)
{
	if (strcmp(from->region, to->bucket.region) != 0)
		return s3_error_at(S3_E_CROSS_LOCATION_LOGGING);
	/* For a bucket of the same owner the right may come later: it is checked for every line. */
	if (strcmp(from->owner, to->bucket.owner) != 0 &&
		!s3_log_is_allowed(call, from, to, prefix))
		return s3_fail(call, S3_E_ACCESS_DENIED,
			"The policy of the target bucket does not allow " S3_LOG_SERVICE
			" to put objects with this prefix.");
	if (strcmp(from->name, to->bucket.name) == 0 || to->parsed[S3_CONFIG_LOGGING])
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"The target bucket has logging enabled: each log would create another.");
	if (to->parsed[S3_CONFIG_ENCRYPTION])
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"The target bucket encrypts new objects; logs are not encrypted.");
	if (to->parsed[S3_CONFIG_REQUEST_PAYMENT])
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"The target bucket is a Requester Pays bucket, and logs have no "
			"requester.");
	return NULL;
}

/* Grants to the owner of the target bucket have no effect, and are dropped. */
static const struct s3_error *check_grants(const struct s3_settings *to, struct s3_acl *grants)
{
	struct slice owner = slice_str(to->bucket.owner);
	uint32_t count = 0;

	if (grants->count && s3_settings_ownership(to) == S3_OWNERSHIP_ENFORCED)
		return s3_error_at(S3_E_ACL_NOT_SUPPORTED);
	if (s3_settings_public_access(to).block_acls && s3_acl_is_public(grants))
		return s3_error_at(S3_E_ACCESS_DENIED);
	for (uint32_t i = 0; i < grants->count; i++) {
		const struct s3_grant *grant = &grants->grants[i];

		if (grant->permission == S3_PERMISSION_READ_ACP ||
			grant->permission == S3_PERMISSION_WRITE_ACP)
			return s3_error_at(S3_E_MALFORMED_XML);
		if (grant->grantee != S3_GRANTEE_OWNER || !slice_eq(grant->id, owner))
			grants->grants[count++] = *grant;
	}
	grants->count = count;
	return NULL;
}

static const struct s3_error *check_target(
	struct s3_call *call, struct slice name, struct slice prefix, struct s3_acl *grants)
{
	struct s3_settings *to;
	struct store_bucket from;
	const struct s3_error *error = s3_call_bucket(call, &from);
	int ret;

	if (error)
		return error;
	ret = s3_bucket_name_valid(name) ? s3_settings_get(call->s3, call->request->core, name, &to)
					 : -ENOENT;
	if (ret == -ENOENT)
		return s3_fail(call, S3_E_INVALID_LOG_TARGET,
			"The target bucket for logging does not exist");
	if (ret)
		return s3_fail_errno(call, ret);
	error = judge(call, &from, to, prefix);
	if (!error)
		error = check_grants(to, grants);
	s3_settings_put(to);
	return error;
}

/* ---- The document. ---- */

/* Without a key format the keys are simple, and the answer has none either, as at AWS. */
static const struct s3_error *check_format(const struct s3_xml *enabled)
{
	const struct s3_xml *format = s3_xml_child(enabled, "TargetObjectKeyFormat"), *partitioned;
	struct slice date = SLICE_NONE;

	if (!format)
		return NULL;
	partitioned = s3_xml_child(format, "PartitionedPrefix");
	if (partitioned)
		date = slice_trim(s3_xml_text(partitioned, "PartitionDateSource"));
	if ((!partitioned && !s3_xml_child(format, "SimplePrefix")) ||
		(date.len && !slice_eq(date, SLICE("EventTime")) &&
			!slice_eq(date, SLICE("DeliveryTime"))))
		return s3_error_at(S3_E_MALFORMED_XML);
	return NULL;
}

/* Stores the text of <TargetGrants>'s list; without grants, nothing. */
static const struct s3_error *keep_grants(
	struct s3_call *call, struct s3_xml *enabled, const struct s3_acl *grants)
{
	struct s3_xml **at = &enabled->child;
	struct slice text;

	while (*at && !slice_eq((*at)->name, SLICE("TargetGrants")))
		at = &(*at)->next;
	if (!*at)
		return NULL;
	if (!grants->count) {
		*at = (*at)->next;
		return NULL;
	}
	text = s3_acl_encode(grants, &call->arena);
	if (!text.data)
		return s3_error_at(S3_E_SLOW_DOWN);
	(*at)->child = NULL;
	(*at)->text = text;
	return NULL;
}

static const struct s3_error *check(
	struct s3_call *call, struct slice body, struct slice *ret_document)
{
	struct s3_xml *root, *enabled;
	const struct s3_xml *granted;
	const struct s3_error *error;
	struct s3_acl grants = {0};
	struct slice prefix;

	error = s3_config_xml(call, body, "BucketLoggingStatus", &root);
	if (error)
		return error;
	enabled = root->child;
	while (enabled && !slice_eq(enabled->name, SLICE("LoggingEnabled")))
		enabled = enabled->next;
	if (!enabled)
		return s3_config_xml_text(call, root, ret_document);
	prefix = s3_xml_text(enabled, "TargetPrefix");
	if (!s3_xml_child(enabled, "TargetBucket") || !s3_xml_child(enabled, "TargetPrefix") ||
		prefix.len > S3_LOG_PREFIX_MAX)
		return s3_error_at(S3_E_MALFORMED_XML);
	granted = s3_xml_child(enabled, "TargetGrants");
	error = check_format(enabled);
	if (!error && granted)
		error = s3_acl_of_grants(call, granted, SLICE_NONE, &grants);
	if (!error)
		error = check_target(call, s3_xml_text(enabled, "TargetBucket"), prefix, &grants);
	if (!error)
		error = keep_grants(call, enabled, &grants);
	return error ? error : s3_config_xml_text(call, root, ret_document);
}

static enum s3_log_keys keys_of(const struct s3_xml *enabled)
{
	const struct s3_xml *format = s3_xml_child(enabled, "TargetObjectKeyFormat");
	const struct s3_xml *partitioned =
		format ? s3_xml_child(format, "PartitionedPrefix") : NULL;

	if (!partitioned)
		return S3_LOG_SIMPLE;
	return slice_eq(slice_trim(s3_xml_text(partitioned, "PartitionDateSource")),
		       SLICE("EventTime"))
		       ? S3_LOG_BY_EVENT
		       : S3_LOG_BY_DELIVERY;
}

static int load(struct slice document, struct mem_arena *arena, const void **ret_parsed)
{
	struct s3_logging *logging = mem_arena_get(arena, sizeof(*logging));
	const struct s3_xml *enabled;
	struct s3_xml *root;
	int ret = logging ? s3_xml_parse(document, arena, &root) : -ENOMEM;

	if (ret)
		return ret;
	enabled = s3_xml_child(root, "LoggingEnabled");
	*ret_parsed = NULL;
	if (!enabled)
		return 0;
	*logging = (struct s3_logging){.bucket = s3_xml_text(enabled, "TargetBucket"),
		.prefix = s3_xml_text(enabled, "TargetPrefix"),
		.grants = s3_xml_text(enabled, "TargetGrants"),
		.keys = keys_of(enabled)};
	*ret_parsed = logging;
	return 0;
}

/* As stored, but with the grants as received. */
static const struct s3_error *answer(struct s3_call *call, struct slice document)
{
	const struct s3_xml *enabled, *node;
	struct s3_acl grants = {0};
	struct s3_xml *root;
	struct buf xml;

	if (s3_xml_parse(document, &call->arena, &root))
		return s3_error_at(S3_E_INTERNAL);
	enabled = s3_xml_child(root, "LoggingEnabled");
	if (!enabled || !s3_xml_child(enabled, "TargetGrants"))
		return s3_config_answer_xml(call, document);
	if (s3_acl_decode(s3_xml_text(enabled, "TargetGrants"), &call->arena, &grants))
		return s3_error_at(S3_E_INTERNAL);
	s3_xml_begin(&xml, "BucketLoggingStatus");
	buf_put_str(&xml, "<LoggingEnabled>");
	for (node = enabled->child; node; node = node->next) {
		buf_printf(&xml, "<%.*s>", SLICE_FMT(node->name));
		if (slice_eq(node->name, SLICE("TargetGrants")))
			s3_acl_put_grants(call, &grants, &xml);
		else
			s3_config_put_xml(node, &xml);
		buf_printf(&xml, "</%.*s>", SLICE_FMT(node->name));
	}
	buf_put_str(&xml, "</LoggingEnabled>");
	s3_xml_end(&xml, "BucketLoggingStatus");
	return s3_answer_xml(call, 200, &xml);
}

const struct s3_config_ops s3_config_logging = {
	.check = check,
	.load = load,
	.answer = answer,
	.put_status = 200,
};
