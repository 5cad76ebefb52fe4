/* store/log/key.h: keys of the index. */
#ifndef STORE_KEY_H
#define STORE_KEY_H

#include "store/api.h"

#include <stdbool.h>

#define SEGMENT_KEY_BYTES 13u
#define QUOTA_KEY_BYTES	  9u
#define KEY_BYTES_MAX	  (1u + 8u + 2u * LIMIT_KEY_LEN_MAX + 2u + 8u) /* a version's, escaped */
struct key {
	uint32_t len;
	uint8_t bytes[KEY_BYTES_MAX + 7];
};
/* The smallest key above all keys with this prefix; false: there is none. */
bool key_successor(struct key *key);
void key_state(struct key *key);
void key_bucket(struct key *key, struct slice name);
void key_quota(struct key *key, uint64_t bucket_id);
void key_object(struct key *key, uint64_t bucket_id, struct slice object_key);
void key_version(struct key *key, uint64_t bucket_id, struct slice object_key, uint64_t seq);
/* The prefix of all versions of one object, and that of all objects with a prefix. */
void key_versions(struct key *key, uint64_t bucket_id, struct slice object_key);
void key_version_prefix(struct key *key, uint64_t bucket_id, struct slice prefix);
struct object_name {
	uint32_t key_len;
	char key[LIMIT_KEY_LEN_MAX];
	uint64_t seq;
};
/* -EUCLEAN: not a version's key. */
int key_version_parse(struct slice index_key, struct object_name *ret_name);
void key_null(struct key *key, uint64_t bucket_id, struct slice object_key);
void key_inline(struct key *key, uint64_t data_id);
void key_segment(struct key *key, uint64_t data_id, uint32_t segment_idx);
/* The prefix of all of an object's segments. */
void key_segments(struct key *key, uint64_t data_id);
void key_outbox(struct key *key, uint64_t number);
/* Whether a row holds an object's record: of a current version, a noncurrent version, a null
 * version. */
bool key_is_object(struct slice key);
/* Whether a row of this kind is put once and deleted once: of a body (inline, a segment), an outbox
 * row. */
bool key_is_used_once(struct slice key);

#endif
