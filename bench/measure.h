/* bench/measure.h: measures a group: a slice of each member in turn, repeated as often as the
 * options ask. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <signal.h>

#include "bench/coded.h"
#include "bench/noisy.h"
#include "bench/runner.h"
#include "bench/server.h"
#include "bench/wire.h"

/* Everything that a run needs; made by bench.c. */
struct bench_rig {
	const struct bench_opts *opts;
	struct bench_cpus cpus;
	unsigned cpu_count;
	char folder[4096];
	bool folder_is_tmpfs;
	int idle_fd; /* below 0: idle processors sleep, and this is why */
	int session_nice;
	int priority_error; /* 0: the measured processes go before others; else why not */
	/* Why cycles are not counted, or only those of the server; 0: they are. */
	int cycles_error;
	int server_cycles_error;
	struct bench_counter server_counter, client_counter; /* of the slice in progress */
	bool simulated; /* the RDMA device of the server under measurement */
	struct bench_target target;
	struct bench_opts other_opts; /* of the other server; only where opts has one */
	struct bench_target other;
	/* Of the group in progress. */
	struct bench_coded *coded; /* NULL: no row asks for it, or coded_error says why */
	int coded_error;
	/* Opened when a row of the group first needs them: the separate server, and the noisy
	 * tenants of it [0] and of the target [1]. */
	struct bench_server apart;
	struct bench_noisy *noisy[2][BENCH_NOISE_COUNT];
	struct bench_anchors *anchors;
	struct bench_wire *wire; /* NULL: packets are not measured, or wire_error says why */
	int wire_error;
	struct bench_nginx nginx;
	int nginx_error; /* 0: it runs; else why not */
	struct bench_data nginx_data[2];
	uint64_t cold_turn; /* cold slices continue where the one before ended */
	struct hist slice;  /* of the slice in progress */
};

/* If a row cannot be measured, its record says so; nothing else fails. Ends early when *stop is
 * set.
 */
void bench_measure_group(
	struct bench_rig *rig, struct bench_group *group, const volatile sig_atomic_t *stop);

#endif
