/* server/identities.h: reads the server's own files about identities: the accounts' file, and the
 * key that seals secrets in the store. */
#ifndef SERVER_IDENTITIES_H
#define SERVER_IDENTITIES_H

#include <stdint.h>

#include "server/config.h"

/* Converts a YAML file (JSON is YAML too) to JSON, which the caller frees. -errno, with the
 * reason. */
int identities_load(const char *path, char **ret_json, struct config_error *ret_error);
/* Reads the key from a file of 32 bytes. When there is no file and the store is fresh, so that
 * nothing is sealed yet, makes one that only its owner can read. -errno, with the reason. */
#define IDENTITIES_KEY_BYTES 32u
int identities_key(const char *path, bool fresh, uint8_t ret_key[IDENTITIES_KEY_BYTES],
	struct config_error *ret_error);

#endif
