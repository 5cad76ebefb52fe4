/* cli/upload_state.h: the saved state of a multipart upload, with which a later `cp --resume`
 * continues an interrupted one: a text file for each target below the user's state folder.
 *
 *  *	nebulaio upload 1
 *  *	SIZE MTIME_NS PART_BYTES UPLOAD_ID HEADERS	the last a digest of the object's headers
 *  *	NUMBER CRC64 ETAG		for each part that the server has taken
 */
#ifndef CLI_UPLOAD_STATE_H
#define CLI_UPLOAD_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

#include "transfer.h"

#define UPLOAD_PARTS_MAX    10000u
#define UPLOAD_ID_BYTES_MAX 256
#define UPLOAD_DIGEST_BYTES 16

struct upload_part {
	bool have; /* the server has the part */
	uint64_t crc;
	char etag[84];
};

struct upload_state {
	char path[4096]; /* empty: no state is saved */
	FILE *file;
	uint64_t bytes;
	int64_t mtime_ns;
	uint32_t part_bytes;
	char upload_id[UPLOAD_ID_BYTES_MAX];
	char headers[2 * UPLOAD_DIGEST_BYTES + 1]; /* digest of those that create the upload */
	struct upload_part *parts;		   /* UPLOAD_PARTS_MAX */
};

/* Opens the state of this file's upload to the transfer's object. source is any path of the file.
 * -ENOMEM; -ENOENT: there is no folder for it and none can be made; the upload runs without. */
int upload_state_open(struct upload_state *state, const struct transfer *transfer,
	const char *source, const struct stat *st);
void upload_state_close(struct upload_state *state);
/* Reads the saved state. True: there is an upload; *ret_same: it is of the same file,
 * unchanged since, with the same headers. False: there is no state, or it is unreadable. */
bool upload_state_read(struct upload_state *state, bool *ret_same);
/* Asks the server which parts it has, and drops the others. Exit code; CLI_NOT_FOUND, without a
 * message: the upload no longer exists. */
int upload_state_verify(
	struct upload_state *state, struct neb_client *client, const char *bucket, const char *key);
/* Saves a new upload. -errno: the upload runs without saved state. */
int upload_state_begin(struct upload_state *state, uint32_t part_bytes, const char *upload_id);
/* Opens the state to append lines. */
int upload_state_go_on(struct upload_state *state);
void upload_state_part(struct upload_state *state, uint32_t number, uint64_t crc, const char *etag);
/* Deletes the state: the upload has ended. */
void upload_state_drop(struct upload_state *state);

#endif
