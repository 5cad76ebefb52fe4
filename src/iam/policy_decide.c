/* iam/policy_decide.c: evaluates a compiled policy for a question. */
#include "iam/policy_priv.h"

#define EXPANDED_BYTES_MAX (128 * KIB) /* each byte of a value may be marked as literal */
#define EXPANSION_STEPS	   256u	       /* memory, the request's values */

/* Appends a value, in which no byte is a wildcard. */
static void put_literal(struct slice value, struct buf *out)
{
	static const char mark = PATTERN_LITERAL;
	size_t plain = 0;

	for (size_t i = 0; i < value.len; i++) {
		char c = value.data[i];

		if (c != PATTERN_ANY && c != PATTERN_ONE && c != PATTERN_LITERAL)
			continue;
		buf_put(out, value.data + plain, i - plain);
		buf_put(out, &mark, 1);
		plain = i;
	}
	buf_put_slice(out, slice_from(value, plain));
}

/* Replaces a pattern's variables by the request's values. False: a variable has no value or
 * several, or the text grows too long; the pattern then fits nothing. wild: the pattern has
 * wildcards. */
static bool expand(
	const struct policy_question *question, struct slice pattern, bool wild, struct buf *out)
{
	if (!policy_spend(question->steps_left, EXPANSION_STEPS + pattern.len))
		return false;
	while (pattern.len) {
		const char *begin = memchr(pattern.data, PATTERN_VAR_BEGIN, pattern.len);
		size_t plain = begin ? (size_t)(begin - pattern.data) : pattern.len;
		struct slice name, value, preset = SLICE_NONE;
		ptrdiff_t comma;

		buf_put(out, pattern.data, plain);
		if (!begin)
			break;
		pattern = slice_from(pattern, plain + 1);
		name = slice_split(&pattern, PATTERN_VAR_END);
		comma = slice_find(name, SLICE(","));
		if (comma >= 0) {
			/* ${key, 'value when there is none'} */
			preset = slice_trim(slice_from(name, (size_t)comma + 1));
			name = slice_trim(slice_to(name, (size_t)comma));
		}
		if (question->values(question->arg, name, &value, 1) != 1) {
			if (preset.len < 2)
				return false;
			value = slice_of(preset.data + 1, preset.len - 2);
		}
		if (wild)
			put_literal(value, out);
		else
			buf_put_slice(out, value);
	}
	return !out->failed;
}

enum fit { FIT_NO, FIT_YES, FIT_UNKNOWN };

/* Unknown when a variable has no value: then neither an Allow nor a Deny applies, as in IAM. */
static enum fit pattern_fits(const struct policy_question *question,
	const struct policy_pattern *pattern, struct slice text, bool nocase)
{
	struct buf expanded;
	enum fit fit = FIT_UNKNOWN;

	if (!pattern->has_variable)
		return policy_glob(pattern->text, text, nocase, question->steps_left) ? FIT_YES
										      : FIT_NO;
	buf_init(&expanded, EXPANDED_BYTES_MAX);
	if (expand(question, pattern->text, true, &expanded))
		fit = policy_glob(buf_slice(&expanded), text, nocase, question->steps_left)
			      ? FIT_YES
			      : FIT_NO;
	buf_free(&expanded);
	return fit;
}

#define ARN_BYTES_MAX 1024u

/* An IAM name may leave out the account. It then means the caller's account: nobody can ask about
 * another account's names. */
static struct slice without_account(
	struct slice pattern, struct slice text, char *buffer, size_t size)
{
	static const struct slice start = SLICE("arn:aws:iam::"), bare = SLICE("arn:aws:iam:::");
	struct slice rest;
	ptrdiff_t colon;

	if (!slice_starts(pattern, bare) || !slice_starts(text, start))
		return text;
	rest = slice_from(text, start.len);
	colon = slice_find(rest, SLICE(":"));
	if (colon < 0)
		return text;
	rest = slice_from(rest, (size_t)colon + 1);
	if (bare.len + rest.len > size)
		return text;
	memcpy(buffer, bare.data, bare.len);
	slice_copy(rest, buffer + bare.len);
	return slice_of(buffer, bare.len + rest.len);
}

static bool list_fits(const struct policy_question *question, const struct policy_list *list,
	struct slice text, bool nocase)
{
	char bare[ARN_BYTES_MAX];
	bool found = false;

	if (!list->given)
		return true;
	for (uint32_t i = 0; i < list->count && !found; i++) {
		struct slice asked = without_account(list->items[i].text, text, bare, sizeof(bare));
		enum fit fit = pattern_fits(question, &list->items[i], asked, nocase);

		if (fit == FIT_UNKNOWN)
			return false;
		found = fit == FIT_YES;
	}
	return found != list->negated;
}

/* ---- Principals. ---- */

static bool is_digits(struct slice text)
{
	for (size_t i = 0; i < text.len; i++)
		if (text.data[i] < '0' || text.data[i] > '9')
			return false;
	return text.len > 0;
}

/* The account that an AWS principal names as a whole: its number, or the ARN of its root. */
static struct slice whole_account(struct slice text)
{
	static const struct slice start = SLICE("arn:aws:iam::"), end = SLICE(":root");

	if (slice_starts(text, start) && slice_ends(text, end) && text.len > start.len + end.len)
		return slice_of(text.data + start.len, text.len - start.len - end.len);
	if (is_digits(text) || slice_find(text, SLICE(":")) < 0)
		return text;
	return SLICE_NONE;
}

/* A policy may name a user that is an owner of its own without an account. */
static bool is_plain_user(struct slice text, const struct policy_principal *principal)
{
	static const struct slice start = SLICE("arn:aws:iam:::user/");

	return (principal->own || principal->root) && principal->owner.len &&
	       slice_starts(text, start) && slice_eq(slice_from(text, start.len), principal->owner);
}

static enum policy_decision who_fits(
	const struct policy_who *who, const struct policy_principal *principal)
{
	char bare[ARN_BYTES_MAX];
	struct slice account;

	switch (who->kind) {
	case PRINCIPAL_ANYBODY:
		/* An Allow for everybody is not meant for services. */
		return principal->service.len ? POLICY_DECISION_ACCOUNT : POLICY_DECISION_ALLOW;
	case PRINCIPAL_CANONICAL:
		if (!principal->owner.len || !slice_eq(who->text, principal->owner))
			return POLICY_DECISION_NONE;
		return principal->root || principal->own ? POLICY_DECISION_ALLOW
							 : POLICY_DECISION_ACCOUNT;
	case PRINCIPAL_SERVICE:
		return principal->service.len && slice_eq(who->text, principal->service)
			       ? POLICY_DECISION_ALLOW
			       : POLICY_DECISION_NONE;
	case PRINCIPAL_FEDERATED:
		return principal->federated.len && slice_eq(who->text, without_account(who->text,
									       principal->federated,
									       bare, sizeof(bare)))
			       ? POLICY_DECISION_ALLOW
			       : POLICY_DECISION_NONE;
	case PRINCIPAL_AWS:
		break;
	}
	if (principal->anonymous || principal->service.len || principal->federated.len)
		return POLICY_DECISION_NONE;
	if (slice_eq(who->text, principal->arn) ||
		(principal->role.len && slice_eq(who->text, principal->role)) ||
		(principal->user_id.len && slice_eq(who->text, principal->user_id)) ||
		is_plain_user(who->text, principal))
		return POLICY_DECISION_ALLOW;
	account = whole_account(who->text);
	if (account.len && slice_eq(account, principal->account))
		return principal->root ? POLICY_DECISION_ALLOW : POLICY_DECISION_ACCOUNT;
	return POLICY_DECISION_NONE;
}

static enum policy_decision principal_fits(
	const struct policy_statement *statement, const struct policy_principal *principal)
{
	enum policy_decision best = POLICY_DECISION_NONE;

	for (uint32_t i = 0; i < statement->who_count; i++) {
		enum policy_decision one = who_fits(&statement->who[i], principal);

		best = one > best ? one : best;
	}
	if (statement->not_principal)
		return best == POLICY_DECISION_NONE ? POLICY_DECISION_ALLOW : POLICY_DECISION_NONE;
	return best;
}

/* ---- Conditions. ---- */

/* Whether the request's value is the condition's, whose variables are expanded. */
static bool one_fits(const struct policy_question *question,
	const struct policy_condition *condition, struct slice wanted, struct slice value)
{
	char arn[ARN_BYTES_MAX];

	if (policy_is_kms_key(condition->key) && policy_op_is_wild(condition->op))
		value = policy_kms_arn(wanted, value, arn, sizeof(arn));
	return policy_compare(condition->op, wanted, value, question->steps_left);
}

/* Whether one value of the request is one of the condition's. */
static bool value_fits(const struct policy_question *question,
	const struct policy_condition *condition, struct slice value)
{
	for (uint32_t i = 0; i < condition->value_count; i++) {
		const struct policy_pattern *wanted = &condition->values[i];
		struct buf expanded;
		bool fits;

		if (!wanted->has_variable) {
			if (one_fits(question, condition, wanted->text, value))
				return true;
			continue;
		}
		buf_init(&expanded, EXPANDED_BYTES_MAX);
		fits = expand(question, wanted->text, policy_op_is_wild(condition->op),
			       &expanded) &&
		       one_fits(question, condition, buf_slice(&expanded), value);
		buf_free(&expanded);
		if (fits)
			return true;
	}
	return false;
}

static bool condition_holds(
	const struct policy_question *question, const struct policy_condition *condition)
{
	struct slice values[POLICY_VALUES_MAX];
	uint32_t count = question->values(question->arg, condition->key, values, POLICY_VALUES_MAX);
	uint32_t fitting = 0;

	if (condition->op == OP_NULL)
		return value_fits(question, condition, count ? SLICE("false") : SLICE("true"));
	if (!count) {
		if (condition->if_exists || condition->quantifier == QUANTIFIER_ALL)
			return true;
		return condition->negated && condition->quantifier == QUANTIFIER_NONE;
	}
	/* A condition never sees a part of the values: that could pass by a denial. */
	if (count > POLICY_VALUES_MAX) {
		*question->steps_left = 0;
		return false;
	}
	for (uint32_t i = 0; i < count; i++)
		fitting += value_fits(question, condition, values[i]) ? 1 : 0;
	switch (condition->quantifier) {
	case QUANTIFIER_ALL:
		return condition->negated ? fitting == 0 : fitting == count;
	case QUANTIFIER_ANY:
		return condition->negated ? fitting < count : fitting > 0;
	case QUANTIFIER_NONE:
		break;
	}
	return condition->negated ? fitting == 0 : fitting > 0;
}

/* ---- Statements. ---- */

static enum policy_decision statement_says(const struct policy *policy,
	const struct policy_statement *statement, const struct policy_question *question)
{
	enum policy_decision who = POLICY_DECISION_ALLOW;

	if (policy->kind != POLICY_IDENTITY)
		who = principal_fits(statement, question->principal);
	if (who == POLICY_DECISION_NONE ||
		!list_fits(question, &statement->actions, question->action, true) ||
		!list_fits(question, &statement->resources, question->resource, false))
		return POLICY_DECISION_NONE;
	for (uint32_t i = 0; i < statement->condition_count; i++)
		if (!condition_holds(question, &statement->conditions[i]))
			return POLICY_DECISION_NONE;
	return statement->deny ? POLICY_DECISION_DENY : who;
}

enum policy_decision policy_decide(
	const struct policy *policy, const struct policy_question *question)
{
	enum policy_decision decision = POLICY_DECISION_NONE;
	uint64_t steps = POLICY_STEPS_MAX;
	struct policy_question asked;

	if (!policy)
		return POLICY_DECISION_NONE;
	asked = *question;
	if (!asked.steps_left)
		asked.steps_left = &steps;
	for (const struct policy_statement *at = policy->statements; at; at = at->next) {
		enum policy_decision one = statement_says(policy, at, &asked);

		if (*asked.steps_left == 0) {
			log_limited(LOG_WARN, "iam",
				"a policy needs too many steps, or has too many values, to be "
				"compared with %.*s: it denies",
				SLICE_FMT(question->action));
			return POLICY_DECISION_DENY;
		}
		if (one == POLICY_DECISION_DENY)
			return POLICY_DECISION_DENY;
		decision = one > decision ? one : decision;
	}
	return decision;
}
