/* flow/writer_dp.c: pieces in flight to a device, each ended by its completion. Data path. */
#include "flow/writer.h"

static void slot_done(struct flow_io *io)
{
	struct flow_slot *slot = CONTAINER_OF(io, struct flow_slot, io);
	struct flow_writer *writer = slot->writer;

	if (io->error && !writer->error)
		writer->error = io->error;
	writer->ended(writer, slot);
	slot->writer = NULL;
	/* Pieces end in any order, but free their slots in the order of their offsets. */
	while (!flow_window_empty(&writer->window) &&
		!flow_window_oldest(&writer->window)->writer) {
		if (!writer->error)
			writer->window.moved += flow_window_oldest(&writer->window)->piece.bytes;
		writer->window.tail++;
	}
	if (writer->waiter)
		fiber_wake(writer->waiter);
}

void flow_writer_init(struct flow_writer *writer, struct flow_core *core,
	void (*ended)(struct flow_writer *writer, struct flow_slot *slot))
{
	writer->core = core;
	writer->ended = ended;
	writer->error = 0;
	writer->waiter = NULL;
	flow_window_init(&writer->window, FLOW_WINDOW_DEFAULT);
}

struct flow_slot *flow_writer_begin(struct flow_writer *writer, const struct flow_piece *piece)
{
	struct flow_slot *slot;

	writer->waiter = fiber_self();
	while (flow_window_full(&writer->window))
		fiber_park();
	writer->waiter = NULL;
	slot = flow_window_next(&writer->window);
	slot->piece = *piece;
	slot->io = (struct flow_io){.done = slot_done};
	slot->writer = writer;
	writer->window.head++;
	flow_io_begin(&slot->io);
	return slot;
}

void flow_writer_started(struct flow_slot *slot)
{
	flow_io_end(&slot->io, 0);
}

int flow_writer_finish(struct flow_writer *writer)
{
	writer->waiter = fiber_self();
	while (!flow_window_empty(&writer->window))
		fiber_park();
	writer->waiter = NULL;
	return writer->error;
}
