/* store/object/stripe_mend.c: repairs a piece with a wrong checksum from the other volumes. */
#include "codec/crc.h"
#include "store/object/object.h"
#include "store/volume/volume.h"

#include <errno.h>

DEFINE_COUNTER(mended, "nebulaio_store_pieces_mended_total", NULL,
	"Pieces with a wrong checksum that were repaired from other volumes.");

bool stripe_piece_right(const struct stripe_piece *piece)
{
	uint32_t at = piece->padded ? piece->bytes - BLOCK_BYTES : piece->bytes;
	uint32_t crc = crc32c_update(0, piece->data, at);

	if (!piece->padded)
		return crc == piece->crc32c;
	for (; at < piece->bytes; at++) {
		crc = crc32c_update(crc, piece->data + at, 1);
		if (crc == piece->crc32c)
			return true;
	}
	return false;
}

/* Reads the piece in one of the ways (or writes the data that was read that way over the damage).
 */
static int piece_go(struct disk *disk, const struct segment *segment,
	const struct stripe_piece *piece, const struct disk_way *way, bool amend)
{
	uint32_t padded = ALIGN_UP(piece->bytes, BLOCK_BYTES);
	int ret = 0;

	for (uint32_t done = 0; done < padded && !ret;) {
		uint64_t offset, run;

		ret = segment_find(segment, piece->at + done, &offset, &run);
		if (ret)
			return ret;
		run = MIN(run, (uint64_t)(padded - done));
		if (amend)
			ret = disk_array_amend(
				disk, piece->data + done, (uint32_t)run, offset, way);
		else
			ret = disk_array_reread(
				disk, piece->data + done, (uint32_t)run, offset, way);
		done += (uint32_t)run;
	}
	return ret;
}

int stripe_mend(struct volume *volume, const struct segment *segment,
	const struct stripe_piece *piece, bool amend)
{
	volume_check(volume);
	CHECK(piece->bytes && piece->bytes <= STORE_CHECK_BYTES);
	if (!volume->set_count)
		return -EIO;
	for (struct disk_way way = disk_array_way_first(volume->disk);; way.number++) {
		int ret = piece_go(volume->disk, segment, piece, &way, false);

		if (ret == -ENOENT)
			return -EIO;
		if (ret == -ENOMEM)
			return ret;
		if (ret || !stripe_piece_right(piece))
			continue;
		counter_add(&mended, 1);
		/* If the rewrite fails, the next read repairs it again. */
		return amend && piece_go(volume->disk, segment, piece, &way, true) ? 1 : 0;
	}
}

int stripe_piece_read(struct volume *volume, const struct segment *segment,
	const struct stripe_piece *piece, bool amend)
{
	uint32_t padded = ALIGN_UP(piece->bytes, BLOCK_BYTES);
	int ret, unread = 0;

	for (uint32_t done = 0; done < padded && !unread;) {
		uint64_t offset, run;

		ret = segment_find(segment, piece->at + done, &offset, &run);
		if (ret)
			return ret;
		run = MIN(run, (uint64_t)(padded - done));
		if (!disk_in_range(volume->disk, offset, run))
			return -EUCLEAN;
		ret = disk_read_now(volume->disk, piece->data + done, run, offset);
		if (ret && ret != -EIO)
			return ret;
		unread = ret;
		done += (uint32_t)run;
	}
	if (!unread && stripe_piece_right(piece))
		return 0;
	ret = stripe_mend(volume, segment, piece, amend);
	if (ret == -ENOMEM)
		return ret;
	if (ret < 0)
		return unread ? unread : -EUCLEAN;
	if (ret)
		volume->unmended++;
	else
		volume->mended++;
	return 0;
}
