/* tests/unit/remote/test_remote.c: a target on its own thread and an initiator in the same
 * process, over the simulated device: a volume's operations, its refusals, its loss and return. */
#include "target_rig.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- The other end. ---- */

static void stale_heard(void *arg)
{
	atomic_fetch_add((_Atomic uint32_t *)arg, 1);
}

static _Atomic uint32_t stale_count;

static struct remote *owner_open(const char *secret, uint64_t epoch)
{
	const struct remote_opts opts = {.device = {.device_name = "simulated", .gid_index = -1},
		.secret = secret,
		.epoch = epoch,
		.stale = stale_heard,
		.stale_arg = &stale_count,
		.setup_ns = SETUP_NS};
	struct remote *remote;

	assert_int_equal(remote_initiator_open(&opts, &remote), 0);
	return remote;
}

static struct remote *initiator_open(const char *secret)
{
	return owner_open(secret, 0);
}

static int volume_open(const struct target *target, const char *name, struct disk **ret_disk)
{
	char path[128];
	struct disk_opts opts = {.path = path};

	snprintf(path, sizeof(path), "rdma://127.0.0.1:%u/%s", target->port, name);
	return disk_open(&opts, ret_disk);
}

static void setup(struct target *target)
{
	int fd;

	snprintf(target->path, sizeof(target->path), "/tmp/remote-XXXXXX");
	fd = mkstemp(target->path);
	assert_true(fd >= 0);
	close(fd);
	target_start(target, 0);
}

static void teardown(struct target *target)
{
	target_end(target);
	unlink(target->path);
}

static uint8_t *memory(size_t bytes, uint8_t fill)
{
	void *data = NULL;

	assert_int_equal(posix_memalign(&data, 4096, bytes), 0);
	memset(data, fill, bytes);
	return data;
}

/* ---- Blocking calls. ---- */

static void bytes_come_back(void **state)
{
	struct target target = {0};
	struct remote *remote = initiator_open(SECRET);
	uint8_t *out = memory(3 * MIB, 0x5a), *in = memory(3 * MIB, 0);
	struct disk *disk;

	(void)state;
	setup(&target);
	assert_int_equal(volume_open(&target, "shard", &disk), 0);
	assert_int_equal(disk_bytes(disk), BYTES);
	assert_true(disk_can_grow(disk));
	/* More than the maximum of one transfer. */
	assert_int_equal(disk_write_now(disk, out, 3 * MIB, 4096), 0);
	assert_int_equal(disk_flush_now(disk), 0);
	assert_int_equal(disk_read_now(disk, in, 3 * MIB, 4096), 0);
	assert_memory_equal(in, out, 3 * MIB);
	assert_int_equal(disk_read_now(target.disk, in, MIB, 4096), 0);
	assert_memory_equal(in, out, MIB);
	assert_int_equal(disk_zero_now(disk, MIB, 4096), 0);
	assert_int_equal(disk_read_now(disk, in, MIB, 4096), 0);
	for (size_t i = 0; i < MIB; i++)
		assert_int_equal(in[i], 0);
	assert_int_equal(disk_grow(disk, 2 * BYTES), 0);
	assert_int_equal(disk_bytes(disk), 2 * BYTES);
	assert_int_equal(disk_read_now(disk, in, 4096, 2 * BYTES), -ERANGE);
	assert_int_equal(disk_write_now(disk, out, 4096, 1), -EINVAL);
	disk_close(disk);
	remote_initiator_close(remote);
	teardown(&target);
	free(out);
	free(in);
}

static void a_volume_leaves_the_reserve_free(void **state)
{
	struct target target = {.reserve_bytes = UINT64_MAX};
	struct remote *remote = initiator_open(SECRET);
	uint8_t *out = memory(4096, 0x5a);
	struct disk *disk;

	(void)state;
	setup(&target);
	assert_int_equal(volume_open(&target, "shard", &disk), 0);
	assert_int_equal(disk_grow(disk, 2 * BYTES), -ENOSPC);
	assert_int_equal(disk_bytes(disk), BYTES);
	assert_int_equal(disk_bytes(target.disk), BYTES);
	/* The volume as it is can be used. */
	assert_int_equal(disk_write_now(disk, out, 4096, BYTES - 4096), 0);
	disk_close(disk);
	remote_initiator_close(remote);
	teardown(&target);
	free(out);
}

/* A volume in memory can only make zeros by writing them. */
static void zeros_are_written_where_they_cannot_be_made(void **state)
{
	struct target target = {0};
	struct remote *remote = initiator_open(SECRET);
	uint8_t *out = memory(3 * MIB, 0x5a), *in = memory(3 * MIB, 1);
	int fd = memfd_create("volume", MFD_CLOEXEC);
	struct disk *disk;

	(void)state;
	assert_true(fd >= 0);
	snprintf(target.path, sizeof(target.path), "/proc/self/fd/%d", fd);
	target_start(&target, 0);
	assert_int_equal(volume_open(&target, "shard", &disk), 0);
	assert_int_equal(disk_write_now(disk, out, 3 * MIB, 4096), 0);
	assert_int_equal(disk_zero_now(disk, 2 * MIB + 8192, 8192), 0);
	assert_int_equal(disk_read_now(disk, in, 3 * MIB, 4096), 0);
	for (size_t i = 0; i < 3 * MIB; i++)
		assert_int_equal(in[i], i < 4096 || i >= 2 * MIB + 12288 ? 0x5a : 0);
	disk_close(disk);
	remote_initiator_close(remote);
	target_end(&target);
	close(fd);
	free(out);
	free(in);
}

static void strangers_are_refused(void **state)
{
	struct target target = {0};
	struct remote *remote;
	struct disk *disk;

	(void)state;
	setup(&target);
	remote = initiator_open(SECRET "!");
	assert_int_equal(volume_open(&target, "shard", &disk), -EACCES);
	remote_initiator_close(remote);
	remote = initiator_open(SECRET);
	assert_int_equal(volume_open(&target, "other", &disk), -ENXIO);
	remote_initiator_close(remote);
	teardown(&target);
	remote = initiator_open(SECRET);
	assert_int_equal(volume_open(&target, "shard", &disk), -EHOSTUNREACH);
	remote_initiator_close(remote);
}

static void paths_are_checked(void **state)
{
	static const char *const BAD[] = {"rdma://", "rdma://host", "rdma://host/", "rdma:///name",
		"rdma://host:0/name", "rdma://host:65536/name", "rdma://host:x/name",
		"rdma://host/a/b", "rdma://[::1/name", "tcp://host/name"};
	struct remote *remote = initiator_open(SECRET);
	struct disk *disk;

	(void)state;
	for (size_t i = 0; i < sizeof(BAD) / sizeof(*BAD); i++) {
		struct disk_opts opts = {.path = BAD[i]};

		assert_int_equal(disk_open(&opts, &disk), -EINVAL);
	}
	remote_initiator_close(remote);
}

/* Devices take numeric addresses only; the resolver takes this one for a short form of 127.0.0.1.
 */
static void a_host_has_a_name(void **state)
{
	static const char *const HOSTS[] = {"127.1", "localhost"};
	struct target target = {0};
	struct remote *remote = initiator_open(SECRET);

	(void)state;
	setup(&target);
	for (size_t i = 0; i < ARRAY_LEN(HOSTS); i++) {
		char path[128];
		struct disk_opts opts = {.path = path, .lock_wait_ns = 30 * NS_PER_S};
		struct disk *disk;

		snprintf(path, sizeof(path), "rdma://%s:%u/shard", HOSTS[i], target.port);
		assert_int_equal(disk_open(&opts, &disk), 0);
		disk_close(disk);
	}
	remote_initiator_close(remote);
	teardown(&target);
}

static void to_look_is_not_to_write(void **state)
{
	struct target target = {0};
	struct remote *remote = initiator_open(SECRET);
	uint8_t *data = memory(4096, 1);
	struct disk *disk, *look;
	char path[128];
	struct disk_opts opts = {.path = path, .read_only = true};

	(void)state;
	setup(&target);
	assert_int_equal(volume_open(&target, "shard", &disk), 0);
	snprintf(path, sizeof(path), "rdma://127.0.0.1:%u/shard", target.port);
	assert_int_equal(disk_open(&opts, &look), 0);
	assert_int_equal(disk_read_now(look, data, 4096, 0), 0);
	assert_int_equal(disk_write_now(look, data, 4096, 0), -EROFS);
	disk_close(look);
	/* The attempt did not take the volume from the current writer. */
	assert_int_equal(disk_write_now(disk, data, 4096, 0), 0);
	disk_close(disk);
	remote_initiator_close(remote);
	teardown(&target);
	free(data);
}

static void gone_stays_gone_until_revived(void **state)
{
	struct target target = {0};
	struct remote *remote = initiator_open(SECRET);
	uint8_t *data = memory(4096, 1);
	uint64_t deadline_ns;
	struct disk *disk;

	(void)state;
	setup(&target);
	assert_int_equal(volume_open(&target, "shard", &disk), 0);
	assert_false(disk_gone(disk));
	target_end(&target);
	assert_int_equal(disk_write_now(disk, data, 4096, 0), -ENOTCONN);
	assert_true(disk_gone(disk));
	assert_int_equal(disk_revive(disk), -ENOTCONN);
	target_start(&target, target.port);
	deadline_ns = clock_now_ns() + 60 * NS_PER_S;
	while (disk_revive(disk) && clock_now_ns() < deadline_ns) {
		/* Connected or not: this write may be lost. */
		assert_int_equal(disk_write_now(disk, data, 4096, 0), -ENOTCONN);
		sched_yield();
	}
	assert_int_equal(disk_write_now(disk, data, 4096, 0), 0);
	disk_close(disk);
	remote_initiator_close(remote);
	teardown(&target);
	free(data);
}

/* The owner of a target whose device fails is told once; nobody can connect any more. */
static void a_device_fails(void **state)
{
	struct target target = {.device = "simulated:fatal=40"};
	struct remote *remote = initiator_open(SECRET);
	uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
	uint8_t *data = memory(4096, 1);
	struct disk *disk;
	uint32_t writes = 0;

	(void)state;
	setup(&target);
	assert_int_equal(volume_open(&target, "shard", &disk), 0);
	while (!disk_write_now(disk, data, 4096, 0))
		writes++;
	assert_true(writes > 0 && writes < 40);
	assert_true(disk_gone(disk));
	while (!atomic_load(&target.failures) && clock_now_ns() < deadline_ns)
		sched_yield();
	assert_int_equal(disk_revive(disk), -ENOTCONN);
	disk_close(disk);
	assert_int_not_equal(volume_open(&target, "shard", &disk), 0);
	remote_initiator_close(remote);
	teardown(&target);
	assert_int_equal(target.failures, 1);
	free(data);
}

/* ---- On a reactor, from the region's own frames. ---- */

struct user {
	struct disk *disk;
	struct region *region;
	struct reactor *reactor;
	int32_t results[5];
	uint64_t copied;
};

static int32_t user_run(struct user *user, enum disk_op op, struct region_span span, uint64_t bytes)
{
	struct iovec iov[] = {{span.data, 4096}, {span.data + 4096, bytes - 4096}};
	struct disk_io io = {.op = op,
		.iov = iov,
		.iov_count = op == DISK_READ || op == DISK_WRITE ? 2 : 0,
		.offset = 8192,
		.bytes = bytes};

	return disk_run(user->disk, &io);
}

static void user_main(void *arg)
{
	struct user *user = arg;
	uint64_t before = region_copy_bytes_all();
	struct region_span span;

	assert_int_equal(region_lease(user->region, 512, OWNER_DISK, &span), 0);
	memset(span.data, 0x77, 2 * MIB);
	user->results[0] = user_run(user, DISK_WRITE, span, 2 * MIB);
	user->results[1] = user_run(user, DISK_FLUSH, span, 0);
	memset(span.data, 0, 2 * MIB);
	user->results[2] = user_run(user, DISK_READ, span, 2 * MIB);
	user->results[3] = span.data[0] == 0x77 && span.data[2 * MIB - 1] == 0x77;
	user->results[4] = user_run(user, DISK_DISCARD, span, MIB);
	user->copied = region_copy_bytes_all() - before;
	region_give(user->region, span, OWNER_DISK);
	reactor_stop(user->reactor);
}

static void frames_move_without_a_copy(void **state)
{
	const struct region_opts region = {.bytes = 16 * MIB, .core_count = 1};
	const struct reactor_opts reactor = {.cpu = -1};
	struct target target = {0};
	struct remote *remote = initiator_open(SECRET);
	struct user user = {0};

	(void)state;
	setup(&target);
	assert_int_equal(region_open(&region, &user.region), 0);
	assert_int_equal(reactor_open(&reactor, &user.reactor), 0);
	assert_int_equal(volume_open(&target, "shard", &user.disk), 0);
	assert_int_equal(disk_attach(user.disk, user.reactor, user.region), 0);
	assert_int_equal(fiber_spawn(user.reactor, "user", user_main, &user), 0);
	reactor_run(user.reactor);
	assert_int_equal(user.results[0], 2 * MIB);
	assert_int_equal(user.results[1], 0);
	assert_int_equal(user.results[2], 2 * MIB);
	assert_true(user.results[3]);
	assert_true(user.results[4] >= 0);
	assert_int_equal(user.copied, 0);
	disk_close(user.disk);
	reactor_close(user.reactor);
	region_close(user.region);
	remote_initiator_close(remote);
	teardown(&target);
}

/* ---- On a reactor whose region has no free frames. ---- */

#define PLAIN_BYTES (256 * KIB)

static void plain_done(struct disk_io *io, int32_t result)
{
	*(int32_t *)io->arg = result;
}

/* From memory that is not the region's, while all frames are held, perhaps until this is written.
 */
static int32_t plain_run(struct user *user, enum disk_op op, uint8_t *data)
{
	uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
	struct iovec iov = {data, PLAIN_BYTES};
	int32_t result = 0;
	struct disk_io io = {.op = op,
		.iov = &iov,
		.iov_count = 1,
		.offset = 8192,
		.done = plain_done,
		.arg = &result};

	disk_start(user->disk, &io);
	while (!result && clock_now_ns() < deadline_ns)
		fiber_yield();
	assert_int_equal(result, PLAIN_BYTES);
	return result;
}

static void full_main(void *arg)
{
	static struct region_span spans[16 * MIB / FRAME_BYTES];
	struct user *user = arg;
	uint8_t *data = memory(PLAIN_BYTES, 0x33);
	uint32_t count = 0;

	while (region_lease(user->region, 1, OWNER_DISK, &spans[count]) == 0)
		count++;
	assert_true(count > 0);
	user->results[0] = plain_run(user, DISK_WRITE, data);
	memset(data, 0, PLAIN_BYTES);
	user->results[1] = plain_run(user, DISK_READ, data);
	user->results[2] = data[0] == 0x33 && data[PLAIN_BYTES - 1] == 0x33;
	while (count)
		region_give(user->region, spans[--count], OWNER_DISK);
	free(data);
	reactor_stop(user->reactor);
}

/* The store's log is not in the region, and the frames are those of puts that wait for it. */
static void a_write_needs_no_free_frames(void **state)
{
	const struct region_opts region = {.bytes = 16 * MIB, .core_count = 1};
	const struct reactor_opts reactor = {.cpu = -1};
	struct target target = {0};
	struct remote *remote = initiator_open(SECRET);
	struct user user = {0};

	(void)state;
	setup(&target);
	assert_int_equal(region_open(&region, &user.region), 0);
	assert_int_equal(reactor_open(&reactor, &user.reactor), 0);
	assert_int_equal(volume_open(&target, "shard", &user.disk), 0);
	assert_int_equal(disk_attach(user.disk, user.reactor, user.region), 0);
	assert_int_equal(fiber_spawn(user.reactor, "user", full_main, &user), 0);
	reactor_run(user.reactor);
	assert_int_equal(user.results[0], PLAIN_BYTES);
	assert_int_equal(user.results[1], PLAIN_BYTES);
	assert_true(user.results[2]);
	disk_close(user.disk);
	reactor_close(user.reactor);
	region_close(user.region);
	remote_initiator_close(remote);
	teardown(&target);
}

/* ---- Many connections. ---- */

#define LOOPS	 2u
#define HANDLES	 88u /* with LOOPS + 1 connections each */
#define MANY_MIB 64u

static void *loop_main(void *arg)
{
	reactor_run(arg);
	return NULL;
}

static void stop_post(struct reactor_msg *msg)
{
	(void)msg;
	reactor_stop(reactor_self());
}

/* A server with many event loops, and many volumes of one host. */
static void a_host_has_many_connections(void **state)
{
	const struct region_opts region_opts = {.bytes = MANY_MIB * MIB, .core_count = LOOPS};
	struct remote *remote = initiator_open(SECRET);
	struct reactor *reactors[LOOPS];
	struct reactor_msg stops[LOOPS] = {{.fn = stop_post}, {.fn = stop_post}};
	static struct disk *disks[HANDLES];
	struct target target = {0};
	pthread_t threads[LOOPS];
	struct region *region;
	char path[128];
	struct disk_opts opts = {.path = path, .read_only = true};
	uint64_t deadline_ns;

	(void)state;
	setup(&target);
	snprintf(path, sizeof(path), "rdma://127.0.0.1:%u/shard", target.port);
	assert_int_equal(region_open(&region_opts, &region), 0);
	for (uint32_t i = 0; i < LOOPS; i++)
		assert_int_equal(reactor_open(&(struct reactor_opts){.cpu = -1, .core_idx = i},
					 &reactors[i]),
			0);
	for (uint32_t i = 0; i < HANDLES; i++) {
		assert_int_equal(disk_open(&opts, &disks[i]), 0);
		for (uint32_t k = 0; k < LOOPS; k++)
			assert_int_equal(disk_attach(disks[i], reactors[k], region), 0);
	}
	for (uint32_t i = 0; i < LOOPS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, loop_main, reactors[i]), 0);
	deadline_ns = clock_now_ns() + 60 * NS_PER_S;
	for (uint32_t i = 0; i < HANDLES; i++)
		while (disk_revive(disks[i])) {
			if (clock_now_ns() > deadline_ns)
				fail_msg("volume %u is not connected", i);
			sched_yield();
		}
	for (uint32_t i = 0; i < LOOPS; i++) {
		reactor_post(reactors[i], &stops[i]);
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	}
	for (uint32_t i = 0; i < HANDLES; i++)
		disk_close(disks[i]);
	for (uint32_t i = 0; i < LOOPS; i++)
		reactor_close(reactors[i]);
	region_close(region);
	remote_initiator_close(remote);
	teardown(&target);
}

static struct disk *file_open(const char *path)
{
	const struct disk_opts opts = {
		.path = path, .create = true, .bytes_min = BYTES, .step_bytes = BYTES};
	struct disk *disk;

	assert_int_equal(disk_open(&opts, &disk), 0);
	return disk;
}

struct looker {
	struct disk *disk;
	_Atomic uint32_t looks;
	_Atomic bool over;
};

static void *looker_main(void *arg)
{
	struct looker *looker = arg;

	while (!atomic_load(&looker->over)) {
		assert_int_equal(disk_revive(looker->disk), 0);
		atomic_fetch_add_explicit(&looker->looks, 1, memory_order_relaxed);
	}
	return NULL;
}

/* For ThreadSanitizer: the answer comes on another thread than either of these. */
static void grows_while_it_is_looked_at(void **state)
{
	struct target target = {0};
	struct remote *remote = initiator_open(SECRET);
	struct looker looker = {0};
	pthread_t thread;

	(void)state;
	setup(&target);
	assert_int_equal(volume_open(&target, "shard", &looker.disk), 0);
	assert_int_equal(pthread_create(&thread, NULL, looker_main, &looker), 0);
	for (uint64_t steps = 2; steps <= 16; steps++) {
		uint32_t looks = atomic_load_explicit(&looker.looks, memory_order_relaxed);

		while (atomic_load_explicit(&looker.looks, memory_order_relaxed) == looks)
			sched_yield();
		assert_int_equal(disk_grow(looker.disk, steps * BYTES), 0);
		assert_int_equal(disk_bytes(looker.disk), steps * BYTES);
	}
	atomic_store(&looker.over, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	disk_close(looker.disk);
	remote_initiator_close(remote);
	teardown(&target);
}

static void the_next_copy_is_read_when_one_is_gone(void **state)
{
	char dir[] = "/tmp/remote-array-XXXXXX", paths[2][64];
	struct disk_array_opts opts = {.data = 2, .parity = 1, .name = "array"};
	struct remote *remote = initiator_open(SECRET);
	uint8_t *data = memory(4096, 7), *back = memory(4096, 0);
	struct target target = {0};
	struct disk *array;

	(void)state;
	setup(&target);
	assert_non_null(mkdtemp(dir));
	assert_int_equal(volume_open(&target, "shard", &opts.members[0]), 0);
	for (uint32_t i = 0; i < 2; i++) {
		snprintf(paths[i], sizeof(paths[i]), "%s/volume%u", dir, i);
		opts.members[1 + i] = file_open(paths[i]);
	}
	assert_int_equal(disk_array_open(&opts, &array), 0);
	assert_int_equal(disk_write_now(array, data, 4096, 0), 0);
	target_end(&target);
	assert_int_equal(disk_copy_read_now(array, 0, back, 4096, 0), 0);
	assert_memory_equal(back, data, 4096);
	assert_int_equal(disk_array_state(array, 0), DISK_MEMBER_MISSING);
	assert_int_equal(disk_copy_read_now(array, 1, back, 4096, 0), -ENOENT);
	disk_array_fail(array, 1, -ENOTCONN);
	assert_int_equal(disk_copy_read_now(array, 0, back, 4096, 0), -EHOSTDOWN);
	disk_close(array);
	remote_initiator_close(remote);
	for (uint32_t i = 0; i < 2; i++)
		unlink(paths[i]);
	rmdir(dir);
	unlink(target.path);
	free(data);
	free(back);
}

/* The result of opening the volume with that epoch. */
static int owner_try(const struct target *target, uint64_t epoch, bool read_only)
{
	struct remote *remote = owner_open(SECRET, epoch);
	char path[128];
	struct disk_opts opts = {
		.path = path, .read_only = read_only, .lock_wait_ns = 30 * NS_PER_S};
	struct disk *disk = NULL;
	int ret;

	snprintf(path, sizeof(path), "rdma://127.0.0.1:%u/shard", target->port);
	ret = disk_open(&opts, &disk);
	disk_close(disk);
	remote_initiator_close(remote);
	return ret;
}

static void earlier_owners_are_refused(void **state)
{
	struct target target = {0};
	char epoch_path[80];
	uint32_t before = atomic_load(&stale_count);

	(void)state;
	setup(&target);
	assert_int_equal(owner_try(&target, 5, false), -EPROTO); /* no place for an epoch */
	assert_int_equal(owner_try(&target, 0, false), 0);
	target_end(&target);
	snprintf(epoch_path, sizeof(epoch_path), "%s.epoch", target.path);
	target.epoch_path = epoch_path;
	target_start(&target, 0);
	assert_int_equal(owner_try(&target, 0, false), 0);
	assert_int_equal(owner_try(&target, 5, false), 0);
	assert_int_equal(owner_try(&target, 5, false), 0);
	assert_int_equal(owner_try(&target, 4, false), -ESTALE);
	assert_true(atomic_load(&stale_count) > before);
	assert_int_equal(owner_try(&target, 0, false), -ESTALE);
	assert_int_equal(owner_try(&target, 0, true), 0);
	assert_int_equal(owner_try(&target, 4, true), -ESTALE);
	/* To read is to fence, too: the next owner reads before it writes. */
	assert_int_equal(owner_try(&target, 7, true), 0);
	assert_int_equal(owner_try(&target, 5, false), -ESTALE);
	target_end(&target);
	target_start(&target, 0);
	assert_int_equal(owner_try(&target, 6, false), -ESTALE);
	assert_int_equal(owner_try(&target, INT64_MAX, false), 0);
	teardown(&target);
	unlink(epoch_path);
}

static void an_epoch_that_cannot_be_stored_is_refused(void **state)
{
	struct target target = {.epoch_path = "/proc/none/epoch"};

	(void)state;
	setup(&target);
	assert_int_equal(owner_try(&target, 1, false), -EPROTO);
	assert_int_equal(owner_try(&target, 1, false), -EPROTO);
	assert_int_equal(owner_try(&target, 0, false), -ESTALE);
	teardown(&target);
}

static void a_file_without_an_epoch_ends_the_target(void **state)
{
	static const char *const BAD[] = {"", "5\n", "nebulaio volume epoch 1\n",
		"nebulaio volume epoch 1\n0\n", "nebulaio volume epoch 1\n5",
		"nebulaio volume epoch 1\n5x\n", "nebulaio volume epoch 1\n9223372036854775808\n"};
	char path[] = "/tmp/remote-epoch-XXXXXX";
	struct remote_export export = {.name = "shard", .epoch_path = path};
	const struct remote_target_opts opts = {
		.secret = SECRET, .exports = &export, .export_count = 1};
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	for (size_t i = 0; i < sizeof(BAD) / sizeof(*BAD); i++) {
		struct remote_target *target;

		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(pwrite(fd, BAD[i], strlen(BAD[i]), 0), strlen(BAD[i]));
		assert_int_equal(remote_target_open(&opts, &target), -EUCLEAN);
	}
	close(fd);
	unlink(path);
}

/* ---- The secret's file. ---- */

static void white_space_around_the_secret_is_not_part_of_it(void **state)
{
	static const char *const SAME[] = {"0123456789abcdef", "0123456789abcdef\n",
		" \t0123456789abcdef\r\n", "0123456789abcdef \n\n"};
	static const char *const BAD[] = {"", "\n", "0123456789abcde\n"};
	char path[] = "/tmp/remote-secret-XXXXXX", secret[REMOTE_SECRET_BYTES];
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	for (size_t i = 0; i < ARRAY_LEN(SAME); i++) {
		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(pwrite(fd, SAME[i], strlen(SAME[i]), 0), strlen(SAME[i]));
		assert_int_equal(remote_secret_read(path, secret), 0);
		assert_string_equal(secret, SAME[0]);
	}
	for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(pwrite(fd, BAD[i], strlen(BAD[i]), 0), strlen(BAD[i]));
		assert_int_equal(remote_secret_read(path, secret), -EINVAL);
	}
	close(fd);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_come_back),
		cmocka_unit_test(a_volume_leaves_the_reserve_free),
		cmocka_unit_test(zeros_are_written_where_they_cannot_be_made),
		cmocka_unit_test(strangers_are_refused),
		cmocka_unit_test(paths_are_checked),
		cmocka_unit_test(a_host_has_a_name),
		cmocka_unit_test(to_look_is_not_to_write),
		cmocka_unit_test(gone_stays_gone_until_revived),
		cmocka_unit_test(a_device_fails),
		cmocka_unit_test(grows_while_it_is_looked_at),
		cmocka_unit_test(the_next_copy_is_read_when_one_is_gone),
		cmocka_unit_test(frames_move_without_a_copy),
		cmocka_unit_test(a_write_needs_no_free_frames),
		cmocka_unit_test(a_host_has_many_connections),
		cmocka_unit_test(earlier_owners_are_refused),
		cmocka_unit_test(an_epoch_that_cannot_be_stored_is_refused),
		cmocka_unit_test(a_file_without_an_epoch_ends_the_target),
		cmocka_unit_test(white_space_around_the_secret_is_not_part_of_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
