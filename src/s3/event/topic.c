/* s3/event/topic.c: topics as targets of events: their lookup, access checks, and endpoints. */
#include "s3/event/topic.h"

#include <errno.h>
#include <stdio.h>

#include "s3/auth/access.h"
#include "s3/core/call.h"

bool s3_topic_name_valid(struct slice name)
{
	return name.len > 0 && name.len <= S3_TOPIC_NAME_MAX && slice_is_word(name, "-_");
}

bool s3_topic_name_parse(struct slice arn, struct s3_topic_name *ret_name)
{
	struct slice rest = arn;

	if (!slice_starts(arn, SLICE("arn:aws:sns:")))
		return false;
	rest = slice_from(rest, strlen("arn:aws:sns:"));
	slice_split(&rest, ':');
	ret_name->account = slice_split(&rest, ':');
	ret_name->name = rest;
	return ret_name->account.len <= IAM_ACCOUNT_LEN_MAX && s3_topic_name_valid(rest);
}

struct slice s3_topic_arn(const struct s3 *s3, struct slice account, struct slice name,
	char ret_text[S3_TOPIC_ARN_BYTES])
{
	int len = snprintf(ret_text, S3_TOPIC_ARN_BYTES, "arn:aws:sns:%s:%.*s:%.*s", s3->region,
		SLICE_FMT(account), SLICE_FMT(name));

	return slice_of(ret_text, (size_t)len);
}

/* The topic's attributes; a reference of the account's document, or NULL: no such topic. */
static const json_t *topic_find(struct s3 *s3, struct slice arn, json_t **ret_account)
{
	char key[S3_TOPIC_NAME_MAX + 1];
	struct s3_topic_name name;
	const json_t *topic;
	json_t *account;

	if (!s3_topic_name_parse(arn, &name))
		return NULL;
	account = iam_account(s3->iam, name.account);
	slice_copy_str(name.name, key, sizeof(key));
	topic = json_object_get(json_object_get(account, "topics"), key);
	if (topic)
		*ret_account = account;
	else
		iam_account_put(account);
	return topic;
}

bool s3_topic_exists(struct s3 *s3, struct slice arn)
{
	json_t *account = NULL;
	bool exists = topic_find(s3, arn, &account) != NULL;

	json_decref(account);
	return exists;
}

const struct s3_error *s3_topic_may_publish(struct s3_call *call, struct slice arn)
{
	struct slice mine = s3_call_principal(call)->who.account;
	const struct s3_error *error = NULL;
	struct s3_topic_name name;
	const json_t *topic;
	json_t *account;

	topic = topic_find(call->s3, arn, &account);
	if (!topic)
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"Unable to validate the following destination configurations");
	if (s3_topic_name_parse(arn, &name) && !call->identity->root &&
		!slice_eq(name.account, mine) &&
		!s3_call_published(call, arn, json_member_text(topic, S3_TOPIC_POLICY)))
		error = s3_fail(call, S3_E_ACCESS_DENIED,
			"The topic belongs to another account, and its policy does not allow you "
			"to publish.");
	iam_account_put(account);
	return error;
}

/* Buckets may have any region in the ARN. */
static struct slice endpoint_name(const struct s3_topic_name *name)
{
	return slice_of(name->account.data, name->account.len + 1 + name->name.len);
}

int s3_topic_way(struct s3 *s3, struct slice target, struct slice arn, struct s3_topic_way *ret_way)
{
	struct s3_topic_way way = {.endpoint = {.name = target}};
	struct s3_topic_name name;
	const json_t *topic;

	if (!s3_notify_has(s3->notify, target)) {
		topic = topic_find(s3, arn, &way.account);
		if (!topic || !s3_topic_name_parse(arn, &name))
			return -ENOENT;
		way.endpoint.name = endpoint_name(&name);
		way.endpoint.url = json_member_text(topic, S3_TOPIC_ENDPOINT);
		way.endpoint.any_certificate =
			slice_eq_nocase(json_member_text(topic, S3_TOPIC_VERIFY), SLICE("false"));
		way.opaque = json_member_text(topic, S3_TOPIC_OPAQUE);
		way.passing =
			slice_eq_nocase(json_member_text(topic, S3_TOPIC_PERSIST), SLICE("false"));
		if (!way.endpoint.url.len) {
			s3_topic_way_put(&way);
			return -ENODATA;
		}
	}
	*ret_way = way;
	return 0;
}

void s3_topic_way_put(struct s3_topic_way *way)
{
	iam_account_put(way->account);
	way->account = NULL;
}

void s3_topic_changed(struct s3 *s3, struct slice arn)
{
	struct s3_topic_name name;
	struct s3_topic_way way;

	if (!s3_topic_name_parse(arn, &name))
		return;
	if (s3_topic_way(s3, SLICE_NONE, arn, &way))
		way = (struct s3_topic_way){.endpoint = {.name = endpoint_name(&name)}};
	s3_notify_move(s3->notify, &way.endpoint);
	s3_topic_way_put(&way);
}
