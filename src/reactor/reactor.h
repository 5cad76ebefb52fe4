/* reactor/reactor.h: one loop per core: fibers, pollers, timers, mailboxes between cores, io_uring.
 *
 * A turn: pollers, mailbox, io_uring completions, due timers, runnable fibers, io_uring submission.
 * The reactor spins while there is work, goes on spinning for idle_spin_ns, then arms its pollers
 * and sleeps in io_uring_enter until a completion, a message, a poller's event or a timer. A
 * sleeping reactor uses no processor time.
 *
 * Unless it says "any thread", a call is made on the reactor's own thread: the one that first turns
 * it, by reactor_run or reactor_turn. Between open and then any one thread may prepare it (spawn,
 * add pollers, set timers, register buffers). Fiber calls are made inside a fiber. */
#ifndef REACTOR_REACTOR_H
#define REACTOR_REACTOR_H

#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

struct reactor;
struct fiber;

struct reactor_opts {
	uint32_t core_idx;	    /* 0, 1, …: which of the server's reactors this is */
	int cpu;		    /* pin to this processor; -1: do not pin */
	uint32_t uring_entries;	    /* 0: 1024 */
	uint64_t idle_spin_ns;	    /* how long to spin without work before sleeping; 0: 50 µs */
	bool idle_spin_follows;	    /* that is the start, and the load decides (spin.h) */
	uint32_t fiber_stack_bytes; /* 0: 64 KiB (more under sanitizers); a guard page lies below
				       each */
	uint32_t fibers_max;	    /* 0: 4096 on this reactor; LIMIT_FIBERS_KEPT are beyond it */
	bool uring_big; /* 128-byte submission and 32-byte completion entries, which uring_cmd needs
			   for NVMe passthrough */
};

/* Fiber stacks are rounded up to pages and must lie between 16 KiB and 8 MiB, fibers_max within
 * LIMIT_FIBERS_MAX, uring_entries within 32768: -EINVAL. -EPERM or -ENOSYS where io_uring is not
 * permitted: the log then says how to permit it. */
int reactor_open(const struct reactor_opts *opts, struct reactor **ret_reactor);
/* Whether kernel.io_uring_disabled forbids io_uring to some or all users, in the /proc below root.
 * Where io_uring gives -EPERM and this is false, a seccomp profile forbids it. Any thread. */
bool reactor_uring_disabled(const char *root);
/* After run has returned, on any thread; NULL is fine. CHECKs that no fiber is left. No thread may
 * post to the reactor any more; messages still in the mailbox are dropped, and operations in the
 * ring are cancelled without a call of their done. */
void reactor_close(struct reactor *reactor);
/* Runs on the calling thread, pinned to opts.cpu, until reactor_stop(). */
void reactor_run(struct reactor *reactor);
/* Any thread, or a signal handler: run returns once every fiber has ended and the mailbox is empty.
 * A stopped reactor cannot run again. The call does not wake fibers. */
void reactor_stop(struct reactor *reactor);
/* One turn without sleeping, for clients that drive the loop themselves; returns work done. Never
 * inside one of this reactor's own fibers. */
uint32_t reactor_turn(struct reactor *reactor);
/* One turn that may sleep until deadline_ns when there is nothing to do. */
uint32_t reactor_turn_wait(struct reactor *reactor, uint64_t deadline_ns);
/* The reactor whose turn the calling thread is in, NULL outside turns. */
struct reactor *reactor_self(void);
uint32_t reactor_core_idx(const struct reactor *reactor);
/* The turn's own time, read once a turn: good for deadlines, too coarse for latencies. */
uint64_t reactor_now_ns(const struct reactor *reactor);
/* The time now, for latencies: the turn's own and the cycle counter since, at a third of a clock
 * reading's cost. On the reactor's thread. */
uint64_t reactor_fine_ns(const struct reactor *reactor);
bool reactor_stopping(const struct reactor *reactor);

#define REACTOR_TURN_LONG_NS (5 * NS_PER_MS)
struct reactor_stats {
	uint64_t turns, busy_turns, sleeps, fiber_switches, messages, uring_submits;
	uint64_t long_turns;   /* of REACTOR_TURN_LONG_NS or more: everything waited meanwhile */
	uint64_t busy_ns;      /* time in turns that did work */
	uint64_t idle_spin_ns; /* now */
	uint64_t spin_changes; /* … by the length of the waits for work */
	uint64_t spin_crowded; /* … because others needed the processor */
	uint32_t fibers;
};
/* Any thread: each figure is exact, but they are not read at one moment. */
void reactor_stats(const struct reactor *reactor, struct reactor_stats *ret_stats);

/* ---- Fibers: stackful, one per request in flight; a switch is tens of nanoseconds, no system
 * call. ---- */
typedef void fiber_fn(void *arg);
/* Starts fn in the next round of fibers: this turn's when called by a poller, a message, a
 * completion or a timer, the next turn's when called by a fiber. -EAGAIN past fibers_max, -ENOMEM.
 * name is kept by pointer. */
int fiber_spawn(struct reactor *reactor, const char *name, fiber_fn *fn, void *arg);
/* The same, but when called by a poller, a message, a completion or a timer, fn runs at once until
 * it stops for the first time. A function that never waits is finished on return, and the next one
 * runs on its warm stack. The caller must be ready for everything that fn does. */
int fiber_run(struct reactor *reactor, const char *name, fiber_fn *fn, void *arg);
/* Something's place among what waits for the processor; the reactor's. */
struct fiber_place {
	struct list link;
	uint32_t round;
	uint16_t share;
	bool is_start;
};
/* A function that waits for the processor and has no stack yet. It gets one when its turn comes, so
 * that of many that wait each can use the same warm one. In the caller's memory, and the caller's
 * again once fn is called. */
struct fiber_start {
	struct fiber_place place;
	const char *name;
	fiber_fn *fn;
	void *arg;
};
/* As fiber_spawn, of start's name, fn and arg, in this share, whoever calls. */
int fiber_start_in(struct reactor *reactor, uint16_t share, struct fiber_start *start);
/* As fiber_spawn, of start's name, fn and arg, but never refused: for operations that fibers wait
 * for, which would otherwise fail because there are so many of these. LIMIT_FIBERS_KEPT fibers are
 * mapped when the reactor opens and kept for these calls. When they are all in use, a start waits
 * until a fiber ends. innermost: fn waits for no start of this kind; some of the kept fibers are
 * for such starts alone, so that one which fn may wait for always gets its turn. */
void fiber_start_surely(struct reactor *reactor, struct fiber_start *start, bool innermost);
/* Fiber call: runs fn in a fiber of that reactor and waits until it returns; on the caller's own
 * reactor, in the caller's fiber. The errors of fiber_spawn there: fn did not run. */
int fiber_run_on(struct reactor *reactor, const char *name, fiber_fn *fn, void *arg);
/* The running fiber; NULL outside fibers. */
struct fiber *fiber_self(void);
/* Sets the request that the running fiber serves from now on: log lines of the fiber, of its
 * offloaded calls and of fibers that it spawns carry the id. "": no request. Does nothing outside
 * fibers. A longer id is cut. */
#define FIBER_REQUEST_BYTES 24u
void fiber_request_set(const char *id);
/* Returns the request of the running fiber or, on a helper thread, of the fiber that waits for it;
 * NULL when there is none. */
const char *fiber_request(void);
/* Lets the other fibers run. */
void fiber_yield(void);

/* Fibers that work for a client run in that client's share, and shares divide the processor: a
 * share with much to do delays the others by at most one slice of its work. A slice is the work of
 * a fiber between two stops, so long work must stop now and then. Share 0 is the server's own: it
 * is served before the others. A fiber spawned by a fiber is of its share; others are of share 0.
 */
#define REACTOR_SHARES 1024u
/* Sets the share of the running fiber, from its next stop on; does nothing outside fibers. */
void fiber_share_set(uint16_t share);
uint16_t fiber_share(void); /* the running fiber's; 0 outside fibers */
/* True when shares other than the running fiber's have used the processor recently, or when the
 * fiber is of share 0. Long work should then be cut into short pieces; otherwise into long ones. */
bool fiber_contended(void);
/* Yields when clients have used the processor for some time (about 100 µs) since the loop last
 * looked for new events. For long work of clients, between its pieces; does nothing outside fibers
 * and in share 0. */
void fiber_yield_due(void);
/* Sleeps until fiber_wake(). A wake that came before park is not lost (one is remembered), so
 * callers loop on their own condition. */
void fiber_park(void);
/* The fiber must be of the same reactor (CHECK: same thread). Waking a running or runnable fiber is
 * harmless. A fiber that waits for something else (an event, an operation, an offload, a sleep)
 * finishes that first and then finds the wake remembered. */
void fiber_wake(struct fiber *fiber);
/* Any thread; through the mailbox. Several wakes before the first one is delivered count as one.
 * The fiber must not end before the wake arrives. */
void fiber_wake_remote(struct fiber *fiber);
/* Parks until woken or until the deadline: 0, or -ETIMEDOUT. */
int fiber_park_until(uint64_t deadline_ns);
void fiber_sleep_ns(uint64_t ns);

/* Runs fn on a helper thread while the fiber waits. For calls that may block but are short (a
 * RocksDB lookup), or of which only one runs at a time. All reactors use the same few helpers;
 * shares take turns at them, one call each. fn must not make fiber calls. */
void fiber_offload(fiber_fn *fn, void *arg);
/* The same on other helpers, for long calls of which many may run at once: walks over the index,
 * whole files, other hosts. Their threads have a lower priority. */
void fiber_offload_long(fiber_fn *fn, void *arg);

/* ---- io_uring. ---- */
/* Does one operation and waits: fn prepares the entry, the result is the completion's res (bytes or
 * -errno). A deadline cancels it (-ETIMEDOUT, or the result when it was done before); DEADLINE_NONE
 * waits without limit. The buffers must outlive the call, which they do: it returns only when the
 * kernel is done with them, zero-copy sends included. Not for multishot operations, and prep sets
 * no user_data and no link. */
typedef void uring_prep_fn(struct io_uring_sqe *sqe, void *arg);
int fiber_uring(uring_prep_fn *prep, void *arg, uint64_t deadline_ns);

/* Without a fiber: done is called from the turn that sees the completion. The caller owns the
 * operation. */
struct uring_op;
typedef void uring_done_fn(struct uring_op *op, int result, uint32_t cqe_flags);
struct uring_op {
	uring_done_fn *done;
	void *arg;
};
/* A prepared submission entry bound to op, sent at the end of this turn. Never NULL: flushes when
 * the queue is full. done is called once per completion (several for multishot). */
struct io_uring_sqe *reactor_sqe(struct reactor *reactor, struct uring_op *op);
/* The ring itself, for registering buffers (io_uring_register_buffers): before the first turn from
 * any thread, afterwards from the reactor's own. */
struct io_uring *reactor_uring(struct reactor *reactor);

/* ---- Pollers: work found by looking (completion queues, shared rings). ---- */
struct reactor_poller {
	const char *name;
	/* Does what there is; returns how much. */
	uint32_t (*poll)(void *arg);
	/* Asks to be woken through event_fd: true when armed, false when there is work after all.
	 */
	bool (*arm)(void *arg);
	/* Called after a sleep, or when another poller refused to arm. It must read event_fd until
	 * that is no longer readable: the reactor only polls it, and a readable descriptor ends
	 * every sleep. */
	void (*disarm)(void *arg);
	void *arg;
	int event_fd; /* readable when there is work; -1: this poller cannot be waited for, so the
			 reactor never sleeps while it is added */
	struct list link; /* the reactor's from here on */
	uint32_t wait_idx;
};
/* At most REACTOR_POLLERS_MAX on one reactor (CHECK). The poller may be freed, and its event_fd
 * closed, as soon as remove returns; both calls are fine inside a poller. */
#define REACTOR_POLLERS_MAX 256u
void reactor_poller_add(struct reactor *reactor, struct reactor_poller *poller);
void reactor_poller_remove(struct reactor *reactor, struct reactor_poller *poller);

/* ---- Timers: coarse (about 1 ms), many, cheap to set and to cancel. ---- */
struct reactor_timer;
typedef void reactor_timer_fn(struct reactor_timer *timer, void *arg);
struct reactor_timer {
	reactor_timer_fn *fn;
	void *arg;
	uint64_t due_ns;
	uint32_t slot; /* the reactor's */
	bool armed;
	struct list link;
};
/* Calls fn(timer, arg) in the first turn at or after due_ns, up to about 1 ms late when the reactor
 * is not busy; never early. Setting an armed timer moves it. The timer is the caller's again once
 * fn is called or it is cancelled; fn may set it again. O(1), and so is cancel, which is fine on a
 * timer that is not armed. A timer starts as zeroes. */
void reactor_timer_set(struct reactor *reactor, struct reactor_timer *timer, uint64_t due_ns);
void reactor_timer_cancel(struct reactor *reactor, struct reactor_timer *timer);

/* ---- Mailboxes: any thread to a reactor. The message is the caller's until fn runs, then fn's.
 * ---- */
struct reactor_msg;
typedef void reactor_msg_fn(struct reactor_msg *msg);
struct reactor_msg {
	struct mpsc_node node;
	reactor_msg_fn *fn;
};
/* Any thread. Wakes the reactor when it sleeps; makes no system call when it does not. Messages of
 * one thread arrive in order. */
void reactor_post(struct reactor *reactor, struct reactor_msg *msg);
/* Announces that a thread works for the reactor and will post a message when it is done. Meanwhile
 * reactor_close waits, and a reactor without work sleeps instead of spinning when there is no spare
 * processor for that thread. begin: the reactor's own thread; end: any. */
void reactor_help_begin(struct reactor *reactor);
void reactor_help_end(struct reactor *reactor, struct reactor_msg *msg);
#endif
