/* s3/op/list_objects.c: ListObjects, version 1: pages by marker. */
#include "s3/list.h"

const struct s3_error *s3_op_list_objects(struct s3_call *call)
{
	const struct s3_error *error;
	struct s3_list *list = NULL;
	struct buf xml;

	error = s3_list_open(call, &list);
	if (error)
		return error;
	list->owner = true;
	s3_call_param(call, SLICE("marker"), &list->after);
	if (!utf8_is_valid(list->after))
		error = s3_fail(call, S3_E_INVALID_ARGUMENT, "marker must be valid UTF-8.");
	if (!error)
		error = s3_list_walk(call, list);
	if (error) {
		s3_list_close(list);
		return error;
	}
	s3_xml_begin(&xml, "ListBucketResult");
	s3_list_head(call, list, &xml);
	s3_list_element(list, "Marker", list->after, &xml);
	/* Without a delimiter the next marker is the last key, which the client has. */
	if (list->more && list->delimiter.len)
		s3_list_element(list, "NextMarker", slice_of(list->last, list->last_len), &xml);
	s3_list_tail(list, &xml);
	s3_xml_end(&xml, "ListBucketResult");
	s3_list_close(list);
	return s3_answer_xml(call, 200, &xml);
}
