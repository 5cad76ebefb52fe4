/* base/check.c: logs a CHECK that failed and who called it, then aborts. */
#include "base/check.h"

#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CALLERS_MAX 32

void check_failed(const char *file, int line, const char *func, const char *fact)
{
	void *callers[CALLERS_MAX];

	fprintf(stderr,
		"nebulaio: internal error at %s:%d in %s(): CHECK(%s) failed; please report this "
		"and the calls below\n",
		file, line, func, fact);
	fflush(stderr);
	backtrace_symbols_fd(callers, backtrace(callers, CALLERS_MAX), STDERR_FILENO);
	abort();
}
