/* s3/object/expiry.c: x-amz-expiration: when the bucket's lifecycle rules will expire the object of
 * the answer. */
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/core/tags.h"
#include "s3/object/lifecycle.h"

/* A function of its own: it needs stack space, and few buckets have rules. */
static __attribute__((noinline)) void answer_expiration(
	struct s3_call *call, const struct s3_lifecycle_rules *rules, const struct store_meta *meta)
{
	const struct store_lifecycle_version version = {
		.key = call->key, .meta = meta, .current = true};
	const struct s3_lifecycle_rule *rule;
	char date[DATE_HTTP_LEN];
	struct s3_tags tags;
	struct slice value;
	struct buf text;
	int64_t due_ms;

	if (s3_tags_decode(s3_tags_of_object(meta), &call->arena, &tags))
		return;
	rule = s3_lifecycle_expiry(rules, &version, &tags, &due_ms);
	if (!rule)
		return;
	date_http_format(due_ms, date);
	buf_init(&text, 8 * S3_LIFECYCLE_ID_MAX);
	buf_printf(&text, "expiry-date=\"%.*s\", rule-id=\"", DATE_HTTP_LEN, date);
	uri_encode(rule->id, 0, &text);
	buf_put(&text, "\"", 1);
	value = text.failed ? SLICE_NONE : mem_arena_copy(&call->arena, buf_slice(&text));
	buf_free(&text);
	if (value.len)
		s3_answer_header(call, SLICE("x-amz-expiration"), value);
}

void s3_lifecycle_answer(struct s3_call *call, const struct store_meta *meta)
{
	const struct s3_settings *settings;

	if (s3_call_settings(call, &settings) || !settings ||
		!settings->parsed[S3_CONFIG_LIFECYCLE] ||
		s3_call_param(call, SLICE("versionId"), NULL))
		return;
	answer_expiration(call, settings->parsed[S3_CONFIG_LIFECYCLE], meta);
}
