/* tests/unit/s3/arena.h: the arena of a program that parses documents; setup and teardown of its
 * group of tests. */
#ifndef TESTS_UNIT_S3_ARENA_H
#define TESTS_UNIT_S3_ARENA_H

#include "base/mem_arena.h"

static struct mem_arena arena;

static int arena_setup(void **state)
{
	(void)state;
	mem_arena_init(&arena);
	return 0;
}

static int arena_teardown(void **state)
{
	(void)state;
	mem_arena_free(&arena);
	return 0;
}

#endif
