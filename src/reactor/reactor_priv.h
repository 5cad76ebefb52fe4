/* reactor/reactor_priv.h: shared by the files of src/reactor: the reactor, the fiber, the timer
 * wheel. */
#ifndef REACTOR_REACTOR_PRIV_H
#define REACTOR_REACTOR_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/sanitizer.h"
#include "reactor/reactor.h"
#include "reactor/spin.h"
#include "reactor/switch.h"

/* Sanitizers grow every frame. */
#define STACK_BYTES_DEFAULT   (SANITIZER_ADDRESS || SANITIZER_THREAD ? 256 * KIB : 64 * KIB)
#define STACK_BYTES_MIN	      (16 * KIB)
#define STACK_BYTES_MAX	      (8 * MIB)
#define FIBERS_DEFAULT	      4096u
#define URING_ENTRIES_DEFAULT 1024u
#define URING_ENTRIES_MAX     32768u /* the kernel's own bound */
#define IDLE_SPIN_NS_DEFAULT  (50 * NS_PER_US)
#define SPIN_LOOK_NS	      (50 * NS_PER_MS)
#define MESSAGES_PER_TURN_MAX 1024u
#define URING_SUBMIT_TRIES    10000u

/* Of the kept fibers, for starts that wait for no other start. */
#define FIBERS_KEPT_INNERMOST 8u

_Static_assert(FIBERS_DEFAULT <= LIMIT_FIBERS_MAX, "the default is within the bound");
_Static_assert(FIBERS_KEPT_INNERMOST < LIMIT_FIBERS_KEPT, "both kinds of start have some");

/* The wheel: level n has 64 slots of 64^n ticks. A timer lies at the level of the highest digit
 * (base 64) in which its due tick differs from now, in the slot of that digit, and moves down when
 * that slot's time comes. Eight levels hold every tick of a 64-bit nanosecond clock. */
#define TICK_SHIFT	 20u /* 1.05 ms */
#define WHEEL_DIGIT_BITS 6u
#define WHEEL_SLOTS	 (1u << WHEEL_DIGIT_BITS)
#define WHEEL_LEVELS	 8u
#define WHEEL_SLOT_DUE	 (WHEEL_LEVELS * WHEEL_SLOTS) /* on the list of those due now */

_Static_assert(WHEEL_LEVELS *WHEEL_DIGIT_BITS + TICK_SHIFT >= 64, "the wheel spans the clock");
_Static_assert(WHEEL_SLOTS == 64, "a level's slots are the bits of one word");

struct wheel {
	uint64_t tick; /* all timers due at or before this tick have been taken out */
	uint64_t occupied[WHEEL_LEVELS]; /* bit n: slot n holds timers */
	struct list slots[WHEEL_LEVELS][WHEEL_SLOTS];
	struct list due;
};

/* The life of a fiber:
 *
 *   IDLE      cached, no function           -> RUNNABLE by spawn
 *   RUNNABLE  on the run queue              -> RUNNING by the turn
 *   RUNNING   has the processor             -> RUNNABLE by yield, PARKED, WAITING, or IDLE at the
 *                                              end of its function
 *   PARKED    in fiber_park or park_until   -> RUNNABLE by fiber_wake or the deadline
 *   WAITING   for one thing of the          -> RUNNABLE by that thing only; a fiber_wake is
 *             reactor's                        remembered for the next park */
enum fiber_state { FIBER_IDLE, FIBER_RUNNABLE, FIBER_RUNNING, FIBER_PARKED, FIBER_WAITING };

/* Why a fiber became runnable; a later wake depends on it. */
enum fiber_cause { CAUSE_OTHER, CAUSE_WAKE, CAUSE_DEADLINE };

struct fiber {
	struct fiber_place place; /* in its share's run queue; its link also in the cache */
	struct switch_ctx ctx;
	struct reactor *reactor;
	enum fiber_state state;
	enum fiber_cause cause;
	bool wake_pending;
	const char *name;
	char request[FIBER_REQUEST_BYTES]; /* the id of the request that it works for; empty: none
					    */
	fiber_fn *fn;
	void *arg;
	struct reactor_msg remote_msg;
	atomic_bool remote_posted; /* remote_msg is in the mailbox */
	struct list all_link;
	char *map; /* the mapping: guard page, stack, and at its very end this structure */
	char *stack;
	size_t stack_bytes;
	void *sanitizer; /* the fake stack (address) or the fiber (thread) */
};

/* Fibers and starts that wait for the processor on one client's behalf (share_dp.c). */
struct share {
	struct list runnable;
	struct list link; /* in shares_fresh or shares_old, while queued */
	int64_t credit_ticks;
	bool queued, fresh;
};

/* One place in the table of poll operations. It outlives its poller while the kernel holds it. */
struct poller_wait {
	struct uring_op op;
	struct reactor_poller *poller; /* NULL: none, or removed */
	bool in_kernel;
	bool failed; /* the descriptor reports an error and nothing to read */
};

#define REACTOR_TICK_NS_ONE (1u << 20)
struct reactor {
	/* Producers on other threads write these two lines. */
	struct mpsc mailbox;
	_Alignas(64) atomic_bool sleeping; /* about to sleep or asleep: a post must ring wake_fd */
	atomic_bool stop_asked;
	_Atomic uint32_t helpers; /* threads that work for it and may touch this structure */
	int wake_fd;

	_Alignas(64) uint32_t runnable; /* fibers and starts, of all shares */
	uint32_t round;
	struct list shares_fresh, shares_old;
	uint64_t round_begin_ticks, round_ticks, speed_due_ticks;
	uint64_t mixed_ticks; /* when the served share last changed */
	uint16_t share_last;  /* the last share that was served */
	int64_t quantum_ticks;
	struct fiber *running; /* NULL: the loop itself runs */
	struct switch_ctx loop_ctx;
	uint64_t now_ns;
	uint64_t now_ticks; /* of the cycle counter, when now_ns was read */
	uint64_t tick_ns;   /* of one tick, times REACTOR_TICK_NS_ONE */
	uint64_t open_ns, open_ticks;
	uint64_t busy_ticks; /* in turns that did work */
	uint64_t long_ticks; /* of a long turn */
	bool bound;	     /* the ring is enabled and belongs to owner */
	bool stop_seen;	     /* seen by a whole turn: earlier work has been handled */
	pthread_t owner;
	struct io_uring ring;
	struct list pollers;
	struct list *poller_next; /* the poll loop's cursor, which a removal moves on */
	uint32_t pollers_deaf;	  /* without an event_fd: no sleep while there are any */
	struct wheel wheel;
	struct reactor_stats stats;

	uint64_t idle_spin_ns; /* any thread may read it */
	struct spin spin;      /* with opts.idle_spin_follows */
	struct spin_sample sample;
	uint64_t looked_ns, look_due_ns;

	struct reactor_opts opts;
	uint32_t cpus;		 /* that the process may use */
	struct list fibers_idle; /* cached, with their stacks */
	struct list fibers_all;
	/* stats.fibers of them are in use, or reserved by a start; and enough of the others are for
	 * fiber_start_surely. */
	uint32_t fibers_mapped;
	uint32_t
		kept_used; /* how many are in use because fiber_start_surely may always start one */
	struct list starts_outer, starts_innermost; /* that wait for one */
	uint32_t page_bytes;
	bool ring_open;
	struct uring_op wake_op;
	struct poller_wait waits[REACTOR_POLLERS_MAX];

	struct share shares[REACTOR_SHARES]; /* the first is the server's own, and never queued */

	/* Where the loop's own stack lies, for the sanitizers. */
	const void *loop_stack;
	size_t loop_stack_bytes;
	void *loop_sanitizer;
};

/* All that are open in the process. */
extern _Atomic uint32_t reactors_open;

/* The reactor whose turn this thread is in. */
extern _Thread_local struct reactor *reactor_current;

#if SANITIZER_THREAD
extern _Atomic uint32_t reactor_fence_word;
#endif

/* Makes earlier stores visible to other threads before later loads are done. */
static inline void full_fence(void)
{
#if SANITIZER_THREAD
	/* The thread sanitizer does not know fences. A read-modify-write of one common word orders
	 * all threads that do it. */
	atomic_fetch_add(&reactor_fence_word, 1);
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Statistics have one writer and are read from any thread. */
static inline void stat_add(uint64_t *figure, uint64_t n)
{
	__atomic_store_n(figure, *figure + n, __ATOMIC_RELAXED);
}

/* CHECKs that a call that is only for the reactor's own thread is made on it. Otherwise this
 * mistake would show much later, as a lost wake. Before the first turn any thread may call. */
static inline void check_thread(const struct reactor *reactor)
{
	CHECK(!reactor->bound || pthread_equal(reactor->owner, pthread_self()));
}

/* fiber.c */
/* On a helper thread: the fiber that waits for what it does now. */
void fiber_helped_set(struct fiber *fiber);
void fiber_unmap(struct fiber *fiber);
/* A fiber has ended: begins starts that waited for one. */
void fiber_starts_serve(struct reactor *reactor) __attribute__((cold, noinline));

/* Maps those that are kept; -ENOMEM. */
int fibers_keep(struct reactor *reactor);

/* Takes a reserved fiber and makes it runnable, but in no queue. */
struct fiber *fiber_begin(struct reactor *reactor, const struct fiber_start *start);

/* fiber_dp.c */
void fiber_main(void *arg);
/* Runs a runnable fiber that is in no queue, until it stops or ends. */
void fiber_enter(struct reactor *reactor, struct fiber *fiber);
/* Stops the running fiber until fiber_resume; nothing else wakes it. */
void fiber_wait(void);
void fiber_resume(struct fiber *fiber);
void fiber_remote_arrived(struct reactor_msg *msg);

/* share_dp.c */
void shares_init(struct reactor *reactor);
void share_push(struct reactor *reactor, struct fiber_place *place);
void share_take(struct reactor *reactor, struct fiber_place *place);
/* Runs the fibers that are runnable now, each once: all fibers of the server's own share, and those
 * of clients until their time is used up. Returns how many it ran. */
uint32_t fibers_round(struct reactor *reactor);

/* timer_dp.c */
void wheel_init(struct wheel *wheel, uint64_t now_ns);
uint32_t wheel_turn(struct wheel *wheel, uint64_t now_ns);
/* No timer is due before this; DEADLINE_NONE when none is armed. */
uint64_t wheel_next_ns(const struct wheel *wheel);

/* mailbox_dp.c */
uint32_t mailbox_drain(struct reactor *reactor);
/* Readable by io_uring from now on; async-signal-safe. */
void mailbox_ring(struct reactor *reactor);

/* uring.c */
/* Tries sets of features in order, best first, from the given one on, until the kernel accepts
 * one. */
#define URING_FEATURE_SETS 3u
int uring_open(struct reactor *reactor, uint32_t feature_set);
void uring_bind(struct reactor *reactor);
/* The kernel accepted fewer entries than it was given: waits, or fails a CHECK in the end. */
void uring_flush_stuck(struct reactor *reactor, int error) __attribute__((cold, noinline));

/* uring_dp.c */
uint32_t uring_reap(struct reactor *reactor);
void uring_flush(struct reactor *reactor);
/* Submits and sleeps until a completion or the deadline. */
void uring_sleep(struct reactor *reactor, uint64_t deadline_ns);

/* spin_look.c: on the reactor's own thread. */
void spin_begin(struct reactor *reactor);
void spin_look(struct reactor *reactor) __attribute__((cold, noinline));

/* poller_dp.c */
uint32_t pollers_poll(struct reactor *reactor);
/* Arms all; false (and all disarmed) when one has work or cannot be armed. */
bool pollers_arm(struct reactor *reactor);
void pollers_disarm(struct reactor *reactor);

/* reactor.c */
void reactor_pin(struct reactor *reactor);

#endif
