/* s3/event/topic.h: topics that clients make by SNS calls: a name in an account, with an endpoint
 * to which events go by HTTP POST. They are kept in the account's document ("topics", by name).
 *
 * Source: SNS API reference, CreateTopic and its kin; Ceph's documentation, "Bucket Notifications",
 * for the attributes that say where events go (push-endpoint, OpaqueData). */
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
/* "arn:aws:sns:REGION:ACCOUNT:NAME"; false: it is none. */
bool s3_topic_name_parse(struct slice arn, struct s3_topic_name *ret_name);
bool s3_topic_name_valid(struct slice name);
struct slice s3_topic_arn(const struct s3 *s3, struct slice account, struct slice name,
	char ret_text[S3_TOPIC_ARN_BYTES]);
/* The topic's attributes; a reference of the account's document, or NULL: there is none. */
const json_t *s3_topic_find(struct s3 *s3, struct slice arn, json_t **ret_account);
bool s3_topic_exists(struct s3 *s3, struct slice arn);
/* Whether the call may have its bucket's events sent there: NULL when it may. InvalidArgument: no
 * such topic; AccessDenied: it is another account's, and its policy does not allow sns:Publish. */
const struct s3_error *s3_topic_may_publish(struct s3_call *call, struct slice arn);
/* How events get to a target of the server's configuration, or to the topic of that name. */
struct s3_topic_way {
	struct s3_notify_endpoint endpoint; /* its name, of a topic: "ACCOUNT:NAME" */
	struct slice opaque;		    /* what its maker wants to be told with each event */
	bool passing;	 /* events are not kept over a crash: persistent is false */
	json_t *account; /* has the slices; the way's reference, or NULL */
};
/* -ENOENT: there is none of that name; -ENODATA: a topic without an endpoint, to which nobody
 * listens. target and arn are borrowed until the way is put. */
int s3_topic_way(
	struct s3 *s3, struct slice target, struct slice arn, struct s3_topic_way *ret_way);
void s3_topic_way_put(struct s3_topic_way *way);
/* The topic was made, changed or deleted: events that wait for it heed that. */
void s3_topic_changed(struct s3 *s3, struct slice arn);

#endif
