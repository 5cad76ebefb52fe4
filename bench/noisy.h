/* bench/noisy.h: a second tenant, who stores objects as fast as the server lets it while the first
 * one is measured. */
#ifndef BENCH_NOISY_H
#define BENCH_NOISY_H

#include "bench/server.h"

#define BENCH_NOISY_DEPTH 16u	    /* uploads under way */
#define BENCH_NOISY_BYTES (1 * MIB) /* of each */

struct bench_noisy;
/* Makes its bucket; nothing is sent before it runs. -ENODEV: the server is not our own, and has no
 * such tenant. */
int bench_noisy_open(const struct bench_server *server, const struct bench_cpus *cpus,
	struct bench_noisy **ret_noisy);
void bench_noisy_begin(struct bench_noisy *noisy);
/* Returns when nothing of it is under way. */
void bench_noisy_end(struct bench_noisy *noisy);
/* Uploads that were answered by 200, ever; between end and begin. */
uint64_t bench_noisy_uploads(const struct bench_noisy *noisy);
void bench_noisy_close(struct bench_noisy *noisy); /* takes NULL; ended */

#endif
