/* s3/iam.h: who there is: accounts, the users, groups, roles and policies inside them, and their
 * keys. An account is one document (document.h, i/a/NUMBER), changed as a whole; what requests look
 * up is a table in memory. Secrets are sealed with a key that the store does not hold.
 *
 *   account ─ owner: canonical id, name, e-mail; root keys
 *           ├ users ─ keys, policies, groups; one may be an owner of its own
 *           ├ groups, roles (with whom they trust), managed policies
 *
 * docs/spec/admin.md has the format. The server's own root is not in here: it may do all. */
#ifndef S3_IAM_H
#define S3_IAM_H

#include <jansson.h>

#include "s3/policy.h"
#include "s3/s3_priv.h"

#define S3_ACCOUNT_LEN_MAX   64u /* of an account's number */
#define S3_OWNER_LEN_MAX     64u /* of a canonical id */
#define S3_NAME_LEN_MAX	     128u
#define S3_ACCOUNTS_MAX	     1000u
#define S3_KEYS_PER_USER     4u
#define S3_ACCOUNT_OF_ROOT   "000000000000"
#define S3_SECRETS_KEY_BYTES 32u

struct s3_iam;

/* Somebody who can own buckets and objects. */
struct s3_owner {
	char id[S3_OWNER_LEN_MAX + 1];
	char name[S3_NAME_LEN_MAX + 1];
	char account[S3_ACCOUNT_LEN_MAX + 1];
};

/* Who asks, with all that is known of him. Shared, never changed after it was made. */
struct s3_principal {
	_Atomic uint32_t references;
	struct s3_policy_principal who; /* in the arena, as all below */
	struct s3_owner owner;		/* to whom it belongs what this one makes */
	struct slice user_name;		/* empty: the account's root, or a role's session */
	struct slice session_name;	/* of a session */
	bool own;			/* the owner itself: needs no policy for what is its own */
	const struct s3_policy **policies;
	uint32_t policy_count;
	bool narrowed; /* a session with a policy of its own: allowed is what both allow */
	const struct s3_policy *narrow;
	struct s3_arena arena;
};
void s3_principal_put(struct s3_principal *principal); /* takes NULL */

/* A key and whose it is. Shared. */
struct s3_credential {
	_Atomic uint32_t references;
	struct s3_credential *next; /* the table's */
	char access_key[LIMIT_ACCESS_KEY_LEN_MAX + 1];
	char secret[LIMIT_SECRET_KEY_LEN_MAX + 1];
	bool active;
	struct s3_principal *principal;
};
void s3_credential_put(struct s3_credential *credential); /* wipes; takes NULL */

/* ---- Life. ---- */
int s3_iam_open(const struct s3_opts *opts, struct s3_iam **ret_iam);
void s3_iam_close(struct s3_iam *iam); /* takes NULL */
/* In a fiber, once, before requests come: reads all accounts, then puts in what the accounts' file
 * says. -EINVAL: the file's content; the log says what. */
int s3_iam_start(struct s3 *s3, struct flow_core *core, const char *accounts_json);

/* ---- Looking up: any thread. ---- */
/* A reference to the key's credential, active or not; NULL: there is none. */
struct s3_credential *s3_iam_credential(struct s3_iam *iam, struct slice access_key);
/* The owner of a canonical id, of an account's number, of an e-mail. -ENOENT. */
int s3_iam_owner(struct s3_iam *iam, struct slice id, struct s3_owner *ret_owner);
int s3_iam_owner_by_account(struct s3_iam *iam, struct slice number, struct s3_owner *ret_owner);
int s3_iam_owner_by_email(struct s3_iam *iam, struct slice email, struct s3_owner *ret_owner);
/* The same, or the id alone when its account is gone. */
void s3_owner_or_id(struct s3_iam *iam, struct slice id, struct s3_owner *ret_owner);
/* A user by its unique id (AIDA…): the owner it belongs to, with the user's name. */
int s3_iam_owner_by_user(struct s3_iam *iam, struct slice user_id, struct s3_owner *ret_owner);

/* ---- Accounts as documents. ---- */
/* The account's document as it is now: not to be changed, to be given back by json_decref; NULL:
 * there is none. */
json_t *s3_iam_account(struct s3_iam *iam, struct slice number);
/* Calls visit with each account's document, in order of their numbers. */
typedef void s3_iam_visit_fn(const json_t *account, void *arg);
void s3_iam_visit(struct s3_iam *iam, s3_iam_visit_fn *visit, void *arg);
/* Changes an account: change gets a copy and says 0 to keep it or -errno to leave all as it was;
 * it may be called several times. create: the account may be missing, and starts empty. -ENOENT;
 * -EEXIST: a key, a canonical id or an e-mail is somebody else's; -EFBIG: it holds too much; an
 * errno of the store. Durable, and seen by every request, when it returns 0. */
typedef int s3_iam_change_fn(json_t *account, void *arg);
struct s3_iam_edit {
	struct slice account;
	bool create;
	s3_iam_change_fn *change;
	void *arg;
};
int s3_iam_change(struct s3 *s3, struct flow_core *core, const struct s3_iam_edit *edit);
/* Deletes an account with all that is in it. -ENOENT. */
int s3_iam_delete(struct s3 *s3, struct slice number);

/* Makes an account, or brings it to what a description says (the accounts' file has a list of
 * them). why: what is wrong with it, for a person. */
int s3_iam_put(struct s3 *s3, struct flow_core *core, const json_t *description, struct buf *why);
/* All of a file, as JSON; failures are logged. */
int s3_iam_seed(struct s3 *s3, struct flow_core *core, struct slice text);

/* ---- What documents are made of (iam_doc.c). ---- */
/* A text of an object; empty when it has none. */
struct slice s3_json_text(const json_t *object, const char *name);
int64_t s3_json_number(const json_t *object, const char *name);
/* A member that is an object (or a list); made when it is missing. NULL: no memory. */
json_t *s3_json_object(json_t *object, const char *name);
json_t *s3_json_list(json_t *object, const char *name);
/* 0, or -ENOMEM. */
int s3_json_set_text(json_t *object, const char *name, struct slice value);
/* An entity ("users", "groups", "roles", "policies") by its name without case; NULL. */
json_t *s3_iam_entity(const json_t *account, const char *kind, struct slice name);
/* Writes the lower-case name under which entities are kept; -EINVAL: not a name. */
int s3_iam_lower(struct slice name, char ret_lower[S3_NAME_LEN_MAX + 1]);
/* arn:aws:iam::NUMBER:user/path/name into the buffer. */
#define S3_ARN_LEN_MAX 1024u
struct slice s3_iam_arn(const json_t *account, const char *kind, const json_t *entity,
	char ret_arn[S3_ARN_LEN_MAX]);
/* A new unique id: the prefix and 17 letters and digits. */
#define S3_UNIQUE_ID_LEN 21u
void s3_iam_unique_id(const char *prefix, char ret_id[S3_UNIQUE_ID_LEN + 1]);
/* Adds a key to a list of keys, or (same access key) replaces it. A secret of length 0 is made. The
 * secret comes back in clear. -EINVAL: not fit for a key; -EDQUOT: too many; -ENOMEM. */
struct s3_new_key {
	struct slice access_key;
	struct slice secret;
	bool active;
	char made_access_key[S3_UNIQUE_ID_LEN + 1];
	char made_secret[41];
};
int s3_iam_key_add(struct s3_iam *iam, json_t *keys, struct s3_new_key *key);
/* The key of that name in a list of keys; its place in *ret_idx. NULL. */
json_t *s3_iam_key_find(const json_t *keys, struct slice access_key, size_t *ret_idx);
/* Where a text stands in a list of texts; false: nowhere. */
bool s3_json_text_find(const json_t *list, struct slice text, size_t *ret_idx);
/* Managed policies of a user, group or role of the account's, by ARN. Attached twice is attached.
 * -ENOENT: no such policy, or none attached; -EDQUOT: too many; -ENOMEM. */
#define S3_ATTACHED_MAX 20u
int s3_iam_attach(json_t *account, json_t *entity, struct slice arn);
int s3_iam_detach(json_t *account, json_t *entity, struct slice arn);
/* The text of a policy that every account has: arn:aws:iam::aws:policy/…; NULL: there is none. */
const char *s3_iam_builtin_policy(struct slice arn);

/* ---- Principals (iam_principal.c). ---- */
/* Of an account's root (user NULL) or of a user; *ret_principal has one reference. */
int s3_principal_of_user(
	const json_t *account, const json_t *user, struct s3_principal **ret_principal);
/* What a session is: of a role, or of a user or root (role empty). */
struct s3_session {
	struct slice account, user, role, name;
	struct slice policy; /* empty: none */
};
/* -ENOENT: what it was of is gone. */
int s3_principal_of_session(
	struct s3_iam *iam, const struct s3_session *session, struct s3_principal **ret_principal);

/* ---- Sealing (iam_seal.c). ---- */
/* Text that only this server's key opens, as base64; what stands for what it is about. */
#define S3_SEALED_LEN(bytes) BASE64_LEN((bytes) + 28u)
int s3_iam_seal(struct s3_iam *iam, struct slice about, struct slice text, struct buf *out);
/* -EBADMSG: not sealed here, or about something else. */
int s3_iam_unseal(struct s3_iam *iam, struct slice about, struct slice sealed, struct buf *out);

#endif
