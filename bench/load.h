/* bench/load.h: shared by all loads: objects with known bytes, the pace, and the result. */
#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

/* ---- Objects of one size whose content follows from their number. ---- */

/* The number of different contents: windows into one run of random bytes, a cache line apart. */
#define BENCH_CONTENTS	    1021u
#define BENCH_CONTENT_STEP  64u
#define BENCH_CONTENT_SLACK (BENCH_CONTENTS * BENCH_CONTENT_STEP)

struct bench_data {
	char prefix[40]; /* of the keys */
	uint64_t bytes;	 /* of each object */
	uint32_t count;
	uint8_t *pool;	/* bytes + BENCH_CONTENT_SLACK random bytes; shared between data sets */
	uint64_t *crcs; /* CRC-64/NVME of each content that occurs */
};
int bench_data_open(struct bench_data *data, const char *prefix, uint64_t bytes, uint32_t count);
void bench_data_close(struct bench_data *data); /* takes zeroed ones */
#define BENCH_KEY_BYTES 64
const char *bench_data_key(
	const struct bench_data *data, uint64_t object_idx, char buf[BENCH_KEY_BYTES]);
static inline size_t bench_data_offset(uint64_t object_idx)
{
	return (size_t)(object_idx % BENCH_CONTENTS) * BENCH_CONTENT_STEP;
}
/* The order in which a load goes through objects: all of them before any comes again, neighbours
 * far apart. step has no factor in common with count. */
static inline uint64_t bench_data_pick(uint64_t turn, uint32_t count)
{
	return count > 1 ? turn * 7919 % count : 0;
}
/* Compares an answer's body with the expected bytes: 0 or -EBADMSG. */
typedef int bench_check_fn(const void *arg, uint64_t object_idx, const void *body, uint64_t bytes);
/* arg is a struct bench_data. */
int bench_check_object(const void *arg, uint64_t object_idx, const void *body, uint64_t bytes);
/* A page of a listing: arg is the number of keys, uint32_t, that it must have. */
int bench_check_page(const void *arg, uint64_t object_idx, const void *body, uint64_t bytes);

/* ---- The result of a load. ---- */
struct bench_result {
	struct hist *hist; /* latencies in ns; set by the caller, added to */
	uint64_t ops;	   /* done, errors among them */
	uint64_t errors;   /* wrong status, wrong length, wrong bytes, no answer */
	uint64_t bytes;	   /* of bodies */
	uint64_t verified_ops;
	uint64_t verified_bytes; /* summed and found right */
	uint64_t elapsed_ns;
	char first_error[160];
};
__attribute__((format(printf, 2, 3))) void bench_result_error(
	struct bench_result *result, const char *fmt, ...);

/* ---- How long, how fast. ---- */
struct bench_run_opts {
	uint64_t duration_ns;
	uint64_t ops_max;	  /* 0: no limit */
	uint64_t rate;		  /* open loop: starts a second; 0: closed loop */
	uint64_t turn;		  /* number of the first operation, for bench_data_pick */
	uint32_t verify_every;	  /* 0: never */
	bool sleeps;		  /* HTTP: leaves the processor while it waits */
	const _Atomic bool *stop; /* HTTP: ends early once it is true; or NULL */
};

/* The pace of one run. In an open loop operations are due at fixed times, and a latency counts from
 * when the operation was due, whether or not it could be started then: so a server that stalls does
 * not hide the requests that were due meanwhile. The first operation starts however late the run
 * comes to it: a process that was held up for all its time still measures something. */
struct bench_pace {
	uint64_t end_ns;
	uint64_t left; /* starts */
	uint64_t due_ns;
	uint64_t interval_ns; /* 0: closed loop */
	bool begun;	      /* the first operation was started */
};
void bench_pace_start(struct bench_pace *pace, const struct bench_run_opts *opts, uint64_t now_ns);
static inline bool bench_pace_ended(const struct bench_pace *pace, uint64_t now_ns)
{
	return (pace->begun && now_ns >= pace->end_ns) || !pace->left;
}
/* Returns whether an operation may start now, and from when its latency counts. */
static inline bool bench_pace_take(struct bench_pace *pace, uint64_t now_ns, uint64_t *ret_since_ns)
{
	if (bench_pace_ended(pace, now_ns) || (pace->interval_ns && now_ns < pace->due_ns))
		return false;
	*ret_since_ns = pace->interval_ns ? pace->due_ns : now_ns;
	pace->due_ns += pace->interval_ns;
	pace->left--;
	pace->begun = true;
	return true;
}

#endif
