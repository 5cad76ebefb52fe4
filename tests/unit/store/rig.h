/* tests/unit/store/rig.h: a store in a directory of its own, on one or two reactors, and the code
 * of a caller that moves bytes. */
#ifndef TESTS_STORE_RIG_H
#define TESTS_STORE_RIG_H

#include "../unit.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/base.h"
#include "codec/codec.h"
#include "disk/disk.h"
#include "reactor/reactor.h"
#include "region/region.h"
#include "store/local.h"

#define RIG_CORES_MAX 2u

struct rig {
	char dir[512];
	struct region *region;
	struct store *store;
	struct reactor *reactors[RIG_CORES_MAX];
	struct reactor_poller pollers[RIG_CORES_MAX];
	pthread_t threads[RIG_CORES_MAX];
	uint32_t core_count;
	struct store_opts opts;
	uint32_t fibers_left;
	int open_result;
};

/* A fresh directory under $TMPDIR or the working directory. */
void rig_dir_make(struct rig *rig);
void rig_dir_remove(struct rig *rig);
/* Small log and steps, unless the test wants others; the caller may change rig->opts after. */
void rig_init(struct rig *rig, uint32_t core_count);

/* Opens the store, runs fn(arg) on a fiber of each core (fn may spawn more), then quiesces and
 * closes. Checks that no frame is left behind. */
typedef void rig_fn(struct rig *rig, void *arg);
void rig_run(struct rig *rig, rig_fn *fn, void *arg);
/* Runs count fibers of fn(rig, arg of each) on the calling core and waits for all. */
void rig_fibers(struct rig *rig, uint32_t count, rig_fn *fn, void *args, size_t arg_bytes);

struct store_usage rig_usage(struct rig *rig);
/* After it the index has all commits to bucket "b", and the space of dead objects is free. */
void rig_index_wait(struct rig *rig);
/* Starts the array monitor, which ends when the store quiesces. */
void rig_monitor_start(struct rig *rig);
/* Checks that neither objects nor bytes are left. A rig_fn. */
void rig_empty(struct rig *rig, void *arg);
/* Checks that fsck finds no fault in the closed store. */
void rig_fsck(const struct rig *rig);
/* A whole test: a store of its own on one core, fn, fsck, and then last, if not NULL. */
void rig_once(rig_fn *fn, rig_fn *last);
/* The same with a log of this length, without last. */
void rig_once_with_log(uint64_t log_bytes, rig_fn *fn);

/* The body of an object, made from its seed: the same for put and verify. */
void body_fill(uint8_t *body, size_t bytes, uint64_t seed);

int bucket_make(struct store *store, const char *name);
int versioning_set(struct rig *rig, const char *bucket, uint8_t versioning);
/* Puts a body made from its seed, like flow: small ones in frames, large ones in runs. */
struct put_how {
	store_check_fn *check;
	void *arg;
	struct slice headers;
	bool length_unknown; /* when the put is opened */
	bool composable;
	struct store_outbox_row *outbox_row;
};
int object_put_seeded(struct rig *rig, const char *bucket, struct slice key, uint64_t bytes,
	uint64_t seed, const struct put_how *how);
/* Moves a body into an open put. */
int put_body(struct rig *rig, struct store_put *put, const uint8_t *body, uint64_t bytes);
/* Puts the same body in parts (in the bucket "parts"), of which the object is then composed. */
int object_join_seeded(struct rig *rig, const char *bucket, struct slice key, uint64_t bytes,
	uint64_t seed, uint32_t part_count);
/* Puts the first piece of the same body under another key, appends the others, and renames the
 * object. */
int object_grow_seeded(struct rig *rig, const char *bucket, struct slice key, uint64_t bytes,
	uint64_t seed, uint32_t piece_count);
/* Appends one body to the key's object. */
int object_append(
	struct rig *rig, const char *bucket, struct slice key, const uint8_t *body, uint64_t bytes);
/* Reads the object and compares: 0, -ENOENT, -EIO (also from verify), -EBADMSG when bytes differ.
 */
int object_verify_seeded(
	struct rig *rig, const char *bucket, struct slice key, uint64_t bytes, uint64_t seed);
/* The same for an open object. */
int get_verify_seeded(struct rig *rig, struct store_get *get, uint64_t seed);
/* Reads the whole object into out; *ret_bytes its length. */
int object_read(struct rig *rig, const char *bucket, struct slice key, uint8_t *out,
	uint64_t out_bytes, uint64_t *ret_bytes);
/* The place of the open body's byte on the volume. -errno of local_get_chunk. */
int rig_place(struct store_get *get, uint64_t offset, uint64_t *ret_volume_offset);
/* A store_run_fn that moves nothing. */
struct store_run;
void rig_no_run(void *arg, const struct store_run *run, uint32_t at);

#endif
