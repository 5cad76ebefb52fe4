/* server/recovery.h: the key files of a protected store in its volumes, sealed under the operator's
 * recovery key, so that the volumes and that key are enough after the loss of the data folder. */
#ifndef SERVER_RECOVERY_H
#define SERVER_RECOVERY_H

#include "server/config.h"
#include "store/local.h"

#define RECOVERY_KEY_BYTES 32u
/* The operator's key: 1; 0: none is configured; -errno with a log line. */
int recovery_key_read(const struct config *config, uint8_t ret_key[RECOVERY_KEY_BYTES]);

struct recovery_file {
	const char *name; /* in the volumes */
	const char *path;
};

/* The server's key files, as the configuration has them. */
struct recovery_paths {
	char secrets[2 * CONFIG_TEXT_MAX], encryption[2 * CONFIG_TEXT_MAX];
	struct recovery_file files[2]; /* their paths point into the others */
};
void recovery_paths(const struct config *config, struct recovery_paths *ret_paths);

/* Makes the files that are missing from their sealed copies. Without a sealed copy, or without
 * storage.recovery_key_file, a missing file stays missing. Blocks. -EBADMSG: the recovery key is
 * another one; logs what is wrong. */
int recovery_restore(const struct config *config, struct store *store,
	const struct recovery_file *files, uint32_t count);
/* The same for a backup's sealed copies: get appends that of a name, or is -ENOENT. Files that have
 * other keys are set aside. */
typedef int recovery_get_fn(void *arg, const char *name, struct buf *out);
int recovery_restore_from(const struct config *config, const struct recovery_paths *paths,
	recovery_get_fn *get, void *arg);
/* Seals the files and stores the copies that changed, when there is a recovery key. Blocks. Logs
 * what is wrong. */
int recovery_keep(const struct config *config, struct store *store,
	const struct recovery_file *files, uint32_t count);

#endif
