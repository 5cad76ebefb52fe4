/* codec/ctr.h: AES-256 in counter mode (NIST SP 800-38A), for bodies at rest: any byte of a stream
 * can be decrypted without the bytes before it, and the ciphertext is as long as the plaintext.
 *
 * The first half of the counter is the stream's number, the second half is the block's number in
 * the stream. The caller must use each stream number for one body only, written once, under the
 * same key: another use breaks the mode. Nothing is authenticated. */
#ifndef CODEC_CTR_H
#define CODEC_CTR_H

#include <stddef.h>
#include <stdint.h>

#define CTR_KEY_BYTES 32u

struct ctr; /* a key with its schedule; one thread at a time */

/* -ENOMEM. */
int ctr_open(const uint8_t key[CTR_KEY_BYTES], struct ctr **ret_ctr);
void ctr_close(struct ctr *ctr); /* wipes; takes NULL */
/* Encrypts or decrypts the bytes of the stream from offset on. src and dst are the same memory or
 * do not overlap. -EIO when libcrypto refuses. */
int ctr_apply(
	struct ctr *ctr, uint64_t stream, uint64_t offset, const void *src, void *dst, size_t len);

#endif
