/* bench/batch_load.h: a load of GETs by neb_get_batch: one call after the other, each for many
 * objects. One thread that never sleeps. */
#ifndef BENCH_BATCH_LOAD_H
#define BENCH_BATCH_LOAD_H

#include "bench/client_load.h"

/* Objects that one call reads; an operation's time is its share of the call. */
#define BENCH_BATCH_ITEMS 256u

struct bench_batch_load;
/* opts as of a client load of GETs; the client's window replaces depth. singles: the same objects
 * into the same memory, by a call for each. */
int bench_batch_load_open(
	const struct bench_client_opts *opts, bool singles, struct bench_batch_load **ret_load);
void bench_batch_load_close(struct bench_batch_load *load); /* takes NULL */
/* As bench_client_load_run; opts->rate is 0. */
uint64_t bench_batch_load_run(struct bench_batch_load *load, const struct bench_run_opts *opts,
	struct bench_result *result);

#endif
