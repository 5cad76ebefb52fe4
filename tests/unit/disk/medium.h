/* tests/unit/disk/medium.h: a file of so many bytes in a folder of its own, as a medium. */
#ifndef TESTS_UNIT_DISK_MEDIUM_H
#define TESTS_UNIT_DISK_MEDIUM_H

#include "../unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct medium {
	char path[600];
	char dir[512];
};

static inline void medium_make(struct medium *medium, uint64_t bytes)
{
	const char *base = getenv("TMPDIR");
	int fd;

	snprintf(medium->dir, sizeof(medium->dir), "%s/nebulaio-medium-XXXXXX", base ? base : ".");
	assert_non_null(mkdtemp(medium->dir));
	snprintf(medium->path, sizeof(medium->path), "%s/medium", medium->dir);
	fd = open(medium->path, O_RDWR | O_CREAT, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	close(fd);
}

static inline void medium_remove(const struct medium *medium)
{
	unlink(medium->path);
	assert_int_equal(rmdir(medium->dir), 0);
}

#endif
