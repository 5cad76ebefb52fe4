/* tests/unit/s3/engine.h: helpers for the tests of a storage engine's contract: only through
 * store/api.h, on the engine that STORE_ENGINE names (fake.h). Each test starts with a store with
 * the bucket "b", which was never versioned. Small objects have 40 bytes; the seed determines an
 * object's bytes and is its ETag. */
#ifndef TESTS_ENGINE_H
#define TESTS_ENGINE_H

#include "fake.h"
#include "flow/flow.h"

extern struct store *store;

/* A test's set-up and teardown, which checks that nothing is left open. */
int open_store(void **state);
int close_store(void **state);

/* ---- Buckets. ---- */
int bucket_make(const char *name);
struct bucket_edit {
	uint8_t versioning, flags;
	int decision;
};
/* arg: struct bucket_edit. Changes the owner, too, which the engine must ignore. */
int bucket_change(struct store_bucket *bucket, void *arg);
/* Sets the versioning of "b". */
int versioning_set(uint8_t versioning);

/* ---- Objects. A NULL bucket means "b". ---- */
/* To be freed. */
uint8_t *body_of(uint64_t bytes, uint64_t seed);
struct object_put {
	const char *bucket; /* NULL: "b" */
	const char *key;
	uint64_t bytes, seed;
	bool length_unknown, composable;
	struct slice headers;
	store_check_fn *check;
	void *arg;
	struct store_outbox_row *outbox_row;
	struct store_meta meta; /* out */
};
/* The result of the commit, or of the open. */
int put_object(struct object_put *what);
void put_small(const char *key, uint64_t seed);
int put_open(const char *bucket, struct slice key, uint64_t bytes, struct store_put **ret);
/* Moves the bytes through the put's sink, which expects bytes_total. */
int bytes_move(struct store_put *put, const uint8_t *body, uint64_t bytes, uint64_t bytes_total);
int get_open(const char *bucket, const char *key, struct store_get **ret_get);
struct store_get *get_of(const char *key);
/* Checks that the range's bytes are those of the body. */
void assert_range(struct store_get *get, const uint8_t *body, uint64_t offset, uint64_t bytes);
void assert_body(struct store_get *get, uint64_t bytes, uint64_t seed);
void assert_holds(const char *key, uint64_t bytes, uint64_t seed);
/* Checks that the bucket exists and the key does not. */
void assert_gone(const char *bucket, const char *key);
int key_delete(const char *key);

/* A check that records its argument, and decides. */
struct sight {
	int decision;
	uint32_t calls;
	bool something;
	struct store_meta meta;
};
/* arg: struct sight. */
int see(const struct store_meta *current, void *arg);

#endif
