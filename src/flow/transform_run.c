/* flow/transform_run.c: runs a chain of transforms: bytes to bytes. The chain is pulled from its
 * end: a converting transform takes its input from the segment before it. Every length that a
 * transform returns is checked against its bounds here, and nowhere else. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flow/transform_priv.h"

#define SEGMENT_BYTES (2 * NEB_TRANSFORM_ROOM) /* between two transforms that convert */
#define ERRNO_MAX     4095

/* ---- Errors. ---- */

static __attribute__((format(printf, 3, 4))) int nonsense(
	struct flow_transforms *self, const struct flow_transform_item *item, const char *what, ...)
{
	va_list values;
	int len = snprintf(
		self->why, sizeof(self->why), "the transform %s is broken: it ", item->name);

	va_start(values, what);
	vsnprintf(self->why + len, sizeof(self->why) - (size_t)len, what, values);
	va_end(values);
	return -EPROTO;
}

/* ret: a return value of the transform that is an error or not allowed. */
static int failed(struct flow_transforms *self, const struct flow_transform_item *item, int ret)
{
	const char *why = NULL;

	if (ret > 0 || ret < -ERRNO_MAX)
		return nonsense(self, item, "returned %d, which means nothing", ret);
	if (item->ops->why)
		why = item->ops->why(item->state);
	snprintf(self->why, sizeof(self->why), "the transform %s: %.160s", item->name,
		why && *why ? why : strerror(-ret));
	return ret;
}

const char *flow_transforms_why(const struct flow_transforms *self)
{
	flow_transforms_check(self);
	return self->why;
}

/* ---- One call, and the check of its result. ---- */

/* Bytes [start, to) of the run. */
static int change_call(struct flow_transforms *self, const struct flow_transform_item *item,
	struct flow_run *run, size_t start)
{
	size_t before = run->to - start, bytes = before, capacity = run->capacity - start;
	int ret = item->ops->change(item->state, run->data + start, &bytes, capacity);

	if (ret)
		return failed(self, item, ret);
	if (bytes > capacity)
		return nonsense(self, item, "made %zu bytes where %zu have room", bytes, capacity);
	if (item->ops->flags & NEB_TRANSFORM_SAME_LENGTH && bytes != before)
		return nonsense(self, item, "made %zu bytes of %zu, but says that lengths stay",
			bytes, before);
	run->to = start + bytes;
	return 0;
}

static int changes(struct flow_transforms *self, uint32_t first, uint32_t end, struct flow_run *run,
	size_t start)
{
	int ret = 0;

	for (uint32_t i = first; i < end && run->to > start && !ret; i++)
		ret = change_call(self, &self->items[i], run, start);
	return ret;
}

static int gave(struct flow_transforms *self, const struct flow_transform_item *item, int ret,
	const struct neb_transform_out *out)
{
	if (ret && ret != NEB_TRANSFORM_MORE)
		return failed(self, item, ret);
	if (out->bytes > out->capacity)
		return nonsense(self, item, "gave %zu bytes where %zu have room", out->bytes,
			out->capacity);
	return 0;
}

static struct neb_transform_out room_of(const struct flow_run *run)
{
	return (struct neb_transform_out){run->data + run->to, run->capacity - run->to, 0};
}

static int convert_call(
	struct flow_transforms *self, struct flow_segment *segment, struct flow_run *out)
{
	const struct flow_transform_item *item = &self->items[segment->first];
	struct flow_run *input = &segment->input;
	struct neb_transform_in in = {input->data + input->from, input->to - input->from, 0};
	struct neb_transform_out room = room_of(out);
	const size_t start = out->to;
	int result = item->ops->convert(item->state, &in, &room);
	int ret = gave(self, item, result, &room);

	if (ret)
		return ret;
	if (in.taken > in.bytes)
		return nonsense(self, item, "took %zu bytes of %zu", in.taken, in.bytes);
	segment->more = result == NEB_TRANSFORM_MORE;
	if (!in.taken && !room.bytes && (in.bytes || segment->more))
		return nonsense(self, item, "neither takes nor gives anything");
	input->from += in.taken;
	out->to += room.bytes;
	return changes(self, segment->first + 1, segment->end, out, start);
}

/* 1: it has more; 0; -errno. */
static int flush_call(
	struct flow_transforms *self, const struct flow_transform_item *item, struct flow_run *out)
{
	struct neb_transform_out room = room_of(out);
	int result, ret;

	if (!item->ops->flush)
		return 0;
	result = item->ops->flush(item->state, &room);
	ret = gave(self, item, result, &room);
	if (ret)
		return ret;
	if (result == NEB_TRANSFORM_MORE && !room.bytes)
		return nonsense(self, item, "has more to give and gives nothing");
	out->to += room.bytes;
	return result;
}

/* ---- Segments. ---- */

bool flow_transforms_same_length(const struct flow_transforms *self)
{
	bool same = true;

	flow_transforms_check(self);
	for (uint32_t i = 0; i < self->count; i++)
		same &= (self->items[i].ops->flags & NEB_TRANSFORM_SAME_LENGTH) != 0;
	return same;
}

static void segment_begin(struct flow_transforms *self, uint32_t first)
{
	if (self->segment_count)
		self->segments[self->segment_count - 1].end = first;
	self->segments[self->segment_count++] =
		(struct flow_segment){.first = first, .end = self->count, .flushing = first};
}

/* If transforms change pieces in place but to other lengths, a last transform copies the pieces to
 * frames of their own. */
static void segments_make(struct flow_transforms *self)
{
	if (self->segment_count)
		return;
	segment_begin(self, 0);
	if (flow_transforms_of_packets(self))
		return;
	for (uint32_t i = 0; i < self->count; i++) {
		if (self->items[i].ops->convert)
			segment_begin(self, i);
	}
	if (self->segment_count > 1 || flow_transforms_same_length(self))
		return;
	self->items[self->count++] =
		(struct flow_transform_item){.ops = &FLOW_TRANSFORM_GATHER, .name = "gather"};
	segment_begin(self, self->count - 1);
}

static int buffer_make(struct flow_segment *segment)
{
	if (!segment->buffer)
		segment->buffer = malloc(SEGMENT_BYTES);
	if (!segment->buffer)
		return -ENOMEM;
	segment->input = (struct flow_run){.data = segment->buffer, .capacity = SEGMENT_BYTES};
	return 0;
}

int flow_transforms_piece(struct flow_transforms *self, struct flow_run *piece)
{
	int ret;

	flow_transforms_check(self);
	segments_make(self);
	CHECK(!self->input_over && piece->from <= piece->to && piece->to <= piece->capacity);
	ret = changes(self, 0, self->segments[0].end, piece, piece->from);
	if (ret || self->segment_count == 1)
		return ret;
	CHECK(self->segments[1].input.from == self->segments[1].input.to);
	self->segments[1].input = *piece;
	return 0;
}

/* Passes the bytes that the segment's transforms still hold through the transforms after each. enum
 * flow_pull; -errno. */
static int segment_flush(
	struct flow_transforms *self, struct flow_segment *segment, struct flow_run *out)
{
	while (segment->flushing < segment->end) {
		const size_t start = out->to;
		int ret, more;

		if (out->capacity - start < NEB_TRANSFORM_ROOM)
			return FLOW_PULL_FULL;
		more = flush_call(self, &self->items[segment->flushing], out);
		if (more < 0)
			return more;
		ret = changes(self, segment->flushing + 1, segment->end, out, start);
		if (ret)
			return ret;
		segment->flushing += !more;
	}
	return FLOW_PULL_OVER;
}

static int segment_pull(struct flow_transforms *self, uint32_t idx, struct flow_run *out);

/* Fills the input of a segment that has none. Returns the enum flow_pull of the segment before;
 * -errno. */
static int refill(struct flow_transforms *self, uint32_t idx)
{
	struct flow_segment *segment = &self->segments[idx];
	int ret;

	if (idx == 1 && !self->input_over)
		return FLOW_PULL_HUNGRY;
	ret = buffer_make(segment);
	if (ret)
		return ret;
	return idx == 1 ? segment_flush(self, &self->segments[0], &segment->input)
			: segment_pull(self, idx - 1, &segment->input);
}

static int segment_pull(struct flow_transforms *self, uint32_t idx, struct flow_run *out)
{
	struct flow_segment *segment = &self->segments[idx];
	int ret;

	while (out->capacity - out->to >= NEB_TRANSFORM_ROOM) {
		if (segment->input.from == segment->input.to && !segment->more) {
			ret = refill(self, idx);
			if (ret < 0)
				return ret;
			if (segment->input.from == segment->input.to) {
				if (ret == FLOW_PULL_HUNGRY)
					return ret;
				if (ret == FLOW_PULL_OVER)
					return segment_flush(self, segment, out);
				continue;
			}
		}
		ret = convert_call(self, segment, out);
		if (ret)
			return ret;
	}
	return FLOW_PULL_FULL;
}

int flow_transforms_pull(struct flow_transforms *self, struct flow_run *out)
{
	flow_transforms_check(self);
	segments_make(self);
	CHECK(self->segment_count > 1 && out->to <= out->capacity);
	return segment_pull(self, self->segment_count - 1, out);
}

int flow_transforms_over(struct flow_transforms *self)
{
	uint8_t none;
	struct flow_run nothing = {.data = &none};

	flow_transforms_check(self);
	segments_make(self);
	self->input_over = true;
	for (uint32_t i = 0; self->segment_count == 1 && i < self->count; i++) {
		int ret = flush_call(self, &self->items[i], &nothing);

		if (ret)
			return ret;
	}
	return 0;
}

/* ---- Copying. ---- */

static int gather_convert(void *state, struct neb_transform_in *in, struct neb_transform_out *out)
{
	(void)state;
	in->taken = out->bytes = MIN(in->bytes, out->capacity);
	region_copy(out->data, in->data, in->taken, COPY_ALIGN);
	return 0;
}

const struct neb_transform FLOW_TRANSFORM_GATHER = {
	.version = NEB_TRANSFORM_VERSION, .name = "gather", .convert = gather_convert};
