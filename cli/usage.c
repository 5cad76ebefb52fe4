/* cli/usage.c: how a command refuses its command line. */
#include <stdarg.h>
#include <stdio.h>

#include "cli.h"

int cli_usage_error(const struct cli_command *command, const char *fmt, ...)
{
	va_list args;

	fprintf(stderr, "nebulaio %s: ", command->name);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fprintf(stderr, "; `nebulaio help %s` shows how it is used\n", command->name);
	return CLI_USAGE;
}
