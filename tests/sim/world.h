/* tests/sim/world.h: the world in which the simulated server runs.
 *
 * The server's own code runs unchanged: its calls of the C library, of pthreads and of liburing are
 * redirected here by the linker (--wrap). Its threads are real ones, of which exactly one runs at a
 * time. One seed decides the next thread, the time, the time and result of each disk operation, and
 * the number of bytes that a socket accepts. Nothing waits: when no thread can run, the clock moves
 * to the next event.
 *
 * One process lives one life of the server, from its start to a clean end or to a loss of power.
 * Only the thread with the turn may make these calls. */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/base.h"

#define BLOCK_BYTES_OF_DISK 4096u

/* The world's own memory does not fail. */
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
#define malloc	__real_malloc
#define calloc	__real_calloc
#define realloc __real_realloc

/* ---- sched.c: threads, time, chance. ---- */

/* The calling thread becomes the first of the world. */
void world_begin(uint64_t seed);
/* Virtual: nanoseconds since the world began, starting a moment after the machine's start. */
uint64_t world_now_ns(void);
/* Real time is that many nanoseconds ahead of the monotonic clock, which never jumps. */
void world_clock_jump(int64_t ns);

uint64_t world_below(uint64_t bound);
bool world_chance(uint32_t one_of);
/* A generator of its own, so that the load does not depend on scheduling. */
struct prng *world_prng(void);

/* Waits until world_wake(on), or until the deadline: false. */
bool world_block(const void *on, uint64_t deadline_ns);
void world_wake(const void *on);
/* futex(2), as base/wake.c calls it. */
long world_futex(
	_Atomic uint32_t *word, long operation, uint32_t value, const struct timespec *until);
/* Lets another thread run, by chance or always. */
void world_maybe_yield(void);
void world_yield(void);

/* Waits until a descriptor of the kernel's is ready for the events (POLLIN, …): returns the ready
 * events, or 0. */
short world_wait_fd(int fd, short events, uint64_t deadline_ns);

/* Calls fn(arg) at its time. */
struct world_event;
typedef void world_event_fn(void *arg);
struct world_event {
	uint64_t due_ns;
	uint64_t order;
	world_event_fn *fn;
	void *arg;
	uint32_t heap_idx; /* 0: not planned */
};
void world_event_set(struct world_event *event, uint64_t due_ns);
void world_event_cancel(struct world_event *event);

/* Calls fn(watch, ready events) once the descriptor is ready. */
struct world_watch;
typedef void world_watch_fn(struct world_watch *watch, short ready);
struct world_watch {
	struct list link;
	int fd;
	short events;
	world_watch_fn *fn;
	void *arg;
};
void world_watch_add(struct world_watch *watch);
void world_watch_remove(struct world_watch *watch);

/* Records everything that happens; two runs of a seed give the same trace. */
void world_trace(const char *what, uint64_t a, uint64_t b);
extern bool world_trace_wanted; /* on standard error */
extern bool world_hash_wanted;	/* on standard output, at the end */

/* Ends this life; for a fault, with a line that describes it. */
enum world_end { WORLD_END_CLEAN = 0, WORLD_END_POWER = 10, WORLD_END_FAULT = 20 };
void world_end(enum world_end how) __attribute__((noreturn));
void world_fault(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
void world_thread_name(const char *name);

/* ---- disk.c: files named "volume", which lose unflushed writes. ---- */

struct world_disk_chances { /* one of so many operations; 0: none */
	uint32_t short_transfer;
	uint32_t read_error;
	uint32_t write_error;
	uint32_t slow;
	uint32_t death; /* the disk fails all operations for a while, then recovers */
	/* Of writes to bodies: a byte is changed, or the write goes elsewhere, or it is dropped;
	 * the disk reports success. */
	uint32_t damage;
	uint64_t damage_from; /* no damage before that offset */
	int32_t damage_disk;  /* only this one of several; -1: any */
};
extern struct world_disk_chances world_disk_chances;
/* Changes single bytes of the disks that may be damaged. */
void world_disk_rot(uint32_t places);
bool world_disk_is(int fd);
enum world_disk_op { WORLD_READ, WORLD_WRITE, WORLD_FLUSH, WORLD_PUNCH, WORLD_ZERO };
struct world_disk_io {
	enum world_disk_op op;
	const struct iovec *iov; /* copied at once; the memory is used when the operation happens */
	uint32_t iov_count;
	uint64_t offset;
	uint64_t bytes; /* PUNCH, ZERO */
};
/* Carries out one operation on a simulated disk after its time: calls done(arg, bytes or -errno).
 */
typedef void world_disk_done_fn(void *arg, int result);
void world_disk_start(int fd, const struct world_disk_io *io, world_disk_done_fn *done, void *arg);
/* Power fails: some unflushed sectors remain and others do not. The other host's disks
 * ("peer/volume") lose nothing unless its power fails, too. */
void world_disk_power_lost(bool peer_too);
/* The other host dies: its disks do nothing until they are closed. kept: unflushed writes
 * remain. */
void world_disk_host_lost(bool kept);
/* Operations that its disks start from now on do not end before then. */
void world_disk_host_stall(uint64_t until_ns);

/* ---- index.c: an ordered map behind the index's interface. ---- */
void world_index_power_lost(void);

/* ---- net.c: the descriptors that represent TCP connections. ---- */
void world_net_opened(int fd);
void world_net_closed(int fd);

/* ---- uring.c ---- */
/* An eventfd was written to. */
void world_uring_rung(int fd);

/* ---- faults.c: the nth call of a kind fails, once. ---- */
enum world_fault_kind {
	WORLD_FAULT_MEMORY,
	WORLD_FAULT_MAPPING,
	WORLD_FAULT_DESCRIPTOR,
	WORLD_FAULT_DISK,
	WORLD_FAULT_NET,
	WORLD_FAULT_COUNT
};
extern const char *const WORLD_FAULTS[WORLD_FAULT_COUNT];
/* seen counts the calls of the kind from now on; NULL: they are not counted, and none fails. */
void world_fault_plan(enum world_fault_kind kind, uint64_t nth, uint64_t *seen);
/* Called at each call of the kind: whether the call must fail. */
bool world_fault_comes(enum world_fault_kind kind);

/* ---- breaks.c: steps that are omitted on purpose. ---- */
struct world_break {
	const char *name, *what;
};
extern const struct world_break WORLD_BREAKS[];
extern const size_t WORLD_BREAK_COUNT;
int world_break_set(const char *name); /* -1: no such name */
bool world_flush_is_none(void);
bool world_checkpoint_is_early(void);
bool world_row_is_lost(struct slice key);

/* ---- load.c: the world's load on the server, and the check of its answers. ---- */

/* The state of one seed, in memory that all its lives share. */
#define WORLD_LIVES 4u /* all but the last end by a loss of power */
struct world_shared;
struct world_shared *world_shared_new(uint64_t seed);
void world_shared_free(struct world_shared *shared);
/* A life in which the nth call of a kind fails (0: none), and one after it without failures:
 * acknowledged data must exist, and everything must work after the failure. */
struct world_sweep {
	enum world_fault_kind kind;
	uint64_t nth;
};
void world_load_sweep(struct world_shared *shared, const char *dir, uint32_t life,
	const struct world_sweep *sweep);
uint64_t world_sweep_seen(const struct world_shared *shared);
/* One life: returns at its clean end. */
void world_load_run(struct world_shared *shared, const char *dir, uint32_t life);
extern bool world_history_wanted; /* prints the history of an answer without explanation */
/* After all lives: NULL, or the description of a fault. */
const char *world_load_judge(struct world_shared *shared);

#endif
