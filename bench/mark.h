/* bench/mark.h: the marks: the required and the desired value of a figure, as a ratio to an anchor
 * measured in the same group where there is one. */
#ifndef BENCH_MARK_H
#define BENCH_MARK_H

#include "bench/plan.h"
#include "bench/span.h"

enum bench_measure {
	BENCH_TIMES_SLOWER, /* p50 of the row over p50 of the other */
	BENCH_TIMES_FASTER, /* p50 of the other over p50 of the row */
	BENCH_RATE_SHARE,   /* rate of the row over rate of the other */
	BENCH_RATE,	    /* of the row, a second */
	BENCH_P50_US,	    /* of the row */
	BENCH_COPIES,	    /* bytes that the server copied, for each byte moved */
	BENCH_SWITCHES,	    /* context switches of both sides, for each operation */
};

struct bench_mark {
	const char *title;
	enum bench_measure measure;
	struct bench_subject row;
	struct bench_subject other; /* the anchor, or the other row */
	bool less_is_better;
	double first; /* NAN: none. The order is the order in which they get harder. */
	double must;
	double aim;
};
extern const struct bench_mark BENCH_MARKS[];
extern const size_t BENCH_MARK_COUNT;

enum bench_verdict { BENCH_NO_MARK, BENCH_MISSED, BENCH_REACHED };
struct bench_mark_result {
	struct span value;  /* count 0: not measured */
	struct span figure; /* of the row, and of the other: ns, or a rate */
	struct span anchor;
	enum bench_verdict first;
	enum bench_verdict must;
	enum bench_verdict aim;
};
/* False when the run has not measured its row, or the row or anchor that it is compared with. */
bool bench_mark_judge(const struct bench_mark *mark, const struct bench_plan *plan,
	struct bench_mark_result *ret_result);

#endif
