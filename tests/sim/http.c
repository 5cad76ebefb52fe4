/* tests/sim/http.c: see http.h. */
#include "http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "world.h"

#define HEAD_BYTES_MAX 8192u
#define REGION	       "us-east-1"

ssize_t world_net_recv(int fd, void *data, size_t bytes);
ssize_t world_net_send(int fd, const void *data, size_t bytes);

void http_open(struct http_client *client, uint16_t port)
{
	client->port = port;
	client->fd = -1;
	client->in_at = client->in_bytes = 0;
}

void http_close(struct http_client *client)
{
	if (client->fd >= 0)
		close(client->fd);
	client->fd = -1;
	client->in_at = client->in_bytes = 0;
}

static bool connected(struct http_client *client)
{
	const struct sockaddr_in to = {.sin_family = AF_INET,
		.sin_port = htons(client->port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	if (client->fd >= 0)
		return true;
	client->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(client->fd >= 0);
	if (connect(client->fd, (const struct sockaddr *)&to, sizeof(to)) == 0)
		return true;
	http_close(client);
	return false;
}

/* ---- Signature Version 4 (docs: Authenticating Requests, AWS S3 API). ---- */

static void hex(const uint8_t digest[32], char out[65])
{
	for (int i = 0; i < 32; i++)
		snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

static void hmac(const uint8_t *key, size_t key_len, const char *text, uint8_t out[32])
{
	CHECK(HMAC(EVP_sha256(), key, (int)key_len, (const uint8_t *)text, strlen(text), out,
		      NULL) != NULL);
}

/* All headers of a request, sorted, including those of every request. */
struct headers {
	struct http_header list[HTTP_HEADERS_MAX + 3];
	uint32_t count;
	char host[32], date[32];
};

static void header_add(struct headers *headers, const char *name, const char *value)
{
	uint32_t at = headers->count++;

	for (; at && strcmp(headers->list[at - 1].name, name) > 0; at--)
		headers->list[at] = headers->list[at - 1];
	headers->list[at] = (struct http_header){name, value};
}

static void headers_make(struct headers *headers, const struct http_client *client,
	const struct http_request *request)
{
	time_t now = time(NULL);
	struct tm tm;

	headers->count = 0;
	snprintf(headers->host, sizeof(headers->host), "127.0.0.1:%u", client->port);
	strftime(headers->date, sizeof(headers->date), "%Y%m%dT%H%M%SZ", gmtime_r(&now, &tm));
	header_add(headers, "host", headers->host);
	header_add(headers, "x-amz-content-sha256", "UNSIGNED-PAYLOAD");
	header_add(headers, "x-amz-date", headers->date);
	for (uint32_t i = 0; i < HTTP_HEADERS_MAX && request->headers[i].name; i++)
		header_add(headers, request->headers[i].name, request->headers[i].value);
}

/* "a;b;c" */
static void signed_names(const struct headers *headers, char names[256])
{
	size_t len = 0;

	for (uint32_t i = 0; i < headers->count; i++)
		len += (size_t)snprintf(
			names + len, 256 - len, "%s%s", i ? ";" : "", headers->list[i].name);
}

static void sign(const struct http_request *request, const struct headers *headers,
	const char *names, char ret_signature[65])
{
	char canonical[HEAD_BYTES_MAX], to_sign[512], day[9], digest_hex[65];
	uint8_t digest[32], key[32];
	size_t len;

	snprintf(day, sizeof(day), "%.8s", headers->date);
	len = (size_t)snprintf(canonical, sizeof(canonical), "%s\n%s\n%s\n", request->method,
		request->path, request->query);
	for (uint32_t i = 0; i < headers->count; i++)
		len += (size_t)snprintf(canonical + len, sizeof(canonical) - len, "%s:%s\n",
			headers->list[i].name, headers->list[i].value);
	snprintf(canonical + len, sizeof(canonical) - len, "\n%s\nUNSIGNED-PAYLOAD", names);
	SHA256((const uint8_t *)canonical, strlen(canonical), digest);
	hex(digest, digest_hex);
	snprintf(to_sign, sizeof(to_sign),
		"AWS4-HMAC-SHA256\n%s\n%s/" REGION "/s3/aws4_request\n%s", headers->date, day,
		digest_hex);
	hmac((const uint8_t *)"AWS4minioadmin", strlen("AWS4minioadmin"), day, key);
	hmac(key, sizeof(key), REGION, key);
	hmac(key, sizeof(key), "s3", key);
	hmac(key, sizeof(key), "aws4_request", key);
	hmac(key, sizeof(key), to_sign, digest);
	hex(digest, ret_signature);
}

static bool request_send(struct http_client *client, const struct http_request *request)
{
	char head[HEAD_BYTES_MAX], names[256], signature[65];
	struct headers headers;
	size_t len;

	headers_make(&headers, client, request);
	signed_names(&headers, names);
	sign(request, &headers, names, signature);
	len = (size_t)snprintf(head, sizeof(head),
		"%s %s%s%s HTTP/1.1\r\nContent-Length: %zu\r\n"
		"Authorization: AWS4-HMAC-SHA256 Credential=minioadmin/%.8s/" REGION
		"/s3/aws4_request, SignedHeaders=%s, Signature=%s\r\n",
		request->method, request->path, request->query[0] ? "?" : "", request->query,
		request->body_bytes, headers.date, names, signature);
	for (uint32_t i = 0; i < headers.count; i++)
		len += (size_t)snprintf(head + len, sizeof(head) - len, "%s: %s\r\n",
			headers.list[i].name, headers.list[i].value);
	len += (size_t)snprintf(head + len, sizeof(head) - len, "\r\n");
	if (world_net_send(client->fd, head, len) < 0)
		return false;
	if (request->send_bytes_max) {
		world_net_send(client->fd, request->body,
			MIN(request->send_bytes_max, request->body_bytes));
		return false;
	}
	return world_net_send(client->fd, request->body, request->body_bytes) >= 0;
}

/* ---- Answers. ---- */

struct answer {
	struct http_answer told;
	bool chunked, closes;
};

/* The value of a header, without quotes. */
static void value_copy(const char *text, char *into, size_t room)
{
	size_t len;

	text += strspn(text, " \"");
	len = MIN(strcspn(text, "\"\r"), room - 1);
	memcpy(into, text, len);
	into[len] = 0;
}

static void header_take(struct answer *answer, const char *line)
{
	struct http_answer *told = &answer->told;

	if (!strncasecmp(line, "content-length:", 15))
		told->bytes = strtoull(line + 15, NULL, 10);
	else if (!strncasecmp(line, "transfer-encoding: chunked", 26))
		answer->chunked = true;
	else if (!strncasecmp(line, "connection: close", 17))
		answer->closes = true;
	else if (!strncasecmp(line, "etag:", 5))
		value_copy(line + 5, told->etag, sizeof(told->etag));
	else if (!strncasecmp(line, "x-amz-version-id:", 17))
		value_copy(line + 17, told->version_id, sizeof(told->version_id));
}

/* At most so many bytes; 0: the connection ended. */
static size_t some_read(struct http_client *client, void *into, size_t bytes)
{
	size_t have = client->in_bytes - client->in_at;
	ssize_t done;

	if (!have && bytes >= sizeof(client->in)) {
		done = world_net_recv(client->fd, into, bytes);
		return done > 0 ? (size_t)done : 0;
	}
	if (!have) {
		done = world_net_recv(client->fd, client->in, sizeof(client->in));
		have = done > 0 ? (size_t)done : 0;
		client->in_at = 0;
		client->in_bytes = have;
	}
	bytes = MIN(bytes, have);
	memcpy(into, client->in + client->in_at, bytes);
	client->in_at += bytes;
	return bytes;
}

/* Reads up to the empty line, byte by byte: the rest is the body's. */
static bool head_read(struct http_client *client, char head[HEAD_BYTES_MAX])
{
	size_t len = 0;

	while (len < HEAD_BYTES_MAX - 1) {
		if (!some_read(client, head + len, 1))
			return false;
		head[++len] = 0;
		if (len >= 4 && !memcmp(head + len - 4, "\r\n\r\n", 4))
			return true;
	}
	return false;
}

static bool answer_read(struct http_client *client, struct answer *answer)
{
	char head[HEAD_BYTES_MAX];
	const char *line;

	memset(answer, 0, sizeof(*answer));
	do {
		if (!head_read(client, head) ||
			sscanf(head, "HTTP/1.1 %d", &answer->told.status) != 1)
			return false;
	} while (answer->told.status == 100);
	for (line = strstr(head, "\r\n"); line; line = strstr(line + 2, "\r\n"))
		header_take(answer, line + 2);
	return true;
}

static bool bytes_read(struct http_client *client, void *into, size_t bytes)
{
	size_t have = 0;

	while (have < bytes) {
		size_t done = some_read(client, (char *)into + have, bytes - have);

		if (!done)
			return false;
		have += done;
	}
	return true;
}

static bool line_read(struct http_client *client, char line[64])
{
	for (size_t len = 0; len < 63; len++) {
		if (!some_read(client, line + len, 1))
			return false;
		line[len + 1] = 0;
		if (line[len] == '\n')
			return true;
	}
	return false;
}

static bool chunks_read(struct http_client *client, char *into, size_t room, size_t *ret_bytes)
{
	char line[64];
	size_t bytes;

	*ret_bytes = 0;
	do {
		if (!line_read(client, line))
			return false;
		bytes = strtoull(line, NULL, 16);
		if (bytes > room - *ret_bytes || !bytes_read(client, into + *ret_bytes, bytes) ||
			!line_read(client, line))
			return false;
		*ret_bytes += bytes;
	} while (bytes);
	return true;
}

int http_perform(struct http_client *client, const struct http_request *request, void *into,
	size_t into_bytes, struct http_answer *ret_answer)
{
	struct answer answer;
	size_t bytes = 0;
	bool whole;

	memset(ret_answer, 0, sizeof(*ret_answer));
	if (!connected(client))
		return 0;
	if (!request_send(client, request) || !answer_read(client, &answer)) {
		http_close(client);
		return 0;
	}
	if (!strcmp(request->method, "HEAD") || answer.told.status == 204) {
		whole = true;
	} else if (answer.chunked) {
		whole = chunks_read(client, (char *)into, into_bytes, &bytes);
	} else {
		bytes = answer.told.bytes;
		whole = bytes <= into_bytes && bytes_read(client, into, bytes);
	}
	answer.told.bytes = bytes;
	if (!whole || answer.closes)
		http_close(client);
	if (!whole)
		return 0;
	*ret_answer = answer.told;
	return answer.told.status;
}
