/* s3/object/object.h: what operations on objects share: how one is put, kept, read, copied. */
#ifndef S3_OBJECT_OBJECT_H
#define S3_OBJECT_OBJECT_H

#include "s3/core/call.h"
#include "s3/core/named.h"
#include "s3/event/notification.h"
#include "s3/sse/sse.h"

/* ---- Putting. ---- */
struct s3_put_input {
	struct flow_source *source;
	uint64_t bytes; /* of source; UINT64_MAX: not known */
	uint64_t bytes_min;
	bool appendable; /* bodies are to come behind it, and the key must hold nothing */
	enum s3_event_id event;
};
/* A PutObject of the call's key, but for its answer: by the request's headers, of the request's
 * body or (source not NULL, which it closes in any case) of another. */
const struct s3_error *s3_put_object(
	struct s3_call *call, const struct s3_put_input *input, struct store_meta *meta);

/* ---- Object headers. ---- */
/* Gathers what is kept with an object: standard headers, user metadata, storage class, lock. */
const struct s3_error *s3_meta_gather(struct s3_call *call, struct store_meta *meta);
/* Refuses request headers that ask for what is not implemented, by name. */
const struct s3_error *s3_check_headers(struct s3_call *call);
/* Adds the stored headers and response-* overrides to the answer. */
const struct s3_error *s3_meta_answer(struct s3_call *call, const struct store_meta *meta);

/* ---- Reading. ---- */
struct s3_read {
	struct store_get *get; /* NULL: answered already (304) */
	const struct store_meta *meta;
	uint64_t offset, bytes;	  /* what is read of it */
	uint32_t part;		  /* by its number; 0: it is no part that was asked for */
	uint32_t status;	  /* 200 or 206 */
	const struct s3_sse *sse; /* NULL: it lies as it is */
};
/* Opens the call's object, looks at conditions and range, adds the head's headers. On success the
 * caller closes get. */
const struct s3_error *s3_read_begin(struct s3_call *call, struct s3_read *ret_read);
/* Answers with the head and, but for HEAD, what was chosen; closes get. */
const struct s3_error *s3_read_send(struct s3_call *call, const struct s3_read *read);
/* Offers the body for a lease, when it may be leased (object/lease.c). */
void s3_lease_offer(struct s3_call *call, const struct s3_read *read);

/* ---- The source of a copy, as x-amz-copy-source and its conditions say. ---- */
const struct s3_error *s3_copy_parse(struct s3_call *call, struct s3_copy *copy);
/* Opens it and holds it against the conditions; on success the caller closes get. */
const struct s3_error *s3_copy_open(struct s3_call *call, struct s3_copy *copy);

#endif
