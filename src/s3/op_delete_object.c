/* s3/op_delete_object.c: DeleteObject. Deleting what is not there is success. */
#include "s3/s3_priv.h"

const struct s3_error *s3_op_delete_object(struct s3_call *call)
{
	struct s3_write_condition condition;
	struct slice version_id = SLICE_NONE;
	const struct s3_error *error;
	int ret;

	s3_call_param(call, SLICE("versionId"), &version_id);
	error = s3_version_check(call, version_id);
	if (!error)
		error = s3_write_condition_parse(call, &condition);
	if (error)
		return error;
	ret = store_delete(call->s3->store, call->bucket, call->key,
		s3_write_condition_any(&condition) ? s3_write_condition_check : NULL, &condition);
	if (ret)
		return s3_write_failed(call, &condition, ret);
	return s3_answer_empty(call, 204);
}
