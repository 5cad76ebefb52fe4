/* flow/reader_dp.c: reading ahead, a window of pieces in flight. Data path. */
#include "flow/reader.h"

#include <errno.h>

int flow_reader_frames(
	struct flow_reader *reader, uint32_t frame_count, struct region_span *ret_span)
{
	struct flow_core *core = reader->source.core;
	int ret;

	if (flow_window_empty(&reader->window))
		ret = flow_lease(
			core, frame_count, reader->owner, reader->source.deadline_ns, ret_span);
	else
		ret = region_lease(core->region, frame_count, reader->owner, ret_span);
	if (ret)
		return ret == -ENOBUFS ? 0 : ret;
	return 1;
}

int flow_reader_lease(struct flow_reader *reader, struct flow_slot *slot, uint32_t bytes_max)
{
	uint32_t bytes = (uint32_t)MIN(reader->end - reader->offset, (uint64_t)bytes_max);
	int ret;

	slot->io = (struct flow_io){0};
	slot->piece = (struct flow_piece){
		.offset = reader->offset, .bytes = bytes, .hold = FLOW_HOLD_LEASE};
	ret = flow_reader_frames(reader, region_frames_for(bytes), &slot->piece.span);
	if (ret != 1)
		return ret;
	slot->piece.data = slot->piece.span.data;
	reader->offset += bytes;
	return 1;
}

int flow_reader_next(struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct flow_reader *reader = CONTAINER_OF(source, struct flow_reader, source);
	struct flow_core *core = source->core;
	struct flow_slot *slot;
	int ret;

	while (reader->offset < reader->end && !flow_window_full(&reader->window)) {
		ret = reader->begin(reader, flow_window_next(&reader->window), bytes_max);
		if (ret < 0)
			return ret;
		if (ret == 0)
			break;
		reader->window.head++;
	}
	if (flow_window_empty(&reader->window))
		return 0;
	slot = flow_window_oldest(&reader->window);
	ret = flow_io_wait(&slot->io);
	reader->window.tail++;
	if (ret) {
		flow_piece_end(core, &slot->piece, reader->owner);
		return ret;
	}
	if (slot->piece.hold == FLOW_HOLD_LEASE)
		region_switch(core->region, slot->piece.span, reader->owner, OWNER_APP);
	*ret_piece = slot->piece;
	return 1;
}

void flow_reader_drain(struct flow_reader *reader)
{
	while (!flow_window_empty(&reader->window)) {
		struct flow_slot *slot = flow_window_oldest(&reader->window);

		flow_io_wait(&slot->io);
		flow_piece_end(reader->source.core, &slot->piece, reader->owner);
		reader->window.tail++;
	}
}
