/* s3/op/rdma_control.c: control messages of RDMA transfers that stand for no operation: their
 * errors, and cancelling a session. docs/spec/hipobj.md. */
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/operation.h"

const struct s3_error *s3_op_rdma_control(struct s3_call *call)
{
	struct s3_control *control = call->request->control;

	if (control->code) {
		call->message = control->why;
		return s3_error_named(control->code);
	}
	CHECK(control->step == S3_CONTROL_CANCEL);
	control->ops->cancel(control, call->identity);
	return s3_answer_empty(call, 204);
}
