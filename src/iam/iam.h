/* iam/iam.h: identities: accounts, the users, groups, roles and policies inside them, and their
 * keys. An account is one document (document.h, i/a/NUMBER), changed as a whole; requests look
 * identities up in a table in memory. Secrets are sealed with a key that the store does not hold.
 *
 *   account ─ owner: canonical id, name, e-mail; root keys
 *           ├ users ─ keys, policies, groups; one may be an owner of its own
 *           ├ groups, roles (with their trust policies), managed policies
 *
 * docs/spec/admin.md has the format. The server's own root is not in the table: it may do
 * everything. */
#ifndef IAM_H
#define IAM_H

#include "base/mem_arena.h"
#include "codec/codec.h"
#include "document/document.h"
#include "document/json.h"
#include "iam/policy.h"

#define IAM_ACCOUNT_LEN_MAX 64u /* of an account's number */
#define IAM_OWNER_LEN_MAX   64u /* of a canonical id */
#define IAM_NAME_LEN_MAX    128u
#define IAM_ACCOUNTS_MAX    1000u
#define IAM_ACCOUNTS_FULL   "the server keeps at most 1000 accounts: delete one first" /* -EUSERS */
_Static_assert(IAM_ACCOUNTS_MAX == 1000, "the text has the number");
#define IAM_KEYS_PER_USER     4u
#define IAM_ACCOUNT_OF_ROOT   "000000000000"
#define IAM_SECRETS_KEY_BYTES 32u

/* The server's own root user: nothing is denied to it. A canonical user id that stays the same when
 * keys change. */
#define IAM_ROOT_OWNER_ID   DOCUMENT_OWNER_ID
#define IAM_ROOT_OWNER_NAME "root"

struct iam;

/* An owner of buckets and objects. */
struct iam_owner {
	char id[IAM_OWNER_LEN_MAX + 1];
	char name[IAM_NAME_LEN_MAX + 1];
	char account[IAM_ACCOUNT_LEN_MAX + 1];
};

struct iam_tag {
	struct slice key, value;
	bool transitive; /* of a session: passed on to roles that it assumes */
};
#define IAM_TAGS_MAX 50u

/* The caller of a request, with everything known about it. Shared, never changed after it was
 * made. */
struct iam_principal {
	_Atomic uint32_t references;
	struct policy_principal who; /* in the arena, as all below */
	struct iam_owner owner;	     /* the owner of all that this principal creates */
	struct slice user_name;	     /* empty: the account's root, or a role's session */
	struct slice session_name;   /* of a session */
	struct iam_tag *tags;	     /* of the user or the role; a session's own come first */
	uint32_t tag_count;
	bool own; /* the owner itself: needs no policy for its own property */
	const struct policy **policies;
	uint32_t policy_count;
	/* A session with its own policies: a request needs an Allow of the policies above and of
	 * one of these. */
	bool narrowed;
	const struct policy **narrows;
	uint32_t narrow_count;
	struct mem_arena arena;
};
void iam_principal_put(struct iam_principal *principal); /* takes NULL */

/* A key and its principal. Shared. */
struct iam_credential {
	_Atomic uint32_t references;
	struct iam_credential *next; /* the table's */
	char access_key[LIMIT_ACCESS_KEY_LEN_MAX + 1];
	char secret[LIMIT_SECRET_KEY_LEN_MAX + 1];
	/* The same for the same secret, also after a restart and in the other stores of a cluster;
	 * it says nothing about it. Sessions end when it is another one. */
	uint64_t secret_mark;
	bool active;
	struct iam_principal *principal;
};
void iam_credential_put(struct iam_credential *credential); /* wipes; takes NULL */

/* ---- Life. ---- */
/* Several stores have the same accounts: one keeps them and tells the others. */
struct iam_share {
	/* On a helper thread, after a change of an account (or its end) is durable: 0 when all know
	 * it. NULL: nobody else is told. */
	int (*changed)(void *arg, const char *number);
	void *arg;
	bool follows; /* the accounts come by iam_take alone, and are not changed here */
};
struct iam_opts {
	struct store *store;
	const struct iam_share *share; /* copied; NULL: the accounts are this store's alone */
	const char *root_access_key;
	const char *root_secret_key;
	const uint8_t
		*secrets_key; /* IAM_SECRETS_KEY_BYTES; NULL: derived from the root's secret */
};
int iam_open(const struct iam_opts *opts, struct iam **ret_iam);
void iam_close(struct iam *iam); /* takes NULL */
/* In a fiber, once, before requests come: reads all accounts, then applies the accounts' file.
 * -EINVAL: the file's content is wrong; the log says how. */
int iam_start(struct iam *iam, struct flow_core *core, const char *accounts_json);

/* ---- Look-up: any thread. ---- */
/* The mark of the root's secret, like a credential's. */
uint64_t iam_root_mark(const struct iam *iam);
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
/* The account's current document. The caller must not change it, and gives it back by
 * iam_account_put. NULL: there is none. Any thread. */
json_t *iam_account(struct iam *iam, struct slice number);
/* Takes NULL. */
void iam_account_put(json_t *account);
/* Calls visit with each account's document, in order of their numbers. */
typedef void iam_visit_fn(const json_t *account, void *arg);
void iam_visit(struct iam *iam, iam_visit_fn *visit, void *arg);
/* Changes an account: change gets a copy and returns 0 to keep it, or -errno to leave the account
 * unchanged. create: the account may be missing, and starts empty. -ENOENT; -EEXIST: another
 * account has this key, canonical id or e-mail; -EFBIG: the document is too large; -EUSERS: a new
 * account, and there are too many; an errno of the store. The change is durable, and every request
 * sees it, when it returns 0. Fiber calls: one change or deletion at a time. */
typedef int iam_change_fn(json_t *account, void *arg);
struct iam_edit {
	struct slice account;
	bool create;
	iam_change_fn *change;
	void *arg;
	/* Of what change looks at besides the account: held until the change is durable, and not
	 * while other stores are told of it. NULL: of nothing. */
	struct fiber_mutex *guard;
};
int iam_change(struct iam *iam, struct flow_core *core, const struct iam_edit *edit);
/* Of a store that follows: makes text the account's document, or forgets the account (data NULL).
 * Any thread. -EBADMSG: not a document of this account. */
int iam_take(struct iam *iam, struct slice number, struct slice text);
/* Deletes an account with all that is in it. change only looks at it, and may refuse; NULL: nothing
 * is looked at. -ENOENT. */
int iam_delete(struct iam *iam, const struct iam_edit *edit);

/* Creates an account, or changes it to match a description (the accounts' file is a list of them).
 * why: the error in the description, for a person. */
int iam_put(struct iam *iam, struct flow_core *core, const json_t *description, struct buf *why);
/* iam_put for each account of a file, as JSON; logs failures. */
int iam_seed(struct iam *iam, struct flow_core *core, struct slice text);

/* ---- The parts of documents (doc.c). ---- */
/* Finds an entity ("users", "groups", "roles", "policies") by its name without case; NULL. */
json_t *iam_entity(const json_t *account, const char *kind, struct slice name);
/* Writes the lower-case name under which entities are kept; -EINVAL: not a name. */
int iam_lower(struct slice name, char ret_lower[IAM_NAME_LEN_MAX + 1]);
/* Writes arn:aws:iam::NUMBER:user/path/name to the buffer. NUMBER is the account's, except for the
 * policies that every account has: they name their own. */
#define IAM_ARN_LEN_MAX 1024u
struct slice iam_arn(const json_t *account, const char *kind, const json_t *entity,
	char ret_arn[IAM_ARN_LEN_MAX]);
/* A new unique id: the prefix and 17 letters and digits. */
#define IAM_UNIQUE_ID_LEN 21u
void iam_unique_id(const char *prefix, char ret_id[IAM_UNIQUE_ID_LEN + 1]);
/* Adds a key to a list of keys, or (same access key) replaces it. A secret of length 0 is replaced
 * by a random one. Returns the secret in clear. -EINVAL: not valid as a key; -EDQUOT: too many;
 * -ENOMEM. */
struct iam_new_key {
	struct slice access_key;
	struct slice secret;
	bool active;
	char made_access_key[IAM_UNIQUE_ID_LEN + 1];
	char made_secret[41];
};
int iam_key_add(struct iam *iam, json_t *keys, struct iam_new_key *key);
/* Finds a key in a list of keys; its index in *ret_idx. NULL. */
json_t *iam_key_find(const json_t *keys, struct slice access_key, size_t *ret_idx);
/* Attach and detach managed policies of the account's user, group or role, by ARN. Attaching a
 * policy twice is success. -ENOENT: no such policy, or it is not attached; -EDQUOT: too many;
 * -ENOMEM. */
#define IAM_ATTACHED_MAX 20u
int iam_attach(json_t *account, json_t *entity, struct slice arn);
int iam_detach(json_t *account, json_t *entity, struct slice arn);
/* Whether there is a managed policy of that ARN, for this account. */
bool iam_is_policy(const json_t *account, struct slice arn);
/* How many users, groups and roles of the account have the managed policy attached. */
uint32_t iam_attached_count(const json_t *account, struct slice arn);
bool iam_is_attached(const json_t *entity, struct slice arn);
/* A user that is a member of the group ("groups"), or a user, group or role that has the policy
 * ("policies") attached: a later entity of that name would give it rights. Its kind and name are
 * the account's. False: there is none. */
struct iam_holder {
	const char *kind; /* "users", "groups" or "roles" */
	struct slice name;
};
bool iam_holder_find(const json_t *account, const char *kind, const json_t *entity,
	struct iam_holder *ret_holder);
/* The text of a policy that every account has: arn:aws:iam::aws:policy/…; NULL: there is none. */
const char *iam_builtin_policy(struct slice arn);
/* The same as entities by their lower-case names, as an account keeps its own. To be given back by
 * json_decref. NULL: no memory. */
#define IAM_BUILTIN_ARN_START "arn:aws:iam::aws:policy/"
json_t *iam_builtin_policies(void);

/* ---- Versions of a managed policy (version.c): one of them, the default, applies. ---- */
#define IAM_VERSIONS_MAX 5u
struct iam_version {
	uint32_t number; /* 1 is told as v1 */
	bool is_default;
	int64_t created_ms;
	struct slice text; /* the policy's; lives until that changes */
};
/* All of them, the newest first; returns how many. */
uint32_t iam_versions(const json_t *policy, struct iam_version ret_versions[IAM_VERSIONS_MAX]);
/* -ENOENT. */
int iam_version_find(const json_t *policy, uint32_t number, struct iam_version *ret_version);
/* The text must have been checked. -EDQUOT: it has as many as it may; -ENOMEM. */
int iam_version_add(json_t *policy, struct slice text, bool is_default, uint32_t *ret_number);
/* -ENOENT; -ENOMEM. */
int iam_version_set_default(json_t *policy, uint32_t number);
/* -ENOENT; -EBUSY: it is the default one. */
int iam_version_delete(json_t *policy, uint32_t number);

/* ---- Principals (principal.c). ---- */
/* The principal of an account's root (user NULL) or of a user; *ret_principal has one reference. */
int iam_principal_of_user(
	const json_t *account, const json_t *user, struct iam_principal **ret_principal);
/* A session: of a role, or of a user or root (role empty). */
struct iam_session {
	struct slice account, user, role, name;
	struct slice role_id; /* the role's unique id: a later role of its name is another one */
	/* Of a user or root: the access key that asked for it, and its secret's mark. The session
	 * ends with the key. */
	struct slice key;
	uint64_t secret_mark;
	struct slice policy; /* empty: none */
	struct slice
		policy_arns; /* ARNs of managed policies that narrow it, too, separated by spaces */
	const struct iam_tag *tags;
	uint32_t tag_count;
};
#define IAM_SESSION_ARNS_MAX 10u
/* -ENOENT: its account, user or role is gone, also where another role has that name now. */
int iam_principal_of_session(
	struct iam *iam, const struct iam_session *session, struct iam_principal **ret_principal);

/* ---- Sealing (seal.c). ---- */
/* Seals text so that only this server's key opens it, as base64. `about` names its subject. */
#define IAM_SEALED_LEN(bytes) BASE64_LEN((bytes) + 28u)
int iam_seal(struct iam *iam, struct slice about, struct slice text, struct buf *out);
/* -EBADMSG: not sealed here, or about something else. */
int iam_unseal(struct iam *iam, struct slice about, struct slice sealed, struct buf *out);

/* ---- Tokens of sessions (token.c): sealed, so that the server keeps no state of them. ---- */
#define IAM_TOKEN_LEN_MAX 6144u

struct iam_token {
	struct slice access_key, secret;
	int64_t expires_ms;
	struct iam_session session;
	struct slice bucket; /* valid for this directory bucket only; empty: a session of STS */
	uint64_t store_id;   /* of the bucket's store */
	uint64_t bucket_id;  /* in that store, as its name can become another one's */
	bool read_only;
};
/* Opens a token; its contents are in the arena. -EBADMSG: not a token of this server. */
int iam_token_open(
	struct iam *iam, struct slice sealed, struct mem_arena *arena, struct iam_token *ret_token);
/* Appends the token. -ENOMEM; -EMSGSIZE: the session's policy is too long. */
int iam_token_make(struct iam *iam, const struct iam_token *token, struct buf *out);

#endif
