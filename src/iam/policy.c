/* iam/policy.c: compiles the JSON of a policy into the form that policy_decide.c evaluates. */
#include "iam/policy_priv.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>

#define POLICY_DEPTH_MAX 16u

struct compile {
	struct mem_arena *arena;
	struct policy *policy;
	struct policy_refusal *refusal;
	bool variables; /* only Version 2012-10-17 has them */
};

/* Records why it is not a policy; -EINVAL. */
static int refuse(struct compile *compile, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static int refuse(struct compile *compile, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(compile->refusal->text, sizeof(compile->refusal->text), fmt, args);
	va_end(args);
	return -EINVAL;
}

static struct slice string_of(const json_t *value)
{
	return slice_of(json_string_value(value), json_string_length(value));
}

/* "${name}" becomes a variable; "${*}", "${?}" and "${$}" are the characters themselves. Writes at
 * *at and returns how much of text it took; 0: not a variable. */
static size_t put_variable(struct slice text, char **at, bool *has_variable)
{
	const char *end;
	struct slice name;

	if (text.len < 4 || text.data[1] != '{')
		return 0;
	end = memchr(text.data, '}', text.len);
	if (!end)
		return 0;
	name = slice_of(text.data + 2, (size_t)(end - text.data) - 2);
	if (name.len == 1 && strchr("*?$", name.data[0])) {
		*(*at)++ = name.data[0];
	} else {
		*has_variable = true;
		*(*at)++ = PATTERN_VAR_BEGIN;
		memcpy(*at, name.data, name.len);
		*at += name.len;
		*(*at)++ = PATTERN_VAR_END;
	}
	return name.len + 3;
}

/* wild: "*" and "?" are wildcards. */
static int pattern_make(
	struct compile *compile, struct slice text, bool wild, struct policy_pattern *ret_pattern)
{
	char *at, *start = mem_arena_get(compile->arena, text.len + 1);

	if (!start)
		return -ENOMEM;
	at = start;
	ret_pattern->has_variable = false;
	for (size_t i = 0; i < text.len;) {
		char c = text.data[i];
		size_t taken = 0;

		if (c >= PATTERN_ANY && c <= PATTERN_LITERAL)
			return refuse(compile, "A text has a control character");
		if (c == '$' && compile->variables)
			taken = put_variable(slice_from(text, i), &at, &ret_pattern->has_variable);
		if (!taken) {
			*at++ = !wild || (c != '*' && c != '?') ? c
				: c == '*'			? PATTERN_ANY
								: PATTERN_ONE;
			taken = 1;
		}
		i += taken;
	}
	ret_pattern->text = slice_of(start, (size_t)(at - start));
	return 0;
}

/* A value is a string or a list of strings: their count, and each. */
static size_t many_count(const json_t *value)
{
	return json_is_array(value) ? json_array_size(value) : 1;
}

static const json_t *many_at(const json_t *value, size_t idx)
{
	return json_is_array(value) ? json_array_get(value, idx) : value;
}

static int list_make(
	struct compile *compile, const json_t *value, const char *what, struct policy_list *list)
{
	size_t count = many_count(value);

	if (!count)
		return refuse(compile, "%s is empty", what);
	list->items = mem_arena_get(compile->arena, count * sizeof(*list->items));
	if (!list->items)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		const json_t *one = many_at(value, i);
		int ret;

		if (!json_is_string(one) || !json_string_length(one))
			return refuse(compile, "%s must be a text or a list of texts", what);
		ret = pattern_make(compile, string_of(one), true, &list->items[i]);
		if (ret)
			return ret;
	}
	list->count = (uint32_t)count;
	list->given = true;
	return 0;
}

/* Reads "Action" or "NotAction": exactly one of the two. */
static int either_list(struct compile *compile, const json_t *object, const char *name,
	const char *not_name, struct policy_list *list)
{
	const json_t *plain = json_object_get(object, name);
	const json_t *negated = json_object_get(object, not_name);

	if (plain && negated)
		return refuse(compile, "A statement cannot have both %s and %s", name, not_name);
	if (!plain && !negated)
		return 0;
	list->negated = negated != NULL;
	return list_make(compile, plain ? plain : negated, plain ? name : not_name, list);
}

/* ---- Principals. ---- */

static int who_add(struct compile *compile, struct policy_statement *statement,
	enum principal_kind kind, const json_t *value)
{
	size_t count = many_count(value);
	struct policy_who *grown =
		mem_arena_get(compile->arena, (statement->who_count + count) * sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	if (statement->who_count)
		memcpy(grown, statement->who, statement->who_count * sizeof(*grown));
	statement->who = grown;
	for (size_t i = 0; i < count; i++) {
		const json_t *one = many_at(value, i);
		struct policy_who *who = &grown[statement->who_count++];

		if (!json_is_string(one) || !json_string_length(one))
			return refuse(compile, "Invalid principal in policy");
		who->kind = kind;
		who->text = mem_arena_copy(compile->arena, string_of(one));
		if (!who->text.data)
			return -ENOMEM;
		if (kind == PRINCIPAL_AWS && slice_eq(who->text, SLICE("*")))
			who->kind = PRINCIPAL_ANYBODY;
	}
	return 0;
}

static int principal_kind_of(const char *name, enum principal_kind *ret_kind)
{
	static const char *const names[] = {
		[PRINCIPAL_AWS] = "AWS",
		[PRINCIPAL_CANONICAL] = "CanonicalUser",
		[PRINCIPAL_SERVICE] = "Service",
		[PRINCIPAL_FEDERATED] = "Federated",
	};

	for (int kind = PRINCIPAL_AWS; kind <= PRINCIPAL_FEDERATED; kind++)
		if (strcmp(names[kind], name) == 0) {
			*ret_kind = (enum principal_kind)kind;
			return 0;
		}
	return -EINVAL;
}

static int principals_make(
	struct compile *compile, const json_t *object, struct policy_statement *statement)
{
	const json_t *plain = json_object_get(object, "Principal");
	const json_t *negated = json_object_get(object, "NotPrincipal");
	const json_t *value, *given = plain ? plain : negated;
	enum principal_kind kind;
	const char *name;
	int ret;

	if (compile->policy->kind == POLICY_IDENTITY)
		return given ? refuse(compile, "A policy of an identity names no Principal") : 0;
	if (!given || (plain && negated))
		return refuse(compile, "Missing required field Principal");
	if (negated && !statement->deny)
		return refuse(compile, "Allow with NotPrincipal is not allowed");
	statement->not_principal = negated != NULL;
	if (json_is_string(given))
		return strcmp(json_string_value(given), "*") == 0
			       ? who_add(compile, statement, PRINCIPAL_AWS, given)
			       : refuse(compile, "Invalid principal in policy");
	if (!json_is_object(given) || !json_object_size(given))
		return refuse(compile, "Invalid principal in policy");
	json_object_foreach((json_t *)given, name, value)
	{
		if (principal_kind_of(name, &kind))
			return refuse(compile, "Invalid principal in policy");
		ret = who_add(compile, statement, kind, value);
		if (ret)
			return ret;
	}
	return 0;
}

/* ---- Conditions. ---- */

static const struct {
	const char *name;
	enum policy_operator op;
	bool negated;
} operators[] = {
	{"StringEquals", OP_STRING_EQUALS, false},
	{"StringNotEquals", OP_STRING_EQUALS, true},
	{"StringEqualsIgnoreCase", OP_STRING_EQUALS_NOCASE, false},
	{"StringNotEqualsIgnoreCase", OP_STRING_EQUALS_NOCASE, true},
	{"StringLike", OP_STRING_LIKE, false},
	{"StringNotLike", OP_STRING_LIKE, true},
	{"NumericEquals", OP_NUMERIC_EQUALS, false},
	{"NumericNotEquals", OP_NUMERIC_EQUALS, true},
	{"NumericLessThan", OP_NUMERIC_LESS, false},
	{"NumericLessThanEquals", OP_NUMERIC_LESS_EQUALS, false},
	{"NumericGreaterThan", OP_NUMERIC_GREATER, false},
	{"NumericGreaterThanEquals", OP_NUMERIC_GREATER_EQUALS, false},
	{"DateEquals", OP_DATE_EQUALS, false},
	{"DateNotEquals", OP_DATE_EQUALS, true},
	{"DateLessThan", OP_DATE_LESS, false},
	{"DateLessThanEquals", OP_DATE_LESS_EQUALS, false},
	{"DateGreaterThan", OP_DATE_GREATER, false},
	{"DateGreaterThanEquals", OP_DATE_GREATER_EQUALS, false},
	{"Bool", OP_BOOL, false},
	{"BinaryEquals", OP_BINARY_EQUALS, false},
	{"IpAddress", OP_IP_ADDRESS, false},
	{"NotIpAddress", OP_IP_ADDRESS, true},
	{"ArnEquals", OP_ARN_LIKE, false},
	{"ArnNotEquals", OP_ARN_LIKE, true},
	{"ArnLike", OP_ARN_LIKE, false},
	{"ArnNotLike", OP_ARN_LIKE, true},
	{"Null", OP_NULL, false},
};

static int operator_parse(
	struct compile *compile, const char *text, struct policy_condition *condition)
{
	struct slice name = slice_str(text);

	if (slice_starts(name, SLICE("ForAllValues:"))) {
		condition->quantifier = QUANTIFIER_ALL;
		name = slice_from(name, strlen("ForAllValues:"));
	} else if (slice_starts(name, SLICE("ForAnyValue:"))) {
		condition->quantifier = QUANTIFIER_ANY;
		name = slice_from(name, strlen("ForAnyValue:"));
	}
	if (slice_ends(name, SLICE("IfExists")) && !slice_eq(name, SLICE("IfExists"))) {
		condition->if_exists = true;
		name.len -= strlen("IfExists");
	}
	for (size_t i = 0; i < sizeof(operators) / sizeof(operators[0]); i++) {
		if (!slice_eq_nocase(name, slice_str(operators[i].name)))
			continue;
		condition->op = operators[i].op;
		condition->negated = operators[i].negated;
		return 0;
	}
	return refuse(compile, "Invalid Condition type : %.64s", text);
}

/* The value of a condition as text: JSON may write it as a number or a boolean. */
static int value_text(const json_t *value, char small[32], struct slice *ret_text)
{
	if (json_is_string(value)) {
		*ret_text = string_of(value);
		return 0;
	}
	if (json_is_boolean(value))
		*ret_text = json_is_true(value) ? SLICE("true") : SLICE("false");
	else if (json_is_integer(value))
		*ret_text = slice_of(small,
			(size_t)snprintf(small, 32, "%lld", (long long)json_integer_value(value)));
	else if (json_is_real(value))
		*ret_text = slice_of(
			small, (size_t)snprintf(small, 32, "%.15g", json_real_value(value)));
	else
		return -EINVAL;
	return 0;
}

static int condition_values(
	struct compile *compile, const json_t *value, struct policy_condition *condition)
{
	bool wild = policy_op_is_wild(condition->op);
	size_t count = many_count(value);

	condition->values = mem_arena_get(compile->arena, (count + 1) * sizeof(*condition->values));
	if (!condition->values)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		struct policy_pattern *pattern = &condition->values[i];
		struct slice text;
		char small[32];
		int ret;

		if (value_text(many_at(value, i), small, &text))
			return refuse(compile, "A value of a Condition must be a text");
		if (policy_is_kms_key(condition->key))
			text = policy_kms_pattern(text);
		ret = pattern_make(compile, text, wild, pattern);
		if (ret)
			return ret;
		if (!pattern->has_variable && !policy_value_valid(condition->op, pattern->text))
			return refuse(
				compile, "A value of a Condition is not of its operator's kind");
	}
	condition->value_count = (uint32_t)count;
	return 0;
}

/* Keys are compared without case, except the tag's name behind a slash. */
static struct slice key_make(struct compile *compile, const char *text)
{
	struct slice key = mem_arena_copy(compile->arena, slice_str(text));
	char *at = (char *)key.data;

	for (size_t i = 0; key.data && i < key.len && at[i] != '/'; i++)
		if (at[i] >= 'A' && at[i] <= 'Z')
			at[i] = (char)(at[i] + 'a' - 'A');
	return key;
}

static int conditions_make(
	struct compile *compile, const json_t *object, struct policy_statement *statement)
{
	json_t *all = json_object_get(object, "Condition"), *keys, *value;
	const char *name, *key;
	size_t count = 0;

	if (!all)
		return 0;
	if (!json_is_object(all))
		return refuse(compile, "Condition must be an object");
	json_object_foreach(all, name, keys)
	{
		if (!json_is_object(keys))
			return refuse(compile, "Condition %.64s must be an object", name);
		count += json_object_size(keys);
	}
	statement->conditions =
		mem_arena_get(compile->arena, (count + 1) * sizeof(*statement->conditions));
	if (!statement->conditions)
		return -ENOMEM;
	json_object_foreach(all, name, keys)
	{
		json_object_foreach(keys, key, value)
		{
			struct policy_condition *condition =
				&statement->conditions[statement->condition_count++];
			int ret;

			*condition = (struct policy_condition){.key = key_make(compile, key)};
			if (!condition->key.data)
				return -ENOMEM;
			ret = operator_parse(compile, name, condition);
			if (condition->op == OP_ARN_LIKE && policy_is_kms_key(condition->key))
				condition->op = OP_STRING_LIKE;
			if (!ret)
				ret = condition_values(compile, value, condition);
			if (ret)
				return ret;
		}
	}
	return 0;
}

/* ---- Statements. ---- */

static int check_elements(struct compile *compile, const json_t *object)
{
	static const char *const known[] = {"Sid", "Effect", "Principal", "NotPrincipal", "Action",
		"NotAction", "Resource", "NotResource", "Condition"};
	const json_t *value;
	const char *name;

	json_object_foreach((json_t *)object, name, value)
	{
		bool found = false;

		for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
			found |= strcmp(known[i], name) == 0;
		if (!found)
			return refuse(compile, "Policy has unknown element %.64s", name);
	}
	return 0;
}

/* Two statements of a bucket's policy may have one Sid: no call finds a statement by its Sid. */
static int check_sid(struct compile *compile, struct policy_statement *statement)
{
	if (compile->policy->kind == POLICY_RESOURCE)
		return 0;
	for (const struct policy_statement *at = compile->policy->statements; at; at = at->next)
		if (statement->sid.len && slice_eq(at->sid, statement->sid))
			return refuse(compile, "Statement IDs (SID) in a policy must be unique");
	return 0;
}

static int resources_make(
	struct compile *compile, const json_t *object, struct policy_statement *statement)
{
	int ret = either_list(compile, object, "Resource", "NotResource", &statement->resources);

	if (ret)
		return ret;
	if (compile->policy->kind == POLICY_TRUST)
		return statement->resources.given
			       ? refuse(compile, "A trust policy names no Resource")
			       : 0;
	return statement->resources.given ? 0 : refuse(compile, "Missing required field Resource");
}

static int statement_make(struct compile *compile, const json_t *object)
{
	struct policy_statement *statement = mem_arena_get(compile->arena, sizeof(*statement));
	const json_t *sid = json_object_get(object, "Sid");
	const char *effect = json_string_value(json_object_get(object, "Effect"));
	int ret;

	if (!statement)
		return -ENOMEM;
	*statement = (struct policy_statement){0};
	if (!json_is_object(object))
		return refuse(compile, "A statement must be an object");
	if (!effect || (strcmp(effect, "Allow") != 0 && strcmp(effect, "Deny") != 0))
		return refuse(compile, "Invalid effect");
	if (sid && !json_is_string(sid))
		return refuse(compile, "Invalid Sid");
	if (sid)
		statement->sid = mem_arena_copy(compile->arena, string_of(sid));
	statement->deny = effect[0] == 'D';
	ret = check_elements(compile, object);
	if (!ret)
		ret = check_sid(compile, statement);
	if (!ret)
		ret = principals_make(compile, object, statement);
	if (!ret)
		ret = either_list(compile, object, "Action", "NotAction", &statement->actions);
	if (!ret && !statement->actions.given)
		ret = refuse(compile, "Missing required field Action");
	if (!ret)
		ret = resources_make(compile, object, statement);
	if (!ret)
		ret = conditions_make(compile, object, statement);
	if (!ret) {
		statement->next = compile->policy->statements;
		compile->policy->statements = statement;
	}
	return ret;
}

static int document_make(struct compile *compile, const json_t *root)
{
	const json_t *version = json_object_get(root, "Version"), *value;
	const json_t *statements = json_object_get(root, "Statement");
	const char *name;
	size_t count = statements ? many_count(statements) : 0;

	if (!json_is_object(root))
		return refuse(
			compile, "Policies must be valid JSON and the first byte must be '{'");
	json_object_foreach((json_t *)root, name,
		value) if (strcmp(name, "Version") != 0 && strcmp(name, "Id") != 0 &&
			   strcmp(name, "Statement") != 0) return refuse(compile,
		"Policy has unknown element %.64s", name);
	if (version && (!json_is_string(version) ||
			       (strcmp(json_string_value(version), "2012-10-17") != 0 &&
				       strcmp(json_string_value(version), "2008-10-17") != 0)))
		return refuse(compile, "The policy must contain a valid version string");
	compile->variables = version && strcmp(json_string_value(version), "2012-10-17") == 0;
	if (!statements)
		return refuse(compile, "Missing required field Statement");
	if (!count)
		return refuse(compile, "Could not parse the policy: Statement is empty");
	if (count > POLICY_STATEMENTS_MAX)
		return refuse(compile, "A policy has at most %u statements", POLICY_STATEMENTS_MAX);
	for (size_t i = 0; i < count; i++) {
		int ret = statement_make(compile, many_at(statements, i));

		if (ret)
			return ret;
	}
	return 0;
}

int policy_compile(struct slice text, enum policy_kind kind, struct mem_arena *arena,
	const struct policy **ret_policy, struct policy_refusal *ret_refusal)
{
	struct compile compile = {.arena = arena, .refusal = ret_refusal};
	json_error_t error;
	json_t *root;
	int ret;

	if (text.len > POLICY_BYTES_MAX)
		return refuse(&compile, "A policy has at most %llu bytes", POLICY_BYTES_MAX);
	if (!json_is_flat(text, POLICY_DEPTH_MAX))
		return refuse(
			&compile, "A policy nests no deeper than %u levels", POLICY_DEPTH_MAX);
	root = json_loadb(text.data ? text.data : "", text.len, JSON_REJECT_DUPLICATES, &error);
	if (!root)
		return refuse(&compile, "%s",
			slice_starts(slice_trim(text), SLICE("{"))
				? "This policy contains invalid Json"
				: "Policies must be valid JSON and the first byte must be '{'");
	compile.policy = mem_arena_get(arena, sizeof(*compile.policy));
	if (compile.policy) {
		*compile.policy = (struct policy){.kind = kind};
		ret = document_make(&compile, root);
	} else {
		ret = -ENOMEM;
	}
	json_decref(root);
	if (!ret)
		*ret_policy = compile.policy;
	return ret;
}
