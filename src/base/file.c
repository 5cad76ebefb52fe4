/* base/file.c: see file.h. */
#include "base/file.h"

#include <stdio.h>
#include <string.h>

bool file_line(const char *path, char *buf, size_t buf_bytes)
{
	FILE *file = fopen(path, "re");
	bool ok = file && fgets(buf, (int)buf_bytes, file);

	if (file)
		fclose(file);
	buf[ok ? strcspn(buf, "\n") : 0] = '\0';
	return ok;
}
