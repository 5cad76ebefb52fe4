/* s3/op/list_object_versions.c: ListObjectVersions: versions and delete markers. In a bucket that
 * never had versioning, every object is its latest version, "null". */
#include "s3/core/call.h"
#include "s3/object/list.h"
#include "s3/operation.h"

static const struct s3_error *parse(struct s3_call *call, struct s3_list *list, void *arg)
{
	(void)arg;
	list->owner = true;
	list->version = true;
	list->skips_prefix = true;
	s3_call_param(call, SLICE("key-marker"), &list->after);
	s3_call_param(call, SLICE("version-id-marker"), &list->version_after);
	if (!utf8_is_valid(list->after))
		return s3_fail(call, S3_E_INVALID_ARGUMENT, "key-marker must be valid UTF-8.");
	if (list->version_after.len && !list->after.len)
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"A version-id marker cannot be specified without a key marker.");
	if (list->version_after.len && !store_version_id_valid(list->version_after))
		return s3_fail(call, S3_E_INVALID_ARGUMENT, "Invalid version id specified");
	return NULL;
}

static void put_paging(const struct s3_list *list, void *arg, struct buf *xml)
{
	(void)arg;
	s3_list_element(list, "KeyMarker", list->after, xml);
	xml_element("VersionIdMarker", list->version_after, xml);
	if (list->more) {
		s3_list_element(list, "NextKeyMarker", slice_of(list->last, list->last_len), xml);
		if (list->last_version[0])
			xml_element("NextVersionIdMarker", slice_str(list->last_version), xml);
	}
}

const struct s3_error *s3_op_list_object_versions(struct s3_call *call)
{
	static const struct s3_listing LISTING = {"ListVersionsResult", parse, put_paging};

	return s3_list_answer(call, &LISTING, NULL);
}
