/* s3/op/rdma_control.c: control messages of RDMA transfers that stand for no operation: answers
 * their errors, cancels a session (docs/spec/hipobj.md), connects and disconnects one
 * (docs/spec/elbencho.md). */
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/operation.h"

const struct s3_error *s3_op_rdma_control(struct s3_call *call)
{
	struct s3_control *control = call->request->control;

	const char *code = control->code;

	if (!code)
		code = control->ops->run(control, call->identity);
	if (code) {
		call->message = control->why;
		return s3_error_named(code);
	}
	return s3_answer_empty(call, control->step == S3_CONTROL_CONNECT ? 200 : 204);
}
