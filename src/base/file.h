/* base/file.h: small files of /proc and /sys. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* The file's first line, without its end, cut to what fits. False: it cannot be read, or is empty;
 * buf is then "". */
bool file_line(const char *path, char *buf, size_t buf_bytes);

#endif
