/* base/log.c: formats a line and writes it whole. */
#include "base/log.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum log_level log_level_now = LOG_INFO;

static const char *const LEVEL_NAMES[] = {"trace", "debug", "info", "warn", "error"};

void log_set_level(enum log_level level)
{
	log_level_now = level;
}

bool log_level_parse(const char *name, enum log_level *ret_level)
{
	for (unsigned i = 0; i < sizeof(LEVEL_NAMES) / sizeof(LEVEL_NAMES[0]); i++) {
		if (strcmp(name, LEVEL_NAMES[i]) == 0) {
			*ret_level = (enum log_level)i;
			return true;
		}
	}
	return false;
}

void log_line(enum log_level level, const char *tag, const char *fmt, ...)
{
	char line[1024];
	struct timespec ts;
	struct tm tm;
	size_t len;
	int n;
	va_list args;

	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	len = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &tm);
	n = snprintf(line + len, sizeof(line) - len, ".%06ldZ %-5s %s: ", ts.tv_nsec / 1000,
		LEVEL_NAMES[level], tag);
	len += (size_t)n;
	va_start(args, fmt);
	n = vsnprintf(line + len, sizeof(line) - len - 1, fmt, args);
	va_end(args);
	if (n < 0)
		return;
	len += (size_t)n;
	if (len > sizeof(line) - 2)
		len = sizeof(line) - 2;
	line[len++] = '\n';
	if (write(STDERR_FILENO, line, len) < 0)
		return; /* nowhere left to report to */
}
