/* s3/op/list_objects_v2.c: ListObjectsV2: pages by continuation token, which is the previous page's
 * last entry in base64, so it stays valid while keys are added and deleted. */
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/object/list.h"
#include "s3/operation.h"

struct paging {
	struct slice token, start_after;
	bool has_token, has_start_after;
};

static const struct s3_error *parse(struct s3_call *call, struct s3_list *list, void *arg)
{
	struct paging *paging = arg;
	struct slice value = SLICE_NONE;
	char *after;
	size_t len;

	s3_call_param(call, SLICE("list-type"), &value);
	if (!call->request->opcode && !slice_eq(value, SLICE("2")))
		return s3_fail(call, S3_E_INVALID_ARGUMENT, "list-type must be 2.");
	list->owner = s3_call_param(call, SLICE("fetch-owner"), &value) &&
		      slice_eq_nocase(value, SLICE("true"));
	paging->has_token = s3_call_param(call, SLICE("continuation-token"), &paging->token);
	paging->has_start_after = s3_call_param(call, SLICE("start-after"), &paging->start_after);
	list->owner &= !s3_express_bucket(call);
	if (!utf8_is_valid(paging->start_after))
		return s3_fail(call, S3_E_INVALID_ARGUMENT, "start-after must be valid UTF-8.");
	list->after = paging->start_after;
	if (!paging->token.len)
		return NULL;
	after = mem_arena_get(&call->arena, LIMIT_KEY_LEN_MAX);
	if (!after)
		return s3_error_at(S3_E_SLOW_DOWN);
	if (base64_decode(paging->token, after, LIMIT_KEY_LEN_MAX, &len) ||
		!utf8_is_valid(slice_of(after, len)))
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"The continuation token provided is incorrect");
	list->after = slice_of(after, len);
	return NULL;
}

static void put_paging(const struct s3_list *list, void *arg, struct buf *xml)
{
	const struct paging *paging = arg;
	char token[BASE64_LEN(LIMIT_KEY_LEN_MAX)];

	s3_xml_u64(xml, "KeyCount", list->count);
	if (paging->has_token)
		xml_element("ContinuationToken", paging->token, xml);
	if (list->more)
		xml_element("NextContinuationToken",
			slice_of(token, base64_encode(list->last, list->last_len, token)), xml);
	if (paging->has_start_after)
		s3_list_element(list, "StartAfter", paging->start_after, xml);
}

const struct s3_error *s3_op_list_objects_v2(struct s3_call *call)
{
	static const struct s3_listing LISTING = {"ListBucketResult", parse, put_paging};
	struct paging paging = {0};

	return s3_list_answer(call, &LISTING, &paging);
}
