/* tests/unit/store/memory_disk.c: see memory_disk.h. */
#include "memory_disk.h"
#include "../unit.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SPOILT	    0xdb
#define SUPER_BYTES 8192u

static struct memory_disk disks[MEMORY_DISKS];
static pthread_mutex_t grow_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t grow_goes_on = PTHREAD_COND_INITIALIZER;

static void identity_fill(const struct memory_disk *self, struct disk_identity *ret_identity)
{
	*ret_identity = (struct disk_identity){.bytes = self->bytes,
		.medium_bytes = self->bytes,
		.align = 512,
		.can_grow = true,
		.can_discard = true};
	snprintf(ret_identity->what, sizeof(ret_identity->what), "memory");
}

static int memory_open(void *arg, const struct disk_opts *opts, struct disk_identity *ret_identity,
	void **ret_volume)
{
	unsigned idx;

	(void)arg;
	if (sscanf(opts->path, "memory://%u", &idx) != 1 || idx >= MEMORY_DISKS)
		return -ENODEV;
	if (!opts->read_only) {
		disks[idx].lock_wait_ns = opts->lock_wait_ns;
		disks[idx].probe = opts->probe;
	}
	if (disks[idx].open_result && !opts->read_only) {
		int ret = disks[idx].open_result;

		disks[idx].open_result = 0;
		return ret;
	}
	if (disks[idx].opening && !opts->read_only) {
		disks[idx].opening();
		disks[idx].opening = NULL;
	}
	*ret_volume = &disks[idx];
	disks[idx].handles++;
	identity_fill(&disks[idx], ret_identity);
	return 0;
}

static void memory_close(void *volume)
{
	((struct memory_disk *)volume)->handles--;
}

static int memory_attach(void *volume, struct reactor *reactor, struct region *region)
{
	(void)reactor;
	(void)region;
	return ((struct memory_disk *)volume)->attach_result;
}

static bool read_fails(struct memory_disk *self, const struct disk_io *io)
{
	if (!self->fail_times || self->fail_at < io->offset ||
		self->fail_at >= io->offset + io->bytes)
		return false;
	if (io->op == DISK_WRITE && !self->fail_stays)
		self->fail_times = 0;
	else if (io->op == DISK_READ && self->fail_times != UINT32_MAX)
		self->fail_times--;
	return io->op == DISK_READ;
}

static bool write_is_stuck(const struct memory_disk *self, const struct disk_io *io)
{
	return io->op == DISK_WRITE && self->stuck_at && self->stuck_at >= io->offset &&
	       self->stuck_at < io->offset + io->bytes;
}

static bool super_loses(struct memory_disk *self, const struct disk_io *io)
{
	if (!self->super_writes || io->op != DISK_WRITE || io->offset >= SUPER_BYTES ||
		--self->super_writes)
		return false;
	self->away = self->lost = true;
	return true;
}

static struct disk_driver driver;

static int32_t run_now(struct memory_disk *self, const struct disk_io *io)
{
	uint64_t at = io->offset;

	if (self->lost || super_loses(self, io))
		return driver.durable ? -EHOSTDOWN : -ENOTCONN;
	if (io->op == DISK_FLUSH)
		return 0;
	if (io->offset + io->bytes > self->bytes)
		return -EIO;
	if (read_fails(self, io)) {
		self->lost = self->fail_loses;
		return self->lost ? -ENOTCONN : -EIO;
	}
	if (write_is_stuck(self, io))
		return self->stuck_result ? self->stuck_result : (int32_t)io->bytes;
	if (io->op == DISK_DISCARD) {
		if (self->discard_result)
			return self->discard_result;
		self->discards++;
		self->discarded_bytes += io->bytes;
		memset(self->memory + at, SPOILT, io->bytes);
	} else if (io->op == DISK_ZERO) {
		memset(self->memory + at, 0, io->bytes);
	}
	for (uint32_t i = 0; i < io->iov_count; at += io->iov[i++].iov_len) {
		if (io->op == DISK_READ)
			memcpy(io->iov[i].iov_base, self->memory + at, io->iov[i].iov_len);
		else if (io->op == DISK_WRITE)
			memcpy(self->memory + at, io->iov[i].iov_base, io->iov[i].iov_len);
	}
	return (int32_t)io->bytes;
}

static struct memory_disk *disk_of(const struct disk_io *io)
{
	for (uint32_t i = 0; i < MEMORY_DISKS; i++)
		if (io->split.next == (void *)&disks[i])
			return &disks[i];
	return NULL;
}

static void io_run(struct uring_op *op, int result, uint32_t cqe_flags)
{
	struct disk_io *io = CONTAINER_OF(op, struct disk_io, uring);

	(void)result;
	(void)cqe_flags;
	disk_io_end(io, run_now(disk_of(io), io));
}

static void io_post(struct memory_disk *self, struct disk_io *io)
{
	io->split.next = (struct disk_io *)(void *)self;
	io->uring.done = io_run;
	io_uring_prep_nop(reactor_sqe(reactor_self(), &io->uring));
}

static void memory_start(void *volume, struct disk_io *io)
{
	struct memory_disk *self = (struct memory_disk *)volume;

	if (!self->hold || io->op != DISK_WRITE) {
		io_post(self, io);
		return;
	}
	io->split.next = self->held;
	self->held = io;
}

static int memory_now(void *volume, enum disk_op op, void *data, uint64_t bytes, uint64_t offset)
{
	struct iovec iov = {data, bytes};
	const struct disk_io io = {
		.op = op, .iov = &iov, .iov_count = data ? 1 : 0, .offset = offset, .bytes = bytes};

	return MIN(run_now((struct memory_disk *)volume, &io), 0);
}

static int memory_grow(void *volume, uint64_t bytes_total, struct disk_identity *ret_identity)
{
	struct memory_disk *self = (struct memory_disk *)volume;

	if (bytes_total > MEMORY_DISK_BYTES)
		return -ENOSPC;
	if ((self->grow_bytes_max && bytes_total - self->bytes > self->grow_bytes_max) ||
		(self->grows_lost && self->grows_lost--))
		return -ENOTCONN;
	pthread_mutex_lock(&grow_lock);
	while (self->grow_end && bytes_total > self->grow_end)
		pthread_cond_wait(&grow_goes_on, &grow_lock);
	pthread_mutex_unlock(&grow_lock);
	self->bytes = MAX(self->bytes, ALIGN_UP(bytes_total, 16 * MIB));
	identity_fill(self, ret_identity);
	for (; self->bytes == self->grow_end && self->grow_loses;
		self->grow_loses &= self->grow_loses - 1)
		memory_disk_lose((uint32_t)__builtin_ctz(self->grow_loses));
	return 0;
}

static int memory_revive(void *volume, struct disk_identity *ret_identity)
{
	struct memory_disk *self = (struct memory_disk *)volume;

	self->tries++;
	if (self->away)
		return -ENOTCONN;
	self->lost = false;
	identity_fill(self, ret_identity);
	return 0;
}

static bool memory_gone(void *volume)
{
	return ((struct memory_disk *)volume)->lost;
}

static struct disk_driver driver = {
	.scheme = "memory://",
	.name = "memory",
	.open = memory_open,
	.close = memory_close,
	.attach = memory_attach,
	.start = memory_start,
	.now = memory_now,
	.grow = memory_grow,
	.revive = memory_revive,
	.gone = memory_gone,
};

struct memory_disk *memory_disk(uint32_t idx)
{
	return &disks[idx];
}

struct memory_disk *memory_disk_find(const void *data, size_t bytes, uint64_t *ret_at)
{
	for (uint32_t i = 0; i < MEMORY_DISKS; i++) {
		const uint8_t *found =
			(const uint8_t *)memmem(disks[i].memory, disks[i].bytes, data, bytes);

		if (!found)
			continue;
		*ret_at = (uint64_t)(found - disks[i].memory);
		return &disks[i];
	}
	fail();
	return NULL;
}

void memory_disks_open(void)
{
	for (uint32_t i = 0; i < MEMORY_DISKS; i++) {
		memset(&disks[i], 0, sizeof(disks[i]));
		disks[i].bytes = 16 * MIB;
		disks[i].memory = (uint8_t *)mmap(NULL, MEMORY_DISK_BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		assert_true(disks[i].memory != MAP_FAILED);
	}
	driver.durable = false;
	disk_driver_add(&driver);
}

void memory_disks_close(void)
{
	disk_driver_remove(&driver);
	for (uint32_t i = 0; i < MEMORY_DISKS; i++)
		munmap(disks[i].memory, MEMORY_DISK_BYTES);
}

void memory_disks_are_durable(void)
{
	driver.durable = true;
}

void memory_disk_lose(uint32_t idx)
{
	disks[idx].away = true;
	disks[idx].lost = true;
}

void memory_disk_blank(uint32_t idx)
{
	madvise(disks[idx].memory, MEMORY_DISK_BYTES, MADV_DONTNEED);
	disks[idx].bytes = 16 * MIB;
}

void memory_disk_await_held(uint32_t idx)
{
	while (!disks[idx].held)
		fiber_sleep_ns(NS_PER_MS);
}

void memory_disk_await_tries(uint32_t idx, uint32_t tries)
{
	uint32_t from = disks[idx].tries;

	while (disks[idx].tries - from < tries)
		fiber_sleep_ns(NS_PER_MS);
}

void memory_disk_grow_on(uint32_t idx)
{
	pthread_mutex_lock(&grow_lock);
	disks[idx].grow_end = 0;
	pthread_cond_broadcast(&grow_goes_on);
	pthread_mutex_unlock(&grow_lock);
}

void memory_disk_let_go(uint32_t idx)
{
	struct memory_disk *self = &disks[idx];
	struct disk_io *io = self->held;

	self->hold = false;
	self->held = NULL;
	while (io) {
		struct disk_io *next = io->split.next;

		io_post(self, io);
		io = next;
	}
}
