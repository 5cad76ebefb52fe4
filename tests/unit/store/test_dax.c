/* tests/unit/store/test_dax.c: a store whose log is in persistent memory, and the power fails at
 * any line of 64 bytes, many times: of the words that were not fenced some are there. After each
 * time every acknowledged object is there and intact, and fsck is clean.
 *
 * The parent only forks: a process that has had RocksDB open cannot fork a working one. */
#include "rig.h"

#include "disk/disk_dax.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEYS   24u
#define FIBERS 3u
#define ROUNDS 6u
#define STEP   (16 * MIB)

struct shared {
	uint64_t acked[KEYS], intended[KEYS];
	uint64_t acks;
};

static struct rig rig;
static struct shared *shared;
static char memory[600]; /* the file that stands for it */
static char volume[1400];

static uint64_t bytes_of(uint64_t seed)
{
	static const uint64_t SIZES[] = {100, 2048, 4096, 20000, 65536, 70000, 1300000};

	return SIZES[seed % ARRAY_LEN(SIZES)];
}

static struct slice key_of(char buf[16], uint32_t key)
{
	snprintf(buf, 16, "k%02u", key);
	return slice_str(buf);
}

static void writer_run(struct rig *arg_rig, void *arg)
{
	uint32_t idx = *(uint32_t *)arg;
	char buf[16];

	for (uint32_t i = idx;; i = (i + FIBERS) % KEYS) {
		uint64_t seed = ++shared->intended[i] * KEYS + i;

		assert_int_equal(
			object_put_seeded(arg_rig, "b", key_of(buf, i), bytes_of(seed), seed, NULL),
			0);
		shared->acked[i] = shared->intended[i];
		shared->acks++;
	}
}

static void load_run(struct rig *arg_rig, void *arg)
{
	uint32_t idx[FIBERS] = {0, 1, 2};

	(void)arg;
	(void)bucket_make(arg_rig->store, "b");
	rig_fibers(arg_rig, FIBERS, writer_run, idx, sizeof(idx[0]));
}

static void verify_run(struct rig *arg_rig, void *arg)
{
	char buf[16];

	(void)arg;
	for (uint32_t i = 0; i < KEYS; i++) {
		int ret = -ENOENT;

		for (uint64_t at = shared->acked[i]; at <= shared->intended[i] && ret; at++) {
			uint64_t seed = at * KEYS + i;

			if (at)
				ret = object_verify_seeded(
					arg_rig, "b", key_of(buf, i), bytes_of(seed), seed);
			else
				ret = object_verify_seeded(arg_rig, "b", key_of(buf, i), 0, 0) ==
						      -ENOENT
					      ? 0
					      : -EBADMSG;
			if (!ret)
				shared->acked[i] = shared->intended[i] = at;
		}
		if (ret)
			_exit(3);
	}
}

static int child(const char *power, rig_fn *fn)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		log_set_level(LOG_ERROR);
		disk_dax_simulate(power);
		rig_run(&rig, fn, NULL);
		if (rig.open_result)
			_exit(6);
		rig_fsck(&rig);
		_exit(0);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The memory's contents become what the power failure left. */
static void power_returns(void)
{
	static uint8_t piece[MIB];
	char left[620];
	int from, to;
	uint64_t bytes = 0;
	ssize_t count;

	snprintf(left, sizeof(left), "%s.durable", memory);
	from = open(left, O_RDONLY);
	to = open(memory, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(from >= 0 && to >= 0);
	while ((count = read(from, piece, sizeof(piece))) > 0) {
		assert_int_equal(write(to, piece, (size_t)count), count);
		bytes += (uint64_t)count;
	}
	/* A file's length is the file system's, which was told at once. */
	assert_int_equal(ftruncate(to, (off_t)ALIGN_UP(bytes, STEP)), 0);
	close(from);
	close(to);
}

static void rounds_run(void)
{
	struct prng prng;
	char power[64];

	prng_seed(&prng, 11);
	for (uint32_t round = 0; round < ROUNDS; round++) {
		uint64_t acks = shared->acks;

		/* The first round makes the store, which begins with the superblock. */
		snprintf(power, sizeof(power), "seed=%u,lines=%llu,exit", round,
			(unsigned long long)(round ? 1 + prng_below(&prng, 40000) : 60000));
		assert_int_equal(child(power, load_run), DISK_DAX_EXIT);
		assert_true(round || shared->acks > acks);
		power_returns();
		assert_int_equal(child("seed=1", verify_run), 0);
		power_returns();
	}
}

static void begin(bool apart)
{
	rig_init(&rig, 1);
	shared = (struct shared *)mmap(
		NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(shared != MAP_FAILED);
	snprintf(memory, sizeof(memory), "%s/memory", rig.dir);
	if (apart)
		snprintf(
			volume, sizeof(volume), "log://dax://%s?bodies=%s/bodies", memory, rig.dir);
	else
		snprintf(volume, sizeof(volume), "dax://%s", memory);
	rig.opts.volume = volume;
}

static void end(void)
{
	rig_dir_remove(&rig);
	munmap(shared, sizeof(*shared));
}

static void test_log_and_bodies(void **state)
{
	(void)state;
	begin(false);
	rounds_run();
	end();
}

static void test_log_apart(void **state)
{
	(void)state;
	begin(true);
	rounds_run();
	end();
}

/* ---- What a put flushes. ---- */

static void flushes_visit(const struct counter *counter, void *arg)
{
	if (strcmp(counter->name, "nebulaio_disk_flushes_total") == 0)
		*(uint64_t *)arg += counter_read(counter);
}

/* The number of flushes that the put of a body takes. */
static uint64_t flushes_of(struct rig *arg_rig, const char *key, uint64_t bytes)
{
	uint64_t before = 0, after = 0;

	counter_visit(flushes_visit, &before);
	assert_int_equal(object_put_seeded(arg_rig, "b", slice_str(key), bytes, 1, NULL), 0);
	counter_visit(flushes_visit, &after);
	return after - before;
}

/* A group whose writes are all of the log flushes nothing else. */
static void flushes_run(struct rig *arg_rig, void *arg)
{
	uint64_t in_log;

	(void)arg;
	(void)bucket_make(arg_rig->store, "b");
	in_log = flushes_of(arg_rig, "in the log", 100);
	if (flushes_of(arg_rig, "own", MIB) != in_log + 1 ||
		flushes_of(arg_rig, "own and large", 5 * MIB) != in_log + 1 ||
		flushes_of(arg_rig, "with its group", 20000) != in_log)
		_exit(4);
}

static void test_a_body_of_its_own_is_flushed(void **state)
{
	(void)state;
	begin(true);
	assert_int_equal(child("seed=1", flushes_run), 0);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_log_and_bodies),
		cmocka_unit_test(test_log_apart),
		cmocka_unit_test(test_a_body_of_its_own_is_flushed),
	};

	return cmocka_run_group_tests_name("dax", tests, NULL, NULL);
}
