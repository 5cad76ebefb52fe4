/* s3/bucket/website.c: the website configuration of a bucket. */
#include <errno.h>

#include "s3/bucket/bucket.h"
#include "s3/bucket/website.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/core/xml_in.h"

/* This text becomes part of a Location header. */
static bool is_host(struct slice text)
{
	for (size_t i = 0; i < text.len; i++)
		if ((uint8_t)text.data[i] <= 0x20 || (uint8_t)text.data[i] == 0x7f ||
			text.data[i] == '/')
			return false;
	return text.len > 0 && text.len <= 255;
}

static const struct s3_error *check_protocol(struct s3_call *call, const struct s3_xml *node)
{
	struct slice protocol = s3_xml_text(node, "Protocol");

	if (!s3_xml_child(node, "Protocol") || slice_eq(protocol, SLICE("http")) ||
		slice_eq(protocol, SLICE("https")))
		return NULL;
	return s3_fail(call, S3_E_INVALID_REQUEST,
		"Invalid protocol, protocol can be http or https. If not defined the protocol will "
		"be selected automatically.");
}

/* A number of three digits with this first digit. */
static bool is_status(struct slice text, char first, char other)
{
	uint64_t number;

	return text.len == 3 && slice_to_u64(text, &number) == 0 &&
	       (text.data[0] == first || text.data[0] == other);
}

static const struct s3_error *check_redirect(struct s3_call *call, const struct s3_xml *redirect)
{
	struct slice status = s3_xml_text(redirect, "HttpRedirectCode");
	const struct s3_error *error = check_protocol(call, redirect);

	if (error)
		return error;
	if (!redirect->child)
		return s3_error_at(S3_E_MALFORMED_XML);
	if (s3_xml_child(redirect, "HttpRedirectCode") &&
		(!is_status(status, '3', '3') || slice_eq(status, SLICE("300"))))
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"The provided HTTP redirect code (%.*s) is not valid. Valid codes are 3XX "
			"except 300.",
			SLICE_FMT(slice_to(status, 20)));
	if (s3_xml_child(redirect, "HostName") && !is_host(s3_xml_text(redirect, "HostName")))
		return s3_fail(call, S3_E_INVALID_ARGUMENT, "The host name is not valid.");
	if (s3_xml_child(redirect, "ReplaceKeyWith") &&
		s3_xml_child(redirect, "ReplaceKeyPrefixWith"))
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"You can only define ReplaceKeyPrefix or ReplaceKey but not both.");
	return NULL;
}

static const struct s3_error *check_rules(struct s3_call *call, const struct s3_xml *rules)
{
	uint32_t count = 0;

	if (!rules->child)
		return s3_error_at(S3_E_MALFORMED_XML);
	for (const struct s3_xml *rule = rules->child; rule; rule = rule->next) {
		const struct s3_xml *condition = s3_xml_child(rule, "Condition");
		const struct s3_xml *redirect = s3_xml_child(rule, "Redirect");
		const struct s3_error *error;
		struct slice status;

		if (!slice_eq(rule->name, SLICE("RoutingRule")) || !redirect)
			return s3_error_at(S3_E_MALFORMED_XML);
		if (condition && !condition->child)
			return s3_fail(call, S3_E_INVALID_REQUEST,
				"Condition cannot be empty. To redirect all requests without a "
				"condition, the condition element shouldn't be present.");
		if (++count > S3_WEBSITE_RULES_MAX)
			return s3_fail(call, S3_E_INVALID_REQUEST,
				"A website has at most %u routing rules.", S3_WEBSITE_RULES_MAX);
		error = check_redirect(call, redirect);
		if (error)
			return error;
		status = condition ? s3_xml_text(condition, "HttpErrorCodeReturnedEquals")
				   : SLICE_NONE;
		if (status.len && !is_status(status, '4', '5'))
			return s3_fail(call, S3_E_INVALID_REQUEST,
				"The provided HTTP error code (%.*s) is not valid. Valid codes are "
				"4XX or 5XX.",
				SLICE_FMT(slice_to(status, 20)));
	}
	return NULL;
}

static const struct s3_error *check_all(struct s3_call *call, const struct s3_xml *root)
{
	const struct s3_xml *all = s3_xml_child(root, "RedirectAllRequestsTo");

	if (root->child->next)
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"RedirectAllRequestsTo cannot be provided in conjunction with other "
			"Routing Rules.");
	if (!is_host(s3_xml_text(all, "HostName")))
		return s3_fail(call, S3_E_INVALID_ARGUMENT, "The host name is not valid.");
	return check_protocol(call, all);
}

static const struct s3_error *check(
	struct s3_call *call, struct slice body, struct slice *ret_document)
{
	const struct s3_xml *index, *error_document, *rules;
	const struct s3_error *error;
	struct slice suffix;
	struct s3_xml *root;

	error = s3_config_xml(call, body, "WebsiteConfiguration", &root);
	if (error)
		return error;
	index = s3_xml_child(root, "IndexDocument");
	error_document = s3_xml_child(root, "ErrorDocument");
	rules = s3_xml_child(root, "RoutingRules");
	if (s3_xml_child(root, "RedirectAllRequestsTo")) {
		error = check_all(call, root);
	} else if (!index) {
		error = s3_fail(call, S3_E_INVALID_ARGUMENT,
			"A value for IndexDocument Suffix must be provided if "
			"RedirectAllRequestsTo is empty");
	} else {
		suffix = s3_xml_text(index, "Suffix");
		if (!s3_key_valid(suffix) || slice_find(suffix, SLICE("/")) >= 0)
			error = s3_fail(call, S3_E_INVALID_ARGUMENT,
				"The IndexDocument Suffix is not well formed");
	}
	if (!error && error_document && !s3_key_valid(s3_xml_text(error_document, "Key")))
		error = s3_fail(
			call, S3_E_INVALID_ARGUMENT, "The ErrorDocument Key is not well formed");
	if (!error && rules)
		error = check_rules(call, rules);
	return error ? error : s3_config_xml_text(call, root, ret_document);
}

/* ---- The parsed form for requests. ---- */

static struct slice text_or_none(const struct s3_xml *node, const char *name)
{
	struct slice text = s3_xml_text(node, name);

	if (!s3_xml_child(node, name))
		return SLICE_NONE;
	return text.data ? text : SLICE("");
}

static uint32_t status_of(struct slice text, uint32_t otherwise)
{
	uint64_t status;

	return slice_to_u64(text, &status) ? otherwise : (uint32_t)status;
}

static void load_rule(const struct s3_xml *node, struct s3_website_rule *rule)
{
	const struct s3_xml *condition = s3_xml_child(node, "Condition");
	const struct s3_xml *redirect = s3_xml_child(node, "Redirect");

	*rule = (struct s3_website_rule){.host = s3_xml_text(redirect, "HostName"),
		.protocol = s3_xml_text(redirect, "Protocol"),
		.status = status_of(s3_xml_text(redirect, "HttpRedirectCode"), 301),
		.replace_prefix = text_or_none(redirect, "ReplaceKeyPrefixWith"),
		.replace_key = text_or_none(redirect, "ReplaceKeyWith")};
	if (!condition)
		return;
	rule->prefix = s3_xml_text(condition, "KeyPrefixEquals");
	rule->error = status_of(s3_xml_text(condition, "HttpErrorCodeReturnedEquals"), 0);
}

static int load_rules(
	const struct s3_xml *rules, struct mem_arena *arena, struct s3_website_rule **ret_rules)
{
	struct s3_website_rule **tail = ret_rules;

	for (const struct s3_xml *node = rules->child; node; node = node->next) {
		if (!s3_xml_child(node, "Redirect"))
			return -EINVAL;
		*tail = mem_arena_get(arena, sizeof(**tail));
		if (!*tail)
			return -ENOMEM;
		load_rule(node, *tail);
		tail = &(*tail)->next;
	}
	return 0;
}

static int load(struct slice document, struct mem_arena *arena, const void **ret_parsed)
{
	struct s3_website *website = mem_arena_get(arena, sizeof(*website));
	const struct s3_xml *node;
	struct s3_xml *root;
	int ret = website ? s3_xml_parse(document, arena, &root) : -ENOMEM;

	if (ret)
		return ret;
	*website = (struct s3_website){0};
	node = s3_xml_child(root, "RedirectAllRequestsTo");
	if (node) {
		website->all_host = s3_xml_text(node, "HostName");
		website->all_protocol = s3_xml_text(node, "Protocol");
	}
	node = s3_xml_child(root, "IndexDocument");
	if (node)
		website->index = s3_xml_text(node, "Suffix");
	node = s3_xml_child(root, "ErrorDocument");
	if (node)
		website->error_key = s3_xml_text(node, "Key");
	node = s3_xml_child(root, "RoutingRules");
	if (node)
		ret = load_rules(node, arena, &website->rules);
	*ret_parsed = website;
	return ret ? ret : website->index.len || website->all_host.len ? 0 : -EINVAL;
}

const struct s3_config_ops s3_config_website = {
	.check = check,
	.load = load,
	.answer = s3_config_answer_xml,
	.put_status = 200,
};
