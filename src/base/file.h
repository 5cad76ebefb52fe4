/* base/file.h: small files of /proc and /sys; and names that must last. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* The file's first line, without its end, cut to what fits. False: it cannot be read, or is empty;
 * buf is then "". */
bool file_line(const char *path, char *buf, size_t buf_bytes);

/* Flushes a directory: what was made, renamed or removed in it survives a crash. 0 or -errno. */
int file_dir_sync(const char *dir);
/* The same of the directory that holds the path. */
int file_parent_sync(const char *path);

#endif
