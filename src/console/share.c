/* console/share.c: share links: URLs of objects, presigned with the session's credentials. */
#include "console/console_priv.h"

#include <errno.h>
#include <stdlib.h>

#include "document/json.h"

#define SHARE_S_MAX  604800u
#define HOST_LEN_MAX 255u

/* Writes the URL at which others reach S3: the configured one, or the host that the browser used
 * for the page. */
static int put_s3_url(struct console_visit *visit, struct buf *out)
{
	const struct console_opts *opts = &visit->console->opts;
	struct slice host = console_header(visit->request, SLICE("host"));
	const char *colon = host.len ? memrchr(host.data, ':', host.len) : NULL;
	bool tls = opts->https_port && (opts->secure || !opts->http_port);

	if (opts->s3_url[0]) {
		buf_put_str(out, opts->s3_url);
		while (out->len && out->data[out->len - 1] == '/')
			out->len--;
		return 0;
	}
	if (!opts->http_port && !opts->https_port)
		return -ENOTSUP;
	/* A colon inside brackets belongs to an IPv6 address, not to a port. */
	if (colon && !memchr(colon, ']', host.len - (size_t)(colon - host.data)))
		host = slice_to(host, (size_t)(colon - host.data));
	if (!host.len || host.len > HOST_LEN_MAX)
		return -EINVAL;
	buf_printf(out, "%s://%.*s:%u", tls ? "https" : "http", SLICE_FMT(host),
		tls ? opts->https_port : opts->http_port);
	return 0;
}

static int make_link(struct console_visit *visit, const struct console_session *session,
	const json_t *json, uint32_t expires_s, struct buf *link)
{
	const struct s3_signer signer = console_signer_of(session, "s3");
	struct s3_request shared = {.method = S3_GET,
		.method_text = SLICE("GET"),
		.path = json_member_text(json, "path"),
		.query = json_member_text(json, "query")};
	struct s3_header host = {SLICE("host"), SLICE_NONE};
	struct buf query;
	ptrdiff_t at;
	int ret = put_s3_url(visit, link);

	at = ret ? -1 : slice_find(buf_slice(link), SLICE("://"));
	if (at < 0 || !slice_starts(shared.path, SLICE("/")))
		return ret ? ret : -EINVAL;
	host.value = slice_from(buf_slice(link), (size_t)at + 3);
	shared.headers = &host;
	shared.header_count = 1;
	buf_init(&query, LIMIT_HTTP_HEAD_BYTES_MAX);
	ret = s3_presign(&shared, &signer, expires_s, &query);
	if (!ret) {
		buf_put_slice(link, shared.path);
		buf_put(link, "?", 1);
		buf_put_slice(link, buf_slice(&query));
	}
	buf_free(&query);
	return link->failed ? -ENOMEM : ret;
}

/* A link expires at the latest with the credentials that sign it. */
void console_share(struct console_visit *visit, const struct console_session *session)
{
	int64_t left_s = (session->expires_ms - console_now_get().real_ms) / 1000;
	json_t *json = console_read_json(visit);
	int64_t expires_s;
	struct buf link;
	int ret;

	if (!json)
		return;
	expires_s = MIN(MIN(json_member_number(json, "seconds"), left_s), (int64_t)SHARE_S_MAX);
	buf_init(&link, 2 * LIMIT_HTTP_HEAD_BYTES_MAX);
	ret = expires_s > 0 ? make_link(visit, session, json, (uint32_t)expires_s, &link) : -EINVAL;
	if (ret == -ENOTSUP)
		console_answer_error(visit, 400, "S3 over HTTP is off here: set console.s3_url.");
	else if (ret)
		console_answer_error(
			visit, ret == -ENOMEM ? 503 : 400, "No link can be made of this.");
	else
		console_answer_json(visit, 200,
			json_pack("{s:s%, s:I}", "url", link.data, link.len, "seconds",
				(json_int_t)expires_s),
			NULL);
	buf_free(&link);
	json_decref(json);
}
