/* s3/auth/form_policy.c: the policy of a browser form: allowed fields, size limits, expiry. */
#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>

#include "s3/auth/form.h"

#define LIMIT_FORM_NUMBER "Invalid 'content-length-range' condition in the policy document."

struct check {
	const struct s3_form *form;
	struct slice bucket, key;
	bool named[S3_FORM_FIELDS_MAX]; /* fields that have a condition */
	bool bucket_named;
	struct s3_form_limits *limits;
	struct s3_form_refusal *refusal;
};

static bool malformed(struct check *check, const char *why)
{
	*check->refusal = (struct s3_form_refusal){.malformed = true, .why = why};
	return false;
}

/* Copies the condition's text into the refusal, because the condition ends with the policy. */
static __attribute__((format(printf, 3, 4))) bool refuse(
	struct check *check, const char *why, const char *condition, ...)
{
	char *text = check->refusal->condition;
	va_list args;

	*check->refusal = (struct s3_form_refusal){.why = why};
	va_start(args, condition);
	vsnprintf(text, sizeof(check->refusal->condition), condition, args);
	va_end(args);
	if (!utf8_is_valid(slice_str(text)))
		text[0] = '\0';
	return false;
}

/* AWS's wording. */
static bool not_met(struct check *check, const char *kind, struct slice name, struct slice wanted)
{
	return refuse(check, "Invalid according to Policy: Policy Condition failed",
		"[\"%s\", \"$%.*s\", \"%.*s\"]", kind, SLICE_FMT(slice_to(name, 100)),
		SLICE_FMT(slice_to(wanted, 100)));
}

static struct slice text_of(const json_t *json)
{
	return slice_of(json_string_value(json), json_string_length(json));
}

/* The form's value for a condition's name; marks the field as covered by the policy. */
static struct slice value_of(struct check *check, struct slice name)
{
	struct slice value = SLICE_NONE;

	for (uint32_t i = 0; i < check->form->count; i++) {
		if (!slice_eq_nocase(check->form->fields[i].name, name))
			continue;
		check->named[i] = true;
		if (!value.data)
			value = check->form->fields[i].value;
	}
	if (slice_eq_nocase(name, SLICE("bucket"))) {
		check->bucket_named = true;
		return check->bucket;
	}
	return slice_eq_nocase(name, SLICE("key")) ? check->key : value;
}

static bool check_equal(struct check *check, struct slice name, struct slice wanted)
{
	struct slice value = value_of(check, name);

	return value.data && slice_eq(value, wanted) ? true : not_met(check, "eq", name, wanted);
}

/* A Content-Type may be a list: each element must have the prefix. */
static bool check_starts(struct check *check, struct slice name, struct slice prefix)
{
	struct slice value = value_of(check, name);

	if (!value.data)
		return not_met(check, "starts-with", name, prefix);
	if (!slice_eq_nocase(name, SLICE("content-type")))
		return slice_starts(value, prefix) ? true
						   : not_met(check, "starts-with", name, prefix);
	do {
		struct slice one = slice_trim(slice_split(&value, ','));

		if (!slice_starts(one, prefix))
			return not_met(check, "starts-with", name, prefix);
	} while (value.len);
	return true;
}

static bool check_number(const json_t *json, uint64_t *ret_number)
{
	if (json_is_string(json))
		return slice_to_u64(text_of(json), ret_number) == 0;
	if (!json_is_integer(json) || json_integer_value(json) < 0)
		return false;
	*ret_number = (uint64_t)json_integer_value(json);
	return true;
}

/* ["eq", "$name", "value"], ["starts-with", …], ["content-length-range", from, to] */
static bool check_list(struct check *check, const json_t *list)
{
	struct slice what = text_of(json_array_get(list, 0)), name;
	uint64_t from, to;

	if (json_array_size(list) != 3 || !what.data)
		return malformed(check, "Invalid Policy: Invalid 'conditions' value.");
	if (slice_eq_nocase(what, SLICE("content-length-range"))) {
		if (!check_number(json_array_get(list, 1), &from) ||
			!check_number(json_array_get(list, 2), &to))
			return malformed(check, LIMIT_FORM_NUMBER);
		if (from > check->limits->bytes_min)
			check->limits->bytes_min = from;
		if (to < check->limits->bytes_max)
			check->limits->bytes_max = to;
		return true;
	}
	name = text_of(json_array_get(list, 1));
	if (name.len < 2 || name.data[0] != '$' || !json_is_string(json_array_get(list, 2)))
		return malformed(check, "Invalid Policy: Invalid 'conditions' value.");
	name = slice_from(name, 1);
	if (slice_eq_nocase(what, SLICE("eq")))
		return check_equal(check, name, text_of(json_array_get(list, 2)));
	if (slice_eq_nocase(what, SLICE("starts-with")))
		return check_starts(check, name, text_of(json_array_get(list, 2)));
	return malformed(check, "Invalid Policy: Invalid 'conditions' value.");
}

static bool check_condition(struct check *check, json_t *condition)
{
	const char *name;
	json_t *value;

	if (json_is_array(condition))
		return check_list(check, condition);
	if (!json_is_object(condition) || json_object_size(condition) != 1)
		return malformed(check,
			"Invalid Policy: Invalid Simple-Condition: Simple-Conditions must "
			"have exactly one property specified.");
	json_object_foreach(condition, name, value)
	{
		if (!json_is_string(value))
			return malformed(check,
				"Invalid Policy: Invalid Simple-Condition: value must be a "
				"string.");
		return check_equal(check, slice_str(name), text_of(value));
	}
	return false;
}

/* Fields that need no condition. */
static bool needs_no_condition(struct slice name)
{
	static const struct slice names[] = {SLICE("awsaccesskeyid"), SLICE("signature"),
		SLICE("policy"), SLICE("file"), SLICE("x-amz-signature"), SLICE("submit")};
	static const struct slice prefixes[] = {
		SLICE("x-ignore-"), SLICE("x-amz-checksum-"), SLICE("x-amz-sdk-checksum-")};

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (slice_eq_nocase(slice_to(name, prefixes[i].len), prefixes[i]))
			return true;
	return slice_among(name, names, sizeof(names) / sizeof(names[0]));
}

static bool is_repeated(const struct s3_form *form, uint32_t idx)
{
	for (uint32_t i = 0; i < idx; i++)
		if (slice_eq_nocase(form->fields[i].name, form->fields[idx].name))
			return true;
	return false;
}

/* A condition was checked against the first field of its name, so a second field of that name would
 * be unsigned. */
static bool check_extra(struct check *check)
{
	static const struct slice ignored = SLICE("x-ignore-");

	for (uint32_t i = 0; i < check->form->count; i++) {
		struct slice name = check->form->fields[i].name;

		if (is_repeated(check->form, i) && !slice_eq_nocase(slice_to(name, 9), ignored))
			return refuse(check, "Invalid according to Policy: Repeated input fields",
				"%.*s", SLICE_FMT(slice_to(name, 100)));
		if (check->named[i] || needs_no_condition(name))
			continue;
		return refuse(check, "Invalid according to Policy: Extra input fields", "%.*s",
			SLICE_FMT(slice_to(name, 100)));
	}
	return check->bucket_named ? true : not_met(check, "eq", SLICE("bucket"), check->bucket);
}

static bool check_expiration(struct check *check, const json_t *root, int64_t now_ms)
{
	const json_t *expiration = json_object_get(root, "expiration");
	int64_t end_ms;

	if (!json_is_string(expiration))
		return malformed(check, "Invalid Policy: Policy missing expiration.");
	if (date_iso_parse(text_of(expiration), &end_ms))
		return malformed(check, "Invalid Policy: Invalid 'expiration' value.");
	if (now_ms < end_ms)
		return true;
	*check->refusal =
		(struct s3_form_refusal){.why = "Invalid according to Policy: Policy expired."};
	return false;
}

static bool check_root(struct check *check, const json_t *root, int64_t now_ms)
{
	json_t *conditions = json_object_get(root, "conditions");

	if (!json_is_object(root))
		return malformed(check, "Invalid Policy: Invalid JSON.");
	if (!check_expiration(check, root, now_ms))
		return false;
	if (!json_is_array(conditions))
		return malformed(check, "Invalid Policy: Policy missing conditions.");
	for (size_t i = 0; i < json_array_size(conditions); i++)
		if (!check_condition(check, json_array_get(conditions, i)))
			return false;
	return check_extra(check);
}

bool s3_form_check(struct slice policy, const struct s3_form *form,
	const struct s3_form_target *target, struct s3_form_limits *ret_limits,
	struct s3_form_refusal *ret_refusal)
{
	struct check check = {.form = form,
		.bucket = target->bucket,
		.key = target->key,
		.limits = ret_limits,
		.refusal = ret_refusal};
	json_error_t ignored;
	json_t *root;
	bool allowed;

	*ret_limits = (struct s3_form_limits){.bytes_max = LIMIT_PUT_BYTES_MAX};
	*ret_refusal = (struct s3_form_refusal){0};
	root = json_loadb(policy.data, policy.len, JSON_REJECT_DUPLICATES, &ignored);
	if (!root)
		return malformed(&check, "Invalid Policy: Invalid JSON.");
	allowed = check_root(&check, root, target->now_ms);
	json_decref(root);
	return allowed;
}
