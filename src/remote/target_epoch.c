/* remote/target_epoch.c: the epoch of a volume's owner. A store on several hosts has one owner at a
 * time, which has a greater epoch than all before it (docs/design/cluster.md). The target refuses
 * what comes with an earlier epoch than the last that it has heard of, also after its own restart:
 * so before it welcomes a new one, the connections of earlier owners are closed, their work at the
 * volume is over, and the epoch is in a file. Slow path. */
#include "remote/target_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

#define EPOCH_HEAD "nebulaio volume epoch 1\n"

/* ---- The file. ---- */

int target_epoch_load(struct target_volume *volume)
{
	char text[128], *end;
	unsigned long long epoch;
	size_t head = strlen(EPOCH_HEAD);
	FILE *file = volume->epoch_path[0] ? fopen(volume->epoch_path, "re") : NULL;
	int ret = volume->epoch_path[0] && !file && errno != ENOENT ? -errno : 0;

	if (ret)
		log_error("export", "%s: cannot be read: %s", volume->epoch_path, strerror(-ret));
	if (!file)
		return ret;
	text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
	fclose(file);
	epoch = strncmp(text, EPOCH_HEAD, head) == 0 ? strtoull(text + head, &end, 10) : 0;
	if (!epoch || epoch > INT64_MAX || strcmp(end, "\n") != 0) {
		log_error("export",
			"%s: it does not contain the epoch of the last owner of volume %s: without "
			"it an earlier owner could write; remove the file only if no server but "
			"the owner runs",
			volume->epoch_path, volume->name);
		return -EUCLEAN;
	}
	volume->epoch = epoch;
	volume->kept = epoch;
	return 0;
}

static int text_write(const char *path, uint64_t epoch)
{
	char text[128];
	int len = snprintf(text, sizeof(text), EPOCH_HEAD "%llu\n", (unsigned long long)epoch);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	ssize_t written = fd < 0 ? -1 : write(fd, text, (size_t)len);
	int ret = written == len ? 0 : written < 0 ? -errno : -ENOSPC;

	if (!ret && fsync(fd))
		ret = -errno;
	if (fd >= 0)
		close(fd);
	return ret;
}

static int epoch_write(const struct target_volume *volume, uint64_t epoch)
{
	char fresh[REMOTE_EPOCH_PATH + 8];
	int ret;

	snprintf(fresh, sizeof(fresh), "%s.new", volume->epoch_path);
	ret = text_write(fresh, epoch);
	if (!ret && rename(fresh, volume->epoch_path))
		ret = -errno;
	return ret ? ret : file_parent_sync(volume->epoch_path);
}

struct keeping {
	struct target_volume *volume;
	uint64_t epoch;
	int ret;
};

static void keep_run(void *arg)
{
	struct keeping *keeping = (struct keeping *)arg;

	keeping->ret = epoch_write(keeping->volume, keeping->epoch);
}

static void unkept(struct target_volume *volume, int error)
{
	log_error("export", "volume %s: %s: the owner's epoch cannot be stored: %s", volume->name,
		volume->epoch_path, strerror(-error));
	for (uint32_t i = 0; i < TARGET_LANES_MAX; i++) {
		struct target_lane *lane = volume->target->lanes[i];

		if (lane && lane->state == TARGET_FENCING && lane->wanted == volume)
			target_refuse(lane, WIRE_UNKEPT);
	}
}

/* One file at a time: an epoch that comes meanwhile is written after it. */
static void keep_main(void *arg)
{
	struct target_volume *volume = (struct target_volume *)arg;
	struct remote_target *target = volume->target;
	struct keeping keeping = {.volume = volume};

	while (!keeping.ret && volume->kept < volume->epoch) {
		keeping.epoch = volume->epoch;
		fiber_offload_long(keep_run, &keeping);
		if (!keeping.ret)
			volume->kept = keeping.epoch;
	}
	volume->keeping = false;
	target->keepers--;
	if (keeping.ret)
		unkept(volume, keeping.ret);
	target_fence_advance(volume);
	if (target->drainer)
		fiber_wake(target->drainer);
}

/* ---- Lanes. ---- */

/* A lane that only reads, of a program without an epoch, is of no owner. */
static bool of_earlier(const struct target_lane *lane, const struct target_volume *volume)
{
	uint64_t epoch = wire_epoch(&lane->hello);

	return lane->volume == volume && (lane->writes || epoch) && epoch < volume->epoch;
}

static bool fenced(const struct target_volume *volume)
{
	for (uint32_t i = 0; i < TARGET_LANES_MAX; i++) {
		const struct target_lane *lane = volume->target->lanes[i];

		if (lane && of_earlier(lane, volume))
			return false;
	}
	return volume->kept == volume->epoch;
}

void target_fence_advance(struct target_volume *volume)
{
	for (uint32_t i = 0; i < TARGET_LANES_MAX; i++) {
		struct target_lane *lane = volume->target->lanes[i];

		if (!lane || lane->state != TARGET_FENCING || lane->wanted != volume)
			continue;
		if (wire_epoch(&lane->hello) < volume->epoch)
			target_refuse(lane, WIRE_STALE);
		else if (fenced(volume))
			target_enter(lane, volume);
	}
}

/* From now on earlier owners are refused. */
static void epoch_raise(struct target_volume *volume, uint64_t epoch)
{
	log_info("export", "volume %s: its owner has epoch %llu now; the one before had %llu",
		volume->name, (unsigned long long)epoch, (unsigned long long)volume->epoch);
	volume->epoch = epoch;
	for (uint32_t i = 0; i < TARGET_LANES_MAX; i++) {
		struct target_lane *lane = volume->target->lanes[i];

		if (lane && of_earlier(lane, volume))
			target_lane_fail(lane, "a later owner of the store has the volume");
	}
}

static int keep_begin(struct target_volume *volume)
{
	int ret;

	if (volume->keeping || volume->kept == volume->epoch)
		return 0;
	ret = fiber_spawn(volume->target->opts.reactor, "keep epoch", keep_main, volume);
	if (ret)
		return ret;
	volume->keeping = true;
	volume->target->keepers++;
	return 0;
}

void target_admit(struct target_lane *lane, struct target_volume *volume)
{
	uint64_t epoch = wire_epoch(&lane->hello);
	bool reads = lane->hello.flags & WIRE_HELLO_READ_ONLY;

	if (!epoch && reads) {
		target_enter(lane, volume);
		return;
	}
	if (epoch < volume->epoch) {
		target_refuse(lane, WIRE_STALE);
		return;
	}
	if (epoch > volume->epoch && !volume->epoch_path[0]) {
		log_error("export",
			"volume %s: it is no file, so there is no place beside it for the epoch of "
			"its owner: start this exporter with --state DIR",
			volume->name);
		target_refuse(lane, WIRE_UNKEPT);
		return;
	}
	if (epoch > volume->epoch)
		epoch_raise(volume, epoch);
	lane->state = TARGET_FENCING;
	lane->wanted = volume;
	if (keep_begin(volume))
		target_refuse(lane, WIRE_UNKEPT);
	else
		target_fence_advance(volume);
}
