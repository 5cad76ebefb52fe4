/* cli/upload_state.c: the saved state of a multipart upload. */
#include "upload_state.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "codec/codec.h"
#include "s3_call.h"

#define LINE_BYTES 512
#define FIRST_LINE "nebulaio upload 1\n"

/* Makes all folders up to the last '/', for this user only. */
static int folders_make(char *path)
{
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		int ret;

		*slash = '\0';
		ret = mkdir(path, 0700);
		*slash = '/';
		if (ret && errno != EEXIST)
			return -errno;
	}
	return 0;
}

/* XDG's folder for state that survives a reboot and that the user does not edit. */
static int folder_name(char *buf, size_t buf_bytes)
{
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	int len;

	if (state && *state == '/')
		len = snprintf(buf, buf_bytes, "%s/nebulaio/uploads/", state);
	else if (home && *home == '/')
		len = snprintf(buf, buf_bytes, "%s/.local/state/nebulaio/uploads/", home);
	else
		return -ENOENT;
	return (size_t)len + 2 * UPLOAD_DIGEST_BYTES + 1 > buf_bytes ? -ENOENT : 0;
}

/* A created upload keeps the headers: a command that asks for others cannot complete it. */
static void headers_digest(const struct transfer_headers *headers, char *ret_hex)
{
	uint8_t digest[SHA256_BYTES];
	struct sha256 sha256;

	sha256_init(&sha256);
	for (uint32_t i = 0; headers && i < headers->count; i++) {
		const struct neb_header *header = &headers->all[i];

		sha256_update(&sha256, header->name, strlen(header->name) + 1);
		sha256_update(&sha256, header->value, strlen(header->value) + 1);
	}
	sha256_final(&sha256, digest);
	hex_encode(digest, UPLOAD_DIGEST_BYTES, ret_hex);
}

int upload_state_open(struct upload_state *state, const struct transfer *transfer,
	const char *source, const struct stat *st)
{
	char *full = realpath(source, NULL);
	uint8_t digest[SHA256_BYTES];
	struct sha256 sha256;

	*state = (struct upload_state){.bytes = (uint64_t)st->st_size,
		.mtime_ns = (int64_t)st->st_mtim.tv_sec * (int64_t)NS_PER_S + st->st_mtim.tv_nsec,
		.parts = calloc(UPLOAD_PARTS_MAX, sizeof(*state->parts))};
	if (!full || !state->parts) {
		free(full);
		return -ENOMEM;
	}
	headers_digest(transfer->headers, state->headers);
	sha256_init(&sha256);
	sha256_update(&sha256, transfer->bucket, strlen(transfer->bucket) + 1);
	sha256_update(&sha256, transfer->key, strlen(transfer->key) + 1);
	sha256_update(&sha256, full, strlen(full) + 1);
	sha256_final(&sha256, digest);
	free(full);
	if (folder_name(state->path, sizeof(state->path)) || folders_make(state->path)) {
		state->path[0] = '\0';
		return -ENOENT;
	}
	hex_encode(digest, UPLOAD_DIGEST_BYTES, state->path + strlen(state->path));
	return 0;
}

void upload_state_close(struct upload_state *state)
{
	if (state->file)
		fclose(state->file);
	free(state->parts);
	*state = (struct upload_state){0};
}

static void part_line_read(struct upload_state *state, const char *line)
{
	struct upload_part part = {.have = true};
	uint32_t number;
	int end = 0;

	if (sscanf(line, "%" SCNu32 " %16" SCNx64 " %83s%n", &number, &part.crc, part.etag, &end) !=
			3 ||
		line[end] != '\n' || number < 1 || number > UPLOAD_PARTS_MAX)
		return;
	state->parts[number - 1] = part;
}

bool upload_state_read(struct upload_state *state, bool *ret_same)
{
	char line[LINE_BYTES], headers[sizeof(state->headers)] = "";
	uint64_t bytes;
	int64_t mtime_ns;
	FILE *file = state->path[0] ? fopen(state->path, "re") : NULL;
	bool ok;

	if (!file)
		return false;
	ok = fgets(line, sizeof(line), file) && strcmp(line, FIRST_LINE) == 0 &&
	     fgets(line, sizeof(line), file) &&
	     sscanf(line, "%" SCNu64 " %" SCNd64 " %" SCNu32 " %255s %32s", &bytes, &mtime_ns,
		     &state->part_bytes, state->upload_id, headers) >= 4 &&
	     state->part_bytes > 0;
	/* An incomplete line is no part; a later run wrote the lines after it. */
	while (ok && fgets(line, sizeof(line), file))
		part_line_read(state, line);
	fclose(file);
	if (ok)
		*ret_same = bytes == state->bytes && mtime_ns == state->mtime_ns &&
			    strcmp(headers, state->headers) == 0;
	return ok;
}

/* ---- The parts that the server has. ---- */

struct listed {
	struct upload_state *state;
	struct upload_part *parts; /* as listed by the server */
	uint32_t number, last;
	bool truncated;
};

static void on_part(void *arg, enum xml_event event, const char *name, const char *text)
{
	struct listed *listed = arg;

	if (event == XML_BEGIN)
		return;
	if (strcmp(name, "IsTruncated") == 0)
		listed->truncated = strcmp(text, "true") == 0;
	if (strcmp(name, "PartNumber") == 0)
		listed->number = (uint32_t)strtoul(text, NULL, 10);
	if (listed->number < 1 || listed->number > UPLOAD_PARTS_MAX)
		return;
	if (strcmp(name, "ETag") == 0 && strlen(text) > 2)
		snprintf(listed->parts[listed->number - 1].etag,
			sizeof(listed->parts[listed->number - 1].etag), "%.*s",
			(int)(strlen(text) - 2), text + 1);
	if (strcmp(name, "Part") == 0) {
		listed->parts[listed->number - 1].have = true;
		listed->last = listed->number;
		listed->number = 0;
	}
}

static int parts_list(
	struct listed *listed, struct neb_client *client, const char *bucket, const char *key)
{
	char query[UPLOAD_ID_BYTES_MAX + 64];
	struct s3_call call = {.method = "GET",
		.bucket = bucket,
		.key = key,
		.query = query,
		.may_be_missing = true};
	struct buf answer;
	int ret;

	buf_init(&answer, 4 * MIB);
	do {
		buf_reset(&answer);
		listed->truncated = false;
		snprintf(query, sizeof(query), "part-number-marker=%u&uploadId=%s", listed->last,
			listed->state->upload_id);
		ret = s3_call(client, &call, &answer, NULL);
		if (ret == CLI_OK && xml_read(answer.data, answer.len - 1, on_part, listed)) {
			fprintf(stderr, "nebulaio: %s: the server's list of parts is not XML\n",
				key);
			ret = CLI_FAILED;
		}
	} while (ret == CLI_OK && listed->truncated);
	buf_free(&answer);
	return ret;
}

int upload_state_verify(
	struct upload_state *state, struct neb_client *client, const char *bucket, const char *key)
{
	struct listed listed = {
		.state = state, .parts = calloc(UPLOAD_PARTS_MAX, sizeof(*listed.parts))};
	int ret = listed.parts ? parts_list(&listed, client, bucket, key) : CLI_FAILED;

	for (uint32_t i = 0; ret == CLI_OK && i < UPLOAD_PARTS_MAX; i++)
		state->parts[i].have &= listed.parts[i].have &&
					strcmp(state->parts[i].etag, listed.parts[i].etag) == 0;
	free(listed.parts);
	return ret;
}

/* ---- Writing. ---- */

int upload_state_begin(struct upload_state *state, uint32_t part_bytes, const char *upload_id)
{
	int fd;

	state->part_bytes = part_bytes;
	snprintf(state->upload_id, sizeof(state->upload_id), "%s", upload_id);
	memset(state->parts, 0, UPLOAD_PARTS_MAX * sizeof(*state->parts));
	if (!state->path[0])
		return -ENOENT;
	fd = open(state->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	state->file = fd < 0 ? NULL : fdopen(fd, "w");
	if (!state->file)
		return -errno;
	fprintf(state->file, FIRST_LINE "%" PRIu64 " %" PRId64 " %" PRIu32 " %s %s\n", state->bytes,
		state->mtime_ns, part_bytes, upload_id, state->headers);
	return fflush(state->file) ? -errno : 0;
}

int upload_state_go_on(struct upload_state *state)
{
	int fd = open(state->path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);

	state->file = fd < 0 ? NULL : fdopen(fd, "a");
	/* Ends a line that an earlier run left incomplete. */
	if (state->file)
		fputc('\n', state->file);
	return state->file ? 0 : -errno;
}

void upload_state_part(struct upload_state *state, uint32_t number, uint64_t crc, const char *etag)
{
	struct upload_part *part = &state->parts[number - 1];

	part->have = true;
	part->crc = crc;
	snprintf(part->etag, sizeof(part->etag), "%s", etag);
	if (!state->file)
		return;
	fprintf(state->file, "%" PRIu32 " %016" PRIx64 " %s\n", number, crc, etag);
	fflush(state->file);
}

void upload_state_drop(struct upload_state *state)
{
	if (state->file)
		fclose(state->file);
	state->file = NULL;
	if (state->path[0])
		unlink(state->path);
}
