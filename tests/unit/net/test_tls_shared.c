/* tests/unit/net/test_tls_shared.c: covers net/tls_shared.c and net_tls_connect: the holders of one
 * secret make the same certificate, know each other by it, and refuse everybody else. */
#include "tls_rig.h"

static struct net_stream *client, *server;
static int accepted, connected;

/* Writes the file of a secret that is this byte, and reads it as both sides use it. */
static struct net_tls *shared(uint8_t byte, const char *name, struct buf *ret_pem)
{
	uint8_t secret[NET_TLS_SHARED_BYTES];
	char path[128];
	struct net_tls_opts opts = {.certificate = path, .key = path, .client_ca = path};
	struct net_tls *tls = NULL;
	FILE *file;

	memset(secret, byte, sizeof(secret));
	buf_init(ret_pem, 4 * KIB);
	assert_int_equal(net_tls_shared_pem(secret, "a cluster", ret_pem), 0);
	snprintf(path, sizeof(path), "%s", pki_path(name));
	file = fopen(path, "we");
	assert_non_null(file);
	assert_int_equal(fwrite(ret_pem->data, 1, ret_pem->len, file), ret_pem->len);
	assert_int_equal(fchmod(fileno(file), 0600), 0);
	fclose(file);
	assert_int_equal(net_tls_open(&opts, &tls), 0);
	return tls;
}

struct pair {
	struct net_tls *accepts, *connects;
};

static void accept_main(void *arg)
{
	char byte;
	size_t got;

	accepted = net_tls_accept(arg, server, in_ms(60000));
	/* In TLS 1.3 a client hears only now that its certificate is refused. */
	if (!accepted && !net_recv(server, &byte, 1, in_ms(60000), &got) && got) {
		struct iovec iov = {&byte, 1};

		assert_int_equal(net_sendv(server, &iov, 1, in_ms(60000)), 0);
	}
	net_close(server);
}

static void connect_main(void *arg)
{
	struct pair *pair = arg;
	char byte = 'x';
	struct iovec iov = {&byte, 1};

	rig_pair(&client, &server);
	rig_spawn(accept_main, pair->accepts);
	connected = net_tls_connect(pair->connects, client, in_ms(60000));
	if (!connected)
		connected = net_sendv(client, &iov, 1, in_ms(60000));
	if (!connected)
		connected = rig_recv_all(client, &byte, 1, in_ms(60000));
	net_close(client);
}

static void meet(struct net_tls *accepts, struct net_tls *connects)
{
	struct pair pair = {accepts, connects};

	accepted = connected = 1;
	rig_spawn(connect_main, &pair);
	rig_run();
}

static void test_holders(void **state)
{
	struct buf one, again, other;
	struct net_tls *first = shared(1, "one.pem", &one),
		       *second = shared(1, "again.pem", &again),
		       *third = shared(2, "other.pem", &other);

	(void)state;
	assert_int_equal(one.len, again.len);
	assert_memory_equal(one.data, again.data, one.len);
	assert_false(other.len == one.len && memcmp(other.data, one.data, one.len) == 0);
	meet(first, second);
	assert_int_equal(accepted, 0);
	assert_int_equal(connected, 0);
	/* The client refuses the server. */
	meet(third, first);
	assert_int_not_equal(accepted, 0);
	assert_int_equal(connected, -EPROTO);
	net_tls_close(first);
	net_tls_close(second);
	net_tls_close(third);
	buf_free(&one);
	buf_free(&again);
	buf_free(&other);
}

/* A client whose certificate is of another authority, although it trusts the server. */
static void test_stranger(void **state)
{
	struct net_tls_opts opts = {.certificate = pki_path("server.pem"),
		.key = pki_path("server.key"),
		.client_ca = pki_path("one.pem")};
	struct buf one;
	struct net_tls *first = shared(1, "one.pem", &one), *stranger = NULL;

	(void)state;
	assert_int_equal(net_tls_open(&opts, &stranger), 0);
	meet(first, stranger);
	assert_int_equal(accepted, -EPROTO);
	assert_int_not_equal(connected, 0);
	net_tls_close(first);
	net_tls_close(stranger);
	buf_free(&one);
}

static void plain_main(void *arg)
{
	char got[4];

	(void)arg;
	/* Something that is no TLS, and the end. */
	assert_int_equal(rig_recv_all(server, got, sizeof(got), in_ms(60000)), 0);
	net_close(server);
}

static void ask_plain_main(void *arg)
{
	rig_pair(&client, &server);
	rig_spawn(plain_main, NULL);
	connected = net_tls_connect(arg, client, in_ms(60000));
	net_close(client);
}

static void test_no_tls(void **state)
{
	struct buf one;
	struct net_tls *first = shared(1, "one.pem", &one);

	(void)state;
	connected = 0;
	rig_spawn(ask_plain_main, first);
	rig_run();
	assert_int_equal(connected, -ECONNRESET);
	net_tls_close(first);
	buf_free(&one);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_holders),
		RIG_TEST(test_stranger),
		RIG_TEST(test_no_tls),
	};

	return cmocka_run_group_tests_name("net_tls_shared", tests, pki_setup, pki_teardown);
}
