/* codec/aead.h: AES-256-GCM (NIST SP 800-38D) with a 96-bit nonce and a 128-bit tag.
 *
 * The caller must never use one nonce twice with the same key: that breaks GCM. Use one key per
 * direction and a counter. */
#ifndef CODEC_AEAD_H
#define CODEC_AEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"

#define AEAD_KEY_BYTES	 32u
#define AEAD_NONCE_BYTES 12u
#define AEAD_TAG_BYTES	 16u
/* Of one message: the 32 bits of its block counter hold no more (SP 800-38D, 5.2.1.1). */
#define AEAD_MESSAGE_BYTES_MAX ((1ull << 36) - 32)

struct aead; /* a key with its schedule; one thread at a time */

/* On the heap, once per session. -ENOMEM. */
int aead_open(const uint8_t key[AEAD_KEY_BYTES], struct aead **ret_aead);
void aead_close(struct aead *aead); /* wipes the key; takes NULL */

/* One message. src and dst are len bytes each and are the same memory or do not overlap; aad is
 * authenticated and stays in the clear. */
struct aead_message {
	const uint8_t *nonce; /* AEAD_NONCE_BYTES */
	struct slice aad;
	const void *src;
	void *dst;
	size_t len;
	uint8_t *tag; /* AEAD_TAG_BYTES: seal writes it, unseal checks it */
};

/* No heap use. -EIO: libcrypto refused; -EMSGSIZE, both: beyond AEAD_MESSAGE_BYTES_MAX, and nothing
 * was done. */
int aead_seal(struct aead *aead, const struct aead_message *message);
/* -EBADMSG when the tag does not match: dst is then zeroed and must not be used. */
int aead_unseal(struct aead *aead, const struct aead_message *message);

/* ---- A message in pieces: the output is the same as in one call. ---- */
struct aead_stream;
/* -ENOMEM. */
int aead_stream_open(const uint8_t key[AEAD_KEY_BYTES], const uint8_t nonce[AEAD_NONCE_BYTES],
	bool seal, struct aead_stream **ret_stream);
void aead_stream_close(struct aead_stream *stream); /* wipes; takes NULL */
/* Begins another message under the same key, whatever the state of the previous one. -EIO. */
int aead_stream_restart(struct aead_stream *stream, const uint8_t nonce[AEAD_NONCE_BYTES]);
/* For messages that come often under one key, because making a stream costs half as much as sealing
 * 4 KiB: takes the stream in *spare, or opens one. -ENOMEM, -EIO. All streams of a spare have one
 * key and one direction. */
int aead_stream_take(struct aead_stream **spare, const uint8_t key[AEAD_KEY_BYTES],
	const uint8_t nonce[AEAD_NONCE_BYTES], bool seal, struct aead_stream **ret_stream);
/* Ends the use of a stream, whatever its state: it is the next spare, or is closed when there is
 * one already. Takes NULL. */
void aead_stream_keep(struct aead_stream **spare, struct aead_stream *stream);
/* src and dst as in struct aead_message. Do not trust decrypted output before aead_stream_end has
 * verified the tag. -EMSGSIZE: the message would pass AEAD_MESSAGE_BYTES_MAX, and these bytes were
 * not taken; -EIO. */
int aead_stream_update(struct aead_stream *stream, const void *src, void *dst, size_t len);
/* Seals: writes the tag. Unseals: 0, or -EBADMSG when the tag does not match. */
int aead_stream_end(struct aead_stream *stream, uint8_t tag[AEAD_TAG_BYTES]);

/* For tests and measurements: keys that are opened from now on use libcrypto, whatever else there
 * is. */
void aead_only_libcrypto(bool only);

#endif
