/* cli/cmd_flow_missing.c: refuses xdp: sources in a build without AF_XDP, and says what the build
 * lacked. */
#include <stdio.h>

#include "flow_cmd.h"

int flow_capture_run(struct flow_args *args)
{
	(void)args;
	fprintf(stderr, "nebulaio flow: this program was built without AF_XDP: the build "
			"lacked " NEBULAIO_XDP_MISSING ".\nInstall it and build again.\n");
	return CLI_FAILED;
}
