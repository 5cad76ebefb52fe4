/* s3/op/list_object_versions.c: ListObjectVersions: versions and delete markers. Of a bucket that
 * never had versions, every object is its own latest version, "null". */
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
	s3_call_param(call, SLICE("version-id-marker"), &list->version_after);
	if (!utf8_is_valid(list->after))
		error = s3_fail(call, S3_E_INVALID_ARGUMENT, "key-marker must be valid UTF-8.");
	else if (list->version_after.len && !list->after.len)
		error = s3_fail(call, S3_E_INVALID_ARGUMENT,
			"A version-id marker cannot be specified without a key marker.");
	else if (list->version_after.len && !store_version_id_valid(list->version_after))
		error = s3_fail(call, S3_E_INVALID_ARGUMENT, "Invalid version id specified");
	if (!error)
		error = s3_list_walk(call, list);
	if (error) {
		s3_list_close(list);
		return error;
	}
	s3_xml_begin(&xml, "ListVersionsResult");
	s3_list_head(call, list, &xml);
	s3_list_element(list, "KeyMarker", list->after, &xml);
	xml_element("VersionIdMarker", list->version_after, &xml);
	if (list->more) {
		s3_list_element(list, "NextKeyMarker", slice_of(list->last, list->last_len), &xml);
		if (list->last_version[0])
			xml_element("NextVersionIdMarker", slice_str(list->last_version), &xml);
	}
	s3_list_tail(list, &xml);
	s3_xml_end(&xml, "ListVersionsResult");
	s3_list_close(list);
	return s3_answer_xml(call, 200, &xml);
}
