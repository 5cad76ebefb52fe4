/* bench/clients.h: the same load from several processes at a time, each with a client of its own,
 * which sleeps while it waits: they share one processor. */
#ifndef BENCH_CLIENTS_H
#define BENCH_CLIENTS_H

#include "bench/client_load.h"
#include "bench/cycles.h"
#include "bench/machine.h"

struct bench_clients;
/* Starts BENCH_SESSION_COUNT processes that divide opts->depth. Each calls client_open;
 * opts->client is not used. No thread of this process may hold a lock that they need: none runs
 * meanwhile. -EIO: one of them could not connect; it says why on standard error. */
int bench_clients_open(const struct bench_client_opts *opts,
	int (*client_open)(void *arg, struct neb_client **ret_client), void *arg,
	struct bench_clients **ret_clients);
/* As bench_client_load_run, in all processes at once, from the same turn. A process that has ended
 * counts as an error in the result. */
uint64_t bench_clients_run(struct bench_clients *clients, const struct bench_run_opts *opts,
	struct bench_result *result);
/* The resources that the processes have used so far. */
void bench_clients_usage(const struct bench_clients *clients, struct bench_usage *ret_usage);
/* Adds them to a counter. */
void bench_clients_count(const struct bench_clients *clients, struct bench_counter *counter);
void bench_clients_close(struct bench_clients *clients); /* takes NULL; waits for them to end */

#endif
