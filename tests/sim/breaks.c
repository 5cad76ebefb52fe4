/* tests/sim/breaks.c: servers that are broken on purpose, to check that the world finds the faults:
 * each omits one step now and then. */
#include "world.h"

#include <stdio.h>
#include <string.h>

#include "remote/remote_priv.h"
#include "store/store_priv.h"

#define FLUSH_ONE_OF	  8u
#define REVOCATION_ONE_OF 1u
#define REFERENCE_ONE_OF  20u
#define CHECKPOINT_ONE_OF 2u
#define VERSION_ONE_OF	  4u
#define DROP_ONE_OF	  2u
#define VERIFY_ONE_OF	  2u
#define CONDITION_ONE_OF  2u
#define LOST_ONE_OF	  1u
#define MEMORY_ONE_OF	  2u
#define DRAIN_ONE_OF	  1u
#define LIST_ONE_OF	  4u

const struct world_break WORLD_BREAKS[] = {
	{"flush", "a flush of the volume that is none"},
	{"revocation", "a lease of an object that outlives it"},
	{"reference", "an object's record that is given back once too often"},
	{"checkpoint", "a checkpoint that does not wait for the index"},
	{"version", "a version that is not kept"},
	{"drop", "an upload that outlives its completion"},
	{"verify", "a checksum that nobody looks at"},
	{"condition", "a write's condition that nobody looks at"},
	{"memory", "a put into a memory bucket that is not kept"},
	{"drain", "a change of the set of volumes that ends with bodies on the former one"},
	{"list", "changes that the rows for lists do not get"},
	{"lost", "a connection to a volume that broke, and all that was under way is done"},
};
const size_t WORLD_BREAK_COUNT = ARRAY_LEN(WORLD_BREAKS);

static const char *broken = "";

int world_break_set(const char *name)
{
	for (size_t i = 0; i < WORLD_BREAK_COUNT; i++)
		if (!strcmp(WORLD_BREAKS[i].name, name)) {
			broken = WORLD_BREAKS[i].name;
			return 0;
		}
	return -1;
}

static bool breaks(const char *name, uint32_t one_of)
{
	return !strcmp(broken, name) && world_chance(one_of);
}

bool world_flush_is_none(void)
{
	return breaks("flush", FLUSH_ONE_OF);
}

bool world_checkpoint_is_early(void)
{
	return breaks("checkpoint", CHECKPOINT_ONE_OF);
}

bool world_row_is_lost(struct slice key)
{
	return key.len && key.data[0] == 'V' && breaks("version", VERSION_ONE_OF);
}

int __real_store_put_drop(
	struct store_put *put, struct slice bucket, struct slice key, const struct store_get *get);
int __wrap_store_put_drop(
	struct store_put *put, struct slice bucket, struct slice key, const struct store_get *get)
{
	if (breaks("drop", DROP_ONE_OF))
		return 0;
	return __real_store_put_drop(put, bucket, key, get);
}

int __real_local_get_arrived(struct store_get *get, uint64_t offset, uint32_t bytes,
	struct region_span span, bool *ret_cached);
int __wrap_local_get_arrived(struct store_get *get, uint64_t offset, uint32_t bytes,
	struct region_span span, bool *ret_cached)
{
	*ret_cached = false;
	return breaks("verify", VERIFY_ONE_OF)
		       ? 0
		       : __real_local_get_arrived(get, offset, bytes, span, ret_cached);
}

int __real_s3_write_condition_check(const struct store_meta *current, void *arg);
int __wrap_s3_write_condition_check(const struct store_meta *current, void *arg)
{
	return breaks("condition", CONDITION_ONE_OF)
		       ? 0
		       : __real_s3_write_condition_check(current, arg);
}

void __real_object_supersede_watched(struct store *store, struct object *object);
void __wrap_object_supersede_watched(struct store *store, struct object *object)
{
	if (!breaks("revocation", REVOCATION_ONE_OF))
		__real_object_supersede_watched(store, object);
}

void __real_object_put(struct store *store, struct object *object);
void __wrap_object_put(struct store *store, struct object *object)
{
	if (object && breaks("reference", REFERENCE_ONE_OF))
		__real_object_put(store, object);
	__real_object_put(store, object);
}

void memory_put_abort(struct store_put *put);
int __real_memory_put_commit(
	struct store_put *put, struct store_meta *meta, store_check_fn *check, void *arg);
int __wrap_memory_put_commit(
	struct store_put *put, struct store_meta *meta, store_check_fn *check, void *arg)
{
	if (!breaks("memory", MEMORY_ONE_OF))
		return __real_memory_put_commit(put, meta, check, arg);
	memcpy(meta->version_id, "null", sizeof("null"));
	memory_put_abort(put);
	return 0;
}

void __real_list_table_change(
	struct list_table *table, const struct mutation *const *rows, uint32_t count);
void __wrap_list_table_change(
	struct list_table *table, const struct mutation *const *rows, uint32_t count)
{
	if (!breaks("list", LIST_ONE_OF))
		__real_list_table_change(table, rows, count);
}

void __real_remote_volume_lost(struct remote_lane *lane, bool was_open);
void __wrap_remote_volume_lost(struct remote_lane *lane, bool was_open)
{
	bool gone = atomic_load(&lane->volume->gone);

	__real_remote_volume_lost(lane, was_open);
	if (breaks("lost", LOST_ONE_OF))
		atomic_store(&lane->volume->gone, gone);
}

uint64_t __real_space_geometry_blocks(struct space *space, uint32_t slot);
uint64_t __wrap_space_geometry_blocks(struct space *space, uint32_t slot)
{
	uint64_t blocks = __real_space_geometry_blocks(space, slot);

	return blocks && breaks("drain", DRAIN_ONE_OF) ? 0 : blocks;
}

void __real_disk_io_end(struct disk_io *io, int32_t result);
void __wrap_disk_io_end(struct disk_io *io, int32_t result)
{
	__real_disk_io_end(io, result == -ENOTCONN && breaks("lost", LOST_ONE_OF) ? 0 : result);
}
