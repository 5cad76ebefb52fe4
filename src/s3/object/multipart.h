/* s3/object/multipart.h: multipart uploads. An upload is a record and its parts, all plain objects
 * of a bucket that no S3 request can name:
 *
 *   u/BUCKET/ID         the record: its body is the key, its headers and flags the object's to be
 *   p/BUCKET/ID/00001   a part
 *
 * BUCKET is a name, which another bucket may have later: the ID tells whose the upload is.
 *
 * Completion joins the parts' bodies to one object in one commit, which also ends the upload and
 * moves no body bytes. Until then no reader sees any of it.
 *
 * Source: S3 User Guide, "Uploading and copying objects using multipart upload". */
#ifndef S3_MULTIPART_H
#define S3_MULTIPART_H

#include "s3/core/call.h"
#include "s3/core/stored.h"
#include "s3/sse/sse.h"

#define S3_UPLOADS_BUCKET ".uploads"
#define S3_UPLOAD_ID_LEN  40u /* 24 random hex digits, 16 of the hash of bucket's id and key */
#define S3_PARTS_MAX	  10000u
_Static_assert(S3_PARTS_MAX <= STORE_PARTS_MAX, "an object can have all parts of an upload");
#define S3_PART_BYTES_MIN  (5 * MIB) /* all but the last */
#define S3_UPLOAD_NAME_MAX (2 + LIMIT_BUCKET_LEN_MAX + 1 + S3_UPLOAD_ID_LEN + 1 + 5 + 1)

/* The id of its upload, stored with an object: completing the same upload again is no error. */
#define S3_UPLOAD_HEADER S3_HIDDEN_PREFIX "upload"

struct s3_upload {
	char id[S3_UPLOAD_ID_LEN + 1];
	uint64_t bucket_id;
	enum checksum_kind kind; /* of its parts */
	bool composite;		 /* the object's checksum is computed from its parts' */
	bool asked; /* the client asked for a checksum; otherwise none is returned before completion
		     */
	struct store_get *get;
	const struct store_meta *meta; /* the record's; lives as long as get */
};

/* A new id for an upload to that key. Ids are in order of time, so that a listing is. */
void s3_upload_id_make(uint64_t bucket_id, struct slice key, char ret_id[S3_UPLOAD_ID_LEN + 1]);
/* Whether the upload is one to that key of that bucket, and not of an earlier bucket of its name.
 * began_ns: the time of its record; UINT64_MAX: not known, it could be. */
bool s3_upload_is_of(
	struct slice id, struct slice key, const struct store_bucket *bucket, uint64_t began_ns);
/* Appends the key of an upload: the body of its record. Fiber call. */
int s3_upload_key(struct flow_core *core, struct store_get *record, struct buf *key);
/* The name of the record, or (number not 0) of a part; writes a NUL too. */
struct slice s3_upload_name(struct slice bucket, const char *id, uint32_t part_number,
	char ret_name[S3_UPLOAD_NAME_MAX]);
/* Opens the upload of the call's uploadId: NoSuchUpload unless it is of this bucket and key. The
 * caller closes it. */
const struct s3_error *s3_upload_open(struct s3_call *call, struct s3_upload *ret_upload);
/* Called after a part's commit: if the upload has ended meanwhile, deletes the part (NoSuchUpload),
 * so that no part remains that nothing refers to. */
const struct s3_error *s3_upload_still_there(
	struct s3_call *call, const struct s3_upload *upload, uint32_t part_number);
/* The encryption of its parts; a client's own key must be in the request. */
struct s3_sse;
const struct s3_error *s3_upload_sse(
	struct s3_call *call, const struct s3_upload *upload, struct s3_sse *ret_sse);
/* Refuses a part that alone is too large for what the bucket's quota leaves: the object would be,
 * too. */
const struct s3_error *s3_upload_room(struct s3_call *call, uint64_t bytes);
void s3_upload_close(struct s3_upload *upload);
/* Deletes the record of that name, and its parts before it; and after it those that were still
 * accepted. */
int s3_upload_drop(struct s3 *s3, struct slice name);
/* Deletes the record and all parts. */
const struct s3_error *s3_upload_delete(struct s3_call *call, const char *id);
/* Deletes the uploads of deleted buckets of that name; those of one that has it now stay
 * (object/sweep.c). Fiber call. */
int s3_uploads_delete_all(struct s3 *s3, struct flow_core *core, struct slice bucket);
/* A number of 1 to S3_PARTS_MAX in the parameter partNumber. */
const struct s3_error *s3_part_number(struct s3_call *call, uint32_t *ret_number);
/* The checksum algorithm and type that the headers request for an upload; *ret_flags: for its
 * record. */
const struct s3_error *s3_upload_checksum(
	struct s3_call *call, enum checksum_kind *ret_kind, uint8_t *ret_flags);

#endif
