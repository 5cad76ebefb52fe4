/* document/document.h: small named documents of the server's own: configurations of buckets,
 * identities. Each is an object of a bucket whose name no S3 request can say, so it is durable when
 * put returns and changes all at once:
 *
 *   b/BUCKET/KIND   a configuration of a bucket     i/…   identities and what belongs to them
 *
 * A document may say whose it is by a number, of a bucket its id. Ids are never reused: what a
 * crash leaves behind of a deleted bucket is of nobody, whatever its name is given to.
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
/* Of a name: what the store takes as a key. */
#define DOCUMENT_NAME_MAX LIMIT_KEY_LEN_MAX

struct document {
	struct slice text;
	uint64_t owner; /* 0: nobody's in particular */
	char stamp[36]; /* changes with the text; filled in by get, as is the time that it was put
			 */
	uint64_t put_ns;
};

/* -ENOENT; -EBADMSG: not written by this interface; -ENOMEM; an errno of the store. The text lives
 * in the arena, with a NUL behind it. */
int document_get(struct store *store, struct flow_core *core, struct slice name,
	struct mem_arena *arena, struct document *ret_document);
/* Puts text and owner. expected NULL: whatever is there; "": nothing may be there (-EEXIST); a
 * stamp: what is there must have it (-ESTALE). -EFBIG: past DOCUMENT_BYTES_MAX. */
int document_put(struct store *store, struct flow_core *core, struct slice name,
	const struct document *document, const char *expected);
/* Deleting what is not there is success. */
int document_delete(struct store *store, struct slice name);
/* All whose names start so; in several commits when there are many. */
int document_delete_all(struct store *store, struct slice prefix);
/* Calls visit for each name with that prefix that comes after `after`, in order, until it returns
 * false. The name lives for the call; visit may call the store. */
typedef bool document_visit_fn(struct slice name, void *arg);
int document_list(struct store *store, struct slice prefix, struct slice after,
	document_visit_fn *visit, void *arg);

/* ---- Functions that other hidden buckets need, too. ---- */
/* Opens a put in a bucket of the server's own, which the first one makes. */
int document_own_put_open(
	struct store *store, const struct store_put_opts *opts, struct store_put **ret_put);
/* Puts a text as an object of any bucket, with its MD5 as ETag. headers: those that are kept with
 * it behind its type, each name and value with a NUL behind it. */
struct document_text {
	struct slice bucket, key, text, headers;
};
int document_put_text(
	struct store *store, struct flow_core *core, const struct document_text *wanted);
/* Deletes every object of a bucket whose key starts so. */
int document_delete_under(struct store *store, struct slice bucket, struct slice prefix);
/* Appends a source's bytes and closes it; -EMSGSIZE: more than text takes. */
int document_read_source(struct flow_core *core, struct flow_source *source, struct buf *text);

#endif
