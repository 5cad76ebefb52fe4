/* server/device.c: chooses the RDMA device of this host for rdma.device_name: auto. */
#include "server/server.h"

#include <stdio.h>
#include <string.h>

#include "rdma/rdma.h"

bool server_device_settle(struct config *config, char *why, size_t why_bytes)
{
	const char *address = config->rdma.enabled ? config->rdma.address : "";
	struct rp_found found = {0};

	if (strcmp(config->rdma.device_name, "auto") != 0)
		return false;
	rp_find_listening(address, &found);
	snprintf(why, why_bytes, "%s", found.why);
	/* The code that listens refuses a text that is no address. */
	snprintf(config->rdma.device_name, sizeof(config->rdma.device_name), "%s",
		found.device_name[0] ? found.device_name : "simulated");
	return config->rdma.enabled || config->storage.remote.secret_file[0];
}

bool server_device_missing(const struct config *config, char *text, size_t text_bytes)
{
	char names[256];

	text[0] = '\0';
	if (!config->rdma.enabled || !strcmp(config->rdma.device_name, "auto") ||
		rp_device_known(config->rdma.device_name, names, sizeof(names)))
		return false;
	snprintf(text, text_bytes,
		"rdma.device_name: no device '%s' on this host, which has:%s; name one of them "
		"(NEBULAIO_RDMA_DEVICE_NAME), or set rdma.enabled: false",
		config->rdma.device_name, names);
	return true;
}
