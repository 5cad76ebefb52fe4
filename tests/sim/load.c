/* tests/sim/load.c: a server, clients that put, get, delete and list, and a check of their answers;
 * power fails in the middle. */
#include "load.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "store/index/index.h"

#define CLIENTS_MAX	  4u
#define OPS_MAX		  20u /* of a client in a life */
#define START_NS_MAX	  (5 * NS_PER_MS)
#define POWER_NS_MAX	  NS_PER_MS
#define ROTTEN_MAX	  200u
#define REST_NS_MAX	  NS_PER_S
#define CLOCK_JUMP_NS_MAX (3600 * NS_PER_S)

bool world_history_wanted;
struct world_opts opts;
struct world_shared *shared;
struct server *server;

struct store *server_store;
static struct world_event power;
static uint32_t power_after; /* operations; 0: not counted */

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

/* ---- Clients. ---- */

/* Power fails soon after all clients together have started so many operations. */
static void count_down(void)
{
	if (power_after && --power_after == 0)
		world_event_set(&power, world_now_ns() + prng_below(world_prng(), POWER_NS_MAX));
}

/* Sets the world's only clock. */
static void clock_is_set(struct client *client)
{
	world_clock_jump((int64_t)prng_below(&client->prng, 2 * CLOCK_JUMP_NS_MAX) -
			 (int64_t)CLOCK_JUMP_NS_MAX);
}

static void one_op(struct client *client)
{
	uint64_t what = prng_below(&client->prng, 8);

	count_down();
	/* The store checks its volumes each second. */
	if ((opts.peer_fails || opts.changes) && prng_below(&client->prng, 4) == 0)
		world_block(client, world_now_ns() + prng_below(&client->prng, REST_NS_MAX));
	if (prng_below(&client->prng, 100) == 0)
		clock_is_set(client);
	if (opts.changes && prng_below(&client->prng, 6) == 0)
		sets_op(client);
	if (opts.versions && what < 3)
		versions_op(client);
	else if (opts.memory_bytes && what >= 6)
		memory_op(client);
	else if (opts.uploads && what < 5)
		uploads_op(client);
	else if (opts.copies && what < 6)
		copies_op(client);
	else
		plain_op(client);
}

static void *client_main(void *arg)
{
	struct client *client = (struct client *)arg;

	world_thread_name("client");
	asker_open(client);
	for (uint32_t i = 0; i < client->ops; i++)
		one_op(client);
	asker_close(client);
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
	int ret;

	small.log_bytes = opts.log_bytes;
	small.step_bytes = opts.step_bytes;
	ret = __real_store_open(&small, region, ret_store);
	if (!ret)
		server_store = *ret_store;
	return ret;
}

/* When the server or the peer ends, no frame may have an owner. */
void __real_region_close(struct region *region);
void __wrap_region_close(struct region *region)
{
	struct region_usage usage;

	if (region) {
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

/* A volume died while the server was down: its path now has a blank one. */
static void volume_replace(const char *dir, uint32_t member)
{
	char path[300];

	snprintf(path, sizeof(path), "%s/%svolume%u", dir,
		opts.exported >> member & 1 ? "peer/" : "", member);
	world_trace("a volume is replaced", member, 0);
	CHECK(truncate(path, 0) == 0);
}

static void set_volumes(struct config *config, const char *dir)
{
	char list[4096], *at = list, secret[300];

	snprintf(secret, sizeof(secret), "%s/peer/secret", dir);
	set(config, "storage.remote.secret_file", opts.exported ? secret : "");
	for (uint32_t i = 0; i < sets_paths(); i++) {
		size_t room = (size_t)(list + sizeof(list) - at);

		if (i) {
			*at++ = ',';
			room--;
		}
		at += opts.exported >> i & 1 ? peer_path(i, at, room)
					     : snprintf(at, room, "%s/volume%u", dir, i);
	}
	if (opts.volumes > 1) {
		set(config, "storage.volumes", list);
		set_number(config, "storage.erasure.data", opts.volumes - 1);
		set_number(config, "storage.erasure.parity", 1);
	} else if (opts.exported) {
		set(config, "storage.volume", list);
	}
}

/* Whether the peer has more volumes than parity can replace. */
static bool peer_takes_all(void)
{
	return opts.peer_fails && (opts.volumes == 1 || __builtin_popcount(opts.exported) > 1);
}

static bool may_not_start(void)
{
	return opts.faulty || peer_takes_all() || (opts.peer_fails && !shared->served);
}

/* The index and what else the server can make again. */
static void folder_lose(const char *dir)
{
	char path[4200];

	world_trace("the data folder is lost", 0, 0);
	snprintf(path, sizeof(path), "%s/index", dir);
	CHECK(index_destroy(path) == 0);
	snprintf(path, sizeof(path), "%s/space", dir);
	unlink(path);
}

static void server_begin(const char *dir)
{
	static struct config config;
	int ret;

	if (opts.folder_goes && shared->protected && prng_below(world_prng(), 2))
		folder_lose(dir);
	shared->protected = false;
	config_defaults(&config);
	set(&config, "storage.protect_index", opts.protect ? "true" : "false");
	set(&config, "data.dir", dir);
	set(&config, "auth.root_user", "minioadmin");
	set(&config, "auth.root_password", "minioadmin");
	set(&config, "http.address", "127.0.0.1:0");
	set(&config, "https.address", "");
	set(&config, "admin.address", "");
	set(&config, "console.address", "");
	set(&config, "s3_express.enabled", opts.copies ? "true" : "false");
	set(&config, "rdma.enabled", "true");
	set(&config, "rdma.device_name", "simulated");
	set(&config, "rdma.address", "127.0.0.1");
	set(&config, "rdma.paths", opts.paths ? "127.0.0.2=simulated" : "");
	set(&config, "rdma.discovery", "false");
	set_number(&config, "rdma.port", 0);
	set_number(&config, "rdma.max_send_wr", opts.depth);
	set_number(&config, "rdma.max_recv_wr", opts.depth);
	set_number(&config, "rdma.lease_bytes", opts.one_sided ? MIB : 0);
	set(&config, "memory.bytes", "32MiB");
	set(&config, "memory.huge_pages", "false");
	set_number(&config, "memory.cache_bytes", opts.cache_bytes);
	/* A bucket that was deleted keeps its part as long as somebody reads what was in it. */
	set_number(&config, "memory.buckets_bytes", 2 * opts.memory_bytes);
	set(&config, "memory.records_bytes", "1MiB");
	set(&config, "memory.index_cache_bytes", "8MiB");
	set(&config, "memory.list_bytes", "1MiB");
	set_number(&config, "data.inline_bytes_max", opts.inline_bytes);
	set_number(&config, "cpu.reactors", opts.reactors);
	set_number(&config, "cpu.idle_spin_us", 0);
	set(&config, "cpu.pin", "false");
	set_number(&config, "data.volume_bytes_max", opts.volume_bytes_max);
	set_volumes(&config, dir);
	ret = server_open(&config, &server);
	if (ret && may_not_start())
		power_fails(NULL);
	if (ret)
		world_fault("the server does not open: %s", strerror(-ret));
	ret = server_start(server);
	if (ret && may_not_start())
		power_fails(NULL);
	if (ret)
		world_fault("the server does not start: %s", strerror(-ret));
	shared->served = true;
}

/* ---- A life. ---- */

static void power_fails(void *arg)
{
	(void)arg;
	world_trace("power fails", 0, 0);
	world_disk_power_lost(prng_below(world_prng(), 2));
	world_index_power_lost();
	history_life_end(&shared->history);
	shared->protected = server_store && store_protected(server_store) == 1;
	world_end(WORLD_END_POWER);
}

/* Plans the loss of power: seldom while the server starts or ends, mostly while it serves
 * clients. */
static void power_plan(void)
{
	power.fn = power_fails;
	power_after = 1 + (uint32_t)prng_below(world_prng(), opts.clients * opts.ops * 2 / 3);
	if (prng_below(world_prng(), 8) == 0)
		world_event_set(&power, world_now_ns() + prng_below(world_prng(), START_NS_MAX));
}

/* Damages only one of several disks, and only bodies: the log has its own tests. */
static void damage_draw(struct prng *prng)
{
	opts.damage = 4u << prng_below(prng, 4);
	world_disk_chances.damage_from = MIB + opts.log_bytes;
	world_disk_chances.damage_disk =
		opts.volumes > 1 ? (int32_t)prng_below(prng, opts.volumes) : -1;
}

static void faults_draw(struct prng *prng)
{
	world_disk_chances.read_error = prng_below(prng, 2) ? 40 : 0;
	world_disk_chances.write_error = prng_below(prng, 2) ? 100 : 0;
	world_disk_chances.death = opts.volumes > 1 && prng_below(prng, 2) ? 60 : 0;
}

/* Damages mostly one volume of an array; its failure is then no reason for other failures. Data
 * damaged on a second volume as well would be lost. */
static void peer_draw(struct prng *prng)
{
	opts.exported = 0;
	if (prng_below(prng, opts.volumes > 1 ? 2 : 16))
		return;
	opts.exported = 1u << prng_below(prng, opts.volumes);
	if (prng_below(prng, 3) == 0)
		opts.exported |= (uint32_t)prng_below(prng, 1ull << opts.volumes);
	opts.peer_fails = !opts.damaged && prng_below(prng, 4);
	if (peer_takes_all())
		opts.all_is_well = false;
}

/* In one array, at most one volume at a time is out of date. */
/* The volumes hold the index, too. Damage of a single volume could hit that. */
static void protect_draw(struct prng *prng)
{
	opts.protect = prng_below(prng, 3) == 0;
	opts.folder_goes = opts.protect && !opts.faulty && (!opts.damaged || opts.repairs);
}

static void memory_draw(struct prng *prng)
{
	opts.memory_bytes = prng_below(prng, 2) ? MIB << prng_below(prng, 3) : 0;
	opts.memory_evicts = prng_below(prng, 2);
	opts.memory_ttl_s = opts.memory_evicts && prng_below(prng, 4) == 0 ? 1 : 0;
	shared->history.key_memory = KEY_MEMORY;
	shared->history.evicts = opts.memory_evicts;
}

/* Where the set changes, no volume is lost otherwise but those that came, and there is room. */
static void changes_draw(struct prng *prng)
{
	opts.changes = prng_below(prng, 5) == 0;
	if (!opts.changes)
		return;
	opts.volumes = 3 + (uint32_t)prng_below(prng, 3);
	opts.volume_bytes_max = 0;
	opts.exported = 0;
	opts.peer_fails = false;
	opts.replaced = -1;
	opts.repairs = opts.damaged;
	opts.all_is_well = !opts.faulty;
	world_disk_chances.damage_disk =
		opts.damaged ? (int32_t)prng_below(prng, opts.volumes) : -1;
	/* All volumes that may be added are of the peer, which takes them away together. */
	if (opts.faulty || opts.damaged || prng_below(prng, 2))
		return;
	opts.exported = (1u << SETS_PATHS) - (1u << opts.volumes);
	opts.peer_fails = prng_below(prng, 4) != 0;
	opts.all_is_well = !opts.peer_fails;
}

static void paths_draw(struct prng *prng)
{
	opts.paths = prng_below(prng, 3) == 0;
	opts.strict |= opts.paths;
}

static void replaced_draw(struct prng *prng)
{
	opts.replaced = -1;
	if (opts.volumes == 1 || opts.faulty || opts.damaged || peer_takes_all() ||
		prng_below(prng, 3))
		return;
	opts.replaced = opts.peer_fails ? __builtin_ctz(opts.exported)
					: (int32_t)prng_below(prng, opts.volumes);
}

/* Depends only on the seed: all its lives have the same parameters. */
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
	opts.strict = prng_below(&prng, 2);
	opts.versions = prng_below(&prng, 2);
	opts.uploads = prng_below(&prng, 2);
	opts.copies = prng_below(&prng, 2);
	opts.ops = OPS_MAX;
	opts.faulty = prng_below(&prng, 3) == 0;
	opts.damaged = !opts.faulty && prng_below(&prng, 3) == 0;
	opts.repairs = opts.damaged && opts.volumes > 1;
	opts.all_is_well = !opts.faulty && (!opts.damaged || opts.repairs);
	if (opts.damaged)
		damage_draw(&prng);
	if (opts.faulty)
		faults_draw(&prng);
	prng_seed(&prng, shared->seed * 7 + 2);
	peer_draw(&prng);
	replaced_draw(&prng);
	prng_seed(&prng, shared->seed * 7 + 3);
	protect_draw(&prng);
	prng_seed(&prng, shared->seed * 7 + 4);
	memory_draw(&prng);
	prng_seed(&prng, shared->seed * 7 + 5);
	paths_draw(&prng);
	prng_seed(&prng, shared->seed * 7 + 6);
	changes_draw(&prng);
}

static void bucket_make(struct client *client, const char *name)
{
	static const char DIRECTORY[] =
		"<CreateBucketConfiguration><Location><Name>zone</Name><Type>AvailabilityZone"
		"</Type></Location><Bucket><DataRedundancy>SingleAvailabilityZone</DataRedundancy>"
		"<Type>Directory</Type></Bucket></CreateBucketConfiguration>";
	struct ask ask = {.method = "PUT", .op = NEB_S3, .bucket = name, .again = true};
	struct http_answer answer;

	if (!strcmp(name, BUCKET_APPEND)) {
		ask.body = DIRECTORY;
		ask.body_bytes = strlen(DIRECTORY);
	}
	client_ask(client, &ask, &answer);
	if (outcome_of(answer.status) != HISTORY_DONE && answer.status != 409 && !may_not_start())
		world_fault("no bucket %s: %d", name, answer.status);
}

static void buckets_make(struct client *client, uint32_t life)
{
	asker_open(client);
	bucket_make(client, BUCKET);
	if (opts.copies)
		bucket_make(client, BUCKET_APPEND);
	if (opts.memory_bytes) {
		int status = memory_make(client);

		if (outcome_of(status) != HISTORY_DONE && !may_not_start())
			world_fault("no memory bucket: %d", status);
	}
	if (opts.versions) {
		bucket_make(client, BUCKET_VERSIONS);
		if (life == 0)
			versions_begin(client);
	}
	asker_close(client);
}

/* Reads every key, after all other operations have ended. */
static void look_at_all(struct client *client)
{
	asker_open(client);
	plain_list(client);
	for (uint16_t key = 0; key < KEYS_PLAIN; key++)
		plain_get(client, key);
	if (opts.versions)
		versions_list(client);
	for (uint16_t key = 0; opts.versions && key < KEYS_VERSIONED; key++)
		versions_get(client, KEY_VERSIONED + key);
	if (opts.uploads)
		uploads_list(client);
	if (opts.copies)
		copies_look(client);
	if (opts.memory_bytes)
		memory_look(client);
	for (uint16_t key = 0; opts.memory_bytes && key < KEYS_MEMORY; key++)
		plain_get(client, KEY_MEMORY + key);
	if (opts.memory_bytes)
		memory_check(server_store);
	asker_close(client);
}

void world_load_run(struct world_shared *of, const char *dir, uint32_t life)
{
	static struct client clients[CLIENTS_MAX], one;

	shared = of;
	opts_draw();
	sets_begin(dir);
	prng_seed(&one.prng, shared->seed + life);
	if (life < WORLD_LIVES - 1)
		power_plan();
	for (uint32_t key = 0; key < KEYS; key++)
		shared->known[key].lost = 0;
	if (opts.replaced >= 0 && shared->served && prng_below(world_prng(), 2))
		volume_replace(dir, (uint32_t)opts.replaced);
	if (opts.exported)
		peer_begin(dir, life);
	server_begin(dir);
	world_disk_chances.damage = opts.damage;
	if (opts.damaged)
		world_disk_rot((uint32_t)prng_below(world_prng(), ROTTEN_MAX));
	buckets_make(&one, life);
	look_at_all(&one);
	asker_open(&one);
	listings_compare(&one);
	asker_close(&one);
	for (uint32_t i = 0; i < opts.clients; i++) {
		prng_seed(&clients[i].prng, shared->seed * 64 + life * 16 + i);
		clients[i].ops = 1 + (uint32_t)prng_below(&clients[i].prng, opts.ops);
		CHECK(pthread_create(&clients[i].thread, NULL, client_main, &clients[i]) == 0);
	}
	for (uint32_t i = 0; i < opts.clients; i++)
		CHECK(pthread_join(clients[i].thread, NULL) == 0);
	if ((opts.peer_fails || opts.replaced >= 0) && opts.volumes > 1 && !opts.faulty &&
		(life == WORLD_LIVES - 1 || prng_below(world_prng(), 2))) {
		whole_await(server_store);
		opts.all_is_well = true;
	}
	if (opts.changes && !opts.faulty && life == WORLD_LIVES - 1)
		sets_await(server_store);
	look_at_all(&one);
	if (life == WORLD_LIVES - 1)
		scrub_check(server_store);
	/* A loss of power while the server ends must not lose acknowledged data, either. */
	server_stop(server);
	server_close(server);
	world_event_cancel(&power);
	history_life_end(&shared->history);
	if (life == WORLD_LIVES - 1 && !opts.faulty)
		store_check(dir);
	peer_end();
}

/* ---- Sweeps. ---- */

/* All operations of clients, in a fixed order. */
static void tour(struct client *client)
{
	buckets_make(client, 1);
	asker_open(client);
	for (uint16_t key = 0; key < 4; key++)
		plain_put(client, key);
	for (uint32_t i = 0; i < 3; i++)
		plain_get(client, 0);
	plain_list(client);
	delete_key(client, 1);
	plain_put(client, 2);
	for (uint16_t key = KEY_MEMORY; key < KEYS; key++)
		plain_put(client, key);
	for (uint32_t i = 0; i < 3; i++)
		plain_get(client, KEY_MEMORY);
	memory_look(client);
	delete_key(client, KEY_MEMORY);
	plain_put(client, KEY_MEMORY);
	vanish(client, KEY_MEMORY + 1);
	vanish(client, 3);
	plain_get(client, 2);
	asker_close(client);
}

static void sweep_world(const struct world_sweep *sweep)
{
	opts_draw();
	opts.reactors = 1;
	opts.volumes = 1;
	opts.exported = 0;
	opts.peer_fails = false;
	opts.replaced = -1;
	opts.changes = false;
	opts.volume_bytes_max = 0;
	opts.one_sided = true;
	opts.cache_bytes = 4 * MIB;
	opts.log_bytes = MIB;
	opts.inline_bytes = 2048;
	opts.faulty = sweep->nth != 0;
	opts.versions = opts.uploads = opts.copies = opts.strict = opts.paths = false;
	opts.memory_bytes = 4 * MIB;
	opts.memory_ttl_s = 0;
	opts.memory_evicts = shared->history.evicts = false;
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
	/* The failure occurs only once. */
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
	for (uint16_t key = 0; key < KEYS; key++) {
		enum history_verdict verdict = history_judge(&of->history, key, &at);

		if (verdict == HISTORY_UNDECIDED)
			printf("# undecided: key %u of %u operations in all\n", key,
				of->history.op_count);
		if (verdict == HISTORY_UNEXPLAINED) {
			const struct history_op *op = &of->history.ops[at];

			snprintf(text, sizeof(text),
				"key %u: nothing explains operation %u (kind %u, outcome %u): "
				"content %u, name %u, upload %u, %lld bytes, %u entries",
				key, at, op->kind, op->outcome, op->content, op->name, op->upload,
				(long long)op->bytes, op->entry_count);
			if (world_history_wanted)
				history_show(&of->history, key);
			return text;
		}
	}
	return NULL;
}
