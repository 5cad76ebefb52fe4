/* store/image/image.h: the index image: a checkpoint of the index in the volumes, so that these are
 * enough to rebuild it (docs/design/index-in-volumes.md, docs/spec/disk.md). */
#ifndef STORE_IMAGE_H
#define STORE_IMAGE_H

#include "store/local.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "store/object/object.h"
#include "store/state/state.h"

#define IMAGE_NAME_BYTES_MAX 64u
#define IMAGE_FILES_MAX	     65536u
#define IMAGE_CATALOG_MAX    (64 * MIB)

/* A file in the volumes. It never changes. */
struct image_file {
	char name[IMAGE_NAME_BYTES_MAX + 1]; /* "": a catalog */
	uint64_t number;		     /* files that were written later have higher numbers */
	uint64_t bytes;
	uint32_t tail_crc;
	bool verified; /* the index's file of that name is this one */
	bool kept;     /* the checkpoint that is being written includes it */
	uint32_t segment_count;
	struct segment **segments;
};

struct image_files {
	struct image_file **list;
	uint32_t count, cap;
};

/* The image that one superblock names. */
struct image_set {
	struct image_files files;
	struct image_file *catalog; /* NULL: there is no image */
	uint64_t seq;
	uint32_t crc32c; /* of the catalog */
};

/* A small text of the caller's, which lies in the catalog. */
#define IMAGE_KEPT_MAX	     4u
#define IMAGE_KEPT_BYTES_MAX 8192u
struct image_kept {
	char name[IMAGE_NAME_BYTES_MAX + 1];
	uint32_t bytes;
	uint8_t text[IMAGE_KEPT_BYTES_MAX];
};

struct image {
	bool on;	  /* checkpoints write images */
	bool taken;	  /* the allocator counts its blocks as in use */
	bool told;	  /* that no image can be written */
	_Atomic bool due; /* the volumes lack the index up to the tail */
	int fault;	  /* of the volumes, when an image was written last; 0: none */
	uint64_t number_next;
	pthread_mutex_t lock; /* of the rest; a checkpoint alone changes now and retired */
	struct image_set now;
	struct image_kept kept[IMAGE_KEPT_MAX];
	uint32_t kept_count;
	struct image_files retired; /* of no superblock, once the next one is complete */
};
void image_init(struct image *image);
void image_fini(struct image *image);

/* ---- image.c: the image in memory. ---- */
int image_files_add(struct image_files *files, struct image_file *file); /* -ENOMEM */
/* Takes NULL. */
void image_file_free(struct image_file *file);
/* Frees the lists and the files in them. */
void image_set_free(struct image_set *set);
/* Takes the blocks of the image from the allocator. If some are in use, all stay as they were and
 * the image is forgotten: the superblock is old. */
void image_take(struct store *store);
/* Gives all of them back: for the snapshot. */
void image_give(struct store *store);
/* Gives back the blocks of a file that no superblock names, and frees it. Takes NULL. */
void image_file_give(struct store *store, struct image_file *file);
/* The next superblock has no image. */
void image_forget(struct store *store);
/* Makes set the image, and names it in volume.super before the superblock is written. Takes set
 * over. volume.lock is held. */
void image_adopt(struct store *store, struct image_set *set);
/* Gives back the files that only earlier images had. Called when the superblock with the new image
 * is on all volumes. */
void image_retire(struct store *store);

/* The text of that name from the next image on. -E2BIG: it is too long, or there are too many;
 * -EINVAL: not a name. */
int image_keep(struct image *image, const char *name, struct slice text);
/* The place of the text; -1: none. The lock is held. */
int image_kept_find(const struct image *image, const char *name);

/* For a walk over the image's segments while checkpoints go on: the first at or after the place,
 * with a reference. Its blocks are not reused as long as the caller holds the space. False: there
 * are no more. */
struct image_place {
	uint64_t number;
	uint32_t segment_idx;
};
bool image_segment(struct image *image, struct image_place *place, struct segment **ret_segment,
	uint64_t *ret_bytes);
/* Whether the image still has the file. */
bool image_has(struct image *image, uint64_t number);

/* ---- image_write.c ---- */
/* Writes the index as it was flushed, which has everything up to seq, to space that nothing uses.
 * Blocks. -ENOSPC, and the errors of the data folder and of memory: no image can be written now;
 * with image->fault set the volumes failed. On failure nothing is left. */
int image_write(struct store *store, uint64_t seq, struct image_set *ret_set);

/* ---- image_read.c ---- */
/* Reads the catalog that the superblock names. An unusable one is reported, and there is no image
 * then. -ENOMEM, -EHOSTDOWN. */
int image_load(struct store *store);
/* Writes DIR/index from the image. Blocks. -EUCLEAN, -EIO with a log line. */
int image_restore(struct store *store);

#endif
