/* base/hist.c: the log-linear histogram. */
#include "base/hist.h"

#include <string.h>

static unsigned bucket_of(uint64_t value)
{
	unsigned msb;

	if (value < (1u << HIST_SUB_BITS))
		return (unsigned)value;
	msb = 63u - (unsigned)__builtin_clzll(value);
	return ((msb - HIST_SUB_BITS + 1) << HIST_SUB_BITS) +
	       (unsigned)((value >> (msb - HIST_SUB_BITS)) - (1u << HIST_SUB_BITS));
}

/* The largest value that falls into the bucket. */
static uint64_t bucket_top(unsigned bucket)
{
	unsigned group = bucket >> HIST_SUB_BITS;
	uint64_t sub = bucket & ((1u << HIST_SUB_BITS) - 1);

	if (group == 0)
		return sub;
	return (((sub + (1u << HIST_SUB_BITS)) + 1) << (group - 1)) - 1;
}

void hist_reset(struct hist *hist)
{
	memset(hist, 0, sizeof(*hist));
	hist->min = UINT64_MAX;
}

void hist_add_many(struct hist *hist, uint64_t value, uint32_t count)
{
	hist->buckets[bucket_of(value)] += count;
	hist->count += count;
	hist->sum += value * count;
	if (value < hist->min)
		hist->min = value;
	if (value > hist->max)
		hist->max = value;
}

void hist_add(struct hist *hist, uint64_t value)
{
	hist_add_many(hist, value, 1);
}

void hist_visit(const struct hist *hist, hist_visit_fn *fn, void *arg)
{
	for (unsigned i = 0; i < HIST_BUCKETS; i++) {
		if (hist->buckets[i])
			fn(bucket_top(i), hist->buckets[i], arg);
	}
}

void hist_merge(struct hist *into, const struct hist *from)
{
	for (unsigned i = 0; i < HIST_BUCKETS; i++)
		into->buckets[i] += from->buckets[i];
	into->count += from->count;
	into->sum += from->sum;
	if (from->min < into->min)
		into->min = from->min;
	if (from->max > into->max)
		into->max = from->max;
}

uint64_t hist_quantile(const struct hist *hist, double quantile)
{
	uint64_t want = (uint64_t)(quantile * (double)hist->count);
	uint64_t seen = 0;

	if (hist->count == 0)
		return 0;
	if (want >= hist->count)
		want = hist->count - 1;
	for (unsigned i = 0; i < HIST_BUCKETS; i++) {
		seen += hist->buckets[i];
		if (seen > want) {
			uint64_t top = bucket_top(i);

			return top < hist->max ? top : hist->max;
		}
	}
	return hist->max;
}
