/* cli/backup.c: `nebulaio admin backup`: copies a running store to a folder or a bucket. A backup
 * stores what the target does not have: chunks of rows, named by what is in them, and bodies, which
 * never change. Its manifest, the last file, makes it a backup. So one that was cut short at any
 * place goes on where it was, and costs only what is missing. */
#include "backup.h"

#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backup_file.h"
#include "transfer.h"

#define BATCH_BYTES (3 * MIB)

/* The session of the server has ended: a new one goes on. */
#define AGAIN		   100
#define CUT_HASH	   255u /* a chunk begins at about each 256th record */
#define ANSWER_BYTES	   (2 * STORE_BACKUP_READ_BYTES)
#define MANIFEST_BYTES	   (1024 * MIB)
#define PASSES_IDLE_MAX	   3u /* sessions that end without anything new */
#define REQUEST_TIMEOUT_NS (120 * NS_PER_S)

struct backup {
	const struct cli_command *command;
	struct remote_opts opts;
	struct target_opts target_opts;
	struct target target;
	struct neb_client *client;
	uint64_t pin_s, keep;
	bool quiet;
	/* The backup before, and its chunks by hash. */
	struct backup_manifest old;
	uint32_t *old_order;
	/* The places of bodies in some chunks of it: those from `from` to before `to`. */
	struct backup_place *known;
	uint32_t known_count, known_from, known_to;
	/* The session. */
	uint64_t session;
	char *kept;
	uint8_t *answer;
	size_t answer_bytes;
	/* The chunk that is being gathered. */
	struct buf rows;
	uint32_t row_count;
	uint64_t small_bytes;
	char anchor[STORE_BACKUP_KEY_MAX], record[STORE_BACKUP_KEY_MAX];
	uint32_t anchor_len, record_len;
	struct backup_place *places;
	uint32_t place_count, place_cap;
	/* The pack that is being gathered. */
	struct buf pack;
	uint8_t pack_id[BACKUP_PACK_ID];
	uint8_t *body; /* STORE_BACKUP_BODY_MAX */
	/* Small bodies that are asked for together: the request, and their places. */
	struct buf batch;
	uint64_t batch_bytes;
	uint32_t batch_count, batch_places[STORE_BACKUP_PARTS_MAX];
	/* The manifest. */
	struct backup_manifest_head head;
	struct buf entries;
	uint64_t sent_in_pass;
	struct progress progress;
};

/* ---- The server. ---- */

static int refused(struct backup *backup, struct neb_result *result)
{
	json_t *json = result->status ? json_loads(result->message, 0, NULL) : NULL;
	const char *text;

	if (result->status == 410)
		return json_decref(json), AGAIN;
	text = json_string_value(json_object_get(json, "code"));
	if (text)
		snprintf(result->code, sizeof(result->code), "%s", text);
	text = json_string_value(json_object_get(json, "error"));
	if (text)
		snprintf(result->message, sizeof(result->message), "%s", text);
	json_decref(json);
	return remote_failed(backup->opts.endpoints, result);
}

/* The answer is then in backup->answer. */
static int ask(struct backup *backup, const char *method, const char *path, struct slice text)
{
	struct neb_iov body = {(void *)(uintptr_t)text.data, text.len};
	struct neb_iov into = {backup->answer, ANSWER_BYTES};
	const struct neb_request request = {.op = NEB_S3,
		.method = method,
		.path = path,
		.body = &body,
		.body_count = text.len != 0,
		.into = &into,
		.into_count = 1,
		.timeout_ns = REQUEST_TIMEOUT_NS};
	struct neb_result result = {0};

	if (neb_perform(backup->client, &request, &result))
		return refused(backup, &result);
	backup->answer_bytes = result.bytes;
	return CLI_OK;
}

static uint64_t number(const json_t *json, const char *member)
{
	return (uint64_t)json_integer_value(json_object_get(json, member));
}

static int session_take(struct backup *backup, const json_t *json)
{
	struct store_backup_head *head = &backup->head.store;
	const char *uuid = json_string_value(json_object_get(json, "uuid"));

	if (!uuid || hex_decode(slice_str(uuid), head->uuid, sizeof(head->uuid)) ||
		!number(json, "id")) {
		fprintf(stderr,
			"nebulaio: %s: the answer is not from an admin interface that makes "
			"backups; set --endpoint to the server's admin.address\n",
			backup->opts.endpoints);
		return CLI_FAILED;
	}
	backup->session = number(json, "id");
	head->seq = number(json, "seq");
	head->data_id_next = number(json, "data_id_next");
	head->bucket_id_next = number(json, "bucket_id_next");
	head->objects = number(json, "objects");
	head->used_bytes = number(json, "used_bytes");
	free(backup->kept);
	backup->kept = json_dumps(json_object_get(json, "kept"), JSON_COMPACT);
	return backup->kept ? CLI_OK : CLI_FAILED;
}

static int session_begin(struct backup *backup)
{
	char text[64];
	json_t *json;
	int ret;

	snprintf(text, sizeof(text), "{\"pin_s\": %llu}", (unsigned long long)backup->pin_s);
	ret = ask(backup, "POST", "/admin/v1/backups", slice_str(text));
	if (ret)
		return ret;
	json = json_loadb((const char *)backup->answer, backup->answer_bytes, 0, NULL);
	ret = session_take(backup, json);
	json_decref(json);
	return ret;
}

static void session_end(struct backup *backup)
{
	char path[64];
	struct neb_request request = {.op = NEB_S3, .method = "DELETE", .path = path};
	struct neb_result result = {0};

	if (!backup->session)
		return;
	snprintf(path, sizeof(path), "/admin/v1/backups/%llu", (unsigned long long)backup->session);
	backup->session = 0;
	(void)neb_perform(backup->client, &request, &result); /* it ends by itself, too */
}

/* Reads a body into out. */
static int body_fetch(struct backup *backup, struct slice key, uint64_t bytes, uint8_t *out)
{
	char path[128];

	for (uint64_t at = 0; at < bytes;) {
		int ret;

		snprintf(path, sizeof(path), "/admin/v1/backups/%llu/body/%llu/%llu",
			(unsigned long long)backup->session, (unsigned long long)bytes,
			(unsigned long long)at);
		ret = ask(backup, "POST", path, key);
		if (ret)
			return ret;
		if (!backup->answer_bytes || backup->answer_bytes > bytes - at) {
			fprintf(stderr, "nebulaio: %s: an answer has a wrong length\n",
				backup->opts.endpoints);
			return CLI_FAILED;
		}
		memcpy(out + at, backup->answer, backup->answer_bytes);
		at += backup->answer_bytes;
	}
	return CLI_OK;
}

/* ---- What the backup before has. ---- */

static const struct backup_manifest *sorted;

static int by_hash(const void *one, const void *other)
{
	return memcmp(sorted->entries[*(const uint32_t *)one],
		sorted->entries[*(const uint32_t *)other], SHA256_BYTES);
}

static int old_open(struct backup *backup, uint64_t last)
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

static bool old_has(const struct backup *backup, const uint8_t hash[SHA256_BYTES])
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
static int known_load(struct backup *backup)
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
static bool known_find(const struct backup *backup, struct backup_place *place)
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
	ret = ask(backup, "POST", path, buf_slice(&backup->batch));
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
	ret = body_fetch(backup, key, place->bytes, backup->body);
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
	int ret = backup->old.head.chunks ? known_load(backup) : CLI_OK;

	backup->place_count = 0;
	while (!ret && store_backup_row_next(&rest, &row, &key, &value) == 1) {
		struct backup_place place = {.data_id = row.data_id,
			.segment = row.segment,
			.sum = row.sum,
			.bytes = row.bytes};

		if (!(row.flags & STORE_BACKUP_HAS_BODY))
			continue;
		known = known_find(backup, &place);
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

static int chunk_end(struct backup *backup)
{
	struct backup_entry entry = {.anchor_len = backup->anchor_len};
	int ret = CLI_OK;

	if (!backup->rows.len)
		return CLI_OK;
	sha256_of(backup->rows.data, backup->rows.len, entry.hash);
	chunk_count(backup, &entry);
	if (!old_has(backup, entry.hash))
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

static int row_take(struct backup *backup, const struct store_backup_row *row, struct slice key,
	struct slice whole)
{
	if (cuts(backup, row, key)) {
		int ret = chunk_end(backup);

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

/* ---- A pass: all rows of one session. ---- */

static int strange(struct backup *backup)
{
	fprintf(stderr, "nebulaio: %s: the answer is no page of rows\n", backup->opts.endpoints);
	return CLI_FAILED;
}

/* Takes the page's rows; cursor gets that of the next page. */
static int page_take(struct backup *backup, struct slice text, struct buf *cursor)
{
	struct store_backup_page head;
	struct store_backup_row row;
	struct slice rest, key, value;
	int ret = CLI_OK, more;

	if (text.len < sizeof(head))
		return strange(backup);
	memcpy(&head, text.data, sizeof(head));
	if (memcmp(head.magic, STORE_BACKUP_PAGE_MAGIC, sizeof(head.magic)) != 0) {
		fprintf(stderr,
			"nebulaio: %s: the server sends rows in a form that this program does not "
			"know: use the nebulaio of the server's version\n",
			backup->opts.endpoints);
		return CLI_FAILED;
	}
	if (head.cursor_len > text.len - sizeof(head))
		return strange(backup);
	rest = slice_from(text, sizeof(head));
	buf_reset(cursor);
	buf_put_slice(cursor, slice_to(rest, head.cursor_len));
	rest = slice_from(rest, head.cursor_len);
	while (!ret) {
		const char *from = rest.data;

		more = store_backup_row_next(&rest, &row, &key, &value);
		if (more <= 0)
			break;
		ret = row_take(
			backup, &row, key, slice_of(from, sizeof(row) + key.len + value.len));
		head.rows--;
	}
	return ret ? ret : head.rows ? strange(backup) : CLI_OK;
}

static int pass(struct backup *backup)
{
	char path[64];
	struct buf cursor, page;
	int ret;

	buf_init(&cursor, STORE_BACKUP_KEY_MAX + 64);
	buf_init(&page, ANSWER_BYTES);
	snprintf(path, sizeof(path), "/admin/v1/backups/%llu/rows",
		(unsigned long long)backup->session);
	do {
		ret = ask(backup, "POST", path, buf_slice(&cursor));
		if (ret)
			break;
		/* Bodies are fetched meanwhile, into the same memory. */
		buf_reset(&page);
		buf_put(&page, backup->answer, backup->answer_bytes);
		ret = page.failed ? CLI_FAILED : page_take(backup, buf_slice(&page), &cursor);
	} while (!ret && cursor.len);
	buf_free(&page);
	buf_free(&cursor);
	return ret ? ret : chunk_end(backup);
}

static void pass_begin(struct backup *backup)
{
	buf_reset(&backup->rows);
	buf_reset(&backup->pack);
	buf_reset(&backup->entries);
	buf_reset(&backup->batch);
	backup->batch_count = 0;
	backup->batch_bytes = 0;
	backup->small_bytes = backup->sent_in_pass = 0;
	backup->known_from = backup->known_to = backup->known_count = 0;
	backup->head.rows = backup->head.bodies = backup->head.body_bytes = 0;
	backup->head.chunks = 0;
}

/* ---- The whole. ---- */

static int manifest_put(struct backup *backup)
{
	struct backup_manifest_head *head = &backup->head;
	char name[BACKUP_NAME_BYTES];
	struct slice parts[3];
	int ret = target_sync(&backup->target);

	if (ret)
		return ret;
	head->ended_ns = clock_real_ns();
	head->kept_bytes = (uint32_t)strlen(backup->kept);
	parts[0] = slice_of(
		(const char *)head + sizeof(head->head), sizeof(*head) - sizeof(head->head));
	parts[1] = slice_str(backup->kept);
	parts[2] = buf_slice(&backup->entries);
	backup_head_fill(&head->head, BACKUP_MAGIC_MANIFEST, parts, ARRAY_LEN(parts));
	parts[0] = slice_of(head, sizeof(*head));
	backup_manifest_name(head->number, name);
	ret = target_put(&backup->target, name, parts, ARRAY_LEN(parts));
	return ret ? ret : target_sync(&backup->target);
}

static int passes(struct backup *backup)
{
	uint32_t idle = 0;
	int ret;

	for (;;) {
		progress_start(&backup->progress, "backup", backup->head.store.used_bytes);
		pass_begin(backup);
		ret = pass(backup);
		progress_end(&backup->progress);
		if (ret != AGAIN)
			return ret;
		backup->session = 0;
		idle = backup->sent_in_pass ? 0 : idle + 1;
		if (idle == PASSES_IDLE_MAX) {
			fprintf(stderr,
				"nebulaio: the server ended the backup's session %u times before "
				"anything new was copied: give it longer (--pin), or make room in "
				"the store\n",
				PASSES_IDLE_MAX);
			return CLI_FAILED;
		}
		if (!backup->quiet)
			fprintf(stderr, "nebulaio: the server ended the backup's session; going on "
					"with a later moment\n");
		ret = session_begin(backup);
		if (ret)
			return ret;
	}
}

static void print_done(const struct backup *backup)
{
	const struct backup_manifest_head *head = &backup->head;
	char bytes[32], sent[32];

	if (backup->opts.json)
		printf("{\"number\": %llu, \"rows\": %llu, \"bodies\": %llu, \"bytes\": %llu, "
		       "\"sent_bytes\": %llu}\n",
			(unsigned long long)head->number, (unsigned long long)head->rows,
			(unsigned long long)head->bodies, (unsigned long long)head->body_bytes,
			(unsigned long long)head->sent_bytes);
	else if (!backup->quiet)
		printf("backup %llu is complete: %llu bodies, %s; %s were new\n",
			(unsigned long long)head->number, (unsigned long long)head->bodies,
			remote_bytes_text(head->body_bytes, bytes),
			remote_bytes_text(head->sent_bytes, sent));
}

static int run(struct backup *backup, const char *place)
{
	struct backup_numbers numbers = {0};
	int ret = target_open(&backup->target, place, &backup->target_opts, true);

	if (!ret)
		ret = backup_numbers_read(&backup->target, &numbers);
	if (!ret)
		ret = session_begin(backup);
	if (!ret && numbers.count)
		ret = old_open(backup, numbers.list[numbers.count - 1]);
	if (!ret) {
		backup->head.number = numbers.count ? numbers.list[numbers.count - 1] + 1 : 1;
		backup->head.begun_ns = clock_real_ns();
		ret = passes(backup);
	}
	if (!ret)
		ret = manifest_put(backup);
	session_end(backup);
	if (!ret)
		print_done(backup);
	free(numbers.list);
	return ret;
}

static void backup_free(struct backup *backup)
{
	backup_manifest_free(&backup->old);
	free(backup->old_order);
	free(backup->known);
	free(backup->places);
	free(backup->kept);
	free(backup->answer);
	free(backup->body);
	buf_free(&backup->rows);
	buf_free(&backup->pack);
	buf_free(&backup->entries);
	buf_free(&backup->batch);
	neb_client_close(backup->client);
	target_close(&backup->target);
	free(backup);
}

static struct backup *backup_alloc(const struct cli_command *command)
{
	struct backup *backup = calloc(1, sizeof(*backup));

	if (!backup)
		return NULL;
	backup->command = command;
	backup->target.lock_fd = -1;
	backup->pin_s = 600;
	backup->answer = malloc(ANSWER_BYTES);
	backup->body = malloc(STORE_BACKUP_BODY_MAX);
	buf_init(&backup->rows, BACKUP_CHUNK_MAX / 2);
	buf_init(&backup->pack, BACKUP_PACK_BYTES + BACKUP_PACKED_BYTES_MAX);
	buf_init(&backup->entries, MANIFEST_BYTES);
	buf_init(&backup->batch, 2 * MIB + 16 * KIB);
	return backup;
}

/* ---- The command line. ---- */

enum { OPT_ENDPOINT = REMOTE_OWN, OPT_TARGET_ENDPOINT, OPT_TARGET_PROFILE, OPT_KEEP, OPT_PIN };

static const struct option OPTIONS[] = {
	{"endpoint", required_argument, NULL, OPT_ENDPOINT},
	{"target-endpoint", required_argument, NULL, OPT_TARGET_ENDPOINT},
	{"target-profile", required_argument, NULL, OPT_TARGET_PROFILE},
	{"keep", required_argument, NULL, OPT_KEEP},
	{"pin", required_argument, NULL, OPT_PIN},
	{"quiet", no_argument, NULL, 'q'},
	{"access-key", required_argument, NULL, REMOTE_ACCESS},
	{"secret-key", required_argument, NULL, REMOTE_SECRET},
	{"profile", required_argument, NULL, REMOTE_PROFILE},
	{"json", no_argument, NULL, REMOTE_JSON},
	{0},
};

static int option_take(struct backup *backup, int option, const char **endpoint, char **argv)
{
	switch (option) {
	case OPT_ENDPOINT:
		*endpoint = optarg;
		return CLI_OK;
	case OPT_TARGET_ENDPOINT:
		backup->target_opts.endpoint = optarg;
		return CLI_OK;
	case OPT_TARGET_PROFILE:
		backup->target_opts.profile = optarg;
		return CLI_OK;
	case OPT_KEEP:
		if (slice_to_u64(slice_str(optarg), &backup->keep) || !backup->keep)
			return cli_usage_error(
				backup->command, "--keep: '%s' is not a number from 1 on", optarg);
		return CLI_OK;
	case OPT_PIN:
		if (slice_to_u64(slice_str(optarg), &backup->pin_s) || !backup->pin_s ||
			backup->pin_s > STORE_BACKUP_PIN_S_MAX)
			return cli_usage_error(backup->command,
				"--pin: '%s' is not a number of seconds from 1 to 86400", optarg);
		return CLI_OK;
	case 'q':
		backup->quiet = true;
		return CLI_OK;
	default:
		return remote_option(backup->command, &backup->opts, option, argv);
	}
}

/* *ret_place: the only operand. */
static int options_read(struct backup *backup, int argc, char **argv, const char **ret_place)
{
	const char *endpoint = NULL;
	int option, ret = CLI_OK;

	remote_defaults(&backup->opts);
	optind = 1;
	opterr = 0;
	while (!ret && (option = getopt_long(argc, argv, "q", OPTIONS, NULL)) != -1)
		ret = option_take(backup, option, &endpoint, argv);
	if (ret)
		return ret;
	if (optind != argc - 1 || !*argv[optind])
		return cli_usage_error(
			backup->command, "%s: expected one folder or s3:// address", argv[0]);
	backup->opts.endpoints = endpoint ? endpoint : backup->opts.admin_endpoint;
	backup->opts.transport = NEB_HTTP;
	*ret_place = argv[optind];
	return CLI_OK;
}

int backup_run(const struct cli_command *command, int argc, char **argv)
{
	struct backup *backup = backup_alloc(command);
	const char *place;
	int ret;

	if (!backup || !backup->answer || !backup->body) {
		fprintf(stderr, "nebulaio: no memory\n");
		return CLI_FAILED;
	}
	ret = options_read(backup, argc, argv, &place);
	if (!ret)
		ret = remote_open(&backup->opts, &backup->client);
	if (!ret)
		ret = run(backup, place);
	if (!ret && backup->keep)
		ret = backup_prune(&backup->target, backup->keep);
	backup_free(backup);
	return ret;
}

int backup_list_run(const struct cli_command *command, int argc, char **argv)
{
	struct backup *backup = backup_alloc(command);
	const char *place;
	int ret;

	if (!backup)
		return CLI_FAILED;
	ret = options_read(backup, argc, argv, &place);
	if (!ret)
		ret = target_open(&backup->target, place, &backup->target_opts, false);
	if (!ret)
		ret = backup_list_print(&backup->target, backup->opts.json);
	backup_free(backup);
	return ret;
}
