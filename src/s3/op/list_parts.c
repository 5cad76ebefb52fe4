/* s3/op/list_parts.c: ListParts. */
#include <errno.h>

#include "s3/auth/access.h"
#include "s3/auth/acl.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/stored.h"
#include "s3/object/multipart.h"
#include "s3/operation.h"

struct listing {
	struct buf xml;
	uint32_t last;
	bool asked;
};

static void visit(const struct store_list_entry *entry, void *arg)
{
	struct slice number = slice_from(entry->key, entry->key.len - strlen("00001"));
	struct listing *listing = arg;
	uint64_t value = 0;

	slice_to_u64(number, &value);
	listing->last = (uint32_t)value;
	buf_put_str(&listing->xml, "<Part>");
	s3_xml_u64(&listing->xml, "PartNumber", value);
	s3_xml_time(&listing->xml, "LastModified", entry->meta->mtime_ns);
	s3_xml_etag(&listing->xml, entry->meta->etag);
	s3_xml_u64(&listing->xml, "Size", entry->meta->bytes);
	if (listing->asked || entry->meta->checksum_type != CHECKSUM_CRC64NVME)
		s3_xml_checksum(&listing->xml, entry->meta);
	buf_put_str(&listing->xml, "</Part>");
}

static const struct s3_error *parse(struct s3_call *call, uint64_t *ret_marker, uint64_t *ret_max)
{
	struct slice value;

	*ret_marker = 0;
	*ret_max = LIMIT_LIST_KEYS_MAX;
	if (s3_call_param(call, SLICE("part-number-marker"), &value) && value.len &&
		(slice_to_u64(value, ret_marker) || *ret_marker > INT32_MAX))
		return s3_fail_argument(call, "part-number-marker", value,
			"Provided part-number-marker not an integer or within integer range");
	if (s3_call_param(call, SLICE("max-parts"), &value) && value.len &&
		(slice_to_u64(value, ret_max) || *ret_max > INT32_MAX))
		return s3_fail_argument(call, "max-parts", value,
			"Provided max-parts not an integer or within integer range");
	if (*ret_marker > S3_PARTS_MAX)
		*ret_marker = S3_PARTS_MAX;
	if (*ret_max > LIMIT_LIST_KEYS_MAX)
		*ret_max = LIMIT_LIST_KEYS_MAX;
	return NULL;
}

/* The caller that created the upload: the owner of its object. */
static void put_owner(
	struct s3_call *call, const struct s3_upload *upload, const char *element, struct buf *xml)
{
	struct slice id = s3_meta_hidden(
		slice_of(upload->meta->headers, upload->meta->headers_len), SLICE(S3_OWNER_HEADER));
	struct iam_owner owner;
	struct store_bucket bucket;

	if (!id.len && !s3_call_bucket(call, &bucket))
		id = slice_str(bucket.owner);
	iam_owner_or_id(call->s3->iam, id, &owner);
	s3_xml_owner(xml, element, &owner);
}

static void put_checksum(const struct s3_upload *upload, struct buf *xml)
{
	xml_element("ChecksumAlgorithm", checksum_name(upload->kind), xml);
	xml_element(
		"ChecksumType", upload->composite ? SLICE("COMPOSITE") : SLICE("FULL_OBJECT"), xml);
}

static const struct s3_error *answer(
	struct s3_call *call, const struct s3_upload *upload, uint64_t marker, uint64_t parts_max)
{
	char prefix_name[S3_UPLOAD_NAME_MAX], after_name[S3_UPLOAD_NAME_MAX];
	struct store_list_opts opts = {.bucket = SLICE(S3_UPLOADS_BUCKET),
		.prefix = s3_upload_name(call->bucket, upload->id, 1, prefix_name),
		.entries_max = (uint32_t)parts_max};
	struct listing listing = {.asked = upload->asked};
	struct buf xml;
	bool more;
	int ret;

	opts.prefix.len -= strlen("00001");
	if (marker)
		opts.after = s3_upload_name(call->bucket, upload->id, (uint32_t)marker, after_name);
	buf_init(&listing.xml, S3_XML_REPLY_BYTES_MAX);
	ret = store_list(call->s3->store, &opts, visit, &listing, &more);
	if (ret) {
		buf_free(&listing.xml);
		return s3_fail_errno(call, ret);
	}
	s3_xml_begin(&xml, "ListPartsResult");
	xml_element("Bucket", call->bucket, &xml);
	xml_element("Key", call->key, &xml);
	xml_element("UploadId", slice_str(upload->id), &xml);
	put_owner(call, upload, "Initiator", &xml);
	put_owner(call, upload, "Owner", &xml);
	xml_element("StorageClass", s3_meta_storage_class(upload->meta), &xml);
	s3_xml_u64(&xml, "PartNumberMarker", marker);
	s3_xml_u64(&xml, "NextPartNumberMarker", listing.last);
	s3_xml_u64(&xml, "MaxParts", parts_max);
	xml_element("IsTruncated", more && listing.last ? SLICE("true") : SLICE("false"), &xml);
	if (upload->asked)
		put_checksum(upload, &xml);
	buf_put_slice(&xml, buf_slice(&listing.xml));
	xml.failed |= listing.xml.failed;
	buf_free(&listing.xml);
	s3_xml_end(&xml, "ListPartsResult");
	return s3_answer_xml(call, 200, &xml);
}

const struct s3_error *s3_op_list_parts(struct s3_call *call)
{
	const struct s3_error *error;
	struct s3_upload upload;
	uint64_t marker = 0, parts_max = 0;

	error = parse(call, &marker, &parts_max);
	if (!error)
		error = s3_upload_open(call, &upload);
	if (error)
		return error;
	error = answer(call, &upload, marker, parts_max);
	s3_upload_close(&upload);
	return error;
}
