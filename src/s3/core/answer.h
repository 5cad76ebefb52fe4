/* s3/core/answer.h: answers: heads, XML documents, errors. */
#ifndef S3_CORE_ANSWER_H
#define S3_CORE_ANSWER_H

#include "s3/core/call.h"

/* 1,000 entries of a key whose every byte became "&#x1f;", and what stands beside it. */
#define S3_XML_REPLY_BYTES_MAX (1000u * (6u * LIMIT_KEY_LEN_MAX + 1024u))

/* Value is borrowed until the answer is sent. Past S3_REPLY_HEADERS_MAX nothing is added, which
 * limits on what is stored rule out. */
void s3_answer_header(struct s3_call *call, struct slice name, struct slice value);
void s3_answer_u64(struct s3_call *call, struct slice name, uint64_t value);
/* A header of an ETag with its quotes. */
void s3_answer_etag(struct s3_call *call, const char *etag);
/* Of the call's bucket. */
void s3_answer_bucket_arn(struct s3_call *call);
/* Last-Modified. */
void s3_answer_time(struct s3_call *call, const struct store_meta *meta);
/* Only a head. */
const struct s3_error *s3_answer_empty(struct s3_call *call, uint32_t status);
/* Head and a small body. */
void s3_answer_text(struct s3_call *call, uint32_t status, struct slice type, struct slice text);
/* An XML document, which is freed. */
const struct s3_error *s3_answer_xml(struct s3_call *call, uint32_t status, struct buf *xml);
void s3_answer_error(struct s3_call *call, const struct s3_error *error);
/* Starts a document of the S3 namespace. */
void s3_xml_begin(struct buf *xml, const char *root);
void s3_xml_end(struct buf *xml, const char *root);
void s3_xml_u64(struct buf *xml, const char *name, uint64_t value);
/* To the second, as S3 tells it: what HTTP's dates can hold. */
void s3_xml_time(struct buf *xml, const char *name, uint64_t time_ns);
/* An ETag with its quotes. */
void s3_xml_etag(struct buf *xml, const char *etag);
/* <ChecksumCRC32>…</ChecksumCRC32> and <ChecksumType>, when there is one. */
void s3_xml_checksum(struct buf *xml, const struct store_meta *meta);
/* The same without the number of parts that a composite one has behind it. */
void s3_xml_checksum_bare(struct buf *xml, const struct store_meta *meta);
struct iam_owner;
void s3_xml_owner(struct buf *xml, const char *element, const struct iam_owner *owner);

#endif
