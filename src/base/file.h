/* base/file.h: reads small files of /proc and /sys, and changes directories durably. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* Reads the file's first line, without its newline, cut to what fits. False when the file cannot be
 * read or is empty; buf is then "". */
bool file_line(const char *path, char *buf, size_t buf_bytes);

/* Flushes a directory: files that were made, renamed or removed in it stay so after a crash. 0 or
 * -errno. */
int file_dir_sync(const char *dir);
/* Flushes the directory that holds the path. */
int file_parent_sync(const char *path);
/* Removes a directory and the files in it; it has no directories. 0, also when there is none, or
 * -errno. */
int file_dir_remove(const char *dir);

#endif
