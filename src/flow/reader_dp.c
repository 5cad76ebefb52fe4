/* flow/reader_dp.c: reading ahead, a window of pieces in flight. Data path. */
#include "flow/reader.h"

#include <errno.h>

struct flow_want flow_reader_want(const struct flow_reader *reader, uint32_t frame_count)
{
	return (struct flow_want){
		.frame_count = frame_count,
		.owner = reader->owner,
		.share = reader->source.share,
		.begun = reader->begun,
		.deadline_ns = reader->source.deadline_ns,
	};
}

int flow_reader_frames(struct flow_reader *reader, uint32_t frame_count, struct flow_piece *piece)
{
	const struct flow_want want = flow_reader_want(reader, frame_count);
	struct flow_core *core = reader->source.core;
	int ret;

	if (flow_window_empty(&reader->window))
		ret = flow_lease(core, &want, &piece->span);
	else
		ret = flow_lease_spare(core, &want, &piece->span);
	if (ret)
		return ret == -ENOBUFS && !flow_window_empty(&reader->window) ? 0 : ret;
	piece->share = want.share;
	return 1;
}

int flow_reader_lease(struct flow_reader *reader, struct flow_slot *slot, uint32_t bytes_max)
{
	uint32_t bytes = (uint32_t)MIN(reader->end - reader->offset, (uint64_t)bytes_max);
	int ret;

	slot->io = (struct flow_io){0};
	slot->piece = (struct flow_piece){
		.offset = reader->offset, .bytes = bytes, .hold = FLOW_HOLD_LEASE};
	ret = flow_reader_frames(reader, region_frames_for(bytes), &slot->piece);
	if (ret != 1)
		return ret;
	slot->piece.data = slot->piece.span.data;
	reader->offset += bytes;
	return 1;
}

/* Fills the window. */
static int read_ahead(struct flow_reader *reader, uint32_t bytes_max)
{
	while (reader->offset < reader->end && !flow_window_full(&reader->window)) {
		struct flow_slot *slot = flow_window_next(&reader->window);
		int ret = reader->begin(reader, slot, bytes_max);

		if (ret <= 0)
			return ret;
		slot->begun_ns = reactor_now_ns(reader->source.core->reactor);
		reader->window.head++;
	}
	return 0;
}

int flow_reader_next(struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct flow_reader *reader = CONTAINER_OF(source, struct flow_reader, source);
	struct flow_slot *slot;
	int ret;

	reader->busy = true;
	ret = read_ahead(reader, bytes_max);
	if (ret || flow_window_empty(&reader->window)) {
		reader->busy = false;
		return ret;
	}
	slot = flow_window_oldest(&reader->window);
	ret = flow_io_wait(&slot->io);
	reader->window.tail++;
	reader->busy = false;
	if (ret) {
		flow_piece_end(source->core, &slot->piece, reader->owner);
		return ret;
	}
	if (slot->piece.hold == FLOW_HOLD_LEASE)
		region_switch(source->core->region, slot->piece.span, reader->owner, OWNER_APP);
	reader->begun = true;
	source->arrived_ns = slot->begun_ns;
	*ret_piece = slot->piece;
	return 1;
}

/* Gives up the newest pieces first, so that the others remain in order; they are read again
 * later. */
static void call_in(struct flow_lender *lender)
{
	struct flow_reader *reader = CONTAINER_OF(lender, struct flow_reader, lender);
	struct flow_window *window = &reader->window;

	while (!reader->busy && !flow_window_empty(window)) {
		struct flow_slot *slot = &window->slots[(window->head - 1) % FLOW_WINDOW_MAX];

		if (slot->io.pending)
			return;
		reader->offset = slot->piece.offset;
		flow_piece_end(reader->source.core, &slot->piece, reader->owner);
		window->head--;
	}
}

void flow_reader_open(struct flow_reader *reader)
{
	reader->busy = false;
	reader->begun = false;
	flow_lender_add(reader->source.core, &reader->lender, call_in);
}

void flow_reader_close(struct flow_reader *reader)
{
	flow_lender_remove(&reader->lender);
	while (!flow_window_empty(&reader->window)) {
		struct flow_slot *slot = flow_window_oldest(&reader->window);

		flow_io_wait(&slot->io);
		flow_piece_end(reader->source.core, &slot->piece, reader->owner);
		reader->window.tail++;
	}
}
