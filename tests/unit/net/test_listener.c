#include "rig.h"

#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "net/net_priv.h"

static struct net_listener *listener;
static int accept_result;

static void dial(const char *host, uint16_t port, struct net_stream **ret_stream)
{
	char address[64];

	snprintf(address, sizeof(address), "%s:%u", host, port);
	assert_int_equal(net_connect(address, in_ms(60000), ret_stream), 0);
}

/* ---- Addresses. ---- */

static void check_bound(const char *address, const char *host, const char *peer)
{
	struct net_stream *client, *server;

	assert_int_equal(net_listen(rig, address, &listener), 0);
	assert_int_not_equal(net_listener_port(listener), 0);
	dial(host, net_listener_port(listener), &client);
	assert_int_equal(net_accept(listener, &server), 0);
	assert_true(!strncmp(net_peer(server), peer, strlen(peer)));
	net_close(client);
	net_close(server);
	net_listener_close(listener);
}

static void addresses(void *arg)
{
	(void)arg;
	check_bound("127.0.0.1:0", "127.0.0.1", "127.0.0.1:");
	check_bound("localhost:0", "localhost", "127.0.0.1:");
	check_bound(":0", "127.0.0.1", "127.0.0.1:");
	if (access("/proc/net/if_inet6", R_OK) == 0) {
		check_bound("[::1]:0", "[::1]", "[::1]:");
		check_bound(":0", "[::1]", "[::1]:");
	}
}

static void refusals(void *arg)
{
	struct net_stream *stream = NULL;
	char address[32];
	uint16_t port;

	(void)arg;
	assert_int_equal(net_listen(rig, "no such thing", &listener), -EINVAL);
	assert_int_equal(net_listen(rig, "host.example.com:1", &listener), -EINVAL);
	/* An address for documentation, which no host has. */
	assert_int_equal(net_listen(rig, "192.0.2.1:0", &listener), -EADDRNOTAVAIL);
	assert_int_equal(net_connect(":80", in_ms(10), &stream), -EINVAL);
	assert_int_equal(net_connect("127.0.0.1:0", in_ms(10), &stream), -EINVAL);
	assert_int_equal(net_connect("no..such..host:1", in_ms(10), &stream), -EHOSTUNREACH);
	assert_int_equal(net_listen(rig, "127.0.0.1:0", &listener), 0);
	port = net_listener_port(listener);
	net_listener_close(listener);
	snprintf(address, sizeof(address), "127.0.0.1:%u", port);
	assert_int_equal(net_connect(address, in_ms(60000), &stream), -ECONNREFUSED);
	assert_null(stream);
}

/* A listener with so many connections before it that the kernel does not answer any more. */
static int mute_listener(union net_addr *ret_addr, int fds[4])
{
	socklen_t len = sizeof(ret_addr->v4);
	int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*ret_addr = (union net_addr){.v4 = {.sin_family = AF_INET}};
	ret_addr->v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(listening, &ret_addr->any, len), 0);
	assert_int_equal(listen(listening, 0), 0);
	assert_int_equal(getsockname(listening, &ret_addr->any, &len), 0);
	for (int i = 0; i < 4; i++) {
		fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		(void)connect(fds[i], &ret_addr->any, len);
	}
	return listening;
}

/* Of a host's addresses the first one may lead nowhere. It has an equal part of the time: with many
 * others it ends soon, and leaves a process that does not run for a while much time for those. */
static void the_second_address(void *arg)
{
	union net_addr addrs[NET_ADDRESSES_MAX];
	int waiting[4], fd = -1, mute = mute_listener(&addrs[0], waiting);

	(void)arg;
	assert_int_equal(net_connect_first(addrs, 1, in_ms(10), &fd), -ETIMEDOUT);
	assert_int_equal(net_listen(rig, "127.0.0.1:0", &listener), 0);
	for (uint32_t i = 1; i < NET_ADDRESSES_MAX; i++) {
		addrs[i] = addrs[0];
		addrs[i].v4.sin_port = htons(net_listener_port(listener));
	}
	assert_int_equal(net_connect_first(addrs, NET_ADDRESSES_MAX, in_ms(30000), &fd), 0);
	close(fd);
	net_listener_close(listener);
	for (int i = 0; i < 4; i++)
		close(waiting[i]);
	close(mute);
}

static void test_the_second_address(void **state)
{
	(void)state;
	rig_spawn(the_second_address, NULL);
	rig_run();
}

static void test_addresses(void **state)
{
	(void)state;
	rig_spawn(addresses, NULL);
	rig_run();
	rig_spawn(refusals, NULL);
	rig_run();
}

/* Two listeners on one port, like two reactors. Another server's listener blocks the port, and so
 * does one that does not share. */
static void shared_port(void *arg)
{
	struct net_listener *second, *other;
	struct sockaddr_in addr = {.sin_family = AF_INET};
	socklen_t len = sizeof(addr);
	char address[32];
	int fd;

	(void)arg;
	assert_int_equal(net_listen(rig, "127.0.0.1:0", &listener), 0);
	snprintf(address, sizeof(address), "127.0.0.1:%u", net_listener_port(listener));
	assert_int_equal(net_listen_beside(rig, listener, &second), 0);
	assert_int_equal(net_listener_port(second), net_listener_port(listener));
	assert_int_equal(net_listen(rig, address, &other), -EADDRINUSE);
	snprintf(address, sizeof(address), "0.0.0.0:%u", net_listener_port(listener));
	assert_int_equal(net_listen(rig, address, &other), -EADDRINUSE);
	snprintf(address, sizeof(address), ":%u", net_listener_port(listener));
	assert_int_equal(net_listen(rig, address, &other), -EADDRINUSE);
	net_listener_close(second);
	net_listener_close(listener);
	net_listener_close(NULL);

	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &len), 0);
	snprintf(address, sizeof(address), "127.0.0.1:%u", ntohs(addr.sin_port));
	assert_int_equal(net_listen(rig, address, &listener), -EADDRINUSE);
	close(fd);
}

static void test_shared_port(void **state)
{
	(void)state;
	rig_spawn(shared_port, NULL);
	rig_run();
}

/* ---- Sockets that outlive their process for a moment. ---- */

#define PATIENCE_NS (2 * NS_PER_S)

/* A listening socket, which another thread closes. */
struct outliving {
	int fd;
	_Atomic bool closed;
};

static void *close_later(void *arg)
{
	struct outliving *outliving = arg;

	clock_rest(DEADLINE_NONE);
	clock_rest(DEADLINE_NONE);
	close(outliving->fd);
	outliving->closed = true;
	return NULL;
}

typedef int listen_fn(struct reactor *, const char *, struct net_listener **);

/* It listens once the socket is closed, and before that waits for as long as it should. */
static void listens_after(int fd, listen_fn *listens, const char *address)
{
	struct outliving outliving = {.fd = fd};
	pthread_t thread;
	int ret = -EADDRINUSE;

	assert_int_equal(pthread_create(&thread, NULL, close_later, &outliving), 0);
	while (ret) {
		uint64_t since_ns = clock_now_ns();
		bool closed = outliving.closed;

		ret = listens(rig, address, &listener);
		if (!ret)
			continue;
		/* The other thread did not run for as long. */
		assert_int_equal(ret, -EADDRINUSE);
		assert_true(clock_now_ns() - since_ns >= PATIENCE_NS);
		assert_false(closed);
	}
	pthread_join(thread, NULL);
	net_listener_close(listener);
}

static void test_patience(void **state)
{
	struct sockaddr_in addr = {.sin_family = AF_INET};
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	socklen_t len = sizeof(addr);
	char address[32];
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)state;
	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &len), 0);
	snprintf(address, sizeof(address), "127.0.0.1:%u", ntohs(addr.sin_port));
	listens_after(fd, net_listen_patiently, address);

	snprintf(name.sun_path, sizeof(name.sun_path), "/tmp/nebulaio-listener-%d", getpid());
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof(name)), 0);
	assert_int_equal(listen(fd, 1), 0);
	listens_after(fd, net_listen_unix, name.sun_path);
}

/* ---- Servers that begin at the same time. ---- */

#define RACERS 4u
#define RACES  200u

struct race {
	pthread_barrier_t barrier;
	char address[32];
	_Atomic uint32_t won, failed;
	struct net_listener *listeners[RACERS];
};

struct racer {
	struct race *race;
	uint32_t idx;
};

static void *racer_main(void *arg)
{
	const struct racer *racer = arg;
	struct race *race = racer->race;
	int err;

	pthread_barrier_wait(&race->barrier);
	err = net_listen(rig, race->address, &race->listeners[racer->idx]);
	atomic_fetch_add(err ? &race->failed : &race->won, 1);
	if (err && err != -EADDRINUSE)
		atomic_fetch_add(&race->won, RACERS); /* the assertion reports it */
	return NULL;
}

static void race_run(void *arg)
{
	static struct race race;
	struct racer racers[RACERS];
	pthread_t threads[RACERS];
	uint32_t won = 0;

	(void)arg;
	assert_int_equal(net_listen(rig, "127.0.0.1:0", &listener), 0);
	snprintf(race.address, sizeof(race.address), "127.0.0.1:%u", net_listener_port(listener));
	net_listener_close(listener);
	for (uint32_t i = 0; i < RACES; i++) {
		assert_int_equal(pthread_barrier_init(&race.barrier, NULL, RACERS), 0);
		memset(race.listeners, 0, sizeof(race.listeners));
		atomic_store(&race.won, 0);
		for (uint32_t r = 0; r < RACERS; r++) {
			racers[r] = (struct racer){&race, r};
			assert_int_equal(
				pthread_create(&threads[r], NULL, racer_main, &racers[r]), 0);
		}
		for (uint32_t r = 0; r < RACERS; r++)
			pthread_join(threads[r], NULL);
		assert_in_range(race.won, 0, 1);
		won += race.won;
		for (uint32_t r = 0; r < RACERS; r++)
			net_listener_close(race.listeners[r]);
		pthread_barrier_destroy(&race.barrier);
	}
	assert_in_range(won, 1, RACES);
}

static void test_of_servers_that_begin_at_once_one_has_the_port(void **state)
{
	(void)state;
	rig_spawn(race_run, NULL);
	rig_run();
}

/* ---- Closing. ---- */

static void wait_accept(void *arg)
{
	struct net_stream *stream;

	(void)arg;
	accept_result = net_accept(listener, &stream);
}

static void close_wakes(void *arg)
{
	(void)arg;
	accept_result = 1;
	assert_int_equal(net_listen(rig, "127.0.0.1:0", &listener), 0);
	rig_spawn(wait_accept, NULL);
	fiber_yield();
	fiber_yield();
	net_listener_close(listener);
	assert_int_equal(accept_result, -ECANCELED);
}

/* Connections that the kernel accepted and the server did not take end with the listener. */
static void close_drops(void *arg)
{
	struct net_stream *taken, *first, *second;
	char byte;
	size_t got = 1;
	int err;

	(void)arg;
	assert_int_equal(net_listen(rig, "127.0.0.1:0", &listener), 0);
	dial("127.0.0.1", net_listener_port(listener), &first);
	assert_int_equal(net_accept(listener, &taken), 0);
	dial("127.0.0.1", net_listener_port(listener), &second);
	fiber_yield();
	net_listener_close(listener);
	err = net_recv(second, &byte, 1, in_ms(60000), &got);
	assert_true(err == -ECONNRESET || (!err && !got));
	net_close(taken);
	net_close(first);
	net_close(second);
}

static void test_close(void **state)
{
	(void)state;
	rig_spawn(close_wakes, NULL);
	rig_run();
	rig_spawn(close_drops, NULL);
	rig_run();
}

/* ---- Many at once: past a few the kernel's backlog holds them. ---- */

#define MANY 200u

static void many(void *arg)
{
	static struct net_stream *clients[MANY], *servers[MANY];

	(void)arg;
	assert_int_equal(net_listen(rig, "127.0.0.1:0", &listener), 0);
	dial("127.0.0.1", net_listener_port(listener), &clients[0]);
	assert_int_equal(net_accept(listener, &servers[0]), 0);
	for (uint32_t i = 1; i < MANY; i++)
		dial("127.0.0.1", net_listener_port(listener), &clients[i]);
	for (uint32_t i = 1; i < MANY; i++)
		assert_int_equal(net_accept(listener, &servers[i]), 0);
	for (uint32_t i = 0; i < MANY; i++) {
		net_close(clients[i]);
		net_close(servers[i]);
	}
	net_listener_close(listener);
}

static void test_many(void **state)
{
	(void)state;
	rig_spawn(many, NULL);
	rig_run();
}

/* ---- A burst: connections that cannot be accepted at once wait in the backlog, and are not
 * closed. ---- */

#define BURST 400u

static void burst(void *arg)
{
	static int clients[BURST];
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct net_stream *stream, *first;
	char byte;

	(void)arg;
	assert_int_equal(net_listen(rig, "127.0.0.1:0", &listener), 0);
	dial("127.0.0.1", net_listener_port(listener), &first);
	assert_int_equal(net_accept(listener, &stream), 0);
	net_close(stream);
	net_close(first);
	address.sin_port = htons(net_listener_port(listener));
	/* Meanwhile no turn runs; then some turns run without an accept. */
	for (uint32_t i = 0; i < BURST; i++) {
		clients[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_int_equal(
			connect(clients[i], (struct sockaddr *)&address, sizeof(address)), 0);
	}
	for (uint32_t i = 0; i < 8; i++)
		fiber_yield();
	for (uint32_t i = 0; i < BURST; i++) {
		assert_int_equal(recv(clients[i], &byte, 1, MSG_DONTWAIT), -1);
		assert_int_equal(errno, EAGAIN);
	}
	for (uint32_t i = 0; i < BURST; i++) {
		assert_int_equal(net_accept(listener, &stream), 0);
		net_close(stream);
		close(clients[i]);
	}
	net_listener_close(listener);
}

static void test_burst(void **state)
{
	(void)state;
	rig_spawn(burst, NULL);
	rig_run();
}

/* ---- A peer that has reset its connection. ---- */

/* The request is there, and so is the address that it came from. */
static void reset(void *arg)
{
	const struct linger at_once = {.l_onoff = 1};
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct net_stream *first, *stream;
	char peer[32], text[8];
	socklen_t len = sizeof(address);
	int fd;

	(void)arg;
	assert_int_equal(net_listen(rig, "127.0.0.1:0", &listener), 0);
	/* The kernel holds accept operations from here on. */
	dial("127.0.0.1", net_listener_port(listener), &first);
	assert_int_equal(net_accept(listener, &stream), 0);
	net_close(stream);
	net_close(first);
	for (uint32_t i = 0; i < 40; i++) {
		size_t got = 0;

		address.sin_port = htons(net_listener_port(listener));
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_int_equal(connect(fd, (struct sockaddr *)&address, len), 0);
		assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &len), 0);
		snprintf(peer, sizeof(peer), "127.0.0.1:%u", ntohs(address.sin_port));
		assert_int_equal(send(fd, "request", sizeof(text), 0), sizeof(text));
		assert_int_equal(
			setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
		close(fd);
		assert_int_equal(net_accept(listener, &stream), 0);
		assert_string_equal(net_peer(stream), peer);
		assert_int_equal(net_recv(stream, text, sizeof(text), in_ms(60000), &got), 0);
		assert_int_equal(got, sizeof(text));
		net_close(stream);
	}
	net_listener_close(listener);
}

static void test_reset(void **state)
{
	(void)state;
	rig_spawn(reset, NULL);
	rig_run();
}

/* ---- Out of descriptors: waited out. ---- */

static struct net_stream *late;
static rlim_t descriptors_max;

static void set_descriptors_max(rlim_t count)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	descriptors_max = limit.rlim_cur;
	limit.rlim_cur = count;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void late_accept(void *arg)
{
	(void)arg;
	accept_result = net_accept(listener, &late);
}

static void shortage(void *arg)
{
	struct net_stream *client;
	int lowest;

	(void)arg;
	accept_result = 1;
	assert_int_equal(net_listen(rig, "127.0.0.1:0", &listener), 0);
	dial("127.0.0.1", net_listener_port(listener), &client);
	lowest = dup(0);
	assert_true(lowest >= 0);
	close(lowest);
	set_descriptors_max((rlim_t)lowest);
	rig_spawn(late_accept, NULL);
	fiber_sleep_ns(20 * NS_PER_MS); /* a refusal comes at once; its absence needs a wait */
	assert_int_equal(accept_result, 1);
	set_descriptors_max(descriptors_max);
	while (accept_result == 1)
		fiber_yield();
	assert_int_equal(accept_result, 0);
	net_close(late);
	net_close(client);
	net_listener_close(listener);
}

static void test_shortage(void **state)
{
	(void)state;
	rig_spawn(shortage, NULL);
	rig_run();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_addresses),
		RIG_TEST(test_the_second_address),
		RIG_TEST(test_shared_port),
		RIG_TEST(test_patience),
		RIG_TEST(test_of_servers_that_begin_at_once_one_has_the_port),
		RIG_TEST(test_close),
		RIG_TEST(test_many),
		RIG_TEST(test_burst),
		RIG_TEST(test_reset),
		RIG_TEST(test_shortage),
	};

	return cmocka_run_group_tests_name("net_listener", tests, NULL, NULL);
}
