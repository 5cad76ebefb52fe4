#include "tls_rig.h"

#include <poll.h>
#include <signal.h>

#define BIG_BYTES (12u * 1024 * 1024)

static struct net_tls *tls;
static struct peer peer;
static struct net_stream *stream;

static int streams_setup(void **state)
{
	peer = (struct peer){.fd = -1};
	tls = pki_open("server", NULL);
	return rig_setup(state);
}

static int streams_teardown(void **state)
{
	SSL_SESSION_free(peer.session);
	net_tls_close(tls);
	return rig_teardown(state);
}

/* For several connections in one test: the reactor keeps running in between. */
static void start(peer_fn *client)
{
	peer.fn = client;
	stream = peer_start(&peer);
	assert_int_equal(net_tls_accept(tls, stream, in_ms(60000)), 0);
}

static void end(void)
{
	net_close(stream);
	peer_join(&peer);
}

static void send_text(const char *text)
{
	struct iovec iov = {(void *)(uintptr_t)text, strlen(text)};

	assert_int_equal(net_sendv(stream, &iov, 1, in_ms(60000)), 0);
}

static void expect_text(const char *text)
{
	char buf[256];

	assert_int_equal(rig_recv_all(stream, buf, strlen(text), in_ms(60000)), 0);
	assert_memory_equal(buf, text, strlen(text));
}

/* A counter to find by its name, and its value. */
struct named {
	const char *name;
	uint64_t value;
};

static void visit(const struct counter *counter, void *arg)
{
	struct named *named = arg;

	if (!strcmp(counter->name, named->name))
		named->value = counter_read(counter);
}

static uint64_t count_of(const char *name)
{
	struct named named = {.name = name};

	counter_visit(visit, &named);
	return named.value;
}

/* ---- Data both ways. ---- */

static void talk_peer(struct peer *client)
{
	char buf[64];

	peer_handshake(client);
	peer_write(client, "ping");
	/* Three runs of bytes are sent as one record. */
	PEER_CHECK(SSL_read(client->ssl, buf, sizeof(buf)) == 8);
	PEER_CHECK(!memcmp(buf, "headbody", 8));
	peer_write(client, "abcdef");
	peer_expect(client, "ok");
	/* A half close: the other direction goes on. */
	PEER_CHECK(SSL_shutdown(client->ssl) == 0);
	peer_expect(client, "still here");
	peer_expect_end(client);
}

static void talk(void *arg)
{
	struct iovec iov[4] = {
		{(void *)"he", 2}, {NULL, 0}, {(void *)"ad", 2}, {(void *)"body", 4}};
	char buf[16];
	size_t got;

	(void)arg;
	start(talk_peer);
	assert_int_equal(net_wait_readable(stream, in_ms(60000)), 0);
	expect_text("ping");
	assert_int_equal(net_wait_readable(stream, in_ms(5)), -ETIMEDOUT);
	assert_int_equal(net_recv(stream, buf, sizeof(buf), in_ms(5), &got), -ETIMEDOUT);
	assert_int_equal(net_sendv(stream, iov, 4, in_ms(60000)), 0);
	assert_int_equal(net_recv(stream, buf, 2, in_ms(60000), &got), 0);
	assert_int_equal(got, 2);
	assert_memory_equal(buf, "ab", 2);
	/* The rest of the record is buffered, independent of the socket. */
	/* At the deadline, the bytes received so far are returned. */
	assert_int_equal(net_recv_full(stream, buf, 8, in_ms(5), &got), 0);
	assert_int_equal(got, 4);
	assert_memory_equal(buf, "cdef", 4);
	assert_true(!strncmp(net_peer(stream), "127.0.0.1:", 10));
	send_text("ok");
	assert_int_equal(net_recv(stream, buf, 8, in_ms(60000), &got), 0);
	assert_int_equal(got, 0);
	assert_int_equal(net_recv_full(stream, buf, 8, in_ms(60000), &got), 0);
	assert_int_equal(got, 0);
	assert_int_equal(rig_recv_all(stream, buf, 8, in_ms(60000)), -EPIPE);
	assert_int_equal(net_wait_readable(stream, in_ms(60000)), 0);
	send_text("still here");
	net_send_end(stream);
	end();
}

static void test_talk(void **state)
{
	uint64_t handshakes = count_of("nebulaio_tls_handshakes_total");

	(void)state;
	rig_spawn(talk, NULL);
	rig_run();
	assert_int_equal(count_of("nebulaio_tls_handshakes_total"), handshakes + 1);
}

static void test_talk_1_2(void **state)
{
	peer.version_max = TLS1_2_VERSION;
	test_talk(state);
}

/* ---- More than any buffer holds, both ways at once, with keys renewed meanwhile. ---- */

static uint8_t *big_out, *big_in, *big_back;
static uint32_t big_fibers;

static void duplex_peer(struct peer *client)
{
	size_t sent = 0, have = 0;
	bool renewed = false;
	struct pollfd fd;

	peer_handshake(client);
	PEER_CHECK(!fcntl(client->fd, F_SETFL, O_NONBLOCK));
	SSL_set_mode(client->ssl, SSL_MODE_ENABLE_PARTIAL_WRITE);
	while (sent < BIG_BYTES || have < BIG_BYTES) {
		int wrote = -1, got = -1;

		if (sent > BIG_BYTES / 2 && !renewed)
			renewed = SSL_key_update(client->ssl, SSL_KEY_UPDATE_REQUESTED);
		if (sent < BIG_BYTES)
			wrote = SSL_write(client->ssl, big_out + sent, (int)(BIG_BYTES - sent));
		sent += wrote > 0 ? (size_t)wrote : 0;
		if (have < BIG_BYTES)
			got = SSL_read(client->ssl, big_back + have, (int)(BIG_BYTES - have));
		have += got > 0 ? (size_t)got : 0;
		if (wrote > 0 || got > 0)
			continue;
		fd = (struct pollfd){.fd = client->fd, .events = POLLIN};
		fd.events |= (short)(sent < BIG_BYTES ? POLLOUT : 0);
		PEER_CHECK(poll(&fd, 1, 60000) == 1);
	}
	PEER_CHECK(renewed);
	PEER_CHECK(!fcntl(client->fd, F_SETFL, 0));
	peer_expect_end(client);
}

static void duplex_sender(void *arg)
{
	struct iovec iov[] = {{big_out, 1000}, {big_out + 1000, BIG_BYTES - 2000},
		{big_out + BIG_BYTES - 1000, 1000}};

	(void)arg;
	assert_int_equal(net_sendv_stall(stream, iov, 3, 60 * NS_PER_S, DEADLINE_NONE), 0);
	big_fibers--;
}

static void duplex(void *arg)
{
	size_t got;

	(void)arg;
	start(duplex_peer);
	big_fibers = 1;
	rig_spawn(duplex_sender, NULL);
	assert_int_equal(net_recv_full(stream, big_in, BIG_BYTES / 2, in_ms(60000), &got), 0);
	assert_int_equal(got, BIG_BYTES / 2);
	assert_int_equal(
		rig_recv_all(stream, big_in + BIG_BYTES / 2, BIG_BYTES / 2, in_ms(60000)), 0);
	while (big_fibers)
		fiber_yield();
	net_send_end(stream);
	end();
}

static void test_duplex(void **state)
{
	struct prng prng;

	(void)state;
	big_out = malloc(BIG_BYTES);
	big_in = calloc(1, BIG_BYTES);
	big_back = calloc(1, BIG_BYTES);
	assert_true(big_out && big_in && big_back);
	prng_seed(&prng, 11);
	prng_fill(&prng, big_out, BIG_BYTES);
	rig_spawn(duplex, NULL);
	rig_run();
	assert_memory_equal(big_out, big_in, BIG_BYTES);
	assert_memory_equal(big_out, big_back, BIG_BYTES);
	free(big_out);
	free(big_in);
	free(big_back);
}

/* ---- One byte at a time. ---- */

/* Sends the library's output byte by byte. */
static void trickle_out(struct peer *client, BIO *out)
{
	char byte;

	while (BIO_read(out, &byte, 1) == 1)
		PEER_CHECK(send(client->fd, &byte, 1, MSG_NOSIGNAL) == 1);
}

static void trickle_in(struct peer *client, BIO *in)
{
	char buf[4096];
	ssize_t got = recv(client->fd, buf, sizeof(buf), 0);

	PEER_CHECK(got > 0 && BIO_write(in, buf, (int)got) == got);
}

static void trickle_peer(struct peer *client)
{
	BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
	char buf[16];

	peer_ssl(client);
	SSL_set_bio(client->ssl, in, out);
	while (SSL_do_handshake(client->ssl) != 1) {
		trickle_out(client, out);
		trickle_in(client, in);
	}
	peer_write(client, "a whole record");
	trickle_out(client, out);
	while (SSL_read(client->ssl, buf, sizeof(buf)) != 4)
		trickle_in(client, in);
	PEER_CHECK(!memcmp(buf, "good", 4));
}

static void trickle(void *arg)
{
	(void)arg;
	start(trickle_peer);
	expect_text("a whole record");
	send_text("good");
	end();
}

static void test_trickle(void **state)
{
	(void)state;
	rig_spawn(trickle, NULL);
	rig_run();
}

/* ---- Connections that do not end in order. ---- */

static void cut_peer(struct peer *client)
{
	peer_handshake(client);
	peer_write(client, "x");
	peer_expect(client, "y");
}

static void cut(void *arg)
{
	struct iovec iov = {(void *)"x", 1};
	char byte;
	size_t got;

	(void)arg;
	start(cut_peer);
	expect_text("x");
	send_text("y");
	/* The connection ends without close_notify: the data may be truncated. */
	assert_int_equal(net_recv(stream, &byte, 1, in_ms(60000), &got), -ECONNRESET);
	assert_int_equal(net_recv_full(stream, &byte, 1, in_ms(60000), &got), -ECONNRESET);
	assert_int_equal(net_wait_readable(stream, in_ms(60000)), 0);
	assert_int_equal(net_sendv(stream, &iov, 1, in_ms(60000)), -ECONNRESET);
	net_send_end(stream);
	end();
}

/* A record that was changed in transit. */
static void forge_peer(struct peer *client)
{
	BIO *out = BIO_new(BIO_s_mem());
	char *data, byte;
	long len;

	peer_handshake(client);
	SSL_set0_wbio(client->ssl, out);
	peer_write(client, "x");
	len = BIO_get_mem_data(out, &data);
	data[len - 1] ^= 1;
	PEER_CHECK(send(client->fd, data, (size_t)len, 0) == len);
	PEER_CHECK(SSL_read(client->ssl, &byte, 1) <= 0);
	PEER_CHECK(ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_SSLV3_ALERT_BAD_RECORD_MAC);
}

static void forge(void *arg)
{
	char byte;
	size_t got;

	(void)arg;
	start(forge_peer);
	assert_int_equal(net_recv(stream, &byte, 1, in_ms(60000), &got), -EPROTO);
	assert_int_equal(net_recv(stream, &byte, 1, in_ms(60000), &got), -EPROTO);
	end();
}

static void test_cut(void **state)
{
	(void)state;
	rig_spawn(cut, NULL);
	rig_run();
}

static void test_forge(void **state)
{
	(void)state;
	rig_spawn(forge, NULL);
	rig_run();
}

/* ---- Peers that do not read, and our own shutdown. ---- */

static bool peer_may_go;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_opened = PTHREAD_COND_INITIALIZER;

static void gate_open(void)
{
	pthread_mutex_lock(&gate);
	peer_may_go = true;
	pthread_cond_signal(&gate_opened);
	pthread_mutex_unlock(&gate);
}

/* Neither reads nor writes until the test is done with it. */
static void still_peer(struct peer *client)
{
	char buf[4096];
	int got;

	peer_handshake(client);
	pthread_mutex_lock(&gate);
	while (!peer_may_go)
		pthread_cond_wait(&gate_opened, &gate);
	peer_may_go = false;
	pthread_mutex_unlock(&gate);
	/* A peer whose stream was cut off must not see an orderly end. */
	do {
		got = SSL_read(client->ssl, buf, sizeof(buf));
	} while (got > 0);
	PEER_CHECK(SSL_get_error(client->ssl, got) != SSL_ERROR_ZERO_RETURN);
}

static int woken_by;

static void wait_recv(void *arg)
{
	char byte;
	size_t got;

	(void)arg;
	woken_by = net_recv(stream, &byte, 1, DEADLINE_NONE, &got);
}

static void still(void *arg)
{
	char *much = calloc(1, BIG_BYTES);
	struct iovec iov = {much, BIG_BYTES};
	char byte;
	size_t got;

	(void)arg;
	assert_non_null(much);
	start(still_peer);
	assert_int_equal(
		net_sendv_stall(stream, &iov, 1, 10 * NS_PER_MS, DEADLINE_NONE), -ETIMEDOUT);
	assert_int_equal(net_sendv(stream, &iov, 1, in_ms(5)), -ETIMEDOUT);
	woken_by = 1;
	rig_spawn(wait_recv, NULL);
	fiber_yield();
	net_shutdown(stream);
	while (woken_by == 1)
		fiber_yield();
	assert_int_equal(woken_by, -ECANCELED);
	assert_int_equal(net_recv(stream, &byte, 1, DEADLINE_NONE, &got), -ECANCELED);
	assert_int_equal(net_sendv(stream, &iov, 1, DEADLINE_NONE), -ECANCELED);
	free(much);
	net_close(stream);
	gate_open();
	peer_join(&peer);
}

static void test_still(void **state)
{
	(void)state;
	rig_spawn(still, NULL);
	rig_run();
}

/* ---- Handshakes that fail. ---- */

static const char *first_words;
static size_t first_words_len;

/* Sends some bytes, and waits for the end of the connection. */
static void words_peer(struct peer *client)
{
	char buf[512];

	peer_connect(client);
	PEER_CHECK(send(client->fd, first_words, first_words_len, 0) == (ssize_t)first_words_len);
	while (recv(client->fd, buf, sizeof(buf), 0) > 0)
		;
}

/* Sends some bytes, and closes. */
static void gone_peer(struct peer *client)
{
	peer_connect(client);
	PEER_CHECK(send(client->fd, first_words, first_words_len, 0) == (ssize_t)first_words_len);
}

static void refused(peer_fn *client, const char *words, size_t len, uint64_t ms, int why)
{
	uint64_t failures = count_of("nebulaio_tls_handshake_failures_total");
	struct iovec iov = {(void *)"plain", 5};

	first_words = words;
	first_words_len = len;
	peer.fn = client;
	stream = peer_start(&peer);
	assert_int_equal(net_tls_accept(tls, stream, in_ms(ms)), why);
	assert_int_equal(count_of("nebulaio_tls_handshake_failures_total"), failures + 1);
	/* It is still a plain stream, so an error can be sent. */
	if (why != -ECONNRESET)
		assert_int_equal(net_sendv(stream, &iov, 1, in_ms(60000)), 0);
	net_send_end(stream);
	end();
}

static void refusals(void *arg)
{
	/* The start of a ClientHello whose length is larger. */
	static const char hello[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
	static const char noise[] = "\x00\x9e\x01\x03\x01 and so on, and on, and on";

	(void)arg;
	refused(words_peer, noise, sizeof(noise), 60000, -EPROTO);
	refused(words_peer, "GET / HTTP/1.1\r\n\r\n", 18, 60000, -EPROTOTYPE);
	refused(words_peer, "DELETE /b/k HTTP/1.1\r\n\r\n", 24, 60000, -EPROTOTYPE);
	refused(words_peer, "", 0, 10, -ETIMEDOUT);
	refused(words_peer, hello, sizeof(hello) - 1, 10, -ETIMEDOUT);
	refused(gone_peer, hello, sizeof(hello) - 1, 60000, -ECONNRESET);
	refused(gone_peer, "", 0, 60000, -ECONNRESET);
}

static void test_refusals(void **state)
{
	(void)state;
	rig_spawn(refusals, NULL);
	rig_run();
}

static void old_peer(struct peer *client)
{
	peer_ssl(client);
	PEER_CHECK(SSL_do_handshake(client->ssl) != 1);
	PEER_CHECK(ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_TLSV1_ALERT_PROTOCOL_VERSION);
}

static void old(void *arg)
{
	(void)arg;
	peer.fn = old_peer;
	stream = peer_start(&peer);
	assert_int_equal(net_tls_accept(tls, stream, in_ms(60000)), -EPROTO);
	net_send_end(stream);
	end();
}

static void test_old_versions(void **state)
{
	(void)state;
	peer.version_max = TLS1_1_VERSION;
	rig_spawn(old, NULL);
	rig_run();
}

static void h2_peer(struct peer *client)
{
	peer_ssl(client);
	PEER_CHECK(!SSL_set_alpn_protos(client->ssl, (const unsigned char *)"\x02h2", 3));
	PEER_CHECK(SSL_do_handshake(client->ssl) != 1);
	PEER_CHECK(
		ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL);
}

static void h2(void *arg)
{
	(void)arg;
	peer.fn = h2_peer;
	stream = peer_start(&peer);
	assert_int_equal(net_tls_accept(tls, stream, in_ms(60000)), -EPROTO);
	net_send_end(stream);
	end();
}

static void test_other_protocol(void **state)
{
	(void)state;
	rig_spawn(h2, NULL);
	rig_run();
}

/* Shut down in the middle of its handshake, as in a draining server. */
static void accept_shut(void *arg)
{
	(void)arg;
	woken_by = net_tls_accept(tls, stream, DEADLINE_NONE);
}

static void shut(void *arg)
{
	(void)arg;
	first_words_len = 0;
	peer.fn = words_peer;
	stream = peer_start(&peer);
	woken_by = 1;
	rig_spawn(accept_shut, NULL);
	fiber_yield();
	net_shutdown(stream);
	while (woken_by == 1)
		fiber_yield();
	assert_int_equal(woken_by, -ECANCELED);
	end();
}

static void test_shut(void **state)
{
	(void)state;
	rig_spawn(shut, NULL);
	rig_run();
}

/* ---- Resumption, and certificates that change. ---- */

static void hello_peer(struct peer *client)
{
	peer_handshake(client);
	peer_write(client, "x");
	peer_expect(client, "y");
	peer_expect_end(client);
	PEER_CHECK(SSL_shutdown(client->ssl) == 1);
}

static void hello(bool resumed)
{
	uint64_t resumptions = count_of("nebulaio_tls_resumptions_total");

	start(hello_peer);
	expect_text("x");
	send_text("y");
	net_send_end(stream);
	end();
	assert_int_equal(peer.resumed, resumed);
	assert_int_equal(count_of("nebulaio_tls_resumptions_total"), resumptions + resumed);
}

static void resumption(void *arg)
{
	struct net_tls *first = tls;

	(void)arg;
	hello(false);
	assert_non_null(peer.session);
	hello(true);
	hello(true);
	/* Tickets from before a reload are ignored, and do no harm. */
	assert_int_equal(net_tls_reload(tls), 0);
	hello(false);
	hello(true);
	/* So are another server's. */
	tls = pki_open("server", NULL);
	hello(false);
	net_tls_close(tls);
	tls = first;
}

static void test_resumption(void **state)
{
	(void)state;
	rig_spawn(resumption, NULL);
	rig_run();
}

static void test_resumption_1_2(void **state)
{
	peer.version_max = TLS1_2_VERSION;
	test_resumption(state);
}

static char other_fingerprint[NET_TLS_FINGERPRINT_LEN + 1];

/* An open stream keeps the old certificate while new ones use the new certificate. */
static void reload_peer(struct peer *client)
{
	struct peer second = {.fn = hello_peer, .port = client->port};

	peer_handshake(client);
	peer_write(client, "1");
	peer_expect(client, "reloaded");
	peer_main(&second);
	SSL_SESSION_free(second.session);
	memcpy(other_fingerprint, second.fingerprint, sizeof(other_fingerprint));
	peer_write(client, "2");
	peer_expect(client, "end");
}

static void reload(void *arg)
{
	char old_text[NET_TLS_FINGERPRINT_LEN + 1], new_text[NET_TLS_FINGERPRINT_LEN + 1];
	struct net_listener *listener;
	struct net_stream *second;

	(void)arg;
	assert_int_equal(net_listen(rig, "127.0.0.1:0", &listener), 0);
	peer.fn = reload_peer;
	peer.port = net_listener_port(listener);
	PEER_CHECK(!pthread_create(&peer.thread, NULL, peer_main, &peer));
	assert_int_equal(net_accept(listener, &stream), 0);
	assert_int_equal(net_tls_accept(tls, stream, in_ms(60000)), 0);
	expect_text("1");
	net_tls_fingerprint(tls, old_text);
	assert_false(net_tls_changed(tls));
	pki_issue((struct pki_issue){.name = "new", .issuer = "ca", .type = "RSA"});
	pki_rename("new.pem", "moving.pem");
	/* The certificate alone is not usable: the files read before stay in use, and are not read
	 * again. */
	assert_true(net_tls_changed(tls));
	assert_int_equal(net_tls_reload(tls), -EINVAL);
	assert_false(net_tls_changed(tls));
	pki_rename("new.key", "moving.key");
	assert_true(net_tls_changed(tls));
	assert_int_equal(net_tls_reload(tls), 0);
	assert_false(net_tls_changed(tls));
	net_tls_fingerprint(tls, new_text);
	assert_string_not_equal(old_text, new_text);
	send_text("reloaded");
	second = stream;
	assert_int_equal(net_accept(listener, &stream), 0);
	assert_int_equal(net_tls_accept(tls, stream, in_ms(60000)), 0);
	expect_text("x");
	send_text("y");
	net_send_end(stream);
	net_close(stream);
	stream = second;
	expect_text("2");
	send_text("end");
	end();
	assert_string_equal(peer.fingerprint, old_text);
	assert_string_equal(other_fingerprint, new_text);
	net_listener_close(listener);
}

static void test_reload(void **state)
{
	(void)state;
	pki_issue((struct pki_issue){.name = "moving", .issuer = "ca"});
	net_tls_close(tls);
	tls = pki_open("moving", NULL);
	rig_spawn(reload, NULL);
	rig_run();
}

/* ---- Client certificates. ---- */

static void refused_peer(struct peer *client)
{
	char byte;

	peer_ssl(client);
	/* With TLS 1.3 the client gets the error only when it reads. */
	if (SSL_do_handshake(client->ssl) == 1)
		PEER_CHECK(SSL_read(client->ssl, &byte, 1) <= 0);
}

static void mutual_refused(const char *certificate)
{
	peer.certificate = certificate;
	peer.fn = refused_peer;
	stream = peer_start(&peer);
	assert_int_equal(net_tls_accept(tls, stream, in_ms(60000)), -EPROTO);
	net_send_end(stream);
	end();
}

static void mutual(void *arg)
{
	(void)arg;
	mutual_refused(NULL);
	mutual_refused("stranger");
	mutual_refused("late");
	peer.certificate = "friend";
	hello(false);
	hello(true);
	/* A client that is no longer trusted cannot come back with an old ticket. */
	pki_rename("other.pem", "trusted.pem");
	assert_true(net_tls_changed(tls));
	assert_int_equal(net_tls_reload(tls), 0);
	mutual_refused("friend");
	SSL_SESSION_free(peer.session);
	peer.session = NULL;
	peer.certificate = "stranger";
	hello(false);
}

static void test_mutual(void **state)
{
	(void)state;
	pki_issue((struct pki_issue){.name = "trusted"});
	pki_issue((struct pki_issue){.name = "friend", .issuer = "trusted"});
	pki_issue((struct pki_issue){.name = "late", .issuer = "trusted", .ends_s = -1000});
	pki_issue((struct pki_issue){.name = "other"});
	pki_issue((struct pki_issue){.name = "stranger", .issuer = "other"});
	net_tls_close(tls);
	tls = pki_open("server", "trusted.pem");
	rig_spawn(mutual, NULL);
	rig_run();
}

static void test_mutual_1_2(void **state)
{
	peer.version_max = TLS1_2_VERSION;
	test_mutual(state);
}

#define STREAM_TEST(fn) cmocka_unit_test_setup_teardown(fn, streams_setup, streams_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		STREAM_TEST(test_talk),
		STREAM_TEST(test_talk_1_2),
		STREAM_TEST(test_duplex),
		STREAM_TEST(test_trickle),
		STREAM_TEST(test_cut),
		STREAM_TEST(test_forge),
		STREAM_TEST(test_still),
		STREAM_TEST(test_refusals),
		STREAM_TEST(test_old_versions),
		STREAM_TEST(test_other_protocol),
		STREAM_TEST(test_shut),
		STREAM_TEST(test_resumption),
		STREAM_TEST(test_resumption_1_2),
		STREAM_TEST(test_reload),
		STREAM_TEST(test_mutual),
		STREAM_TEST(test_mutual_1_2),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests_name("net_tls_stream", tests, pki_setup, pki_teardown);
}
