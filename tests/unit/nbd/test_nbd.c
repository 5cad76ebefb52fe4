/* tests/unit/nbd/test_nbd.c: what clients are told when the volume fails, and when the server ends;
 * tests/e2e/nbd has the rest, by other people's clients. */
#include "../unit.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "rig.h"

#define HELLO_BYTES  18u
#define ANSWER_BYTES sizeof(struct nbd_answer_wire)

static struct rig rig;

static uint8_t *sent, answers[64 * KIB];
static size_t sent_bytes;

static void say(const void *data, size_t bytes)
{
	sent = realloc(sent, sent_bytes + bytes);
	memcpy(sent + sent_bytes, data, bytes);
	sent_bytes += bytes;
}

/* Flags, and the choice of the export in the old way, whose answer is short: 10 bytes. */
static void say_hello(void)
{
	const uint32_t flags = htobe32(NBD_FIXED_NEWSTYLE | NBD_NO_ZEROES);
	const struct {
		uint64_t magic;
		uint32_t option, bytes;
	} __attribute__((packed))
	option = {htobe64(NBD_OPTION_MAGIC), htobe32(NBD_OPT_EXPORT_NAME), 0};

	sent_bytes = 0;
	say(&flags, sizeof(flags));
	say(&option, sizeof(option));
}

static void say_request(uint16_t type, uint64_t offset, uint32_t bytes, uint64_t cookie)
{
	const struct nbd_request_wire head = {htobe32(NBD_REQUEST_MAGIC), 0, htobe16(type), cookie,
		htobe64(offset), htobe32(bytes)};
	uint8_t *payload = calloc(1, bytes + 1);

	say(&head, sizeof(head));
	if (type == NBD_CMD_WRITE)
		say(payload, bytes);
	free(payload);
}

static size_t talk(void)
{
	return rig_talk(&rig, slice_of(sent, sent_bytes), 1000, answers, sizeof(answers));
}

/* The error that the answer at this place has. */
static uint32_t error_at(size_t at)
{
	struct nbd_answer_wire head;

	memcpy(&head, answers + at, sizeof(head));
	assert_int_equal(be32toh(head.magic), NBD_ANSWER_MAGIC);
	return be32toh(head.error);
}

static int teardown(void **state)
{
	(void)state;
	rig_close(&rig);
	free(sent);
	sent = NULL;
	return 0;
}

/* Every kind of request fails when the medium does, and the connection goes on. */
static void test_medium_fails(void **state)
{
	static const uint16_t types[] = {
		NBD_CMD_WRITE, NBD_CMD_READ, NBD_CMD_FLUSH, NBD_CMD_WRITE_ZEROES, NBD_CMD_TRIM};
	size_t at = HELLO_BYTES + 10;

	(void)state;
	rig_open(&rig, "eio=1");
	say_hello();
	for (uint32_t i = 0; i < ARRAY_LEN(types); i++)
		say_request(types[i], 0, types[i] == NBD_CMD_FLUSH ? 0 : 4096, i);
	assert_int_equal(talk(), at + ARRAY_LEN(types) * ANSWER_BYTES);
	for (uint32_t i = 0; i < ARRAY_LEN(types); i++)
		assert_int_equal(error_at(at + i * ANSWER_BYTES), NBD_EIO);
}

/* The medium fails one flush and nothing else: the writes before it may be lost, so that no later
 * flush, of this connection or of another one, may say that they are not. */
static void test_a_failed_flush_is_not_forgotten(void **state)
{
	static const uint16_t later[] = {
		NBD_CMD_FLUSH, NBD_CMD_WRITE, NBD_CMD_WRITE_ZEROES, NBD_CMD_TRIM, NBD_CMD_READ};
	size_t at = HELLO_BYTES + 10;

	(void)state;
	rig_open(&rig, "eio=0.2,seed=934");
	say_hello();
	say_request(NBD_CMD_WRITE, 0, 4096, 1);
	assert_int_equal(talk(), at + ANSWER_BYTES);
	assert_int_equal(error_at(at), 0);
	say_hello();
	say_request(NBD_CMD_FLUSH, 0, 0, 2);
	assert_int_equal(talk(), at + ANSWER_BYTES);
	assert_int_equal(error_at(at), NBD_EIO);
	for (uint32_t i = 0; i < ARRAY_LEN(later); i++) {
		say_hello();
		say_request(later[i], 0, later[i] == NBD_CMD_FLUSH ? 0 : 4096, 3);
		talk();
		assert_int_equal(error_at(at), later[i] == NBD_CMD_READ ? 0 : NBD_EIO);
	}
}

/* A client that goes in the middle of a payload, of an option and of a head. */
static void test_cut_anywhere(void **state)
{
	size_t whole;

	(void)state;
	rig_open(&rig, NULL);
	say_hello();
	say_request(NBD_CMD_WRITE, 0, 4096, 1);
	say_request(NBD_CMD_READ, 0, 4096, 2);
	whole = sent_bytes;
	for (size_t bytes = 0; bytes < whole; bytes += bytes < 200 || bytes > 4200 ? 1 : 97)
		rig_talk(&rig, slice_of(sent, bytes), 97, answers, sizeof(answers));
	assert_int_equal(talk(), HELLO_BYTES + 10 + 2 * ANSWER_BYTES + 4096);
}

/* The volume of this test cannot make zeros, as file systems over a network: they are written. */
static void test_zeros(void **state)
{
	(void)state;
	rig_open(&rig, NULL);
	say_hello();
	say_request(NBD_CMD_WRITE_ZEROES, 0, RIG_VOLUME_BYTES, 1);
	assert_int_equal(talk(), HELLO_BYTES + 10 + ANSWER_BYTES);
	assert_int_equal(error_at(HELLO_BYTES + 10), 0);
}

static void test_draining(void **state)
{
	(void)state;
	rig_open(&rig, NULL);
	say_hello();
	say_request(NBD_CMD_WRITE, 0, 4096, 1);
	rig.nbd.draining = true;
	assert_int_equal(talk(), HELLO_BYTES + 10 + ANSWER_BYTES);
	assert_int_equal(error_at(HELLO_BYTES + 10), NBD_ESHUTDOWN);
}

/* A client that asks for all that there is, and takes some bytes now and then, does not keep
 * another one waiting for ever. */
static void test_answers_not_taken(void **state)
{
	struct rig_connection slow = {.rig = &rig}, other = {.rig = &rig};
	bool asked = false;
	uint64_t until_ns, next_ns = 0;
	size_t at = 0, got = 0;
	int fds[2], others[2];

	(void)state;
	rig_open(&rig, NULL);
	rig.nbd.starved_ns = 50 * NS_PER_MS;
	say_hello();
	for (uint32_t i = 0; i < NBD_REQUESTS_MAX; i++)
		say_request(NBD_CMD_READ, 0, RIG_VOLUME_BYTES, i);
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, others), 0);
	assert_int_equal(net_stream_take(rig.reactor, fds[1], &slow.stream), 0);
	assert_int_equal(net_stream_take(rig.reactor, others[1], &other.stream), 0);
	rig.serving = true;
	assert_int_equal(fiber_spawn(rig.reactor, "serve", rig_serve, &slow), 0);
	until_ns = clock_now_ns() + 60 * NS_PER_S;
	while (got < HELLO_BYTES + 10 + ANSWER_BYTES + RIG_VOLUME_BYTES) {
		ssize_t sent_now = send(fds[0], sent + at, sent_bytes - at, MSG_NOSIGNAL);
		ssize_t took;

		at += sent_now > 0 ? (size_t)sent_now : 0;
		reactor_turn(rig.reactor);
		if (clock_now_ns() > next_ns && recv(fds[0], answers, 12 * KIB, 0) > 0)
			next_ns = clock_now_ns() + NS_PER_S;
		/* All frames are held: the other client comes. */
		if (!asked && !list_empty(&rig.nbd.starved)) {
			say_hello();
			say_request(NBD_CMD_READ, 0, RIG_VOLUME_BYTES, 1);
			assert_int_equal(send(others[0], sent, sent_bytes, 0), sent_bytes);
			assert_int_equal(fiber_spawn(rig.reactor, "serve", rig_serve, &other), 0);
			sent_bytes = at = 0;
			asked = true;
		}
		while ((took = recv(others[0], answers, sizeof(answers), 0)) > 0)
			got += (size_t)took;
		assert_true(clock_now_ns() < until_ns);
	}
	close(fds[0]);
	close(others[0]);
	while (!list_empty(&rig.nbd.connections))
		reactor_turn(rig.reactor);
}

struct draining {
	struct nbd *nbd;
	bool done;
};

static void drain(void *arg)
{
	struct draining *draining = arg;

	nbd_drain(draining->nbd);
	draining->done = true;
}

/* The timer of the server's side of a connection on loopback, as proc_net_tcp(5) has it. */
static unsigned tcp_timer(uint16_t server_port, uint16_t client_port)
{
	FILE *file = fopen("/proc/net/tcp", "re");
	unsigned local, remote, timer, found = UINT32_MAX;
	char line[256];

	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, " %*u: %*8x:%x %*8x:%x %*x %*x:%*x %x:", &local, &remote,
			    &timer) == 3 &&
			local == server_port && remote == client_port)
			found = timer;
	fclose(file);
	return found;
}

#define TCP_TIMER_RETRANSMISSION 1u
#define TCP_TIMER_KEEPALIVE	 2u

/* A client may be silent for ever, but the kernel finds out when it is not there any more. */
static void test_a_client_without_power_leaves(void **state)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct draining draining = {.done = false};
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	struct nbd_opts opts;
	uint64_t until_ns;
	unsigned timer;
	int fd;

	(void)state;
	rig_open(&rig, NULL);
	opts = rig.nbd.opts;
	opts.exports = rig.nbd.exports;
	assert_int_equal(nbd_open(&opts, "127.0.0.1:0", &draining.nbd), 0);
	to.sin_port = htons(nbd_port(draining.nbd));
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&from, &len), 0);
	say_hello();
	assert_int_equal(send(fd, sent, sent_bytes, 0), sent_bytes);
	for (size_t got = 0; got < HELLO_BYTES + 10;) {
		ssize_t took = recv(fd, answers, sizeof(answers), MSG_DONTWAIT);

		got += took > 0 ? (size_t)took : 0;
		reactor_turn(rig.reactor);
	}
	/* Until everything is acknowledged, it is the timer of the retransmission. The kernel makes
	 * the list in pieces, between which a line may be left out when other connections end. */
	until_ns = clock_now_ns() + 60 * NS_PER_S;
	do
		timer = tcp_timer(nbd_port(draining.nbd), ntohs(from.sin_port));
	while ((timer == TCP_TIMER_RETRANSMISSION || timer == UINT32_MAX) &&
		clock_now_ns() < until_ns);
	assert_int_equal(fiber_spawn(rig.reactor, "drain", drain, &draining), 0);
	while (!draining.done)
		reactor_turn(rig.reactor);
	close(fd);
	nbd_close(draining.nbd);
	assert_int_equal(timer, TCP_TIMER_KEEPALIVE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_medium_fails, teardown),
		cmocka_unit_test_teardown(test_a_failed_flush_is_not_forgotten, teardown),
		cmocka_unit_test_teardown(test_cut_anywhere, teardown),
		cmocka_unit_test_teardown(test_zeros, teardown),
		cmocka_unit_test_teardown(test_draining, teardown),
		cmocka_unit_test_teardown(test_answers_not_taken, teardown),
		cmocka_unit_test_teardown(test_a_client_without_power_leaves, teardown),
	};

	return cmocka_run_group_tests_name("nbd", tests, NULL, NULL);
}
