/* Fuzzes the policy language: any text, as each kind of policy; a policy that compiles must answer
 * questions. The question's own texts are taken from the input too. */
#include "base/base.h"
#include "base/mem_arena.h"
#include "iam/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct slice input;

static uint32_t values(void *arg, struct slice key, struct slice *ret_values, uint32_t max)
{
	uint32_t count = key.len % 3;

	(void)arg;
	for (uint32_t i = 0; i < count && i < max; i++)
		ret_values[i] = slice_to(slice_from(input, key.len * i), 24);
	return count;
}

static void ask(const struct policy *policy)
{
	const struct policy_principal principal = {.arn = SLICE("arn:aws:iam::111:user/a"),
		.account = SLICE("111"),
		.owner = SLICE("abc")};
	const struct policy_question question = {.principal = &principal,
		.action = SLICE("s3:GetObject"),
		.resource = slice_to(input, 64),
		.values = values};
	enum policy_decision first = policy_decide(policy, &question);

	CHECK(first == policy_decide(policy, &question));
	CHECK(policy_is_public(policy) == policy_is_public(policy));
	CHECK(policy_is_of_bucket(policy, SLICE("bkt")) ==
		policy_is_of_bucket(policy, SLICE("bkt")));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	input = slice_of(data, size);
	for (int kind = POLICY_IDENTITY; kind <= POLICY_TRUST; kind++) {
		struct policy_refusal refusal = {""};
		const struct policy *policy;
		struct mem_arena arena;

		mem_arena_init(&arena);
		if (policy_compile(input, (enum policy_kind)kind, &arena, &policy, &refusal))
			CHECK(refusal.text[0]);
		else
			ask(policy);
		mem_arena_free(&arena);
	}
	return 0;
}
