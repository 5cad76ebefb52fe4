/* flow/flow.h: MOVES. source → stages → sink over frames, a window in flight, no copies. It knows
 * devices (disk, rdma, xdp) and nothing of S3. One transfer runs on one fiber.
 *
 * A piece is a run of bytes inside a span. Sources produce pieces in order; a sink takes each over,
 * and may hold up to its window of them while a device works. The holder of a piece ends it by
 * flow_piece_end(), which gives the frames back or drops the cache's reference. Stages look at a
 * piece in between (checksums); transforms (transform.h) change it. */
#ifndef FLOW_FLOW_H
#define FLOW_FLOW_H

#include "base/base.h"
#include "codec/codec.h"
#include "rdma/rdma.h"
#include "reactor/reactor.h"
#include "region/region.h"

#define FLOW_PIECE_BYTES_MAX (1024u * 1024u)
#define FLOW_WINDOW_DEFAULT  4u /* pieces of that length in flight per side */

/* ---- Shares of the frames (docs/design/flow.md). A region has one budget for all cores: it counts
 * and limits the frames that the transfers of each principal hold. ---- */
#define FLOW_SHARES	   1024u
#define FLOW_SHARE_OWN	   0u  /* the server's own work: not bounded */
#define FLOW_FRAMES_SMALL  16u /* a lease of at most this many frames may use the reserve */
#define FLOW_RESERVE_PARTS 8u  /* one part in this many is the reserve for small leases */
#define FLOW_SHARE_FACTOR  2u  /* a share may hold this many times the free frames */
#define FLOW_SHARE_ASIDES  32u /* transfers of a share with memory outside the region, per core */
#define FLOW_SHARE_WALKS   64u /* the most walks over the index that a share may have at a time */
struct flow_budget;
/* -ENOMEM. The budget must live longer than the cores that use it. */
int flow_budget_open(struct region *region, struct flow_budget **ret_budget);
void flow_budget_close(struct flow_budget *budget); /* takes NULL; CHECKs that no frames are held */
/* The share of a principal: 1 to FLOW_SHARES - 1, by a hash with a new key at each start. Two
 * principals with the same share divide it. FLOW_SHARE_OWN without a budget. Any thread. */
uint16_t flow_share_of(const struct flow_budget *budget, struct slice principal);
/* The peer of an address such as "192.0.2.1:40001": the address without its port, or of an IPv6
 * address the network of 64 bits, in `room`: a host may have all addresses of it. Lives as long as
 * both. */
#define FLOW_PEER_BYTES 8u
struct slice flow_peer_name(struct slice peer, char room[FLOW_PEER_BYTES]);
/* The share of all clients at the peer of that address. */
uint16_t flow_share_of_peer(const struct flow_budget *budget, struct slice peer);
/* The frames that the transfers of a share hold now; with FLOW_SHARE_OWN: those of all shares. Any
 * thread. */
uint32_t flow_share_held(const struct flow_budget *budget, uint16_t share);
/* Call them before and after a walk over the index, which keeps one of the shared helper threads
 * busy. False: the share is at its limit, and this walk is not counted. Any thread; without a
 * budget, or for FLOW_SHARE_OWN, always true. */
bool flow_walk_begin(struct flow_budget *budget, uint16_t share);
void flow_walk_end(struct flow_budget *budget, uint16_t share);

/* A holder of frames that others may take back while they are idle: frames of read-ahead, or of a
 * staging. */
struct flow_lender {
	struct list link;
	/* Gives frames back without waiting. On the core's thread, never inside the lender's own
	 * calls. */
	void (*call_in)(struct flow_lender *lender);
};

/* The flow core of one reactor: created once, at start. Zero it; open fills it in. */
struct flow_core {
	struct region *region;
	struct region_ring *ring;
	struct reactor *reactor;
	/* Gives back cached frames: at least this many, if there are enough; lasting: of the
	 * region's base. Any thread; NULL: no cache. The wiring sets it. */
	void (*reclaim)(void *arg, uint32_t frame_count, bool lasting);
	void *reclaim_arg;
	struct flow_budget *budget;   /* NULL: no shares. The wiring sets it */
	struct reactor_poller poller; /* polls the unified rings once per turn */
	uint32_t in_flight;	      /* ring entries in flight */
	uint32_t waiters;	      /* fibers that wait for frames */
	bool frames_came;	      /* while some wait */
	struct flow_waiting *waiting; /* of lease.c: fibers waiting for frames */
	struct flow_places *places;   /* of places.c: fibers waiting for places in the rings */
	uint32_t lines;		      /* targets that these fibers wait for */
	struct list lenders;
	struct list runs;      /* transfers between their first piece and their end */
	struct list idle_ends; /* sources and sinks between transfers, for reuse */
};
int flow_core_open(struct reactor *reactor, struct region *region, struct flow_core *core);
void flow_core_close(struct flow_core *core);
/* The calling thread's core, set by open's first turn; NULL elsewhere. */
struct flow_core *flow_core_self(void);

/* Ring operations that a fiber waits for: one flow_io counts any number of entries. Zero it first.
 * start parks while the ring is full, or while the target holds its part of it (region_ring_parts);
 * meanwhile the entry is not pending, because no device has it. wait parks until all have completed
 * and returns 0 or the first -errno. In place of a fiber, the callback done runs when all have
 * completed. */
struct flow_io {
	struct fiber *fiber;
	void (*done)(struct flow_io *io);
	uint64_t *posted; /* counts the entries as they get their places; or NULL */
	uint32_t pending;
	int32_t error;
	int32_t result; /* of the last entry: bytes, or -errno */
	uint32_t imm;
};
void flow_io_start(struct flow_core *core, struct flow_io *io, struct region_sqe *sqe);
void flow_io_start_wr(struct flow_core *core, struct flow_io *io, struct region_wr *wr);
int flow_io_wait(struct flow_io *io);
/* Outside fibers: -EAGAIN while start would park, and nothing was started. */
int flow_io_try_wr(struct flow_core *core, struct flow_io *io, struct region_wr *wr);
/* For an operation outside the rings: begin counts it, and the code that sees its completion ends
 * it, on the core's thread. */
void flow_io_begin(struct flow_io *io);
void flow_io_end(struct flow_io *io, int32_t result);
/* A request for frames: the share they count for, and the terms. */
struct flow_want {
	uint32_t frame_count;
	enum region_owner owner;
	uint16_t share; /* counted in it until flow_share_give or, in a piece, flow_piece_end */
	bool begun; /* the transfer has begun: it waits longer than one that can still be refused */
	bool lasting;	 /* not of an extension, which could then not go */
	bool count_only; /* no frames are leased: so many frames of others are kept from being given
			    back */
	uint64_t deadline_ns;
};
/* Leases with back-pressure: reclaims frames and calls loans in, then waits in a queue. -ENOBUFS:
 * the server, or the share, is overloaded; -ETIMEDOUT at the deadline.
 *
 * The calling fiber must hold no frames that only it can give back. That is CHECKed for the piece
 * of a running transfer; otherwise the caller must ensure it. A fiber that already holds frames
 * calls flow_lease_now instead. */
int flow_lease(struct flow_core *core, const struct flow_want *want, struct region_span *ret_span);
/* region_lease_lasting, which reclaims frames once. Outside of transfers, not only in fibers. */
int flow_lease_lasting(struct flow_core *core, uint32_t frame_count, enum region_owner owner,
	struct region_span *ret_span);
/* Asks all that hold idle frames to give them back. On the core. */
void flow_loans_call_in(struct flow_core *core);
/* Like flow_lease, without waiting: -ENOBUFS. Outside fibers, too. */
int flow_lease_now(
	struct flow_core *core, const struct flow_want *want, struct region_span *ret_span);
/* Room for the changed bytes of a piece whose own frames must not change: frames, or, if none are
 * free, memory outside the region, for one piece at a time. Zero it, except core. */
struct flow_elsewhere {
	struct flow_core *core;
	uint16_t share;
	uint16_t aside_share; /* that counts the memory */
	uint8_t *aside;	      /* NULL until needed */
};
struct flow_piece;
/* Finds room and describes it; at most FLOW_PIECE_BYTES_MAX. Never waits. -ENOMEM; -ENOBUFS: the
 * share has no frames, and too many transfers on this core with memory outside the region. */
int flow_elsewhere(struct flow_elsewhere *elsewhere, uint32_t bytes, struct flow_piece *ret_piece);
void flow_elsewhere_close(struct flow_elsewhere *elsewhere);
/* Releases leased frames, or passes them to a holder outside the share. */
void flow_share_give(struct flow_core *core, uint16_t share, uint32_t frame_count);
/* For optional frames: takes only free ones, and none while others wait. -ENOBUFS. */
int flow_lease_spare(
	struct flow_core *core, const struct flow_want *want, struct region_span *ret_span);
void flow_lender_add(struct flow_core *core, struct flow_lender *lender,
	void (*call_in)(struct flow_lender *lender));
void flow_lender_remove(struct flow_lender *lender);

enum flow_hold {
	FLOW_HOLD_LEASE,   /* leased frames, ended by a give */
	FLOW_HOLD_CACHE,   /* a reference to the cache's frames, read-only */
	FLOW_HOLD_BORROWED /* bytes of another owner, outside the region; not for devices */
};
struct flow_piece {
	struct region_span span; /* data NULL for borrowed bytes outside the region */
	uint8_t *data;
	uint32_t bytes;
	uint64_t offset; /* in the body */
	enum flow_hold hold;
	uint16_t share; /* the share that counts the span; FLOW_SHARE_OWN: not counted */
};
/* Leases the piece's frames: sets data to their start and leaves the other fields. Like flow_lease.
 */
int flow_piece_lease(
	struct flow_core *core, const struct flow_want *want, struct flow_piece *piece);
int flow_piece_lease_now(
	struct flow_core *core, const struct flow_want *want, struct flow_piece *piece);
/* The transfer gives up the frames: the store has them. */
void flow_piece_pass(struct flow_core *core, struct flow_piece *piece);
/* owner: the piece's last owner (leases). */
void flow_piece_end(struct flow_core *core, struct flow_piece *piece, enum region_owner owner);

/* Copies bytes of `from`, from `at` on, behind those that `to` has, whose frames it fills up to
 * `full` bytes at most. Returns how many. */
uint32_t flow_piece_append(
	struct flow_piece *to, uint32_t full, const struct flow_piece *from, uint32_t at);

/* A piece whose bytes are changed on their way, as by ends that encrypt: in its own frames if only
 * this piece uses them, otherwise elsewhere, because others read the cache's frames. */
struct flow_change {
	struct flow_piece piece; /* the resulting piece; data: the place of the changed bytes */
	uint8_t *room;		 /* place of the bytes that are changed together with the piece's */
	bool in_place;
};
/* Finds room for the bytes, at most FLOW_PIECE_BYTES_MAX. Like flow_elsewhere; on an error the
 * piece has ended. */
int flow_change_begin(struct flow_elsewhere *elsewhere, struct flow_piece *piece, uint32_t bytes,
	struct flow_change *ret_change);
/* The piece becomes the changed one; with an error it is ended. Returns ret. */
int flow_change_end(struct flow_core *core, struct flow_piece *piece,
	const struct flow_change *change, int ret);

/* Checks the invariant of a piece: its bytes are inside its frames. */
static inline void flow_piece_check(const struct flow_piece *piece)
{
	CHECK(piece->data || !piece->bytes);
	CHECK(piece->hold <= FLOW_HOLD_BORROWED);
	CHECK(piece->share < FLOW_SHARES);
	CHECK(piece->hold == FLOW_HOLD_BORROWED ||
		(piece->data >= piece->span.data &&
			piece->bytes <= region_span_bytes(piece->span) &&
			(size_t)(piece->data - piece->span.data) <=
				region_span_bytes(piece->span) - piece->bytes));
}

/* ---- Sources. ---- */
struct flow_source;
struct flow_source_ops {
	const char *name;
	/* The next piece in order, at most bytes_max (of FLOW_PIECE_BYTES_MAX or less); owner is
	 * OWNER_APP (or OWNER_CACHE). 1: a piece; 0: the end; -errno. -EPIPE: the body was cut off;
	 * -EBADMSG: its verification failed. */
	int (*next)(struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece);
	/* After the end or an error; releases what was read ahead. */
	void (*close)(struct flow_source *source);
};
#define FLOW_SOURCE_MAGIC 0xf1050ce1u
struct flow_source {
	uint32_t magic; /* until it is closed */
	const struct flow_source_ops *ops;
	struct flow_core *core;
	uint64_t bytes_total; /* UINT64_MAX: not known */
	uint64_t deadline_ns;
	uint16_t share; /* the share of its frames; the caller sets it after open, before next */
	/* Of the piece that next returned last: when its oldest packet or record arrived, or its
	 * read began; monotonic. 0: not known. */
	uint64_t arrived_ns;
};

/* A source is used through these calls, never through its ops. */
static inline void flow_source_check(const struct flow_source *source)
{
	CHECK(source->magic == FLOW_SOURCE_MAGIC);
	CHECK(source->share < FLOW_SHARES);
}

static inline int flow_source_next(
	struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	int ret;

	flow_source_check(source);
	CHECK(bytes_max && bytes_max <= FLOW_PIECE_BYTES_MAX);
	ret = source->ops->next(source, bytes_max, ret_piece);
	CHECK(ret <= 1);
	if (ret == 1) {
		flow_piece_check(ret_piece);
		CHECK(ret_piece->bytes <= bytes_max);
	}
	return ret;
}

static inline void flow_source_close(struct flow_source *source)
{
	flow_source_check(source);
	magic_clear(&source->magic);
	source->ops->close(source);
}

/* ---- Sinks. ---- */
struct flow_sink;
struct flow_sink_ops {
	const char *name;
	/* Takes the piece over, also on error. Parks while the window is full, but must not wait
	 * for frames while the piece holds some. */
	int (*push)(struct flow_sink *sink, struct flow_piece *piece);
	/* Waits for everything in flight; returns the first error. Called exactly once, after the
	 * last push or after an error (then with failed true: nothing more is started). */
	int (*finish)(struct flow_sink *sink, bool failed);
};
#define FLOW_SINK_MAGIC 0xf105119cu
struct flow_sink {
	uint32_t magic; /* until it is finished */
	const struct flow_sink_ops *ops;
	struct flow_core *core;
	uint64_t deadline_ns;
	uint16_t share; /* flow_run sets it to the source's share */
};

/* A sink is used through these calls, never through its ops. */
static inline void flow_sink_check(const struct flow_sink *sink)
{
	CHECK(sink->magic == FLOW_SINK_MAGIC);
	CHECK(sink->share < FLOW_SHARES);
}

static inline int flow_sink_push(struct flow_sink *sink, struct flow_piece *piece)
{
	flow_sink_check(sink);
	flow_piece_check(piece);
	return sink->ops->push(sink, piece);
}

static inline int flow_sink_finish(struct flow_sink *sink, bool failed)
{
	flow_sink_check(sink);
	magic_clear(&sink->magic);
	return sink->ops->finish(sink, failed);
}

/* ---- Stages: read a piece on its way. ---- */
struct flow_stage;
struct flow_stage_ops {
	const char *name;
	/* A part of a piece of the source: all of its bytes come, in order. */
	int (*piece)(struct flow_stage *stage, const struct flow_piece *piece);
};
struct flow_stage {
	const struct flow_stage_ops *ops;
};
struct flow_checksum {
	struct flow_stage stage;
	struct checksum checksum; /* codec; read it after the run */
};
int flow_checksum_init(struct flow_checksum *stage, enum checksum_kind kind);
/* Calls all stages for the whole piece, in parts; other fibers run in between. Returns the first
 * -errno of a stage. */
int flow_stages_run(
	struct flow_stage *const *stages, uint32_t stage_count, const struct flow_piece *piece);

/* Moves everything. Closes the source and finishes the sink in any case. *ret_bytes: the bytes
 * moved, also on error. */
int flow_run(struct flow_source *source, struct flow_stage *const *stages, uint32_t stage_count,
	struct flow_sink *sink, uint64_t *ret_bytes);

/* ---- Ends for devices. Each is opened for one run, which ends it; it comes from the core's pool.
 * ---- */

/* A peer's memory, by RDMA READ (source) or RDMA WRITE (sink), over a scatter list of remote runs,
 * in order. */
struct flow_remote {
	uint64_t addr;
	uint64_t bytes;
	uint32_t rkey;
};
/* The progress of the transfers with a peer, for code that detects a stall. Zero it first; read it
 * on the core's own thread. */
struct flow_progress {
	const struct flow_window *window; /* set by flow; NULL: no transfer runs */
	uint64_t posted;		  /* work requests in total */
	bool starting; /* a slot's io counts the start of its piece, which is no work request */
};
/* The outstanding work requests, without one that waits for its place in the ring: the device does
 * not have it. *ret_done: the number of completed ones. */
uint32_t flow_progress_pending(const struct flow_progress *progress, uint64_t *ret_done);
/* How many bytes a running transfer has written to the peer: all before this offset are there. */
uint64_t flow_progress_moved(const struct flow_progress *progress);
struct flow_peer {
	uint16_t target;		/* rp_qp_target() */
	const uint32_t *lkeys;		/* of the region's arenas, by arena index */
	const struct flow_remote *runs; /* borrowed for the run; at most LIMIT_SGE_MAX */
	uint32_t run_count;
	struct flow_progress *progress; /* or NULL */
};
/* -EMSGSIZE: the runs hold fewer than bytes. */
int flow_rdma_source_open(struct flow_core *core, const struct flow_peer *peer, uint64_t bytes,
	struct flow_source **ret_source);
int flow_rdma_sink_open(struct flow_core *core, const struct flow_peer *peer, uint64_t bytes,
	struct flow_sink **ret_sink);

/* Bytes that are in memory already (an inline capsule body, a built document): borrowed; a sink
 * that needs frames copies them. */
int flow_memory_source_open(
	struct flow_core *core, struct slice bytes, struct flow_source **ret_source);

/* Takes everything and drops it: for measuring sources. */
int flow_null_sink_open(struct flow_core *core, struct flow_sink **ret_sink);

#endif
