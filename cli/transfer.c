/* cli/transfer.c: the wait for one request of a transfer. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "transfer.h"

int transfer_wait(struct transfer *transfer, struct neb_result *ret_result)
{
	int ret = neb_wait(transfer->client, ret_result, 1, UINT64_MAX);

	if (ret < 1) {
		fprintf(stderr, "nebulaio: %s: %s\n", remote_text(transfer->key),
			strerror(ret ? -ret : EPROTO));
		return CLI_FAILED;
	}
	transfer->transport = ret_result->transport;
	memcpy(transfer->fallback, ret_result->fallback, sizeof(transfer->fallback));
	return CLI_OK;
}
