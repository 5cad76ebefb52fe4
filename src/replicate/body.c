/* replicate/body.c: bytes of a version where a request can send them. The region's own frames,
 * which are held until the target has answered: nothing is copied. Where they may not be held, or
 * do not suffice, a buffer; and for what is longer than that, a file without a name. */
#include "replicate/replicate_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#define SPARE_BYTES	   (1 * GIB) /* of the data folder's disk */
#define BUFFER_BYTES_SMALL (64 * KIB)
#define BUFFER_LOOK_NS	   (50 * NS_PER_MS)

DEFINE_COUNTER_FULL(held_full, "replication_frames");
DEFINE_COUNTER_FULL(buffers_full, "replication_buffers");
DEFINE_COUNTER(buffers, "nebulaio_replication_buffer_bytes", NULL,
	"Memory of copies of bodies that are on their way to replication targets.");

_Static_assert(BODY_HELD_BYTES <= REPLICATE_RUNS_MAX * FLOW_PIECE_BYTES_MAX,
	"whole pieces of a body that may be held are not too many runs");
_Static_assert(BODY_BUFFER_BYTES <= BODY_HELD_BYTES, "what is filled by the buffer may be held");

/* ---- Runs. ---- */

/* Bytes right behind those of the last run lengthen it. */
static int run_add(struct body *body, const uint8_t *data, size_t bytes)
{
	struct slice *last = body->run_count ? &body->runs[body->run_count - 1] : NULL;

	if (last && (const uint8_t *)last->data + last->len == data)
		last->len += bytes;
	else if (body->run_count < REPLICATE_RUNS_MAX)
		body->runs[body->run_count++] = slice_of((const char *)data, bytes);
	else
		return -EMSGSIZE;
	body->bytes += bytes;
	return 0;
}

static void buffer_count(struct lane *lane, int64_t bytes)
{
	struct course *course = lane->course;

	lane->body.buffer_bytes += (uint64_t)bytes;
	course->buffer_bytes += (uint64_t)bytes;
	course->replicate->buffer_bytes += (uint64_t)bytes;
	counter_add(&buffers, (uint64_t)bytes);
}

/* A target that stands still leaves half of the memory to others. Small bodies need not wait. */
static bool may_buffer(const struct lane *lane, uint64_t bytes)
{
	const struct replicate *replicate = lane->course->replicate;
	uint64_t max = replicate->opts.buffer_bytes_max;

	return bytes <= BUFFER_BYTES_SMALL ||
	       (replicate->buffer_bytes + bytes <= max &&
		       lane->course->buffer_bytes + bytes <= max / 2);
}

/* A buffer for as many bytes, until the body is closed. Waits for the buffers of other bodies,
 * whose lanes wait for their targets alone, and not for ever. */
static int buffer_open(struct lane *lane, uint64_t bytes)
{
	struct body *body = &lane->body;

	if (body->buffer)
		return 0;
	bytes = MIN(bytes, BODY_BUFFER_BYTES);
	if (!may_buffer(lane, bytes))
		counter_add(&buffers_full, 1);
	while (!may_buffer(lane, bytes)) {
		if (atomic_load(&lane->course->replicate->ending))
			return -ECANCELED;
		fiber_sleep_ns(BUFFER_LOOK_NS);
	}
	body->buffer = malloc(bytes);
	if (!body->buffer)
		return -ENOMEM;
	buffer_count(lane, (int64_t)bytes);
	return 0;
}

static void buffer_close(struct lane *lane)
{
	free(lane->body.buffer);
	lane->body.buffer = NULL;
	buffer_count(lane, -(int64_t)lane->body.buffer_bytes);
}

/* A replicate_take_fn. */
static int take_copy(void *arg, struct flow_piece *piece)
{
	struct lane *lane = arg;
	struct body *body = &lane->body;
	uint8_t *to = body->buffer + body->bytes;
	int ret = -EMSGSIZE;

	if (piece->bytes <= body->buffer_bytes - body->bytes) {
		region_copy(to, piece->data, piece->bytes, COPY_REPLICATE);
		ret = run_add(body, to, piece->bytes);
	}
	flow_piece_end(lane->course->replicate->opts.core, piece, OWNER_APP);
	return ret;
}

/* A replicate_take_fn. Bytes outside the region are gone after the call. */
static int take_held(void *arg, struct flow_piece *piece)
{
	struct lane *lane = arg;
	struct body *body = &lane->body;
	bool borrowed = piece->hold == FLOW_HOLD_BORROWED;
	int ret = borrowed ? buffer_open(lane, body->held_bytes) : 0;

	if (!ret && borrowed && body->bytes + piece->bytes <= body->buffer_bytes)
		return take_copy(arg, piece);
	if (!ret && (borrowed || body->piece_count == BODY_PIECES_MAX))
		ret = -EMSGSIZE;
	if (!ret)
		ret = run_add(body, piece->data, piece->bytes);
	if (ret)
		flow_piece_end(lane->course->replicate->opts.core, piece, OWNER_APP);
	else
		body->pieces[body->piece_count++] = *piece;
	return ret;
}

static void held_add(struct lane *lane, int64_t bytes)
{
	struct course *course = lane->course;

	lane->body.held_bytes += (uint64_t)bytes;
	course->held_bytes += (uint64_t)bytes;
	course->replicate->held_bytes += (uint64_t)bytes;
	s3_replicate_add(course->replicate->opts.s3, slice_str(course->name),
		S3_REPLICATE_HELD_BYTES, bytes);
}

static void runs_drop(struct lane *lane)
{
	struct body *body = &lane->body;
	struct replicate *replicate = lane->course->replicate;

	while (body->piece_count)
		flow_piece_end(replicate->opts.core, &body->pieces[--body->piece_count], OWNER_APP);
	held_add(lane, -(int64_t)body->held_bytes);
	body->run_count = 0;
	body->bytes = 0;
}

/* ---- Where they lie. ---- */

/* A target that stands still leaves half of the room to others. */
static bool may_hold(struct lane *lane, uint64_t bytes)
{
	struct replicate *replicate = lane->course->replicate;
	uint64_t max = replicate->held_bytes_max;
	bool room =
		replicate->held_bytes + bytes <= max && lane->course->held_bytes + bytes <= max / 2;

	if (bytes <= BODY_HELD_BYTES && !room)
		counter_add(&held_full, 1);
	return bytes <= BODY_HELD_BYTES && room;
}

/* The fiber holds frames while it reads more. Others can wait for those, but not for ever: all that
 * is held is a part of the region, and a read that gets no frames ends. */
static int hold(struct lane *lane, const struct s3_replicate_job *job, struct replicate_range range)
{
	uint64_t bytes = ALIGN_UP(range.bytes, FRAME_BYTES);
	int ret;

	if (!may_hold(lane, bytes))
		return -ENOBUFS;
	held_add(lane, (int64_t)bytes);
	ret = replicate_read(lane->course->replicate, job, range, take_held, lane);
	if (ret)
		runs_drop(lane);
	return ret;
}

static int copy(struct lane *lane, const struct s3_replicate_job *job, struct replicate_range range)
{
	int ret = buffer_open(lane, range.bytes);

	return ret ? ret : replicate_read(lane->course->replicate, job, range, take_copy, lane);
}

/* ---- The file: on the lane's thread. It has no name, so nothing of it is left behind whatever
 * ends the process. ---- */

struct filing {
	uint64_t offset, bytes;
	int ret;
};

static int file_open(struct lane *lane)
{
	struct body *body = &lane->body;

	if (body->file < 0)
		body->file = open(
			lane->course->replicate->opts.dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	return body->file < 0 ? -errno : 0;
}

/* Takes the body's room at once, and only what the index, which is in the same folder, can spare.
 */
static void file_reserve(struct lane *lane, void *arg)
{
	struct filing *filing = arg;
	int file;
	struct statvfs room;

	filing->ret = file_open(lane);
	file = lane->body.file;
	if (!filing->ret && fstatvfs(file, &room))
		filing->ret = -errno;
	if (!filing->ret && (uint64_t)room.f_bavail * room.f_frsize < filing->bytes + SPARE_BYTES)
		filing->ret = -ENOSPC;
	if (!filing->ret && fallocate(file, 0, 0, (off_t)filing->bytes) && errno != EOPNOTSUPP)
		filing->ret = -errno;
}

static int run_write(int file, struct slice run, uint64_t offset)
{
	while (run.len) {
		ssize_t wrote = pwrite(file, run.data, run.len, (off_t)offset);

		if (wrote <= 0)
			return wrote ? -errno : -EIO;
		region_copy_count((size_t)wrote, COPY_REPLICATE);
		run = slice_from(run, (size_t)wrote);
		offset += (uint64_t)wrote;
	}
	return 0;
}

static void file_write(struct lane *lane, void *arg)
{
	struct filing *filing = arg;
	const struct body *body = &lane->body;
	uint64_t offset = filing->offset;

	filing->ret = 0;
	for (uint32_t i = 0; i < body->run_count && !filing->ret; i++) {
		filing->ret = run_write(body->file, body->runs[i], offset);
		offset += body->runs[i].len;
	}
}

static void file_empty(struct lane *lane, void *arg)
{
	(void)arg;
	if (ftruncate(lane->body.file, 0))
		log_warn("replicate", "a file of a long body stays long: %s", strerror(errno));
}

/* On the fiber again. */
static int file_fill(
	struct lane *lane, const struct s3_replicate_job *job, struct replicate_range range)
{
	struct filing filing = {.bytes = range.bytes};

	lane->body.in_file = true;
	lane_do(lane, file_reserve, &filing);
	while (!filing.ret && filing.offset < range.bytes) {
		struct replicate_range step = {.offset = range.offset + filing.offset,
			.bytes = MIN(range.bytes - filing.offset, BODY_BUFFER_BYTES)};

		if (atomic_load(&lane->course->replicate->ending))
			return -ECANCELED;
		filing.ret = hold(lane, job, step);
		if (filing.ret)
			filing.ret = copy(lane, job, step);
		if (filing.ret)
			break;
		lane_do(lane, file_write, &filing);
		filing.offset += step.bytes;
		runs_drop(lane);
	}
	/* The target reads the file. */
	buffer_close(lane);
	return filing.ret;
}

int body_map(struct lane *lane)
{
	struct body *body = &lane->body;
	void *map;

	if (!body->in_file)
		return 0;
	map = mmap(NULL, body->map_bytes, PROT_READ, MAP_SHARED, body->file, 0);
	if (map == MAP_FAILED)
		return -errno;
	body->map = map;
	body->runs[0] = slice_of(map, body->map_bytes);
	return 0;
}

void body_unmap(struct lane *lane)
{
	struct body *body = &lane->body;

	if (body->map)
		munmap(body->map, body->map_bytes);
	body->map = NULL;
}

/* ---- Bodies. ---- */

void body_init(struct body *body)
{
	*body = (struct body){.file = -1};
}

void body_free(struct body *body)
{
	CHECK(!body->piece_count && !body->map && !body->buffer);
	if (body->file >= 0)
		close(body->file);
	body_init(body);
}

int body_open(
	struct lane *lane, const struct s3_replicate_job *job, uint64_t offset, uint64_t bytes)
{
	const struct replicate_range range = {offset, bytes};
	int ret;

	CHECK(!lane->body.run_count && !lane->body.in_file);
	if (!bytes || !hold(lane, job, range))
		return 0;
	if (bytes <= BODY_BUFFER_BYTES)
		return copy(lane, job, range);
	ret = file_fill(lane, job, range);
	lane->body.map_bytes = bytes;
	lane->body.run_count = 1;
	return ret;
}

void body_close(struct lane *lane)
{
	struct body *body = &lane->body;

	runs_drop(lane);
	buffer_close(lane);
	if (body->in_file && body->file >= 0)
		lane_do(lane, file_empty, NULL);
	body->in_file = false;
}
