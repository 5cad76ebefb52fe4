/* disk/disk.c: opens and closes volumes of every kind, and has the code that the kinds share. All
 * of it may block; the data path is disk_dp.c. */
#include "disk/disk_array.h"
#include "disk/disk_dax.h"
#include "disk/disk_joined.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

/* A wait that is longer than this is logged. */
#define WAIT_TOLD_NS (2 * NS_PER_S)

struct disk_wait disk_wait_begin(uint64_t wait_ns)
{
	uint64_t now_ns = clock_now_ns();

	return (struct disk_wait){.start_ns = now_ns, .deadline_ns = now_ns + wait_ns};
}

bool disk_wait_more(const struct disk *disk, struct disk_wait *wait)
{
	if (!wait->told && clock_now_ns() - wait->start_ns > WAIT_TOLD_NS) {
		wait->told = true;
		log_info("disk",
			"%s: in use; waiting up to %llu s: the kernel may still hold it for a "
			"killed process",
			disk->path,
			(unsigned long long)((wait->deadline_ns - wait->start_ns) / NS_PER_S));
	}
	return clock_rest(wait->deadline_ns);
}

int disk_busy(const struct disk *disk, const char *why)
{
	if (!disk->probe)
		log_error("disk", "%s: %s", disk->path, why);
	return -EBUSY;
}

/* flock(2) has no timeout, so it is called repeatedly; this happens only after a crash. */
int disk_lock(const struct disk *disk, int fd, uint64_t wait_ns)
{
	struct disk_wait wait = disk_wait_begin(wait_ns);

	while (flock(fd, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK)
			return -errno;
		if (!disk_wait_more(disk, &wait))
			return disk_busy(disk, "another process has this volume open");
	}
	return 0;
}

int disk_kind_of(const char *path, enum disk_kind *ret_kind)
{
	struct stat st;

	if (strncmp(path, DISK_DAX_SCHEME, strlen(DISK_DAX_SCHEME)) == 0) {
		*ret_kind = DISK_DAX_FILE;
		return 0;
	}
	if (strncmp(path, DISK_JOINED_SCHEME, strlen(DISK_JOINED_SCHEME)) == 0) {
		*ret_kind = DISK_JOINED;
		return 0;
	}
	if (strncmp(path, NVMEOF_SCHEME, sizeof(NVMEOF_SCHEME) - 1) == 0) {
		*ret_kind = DISK_FABRIC;
		return 0;
	}
	if (disk_driver_takes(path)) {
		*ret_kind = DISK_DRIVEN;
		return 0;
	}
	if (strstr(path, "://")) {
		log_error("disk", "%s: %s", path,
			strncmp(path, "rdma://", 7) == 0
				? "volumes of other hosts need storage.remote.secret_file, which "
				  "is not set"
				: "no volume of this kind can be opened here");
		return -EINVAL;
	}
	if (stat(path, &st))
		return -errno;
	if (S_ISREG(st.st_mode))
		*ret_kind = DISK_FILE;
	else if (S_ISBLK(st.st_mode))
		*ret_kind = DISK_BLOCK;
	else if (S_ISCHR(st.st_mode))
		/* The open of NVMe checks that it is one. */
		*ret_kind = dax_is_device(st.st_rdev) ? DISK_DAX : DISK_NVME;
	else
		return -EINVAL;
	return 0;
}

/* The kind for DISK_AUTO: a path that does not exist is a file to be created. */
static int kind_choose(const struct disk_opts *opts, enum disk_kind *ret_kind)
{
	int ret;

	*ret_kind = opts->kind;
	if (opts->kind != DISK_AUTO)
		return 0;
	ret = disk_kind_of(opts->path, ret_kind);
	/* A file must not be created in the place of a missing device. */
	if (ret == -ENOENT && strncmp(opts->path, "/dev/", 5) == 0 &&
		strncmp(opts->path, "/dev/shm/", 9) != 0) {
		log_error("disk", "%s: no such device", opts->path);
		return -ENODEV;
	}
	if (ret == -ENOENT && opts->create) {
		*ret_kind = DISK_FILE;
		return 0;
	}
	if (ret == -EINVAL && !strstr(opts->path, "://"))
		log_error("disk",
			"%s: neither a file, nor a block device, nor an NVMe passthrough device, "
			"nor a device of persistent memory",
			opts->path);
	return ret;
}

static const struct disk_ops *ops_of(enum disk_kind kind)
{
	switch (kind) {
	case DISK_BLOCK:
		return &DISK_BLOCK_OPS;
	case DISK_NVME:
	case DISK_NVME_SIMULATED:
		return &DISK_NVME_OPS;
	case DISK_ARRAY:
		return &DISK_ARRAY_OPS;
	case DISK_DRIVEN:
		return &DISK_DRIVEN_OPS;
	case DISK_JOINED:
		return &DISK_JOINED_OPS;
	case DISK_DAX:
		return &DISK_DAX_OPS;
	case DISK_DAX_FILE:
		return &DISK_DAX_FILE_OPS;
	case DISK_FABRIC:
		return &DISK_FABRIC_OPS;
	default:
		return &DISK_FILE_OPS;
	}
}

static int disk_init(struct disk *disk, const struct disk_opts *opts)
{
	int ret = kind_choose(opts, &disk->kind);

	if (ret)
		return ret;
	disk->ops = ops_of(disk->kind);
	disk->faults.active = opts->faults != NULL;
	if (opts->faults)
		ret = disk_faults_parse(&disk->faults, opts->faults);
	if (!ret)
		ret = disk->ops->open(disk, opts);
	if (ret || disk->read_only || opts->bytes_min <= disk_bytes(disk))
		return ret;
	ret = disk_grow(disk, opts->bytes_min);
	if (ret == -ENOSPC && !disk_can_grow(disk))
		log_error("disk", "%s: %llu MiB is too small: at least %llu MiB are needed",
			disk->path, (unsigned long long)(disk_bytes(disk) / MIB),
			(unsigned long long)((opts->bytes_min + MIB - 1) / MIB));
	return ret;
}

struct disk *disk_alloc(const char *path, uint64_t step_bytes)
{
	struct disk *disk = (struct disk *)calloc(1, sizeof(*disk));

	if (!disk)
		return NULL;
	disk->magic = DISK_MAGIC;
	disk->fd = -1;
	disk->ops = &DISK_FILE_OPS;
	disk->step_bytes = step_bytes ? step_bytes : DISK_STEP_BYTES;
	snprintf(disk->path, sizeof(disk->path), "%s", path);
	pthread_mutex_init(&disk->grow_lock, NULL);
	pthread_mutex_init(&disk->faults.lock, NULL);
	CHECK(disk->step_bytes % DISK_ALIGN_BYTES == 0);
	return disk;
}

int disk_open(const struct disk_opts *opts, struct disk **ret_disk)
{
	struct disk *disk;
	int ret;

	if (strlen(opts->path) >= sizeof(disk->path))
		return -ENAMETOOLONG;
	disk = disk_alloc(opts->path, opts->step_bytes);
	if (!disk)
		return -ENOMEM;
	disk->read_only = opts->read_only;
	disk->probe = opts->probe;
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
	disk_check(disk);
	if (disk->is_target)
		region_target_remove(disk->region, disk->target);
	for (uint32_t i = 0; i < LIMIT_CORES_MAX; i++) {
		disk->ops->detach(&disk->cores[i]);
		free(disk->cores[i].entries);
	}
	disk_writers_close(disk);
	disk->ops->close(disk);
	pthread_mutex_destroy(&disk->grow_lock);
	pthread_mutex_destroy(&disk->faults.lock);
	magic_clear(&disk->magic);
	free(disk);
}

enum disk_kind disk_kind(const struct disk *disk)
{
	disk_check(disk);
	return disk->kind;
}

const char *disk_describe(const struct disk *disk)
{
	disk_check(disk);
	return disk->what;
}

const char *disk_path(const struct disk *disk)
{
	disk_check(disk);
	return disk->path;
}

int disk_attach_plain(struct disk *disk, struct disk_core *core)
{
	(void)disk;
	core->registered = disk_arenas_register(
		reactor_uring(core->reactor), core->reactor, core->region, NULL);
	return 0;
}

void disk_detach_plain(struct disk_core *core)
{
	(void)core;
}

bool disk_attached(const struct disk *disk)
{
	for (uint32_t i = 0; i < LIMIT_CORES_MAX; i++)
		if (disk->cores[i].entries)
			return true;
	return false;
}

int disk_attach(struct disk *disk, struct reactor *reactor, struct region *region)
{
	struct disk_core *core = &disk->cores[reactor_core_idx(reactor)];

	disk_check(disk);
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
	disk_writers_open(disk);
	return disk->ops->attach(disk, core);
}

int disk_target(struct disk *disk, struct region *region, uint16_t *ret_target)
{
	int ret;

	disk_check(disk);
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
	uint32_t bytes = atomic_load_explicit(&disk->sector_bytes, memory_order_relaxed);

	disk_check(disk);
	return bytes ? bytes : DISK_ALIGN_BYTES;
}

uint64_t disk_bytes(const struct disk *disk)
{
	disk_check(disk);
	return atomic_load_explicit(&disk->bytes, memory_order_acquire);
}

uint64_t disk_medium_bytes(const struct disk *disk)
{
	disk_check(disk);
	return atomic_load_explicit(&disk->medium_bytes, memory_order_relaxed);
}

bool disk_can_grow(const struct disk *disk)
{
	disk_check(disk);
	if (disk->joined)
		return disk_can_grow(disk->joined->parts[JOINED_BODIES]);
	return disk->driver ? atomic_load_explicit(&disk->driven_grows, memory_order_relaxed)
			    : disk->ops->can_grow;
}

bool disk_has_log_apart(const struct disk *disk)
{
	disk_check(disk);
	return disk->joined != NULL;
}

bool disk_can_discard(const struct disk *disk)
{
	disk_check(disk);
	return disk->array ? array_can_discard(disk->array) : atomic_load(&disk->discards);
}

void disk_fence(struct disk *disk)
{
	disk_check(disk);
	if (atomic_exchange(&disk->fenced, -EIO) != -EIO)
		log_error("disk",
			"%s: fenced: the medium failed, so the server writes nothing more to it; "
			"see the kernel's log, then restart on a sound disk",
			disk->path);
}

void disk_suspend(struct disk *disk)
{
	int32_t none = 0;

	disk_check(disk);
	atomic_compare_exchange_strong(&disk->fenced, &none, -EHOSTDOWN);
}

void disk_resume(struct disk *disk)
{
	int32_t suspended = -EHOSTDOWN;

	disk_check(disk);
	atomic_compare_exchange_strong(&disk->fenced, &suspended, 0);
}

static int now_allowed(const struct disk *disk)
{
	disk_check(disk);
	if (disk->read_only)
		return -EROFS;
	return atomic_load(&disk->fenced);
}

int disk_grow(struct disk *disk, uint64_t bytes_total)
{
	int ret = 0;

	disk_check(disk);
	pthread_mutex_lock(&disk->grow_lock);
	if (bytes_total > disk_bytes(disk)) {
		ret = now_allowed(disk);
		if (!ret)
			ret = disk->ops->grow(disk, bytes_total);
	}
	pthread_mutex_unlock(&disk->grow_lock);
	return ret;
}

int disk_read_now(struct disk *disk, void *data, uint64_t bytes, uint64_t offset)
{
	disk_check(disk);
	return disk->ops->read_now(disk, data, bytes, offset);
}

int disk_write_now(struct disk *disk, const void *data, uint64_t bytes, uint64_t offset)
{
	int ret = now_allowed(disk);

	return ret ? ret : disk->ops->write_now(disk, data, bytes, offset);
}

int disk_flush_now(struct disk *disk)
{
	int ret = now_allowed(disk);

	return ret ? ret : disk->ops->flush_now(disk);
}

int disk_zero_now(struct disk *disk, uint64_t bytes, uint64_t offset)
{
	int ret = now_allowed(disk);

	return ret ? ret : disk->ops->zero_now(disk, bytes, offset);
}

/* ---- An operation that its fiber waits for. ---- */

struct awaited {
	struct fiber *fiber;
	int32_t result;
	bool done;
};

static void awaited_done(struct disk_io *io, int32_t result)
{
	struct awaited *awaited = (struct awaited *)io->arg;

	awaited->result = result;
	awaited->done = true;
	fiber_wake(awaited->fiber);
}

int32_t disk_run(struct disk *disk, struct disk_io *io)
{
	struct awaited awaited = {.fiber = fiber_self()};

	disk_check(disk);
	io->done = awaited_done;
	io->arg = &awaited;
	disk_start(disk, io);
	while (!awaited.done)
		fiber_park();
	return awaited.result;
}
