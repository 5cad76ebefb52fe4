/* store/object/record.c: encodes and decodes values of the index (docs/spec/disk.md). Values from
 * the index are checked like any other input. */
#include "store/log/key.h"
#include "store/object/object.h"
#include "store/object/record.h"
#include "store/volume/volume.h"

#include <endian.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define RECORD_VERSION 1u
#define RECORD_HAS_SEQ 1u
#define RECORD_HAS_TAG 2u
#define SEGMENT_TAGGED (1u << 31) /* flag in a segment's check count */

struct record_head {
	uint8_t version;
	uint8_t body;
	uint8_t checksum_type;
	uint8_t checksum_flags;
	uint8_t checksum_len;
	uint8_t etag_len;
	uint8_t version_id_len;
	uint8_t flags;
	uint32_t headers_len;
	uint32_t parts;
	uint64_t data_id;
	uint64_t bytes;
	uint64_t mtime_ns;
	uint64_t crc64;
};
_Static_assert(sizeof(struct record_head) == 48, "as docs/spec/disk.md has it");

struct bucket_head {
	uint8_t version;
	uint8_t owner_len;
	uint8_t region_len;
	uint8_t versioning;
	uint8_t flags;
	uint8_t reserved[3];
	uint64_t id;
	uint64_t created_ns;
};
_Static_assert(sizeof(struct bucket_head) == 24, "as docs/spec/disk.md has it");

/* Behind the head, of a memory bucket. */
struct bucket_memory {
	uint64_t bytes;
	uint64_t objects;
	uint32_t ttl_s;
	uint8_t refuses;
	uint8_t reserved[3];
};
_Static_assert(sizeof(struct bucket_memory) == 24, "as docs/spec/disk.md has it");

struct extent_record {
	uint64_t block;
	uint32_t blocks;
} __attribute__((packed));
_Static_assert(sizeof(struct extent_record) == 12, "as docs/spec/disk.md has it");

size_t segment_record_bytes(const struct segment *segment)
{
	return 8 + segment->extent_count * sizeof(struct extent_record) +
	       segment->check_count * sizeof(uint32_t) + segment->tag_count * STORE_TAG_BYTES;
}

void segment_record_put(const struct segment *segment, uint8_t *out)
{
	uint32_t checks = segment->check_count | (segment->tag_count ? SEGMENT_TAGGED : 0);

	memcpy(out, &segment->extent_count, 4);
	memcpy(out + 4, &checks, 4);
	out += 8;
	for (uint32_t i = 0; i < segment->extent_count; i++) {
		struct extent_record extent = {
			.block = segment->extents[i].block, .blocks = segment->extents[i].blocks};

		memcpy(out, &extent, sizeof(extent));
		out += sizeof(extent);
	}
	memcpy(out, segment->checks, segment->check_count * sizeof(uint32_t));
	if (segment->tag_count)
		memcpy(out + segment->check_count * sizeof(uint32_t), segment->tags,
			(size_t)segment->tag_count * STORE_TAG_BYTES);
}

static int tags_parse(struct segment *segment, const char *at, uint32_t count)
{
	int ret = 0;

	for (uint32_t i = 0; i < count && !ret; i++)
		ret = segment_tag_add(segment, (const uint8_t *)at + (size_t)i * STORE_TAG_BYTES);
	return ret;
}

static int extents_parse(struct segment *segment, const char *at, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++, at += sizeof(struct extent_record)) {
		struct extent_record extent;

		memcpy(&extent, at, sizeof(extent));
		if (extent.blocks == 0 || extent.block == 0 ||
			extent.block > UINT64_MAX / BLOCK_BYTES - extent.blocks ||
			extent.blocks > SEGMENT_EXTENTS_MAX ||
			segment->blocks + extent.blocks > SEGMENT_EXTENTS_MAX)
			return -EUCLEAN;
		segment->extents[segment->extent_count++] = (struct extent){
			.block = extent.block, .blocks = extent.blocks, .start = segment->blocks};
		segment->blocks += extent.blocks;
	}
	return 0;
}

int segment_record_parse(struct slice value, struct segment **ret_segment)
{
	struct segment *segment;
	uint32_t extents, checks, tags;
	const char *at;
	int ret;

	if (value.len < 8)
		return -EUCLEAN;
	memcpy(&extents, value.data, 4);
	memcpy(&checks, value.data + 4, 4);
	tags = checks & SEGMENT_TAGGED ? checks & ~SEGMENT_TAGGED : 0;
	checks &= ~SEGMENT_TAGGED;
	if (extents == 0 || extents > SEGMENT_EXTENTS_MAX || checks == 0 ||
		checks > SEGMENT_CHECKS_MAX ||
		value.len != 8 + extents * sizeof(struct extent_record) + checks * 4ull +
				     (size_t)tags * STORE_TAG_BYTES)
		return -EUCLEAN;
	ret = segment_open(extents, checks, &segment);
	if (ret)
		return ret;
	at = value.data + 8 + extents * sizeof(struct extent_record);
	ret = extents_parse(segment, value.data + 8, extents);
	if (!ret)
		ret = tags_parse(segment, at + checks * sizeof(uint32_t), tags);
	if (ret) {
		segment_close(segment);
		return ret;
	}
	segment->check_count = checks;
	memcpy(segment->checks, at, checks * sizeof(uint32_t));
	*ret_segment = segment;
	return 0;
}

bool segment_covers(const struct segment *segment, uint64_t bytes)
{
	return segment->blocks == (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES &&
	       segment->check_count == (bytes + STORE_CHECK_BYTES - 1) / STORE_CHECK_BYTES;
}

size_t record_bytes(const struct object *object)
{
	const struct store_meta *meta = &object->meta;
	size_t bytes = sizeof(struct record_head) + strlen(meta->etag) + strlen(meta->version_id) +
		       meta->checksum_len + meta->headers_len +
		       (object->seq ? sizeof(object->seq) : 0) +
		       (object->has_tag ? sizeof(object->tag) : 0);

	if (object->body == BODY_DIRECT)
		bytes += segment_record_bytes(atomic_load(&object->segments[0]));
	if (object->part_count > 1)
		bytes += object->part_count * sizeof(struct part_record);
	return bytes;
}

static uint8_t *append(uint8_t *out, const void *data, size_t len)
{
	if (len)
		memcpy(out, data, len);
	return out + len;
}

void record_put(const struct object *object, uint8_t *out)
{
	const struct store_meta *meta = &object->meta;
	struct record_head head = {
		.version = RECORD_VERSION,
		.body = object->body,
		.checksum_type = meta->checksum_type,
		.checksum_flags = meta->checksum_flags,
		.checksum_len = meta->checksum_len,
		.etag_len = (uint8_t)strlen(meta->etag),
		.version_id_len = (uint8_t)strlen(meta->version_id),
		.flags = (uint8_t)((object->seq ? RECORD_HAS_SEQ : 0) |
				   (object->has_tag ? RECORD_HAS_TAG : 0)),
		.headers_len = meta->headers_len,
		.parts = object->part_count,
		.data_id = object->data_id,
		.bytes = meta->bytes,
		.mtime_ns = meta->mtime_ns,
		.crc64 = meta->crc64,
	};

	out = append(out, &head, sizeof(head));
	out = append(out, &object->seq, object->seq ? sizeof(object->seq) : 0);
	out = append(out, meta->etag, head.etag_len);
	out = append(out, meta->version_id, head.version_id_len);
	out = append(out, meta->checksum, head.checksum_len);
	out = append(out, meta->headers, head.headers_len);
	out = append(out, object->tag, object->has_tag ? sizeof(object->tag) : 0);
	if (object->body == BODY_DIRECT)
		segment_record_put(atomic_load(&object->segments[0]), out);
	for (uint32_t i = 0; object->part_count > 1 && i < object->part_count; i++) {
		struct part_record part = {
			.data_id = object->parts[i].data_id, .bytes = object->parts[i].bytes};

		out = append(out, &part, sizeof(part));
	}
}

static bool parts_valid(const struct record_head *head)
{
	if (head->parts == 1)
		return head->bytes <= LIMIT_PUT_BYTES_MAX;
	return head->parts > 1 && head->parts <= STORE_PARTS_MAX &&
	       head->bytes <= LIMIT_OBJECT_BYTES_MAX && head->body == BODY_SEGMENTED;
}

static bool head_valid(const struct record_head *head)
{
	bool empty = head->body == BODY_EMPTY || head->body == BODY_MARKER;

	return head->version == RECORD_VERSION && parts_valid(head) && head->body <= BODY_MARKER &&
	       head->checksum_len <= sizeof(((struct store_meta *)0)->checksum) &&
	       head->etag_len < sizeof(((struct store_meta *)0)->etag) &&
	       head->version_id_len < sizeof(((struct store_meta *)0)->version_id) &&
	       !(head->flags & ~(RECORD_HAS_SEQ | RECORD_HAS_TAG)) &&
	       (!(head->flags & RECORD_HAS_TAG) || head->body == BODY_INLINE) &&
	       head->data_id != 0 && (head->bytes == 0) == empty;
}

static size_t seq_bytes(const struct record_head *head)
{
	return head->flags & RECORD_HAS_SEQ ? sizeof(uint64_t) : 0;
}

/* Reads the fixed part and the strings; *ret_rest is the remainder (headers, and segment or parts).
 */
static int parse_head(struct slice value, struct record_head *ret_head, struct store_meta *ret_meta,
	struct slice *ret_rest)
{
	struct record_head head;
	const char *at;

	if (value.len < sizeof(head))
		return -EUCLEAN;
	memcpy(&head, value.data, sizeof(head));
	if (!head_valid(&head) || value.len - sizeof(head) < seq_bytes(&head) + head.etag_len +
								     head.version_id_len +
								     head.checksum_len)
		return -EUCLEAN;
	at = value.data + sizeof(head) + seq_bytes(&head);
	*ret_meta = (struct store_meta){
		.bytes = head.bytes,
		.mtime_ns = head.mtime_ns,
		.checksum_type = head.checksum_type,
		.checksum_flags = head.checksum_flags,
		.checksum_len = head.checksum_len,
		.crc64 = head.crc64,
		.delete_marker = head.body == BODY_MARKER,
	};
	memcpy(ret_meta->etag, at, head.etag_len);
	at += head.etag_len;
	memcpy(ret_meta->version_id, at, head.version_id_len);
	at += head.version_id_len;
	memcpy(ret_meta->checksum, at, head.checksum_len);
	at += head.checksum_len;
	*ret_rest = slice_of(at, (size_t)(value.data + value.len - at));
	*ret_head = head;
	return 0;
}

int record_parse_meta(struct slice value, struct store_meta *ret_meta)
{
	struct record_head head;
	struct slice rest;

	return parse_head(value, &head, ret_meta, &rest);
}

size_t record_meta_bytes(struct slice value)
{
	struct record_head head;

	if (value.len < sizeof(head))
		return value.len;
	memcpy(&head, value.data, sizeof(head));
	return MIN(value.len, sizeof(head) + seq_bytes(&head) + head.etag_len +
				      head.version_id_len + head.checksum_len);
}

uint64_t record_seq(struct slice value)
{
	struct record_head head;
	uint64_t seq = 0;

	if (value.len < sizeof(head) + sizeof(seq))
		return 0;
	memcpy(&head, value.data, sizeof(head));
	if (head.flags & RECORD_HAS_SEQ)
		memcpy(&seq, value.data + sizeof(head), sizeof(seq));
	return seq;
}

uint64_t record_body(struct slice key, struct slice value)
{
	struct record_head head;
	uint64_t data_id;

	if (key.len == SEGMENT_KEY_BYTES && key.data[0] == 'S') {
		memcpy(&data_id, key.data + 1, sizeof(data_id));
		return be64toh(data_id);
	}
	if (!key.len || !strchr("OVN", key.data[0]) || value.len < sizeof(head))
		return UINT64_MAX;
	memcpy(&head, value.data, sizeof(head));
	return head.body == BODY_DIRECT ? head.data_id : UINT64_MAX;
}

/* The body of a plain object, which follows the headers. */
static int parse_plain(struct object *object, const struct record_head *head, struct slice rest)
{
	struct segment *segment;
	int ret;

	/* A composable body has rows of its own, even if it is short. */
	if (head->body == BODY_SEGMENTED && object->body == BODY_DIRECT)
		object->body = BODY_SEGMENTED;
	if (head->body == BODY_MARKER)
		object->body = BODY_MARKER;
	if (object->body != head->body)
		return -EUCLEAN;
	if (head->flags & RECORD_HAS_TAG) {
		if (rest.len != sizeof(object->tag))
			return -EUCLEAN;
		memcpy(object->tag, rest.data, sizeof(object->tag));
		object->has_tag = true;
		return 0;
	}
	if (object->body != BODY_DIRECT)
		return rest.len ? -EUCLEAN : 0;
	ret = segment_record_parse(rest, &segment);
	if (ret)
		return ret;
	atomic_init(&object->segments[0], segment);
	return segment_covers(segment, object->meta.bytes) ? 0 : -EUCLEAN;
}

static int parse_parts(const struct store_meta *meta, const struct record_head *head,
	struct slice rest, struct object **ret_object)
{
	struct part_record *parts;
	int ret;

	if (rest.len != head->parts * sizeof(*parts))
		return -EUCLEAN;
	parts = (struct part_record *)malloc(rest.len);
	if (!parts)
		return -ENOMEM;
	memcpy(parts, rest.data, rest.len);
	ret = object_open_parts(meta, head->data_id, parts, head->parts, ret_object);
	free(parts);
	return ret;
}

int record_parse(struct slice value, struct object **ret_object)
{
	struct store_meta meta;
	struct record_head head;
	struct object *object;
	struct slice rest;
	int ret = parse_head(value, &head, &meta, &rest);

	if (ret)
		return ret;
	if (rest.len < head.headers_len ||
		(head.body == BODY_INLINE && head.bytes > STORE_INLINE_BYTES_MAX))
		return -EUCLEAN;
	meta.headers = rest.data;
	meta.headers_len = head.headers_len;
	rest = slice_from(rest, head.headers_len);
	if (head.parts > 1) {
		ret = parse_parts(&meta, &head, rest, &object);
		if (ret)
			return ret;
		object->seq = record_seq(value);
		*ret_object = object;
		return 0;
	}
	ret = object_open(
		&meta, head.data_id, head.body == BODY_INLINE ? (uint32_t)head.bytes : 0, &object);
	if (ret)
		return ret;
	ret = parse_plain(object, &head, rest);
	if (ret) {
		object_put(NULL, object);
		return ret;
	}
	object->seq = record_seq(value);
	*ret_object = object;
	return 0;
}

size_t bucket_record_put(const struct store_bucket *bucket, uint8_t out[BUCKET_RECORD_BYTES_MAX])
{
	struct bucket_head head = {
		.version = RECORD_VERSION,
		.owner_len = (uint8_t)strlen(bucket->owner),
		.region_len = (uint8_t)strlen(bucket->region),
		.versioning = bucket->versioning,
		.flags = bucket->flags,
		.id = bucket->id,
		.created_ns = bucket->created_ns,
	};
	uint8_t *at = append(out, &head, sizeof(head));

	at = append(at, bucket->owner, head.owner_len);
	at = append(at, bucket->region, head.region_len);
	if (bucket->flags & STORE_BUCKET_MEMORY) {
		const struct bucket_memory memory = {.bytes = bucket->memory.bytes,
			.objects = bucket->memory.objects,
			.ttl_s = bucket->memory.ttl_s,
			.refuses = bucket->memory.refuses};

		at = append(at, &memory, sizeof(memory));
	}
	return (size_t)(at - out);
}

/* Nothing, or the bounds of a memory bucket. */
static int bucket_memory_parse(struct slice value, struct store_bucket *bucket)
{
	struct bucket_memory memory;

	if (!(bucket->flags & STORE_BUCKET_MEMORY))
		return value.len ? -EUCLEAN : 0;
	if (value.len != sizeof(memory))
		return -EUCLEAN;
	memcpy(&memory, value.data, sizeof(memory));
	if (memory.bytes < STORE_MEMORY_BYTES_MIN || memory.ttl_s > STORE_MEMORY_TTL_S_MAX ||
		memory.refuses > 1)
		return -EUCLEAN;
	bucket->memory = (struct store_memory){.bytes = memory.bytes,
		.objects = memory.objects,
		.ttl_s = memory.ttl_s,
		.refuses = memory.refuses};
	return 0;
}

int bucket_record_parse(struct slice name, struct slice value, struct store_bucket *ret_bucket)
{
	struct store_bucket bucket = {.id = 0};
	struct bucket_head head;

	if (value.len < sizeof(head) || slice_copy_str(name, bucket.name, sizeof(bucket.name)))
		return -EUCLEAN;
	memcpy(&head, value.data, sizeof(head));
	if (head.version != RECORD_VERSION || head.owner_len >= sizeof(bucket.owner) ||
		head.region_len >= sizeof(bucket.region) || head.id == 0 ||
		head.versioning > STORE_VERSIONING_SUSPENDED ||
		(head.flags & ~STORE_BUCKET_FLAGS) ||
		value.len < sizeof(head) + (size_t)head.owner_len + head.region_len)
		return -EUCLEAN;
	bucket.id = head.id;
	bucket.created_ns = head.created_ns;
	bucket.versioning = head.versioning;
	bucket.flags = head.flags;
	memcpy(bucket.owner, value.data + sizeof(head), head.owner_len);
	memcpy(bucket.region, value.data + sizeof(head) + head.owner_len, head.region_len);
	if (bucket_memory_parse(
		    slice_from(value, sizeof(head) + (size_t)head.owner_len + head.region_len),
		    &bucket))
		return -EUCLEAN;
	*ret_bucket = bucket;
	return 0;
}

struct quota_record {
	uint8_t version;
	uint8_t zero[7];
	uint64_t bytes, objects;
};
_Static_assert(sizeof(struct quota_record) == QUOTA_RECORD_BYTES, "as docs/spec/disk.md has it");

void quota_record_put(const struct store_quota *quota, uint8_t out[QUOTA_RECORD_BYTES])
{
	const struct quota_record record = {
		.version = RECORD_VERSION, .bytes = quota->bytes, .objects = quota->objects};

	memcpy(out, &record, sizeof(record));
}

int quota_record_parse(struct slice key, struct slice value, uint64_t *ret_bucket_id,
	struct store_quota *ret_quota)
{
	struct quota_record record;
	uint64_t big;

	if (key.len != 1 + sizeof(big) || value.len != sizeof(record))
		return -EUCLEAN;
	memcpy(&record, value.data, sizeof(record));
	if (record.version != RECORD_VERSION)
		return -EUCLEAN;
	memcpy(&big, key.data + 1, sizeof(big));
	*ret_bucket_id = be64toh(big);
	*ret_quota = (struct store_quota){.bytes = record.bytes, .objects = record.objects};
	return 0;
}
