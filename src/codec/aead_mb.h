/* codec/aead_mb.h: AES-256-GCM by libipsec-mb, where the host has it. Private to codec/aead.c. */
#ifndef CODEC_AEAD_MB_H
#define CODEC_AEAD_MB_H

#include <stddef.h>
#include <stdint.h>

#define AEAD_MB_KEY_ALIGN   64u
#define AEAD_MB_STATE_BYTES 128u /* at least those of struct gcm_context_data */

/* The library's. */
struct gcm_key_data;
struct gcm_context_data;

/* Its functions for this processor; [1] seals, [0] unseals. Both write the tag that they found. */
struct aead_mb {
	size_t key_bytes; /* of struct gcm_key_data */
	void (*pre)(const void *key, struct gcm_key_data *ret_key);
	void (*message[2])(const struct gcm_key_data *key, struct gcm_context_data *state,
		uint8_t *dst, const uint8_t *src, uint64_t len, const uint8_t *nonce,
		const uint8_t *aad, uint64_t aad_len, uint8_t *tag, uint64_t tag_len);
	void (*init)(const struct gcm_key_data *key, struct gcm_context_data *state,
		const uint8_t *nonce, const uint8_t *aad, uint64_t aad_len);
	void (*update[2])(const struct gcm_key_data *key, struct gcm_context_data *state,
		uint8_t *dst, const uint8_t *src, uint64_t len);
	void (*end[2])(const struct gcm_key_data *key, struct gcm_context_data *state, uint8_t *tag,
		uint64_t tag_len);
};

/* Loads the library at the first call. NULL: it is not installed, has another version than the
 * build's header, or the processor has no instructions for AES. */
const struct aead_mb *aead_mb_find(void);

#endif
