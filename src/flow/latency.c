/* flow/latency.c: marks in a body, and the time until each was reached. */
#include "flow/latency.h"

void flow_latency_init(struct flow_latency *self, struct counter_hist *counted)
{
	hist_reset(&self->hist);
	self->counted = counted;
}

void flow_marks_init(struct flow_marks *self, struct flow_latency *latency)
{
	self->latency = latency;
	self->head = 0;
	self->tail = 0;
	self->stride = 1;
	self->pieces = 0;
}

static struct flow_mark *mark_at(struct flow_marks *self, uint32_t number)
{
	return &self->marks[number % FLOW_MARKS_MAX];
}

/* Merges each two successive marks: keeps the end of the second and the time of the first. */
static void marks_halve(struct flow_marks *self)
{
	for (uint32_t i = 0; i < FLOW_MARKS_MAX / 2; i++) {
		const struct flow_mark first = *mark_at(self, self->tail + 2 * i),
				       second = *mark_at(self, self->tail + 2 * i + 1);

		*mark_at(self, self->tail + i) =
			(struct flow_mark){second.end, MIN(first.arrived_ns, second.arrived_ns)};
	}
	self->head = self->tail + FLOW_MARKS_MAX / 2;
	self->stride *= 2;
}

void flow_marks_note(struct flow_marks *self, uint64_t end, uint64_t arrived_ns, bool again)
{
	struct flow_mark *newest = mark_at(self, self->head - 1);
	bool first = self->head == self->tail;

	if (!arrived_ns)
		return;
	if (first)
		self->stride = 1;
	if (!first && (again || self->pieces < self->stride)) {
		self->pieces += !again;
		newest->end = end;
		return;
	}
	if (self->head - self->tail == FLOW_MARKS_MAX)
		marks_halve(self);
	*mark_at(self, self->head++) = (struct flow_mark){end, arrived_ns};
	self->pieces = 1;
}

void flow_marks_reached(struct flow_marks *self, uint64_t bytes, uint64_t now_ns)
{
	for (; self->head != self->tail && mark_at(self, self->tail)->end <= bytes; self->tail++) {
		uint64_t arrived_ns = mark_at(self, self->tail)->arrived_ns;
		uint64_t took_ns = now_ns > arrived_ns ? now_ns - arrived_ns : 0;

		hist_add(&self->latency->hist, took_ns);
		if (self->latency->counted)
			counter_hist_add(self->latency->counted, took_ns);
	}
}

static int marker_piece(struct flow_stage *stage, const struct flow_piece *piece)
{
	struct flow_marker *self = CONTAINER_OF(stage, struct flow_marker, stage);
	uint64_t end = piece->offset + piece->bytes;
	bool again = piece->span.data && piece->span.data == self->frames;

	/* The stage sees a piece in parts; two successive pieces are in different frames.
	 */
	self->frames = piece->span.data;
	flow_marks_note(&self->durable, end, self->source->arrived_ns, again);
	flow_marks_note(&self->delivered, end, self->source->arrived_ns, again);
	return 0;
}

static const struct flow_stage_ops MARKER_OPS = {.name = "marker", .piece = marker_piece};

void flow_marker_init(struct flow_marker *self, const struct flow_source *source,
	struct flow_latency *durable, struct flow_latency *delivered)
{
	self->stage.ops = &MARKER_OPS;
	self->source = source;
	self->frames = NULL;
	self->arrived_ns = 0;
	flow_marks_init(&self->durable, durable);
	flow_marks_init(&self->delivered, delivered);
}
