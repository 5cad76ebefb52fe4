/* store/image/image.c: which files the image has and which blocks they use. A checkpoint makes a
 * new set of files. Once the superblock with the new set is complete, the files that only earlier
 * sets had are given back. */
#include "store/image/image.h"
#include "store/object/record.h"
#include "store/space/space.h"
#include "store/volume/volume.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILES_FIRST 16u
/* The reserve: at most this part of the space, and at most this much and half of the image. */
#define RESERVE_PART  32u
#define RESERVE_BYTES (64 * MIB)

void image_init(struct image *image)
{
	pthread_mutex_init(&image->lock, NULL);
	image->number_next = 1;
}

static void files_free(struct image_files *files)
{
	for (uint32_t i = 0; i < files->count; i++)
		image_file_free(files->list[i]);
	free(files->list);
	*files = (struct image_files){0};
}

void image_set_free(struct image_set *set)
{
	files_free(&set->files);
	image_file_free(set->catalog);
	*set = (struct image_set){0};
}

void image_fini(struct image *image)
{
	image_set_free(&image->now);
	files_free(&image->retired);
	pthread_mutex_destroy(&image->lock);
}

int image_files_add(struct image_files *files, struct image_file *file)
{
	if (files->count == files->cap) {
		uint32_t cap = MAX(files->cap * 2, FILES_FIRST);
		void *grown = realloc(files->list, cap * sizeof(struct image_file *));

		if (!grown)
			return -ENOMEM;
		files->list = (struct image_file **)grown;
		files->cap = cap;
	}
	files->list[files->count++] = file;
	return 0;
}

void image_file_free(struct image_file *file)
{
	if (!file)
		return;
	for (uint32_t i = 0; i < file->segment_count; i++)
		segment_close(file->segments[i]);
	free(file->segments);
	free(file);
}

/* ---- Blocks. ---- */

static void segment_give(struct store *store, const struct segment *segment, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		space_give(store->space, segment->extents[i].block, segment->extents[i].blocks);
}

static void blocks_give(struct store *store, const struct image_file *file)
{
	for (uint32_t i = 0; i < file->segment_count; i++)
		if (file->segments[i])
			segment_give(store, file->segments[i], file->segments[i]->extent_count);
}

void image_file_give(struct store *store, struct image_file *file)
{
	if (!file)
		return;
	blocks_give(store, file);
	image_file_free(file);
}

static int segment_take(struct store *store, const struct segment *segment)
{
	for (uint32_t i = 0; i < segment->extent_count; i++) {
		int ret = space_take(
			store->space, segment->extents[i].block, segment->extents[i].blocks);

		if (ret) {
			segment_give(store, segment, i);
			return ret;
		}
	}
	return 0;
}

static int file_take(struct store *store, const struct image_file *file)
{
	for (uint32_t i = 0; i < file->segment_count; i++) {
		int ret = segment_take(store, file->segments[i]);

		if (!ret)
			continue;
		while (i-- > 0)
			segment_give(store, file->segments[i], file->segments[i]->extent_count);
		return ret;
	}
	return 0;
}

static uint64_t set_bytes(const struct image_set *set)
{
	uint64_t bytes = set->catalog ? set->catalog->bytes : 0;

	for (uint32_t i = 0; i < set->files.count; i++)
		bytes += set->files.list[i]->bytes;
	return bytes;
}

/* Adjusts the allocator's reserve to the image's size. */
static void reserve_adjust(struct store *store)
{
	uint64_t shards = MAX(disk_array_data(store->volume.disk), 1u);
	uint64_t most = (RESERVE_BYTES + set_bytes(&store->image->now) / 2) / shards;
	uint64_t blocks = space_free_blocks(store->space) + space_used_blocks(store->space);

	space_reserve(store->space,
		store->image->on ? MIN(blocks / RESERVE_PART, most / BLOCK_BYTES) : 0);
}

void image_take(struct store *store)
{
	struct image *image = store->image;
	struct image_set *now = &image->now;
	int ret = now->catalog ? file_take(store, now->catalog) : 0;
	uint32_t taken = 0;

	image->taken = true;
	if (ret) {
		image_set_free(now);
	} else {
		while (taken < now->files.count && !ret) {
			ret = file_take(store, now->files.list[taken]);
			taken += !ret;
		}
		if (ret) {
			for (uint32_t i = 0; i < taken; i++)
				blocks_give(store, now->files.list[i]);
			blocks_give(store, now->catalog);
			image_set_free(now);
		}
	}
	if (ret)
		log_warn("store",
			"%s: the volumes' copy of the index is not of the newest superblock: it is "
			"written anew",
			store->dir);
	reserve_adjust(store);
}

void image_give(struct store *store)
{
	struct image *image = store->image;

	if (!image->taken)
		return;
	image->taken = false;
	for (uint32_t i = 0; i < image->now.files.count; i++)
		blocks_give(store, image->now.files.list[i]);
	if (image->now.catalog)
		blocks_give(store, image->now.catalog);
	for (uint32_t i = 0; i < image->retired.count; i++)
		blocks_give(store, image->retired.list[i]);
	image_set_free(&image->now);
	files_free(&image->retired);
}

/* ---- A checkpoint's end. ---- */

/* If there is no memory for the list, the blocks stay in use until the next start. */
static void retire_add(struct image *image, struct image_file *file)
{
	if (file && image_files_add(&image->retired, file))
		image_file_free(file);
}

void image_adopt(struct store *store, struct image_set *set)
{
	struct image *image = store->image;
	struct superblock *super = &store->volume.super;
	const struct segment *segment = set->catalog ? set->catalog->segments[0] : NULL;

	memset(super->image, 0, sizeof(super->image));
	super->image_bytes = segment ? set->catalog->bytes : 0;
	super->image_seq = segment ? set->seq : 0;
	super->image_crc = segment ? set->crc32c : 0;
	super->image_len = segment ? (uint32_t)segment_record_bytes(segment) : 0;
	CHECK(super->image_len <= sizeof(super->image));
	if (segment)
		segment_record_put(segment, super->image);
	pthread_mutex_lock(&image->lock);
	for (uint32_t i = 0; i < image->now.files.count; i++)
		image->now.files.list[i]->kept = false;
	for (uint32_t i = 0; i < set->files.count; i++)
		set->files.list[i]->kept = true;
	for (uint32_t i = 0; i < image->now.files.count; i++)
		if (!image->now.files.list[i]->kept)
			retire_add(image, image->now.files.list[i]);
	retire_add(image, image->now.catalog);
	free(image->now.files.list);
	image->now = *set;
	pthread_mutex_unlock(&image->lock);
	*set = (struct image_set){0};
}

void image_forget(struct store *store)
{
	struct image_set none = {0};

	image_adopt(store, &none);
}

void image_retire(struct store *store)
{
	struct image *image = store->image;
	struct image_files retired;

	pthread_mutex_lock(&image->lock);
	retired = image->retired;
	image->retired = (struct image_files){0};
	pthread_mutex_unlock(&image->lock);
	for (uint32_t i = 0; i < retired.count; i++)
		image_file_give(store, retired.list[i]);
	free(retired.list);
	reserve_adjust(store);
}

/* ---- A walk. ---- */

/* The file with the lowest number from there on; NULL. */
static struct image_file *file_from(const struct image *image, uint64_t number)
{
	struct image_file *best = image->now.catalog;

	if (best && best->number < number)
		best = NULL;
	for (uint32_t i = 0; i < image->now.files.count; i++) {
		struct image_file *file = image->now.files.list[i];

		if (file->number >= number && (!best || file->number < best->number))
			best = file;
	}
	return best;
}

bool image_segment(struct image *image, struct image_place *place, struct segment **ret_segment,
	uint64_t *ret_bytes)
{
	struct image_file *file;

	pthread_mutex_lock(&image->lock);
	while ((file = file_from(image, place->number))) {
		if (file->number > place->number)
			*place = (struct image_place){.number = file->number};
		if (place->segment_idx < file->segment_count)
			break;
		*place = (struct image_place){.number = file->number + 1};
	}
	if (file) {
		*ret_segment = segment_get(file->segments[place->segment_idx]);
		*ret_bytes = MIN(file->bytes - place->segment_idx * SEGMENT_BYTES, SEGMENT_BYTES);
	}
	pthread_mutex_unlock(&image->lock);
	return file != NULL;
}

bool image_has(struct image *image, uint64_t number)
{
	const struct image_file *file;
	bool has;

	pthread_mutex_lock(&image->lock);
	file = file_from(image, number);
	has = file && file->number == number;
	pthread_mutex_unlock(&image->lock);
	return has;
}

/* ---- The caller's texts. ---- */

int image_kept_find(const struct image *image, const char *name)
{
	for (uint32_t i = 0; i < image->kept_count; i++)
		if (strcmp(image->kept[i].name, name) == 0)
			return (int)i;
	return -1;
}

int image_keep(struct image *image, const char *name, struct slice text)
{
	int at, ret = 0;

	if (!name[0] || strlen(name) > IMAGE_NAME_BYTES_MAX)
		return -EINVAL;
	pthread_mutex_lock(&image->lock);
	at = image_kept_find(image, name);
	if (text.len > IMAGE_KEPT_BYTES_MAX || (at < 0 && image->kept_count == IMAGE_KEPT_MAX)) {
		ret = -E2BIG;
	} else {
		struct image_kept *kept = &image->kept[at < 0 ? (int)image->kept_count++ : at];

		snprintf(kept->name, sizeof(kept->name), "%s", name);
		if (text.len)
			memcpy(kept->text, text.data, text.len);
		kept->bytes = (uint32_t)text.len;
	}
	pthread_mutex_unlock(&image->lock);
	return ret;
}
