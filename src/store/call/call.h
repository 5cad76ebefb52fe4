/* store/call/call.h: the local engine's calls, from which store.c builds its table, and the calls
 * by which the engine's ends find the place of a body's bytes. store/api.h has the contracts that
 * are not here. */
#ifndef STORE_CALL_H
#define STORE_CALL_H

#include "store/engine.h"
#include "store/object/cache.h"

uint64_t local_bucket_id_reserve(struct store *store);
/* memory: the objects of a memory bucket, taken over on success; otherwise NULL. */
int local_bucket_create(
	struct store *store, const struct store_bucket *bucket, struct store *memory);
int local_bucket_get(struct store *store, struct slice name, struct store_bucket *ret_bucket);
int local_bucket_delete(struct store *store, struct slice name, uint64_t id);
int local_bucket_edit(
	struct store *store, struct slice name, store_bucket_edit_fn *edit, void *arg);
int local_bucket_list(
	struct store *store, struct slice after, store_bucket_visit_fn *visit, void *arg);

int local_put_open(
	struct store *store, const struct store_put_opts *opts, struct store_put **ret_put);
int local_put_tagged(struct store_put *put, uint64_t offset, const uint8_t tag[STORE_TAG_BYTES]);
int local_put_compose(struct store_put *put, struct slice bucket, struct slice key,
	const struct store_get *get, bool drop);
int local_put_append(struct store_put *put, const struct store_get *get);
int local_put_commit(
	struct store_put *put, struct store_meta *meta, store_check_fn *check, void *arg);
void local_put_abort(struct store_put *put);

int local_edit(struct store *store, const struct store_name *name, store_edit_fn *edit, void *arg,
	struct store_outbox_row *outbox_row);
int local_set_flags(struct store *store, const struct store_name *name, struct store_flags flags,
	struct store_condition condition, struct store_outbox_row *outbox_row);

int local_get_open(struct store *store, const struct store_name *name, struct store_get **ret_get,
	bool *ret_bucket_exists);
bool local_get_held(struct store_get *get, struct slice *ret_body, struct region_span *ret_span);
void local_get_stretch(
	const struct store_get *get, uint64_t offset, struct store_stretch *ret_stretch);
int local_get_tag(struct store_get *get, uint64_t offset, uint8_t ret_tag[STORE_TAG_BYTES]);
void local_get_close(struct store_get *get);

int local_delete_each(struct store *store, struct slice bucket, uint64_t bucket_id,
	struct store_deletion *list, uint32_t count);
int local_list(struct store *store, const struct store_list_opts *opts, bool versions,
	store_list_visit_fn *visit, void *arg, bool *ret_more);

/* ---- memory.c: the calls for which a bucket's kind makes a difference: those of a memory bucket
 * go to its own store, the others to the calls above. Opening puts and gets looks by itself. ----
 */
int either_bucket_create(struct store *store, const struct store_bucket *bucket);
int either_bucket_usage(struct store *store, struct slice name, struct store_quota *ret_used);
int either_bucket_room(struct store *store, struct slice name, struct slice key, uint64_t bytes);
int either_rename(struct store *store, const struct store_name *from, const struct store_get *get,
	struct slice to, struct slice headers, struct store_condition condition);
int either_edit(struct store *store, const struct store_name *name, store_edit_fn *edit, void *arg,
	struct store_outbox_row *outbox_row);
int either_set_flags(struct store *store, const struct store_name *name, struct store_flags flags,
	struct store_condition condition, struct store_outbox_row *outbox_row);
int either_newest(
	struct store *store, struct slice bucket, struct slice key, struct store_meta *ret_meta);
void either_rights_changed(struct store *store);
int either_delete_each(struct store *store, struct slice bucket, uint64_t bucket_id,
	struct store_deletion *list, uint32_t count);
int either_list(struct store *store, const struct store_list_opts *opts, bool versions,
	store_list_visit_fn *visit, void *arg, bool *ret_more);
void either_usage(struct store *store, struct store_usage *ret_usage);
/* At a start, once the region is there: opens the memory buckets, empty. */
int memory_buckets_start(struct store *store);

/* ---- A chunk of a body: one call for a put, two for a get that reads the volume. ---- */
/* A contiguous part of a chunk on the volume. */
struct store_run {
	uint16_t target; /* of the base ring */
	uint64_t volume_offset;
	uint32_t bytes; /* a multiple of the disk's alignment, but for the object's end */
};
/* Starts the transfer of a run that begins `at` bytes into the chunk. */
typedef void store_run_fn(void *arg, const struct store_run *run, uint32_t at);

/* Takes the body's next bytes: notes their checksums, finds their place and calls start for each
 * run of it, in order. The bytes lie in one chunk and begin where the call before ended; all but
 * the body's last are a multiple of STORE_CHECK_BYTES. -ENOSPC. After an error the put can only be
 * aborted, once the transfers that were started have ended. */
int local_put_chunk(
	struct store_put *put, uint64_t offset, struct slice bytes, store_run_fn *start, void *arg);
/* Small bodies (≤ STORE_GROUPED_BYTES_MAX): takes over the frames (owner OWNER_APP), which the
 * commit writes. A put uses either this call or space, never both. */
void local_put_frames_take(struct store_put *put, struct region_span span, uint32_t bytes);
/* Offers a span that was just written to the read cache. Takes it over (owner OWNER_DISK) in any
 * case. */
void local_put_cache_take(
	struct store_put *put, uint64_t offset, struct region_span span, uint32_t bytes);

/* The body when it lives in the record; false when it has extents. */
bool local_get_inline(const struct store_get *get, struct slice *ret_body);
/* The cached chunk that holds the offset: true, with a reference that the caller drops by
 * region_put(…, OWNER_CACHE). The span holds the whole chunk from its start. False: not cached. */
bool local_get_cached(struct store_get *get, uint64_t offset, struct region_span *ret_span);
/* Finds the place of bytes of one stretch and calls start for each run of it, in order. -ERANGE:
 * not in one stretch. -EIO: the segment has no such place. */
int local_get_chunk(
	struct store_get *get, uint64_t offset, uint32_t bytes, store_run_fn *start, void *arg);
/* Verifies bytes of one stretch that were read into the span, which the caller holds as OWNER_APP.
 * The offset is a multiple of STORE_CHECK_BYTES in the stretch, and the span holds the last piece
 * as a whole. 0 or -EIO (logged and counted). A store over several volumes reads a damaged piece
 * from the other volumes into the span and repairs the medium, so the call may wait.
 * The call offers a whole chunk to the cache. *ret_cached: the cache took it; its owner is then
 * OWNER_CACHE, the reference count 2, and one reference is the caller's. */
int local_get_arrived(struct store_get *get, uint64_t offset, uint32_t bytes,
	struct region_span span, bool *ret_cached);
/* Joins the readers of the chunk that holds the offset: fills in its name, and begins the flight
 * (store/object/cache.h). -ENOENT: the store has no cache, and each reader reads for itself. */
int local_get_flight(struct store_get *get, uint64_t offset, struct cache_flight *flight,
	enum cache_flight_role *ret_role);
/* Ends the flight of the one that reads. */
void local_get_landed(struct store_get *get, struct cache_flight *flight, struct region_span span);

#endif
