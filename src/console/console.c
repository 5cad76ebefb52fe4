/* console/console.c: the paths of the console's listener: the page's files, sign-in and sign-out,
 * share links; the rest is passed on for a session.
 *
 * A request that changes something has the header X-Console, which no form and no other site's page
 * can send, and comes from the page's own origin. The cookie is HttpOnly and SameSite=Strict. */
#include "console/console_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "document/document.h"
#include "document/json.h"

#define SIGN_INS      "nebulaio_console_sign_ins_total"
#define SIGN_INS_HELP "Tries to sign in to the web console, by how they ended."
DEFINE_COUNTER(signed_in, SIGN_INS, "result=\"ok\"", SIGN_INS_HELP);
DEFINE_COUNTER(sign_in_refused, SIGN_INS, "result=\"refused\"", SIGN_INS_HELP);
DEFINE_COUNTER(sign_in_limited, SIGN_INS, "result=\"limited\"", SIGN_INS_HELP);

#define SHARE_S_MAX  604800u
#define HOST_LEN_MAX 255u

/* One request. */
struct visit {
	struct console *console;
	const struct s3_request *request;
	struct s3_reply *reply;
	char cookie_name[32];
};

/* ---- Answers. ---- */

static const struct s3_header SAFETY[] = {
	{SLICE("X-Content-Type-Options"), SLICE("nosniff")},
	{SLICE("X-Frame-Options"), SLICE("DENY")},
	{SLICE("Referrer-Policy"), SLICE("no-referrer")},
	{SLICE("Cross-Origin-Opener-Policy"), SLICE("same-origin")},
	{SLICE("Cross-Origin-Resource-Policy"), SLICE("same-origin")},
	{SLICE("Permissions-Policy"), SLICE("camera=(), geolocation=(), microphone=()")},
	{SLICE("Content-Security-Policy"),
		SLICE("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' "
		      "blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
		      "frame-ancestors 'none'; require-trusted-types-for 'script'; "
		      "trusted-types xml")},
};

struct answer {
	uint32_t status;
	struct slice type, body;
	struct s3_header more[3];
	uint32_t more_count;
};

static void answer_with(struct visit *visit, const struct answer *answer)
{
	struct s3_header headers[ARRAY_LEN(SAFETY) + ARRAY_LEN(answer->more) + 1];
	uint32_t count = 0;

	for (uint32_t i = 0; i < ARRAY_LEN(SAFETY); i++)
		headers[count++] = SAFETY[i];
	if (answer->type.len)
		headers[count++] = (struct s3_header){SLICE("Content-Type"), answer->type};
	for (uint32_t i = 0; i < answer->more_count; i++)
		headers[count++] = answer->more[i];
	if (visit->reply->ops->head(
		    visit->reply, answer->status, headers, count, answer->body.len) == 0 &&
		answer->body.len && visit->request->method != S3_HEAD)
		visit->reply->ops->text(visit->reply, answer->body);
}

/* Takes the reference over. */
static void answer_json(
	struct visit *visit, uint32_t status, json_t *json, const struct s3_header *more)
{
	char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
	struct answer answer = {.status = text ? status : 503,
		.type = SLICE("application/json"),
		.body = slice_str(text ? text : "{\"error\":\"Out of memory.\"}"),
		.more = {{SLICE("Cache-Control"), SLICE("no-store")}},
		.more_count = 1};

	if (more)
		answer.more[answer.more_count++] = *more;
	answer_with(visit, &answer);
	if (text)
		secret_wipe(text, strlen(text));
	free(text);
	json_decref(json);
}

static void answer_error(struct visit *visit, uint32_t status, const char *text)
{
	answer_json(visit, status, json_pack("{s:s}", "error", text), NULL);
}

/* ---- What a request says. ---- */

struct slice console_header(const struct s3_request *request, struct slice name)
{
	for (uint32_t i = 0; i < request->header_count; i++)
		if (slice_eq_nocase(request->headers[i].name, name))
			return request->headers[i].value;
	return SLICE_NONE;
}

static struct console_now now(void)
{
	return (struct console_now){
		.mono_ns = clock_now_ns(), .real_ms = (int64_t)(clock_real_ns() / NS_PER_MS)};
}

/* Browsers send cookies to every port of a host: the name tells consoles apart. */
static void name_cookie(struct visit *visit)
{
	struct slice host = console_header(visit->request, SLICE("host"));
	const char *colon = host.len ? memrchr(host.data, ':', host.len) : NULL;
	struct slice port = colon ? slice_from(host, (size_t)(colon - host.data) + 1) : SLICE_NONE;
	uint64_t number = 0;

	if (slice_to_u64(port, &number) || number > UINT16_MAX)
		number = 0;
	snprintf(visit->cookie_name, sizeof(visit->cookie_name), "nebulaio-console-%u",
		(unsigned)number);
}

static struct slice find_cookie(const struct visit *visit)
{
	struct slice rest = console_header(visit->request, SLICE("cookie"));

	while (rest.len) {
		struct slice value = slice_trim(slice_split(&rest, ';'));

		if (slice_eq(slice_split(&value, '='), slice_str(visit->cookie_name)))
			return value;
	}
	return SLICE_NONE;
}

/* A page that only looks again by itself does not keep its session alive. */
static struct console_session *find_session(const struct visit *visit)
{
	bool polls = console_header(visit->request, SLICE("x-console-poll")).len > 0;

	return console_table_get(&visit->console->table, find_cookie(visit), now(), !polls);
}

/* Whether the page itself sent it, as far as the browser tells. */
static bool is_own(const struct s3_request *request)
{
	struct slice site = console_header(request, SLICE("sec-fetch-site"));
	struct slice origin = console_header(request, SLICE("origin"));
	bool changes = request->method != S3_GET && request->method != S3_HEAD;

	if (site.len && !slice_eq(site, SLICE("same-origin")) &&
		(changes || !slice_eq(site, SLICE("none"))))
		return false;
	if (!changes)
		return true;
	if (origin.len) {
		ptrdiff_t at = slice_find(origin, SLICE("://"));

		if (at < 0 || !slice_eq_nocase(slice_from(origin, (size_t)at + 3),
				      console_header(request, SLICE("host"))))
			return false;
	}
	return console_header(request, SLICE("x-console")).len > 0;
}

/* The JSON object of a small body; NULL: answered. */
static json_t *read_json(struct visit *visit)
{
	const struct s3_chunk_signing plain = {.payload = S3_PAYLOAD_UNSIGNED};
	struct s3_body *body = visit->request->body;
	struct flow_source *source;
	json_t *json = NULL;
	struct buf text;
	int ret = -EINVAL;

	buf_init(&text, 4 * CONSOLE_FORM_BYTES_MAX);
	if (body->bytes && body->bytes <= 4 * CONSOLE_FORM_BYTES_MAX)
		ret = body->ops->open(body, &plain, &source);
	if (!ret)
		ret = document_read_source(visit->request->core, source, &text);
	if (!ret && json_is_flat(buf_slice(&text), 4))
		json = json_loadb(text.data, text.len, 0, NULL);
	if (text.data)
		secret_wipe(text.data, text.len);
	buf_free(&text);
	if (json_is_object(json))
		return json;
	json_decref(json);
	answer_error(visit, ret == -ENOBUFS ? 503 : 400, "The request's body is not understood.");
	return NULL;
}

/* ---- The page's files. ---- */

static void answer_file(struct visit *visit, const struct console_file *file)
{
	struct answer answer = {.status = 200,
		.type = slice_str(file->type),
		.body = slice_of(file->data, file->bytes),
		.more = {{SLICE("Cache-Control"), SLICE("no-cache")},
			{SLICE("ETag"), slice_str(file->etag)}},
		.more_count = 2};

	if (slice_eq(console_header(visit->request, SLICE("if-none-match")),
		    slice_str(file->etag))) {
		answer.status = 304;
		answer.body = SLICE_NONE;
	}
	answer_with(visit, &answer);
}

static const struct console_file *find_file(struct slice path)
{
	if (slice_eq(path, SLICE("/")))
		path = SLICE("/index.html");
	for (size_t i = 0; i < console_file_count; i++)
		if (slice_eq(path, slice_str(console_files[i].path)))
			return &console_files[i];
	return NULL;
}

/* ---- Signing in. ---- */

static void put_field(struct buf *form, const char *name, struct slice value)
{
	buf_printf(form, "&%s=", name);
	uri_encode(value, 0, form);
}

static struct s3_signer signer_of(const struct console_session *session, const char *service)
{
	return (struct s3_signer){.access_key = slice_str(session->access_key),
		.secret = slice_str(session->secret),
		.token = slice_str(session->token),
		.service = service};
}

/* Asks STS for the principal of the credentials. */
static bool learn_identity(struct visit *visit, struct console_session *session)
{
	const struct s3_signer signer = signer_of(session, "sts");
	struct console_inner inner;
	bool learnt;

	console_inner_post(visit->console, visit->request, &signer,
		SLICE("Action=GetCallerIdentity&Version=2011-06-15"), &inner);
	learnt = inner.status == 200 &&
		 !slice_copy_str(console_inner_element(&inner, "Arn"), session->arn,
			 sizeof(session->arn)) &&
		 !slice_copy_str(console_inner_element(&inner, "Account"), session->account,
			 sizeof(session->account));
	console_inner_free(&inner);
	return learnt;
}

/* A session of what STS gave; NULL: it gave none. */
static struct console_session *take_credentials(const struct console_inner *inner)
{
	struct console_session *session = calloc(1, sizeof(*session));

	if (!session)
		return NULL;
	session->references = 1;
	if (slice_copy_str(console_inner_element(inner, "AccessKeyId"), session->access_key,
		    sizeof(session->access_key)) ||
		slice_copy_str(console_inner_element(inner, "SecretAccessKey"), session->secret,
			sizeof(session->secret)) ||
		slice_copy_str(console_inner_element(inner, "SessionToken"), session->token,
			sizeof(session->token)) ||
		date_iso_parse(console_inner_element(inner, "Expiration"), &session->expires_ms) ||
		!session->access_key[0] || !session->token[0]) {
		console_session_put(session);
		return NULL;
	}
	return session;
}

/* Asks STS by keys, or by a token of an identity provider. */
static void ask_sts(struct visit *visit, const json_t *json, struct console_inner *ret_inner)
{
	struct slice key = json_member_text(json, "accessKey");
	const struct s3_signer signer = {
		.access_key = key, .secret = json_member_text(json, "secretKey"), .service = "sts"};
	struct buf form;

	buf_init(&form, 8 * CONSOLE_FORM_BYTES_MAX);
	buf_put_str(&form, "Version=2011-06-15");
	if (key.len) {
		buf_printf(&form, "&Action=GetSessionToken&DurationSeconds=%llu",
			(unsigned long long)visit->console->opts.session_s);
	} else {
		buf_put_str(&form, "&Action=AssumeRoleWithWebIdentity&RoleSessionName=console");
		put_field(&form, "RoleArn", json_member_text(json, "roleArn"));
		put_field(&form, "WebIdentityToken", json_member_text(json, "token"));
	}
	if (form.failed)
		*ret_inner = (struct console_inner){0};
	else
		console_inner_post(visit->console, visit->request, key.len ? &signer : NULL,
			buf_slice(&form), ret_inner);
	if (form.data)
		secret_wipe(form.data, form.len);
	buf_free(&form);
}

static void answer_session(
	struct visit *visit, const struct console_session *session, const struct s3_header *cookie)
{
	const struct console_opts *opts = &visit->console->opts;
	json_t *json = json_pack("{s:s, s:s, s:s, s:I, s:I, s:s}", "user", session->signed_in,
		"arn", session->arn, "account", session->account, "expires",
		(json_int_t)session->expires_ms, "idleSeconds",
		(json_int_t)(opts->idle_timeout_ns / NS_PER_S), "version", NEBULAIO_VERSION);

	answer_json(visit, 200, json, cookie);
}

/* Behind a proxy that ends TLS the browser, too, may send the cookie over TLS only. */
static bool is_secure(const struct visit *visit)
{
	return visit->console->opts.secure ||
	       slice_eq(console_header(visit->request, SLICE("x-forwarded-proto")), SLICE("https"));
}

static void begin_session(struct visit *visit, struct console_session *session)
{
	char cookie[CONSOLE_COOKIE_LEN + 1], text[256];
	struct s3_header header = {SLICE("Set-Cookie"), SLICE_NONE};

	console_table_add(&visit->console->table, session, now(), cookie);
	snprintf(text, sizeof(text), "%s=%s; Path=/; HttpOnly; SameSite=Strict%s",
		visit->cookie_name, cookie, is_secure(visit) ? "; Secure" : "");
	header.value = slice_str(text);
	answer_session(visit, session, &header);
	secret_wipe(cookie, sizeof(cookie));
	secret_wipe(text, sizeof(text));
}

static void refuse_sign_in(struct visit *visit, const struct console_inner *inner, bool by_keys)
{
	counter_add(&sign_in_refused, 1);
	log_info("console", "sign-in refused: %s, from %s",
		by_keys ? "the access key or the secret key is wrong" : "the token",
		visit->request->peer);
	if (!inner->status || inner->status >= 500)
		answer_error(visit, 503, "The server cannot sign anybody in now. Try again later.");
	else if (by_keys)
		answer_error(visit, 401, "The access key or the secret key is wrong.");
	else
		answer_error(visit, 401, "No session of this role for this token.");
}

static void sign_in_as(struct visit *visit, const json_t *json)
{
	struct slice key = json_member_text(json, "accessKey");
	struct slice who = key.len ? key : json_member_text(json, "roleArn");
	struct console_session *session = NULL;
	struct console_inner inner;

	ask_sts(visit, json, &inner);
	if (inner.status == 200)
		session = take_credentials(&inner);
	if (session && !learn_identity(visit, session)) {
		console_session_put(session);
		session = NULL;
	}
	if (session) {
		slice_copy_str(slice_to(who, sizeof(session->signed_in) - 1), session->signed_in,
			sizeof(session->signed_in));
		counter_add(&signed_in, 1);
		console_limit_give(&visit->console->limit, slice_str(visit->request->peer));
		begin_session(visit, session);
	} else {
		refuse_sign_in(visit, &inner, key.len > 0);
	}
	console_inner_free(&inner);
}

static void sign_in(struct visit *visit)
{
	json_t *json;
	uint32_t wait_s;
	char text[96], seconds[SLICE_U64_MAX];

	if (!console_limit_take(&visit->console->limit, slice_str(visit->request->peer),
		    clock_now_ns(), &wait_s)) {
		const struct s3_header retry = {
			SLICE("Retry-After"), slice_of_u64(wait_s, seconds)};

		counter_add(&sign_in_limited, 1);
		snprintf(text, sizeof(text), "Too many tries. Try again in %u seconds.", wait_s);
		answer_json(visit, 429, json_pack("{s:s}", "error", text), &retry);
		return;
	}
	json = read_json(visit);
	if (!json)
		return;
	sign_in_as(visit, json);
	json_decref(json);
}

static void sign_out(struct visit *visit, struct console_session *session)
{
	char text[128];
	struct s3_header header = {SLICE("Set-Cookie"), SLICE_NONE};

	console_table_remove(&visit->console->table, session);
	snprintf(text, sizeof(text), "%s=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0",
		visit->cookie_name);
	header.value = slice_str(text);
	answer_json(visit, 200, json_object(), &header);
}

/* ---- Share links. ---- */

/* Where others reach S3: as configured, or at the host by which the page was reached. */
static int put_s3_url(struct visit *visit, struct buf *out)
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
	/* Not the colons of an IPv6 address without a port. */
	if (colon && !memchr(colon, ']', host.len - (size_t)(colon - host.data)))
		host = slice_to(host, (size_t)(colon - host.data));
	if (!host.len || host.len > HOST_LEN_MAX)
		return -EINVAL;
	buf_printf(out, "%s://%.*s:%u", tls ? "https" : "http", SLICE_FMT(host),
		tls ? opts->https_port : opts->http_port);
	return 0;
}

static int make_link(struct visit *visit, const struct console_session *session, const json_t *json,
	uint32_t expires_s, struct buf *link)
{
	const struct s3_signer signer = signer_of(session, "s3");
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

/* A link works no longer than the credentials that sign it. */
static void share(struct visit *visit, const struct console_session *session)
{
	int64_t left_s = (session->expires_ms - now().real_ms) / 1000;
	json_t *json = read_json(visit);
	int64_t expires_s;
	struct buf link;
	int ret;

	if (!json)
		return;
	expires_s = MIN(MIN(json_member_number(json, "seconds"), left_s), (int64_t)SHARE_S_MAX);
	buf_init(&link, 2 * LIMIT_HTTP_HEAD_BYTES_MAX);
	ret = expires_s > 0 ? make_link(visit, session, json, (uint32_t)expires_s, &link) : -EINVAL;
	if (ret == -ENOTSUP)
		answer_error(visit, 400, "S3 over HTTP is off here: set console.s3_url.");
	else if (ret)
		answer_error(visit, ret == -ENOMEM ? 503 : 400, "No link can be made of this.");
	else
		answer_json(visit, 200,
			json_pack("{s:s%, s:I}", "url", link.data, link.len, "seconds",
				(json_int_t)expires_s),
			NULL);
	buf_free(&link);
	json_decref(json);
}

/* ---- Paths. ---- */

/* Below a path of the page's: the way on, and what is left of the path. */
static bool find_way(struct slice path, enum console_way *ret_way, struct slice *ret_path)
{
	*ret_path = path;
	if (slice_starts(path, SLICE("/s3/"))) {
		*ret_way = CONSOLE_S3;
		*ret_path = slice_from(path, 3);
	} else if (slice_eq(path, SLICE("/iam"))) {
		*ret_way = CONSOLE_IAM;
		*ret_path = SLICE("/");
	} else if (slice_eq(path, SLICE("/sts"))) {
		*ret_way = CONSOLE_STS;
		*ret_path = SLICE("/");
	} else if (slice_starts(path, SLICE("/admin/v1/"))) {
		*ret_way = CONSOLE_ADMIN;
	} else if (slice_eq(path, SLICE("/metrics"))) {
		*ret_way = CONSOLE_METRICS;
	} else {
		return false;
	}
	return true;
}

/* A verb of the console's own for a session; false: there is no such path. */
static bool own_verb(struct visit *visit, struct console_session *session)
{
	struct slice path = visit->request->path;
	bool posts = visit->request->method == S3_POST;

	if (slice_eq(path, SLICE("/api/session")) && visit->request->method == S3_GET)
		answer_session(visit, session, NULL);
	else if (slice_eq(path, SLICE("/api/sign-out")) && posts)
		sign_out(visit, session);
	else if (slice_eq(path, SLICE("/api/share")) && posts)
		share(visit, session);
	else
		return false;
	return true;
}

static void answer_signed_in(struct visit *visit)
{
	struct console_session *session = find_session(visit);
	enum console_way way;
	struct slice path;

	if (!session)
		answer_error(visit, 401, "Sign in.");
	else if (find_way(visit->request->path, &way, &path))
		console_pass(visit->console, session, way, path, visit->request, visit->reply);
	else if (!own_verb(visit, session))
		answer_error(visit, 404, "There is no such page.");
	console_session_put(session);
}

void console_handle(void *arg, const struct s3_request *request, struct s3_reply *reply)
{
	struct visit visit = {.console = arg, .request = request, .reply = reply};
	const struct console_file *file = find_file(request->path);
	bool reads = request->method == S3_GET || request->method == S3_HEAD;

	name_cookie(&visit);
	if (file && reads)
		answer_file(&visit, file);
	else if (request->method == S3_OPTIONS || request->method == S3_METHOD_OTHER)
		answer_error(&visit, 405, "There is no such method here.");
	else if (!is_own(request))
		answer_error(&visit, 403, "The request does not come from the console's own page.");
	else if (slice_eq(request->path, SLICE("/api/sign-in")) && request->method == S3_POST)
		sign_in(&visit);
	else
		answer_signed_in(&visit);
}

int console_open(const struct console_opts *opts, struct console **ret_console)
{
	struct console *console = calloc(1, sizeof(*console));

	if (!console)
		return -ENOMEM;
	if (!console_files_built)
		log_warn("console",
			"this server was built without the console's page; `make build` says what "
			"is missing");
	console->opts = *opts;
	console->table.idle_timeout_ns = opts->idle_timeout_ns;
	*ret_console = console;
	return 0;
}

void console_close(struct console *console)
{
	if (!console)
		return;
	console_table_free(&console->table);
	free(console);
}
