/* s3/document.h: small named documents of the server's own: configurations of buckets, identities.
 * Each is an object of a bucket whose name no S3 request can say, so it is durable when put returns
 * and changes all at once:
 *
 *   b/BUCKET/KIND   a configuration of a bucket     i/…   identities and what belongs to them
 *
 * A document may say whose it is by a number, of a bucket its id. Ids are never reused: what a
 * crash leaves behind of a deleted bucket is of nobody, whatever its name is given to.
 *
 * Fiber calls on a reactor with this flow core. */
#ifndef S3_DOCUMENT_H
#define S3_DOCUMENT_H

#include "s3/s3_priv.h"

#define S3_DOCUMENTS_BUCKET   ".config"
#define S3_DOCUMENT_BYTES_MAX (1 * MIB)
/* Of a name: what the store takes as a key. */
#define S3_DOCUMENT_NAME_MAX LIMIT_KEY_LEN_MAX

struct s3_document {
	struct slice text;
	uint64_t owner; /* 0: nobody's in particular */
	char stamp[36]; /* changes with the text; filled in by get */
};

/* -ENOENT; -EBADMSG: not written by this interface; -ENOMEM; an errno of the store. The text lives
 * in the arena, with a NUL behind it. */
int s3_document_get(struct s3 *s3, struct flow_core *core, struct slice name,
	struct s3_arena *arena, struct s3_document *ret_document);
/* Puts text and owner. expected NULL: whatever is there; "": nothing may be there (-EEXIST); a
 * stamp: what is there must have it (-ESTALE). -EFBIG: past S3_DOCUMENT_BYTES_MAX. */
int s3_document_put(struct s3 *s3, struct flow_core *core, struct slice name,
	const struct s3_document *document, const char *expected);
/* Deleting what is not there is success. */
int s3_document_delete(struct s3 *s3, struct slice name);
/* All whose names start so; in several commits when there are many. */
int s3_document_delete_all(struct s3 *s3, struct slice prefix);
/* Calls visit for each name with that prefix that comes after `after`, in order, until it returns
 * false. The name lives for the call; visit may call the store. */
typedef bool s3_document_visit_fn(struct slice name, void *arg);
int s3_document_list(struct s3 *s3, struct slice prefix, struct slice after,
	s3_document_visit_fn *visit, void *arg);

/* ---- What other hidden buckets need, too. ---- */
/* Opens a put in a bucket of the server's own, which the first one makes. */
int s3_own_put_open(struct s3 *s3, const struct store_put_opts *opts, struct store_put **ret_put);
/* Puts a text as an object of any bucket, with its MD5 as ETag. */
int s3_put_text(struct s3 *s3, struct flow_core *core, struct slice bucket, struct slice key,
	struct slice text);
/* Deletes every object of a bucket whose key starts so. */
int s3_delete_under(struct s3 *s3, struct slice bucket, struct slice prefix);
/* Appends a source's bytes and closes it; -EMSGSIZE: more than text takes. */
int s3_read_source(struct flow_core *core, struct flow_source *source, struct buf *text);

#endif
