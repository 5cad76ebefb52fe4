/* s3/event/notification.c: a bucket's notification configuration: parsed and checked against its
 * schema and the existing targets. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

#include "s3/core/call.h"
#include "s3/core/settings.h"
#include "s3/core/xml_in.h"
#include "s3/event/notification.h"
#include "s3/event/notify.h"
#include "s3/event/topic.h"

#define ARN_LEN_MAX 512u

#define BIT(id) (1u << S3_EVENT_##id)

static const struct {
	struct slice name;
	uint32_t events;
} event_names[] = {
	{SLICE("s3:ObjectCreated:*"), BIT(PUT) | BIT(POST) | BIT(COPY) | BIT(COMPLETE)},
	{SLICE("s3:ObjectCreated:Put"), BIT(PUT)},
	{SLICE("s3:ObjectCreated:Post"), BIT(POST)},
	{SLICE("s3:ObjectCreated:Copy"), BIT(COPY)},
	{SLICE("s3:ObjectCreated:CompleteMultipartUpload"), BIT(COMPLETE)},
	{SLICE("s3:ObjectRemoved:*"), BIT(DELETE) | BIT(MARKER)},
	{SLICE("s3:ObjectRemoved:Delete"), BIT(DELETE)},
	{SLICE("s3:ObjectRemoved:DeleteMarkerCreated"), BIT(MARKER)},
	{SLICE("s3:ObjectTagging:*"), BIT(TAGGING_PUT) | BIT(TAGGING_DELETE)},
	{SLICE("s3:ObjectTagging:Put"), BIT(TAGGING_PUT)},
	{SLICE("s3:ObjectTagging:Delete"), BIT(TAGGING_DELETE)},
	{SLICE("s3:ObjectAcl:Put"), BIT(ACL_PUT)},
	{SLICE("s3:LifecycleExpiration:*"), BIT(EXPIRATION) | BIT(EXPIRATION_MARKER)},
	{SLICE("s3:LifecycleExpiration:Delete"), BIT(EXPIRATION)},
	{SLICE("s3:LifecycleExpiration:DeleteMarkerCreated"), BIT(EXPIRATION_MARKER)},
	{SLICE("s3:LifecycleTransition"), BIT(TRANSITION)},
	{SLICE("s3:Replication:*"), BIT(REPLICATION_FAILED) | BIT(REPLICATION_MISSED) |
					    BIT(REPLICATION_AFTER) | BIT(REPLICATION_UNTRACKED)},
	{SLICE("s3:Replication:OperationFailedReplication"), BIT(REPLICATION_FAILED)},
	{SLICE("s3:Replication:OperationMissedThreshold"), BIT(REPLICATION_MISSED)},
	{SLICE("s3:Replication:OperationReplicatedAfterThreshold"), BIT(REPLICATION_AFTER)},
	{SLICE("s3:Replication:OperationNotTracked"), BIT(REPLICATION_UNTRACKED)},
};

/* The elements of each kind of target. */
static const struct kind {
	struct slice element, field, service;
	const char *argument;
} kinds[] = {
	{SLICE("TopicConfiguration"), SLICE("Topic"), SLICE("sns"), "Topic"},
	{SLICE("QueueConfiguration"), SLICE("Queue"), SLICE("sqs"), "Queue"},
	{SLICE("CloudFunctionConfiguration"), SLICE("CloudFunction"), SLICE("lambda"),
		"CloudFunction"},
};
/* An error names at most this many missing destinations. */
#define MISSING_SHOWN_MAX 10u

static int wrong(
	struct s3_notification_wrong *ret_wrong, enum s3_error_id error, const char *message)
{
	*ret_wrong = (struct s3_notification_wrong){.error = error, .message = message};
	return -EINVAL;
}

static int wrong_argument(struct s3_notification_wrong *ret_wrong, const char *argument,
	struct slice value, const char *message)
{
	*ret_wrong = (struct s3_notification_wrong){.error = S3_E_INVALID_ARGUMENT,
		.message = message,
		.argument = argument,
		.value = value};
	return -EINVAL;
}

/* "arn:aws:sns:REGION:ACCOUNT:NAME", "arn:aws:lambda:REGION:ACCOUNT:function:NAME". */
static struct slice target_of(struct slice arn, struct slice service)
{
	struct slice rest = arn, scheme = slice_split(&rest, ':'),
		     partition = slice_split(&rest, ':');

	if (arn.len > ARN_LEN_MAX || !slice_eq(scheme, SLICE("arn")) || !partition.len ||
		!slice_eq(slice_split(&rest, ':'), service))
		return SLICE_NONE;
	slice_split(&rest, ':');
	slice_split(&rest, ':');
	if (slice_starts(rest, SLICE("function:")))
		rest = slice_from(rest, sizeof("function:") - 1);
	return rest;
}

static int parse_event(struct slice name, struct s3_notification_rule *rule,
	struct s3_notification_wrong *ret_wrong)
{
	for (size_t i = 0; i < ARRAY_LEN(event_names); i++)
		if (slice_eq(event_names[i].name, name)) {
			rule->events |= event_names[i].events;
			return 0;
		}
	return wrong(
		ret_wrong, S3_E_INVALID_ARGUMENT, "The event is not supported for notifications");
}

static int parse_filter(const struct s3_xml *filter, struct s3_notification_rule *rule,
	struct s3_notification_wrong *ret_wrong)
{
	const struct s3_xml *key = s3_xml_child(filter, "S3Key");
	bool has_prefix = false, has_suffix = false;

	for (const struct s3_xml *node = key ? key->child : NULL; node; node = node->next) {
		struct slice name = s3_xml_text(node, "Name"), value = s3_xml_text(node, "Value");
		bool prefix = slice_eq_nocase(name, SLICE("prefix"));

		if (!slice_eq(node->name, SLICE("FilterRule")))
			return wrong(ret_wrong, S3_E_MALFORMED_XML, NULL);
		if (!prefix && !slice_eq_nocase(name, SLICE("suffix")))
			return wrong_argument(ret_wrong, "FilterRule.Name", name,
				"filter rule name must be either prefix or suffix");
		if (prefix ? has_prefix : has_suffix)
			return wrong(ret_wrong, S3_E_INVALID_ARGUMENT,
				"Cannot specify more than one prefix or suffix rule in a filter.");
		if (value.len > LIMIT_KEY_LEN_MAX)
			return wrong(ret_wrong, S3_E_INVALID_ARGUMENT,
				"Size of filter rule value cannot exceed 1024 bytes in UTF-8");
		*(prefix ? &rule->prefix : &rule->suffix) = value;
		*(prefix ? &has_prefix : &has_suffix) = true;
	}
	return 0;
}

static int parse_rule(struct s3_xml *node, const struct kind *kind, struct mem_arena *arena,
	struct s3_notification_rule *rule, struct s3_notification_wrong *ret_wrong)
{
	int ret = 0;

	*rule = (struct s3_notification_rule){.id = s3_xml_text(node, "Id")};
	if (rule->id.len > 255)
		return wrong(ret_wrong, S3_E_INVALID_ARGUMENT, "The Id is longer than 255 bytes.");
	for (const struct s3_xml *part = node->child; part && !ret; part = part->next) {
		if (slice_eq(part->name, kind->field))
			rule->arn = part->text;
		else if (slice_eq(part->name, SLICE("Event")))
			ret = parse_event(part->text, rule, ret_wrong);
		else if (slice_eq(part->name, SLICE("Filter")))
			ret = parse_filter(part, rule, ret_wrong);
		else if (!slice_eq(part->name, SLICE("Id")))
			ret = wrong(ret_wrong, S3_E_MALFORMED_XML, NULL);
	}
	if (ret)
		return ret;
	if (!rule->arn.len || !rule->events)
		return wrong(ret_wrong, S3_E_MALFORMED_XML, NULL);
	rule->target = target_of(rule->arn, kind->service);
	if (!rule->target.len)
		return wrong_argument(
			ret_wrong, kind->argument, rule->arn, "The ARN could not be parsed");
	return rule->id.len ? 0 : s3_xml_add_id(node, "Id", arena, &rule->id);
}

/* Whether a key could match both: one prefix begins with the other, and one suffix ends with the
 * other. */
static bool overlap(const struct s3_notification_rule *a, const struct s3_notification_rule *b)
{
	return (a->events & b->events) &&
	       (slice_starts(a->prefix, b->prefix) || slice_starts(b->prefix, a->prefix)) &&
	       (slice_ends(a->suffix, b->suffix) || slice_ends(b->suffix, a->suffix));
}

static int check_others(const struct s3_notification *notification,
	const struct s3_notification_rule *rule, struct s3_notification_wrong *ret_wrong)
{
	for (uint32_t i = 0; i < notification->count; i++) {
		const struct s3_notification_rule *other = &notification->rules[i];

		if (slice_eq(other->id, rule->id))
			return wrong(ret_wrong, S3_E_INVALID_ARGUMENT,
				"Same ID used for multiple configurations. IDs must be unique");
		if (overlap(other, rule))
			return wrong(ret_wrong, S3_E_INVALID_ARGUMENT,
				"Configurations overlap. Configurations on the same bucket cannot "
				"share a common event type.");
	}
	return 0;
}

static const struct kind *kind_of(const struct s3_xml *node)
{
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		if (slice_eq(kinds[i].element, node->name))
			return &kinds[i];
	return NULL;
}

int s3_notification_parse(struct s3_xml *root, struct mem_arena *arena,
	struct s3_notification *ret_notification, struct s3_notification_wrong *ret_wrong)
{
	uint32_t count = 0;
	int ret = 0;

	for (const struct s3_xml *node = root->child; node; node = node->next)
		count++;
	if (count > S3_NOTIFICATION_RULES_MAX)
		return wrong(ret_wrong, S3_E_INVALID_ARGUMENT,
			"A bucket can have at most 100 notification configurations.");
	*ret_notification = (struct s3_notification){
		.rules = mem_arena_get(arena, (count + 1) * sizeof(*ret_notification->rules))};
	if (!ret_notification->rules)
		return -ENOMEM;
	for (struct s3_xml *node = root->child; node && !ret; node = node->next) {
		struct s3_notification_rule *rule =
			&ret_notification->rules[ret_notification->count];
		const struct kind *kind = kind_of(node);

		if (slice_eq(node->name, SLICE("EventBridgeConfiguration")))
			return wrong(ret_wrong, S3_E_NOT_IMPLEMENTED,
				"This server has no EventBridge; events go to the targets in "
				"notification.targets.");
		if (!kind)
			return wrong(ret_wrong, S3_E_MALFORMED_XML, NULL);
		ret = parse_rule(node, kind, arena, rule, ret_wrong);
		if (!ret)
			ret = check_others(ret_notification, rule, ret_wrong);
		ret_notification->count += !ret;
	}
	return ret;
}

bool s3_notification_wants(
	const struct s3_notification_rule *rule, enum s3_event_id id, struct slice key)
{
	return (rule->events & (1u << id)) && slice_starts(key, rule->prefix) &&
	       slice_ends(key, rule->suffix);
}

/* ---- The configuration. ---- */

static void send_test(struct s3_call *call, const struct s3_notification_rule *rule)
{
	char time[DATE_ISO_LEN + 1] = "";
	struct s3_notice *notice;
	struct s3_topic_way way;
	json_t *json;
	char *text;
	int ret;

	if (s3_topic_way(call->s3, rule->target, rule->arn, &way))
		return;

	date_iso_format((int64_t)(clock_real_ns() / NS_PER_MS), time);
	json = json_pack("{s:s, s:s, s:s, s:s%, s:s, s:s}", "Service", "Amazon S3", "Event",
		"s3:TestEvent", "Time", time, "Bucket", call->bucket.data, call->bucket.len,
		"RequestId", call->request->request_id, "HostId", call->s3->host_id);
	text = json ? json_dumps(json, JSON_COMPACT) : NULL;
	ret = text ? s3_notify_reserve(call->s3->notify, &way.endpoint, strlen(text), &notice)
		   : -ENOMEM;
	if (!ret)
		s3_notify_queue(notice, slice_str(text), 0, false);
	else
		s3_notify_refused(call->s3->notify, &way.endpoint, ret);
	s3_topic_way_put(&way);
	free(text);
	json_decref(json);
}

static const struct s3_error *fail(struct s3_call *call, const struct s3_notification_wrong *bad)
{
	if (bad->argument)
		return s3_fail_argument(call, bad->argument, bad->value, bad->message);
	return bad->message ? s3_fail(call, bad->error, "%s", bad->message)
			    : s3_error_at(bad->error);
}

/* Each target must exist, and the caller must be allowed to publish to it. The error names all
 * missing targets. */
static const struct s3_error *check_targets(
	struct s3_call *call, const struct s3_notification *notification)
{
	const struct s3_error *error = NULL;
	uint32_t missing = 0;

	for (uint32_t i = 0; i < notification->count; i++) {
		const struct s3_notification_rule *rule = &notification->rules[i];
		char name[32];

		if (s3_notify_has(call->s3->notify, rule->target) ||
			s3_topic_exists(call->s3, rule->arn) || missing++ >= MISSING_SHOWN_MAX)
			continue;
		snprintf(name, sizeof(name), "ArgumentName%u", missing);
		s3_fail_detail(call, name, rule->arn);
		snprintf(name, sizeof(name), "ArgumentValue%u", missing);
		s3_fail_detail(call, name, SLICE("The destination does not exist"));
	}
	if (missing)
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"Unable to validate the following destination configurations");
	for (uint32_t i = 0; !error && i < notification->count; i++)
		if (!s3_notify_has(call->s3->notify, notification->rules[i].target))
			error = s3_topic_may_publish(call, notification->rules[i].arn);
	return error;
}

/* In S3's answers these names begin with a capital, whatever the client sent. */
static void name_filters(struct s3_xml *root)
{
	for (struct s3_xml *node = root->child; node; node = node->next) {
		name_filters(node);
		if (slice_eq(node->name, SLICE("FilterRule")))
			for (struct s3_xml *part = node->child; part; part = part->next)
				if (slice_eq(part->name, SLICE("Name")))
					part->text = slice_eq_nocase(part->text, SLICE("prefix"))
							     ? SLICE("Prefix")
							     : SLICE("Suffix");
	}
}

static const struct s3_error *check(
	struct s3_call *call, struct slice body, struct slice *ret_document)
{
	struct s3_notification notification;
	struct s3_notification_wrong bad;
	const struct s3_error *error;
	struct s3_xml *root;
	int ret;

	error = s3_config_xml(call, body, "NotificationConfiguration", &root);
	if (error)
		return error;
	ret = s3_notification_parse(root, &call->arena, &notification, &bad);
	if (ret == -EINVAL)
		return fail(call, &bad);
	if (ret)
		return s3_error_at(S3_E_SLOW_DOWN);
	error = check_targets(call, &notification);
	if (error)
		return error;
	name_filters(root);
	error = s3_config_xml_text(call, root, ret_document);
	for (uint32_t i = 0; !error && i < notification.count; i++)
		send_test(call, &notification.rules[i]);
	return error;
}

static int load(struct slice document, struct mem_arena *arena, const void **ret_parsed)
{
	struct s3_notification *notification = mem_arena_get(arena, sizeof(*notification));
	struct s3_notification_wrong bad;
	struct s3_xml *root;
	int ret = notification ? s3_xml_parse(document, arena, &root) : -ENOMEM;

	if (!ret)
		ret = s3_notification_parse(root, arena, notification, &bad);
	*ret_parsed = !ret && notification->count ? notification : NULL;
	return ret;
}

const struct s3_config_ops s3_config_notification = {
	.check = check,
	.load = load,
	.answer = s3_config_answer_xml,
	.put_status = 200,
};
