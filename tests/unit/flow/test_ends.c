#include "../unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "flow/file.h"
#include "flow/transform.h"

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

/* Pushes so many bytes; returns the first error. */
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
			fiber_sleep_ns(2 * NS_PER_MS); /* like a source that waits for its device */
	}
	finished = flow_sink_finish(sink, ret != 0);
	return ret ? ret : finished;
}

/* Reads and compares everything; returns the last result of next. */
static int drain(struct flow_source *source, uint64_t from, uint64_t *ret_bytes)
{
	struct flow_piece piece;
	uint64_t at = 0;
	int ret;

	while ((ret = flow_source_next(source, FLOW_PIECE_BYTES_MAX, &piece)) == 1) {
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

/* Pieces at addresses or lengths that the file cannot accept are refused and given back, and are
 * not in the file. */
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
	/* Only the last piece may have an odd length. */
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
	/* The file is truncated while it is read. */
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

/* ---- Volumes: an emulated NVMe controller. ---- */

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
	/* No piece can follow one of odd length. */
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

/* ---- Transforms on their way. ---- */

static struct flow_transforms *chain_of(const char *text)
{
	struct flow_transforms *chain;
	char why[FLOW_TRANSFORM_WHY_BYTES];

	assert_int_equal(flow_transforms_open(&text, 1, &chain, why), 0);
	return chain;
}

static struct flow_source *file_through(
	const char *from, struct flow_transforms *chain, bool prompt, struct flow_stage *stage)
{
	const struct flow_file_range range = {.path = from, .fixed = fixed};
	static struct flow_stage *stages[1];
	const struct flow_transform_opts opts = {.stages = stages,
		.stage_count = stage != NULL,
		.unit = FRAME_BYTES,
		.prompt = prompt};
	struct flow_source *source;

	stages[0] = stage;
	assert_int_equal(flow_file_source_open(&core, &range, &source), 0);
	assert_int_equal(flow_transform_source_open(source, chain, &opts, &source), 0);
	return source;
}

static void file_fill(const char *to, uint64_t bytes)
{
	const struct flow_file_opts opts = {
		.path = to, .fixed = fixed, .unit = 512, .replace = true};
	struct flow_sink *sink;

	assert_int_equal(flow_file_sink_open(&core, &opts, &sink), 0);
	assert_int_equal(fill(sink, bytes, MIB), 0);
}

/* Writes to the other file, whose sink accepts only whole units. */
static int file_store(struct flow_source *source, uint64_t *ret_bytes)
{
	const struct flow_file_opts opts = {
		.path = other, .fixed = fixed, .unit = FRAME_BYTES, .replace = true};
	struct flow_sink *sink;

	assert_int_equal(flow_file_sink_open(&core, &opts, &sink), 0);
	return flow_run(source, NULL, 0, sink, ret_bytes);
}

static void transforms_move(void)
{
	static const uint64_t SIZES[] = {0, 1, 4096, MIB, 5 * MIB + 3, 20 * MIB};

	for (uint32_t i = 0; i < 2 * ARRAY_LEN(SIZES); i++) {
		struct flow_transforms *there = chain_of("zstd"), *back = chain_of("unzstd");
		uint64_t bytes_in = SIZES[i / 2], packed, bytes, copied;
		struct flow_checksum sum, expected;
		struct stat st;

		file_fill(path, bytes_in);
		flow_checksum_init(&sum, CHECKSUM_CRC64NVME);
		flow_checksum_init(&expected, CHECKSUM_CRC64NVME);
		copied = region_copy_bytes_all();
		assert_int_equal(
			file_store(file_through(path, there, i % 2, &sum.stage), &packed), 0);
		assert_int_equal(stat(other, &st), 0);
		assert_int_equal(st.st_size, packed);
		/* Copies: the rest of a unit, and the bytes at the end of a piece. */
		assert_in_range(region_copy_bytes_all() - copied, 0,
			packed / 8 + FRAME_BYTES * (1 + bytes_in / MIB));
		assert_int_equal(drain(file_through(other, back, i % 2, NULL), 0, &bytes), 0);
		assert_int_equal(bytes, bytes_in);
		for (uint64_t at = 0; at < bytes_in; at++)
			checksum_update(&expected.checksum, &(uint8_t){byte_at(at)}, 1);
		assert_int_equal(sum.checksum.as.crc, expected.checksum.as.crc);
		flow_transforms_close(there);
		flow_transforms_close(back);
	}
}

static void test_transforms_move(void **state)
{
	(void)state;
	run_on(transforms_move, NULL);
}

static void key_make(const char *to)
{
	FILE *file = fopen(to, "we");

	assert_non_null(file);
	for (int i = 0; i < 48; i++)
		fputc(i, file);
	assert_int_equal(fclose(file), 0);
}

/* If lengths stay, nothing is copied, and the length is known in advance. */
static void transforms_in_place(void)
{
	const uint64_t bytes_in = 5 * MIB + 777;
	char text[700];
	uint64_t copied = region_copy_bytes_all(), bytes;
	struct flow_transforms *chain;
	struct flow_source *source;

	key_make(other);
	snprintf(text, sizeof(text), "aes256ctr:%s", other);
	chain = chain_of(text);
	assert_true(flow_transforms_same_length(chain));
	file_fill(path, bytes_in);
	source = file_through(path, chain, false, NULL);
	assert_int_equal(source->bytes_total, bytes_in);
	assert_int_equal(file_store(source, &bytes), 0);
	assert_int_equal(bytes, bytes_in);
	flow_transforms_close(chain);
	assert_int_equal(rename(other, path), 0);
	key_make(other);
	chain = chain_of(text);
	assert_int_equal(drain(file_through(path, chain, false, NULL), 0, &bytes), 0);
	assert_int_equal(bytes, bytes_in);
	assert_int_equal(region_copy_bytes_all(), copied);
	flow_transforms_close(chain);
}

static void test_transforms_in_place(void **state)
{
	(void)state;
	run_on(transforms_in_place, NULL);
}

/* Each possible failure, and each end that stops early: all frames are given back (run_on
 * checks). */
static void transforms_fail(void)
{
	struct flow_transforms *chain = chain_of("unzstd");
	const struct flow_transform_opts opts = {.unit = 1};
	struct flow_source *source;
	struct flow_piece piece;
	uint64_t bytes;

	file_fill(path, 3 * MIB);
	assert_int_equal(drain(file_through(path, chain, false, NULL), 0, &bytes), -EBADMSG);
	assert_string_equal(
		flow_transforms_why(chain), "the transform unzstd: Unknown frame descriptor");
	flow_transforms_close(chain);
	chain = chain_of("zstd");
	flow_source_close(file_through(path, chain, false, NULL));
	source = file_through(path, chain, true, NULL);
	assert_int_equal(flow_source_next(source, FLOW_PIECE_BYTES_MAX, &piece), 1);
	flow_piece_end(&core, &piece, OWNER_APP);
	flow_source_close(source);
	flow_transforms_close(chain);
	chain = chain_of("zstd");
	assert_int_equal(flow_memory_source_open(&core, slice_str("borrowed"), &source), 0);
	assert_int_equal(flow_transform_source_open(source, chain, &opts, &source), 0);
	assert_int_equal(drain(source, 0, &bytes), -EROFS);
	flow_transforms_close(chain);
	/* The transform needs the end of the stream. */
	assert_int_equal(truncate(path, 0), 0);
	chain = chain_of("unzstd");
	assert_int_equal(drain(file_through(path, chain, false, NULL), 0, &bytes), -EBADMSG);
	flow_transforms_close(chain);
}

static void test_transforms_fail(void **state)
{
	(void)state;
	run_on(transforms_fail, NULL);
}

/* Three pieces of 5,000 bytes. */
struct trickle {
	struct flow_source source;
	uint32_t asked;
};

static int trickle_next(
	struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct trickle *self = CONTAINER_OF(source, struct trickle, source);

	(void)bytes_max;
	if (self->asked++ >= 3)
		return 0;
	*ret_piece = piece_at(5000 * (self->asked - 1), 5000);
	return 1;
}

static void trickle_close(struct flow_source *source)
{
	(void)source;
}

/* With prompt, arrived bytes are passed on in whole units before waiting for more; otherwise pieces
 * are filled first. */
static void transforms_prompt(void)
{
	static const struct flow_source_ops OPS = {
		.name = "trickle", .next = trickle_next, .close = trickle_close};

	for (int prompt = 0; prompt < 2; prompt++) {
		struct trickle trickle = {
			{.magic = FLOW_SOURCE_MAGIC, .ops = &OPS, .core = &core}, 0};
		const struct flow_transform_opts opts = {.unit = 512, .prompt = prompt};
		struct flow_transforms *chain = chain_of("filter:record=8,not=ffffffffffffffff");
		struct flow_source *source;
		struct flow_piece piece;
		uint64_t at = 0;
		uint32_t pieces = 0;

		assert_int_equal(
			flow_transform_source_open(&trickle.source, chain, &opts, &source), 0);
		while (flow_source_next(source, FLOW_PIECE_BYTES_MAX, &piece) == 1) {
			pieces++;
			assert_int_equal(piece.offset, at);
			assert_int_equal(piece.bytes % 512, pieces < 4 && prompt ? 0 : 15000 % 512);
			assert_int_equal(trickle.asked, prompt ? pieces : 4);
			for (uint32_t i = 0; i < piece.bytes; i++)
				assert_int_equal(piece.data[i], byte_at(at + i));
			at += piece.bytes;
			flow_piece_end(&core, &piece, OWNER_APP);
		}
		assert_int_equal(at, 15000);
		assert_int_equal(pieces, prompt ? 4 : 1);
		flow_source_close(source);
		flow_transforms_close(chain);
	}
}

static void test_transforms_prompt(void **state)
{
	(void)state;
	run_on(transforms_prompt, NULL);
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
		cmocka_unit_test(test_transforms_move),
		cmocka_unit_test(test_transforms_in_place),
		cmocka_unit_test(test_transforms_fail),
		cmocka_unit_test(test_transforms_prompt),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
