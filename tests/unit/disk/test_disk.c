/* tests/unit/disk/test_disk.c: a volume file: opened, locked, grown; read and written through the
 * base rings and directly; faults of a simulated one. */
#include "../abort.h"
#include "../log_catch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../ring_poller.h"
#include "disk/disk.h"

#define STEP (4 * MIB)

struct fixture {
	char dir[512];
	char path[600];
	struct disk *disk;
	struct region *region;
	struct reactor *reactor;
	struct reactor_poller poller;
	uint16_t target;
};

static struct disk_opts opts_of(const struct fixture *fixture)
{
	return (struct disk_opts){
		.path = fixture->path, .bytes_min = 1, .step_bytes = STEP, .create = true};
}

static void fixture_init(struct fixture *fixture)
{
	const char *base = getenv("TMPDIR");

	memset(fixture, 0, sizeof(*fixture));
	snprintf(fixture->dir, sizeof(fixture->dir), "%s/nebulaio-disk-XXXXXX", base ? base : ".");
	assert_non_null(mkdtemp(fixture->dir));
	snprintf(fixture->path, sizeof(fixture->path), "%s/volume", fixture->dir);
}

static void fixture_end(struct fixture *fixture)
{
	unlink(fixture->path);
	assert_int_equal(rmdir(fixture->dir), 0);
}

static uint64_t file_bytes(const struct fixture *fixture)
{
	struct stat st;

	assert_int_equal(stat(fixture->path, &st), 0);
	return (uint64_t)st.st_size;
}

static void test_opens_locks_and_grows(void **state)
{
	struct fixture fixture;
	struct disk_opts opts;
	struct disk *second;
	char *block = NULL;

	(void)state;
	fixture_init(&fixture);
	opts = opts_of(&fixture);
	opts.create = false;
	assert_int_equal(disk_open(&opts, &fixture.disk), -ENOENT);
	opts.create = true;
	assert_int_equal(disk_open(&opts, &fixture.disk), 0);
	log_catch();
	assert_int_equal(disk_open(&opts, &second), -EBUSY);
	assert_non_null(strstr(log_caught(), "another process has this volume open"));
	/* One that is tried again and again is not logged each time. */
	opts.probe = true;
	log_catch();
	assert_int_equal(disk_open(&opts, &second), -EBUSY);
	assert_string_equal(log_caught(), "");
	opts.probe = false;
	assert_int_equal(disk_bytes(fixture.disk), STEP);
	assert_int_equal(disk_grow(fixture.disk, STEP + 1), 0);
	assert_int_equal(disk_bytes(fixture.disk), 2 * STEP);
	assert_int_equal(disk_grow(fixture.disk, STEP), 0);
	assert_int_equal(file_bytes(&fixture), 2 * STEP);
	assert_int_equal(posix_memalign((void **)&block, 4096, 4096), 0);
	memset(block, 5, 4096);
	assert_int_equal(disk_write_now(fixture.disk, block, 4096, 2 * STEP - 4096), 0);
	assert_int_equal(disk_flush_now(fixture.disk), 0);
	disk_close(fixture.disk);
	/* An interrupted growth does not count, and is done again. */
	assert_int_equal(truncate(fixture.path, (off_t)(2 * STEP + 12345)), 0);
	assert_int_equal(disk_open(&opts, &fixture.disk), 0);
	assert_int_equal(disk_bytes(fixture.disk), 2 * STEP);
	assert_int_equal(disk_read_now(fixture.disk, block, 4096, 2 * STEP - 4096), 0);
	assert_int_equal(block[4095], 5);
	assert_int_equal(disk_grow(fixture.disk, 3 * STEP), 0);
	assert_int_equal(disk_read_now(fixture.disk, block, 4096, 2 * STEP), 0);
	assert_int_equal(block[0], 0);
	assert_int_equal(disk_read_now(fixture.disk, block, 4096, 3 * STEP), -EIO);
	disk_fence(fixture.disk);
	assert_int_equal(disk_write_now(fixture.disk, block, 4096, 0), -EIO);
	assert_int_equal(disk_flush_now(fixture.disk), -EIO);
	assert_int_equal(disk_grow(fixture.disk, 9 * STEP), -EIO);
	disk_close(fixture.disk);
	disk_close(NULL);
	free(block);
	fixture_end(&fixture);
}

static void test_faults_are_parsed(void **state)
{
	static const char *const BAD[] = {
		"eio", "eio=2", "eio=-1", "eio=x", "seed=", "what=1", "torn=0.1x"};
	struct fixture fixture;
	struct disk_opts opts;

	(void)state;
	fixture_init(&fixture);
	opts = opts_of(&fixture);
	opts.kind = DISK_SIMULATED;
	for (uint32_t i = 0; i < ARRAY_LEN(BAD); i++) {
		opts.faults = BAD[i];
		assert_int_equal(disk_open(&opts, &fixture.disk), -EINVAL);
	}
	opts.faults = "seed=1, enospc_at=8388608";
	assert_int_equal(disk_open(&opts, &fixture.disk), 0);
	assert_int_equal(disk_grow(fixture.disk, 2 * STEP), 0);
	assert_int_equal(disk_grow(fixture.disk, 3 * STEP), -ENOSPC);
	assert_int_equal(disk_bytes(fixture.disk), 2 * STEP);
	assert_int_equal(file_bytes(&fixture), 2 * STEP);
	disk_close(fixture.disk);
	fixture_end(&fixture);
}

/* ---- On a reactor. ---- */

static void io_start(struct fixture *fixture, struct io *io, struct region_sqe sqe)
{
	*io = (struct io){.fiber = fiber_self()};
	sqe.target = fixture->target;
	sqe.user_data = (uint64_t)(uintptr_t)io;
	while (region_submit(region_ring(fixture->region, 0), &sqe) == -EAGAIN)
		fiber_yield();
}

static int32_t io_wait(struct io *io)
{
	while (!io->done)
		fiber_park();
	return io->result;
}

static int32_t io_run(struct fixture *fixture, struct region_sqe sqe)
{
	struct io io;

	io_start(fixture, &io, sqe);
	return io_wait(&io);
}

static struct region_sqe sqe_of(
	enum region_op opcode, const void *data, uint32_t len, uint64_t offset)
{
	return (struct region_sqe){.opcode = (uint8_t)opcode,
		.addr = (uint64_t)(uintptr_t)data,
		.len = len,
		.offset = offset};
}

/* The caller fills in faults; runs fn on a fiber. */
static void reactor_with(struct fixture *fixture, const char *faults, fiber_fn *fn)
{
	struct region_opts region_opts = {.bytes = 16 * MIB, .core_count = 1, .ring_entries = 64};
	struct reactor_opts reactor_opts = {.cpu = -1};
	struct disk_opts opts = opts_of(fixture);

	opts.kind = faults ? DISK_SIMULATED : DISK_FILE;
	opts.faults = faults;
	assert_int_equal(region_open(&region_opts, &fixture->region), 0);
	assert_int_equal(disk_open(&opts, &fixture->disk), 0);
	assert_int_equal(reactor_open(&reactor_opts, &fixture->reactor), 0);
	assert_int_equal(disk_attach(fixture->disk, fixture->reactor, fixture->region), 0);
	assert_int_equal(disk_target(fixture->disk, fixture->region, &fixture->target), 0);
	ring_poller_add(fixture->reactor, &fixture->poller, region_ring(fixture->region, 0));
	assert_int_equal(fiber_spawn(fixture->reactor, "test", fn, fixture), 0);
	reactor_run(fixture->reactor);
	ring_poller_close(fixture->reactor, &fixture->poller);
	disk_close(fixture->disk);
	region_close(fixture->region);
}

#define DEEP 48u

static void rings_fiber(void *arg)
{
	struct fixture *fixture = (struct fixture *)arg;
	struct region_span out, in;
	struct io ios[DEEP];
	struct prng prng;

	prng_seed(&prng, 1);
	assert_int_equal(region_lease(fixture->region, DEEP, OWNER_DISK, &out), 0);
	assert_int_equal(region_lease(fixture->region, DEEP, OWNER_DISK, &in), 0);
	prng_fill(&prng, out.data, region_span_bytes(out));
	for (uint32_t i = 0; i < DEEP; i++)
		io_start(fixture, &ios[i],
			sqe_of(REGION_OP_WRITE, out.data + i * 4096, 4096, (DEEP - i) * 8192));
	for (uint32_t i = 0; i < DEEP; i++)
		assert_int_equal(io_wait(&ios[i]), 4096);
	assert_int_equal(io_run(fixture, sqe_of(REGION_OP_FLUSH, NULL, 0, 0)), 0);
	for (uint32_t i = 0; i < DEEP; i++)
		io_start(fixture, &ios[i],
			sqe_of(REGION_OP_READ, in.data + i * 4096, 4096, (DEEP - i) * 8192));
	for (uint32_t i = 0; i < DEEP; i++)
		assert_int_equal(io_wait(&ios[i]), 4096);
	assert_memory_equal(in.data, out.data, region_span_bytes(in));
	/* Operations that a volume refuses. */
	assert_int_equal(io_run(fixture, sqe_of(REGION_OP_READ, in.data + 1, 4096, 0)), -EINVAL);
	assert_int_equal(io_run(fixture, sqe_of(REGION_OP_READ, in.data, 100, 0)), -EINVAL);
	assert_int_equal(io_run(fixture, sqe_of(REGION_OP_READ, in.data, 4096, 17)), -EINVAL);
	assert_int_equal(io_run(fixture, sqe_of(REGION_OP_WRITE, in.data, 4096, STEP)), -ERANGE);
	assert_int_equal(
		io_run(fixture, sqe_of(REGION_OP_PACKET_TX, in.data, 4096, 0)), -EOPNOTSUPP);
	assert_int_equal(io_run(fixture, sqe_of(REGION_OP_DISCARD, NULL, 8192, 8192)), 0);
	assert_int_equal(io_run(fixture, sqe_of(REGION_OP_READ, in.data, 4096, 8192)), 4096);
	for (uint32_t i = 0; i < 4096; i++)
		assert_int_equal(in.data[i], 0);
	disk_fence(fixture->disk);
	assert_int_equal(io_run(fixture, sqe_of(REGION_OP_WRITE, in.data, 4096, 0)), -EIO);
	assert_int_equal(io_run(fixture, sqe_of(REGION_OP_READ, in.data, 4096, 0)), 4096);
	region_give(fixture->region, out, OWNER_DISK);
	region_give(fixture->region, in, OWNER_DISK);
	reactor_stop(fixture->reactor);
}

static void test_serves_the_base_rings(void **state)
{
	struct fixture fixture;

	(void)state;
	fixture_init(&fixture);
	reactor_with(&fixture, NULL, rings_fiber);
	fixture_end(&fixture);
}

/* ---- Direct operations, gathered. ---- */

static int32_t direct_run(struct fixture *fixture, enum disk_op op, struct iovec *iov,
	uint32_t iov_count, uint64_t offset)
{
	struct disk_io io = {.op = op, .iov = iov, .iov_count = iov_count, .offset = offset};

	return disk_run(fixture->disk, &io);
}

static void gather_fiber(void *arg)
{
	struct fixture *fixture = (struct fixture *)arg;
	struct region_span spans[3], in;
	struct iovec iov[3];

	assert_int_equal(region_lease(fixture->region, 3, OWNER_DISK, &in), 0);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(region_lease(fixture->region, 1, OWNER_DISK, &spans[i]), 0);
		memset(spans[i].data, (int)i + 1, 4096);
		iov[i] = (struct iovec){spans[i].data, 4096};
	}
	assert_int_equal(direct_run(fixture, DISK_WRITE, iov, 3, 4096), 3 * 4096);
	assert_int_equal(direct_run(fixture, DISK_FLUSH, NULL, 0, 0), 0);
	iov[0] = (struct iovec){in.data, 3 * 4096};
	assert_int_equal(direct_run(fixture, DISK_READ, iov, 1, 4096), 3 * 4096);
	for (uint32_t i = 0; i < 3; i++) {
		assert_memory_equal(in.data + i * 4096, spans[i].data, 4096);
		region_give(fixture->region, spans[i], OWNER_DISK);
	}
	/* Past the end of the file a read returns nothing. */
	iov[0] = (struct iovec){in.data, 4096};
	assert_int_equal(direct_run(fixture, DISK_READ, iov, 1, STEP), -EIO);
	region_give(fixture->region, in, OWNER_DISK);
	reactor_stop(fixture->reactor);
}

static void test_gathers(void **state)
{
	struct fixture fixture;

	(void)state;
	fixture_init(&fixture);
	reactor_with(&fixture, NULL, gather_fiber);
	fixture_end(&fixture);
}

/* ---- Writes and their flush as one. ---- */

struct durable {
	struct disk_commit commit;
	struct disk_io writes[3];
	struct iovec iov[3];
	struct fiber *fiber;
	int32_t result;
	bool done;
};

static void durable_done(struct disk_commit *commit, int32_t result)
{
	struct durable *durable = CONTAINER_OF(commit, struct durable, commit);

	durable->result = result;
	durable->done = true;
	fiber_wake(durable->fiber);
}

/* Blocks of the data, far from one another. */
static void durable_start(
	struct fixture *fixture, struct durable *durable, uint8_t *data, uint32_t count)
{
	memset(durable, 0, sizeof(*durable));
	durable->fiber = fiber_self();
	for (uint32_t i = 0; i < count; i++) {
		durable->iov[i] = (struct iovec){data + i * 4096, 4096};
		durable->writes[i].iov = &durable->iov[i];
		durable->writes[i].iov_count = 1;
		durable->writes[i].offset = i * MIB;
	}
	durable->commit.writes = durable->writes;
	durable->commit.write_count = count;
	durable->commit.done = durable_done;
	disk_commit(fixture->disk, &durable->commit);
}

static int32_t durable_wait(struct durable *durable)
{
	while (!durable->done)
		fiber_park();
	return durable->result;
}

static int32_t durable_run(struct fixture *fixture, uint8_t *data, uint32_t count)
{
	struct durable durable;

	durable_start(fixture, &durable, data, count);
	return durable_wait(&durable);
}

/* Up to two writes by threads, more by io_uring; several commits at once. */
static void commit_fiber(void *arg)
{
	struct fixture *fixture = (struct fixture *)arg;
	struct durable durables[8];
	struct region_span out, in;
	uint8_t *nowhere =
		(uint8_t *)mmap(NULL, 3 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(nowhere, MAP_FAILED);
	assert_int_equal(region_lease(fixture->region, 3, OWNER_DISK, &out), 0);
	assert_int_equal(region_lease(fixture->region, 1, OWNER_DISK, &in), 0);
	for (uint32_t count = 1; count <= 3; count++) {
		memset(out.data, (int)count, count * 4096);
		assert_int_equal(durable_run(fixture, out.data, count), 0);
		for (uint32_t i = 0; i < count; i++) {
			struct iovec iov = {in.data, 4096};

			assert_int_equal(direct_run(fixture, DISK_READ, &iov, 1, i * MIB), 4096);
			assert_memory_equal(in.data, out.data + i * 4096, 4096);
		}
	}
	for (uint32_t i = 0; i < ARRAY_LEN(durables); i++)
		durable_start(fixture, &durables[i], out.data, 1 + i % 3);
	for (uint32_t i = 0; i < ARRAY_LEN(durables); i++)
		assert_int_equal(durable_wait(&durables[i]), 0);
	log_set_level(LOG_ERROR + 1);
	for (uint32_t count = 1; count <= 3; count++) {
		/* The memory to write does not exist. */
		assert_int_equal(durable_run(fixture, nowhere, count), -EFAULT);
	}
	munmap(nowhere, 3 * 4096);
	disk_fence(fixture->disk);
	for (uint32_t count = 1; count <= 3; count++)
		assert_int_equal(durable_run(fixture, out.data, count), -EIO);
	log_set_level(LOG_ERROR);
	region_give(fixture->region, out, OWNER_DISK);
	region_give(fixture->region, in, OWNER_DISK);
	reactor_stop(fixture->reactor);
}

static void commit_fails_fiber(void *arg)
{
	struct fixture *fixture = (struct fixture *)arg;
	struct region_span out;

	assert_int_equal(region_lease(fixture->region, 3, OWNER_DISK, &out), 0);
	log_set_level(LOG_ERROR + 1);
	assert_int_equal(durable_run(fixture, out.data, 2), -EIO);
	log_set_level(LOG_ERROR);
	region_give(fixture->region, out, OWNER_DISK);
	reactor_stop(fixture->reactor);
}

static void test_commits(void **state)
{
	struct fixture fixture;

	(void)state;
	fixture_init(&fixture);
	reactor_with(&fixture, NULL, commit_fiber);
	unlink(fixture.path);
	reactor_with(&fixture, "eio=1", commit_fails_fiber);
	fixture_end(&fixture);
}

static void faults_fiber(void *arg)
{
	struct fixture *fixture = (struct fixture *)arg;
	struct region_span span;
	uint32_t failed = 0;

	assert_int_equal(region_lease(fixture->region, 4, OWNER_DISK, &span), 0);
	for (uint32_t i = 0; i < 400; i++) {
		int32_t result;

		memset(span.data, (int)i, 4 * 4096);
		result = io_run(fixture, sqe_of(REGION_OP_WRITE, span.data, 4 * 4096, 0));
		assert_true(result == 4 * 4096 || result == -EIO);
		failed += result < 0;
		memset(span.data, 0xee, 4 * 4096);
		if (io_run(fixture, sqe_of(REGION_OP_READ, span.data, 4 * 4096, 0)) < 0)
			continue;
		if (result > 0)
			assert_int_equal(span.data[4 * 4096 - 1], (uint8_t)i);
	}
	assert_true(failed > 20 && failed < 200);
	region_give(fixture->region, span, OWNER_DISK);
	reactor_stop(fixture->reactor);
}

static void torn_fiber(void *arg)
{
	struct fixture *fixture = (struct fixture *)arg;
	struct region_span span;

	assert_int_equal(region_lease(fixture->region, 4, OWNER_DISK, &span), 0);
	memset(span.data, 7, 4 * 4096);
	assert_int_equal(io_run(fixture, sqe_of(REGION_OP_WRITE, span.data, 4 * 4096, 0)), -EIO);
	assert_int_equal(io_run(fixture, sqe_of(REGION_OP_READ, span.data, 4 * 4096, 0)), 4 * 4096);
	assert_int_equal(span.data[0], 7);
	assert_int_equal(span.data[2 * 4096 - 1], 7);
	assert_int_equal(span.data[2 * 4096], 0);
	region_give(fixture->region, span, OWNER_DISK);
	reactor_stop(fixture->reactor);
}

static void test_faults_fail_some_and_tear_some(void **state)
{
	struct fixture fixture;

	(void)state;
	fixture_init(&fixture);
	reactor_with(&fixture, "seed=7,eio=0.1,torn=0.1", faults_fiber);
	unlink(fixture.path);
	reactor_with(&fixture, "torn=1", torn_fiber);
	fixture_end(&fixture);
}

static void closes_twice(void *arg)
{
	struct disk *disk = (struct disk *)arg;

	disk_close(disk);
	disk_close(disk);
}

static void test_a_closed_one_is_found(void **state)
{
	struct fixture fixture;
	struct disk_opts opts;
	struct disk *disk;

	(void)state;
	fixture_init(&fixture);
	opts = opts_of(&fixture);
	assert_int_equal(disk_open(&opts, &disk), 0);
	abort_expected(closes_twice, disk);
	disk_close(disk);
	fixture_end(&fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_closed_one_is_found),
		cmocka_unit_test(test_opens_locks_and_grows),
		cmocka_unit_test(test_faults_are_parsed),
		cmocka_unit_test(test_serves_the_base_rings),
		cmocka_unit_test(test_gathers),
		cmocka_unit_test(test_commits),
		cmocka_unit_test(test_faults_fail_some_and_tear_some),
	};

	log_set_level(LOG_ERROR);
	return cmocka_run_group_tests_name("disk", tests, NULL, NULL);
}
