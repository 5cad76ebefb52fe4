/* bench/span.h: summarizes the repetitions of one measurement. */
#ifndef BENCH_SPAN_H
#define BENCH_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct span {
	double median;
	double min;
	double max;
	uint32_t count; /* 0: nothing was measured, the rest is 0 */
};
/* Values that are not finite are left out. The median of an even number is the mean of the middle
 * two. At most BENCH_REPETITIONS_MAX values count. */
struct span bench_span_of(const double *values, size_t count);

/* Numbers for people, not negative, in three digits: "1.23", "45.6", "789", "1.23 k", "4.50 M";
 * "0.05" and "0.00042" keep two. */
#define BENCH_TEXT_BYTES 24
const char *bench_text_number(double value, char buf[BENCH_TEXT_BYTES]);
/* "850 ns", "1.23 us", "4.50 ms", "1.20 s". */
const char *bench_text_time(double ns, char buf[BENCH_TEXT_BYTES]);
/* "4 KiB", "1 MiB", "100 B". */
const char *bench_text_bytes(uint64_t bytes, char buf[BENCH_TEXT_BYTES]);

#endif
