/* disk/disk_joined.h: a volume of two: its first bytes, with the store's superblocks and log, on
 * one, all others on another. */
#ifndef DISK_JOINED_H
#define DISK_JOINED_H

#include "disk/disk_priv.h"

/* log://PATH?bodies=PATH */
#define DISK_JOINED_SCHEME "log://"

enum joined_part { JOINED_LOG, JOINED_BODIES, JOINED_PARTS };

struct joined {
	struct disk *parts[JOINED_PARTS];
	uint64_t log_bytes; /* of the volume, on the first part */
	uint64_t wanted_bytes;
	bool labelled; /* false: blank, or with other data, until it is grown */
};

extern const struct disk_ops DISK_JOINED_OPS;

/* disk_joined_dp.c */
void joined_issue(struct disk_io *io, const struct disk_core *core);
/* Does the part of a commit that belongs to the log, when that can be done at once: then the rest
 * of it, `*count` writes, is the returned disk's. */
struct disk *joined_commit(struct disk *disk, struct disk_commit *commit, uint32_t *count);

#endif
