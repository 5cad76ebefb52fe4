/* Fuzzes the readers of what lies on a medium: a group's mutations, keys and rows of the index. A
 * row that is taken is inside its bytes, and is written and read again. The first byte selects the
 * reader, the second the length of a key or name in front. */
#include <stdlib.h>
#include <string.h>

#include "store/commit/commit.h"
#include "store/log/journal.h"
#include "store/log/key.h"
#include "store/object/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void within(struct slice part, struct slice whole)
{
	CHECK(!part.len ||
		(part.data >= whole.data && part.data + part.len <= whole.data + whole.len));
}

static void objects(struct slice value)
{
	struct object *object, *again;
	struct store_meta meta;
	uint8_t *out;
	size_t bytes;

	if (!record_parse_meta(slice_to(value, record_meta_bytes(value)), &meta))
		CHECK(record_meta_bytes(value) <= value.len);
	if (record_parse(value, &object))
		return;
	bytes = record_bytes(object);
	out = malloc(bytes);
	CHECK(out != NULL);
	record_put(object, out);
	CHECK(record_parse(slice_of(out, bytes), &again) == 0);
	CHECK(again->meta.bytes == object->meta.bytes && again->seq == object->seq);
	object_put(NULL, again);
	object_put(NULL, object);
	free(out);
}

static void segments(struct slice value)
{
	struct segment *segment;
	uint8_t *out;

	if (segment_record_parse(value, &segment))
		return;
	CHECK(segment_record_bytes(segment) == value.len);
	out = malloc(value.len);
	CHECK(out != NULL);
	segment_record_put(segment, out);
	CHECK(memcmp(out, value.data, value.len) == 0);
	segment_close(segment);
	free(out);
}

static void buckets(struct slice name, struct slice value)
{
	uint8_t out[BUCKET_RECORD_BYTES_MAX];
	struct store_bucket bucket, again;

	if (bucket_record_parse(name, value, &bucket))
		return;
	CHECK(strlen(bucket.owner) < sizeof(bucket.owner));
	CHECK(bucket_record_parse(name, slice_of(out, bucket_record_put(&bucket, out)), &again) ==
		0);
	CHECK(again.id == bucket.id && again.flags == bucket.flags);
}

static void small_rows(struct slice key, struct slice value)
{
	struct store_quota quota;
	struct slice id, text;
	uint64_t number;

	if (!quota_record_parse(key, value, &number, &quota))
		CHECK(key.len == QUOTA_KEY_BYTES && value.len == QUOTA_RECORD_BYTES);
	if (!outbox_row_parse(key, value, &number, &id, &text)) {
		within(id, value);
		within(text, value);
	}
	(void)record_body(key, value);
}

static void keys(struct slice text)
{
	static struct object_name name;
	struct key key;

	if (!key_version_parse(text, &name))
		CHECK(name.key_len <= LIMIT_KEY_LEN_MAX);
	if (text.len && text.len <= KEY_BYTES_MAX) {
		key.len = (uint32_t)text.len;
		memcpy(key.bytes, text.data, text.len);
		if (key_successor(&key))
			CHECK(slice_cmp(slice_of(key.bytes, key.len), text) > 0);
	}
}

static void groups(struct slice group)
{
	struct mutation mutation;
	size_t at = 0, last = 0;

	while (group_next(group, &at, &mutation) == 1) {
		CHECK(at > last && at <= group.len);
		last = at;
		within(mutation.key, group);
		within(mutation.value, group);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct slice rest, front;

	if (size < 2)
		return 0;
	rest = slice_of(data + 2, size - 2);
	front = slice_to(rest, MIN((size_t)data[1], rest.len));
	switch (data[0] % 6) {
	case 0:
		objects(rest);
		break;
	case 1:
		segments(rest);
		break;
	case 2:
		buckets(front, slice_from(rest, front.len));
		break;
	case 3:
		small_rows(front, slice_from(rest, front.len));
		break;
	case 4:
		keys(rest);
		break;
	default:
		groups(rest);
	}
	return 0;
}
