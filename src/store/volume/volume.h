/* store/volume/volume.h: volumes: one or several; safe printing of their names, and access rights
 * of their files. */
#ifndef STORE_VOLUME_H
#define STORE_VOLUME_H

#include "store/local.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#define BLOCK_BYTES		4096u
#define BLOCK_SHIFT		12u
#define SEGMENT_BYTES		(64 * MIB)
#define SEGMENT_CHECKS_MAX	((uint32_t)(SEGMENT_BYTES / STORE_CHECK_BYTES))
#define SEGMENT_EXTENTS_MAX	((uint32_t)(SEGMENT_BYTES / BLOCK_BYTES))
#define SEGMENTS_MAX		((uint32_t)(LIMIT_PUT_BYTES_MAX / SEGMENT_BYTES))
#define CHUNK_BLOCKS		(STORE_CHUNK_BYTES / BLOCK_BYTES)
#define VOLUME_LOG_OFFSET	(1 * MIB)
#define STORE_VERSION		1u
#define STORE_VERSION_SET	2u /* the set of volumes has changed */
#define STORE_LOG_BYTES_DEFAULT (64 * MIB)
#define STORE_LOG_BYTES_MIN	(256 * KIB)

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "structs are the disk's own");
_Static_assert(STORE_CHUNK_BYTES % STORE_CHECK_BYTES == 0, "a chunk is whole pieces");
_Static_assert(SEGMENT_BYTES % STORE_CHUNK_BYTES == 0, "a segment is whole chunks");
_Static_assert(STORE_GROUPED_BYTES_MAX <= STORE_CHUNK_BYTES, "a grouped body is one run");
_Static_assert(BLOCK_BYTES == FRAME_BYTES, "frames go to blocks as they are");

/* ---- volume.c: the file's layout. ---- */
#define IMAGE_SEGMENT_BYTES_MAX 1904u
/* The members of a store over several volumes and their geometries. */
struct super_set {
	uint64_t change; /* how many times it changed; 0: as it was made, and not in the superblock
			  */
	uint64_t joined[DISK_MEMBERS_MAX]; /* the change by which each member's volume came */
	uint64_t own_joined;		   /* of this volume */
	uint64_t current;		   /* the geometry of new bodies */
	struct super_geometry {
		struct disk_geometry numbers;
		uint8_t newer; /* 1: it came with the change that is under way */
		uint8_t zero[5];
	} geometries[DISK_GEOMETRIES];
};
#define SET_IDX_NONE UINT16_MAX /* a volume that was removed */
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
	uint16_t set_count;    /* number of volumes of the store; 0: only this one */
	uint16_t set_idx;      /* index of this one among them */
	uint16_t set_data;
	uint16_t set_parity;
	uint64_t set_lost;    /* one bit for each that is not good */
	uint64_t image_bytes; /* of the catalog of the index image; 0: there is none */
	uint64_t image_seq;
	uint32_t image_crc;
	uint32_t image_len; /* of the catalog's segment */
	uint8_t image[IMAGE_SEGMENT_BYTES_MAX];
	struct super_set set; /* of version 2; of version 1 it is zero on the volume */
};
_Static_assert(offsetof(struct superblock, set) == 2048, "as docs/spec/disk.md has it");
_Static_assert(sizeof(struct super_set) == 280, "as docs/spec/disk.md has it");
/* More than there can be members: also those that the configuration names in vain. */
#define STRIPE_PATHS_MAX 48u
#define VOLUME_MAGIC	 0x701c3e01u
struct volume {
	uint32_t magic; /* while it is open */
	struct disk *disk;
	char path[4096];
	_Atomic uint32_t set_count; /* of paths; 0: one volume; changes under lock */
	char *set_paths[STRIPE_PATHS_MAX];
	uint32_t path_of[DISK_MEMBERS_MAX]; /* by member; STRIPE_PATH_NONE */
	uint64_t paths_named;		    /* one bit each: by the configuration */
	uint64_t paths_refused;		    /* one bit each: unusable, which was logged */
	int path_told[STRIPE_PATHS_MAX]; /* the error that opening it met last; logged; 0: none */
	/* Why each member was not taken since it was last good; logged; 0: none. Of the monitor. */
	int member_told[DISK_MEMBERS_MAX];
	uint64_t paths_asked; /* one bit each: of a replacement; a former volume may be there */
	uint64_t members_new; /* one bit each: found blank, or former, in a member's place */
	pthread_mutex_t lock; /* of super and the paths */
	struct superblock super;
	_Atomic uint32_t set_current; /* super.set.current, for readers without the lock */
	uint32_t uuid_crc;	      /* initial value of the log's CRCs */
	int replace_member; /* to be replaced by replace_path, when that is not NULL; under lock */
	char *replace_path;
	_Atomic uint64_t settled_change; /* of the set, in those superblocks */
	_Atomic uint64_t
		settled_generation;	  /* from the last superblocks that enough volumes have */
	_Atomic uint64_t settled_changes; /* changes of the array that the superblocks record */
	/* This start took the change of the set back, because too few volumes of the newer geometry
	 * are there: then no row may name its slot. */
	bool withdrew;
	uint32_t withdrew_slot;
	/* This start does not see all volumes, and has not written the superblock yet that it
	 * found. Under lock. */
	bool unseen;
	struct superblock found;
	/* Pieces that a check found damaged on one volume and intact on others; and such that could
	 * not be written again. */
	_Atomic uint64_t mended, unmended;
};
/* Checks an open volume at the entry of a call: what never changes, because a helper thread may be
 * writing the set, under the lock. */
static inline void volume_check(const struct volume *volume)
{
	const struct superblock *super = &volume->super;

	CHECK(volume->magic == VOLUME_MAGIC);
	CHECK(volume->disk != NULL);
	CHECK(super->log_bytes && super->log_bytes % BLOCK_BYTES == 0);
	CHECK(super->step_bytes && super->step_bytes % STORE_CHUNK_BYTES == 0);
	CHECK(super->data_offset > super->log_bytes);
}
/* One bit for each member; 0: there is one volume. */
static inline uint64_t super_members(const struct superblock *super)
{
	return disk_geometry_mask(&super->set.geometries[0].numbers) |
	       disk_geometry_mask(&super->set.geometries[1].numbers);
}
static inline bool super_has(const struct superblock *super, uint32_t member)
{
	return super_members(super) >> member & 1;
}
/* Makes set_count, set_data and set_parity agree with the geometries. */
void super_set_count(struct superblock *super);
/* The set of a store that is made with these numbers. */
void super_set_plain(struct superblock *super, uint32_t data, uint32_t parity);
/* The slot of the geometry that came with the change that is under way; DISK_GEOMETRIES: none, or
 * it is not known. */
uint32_t super_set_newer(const struct superblock *super);
/* Takes that geometry out: the other one is that of new bodies. */
void super_set_withdraw(struct superblock *super);

struct volume_opts {
	const char *dir;
	const char *path; /* its path; NULL or "": as DIR/volume says */
	const char *faults;
	bool format;	/* may overwrite foreign data, but no store */
	bool quiet;	/* the refusal of a volume is not logged: it was before */
	bool overwrite; /* also a store */
	bool discard_files;
	uint32_t erasure_data; /* at creation, when path names several */
	uint32_t erasure_parity;
	uint64_t log_bytes;
	uint64_t step_bytes;
	uint64_t reserve_bytes; /* that growing leaves free, of a volume that is taken later */
	bool create;
	bool withdraws; /* a change of the set whose new volumes are missing may be taken back */
	bool adopt;	/* a store whose index is in the volumes, but not in dir, is opened */
	bool *ret_created;
};
/* -EUCLEAN with a log line: damaged, foreign or newer. */
int volume_open(const struct volume_opts *opts, struct volume *ret_volume);
void volume_close(struct volume *volume);
/* Fills in volume->path. -EUCLEAN with a log line: the store's volume is a file of its own. */
int volume_locate(const struct volume_opts *opts, struct volume *volume);
/* 0: there is one, or volume_open says what is wrong with it. -ENOENT: there is none, or one whose
 * creation never began. Other errors are those of opening it: opening it again would fail, and log,
 * again. */
int volume_find(const struct volume *volume);
/* Makes DIR/volume lead to a volume elsewhere, so that the next start and fsck find it. */
int volume_link(const char *dir, const struct volume *volume);
/* Writes the next superblock and flushes; blocks. */
int volume_super_write(struct volume *volume);

/* For stripe.c: opens one volume of several. As volume_open; -EMEDIUMTYPE: not ours, or damaged. */
/* Why a start does not take a volume of a store whose index is not in dir. */
void volume_image_hint(const char *path, const struct superblock *super);
/* path: for the log; NULL: nothing is logged. */
int volume_super_of(struct disk *disk, const char *path, struct superblock *ret_super);
/* The same for the volume at a path; probe: nothing is logged. */
int volume_super_read(const char *path, bool probe, struct superblock *ret_super);
void volume_super_init(struct superblock *super, const struct volume_opts *opts);
void volume_super_fill(struct superblock *super, uint8_t block[BLOCK_BYTES]);
int volume_label_check(
	const struct volume_opts *opts, const char *path, struct disk *disk, int found);
bool volume_index_present(const char *dir);

/* ---- paths.c ---- */
#define STRIPE_PATH_NONE UINT32_MAX
/* Fills in the paths, when there are several. */
int stripe_locate(const struct volume_opts *opts, struct volume *volume);
/* A path's number, also under another name of it; STRIPE_PATH_NONE. */
uint32_t stripe_path_find(const struct volume *volume, const char *path);
int stripe_path_add(struct volume *volume, const char *path);
/* Whether the data folder's list, of a line each, keeps the path as it is: absolute, or of another
 * host, and without blanks at its ends. */
bool stripe_path_valid(const char *path);
/* The last path takes its number. */
void stripe_path_remove(struct volume *volume, uint32_t path_idx);
void stripe_paths_free(struct volume *volume);
/* Writes the data folder's list. */
int stripe_remember(const char *dir, const struct volume *volume);
/* Whether the member's volume is at no path. */
bool stripe_vacant(const struct volume *volume, uint32_t member);

/* ---- stripe.c: several volumes. ---- */
int stripe_open(const struct volume_opts *opts, struct volume *volume);
/* Why a volume was not taken. */
const char *stripe_why(int error);
int stripe_super_write(struct volume *volume);
/* Writes a superblock to one volume, and flushes. */
int stripe_label(struct disk *disk, const struct superblock *from);
/* Whether a volume with the superblock `own` is a member by the superblock `super`: one that was
 * removed, or not added completely, is not. */
bool stripe_belongs(const struct superblock *super, const struct superblock *own);
/* Opens a volume in the place of a missing member that was not opened: 0 with its disk, which may
 * still have to grow, and the number of its path, which is none of paths_but; or -errno. Blocks. */
struct stripe_found {
	uint32_t member;
	uint32_t path_idx;
	struct disk *disk;
};
int stripe_candidate(const struct volume_opts *opts, struct volume *volume, uint64_t paths_but,
	struct stripe_found *ret_found);
/* Whether the volume on the own disk of a member that was gone is still this member's, or blank. */
int stripe_member_known(const struct volume_opts *opts, struct volume *volume, uint32_t member);
/* Under volume->lock: another volume than before is this member. The former one is no member any
 * more as soon as a superblock counts. */
void stripe_member_anew(struct superblock *super, uint32_t member);
/* 0: it is this member's volume with the last superblock of all good ones. -ESTALE: another
 * member's, or an older copy; errors of volume_super_of, which are not logged. */
int stripe_member_whole(const struct volume *volume, uint32_t member);
/* Fiber call, before a group is acknowledged: if a volume failed since the last call, records that
 * on the others. -EHOSTDOWN: too few are left. */
int stripe_settle(struct volume *volume);
/* The same outside of fibers; blocks. */
int stripe_settle_now(struct volume *volume);

/* ---- modes.c ---- */
/* Removes the access rights of all users except the owner from the store's directory and files.
 * Logs the change, and the files that it could not change. */
void modes_check(const char *dir);
/* The same for a volume elsewhere; devices stay unchanged. */
void modes_check_file(const char *path);

#endif
