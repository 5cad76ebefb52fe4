/* base/check.c: logs a CHECK that failed, then aborts. */
#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>

void check_failed(const char *file, int line, const char *func, const char *fact)
{
	fprintf(stderr,
		"nebulaio: internal error at %s:%d in %s(): CHECK(%s) failed; please report this\n",
		file, line, func, fact);
	fflush(stderr);
	abort();
}
