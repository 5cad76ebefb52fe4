/* s3/bucket/lifecycle.c: a bucket's lifecycle configuration: checked, stored, parsed for the code
 * that applies it; and x-amz-expiration, which reports it. */
#include <errno.h>
#include <stdio.h>

#include "s3/bucket/bucket.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/core/xml_in.h"
#include "s3/object/lifecycle.h"

static int name_rules(struct s3_xml *root, struct mem_arena *arena)
{
	struct slice ignored;

	for (struct s3_xml *rule = root->child; rule; rule = rule->next)
		if (!s3_xml_text(rule, "ID").len && s3_xml_add_id(rule, "ID", arena, &ignored))
			return -ENOMEM;
	return 0;
}

/* A header of the configuration, stored after the document. If it is missing, S3 assumes the first
 * value. This server reports nothing, and objects of any length move: a move costs nothing, because
 * their bytes stay in place. */
#define MINIMUM_HEADER "x-amz-transition-default-minimum-object-size"

static const struct {
	struct slice name, kept;
	enum s3_lifecycle_minimum minimum;
} minimums[] = {
	{SLICE("all_storage_classes_128K"), SLICE("<!--all_storage_classes_128K-->"),
		S3_LIFECYCLE_MOVE_LARGE},
	{SLICE("varies_by_storage_class"), SLICE("<!--varies_by_storage_class-->"),
		S3_LIFECYCLE_MOVE_LARGE_BUT_ARCHIVED},
};

static const struct s3_error *check_minimum(struct s3_call *call, struct slice *document)
{
	struct slice value = s3_call_header(call, SLICE(MINIMUM_HEADER));
	char *text;

	if (!s3_call_has_header(call, SLICE(MINIMUM_HEADER)))
		return NULL;
	for (size_t i = 0; i < ARRAY_LEN(minimums); i++) {
		struct slice kept = minimums[i].kept;

		if (!slice_eq(value, minimums[i].name))
			continue;
		text = mem_arena_get(&call->arena, document->len + kept.len);
		if (!text)
			return s3_error_at(S3_E_SLOW_DOWN);
		memcpy(text, document->data, document->len);
		memcpy(text + document->len, kept.data, kept.len);
		*document = slice_of(text, document->len + kept.len);
		s3_answer_header(call, SLICE(MINIMUM_HEADER), minimums[i].name);
		return NULL;
	}
	return s3_fail(call, S3_E_INVALID_REQUEST,
		"Invalid TransitionDefaultMinimumObjectSize found: %.*s", SLICE_FMT(value));
}

static const struct s3_error *lifecycle_answer(struct s3_call *call, struct slice document)
{
	for (size_t i = 0; i < ARRAY_LEN(minimums); i++) {
		if (!slice_ends(document, minimums[i].kept))
			continue;
		s3_answer_header(call, SLICE(MINIMUM_HEADER), minimums[i].name);
		document = slice_to(document, document.len - minimums[i].kept.len);
	}
	return s3_config_answer_xml(call, document);
}

/* A directory bucket has one class. */
static const struct s3_error *check_moves(
	struct s3_call *call, const struct s3_lifecycle_rules *rules)
{
	for (uint32_t i = 0; i < rules->count && s3_express_bucket(call); i++)
		if (rules->list[i].move_count)
			return s3_fail(call, S3_E_INVALID_REQUEST,
				"Lifecycle rules of a directory bucket have no Transition: its "
				"objects have one storage class.");
	return NULL;
}

static const struct s3_error *lifecycle_check(
	struct s3_call *call, struct slice body, struct slice *ret_document)
{
	struct s3_lifecycle_rules rules;
	struct s3_lifecycle_wrong wrong;
	const struct s3_error *error;
	struct s3_xml *tree;
	int ret;

	error = s3_config_xml(call, body, "LifecycleConfiguration", &tree);
	if (error)
		return error;
	ret = s3_lifecycle_parse(tree, &call->arena, &rules, &wrong);
	if (ret == -EINVAL)
		return wrong.message ? s3_fail(call, wrong.error, "%s", wrong.message)
				     : s3_error_at(wrong.error);
	if (ret || name_rules(tree, &call->arena))
		return s3_error_at(S3_E_SLOW_DOWN);
	error = check_moves(call, &rules);
	if (!error)
		error = s3_config_xml_text(call, tree, ret_document);
	return error ? error : check_minimum(call, ret_document);
}

static int lifecycle_load(struct slice document, struct mem_arena *arena, const void **ret_parsed)
{
	struct s3_lifecycle_rules *rules = mem_arena_get(arena, sizeof(*rules));
	struct s3_lifecycle_wrong wrong;
	struct s3_xml *tree;
	int ret;

	if (!rules)
		return -ENOMEM;
	ret = s3_xml_parse(document, arena, &tree);
	if (!ret)
		ret = s3_lifecycle_parse(tree, arena, rules, &wrong);
	for (size_t i = 0; i < ARRAY_LEN(minimums); i++)
		if (slice_ends(document, minimums[i].kept))
			rules->minimum = minimums[i].minimum;
	*ret_parsed = rules;
	return ret;
}

const struct s3_config_ops s3_config_lifecycle = {
	.check = lifecycle_check,
	.load = lifecycle_load,
	.answer = lifecycle_answer,
	.put_status = 200,
};
