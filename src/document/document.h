/* document/document.h: small named documents of the server's own: configurations of buckets,
 * identities. Each is an object of a bucket whose name no S3 request can express, so it is durable
 * when put returns and changes atomically:
 *
 *   b/BUCKET/KIND   a configuration of a bucket     i/…   identities and their data
 *
 * A document can have an owner: a bucket's document has the bucket's id. Ids are never reused: a
 * document that a crash leaves behind of a deleted bucket, or of one that it kept from being made,
 * has no owner, even if another bucket gets the name. The next start deletes it (s3_configs_sweep).
 *
 * Fiber calls on a reactor with this flow core. */
#ifndef DOCUMENT_H
#define DOCUMENT_H

#include "base/base.h"
#include "base/mem_arena.h"
#include "flow/flow.h"
#include "store/api.h"

/* The owner of the server's own buckets: its root. */
#define DOCUMENT_OWNER_ID  "5e94f7bd1fdc4dbdf3a15d5cd91f5e8a20e5a7ac9f8ed0e4f2d3c6ab0f5ec1d7"
#define DOCUMENTS_BUCKET   ".config"
#define DOCUMENT_BYTES_MAX (1 * MIB)
/* The limit of a name: the store's limit of a key. */
#define DOCUMENT_NAME_MAX LIMIT_KEY_LEN_MAX

struct document {
	struct slice text;
	uint64_t owner; /* 0: no owner */
	bool ahead;	/* put: of its owner, which is yet to be created with a reserved id */
	char stamp[36]; /* changes with the text; filled in by get, as is the time that it was put
			 */
	uint64_t put_ns;
};

/* -ENOENT; -EBADMSG: not written by this interface; -ENOMEM; an errno of the store. The text is in
 * the arena, with a NUL at its end. */
int document_get(struct store *store, struct flow_core *core, struct slice name,
	struct mem_arena *arena, struct document *ret_document);
/* Only its owner. */
int document_owner(struct store *store, struct slice name, uint64_t *ret_owner);
/* Puts text and owner. -ENOENT: not ahead, and no bucket has the owner's id. expected NULL:
 * always; "": only if no document exists (-EEXIST); a stamp: only if the document has it (-ESTALE).
 * -EFBIG: past DOCUMENT_BYTES_MAX. */
int document_put(struct store *store, struct flow_core *core, struct slice name,
	const struct document *document, const char *expected);
/* Deleting a document that does not exist is success. */
int document_delete(struct store *store, struct slice name);
/* The same, if the document has that owner; otherwise nothing is done. */
int document_delete_of(struct store *store, struct slice name, uint64_t owner);
/* Deletes all documents with that owner whose names have this prefix, each by itself. */
int document_delete_all(struct store *store, struct slice prefix, uint64_t owner);
/* Calls visit for each name with that prefix behind `after`, in order, until visit returns false.
 * The name is valid during the call; visit may call the store. */
typedef bool document_visit_fn(struct slice name, void *arg);
int document_list(struct store *store, struct slice prefix, struct slice after,
	document_visit_fn *visit, void *arg);

/* ---- Functions that other hidden buckets need, too. ---- */
/* Opens a put in a bucket of the server's own; the first put creates the bucket. */
int document_own_put_open(
	struct store *store, const struct store_put_opts *opts, struct store_put **ret_put);
/* Puts a text as an object of any bucket, with its MD5 as ETag. headers: stored behind the content
 * type; a NUL follows each name and each value. -ENOENT: no bucket with that name and id. */
struct document_text {
	struct slice bucket, key, text, headers;
	uint64_t bucket_id;
};
int document_put_text(
	struct store *store, struct flow_core *core, const struct document_text *wanted);
/* Deletes every object of a bucket whose key has this prefix. */
int document_delete_under(struct store *store, struct slice bucket, struct slice prefix);
/* Appends a source's bytes and closes the source; -EMSGSIZE: more than text can hold. */
int document_read_source(struct flow_core *core, struct flow_source *source, struct buf *text);

#endif
