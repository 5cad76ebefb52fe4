/* bench/flows.h: streams of `nebulaio flow`, from a file through the simulated device into a file,
 * by two processes; and the latencies that both report. */
#ifndef BENCH_FLOWS_H
#define BENCH_FLOWS_H

#include <stdbool.h>

#include "base/hist.h"
#include "bench/machine.h"

struct bench_flow_result {
	struct hist *took; /* added to: of each piece, ns */
	uint64_t bytes;
	uint64_t elapsed_ns, cpu_ns; /* of the receiver */
};
#define BENCH_FLOW_BYTES (64 * MIB)
/* A stream of BENCH_FLOW_BYTES; the files are made in folder, and stay. peer: how long pieces take
 * from the start of their read to the receiver's memory; else how long records take from their
 * arrival until they are durable. program as in bench_wire_open. */
int bench_flow_run(const char *program, const struct bench_cpus *cpus, const char *folder,
	bool peer, struct bench_flow_result *result);

/* Adds a flow's summary of "durable" or "peer". -EPROTO: the summary has none. */
int bench_flow_took(const char *summary, const char *what, struct hist *took);

#endif
