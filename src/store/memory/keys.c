/* store/memory/keys.c: the keys of a bucket in memory: sorted leaves for listing, a hash table for
 * everything else. */
#include "store/memory/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS_FIRST 64u
/* Two neighbours of together at most so many keys become one leaf. */
#define LEAF_KEYS_JOIN (LEAF_KEYS_MAX / 2)

/* ---- By hash. ---- */

/* With a seed of the bucket's own: no client can choose keys of one slot. */
static uint64_t hash_of(const struct keys *keys, struct slice name)
{
	return slice_hash(name, 0, keys->seed);
}

struct key *memory_key_find(const struct bucket *bucket, struct slice name)
{
	const struct keys *keys = &bucket->keys;
	uint64_t hash = hash_of(keys, name);
	struct key *key = keys->slot_count ? keys->slots[hash & (keys->slot_count - 1)] : NULL;

	while (key && !(key->hash == hash && slice_eq(memory_key_name(key), name)))
		key = key->chain;
	return key;
}

/* Without memory the table stays as it is, and is slower. */
static bool slots_grow(struct keys *keys)
{
	uint32_t count = MAX(keys->slot_count * 2, SLOTS_FIRST);
	struct key **slots;

	if (keys->count < keys->slot_count)
		return true;
	slots = (struct key **)calloc(count, sizeof(*slots));
	if (!slots)
		return keys->slot_count != 0;
	for (uint32_t i = 0; i < keys->slot_count; i++) {
		struct key *next;

		for (struct key *key = keys->slots[i]; key; key = next) {
			next = key->chain;
			key->chain = slots[key->hash & (count - 1)];
			slots[key->hash & (count - 1)] = key;
		}
	}
	free(keys->slots);
	keys->slots = slots;
	keys->slot_count = count;
	return true;
}

/* ---- In order. ---- */

/* Whether the key is before the place that is looked for. */
static bool is_before(const struct key *key, struct slice name, bool behind)
{
	struct slice own = memory_key_name(key);

	return slice_cmp(own, name) < 0 || (behind && slice_starts(own, name));
}

static struct key_place place_of(const struct bucket *bucket, struct slice name, bool behind)
{
	const struct keys *keys = &bucket->keys;
	uint32_t from = 0, to = keys->leaf_count;
	const struct leaf *leaf;
	uint32_t leaf_idx;

	/* The first leaf whose last key is not before it. */
	while (from < to) {
		uint32_t middle = from + (to - from) / 2;

		leaf = keys->leaves[middle];
		if (is_before(leaf->keys[leaf->count - 1], name, behind))
			from = middle + 1;
		else
			to = middle;
	}
	leaf_idx = from;
	if (leaf_idx == keys->leaf_count)
		return (struct key_place){.leaf = leaf_idx};
	leaf = keys->leaves[leaf_idx];
	from = 0;
	to = leaf->count;
	while (from < to) {
		uint32_t middle = from + (to - from) / 2;

		if (is_before(leaf->keys[middle], name, behind))
			from = middle + 1;
		else
			to = middle;
	}
	return (struct key_place){.leaf = leaf_idx, .at = from};
}

struct key_place memory_key_place(const struct bucket *bucket, struct slice name)
{
	return place_of(bucket, name, false);
}

struct key_place memory_key_behind(const struct bucket *bucket, struct slice prefix)
{
	return place_of(bucket, prefix, true);
}

struct key *memory_key_at(const struct bucket *bucket, struct key_place place)
{
	return place.leaf < bucket->keys.leaf_count
		       ? bucket->keys.leaves[place.leaf]->keys[place.at]
		       : NULL;
}

struct key_place memory_key_next(const struct bucket *bucket, struct key_place place)
{
	if (++place.at >= bucket->keys.leaves[place.leaf]->count)
		place = (struct key_place){.leaf = place.leaf + 1};
	return place;
}

/* Adds an empty leaf; -ENOMEM. */
static int leaf_add(struct keys *keys, uint32_t leaf_idx)
{
	struct leaf *leaf;

	if (memory_array_reserve((void **)&keys->leaves, keys->leaf_count, &keys->leaf_cap,
		    sizeof(*keys->leaves)))
		return -ENOMEM;
	leaf = (struct leaf *)malloc(sizeof(*leaf));
	if (!leaf)
		return -ENOMEM;
	leaf->count = 0;
	memmove(&keys->leaves[leaf_idx + 1], &keys->leaves[leaf_idx],
		(keys->leaf_count - leaf_idx) * sizeof(struct leaf *));
	keys->leaves[leaf_idx] = leaf;
	keys->leaf_count++;
	return 0;
}

static void leaf_remove(struct keys *keys, uint32_t leaf_idx)
{
	free(keys->leaves[leaf_idx]);
	keys->leaf_count--;
	memmove(&keys->leaves[leaf_idx], &keys->leaves[leaf_idx + 1],
		(keys->leaf_count - leaf_idx) * sizeof(struct leaf *));
}

/* Moves the keys from `at` on to the end of the other leaf. */
static void keys_move(struct leaf *from, uint32_t at, struct leaf *to)
{
	memcpy(&to->keys[to->count], &from->keys[at], (from->count - at) * sizeof(struct key *));
	to->count += from->count - at;
	from->count = at;
}

/* A place in a leaf with room, where the key belongs. -ENOMEM. */
static int place_make(struct keys *keys, struct key_place *place)
{
	struct leaf *leaf;
	int ret;

	/* Behind the last key: keys in order fill leaves. */
	if (place->leaf == keys->leaf_count) {
		if (place->leaf && keys->leaves[place->leaf - 1]->count < LEAF_KEYS_MAX) {
			place->leaf--;
			place->at = keys->leaves[place->leaf]->count;
			return 0;
		}
		return leaf_add(keys, place->leaf);
	}
	leaf = keys->leaves[place->leaf];
	if (leaf->count < LEAF_KEYS_MAX)
		return 0;
	ret = leaf_add(keys, place->leaf + 1);
	if (ret)
		return ret;
	keys_move(leaf, LEAF_KEYS_MAX / 2, keys->leaves[place->leaf + 1]);
	if (place->at > leaf->count) {
		place->at -= leaf->count;
		place->leaf++;
	}
	return 0;
}

struct key *memory_key_open(struct bucket *bucket, struct slice name)
{
	struct keys *keys = &bucket->keys;
	struct key_place place = memory_key_place(bucket, name);
	struct key *key;
	struct leaf *leaf;

	CHECK(name.len <= LIMIT_KEY_LEN_MAX);
	key = slots_grow(keys) ? (struct key *)calloc(1, sizeof(*key) + name.len) : NULL;
	if (!key || place_make(keys, &place)) {
		free(key);
		return NULL;
	}
	key->bucket = bucket;
	key->hash = hash_of(keys, name);
	key->len = (uint16_t)name.len;
	memcpy(key->name, name.data, name.len);
	leaf = keys->leaves[place.leaf];
	memmove(&leaf->keys[place.at + 1], &leaf->keys[place.at],
		(leaf->count - place.at) * sizeof(struct key *));
	leaf->keys[place.at] = key;
	leaf->count++;
	keys->count++;
	key->chain = keys->slots[key->hash & (keys->slot_count - 1)];
	keys->slots[key->hash & (keys->slot_count - 1)] = key;
	return key;
}

void memory_key_remove(struct key *key)
{
	struct keys *keys = &key->bucket->keys;
	struct key_place place = memory_key_place(key->bucket, memory_key_name(key));
	struct leaf *leaf = keys->leaves[place.leaf], *next;
	struct key **slot = &keys->slots[key->hash & (keys->slot_count - 1)];

	CHECK(leaf->keys[place.at] == key);
	leaf->count--;
	memmove(&leaf->keys[place.at], &leaf->keys[place.at + 1],
		(leaf->count - place.at) * sizeof(struct key *));
	next = place.leaf + 1 < keys->leaf_count ? keys->leaves[place.leaf + 1] : NULL;
	if (next && leaf->count + next->count <= LEAF_KEYS_JOIN) {
		keys_move(next, 0, leaf);
		leaf_remove(keys, place.leaf + 1);
	} else if (!leaf->count) {
		leaf_remove(keys, place.leaf);
	}
	while (*slot != key)
		slot = &(*slot)->chain;
	*slot = key->chain;
	keys->count--;
	free(key->versions);
	free(key);
}

void memory_keys_close(struct keys *keys)
{
	CHECK(!keys->count && !keys->leaf_count);
	free(keys->leaves);
	free(keys->slots);
}
