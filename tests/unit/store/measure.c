/* tests/unit/store/measure.c: not a test: measures the store, each figure with a reference figure
 * of the same run: durable puts of 4 KiB against a raw log, hot opens, and a page of a list.
 *   measure [keys of the list [volume [bytes of the largest object in the index]]]
 * A volume dax://FILE may be any file here, for example of a tmpfs: memory that stands for another
 * kind. */
#include "rig.h"

#include "store/call/call.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REPEATS	    5u
#define RAW_COUNT   400u
#define PUT_COUNT   400u /* a fiber's share is this over the depth, times 16 */
#define OPEN_COUNT  200000u
#define BODY_BYTES  4096u
#define RAW_BYTES   (64 * MIB)
#define SAMPLES_MAX 200000u

static uint64_t samples[SAMPLES_MAX];
static uint32_t sample_count;

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static double median_us(void)
{
	qsort(samples, sample_count, sizeof(samples[0]), by_value);
	return (double)samples[sample_count / 2] / 1000.0;
}

static void sample_add(uint64_t ns)
{
	if (sample_count < SAMPLES_MAX)
		samples[sample_count++] = ns;
}

struct raw {
	int fd;
	char *blocks;
};

static void raw_open(struct raw *raw, const char *dir)
{
	char path[600];
	void *memory = NULL;

	snprintf(path, sizeof(path), "%s/raw", dir);
	raw->fd = open(path, O_RDWR | O_CREAT | O_DIRECT, 0600);
	assert_true(raw->fd >= 0);
	assert_int_equal(posix_memalign(&memory, 4096, MIB), 0);
	raw->blocks = (char *)memory;
	memset(memory, 7, MIB);
	for (uint64_t at = 0; at < RAW_BYTES; at += MIB)
		assert_int_equal(pwrite(raw->fd, memory, MIB, (off_t)at), MIB);
	assert_int_equal(fsync(raw->fd), 0);
}

/* Writes groups of so many blocks: p50 in µs, and blocks a second. */
static double raw_run(struct raw *raw, uint32_t depth, double *ret_rate)
{
	uint64_t begun = clock_now_ns();

	sample_count = 0;
	for (uint32_t i = 0; i < RAW_COUNT; i++) {
		uint64_t from = clock_now_ns();

		assert_int_equal(pwrite(raw->fd, raw->blocks, depth * 4096,
					 (off_t)((uint64_t)i * depth * 4096 % RAW_BYTES)),
			depth * 4096);
		assert_int_equal(fdatasync(raw->fd), 0);
		sample_add(clock_now_ns() - from);
	}
	*ret_rate = (double)RAW_COUNT * depth * 1e9 / (double)(clock_now_ns() - begun);
	return median_us();
}

struct putter {
	uint32_t idx;
	uint32_t count;
};

static void put_fiber(struct rig *rig, void *arg)
{
	struct putter *putter = (struct putter *)arg;

	for (uint32_t i = 0; i < putter->count; i++) {
		char key[32];
		struct store_put_opts opts = {.bucket = SLICE("b"), .bytes = BODY_BYTES};
		struct store_meta meta = {.bytes = BODY_BYTES, .etag = "0123456789abcdef"};
		uint64_t from = clock_now_ns();
		struct region_span span;
		struct store_put *put;

		opts.key = slice_of(
			key, (size_t)snprintf(key, sizeof(key), "%u/%u", putter->idx, i % 1000));
		assert_int_equal(store_put_open(rig->store, &opts, &put), 0);
		while (region_lease(rig->region, 1, OWNER_APP, &span))
			store_cache_shrink(rig->store, 16, false);
		local_put_frames_take(put, span, BODY_BYTES);
		assert_int_equal(store_put_commit(put, &meta, NULL, NULL), 0);
		sample_add(clock_now_ns() - from);
	}
}

static double put_run(struct rig *rig, uint32_t depth, double *ret_rate)
{
	struct putter putters[64];
	uint64_t begun;

	for (uint32_t i = 0; i < depth; i++)
		putters[i] = (struct putter){
			.idx = i, .count = depth == 1 ? PUT_COUNT : PUT_COUNT * 16 / depth};
	sample_count = 0;
	begun = clock_now_ns();
	rig_fibers(rig, depth, put_fiber, putters, sizeof(putters[0]));
	*ret_rate = (double)sample_count * 1e9 / (double)(clock_now_ns() - begun);
	return median_us();
}

static void puts_measure(struct rig *rig, struct raw *raw)
{
	static const uint32_t DEPTHS[] = {1, 16, 64};

	for (uint32_t d = 0; d < ARRAY_LEN(DEPTHS); d++)
		for (uint32_t i = 0; i < REPEATS; i++) {
			double raw_rate, put_rate;
			double raw_us = raw_run(raw, DEPTHS[d], &raw_rate);
			double put_us = put_run(rig, DEPTHS[d], &put_rate);

			printf("depth %2u: raw p50 %6.1f us %7.0f/s   put p50 %6.1f us %7.0f/s   "
			       "p50 ratio %.2f  rate ratio %.2f\n",
				DEPTHS[d], raw_us, raw_rate, put_us, put_rate, put_us / raw_us,
				put_rate / raw_rate);
		}
}

static void opens_measure(struct rig *rig)
{
	uint64_t begun = clock_now_ns();

	for (uint32_t i = 0; i < OPEN_COUNT; i++) {
		struct store_get *get;
		bool exists;
		char key[32];
		size_t len = 2;

		memcpy(key, "0/", 2);
		key[len++] = (char)('1' + i % 9);
		key[len++] = (char)('0' + i / 9 % 10);
		assert_int_equal(
			store_get_open(rig->store, SLICE("b"), slice_of(key, len), &get, &exists),
			0);
		store_get_close(get);
	}
	printf("hot open + close: %.0f ns\n",
		(double)(clock_now_ns() - begun) / (double)OPEN_COUNT);
}

static void entry_count(const struct store_list_entry *entry, void *arg)
{
	(void)entry;
	++*(uint32_t *)arg;
}

struct filler {
	uint32_t from, to;
};

static void fill_fiber(struct rig *rig, void *arg)
{
	struct filler *filler = (struct filler *)arg;

	for (uint32_t i = filler->from; i < filler->to; i++) {
		char key[32];

		snprintf(key, sizeof(key), "photos/%09u", i);
		assert_int_equal(object_put_seeded(rig, "list", slice_str(key), 10, 1, NULL), 0);
	}
}

/* Measures a page that starts there. */
static void page_measure(struct rig *rig, const char *what, uint32_t keys, struct slice after)
{
	struct store_list_opts opts = {
		.bucket = SLICE("list"), .after = after, .entries_max = 1000};
	bool more;

	sample_count = 0;
	for (uint32_t i = 0; i < 200; i++) {
		uint32_t count = 0;
		uint64_t from = clock_now_ns();

		assert_int_equal(store_list(rig->store, &opts, entry_count, &count, &more), 0);
		sample_add(clock_now_ns() - from);
		assert_int_equal(count, 1000);
	}
	printf("%s page of 1000 of %u keys: p50 %.0f us\n", what, keys, median_us());
}

static void list_measure(struct rig *rig, uint32_t keys)
{
	struct store_list_opts opts = {.bucket = SLICE("list"), .entries_max = 1000};
	struct filler fillers[64];
	uint64_t begun = clock_now_ns();
	char last[32];
	bool more;

	assert_int_equal(bucket_make(rig->store, "list"), 0);
	for (uint32_t i = 0; i < 64; i++)
		fillers[i] = (struct filler){keys / 64 * i, i == 63 ? keys : keys / 64 * (i + 1)};
	rig_fibers(rig, 64, fill_fiber, fillers, sizeof(fillers[0]));
	printf("%u objects of 10 bytes stored: %.0f/s\n", keys,
		(double)keys * 1e9 / (double)(clock_now_ns() - begun));
	page_measure(rig, "first", keys, SLICE_NONE);
	snprintf(last, sizeof(last), "photos/%09u", keys - 1001);
	page_measure(rig, "last", keys, slice_str(last));
	sample_count = 0;
	for (uint32_t i = 0; i < 200; i++) {
		char after[32];
		uint32_t count = 0;
		uint64_t from = clock_now_ns();

		snprintf(after, sizeof(after), "photos/%09u", i * 7919 % (keys - 1001));
		opts.after = slice_str(after);
		assert_int_equal(store_list(rig->store, &opts, entry_count, &count, &more), 0);
		sample_add(clock_now_ns() - from);
		assert_int_equal(count, 1000);
	}
	printf("page of 1000 of %u keys: p50 %.0f us\n", keys, median_us());
	opts.after = SLICE_NONE;
	opts.delimiter = SLICE("/");
	sample_count = 0;
	for (uint32_t i = 0; i < 200; i++) {
		uint32_t count = 0;
		uint64_t from = clock_now_ns();

		assert_int_equal(store_list(rig->store, &opts, entry_count, &count, &more), 0);
		sample_add(clock_now_ns() - from);
		assert_int_equal(count, 1);
	}
	printf("one common prefix over %u keys: p50 %.0f us\n", keys, median_us());
}

static void measure_run(struct rig *rig, void *arg)
{
	struct raw raw;

	raw_open(&raw, rig->dir);
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	puts_measure(rig, &raw);
	opens_measure(rig);
	list_measure(rig, *(uint32_t *)arg);
	close(raw.fd);
	free(raw.blocks);
}

int main(int argc, char **argv)
{
	uint32_t keys = argc > 1 ? (uint32_t)atoi(argv[1]) : 100000;
	struct rig rig;

	rig_init(&rig, 1);
	rig.opts.log_bytes = 0;
	rig.opts.step_bytes = 0;
	rig.opts.index_cache_bytes = 0;
	rig.opts.volume = argc > 2 ? argv[2] : NULL;
	rig.opts.inline_bytes_max = argc > 3 ? (uint32_t)atoi(argv[3]) : 0;
	disk_dax_simulate("plain");
	rig_run(&rig, measure_run, &keys);
	rig_dir_remove(&rig);
	return 0;
}
