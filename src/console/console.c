/* console/console.c: the paths of the console's listener: the page's files, sign-in and sign-out,
 * share links; the rest is passed on for a session.
 *
 * A request that changes something has the header X-Console, which no form and no other site's page
 * can send, and comes from the page's own origin. The cookie is HttpOnly and SameSite=Strict. */
#include "console/console_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- Reading a request. ---- */

/* Browsers send cookies to every port of a host: the name tells consoles apart. */
static void name_cookie(struct console_visit *visit)
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

/* Requests that the page repeats by itself, without its user, do not keep the session alive. */
static struct console_session *find_session(const struct console_visit *visit)
{
	bool polls = console_header(visit->request, SLICE("x-console-poll")).len > 0;

	return console_table_get(&visit->console->table,
		console_cookie(visit->request, slice_str(visit->cookie_name)), console_now_get(),
		!polls);
}

/* Whether the page itself sent the request, as far as the browser says. */
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

/* ---- The page's files. ---- */

static void answer_file(struct console_visit *visit, const struct console_file *file)
{
	struct console_answer answer = {.status = 200,
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
	console_answer(visit, &answer);
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

/* ---- Paths. ---- */

/* Finds the service that a path of the page belongs to, and the rest of the path. */
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

/* Runs one of the console's own verbs for a session; false: there is no such path. */
static bool own_verb(struct console_visit *visit, struct console_session *session)
{
	struct slice path = visit->request->path;
	bool posts = visit->request->method == S3_POST;

	if (slice_eq(path, SLICE("/api/session")) && visit->request->method == S3_GET)
		console_answer_session(visit, session, NULL);
	else if (slice_eq(path, SLICE("/api/sign-out")) && posts)
		console_sign_out(visit, session);
	else if (slice_eq(path, SLICE("/api/share")) && posts)
		console_share(visit, session);
	else
		return false;
	return true;
}

static void answer_signed_in(struct console_visit *visit)
{
	struct console_session *session = find_session(visit);
	enum console_way way;
	struct slice path;

	if (!session)
		console_answer_error(visit, 401, "Sign in.");
	else if (find_way(visit->request->path, &way, &path))
		console_pass(visit->console, session, way, path, visit->request, visit->reply);
	else if (!own_verb(visit, session))
		console_answer_error(visit, 404, "There is no such page.");
	console_session_put(session);
}

void console_handle(void *arg, const struct s3_request *request, struct s3_reply *reply)
{
	struct console_visit visit = {.console = arg, .request = request, .reply = reply};
	const struct console_file *file = find_file(request->path);
	bool reads = request->method == S3_GET || request->method == S3_HEAD;

	name_cookie(&visit);
	if (file && reads)
		answer_file(&visit, file);
	else if (request->method == S3_OPTIONS || request->method == S3_METHOD_OTHER)
		console_answer_error(&visit, 405, "There is no such method here.");
	else if (console_openid_handle(&visit))
		return;
	else if (!is_own(request))
		console_answer_error(
			&visit, 403, "The request does not come from the console's own page.");
	else if (slice_eq(request->path, SLICE("/api/sign-in")) && request->method == S3_POST)
		console_sign_in(&visit);
	else if (slice_eq(request->path, SLICE("/api/sign-in")) && request->method == S3_GET)
		console_answer_ways(&visit);
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
	console->table.session_s = opts->session_s;
	console->table.idle_timeout_ns = opts->idle_timeout_ns;
	*ret_console = console;
	return console_openid_open(console);
}

void console_close(struct console *console)
{
	if (!console)
		return;
	console_table_free(&console->table);
	s3_openid_close(console->openid);
	secret_wipe(&console->openid_key, sizeof(console->openid_key));
	free(console);
}
