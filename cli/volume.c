/* cli/volume.c: named volumes on one reactor, until SIGTERM or SIGINT. */
#include "volume.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "codec/hash.h"
#include "remote/remote.h"

#define MEMORY_MIB_MAX (1024 * 1024ull)

int volume_memory_take(struct volume_host *host, const char *text)
{
	uint64_t mib;

	if (slice_to_u64(slice_str(text), &mib) || mib > MEMORY_MIB_MAX ||
		mib * MIB < VOLUME_MEMORY_MIN)
		return cli_usage_error(host->command,
			"--memory: '%s' is not a number from %llu to %llu", text,
			(unsigned long long)(VOLUME_MEMORY_MIN / MIB),
			(unsigned long long)MEMORY_MIB_MAX);
	host->memory_bytes = mib * MIB;
	return CLI_OK;
}

int volume_bytes_take(struct volume_host *host, const char *text, struct disk_opts *disk)
{
	if (slice_to_u64(slice_str(text), &disk->bytes_min) || !disk->bytes_min ||
		disk->bytes_min % FRAME_BYTES)
		return cli_usage_error(
			host->command, "--bytes: '%s' is no multiple of %u", text, FRAME_BYTES);
	disk->create = true;
	return CLI_OK;
}

int volume_log_take(struct volume_host *host, const char *text)
{
	enum log_level level;

	if (!log_level_parse(text, &level))
		return cli_usage_error(host->command, "--log-level: '%s' is not a level", text);
	log_set_level(level);
	return CLI_OK;
}

static bool name_taken(const struct volume_host *host, const char *name)
{
	for (uint32_t i = 0; i < host->count; i++)
		if (strcmp(host->names[i], name) == 0)
			return true;
	return false;
}

int volume_take(struct volume_host *host, const char *pair, const struct disk_opts *opts)
{
	const char *equals = strchr(pair, '=');
	struct disk_opts disk = *opts;
	char *name = host->names[host->count % VOLUMES_MAX];
	int ret;

	if (host->count == VOLUMES_MAX)
		return cli_usage_error(host->command, "more than %u volumes", VOLUMES_MAX);
	if (!equals || equals == pair || !equals[1] || memchr(pair, '/', (size_t)(equals - pair)) ||
		slice_copy_str(
			slice_of(pair, (size_t)(equals - pair)), name, sizeof(host->names[0])) ||
		name_taken(host, name))
		return cli_usage_error(host->command,
			"'%s' is not NAME=PATH; each NAME must differ and have no '/'", pair);
	disk.path = equals + 1;
	host->paths[host->count] = disk.path;
	ret = disk_open(&disk, &host->disks[host->count]);
	if (ret) {
		fprintf(stderr, "nebulaio volume: %s cannot be opened: %s\n", disk.path,
			strerror(-ret));
		return CLI_FAILED;
	}
	host->count++;
	return CLI_OK;
}

int volume_remote_open(const char *secret_file, const char *wanted, struct remote **ret_remote)
{
	char secret[REMOTE_SECRET_BYTES], device[64];
	const struct remote_opts opts = {
		.device = {.device_name = device, .gid_index = -1}, .secret = secret};
	int ret = cli_device_find(wanted, "0.0.0.0", 0, true, device);

	if (ret)
		return -ENODEV;
	ret = remote_secret_read(secret_file, secret);
	if (!ret)
		ret = remote_initiator_open(&opts, ret_remote);
	secret_wipe(secret, sizeof(secret));
	return ret;
}

void volume_remote_close(struct remote *remote)
{
	remote_initiator_close(remote);
}

int volume_host_open(struct volume_host *host)
{
	const struct region_opts region = {.name = "nebulaio-volume",
		.bytes = host->memory_bytes,
		.core_count = 1,
		.huge_pages = true};
	const struct reactor_opts reactor = {.cpu = -1, .fibers_max = host->fibers_max};
	int ret = region_open(&region, &host->region);

	if (!ret)
		ret = reactor_open(&reactor, &host->reactor);
	for (uint32_t i = 0; i < host->count && !ret; i++)
		ret = disk_attach(host->disks[i], host->reactor, host->region);
	return ret;
}

void volume_host_close(struct volume_host *host)
{
	for (uint32_t i = 0; i < host->count; i++)
		disk_close(host->disks[i]);
	reactor_close(host->reactor);
	region_close(host->region);
}

static void drain_main(void *arg)
{
	struct volume_host *host = arg;

	host->drain(host->arg);
	reactor_stop(host->reactor);
}

static void drain_post(struct reactor_msg *msg)
{
	struct volume_host *host = CONTAINER_OF(msg, struct volume_host, end);

	if (fiber_spawn(host->reactor, "drain", drain_main, host))
		reactor_stop(host->reactor);
}

static void *reactor_main(void *arg)
{
	reactor_run(((struct volume_host *)arg)->reactor);
	return NULL;
}

int volume_host_run(struct volume_host *host, const char *ready)
{
	pthread_t thread;
	sigset_t signals;
	int number;

	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	if (pthread_create(&thread, NULL, reactor_main, host))
		return CLI_FAILED;
	puts(ready);
	fflush(stdout);
	while (sigwait(&signals, &number))
		;
	if (!atomic_load(&host->failed))
		log_info("export", "SIG%s: finishing running requests", sigabbrev_np(number));
	host->end.fn = drain_post;
	reactor_post(host->reactor, &host->end);
	pthread_join(thread, NULL);
	return atomic_load(&host->failed) ? CLI_FAILED : CLI_OK;
}

void volume_host_fail(struct volume_host *host)
{
	atomic_store(&host->failed, true);
	kill(getpid(), SIGTERM);
}
