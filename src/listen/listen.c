/* listen/listen.c: accepts HTTP and HTTPS connections on one reactor and drains them at shutdown.
 */
#include "listen/listen.h"

#include <errno.h>
#include <stdlib.h>

DEFINE_COUNTER_FULL(connections_full, "http_connections");

DEFINE_COUNTER(
	connections_total, "nebulaio_http_connections_total", NULL, "HTTP connections accepted.");
DEFINE_COUNTER(connections_now, "nebulaio_http_connections", NULL, "HTTP connections open now.");

DEFINE_COUNTER(evicted, "nebulaio_http_connections_evicted_total", NULL,
	"Connections closed to make room for others.");

/* While no connection can make room: how long until the next look. */
#define EVICT_LOOK_NS (50 * NS_PER_MS)

/* The answer to plain HTTP on a TLS port. */
#define HTTP_TO_HTTPS                                                                  \
	"HTTP/1.1 400 Bad Request\r\nServer: NebulaIO\r\nContent-Type: text/plain\r\n" \
	"Content-Length: 54\r\nConnection: close\r\n\r\n"                              \
	"This is an HTTPS port: begin the address with https://"
/* The answer to a connection without a fiber, because overload is temporary. */
#define TOO_MANY_FIBERS                                                                   \
	"HTTP/1.1 503 Slow Down\r\nServer: NebulaIO\r\nContent-Type: application/xml\r\n" \
	"Retry-After: 1\r\nContent-Length: 126\r\nConnection: close\r\n\r\n"              \
	"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"                                    \
	"<Error><Code>SlowDown</Code><Message>Please reduce your request rate."           \
	"</Message></Error>"
/* For how long, and how many bytes, a refused connection is still read; and for how long when the
 * accepting fiber itself refuses it, because the next connections wait for that fiber. */
#define REFUSE_LINGER_NS	NS_PER_S
#define REFUSE_BUSY_NS		(20 * NS_PER_MS)
#define REFUSE_LINGER_BYTES_MAX (256 * KIB)

struct listen {
	struct listen_opts opts;
	struct net_listener *listener;
	struct list connections;
	struct front_http_pool pool;
	uint32_t connection_count;
	_Atomic bool draining;
	bool accepting;
	struct fiber *acceptor; /* parked at the connection limit */
	struct fiber *drainer;
};

#define CONNECTION_MAGIC 0xc099ec71u
struct connection {
	uint32_t magic; /* until it has ended */
	struct list link;
	struct listen *listen;
	struct net_stream *stream;
	struct front_http_opts http;
	struct front_http *waiting; /* it has no fiber */
	uint16_t share;		    /* of its fiber, meanwhile */
	struct fiber_start more;    /* its next request waits for one */
	bool idle;
	bool serving;
	bool evicted;
};

static void connection_end(struct connection *connection)
{
	struct listen *listen = connection->listen;

	CHECK(connection->magic == CONNECTION_MAGIC);
	CHECK(listen->connection_count);
	list_remove(&connection->link);
	magic_clear(&connection->magic);
	free(connection);
	listen->connection_count--;
	counter_sub(&connections_now, 1);
	if (listen->acceptor)
		fiber_wake(listen->acceptor);
	if (listen->drainer)
		fiber_wake(listen->drainer);
}

/* Ends a connection that never used HTTP, in order. The last message reaches the peer; a close with
 * unread bytes would prevent that. */
static void connection_refuse(
	struct connection *connection, struct slice last_words, uint64_t linger_ns)
{
	uint64_t deadline_ns = clock_now_ns() + linger_ns;
	struct iovec iov = {(void *)(uintptr_t)last_words.data, last_words.len};
	struct net_stream *stream = connection->stream;
	uint32_t bytes = 0;
	char unread[1024];
	size_t got;

	if (!last_words.len || !net_sendv(stream, &iov, 1, deadline_ns)) {
		net_send_end(stream);
		while (bytes < REFUSE_LINGER_BYTES_MAX &&
			!net_recv(stream, unread, sizeof(unread), deadline_ns, &got) && got)
			bytes += (uint32_t)got;
	}
	net_close(stream);
}

/* Whether HTTP may begin on it. A connection in its handshake is idle: it has asked for nothing. */
static bool connection_secure(struct connection *connection)
{
	const struct listen_opts *opts = &connection->listen->opts;
	int err = net_tls_accept(
		opts->tls, connection->stream, clock_now_ns() + opts->handshake_timeout_ns);

	if (!err) {
		connection->idle = false;
		return true;
	}
	if (err == -EPROTO || err == -EPROTOTYPE)
		connection_refuse(connection,
			err == -EPROTOTYPE ? SLICE(HTTP_TO_HTTPS) : SLICE_NONE, REFUSE_LINGER_NS);
	else
		net_close(connection->stream);
	return false;
}

/* Until a client has authenticated, its processor time counts for all clients at the peer's
 * address. Requests of the admin listener go before clients. */
static void connection_join(struct connection *connection)
{
	const struct flow_budget *budget = connection->listen->opts.core->budget;
	struct slice peer = slice_str(net_peer(connection->stream));

	if (!connection->http.handle)
		fiber_share_set(flow_share_of_peer(budget, peer));
}

/* The last call of a connection's fiber. */
static void connection_leave(struct connection *connection, struct front_http *waiting)
{
	connection->waiting = waiting;
	connection->share = fiber_share();
	if (!waiting)
		connection_end(connection);
}

static void connection_main(void *arg)
{
	struct connection *connection = arg;

	struct front_http *waiting = NULL;

	connection_join(connection);
	if (!connection->listen->opts.tls || connection_secure(connection))
		waiting = front_http_serve(&connection->http, connection->stream);
	connection_leave(connection, waiting);
}

static void connection_more(void *arg)
{
	struct connection *connection = arg;

	CHECK(connection->magic == CONNECTION_MAGIC);
	connection_leave(connection, front_http_go_on(connection->waiting));
}

/* Its next request comes, or its end. */
static void connection_again(void *arg)
{
	struct connection *connection = arg;
	struct reactor *reactor = connection->listen->opts.core->reactor;

	CHECK(connection->magic == CONNECTION_MAGIC);
	connection->more =
		(struct fiber_start){.name = "http", .fn = connection_more, .arg = connection};
	if (!fiber_start_in(reactor, connection->share, &connection->more))
		return;
	log_limited(LOG_WARN, "listen", "connection from %s cut: too many fibers on this core",
		net_peer(connection->stream));
	front_http_drop(connection->waiting);
	connection_end(connection);
}

static void connection_start(struct listen *listen, struct net_stream *stream)
{
	struct connection *connection = malloc(sizeof(*connection));

	if (!connection) {
		net_close(stream);
		return;
	}
	*connection = (struct connection){.magic = CONNECTION_MAGIC,
		.listen = listen,
		.stream = stream,
		.http = listen->opts.http};
	connection->http.core = listen->opts.core;
	connection->http.pool = &listen->pool;
	connection->http.again = (struct net_later){connection_again, connection};
	connection->http.draining = &listen->draining;
	connection->http.ret_idle = &connection->idle;
	connection->http.ret_serving = &connection->serving;
	connection->idle = listen->opts.tls;
	list_push_back(&listen->connections, &connection->link);
	listen->connection_count++;
	counter_add(&connections_total, 1);
	counter_add(&connections_now, 1);
	if (fiber_spawn(listen->opts.core->reactor, "http", connection_main, connection)) {
		log_limited(LOG_WARN, "listen",
			"connection from %s refused: too many fibers on this core",
			net_peer(stream));
		if (listen->opts.tls)
			net_close(stream);
		else
			connection_refuse(connection, SLICE(TOO_MANY_FIBERS), REFUSE_BUSY_NS);
		connection_end(connection);
	}
}

/* Ends the oldest connection that waits for a request. When there is none and the options say
 * evict_serving, it ends the oldest connection. */
static void evict_one(struct listen *listen)
{
	struct connection *victim = NULL;

	LIST_FOR_EACH (link, &listen->connections) {
		struct connection *connection = CONTAINER_OF(link, struct connection, link);

		if (connection->evicted)
			return; /* it makes room already */
		if (!connection->serving && (!victim || victim->serving))
			victim = connection;
		else if (!victim && listen->opts.evict_serving)
			victim = connection;
	}
	if (!victim)
		return;
	victim->evicted = true;
	counter_add(&evicted, 1);
	net_shutdown(victim->stream);
}

/* Waits for room for one more connection. False: the listener drains. */
static bool room_make(struct listen *listen)
{
	if (listen->connection_count >= listen->opts.connections_max)
		counter_add(&connections_full, 1);
	while (listen->connection_count >= listen->opts.connections_max && !listen->draining) {
		evict_one(listen);
		listen->acceptor = fiber_self();
		(void)fiber_park_until(clock_now_ns() + EVICT_LOOK_NS);
		listen->acceptor = NULL;
	}
	return !listen->draining;
}

static void accept_main(void *arg)
{
	struct listen *listen = arg;

	while (!listen->draining) {
		struct net_stream *stream;
		int ret;

		ret = net_accept(listen->listener, &stream);
		if (ret == -ECANCELED)
			break;
		if (ret)
			/* Only that connection failed: the next one may find memory again. */
			log_limited(
				LOG_WARN, "listen", "a connection was closed: %s", strerror(-ret));
		else if (room_make(listen))
			connection_start(listen, stream);
		else
			net_close(stream);
	}
	listen->accepting = false;
	if (listen->drainer)
		fiber_wake(listen->drainer);
}

int listen_open(const struct listen_opts *opts, const char *address, struct listen **ret_listen)
{
	struct listen *listen = calloc(1, sizeof(*listen));
	int ret;

	if (!listen)
		return -ENOMEM;
	listen->opts = *opts;
	list_init(&listen->connections);
	ret = opts->beside ? net_listen_beside(
				     opts->core->reactor, opts->beside->listener, &listen->listener)
			   : net_listen_patiently(opts->core->reactor, address, &listen->listener);
	if (ret) {
		listen_close(listen);
		return ret;
	}
	*ret_listen = listen;
	return 0;
}

int listen_start(struct listen *listen)
{
	int ret = fiber_spawn(listen->opts.core->reactor, "accept", accept_main, listen);

	listen->accepting = ret == 0;
	return ret;
}

int listen_start_all(struct listen *const *listens, uint32_t count)
{
	int ret = 0;

	for (uint32_t i = 0; i < count && !ret; i++)
		if (listens[i])
			ret = listen_start(listens[i]);
	return ret;
}

uint16_t listen_port(const struct listen *listen)
{
	return listen ? net_listener_port(listen->listener) : 0;
}

static void shutdown_connections(struct listen *listen, bool idle_only)
{
	LIST_FOR_EACH (link, &listen->connections) {
		struct connection *connection = CONTAINER_OF(link, struct connection, link);

		if (connection->idle || !idle_only)
			net_shutdown(connection->stream);
	}
}

void listen_drain_begin(struct listen *listen)
{
	listen->draining = true;
	net_listener_close(listen->listener);
	listen->listener = NULL;
	if (listen->acceptor)
		fiber_wake(listen->acceptor);
	shutdown_connections(listen, true);
}

void listen_drain(struct listen *listen, uint64_t deadline_ns)
{
	bool patient = true;

	CHECK(listen->draining);
	listen->drainer = fiber_self();
	while (listen->connection_count || listen->accepting) {
		if (fiber_park_until(patient ? deadline_ns : DEADLINE_NONE) == -ETIMEDOUT) {
			log_warn("listen", "%u connections did not end in time and are cut",
				listen->connection_count);
			shutdown_connections(listen, false);
			patient = false;
		}
	}
	listen->drainer = NULL;
}

void listen_drain_all(struct listen *const *listens, uint32_t count, uint64_t deadline_ns)
{
	for (uint32_t i = 0; i < count; i++)
		if (listens[i])
			listen_drain_begin(listens[i]);
	for (uint32_t i = 0; i < count; i++)
		if (listens[i])
			listen_drain(listens[i], deadline_ns);
}

void listen_close(struct listen *listen)
{
	if (!listen)
		return;
	CHECK(list_empty(&listen->connections));
	if (listen->listener)
		net_listener_close(listen->listener);
	front_http_pool_close(&listen->pool);
	free(listen);
}
