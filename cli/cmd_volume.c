/* cli/cmd_volume.c: `nebulaio volume serve`: exports files and devices of this host, so that a
 * server on another one has them as volumes, over RDMA. */
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "codec/hash.h"
#include "disk/disk.h"
#include "remote/remote.h"

#define MEMORY_BYTES_MIN (16 * MIB)
#define MEMORY_MIB_MAX	 (1024 * 1024ull)
#define LOCK_WAIT_NS	 (10 * NS_PER_S)

static const char USAGE[] =
	"usage: nebulaio volume serve --secret-file FILE [OPTIONS] NAME=PATH...\n"
	"\n"
	"Exports volumes. Each PATH is a file (made when absent), a block device or an NVMe\n"
	"passthrough device. One server at a time uses it under its NAME; that server's\n"
	"storage.volumes has rdma://HOST:PORT/NAME. Runs until SIGTERM or SIGINT. Prints one\n"
	"line that begins with \"ready\" when it accepts work.\n"
	"\n"
	"  --secret-file FILE   file with a secret of 16 to 256 characters; the server has the\n"
	"                       same one (storage.remote.secret_file)\n"
	"  --listen ADDR:PORT   address to listen on (default 0.0.0.0:9110); port 0: any free\n"
	"  --device NAME        RDMA device (default auto: the card that has the address, else\n"
	"                       simulated)\n"
	"  --memory MIB         memory for data in transit (default 64)\n"
	"  --log-level LEVEL    trace, debug, info, warn or error\n";

struct volume_serve {
	char address[256];
	uint16_t port;
	const char *device, *secret_file;
	uint64_t memory_bytes;
	struct remote_export exports[REMOTE_VOLUMES_MAX];
	char names[REMOTE_VOLUMES_MAX][64];
	uint32_t count;
	struct region *region;
	struct reactor *reactor;
	struct remote_target *target;
	struct reactor_msg end;
};

/* ---- The command line. ---- */

enum { OPT_SECRET = 1, OPT_LISTEN, OPT_DEVICE, OPT_MEMORY, OPT_LOG };
static const struct option OPTIONS[] = {
	{"secret-file", required_argument, NULL, OPT_SECRET},
	{"listen", required_argument, NULL, OPT_LISTEN},
	{"device", required_argument, NULL, OPT_DEVICE},
	{"memory", required_argument, NULL, OPT_MEMORY},
	{"log-level", required_argument, NULL, OPT_LOG},
	{0},
};

static int listen_parse(struct volume_serve *serve, const char *text)
{
	const char *colon = strrchr(text, ':');
	uint64_t port;

	if (!colon || slice_to_u64(slice_str(colon + 1), &port) || port > 65535 ||
		slice_copy_str(slice_of(text, (size_t)(colon - text)), serve->address,
			sizeof(serve->address)))
		return cli_usage_error(&CLI_VOLUME, "--listen: '%s' is not ADDR:PORT", text);
	serve->port = (uint16_t)port;
	return 0;
}

static int option_take(struct volume_serve *serve, int option, const char *value)
{
	enum log_level level;
	uint64_t mib;

	switch (option) {
	case OPT_SECRET:
		serve->secret_file = value;
		return 0;
	case OPT_LISTEN:
		return listen_parse(serve, value);
	case OPT_DEVICE:
		serve->device = value;
		return 0;
	case OPT_MEMORY:
		if (slice_to_u64(slice_str(value), &mib) || mib > MEMORY_MIB_MAX ||
			mib * MIB < MEMORY_BYTES_MIN)
			return cli_usage_error(&CLI_VOLUME,
				"--memory: '%s' is not a number from %llu to %llu", value,
				(unsigned long long)(MEMORY_BYTES_MIN / MIB),
				(unsigned long long)MEMORY_MIB_MAX);
		serve->memory_bytes = mib * MIB;
		return 0;
	default:
		if (!log_level_parse(value, &level))
			return cli_usage_error(
				&CLI_VOLUME, "--log-level: '%s' is not a level", value);
		log_set_level(level);
		return 0;
	}
}

static bool name_taken(const struct volume_serve *serve, const char *name)
{
	for (uint32_t i = 0; i < serve->count; i++)
		if (strcmp(serve->names[i], name) == 0)
			return true;
	return false;
}

/* Opens the volume of "NAME=PATH". */
static int volume_take(struct volume_serve *serve, const char *pair)
{
	const char *equals = strchr(pair, '=');
	struct disk_opts opts = {
		.path = equals ? equals + 1 : "", .create = true, .lock_wait_ns = LOCK_WAIT_NS};
	char *name = serve->names[serve->count % REMOTE_VOLUMES_MAX];
	struct disk *disk;
	int ret;

	if (serve->count == REMOTE_VOLUMES_MAX)
		return cli_usage_error(&CLI_VOLUME, "more than %u volumes", REMOTE_VOLUMES_MAX);
	if (!equals || equals == pair || !equals[1] || memchr(pair, '/', (size_t)(equals - pair)) ||
		slice_copy_str(
			slice_of(pair, (size_t)(equals - pair)), name, sizeof(serve->names[0])) ||
		name_taken(serve, name))
		return cli_usage_error(&CLI_VOLUME,
			"'%s' is not NAME=PATH; each NAME must differ and have no '/'", pair);
	ret = disk_open(&opts, &disk);
	if (ret) {
		fprintf(stderr, "nebulaio volume: %s cannot be opened: %s\n", opts.path,
			strerror(-ret));
		return CLI_FAILED;
	}
	serve->exports[serve->count++] = (struct remote_export){.name = name, .disk = disk};
	return 0;
}

static int command_line(struct volume_serve *serve, int argc, char **argv)
{
	int option, ret = 0;

	if (argc < 2 || strcmp(argv[1], "serve") != 0)
		return cli_usage_error(&CLI_VOLUME, "expected 'serve'");
	optind = 2;
	opterr = 0;
	while (!ret && (option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1) {
		if (option == '?')
			return cli_usage_error(&CLI_VOLUME,
				"'%s' is not an option, or its value is missing", argv[optind - 1]);
		ret = option_take(serve, option, optarg);
	}
	if (!ret && !serve->secret_file)
		return cli_usage_error(&CLI_VOLUME,
			"--secret-file is needed: only a server with this secret can read and "
			"write the volumes");
	if (!ret && optind == argc)
		return cli_usage_error(&CLI_VOLUME, "expected NAME=PATH");
	for (; !ret && optind < argc; optind++)
		ret = volume_take(serve, argv[optind]);
	return ret;
}

/* ---- Serving. ---- */

static int serve_open(struct volume_serve *serve)
{
	const struct region_opts region = {.name = "nebulaio-volume",
		.bytes = serve->memory_bytes,
		.core_count = 1,
		.huge_pages = true};
	const struct reactor_opts reactor = {.cpu = -1};
	char secret[REMOTE_SECRET_BYTES];
	struct remote_target_opts opts = {
		.device = {.device_name = serve->device, .gid_index = -1},
		.secret = secret,
		.address = serve->address,
		.port = serve->port,
		.exports = serve->exports,
		.export_count = serve->count,
	};
	int ret = remote_secret_read(serve->secret_file, secret);

	if (!ret)
		ret = region_open(&region, &serve->region);
	if (!ret)
		ret = reactor_open(&reactor, &serve->reactor);
	for (uint32_t i = 0; i < serve->count && !ret; i++)
		ret = disk_attach(serve->exports[i].disk, serve->reactor, serve->region);
	opts.reactor = serve->reactor;
	opts.region = serve->region;
	if (!ret)
		ret = remote_target_open(&opts, &serve->target);
	secret_wipe(secret, sizeof(secret));
	return ret;
}

static void serve_close(struct volume_serve *serve)
{
	remote_target_close(serve->target);
	for (uint32_t i = 0; i < serve->count; i++)
		disk_close(serve->exports[i].disk);
	reactor_close(serve->reactor);
	region_close(serve->region);
}

static void drain_main(void *arg)
{
	struct volume_serve *serve = arg;

	remote_target_drain(serve->target);
	reactor_stop(serve->reactor);
}

static void drain_post(struct reactor_msg *msg)
{
	struct volume_serve *serve = CONTAINER_OF(msg, struct volume_serve, end);

	if (fiber_spawn(serve->reactor, "drain", drain_main, serve))
		reactor_stop(serve->reactor);
}

static void *reactor_main(void *arg)
{
	reactor_run(((struct volume_serve *)arg)->reactor);
	return NULL;
}

static int serve_until_signal(struct volume_serve *serve)
{
	pthread_t thread;
	sigset_t signals;
	int number;

	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	if (pthread_create(&thread, NULL, reactor_main, serve))
		return CLI_FAILED;
	printf("ready volumes=%s:%u device=%s count=%u\n", serve->address,
		remote_target_port(serve->target), remote_target_device(serve->target)->name,
		serve->count);
	fflush(stdout);
	while (sigwait(&signals, &number))
		;
	log_info("export", "SIG%s: finishing running requests", sigabbrev_np(number));
	serve->end.fn = drain_post;
	reactor_post(serve->reactor, &serve->end);
	pthread_join(thread, NULL);
	return CLI_OK;
}

static int volume_run(int argc, char **argv)
{
	static struct volume_serve serve = {
		.address = "0.0.0.0", .port = REMOTE_PORT, .memory_bytes = 64 * MIB};
	char device[64];
	int ret = command_line(&serve, argc, argv);

	if (!ret)
		ret = cli_device_find(serve.device, serve.address, 0, true, device);
	serve.device = device;
	if (!ret)
		ret = serve_open(&serve) ? CLI_FAILED : serve_until_signal(&serve);
	serve_close(&serve);
	return ret;
}

const struct cli_command CLI_VOLUME = {
	.name = "volume",
	.summary = "export this host's volumes over RDMA to a server on another host",
	.usage = USAGE,
	.run = volume_run,
};
