/* cli/cmd_flow_missing.c: `nebulaio flow` of a build without AF_XDP: says what the build lacked. */
#include <stdio.h>

#include "cli.h"

static const char USAGE[] =
	"This program was built without AF_XDP: the build lacked " NEBULAIO_XDP_MISSING ".\n"
	"Install it and build again.\n";

static int flow_main(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	fprintf(stderr, "nebulaio flow: %s", USAGE);
	return CLI_FAILED;
}

const struct cli_command CLI_FLOW = {
	.name = "flow",
	.summary = "store an interface's packets as files or objects (not in this build)",
	.usage = USAGE,
	.run = flow_main,
};
