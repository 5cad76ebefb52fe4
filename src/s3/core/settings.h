/* s3/core/settings.h: what a bucket says about itself, parsed once. Each reactor keeps its own
 * copies, so that a request's look at them costs a hash of the name and one comparison, no lock and
 * no counter that cores share; a change on any reactor is seen by the next request on every other.
 *
 * The kinds are a table, s3_config_table.inc: how each is asked for, held against its schema, kept,
 * told. A document of kind K of bucket B is b/B/K (document.h), owned by the bucket's id. */
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
	/* Holds what a client sent against the schema; *ret_document is what is kept of it, in the
	 * call's arena. */
	const struct s3_error *(*check)(
		struct s3_call *call, struct slice body, struct slice *ret_document);
	/* Parses what check made into what requests look at, in the arena. -EINVAL: check never
	 * made this; -ENOMEM. */
	int (*load)(struct slice document, struct mem_arena *arena, const void **ret_parsed);
	/* Answers a GET of what is kept. */
	const struct s3_error *(*answer)(struct s3_call *call, struct slice document);
	uint32_t put_status; /* 200 or 204 */
};
/* A request for a kind's documents. */
struct s3_config_verb {
	const char *action; /* of IAM: "s3:GetBucketCORS"; NULL: there is no such request */
	const char *log;    /* as s3_route has it */
};
struct s3_config_kind {
	enum s3_config_id id;
	struct slice param; /* of the query, and the document's name */
	struct s3_config_verb get, put, delete;
	enum s3_express express;
	/* A bucket without one answers this document, or (empty NULL) this error. */
	const char *empty;
	enum s3_error_id missing;
	const struct s3_config_ops *ops;
};
const struct s3_config_kind *s3_config_kind_at(const struct s3 *s3, enum s3_config_id id);
/* All of them, by id (kinds.c). */
extern const struct s3_config_kind s3_config_kinds[];
/* The kind that the call's query names, or NULL. */
const struct s3_config_kind *s3_config_kind_of(const struct s3_call *call);

/* A kind of which a bucket could have many, each by an id; none can be put. */
struct s3_named_kind {
	struct slice param;
	const char *get_action, *put_action; /* DELETE needs put_action, too */
	const char *get_log, *delete_log;
	const char *list_root; /* of the document that lists them */
};
/* NULL: the parameter is of none. */
const struct s3_named_kind *s3_named_kind(struct slice param);

/* An empty document of a kind, or one that says little. */
#define S3_CONFIG_XML(root, inside)                          \
	"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<" root \
	" xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">" inside "</" root ">"

#define S3_CONFIG_NAME_MAX (2 + LIMIT_BUCKET_LEN_MAX + 1 + 32 + 1)
/* The name of a bucket's document of that parameter; without one, what all of its names start
 * with. */
struct slice s3_config_name(
	struct slice bucket, struct slice param, char ret_name[S3_CONFIG_NAME_MAX]);
/* Keeps a document of the call's bucket, as a PUT of it would; the operation is the caller's to
 * answer. owner: the bucket's id. */
const struct s3_error *s3_config_put(
	struct s3_call *call, uint64_t owner, enum s3_config_id id, struct slice document);
/* Reads one back into the call's arena; text NULL when there is none. */
const struct s3_error *s3_config_get(
	struct s3_call *call, uint64_t owner, enum s3_config_id id, struct slice *ret_document);
/* A preset is gone for good. */
const struct s3_error *s3_config_delete(
	struct s3_call *call, const struct store_bucket *bucket, enum s3_config_id id);
/* The document that the bucket was made with and keeps until another one is put; data NULL: none of
 * this kind. */
struct slice s3_config_preset(const struct store_bucket *bucket, enum s3_config_id id);
/* Kept in the place of a preset that was deleted. */
#define S3_CONFIG_DELETED "-"
/* All of a bucket that is gone; what stays is of nobody. */
void s3_configs_delete_all(struct s3_call *call);

/* Of kinds that are XML: parses body, whose root must have that name. */
const struct s3_error *s3_config_xml(
	struct s3_call *call, struct slice body, const char *root, struct s3_xml **ret_root);
/* The tree as a document again, in the arena: names, texts, nothing else. */
const struct s3_error *s3_config_xml_text(
	struct s3_call *call, const struct s3_xml *root, struct slice *ret_text);
/* The contents of a node. */
void s3_config_put_xml(const struct s3_xml *node, struct buf *xml);
/* An answer function: the document as it is kept, as XML. */
const struct s3_error *s3_config_answer_xml(struct s3_call *call, struct slice document);
/* A load function for kinds that no request looks at. */
int s3_config_load_nothing(struct slice document, struct mem_arena *arena, const void **ret_parsed);

/* ---- Settings. ---- */
struct s3_public_access {
	bool block_acls, ignore_acls, block_policy, restrict_buckets;
};
struct s3_settings {
	uint32_t references; /* this reactor's */
	uint32_t generation;
	_Atomic uint32_t *now; /* what the generation is by now */
	struct slice name;     /* the bucket's */
	struct store_bucket bucket;
	struct slice documents[S3_CONFIG_COUNT]; /* as kept; data NULL when there is none */
	uint64_t put_ns[S3_CONFIG_COUNT];	 /* when */
	const void *parsed[S3_CONFIG_COUNT];	 /* by the kind's load; NULL when there is none */
	bool deleted[S3_CONFIG_COUNT];		 /* of a preset that does not count any more */
	struct s3_public_access of_account; /* what the owner's account blocks in all of them */
	struct mem_arena arena;
};
/* The call's bucket's, which the call holds until it ends; *ret_settings NULL when there is no such
 * bucket. */
const struct s3_error *s3_call_settings(
	struct s3_call *call, const struct s3_settings **ret_settings);
/* The settings of any bucket, for code without a call. -ENOENT: no such bucket; -EIO: one of its
 * documents is damaged (logged). Given back on the same reactor. */
int s3_settings_get(struct s3 *s3, struct flow_core *core, struct slice bucket,
	struct s3_settings **ret_settings);
void s3_settings_put(struct s3_settings *settings); /* takes NULL */
/* After something of a bucket changed for good: its making, its end, a document. Any reactor. */
void s3_settings_changed(struct s3 *s3, struct slice bucket);
/* After something changed that all buckets of somebody share. */
void s3_settings_all_changed(struct s3 *s3);

/* ---- The access rules in settings (core/public_access.c). ---- */
#define S3_POLICY_BINDS_OWNER	"binds-owner\n" /* what a policy's document begins with that does */
#define S3_PUBLIC_SWITCHES	4u		/* "1011", as public access is kept */
#define S3_PUBLIC_ACCESS_MEMBER "public_access_block" /* of an account's document */
enum s3_ownership { S3_OWNERSHIP_WRITER, S3_OWNERSHIP_PREFERRED, S3_OWNERSHIP_ENFORCED };
int s3_ownership_of(struct slice name, enum s3_ownership *ret_ownership); /* -EINVAL */
enum s3_ownership s3_settings_ownership(const struct s3_settings *settings);
/* The bucket's and its owner's account's together. */
struct s3_public_access s3_settings_public_access(const struct s3_settings *settings);
/* Of the account of an owner; and what is kept, "1011" (-EINVAL: it is nothing of the kind). */
struct s3_public_access s3_account_public_access(struct s3 *s3, const char *owner_id);
int s3_public_access_parse(struct slice text, struct s3_public_access *ret_access);
/* Whether the policy was put with x-amz-confirm-remove-self-bucket-access: its owner, too, can
 * read, replace and delete it only where it says so. */
bool s3_settings_policy_binds_owner(const struct s3_settings *settings);

/* s3_open and s3_close; no reactor runs then. */
struct s3_settings_table;
int s3_settings_open(struct s3_settings_table **ret_table);
void s3_settings_close(struct s3_settings_table *table);

#endif
