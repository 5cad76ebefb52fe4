/* s3/policy.h: the policy language of IAM: documents in, decisions out. A policy is compiled once
 * and then only read: any thread. Pure: no clock, no store; what a question is about it asks for by
 * a callback.
 *
 * Source: IAM User Guide, "IAM JSON policy element reference" and "Policy evaluation logic". */
#ifndef S3_POLICY_H
#define S3_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

#define S3_POLICY_BYTES_MAX	 (20 * KIB)
#define S3_POLICY_STATEMENTS_MAX 512u

struct s3_policy;
struct s3_arena;

enum s3_policy_kind {
	S3_POLICY_IDENTITY, /* of a user, a group, a role or a session: names no principal */
	S3_POLICY_RESOURCE, /* of a bucket: every statement names who */
	S3_POLICY_TRUST,    /* of a role: who may assume it; names no resource */
};

/* Why a document was refused: one sentence. */
struct s3_policy_refusal {
	char text[192];
};
/* Compiled into the arena, and lives as long. -EINVAL: not a policy, with the reason; -ENOMEM. */
int s3_policy_compile(struct slice text, enum s3_policy_kind kind, struct s3_arena *arena,
	const struct s3_policy **ret_policy, struct s3_policy_refusal *ret_refusal);

/* Who asks. Empty slices are what nobody has. */
struct s3_policy_principal {
	struct slice arn;     /* arn:aws:iam::123456789012:user/path/name; a session's own */
	struct slice role;    /* a session's role: its ARN */
	struct slice account; /* 123456789012 */
	struct slice owner;   /* canonical id */
	struct slice user_id;
	struct slice service; /* logging.s3.amazonaws.com */
	bool anonymous;
	bool root; /* of its account: what the account is given is its own */
};

/* The values of a condition key ("aws:SourceIp"; names without case, but what follows the slash of
 * "s3:ExistingObjectTag/x" has it); at most max of them. 0: the request has no such key. */
typedef uint32_t s3_policy_values_fn(
	void *arg, struct slice key, struct slice *ret_values, uint32_t max);

struct s3_policy_question {
	const struct s3_policy_principal *principal;
	struct slice action;   /* "s3:GetObject" */
	struct slice resource; /* "arn:aws:s3:::bucket/key" */
	s3_policy_values_fn *values;
	void *arg;
};

enum s3_decision {
	S3_DECISION_NONE,
	S3_DECISION_ACCOUNT, /* its account is allowed, and may pass that on */
	S3_DECISION_ALLOW,
	S3_DECISION_DENY,
};
/* What one policy says; a denial goes over everything. NULL says nothing. */
enum s3_decision s3_policy_decide(
	const struct s3_policy *policy, const struct s3_policy_question *question);

/* Whether a resource policy lets everybody in: an Allow for "*" that no condition narrows to fixed
 * addresses, accounts or the like. */
bool s3_policy_is_public(const struct s3_policy *policy);
/* Whether each resource of it can be the bucket or lie in it. */
bool s3_policy_is_of_bucket(const struct s3_policy *policy, struct slice bucket);

/* Whether JSON opens at most so many brackets inside each other: what may be given to a parser that
 * calls itself. */
bool s3_json_is_flat(struct slice text, uint32_t depth_max);

#endif
