/* codec/aead.c: AES-256-GCM by libcrypto's EVP. The key schedule is made once, at open; a message
 * only sets its nonce. */
#include "codec/aead.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>

#include "base/base.h"
#include "codec/hash.h"

/* EVP takes lengths as int. */
#define EVP_STEP_BYTES (1ull << 30)

struct aead {
	EVP_CIPHER_CTX *seal;
	EVP_CIPHER_CTX *unseal;
};

int aead_open(const uint8_t key[AEAD_KEY_BYTES], struct aead **ret_aead)
{
	struct aead *aead = calloc(1, sizeof(*aead));

	if (!aead)
		return -ENOMEM;
	aead->seal = EVP_CIPHER_CTX_new();
	aead->unseal = EVP_CIPHER_CTX_new();
	/* EVP's default nonce for GCM is AEAD_NONCE_BYTES long. */
	if (!aead->seal || !aead->unseal ||
		!EVP_EncryptInit_ex(aead->seal, EVP_aes_256_gcm(), NULL, key, NULL) ||
		!EVP_DecryptInit_ex(aead->unseal, EVP_aes_256_gcm(), NULL, key, NULL)) {
		aead_close(aead);
		return -ENOMEM;
	}
	*ret_aead = aead;
	return 0;
}

void aead_close(struct aead *aead)
{
	if (!aead)
		return;
	EVP_CIPHER_CTX_free(aead->seal); /* wipes */
	EVP_CIPHER_CTX_free(aead->unseal);
	free(aead);
}

/* Feeds bytes to a context set up either way; dst is NULL for bytes that are only authenticated. */
static int feed(EVP_CIPHER_CTX *ctx, const void *src, void *dst, size_t len)
{
	const uint8_t *from = src;
	uint8_t *to = dst;

	while (len) {
		int step = (int)MIN(len, EVP_STEP_BYTES), done;

		if (!EVP_CipherUpdate(ctx, to, &done, from, step) || done != step)
			return -EIO;
		from += step;
		to = to ? to + step : NULL;
		len -= (size_t)step;
	}
	return 0;
}

int aead_seal(struct aead *aead, const struct aead_message *message)
{
	EVP_CIPHER_CTX *ctx = aead->seal;
	int done;

	if (!EVP_EncryptInit_ex(ctx, NULL, NULL, NULL, message->nonce) ||
		feed(ctx, message->aad.data, NULL, message->aad.len) ||
		feed(ctx, message->src, message->dst, message->len) ||
		!EVP_EncryptFinal_ex(ctx, NULL, &done) ||
		!EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, AEAD_TAG_BYTES, message->tag))
		return -EIO;
	return 0;
}

int aead_unseal(struct aead *aead, const struct aead_message *message)
{
	EVP_CIPHER_CTX *ctx = aead->unseal;
	int done;

	if (!EVP_DecryptInit_ex(ctx, NULL, NULL, NULL, message->nonce) ||
		feed(ctx, message->aad.data, NULL, message->aad.len) ||
		feed(ctx, message->src, message->dst, message->len) ||
		!EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, AEAD_TAG_BYTES, message->tag))
		return -EIO;
	if (EVP_DecryptFinal_ex(ctx, NULL, &done))
		return 0;
	if (message->len)
		secret_wipe(message->dst, message->len);
	return -EBADMSG;
}

/* ---- Streams. ---- */

struct aead_stream {
	EVP_CIPHER_CTX *ctx;
	bool seal;
};

int aead_stream_open(const uint8_t key[AEAD_KEY_BYTES], const uint8_t nonce[AEAD_NONCE_BYTES],
	bool seal, struct aead_stream **ret_stream)
{
	struct aead_stream *stream = calloc(1, sizeof(*stream));

	if (!stream)
		return -ENOMEM;
	stream->seal = seal;
	stream->ctx = EVP_CIPHER_CTX_new();
	if (!stream->ctx ||
		!EVP_CipherInit_ex(stream->ctx, EVP_aes_256_gcm(), NULL, key, nonce, seal)) {
		aead_stream_close(stream);
		return -ENOMEM;
	}
	*ret_stream = stream;
	return 0;
}

void aead_stream_close(struct aead_stream *stream)
{
	if (!stream)
		return;
	EVP_CIPHER_CTX_free(stream->ctx); /* wipes */
	free(stream);
}

int aead_stream_restart(struct aead_stream *stream, const uint8_t nonce[AEAD_NONCE_BYTES])
{
	return EVP_CipherInit_ex(stream->ctx, NULL, NULL, NULL, nonce, -1) ? 0 : -EIO;
}

int aead_stream_take(struct aead_stream **spare, const uint8_t key[AEAD_KEY_BYTES],
	const uint8_t nonce[AEAD_NONCE_BYTES], bool seal, struct aead_stream **ret_stream)
{
	struct aead_stream *stream = *spare;

	if (!stream)
		return aead_stream_open(key, nonce, seal, ret_stream);
	CHECK(stream->seal == seal);
	*spare = NULL;
	if (aead_stream_restart(stream, nonce)) {
		aead_stream_close(stream);
		return -EIO;
	}
	*ret_stream = stream;
	return 0;
}

void aead_stream_keep(struct aead_stream **spare, struct aead_stream *stream)
{
	if (*spare)
		aead_stream_close(stream);
	else
		*spare = stream;
}

int aead_stream_update(struct aead_stream *stream, const void *src, void *dst, size_t len)
{
	return feed(stream->ctx, src, dst, len);
}

int aead_stream_end(struct aead_stream *stream, uint8_t tag[AEAD_TAG_BYTES])
{
	int done;

	if (!stream->seal &&
		!EVP_CIPHER_CTX_ctrl(stream->ctx, EVP_CTRL_AEAD_SET_TAG, AEAD_TAG_BYTES, tag))
		return -EIO;
	if (!EVP_CipherFinal_ex(stream->ctx, NULL, &done))
		return stream->seal ? -EIO : -EBADMSG;
	if (stream->seal &&
		!EVP_CIPHER_CTX_ctrl(stream->ctx, EVP_CTRL_AEAD_GET_TAG, AEAD_TAG_BYTES, tag))
		return -EIO;
	return 0;
}
