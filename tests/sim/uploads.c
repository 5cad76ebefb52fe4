/* tests/sim/uploads.c: multipart uploads: created, filled, listed, completed by several clients at
 * a time, aborted. */
#include "load.h"

#include <stdio.h>
#include <string.h>

#define BIG_ONE_OF 6u /* parts that another may follow are large */

struct known_upload *upload_draw(struct client *client)
{
	uint32_t first = (uint32_t)prng_below(&client->prng, UPLOADS_KNOWN);

	for (uint32_t i = 0; i < shared->upload_count; i++) {
		struct known_upload *upload = &shared->uploads[(first + i) % shared->upload_count];

		/* An upload that has ended may be requested, too. */
		if (!upload->over || prng_below(&client->prng, 16) == 0)
			return upload;
	}
	return NULL;
}

static void upload_over(struct known_upload *upload)
{
	if (!upload->over)
		shared->known[upload->key].uploads--;
	upload->over = true;
}

static struct ask ask_of(const struct known_upload *upload, const char *method, enum neb_op op,
	const char *name, const char *query)
{
	return (struct ask){.method = method,
		.op = op,
		.bucket = bucket_of(upload->key),
		.name = name,
		.query = query};
}

/* The outcome of an operation on an upload; 404: no such upload. */
static enum history_outcome upload_outcome(const struct http_answer *answer)
{
	return answer->status == 404 ? HISTORY_REFUSED : outcome_of(answer->status);
}

static void upload_begin(struct client *client, uint16_t key)
{
	const struct history_op what = {.kind = HISTORY_UPLOAD, .key = key};
	char name[16];
	const struct ask ask = {.method = "POST",
		.op = NEB_S3,
		.bucket = bucket_of(key),
		.name = name,
		.query = "uploads="};
	struct known_upload *upload;
	struct http_answer answer;
	const char *at;
	uint32_t op;

	if (shared->known[key].uploads == HISTORY_UPLOADS_MAX ||
		shared->upload_count == UPLOADS_KNOWN)
		return;
	shared->known[key].uploads++;
	op = history_begin(&shared->history, &what);
	name_of_key(key, name);
	client_ask(client, &ask, &answer);
	if (outcome_of(answer.status) == HISTORY_NOTHING)
		shared->known[key].uploads--;
	if (outcome_of(answer.status) == HISTORY_DONE) {
		CHECK(shared->upload_count < UPLOADS_KNOWN);
		upload = &shared->uploads[shared->upload_count++];
		*upload = (struct known_upload){.key = key};
		at = (const char *)client->body;
		if (!xml_next(&at, "UploadId", upload->id, sizeof(upload->id)))
			world_fault("an upload without an id");
		shared->history.ops[op].name = history_name(&shared->history, upload->id);
	}
	history_end(&shared->history, op, outcome_of(answer.status));
	world_trace("upload", key, (uint64_t)answer.status);
}

static void part_put(struct client *client, struct known_upload *upload)
{
	uint8_t number = (uint8_t)prng_below(&client->prng, HISTORY_PARTS_MAX);
	bool big = number == 0 && prng_below(&client->prng, BIG_ONE_OF) == 0;
	struct history_op what = {.kind = HISTORY_PART, .key = upload->key, .part = number};
	char name[16], query[128];
	struct ask ask = ask_of(upload, "PUT", NEB_UPLOAD_PART, name, query);
	enum history_outcome outcome;
	struct http_answer answer;
	uint32_t op;

	what.upload = history_name(&shared->history, upload->id);
	what.content = value_make(client, upload->key,
		big ? PART_BYTES_MIN : MIN(value_bytes_draw(client), (uint32_t)MIB));
	name_of_key(upload->key, name);
	snprintf(query, sizeof(query), "partNumber=%u&uploadId=%s", number + 1u, upload->id);
	ask.body = client->body;
	ask.body_bytes = history_bytes(&shared->history, what.content);
	op = history_begin(&shared->history, &what);
	client_ask(client, &ask, &answer);
	outcome = upload_outcome(&answer);
	history_end(&shared->history, op, outcome);
	if (outcome == HISTORY_DONE) {
		upload->parts[number].value = what.content;
		memcpy(upload->parts[number].etag, answer.etag, sizeof(answer.etag));
	}
	world_trace("part", what.content, (uint64_t)answer.status);
}

static void parts_list(struct client *client, struct known_upload *upload)
{
	const struct history_op what = {.kind = HISTORY_PARTS,
		.key = upload->key,
		.upload = history_name(&shared->history, upload->id)};
	uint32_t op = history_begin(&shared->history, &what);
	char name[16], query[128], number[8], size[24];
	struct ask ask = ask_of(upload, "GET", NEB_S3, name, query);
	struct http_answer answer;
	const char *at;

	name_of_key(upload->key, name);
	snprintf(query, sizeof(query), "uploadId=%s", upload->id);
	client_ask(client, &ask, &answer);
	at = (const char *)client->body;
	while (answer.status == 200 && xml_next(&at, "PartNumber", number, sizeof(number)) &&
		xml_next(&at, "Size", size, sizeof(size))) {
		const struct history_entry entry = {.part = (uint32_t)strtoul(number, NULL, 10) - 1,
			.bytes = strtoull(size, NULL, 10)};

		history_entry_add(&shared->history, op, &entry);
	}
	history_end(&shared->history, op,
		answer.status == 404   ? HISTORY_REFUSED
		: answer.status == 200 ? HISTORY_DONE
				       : HISTORY_LOST);
	world_trace("list parts", op, (uint64_t)answer.status);
}

/* Chooses parts so that all but the last are large: the first and one more, or only one. */
static void parts_choose(
	struct client *client, const struct known_upload *upload, struct history_op *op)
{
	uint64_t first = prng_below(&client->prng, HISTORY_PARTS_MAX);
	uint32_t big = upload->parts[0].value;

	if (big && history_bytes(&shared->history, big) >= PART_BYTES_MIN)
		op->parts[0] = big;
	for (uint32_t i = 0; i < HISTORY_PARTS_MAX; i++) {
		uint64_t at = (first + i) % HISTORY_PARTS_MAX;

		if (!upload->parts[at].value || op->parts[at])
			continue;
		op->parts[at] = upload->parts[at].value;
		break;
	}
	for (uint32_t i = 0; i < HISTORY_PARTS_MAX; i++)
		if (op->parts[i])
			op->content = history_chain(&shared->history, op->content, op->parts[i]);
}

static size_t completion_text(
	const struct known_upload *upload, const struct history_op *op, char *text, size_t room)
{
	size_t len = (size_t)snprintf(text, room, "<CompleteMultipartUpload>");

	for (uint32_t i = 0; i < HISTORY_PARTS_MAX; i++)
		if (op->parts[i])
			len += (size_t)snprintf(text + len, room - len,
				"<Part><PartNumber>%u</PartNumber><ETag>%s</ETag></Part>", i + 1,
				upload->parts[i].etag);
	return len + (size_t)snprintf(text + len, room - len, "</CompleteMultipartUpload>");
}

void late_error(struct client *client, struct http_answer *answer)
{
	const char *text = (const char *)client->body;

	if (answer->status == 200 && strstr(text, "<Error>"))
		answer->status = strstr(text, "NoSuchUpload")  ? 404
				 : strstr(text, "InvalidPart") ? 400
							       : 500;
}

static void complete(struct client *client, struct known_upload *upload)
{
	struct history_op what = {.kind = HISTORY_COMPLETE, .key = upload->key};
	char name[16], query[128], text[512];
	struct ask ask = ask_of(upload, "POST", NEB_COMPLETE_MULTIPART, name, query);
	enum history_outcome outcome;
	struct http_answer answer;
	uint32_t op;

	parts_choose(client, upload, &what);
	if (!what.content)
		return;
	what.upload = history_name(&shared->history, upload->id);
	ask.body = text;
	ask.body_bytes = completion_text(upload, &what, text, sizeof(text));
	name_of_key(upload->key, name);
	snprintf(query, sizeof(query), "uploadId=%s", upload->id);
	op = history_begin(&shared->history, &what);
	client_ask(client, &ask, &answer);
	late_error(client, &answer);
	outcome = upload_outcome(&answer);
	if (outcome == HISTORY_DONE || outcome == HISTORY_REFUSED)
		upload_over(upload);
	if (outcome == HISTORY_DONE || outcome == HISTORY_LOST)
		write_ended(op, &answer);
	else
		history_end(&shared->history, op, outcome);
	world_trace("complete", what.content, (uint64_t)answer.status);
}

static void upload_abort(struct client *client, struct known_upload *upload)
{
	const struct history_op what = {.kind = HISTORY_ABORT,
		.key = upload->key,
		.upload = history_name(&shared->history, upload->id)};
	uint32_t op = history_begin(&shared->history, &what);
	char name[16], query[128];
	struct ask ask = ask_of(upload, "DELETE", NEB_ABORT_MULTIPART, name, query);
	enum history_outcome outcome;
	struct http_answer answer;

	name_of_key(upload->key, name);
	snprintf(query, sizeof(query), "uploadId=%s", upload->id);
	client_ask(client, &ask, &answer);
	outcome = upload_outcome(&answer);
	if (outcome == HISTORY_DONE || outcome == HISTORY_REFUSED)
		upload_over(upload);
	history_end(&shared->history, op, outcome);
	world_trace("abort", op, (uint64_t)answer.status);
}

/* ---- All uploads of a bucket. ---- */

static void bucket_list(struct client *client, uint16_t first, uint16_t count)
{
	const struct ask ask = {
		.method = "GET", .op = NEB_S3, .bucket = bucket_of(first), .query = "uploads="};
	char name[16], id[HISTORY_NAME_BYTES];
	uint32_t ops[KEYS];
	struct http_answer answer;
	const char *at;
	unsigned key;

	for (uint16_t i = 0; i < count; i++) {
		const struct history_op what = {
			.kind = HISTORY_UPLOADS, .key = (uint16_t)(first + i)};

		ops[i] = history_begin(&shared->history, &what);
	}
	client_ask(client, &ask, &answer);
	/* Uploads of one key are adjacent. */
	at = (const char *)client->body;
	while (answer.status == 200 && (at = strstr(at, "<Upload>")) &&
		xml_next(&at, "Key", name, sizeof(name)) &&
		xml_next(&at, "UploadId", id, sizeof(id))) {
		const struct history_entry entry = {.name = history_name(&shared->history, id)};

		if (sscanf(name + 3, "%u", &key) != 1 || key < first || key >= first + count)
			world_fault("an upload of '%s', which nobody began", name);
		history_entry_add(&shared->history, ops[key - first], &entry);
	}
	for (uint16_t i = 0; i < count; i++)
		history_end(&shared->history, ops[i],
			answer.status == 200 ? HISTORY_DONE : HISTORY_LOST);
	world_trace("list uploads", first, (uint64_t)answer.status);
}

void uploads_list(struct client *client)
{
	bucket_list(client, 0, KEYS_PLAIN);
	if (opts.versions)
		bucket_list(client, KEY_VERSIONED, KEYS_VERSIONED);
}

void uploads_op(struct client *client)
{
	uint64_t what = prng_below(&client->prng, 20);
	struct known_upload *upload = upload_draw(client);
	uint16_t key =
		(uint16_t)prng_below(&client->prng, opts.versions ? KEY_APPENDED : KEYS_PLAIN);

	if (what < 4 || !upload)
		upload_begin(client, key);
	else if (what < 11)
		part_put(client, upload);
	else if (what < 13)
		parts_list(client, upload);
	else if (what < 17)
		complete(client, upload);
	else if (what < 18)
		upload_abort(client, upload);
	else
		uploads_list(client);
}
