/* region/region.h: THE unified memory region: one mapping in arenas that the RDMA NIC, AF_XDP and
 * NVMe/io_uring all know, with the rings to submit work, the memory-region table and the data
 * frames.
 *
 *   arena 0:  header page | layout table | per-core rings: base SQ, base CQ, RDMA SQ, RDMA CQ |
 *             memory-region table | target table | frame table | data frames …
 *   arena 1…: data frames
 *
 * A region may have extensions: arenas behind the base, of which each is there or not. They come
 * and go while the region is in use (region_extension_commit and what follows it).
 *
 * Arenas are memfds (2 MiB huge pages where there are some), sealed against shrinking, so that a
 * second process on the host can map them read-only and look (`nebulaio region dump`). Every offset
 * in the header is relative to an arena's start: nothing in the shared part is a pointer.
 *
 * Source: the layout is docs/design/region.md; io_uring_register(2), ibv_reg_mr(3) and xsk UMEM
 * need page-aligned, unmoving memory, which an arena is. */
#ifndef REGION_REGION_H
#define REGION_REGION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

/* The holder of a frame. A hand-over is an explicit, checked switch from one owner to the next. */
enum region_owner {
	OWNER_FREE,
	OWNER_APP,   /* the server's own code, between devices */
	OWNER_RDMA,  /* posted to a queue pair */
	OWNER_XDP,   /* in a fill, rx or tx ring of an AF_XDP socket */
	OWNER_DISK,  /* in an I/O on a volume */
	OWNER_NET,   /* being received into or sent from by a byte stream */
	OWNER_CACHE, /* read-only, shared, counted */
	OWNER_COUNT
};

struct region; /* process-private handle */

struct region_opts {
	const char *name;   /* for /proc/PID/maps and dump; "nebulaio" when NULL */
	uint64_t bytes;	    /* data frames in all; rounded up to whole huge pages */
	uint64_t bytes_max; /* with extensions; those that fit in whole. 0: it keeps its size */
	uint64_t extension_bytes; /* a power of two from 4 MiB to 1 GiB; 0: the least from 64 MiB
				     on of which few enough suffice */
	uint32_t core_count;	  /* ring sets; 1 to LIMIT_CORES_MAX */
	uint32_t ring_entries; /* per ring, a power of two up to LIMIT_RING_ENTRIES_MAX; 0: 1024 */
	bool huge_pages;       /* try; without them, plain pages and one log line with the fix */
	bool numa_bind;	       /* prefer the memory of numa_node; best effort */
	uint32_t numa_node;
	bool numa_only; /* with numa_bind: nowhere else */
};

#define REGION_EXTENSION_BYTES (64 * MIB)

/* Creates the region, its memory faulted in. The caller owns it. -ENOMEM: the host, or with
 * numa_only the node, has too little memory. -EINVAL: an option is out of its bounds. -EMFILE: too
 * many files, or REGIONS_MAX regions are open. Missing huge pages, a locked-memory limit and a NUMA
 * node that the kernel refuses are no errors: the region logs one line with the fix and goes on
 * without them. */
int region_open(const struct region_opts *opts, struct region **ret_region);
#define REGIONS_MAX 64u /* open at a time in one process */
/* Takes NULL. Logs every span that is still leased (a leak) with its owner, and frees its memory
 * too. No other thread may be using the region. */
void region_close(struct region *region);

/* ---- Arenas: what devices register. ---- */
struct region_arena {
	uint8_t *base;
	uint64_t bytes; /* also of an extension that is not there */
	int fd;		/* the memfd; borrowed */
	bool huge;
};
/* Extensions that are not there included: they have the last numbers. */
uint32_t region_arena_count(const struct region *region);
struct region_arena region_arena(const struct region *region, uint32_t arena_idx);
/* Returns the arena that holds all of [data, data + len), or -1 when it is not the region's memory.
 * Takes a few ns. */
int region_arena_of(const struct region *region, const void *data, size_t len);
/* Whether a device that is opened now registers the arena: not an extension that is not there, or
 * is about to go. */
bool region_arena_registers(const struct region *region, uint32_t arena_idx);

/* ---- Extensions. One thread at a time changes them; the caller sees to that.
 *
 *   parked → attaching (memory there; devices register it) → open ⇄ retired (no frame of it is
 *   leased any more; leases end) → detaching (no lease is left; devices forget it) → parked
 *
 * ---- */
enum region_arena_state {
	ARENA_PARKED,
	ARENA_ATTACHING,
	ARENA_OPEN, /* always that of the base */
	ARENA_RETIRED,
	ARENA_DETACHING,
	ARENA_STATE_COUNT
};
const char *region_arena_state_name(enum region_arena_state state);
uint32_t region_extension_count(const struct region *region);
uint64_t region_extension_bytes(const struct region *region); /* of each; 0: there are none */
/* The first extension's arena. */
uint32_t region_extension_first(const struct region *region);
enum region_arena_state region_extension_state(const struct region *region, uint32_t arena_idx);
/* Gives a parked extension its memory, as region_open does: faulted in and locked. Takes tens of
 * milliseconds, on any thread. -ENOMEM and -EMFILE as region_open; why then says it for people. */
int region_extension_commit(
	struct region *region, uint32_t arena_idx, char *ret_why, size_t why_bytes);
/* Its frames are leased from now on: after commit and the devices' attach, or again after retire.
 */
void region_extension_open(struct region *region, uint32_t arena_idx);
/* No frame of it is leased any more. Leases that exist go on. */
void region_extension_retire(struct region *region, uint32_t arena_idx);
/* How many frames of it are leased; of a retired one, this only falls. */
uint32_t region_extension_leased(struct region *region, uint32_t arena_idx);
/* Of a retired one without leases (CHECKed), or of an attaching one: devices forget it next. */
void region_extension_detach(struct region *region, uint32_t arena_idx);
/* Returns the memory to the kernel, after detach and the devices' detach. */
void region_extension_park(struct region *region, uint32_t arena_idx);

/* A user that registers arenas on a core, and must know of extensions that come and go. Both
 * functions are called on the core's thread, and accept an arena that they attached or detached
 * already. */
struct region_ring;
struct region_watch {
	/* 0, or why the arena cannot be registered: then the extension does not open. */
	int (*attach)(struct region_watch *watch, uint32_t arena_idx);
	void (*detach)(struct region_watch *watch, uint32_t arena_idx);
	/* The region closes, and the watch was not removed. Any thread. */
	void (*ended)(struct region_watch *watch);
	struct list link;
};
/* The core's thread, or any before the core runs or after. add: before the arenas that
 * region_arena_registers() names are registered. remove: takes one that was never added. */
void region_watch_add(struct region_ring *ring, struct region_watch *watch);
void region_watch_remove(struct region_watch *watch);
/* The core's thread. After an error of attach, detach undoes what was done. */
int region_watches_attach(struct region_ring *ring, uint32_t arena_idx);
void region_watches_detach(struct region_ring *ring, uint32_t arena_idx);

/* ---- Frames. Any thread; a per-thread cache keeps the common case free of locks. ---- */

/* A lease of 1 to LIMIT_SPAN_FRAMES_MAX contiguous frames. A plain value that may be copied, but
 * the lease has one holder. The generation of its first frame makes a stale copy detectable. */
struct region_span {
	uint8_t *data;	    /* NULL: no span */
	uint32_t frame_idx; /* global, over all arenas */
	uint32_t frame_count;
	uint32_t generation;
};

static inline uint32_t region_span_bytes(struct region_span span)
{
	return span.frame_count * FRAME_BYTES;
}

/* The number of frames that hold this many bytes. */
static inline uint32_t region_frames_for(uint64_t bytes)
{
	return (uint32_t)((bytes + FRAME_BYTES - 1) >> FRAME_SHIFT);
}

/* Leases exactly frame_count contiguous frames with one reference, aligned in the address space to
 * frame_count rounded up to a power of two. -ENOBUFS: no such run now, give some back and retry.
 * -EINVAL: 0 or beyond LIMIT_SPAN_FRAMES_MAX. */
int region_lease(struct region *region, uint32_t frame_count, enum region_owner owner,
	struct region_span *ret_span);
/* The same for what lasts as long as a connection or a volume: never from an extension, which could
 * not go before such a lease ends. Slower. */
int region_lease_lasting(struct region *region, uint32_t frame_count, enum region_owner owner,
	struct region_span *ret_span);
/* False for a span of an extension. */
bool region_span_lasts(const struct region *region, struct region_span span);
/* Ends a lease; the owner must be the one that holds it and the references must be 1 (CHECKed). The
 * frames are poisoned under AddressSanitizer. */
void region_give(struct region *region, struct region_span span, enum region_owner owner);
/* The checked hand-over: CHECKs that from holds the span and its generation is current. */
void region_switch(struct region *region, struct region_span span, enum region_owner from,
	enum region_owner to);
/* For spans that come from outside our own code: 0 and the owner, or -ESTALE when the span is not,
 * or no longer, a lease of this region. */
int region_span_check(
	const struct region *region, struct region_span span, enum region_owner *ret_owner);
/* Shared use (the cache): get adds a reference (at most REGION_REFS_MAX); put drops one, and frees
 * the span and returns true when it was the last. */
#define REGION_REFS_MAX 0xffffffu
void region_get(struct region *region, struct region_span span);
bool region_put(struct region *region, struct region_span span, enum region_owner owner);

/* "free", "app", "rdma", …; "unknown" for a number that is no owner. Static. */
const char *region_owner_name(enum region_owner owner);

/* Exact while no lease, give or switch is in progress. Frames in the threads' caches count as
 * free. Those of an extension count while it is open; of a retired one, those that are leased. */
struct region_usage {
	uint64_t frames_total; /* the sum over all owners */
	uint64_t frames_by_owner[OWNER_COUNT];
	uint64_t lease_failures;
};
void region_usage(const struct region *region, struct region_usage *ret_usage);

/* ---- Copies are counted. The processor copies payload only through this call. ---- */
enum region_copy_why {
	COPY_INLINE_IN,	 /* a small body out of a capsule or HTTP head buffer */
	COPY_INLINE_OUT, /* a small body into a capsule or HTTP buffer */
	COPY_INDEX,	 /* an object kept in its index record */
	COPY_ALIGN,	 /* bytes moved to reach the disk's alignment */
	COPY_DECODE,	 /* a transfer decoding that cannot be done in place */
	COPY_CLIENT,	 /* between a caller's unregistered buffer and the pool */
	COPY_GATHER,	 /* packets put together into the body of a capture */
	COPY_LEASE,	 /* an object's body into memory that a client may read by itself */
	COPY_DAX,	 /* to and from a volume in persistent memory, the log included */
	COPY_REPLICATE,	 /* a version's bytes on their way to a replication target */
	COPY_CAST,	 /* a multicast datagram that begins in one piece and ends in the next */
	COPY_WHY_COUNT
};
void region_copy(void *dst, const void *src, size_t bytes, enum region_copy_why why);
/* Counts a copy that the caller makes by special instructions. */
void region_copy_count(size_t bytes, enum region_copy_why why);
/* Sum over all threads, those that ended included. */
uint64_t region_copy_bytes(enum region_copy_why why);
uint64_t region_copy_bytes_all(void);
const char *region_copy_why_name(enum region_copy_why why);

/* ---- The unified rings: the one way to submit. One set per core; a set is used by one thread.
 * ---- An entry names an opcode, a run of the region's memory and a target; completions come back
 * with the same user data. Targets are registered devices (a volume, a queue pair, a socket).
 * region_ring_turn() hands the entries submitted in one turn to each device as one batch, then the
 * device rings its doorbell once. */
enum region_op {
	REGION_OP_NOP,
	REGION_OP_READ, /* base ring: a volume */
	REGION_OP_WRITE,
	REGION_OP_FLUSH,
	REGION_OP_DISCARD,
	REGION_OP_PACKET_TX, /* base ring: an AF_XDP socket */
	REGION_OP_SEND,	     /* RDMA ring: a queue pair */
	REGION_OP_RECV,
	REGION_OP_RDMA_READ,
	REGION_OP_RDMA_WRITE,
	REGION_OP_RDMA_WRITE_IMM,
	REGION_OP_CMP_SWAP,
	REGION_OP_FETCH_ADD,
	REGION_OP_SEND_IMM,
	REGION_OP_COUNT
};

enum region_sqe_flags {
	REGION_F_INLINE = 1u << 0, /* RDMA: copy the payload into the work request (small only) */
	REGION_F_UNSIGNALED = 1u << 1, /* no completion on success */
	REGION_F_FENCE = 1u << 2,      /* after all earlier reads of this queue pair */
	REGION_F_SOLICITED = 1u << 3,
};

/* A base submission entry: storage and network. 64 bytes, fixed layout (seen by dump). */
struct region_sqe {
	uint8_t opcode; /* enum region_op */
	uint8_t flags;
	uint16_t target; /* region_target_add() */
	uint32_t len;	 /* bytes */
	uint64_t addr;	 /* address of the first byte in this process; inside the region */
	uint64_t offset; /* of the volume, bytes */
	uint64_t user_data;
	uint64_t submitted_ns; /* filled by the ring, for latency counters */
	uint64_t reserved[3];
};
_Static_assert(sizeof(struct region_sqe) == 64, "one cache line");

/* An RDMA work request. 128 bytes: up to four scatter entries. */
struct region_sge {
	uint64_t addr;
	uint32_t len;
	uint32_t lkey;
};
struct region_wr {
	uint8_t opcode;
	uint8_t flags;
	uint16_t target;
	uint8_t sge_count; /* 0 to 4 */
	uint8_t reserved0[3];
	uint64_t user_data;
	uint64_t remote_addr;
	uint32_t rkey;
	uint32_t imm;
	uint64_t compare_add;
	uint64_t swap;
	uint64_t submitted_ns;
	struct region_sge sge[4];
	uint64_t reserved1;
};
_Static_assert(sizeof(struct region_wr) == 128, "two cache lines");

/* A completion, the same for both pairs of rings. */
struct region_cqe {
	uint64_t user_data;
	int32_t result; /* bytes moved, or -errno */
	uint8_t opcode;
	uint8_t flags;
	uint16_t target;
	uint32_t imm;
	uint32_t reserved0;
	uint64_t latency_ns;
};
_Static_assert(sizeof(struct region_cqe) == 32, "two a cache line");

/* One core's set. */
struct region_ring *region_ring(struct region *region, uint32_t core_idx);
struct region *region_of_ring(const struct region_ring *ring);

/* Completions carry a latency where the ring knows the time. Either each entry is timed by itself,
 * which costs one more clock reading at both ends (any thread; off by default) … */
void region_timed_set(struct region *region, bool timed);
/* … or the ring is given the time once a turn, and latencies are counted in whole turns. Owner
 * thread. */
void region_ring_now(struct region_ring *ring, uint64_t now_ns);

/* The functions that a device gives the region. Every slot is filled. Called on the ring's own
 * thread. */
struct region_device_ops {
	const char *name;
	/* Takes up to count entries in order and returns how many it took. A busy device takes
	 * fewer; the rest is offered again next turn. The device itself completes an entry that it
	 * refuses, with -errno. The ring owns the entries: copy what must outlive the call. The
	 * function may complete entries but must not submit any. */
	uint32_t (*submit)(void *device, struct region_ring *ring, const struct region_sqe *entries,
		uint32_t count);
	uint32_t (*submit_wr)(void *device, struct region_ring *ring,
		const struct region_wr *entries, uint32_t count);
	/* Rings the doorbell for the entries taken this turn: once, after all batches. */
	void (*bell)(void *device, struct region_ring *ring);
};

/* Gives a device a target number on this region; -ENOSPC past LIMIT_REGION_TARGETS_MAX. The dump
 * shows the label. Any thread. Entries that still wait for a removed target complete with -ENODEV;
 * numbers are reused as late as possible. */
int region_target_add(struct region *region, const struct region_device_ops *ops, void *device,
	const char *label, uint16_t *ret_target);
void region_target_remove(struct region *region, uint16_t target);
/* Before the removal of a target that somebody may still name: no other device gets its number
 * until it is freed, so entries for it complete with -ENODEV. Any thread. */
void region_target_keep(struct region *region, uint16_t target);
void region_target_free(struct region *region, uint16_t target);

/* Queues an entry. -EAGAIN: the ring is full, or ring_entries of its signaled entries are still
 * unreaped, or the target holds its part; let a turn pass. -EFAULT: a base entry's memory does not
 * lie in one arena. Owner thread only, like all of these. */
int region_submit(struct region_ring *ring, const struct region_sqe *sqe);
int region_submit_wr(struct region_ring *ring, const struct region_wr *wr);
/* Bounds what one target may hold of each pair of rings, so that a device or a peer that completes
 * nothing leaves places to the others. A target's signaled entry is refused if the target's
 * unreaped ones are 1/part of the places that are left, or more: alone, a target gets 1/(part + 1)
 * of the places, and every further one as much of what is left. Receives are neither refused nor
 * counted for the target: they wait for a peer by their nature. 0, the default: no bound. */
void region_ring_parts(struct region_ring *ring, uint32_t base_part, uint32_t rdma_part);
/* Whether a signaled entry for the target would be taken now. It does not count what is full. */
bool region_admits(const struct region_ring *ring, const struct region_sqe *sqe);
bool region_admits_wr(const struct region_ring *ring, const struct region_wr *wr);

/* The completion of an entry, for region_complete(), which computes its latency from the time of
 * submission. */
static inline struct region_cqe region_sqe_done(const struct region_sqe *sqe, int32_t result)
{
	return (struct region_cqe){.user_data = sqe->user_data,
		.result = result,
		.opcode = sqe->opcode,
		.flags = sqe->flags,
		.target = sqe->target,
		.latency_ns = sqe->submitted_ns};
}

static inline struct region_cqe region_wr_done(const struct region_wr *wr, int32_t result)
{
	return (struct region_cqe){.user_data = wr->user_data,
		.result = result,
		.opcode = wr->opcode,
		.flags = wr->flags,
		.target = wr->target,
		.latency_ns = wr->submitted_ns};
}

/* A device completes an entry; flags are the entry's, latency_ns its submitted_ns. Never fails:
 * every signaled entry has its place. A device need not report success of an unsignaled entry, and
 * the ring drops such a report; failure is always delivered. */
void region_complete(struct region_ring *ring, const struct region_cqe *cqe);
/* Drains submissions to the devices; returns how many entries moved. Called once in each turn of
 * the reactor. Runs of entries for one target go as one batch, in order. Entries that a busy device
 * did not take keep their place and order and do not delay other targets: in every turn, every
 * target is offered its work. */
uint32_t region_ring_turn(struct region_ring *ring);
/* Takes up to max completions, both pairs of rings; returns how many. */
uint32_t region_reap(struct region_ring *ring, struct region_cqe *cqes, uint32_t max);
/* True when there is no submission and no completion to handle, so the reactor may sleep. Entries
 * that a busy device left count as work: they must be offered again. */
bool region_ring_idle(const struct region_ring *ring);

/* The counters of one pair of rings since it was opened, and its current depth. Latencies by upper
 * bound: bucket i counts those of at most REGION_LATENCY_NS(i), the last all that are longer. */
#define REGION_LATENCY_BUCKETS 13u
#define REGION_LATENCY_NS(i)   (1024ull << 2 * (i))
struct region_ring_stats {
	uint64_t submitted, completed, errors;
	uint64_t timed, latency_ns; /* completions with a latency, and its sum */
	uint64_t latency_buckets[REGION_LATENCY_BUCKETS];
	uint32_t submit_depth, complete_depth;
};
/* Any thread. */
void region_ring_stats(const struct region *region, uint32_t core_idx, bool rdma,
	struct region_ring_stats *ret_stats);
uint32_t region_core_count(const struct region *region);

/* ---- The memory-region table: which memory is registered with which device, readable by any
 * process that looks. ---- */
struct region_mr {
	uint64_t addr;
	uint64_t bytes;
	uint32_t lkey;
	uint32_t rkey;
	uint32_t access; /* enum rp_access bits */
	char device[20];
};
/* Any thread. -ENOSPC past LIMIT_REGION_MRS_MAX, -EINVAL for 0 bytes or a name without its NUL. */
int region_mr_add(struct region *region, const struct region_mr *mr, uint32_t *ret_mr_idx);
void region_mr_remove(struct region *region, uint32_t mr_idx);

/* ---- Seeing it from another process. ---- */
struct region_view;
/* Maps the region of a running process read-only through /proc/PID/fd; of several, the first that
 * it opened. -ESRCH: no such process. -EACCES, -EPERM: the caller may not look at it. -ENOENT: it
 * has no region. -EPROTO: its region's header is of another version or is inconsistent. */
int region_view_open(int pid, struct region_view **ret_view);
void region_view_close(struct region_view *view); /* takes NULL */
/* The recent work of a core's pair of rings, from the completions that are still in them. It is a
 * sample, because the owner goes on running. It has latencies when the region is timed. -1: no such
 * core, or no memory. */
struct region_recent {
	uint32_t entries, submit_depth, complete_depth;
	uint64_t submitted, completed;	 /* ever */
	uint32_t sampled, errors, timed; /* of the completions that are still there */
	uint64_t latency_p50_ns, latency_p99_ns, latency_max_ns;
};
int region_view_recent(const struct region_view *view, uint32_t core_idx, bool rdma,
	struct region_recent *ret_recent);
/* Frames by owner; returns how many there are in all. */
uint64_t region_view_frames(const struct region_view *view, uint64_t ret_by_owner[OWNER_COUNT]);
/* Writes a report of layout, rings, memory regions and frames by owner, as text or as JSON. */
void region_view_dump(const struct region_view *view, bool json, struct buf *out);

#endif
