/* codec/ctr.c: AES-256-CTR by libcrypto's EVP; a call only sets the counter. */
#include "codec/ctr.h"

#include <errno.h>
#include <stdlib.h>

#include <openssl/evp.h>

#include "base/base.h"

#define BLOCK_BYTES 16u
#define STEP_BYTES  (1ull << 30) /* EVP takes lengths as int */

struct ctr {
	EVP_CIPHER_CTX *evp;
};

int ctr_open(const uint8_t key[CTR_KEY_BYTES], struct ctr **ret_ctr)
{
	struct ctr *ctr = calloc(1, sizeof(*ctr));

	if (!ctr)
		return -ENOMEM;
	ctr->evp = EVP_CIPHER_CTX_new();
	if (!ctr->evp || !EVP_EncryptInit_ex(ctr->evp, EVP_aes_256_ctr(), NULL, key, NULL)) {
		ctr_close(ctr);
		return -ENOMEM;
	}
	*ret_ctr = ctr;
	return 0;
}

void ctr_close(struct ctr *ctr)
{
	if (!ctr)
		return;
	EVP_CIPHER_CTX_free(ctr->evp); /* wipes */
	free(ctr);
}

static void put_u64(uint8_t *at, uint64_t value)
{
	for (int i = 7; i >= 0; i--, value >>= 8)
		at[i] = (uint8_t)value;
}

int ctr_apply(
	struct ctr *ctr, uint64_t stream, uint64_t offset, const void *src, void *dst, size_t len)
{
	uint8_t counter[BLOCK_BYTES], skipped[BLOCK_BYTES] = {0};
	int skip = (int)(offset % BLOCK_BYTES), done;
	const uint8_t *from = src;
	uint8_t *to = dst;

	put_u64(counter, stream);
	put_u64(counter + 8, offset / BLOCK_BYTES);
	if (!EVP_EncryptInit_ex(ctr->evp, NULL, NULL, NULL, counter) ||
		(skip && !EVP_EncryptUpdate(ctr->evp, skipped, &done, skipped, skip)))
		return -EIO;
	while (len) {
		int step = (int)MIN(len, STEP_BYTES);

		if (!EVP_EncryptUpdate(ctr->evp, to, &done, from, step) || done != step)
			return -EIO;
		from += step;
		to += step;
		len -= (size_t)step;
	}
	return 0;
}
