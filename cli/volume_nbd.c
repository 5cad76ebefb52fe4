/* cli/volume_nbd.c: `nebulaio volume nbd`: exports volumes as network block devices. */
#include "volume.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "nbd/nbd.h"
#include "remote/remote.h"

#define LOCK_WAIT_NS   (10 * NS_PER_S)
#define ADDRESS_PRESET NBD_UNIX_SCHEME "/run/nebulaio-nbd.sock"

_Static_assert(VOLUMES_MAX <= NBD_EXPORTS_MAX, "a server exports as many");
_Static_assert(VOLUME_NAME_LEN_MAX <= NBD_NAME_LEN_MAX, "names fit");
_Static_assert(VOLUME_MEMORY_MIN >= NBD_MEMORY_BYTES_MIN, "the memory suffices");

struct volume_nbd {
	const char *address, *device, *secret_file;
	struct net_tls_opts tls_opts;
	struct disk_opts disk;
	bool anyone;
	struct volume_host host;
	struct nbd_export exports[VOLUMES_MAX];
	struct remote *remote;
	struct net_tls *tls;
	struct nbd *nbd;
};

enum {
	OPT_LISTEN = 1,
	OPT_CERTIFICATE,
	OPT_KEY,
	OPT_CLIENT_CA,
	OPT_ANYONE,
	OPT_BYTES,
	OPT_READ_ONLY,
	OPT_TRIM,
	OPT_SECRET,
	OPT_DEVICE,
	OPT_MEMORY,
	OPT_LOG
};
static const struct option OPTIONS[] = {
	{"listen", required_argument, NULL, OPT_LISTEN},
	{"tls-certificate", required_argument, NULL, OPT_CERTIFICATE},
	{"tls-key", required_argument, NULL, OPT_KEY},
	{"tls-client-ca", required_argument, NULL, OPT_CLIENT_CA},
	{"anyone", no_argument, NULL, OPT_ANYONE},
	{"bytes", required_argument, NULL, OPT_BYTES},
	{"read-only", no_argument, NULL, OPT_READ_ONLY},
	{"trim", no_argument, NULL, OPT_TRIM},
	{"secret-file", required_argument, NULL, OPT_SECRET},
	{"device", required_argument, NULL, OPT_DEVICE},
	{"memory", required_argument, NULL, OPT_MEMORY},
	{"log-level", required_argument, NULL, OPT_LOG},
	{0},
};

static int option_take(struct volume_nbd *nbd, int option, const char *value)
{
	switch (option) {
	case OPT_LISTEN:
		nbd->address = value;
		return 0;
	case OPT_CERTIFICATE:
		nbd->tls_opts.certificate = value;
		return 0;
	case OPT_KEY:
		nbd->tls_opts.key = value;
		return 0;
	case OPT_CLIENT_CA:
		nbd->tls_opts.client_ca = value;
		return 0;
	case OPT_ANYONE:
		nbd->anyone = true;
		return 0;
	case OPT_BYTES:
		return volume_bytes_take(&nbd->host, value, &nbd->disk);
	case OPT_READ_ONLY:
		nbd->disk.read_only = true;
		return 0;
	case OPT_TRIM:
		nbd->disk.discard_files = true;
		return 0;
	case OPT_SECRET:
		nbd->secret_file = value;
		return 0;
	case OPT_DEVICE:
		nbd->device = value;
		return 0;
	case OPT_MEMORY:
		return volume_memory_take(&nbd->host, value);
	default:
		return volume_log_take(&nbd->host, value);
	}
}

/* Every process that reaches an address can connect, also on loopback: only certificates
 * distinguish clients. */
static int safety_check(const struct volume_nbd *nbd)
{
	const struct net_tls_opts *tls = &nbd->tls_opts;
	bool local = strncmp(nbd->address, NBD_UNIX_SCHEME, strlen(NBD_UNIX_SCHEME)) == 0;

	if (!tls->certificate != !tls->key)
		return cli_usage_error(
			nbd->host.command, "--tls-certificate and --tls-key belong together");
	if (tls->client_ca && !tls->certificate)
		return cli_usage_error(
			nbd->host.command, "--tls-client-ca needs --tls-certificate");
	if (!local && !tls->client_ca && !nbd->anyone)
		return cli_usage_error(nbd->host.command,
			"%s is open to everybody who reaches it: give --tls-certificate, --tls-key "
			"and --tls-client-ca, or a socket (--listen unix:PATH), or --anyone",
			nbd->address);
	if (nbd->disk.read_only && nbd->disk.create)
		return cli_usage_error(
			nbd->host.command, "--bytes and --read-only exclude each other");
	return 0;
}

/* Volumes of other hosts are opened by their own driver. */
static int remote_begin(struct volume_nbd *nbd, char **pairs, int count)
{
	const char *far = NULL;

	for (int i = 0; i < count && !far; i++)
		far = strstr(pairs[i], "=" REMOTE_SCHEME);
	if (!far)
		return CLI_OK;
	if (!nbd->secret_file)
		return cli_usage_error(nbd->host.command,
			"%s needs --secret-file, the secret of its host", far + 1);
	return volume_remote_open(nbd->secret_file, nbd->device, &nbd->remote) ? CLI_FAILED
									       : CLI_OK;
}

static int command_line(struct volume_nbd *nbd, int argc, char **argv)
{
	int option, ret = 0;

	optind = 1;
	opterr = 0;
	while (!ret && (option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1) {
		if (option == '?')
			return cli_usage_error(nbd->host.command,
				"'%s' is not an option, or its value is missing", argv[optind - 1]);
		ret = option_take(nbd, option, optarg);
	}
	if (!ret)
		ret = safety_check(nbd);
	if (!ret && optind == argc)
		return cli_usage_error(nbd->host.command, "expected NAME=PATH");
	if (!ret)
		ret = remote_begin(nbd, argv + optind, argc - optind);
	for (; !ret && optind < argc; optind++)
		ret = volume_take(&nbd->host, argv[optind], &nbd->disk);
	return ret;
}

static int export_all(struct volume_nbd *nbd)
{
	struct volume_host *host = &nbd->host;
	struct nbd_opts opts = {.exports = nbd->exports, .export_count = host->count};
	int ret = nbd->tls_opts.certificate ? net_tls_open(&nbd->tls_opts, &nbd->tls) : 0;

	if (!ret)
		ret = volume_host_open(host);
	if (ret)
		return ret;
	for (uint32_t i = 0; i < host->count; i++) {
		if (!disk_bytes(host->disks[i])) {
			log_error("nbd", "%s has no bytes: --bytes makes or grows files",
				host->names[i]);
			return -ENOSPC;
		}
		nbd->exports[i] =
			(struct nbd_export){host->names[i], host->disks[i], nbd->disk.read_only};
	}
	opts.reactor = host->reactor;
	opts.region = host->region;
	opts.tls = nbd->tls;
	ret = nbd_open(&opts, nbd->address, &nbd->nbd);
	if (ret)
		log_error("nbd", "%s: cannot listen: %s%s", nbd->address, strerror(-ret),
			ret == -EADDRINUSE ? " (another program serves it; choose another --listen)"
					   : "");
	return ret;
}

static void drain(void *arg)
{
	nbd_drain(((struct volume_nbd *)arg)->nbd);
}

static int serve_until_signal(struct volume_nbd *nbd)
{
	char ready[512];

	snprintf(ready, sizeof(ready), "ready nbd=%s port=%u count=%u", nbd->address,
		nbd_port(nbd->nbd), nbd->host.count);
	return volume_host_run(&nbd->host, ready);
}

int volume_nbd_run(const struct cli_command *command, int argc, char **argv)
{
	static struct volume_nbd nbd = {.address = ADDRESS_PRESET,
		.disk = {.step_bytes = FRAME_BYTES, .lock_wait_ns = LOCK_WAIT_NS},
		.host = {.memory_bytes = VOLUME_MEMORY_PRESET,
			.fibers_max = NBD_CONNECTIONS_MAX * (NBD_REQUESTS_MAX + 1) + 16,
			.drain = drain,
			.arg = &nbd}};
	int ret;

	nbd.host.command = command;
	ret = command_line(&nbd, argc, argv);

	if (!ret)
		ret = export_all(&nbd) ? CLI_FAILED : serve_until_signal(&nbd);
	nbd_close(nbd.nbd);
	volume_host_close(&nbd.host);
	remote_initiator_close(nbd.remote);
	net_tls_close(nbd.tls);
	return ret;
}
