/* server/keys.h: the file of master keys of encryption at rest. */
#ifndef SERVER_KEYS_H
#define SERVER_KEYS_H

#include "server/config.h"

#define KEYS_BYTES_MAX 4096u

/* Reads the text of encryption.key_file. The store's own key file is created only for a fresh
 * store, where no encrypted data can need another key. Logs what is wrong. */
int keys_read(const struct config *config, bool fresh, char ret_text[KEYS_BYTES_MAX]);

#endif
