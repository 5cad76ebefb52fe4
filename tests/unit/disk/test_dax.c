/* tests/unit/disk/test_dax.c: volumes in persistent memory, by files that stand for it, and volumes
 * whose log is apart. */
#include "../abort.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codec/crc.h"
#include "disk/disk.h"
#include "disk/disk_dax.h"

#define STEP	  (4 * MIB)
#define LOG_BYTES (2 * MIB)

struct fixture {
	char dir[512];
	char names[3][1400];
	struct disk *disk;
	struct region *region;
	struct reactor *reactor;
};

static const char *name(struct fixture *fixture, uint32_t idx, const char *format, const char *file)
{
	char path[560];

	snprintf(path, sizeof(path), "%s/%s", fixture->dir, file);
	snprintf(fixture->names[idx], sizeof(fixture->names[idx]), format, path);
	return fixture->names[idx];
}

static int begin(void **state)
{
	static struct fixture fixture;
	const char *base = getenv("TMPDIR");

	memset(&fixture, 0, sizeof(fixture));
	snprintf(fixture.dir, sizeof(fixture.dir), "%s/nebulaio-dax-XXXXXX", base ? base : ".");
	assert_non_null(mkdtemp(fixture.dir));
	disk_dax_simulate("seed=1");
	*state = &fixture;
	return 0;
}

static int end(void **state)
{
	struct fixture *fixture = (struct fixture *)*state;
	static const char *const FILES[] = {"a", "b", "c", "a.durable", "b.durable", "c.durable"};
	char path[600];

	disk_dax_simulate(NULL);
	for (uint32_t i = 0; i < ARRAY_LEN(FILES); i++) {
		snprintf(path, sizeof(path), "%s/%s", fixture->dir, FILES[i]);
		unlink(path);
	}
	assert_int_equal(rmdir(fixture->dir), 0);
	return 0;
}

static struct disk_opts opts_of(const char *path)
{
	return (struct disk_opts){
		.path = path, .step_bytes = STEP, .create = true, .log_bytes = LOG_BYTES};
}

static void test_opens_grows_and_keeps(void **state)
{
	struct fixture *fixture = (struct fixture *)*state;
	struct disk_opts opts = opts_of(name(fixture, 0, "dax://%s", "a"));
	uint8_t bytes[5000], got[5000];
	struct disk *second;

	for (uint32_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 7 + 1);
	opts.create = false;
	assert_int_equal(disk_open(&opts, &fixture->disk), -ENOENT);
	opts.create = true;
	opts.bytes_min = 1;
	assert_int_equal(disk_open(&opts, &fixture->disk), 0);
	assert_int_equal(disk_kind(fixture->disk), DISK_DAX_FILE);
	assert_true(disk_can_grow(fixture->disk));
	assert_false(disk_can_discard(fixture->disk));
	assert_int_equal(disk_open(&opts, &second), -EBUSY);
	assert_int_equal(disk_bytes(fixture->disk), STEP);
	assert_int_equal(disk_grow(fixture->disk, STEP + 1), 0);
	/* Neither end is at a line. */
	assert_int_equal(disk_write_now(fixture->disk, bytes, sizeof(bytes), STEP - 1003), 0);
	assert_int_equal(disk_flush_now(fixture->disk), 0);
	assert_int_equal(disk_read_now(fixture->disk, got, sizeof(got), STEP - 1003), 0);
	assert_memory_equal(got, bytes, sizeof(got));
	assert_int_equal(disk_write_now(fixture->disk, bytes, 4096, 2 * STEP - 4095), -EIO);
	assert_int_equal(disk_zero_now(fixture->disk, 100, STEP), 0);
	disk_close(fixture->disk);
	/* As an ordinary file, and what would be left of it without power. */
	for (uint32_t i = 0; i < 2; i++) {
		opts.path = name(fixture, 0, "%s", i ? "a.durable" : "a");
		opts.read_only = true;
		opts.bytes_min = 0;
		opts.step_bytes = 4096;
		assert_int_equal(disk_open(&opts, &fixture->disk), 0);
		disk_close(fixture->disk);
	}
	for (uint32_t i = 0; i < 2; i++) {
		int fd = open(name(fixture, 0, "%s", i ? "a.durable" : "a"), O_RDONLY);

		assert_true(fd >= 0);
		assert_int_equal(pread(fd, got, sizeof(got), STEP - 1003), sizeof(got));
		close(fd);
		assert_memory_equal(got, bytes, 1003);
		assert_int_equal(got[1003], 0);
		assert_int_equal(got[1102], 0);
		assert_memory_equal(got + 1103, bytes + 1103, sizeof(got) - 1103);
	}
}

static void test_refuses_what_is_no_persistent_memory(void **state)
{
	struct fixture *fixture = (struct fixture *)*state;
	struct disk_opts opts = opts_of(name(fixture, 0, "dax://%s", "a"));
	struct stat st;

	disk_dax_simulate(NULL);
	assert_int_equal(disk_open(&opts, &fixture->disk), -EOPNOTSUPP);
	/* Nothing is left of the attempt. */
	assert_int_equal(stat(name(fixture, 1, "%s", "a"), &st), -1);
	opts.path = "dax:///dev/null";
	assert_int_equal(disk_open(&opts, &fixture->disk), -EINVAL);
	assert_false(dax_is_device(0));
}

static void test_a_medium_that_fails_is_an_error(void **state)
{
	struct fixture *fixture = (struct fixture *)*state;
	struct disk_opts opts = opts_of(name(fixture, 0, "dax://%s", "a"));
	uint8_t block[4096] = {1};

	opts.bytes_min = 1;
	assert_int_equal(disk_open(&opts, &fixture->disk), 0);
	assert_int_equal(disk_write_now(fixture->disk, block, sizeof(block), 0), 0);
	/* The kernel raises SIGBUS for a page beyond a file's end as for one of bad memory. */
	assert_int_equal(truncate(name(fixture, 1, "%s", "a"), 4096), 0);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(disk_read_now(fixture->disk, block, sizeof(block), 8192), -EIO);
		assert_int_equal(disk_write_now(fixture->disk, block, sizeof(block), 8192), -EIO);
		assert_int_equal(disk_zero_now(fixture->disk, sizeof(block), 8192), -EIO);
		assert_int_equal(disk_read_now(fixture->disk, block, sizeof(block), 0), 0);
	}
	disk_close(fixture->disk);
}

static void test_every_way_of_flushing_writes(void **state)
{
	struct fixture *fixture = (struct fixture *)*state;
	struct disk_opts opts = opts_of(name(fixture, 0, "dax://%s", "a"));
	uint8_t bytes[300], got[300];
	enum dax_flush best = dax_flush_best();

	opts.bytes_min = 1;
	assert_int_equal(disk_open(&opts, &fixture->disk), 0);
	/* This processor's own ones, and the kernel's. */
	for (enum dax_flush flush = best; flush <= DAX_MSYNC; flush++) {
		memset(bytes, (int)flush + 1, sizeof(bytes));
		fixture->disk->dax->flush = flush;
		assert_int_equal(
			disk_write_now(fixture->disk, bytes, sizeof(bytes), 4096 * 3 + 13), 0);
		assert_int_equal(disk_read_now(fixture->disk, got, sizeof(got), 4096 * 3 + 13), 0);
		assert_memory_equal(got, bytes, sizeof(got));
	}
	disk_close(fixture->disk);
}

/* The power fails in the middle of a write: of its words some are there, all earlier ones are. */
static void test_words_in_flight_may_be_lost(void **state)
{
	struct fixture *fixture = (struct fixture *)*state;
	struct disk_opts opts = opts_of(name(fixture, 0, "dax://%s", "a"));
	static uint8_t old[8192], new[8192], got[8192];
	uint32_t words_new = 0;
	int fd;

	memset(old, 1, sizeof(old));
	memset(new, 2, sizeof(new));
	opts.bytes_min = 1;
	disk_dax_simulate("seed=3,lines=228"); /* 128 lines, and 100 of the second 128 */
	assert_int_equal(disk_open(&opts, &fixture->disk), 0);
	assert_int_equal(disk_write_now(fixture->disk, old, sizeof(old), 0), 0);
	assert_false(disk_dax_failed(fixture->disk));
	assert_int_equal(disk_write_now(fixture->disk, new, sizeof(new), 0), 0);
	assert_true(disk_dax_failed(fixture->disk));
	disk_close(fixture->disk);
	fd = open(name(fixture, 1, "%s", "a.durable"), O_RDONLY);
	assert_int_equal(pread(fd, got, sizeof(got), 0), sizeof(got));
	close(fd);
	for (uint32_t at = 0; at < sizeof(got); at += 8) {
		assert_true(memcmp(got + at, old, 8) == 0 || memcmp(got + at, new, 8) == 0);
		words_new += got[at] == 2;
		assert_true(at < 100 * 64 || got[at] == 1);
	}
	assert_true(words_new > 100 && words_new < 700);
}

/* ---- On a reactor. ---- */

static int32_t run(struct disk *disk, enum disk_op op, void *data, size_t bytes, uint64_t offset)
{
	struct iovec iov[2];
	struct disk_io io = {.op = op, .offset = offset};

	if (op == DISK_READ || op == DISK_WRITE) {
		iov[0] = (struct iovec){data, bytes / 2};
		iov[1] = (struct iovec){(uint8_t *)data + bytes / 2, bytes - bytes / 2};
		io.iov = iov;
		io.iov_count = 2;
	} else {
		io.bytes = bytes;
	}
	return disk_run(disk, &io);
}

struct committed {
	struct disk_commit commit;
	struct fiber *fiber;
	int32_t result;
	bool done;
};

static void committed_done(struct disk_commit *commit, int32_t result)
{
	struct committed *committed = CONTAINER_OF(commit, struct committed, commit);

	committed->result = result;
	committed->done = true;
	fiber_wake(committed->fiber);
}

/* Bodies at one place, a log record at another. */
static int32_t commit_two(
	struct disk *disk, void *body, uint64_t body_at, void *log, uint64_t log_at)
{
	struct iovec iov[2] = {{body, 4096}, {log, 4096}};
	struct disk_io writes[2] = {{.iov = &iov[0], .iov_count = 1, .offset = body_at},
		{.iov = &iov[1], .iov_count = 1, .offset = log_at}};
	bool both = body != NULL;
	struct committed committed = {.fiber = fiber_self(),
		.commit = {.writes = both ? writes : writes + 1,
			.write_count = both ? 2 : 1,
			.done = committed_done}};

	disk_commit(disk, &committed.commit);
	while (!committed.done)
		fiber_park();
	return committed.result;
}

static void round_run(void *arg)
{
	struct disk *disk = ((struct fixture *)arg)->disk;
	uint8_t *data = NULL, *block = NULL;
	const uint32_t bytes = 1 * MIB;

	assert_int_equal(posix_memalign((void **)&data, 4096, 2 * bytes), 0);
	assert_int_equal(posix_memalign((void **)&block, 4096, 3 * 4096), 0);
	memset(data, 9, bytes);
	memset(block, 4, 4096);
	memset(block + 4096, 5, 4096);
	/* More than a piece, in two parts. */
	assert_int_equal(run(disk, DISK_WRITE, data, bytes, LOG_BYTES), bytes);
	assert_int_equal(run(disk, DISK_READ, data + bytes, bytes, LOG_BYTES), bytes);
	assert_memory_equal(data, data + bytes, bytes);
	assert_int_equal(run(disk, DISK_FLUSH, NULL, 0, 0), 0);
	assert_int_equal(run(disk, DISK_ZERO, NULL, 8192, LOG_BYTES + 4096), 0);
	assert_int_equal(commit_two(disk, block, LOG_BYTES + 4096, block + 4096, 8192), 0);
	assert_int_equal(commit_two(disk, NULL, 0, block + 4096, 12288), 0);
	assert_int_equal(run(disk, DISK_READ, data + bytes, 8192, LOG_BYTES + 4096), 8192);
	assert_memory_equal(data + bytes, block, 4096);
	assert_int_equal(data[bytes + 4096], 0);
	assert_int_equal(run(disk, DISK_READ, data + bytes, 8192, 8192), 8192);
	assert_memory_equal(data + bytes, block + 4096, 4096);
	assert_memory_equal(data + bytes + 4096, block + 4096, 4096);
	if (disk_has_log_apart(disk)) /* no range lies on both parts */
		assert_int_equal(run(disk, DISK_READ, data, 8192, LOG_BYTES - 4096), -ERANGE);
	disk_fence(disk);
	assert_int_equal(commit_two(disk, NULL, 0, block, 8192), -EIO);
	assert_int_equal(run(disk, DISK_READ, data + bytes, 4096, 8192), 4096);
	assert_memory_equal(data + bytes, block + 4096, 4096);
	free(block);
	free(data);
	reactor_stop(reactor_self());
}

static void turned(struct fixture *fixture, const char *path)
{
	struct region_opts region_opts = {.bytes = 4 * MIB, .core_count = 1};
	/* No fiber is left for the volume. */
	struct reactor_opts reactor_opts = {.cpu = -1, .fibers_max = 1};
	struct disk_opts opts = opts_of(path);

	opts.bytes_min = LOG_BYTES + 2 * MIB;
	assert_int_equal(region_open(&region_opts, &fixture->region), 0);
	assert_int_equal(reactor_open(&reactor_opts, &fixture->reactor), 0);
	assert_int_equal(disk_open(&opts, &fixture->disk), 0);
	assert_int_equal(disk_attach(fixture->disk, fixture->reactor, fixture->region), 0);
	assert_int_equal(fiber_spawn(fixture->reactor, "round", round_run, fixture), 0);
	reactor_run(fixture->reactor);
	disk_close(fixture->disk);
	reactor_close(fixture->reactor);
	region_close(fixture->region);
}

static void test_operations(void **state)
{
	struct fixture *fixture = (struct fixture *)*state;
	uint64_t copied = region_copy_bytes(COPY_DAX);

	turned(fixture, name(fixture, 0, "dax://%s", "a"));
	assert_true(region_copy_bytes(COPY_DAX) - copied > 2 * MIB);
}

static const char *joined_name(struct fixture *fixture, const char *log, const char *bodies)
{
	snprintf(fixture->names[2], sizeof(fixture->names[2]), "log://%s?bodies=%s", log, bodies);
	return fixture->names[2];
}

static void test_operations_with_the_log_apart(void **state)
{
	struct fixture *fixture = (struct fixture *)*state;
	char log[600], plain[600], bodies[600];

	snprintf(log, sizeof(log), "dax://%s/a", fixture->dir);
	snprintf(plain, sizeof(plain), "%s/c", fixture->dir);
	snprintf(bodies, sizeof(bodies), "%s/b", fixture->dir);
	turned(fixture, joined_name(fixture, log, bodies));
	unlink(bodies);
	/* Neither part in persistent memory. */
	turned(fixture, joined_name(fixture, plain, bodies));
}

static int opened(struct fixture *fixture, const char *log, const char *bodies)
{
	struct disk_opts opts = opts_of(joined_name(fixture, log, bodies));
	int ret = disk_open(&opts, &fixture->disk);

	if (!ret)
		disk_close(fixture->disk);
	return ret;
}

static void test_parts_that_do_not_belong_together(void **state)
{
	struct fixture *fixture = (struct fixture *)*state;
	char a[600], b[600], c[600], what[128];
	struct disk_opts opts;

	snprintf(a, sizeof(a), "%s/a", fixture->dir);
	snprintf(b, sizeof(b), "%s/b", fixture->dir);
	snprintf(c, sizeof(c), "%s/c", fixture->dir);
	assert_int_equal(opened(fixture, "rdma://1.2.3.4:5/x", b), -EINVAL);
	assert_int_equal(opened(fixture, a, ""), -EINVAL);
	opts = opts_of(joined_name(fixture, a, b));
	opts.bytes_min = LOG_BYTES + STEP;
	assert_int_equal(disk_open(&opts, &fixture->disk), 0);
	assert_int_equal(disk_bytes(fixture->disk), LOG_BYTES + 2 * STEP - MIB);
	assert_int_equal(disk_foreign(fixture->disk, what, sizeof(what)), 0);
	disk_close(fixture->disk);
	assert_int_equal(opened(fixture, a, b), 0);
	assert_int_equal(opened(fixture, b, a), -EUCLEAN);
	assert_int_equal(opened(fixture, c, b), -EUCLEAN); /* a blank log */
	/* Either part alone is foreign data to a new store. */
	opts = opts_of(b);
	assert_int_equal(disk_open(&opts, &fixture->disk), 0);
	assert_int_equal(disk_foreign(fixture->disk, what, sizeof(what)), 1);
	assert_non_null(strstr(what, "keeps them apart"));
	disk_close(fixture->disk);
	/* Another store's log. */
	unlink(c);
	assert_int_equal(rename(b, c), 0);
	unlink(a);
	opts = opts_of(joined_name(fixture, a, b));
	opts.bytes_min = LOG_BYTES + STEP;
	assert_int_equal(disk_open(&opts, &fixture->disk), 0);
	disk_close(fixture->disk);
	assert_int_equal(opened(fixture, a, c), -EUCLEAN);
	assert_int_equal(truncate(a, 2 * (off_t)MIB), 0);
	assert_int_equal(opened(fixture, a, b), -EUCLEAN);
}

/* As docs/spec/disk.md has it: a checksum at 12 of a block, and the log's length at 40. */
static void label_change(const char *path, uint64_t log_bytes)
{
	uint8_t block[4096];
	uint32_t crc = 0;
	int fd = open(path, O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, block, sizeof(block), 0), sizeof(block));
	memcpy(block + 12, &crc, sizeof(crc));
	memcpy(block + 40, &log_bytes, sizeof(log_bytes));
	crc = crc32c_update(0, block, sizeof(block));
	memcpy(block + 12, &crc, sizeof(crc));
	assert_int_equal(pwrite(fd, block, sizeof(block), 0), sizeof(block));
	close(fd);
}

static void test_labels_with_impossible_lengths(void **state)
{
	const uint64_t lengths[] = {
		0, 1, MIB - 1, LOG_BYTES + 4096, LOG_BYTES + MIB, 0 - (uint64_t)MIB, UINT64_MAX};
	struct fixture *fixture = (struct fixture *)*state;
	char a[600], b[600];
	struct disk_opts opts;

	snprintf(a, sizeof(a), "%s/a", fixture->dir);
	snprintf(b, sizeof(b), "%s/b", fixture->dir);
	opts = opts_of(joined_name(fixture, a, b));
	opts.bytes_min = LOG_BYTES + STEP;
	assert_int_equal(disk_open(&opts, &fixture->disk), 0);
	disk_close(fixture->disk);
	for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
		label_change(a, lengths[i]);
		assert_int_equal(opened(fixture, a, b), -EUCLEAN); /* they differ */
		label_change(b, lengths[i]);
		assert_int_equal(opened(fixture, a, b), -EUCLEAN);
	}
	label_change(a, LOG_BYTES);
	label_change(b, LOG_BYTES);
	assert_int_equal(opened(fixture, a, b), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_opens_grows_and_keeps, begin, end),
		cmocka_unit_test_setup_teardown(
			test_refuses_what_is_no_persistent_memory, begin, end),
		cmocka_unit_test_setup_teardown(test_a_medium_that_fails_is_an_error, begin, end),
		cmocka_unit_test_setup_teardown(test_every_way_of_flushing_writes, begin, end),
		cmocka_unit_test_setup_teardown(test_words_in_flight_may_be_lost, begin, end),
		cmocka_unit_test_setup_teardown(test_operations, begin, end),
		cmocka_unit_test_setup_teardown(test_operations_with_the_log_apart, begin, end),
		cmocka_unit_test_setup_teardown(test_parts_that_do_not_belong_together, begin, end),
		cmocka_unit_test_setup_teardown(test_labels_with_impossible_lengths, begin, end),
	};

	return cmocka_run_group_tests_name("dax", tests, NULL, NULL);
}
