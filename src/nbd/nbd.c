/* nbd/nbd.c: the server of network block devices: its listener, its connections, its end. */
#include "nbd/nbd_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* How long a server that ends waits for answers that clients do not take. */
#define DRAIN_NS (10 * NS_PER_S)

/* ---- Connections. ---- */

static void connection_end(struct nbd_connection *connection)
{
	struct nbd *nbd = connection->nbd;

	CHECK(connection->magic == NBD_CONNECTION_MAGIC);
	CHECK(!connection->requests);
	net_close(connection->stream);
	list_remove(&connection->link);
	nbd->connection_count--;
	magic_clear(&connection->magic);
	free(connection);
	if (nbd->acceptor)
		fiber_wake(nbd->acceptor);
	if (nbd->drainer)
		fiber_wake(nbd->drainer);
}

static void connection_main(void *arg)
{
	struct nbd_connection *connection = arg;
	const char *peer = net_peer(connection->stream);
	int ret = nbd_handshake(connection);

	if (!ret) {
		const char *name = connection->export->name;

		log_info("nbd", "%s uses %s%s", peer, name, connection->secure ? " by TLS" : "");
		nbd_serve(connection);
		log_info("nbd", "%s left %s: %llu bytes read, %llu written", peer, name,
			(unsigned long long)connection->read_bytes,
			(unsigned long long)connection->written_bytes);
	} else if (ret == -EACCES) {
		log_limited(LOG_WARN, "nbd", "%s is refused: it does not begin TLS", peer);
	} else if (ret != -ECONNABORTED && ret != -ECANCELED && ret != -ECONNRESET) {
		log_limited(LOG_WARN, "nbd", "%s is refused: %s", peer,
			ret == -ENOENT ? "it names no export of this server" : strerror(-ret));
	}
	connection_end(connection);
}

static void connection_start(struct nbd *nbd, struct net_stream *stream)
{
	struct nbd_connection *connection = calloc(1, sizeof(*connection));

	if (!connection) {
		net_close(stream);
		return;
	}
	connection->magic = NBD_CONNECTION_MAGIC;
	connection->nbd = nbd;
	connection->stream = stream;
	list_init(&connection->senders);
	net_keepalive(stream, NBD_KEEPALIVE_S);
	list_push_back(&nbd->connections, &connection->link);
	nbd->connection_count++;
	if (fiber_spawn(nbd->opts.reactor, "nbd", connection_main, connection)) {
		log_limited(LOG_WARN, "nbd", "%s is refused: no fiber is free", net_peer(stream));
		connection_end(connection);
	}
}

/* A full server ends the oldest connection that has chosen no export, so silent connections do not
 * keep others out. */
static void evict_one(struct nbd *nbd)
{
	LIST_FOR_EACH (link, &nbd->connections) {
		struct nbd_connection *connection = CONTAINER_OF(link, struct nbd_connection, link);

		if (connection->export)
			continue;
		if (!connection->evicted)
			net_shutdown(connection->stream);
		connection->evicted = true;
		return;
	}
}

static bool room_make(struct nbd *nbd)
{
	while (nbd->connection_count >= NBD_CONNECTIONS_MAX && !nbd->draining) {
		evict_one(nbd);
		nbd->acceptor = fiber_self();
		fiber_park();
		nbd->acceptor = NULL;
	}
	return !nbd->draining;
}

static void accept_main(void *arg)
{
	struct nbd *nbd = arg;
	int ret = 0;

	while (!nbd->draining && ret != -ECANCELED) {
		struct net_stream *stream;

		ret = net_accept(nbd->listener, &stream);
		if (!ret && room_make(nbd))
			connection_start(nbd, stream);
		else if (!ret)
			net_close(stream);
	}
	nbd->accepting = false;
	if (nbd->drainer)
		fiber_wake(nbd->drainer);
}

/* ---- The server. ---- */

int nbd_open(const struct nbd_opts *opts, const char *address, struct nbd **ret_nbd)
{
	struct nbd *nbd = calloc(1, sizeof(*nbd));
	int ret;

	if (!nbd)
		return -ENOMEM;
	CHECK(opts->export_count && opts->export_count <= NBD_EXPORTS_MAX);
	nbd->opts = *opts;
	memcpy(nbd->exports, opts->exports, opts->export_count * sizeof(nbd->exports[0]));
	nbd->opts.exports = nbd->exports;
	nbd->starved_ns = NBD_STARVED_NS;
	list_init(&nbd->connections);
	list_init(&nbd->starved);
	if (strncmp(address, NBD_UNIX_SCHEME, strlen(NBD_UNIX_SCHEME)) == 0)
		ret = net_listen_unix(
			opts->reactor, address + strlen(NBD_UNIX_SCHEME), &nbd->listener);
	else
		ret = net_listen_patiently(opts->reactor, address, &nbd->listener);
	if (!ret)
		ret = fiber_spawn(opts->reactor, "nbd accept", accept_main, nbd);
	nbd->accepting = !ret;
	if (ret) {
		nbd_close(nbd);
		return ret;
	}
	*ret_nbd = nbd;
	return 0;
}

uint16_t nbd_port(const struct nbd *nbd)
{
	return net_listener_port(nbd->listener);
}

/* Connections without a request in progress end at once. */
static void drain_some(struct nbd *nbd, bool all)
{
	LIST_FOR_EACH (link, &nbd->connections) {
		struct nbd_connection *connection = CONTAINER_OF(link, struct nbd_connection, link);

		if (all || !connection->requests)
			net_shutdown(connection->stream);
	}
}

void nbd_drain(struct nbd *nbd)
{
	uint64_t deadline_ns = clock_now_ns() + DRAIN_NS;

	nbd->draining = true;
	net_listener_close(nbd->listener);
	nbd->listener = NULL;
	nbd->drainer = fiber_self();
	if (nbd->acceptor)
		fiber_wake(nbd->acceptor);
	while (nbd->connection_count || nbd->accepting) {
		bool late = clock_now_ns() >= deadline_ns;

		drain_some(nbd, late);
		(void)fiber_park_until(late ? DEADLINE_NONE : deadline_ns);
	}
	nbd->drainer = NULL;
}

void nbd_close(struct nbd *nbd)
{
	if (!nbd)
		return;
	CHECK(list_empty(&nbd->connections));
	if (nbd->listener)
		net_listener_close(nbd->listener);
	free(nbd);
}
