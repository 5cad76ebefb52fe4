/* cli/volume_serve.c: `nebulaio volume serve`: exports files and devices of this host, so that a
 * server on another one has them as volumes, over RDMA. */
#include "volume.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "codec/hash.h"
#include "remote/remote.h"

#define LOCK_WAIT_NS	 (10 * NS_PER_S)
#define EPOCH_PATH_BYTES 4200u
#define RESERVE_MIB_MAX	 (1024 * 1024ull)
#define RESERVE_PRESET	 (256 * MIB) /* as data.reserve_bytes */

_Static_assert(VOLUMES_MAX <= REMOTE_VOLUMES_MAX, "a target exports as many");

struct volume_serve {
	char address[256];
	uint16_t port;
	uint64_t reserve_bytes;
	const char *device, *secret_file, *state;
	char epoch_paths[VOLUMES_MAX][EPOCH_PATH_BYTES];
	struct volume_host host;
	struct remote_export exports[VOLUMES_MAX];
	struct remote_target *target;
};

enum { OPT_SECRET = 1, OPT_LISTEN, OPT_DEVICE, OPT_MEMORY, OPT_STATE, OPT_RESERVE, OPT_LOG };
static const struct option OPTIONS[] = {
	{"secret-file", required_argument, NULL, OPT_SECRET},
	{"listen", required_argument, NULL, OPT_LISTEN},
	{"device", required_argument, NULL, OPT_DEVICE},
	{"memory", required_argument, NULL, OPT_MEMORY},
	{"state", required_argument, NULL, OPT_STATE},
	{"reserve", required_argument, NULL, OPT_RESERVE},
	{"log-level", required_argument, NULL, OPT_LOG},
	{0},
};

static int listen_parse(struct volume_serve *serve, const char *text)
{
	const char *colon = strrchr(text, ':');
	struct slice host = slice_of(text, colon ? (size_t)(colon - text) : 0);
	uint64_t port;

	/* An address of IPv6 has colons, so it is written in brackets. */
	if (slice_starts(host, SLICE("[")) && slice_ends(host, SLICE("]")))
		host = slice_of(host.data + 1, host.len - 2);
	if (!colon || slice_to_u64(slice_str(colon + 1), &port) || port > 65535 ||
		slice_copy_str(host, serve->address, sizeof(serve->address)))
		return cli_usage_error(
			serve->host.command, "--listen: '%s' is not ADDR:PORT", text);
	serve->port = (uint16_t)port;
	return 0;
}

static int reserve_parse(struct volume_serve *serve, const char *text)
{
	uint64_t mib;

	if (slice_to_u64(slice_str(text), &mib) || mib > RESERVE_MIB_MAX)
		return cli_usage_error(serve->host.command,
			"--reserve: '%s' is not a number from 0 to %llu", text,
			(unsigned long long)RESERVE_MIB_MAX);
	serve->reserve_bytes = mib * MIB;
	return 0;
}

static int option_take(struct volume_serve *serve, int option, const char *value)
{
	switch (option) {
	case OPT_SECRET:
		serve->secret_file = value;
		return 0;
	case OPT_LISTEN:
		return listen_parse(serve, value);
	case OPT_DEVICE:
		serve->device = value;
		return 0;
	case OPT_STATE:
		serve->state = value;
		return 0;
	case OPT_RESERVE:
		return reserve_parse(serve, value);
	case OPT_MEMORY:
		return volume_memory_take(&serve->host, value);
	default:
		return volume_log_take(&serve->host, value);
	}
}

static int command_line(struct volume_serve *serve, int argc, char **argv)
{
	const struct disk_opts disk = {.create = true, .lock_wait_ns = LOCK_WAIT_NS};
	int option, ret = 0;

	optind = 1;
	opterr = 0;
	while (!ret && (option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1) {
		if (option == '?')
			return cli_usage_error(serve->host.command,
				"'%s' is not an option, or its value is missing", argv[optind - 1]);
		ret = option_take(serve, option, optarg);
	}
	if (!ret && !serve->secret_file)
		return cli_usage_error(serve->host.command,
			"--secret-file is needed: only a server with this secret can read and "
			"write the volumes");
	if (!ret && optind == argc)
		return cli_usage_error(serve->host.command, "expected NAME=PATH");
	for (; !ret && optind < argc; optind++)
		ret = volume_take(&serve->host, argv[optind], &disk);
	return ret;
}

/* Where the epoch of a volume's owner is stored: in --state's directory, else beside its file. */
static int epoch_path(struct volume_serve *serve, uint32_t i, const char **ret_path)
{
	const struct volume_host *host = &serve->host;
	char *path = serve->epoch_paths[i];
	int len = -1;

	*ret_path = NULL;
	if (serve->state)
		len = snprintf(path, EPOCH_PATH_BYTES, "%s/%s.epoch", serve->state, host->names[i]);
	else if (disk_kind(host->disks[i]) == DISK_FILE)
		len = snprintf(path, EPOCH_PATH_BYTES, "%s.epoch", host->paths[i]);
	else
		return 0;
	if (len >= (int)EPOCH_PATH_BYTES) {
		fprintf(stderr, "nebulaio volume: the path of %s's epoch is too long\n",
			host->names[i]);
		return -ENAMETOOLONG;
	}
	*ret_path = path;
	return 0;
}

/* Nobody reaches the volumes any more; a supervisor starts this process again. */
static void device_failed(void *arg)
{
	struct volume_serve *serve = arg;

	log_error("export", "%s failed: this process ends", serve->device);
	volume_host_fail(&serve->host);
}

static int target_open(struct volume_serve *serve)
{
	struct volume_host *host = &serve->host;
	char secret[REMOTE_SECRET_BYTES];
	struct remote_target_opts opts = {
		.device = {.device_name = serve->device, .gid_index = -1},
		.secret = secret,
		.address = serve->address,
		.port = serve->port,
		.exports = serve->exports,
		.export_count = host->count,
		.reserve_bytes = serve->reserve_bytes,
		.failed = device_failed,
		.failed_arg = serve,
	};
	int ret = remote_secret_read(serve->secret_file, secret);

	if (!ret)
		ret = volume_host_open(host);
	for (uint32_t i = 0; i < host->count && !ret; i++) {
		serve->exports[i] =
			(struct remote_export){.name = host->names[i], .disk = host->disks[i]};
		ret = epoch_path(serve, i, &serve->exports[i].epoch_path);
	}
	opts.reactor = host->reactor;
	opts.region = host->region;
	if (!ret)
		ret = remote_target_open(&opts, &serve->target);
	secret_wipe(secret, sizeof(secret));
	return ret;
}

static void drain(void *arg)
{
	remote_target_drain(((struct volume_serve *)arg)->target);
}

static int serve_until_signal(struct volume_serve *serve)
{
	const char *format = strchr(serve->address, ':') ? "[%s]:%u" : "%s:%u";
	char place[sizeof(serve->address) + 16], ready[512];

	snprintf(place, sizeof(place), format, serve->address, remote_target_port(serve->target));
	snprintf(ready, sizeof(ready), "ready volumes=%s device=%s count=%u", place,
		remote_target_device(serve->target)->name, serve->host.count);
	return volume_host_run(&serve->host, ready);
}

int volume_serve_run(const struct cli_command *command, int argc, char **argv)
{
	static struct volume_serve serve = {.address = "0.0.0.0",
		.port = REMOTE_PORT,
		.reserve_bytes = RESERVE_PRESET,
		.host = {.memory_bytes = VOLUME_MEMORY_PRESET, .drain = drain, .arg = &serve}};
	char device[64];
	int ret;

	serve.host.command = command;
	ret = command_line(&serve, argc, argv);

	if (!ret)
		ret = cli_device_find(serve.device, serve.address, 0, true, device);
	serve.device = device;
	if (!ret)
		ret = target_open(&serve) ? CLI_FAILED : serve_until_signal(&serve);
	remote_target_close(serve.target);
	volume_host_close(&serve.host);
	return ret;
}
