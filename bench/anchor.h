/* bench/anchor.h: the local limits of this machine, without our code. Each anchor measures for
 * about budget_ns and returns nanoseconds: of one round trip, one copy, one commit. */
#ifndef BENCH_ANCHOR_H
#define BENCH_ANCHOR_H

#include <stdint.h>

#include "bench/machine.h"

struct bench_anchors;

/* dir: the folder of the raw log's file, on the same disk as the server's data. The file is removed
 * at close.
 */
int bench_anchors_open(
	const char *dir, const struct bench_cpus *cpus, struct bench_anchors **ret_anchors);
void bench_anchors_close(struct bench_anchors *anchors); /* takes NULL */

/* A word in shared memory, from the client's core to the server's and back; both spin. */
int bench_anchor_pingpong(struct bench_anchors *anchors, uint64_t budget_ns, double *ret_ns);
/* One memcpy of this many bytes, up to 64 MiB, into one warm buffer, from each of the objects that
 * a hot row has, in turn. */
int bench_anchor_memcpy(
	struct bench_anchors *anchors, uint64_t bytes, uint64_t budget_ns, double *ret_ns);
/* 64 bytes over TCP on the loopback device and back; both sides spin in recv. */
int bench_anchor_tcp(struct bench_anchors *anchors, uint64_t budget_ns, double *ret_ns);
/* A given number of bytes of an endless TCP stream on the loopback device: one side sends, the
 * client's side receives, each with the same 256 KiB of memory again and again. */
int bench_anchor_stream(
	struct bench_anchors *anchors, uint64_t bytes, uint64_t budget_ns, double *ret_ns);
/* blocks of 4 KiB in one O_DIRECT write into a prewritten file, and fdatasync, on the server's
 * core: the median commit. Up to 16 MiB. */
int bench_anchor_log(
	struct bench_anchors *anchors, uint32_t blocks, uint64_t budget_ns, double *ret_ns);
#define BENCH_LOG_BLOCK_BYTES 4096u
#define BENCH_LOG_BLOCKS_MAX  4096u

#endif
