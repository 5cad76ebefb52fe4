/* bench/load.c: objects with known bytes, and the pace of a load. */
#include "bench/load.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "codec/codec.h"

#define SEED 0x6e65627561u

int bench_data_open(struct bench_data *data, const char *prefix, uint64_t bytes, uint32_t count)
{
	uint32_t contents = MIN(count, BENCH_CONTENTS);
	struct prng prng;

	*data = (struct bench_data){.bytes = bytes, .count = count};
	snprintf(data->prefix, sizeof(data->prefix), "%s", prefix);
	data->pool = mmap(NULL, bytes + BENCH_CONTENT_SLACK, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (data->pool == MAP_FAILED) {
		data->pool = NULL;
		return -ENOMEM;
	}
	data->crcs = calloc(contents, sizeof(data->crcs[0]));
	if (!data->crcs) {
		bench_data_close(data);
		return -ENOMEM;
	}
	prng_seed(&prng, SEED + bytes);
	prng_fill(&prng, data->pool, bytes + BENCH_CONTENT_SLACK);
	for (uint32_t i = 0; i < contents; i++)
		data->crcs[i] = crc64nvme_update(0, data->pool + bench_data_offset(i), bytes);
	return 0;
}

void bench_data_close(struct bench_data *data)
{
	if (data->pool)
		munmap(data->pool, data->bytes + BENCH_CONTENT_SLACK);
	free(data->crcs);
	*data = (struct bench_data){0};
}

const char *bench_data_key(
	const struct bench_data *data, uint64_t object_idx, char buf[BENCH_KEY_BYTES])
{
	snprintf(buf, BENCH_KEY_BYTES, "%s%08llu", data->prefix, (unsigned long long)object_idx);
	return buf;
}

int bench_check_object(const void *arg, uint64_t object_idx, const void *body, uint64_t bytes)
{
	const struct bench_data *data = arg;

	if (bytes != data->bytes)
		return -EBADMSG;
	return crc64nvme_update(0, body, bytes) == data->crcs[object_idx % BENCH_CONTENTS]
		       ? 0
		       : -EBADMSG;
}

int bench_check_page(const void *arg, uint64_t object_idx, const void *body, uint64_t bytes)
{
	const uint32_t *expected = arg;
	struct slice rest = slice_of(body, bytes);
	uint32_t keys = 0;
	ptrdiff_t at;

	(void)object_idx;
	while ((at = slice_find(rest, SLICE("<Key>"))) >= 0) {
		rest = slice_from(rest, (size_t)at + 5);
		keys++;
	}
	return keys == *expected ? 0 : -EBADMSG;
}

void bench_result_error(struct bench_result *result, const char *fmt, ...)
{
	va_list args;

	if (result->errors++)
		return;
	va_start(args, fmt);
	vsnprintf(result->first_error, sizeof(result->first_error), fmt, args);
	va_end(args);
}

void bench_pace_start(struct bench_pace *pace, const struct bench_run_opts *opts, uint64_t now_ns)
{
	*pace = (struct bench_pace){
		.end_ns = now_ns + opts->duration_ns,
		.left = opts->ops_max ? opts->ops_max : UINT64_MAX,
		.due_ns = now_ns,
		.interval_ns = opts->rate ? MAX(NS_PER_S / opts->rate, 1) : 0,
	};
}
