/* client/device.c: opens the client's RDMA devices, which the options name or which lead to its
 * endpoints, and returns their names. */
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

void client_source(const struct client_endpoint *endpoint, char ret_source[RP_ADDRESS_TEXT_BYTES])
{
	char address[CLIENT_ADDRESS_BYTES];
	const char *why;

	ret_source[0] = '\0';
	if (client_resolve(endpoint->host, address, sizeof(address), &why) == 0)
		(void)rp_source(address, ret_source);
}

/* The endpoint whose route chooses the GID of a new device. The connection manager chooses that of
 * a session by itself, so where the client's first device has queue pairs for tokens or
 * hipobj-rc-v2, too, these decide. */
static const struct client_endpoint *routed(
	const struct neb_client *client, const struct client_endpoint *endpoint)
{
	for (uint32_t i = 0; i < client->endpoint_count && !client->device_count; i++)
		if (client_moves_for_http(client, &client->endpoints[i]))
			return &client->endpoints[i];
	return endpoint;
}

/* Completions of a session that are no request's: set-up, spare receives, keepalives, and what the
 * device has more than was asked for. */
#define COMPLETIONS_MORE 128u
#define COMPLETIONS_MIN	 1024u /* also of tokens and hipobj-rc-v2 */

static bool wants_device(const struct neb_client *client, const struct client_endpoint *endpoint)
{
	return endpoint->scheme == CLIENT_RDMA || client_moves_for_http(client, endpoint) ||
	       endpoint->owner;
}

/* The device that leads to the endpoint. */
static int device_find(const struct client_endpoint *endpoint, struct rp_found *ret_found)
{
	char address[CLIENT_ADDRESS_BYTES];
	const char *why = "";
	int ret = client_resolve(endpoint->host, address, sizeof(address), &why);

	*ret_found = (struct rp_found){0};
	if (ret == 0)
		return rp_find(address, endpoint->port, ret_found);
	snprintf(ret_found->why, sizeof(ret_found->why), "the host name %.100s: %.60s",
		endpoint->host, why);
	return ret;
}

/* The device with this number among those that the options name, separated by spaces; the last one
 * also serves for all further numbers. */
static int device_named(const char *wanted, uint32_t number, struct rp_found *ret_found)
{
	struct slice rest = slice_trim(slice_str(wanted)), name;

	*ret_found = (struct rp_found){.why = "as configured"};
	do {
		name = slice_split(&rest, ' ');
		rest = slice_trim(rest);
	} while (number-- && rest.len);
	return slice_copy_str(name, ret_found->device_name, sizeof(ret_found->device_name));
}

static void device_close(struct client_device *device)
{
	if (device->cq)
		rp_cq_close(device->cq);
	if (device->pd)
		rp_pd_close(device->pd);
	rp_close(device->rp);
	*device = (struct client_device){.cq = NULL};
}

/* Every session of the client may be on it. */
static uint32_t completions_max(const struct neb_client *client)
{
	uint32_t sessions = client->owner_count ? CLIENT_OWNERS_MAX : 1;

	/* A server may tell of more than the endpoints name. */
	if (client->rdma_count)
		sessions = CLIENT_PATHS_MAX;
	return MAX(sessions * (client->requests_max * 4 + COMPLETIONS_MORE), COMPLETIONS_MIN);
}

/* The device of that name, opened now if the client does not have it, for this endpoint. */
static int device_take(struct neb_client *client, const char *name,
	const struct client_endpoint *endpoint, uint32_t *ret_idx)
{
	char source[RP_ADDRESS_TEXT_BYTES];
	struct rp_open_opts opts = {.device_name = name, .gid_index = -1, .address = source};
	struct client_device *device = &client->devices[client->device_count];
	struct rp_device_attr attr = {.simulated = true};
	int ret;

	for (*ret_idx = 0; *ret_idx < client->device_count; ++*ret_idx)
		if (strcmp(client->devices[*ret_idx].name, name) == 0)
			return 0;
	if (client->device_count == CLIENT_DEVICES_MAX)
		return -ENOSPC;
	client_source(routed(client, endpoint), source);
	ret = rp_open(&opts, &device->rp);
	if (ret == 0)
		ret = rp_pd_open(device->rp, &device->pd);
	if (ret == 0)
		ret = rp_cq_open(device->rp, completions_max(client), &device->cq);
	if (ret) {
		device_close(device);
		return ret;
	}
	rp_device_attr(device->rp, &attr);
	device->simulated = attr.simulated;
	snprintf(device->name, sizeof(device->name), "%s", name);
	client->device_count++;
	return 0;
}

/* Gives the endpoint its device. */
static int endpoint_device(struct neb_client *client, struct client_endpoint *endpoint,
	uint32_t number, struct rp_found *ret_found)
{
	const char *wanted = client->device_wanted;
	bool named = wanted && *wanted && strcmp(wanted, "auto") != 0;
	int ret =
		named ? device_named(wanted, number, ret_found) : device_find(endpoint, ret_found);

	if (ret)
		return ret;
	ret = device_take(client, ret_found->device_name, endpoint, &endpoint->device_idx);
	if (ret)
		snprintf(ret_found->why, sizeof(ret_found->why), "RDMA device %.60s: %s",
			ret_found->device_name,
			ret == -ENOSPC ? "a client uses four devices at most" : strerror(-ret));
	return ret;
}

static void names_join(struct neb_client *client)
{
	size_t len = 0;

	for (uint32_t i = 0; i < client->device_count; i++)
		len += (size_t)snprintf(client->device_names + len,
			sizeof(client->device_names) - len, "%s%s", i ? " " : "",
			client->devices[i].name);
}

/* An endpoint whose device cannot be had uses the first device that could be. */
static int devices_take(struct neb_client *client)
{
	uint32_t number = 0;
	int error = 0;

	for (uint32_t i = 0; i < client->endpoint_count; i++) {
		struct client_endpoint *endpoint = &client->endpoints[i];
		bool first = !client->device_count, session = endpoint->scheme == CLIENT_RDMA;
		struct rp_found found;
		int ret;

		if (!wants_device(client, endpoint) || (!first && !session))
			continue;
		ret = endpoint_device(client, endpoint, session ? number++ : 0, &found);
		if (ret && !first)
			client_log(client, NEB_LOG_WARN, "rdma://%s:%u: %s", endpoint->host,
				endpoint->port, found.why);
		if (first && (ret == 0 || !error))
			snprintf(client->device_why, sizeof(client->device_why), "%s", found.why);
		if (ret && !error)
			error = ret;
	}
	return client->device_count ? 0 : error;
}

int client_device_open(struct neb_client *client)
{
	bool goes_on = client->transport == NEB_AUTO && client->http_count;
	int ret = devices_take(client);

	if (ret) {
		client->rdma_error = ret;
		client_log(client, goes_on ? NEB_LOG_WARN : NEB_LOG_ERROR, "%s%s",
			client->device_why, goes_on ? "; requests use HTTP" : "");
		return ret;
	}
	names_join(client);
	client_log(client, NEB_LOG_INFO, "RDMA device%s %s: %s",
		client->device_count == 1 ? "" : "s", client->device_names, client->device_why);
	return 0;
}

int client_device_join(struct neb_client *client, struct client_endpoint *endpoint)
{
	uint32_t before = client->device_count;
	struct rp_found found;
	int ret = endpoint_device(client, endpoint, client->rdma_count, &found);

	if (ret) {
		snprintf(endpoint->why, sizeof(endpoint->why), "%.120s", found.why);
		return ret;
	}
	if (client->device_count == before)
		return 0;
	ret = client_memory_join(client);
	if (ret) {
		snprintf(endpoint->why, sizeof(endpoint->why),
			"RDMA device %.60s cannot have the client's memory: %s", found.device_name,
			strerror(-ret));
		device_close(&client->devices[--client->device_count]);
		return ret;
	}
	names_join(client);
	return 0;
}

void client_device_close(struct neb_client *client)
{
	while (client->device_count)
		device_close(&client->devices[--client->device_count]);
}

const char *neb_client_device(const struct neb_client *client)
{
	return client->device_names;
}

const char *neb_client_device_why(const struct neb_client *client)
{
	return client->device_why;
}
