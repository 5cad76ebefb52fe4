/* client/http.c: the same requests over HTTP, by libcurl: many at a time, connections kept. */
#include "http_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_ERROR_BYTES_MAX (64 * KIB)
#define EXPECT_BYTES_MIN       (1 * MIB) /* ask before sending a body of this size */

/* ---- Callbacks of curl. ---- */

/* With a token, nothing of the body is sent over HTTP. */
static uint64_t sent_bytes(const struct client_call *call)
{
	return call->by_token ? 0 : call->body_bytes;
}

static size_t on_read(char *data, size_t size, size_t count, void *arg)
{
	struct client_call *call = arg;
	uint64_t bytes = MIN((uint64_t)(size * count), sent_bytes(call) - call->moved);

	client_gather(call, call->moved, data, bytes);
	call->moved += bytes;
	return bytes;
}

static int on_seek(void *arg, curl_off_t offset, int origin)
{
	struct client_call *call = arg;

	if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > sent_bytes(call))
		return CURL_SEEKFUNC_FAIL;
	call->moved = (uint64_t)offset;
	return CURL_SEEKFUNC_OK;
}

static size_t on_write(char *data, size_t size, size_t count, void *arg)
{
	struct client_call *call = arg;
	struct neb_result *result = &call->result;
	size_t bytes = size * count;
	long status = 0;

	curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
	if (status >= 300) {
		buf_put(&call->answer_error, data, bytes);
		return bytes;
	}
	if (call->op == NEB_PING)
		return bytes;
	if (bytes > call->into_bytes - result->bytes)
		return 0; /* into is too small: curl ends the transfer with CURLE_WRITE_ERROR */
	client_scatter(call, result->bytes, data, bytes);
	result->bytes += bytes;
	return bytes;
}

static void take(char *text, size_t text_bytes, struct slice value)
{
	size_t len = MIN(value.len, text_bytes - 1);

	memcpy(text, value.data, len);
	text[len] = '\0';
}

/* User metadata beyond ASCII arrives over HTTP in the form of RFC 2047, "=?UTF-8?B?…?=", and over a
 * session as plain bytes. Decodes it to plain bytes; other values stay unchanged, also one whose
 * bytes would be further headers: the object's writer chose it. */
static struct slice header_plain(struct slice name, struct slice value, char *space, size_t bytes)
{
	static const struct slice prefix = SLICE("x-amz-meta-"), begin = SLICE("=?UTF-8?B?"),
				  end = SLICE("?=");
	struct slice text;
	size_t len;

	if (name.len <= prefix.len || !slice_eq_nocase(slice_of(name.data, prefix.len), prefix) ||
		value.len < begin.len + end.len || !slice_starts(value, begin) ||
		!slice_ends(value, end))
		return value;
	text = slice_of(value.data + begin.len, value.len - begin.len - end.len);
	if (base64_decode(text, space, bytes, &len) || !field_value_is_valid(slice_of(space, len)))
		return value;
	return slice_of(space, len);
}

static void header_keep(struct neb_result *result, struct slice name, struct slice value)
{
	char space[sizeof(result->headers)];
	size_t len = strlen(result->headers);

	value = header_plain(name, value, space, sizeof(space));
	if (len + name.len + value.len + 4 > sizeof(result->headers) - sizeof(CLIENT_CUT))
		client_headers_cut(result);
	else
		snprintf(result->headers + len, sizeof(result->headers) - len, "%.*s: %.*s\n",
			SLICE_FMT(name), SLICE_FMT(value));
}

static void store_take(struct client_call *call, struct slice value)
{
	char text[17], *end;
	uint64_t id;

	if (slice_copy_str(value, text, sizeof(text)) || !*text)
		return;
	id = strtoull(text, &end, 16);
	if (!*end && client_store_learn(call->client, call->endpoint, id))
		call->other_store = true;
}

static size_t on_header(char *data, size_t size, size_t count, void *arg)
{
	struct client_call *call = arg;
	struct neb_result *result = &call->result;
	struct slice value = slice_of(data, size * count);
	struct slice name = slice_split(&value, ':');

	if (!value.data) /* a status line: the earlier one was "100 Continue" */
		return size * count;
	while (value.len &&
		(value.data[value.len - 1] == '\r' || value.data[value.len - 1] == '\n'))
		value.len--;
	value = slice_trim(value);
	if (slice_eq_nocase(name, SLICE("etag"))) {
		if (value.len >= 2 && value.data[0] == '"')
			value = slice_of(value.data + 1, value.len - 2);
		take(result->etag, sizeof(result->etag), value);
	} else if (slice_eq_nocase(name, SLICE("x-amz-request-id"))) {
		take(result->request_id, sizeof(result->request_id), value);
	} else if (slice_eq_nocase(name, SLICE("content-length"))) {
		slice_to_u64(value, &result->object_bytes);
	} else if (slice_eq_nocase(name, SLICE(CLIENT_STORE_HEADER))) {
		store_take(call, value);
	} else if (call->client->owners && call->endpoint->owner &&
		   slice_eq_nocase(name, SLICE(CLIENT_OWNER_HEADER))) {
		client_bucket_told(call, value);
	} else if (call->by_token) {
		client_token_header(call, name, value);
	}
	if (call->want_headers)
		header_keep(result, name, value);
	return size * count;
}

/* ---- Starting. ---- */

static int multi_open(struct neb_client *client)
{
	if (client->multi)
		return 0;
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return -ENOMEM;
	client->multi = curl_multi_init();
	return client->multi ? 0 : -ENOMEM;
}

static CURL *easy_lease(struct neb_client *client)
{
	if (client->easy_count)
		return client->easies[--client->easy_count];
	return curl_easy_init();
}

static void easy_give(struct neb_client *client, CURL *easy)
{
	if (client->easy_count == CLIENT_EASIES_MAX) {
		curl_easy_cleanup(easy);
		return;
	}
	curl_easy_reset(easy);
	client->easies[client->easy_count++] = easy;
}

static void target_add(struct buf *target, size_t query_at, struct slice part)
{
	if (!part.len)
		return;
	if (target->len > query_at)
		buf_put_str(target, "&");
	buf_put_slice(target, part);
}

/* Writes path and query; *ret_query_at is where the query begins. */
static void target_build(const struct client_call *call, struct buf *target, size_t *ret_query_at)
{
	const struct client_op *op = client_op_of(call);
	size_t query_at;

	if (call->op == NEB_S3) {
		buf_put_slice(target, call->key);
	} else {
		buf_put_str(target, "/");
		uri_encode(call->bucket, 0, target);
		if (call->key.len) {
			buf_put_str(target, "/");
			uri_encode(call->key, URI_KEEP_SLASH, target);
		}
	}
	query_at = target->len;
	target_add(target, query_at, slice_str(op->query));
	target_add(target, query_at, call->query);
	if (call->version_id.len) {
		target_add(target, query_at, SLICE("versionId="));
		uri_encode(call->version_id, 0, target);
	}
	*ret_query_at = query_at;
}

static struct curl_slist *header_add(struct curl_slist *list, bool *failed, const char *line)
{
	struct curl_slist *more = curl_slist_append(list, line);

	if (!more)
		*failed = true;
	return more ? more : list;
}

/* The call's headers, and the headers for its fields. */
static int headers_build(struct client_call *call, const struct client_signing *signing)
{
	struct curl_slist *list = NULL;
	struct slice rest = call->headers;
	struct capsule_header header;
	bool failed = false;
	struct buf line;

	buf_init(&line, CAPSULE_HEADERS_BYTES_MAX);
	while (capsule_header_next(&rest, &header)) {
		buf_reset(&line);
		/* curl sends "NAME;" as a header without a value. */
		buf_printf(&line, header.value.len ? "%.*s: %.*s" : "%.*s;%.*s",
			SLICE_FMT(header.name), SLICE_FMT(header.value));
		buf_put(&line, "", 1);
		if (!line.failed)
			list = header_add(list, &failed, line.data);
		failed |= line.failed;
	}
	buf_free(&line);
	if (call->range_bytes) {
		char range[80];

		snprintf(range, sizeof(range), "range: bytes=%llu-%llu",
			(unsigned long long)call->range_offset,
			(unsigned long long)(call->range_offset + call->range_bytes - 1));
		list = header_add(list, &failed, range);
	}
	if (call->client->owners && call->endpoint->owner && call->bucket.len)
		list = header_add(list, &failed, CLIENT_OWNER_HEADER ": ?");
	/* Several endpoints must belong to one store, but for a cluster's gateways. */
	if (call->client->endpoint_count > 1 && !call->endpoint->owner) {
		char store[sizeof(CLIENT_STORE_HEADER) + 20] = CLIENT_STORE_HEADER ": ";

		client_store_text(call->client, store + sizeof(CLIENT_STORE_HEADER) + 1);
		list = header_add(list, &failed, store);
	}
	if (sent_bytes(call) < EXPECT_BYTES_MIN)
		list = header_add(list, &failed, "Expect:");
	if (!failed)
		list = client_sign(call, signing, list);
	if (failed)
		curl_slist_free_all(list);
	call->curl_headers = failed ? NULL : list;
	return call->curl_headers ? 0 : -ENOMEM;
}

/* The certificates to trust, where they are not where the library expects them: SSL_CERT_FILE's, or
 * those of another distribution. NULL: the library's own. */
static const char *trusted(void)
{
	static const char *const BUNDLES[] = {
		"/etc/ssl/certs/ca-certificates.crt", /* Debian, Ubuntu, Arch */
		"/etc/pki/tls/certs/ca-bundle.crt",   /* Fedora, Red Hat */
		"/etc/ssl/ca-bundle.pem",	      /* SUSE */
		"/etc/ssl/cert.pem",		      /* Alpine */
	};
	const char *told = getenv("SSL_CERT_FILE");

	if (told && told[0])
		return told;
	for (size_t i = 0; i < ARRAY_LEN(BUNDLES); i++)
		if (access(BUNDLES[i], R_OK) == 0)
			return i ? BUNDLES[i] : NULL;
	return NULL;
}

static void easy_prepare(struct client_call *call, const char *url, const char *method)
{
	CURL *easy = call->easy;
	uint64_t now_ns = clock_now_ns();
	uint64_t left_ns = call->deadline_ns > now_ns ? call->deadline_ns - now_ns : 0;

	curl_easy_setopt(easy, CURLOPT_URL, url);
	curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(easy, CURLOPT_PRIVATE, call);
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	if (strncmp(url, "https", 5) == 0 && trusted())
		curl_easy_setopt(easy, CURLOPT_CAINFO, trusted());
	curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L);
	/* libcurl sends a request again by itself when a connection that had carried others before
	 * breaks without a byte of the answer. The server may have done the request by then. */
	curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, call->fresh ? 1L : 0L);
	curl_easy_setopt(easy, CURLOPT_HTTPHEADER, call->curl_headers);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS,
		(long)(call->client->connect_timeout_ns / NS_PER_MS));
	curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)(left_ns / NS_PER_MS + 1));
	curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(easy, CURLOPT_HEADERDATA, call);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_write);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, call);
	curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 262144L);
	curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, 262144L);
	if (strcmp(method, "HEAD") == 0) {
		curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
	} else if (strcmp(method, "PUT") == 0 || strcmp(method, "POST") == 0) {
		curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
		curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)sent_bytes(call));
		curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_read);
		curl_easy_setopt(easy, CURLOPT_READDATA, call);
		curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, on_seek);
		curl_easy_setopt(easy, CURLOPT_SEEKDATA, call);
	}
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
		curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method);
}

static void call_unhook(struct client_call *call)
{
	struct neb_client *client = call->client;

	curl_multi_remove_handle(client->multi, call->easy);
	curl_slist_free_all(call->curl_headers);
	easy_give(client, call->easy);
	buf_free(&call->answer_error);
	call->easy = NULL;
	call->curl_headers = NULL;
	client->http_running--;
}

static int start(
	struct client_call *call, const struct client_endpoint *endpoint, struct buf *target)
{
	struct neb_client *client = call->client;
	const char *method = client_op_of(call)->method;
	bool v6 = strchr(endpoint->host, ':') != NULL;
	char host[CLIENT_HOST_LEN_MAX + 16];
	struct client_signing signing = {
		.method = method, .now_ms = (int64_t)(clock_real_ns() / NS_PER_MS)};
	size_t query_at;
	struct buf url;
	int ret;

	target_build(call, target, &query_at);
	if (target->failed)
		return -ENOMEM;
	snprintf(host, sizeof(host), v6 ? "[%s]:%u" : "%s:%u", endpoint->host, endpoint->port);
	signing.host = slice_str(host);
	signing.path = slice_of(target->data, query_at);
	signing.query = slice_of(target->data + query_at, target->len - query_at);
	ret = headers_build(call, &signing);
	if (ret)
		return ret;
	buf_init(&url, target->len + sizeof(host) + 32);
	buf_printf(&url, "%s://%s%.*s%s%.*s", endpoint->scheme == CLIENT_HTTPS ? "https" : "http",
		host, SLICE_FMT(signing.path), signing.query.len ? "?" : "",
		SLICE_FMT(signing.query));
	call->easy = url.failed ? NULL : easy_lease(client);
	if (call->easy)
		easy_prepare(call, url.data, method);
	buf_free(&url);
	if (call->easy && curl_multi_add_handle(client->multi, call->easy) == CURLM_OK)
		return 0;
	curl_slist_free_all(call->curl_headers);
	call->curl_headers = NULL;
	if (call->easy)
		easy_give(client, call->easy);
	call->easy = NULL;
	return -ENOMEM;
}

int client_http_start(struct client_call *call, struct client_endpoint *endpoint)
{
	struct neb_client *client = call->client;
	struct buf target;
	int ret = multi_open(client);

	if (ret)
		return ret;
	call->endpoint = endpoint;
	call->other_store = false;
	call->moved = 0;
	call->result.bytes = 0;
	call->result.headers[0] = '\0';
	buf_init(&target, 16 * KIB);
	ret = start(call, endpoint, &target);
	buf_free(&target);
	if (ret)
		return ret;
	buf_init(&call->answer_error, ANSWER_ERROR_BYTES_MAX);
	call->phase = CLIENT_ON_HTTP;
	list_remove(&call->link);
	list_push_back(&client->running, &call->link);
	client->http_running++;
	return 0;
}

/* ---- Ending. ---- */

static void error_take(struct client_call *call)
{
	struct slice xml = buf_slice(&call->answer_error);
	struct slice code = xml_text(xml, "Code");
	struct slice message = xml_text(xml, "Message");

	if (code.len)
		take(call->result.code, sizeof(call->result.code), code);
	if (message.len)
		take(call->result.message, sizeof(call->result.message), message);
	if (xml.len && xml.data[0] == '{') /* from the admin API: passed on unchanged */
		take(call->result.message, sizeof(call->result.message), xml);
}

static int curl_error(CURLcode code)
{
	switch (code) {
	case CURLE_COULDNT_RESOLVE_HOST:
		return -EHOSTUNREACH;
	case CURLE_COULDNT_CONNECT:
		return -ECONNREFUSED;
	case CURLE_OPERATION_TIMEDOUT:
		return -ETIMEDOUT;
	case CURLE_OUT_OF_MEMORY:
		return -ENOMEM;
	default:
		return -ECONNRESET;
	}
}

/* Whether certainly no byte of the caller's request was sent: until its end it waited for the
 * connection or the TLS handshake. This needs a call that has a new connection: when a kept one
 * breaks, libcurl connects again by itself, after it has sent the request. The library's own
 * requests stay with their endpoint. */
static bool is_unsent(const struct client_call *call, CURLcode code)
{
	bool tls = call->endpoint->scheme == CLIENT_HTTPS;
	curl_off_t ready_us = 1;
	long bytes = 1;

	if (!call->fresh || call->internal ||
		curl_easy_getinfo(call->easy, CURLINFO_REQUEST_SIZE, &bytes) != CURLE_OK || bytes)
		return false;
	if (code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST)
		return true;
	return code == CURLE_OPERATION_TIMEDOUT &&
	       curl_easy_getinfo(call->easy,
		       tls ? CURLINFO_APPCONNECT_TIME_T : CURLINFO_CONNECT_TIME_T,
		       &ready_us) == CURLE_OK &&
	       !ready_us;
}

/* The endpoint did nothing, unless no endpoint had named its store before; the next endpoint may be
 * the right one.
 */
static void other_store(struct client_call *call)
{
	struct neb_result *result = &call->result;
	bool refused = result->status == 421;
	char why[sizeof(call->endpoint->why) + sizeof(call->endpoint->host) + 32];

	snprintf(why, sizeof(why), "http://%s:%u: %s", call->endpoint->host, call->endpoint->port,
		call->endpoint->why);
	result->status = 0;
	result->transport = NEB_NONE;
	result->code[0] = '\0';
	if (!call->endpoint->warned)
		client_log(call->client, NEB_LOG_WARN, "%s", why);
	call->endpoint->warned = true;
	if (refused && !call->internal) {
		client_call_retry(call, -EXDEV, why);
		return;
	}
	snprintf(result->message, sizeof(result->message), "%.*s", (int)sizeof(result->message) - 1,
		why);
	client_call_finish(call, -EXDEV);
}

static void on_done(struct client_call *call, CURLcode code)
{
	struct neb_client *client = call->client;
	struct neb_result *result = &call->result;
	bool unsent = is_unsent(call, code);
	long status = 0;

	curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
	if (call->by_token && client_token_finish(call, code == CURLE_OK)) {
		call_unhook(call);
		client_call_retry(call, -EAGAIN, "the server declined the RDMA token");
		return;
	}
	if (code == CURLE_OK || (code == CURLE_WRITE_ERROR && status >= 200 && status < 300)) {
		result->status = (uint32_t)status;
		result->transport = call->by_token ? NEB_TOKEN : NEB_HTTP;
		if (status >= 300)
			error_take(call);
		client->stats.requests_http++;
	}
	call_unhook(call);
	if (call->other_store) {
		other_store(call);
		return;
	}
	if (code == CURLE_WRITE_ERROR && result->status) {
		result->bytes = 0;
		snprintf(result->code, sizeof(result->code), "BufferTooSmall");
		client_call_finish(call, -EMSGSIZE);
	} else if (result->status) {
		client_call_finish(call, client_status_error(result->status));
	} else if (unsent) {
		client_call_unsent(call, curl_error(code), curl_easy_strerror(code));
	} else {
		client_call_retry(call, curl_error(code), curl_easy_strerror(code));
	}
}

void client_http_progress(struct neb_client *client)
{
	int running, left;
	CURLMsg *msg;

	curl_multi_perform(client->multi, &running);
	while ((msg = curl_multi_info_read(client->multi, &left)) != NULL) {
		CURLcode code = msg->data.result;
		char *call = NULL;

		if (msg->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &call);
		on_done((struct client_call *)(void *)call, code);
	}
}

static void http_cancel(struct client_call *call)
{
	if (call->by_token)
		client_token_finish(call, false);
	call_unhook(call);
	client_call_finish(call, -ECANCELED);
}

void client_http_close(struct neb_client *client)
{
	LIST_FOR_EACH_SAFE (link, &client->running) {
		struct client_call *call = CONTAINER_OF(link, struct client_call, link);

		if (call->phase == CLIENT_ON_HTTP)
			http_cancel(call);
	}
	while (client->easy_count)
		curl_easy_cleanup(client->easies[--client->easy_count]);
	if (client->multi)
		curl_multi_cleanup(client->multi);
	client->multi = NULL;
}
