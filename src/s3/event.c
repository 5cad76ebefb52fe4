/* s3/event.c: what happened to an object, as a record for the targets that its bucket names. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "s3/access.h"
#include "s3/notification.h"
#include "s3/notify.h"
#include "s3/topic.h"

static const char *const names[S3_EVENT_COUNT] = {
	[S3_EVENT_PUT] = "ObjectCreated:Put",
	[S3_EVENT_POST] = "ObjectCreated:Post",
	[S3_EVENT_COPY] = "ObjectCreated:Copy",
	[S3_EVENT_COMPLETE] = "ObjectCreated:CompleteMultipartUpload",
	[S3_EVENT_DELETE] = "ObjectRemoved:Delete",
	[S3_EVENT_MARKER] = "ObjectRemoved:DeleteMarkerCreated",
	[S3_EVENT_TAGGING_PUT] = "ObjectTagging:Put",
	[S3_EVENT_TAGGING_DELETE] = "ObjectTagging:Delete",
	[S3_EVENT_ACL_PUT] = "ObjectAcl:Put",
	[S3_EVENT_EXPIRATION] = "LifecycleExpiration:Delete",
	[S3_EVENT_EXPIRATION_MARKER] = "LifecycleExpiration:DeleteMarkerCreated",
	[S3_EVENT_TRANSITION] = "LifecycleTransition",
};

/* Where it happened, and who did it. */
struct scene {
	struct s3 *s3;
	const struct s3_settings *settings;
	struct slice user;
	const char *peer;
	const char *request_id;
};

static json_t *object_of(const struct scene *scene, const struct s3_event *event)
{
	json_t *object = json_object();
	char sequencer[17];
	struct buf key;

	/* As in a form: a space is a plus. */
	buf_init(&key, 3 * LIMIT_KEY_LEN_MAX + 1);
	uri_encode(event->key, URI_KEEP_SLASH, &key);
	for (size_t i = 0; i + 2 < key.len; i++)
		if (memcmp(key.data + i, "%20", 3) == 0) {
			key.data[i] = '+';
			memmove(key.data + i + 1, key.data + i + 3, key.len - i - 3);
			key.len -= 2;
		}
	json_object_set_new(object, "key", json_stringn(key.data, key.len));
	buf_free(&key);
	if (event->meta) {
		json_object_set_new(object, "size", json_integer((json_int_t)event->meta->bytes));
		json_object_set_new(object, "eTag", json_string(event->meta->etag));
	}
	if (event->version_id.len && !slice_eq(event->version_id, SLICE("null")))
		json_object_set_new(object, "versionId",
			json_stringn(event->version_id.data, event->version_id.len));
	snprintf(sequencer, sizeof(sequencer), "%016llX",
		(unsigned long long)s3_notify_sequence(scene->s3->notify));
	json_object_set_new(object, "sequencer", json_string(sequencer));
	return object;
}

static json_t *record_of(const struct scene *scene, const struct s3_event *event)
{
	const struct store_bucket *bucket = &scene->settings->bucket;
	struct slice address = s3_peer_address(scene->peer);
	json_t *record;
	char time[DATE_ISO_LEN + 1] = "", arn[LIMIT_BUCKET_LEN_MAX + 16];

	date_iso_format((int64_t)(clock_real_ns() / NS_PER_MS), time);
	snprintf(arn, sizeof(arn), "arn:aws:s3:::%s", bucket->name);
	record = json_pack("{s:s, s:s, s:s, s:s, s:s, s:{s:s%}, s:{s:s%}, s:{s:s, s:s},"
			   "s:{s:s, s:{s:s, s:{s:s}, s:s}, s:o}}",
		"eventVersion", "2.3", "eventSource", "aws:s3", "awsRegion", bucket->region,
		"eventTime", time, "eventName", names[event->id], "userIdentity", "principalId",
		scene->user.len ? scene->user.data : "", scene->user.len, "requestParameters",
		"sourceIPAddress", address.len ? address.data : "", address.len, "responseElements",
		"x-amz-request-id", scene->request_id, "x-amz-id-2", scene->s3->host_id, "s3",
		"s3SchemaVersion", "1.0", "bucket", "name", bucket->name, "ownerIdentity",
		"principalId", bucket->owner, "arn", arn, "object", object_of(scene, event));
	if (event->class.len)
		json_object_set_new(record, "lifecycleEventData",
			json_pack("{s:{s:s%}}", "transitionEventData", "destinationStorageClass",
				event->class.data, event->class.len));
	return record;
}

static void send_record(
	const struct scene *scene, json_t *record, const struct s3_notification_rule *rule)
{
	const json_t *topic = NULL;
	json_t *message, *account;
	char *text;

	/* What the topic's maker wants to be told with each event. */
	json_object_del(record, "opaqueData");
	if (!s3_notify_has(scene->s3->notify, rule->target))
		topic = s3_topic_find(scene->s3, rule->arn, &account);
	if (topic) {
		struct slice opaque = json_member_text(topic, S3_TOPIC_OPAQUE);

		if (opaque.len)
			json_object_set_new(
				record, "opaqueData", json_stringn(opaque.data, opaque.len));
		json_decref(account);
	}
	json_object_set_new(json_object_get(record, "s3"), "configurationId",
		json_stringn(rule->id.data, rule->id.len));
	message = json_pack("{s:[O]}", "Records", record);
	text = message ? json_dumps(message, JSON_COMPACT) : NULL;
	if (text)
		s3_topic_send(scene->s3, rule->target, rule->arn, slice_str(text));
	else
		log_warn("s3", "no memory for an event of %s", scene->settings->bucket.name);
	free(text);
	json_decref(message);
}

static void tell(const struct scene *scene, const struct s3_event *event)
{
	const struct s3_notification *notification =
		scene->settings->parsed[S3_CONFIG_NOTIFICATION];
	json_t *record = NULL;

	for (uint32_t i = 0; notification && i < notification->count; i++) {
		if (!s3_notification_wants(&notification->rules[i], event->id, event->key))
			continue;
		if (!record)
			record = record_of(scene, event);
		send_record(scene, record, &notification->rules[i]);
	}
	json_decref(record);
}

void s3_event(struct s3_call *call, const struct s3_event *event)
{
	const struct s3_settings *settings;
	const struct iam_principal *principal;
	struct scene scene = {.s3 = call->s3,
		.peer = call->request->peer,
		.request_id = call->request->request_id};

	if (s3_call_settings(call, &settings) || !settings)
		return;
	principal = s3_call_principal(call);
	scene.settings = settings;
	scene.user = principal->who.anonymous ? SLICE("Anonymous") : principal->who.user_id;
	tell(&scene, event);
}

void s3_event_of_server(
	struct s3 *s3, const struct s3_settings *settings, const struct s3_event *event)
{
	/* As S3 names itself where nobody asked. */
	const struct scene scene = {.s3 = s3,
		.settings = settings,
		.user = SLICE("s3.amazonaws.com"),
		.peer = "s3.amazonaws.com",
		.request_id = "0000000000000000"};

	tell(&scene, event);
}

void s3_event_written(struct s3_call *call, enum s3_event_id id, const struct store_meta *meta)
{
	const struct s3_event event = {.id = id,
		.key = call->key,
		.version_id = slice_str(meta->version_id),
		.meta = meta};

	s3_event(call, &event);
}

void s3_event_edited(struct s3_call *call, enum s3_event_id id)
{
	struct s3_event event = {.id = id, .key = call->key};

	s3_call_param(call, SLICE("versionId"), &event.version_id);
	s3_event(call, &event);
}

void s3_event_deleted(struct s3_call *call, const struct store_deletion *deletion)
{
	bool marker = deletion->delete_marker && !deletion->version_id.len;
	const struct s3_event event = {.id = marker ? S3_EVENT_MARKER : S3_EVENT_DELETE,
		.key = deletion->key,
		.version_id = deletion->version_id.len ? deletion->version_id
						       : slice_str(deletion->version_id_out)};

	s3_event(call, &event);
}
