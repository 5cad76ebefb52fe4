/* cli/backup_file.c: reads the files of a backup. */
#include "backup_file.h"

#include <stdlib.h>
#include <string.h>

#define MANIFEST_BYTES_MAX (1024 * MIB)

int backup_damaged(const struct target *target, const char *name, const char *why)
{
	fprintf(stderr, "nebulaio: the backup %s: %s: %s\n", remote_text(target->text), name, why);
	return CLI_DAMAGED;
}

/* ---- Heads. ---- */

void backup_head_fill(
	struct backup_head *head, const char *magic, const struct slice *parts, uint32_t count)
{
	*head = (struct backup_head){.version = BACKUP_VERSION};
	memcpy(head->magic, magic, sizeof(head->magic));
	for (uint32_t i = 0; i < count; i++)
		head->crc32c = crc32c_update(head->crc32c, parts[i].data, parts[i].len);
}

int backup_head_check(const struct target *target, const char *name, struct slice file,
	const char *magic, bool sums)
{
	struct backup_head head;

	if (file.len < sizeof(head))
		return backup_damaged(target, name, "it is cut short");
	memcpy(&head, file.data, sizeof(head));
	if (memcmp(head.magic, magic, sizeof(head.magic)) != 0)
		return backup_damaged(target, name, "it is damaged, or not a file of a backup");
	if (head.version != BACKUP_VERSION) {
		fprintf(stderr,
			"nebulaio: the backup %s: %s has format %u, this program has %u: use the "
			"program that wrote it, or a later one\n",
			remote_text(target->text), name, head.version, BACKUP_VERSION);
		return CLI_DAMAGED;
	}
	if (sums &&
		crc32c_update(0, file.data + sizeof(head), file.len - sizeof(head)) != head.crc32c)
		return backup_damaged(target, name, "its checksum is wrong: it is damaged");
	return CLI_OK;
}

/* ---- Chunks. ---- */

void backup_chunk_name(const uint8_t hash[SHA256_BYTES], char out[BACKUP_NAME_BYTES])
{
	char hex[2 * SHA256_BYTES + 1];

	hex_encode(hash, SHA256_BYTES, hex);
	snprintf(out, BACKUP_NAME_BYTES, "rows/%.2s/%.*s", hex, (int)(2 * SHA256_BYTES), hex);
}

void backup_body_name(const struct backup_place *place, char out[BACKUP_NAME_BYTES])
{
	static const uint8_t NONE[BACKUP_PACK_ID];
	char hex[2 * BACKUP_PACK_ID + 1];

	if (memcmp(place->pack, NONE, sizeof(NONE)) == 0) {
		snprintf(out, BACKUP_NAME_BYTES, "bodies/%02x/%016llx-%u-%08x",
			(unsigned)(place->data_id & 0xff), (unsigned long long)place->data_id,
			place->segment, place->sum);
		return;
	}
	hex_encode(place->pack, BACKUP_PACK_ID, hex);
	snprintf(out, BACKUP_NAME_BYTES, "packs/%.2s/%.*s", hex, (int)(2 * BACKUP_PACK_ID), hex);
}

static int chunk_parse(struct target *target, const char *name, const uint8_t hash[SHA256_BYTES],
	struct backup_chunk *chunk)
{
	struct slice file = buf_slice(&chunk->file);
	struct backup_chunk_head head;
	uint8_t digest[SHA256_BYTES];
	int ret = backup_head_check(target, name, file, BACKUP_MAGIC_CHUNK, true);

	if (ret)
		return ret;
	if (file.len < sizeof(head))
		return backup_damaged(target, name, "it is cut short");
	memcpy(&head, file.data, sizeof(head));
	file = slice_from(file, sizeof(head));
	if (head.row_bytes > file.len ||
		file.len - head.row_bytes != (uint64_t)head.places * sizeof(struct backup_place))
		return backup_damaged(target, name, "its lengths are wrong");
	chunk->rows = slice_to(file, head.row_bytes);
	sha256_of(chunk->rows.data, chunk->rows.len, digest);
	if (memcmp(digest, hash, sizeof(digest)) != 0)
		return backup_damaged(target, name, "its rows are not those of its name");
	chunk->places = calloc(head.places + 1u, sizeof(*chunk->places));
	if (!chunk->places)
		return backup_damaged(target, name, "no memory to read it");
	memcpy(chunk->places, file.data + head.row_bytes, file.len - head.row_bytes);
	chunk->place_count = head.places;
	return CLI_OK;
}

int backup_chunk_read(
	struct target *target, const uint8_t hash[SHA256_BYTES], struct backup_chunk *ret_chunk)
{
	char name[BACKUP_NAME_BYTES];
	int ret;

	*ret_chunk = (struct backup_chunk){0};
	backup_chunk_name(hash, name);
	buf_init(&ret_chunk->file, BACKUP_CHUNK_MAX);
	ret = target_get(target, name, &ret_chunk->file);
	if (ret == CLI_NOT_FOUND)
		ret = backup_damaged(target, name, "it is missing");
	if (!ret)
		ret = chunk_parse(target, name, hash, ret_chunk);
	if (ret)
		backup_chunk_free(ret_chunk);
	return ret;
}

void backup_chunk_free(struct backup_chunk *chunk)
{
	buf_free(&chunk->file);
	free(chunk->places);
	*chunk = (struct backup_chunk){0};
}

/* Takes so many lower-case hex digits. */
static bool hex_take(struct slice *rest, size_t digits)
{
	if (rest->len < digits)
		return false;
	for (size_t i = 0; i < digits; i++)
		if (!strchr("0123456789abcdef", rest->data[i]) || !rest->data[i])
			return false;
	*rest = slice_from(*rest, digits);
	return true;
}

static bool is_body(struct slice name)
{
	struct slice segment;
	uint64_t number;

	/* Nothing may stand between the digits and the next sign. */
	if (!hex_take(&name, 2) || slice_split(&name, '/').len || !hex_take(&name, 16) ||
		slice_split(&name, '-').len)
		return false;
	segment = slice_split(&name, '-');
	return !slice_to_u64(segment, &number) && hex_take(&name, 8) && !name.len;
}

/* "HH/HEX" of so many digits, of which HH are the first. */
static bool is_hashed(struct slice name, size_t digits)
{
	struct slice first = slice_split(&name, '/');

	return first.len == 2 && slice_starts(name, first) && hex_take(&name, digits) && !name.len;
}

bool backup_name_is_ours(const char *text)
{
	struct slice name = slice_str(text), kind;

	if (slice_ends(name, SLICE(".part")))
		name.len -= strlen(".part");
	kind = slice_split(&name, '/');
	if (slice_eq(kind, SLICE("rows")))
		return is_hashed(name, 2 * SHA256_BYTES);
	if (slice_eq(kind, SLICE("packs")))
		return is_hashed(name, 2 * BACKUP_PACK_ID);
	return slice_eq(kind, SLICE("bodies")) && is_body(name);
}

/* ---- Manifests. ---- */

void backup_manifest_name(uint64_t number, char out[BACKUP_NAME_BYTES])
{
	snprintf(out, BACKUP_NAME_BYTES, "backups/%08llu", (unsigned long long)number);
}

static int manifest_parse(struct target *target, uint64_t number, struct backup_manifest *manifest)
{
	char name[BACKUP_NAME_BYTES];
	struct slice rest = buf_slice(&manifest->file);
	int ret;

	backup_manifest_name(number, name);
	ret = backup_head_check(target, name, rest, BACKUP_MAGIC_MANIFEST, true);
	if (ret)
		return ret;
	if (rest.len < sizeof(manifest->head))
		return backup_damaged(target, name, "it is cut short");
	memcpy(&manifest->head, rest.data, sizeof(manifest->head));
	if (manifest->head.number != number)
		return backup_damaged(target, name, "it is the manifest of another backup");
	rest = slice_from(rest, sizeof(manifest->head));
	if (manifest->head.kept_bytes > rest.len ||
		manifest->head.chunks > rest.len / sizeof(struct backup_entry))
		return backup_damaged(target, name, "its lengths are wrong");
	manifest->kept = slice_to(rest, manifest->head.kept_bytes);
	rest = slice_from(rest, manifest->head.kept_bytes);
	manifest->entries = calloc(manifest->head.chunks + 1u, sizeof(*manifest->entries));
	if (!manifest->entries)
		return backup_damaged(target, name, "no memory to read it");
	for (uint32_t i = 0; i < manifest->head.chunks; i++) {
		struct backup_entry entry;

		if (rest.len < sizeof(entry))
			return backup_damaged(target, name, "its lengths are wrong");
		memcpy(&entry, rest.data, sizeof(entry));
		if (entry.anchor_len > STORE_BACKUP_KEY_MAX ||
			rest.len - sizeof(entry) < entry.anchor_len)
			return backup_damaged(target, name, "its lengths are wrong");
		manifest->entries[i] = rest.data;
		rest = slice_from(rest, sizeof(entry) + entry.anchor_len);
	}
	return rest.len ? backup_damaged(target, name, "its lengths are wrong") : CLI_OK;
}

int backup_manifest_read(
	struct target *target, uint64_t number, struct backup_manifest *ret_manifest)
{
	char name[BACKUP_NAME_BYTES];
	int ret;

	*ret_manifest = (struct backup_manifest){0};
	backup_manifest_name(number, name);
	buf_init(&ret_manifest->file, MANIFEST_BYTES_MAX);
	ret = target_get(target, name, &ret_manifest->file);
	if (ret == CLI_NOT_FOUND)
		fprintf(stderr, "nebulaio: the backup %s: there is no number %llu\n",
			remote_text(target->text), (unsigned long long)number);
	if (!ret)
		ret = manifest_parse(target, number, ret_manifest);
	if (ret)
		backup_manifest_free(ret_manifest);
	return ret;
}

void backup_manifest_free(struct backup_manifest *manifest)
{
	buf_free(&manifest->file);
	free(manifest->entries);
	*manifest = (struct backup_manifest){0};
}

/* ---- Which there are. ---- */

static void number_visit(void *arg, const char *name)
{
	struct backup_numbers *numbers = arg;
	const char *slash = strrchr(name, '/');
	char own[BACKUP_NAME_BYTES];
	uint64_t number;

	if (!slash || slice_to_u64(slice_str(slash + 1), &number) || !number)
		return;
	backup_manifest_name(number, own);
	if (strcmp(name, own) == 0 && numbers->count < BACKUP_NUMBERS_MAX)
		numbers->list[numbers->count++] = number;
}

static int by_number(const void *one, const void *other)
{
	uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

	return (a > b) - (a < b);
}

int backup_numbers_read(struct target *target, struct backup_numbers *ret_numbers)
{
	int ret;

	*ret_numbers = (struct backup_numbers){
		.list = calloc(BACKUP_NUMBERS_MAX, sizeof(*ret_numbers->list))};
	if (!ret_numbers->list)
		return backup_damaged(target, "backups", "no memory to read it");
	ret = target_list(target, "backups", number_visit, ret_numbers);
	if (ret)
		free(ret_numbers->list);
	else if (ret_numbers->count)
		qsort(ret_numbers->list, ret_numbers->count, sizeof(*ret_numbers->list), by_number);
	return ret;
}
