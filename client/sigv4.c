/* client/sigv4.c: signs a request for HTTP (AWS Signature Version 4, "Authenticating Requests:
 * Using the Authorization Header"). The payload is not signed: a body's integrity is its checksum's
 * and TLS's. */
#include "http_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SIGNED_HEADERS_MAX (NEB_HEADERS_MAX + 6u)
#define SESSION_TOKEN	   "x-amz-security-token"
#define QUERY_PARAMS_MAX   64u

struct signed_header {
	struct slice name, value;
};

/* By the names in lower case; the values of one name in the order in which they are sent. */
static int header_order(const void *a, const void *b)
{
	const struct slice x = ((const struct signed_header *)a)->name;
	const struct slice y = ((const struct signed_header *)b)->name;
	int order = strncasecmp(x.data, y.data, MIN(x.len, y.len));

	if (!order)
		order = (x.len > y.len) - (x.len < y.len);
	return order ? order : (x.data > y.data) - (x.data < y.data);
}

struct param {
	struct slice name, value;
};

static int param_order(const void *a, const void *b)
{
	const struct param *x = a, *y = b;
	int order = slice_cmp(x->name, y->name);

	return order ? order : slice_cmp(x->value, y->value);
}

static void header_set(struct signed_header *header, struct slice name, struct slice value)
{
	*header = (struct signed_header){name, value};
}

/* Whether it is another value of the header before it. */
static bool goes_on(const struct signed_header *headers, uint32_t i)
{
	return i && slice_eq_nocase(headers[i].name, headers[i - 1].name);
}

/* A name or value as S3 encodes it. One that is not encoded well is refused for that. */
static struct slice encoded(struct slice part, struct buf *plain, struct buf *text)
{
	size_t at = text->len, len;

	if (uri_decode(part, URI_PLUS_IS_SPACE, plain->data, plain->cap, &len))
		return part;
	uri_encode(slice_of(plain->data, len), 0, text);
	return slice_of(text->data + at, text->len - at);
}

/* Parameters in order of name, then value, each with its '='. */
static void query_put(struct buf *out, struct slice query)
{
	struct param params[QUERY_PARAMS_MAX];
	struct buf plain, text;
	uint32_t count = 0;

	buf_init(&plain, query.len);
	buf_init(&text, 3 * query.len);
	/* With all of its room text stays where it is, and so do the slices of it. */
	if (query.len && buf_room(&plain, query.len) && buf_room(&text, 3 * query.len))
		while (query.len && count < QUERY_PARAMS_MAX) {
			struct slice value = slice_split(&query, '&'), name;

			if (!value.len)
				continue;
			name = slice_split(&value, '=');
			params[count].name = encoded(name, &plain, &text);
			params[count++].value = encoded(value, &plain, &text);
		}
	qsort(params, count, sizeof(params[0]), param_order);
	for (uint32_t i = 0; i < count; i++)
		buf_printf(out, "%s%.*s=%.*s", i ? "&" : "", SLICE_FMT(params[i].name),
			SLICE_FMT(params[i].value));
	out->failed |= plain.failed || text.failed;
	buf_free(&plain);
	buf_free(&text);
}

static void names_put(struct buf *out, const struct signed_header *headers, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		if (goes_on(headers, i))
			continue;
		buf_put_str(out, i ? ";" : "");
		signing_name_put(headers[i].name, out);
	}
}

static void request_put(struct buf *out, const struct client_signing *signing,
	const struct signed_header *headers, uint32_t count)
{
	buf_printf(out, "%s\n%.*s\n", signing->method, SLICE_FMT(signing->path));
	query_put(out, signing->query);
	for (uint32_t i = 0; i < count; i++) {
		if (goes_on(headers, i)) {
			buf_put_str(out, ",");
		} else {
			buf_put_str(out, "\n");
			signing_name_put(headers[i].name, out);
			buf_put_str(out, ":");
		}
		signing_value_put(headers[i].value, out);
	}
	buf_put_str(out, "\n\n");
	names_put(out, headers, count);
	buf_put_str(out, "\nUNSIGNED-PAYLOAD");
}

/* Headers of our own requests count for the operation that they stand for when they are signed. */
static bool counts(struct slice name)
{
	return slice_eq_nocase(slice_to(name, 8), SLICE("content-")) ||
	       slice_eq_nocase(slice_to(name, 3), SLICE("if-")) ||
	       slice_eq_nocase(name, SLICE("cache-control")) ||
	       slice_eq_nocase(name, SLICE("expires"));
}

static bool must_be_signed(struct slice name)
{
	return slice_eq_nocase(slice_to(name, 6), SLICE("x-amz-")) ||
	       slice_eq_nocase(slice_to(name, 16), SLICE("x-nebulaio-rdma-")) ||
	       slice_eq_nocase(name, SLICE("x-nebulaio-memory")) ||
	       slice_eq_nocase(name, SLICE("x-nebulaio-replica"));
}

/* host, the date, the value in place of the payload's hash, and every x-amz- header, in order. */
static uint32_t headers_gather(const struct client_call *call, const struct client_signing *signing,
	const char *date, struct slice checksum, struct signed_header *headers)
{
	struct slice rest = call->headers;
	struct capsule_header header;
	uint32_t count = 0;

	header_set(&headers[count++], SLICE("host"), signing->host);
	header_set(&headers[count++], SLICE("x-amz-content-sha256"), SLICE("UNSIGNED-PAYLOAD"));
	header_set(&headers[count++], SLICE("x-amz-date"), slice_of(date, DATE_BASIC_LEN));
	if (checksum.len)
		header_set(&headers[count++],
			checksum_header((enum checksum_kind)call->checksum_kind), checksum);
	if (call->client->session_token)
		header_set(&headers[count++], SLICE(SESSION_TOKEN),
			slice_str(call->client->session_token));
	if (call->by_token)
		header_set(&headers[count++], token_header(TOKEN_HEADER_TOKEN),
			slice_of(call->token, TOKEN_LEN));
	while (capsule_header_next(&rest, &header) && count < SIGNED_HEADERS_MAX)
		if (must_be_signed(header.name) || (call->internal && counts(header.name)))
			header_set(&headers[count++], header.name, header.value);
	qsort(headers, count, sizeof(headers[0]), header_order);
	return count;
}

/* A line, with its NUL; 1: their count. */
static uint32_t header_put(struct buf *out, struct slice name, struct slice value)
{
	buf_printf(out, "%.*s: %.*s", SLICE_FMT(name), SLICE_FMT(value));
	buf_put(out, "", 1);
	return 1;
}

struct curl_slist *client_sign(
	struct client_call *call, const struct client_signing *signing, struct curl_slist *list)
{
	struct neb_client *client = call->client;
	struct signed_header headers[SIGNED_HEADERS_MAX];
	char date[DATE_BASIC_LEN + 1], hex[SIGNING_SIGNATURE_LEN + 1];
	char checksum[CHECKSUM_TEXT_LEN_MAX];
	const struct signing_scope scope = {
		slice_of(date, DATE_DAY_LEN), slice_str(client->region), SLICE("s3")};
	uint8_t key[SHA256_BYTES];
	enum checksum_kind kind = (enum checksum_kind)call->checksum_kind;
	struct buf out;
	uint32_t count, line_count = 0;
	size_t checksum_len = 0;
	bool failed;

	date_basic_format(signing->now_ms, date);
	date[DATE_BASIC_LEN] = '\0';
	if (kind)
		checksum_len = base64_encode(call->checksum, checksum_bytes(kind), checksum);
	count = headers_gather(call, signing, date, slice_of(checksum, checksum_len), headers);
	buf_init(&out, 64 * KIB);
	request_put(&out, signing, headers, count);
	signing_key(&scope, slice_str(client->secret_key), key);
	signing_signature(key, &scope, slice_str(date), buf_slice(&out), hex);
	secret_wipe(key, sizeof(key));
	failed = out.failed;
	buf_reset(&out);
	buf_printf(&out, "Authorization: " SIGNING_ALGORITHM " Credential=%s/", client->access_key);
	signing_scope_put(&scope, &out);
	buf_put_str(&out, ", SignedHeaders=");
	names_put(&out, headers, count);
	buf_printf(&out, ", Signature=%s", hex);
	buf_put(&out, "", 1);
	buf_printf(&out, "Host: %.*s", SLICE_FMT(signing->host));
	buf_put(&out, "", 1);
	buf_printf(&out, "x-amz-date: %s", date);
	buf_put(&out, "", 1);
	buf_put_str(&out, "x-amz-content-sha256: UNSIGNED-PAYLOAD");
	buf_put(&out, "", 1);
	line_count = 4;
	if (checksum_len)
		line_count +=
			header_put(&out, checksum_header(kind), slice_of(checksum, checksum_len));
	if (client->session_token)
		line_count +=
			header_put(&out, SLICE(SESSION_TOKEN), slice_str(client->session_token));
	if (call->by_token)
		line_count += header_put(
			&out, token_header(TOKEN_HEADER_TOKEN), slice_of(call->token, TOKEN_LEN));
	failed |= out.failed;
	for (const char *line = out.data; !failed && line_count--; line += strlen(line) + 1) {
		struct curl_slist *more = curl_slist_append(list, line);

		failed = !more;
		list = more ? more : list;
	}
	buf_free(&out);
	if (!failed)
		return list;
	curl_slist_free_all(list);
	return NULL;
}
