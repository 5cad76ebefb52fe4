/* tests/unit/counted.h: what this process has counted by a metric's name, under all its labels or
 * one. */
#ifndef TESTS_UNIT_COUNTED_H
#define TESTS_UNIT_COUNTED_H

#include <string.h>

#include "base/base.h"

struct counted {
	const char *name;
	const char *labels; /* NULL: all of them */
	uint64_t sum;
};

static inline void counted_add(const struct counter *counter, void *arg)
{
	struct counted *counted = arg;

	if (strcmp(counter->name, counted->name) == 0 &&
		(!counted->labels ||
			(counter->labels && strcmp(counter->labels, counted->labels) == 0)))
		counted->sum += counter_read(counter);
}

static inline uint64_t counted_with(const char *name, const char *labels)
{
	struct counted counted = {.name = name, .labels = labels};

	counter_visit(counted_add, &counted);
	return counted.sum;
}

static inline uint64_t counted(const char *name)
{
	return counted_with(name, NULL);
}

#endif
