/* store/image/image_read.c: reads the index image: its catalog at each start, all of it when the
 * data folder was lost. The volumes' contents are checked like any other input. Blocks. */
#include "base/file.h"
#include "codec/crc.h"
#include "store/image/image.h"
#include "store/image/image_format.h"
#include "store/object/record.h"
#include "store/volume/volume.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PROGRESS_NS (2 * NS_PER_S)

typedef int contents_fn(
	const struct image_entry *entry, const char *name, struct slice contents, void *arg);

/* ---- The catalog's bytes. ---- */

static int segment_read(
	struct store *store, const struct segment *segment, uint64_t bytes, uint8_t *out)
{
	void *piece;
	int ret = 0;

	if (posix_memalign(&piece, BLOCK_BYTES, STORE_CHECK_BYTES))
		return -ENOMEM;
	for (uint64_t at = 0; at < bytes && !ret; at += STORE_CHECK_BYTES) {
		const struct stripe_piece part = {.at = at,
			.data = (uint8_t *)piece,
			.bytes = (uint32_t)MIN(bytes - at, (uint64_t)STORE_CHECK_BYTES),
			.crc32c = segment->checks[at / STORE_CHECK_BYTES]};

		ret = stripe_piece_read(&store->volume, segment, &part, true);
		if (!ret)
			memcpy(out + at, piece, part.bytes);
	}
	free(piece);
	return ret;
}

static struct image_file *file_new(struct image *image, uint64_t bytes, uint32_t segment_cap)
{
	struct image_file *file = (struct image_file *)calloc(1, sizeof(*file));

	if (file)
		file->segments =
			(struct segment **)calloc(segment_cap + 1u, sizeof(struct segment *));
	if (!file || !file->segments) {
		free(file);
		return NULL;
	}
	file->bytes = bytes;
	file->number = image->number_next++;
	return file;
}

static int catalog_file(struct store *store, struct image_file **ret_file)
{
	const struct superblock *super = &store->volume.super;
	struct image_file *file;
	int ret;

	if (super->image_bytes > IMAGE_CATALOG_MAX ||
		super->image_bytes < sizeof(struct image_head))
		return -EUCLEAN;
	file = file_new(store->image, super->image_bytes, 1);
	if (!file)
		return -ENOMEM;
	ret = segment_record_parse(slice_of(super->image, super->image_len), &file->segments[0]);
	if (!ret) {
		file->segment_count = 1;
		ret = segment_covers(file->segments[0], file->bytes) ? 0 : -EUCLEAN;
	}
	if (ret)
		image_file_free(file);
	else
		*ret_file = file;
	return ret;
}

static int catalog_read(struct store *store, struct image_file *file, uint8_t **ret_bytes)
{
	const struct superblock *super = &store->volume.super;
	uint8_t *bytes = (uint8_t *)malloc(file->bytes);
	struct image_head head;
	int ret = bytes ? segment_read(store, file->segments[0], file->bytes, bytes) : -ENOMEM;

	if (!ret) {
		memcpy(&head, bytes, sizeof(head));
		if (crc32c_update(0, bytes, file->bytes) != super->image_crc ||
			memcmp(head.magic, IMAGE_MAGIC, sizeof(head.magic)) != 0 ||
			head.version != IMAGE_VERSION || head.seq != super->image_seq ||
			memcmp(head.uuid, super->uuid, sizeof(head.uuid)) != 0)
			ret = -EUCLEAN;
	}
	if (ret)
		free(bytes);
	else
		*ret_bytes = bytes;
	return ret;
}

/* ---- Its entries. ---- */

static bool name_is_plain(struct slice name)
{
	return name.len && name.len <= IMAGE_NAME_BYTES_MAX && name.data[0] != '.' &&
	       slice_is_word(name, "._-");
}

static bool take(struct slice *rest, void *out, size_t len)
{
	if (rest->len < len)
		return false;
	memcpy(out, rest->data, len);
	*rest = slice_from(*rest, len);
	return true;
}

static int segments_parse(struct slice *rest, struct image_file *file, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		uint64_t bytes = MIN(file->bytes - i * SEGMENT_BYTES, SEGMENT_BYTES);
		uint32_t len;
		int ret;

		if (!take(rest, &len, sizeof(len)) || len > rest->len)
			return -EUCLEAN;
		ret = segment_record_parse(slice_of(rest->data, len), &file->segments[i]);
		if (ret)
			return ret;
		file->segment_count++;
		if (!segment_covers(file->segments[i], bytes) || file->segments[i]->tag_count)
			return -EUCLEAN;
		*rest = slice_from(*rest, len);
	}
	return 0;
}

static int table_parse(struct image *image, struct slice *rest, const struct image_entry *entry,
	struct slice name, struct image_set *set)
{
	uint64_t count = (entry->bytes + SEGMENT_BYTES - 1) / SEGMENT_BYTES;
	struct image_file *file;
	int ret;

	/* The segment count must fit the rest of the catalog. */
	if (!entry->bytes || entry->bytes > UINT64_MAX - SEGMENT_BYTES ||
		count > rest->len / sizeof(uint32_t))
		return -EUCLEAN;
	file = file_new(image, entry->bytes, (uint32_t)count);
	if (!file)
		return -ENOMEM;
	memcpy(file->name, name.data, name.len);
	file->tail_crc = entry->tail_crc;
	ret = segments_parse(rest, file, count);
	if (!ret)
		ret = image_files_add(&set->files, file);
	if (ret)
		image_file_free(file);
	return ret;
}

/* Parses the catalog into set; calls fn, if not NULL, with the files that it contains. */
static int catalog_parse(struct store *store, struct slice catalog, struct image_set *set,
	contents_fn *fn, void *arg)
{
	struct slice rest = catalog;
	struct image_head head;
	int ret = take(&rest, &head, sizeof(head)) ? 0 : -EUCLEAN;

	for (uint32_t i = 0; !ret && i < head.files; i++) {
		char name[IMAGE_NAME_BYTES_MAX + 1] = "";
		struct image_entry entry;

		if (!take(&rest, &entry, sizeof(entry)) || entry.name_len > rest.len ||
			!name_is_plain(slice_of(rest.data, entry.name_len)))
			return -EUCLEAN;
		memcpy(name, rest.data, entry.name_len);
		rest = slice_from(rest, entry.name_len);
		if (entry.kind == IMAGE_SEGMENTS) {
			ret = table_parse(
				store->image, &rest, &entry, slice_of(name, entry.name_len), set);
			continue;
		}
		if ((entry.kind != IMAGE_CONTENTS && entry.kind != IMAGE_KEPT) ||
			entry.bytes > rest.len)
			return -EUCLEAN;
		if (fn)
			ret = fn(&entry, name, slice_of(rest.data, entry.bytes), arg);
		rest = slice_from(rest, entry.bytes);
	}
	return !ret && rest.len ? -EUCLEAN : ret;
}

/* Reads the whole catalog into set. */
static int set_read(struct store *store, struct image_set *set, contents_fn *fn, void *arg)
{
	uint8_t *bytes;
	int ret = catalog_file(store, &set->catalog);

	if (!ret)
		ret = catalog_read(store, set->catalog, &bytes);
	if (!ret) {
		ret = catalog_parse(store, slice_of(bytes, set->catalog->bytes), set, fn, arg);
		free(bytes);
	}
	if (ret)
		image_set_free(set);
	return ret;
}

static int kept_load(
	const struct image_entry *entry, const char *name, struct slice contents, void *arg)
{
	if (entry->kind != IMAGE_KEPT)
		return 0;
	return image_keep((struct image *)arg, name, contents) ? -EUCLEAN : 0;
}

int image_load(struct store *store)
{
	struct image_set set = {.seq = store->volume.super.image_seq};
	int ret;

	if (!store->volume.super.image_bytes || store->image->now.catalog)
		return 0;
	set.crc32c = store->volume.super.image_crc;
	ret = set_read(store, &set, kept_load, store->image);
	if (ret == -ENOMEM || ret == -EHOSTDOWN)
		return ret;
	if (ret)
		store_find(store, "%s: the volumes' copy of the index cannot be used: %s",
			store->dir, ret == -EUCLEAN ? "its catalog is damaged" : strerror(-ret));
	else
		store->image->now = set;
	return 0;
}

/* ---- Rebuilding the index. ---- */

struct restore {
	struct store *store;
	char dir[4096];
	uint8_t *piece;
	uint64_t bytes, reported_ns;
};

static int file_make(const struct restore *restore, const char *name, int *ret_fd)
{
	char path[sizeof(restore->dir) + IMAGE_NAME_BYTES_MAX + 2];

	snprintf(path, sizeof(path), "%s/%s", restore->dir, name);
	*ret_fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	return *ret_fd < 0 ? -errno : 0;
}

static int write_whole(int fd, const void *data, size_t bytes)
{
	const uint8_t *at = (const uint8_t *)data;

	while (bytes) {
		ssize_t done = write(fd, at, bytes);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return done ? -errno : -EIO;
		at += done;
		bytes -= (size_t)done;
	}
	return 0;
}

static int file_end(int fd, int ret)
{
	if (!ret && fsync(fd))
		ret = -errno;
	if (close(fd) && !ret)
		ret = -errno;
	return ret;
}

static int contents_restore(
	const struct image_entry *entry, const char *name, struct slice contents, void *arg)
{
	struct restore *restore = (struct restore *)arg;
	int fd, ret;

	if (entry->kind != IMAGE_CONTENTS)
		return 0;
	ret = file_make(restore, name, &fd);
	if (ret)
		return ret;
	restore->bytes += entry->bytes;
	return file_end(fd, write_whole(fd, contents.data, contents.len));
}

static int segment_restore(
	struct restore *restore, int fd, const struct segment *segment, uint64_t bytes)
{
	int ret = 0;

	for (uint64_t at = 0; at < bytes && !ret; at += STORE_CHECK_BYTES) {
		const struct stripe_piece part = {.at = at,
			.data = restore->piece,
			.bytes = (uint32_t)MIN(bytes - at, (uint64_t)STORE_CHECK_BYTES),
			.crc32c = segment->checks[at / STORE_CHECK_BYTES]};

		ret = stripe_piece_read(&restore->store->volume, segment, &part, true);
		if (!ret)
			ret = write_whole(fd, restore->piece, part.bytes);
	}
	return ret;
}

static int table_restore(struct restore *restore, const struct image_file *file)
{
	int fd;
	int ret = file_make(restore, file->name, &fd);

	if (ret)
		return ret;
	for (uint32_t i = 0; i < file->segment_count && !ret; i++)
		ret = segment_restore(restore, fd, file->segments[i],
			MIN(file->bytes - i * SEGMENT_BYTES, SEGMENT_BYTES));
	ret = file_end(fd, ret);
	restore->bytes += file->bytes;
	if (!ret && clock_now_ns() - restore->reported_ns > PROGRESS_NS) {
		restore->reported_ns = clock_now_ns();
		log_info("store", "%s: %llu MiB of the index are rebuilt", restore->store->dir,
			(unsigned long long)(restore->bytes / MIB));
	}
	return ret;
}

static int restore_all(struct restore *restore)
{
	struct image_set set = {.seq = restore->store->volume.super.image_seq};
	char done[sizeof(restore->dir)];
	int ret = file_dir_remove(restore->dir);

	snprintf(done, sizeof(done), "%s/index", restore->store->dir);
	/* An earlier start may have left an index without a CURRENT file there. */
	if (!ret)
		ret = file_dir_remove(done);
	if (!ret && mkdir(restore->dir, 0700))
		ret = -errno;
	if (!ret)
		ret = set_read(restore->store, &set, contents_restore, restore);
	for (uint32_t i = 0; i < set.files.count && !ret; i++)
		ret = table_restore(restore, set.files.list[i]);
	image_set_free(&set);
	if (!ret)
		ret = file_dir_sync(restore->dir);
	if (!ret && rename(restore->dir, done))
		ret = -errno;
	return ret ? ret : file_dir_sync(restore->store->dir);
}

int image_restore(struct store *store)
{
	struct restore *restore = (struct restore *)calloc(1, sizeof(*restore));
	void *piece = NULL;
	int ret = restore ? 0 : -ENOMEM;

	if (!ret && posix_memalign(&piece, BLOCK_BYTES, STORE_CHECK_BYTES))
		ret = -ENOMEM;
	if (ret) {
		free(restore);
		return ret;
	}
	restore->store = store;
	restore->piece = (uint8_t *)piece;
	restore->reported_ns = clock_now_ns();
	snprintf(restore->dir, sizeof(restore->dir), "%s/index.new", store->dir);
	log_warn("store", "%s: the data folder has no index: it is rebuilt from the volumes",
		store->dir);
	ret = restore_all(restore);
	if (ret)
		log_error("store",
			"%s: the index cannot be rebuilt from the volumes: %s. The volumes are "
			"unchanged",
			store->dir,
			ret == -EUCLEAN ? "their copy of it is damaged" : strerror(-ret));
	else
		log_info("store", "%s: the index is rebuilt: %llu KiB", store->dir,
			(unsigned long long)(restore->bytes / KIB));
	free(piece);
	free(restore);
	return ret;
}
