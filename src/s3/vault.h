/* s3/vault.h: KMS keys that a key service holds, over the HTTP API of Vault's transit secrets
 * engine. Each KMS key has one current sealing key (32 random bytes), which seals data keys. The
 * service encrypts the sealing key once; its ciphertext is stored with every object sealed by it,
 * and the service decrypts it for reads. Both are cached for a bounded time, so that the service
 * sees few calls, and a key that the service revokes stops working here when the time is over.
 *
 * Source: Vault's API documentation, "Transit secrets engine": encrypt, decrypt. */
#ifndef S3_VAULT_H
#define S3_VAULT_H

#include "base/base.h"

#define S3_VAULT_KEY_BYTES  32u
#define S3_VAULT_TEXT_MAX   512u  /* of an encrypted key: "vault:v1:…" */
#define S3_VAULT_CACHED_MAX 1024u /* keys in memory */

struct s3_vault;
struct s3_vault_opts {
	const char *address;	/* "https://vault.example.com:8200" */
	const char *token_file; /* read for each call: replace the file to renew it */
	const char *mount;	/* "transit" */
	const char *keys;	/* names, separated by commas */
	const char *ca_file;	/* PEM; NULL or empty: the system's */
	uint32_t cache_s;
};
/* -EINVAL: a malformed address, no token file, or no keys (logged). */
int s3_vault_open(const struct s3_vault_opts *opts, struct s3_vault **ret_vault);
void s3_vault_close(struct s3_vault *vault);			    /* wipes; takes NULL */
bool s3_vault_has(const struct s3_vault *vault, struct slice name); /* takes NULL */

/* Fiber calls on any reactor. -ETIMEDOUT, -EIO: the service does not answer, or its answer is
 * malformed; -EACCES: it refuses. All are logged. For a second after a failure, calls get the same
 * error without a request. */
/* The current sealing key, and its ciphertext from the service. */
int s3_vault_current(struct s3_vault *vault, struct slice name, uint8_t ret_key[S3_VAULT_KEY_BYTES],
	char ret_text[S3_VAULT_TEXT_MAX + 1]);
/* The key whose ciphertext is text. */
int s3_vault_key_of(struct s3_vault *vault, struct slice name, struct slice text,
	uint8_t ret_key[S3_VAULT_KEY_BYTES]);

#endif
