/* Objects as memory: maps of objects of the program itself, by RDMA and by HTTP. ThreadSanitizer
 * does not see that the kernel writes the pages; it sees the library's own memory and locks. */
#include "../unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "program.h"
#include "rig.h"

#define BUCKET	   "map"
#define LONG_BYTES (72 * MIB + 4097)
#define UNIT_BYTES (64 * KIB)
#define NOBODY	   65534

static struct neb_options options_of(const struct program *child, enum neb_transport transport)
{
	return (struct neb_options){.endpoints = child->both,
		.access_key = RIG_ACCESS_KEY,
		.secret_key = RIG_SECRET_KEY,
		.transport = transport,
		.request_timeout_ns = RIG_PATIENCE_NS};
}

static struct neb_mapper *mapper_of(const struct program *child, enum neb_transport transport,
	const struct neb_mapper_options *more)
{
	const struct neb_options options = options_of(child, transport);
	struct neb_mapper *mapper = NULL;

	assert_int_equal(neb_mapper_open(&options, more, &mapper), 0);
	return mapper;
}

static void object_put(const struct program *child, const char *key, size_t bytes, uint64_t seed)
{
	const struct neb_options options = options_of(child, NEB_STRICT);
	struct neb_client *client = NULL;
	uint8_t *data = malloc(bytes + 1);

	rig_fill(data, bytes, seed);
	assert_int_equal(neb_client_open(&options, &client), 0);
	neb_bucket_create(client, BUCKET, NULL);
	assert_int_equal(neb_put(client, BUCKET, key, data, bytes, NULL), 0);
	neb_client_close(client);
	free(data);
}

static struct neb_map *map_of(struct neb_mapper *mapper, const char *key)
{
	struct neb_map *map = NULL;

	assert_int_equal(neb_map(mapper, BUCKET, key, NULL, &map, NULL), 0);
	return map;
}

static const uint8_t *bytes_of(const struct neb_map *map)
{
	return (const uint8_t *)neb_map_data(map);
}

static struct neb_map_stats stats_of(struct neb_map *map)
{
	struct neb_map_stats stats;

	neb_map_stats(map, &stats);
	return stats;
}

/* A fetch counts as resident a moment after its pages can be read. */
static struct neb_map_stats settled_stats_of(struct neb_map *map)
{
	uint64_t until_ns = clock_now_ns() + RIG_PATIENCE_NS;
	struct neb_map_stats stats = stats_of(map);

	while (stats.bytes_fetched - stats.bytes_dropped != stats.bytes_resident) {
		assert_true(clock_now_ns() < until_ns);
		stats = stats_of(map);
	}
	return stats;
}

/* ---- Touches that may raise a signal. ---- */

static _Thread_local sigjmp_buf back;

static void on_signal(int number)
{
	siglongjmp(back, number);
}

/* Reads a byte: 0, or the signal that it raised. cmocka sets its own handlers before each test. For
 * ThreadSanitizer the end of a map, another thread's mmap(), would be a race with it. */
__attribute__((no_sanitize("thread"))) static int touch(const uint8_t *at, uint8_t *ret_byte)
{
	const struct sigaction action = {.sa_handler = on_signal};
	int number;

	sigaction(SIGBUS, &action, NULL);
	sigaction(SIGSEGV, &action, NULL);
	number = sigsetjmp(back, 1);
	if (!number)
		*ret_byte = *(const volatile uint8_t *)at;
	return number;
}

struct toucher {
	const uint8_t *at;
	pthread_barrier_t *barrier; /* or NULL */
	pthread_t thread;
	uint8_t byte;
	_Atomic int number; /* -1: it waits */
};

static void *toucher_main(void *arg)
{
	struct toucher *toucher = (struct toucher *)arg;

	if (toucher->barrier)
		pthread_barrier_wait(toucher->barrier);
	toucher->number = touch(toucher->at, &toucher->byte);
	return NULL;
}

static void toucher_start(struct toucher *toucher, const uint8_t *at)
{
	toucher->at = at;
	toucher->number = -1;
	assert_int_equal(pthread_create(&toucher->thread, NULL, toucher_main, toucher), 0);
}

/* Waits until so many touches of the map have come to the mapper. */
static void faults_become(struct neb_map *map, uint64_t count)
{
	uint64_t until_ns = clock_now_ns() + RIG_PATIENCE_NS;

	while (stats_of(map).faults < count) {
		assert_true(clock_now_ns() < until_ns);
		sched_yield();
	}
}

/* ---- All is well. ---- */

static void test_in_order(void **state)
{
	static const enum neb_transport WAYS[] = {NEB_STRICT, NEB_HTTP};
	uint8_t *want = malloc(LONG_BYTES);

	object_put(*state, "long", LONG_BYTES, 1);
	rig_fill(want, LONG_BYTES, 1);
	for (size_t i = 0; i < ARRAY_LEN(WAYS); i++) {
		struct neb_mapper *mapper = mapper_of(*state, WAYS[i], NULL);
		struct neb_map *map = map_of(mapper, "long");
		struct neb_map_stats stats;

		assert_int_equal(neb_map_bytes(map), LONG_BYTES);
		assert_true(*neb_map_etag(map));
		assert_int_equal(stats_of(map).bytes_fetched, 0);
		for (uint64_t at = 0; at < LONG_BYTES; at += 4096)
			assert_memory_equal(
				bytes_of(map) + at, want + at, MIN(4096, LONG_BYTES - at));
		/* Beyond the object's end the last page has zeros. */
		for (uint64_t at = LONG_BYTES; at % 4096; at++)
			assert_int_equal(bytes_of(map)[at], 0);
		stats = settled_stats_of(map);
		assert_int_equal(stats.bytes_fetched, LONG_BYTES);
		assert_int_equal(stats.bytes_resident, LONG_BYTES);
		assert_int_equal(stats.fetches_rdma, WAYS[i] == NEB_HTTP ? 0 : stats.fetches);
		/* 64 KiB, 256 KiB, 1 MiB, then pieces of 2 MiB. */
		assert_in_range(stats.fetches, 37, 40);
		assert_in_range(
			stats.faults, stats.fetches - MIN(stats.fetches, 4), stats.fetches + 4);
		neb_unmap(map);
		neb_mapper_close(mapper);
	}
	free(want);
}

static void test_ahead(void **state)
{
	struct neb_mapper *mapper = mapper_of(*state, NEB_STRICT, NULL);
	struct neb_map *map = map_of(mapper, "long");
	uint64_t until_ns = clock_now_ns() + RIG_PATIENCE_NS;
	const uint64_t read_bytes = 4 * MIB;
	uint8_t byte;

	for (uint64_t at = 0; at < read_bytes; at += 4096)
		assert_int_equal(touch(bytes_of(map) + at, &byte), 0);
	/* Four pieces ahead come by themselves. */
	while (stats_of(map).bytes_fetched < read_bytes + 8 * MIB)
		assert_true(clock_now_ns() < until_ns);
	assert_true(stats_of(map).bytes_fetched <= read_bytes + 12 * MIB);
	neb_unmap(map);
	neb_mapper_close(mapper);
}

static void test_out_of_order(void **state)
{
	const struct neb_mapper_options more = {.resident_bytes_max = 32 * MIB};
	struct neb_mapper *mapper = mapper_of(*state, NEB_STRICT, &more);
	struct neb_map *map = map_of(mapper, "long");
	uint8_t *want = malloc(LONG_BYTES);
	struct neb_map_stats stats;
	struct prng prng;

	rig_fill(want, LONG_BYTES, 1);
	prng_seed(&prng, 7);
	for (uint32_t i = 0; i < 3000; i++) {
		uint64_t at = prng_below(&prng, LONG_BYTES - 4096);

		assert_memory_equal(bytes_of(map) + at, want + at, 4096);
		assert_true(stats_of(map).bytes_resident <= more.resident_bytes_max);
	}
	/* Twice in order: all that was dropped comes again. */
	for (uint32_t i = 0; i < 2; i++)
		assert_memory_equal(bytes_of(map), want, LONG_BYTES);
	stats = settled_stats_of(map);
	assert_true(stats.bytes_dropped > LONG_BYTES);
	free(want);
	neb_unmap(map);
	neb_mapper_close(mapper);
}

static void test_one_page(void **state)
{
	struct neb_mapper *mapper = mapper_of(*state, NEB_STRICT, NULL);
	struct neb_map *map = map_of(mapper, "long");
	struct toucher touchers[2] = {0};
	pthread_barrier_t barrier;
	uint8_t *want = malloc(LONG_BYTES);

	rig_fill(want, LONG_BYTES, 1);
	pthread_barrier_init(&barrier, NULL, ARRAY_LEN(touchers));
	for (uint32_t i = 0; i < ARRAY_LEN(touchers); i++) {
		touchers[i].barrier = &barrier;
		toucher_start(&touchers[i], bytes_of(map) + 9 * MIB + 5);
	}
	for (uint32_t i = 0; i < ARRAY_LEN(touchers); i++) {
		pthread_join(touchers[i].thread, NULL);
		assert_int_equal(touchers[i].number, 0);
		assert_int_equal(touchers[i].byte, want[9 * MIB + 5]);
	}
	assert_int_equal(stats_of(map).fetches, 1);
	assert_int_equal(stats_of(map).bytes_fetched, UNIT_BYTES);
	pthread_barrier_destroy(&barrier);
	free(want);
	neb_unmap(map);
	neb_mapper_close(mapper);
}

static void test_prefetch(void **state)
{
	const struct neb_mapper_options more = {
		.resident_bytes_max = 32 * MIB, .fault_bytes = 4096};
	struct neb_mapper *mapper = mapper_of(*state, NEB_STRICT, &more);
	struct neb_map *map = map_of(mapper, "long");
	uint8_t *want = malloc(LONG_BYTES);

	rig_fill(want, LONG_BYTES, 1);
	assert_int_equal(neb_map_prefetch(map, LONG_BYTES + 1, 0, 0), -ERANGE);
	assert_int_equal(neb_map_prefetch(map, 5, LONG_BYTES - 4, 0), -ERANGE);
	assert_int_equal(neb_map_prefetch(map, 10 * MIB + 5, 5 * MIB, RIG_PATIENCE_NS), 0);
	assert_memory_equal(bytes_of(map) + 10 * MIB + 5, want + 10 * MIB + 5, 5 * MIB);
	assert_int_equal(stats_of(map).faults, 0);
	assert_int_equal(stats_of(map).bytes_fetched, 5 * MIB + 4096);
	/* Bytes that are there are not fetched again; no more than half the bound. */
	assert_int_equal(neb_map_prefetch(map, 10 * MIB, 0, RIG_PATIENCE_NS), 0);
	assert_int_equal(stats_of(map).bytes_fetched, 16 * MIB);
	assert_int_equal(stats_of(map).faults, 0);
	/* One that nobody waits for, and the touch of it. */
	assert_int_equal(neb_map_prefetch(map, 40 * MIB, 8 * MIB, 0), 0);
	assert_memory_equal(bytes_of(map) + 40 * MIB, want + 40 * MIB, 8 * MIB);
	free(want);
	neb_unmap(map);
	neb_mapper_close(mapper);
}

static void test_small(void **state)
{
	static const size_t SIZES[] = {0, 1, 4096, 64 * KIB, 64 * KIB + 1, 2 * MIB + 1};
	struct neb_mapper *mapper = mapper_of(*state, NEB_STRICT, NULL);
	uint8_t *want = malloc(2 * MIB + 1);
	struct neb_map *maps[ARRAY_LEN(SIZES)];
	char key[32];

	rig_fill(want, 2 * MIB + 1, 3);
	for (size_t i = 0; i < ARRAY_LEN(SIZES); i++) {
		snprintf(key, sizeof(key), "small-%zu", i);
		object_put(*state, key, SIZES[i], 3);
		maps[i] = map_of(mapper, key);
		assert_int_equal(neb_map_bytes(maps[i]), SIZES[i]);
	}
	for (size_t i = ARRAY_LEN(SIZES); i-- > 0;)
		assert_memory_equal(bytes_of(maps[i]), want, SIZES[i]);
	assert_int_equal(bytes_of(maps[0])[0], 0);
	neb_unmap(maps[3]);
	neb_unmap(NULL);
	free(want);
	neb_mapper_close(mapper); /* with the other maps */
	neb_mapper_close(NULL);
}

/* ---- Maps that end. ---- */

struct ended {
	int error;
	uint32_t count;
	const struct neb_map *map;
};

static void on_failed(void *arg, const struct neb_map *map, const struct neb_result *result)
{
	struct ended *ended = (struct ended *)arg;

	ended->error = result->error;
	ended->map = map;
	ended->count++;
}

static void test_replaced(void **state)
{
	static const int ERRORS[] = {-ESTALE, -ENOENT};
	const struct neb_options options = options_of(*state, NEB_STRICT);
	struct neb_client *client;

	assert_int_equal(neb_client_open(&options, &client), 0);
	for (size_t i = 0; i < ARRAY_LEN(ERRORS); i++) {
		struct ended ended = {0};
		const struct neb_mapper_options more = {.failed = on_failed, .arg = &ended};
		struct neb_mapper *mapper = mapper_of(*state, NEB_STRICT, &more);
		struct neb_result result;
		struct neb_map *map, *other;
		uint8_t byte;

		object_put(*state, "changes", 4 * MIB, 4);
		map = map_of(mapper, "changes");
		other = map_of(mapper, "long");
		assert_int_equal(touch(bytes_of(map), &byte), 0);
		assert_int_equal(neb_map_error(map, NULL), 0);
		if (i)
			assert_int_equal(neb_delete(client, BUCKET, "changes", NULL), 0);
		else
			object_put(*state, "changes", 4 * MIB, 5);
		assert_int_equal(touch(bytes_of(map) + 1, &byte), 0); /* its page is there */
		assert_int_equal(touch(bytes_of(map) + 3 * MIB, &byte), SIGBUS);
		assert_int_equal(touch(bytes_of(map), &byte), SIGBUS);
		assert_int_equal(neb_map_error(map, &result), ERRORS[i]);
		assert_int_equal(result.status, i ? 404 : 412);
		assert_int_equal(neb_map_prefetch(map, 0, 0, 0), ERRORS[i]);
		assert_int_equal(ended.count, 1);
		assert_int_equal(ended.error, ERRORS[i]);
		assert_ptr_equal(ended.map, map);
		assert_int_equal(stats_of(map).bytes_resident, 0);
		/* Another map goes on, and so does one of the new object. */
		assert_int_equal(touch(bytes_of(other), &byte), 0);
		if (!i)
			assert_int_equal(touch(bytes_of(map_of(mapper, "changes")), &byte), 0);
		neb_mapper_close(mapper);
	}
	neb_client_close(client);
}

/* A test that fails leaves no stopped server to the next one. */
static int server_goes_on(void **state)
{
	program_go_on(*state);
	return 0;
}

/* One thread waits, another touches a page that is there, while the server stands; then it goes on.
 */
static void test_server_stands(void **state)
{
	const struct program *child = *state;
	struct neb_options options = options_of(child, NEB_HTTP);
	struct neb_mapper *mapper;
	struct toucher toucher = {0};
	struct neb_map *map;
	uint64_t until_ns = clock_now_ns() + RIG_PATIENCE_NS, before;
	const struct neb_mapper_options more = {.patience_ns = RIG_PATIENCE_NS};
	uint8_t byte, *want = malloc(LONG_BYTES);

	rig_fill(want, LONG_BYTES, 1);
	options.request_timeout_ns = NS_PER_S / 2;
	assert_int_equal(neb_mapper_open(&options, &more, &mapper), 0);
	do /* on a busy machine the short timeout may be over */
		if (neb_map(mapper, BUCKET, "long", NULL, &map, NULL))
			map = NULL;
	while (!map && clock_now_ns() < until_ns);
	assert_non_null(map);
	assert_int_equal(touch(bytes_of(map), &byte), 0);
	program_stop(child);
	toucher_start(&toucher, bytes_of(map) + 20 * MIB);
	before = stats_of(map).retries;
	while (stats_of(map).retries == before && toucher.number == -1 && clock_now_ns() < until_ns)
		assert_int_equal(touch(bytes_of(map), &byte), 0);
	assert_int_equal(toucher.number, -1);
	assert_true(stats_of(map).retries > before);
	program_go_on(child);
	pthread_join(toucher.thread, NULL);
	assert_int_equal(toucher.number, 0);
	assert_int_equal(toucher.byte, want[20 * MIB]);
	free(want);
	neb_mapper_close(mapper);
}

static void test_unmapped(void **state)
{
	const struct program *child = *state;
	static const enum neb_transport WAYS[] = {NEB_STRICT, NEB_HTTP};

	for (size_t i = 0; i < ARRAY_LEN(WAYS); i++) {
		struct neb_mapper *mapper = mapper_of(child, WAYS[i], NULL);
		struct neb_map *map = map_of(mapper, "long"), *other = map_of(mapper, "long");
		struct toucher toucher = {0};
		uint8_t byte;

		program_stop(child);
		toucher_start(&toucher, bytes_of(map) + 20 * MIB);
		faults_become(map, 1);
		neb_unmap(map);
		pthread_join(toucher.thread, NULL);
		assert_true(toucher.number == SIGBUS || toucher.number == SIGSEGV);
		program_go_on(child);
		/* The request of the one that ended is still on its way. */
		assert_int_equal(touch(bytes_of(other) + 20 * MIB, &byte), 0);
		neb_mapper_close(mapper);
	}
}

/* A map of which a byte was read. On a busy machine a short timeout may be over: then another one.
 */
static struct neb_map *map_read(const struct neb_options *options,
	const struct neb_mapper_options *more, struct neb_mapper **ret_mapper)
{
	uint64_t until_ns = clock_now_ns() + RIG_PATIENCE_NS;
	struct neb_map *map;
	uint8_t byte;

	do {
		assert_int_equal(neb_mapper_open(options, more, ret_mapper), 0);
		if (neb_map(*ret_mapper, BUCKET, "dies", NULL, &map, NULL) == 0 &&
			touch(bytes_of(map), &byte) == 0)
			return map;
		neb_mapper_close(*ret_mapper);
	} while (clock_now_ns() < until_ns);
	fail();
	return NULL;
}

static void test_server_killed(void **state)
{
	void *own;
	struct program *child;
	char command[128];

	(void)state;
	assert_int_equal(program_open(&own), 0);
	child = (struct program *)own;
	object_put(child, "dies", 4 * MIB, 6);
	for (uint32_t i = 0; i < 2; i++) {
		struct ended ended = {0};
		const struct neb_mapper_options more = {
			.patience_ns = NS_PER_MS, .failed = on_failed, .arg = &ended};
		struct neb_options options = options_of(child, i ? NEB_HTTP : NEB_RDMA);
		struct neb_mapper *mapper;
		struct neb_map *map;
		struct neb_result result;
		uint8_t byte;

		options.request_timeout_ns = options.connect_timeout_ns = 5 * NS_PER_S;
		if (i) {
			assert_int_equal(neb_mapper_open(&options, &more, &mapper), 0);
			assert_true(neb_map(mapper, BUCKET, "dies", NULL, &map, &result) < 0);
			assert_int_equal(result.status, 0);
			neb_mapper_close(mapper);
			break;
		}
		map = map_read(&options, &more, &mapper);
		ended.count = 0;
		kill(child->pid, SIGKILL);
		waitpid(child->pid, NULL, 0);
		assert_int_equal(touch(bytes_of(map) + 3 * MIB, &byte), SIGBUS);
		assert_true(neb_map_error(map, &result) < 0);
		assert_int_equal(result.status, 0);
		assert_int_equal(ended.count, 1);
		neb_mapper_close(mapper);
	}
	snprintf(command, sizeof(command), "rm -rf %s", child->dir);
	assert_int_equal(system(command), 0);
	free(child);
}

static void test_refused(void **state)
{
	static const struct neb_mapper_options BAD[] = {{.resident_bytes_max = 32 * MIB - 1},
		{.fault_bytes = 2048}, {.fault_bytes = 12288}, {.fault_bytes = 4 * MIB}};
	const struct neb_options options = options_of(*state, NEB_STRICT);
	struct neb_mapper *mapper = NULL;
	struct neb_result result;
	struct neb_map *map = NULL;

	for (size_t i = 0; i < ARRAY_LEN(BAD); i++)
		assert_int_equal(neb_mapper_open(&options, &BAD[i], &mapper), -EINVAL);
	mapper = mapper_of(*state, NEB_STRICT, NULL);
	assert_int_equal(neb_map(mapper, BUCKET, "none", NULL, &map, &result), -ENOENT);
	assert_int_equal(result.status, 404);
	assert_int_equal(neb_map(mapper, NULL, "none", NULL, &map, &result), -EINVAL);
	assert_int_equal(neb_map(mapper, "not a bucket", "none", NULL, &map, NULL) < 0, true);
	assert_null(map);
	neb_mapper_close(mapper);
}

/* Answers one request, as a proxy does whose server is away. */
static void *proxy_main(void *arg)
{
	static const char ANSWER[] = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
				     "Content-Length: 9\r\n\r\n";
	int fd = accept(*(int *)arg, NULL, NULL);
	char request[4096];

	if (read(fd, request, sizeof(request)) > 0)
		(void)!write(fd, ANSWER, strlen(ANSWER));
	shutdown(fd, SHUT_WR);
	while (read(fd, request, sizeof(request)) > 0)
		continue;
	close(fd);
	return NULL;
}

/* Of an object without an ETag the pieces could be of several. */
static void test_no_etag(void **state)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct neb_options options = options_of(*state, NEB_HTTP);
	struct neb_mapper *mapper = NULL;
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	struct neb_map *map = NULL;
	struct neb_result result;
	socklen_t len = sizeof(at);
	char endpoint[64];
	pthread_t proxy;

	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	assert_int_equal(pthread_create(&proxy, NULL, proxy_main, &fd), 0);
	snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%u", ntohs(at.sin_port));
	options.endpoints = endpoint;
	assert_int_equal(neb_mapper_open(&options, NULL, &mapper), 0);
	assert_int_equal(neb_map(mapper, BUCKET, "k", NULL, &map, &result), -EPROTO);
	assert_non_null(strstr(result.message, "no ETag"));
	neb_mapper_close(mapper);
	assert_int_equal(pthread_join(proxy, NULL), 0);
	close(fd);
}

/* ---- The kernel's part. ---- */

/* Runs in a child of its own; its result is the exit status. */
static int in_child(int (*run)(const void *arg), const void *arg)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0)
		_exit(run(arg));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

static int child_touches(const void *arg)
{
	uint8_t byte;

	return touch((const uint8_t *)arg, &byte);
}

static void test_fork(void **state)
{
	struct neb_mapper *mapper = mapper_of(*state, NEB_STRICT, NULL);
	struct neb_map *map = map_of(mapper, "long");
	uint8_t byte;

	assert_int_equal(touch(bytes_of(map), &byte), 0);
	assert_int_equal(in_child(child_touches, bytes_of(map)), SIGSEGV);
	assert_int_equal(in_child(child_touches, bytes_of(map) + 30 * MIB), SIGSEGV);
	assert_int_equal(touch(bytes_of(map) + 30 * MIB, &byte), 0);
	neb_mapper_close(mapper);
}

/* A system call that reads the map: 0, or the step that went wrong. */
static int kernel_touches(const struct neb_options *options, bool *ret_kernel)
{
	struct neb_mapper *mapper;
	struct neb_map *map;
	int file = memfd_create("map-test", MFD_CLOEXEC);
	ssize_t got;

	if (neb_mapper_open(options, NULL, &mapper))
		return 1;
	if (neb_map(mapper, BUCKET, "long", NULL, &map, NULL))
		return 2;
	*ret_kernel = neb_mapper_kernel_faults(mapper);
	got = write(file, neb_map_data(map), 4096);
	if (*ret_kernel ? got != 4096 : got >= 0 || errno != EFAULT)
		return 3;
	if (neb_map_prefetch(map, 8 * MIB, MIB, RIG_PATIENCE_NS))
		return 4;
	if (write(file, bytes_of(map) + 8 * MIB, MIB) != (ssize_t)MIB)
		return 5;
	close(file);
	neb_mapper_close(mapper);
	return 0;
}

static int nobody_touches(const void *arg)
{
	const struct neb_options options = options_of((const struct program *)arg, NEB_HTTP);
	bool kernel = false;
	int ret;

	if (getuid() == 0 && (setgid(NOBODY) || setuid(NOBODY)))
		return 100;
	ret = kernel_touches(&options, &kernel);
	return ret;
}

static void test_system_calls(void **state)
{
	const struct neb_options options = options_of(*state, NEB_STRICT);
	bool kernel = false;

	assert_int_equal(kernel_touches(&options, &kernel), 0);
	print_message("# the kernel's own touches are served: %s\n", kernel ? "yes" : "no");
	assert_int_equal(in_child(nobody_touches, *state), 0);
}

static char refusal[256];

static void refusal_keep(void *arg, enum neb_log_level level, const char *text)
{
	(void)arg;
	(void)level;
	snprintf(refusal, sizeof(refusal), "%s", text);
}

/* As a container's filter does it. */
static int filtered_opens(const void *arg)
{
	struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
	const struct sock_fprog filter = {.len = ARRAY_LEN(code), .filter = code};
	struct neb_options options = options_of((const struct program *)arg, NEB_HTTP);
	struct neb_mapper *mapper;
	int ret;

	options.log = refusal_keep;
	if (getuid() == 0 && (setgid(NOBODY) || setuid(NOBODY)))
		return 100;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
		return 101;
	ret = neb_mapper_open(&options, NULL, &mapper);
	if (ret != -EPERM)
		return 102;
	return strstr(refusal, "a seccomp filter refuses userfaultfd(2)") ? 0 : 103;
}

static void test_filter(void **state)
{
	assert_int_equal(in_child(filtered_opens, *state), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_in_order),
		cmocka_unit_test(test_ahead),
		cmocka_unit_test(test_out_of_order),
		cmocka_unit_test(test_one_page),
		cmocka_unit_test(test_prefetch),
		cmocka_unit_test(test_small),
		cmocka_unit_test(test_replaced),
		cmocka_unit_test_teardown(test_server_stands, server_goes_on),
		cmocka_unit_test_teardown(test_unmapped, server_goes_on),
		cmocka_unit_test(test_server_killed),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_no_etag),
		cmocka_unit_test(test_fork),
		cmocka_unit_test(test_system_calls),
		cmocka_unit_test(test_filter),
	};

	return cmocka_run_group_tests(tests, program_open, program_close);
}
