/* codec/aead.c: AES-256-GCM by libipsec-mb where there is one, else by libcrypto's EVP. The key
 * schedule is made once, at open; a message only sets its nonce. */
#include "codec/aead.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>

#include "base/base.h"
#include "codec/aead_mb.h"
#include "codec/hash.h"

/* EVP takes lengths as int. */
#define EVP_STEP_BYTES (1ull << 30)

static _Atomic bool only_libcrypto;

void aead_only_libcrypto(bool only)
{
	atomic_store(&only_libcrypto, only);
}

/* ---- libipsec-mb. ---- */

/* A key; mb is NULL for one of libcrypto. */
struct mb_key {
	const struct aead_mb *mb;
	struct gcm_key_data *schedule;
};

/* A message's state: it has parts of the key stream. */
struct mb_state {
	uint8_t bytes[AEAD_MB_STATE_BYTES] __attribute__((aligned(64)));
};

static struct gcm_context_data *inside(struct mb_state *state)
{
	return (void *)state->bytes;
}

static int mb_key_open(const uint8_t key[AEAD_KEY_BYTES], struct mb_key *ret_key)
{
	const struct aead_mb *mb = atomic_load(&only_libcrypto) ? NULL : aead_mb_find();
	void *memory;

	ret_key->mb = NULL;
	if (!mb)
		return 0;
	if (posix_memalign(&memory, AEAD_MB_KEY_ALIGN, mb->key_bytes))
		return -ENOMEM;
	ret_key->mb = mb;
	ret_key->schedule = memory;
	mb->pre(key, ret_key->schedule);
	return 0;
}

static void mb_key_close(struct mb_key *key)
{
	if (!key->mb)
		return;
	secret_wipe(key->schedule, key->mb->key_bytes);
	free(key->schedule);
}

static void mb_begin(const struct mb_key *key, struct mb_state *state, const uint8_t *nonce)
{
	key->mb->init(key->schedule, inside(state), nonce, NULL, 0);
}

static void mb_feed(const struct mb_key *key, struct mb_state *state, bool seal, const void *src,
	void *dst, size_t len)
{
	if (len)
		key->mb->update[seal](key->schedule, inside(state), dst, src, len);
}

static void mb_end(const struct mb_key *key, struct mb_state *state, bool seal, uint8_t *tag)
{
	key->mb->end[seal](key->schedule, inside(state), tag, AEAD_TAG_BYTES);
	secret_wipe(state, sizeof(*state));
}

static void mb_message(const struct mb_key *key, bool seal, const struct aead_message *message,
	uint8_t tag[AEAD_TAG_BYTES])
{
	struct mb_state state;

	key->mb->message[seal](key->schedule, inside(&state), message->dst, message->src,
		message->len, message->nonce, (const uint8_t *)message->aad.data, message->aad.len,
		tag, AEAD_TAG_BYTES);
	secret_wipe(&state, sizeof(state));
}

/* ---- Messages in one piece. ---- */

struct aead {
	struct mb_key key;
	EVP_CIPHER_CTX *seal;
	EVP_CIPHER_CTX *unseal;
};

static int evp_open(const uint8_t key[AEAD_KEY_BYTES], struct aead *aead)
{
	aead->seal = EVP_CIPHER_CTX_new();
	aead->unseal = EVP_CIPHER_CTX_new();
	/* EVP's default nonce for GCM is AEAD_NONCE_BYTES long. */
	return aead->seal && aead->unseal &&
			       EVP_EncryptInit_ex(aead->seal, EVP_aes_256_gcm(), NULL, key, NULL) &&
			       EVP_DecryptInit_ex(aead->unseal, EVP_aes_256_gcm(), NULL, key, NULL)
		       ? 0
		       : -ENOMEM;
}

int aead_open(const uint8_t key[AEAD_KEY_BYTES], struct aead **ret_aead)
{
	struct aead *aead = calloc(1, sizeof(*aead));
	int ret = aead ? mb_key_open(key, &aead->key) : -ENOMEM;

	if (ret == 0 && !aead->key.mb)
		ret = evp_open(key, aead);
	if (ret == 0)
		*ret_aead = aead;
	else
		aead_close(aead);
	return ret;
}

void aead_close(struct aead *aead)
{
	if (!aead)
		return;
	mb_key_close(&aead->key);
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

	if (message->len > AEAD_MESSAGE_BYTES_MAX)
		return -EMSGSIZE;
	if (aead->key.mb) {
		mb_message(&aead->key, true, message, message->tag);
		return 0;
	}
	if (!EVP_EncryptInit_ex(ctx, NULL, NULL, NULL, message->nonce) ||
		feed(ctx, message->aad.data, NULL, message->aad.len) ||
		feed(ctx, message->src, message->dst, message->len) ||
		!EVP_EncryptFinal_ex(ctx, NULL, &done) ||
		!EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, AEAD_TAG_BYTES, message->tag))
		return -EIO;
	return 0;
}

/* The tag is wrong: nobody may use what was decrypted. */
static int refuse(const struct aead_message *message)
{
	if (message->len)
		secret_wipe(message->dst, message->len);
	return -EBADMSG;
}

int aead_unseal(struct aead *aead, const struct aead_message *message)
{
	EVP_CIPHER_CTX *ctx = aead->unseal;
	uint8_t tag[AEAD_TAG_BYTES];
	int done;

	if (message->len > AEAD_MESSAGE_BYTES_MAX)
		return -EMSGSIZE;
	if (aead->key.mb) {
		mb_message(&aead->key, false, message, tag);
		return secret_equal(tag, message->tag, sizeof(tag)) ? 0 : refuse(message);
	}
	if (!EVP_DecryptInit_ex(ctx, NULL, NULL, NULL, message->nonce) ||
		feed(ctx, message->aad.data, NULL, message->aad.len) ||
		feed(ctx, message->src, message->dst, message->len) ||
		!EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, AEAD_TAG_BYTES, message->tag))
		return -EIO;
	return EVP_DecryptFinal_ex(ctx, NULL, &done) ? 0 : refuse(message);
}

/* ---- Streams. ---- */

struct aead_stream {
	struct mb_key key;
	struct mb_state state;
	EVP_CIPHER_CTX *ctx;
	uint64_t bytes_left; /* of the message, at most */
	bool seal;
};

static int evp_stream_open(const uint8_t key[AEAD_KEY_BYTES], const uint8_t nonce[AEAD_NONCE_BYTES],
	struct aead_stream *stream)
{
	stream->ctx = EVP_CIPHER_CTX_new();
	return stream->ctx && EVP_CipherInit_ex(stream->ctx, EVP_aes_256_gcm(), NULL, key, nonce,
				      stream->seal)
		       ? 0
		       : -ENOMEM;
}

int aead_stream_open(const uint8_t key[AEAD_KEY_BYTES], const uint8_t nonce[AEAD_NONCE_BYTES],
	bool seal, struct aead_stream **ret_stream)
{
	struct aead_stream *stream = NULL;
	void *memory;
	int ret;

	if (posix_memalign(&memory, _Alignof(struct aead_stream), sizeof(*stream)))
		return -ENOMEM;
	stream = memory;
	*stream = (struct aead_stream){.bytes_left = AEAD_MESSAGE_BYTES_MAX, .seal = seal};
	ret = mb_key_open(key, &stream->key);
	if (ret == 0 && stream->key.mb)
		mb_begin(&stream->key, &stream->state, nonce);
	else if (ret == 0)
		ret = evp_stream_open(key, nonce, stream);
	if (ret == 0)
		*ret_stream = stream;
	else
		aead_stream_close(stream);
	return ret;
}

void aead_stream_close(struct aead_stream *stream)
{
	if (!stream)
		return;
	mb_key_close(&stream->key);
	secret_wipe(&stream->state, sizeof(stream->state));
	EVP_CIPHER_CTX_free(stream->ctx); /* wipes */
	free(stream);
}

int aead_stream_restart(struct aead_stream *stream, const uint8_t nonce[AEAD_NONCE_BYTES])
{
	stream->bytes_left = AEAD_MESSAGE_BYTES_MAX;
	if (stream->key.mb) {
		mb_begin(&stream->key, &stream->state, nonce);
		return 0;
	}
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
	if (len > stream->bytes_left)
		return -EMSGSIZE;
	stream->bytes_left -= len;
	if (!stream->key.mb)
		return feed(stream->ctx, src, dst, len);
	mb_feed(&stream->key, &stream->state, stream->seal, src, dst, len);
	return 0;
}

static int mb_stream_end(struct aead_stream *stream, uint8_t tag[AEAD_TAG_BYTES])
{
	uint8_t found[AEAD_TAG_BYTES];

	mb_end(&stream->key, &stream->state, stream->seal, found);
	if (!stream->seal)
		return secret_equal(found, tag, sizeof(found)) ? 0 : -EBADMSG;
	memcpy(tag, found, sizeof(found));
	return 0;
}

int aead_stream_end(struct aead_stream *stream, uint8_t tag[AEAD_TAG_BYTES])
{
	int done;

	if (stream->key.mb)
		return mb_stream_end(stream, tag);
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
