/* s3/op_list_object_versions.c: ListObjectVersions of a bucket that has no versioning: every object
 * is its own latest version, "null". */
#include "s3/list.h"

const struct s3_error *s3_op_list_object_versions(struct s3_call *call)
{
	const struct s3_error *error;
	struct s3_list *list = NULL;
	struct buf xml;

	error = s3_list_open(call, &list);
	if (error)
		return error;
	list->owner = true;
	list->version = true;
	s3_call_param(call, SLICE("key-marker"), &list->after);
	if (!utf8_is_valid(list->after))
		error = s3_fail(call, S3_E_INVALID_ARGUMENT, "key-marker must be valid UTF-8.");
	if (!error)
		error = s3_list_walk(call, list);
	if (error) {
		s3_list_close(list);
		return error;
	}
	s3_xml_begin(&xml, "ListVersionsResult");
	s3_list_head(call, list, &xml);
	s3_list_element(list, "KeyMarker", list->after, &xml);
	buf_put_str(&xml, "<VersionIdMarker></VersionIdMarker>");
	if (list->more) {
		s3_list_element(list, "NextKeyMarker", slice_of(list->last, list->last_len), &xml);
		buf_put_str(&xml, "<NextVersionIdMarker>null</NextVersionIdMarker>");
	}
	s3_list_tail(list, &xml);
	s3_xml_end(&xml, "ListVersionsResult");
	s3_list_close(list);
	return s3_answer_xml(call, 200, &xml);
}
