/* tests/sim/peer.c: another host of the same world, which exports volumes: it fails and loses
 * unflushed writes, its connections break, its disks stall; and it comes back. */
#include "load.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "remote/target_priv.h"

#define PEER_PORT	  9110u
#define PEER_SECRET	  "a secret of this world"
#define PEER_REGION_BYTES (16 * MIB)
#define UP_NS_MAX	  (2 * NS_PER_S)
#define DOWN_NS_MAX	  (4 * NS_PER_S)
#define STALL_NS_MAX	  (20 * NS_PER_S) /* the server waits up to 10 s */
#define RETRY_NS	  (100 * NS_PER_MS)
#define WHOLE_LOOK_NS	  (100 * NS_PER_MS)
/* A store that has not yet noticed a loss is not intact, nor is one with commands that still
 * stall. */
#define WHOLE_NS     (STALL_NS_MAX + 5 * NS_PER_S)
#define WHOLE_NS_MAX (600 * NS_PER_S)

static struct {
	char dir[256];
	pthread_t manager;
	bool running, ending, staying;
	struct prng prng;
	struct region *region;
	struct reactor *reactor;
	struct disk *disks[DISK_MEMBERS_MAX];
	struct remote_target *target; /* NULL: the host is down */
	bool up;		      /* and it does not go down any more */
	pthread_t thread;
	struct reactor_msg msg;
	bool dies; /* and its volumes with it */
	bool kept; /* unflushed writes */
} peer;

/* ---- The host comes up and goes down. ---- */

static void *reactor_main(void *arg)
{
	world_thread_name("peer");
	reactor_run((struct reactor *)arg);
	return NULL;
}

static void parts_close(void)
{
	remote_target_close(peer.target);
	peer.target = NULL;
	for (uint32_t i = 0; i < DISK_MEMBERS_MAX; i++) {
		disk_close(peer.disks[i]);
		peer.disks[i] = NULL;
	}
	reactor_close(peer.reactor);
	region_close(peer.region);
	peer.reactor = NULL;
	peer.region = NULL;
}

static int volume_open(uint32_t member)
{
	char path[300];
	const struct disk_opts disk = {.path = path, .create = true, .step_bytes = opts.step_bytes};
	int ret;

	snprintf(path, sizeof(path), "%s/peer/volume%u", peer.dir, member);
	ret = disk_open(&disk, &peer.disks[member]);
	return ret ? ret : disk_attach(peer.disks[member], peer.reactor, peer.region);
}

static int parts_open(void)
{
	const struct region_opts region = {.bytes = PEER_REGION_BYTES, .core_count = 1};
	const struct reactor_opts reactor = {.cpu = -1};
	struct remote_export exports[DISK_MEMBERS_MAX];
	char names[DISK_MEMBERS_MAX][16];
	struct remote_target_opts target = {
		.device = {.device_name = "simulated", .gid_index = -1},
		.secret = PEER_SECRET,
		.address = "127.0.0.1",
		.port = PEER_PORT,
		.exports = exports,
	};
	int ret = region_open(&region, &peer.region);

	if (!ret)
		ret = reactor_open(&reactor, &peer.reactor);
	for (uint32_t i = 0; i < DISK_MEMBERS_MAX && !ret; i++) {
		if (!(opts.exported >> i & 1))
			continue;
		ret = volume_open(i);
		snprintf(names[i], sizeof(names[i]), "volume%u", i);
		exports[target.export_count++] =
			(struct remote_export){.name = names[i], .disk = peer.disks[i]};
	}
	target.reactor = peer.reactor;
	target.region = peer.region;
	return ret ? ret : remote_target_open(&target, &peer.target);
}

static bool host_up(void)
{
	int ret = parts_open();

	world_trace("the peer is there", (uint64_t)-ret, 0);
	if (ret && !opts.faulty)
		world_fault("the peer does not open: %s", strerror(-ret));
	if (ret) {
		parts_close();
		return false;
	}
	CHECK(pthread_create(&peer.thread, NULL, reactor_main, peer.reactor) == 0);
	peer.up = true;
	return true;
}

/* Drops the outstanding operations of its volumes, which get no answer. */
static void drain_main(void *arg)
{
	(void)arg;
	if (peer.dies)
		world_disk_host_lost(peer.kept);
	remote_target_drain(peer.target);
	reactor_stop(peer.reactor);
}

static void drain_post(struct reactor_msg *msg)
{
	(void)msg;
	CHECK(fiber_spawn(peer.reactor, "drain", drain_main, NULL) == 0);
}

static void host_down(bool dies)
{
	peer.dies = dies;
	peer.kept = prng_below(&peer.prng, 3) == 0;
	peer.up = false;
	world_trace("the peer goes", dies, peer.kept);
	peer.msg.fn = drain_post;
	reactor_post(peer.reactor, &peer.msg);
	CHECK(pthread_join(peer.thread, NULL) == 0);
	parts_close();
}

/* ---- Its failures. ---- */

static void cut_here(struct reactor_msg *msg)
{
	(void)msg;
	for (uint32_t i = 0; i < TARGET_LANES_MAX; i++)
		if (peer.target->lanes[i])
			target_lane_fail(peer.target->lanes[i], "the world cuts it off");
}

/* Waits for so long, or until the host must stay up or end. */
static void rest(uint64_t ns)
{
	uint64_t until_ns = world_now_ns() + ns;

	while (!peer.ending && !peer.staying && world_now_ns() < until_ns)
		world_block(&peer, until_ns);
}

static void misfortune(void)
{
	uint64_t what = prng_below(&peer.prng, 4);

	if (what == 0) {
		world_trace("the peer is cut off", 0, 0);
		peer.msg.fn = cut_here;
		reactor_post(peer.reactor, &peer.msg);
	} else if (what == 1) {
		world_trace("the peer stands still", 0, 0);
		world_disk_host_stall(world_now_ns() + prng_below(&peer.prng, STALL_NS_MAX));
	} else {
		host_down(true);
	}
}

static void *manager_main(void *arg)
{
	(void)arg;
	world_thread_name("peer-manager");
	while (!peer.ending) {
		if (!peer.target) {
			rest(prng_below(&peer.prng, 2) ? prng_below(&peer.prng, DOWN_NS_MAX) : 0);
			while (!host_up())
				world_block(&peer.msg, world_now_ns() + RETRY_NS);
		} else if (peer.staying) {
			world_block(&peer, UINT64_MAX);
		} else {
			rest(prng_below(&peer.prng, 2) ? prng_below(&peer.prng, UP_NS_MAX)
						       : prng_below(&peer.prng, UP_NS_MAX / 20));
			if (!peer.ending && !peer.staying)
				misfortune();
		}
	}
	return NULL;
}

/* ---- For the load. ---- */

static void secret_write(const char *path)
{
	FILE *file = fopen(path, "w");

	CHECK(file && fputs(PEER_SECRET, file) >= 0 && fclose(file) == 0);
}

void peer_begin(const char *dir, uint32_t life)
{
	char path[300];

	snprintf(peer.dir, sizeof(peer.dir), "%s", dir);
	snprintf(path, sizeof(path), "%s/peer", dir);
	CHECK((mkdir(dir, 0700) == 0 || errno == EEXIST) &&
		(mkdir(path, 0700) == 0 || errno == EEXIST));
	snprintf(path, sizeof(path), "%s/peer/secret", dir);
	secret_write(path);
	prng_seed(&peer.prng, shared->seed * 32 + life);
	peer.staying = !opts.peer_fails;
	/* Now and then it is down when the server starts. */
	if (!opts.peer_fails || life == 0 || prng_below(&peer.prng, 4))
		(void)host_up();
	CHECK(pthread_create(&peer.manager, NULL, manager_main, NULL) == 0);
	peer.running = true;
}

void peer_end(void)
{
	if (!peer.running)
		return;
	peer.ending = true;
	world_wake(&peer);
	CHECK(pthread_join(peer.manager, NULL) == 0);
	peer.running = false;
	if (peer.target)
		host_down(false);
}

int peer_path(uint32_t member, char *path, size_t room)
{
	return snprintf(path, room, REMOTE_SCHEME "127.0.0.1:%u/volume%u", PEER_PORT, member);
}

/* Brings the host up; it no longer fails. */
static void peer_settle(void)
{
	peer.staying = true;
	world_disk_host_stall(0);
	world_wake(&peer);
	while (!peer.up)
		world_block(&peer.staying, world_now_ns() + RETRY_NS);
}

struct remote *peer_reach(void)
{
	const struct remote_opts remote = {
		.device = {.device_name = "simulated", .gid_index = -1}, .secret = PEER_SECRET};
	struct remote *reached;

	peer_settle();
	CHECK(remote_initiator_open(&remote, &reached) == 0);
	return reached;
}

static bool is_whole(struct store *store)
{
	struct store_volume volumes[DISK_MEMBERS_MAX];
	uint32_t count = store_volumes(store, volumes, DISK_MEMBERS_MAX);
	char why[256];

	for (uint32_t i = 0; i < count; i++)
		if (volumes[i].state != DISK_MEMBER_GOOD)
			return false;
	return store_writable(store, why, sizeof(why));
}

void whole_await(struct store *store)
{
	uint64_t deadline_ns = world_now_ns() + WHOLE_NS_MAX, since_ns = world_now_ns();

	if (peer.running)
		peer_settle();
	while (world_now_ns() < since_ns + WHOLE_NS) {
		world_block(store, world_now_ns() + WHOLE_LOOK_NS);
		if (!is_whole(store))
			since_ns = world_now_ns();
		if (world_now_ns() > deadline_ns)
			world_fault("all volumes are there, but the store does not become whole");
	}
	world_trace("whole", 0, 0);
}
