/* disk/disk_array_mend.c: repairs after a checksum showed that a member returned wrong bytes: reads
 * the data in other ways, and rebuilds a member's part of a stripe. */
#include "disk/disk_array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

DEFINE_COUNTER(amended, "nebulaio_array_amended_total", NULL,
	"Pieces that were wrong on a volume and were written again.");
DEFINE_COUNTER(rebuilt_bytes, "nebulaio_array_rebuilt_bytes_total", NULL,
	"Bytes written to volumes that are rebuilt.");

/* The members that a way leaves out: each one alone, then each two. 0: there are no more ways. */
static uint64_t way_avoids(const struct array_geometry *geometry, uint32_t way)
{
	const uint8_t *order = geometry->numbers.order;

	if (way < geometry->count)
		return 1ull << order[way];
	way -= geometry->count;
	for (uint32_t a = 0; a < geometry->count; a++)
		for (uint32_t b = a + 1; b < geometry->count; b++)
			if (way-- == 0)
				return 1ull << order[a] | 1ull << order[b];
	return 0;
}

static const struct array_geometry *geometry_of(const struct array *array, uint64_t offset)
{
	return &array->geometries[disk_stripe_slot(offset / DISK_ALIGN_BYTES)];
}

int disk_array_reread(struct disk *disk, void *data, uint32_t bytes, uint64_t offset, uint32_t way)
{
	uint64_t avoid = disk->array ? way_avoids(geometry_of(disk->array, offset), way) : 0;

	return avoid ? array_read(disk, (uint8_t *)data, bytes, offset, avoid) : -ENOENT;
}

int disk_array_amend(
	struct disk *disk, const void *data, uint32_t bytes, uint64_t offset, uint32_t way)
{
	struct array *array = disk->array;
	struct stripe stripe = array_stripe(array, offset / DISK_ALIGN_BYTES);
	uint64_t shard_bytes = (uint64_t)stripe.width * DISK_ALIGN_BYTES;
	uint64_t from = offset % MIB, to = from + bytes;
	uint64_t avoid = way_avoids(stripe.geometry, way);
	struct array_batch *batch = (struct array_batch *)calloc(1, sizeof(*batch));
	int ret = 0;

	if (!batch)
		return -ENOMEM;
	batch->array = array;
	for (uint64_t at = from; at < to;) {
		uint32_t shard = (uint32_t)(at / shard_bytes);
		uint32_t member = array_member_of(&stripe, shard);
		uint64_t end = MIN(to, (shard + 1) * shard_bytes);

		/* A write only reads the data. */
		if ((avoid >> member & 1) && array_writable(array, member))
			array_batch_add(batch, DISK_WRITE, member,
				(uint8_t *)(uintptr_t)data + (at - from), end - at,
				stripe.first * DISK_ALIGN_BYTES + at % shard_bytes);
		at = end;
	}
	array_batch_run(batch);
	for (uint32_t i = 0; i < batch->count; i++) {
		if (batch->transfers[i].result)
			ret = batch->transfers[i].result;
		log_warn("disk", "volume %u (%s): %llu bytes at %llu were wrong: %s",
			batch->transfers[i].member,
			array->members[batch->transfers[i].member].disk->path,
			(unsigned long long)batch->transfers[i].iov.iov_len,
			(unsigned long long)batch->transfers[i].io.offset,
			ret ? "and cannot be written again" : "written anew");
	}
	counter_add(&amended, 1);
	free(batch);
	return ret;
}

/* The member's shard of a stripe; the geometry's count: it has none. */
static uint32_t shard_of(const struct stripe *stripe, uint32_t member)
{
	uint32_t shard = 0;

	while (shard < stripe->geometry->count && array_member_of(stripe, shard) != member)
		shard++;
	return shard;
}

int disk_array_rebuild(struct disk *disk, uint64_t block, uint32_t member)
{
	struct array *array = disk->array;
	struct stripe stripe = array_stripe(array, block);
	uint32_t shard = shard_of(&stripe, member);
	uint64_t bytes = shard < stripe.geometry->count
				 ? (uint64_t)array_shard_blocks(&stripe, shard) * DISK_ALIGN_BYTES
				 : 0;
	const struct array_part part = {.shard = shard, .to = bytes};
	struct array_batch *batch;
	void *data;
	int ret;

	if (!bytes)
		return 0;
	if (!array_writable(array, member))
		return -EIO;
	if (posix_memalign(&data, DISK_ALIGN_BYTES, bytes))
		return -ENOMEM;
	batch = (struct array_batch *)calloc(1, sizeof(*batch));
	ret = batch ? array_rescue(disk, &stripe, &part, (uint8_t *)data) : -ENOMEM;
	if (!ret) {
		batch->array = array;
		array_batch_add(
			batch, DISK_WRITE, member, data, bytes, stripe.first * DISK_ALIGN_BYTES);
		array_batch_run(batch);
		ret = batch->transfers[0].result;
		counter_add(&rebuilt_bytes, bytes);
	}
	free(batch);
	free(data);
	return ret;
}

/* Reads shard s of parity and compares it with the right one. True: it differs, or it could not be
 * read. */
static bool parity_differs(
	struct array_batch *batch, const struct stripe *stripe, uint32_t s, uint8_t *right)
{
	struct array *array = batch->array;
	uint64_t bytes = (uint64_t)stripe->width * DISK_ALIGN_BYTES;
	uint32_t member = array_member_of(stripe, stripe->geometry->data + s);
	uint8_t *lies = right + stripe->geometry->parity * bytes;

	if (!array_readable(array, member, 0))
		return false;
	batch->count = 0;
	array_batch_add(batch, DISK_READ, member, lies, bytes, stripe->first * DISK_ALIGN_BYTES);
	array_batch_run(batch);
	if (!batch->transfers[0].result && memcmp(lies, right + s * bytes, bytes) == 0)
		return false;
	log_warn("disk", "volume %u (%s): parity at %llu was wrong", member,
		batch->transfers[0].disk->path,
		(unsigned long long)(stripe->first * DISK_ALIGN_BYTES));
	return true;
}

static int parity_check(
	const struct stripe *stripe, bool amend, struct array_batch *batch, uint8_t *data)
{
	const struct array_geometry *geometry = stripe->geometry;
	uint64_t bytes = (uint64_t)stripe->width * DISK_ALIGN_BYTES;
	uint8_t *parity = data + geometry->data * bytes;
	const void *from[EC_DATA_MAX];
	void *to[EC_PARITY_MAX];
	int wrong = 0;

	for (uint32_t s = 0; s < geometry->data; s++)
		from[s] = data + s * bytes;
	for (uint32_t p = 0; p < geometry->parity; p++)
		to[p] = parity + p * bytes;
	if (ec_encode(&geometry->ec, bytes, from, to))
		return -EINVAL;
	for (uint32_t p = 0; p < geometry->parity; p++) {
		if (!parity_differs(batch, stripe, p, parity))
			continue;
		wrong++;
		if (!amend)
			continue;
		batch->count = 0;
		array_batch_add(batch, DISK_WRITE, array_member_of(stripe, geometry->data + p),
			parity + p * bytes, bytes, stripe->first * DISK_ALIGN_BYTES);
		array_batch_run(batch);
	}
	return wrong;
}

int disk_array_parity(struct disk *disk, uint64_t block, bool amend, uint32_t *ret_wrong)
{
	struct array *array = disk->array;
	struct stripe stripe = array_stripe(array, block);
	uint64_t bytes = (uint64_t)stripe.width * DISK_ALIGN_BYTES;
	uint64_t real = (uint64_t)stripe.blocks * DISK_ALIGN_BYTES;
	struct array_batch *batch = (struct array_batch *)calloc(1, sizeof(*batch));
	void *data = NULL;
	int ret = -ENOMEM;

	/* The data, the right parity, and one shard of the parity as the member has it. */
	if (batch && posix_memalign(
			     &data, DISK_ALIGN_BYTES, (stripe.geometry->count + 1) * bytes) == 0) {
		batch->array = array;
		memset(data, 0, stripe.geometry->data * bytes);
		ret = array_read(disk, (uint8_t *)data, real, block * DISK_ALIGN_BYTES, 0);
	}
	if (!ret)
		ret = parity_check(&stripe, amend, batch, (uint8_t *)data);
	free(data);
	free(batch);
	if (ret < 0)
		return ret;
	*ret_wrong = (uint32_t)ret;
	return 0;
}
