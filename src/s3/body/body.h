/* s3/body/body.h: what operations that take a body share: how its bytes come, and the sums that
 * they are checked against. */
#ifndef S3_BODY_BODY_H
#define S3_BODY_BODY_H

#include "s3/core/call.h"

/* The checksums to verify a body with, from headers or its trailer. */
struct s3_sums {
	bool etag_md5;	     /* the ETag is to be an MD5 */
	bool payload_sha256; /* the signature binds the body's SHA-256 */
	bool has_md5;
	uint8_t md5[16]; /* Content-MD5 */
	enum checksum_kind kind;
	bool in_trailer;
	uint8_t digest_bytes;
	uint8_t digest[CHECKSUM_BYTES_MAX];
};
const struct s3_error *s3_sums_parse(struct s3_call *call, struct s3_sums *ret_sums);
/* A body that is stored needs a length, or the chunks of HTTP's own that say where it ends; and is
 * not longer than an upload may be. */
const struct s3_error *s3_check_length(struct s3_call *call);
/* A small body, whole, verified against signature and sums; in the arena. */
const struct s3_error *s3_read_body(
	struct s3_call *call, const struct s3_sums *sums, struct slice *ret_body);
/* Moves the body into put and checks it: fills bytes, etag, checksum and crc64 of meta. The put
 * stays the caller's. */
const struct s3_error *s3_store_body(struct s3_call *call, const struct s3_sums *sums,
	struct store_put *put, struct store_meta *meta);
/* The same of any source, which it closes; meta->bytes says how much must come (UINT64_MAX: any),
 * and an ETag that meta has already is kept. */
const struct s3_error *s3_store_source(struct s3_call *call, const struct s3_sums *sums,
	struct flow_source *source, struct store_put *put, struct store_meta *meta);
/* The bytes of a small object (of ours), in the arena. */
const struct s3_error *s3_read_object(
	struct s3_call *call, struct store_get *get, struct slice *ret_text);

/* ---- RDMA tokens (body/token.c). ---- */
/* A request with a token moves its bytes by RDMA, or is declined, or refused. */
const struct s3_error *s3_token_check(struct s3_call *call);
/* The token that this call's bytes move by, or NULL. */
static inline const struct s3_token *s3_token_of(const struct s3_call *call)
{
	const struct s3_token *token = call->request->token;

	return token && token->admitted ? token : NULL;
}
/* The answer to what cannot move by RDMA here. NULL: go on, the body goes by HTTP. */
const struct s3_error *s3_token_decline(struct s3_call *call, const char *why);
/* An errno of a body that was being moved: nothing of an answer has been sent. */
const struct s3_error *s3_body_failed(struct s3_call *call, int error);

#endif
