/* flow/transform_crypt.c: encryption of a flow. aes256ctr: AES-256 in counter mode (NIST SP
 * 800-38A), in place, its own inverse. aes256gcm and aes256gcm-decrypt: sealed streams by
 * docs/spec/sealed.md, authenticated, in messages of AES-256-GCM; no byte of a message is passed on
 * before its tag was verified. */
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "flow/transform_priv.h"

/* ---- Counter mode. ---- */

#define CTR_KEY_BYTES	  32u
#define CTR_COUNTER_BYTES 16u

struct ctr_keys {
	uint8_t key[CTR_KEY_BYTES], counter[CTR_COUNTER_BYTES];
};

static int ctr_open_file(const char *options, char *why, size_t why_bytes, void **ret_state)
{
	struct ctr_keys keys;
	EVP_CIPHER_CTX *ctx;
	int ret = flow_transform_key(options, (uint8_t *)&keys, sizeof(keys), why, why_bytes);

	if (ret)
		return ret;
	ctx = EVP_CIPHER_CTX_new();
	if (!ctx || EVP_EncryptInit_ex(ctx, EVP_aes_256_ctr(), NULL, keys.key, keys.counter) != 1) {
		EVP_CIPHER_CTX_free(ctx);
		ret = -ENOMEM;
	} else {
		*ret_state = ctx;
	}
	secret_wipe(&keys, sizeof(keys));
	return ret;
}

static int ctr_change(void *state, uint8_t *data, size_t *bytes, size_t capacity)
{
	int done = 0;

	(void)capacity;
	if (EVP_EncryptUpdate(state, data, &done, data, (int)*bytes) != 1 || done != (int)*bytes)
		return -EIO;
	return 0;
}

static void ctr_free(void *state)
{
	EVP_CIPHER_CTX_free(state);
}

const struct neb_transform FLOW_TRANSFORM_CTR = {.version = NEB_TRANSFORM_VERSION,
	.flags = NEB_TRANSFORM_SAME_LENGTH,
	.name = "aes256ctr",
	.open = ctr_open_file,
	.change = ctr_change,
	.close = ctr_free};

/* ---- Sealed streams. ---- */

#define SEAL_MESSAGE_BYTES (64 * KIB)
#define SEAL_SALT_BYTES	   16u
#define SEAL_CHECK_BYTES   8u

/* At a stream's start. The key is derived from all of it. */
struct seal_head {
	uint8_t magic[8];
	uint8_t salt[SEAL_SALT_BYTES];
	uint8_t check[SEAL_CHECK_BYTES]; /* distinguishes a wrong key from damage */
};
_Static_assert(sizeof(struct seal_head) == 32, "as it is written");
_Static_assert(NEB_TRANSFORM_ROOM >= sizeof(struct seal_head) + SEAL_MESSAGE_BYTES + AEAD_TAG_BYTES,
	"a message has room");
static const uint8_t MAGIC[8] = {'N', 'E', 'B', 'S', 'E', 'A', 'L', '1'};
static const char INFO[] = "nebulaio flow aes256gcm";

struct seal {
	uint8_t secret[AEAD_KEY_BYTES];
	struct aead *aead; /* NULL before the head */
	struct seal_head head;
	uint64_t number; /* of the next message */
	/* Bytes of an incomplete message, or a whole message that may be the last. */
	size_t held;
	uint8_t bytes[SEAL_MESSAGE_BYTES + AEAD_TAG_BYTES];
	const char *why;
};

/* The stream's own key, from the secret and the head's first 24 bytes. */
static int key_make(struct seal *self, uint8_t ret_check[SEAL_CHECK_BYTES])
{
	struct {
		uint8_t key[AEAD_KEY_BYTES], check[SEAL_CHECK_BYTES];
	} out;
	int ret = hkdf_sha256(slice_of(self->secret, sizeof(self->secret)),
		slice_of(&self->head, sizeof(MAGIC) + SEAL_SALT_BYTES), slice_str(INFO), &out,
		sizeof(out));

	if (!ret)
		ret = aead_open(out.key, &self->aead);
	memcpy(ret_check, out.check, SEAL_CHECK_BYTES);
	secret_wipe(&out, sizeof(out));
	return ret;
}

/* The message's number, and whether it is the last: no two messages of a stream have the same
 * nonce, and a truncated stream does not verify. */
static void nonce_make(struct seal *self, bool last, uint8_t nonce[AEAD_NONCE_BYTES])
{
	uint64_t number = self->number++;

	memset(nonce, 0, AEAD_NONCE_BYTES);
	for (int i = 7; i >= 0; i--, number >>= 8)
		nonce[i] = (uint8_t)number;
	nonce[AEAD_NONCE_BYTES - 1] = last;
}

static int seal_open(const char *options, char *why, size_t why_bytes, void **ret_state)
{
	struct seal *self = calloc(1, sizeof(*self));
	int ret;

	if (!self)
		return -ENOMEM;
	ret = flow_transform_key(options, self->secret, sizeof(self->secret), why, why_bytes);
	if (ret) {
		free(self);
		return ret;
	}
	*ret_state = self;
	return 0;
}

static void seal_close(void *state)
{
	struct seal *self = state;

	aead_close(self->aead);
	secret_wipe(self, sizeof(*self));
	free(self);
}

static const char *seal_why(void *state)
{
	const struct seal *self = state;

	return self->why;
}

/* ---- Sealing. ---- */

/* Appends to out, which has room. */
static int message_seal(struct seal *self, bool last, const uint8_t *data, size_t bytes,
	struct neb_transform_out *out)
{
	uint8_t nonce[AEAD_NONCE_BYTES], *to = out->data + out->bytes;
	int ret;

	nonce_make(self, last, nonce);
	ret = aead_seal(self->aead,
		&(struct aead_message){
			.nonce = nonce, .src = data, .dst = to, .len = bytes, .tag = to + bytes});
	out->bytes += bytes + AEAD_TAG_BYTES;
	return ret;
}

static int head_write(struct seal *self, struct neb_transform_out *out)
{
	int ret;

	if (self->aead)
		return 0;
	memcpy(self->head.magic, MAGIC, sizeof(MAGIC));
	if (getrandom(self->head.salt, SEAL_SALT_BYTES, 0) != SEAL_SALT_BYTES)
		return -EIO;
	ret = key_make(self, self->head.check);
	if (ret)
		return ret;
	memcpy(out->data, &self->head, sizeof(self->head));
	out->bytes = sizeof(self->head);
	return 0;
}

static bool message_fits(const struct neb_transform_out *out)
{
	return out->capacity - out->bytes >= SEAL_MESSAGE_BYTES + AEAD_TAG_BYTES;
}

/* A full message is sealed when another byte follows, because it is then not the last. */
static int seal_convert(void *state, struct neb_transform_in *in, struct neb_transform_out *out)
{
	struct seal *self = state;
	int ret = head_write(self, out);

	while (!ret && in->taken < in->bytes) {
		size_t left = in->bytes - in->taken, bytes;

		if (self->held == SEAL_MESSAGE_BYTES) {
			if (!message_fits(out))
				return 0;
			ret = message_seal(self, false, self->bytes, self->held, out);
			self->held = 0;
		} else if (!self->held && left > SEAL_MESSAGE_BYTES) {
			if (!message_fits(out))
				return 0;
			ret = message_seal(
				self, false, in->data + in->taken, SEAL_MESSAGE_BYTES, out);
			in->taken += SEAL_MESSAGE_BYTES;
		} else {
			bytes = MIN(left, SEAL_MESSAGE_BYTES - self->held);
			memcpy(self->bytes + self->held, in->data + in->taken, bytes);
			self->held += bytes;
			in->taken += bytes;
		}
	}
	return ret;
}

static int seal_flush(void *state, struct neb_transform_out *out)
{
	struct seal *self = state;
	int ret = head_write(self, out);

	return ret ? ret : message_seal(self, true, self->bytes, self->held, out);
}

const struct neb_transform FLOW_TRANSFORM_SEAL = {.version = NEB_TRANSFORM_VERSION,
	.name = "aes256gcm",
	.open = seal_open,
	.convert = seal_convert,
	.flush = seal_flush,
	.close = seal_close};

/* ---- Unsealing. ---- */

static int damaged(struct seal *self, const char *why)
{
	self->why = why;
	return -EBADMSG;
}

static int head_read(struct seal *self)
{
	uint8_t check[SEAL_CHECK_BYTES];
	int ret;

	memcpy(&self->head, self->bytes, sizeof(self->head));
	self->held = 0;
	if (memcmp(self->head.magic, MAGIC, sizeof(MAGIC)) != 0)
		return damaged(self, "this is no sealed stream");
	ret = key_make(self, check);
	if (!ret && !secret_equal(check, self->head.check, sizeof(check)))
		ret = damaged(self, "it was sealed with another key, or its head is damaged");
	return ret;
}

static int message_unseal(struct seal *self, bool last, const uint8_t *data, size_t bytes,
	struct neb_transform_out *out)
{
	uint8_t nonce[AEAD_NONCE_BYTES], tag[AEAD_TAG_BYTES];
	size_t plain = bytes - AEAD_TAG_BYTES;
	int ret;

	nonce_make(self, last, nonce);
	memcpy(tag, data + plain, sizeof(tag));
	ret = aead_unseal(self->aead, &(struct aead_message){.nonce = nonce,
					      .src = data,
					      .dst = out->data + out->bytes,
					      .len = plain,
					      .tag = tag});
	if (!ret)
		out->bytes += plain;
	else if (ret == -EBADMSG)
		damaged(self, last ? "it is damaged, or cut off" : "it is damaged");
	return ret;
}

static int unseal_convert(void *state, struct neb_transform_in *in, struct neb_transform_out *out)
{
	const size_t whole = SEAL_MESSAGE_BYTES + AEAD_TAG_BYTES;
	struct seal *self = state;
	int ret = 0;

	while (!ret && in->taken < in->bytes) {
		size_t left = in->bytes - in->taken, bytes;
		size_t wanted = self->aead ? whole : sizeof(self->head);

		if (self->aead && (self->held == whole || (!self->held && left > whole))) {
			const uint8_t *data = self->held ? self->bytes : in->data + in->taken;

			if (out->capacity - out->bytes < SEAL_MESSAGE_BYTES)
				return 0;
			ret = message_unseal(self, false, data, whole, out);
			in->taken += self->held ? 0 : whole;
			self->held = 0;
			continue;
		}
		bytes = MIN(left, wanted - self->held);
		memcpy(self->bytes + self->held, in->data + in->taken, bytes);
		self->held += bytes;
		in->taken += bytes;
		if (!self->aead && self->held == wanted)
			ret = head_read(self);
	}
	return ret;
}

static int unseal_flush(void *state, struct neb_transform_out *out)
{
	struct seal *self = state;

	if (!self->aead || self->held < AEAD_TAG_BYTES)
		return damaged(self, "it is cut off");
	return message_unseal(self, true, self->bytes, self->held, out);
}

const struct neb_transform FLOW_TRANSFORM_UNSEAL = {.version = NEB_TRANSFORM_VERSION,
	.name = "aes256gcm-decrypt",
	.open = seal_open,
	.convert = unseal_convert,
	.flush = unseal_flush,
	.why = seal_why,
	.close = seal_close};
