/* store/backup/restore.c: makes a store from a backup's rows and bodies: new space for each body on
 * the volumes of the new store, whatever these are, and rows that name it. Until the end the index
 * is marked, so that nothing but a restore opens it. */
#include "base/file.h"
#include "codec/crc.h"
#include "store/backup.h"
#include "store/check/check.h"
#include "store/index/index.h"
#include "store/log/journal.h"
#include "store/log/key.h"
#include "store/object/object.h"
#include "store/object/record.h"
#include "store/space/space.h"
#include "store/state/state.h"
#include "store/volume/volume.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Rows are written together, and made durable after so many bytes of bodies: a restore that was
 * killed repeats no more than that. */
#define BATCH_BYTES   (4 * MIB)
#define DURABLE_BYTES (256 * MIB)
#define NAME_FILE     "restore"
#define NAME_BYTES    256u
/* Numbers of bodies are nonces of encryption, and the store that was copied may go on: the restored
 * one counts from elsewhere. */
#define DATA_IDS_APART (UINT64_C(1) << 40)
/* Of groups, buckets and bodies: no store gets there, so the numbers are forged. */
#define NUMBER_MAX (UINT64_C(1) << 60)

struct store_restore {
	struct store *store;
	struct state_record state;
	struct group *group; /* rows that are not in the index yet */
	uint8_t *chunk;	     /* STORE_CHUNK_BYTES */
	uint64_t bytes;	     /* of bodies since the index was flushed */
	bool goes_on;	     /* with what an earlier one has left */
};

/* ---- The folder. ---- */

static void path_of(const char *dir, const char *name, char out[4096])
{
	snprintf(out, 4096, "%s/%s", dir, name);
}

/* Which backup an interrupted restore came from; "": none. */
static void name_read(const char *dir, char out[NAME_BYTES])
{
	char path[4096];

	path_of(dir, NAME_FILE, path);
	file_line(path, out, NAME_BYTES);
}

static int name_write(const char *dir, const char *name)
{
	char path[4096];
	size_t len = strlen(name);
	int fd, ret = 0;

	path_of(dir, NAME_FILE, path);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	if (write(fd, name, len) != (ssize_t)len || write(fd, "\n", 1) != 1 || fsync(fd))
		ret = errno ? -errno : -EIO;
	close(fd);
	return ret ? ret : file_dir_sync(dir);
}

/* Destroys what the folder knows about its store; a volume is then formatted. */
static int store_forget(const char *dir)
{
	static const char *const FILES[] = {"space", NAME_FILE, "volume", "volumes"};
	char path[4096];
	struct stat info;
	int ret;

	path_of(dir, "index", path);
	ret = file_dir_remove(path);
	for (size_t i = 0; i < ARRAY_LEN(FILES) && !ret; i++) {
		path_of(dir, FILES[i], path);
		if (lstat(path, &info) == 0 && unlink(path))
			ret = -errno;
	}
	return ret;
}

static int dir_make(const char *dir)
{
	int ret = mkdir(dir, 0700) && errno != EEXIST ? -errno : 0;

	if (ret)
		log_error("store", "%s cannot be made: %s", dir, strerror(-ret));
	return ret;
}

/* Whether this restore may use the folder, which names the copy of an interrupted one: -EEXIST:
 * there is another store. */
static int target_check(const struct store_restore_opts *opts, const char *name)
{
	const char *dir = opts->store->dir;
	char path[4096];

	path_of(dir, "index/CURRENT", path);
	if (access(path, F_OK) && errno == ENOENT)
		return 0;
	if (strcmp(name, opts->name) == 0)
		return 0;
	if (opts->overwrite)
		return 0;
	if (name[0])
		log_error("store",
			"%s: a restore of another backup (%s) has not ended: restore that one, or "
			"destroy what is there with --overwrite",
			dir, name);
	else
		log_error("store",
			"%s: there is a store already: name an empty folder, or destroy it with "
			"--overwrite",
			dir);
	return -EEXIST;
}

/* Makes the folder ready to be loaded from. The store has its lock: nothing changes under a server.
 */
static int target_begin(struct store_restore *restore, const struct store_restore_opts *opts)
{
	const char *dir = opts->store->dir;
	char name[NAME_BYTES];
	int ret;

	name_read(dir, name);
	restore->goes_on = strcmp(name, opts->name) == 0;
	ret = target_check(opts, name);
	if (!ret && opts->overwrite && !restore->goes_on)
		ret = store_forget(dir);
	return ret ? ret : name_write(dir, opts->name);
}

/* ---- Opening. ---- */

/* The store's first state: that of the backup, marked as partial. */
static int state_begin(struct store_restore *restore, const struct store_backup_head *head)
{
	struct store *store = restore->store;
	struct superblock *super = &store->volume.super;
	int ret;

	restore->state = (struct state_record){
		.version = INDEX_VERSION,
		.features = INDEX_FEATURES | INDEX_FEATURE_PARTIAL,
		.applied_seq = head->seq,
		.data_id_next = head->data_id_next + DATA_IDS_APART,
		.bucket_id_next = head->bucket_id_next,
	};
	memcpy(restore->state.uuid, super->uuid, sizeof(restore->state.uuid));
	ret = index_state_write(store->index, &restore->state);
	if (!ret)
		ret = index_flush(store->index);
	if (!ret) {
		super->tail_seq = head->seq + 1;
		ret = volume_super_write(&store->volume);
	}
	return ret;
}

/* Goes on with what an earlier restore left. A volume may be missing that was there then. */
static int state_resume(struct store_restore *restore)
{
	int ret = recover_scan(restore->store);

	return ret ? ret : volume_super_write(&restore->store->volume);
}

static bool any_row(struct slice key, struct slice value, void *arg)
{
	(void)value;
	*(bool *)arg |= key.len && key.data[0] != 'A';
	return !*(bool *)arg;
}

static int load(struct store_restore *restore, const struct store_restore_opts *opts)
{
	struct store_opts store_opts = *opts->store;
	struct store *store;
	bool rows = false;
	int ret;

	store_opts.protect = STORE_PROTECT_AS_IS;
	store_opts.restoring = true;
	store_opts.format |= opts->overwrite;
	store_opts.overwrite = opts->overwrite;
	store = restore->store = store_alloc(&store_opts);
	if (!store)
		return -ENOMEM;
	ret = slice_copy_str(slice_str(store_opts.dir), store->dir, sizeof(store->dir));
	if (!ret)
		ret = dir_make(store->dir);
	if (!ret)
		ret = store_lock(store);
	if (!ret)
		ret = target_begin(restore, opts);
	if (!ret)
		ret = store_load(store, true);
	if (!ret)
		ret = index_state_read(store->index, &restore->state);
	if (ret || (restore->state.features & INDEX_FEATURE_PARTIAL))
		return ret ? ret : state_resume(restore);
	ret = index_visit(store->index, SLICE_NONE, any_row, &rows);
	/* The earlier one was complete but for its last step. */
	if (!ret && rows && restore->goes_on)
		return state_resume(restore);
	if (!ret && rows) {
		log_error("store", "%s: the volume holds a store already", store->dir);
		ret = -EEXIST;
	}
	return ret ? ret : state_begin(restore, opts->head);
}

int store_restore_open(const struct store_restore_opts *opts, struct store_restore **ret_restore)
{
	struct store_restore *restore = (struct store_restore *)calloc(1, sizeof(*restore));
	void *chunk = NULL;
	int ret;

	if (!restore || posix_memalign(&chunk, BLOCK_BYTES, STORE_CHUNK_BYTES)) {
		free(restore);
		return -ENOMEM;
	}
	restore->chunk = (uint8_t *)chunk;
	ret = group_open(&restore->group);
	if (!ret && MAX(opts->head->seq, MAX(opts->head->data_id_next,
						 opts->head->bucket_id_next)) >= NUMBER_MAX) {
		log_error("store", "the backup's numbers are no store's: it is damaged");
		ret = -EUCLEAN;
	}
	if (!ret)
		ret = load(restore, opts);
	if (ret)
		store_restore_close(restore);
	else
		*ret_restore = restore;
	return ret;
}

void store_restore_close(struct store_restore *restore)
{
	if (!restore)
		return;
	if (restore->store)
		store_unload(restore->store);
	group_close(restore->group);
	free(restore->chunk);
	free(restore);
}

bool store_restore_has(struct store_restore *restore, struct slice name)
{
	struct key key;
	char *value;
	size_t len;

	if (!name.len || name.len > KEY_BYTES_MAX)
		return false;
	key.len = (uint32_t)name.len;
	memcpy(key.bytes, name.data, name.len);
	if (index_get(restore->store->index, &key, true, &value, &len) <= 0)
		return false;
	free(value);
	return true;
}

/* ---- Bodies. ---- */

static int chunk_write(struct store_restore *restore, struct segment *segment, uint32_t blocks)
{
	struct store *store = restore->store;
	const uint8_t *at = restore->chunk;

	while (blocks) {
		uint64_t block;
		uint32_t leased;
		int ret = space_lease_growing(store, false, blocks, &block, &leased);

		if (!ret)
			ret = segment_add(segment, block, leased);
		if (!ret)
			ret = disk_write_now(store->volume.disk, at,
				(uint64_t)leased << BLOCK_SHIFT, block << BLOCK_SHIFT);
		if (ret)
			return ret;
		at += (size_t)leased << BLOCK_SHIFT;
		blocks -= leased;
	}
	return 0;
}

static bool checks_match(const struct segment *segment, const uint8_t *body, uint64_t bytes)
{
	for (uint64_t at = 0; at < bytes; at += STORE_CHECK_BYTES)
		if (crc32c_update(0, body + at, MIN(bytes - at, (uint64_t)STORE_CHECK_BYTES)) !=
			segment->checks[at / STORE_CHECK_BYTES])
			return false;
	return true;
}

/* Writes the body to new space: *ret_segment is like `from`, which names its old space. */
static int body_write(struct store_restore *restore, const struct segment *from,
	const uint8_t *body, uint64_t bytes, struct segment **ret_segment)
{
	struct segment *segment;
	int ret = segment_open((uint32_t)((bytes + STORE_CHUNK_BYTES - 1) / STORE_CHUNK_BYTES),
		from->check_count, &segment);

	if (ret)
		return ret;
	segment->check_count = from->check_count;
	memcpy(segment->checks, from->checks, from->check_count * sizeof(from->checks[0]));
	for (uint32_t i = 0; i < from->tag_count && !ret; i++)
		ret = segment_tag_add(segment, from->tags + (size_t)i * STORE_TAG_BYTES);
	for (uint64_t at = 0; at < bytes && !ret; at += STORE_CHUNK_BYTES) {
		uint32_t part = (uint32_t)MIN(bytes - at, (uint64_t)STORE_CHUNK_BYTES);
		uint32_t padded = ALIGN_UP(part, BLOCK_BYTES);

		memcpy(restore->chunk, body + at, part);
		memset(restore->chunk + part, 0, padded - part);
		ret = chunk_write(restore, segment, padded / BLOCK_BYTES);
	}
	if (ret)
		segment_close(segment);
	else
		*ret_segment = segment;
	return ret;
}

/* ---- Rows. ---- */

static int batch_write(struct store_restore *restore, bool durable)
{
	struct store *store = restore->store;
	struct group *group = restore->group;
	struct group_head head = {
		.epoch = store->volume.super.epoch, .seq = restore->state.applied_seq};
	int ret = 0;

	if (group->count) {
		/* The index may become durable at any time: not before its bodies, nor before the
		 * superblocks name the volumes that lack them. */
		ret = disk_flush_now(store->volume.disk);
		if (!ret)
			ret = stripe_settle_now(&store->volume);
		group_seal(group, &head, store->volume.uuid_crc, NULL);
		if (!ret)
			ret = index_write_group(store->index,
				slice_of(group->bytes, group_head(group)->bytes), &restore->state);
		group_reset(group);
	}
	if (!ret && durable) {
		ret = index_flush(store->index);
		restore->bytes = 0;
	}
	return ret;
}

static int row_add(struct store_restore *restore, struct slice name, const void *value, size_t len)
{
	struct key key;
	int ret;

	if (name.len > KEY_BYTES_MAX)
		return -EUCLEAN;
	key.len = (uint32_t)name.len;
	memcpy(key.bytes, name.data, name.len);
	if (restore->group->len + MUTATION_BYTES(key.len, len) > BATCH_BYTES) {
		ret = batch_write(restore, restore->bytes >= DURABLE_BYTES);
		if (ret)
			return ret;
	}
	ret = group_reserve(restore->group, MUTATION_BYTES(key.len, len), 0);
	if (ret)
		return ret;
	memcpy(group_add(restore->group, MUTATION_PUT, 0, &key, len), value, len);
	return 0;
}

/* A record whose body it names itself, with the body in its new place. */
static int direct_put(struct store_restore *restore, struct object *object, struct slice key,
	struct segment *segment)
{
	struct segment *from = atomic_load(&object->segments[0]);
	uint8_t *record;
	size_t len;
	int ret;

	atomic_store(&object->segments[0], segment);
	len = record_bytes(object);
	record = (uint8_t *)malloc(len);
	if (record)
		record_put(object, record);
	ret = record ? row_add(restore, key, record, len) : -ENOMEM;
	free(record);
	atomic_store(&object->segments[0], from);
	return ret;
}

static int segment_put(
	struct store_restore *restore, struct slice key, const struct segment *segment)
{
	size_t len = segment_record_bytes(segment);
	uint8_t *record = (uint8_t *)malloc(len);
	int ret;

	if (record)
		segment_record_put(segment, record);
	ret = record ? row_add(restore, key, record, len) : -ENOMEM;
	free(record);
	return ret;
}

/* The segment that the row has, of its own or in its record. */
static int segment_of(struct slice key, struct slice value, struct segment **ret_segment,
	struct object **ret_object)
{
	struct object *object;
	int ret;

	*ret_object = NULL;
	if (key.data[0] == 'S')
		return segment_record_parse(value, ret_segment);
	ret = key_is_object(key) ? record_parse(value, &object) : -EUCLEAN;
	if (ret)
		return ret;
	if (object->body != BODY_DIRECT) {
		object_put(NULL, object);
		return -EUCLEAN;
	}
	*ret_segment = segment_get(atomic_load(&object->segments[0]));
	*ret_object = object;
	return 0;
}

/* Whether a row of its kind can have this key: a store that has the row can read it, also when the
 * key is forged. */
static bool key_is_whole(struct slice key)
{
	struct object_name name;
	uint64_t number;

	if (key.len && key.data[0] == 'B')
		return true; /* its record has the name's rules */
	if (key.len < 1 + sizeof(number))
		return false;
	memcpy(&number, key.data + 1, sizeof(number));
	if (be64toh(number) >= NUMBER_MAX)
		return false;
	switch (key.data[0]) {
	case 'D':
	case 'Q':
		return key.len == 1 + sizeof(number);
	case 'S':
		return key.len == SEGMENT_KEY_BYTES;
	case 'V':
		return key_version_parse(key, &name) == 0;
	default:
		return key_is_object(key) && key.len > 1 + sizeof(number) &&
		       key.len <= 1 + sizeof(number) + LIMIT_KEY_LEN_MAX;
	}
}

/* Rows without a body of their own, as far as they can be known. */
static bool row_is_plain(struct slice key, struct slice value)
{
	struct store_bucket bucket;
	struct object *object;
	bool plain;

	if (!key_is_whole(key))
		return false;
	if (key.data[0] == 'D' || key.data[0] == 'Q')
		return true;
	if (key.data[0] == 'B')
		return bucket_record_parse(slice_from(key, 1), value, &bucket) == 0 &&
		       bucket.id < NUMBER_MAX;
	if (!key_is_object(key) || record_parse(value, &object))
		return false;
	plain = object->body != BODY_DIRECT;
	object_put(NULL, object);
	return plain;
}

/* The row's segment, if its body is what the row says; *ret_object as segment_of. */
static int body_check(const struct store_backup_row *row, const struct slice key_value[2],
	const void *body, struct segment **ret_segment, struct object **ret_object)
{
	int ret = key_is_whole(key_value[0])
			  ? segment_of(key_value[0], key_value[1], ret_segment, ret_object)
			  : -EUCLEAN;

	if (ret)
		return ret;
	if (segment_covers(*ret_segment, row->bytes) &&
		!(*ret_object && (*ret_object)->meta.bytes != row->bytes) &&
		checks_match(*ret_segment, (const uint8_t *)body, row->bytes))
		return 0;
	segment_close(*ret_segment);
	object_put(NULL, *ret_object);
	return -EUCLEAN;
}

int store_backup_row_check(
	const struct store_backup_row *row, struct slice key, struct slice value, const void *body)
{
	const struct slice key_value[2] = {key, value};
	struct segment *segment;
	struct object *object;
	int ret;

	if (!(row->flags & STORE_BACKUP_HAS_BODY))
		return row_is_plain(key, value) ? 0 : -EUCLEAN;
	ret = body_check(row, key_value, body, &segment, &object);
	if (ret)
		return ret;
	segment_close(segment);
	object_put(NULL, object);
	return 0;
}

int store_restore_row(struct store_restore *restore, const struct store_backup_row *row,
	struct slice key, struct slice value, const void *body)
{
	const struct slice key_value[2] = {key, value};
	struct segment *from, *segment = NULL;
	struct object *object;
	int ret;

	if (!(row->flags & STORE_BACKUP_HAS_BODY))
		return row_is_plain(key, value) ? row_add(restore, key, value.data, value.len)
						: -EUCLEAN;
	ret = body_check(row, key_value, body, &from, &object);
	if (ret)
		return ret;
	ret = body_write(restore, from, (const uint8_t *)body, row->bytes, &segment);
	if (!ret)
		ret = object ? direct_put(restore, object, key, segment)
			     : segment_put(restore, key, segment);
	restore->bytes += row->bytes;
	segment_close(segment);
	segment_close(from);
	object_put(NULL, object);
	if (!ret && restore->bytes >= DURABLE_BYTES)
		ret = batch_write(restore, true);
	return ret;
}

int store_restore_finish(struct store_restore *restore)
{
	struct store *store = restore->store;
	char path[4096];
	int ret = batch_write(restore, true);

	/* From now on it is a store like any other. */
	restore->state.features &= ~INDEX_FEATURE_PARTIAL;
	if (!ret)
		ret = index_state_write(store->index, &restore->state);
	if (!ret)
		ret = index_flush(store->index);
	path_of(store->dir, NAME_FILE, path);
	if (!ret && (unlink(path) || file_dir_sync(store->dir)))
		ret = -errno;
	return ret;
}
