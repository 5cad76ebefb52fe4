/* server/keys.h: the file of master keys of encryption at rest. */
#ifndef SERVER_KEYS_H
#define SERVER_KEYS_H

#include "server/config.h"

#define KEYS_BYTES_MAX 4096u

/* The text of encryption.key_file; the file of its own is made for a store that is fresh, which has
 * nothing that a key is missed for. Logs what is wrong. */
int keys_read(const struct config *config, bool fresh, char ret_text[KEYS_BYTES_MAX]);

#endif
