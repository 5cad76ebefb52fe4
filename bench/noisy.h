/* bench/noisy.h: a noisy tenant, who asks for as much as a server gives it while the quiet one is
 * measured. */
#ifndef BENCH_NOISY_H
#define BENCH_NOISY_H

#include "bench/plan.h"

struct bench_noisy;
/* Makes its bucket and what it reads; nothing more is sent before it runs. -ENODEV: the server is
 * not our own, and has no such tenant. */
int bench_noisy_open(const struct bench_server *server, enum bench_noise_kind kind,
	struct bench_noisy **ret_noisy);
void bench_noisy_begin(struct bench_noisy *noisy);
/* Returns when nothing of it is under way; how many requests were answered as they should be since
 * begin. */
uint64_t bench_noisy_end(struct bench_noisy *noisy);
/* The first error since it was opened; "" without one. Between end and begin. */
const char *bench_noisy_error(const struct bench_noisy *noisy);
void bench_noisy_close(struct bench_noisy *noisy); /* takes NULL; ended */

#endif
