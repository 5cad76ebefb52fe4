/* base/board.h: counters that a process publishes: a page of named numbers in a memfd. A process
 * with the right to look finds it through /proc/PID/fd and reads it while the owner runs. It serves
 * processes that have no address for metrics: flows, clients, programs with a region. */
#ifndef BASE_BOARD_H
#define BASE_BOARD_H

#include <stdatomic.h>
#include <stdint.h>

#define BOARD_NAME_BYTES  120u
#define BOARD_ENTRIES_MAX 127u
#define BOARD_FD_PREFIX	  "nebulaio-board"

/* Returns the place of a count on this process's board. The first call makes the board, which lives
 * as long as the process; each name has one place. Names are those of metrics:
 * "nebulaio_x_total{y=\"z\"}". Never NULL: without a board, or without room on it, the call returns
 * a place that nobody reads. Any thread. */
_Atomic uint64_t *board_place(const char *name);

static inline void board_set(_Atomic uint64_t *place, uint64_t value)
{
	atomic_store_explicit(place, value, memory_order_relaxed);
}

static inline void board_add(_Atomic uint64_t *place, uint64_t n)
{
	atomic_fetch_add_explicit(place, n, memory_order_relaxed);
}

struct board_entry {
	char name[BOARD_NAME_BYTES]; /* NUL-terminated; printable */
	uint64_t value;
};
/* Copies up to max entries of all boards of a process, in no order, and returns how many; 0 when it
 * has no board. A library may have a board beside the program's. -ESRCH: no such process; -EACCES,
 * -EPERM: the caller may not look at it. */
int board_read(int pid, struct board_entry *entries, uint32_t max);

#endif
