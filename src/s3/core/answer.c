/* s3/core/answer.c: answers: heads, XML documents, errors. */
#include <stdio.h>

#include "iam/iam.h"
#include "s3/core/answer.h"
#include "s3/core/call.h"
#include "s3/core/stored.h"
#include "s3/core/text.h"

void s3_answer_header(struct s3_call *call, struct slice name, struct slice value)
{
	s3_call_check(call);
	if (call->header_count == S3_REPLY_HEADERS_MAX)
		return;
	call->headers[call->header_count++] = (struct s3_header){.name = name, .value = value};
}

bool s3_answer_is_charged(const struct s3_call *call)
{
	for (uint32_t i = 0; i < call->header_count; i++)
		if (slice_eq(call->headers[i].name, SLICE("x-amz-request-charged")))
			return true;
	return false;
}

void s3_answer_charged(struct s3_call *call)
{
	if (!s3_answer_is_charged(call))
		s3_answer_header(call, SLICE("x-amz-request-charged"), SLICE("requester"));
}

void s3_answer_etag(struct s3_call *call, const char *etag)
{
	size_t len = strlen(etag);
	char *quoted = mem_arena_get(&call->arena, len + 2);

	if (!quoted)
		return;
	quoted[0] = '"';
	memcpy(quoted + 1, etag, len);
	quoted[len + 1] = '"';
	s3_answer_header(call, SLICE("ETag"), slice_of(quoted, len + 2));
}

void s3_answer_bucket_arn(struct s3_call *call)
{
	static const struct slice begin = SLICE("arn:aws:s3:::");
	char *text;

	if (s3_express_zone(call->bucket).len)
		return;
	text = mem_arena_get(&call->arena, begin.len + call->bucket.len);
	if (!text)
		return;
	memcpy(text, begin.data, begin.len);
	memcpy(text + begin.len, call->bucket.data, call->bucket.len);
	s3_answer_header(
		call, SLICE("x-amz-bucket-arn"), slice_of(text, begin.len + call->bucket.len));
}

void s3_answer_u64(struct s3_call *call, struct slice name, uint64_t value)
{
	char *text = mem_arena_get(&call->arena, SLICE_U64_MAX);

	if (text)
		s3_answer_header(call, name, slice_of_u64(value, text));
}

const struct s3_error *s3_answer_empty(struct s3_call *call, uint32_t status)
{
	s3_call_check(call);
	CHECK(status >= 200 && status < 600);
	if (call->reply->ops->head(call->reply, status, call->headers, call->header_count, 0))
		call->reply->broken = true;
	return NULL;
}

/* Sends head and text; the front ends a broken transport. */
void s3_answer_text(struct s3_call *call, uint32_t status, struct slice type, struct slice text)
{
	struct s3_reply *reply = call->reply;

	s3_answer_header(call, SLICE("Content-Type"), type);
	CHECK(status >= 200 && status < 600);
	if (reply->ops->head(reply, status, call->headers, call->header_count, text.len)) {
		reply->broken = true;
		return;
	}
	if (!text.len || (call->request->method == S3_HEAD && !call->request->control))
		return;
	if (reply->ops->text(reply, text))
		reply->broken = true;
	call->body_bytes += text.len;
	call->sent_bytes += text.len;
}

const struct s3_error *s3_answer_xml(struct s3_call *call, uint32_t status, struct buf *xml)
{
	bool failed = xml->failed;

	if (!failed)
		s3_answer_text(call, status, SLICE("application/xml"), buf_slice(xml));
	buf_free(xml);
	return failed ? s3_error_at(S3_E_SLOW_DOWN) : NULL;
}

static void put_resource(const struct s3_call *call, struct buf *xml)
{
	const struct s3_request *request = call->request;

	buf_put_str(xml, "<Resource>");
	if (!request->opcode) {
		if (utf8_is_valid(request->path))
			xml_escape(request->path, xml);
	} else if (utf8_is_valid(call->bucket) && utf8_is_valid(call->key)) {
		buf_put(xml, "/", 1);
		xml_escape(call->bucket, xml);
		buf_put(xml, "/", 1);
		xml_escape(call->key, xml);
	}
	buf_put_str(xml, "</Resource>");
}

static void put_error(const struct s3_call *call, const struct s3_error *error, struct buf *xml)
{
	struct slice bucket = call->blamed_bucket.len ? call->blamed_bucket : call->bucket;
	struct slice key = call->blamed_bucket.len ? call->blamed_key : call->key;

	buf_put_str(xml, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error>");
	xml_element("Code", slice_str(error->code), xml);
	xml_element("Message", slice_str(call->message ? call->message : error->message), xml);
	if (bucket.len && utf8_is_valid(bucket))
		xml_element("BucketName", bucket, xml);
	if (key.len && utf8_is_valid(key))
		xml_element("Key", key, xml);
	put_resource(call, xml);
	buf_put_slice(xml, call->detail);
	xml_element("RequestId", slice_str(call->request->request_id), xml);
	xml_element("HostId", slice_str(call->s3->host_id), xml);
	buf_put_str(xml, "</Error>");
}

/* In the format of IAM and STS. */
static void put_service_error(
	const struct s3_call *call, const struct s3_error *error, struct buf *xml)
{
	bool unknown_key = error == s3_error_at(S3_E_INVALID_ACCESS_KEY_ID);

	buf_put_str(xml,
		"<ErrorResponse xmlns=\"https://iam.amazonaws.com/doc/2010-05-08/\"><Error>"
		"<Type>Sender</Type>");
	xml_element(
		"Code", unknown_key ? SLICE("InvalidClientTokenId") : slice_str(error->code), xml);
	xml_element("Message", slice_str(call->message ? call->message : error->message), xml);
	buf_put_str(xml, "</Error>");
	xml_element("RequestId", slice_str(call->request->request_id), xml);
	buf_put_str(xml, "</ErrorResponse>");
}

void s3_answer_error(struct s3_call *call, const struct s3_error *error)
{
	struct buf xml;

	/* A control message is a POST, whatever it stands for. */
	if (call->request->method == S3_HEAD && !call->request->control) {
		s3_answer_empty(call, error->status);
		return;
	}
	buf_init(&xml, S3_XML_REPLY_BYTES_MAX);
	if (call->operation->id == S3_OPERATION_SERVICE)
		put_service_error(call, error, &xml);
	else
		put_error(call, error, &xml);
	s3_answer_text(call, error->status, SLICE("application/xml"),
		xml.failed ? SLICE_NONE : buf_slice(&xml));
	buf_free(&xml);
}

void s3_xml_begin(struct buf *xml, const char *root)
{
	buf_init(xml, S3_XML_REPLY_BYTES_MAX);
	buf_printf(xml,
		"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
		"<%s xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">",
		root);
}

void s3_xml_end(struct buf *xml, const char *root)
{
	buf_printf(xml, "</%s>", root);
}

void s3_xml_u64(struct buf *xml, const char *name, uint64_t value)
{
	char digits[SLICE_U64_MAX];

	xml_element(name, slice_of_u64(value, digits), xml);
}

void s3_xml_time(struct buf *xml, const char *name, uint64_t time_ns)
{
	char text[DATE_ISO_LEN];

	date_iso_format((int64_t)(time_ns / NS_PER_S * 1000), text);
	xml_element(name, slice_of(text, sizeof(text)), xml);
}

void s3_xml_etag(struct buf *xml, const char *etag)
{
	buf_put_str(xml, "<ETag>&quot;");
	xml_escape(slice_str(etag), xml);
	buf_put_str(xml, "&quot;</ETag>");
}

static void put_checksum(struct buf *xml, const struct store_meta *meta, bool with_count)
{
	struct slice name = checksum_name((enum checksum_kind)meta->checksum_type);
	char text[S3_CHECKSUM_LEN_MAX], element[32];
	size_t len = s3_checksum_format(meta, text);

	if (!len)
		return;
	if (!with_count)
		len = BASE64_LEN(meta->checksum_len);
	snprintf(element, sizeof(element), "Checksum%.*s", SLICE_FMT(name));
	xml_element(element, slice_of(text, len), xml);
	xml_element("ChecksumType",
		meta->checksum_flags & S3_FLAG_COMPOSITE ? SLICE("COMPOSITE")
							 : SLICE("FULL_OBJECT"),
		xml);
}

void s3_xml_checksum(struct buf *xml, const struct store_meta *meta)
{
	put_checksum(xml, meta, true);
}

void s3_xml_checksum_bare(struct buf *xml, const struct store_meta *meta)
{
	put_checksum(xml, meta, false);
}

void s3_xml_owner(struct buf *xml, const char *element, const struct iam_owner *owner)
{
	buf_printf(xml, "<%s>", element);
	xml_element("ID", slice_str(owner->id), xml);
	xml_element("DisplayName", slice_str(owner->name), xml);
	buf_printf(xml, "</%s>", element);
}

void s3_answer_time(struct s3_call *call, const struct store_meta *meta)
{
	char *text = mem_arena_get(&call->arena, DATE_HTTP_LEN);

	if (!text)
		return;
	date_http_format((int64_t)(meta->mtime_ns / NS_PER_MS), text);
	s3_answer_header(call, SLICE("Last-Modified"), slice_of(text, DATE_HTTP_LEN));
}
