/* client/told.c: the further addresses that a proven server tells (PATHS, docs/spec/wire.md section
 * 3), as paths to it beside those that the options name.
 *
 * A told address is a number, is used only while the server tells it, and its failures are the
 * client's only in the log: a client that cannot reach it has what it was given. */
#include "session_priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Sessions are on their way to it, or have not ended. */
static bool in_use(const struct neb_client *client, const struct client_endpoint *endpoint)
{
	LIST_FOR_EACH (link, &client->sessions)
		if (CONTAINER_OF(link, struct client_session, link)->endpoint == endpoint)
			return true;
	LIST_FOR_EACH (link, &client->lost_sessions)
		if (CONTAINER_OF(link, struct client_session, link)->endpoint == endpoint)
			return true;
	return false;
}

/* The path of this group that leads there, by its name or by what that meant; or NULL. */
static struct client_endpoint *path_of(
	struct neb_client *client, uint32_t group, const struct client_endpoint *to)
{
	for (uint32_t i = 0; i < client->endpoint_count; i++) {
		struct client_endpoint *endpoint = &client->endpoints[i];

		if (endpoint->scheme == CLIENT_RDMA && endpoint->group == group &&
			endpoint->port == to->port &&
			(!strcmp(endpoint->host, to->host) || !strcmp(endpoint->address, to->host)))
			return endpoint;
	}
	return NULL;
}

/* A place for another path of the group: that of one which is told no more, or a new one. NULL:
 * there is none. */
static struct client_endpoint *place_of(struct neb_client *client, uint32_t group)
{
	uint32_t paths = 0;

	for (uint32_t i = 0; i < client->endpoint_count; i++) {
		struct client_endpoint *endpoint = &client->endpoints[i];

		if (endpoint->scheme != CLIENT_RDMA || endpoint->group != group)
			continue;
		if (endpoint->told && !endpoint->store_id && !in_use(client, endpoint))
			return endpoint;
		paths++;
	}
	if (paths == CLIENT_PATHS_MAX || client->endpoint_count == CLIENT_ENDPOINTS_MAX)
		return NULL;
	return &client->endpoints[client->endpoint_count];
}

static void address_take(
	struct client_session *session, const struct capsule_address *address, uint32_t group)
{
	struct neb_client *client = session->client;
	bool v4 = IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)(const void *)address->ip);
	struct client_endpoint to = {.scheme = CLIENT_RDMA, .group = group, .told = true};
	struct client_endpoint *endpoint;
	char host[INET6_ADDRSTRLEN], text[INET6_ADDRSTRLEN + 16];
	int ret;

	inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? address->ip + 12 : address->ip, host, sizeof(host));
	snprintf(text, sizeof(text), v4 ? "%s:%u" : "[%s]:%u", host, address->port);
	if (client_endpoint_at(client, &to, slice_str(text)))
		return;
	endpoint = path_of(client, group, &to);
	if (endpoint) {
		if (endpoint->told)
			endpoint->store_id = session->store_id;
		return;
	}
	endpoint = place_of(client, group);
	ret = endpoint ? client_device_join(client, &to) : -ENOSPC;
	if (ret) {
		client_log(client, NEB_LOG_INFO,
			"the server tells of rdma://%s, which is not used: %s", text,
			endpoint ? to.why : "there are enough paths");
		return;
	}
	if (endpoint == &client->endpoints[client->endpoint_count]) {
		client->endpoint_count++;
		client->rdma_count++;
		client->told_count++;
	}
	to.store_id = session->store_id;
	*endpoint = to;
	client_log(client, NEB_LOG_INFO, "the server tells of rdma://%s: another path to it", text);
}

/* Whether the program wants only the paths that it gave. */
static bool is_given(const struct neb_client *client, uint32_t group)
{
	for (uint32_t i = 0; i < client->endpoint_count; i++)
		if (client->endpoints[i].scheme == CLIENT_RDMA &&
			client->endpoints[i].group == group && client->endpoints[i].given)
			return true;
	return false;
}

bool client_wants_told(const struct client_session *session)
{
	/* A cluster's owners are no endpoints of the client: each is reached by one path. */
	return !session->client->owners && !is_given(session->client, session->endpoint->group);
}

void client_told_none(struct neb_client *client, uint32_t group)
{
	for (uint32_t i = 0; i < client->endpoint_count; i++)
		if (client->endpoints[i].told && client->endpoints[i].group == group)
			client->endpoints[i].store_id = 0;
}

int client_told(struct client_session *session, const void *capsule, uint32_t bytes)
{
	struct neb_client *client = session->client;
	uint32_t group = session->endpoint->group, count;
	const struct capsule_address *addresses;

	if (!session->paths || capsule_paths_decode(capsule, bytes, &addresses, &count))
		return -EPROTO;
	session->paths = false; /* it is told once */
	/* Without the store's name nothing told here could be compared with it. */
	if (!session->store_id || client->transport == NEB_HTTP)
		return 0;
	client_told_none(client, group);
	for (uint32_t i = 0; i < count; i++)
		if (capsule_address_is_host(&addresses[i]) &&
			(session->device->simulated || !capsule_address_is_loopback(&addresses[i])))
			address_take(session, &addresses[i], group);
	return 0;
}
