/* console/pass.c: signs a request of the page with its session's credentials and passes it on. The
 * answer is data for the page's own code: the browser never runs, shows or frames it in the
 * console's origin, whatever headers an object has. */
#include "console/console_priv.h"

#include <errno.h>
#include <stdio.h>

#define OWN_HEADERS 6u

/* ---- The answer. ---- */

struct pass {
	struct s3_reply reply;
	struct s3_reply *outer;
	bool object;	   /* the body may be an object's bytes, which the server does not trust */
	struct slice name; /* the object's name, for a download; percent-encoded */
	struct buf disposition;
};

/* Headers of an answer that the browser itself would obey. */
static bool is_for_browser(struct slice name)
{
	static const struct slice NAMES[] = {SLICE("content-type"), SLICE("content-disposition"),
		SLICE("content-security-policy"), SLICE("set-cookie"), SLICE("location"),
		SLICE("refresh"), SLICE("link"), SLICE("cache-control"), SLICE("expires"),
		SLICE("clear-site-data"), SLICE("service-worker-allowed"), SLICE("vary")};

	return slice_among(name, NAMES, ARRAY_LEN(NAMES)) ||
	       slice_eq_nocase(slice_to(name, 15), SLICE("access-control-"));
}

static int pass_head(struct s3_reply *reply, uint32_t status, const struct s3_header *headers,
	uint32_t header_count, uint64_t bytes)
{
	struct pass *pass = CONTAINER_OF(reply, struct pass, reply);
	struct s3_header out[S3_REPLY_HEADERS_MAX + OWN_HEADERS];
	uint32_t count = 0;
	int ret;

	out[count++] = (struct s3_header){SLICE("Content-Type"), SLICE("application/octet-stream")};
	out[count++] =
		(struct s3_header){SLICE("Content-Disposition"), buf_slice(&pass->disposition)};
	out[count++] = (struct s3_header){
		SLICE("Content-Security-Policy"), SLICE("default-src 'none'; sandbox")};
	out[count++] = (struct s3_header){SLICE("X-Content-Type-Options"), SLICE("nosniff")};
	out[count++] =
		(struct s3_header){SLICE("Cross-Origin-Resource-Policy"), SLICE("same-origin")};
	out[count++] = (struct s3_header){SLICE("Cache-Control"), SLICE("no-store")};
	for (uint32_t i = 0; i < header_count; i++) {
		struct s3_header header = headers[i];

		if (slice_eq_nocase(header.name, SLICE("content-type")))
			header.name = SLICE("X-Console-Content-Type");
		else if (slice_eq_nocase(header.name, SLICE("cache-control")))
			header.name = SLICE("X-Console-Cache-Control");
		else if (slice_eq_nocase(header.name, SLICE("content-disposition")))
			header.name = SLICE("X-Console-Content-Disposition");
		else if (is_for_browser(header.name))
			continue;
		if (count == ARRAY_LEN(out))
			return -EMSGSIZE;
		out[count++] = header;
	}
	ret = pass->outer->ops->head(pass->outer, status, out, count, bytes);
	reply->status = pass->outer->status;
	return ret;
}

static int pass_text(struct s3_reply *reply, struct slice body)
{
	struct pass *pass = CONTAINER_OF(reply, struct pass, reply);

	return pass->outer->ops->text(pass->outer, body);
}

static int pass_sink(struct s3_reply *reply, struct flow_sink **ret_sink)
{
	struct pass *pass = CONTAINER_OF(reply, struct pass, reply);

	return pass->outer->ops->sink(pass->outer, ret_sink);
}

static const struct s3_reply_ops PASS_OPS = {
	.head = pass_head, .text = pass_text, .sink = pass_sink};

/* A download's file name is the last part of the key (RFC 6266, RFC 8187). */
static void put_disposition(struct buf *out, struct slice path)
{
	const char *slash = path.len ? memrchr(path.data, '/', path.len) : NULL;
	struct slice name = slash ? slice_from(path, (size_t)(slash - path.data) + 1) : path;
	char decoded[LIMIT_KEY_LEN_MAX];
	size_t len;

	buf_put_str(out, "attachment");
	if (!name.len || uri_decode(name, 0, decoded, sizeof(decoded), &len) ||
		!utf8_is_valid(slice_of(decoded, len)))
		return;
	buf_put_str(out, "; filename*=UTF-8''");
	uri_encode(slice_of(decoded, len), 0, out);
}

/* ---- The request. ---- */

/* Headers of the page's request that are passed to S3: none about the browser's session with the
 * console, and none of the signature. */
static bool goes_along(struct slice name)
{
	static const struct slice NAMES[] = {SLICE("content-type"), SLICE("content-length"),
		SLICE("content-md5"), SLICE("content-encoding"), SLICE("content-language"),
		SLICE("content-disposition"), SLICE("cache-control"), SLICE("expires"),
		SLICE("range"), SLICE("if-match"), SLICE("if-none-match"),
		SLICE("if-modified-since"), SLICE("if-unmodified-since"), SLICE("user-agent"),
		SLICE("transfer-encoding"), SLICE("expect")};
	static const struct slice OWN[] = {SLICE("x-amz-date"), SLICE("x-amz-content-sha256"),
		SLICE("x-amz-security-token"), SLICE("x-amz-s3session-token"),
		SLICE("x-amz-rdma-token"), SLICE("x-amz-decoded-content-length")};

	if (slice_eq_nocase(slice_to(name, 6), SLICE("x-amz-")))
		return !slice_among(name, OWN, ARRAY_LEN(OWN));
	return slice_among(name, NAMES, ARRAY_LEN(NAMES));
}

static int add_headers(struct s3_signed *signed_by, const struct s3_request *request)
{
	/* A fixed name that never names a bucket, whatever name the browser used for the console.
	 */
	const struct s3_header host = {SLICE("host"), SLICE("console")};
	bool fits = s3_sign_header(signed_by, &host);

	for (uint32_t i = 0; i < request->header_count; i++)
		if (goes_along(request->headers[i].name))
			fits = fits && s3_sign_header(signed_by, &request->headers[i]);
	return fits ? 0 : -EMSGSIZE;
}

static void answer(struct console *console, enum console_way way, const struct s3_request *request,
	struct s3_reply *reply)
{
	if (way == CONSOLE_ADMIN)
		console->opts.admin(console->opts.admin_arg, request, reply);
	else if (way == CONSOLE_METRICS)
		s3_page_handle(console->opts.s3, request, reply, console->opts.admin,
			console->opts.admin_arg);
	else
		s3_handle(console->opts.s3, request, reply);
}

void console_pass(struct console *console, const struct console_session *session,
	enum console_way way, struct slice path, const struct s3_request *request,
	struct s3_reply *reply)
{
	const struct s3_signer signer = {.access_key = slice_str(session->access_key),
		.secret = slice_str(session->secret),
		.token = slice_str(session->token),
		.service = way == CONSOLE_IAM	? "iam"
			   : way == CONSOLE_STS ? "sts"
						: "s3"};
	struct pass pass = {.reply = {.ops = &PASS_OPS}, .outer = reply};
	struct s3_request passed = *request;
	struct s3_signed signed_by;
	int ret;

	passed.path = path;
	passed.token = NULL;
	buf_init(&pass.disposition, 4 * LIMIT_KEY_LEN_MAX);
	put_disposition(&pass.disposition, way == CONSOLE_S3 ? path : SLICE_NONE);
	s3_sign_begin(&signed_by, &signer);
	ret = add_headers(&signed_by, request);
	if (!ret)
		ret = s3_sign_end(&passed, &signer, &signed_by);
	if (ret) {
		const struct s3_error *error = s3_error_named(ret == -ENOMEM   ? "SlowDown"
							      : ret == -EINVAL ? "InvalidURI"
									       : "InvalidRequest");
		char text[256];
		int len = snprintf(text, sizeof(text),
			"<Error><Code>%s</Code><Message>%s</Message></Error>", error->code,
			error->message);

		if (!pass_head(&pass.reply, error->status, NULL, 0, (uint64_t)len) &&
			request->method != S3_HEAD)
			pass_text(&pass.reply, slice_of(text, (size_t)len));
	} else {
		answer(console, way, &passed, &pass.reply);
	}
	reply->broken |= pass.reply.broken;
	reply->error = pass.reply.error;
	s3_sign_free(&signed_by);
	buf_free(&pass.disposition);
}
