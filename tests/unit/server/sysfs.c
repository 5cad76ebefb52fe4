/* tests/unit/server/sysfs.c: an emulated sysfs. */
#include "sysfs.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

char sysfs[] = "/tmp/nebulaio-sysfs-XXXXXX";

void sysfs_put(const char *path, const char *text)
{
	char full[512];
	FILE *file;

	snprintf(full, sizeof(full), "%s/%s", sysfs, path);
	for (char *slash = full + strlen(sysfs) + 1; (slash = strchr(slash, '/')) != NULL;
		slash++) {
		*slash = '\0';
		assert_true(mkdir(full, 0700) == 0 || errno == EEXIST);
		*slash = '/';
	}
	file = fopen(full, "we");
	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

static int drop(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
	(void)stat;
	(void)type;
	(void)ftw;
	return remove(path);
}

int sysfs_make(void **state)
{
	(void)state;
	strcpy(sysfs + strlen(sysfs) - 6, "XXXXXX");
	return mkdtemp(sysfs) ? 0 : -1;
}

int sysfs_remove(void **state)
{
	(void)state;
	return nftw(sysfs, drop, 8, FTW_DEPTH | FTW_PHYS);
}
