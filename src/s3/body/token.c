/* s3/body/token.c: requests with an RDMA token: which operations may carry one, and the answer when
 * their bytes cannot move by RDMA. In every case, a PUT whose bytes did not arrive by RDMA stores
 * nothing, and its answer has no ETag. docs/spec/token.md. */
#include <errno.h>

#include "s3/body/body.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"

/* Where another vendor's dialect has its token: a PUT of it has an empty body, too. */
#define OTHER_HEADER "x-rdma-info"
#define EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static bool is_write(const struct s3_call *call)
{
	return call->operation->body != S3_BODY_ANSWERED;
}

static bool is_connect(const struct s3_call *call)
{
	return call->operation->id == S3_OPERATION_RDMA_CONNECT ||
	       call->operation->id == S3_OPERATION_RDMA_DISCONNECT;
}

const struct s3_error *s3_token_decline(struct s3_call *call, const char *why)
{
	static const struct s3_error by_draft = {.code = "NotImplemented",
		.status = 200,
		.message = "This server cannot move the bytes by RDMA."};
	struct slice detail = slice_str(why ? why : "RDMA is not enabled on this server.");

	s3_answer_header(call, token_header(TOKEN_HEADER_REPLY), SLICE("501"));
	if (call->s3->decline_by_draft && !is_write(call))
		return NULL;
	s3_fail_detail(call, "Reason", detail);
	s3_fail(call, S3_E_NOT_IMPLEMENTED,
		"This server cannot move the bytes by RDMA: %.*s Send the request again without a "
		"token.",
		SLICE_FMT(detail));
	if (call->s3->decline_by_draft && !is_connect(call))
		return &by_draft;
	return s3_error_at(S3_E_NOT_IMPLEMENTED);
}

/* The memory that the token describes takes the body's place. */
static const struct s3_error *check_message(struct s3_call *call, const struct s3_token *token)
{
	enum s3_payload payload = call->signing.payload;
	bool unsigned_payload = payload == S3_PAYLOAD_UNSIGNED;

	if (token->has_body)
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"A request with an RDMA token must have no body: its Content-Length must "
			"be 0.");
	/* Readers may sign the empty body that they send. */
	if (!is_write(call) && payload == S3_PAYLOAD_SHA256)
		unsigned_payload = strcmp(call->content_sha256, EMPTY_SHA256) == 0;
	if (!unsigned_payload)
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"A request with an RDMA token must have x-amz-content-sha256: "
			"UNSIGNED-PAYLOAD.");
	return NULL;
}

static const struct s3_error *check_token(struct s3_call *call, const struct s3_token *token)
{
	if (token->bad) {
		call->message = token->bad;
		return s3_error_at(S3_E_INVALID_RDMA_TOKEN);
	}
	if (is_write(call) && !token->window.bytes)
		return s3_fail(call, S3_E_INVALID_RDMA_TOKEN,
			"The RDMA token's window is empty. Store an empty object without a token.");
	return NULL;
}

static bool carries_token(const struct s3_call *call)
{
	return call->operation->body == S3_BODY_OBJECT || call->operation->body == S3_BODY_ANSWERED;
}

const struct s3_error *s3_token_check(struct s3_call *call)
{
	struct slice name = token_header(TOKEN_HEADER_TOKEN);
	struct s3_token *token = call->request->token;
	const struct s3_error *error;

	if (call->request->control)
		return s3_control_check(call);
	/* Connecting checks its own token; an operation that is not served has its own error. */
	if (is_connect(call) || call->operation->id == S3_OPERATION_DECLINED)
		return NULL;
	if (!s3_call_has_header(call, name))
		return carries_token(call) && is_write(call) && !call->request->session &&
				       s3_call_has_header(call, SLICE(OTHER_HEADER))
			       ? s3_token_decline(call, "Its token is in " OTHER_HEADER ", and not "
							"in x-amz-rdma-token.")
			       : NULL;
	if (!carries_token(call) || call->request->session)
		return s3_fail(call, S3_E_NOT_IMPLEMENTED,
			"%s takes no RDMA token; only GetObject, PutObject and UploadPart over "
			"HTTP do.",
			call->operation->name);
	if (call->identity->anonymous)
		return s3_fail(call, S3_E_ACCESS_DENIED, "An RDMA token must be signed.");
	if (!token)
		return s3_token_decline(call, call->request->declined);
	error = check_message(call, token);
	if (!error)
		error = check_token(call, token);
	if (error)
		return error;
	token->share = s3_call_share(call);
	/* The front answers in another way, and no client sees this error. */
	if (token->ops->admit(token, call->identity))
		return s3_error_at(S3_E_NOT_IMPLEMENTED);
	token->admitted = true;
	return NULL;
}

const struct s3_error *s3_body_failed(struct s3_call *call, int error)
{
	const struct s3_token *token = s3_token_of(call);

	if (token && token->failed)
		return call->request->control ? s3_control_failed(error)
					      : s3_error_at(S3_E_RDMA_TRANSFER_FAILED);
	return s3_fail_errno(call, error);
}
