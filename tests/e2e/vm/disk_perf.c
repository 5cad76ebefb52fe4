/* tests/e2e/vm/disk_perf.c: a volume's speed, by whatever path: durable writes of 4 KiB one at a
 * time and 16 at a time, as the store's log commits them, and reads of 1 MiB.
 *
 * Usage: disk_perf VOLUME SECONDS [SECRET-FILE DEVICE]. Overwrites the volume. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "disk/disk.h"
#include "reactor/reactor.h"
#include "region/region.h"
#include "remote/remote.h"

#define DEPTH	    16u
#define AREA_BYTES  (256 * MIB)
#define READ_BYTES  MIB
#define READ_FRAMES ((uint32_t)(READ_BYTES / FRAME_BYTES))

struct perf {
	struct disk *disk;
	struct region *region;
	struct reactor *reactor;
	uint64_t span_ns;
	struct region_span span;
	uint64_t offset;
	int failed;
};

struct commit {
	struct disk_commit disk;
	struct disk_io writes[DEPTH];
	struct iovec iov[DEPTH];
	struct fiber *fiber;
	int32_t result;
	bool done;
};

static void commit_done(struct disk_commit *disk, int32_t result)
{
	struct commit *commit = CONTAINER_OF(disk, struct commit, disk);

	commit->result = result;
	commit->done = true;
	fiber_wake(commit->fiber);
}

static uint64_t next_offset(struct perf *perf, uint64_t bytes)
{
	uint64_t at = perf->offset;

	perf->offset = (at + bytes) % AREA_BYTES;
	return at;
}

static int commit_run(struct perf *perf, uint32_t depth)
{
	struct commit commit = {.fiber = fiber_self()};

	for (uint32_t i = 0; i < depth; i++) {
		commit.iov[i] = (struct iovec){perf->span.data + i * FRAME_BYTES, FRAME_BYTES};
		commit.writes[i] = (struct disk_io){.op = DISK_WRITE,
			.iov = &commit.iov[i],
			.iov_count = 1,
			.offset = next_offset(perf, FRAME_BYTES)};
	}
	commit.disk.writes = commit.writes;
	commit.disk.write_count = depth;
	commit.disk.done = commit_done;
	disk_commit(perf->disk, &commit.disk);
	while (!commit.done)
		fiber_park();
	return commit.result;
}

static int read_run(struct perf *perf, uint32_t depth)
{
	struct iovec iov = {perf->span.data, READ_BYTES};
	struct disk_io io = {.op = DISK_READ,
		.iov = &iov,
		.iov_count = 1,
		.offset = next_offset(perf, READ_BYTES)};
	int32_t ret = disk_run(perf->disk, &io);

	(void)depth;
	return ret < 0 ? ret : 0;
}

static void measure(struct perf *perf, const char *name, uint32_t depth,
	int (*fn)(struct perf *perf, uint32_t depth))
{
	uint64_t start_ns, now_ns, count = 0;

	perf->offset = 0;
	perf->failed = perf->failed ? perf->failed : fn(perf, depth);
	start_ns = now_ns = clock_now_ns();
	while (!perf->failed && now_ns - start_ns < perf->span_ns) {
		perf->failed = fn(perf, depth);
		count += depth;
		now_ns = clock_now_ns();
	}
	printf("%s=%.1f\n", name, (double)count * 1e9 / (double)MAX(now_ns - start_ns, 1u));
}

static void perf_main(void *arg)
{
	struct perf *perf = (struct perf *)arg;

	perf->failed = region_lease(perf->region, READ_FRAMES, OWNER_DISK, &perf->span);
	if (!perf->failed) {
		memset(perf->span.data, 0x5a, READ_BYTES);
		measure(perf, "write_4k_d1", 1, commit_run);
		measure(perf, "write_4k_d16", DEPTH, commit_run);
		measure(perf, "read_1m", 1, read_run);
		region_give(perf->region, perf->span, OWNER_DISK);
	}
	reactor_stop(perf->reactor);
}

static struct remote *remote_begin(const char *secret_file, const char *device)
{
	char secret[REMOTE_SECRET_BYTES];
	const struct remote_opts opts = {
		.device = {.device_name = device, .gid_index = -1}, .secret = secret};
	struct remote *remote = NULL;

	if (!remote_secret_read(secret_file, secret))
		(void)remote_initiator_open(&opts, &remote);
	return remote;
}

int main(int argc, char **argv)
{
	const struct region_opts region = {.bytes = 32 * MIB, .core_count = 1};
	const struct reactor_opts reactor = {.cpu = -1};
	struct disk_opts opts = {.lock_wait_ns = 30 * NS_PER_S};
	struct perf perf = {0};
	struct remote *remote = NULL;

	if (argc != 3 && argc != 5)
		return 2;
	opts.path = argv[1];
	perf.span_ns = strtoull(argv[2], NULL, 10) * NS_PER_S;
	if (argc == 5)
		remote = remote_begin(argv[3], argv[4]);
	perf.failed = disk_open(&opts, &perf.disk);
	if (!perf.failed)
		perf.failed = region_open(&region, &perf.region);
	if (!perf.failed)
		perf.failed = reactor_open(&reactor, &perf.reactor);
	if (!perf.failed)
		perf.failed = disk_attach(perf.disk, perf.reactor, perf.region);
	if (!perf.failed)
		perf.failed = fiber_spawn(perf.reactor, "perf", perf_main, &perf);
	if (!perf.failed)
		reactor_run(perf.reactor);
	disk_close(perf.disk);
	reactor_close(perf.reactor);
	region_close(perf.region);
	remote_initiator_close(remote);
	if (perf.failed)
		fprintf(stderr, "disk_perf: %s: %s\n", argv[1], strerror(-perf.failed));
	return perf.failed ? 1 : 0;
}
