/* store/crypt.h: wrappers of an engine's ends, for bodies encrypted under a key of their own. */
#ifndef STORE_CRYPT_H
#define STORE_CRYPT_H

#include "flow/flow.h"
#include "store/api.h"

/* Each piece of STORE_CHECK_BYTES is a message of AES-256-GCM. Its nonce is the number of
 * store_put_body_number (8, big-endian) and the piece's number (4); the store keeps its tag. A
 * piece that does not verify is not passed on: -EIO, logged and counted. Bodies from before tags
 * existed are one stream by ctr.h, unauthenticated. The caller owns the structs, which must live as
 * long as the run. If init fails with -ENOMEM, the caller still owns the inner end. */
struct store_crypt_key {
	const uint8_t *key; /* AEAD_KEY_BYTES; only needed by init */
	bool authenticated;
};
struct store_crypt_source {
	struct flow_source source;
	struct ctr *ctr;   /* not authenticated */
	struct aead *aead; /* authenticated */
	struct flow_source *inner;
	struct store_get *get;
	uint64_t start;
	struct flow_elsewhere elsewhere;
};
struct store_crypt_sink {
	struct flow_sink sink;
	struct ctr *ctr;
	struct aead_stream *aead;
	struct flow_sink *inner;
	struct store_put *put;
	uint64_t body_number;
	uint64_t offset; /* of the next byte */
	struct flow_elsewhere elsewhere;
};
/* inner: store_get_source of the same get, from the same offset. */
int store_crypt_source_init(struct store_crypt_source *self, struct store_crypt_key key,
	struct store_get *get, uint64_t offset, struct flow_source *inner);
/* inner: store_put_sink of the same put. */
int store_crypt_sink_init(struct store_crypt_sink *self, struct store_crypt_key key,
	struct store_put *put, struct flow_sink *inner);

#endif
