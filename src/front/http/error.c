/* front/http/error.c: the front's own refusals, in the format of S3's errors. */
#include "front/http/http_priv.h"

#include <errno.h>
#include <stdio.h>

DEFINE_COUNTER(late_total, "nebulaio_late_answers_total", "transport=\"http\"",
	"Answers that were withheld because the store might have had another owner by then.");

const char *http_reason(uint32_t status)
{
	switch (status) {
	case 200:
		return "OK";
	case 201:
		return "Created";
	case 202:
		return "Accepted";
	case 204:
		return "No Content";
	case 206:
		return "Partial Content";
	case 301:
		return "Moved Permanently";
	case 302:
		return "Found";
	case 303:
		return "See Other";
	case 304:
		return "Not Modified";
	case 305:
		return "Use Proxy";
	case 307:
		return "Temporary Redirect";
	case 308:
		return "Permanent Redirect";
	case 400:
		return "Bad Request";
	case 401:
		return "Unauthorized";
	case 403:
		return "Forbidden";
	case 404:
		return "Not Found";
	case 405:
		return "Method Not Allowed";
	case 408:
		return "Request Timeout";
	case 409:
		return "Conflict";
	case 411:
		return "Length Required";
	case 412:
		return "Precondition Failed";
	case 421:
		return "Misdirected Request";
	case 413:
		return "Content Too Large";
	case 414:
		return "URI Too Long";
	case 416:
		return "Range Not Satisfiable";
	case 429:
		return "Too Many Requests";
	case 431:
		return "Request Header Fields Too Large";
	case 500:
		return "Internal Server Error";
	case 501:
		return "Not Implemented";
	case 503:
		return "Service Unavailable";
	case 505:
		return "HTTP Version Not Supported";
	case 507:
		return "Insufficient Storage";
	}
	return "Status";
}

struct refusal {
	uint32_t status;
	const char *code;
	const char *message;
};

static const struct refusal refusals[] = {
	{400, "BadRequest", "An error occurred when parsing the HTTP request."},
	{403, "AccessDenied", "The header " VIA_HEADER " is not of a gateway of this cluster."},
	{408, "RequestTimeout", "The request was not received within the time limit."},
	{413, "EntityTooLarge", "Your proposed upload exceeds the maximum allowed object size."},
	{414, "RequestURITooLong", "The request target is longer than the server accepts."},
	{431, "RequestHeaderSectionTooLarge",
		"Your request header section exceeds the maximum allowed size."},
	{500, "InternalError", "The server ended the request without an answer."},
	{501, "NotImplemented",
		"A header or the method implies functionality that is not implemented."},
	{503, "SlowDown", "The store cannot serve this now. Try again later."},
	{505, "HttpVersionNotSupported", "The HTTP version specified is not supported."},
};

/* S3 has no code for it; the native protocol has this one. */
static const struct refusal unknown = {503, "OutcomeUnknown",
	"The store cannot serve this now, and it is not known whether the request was done: look "
	"before you repeat it."};

static const struct refusal *refusal_of(uint32_t status)
{
	for (size_t i = 0; i < ARRAY_LEN(refusals); i++) {
		if (refusals[i].status == status)
			return &refusals[i];
	}
	CHECK_FAIL("a status without its refusal");
}

/* Whether the answer tells of a write. */
static bool tells_of_write(const struct http_reply *reply)
{
	return reply->reply.status < 300 && !s3_method_harmless(reply->conn->head.method);
}

bool http_reply_late(struct http_reply *reply)
{
	if (reply->reply.of_process || reply->reply.status >= 500)
		return false;
	counter_add(&late_total, 1);
	reply->outcome_unknown = tells_of_write(reply);
	reply->reply.broken = true;
	reply->reply.error = -EHOSTDOWN;
	return true;
}

static int refuse(struct http_conn *conn, const struct refusal *refusal)
{
	/* Overload is temporary, so the answer has Retry-After; other refusals need none. */
	const struct s3_header headers[] = {{SLICE("Content-Type"), SLICE("application/xml")},
		{SLICE("Retry-After"), SLICE("1")}};
	struct s3_reply *reply = &conn->reply.reply;
	char xml[512];
	int err, len;

	len = snprintf(xml, sizeof(xml),
		"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>%s</Code><Message>%s"
		"</Message><RequestId>%s</RequestId><HostId>%s</HostId></Error>",
		refusal->code, refusal->message, conn->request.request_id, http_thread()->host_id);
	CHECK(len > 0 && (size_t)len < sizeof(xml));
	err = reply->ops->head(
		reply, refusal->status, headers, refusal->status == 503 ? 2 : 1, (uint64_t)len);
	return err ? err : reply->ops->text(reply, slice_of(xml, (size_t)len));
}

int http_refuse(struct http_conn *conn, uint32_t status)
{
	return refuse(conn, refusal_of(status));
}

int http_refuse_unknown(struct http_conn *conn)
{
	return refuse(conn, &unknown);
}
