/* tests/unit/server/sysfs.h: an emulated sysfs in a folder of the test. */
#ifndef TESTS_SERVER_SYSFS_H
#define TESTS_SERVER_SYSFS_H

#include "../unit.h"

extern char sysfs[];
/* Creates a file of it, with its folders. */
void sysfs_put(const char *path, const char *text);
/* Setup and teardown of a test. */
int sysfs_make(void **state);
int sysfs_remove(void **state);

#endif
