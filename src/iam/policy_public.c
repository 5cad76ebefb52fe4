/* iam/policy_public.c: whether a policy is public: grants access to everybody.
 *
 * Source: S3 User Guide, "Blocking public access to your Amazon S3 storage", "The meaning of
 * 'public'". */
#include "iam/policy_priv.h"

/* A policy is public if its address ranges together are larger than one range of these prefixes. */
#define PUBLIC_PREFIX_4 8u
#define PUBLIC_PREFIX_6 32u

#define SOURCE_IP SLICE("aws:sourceip")

/* Keys whose fixed values identify known callers. */
static bool is_narrow_key(struct slice key)
{
	static const struct slice keys[] = {SLICE("aws:sourceip"), SLICE("aws:sourcearn"),
		SLICE("aws:sourcevpc"), SLICE("aws:sourcevpce"), SLICE("aws:sourceaccount"),
		SLICE("aws:sourceowner"), SLICE("aws:principalorgid"), SLICE("aws:principalarn"),
		SLICE("aws:principalaccount"), SLICE("aws:userid"), SLICE("s3:dataaccesspointarn"),
		SLICE("s3:dataaccesspointaccount"),
		SLICE("s3:x-amz-server-side-encryption-aws-kms-key-id")};

	return slice_among(key, keys, ARRAY_LEN(keys));
}

/* Only an equality narrows: a condition like "greater than 0" fits all account numbers. */
static bool is_equality(enum policy_operator op)
{
	return op == OP_STRING_EQUALS || op == OP_STRING_EQUALS_NOCASE || op == OP_STRING_LIKE ||
	       op == OP_ARN_LIKE || op == OP_IP_ADDRESS || op == OP_BINARY_EQUALS ||
	       op == OP_NUMERIC_EQUALS;
}

static bool narrows(const struct policy_condition *condition)
{
	if (condition->negated || condition->if_exists || !is_equality(condition->op) ||
		condition->quantifier == QUANTIFIER_ALL || !is_narrow_key(condition->key))
		return false;
	for (uint32_t i = 0; i < condition->value_count; i++) {
		struct slice text = condition->values[i].text;

		if (condition->values[i].has_variable || !text.len ||
			memchr(text.data, PATTERN_ANY, text.len) ||
			memchr(text.data, PATTERN_ONE, text.len))
			return false;
	}
	return true;
}

static bool narrows_by_address(const struct policy_condition *condition)
{
	return condition->op == OP_IP_ADDRESS && slice_eq(condition->key, SOURCE_IP) &&
	       narrows(condition);
}

/* Whether the statement grants access to everybody, unless a condition on addresses narrows it. */
static bool is_open(const struct policy_statement *statement)
{
	bool anybody = statement->not_principal;

	for (uint32_t i = 0; i < statement->who_count; i++)
		anybody |= statement->who[i].kind == PRINCIPAL_ANYBODY;
	if (statement->deny || !anybody)
		return false;
	for (uint32_t i = 0; i < statement->condition_count; i++)
		if (narrows(&statement->conditions[i]) &&
			!narrows_by_address(&statement->conditions[i]))
			return false;
	return true;
}

/* ---- Ranges of addresses. ---- */

/* Addresses that do not exist on the internet. */
static bool is_private(const struct policy_range *range)
{
	static const char *const nets[] = {
		"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "fc00::/7"};

	for (size_t i = 0; i < ARRAY_LEN(nets); i++) {
		struct policy_range net;

		if (policy_range_parse(slice_str(nets[i]), &net) &&
			policy_range_within(&net, range))
			return true;
	}
	return false;
}

/* A range's position in the policy; the walk below visits the ranges in this order. */
struct place {
	const struct policy_statement *statement;
	uint32_t condition, value;
};

/* The next place at or behind this one that has a range of an open statement. */
static bool find_range(struct place *place, struct policy_range *ret_range)
{
	for (; place->statement; place->statement = place->statement->next, place->condition = 0) {
		if (!is_open(place->statement))
			continue;
		for (; place->condition < place->statement->condition_count;
			place->condition++, place->value = 0) {
			const struct policy_condition *condition =
				&place->statement->conditions[place->condition];

			if (!narrows_by_address(condition))
				continue;
			for (; place->value < condition->value_count; place->value++)
				if (policy_range_parse(
					    condition->values[place->value].text, ret_range))
					return true;
		}
		place->value = 0;
	}
	return false;
}

/* True for a range that is part of a wider one or a repetition. */
static bool is_counted(
	const struct policy *policy, const struct place *at, const struct policy_range *range)
{
	struct place place = {.statement = policy->statements};
	struct policy_range other;
	bool before = true;

	for (; find_range(&place, &other); place.value++) {
		before &= place.statement != at->statement || place.condition != at->condition ||
			  place.value != at->value;
		if ((before || other.prefix < range->prefix) && policy_range_within(&other, range))
			return true;
	}
	return false;
}

/* Adds up the ranges of all open statements: two halves of the internet are the internet. */
static bool ranges_are_broad(const struct policy *policy)
{
	struct place place = {.statement = policy->statements};
	double share_4 = 0, share_6 = 0; /* in units of the prefixes above */
	struct policy_range range;

	for (; find_range(&place, &range); place.value++) {
		uint32_t limit = range.bits == 32 ? PUBLIC_PREFIX_4 : PUBLIC_PREFIX_6;
		double *share = range.bits == 32 ? &share_4 : &share_6;

		if (is_private(&range) || is_counted(policy, &place, &range))
			continue;
		if (range.prefix < limit)
			return true;
		*share += 1.0 / (double)(1ull << MIN(range.prefix - limit, 63u));
	}
	return share_4 > 1.0 || share_6 > 1.0;
}

bool policy_is_public(const struct policy *policy)
{
	for (const struct policy_statement *at = policy->statements; at; at = at->next) {
		bool narrow = false;

		for (uint32_t i = 0; i < at->condition_count; i++)
			narrow |= narrows_by_address(&at->conditions[i]);
		if (is_open(at) && !narrow)
			return true;
	}
	return ranges_are_broad(policy);
}
