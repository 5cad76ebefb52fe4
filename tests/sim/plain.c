/* tests/sim/plain.c: clients' operations on keys of a bucket without versions: put, get, delete,
 * list, and disconnects in the middle. */
#include "load.h"

#include <stdio.h>
#include <string.h>

#define LEASED_OPS 5u

/* A write of client->body, with or without a condition. */
static void put_value(struct client *client, const struct history_op *what, uint64_t bytes)
{
	char name[16], quoted[96];
	struct ask ask = {.method = "PUT",
		.op = NEB_PUT_OBJECT,
		.bucket = bucket_of(what->key),
		.name = name,
		.body = client->body,
		.body_bytes = bytes,
		.again = is_idempotent(what->key) && what->condition == HISTORY_ALWAYS};
	struct http_answer answer;
	uint32_t op;

	name_of_key(what->key, name);
	snprintf(quoted, sizeof(quoted), "\"%s\"", shared->known[what->key].etag);
	if (what->condition == HISTORY_IF_ABSENT)
		ask.headers[0] = (struct http_header){"if-none-match", "*"};
	if (what->condition == HISTORY_IF_CONTENT)
		ask.headers[0] = (struct http_header){"if-match", quoted};
	op = history_begin(&shared->history, what);
	client_ask(client, &ask, &answer);
	write_ended(op, &answer);
}

/* Draws a write's condition, now and then. */
static void condition_draw(struct client *client, struct history_op *op)
{
	uint64_t what = prng_below(&client->prng, opts.paths ? 3 : 8);

	if (what == 0)
		op->condition = HISTORY_IF_ABSENT;
	if (what != 1 || !shared->known[op->key].content)
		return;
	op->condition = HISTORY_IF_CONTENT;
	op->expected = shared->known[op->key].content;
}

void plain_put(struct client *client, uint16_t key)
{
	struct history_op op = {.kind = HISTORY_PUT, .key = key};

	op.content = value_make(client, key, value_bytes_draw(client));
	condition_draw(client, &op);
	put_value(client, &op, history_bytes(&shared->history, op.content));
}

/* Gets the key and records it in the history; returns its number there. */
static uint32_t key_ask(
	struct client *client, enum history_kind kind, uint16_t key, struct http_answer *ret_answer)
{
	const struct history_op what = {.kind = kind, .key = key};
	bool read = kind == HISTORY_READ;
	char name[16];
	const struct ask ask = {.method = read ? "GET" : "DELETE",
		.op = read ? NEB_GET_OBJECT : NEB_DELETE_OBJECT,
		.bucket = bucket_of(key),
		.name = name,
		.again = is_idempotent(key)};
	uint32_t op = history_begin(&shared->history, &what);

	name_of_key(key, name);
	client_ask(client, &ask, ret_answer);
	return op;
}

void delete_key(struct client *client, uint16_t key)
{
	struct http_answer answer;
	uint32_t op = key_ask(client, HISTORY_DELETE, key, &answer);

	write_ended(op, &answer);
}

/* Records the content that a GET returned. */
static void got(struct client *client, uint32_t number, const struct http_answer *answer)
{
	struct history_op *op = &shared->history.ops[number];

	if (answer->status == 200) {
		op->content = body_content(client, answer->bytes);
		op->name = history_name(&shared->history, answer->version_id);
		history_end(&shared->history, number, HISTORY_DONE);
		shared->known[op->key].bytes = answer->bytes;
		/* The ETags of copies may differ. */
		if (op->content & HISTORY_CHAIN || !answer->etag[0] ||
			shared->history.values[op->content].key != op->key)
			return;
		shared->known[op->key].content = op->content;
		memcpy(shared->known[op->key].etag, answer->etag, sizeof(answer->etag));
	} else if (answer->status == 404) {
		history_end(&shared->history, number, HISTORY_DONE);
	} else if (opts.all_is_well && answer->status != 403) { /* clocks are set */
		world_fault("a GET of key %u fails, though nothing else does: %d", op->key,
			answer->status);
	} else {
		history_end(&shared->history, number, HISTORY_LOST);
	}
	world_trace("get", op->key, (uint64_t)answer->status);
}

void plain_get(struct client *client, uint16_t key)
{
	struct http_answer answer;
	uint32_t op = key_ask(client, HISTORY_READ, key, &answer);

	got(client, op, &answer);
}

/* A client disconnects during a request, and comes back as another client. */
void vanish(struct client *client, uint16_t key)
{
	struct history_op what = {.kind = HISTORY_PUT, .key = key};
	char name[16];
	struct ask ask = {.method = "PUT",
		.op = NEB_PUT_OBJECT,
		.bucket = bucket_of(key),
		.name = name,
		.body = client->body,
		.again = true};
	struct http_answer answer;
	uint32_t op;

	what.content = value_make(client, key, value_bytes_draw(client));
	name_of_key(key, name);
	ask.body_bytes = history_bytes(&shared->history, what.content);
	ask.send_bytes_max = 1 + prng_below(&client->prng, ask.body_bytes);
	op = history_begin(&shared->history, &what);
	client_ask(client, &ask, &answer);
	asker_close(client);
	history_end(&shared->history, op, HISTORY_LOST);
	asker_open(client);
}

/* ---- Listings. ---- */

static void listed(struct client *client, const char *name, uint64_t bytes)
{
	unsigned key;

	if (strlen(name) != 5 || sscanf(name + 3, "%u", &key) != 1 || key >= KEYS)
		world_fault("a listing has '%s', which nobody put", name);
	if (client->listed[key] != UINT64_MAX)
		world_fault("a listing has '%s' twice", name);
	client->listed[key] = bytes;
}

static bool list_entry(void *arg, const struct neb_entry *entry)
{
	listed((struct client *)arg, entry->key, entry->bytes);
	return true;
}

/* Lists page by page; each page is text with keys and sizes in order. False: it failed. */
static bool list_pages(struct client *client, uint32_t page_keys, const char *prefix)
{
	char query[160], after[16] = "", size[24];
	const struct ask ask = {.method = "GET", .op = NEB_S3, .bucket = BUCKET, .query = query};
	struct http_answer answer;
	const char *at;

	do {
		snprintf(query, sizeof(query),
			"list-type=2&max-keys=%u&prefix=%.1s%s&start-after=%.1s%s%s", page_keys,
			prefix, prefix[0] ? "%2F" : "", after, after[0] ? "%2F" : "",
			after[0] ? after + 2 : "");
		if (client_ask(client, &ask, &answer) != 200)
			return false;
		at = (const char *)client->body;
		while (xml_next(&at, "Key", after, sizeof(after))) {
			if (!xml_next(&at, "Size", size, sizeof(size)))
				world_fault("a listing whose '%s' has no size", after);
			listed(client, after, strtoull(size, NULL, 10));
		}
	} while (strstr((const char *)client->body, "<IsTruncated>true"));
	return true;
}

static bool list_by_neb(struct client *client, uint32_t page_keys, const char *prefix)
{
	const struct neb_list what = {.bucket = BUCKET,
		.prefix = prefix,
		.visit = list_entry,
		.arg = client,
		.page_keys = page_keys};

	return client->neb && neb_list(client->neb, &what, NULL) == 0;
}

/* Lists all keys, or those that start with a letter. */
void plain_list(struct client *client)
{
	uint32_t page_keys = 1 + (uint32_t)prng_below(&client->prng, KEYS_PLAIN);
	uint64_t letter = prng_below(&client->prng, 6);
	char prefix[3] = "";
	uint32_t ops[KEYS_PLAIN];
	bool listed_all;

	if (letter < 3)
		snprintf(prefix, sizeof(prefix), "%c/", (int)('a' + letter));
	for (uint16_t key = 0; key < KEYS_PLAIN; key++) {
		const struct history_op what = {.kind = HISTORY_SIZE, .key = key};

		ops[key] = history_begin(&shared->history, &what);
		client->listed[key] = UINT64_MAX;
	}
	listed_all = client->neb && !client->by_http ? list_by_neb(client, page_keys, prefix)
						     : list_pages(client, page_keys, prefix);
	for (uint16_t key = 0; key < KEYS_PLAIN; key++) {
		bool asked = letter >= 3 || key % 3 == letter;

		if (!asked && client->listed[key] != UINT64_MAX)
			world_fault("a listing of '%s' has key %u", prefix, key);
		shared->history.ops[ops[key]].bytes = client->listed[key];
		history_end(&shared->history, ops[key],
			listed_all && asked ? HISTORY_DONE : HISTORY_LOST);
	}
	world_trace("list", listed_all, letter);
}

/* ---- Listings after all other operations. ---- */

#define COMPARED 3u

struct query {
	const char *prefix, *delimiter, *after;
	uint32_t page_keys;
};

/* The content of a listing, in order: keys and common prefixes. */
struct listing {
	char keys[KEYS_PLAIN][16], prefixes[KEYS_PLAIN][16];
	uint32_t key_count, prefix_count;
};

static void listing_add(char names[KEYS_PLAIN][16], uint32_t *count, const char *name, size_t len)
{
	if (*count == KEYS_PLAIN)
		world_fault("a listing has more than there can be: '%s'", name);
	snprintf(names[(*count)++], 16, "%.*s", (int)len, name);
}

/* The expected listing of the keys in client->listed, in their order: "a/k00", "a/k03", … "b/k01",
 * … */
static void listing_expect(
	const struct client *client, const struct query *query, struct listing *listing)
{
	size_t prefix_len = strlen(query->prefix);

	for (uint32_t i = 0; i < 3 * KEYS_PLAIN; i++) {
		uint16_t key = (uint16_t)(i % KEYS_PLAIN);
		char name[16], *at, *last;

		name_of_key(key, name);
		if (key % 3 != i / KEYS_PLAIN || client->listed[key] == UINT64_MAX ||
			strncmp(name, query->prefix, prefix_len) || strcmp(name, query->after) <= 0)
			continue;
		at = query->delimiter[0] ? strstr(name + prefix_len, query->delimiter) : NULL;
		if (!at) {
			listing_add(listing->keys, &listing->key_count, name, strlen(name));
			continue;
		}
		at += strlen(query->delimiter);
		last = listing->prefix_count ? listing->prefixes[listing->prefix_count - 1] : NULL;
		if (!last || strncmp(last, name, (size_t)(at - name)))
			listing_add(listing->prefixes, &listing->prefix_count, name,
				(size_t)(at - name));
	}
}

static void page_read(struct listing *listing, const char *at, const struct query *query)
{
	uint32_t before = listing->key_count + listing->prefix_count;
	const char *prefixes = at;
	char name[16];

	while (xml_next(&at, "Key", name, sizeof(name)))
		listing_add(listing->keys, &listing->key_count, name, strlen(name));
	while ((prefixes = strstr(prefixes, "<CommonPrefixes>")) &&
		xml_next(&prefixes, "Prefix", name, sizeof(name)))
		listing_add(listing->prefixes, &listing->prefix_count, name, strlen(name));
	if (listing->key_count + listing->prefix_count - before > query->page_keys)
		world_fault("a page of at most %u entries has more", query->page_keys);
}

static void text_encode(const char *text, char *into)
{
	for (; *text; text++)
		into += sprintf(into, *text == '/' ? "%%2F" : "%c", *text);
	*into = 0;
}

/* False: a page failed. */
static bool listing_get(struct client *client, const struct query *query, struct listing *listing)
{
	char text[512], token[160] = "", encoded[3][48];
	const struct ask ask = {.method = "GET", .op = NEB_S3, .bucket = BUCKET, .query = text};
	struct http_answer answer;
	const char *at;

	text_encode(query->prefix, encoded[0]);
	text_encode(query->delimiter, encoded[1]);
	text_encode(query->after, encoded[2]);
	do {
		char token_encoded[480];

		text_encode(token, token_encoded);
		snprintf(text, sizeof(text),
			"%s%s%sdelimiter=%s&list-type=2&max-keys=%u&prefix=%s&start-after=%s",
			token[0] ? "continuation-token=" : "", token_encoded, token[0] ? "&" : "",
			encoded[1], query->page_keys, encoded[0], encoded[2]);
		if (client_ask(client, &ask, &answer) != 200)
			return false;
		at = (const char *)client->body;
		page_read(listing, at, query);
	} while (xml_next(&at, "NextContinuationToken", token, sizeof(token)));
	return true;
}

void listings_compare(struct client *client)
{
	static const char *const PREFIXES[] = {"", "a", "a/", "b/k", "c/k0", "a/k00", "d"};
	static const char *const DELIMITERS[] = {"", "/", "k", "0", "/k"};
	static const char *const AFTERS[] = {"", "a/k03", "a/k04", "b", "b/k99", "c/"};

	for (uint16_t key = 0; key < KEYS_PLAIN; key++)
		client->listed[key] = UINT64_MAX;
	if (!list_pages(client, 1000, ""))
		return;
	for (uint32_t i = 0; i < COMPARED; i++) {
		struct listing expected = {0}, is = {0};
		struct query query = {
			.prefix = PREFIXES[prng_below(&client->prng, ARRAY_LEN(PREFIXES))],
			.delimiter = DELIMITERS[prng_below(&client->prng, ARRAY_LEN(DELIMITERS))],
			.after = "",
			.page_keys = 1 + (uint32_t)prng_below(&client->prng, 6)};

		/* The result for a common prefix after a key inside it is not specified. */
		if (!query.delimiter[0])
			query.after = AFTERS[prng_below(&client->prng, ARRAY_LEN(AFTERS))];
		listing_expect(client, &query, &expected);
		if (listing_get(client, &query, &is) && memcmp(&is, &expected, sizeof(is)))
			world_fault("a listing of '%s' by '%s' after '%s' in pages of %u has %u "
				    "keys and %u prefixes, where there are %u and %u",
				query.prefix, query.delimiter, query.after, query.page_keys,
				is.key_count, is.prefix_count, expected.key_count,
				expected.prefix_count);
	}
}

/* ---- Leases. ---- */

/* A key that is asked for twice is leased, and read by its lease; then it changes. */
static void leased_change(struct client *client, uint16_t key)
{
	for (uint32_t i = 0; i < 3; i++)
		plain_get(client, key);
	if (prng_below(&client->prng, 4))
		plain_put(client, key);
	else
		delete_key(client, key);
	plain_get(client, key);
	client->ops -= MIN(client->ops, LEASED_OPS - 1);
}

/* ---- Choosing one. ---- */

void plain_op(struct client *client)
{
	/* One key is read more often than the others, so that it gets leased. */
	bool hot = prng_below(&client->prng, 3) == 0;
	uint16_t key = hot ? 0 : (uint16_t)prng_below(&client->prng, KEYS_PLAIN);
	uint64_t what = prng_below(&client->prng, 20);

	if (opts.one_sided && hot && !client->by_http && what < 9)
		leased_change(client, key);
	else if (what < 9)
		plain_put(client, key);
	else if (what < 12)
		delete_key(client, key);
	else if (what < 19)
		plain_get(client, key);
	else if (prng_below(&client->prng, 2))
		vanish(client, key);
	else
		plain_list(client);
}
