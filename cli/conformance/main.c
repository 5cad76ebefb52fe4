/* cli/conformance/main.c: the program nebulaio-conformance: the command `nebulaio conformance`
 * without the rest of nebulaio, for tests of other servers. */
#include <stdio.h>
#include <string.h>

#include "cli.h"

static int print(const char *text)
{
	fputs(text, stdout);
	return CLI_OK;
}

int main(int argc, char **argv)
{
	bool only = argc == 2;

	if (only && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") ||
			    !strcmp(argv[1], "help"))) {
		printf("nebulaio-conformance: %s\n\n", CLI_CONFORMANCE.summary);
		return print(CLI_CONFORMANCE.usage);
	}
	if (only && (!strcmp(argv[1], "--version") || !strcmp(argv[1], "version")))
		return print("nebulaio-conformance " NEBULAIO_VERSION "\n");
	return CLI_CONFORMANCE.run(argc, argv);
}
