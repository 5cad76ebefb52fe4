/* s3/op/rdma_connect.c: POST and DELETE /?rdma-connect: connects a client's queue pair to one of
 * the server's, which the client's later tokens use. docs/spec/token.md. */
#include <errno.h>
#include <stdio.h>

#include "s3/body/body.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/operation.h"

#define PSN_MAX 0xffffffu
#define MTU_MIN 256u
#define MTU_MAX 4096u

static const struct s3_error *read_number(
	struct s3_call *call, enum token_header header, uint64_t max, uint32_t *ret_number)
{
	struct slice name = token_header(header);
	uint64_t number;

	if (slice_to_u64(s3_call_header(call, name), &number) || number > max)
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"%.*s must be a decimal number up to %llu.", SLICE_FMT(name),
			(unsigned long long)max);
	*ret_number = (uint32_t)number;
	return NULL;
}

/* The client's end, as the request's headers describe it. */
static const struct s3_error *read_token(struct s3_call *call)
{
	const struct s3_token *token = call->request->token;

	if (!s3_call_has_header(call, token_header(TOKEN_HEADER_TOKEN)))
		return s3_fail(call, S3_E_INVALID_RDMA_TOKEN,
			"The request has no RDMA token to describe the queue pair.");
	if (!token)
		return s3_token_decline(call, call->request->declined);
	if (token->has_body)
		return s3_fail(call, S3_E_INVALID_REQUEST, "This request must have no body.");
	if (!token->bad)
		return NULL;
	call->message = token->bad;
	return s3_error_at(S3_E_INVALID_RDMA_TOKEN);
}

static void answer_number(struct s3_call *call, enum token_header header, uint32_t number)
{
	char *text = mem_arena_get(&call->arena, 12);
	int len = text ? snprintf(text, 12, "%u", number) : 0;

	if (text)
		s3_answer_header(call, token_header(header), slice_of(text, (size_t)len));
}

static const struct s3_error *answer_end(struct s3_call *call, const struct s3_token_end *end)
{
	char *text = mem_arena_get(&call->arena, TOKEN_LEN);

	if (!text)
		return s3_error_at(S3_E_SLOW_DOWN);
	token_format(&end->token, text);
	s3_answer_header(call, token_header(TOKEN_HEADER_TOKEN), slice_of(text, TOKEN_LEN));
	answer_number(call, TOKEN_HEADER_PSN, end->psn);
	answer_number(call, TOKEN_HEADER_MTU, end->mtu);
	return s3_answer_empty(call, 200);
}

const struct s3_error *s3_op_rdma_connect(struct s3_call *call)
{
	struct s3_token *token = call->request->token;
	const struct s3_error *error = read_token(call);
	struct s3_token_end end;

	if (!error)
		error = read_number(call, TOKEN_HEADER_PSN, PSN_MAX, &end.psn);
	if (!error)
		error = read_number(call, TOKEN_HEADER_MTU, MTU_MAX, &end.mtu);
	if (error)
		return error;
	if (end.mtu < MTU_MIN || (end.mtu & (end.mtu - 1)))
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"The MTU must be a power of two from %u to %u.", MTU_MIN, MTU_MAX);
	end.token = token->window;
	token->share = s3_call_share(call);
	switch (token->ops->connect(token, call->identity, &end)) {
	case 0:
		return answer_end(call, &end);
	case -ENOSPC:
		return s3_fail(call, S3_E_SLOW_DOWN,
			"The server's maximum number of queue pairs is reached.");
	case -EINVAL:
		return s3_fail(call, S3_E_INVALID_RDMA_TOKEN,
			"The server's device cannot reach this queue pair.");
	default:
		return s3_token_decline(
			call, "The server's device does not support such queue pairs.");
	}
}

const struct s3_error *s3_op_rdma_disconnect(struct s3_call *call)
{
	struct s3_token *token = call->request->token;
	const struct s3_error *error = read_token(call);

	if (error)
		return error;
	if (token->ops->disconnect(token, call->identity))
		return s3_error_at(S3_E_NO_SUCH_RDMA_CONNECTION);
	return s3_answer_empty(call, 204);
}
