/* tests/unit/client/rig.c: the server's side of the client's tests. */
#include "rig.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../unit.h"

struct rig {
	struct rig_opts opts;
	struct region *region;
	struct reactor *reactor;
	struct flow_core core;
	struct rp_device *device, *second_device;
	struct front_native *front, *second; /* of the second path; NULL: none */
	struct s3 *s3;
	pthread_t thread;
	char endpoint[96], endpoint_first[48];
	bool drained;
};

/* A function that runs in a fiber on the rig's reactor while the caller waits. */
struct errand {
	struct reactor_msg msg;
	struct rig *rig;
	void (*fn)(struct rig *rig, void *arg);
	void *arg;
	pthread_mutex_t lock;
	pthread_cond_t over;
	bool done;
};

static void errand_fiber(void *arg)
{
	struct errand *errand = arg;

	errand->fn(errand->rig, errand->arg);
	pthread_mutex_lock(&errand->lock);
	errand->done = true;
	pthread_cond_signal(&errand->over);
	pthread_mutex_unlock(&errand->lock);
}

static void errand_arrived(struct reactor_msg *msg)
{
	struct errand *errand = CONTAINER_OF(msg, struct errand, msg);

	CHECK(fiber_spawn(errand->rig->reactor, "errand", errand_fiber, errand) == 0);
}

static void run(struct rig *rig, void (*fn)(struct rig *rig, void *arg), void *arg)
{
	struct errand errand = {.msg.fn = errand_arrived, .rig = rig, .fn = fn, .arg = arg};

	pthread_mutex_init(&errand.lock, NULL);
	pthread_cond_init(&errand.over, NULL);
	reactor_post(rig->reactor, &errand.msg);
	pthread_mutex_lock(&errand.lock);
	while (!errand.done)
		pthread_cond_wait(&errand.over, &errand.lock);
	pthread_mutex_unlock(&errand.lock);
	pthread_cond_destroy(&errand.over);
	pthread_mutex_destroy(&errand.lock);
}

static void *thread_main(void *arg)
{
	reactor_run(((struct rig *)arg)->reactor);
	return NULL;
}

static void ports_tell(struct rig *rig)
{
	const uint16_t ports[] = {front_native_port(rig->front),
		rig->second ? front_native_port(rig->second) : 0, rig->opts.tells_port};

	for (size_t i = 0; i < ARRAY_LEN(ports); i++)
		CHECK(!ports[i] || front_native_announce(rig->front, "127.0.0.1", ports[i]) == 0);
}

static void listen_on_reactor(struct rig *rig, void *arg)
{
	*(int *)arg = front_native_listen(rig->front, "127.0.0.1", rig->opts.port);
	if (rig->second && *(int *)arg == 0)
		*(int *)arg = front_native_listen(rig->second, "127.0.0.1", 0);
	if (rig->opts.tells)
		ports_tell(rig);
}

struct rig *rig_open(const struct rig_opts *opts)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	struct region_opts region_opts = {.bytes = 32 * MIB, .core_count = 1, .name = "rig"};
	struct reactor_opts reactor_opts = {.cpu = -1};
	struct rp_open_opts device_opts = {.device_name = "simulated", .gid_index = -1};
	struct front_native_opts front_opts = {
		.sessions_max = 8, .retry_count = 7, .rnr_retry_count = 7};
	int ret = -1;

	if (opts)
		rig->opts = *opts;
	if (rig->opts.region_bytes)
		region_opts.bytes = rig->opts.region_bytes;
	if (rig->opts.device_name)
		device_opts.device_name = rig->opts.device_name;
	assert_int_equal(region_open(&region_opts, &rig->region), 0);
	assert_int_equal(reactor_open(&reactor_opts, &rig->reactor), 0);
	assert_int_equal(flow_core_open(rig->reactor, rig->region, &rig->core), 0);
	assert_int_equal(rp_open(&device_opts, &rig->device), 0);
	rig->s3 = fake_s3_open(rig->region);
	front_opts.s3 = rig->s3;
	front_opts.core = &rig->core;
	front_opts.device = rig->device;
	front_opts.credits = rig->opts.credits ? rig->opts.credits : 64;
	front_opts.inline_bytes_max =
		rig->opts.inline_bytes_max ? rig->opts.inline_bytes_max : 4096;
	front_opts.request_timeout_ns =
		rig->opts.request_timeout_ns ? rig->opts.request_timeout_ns : RIG_PATIENCE_NS;
	front_opts.idle_timeout_ns = rig->opts.idle_timeout_ns;
	front_opts.keepalive_ns = rig->opts.keepalive_ns;
	front_opts.lease_bytes = rig->opts.lease_bytes ? rig->opts.lease_bytes : 64 * KIB;
	front_opts.lease_ns = rig->opts.lease_ns ? rig->opts.lease_ns : 60 * NS_PER_S;
	front_opts.store_id = rig->opts.store_id;
	front_opts.encryption_required = rig->opts.encrypted;
	assert_int_equal(front_native_open(&front_opts, &rig->front), 0);
	if (rig->opts.second) {
		device_opts.device_name = rig->opts.second;
		assert_int_equal(rp_open(&device_opts, &rig->second_device), 0);
		front_opts.device = rig->second_device;
		front_opts.beside = rig->front;
		assert_int_equal(front_native_open(&front_opts, &rig->second), 0);
	}
	assert_int_equal(pthread_create(&rig->thread, NULL, thread_main, rig), 0);
	run(rig, listen_on_reactor, &ret);
	assert_int_equal(ret, 0);
	snprintf(rig->endpoint_first, sizeof(rig->endpoint_first), "rdma://127.0.0.1:%u",
		front_native_port(rig->front));
	snprintf(rig->endpoint, sizeof(rig->endpoint), "%s", rig->endpoint_first);
	if (rig->second)
		snprintf(rig->endpoint, sizeof(rig->endpoint), "%s,127.0.0.1:%u",
			rig->endpoint_first, front_native_port(rig->second));
	return rig;
}

static void drain(struct rig *rig, void *arg)
{
	(void)arg;
	front_native_drain(rig->front, clock_now_ns() + RIG_PATIENCE_NS);
	if (rig->second)
		front_native_drain(rig->second, clock_now_ns() + RIG_PATIENCE_NS);
	front_native_unlisten(rig->front);
	if (rig->second)
		front_native_unlisten(rig->second);
	rig->drained = true;
}

void rig_drain(struct rig *rig)
{
	run(rig, drain, NULL);
}

void rig_close(struct rig *rig)
{
	struct region_usage usage;

	if (!rig->drained)
		rig_drain(rig);
	reactor_stop(rig->reactor);
	pthread_join(rig->thread, NULL);
	front_native_close(rig->second);
	front_native_close(rig->front);
	fake_s3_close(rig->s3);
	flow_core_close(&rig->core);
	rp_close(rig->second_device);
	rp_close(rig->device);
	reactor_close(rig->reactor);
	region_usage(rig->region, &usage);
	assert_int_equal(usage.frames_by_owner[OWNER_FREE], usage.frames_total);
	region_close(rig->region);
	free(rig);
}

uint16_t rig_port(const struct rig *rig)
{
	return front_native_port(rig->front);
}

struct region *rig_region(const struct rig *rig)
{
	return rig->region;
}

struct s3 *rig_s3(struct rig *rig)
{
	return rig->s3;
}

const char *rig_endpoint_first(const struct rig *rig)
{
	return rig->endpoint_first;
}

const char *rig_endpoint(const struct rig *rig)
{
	return rig->endpoint;
}

static uint32_t all_sessions(const struct rig *rig)
{
	return front_native_sessions(rig->front) +
	       (rig->second ? front_native_sessions(rig->second) : 0);
}

static void sessions(struct rig *rig, void *arg)
{
	*(uint32_t *)arg = all_sessions(rig);
}

struct asked {
	uint32_t path;
	uint64_t requests;
};

static void path_requests(struct rig *rig, void *arg)
{
	struct asked *asked = arg;
	struct front_session told[16];
	uint32_t count =
		front_native_tell(asked->path ? rig->second : rig->front, 0, told, ARRAY_LEN(told));

	for (uint32_t i = 0; i < count; i++)
		asked->requests += told[i].requests;
}

uint64_t rig_path_requests(struct rig *rig, uint32_t path)
{
	struct asked asked = {.path = path};

	run(rig, path_requests, &asked);
	return asked.requests;
}

uint32_t rig_sessions(struct rig *rig)
{
	uint32_t count = 0;

	run(rig, sessions, &count);
	return count;
}

struct wanted {
	uint32_t count;
	bool reached;
};

static void wait_sessions(struct rig *rig, void *arg)
{
	struct wanted *wanted = arg;
	uint64_t deadline_ns = clock_now_ns() + RIG_PATIENCE_NS;

	while (all_sessions(rig) != wanted->count && clock_now_ns() < deadline_ns)
		fiber_yield();
	wanted->reached = all_sessions(rig) == wanted->count;
}

bool rig_sessions_become(struct rig *rig, uint32_t count)
{
	struct wanted wanted = {.count = count};

	run(rig, wait_sessions, &wanted);
	return wanted.reached;
}

static void frames_used(struct rig *rig, void *arg)
{
	struct region_usage usage;

	region_usage(rig->region, &usage);
	*(uint64_t *)arg = usage.frames_total - usage.frames_by_owner[OWNER_FREE];
}

uint64_t rig_frames_used(struct rig *rig)
{
	uint64_t used = 0;

	run(rig, frames_used, &used);
	return used;
}

static void stand_still(struct rig *rig, void *arg)
{
	const uint64_t *ns = arg;
	struct timespec time = {(time_t)(*ns / NS_PER_S), (long)(*ns % NS_PER_S)};

	(void)rig;
	while (nanosleep(&time, &time) && errno == EINTR)
		continue;
}

void rig_stand_still(struct rig *rig, uint64_t ns)
{
	run(rig, stand_still, &ns);
}

static void release_held(struct rig *rig, void *arg)
{
	(void)arg;
	fake_s3_release(rig->s3, &rig->core);
}

void rig_release_held(struct rig *rig)
{
	run(rig, release_held, NULL);
}

void rig_fill(void *data, size_t bytes, uint64_t seed)
{
	struct prng prng;

	prng_seed(&prng, seed);
	prng_fill(&prng, data, bytes);
}

struct neb_client *rig_client(struct rig *rig, enum neb_transport transport)
{
	struct neb_options options = {.endpoints = rig->endpoint,
		.access_key = RIG_ACCESS_KEY,
		.secret_key = RIG_SECRET_KEY,
		.transport = transport,
		.connect_timeout_ns = RIG_PATIENCE_NS,
		.request_timeout_ns = RIG_PATIENCE_NS,
		.pool_bytes = 256 * MIB};
	struct neb_client *client = NULL;

	assert_int_equal(neb_client_open(&options, &client), 0);
	return client;
}
