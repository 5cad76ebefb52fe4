/* tests/unit/disk/test_devices.c: volumes that are devices: NVMe commands on an emulated
 * controller, their statuses, the controller's identification; and a block device (a loop device,
 * as root). */
#include "../unit.h"
#include "../counted.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "disk/disk.h"
#include "medium.h"
#include "disk/disk_nvme.h"

#define REGION_BYTES (16 * MIB)
#define MEDIUM_BYTES (16 * MIB)

struct fixture {
	struct medium medium;
	struct disk *disk;
	struct region *region;
	struct reactor *reactor;
	uint32_t fibers_max; /* 0: as reactors have */
};

static void fixture_init(struct fixture *fixture, uint64_t bytes)
{
	memset(fixture, 0, sizeof(*fixture));
	medium_make(&fixture->medium, bytes);
}

static void fixture_end(struct fixture *fixture)
{
	medium_remove(&fixture->medium);
}

static int nvme_sim_open(struct fixture *fixture, const char *nvme, struct disk **ret_disk)
{
	struct disk_opts opts = {
		.kind = DISK_NVME_SIMULATED, .path = fixture->medium.path, .nvme = nvme};

	return disk_open(&opts, ret_disk);
}

/* ---- On a reactor. ---- */

struct direct {
	struct disk_io io;
	struct fiber *fiber;
	int32_t result;
	bool done;
};

static void direct_done(struct disk_io *io, int32_t result)
{
	struct direct *direct = CONTAINER_OF(io, struct direct, io);

	direct->result = result;
	direct->done = true;
	fiber_wake(direct->fiber);
}

static void direct_start(struct disk *disk, struct direct *direct, enum disk_op op,
	struct iovec *iov, uint32_t count)
{
	direct->fiber = fiber_self();
	direct->done = false;
	direct->io.op = op;
	direct->io.iov = iov;
	direct->io.iov_count = count;
	direct->io.done = direct_done;
	disk_start(disk, &direct->io);
}

static int32_t direct_wait(struct direct *direct)
{
	while (!direct->done)
		fiber_park();
	return direct->result;
}

static int32_t direct_run(
	struct disk *disk, enum disk_op op, void *data, uint64_t bytes, uint64_t offset)
{
	struct iovec iov = {data, bytes};
	struct disk_io io = {
		.op = op, .iov = &iov, .iov_count = data ? 1 : 0, .offset = offset, .bytes = bytes};

	return disk_run(disk, &io);
}

static void reactor_with(struct fixture *fixture, fiber_fn *fn)
{
	struct region_opts region_opts = {
		.bytes = REGION_BYTES, .core_count = 1, .ring_entries = 64};
	struct reactor_opts reactor_opts = {.cpu = -1, .fibers_max = fixture->fibers_max};

	assert_int_equal(region_open(&region_opts, &fixture->region), 0);
	assert_int_equal(reactor_open(&reactor_opts, &fixture->reactor), 0);
	assert_int_equal(disk_attach(fixture->disk, fixture->reactor, fixture->region), 0);
	assert_int_equal(fiber_spawn(fixture->reactor, "test", fn, fixture), 0);
	reactor_run(fixture->reactor);
	disk_close(fixture->disk);
	reactor_close(fixture->reactor);
	region_close(fixture->region);
}

#define PIECES 40u

static void pieces_lease(struct fixture *fixture, struct region_span *ret_span, struct iovec *iov)
{
	assert_int_equal(region_lease(fixture->region, 3 * PIECES, OWNER_DISK, ret_span), 0);
	/* Of different lengths, some larger than one command of the smallest controller. */
	for (uint32_t i = 0, at = 0; i < PIECES; i++) {
		uint32_t frames = 1 + i % 5;

		iov[i] = (struct iovec){ret_span->data + (size_t)at * 4096, (size_t)frames * 4096};
		at += frames;
	}
}

/* Gathers, scatters and whole spans, written one way and read another. */
static void transfers_fiber(void *arg)
{
	struct fixture *fixture = (struct fixture *)arg;
	struct region_span out, in;
	struct iovec iov[PIECES];
	struct direct many[3] = {0};
	struct prng prng;
	uint32_t bytes = 3 * PIECES * 4096;

	prng_seed(&prng, 3);
	pieces_lease(fixture, &out, iov);
	assert_int_equal(region_lease(fixture->region, 3 * PIECES, OWNER_DISK, &in), 0);
	prng_fill(&prng, out.data, bytes);
	many[0].io.offset = 8192;
	direct_start(fixture->disk, &many[0], DISK_WRITE, iov, PIECES);
	assert_int_equal(direct_wait(&many[0]), bytes);
	assert_int_equal(direct_run(fixture->disk, DISK_FLUSH, NULL, 0, 0), 0);
	assert_int_equal(direct_run(fixture->disk, DISK_READ, in.data, bytes, 8192), bytes);
	assert_memory_equal(in.data, out.data, bytes);
	/* Several at once, with pieces of any length. */
	memset(in.data, 0, bytes);
	for (uint32_t i = 0; i < 3; i++) {
		struct iovec *part = &iov[20 + i];

		many[i].io.offset = MIB * (i + 1);
		*part = (struct iovec){out.data + (size_t)i * 4096, bytes / 2 / 4096 * 4096};
		direct_start(fixture->disk, &many[i], DISK_WRITE, part, 1);
	}
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(direct_wait(&many[i]), bytes / 2 / 4096 * 4096);
	assert_int_equal(disk_read_now(fixture->disk, in.data, 65536, 3 * MIB), 0);
	assert_memory_equal(in.data, out.data + 2 * 4096, 65536);
	assert_true(disk_can_discard(fixture->disk));
	assert_int_equal(direct_run(fixture->disk, DISK_DISCARD, NULL, 65536, 3 * MIB), 0);
	/* The deallocated blocks read as zeros here. */
	assert_int_equal(direct_run(fixture->disk, DISK_READ, in.data, 65536, 3 * MIB), 65536);
	for (uint32_t i = 0; i < 65536; i++)
		assert_int_equal(in.data[i], 0);
	assert_int_equal(direct_run(fixture->disk, DISK_ZERO, NULL, 65536, 2 * MIB), 0);
	assert_int_equal(direct_run(fixture->disk, DISK_READ, in.data, 65536, 2 * MIB), 65536);
	for (uint32_t i = 0; i < 65536; i++)
		assert_int_equal(in.data[i], 0);
	region_give(fixture->region, out, OWNER_DISK);
	region_give(fixture->region, in, OWNER_DISK);
	reactor_stop(fixture->reactor);
}

static void test_nvme_splits_and_gathers(void **state)
{
	static const char *const CONTROLLERS[] = {"lba=4096,mdts=5", "lba=512,mdts=1", "lba=512"};

	(void)state;
	for (uint32_t i = 0; i < ARRAY_LEN(CONTROLLERS); i++) {
		struct fixture fixture;

		fixture_init(&fixture, MEDIUM_BYTES);
		assert_int_equal(nvme_sim_open(&fixture, CONTROLLERS[i], &fixture.disk), 0);
		assert_int_equal(disk_bytes(fixture.disk), MEDIUM_BYTES);
		assert_false(disk_can_grow(fixture.disk));
		assert_int_equal(disk_grow(fixture.disk, MEDIUM_BYTES + 1), -ENOSPC);
		assert_non_null(strstr(disk_describe(fixture.disk), "made up? (SIM-1)"));
		reactor_with(&fixture, transfers_fiber);
		fixture_end(&fixture);
	}
}

static void refusals_fiber(void *arg)
{
	struct fixture *fixture = (struct fixture *)arg;
	struct region_span span;

	assert_int_equal(region_lease(fixture->region, 300, OWNER_DISK, &span), 0);
	assert_false(disk_can_discard(fixture->disk));
	assert_int_equal(direct_run(fixture->disk, DISK_DISCARD, NULL, 65536, 0), -EOPNOTSUPP);
	assert_int_equal(direct_run(fixture->disk, DISK_ZERO, NULL, 65536, 0), -EOPNOTSUPP);
	assert_int_equal(disk_zero_now(fixture->disk, 65536, 0), 0); /* by writing them */
	assert_int_equal(disk_read_now(fixture->disk, span.data, 512, MEDIUM_BYTES), -EIO);
	assert_int_equal(disk_read_now(fixture->disk, span.data, 100, 0), -EINVAL);
	region_give(fixture->region, span, OWNER_DISK);
	reactor_stop(fixture->reactor);
}

/* Transfers that were done a page at a time. */
static uint64_t refused_count(void)
{
	return counted("nebulaio_disk_nvme_refused_total");
}

/* 40 gathered pieces, one of which ends within a page, and half a MiB in one, at both ends of the
 * region. */
static void forms_fiber(void *arg)
{
	struct fixture *fixture = (struct fixture *)arg;
	struct region_span spans[REGION_BYTES / (512 * KIB)];
	uint8_t *places[2] = {NULL, NULL};
	uint8_t *back = NULL;
	uint32_t span_count = 0;

	/* The last of the region, and then the first. */
	while (span_count < ARRAY_LEN(spans) &&
		region_lease(fixture->region, 128, OWNER_DISK, &spans[span_count]) == 0) {
		uint8_t *data = spans[span_count++].data;

		places[0] = !places[0] || data > places[0] ? data : places[0];
		places[1] = !places[1] || data < places[1] ? data : places[1];
	}
	assert_true(span_count > 1);
	assert_int_equal(posix_memalign((void **)&back, 4096, 512 * KIB), 0);
	for (uint32_t round = 0; round < 2; round++) {
		uint8_t *data = places[round];
		struct iovec iov[PIECES], again[PIECES];
		struct disk_io io = {.op = DISK_WRITE, .iov = iov, .iov_count = PIECES};
		uint64_t bytes = 0;

		for (uint32_t i = 0; i < 512 * KIB; i++)
			data[i] = (uint8_t)(i * 7 + i / 4096 + round);
		assert_int_equal(
			direct_run(fixture->disk, DISK_WRITE, data, 512 * KIB, MIB), 512 * KIB);
		assert_int_equal(
			direct_run(fixture->disk, DISK_READ, back, 512 * KIB, MIB), 512 * KIB);
		assert_memory_equal(data, back, 512 * KIB);
		for (uint32_t i = 0; i < PIECES; i++) {
			again[i] = (struct iovec){
				data + (size_t)(PIECES - i) * 8192, i == 7 ? 512 : 8192};
			bytes += again[i].iov_len;
		}
		memcpy(iov, again, sizeof(iov));
		io.offset = 4 * MIB;
		assert_int_equal(disk_run(fixture->disk, &io), bytes);
		assert_int_equal(direct_run(fixture->disk, DISK_READ, back, bytes, 4 * MIB), bytes);
		for (uint64_t i = 0, at = 0; i < PIECES; at += again[i++].iov_len)
			assert_memory_equal(back + at, again[i].iov_base, again[i].iov_len);
	}
	free(back);
	while (span_count)
		region_give(fixture->region, spans[--span_count], OWNER_DISK);
	reactor_stop(fixture->reactor);
}

/* The kernel's limits, known and unknown: a transfer is cut to the known ones, and one that is
 * refused anyway is done in another way. An old kernel accepts some transfers only near the end of
 * a registered buffer, so one success proves nothing about the next transfer. */
static void test_nvme_transfers_of_every_form_are_done(void **state)
{
	static const struct {
		const char *nvme;
		bool pieces;
	} CASES[] = {
		{"lba=512", false},
		{"lba=512,max_segments=3,segments_taken=3,mdts=1,bytes_taken=8192", false},
		{"lba=512,max_segments=65,segments_taken=65,bytes_taken=262144", false},
		{"lba=512,bytes_taken=8192", true},
		{"lba=512,segments_taken=4", true},
		{"lba=512,bytes_taken=4096,segments_taken=1", true},
		{"lba=512,fixed_rest=524288", false},
	};

	(void)state;
	for (uint32_t i = 0; i < ARRAY_LEN(CASES); i++) {
		uint64_t before = refused_count();
		struct fixture fixture;

		fixture_init(&fixture, MEDIUM_BYTES);
		fixture.fibers_max = 1; /* no fiber is left but this test's */
		assert_int_equal(nvme_sim_open(&fixture, CASES[i].nvme, &fixture.disk), 0);
		reactor_with(&fixture, forms_fiber);
		fixture_end(&fixture);
		assert_int_equal(refused_count() > before, CASES[i].pieces);
	}
}

static void test_nvme_without_deallocate(void **state)
{
	struct fixture fixture;

	(void)state;
	fixture_init(&fixture, MEDIUM_BYTES);
	assert_int_equal(nvme_sim_open(&fixture, "lba=512,caps=0", &fixture.disk), 0);
	reactor_with(&fixture, refusals_fiber);
	fixture_end(&fixture);
}

/* Two volumes that can deallocate, a file and a controller that cannot. */
#define ARRAY_MEMBERS 4u

static void array_discard_fiber(void *arg)
{
	struct fixture *fixture = (struct fixture *)arg;
	static const bool CAN[ARRAY_MEMBERS] = {true, false, true, false};
	_Alignas(4096) uint8_t block[4096], back[4096];

	memset(block, 0xa5, sizeof(block));
	for (uint32_t i = 0; i < ARRAY_MEMBERS; i++) {
		struct disk *member = disk_array_member(fixture->disk, i);

		assert_int_equal(disk_can_discard(member), CAN[i]);
		assert_int_equal(disk_write_now(member, block, sizeof(block), 2 * MIB), 0);
	}
	assert_true(disk_can_discard(fixture->disk));
	assert_int_equal(direct_run(fixture->disk, DISK_DISCARD, NULL, 65536, 2 * MIB), 0);
	assert_int_equal(
		direct_run(fixture->disk, DISK_DISCARD, NULL, 65536, MEDIUM_BYTES), -EINVAL);
	for (uint32_t i = 0; i < ARRAY_MEMBERS; i++) {
		memset(block, CAN[i] ? 0 : 0xa5, sizeof(block));
		assert_int_equal(disk_read_now(disk_array_member(fixture->disk, i), back,
					 sizeof(back), 2 * MIB),
			0);
		assert_memory_equal(back, block, sizeof(back));
	}
	reactor_stop(fixture->reactor);
}

static void test_an_array_discards_where_it_can(void **state)
{
	static const struct disk_opts KINDS[ARRAY_MEMBERS] = {
		{.kind = DISK_NVME_SIMULATED, .nvme = "lba=512"},
		{.kind = DISK_NVME_SIMULATED, .nvme = "lba=512,caps=0"},
		{.kind = DISK_FILE, .step_bytes = 4 * MIB, .discard_files = true},
		{.kind = DISK_FILE, .step_bytes = 4 * MIB},
	};
	struct disk_array_opts array = {.data = 3, .parity = 1, .name = "array"};
	struct fixture fixture, members[ARRAY_MEMBERS];

	(void)state;
	fixture_init(&fixture, MEDIUM_BYTES);
	for (uint32_t i = 0; i < ARRAY_MEMBERS; i++) {
		struct disk_opts opts = KINDS[i];

		fixture_init(&members[i], MEDIUM_BYTES);
		opts.path = members[i].medium.path;
		assert_int_equal(disk_open(&opts, &array.members[i]), 0);
	}
	assert_int_equal(disk_array_open(&array, &fixture.disk), 0);
	reactor_with(&fixture, array_discard_fiber);
	for (uint32_t i = 0; i < ARRAY_MEMBERS; i++)
		fixture_end(&members[i]);
	fixture_end(&fixture);
}

/* A read of two commands, of which the controller fails one or both. */
static void statuses_fiber(void *arg)
{
	struct fixture *fixture = (struct fixture *)arg;
	struct region_span span;

	assert_int_equal(region_lease(fixture->region, 16, OWNER_DISK, &span), 0);
	assert_int_equal(direct_run(fixture->disk, DISK_READ, span.data, 16 * 4096, 0), -EIO);
	assert_int_equal(direct_run(fixture->disk, DISK_FLUSH, NULL, 0, 0), -EIO);
	assert_int_equal(disk_write_now(fixture->disk, span.data, 4096, 0), -EIO);
	assert_int_equal(disk_flush_now(fixture->disk), -EIO);
	region_give(fixture->region, span, OWNER_DISK);
	reactor_stop(fixture->reactor);
}

static void test_nvme_statuses_end_operations(void **state)
{
	struct fixture fixture;

	(void)state;
	fixture_init(&fixture, MEDIUM_BYTES);
	assert_int_equal(
		nvme_sim_open(&fixture, "lba=4096,mdts=3,status=0x4281,after=1", &fixture.disk), 0);
	reactor_with(&fixture, statuses_fiber);
	fixture_end(&fixture);
}

static void passing_fiber(void *arg)
{
	struct fixture *fixture = (struct fixture *)arg;
	struct region_span out, in;

	assert_int_equal(region_lease(fixture->region, 16, OWNER_DISK, &out), 0);
	assert_int_equal(region_lease(fixture->region, 16, OWNER_DISK, &in), 0);
	memset(out.data, 7, 16 * 4096);
	assert_int_equal(
		direct_run(fixture->disk, DISK_WRITE, out.data, 16 * 4096, 8192), 16 * 4096);
	assert_int_equal(direct_run(fixture->disk, DISK_READ, in.data, 16 * 4096, 8192), 16 * 4096);
	assert_memory_equal(in.data, out.data, 16 * 4096);
	assert_int_equal(direct_run(fixture->disk, DISK_FLUSH, NULL, 0, 0), 0);
	region_give(fixture->region, out, OWNER_DISK);
	region_give(fixture->region, in, OWNER_DISK);
	reactor_stop(fixture->reactor);
}

/* A controller that could not do some commands at the moment (command interrupted, namespace not
 * ready), and says that they may be sent again, has not failed. */
static void test_nvme_passing_statuses_pass(void **state)
{
	static const char *const CONTROLLERS[] = {"lba=4096,mdts=3,status=0x21,after=1,times=3",
		"lba=512,mdts=3,status=0x1882,after=0,times=1",
		"lba=4096,mdts=3,status=0x22,after=4,times=2"};
	uint8_t block[4096] __attribute__((aligned(4096))) = {9},
			    read[4096] __attribute__((aligned(4096)));
	struct fixture fixture;

	(void)state;
	for (uint32_t i = 0; i < ARRAY_LEN(CONTROLLERS); i++) {
		fixture_init(&fixture, MEDIUM_BYTES);
		assert_int_equal(nvme_sim_open(&fixture, CONTROLLERS[i], &fixture.disk), 0);
		reactor_with(&fixture, passing_fiber);
		fixture_end(&fixture);
	}
	/* Blocking. */
	fixture_init(&fixture, MEDIUM_BYTES);
	assert_int_equal(
		nvme_sim_open(&fixture, "lba=4096,status=0x21,after=0,times=2", &fixture.disk), 0);
	assert_int_equal(disk_write_now(fixture.disk, block, sizeof(block), 0), 0);
	assert_int_equal(disk_read_now(fixture.disk, read, sizeof(read), 0), 0);
	assert_memory_equal(read, block, sizeof(block));
	disk_close(fixture.disk);
	fixture_end(&fixture);
	/* One that stays ends the command. */
	fixture_init(&fixture, MEDIUM_BYTES);
	assert_int_equal(nvme_sim_open(&fixture, "lba=4096,status=0x21,after=0", &fixture.disk), 0);
	assert_int_equal(disk_flush_now(fixture.disk), -EIO);
	disk_close(fixture.disk);
	fixture_end(&fixture);
}

static void test_nvme_status_names(void **state)
{
	(void)state;
	assert_int_equal(nvme_status_errno(0), 0);
	assert_int_equal(nvme_status_errno(0x4000), 0);
	assert_int_equal(nvme_status_errno(0x4281), -EIO);
	assert_string_equal(nvme_status_name(0x4281), "unrecovered read error");
	assert_int_equal(nvme_status_errno(0x81), -ENOSPC);
	assert_int_equal(nvme_status_errno(0x80), -ERANGE);
	assert_int_equal(nvme_status_errno(0x20), -EROFS);
	assert_int_equal(nvme_status_errno(0x83), -EBUSY);
	assert_int_equal(nvme_status_errno(0x1), -EOPNOTSUPP);
	assert_int_equal(nvme_status_errno(0x7c0), -EIO);
	assert_string_equal(nvme_status_name(0x7c0), "an unknown status");
}

static void test_nvme_refuses_what_it_cannot_use(void **state)
{
	struct fixture fixture;
	struct disk *second;

	(void)state;
	fixture_init(&fixture, MEDIUM_BYTES);
	assert_int_equal(nvme_sim_open(&fixture, "lba=8192", &fixture.disk), -EOPNOTSUPP);
	assert_int_equal(nvme_sim_open(&fixture, "lba=256", &fixture.disk), -EOPNOTSUPP);
	assert_int_equal(nvme_sim_open(&fixture, "lba=512,ms=8", &fixture.disk), -EOPNOTSUPP);
	assert_int_equal(nvme_sim_open(&fixture, "lba=x", &fixture.disk), -EINVAL);
	assert_int_equal(nvme_sim_open(&fixture, "what=1", &fixture.disk), -EINVAL);
	assert_int_equal(nvme_sim_open(&fixture, "lba=512", &fixture.disk), 0);
	assert_int_equal(nvme_sim_open(&fixture, "lba=512", &second), -EBUSY);
	disk_close(fixture.disk);
	fixture_end(&fixture);
	fixture_init(&fixture, 0);
	assert_int_equal(nvme_sim_open(&fixture, "lba=512", &fixture.disk), -EOPNOTSUPP);
	fixture_end(&fixture);
	/* A character device that is not an NVMe namespace, and a path that is not a device. */
	assert_int_equal(disk_open(&(struct disk_opts){.path = "/dev/null"}, &second), -EINVAL);
	assert_int_equal(disk_open(&(struct disk_opts){.path = "/"}, &second), -EINVAL);
	assert_int_equal(disk_open(&(struct disk_opts){.path = "/nowhere"}, &second), -ENOENT);
}

static void test_controllers_may_say_anything(void **state)
{
	struct nvme nvme = {0};
	struct disk *disk = (struct disk *)calloc(1, sizeof(*disk));
	uint8_t controller[NVME_IDENTIFY_BYTES], space[NVME_IDENTIFY_BYTES];
	struct prng prng;
	uint32_t taken = 0;

	(void)state;
	assert_non_null(disk);
	disk->magic = DISK_MAGIC;
	disk->ops = &DISK_NVME_OPS;
	disk->nvme = &nvme;
	prng_seed(&prng, 11);
	for (uint32_t i = 0; i < 20000; i++) {
		prng_fill(&prng, controller, sizeof(controller));
		prng_fill(&prng, space, sizeof(space));
		if (i % 2) { /* half of them are nearly valid */
			memset(&space[128], 0, 256);
			for (uint32_t f = 0; f < 64; f++)
				space[130 + f * 4] = (uint8_t)(9 + prng_next(&prng) % 5);
			memset(&space[4], 0, 4);
			space[99] = 0;
		}
		nvme.transfer_bytes_max = 0;
		if (nvme_identified(disk, controller, space))
			continue;
		taken++;
		assert_in_range(nvme.lba_shift, 9, 12);
		assert_in_range(nvme.transfer_bytes_max, 4096, NVME_TRANSFER_BYTES_MAX);
		assert_int_equal(nvme.transfer_bytes_max % 4096, 0);
		assert_true(disk_bytes(disk) <= nvme.lba_count << nvme.lba_shift);
	}
	assert_in_range(taken, 1000, 19000);
	free(disk);
}

/* ---- A block device. ---- */

/* Attaches a free loop device to the fixture's file; -1: not permitted. */
static int loop_attach(const struct fixture *fixture, char *path, size_t path_cap)
{
	int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	int number, loop, fd = -1;

	if (control < 0)
		return -1;
	for (uint32_t tries = 0; tries < 8; tries++) {
		number = ioctl(control, LOOP_CTL_GET_FREE);
		snprintf(path, path_cap, "/dev/loop%d", number);
		loop = number < 0 ? -1 : open(path, O_RDWR | O_CLOEXEC);
		fd = loop < 0 ? -1 : open(fixture->medium.path, O_RDWR | O_CLOEXEC);
		if (fd >= 0 && ioctl(loop, LOOP_SET_FD, fd) == 0) {
			close(fd);
			close(control);
			return loop;
		}
		if (fd >= 0)
			close(fd);
		if (loop >= 0)
			close(loop);
	}
	close(control);
	return -1;
}

static void test_block_device(void **state)
{
	struct fixture fixture;
	struct disk *second;
	char path[64];
	int loop;

	(void)state;
	fixture_init(&fixture, MEDIUM_BYTES + 4096);
	loop = loop_attach(&fixture, path, sizeof(path));
	if (loop < 0) {
		fixture_end(&fixture);
		skip();
	}
	assert_int_equal(disk_open(&(struct disk_opts){.path = path}, &fixture.disk), 0);
	assert_int_equal(disk_kind(fixture.disk), DISK_BLOCK);
	assert_int_equal(disk_bytes(fixture.disk), MEDIUM_BYTES);
	assert_int_equal(disk_medium_bytes(fixture.disk), MEDIUM_BYTES + 4096);
	assert_int_equal(disk_open(&(struct disk_opts){.path = path}, &second), -EBUSY);
	assert_int_equal(disk_grow(fixture.disk, MEDIUM_BYTES + 1), -ENOSPC);
	reactor_with(&fixture, transfers_fiber);
	assert_int_equal(
		disk_open(&(struct disk_opts){.path = path, .bytes_min = GIB}, &second), -ENOSPC);
	ioctl(loop, LOOP_CLR_FD, 0);
	close(loop);
	fixture_end(&fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nvme_splits_and_gathers),
		cmocka_unit_test(test_nvme_transfers_of_every_form_are_done),
		cmocka_unit_test(test_nvme_without_deallocate),
		cmocka_unit_test(test_an_array_discards_where_it_can),
		cmocka_unit_test(test_nvme_statuses_end_operations),
		cmocka_unit_test(test_nvme_passing_statuses_pass),
		cmocka_unit_test(test_nvme_status_names),
		cmocka_unit_test(test_nvme_refuses_what_it_cannot_use),
		cmocka_unit_test(test_controllers_may_say_anything),
		cmocka_unit_test(test_block_device),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
