/* s3/vault.h: KMS keys that a key service holds, spoken to by the HTTP API of Vault's transit
 * secrets engine. Each key has, at a time, one key of ours that seals data keys (32 random bytes):
 * the service encrypts it once, and what it made of it is kept with every object that is sealed by
 * it; to read those the service decrypts it again. Both are cached for a bounded time, so that the
 * service sees few calls, and what it takes away is gone here when that is over.
 *
 * Source: Vault's API documentation, "Transit secrets engine": encrypt, decrypt. */
#ifndef S3_VAULT_H
#define S3_VAULT_H

#include "base/base.h"

#define S3_VAULT_KEY_BYTES  32u
#define S3_VAULT_TEXT_MAX   512u  /* of what the service makes of a key: "vault:v1:…" */
#define S3_VAULT_CACHED_MAX 1024u /* keys in memory */

struct s3_vault;
struct s3_vault_opts {
	const char *address;	/* "https://vault.example.com:8200" */
	const char *token_file; /* read for each call: who renews it replaces the file */
	const char *mount;	/* "transit" */
	const char *keys;	/* names, separated by commas */
	const char *ca_file;	/* PEM; NULL or empty: the system's */
	uint32_t cache_s;
};
/* -EINVAL: an address that is none, no token file, or no keys (logged). */
int s3_vault_open(const struct s3_vault_opts *opts, struct s3_vault **ret_vault);
void s3_vault_close(struct s3_vault *vault);			    /* wipes; takes NULL */
bool s3_vault_has(const struct s3_vault *vault, struct slice name); /* takes NULL */

/* Fiber calls on any reactor. -ETIMEDOUT, -EIO: the service does not answer, or answers nonsense;
 * -EACCES: it refuses; all logged, and for a second after a failure told without asking again. */
/* The key that seals now, and what the service made of it. */
int s3_vault_current(struct s3_vault *vault, struct slice name, uint8_t ret_key[S3_VAULT_KEY_BYTES],
	char ret_text[S3_VAULT_TEXT_MAX + 1]);
/* The key that the service made text of. */
int s3_vault_key_of(struct s3_vault *vault, struct slice name, struct slice text,
	uint8_t ret_key[S3_VAULT_KEY_BYTES]);

#endif
