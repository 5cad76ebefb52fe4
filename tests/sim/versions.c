/* tests/sim/versions.c: clients' operations on keys of a bucket with versions: put, delete, get and
 * delete versions, list them, suspend them. */
#include "load.h"

#include <stdio.h>
#include <string.h>

#define WRITES_MAX (HISTORY_VERSIONS_MAX - 4u) /* of a key, in all lives */
#define LOST_MAX   3u /* of a key, in a life: each may have happened at any time since */

static uint16_t key_draw(struct client *client)
{
	return (uint16_t)(KEY_VERSIONED + prng_below(&client->prng, KEYS_VERSIONED));
}

bool versions_may_write(uint16_t key)
{
	if (key < KEY_VERSIONED)
		return true;
	return shared->known[key].writes < WRITES_MAX && shared->known[key].lost < LOST_MAX;
}

static void write_plainly(struct client *client, uint16_t key, bool puts)
{
	if (!versions_may_write(key))
		return;
	shared->known[key].writes++;
	if (puts)
		plain_put(client, key);
	else
		delete_key(client, key);
}

/* ---- One version. ---- */

/* Chooses a version that an answer had, or "null". */
static const char *version_draw(struct client *client, uint16_t key)
{
	uint32_t count = MIN(shared->known[key].version_count, KNOWN_MAX);
	uint64_t at = prng_below(&client->prng, count + 1);

	return at == count ? "null" : shared->known[key].versions[at];
}

static void version_get(struct client *client, uint16_t key, const char *version)
{
	const struct history_op what = {.kind = HISTORY_READ_VERSION,
		.key = key,
		.name = history_name(&shared->history, version)};
	char name[16];
	const struct ask ask = {.method = "GET",
		.op = NEB_GET_OBJECT,
		.bucket = BUCKET_VERSIONS,
		.name = name,
		.version = version};
	uint32_t op = history_begin(&shared->history, &what);
	struct history_op *of = &shared->history.ops[op];
	struct http_answer answer;
	bool told = true;

	name_of_key(key, name);
	client_ask(client, &ask, &answer);
	if (answer.status == 200)
		of->content = body_content(client, answer.bytes);
	else if (answer.status == 405)
		of->content = HISTORY_MARKER;
	else
		told = answer.status == 404;
	history_end(&shared->history, op, told ? HISTORY_DONE : HISTORY_LOST);
	world_trace("get version", of->content, of->name);
}

static void version_delete(struct client *client, uint16_t key, const char *version)
{
	const struct history_op what = {.kind = HISTORY_DELETE_VERSION,
		.key = key,
		.name = history_name(&shared->history, version)};
	char name[16];
	const struct ask ask = {.method = "DELETE",
		.op = NEB_DELETE_OBJECT,
		.bucket = BUCKET_VERSIONS,
		.name = name,
		.version = version};
	uint32_t op;
	struct http_answer answer;

	if (shared->known[key].lost >= LOST_MAX)
		return;
	op = history_begin(&shared->history, &what);
	name_of_key(key, name);
	client_ask(client, &ask, &answer);
	/* The answer names the deleted version, which is not a new name. */
	answer.version_id[0] = 0;
	write_ended(op, &answer);
}

/* ---- All versions. ---- */

struct listing {
	uint32_t ops[KEYS_VERSIONED];
	char key_after[16], version_after[HISTORY_NAME_BYTES];
	bool truncated;
	bool cut[KEYS_VERSIONED]; /* by a page's end */
};

static void entry_add(struct listing *listing, const char *name, const struct history_entry *entry)
{
	unsigned key;

	if (strlen(name) != 5 || sscanf(name + 3, "%u", &key) != 1 || key < KEY_VERSIONED ||
		key >= KEY_APPENDED)
		world_fault("a listing of versions has '%s', which nobody put", name);
	if (!listing->cut[key - KEY_VERSIONED])
		history_entry_add(&shared->history, listing->ops[key - KEY_VERSIONED], entry);
}

/* Reads a page's text in order. Of a key that the page before it cut, the first version is the
 * latest one if those before it were deleted meanwhile. */
static void page_read(struct listing *listing, const char *at)
{
	struct history_entry entry;
	bool first = true;
	char name[16], version[HISTORY_NAME_BYTES], latest[8], size[24];

	for (;;) {
		const char *object = strstr(at, "<Version>");
		const char *marker = strstr(at, "<DeleteMarker>");

		if (!object && !marker)
			return;
		entry = (struct history_entry){.is_marker = !object || (marker && marker < object)};
		at = entry.is_marker ? marker : object;
		if (!xml_next(&at, "Key", name, sizeof(name)) ||
			!xml_next(&at, "VersionId", version, sizeof(version)) ||
			!xml_next(&at, "IsLatest", latest, sizeof(latest)))
			world_fault("a listing of versions that lacks something: %.200s", at);
		if (!entry.is_marker && xml_next(&at, "Size", size, sizeof(size)))
			entry.bytes = strtoull(size, NULL, 10);
		entry.name = history_name(&shared->history, version);
		if ((strcmp(listing->key_after, name) != 0) != !strcmp(latest, "true") &&
			(!first || strcmp(listing->key_after, name) != 0))
			world_fault(
				"a listing of versions: of '%s' the wrong one is the latest", name);
		first = false;
		snprintf(listing->key_after, sizeof(listing->key_after), "%s", name);
		snprintf(listing->version_after, sizeof(listing->version_after), "%s", version);
		entry_add(listing, name, &entry);
	}
}

static bool page_get(struct client *client, struct listing *listing, uint32_t page_keys)
{
	char query[256];
	const struct ask ask = {
		.method = "GET", .op = NEB_S3, .bucket = BUCKET_VERSIONS, .query = query};
	struct http_answer answer;
	const char *after = listing->key_after;

	snprintf(query, sizeof(query), "key-marker=%.1s%s%s&max-keys=%u%s%s&versions=", after,
		after[0] ? "%2F" : "", after[0] ? after + 2 : "", page_keys,
		after[0] ? "&version-id-marker=" : "", listing->version_after);
	if (client_ask(client, &ask, &answer) != 200)
		return false;
	listing->truncated = strstr((const char *)client->body, "<IsTruncated>true") != NULL;
	page_read(listing, (const char *)client->body);
	return true;
}

/* A page is the state of one moment: keys that the page's end cuts are not checked. */
void versions_list(struct client *client)
{
	uint32_t page_keys =
		prng_below(&client->prng, 2) ? 1000 : 1 + (uint32_t)prng_below(&client->prng, 20);
	struct listing listing = {0};
	unsigned key;
	bool all;

	/* Entries of one key are adjacent: no other key comes between two of them. */
	for (uint16_t i = 0; i < KEYS_VERSIONED; i++) {
		const struct history_op what = {
			.kind = HISTORY_VERSIONS, .key = (uint16_t)(KEY_VERSIONED + i)};

		listing.ops[i] = history_begin(&shared->history, &what);
	}
	do {
		all = page_get(client, &listing, page_keys);
		if (all && listing.truncated && sscanf(listing.key_after + 3, "%u", &key) == 1)
			listing.cut[key - KEY_VERSIONED] = true;
	} while (all && listing.truncated);
	for (uint32_t i = 0; i < KEYS_VERSIONED; i++)
		history_end(&shared->history, listing.ops[i],
			all && !listing.cut[i] ? HISTORY_DONE : HISTORY_LOST);
	world_trace("list versions", all, page_keys);
}

/* ---- The bucket. ---- */

static void mode_set(struct client *client, enum history_mode mode)
{
	char body[256];
	struct ask ask = {.method = "PUT",
		.op = NEB_S3,
		.bucket = BUCKET_VERSIONS,
		.query = "versioning=",
		.body = body};
	uint32_t ops[KEYS_VERSIONED];
	struct http_answer answer;

	ask.body_bytes = (size_t)snprintf(body, sizeof(body),
		"<VersioningConfiguration><Status>%s</Status></VersioningConfiguration>",
		mode == HISTORY_ENABLED ? "Enabled" : "Suspended");
	for (uint16_t i = 0; i < KEYS_VERSIONED; i++) {
		const struct history_op what = {.kind = HISTORY_MODE,
			.key = (uint16_t)(KEY_VERSIONED + i),
			.mode = (uint8_t)mode};

		ops[i] = history_begin(&shared->history, &what);
	}
	client_ask(client, &ask, &answer);
	for (uint32_t i = 0; i < KEYS_VERSIONED; i++)
		write_ended(ops[i], &answer);
}

/* The first life enables versioning late, so that earlier objects have no versions. */
void versions_begin(struct client *client)
{
	if (prng_below(&client->prng, 3) == 0)
		write_plainly(client, key_draw(client), true);
	mode_set(client, HISTORY_ENABLED);
}

/* Gets all known versions of a key. */
void versions_get(struct client *client, uint16_t key)
{
	uint32_t count = MIN(shared->known[key].version_count, KNOWN_MAX);

	plain_get(client, key);
	for (uint32_t i = 0; i < count; i++)
		version_get(client, key, shared->known[key].versions[i]);
	version_get(client, key, "null");
}

void versions_op(struct client *client)
{
	uint16_t key = key_draw(client);
	uint64_t what = prng_below(&client->prng, 40);

	if (what < 12)
		write_plainly(client, key, true);
	else if (what < 18)
		write_plainly(client, key, false);
	else if (what < 23)
		plain_get(client, key);
	else if (what < 28)
		version_get(client, key, version_draw(client, key));
	else if (what < 34)
		version_delete(client, key, version_draw(client, key));
	else if (what < 38)
		versions_list(client);
	else if (shared->known[key].lost < LOST_MAX)
		mode_set(client, what == 38 ? HISTORY_SUSPENDED : HISTORY_ENABLED);
}
