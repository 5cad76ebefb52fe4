/* cli/device.c: chooses the RDMA device for commands that use one directly. */
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "rdma/rdma.h"

int cli_device_find(
	const char *wanted, const char *address, uint16_t port, bool listens, char buf[64])
{
	struct rp_found found = {0};
	int ret;

	if (wanted && *wanted && strcmp(wanted, "auto") != 0) {
		snprintf(buf, 64, "%s", wanted);
		return CLI_OK;
	}
	ret = listens ? rp_find_listening(address, &found) : rp_find(address, port, &found);
	if (ret) {
		fprintf(stderr, "nebulaio: no RDMA device: %s\n", found.why);
		return CLI_FAILED;
	}
	snprintf(buf, 64, "%s", found.device_name);
	return CLI_OK;
}
