/* disk/disk_dax_dp.c: reads and writes persistent memory by the processor. Data path: no system
 * call, except where a processor has no instructions for it.
 *
 * Whole lines are written by stores that pass the caches by. A line that is written in part goes
 * through the cache and is then written back by the best instruction that the processor has. One
 * fence ends each write: so it is durable when it is complete, whichever core flushes later. Only
 * words of 8 bytes are written as a whole; the store's checksums recognise all else. */
#include "disk/disk_dax.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <emmintrin.h>
#endif

/* A longer transfer lets the core's other work run in between. */
#define PIECE_BYTES (256 * KIB)

_Static_assert(PIECE_BYTES % DAX_LINE_BYTES == 0, "pieces are whole lines");

/* ---- The processor's part. ---- */

#if defined(__x86_64__)

enum dax_flush dax_flush_best(void)
{
	unsigned a, b = 0, c, d;

	if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
		return DAX_CLFLUSH;
	return b & 1u << 24 ? DAX_CLWB : b & 1u << 23 ? DAX_CLFLUSHOPT : DAX_CLFLUSH;
}

static void line_flush(const struct dax *dax, uint8_t *at)
{
	volatile uint8_t *line = at - (uintptr_t)at % DAX_LINE_BYTES;

	if (dax->flush == DAX_CLWB)
		__asm__ volatile("clwb %0" : "+m"(*line));
	else if (dax->flush == DAX_CLFLUSHOPT)
		__asm__ volatile("clflushopt %0" : "+m"(*line));
	else
		__asm__ volatile("clflush %0" : "+m"(*line));
}

/* The target begins at a line. */
static void line_stream(const struct dax *dax, uint8_t *to, const uint8_t *from)
{
	if (dax->flush == DAX_MSYNC) {
		memcpy(to, from, DAX_LINE_BYTES);
		return;
	}
	for (uint32_t i = 0; i < DAX_LINE_BYTES; i += sizeof(__m128i))
		_mm_stream_si128((__m128i *)(void *)(to + i),
			_mm_loadu_si128((const __m128i *)(const void *)(from + i)));
}

static void fence(void)
{
	_mm_sfence();
}

#else

enum dax_flush dax_flush_best(void)
{
	return DAX_MSYNC;
}

static void line_flush(const struct dax *dax, uint8_t *at)
{
	(void)dax;
	(void)at;
}

static void line_stream(const struct dax *dax, uint8_t *to, const uint8_t *from)
{
	(void)dax;
	memcpy(to, from, DAX_LINE_BYTES);
}

static void fence(void)
{
	atomic_thread_fence(memory_order_seq_cst);
}

#endif

/* ---- Writing. ---- */

struct piece {
	uint8_t *data; /* NULL: zeros are written */
	uint64_t offset;
	uint64_t bytes;
	int ret;
};

static __attribute__((noinline, cold)) void line_made_up(const struct dax *dax, const uint8_t *at)
{
	uint64_t offset = (uint64_t)(at - dax->base);

	offset -= offset % DAX_LINE_BYTES;
	dax_domain_line(dax->domain, offset, dax->base + offset);
}

/* A part of a line, through the cache. */
static void part_write(const struct dax *dax, uint8_t *to, const uint8_t *from, uint64_t bytes)
{
	if (!bytes)
		return;
	memcpy(to, from, bytes);
	if (dax->flush != DAX_MSYNC)
		line_flush(dax, to);
	if (__builtin_expect(dax->domain != NULL, 0))
		line_made_up(dax, to);
}

static __attribute__((noinline, cold)) int kernel_flush(uint8_t *to, uint64_t bytes)
{
	uint64_t before = (uintptr_t)to % FRAME_BYTES;

	return msync(to - before, bytes + before, MS_SYNC) ? -errno : 0;
}

static void piece_write(struct disk *disk, void *arg)
{
	static const uint8_t zeros[DAX_LINE_BYTES];
	struct piece *piece = (struct piece *)arg;
	const struct dax *dax = disk->dax;
	const uint8_t *from = piece->data ? piece->data : zeros;
	uint64_t step = piece->data ? DAX_LINE_BYTES : 0;
	uint8_t *to = dax->base + piece->offset;
	uint64_t left = piece->bytes;
	uint64_t head =
		MIN((DAX_LINE_BYTES - piece->offset % DAX_LINE_BYTES) % DAX_LINE_BYTES, left);

	part_write(dax, to, from, head);
	to += head;
	from += piece->data ? head : 0;
	for (left -= head; left >= DAX_LINE_BYTES; left -= DAX_LINE_BYTES) {
		line_stream(dax, to, from);
		if (__builtin_expect(dax->domain != NULL, 0))
			line_made_up(dax, to);
		to += DAX_LINE_BYTES;
		from += step;
	}
	part_write(dax, to, from, left);
	fence();
	if (__builtin_expect(dax->domain != NULL, 0))
		dax_domain_fence(dax->domain);
	if (__builtin_expect(dax->flush == DAX_MSYNC, 0))
		piece->ret = kernel_flush(dax->base + piece->offset, piece->bytes);
}

static void piece_read(struct disk *disk, void *arg)
{
	const struct piece *piece = (const struct piece *)arg;

	region_copy(piece->data, disk->dax->base + piece->offset, piece->bytes, COPY_DAX);
}

static int piece_run(
	struct disk *disk, void (*copy)(struct disk *disk, void *arg), struct piece *piece)
{
	int ret;

	if (piece->offset > disk_bytes(disk) || piece->bytes > disk_bytes(disk) - piece->offset)
		return -EIO;
	ret = dax_guarded(disk, copy, piece);
	return ret ? ret : piece->ret;
}

int dax_write(struct disk *disk, const void *data, uint64_t bytes, uint64_t offset)
{
	struct piece piece = {.data = (uint8_t *)(uintptr_t)data, .offset = offset, .bytes = bytes};

	region_copy_count(bytes, COPY_DAX);
	return piece_run(disk, piece_write, &piece);
}

int dax_zero(struct disk *disk, uint64_t bytes, uint64_t offset)
{
	struct piece piece = {.offset = offset, .bytes = bytes};

	return piece_run(disk, piece_write, &piece);
}

int dax_read(struct disk *disk, void *data, uint64_t bytes, uint64_t offset)
{
	struct piece piece = {.data = (uint8_t *)data, .offset = offset, .bytes = bytes};

	return piece_run(disk, piece_read, &piece);
}

/* ---- Operations of a core: a piece in each turn, and the end in a turn of its own, because a
 * caller may not expect it while it starts the operation. ---- */

static int step_run(struct disk_io *io)
{
	struct disk *disk = io->disk;
	uint64_t offset = io->offset + io->moved;
	uint64_t bytes;
	int ret;

	if (io->op == DISK_ZERO) {
		bytes = MIN(io->bytes - io->moved, PIECE_BYTES);
		ret = dax_zero(disk, bytes, offset);
	} else {
		bytes = MIN((uint64_t)io->iov->iov_len, PIECE_BYTES);
		ret = io->op == DISK_READ ? dax_read(disk, io->iov->iov_base, bytes, offset)
					  : dax_write(disk, io->iov->iov_base, bytes, offset);
	}
	if (ret)
		return ret;
	io->moved += bytes;
	if (io->op != DISK_ZERO)
		disk_iov_advance(io, bytes);
	return 0;
}

static bool step_left(const struct disk_io *io)
{
	return io->op == DISK_ZERO ? io->moved < io->bytes : io->iov_count > 0;
}

/* Up to about a piece's bytes in all. */
static int turn_run(struct disk_io *io)
{
	uint64_t from = io->moved;
	int ret = 0;

	while (!ret && step_left(io) && io->moved - from < PIECE_BYTES)
		ret = step_run(io);
	return ret;
}

static void turn(struct reactor_msg *msg)
{
	struct disk_io *io = CONTAINER_OF(msg, struct disk_io, msg);
	bool copies = io->op == DISK_READ || io->op == DISK_WRITE;

	if ((copies || io->op == DISK_ZERO) && !io->split.error && step_left(io)) {
		io->split.error = turn_run(io);
		reactor_post(reactor_self(), &io->msg);
		return;
	}
	if (!io->split.error && io->op == DISK_DISCARD)
		io->split.error = -EOPNOTSUPP;
	disk_io_end(io, io->split.error ? io->split.error
			: copies	? (int32_t)MIN(io->moved, (uint64_t)INT32_MAX)
					: 0);
}

void dax_issue(struct disk_io *io, const struct disk_core *core)
{
	io->msg.fn = turn;
	io->split.error = 0;
	if (io->op == DISK_READ || io->op == DISK_WRITE || io->op == DISK_ZERO)
		io->split.error = turn_run(io);
	reactor_post(core->reactor, &io->msg);
}

bool dax_fits(const struct disk *disk, const struct disk_io *writes, uint32_t count)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < count; i++)
		for (uint32_t j = 0; j < writes[i].iov_count; j++)
			bytes += writes[i].iov[j].iov_len;
	return bytes <= PIECE_BYTES && !disk->faults.active && !atomic_load(&disk->fenced);
}

void dax_run(struct disk *disk, struct disk_io *writes, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct disk_io *io = &writes[i];

		disk_io_begin(disk, io);
		while (!io->fault && io->iov_count)
			io->fault = step_run(io);
	}
}
