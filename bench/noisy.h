/* bench/noisy.h: a noisy tenant, which loads a server as much as it can while the quiet tenant is
 * measured. */
#ifndef BENCH_NOISY_H
#define BENCH_NOISY_H

#include "bench/plan.h"

struct bench_noisy;
/* Makes its bucket and the objects that it reads; nothing more is sent before it runs. -ENODEV: the
 * server is not our own, and has no such tenant. */
int bench_noisy_open(const struct bench_server *server, enum bench_noise_kind kind,
	struct bench_noisy **ret_noisy);
void bench_noisy_begin(struct bench_noisy *noisy);
/* Returns when none of its requests is in flight: how many requests since begin had the expected
 * answer. */
uint64_t bench_noisy_end(struct bench_noisy *noisy);
/* The first error since it was opened; "" without one. Between end and begin. */
const char *bench_noisy_error(const struct bench_noisy *noisy);
void bench_noisy_close(struct bench_noisy *noisy); /* takes NULL; ended */

#endif
