/* s3/op/get_object_attributes.c: GetObjectAttributes: selected attributes of an object.
 */
#include <stdio.h>

#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/named.h"
#include "s3/core/stored.h"
#include "s3/object/object.h"
#include "s3/operation.h"

#define PARTS_PAGE_MAX 1000ull

enum attribute {
	ATTRIBUTE_ETAG = 1,
	ATTRIBUTE_CHECKSUM = 2,
	ATTRIBUTE_PARTS = 4,
	ATTRIBUTE_STORAGE_CLASS = 8,
	ATTRIBUTE_SIZE = 16,
};
static const struct {
	struct slice name;
	unsigned attribute;
} names[] = {
	{SLICE("ETag"), ATTRIBUTE_ETAG},
	{SLICE("Checksum"), ATTRIBUTE_CHECKSUM},
	{SLICE("ObjectParts"), ATTRIBUTE_PARTS}, /* only for multipart uploads */
	{SLICE("StorageClass"), ATTRIBUTE_STORAGE_CLASS},
	{SLICE("ObjectSize"), ATTRIBUTE_SIZE},
};

static unsigned attribute_of(struct slice name)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (slice_eq(name, names[i].name))
			return names[i].attribute;
	return 0;
}

/* One list, or several headers with a list each. */
static const struct s3_error *parse(struct s3_call *call, unsigned *ret_wanted)
{
	const struct s3_request *request = call->request;
	unsigned wanted = 0;

	for (uint32_t i = 0; i < request->header_count; i++) {
		struct slice rest = request->headers[i].value;

		if (!slice_eq_nocase(request->headers[i].name, SLICE("x-amz-object-attributes")))
			continue;
		while (rest.len) {
			unsigned attribute = attribute_of(slice_trim(slice_split(&rest, ',')));

			if (!attribute)
				return s3_fail(call, S3_E_INVALID_ARGUMENT,
					"Invalid attribute name specified.");
			wanted |= attribute;
		}
	}
	if (!wanted)
		return s3_fail(call, S3_E_INVALID_REQUEST,
			"The x-amz-object-attributes header specifying the attributes to be "
			"retrieved is either missing or empty");
	*ret_wanted = wanted;
	return NULL;
}

/* The page of parts that the request's headers ask for. */
struct page {
	uint64_t after, count_max;
};

static const struct s3_error *parse_page(struct s3_call *call, struct page *ret_page)
{
	struct slice after = s3_call_header(call, SLICE("x-amz-part-number-marker"));
	struct slice count = s3_call_header(call, SLICE("x-amz-max-parts"));

	*ret_page = (struct page){.count_max = PARTS_PAGE_MAX};
	if (after.len && slice_to_u64(after, &ret_page->after))
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"x-amz-part-number-marker must be an integer.");
	if (count.len && (slice_to_u64(count, &ret_page->count_max) || !ret_page->count_max))
		return s3_fail(
			call, S3_E_INVALID_ARGUMENT, "x-amz-max-parts must be an integer above 0.");
	ret_page->after = MIN(ret_page->after, (uint64_t)STORE_PARTS_MAX);
	ret_page->count_max = MIN(ret_page->count_max, PARTS_PAGE_MAX);
	return NULL;
}

/* Parts of an object with a composite checksum have checksums, which are stored with the object if
 * they fit. */
static void put_part(const struct store_meta *meta, uint32_t number, struct buf *xml)
{
	enum checksum_kind kind = (enum checksum_kind)meta->checksum_type;
	struct slice sum = s3_meta_part_sum(meta, number);
	char element[32];

	buf_put_str(xml, "<Part>");
	s3_xml_u64(xml, "PartNumber", number);
	s3_xml_u64(xml, "Size", s3_meta_parts(meta, number).bytes);
	if (sum.len) {
		snprintf(element, sizeof(element), "Checksum%.*s", SLICE_FMT(checksum_name(kind)));
		xml_element(element, sum, xml);
	}
	buf_put_str(xml, "</Part>");
}

static void put_parts(const struct store_meta *meta, const struct page *page, struct buf *xml)
{
	struct s3_parts parts = s3_meta_parts(meta, 1);
	uint64_t last = MIN(page->after + page->count_max, (uint64_t)parts.count);

	if (!parts.count)
		return;
	buf_put_str(xml, "<ObjectParts>");
	s3_xml_u64(xml, "PartsCount", parts.count);
	s3_xml_u64(xml, "PartNumberMarker", page->after);
	s3_xml_u64(xml, "NextPartNumberMarker", last > page->after ? last : 0);
	s3_xml_u64(xml, "MaxParts", page->count_max);
	xml_element("IsTruncated", last < parts.count ? SLICE("true") : SLICE("false"), xml);
	for (uint64_t number = page->after + 1; number <= last; number++)
		put_part(meta, (uint32_t)number, xml);
	buf_put_str(xml, "</ObjectParts>");
}

const struct s3_error *s3_op_get_object_attributes(struct s3_call *call)
{
	const struct s3_error *error;
	struct s3_read read;
	struct buf xml;
	unsigned wanted = 0;
	struct page page;

	error = parse(call, &wanted);
	if (!error)
		error = parse_page(call, &page);
	if (!error)
		error = s3_read_begin(call, &read);
	if (error || !read.get)
		return error;
	/* Of the object's headers, the answer has only these. */
	call->header_count = call->header_base;
	s3_answer_time(call, read.meta);
	s3_answer_version(call, read.meta);
	s3_xml_begin(&xml, "GetObjectAttributesResponse");
	if (wanted & ATTRIBUTE_ETAG)
		xml_element("ETag", slice_str(read.meta->etag), &xml);
	if (wanted & ATTRIBUTE_CHECKSUM && read.meta->checksum_type) {
		buf_put_str(&xml, "<Checksum>");
		s3_xml_checksum_bare(&xml, read.meta);
		buf_put_str(&xml, "</Checksum>");
	}
	if (wanted & ATTRIBUTE_PARTS)
		put_parts(read.meta, &page, &xml);
	if (wanted & ATTRIBUTE_STORAGE_CLASS)
		xml_element("StorageClass", s3_meta_storage_class(read.meta), &xml);
	if (wanted & ATTRIBUTE_SIZE)
		s3_xml_u64(&xml, "ObjectSize", read.meta->bytes);
	s3_xml_end(&xml, "GetObjectAttributesResponse");
	store_get_close(read.get);
	return s3_answer_xml(call, 200, &xml);
}
