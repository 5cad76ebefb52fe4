/* bench/noisy.c: the second tenant: threads that each store one object again and again, and sleep
 * while the server works. */
#include "bench/noisy.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench/http_load.h"
#include "codec/codec.h"

#define BUCKET "/bench-noisy"

struct bench_noisy {
	const struct bench_server *server;
	struct buf requests[BENCH_NOISY_DEPTH]; /* head and body */
	pthread_t threads[BENCH_NOISY_DEPTH];
	uint32_t thread_count;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool runs, closing;
	uint32_t busy;
	uint64_t uploads;
};

struct worker {
	struct bench_noisy *noisy;
	uint32_t idx;
};

static void *worker_main(void *arg)
{
	struct worker worker = *(struct worker *)arg;
	struct bench_noisy *noisy = worker.noisy;
	char answer[16 * KIB];
	size_t bytes;

	free(arg);
	pthread_mutex_lock(&noisy->lock);
	while (!noisy->closing) {
		int status;

		if (!noisy->runs) {
			pthread_cond_wait(&noisy->changed, &noisy->lock);
			continue;
		}
		noisy->busy++;
		pthread_cond_broadcast(&noisy->changed);
		pthread_mutex_unlock(&noisy->lock);
		status = bench_http_once(noisy->server->http_address,
			buf_slice(&noisy->requests[worker.idx]), answer, sizeof(answer), &bytes);
		pthread_mutex_lock(&noisy->lock);
		noisy->uploads += status == 200;
		noisy->busy--;
		pthread_cond_broadcast(&noisy->changed);
	}
	pthread_mutex_unlock(&noisy->lock);
	return NULL;
}

/* Where neither the server nor the one who measures runs, if there is such a processor. */
static void place(const struct bench_noisy *noisy, const struct bench_cpus *cpus)
{
	long count = sysconf(_SC_NPROCESSORS_ONLN);
	cpu_set_t set;

	CPU_ZERO(&set);
	for (int cpu = 0; cpu < count && cpu < CPU_SETSIZE; cpu++)
		if (cpu != cpus->server && cpu != cpus->client)
			CPU_SET(cpu, &set);
	for (uint32_t i = 0; i < noisy->thread_count && CPU_COUNT(&set); i++)
		pthread_setaffinity_np(noisy->threads[i], sizeof(set), &set);
}

static int make_bucket(const struct bench_server *server, const struct bench_signer *signer)
{
	const struct bench_http_line line = {.method = "PUT", .path = BUCKET, .query = ""};
	char answer[16 * KIB];
	struct buf head;
	size_t bytes;
	int status;

	buf_init(&head, 16 * KIB);
	bench_http_put_head(signer, &line, &head);
	status = bench_http_once(
		server->http_address, buf_slice(&head), answer, sizeof(answer), &bytes);
	buf_free(&head);
	if (status < 0)
		return status;
	return status == 200 ? 0 : -EACCES;
}

static int make_request(struct bench_noisy *noisy, const struct bench_signer *signer,
	const uint8_t *body, uint32_t idx)
{
	char path[64];
	const struct bench_http_line line = {.method = "PUT",
		.path = path,
		.query = "",
		.has_body = true,
		.body_bytes = BENCH_NOISY_BYTES};
	struct buf *request = &noisy->requests[idx];

	snprintf(path, sizeof(path), "%s/%u", BUCKET, idx);
	buf_init(request, BENCH_NOISY_BYTES + 16 * KIB);
	bench_http_put_head(signer, &line, request);
	buf_put(request, body, BENCH_NOISY_BYTES);
	return request->failed ? -ENOMEM : 0;
}

static int start(struct bench_noisy *noisy, uint32_t idx)
{
	struct worker *worker = malloc(sizeof(*worker));
	int ret;

	if (!worker)
		return -ENOMEM;
	*worker = (struct worker){.noisy = noisy, .idx = idx};
	ret = pthread_create(&noisy->threads[idx], NULL, worker_main, worker);
	if (ret) {
		free(worker);
		return -ret;
	}
	noisy->thread_count++;
	return 0;
}

int bench_noisy_open(const struct bench_server *server, const struct bench_cpus *cpus,
	struct bench_noisy **ret_noisy)
{
	struct bench_noisy *noisy;
	struct bench_signer signer;
	uint8_t *body;
	int ret;

	if (!server->noisy_access_key[0] || !server->http_address[0])
		return -ENODEV;
	noisy = calloc(1, sizeof(*noisy));
	body = malloc(BENCH_NOISY_BYTES);
	if (!noisy || !body) {
		free(noisy);
		free(body);
		return -ENOMEM;
	}
	noisy->server = server;
	pthread_mutex_init(&noisy->lock, NULL);
	pthread_cond_init(&noisy->changed, NULL);
	random_fill(body, BENCH_NOISY_BYTES);
	bench_signer_init(&signer, server->noisy_access_key, server->noisy_secret_key,
		server->region, server->http_address);
	ret = make_bucket(server, &signer);
	for (uint32_t i = 0; i < BENCH_NOISY_DEPTH && !ret; i++)
		ret = make_request(noisy, &signer, body, i);
	for (uint32_t i = 0; i < BENCH_NOISY_DEPTH && !ret; i++)
		ret = start(noisy, i);
	secret_wipe(&signer, sizeof(signer));
	free(body);
	if (ret) {
		bench_noisy_close(noisy);
		return ret;
	}
	place(noisy, cpus);
	*ret_noisy = noisy;
	return 0;
}

void bench_noisy_begin(struct bench_noisy *noisy)
{
	pthread_mutex_lock(&noisy->lock);
	noisy->runs = true;
	pthread_cond_broadcast(&noisy->changed);
	/* The measurement begins once all of it runs. */
	while (noisy->busy < BENCH_NOISY_DEPTH)
		pthread_cond_wait(&noisy->changed, &noisy->lock);
	pthread_mutex_unlock(&noisy->lock);
}

void bench_noisy_end(struct bench_noisy *noisy)
{
	pthread_mutex_lock(&noisy->lock);
	noisy->runs = false;
	while (noisy->busy)
		pthread_cond_wait(&noisy->changed, &noisy->lock);
	pthread_mutex_unlock(&noisy->lock);
}

uint64_t bench_noisy_uploads(const struct bench_noisy *noisy)
{
	return noisy->uploads;
}

void bench_noisy_close(struct bench_noisy *noisy)
{
	if (!noisy)
		return;
	pthread_mutex_lock(&noisy->lock);
	noisy->closing = true;
	pthread_cond_broadcast(&noisy->changed);
	pthread_mutex_unlock(&noisy->lock);
	for (uint32_t i = 0; i < noisy->thread_count; i++)
		pthread_join(noisy->threads[i], NULL);
	for (uint32_t i = 0; i < BENCH_NOISY_DEPTH; i++)
		buf_free(&noisy->requests[i]);
	pthread_cond_destroy(&noisy->changed);
	pthread_mutex_destroy(&noisy->lock);
	free(noisy);
}
