/* bench/map_load.h: a load of reads whose bytes are looked at: of objects that neb_map() made
 * memory, or by GETs. One read at a time. */
#ifndef BENCH_MAP_LOAD_H
#define BENCH_MAP_LOAD_H

#include "bench/client_load.h"

struct bench_map_opts {
	const struct neb_options *mapper; /* of a mapper; NULL: reads are GETs by the client */
	struct neb_client *client;	  /* borrowed until close, as all else here */
	const char *bucket;
	const struct bench_data *data; /* of at least one large object */
	/* Of a read: whole objects, each mapped for its read; or fewer, at random in the first
	 * object, where a touch brings more of it. */
	uint64_t bytes;
};

/* NULL, or why this process cannot map objects. */
const char *bench_map_refused(void);

struct bench_map_load;
int bench_map_load_open(const struct bench_map_opts *opts, struct bench_map_load **ret_load);
void bench_map_load_close(struct bench_map_load *load); /* takes NULL */
/* As bench_client_load_run; opts->rate is 0. Every byte is compared with what was stored. */
uint64_t bench_map_load_run(struct bench_map_load *load, const struct bench_run_opts *opts,
	struct bench_result *result);
/* Bytes that the mapper's thread copied into pages so far. */
uint64_t bench_map_load_copied(const struct bench_map_load *load);

#endif
