/* disk/disk.c: opening, growing and closing a volume file, and blocking access to it. All of it
 * may block and none of it is on a data path; that is disk_dp.c. */
#include "disk/disk_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define ZERO_BYTES (1 * MIB)

DEFINE_COUNTER(grown_bytes, "nebulaio_disk_grown_bytes_total", NULL,
	"Bytes by which volumes were grown and prewritten.");
DEFINE_COUNTER(attach_refused, "nebulaio_disk_fixed_buffers_refused_total", NULL,
	"Reactors whose arenas could not be registered as fixed buffers.");

/* O_DIRECT where it is offered: some file systems refuse it at open. */
static int file_open(struct disk *disk, bool create)
{
	int flags = O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0);
	int fd = open(disk->path, flags | O_DIRECT, 0600);

	disk->direct = fd >= 0;
	if (fd < 0 && errno == EINVAL)
		fd = open(disk->path, flags, 0600);
	if (fd < 0)
		return -errno;
	disk->fd = fd;
	if (!disk->direct)
		log_info("disk",
			"%s: the file system has no O_DIRECT; going through the page cache",
			disk->path);
	return 0;
}

/* flock(2) cannot wait with a bound, so it is asked again; only after a crash does that happen. */
static int file_lock(struct disk *disk, uint64_t wait_ns)
{
	const struct timespec pause = {.tv_nsec = (long)NS_PER_MS};
	uint64_t deadline_ns = clock_now_ns() + wait_ns;

	while (flock(disk->fd, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK)
			return -errno;
		if (clock_now_ns() >= deadline_ns) {
			log_error("disk", "%s: another process has this volume open", disk->path);
			return -EBUSY;
		}
		nanosleep(&pause, NULL);
	}
	return 0;
}

static int disk_init(struct disk *disk, const struct disk_opts *opts)
{
	struct stat st;
	int ret;

	ret = file_open(disk, opts->create);
	if (ret)
		return ret;
	ret = file_lock(disk, opts->lock_wait_ns);
	if (ret)
		return ret;
	if (fstat(disk->fd, &st))
		return -errno;
	/* A growth that was cut short left part of a step: it is written again when needed. */
	atomic_store(&disk->bytes, (uint64_t)st.st_size / disk->step_bytes * disk->step_bytes);
	if (opts->bytes_min > disk_bytes(disk))
		return disk_grow(disk, opts->bytes_min);
	return 0;
}

int disk_open(const struct disk_opts *opts, struct disk **ret_disk)
{
	struct disk *disk;
	int ret;

	if (strlen(opts->path) >= sizeof(disk->path))
		return -ENAMETOOLONG;
	disk = (struct disk *)calloc(1, sizeof(*disk));
	if (!disk)
		return -ENOMEM;
	disk->fd = -1;
	disk->kind = opts->kind;
	disk->step_bytes = opts->step_bytes ? opts->step_bytes : DISK_STEP_BYTES;
	memcpy(disk->path, opts->path, strlen(opts->path) + 1);
	pthread_mutex_init(&disk->grow_lock, NULL);
	pthread_mutex_init(&disk->faults.lock, NULL);
	CHECK(disk->step_bytes % DISK_ALIGN_BYTES == 0);
	ret = opts->kind == DISK_SIMULATED ? disk_faults_parse(&disk->faults, opts->faults) : 0;
	if (!ret)
		ret = disk_init(disk, opts);
	if (ret) {
		disk_close(disk);
		return ret;
	}
	*ret_disk = disk;
	return 0;
}

void disk_close(struct disk *disk)
{
	if (!disk)
		return;
	if (disk->is_target)
		region_target_remove(disk->region, disk->target);
	for (uint32_t i = 0; i < LIMIT_CORES_MAX; i++)
		free(disk->cores[i].entries);
	if (disk->fd >= 0)
		close(disk->fd);
	pthread_mutex_destroy(&disk->grow_lock);
	pthread_mutex_destroy(&disk->faults.lock);
	free(disk);
}

/* Makes the arenas the ring's fixed buffers: buffer index = arena index. */
static bool arenas_register(struct reactor *reactor, const struct region *region)
{
	struct iovec iov[LIMIT_ARENAS_MAX];
	uint32_t count = region_arena_count(region);
	int ret;

	for (uint32_t i = 0; i < count; i++) {
		struct region_arena arena = region_arena(region, i);

		iov[i].iov_base = arena.base;
		iov[i].iov_len = arena.bytes;
	}
	ret = io_uring_register_buffers(reactor_uring(reactor), iov, count);
	if (ret == 0 || ret == -EBUSY) /* EBUSY: a second volume on this reactor */
		return true;
	counter_add(&attach_refused, 1);
	log_warn("disk",
		"core %u: the region cannot be registered with io_uring (%s): going on with plain "
		"buffers, which costs some processor time; raise the limit of locked memory "
		"(ulimit -l, LimitMEMLOCK= in systemd)",
		reactor_core_idx(reactor), strerror(-ret));
	return false;
}

int disk_attach(struct disk *disk, struct reactor *reactor, struct region *region)
{
	struct disk_core *core = &disk->cores[reactor_core_idx(reactor)];

	CHECK(!core->reactor);
	core->entries = (struct disk_entry *)calloc(DISK_CORE_OPS, sizeof(*core->entries));
	if (!core->entries)
		return -ENOMEM;
	for (uint32_t i = 0; i < DISK_CORE_OPS; i++) {
		core->entries[i].core = core;
		core->entries[i].next_free = core->free;
		core->free = &core->entries[i];
	}
	core->reactor = reactor;
	core->region = region;
	core->registered = arenas_register(reactor, region);
	return 0;
}

int disk_target(struct disk *disk, struct region *region, uint16_t *ret_target)
{
	int ret;

	CHECK(!disk->is_target);
	ret = region_target_add(region, &DISK_DEVICE_OPS, disk, "volume", &disk->target);
	if (ret)
		return ret;
	disk->region = region;
	disk->is_target = true;
	*ret_target = disk->target;
	return 0;
}

uint32_t disk_align(const struct disk *disk)
{
	(void)disk;
	return DISK_ALIGN_BYTES;
}

uint64_t disk_bytes(const struct disk *disk)
{
	return atomic_load_explicit(&disk->bytes, memory_order_acquire);
}

void disk_fence(struct disk *disk)
{
	if (!atomic_exchange(&disk->fenced, true))
		log_error("disk",
			"%s: fenced: the medium failed, so nothing more is written to it; "
			"see the kernel's log, then restart on a sound disk",
			disk->path);
}

static int write_whole(int fd, const char *data, uint64_t bytes, uint64_t offset)
{
	while (bytes) {
		ssize_t count = pwrite(fd, data, bytes, (off_t)offset);

		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0)
			return -errno;
		if (count == 0)
			return -EIO;
		data += count;
		offset += (uint64_t)count;
		bytes -= (uint64_t)count;
	}
	return 0;
}

/* Zeros over [from, to), in order, so that the file's size never runs ahead of what was written. */
static int prewrite(struct disk *disk, uint64_t from, uint64_t to)
{
	void *zeros;
	int ret = 0;

	if (posix_memalign(&zeros, DISK_ALIGN_BYTES, ZERO_BYTES))
		return -ENOMEM;
	memset(zeros, 0, ZERO_BYTES);
	for (uint64_t at = from; at < to && !ret; at += ZERO_BYTES)
		ret = write_whole(disk->fd, (const char *)zeros, MIN(ZERO_BYTES, to - at), at);
	free(zeros);
	if (!ret && fsync(disk->fd))
		ret = -errno;
	return ret;
}

static int grow_locked(struct disk *disk, uint64_t bytes_total)
{
	uint64_t from = disk_bytes(disk);
	uint64_t to = (bytes_total + disk->step_bytes - 1) / disk->step_bytes * disk->step_bytes;
	int ret = 0;

	if (to <= from)
		return 0;
	if (atomic_load(&disk->fenced))
		return -EIO;
	if (disk->faults.enospc_at && to > disk->faults.enospc_at)
		return -ENOSPC;
	/* Asks for the room first: a refusal then comes before anything was written. */
	if (fallocate(disk->fd, FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(to - from)) &&
		errno != EOPNOTSUPP && errno != ENOSYS)
		ret = -errno;
	if (!ret)
		ret = prewrite(disk, from, to);
	if (ret) {
		if (ret == -EDQUOT || ret == -EFBIG)
			ret = -ENOSPC;
		if (ftruncate(disk->fd, (off_t)from))
			log_warn("disk", "%s: cannot take back a failed growth: %s", disk->path,
				strerror(errno));
		return ret;
	}
	counter_add(&grown_bytes, to - from);
	atomic_store_explicit(&disk->bytes, to, memory_order_release);
	return 0;
}

int disk_grow(struct disk *disk, uint64_t bytes_total)
{
	int ret;

	pthread_mutex_lock(&disk->grow_lock);
	ret = grow_locked(disk, bytes_total);
	pthread_mutex_unlock(&disk->grow_lock);
	return ret;
}

int disk_read_now(struct disk *disk, void *data, uint64_t bytes, uint64_t offset)
{
	char *at = (char *)data;

	while (bytes) {
		ssize_t count = pread(disk->fd, at, bytes, (off_t)offset);

		if (count < 0 && errno == EINTR)
			continue;
		if (count <= 0)
			return count < 0 ? -errno : -EIO;
		at += count;
		offset += (uint64_t)count;
		bytes -= (uint64_t)count;
	}
	return 0;
}

int disk_write_now(struct disk *disk, const void *data, uint64_t bytes, uint64_t offset)
{
	if (atomic_load(&disk->fenced))
		return -EIO;
	return write_whole(disk->fd, (const char *)data, bytes, offset);
}

int disk_flush_now(struct disk *disk)
{
	if (atomic_load(&disk->fenced))
		return -EIO;
	return fdatasync(disk->fd) ? -errno : 0;
}
