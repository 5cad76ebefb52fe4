/* s3/core/stored.h: data stored with an object: hidden headers, its parts, its storage class, its
 * checksums. */
#ifndef S3_CORE_STORED_H
#define S3_CORE_STORED_H

#include "s3/core/call.h"

#define S3_META_BYTES_MAX (2u * LIMIT_HTTP_HEAD_BYTES_MAX) /* limit of the stored headers */
/* s3's bits in an object's flags: a listing has the flags, but not the headers. */
#define S3_FLAG_COMPOSITE   1u /* the checksum is a checksum of the parts' checksums */
#define S3_FLAG_ENCRYPTED   2u /* the body is encrypted: see sse/sse.h */
#define S3_FLAG_FOREIGN	    4u /* another owner than the bucket's: the headers have its id */
#define S3_FLAG_UNASKED	    8u /* of an upload's record: the client requested no checksum */
#define S3_FLAG_CLASS_SHIFT 4  /* storage class in the bits from here on */
/* Stored headers with this name prefix are not shown directly in an answer; they come after all
 * others. The code that owns a header defines its value, which never contains a NUL. */
#define S3_HIDDEN_PREFIX "x-nebulaio-"
/* The next stored header in rest; a NUL follows its name and its value. False at the end, or if the
 * record does not have that form. */
bool s3_meta_next(struct slice *rest, struct slice *ret_name, struct slice *ret_value);
/* The value of one header; data NULL: not present. */
struct slice s3_meta_hidden(struct slice headers, struct slice name);
/* The headers with that value for it (data NULL: without it), in the arena. -ENOMEM. */
int s3_meta_set_hidden(struct slice headers, struct slice name, struct slice value,
	struct mem_arena *arena, struct slice *ret_headers);
/* How an object was uploaded: runs of parts of one length, "8388608*7,5242880". */
#define S3_PARTS_HEADER S3_HIDDEN_PREFIX "parts"
/* The checksums of its parts in base64, concatenated, if they fit. */
#define S3_PART_SUMS_HEADER S3_HIDDEN_PREFIX "part-sums"
/* The redirect target of an object's web page; "x-amz-website-redirect-location". */
#define S3_REDIRECT_HEADER    S3_HIDDEN_PREFIX "redirect"
#define S3_REDIRECT_BYTES_MAX 2048u
/* The lock of a version (object/lock.h). */
#define S3_LOCK_MODE_HEADER  S3_HIDDEN_PREFIX "lock-mode"  /* GOVERNANCE or COMPLIANCE */
#define S3_LOCK_UNTIL_HEADER S3_HIDDEN_PREFIX "lock-until" /* as date_iso_format writes it */
#define S3_LOCK_HOLD_HEADER  S3_HIDDEN_PREFIX "lock-hold"  /* ON or OFF */
/* How far a version was replicated (replicate/replicate.h): a word, and behind a space the version
 * id of the replica; of a replica itself the source's version id. */
#define S3_REPLICA_HEADER    S3_HIDDEN_PREFIX "replication"
#define S3_REPLICA_BYTES_MAX 128u /* what it takes at most */
/* The request header that makes an object a replica, which is not replicated again: its value is
 * the source's version id. It needs a right of its own (auth/access.c). */
#define S3_REPLICA_REQUEST "x-nebulaio-replica"
/* Of an object that came from the bucket's origin: when, and when it was changed there. */
#define S3_ORIGIN_HEADER S3_HIDDEN_PREFIX "origin"
struct s3_parts {
	uint32_t count;		/* 0: the object was put whole */
	uint64_t offset, bytes; /* of the requested part; bytes 0: no such part */
};
struct s3_parts s3_meta_parts(const struct store_meta *meta, uint32_t part_number);
/* The length of the headers without hidden ones: a copy takes these. */
uint32_t s3_meta_plain_len(const struct store_meta *meta);
/* "STANDARD" unless the object has another class. */
struct slice s3_meta_storage_class(const struct store_meta *meta);
#define S3_STORAGE_CLASS_MEMORY	 9u /* only in memory buckets, which have no other class */
#define S3_STORAGE_CLASS_EXPRESS 6u /* only in directory buckets, which have no other class */
/* The number of a storage class in an object's flags; false: not a class that is stored. */
bool s3_storage_class_find(struct slice name, uint8_t *ret_class);
/* Whether lifecycle rules may move an object of class `from` to class `to`: transitions only go
 * down, to a colder class. */
bool s3_storage_class_is_colder(uint8_t to, uint8_t from);
/* Whether S3 archives objects of that class. Here they are readable like all others. */
bool s3_storage_class_archives(uint8_t class);

/* ---- Checksums. ---- */
/* The ETag of an object that was stored without an MD5. */
void s3_etag_of_crc(struct store_meta *meta);
void s3_crc64_digest(uint64_t crc, uint8_t digest[CHECKSUM_BYTES_MAX]);
#define S3_CHECKSUM_LEN_MAX (CHECKSUM_TEXT_LEN_MAX + 8)
/* Writes the checksum as text without a NUL and returns its length; 0: no checksum. */
size_t s3_checksum_format(const struct store_meta *meta, char ret_text[S3_CHECKSUM_LEN_MAX]);
/* The checksum as text in the arena, with "-N" at the end if it is a checksum of N parts; empty: no
 * checksum. */
struct slice s3_checksum_text(struct s3_call *call, const struct store_meta *meta);
/* The checksum headers of an object (x-amz-checksum-…, -type). */
void s3_answer_checksum(struct s3_call *call, const struct store_meta *meta);
/* The checksum headers of one part, if known. */
void s3_answer_part_checksum(struct s3_call *call, const struct store_meta *meta, uint32_t number);
/* A part's own checksum, in base64, for an object with a composite checksum; empty: not stored. */
struct slice s3_meta_part_sum(const struct store_meta *meta, uint32_t number);

#endif
