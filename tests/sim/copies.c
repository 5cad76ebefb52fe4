/* tests/sim/copies.c: operations that make objects from others: copies, copied parts, appends,
 * renames. A request names its source by its ETag, so the content of the copy is known even if the
 * answer is lost. */
#include "load.h"

#include <stdio.h>
#include <string.h>

#define APPEND_BYTES_MAX 20000u

/* The source of an operation: the expected content of its key. */
struct source {
	uint16_t key;
	uint32_t content;
	char text[64], quoted[96];
	uint32_t op; /* the read of the source */
};

static bool source_draw(
	struct client *client, struct source *source, uint16_t first, uint16_t count)
{
	uint64_t at = prng_below(&client->prng, count);

	for (uint16_t i = 0; i < count; i++) {
		char name[16];

		source->key = (uint16_t)(first + (at + i) % count);
		source->content = shared->known[source->key].content;
		if (!source->content)
			continue;
		name_of_key(source->key, name);
		snprintf(source->text, sizeof(source->text), "%s/%s", bucket_of(source->key), name);
		snprintf(source->quoted, sizeof(source->quoted), "\"%s\"",
			shared->known[source->key].etag);
		return true;
	}
	return false;
}

static void source_begin(struct source *source)
{
	const struct history_op what = {.kind = HISTORY_READ,
		.key = source->key,
		.condition = HISTORY_IF_CONTENT,
		.expected = source->content,
		.content = source->content};

	source->op = history_begin(&shared->history, &what);
}

/* If the copy was made, the source had its ETag then; if it was refused (412, 404), it had not.
 * Other outcomes say nothing about it. */
static void source_end(const struct source *source, const struct http_answer *answer)
{
	bool refused = answer->status == 412 || answer->status == 404;

	history_end(&shared->history, source->op,
		answer->status == 200 ? HISTORY_DONE
		: refused	      ? HISTORY_REFUSED
				      : HISTORY_LOST);
}

static struct ask copy_ask(const struct source *source, const char *name, uint16_t to)
{
	return (struct ask){.method = "PUT",
		.op = NEB_COPY_OBJECT,
		.bucket = bucket_of(to),
		.name = name,
		.headers = {{"x-amz-copy-source", source->text},
			{"x-amz-copy-source-if-match", source->quoted}}};
}

static void copy(struct client *client)
{
	uint16_t count = opts.versions ? KEY_APPENDED : KEYS_PLAIN;
	struct history_op what = {.kind = HISTORY_PUT};
	struct http_answer answer;
	struct source source;
	struct ask ask;
	char name[16];
	uint32_t op;

	what.key = (uint16_t)prng_below(&client->prng, count);
	if (!source_draw(client, &source, 0, count) || source.key == what.key ||
		!versions_may_write(what.key))
		return;
	shared->known[what.key].writes++;
	what.content = source.content;
	name_of_key(what.key, name);
	ask = copy_ask(&source, name, what.key);
	op = history_begin(&shared->history, &what);
	source_begin(&source);
	client_ask(client, &ask, &answer);
	late_error(client, &answer);
	source_end(&source, &answer);
	write_ended(op, &answer);
}

/* "&quot;…&quot;", without the text around it. */
static void etag_read(struct client *client, char *etag, size_t room)
{
	const char *at = (const char *)client->body;
	size_t len;

	etag[0] = 0;
	at = strstr(at, "<ETag>&quot;");
	if (!at)
		return;
	at += strlen("<ETag>&quot;");
	len = MIN(strcspn(at, "&"), room - 1);
	memcpy(etag, at, len);
	etag[len] = 0;
}

static void copy_part(struct client *client)
{
	struct known_upload *upload = upload_draw(client);
	struct history_op what = {.kind = HISTORY_PART};
	char name[16], query[128];
	struct http_answer answer;
	struct source source;
	struct ask ask;
	uint32_t op;

	if (!upload || !source_draw(client, &source, 0, KEYS_PLAIN))
		return;
	what.key = upload->key;
	/* The object made of it would have the key's content, but another ETag. */
	if (source.key == what.key)
		return;
	what.part = (uint8_t)prng_below(&client->prng, HISTORY_PARTS_MAX);
	what.upload = history_name(&shared->history, upload->id);
	what.content = source.content;
	name_of_key(what.key, name);
	ask = copy_ask(&source, name, what.key);
	ask.op = NEB_UPLOAD_PART;
	snprintf(query, sizeof(query), "partNumber=%u&uploadId=%s", what.part + 1u, upload->id);
	ask.query = query;
	op = history_begin(&shared->history, &what);
	source_begin(&source);
	client_ask(client, &ask, &answer);
	late_error(client, &answer);
	/* 404 may mean the source or the target. */
	history_end(&shared->history, source.op,
		answer.status == 200   ? HISTORY_DONE
		: answer.status == 412 ? HISTORY_REFUSED
				       : HISTORY_LOST);
	history_end(&shared->history, op, outcome_of(answer.status));
	if (answer.status == 200) {
		upload->parts[what.part].value = what.content;
		etag_read(client, upload->parts[what.part].etag,
			sizeof(upload->parts[what.part].etag));
	}
	world_trace("copy part", what.content, (uint64_t)answer.status);
}

/* ---- In a directory bucket. ---- */

static uint16_t appended_draw(struct client *client)
{
	return (uint16_t)(KEY_APPENDED + prng_below(&client->prng, KEYS_APPENDED));
}

static void append(struct client *client, uint16_t key)
{
	struct history_op what = {
		.kind = HISTORY_APPEND, .key = key, .condition = HISTORY_IF_BYTES};
	char name[16], offset[24];
	struct ask ask = {.method = "PUT",
		.op = NEB_PUT_OBJECT,
		.bucket = BUCKET_APPEND,
		.name = name,
		.headers = {{"x-amz-write-offset-bytes", offset}},
		.body = client->body};
	struct http_answer answer;
	uint32_t op;

	what.expected = shared->known[key].bytes;
	if (what.expected + APPEND_BYTES_MAX > CHAIN_BYTES_MAX)
		return;
	what.content =
		value_make(client, key, (uint32_t)MIN(value_bytes_draw(client), APPEND_BYTES_MAX));
	ask.body_bytes = history_bytes(&shared->history, what.content);
	name_of_key(key, name);
	snprintf(offset, sizeof(offset), "%llu", (unsigned long long)what.expected);
	op = history_begin(&shared->history, &what);
	client_ask(client, &ask, &answer);
	/* The object has another length than expected. */
	if (answer.status == 400 && strstr((const char *)client->body, "InvalidWriteOffset"))
		answer.status = 412;
	if (answer.status == 200)
		shared->known[key].bytes = what.expected + ask.body_bytes;
	write_ended(op, &answer);
}

static void rename_key(struct client *client)
{
	struct history_op to = {.kind = HISTORY_PUT}, from = {.kind = HISTORY_DELETE};
	char name[16], source_name[16];
	struct http_answer answer;
	uint32_t to_op, from_op;
	struct source source;
	struct ask ask = {.method = "PUT",
		.op = NEB_S3,
		.bucket = BUCKET_APPEND,
		.name = name,
		.query = "renameObject=",
		.headers = {{"x-amz-rename-source", source_name},
			{"x-amz-rename-source-if-match", source.quoted}}};

	to.key = appended_draw(client);
	if (!source_draw(client, &source, KEY_APPENDED, KEYS_APPENDED) || source.key == to.key)
		return;
	to.content = source.content;
	from.key = source.key;
	from.condition = HISTORY_IF_CONTENT;
	from.expected = source.content;
	name_of_key(to.key, name);
	name_of_key(source.key, source_name);
	to_op = history_begin(&shared->history, &to);
	from_op = history_begin(&shared->history, &from);
	client_ask(client, &ask, &answer);
	write_ended(to_op, &answer);
	write_ended(from_op, &answer);
}

/* ---- Choosing one. ---- */

void copies_op(struct client *client)
{
	uint16_t key = appended_draw(client);
	uint64_t what = prng_below(&client->prng, 20);

	if (what < 5)
		copy(client);
	else if (what < 7 && opts.uploads)
		copy_part(client);
	else if (what < 12)
		append(client, key);
	else if (what < 14)
		plain_put(client, key);
	else if (what < 15)
		delete_key(client, key);
	else if (what < 18)
		plain_get(client, key);
	else
		rename_key(client);
}

void copies_look(struct client *client)
{
	for (uint16_t key = 0; key < KEYS_APPENDED; key++)
		plain_get(client, KEY_APPENDED + key);
}
