/* disk/disk_array_mend.c: repairs after a checksum showed that a member returned wrong bytes: reads
 * the data in other ways, compares parity with right data, and rebuilds a member's part of a
 * stripe. */
#include "disk/disk_array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

DEFINE_COUNTER(amended, "nebulaio_array_amended_total", NULL,
	"Pieces that were wrong on a volume and were written again.");
DEFINE_COUNTER(rebuilt_bytes, "nebulaio_array_rebuilt_bytes_total", NULL,
	"Bytes written to volumes that are rebuilt.");

/* Number n of these sets: each of the members alone, then each two of them. 0: there are no more.
 */
static uint64_t few_of(const struct array_geometry *geometry, uint64_t members, uint32_t n)
{
	const uint8_t *order = geometry->numbers.order;

	for (uint32_t a = 0; a < geometry->count; a++)
		if ((members >> order[a] & 1) && n-- == 0)
			return 1ull << order[a];
	for (uint32_t a = 0; a < geometry->count; a++)
		for (uint32_t b = a + 1; b < geometry->count; b++)
			if ((members >> order[a] & 1) && (members >> order[b] & 1) && n-- == 0)
				return 1ull << order[a] | 1ull << order[b];
	return 0;
}

static uint32_t few_count(uint64_t members)
{
	uint32_t count = (uint32_t)__builtin_popcountll(members);

	return count + count * (count - 1) / 2;
}

/* Ways: first the good members but one or two. Then these, and one or two of those that
 * are rebuilt, which may have their part of the stripe although they lack others. avoid 0: there
 * are no more ways. */
static struct array_sources way_sources(
	const struct array_geometry *geometry, const struct disk_way *way)
{
	uint32_t plain = few_count(geometry->members), number = way->number - plain;
	uint64_t spares = way->spares & geometry->members;

	if (way->number < plain)
		return (struct array_sources){
			.avoid = few_of(geometry, geometry->members, way->number)};
	if (!spares)
		return (struct array_sources){0};
	return (struct array_sources){
		.avoid = few_of(geometry, geometry->members & ~spares, number / few_count(spares)),
		.also = few_of(geometry, spares, number % few_count(spares))};
}

static const struct array_geometry *geometry_of(const struct array *array, uint64_t offset)
{
	return &array->geometries[disk_stripe_slot(offset / DISK_ALIGN_BYTES)];
}

struct disk_way disk_array_way_first(const struct disk *disk)
{
	struct disk_way way = {0};

	for (uint64_t left = disk_array_mask(disk); left; left &= left - 1) {
		uint32_t i = (uint32_t)__builtin_ctzll(left);

		if (disk_array_state(disk, i) == DISK_MEMBER_REBUILDING)
			way.spares |= 1ull << i;
	}
	return way;
}

int disk_array_reread(
	struct disk *disk, void *data, uint32_t bytes, uint64_t offset, const struct disk_way *way)
{
	struct array_sources sources = {0};

	if (disk->array)
		sources = way_sources(geometry_of(disk->array, offset), way);
	return sources.avoid ? array_read(disk, (uint8_t *)data, bytes, offset, sources) : -ENOENT;
}

/* ---- A member's part of a stripe, as it should be. ---- */

struct member_part {
	uint32_t member;
	const uint8_t *right;
	uint64_t bytes, offset;
};

static int32_t part_run(
	struct array_batch *batch, enum disk_op op, const struct member_part *part, void *data)
{
	batch->count = 0;
	array_batch_add(batch, op, part->member, data, part->bytes, part->offset);
	array_batch_run(batch);
	return batch->transfers[0].result;
}

/* Reads it from the member and compares: 0; -EBADMSG: the member has other bytes; -errno. read:
 * room for as many bytes. */
static int part_compare(struct array_batch *batch, const struct member_part *part, uint8_t *read)
{
	int32_t result = part_run(batch, DISK_READ, part, read);

	return result ? result : memcmp(read, part->right, part->bytes) ? -EBADMSG : 0;
}

/* Writes it to the member, and reads it again, because the member was wrong before. 0; -errno
 * (logged); -ENOTCONN: the member is gone, and is rebuilt when it is back. */
static int part_mend(
	struct array_batch *batch, const struct member_part *part, uint8_t *read, const char *what)
{
	/* A write only reads the data. */
	int ret = part_run(batch, DISK_WRITE, part, (void *)(uintptr_t)part->right);
	const char *path = batch->transfers[0].disk->path;

	if (!ret)
		ret = part_compare(batch, part, read);
	if (!ret)
		log_warn("disk",
			"volume %u (%s): %llu bytes of %s at %llu were wrong: written anew",
			part->member, path, (unsigned long long)part->bytes, what,
			(unsigned long long)part->offset);
	else if (ret != -ENOTCONN)
		log_error("disk",
			"volume %u (%s): %llu bytes of %s at %llu are wrong and could not be "
			"written anew: %s: the other volumes have the right ones; if it stays so, "
			"replace the volume",
			part->member, path, (unsigned long long)part->bytes, what,
			(unsigned long long)part->offset,
			ret == -EBADMSG ? "it does not keep what is written there"
					: strerror(-ret));
	return ret;
}

int disk_array_amend(struct disk *disk, const void *data, uint32_t bytes, uint64_t offset,
	const struct disk_way *way)
{
	struct array *array = disk->array;
	struct stripe stripe = array_stripe(array, offset / DISK_ALIGN_BYTES);
	uint64_t shard_bytes = (uint64_t)stripe.width * DISK_ALIGN_BYTES;
	uint64_t from = offset % MIB, to = from + bytes;
	uint64_t avoid = way_sources(stripe.geometry, way).avoid;
	struct array_batch *batch = (struct array_batch *)calloc(1, sizeof(*batch));
	void *read = NULL;
	int ret = 0;

	if (!batch || posix_memalign(&read, DISK_ALIGN_BYTES, bytes)) {
		free(batch);
		return -ENOMEM;
	}
	batch->array = array;
	for (uint64_t at = from; at < to;) {
		uint32_t shard = (uint32_t)(at / shard_bytes);
		uint64_t end = MIN(to, (shard + 1) * shard_bytes);
		const struct member_part part = {.member = array_member_of(&stripe, shard),
			.right = (const uint8_t *)data + (at - from),
			.bytes = end - at,
			.offset = stripe.first * DISK_ALIGN_BYTES + at % shard_bytes};

		if ((avoid >> part.member & 1) && array_writable(array, part.member)) {
			int error = part_mend(batch, &part, (uint8_t *)read, "data");

			ret = error && error != -ENOTCONN ? -EIO : ret;
		}
		at = end;
	}
	counter_add(&amended, !ret);
	free(read);
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

uint64_t disk_array_stripe_members(const struct disk *disk, uint64_t block)
{
	struct stripe stripe = array_stripe(disk->array, block);
	uint64_t members = 0;

	for (uint32_t s = 0; s < stripe.geometry->count; s++)
		if (array_shard_blocks(&stripe, s))
			members |= 1ull << array_member_of(&stripe, s);
	return members;
}

/* A shard of the stripe's data, or of its parity. made: room for it. */
static int shard_make(
	const struct stripe *stripe, uint32_t shard, const uint8_t *data, uint8_t *made)
{
	uint64_t bytes = (uint64_t)array_shard_blocks(stripe, shard) * DISK_ALIGN_BYTES;
	uint64_t width = (uint64_t)stripe->width * DISK_ALIGN_BYTES;
	const struct array_geometry *geometry = stripe->geometry;
	void *parity;
	int ret;

	if (shard < geometry->data) {
		memcpy(made, data + shard * width, bytes);
		return 0;
	}
	if (posix_memalign(&parity, DISK_ALIGN_BYTES, geometry->parity * width))
		return -ENOMEM;
	ret = array_encode(stripe, data, (uint8_t *)parity);
	if (!ret)
		memcpy(made, (uint8_t *)parity + (shard - geometry->data) * width, bytes);
	free(parity);
	return ret;
}

/* Whether the data that block c of a shard has, or is computed from, is right. */
static bool column_right(const struct stripe *stripe, uint32_t shard, uint32_t c, const bool *wrong)
{
	uint32_t from = 0, to = stripe->geometry->data;

	if (!wrong)
		return true;
	if (shard < to) {
		from = shard;
		to = shard + 1;
	}
	for (uint32_t s = from; s < to; s++)
		if (c < array_shard_blocks(stripe, s) && wrong[s * stripe->width + c])
			return false;
	return true;
}

/* Writes the shard but for columns that may be wrong. */
static int32_t shard_write(struct array_batch *batch, const struct stripe *stripe, uint32_t shard,
	const uint8_t *made, const bool *wrong)
{
	uint32_t blocks = array_shard_blocks(stripe, shard), end;
	int32_t result = 0;

	for (uint32_t c = 0; c < blocks && !result; c = end) {
		struct member_part part = {.member = array_member_of(stripe, shard),
			.right = made + (uint64_t)c * DISK_ALIGN_BYTES,
			.offset = (stripe->first + c) * DISK_ALIGN_BYTES};
		bool right = column_right(stripe, shard, c, wrong);

		for (end = c + 1; end < blocks && column_right(stripe, shard, end, wrong) == right;)
			end++;
		if (!right)
			continue;
		part.bytes = (uint64_t)(end - c) * DISK_ALIGN_BYTES;
		/* A write only reads the data. */
		result = part_run(batch, DISK_WRITE, &part, (void *)(uintptr_t)part.right);
		counter_add(&rebuilt_bytes, part.bytes);
	}
	return result;
}

int disk_array_rebuild(
	struct disk *disk, uint64_t block, uint32_t member, const void *data, const bool *wrong)
{
	struct array *array = disk->array;
	struct stripe stripe = array_stripe(array, block);
	uint32_t shard = shard_of(&stripe, member);
	uint64_t bytes = shard < stripe.geometry->count
				 ? (uint64_t)array_shard_blocks(&stripe, shard) * DISK_ALIGN_BYTES
				 : 0;
	struct array_batch *batch;
	void *made;
	int ret;

	if (!bytes)
		return 0;
	if (!array_writable(array, member))
		return -EIO;
	if (posix_memalign(&made, DISK_ALIGN_BYTES, bytes))
		return -ENOMEM;
	batch = (struct array_batch *)calloc(1, sizeof(*batch));
	ret = batch ? shard_make(&stripe, shard, (const uint8_t *)data, (uint8_t *)made) : -ENOMEM;
	if (!ret) {
		batch->array = array;
		ret = shard_write(batch, &stripe, shard, (const uint8_t *)made, wrong);
		if (ret)
			array_member_fail(disk, member, ret);
	}
	free(batch);
	free(made);
	return ret;
}

/* Compares the members' parity with the right one. read: room for a shard. */
static int parity_check(struct array_batch *batch, const struct stripe *stripe, uint8_t *right,
	bool amend, struct disk_parity *ret_parity)
{
	const struct array_geometry *geometry = stripe->geometry;
	uint64_t bytes = (uint64_t)stripe->width * DISK_ALIGN_BYTES;
	uint8_t *read = right + geometry->parity * bytes;
	int ret = 0;

	*ret_parity = (struct disk_parity){0};
	for (uint32_t p = 0; p < geometry->parity; p++) {
		const struct member_part part = {
			.member = array_member_of(stripe, geometry->data + p),
			.right = right + p * bytes,
			.bytes = bytes,
			.offset = stripe->first * DISK_ALIGN_BYTES};

		int error;

		if (!array_readable(batch->array, part.member))
			continue;
		ret_parity->read_bytes += bytes;
		error = part_compare(batch, &part, read);
		if (!error || error == -ENOTCONN)
			continue;
		if (amend)
			error = part_mend(batch, &part, read, "parity");
		if (!amend || !error)
			ret_parity->wrong++;
		else if (error != -ENOTCONN)
			ret = -EIO;
	}
	return ret;
}

int disk_array_parity(struct disk *disk, uint64_t block, const void *data, bool amend,
	struct disk_parity *ret_parity)
{
	struct array *array = disk->array;
	struct stripe stripe = array_stripe(array, block);
	uint64_t bytes = (uint64_t)stripe.width * DISK_ALIGN_BYTES;
	struct array_batch *batch = (struct array_batch *)calloc(1, sizeof(*batch));
	void *parity = NULL;
	int ret = -ENOMEM;

	/* The right parity, and one shard of the parity as the member has it. */
	if (batch && posix_memalign(&parity, DISK_ALIGN_BYTES,
			     (stripe.geometry->parity + 1) * bytes) == 0) {
		batch->array = array;
		ret = array_encode(&stripe, (const uint8_t *)data, (uint8_t *)parity);
	}
	if (!ret)
		ret = parity_check(batch, &stripe, (uint8_t *)parity, amend, ret_parity);
	free(parity);
	free(batch);
	return ret;
}
