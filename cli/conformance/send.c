/* cli/conformance/send.c: sends one request, signed by AWS Signature Version 4, as other clients
 * do. It can also leave a header out of the signature, or omit the signature. */
#include "conformance.h"

#include <ctype.h>
#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "codec/codec.h"

#define ANSWER_S_MAX	  60L
#define SIGNED_MAX	  (CONF_HEADERS_MAX + 4u)
#define ANSWER_BYTES_MAX  (1 * MIB)
#define CONTENT_UNSIGNED  "UNSIGNED-PAYLOAD"
#define REQUEST_BYTES_MAX (64 * KIB)

struct conf_sender {
	const struct conf_opts *opts;
	CURL *easy;
	CURLM *multi;
	char host[300];
};

int conf_sender_open(const struct conf_opts *opts, struct conf_sender **ret_sender)
{
	struct conf_sender *sender = calloc(1, sizeof(*sender));
	const char *mark = strstr(opts->endpoint, "://");
	size_t len;

	if (!sender || !mark) {
		free(sender);
		return mark ? -ENOMEM : -EINVAL;
	}
	len = strcspn(mark + 3, "/?");
	snprintf(sender->host, sizeof(sender->host), "%.*s", (int)len, mark + 3);
	sender->opts = opts;
	sender->easy = curl_easy_init();
	sender->multi = curl_multi_init();
	if (!sender->easy || !sender->multi) {
		conf_sender_close(sender);
		return -ENOMEM;
	}
	*ret_sender = sender;
	return 0;
}

void conf_sender_close(struct conf_sender *sender)
{
	if (!sender)
		return;
	curl_easy_cleanup(sender->easy);
	curl_multi_cleanup(sender->multi);
	free(sender);
}

/* ---- The answer. ---- */

void conf_answer_free(struct conf_answer *answer)
{
	buf_free(&answer->headers);
	buf_free(&answer->body);
}

static size_t on_body(char *data, size_t size, size_t count, void *arg)
{
	struct conf_answer *answer = arg;

	buf_put(&answer->body, data, size * count);
	return answer->body.failed ? 0 : size * count;
}

static size_t on_header(char *data, size_t size, size_t count, void *arg)
{
	struct conf_answer *answer = arg;
	struct slice line = slice_of(data, size * count);
	bool in_name = true;

	while (line.len && strchr("\r\n ", line.data[line.len - 1]))
		line.len--;
	if (slice_starts(line, SLICE("HTTP/")))
		buf_reset(&answer->headers); /* an earlier one was "100 Continue" */
	for (size_t i = 0; i < line.len; i++) {
		char c = line.data[i];

		in_name = in_name && c != ':';
		if (in_name)
			c = (char)tolower((unsigned char)c);
		buf_put(&answer->headers, &c, 1);
	}
	buf_put(&answer->headers, "", 1);
	return size * count;
}

const char *conf_header(const struct conf_answer *answer, const char *name)
{
	size_t len = strlen(name), at = 0;

	while (at < answer->headers.len) {
		const char *line = answer->headers.data + at;

		if (strncmp(line, name, len) == 0 && line[len] == ':')
			return line + len + 1 + strspn(line + len + 1, " ");
		at += strlen(line) + 1;
	}
	return NULL;
}

const char *conf_element(const struct conf_answer *answer, const char *name)
{
	static char text[256];
	struct slice document = buf_slice(&answer->body);
	char tag[64];
	ptrdiff_t at;

	snprintf(tag, sizeof(tag), "<%s>", name);
	at = slice_find(document, slice_str(tag));
	text[0] = '\0';
	if (at < 0)
		return text;
	document = slice_from(document, (size_t)at + strlen(tag));
	at = slice_find(document, SLICE("<"));
	if (at >= 0)
		snprintf(text, sizeof(text), "%.*s", (int)MIN(at, 255), document.data);
	return text;
}

/* ---- The request. ---- */

/* Names in lower case, in order. */
struct lines {
	struct neb_header list[SIGNED_MAX];
	uint32_t count;
};

static void line_add(struct lines *lines, const char *name, const char *value)
{
	uint32_t at = lines->count++;

	while (at && strcmp(lines->list[at - 1].name, name) > 0) {
		lines->list[at] = lines->list[at - 1];
		at--;
	}
	lines->list[at] = (struct neb_header){name, value};
}

static void names_put(const struct lines *lines, struct buf *out)
{
	for (uint32_t i = 0; i < lines->count; i++)
		buf_printf(out, "%s%s", i ? ";" : "", lines->list[i].name);
}

/* Appends the Authorization header's value. */
static void sign(const struct conf_sender *sender, const struct conf_request *request,
	const char *path, const struct lines *lines, struct buf *out)
{
	const struct conf_keys *keys =
		request->by_other ? &sender->opts->other : &sender->opts->keys;
	char hex[SIGNING_SIGNATURE_LEN + 1];
	uint8_t key[SHA256_BYTES];
	struct signing_scope scope = {
		.region = slice_str(sender->opts->region), .service = SLICE("s3")};
	struct slice date = {0}, payload = {0};
	struct buf canonical;

	buf_init(&canonical, REQUEST_BYTES_MAX);
	buf_printf(&canonical, "%s\n%s\n%s\n", request->method, path,
		request->query ? request->query : "");
	for (uint32_t i = 0; i < lines->count; i++) {
		buf_printf(&canonical, "%s:%s\n", lines->list[i].name, lines->list[i].value);
		if (strcmp(lines->list[i].name, "x-amz-date") == 0)
			date = slice_str(lines->list[i].value);
		else if (strcmp(lines->list[i].name, "x-amz-content-sha256") == 0)
			payload = slice_str(lines->list[i].value);
	}
	buf_put_str(&canonical, "\n");
	names_put(lines, &canonical);
	buf_printf(&canonical, "\n%.*s", SLICE_FMT(payload));
	scope.date = slice_to(date, DATE_DAY_LEN);
	signing_key(&scope, slice_str(keys->secret), key);
	signing_signature(key, &scope, date, buf_slice(&canonical), hex);
	secret_wipe(key, sizeof(key));
	buf_free(&canonical);
	buf_printf(out, SIGNING_ALGORITHM " Credential=%s/", keys->access);
	signing_scope_put(&scope, out);
	buf_put_str(out, ", SignedHeaders=");
	names_put(lines, out);
	buf_printf(out, ", Signature=%s", hex);
}

static struct curl_slist *list_add(struct curl_slist *list, const char *name, const char *value)
{
	char line[1024];
	struct curl_slist *more;

	/* curl's form of a header without a value. */
	snprintf(line, sizeof(line), *value ? "%s: %s" : "%s;%s", name, value);
	more = curl_slist_append(list, line);
	return more ? more : list;
}

/* All headers, signed as the request says. */
static struct curl_slist *headers_make(const struct conf_sender *sender,
	const struct conf_request *request, const char *path, char date[DATE_BASIC_LEN + 1])
{
	const char *sum = request->content_sha256 ? request->content_sha256 : CONTENT_UNSIGNED;
	struct lines lines = {0};
	struct curl_slist *list = NULL;
	struct buf authorization;

	line_add(&lines, "host", sender->host);
	line_add(&lines, "x-amz-date", date);
	line_add(&lines, "x-amz-content-sha256", sum);
	for (uint32_t i = 0; i < CONF_HEADERS_MAX && request->headers[i].name; i++)
		line_add(&lines, request->headers[i].name, request->headers[i].value);
	if (request->token && !request->token_unsigned)
		line_add(&lines, "x-amz-rdma-token", request->token);
	for (uint32_t i = 0; i < lines.count; i++)
		list = list_add(list, lines.list[i].name, lines.list[i].value);
	if (request->token && request->token_unsigned)
		list = list_add(list, "x-amz-rdma-token", request->token);
	if (!request->anonymous) {
		buf_init(&authorization, REQUEST_BYTES_MAX);
		sign(sender, request, path, &lines, &authorization);
		buf_put(&authorization, "", 1);
		if (!authorization.failed)
			list = list_add(list, "authorization", authorization.data);
		buf_free(&authorization);
	}
	list = curl_slist_append(list, "Expect:");
	return curl_slist_append(list, "Content-Type:");
}

static void easy_prepare(CURL *easy, const struct conf_request *request, struct conf_answer *answer)
{
	bool has_body = strcmp(request->method, "PUT") == 0 || strcmp(request->method, "POST") == 0;

	curl_easy_reset(easy);
	curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_TIMEOUT, ANSWER_S_MAX);
	curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(easy, CURLOPT_HEADERDATA, answer);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, answer);
	if (has_body) {
		curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, (long)request->body_bytes);
		curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request->body ? request->body : "");
	}
	if (strcmp(request->method, "HEAD") == 0)
		curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
	else
		curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);
}

/* Waits for the answer. Meanwhile the suite's own queue pairs may move bytes, and the simulated
 * device needs its owner's help for that. */
static CURLcode perform(struct conf *conf)
{
	CURLM *multi = conf->sender->multi;
	CURLcode code = CURLE_FAILED_INIT;
	int running = 1, left;
	const CURLMsg *end;

	if (!conf->progress)
		return curl_easy_perform(conf->sender->easy);
	curl_multi_add_handle(multi, conf->sender->easy);
	while (running) {
		conf->progress(conf);
		if (curl_multi_perform(multi, &running) ||
			(running && curl_multi_poll(multi, NULL, 0, 1, NULL)))
			break;
	}
	while ((end = curl_multi_info_read(multi, &left)) != NULL)
		code = end->data.result;
	curl_multi_remove_handle(multi, conf->sender->easy);
	return code;
}

bool conf_send(struct conf *conf, const struct conf_request *request, struct conf_answer *answer)
{
	struct conf_sender *sender = conf->sender;
	char path[128] = "/", url[1024], date[DATE_BASIC_LEN + 1] = "";
	struct curl_slist *headers;
	long status = 0;
	CURLcode code;

	answer->status = 0;
	buf_init(&answer->headers, REQUEST_BYTES_MAX);
	buf_init(&answer->body, ANSWER_BYTES_MAX);
	if (request->path)
		snprintf(path, sizeof(path), "%s", request->path);
	else if (request->key && *request->key)
		snprintf(path, sizeof(path), "/%s/%s%s", conf->bucket, conf->prefix, request->key);
	else if (request->key)
		snprintf(path, sizeof(path), "/%s", conf->bucket);
	snprintf(url, sizeof(url), "%.*s%s%s%s%s",
		(int)(strstr(sender->opts->endpoint, "://") + 3 - sender->opts->endpoint),
		sender->opts->endpoint, sender->host, path, request->query ? "?" : "",
		request->query ? request->query : "");
	date_basic_format((int64_t)time(NULL) * 1000, date);
	headers = headers_make(sender, request, path, date);
	easy_prepare(sender->easy, request, answer);
	curl_easy_setopt(sender->easy, CURLOPT_URL, url);
	curl_easy_setopt(sender->easy, CURLOPT_HTTPHEADER, headers);
	code = perform(conf);
	curl_easy_getinfo(sender->easy, CURLINFO_RESPONSE_CODE, &status);
	curl_slist_free_all(headers);
	answer->status = (uint32_t)status;
	if (code == CURLE_OK)
		return true;
	snprintf(conf->why, sizeof(conf->why), "%s %s: no answer: %s", request->method, path,
		curl_easy_strerror(code));
	return false;
}
