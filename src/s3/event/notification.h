/* s3/event/notification.h: maps a bucket's events to targets, and makes the event records.
 *
 * Source: S3 User Guide, "Event notification types and destinations", "Event message structure";
 * API Reference, "PutBucketNotificationConfiguration". */
#ifndef S3_NOTIFICATION_H
#define S3_NOTIFICATION_H

#include "s3/core/call.h"
#include "s3/core/conditions.h"
#include "s3/core/settings.h"
#include "s3/core/xml_in.h"
#include "s3/replicate/replicate.h"

/* The kinds of events. */
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
	S3_EVENT_REPLICATION_FAILED,
	S3_EVENT_REPLICATION_MISSED,
	S3_EVENT_REPLICATION_AFTER,
	S3_EVENT_REPLICATION_UNTRACKED,
	S3_EVENT_COUNT,
	S3_EVENT_NONE = S3_EVENT_COUNT
};

#define S3_NOTIFICATION_RULES_MAX 100u

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
	/* The field and its value, for S3's error; no field: NULL. */
	const char *argument;
	struct slice value;
};
/* -EINVAL with *ret_wrong; -ENOMEM. Texts live as long as the tree; rules without an Id get one in
 * the tree. */
int s3_notification_parse(struct s3_xml *root, struct mem_arena *arena,
	struct s3_notification *ret_notification, struct s3_notification_wrong *ret_wrong);
bool s3_notification_wants(
	const struct s3_notification_rule *rule, enum s3_event_id id, struct slice key);

extern const struct s3_config_ops s3_config_notification;

/* The replication that an event is about. */
struct s3_event_replication {
	struct slice rule_id, target, why;
	const char *operation;		/* S3's name of what was asked for */
	uint64_t time_ns;		/* real time of that request */
	uint64_t threshold_ns, took_ns; /* 0: left out */
};
/* An event of a key of the call's bucket. */
struct s3_event {
	enum s3_event_id id;
	struct slice key;
	struct slice version_id;       /* empty or "null": left out */
	const struct store_meta *meta; /* size and ETag; NULL: left out */
	struct slice class;	       /* for a transition: the new storage class */
	const struct s3_event_replication *replication; /* NULL: of none */
};
struct s3_notice;
/* An event and its commit: begin it before the commit and end it afterwards. At most one rule of a
 * bucket matches, so the event has one target. */
struct s3_telling {
	struct store_outbox_row outbox_row; /* for the commit */
	struct s3_telling_part {
		struct s3_notice *notice; /* NULL: no target */
		struct slice text;	  /* allocated */
		bool kept;
	} parts[2]; /* the event; the one used instead if a delete marker was added */
	struct s3_replica_mark replica;
	struct s3_call *call; /* of a deletion */
};
/* The outbox rows for the commit; NULL: none. */
static inline struct store_outbox_row *s3_telling_outbox_row(struct s3_telling *telling)
{
	struct store_outbox_row *replica = s3_replica_outbox_row(&telling->replica);

	if (!telling->parts[0].notice && !telling->parts[1].notice)
		return replica;
	telling->outbox_row.next = replica;
	return &telling->outbox_row;
}
/* An event without a version id gets the id of the outcome. A bucket without notifications costs
 * one check. marker may be NULL. */
void s3_event_begin(struct s3_call *call, const struct s3_event *event,
	const struct s3_event *marker, struct s3_telling *telling);
/* The same for changes that the server makes by itself. */
void s3_event_begin_of_server(struct s3 *s3, const struct s3_settings *settings,
	const struct s3_event *event, const struct s3_event *marker, struct s3_telling *telling);
void s3_event_end(struct s3_telling *telling, const struct store_outcome *outcome);
/* An event of the server's that belongs to no commit: it is not stored. number: of what it is
 * about. */
void s3_event_pass(struct s3 *s3, const struct s3_settings *settings, const struct s3_event *event,
	uint64_t number);
/* The event and the replication of a deletion; the deletion stores their outbox rows. */
void s3_event_delete_begin(
	struct s3_call *call, struct store_deletion *deletion, struct s3_telling *telling);
void s3_event_delete_end(
	const struct store_deletion *deletion, struct s3_telling *telling, int ret);
/* store_put_commit for the call's own key, with its event, and with the mark of replication. */
int s3_event_commit(struct s3_call *call, enum s3_event_id id, struct store_put *put,
	struct store_meta *meta, struct s3_write_condition *condition);
/* Sends an event that an earlier start left to its target. -ENOBUFS, -EBUSY, -ENOMEM: try later;
 * otherwise the event is given up, which was logged: -ENOENT, -ENODATA as s3_topic_way, -EUCLEAN:
 * invalid text. */
int s3_event_resume(struct s3 *s3, uint64_t number, struct slice version_id, struct slice text);
/* The target of such a text; all texts of one target return the same. */
struct slice s3_event_target(struct slice text);

#endif
