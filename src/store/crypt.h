/* store/crypt.h: ends around an engine's, for bodies that lie encrypted under a key of their own.
 */
#ifndef STORE_CRYPT_H
#define STORE_CRYPT_H

#include "flow/flow.h"
#include "store/api.h"

/* Each piece of STORE_CHECK_BYTES is a message of AES-256-GCM, whose nonce is
 * store_put_body_number's number (8, big-endian) and the piece's (4), and whose tag the store
 * keeps. Nothing of a piece that does not verify is handed on: -EIO, logged and counted. Or, as it
 * was done before there were tags, all of it is one stream by ctr.h, unauthenticated. The structs
 * are the caller's and live as long as the run; init fails with -ENOMEM, and then the inner end is
 * still the caller's. */
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
	uint64_t offset; /* of what comes next */
	struct flow_elsewhere elsewhere;
};
/* inner: store_get_source of the same get, from the same offset. */
int store_crypt_source_init(struct store_crypt_source *self, struct store_crypt_key key,
	struct store_get *get, uint64_t offset, struct flow_source *inner);
/* inner: store_put_sink of the same put. */
int store_crypt_sink_init(struct store_crypt_sink *self, struct store_crypt_key key,
	struct store_put *put, struct flow_sink *inner);

#endif
