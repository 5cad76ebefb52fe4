/* iam/seal.c: seals secrets that are stored or given out: AES-256-GCM under the server's own key. A
 * nonce is random, 96 bits: far fewer than 2^32 are ever made. */
#include <errno.h>

#include "iam/iam_priv.h"

#define SEALED_BYTES_MAX (4 * KIB)
#define OVERHEAD	 (AEAD_NONCE_BYTES + AEAD_TAG_BYTES)

int iam_seal(struct iam *iam, struct slice about, struct slice text, struct buf *out)
{
	uint8_t raw[SEALED_BYTES_MAX];
	char coded[BASE64_LEN(SEALED_BYTES_MAX)];
	struct aead_message message = {.nonce = raw,
		.aad = about,
		.src = text.data ? text.data : "",
		.dst = raw + OVERHEAD,
		.len = text.len,
		.tag = raw + AEAD_NONCE_BYTES};
	struct aead *aead;
	int ret;

	if (text.len > sizeof(raw) - OVERHEAD)
		return -EMSGSIZE;
	ret = aead_open(iam->key, &aead);
	if (ret)
		return ret;
	random_fill(raw, AEAD_NONCE_BYTES);
	ret = aead_seal(aead, &message);
	aead_close(aead);
	if (!ret)
		buf_put(out, coded, base64_encode(raw, OVERHEAD + text.len, coded));
	return ret ? ret : out->failed ? -ENOMEM : 0;
}

int iam_unseal(struct iam *iam, struct slice about, struct slice sealed, struct buf *out)
{
	uint8_t raw[SEALED_BYTES_MAX], clear[SEALED_BYTES_MAX];
	struct aead_message message = {.nonce = raw,
		.aad = about,
		.src = raw + OVERHEAD,
		.dst = clear,
		.tag = raw + AEAD_NONCE_BYTES};
	struct aead *aead;
	size_t len;
	int ret;

	if (base64_decode(sealed, raw, sizeof(raw), &len) || len < OVERHEAD)
		return -EBADMSG;
	message.len = len - OVERHEAD;
	ret = aead_open(iam->key, &aead);
	if (ret)
		return ret;
	ret = aead_unseal(aead, &message);
	aead_close(aead);
	if (!ret)
		buf_put(out, clear, message.len);
	secret_wipe(clear, sizeof(clear));
	return ret ? ret : out->failed ? -ENOMEM : 0;
}
