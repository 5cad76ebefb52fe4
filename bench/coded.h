/* bench/coded.h: two more servers of our own, over six volumes each with erasure coding 4+2: on
 * volumes of this host, and on volumes of six other processes, by RDMA. Neither has a cache: every
 * read goes to the volumes. */
#ifndef BENCH_CODED_H
#define BENCH_CODED_H

#include "bench/runner.h"

#define BENCH_CODED_VOLUMES 6u
#define BENCH_CODED_SETS    5u /* of a server */

struct bench_coded_store {
	struct bench_target target;
	struct bench_opts opts;			  /* as asked for, with its own sets */
	char volumes[BENCH_CODED_VOLUMES * 4200]; /* "storage.volumes=…" */
	int error;				  /* 0: it runs */
};
struct bench_coded {
	struct bench_child exports[BENCH_CODED_VOLUMES];
	char secret_set[4300]; /* "storage.remote.secret_file=…" */
	struct bench_coded_store local, remote;
};
/* -ENOMEM; other failures are recorded as the stores' errors and printed to standard error. The
 * processes that export volumes share the server's processor. */
int bench_coded_open(const struct bench_opts *opts, const struct bench_cpus *cpus,
	const char *folder, struct bench_coded **ret_coded);
void bench_coded_close(struct bench_coded *coded); /* takes NULL */

#endif
