/* base/log_ring.h: the latest lines of the log in memory, as JSON objects, for operators who read
 * them over the network. Bounded: a new line makes room by the oldest. Thread-safe. */
#ifndef BASE_LOG_RING_H
#define BASE_LOG_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define LOG_RING_BYTES	    (1u << 20)
#define LOG_RING_LINE_BYTES 4096u

/* From now on, lines are kept; a second call does nothing. Called at start, before there are other
 * threads. False: no memory. */
bool log_ring_open(void);
bool log_ring_is_open(void);
/* Keeps one line: a JSON object with at least one member, of at most LOG_RING_LINE_BYTES. */
void log_ring_put(const char *object, size_t len);

struct log_ring_page {
	uint32_t count;
	/* The id of the page's last line; without lines, that of the last one so far. Ids begin
	 * at 1. */
	uint64_t last;
	uint64_t lost; /* lines behind `after` that the ring no longer has */
	bool more;     /* there are lines behind the page */
};
#define LOG_RING_LATEST UINT64_MAX
/* Appends lines to out, each with its id as the first member, separated by commas: those behind the
 * id `after` (0: from the oldest on), or the latest when after is LOG_RING_LATEST or another id
 * that no line has yet (of an earlier process). At most lines_max. Out may be `failed` then. */
void log_ring_read(
	uint64_t after, uint32_t lines_max, struct buf *out, struct log_ring_page *ret_page);

#endif
