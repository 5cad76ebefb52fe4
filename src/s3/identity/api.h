/* s3/identity/api.h: what the calls of IAM, STS and SNS share: a form with an Action in, XML out.
 * Each call is one row of a table (op/service.c); one that changes an account works on a copy,
 * which is kept when it succeeds.
 *
 * Source: IAM API reference, version 2010-05-08; STS API reference, version 2011-06-15; SNS API
 * reference, version 2010-03-31. */
#ifndef IAM_API_H
#define IAM_API_H

#include "s3/auth/access.h"
#include "s3/core/call.h"
#include "s3/core/text.h"

struct api;
/* Writes what stands inside its result, or returns an error. account: of who asks. */
typedef const struct s3_error *api_fn(struct api *api, json_t *account);

enum api_kind { API_NONE, API_USER, API_GROUP, API_ROLE, API_POLICY, API_PROVIDER };
struct api_action {
	const char *name;
	api_fn *run;
	enum api_kind kind; /* of which entity it is, where one function serves several */
	bool changes;
	enum api_service { API_IAM, API_STS, API_SNS } service;
};
struct api {
	struct s3_call *call;
	const struct api_action *action;
	struct s3_params form;
	const struct s3_error *error; /* why a change was not made */
	struct buf xml;
};

/* A field of the form; empty when it is missing. */
struct slice api_field(const struct api *api, const char *name);
/* Kinds by their names: "users", "user", "UserName", "User". */
const char *api_members(enum api_kind kind);
const char *api_word(enum api_kind kind);
const char *api_name_field(enum api_kind kind);
/* The entity that the form names; NoSuchEntity. */
const struct s3_error *api_entity(
	struct api *api, json_t *account, enum api_kind kind, json_t **ret_entity);
/* The OpenID Connect provider that the form names by its ARN. */
const struct s3_error *api_provider(struct api *api, json_t *account, json_t **ret_provider);
/* The provider whose tokens say that they are of this issuer; NULL. */
const json_t *api_provider_of(const json_t *account, struct slice issuer);
/* That ARN, or the one that a new provider will have. */
struct slice api_provider_arn(struct api *api, const json_t *account, char text[IAM_ARN_LEN_MAX]);
/* The document is a policy of that kind; MalformedPolicyDocument. */
const struct s3_error *api_policy_check(struct api *api, enum policy_kind kind, struct slice text);
const struct s3_error *api_no_such(struct api *api, const char *what, struct slice name);
const struct s3_error *api_invalid(struct api *api, const char *what);
/* <Name>text</Name> of a member of an entity. */
void api_put(struct api *api, const char *element, struct slice text);
void api_put_time(struct api *api, const char *element, const json_t *entity);
/* An entity as its calls tell it, inside <User> and its kin or <member>. */
void api_put_entity(struct api *api, json_t *account, enum api_kind kind, const json_t *entity,
	const char *element);
/* How long a session of a role may be. */
int64_t api_role_seconds(const json_t *role);
/* Pages through an object's members in order of their names: <member>…</member> for each. */
typedef void api_each_fn(struct api *api, json_t *account, const char *name, json_t *value);
const struct s3_error *api_list(
	struct api *api, json_t *account, json_t *object, const char *element, api_each_fn *each);

/* Number, from 1, of a list in the form: "Tags.member.1.Key". */
struct slice api_member(const struct api *api, const char *list, uint32_t number, const char *of);
bool api_is_tag(struct slice key, struct slice value);
/* Tags of the form onto an entity; those of an entity, <Tags>, where it has any. */
const struct s3_error *api_take_tags(struct api *api, json_t *entity);
void api_put_tags(struct api *api, const json_t *entity);

api_fn api_tag, api_untag, api_list_tags;
api_fn api_create, api_get, api_list_all, api_update, api_delete;
api_fn api_create_key, api_list_keys, api_update_key, api_delete_key;
api_fn api_put_policy, api_get_policy, api_delete_policy, api_list_policies;
api_fn api_attach, api_detach, api_list_attached, api_policy_version;
api_fn api_group_add, api_group_remove, api_groups_of_user, api_trust, api_summary;
api_fn api_create_provider, api_get_provider, api_list_providers, api_delete_provider;
api_fn api_add_client, api_remove_client, api_update_thumbprints;
api_fn api_caller, api_assume_role, api_assume_role_web, api_session_token;
api_fn api_create_topic, api_list_topics, api_get_topic, api_set_topic_attributes;
api_fn api_delete_topic;

#endif
