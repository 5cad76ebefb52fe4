/* s3/body/body.h: the interface of operations with a body: the source of its bytes, and the sums
 * that verify them. */
#ifndef S3_BODY_BODY_H
#define S3_BODY_BODY_H

#include "s3/core/call.h"

/* The checksums to verify a body with, from headers or its trailer. */
struct s3_sums {
	bool etag_md5;	     /* the ETag must be an MD5 */
	bool payload_sha256; /* the signature binds the body's SHA-256 */
	bool has_md5;
	uint8_t md5[16]; /* Content-MD5 */
	enum checksum_kind kind;
	bool in_trailer;
	uint8_t digest_bytes;
	uint8_t digest[CHECKSUM_BYTES_MAX];
};
const struct s3_error *s3_sums_parse(struct s3_call *call, struct s3_sums *ret_sums);
/* Whether the ETag of what the call stores must be an MD5: by its transport, or because it asks. */
bool s3_etag_md5(const struct s3_call *call);
/* A body to store needs a length, or HTTP's own chunked encoding, which marks the end. It must not
 * be longer than the limit of an upload. */
const struct s3_error *s3_check_length(struct s3_call *call);
/* Reads a small body whole into the arena, verified against signature and sums. A form is read
 * before its signature can be checked, so it has less room than a document. */
#define S3_SERVICE_FORM_BYTES_MAX (256 * KIB)
const struct s3_error *s3_read_body(
	struct s3_call *call, const struct s3_sums *sums, struct slice *ret_body);
/* Moves the body into put and verifies it: fills bytes, etag, checksum and crc64 of meta. The put
 * stays the caller's. */
const struct s3_error *s3_store_body(struct s3_call *call, const struct s3_sums *sums,
	struct store_put *put, struct store_meta *meta);
/* Like s3_store_body, from any source, which it closes. meta->bytes is the required length
 * (UINT64_MAX: any); an ETag already in meta is kept. */
const struct s3_error *s3_store_source(struct s3_call *call, const struct s3_sums *sums,
	struct flow_source *source, struct store_put *put, struct store_meta *meta);

/* ---- RDMA tokens (body/token.c). ---- */
/* A request with a token moves its bytes by RDMA, or RDMA is declined, or the request is refused.
 */
const struct s3_error *s3_token_check(struct s3_call *call);
/* The token for this call's bytes, or NULL. */
static inline const struct s3_token *s3_token_of(const struct s3_call *call)
{
	const struct s3_token *token = call->request->token;

	return token && token->admitted ? token : NULL;
}
/* The answer to a request that cannot move its bytes by RDMA here. NULL: go on, the body uses HTTP.
 */
const struct s3_error *s3_token_decline(struct s3_call *call, const char *why);
/* ---- Control messages (body/control.c). ---- */
/* As s3_token_check, for a request that stands for a control message. */
const struct s3_error *s3_control_check(struct s3_call *call);
/* Whether the write that PREPARE stands for is only asked about; then this answers it. */
bool s3_control_holds(const struct s3_call *call);
const struct s3_error *s3_control_allow(struct s3_call *call);
/* The error of a read that has another number of bytes than its control message asks for; NULL:
 * none. */
const struct s3_error *s3_control_check_bytes(struct s3_call *call, uint64_t bytes);
/* The error for an errno of a transfer by RDMA that such a message started. */
const struct s3_error *s3_control_failed(int error);
/* The error for an errno of a body's transfer; nothing of an answer has been sent yet. */
const struct s3_error *s3_body_failed(struct s3_call *call, int error);

#endif
