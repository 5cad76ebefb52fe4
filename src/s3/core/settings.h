/* s3/core/settings.h: the configurations of a bucket, parsed once. Each reactor keeps its own
 * copies, so that a lookup costs a request one hash of the name and one comparison, without a lock
 * or a counter that cores share. A change on any reactor is visible to the next request on every
 * other.
 *
 * The kinds are a table, s3_config_table.inc: the requests, check, storage and answer of each. A
 * document of kind K of bucket B is b/B/K (document.h), owned by the bucket's id. */
#ifndef S3_SETTINGS_H
#define S3_SETTINGS_H

#include "document/document.h"
#include "s3/core/call.h"
#include "s3/core/xml_in.h"

enum s3_config_id {
#define CONFIG(id, param, ops, ...) S3_CONFIG_##id,
#include "s3/s3_config_table.inc"
	S3_CONFIG_COUNT
};

/* The operations on a kind's documents. */
struct s3_config_ops {
	/* Checks the client's document against the schema; *ret_document is the text to store, in
	 * the call's arena. */
	const struct s3_error *(*check)(
		struct s3_call *call, struct slice body, struct slice *ret_document);
	/* Parses the stored text into the form that requests use, in the arena. -EINVAL: not a text
	 * that check made; -ENOMEM. */
	int (*load)(struct slice document, struct mem_arena *arena, const void **ret_parsed);
	/* Answers a GET with the stored text. */
	const struct s3_error *(*answer)(struct s3_call *call, struct slice document);
	uint32_t put_status; /* 200 or 204 */
};
/* A request type for a kind's documents. */
struct s3_config_verb {
	const char *action; /* IAM action: "s3:GetBucketCORS"; NULL: no such request */
	const char *log;    /* in the format of s3_route */
};
struct s3_config_kind {
	enum s3_config_id id;
	struct slice param; /* name of the query parameter and of the document */
	struct s3_config_verb get, put, delete;
	enum s3_express express;
	/* The answer for a bucket without this configuration: this document, or (empty NULL) this
	 * error. */
	const char *empty;
	enum s3_error_id missing;
	const struct s3_config_ops *ops;
};
const struct s3_config_kind *s3_config_kind_at(const struct s3 *s3, enum s3_config_id id);
/* All of them, by id (kinds.c). */
extern const struct s3_config_kind s3_config_kinds[];
/* The kind that the call's query names, or NULL. */
const struct s3_config_kind *s3_config_kind_of(const struct s3_call *call);

/* A kind of which a bucket could have many, each with an id; none can be put. */
struct s3_named_kind {
	struct slice param;
	const char *get_action, *put_action; /* DELETE needs put_action, too */
	const char *get_log, *delete_log;
	const char *list_root; /* root element of the list document */
};
/* NULL: no such kind. */
const struct s3_named_kind *s3_named_kind(struct slice param);

/* An empty document of a kind, or a short one. */
#define S3_CONFIG_XML(root, inside)                          \
	"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<" root \
	" xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">" inside "</" root ">"

#define S3_CONFIG_NAME_MAX (2 + LIMIT_BUCKET_LEN_MAX + 1 + 32 + 1)
/* The name of the bucket's document for that parameter; without a parameter, the common prefix of
 * these names. */
struct slice s3_config_name(
	struct slice bucket, struct slice param, char ret_name[S3_CONFIG_NAME_MAX]);
/* Stores a document of the call's bucket, as a PUT of it would; the caller answers the request.
 * owner: the bucket's id; NoSuchBucket if no bucket has it. */
const struct s3_error *s3_config_put(
	struct s3_call *call, uint64_t owner, enum s3_config_id id, struct slice document);
/* The same for a bucket that is yet to be created with this reserved id. An errno of the store. */
int s3_config_put_ahead(
	struct s3_call *call, uint64_t owner, enum s3_config_id id, struct slice document);
/* Reads a document into the call's arena; text NULL: none. */
const struct s3_error *s3_config_get(
	struct s3_call *call, uint64_t owner, enum s3_config_id id, struct slice *ret_document);
/* Deletes a preset permanently. */
const struct s3_error *s3_config_delete(
	struct s3_call *call, const struct store_bucket *bucket, enum s3_config_id id);
/* The document that the bucket was created with, valid until another one is put; data NULL: none of
 * this kind. */
struct slice s3_config_preset(const struct store_bucket *bucket, enum s3_config_id id);
/* Stored in the place of a deleted preset. */
#define S3_CONFIG_DELETED "-"
/* Deletes all documents of a bucket, owner, that was deleted or not created, which had the name of
 * the call's; documents that remain belong to no bucket. */
void s3_configs_delete_all(struct s3_call *call, uint64_t owner);

/* For kinds in XML: parses body, whose root must have that name. */
const struct s3_error *s3_config_xml(
	struct s3_call *call, struct slice body, const char *root, struct s3_xml **ret_root);
/* Writes the tree as a document again, in the arena: only names and texts. */
const struct s3_error *s3_config_xml_text(
	struct s3_call *call, const struct s3_xml *root, struct slice *ret_text);
/* Writes the contents of a node. */
void s3_config_put_xml(const struct s3_xml *node, struct buf *xml);
/* An answer function: the stored document, as XML. */
const struct s3_error *s3_config_answer_xml(struct s3_call *call, struct slice document);
/* A load function for kinds that requests do not use. */
int s3_config_load_nothing(struct slice document, struct mem_arena *arena, const void **ret_parsed);

/* ---- Settings. ---- */
struct s3_public_access {
	bool block_acls, ignore_acls, block_policy, restrict_buckets;
};
struct s3_settings {
	uint32_t references; /* of this reactor */
	size_t bytes;	     /* of all its memory */
	uint32_t generation;
	_Atomic uint32_t *now; /* the current generation */
	struct slice name;     /* the bucket's */
	struct store_bucket bucket;
	struct slice documents[S3_CONFIG_COUNT]; /* stored text; data NULL: none */
	uint64_t put_ns[S3_CONFIG_COUNT];	 /* time of the PUT */
	const void *parsed[S3_CONFIG_COUNT];	 /* from the kind's load; NULL: none */
	bool deleted[S3_CONFIG_COUNT];		 /* of a preset that is no longer valid */
	struct s3_public_access
		of_account; /* blocks of the owner's account, valid for all its buckets */
	struct mem_arena arena;
};
/* The settings of the call's bucket as they are now, held until the call ends. *ret_settings NULL:
 * no such bucket; also when another one got its name since the call first asked. */
const struct s3_error *s3_call_settings(
	struct s3_call *call, const struct s3_settings **ret_settings);
/* The id of the bucket by whose settings the call's rights were decided. The call gives it to the
 * store with each change, which then leaves alone a bucket that got the name meanwhile. 0: no
 * settings were needed, as for the root. */
static inline uint64_t s3_call_bucket_id(const struct s3_call *call)
{
	return call->settings ? call->settings->bucket.id : 0;
}
/* The settings of any bucket, for code without a call. -ENOENT: no such bucket; -EIO: one of its
 * documents is damaged (logged). Release it on the same reactor. */
int s3_settings_get(struct s3 *s3, struct flow_core *core, struct slice bucket,
	struct s3_settings **ret_settings);
void s3_settings_put(struct s3_settings *settings); /* takes NULL */
/* Whether nothing changed since they were loaded. Any thread, never blocks. */
bool s3_settings_are_current(const struct s3_settings *settings);
/* At the call's end. */
void s3_call_settings_end(struct s3_call *call);
/* Call it after a durable change of a bucket: its creation, its deletion, a document. Any reactor.
 */
void s3_settings_changed(struct s3 *s3, struct slice bucket);
/* Call it after a change that affects all buckets of an owner. */
void s3_settings_all_changed(struct s3 *s3);

/* ---- The access rules in settings (core/public_access.c). ---- */
#define S3_POLICY_BINDS_OWNER	"binds-owner\n" /* first line of a policy that binds the owner */
#define S3_PUBLIC_SWITCHES	4u		/* "1011", the stored form of public access */
#define S3_PUBLIC_ACCESS_MEMBER "public_access_block" /* of an account's document */
enum s3_ownership { S3_OWNERSHIP_WRITER, S3_OWNERSHIP_PREFERRED, S3_OWNERSHIP_ENFORCED };
int s3_ownership_of(struct slice name, enum s3_ownership *ret_ownership); /* -EINVAL */
enum s3_ownership s3_settings_ownership(const struct s3_settings *settings);
/* The blocks of the bucket and of its owner's account together. */
struct s3_public_access s3_settings_public_access(const struct s3_settings *settings);
/* The block of an owner's account; and its stored form, "1011" (-EINVAL: not of this form). */
struct s3_public_access s3_account_public_access(struct s3 *s3, const char *owner_id);
int s3_public_access_parse(struct slice text, struct s3_public_access *ret_access);
/* Whether the policy was put with x-amz-confirm-remove-self-bucket-access: then its owner, too, can
 * read, replace and delete it only if it allows that. */
bool s3_settings_policy_binds_owner(const struct s3_settings *settings);

/* For s3_open and s3_close, while no reactor runs. */
struct s3_settings_table;
int s3_settings_open(struct s3_settings_table **ret_table);
void s3_settings_close(struct s3_settings_table *table);

#endif
