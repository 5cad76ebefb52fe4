/* front/http/head_dp.c: parses a head into a request.
 *
 * The head is first scanned for its end, which also refuses lone LFs and folded lines. llhttp then
 * gets the request line. The lines of the headers are split here: every name and value is one run
 * of the head's own bytes. Heads that a proxy in front might read differently are refused: spaces
 * in names, control characters in values, several lengths, a length beside a transfer coding,
 * codings other than chunked.
 *
 * Sources: RFC 9112 sections 2 to 6, RFC 9110 sections 7 and 10.1.1. */
#include "front/http/http_priv.h"

#include <errno.h>

int http_head_scan(struct http_scan *scan, const char *data, uint32_t len)
{
	while (scan->scanned < len) {
		const char *lf = memchr(data + scan->scanned, '\n', len - scan->scanned);
		uint32_t at;

		if (!lf) {
			scan->scanned = len;
			break;
		}
		at = (uint32_t)(lf - data);
		if (at == scan->line || data[at - 1] != '\r')
			return -EPROTO;
		if (at - 1 == scan->line)
			return (int)at + 1;
		/* A name never starts with white space: such a line is folded, or an attempt to
		 * smuggle a request. */
		if (data[scan->line] == ' ' || data[scan->line] == '\t')
			return -EPROTO;
		scan->line = scan->scanned = at + 1;
	}
	return -EAGAIN;
}

/* ---- The lines of the headers. ---- */

/* The lines up to the empty one, each with its CRLF. 0, or the status to refuse the head with. */
static uint32_t split_lines(struct http_head *head, const char *data, const char *end)
{
	while (data < end) {
		const char *lf = memchr(data, '\n', (size_t)(end - data));
		struct slice value = slice_of(data, (size_t)(lf - 1 - data));
		struct s3_header *header = &head->headers[head->header_count];

		if (head->header_count == ARRAY_LEN(head->headers))
			return 431;
		header->name = slice_split(&value, ':');
		if (!value.data || !field_name_is_valid(header->name))
			return 400;
		header->value = slice_trim(value);
		if (!field_value_is_valid(header->value))
			return 400;
		head->header_count++;
		data = lf + 1;
	}
	return 0;
}

/* ---- llhttp's callback. ---- */

static int on_headers_end(llhttp_t *parser)
{
	(void)parser;
	return HPE_PAUSED;
}

static const llhttp_settings_t settings = {
	.on_headers_complete = on_headers_end,
};

/* ---- The head's fields about the connection and the body. ---- */

/* Returns the next token of a comma-separated list. */
static struct slice list_next(struct slice *rest)
{
	return slice_trim(slice_split(rest, ','));
}

static void note_connection(struct http_head *head, struct slice value)
{
	while (value.len) {
		struct slice option = list_next(&value);

		if (slice_eq_nocase(option, SLICE("close")))
			head->keep_alive = false;
		else if (head->http_1_0 && slice_eq_nocase(option, SLICE("keep-alive")))
			head->keep_alive = true;
	}
}

/* Only chunked is supported, once. */
static uint32_t note_transfer_coding(struct http_head *head, struct slice value)
{
	bool again = head->has_transfer_coding;

	head->has_transfer_coding = true;
	if (head->http_1_0 || again)
		return 400;
	if (!slice_eq_nocase(value, SLICE("chunked")))
		return 501;
	head->chunked = true;
	return 0;
}

static uint32_t note_length(struct http_head *head, struct slice value)
{
	if (head->has_length || slice_to_u64(value, &head->content_length))
		return 400;
	head->has_length = true;
	return 0;
}

/* If a header occurs twice, the first is used, as in s3. */
static void note_first(struct slice *slot, struct slice value)
{
	if (!slot->data)
		*slot = value.data ? value : SLICE("");
}

static uint32_t note_header(struct http_head *head, const struct s3_header *header)
{
	struct slice name = header->name, value = header->value;

	switch (name.len) {
	case 4:
		if (slice_eq_nocase(name, SLICE("host"))) {
			head->host = value;
			head->host_count++;
		}
		break;
	case 6:
		/* Other expectations are ignored, as in S3. */
		if (slice_eq_nocase(name, SLICE("expect")) &&
			slice_eq_nocase(value, SLICE("100-continue")))
			head->expect = value;
		break;
	case 10:
		if (slice_eq_nocase(name, SLICE("connection")))
			note_connection(head, value);
		break;
	case 14:
		if (slice_eq_nocase(name, SLICE("content-length")))
			return note_length(head, value);
		break;
	case 17:
		if (slice_eq_nocase(name, SLICE("transfer-encoding")))
			return note_transfer_coding(head, value);
		break;
	case 20:
		if (slice_eq_nocase(name, SLICE("x-amz-content-sha256")))
			note_first(&head->content_sha256, value);
		break;
	case 28:
		if (slice_eq_nocase(name, SLICE("x-amz-decoded-content-length")))
			note_first(&head->decoded_length, value);
		break;
	}
	return 0;
}

static enum s3_method method_of(uint8_t method)
{
	switch (method) {
	case HTTP_GET:
		return S3_GET;
	case HTTP_HEAD:
		return S3_HEAD;
	case HTTP_PUT:
		return S3_PUT;
	case HTTP_POST:
		return S3_POST;
	case HTTP_DELETE:
		return S3_DELETE;
	case HTTP_OPTIONS:
		return S3_OPTIONS;
	}
	return S3_METHOD_OTHER;
}

static uint32_t split_target(struct http_head *head)
{
	static const struct slice schemes[] = {{"http://", 7}, {"https://", 8}};
	struct slice target = head->target;

	if (target.len > HTTP_TARGET_BYTES_MAX)
		return 414;
	for (size_t i = 0; i < ARRAY_LEN(schemes); i++) {
		size_t len = 0;

		if (!slice_eq_nocase(slice_to(target, schemes[i].len), schemes[i]))
			continue;
		target = slice_from(target, schemes[i].len);
		while (len < target.len && !strchr("/?#", target.data[len]))
			len++;
		head->authority = slice_to(target, len);
		target = len < target.len ? slice_from(target, len) : SLICE("/");
		if (!head->authority.len)
			return 400;
		break;
	}
	head->asterisk = slice_eq(target, SLICE("*"));
	if (head->asterisk)
		return head->method == S3_OPTIONS ? 0 : 400;
	if (memchr(target.data, '#', target.len))
		return 400;
	head->path = slice_split(&target, '?');
	head->query = target;
	if (!head->path.len && head->authority.len)
		head->path = SLICE("/");
	return slice_starts(head->path, SLICE("/")) ? 0 : 400;
}

static uint32_t judge(struct http_head *head)
{
	uint32_t status, coding = 0;

	for (uint32_t i = 0; i < head->header_count; i++) {
		status = note_header(head, &head->headers[i]);
		if (status == 400)
			return status;
		coding = status ? status : coding;
	}
	if (head->has_length && head->has_transfer_coding)
		return 400;
	if (coding)
		return coding;
	status = split_target(head);
	if (status)
		return status;
	if (head->host_count > 1 || (!head->host_count && !head->http_1_0))
		return 400;
	/* The addressed host must not depend on which of the two is read. */
	if (head->authority.len && head->host_count &&
		!slice_eq_nocase(head->authority, head->host))
		return 400;
	return 0;
}

static __attribute__((noinline, cold)) uint32_t parse_refusal(
	const struct http_head *head, llhttp_errno_t err)
{
	if (slice_eq(head->method_text, SLICE("PRI")))
		return 505; /* the start of HTTP/2 */
	switch (err) {
	case HPE_INVALID_METHOD:
		return field_name_is_valid(head->method_text) ? 501 : 400;
	case HPE_INVALID_VERSION:
		return 505;
	default:
		return 400;
	}
}

/* Versions of llhttp differ in the bytes that they take in a target. Browsers and tools send names
 * in UTF-8 there: llhttp gets a letter in place of each byte above ASCII. None takes control
 * characters. The line is a whole head for it: an empty line follows. */
static llhttp_errno_t execute(struct http_head *head, const char *data, uint32_t len)
{
	const char *at = data;
	llhttp_errno_t err = HPE_OK;

	for (size_t i = 0; i < head->target.len && !err; i++) {
		const char *c = head->target.data + i;

		if ((unsigned char)*c < 0x20)
			return HPE_INVALID_URL;
		if ((unsigned char)*c < 0x80)
			continue;
		err = llhttp_execute(&head->parser, at, (size_t)(c - at));
		if (!err)
			err = llhttp_execute(&head->parser, "x", 1);
		at = c + 1;
	}
	if (!err)
		err = llhttp_execute(&head->parser, at, (size_t)(data + len - at));
	return err ? err : llhttp_execute(&head->parser, "\r\n", 2);
}

uint32_t http_head_parse(struct http_head *head, const char *data, uint32_t len)
{
	struct slice rest = slice_of(data, len), line;
	uint32_t line_len = (uint32_t)((const char *)memchr(data, '\n', len) + 1 - data), status;
	llhttp_errno_t err;

	memset(&head->target, 0,
		offsetof(struct http_head, headers) - offsetof(struct http_head, target));
	head->method_text = slice_split(&rest, ' ');
	line = rest;
	line = slice_split(&line, '\r');
	head->target = slice_split(&line, ' ');
	llhttp_init(&head->parser, HTTP_REQUEST, &settings);
	head->parser.data = head;
	err = execute(head, data, line_len);
	if (err != HPE_PAUSED)
		return parse_refusal(head, err);
	if (head->parser.http_major != 1)
		return 505;
	/* One space on either side of the target, and nothing else in the line. */
	if (!head->target.len ||
		!slice_starts(slice_from(rest, head->target.len), SLICE(" HTTP/1.")) ||
		!slice_starts(slice_from(rest, head->target.len + 9), SLICE("\r\n")))
		return 400;
	head->http_1_0 = !head->parser.http_minor;
	head->keep_alive = !head->http_1_0;
	head->method = method_of(head->parser.method);
	status = split_lines(head, data + line_len, data + len - 2);
	return status ? status : judge(head);
}
