/* flow/transform_source.c: a source that wraps another and passes its pieces through a chain of
 * transforms: in their own frames if lengths stay, otherwise into other frames. The transforms run
 * on a helper thread, which has a large stack and may be slow, while device I/O continues. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "flow/transform.h"

#define PROMPT_BYTES (256 * KIB) /* length of a piece's frames with prompt */

_Static_assert(PROMPT_BYTES >= NEB_TRANSFORM_ROOM + FRAME_BYTES, "it has room for a call");

struct transform_source {
	struct flow_source source;
	struct flow_source *inner;
	struct flow_transforms *transforms;
	struct flow_transform_opts opts;
	struct flow_piece in;  /* the chain's input; data NULL: none */
	struct flow_piece out; /* the piece being filled; data NULL: none */
	struct flow_run run;   /* out's bytes */
	/* The chain's output that did not fit into out: it goes into the next one. */
	struct flow_run spill;
	uint64_t offset;    /* of the next piece that is delivered */
	uint64_t oldest_ns; /* arrival of the oldest bytes in out; 0: none */
	bool over;	    /* the chain has no more output */
};

/* ---- On the helper thread. ---- */

enum work { WORK_PIECE, WORK_PULL, WORK_OVER };
struct call {
	struct transform_source *self;
	enum work work;
	struct flow_run *run;
	int result;
};

static void call_run(void *arg)
{
	struct call *call = arg;
	struct flow_transforms *transforms = call->self->transforms;

	if (call->work == WORK_PIECE)
		call->result = flow_transforms_piece(transforms, call->run);
	else if (call->work == WORK_PULL)
		call->result = flow_transforms_pull(transforms, call->run);
	else
		call->result = flow_transforms_over(transforms);
}

static int offload(struct transform_source *self, enum work work, struct flow_run *run)
{
	struct call call = {.self = self, .work = work, .run = run};

	fiber_offload(call_run, &call);
	return call.result;
}

/* ---- Input. ---- */

/* 1: a piece, seen by the stages and changed by the chain's first transforms; 0: the end; -errno.
 */
static int piece_take(
	struct transform_source *self, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct flow_core *core = self->source.core;
	struct flow_run run;
	int ret;

	self->inner->share = self->source.share;
	ret = flow_source_next(self->inner, bytes_max, ret_piece);
	if (ret == 0)
		return offload(self, WORK_OVER, NULL);
	if (ret < 0)
		return ret;
	ret = flow_stages_run(self->opts.stages, self->opts.stage_count, ret_piece);
	if (!ret && ret_piece->hold != FLOW_HOLD_LEASE)
		ret = -EROFS;
	if (!ret) {
		run = (struct flow_run){.data = ret_piece->data,
			.to = ret_piece->bytes,
			.capacity = (size_t)(ret_piece->span.data +
					     region_span_bytes(ret_piece->span) - ret_piece->data)};
		ret = offload(self, WORK_PIECE, &run);
	}
	if (ret) {
		flow_piece_end(core, ret_piece, OWNER_APP);
		return ret;
	}
	return 1;
}

/* ---- Output. ---- */

static int out_open(struct transform_source *self)
{
	const uint32_t bytes = self->opts.prompt ? PROMPT_BYTES : FLOW_PIECE_BYTES_MAX;
	const struct flow_want want = {.frame_count = bytes / FRAME_BYTES,
		.owner = OWNER_APP,
		.share = self->source.share,
		.begun = self->offset != 0,
		.deadline_ns = self->source.deadline_ns};
	size_t before = self->spill.to - self->spill.from;
	int ret;

	if (self->out.data)
		return 0;
	ret = flow_piece_lease(self->source.core, &want, &self->out);
	if (ret)
		return ret;
	self->run = (struct flow_run){.data = self->out.data, .capacity = bytes};
	if (before)
		region_copy(
			self->run.data, self->spill.data + self->spill.from, before, COPY_ALIGN);
	self->run.to = before;
	self->spill.from = self->spill.to = 0;
	return 0;
}

/* Moves as many of the spilt bytes as the piece has room for. */
static void spill_move(struct transform_source *self)
{
	size_t bytes = MIN(self->spill.to - self->spill.from, self->run.capacity - self->run.to);

	region_copy(self->run.data + self->run.to, self->spill.data + self->spill.from, bytes,
		COPY_ALIGN);
	self->run.to += bytes;
	self->spill.from += bytes;
}

/* Pulls into the piece while it has room for a call, then into spill. Bytes stay in spill only when
 * the piece is full. enum flow_pull; -errno. */
static int out_pull(struct transform_source *self)
{
	int ret = offload(self, WORK_PULL, &self->run);

	if (ret != FLOW_PULL_FULL || self->run.to == self->run.capacity)
		return ret;
	self->spill.from = self->spill.to = 0;
	ret = offload(self, WORK_PULL, &self->spill);
	if (ret >= 0)
		spill_move(self);
	return ret;
}

static bool has_spilt(const struct transform_source *self)
{
	return self->spill.from != self->spill.to;
}

/* Delivers whole units; at the end, all of it. */
static void hand_on(struct transform_source *self, struct flow_piece *ret_piece)
{
	size_t bytes = self->over ? self->run.to : ALIGN_DOWN(self->run.to, self->opts.unit);
	size_t rest = self->run.to - bytes;

	if (rest) {
		CHECK(!has_spilt(self));
		region_copy(self->spill.data, self->run.data + bytes, rest, COPY_ALIGN);
		self->spill.from = 0;
		self->spill.to = rest;
	}
	*ret_piece = self->out;
	ret_piece->bytes = (uint32_t)bytes;
	ret_piece->offset = self->offset;
	self->offset += bytes;
	self->out.data = NULL;
	self->source.arrived_ns = self->oldest_ns;
	self->oldest_ns = self->in.data || has_spilt(self) ? self->inner->arrived_ns : 0;
}

/* Whether the piece is delivered now, without waiting for more bytes. */
static bool out_goes(const struct transform_source *self, int pulled)
{
	if (self->run.to == self->run.capacity)
		return true;
	if (self->over)
		return self->run.to != 0;
	return self->opts.prompt && pulled == FLOW_PULL_HUNGRY && self->run.to >= self->opts.unit;
}

static int resized_next(
	struct transform_source *self, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	while (!self->over) {
		int ret = out_open(self), pulled;

		if (ret)
			return ret;
		pulled = out_pull(self);
		if (pulled < 0)
			return pulled;
		if (pulled == FLOW_PULL_HUNGRY && self->in.data)
			flow_piece_end(self->source.core, &self->in, OWNER_APP);
		self->over = pulled == FLOW_PULL_OVER && !has_spilt(self);
		if (out_goes(self, pulled)) {
			hand_on(self, ret_piece);
			return 1;
		}
		if (pulled == FLOW_PULL_HUNGRY) {
			ret = piece_take(self, bytes_max, &self->in);
			if (ret < 0)
				return ret;
			if (!self->oldest_ns)
				self->oldest_ns = self->inner->arrived_ns;
		}
	}
	return 0;
}

/* ---- The source. ---- */

static int transform_next(
	struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct transform_source *self = CONTAINER_OF(source, struct transform_source, source);

	if (flow_transforms_same_length(self->transforms)) {
		int ret = piece_take(self, bytes_max, ret_piece);

		source->arrived_ns = self->inner->arrived_ns;
		return ret;
	}
	return resized_next(self, bytes_max, ret_piece);
}

static void transform_close(struct flow_source *source)
{
	struct transform_source *self = CONTAINER_OF(source, struct transform_source, source);

	if (self->in.data)
		flow_piece_end(source->core, &self->in, OWNER_APP);
	if (self->out.data)
		flow_piece_end(source->core, &self->out, OWNER_APP);
	flow_source_close(self->inner);
	free(self->spill.data);
	free(self);
}

static const struct flow_source_ops TRANSFORM_OPS = {
	.name = "transform", .next = transform_next, .close = transform_close};

int flow_transform_source_open(struct flow_source *inner, struct flow_transforms *transforms,
	const struct flow_transform_opts *opts, struct flow_source **ret_source)
{
	const bool same = flow_transforms_same_length(transforms);
	struct transform_source *self = calloc(1, sizeof(*self));

	CHECK(opts->unit && opts->unit <= FRAME_BYTES);
	if (self && !same)
		self->spill.data = malloc(NEB_TRANSFORM_ROOM);
	if (!self || (!same && !self->spill.data)) {
		free(self);
		flow_source_close(inner);
		return -ENOMEM;
	}
	self->spill.capacity = NEB_TRANSFORM_ROOM;
	self->inner = inner;
	self->transforms = transforms;
	self->opts = *opts;
	self->source = (struct flow_source){.magic = FLOW_SOURCE_MAGIC,
		.ops = &TRANSFORM_OPS,
		.core = inner->core,
		.bytes_total = same ? inner->bytes_total : UINT64_MAX,
		.deadline_ns = inner->deadline_ns};
	*ret_source = &self->source;
	return 0;
}
