/* s3/identity/api.h: common parts of the calls of IAM, STS and SNS: a form with an Action in, XML
 * out. Each call is one row of a table (op/service.c). A call that changes an account works on a
 * copy, which is stored if the call succeeds.
 *
 * Source: IAM API reference, version 2010-05-08; STS API reference, version 2011-06-15; SNS API
 * reference, version 2010-03-31. */
#ifndef IAM_API_H
#define IAM_API_H

#include "s3/auth/access.h"
#include "s3/core/call.h"
#include "s3/core/text.h"

struct api;
/* Writes the contents of its result, or returns an error. account: the caller's. */
typedef const struct s3_error *api_fn(struct api *api, json_t *account);

enum api_kind { API_NONE, API_USER, API_GROUP, API_ROLE, API_POLICY, API_PROVIDER };
struct api_action {
	const char *name;
	api_fn *run;
	enum api_kind kind; /* the kind of entity, if one function serves several */
	bool changes;
	enum api_service { API_IAM, API_STS, API_SNS } service;
};
struct api {
	struct s3_call *call;
	const struct api_action *action;
	struct s3_params form;
	const struct s3_error *error; /* the error of a failed change */
	struct buf xml;
	json_t *builtins; /* the policies that every account has, once a call has asked for them */
};

/* A field of the form; empty when it is missing. */
struct slice api_field(const struct api *api, const char *name);
/* The policies that every account has, by name; NULL: no memory. */
json_t *api_builtins(struct api *api);
/* Kinds by their names: "users", "user", "UserName", "User". */
const char *api_members(enum api_kind kind);
const char *api_word(enum api_kind kind);
const char *api_name_field(enum api_kind kind);
/* The entity that the form names; NoSuchEntity. */
const struct s3_error *api_entity(
	struct api *api, json_t *account, enum api_kind kind, json_t **ret_entity);
/* The OpenID Connect provider that the form names by its ARN. */
const struct s3_error *api_provider(struct api *api, json_t *account, json_t **ret_provider);
/* The provider of this issuer; NULL: none. */
const json_t *api_provider_of(const json_t *account, struct slice issuer);
/* The ARN in the form, or that of a new provider. */
struct slice api_provider_arn(struct api *api, const json_t *account, char text[IAM_ARN_LEN_MAX]);
/* Checks that the document is a policy of that kind; MalformedPolicyDocument. */
const struct s3_error *api_policy_check(struct api *api, enum policy_kind kind, struct slice text);
const struct s3_error *api_no_such(struct api *api, const char *what, struct slice name);
const struct s3_error *api_invalid(struct api *api, const char *what);
/* <Name>text</Name> of a member of an entity. */
void api_put(struct api *api, const char *element, struct slice text);
void api_put_time(struct api *api, const char *element, int64_t ms);
/* Writes an entity as in its calls' answers, inside <User> and its kin or <member>. */
void api_put_entity(struct api *api, json_t *account, enum api_kind kind, const json_t *entity,
	const char *element);
/* <UserName> and <UserId>, or what the kind has instead. */
void api_put_ids(struct api *api, enum api_kind kind, const json_t *entity);
/* The maximum duration of a role's session. */
int64_t api_role_seconds(const json_t *role);
/* Writes a page of an object's members in order of their names: <member>…</member> for each. */
typedef void api_each_fn(struct api *api, json_t *account, const char *name, json_t *value);
const struct s3_error *api_list(
	struct api *api, json_t *account, json_t *object, const char *element, api_each_fn *each);

/* The ARN of the topic that the form names: TopicArn, or ResourceArn where SNS calls it so. */
struct slice api_topic_arn(const struct api *api);

/* Number, from 1, of a list in the form: "Tags.member.1.Key". */
struct slice api_member(const struct api *api, const char *list, uint32_t number, const char *of);
bool api_is_tag(struct slice key, struct slice value);
/* Adds the form's tags to an entity; writes an entity's tags, <Tags>, if it has any. */
const struct s3_error *api_take_tags(struct api *api, json_t *entity);
void api_put_tags(struct api *api, const json_t *entity);

api_fn api_tag, api_untag, api_list_tags;
api_fn api_create, api_get, api_list_all, api_update, api_delete;
api_fn api_create_key, api_list_keys, api_update_key, api_delete_key;
api_fn api_put_policy, api_get_policy, api_delete_policy, api_list_policies;
api_fn api_attach, api_detach, api_list_attached, api_entities_for_policy;
api_fn api_list_managed, api_list_versions, api_get_version, api_create_version;
api_fn api_set_default_version, api_delete_version;
api_fn api_role_description, api_key_last_used, api_list_none, api_no_login;
api_fn api_group_add, api_group_remove, api_groups_of_user, api_trust, api_summary;
api_fn api_create_provider, api_get_provider, api_list_providers, api_delete_provider;
api_fn api_add_client, api_remove_client, api_update_thumbprints;
api_fn api_caller, api_assume_role, api_assume_role_web, api_session_token;
api_fn api_create_topic, api_list_topics, api_get_topic, api_set_topic_attributes;
api_fn api_delete_topic, api_topic_tags;

#endif
