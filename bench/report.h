/* bench/report.h: reports of a run, for people and for programs. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include "bench/mark.h"
#include "bench/measure.h"

/* The machine and the method of the measurements. */
void bench_report_head(const struct bench_rig *rig);
/* The speeds of one group: its anchors, then its rows. */
void bench_report_speeds_head(void);
void bench_report_speeds(const struct bench_rig *rig, const struct bench_group *group);
/* The cost of an operation of each row, on both sides. */
void bench_report_costs(const struct bench_rig *rig, const struct bench_plan *plan);
/* Each mark, reached or not. */
void bench_report_marks(const struct bench_rig *rig, const struct bench_plan *plan);
/* As bench_mark_judge; a mark for the simulated device is none for another. */
bool bench_report_judge(const struct bench_rig *rig, const struct bench_plan *plan,
	const struct bench_mark *mark, struct bench_mark_result *ret_result);

/* -EIO and its like: the file could not be written. */
int bench_report_json(const struct bench_rig *rig, const struct bench_plan *plan, const char *path);

/* The row's speed relative to its anchor's: 1 is as fast. NAN entries without an anchor. */
struct span bench_share(const struct bench_record *row, const struct bench_record *anchor);
/* Copies that the kernel makes of each byte of a body, both hosts together: from a table of what
 * each path does, see docs/guide/bench.md. */
double bench_kernel_copies(const struct bench_subject *row);
/* "rdma (simulated)", "rdma", "http". */
const char *bench_way_name(const struct bench_rig *rig, const struct bench_subject *row);

#endif
