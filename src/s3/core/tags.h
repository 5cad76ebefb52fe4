/* s3/core/tags.h: tags of objects and buckets: from XML and from a header, and their stored form:
 * sorted by key, "key=value&key=value", with only '&', '=' and '%' escaped.
 *
 * Source: S3 User Guide, "Categorizing your objects using tags"; API reference, PutObjectTagging.
 */
#ifndef S3_TAGS_H
#define S3_TAGS_H

#include "s3/core/call.h"
#include "s3/core/stored.h"
#include "s3/core/xml_in.h"

#define S3_TAGS_OBJECT_MAX     10u
#define S3_TAGS_BUCKET_MAX     50u
#define S3_TAG_KEY_CHARS_MAX   128u
#define S3_TAG_VALUE_CHARS_MAX 256u
/* The stored header of an object's tags; absent when it has no tags. */
#define S3_TAGS_HEADER S3_HIDDEN_PREFIX "tags"

struct s3_tag {
	struct slice key, value;
};
struct s3_tags {
	uint32_t count;
	struct s3_tag items[S3_TAGS_BUCKET_MAX]; /* sorted by key, which is unique */
};

/* Parses the document <Tagging>, or the element <TagSet> of another; texts live as long as the
 * tree. */
const struct s3_error *s3_tags_of_xml(struct s3_call *call, const struct s3_xml *tagging,
	uint32_t count_max, struct s3_tags *ret_tags);
/* Parses x-amz-tagging and its kin: "key=value&key=value", percent-encoded; texts live in the
 * arena. */
const struct s3_error *s3_tags_of_header(
	struct s3_call *call, struct slice value, struct s3_tags *ret_tags);
/* The stored form, in the arena; data NULL: no memory, or (count 0) nothing to store. */
struct slice s3_tags_encode(const struct s3_tags *tags, struct mem_arena *arena);
/* Decodes the result of encode. -EINVAL; -ENOMEM. */
int s3_tags_decode(struct slice encoded, struct mem_arena *arena, struct s3_tags *ret_tags);
/* An object's tags in stored form; data NULL: none. */
struct slice s3_tags_of_object(const struct store_meta *meta);
/* The number of tags in a stored form. */
uint32_t s3_tags_count(struct slice encoded);
/* The value of a tag, or NULL. */
const struct s3_tag *s3_tags_find(const struct s3_tags *tags, struct slice key);
/* <Tagging> in S3's format. */
const struct s3_error *s3_tags_answer(struct s3_call *call, const struct s3_tags *tags);

#endif
