/* cli/backup_file.h: the files of a backup (docs/spec/backup.md): manifests, chunks of rows, packs
 * of bodies. Everything read from a target is checked. */
#ifndef CLI_BACKUP_FILE_H
#define CLI_BACKUP_FILE_H

#include "backup_target.h"
#include "codec/codec.h"
#include "store/backup.h"

#define BACKUP_VERSION	   1u
#define BACKUP_NAME_BYTES  96u
#define BACKUP_PACK_ID	   16u
#define BACKUP_NUMBERS_MAX 100000u
/* A body up to this size lies in a pack with others; a larger one has a file of its own. */
#define BACKUP_PACKED_BYTES_MAX (1 * MIB)
#define BACKUP_PACK_BYTES	(16 * MIB)
/* Bounds of a chunk; what a backup reads has at most one more row. */
#define BACKUP_CHUNK_BYTES (1 * MIB)
#define BACKUP_CHUNK_MAX   (16 * MIB)

/* Every file begins with this. */
struct backup_head {
	char magic[8];
	uint32_t version;
	uint32_t crc32c; /* of all that follows; 0 in files of bodies, which the rows check */
};
#define BACKUP_MAGIC_MANIFEST "NEBBACK\n"
#define BACKUP_MAGIC_CHUNK    "NEBROWS\n"
#define BACKUP_MAGIC_BODIES   "NEBBODY\n"

/* ---- Chunks of rows. ---- */

struct backup_chunk_head {
	struct backup_head head;
	uint64_t row_bytes;
	uint32_t places; /* one for each row with a body, in order */
	uint32_t zero;
};
/* Where a body lies. */
struct backup_place {
	uint64_t data_id;
	uint32_t segment;
	uint32_t sum;
	uint64_t bytes;
	uint64_t offset;	      /* in the file */
	uint8_t pack[BACKUP_PACK_ID]; /* all 0: in a file of its own */
};
_Static_assert(sizeof(struct backup_chunk_head) == 32 && sizeof(struct backup_place) == 48,
	"as docs/spec/backup.md has them");

struct backup_chunk {
	struct buf file;
	struct slice rows;
	struct backup_place *places;
	uint32_t place_count;
};
/* An exit code, with why printed. */
int backup_chunk_read(
	struct target *target, const uint8_t hash[SHA256_BYTES], struct backup_chunk *ret_chunk);
void backup_chunk_free(struct backup_chunk *chunk);
void backup_chunk_name(const uint8_t hash[SHA256_BYTES], char out[BACKUP_NAME_BYTES]);
/* The file that has the body. */
void backup_body_name(const struct backup_place *place, char out[BACKUP_NAME_BYTES]);

/* Whether it is the name of a chunk, a pack or a body, also of one that was not written to its end;
 * and no file of somebody else. */
bool backup_name_is_ours(const char *name);

/* ---- Manifests. ---- */

struct backup_manifest_head {
	struct backup_head head;
	struct store_backup_head store;
	uint64_t number;
	uint64_t begun_ns, ended_ns; /* real time */
	uint64_t rows, bodies, body_bytes;
	uint64_t sent_bytes; /* what this backup added */
	uint32_t kept_bytes; /* JSON: the sealed key files */
	uint32_t chunks;
};
struct backup_entry {
	uint8_t hash[SHA256_BYTES];
	uint32_t rows;
	uint32_t anchor_len;
	uint64_t body_bytes;
	/* The key of the record that the chunk begins in follows. */
};
_Static_assert(sizeof(struct backup_manifest_head) == 136 && sizeof(struct backup_entry) == 48,
	"as docs/spec/backup.md has them");

struct backup_manifest {
	struct buf file;
	struct backup_manifest_head head;
	struct slice kept;
	const char **entries; /* each a struct backup_entry with its key; not aligned */
};
void backup_manifest_name(uint64_t number, char out[BACKUP_NAME_BYTES]);
int backup_manifest_read(
	struct target *target, uint64_t number, struct backup_manifest *ret_manifest);
void backup_manifest_free(struct backup_manifest *manifest);
static inline void backup_entry_get(const struct backup_manifest *manifest, uint32_t idx,
	struct backup_entry *ret_entry, struct slice *ret_anchor)
{
	memcpy(ret_entry, manifest->entries[idx], sizeof(*ret_entry));
	*ret_anchor = slice_of(manifest->entries[idx] + sizeof(*ret_entry), ret_entry->anchor_len);
}

/* The numbers of the backups that the target has, in order. */
struct backup_numbers {
	uint64_t *list;
	uint32_t count;
};
int backup_numbers_read(struct target *target, struct backup_numbers *ret_numbers);

/* backup_prune.c: exit codes, with why printed. */
/* Removes all backups but the last ones, and what only they need. */
int backup_prune(struct target *target, uint64_t keep);
int backup_list_print(struct target *target, bool json);

void backup_head_fill(
	struct backup_head *head, const char *magic, const struct slice *parts, uint32_t count);
/* CLI_OK; CLI_DAMAGED, prints why: another kind of file, damaged, or of a later program. */
int backup_head_check(const struct target *target, const char *name, struct slice file,
	const char *magic, bool sums);
int backup_damaged(const struct target *target, const char *name, const char *why);

#endif
