/* s3/identity/sts.h: the calls that give out sessions. */
#ifndef S3_STS_H
#define S3_STS_H

#include "iam/iam.h"
#include "s3/identity/api.h"

/* Creates a key with its secret, valid for that time, and writes its <Credentials>. The caller
 * fills in the token's other fields. -EMSGSIZE: the session's policy is too long. */
int s3_sts_credentials(struct iam *iam, struct iam_token *token, uint64_t seconds, struct buf *xml);

/* ---- Sessions of roles. ---- */
/* The requested properties of a session. */
struct sts_wish {
	struct slice name, policy, policy_arns;
	struct iam_tag tags[IAM_TAGS_MAX];
	uint32_t tag_count;
	uint64_t seconds;
};
const struct s3_error *sts_read_wish(struct api *api, struct sts_wish *ret_wish);
/* The account in a role's ARN (arn:aws:iam::123456789012:role/path/name); the caller's own if the
 * ARN has no number. NULL: no such account. Release it with json_decref. */
json_t *sts_account(struct api *api, struct slice arn);
/* The role and its complete ARN; NULL: no such role. */
json_t *sts_role(const json_t *account, struct slice arn, char ret_own[IAM_ARN_LEN_MAX]);
/* Adds a tag, whose memory must live longer than the wish. */
const struct s3_error *sts_add_tag(
	struct api *api, struct sts_wish *wish, const struct iam_tag *tag);
/* The condition values of a request for a role's session. */
struct sts_ask {
	const struct sts_wish *wish;
	const struct api *api;
	const json_t *role;
};
uint32_t sts_ask_values(
	const struct sts_ask *ask, struct slice key, struct slice *ret_values, uint32_t max);
/* Whether a role trusts the caller, and allows the session's tags (sts:TagSession). */
bool sts_trusted(struct api *api, const struct sts_wish *wish, struct s3_trust trust);
/* Writes the <Credentials> of a session of the role, after sts_trusted. */
const struct s3_error *sts_give_role(
	struct api *api, const struct sts_wish *wish, const json_t *account, const json_t *role);
/* <AssumedRoleUser> */
void sts_put_assumed(struct api *api, const json_t *account, const json_t *role);

#endif
