/* disk/disk_array_io.c: reads and writes stripes and mirrored ranges on the available members, on a
 * fiber or blocking, and computes the shards of missing members from the others. */
#include "disk/disk_array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

DEFINE_COUNTER(degraded_reads, "nebulaio_array_degraded_reads_total", NULL,
	"Shards computed from the others because their volume is missing or failed a read.");
DEFINE_COUNTER(degraded_writes, "nebulaio_array_degraded_writes_total", NULL,
	"Stripes written while at least one volume was missing.");

static const uint8_t ZEROS[DISK_STRIPE_BLOCKS_MAX * DISK_ALIGN_BYTES];

struct stripe array_stripe(const struct array *array, uint64_t block)
{
	struct stripe stripe = {.geometry = &array->geometries[disk_stripe_slot(block)],
		.first = disk_stripe_first(block),
		.blocks = disk_stripe_blocks(block)};
	uint32_t data = stripe.geometry->data;

	stripe.width = (stripe.blocks + data - 1) / data;
	/* A run never crosses a multiple of DISK_STRIPE_BLOCKS_MAX blocks, so a stripe has one
	 * turn. */
	stripe.turn = (uint32_t)(stripe.first / DISK_STRIPE_BLOCKS_MAX % stripe.geometry->count);
	return stripe;
}

uint32_t array_shard_blocks(const struct stripe *stripe, uint32_t shard)
{
	uint32_t before = shard * stripe->width;

	if (shard >= stripe->geometry->data)
		return stripe->width;
	return before >= stripe->blocks ? 0 : MIN(stripe->blocks - before, stripe->width);
}

/* ---- Transfers. ---- */

static void transfer_done(struct disk_io *io, int32_t result)
{
	struct array_transfer *transfer = CONTAINER_OF(io, struct array_transfer, io);

	transfer->result = result < 0 ? result : 0;
	if (--transfer->batch->pending == 0)
		fiber_wake(transfer->batch->fiber);
}

void array_batch_add(struct array_batch *batch, enum disk_op op, uint32_t member, void *data,
	uint64_t bytes, uint64_t offset)
{
	struct array_transfer *transfer = &batch->transfers[batch->count++];

	transfer->batch = batch;
	transfer->disk = batch->array->members[member].disk;
	transfer->member = member;
	transfer->result = 0;
	transfer->iov = (struct iovec){data, bytes};
	transfer->io.op = op;
	transfer->io.iov = &transfer->iov;
	transfer->io.iov_count = data ? 1 : 0;
	transfer->io.offset = offset;
	transfer->io.bytes = bytes;
	transfer->io.done = transfer_done;
}

static int32_t transfer_now(const struct array_transfer *transfer)
{
	const struct iovec *iov = &transfer->iov;
	struct disk *disk = transfer->disk;

	if (transfer->io.op == DISK_READ)
		return disk_read_now(disk, iov->iov_base, iov->iov_len, transfer->io.offset);
	if (transfer->io.op == DISK_WRITE)
		return disk_write_now(disk, iov->iov_base, iov->iov_len, transfer->io.offset);
	return transfer->io.op == DISK_FLUSH ? disk_flush_now(disk) : -EOPNOTSUPP;
}

void array_batch_run(struct array_batch *batch)
{
	batch->fiber = reactor_self() ? fiber_self() : NULL;
	batch->pending = batch->count;
	for (uint32_t i = 0; i < batch->count; i++) {
		struct array_transfer *transfer = &batch->transfers[i];

		if (batch->fiber)
			disk_start(transfer->disk, &transfer->io);
		else
			transfer->result = transfer_now(transfer);
	}
	while (batch->fiber && batch->pending)
		fiber_park();
}

static struct array_batch *batch_open(struct array *array)
{
	struct array_batch *batch = (struct array_batch *)calloc(1, sizeof(*batch));

	if (batch)
		batch->array = array;
	return batch;
}

/* A failed read is computed from the other members. A member that is lost is given up after a read,
 * too. */
static void lost_take(struct disk *disk, const struct array_batch *batch)
{
	for (uint32_t i = 0; i < batch->count; i++)
		if (batch->transfers[i].result == -ENOTCONN)
			array_member_fail(disk, batch->transfers[i].member, -ENOTCONN);
}

/* Memory for parity, or to compute a shard in: frames of the region, so that members can move them
 * as they are; from the heap where there is no reactor, or where the region has none. */
struct scratch {
	uint8_t *data;
	struct region *region; /* NULL: the heap's */
	struct region_span span;
};

static int scratch_lease(const struct disk *disk, uint64_t bytes, struct scratch *ret_scratch)
{
	struct reactor *reactor = reactor_self();
	struct region *region = reactor ? disk->cores[reactor_core_idx(reactor)].region : NULL;
	void *memory;

	if (region && bytes <= LIMIT_SPAN_FRAMES_MAX * (uint64_t)FRAME_BYTES &&
		region_lease(region, region_frames_for(bytes), OWNER_DISK, &ret_scratch->span) ==
			0) {
		ret_scratch->region = region;
		ret_scratch->data = ret_scratch->span.data;
		return 0;
	}
	if (posix_memalign(&memory, DISK_ALIGN_BYTES, bytes))
		return -ENOMEM;
	ret_scratch->region = NULL;
	ret_scratch->data = (uint8_t *)memory;
	return 0;
}

static void scratch_give(struct scratch *scratch)
{
	if (scratch->region)
		region_give(scratch->region, scratch->span, OWNER_DISK);
	else
		free(scratch->data);
}

/* ---- Reads. ---- */

/* Bytes of one shard from each of enough others, zeros where they have no data. */
struct rescue {
	struct array *array;
	const struct stripe *stripe;
	struct array_part part;
	uint32_t have;
	uint8_t *memory;
	void *shards[EC_SHARDS_MAX];
};

/* One try: chooses the sources and reads them. 0; -EAGAIN: one failed and is avoided now; -EIO,
 * -EHOSTDOWN: there are not enough. */
static int rescue_try(struct disk *disk, struct rescue *rescue, struct array_batch *batch)
{
	const struct array *array = rescue->array;
	const struct array_geometry *geometry = rescue->stripe->geometry;
	uint64_t bytes = rescue->part.to - rescue->part.from;
	uint32_t chosen = 0;
	int ret = 0;

	batch->count = 0;
	rescue->have = 0;
	for (uint32_t s = 0; s < geometry->count && chosen < geometry->data; s++) {
		uint32_t member = array_member_of(rescue->stripe, s);
		uint64_t real = (uint64_t)array_shard_blocks(rescue->stripe, s) * DISK_ALIGN_BYTES;
		uint8_t *data = rescue->memory + chosen * bytes;

		real = real > rescue->part.from ? MIN(real - rescue->part.from, bytes) : 0;
		if (s == rescue->part.shard ||
			(real && !array_source(array, member, rescue->part.sources)))
			continue;
		memset(data + real, 0, bytes - real);
		if (real)
			array_batch_add(batch, DISK_READ, member, data, real,
				rescue->stripe->first * DISK_ALIGN_BYTES + rescue->part.from);
		rescue->shards[s] = data;
		rescue->have |= 1u << s;
		chosen++;
	}
	if (chosen < geometry->data)
		return disk_array_quorum(disk) ? -EIO : -EHOSTDOWN;
	array_batch_run(batch);
	lost_take(disk, batch);
	for (uint32_t i = 0; i < batch->count; i++)
		if (batch->transfers[i].result) {
			rescue->part.sources.avoid |= 1ull << batch->transfers[i].member;
			ret = -EAGAIN;
		}
	return ret;
}

int array_rescue(struct disk *disk, const struct stripe *stripe, const struct array_part *part,
	uint8_t *data)
{
	struct array *array = disk->array;
	uint64_t bytes = part->to - part->from;
	struct rescue rescue = {.array = array, .stripe = stripe, .part = *part};
	struct array_batch *batch = batch_open(array);
	struct scratch scratch;
	int ret;

	if (!batch || scratch_lease(disk, stripe->geometry->data * bytes, &scratch)) {
		free(batch);
		return -ENOMEM;
	}
	rescue.memory = scratch.data;
	counter_add(&degraded_reads, 1);
	do {
		ret = rescue_try(disk, &rescue, batch);
	} while (ret == -EAGAIN);
	rescue.shards[part->shard] = data;
	if (!ret)
		ret = ec_reconstruct(&stripe->geometry->ec, bytes, rescue.shards, rescue.have,
			1u << part->shard);
	scratch_give(&scratch);
	free(batch);
	return ret;
}

static int stripe_read(struct disk *disk, uint8_t *data, uint64_t bytes, uint64_t offset,
	struct array_sources sources)
{
	struct array *array = disk->array;
	struct stripe stripe = array_stripe(array, offset / DISK_ALIGN_BYTES);
	uint64_t shard_bytes = (uint64_t)stripe.width * DISK_ALIGN_BYTES;
	uint64_t from = offset % MIB, to = from + bytes;
	struct array_batch *batch = batch_open(array);
	uint32_t lost = 0;
	int ret = 0;

	if (!batch)
		return -ENOMEM;
	for (uint64_t at = from; at < to;) {
		uint32_t shard = (uint32_t)(at / shard_bytes);
		uint32_t member = array_member_of(&stripe, shard);
		uint64_t end = MIN(to, (shard + 1) * shard_bytes);

		if (array_source(array, member, sources)) {
			batch->transfers[batch->count].shard = shard;
			array_batch_add(batch, DISK_READ, member, data + (at - from), end - at,
				stripe.first * DISK_ALIGN_BYTES + at % shard_bytes);
		} else {
			lost |= 1u << shard;
		}
		at = end;
	}
	array_batch_run(batch);
	lost_take(disk, batch);
	for (uint32_t i = 0; i < batch->count; i++)
		if (batch->transfers[i].result)
			lost |= 1u << batch->transfers[i].shard;
	free(batch);
	for (uint32_t shard = 0; lost >> shard && !ret; shard++) {
		uint64_t begin = MAX(from, shard * shard_bytes);

		const struct array_part part = {.shard = shard,
			.from = begin - shard * shard_bytes,
			.to = MIN(to, (shard + 1) * shard_bytes) - shard * shard_bytes,
			.sources = sources};

		if (lost >> shard & 1)
			ret = array_rescue(disk, &stripe, &part, data + (begin - from));
	}
	return ret;
}

static int mirror_read(struct disk *disk, uint8_t *data, uint64_t bytes, uint64_t offset,
	struct array_sources sources)
{
	struct array *array = disk->array;
	struct array_batch *batch = batch_open(array);
	int ret = batch ? -EIO : -ENOMEM;

	for (uint64_t log = atomic_load(&array->log); log && ret == -EIO; log &= log - 1) {
		uint32_t i = (uint32_t)__builtin_ctzll(log);

		if (!array_source(array, i, sources))
			continue;
		batch->count = 0;
		array_batch_add(batch, DISK_READ, i, data, bytes, offset);
		array_batch_run(batch);
		lost_take(disk, batch);
		ret = batch->transfers[0].result ? -EIO : 0;
	}
	free(batch);
	return ret == -EIO && !disk_array_quorum(disk) ? -EHOSTDOWN : ret;
}

int array_read(struct disk *disk, uint8_t *data, uint64_t bytes, uint64_t offset,
	struct array_sources sources)
{
	if (!disk_in_range(disk, offset, bytes))
		return -EIO;
	return disk_stripe_is(offset / DISK_ALIGN_BYTES)
		       ? stripe_read(disk, data, bytes, offset, sources)
		       : mirror_read(disk, data, bytes, offset, sources);
}

/* ---- Writes. ---- */

/* Parity over the columns [from, to) of the shards. A shard whose data ends before counts as
 * zeros. */
static int columns_encode(const struct stripe *stripe, const uint8_t *data, uint8_t *parity,
	const uint64_t columns[2])
{
	const struct array_geometry *geometry = stripe->geometry;
	uint64_t shard_bytes = (uint64_t)stripe->width * DISK_ALIGN_BYTES;
	const void *from[EC_DATA_MAX];
	void *to[EC_PARITY_MAX];

	if (columns[0] == columns[1])
		return 0;
	for (uint32_t s = 0; s < geometry->data; s++) {
		uint64_t real = (uint64_t)array_shard_blocks(stripe, s) * DISK_ALIGN_BYTES;

		from[s] = real > columns[0] ? data + s * shard_bytes + columns[0] : ZEROS;
	}
	for (uint32_t p = 0; p < geometry->parity; p++)
		to[p] = parity + p * shard_bytes + columns[0];
	return ec_encode(&geometry->ec, columns[1] - columns[0], from, to);
}

int array_encode(const struct stripe *stripe, const uint8_t *data, uint8_t *parity)
{
	uint64_t width = (uint64_t)stripe->width * DISK_ALIGN_BYTES;
	/* Where the last shard with data ends. */
	uint64_t end =
		(uint64_t)(stripe->blocks - (stripe->blocks - 1) / stripe->width * stripe->width) *
		DISK_ALIGN_BYTES;
	int ret = columns_encode(stripe, data, parity, (const uint64_t[2]){0, end});

	return ret ? ret : columns_encode(stripe, data, parity, (const uint64_t[2]){end, width});
}

/* Gives up members whose write failed. */
static void failures_take(struct disk *disk, const struct array_batch *batch)
{
	for (uint32_t i = 0; i < batch->count; i++)
		if (batch->transfers[i].result)
			array_member_fail(
				disk, batch->transfers[i].member, batch->transfers[i].result);
}

static int stripe_write(struct disk *disk, uint8_t *data, uint64_t bytes, uint64_t offset)
{
	struct array *array = disk->array;
	struct stripe stripe = array_stripe(array, offset / DISK_ALIGN_BYTES);
	const struct array_geometry *geometry = stripe.geometry;
	uint64_t shard_bytes = (uint64_t)stripe.width * DISK_ALIGN_BYTES;
	struct array_batch *batch;
	uint32_t skipped = 0;
	struct scratch parity;
	int ret;

	if (offset % MIB || bytes != (uint64_t)stripe.blocks * DISK_ALIGN_BYTES)
		return -EINVAL;
	batch = batch_open(array);
	if (!batch || scratch_lease(disk, geometry->parity * shard_bytes, &parity)) {
		free(batch);
		return -ENOMEM;
	}
	ret = array_encode(&stripe, data, parity.data);
	for (uint32_t s = 0; s < geometry->count && !ret; s++) {
		uint32_t member = array_member_of(&stripe, s);
		uint64_t real = (uint64_t)array_shard_blocks(&stripe, s) * DISK_ALIGN_BYTES;
		uint8_t *shard = s < geometry->data
					 ? data + s * shard_bytes
					 : parity.data + (s - geometry->data) * shard_bytes;

		if (real && array_writable(array, member))
			array_batch_add(batch, DISK_WRITE, member, shard, real,
				stripe.first * DISK_ALIGN_BYTES);
		else
			skipped += real != 0;
	}
	if (!ret)
		array_batch_run(batch);
	failures_take(disk, batch);
	if (skipped)
		counter_add(&degraded_writes, 1);
	scratch_give(&parity);
	free(batch);
	return ret ? ret : disk_array_quorum(disk) ? 0 : -EHOSTDOWN;
}

static int mirror_write(struct disk *disk, uint8_t *data, uint64_t bytes, uint64_t offset)
{
	struct array *array = disk->array;
	struct array_batch *batch = batch_open(array);

	if (!batch)
		return -ENOMEM;
	for (uint64_t log = atomic_load(&array->log); log; log &= log - 1) {
		uint32_t i = (uint32_t)__builtin_ctzll(log);

		if (array_writable(array, i))
			array_batch_add(batch, DISK_WRITE, i, data, bytes, offset);
	}
	array_batch_run(batch);
	failures_take(disk, batch);
	free(batch);
	return disk_array_quorum(disk) ? 0 : -EHOSTDOWN;
}

int array_write(struct disk *disk, uint8_t *data, uint64_t bytes, uint64_t offset)
{
	if (!disk_in_range(disk, offset, bytes))
		return -EIO;
	return disk_stripe_is(offset / DISK_ALIGN_BYTES) ? stripe_write(disk, data, bytes, offset)
							 : mirror_write(disk, data, bytes, offset);
}

int array_flush(struct disk *disk)
{
	struct array *array = disk->array;
	struct array_batch *batch = batch_open(array);

	if (!batch)
		return -ENOMEM;
	for (uint32_t i = 0; i < DISK_MEMBERS_MAX; i++)
		if (array_writable(array, i))
			array_batch_add(batch, DISK_FLUSH, i, NULL, 0, 0);
	array_batch_run(batch);
	failures_take(disk, batch);
	free(batch);
	return disk_array_quorum(disk) ? 0 : -EHOSTDOWN;
}

/* Discards on one member after the other, because a block device's discard holds one of the few
 * helper threads. A member whose discard fails stays good: no reader relies on that space. */
int array_discard(struct disk *disk, uint64_t bytes, uint64_t offset)
{
	struct array *array = disk->array;
	struct array_batch *batch;
	int ret = 0;

	if (disk_stripe_is(offset / DISK_ALIGN_BYTES) || !disk_in_range(disk, offset, bytes))
		return -EINVAL;
	batch = batch_open(array);
	if (!batch)
		return -ENOMEM;
	for (uint32_t i = 0; i < DISK_MEMBERS_MAX; i++) {
		int32_t result;

		if (!array_writable(array, i) || !disk_can_discard(array->members[i].disk))
			continue;
		batch->count = 0;
		array_batch_add(batch, DISK_DISCARD, i, NULL, bytes, offset);
		array_batch_run(batch);
		result = batch->transfers[0].result;
		if (result && result != -EOPNOTSUPP && result != -ENOTCONN)
			ret = result;
	}
	free(batch);
	return ret;
}
