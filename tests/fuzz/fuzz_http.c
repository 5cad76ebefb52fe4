/* tests/fuzz/fuzz_http.c: the HTTP request path: the bytes of a client's connection from the first
 * to the last. The first byte selects the coding of bodies and the size of the pieces of the rest.
 * Any division into pieces must give the same requests, and every frame must be given back. */
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "front/http/http_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct reactor *reactor;
static struct region *region;
static struct flow_core core;
static _Atomic bool draining;
static struct s3_chunk_signing signing;
static bool serving, idle, asked;

/* The result: the number of requests, and a hash over requests and bodies. */
static uint64_t requests, hash;

static void mix(struct slice text)
{
	for (size_t i = 0; i < text.len; i++)
		hash = (hash ^ (uint8_t)text.data[i]) * 1099511628211ull;
	hash = (hash ^ text.len) * 1099511628211ull;
}

static int read_body(const struct s3_request *request)
{
	struct flow_source *source;
	struct flow_piece piece;
	int more;

	more = request->body->ops->open(request->body, &signing, &source);
	if (more)
		return more;
	while ((more = flow_source_next(source, 64 * KIB, &piece)) == 1) {
		for (uint32_t i = 0; i < piece.bytes; i++)
			hash = (hash ^ piece.data[i]) * 1099511628211ull;
		flow_piece_end(&core, &piece, OWNER_APP);
	}
	flow_source_close(source);
	mix(request->body->ops->trailer(request->body, "x-amz-checksum-crc32"));
	return more;
}

static void handle(void *arg, const struct s3_request *request, struct s3_reply *reply)
{
	int err = 0;

	(void)arg;
	requests++;
	mix(request->method_text);
	mix(request->path);
	mix(request->query);
	for (uint32_t i = 0; i < request->header_count; i++) {
		CHECK(!memchr(request->headers[i].value.data ? request->headers[i].value.data : "",
			'\n', request->headers[i].value.len));
		mix(request->headers[i].name);
		mix(request->headers[i].value);
	}
	if (request->method == S3_PUT || request->method == S3_POST)
		err = read_body(request);
	mix(slice_of(&err, sizeof(err)));
	reply->ops->head(reply, err ? 400 : 200, NULL, 0, 2);
	reply->ops->text(reply, SLICE("ok"));
}

static void start(void)
{
	const struct reactor_opts opts = {.cpu = -1};
	const struct region_opts region_opts = {.bytes = 32 * MIB, .core_count = 1};

	CHECK(!reactor_open(&opts, &reactor));
	CHECK(!region_open(&region_opts, &region));
	core = (struct flow_core){.region = region, .reactor = reactor};
}

static void serve(void *arg)
{
	const struct front_http_opts opts = {.core = &core,
		.transport = "http",
		.idle_timeout_ns = 5 * NS_PER_S,
		.head_timeout_ns = 5 * NS_PER_S,
		.body_stall_timeout_ns = 5 * NS_PER_S,
		.draining = &draining,
		.ret_idle = &idle,
		.ret_serving = &asked,
		.handle = handle};

	front_http_serve(&opts, arg);
	serving = false;
}

static void run(struct slice bytes, size_t step)
{
	struct region_usage usage;
	struct net_stream *stream;
	char sink[4096];
	int fds[2];

	requests = 0;
	hash = 14695981039346656037ull;
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds));
	CHECK(!net_stream_take(reactor, fds[1], &stream));
	serving = true;
	CHECK(!fiber_spawn(reactor, "serve", serve, stream));
	while (serving) {
		struct slice part = slice_to(bytes, step);
		ssize_t sent = 0;

		if (part.len)
			sent = send(fds[0], part.data, part.len, MSG_NOSIGNAL);
		if (sent > 0)
			bytes = slice_from(bytes, (size_t)sent);
		if (!bytes.len)
			shutdown(fds[0], SHUT_WR);
		reactor_turn(reactor);
		while (recv(fds[0], sink, sizeof(sink), 0) > 0)
			;
		if (sent < 0)
			bytes = SLICE_NONE;
	}
	close(fds[0]);
	region_usage(region, &usage);
	CHECK(usage.frames_by_owner[OWNER_FREE] == usage.frames_total);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const enum s3_payload payloads[] = {S3_PAYLOAD_UNSIGNED, S3_PAYLOAD_STREAMING_SIGNED,
		S3_PAYLOAD_STREAMING_SIGNED_TRAILER, S3_PAYLOAD_STREAMING_UNSIGNED_TRAILER};
	uint64_t requests_whole, hash_whole;

	if (size < 2)
		return 0;
	if (!reactor)
		start();
	signing = (struct s3_chunk_signing){.payload = payloads[data[0] & 3],
		.timestamp = "20130524T000000Z",
		.scope = "20130524/us-east-1/s3/aws4_request"};
	memset(signing.seed_signature, '0', sizeof(signing.seed_signature) - 1);
	run(slice_of(data + 1, size - 1), SIZE_MAX);
	requests_whole = requests;
	hash_whole = hash;
	run(slice_of(data + 1, size - 1), 1 + (data[0] >> 2));
	CHECK(requests == requests_whole);
	CHECK(hash == hash_whole);
	return 0;
}
