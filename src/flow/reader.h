/* flow/reader.h: the common part of sources that read ahead: a window of pieces in flight, started
 * and delivered in order. The source only supplies the start of one piece's transfer. */
#ifndef FLOW_READER_H
#define FLOW_READER_H

#include "flow/flow.h"

#define FLOW_WINDOW_MAX 8u /* a power of two */

/* A piece in flight. */
struct flow_slot {
	struct flow_piece piece;
	struct flow_io io;
	struct flow_writer *writer; /* of a sink's piece that has not ended; otherwise NULL */
	uint64_t begun_ns;	    /* of a reader: time of the turn */
};

/* Slots in order of offset: begun at the head, ended at the tail. */
struct flow_window {
	struct flow_slot slots[FLOW_WINDOW_MAX];
	uint32_t depth; /* how many may be in flight */
	uint32_t head;	/* number of slots ever begun */
	uint32_t tail;	/* number of slots ever ended */
	uint64_t moved; /* of a sink: bytes of the pieces before the tail, as far as none failed */
};

static inline void flow_window_init(struct flow_window *window, uint32_t depth)
{
	CHECK(depth <= FLOW_WINDOW_MAX);
	window->depth = depth;
	window->head = 0;
	window->tail = 0;
	window->moved = 0;
	for (uint32_t i = 0; i < FLOW_WINDOW_MAX; i++)
		window->slots[i].io.pending = 0;
}

static inline bool flow_window_full(const struct flow_window *window)
{
	return window->head - window->tail == window->depth;
}

static inline bool flow_window_empty(const struct flow_window *window)
{
	return window->head == window->tail;
}

static inline struct flow_slot *flow_window_oldest(struct flow_window *window)
{
	return &window->slots[window->tail % FLOW_WINDOW_MAX];
}

static inline struct flow_slot *flow_window_next(struct flow_window *window)
{
	return &window->slots[window->head % FLOW_WINDOW_MAX];
}

/* Embedded in the source, which fills it. */
struct flow_reader {
	struct flow_source source;
	/* Begins the piece at offset in the slot, whose io then ends by a completion: usually
	 * flow_reader_lease, then the device. 1: begun; 0: not now; -errno. The next one may begin
	 * before this one's offset, when frames were called in. */
	int (*begin)(struct flow_reader *reader, struct flow_slot *slot, uint32_t bytes_max);
	enum region_owner owner;   /* of leased frames during their transfer */
	struct flow_lender lender; /* pieces read ahead and not delivered */
	bool busy;		   /* inside next: nothing is called in */
	bool begun;		   /* a piece was delivered */
	uint64_t offset, end;	   /* of the next piece to begin, and of the last one's end */
	struct flow_window window;
};
/* For the source's open, after the window is set up: from then on, pieces read ahead can be called
 * in, which sets offset back. */
void flow_reader_open(struct flow_reader *reader);
/* Frames of the reader's owner for the piece; waits for them only while the reader holds none. 1;
 * 0: none are free now; -errno. */
int flow_reader_frames(struct flow_reader *reader, uint32_t frame_count, struct flow_piece *piece);
/* The terms of the reader's leases. */
struct flow_want flow_reader_want(const struct flow_reader *reader, uint32_t frame_count);
/* Leases such frames for the piece at offset, and advances offset. */
int flow_reader_lease(struct flow_reader *reader, struct flow_slot *slot, uint32_t bytes_max);
/* A source's next, or the first half of it: delivers the oldest piece. */
int flow_reader_next(struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece);
/* For the source's close: waits for all pieces in flight. */
void flow_reader_close(struct flow_reader *reader);

#endif
