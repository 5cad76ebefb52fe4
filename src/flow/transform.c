/* flow/transform.c: a stage that changes pieces in place: AES-256 in counter mode (NIST SP
 * 800-38A), its own inverse, over any length. */
#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>

#include "flow/flow.h"

struct flow_cipher {
	struct flow_stage stage;
	EVP_CIPHER_CTX *ctx;
};

static int cipher_piece(struct flow_stage *stage, const struct flow_piece *piece)
{
	struct flow_cipher *self = CONTAINER_OF(stage, struct flow_cipher, stage);
	int bytes = 0;

	if (piece->hold != FLOW_HOLD_LEASE)
		return -EROFS;
	if (EVP_EncryptUpdate(self->ctx, piece->data, &bytes, piece->data, (int)piece->bytes) !=
			1 ||
		bytes != (int)piece->bytes)
		return -EIO;
	return 0;
}

static const struct flow_stage_ops CIPHER_OPS = {.name = "aes256ctr", .piece = cipher_piece};

int flow_cipher_open(const uint8_t key[FLOW_CIPHER_KEY_BYTES],
	const uint8_t counter[FLOW_CIPHER_COUNTER_BYTES], struct flow_stage **ret_stage)
{
	struct flow_cipher *self = calloc(1, sizeof(*self));

	if (!self)
		return -ENOMEM;
	self->stage.ops = &CIPHER_OPS;
	self->ctx = EVP_CIPHER_CTX_new();
	if (!self->ctx ||
		EVP_EncryptInit_ex(self->ctx, EVP_aes_256_ctr(), NULL, key, counter) != 1) {
		flow_cipher_close(&self->stage);
		return -ENOMEM;
	}
	*ret_stage = &self->stage;
	return 0;
}

void flow_cipher_close(struct flow_stage *stage)
{
	struct flow_cipher *self;

	if (!stage)
		return;
	self = CONTAINER_OF(stage, struct flow_cipher, stage);
	EVP_CIPHER_CTX_free(self->ctx);
	free(self);
}
