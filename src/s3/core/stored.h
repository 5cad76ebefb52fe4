/* s3/core/stored.h: what is kept with an object: hidden headers, its parts, its storage class, its
 * checksums. */
#ifndef S3_CORE_STORED_H
#define S3_CORE_STORED_H

#include "s3/core/call.h"

#define S3_META_BYTES_MAX (2u * LIMIT_HTTP_HEAD_BYTES_MAX) /* what the store keeps of them */
/* s3's bits in an object's flags: a listing has them, but not the headers. */
#define S3_FLAG_COMPOSITE   1u /* the checksum is one of the parts' checksums */
#define S3_FLAG_ENCRYPTED   2u /* the body is: see sse/sse.h */
#define S3_FLAG_FOREIGN	    4u /* it is not the bucket's owner's: its headers say whose */
#define S3_FLAG_UNASKED	    8u /* of an upload's record: it asked for no checksum, is told none */
#define S3_FLAG_CLASS_SHIFT 4  /* from here on: the storage class */
/* Stored headers that no answer shows directly have names with this prefix; they come after all
 * others. The owner of a header defines its value, which never has a NUL. */
#define S3_HIDDEN_PREFIX "x-nebulaio-"
/* The next stored header of what rest holds; its name and value are followed by a NUL. False at the
 * end, or where the record is not of that form. */
bool s3_meta_next(struct slice *rest, struct slice *ret_name, struct slice *ret_value);
/* The value of one; data NULL when it is not there. */
struct slice s3_meta_hidden(struct slice headers, struct slice name);
/* The headers with that value for it (data NULL: without it), in the arena. -ENOMEM. */
int s3_meta_set_hidden(struct slice headers, struct slice name, struct slice value,
	struct mem_arena *arena, struct slice *ret_headers);
/* How an object was uploaded: runs of parts of one length, "8388608*7,5242880". */
#define S3_PARTS_HEADER S3_HIDDEN_PREFIX "parts"
/* The checksums of its parts in base64, one after the other, where they fit. */
#define S3_PART_SUMS_HEADER S3_HIDDEN_PREFIX "part-sums"
/* Where an object's page sends its reader; "x-amz-website-redirect-location". */
#define S3_REDIRECT_HEADER    S3_HIDDEN_PREFIX "redirect"
#define S3_REDIRECT_BYTES_MAX 2048u
struct s3_parts {
	uint32_t count;		/* 0: the object was put whole */
	uint64_t offset, bytes; /* of the part asked for; bytes 0: there is none */
};
struct s3_parts s3_meta_parts(const struct store_meta *meta, uint32_t part_number);
/* The length of headers without hidden ones: what a copy takes over. */
uint32_t s3_meta_plain_len(const struct store_meta *meta);
/* "STANDARD" unless the object has another. */
struct slice s3_meta_storage_class(const struct store_meta *meta);
#define S3_STORAGE_CLASS_EXPRESS 6u /* of directory buckets, and only theirs */
/* The number of a storage class in an object's flags; false: it is none that is kept. */
bool s3_storage_class_find(struct slice name, uint8_t *ret_class);
/* Whether objects of that class are archived at S3. Here they can be read like all others. */
bool s3_storage_class_archives(uint8_t class);

/* ---- Checksums. ---- */
/* The ETag of an object that was stored without an MD5. */
void s3_etag_of_crc(struct store_meta *meta);
void s3_crc64_digest(uint64_t crc, uint8_t digest[CHECKSUM_BYTES_MAX]);
#define S3_CHECKSUM_LEN_MAX (CHECKSUM_TEXT_LEN_MAX + 8)
/* Writes the checksum as text without a NUL and returns its length; 0: there is none. */
size_t s3_checksum_format(const struct store_meta *meta, char ret_text[S3_CHECKSUM_LEN_MAX]);
/* The same on the arena: the checksum as text, with "-N" behind it when it is of N parts; empty
 * when there is none. */
struct slice s3_checksum_text(struct s3_call *call, const struct store_meta *meta);
/* The checksum headers of an object (x-amz-checksum-…, -type). */
void s3_answer_checksum(struct s3_call *call, const struct store_meta *meta);
/* The same of one part, where it is known. */
void s3_answer_part_checksum(struct s3_call *call, const struct store_meta *meta, uint32_t number);
/* A part's own, in base64, of an object whose checksum is composite; empty: it is not kept. */
struct slice s3_meta_part_sum(const struct store_meta *meta, uint32_t number);

#endif
