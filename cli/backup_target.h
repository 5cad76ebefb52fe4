/* cli/backup_target.h: where a backup lies: a folder, or a prefix of a bucket of any S3 server.
 * Every file is written whole or not at all, and never changed. */
#ifndef CLI_BACKUP_TARGET_H
#define CLI_BACKUP_TARGET_H

#include "base/base.h"
#include "profile.h"
#include "remote.h"

#define TARGET_PATH_BYTES 4096u

struct target {
	char text[TARGET_PATH_BYTES]; /* as it was given, for messages */
	char *place;		      /* a copy that bucket and prefix point into */
	const char *folder;	      /* NULL: in a bucket */
	const char *bucket, *prefix;
	struct neb_client *client;
	int lock_fd;
};

/* The options of a target that is a bucket; in usage texts as TARGET_USAGE. */
struct target_opts {
	const char *endpoint;
	const char *profile;
};
#define TARGET_USAGE                                                                          \
	"  --target-endpoint URL  of a backup in a bucket: that server; the keys are those\n" \
	"                     of NEBULAIO_ACCESS_KEY and so on\n"                             \
	"  --target-profile NAME  that server and its keys, of ~/.config/nebulaio/config\n"

/* All return an exit code, and have printed why. */

/* place: a folder, or s3://BUCKET[/PREFIX]. writes: makes a folder that is missing, and keeps other
 * backups away from it. */
int target_open(
	struct target *target, const char *place, const struct target_opts *opts, bool writes);
void target_close(struct target *target);

/* Stores the parts, one after the other, as a file. */
#define TARGET_PARTS_MAX 4u
int target_put(struct target *target, const char *name, const struct slice *parts, uint32_t count);
/* As target_put(); a file of that name that exists is an error. */
int target_put_new(
	struct target *target, const char *name, const struct slice *parts, uint32_t count);
/* Reads a whole file; CLI_NOT_FOUND, without a message: there is none. */
int target_get(struct target *target, const char *name, struct buf *out);
/* Reads a part of a file: exactly these bytes, else CLI_DAMAGED. */
struct target_range {
	uint64_t offset, bytes;
};
int target_read(
	struct target *target, const char *name, const struct target_range *range, void *out);
/* CLI_NOT_FOUND, without a message. */
int target_has(struct target *target, const char *name);
int target_remove(struct target *target, const char *name);
/* Makes everything durable that was stored so far. */
int target_sync(struct target *target);
/* Visits the names below a folder of the target, in no order; below a folder of it, too; not
 * deeper. */
typedef void target_visit_fn(void *arg, const char *name);
int target_list(struct target *target, const char *folder, target_visit_fn *visit, void *arg);

#endif
