/* cli/backup_chunk.c: rows of a store, gathered into chunks, and their bodies: small ones in packs,
 * large ones by themselves. Only what the target does not have is stored. */
#include "backup_priv.h"

#include <stdlib.h>
#include <string.h>

#define BATCH_BYTES (3 * MIB)
#define CUT_HASH    255u /* a chunk begins at about each 256th record */

/* ---- Bodies. ---- */

static int put(struct backup *backup, const char *name, const struct slice *parts, uint32_t count)
{
	int ret = target_put(&backup->target, name, parts, count);

	for (uint32_t i = 0; i < count && !ret; i++) {
		backup->head.sent_bytes += parts[i].len;
		backup->sent_in_pass += parts[i].len;
	}
	return ret;
}

static int pack_put(struct backup *backup)
{
	struct backup_place place = {0};
	char name[BACKUP_NAME_BYTES];
	struct backup_head head;
	struct slice parts[2];
	int ret;

	if (!backup->pack.len)
		return CLI_OK;
	backup_head_fill(&head, BACKUP_MAGIC_BODIES, NULL, 0);
	parts[0] = slice_of(&head, sizeof(head));
	parts[1] = buf_slice(&backup->pack);
	memcpy(place.pack, backup->pack_id, sizeof(place.pack));
	backup_body_name(&place, name);
	ret = put(backup, name, parts, ARRAY_LEN(parts));
	buf_reset(&backup->pack);
	return ret;
}

static int body_pack(struct backup *backup, struct backup_place *place, const uint8_t *body)
{
	int ret = backup->pack.len + place->bytes > BACKUP_PACK_BYTES ? pack_put(backup) : CLI_OK;

	if (ret)
		return ret;
	if (!backup->pack.len)
		random_fill(backup->pack_id, sizeof(backup->pack_id));
	memcpy(place->pack, backup->pack_id, sizeof(place->pack));
	place->offset = sizeof(struct backup_head) + backup->pack.len;
	buf_put(&backup->pack, body, place->bytes);
	return backup->pack.failed ? CLI_FAILED : CLI_OK;
}

static int batch_fetch(struct backup *backup)
{
	const uint8_t *at = backup->answer;
	char path[64];
	int ret;

	if (!backup->batch_count)
		return CLI_OK;
	snprintf(path, sizeof(path), "/admin/v1/backups/%llu/bodies",
		(unsigned long long)backup->session);
	ret = backup_ask(backup, "POST", path, buf_slice(&backup->batch));
	if (!ret && backup->answer_bytes != backup->batch_bytes) {
		fprintf(stderr, "nebulaio: %s: an answer has a wrong length\n",
			backup->opts.endpoints);
		ret = CLI_FAILED;
	}
	for (uint32_t i = 0; i < backup->batch_count && !ret; i++) {
		struct backup_place *place = &backup->places[backup->batch_places[i]];

		ret = body_pack(backup, place, at);
		at += place->bytes;
	}
	buf_reset(&backup->batch);
	backup->batch_count = 0;
	backup->batch_bytes = 0;
	return ret;
}

/* Asks for the body with others; its place is the last one. */
static int batch_add(struct backup *backup, struct slice key, uint64_t bytes)
{
	const uint32_t head[2] = {(uint32_t)key.len, (uint32_t)bytes};

	buf_put(&backup->batch, head, sizeof(head));
	buf_put_slice(&backup->batch, key);
	backup->batch_places[backup->batch_count++] = backup->place_count - 1;
	backup->batch_bytes += bytes;
	if (backup->batch.failed)
		return CLI_FAILED;
	return backup->batch_count == STORE_BACKUP_PARTS_MAX || backup->batch_bytes >= BATCH_BYTES
		       ? batch_fetch(backup)
		       : CLI_OK;
}

static int body_alone(struct backup *backup, struct slice key, struct backup_place *place)
{
	char name[BACKUP_NAME_BYTES];
	struct backup_head head;
	struct slice parts[2];
	int ret;

	place->offset = sizeof(head);
	backup_body_name(place, name);
	ret = target_has(&backup->target, name);
	if (ret != CLI_NOT_FOUND)
		return ret;
	ret = backup_body_fetch(backup, key, place->bytes, backup->body);
	if (ret)
		return ret;
	backup_head_fill(&head, BACKUP_MAGIC_BODIES, NULL, 0);
	parts[0] = slice_of(&head, sizeof(head));
	parts[1] = slice_of(backup->body, place->bytes);
	return put(backup, name, parts, ARRAY_LEN(parts));
}

/* ---- Chunks. ---- */

static int place_add(struct backup *backup, const struct backup_place *place)
{
	uint32_t cap = MAX(backup->place_cap * 2, 1024u);
	void *grown;

	if (backup->place_count == backup->place_cap) {
		grown = realloc(backup->places, cap * sizeof(*backup->places));
		if (!grown)
			return CLI_FAILED;
		backup->places = grown;
		backup->place_cap = cap;
	}
	backup->places[backup->place_count++] = *place;
	return CLI_OK;
}

/* Sees to it that the target has the bodies of the chunk's rows. */
static int bodies_put(struct backup *backup)
{
	struct slice rest = buf_slice(&backup->rows), key, value;
	struct store_backup_row row;
	bool known;
	int ret = backup->old.head.chunks ? backup_known_load(backup) : CLI_OK;

	backup->place_count = 0;
	while (!ret && store_backup_row_next(&rest, &row, &key, &value) == 1) {
		struct backup_place place = {.data_id = row.data_id,
			.segment = row.segment,
			.sum = row.sum,
			.bytes = row.bytes};

		if (!(row.flags & STORE_BACKUP_HAS_BODY))
			continue;
		known = backup_known_find(backup, &place);
		if (!known && row.bytes > BACKUP_PACKED_BYTES_MAX)
			ret = body_alone(backup, key, &place);
		if (!ret)
			ret = place_add(backup, &place);
		if (!ret && !known && row.bytes <= BACKUP_PACKED_BYTES_MAX)
			ret = batch_add(backup, key, row.bytes);
		progress_add(&backup->progress, row.bytes);
	}
	if (!ret)
		ret = batch_fetch(backup);
	return ret ? ret : pack_put(backup);
}

static int chunk_put(struct backup *backup, const uint8_t hash[SHA256_BYTES])
{
	struct backup_chunk_head head = {.row_bytes = backup->rows.len};
	char name[BACKUP_NAME_BYTES];
	struct slice parts[3];
	int ret;

	backup_chunk_name(hash, name);
	/* One that was cut short has stored it, after its bodies. */
	ret = target_has(&backup->target, name);
	if (ret != CLI_NOT_FOUND)
		return ret;
	ret = bodies_put(backup);
	if (ret)
		return ret;
	head.places = backup->place_count;
	parts[0] =
		slice_of((const char *)&head + sizeof(head.head), sizeof(head) - sizeof(head.head));
	parts[1] = buf_slice(&backup->rows);
	parts[2] = slice_of(backup->places, backup->place_count * sizeof(*backup->places));
	backup_head_fill(&head.head, BACKUP_MAGIC_CHUNK, parts, ARRAY_LEN(parts));
	parts[0] = slice_of(&head, sizeof(head));
	return put(backup, name, parts, ARRAY_LEN(parts));
}

static void chunk_count(struct backup *backup, struct backup_entry *entry)
{
	struct slice rest = buf_slice(&backup->rows), key, value;
	struct store_backup_row row;

	while (store_backup_row_next(&rest, &row, &key, &value) == 1) {
		entry->rows++;
		entry->body_bytes += row.bytes;
		backup->head.bodies += (row.flags & STORE_BACKUP_HAS_BODY) != 0;
	}
	backup->head.rows += entry->rows;
	backup->head.body_bytes += entry->body_bytes;
}

int backup_chunk_end(struct backup *backup)
{
	struct backup_entry entry = {.anchor_len = backup->anchor_len};
	int ret = CLI_OK;

	if (!backup->rows.len)
		return CLI_OK;
	sha256_of(backup->rows.data, backup->rows.len, entry.hash);
	chunk_count(backup, &entry);
	if (!backup_old_has(backup, entry.hash))
		ret = chunk_put(backup, entry.hash);
	else
		progress_add(&backup->progress, entry.body_bytes);
	buf_put(&backup->entries, &entry, sizeof(entry));
	buf_put(&backup->entries, backup->anchor, backup->anchor_len);
	backup->head.chunks++;
	buf_reset(&backup->rows);
	backup->small_bytes = 0;
	if (backup->entries.failed) {
		fprintf(stderr, "nebulaio: no memory for the list of the backup's rows\n");
		ret = CLI_FAILED;
	}
	return ret;
}

/* Chunks end at places that depend on the rows there alone, so that a change moves no other. */
static bool cuts(const struct backup *backup, const struct store_backup_row *row, struct slice key)
{
	if (!backup->rows.len)
		return false;
	if (backup->rows.len >= BACKUP_CHUNK_BYTES || backup->small_bytes >= BACKUP_PACK_BYTES)
		return true;
	return !(row->flags & STORE_BACKUP_INNER) &&
	       (crc32c_update(0, key.data, key.len) & CUT_HASH) == 0;
}

int backup_row_take(struct backup *backup, const struct store_backup_row *row, struct slice key,
	struct slice whole)
{
	if (cuts(backup, row, key)) {
		int ret = backup_chunk_end(backup);

		if (ret)
			return ret;
	}
	if (!(row->flags & STORE_BACKUP_INNER)) {
		memcpy(backup->record, key.data, key.len);
		backup->record_len = (uint32_t)key.len;
	}
	if (!backup->rows.len) {
		memcpy(backup->anchor, backup->record, backup->record_len);
		backup->anchor_len = backup->record_len;
	}
	buf_put_slice(&backup->rows, whole);
	if (row->bytes <= BACKUP_PACKED_BYTES_MAX)
		backup->small_bytes += row->bytes;
	return backup->rows.failed ? CLI_FAILED : CLI_OK;
}
