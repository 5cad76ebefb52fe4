/* s3/notification.h: which events of a bucket go to which targets, and the records that tell of
 * them.
 *
 * Source: S3 User Guide, "Event notification types and destinations", "Event message structure";
 * API Reference, "PutBucketNotificationConfiguration". */
#ifndef S3_NOTIFICATION_H
#define S3_NOTIFICATION_H

#include "s3/settings.h"

#define S3_NOTIFICATION_RULES_MAX 100u

enum s3_event_id {
	S3_EVENT_PUT,
	S3_EVENT_POST,
	S3_EVENT_COPY,
	S3_EVENT_COMPLETE,
	S3_EVENT_DELETE,
	S3_EVENT_MARKER,
	S3_EVENT_TAGGING_PUT,
	S3_EVENT_TAGGING_DELETE,
	S3_EVENT_ACL_PUT,
	S3_EVENT_EXPIRATION,
	S3_EVENT_EXPIRATION_MARKER,
	S3_EVENT_TRANSITION,
	S3_EVENT_COUNT
};

struct s3_notification_rule {
	struct slice id, arn, target; /* target: the last part of the ARN */
	uint32_t events;	      /* bits of s3_event_id */
	struct slice prefix, suffix;
};
struct s3_notification {
	struct s3_notification_rule *rules;
	uint32_t count;
};
struct s3_notification_wrong {
	enum s3_error_id error;
	const char *message; /* NULL: the error's own */
};
/* -EINVAL with *ret_wrong; -ENOMEM. Texts live as long as the tree, in which rules without an Id
 * are given one. */
int s3_notification_parse(struct s3_xml *root, struct mem_arena *arena,
	struct s3_notification *ret_notification, struct s3_notification_wrong *ret_wrong);
bool s3_notification_wants(
	const struct s3_notification_rule *rule, enum s3_event_id id, struct slice key);

/* What happened to a key of the call's bucket. */
struct s3_event {
	enum s3_event_id id;
	struct slice key;
	struct slice version_id;       /* empty or "null": not told */
	const struct store_meta *meta; /* size and ETag; NULL: not told */
	struct slice class;	       /* a transition's: where to */
};
/* After the commit. Costs a bucket that wants no events one look. */
void s3_event(struct s3_call *call, const struct s3_event *event);
/* Of what the server does by itself. */
void s3_event_of_server(
	struct s3 *s3, const struct s3_settings *settings, const struct s3_event *event);
/* Of the call's own key, as a write left it. */
void s3_event_written(struct s3_call *call, enum s3_event_id id, const struct store_meta *meta);
/* Of the call's own key in the version that the query names. */
void s3_event_edited(struct s3_call *call, enum s3_event_id id);
void s3_event_deleted(struct s3_call *call, const struct store_deletion *deletion);

#endif
