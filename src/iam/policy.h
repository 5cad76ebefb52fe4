/* iam/policy.h: the policy language of IAM: documents in, decisions out. A policy is compiled once
 * and then only read: any thread. Pure: no clock, no store; a callback supplies the values of a
 * question.
 *
 * Source: IAM User Guide, "IAM JSON policy element reference" and "Policy evaluation logic". */
#ifndef POLICY_H
#define POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

#define POLICY_BYTES_MAX      (20 * KIB)
#define POLICY_STATEMENTS_MAX 512u

struct policy;
struct mem_arena;

enum policy_kind {
	POLICY_IDENTITY, /* of a user, a group, a role or a session: names no principal */
	POLICY_RESOURCE, /* of a bucket: every statement names who */
	POLICY_TRUST,	 /* of a role: who may assume it; names no resource */
};

/* Why a document was refused: one sentence. */
struct policy_refusal {
	char text[192];
};
/* Compiled into the arena, and lives as long. -EINVAL: not a policy, with the reason; -ENOMEM. */
int policy_compile(struct slice text, enum policy_kind kind, struct mem_arena *arena,
	const struct policy **ret_policy, struct policy_refusal *ret_refusal);

/* The caller. Empty slices are what nobody has. */
struct policy_principal {
	struct slice arn;     /* arn:aws:iam::123456789012:user/path/name; a session's own */
	struct slice role;    /* a session's role: its ARN */
	struct slice account; /* 123456789012 */
	struct slice owner;   /* canonical id */
	struct slice user_id;
	struct slice service;	/* logging.s3.amazonaws.com */
	struct slice federated; /* the provider that vouches for him: its ARN */
	bool anonymous;
	bool root; /* of its account: what the account is given is its own */
	bool own;  /* the canonical id is this one's alone, not its account's */
};

/* The values of a condition key ("aws:SourceIp"; names without case, but what follows the slash of
 * "s3:ExistingObjectTag/x" has it); at most max of them. 0: the request has no such key. */
typedef uint32_t policy_values_fn(
	void *arg, struct slice key, struct slice *ret_values, uint32_t max);

struct policy_question {
	const struct policy_principal *principal;
	struct slice action;   /* "s3:GetObject" */
	struct slice resource; /* "arn:aws:s3:::bucket/key" */
	policy_values_fn *values;
	void *arg;
};

enum policy_decision {
	POLICY_DECISION_NONE,
	POLICY_DECISION_ACCOUNT, /* its account is allowed, and may pass that on */
	POLICY_DECISION_ALLOW,
	POLICY_DECISION_DENY,
};
/* The decision of one policy; a denial overrides everything. NULL says nothing. */
enum policy_decision policy_decide(
	const struct policy *policy, const struct policy_question *question);

/* Whether a resource policy lets everybody in: an Allow for "*" that no condition narrows to fixed
 * addresses, accounts or the like. */
bool policy_is_public(const struct policy *policy);
/* Whether each resource of it can be the bucket or lie in it. */
bool policy_is_of_bucket(const struct policy *policy, struct slice bucket);
/* The checks of a policy when it is put (policy_check.c): a bucket's policy must name existing
 * actions and condition keys, on resources that they apply to; other policies must name actions of
 * some service, and a trust policy actions of STS. -EINVAL, with the reason. */
int policy_check_bucket(
	const struct policy *policy, struct slice bucket, struct policy_refusal *ret_refusal);
int policy_check_document(const struct policy *policy, struct policy_refusal *ret_refusal);

#endif
