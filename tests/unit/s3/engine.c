/* tests/unit/s3/engine.c: helpers of the tests of the engines' contract, through store/api.h. */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

struct store *store;

/* ---- Common steps. ---- */

int bucket_make(const char *name)
{
	struct store_bucket bucket = {.owner = "root", .region = "us-east-1"};

	snprintf(bucket.name, sizeof(bucket.name), "%s", name);
	return store_bucket_create(store, &bucket);
}

int open_store(void **state)
{
	(void)state;
	store = fake_store_open();
	return bucket_make("b");
}

int close_store(void **state)
{
	(void)state;
	fake_store_close(store);
	return fake_open_gets || fake_open_puts;
}

uint8_t *body_of(uint64_t bytes, uint64_t seed)
{
	uint8_t *body = (uint8_t *)malloc(bytes + 1);
	struct prng prng;

	prng_seed(&prng, seed);
	prng_fill(&prng, body, bytes);
	return body;
}

static struct slice bucket_of(const char *bucket)
{
	return slice_str(bucket ? bucket : "b");
}

/* Moves the bytes and returns the sink's error. */
int bytes_move(struct store_put *put, const uint8_t *body, uint64_t bytes, uint64_t bytes_total)
{
	struct flow_source *source;
	struct flow_sink *sink;
	uint64_t moved;

	assert_int_equal(flow_memory_source_open(&fake_core, slice_of(body, bytes), &source), 0);
	assert_int_equal(store_put_sink(put, &fake_core, bytes_total, &sink), 0);
	return flow_run(source, NULL, 0, sink, &moved);
}

static void meta_fill(struct object_put *what)
{
	what->meta = (struct store_meta){.bytes = what->bytes,
		.crc64 = what->seed,
		.headers = what->headers.data,
		.headers_len = (uint32_t)what->headers.len};
	snprintf(what->meta.etag, sizeof(what->meta.etag), "%llx", (unsigned long long)what->seed);
}

int put_object(struct object_put *what)
{
	const struct store_put_opts opts = {.bucket = bucket_of(what->bucket),
		.key = slice_str(what->key),
		.bytes = what->length_unknown ? UINT64_MAX : what->bytes,
		.composable = what->composable};
	uint8_t *body = body_of(what->bytes, what->seed);
	struct store_put *put;
	int ret = store_put_open(store, &opts, &put);

	if (!ret) {
		ret = bytes_move(put, body, what->bytes, opts.bytes);
		if (ret)
			store_put_abort(put);
	}
	if (!ret) {
		meta_fill(what);
		store_put_outbox_row(put, what->outbox_row);
		ret = store_put_commit(put, &what->meta, what->check, what->arg);
	}
	free(body);
	return ret;
}

/* A small object with a body of its own. */
void put_small(const char *key, uint64_t seed)
{
	struct object_put what = {.key = key, .bytes = 40, .seed = seed};

	assert_int_equal(put_object(&what), 0);
}

int get_open(const char *bucket, const char *key, struct store_get **ret_get)
{
	bool exists;

	return store_get_open(store, bucket_of(bucket), slice_str(key), ret_get, &exists);
}

struct store_get *get_of(const char *key)
{
	struct store_get *get = NULL;

	assert_int_equal(get_open(NULL, key, &get), 0);
	return get;
}

/* A stage that keeps the bytes that pass. */
struct keeper {
	struct flow_stage stage;
	uint8_t *bytes;
	uint64_t count;
};

static int keep(struct flow_stage *stage, const struct flow_piece *piece)
{
	struct keeper *keeper = CONTAINER_OF(stage, struct keeper, stage);

	memcpy(keeper->bytes + keeper->count, piece->data, piece->bytes);
	keeper->count += piece->bytes;
	return 0;
}

/* The range's bytes are those of the body. */
void assert_range(struct store_get *get, const uint8_t *body, uint64_t offset, uint64_t bytes)
{
	static const struct flow_stage_ops KEEP_OPS = {.name = "keep", .piece = keep};
	struct keeper keeper = {.stage.ops = &KEEP_OPS, .bytes = (uint8_t *)malloc(bytes + 1)};
	struct flow_stage *const stages[] = {&keeper.stage};
	struct flow_source *source;
	struct flow_sink *sink;
	uint64_t moved;

	assert_int_equal(store_get_source(get, &fake_core, offset, bytes, &source), 0);
	assert_int_equal(flow_null_sink_open(&fake_core, &sink), 0);
	assert_int_equal(flow_run(source, stages, 1, sink, &moved), 0);
	assert_int_equal(moved, bytes);
	assert_int_equal(keeper.count, bytes);
	assert_memory_equal(keeper.bytes, body + offset, bytes);
	free(keeper.bytes);
}

void assert_body(struct store_get *get, uint64_t bytes, uint64_t seed)
{
	uint8_t *body = body_of(bytes, seed);

	assert_int_equal(store_get_meta(get)->bytes, bytes);
	assert_range(get, body, 0, bytes);
	free(body);
}

void assert_holds(const char *key, uint64_t bytes, uint64_t seed)
{
	struct store_get *get = get_of(key);

	assert_body(get, bytes, seed);
	store_get_close(get);
}

void assert_gone(const char *bucket, const char *key)
{
	struct store_get *get;
	bool exists = false;

	assert_int_equal(
		store_get_open(store, bucket_of(bucket), slice_str(key), &get, &exists), -ENOENT);
	assert_true(exists);
}

int key_delete(const char *key)
{
	return store_delete(store, SLICE("b"), slice_str(key), NULL, NULL);
}

int see(const struct store_meta *current, void *arg)
{
	struct sight *sight = (struct sight *)arg;

	sight->calls++;
	sight->something = current != NULL;
	if (current)
		sight->meta = *current;
	return sight->decision;
}

int bucket_change(struct store_bucket *bucket, void *arg)
{
	const struct bucket_edit *edit = (const struct bucket_edit *)arg;

	bucket->versioning = edit->versioning;
	bucket->flags = edit->flags;
	bucket->owner[0] = 'X'; /* must be ignored */
	return edit->decision;
}

int versioning_set(uint8_t versioning)
{
	struct bucket_edit edit = {.versioning = versioning};

	return store_bucket_edit(store, SLICE("b"), bucket_change, &edit);
}

int put_open(const char *bucket, struct slice key, uint64_t bytes, struct store_put **ret)
{
	const struct store_put_opts opts = {
		.bucket = slice_str(bucket), .key = key, .bytes = bytes};

	return store_put_open(store, &opts, ret);
}
