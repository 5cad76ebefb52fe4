/* store/volume/volume.h: what the files of store share about volumes: one or several; how their
 * files may be shown and who may use them. */
#ifndef STORE_VOLUME_H
#define STORE_VOLUME_H

#include "store/local.h"

#include <pthread.h>
#include <stdbool.h>

#define BLOCK_BYTES		4096u
#define BLOCK_SHIFT		12u
#define SEGMENT_BYTES		(64 * MIB)
#define SEGMENT_CHECKS_MAX	((uint32_t)(SEGMENT_BYTES / STORE_CHECK_BYTES))
#define SEGMENT_EXTENTS_MAX	((uint32_t)(SEGMENT_BYTES / BLOCK_BYTES))
#define SEGMENTS_MAX		((uint32_t)(LIMIT_PUT_BYTES_MAX / SEGMENT_BYTES))
#define CHUNK_BLOCKS		(STORE_CHUNK_BYTES / BLOCK_BYTES)
#define VOLUME_LOG_OFFSET	(1 * MIB)
#define STORE_VERSION		1u
#define STORE_LOG_BYTES_DEFAULT (64 * MIB)
#define STORE_LOG_BYTES_MIN	(256 * KIB)

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "structs are the disk's own");
_Static_assert(STORE_CHUNK_BYTES % STORE_CHECK_BYTES == 0, "a chunk is whole pieces");
_Static_assert(SEGMENT_BYTES % STORE_CHUNK_BYTES == 0, "a segment is whole chunks");
_Static_assert(STORE_GROUPED_BYTES_MAX <= STORE_CHUNK_BYTES, "a grouped body is one run");
_Static_assert(BLOCK_BYTES == FRAME_BYTES, "frames go to blocks as they are");

/* ---- volume.c: the file's layout. ---- */
struct superblock {
	char magic[8];
	uint32_t version;
	uint32_t crc32c;
	uint8_t uuid[16];
	uint64_t generation;
	uint64_t epoch;
	uint64_t log_bytes;
	uint64_t step_bytes;
	uint64_t data_offset;
	uint64_t tail_pos;
	uint64_t tail_seq;
	uint64_t created_ns;
	uint64_t medium_bytes; /* of a device; 0 of a file */
	uint16_t set_count;    /* volumes of the store; 0: this one alone */
	uint16_t set_idx;      /* which of them this is */
	uint16_t set_data;
	uint16_t set_parity;
	uint64_t set_lost; /* one bit for each that is not good */
};
_Static_assert(sizeof(struct superblock) == 120, "as docs/spec/disk.md has it");
#define VOLUME_MAGIC 0x701c3e01u
struct volume {
	uint32_t magic; /* while it is open */
	struct disk *disk;
	char path[4096];
	uint32_t set_count; /* 0: one volume */
	char *set_paths[DISK_MEMBERS_MAX];
	uint32_t path_of[DISK_MEMBERS_MAX]; /* by member; STRIPE_PATH_NONE */
	uint32_t paths_refused;		    /* one bit each: cannot be used, which was logged */
	pthread_mutex_t lock;		    /* of super */
	struct superblock super;
	uint32_t uuid_crc;  /* the log's CRCs start with it */
	int replace_member; /* to be replaced by replace_path, when that is not NULL; under lock */
	char *replace_path;
	uint64_t settled_generation;	  /* of the last superblocks that enough volumes have */
	_Atomic uint64_t settled_changes; /* of the array: the superblocks tell of them */
	uint64_t mended; /* pieces that a check found wrong and other volumes have right */
};
/* Where an open volume comes in. */
static inline void volume_check(const struct volume *volume)
{
	const struct superblock *super = &volume->super;

	CHECK(volume->magic == VOLUME_MAGIC);
	CHECK(volume->disk != NULL);
	CHECK(super->log_bytes && super->log_bytes % BLOCK_BYTES == 0);
	CHECK(super->step_bytes && super->step_bytes % STORE_CHUNK_BYTES == 0);
	CHECK(super->data_offset > super->log_bytes);
	CHECK(super->set_count <= DISK_MEMBERS_MAX);
	CHECK(super->set_count == super->set_data + super->set_parity);
}

struct volume_opts {
	const char *dir;
	const char *path; /* where it lies; NULL or "": as DIR/volume says */
	const char *faults;
	bool format; /* may overwrite what is not ours */
	bool discard_files;
	uint32_t erasure_data; /* at creation, when path names several */
	uint32_t erasure_parity;
	uint64_t log_bytes;
	uint64_t step_bytes;
	bool create;
	bool *ret_created;
};
/* -EUCLEAN with a log line: damaged, foreign or newer. */
int volume_open(const struct volume_opts *opts, struct volume *ret_volume);
void volume_close(struct volume *volume);
/* Fills in volume->path. -EUCLEAN with a log line: the store's volume is a file of its own. */
int volume_locate(const struct volume_opts *opts, struct volume *volume);
/* No volume, or one that has never been begun. */
bool volume_missing(const struct volume *volume);
/* Makes DIR/volume lead to a volume that lies elsewhere, so that the next start and fsck find it.
 */
int volume_link(const char *dir, const struct volume *volume);
/* Writes the next superblock and flushes; blocks. */
int volume_super_write(struct volume *volume);

/* For stripe.c: one volume among several. As above; -EMEDIUMTYPE: not ours, or damaged. */
int volume_super_of(struct disk *disk, const char *path, struct superblock *ret_super);
/* The same of what lies at a path; probe: that it cannot be reached is no news. */
int volume_super_read(const char *path, bool probe, struct superblock *ret_super);
void volume_super_init(struct superblock *super, const struct volume_opts *opts);
void volume_super_fill(struct superblock *super, uint8_t block[BLOCK_BYTES]);
int volume_label_check(
	const struct volume_opts *opts, const char *path, struct disk *disk, int found);
bool volume_index_present(const char *dir);

/* ---- stripe.c: several volumes. ---- */
#define STRIPE_PATH_NONE UINT32_MAX
/* Fills in the paths, when there are several. */
int stripe_locate(const struct volume_opts *opts, struct volume *volume);
int stripe_open(const struct volume_opts *opts, struct volume *volume);
int stripe_super_write(struct volume *volume);
void stripe_paths_free(struct volume *volume);
int stripe_remember(const char *dir, const struct volume *volume);
/* A volume in the place of a member that is missing and was not opened: 0 with its disk, or -errno.
 * Blocks. */
int stripe_candidate(const struct volume_opts *opts, struct volume *volume, uint32_t *ret_member,
	struct disk **ret_disk);
/* Whether what lies on a member's own disk, that was gone, is still this member's, or blank. */
int stripe_member_known(
	const struct volume_opts *opts, const struct volume *volume, uint32_t member);
/* Whether it is this member's with the last superblock that all good ones have: not another one's,
 * not blank, and no older copy of it. */
bool stripe_member_whole(const struct volume *volume, uint32_t member);
/* Fiber call, before a group is acknowledged: when a volume failed since the last time, the others
 * are told. -EHOSTDOWN: too few are left. */
int stripe_settle(struct volume *volume);

/* ---- shown.c ---- */
#define SHOWN_BYTES_MAX 1024u
/* A name that users chose, for a terminal: valid UTF-8 stays, all that would not be seen as it is
 * (control characters, other bytes, backslashes) is written as \\xHH. */
void shown_put(struct buf *out, struct slice text);

/* ---- modes.c ---- */
/* Takes from all but their owner what rights they have to the store's directory and its files, and
 * says so; and what it had to leave. */
void modes_check(const char *dir);
/* The same of a volume that lies elsewhere; devices stay as they are. */
void modes_check_file(const char *path);

#endif
