/* tests/unit/counted.h: what this process has counted by a metric's name, under all its labels. */
#ifndef TESTS_UNIT_COUNTED_H
#define TESTS_UNIT_COUNTED_H

#include <string.h>

#include "base/base.h"

struct counted {
	const char *name;
	uint64_t sum;
};

static inline void counted_add(const struct counter *counter, void *arg)
{
	struct counted *counted = arg;

	if (strcmp(counter->name, counted->name) == 0)
		counted->sum += counter_read(counter);
}

static inline uint64_t counted(const char *name)
{
	struct counted counted = {.name = name};

	counter_visit(counted_add, &counted);
	return counted.sum;
}

#endif
