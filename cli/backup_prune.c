/* cli/backup_prune.c: `nebulaio admin backup-list`, and the removal of old backups: first their
 * manifests, then the rows that no other manifest names, then the bodies that no rows name. So what
 * is left is whole after each step. */
#include "backup.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backup_file.h"

#define NAMES_BYTES_MAX (1024 * MIB)
#define DIGEST_BYTES	16u

/* The files that are needed, by a digest of their names. */
struct needed {
	uint8_t (*list)[DIGEST_BYTES];
	size_t count, cap;
	struct buf names; /* files that are not, each with its NUL */
};

static void digest_of(const char *name, uint8_t out[DIGEST_BYTES])
{
	uint8_t digest[SHA256_BYTES];

	sha256_of(name, strlen(name), digest);
	memcpy(out, digest, DIGEST_BYTES);
}

static int by_digest(const void *one, const void *other)
{
	return memcmp(one, other, DIGEST_BYTES);
}

static int need(struct needed *needed, const char *name)
{
	if (needed->count == needed->cap) {
		size_t cap = needed->cap ? 2 * needed->cap : 4096;
		void *grown = realloc(needed->list, cap * DIGEST_BYTES);

		if (!grown)
			return CLI_FAILED;
		needed->list = grown;
		needed->cap = cap;
	}
	digest_of(name, needed->list[needed->count++]);
	return CLI_OK;
}

static int chunk_need(
	struct target *target, struct needed *needed, const struct backup_entry *entry)
{
	char name[BACKUP_NAME_BYTES], last[BACKUP_NAME_BYTES] = "";
	struct backup_chunk chunk;
	int ret = backup_chunk_read(target, entry->hash, &chunk);

	if (ret)
		return ret;
	backup_chunk_name(entry->hash, name);
	ret = need(needed, name);
	for (uint32_t i = 0; i < chunk.place_count && !ret; i++) {
		backup_body_name(&chunk.places[i], name);
		if (strcmp(name, last) != 0)
			ret = need(needed, name);
		memcpy(last, name, sizeof(last));
	}
	backup_chunk_free(&chunk);
	return ret;
}

static int manifest_need(struct target *target, struct needed *needed, uint64_t number)
{
	struct backup_manifest manifest;
	int ret = backup_manifest_read(target, number, &manifest);

	if (ret)
		return ret;
	for (uint32_t i = 0; i < manifest.head.chunks && !ret; i++) {
		struct backup_entry entry;
		struct slice anchor;

		backup_entry_get(&manifest, i, &entry, &anchor);
		ret = chunk_need(target, needed, &entry);
	}
	backup_manifest_free(&manifest);
	return ret;
}

static void name_visit(void *arg, const char *name)
{
	struct needed *needed = arg;
	uint8_t digest[DIGEST_BYTES];

	if (!backup_name_is_ours(name))
		return;
	digest_of(name, digest);
	if (!bsearch(digest, needed->list, needed->count, DIGEST_BYTES, by_digest))
		buf_put(&needed->names, name, strlen(name) + 1);
}

static int rest_remove(struct target *target, struct needed *needed, const char *folder)
{
	int ret;

	buf_reset(&needed->names);
	ret = target_list(target, folder, name_visit, needed);
	for (size_t at = 0; !ret && at < needed->names.len;
		at += strlen(needed->names.data + at) + 1)
		ret = target_remove(target, needed->names.data + at);
	return ret ? ret : target_sync(target);
}

static int remove_all(struct target *target, const struct backup_numbers *numbers, uint32_t old,
	struct needed *needed)
{
	static const char *const FOLDERS[] = {"rows", "packs", "bodies"};
	char name[BACKUP_NAME_BYTES];
	int ret = CLI_OK;

	for (uint32_t i = old; i < numbers->count && !ret; i++)
		ret = manifest_need(target, needed, numbers->list[i]);
	if (!ret && needed->count)
		qsort(needed->list, needed->count, DIGEST_BYTES, by_digest);
	for (uint32_t i = 0; i < old && !ret; i++) {
		backup_manifest_name(numbers->list[i], name);
		ret = target_remove(target, name);
	}
	if (!ret)
		ret = target_sync(target);
	for (size_t i = 0; i < ARRAY_LEN(FOLDERS) && !ret; i++)
		ret = rest_remove(target, needed, FOLDERS[i]);
	return ret;
}

int backup_prune(struct target *target, uint64_t keep)
{
	struct backup_numbers numbers;
	struct needed needed = {0};
	int ret = backup_numbers_read(target, &numbers);

	if (ret)
		return ret;
	buf_init(&needed.names, NAMES_BYTES_MAX);
	if (numbers.count > keep)
		ret = remove_all(target, &numbers, (uint32_t)(numbers.count - keep), &needed);
	buf_free(&needed.names);
	free(needed.list);
	free(numbers.list);
	return ret;
}

/* ---- The list. ---- */

static void print_one(const struct backup_manifest_head *head, bool json)
{
	time_t seconds = (time_t)(head->begun_ns / NS_PER_S);
	char when[32], bytes[32], sent[32];
	struct tm tm;

	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &tm));
	if (json)
		printf("{\"number\": %llu, \"begun\": \"%s\", \"rows\": %llu, \"bodies\": %llu, "
		       "\"bytes\": %llu, \"sent_bytes\": %llu}\n",
			(unsigned long long)head->number, when, (unsigned long long)head->rows,
			(unsigned long long)head->bodies, (unsigned long long)head->body_bytes,
			(unsigned long long)head->sent_bytes);
	else
		printf("%8llu  %s  %llu bodies, %s; %s were new\n",
			(unsigned long long)head->number, when, (unsigned long long)head->bodies,
			remote_bytes_text(head->body_bytes, bytes),
			remote_bytes_text(head->sent_bytes, sent));
}

int backup_list_print(struct target *target, bool json)
{
	struct backup_numbers numbers;
	int worst = CLI_OK, ret = backup_numbers_read(target, &numbers);

	if (ret)
		return ret;
	for (uint32_t i = 0; i < numbers.count; i++) {
		struct backup_manifest manifest;

		/* A damaged one does not hide the others. */
		ret = backup_manifest_read(target, numbers.list[i], &manifest);
		if (!ret)
			print_one(&manifest.head, json);
		worst = MAX(worst, ret);
		if (!ret)
			backup_manifest_free(&manifest);
	}
	if (!numbers.count)
		fprintf(stderr, "nebulaio: the backup %s: there is none yet\n",
			remote_text(target->text));
	free(numbers.list);
	return numbers.count ? worst : CLI_NOT_FOUND;
}
