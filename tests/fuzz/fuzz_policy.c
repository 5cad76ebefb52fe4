/* Fuzzes the policy language: any text, as each kind of policy; what compiles must answer
 * questions. The question's own texts are taken from the input too. */
#include "s3/policy.h"
#include "base/base.h"
#include "s3/s3_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct slice input;

static uint32_t values(void *arg, struct slice key, struct slice *ret_values, uint32_t max)
{
	uint32_t count = key.len % 3;

	(void)arg;
	for (uint32_t i = 0; i < count && i < max; i++)
		ret_values[i] = slice_to(slice_from(input, key.len * i), 24);
	return count < max ? count : max;
}

static void ask(const struct s3_policy *policy)
{
	const struct s3_policy_principal principal = {.arn = SLICE("arn:aws:iam::111:user/a"),
		.account = SLICE("111"),
		.owner = SLICE("abc")};
	const struct s3_policy_question question = {.principal = &principal,
		.action = SLICE("s3:GetObject"),
		.resource = slice_to(input, 64),
		.values = values};
	enum s3_decision first = s3_policy_decide(policy, &question);

	CHECK(first == s3_policy_decide(policy, &question));
	CHECK(s3_policy_is_public(policy) == s3_policy_is_public(policy));
	CHECK(s3_policy_is_of_bucket(policy, SLICE("bkt")) ==
		s3_policy_is_of_bucket(policy, SLICE("bkt")));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	input = slice_of(data, size);
	for (int kind = S3_POLICY_IDENTITY; kind <= S3_POLICY_TRUST; kind++) {
		struct s3_policy_refusal refusal = {""};
		const struct s3_policy *policy;
		struct s3_arena arena;

		s3_arena_init(&arena);
		if (s3_policy_compile(input, (enum s3_policy_kind)kind, &arena, &policy, &refusal))
			CHECK(refusal.text[0]);
		else
			ask(policy);
		s3_arena_free(&arena);
	}
	return 0;
}
