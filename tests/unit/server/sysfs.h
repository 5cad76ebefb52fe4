/* tests/unit/server/sysfs.h: a made-up sysfs, a folder of a test. */
#ifndef TESTS_SERVER_SYSFS_H
#define TESTS_SERVER_SYSFS_H

#include "../unit.h"

extern char sysfs[];
/* A file of it, with its folders. */
void sysfs_put(const char *path, const char *text);
/* As setup and teardown of a test. */
int sysfs_make(void **state);
int sysfs_remove(void **state);

#endif
