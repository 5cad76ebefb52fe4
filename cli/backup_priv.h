/* cli/backup_priv.h: a backup in progress, shared by the files that make it:
 *
 *   backup.c          passes over the rows, the manifest, the command line
 *   backup_server.c   the store's side: its session, rows and bodies by the admin API
 *   backup_before.c   what the backup before has
 *   backup_chunk.c    rows in chunks, with the bodies that they need */
#ifndef CLI_BACKUP_PRIV_H
#define CLI_BACKUP_PRIV_H

#include "backup_file.h"
#include "transfer.h"

/* The session of the server has ended: a new one goes on. */
#define BACKUP_AGAIN	    100
#define BACKUP_ANSWER_BYTES (2 * STORE_BACKUP_READ_BYTES)

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

/* ---- backup_server.c: CLI_OK, an exit code, or BACKUP_AGAIN. ---- */
/* The answer is in backup->answer. */
int backup_ask(struct backup *backup, const char *method, const char *path, struct slice text);
int backup_session_begin(struct backup *backup);
void backup_session_end(struct backup *backup);
int backup_body_fetch(struct backup *backup, struct slice key, uint64_t bytes, uint8_t *out);

/* ---- backup_before.c ---- */
/* Reads the manifest of the backup before, which must be of the same store. */
int backup_old_open(struct backup *backup, uint64_t last);
/* Whether it has the chunk. */
bool backup_old_has(const struct backup *backup, const uint8_t hash[SHA256_BYTES]);
/* Loads the places of bodies that the chunk's records may have there. */
int backup_known_load(struct backup *backup);
/* Whether the backup before has the body; then place says where. */
bool backup_known_find(const struct backup *backup, struct backup_place *place);

/* ---- backup_chunk.c ---- */
/* Adds a row, whole with key and value, to the chunk, which ends before it where a chunk should. */
int backup_row_take(struct backup *backup, const struct store_backup_row *row, struct slice key,
	struct slice whole);
/* Stores the chunk and its bodies, if the target has not got them. */
int backup_chunk_end(struct backup *backup);

#endif
