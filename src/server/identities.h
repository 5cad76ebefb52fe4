/* server/identities.h: what the server reads of its own about who there is: the accounts' file, and
 * the key that seals secrets in the store. */
#ifndef SERVER_IDENTITIES_H
#define SERVER_IDENTITIES_H

#include <stdint.h>

#include "server/config.h"

/* A YAML file (JSON is YAML too) as JSON, to be freed. -errno, with the reason. */
int identities_load(const char *path, char **ret_json, struct config_error *ret_error);
/* The key in a file of 32 bytes, made (readable by its owner alone) when there is none and the
 * store is fresh: nothing is sealed with it yet. -errno, with the reason. */
#define IDENTITIES_KEY_BYTES 32u
int identities_key(const char *path, bool fresh, uint8_t ret_key[IDENTITIES_KEY_BYTES],
	struct config_error *ret_error);

#endif
