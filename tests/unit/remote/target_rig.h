/* tests/unit/remote/target_rig.h: a target on its own thread, which exports one volume, "shard". */
#ifndef TESTS_UNIT_REMOTE_TARGET_RIG_H
#define TESTS_UNIT_REMOTE_TARGET_RIG_H

#include "../unit.h"

#include <errno.h>
#include <pthread.h>

#include "disk/disk.h"
#include "remote/remote.h"

#define SECRET "a secret of sixteen and more"
#define BYTES  (8 * MIB)
/* Of connections, at both ends: longer than this process is ever stopped for. */
#define SETUP_NS (60 * NS_PER_S)
/* A port that was free may belong to another program for a while. */
#define PORT_NS (60 * NS_PER_S)

struct target {
	char path[64]; /* of the volume; target_start fills in the rest */
	const char *epoch_path;
	uint64_t setup_ns; /* 0: SETUP_NS */
	uint64_t reserve_bytes;
	const char *device; /* NULL: "simulated" */
	_Atomic uint32_t failures;
	struct region *region;
	struct reactor *reactor;
	struct disk *disk;
	struct remote_target *target;
	uint16_t port;
	pthread_t thread;
	struct reactor_msg end;
};

static inline void *target_main(void *arg)
{
	reactor_run(((struct target *)arg)->reactor);
	return NULL;
}

static inline void target_failed(void *arg)
{
	atomic_fetch_add(&((struct target *)arg)->failures, 1);
}

/* port 0: any; target->port is set to it. */
static inline void target_start(struct target *target, uint16_t port)
{
	const struct region_opts region = {.bytes = 32 * MIB, .core_count = 1};
	const struct reactor_opts reactor = {.cpu = -1};
	struct disk_opts disk = {
		.path = target->path, .create = true, .bytes_min = BYTES, .step_bytes = BYTES};
	struct remote_export export = {.name = "shard", .epoch_path = target->epoch_path};
	struct remote_target_opts opts = {
		.device = {.device_name = target->device ? target->device : "simulated",
			.gid_index = -1},
		.secret = SECRET,
		.address = "127.0.0.1",
		.port = port,
		.exports = &export,
		.export_count = 1,
		.reserve_bytes = target->reserve_bytes,
		.setup_ns = target->setup_ns ? target->setup_ns : SETUP_NS,
		.failed = target_failed,
		.failed_arg = target,
	};
	uint64_t deadline_ns = clock_now_ns() + PORT_NS;
	int ret;

	assert_int_equal(region_open(&region, &target->region), 0);
	assert_int_equal(reactor_open(&reactor, &target->reactor), 0);
	assert_int_equal(disk_open(&disk, &target->disk), 0);
	assert_int_equal(disk_attach(target->disk, target->reactor, target->region), 0);
	export.disk = target->disk;
	opts.reactor = target->reactor;
	opts.region = target->region;
	do
		ret = remote_target_open(&opts, &target->target);
	while (ret == -EADDRINUSE && clock_rest(deadline_ns));
	assert_int_equal(ret, 0);
	target->port = remote_target_port(target->target);
	assert_int_equal(pthread_create(&target->thread, NULL, target_main, target), 0);
}

static inline void drain_main(void *arg)
{
	struct target *target = arg;

	remote_target_drain(target->target);
	reactor_stop(target->reactor);
}

static inline void drain_post(struct reactor_msg *msg)
{
	struct target *target = CONTAINER_OF(msg, struct target, end);

	fiber_spawn(target->reactor, "drain", drain_main, target);
}

static inline void target_end(struct target *target)
{
	target->end.fn = drain_post;
	reactor_post(target->reactor, &target->end);
	pthread_join(target->thread, NULL);
	remote_target_close(target->target);
	disk_close(target->disk);
	reactor_close(target->reactor);
	region_close(target->region);
}

#endif
