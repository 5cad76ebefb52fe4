/* tests/e2e/vm/get_perf.c: gets one object again and again over RDMA and prints the duration of one
 * GET.
 *
 * Usage: get_perf DEVICE rdma://HOST:PORT ACCESS_KEY SECRET_KEY BUCKET BYTES COUNT [one-sided]
 *
 * Puts the object in an existing bucket. Prints the median in microseconds. With one-sided, the
 * client reads the server's memory itself as soon as it has a lease, and more than half of the GETs
 * must be one-sided. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "nebulaio/nebulaio.h"

#define KEY	  "get_perf"
#define COUNT_MAX 100000u
#define BYTES_MAX (1u << 20)

static int by_size(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return (left > right) - (left < right);
}

static int measure(struct neb_client *client, const char *bucket, size_t bytes, uint32_t count,
	uint64_t *times)
{
	uint8_t *body = NULL, *back = NULL;
	int err = neb_buffer_alloc(client, bytes, (void **)&body);

	if (!err)
		err = neb_buffer_alloc(client, bytes, (void **)&back);
	if (!err) {
		memset(body, 0x5a, bytes);
		err = neb_put(client, bucket, KEY, body, bytes, NULL);
	}
	for (uint32_t i = 0; i < count && !err; i++) {
		uint64_t start_ns = clock_now_ns();

		err = neb_get(client, bucket, KEY, back, bytes, NULL);
		times[i] = clock_now_ns() - start_ns;
	}
	if (!err && memcmp(body, back, bytes) != 0)
		err = -EBADMSG;
	neb_buffer_free(client, body);
	neb_buffer_free(client, back);
	return err;
}

int main(int argc, char **argv)
{
	struct neb_options options = {
		.transport = NEB_STRICT, .connect_timeout_ns = 60 * NS_PER_S, .spin_ns = NS_PER_S};
	struct neb_client *client;
	struct neb_stats stats;
	uint64_t bytes, count, *times;
	int err;

	options.one_sided_reads = argc == 9 && strcmp(argv[8], "one-sided") == 0;
	if (argc != (options.one_sided_reads ? 9 : 8) || slice_to_u64(slice_str(argv[6]), &bytes) ||
		!bytes || bytes > BYTES_MAX || slice_to_u64(slice_str(argv[7]), &count) || !count ||
		count > COUNT_MAX) {
		fprintf(stderr,
			"usage: get_perf DEVICE ENDPOINT ACCESS_KEY SECRET_KEY BUCKET BYTES "
			"COUNT [one-sided]\n");
		return 2;
	}
	options.device_name = argv[1];
	options.endpoints = argv[2];
	options.access_key = argv[3];
	options.secret_key = argv[4];
	times = calloc(count, sizeof(*times));
	err = times ? neb_client_open(&options, &client) : -ENOMEM;
	if (!err) {
		err = measure(client, argv[5], bytes, (uint32_t)count, times);
		neb_client_stats(client, &stats);
		if (!err && options.one_sided_reads && stats.one_sided_reads <= count / 2)
			err = -EPROTO;
		neb_client_close(client);
	}
	if (!err) {
		qsort(times, count, sizeof(*times), by_size);
		printf("%.1f\n", (double)times[count / 2] / 1000);
	} else {
		fprintf(stderr, "get_perf: %s\n", strerror(abs(err)));
	}
	free(times);
	return err ? 1 : 0;
}
