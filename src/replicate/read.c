/* replicate/read.c: the bytes of a version, by a request of the server's own, so that they come
 * verified and decrypted: from the cache, or read from the volume into frames. */
#include "replicate/replicate_priv.h"

#include <errno.h>
#include <stdio.h>

#include "codec/codec.h"

struct inner {
	struct s3_reply reply;
	struct flow_sink sink;
	struct flow_core *core;
	replicate_take_fn *take;
	void *arg;
	uint64_t left;
};

static int reply_head(struct s3_reply *reply, uint32_t status, const struct s3_header *headers,
	uint32_t header_count, uint64_t bytes)
{
	(void)headers;
	(void)header_count;
	(void)bytes;
	reply->status = status;
	return 0;
}

static int reply_text(struct s3_reply *reply, struct slice body)
{
	(void)reply;
	(void)body;
	return 0;
}

static int sink_push(struct flow_sink *sink, struct flow_piece *piece)
{
	struct inner *inner = CONTAINER_OF(sink, struct inner, sink);

	if (piece->bytes > inner->left) {
		flow_piece_end(sink->core, piece, OWNER_APP);
		return -EMSGSIZE;
	}
	inner->left -= piece->bytes;
	return inner->take(inner->arg, piece);
}

static int sink_finish(struct flow_sink *sink, bool failed)
{
	(void)sink;
	(void)failed;
	return 0;
}

static int reply_sink(struct s3_reply *reply, struct flow_sink **ret_sink)
{
	static const struct flow_sink_ops OPS = {
		.name = "replication", .push = sink_push, .finish = sink_finish};
	struct inner *inner = CONTAINER_OF(reply, struct inner, reply);

	inner->sink = (struct flow_sink){.magic = FLOW_SINK_MAGIC,
		.ops = &OPS,
		.core = inner->core,
		.deadline_ns = DEADLINE_NONE};
	*ret_sink = &inner->sink;
	return 0;
}

int replicate_read(struct replicate *replicate, const struct s3_replicate_job *job,
	struct replicate_range range, replicate_take_fn *take, void *arg)
{
	static const struct s3_reply_ops OPS = {
		.head = reply_head, .text = reply_text, .sink = reply_sink};
	struct inner inner = {.reply = {.ops = &OPS},
		.core = replicate->opts.core,
		.take = take,
		.arg = arg,
		.left = range.bytes};
	struct s3_identity root = {.root = true};
	char range_text[64], query[64];
	const struct s3_header header = {SLICE("range"),
		slice_of(
			range_text, (size_t)snprintf(range_text, sizeof(range_text),
					    "bytes=%llu-%llu", (unsigned long long)range.offset,
					    (unsigned long long)(range.offset + range.bytes - 1)))};
	struct s3_request request = {.method = S3_GET,
		.method_text = SLICE("GET"),
		.headers = &header,
		.header_count = 1,
		.session = &root,
		.transport = "http",
		.peer = "replication",
		.core = replicate->opts.core};
	struct buf path;

	snprintf(query, sizeof(query), "versionId=%.*s", SLICE_FMT(job->row->version_id));
	request.query = slice_str(query);
	slice_copy_str(job->row->request_id, request.request_id, sizeof(request.request_id));
	buf_init(&path, 4 * LIMIT_KEY_LEN_MAX);
	buf_printf(&path, "/%.*s/", SLICE_FMT(job->row->bucket));
	uri_encode(job->row->key, 0, &path);
	request.path = buf_slice(&path);
	if (!path.failed)
		s3_handle(replicate->opts.s3, &request, &inner.reply);
	buf_free(&path);
	return inner.left || inner.reply.broken ? -EIO : 0;
}
