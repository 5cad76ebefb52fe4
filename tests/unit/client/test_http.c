/* tests/unit/client/test_http.c: the client over HTTP to a server that breaks connections, or that
 * answers in another way than ours: which requests arrive, how often, and how the calls end. */
#include "../unit.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "rig.h"

#define CONNECTIONS_MAX 8u
#define REQUEST_MAX	(64 * KIB)

struct server {
	int listener;
	uint16_t port;
	pthread_t thread;
	const char *answer; /* the document of each answer */
	const char *breaks; /* a request that has this text arrives, and its connection breaks */
	bool ends;	    /* with it, the server ends, too */
	const char *code;   /* the first request gets 503 with it; NULL: 200, as the others */
	/* Another answer to a request, of which it says how many came before; NULL: those above. */
	const char *(*tells)(const char *request, uint32_t before);
	_Atomic uint32_t broken; /* such requests */
	_Atomic uint32_t requests, connections;
	struct pollfd fds[1 + CONNECTIONS_MAX];
};

/* The bytes of the request that lies at the beginning of text; 0: it is not complete. */
static size_t request_bytes(const char *text, size_t len)
{
	const char *end = memmem(text, len, "\r\n\r\n", 4);
	const char *length = memmem(text, len, "Content-Length: ", 16);
	size_t bytes = end ? (size_t)(end - text) + 4 : 0;

	if (bytes && length && length < end)
		bytes += strtoul(length + 16, NULL, 10);
	return bytes <= len ? bytes : 0;
}

static void break_off(struct pollfd *connection)
{
	const struct linger linger = {.l_onoff = 1};

	setsockopt(connection->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	close(connection->fd);
	connection->fd = -1;
}

/* Reads one request and answers it, or breaks the connection. */
static void serve(struct server *server, struct pollfd *connection)
{
	char text[REQUEST_MAX + 1], answer[REQUEST_MAX];
	size_t len = 0;
	ssize_t got;
	int bytes;
	bool busy;

	do {
		got = recv(connection->fd, text + len, REQUEST_MAX - len, 0);
		if (got <= 0) {
			close(connection->fd);
			connection->fd = -1;
			return;
		}
		len += (size_t)got;
		text[len] = '\0';
	} while (!request_bytes(text, len));
	if (server->breaks && strstr(text, server->breaks)) {
		bool again = server->broken++ > 0;

		if (!again && server->ends) {
			close(server->listener);
			server->listener = -1;
		}
		if (!again) {
			break_off(connection);
			return;
		}
	}
	busy = !server->requests && server->code;
	if (server->tells) {
		bytes = snprintf(
			answer, sizeof(answer), "%s", server->tells(text, server->requests));
	} else if (busy) {
		snprintf(text, sizeof(text), "<Error><Code>%s</Code></Error>", server->code);
		bytes = snprintf(answer, sizeof(answer),
			"HTTP/1.1 503 Service Unavailable\r\nContent-Length: %zu\r\n\r\n%s",
			strlen(text), text);
	} else {
		bytes = snprintf(answer, sizeof(answer),
			"HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: %zu\r\n\r\n%s",
			strlen(server->answer), server->answer);
	}
	server->requests++;
	assert_int_equal(send(connection->fd, answer, (size_t)bytes, MSG_NOSIGNAL), bytes);
}

static void *run(void *arg)
{
	struct server *server = arg;

	while (server->listener >= 0) {
		server->fds[0].fd = server->listener;
		assert_true(poll(server->fds, ARRAY_LEN(server->fds), -1) > 0);
		for (uint32_t i = 1; i <= CONNECTIONS_MAX; i++)
			if (server->fds[i].fd >= 0 && server->fds[i].revents)
				serve(server, &server->fds[i]);
		if (server->listener < 0 || !server->fds[0].revents)
			continue;
		for (uint32_t i = 1; i <= CONNECTIONS_MAX; i++) {
			if (server->fds[i].fd >= 0)
				continue;
			server->fds[i].fd = accept(server->listener, NULL, NULL);
			server->connections++;
			if (server->fds[i].fd < 0) /* server_close */
				return NULL;
			break;
		}
	}
	return NULL;
}

static void server_open(struct server *server, const char *answer)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);

	*server = (struct server){.answer = answer};
	for (uint32_t i = 0; i < ARRAY_LEN(server->fds); i++)
		server->fds[i] = (struct pollfd){.fd = -1, .events = POLLIN};
	server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(server->listener, (struct sockaddr *)&address, len), 0);
	assert_int_equal(listen(server->listener, 8), 0);
	assert_int_equal(getsockname(server->listener, (struct sockaddr *)&address, &len), 0);
	server->port = ntohs(address.sin_port);
}

static void server_start(struct server *server)
{
	assert_int_equal(pthread_create(&server->thread, NULL, run, server), 0);
}

static void server_close(struct server *server)
{
	if (server->listener >= 0)
		shutdown(server->listener, SHUT_RDWR);
	pthread_join(server->thread, NULL);
	if (server->listener >= 0)
		close(server->listener);
	for (uint32_t i = 1; i <= CONNECTIONS_MAX; i++)
		if (server->fds[i].fd >= 0)
			close(server->fds[i].fd);
}

static struct neb_client *client_with(const char *endpoints, uint64_t connect_timeout_ns)
{
	const struct neb_options options = {.endpoints = endpoints,
		.access_key = RIG_ACCESS_KEY,
		.secret_key = RIG_SECRET_KEY,
		.connect_timeout_ns = connect_timeout_ns,
		.request_timeout_ns = RIG_PATIENCE_NS,
		.pool_bytes = 8 * MIB};
	struct neb_client *client = NULL;

	assert_int_equal(neb_client_open(&options, &client), 0);
	return client;
}

static struct neb_client *client_of(const char *endpoints)
{
	return client_with(endpoints, 0);
}

static struct neb_client *client_to(const struct server *server)
{
	char endpoint[64];

	snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%u", server->port);
	return client_of(endpoint);
}

/* ---- Writes whose second arrival does something else. ---- */

static const struct neb_header NEW = {"if-none-match", "*"},
			       OFFSET = {"x-amz-write-offset-bytes", "1"},
			       RENAME = {"x-amz-rename-source", "old"},
			       SIZE = {"x-amz-if-match-size", "5"};
static const struct {
	struct neb_request request;
	const char *line;
} ONCE[] = {
	{{.op = NEB_PUT_OBJECT, .key = "k", .headers = &NEW, .header_count = 1}, "PUT /b/k "},
	{{.op = NEB_PUT_OBJECT, .key = "k", .headers = &OFFSET, .header_count = 1}, "PUT /b/k "},
	{{.op = NEB_DELETE_OBJECT, .key = "k", .headers = &SIZE, .header_count = 1},
		"DELETE /b/k "},
	{{.op = NEB_CREATE_MULTIPART, .key = "k"}, "POST /b/k?uploads"},
	{{.op = NEB_COMPLETE_MULTIPART, .key = "k", .query = "uploadId=u"}, "POST /b/k?uploadId=u"},
	{{.op = NEB_S3, .method = "POST", .path = "/b/k", .query = "restore"}, "POST /b/k?restore"},
	{{.op = NEB_S3,
		 .method = "PUT",
		 .path = "/b/k",
		 .query = "renameObject",
		 .headers = &RENAME,
		 .header_count = 1},
		"PUT /b/k?renameObject"},
};

/* A connection that carried a request before breaks after the server has done the next one. */
static void test_done_once(void **state)
{
	char body[] = "hello";
	struct neb_iov iov = {body, 5};
	struct neb_result result;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(ONCE); i++) {
		struct neb_request request = ONCE[i].request;
		struct neb_client *client;
		struct server server;

		server_open(&server, "");
		server.breaks = ONCE[i].line;
		server_start(&server);
		client = client_to(&server);
		request.bucket = request.op == NEB_S3 ? NULL : "b";
		request.body = &iov;
		request.body_count = request.op == NEB_DELETE_OBJECT ? 0 : 1;
		assert_int_equal(neb_put(client, "b", "warm", "x", 1, &result), 0);
		assert_int_equal(neb_perform(client, &request, &result), -ECONNRESET);
		assert_int_equal(result.status, 0);
		assert_int_equal(server.broken, 1);
		/* Other requests use the connection that is there. */
		assert_int_equal(server.connections, 2);
		assert_int_equal(neb_put(client, "b", "warm", "x", 1, &result), 0);
		assert_int_equal(server.connections, 2);
		assert_int_equal(server.requests, 2);
		neb_client_close(client);
		server_close(&server);
	}
}

/* 503 says that nothing was done, so the write is sent again; but not when the server's own process
 * was gone before its answer. */
static void test_busy(void **state)
{
	static const struct neb_request plain = {.op = NEB_PUT_OBJECT, .key = "k"};
	char body[] = "hello";
	struct neb_iov iov = {body, 5};

	(void)state;
	for (size_t i = 0; i <= ARRAY_LEN(ONCE); i++) {
		const struct neb_request *of = i ? &ONCE[i - 1].request : &plain;

		if (of->op != NEB_PUT_OBJECT && of->op != NEB_DELETE_OBJECT)
			continue;
		for (int unknown = 0; unknown <= 1; unknown++) {
			struct neb_request request = *of;
			struct neb_client *client;
			struct neb_result result;
			struct server server;

			server_open(&server, "");
			server.code = unknown ? "OutcomeUnknown" : "SlowDown";
			server_start(&server);
			client = client_to(&server);
			request.bucket = "b";
			request.body = &iov;
			request.body_count = request.op == NEB_DELETE_OBJECT ? 0 : 1;
			if (unknown && i) {
				assert_int_equal(neb_perform(client, &request, &result), -EAGAIN);
				assert_string_equal(result.code, "OutcomeUnknown");
				assert_int_equal(server.requests, 1);
			} else {
				assert_int_equal(neb_perform(client, &request, &result), 0);
				assert_int_equal(server.requests, 2);
			}
			neb_client_close(client);
			server_close(&server);
		}
	}
}

/* The same when the server's process ends: the next endpoint does not get the request. */
static void test_next_endpoint(void **state)
{
	const struct neb_request request = {.op = NEB_PUT_OBJECT,
		.bucket = "b",
		.key = "k",
		.headers = &NEW,
		.header_count = 1};
	struct server servers[2];
	struct neb_client *client;
	struct neb_result result;
	char endpoints[160];

	(void)state;
	server_open(&servers[0], "");
	server_open(&servers[1], "");
	servers[0].breaks = "PUT /b/k ";
	servers[0].ends = true;
	server_start(&servers[0]);
	server_start(&servers[1]);
	snprintf(endpoints, sizeof(endpoints), "http://127.0.0.1:%u,http://127.0.0.1:%u",
		servers[0].port, servers[1].port);
	client = client_of(endpoints);
	assert_int_equal(neb_put(client, "b", "warm", "x", 1, &result), 0);
	assert_int_equal(neb_perform(client, &request, &result), -ECONNRESET);
	assert_int_equal(result.status, 0);
	assert_int_equal(servers[0].broken, 1);
	assert_int_equal(servers[1].requests, 0);
	/* No server has this one. */
	assert_int_equal(neb_perform(client, &request, &result), 0);
	assert_int_equal(servers[1].requests, 1);
	neb_client_close(client);
	server_close(&servers[0]);
	server_close(&servers[1]);
}

/* A session has numbered the request, but it has too much text for a capsule: over HTTP its number
 * protects it from nothing. */
static void test_no_capsule(void **state)
{
	char body[4096], text[8000], query[4001], key[1001], endpoints[160];
	const struct neb_header headers[] = {NEW, {"x-amz-meta-text", text}};
	struct neb_iov iov = {body, sizeof(body)};
	const struct neb_request request = {.op = NEB_PUT_OBJECT,
		.bucket = "b",
		.key = key,
		.query = query,
		.headers = headers,
		.header_count = 2,
		.body = &iov,
		.body_count = 1};
	struct rig *rig = rig_open(NULL);
	struct neb_client *client;
	struct neb_result result;
	struct server server;

	(void)state;
	memset(body, 'b', sizeof(body));
	memset(text, 't', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	memset(query, 'q', sizeof(query) - 1);
	query[sizeof(query) - 1] = '\0';
	memset(key, 'k', sizeof(key) - 1);
	key[sizeof(key) - 1] = '\0';
	server_open(&server, "");
	server.breaks = "PUT /b/k";
	server_start(&server);
	snprintf(endpoints, sizeof(endpoints), "%s,http://127.0.0.1:%u", rig_endpoint(rig),
		server.port);
	client = client_of(endpoints);
	assert_int_equal(neb_perform(client, &request, &result), -ECONNRESET);
	assert_string_equal(result.fallback, "the request does not fit a capsule");
	assert_int_equal(result.status, 0);
	assert_int_equal(server.broken, 1);
	neb_client_close(client);
	server_close(&server);
	rig_close(rig);
}

/* A plain write is sent again. */
static void test_plain_again(void **state)
{
	struct neb_client *client;
	struct neb_result result;
	struct server server;

	(void)state;
	server_open(&server, "");
	server.breaks = "PUT /b/k ";
	server_start(&server);
	client = client_to(&server);
	assert_int_equal(neb_put(client, "b", "warm", "x", 1, &result), 0);
	assert_int_equal(neb_put(client, "b", "k", "x", 1, &result), 0);
	assert_int_equal(server.broken, 2);
	neb_client_close(client);
	server_close(&server);
}

/* ---- Endpoints that get nothing. ---- */

/* Enough to connect on a busy machine; tests wait for its end. */
#define CONNECT_NS (2 * NS_PER_S)
#define FULL_MAX   8u

/* A port whose connections nobody accepts. */
struct dead {
	int listener;
	uint16_t port;
	int fds[FULL_MAX]; /* connections that fill its queue; else -1 */
};

static struct sockaddr_in dead_listen(struct dead *dead, int backlog)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);

	for (uint32_t i = 0; i < FULL_MAX; i++)
		dead->fds[i] = -1;
	dead->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(dead->listener, (struct sockaddr *)&address, len), 0);
	if (backlog >= 0)
		assert_int_equal(listen(dead->listener, backlog), 0);
	assert_int_equal(getsockname(dead->listener, (struct sockaddr *)&address, &len), 0);
	dead->port = ntohs(address.sin_port);
	return address;
}

/* Of a socket that listens, the kernel tells how many connections wait, and how many may. */
static bool is_full(const struct dead *dead)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);

	assert_int_equal(getsockopt(dead->listener, IPPROTO_TCP, TCP_INFO, &info, &len), 0);
	return info.tcpi_unacked > info.tcpi_sacked;
}

/* Its connections are refused: nothing listens there. */
static void open_closed(struct dead *dead)
{
	dead_listen(dead, -1);
}

/* The kernel drops the first packet of a connection: the queue is full. */
static void open_full(struct dead *dead)
{
	struct sockaddr_in address = dead_listen(dead, 1);
	uint64_t until_ns = clock_now_ns() + RIG_PATIENCE_NS;

	for (uint32_t i = 0; i < FULL_MAX; i++) {
		dead->fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		connect(dead->fds[i], (struct sockaddr *)&address, sizeof(address));
	}
	while (!is_full(dead)) {
		assert_true(clock_now_ns() < until_ns);
		sched_yield();
	}
}

/* The kernel makes the connection, and the bytes that arrive wait for ever. */
static void open_silent(struct dead *dead)
{
	dead_listen(dead, 64);
}

static void dead_close(struct dead *dead)
{
	for (uint32_t i = 0; i < FULL_MAX; i++)
		if (dead->fds[i] >= 0)
			close(dead->fds[i]);
	close(dead->listener);
}

static const struct {
	const char *scheme;
	void (*open)(struct dead *dead);
	uint32_t count; /* of UNSENT: each takes CONNECT_NS, but where it is refused */
} DEAD[] = {{"http", open_closed, 6}, {"http", open_full, 3}, {"https", open_silent, 2}};

static const struct neb_header MATCH = {"if-match", "\"e\""};
/* Only the part may arrive twice. */
static const struct neb_request UNSENT[] = {
	{.op = NEB_CREATE_BUCKET},
	{.op = NEB_CREATE_MULTIPART, .key = "k"},
	{.op = NEB_PUT_OBJECT, .key = "k", .headers = &NEW, .header_count = 1},
	{.op = NEB_UPLOAD_PART, .key = "k", .query = "partNumber=1&uploadId=u"},
	{.op = NEB_COMPLETE_MULTIPART, .key = "k", .query = "uploadId=u"},
	{.op = NEB_DELETE_OBJECT, .key = "k", .headers = &MATCH, .header_count = 1},
};

/* A request of which nothing was sent goes to the next endpoint, and arrives there once. */
static void test_unsent(void **state)
{
	char answer[256], body[] = "hello";
	struct neb_iov iov = {body, 5}, into = {answer, sizeof(answer)};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(DEAD); i++) {
		struct neb_client *client;
		struct neb_result result;
		struct server server;
		char endpoints[160];
		struct dead dead;

		DEAD[i].open(&dead);
		server_open(&server, "<CompleteMultipartUploadResult/>");
		server_start(&server);
		snprintf(endpoints, sizeof(endpoints), "%s://127.0.0.1:%u,http://127.0.0.1:%u",
			DEAD[i].scheme, dead.port, server.port);
		client = client_with(endpoints, CONNECT_NS);
		for (uint32_t j = 0; j < DEAD[i].count; j++) {
			struct neb_request request = UNSENT[j];

			request.bucket = "b";
			request.into = &into;
			request.into_count = 1;
			request.body = &iov;
			request.body_count = request.op == NEB_UPLOAD_PART ||
					     request.op == NEB_COMPLETE_MULTIPART ||
					     request.op == NEB_PUT_OBJECT;
			assert_int_equal(neb_perform(client, &request, &result), 0);
			assert_int_equal(result.status, 200);
			assert_int_equal(server.requests, j + 1);
		}
		neb_client_close(client);
		server_close(&server);
		dead_close(&dead);
	}
}

/* With no other endpoint the error is that of the last try, and the deadline ends the tries. */
static void test_unsent_everywhere(void **state)
{
	static const struct {
		void (*open)(struct dead *dead);
		uint64_t timeout_ns;
		int error;
	} WAYS[] = {{open_closed, 0, -ECONNREFUSED},
		{open_full, CONNECT_NS + CONNECT_NS / 2, -ETIMEDOUT}};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(WAYS); i++) {
		const struct neb_request request = {
			.op = NEB_CREATE_BUCKET, .bucket = "b", .timeout_ns = WAYS[i].timeout_ns};
		struct neb_client *client;
		struct neb_result result;
		char endpoint[64];
		struct dead dead;

		WAYS[i].open(&dead);
		snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%u", dead.port);
		client = client_with(endpoint, CONNECT_NS);
		assert_int_equal(neb_perform(client, &request, &result), WAYS[i].error);
		assert_int_equal(result.status, 0);
		neb_client_close(client);
		dead_close(&dead);
	}
}

/* A request that the first endpoint may have read does not go to the next, although it waits longer
 * for its answer than a connection may take. */
static void test_sent_to_silence(void **state)
{
	const struct neb_request request = {
		.op = NEB_CREATE_BUCKET, .bucket = "b", .timeout_ns = 3 * CONNECT_NS};
	struct neb_client *client;
	struct neb_result result;
	struct server server;
	char endpoints[160];
	struct dead dead;

	(void)state;
	open_silent(&dead);
	server_open(&server, "");
	server_start(&server);
	snprintf(endpoints, sizeof(endpoints), "http://127.0.0.1:%u,http://127.0.0.1:%u", dead.port,
		server.port);
	client = client_with(endpoints, CONNECT_NS);
	assert_int_equal(neb_perform(client, &request, &result), -ETIMEDOUT);
	assert_int_equal(result.status, 0);
	assert_int_equal(server.requests, 0);
	assert_int_equal(server.connections, 0);
	neb_client_close(client);
	server_close(&server);
	dead_close(&dead);
}

/* ---- hipobj-rc-v2: the length is asked for first. ---- */

#define HEAD_OF(etag, bytes) \
	"HTTP/1.1 200 OK\r\nETag: \"" etag "\"\r\nContent-Length: " bytes "\r\n\r\n"
#define EMPTY(status, headers) "HTTP/1.1 " status "\r\n" headers "Content-Length: 0\r\n\r\n"

static bool cancelled; /* told by the server's thread */

static bool asks(const char *request, const char *line)
{
	return strncmp(request, line, strlen(line)) == 0;
}

/* Another object comes into the place of the one whose length was told. */
static const char *tell_changed(const char *request, uint32_t before)
{
	if (asks(request, "HEAD /b/k "))
		return before ? HEAD_OF("new", "9") : HEAD_OF("old", "5");
	if (asks(request, "POST /.hipobj-rc/prepare ") &&
		strcasestr(request, "\r\nif-match: \"old\""))
		return EMPTY("412 Precondition Failed", "");
	if (asks(request, "POST /.hipobj-rc/prepare ") &&
		strcasestr(request, "\r\nif-match: \"new\""))
		return EMPTY("501 Not Implemented", "x-amz-rdma-protocol-status: unsupported\r\n");
	return asks(request, "GET /b/k ") ? HEAD_OF("new", "9") "123456789"
					  : EMPTY("400 Bad Request", "");
}

/* HEAD is refused, and PREPARE is not. */
static const char *tell_no_length(const char *request, uint32_t before)
{
	(void)before;
	cancelled |= asks(request, "POST /.hipobj-rc/cancel ");
	if (asks(request, "HEAD /b/k "))
		return strcasestr(request, "\r\nx-amz-request-payer: requester")
			       ? EMPTY("503 Service Unavailable", "")
			       : EMPTY("403 Forbidden", "");
	if (asks(request, "POST /.hipobj-rc/"))
		return EMPTY("200 OK", "x-amz-rdma-session: 0123\r\n");
	return HEAD_OF("e", "9") "123456789";
}

static void whole_get(const char *(*tells)(const char *request, uint32_t before), uint32_t requests)
{
	static const struct neb_header payer = {"x-amz-request-payer", "requester"};
	char endpoint[64], data[64];
	struct neb_iov into = {data, sizeof(data)};
	const struct neb_request get = {.op = NEB_GET_OBJECT,
		.bucket = "b",
		.key = "k",
		.headers = &payer,
		.header_count = 1,
		.into = &into,
		.into_count = 1};
	struct neb_client *client;
	struct neb_result result;
	struct server server;

	server_open(&server, "");
	server.tells = tells;
	server_start(&server);
	snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%u?rdma=hipobj", server.port);
	client = client_of(endpoint);
	assert_int_equal(neb_perform(client, &get, &result), 0);
	assert_int_equal(result.bytes, 9);
	assert_memory_equal(data, "123456789", 9);
	while (server.requests < requests)
		neb_poll(client, NULL, 0);
	assert_int_equal(server.requests, requests);
	neb_client_close(client);
	server_close(&server);
}

static void test_hipobj_length(void **state)
{
	(void)state;
	/* HEAD, PREPARE, both again, GET. */
	whole_get(tell_changed, 5);
	/* HEAD, PREPARE, CANCEL, GET. */
	cancelled = false;
	whole_get(tell_no_length, 4);
	assert_true(cancelled);
}

/* Without its key, a request for an object has the path of its bucket: a DELETE deletes that. */
static void test_names(void **state)
{
	static const struct {
		enum neb_op op;
		const char *bucket, *key, *why;
	} WRONG[] = {
		{NEB_DELETE_OBJECT, "b", "", "the request is for an object, and its key is empty"},
		{NEB_DELETE_OBJECT, "b", NULL,
			"the request is for an object, and its key is empty"},
		{NEB_PUT_OBJECT, "b", "", "the request is for an object, and its key is empty"},
		{NEB_GET_OBJECT, "b", "", "the request is for an object, and its key is empty"},
		{NEB_HEAD_OBJECT, "b", "", "the request is for an object, and its key is empty"},
		{NEB_DELETE_TAGGING, "b", "", "the request is for an object, and its key is empty"},
		{NEB_COPY_OBJECT, "b", "", "the request is for an object, and its key is empty"},
		{NEB_GET_OBJECT, "", "k", "the request is for a bucket, and its name is empty"},
		{NEB_LIST_OBJECTS, "", NULL, "the request is for a bucket, and its name is empty"},
		{NEB_HEAD_BUCKET, NULL, NULL, "the request is for a bucket, and its name is empty"},
		{NEB_DELETE_BUCKET, "b", "k", "the request is not for an object, and has a key"},
		{NEB_LIST_BUCKETS, "b", NULL, "the request is for no bucket, and names one"},
	};
	struct neb_batch_item item = {.key = ""};
	const struct neb_batch batch = {.bucket = "b", .items = &item, .item_count = 1};
	const struct neb_request bucket = {.op = NEB_HEAD_BUCKET, .bucket = "b"};
	struct neb_client *client;
	struct neb_result result;
	struct server server;

	(void)state;
	server_open(&server, "");
	server_start(&server);
	client = client_to(&server);
	for (size_t i = 0; i < ARRAY_LEN(WRONG); i++) {
		const struct neb_request request = {
			.op = WRONG[i].op, .bucket = WRONG[i].bucket, .key = WRONG[i].key};

		assert_int_equal(neb_perform(client, &request, &result), -EINVAL);
		assert_string_equal(result.message, WRONG[i].why);
		assert_int_equal(neb_submit(client, &request, NULL), -EINVAL);
	}
	assert_int_equal(neb_get_batch(client, &batch), -EINVAL);
	assert_int_equal(neb_delete(client, "b", "", NULL), -EINVAL);
	assert_int_equal(server.requests, 0);
	assert_int_equal(neb_perform(client, &bucket, NULL), 0);
	assert_int_equal(neb_bucket_delete(client, "b", NULL), 0);
	assert_int_equal(neb_delete(client, "b", ".", NULL), 0);
	assert_int_equal(server.requests, 3);
	neb_client_close(client);
	server_close(&server);
}

/* ---- Answers. ---- */

/* S3 answers a copy and the completion of an upload with 200 before it knows how they end. */
static void test_document(void **state)
{
	static const struct {
		const char *answer;
		int copied, completed;
		const char *code;
	} ANSWERS[] = {
		{"<CopyObjectResult><ETag>e</ETag></CopyObjectResult>", 0, -EIO, ""},
		{" \n<CompleteMultipartUploadResult xmlns=\"x\"></CompleteMultipartUploadResult>",
			-EIO, 0, ""},
		{" <Error><Code>InternalError</Code><Message>Try again.</Message></Error>", -EIO,
			-EIO, "InternalError"},
		{"", -EIO, -EIO, ""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(ANSWERS); i++) {
		char answer[3000];
		/* The first piece ends within the document's name. */
		struct neb_iov into[] = {{answer, 10}, {answer + 10, sizeof(answer) - 10}};
		struct neb_request request = {
			.bucket = "b", .key = "k", .into = into, .into_count = 2};
		struct neb_client *client;
		struct neb_result result;
		struct server server;

		server_open(&server, ANSWERS[i].answer);
		server_start(&server);
		client = client_to(&server);
		request.op = NEB_COPY_OBJECT;
		assert_int_equal(neb_perform(client, &request, &result), ANSWERS[i].copied);
		assert_int_equal(result.status, 200);
		assert_string_equal(result.code, ANSWERS[i].code);
		assert_int_equal(result.message[0] != 0, ANSWERS[i].copied != 0);
		request.op = NEB_COMPLETE_MULTIPART;
		assert_int_equal(neb_perform(client, &request, &result), ANSWERS[i].completed);
		assert_string_equal(result.code, ANSWERS[i].code);
		neb_client_close(client);
		server_close(&server);
	}
}

static bool keys_take(void *arg, const struct neb_entry *entry)
{
	char *keys = arg;

	strcat(strcat(keys, entry->key), "|");
	return true;
}

/* A server may pass over that the client wants keys percent-encoded. It says so only after them. */
static void test_list_encoding(void **state)
{
	static const char *const LISTS[][2] = {
		{"<ListBucketResult><Contents><Key>a+%41</Key></Contents><CommonPrefixes>"
		 "<Prefix>b+/</Prefix></CommonPrefixes></ListBucketResult>",
			"a+%41|b+/|"},
		{"<ListBucketResult><Contents><Key>a+%41</Key></Contents><CommonPrefixes>"
		 "<Prefix>b+/</Prefix></CommonPrefixes><EncodingType>url</EncodingType>"
		 "</ListBucketResult>",
			"a A|b /|"},
		{"<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>c%2Bd</Key>"
		 "</Contents></ListBucketResult>",
			"c+d|"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(LISTS); i++) {
		char keys[64] = "";
		const struct neb_list list = {.bucket = "b", .visit = keys_take, .arg = keys};
		struct neb_client *client;
		struct server server;

		server_open(&server, LISTS[i][0]);
		server_start(&server);
		client = client_to(&server);
		assert_int_equal(neb_list(client, &list, NULL), 0);
		assert_string_equal(keys, LISTS[i][1]);
		neb_client_close(client);
		server_close(&server);
	}
}

/* The list's second key is not the first one again. */
static void test_list_zero_byte(void **state)
{
	char keys[64] = "";
	const struct neb_list list = {.bucket = "b", .visit = keys_take, .arg = keys};
	struct neb_client *client;
	struct neb_result result;
	struct server server;

	(void)state;
	server_open(&server,
		"<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>a</Key>"
		"</Contents><Contents><Key>a%00b</Key></Contents></ListBucketResult>");
	server_start(&server);
	client = client_to(&server);
	assert_int_equal(neb_list(client, &list, &result), -EILSEQ);
	assert_non_null(strstr(result.message, "zero byte"));
	assert_string_equal(keys, "a|");
	neb_client_close(client);
	server_close(&server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_done_once),
		cmocka_unit_test(test_busy),
		cmocka_unit_test(test_next_endpoint),
		cmocka_unit_test(test_no_capsule),
		cmocka_unit_test(test_unsent),
		cmocka_unit_test(test_unsent_everywhere),
		cmocka_unit_test(test_sent_to_silence),
		cmocka_unit_test(test_hipobj_length),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_plain_again),
		cmocka_unit_test(test_document),
		cmocka_unit_test(test_list_encoding),
		cmocka_unit_test(test_list_zero_byte),
	};

	return cmocka_run_group_tests_name("client_http", tests, NULL, NULL);
}
