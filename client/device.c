/* client/device.c: opens the client's RDMA device, which the options name or which leads to its
 * endpoints, and returns its name. */
#include "client_priv.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

int client_resolve(const char *host, char *ret_address, size_t address_bytes, const char **ret_why)
{
	struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
	struct addrinfo *info;
	int ret = getaddrinfo(host, NULL, &hints, &info);

	if (ret) {
		*ret_why = gai_strerror(ret);
		return -EHOSTUNREACH;
	}
	ret = getnameinfo(info->ai_addr, info->ai_addrlen, ret_address, (socklen_t)address_bytes,
		NULL, 0, NI_NUMERICHOST);
	freeaddrinfo(info);
	if (ret)
		*ret_why = gai_strerror(ret);
	return ret ? -EHOSTUNREACH : 0;
}

/* Tries the endpoints in the order of preference. The first endpoint that a device reaches decides,
 * because a client has one device. why: the first endpoint's reason, when no device is found. */
static int device_find(struct neb_client *client, struct rp_found *ret_found)
{
	struct rp_found none = {0}, found;
	int error = -ENODEV;

	for (uint32_t i = 0; i < client->endpoint_count; i++) {
		const struct client_endpoint *endpoint = &client->endpoints[i];
		char address[CLIENT_ADDRESS_BYTES];
		const char *why = "";
		int ret;

		if (endpoint->scheme != CLIENT_RDMA && !endpoint->token && !endpoint->hipobj &&
			!endpoint->owner)
			continue;
		found = (struct rp_found){0};
		ret = client_resolve(endpoint->host, address, sizeof(address), &why);
		if (ret)
			snprintf(found.why, sizeof(found.why), "the host name %.100s: %.60s",
				endpoint->host, why);
		else
			ret = rp_find(address, endpoint->port, &found);
		if (ret == 0) {
			*ret_found = found;
			return 0;
		}
		if (!none.why[0]) {
			none = found;
			error = ret;
		}
	}
	*ret_found = none;
	return error;
}

static int objects_open(struct neb_client *client, const char *device_name)
{
	struct rp_open_opts opts = {.device_name = device_name, .gid_index = -1};
	struct rp_device_attr attr = {.simulated = true};
	int ret = rp_open(&opts, &client->device);

	if (ret == 0)
		rp_device_attr(client->device, &attr);
	client->simulated = attr.simulated;
	if (ret == 0)
		ret = rp_pd_open(client->device, &client->pd);
	if (ret == 0)
		ret = rp_cq_open(client->device,
			(client->owner_count ? CLIENT_OWNERS_MAX : 1) * LIMIT_SESSION_REQUESTS_MAX *
				4,
			&client->cq);
	return ret;
}

int client_device_open(struct neb_client *client, const char *wanted)
{
	struct rp_found found = {.why = "as configured"};
	bool goes_on = client->transport == NEB_AUTO && client->http_count;
	int ret = 0;

	if (!wanted || !*wanted || strcmp(wanted, "auto") == 0)
		ret = device_find(client, &found);
	else if (slice_copy_str(slice_str(wanted), found.device_name, sizeof(found.device_name)))
		ret = -EINVAL;
	if (ret == 0) {
		ret = objects_open(client, found.device_name);
		if (ret)
			snprintf(found.why, sizeof(found.why), "RDMA device %.60s: %s",
				found.device_name, strerror(-ret));
	}
	snprintf(client->device_why, sizeof(client->device_why), "%s", found.why);
	if (ret) {
		client_device_close(client);
		client->rdma_error = ret;
		client_log(client, goes_on ? NEB_LOG_WARN : NEB_LOG_ERROR, "%s%s", found.why,
			goes_on ? "; requests use HTTP" : "");
		return ret;
	}
	memcpy(client->device_name, found.device_name, sizeof(client->device_name));
	client_log(client, NEB_LOG_INFO, "RDMA device %s: %s", client->device_name, found.why);
	return 0;
}

void client_device_close(struct neb_client *client)
{
	if (client->cq)
		rp_cq_close(client->cq);
	if (client->pd)
		rp_pd_close(client->pd);
	rp_close(client->device);
	client->cq = NULL;
	client->pd = NULL;
	client->device = NULL;
}

const char *neb_client_device(const struct neb_client *client)
{
	return client->device ? client->device_name : "";
}

const char *neb_client_device_why(const struct neb_client *client)
{
	return client->device_why;
}
