/* cli/flow_s3_source.c: an object as a source of `nebulaio flow`: ranges read ahead into the
 * region's frames, where the server writes them by RDMA. The ETag makes sure that all of them are
 * of one object.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "flow/reader.h"
#include "flow_s3.h"

struct s3_source;

struct s3_range {
	struct flow_s3_work work;
	struct s3_source *source;
	struct flow_slot *slot;
	int error;
};

struct s3_source {
	struct flow_reader reader;
	struct flow_s3 *client;
	char bucket[64];
	char key[LIMIT_KEY_LEN_MAX + 1];
	char etag[88]; /* in quotes, for If-Match */
	struct s3_range ranges[FLOW_WINDOW_MAX];
};

static void range_done(struct reactor_msg *msg)
{
	struct s3_range *range = CONTAINER_OF(msg, struct s3_range, work.done);

	flow_io_end(&range->slot->io, range->error);
}

/* On the thread. */
static void range_run(struct flow_s3_work *work)
{
	struct s3_range *range = CONTAINER_OF(work, struct s3_range, work);
	struct s3_source *self = range->source;
	const struct neb_header match = {"if-match", self->etag};
	const struct flow_piece *piece = &range->slot->piece;
	const struct neb_iov into = {piece->data, piece->bytes};
	const struct neb_request request = {.op = NEB_GET_OBJECT,
		.bucket = self->bucket,
		.key = self->key,
		.headers = &match,
		.header_count = 1,
		.into = &into,
		.into_count = 1,
		.range_offset = piece->offset,
		.range_bytes = piece->bytes};
	struct neb_result result;

	range->error = neb_perform(self->client->client, &request, &result);
	atomic_store(&self->client->transport, (int)result.transport);
	if (!range->error && result.bytes != piece->bytes)
		range->error = -EPIPE;
	if (range->error)
		remote_failed(self->key, &result);
	reactor_post(self->reader.source.core->reactor, &range->work.done);
}

/* On the thread. */
static void head_run(struct flow_s3_work *work)
{
	struct s3_range *range = CONTAINER_OF(work, struct s3_range, work);
	struct s3_source *self = range->source;
	struct neb_result result;

	range->error = neb_head(self->client->client, self->bucket, self->key, &result);
	atomic_store(&self->client->transport, (int)result.transport);
	if (range->error) {
		remote_failed(self->key, &result);
	} else {
		self->reader.end = result.object_bytes;
		snprintf(self->etag, sizeof(self->etag), "\"%.84s\"", result.etag);
	}
	reactor_post(self->reader.source.core->reactor, &range->work.done);
}

static void range_start(
	struct s3_source *self, struct flow_slot *slot, void (*run)(struct flow_s3_work *work))
{
	struct s3_range *range = &self->ranges[slot - self->reader.window.slots];

	*range = (struct s3_range){
		.work = {.done = {.fn = range_done}, .run = run}, .source = self, .slot = slot};
	flow_io_begin(&slot->io);
	flow_s3_submit(self->client, &range->work);
}

static int range_begin(struct flow_reader *reader, struct flow_slot *slot, uint32_t bytes_max)
{
	struct s3_source *self = CONTAINER_OF(reader, struct s3_source, reader);
	int ret = flow_reader_lease(reader, slot, bytes_max);

	if (ret == 1)
		range_start(self, slot, range_run);
	return ret;
}

static void s3_close(struct flow_source *source)
{
	struct s3_source *self = CONTAINER_OF(source, struct s3_source, reader.source);

	flow_reader_close(&self->reader);
	free(self);
}

static const struct flow_source_ops S3_OPS = {
	.name = "s3", .next = flow_reader_next, .close = s3_close};

int flow_s3_source_open(struct flow_s3 *client, struct flow_core *core, const char *bucket,
	const char *key, struct flow_source **ret_source)
{
	struct s3_source *self = calloc(1, sizeof(*self));
	struct flow_slot *head;
	int ret;

	if (!self)
		return -ENOMEM;
	if (strlen(bucket) >= sizeof(self->bucket) || strlen(key) >= sizeof(self->key)) {
		free(self);
		return -ENAMETOOLONG;
	}
	self->client = client;
	snprintf(self->bucket, sizeof(self->bucket), "%s", bucket);
	snprintf(self->key, sizeof(self->key), "%s", key);
	self->reader.source = (struct flow_source){.magic = FLOW_SOURCE_MAGIC,
		.ops = &S3_OPS,
		.core = core,
		.deadline_ns = DEADLINE_NONE};
	self->reader.begin = range_begin;
	self->reader.owner = OWNER_RDMA;
	flow_window_init(&self->reader.window, FLOW_WINDOW_MAX);
	head = flow_window_next(&self->reader.window);
	range_start(self, head, head_run);
	ret = flow_io_wait(&head->io);
	if (ret) {
		free(self);
		return ret;
	}
	self->reader.source.bytes_total = self->reader.end;
	flow_reader_open(&self->reader);
	*ret_source = &self->reader.source;
	return 0;
}
