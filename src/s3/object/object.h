/* s3/object/object.h: common parts of the operations on objects: put, metadata, read, source of a
 * copy. */
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
	bool appendable; /* data will be appended to it, and the key must not exist */
	enum s3_event_id event;
};
/* PutObject of the call's key, without the answer. It uses the request's headers, and the request's
 * body or source (if not NULL; closed in any case). */
const struct s3_error *s3_put_object(
	struct s3_call *call, const struct s3_put_input *input, struct store_meta *meta);

/* ---- Object headers. ---- */
/* Collects the metadata of a new object: standard headers, user metadata, storage class, lock. */
const struct s3_error *s3_meta_gather(struct s3_call *call, struct store_meta *meta);
/* Refuses request headers that ask for unsupported features, by name. */
const struct s3_error *s3_check_headers(struct s3_call *call);
/* Adds the stored headers and response-* overrides to the answer. */
const struct s3_error *s3_meta_answer(struct s3_call *call, const struct store_meta *meta);

/* ---- Reading. ---- */
struct s3_read {
	struct store_get *get; /* NULL: answered already (304), but see stream */
	const struct store_meta *meta;
	uint64_t offset, bytes;	   /* the range that is read */
	uint32_t part;		   /* part number; 0: the request names no part */
	uint32_t status;	   /* 200 or 206 */
	const struct s3_sse *sse;  /* NULL: the body is not encrypted */
	struct flow_fan_read *fan; /* of a member of a fan-out; or NULL */
	/* Of an object that is not whole here; or NULL. Then get is not the object's, or NULL. */
	struct s3_origin_stream *stream;
};
/* False: it was answered already. */
static inline bool s3_read_is_open(const struct s3_read *read)
{
	return read->get || read->stream;
}
/* Opens the call's object, checks conditions and range, and adds the headers of the answer. On
 * success the caller closes get. */
const struct s3_error *s3_read_begin(struct s3_call *call, struct s3_read *ret_read);
/* The second half of it, for an opened object: the caller has set get and meta, which may differ
 * from get's. After an error get is closed. */
const struct s3_error *s3_read_opened(struct s3_call *call, struct s3_read *read);
/* Closes get, whose headers are not answered. Returns the error. */
const struct s3_error *s3_read_refuse(
	struct s3_call *call, const struct s3_read *read, const struct s3_error *error);
/* Answers with the head and, except for HEAD, the chosen range; closes get. */
const struct s3_error *s3_read_send(struct s3_call *call, const struct s3_read *read);
/* Joins the fan-out that the request's header names, and waits until it begins; nothing without the
 * header. Then s3_read_send reads in step (object/fan_out.c). Fiber call. */
const struct s3_error *s3_fan_out_begin(struct s3_call *call, struct s3_read *read);
/* HeadObject's part in a multicast, which the same header asks for: enters the group, or has a part
 * sent to it, and adds the answer's headers. Fiber call. */
const struct s3_error *s3_fan_out_head(struct s3_call *call, struct s3_read *read);
/* Offers the body for a lease, when it may be leased (object/lease.c). */
void s3_lease_offer(struct s3_call *call, const struct s3_read *read);

/* ---- The source of a copy, as x-amz-copy-source and its conditions say. ---- */
/* Opens it and checks the conditions; on success the caller closes it. */
const struct s3_error *s3_copy_open(struct s3_call *call, struct s3_copy *copy);
void s3_copy_close(struct s3_copy *copy);
/* A source of these bytes of it, decrypted; once. -EPROTO: another store has sent others. */
int s3_copy_source(struct s3_call *call, struct s3_copy *copy, struct s3_range range,
	struct flow_source **ret_source);
/* The range that UploadPartCopy asks for. */
const struct s3_error *s3_copy_range(
	struct s3_call *call, const struct s3_copy *copy, struct s3_range *ret_range);

#endif
