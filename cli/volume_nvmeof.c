/* cli/volume_nvmeof.c: `nebulaio volume serve --nvmeof`: exports files and block devices through
 * the kernel's target of NVMe over Fabrics. This process locks the volumes, tells the kernel what
 * to export, and ends the exports when it ends; the data does not pass through it. */
#include "volume.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "nvmeof/nvmeof.h"

#define LOCK_WAIT_NS (10 * NS_PER_S)
#define UUID_NQN     "nqn.2014-08.org.nvmexpress:uuid:"

_Static_assert(VOLUMES_MAX <= NVMEOF_EXPORTS_MAX, "a target exports as many");

struct volume_nvmeof {
	char address[64];
	const char *nqn;
	bool show, clear;
	struct disk_opts disk;
	struct volume_host host;
	struct nvmeof_target_opts opts;
	const char *hosts[NVMEOF_HOSTS_MAX];
	struct nvmeof_export exports[VOLUMES_MAX];
	struct nvmeof_target *target;
};

enum {
	OPT_NVMEOF = 1,
	OPT_LISTEN,
	OPT_TRANSPORT,
	OPT_ALLOW_HOST,
	OPT_ALLOW_ANY,
	OPT_NQN,
	OPT_BYTES,
	OPT_SHOW,
	OPT_CLEAR,
	OPT_LOG
};
static const struct option OPTIONS[] = {
	{"nvmeof", no_argument, NULL, OPT_NVMEOF},
	{"listen", required_argument, NULL, OPT_LISTEN},
	{"transport", required_argument, NULL, OPT_TRANSPORT},
	{"allow-host", required_argument, NULL, OPT_ALLOW_HOST},
	{"allow-any", no_argument, NULL, OPT_ALLOW_ANY},
	{"nqn", required_argument, NULL, OPT_NQN},
	{"bytes", required_argument, NULL, OPT_BYTES},
	{"show", no_argument, NULL, OPT_SHOW},
	{"clear", no_argument, NULL, OPT_CLEAR},
	{"log-level", required_argument, NULL, OPT_LOG},
	{0},
};

/* The kernel takes numeric addresses only. */
static int listen_take(struct volume_nvmeof *nvmeof, const char *text)
{
	const char *colon = strrchr(text, ':');
	struct slice host = slice_of(text, colon ? (size_t)(colon - text) : 0);
	unsigned char binary[sizeof(struct in6_addr)];
	uint64_t port;

	if (slice_starts(host, SLICE("[")) && slice_ends(host, SLICE("]")))
		host = slice_of(host.data + 1, host.len - 2);
	if (!colon || slice_to_u64(slice_str(colon + 1), &port) || !port || port > 65535 ||
		slice_copy_str(host, nvmeof->address, sizeof(nvmeof->address)) ||
		(inet_pton(AF_INET, nvmeof->address, binary) != 1 &&
			inet_pton(AF_INET6, nvmeof->address, binary) != 1))
		return cli_usage_error(nvmeof->host.command,
			"--listen: '%s' is not ADDR:PORT with a numeric ADDR", text);
	nvmeof->opts.port = (uint16_t)port;
	return 0;
}

static int host_take(struct volume_nvmeof *nvmeof, const char *nqn)
{
	if (!nvmeof_nqn_valid(slice_str(nqn)))
		return cli_usage_error(nvmeof->host.command,
			"--allow-host: '%s' is no NQN; /etc/nvme/hostnqn of the other host has "
			"its, and `nebulaio doctor` there prints it",
			nqn);
	if (nvmeof->opts.host_count == NVMEOF_HOSTS_MAX)
		return cli_usage_error(
			nvmeof->host.command, "more than %u --allow-host", NVMEOF_HOSTS_MAX);
	nvmeof->hosts[nvmeof->opts.host_count++] = nqn;
	return 0;
}

static int option_take(struct volume_nvmeof *nvmeof, int option, const char *value)
{
	switch (option) {
	case OPT_NVMEOF:
		return 0;
	case OPT_LISTEN:
		return listen_take(nvmeof, value);
	case OPT_TRANSPORT:
		return nvmeof_transport_parse(slice_str(value), &nvmeof->opts.transport)
			       ? cli_usage_error(nvmeof->host.command,
					 "--transport: '%s' is neither rdma nor tcp", value)
			       : 0;
	case OPT_ALLOW_HOST:
		return host_take(nvmeof, value);
	case OPT_ALLOW_ANY:
		nvmeof->opts.allow_any = true;
		return 0;
	case OPT_NQN:
		nvmeof->nqn = value;
		return nvmeof_nqn_valid(slice_str(value)) ? 0
							  : cli_usage_error(nvmeof->host.command,
								    "--nqn: '%s' is no NQN", value);
	case OPT_BYTES:
		return volume_bytes_take(&nvmeof->host, value, &nvmeof->disk);
	case OPT_SHOW:
		nvmeof->show = true;
		return 0;
	case OPT_CLEAR:
		nvmeof->clear = true;
		return 0;
	default:
		return volume_log_take(&nvmeof->host, value);
	}
}

/* The names of hosts are the only thing that the kernel's target asks for. */
static int rights_check(const struct volume_nvmeof *nvmeof)
{
	if (!nvmeof->opts.host_count && !nvmeof->opts.allow_any)
		return cli_usage_error(nvmeof->host.command,
			"--allow-host NQN is needed, for each host that may read and write the "
			"volumes; --allow-any lets every host that reaches the address");
	if (nvmeof->opts.host_count && nvmeof->opts.allow_any)
		return cli_usage_error(
			nvmeof->host.command, "--allow-host and --allow-any exclude each other");
	return 0;
}

/* The NQN of a volume: the same at each start on this machine, and another one elsewhere. */
static int nqn_make(struct volume_nvmeof *nvmeof, const char *name, char ret_nqn[NVMEOF_NQN_BYTES])
{
	char machine[64], uuid[NVMEOF_ID_BYTES];

	if (nvmeof->nqn) {
		snprintf(ret_nqn, NVMEOF_NQN_BYTES, "%s", nvmeof->nqn);
		return 0;
	}
	if (!file_line("/etc/machine-id", machine, sizeof(machine)))
		return cli_usage_error(nvmeof->host.command,
			"this machine has no /etc/machine-id to make an NQN from: give --nqn");
	nvmeof_uuid_of(slice_str(machine), slice_str(name), uuid);
	snprintf(ret_nqn, NVMEOF_NQN_BYTES, UUID_NQN "%s", uuid);
	return 0;
}

/* Checks the pair, without opening the volume. */
static int export_take(struct volume_nvmeof *nvmeof, const char *pair, uint32_t at)
{
	struct nvmeof_export *export = &nvmeof->exports[at % VOLUMES_MAX];
	const char *path = strchr(pair, '=');
	char name[VOLUME_NAME_LEN_MAX + 1];
	enum disk_kind kind;

	if (at == VOLUMES_MAX)
		return cli_usage_error(nvmeof->host.command, "more than %u volumes", VOLUMES_MAX);
	if (!path || !path[1] || path == pair ||
		slice_copy_str(slice_of(pair, (size_t)(path - pair)), name, sizeof(name)))
		return cli_usage_error(nvmeof->host.command, "'%s' is not NAME=PATH", pair);
	path++;
	if (strstr(path, "://"))
		return cli_usage_error(nvmeof->host.command,
			"%s: the kernel exports files and block devices of this host only; "
			"`nebulaio volume nbd` and nbd-client make a block device of it",
			path);
	if (!disk_kind_of(path, &kind) && kind == DISK_NVME)
		return cli_usage_error(nvmeof->host.command,
			"%s: the kernel exports the block device of the name space, /dev/nvmeXnY",
			path);
	if (!realpath(path, export->device) &&
		(errno != ENOENT || !nvmeof->disk.create ||
			slice_copy_str(slice_str(path), export->device, sizeof(export->device)))) {
		fprintf(stderr, "nebulaio volume: %s: %s%s\n", path, strerror(errno),
			errno == ENOENT ? "; --bytes SIZE makes a file" : "");
		return CLI_FAILED;
	}
	return nqn_make(nvmeof, name, export->nqn);
}

/* Locks the volume, and makes a file; the kernel needs its absolute name. */
static int export_open(struct volume_nvmeof *nvmeof, const char *pair, uint32_t at)
{
	int ret = volume_take(&nvmeof->host, pair, &nvmeof->disk);

	if (!ret && !realpath(strchr(pair, '=') + 1, nvmeof->exports[at].device)) {
		fprintf(stderr, "nebulaio volume: %s: %s\n", pair, strerror(errno));
		ret = CLI_FAILED;
	}
	return ret;
}

static int command_line(struct volume_nvmeof *nvmeof, int argc, char **argv)
{
	int option, ret = 0;

	optind = 1;
	opterr = 0;
	while (!ret && (option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1) {
		if (option == '?')
			return cli_usage_error(nvmeof->host.command,
				"'%s' is not an option of volume serve --nvmeof, or its value is "
				"missing",
				argv[optind - 1]);
		ret = option_take(nvmeof, option, optarg);
	}
	if (ret || nvmeof->clear)
		return ret ? ret
		       : optind < argc
			       ? cli_usage_error(nvmeof->host.command, "--clear takes no volumes")
			       : 0;
	ret = rights_check(nvmeof);
	if (!ret && optind == argc)
		ret = cli_usage_error(nvmeof->host.command, "expected NAME=PATH");
	if (!ret && nvmeof->nqn && optind + 1 < argc)
		ret = cli_usage_error(nvmeof->host.command, "--nqn is for one volume");
	for (uint32_t at = 0; !ret && optind + (int)at < argc; at++) {
		ret = export_take(nvmeof, argv[optind + (int)at], at);
		if (!ret && !nvmeof->show)
			ret = export_open(nvmeof, argv[optind + (int)at], at);
		nvmeof->opts.export_count = at + 1;
	}
	return ret;
}

static int show(const struct volume_nvmeof *nvmeof)
{
	struct buf out;
	int ret;

	buf_init(&out, 4 * MIB);
	ret = nvmeof_target_show(&nvmeof->opts, &out);
	if (!ret)
		fwrite(out.data, 1, out.len, stdout);
	buf_free(&out);
	return ret ? CLI_FAILED : CLI_OK;
}

static int clear(void)
{
	int count = nvmeof_target_clear(NULL);

	if (count < 0)
		return CLI_FAILED;
	printf("removed %d exports that killed processes had left\n", count);
	return CLI_OK;
}

static int until_signal(struct volume_nvmeof *nvmeof)
{
	sigset_t signals;
	int number;

	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	if (nvmeof_target_open(&nvmeof->opts, &nvmeof->target))
		return CLI_FAILED;
	for (uint32_t i = 0; i < nvmeof->opts.export_count; i++)
		printf("%s nqn=%s\n", nvmeof->host.names[i], nvmeof->exports[i].nqn);
	printf("ready nvmeof=%s:%u transport=%s count=%u\n", nvmeof->address, nvmeof->opts.port,
		nvmeof_transport_name(nvmeof->opts.transport), nvmeof->opts.export_count);
	fflush(stdout);
	while (sigwait(&signals, &number))
		;
	log_info("export", "SIG%s: ending the exports", sigabbrev_np(number));
	return CLI_OK;
}

/* Each file must have bytes: the kernel exports its size of now. */
static int sizes_check(const struct volume_nvmeof *nvmeof)
{
	for (uint32_t i = 0; i < nvmeof->host.count; i++)
		if (!disk_bytes(nvmeof->host.disks[i])) {
			fprintf(stderr,
				"nebulaio volume: %s has no bytes: --bytes SIZE makes or grows "
				"files\n",
				nvmeof->exports[i].device);
			return CLI_FAILED;
		}
	return CLI_OK;
}

int volume_nvmeof_run(const struct cli_command *command, int argc, char **argv)
{
	static struct volume_nvmeof nvmeof = {.address = "0.0.0.0",
		.disk = {.step_bytes = FRAME_BYTES, .lock_wait_ns = LOCK_WAIT_NS},
		.opts = {.port = NVMEOF_PORT,
			.address = nvmeof.address,
			.hosts = nvmeof.hosts,
			.exports = nvmeof.exports}};
	int ret;

	nvmeof.host.command = command;
	ret = command_line(&nvmeof, argc, argv);

	if (!ret && nvmeof.clear)
		ret = clear();
	else if (!ret && nvmeof.show)
		ret = show(&nvmeof);
	else if (!ret)
		ret = sizes_check(&nvmeof);
	if (!ret && !nvmeof.clear && !nvmeof.show)
		ret = until_signal(&nvmeof);
	nvmeof_target_close(nvmeof.target);
	volume_host_close(&nvmeof.host);
	return ret;
}
