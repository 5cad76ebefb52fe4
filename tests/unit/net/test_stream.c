#include "../cut.h"
#include "rig.h"

#include <netinet/in.h>

#define BIG_BYTES (24u * 1024 * 1024)

static struct net_stream *client, *server;

static void send_text(struct net_stream *stream, const char *text)
{
	struct iovec iov = {(void *)(uintptr_t)text, strlen(text)};

	assert_int_equal(net_sendv(stream, &iov, 1, in_ms(60000)), 0);
}

static void close_both(void)
{
	net_close(client);
	net_close(server);
}

/* ---- Bytes both ways. ---- */

static void talk(void *arg)
{
	struct iovec iov[3] = {{(void *)"ab", 2}, {NULL, 0}, {(void *)"cdef", 4}};
	char buf[16] = "";
	size_t got;

	(void)arg;
	rig_pair(&client, &server);
	assert_int_equal(net_sendv(client, iov, 3, in_ms(60000)), 0);
	assert_int_equal(rig_recv_all(server, buf, 4, in_ms(60000)), 0);
	assert_memory_equal(buf, "abcd", 4);
	assert_int_equal(net_recv(server, buf, sizeof(buf), in_ms(60000), &got), 0);
	assert_int_equal(got, 2);
	assert_memory_equal(buf, "ef", 2);
	assert_true(!strncmp(net_peer(server), "127.0.0.1:", 10));
	/* An orderly end: earlier bytes are read, then 0 bytes, also twice. */
	send_text(client, "z");
	net_send_end(client);
	assert_int_equal(net_recv_full(server, buf, 8, in_ms(60000), &got), 0);
	assert_int_equal(got, 1);
	assert_int_equal(net_recv(server, buf, 8, in_ms(60000), &got), 0);
	assert_int_equal(got, 0);
	assert_int_equal(net_recv_full(server, buf, 8, in_ms(60000), &got), 0);
	assert_int_equal(got, 0);
	assert_int_equal(rig_recv_all(server, buf, 1, in_ms(60000)), -EPIPE);
	/* The other direction still works. */
	send_text(server, "y");
	assert_int_equal(rig_recv_all(client, buf, 1, in_ms(60000)), 0);
	assert_int_equal(buf[0], 'y');
	close_both();
}

static void test_talk(void **state)
{
	(void)state;
	rig_spawn(talk, NULL);
	rig_run();
}

/* ---- More than any socket buffer holds. ---- */

static uint8_t *big_out, *big_in;

static void big_sender(void *arg)
{
	struct iovec iov[] = {{big_out, 1000}, {big_out + 1000, BIG_BYTES - 2000},
		{big_out + BIG_BYTES - 1000, 1000}};

	(void)arg;
	assert_int_equal(net_sendv_stall(client, iov, 3, 60 * NS_PER_S, DEADLINE_NONE), 0);
	net_send_end(client);
}

static void big_receiver(void *arg)
{
	size_t have = 0, got = 1;

	(void)arg;
	rig_pair(&client, &server);
	rig_spawn(big_sender, NULL);
	assert_int_equal(rig_recv_all(server, big_in, BIG_BYTES / 2, in_ms(60000)), 0);
	have = BIG_BYTES / 2;
	for (;;) {
		assert_int_equal(
			net_recv(server, big_in + have, BIG_BYTES + 1 - have, in_ms(60000), &got),
			0);
		if (!got)
			break;
		have += got;
	}
	assert_int_equal(have, BIG_BYTES);
	close_both();
}

static void test_big(void **state)
{
	struct prng prng;

	(void)state;
	big_out = malloc(BIG_BYTES);
	big_in = malloc(BIG_BYTES + 1);
	assert_true(big_out && big_in);
	prng_seed(&prng, 5);
	prng_fill(&prng, big_out, BIG_BYTES);
	rig_spawn(big_receiver, NULL);
	rig_run();
	assert_memory_equal(big_out, big_in, BIG_BYTES);
	free(big_out);
	free(big_in);
}

/* ---- Deadlines. ---- */

static void late_recv(void *arg)
{
	char buf[8];
	size_t got = 77;

	(void)arg;
	rig_pair(&client, &server);
	assert_int_equal(net_recv(server, buf, 8, in_ms(5), &got), -ETIMEDOUT);
	assert_int_equal(net_recv_full(server, buf, 8, in_ms(5), &got), -ETIMEDOUT);
	assert_int_equal(got, 77);
	/* Bytes that came before the deadline are returned, not lost. */
	send_text(client, "abc");
	assert_int_equal(net_recv_full(server, buf, 8, in_ms(200), &got), 0);
	assert_int_equal(got, 3);
	/* The stream still works. */
	send_text(client, "12345678");
	assert_int_equal(rig_recv_all(server, buf, 8, in_ms(60000)), 0);
	assert_memory_equal(buf, "12345678", 8);
	assert_int_equal(rig_recv_all(server, buf, 8, in_ms(3)), -ETIMEDOUT);
	close_both();
}

static void wait_readable(void *arg)
{
	char byte;

	(void)arg;
	rig_pair(&client, &server);
	assert_int_equal(net_wait_readable(server, in_ms(4)), -ETIMEDOUT);
	send_text(client, "a");
	assert_int_equal(net_wait_readable(server, in_ms(60000)), 0);
	assert_int_equal(net_wait_readable(server, in_ms(60000)), 0);
	assert_int_equal(rig_recv_all(server, &byte, 1, in_ms(60000)), 0);
	assert_int_equal(net_wait_readable(server, in_ms(4)), -ETIMEDOUT);
	/* An end makes the stream readable. */
	net_send_end(client);
	assert_int_equal(net_wait_readable(server, in_ms(60000)), 0);
	net_shutdown(server);
	assert_int_equal(net_wait_readable(server, in_ms(60000)), -ECANCELED);
	close_both();
}

/* A deadline that is nearer than the one before it, and one that is further. */
static void deadline_order(void *arg)
{
	char byte;
	size_t got;

	(void)arg;
	rig_pair(&client, &server);
	send_text(client, "a");
	assert_int_equal(net_recv(server, &byte, 1, in_ms(60000), &got), 0);
	assert_int_equal(net_recv(server, &byte, 1, in_ms(4), &got), -ETIMEDOUT);
	assert_int_equal(net_recv(server, &byte, 1, in_ms(8), &got), -ETIMEDOUT);
	close_both();
}

static void late_send(void *arg)
{
	struct iovec iov;
	char *much = calloc(1, BIG_BYTES);

	(void)arg;
	assert_non_null(much);
	rig_pair(&client, &server);
	iov = (struct iovec){much, BIG_BYTES};
	assert_int_equal(net_sendv(client, &iov, 1, in_ms(5)), -ETIMEDOUT);
	iov = (struct iovec){much, BIG_BYTES};
	assert_int_equal(
		net_sendv_stall(client, &iov, 1, 5 * NS_PER_MS, DEADLINE_NONE), -ETIMEDOUT);
	iov = (struct iovec){much, BIG_BYTES};
	assert_int_equal(net_sendv_stall(client, &iov, 1, 5 * NS_PER_S, in_ms(5)), -ETIMEDOUT);
	free(much);
	close_both();
}

static void test_deadlines(void **state)
{
	(void)state;
	rig_spawn(late_recv, NULL);
	rig_run();
	rig_spawn(deadline_order, NULL);
	rig_run();
	rig_spawn(wait_readable, NULL);
	rig_run();
	rig_spawn(late_send, NULL);
	rig_run();
}

/* ---- Peers that go away, and our own shutdown. ---- */

static int woken_by;

static void wait_recv(void *arg)
{
	char byte;
	size_t got;

	(void)arg;
	woken_by = net_recv(server, &byte, 1, DEADLINE_NONE, &got);
}

static void shutdown_wakes(void *arg)
{
	struct iovec iov = {(void *)"x", 1};
	char byte;
	size_t got;

	(void)arg;
	woken_by = 1;
	rig_pair(&client, &server);
	rig_spawn(wait_recv, NULL);
	fiber_yield();
	net_shutdown(server);
	while (woken_by == 1)
		fiber_yield();
	assert_int_equal(woken_by, -ECANCELED);
	assert_int_equal(net_recv(server, &byte, 1, DEADLINE_NONE, &got), -ECANCELED);
	assert_int_equal(net_recv_full(server, &byte, 1, DEADLINE_NONE, &got), -ECANCELED);
	assert_int_equal(rig_recv_all(server, &byte, 1, DEADLINE_NONE), -ECANCELED);
	assert_int_equal(net_sendv(server, &iov, 1, DEADLINE_NONE), -ECANCELED);
	close_both();
}

static void peer_resets(void *arg)
{
	struct iovec iov = {(void *)"x", 1};
	char byte;
	size_t got;

	(void)arg;
	rig_pair(&client, &server);
	/* A close with bytes unread is a reset. */
	send_text(server, "unread");
	assert_int_equal(rig_recv_all(client, &byte, 1, in_ms(60000)), 0);
	net_close(client);
	assert_int_equal(net_recv(server, &byte, 1, in_ms(60000), &got), -ECONNRESET);
	assert_int_equal(net_sendv(server, &iov, 1, in_ms(60000)), -EPIPE);
	net_close(server);
}

static void test_gone(void **state)
{
	(void)state;
	rig_spawn(shutdown_wakes, NULL);
	rig_run();
	rig_spawn(peer_resets, NULL);
	rig_run();
}

/* ---- One reads while another writes. ---- */

static uint32_t echoed;
static bool echo_ended;

static void echo(void *arg)
{
	char buf[64];
	size_t got;

	(void)arg;
	while (!net_recv(server, buf, sizeof(buf), in_ms(60000), &got) && got) {
		struct iovec iov = {buf, got};

		assert_int_equal(net_sendv(server, &iov, 1, in_ms(60000)), 0);
		echoed++;
	}
	echo_ended = true;
}

static void ping(void *arg)
{
	char buf[4];

	(void)arg;
	rig_pair(&client, &server);
	rig_spawn(echo, NULL);
	for (uint32_t i = 0; i < 1000; i++) {
		send_text(client, "ping");
		assert_int_equal(rig_recv_all(client, buf, 4, in_ms(60000)), 0);
		assert_memory_equal(buf, "ping", 4);
	}
	net_send_end(client);
	while (!echo_ended)
		fiber_yield();
	close_both();
}

static void test_echo(void **state)
{
	(void)state;
	echoed = 0;
	echo_ended = false;
	rig_spawn(ping, NULL);
	rig_run();
	assert_true(echoed >= 1000);
}

/* ---- Sockets made by other code. ---- */

static void taken(void *arg)
{
	int fds[2];
	char buf[5];

	(void)arg;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	assert_int_equal(net_stream_take(rig, fds[0], &client), 0);
	assert_int_equal(net_stream_take(rig, fds[1], &server), 0);
	assert_string_equal(net_peer(client), "local");
	send_text(client, "hello");
	assert_int_equal(rig_recv_all(server, buf, 5, in_ms(60000)), 0);
	assert_memory_equal(buf, "hello", 5);
	close_both();
	net_close(NULL);
}

static void test_taken(void **state)
{
	(void)state;
	rig_spawn(taken, NULL);
	rig_run();
}

/* ---- A receive without a fiber. ---- */

static uint32_t later_calls;
static struct fiber *later_waiter;

static void later_called(void *arg)
{
	assert_null(fiber_self());
	assert_ptr_equal(arg, &later_calls);
	later_calls++;
	fiber_wake(later_waiter);
}

static int later_begin(char *buf, size_t len, uint64_t deadline_ns, size_t *ret_bytes)
{
	const struct net_later later = {later_called, &later_calls};

	later_calls = 0;
	later_waiter = fiber_self();
	return net_recv_begin(server, buf, len, deadline_ns, later, ret_bytes);
}

static void later_await(void)
{
	while (!later_calls)
		fiber_park();
	assert_int_equal(later_calls, 1);
}

static void without_a_fiber(void *arg)
{
	uint64_t deadline_ns = in_ms(60000);
	char buf[16] = "";
	size_t got = 0;

	(void)arg;
	rig_pair(&client, &server);
	/* Bytes that have come already are taken at once: a new stream is asked first. */
	send_text(client, "ab");
	assert_int_equal(net_recv(server, buf, 1, deadline_ns, &got), 0);
	assert_int_equal(later_begin(buf, sizeof(buf), deadline_ns, &got), 0);
	assert_int_equal(got, 1);
	assert_int_equal(buf[0], 'b');
	assert_int_equal(later_calls, 0);
	/* Bytes that come later. */
	assert_int_equal(later_begin(buf, sizeof(buf), deadline_ns, &got), -EINPROGRESS);
	send_text(client, "cd");
	later_await();
	assert_int_equal(net_recv_end(server, buf, sizeof(buf), deadline_ns, &got), 0);
	assert_int_equal(got, 2);
	assert_memory_equal(buf, "cd", 2);
	/* A deadline, and the time after it. */
	assert_int_equal(later_begin(buf, sizeof(buf), in_ms(1), &got), -EINPROGRESS);
	later_await();
	assert_int_equal(net_recv_end(server, buf, sizeof(buf), in_ms(1), &got), -ETIMEDOUT);
	/* The end of the stream. */
	assert_int_equal(later_begin(buf, sizeof(buf), deadline_ns, &got), -EINPROGRESS);
	net_send_end(client);
	later_await();
	assert_int_equal(net_recv_end(server, buf, sizeof(buf), deadline_ns, &got), 0);
	assert_int_equal(got, 0);
	close_both();
	/* A shutdown of this side; and nobody takes the result. */
	rig_pair(&client, &server);
	assert_int_equal(later_begin(buf, sizeof(buf), deadline_ns, &got), -EINPROGRESS);
	net_shutdown(server);
	later_await();
	assert_int_equal(net_recv_end(server, buf, sizeof(buf), deadline_ns, &got), -ECANCELED);
	assert_int_equal(later_begin(buf, sizeof(buf), deadline_ns, &got), -ECANCELED);
	close_both();
}

static void test_without_a_fiber(void **state)
{
	(void)state;
	rig_spawn(without_a_fiber, NULL);
	rig_run();
}

/* ---- A path that is cut. ---- */

static struct net_stream *stream_to(int *ret_peer_fd)
{
	int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in addr = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(addr);
	struct net_stream *stream;

	assert_int_equal(bind(listening, (struct sockaddr *)&addr, len), 0);
	assert_int_equal(listen(listening, 1), 0);
	assert_int_equal(getsockname(listening, (struct sockaddr *)&addr, &len), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&addr, len), 0);
	*ret_peer_fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
	assert_true(*ret_peer_fd >= 0);
	close(listening);
	assert_int_equal(net_stream_take(rig, fd, &stream), 0);
	return stream;
}

/* More than the kernels have room for. */
static void fill(struct net_stream *stream)
{
	static char bytes[16 * MIB];
	struct iovec iov = {bytes, sizeof(bytes)};

	assert_int_equal(net_sendv(stream, &iov, 1, in_ms(100)), -ETIMEDOUT);
}

static void unheard_await(struct net_stream *stream)
{
	uint64_t since_ns = clock_now_ns();

	while (!net_unheard(stream, since_ns, NS_PER_S))
		fiber_sleep_ns(20 * NS_PER_MS);
}

/* Processes that do not read, but whose kernels answer: one has no room, the other no memory for
 * what was sent when it had room. */
static void unread_make(struct net_stream *streams[2], int peers[2])
{
	int bytes = 1;

	for (int i = 0; i < 2; i++)
		streams[i] = stream_to(&peers[i]);
	assert_int_equal(setsockopt(peers[1], SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)), 0);
	for (int i = 0; i < 2; i++)
		fill(streams[i]);
}

static void silence(void *arg)
{
	struct net_stream *sent, *one_way, *full, *silent, *unread[2];
	int peers[4], unread_peers[2];
	char byte;
	size_t got;

	(void)arg;
	sent = stream_to(&peers[0]);
	one_way = stream_to(&peers[1]);
	full = stream_to(&peers[2]);
	silent = stream_to(&peers[3]);
	net_keepalive(silent, 1);
	unread_make(unread, unread_peers);
	fill(full);
	for (int i = 0; i < 4; i++)
		cut(peers[i]);
	send_text(sent, "lost");
	send_text(one_way, "lost");
	/* Its kernel sends this again and again, because the acknowledgements are lost. */
	assert_int_equal(write(peers[1], "arrives", 7), 7);
	unheard_await(sent);
	unheard_await(one_way);
	unheard_await(full);
	/* The kernel's own questions: nothing was sent. */
	assert_int_equal(net_recv(silent, &byte, 1, in_ms(300000), &got), -ETIMEDOUT);
	assert_int_equal(net_recv(silent, &byte, 1, in_ms(300000), &got), 0);
	assert_int_equal(got, 0);
	for (int i = 0; i < 2; i++) {
		uint64_t end_ns = in_ms(2000);

		do {
			assert_false(net_unheard(unread[i], 0, NS_PER_S));
			fiber_sleep_ns(20 * NS_PER_MS);
		} while (clock_now_ns() < end_ns);
		net_close(unread[i]);
		close(unread_peers[i]);
	}
	net_close(sent);
	net_close(one_way);
	net_close(full);
	net_close(silent);
	for (int i = 0; i < 4; i++)
		close(peers[i]);
}

static void test_silence(void **state)
{
	(void)state;
	rig_spawn(silence, NULL);
	rig_run();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_talk),
		RIG_TEST(test_big),
		RIG_TEST(test_deadlines),
		RIG_TEST(test_gone),
		RIG_TEST(test_echo),
		RIG_TEST(test_taken),
		RIG_TEST(test_without_a_fiber),
		RIG_TEST(test_silence),
	};

	return cmocka_run_group_tests_name("net_stream", tests, NULL, NULL);
}
