/* cli/serve_replicate.c: requests of the server's replication to its targets, by the C client: each
 * thread that sends has a client of its own. */
#include "serve_replicate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/codec.h"
#include "nebulaio/nebulaio.h"
#include "region/region.h"

#define LOOK_NS	       (200 * NS_PER_MS) /* how long a send does not see that the server ends */
#define REQUEST_NS_MIN (60 * NS_PER_S)
#define BYTES_PER_S    (1 * MIB) /* a slow line still sends a body in time */
#define POOL_BYTES     (1 * MIB) /* for what is small: long bodies lie in memory of the server's */
#define CONNECT_NS     (5 * NS_PER_S)

static const struct config *served;

struct replicate_link {
	struct neb_client *client;
	char bucket[LIMIT_BUCKET_LEN_MAX + 1];
	uint64_t bytes_copied; /* by the client, and counted */
};

_Static_assert(REPLICATE_RUNS_MAX <= NEB_IOV_MAX, "a body's runs fit one request");

static void client_says(void *arg, enum neb_log_level level, const char *text)
{
	(void)arg;
	if (level >= NEB_LOG_WARN)
		log_debug("replicate", "%s", text);
}

static int link_open(const struct s3_replicate_place *place, struct replicate_link **ret_link)
{
	const struct neb_options options = {.endpoints = place->endpoints,
		.access_key = place->access_key,
		.secret_key = place->secret_key,
		.region = place->region,
		.device_name = served->rdma.device_name[0] ? served->rdma.device_name : NULL,
		.pool_bytes = POOL_BYTES,
		.connect_timeout_ns = CONNECT_NS,
		.request_timeout_ns = REQUEST_NS_MIN,
		.log = client_says};
	struct replicate_link *link = calloc(1, sizeof(*link));
	int ret = link ? neb_client_open(&options, &link->client) : -ENOMEM;

	if (ret) {
		free(link);
		return ret;
	}
	memcpy(link->bucket, place->bucket, sizeof(link->bucket));
	*ret_link = link;
	return 0;
}

static void link_close(struct replicate_link *link)
{
	if (!link)
		return;
	neb_client_close(link->client);
	free(link);
}

/* A value of the answer's, or none where it is longer than its room. */
static void header_take(
	const struct neb_result *result, const char *name, char *ret_value, size_t bytes)
{
	const char *value;
	int len = neb_result_header(result, name, &value);

	if (len > 0 && (size_t)len < bytes)
		slice_copy_str(slice_of(value, (size_t)len), ret_value, bytes);
}

static void result_take(const struct neb_result *result, const struct replicate_request *request,
	struct replicate_result *ret_result)
{
	if (request->answer_headers)
		snprintf(request->answer_headers, request->answer_headers_bytes, "%s",
			result->headers);
	ret_result->object_bytes = result->object_bytes;
	ret_result->error = result->error;
	ret_result->status = result->status;
	ret_result->transport = neb_transport_name(result->transport);
	ret_result->answer_len = result->bytes;
	memcpy(ret_result->etag, result->etag, sizeof(ret_result->etag));
	memcpy(ret_result->code, result->code, sizeof(ret_result->code));
	memcpy(ret_result->message, result->message, sizeof(ret_result->message));
	header_take(
		result, "x-amz-version-id", ret_result->version_id, sizeof(ret_result->version_id));
	header_take(result, "x-nebulaio-replica", ret_result->replica_of,
		sizeof(ret_result->replica_of));
}

/* Ends early when the server does: the request in flight is then cut off with its client. */
static void run(struct replicate_link *link, const struct neb_request *wire,
	const struct replicate_request *request, const _Atomic bool *ending,
	struct replicate_result *ret_result)
{
	struct neb_result result = {.error = -ETIMEDOUT};
	uint64_t id;
	int ret = neb_submit(link->client, wire, &id);

	if (ret) {
		ret_result->error = ret;
		return;
	}
	do
		ret = neb_wait(link->client, &result, 1, LOOK_NS);
	while (ret < 1 && !atomic_load(ending) && neb_in_flight(link->client));
	if (ret == 1)
		result_take(&result, request, ret_result);
	else
		ret_result->error = atomic_load(ending) ? -ECANCELED : -ECONNRESET;
}

static bool is_put_op(enum replicate_op op)
{
	return op == REPLICATE_PUT_OBJECT || op == REPLICATE_UPLOAD_PART;
}

/* The client copies a version over HTTP, or when it is small. */
static void copies_count(struct replicate_link *link, enum replicate_op op)
{
	struct neb_stats stats;

	neb_client_stats(link->client, &stats);
	if (is_put_op(op))
		region_copy_count(stats.bytes_copied - link->bytes_copied, COPY_REPLICATE);
	link->bytes_copied = stats.bytes_copied;
}

static uint64_t body_take(const struct replicate_request *request, struct neb_iov *ret_body)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < request->run_count; i++) {
		ret_body[i] = (struct neb_iov){
			(void *)(uintptr_t)request->runs[i].data, request->runs[i].len};
		bytes += request->runs[i].len;
	}
	return bytes;
}

static void link_send(struct replicate_link *link, const struct replicate_request *request,
	const _Atomic bool *ending, struct replicate_result *ret_result)
{
	struct neb_iov body[REPLICATE_RUNS_MAX];
	const struct neb_iov into = {request->answer, request->answer_bytes};
	const uint64_t bytes = body_take(request, body);
	struct neb_header headers[NEB_HEADERS_MAX];
	static const enum neb_op OPS[] = {[REPLICATE_PUT_OBJECT] = NEB_PUT_OBJECT,
		[REPLICATE_UPLOAD_PART] = NEB_UPLOAD_PART,
		[REPLICATE_GET_OBJECT] = NEB_GET_OBJECT,
		[REPLICATE_HEAD_OBJECT] = NEB_HEAD_OBJECT,
		[REPLICATE_OTHER] = NEB_S3};
	const uint64_t moved = bytes + request->range_bytes;
	const bool is_put = is_put_op(request->op);
	struct neb_request wire = {.op = OPS[request->op],
		.query = request->query,
		.method = request->method,
		.headers = headers,
		.header_count = request->header_count,
		.body = body,
		.body_count = request->run_count,
		.into = &into,
		/* A body whose request has an into, too, is copied. */
		.into_count = !is_put && request->answer_bytes > 0,
		.range_offset = request->range_offset,
		.range_bytes = request->range_bytes,
		.timeout_ns = REQUEST_NS_MIN + moved / BYTES_PER_S * NS_PER_S,
		.want_headers = true};
	struct buf path;

	if (request->header_count > NEB_HEADERS_MAX) {
		/* As an answer: it would not be taken by another try, either. */
		ret_result->status = 400;
		snprintf(ret_result->message, sizeof(ret_result->message), "more than %u headers",
			NEB_HEADERS_MAX);
		return;
	}
	for (uint32_t i = 0; i < request->header_count; i++)
		headers[i] = (struct neb_header){
			request->headers[i].name.data, request->headers[i].value.data};
	buf_init(&path, 4 * LIMIT_KEY_LEN_MAX);
	if (wire.op == NEB_S3) {
		buf_printf(&path, "/%s/", link->bucket);
		uri_encode(slice_str(request->key), URI_KEEP_SLASH, &path);
		buf_put(&path, "", 1);
		wire.path = path.data;
	} else {
		wire.bucket = link->bucket;
		wire.key = request->key;
	}
	if (path.failed)
		ret_result->error = -ENOMEM;
	else
		run(link, &wire, request, ending, ret_result);
	copies_count(link, request->op);
	buf_free(&path);
}

const struct replicate_sender *serve_sender(const struct config *config)
{
	static const struct replicate_sender SENDER = {
		.open = link_open, .close = link_close, .send = link_send};

	served = config;
	return &SENDER;
}
