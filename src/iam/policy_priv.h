/* iam/policy_priv.h: interface between compiling (policy.c), checking and deciding (policy_check.c,
 * policy_decide.c, policy_public.c, policy_text.c). */
#ifndef POLICY_PRIV_H
#define POLICY_PRIV_H

#include "base/mem_arena.h"
#include "codec/codec.h"
#include "document/json.h"
#include "iam/policy.h"

/* A text to match against. In its compiled form the wildcards "*" and "?" are the bytes below, and
 * a variable is between two others. A policy itself cannot have these bytes. A request's value for
 * a variable can: the last one stands before each of them that is a byte of such a value. */
#define PATTERN_ANY	  '\x01'
#define PATTERN_ONE	  '\x02'
#define PATTERN_VAR_BEGIN '\x03'
#define PATTERN_VAR_END	  '\x04'
#define PATTERN_LITERAL	  '\x05'

struct policy_pattern {
	struct slice text;
	bool has_variable;
};

enum policy_operator {
	OP_STRING_EQUALS,
	OP_STRING_EQUALS_NOCASE,
	OP_STRING_LIKE,
	OP_NUMERIC_EQUALS,
	OP_NUMERIC_LESS,
	OP_NUMERIC_LESS_EQUALS,
	OP_NUMERIC_GREATER,
	OP_NUMERIC_GREATER_EQUALS,
	OP_DATE_EQUALS,
	OP_DATE_LESS,
	OP_DATE_LESS_EQUALS,
	OP_DATE_GREATER,
	OP_DATE_GREATER_EQUALS,
	OP_BOOL,
	OP_BINARY_EQUALS,
	OP_IP_ADDRESS,
	OP_ARN_LIKE,
	OP_NULL,
};
enum policy_quantifier { QUANTIFIER_NONE, QUANTIFIER_ANY, QUANTIFIER_ALL };

struct policy_condition {
	enum policy_operator op;
	enum policy_quantifier quantifier;
	bool negated, if_exists;
	struct slice key;
	struct policy_pattern *values;
	uint32_t value_count;
};

enum principal_kind {
	PRINCIPAL_ANYBODY,
	PRINCIPAL_AWS,
	PRINCIPAL_CANONICAL,
	PRINCIPAL_SERVICE,
	PRINCIPAL_FEDERATED
};
struct policy_who {
	enum principal_kind kind;
	struct slice text;
};

struct policy_list {
	struct policy_pattern *items;
	uint32_t count;
	bool negated; /* NotAction, NotResource */
	bool given;
};
struct policy_statement {
	struct policy_statement *next;
	struct slice sid;
	bool deny;
	bool not_principal;
	struct policy_who *who;
	uint32_t who_count;
	struct policy_list actions, resources;
	struct policy_condition *conditions;
	uint32_t condition_count;
};
struct policy {
	enum policy_kind kind;
	struct policy_statement *statements;
};

/* Whether the condition's values have wildcards. */
static inline bool policy_op_is_wild(enum policy_operator op)
{
	return op == OP_STRING_LIKE || op == OP_ARN_LIKE;
}
/* Takes steps of a comparison from those that are left; false: none are left. */
bool policy_spend(uint64_t *left, uint64_t steps);
/* Whether text matches the pattern, which has no variables; false when no steps are left. */
bool policy_glob(struct slice pattern, struct slice text, bool nocase, uint64_t *left);
/* Whether a value of a request satisfies the condition's value; false when no steps are left. */
bool policy_compare(
	enum policy_operator op, struct slice wanted, struct slice value, uint64_t *left);
/* "192.0.2.0/24", or one address. */
struct policy_range {
	uint8_t bytes[16];
	uint32_t bits; /* of the address: 32 or 128 */
	uint32_t prefix;
};
bool policy_range_parse(struct slice text, struct policy_range *ret_range);
bool policy_range_within(const struct policy_range *network, const struct policy_range *range);
/* Whether a condition's value is a valid number, date or address for its operator. */
bool policy_value_valid(enum policy_operator op, struct slice wanted);
/* Whether the values of a condition's key are names of KMS keys. */
bool policy_is_kms_key(struct slice key);
/* The part of a condition's value that is compared with a KMS key's id: behind ":key/", or all. */
struct slice policy_kms_pattern(struct slice text);
/* The ARN, in the buffer, by which a key's id is compared with a compiled pattern of ARNs: its
 * partition, region and account are as in the pattern. The id, for a pattern of ids. */
struct slice policy_kms_arn(struct slice pattern, struct slice id, char *buffer, size_t size);

#endif
