/* tests/sim/memory.c: clients' operations on a memory bucket, whose objects end with each life and,
 * if it evicts, at any time before; the bucket itself is deleted and made again now and then. */
#include "load.h"

#include <stdio.h>
#include <string.h>

#include "store/memory.h"

int memory_make(struct client *client)
{
	char bounds[96];
	const struct ask ask = {.method = "PUT",
		.op = NEB_S3,
		.bucket = BUCKET_MEMORY,
		.headers = {{"x-nebulaio-memory", bounds}},
		.again = true};
	struct http_answer answer;

	snprintf(bounds, sizeof(bounds), "bytes=%llu, ttl=%u, full=%s",
		(unsigned long long)opts.memory_bytes, opts.memory_ttl_s,
		opts.memory_evicts ? "evict" : "refuse");
	return client_ask(client, &ask, &answer);
}

/* Begins to look at all keys, of which none was seen so far. */
static void look_begin(struct client *client, uint32_t ops[KEYS_MEMORY])
{
	for (uint16_t i = 0; i < KEYS_MEMORY; i++) {
		const struct history_op what = {.kind = HISTORY_SIZE, .key = KEY_MEMORY + i};

		ops[i] = history_begin(&shared->history, &what);
		client->listed[KEY_MEMORY + i] = UINT64_MAX;
	}
}

static void look_end(struct client *client, const uint32_t ops[KEYS_MEMORY], bool looked)
{
	for (uint16_t i = 0; i < KEYS_MEMORY; i++) {
		shared->history.ops[ops[i]].bytes = client->listed[KEY_MEMORY + i];
		history_end(&shared->history, ops[i], looked ? HISTORY_DONE : HISTORY_LOST);
	}
}

/* Only an empty bucket can be deleted. */
static void remake(struct client *client)
{
	const struct ask ask = {.method = "DELETE", .op = NEB_S3, .bucket = BUCKET_MEMORY};
	struct http_answer answer;
	uint32_t ops[KEYS_MEMORY];

	look_begin(client, ops);
	look_end(client, ops, client_ask(client, &ask, &answer) == 204);
	memory_make(client);
}

void memory_look(struct client *client)
{
	const struct ask ask = {
		.method = "GET", .op = NEB_S3, .bucket = BUCKET_MEMORY, .query = "list-type=2"};
	struct http_answer answer;
	uint32_t ops[KEYS_MEMORY];
	char name[16], size[24];
	const char *at;
	unsigned key;
	bool looked;

	look_begin(client, ops);
	looked = client_ask(client, &ask, &answer) == 200;
	at = (const char *)client->body;
	while (looked && xml_next(&at, "Key", name, sizeof(name)) &&
		xml_next(&at, "Size", size, sizeof(size))) {
		if (sscanf(name + 3, "%u", &key) != 1 || key < KEY_MEMORY || key >= KEYS)
			world_fault("a listing has '%s', which nobody put", name);
		client->listed[key] = strtoull(size, NULL, 10);
	}
	look_end(client, ops, looked);
}

void memory_check(struct store *store)
{
	struct store_memory_status status;

	/* It may have been deleted, and not made again. */
	if (store_bucket_memory_status(store, SLICE(BUCKET_MEMORY), &status))
		return;
	if (status.bytes_max != opts.memory_bytes || status.bytes > status.bytes_max)
		world_fault("a memory bucket of %llu bytes has %llu of %llu",
			(unsigned long long)opts.memory_bytes, (unsigned long long)status.bytes,
			(unsigned long long)status.bytes_max);
}

void memory_op(struct client *client)
{
	uint16_t key = KEY_MEMORY + (uint16_t)prng_below(&client->prng, KEYS_MEMORY);
	uint64_t what = prng_below(&client->prng, 20);

	if (what < 8)
		plain_put(client, key);
	else if (what < 11)
		delete_key(client, key);
	else if (what < 16)
		plain_get(client, key);
	else if (what == 16)
		vanish(client, key);
	else if (what == 17)
		memory_look(client);
	else if (what == 18)
		memory_check(server_store);
	else
		remake(client);
}
