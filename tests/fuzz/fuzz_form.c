/* Browser forms and their policies: any bytes as the body up to the file. The fields found are
 * checked against the form's policy; without one, the whole input is the policy. */
#include <errno.h>

#include "document/json.h"
#include "iam/policy.h"
#include "s3/auth/form.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct s3_form form;
	struct slice text = slice_of(data, size), boundary, policy;
	struct s3_form_refusal refusal;
	struct s3_form_target target = {.bucket = SLICE("bucket"), .key = SLICE("key")};
	struct s3_form_limits limits;
	int ret;

	s3_form_boundary(text, &boundary);
	ret = s3_form_parse(text, SLICE("b"), &form);
	CHECK(ret == 0 || ret == -EAGAIN || ret == -EINVAL);
	CHECK(form.count <= S3_FORM_FIELDS_MAX);
	if (ret == 0)
		CHECK(form.file_at <= size);
	policy = s3_form_field(&form, SLICE("policy"));
	if (!policy.data)
		policy = text;
	if (!json_is_flat(policy, S3_FORM_POLICY_DEPTH_MAX))
		return 0;
	if (!s3_form_check(policy, &form, &target, &limits, &refusal)) {
		CHECK(refusal.why != NULL);
		CHECK(utf8_is_valid(slice_str(refusal.condition)));
	}
	return 0;
}
