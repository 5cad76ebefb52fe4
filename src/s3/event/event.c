/* s3/event/event.c: makes the record of an object's event, for the target that its bucket names.
 *
 * The record is made before the commit and stored by it, as "target\0ARN\0JSON". Version id and
 * number are known only after the commit: the record has holes for them, which are filled when it
 * is queued. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "s3/auth/access.h"
#include "s3/core/call.h"
#include "s3/core/conditions.h"
#include "s3/core/settings.h"
#include "s3/core/text.h"
#include "s3/event/notification.h"
#include "s3/event/notify.h"
#include "s3/event/topic.h"

/* Events that S3 introduced later have a later version of the format. */
static const struct kind {
	const char *name, *version;
} kinds[S3_EVENT_COUNT] = {
	[S3_EVENT_PUT] = {"ObjectCreated:Put", "2.1"},
	[S3_EVENT_POST] = {"ObjectCreated:Post", "2.1"},
	[S3_EVENT_COPY] = {"ObjectCreated:Copy", "2.1"},
	[S3_EVENT_COMPLETE] = {"ObjectCreated:CompleteMultipartUpload", "2.1"},
	[S3_EVENT_DELETE] = {"ObjectRemoved:Delete", "2.1"},
	[S3_EVENT_MARKER] = {"ObjectRemoved:DeleteMarkerCreated", "2.1"},
	[S3_EVENT_TAGGING_PUT] = {"ObjectTagging:Put", "2.3"},
	[S3_EVENT_TAGGING_DELETE] = {"ObjectTagging:Delete", "2.3"},
	[S3_EVENT_ACL_PUT] = {"ObjectAcl:Put", "2.3"},
	[S3_EVENT_EXPIRATION] = {"LifecycleExpiration:Delete", "2.3"},
	[S3_EVENT_EXPIRATION_MARKER] = {"LifecycleExpiration:DeleteMarkerCreated", "2.3"},
	[S3_EVENT_TRANSITION] = {"LifecycleTransition", "2.3"},
	[S3_EVENT_REPLICATION_FAILED] = {"Replication:OperationFailedReplication", "2.2"},
	[S3_EVENT_REPLICATION_MISSED] = {"Replication:OperationMissedThreshold", "2.2"},
	[S3_EVENT_REPLICATION_AFTER] = {"Replication:OperationReplicatedAfterThreshold", "2.2"},
	[S3_EVENT_REPLICATION_UNTRACKED] = {"Replication:OperationNotTracked", "2.2"},
};

#define HOLE_NUMBER  "\"sequencer\":\"\""
#define HOLE_VERSION "\"versionId\":\"\","
/* The most bytes that filling the holes adds. */
#define HOLES_BYTES 64u

/* The context of an event: its place and its caller. */
struct scene {
	struct s3 *s3;
	const struct s3_settings *settings;
	struct slice user;
	const char *peer;
	const char *request_id;
};

/* S3 reports no size with these events. */
static bool about_metadata(enum s3_event_id id)
{
	return id == S3_EVENT_TAGGING_PUT || id == S3_EVENT_TAGGING_DELETE ||
	       id == S3_EVENT_ACL_PUT;
}

static json_t *object_of(const struct s3_event *event)
{
	json_t *object = json_object();
	struct buf key;

	/* Form encoding: a space becomes a plus. */
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
		if (!about_metadata(event->id))
			json_object_set_new(
				object, "size", json_integer((json_int_t)event->meta->bytes));
		json_object_set_new(object, "eTag", json_string(event->meta->etag));
	}
	/* Empty strings as holes, one after the other. */
	if (!slice_eq(event->version_id, SLICE("null")))
		json_object_set_new(object, "versionId",
			json_stringn(event->version_id.len ? event->version_id.data : "",
				event->version_id.len));
	json_object_set_new(object, "sequencer", json_string(""));
	return object;
}

static void seconds_set(json_t *json, const char *name, uint64_t ns)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)(ns / NS_PER_S));
	if (ns)
		json_object_set_new(json, name, json_string(text));
}

static json_t *replication_of(const struct s3_event_replication *replication)
{
	char time[DATE_ISO_LEN + 1] = "", arn[S3_REPLICATE_NAME_MAX + 16];
	json_t *json;

	date_iso_format((int64_t)(replication->time_ns / NS_PER_MS), time);
	snprintf(arn, sizeof(arn), "arn:aws:s3:::%.*s", SLICE_FMT(replication->target));
	json = json_pack("{s:s%, s:s, s:s, s:s}", "replicationRuleId",
		replication->rule_id.len ? replication->rule_id.data : "", replication->rule_id.len,
		"destinationBucket", arn, "s3Operation", replication->operation, "requestTime",
		time);
	if (replication->why.len)
		json_object_set_new(json, "failureReason",
			json_stringn(replication->why.data, replication->why.len));
	seconds_set(json, "threshold", replication->threshold_ns);
	seconds_set(json, "replicationTime", replication->took_ns);
	return json;
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
		"eventVersion", kinds[event->id].version, "eventSource", "aws:s3", "awsRegion",
		bucket->region, "eventTime", time, "eventName", kinds[event->id].name,
		"userIdentity", "principalId", scene->user.len ? scene->user.data : "",
		scene->user.len, "requestParameters", "sourceIPAddress",
		address.len ? address.data : "", address.len, "responseElements",
		"x-amz-request-id", scene->request_id, "x-amz-id-2", scene->s3->host_id, "s3",
		"s3SchemaVersion", "1.0", "bucket", "name", bucket->name, "ownerIdentity",
		"principalId", bucket->owner, "arn", arn, "object", object_of(event));
	if (event->class.len)
		json_object_set_new(record, "lifecycleEventData",
			json_pack("{s:{s:s%}}", "transitionEventData", "destinationStorageClass",
				event->class.data, event->class.len));
	if (event->replication)
		json_object_set_new(
			record, "replicationEventData", replication_of(event->replication));
	return record;
}

/* The text for the commit; data NULL: no memory. */
static struct slice text_of(const struct scene *scene, const struct s3_event *event,
	const struct s3_notification_rule *rule, const struct s3_topic_way *way)
{
	json_t *record = record_of(scene, event), *message;
	struct buf out;
	char *json;

	if (way->opaque.len)
		json_object_set_new(
			record, "opaqueData", json_stringn(way->opaque.data, way->opaque.len));
	json_object_set_new(json_object_get(record, "s3"), "configurationId",
		json_stringn(rule->id.data, rule->id.len));
	message = json_pack("{s:[o]}", "Records", record);
	json = message ? json_dumps(message, JSON_COMPACT) : NULL;
	json_decref(message);
	buf_init(&out, STORE_OUTBOX_ROW_BYTES_MAX);
	buf_put_slice(&out, rule->target);
	buf_put(&out, "", 1);
	buf_put_slice(&out, rule->arn);
	buf_put(&out, "", 1);
	if (json)
		buf_put_str(&out, json);
	if (!json || out.failed) {
		buf_free(&out);
		out.data = NULL;
	}
	free(json);
	return out.data ? slice_of(out.data, out.len) : SLICE_NONE;
}

/* Takes the JSON out of such a text. -EUCLEAN. */
static int text_split(
	struct slice text, struct slice *ret_target, struct slice *ret_arn, struct slice *ret_json)
{
	*ret_target = slice_split(&text, '\0');
	*ret_arn = slice_split(&text, '\0');
	*ret_json = text;
	return ret_target->len && ret_arn->len && slice_starts(text, SLICE("{")) ? 0 : -EUCLEAN;
}

struct slice s3_event_target(struct slice text)
{
	struct slice target, arn, json;

	return text_split(text, &target, &arn, &json)
		       ? SLICE_NONE
		       : slice_of(text.data, (size_t)(json.data - text.data));
}

/* In the server's own JSON every quote inside a string is escaped, so a match is always a hole. */
static void queue(struct s3_notice *notice, struct slice json, struct slice version_id,
	uint64_t number, bool kept)
{
	ptrdiff_t found = slice_find(json, SLICE(HOLE_NUMBER));
	size_t at = found < 0 ? json.len : (size_t)found;
	struct slice head = slice_to(json, at), tail = slice_from(json, at);
	struct buf out;

	buf_init(&out, json.len + HOLES_BYTES);
	if (slice_ends(head, SLICE(HOLE_VERSION))) {
		buf_put_slice(&out, slice_to(head, head.len - strlen(HOLE_VERSION)));
		if (version_id.len && !slice_eq(version_id, SLICE("null")))
			buf_printf(&out, "\"versionId\":\"%.*s\",", SLICE_FMT(version_id));
	} else {
		buf_put_slice(&out, head);
	}
	if (tail.len) {
		buf_printf(&out, "\"sequencer\":\"%016llX\"", (unsigned long long)number);
		buf_put_slice(&out, slice_from(tail, strlen(HOLE_NUMBER)));
	}
	if (out.failed) {
		log_warn("s3", "no memory for an event of %.*s", SLICE_FMT(slice_to(json, 64)));
		s3_notify_cancel(notice);
	} else {
		s3_notify_queue(notice, buf_slice(&out), number, kept);
	}
	buf_free(&out);
}

static const struct s3_notification_rule *rule_for(
	const struct scene *scene, const struct s3_event *event)
{
	const struct s3_notification *notification =
		scene->settings->parsed[S3_CONFIG_NOTIFICATION];

	for (uint32_t i = 0; notification && i < notification->count; i++)
		if (s3_notification_wants(&notification->rules[i], event->id, event->key))
			return &notification->rules[i];
	return NULL;
}

/* First reserves a place in the queue: an event without a place is not stored either. */
static void begin(const struct scene *scene, const struct s3_event *event,
	struct s3_telling_part *part, struct slice *ret_text)
{
	const struct s3_notification_rule *rule = event ? rule_for(scene, event) : NULL;
	struct s3_notify *notify = scene->s3->notify;
	struct s3_topic_way way;
	struct slice text;
	int ret;

	if (!rule)
		return;
	ret = s3_topic_way(scene->s3, rule->target, rule->arn, &way);
	if (ret == -ENODATA)
		return;
	if (ret) {
		way = (struct s3_topic_way){.endpoint = {.name = rule->target}};
		s3_notify_refused(notify, &way.endpoint, ret);
		return;
	}
	text = text_of(scene, event, rule, &way);
	ret = text.data ? s3_notify_reserve(
				  notify, &way.endpoint, text.len + HOLES_BYTES, &part->notice)
			: -ENOMEM;
	if (ret) {
		s3_notify_refused(notify, &way.endpoint, ret);
		free((void *)(uintptr_t)text.data);
	} else {
		part->text = text;
		part->kept = !way.passing;
		*ret_text = part->kept ? text : SLICE_NONE;
	}
	s3_topic_way_put(&way);
}

static void begin_both(const struct scene *scene, const struct s3_event *event,
	const struct s3_event *marker, struct s3_telling *telling)
{
	*telling = (struct s3_telling){.outbox_row = {.number = 0}};
	begin(scene, event, &telling->parts[0], &telling->outbox_row.text);
	begin(scene, marker, &telling->parts[1], &telling->outbox_row.marker_text);
}

void s3_event_begin(struct s3_call *call, const struct s3_event *event,
	const struct s3_event *marker, struct s3_telling *telling)
{
	const struct s3_settings *settings;
	const struct iam_principal *principal;
	struct scene scene = {.s3 = call->s3,
		.peer = call->request->peer,
		.request_id = call->request->request_id};

	*telling = (struct s3_telling){.outbox_row = {.number = 0}};
	if (s3_call_settings(call, &settings) || !settings ||
		!settings->parsed[S3_CONFIG_NOTIFICATION])
		return;
	principal = s3_call_principal(call);
	scene.settings = settings;
	scene.user = principal->who.anonymous ? SLICE("Anonymous") : principal->who.user_id;
	begin_both(&scene, event, marker, telling);
}

void s3_event_begin_of_server(struct s3 *s3, const struct s3_settings *settings,
	const struct s3_event *event, const struct s3_event *marker, struct s3_telling *telling)
{
	/* S3's own name as the caller when there was no request. */
	const struct scene scene = {.s3 = s3,
		.settings = settings,
		.user = SLICE("s3.amazonaws.com"),
		.peer = "s3.amazonaws.com",
		.request_id = "0000000000000000"};

	begin_both(&scene, event, marker, telling);
}

void s3_event_end(struct s3_telling *telling, const struct store_outcome *outcome)
{
	uint64_t number = outcome->ret ? 0 : telling->outbox_row.number;

	for (uint32_t i = 0; i < ARRAY_LEN(telling->parts); i++) {
		struct s3_telling_part *part = &telling->parts[i];
		struct slice target, arn, json;

		if (!part->notice)
			continue;
		if (number && i == outcome->delete_marker &&
			!text_split(part->text, &target, &arn, &json))
			queue(part->notice, json, outcome->version_id, number, part->kept);
		else
			s3_notify_cancel(part->notice);
		part->notice = NULL;
		free((void *)(uintptr_t)part->text.data);
	}
	s3_replica_end(&telling->replica, outcome);
}

void s3_event_pass(struct s3 *s3, const struct s3_settings *settings, const struct s3_event *event,
	uint64_t number)
{
	const struct store_outcome outcome = {.version_id = event->version_id};
	struct s3_telling telling;

	s3_event_begin_of_server(s3, settings, event, NULL, &telling);
	telling.parts[0].kept = false;
	telling.outbox_row.number = number;
	s3_event_end(&telling, &outcome);
}

/* The check of a deletion whose replication could not be noted. */
static int no_memory(const struct store_meta *current, void *arg)
{
	(void)current;
	(void)arg;
	return -ENOMEM;
}

void s3_event_delete_begin(
	struct s3_call *call, struct store_deletion *deletion, struct s3_telling *telling)
{
	const struct s3_event event = {
		.id = S3_EVENT_DELETE, .key = deletion->key, .version_id = deletion->version_id};
	const struct s3_event marker = {.id = S3_EVENT_MARKER, .key = deletion->key};

	s3_event_begin(call, &event, deletion->version_id.len ? NULL : &marker, telling);
	telling->call = call;
	if (!deletion->version_id.len &&
		s3_replica_begin_delete(call, deletion->key, &telling->replica))
		deletion->check = no_memory;
	deletion->outbox_row = s3_telling_outbox_row(telling);
}

void s3_event_delete_end(const struct store_deletion *deletion, struct s3_telling *telling, int ret)
{
	const struct store_outcome outcome = {.ret = ret,
		.delete_marker = deletion->delete_marker && !deletion->version_id.len,
		.version_id = slice_str(deletion->version_id_out)};

	s3_event_end(telling, &outcome);
	if (outcome.delete_marker)
		s3_replica_catch_up(telling->call, deletion->key, &outcome);
}

int s3_event_commit(struct s3_call *call, enum s3_event_id id, struct store_put *put,
	struct store_meta *meta, struct s3_write_condition *condition)
{
	const struct s3_event event = {.id = id, .key = call->key, .meta = meta};
	struct s3_telling telling;
	struct store_outcome outcome;

	s3_event_begin(call, &event, NULL, &telling);
	outcome.ret = s3_replica_begin_put(call, meta, &telling.replica);
	if (outcome.ret) {
		store_put_abort(put);
		s3_event_end(&telling, &outcome);
		return outcome.ret;
	}
	store_put_outbox_row(put, s3_telling_outbox_row(&telling));
	outcome.ret = store_put_commit(put, meta,
		s3_write_condition_any(condition) ? s3_write_condition_check : NULL, condition);
	outcome.delete_marker = false;
	outcome.version_id = slice_str(meta->version_id);
	s3_event_end(&telling, &outcome);
	s3_replica_catch_up(call, call->key, &outcome);
	return outcome.ret;
}

int s3_event_resume(struct s3 *s3, uint64_t number, struct slice version_id, struct slice text)
{
	struct slice target, arn, json;
	struct s3_notice *notice;
	struct s3_topic_way way;
	int ret = text_split(text, &target, &arn, &json);

	if (!ret)
		ret = s3_topic_way(s3, target, arn, &way);
	if (ret) {
		way = (struct s3_topic_way){.endpoint = {.name = target}};
		if (ret != -ENODATA)
			s3_notify_refused(s3->notify, &way.endpoint, ret);
		return ret;
	}
	ret = s3_notify_reserve(s3->notify, &way.endpoint, text.len + HOLES_BYTES, &notice);
	s3_topic_way_put(&way);
	if (!ret)
		queue(notice, json, version_id, number, true);
	return ret;
}
