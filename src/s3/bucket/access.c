/* s3/bucket/access.c: a bucket's access settings: policy, access control list, ownership, public
 * access. */
#include <errno.h>

#include "s3/auth/access.h"
#include "s3/auth/acl.h"
#include "s3/bucket/bucket.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/core/xml_in.h"

/* ---- Policy: its text as received; a policy that binds the bucket's owner, too, has this line in
 * front. ---- */

/* Text and flag are one document so that both change at once; no policy begins with this line. */
static const struct s3_error *keep_policy(
	struct s3_call *call, struct slice text, struct slice *ret_document)
{
	static const struct slice mark = SLICE(S3_POLICY_BINDS_OWNER);
	struct slice confirm =
		s3_call_header(call, SLICE("x-amz-confirm-remove-self-bucket-access"));
	char *marked;

	*ret_document = text;
	if (!slice_eq_nocase(confirm, SLICE("true")))
		return NULL;
	marked = mem_arena_get(&call->arena, mark.len + text.len);
	if (!marked)
		return s3_error_at(S3_E_SLOW_DOWN);
	memcpy(marked, mark.data, mark.len);
	memcpy(marked + mark.len, text.data, text.len);
	*ret_document = slice_of(marked, mark.len + text.len);
	return NULL;
}

static struct slice policy_text(struct slice document)
{
	return slice_starts(document, SLICE(S3_POLICY_BINDS_OWNER))
		       ? slice_from(document, strlen(S3_POLICY_BINDS_OWNER))
		       : document;
}

static const struct s3_error *policy_check(
	struct s3_call *call, struct slice body, struct slice *ret_document)
{
	struct policy_refusal refusal = {""};
	const struct s3_settings *settings;
	const struct policy *policy;
	const struct s3_error *error;
	int ret;

	ret = policy_compile(body, POLICY_RESOURCE, &call->arena, &policy, &refusal);
	if (ret == -EINVAL)
		return s3_fail(call, S3_E_MALFORMED_POLICY, "%s", refusal.text);
	if (ret)
		return s3_fail_errno(call, ret);
	if (policy_check_bucket(policy, call->bucket, &refusal))
		return s3_fail(call, S3_E_MALFORMED_POLICY, "%s", refusal.text);
	error = s3_call_settings(call, &settings);
	if (error || !settings)
		return error ? error : s3_error_at(S3_E_NO_SUCH_BUCKET);
	if (s3_settings_public_access(settings).block_policy && policy_is_public(policy))
		return s3_fail(call, S3_E_ACCESS_DENIED,
			"The policy grants public access, and the BlockPublicPolicy setting in S3 "
			"Block Public Access prevents that.");
	return keep_policy(call, body, ret_document);
}

static int policy_load(struct slice document, struct mem_arena *arena, const void **ret_parsed)
{
	struct policy_refusal refusal;
	const struct policy *policy;
	int ret = policy_compile(policy_text(document), POLICY_RESOURCE, arena, &policy, &refusal);

	if (!ret)
		*ret_parsed = policy;
	return ret;
}

static const struct s3_error *policy_answer(struct s3_call *call, struct slice document)
{
	struct s3_reply *reply = call->reply;

	document = policy_text(document);
	s3_answer_header(call, SLICE("Content-Type"), SLICE("application/json"));
	if (reply->ops->head(reply, 200, call->headers, call->header_count, document.len) ||
		(call->request->method != S3_HEAD && reply->ops->text(reply, document)))
		reply->broken = true;
	call->body_bytes += document.len;
	call->sent_bytes += document.len;
	return NULL;
}

const struct s3_config_ops s3_config_policy = {
	.check = policy_check,
	.load = policy_load,
	.answer = policy_answer,
	.put_status = 204,
};

/* ---- The bucket's access control list. ---- */

static int acl_load(struct slice document, struct mem_arena *arena, const void **ret_parsed)
{
	struct s3_acl *acl = mem_arena_get(arena, sizeof(*acl));
	int ret;

	if (!acl)
		return -ENOMEM;
	*acl = (struct s3_acl){0};
	ret = s3_acl_decode(document, arena, acl);
	if (!ret)
		*ret_parsed = acl;
	return ret;
}

static const struct s3_error *acl_check(
	struct s3_call *call, struct slice body, struct slice *ret_document)
{
	(void)body;
	(void)ret_document;
	return s3_fail_declined(call);
}

const struct s3_config_ops s3_config_acl = {
	.check = acl_check, /* PutBucketAcl is an operation of its own */
	.load = acl_load,
	.answer = s3_config_answer_xml,
	.put_status = 200,
};

/* ---- Ownership. ---- */

/* To switch lists off, the bucket's list may grant nothing to anybody but the owner. */
static const struct s3_error *check_enforce(struct s3_call *call)
{
	const struct s3_settings *settings;
	const struct s3_error *error = s3_call_settings(call, &settings);
	const struct s3_acl *kept;
	struct s3_acl acl;

	if (error || !settings)
		return error ? error : s3_error_at(S3_E_NO_SUCH_BUCKET);
	kept = settings->parsed[S3_CONFIG_ACL];
	if (!kept)
		return NULL;
	acl = *kept;
	acl.owner = slice_str(settings->bucket.owner);
	return s3_acl_is_default(&acl)
		       ? NULL
		       : s3_fail(call, S3_E_INVALID_BUCKET_ACL_WITH_OWNERSHIP,
				 "Bucket cannot have ACLs set with ObjectOwnership's "
				 "BucketOwnerEnforced setting");
}

static const struct s3_error *ownership_check(
	struct s3_call *call, struct slice body, struct slice *ret_document)
{
	const struct s3_error *error;
	enum s3_ownership ownership;
	struct s3_xml *root;

	error = s3_config_xml(call, body, "OwnershipControls", &root);
	if (error)
		return error;
	if (!root->child || !slice_eq(root->child->name, SLICE("Rule")) || root->child->next)
		return s3_error_at(S3_E_MALFORMED_XML);
	*ret_document = slice_trim(s3_xml_text(root->child, "ObjectOwnership"));
	if (s3_ownership_of(*ret_document, &ownership))
		return s3_error_at(S3_E_MALFORMED_XML);
	return ownership == S3_OWNERSHIP_ENFORCED ? check_enforce(call) : NULL;
}

static int ownership_load(struct slice document, struct mem_arena *arena, const void **ret_parsed)
{
	enum s3_ownership *ownership = mem_arena_get(arena, sizeof(*ownership));

	if (!ownership)
		return -ENOMEM;
	*ret_parsed = ownership;
	return s3_ownership_of(document, ownership);
}

static const struct s3_error *ownership_answer(struct s3_call *call, struct slice document)
{
	struct buf xml;

	s3_xml_begin(&xml, "OwnershipControls");
	buf_put_str(&xml, "<Rule>");
	xml_element("ObjectOwnership", document, &xml);
	buf_put_str(&xml, "</Rule>");
	s3_xml_end(&xml, "OwnershipControls");
	return s3_answer_xml(call, 200, &xml);
}

const struct s3_config_ops s3_config_ownership = {
	.check = ownership_check,
	.load = ownership_load,
	.answer = ownership_answer,
	.put_status = 200,
};

/* ---- Public access. ---- */

static const char *const switch_names[] = {
	"BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"};
_Static_assert(ARRAY_LEN(switch_names) == S3_PUBLIC_SWITCHES, "as many as are kept");

/* Stored as "1011", in the order of the names. */
static const struct s3_error *public_check(
	struct s3_call *call, struct slice body, struct slice *ret_document)
{
	char *text = mem_arena_get(&call->arena, S3_PUBLIC_SWITCHES);
	const struct s3_error *error;
	struct s3_xml *root;

	if (!text)
		return s3_error_at(S3_E_SLOW_DOWN);
	error = s3_config_xml(call, body, "PublicAccessBlockConfiguration", &root);
	for (size_t i = 0; !error && i < S3_PUBLIC_SWITCHES; i++) {
		struct slice value = slice_trim(s3_xml_text(root, switch_names[i]));

		if (value.len && !slice_eq_nocase(value, SLICE("true")) &&
			!slice_eq_nocase(value, SLICE("false")))
			error = s3_error_at(S3_E_MALFORMED_XML);
		text[i] = slice_eq_nocase(value, SLICE("true")) ? '1' : '0';
	}
	*ret_document = slice_of(text, S3_PUBLIC_SWITCHES);
	return error;
}

static int public_load(struct slice document, struct mem_arena *arena, const void **ret_parsed)
{
	struct s3_public_access *access = mem_arena_get(arena, sizeof(*access));

	if (!access)
		return -ENOMEM;
	*ret_parsed = access;
	return s3_public_access_parse(document, access);
}

static const struct s3_error *public_answer(struct s3_call *call, struct slice document)
{
	struct buf xml;

	s3_xml_begin(&xml, "PublicAccessBlockConfiguration");
	for (size_t i = 0; i < S3_PUBLIC_SWITCHES; i++)
		xml_element(switch_names[i],
			document.data[i] == '1' ? SLICE("true") : SLICE("false"), &xml);
	s3_xml_end(&xml, "PublicAccessBlockConfiguration");
	return s3_answer_xml(call, 200, &xml);
}

const struct s3_config_ops s3_config_public_access = {
	.check = public_check,
	.load = public_load,
	.answer = public_answer,
	.put_status = 200,
};
