/* store/log/key.c: encodes and decodes keys of the index (docs/spec/disk.md). */
#include "store/log/key.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

static void key_start(struct key *key, char kind)
{
	key->bytes[0] = (uint8_t)kind;
	key->len = 1;
}

static void key_bytes(struct key *key, const void *data, size_t len)
{
	CHECK(key->len + len <= KEY_BYTES_MAX);
	if (len)
		memcpy(&key->bytes[key->len], data, len);
	key->len += (uint32_t)len;
}

static void key_u64(struct key *key, uint64_t value)
{
	uint64_t big = htobe64(value);

	key_bytes(key, &big, sizeof(big));
}

bool key_successor(struct key *key)
{
	while (key->len && key->bytes[key->len - 1] == 0xff)
		key->len--;
	if (!key->len)
		return false;
	key->bytes[key->len - 1]++;
	return true;
}

void key_state(struct key *key)
{
	key_start(key, 'A');
}

void key_bucket(struct key *key, struct slice name)
{
	key_start(key, 'B');
	key_bytes(key, name.data, name.len);
}

void key_quota(struct key *key, uint64_t bucket_id)
{
	key_start(key, 'Q');
	key_u64(key, bucket_id);
}

void key_object(struct key *key, uint64_t bucket_id, struct slice object_key)
{
	key_start(key, 'O');
	key_u64(key, bucket_id);
	key_bytes(key, object_key.data, object_key.len);
}

/* The part of a version row's key that all versions of an object share. */
void key_versions(struct key *key, uint64_t bucket_id, struct slice object_key)
{
	key_version_prefix(key, bucket_id, object_key);
	key_bytes(key, "\0", 2);
}

void key_version_prefix(struct key *key, uint64_t bucket_id, struct slice prefix)
{
	key_start(key, 'V');
	key_u64(key, bucket_id);
	while (prefix.len) {
		const char *zero = (const char *)memchr(prefix.data, 0, prefix.len);
		size_t plain = zero ? (size_t)(zero - prefix.data) : prefix.len;

		key_bytes(key, prefix.data, plain);
		if (zero)
			key_bytes(key, "\0\1", 2);
		prefix = slice_from(prefix, plain + (zero ? 1 : 0));
	}
}

void key_version(struct key *key, uint64_t bucket_id, struct slice object_key, uint64_t seq)
{
	key_versions(key, bucket_id, object_key);
	key_u64(key, ~seq);
}

int key_version_parse(struct slice index_key, struct object_name *ret_name)
{
	size_t at = 1 + sizeof(uint64_t);
	const char *bytes = index_key.data;
	uint64_t order;

	ret_name->key_len = 0;
	for (;;) {
		if (at + 2 > index_key.len)
			return -EUCLEAN;
		if (!bytes[at] && !bytes[at + 1])
			break;
		if ((!bytes[at] && bytes[at + 1] != 1) || ret_name->key_len == LIMIT_KEY_LEN_MAX)
			return -EUCLEAN;
		ret_name->key[ret_name->key_len++] = bytes[at];
		at += bytes[at] ? 1 : 2;
	}
	at += 2;
	if (!ret_name->key_len || index_key.len != at + sizeof(order))
		return -EUCLEAN;
	memcpy(&order, bytes + at, sizeof(order));
	ret_name->seq = ~be64toh(order);
	return 0;
}

void key_null(struct key *key, uint64_t bucket_id, struct slice object_key)
{
	key_start(key, 'N');
	key_u64(key, bucket_id);
	key_bytes(key, object_key.data, object_key.len);
}

void key_inline(struct key *key, uint64_t data_id)
{
	key_start(key, 'D');
	key_u64(key, data_id);
}

void key_segments(struct key *key, uint64_t data_id)
{
	key_start(key, 'S');
	key_u64(key, data_id);
}

void key_outbox(struct key *key, uint64_t number)
{
	key_start(key, 'M');
	key_u64(key, number);
}

bool key_is_object(struct slice key)
{
	return key.len && (key.data[0] == 'O' || key.data[0] == 'V' || key.data[0] == 'N');
}

bool key_is_used_once(struct slice key)
{
	return key.len && (key.data[0] == 'D' || key.data[0] == 'S' || key.data[0] == 'M');
}

void key_segment(struct key *key, uint64_t data_id, uint32_t segment_idx)
{
	uint32_t big = htobe32(segment_idx);

	key_segments(key, data_id);
	key_bytes(key, &big, sizeof(big));
}
