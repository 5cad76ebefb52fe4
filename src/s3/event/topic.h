/* s3/event/topic.h: topics that clients create by SNS calls: a name in an account, with an endpoint
 * that gets events by HTTP POST. They are stored in the account's document ("topics", by name).
 *
 * Source: SNS API reference, CreateTopic and its kin; Ceph's documentation, "Bucket Notifications",
 * for the delivery attributes (push-endpoint, OpaqueData). */
#ifndef S3_TOPIC_H
#define S3_TOPIC_H

#include "iam/iam.h"
#include "s3/core/call.h"
#include "s3/event/notify.h"

#define S3_TOPICS_MAX	   1000u /* of an account */
#define S3_TOPIC_NAME_MAX  256u
#define S3_TOPIC_VALUE_MAX 4096u
#define S3_TOPIC_ARN_BYTES (S3_TOPIC_NAME_MAX + IAM_ACCOUNT_LEN_MAX + 64u)
#define S3_TOPIC_ENDPOINT  "push-endpoint"
#define S3_TOPIC_OPAQUE	   "OpaqueData"
#define S3_TOPIC_POLICY	   "Policy"
#define S3_TOPIC_VERIFY	   "verify-ssl"
#define S3_TOPIC_PERSIST   "persistent"

struct s3_topic_name {
	struct slice account, name;
};
/* "arn:aws:sns:REGION:ACCOUNT:NAME"; false: not such an ARN. */
bool s3_topic_name_parse(struct slice arn, struct s3_topic_name *ret_name);
bool s3_topic_name_valid(struct slice name);
struct slice s3_topic_arn(const struct s3 *s3, struct slice account, struct slice name,
	char ret_text[S3_TOPIC_ARN_BYTES]);
bool s3_topic_exists(struct s3 *s3, struct slice arn);
/* Whether the call may send its bucket's events to the topic: NULL when it may. InvalidArgument: no
 * such topic; AccessDenied: the topic belongs to another account whose policy does not allow
 * sns:Publish. */
const struct s3_error *s3_topic_may_publish(struct s3_call *call, struct slice arn);
/* The delivery settings of a target: of the server's configuration, or of the topic of that name.
 */
struct s3_topic_way {
	struct s3_notify_endpoint endpoint; /* of a topic, its name: "ACCOUNT:NAME" */
	struct slice opaque;		    /* the creator's data for each event */
	bool passing;	 /* events are not stored across a crash: persistent is false */
	json_t *account; /* owns the slices; the way's reference, or NULL */
};
/* -ENOENT: no such target; -ENODATA: a topic without an endpoint, so no receiver. target and arn
 * are borrowed until the way is put. */
int s3_topic_way(
	struct s3 *s3, struct slice target, struct slice arn, struct s3_topic_way *ret_way);
void s3_topic_way_put(struct s3_topic_way *way);
/* The topic was created, changed or deleted: waiting events follow the change. */
void s3_topic_changed(struct s3 *s3, struct slice arn);

#endif
