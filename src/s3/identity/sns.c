/* s3/identity/sns.c: the calls of SNS that create, read, change and delete topics. Publish and
 * Subscribe are not supported: only buckets' events are published. */
#include <stdio.h>
#include <stdlib.h>

#include "s3/core/call.h"
#include "s3/event/topic.h"
#include "s3/identity/api.h"

#define PAGE_TOPICS 100u

/* The attributes that a topic may have; others would have no effect and are refused. */
static const char *const attributes[] = {S3_TOPIC_ENDPOINT, S3_TOPIC_OPAQUE, S3_TOPIC_POLICY,
	S3_TOPIC_VERIFY, S3_TOPIC_PERSIST, "DisplayName"};

struct slice api_topic_arn(const struct api *api)
{
	return api_field(api, api->action->run == api_topic_tags ? "ResourceArn" : "TopicArn");
}

static const struct s3_error *invalid(struct api *api, const char *what)
{
	return s3_fail(api->call, S3_E_SNS_INVALID_PARAMETER, "Invalid parameter: %s", what);
}

static const struct s3_error *check_endpoint(struct api *api, struct slice url)
{
	struct slice rest = url, host;

	if (!url.len)
		return NULL;
	if (slice_starts(url, SLICE("http://")))
		rest = slice_from(url, strlen("http://"));
	else if (slice_starts(url, SLICE("https://")))
		rest = slice_from(url, strlen("https://"));
	else
		return invalid(api, "push-endpoint must be http:// or https://; other brokers are "
				    "not served");
	host = slice_split(&rest, '/');
	if (!host.len || memchr(host.data, '@', host.len) || url.len > S3_TARGET_URL_MAX)
		return invalid(api, "push-endpoint must name a host, without user and password");
	for (size_t i = 0; i < url.len; i++)
		if ((uint8_t)url.data[i] <= ' ' || (uint8_t)url.data[i] >= 0x7f)
			return invalid(api, "push-endpoint has a character that URLs cannot have");
	if (!s3_notify_takes_topics(api->call->s3->notify))
		return invalid(api, "this server sends no events to topics (notification.topics)");
	return NULL;
}

static const struct s3_error *check_value(struct api *api, const char *name, struct slice value)
{
	struct policy_refusal refusal;
	const struct policy *policy;

	if (value.len > (strcmp(name, S3_TOPIC_POLICY) == 0 ? POLICY_BYTES_MAX
							    : S3_TOPIC_VALUE_MAX) ||
		!utf8_is_valid(value) || (value.len && memchr(value.data, '\0', value.len)))
		return invalid(api, name);
	if (strcmp(name, S3_TOPIC_ENDPOINT) == 0)
		return check_endpoint(api, value);
	if ((strcmp(name, S3_TOPIC_VERIFY) == 0 || strcmp(name, S3_TOPIC_PERSIST) == 0) &&
		!slice_eq_nocase(value, SLICE("true")) && !slice_eq_nocase(value, SLICE("false")))
		return invalid(api, "verify-ssl and persistent must be true or false");
	if (strcmp(name, S3_TOPIC_POLICY) == 0 && value.len &&
		(policy_compile(value, POLICY_RESOURCE, &api->call->arena, &policy, &refusal) ||
			policy_check_document(policy, &refusal)))
		return invalid(api, refusal.text);
	return NULL;
}

static const struct s3_error *set(
	struct api *api, json_t *topic, struct slice name, struct slice value)
{
	for (size_t i = 0; i < ARRAY_LEN(attributes); i++) {
		const struct s3_error *error;

		if (!slice_eq(name, slice_str(attributes[i])))
			continue;
		error = check_value(api, attributes[i], value);
		if (!error && json_member_set_text(topic, attributes[i], value))
			error = s3_error_at(S3_E_SLOW_DOWN);
		return error;
	}
	return s3_fail(api->call, S3_E_SNS_INVALID_PARAMETER,
		"Invalid parameter: AttributeName: %.*s is not served here.",
		SLICE_FMT(slice_to(name, 64)));
}

/* The caller's topic that the form names. NULL without an error: no such topic. */
static const struct s3_error *named(
	struct api *api, json_t *account, struct s3_topic_name *ret_name, json_t **ret_topic)
{
	char key[S3_TOPIC_NAME_MAX + 1];

	if (!s3_topic_name_parse(api_topic_arn(api), ret_name))
		return invalid(api, "TopicArn");
	if (!slice_eq(ret_name->account, json_member_text(account, "account_id")))
		return s3_error_at(S3_E_SNS_AUTHORIZATION);
	slice_copy_str(ret_name->name, key, sizeof(key));
	*ret_topic = json_object_get(json_object_get(account, "topics"), key);
	return NULL;
}

static const struct s3_error *must_be(
	struct api *api, json_t *account, struct s3_topic_name *ret_name, json_t **ret_topic)
{
	const struct s3_error *error = named(api, account, ret_name, ret_topic);

	return error || *ret_topic ? error : s3_error_at(S3_E_SNS_NOT_FOUND);
}

/* Attributes.entry.N.key and .value, as SDKs write a map. */
static const struct s3_error *set_all(struct api *api, json_t *topic)
{
	const struct s3_error *error = NULL;
	char field[48];

	for (uint32_t i = 1; i <= 2 * ARRAY_LEN(attributes) && !error; i++) {
		struct slice name;

		snprintf(field, sizeof(field), "Attributes.entry.%u.key", i);
		name = api_field(api, field);
		if (!name.len)
			break;
		snprintf(field, sizeof(field), "Attributes.entry.%u.value", i);
		error = set(api, topic, name, api_field(api, field));
	}
	return error;
}

const struct s3_error *api_create_topic(struct api *api, json_t *account)
{
	struct slice name = api_field(api, "Name");
	json_t *topics = json_member_object(account, "topics"), *topic;
	char key[S3_TOPIC_NAME_MAX + 1], arn[S3_TOPIC_ARN_BYTES];
	const struct s3_error *error;

	if (!s3_topic_name_valid(name))
		return invalid(api, "Topic Name");
	slice_copy_str(name, key, sizeof(key));
	topic = json_object_get(topics, key);
	if (!topic && json_object_size(topics) >= S3_TOPICS_MAX)
		return s3_fail(api->call, S3_E_LIMIT_EXCEEDED, "An account has at most %u topics.",
			S3_TOPICS_MAX);
	if (!topic && (!topics || json_object_set_new(topics, key, topic = json_object())))
		return s3_error_at(S3_E_SLOW_DOWN);
	error = set_all(api, topic);
	if (!error)
		api_put(api, "TopicArn",
			s3_topic_arn(
				api->call->s3, json_member_text(account, "account_id"), name, arn));
	return error;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* In order of their names; the token is the last name of the page. */
const struct s3_error *api_list_topics(struct api *api, json_t *account)
{
	struct slice after = api_field(api, "NextToken"),
		     number = json_member_text(account, "account_id");
	json_t *topics = json_object_get(account, "topics"), *topic;
	size_t count = json_object_size(topics), all = 0, told = 0;
	const char **names = mem_arena_get(&api->call->arena, (count + 1) * sizeof(*names)), *name;
	char arn[S3_TOPIC_ARN_BYTES];

	if (!names)
		return s3_error_at(S3_E_SLOW_DOWN);
	json_object_foreach(topics, name, topic) if (slice_cmp(slice_str(name), after) > 0)
		names[all++] = name;
	qsort(names, all, sizeof(*names), by_name);
	buf_put_str(&api->xml, "<Topics>");
	for (; told < all && told < PAGE_TOPICS; told++) {
		buf_put_str(&api->xml, "<member>");
		api_put(api, "TopicArn",
			s3_topic_arn(api->call->s3, number, slice_str(names[told]), arn));
		buf_put_str(&api->xml, "</member>");
	}
	buf_put_str(&api->xml, "</Topics>");
	if (told < all)
		api_put(api, "NextToken", slice_str(names[told - 1]));
	return NULL;
}

static void put_entry(struct api *api, const char *name, struct slice value)
{
	buf_put_str(&api->xml, "<entry>");
	api_put(api, "key", slice_str(name));
	api_put(api, "value", value);
	buf_put_str(&api->xml, "</entry>");
}

static void put_attributes(struct api *api, const struct s3_topic_name *name, const json_t *topic)
{
	buf_put_str(&api->xml, "<Attributes>");
	put_entry(api, "TopicArn", api_field(api, "TopicArn"));
	put_entry(api, "Owner", name->account);
	put_entry(api, "Name", name->name);
	for (size_t i = 0; i < ARRAY_LEN(attributes); i++) {
		struct slice value = json_member_text(topic, attributes[i]);

		if (value.len)
			put_entry(api, attributes[i], value);
	}
	buf_put_str(&api->xml, "</Attributes>");
}

/* Writes a topic in Ceph's format. */
static void put_topic(struct api *api, const struct s3_topic_name *name, const json_t *topic)
{
	buf_put_str(&api->xml, "<Topic>");
	api_put(api, "User", name->account);
	api_put(api, "Name", name->name);
	buf_put_str(&api->xml, "<EndPoint>");
	api_put(api, "EndpointAddress", json_member_text(topic, S3_TOPIC_ENDPOINT));
	api_put(api, "EndpointTopic", name->name);
	buf_put_str(&api->xml, "</EndPoint>");
	api_put(api, "TopicArn", api_field(api, "TopicArn"));
	api_put(api, "OpaqueData", json_member_text(topic, S3_TOPIC_OPAQUE));
	buf_put_str(&api->xml, "</Topic>");
}

/* GetTopicAttributes, and Ceph's own GetTopic, which SNS does not have. */
const struct s3_error *api_get_topic(struct api *api, json_t *account)
{
	struct s3_topic_name name;
	const struct s3_error *error;
	json_t *topic;

	error = must_be(api, account, &name, &topic);
	if (error)
		return error;
	if (strcmp(api->action->name, "GetTopic") == 0)
		put_topic(api, &name, topic);
	else
		put_attributes(api, &name, topic);
	return NULL;
}

const struct s3_error *api_set_topic_attributes(struct api *api, json_t *account)
{
	struct s3_topic_name name;
	const struct s3_error *error;
	json_t *topic;

	error = must_be(api, account, &name, &topic);
	if (!error)
		error = set(api, topic, api_field(api, "AttributeName"),
			api_field(api, "AttributeValue"));
	return error;
}

/* Deleting a missing topic succeeds. */
const struct s3_error *api_delete_topic(struct api *api, json_t *account)
{
	char key[S3_TOPIC_NAME_MAX + 1];
	struct s3_topic_name name;
	const struct s3_error *error;
	json_t *topic;

	error = named(api, account, &name, &topic);
	if (error || !topic)
		return error;
	slice_copy_str(name.name, key, sizeof(key));
	json_object_del(json_object_get(account, "topics"), key);
	return NULL;
}

/* Topics have no tags; Terraform asks for those of every topic that it reads. */
const struct s3_error *api_topic_tags(struct api *api, json_t *account)
{
	struct s3_topic_name name;
	json_t *topic;
	const struct s3_error *error = must_be(api, account, &name, &topic);

	if (!error)
		buf_put_str(&api->xml, "<Tags></Tags>");
	return error;
}
