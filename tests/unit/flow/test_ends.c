#include "../unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "flow/file.h"

/* Files and volumes as ends. ---- The rig: a reactor, a region, and a test's body run as a fiber.
 */

static struct region *region;
static struct reactor *reactor;
static struct flow_core core;
static char folder[512], path[600], other[600];
static void (*body)(void);
static struct disk *disk;
static uint16_t target;
static bool fixed;

static void body_main(void *arg)
{
	(void)arg;
	body();
	reactor_stop(reactor);
}

static void run_on(void (*fn)(void), const char *nvme)
{
	const struct region_opts region_opts = {
		.bytes = 64 * MIB, .core_count = 1, .name = "endstest"};
	const struct reactor_opts reactor_opts = {.cpu = -1, .fibers_max = 16};
	const struct disk_opts disk_opts = {.kind = DISK_NVME_SIMULATED,
		.path = other,
		.nvme = nvme,
		.bytes_min = MIB,
		.step_bytes = MIB};
	struct region_usage usage;

	body = fn;
	disk = NULL;
	snprintf(folder, sizeof(folder), "%s/nebulaio-ends-XXXXXX",
		getenv("TMPDIR") ? getenv("TMPDIR") : ".");
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/file", folder);
	snprintf(other, sizeof(other), "%s/other", folder);
	assert_int_equal(region_open(&region_opts, &region), 0);
	assert_int_equal(reactor_open(&reactor_opts, &reactor), 0);
	assert_int_equal(flow_core_open(reactor, region, &core), 0);
	fixed = flow_file_register(reactor, region);
	if (nvme) {
		int fd = open(other, O_RDWR | O_CREAT, 0600);

		assert_true(fd >= 0);
		assert_int_equal(ftruncate(fd, 16 * MIB), 0);
		close(fd);
		assert_int_equal(disk_open(&disk_opts, &disk), 0);
		assert_int_equal(disk_attach(disk, reactor, region), 0);
		assert_int_equal(disk_target(disk, region, &target), 0);
	}
	assert_int_equal(fiber_spawn(reactor, "test", body_main, NULL), 0);
	reactor_run(reactor);
	region_usage(region, &usage);
	assert_int_equal(usage.frames_by_owner[OWNER_FREE], usage.frames_total);
	flow_core_close(&core);
	disk_close(disk);
	reactor_close(reactor);
	region_close(region);
	unlink(path);
	unlink(other);
	assert_int_equal(rmdir(folder), 0);
}

static uint8_t byte_at(uint64_t offset)
{
	return (uint8_t)(offset * 73 + (offset >> 10));
}

static struct flow_piece piece_at(uint64_t offset, uint32_t bytes)
{
	const struct flow_want want = {.frame_count = region_frames_for(bytes),
		.owner = OWNER_APP,
		.deadline_ns = DEADLINE_NONE};
	struct flow_piece piece = {.offset = offset, .bytes = bytes};

	assert_int_equal(flow_piece_lease(&core, &want, &piece), 0);
	for (uint32_t i = 0; i < bytes; i++)
		piece.data[i] = byte_at(offset + i);
	return piece;
}

/* Pushes so many bytes; returns what went wrong first. */
static int fill(struct flow_sink *sink, uint64_t bytes, uint32_t piece_bytes)
{
	uint64_t at = 0;
	int ret = 0, finished;

	while (at < bytes && !ret) {
		struct flow_piece piece =
			piece_at(at, (uint32_t)MIN(bytes - at, (uint64_t)piece_bytes));

		at += piece.bytes;
		ret = flow_sink_push(sink, &piece);
		if (piece_bytes >= MIB)
			fiber_sleep_ns(2 * NS_PER_MS); /* as a source that waits for its device */
	}
	finished = flow_sink_finish(sink, ret != 0);
	return ret ? ret : finished;
}

/* Takes everything and compares it; the last answer. */
static int drain(struct flow_source *source, uint64_t from, uint64_t *ret_bytes)
{
	struct flow_piece piece;
	uint64_t at = 0;
	int ret;

	while ((ret = flow_source_next(source, STORE_CHUNK_BYTES, &piece)) == 1) {
		assert_int_equal(piece.offset, at);
		for (uint32_t i = 0; i < piece.bytes; i++)
			if (piece.data[i] != byte_at(from + at + i))
				fail_msg("byte %llu differs", (unsigned long long)(from + at + i));
		at += piece.bytes;
		flow_piece_end(&core, &piece, OWNER_APP);
	}
	flow_source_close(source);
	*ret_bytes = at;
	return ret;
}

/* ---- Files. ---- */

static uint64_t durable_last;
static uint32_t durable_calls, failed_calls;
static void on_durable(void *arg, uint64_t bytes)
{
	(void)arg;
	assert_true(bytes >= durable_last);
	durable_last = bytes;
	durable_calls++;
}

static void on_failed(void *arg)
{
	(void)arg;
	failed_calls++;
}

static void files_keep_what_they_get(void)
{
	static const struct {
		uint64_t bytes;
		uint32_t piece;
	} cases[] = {{0, 4096}, {1, 4096}, {512, 512}, {700 * 512, 512}, {5 * MIB + 3, 1 * MIB},
		{40 * MIB, 1 * MIB}};

	for (uint32_t i = 0; i < ARRAY_LEN(cases); i++) {
		const struct flow_file_opts opts = {
			.path = path, .fixed = fixed, .unit = 512, .replace = i > 0};
		const struct flow_file_range range = {.path = path, .fixed = fixed};
		uint64_t copied = region_copy_bytes_all(), bytes;
		struct flow_source *source;
		struct flow_sink *sink;
		struct stat st;

		assert_int_equal(flow_file_sink_open(&core, &opts, &sink), 0);
		assert_int_equal(fill(sink, cases[i].bytes, cases[i].piece), 0);
		assert_int_equal(stat(path, &st), 0);
		assert_int_equal(st.st_size, cases[i].bytes);
		assert_int_equal(flow_file_source_open(&core, &range, &source), 0);
		assert_int_equal(source->bytes_total, cases[i].bytes);
		assert_int_equal(drain(source, 0, &bytes), 0);
		assert_int_equal(bytes, cases[i].bytes);
		assert_int_equal(region_copy_bytes_all() - copied, 0);
	}
}

/* What a file cannot take from where it lies is refused, given back, and not in the file. */
static void files_refuse_what_they_cannot_write(void)
{
	const struct flow_file_opts opts = {
		.path = path, .fixed = fixed, .unit = 512, .replace = true};
	static uint8_t outside[4096];
	struct flow_sink *sink;
	struct flow_piece piece;
	struct stat st;

	assert_int_equal(flow_file_sink_open(&core, &opts, &sink), 0);
	piece = (struct flow_piece){
		.data = outside, .bytes = sizeof(outside), .hold = FLOW_HOLD_BORROWED};
	assert_int_equal(flow_sink_push(sink, &piece), -EINVAL);
	piece = piece_at(0, 8192);
	region_switch(region, piece.span, OWNER_APP, OWNER_CACHE);
	piece.hold = FLOW_HOLD_CACHE;
	assert_int_equal(flow_sink_push(sink, &piece), -EINVAL);
	/* An odd address. */
	piece = piece_at(0, 8192);
	piece.data += 1;
	piece.bytes = 512;
	assert_int_equal(flow_sink_push(sink, &piece), -EINVAL);
	/* Only the last may be of odd length. */
	piece = piece_at(0, 100);
	assert_int_equal(flow_sink_push(sink, &piece), 0);
	piece = piece_at(100, 512);
	assert_int_equal(flow_sink_push(sink, &piece), -EINVAL);
	assert_int_equal(flow_sink_finish(sink, true), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 100);
}

static void test_files(void **state)
{
	(void)state;
	run_on(files_keep_what_they_get, NULL);
	run_on(files_refuse_what_they_cannot_write, NULL);
}

static void files_become_durable_on_the_way(void)
{
	const struct flow_file_opts opts = {.path = path,
		.fixed = fixed,
		.unit = 512,
		.sync_bytes = 4 * MIB,
		.durable = on_durable};
	struct flow_sink *sink;

	durable_last = durable_calls = 0;
	assert_int_equal(flow_file_sink_open(&core, &opts, &sink), 0);
	assert_int_equal(fill(sink, 30 * MIB + 5, 1 * MIB), 0);
	assert_int_equal(durable_last, 30 * MIB + 5);
	assert_in_range(durable_calls, 2, 9);
}

static void test_durable(void **state)
{
	(void)state;
	run_on(files_become_durable_on_the_way, NULL);
}

static void files_that_are_refused(void)
{
	struct flow_file_opts opts = {.path = path, .unit = 512};
	struct flow_file_range range = {.path = path};
	struct flow_source *source = NULL;
	struct flow_sink *sink = NULL;
	uint64_t bytes;

	assert_int_equal(flow_file_source_open(&core, &range, &source), -ENOENT);
	assert_int_equal(flow_file_sink_open(&core, &opts, &sink), 0);
	assert_int_equal(fill(sink, 10000, 4096), 0);
	assert_int_equal(flow_file_sink_open(&core, &opts, &sink), -EEXIST);
	range.offset = 100;
	assert_int_equal(flow_file_source_open(&core, &range, &source), -EINVAL);
	range.offset = 12288;
	assert_int_equal(flow_file_source_open(&core, &range, &source), -ERANGE);
	range.offset = 4096;
	range.bytes = 5905;
	assert_int_equal(flow_file_source_open(&core, &range, &source), -ERANGE);
	range.bytes = 5000;
	assert_int_equal(flow_file_source_open(&core, &range, &source), 0);
	assert_int_equal(drain(source, 4096, &bytes), 0);
	assert_int_equal(bytes, 5000);
	range.path = folder;
	assert_int_equal(flow_file_source_open(&core, &range, &source), -EINVAL);
	opts.path = folder;
	opts.replace = true;
	assert_int_equal(flow_file_sink_open(&core, &opts, &sink), -EINVAL);
	opts.path = "/nonexistent/file";
	assert_int_equal(flow_file_sink_open(&core, &opts, &sink), -ENOENT);
	/* It becomes shorter while it is read. */
	range = (struct flow_file_range){.path = path};
	assert_int_equal(flow_file_source_open(&core, &range, &source), 0);
	assert_int_equal(truncate(path, 5000), 0);
	assert_int_equal(drain(source, 0, &bytes), -EPIPE);
}

static void test_refused(void **state)
{
	(void)state;
	run_on(files_that_are_refused, NULL);
}

/* ---- Volumes: an NVMe controller that is made up. ---- */

static void volumes_keep_what_they_get(void)
{
	static const struct {
		uint64_t offset, bytes;
		uint32_t piece;
	} cases[] = {{0, 1, 4096}, {0, 300 * 512, 512}, {4096, 5 * MIB + 3, 1 * MIB},
		{1 * MIB, 12 * MIB, 1 * MIB}};

	for (uint32_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct flow_volume volume = {.disk = disk,
			.target = target,
			.offset = cases[i].offset,
			.sync_bytes = 2 * MIB,
			.durable = on_durable};
		uint64_t bytes;
		struct flow_source *source;
		struct flow_sink *sink;

		durable_last = durable_calls = 0;
		assert_int_equal(flow_volume_sink_open(&core, &volume, &sink), 0);
		assert_int_equal(fill(sink, cases[i].bytes, cases[i].piece), 0);
		assert_int_equal(durable_last, cases[i].bytes);
		assert_true(cases[i].bytes < 12 * MIB || durable_calls > 1);
		volume.bytes = cases[i].bytes;
		assert_int_equal(flow_volume_source_open(&core, &volume, &source), 0);
		assert_int_equal(drain(source, 0, &bytes), 0);
		assert_int_equal(bytes, cases[i].bytes);
	}
}

static void test_volumes(void **state)
{
	(void)state;
	run_on(volumes_keep_what_they_get, "lba=512,mdts=5");
}

static void volumes_have_ends(void)
{
	struct flow_volume volume = {
		.disk = disk, .target = target, .offset = 100, .failed = on_failed};
	struct flow_source *source = NULL;
	struct flow_sink *sink = NULL;
	struct flow_piece piece;

	failed_calls = 0;
	assert_int_equal(flow_volume_sink_open(&core, &volume, &sink), -EINVAL);
	volume.offset = disk_bytes(disk);
	volume.bytes = 1;
	assert_int_equal(flow_volume_source_open(&core, &volume, &source), -ERANGE);
	volume.offset = disk_bytes(disk) - MIB;
	volume.bytes = 0;
	assert_int_equal(flow_volume_sink_open(&core, &volume, &sink), 0);
	assert_int_equal(fill(sink, 3 * MIB, 1 * MIB), -ENOSPC);
	assert_int_equal(failed_calls, 1);
	/* Behind a piece of odd length nothing can follow. */
	volume.offset = 0;
	assert_int_equal(flow_volume_sink_open(&core, &volume, &sink), 0);
	piece = piece_at(0, 100);
	assert_int_equal(flow_sink_push(sink, &piece), 0);
	piece = piece_at(100, 512);
	assert_int_equal(flow_sink_push(sink, &piece), -EINVAL);
	assert_int_equal(flow_sink_finish(sink, true), -EINVAL);
}

static void test_volumes_have_ends(void **state)
{
	(void)state;
	run_on(volumes_have_ends, "lba=512");
}

static void volumes_fail(void)
{
	const struct flow_volume volume = {.disk = disk,
		.target = target,
		.failed = on_failed,
		.sync_bytes = 2 * MIB,
		.durable = on_durable};
	struct flow_source *source;
	struct flow_sink *sink;
	uint64_t bytes;

	failed_calls = 0;
	durable_last = durable_calls = 0;
	assert_int_equal(flow_volume_sink_open(&core, &volume, &sink), 0);
	assert_int_equal(fill(sink, 12 * MIB, 1 * MIB), -EIO);
	assert_int_equal(failed_calls, 1);
	assert_true(durable_last < 12 * MIB);
	assert_int_equal(flow_volume_source_open(&core, &volume, &source), 0);
	assert_int_equal(drain(source, 0, &bytes), -EIO);
}

static void test_volumes_fail(void **state)
{
	(void)state;
	run_on(volumes_fail, "lba=512,mdts=8,status=0x281,after=4");
}

/* ---- The transform. ---- */

static void cipher_is_its_own_inverse(void)
{
	const uint8_t key[FLOW_CIPHER_KEY_BYTES] = {7}, counter[FLOW_CIPHER_COUNTER_BYTES] = {9};
	struct flow_piece piece = piece_at(0, 10000), borrowed = {.hold = FLOW_HOLD_BORROWED};

	for (int i = 0; i < 2; i++) {
		struct flow_stage *stage;
		struct flow_piece part = piece;
		uint32_t differs = 0;

		assert_int_equal(flow_cipher_open(key, counter, &stage), 0);
		part.bytes = 33;
		assert_int_equal(stage->ops->piece(stage, &part), 0);
		part.data += 33;
		part.bytes = piece.bytes - 33;
		assert_int_equal(stage->ops->piece(stage, &part), 0);
		assert_int_equal(stage->ops->piece(stage, &borrowed), -EROFS);
		flow_cipher_close(stage);
		for (uint32_t at = 0; at < piece.bytes; at++)
			differs += piece.data[at] != byte_at(at);
		assert_in_range(differs, i ? 0 : 9000, i ? 0 : 10000);
	}
	flow_cipher_close(NULL);
	flow_piece_end(&core, &piece, OWNER_APP);
}

static void test_cipher(void **state)
{
	(void)state;
	run_on(cipher_is_its_own_inverse, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_durable),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_volumes),
		cmocka_unit_test(test_volumes_have_ends),
		cmocka_unit_test(test_volumes_fail),
		cmocka_unit_test(test_cipher),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
