/* base/file.c: reads small files of /proc and /sys, and flushes directories. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool file_line(const char *path, char *buf, size_t buf_bytes)
{
	FILE *file = fopen(path, "re");
	bool ok = file && fgets(buf, (int)buf_bytes, file);

	if (file)
		fclose(file);
	buf[ok ? strcspn(buf, "\n") : 0] = '\0';
	return ok;
}

int file_dir_sync(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int ret;

	if (fd < 0)
		return -errno;
	/* A file system that has nothing to flush for a directory returns EINVAL or EROFS. */
	ret = fsync(fd) && errno != EINVAL && errno != EROFS ? -errno : 0;
	close(fd);
	return ret;
}

int file_parent_sync(const char *path)
{
	const char *slash = strrchr(path, '/');
	char dir[4096];

	if (!slash)
		return file_dir_sync(".");
	if (slash == path)
		return file_dir_sync("/");
	if ((size_t)snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path), path) >= sizeof(dir))
		return -ENAMETOOLONG;
	return file_dir_sync(dir);
}

int file_dir_remove(const char *dir)
{
	DIR *listing = opendir(dir);
	const struct dirent *entry;
	int ret = 0;

	if (!listing)
		return errno == ENOENT ? 0 : -errno;
	while (!ret && (entry = readdir(listing)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
			unlinkat(dirfd(listing), entry->d_name, 0))
			ret = -errno;
	closedir(listing);
	if (!ret && rmdir(dir))
		ret = -errno;
	return ret;
}
