/* s3/op/list_objects.c: ListObjects, version 1: pages by marker. */
#include "s3/core/call.h"
#include "s3/object/list.h"
#include "s3/operation.h"

static const struct s3_error *parse(struct s3_call *call, struct s3_list *list, void *arg)
{
	(void)arg;
	list->owner = true;
	list->skips_prefix = true;
	s3_call_param(call, SLICE("marker"), &list->after);
	if (!utf8_is_valid(list->after))
		return s3_fail(call, S3_E_INVALID_ARGUMENT, "marker must be valid UTF-8.");
	return NULL;
}

static void put_paging(const struct s3_list *list, void *arg, struct buf *xml)
{
	(void)arg;
	s3_list_element(list, "Marker", list->after, xml);
	/* Without a delimiter the next marker is the last key, which the client has. */
	if (list->more && list->delimiter.len)
		s3_list_element(list, "NextMarker", slice_of(list->last, list->last_len), xml);
}

const struct s3_error *s3_op_list_objects(struct s3_call *call)
{
	static const struct s3_listing LISTING = {"ListBucketResult", parse, put_paging};

	return s3_list_answer(call, &LISTING, NULL);
}
