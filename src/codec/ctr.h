/* codec/ctr.h: AES-256 in counter mode (NIST SP 800-38A), for bodies at rest: any byte of a stream
 * can be had without those before it, and the text is as long as what it was made of.
 *
 * The counter's first half is the stream's number, the second the block's in it. The caller owns
 * the rule that breaks the mode when broken: under one key a stream's number stands for one body,
 * written once. Nothing is authenticated. */
#ifndef CODEC_CTR_H
#define CODEC_CTR_H

#include <stddef.h>
#include <stdint.h>

#define CTR_KEY_BYTES 32u

struct ctr; /* a key with its schedule; one thread at a time */

/* -ENOMEM. */
int ctr_open(const uint8_t key[CTR_KEY_BYTES], struct ctr **ret_ctr);
void ctr_close(struct ctr *ctr); /* wipes; takes NULL */
/* The bytes of the stream from offset on, either way. src and dst are the same memory or do not
 * overlap. -EIO when libcrypto refuses. */
int ctr_apply(
	struct ctr *ctr, uint64_t stream, uint64_t offset, const void *src, void *dst, size_t len);

#endif
