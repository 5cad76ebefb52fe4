/* cli/backup_before.c: what the backup before has: its chunks by their hashes, and the places of
 * the bodies of those chunks that the rows at hand may be in. */
#include "backup_priv.h"

#include <stdlib.h>
#include <string.h>

static const struct backup_manifest *sorted;

static int by_hash(const void *one, const void *other)
{
	return memcmp(sorted->entries[*(const uint32_t *)one],
		sorted->entries[*(const uint32_t *)other], SHA256_BYTES);
}

int backup_old_open(struct backup *backup, uint64_t last)
{
	int ret = backup_manifest_read(&backup->target, last, &backup->old);

	if (ret)
		return ret;
	if (memcmp(backup->old.head.store.uuid, backup->head.store.uuid,
		    sizeof(backup->head.store.uuid)) != 0) {
		fprintf(stderr,
			"nebulaio: the backup %s: it is of another store: name another place\n",
			remote_text(backup->target.text));
		return CLI_FAILED;
	}
	backup->old_order = calloc(backup->old.head.chunks + 1u, sizeof(uint32_t));
	if (!backup->old_order)
		return CLI_FAILED;
	for (uint32_t i = 0; i < backup->old.head.chunks; i++)
		backup->old_order[i] = i;
	sorted = &backup->old;
	qsort(backup->old_order, backup->old.head.chunks, sizeof(uint32_t), by_hash);
	return CLI_OK;
}

bool backup_old_has(const struct backup *backup, const uint8_t hash[SHA256_BYTES])
{
	uint32_t low = 0, high = backup->old.head.chunks;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		int order =
			memcmp(backup->old.entries[backup->old_order[middle]], hash, SHA256_BYTES);

		if (!order)
			return true;
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

static int key_order(struct slice one, struct slice other)
{
	int order = memcmp(one.data, other.data, MIN(one.len, other.len));

	return order ? order : (one.len > other.len) - (one.len < other.len);
}

static int by_body(const void *one, const void *other)
{
	const struct backup_place *a = one, *b = other;

	if (a->data_id != b->data_id)
		return a->data_id < b->data_id ? -1 : 1;
	return (a->segment > b->segment) - (a->segment < b->segment);
}

static int known_add(struct backup *backup, uint32_t idx)
{
	struct backup_entry entry;
	struct backup_chunk chunk;
	struct slice anchor;
	void *grown;
	int ret;

	backup_entry_get(&backup->old, idx, &entry, &anchor);
	ret = backup_chunk_read(&backup->target, entry.hash, &chunk);
	if (ret)
		return ret;
	grown = realloc(backup->known,
		(backup->known_count + chunk.place_count + 1) * sizeof(struct backup_place));
	if (grown) {
		backup->known = grown;
		memcpy(backup->known + backup->known_count, chunk.places,
			chunk.place_count * sizeof(struct backup_place));
		backup->known_count += chunk.place_count;
	}
	backup_chunk_free(&chunk);
	return grown ? CLI_OK : CLI_FAILED;
}

/* Loads the places of those old chunks that may have the records from the anchor to the last one.
 */
int backup_known_load(struct backup *backup)
{
	struct slice first = slice_of(backup->anchor, backup->anchor_len);
	struct slice last = slice_of(backup->record, backup->record_len);
	uint32_t count = backup->old.head.chunks, from = backup->known_from, to;
	struct backup_entry entry;
	struct slice anchor;
	int ret = CLI_OK;

	for (; from + 1 < count; from++) {
		backup_entry_get(&backup->old, from + 1, &entry, &anchor);
		if (key_order(anchor, first) >= 0)
			break;
	}
	for (to = from; to < count; to++) {
		backup_entry_get(&backup->old, to, &entry, &anchor);
		if (key_order(anchor, last) > 0)
			break;
	}
	if (from == backup->known_from && to == backup->known_to)
		return CLI_OK;
	backup->known_count = 0;
	for (uint32_t i = from; i < to && !ret; i++)
		ret = known_add(backup, i);
	backup->known_from = from;
	backup->known_to = to;
	if (backup->known_count)
		qsort(backup->known, backup->known_count, sizeof(struct backup_place), by_body);
	return ret;
}

/* Whether the backup before has the body; then place says where. */
bool backup_known_find(const struct backup *backup, struct backup_place *place)
{
	const struct backup_place *found =
		backup->known_count ? bsearch(place, backup->known, backup->known_count,
					      sizeof(*place), by_body)
				    : NULL;

	if (!found || found->sum != place->sum || found->bytes != place->bytes)
		return false;
	*place = *found;
	return true;
}
