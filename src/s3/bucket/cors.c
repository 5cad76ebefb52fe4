/* s3/bucket/cors.c: a bucket's CORS rules: stored, and applied to every answer to a page of another
 * origin. A preflight uses them, too (op/options.c). */
#include <ctype.h>
#include <errno.h>

#include "s3/bucket/bucket.h"
#include "s3/bucket/cors.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/core/xml_in.h"

#define MAX_AGE_MAX  2147483647u
#define ID_CHARS_MAX 255u

/* Matches text against a pattern with at most one "*". */
static bool pattern_matches(struct slice pattern, struct slice text, bool nocase)
{
	ptrdiff_t star = slice_find(pattern, SLICE("*"));
	bool (*eq)(struct slice, struct slice) = nocase ? slice_eq_nocase : slice_eq;
	struct slice before, after;

	if (star < 0)
		return eq(pattern, text);
	before = slice_to(pattern, (size_t)star);
	after = slice_from(pattern, (size_t)star + 1);
	return text.len >= before.len + after.len && eq(slice_to(text, before.len), before) &&
	       eq(slice_from(text, text.len - after.len), after);
}

/* ---- The configuration. ---- */

static bool has_two_wildcards(struct slice text)
{
	ptrdiff_t star = slice_find(text, SLICE("*"));

	return star >= 0 && slice_find(slice_from(text, (size_t)star + 1), SLICE("*")) >= 0;
}

/* The stored text is returned in a header's value. */
static bool is_header_text(struct slice text)
{
	for (size_t i = 0; i < text.len; i++)
		if ((uint8_t)text.data[i] <= 0x20 || (uint8_t)text.data[i] >= 0x7f)
			return false;
	return text.len > 0;
}

static const struct s3_error *check_member(struct s3_call *call, const struct s3_xml *node)
{
	static const struct slice methods[] = {
		SLICE("GET"), SLICE("PUT"), SLICE("POST"), SLICE("DELETE"), SLICE("HEAD")};
	struct slice text = node->text;
	uint64_t seconds;

	if (slice_eq(node->name, SLICE("ID")))
		return text.len <= ID_CHARS_MAX ? NULL : s3_error_at(S3_E_MALFORMED_XML);
	if (slice_eq(node->name, SLICE("MaxAgeSeconds")))
		return slice_to_u64(text, &seconds) || seconds > MAX_AGE_MAX
			       ? s3_error_at(S3_E_MALFORMED_XML)
			       : NULL;
	if (!is_header_text(text))
		return s3_error_at(S3_E_MALFORMED_XML);
	if (slice_eq(node->name, SLICE("AllowedMethod"))) {
		for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
			if (slice_eq(text, methods[i]))
				return NULL;
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"Found unsupported HTTP method in CORS config. Unsupported method is %.*s",
			SLICE_FMT(slice_to(text, 100)));
	}
	if (slice_eq(node->name, SLICE("ExposeHeader")) && slice_find(text, SLICE("*")) >= 0)
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"ExposeHeader \"%.*s\" contains wildcard. We currently do not support "
			"wildcard for ExposeHeader.",
			SLICE_FMT(slice_to(text, 100)));
	if (slice_eq(node->name, SLICE("AllowedOrigin")) ||
		slice_eq(node->name, SLICE("AllowedHeader")))
		return has_two_wildcards(text)
			       ? s3_fail(call, S3_E_INVALID_REQUEST,
					 "%.*s \"%.*s\" can not have more than one wildcard.",
					 SLICE_FMT(node->name), SLICE_FMT(slice_to(text, 100)))
			       : NULL;
	return slice_eq(node->name, SLICE("ExposeHeader")) ? NULL : s3_error_at(S3_E_MALFORMED_XML);
}

static const struct s3_error *check(
	struct s3_call *call, struct slice body, struct slice *ret_document)
{
	const struct s3_error *error;
	struct s3_xml *root;
	uint32_t count = 0;

	error = s3_config_xml(call, body, "CORSConfiguration", &root);
	if (error)
		return error;
	for (const struct s3_xml *rule = root->child; rule; rule = rule->next) {
		if (!slice_eq(rule->name, SLICE("CORSRule")) || ++count > S3_CORS_RULES_MAX ||
			!s3_xml_child(rule, "AllowedMethod") ||
			!s3_xml_child(rule, "AllowedOrigin"))
			return s3_error_at(S3_E_MALFORMED_XML);
		for (const struct s3_xml *node = rule->child; node; node = node->next) {
			error = check_member(call, node);
			if (error)
				return error;
		}
	}
	return count ? s3_config_xml_text(call, root, ret_document)
		     : s3_error_at(S3_E_MALFORMED_XML);
}

/* All children of one name, in order. False: no memory. */
static bool gather(const struct s3_xml *rule, const char *name, struct mem_arena *arena,
	struct s3_cors_names **ret_names)
{
	struct s3_cors_names **tail = ret_names;

	for (const struct s3_xml *node = rule->child; node; node = node->next) {
		if (!slice_eq(node->name, slice_str(name)))
			continue;
		*tail = mem_arena_get(arena, sizeof(**tail));
		if (!*tail)
			return false;
		**tail = (struct s3_cors_names){.name = node->text};
		tail = &(*tail)->next;
	}
	return true;
}

static bool join(const struct s3_cors_names *names, struct mem_arena *arena, struct slice *ret_text)
{
	struct buf text;

	buf_init(&text, DOCUMENT_BYTES_MAX);
	for (const struct s3_cors_names *at = names; at; at = at->next) {
		if (at != names)
			buf_put_str(&text, ", ");
		buf_put_slice(&text, at->name);
	}
	*ret_text = text.failed ? SLICE_NONE : mem_arena_copy(arena, buf_slice(&text));
	buf_free(&text);
	return ret_text->data != NULL;
}

static bool load_rule(const struct s3_xml *node, struct mem_arena *arena, struct s3_cors_rule *rule)
{
	struct s3_cors_names *exposed = NULL;

	*rule = (struct s3_cors_rule){.max_age = s3_xml_text(node, "MaxAgeSeconds")};
	return gather(node, "AllowedOrigin", arena, &rule->origins) &&
	       gather(node, "AllowedMethod", arena, &rule->methods) &&
	       gather(node, "AllowedHeader", arena, &rule->headers) &&
	       gather(node, "ExposeHeader", arena, &exposed) &&
	       join(rule->methods, arena, &rule->methods_text) &&
	       join(exposed, arena, &rule->exposed_text);
}

static int load(struct slice document, struct mem_arena *arena, const void **ret_parsed)
{
	struct s3_cors_rule *first = NULL, **tail = &first;
	struct s3_xml *root;
	int ret = s3_xml_parse(document, arena, &root);

	if (ret)
		return ret;
	for (const struct s3_xml *node = root->child; node; node = node->next) {
		*tail = mem_arena_get(arena, sizeof(**tail));
		if (!*tail || !load_rule(node, arena, *tail))
			return -ENOMEM;
		tail = &(*tail)->next;
	}
	*ret_parsed = first;
	return first ? 0 : -EINVAL;
}

const struct s3_config_ops s3_config_cors = {
	.check = check,
	.load = load,
	.answer = s3_config_answer_xml,
	.put_status = 200,
};

/* ---- Requests of pages. ---- */

static const struct s3_cors_names *find(
	const struct s3_cors_names *patterns, struct slice text, bool nocase)
{
	for (; patterns; patterns = patterns->next)
		if (pattern_matches(patterns->name, text, nocase))
			return patterns;
	return NULL;
}

static bool rule_allows(const struct s3_cors_rule *rule, const struct s3_cors_asked *asked)
{
	struct slice rest = asked->headers;

	if (!find(rule->origins, asked->origin, false) ||
		!find(rule->methods, asked->method, false))
		return false;
	while (rest.len) {
		struct slice name = slice_trim(slice_split(&rest, ','));

		if (name.len && !find(rule->headers, name, true))
			return false;
	}
	return true;
}

const struct s3_cors_rule *s3_cors_find(struct s3_call *call, const struct s3_cors_asked *asked)
{
	const struct s3_cors_rule *rule = call->settings->parsed[S3_CONFIG_CORS];

	while (rule && !rule_allows(rule, asked))
		rule = rule->next;
	return rule;
}

/* Header names in AWS's form, lower case; unchanged when memory is short. */
static struct slice in_lower_case(struct s3_call *call, struct slice names)
{
	char *text = mem_arena_get(&call->arena, names.len);

	for (size_t i = 0; text && i < names.len; i++)
		text[i] = (char)tolower((unsigned char)names.data[i]);
	return text ? slice_of(text, names.len) : names;
}

void s3_cors_answer_rule(
	struct s3_call *call, const struct s3_cors_rule *rule, const struct s3_cors_asked *asked)
{
	const struct s3_cors_names *origin = find(rule->origins, asked->origin, false);

	if (slice_eq(origin->name, SLICE("*"))) {
		s3_answer_header(call, SLICE("Access-Control-Allow-Origin"), SLICE("*"));
	} else {
		s3_answer_header(call, SLICE("Access-Control-Allow-Origin"), asked->origin);
		s3_answer_header(call, SLICE("Access-Control-Allow-Credentials"), SLICE("true"));
	}
	s3_answer_header(call, SLICE("Access-Control-Allow-Methods"), rule->methods_text);
	if (asked->headers.len)
		s3_answer_header(call, SLICE("Access-Control-Allow-Headers"),
			in_lower_case(call, asked->headers));
	if (rule->exposed_text.len)
		s3_answer_header(call, SLICE("Access-Control-Expose-Headers"), rule->exposed_text);
	if (rule->max_age.len)
		s3_answer_header(call, SLICE("Access-Control-Max-Age"), rule->max_age);
}

const struct s3_error *s3_cors_answer(struct s3_call *call)
{
	struct s3_cors_asked asked = {.origin = s3_call_header(call, SLICE(S3_CORS_ORIGIN))};
	const struct s3_settings *settings;
	const struct s3_cors_rule *rule;
	const struct s3_error *error;

	if (!asked.origin.len || call->request->method == S3_OPTIONS)
		return NULL;
	error = s3_call_settings(call, &settings);
	if (error || !settings || !settings->parsed[S3_CONFIG_CORS])
		return error;
	asked.method = s3_call_header(call, SLICE(S3_CORS_METHOD));
	if (!asked.method.len)
		asked.method = call->request->method_text;
	rule = s3_cors_find(call, &asked);
	if (rule)
		s3_cors_answer_rule(call, rule, &asked);
	s3_answer_header(call, SLICE("Vary"), SLICE(S3_CORS_VARY));
	return NULL;
}
