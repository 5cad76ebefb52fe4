/* cli/upload_state.h: the saved state of a multipart upload, with which a later `cp --resume`
 * continues an interrupted one: a text file for each target below the user's state folder.
 *
 *  *	nebulaio upload 1
 *  *	SIZE MTIME_NS PART_BYTES UPLOAD_ID
 *  *	NUMBER CRC64 ETAG		for each part that the server has taken
 */
#ifndef CLI_UPLOAD_STATE_H
#define CLI_UPLOAD_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

#include "remote.h"

#define UPLOAD_PARTS_MAX    10000u
#define UPLOAD_ID_BYTES_MAX 256

struct upload_part {
	bool have; /* the server has it */
	uint64_t crc;
	char etag[84];
};

struct upload_state {
	char path[4096]; /* empty: nothing is written down */
	FILE *file;
	uint64_t bytes;
	int64_t mtime_ns;
	uint32_t part_bytes;
	char upload_id[UPLOAD_ID_BYTES_MAX];
	struct upload_part *parts; /* UPLOAD_PARTS_MAX */
};

/* The state of this file's way to this target. source is any path of the file. -ENOMEM; -ENOENT: no
 * folder for it can be found or made, the upload goes without. */
int upload_state_open(struct upload_state *state, const char *bucket, const char *key,
	const char *source, const struct stat *st);
void upload_state_close(struct upload_state *state);
/* Reads what was written down. True: there is an upload; *ret_same says whether it was of the file
 * as it is now. False: nothing, or nothing that can be read. */
bool upload_state_read(struct upload_state *state, bool *ret_same);
/* Asks the server which parts it has; the others are forgotten. Exit code: CLI_NOT_FOUND when the
 * upload is no more, which is not said. */
int upload_state_verify(
	struct upload_state *state, struct neb_client *client, const char *bucket, const char *key);
/* A new upload. -errno: it goes without. */
int upload_state_begin(struct upload_state *state, uint32_t part_bytes, const char *upload_id);
/* The next lines go behind what was read. */
int upload_state_go_on(struct upload_state *state);
void upload_state_part(struct upload_state *state, uint32_t number, uint64_t crc, const char *etag);
/* The upload is no more. */
void upload_state_drop(struct upload_state *state);

#endif
