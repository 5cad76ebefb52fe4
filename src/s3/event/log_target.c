/* s3/event/log_target.c: decides whether the access log of one bucket may be put into another: that
 * bucket's policy or access control list must allow the log delivery service. */
#include "iam/iam.h"
#include "s3/auth/acl.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/event/access_log.h"

struct question {
	const struct store_bucket *from;
	const struct iam_owner *owner; /* of from */
	struct slice arn;	       /* of from */
};

/* An account is identified by its number, in access control lists by its canonical id. */
static uint32_t values(void *arg, struct slice key, struct slice *ret_values, uint32_t max)
{
	const struct question *question = arg;

	if (slice_eq_nocase(key, SLICE("aws:SourceArn")) && max > 0) {
		ret_values[0] = question->arn;
		return 1;
	}
	if (!slice_eq_nocase(key, SLICE("aws:SourceAccount")) || max < 2)
		return 0;
	ret_values[0] = slice_str(question->from->owner);
	ret_values[1] = slice_str(question->owner->account);
	return question->owner->account[0] ? 2 : 1;
}

static struct slice arn_of(struct mem_arena *arena, struct slice bucket, struct slice prefix)
{
	struct slice text;
	struct buf arn;

	buf_init(&arn, 1024);
	buf_printf(&arn, "arn:aws:s3:::%.*s", SLICE_FMT(bucket));
	if (prefix.data)
		buf_printf(&arn, "/%.*s", SLICE_FMT(prefix));
	text = arn.failed ? SLICE_NONE : mem_arena_copy(arena, buf_slice(&arn));
	buf_free(&arn);
	return text;
}

/* The target's access control list grants write to the log delivery group. */
static bool list_allows(const struct s3_settings *to)
{
	const struct s3_acl *acl = to->parsed[S3_CONFIG_ACL];

	for (uint32_t i = 0; acl && i < acl->count; i++)
		if (acl->grants[i].grantee == S3_GRANTEE_LOGS &&
			(acl->grants[i].permission == S3_PERMISSION_WRITE ||
				acl->grants[i].permission == S3_PERMISSION_FULL))
			return s3_settings_ownership(to) != S3_OWNERSHIP_ENFORCED;
	return false;
}

/* Buckets of the server's root may log to buckets of the server's root. */
bool s3_log_is_allowed(struct s3_call *call, const struct store_bucket *from,
	const struct s3_settings *to, struct slice prefix)
{
	static const struct policy_principal service = {.service = SLICE(S3_LOG_SERVICE)};
	struct iam_owner owner;
	struct question question = {.from = from, .owner = &owner};
	struct policy_question asked = {.principal = &service,
		.action = SLICE("s3:PutObject"),
		.values = values,
		.arg = &question};
	enum policy_decision decision;

	iam_owner_or_id(call->s3->iam, slice_str(from->owner), &owner);
	question.arn = arn_of(&call->arena, slice_str(from->name), SLICE_NONE);
	asked.resource =
		arn_of(&call->arena, slice_str(to->bucket.name), prefix.data ? prefix : SLICE(""));
	if (!question.arn.data || !asked.resource.data)
		return false;
	decision = policy_decide(to->parsed[S3_CONFIG_POLICY], &asked);
	if (decision == POLICY_DECISION_DENY)
		return false;
	/* An access control list is valid only for buckets of its own owner. */
	return decision == POLICY_DECISION_ALLOW ||
	       (strcmp(from->owner, to->bucket.owner) == 0 &&
		       (list_allows(to) || strcmp(from->owner, IAM_ROOT_OWNER_ID) == 0));
}

uint64_t s3_log_let_in(struct s3_call *call, const struct s3_logging *logging)
{
	struct s3_settings *to;
	uint64_t id = 0;

	/* The caller's rights do not matter: the rights of the log delivery service are checked. */
	if (s3_settings_get(call->s3, call->request->core, logging->bucket, &to))
		return 0;
	if (s3_log_is_allowed(call, &call->settings->bucket, to, logging->prefix))
		id = to->bucket.id;
	s3_settings_put(to);
	return id;
}
