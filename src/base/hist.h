/* base/hist.h: a log-linear histogram of latencies: 64 sub-buckets a power of two, under 1.6 %
 * error, fixed memory. One writer each; histograms of several writers are merged. */
#ifndef BASE_HIST_H
#define BASE_HIST_H

#include <stdint.h>

#define HIST_SUB_BITS 6
#define HIST_BUCKETS  ((64 - HIST_SUB_BITS + 1) << HIST_SUB_BITS)

struct hist {
	uint64_t count;
	uint64_t sum;
	uint64_t min;
	uint64_t max;
	uint32_t buckets[HIST_BUCKETS];
};

void hist_reset(struct hist *hist);
void hist_add(struct hist *hist, uint64_t value);
/* Adds the value count times. */
void hist_add_many(struct hist *hist, uint64_t value, uint32_t count);
/* Visits each recorded value with its count, from the smallest on, at the precision of
 * hist_quantile. */
typedef void hist_visit_fn(uint64_t value, uint32_t count, void *arg);
void hist_visit(const struct hist *hist, hist_visit_fn *fn, void *arg);
void hist_merge(struct hist *into, const struct hist *from);
/* The value at a quantile of 0 to 1 (0.5 is the median), at most 1.6 % high; 0 when empty. */
uint64_t hist_quantile(const struct hist *hist, double quantile);

#endif
