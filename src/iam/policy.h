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
	POLICY_RESOURCE, /* of a bucket: every statement names a principal */
	POLICY_TRUST,	 /* of a role: who may assume it; names no resource */
};

/* Why a document is no policy: one sentence. */
struct policy_refusal {
	char text[192];
};
/* Compiles into the arena; the policy lives as long as it. -EINVAL: not a policy, with the reason;
 * -ENOMEM. */
int policy_compile(struct slice text, enum policy_kind kind, struct mem_arena *arena,
	const struct policy **ret_policy, struct policy_refusal *ret_refusal);

/* The caller. A slice is empty if the caller has no such property. */
struct policy_principal {
	struct slice arn;     /* arn:aws:iam::123456789012:user/path/name; a session's own */
	struct slice role;    /* a session's role: its ARN */
	struct slice account; /* 123456789012 */
	struct slice owner;   /* canonical id */
	struct slice user_id;
	struct slice service;	/* logging.s3.amazonaws.com */
	struct slice federated; /* the ARN of the provider that authenticated the caller */
	bool anonymous;
	bool root; /* root of its account: rights of the account are its own */
	bool own;  /* the canonical id belongs to this user only, not to its account */
};

/* Writes the values of a condition key, at most max of them, and returns how many there are. 0: the
 * request has no such key. Names are without case ("aws:SourceIp"), but case counts behind the
 * slash of "s3:ExistingObjectTag/x". */
typedef uint32_t policy_values_fn(
	void *arg, struct slice key, struct slice *ret_values, uint32_t max);

/* The id of a KMS key that an ARN, "arn:…:key/ID", names; any other name is the id. Conditions on
 * s3:x-amz-server-side-encryption-aws-kms-key-id are compared with it. */
struct slice policy_kms_key_id(struct slice name);

struct policy_question {
	const struct policy_principal *principal;
	struct slice action;   /* "s3:GetObject" */
	struct slice resource; /* "arn:aws:s3:::bucket/key" */
	policy_values_fn *values;
	void *arg;
	/* The steps that comparisons may take, for all policies that get the question; NULL:
	 * POLICY_STEPS_MAX for each. A policy that needs more denies, and so does one with a
	 * condition on a key that has more than POLICY_VALUES_MAX values. */
	uint64_t *steps_left;
};
/* A few milliseconds: a policy's author must not be able to hold up an event loop by patterns that
 * take long to compare. */
#define POLICY_STEPS_MAX  ((uint64_t)4 * MIB)
#define POLICY_VALUES_MAX 256u /* identity providers write up to 200 groups into a token */

enum policy_decision {
	POLICY_DECISION_NONE,
	POLICY_DECISION_ACCOUNT, /* the policy allows the account, whose own policies decide */
	POLICY_DECISION_ALLOW,
	POLICY_DECISION_DENY,
};
/* The decision of one policy; a denial overrides everything. NULL decides nothing. */
enum policy_decision policy_decide(
	const struct policy *policy, const struct policy_question *question);

/* Whether a resource policy grants access to everybody: it has an Allow for "*" that no condition
 * narrows to fixed addresses, accounts or the like. */
bool policy_is_public(const struct policy *policy);
/* Whether each resource of the policy can be the bucket or something in it. */
bool policy_is_of_bucket(const struct policy *policy, struct slice bucket);
/* The checks of a policy when it is put (policy_check.c): a bucket's policy must name existing
 * actions and condition keys, on resources that they apply to; other policies must name actions of
 * some service, and a trust policy actions of STS. -EINVAL, with the reason. */
int policy_check_bucket(
	const struct policy *policy, struct slice bucket, struct policy_refusal *ret_refusal);
int policy_check_document(const struct policy *policy, struct policy_refusal *ret_refusal);

#endif
