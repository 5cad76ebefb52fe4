/* s3/body/control.c: control messages of RDMA transfers: signed POSTs that stand for GetObject,
 * PutObject or UploadPart. The operation is routed, authorized, counted and logged as over HTTP;
 * only its signature is of the message. docs/spec/hipobj.md. */
#include <errno.h>

#include "s3/body/body.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"

#define EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static const struct s3_error *check_message(struct s3_call *call, const struct s3_control *control)
{
	enum s3_payload payload = call->signing.payload;

	bool unsigned_too =
		control->step == S3_CONTROL_CONNECT || control->step == S3_CONTROL_DISCONNECT;

	if (call->identity->anonymous && !unsigned_too)
		return s3_fail(call, S3_E_ACCESS_DENIED, "An RDMA control request must be signed.");
	if (control->has_body)
		return s3_fail(call, S3_E_INVALID_RDMA_REQUEST,
			"An RDMA control request must have no body.");
	if (payload != S3_PAYLOAD_UNSIGNED && !call->identity->anonymous &&
		(payload != S3_PAYLOAD_SHA256 || strcmp(call->content_sha256, EMPTY_SHA256) != 0))
		return s3_fail(call, S3_E_INVALID_RDMA_REQUEST,
			"x-amz-content-sha256 is not of the empty body.");
	return NULL;
}

/* The target's query and headers may have chosen another operation. */
static bool is_expected(const struct s3_call *call)
{
	enum s3_operation_id id = call->operation->id;

	if (call->request->method == S3_PUT)
		return id == S3_OPERATION_PUT_OBJECT || id == S3_OPERATION_UPLOAD_PART;
	return id == (call->request->control->step == S3_CONTROL_PREPARE ? S3_OPERATION_HEAD_OBJECT
									 : S3_OPERATION_GET_OBJECT);
}

static const struct s3_error *admit(struct s3_call *call)
{
	struct s3_token *token = call->request->token;

	switch (token->ops->admit(token, call->identity)) {
	case 0:
		token->admitted = true;
		return NULL;
	case -EBUSY:
		return s3_error_at(S3_E_RDMA_SESSION_CONFLICT);
	default:
		return s3_error_at(S3_E_NO_SUCH_RDMA_SESSION);
	}
}

const struct s3_error *s3_control_check(struct s3_call *call)
{
	struct s3_control *control = call->request->control;
	const struct s3_error *error = check_message(call, control);

	if (error || !control->stands_for)
		return error;
	/* The digest of the message's body says nothing of the bytes that move by RDMA. */
	call->signing.payload = S3_PAYLOAD_UNSIGNED;
	if (!is_expected(call))
		return s3_fail(call, S3_E_INVALID_RDMA_REQUEST,
			"%s does not move its bytes by RDMA.", call->operation->name);
	if (control->step == S3_CONTROL_READY)
		return admit(call);
	control->share = s3_call_share(call);
	return NULL;
}

bool s3_control_holds(const struct s3_call *call)
{
	const struct s3_control *control = call->request->control;

	return control && control->stands_for && control->step == S3_CONTROL_PREPARE &&
	       call->request->method == S3_PUT;
}

const struct s3_error *s3_control_allow(struct s3_call *call)
{
	struct store_bucket bucket;
	const struct s3_error *error = s3_call_bucket(call, &bucket);

	/* Nothing is put yet: it counts as what it is. */
	call->operation = s3_operation_at(S3_OPERATION_RDMA_PREPARE);
	call->log_name = NULL;
	return error ? error : s3_answer_empty(call, 200);
}

const struct s3_error *s3_control_check_bytes(struct s3_call *call, uint64_t bytes)
{
	const struct s3_control *control = call->request->control;

	if (bytes == control->bytes)
		return NULL;
	call->header_count = 0;
	return s3_fail(call, S3_E_INVALID_RANGE, "%llu bytes are asked for, and there are %llu.",
		(unsigned long long)control->bytes, (unsigned long long)bytes);
}

const struct s3_error *s3_control_failed(int error)
{
	switch (error) {
	case -ETIMEDOUT:
		return s3_error_at(S3_E_RDMA_TIMEOUT);
	case -EPROTO:
		return s3_error_at(S3_E_INVALID_RDMA_REQUEST);
	default:
		return s3_error_at(S3_E_RDMA_TRANSFER_FAILED);
	}
}
