/* store/check/snapshot.c: the allocator's state and the buckets' counts, saved by a clean shutdown
 * (docs/spec/disk.md, "space"), so that the next start need not read the whole index. */
#include "codec/crc.h"
#include "store/check/check.h"
#include "store/commit/committer.h"
#include "store/space/space.h"
#include "store/state/state.h"
#include "store/table/table.h"
#include "store/volume/volume.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char MAGIC[8] = {'N', 'E', 'B', 'S', 'P', 'A', 'C', 'E'};

struct snapshot_head {
	char magic[8];
	uint32_t version;
	uint32_t crc32c;
	uint8_t uuid[16];
	uint64_t seq;
	uint64_t volume_bytes;
	uint64_t bucket_count;
	uint64_t word_count;
};
_Static_assert(sizeof(struct snapshot_head) == 64, "as docs/spec/disk.md has it");

#define SNAPSHOT_VERSION 2u

struct snapshot_bucket {
	uint64_t id;
	uint64_t objects;
	struct store_quota used;
};
_Static_assert(sizeof(struct snapshot_bucket) == 32, "as docs/spec/disk.md has it");

struct snapshot {
	struct snapshot_head head;
	struct snapshot_bucket *buckets;
	uint64_t *words;
};

static uint32_t snapshot_crc(const struct snapshot *snapshot)
{
	struct snapshot_head head = snapshot->head;
	uint32_t crc;

	head.crc32c = 0;
	crc = crc32c_update(0, &head, sizeof(head));
	crc = crc32c_update(crc, snapshot->buckets, head.bucket_count * sizeof(*snapshot->buckets));
	return crc32c_update(crc, snapshot->words, head.word_count * sizeof(*snapshot->words));
}

static void snapshot_free(struct snapshot *snapshot)
{
	free(snapshot->buckets);
	free(snapshot->words);
}

static int snapshot_alloc(struct snapshot *snapshot)
{
	snapshot->buckets = (struct snapshot_bucket *)calloc(
		snapshot->head.bucket_count + 1, sizeof(*snapshot->buckets));
	snapshot->words =
		(uint64_t *)calloc(snapshot->head.word_count + 1, sizeof(*snapshot->words));
	if (snapshot->buckets && snapshot->words)
		return 0;
	snapshot_free(snapshot);
	return -ENOMEM;
}

static int path_of(const struct store *store, const char *name, char *path, size_t bytes)
{
	return (size_t)snprintf(path, bytes, "%s/%s", store->dir, name) < bytes ? 0 : -ENAMETOOLONG;
}

static bool write_all(FILE *file, const struct snapshot *snapshot)
{
	const struct snapshot_head *head = &snapshot->head;

	return fwrite(head, sizeof(*head), 1, file) == 1 &&
	       fwrite(snapshot->buckets, sizeof(*snapshot->buckets), head->bucket_count, file) ==
		       head->bucket_count &&
	       fwrite(snapshot->words, sizeof(*snapshot->words), head->word_count, file) ==
		       head->word_count &&
	       fflush(file) == 0 && fsync(fileno(file)) == 0;
}

struct bucket_fill {
	struct snapshot *snapshot;
	uint64_t count;
};

static void bucket_fill(struct bucket *bucket, void *arg)
{
	struct bucket_fill *fill = (struct bucket_fill *)arg;

	struct snapshot_bucket *to = &fill->snapshot->buckets[fill->count++];

	to->id = bucket->info.id;
	to->objects = atomic_load(&bucket->objects);
	bucket_used(bucket, &to->used);
}

int snapshot_write(struct store *store)
{
	struct snapshot snapshot = {.head = {.version = SNAPSHOT_VERSION,
					    .seq = store->committer->seq_next - 1,
					    .volume_bytes = disk_bytes(store->volume.disk),
					    .bucket_count = buckets_count(store->buckets),
					    .word_count = space_word_count(store->space)}};
	struct bucket_fill fill = {.snapshot = &snapshot};
	char path[4096], path_new[4096];
	FILE *file;
	bool written;
	int ret = path_of(store, "space", path, sizeof(path));

	if (!ret)
		ret = path_of(store, "space.new", path_new, sizeof(path_new));
	if (!ret)
		ret = snapshot_alloc(&snapshot);
	if (ret)
		return ret;
	memcpy(snapshot.head.magic, MAGIC, sizeof(MAGIC));
	memcpy(snapshot.head.uuid, store->volume.super.uuid, sizeof(snapshot.head.uuid));
	buckets_visit(store->buckets, bucket_fill, &fill);
	for (uint64_t i = 0; i < snapshot.head.word_count; i++)
		snapshot.words[i] = space_word(store->space, i);
	snapshot.head.crc32c = snapshot_crc(&snapshot);
	file = fopen(path_new, "we");
	written = file && write_all(file, &snapshot);
	if (file)
		fclose(file);
	snapshot_free(&snapshot);
	if (!written || rename(path_new, path)) {
		unlink(path_new);
		return -EIO;
	}
	return 0;
}

/* Whether it is of this store, and nothing has been written since. */
static bool head_is_last(const struct store *store, const struct snapshot_head *head)
{
	return memcmp(head->magic, MAGIC, sizeof(MAGIC)) == 0 &&
	       head->version == SNAPSHOT_VERSION &&
	       memcmp(head->uuid, store->volume.super.uuid, sizeof(head->uuid)) == 0 &&
	       head->seq == store->committer->seq_next - 1;
}

/* Whether it describes this store as it is now. */
static bool head_counts(const struct store *store, const struct snapshot_head *head)
{
	return head_is_last(store, head) && head->volume_bytes <= disk_bytes(store->volume.disk) &&
	       head->word_count <= space_word_count(store->space) &&
	       head->bucket_count == buckets_count(store->buckets);
}

static bool read_all(FILE *file, struct snapshot *snapshot)
{
	const struct snapshot_head *head = &snapshot->head;

	return fread(snapshot->buckets, sizeof(*snapshot->buckets), head->bucket_count, file) ==
		       head->bucket_count &&
	       fread(snapshot->words, sizeof(*snapshot->words), head->word_count, file) ==
		       head->word_count &&
	       fgetc(file) == EOF && snapshot_crc(snapshot) == head->crc32c;
}

/* The volume's size at the last clean shutdown; 0: unknown. */
static uint64_t volume_bytes_then(const struct store *store)
{
	struct snapshot snapshot;
	struct stat info;
	char path[4096];
	uint64_t then = 0;
	FILE *file = path_of(store, "space", path, sizeof(path)) ? NULL : fopen(path, "re");

	if (!file)
		return 0;
	if (fstat(fileno(file), &info) == 0 &&
		fread(&snapshot.head, sizeof(snapshot.head), 1, file) == 1 &&
		head_is_last(store, &snapshot.head) &&
		snapshot.head.bucket_count <= (uint64_t)info.st_size &&
		snapshot.head.word_count <= (uint64_t)info.st_size &&
		snapshot_alloc(&snapshot) == 0) {
		if (read_all(file, &snapshot))
			then = snapshot.head.volume_bytes;
		snapshot_free(&snapshot);
	}
	fclose(file);
	return then;
}

int snapshot_size_check(const struct store *store)
{
	const struct disk *disk = store->volume.disk;
	uint64_t now = MAX(disk_medium_bytes(disk), disk_bytes(disk));
	uint64_t then = store->volume.set_count ? 0 : volume_bytes_then(store);

	/* A device's size is in the superblock. */
	if (then <= now || !disk_can_grow(disk))
		return 0;
	store_find(store,
		"%s: the volume has %llu bytes but had %llu when the store was last closed: it "
		"was truncated. Restore a complete copy; if you have none: truncate -s %llu %s, "
		"and nebulaio fsck --deep names the objects that were in the lost part",
		store->volume.path, (unsigned long long)now, (unsigned long long)then,
		(unsigned long long)then, store->volume.path);
	return -EUCLEAN;
}

static void bucket_take(struct store *store, const struct snapshot_bucket *from)
{
	struct bucket *bucket = buckets_find_id(store->buckets, from->id);

	atomic_fetch_add(&store->objects, from->objects);
	if (!bucket)
		return;
	atomic_store(&bucket->objects, from->objects);
	atomic_store(&bucket->used_bytes, from->used.bytes);
	atomic_store(&bucket->used_objects, from->used.objects);
	bucket_put(bucket);
}

/* The bitmap does not say of which geometry a block in use is. */
static bool has_one_geometry(const struct store *store)
{
	const struct super_set *set = &store->volume.super.set;

	return !set->geometries[0].numbers.data || !set->geometries[1].numbers.data;
}

int snapshot_load(struct store *store, uint64_t **ret_words, uint64_t *ret_word_count)
{
	struct snapshot snapshot;
	char path[4096];
	FILE *file;
	int ret = path_of(store, "space", path, sizeof(path));

	if (ret)
		return ret;
	file = has_one_geometry(store) ? fopen(path, "re") : NULL;
	if (!file)
		return -ENOENT;
	ret = -ENOENT;
	if (fread(&snapshot.head, sizeof(snapshot.head), 1, file) == 1 &&
		head_counts(store, &snapshot.head) && snapshot_alloc(&snapshot) == 0) {
		if (read_all(file, &snapshot))
			ret = 0;
		for (uint64_t i = 0; !ret && i < snapshot.head.bucket_count; i++)
			bucket_take(store, &snapshot.buckets[i]);
		*ret_word_count = snapshot.head.word_count;
		*ret_words = ret ? NULL : snapshot.words;
		if (!ret)
			snapshot.words = NULL;
		snapshot_free(&snapshot);
	}
	fclose(file);
	return ret;
}

int snapshot_read(struct store *store)
{
	uint64_t first = store->volume.super.data_offset / BLOCK_BYTES / 64;
	uint64_t *words;
	uint64_t count;
	int ret = snapshot_load(store, &words, &count);

	if (ret)
		return ret;
	if (count > first)
		space_words_set(store->space, first, words + first, count - first);
	free(words);
	return 0;
}
