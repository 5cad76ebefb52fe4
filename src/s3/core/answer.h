/* s3/core/answer.h: answers: heads, XML documents, errors. */
#ifndef S3_CORE_ANSWER_H
#define S3_CORE_ANSWER_H

#include "s3/core/call.h"

/* 1,000 entries with keys of which every byte became "&#x1f;", and their other elements. */
#define S3_XML_REPLY_BYTES_MAX (1000u * (6u * LIMIT_KEY_LEN_MAX + 1024u))

/* The value is borrowed until the answer is sent. Headers past S3_REPLY_HEADERS_MAX are dropped;
 * the limits on stored headers rule that out. */
void s3_answer_header(struct s3_call *call, struct slice name, struct slice value);
void s3_answer_u64(struct s3_call *call, struct slice name, uint64_t value);
/* Says once that the caller pays, also for both buckets of a copy. */
void s3_answer_charged(struct s3_call *call);
bool s3_answer_is_charged(const struct s3_call *call);
/* Adds a header with an ETag in quotes. */
void s3_answer_etag(struct s3_call *call, const char *etag);
/* x-amz-bucket-region of the call's bucket. */
void s3_answer_bucket_arn(struct s3_call *call);
/* Last-Modified. */
void s3_answer_time(struct s3_call *call, const struct store_meta *meta);
/* Sends only a head. */
const struct s3_error *s3_answer_empty(struct s3_call *call, uint32_t status);
/* Sends a head and a small body. */
void s3_answer_text(struct s3_call *call, uint32_t status, struct slice type, struct slice text);
/* Sends an XML document and frees it. */
const struct s3_error *s3_answer_xml(struct s3_call *call, uint32_t status, struct buf *xml);
void s3_answer_error(struct s3_call *call, const struct s3_error *error);
/* Starts a document of the S3 namespace. */
void s3_xml_begin(struct buf *xml, const char *root);
void s3_xml_end(struct buf *xml, const char *root);
void s3_xml_u64(struct buf *xml, const char *name, uint64_t value);
/* To the second, as in S3's answers: HTTP's dates have no finer unit. */
void s3_xml_time(struct buf *xml, const char *name, uint64_t time_ns);
/* Writes an ETag with its quotes. */
void s3_xml_etag(struct buf *xml, const char *etag);
/* <ChecksumCRC32>…</ChecksumCRC32> and <ChecksumType>, if there is a checksum. */
void s3_xml_checksum(struct buf *xml, const struct store_meta *meta);
/* The same without the number of parts at the end of a composite checksum. */
void s3_xml_checksum_bare(struct buf *xml, const struct store_meta *meta);
struct iam_owner;
void s3_xml_owner(struct buf *xml, const char *element, const struct iam_owner *owner);

#endif
