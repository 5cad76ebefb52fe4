/* cli/flow_s3_source.c: an object as a source of `nebulaio flow`: ranges read ahead into the
 * region's frames, where the server writes them by RDMA. The ETag holds all of them to one object.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "flow_s3.h"

#define SLOTS 8u

struct s3_source;

struct s3_range {
	struct flow_s3_work work;
	struct s3_source *source;
	struct region_span span;
	uint64_t offset;
	uint32_t bytes;
	int error;
	bool done;
};

struct s3_source {
	struct flow_source source;
	struct flow_s3 *client;
	char bucket[64];
	char key[LIMIT_KEY_LEN_MAX + 1];
	char etag[88]; /* in quotes, for If-Match */
	uint64_t next, bytes;
	uint32_t begun, taken;
	struct fiber *waiter;
	struct s3_range slots[SLOTS];
};

static void range_done(struct reactor_msg *msg)
{
	struct s3_range *slot = CONTAINER_OF(msg, struct s3_range, work.done);

	slot->done = true;
	if (slot->source->waiter)
		fiber_wake(slot->source->waiter);
}

/* On the thread. */
static void range_run(struct flow_s3_work *work)
{
	struct s3_range *slot = CONTAINER_OF(work, struct s3_range, work);
	struct s3_source *self = slot->source;
	const struct neb_header match = {"if-match", self->etag};
	const struct neb_iov into = {slot->span.data, slot->bytes};
	const struct neb_request request = {.op = NEB_GET_OBJECT,
		.bucket = self->bucket,
		.key = self->key,
		.headers = &match,
		.header_count = 1,
		.into = &into,
		.into_count = 1,
		.range_offset = slot->offset,
		.range_bytes = slot->bytes};
	struct neb_result result;

	slot->error = neb_perform(self->client->client, &request, &result);
	atomic_store(&self->client->transport, (int)result.transport);
	if (!slot->error && result.bytes != slot->bytes)
		slot->error = -EPIPE;
	if (slot->error)
		remote_failed(self->key, &result);
	reactor_post(self->source.core->reactor, &slot->work.done);
}

/* On the thread. */
static void head_run(struct flow_s3_work *work)
{
	struct s3_range *slot = CONTAINER_OF(work, struct s3_range, work);
	struct s3_source *self = slot->source;
	struct neb_result result;

	slot->error = neb_head(self->client->client, self->bucket, self->key, &result);
	atomic_store(&self->client->transport, (int)result.transport);
	if (slot->error) {
		remote_failed(self->key, &result);
	} else {
		self->bytes = result.object_bytes;
		snprintf(self->etag, sizeof(self->etag), "\"%.84s\"", result.etag);
	}
	reactor_post(self->source.core->reactor, &slot->work.done);
}

static void slot_start(struct s3_range *slot, void (*run)(struct flow_s3_work *work))
{
	slot->work = (struct flow_s3_work){.done = {.fn = range_done}, .run = run};
	slot->done = false;
	slot->error = 0;
	flow_s3_submit(slot->source->client, &slot->work);
}

static int slot_wait(struct s3_source *self, const struct s3_range *slot)
{
	self->waiter = fiber_self();
	while (!slot->done)
		fiber_park();
	self->waiter = NULL;
	return slot->error;
}

static int read_ahead(struct s3_source *self)
{
	struct flow_core *core = self->source.core;

	while (self->next < self->bytes && self->begun - self->taken < SLOTS) {
		struct s3_range *slot = &self->slots[self->begun % SLOTS];
		int ret;

		slot->bytes = (uint32_t)MIN(self->bytes - self->next, (uint64_t)STORE_CHUNK_BYTES);
		if (self->begun == self->taken)
			ret = flow_lease(core, region_frames_for(slot->bytes), OWNER_RDMA,
				DEADLINE_NONE, &slot->span);
		else
			ret = region_lease(core->region, region_frames_for(slot->bytes), OWNER_RDMA,
				&slot->span);
		if (ret)
			return ret == -ENOBUFS ? 0 : ret;
		slot->offset = self->next;
		self->next += slot->bytes;
		self->begun++;
		slot_start(slot, range_run);
	}
	return 0;
}

static int s3_next(struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct s3_source *self = CONTAINER_OF(source, struct s3_source, source);
	struct s3_range *slot = &self->slots[self->taken % SLOTS];
	int ret = read_ahead(self);

	CHECK(bytes_max >= STORE_CHUNK_BYTES);
	if (ret)
		return ret;
	if (self->taken == self->begun)
		return 0;
	ret = slot_wait(self, slot);
	if (ret)
		return ret;
	region_switch(source->core->region, slot->span, OWNER_RDMA, OWNER_APP);
	*ret_piece = (struct flow_piece){.span = slot->span,
		.data = slot->span.data,
		.bytes = slot->bytes,
		.offset = slot->offset,
		.hold = FLOW_HOLD_LEASE};
	self->taken++;
	return 1;
}

static void s3_close(struct flow_source *source)
{
	struct s3_source *self = CONTAINER_OF(source, struct s3_source, source);

	for (; self->taken != self->begun; self->taken++) {
		struct s3_range *slot = &self->slots[self->taken % SLOTS];

		slot_wait(self, slot);
		region_give(source->core->region, slot->span, OWNER_RDMA);
	}
	free(self);
}

static const struct flow_source_ops S3_OPS = {.name = "s3", .next = s3_next, .close = s3_close};

int flow_s3_source_open(struct flow_s3 *client, struct flow_core *core, const char *bucket,
	const char *key, struct flow_source **ret_source)
{
	struct s3_source *self = calloc(1, sizeof(*self));
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
	self->source =
		(struct flow_source){.ops = &S3_OPS, .core = core, .deadline_ns = DEADLINE_NONE};
	for (uint32_t i = 0; i < SLOTS; i++)
		self->slots[i].source = self;
	slot_start(&self->slots[0], head_run);
	ret = slot_wait(self, &self->slots[0]);
	if (ret) {
		free(self);
		return ret;
	}
	self->source.bytes_total = self->bytes;
	*ret_source = &self->source;
	return 0;
}
