/* iam/policy_check.c: checks of a policy at its PUT, beyond well-formedness: its actions and
 * condition keys must exist, and its resources must fit the actions. A stored policy is not checked
 * again, because the set of known names grows. The error texts are AWS's. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "iam/policy_priv.h"

#define ARN_OF_S3     "arn:aws:s3:::"
#define ARN_BYTES_MAX (sizeof(ARN_OF_S3) + LIMIT_BUCKET_LEN_MAX + 1)

enum on { NOTHING = 0, BUCKET = 1, OBJECT = 2 };

static const struct {
	struct slice name;
	enum on on;
} actions[] = {
#define ACTION(action_name, action_on) {SLICE(action_name), action_on},
#define KEY(key_name)
#include "iam/policy_known.inc"
#undef ACTION
#undef KEY
};

static const struct slice keys[] = {
#define ACTION(action_name, action_on)
#define KEY(key_name) SLICE(key_name),
#include "iam/policy_known.inc"
#undef ACTION
#undef KEY
};

static __attribute__((format(printf, 2, 3))) int refuse(
	struct policy_refusal *refusal, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(refusal->text, sizeof(refusal->text), fmt, args);
	va_end(args);
	return -EINVAL;
}

/* ---- Policies of buckets. ---- */

/* Whether some text that begins with this one fits the pattern. fits[i]: the pattern up to the
 * current position fits the first i bytes. */
static bool can_begin(struct slice pattern, struct slice text)
{
	bool fits[ARN_BYTES_MAX + 1] = {true};

	CHECK(text.len <= ARN_BYTES_MAX);
	for (size_t at = 0; at < pattern.len && !fits[text.len]; at++) {
		char c = pattern.data[at];

		if (c == PATTERN_ANY) {
			for (size_t i = 1; i <= text.len; i++)
				fits[i] |= fits[i - 1];
			continue;
		}
		for (size_t i = text.len; i > 0; i--)
			fits[i] = fits[i - 1] && (c == PATTERN_ONE || c == text.data[i - 1]);
		fits[0] = false;
	}
	return fits[text.len];
}

static bool glob(struct slice pattern, struct slice text, bool nocase)
{
	uint64_t steps = POLICY_STEPS_MAX;

	return policy_glob(pattern, text, nocase, &steps);
}

/* The kinds of a resource: the bucket, objects in it, both. */
static unsigned resource_on(const struct policy_pattern *resource, struct slice bucket)
{
	char text[ARN_BYTES_MAX];
	size_t len;

	if (resource->has_variable)
		return BUCKET | OBJECT;
	len = (size_t)snprintf(text, sizeof(text), ARN_OF_S3 "%.*s", SLICE_FMT(bucket));
	CHECK(len + 1 < sizeof(text));
	text[len] = '/';
	return (glob(resource->text, slice_of(text, len), false) ? BUCKET : NOTHING) |
	       (can_begin(resource->text, slice_of(text, len + 1)) ? OBJECT : NOTHING);
}

bool policy_is_of_bucket(const struct policy *policy, struct slice bucket)
{
	for (const struct policy_statement *at = policy->statements; at; at = at->next)
		for (uint32_t i = 0; i < at->resources.count; i++)
			if (!resource_on(&at->resources.items[i], bucket))
				return false;
	return true;
}

/* Checks that an action of the statement applies to its resources. */
static int check_action(const struct policy_statement *statement,
	const struct policy_pattern *action, unsigned on, struct policy_refusal *refusal)
{
	bool found = false, applies = false;

	for (size_t i = 0; i < ARRAY_LEN(actions) && !action->has_variable && !applies; i++) {
		if (!glob(action->text, actions[i].name, true))
			continue;
		found = true;
		applies |= (actions[i].on & on) != 0;
	}
	if (!found)
		return refuse(refusal, "Policy has invalid action");
	if (!applies && !statement->actions.negated)
		return refuse(refusal, "Action does not apply to any resource(s) in statement");
	return 0;
}

static bool is_known_key(struct slice key)
{
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		bool family = slice_ends(keys[i], SLICE("/"));

		if (family ? key.len > keys[i].len && slice_starts(key, keys[i])
			   : slice_eq(key, keys[i]))
			return true;
	}
	return false;
}

/* Principals are compared literally: one with a wildcard, or of another service, matches nobody. */
static bool can_be_principal(const struct policy_who *who)
{
	if (who->kind != PRINCIPAL_AWS)
		return true;
	if (memchr(who->text.data, '*', who->text.len) ||
		memchr(who->text.data, '?', who->text.len))
		return false;
	return slice_find(who->text, SLICE(":")) < 0 ||
	       slice_starts(who->text, SLICE("arn:aws:iam::")) ||
	       slice_starts(who->text, SLICE("arn:aws:sts::"));
}

static int check_principals(
	const struct policy_statement *statement, struct policy_refusal *refusal)
{
	for (uint32_t i = 0; i < statement->who_count; i++)
		if (!can_be_principal(&statement->who[i]))
			return refuse(refusal, "Invalid principal in policy");
	return 0;
}

static int check_statement(const struct policy_statement *statement, struct slice bucket,
	struct policy_refusal *refusal)
{
	unsigned on = statement->resources.negated ? BUCKET | OBJECT : NOTHING;
	int ret = check_principals(statement, refusal);

	for (uint32_t i = 0; i < statement->resources.count; i++)
		on |= resource_on(&statement->resources.items[i], bucket);
	for (uint32_t i = 0; i < statement->actions.count && !ret; i++)
		ret = check_action(statement, &statement->actions.items[i], on, refusal);
	for (uint32_t i = 0; i < statement->condition_count && !ret; i++)
		if (!is_known_key(statement->conditions[i].key))
			ret = refuse(refusal, "Policy has an invalid condition key");
	return ret;
}

int policy_check_bucket(
	const struct policy *policy, struct slice bucket, struct policy_refusal *ret_refusal)
{
	int ret = 0;

	if (!policy_is_of_bucket(policy, bucket))
		return refuse(ret_refusal, "Policy has invalid resource");
	for (const struct policy_statement *at = policy->statements; at && !ret; at = at->next)
		ret = check_statement(at, bucket, ret_refusal);
	return ret;
}

/* ---- Other policies: actions of all services, also of services that this server lacks. ----
 */

static int check_vendor(struct slice text, struct policy_refusal *refusal)
{
	struct slice rest = text, vendor = slice_split(&rest, ':');

	if (!rest.len || !vendor.len)
		return refuse(refusal, "Actions/Conditions must be prefaced by a vendor, e.g., "
				       "iam, sdb, ec2, etc.");
	if (!slice_is_word(vendor, "-"))
		return refuse(refusal, "The vendor of an action has a character that none has");
	return 0;
}

static bool is_anything(const struct policy_pattern *pattern)
{
	return pattern->text.len == 1 && pattern->text.data[0] == PATTERN_ANY;
}

static int check_trust(const struct policy_pattern *action, struct policy_refusal *refusal)
{
	static const struct slice known[] = {SLICE("sts:AssumeRole"),
		SLICE("sts:AssumeRoleWithSAML"), SLICE("sts:AssumeRoleWithWebIdentity"),
		SLICE("sts:SetContext"), SLICE("sts:SetSourceIdentity"), SLICE("sts:TagSession")};

	for (size_t i = 0; i < ARRAY_LEN(known) && !is_anything(action); i++)
		if (glob(action->text, known[i], true))
			return 0;
	return refuse(refusal, "AssumeRole policy may only specify STS AssumeRole actions.");
}

static int check_any(const struct policy *policy, const struct policy_statement *statement,
	struct policy_refusal *refusal)
{
	int ret = check_principals(statement, refusal);

	for (uint32_t i = 0; i < statement->actions.count && !ret; i++) {
		const struct policy_pattern *action = &statement->actions.items[i];

		if (policy->kind == POLICY_TRUST)
			ret = check_trust(action, refusal);
		else if (!is_anything(action))
			ret = check_vendor(action->text, refusal);
	}
	for (uint32_t i = 0; i < statement->resources.count && !ret; i++)
		if (!is_anything(&statement->resources.items[i]) &&
			!slice_starts(statement->resources.items[i].text, SLICE("arn:")))
			ret = refuse(refusal, "Resource must be in ARN format or \"*\".");
	for (uint32_t i = 0; i < statement->condition_count && !ret; i++) {
		struct slice rest = statement->conditions[i].key;

		slice_split(&rest, ':');
		if (!rest.len)
			ret = check_vendor(SLICE(""), refusal);
	}
	return ret;
}

int policy_check_document(const struct policy *policy, struct policy_refusal *ret_refusal)
{
	int ret = 0;

	for (const struct policy_statement *at = policy->statements; at && !ret; at = at->next)
		ret = check_any(policy, at, ret_refusal);
	return ret;
}
