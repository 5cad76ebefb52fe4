/* tests/sim/load.c: a server, clients that put, get, delete and list, and what they saw; power
 * fails in the middle. */
#include "world.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "history.h"
#include "http.h"
#include "nebulaio/nebulaio.h"
#include "server/server.h"
#include "store/store.h"

#define CLIENTS_MAX	  4u
#define KEYS		  10u
#define OPS_MAX		  30u /* of a client in a life */
#define BODY_BYTES_MAX	  (3 * MIB)
#define START_NS_MAX	  (5 * NS_PER_MS)
#define POWER_NS_MAX	  NS_PER_MS
#define CLOCK_JUMP_NS_MAX (3600 * NS_PER_S)
#define PORT		  9100
#define BUCKET		  "sim"

struct world_shared {
	uint64_t seed;
	uint64_t version; /* the last value that was put */
	uint64_t seen;	  /* calls that may have failed */
	struct history history;
};

/* What one seed's world is like. */
static struct world_opts {
	uint32_t clients;
	uint64_t log_bytes, step_bytes, cache_bytes;
	uint32_t reactors, depth;
	uint32_t inline_bytes;
	bool one_sided;
	bool faulty; /* disks fail: what the server refuses is no fault of its */
	bool all_by_http;
	bool all_is_well; /* a GET has no reason to fail */
	uint32_t volumes; /* with one of parity; 1: no array */
	uint64_t volume_bytes_max;
} opts;

static struct world_shared *shared;
static struct server *server;
static struct region *server_region;
static struct world_event power;
static uint32_t power_after; /* operations; 0: not by them */

struct world_shared *world_shared_new(uint64_t seed)
{
	struct world_shared *fresh = (struct world_shared *)mmap(
		NULL, sizeof(*fresh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(fresh != MAP_FAILED);
	fresh->seed = seed;
	return fresh;
}

void world_shared_free(struct world_shared *done)
{
	munmap(done, sizeof(*done));
}

/* ---- Bodies: a value is a number; its length and bytes follow from it. ---- */

static uint64_t value_bytes(uint64_t value)
{
	static const uint64_t SIZES[] = {8, 100, 900, 2048, 3000, 4096, 20000, 65536, 70000, 300000,
		1048576, 1500000, BODY_BYTES_MAX - 64};
	struct prng prng;

	prng_seed(&prng, value);
	/* Lengths differ, so that a listing tells values apart. */
	return SIZES[prng_below(&prng, prng_below(&prng, 4) ? 8 : ARRAY_LEN(SIZES))] + value % 61;
}

static void body_fill(uint64_t value, uint8_t *body)
{
	struct prng prng;

	memcpy(body, &value, sizeof(value));
	prng_seed(&prng, ~value);
	prng_fill(&prng, body + sizeof(value), value_bytes(value) - sizeof(value));
}

/* The value whose body that is; what is none ends the run. */
static uint64_t body_value(const uint8_t *body, uint64_t bytes, uint8_t *scratch)
{
	uint64_t value;

	if (bytes < sizeof(value))
		world_fault("a body of %llu bytes, which nobody put", (unsigned long long)bytes);
	memcpy(&value, body, sizeof(value));
	if (!value || value > shared->version || value_bytes(value) != bytes)
		world_fault("a body of %llu bytes that names value %llu, which nobody put",
			(unsigned long long)bytes, (unsigned long long)value);
	body_fill(value, scratch);
	for (uint64_t i = 0; i < bytes; i++)
		if (body[i] != scratch[i])
			world_fault("value %llu of %llu bytes is wrong from byte %llu on",
				(unsigned long long)value, (unsigned long long)bytes,
				(unsigned long long)i);
	return value;
}

/* ---- Clients. ---- */

struct client {
	pthread_t thread;
	bool by_http;
	struct neb_client *neb;
	struct http_client http;
	struct prng prng;
	uint8_t *body, *scratch;
	uint32_t ops;
	uint64_t listed[KEYS];
};

static void key_name(uint16_t key, char name[16])
{
	snprintf(name, 16, "%c/k%02u", 'a' + key % 3, key);
}

static bool neb_ready(struct client *client);

/* One S3 request over HTTP: the errno that libnebulaio would have. */
static int http(struct client *client, const struct http_request *request, size_t *ret_bytes)
{
	int status = http_perform(&client->http, request, client->body, BODY_BYTES_MAX, ret_bytes);

	world_trace(request->method, (uint64_t)status, *ret_bytes);
	if (status >= 200 && status < 300)
		return 0;
	return status == 404 ? -ENOENT : -EIO;
}

static int put_bytes(struct client *client, const char *name, uint64_t bytes)
{
	char path[32];
	size_t got;
	const struct http_request request = {.method = "PUT",
		.path = path,
		.query = "",
		.body = client->body,
		.body_bytes = bytes};

	if (!client->by_http)
		return !neb_ready(client)
			       ? -EIO
			       : neb_put(client->neb, BUCKET, name, client->body, bytes, NULL);
	snprintf(path, sizeof(path), "/" BUCKET "/%s", name);
	return http(client, &request, &got);
}

static void put(struct client *client, uint16_t key)
{
	struct history *history = &shared->history;
	uint64_t value = ++shared->version;
	char name[16];
	uint32_t op;

	body_fill(value, client->body);
	key_name(key, name);
	op = history_begin(history, key, HISTORY_WRITE, value);
	if (put_bytes(client, name, value_bytes(value)))
		history_lost(history, op, key);
	else
		history_end(history, op, key, HISTORY_WRITE, value);
	world_trace("put", value, key);
}

static int delete_name(struct client *client, const char *name)
{
	char path[32];
	size_t got;
	const struct http_request request = {.method = "DELETE", .path = path, .query = ""};

	if (!client->by_http)
		return !neb_ready(client) ? -EIO : neb_delete(client->neb, BUCKET, name, NULL);
	snprintf(path, sizeof(path), "/" BUCKET "/%s", name);
	return http(client, &request, &got);
}

static void delete (struct client *client, uint16_t key)
{
	struct history *history = &shared->history;
	char name[16];
	uint32_t op = history_begin(history, key, HISTORY_WRITE, HISTORY_ABSENT);

	key_name(key, name);
	if (delete_name(client, name))
		history_lost(history, op, key);
	else
		history_end(history, op, key, HISTORY_WRITE, HISTORY_ABSENT);
	world_trace("delete", key, 0);
}

static int get_bytes(struct client *client, const char *name, size_t *ret_bytes)
{
	char path[32];
	const struct http_request request = {.method = "GET", .path = path, .query = ""};
	struct neb_result result;
	int ret;

	if (!client->by_http) {
		if (!neb_ready(client))
			return -EIO;
		ret = neb_get(client->neb, BUCKET, name, client->body, BODY_BYTES_MAX, &result);
		*ret_bytes = result.bytes;
		return ret;
	}
	snprintf(path, sizeof(path), "/" BUCKET "/%s", name);
	return http(client, &request, ret_bytes);
}

static void get(struct client *client, uint16_t key)
{
	struct history *history = &shared->history;
	char name[16];
	size_t bytes;
	uint32_t op = history_begin(history, key, HISTORY_READ, 0);
	int ret;

	key_name(key, name);
	ret = get_bytes(client, name, &bytes);
	if (ret == 0)
		history_end(history, op, key, HISTORY_READ,
			body_value(client->body, bytes, client->scratch));
	else if (ret == -ENOENT)
		history_end(history, op, key, HISTORY_READ, HISTORY_ABSENT);
	else if (opts.all_is_well)
		world_fault(
			"a GET of key %u fails, though nothing else does: %s", key, strerror(-ret));
	else
		history_lost(history, op, key);
	world_trace("get", key, (uint64_t)-ret);
}

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

/* Page by page; each page is text in which keys and sizes stand in order. */
static int list_by_http(struct client *client, uint32_t page_keys)
{
	char query[128], after[16] = "";
	const struct http_request request = {.method = "GET", .path = "/" BUCKET, .query = query};
	const char *at;
	size_t bytes;
	int ret;

	do {
		snprintf(query, sizeof(query), "list-type=2&max-keys=%u&start-after=%.1s%s%s",
			page_keys, after, after[0] ? "%2F" : "", after[0] ? after + 2 : "");
		ret = http(client, &request, &bytes);
		if (ret)
			return ret;
		client->body[MIN(bytes, BODY_BYTES_MAX - 1)] = 0;
		for (at = strstr((char *)client->body, "<Key>"); at; at = strstr(at, "<Key>")) {
			unsigned long long size;

			snprintf(after, sizeof(after), "%.5s", at + 5);
			at = strstr(at, "<Size>");
			if (!at || sscanf(at, "<Size>%llu", &size) != 1)
				world_fault("a listing whose '%s' has no size", after);
			listed(client, after, size);
		}
	} while (strstr((char *)client->body, "<IsTruncated>true"));
	return 0;
}

static void list(struct client *client)
{
	struct history *history = &shared->history;
	const struct neb_list what = {.bucket = BUCKET,
		.visit = list_entry,
		.arg = client,
		.page_keys = 1 + (uint32_t)prng_below(&client->prng, KEYS)};
	uint32_t ops[KEYS];
	int ret;

	for (uint16_t key = 0; key < KEYS; key++) {
		ops[key] = history_begin(history, key, HISTORY_SIZE, 0);
		client->listed[key] = UINT64_MAX;
	}
	ret = client->by_http	  ? list_by_http(client, what.page_keys)
	      : neb_ready(client) ? neb_list(client->neb, &what, NULL)
				  : -EIO;
	for (uint16_t key = 0; key < KEYS; key++)
		if (ret)
			history_lost(history, ops[key], key);
		else
			history_end(history, ops[key], key, HISTORY_SIZE, client->listed[key]);
	world_trace("list", (uint64_t)-ret, 0);
}

static void client_open(struct client *client);
static void client_close(struct client *client);

/* Begins a PUT and does not wait for its end. */
static void put_begin(struct client *client, const char *name, uint64_t bytes)
{
	const struct neb_iov body = {client->body, bytes};
	const struct neb_request request = {.op = NEB_PUT_OBJECT,
		.bucket = BUCKET,
		.key = name,
		.body = &body,
		.body_count = 1};
	char path[32];
	const struct http_request by_http = {.method = "PUT",
		.path = path,
		.query = "",
		.body = client->body,
		.body_bytes = bytes,
		.send_bytes_max = 1 + prng_below(&client->prng, bytes)};
	size_t got;

	if (client->by_http) {
		snprintf(path, sizeof(path), "/" BUCKET "/%s", name);
		http_perform(&client->http, &by_http, NULL, 0, &got);
		return;
	}
	if (!neb_ready(client) || neb_submit(client->neb, &request, NULL))
		return;
	(void)neb_wait(client->neb, NULL, 0, prng_below(&client->prng, NS_PER_MS));
}

/* A client that goes away with a request under way, and comes back as another. */
static void vanish(struct client *client, uint16_t key)
{
	struct history *history = &shared->history;
	uint64_t value = ++shared->version;
	char name[16];
	uint32_t op;

	body_fill(value, client->body);
	key_name(key, name);
	op = history_begin(history, key, HISTORY_WRITE, value);
	put_begin(client, name, value_bytes(value));
	client_close(client);
	history_lost(history, op, key);
	client_open(client);
}

/* Power fails soon after so many operations of all clients began. */
static void count_down(void)
{
	if (power_after && --power_after == 0)
		world_event_set(&power, world_now_ns() + prng_below(world_prng(), POWER_NS_MAX));
}

/* The clocks of this world are set: one for all. */
static void clock_is_set(struct client *client)
{
	world_clock_jump((int64_t)prng_below(&client->prng, 2 * CLOCK_JUMP_NS_MAX) -
			 (int64_t)CLOCK_JUMP_NS_MAX);
}

static void one_op(struct client *client)
{
	/* One key is asked for more than the others: it gets leased. */
	bool hot = prng_below(&client->prng, 3) == 0;
	uint16_t key = hot ? 0 : (uint16_t)prng_below(&client->prng, KEYS);
	uint64_t what = prng_below(&client->prng, 20);

	count_down();
	if (prng_below(&client->prng, 100) == 0)
		clock_is_set(client);

	if (what < 9)
		put(client, key);
	else if (what < 12)
		delete (client, key);
	else if (what < 19)
		get(client, key);
	else if (prng_below(&client->prng, 2))
		vanish(client, key);
	else
		list(client);
}

static void say(void *arg, enum neb_log_level level, const char *text)
{
	(void)arg;
	if (level >= NEB_LOG_WARN)
		log_info("client", "%s", text);
}

/* Opens the library's client where there is none, which may fail where calls do. */
static bool neb_ready(struct client *client)
{
	char endpoint[64];
	struct neb_options options = {
		.endpoints = endpoint,
		.access_key = "minioadmin",
		.secret_key = "minioadmin",
		.transport = NEB_RDMA,
		.device_name = "simulated",
		.pool_bytes = 8 * MIB,
		.spin_ns = 1,
		.one_sided_reads = opts.one_sided,
		.log = say,
	};

	if (client->neb)
		return true;
	snprintf(endpoint, sizeof(endpoint), "rdma://127.0.0.1:%u", server_rdma_port(server));
	if (neb_client_open(&options, &client->neb) == 0)
		return true;
	client->neb = NULL;
	if (!opts.faulty)
		world_fault("the client does not open");
	return false;
}

static void client_open(struct client *client)
{
	client->by_http = opts.all_by_http || prng_below(&client->prng, 3) == 0;
	client->body = (uint8_t *)malloc(BODY_BYTES_MAX);
	client->scratch = (uint8_t *)malloc(BODY_BYTES_MAX);
	CHECK(client->body && client->scratch);
	http_open(&client->http, server_http_port(server));
}

static void client_close(struct client *client)
{
	neb_client_close(client->neb);
	client->neb = NULL;
	http_close(&client->http);
	free(client->body);
	free(client->scratch);
}

static void *client_main(void *arg)
{
	struct client *client = (struct client *)arg;

	world_thread_name("client");
	client_open(client);
	for (uint32_t i = 0; i < client->ops; i++)
		one_op(client);
	client_close(client);
	return NULL;
}

static void power_fails(void *arg);

/* ---- The server. ---- */

int __real_store_open(
	const struct store_opts *asked, struct region *region, struct store **ret_store);
int __wrap_store_open(
	const struct store_opts *asked, struct region *region, struct store **ret_store)
{
	struct store_opts small = *asked;

	server_region = region;
	small.log_bytes = opts.log_bytes;
	small.step_bytes = opts.step_bytes;
	return __real_store_open(&small, region, ret_store);
}

/* When the server ends, every frame is nobody's again. */
void __real_region_close(struct region *region);
void __wrap_region_close(struct region *region)
{
	struct region_usage usage;

	if (region && region == server_region) {
		region_usage(region, &usage);
		for (uint32_t owner = OWNER_FREE + 1; owner < OWNER_COUNT; owner++)
			if (usage.frames_by_owner[owner])
				world_fault("%llu frames are left to owner %u",
					(unsigned long long)usage.frames_by_owner[owner], owner);
	}
	__real_region_close(region);
}

static void set(struct config *config, const char *path, const char *value)
{
	struct config_error error;

	if (config_set(config, path, value, "sim", &error))
		world_fault("%s", error.text);
}

static void set_number(struct config *config, const char *path, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	set(config, path, text);
}

static void server_begin(const char *dir)
{
	static struct config config;
	int ret;

	config_defaults(&config);
	set(&config, "data.dir", dir);
	set(&config, "auth.root_user", "minioadmin");
	set(&config, "auth.root_password", "minioadmin");
	set(&config, "http.address", "127.0.0.1:0");
	set(&config, "https.address", "");
	set(&config, "admin.address", "");
	set(&config, "rdma.enabled", "true");
	set(&config, "rdma.device_name", "simulated");
	set(&config, "rdma.address", "127.0.0.1");
	set(&config, "rdma.discovery", "false");
	set_number(&config, "rdma.port", 0);
	set_number(&config, "rdma.max_send_wr", opts.depth);
	set_number(&config, "rdma.max_recv_wr", opts.depth);
	set_number(&config, "rdma.lease_bytes", opts.one_sided ? MIB : 0);
	set(&config, "memory.bytes", "32MiB");
	set(&config, "memory.huge_pages", "false");
	set_number(&config, "memory.cache_bytes", opts.cache_bytes);
	set(&config, "memory.records_bytes", "1MiB");
	set_number(&config, "data.inline_bytes_max", opts.inline_bytes);
	set_number(&config, "cpu.reactors", opts.reactors);
	set_number(&config, "cpu.idle_spin_us", 0);
	set(&config, "cpu.pin", "false");
	set_number(&config, "data.volume_bytes_max", opts.volume_bytes_max);
	if (opts.volumes > 1) {
		char list[4096], *at = list;

		for (uint32_t i = 0; i < opts.volumes; i++)
			at += snprintf(at, (size_t)(list + sizeof(list) - at), "%s%s/volume%u",
				i ? "," : "", dir, i);
		set(&config, "storage.volumes", list);
		set_number(&config, "storage.erasure.data", opts.volumes - 1);
		set_number(&config, "storage.erasure.parity", 1);
	}
	ret = server_open(&config, &server);
	if (ret && opts.faulty)
		power_fails(NULL);
	if (ret)
		world_fault("the server does not open: %s", strerror(-ret));
	ret = server_start(server);
	if (ret && opts.faulty)
		power_fails(NULL);
	if (ret)
		world_fault("the server does not start: %s", strerror(-ret));
}

/* ---- A life. ---- */

static void power_fails(void *arg)
{
	(void)arg;
	world_trace("power fails", 0, 0);
	world_disk_power_lost();
	world_index_power_lost();
	history_life_end(&shared->history);
	world_end(WORLD_END_POWER);
}

/* Seldom while the server starts or ends, mostly while clients are served. */
static void power_plan(void)
{
	power.fn = power_fails;
	power_after = 1 + (uint32_t)prng_below(world_prng(), opts.clients * OPS_MAX * 2 / 3);
	if (prng_below(world_prng(), 8) == 0)
		world_event_set(&power, world_now_ns() + prng_below(world_prng(), START_NS_MAX));
}

/* Of the seed alone: all its lives are of one kind. */
static void opts_draw(void)
{
	struct prng prng;

	prng_seed(&prng, shared->seed * 7 + 1);
	opts.clients = 1 + (uint32_t)prng_below(&prng, CLIENTS_MAX);
	opts.log_bytes = MIB << prng_below(&prng, 3);
	opts.step_bytes = MIB << prng_below(&prng, 3);
	opts.cache_bytes = prng_below(&prng, 2) ? 4 * MIB : 0;
	opts.reactors = 1 + (uint32_t)prng_below(&prng, 3);
	opts.depth = 16u << prng_below(&prng, 4);
	opts.inline_bytes = prng_below(&prng, 2) ? 2048 : 0;
	opts.one_sided = prng_below(&prng, 2);
	if (prng_below(&prng, 2))
		world_disk_chances.short_transfer = 16;
	if (prng_below(&prng, 4) == 0)
		world_disk_chances.slow = 200;
	opts.volumes = prng_below(&prng, 4) ? 1 : 3 + (uint32_t)prng_below(&prng, 3);
	opts.volume_bytes_max = prng_below(&prng, 4) ? 0 : opts.log_bytes + 8 * MIB;
	opts.faulty = prng_below(&prng, 3) == 0;
	if (!opts.faulty)
		return;
	world_disk_chances.read_error = prng_below(&prng, 2) ? 40 : 0;
	world_disk_chances.write_error = prng_below(&prng, 2) ? 100 : 0;
	world_disk_chances.death = opts.volumes > 1 && prng_below(&prng, 2) ? 60 : 0;
}

static void bucket_make(struct client *client)
{
	const struct http_request request = {.method = "PUT", .path = "/" BUCKET, .query = ""};
	struct neb_result result;
	size_t bytes;
	int ret;

	client_open(client);
	ret = client->by_http	  ? http(client, &request, &bytes)
	      : neb_ready(client) ? neb_bucket_create(client->neb, BUCKET, &result)
				  : -EIO;
	if (ret && ret != -EEXIST && !client->by_http && !opts.faulty)
		world_fault("no bucket: %s (%s)", result.code, result.message);
	client_close(client);
}

/* What every key holds, once nothing else happens. */
static void look_at_all(struct client *client)
{
	client_open(client);
	list(client);
	for (uint16_t key = 0; key < KEYS; key++)
		get(client, key);
	client_close(client);
}

void world_load_run(struct world_shared *of, const char *dir, uint32_t life)
{
	static struct client clients[CLIENTS_MAX], one;

	shared = of;
	opts_draw();
	prng_seed(&one.prng, shared->seed + life);
	if (life < WORLD_LIVES - 1)
		power_plan();
	server_begin(dir);
	bucket_make(&one);
	look_at_all(&one);
	for (uint32_t i = 0; i < opts.clients; i++) {
		prng_seed(&clients[i].prng, shared->seed * 64 + life * 16 + i);
		clients[i].ops = 1 + (uint32_t)prng_below(&clients[i].prng, OPS_MAX);
		CHECK(pthread_create(&clients[i].thread, NULL, client_main, &clients[i]) == 0);
	}
	for (uint32_t i = 0; i < opts.clients; i++)
		CHECK(pthread_join(clients[i].thread, NULL) == 0);
	look_at_all(&one);
	/* Power that fails while the server ends takes nothing that was acknowledged either. */
	server_stop(server);
	server_close(server);
	world_event_cancel(&power);
	history_life_end(&shared->history);
}

/* ---- Sweeps. ---- */

/* Everything that clients do, in one order. */
static void tour(struct client *client)
{
	bucket_make(client);
	client_open(client);
	for (uint16_t key = 0; key < 4; key++)
		put(client, key);
	for (uint32_t i = 0; i < 3; i++)
		get(client, 0);
	list(client);
	delete (client, 1);
	put(client, 2);
	vanish(client, 3);
	get(client, 2);
	client_close(client);
}

static void sweep_world(const struct world_sweep *sweep)
{
	opts_draw();
	opts.reactors = 1;
	opts.volumes = 1;
	opts.volume_bytes_max = 0;
	opts.one_sided = true;
	opts.cache_bytes = 4 * MIB;
	opts.log_bytes = MIB;
	opts.inline_bytes = 2048;
	opts.faulty = sweep->nth != 0;
	world_disk_chances = (struct world_disk_chances){0};
	world_fault_plan(sweep->kind, sweep->nth, &shared->seen);
}

void world_load_sweep(
	struct world_shared *of, const char *dir, uint32_t life, const struct world_sweep *sweep)
{
	const struct world_sweep none = {.kind = sweep->kind};
	static struct client one;

	shared = of;
	sweep_world(life ? &none : sweep);
	if (life)
		world_fault_plan(sweep->kind, 0, NULL);
	server_begin(dir);
	for (uint32_t i = 0; i < 2; i++) {
		prng_seed(&one.prng, shared->seed + i);
		opts.all_by_http = i == 1;
		tour(&one);
	}
	/* Whatever failed, failed once. */
	world_fault_plan(sweep->kind, 0, NULL);
	opts.all_is_well = true;
	opts.all_by_http = false;
	look_at_all(&one);
	server_stop(server);
	server_close(server);
	history_life_end(&shared->history);
}

uint64_t world_sweep_seen(const struct world_shared *of)
{
	return of->seen;
}

const char *world_load_judge(struct world_shared *of)
{
	static char text[256];
	uint32_t at;

	shared = of;
	for (uint16_t key = 0; key < KEYS; key++)
		if (!history_explains(&of->history, key, value_bytes, &at)) {
			const struct history_event *event = &of->history.events[at];

			snprintf(text, sizeof(text),
				"key %u: nothing explains what event %u (kind %u) saw: %lld", key,
				at, event->kind, (long long)event->value);
			return text;
		}
	return NULL;
}
