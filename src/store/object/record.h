/* store/object/record.h: values of the index: records. */
#ifndef STORE_RECORD_H
#define STORE_RECORD_H

#include "store/api.h"

#include <stdbool.h>

#include "store/object/object.h"

/* ---- record.c ---- */
size_t record_bytes(const struct object *object);
/* Writes record_bytes(). */
void record_put(const struct object *object, uint8_t *out);
/* -EUCLEAN: not a record. The segment of a direct body is loaded; for an inline body there is only
 * room, which the caller fills. */
int record_parse(struct slice value, struct object **ret_object);
/* Reads only the fields that a list needs, from the record's first record_meta_bytes(); headers
 * stay NULL. -EUCLEAN. */
int record_parse_meta(struct slice value, struct store_meta *ret_meta);
size_t record_meta_bytes(struct slice value);
uint64_t record_seq(struct slice value); /* 0: the record has none */
/* The number of the body whose extents the row names; UINT64_MAX: the row names no extents. */
uint64_t record_body(struct slice key, struct slice value);
size_t segment_record_bytes(const struct segment *segment);
void segment_record_put(const struct segment *segment, uint8_t *out);
int segment_record_parse(struct slice value, struct segment **ret_segment);
#define BUCKET_RECORD_BYTES_MAX (24u + 64u + 32u + 24u)
size_t bucket_record_put(const struct store_bucket *bucket, uint8_t out[BUCKET_RECORD_BYTES_MAX]);
/* The value of a quota's row: the quota of the bucket. -EUCLEAN. */
#define QUOTA_RECORD_BYTES 24u
void quota_record_put(const struct store_quota *quota, uint8_t out[QUOTA_RECORD_BYTES]);
int quota_record_parse(struct slice key, struct slice value, uint64_t *ret_bucket_id,
	struct store_quota *ret_quota);
int bucket_record_parse(struct slice name, struct slice value, struct store_bucket *ret_bucket);

#endif
