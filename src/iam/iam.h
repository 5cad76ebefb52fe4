/* iam/iam.h: identities: accounts, the users, groups, roles and policies inside them, and their
 * keys. An account is one document (document.h, i/a/NUMBER), changed as a whole; requests look
 * identities up in a table in memory. Secrets are sealed with a key that the store does not hold.
 *
 *   account ─ owner: canonical id, name, e-mail; root keys
 *           ├ users ─ keys, policies, groups; one may be an owner of its own
 *           ├ groups, roles (with whom they trust), managed policies
 *
 * docs/spec/admin.md has the format. The server's own root is not in here: it may do everything. */
#ifndef IAM_H
#define IAM_H

#include "base/mem_arena.h"
#include "codec/codec.h"
#include "document/document.h"
#include "document/json.h"
#include "iam/policy.h"

#define IAM_ACCOUNT_LEN_MAX   64u /* of an account's number */
#define IAM_OWNER_LEN_MAX     64u /* of a canonical id */
#define IAM_NAME_LEN_MAX      128u
#define IAM_ACCOUNTS_MAX      1000u
#define IAM_KEYS_PER_USER     4u
#define IAM_ACCOUNT_OF_ROOT   "000000000000"
#define IAM_SECRETS_KEY_BYTES 32u

/* The server's own root user: nothing is denied to it. A canonical user id that stays the same when
 * keys change. */
#define IAM_ROOT_OWNER_ID   DOCUMENT_OWNER_ID
#define IAM_ROOT_OWNER_NAME "root"

struct iam;

/* Somebody who can own buckets and objects. */
struct iam_owner {
	char id[IAM_OWNER_LEN_MAX + 1];
	char name[IAM_NAME_LEN_MAX + 1];
	char account[IAM_ACCOUNT_LEN_MAX + 1];
};

struct iam_tag {
	struct slice key, value;
	bool transitive; /* of a session: goes along into roles that it assumes */
};
#define IAM_TAGS_MAX 50u

/* The caller of a request, with everything known about it. Shared, never changed after it was
 * made. */
struct iam_principal {
	_Atomic uint32_t references;
	struct policy_principal who; /* in the arena, as all below */
	struct iam_owner owner;	     /* the owner of everything that this one makes */
	struct slice user_name;	     /* empty: the account's root, or a role's session */
	struct slice session_name;   /* of a session */
	struct iam_tag *tags;	     /* of the user or the role; a session's own go before */
	uint32_t tag_count;
	bool own; /* the owner itself: needs no policy for what is its own */
	const struct policy **policies;
	uint32_t policy_count;
	/* A session with policies of its own: allowed is what the above allow, and one of these. */
	bool narrowed;
	const struct policy **narrows;
	uint32_t narrow_count;
	struct mem_arena arena;
};
void iam_principal_put(struct iam_principal *principal); /* takes NULL */

/* A key and whose it is. Shared. */
struct iam_credential {
	_Atomic uint32_t references;
	struct iam_credential *next; /* the table's */
	char access_key[LIMIT_ACCESS_KEY_LEN_MAX + 1];
	char secret[LIMIT_SECRET_KEY_LEN_MAX + 1];
	bool active;
	struct iam_principal *principal;
};
void iam_credential_put(struct iam_credential *credential); /* wipes; takes NULL */

/* ---- Life. ---- */
struct iam_opts {
	struct store *store;
	const char *root_access_key;
	const char *root_secret_key;
	const uint8_t *secrets_key; /* IAM_SECRETS_KEY_BYTES; NULL: one made of the root's secret */
};
int iam_open(const struct iam_opts *opts, struct iam **ret_iam);
void iam_close(struct iam *iam); /* takes NULL */
/* In a fiber, once, before requests come: reads all accounts, then puts in what the accounts' file
 * says. -EINVAL: the file's content; the log says what. */
int iam_start(struct iam *iam, struct flow_core *core, const char *accounts_json);

/* ---- Looking up: any thread. ---- */
/* A reference to the key's credential, active or not; NULL: there is none. */
struct iam_credential *iam_credential(struct iam *iam, struct slice access_key);
/* The owner of a canonical id, of an account's number, of an e-mail. -ENOENT. */
int iam_owner(struct iam *iam, struct slice id, struct iam_owner *ret_owner);
int iam_owner_by_account(struct iam *iam, struct slice number, struct iam_owner *ret_owner);
int iam_owner_by_email(struct iam *iam, struct slice email, struct iam_owner *ret_owner);
/* The same, or the id alone when its account is gone. */
void iam_owner_or_id(struct iam *iam, struct slice id, struct iam_owner *ret_owner);
/* A user by its unique id (AIDA…): the owner it belongs to, with the user's name. */
int iam_owner_by_user(struct iam *iam, struct slice user_id, struct iam_owner *ret_owner);

/* ---- Accounts as documents. ---- */
/* The account's document as it is now: not to be changed, to be given back by iam_account_put;
 * NULL: there is none. Any thread. */
json_t *iam_account(struct iam *iam, struct slice number);
/* Takes NULL. */
void iam_account_put(json_t *account);
/* Calls visit with each account's document, in order of their numbers. */
typedef void iam_visit_fn(const json_t *account, void *arg);
void iam_visit(struct iam *iam, iam_visit_fn *visit, void *arg);
/* Changes an account: change gets a copy and says 0 to keep it or -errno to leave all as it was;
 * it may be called several times. create: the account may be missing, and starts empty. -ENOENT;
 * -EEXIST: a key, a canonical id or an e-mail is somebody else's; -EFBIG: it holds too much; an
 * errno of the store. Durable, and seen by every request, when it returns 0. */
typedef int iam_change_fn(json_t *account, void *arg);
struct iam_edit {
	struct slice account;
	bool create;
	iam_change_fn *change;
	void *arg;
};
int iam_change(struct iam *iam, struct flow_core *core, const struct iam_edit *edit);
/* Deletes an account with all that is in it. -ENOENT. */
int iam_delete(struct iam *iam, struct slice number);

/* Makes an account, or brings it to what a description says (the accounts' file has a list of
 * them). why: what is wrong with it, for a person. */
int iam_put(struct iam *iam, struct flow_core *core, const json_t *description, struct buf *why);
/* All of a file, as JSON; failures are logged. */
int iam_seed(struct iam *iam, struct flow_core *core, struct slice text);

/* ---- The parts of documents (doc.c). ---- */
/* An entity ("users", "groups", "roles", "policies") by its name without case; NULL. */
json_t *iam_entity(const json_t *account, const char *kind, struct slice name);
/* Writes the lower-case name under which entities are kept; -EINVAL: not a name. */
int iam_lower(struct slice name, char ret_lower[IAM_NAME_LEN_MAX + 1]);
/* arn:aws:iam::NUMBER:user/path/name into the buffer. */
#define IAM_ARN_LEN_MAX 1024u
struct slice iam_arn(const json_t *account, const char *kind, const json_t *entity,
	char ret_arn[IAM_ARN_LEN_MAX]);
/* A new unique id: the prefix and 17 letters and digits. */
#define IAM_UNIQUE_ID_LEN 21u
void iam_unique_id(const char *prefix, char ret_id[IAM_UNIQUE_ID_LEN + 1]);
/* Adds a key to a list of keys, or (same access key) replaces it. A secret of length 0 is made. The
 * secret comes back in clear. -EINVAL: not fit for a key; -EDQUOT: too many; -ENOMEM. */
struct iam_new_key {
	struct slice access_key;
	struct slice secret;
	bool active;
	char made_access_key[IAM_UNIQUE_ID_LEN + 1];
	char made_secret[41];
};
int iam_key_add(struct iam *iam, json_t *keys, struct iam_new_key *key);
/* The key of that name in a list of keys; its place in *ret_idx. NULL. */
json_t *iam_key_find(const json_t *keys, struct slice access_key, size_t *ret_idx);
/* Managed policies of a user, group or role of the account's, by ARN. Attached twice is attached.
 * -ENOENT: no such policy, or none attached; -EDQUOT: too many; -ENOMEM. */
#define IAM_ATTACHED_MAX 20u
int iam_attach(json_t *account, json_t *entity, struct slice arn);
int iam_detach(json_t *account, json_t *entity, struct slice arn);
/* Whether there is a managed policy of that ARN, for this account. */
bool iam_is_policy(const json_t *account, struct slice arn);
/* The text of a policy that every account has: arn:aws:iam::aws:policy/…; NULL: there is none. */
const char *iam_builtin_policy(struct slice arn);

/* ---- Principals (principal.c). ---- */
/* Of an account's root (user NULL) or of a user; *ret_principal has one reference. */
int iam_principal_of_user(
	const json_t *account, const json_t *user, struct iam_principal **ret_principal);
/* A session: of a role, or of a user or root (role empty). */
struct iam_session {
	struct slice account, user, role, name;
	struct slice policy;	  /* empty: none */
	struct slice policy_arns; /* managed ones that narrow it, too; a space between */
	const struct iam_tag *tags;
	uint32_t tag_count;
};
#define IAM_SESSION_ARNS_MAX 10u
/* -ENOENT: what it was of is gone. */
int iam_principal_of_session(
	struct iam *iam, const struct iam_session *session, struct iam_principal **ret_principal);

/* ---- Sealing (seal.c). ---- */
/* Text that only this server's key opens, as base64; what stands for what it is about. */
#define IAM_SEALED_LEN(bytes) BASE64_LEN((bytes) + 28u)
int iam_seal(struct iam *iam, struct slice about, struct slice text, struct buf *out);
/* -EBADMSG: not sealed here, or about something else. */
int iam_unseal(struct iam *iam, struct slice about, struct slice sealed, struct buf *out);

/* ---- Tokens of sessions (token.c): sealed by the server, so that nothing need be remembered of
 * them. ---- */
#define IAM_TOKEN_LEN_MAX 6144u

struct iam_token {
	struct slice access_key, secret;
	int64_t expires_ms;
	struct iam_session session;
	struct slice
		bucket; /* good for nothing but this directory bucket; empty: a session of STS */
	bool read_only;
};
/* Opens a token; its contents are in the arena. -EBADMSG: not a token of this server. */
int iam_token_open(
	struct iam *iam, struct slice sealed, struct mem_arena *arena, struct iam_token *ret_token);
/* Appends the token. -ENOMEM; -EMSGSIZE: the session's policy is too long. */
int iam_token_make(struct iam *iam, const struct iam_token *token, struct buf *out);

#endif
