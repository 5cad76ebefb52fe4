/* tests/unit/rados/test_rados.c: volumes in RADOS over a stand-in for librados: which bytes are in
 * which object of which pool, failures, the owner. */
#include "../unit.h"
#include "fake.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/life.h"
#include "disk/disk.h"
#include "rados/rados.h"
#include "rados/rv_priv.h"

#define OBJECT	    (4 * MIB)
#define FRONT	    (8 * MIB)
#define PATH	    "rados://front/box?data=body"
#define OWNER_DEAD  "1 v2:10.0.0.9:0/5 far %s %s 4294967295 7 cookie"
#define OWNER_BYTES 600u

static uint32_t lost_told;

/* The record of an owner of this host that has ended. */
static void owner_dead(char ret_record[OWNER_BYTES])
{
	char boot[48] = "", pids[48] = "";
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

	assert_non_null(file);
	assert_int_equal(fscanf(file, "%47s", boot), 1);
	fclose(file);
	assert_true(readlink("/proc/self/ns/pid", pids, sizeof(pids) - 1) > 0);
	snprintf(ret_record, OWNER_BYTES, OWNER_DEAD, boot, pids);
}

static void lost(void *arg)
{
	(void)arg;
	lost_told++;
}

static struct rv *driver_open_as(bool standby)
{
	const struct rv_opts opts = {.conf_file = "",
		.user = "",
		.front_bytes = FRONT - MIB,
		.lease_s = 3600,
		.standby = standby,
		.lost = lost};
	struct rv *rv;

	lost_told = 0;
	fake_reset();
	assert_int_equal(rv_open(&opts, &rv), 0);
	return rv;
}

static struct rv *driver_open(void)
{
	return driver_open_as(false);
}

static int volume_try(const char *path, bool create, bool read_only, struct disk **ret_disk)
{
	const struct disk_opts opts = {
		.path = path, .create = create, .read_only = read_only, .bytes_min = 0};

	return disk_open(&opts, ret_disk);
}

static uint8_t *pattern(size_t bytes)
{
	uint8_t *data = (uint8_t *)aligned_alloc(4096, bytes);

	for (size_t i = 0; i < bytes; i++)
		data[i] = (uint8_t)(i * 7 + i / 4096);
	return data;
}

static void test_lies_in_objects(void **state)
{
	struct rv *rv = driver_open();
	uint8_t *data = pattern(16 * MIB), *back = (uint8_t *)aligned_alloc(4096, 16 * MIB);
	struct fake_object *object;
	struct disk *disk;

	(void)state;
	assert_int_equal(volume_try(PATH, false, false, &disk), -ENOENT);
	assert_int_equal(volume_try(PATH, true, false, &disk), 0);
	assert_int_equal(disk_bytes(disk), 0);
	assert_int_equal(disk_grow(disk, 15 * MIB), 0);
	assert_int_equal(disk_bytes(disk), 16 * MIB);
	assert_int_equal(disk_read_now(disk, back, 16 * MIB, 0), 0);
	for (size_t i = 0; i < 16 * MIB; i++)
		assert_int_equal(back[i], 0);
	/* Over the end of the first pool's part. */
	assert_int_equal(disk_write_now(disk, data, 6 * MIB, 6 * MIB), 0);
	object = fake_find(0, "box", "0000000000000001");
	assert_non_null(object);
	assert_int_equal(object->bytes, OBJECT);
	assert_memory_equal(object->data + 2 * MIB, data, 2 * MIB);
	assert_null(fake_find(0, "box", "0000000000000002"));
	object = fake_find(1, "box", "0000000000000002");
	assert_non_null(object);
	assert_memory_equal(object->data, data + 2 * MIB, OBJECT);
	assert_null(fake_find(0, "box", "0000000000000000"));
	assert_int_equal(disk_read_now(disk, back, 6 * MIB, 6 * MIB), 0);
	assert_memory_equal(back, data, 6 * MIB);
	/* Whole objects go, parts become zeros. */
	assert_int_equal(disk_zero_now(disk, 5 * MIB, 7 * MIB), 0);
	assert_null(fake_find(1, "box", "0000000000000002"));
	assert_int_equal(disk_read_now(disk, back, 6 * MIB, 6 * MIB), 0);
	assert_memory_equal(back, data, MIB);
	for (size_t i = MIB; i < 6 * MIB; i++)
		assert_int_equal(back[i], 0);
	assert_int_equal(disk_read_now(disk, back, 4096, 16 * MIB), -EIO);
	assert_int_equal(disk_flush_now(disk), 0);
	disk_close(disk);
	assert_false(fake.locked);
	assert_string_equal(fake_attr(fake_find(0, "box", "head"), "owner"), "-");
	/* Again: what is there is kept, and the path need not name the second pool. */
	assert_int_equal(volume_try("rados://front/box", false, false, &disk), 0);
	assert_int_equal(disk_bytes(disk), 16 * MIB);
	assert_int_equal(disk_read_now(disk, back, MIB, 6 * MIB), 0);
	assert_memory_equal(back, data, MIB);
	disk_close(disk);
	rv_close(rv);
	free(data);
	free(back);
}

static void test_paths(void **state)
{
	static const struct {
		const char *path;
		int ret;
	} CASES[] = {
		{"rados://", -EINVAL},
		{"rados://front", -EINVAL},
		{"rados://front/", -EINVAL},
		{"rados://front/a/b", -EINVAL},
		{"rados://front/a b", -EINVAL},
		{"rados://front/a?size=1", -EINVAL},
		{"rados://front/a?data=", -EINVAL},
		{"rados://-front/a", -EINVAL},
		{"rados://front/"
		 "a123456789a123456789a123456789a123456789a123456789a123456789a123456789",
			-EINVAL},
		{"rados://nowhere/a", -ENODEV},
		{"rados://front/a?data=nowhere", -ENODEV},
		{"rados://front/a?data=body", 0},
		{"rados://front/a?data=front", 0},
	};
	struct rv *rv = driver_open();
	struct disk *disk;

	(void)state;
	for (uint32_t i = 0; i < ARRAY_LEN(CASES); i++) {
		int ret = volume_try(CASES[i].path, true, false, &disk);

		if (ret != CASES[i].ret)
			fail_msg("%s: %d", CASES[i].path, ret);
		if (!ret)
			disk_close(disk);
	}
	/* Its pool of bodies cannot change. */
	assert_int_equal(volume_try("rados://front/a?data=other", false, false, &disk), -EINVAL);
	fake.whole = true;
	assert_int_equal(volume_try("rados://front/b", true, false, &disk), -EOPNOTSUPP);
	fake.whole = false;
	rv_close(rv);
}

static void test_foreign_objects_are_kept(void **state)
{
	struct rv *rv = driver_open();
	struct disk *disk;

	(void)state;
	fake_make(1, "box", "something");
	assert_int_equal(volume_try(PATH, true, false, &disk), -EUCLEAN);
	assert_null(fake_find(0, "box", "head"));
	fake_make(0, "other", "head");
	assert_int_equal(volume_try("rados://front/other", true, false, &disk), -EUCLEAN);
	fake_attr_set(fake_find(0, "other", "head"), "layout", "2 1 1 -", 7);
	assert_int_equal(volume_try("rados://front/other", true, false, &disk), -EUCLEAN);
	rv_close(rv);
}

static void test_owner(void **state)
{
	struct rv *rv = driver_open();
	char here[OWNER_BYTES];
	struct disk *disk, *second;
	struct fake_object *head;

	(void)state;
	assert_int_equal(volume_try(PATH, true, false, &disk), 0);
	head = fake_find(0, "box", "head");
	assert_true(fake.locked);
	assert_int_equal(strncmp(fake_attr(head, "owner"), "1 [v2:10.0.0.1:0/7,", 19), 0);
	assert_string_equal(fake.blocklisted, "");
	assert_int_equal(fake.waits, 1);
	/* The owner lives: refused at once, without waiting. */
	assert_int_equal(volume_try(PATH, true, false, &second), -EBUSY);
	/* Reading needs no ownership. */
	assert_int_equal(volume_try(PATH, false, true, &second), 0);
	disk_close(second);
	disk_close(disk);
	/* The lock has run out, but the owner did not give the volume up: it is fenced first. */
	fake_attr_set(head, "owner", "1 v2:10.0.0.9:0/5 far b p 9 7 c", 31);
	fake_attr_set(head, "life", "4 1", 3);
	assert_int_equal(volume_try(PATH, true, false, &disk), 0);
	assert_string_equal(fake.blocklisted, "10.0.0.9:0/5");
	assert_int_equal(fake.waits, 2);
	disk_close(disk);
	/* An owner of this host that has ended: without waiting for the lock, or for its life. */
	fake_attr_set(head, "life", "4 3600000", 9);
	owner_dead(here);
	fake_attr_set(head, "owner", here, strlen(here));
	fake.locked = true;
	snprintf(fake.lock_cookie, sizeof(fake.lock_cookie), "cookie");
	fake.blocklisted[0] = '\0';
	assert_int_equal(volume_try(PATH, true, false, &disk), 0);
	assert_string_equal(fake.blocklisted, "10.0.0.9:0/5");
	/* Another server's record: the length is not changed any more, and that is told. */
	fake_attr_set(head, "owner", "1 v2:10.0.0.9:0/6 far b p 9 7 c", 31);
	assert_int_equal(disk_grow(disk, MIB), -EIO);
	assert_int_equal(lost_told, 1);
	assert_int_equal(disk_write_now(disk, here, 512, 0), -EIO);
	disk_close(disk);
	/* A server that lost it leaves the record as it is. */
	assert_string_equal(fake_attr(head, "owner"), "1 v2:10.0.0.9:0/6 far b p 9 7 c");
	rv_close(rv);
}

static void another_takes(void)
{
	struct fake_object *head = fake_find(0, "box", "head");

	fake_attr_set(head, "owner", "1 v2:10.0.0.9:0/8 far b p 9 7 d", 31);
	fake_attr_set(head, "life", "1 1", 3);
}

/* Between the fence and our record another server becomes the owner: it is fenced, too, before it
 * is replaced. And its lock is not ended in the place of the dead owner's. */
static void test_takers_race(void **state)
{
	struct rv *rv = driver_open();
	char here[OWNER_BYTES];
	struct fake_object *head;
	struct disk *disk;

	(void)state;
	assert_int_equal(volume_try(PATH, true, false, &disk), 0);
	disk_close(disk);
	head = fake_find(0, "box", "head");
	fake_attr_set(head, "owner", "1 v2:10.0.0.9:0/5 far b p 9 7 c", 31);
	fake_attr_set(head, "life", "4 1", 3);
	fake.on_blocklist = another_takes;
	assert_int_equal(volume_try(PATH, true, false, &disk), 0);
	assert_string_equal(fake.blocklisted, "10.0.0.9:0/8");
	disk_close(disk);
	owner_dead(here);
	fake_attr_set(head, "owner", here, strlen(here));
	fake.locked = true;
	snprintf(fake.lock_cookie, sizeof(fake.lock_cookie), "another");
	assert_int_equal(volume_try(PATH, true, false, &disk), -EBUSY);
	assert_string_equal(fake.lock_cookie, "another");
	assert_true(fake.locked);
	rv_close(rv);
}

/* A standby blocks the signals that end it, and looks for them while it waits. */
static void test_signal_ends_wait(void **state)
{
	struct rv *rv = driver_open_as(true);
	struct disk *disk, *second;
	sigset_t signals, before;

	(void)state;
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	assert_int_equal(sigprocmask(SIG_BLOCK, &signals, &before), 0);
	assert_int_equal(volume_try(PATH, true, false, &disk), 0);
	assert_int_equal(kill(getpid(), SIGTERM), 0);
	assert_int_equal(volume_try(PATH, true, false, &second), -ECANCELED);
	disk_close(disk);
	/* Also while the cluster does not answer. */
	fake.fail_lock = -ETIMEDOUT;
	fake.fail_locks = 3;
	assert_int_equal(volume_try(PATH, true, false, &disk), -ECANCELED);
	assert_int_equal(fake.fail_locks, 2);
	assert_int_equal(sigwaitinfo(&signals, NULL), SIGTERM);
	assert_int_equal(sigprocmask(SIG_SETMASK, &before, NULL), 0);
	rv_close(rv);
}

/* A taker answers nothing while the former owner may. */
static void test_life(void **state)
{
	struct rv *rv = driver_open();
	struct fake_object *head;
	struct disk *disk;
	uint64_t begun_ns;

	(void)state;
	assert_int_equal(volume_try(PATH, true, false, &disk), 0);
	head = fake_find(0, "box", "head");
	assert_string_equal(fake_attr(head, "life"), "1 3600000");
	assert_true(life_holds());
	assert_true(life_left_ns() <= 2700 * NS_PER_S && life_left_ns() > 2000 * NS_PER_S);
	disk_close(disk);
	assert_int_equal(life_left_ns(), LIFE_FOREVER);
	/* Another host's owner: its life counts from when we first see its last renewal. */
	fake_attr_set(head, "owner", "1 v2:10.0.0.9:0/5 far b p 9 7 c", 31);
	fake_attr_set(head, "life", "7 60", 4);
	begun_ns = clock_boot_ns();
	assert_int_equal(volume_try(PATH, true, false, &disk), 0);
	assert_true(clock_boot_ns() - begun_ns >= 60 * NS_PER_MS);
	/* It renewed when the wait was over. */
	assert_string_equal(fake_attr(head, "life"), "1 3600000");
	disk_close(disk);
	/* A text that no server writes. */
	fake_attr_set(head, "owner", "1 v2:10.0.0.9:0/5 far b p 9 7 c", 31);
	fake_attr_set(head, "life", "7 3600001", 9);
	assert_int_equal(volume_try(PATH, true, false, &disk), -EUCLEAN);
	fake.locked = false;
	fake_attr_set(head, "life", "later", 5);
	assert_int_equal(volume_try(PATH, true, false, &disk), -EUCLEAN);
	rv_close(rv);
}

/* An owner of this host that has ended before it had answered anything: the one before it may still
 * answer. */
static void test_life_of_two(void **state)
{
	struct rv *rv = driver_open();
	char here[OWNER_BYTES];
	struct fake_object *head;
	struct disk *disk;
	uint64_t begun_ns;

	(void)state;
	owner_dead(here);
	assert_int_equal(volume_try(PATH, true, false, &disk), 0);
	disk_close(disk);
	head = fake_find(0, "box", "head");
	fake_attr_set(head, "owner", here, strlen(here));
	fake_attr_set(head, "life", "0 60", 4);
	begun_ns = clock_boot_ns();
	assert_int_equal(volume_try(PATH, true, false, &disk), 0);
	assert_true(clock_boot_ns() - begun_ns >= 60 * NS_PER_MS);
	disk_close(disk);
	rv_close(rv);
}

/* The renewal finds another server's record: nothing is answered any more. */
static void test_life_lost(void **state)
{
	struct rv *rv = driver_open();
	struct disk *disk;

	(void)state;
	assert_int_equal(volume_try(PATH, true, false, &disk), 0);
	assert_true(life_holds());
	fake_attr_set(fake_find(0, "box", "head"), "owner", "1 v2:10.0.0.9:0/6 far b p 9 7 c", 31);
	assert_int_equal(disk_grow(disk, MIB), -EIO);
	assert_int_equal(lost_told, 1);
	assert_false(life_holds());
	assert_int_equal(life_left_ns(), 0);
	disk_close(disk);
	assert_true(life_holds());
	rv_close(rv);
}

static void test_failures(void **state)
{
	struct rv *rv = driver_open();
	uint8_t *data = pattern(MIB);
	struct disk *disk;

	(void)state;
	assert_int_equal(volume_try(PATH, true, false, &disk), 0);
	assert_int_equal(disk_grow(disk, 16 * MIB), 0);
	fake.fail = -EIO;
	assert_int_equal(disk_read_now(disk, data, MIB, 0), -EIO);
	assert_int_equal(disk_write_now(disk, data, MIB, 0), -EIO);
	assert_false(disk_gone(disk));
	fake.fail = -ETIMEDOUT;
	assert_int_equal(disk_read_now(disk, data, MIB, 0), -EHOSTDOWN);
	assert_false(disk_gone(disk));
	assert_int_equal(disk_write_now(disk, data, MIB, 0), -EHOSTDOWN);
	assert_true(disk_gone(disk));
	assert_true(disk_resumes(disk));
	/* The same object is tried before it counts as back. */
	snprintf(fake.fail_oid, sizeof(fake.fail_oid), "0000000000000000");
	assert_int_equal(disk_revive(disk), -ENOTCONN);
	assert_true(disk_gone(disk));
	fake.fail = 0;
	assert_int_equal(disk_revive(disk), 0);
	assert_false(disk_gone(disk));
	assert_int_equal(disk_write_now(disk, data, MIB, 0), 0);
	/* Refused for good. */
	fake.fail = -ESHUTDOWN;
	assert_int_equal(disk_write_now(disk, data, MIB, 0), -EIO);
	assert_int_equal(lost_told, 1);
	fake.fail = 0;
	assert_int_equal(disk_write_now(disk, data, MIB, 0), -EIO);
	disk_close(disk);
	fake.unconnected = true;
	rv_close(rv);
	free(data);
}

/* ---- On a reactor. ---- */

struct bench {
	struct reactor *reactor;
	struct region *region;
	struct disk *disk;
};

static int32_t run(struct disk *disk, enum disk_op op, struct iovec *iov, uint32_t count,
	uint64_t offset, uint64_t bytes)
{
	struct iovec copy[64];
	struct disk_io io = {
		.op = op, .iov = copy, .iov_count = count, .offset = offset, .bytes = bytes};

	for (uint32_t i = 0; i < count; i++)
		copy[i] = iov[i];
	return disk_run(disk, &io);
}

static void vectors(struct disk *disk)
{
	uint8_t *data = pattern(12 * MIB), *back = (uint8_t *)aligned_alloc(4096, 12 * MIB);
	struct iovec out[3] = {
		{data, 3 * MIB}, {data + 3 * MIB, 4096}, {data + 3 * MIB + 4096, 2 * MIB}};
	struct iovec in[2] = {{back, MIB}, {back + MIB, 4 * MIB + 4096}};
	struct iovec all = {data, 12 * MIB}, whole = {back, 12 * MIB};

	/* Five MiB and a block from the middle of an object on. */
	assert_int_equal(run(disk, DISK_WRITE, out, 3, 3 * MIB, 0), 5 * MIB + 4096);
	assert_int_equal(fake_find(0, "box", "0000000000000001")->bytes, OBJECT);
	assert_int_equal(fake_find(1, "box", "0000000000000002")->bytes, 4096);
	assert_int_equal(run(disk, DISK_READ, in, 2, 3 * MIB, 0), 5 * MIB + 4096);
	assert_memory_equal(back, data, 5 * MIB + 4096);
	assert_int_equal(run(disk, DISK_FLUSH, NULL, 0, 0, 0), 0);
	assert_int_equal(run(disk, DISK_WRITE, &all, 1, 0, 0), 12 * MIB);
	assert_int_equal(run(disk, DISK_DISCARD, NULL, 0, 4 * MIB, 4 * MIB + 8192), 4 * MIB + 8192);
	assert_null(fake_find(0, "box", "0000000000000001"));
	assert_int_equal(run(disk, DISK_DISCARD, NULL, 0, 4 * MIB, 4 * MIB), 4 * MIB);
	memset(data + 4 * MIB, 0, 4 * MIB + 8192);
	memset(back, 1, 12 * MIB);
	assert_int_equal(run(disk, DISK_READ, &whole, 1, 0, 0), 12 * MIB);
	assert_memory_equal(back, data, 12 * MIB);
	free(data);
	free(back);
}

static void completions_fail(struct disk *disk)
{
	uint8_t *data = pattern(12 * MIB);
	struct iovec all = {data, 12 * MIB};
	struct iovec small = {data, 4096};

	/* One of three objects. */
	snprintf(fake.fail_oid, sizeof(fake.fail_oid), "0000000000000001");
	fake.fail = -EIO;
	assert_int_equal(run(disk, DISK_READ, &all, 1, 0, 0), -EIO);
	assert_int_equal(run(disk, DISK_WRITE, &all, 1, 0, 0), -EIO);
	assert_false(disk_gone(disk));
	assert_int_equal(run(disk, DISK_WRITE, &small, 1, 8 * MIB, 0), 4096);
	fake.fail = -ENOSPC;
	assert_int_equal(run(disk, DISK_WRITE, &all, 1, 0, 0), -EHOSTDOWN);
	assert_true(disk_gone(disk));
	/* Nothing is written until it is revived; it can be read. */
	fake.writes = 0;
	assert_int_equal(run(disk, DISK_WRITE, &small, 1, 8 * MIB, 0), -EHOSTDOWN);
	assert_int_equal(fake.writes, 0);
	assert_int_equal(run(disk, DISK_READ, &small, 1, 8 * MIB, 0), 4096);
	assert_int_equal(disk_revive(disk), -ENOTCONN);
	fake.fail = 0;
	assert_int_equal(disk_revive(disk), 0);
	assert_int_equal(run(disk, DISK_WRITE, &all, 1, 0, 0), 12 * MIB);
	/* The call itself. */
	fake.fail_submit = -ENOMEM;
	assert_int_equal(run(disk, DISK_WRITE, &small, 1, 0, 0), -ENOMEM);
	assert_int_equal(run(disk, DISK_READ, &small, 1, 0, 0), -ENOMEM);
	fake.fail_submit = 0;
	fake.fail = -ESHUTDOWN;
	fake.fail_oid[0] = '\0';
	assert_int_equal(run(disk, DISK_WRITE, &small, 1, 0, 0), -EIO);
	assert_int_equal(lost_told, 1);
	fake.fail = 0;
	assert_int_equal(run(disk, DISK_WRITE, &small, 1, 0, 0), -EIO);
	free(data);
}

struct many {
	struct disk *disk;
	uint8_t *data;
	uint32_t left;
	struct fiber *waiter;
};

static void many_main(void *arg)
{
	struct many *many = (struct many *)arg;
	uint32_t n = --many->left;
	struct iovec iov = {many->data + (uint64_t)n * 4096, 4096};

	assert_int_equal(run(many->disk, DISK_WRITE, &iov, 1, (uint64_t)n * 4096, 0), 4096);
	if (many->left == 0 && many->waiter)
		fiber_wake(many->waiter);
}

/* More at once than there are pieces. */
static void many_at_once(struct disk *disk)
{
	struct many many = {.disk = disk, .data = pattern(MIB), .left = 200};
	uint8_t *back = (uint8_t *)aligned_alloc(4096, MIB);
	struct iovec iov = {back, 200 * 4096};

	memset(back, 0, MIB);
	for (uint32_t i = 0; i < 200; i++)
		assert_int_equal(fiber_spawn(reactor_self(), "many", many_main, &many), 0);
	many.waiter = fiber_self();
	while (memcmp(back, many.data, 200 * 4096) != 0) {
		fiber_yield();
		assert_int_equal(run(disk, DISK_READ, &iov, 1, 0, 0), 200 * 4096);
	}
	free(many.data);
	free(back);
}

static void bench_main(void *arg)
{
	struct bench *bench = (struct bench *)arg;

	vectors(bench->disk);
	many_at_once(bench->disk);
	completions_fail(bench->disk);
	reactor_stop(bench->reactor);
}

static void test_on_a_reactor(void **state)
{
	const struct region_opts region = {.name = "test", .bytes = 4 * MIB, .core_count = 1};
	const struct reactor_opts reactor = {.cpu = -1, .fiber_stack_bytes = 256 * KIB};
	struct rv *rv = driver_open();
	struct bench bench;

	(void)state;
	assert_int_equal(region_open(&region, &bench.region), 0);
	assert_int_equal(reactor_open(&reactor, &bench.reactor), 0);
	assert_int_equal(volume_try(PATH, true, false, &bench.disk), 0);
	assert_int_equal(disk_grow(bench.disk, 16 * MIB), 0);
	assert_int_equal(disk_attach(bench.disk, bench.reactor, bench.region), 0);
	assert_int_equal(fiber_spawn(bench.reactor, "test", bench_main, &bench), 0);
	reactor_run(bench.reactor);
	disk_close(bench.disk);
	reactor_close(bench.reactor);
	region_close(bench.region);
	rv_close(rv);
	fake_reset();
}

/* The lines that the attempt logs. */
static uint32_t lines_of_try(const char *path, int expected)
{
	enum log_level level = log_level_now;
	FILE *caught = tmpfile();
	int before = dup(STDERR_FILENO), byte;
	uint32_t lines = 0;
	struct disk *disk;

	assert_non_null(caught);
	fflush(stderr);
	assert_int_equal(dup2(fileno(caught), STDERR_FILENO), STDERR_FILENO);
	log_set_level(LOG_WARN);
	assert_int_equal(volume_try(path, true, false, &disk), expected);
	log_set_level(level);
	fflush(stderr);
	assert_int_equal(dup2(before, STDERR_FILENO), STDERR_FILENO);
	close(before);
	rewind(caught);
	while ((byte = fgetc(caught)) != EOF)
		lines += byte == '\n';
	fclose(caught);
	return lines;
}

static void test_a_failure_is_logged_once(void **state)
{
	struct rv *rv = driver_open();

	(void)state;
	fake.lacking = true;
	assert_int_equal(lines_of_try(PATH, -EOPNOTSUPP), 1);
	fake.lacking = false;
	fake.unconnected = true;
	assert_int_equal(lines_of_try(PATH, -ETIMEDOUT), 1);
	fake.unconnected = false;
	assert_int_equal(lines_of_try("rados://nowhere/a", -ENODEV), 1);
	assert_int_equal(lines_of_try("rados://front/a?data=nowhere", -ENODEV), 1);
	fake.whole = true;
	assert_int_equal(lines_of_try(PATH, -EOPNOTSUPP), 1);
	fake.whole = false;
	fake.fail_lock = -ETIMEDOUT;
	assert_int_equal(lines_of_try(PATH, -ETIMEDOUT), 1);
	rv_close(rv);
	fake_reset();
}

static void test_no_cluster(void **state)
{
	const struct rv_opts opts = {.conf_file = "/nowhere", .user = "x"};
	struct disk *disk;
	struct rv *rv = driver_open();

	(void)state;
	fake.unconnected = true;
	assert_int_equal(volume_try(PATH, true, false, &disk), -ETIMEDOUT);
	fake.unconnected = false;
	fake.fail_lock = -ETIMEDOUT;
	assert_int_equal(volume_try(PATH, true, false, &disk), -ETIMEDOUT);
	rv_close(rv);
	assert_int_equal(rv_open(&opts, &rv), 0);
	/* It is not the volume that is not there. */
	assert_int_equal(volume_try(PATH, true, false, &disk), -ENODEV);
	rv_close(rv);
	rv_close(NULL);
	fake_reset();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lies_in_objects),
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_foreign_objects_are_kept),
		cmocka_unit_test(test_owner),
		cmocka_unit_test(test_takers_race),
		cmocka_unit_test(test_signal_ends_wait),
		cmocka_unit_test(test_life),
		cmocka_unit_test(test_life_of_two),
		cmocka_unit_test(test_life_lost),
		cmocka_unit_test(test_failures),
		cmocka_unit_test(test_on_a_reactor),
		cmocka_unit_test(test_a_failure_is_logged_once),
		cmocka_unit_test(test_no_cluster),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
