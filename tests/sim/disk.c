/* tests/sim/disk.c: volumes that track unflushed writes and lose some of them when power fails; and
 * wrappers of the C library's file calls, which use them.
 *
 * The file itself has the content of the device's cache. In addition, the disk keeps the old bytes
 * of each write since the last flush. When power fails the file returns to its state at the last
 * flush, and then some sectors of some writes are written again, in any order. */
#include "world.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define DISKS_MAX	  32u
#define SECTOR_BYTES	  512u
#define READ_NS_MAX	  (200 * NS_PER_US)
#define WRITE_NS_MAX	  (100 * NS_PER_US)
#define FLUSH_NS_MAX	  (500 * NS_PER_US)
#define SLOW_NS_MAX	  (2 * NS_PER_S)
#define DEATH_NS_MAX	  (2 * NS_PER_S)
#define FALLOC_ZERO_RANGE 0x10

struct write { /* an unflushed write, which a loss of power may undo */
	struct list link;
	uint64_t offset, bytes;
	uint64_t done_order;	 /* 0: in progress */
	uint8_t *before, *after; /* NULL: zeros */
};

struct disk {
	int fd; /* 0: none */
	struct list writes;
	uint64_t flushed_bytes; /* the file's durable size */
	uint64_t order;
	uint64_t dead_until_ns;
	int32_t number; /* the number in "volume2", if several */
	bool hosted;	/* exported by the peer */
	bool power_lost;
};

struct request {
	struct world_event event;
	struct disk *disk;
	struct world_disk_io io;
	struct iovec *iov; /* its own copy */
	uint64_t order;	   /* FLUSH: of the last write that ended before it began */
	world_disk_done_fn *done;
	void *arg;
};

struct world_disk_chances world_disk_chances;

static const uint8_t ZEROS[64 * KIB];
static struct disk disks[DISKS_MAX];
static uint64_t host_stalled_until_ns;

ssize_t __real_pread64(int fd, void *data, size_t bytes, off_t offset);
ssize_t __real_pwrite64(int fd, const void *data, size_t bytes, off_t offset);
int __real_close(int fd);
int __real_open64(const char *path, int flags, ...);

static struct disk *disk_of(int fd)
{
	for (uint32_t i = 0; i < DISKS_MAX; i++)
		if (fd > 0 && disks[i].fd == fd)
			return &disks[i];
	return NULL;
}

bool world_disk_is(int fd)
{
	return disk_of(fd) != NULL;
}

static uint64_t file_bytes(int fd)
{
	struct stat st;

	CHECK(fstat(fd, &st) == 0);
	return (uint64_t)st.st_size;
}

/* ---- The medium. ---- */

static void write_forget(struct write *write)
{
	list_remove(&write->link);
	free(write->before);
	free(write->after);
	free(write);
}

static void medium_read(const struct disk *disk, void *data, uint64_t bytes, uint64_t offset)
{
	ssize_t done = __real_pread64(disk->fd, data, bytes, (off_t)offset);

	CHECK(done >= 0);
	memset((char *)data + done, 0, bytes - (size_t)done);
}

/* Zeros behind the file's end only make it longer: a volume grows by many of them. */
static void medium_zero(struct disk *disk, uint64_t bytes, uint64_t offset)
{
	uint64_t end = file_bytes(disk->fd);

	for (uint64_t at = offset, part; at < MIN(offset + bytes, end); at += part) {
		part = MIN(MIN(offset + bytes, end) - at, sizeof(ZEROS));
		CHECK(__real_pwrite64(disk->fd, ZEROS, part, (off_t)at) == (ssize_t)part);
	}
	if (offset + bytes > end)
		CHECK(ftruncate(disk->fd, (off_t)(offset + bytes)) == 0);
}

static void medium_write(struct disk *disk, const void *data, uint64_t bytes, uint64_t offset)
{
	if (!data)
		medium_zero(disk, bytes, offset);
	else
		CHECK(__real_pwrite64(disk->fd, data, bytes, (off_t)offset) == (ssize_t)bytes);
}

static bool is_zero(const uint8_t *data, uint64_t bytes)
{
	return !bytes || (!data[0] && !memcmp(data, data + 1, bytes - 1));
}

/* Writes, and keeps the old bytes for an undo. Data NULL: zeros. */
static void disk_write(struct disk *disk, const void *data, uint64_t bytes, uint64_t offset)
{
	struct write *write = (struct write *)calloc(1, sizeof(*write));

	CHECK(write != NULL);
	write->offset = offset;
	write->bytes = bytes;
	if (offset < file_bytes(disk->fd)) {
		write->before = (uint8_t *)malloc(bytes);
		CHECK(write->before != NULL);
		medium_read(disk, write->before, bytes, offset);
	}
	if (data && !is_zero(data, bytes)) {
		write->after = (uint8_t *)malloc(bytes);
		CHECK(write->after != NULL);
		memcpy(write->after, data, bytes);
	}
	write->done_order = ++disk->order;
	list_push_back(&disk->writes, &write->link);
	medium_write(disk, write->after, bytes, offset);
}

static void disk_flush(struct disk *disk, uint64_t order)
{
	if (world_flush_is_none())
		return;
	LIST_FOR_EACH_SAFE (link, &disk->writes) {
		struct write *write = CONTAINER_OF(link, struct write, link);

		if (write->done_order <= order)
			write_forget(write);
	}
	disk->flushed_bytes = file_bytes(disk->fd);
}

/* ---- Wrong bytes. ---- */

/* Writes are damaged only on one of several disks: if no other disk has the bodies of the log's
 * last group, damage to them looks like a loss of power. A single disk gets rot instead. */
static bool is_damaged(const struct disk *disk, uint64_t offset)
{
	const struct world_disk_chances *chances = &world_disk_chances;

	return chances->damage && offset >= chances->damage_from &&
	       chances->damage_disk == disk->number && world_chance(chances->damage);
}

void world_disk_rot(uint32_t places)
{
	for (uint32_t i = 0; i < DISKS_MAX; i++) {
		struct disk *disk = &disks[i];
		uint64_t from = world_disk_chances.damage_from, end;

		if (disk->fd <= 0 || (world_disk_chances.damage_disk >= 0 &&
					     world_disk_chances.damage_disk != disk->number))
			continue;
		end = file_bytes(disk->fd);
		for (uint32_t at = 0; at < places && end > from; at++) {
			uint64_t offset = from + world_below(end - from);
			uint8_t byte;

			medium_read(disk, &byte, 1, offset);
			byte ^= (uint8_t)(1 + world_below(255));
			medium_write(disk, &byte, 1, offset);
			world_trace("rot", i, offset);
		}
	}
}

/* A misdirected write: its blocks overwrite others. */
static uint64_t elsewhere(const struct disk *disk, uint64_t bytes)
{
	uint64_t from = world_disk_chances.damage_from, end = file_bytes(disk->fd);

	if (end < from + bytes)
		return from;
	return from +
	       world_below((end - from - bytes) / BLOCK_BYTES_OF_DISK + 1) * BLOCK_BYTES_OF_DISK;
}

static void disk_write_wrongly(struct disk *disk, const void *data, uint64_t bytes, uint64_t offset)
{
	uint64_t how = world_below(3);
	uint8_t *changed;

	world_trace("damage", how, offset);
	/* Damage does not change the file's length. */
	if (file_bytes(disk->fd) < offset + bytes)
		disk_write(disk, NULL, bytes, offset);
	if (how == 0) {
		disk_write(disk, data, bytes, elsewhere(disk, bytes));
	} else if (how == 1) {
		changed = (uint8_t *)malloc(bytes);
		CHECK(changed != NULL);
		memcpy(changed, data, bytes);
		changed[world_below(bytes)] ^= (uint8_t)(1 + world_below(255));
		disk_write(disk, changed, bytes, offset);
		free(changed);
	}
}

/* ---- Power fails. ---- */

/* Keeps some sectors of a write that was not flushed. */
static void write_remains(struct disk *disk, const struct write *write)
{
	uint64_t whole = world_below(3); /* 0: none of it, 1: all, 2: some */

	for (uint64_t at = 0; at < write->bytes && whole; at += SECTOR_BYTES)
		if (whole == 1 || world_chance(2))
			medium_write(disk, write->after ? write->after + at : NULL,
				MIN(SECTOR_BYTES, write->bytes - at), write->offset + at);
}

static void disk_power_lost(struct disk *disk)
{
	struct write **all;
	uint32_t count = 0;
	uint64_t bytes_now = file_bytes(disk->fd);

	LIST_FOR_EACH_SAFE (link, &disk->writes)
		count++;
	all = (struct write **)calloc(count + 1, sizeof(struct write *));
	CHECK(all != NULL);
	count = 0;
	LIST_FOR_EACH_SAFE (link, &disk->writes)
		all[count++] = CONTAINER_OF(link, struct write, link);
	for (uint32_t i = count; i-- > 0;)
		medium_write(disk, all[i]->before, all[i]->bytes, all[i]->offset);
	/* Any order: a device may write back its cache in any order. */
	for (uint32_t i = 0; i < count; i++) {
		uint32_t other = i + (uint32_t)world_below(count - i);
		struct write *write = all[other];

		all[other] = all[i];
		all[i] = write;
		write_remains(disk, write);
	}
	free(all);
	LIST_FOR_EACH_SAFE (link, &disk->writes)
		write_forget(CONTAINER_OF(link, struct write, link));
	if (bytes_now > disk->flushed_bytes)
		CHECK(ftruncate(disk->fd,
			      (off_t)(disk->flushed_bytes +
				      world_below(bytes_now - disk->flushed_bytes + 1))) == 0);
}

void world_disk_power_lost(bool peer_too)
{
	for (uint32_t i = 0; i < DISKS_MAX; i++)
		if (disks[i].fd > 0 && (peer_too || !disks[i].hosted))
			disk_power_lost(&disks[i]);
}

void world_disk_host_lost(bool kept)
{
	for (uint32_t i = 0; i < DISKS_MAX; i++) {
		if (disks[i].fd <= 0 || !disks[i].hosted)
			continue;
		disks[i].power_lost = true;
		if (!kept)
			disk_power_lost(&disks[i]);
	}
}

void world_disk_host_stall(uint64_t until_ns)
{
	host_stalled_until_ns = until_ns;
}

/* ---- Operations. ---- */

/* Moves at most `bytes` between the request's memory and the disk; returns the number moved. */
static uint64_t request_move(struct request *request, uint64_t bytes)
{
	bool damaged =
		request->io.op == WORLD_WRITE && is_damaged(request->disk, request->io.offset);
	uint64_t done = 0;

	for (uint32_t i = 0; i < request->io.iov_count && done < bytes; i++) {
		uint64_t part = MIN(request->iov[i].iov_len, bytes - done);

		if (request->io.op == WORLD_READ)
			medium_read(request->disk, request->iov[i].iov_base, part,
				request->io.offset + done);
		else if (damaged)
			disk_write_wrongly(request->disk, request->iov[i].iov_base, part,
				request->io.offset + done);
		else
			disk_write(request->disk, request->iov[i].iov_base, part,
				request->io.offset + done);
		done += part;
	}
	return done;
}

static int request_transfer(struct request *request)
{
	const struct world_disk_chances *chances = &world_disk_chances;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < request->io.iov_count; i++)
		bytes += request->iov[i].iov_len;
	if (world_chance(request->io.op == WORLD_READ ? chances->read_error : chances->write_error))
		return -EIO;
	if (request->io.op == WORLD_READ) {
		uint64_t end = file_bytes(request->disk->fd);

		bytes = request->io.offset < end ? MIN(bytes, end - request->io.offset) : 0;
	}
	if (bytes > BLOCK_BYTES_OF_DISK && world_chance(chances->short_transfer))
		bytes = BLOCK_BYTES_OF_DISK * (1 + world_below(bytes / BLOCK_BYTES_OF_DISK));
	return (int)request_move(request, bytes);
}

/* One disk at a time is dead. */
static bool is_dead(struct disk *disk)
{
	bool others = false;

	if (disk->power_lost)
		return true;
	for (uint32_t i = 0; i < DISKS_MAX; i++)
		others |= disks[i].fd && disks[i].dead_until_ns > world_now_ns();
	if (!others && world_chance(world_disk_chances.death)) {
		disk->dead_until_ns = world_now_ns() + world_below(DEATH_NS_MAX);
		world_trace("a disk dies", (uint64_t)disk->fd, disk->dead_until_ns);
	}
	return disk->dead_until_ns > world_now_ns();
}

static int request_run(struct request *request)
{
	if (world_fault_comes(WORLD_FAULT_DISK) || is_dead(request->disk))
		return -EIO;
	switch (request->io.op) {
	case WORLD_READ:
	case WORLD_WRITE:
		return request_transfer(request);
	case WORLD_FLUSH:
		if (world_chance(world_disk_chances.write_error))
			return -EIO;
		disk_flush(request->disk, request->order);
		return 0;
	case WORLD_PUNCH:
	case WORLD_ZERO:
		disk_write(request->disk, NULL, request->io.bytes, request->io.offset);
		return 0;
	}
	return -EINVAL;
}

static void request_happen(void *arg)
{
	struct request *request = (struct request *)arg;
	int result = request_run(request);

	world_trace("disk", request->io.op, request->io.offset);
	request->done(request->arg, result);
	free(request->iov);
	free(request);
}

static uint64_t request_ns(enum world_disk_op op)
{
	uint64_t most = op == WORLD_READ    ? READ_NS_MAX
			: op == WORLD_FLUSH ? FLUSH_NS_MAX
					    : WRITE_NS_MAX;

	return world_below(world_chance(world_disk_chances.slow) ? SLOW_NS_MAX : most);
}

void world_disk_start(int fd, const struct world_disk_io *io, world_disk_done_fn *done, void *arg)
{
	struct request *request = (struct request *)calloc(1, sizeof(*request));
	uint64_t due_ns;

	CHECK(request != NULL);
	request->disk = disk_of(fd);
	request->io = *io;
	request->done = done;
	request->arg = arg;
	request->order = request->disk->order;
	request->io.iov = request->iov =
		(struct iovec *)calloc(io->iov_count + 1, sizeof(*io->iov));
	CHECK(request->iov != NULL);
	memcpy(request->iov, io->iov, io->iov_count * sizeof(*io->iov));
	request->event.fn = request_happen;
	request->event.arg = request;
	due_ns = world_now_ns() + request_ns(io->op);
	if (request->disk->hosted)
		due_ns = MAX(due_ns, host_stalled_until_ns);
	world_event_set(&request->event, due_ns);
}

/* ---- The calls that block. ---- */

struct call {
	bool done;
	int result;
};

static void call_done(void *arg, int result)
{
	struct call *call = (struct call *)arg;

	call->done = true;
	call->result = result;
	world_wake(call);
}

static ssize_t call_run(int fd, const struct world_disk_io *io)
{
	struct call call = {0};

	world_disk_start(fd, io, call_done, &call);
	while (!call.done)
		world_block(&call, UINT64_MAX);
	if (call.result < 0) {
		errno = -call.result;
		return -1;
	}
	return call.result;
}

/* The number of a volume by its path, 0: it has none; -1: not a volume. */
static int32_t volume_number(const char *path)
{
	const char *name = strrchr(path, '/');

	name = name ? name + 1 : path;
	if (strncmp(name, "volume", strlen("volume")))
		return -1;
	return (int32_t)strtol(name + strlen("volume"), NULL, 10);
}

int __wrap_open64(const char *path, int flags, ...)
{
	int mode, fd;
	va_list args;

	va_start(args, flags);
	mode = va_arg(args, int);
	va_end(args);
	if (volume_number(path) < 0)
		return __real_open64(path, flags, mode);
	fd = __real_open64(path, flags & ~O_DIRECT, mode);
	for (uint32_t i = 0; fd >= 0 && i < DISKS_MAX; i++) {
		if (disks[i].fd)
			continue;
		disks[i] = (struct disk){.fd = fd,
			.number = volume_number(path),
			.hosted = strstr(path, "/peer/") != NULL};
		disks[i].flushed_bytes = file_bytes(fd);
		list_init(&disks[i].writes);
		break;
	}
	return fd;
}

int __wrap_close(int fd)
{
	struct disk *disk = disk_of(fd);

	if (disk) {
		/* Data that was not flushed may still be lost, but no code of this life writes
		 * there again. */
		disk_flush(disk, UINT64_MAX);
		disk->fd = 0;
	}
	world_net_closed(fd);
	return __real_close(fd);
}

ssize_t __wrap_pread64(int fd, void *data, size_t bytes, off_t offset)
{
	const struct iovec iov = {data, bytes};
	const struct world_disk_io io = {WORLD_READ, &iov, 1, (uint64_t)offset, 0};

	return disk_of(fd) ? call_run(fd, &io) : __real_pread64(fd, data, bytes, offset);
}

ssize_t __wrap_pwrite64(int fd, const void *data, size_t bytes, off_t offset)
{
	const struct iovec iov = {(void *)(uintptr_t)data, bytes};
	const struct world_disk_io io = {WORLD_WRITE, &iov, 1, (uint64_t)offset, 0};

	return disk_of(fd) ? call_run(fd, &io) : __real_pwrite64(fd, data, bytes, offset);
}

ssize_t __real_pwritev64(int fd, const struct iovec *iov, int count, off_t offset);
ssize_t __wrap_pwritev64(int fd, const struct iovec *iov, int count, off_t offset)
{
	const struct world_disk_io io = {WORLD_WRITE, iov, (uint32_t)count, (uint64_t)offset, 0};

	return disk_of(fd) ? call_run(fd, &io) : __real_pwritev64(fd, iov, count, offset);
}

int __wrap_fdatasync(int fd)
{
	static const struct iovec none;
	const struct world_disk_io io = {.op = WORLD_FLUSH, .iov = &none};

	return disk_of(fd) ? (int)call_run(fd, &io) : 0;
}

int __wrap_fsync(int fd)
{
	return __wrap_fdatasync(fd);
}

int __real_fallocate64(int fd, int mode, off_t offset, off_t bytes);
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t bytes)
{
	static const struct iovec none;
	const struct world_disk_io io = {WORLD_ZERO, &none, 0, (uint64_t)offset, (uint64_t)bytes};

	if (!disk_of(fd))
		return __real_fallocate64(fd, mode, offset, bytes);
	return mode & FALLOC_ZERO_RANGE ? (int)call_run(fd, &io) : 0;
}
