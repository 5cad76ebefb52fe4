/* tests/sim/sets.c: the set of volumes changes while clients use the store: volumes are added and
 * removed, the numbers of shards change, a change is taken back; power fails in all phases, and the
 * host of new volumes does. */
#include <stdio.h>

/* Before load.h, whose `opts` its parameters would hide. */
#include "store/state/state.h"

#include "load.h"

#define ENDED_LOOK_NS  (100 * NS_PER_MS)
#define ENDED_NS_MAX   (600 * NS_PER_S)
#define PATH_BYTES_MAX 300u

static const char *folder;

struct set_ask {
	struct reactor_msg msg;
	struct store_set_change wanted;
	char paths[2][PATH_BYTES_MAX];
	const char *add[2];
	bool done;
};

void sets_begin(const char *dir)
{
	folder = dir;
}

uint32_t sets_paths(void)
{
	return opts.changes && shared->served ? SETS_PATHS : opts.volumes;
}

static void ask_fiber(void *arg)
{
	struct set_ask *ask = (struct set_ask *)arg;
	char why[256];
	int ret = store_volumes_change(server_store, &ask->wanted, why, sizeof(why));

	world_trace("the set of volumes is to change", (uint64_t)-ret, ask->wanted.remove);
	ask->done = true;
	world_wake(ask);
}

static void ask_here(struct reactor_msg *msg)
{
	struct set_ask *ask = CONTAINER_OF(msg, struct set_ask, msg);

	if (fiber_spawn(reactor_self(), "ask", ask_fiber, ask) == 0)
		return;
	ask->done = true;
	world_wake(ask);
}

static void path_write(char path[PATH_BYTES_MAX], uint32_t number)
{
	if (opts.exported >> number & 1)
		(void)peer_path(number, path, PATH_BYTES_MAX);
	else
		snprintf(path, PATH_BYTES_MAX, "%s/volume%u", folder, number);
}

/* Refusals are no faults: nobody knows here which volumes there are. */
static void change(struct client *client)
{
	struct set_ask ask = {.msg = {.fn = ask_here}, .wanted = {.add = ask.add}};
	uint64_t what = prng_below(&client->prng, 8);

	if (what < 5)
		ask.wanted.add_count = 1 + (uint32_t)prng_below(&client->prng, 2);
	if (what >= 4)
		ask.wanted.remove = 1ull << prng_below(&client->prng, SETS_PATHS);
	if (prng_below(&client->prng, 4) == 0) {
		ask.wanted.data = 2 + (uint32_t)prng_below(&client->prng, 4);
		ask.wanted.parity = 1 + (uint32_t)prng_below(&client->prng, 2);
	}
	for (uint32_t i = 0; i < ask.wanted.add_count; i++) {
		path_write(ask.paths[i], (uint32_t)prng_below(&client->prng, SETS_PATHS));
		ask.add[i] = ask.paths[i];
	}
	reactor_post(server_store->cores[0].reactor, &ask.msg);
	while (!ask.done)
		world_block(&ask, UINT64_MAX);
}

void sets_op(struct client *client)
{
	if (prng_below(&client->prng, 4))
		change(client);
	else
		(void)store_volumes_cancel(server_store);
}

void sets_await(struct store *store)
{
	uint64_t deadline_ns = world_now_ns() + ENDED_NS_MAX;
	struct store_set_status status;

	for (;;) {
		store_volumes_status(store, &status);
		if (!status.changing && !status.preparing)
			break;
		if (world_now_ns() > deadline_ns)
			world_fault("a change of the set of volumes does not end: %llu of %llu "
				    "bytes are left: %s",
				(unsigned long long)status.left_bytes,
				(unsigned long long)status.all_bytes, status.note);
		world_block(store, world_now_ns() + ENDED_LOOK_NS);
	}
	world_trace("the set of volumes is", status.data, status.parity);
}
