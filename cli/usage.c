/* cli/usage.c: how a command refuses its command line, and whether what it printed was written. */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

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

int cli_output_flush(void)
{
	static bool told;
	int error = fflush(stdout) ? errno : 0;

	if (!error && !ferror(stdout))
		return 0;
	if (!told)
		fprintf(stderr, "nebulaio: standard output: %s: what was printed is incomplete\n",
			error ? strerror(error) : "it could not be written");
	told = true;
	return -EIO;
}
