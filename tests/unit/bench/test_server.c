#include "../unit.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "bench/server.h"

static const char METRICS[] = "# HELP a_total A.\n"
			      "# TYPE a_total counter\n"
			      "a_total{why=\"in\"} 5\n"
			      "a_total{why=\"out\"} 7.5\n"
			      "a_total_more 100\n"
			      "b 3\n";

static void test_labels_are_summed(void **state)
{
	double sum = -1;

	(void)state;
	assert_true(bench_metric_sum(METRICS, "a_total", &sum));
	assert_true(sum == 12.5);
	assert_true(bench_metric_sum(METRICS, "b", &sum));
	assert_true(sum == 3);
}

static void test_a_missing_metric_changes_nothing(void **state)
{
	double sum = -1;

	(void)state;
	assert_false(bench_metric_sum(METRICS, "a", &sum));
	assert_false(bench_metric_sum(METRICS, "total", &sum));
	assert_false(bench_metric_sum("", "b", &sum));
	assert_true(sum == -1);
}

/* ---- Waiting for the index. ---- */

static const char *const TOLD[] = {"nebulaio_store_index_jobs 2\n", "nebulaio_store_index_jobs 1\n",
	"nebulaio_store_index_jobs 0\n"};

struct teller {
	int fd;
	uint32_t told;
};

/* Answers each request with the next text. */
static void *tell(void *arg)
{
	struct teller *teller = arg;
	char request[1024], answer[256];

	while (teller->told < ARRAY_LEN(TOLD)) {
		int fd = accept(teller->fd, NULL, NULL);
		int len = snprintf(answer, sizeof(answer),
			"HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s",
			strlen(TOLD[teller->told]), TOLD[teller->told]);

		if (fd < 0 || read(fd, request, sizeof(request)) <= 0 ||
			write(fd, answer, (size_t)len) != len)
			break;
		teller->told++;
		close(fd);
	}
	return NULL;
}

static void test_settles_once_nothing_is_merged(void **state)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct teller teller = {.fd = socket(AF_INET, SOCK_STREAM, 0)};
	struct bench_server server = {0};
	socklen_t len = sizeof(at);
	pthread_t thread;

	(void)state;
	/* One without metrics. */
	assert_int_equal(bench_server_settle(&server), 0);
	assert_int_equal(bind(teller.fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(teller.fd, 1), 0);
	assert_int_equal(getsockname(teller.fd, (struct sockaddr *)&at, &len), 0);
	snprintf(server.metrics_address, sizeof(server.metrics_address), "127.0.0.1:%u",
		ntohs(at.sin_port));
	assert_int_equal(pthread_create(&thread, NULL, tell, &teller), 0);
	assert_int_equal(bench_server_settle(&server), 0);
	shutdown(teller.fd, SHUT_RDWR);
	pthread_join(thread, NULL);
	assert_int_equal(teller.told, ARRAY_LEN(TOLD));
	close(teller.fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_labels_are_summed),
		cmocka_unit_test(test_a_missing_metric_changes_nothing),
		cmocka_unit_test(test_settles_once_nothing_is_merged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
