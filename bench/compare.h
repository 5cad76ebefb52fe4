/* bench/compare.h: another S3 server beside ours: the same HTTP rows, in the same turns. */
#ifndef BENCH_COMPARE_H
#define BENCH_COMPARE_H

#include "bench/measure.h"

/* Reaches the server that opts->compare names, and makes a bucket in it. On failure standard error
 * has the reason. bench_target_close(&rig->other) removes the bucket. */
int bench_compare_open(struct bench_rig *rig);
/* Prints how many times as fast ours is, row by row. */
void bench_compare_report(const struct bench_rig *rig, const struct bench_plan *plan);

#endif
