/* bench/span.c: medians, and numbers as people read them. */
#include "bench/span.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "bench/bench.h"

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

struct span bench_span_of(const double *values, size_t count)
{
	double sorted[BENCH_REPETITIONS_MAX];
	struct span span = {0};

	for (size_t i = 0; i < count && span.count < BENCH_REPETITIONS_MAX; i++) {
		if (isfinite(values[i]))
			sorted[span.count++] = values[i];
	}
	if (!span.count)
		return span;
	qsort(sorted, span.count, sizeof(sorted[0]), compare);
	span.min = sorted[0];
	span.max = sorted[span.count - 1];
	span.median = (sorted[(span.count - 1) / 2] + sorted[span.count / 2]) / 2;
	return span;
}

static const char *three_digits(double value, const char *unit, char buf[BENCH_TEXT_BYTES])
{
	int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;

	if (value > 0 && value < 0.0995)
		snprintf(buf, BENCH_TEXT_BYTES, "%.2g%s", value, unit);
	else
		snprintf(buf, BENCH_TEXT_BYTES, "%.*f%s", decimals, value, unit);
	return buf;
}

const char *bench_text_number(double value, char buf[BENCH_TEXT_BYTES])
{
	if (value >= 999.5e6)
		return three_digits(value / 1e9, " G", buf);
	if (value >= 999.5e3)
		return three_digits(value / 1e6, " M", buf);
	if (value >= 999.5)
		return three_digits(value / 1e3, " k", buf);
	return three_digits(value, "", buf);
}

const char *bench_text_time(double ns, char buf[BENCH_TEXT_BYTES])
{
	if (ns >= 999.5e6)
		return three_digits(ns / 1e9, " s", buf);
	if (ns >= 999.5e3)
		return three_digits(ns / 1e6, " ms", buf);
	if (ns >= 999.5)
		return three_digits(ns / 1e3, " us", buf);
	return three_digits(ns, " ns", buf);
}

const char *bench_text_bytes(uint64_t bytes, char buf[BENCH_TEXT_BYTES])
{
	if (bytes >= MIB && bytes % MIB == 0)
		snprintf(buf, BENCH_TEXT_BYTES, "%llu MiB", (unsigned long long)(bytes / MIB));
	else if (bytes >= KIB && bytes % KIB == 0)
		snprintf(buf, BENCH_TEXT_BYTES, "%llu KiB", (unsigned long long)(bytes / KIB));
	else
		snprintf(buf, BENCH_TEXT_BYTES, "%llu B", (unsigned long long)bytes);
	return buf;
}
