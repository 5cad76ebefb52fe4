/* A server whose nth thread cannot be made: it does not start, says so, and leaves nothing behind.
 */
#include "../unit.h"

#include "server/config.h"
#include "server/server.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define THREADS_MAX 200u

static _Atomic uint32_t made, fails_at; /* fails_at 0: none */

int __real_pthread_create(
	pthread_t *id, const pthread_attr_t *attr, void *(*main)(void *), void *arg);

int __wrap_pthread_create(
	pthread_t *id, const pthread_attr_t *attr, void *(*main)(void *), void *arg);
int __wrap_pthread_create(
	pthread_t *id, const pthread_attr_t *attr, void *(*main)(void *), void *arg)
{
	if (atomic_fetch_add(&made, 1) + 1 == atomic_load(&fails_at))
		return EAGAIN;
	return __real_pthread_create(id, attr, main, arg);
}

static void set(struct config *config, const char *key, const char *value)
{
	struct config_error error;

	assert_int_equal(config_set(config, key, value, "test", &error), 0);
}

static void config_fill(struct config *config, const char *dir)
{
	config_defaults(config);
	set(config, "data.dir", dir);
	set(config, "data.volume_bytes_max", "64MiB");
	set(config, "auth.root_user", "minioadmin");
	set(config, "auth.root_password", "minioadmin");
	set(config, "http.address", "127.0.0.1:0");
	set(config, "https.address", "");
	set(config, "admin.address", "127.0.0.1:0");
	set(config, "console.address", "127.0.0.1:0");
	set(config, "rdma.enabled", "true");
	set(config, "rdma.device_name", "simulated");
	set(config, "rdma.address", "127.0.0.1");
	set(config, "rdma.discovery", "false");
	set(config, "rdma.port", "0");
	set(config, "memory.bytes", "32MiB");
	set(config, "memory.huge_pages", "false");
	set(config, "memory.cache_bytes", "4MiB");
	set(config, "memory.index_cache_bytes", "8MiB");
	set(config, "cpu.reactors", "3");
	set(config, "cpu.pin", "false");
}

static int serve_once(const char *dir)
{
	static struct config config;
	struct server *server;
	int ret;

	config_fill(&config, dir);
	ret = server_open(&config, &server);
	if (ret)
		return ret;
	ret = server_start(server);
	server_stop(server);
	server_close(server);
	return ret;
}

static uint32_t count(const char *dir)
{
	DIR *entries = opendir(dir);
	uint32_t found = 0;

	assert_non_null(entries);
	while (readdir(entries))
		found++;
	closedir(entries);
	return found;
}

static void test_a_thread_that_cannot_be_made(void **state)
{
	char dir[] = "nebulaio-server-XXXXXX", command[64];
	uint32_t files, needed, refused = 0;

	(void)state;
	assert_non_null(mkdtemp(dir));
	assert_int_equal(serve_once(dir), 0);
	needed = atomic_load(&made);
	files = count("/proc/self/fd");
	for (uint32_t n = 1; n <= needed && n < THREADS_MAX; n++) {
		atomic_store(&made, 0);
		atomic_store(&fails_at, n);
		refused += serve_once(dir) != 0;
		assert_int_equal(count("/proc/self/fd"), files);
	}
	atomic_store(&fails_at, 0);
	assert_int_equal(serve_once(dir), 0);
	print_message("%u threads; without one, %u starts were refused\n", needed, refused);
	assert_true(refused >= 3);
	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	assert_int_equal(system(command), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_thread_that_cannot_be_made),
	};

	return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
