#include "../unit.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/http_load.h"

/* A server of one thread: connections one after the other, answers as each test needs them. */
enum mood { HONEST, IN_PIECES, WRONG_STATUS, WRONG_BYTES, SHORT_BODY, CLOSES };
struct peer {
	enum mood mood;
	const struct bench_data *data;
	int listener;
	char address[32];
	pthread_t thread;
	uint32_t answers;
};

static void reply(struct peer *peer, int fd)
{
	const uint8_t *body = peer->data->pool; /* of object 0 */
	size_t bytes = peer->data->bytes - (peer->mood == SHORT_BODY);
	char head[128];
	int len = snprintf(head, sizeof(head), "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n",
		peer->mood == WRONG_STATUS ? "503 Slow Down" : "200 OK", bytes);

	if (peer->mood == WRONG_BYTES)
		body += BENCH_CONTENT_STEP;
	if (peer->mood == IN_PIECES) {
		for (int i = 0; i < len; i++)
			send(fd, head + i, 1, MSG_NOSIGNAL);
	} else {
		send(fd, head, (size_t)len, MSG_NOSIGNAL);
	}
	send(fd, body, bytes / 2, MSG_NOSIGNAL);
	send(fd, body + bytes / 2, bytes - bytes / 2, MSG_NOSIGNAL);
}

static void *serve(void *arg)
{
	struct peer *peer = arg;
	int fd;

	while ((fd = accept(peer->listener, NULL, NULL)) >= 0) {
		char request[4096];
		ssize_t len = 0, got;

		while ((got = recv(fd, request + len, sizeof(request) - 1 - (size_t)len, 0)) > 0) {
			len += got;
			request[len] = '\0';
			if (!strstr(request, "\r\n\r\n"))
				continue;
			if (peer->mood == CLOSES)
				break;
			reply(peer, fd);
			peer->answers++;
			len = 0;
		}
		close(fd);
	}
	return NULL;
}

static void peer_start(struct peer *peer)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);

	peer->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(peer->listener >= 0);
	assert_int_equal(bind(peer->listener, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(peer->listener, 16), 0);
	assert_int_equal(getsockname(peer->listener, (struct sockaddr *)&address, &len), 0);
	snprintf(peer->address, sizeof(peer->address), "127.0.0.1:%u", ntohs(address.sin_port));
	assert_int_equal(pthread_create(&peer->thread, NULL, serve, peer), 0);
}

static void peer_stop(struct peer *peer)
{
	shutdown(peer->listener, SHUT_RDWR);
	pthread_join(peer->thread, NULL);
	close(peer->listener);
}

/* Makes ten requests to a peer of that mood, over one connection. */
static struct bench_result ten(enum mood mood)
{
	static struct hist hist;
	const struct bench_run_opts run = {
		.duration_ns = 20 * NS_PER_S, .ops_max = 10, .verify_every = 2};
	const struct bench_http_line line = {.method = "GET", .path = "/0", .query = ""};
	struct bench_result result = {.hist = &hist};
	struct bench_signer nobody;
	struct bench_http_set set;
	struct bench_http_load *load;
	struct bench_data data;
	struct peer peer = {.mood = mood, .data = &data};

	hist_reset(&hist);
	assert_int_equal(bench_data_open(&data, "", 10000, 1), 0);
	peer_start(&peer);
	bench_signer_init(&nobody, NULL, NULL, NULL, peer.address);
	assert_int_equal(bench_http_set_open(&set, 1), 0);
	assert_int_equal(bench_http_set_add(&set, &nobody, &line, 0, NULL), 0);
	set.answer_bytes = set.answer_bytes_max = data.bytes;
	set.check = bench_check_object;
	set.check_arg = &data;
	assert_int_equal(bench_http_load_open(peer.address, 1, &set, &load), 0);
	assert_int_equal(bench_http_load_run(load, &run, &result), 10);
	bench_http_load_close(load);
	peer_stop(&peer);
	assert_int_equal(peer.answers, mood == CLOSES ? 0 : 10);
	bench_http_set_close(&set);
	bench_data_close(&data);
	assert_int_equal(result.ops, 10);
	assert_int_equal(hist.count, 10);
	assert_true(result.elapsed_ns > 0);
	return result;
}

static void test_right_answers_are_counted(void **state)
{
	struct bench_result result = ten(HONEST);

	(void)state;
	assert_int_equal(result.errors, 0);
	assert_int_equal(result.bytes, 100000);
	assert_int_equal(result.verified_ops, 5);
	assert_int_equal(result.verified_bytes, 50000);
}

static void test_pieces_make_an_answer(void **state)
{
	struct bench_result result = ten(IN_PIECES);

	(void)state;
	assert_int_equal(result.errors, 0);
	assert_int_equal(result.bytes, 100000);
}

static void test_a_wrong_status_is_an_error(void **state)
{
	struct bench_result result = ten(WRONG_STATUS);

	(void)state;
	assert_int_equal(result.errors, 10);
	assert_int_equal(result.bytes, 0);
	assert_int_equal(strncmp(result.first_error, "status 503 instead of 200", 25), 0);
}

static void test_wrong_bytes_are_an_error(void **state)
{
	struct bench_result result = ten(WRONG_BYTES);

	(void)state;
	assert_int_equal(result.errors, 5); /* of the checked answers */
	assert_int_equal(result.verified_ops, 0);
	assert_string_equal(result.first_error, "wrong bytes in the answer");
}

static void test_a_wrong_length_is_an_error(void **state)
{
	struct bench_result result = ten(SHORT_BODY);

	(void)state;
	assert_true(result.errors >= 10);
	assert_string_equal(result.first_error, "9999 bytes instead of 10000");
}

static void test_a_broken_connection_is_an_error_and_made_anew(void **state)
{
	struct bench_result result = ten(CLOSES);

	(void)state;
	assert_int_equal(result.errors, 10);
}

static void test_one_request_by_itself(void **state)
{
	struct bench_data data;
	struct peer peer = {.mood = IN_PIECES, .data = &data};
	char buf[16384];
	size_t bytes = 0;

	(void)state;
	assert_int_equal(bench_data_open(&data, "", 5000, 1), 0);
	peer_start(&peer);
	assert_int_equal(bench_http_once(peer.address, SLICE("GET / HTTP/1.1\r\n\r\n"), buf,
				 sizeof(buf), &bytes),
		200);
	assert_int_equal(bytes, 5000);
	assert_int_equal(bench_check_object(&data, 0, buf, bytes), 0);
	peer_stop(&peer);
	bench_data_close(&data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_right_answers_are_counted),
		cmocka_unit_test(test_pieces_make_an_answer),
		cmocka_unit_test(test_a_wrong_status_is_an_error),
		cmocka_unit_test(test_wrong_bytes_are_an_error),
		cmocka_unit_test(test_a_wrong_length_is_an_error),
		cmocka_unit_test(test_a_broken_connection_is_an_error_and_made_anew),
		cmocka_unit_test(test_one_request_by_itself),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
