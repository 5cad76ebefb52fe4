/* store/image/image_write.c: a checkpoint's part that writes the index to the volumes: the table
 * files that the last image lacks, then a catalog that names all. Blocks. */
#include "base/file.h"
#include "codec/crc.h"
#include "store/image/image.h"
#include "store/image/image_format.h"
#include "store/index/index.h"
#include "store/object/record.h"
#include "store/space/space.h"
#include "store/volume/volume.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of files whose contents are in the catalog. */
#define CONTENTS_BYTES_MAX (16 * MIB)
#define PROGRESS_NS	   (5 * NS_PER_S)

DEFINE_COUNTER(image_bytes, "nebulaio_store_index_image_bytes_total", NULL,
	"Bytes of the index that checkpoints wrote to the volumes, without parity.");

struct image_writer {
	struct store *store;
	struct image_set set;
	char dir[4096]; /* the checkpoint */
	uint8_t *chunk; /* STORE_CHUNK_BYTES */
	struct buf catalog;
	uint32_t entries;
	uint64_t reported_ns;
};

/* ---- Writing a file to free space. ---- */

struct origin {
	int fd; /* -1: memory */
	const char *memory;
	uint64_t bytes;
};

static int origin_read(const struct origin *origin, uint8_t *out, uint32_t bytes, uint64_t at)
{
	uint32_t done = 0;

	if (origin->fd < 0) {
		memcpy(out, origin->memory + at, bytes);
		return 0;
	}
	while (done < bytes) {
		ssize_t got = pread(origin->fd, out + done, bytes - done, (off_t)(at + done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got ? -errno : -EIO;
		done += (uint32_t)got;
	}
	return 0;
}

/* Notes that it was the volumes that failed. */
static int fault(struct store *store, int ret)
{
	if (ret)
		store->image->fault = ret;
	return ret;
}

static int chunk_write(
	struct store *store, struct segment *segment, const uint8_t *chunk, uint32_t blocks)
{
	while (blocks) {
		uint64_t block;
		uint32_t leased;
		int ret = space_lease_growing(store, true, blocks, &block, &leased);

		if (ret == -EIO || ret == -EHOSTDOWN)
			return fault(store, ret);
		if (ret)
			return ret;
		ret = segment_add(segment, block, leased);
		if (ret) {
			space_give(store->space, block, leased);
			return ret;
		}
		ret = disk_write_now(store->volume.disk, chunk, (uint64_t)leased << BLOCK_SHIFT,
			block << BLOCK_SHIFT);
		if (ret)
			return fault(store, ret);
		chunk += (size_t)leased << BLOCK_SHIFT;
		blocks -= leased;
	}
	return 0;
}

static int segment_write(struct image_writer *writer, struct segment *segment,
	const struct origin *origin, uint64_t from)
{
	uint64_t to = MIN(from + SEGMENT_BYTES, origin->bytes);

	for (uint64_t at = from; at < to;) {
		uint32_t bytes = (uint32_t)MIN(to - at, (uint64_t)STORE_CHUNK_BYTES);
		uint32_t padded = ALIGN_UP(bytes, BLOCK_BYTES);
		int ret = origin_read(origin, writer->chunk, bytes, at);

		if (ret)
			return ret;
		memset(writer->chunk + bytes, 0, padded - bytes);
		for (uint32_t done = 0; done < bytes; done += STORE_CHECK_BYTES)
			segment->checks[segment->check_count++] =
				crc32c_update(0, writer->chunk + done,
					MIN(bytes - done, (uint32_t)STORE_CHECK_BYTES));
		ret = chunk_write(writer->store, segment, writer->chunk, padded / BLOCK_BYTES);
		if (ret)
			return ret;
		at += bytes;
	}
	return 0;
}

/* A file without its segments. */
static struct image_file *file_new(struct image *image, const char *name, uint64_t bytes)
{
	struct image_file *file = (struct image_file *)calloc(1, sizeof(*file));
	uint64_t segments = (bytes + SEGMENT_BYTES - 1) / SEGMENT_BYTES;

	if (!file)
		return NULL;
	snprintf(file->name, sizeof(file->name), "%s", name);
	file->segments = (struct segment **)calloc(segments + 1, sizeof(struct segment *));
	if (!file->segments) {
		free(file);
		return NULL;
	}
	file->number = image->number_next++;
	file->bytes = bytes;
	file->verified = true;
	return file;
}

/* Writes the file's segments. On failure, the file keeps the segments that were written. */
static int file_write(
	struct image_writer *writer, struct image_file *file, const struct origin *origin)
{
	int ret = 0;

	for (uint64_t from = 0; from < origin->bytes && !ret; from += SEGMENT_BYTES) {
		uint64_t bytes = MIN(origin->bytes - from, SEGMENT_BYTES);
		struct segment *segment;

		ret = segment_open((uint32_t)((bytes + STORE_CHUNK_BYTES - 1) / STORE_CHUNK_BYTES),
			(uint32_t)((bytes + STORE_CHECK_BYTES - 1) / STORE_CHECK_BYTES), &segment);
		if (ret)
			break;
		file->segments[file->segment_count++] = segment;
		ret = segment_write(writer, segment, origin, from);
	}
	counter_add(&image_bytes, origin->bytes);
	return ret;
}

/* ---- The checkpoint's files. ---- */

static void entry_put(
	struct image_writer *writer, const struct image_entry *entry, const char *name)
{
	buf_put(&writer->catalog, entry, sizeof(*entry));
	buf_put(&writer->catalog, name, entry->name_len);
	writer->entries++;
}

static int file_list(struct image_writer *writer, const struct image_file *file)
{
	const struct image_entry entry = {.name_len = (uint8_t)strlen(file->name),
		.kind = IMAGE_SEGMENTS,
		.tail_crc = file->tail_crc,
		.bytes = file->bytes};

	entry_put(writer, &entry, file->name);
	for (uint32_t i = 0; i < file->segment_count; i++) {
		uint32_t len = (uint32_t)segment_record_bytes(file->segments[i]);
		uint8_t *record = (uint8_t *)malloc(len);

		if (!record)
			return -ENOMEM;
		segment_record_put(file->segments[i], record);
		buf_put(&writer->catalog, &len, sizeof(len));
		buf_put(&writer->catalog, record, len);
		free(record);
	}
	return 0;
}

static int contents_list(struct image_writer *writer, const char *name, const struct origin *origin)
{
	const struct image_entry entry = {
		.name_len = (uint8_t)strlen(name), .kind = IMAGE_CONTENTS, .bytes = origin->bytes};
	uint8_t *contents;
	int ret;

	if (origin->bytes > CONTENTS_BYTES_MAX)
		return -EFBIG;
	contents = (uint8_t *)malloc(origin->bytes + 1);
	if (!contents)
		return -ENOMEM;
	ret = origin_read(origin, contents, (uint32_t)origin->bytes, 0);
	entry_put(writer, &entry, name);
	buf_put(&writer->catalog, contents, origin->bytes);
	free(contents);
	return ret;
}

static int tail_crc(const struct origin *origin, uint32_t *ret_crc)
{
	uint8_t tail[IMAGE_TAIL_BYTES];
	uint32_t bytes = (uint32_t)MIN(origin->bytes, sizeof(tail));
	int ret = origin_read(origin, tail, bytes, origin->bytes - bytes);

	if (!ret)
		*ret_crc = crc32c_update(0, tail, bytes);
	return ret;
}

/* False: the set of volumes has changed since the file was written, and it is to be written to the
 * volumes of today. */
static bool is_current(const struct store *store, const struct image_file *file)
{
	if (!store->volume.set_count)
		return true;
	for (uint32_t i = 0; i < file->segment_count; i++) {
		const struct segment *segment = file->segments[i];

		for (uint32_t k = 0; segment && k < segment->extent_count; k++)
			if (disk_stripe_slot(segment->extents[k].block) !=
				atomic_load(&store->volume.set_current))
				return false;
	}
	return true;
}

/* The file that the volumes already have; NULL: none. */
static struct image_file *file_find(
	struct image_writer *writer, const char *name, const struct origin *origin)
{
	const struct image_files *files = &writer->store->image->now.files;

	for (uint32_t i = 0; i < files->count; i++) {
		struct image_file *file = files->list[i];
		uint32_t crc = 0;

		if (strcmp(file->name, name) != 0)
			continue;
		if (file->bytes != origin->bytes || !is_current(writer->store, file))
			return NULL;
		if (!file->verified && (tail_crc(origin, &crc) || crc != file->tail_crc))
			return NULL;
		file->verified = true;
		return file;
	}
	return NULL;
}

static void progress(struct image_writer *writer)
{
	uint64_t now_ns = clock_now_ns();

	if (now_ns - writer->reported_ns < PROGRESS_NS)
		return;
	writer->reported_ns = now_ns;
	log_info("store", "%s: %u files of the index are in the volumes", writer->store->dir,
		writer->set.files.count);
}

static int table_add(struct image_writer *writer, const char *name, const struct origin *origin)
{
	struct image_file *file = file_find(writer, name, origin);
	int ret;

	if (file) {
		ret = image_files_add(&writer->set.files, file);
		return ret ? ret : file_list(writer, file);
	}
	file = file_new(writer->store->image, name, origin->bytes);
	if (!file)
		return -ENOMEM;
	ret = image_files_add(&writer->set.files, file);
	if (ret) {
		image_file_free(file);
		return ret;
	}
	ret = file_write(writer, file, origin);
	if (!ret)
		ret = tail_crc(origin, &file->tail_crc);
	progress(writer);
	return ret ? ret : file_list(writer, file);
}

static bool is_table(const char *name)
{
	size_t len = strlen(name);

	return len > 4 && strcmp(name + len - 4, ".sst") == 0;
}

static int file_add(struct image_writer *writer, const char *name)
{
	struct origin origin = {.fd = -1};
	char path[sizeof(writer->dir) + IMAGE_NAME_BYTES_MAX + 2];
	struct stat info;
	int ret = 0;

	if (strlen(name) > IMAGE_NAME_BYTES_MAX || writer->entries == IMAGE_FILES_MAX)
		return -EFBIG;
	snprintf(path, sizeof(path), "%s/%s", writer->dir, name);
	origin.fd = open(path, O_RDONLY | O_CLOEXEC);
	if (origin.fd < 0 || fstat(origin.fd, &info))
		ret = -errno;
	if (!ret) {
		origin.bytes = (uint64_t)info.st_size;
		ret = is_table(name) && origin.bytes ? table_add(writer, name, &origin)
						     : contents_list(writer, name, &origin);
	}
	if (origin.fd >= 0)
		close(origin.fd);
	return ret;
}

static int files_add(struct image_writer *writer)
{
	DIR *listing = opendir(writer->dir);
	const struct dirent *entry;
	int ret = listing ? 0 : -errno;

	/* A listing that fails half way would look like a short one. */
	while (!ret && (errno = 0, (entry = readdir(listing)) != NULL))
		if (entry->d_name[0] != '.')
			ret = file_add(writer, entry->d_name);
	if (!ret)
		ret = -errno;
	if (listing)
		closedir(listing);
	return ret;
}

/* ---- The catalog. ---- */

static void kept_add(struct image_writer *writer)
{
	struct image *image = writer->store->image;

	pthread_mutex_lock(&image->lock);
	for (uint32_t i = 0; i < image->kept_count; i++) {
		const struct image_kept *kept = &image->kept[i];
		const struct image_entry entry = {.name_len = (uint8_t)strlen(kept->name),
			.kind = IMAGE_KEPT,
			.bytes = kept->bytes};

		entry_put(writer, &entry, kept->name);
		buf_put(&writer->catalog, kept->text, kept->bytes);
	}
	pthread_mutex_unlock(&image->lock);
}

static int catalog_write(struct image_writer *writer, uint64_t seq)
{
	struct store *store = writer->store;
	struct image_head head = {.version = IMAGE_VERSION, .seq = seq, .time_ns = clock_real_ns()};
	struct origin origin = {.fd = -1};
	struct image_file *file;
	int ret;

	kept_add(writer);
	head.files = writer->entries;
	if (writer->catalog.failed)
		return writer->catalog.len >= IMAGE_CATALOG_MAX / 2 ? -ENOSPC : -ENOMEM;
	memcpy(head.magic, IMAGE_MAGIC, sizeof(head.magic));
	memcpy(head.uuid, store->volume.super.uuid, sizeof(head.uuid));
	memcpy(writer->catalog.data, &head, sizeof(head));
	origin.memory = writer->catalog.data;
	origin.bytes = writer->catalog.len;
	file = file_new(store->image, "", origin.bytes);
	if (!file)
		return -ENOMEM;
	writer->set.catalog = file;
	writer->set.seq = seq;
	writer->set.crc32c = crc32c_update(0, origin.memory, origin.bytes);
	ret = file_write(writer, file, &origin);
	/* The catalog has too many pieces for a superblock, because the free space is in small
	 * parts. */
	if (!ret && (file->segment_count != 1 ||
			    segment_record_bytes(file->segments[0]) > IMAGE_SEGMENT_BYTES_MAX))
		ret = -ENOSPC;
	return ret;
}

/* Gives back the files that this checkpoint wrote. */
static void undo(struct image_writer *writer, uint64_t number_first)
{
	struct image_files *files = &writer->set.files;

	for (uint32_t i = 0; i < files->count; i++)
		if (files->list[i]->number >= number_first)
			image_file_give(writer->store, files->list[i]);
	free(files->list);
	image_file_give(writer->store, writer->set.catalog);
}

static int write_all(struct image_writer *writer, uint64_t seq)
{
	int ret = files_add(writer);

	if (!ret)
		ret = catalog_write(writer, seq);
	if (!ret)
		ret = fault(writer->store, disk_flush_now(writer->store->volume.disk));
	return ret;
}

int image_write(struct store *store, uint64_t seq, struct image_set *ret_set)
{
	struct image_writer *writer = (struct image_writer *)calloc(1, sizeof(*writer));
	const struct image_head room = {.version = 0};
	uint64_t number_first = store->image->number_next;
	void *chunk = NULL;
	int ret = writer ? 0 : -ENOMEM;

	store->image->fault = 0;
	if (!ret && posix_memalign(&chunk, BLOCK_BYTES, STORE_CHUNK_BYTES))
		ret = -ENOMEM;
	if (ret) {
		free(writer);
		return ret;
	}
	writer->store = store;
	writer->chunk = (uint8_t *)chunk;
	writer->reported_ns = clock_now_ns();
	buf_init(&writer->catalog, IMAGE_CATALOG_MAX);
	buf_put(&writer->catalog, &room, sizeof(room));
	snprintf(writer->dir, sizeof(writer->dir), "%s/index.image", store->dir);
	ret = file_dir_remove(writer->dir);
	if (!ret)
		ret = index_checkpoint(store->index, writer->dir);
	if (!ret)
		ret = write_all(writer, seq);
	(void)file_dir_remove(writer->dir);
	if (ret)
		undo(writer, number_first);
	else
		*ret_set = writer->set;
	buf_free(&writer->catalog);
	free(chunk);
	free(writer);
	return ret;
}
