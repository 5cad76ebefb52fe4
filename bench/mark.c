/* bench/mark.c: the table of marks, and the comparison of a run with it. */
#include "bench/mark.h"

#include <math.h>

#define ROW(o, w, b, d)                                                      \
	{                                                                    \
		.kind = BENCH_ROW, .op = o, .way = w, .bytes = b, .depth = d \
	}
#define LOG_OF(blocks)                               \
	{                                            \
		.kind = BENCH_LOG, .depth = (blocks) \
	}

/* clang-format off */
const struct bench_mark BENCH_MARKS[] = {
	{"4 KiB GET, simulated, depth 1: times the shared-memory ping-pong", BENCH_TIMES_SLOWER,
		ROW(BENCH_GET, BENCH_RDMA, 4 * KIB, 1), {.kind = BENCH_PINGPONG}, true, 20, 10, 5},
	{"4 KiB GET, simulated, depth 1: times faster than our HTTP", BENCH_TIMES_FASTER,
		ROW(BENCH_GET, BENCH_RDMA, 4 * KIB, 1), ROW(BENCH_GET, BENCH_HTTP, 4 * KIB, 1),
		false, 10, 10, 20},
	{"4 KiB GET, simulated, depth 16: operations a second", BENCH_RATE,
		ROW(BENCH_GET, BENCH_RDMA, 4 * KIB, 16), {0}, false, NAN, 1.5e6, 4e6},
	{"4 KiB GET, simulated, depth 16: context switches per operation", BENCH_SWITCHES,
		ROW(BENCH_GET, BENCH_RDMA, 4 * KIB, 16), {0}, true, NAN, 0.0005, 0.0005},
	{"1 MiB GET, simulated, depth 1: share of one memcpy's speed", BENCH_TIMES_FASTER,
		ROW(BENCH_GET, BENCH_RDMA, MIB, 1), {.kind = BENCH_MEMCPY, .bytes = MIB},
		false, 0.7, 0.85, 0.95},
	{"1 MiB GET, simulated, depth 1: server copies per byte", BENCH_COPIES,
		ROW(BENCH_GET, BENCH_RDMA, MIB, 1), {0}, true, 0, 0, 0},
	{"4 KiB GET, simulated, depth 1, one-sided: times the ping-pong", BENCH_TIMES_SLOWER,
		ROW(BENCH_GET, BENCH_ONESIDED, 4 * KIB, 1), {.kind = BENCH_PINGPONG}, true, NAN, 5,
		3.5},
	{"4 KiB GET, simulated, depth 1, sealed: share of a plain one's speed", BENCH_TIMES_FASTER,
		ROW(BENCH_GET, BENCH_SEALED, 4 * KIB, 1), ROW(BENCH_GET, BENCH_RDMA, 4 * KIB, 1),
		false, NAN, 0.5, 0.7},
	{"1 MiB GET, simulated, depth 1, sealed: share of a plain one's speed", BENCH_TIMES_FASTER,
		ROW(BENCH_GET, BENCH_SEALED, MIB, 1), ROW(BENCH_GET, BENCH_RDMA, MIB, 1), false,
		NAN, 0.3, 0.5},
	{"HEAD, simulated, depth 1: times a GET of 4 KiB", BENCH_TIMES_SLOWER,
		ROW(BENCH_HEAD, BENCH_RDMA, 4 * KIB, 1), ROW(BENCH_GET, BENCH_RDMA, 4 * KIB, 1),
		true, NAN, 1.0, 0.8},
	{"4 KiB GET, HTTP with SigV4, 16 connections: share of nginx static", BENCH_RATE_SHARE,
		ROW(BENCH_GET, BENCH_HTTP, 4 * KIB, 16),
		{.kind = BENCH_NGINX, .bytes = 4 * KIB, .depth = 16}, false, 0.7, 1.0, 1.25},
	{"4 KiB GET, HTTP unsigned, 16 connections: share of nginx static", BENCH_RATE_SHARE,
		ROW(BENCH_GET, BENCH_UNSIGNED, 4 * KIB, 16),
		{.kind = BENCH_NGINX, .bytes = 4 * KIB, .depth = 16}, false, NAN, 1.1, 1.3},
	{"100 B GET, simulated, depth 1: many objects, share of 1,000's rate", BENCH_RATE_SHARE,
		ROW(BENCH_GET, BENCH_MANY, BENCH_SMALL_BYTES, 1),
		ROW(BENCH_GET, BENCH_RDMA, BENCH_SMALL_BYTES, 1), false, NAN, 0.5, 0.8},
	{"100 B GET, simulated, depth 16: many objects, share of 1,000's rate", BENCH_RATE_SHARE,
		ROW(BENCH_GET, BENCH_MANY, BENCH_SMALL_BYTES, 16),
		ROW(BENCH_GET, BENCH_RDMA, BENCH_SMALL_BYTES, 16), false, NAN, 0.5, 0.8},
	{"HEAD, simulated, depth 16: many objects, share of 1,000's rate", BENCH_RATE_SHARE,
		ROW(BENCH_HEAD, BENCH_MANY, BENCH_SMALL_BYTES, 16),
		ROW(BENCH_HEAD, BENCH_RDMA, BENCH_SMALL_BYTES, 16), false, NAN, 0.5, 0.8},
	{"4 KiB GET, HTTP with SigV4: 1,000 connections, share of 16's rate", BENCH_RATE_SHARE,
		ROW(BENCH_GET, BENCH_CONNECTIONS, 4 * KIB, BENCH_CONNECTIONS_MANY),
		ROW(BENCH_GET, BENCH_CONNECTIONS, 4 * KIB, 16), false, NAN, 0.7, 0.85},
	{"4 KiB GET, simulated, 1 in flight each: 256 sessions, share of 4's rate",
		BENCH_RATE_SHARE, ROW(BENCH_GET, BENCH_EACH, 4 * KIB, BENCH_EACH_MANY),
		ROW(BENCH_GET, BENCH_EACH, 4 * KIB, BENCH_EACH_FEW), false, NAN, 0.7, 0.9},
	{"1 MiB GET, HTTP with SigV4, 16 connections: share of nginx static", BENCH_RATE_SHARE,
		ROW(BENCH_GET, BENCH_HTTP, MIB, 16),
		{.kind = BENCH_NGINX, .bytes = MIB, .depth = 16}, false, NAN, 1.0, 1.15},
	{"4 KiB durable PUT, simulated, depth 1: times a raw log commit of 1", BENCH_TIMES_SLOWER,
		ROW(BENCH_PUT, BENCH_RDMA, 4 * KIB, 1), LOG_OF(1), true, NAN, 1.35, 1.15},
	{"4 KiB durable PUT, simulated, depth 16: share of a raw log of 16", BENCH_RATE_SHARE,
		ROW(BENCH_PUT, BENCH_RDMA, 4 * KIB, 16), LOG_OF(16), false, NAN, 0.4, 0.65},
	{"4 KiB durable PUT, simulated, depth 64: share of a raw log of 64", BENCH_RATE_SHARE,
		ROW(BENCH_PUT, BENCH_RDMA, 4 * KIB, 64), LOG_OF(64), false, 0.15, 0.25, 0.5},
	{"4 KiB durable PUT, HTTP, 64 connections: operations a second", BENCH_RATE,
		ROW(BENCH_PUT, BENCH_HTTP, 4 * KIB, 64), {0}, false, NAN, 35e3, 60e3},
	{"1 MiB durable PUT, HTTP, 16 connections: share of RDMA's rate", BENCH_RATE_SHARE,
		ROW(BENCH_PUT, BENCH_HTTP, MIB, 16), ROW(BENCH_PUT, BENCH_RDMA, MIB, 16), false,
		NAN, 0.6, 0.85},
	{"1,000-key list page, HTTP: p50 in us", BENCH_P50_US,
		ROW(BENCH_LIST, BENCH_HTTP, 0, 1), {0}, true, NAN, 500, 250},
	{"packets of 1,500 bytes by AF_XDP: times recvmmsg on the same veth", BENCH_RATE_SHARE,
		ROW(BENCH_INGEST, BENCH_XDP, 1500, 1), {.kind = BENCH_RECVMMSG, .bytes = 1500},
		false, NAN, 1.5, 1.85},
};
/* clang-format on */
const size_t BENCH_MARK_COUNT = ARRAY_LEN(BENCH_MARKS);

static bool has_other(const struct bench_mark *mark)
{
	return mark->measure == BENCH_TIMES_SLOWER || mark->measure == BENCH_TIMES_FASTER ||
	       mark->measure == BENCH_RATE_SHARE;
}

static const struct bench_record *find(
	const struct bench_group *group, const struct bench_subject *subject)
{
	for (uint32_t m = 0; m < group->count; m++) {
		if (bench_subject_same(&group->members[m]->subject, subject))
			return group->members[m];
	}
	return NULL;
}

static double value_of(const struct bench_mark *mark, const struct bench_sample *row,
	const struct bench_sample *other)
{
	switch (mark->measure) {
	case BENCH_TIMES_SLOWER:
		return row->p50_ns / other->p50_ns;
	case BENCH_TIMES_FASTER:
		return other->p50_ns / row->p50_ns;
	case BENCH_RATE_SHARE:
		return row->rate / other->rate;
	case BENCH_RATE:
		return row->rate;
	default:
		return row->p50_ns / 1e3;
	}
}

/* Values that exist only for a whole row, not for its slices. */
static double whole_value(enum bench_measure measure, const struct bench_record *row)
{
	if (measure == BENCH_COPIES)
		return row->counts.known && row->result.bytes
			       ? row->counts.copied_bytes / (double)row->result.bytes
			       : NAN;
	return row->server_known && row->result.ops
		       ? (double)(row->server.switches + row->client.switches) /
				 (double)row->result.ops
		       : NAN;
}

static void judge_samples(const struct bench_mark *mark, const struct bench_record *row,
	const struct bench_record *other, struct bench_mark_result *result)
{
	double values[BENCH_REPETITIONS_MAX], figures[BENCH_REPETITIONS_MAX];
	double anchors[BENCH_REPETITIONS_MAX];
	bool rates = mark->measure == BENCH_RATE_SHARE || mark->measure == BENCH_RATE;
	uint32_t count = MIN(row->sample_count, other->sample_count);

	for (uint32_t i = 0; i < count; i++) {
		const struct bench_sample limit = bench_record_limit(other, i);

		values[i] = value_of(mark, &row->samples[i], &limit);
		figures[i] = rates ? row->samples[i].rate : row->samples[i].p50_ns;
		anchors[i] = rates ? limit.rate : limit.p50_ns;
	}
	result->value = bench_span_of(values, count);
	result->figure = bench_span_of(figures, count);
	if (row != other)
		result->anchor = bench_span_of(anchors, count);
}

static enum bench_verdict verdict(const struct bench_mark *mark, double value, double limit)
{
	if (isnan(limit))
		return BENCH_NO_MARK;
	return (mark->less_is_better ? value <= limit : value >= limit) ? BENCH_REACHED
									: BENCH_MISSED;
}

bool bench_mark_judge(const struct bench_mark *mark, const struct bench_plan *plan,
	struct bench_mark_result *ret_result)
{
	struct bench_mark_result result = {0};

	for (uint32_t g = 0; g < plan->group_count && !result.value.count; g++) {
		const struct bench_record *row = find(&plan->groups[g], &mark->row);
		const struct bench_record *other =
			has_other(mark) ? find(&plan->groups[g], &mark->other) : row;
		double whole;

		if (!row || !other)
			continue;
		if (mark->measure == BENCH_COPIES || mark->measure == BENCH_SWITCHES) {
			whole = whole_value(mark->measure, row);
			result.value = bench_span_of(&whole, 1);
		} else {
			judge_samples(mark, row, other, &result);
		}
	}
	if (!result.value.count)
		return false;
	result.first = verdict(mark, result.value.median, mark->first);
	result.must = verdict(mark, result.value.median, mark->must);
	result.aim = verdict(mark, result.value.median, mark->aim);
	*ret_result = result;
	return true;
}
