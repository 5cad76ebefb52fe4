/* disk/disk_nvme_device.c: commands to a real controller: /dev/ngXnY by ioctl where we may block,
 * as uring_cmd where we may not. The block device of the same namespace is opened exclusively, so
 * that nobody can mount it meanwhile. */
#include "disk/disk_nvme.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

/* "nvme0n1" of the device number of ng0n1; -ENOENT where sysfs does not say. */
static int block_name(int fd, char *ret_name, size_t name_cap)
{
	char link[64], target[512];
	unsigned controller, space;
	const char *slash;
	struct stat st;
	ssize_t len;

	if (fstat(fd, &st))
		return -errno;
	snprintf(link, sizeof(link), "/sys/dev/char/%u:%u", major(st.st_rdev), minor(st.st_rdev));
	len = readlink(link, target, sizeof(target) - 1);
	if (len < 0)
		return -ENOENT;
	target[len] = 0;
	slash = strrchr(target, '/');
	if (!slash || sscanf(slash, "/ng%un%u", &controller, &space) != 2)
		return -ENOENT;
	snprintf(ret_name, name_cap, "nvme%un%u", controller, space);
	return 0;
}

static uint64_t queue_limit(const char *name, const char *limit)
{
	unsigned long long value = 0;
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "/sys/block/%s/queue/%s", name, limit);
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%llu", &value) != 1)
		value = 0;
	fclose(file);
	return value;
}

/* Before Linux 6.6 the kernel that polls for a command reads its bio, which another poller of the
 * same queue may have freed: a server killed on 6.1 with commands in flight made it fault, and the
 * volume stayed locked until the next boot. */
static bool polling_is_safe(const char *path)
{
	unsigned major = 0, minor = 0;
	struct utsname kernel;

	if (!uname(&kernel) && sscanf(kernel.release, "%u.%u", &major, &minor) == 2 &&
		(major > 6 || (major == 6 && minor >= 6)))
		return true;
	log_info("disk",
		"%s: the driver has polled queues, which are safe only from Linux 6.6 on: using "
		"interrupts",
		path);
	return false;
}

/* The most bytes of one command: the controller's own limit applies in addition. */
static void limits_read(struct disk *disk, const char *name)
{
	struct nvme *nvme = disk->nvme;
	uint64_t bytes = queue_limit(name, "max_hw_sectors_kb") * 1024;
	uint64_t segments = queue_limit(name, "max_segments");

	nvme->transfer_bytes_max = NVME_TRANSFER_BYTES_MAX;
	if (bytes)
		nvme->transfer_bytes_max = (uint32_t)MIN(bytes, NVME_TRANSFER_BYTES_MAX);
	/* One segment more than pages: data need not begin on a page. */
	if (segments > 1) {
		nvme->segments_max = (uint32_t)MIN(segments, (uint64_t)NVME_SEGMENTS_MAX);
		nvme->transfer_bytes_max = (uint32_t)MIN(
			(segments - 1) * NVME_PAGE_BYTES, (uint64_t)nvme->transfer_bytes_max);
	}
	nvme->transfer_bytes_max = ALIGN_DOWN(nvme->transfer_bytes_max, DISK_ALIGN_BYTES);
	nvme->polled = queue_limit(name, "io_poll") == 1 && polling_is_safe(disk->path);
}

/* The block device of the same namespace, exclusively. */
static int block_claim(struct disk *disk, const char *name, uint64_t wait_ns)
{
	struct disk_wait wait = disk_wait_begin(wait_ns);
	char path[300], why[400];

	snprintf(path, sizeof(path), "/dev/%s", name);
	do {
		disk->nvme->block_fd = open(path, O_RDONLY | O_EXCL | O_CLOEXEC);
		if (disk->nvme->block_fd >= 0 || errno != EBUSY)
			return 0; /* without this node nobody can mount it either */
	} while (disk_wait_more(disk, &wait));
	snprintf(why, sizeof(why), "in use: %s is mounted, or another process has it", path);
	return disk_busy(disk, why);
}

/* No process polls any more for the commands of a killed process. They end when the driver looks
 * for late commands (after 30 s). */
static uint64_t lock_wait(const char *name, const struct disk_opts *opts)
{
	uint64_t late_ns = queue_limit(name, "io_timeout") * NS_PER_MS;

	return opts->lock_wait_ns ? MAX(opts->lock_wait_ns, 2 * late_ns) : 0;
}

static int device_open(struct disk *disk, const struct disk_opts *opts)
{
	uint64_t wait_ns = opts->lock_wait_ns;
	char name[64];
	bool named;
	int nsid, ret = 0;

	disk->fd = open(disk->path, (disk->read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
	if (disk->fd < 0)
		return -errno;
	nsid = ioctl(disk->fd, NVME_IOCTL_ID);
	if (nsid <= 0) {
		log_error("disk", "%s: not an NVMe namespace (/dev/ngXnY)", disk->path);
		return -EINVAL;
	}
	disk->nvme->nsid = (uint32_t)nsid;
	named = !block_name(disk->fd, name, sizeof(name));
	if (named)
		wait_ns = lock_wait(name, opts);
	if (!disk->read_only)
		ret = disk_lock(disk, disk->fd, wait_ns);
	if (ret || !named)
		return ret;
	limits_read(disk, name);
	return disk->read_only ? 0 : block_claim(disk, name, wait_ns);
}

static void device_close(struct disk *disk)
{
	if (disk->nvme->block_fd >= 0)
		close(disk->nvme->block_fd);
}

static int device_identify(struct disk *disk, uint32_t cns, uint8_t data[NVME_IDENTIFY_BYTES])
{
	struct nvme_passthru_cmd words = {
		.opcode = NVME_IDENTIFY,
		.nsid = cns == NVME_CNS_NAMESPACE ? disk->nvme->nsid : 0,
		.addr = (uint64_t)(uintptr_t)data,
		.data_len = NVME_IDENTIFY_BYTES,
		.cdw10 = cns,
	};
	int ret = ioctl(disk->fd, NVME_IOCTL_ADMIN_CMD, &words);

	return ret < 0 ? -errno : ret;
}

static int device_now(struct disk *disk, const struct nvme_command *command)
{
	struct nvme_passthru_cmd words;
	int ret;

	_Static_assert(sizeof(words) == sizeof(command->words), "the same words, but for the end");
	memcpy(&words, &command->words, sizeof(words));
	ret = ioctl(disk->fd, NVME_IOCTL_IO_CMD, &words);
	return ret < 0 ? -errno : ret;
}

static void device_prep(
	struct disk *disk, struct io_uring_sqe *sqe, const struct nvme_command *command, int arena)
{
	/* liburing 2.3 has no helper that knows large entries. */
	memset(sqe, 0, 2 * sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = disk->fd;
	sqe->cmd_op = command->vectored ? NVME_URING_CMD_IO_VEC : NVME_URING_CMD_IO;
	if (arena >= 0) {
		sqe->uring_cmd_flags = IORING_URING_CMD_FIXED;
		sqe->buf_index = (uint16_t)arena;
	}
	memcpy(sqe->cmd, &command->words, sizeof(command->words));
}

static int32_t device_result(struct disk *disk, const struct nvme_command *command, int32_t res)
{
	(void)disk;
	(void)command;
	return res;
}

const struct nvme_transport NVME_DEVICE_TRANSPORT = {
	.open = device_open,
	.close = device_close,
	.identify = device_identify,
	.now = device_now,
	.prep = device_prep,
	.result = device_result,
};
