/* bench/http_text.c: requests signed once, and a reader of answers' heads that costs little beside
 * the system calls around it. */
#include "bench/http_text.h"

#include <errno.h>
#include <stdio.h>
#include <strings.h>

#include "codec/codec.h"

#define UNSIGNED       "UNSIGNED-PAYLOAD"
#define SIGNED_HEADERS "host;x-amz-content-sha256;x-amz-date"
#define ENCRYPTION     "x-amz-server-side-encryption"

static struct signing_scope scope_of(const struct bench_signer *signer)
{
	return (struct signing_scope){
		slice_str(signer->date), slice_str(signer->region), SLICE("s3")};
}

void bench_signer_init(struct bench_signer *signer, const char *access_key, const char *secret_key,
	const char *region, const char *host)
{
	struct signing_scope scope;

	*signer = (struct bench_signer){.access_key = access_key, .region = region, .host = host};
	date_basic_format((int64_t)(clock_real_ns() / NS_PER_MS), signer->date);
	signer->date[DATE_BASIC_LEN] = '\0';
	if (!access_key)
		return;
	scope = scope_of(signer);
	signing_key(&scope, slice_str(secret_key), signer->key);
}

static void put_signature(
	const struct bench_signer *signer, const struct bench_http_line *line, struct buf *out)
{
	const char *more = line->encrypted ? ";" ENCRYPTION : "";
	const struct signing_scope scope = scope_of(signer);
	char text[4096], hex[SIGNING_SIGNATURE_LEN + 1];
	int len;

	len = snprintf(text, sizeof(text),
		"%s\n%s\n%s\nhost:%s\nx-amz-content-sha256:" UNSIGNED
		"\nx-amz-date:%s\n%s\n" SIGNED_HEADERS "%s\n" UNSIGNED,
		line->method, line->path, line->query, signer->host, signer->date,
		line->encrypted ? ENCRYPTION ":AES256\n" : "", more);
	CHECK((size_t)len < sizeof(text));
	signing_signature(
		signer->key, &scope, slice_str(signer->date), slice_of(text, (size_t)len), hex);
	buf_printf(out,
		"x-amz-content-sha256: " UNSIGNED "\r\nx-amz-date: %s\r\n"
		"Authorization: AWS4-HMAC-SHA256 Credential=%s/%.8s/%s/s3/aws4_request, "
		"SignedHeaders=" SIGNED_HEADERS "%s, Signature=%s\r\n",
		signer->date, signer->access_key, signer->date, signer->region, more, hex);
	if (line->encrypted)
		buf_put_str(out, ENCRYPTION ": AES256\r\n");
}

void bench_http_put_head(
	const struct bench_signer *signer, const struct bench_http_line *line, struct buf *out)
{
	buf_printf(out, "%s %s%s%s HTTP/1.1\r\nHost: %s\r\n", line->method, line->path,
		line->query[0] ? "?" : "", line->query, signer->host);
	if (signer->access_key)
		put_signature(signer, line, out);
	if (line->has_body)
		buf_printf(out, "Content-Length: %llu\r\n", (unsigned long long)line->body_bytes);
	buf_put(out, "\r\n", 2);
}

/* One header line, without its end. Only three names matter, and their first letters are c and t.
 */
static int read_header(const char *line, size_t len, struct bench_http_answer *answer)
{
	struct slice value = slice_of(line, len), name;

	if ((line[0] | 0x20) != 'c' && (line[0] | 0x20) != 't')
		return 0;
	name = slice_split(&value, ':');
	if (slice_eq_nocase(name, SLICE("content-length"))) {
		if (answer->has_length || slice_to_u64(slice_trim(value), &answer->body_bytes))
			return -EPROTO;
		answer->has_length = true;
	} else if (slice_eq_nocase(name, SLICE("connection"))) {
		answer->closes = slice_eq_nocase(slice_trim(value), SLICE("close"));
	} else if (slice_eq_nocase(name, SLICE("transfer-encoding"))) {
		return -EPROTO;
	}
	return 0;
}

ptrdiff_t bench_http_read_head(const char *data, size_t len, struct bench_http_answer *ret_answer)
{
	struct bench_http_answer answer = {0};
	const char *at = data, *end = data + len, *line_end;
	bool first = true;

	while ((line_end = memchr(at, '\n', (size_t)(end - at))) != NULL) {
		size_t line_len = (size_t)(line_end - at);

		if (!line_len || at[line_len - 1] != '\r')
			return -EPROTO;
		line_len--;
		if (first) {
			if (line_len < 12 || memcmp(at, "HTTP/1.1 ", 9) || at[9] < '1' ||
				at[9] > '5' || at[10] < '0' || at[10] > '9' || at[11] < '0' ||
				at[11] > '9')
				return -EPROTO;
			answer.status = (unsigned)((at[9] - '0') * 100 + (at[10] - '0') * 10 +
						   (at[11] - '0'));
			first = false;
		} else if (line_len == 0) {
			*ret_answer = answer;
			return line_end + 1 - data;
		} else if (read_header(at, line_len, &answer)) {
			return -EPROTO;
		}
		at = line_end + 1;
	}
	return -EAGAIN;
}
