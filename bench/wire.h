/* bench/wire.h: a wire of our own: two network namespaces joined by a pair of veth interfaces, a
 * packet generator in the kernel on the far side, and two ways to receive on the near side. */
#ifndef BENCH_WIRE_H
#define BENCH_WIRE_H

#include "bench/machine.h"

struct bench_wire;

/* NULL when packets can be measured here; otherwise the reason. Leaves nothing running. */
const char *bench_wire_refused(void);

/* program: the program to run as `PROGRAM flow`, NULL: this one. -EPERM; -EOPNOTSUPP: built without
 * AF_XDP, or the kernel has no live packets for BPF programs (5.18). */
int bench_wire_open(
	const char *program, const struct bench_cpus *cpus, struct bench_wire **ret_wire);
void bench_wire_close(struct bench_wire *wire); /* takes NULL */

struct bench_wire_result {
	struct hist *took; /* bench_wire_ingest to a file: until it was durable; else not used */

	uint64_t received;
	uint64_t elapsed_ns;   /* of sending */
	uint64_t cpu_ns;       /* of the receiver */
	uint64_t copied_bytes; /* by the receiver's own code */
};
#define BENCH_WIRE_BYTES_MIN 64u   /* of a whole packet, Ethernet's head and all */
#define BENCH_WIRE_BYTES_MAX 1514u /* an MTU of 1500 */
/* Sends packets of this many bytes for about budget_ns from the client's processor. The receiver
 * runs on the server's: `nebulaio flow` to null:, or a plain loop of recvmmsg. */
/* With a path, payloads go to this file, which is replaced, and ret_result->took gets latencies. */
int bench_wire_ingest(struct bench_wire *wire, const char *path, uint32_t bytes, uint64_t budget_ns,
	struct bench_wire_result *ret_result);
int bench_wire_recvmmsg(struct bench_wire *wire, uint32_t bytes, uint64_t budget_ns,
	struct bench_wire_result *ret_result);

#endif
