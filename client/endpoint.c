/* client/endpoint.c: a client's endpoints, and the addresses that NEBULAIO_CONNECT_TO gives
 * them. */
#include "client_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	struct slice prefix;
	uint16_t port;
} SCHEMES[] = {
	[CLIENT_RDMA] = {SLICE("rdma://"), 9100},
	[CLIENT_HTTP] = {SLICE("http://"), 9000},
	[CLIENT_HTTPS] = {SLICE("https://"), 9443},
};

/* HOST, HOST:PORT, [v6] or [v6]:PORT. */
static int endpoint_host_parse(struct client_endpoint *endpoint, struct slice text)
{
	struct slice host, port = SLICE_NONE;
	uint64_t number;

	if (text.len && text.data[0] == '[') {
		text = slice_from(text, 1);
		host = slice_split(&text, ']');
		if (!text.data || (text.len && text.data[0] != ':'))
			return -EINVAL;
		port = slice_from(text, 1);
	} else {
		host = slice_split(&text, ':');
		port = text;
	}
	if (!host.len || slice_copy_str(host, endpoint->host, sizeof(endpoint->host)) != 0)
		return -EINVAL;
	if (!port.len)
		return 0;
	if (slice_to_u64(port, &number) != 0 || number < 1 || number > UINT16_MAX)
		return -EINVAL;
	endpoint->port = (uint16_t)number;
	return 0;
}

/* NEBULAIO_CONNECT_TO, "HOST:PORT=HOST:PORT,…": a connection to the first goes to the second, so
 * that a program runs unchanged on another network. Not for programs with privileges. */
static int endpoint_led(struct neb_client *client, struct client_endpoint *endpoint)
{
	struct slice rest = slice_str(secure_getenv("NEBULAIO_CONNECT_TO"));
	bool v6 = strchr(endpoint->host, ':') != NULL;
	char said[CLIENT_HOST_LEN_MAX + 16];

	snprintf(said, sizeof(said), v6 ? "[%s]:%u" : "%s:%u", endpoint->host, endpoint->port);
	while (rest.len) {
		struct slice meant = slice_trim(slice_split(&rest, ','));
		struct slice pair = meant;
		struct slice from = slice_trim(slice_split(&meant, '='));
		struct client_endpoint to = *endpoint;

		if (!pair.len)
			continue;
		if (!from.len || !meant.data || endpoint_host_parse(&to, slice_trim(meant)) != 0) {
			client_log(client, NEB_LOG_ERROR,
				"NEBULAIO_CONNECT_TO: \"%.*s\" is not HOST:PORT=HOST:PORT",
				SLICE_FMT(pair));
			return -EINVAL;
		}
		if (slice_eq(from, slice_str(said))) {
			*endpoint = to;
			return 0;
		}
	}
	return 0;
}

int client_endpoint_at(
	struct neb_client *client, struct client_endpoint *endpoint, struct slice text)
{
	int ret = endpoint_host_parse(endpoint, text);

	return ret ? ret : endpoint_led(client, endpoint);
}

/* Keeps the last one, unless the list has it already: NEBULAIO_CONNECT_TO may send two to one
 * place. */
static void endpoint_keep(struct neb_client *client)
{
	const struct client_endpoint *last = &client->endpoints[client->endpoint_count];

	for (uint32_t i = 0; i < client->endpoint_count; i++) {
		const struct client_endpoint *other = &client->endpoints[i];

		if (other->scheme == last->scheme && other->port == last->port &&
			strcmp(other->host, last->host) == 0)
			return;
	}
	client->endpoint_count++;
	if (last->scheme == CLIENT_RDMA && last->group == client->group_count)
		client->group_count++;
	if (last->scheme == CLIENT_RDMA)
		client->rdma_count++;
	else
		client->http_count++;
	client->token_count += client_moves_for_http(client, last);
	client->owner_count += last->owner;
}

/* "HOST:PORT" behind an RDMA endpoint: another path to its server. */
static int path_parse(struct neb_client *client, struct slice text)
{
	struct client_endpoint *endpoint = &client->endpoints[client->endpoint_count];
	const struct client_endpoint *before = endpoint - 1;
	uint32_t paths = 0;
	int ret;

	if (!client->endpoint_count || before->scheme != CLIENT_RDMA)
		return -EINVAL;
	for (uint32_t i = 0; i < client->endpoint_count; i++)
		paths += client->endpoints[i].scheme == CLIENT_RDMA &&
			 client->endpoints[i].group == before->group;
	if (paths == CLIENT_PATHS_MAX)
		return -EINVAL;
	*endpoint = (struct client_endpoint){.scheme = CLIENT_RDMA,
		.port = SCHEMES[CLIENT_RDMA].port,
		.group = before->group,
		.given = endpoint->given};
	ret = client_endpoint_at(client, endpoint, text);
	if (ret == 0)
		endpoint_keep(client);
	return ret;
}

static int endpoint_parse(struct neb_client *client, struct slice text)
{
	struct client_endpoint *endpoint = &client->endpoints[client->endpoint_count];
	int ret;

	if (client->endpoint_count == CLIENT_ENDPOINTS_MAX)
		return -EINVAL;
	endpoint->given = slice_ends(text, SLICE("?paths=given"));
	if (endpoint->given)
		text.len -= strlen("?paths=given");
	if (slice_find(text, SLICE("://")) < 0)
		return path_parse(
			client, slice_ends(text, SLICE("/")) ? slice_to(text, text.len - 1) : text);
	endpoint->hipobj = slice_ends(text, SLICE("?rdma=hipobj"));
	if (endpoint->hipobj)
		text.len -= strlen("?rdma=hipobj");
	endpoint->owner = slice_ends(text, SLICE("?rdma=owner"));
	if (endpoint->owner)
		text.len -= strlen("?rdma=owner");
	endpoint->token = slice_ends(text, SLICE("?rdma"));
	if (endpoint->token)
		text.len -= strlen("?rdma");
	while (slice_ends(text, SLICE("/")) && !slice_ends(text, SLICE("//")))
		text.len--;
	for (size_t i = 0; i < ARRAY_LEN(SCHEMES); i++) {
		if (!slice_starts(text, SCHEMES[i].prefix))
			continue;
		endpoint->scheme = (enum client_scheme)i;
		endpoint->port = SCHEMES[i].port;
		endpoint->group = client->group_count;
		if (endpoint->scheme == CLIENT_RDMA
				? endpoint->token || endpoint->hipobj || endpoint->owner
				: endpoint->given)
			return -EINVAL;
		ret = client_endpoint_at(client, endpoint, slice_from(text, SCHEMES[i].prefix.len));
		if (ret == 0)
			endpoint_keep(client);
		return ret;
	}
	return -EINVAL;
}

int client_endpoints_parse(struct neb_client *client, const char *endpoints)
{
	const char *at = endpoints ? endpoints : "";

	while (*at) {
		size_t len = strcspn(at, ", ");

		if (len && endpoint_parse(client, slice_of(at, len)) != 0) {
			client_log(
				client, NEB_LOG_ERROR, "not an endpoint: \"%.*s\"", (int)len, at);
			return -EINVAL;
		}
		at += len;
		at += strspn(at, ", ");
	}
	if (client->owner_count && client->rdma_count && client->transport == NEB_AUTO) {
		client_log(client, NEB_LOG_ERROR,
			"\"%s\": with ?rdma=owner a gateway tells the RDMA addresses; leave "
			"rdma:// out",
			endpoints);
		return -EINVAL;
	}
	if (client->transport != NEB_AUTO)
		client->owner_count = 0;
	if (client->transport == NEB_HTTP)
		client->rdma_count = 0;
	else if (client->transport != NEB_AUTO)
		client->http_count = 0;
	if (client->rdma_count + client->http_count > 0)
		return 0;
	client_log(client, NEB_LOG_ERROR, "no endpoint for transport %s in \"%s\"",
		neb_transport_name(client->transport), endpoints ? endpoints : "");
	return -EINVAL;
}

/* The way of the requests while an endpoint fails, as the end of a sentence. */
static const char *other_way(const struct neb_client *client)
{
	if (client_has_path(client))
		return "; requests use the other paths until it is back";
	return client->transport == NEB_AUTO && client->http_count
		       ? "; requests use HTTP until it is back"
		       : "";
}

void client_endpoint_error(struct neb_client *client, struct client_endpoint *endpoint, int error)
{
	endpoint->error = error;
	if (!endpoint->told)
		client->rdma_error = error;
}

void client_endpoint_failed(
	struct neb_client *client, struct client_endpoint *endpoint, int error, const char *why)
{
	uint64_t now_ns = clock_now_ns();
	uint64_t backoff_ns =
		MIN(MAX(endpoint->backoff_ns * 2, CLIENT_BACKOFF_NS_MIN), CLIENT_BACKOFF_NS_MAX);

	endpoint->backoff_ns = backoff_ns;
	/* Half of it is random, so that the clients of one server do not reconnect at the same
	 * time. */
	endpoint->retry_ns = now_ns + backoff_ns / 2 + prng_below(&client->prng, backoff_ns / 2);
	client_endpoint_error(client, endpoint, error);
	if (why != endpoint->why)
		snprintf(endpoint->why, sizeof(endpoint->why), "%s", why);
	client_log(client, NEB_LOG_INFO, "rdma://%s:%u: no session: %s; tried again in %llu ms",
		endpoint->host, endpoint->port, endpoint->why,
		(unsigned long long)((endpoint->retry_ns - now_ns) / NS_PER_MS));
	/* The program does not know a told address, and it may be one of a network that this host
	 * is not on. */
	if (endpoint->warned || (endpoint->told && !endpoint->proven))
		return;
	endpoint->warned = true;
	client_log(client, NEB_LOG_WARN, "rdma://%s:%u: %s%s", endpoint->host, endpoint->port,
		endpoint->why, other_way(client));
}

int client_store_learn(
	struct neb_client *client, struct client_endpoint *endpoint, uint64_t store_id)
{
	uint64_t known = 0;
	bool same;

	if (endpoint->told) {
		known = endpoint->store_id;
		same = store_id && store_id == known;
	} else {
		same = !store_id || client->endpoint_count - client->told_count < 2 ||
		       atomic_compare_exchange_strong(client->store_id, &known, store_id) ||
		       known == store_id;
	}
	if (same)
		return 0;
	snprintf(endpoint->why, sizeof(endpoint->why),
		"it serves another store (%016llx) than the others (%016llx): name endpoints of "
		"one store",
		(unsigned long long)store_id, (unsigned long long)known);
	return -EXDEV;
}

void client_store_text(const struct neb_client *client, char text[17])
{
	uint64_t known = *client->store_id;

	snprintf(text, 17, known ? "%016llx" : "?", (unsigned long long)known);
}

static const char *const TRANSPORT_NAMES[] = {
	[NEB_AUTO] = "auto",
	[NEB_RDMA] = "rdma",
	[NEB_HTTP] = "http",
	[NEB_STRICT] = "strict",
	[NEB_NONE] = "none",
	[NEB_TOKEN] = "token",
};

const char *neb_transport_name(enum neb_transport transport)
{
	return (unsigned)transport < ARRAY_LEN(TRANSPORT_NAMES) ? TRANSPORT_NAMES[transport]
								: "unknown";
}

int neb_transport_parse(const char *name, enum neb_transport *ret_transport)
{
	for (unsigned i = 0; i < NEB_NONE; i++) {
		if (strcmp(name, TRANSPORT_NAMES[i]) == 0) {
			*ret_transport = (enum neb_transport)i;
			return 0;
		}
	}
	return -EINVAL;
}
