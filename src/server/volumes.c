/* server/volumes.c: the store's volumes, also those that another server may own, as the
 * configuration has them. */
#include "server/volumes.h"

#include "codec/hash.h"
#include "etcd/etcd.h"
#include "rados/rados.h"
#include "remote/remote.h"
#include "store/local.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* sysexits.h's EX_TEMPFAIL: a service manager starts it again. */
#define EXIT_VOLUME_LOST 75

/* The memory of this process may be out of date from now on, so it answers nothing more: its
 * connections and its memory region end with it. */
static void volume_lost(void *arg)
{
	(void)arg;
	log_error("server", "this server ends, because another one owns its store now");
	_exit(EXIT_VOLUME_LOST);
}

/* Volumes in RADOS. The cluster is reached only when the volume is one. */
int volumes_rados_open(const struct config *config, struct rv **ret_rados)
{
	const struct rv_opts opts = {
		.conf_file = config->storage.rados.conf_file,
		.user = config->storage.rados.user,
		.timeout_s = (uint32_t)config->storage.rados.timeout_s,
		.lease_s = (uint32_t)config->storage.rados.lease_s,
		.front_bytes =
			config->data.log_bytes == CONFIG_AUTO ? 0 : config->data.log_bytes + MIB,
		.standby = config->cluster.standby,
		.lost = volume_lost,
	};

	return rv_open(&opts, ret_rados);
}

/* The name of the store's volume, or of both parts where its log is apart; "": as the data folder
 * says. Kept until the next call. */
static const char *volume_name(const struct config *config)
{
	static char name[2 * CONFIG_LIST_MAX];
	const char *volume =
		config->storage.volumes[0] ? config->storage.volumes : config->storage.volume;
	char bodies[CONFIG_LIST_MAX], cwd[2048] = "";
	bool whole;

	if (!config->storage.log[0])
		return volume;
	if (!volume[0]) {
		snprintf(bodies, sizeof(bodies), "%s/bodies", config->data.dir);
		volume = bodies;
	}
	whole = volume[0] == '/' || strstr(volume, "://") || !getcwd(cwd, sizeof(cwd));
	snprintf(name, sizeof(name), "log://%s?bodies=%s%s%s", config->storage.log,
		whole ? "" : cwd, whole ? "" : "/", volume);
	return name;
}

void volumes_store_opts(const struct config *config, struct store_opts *ret_opts)
{
	*ret_opts = (struct store_opts){
		.dir = config->data.dir,
		.volume = volume_name(config),
		.erasure_data = (uint32_t)config->storage.erasure.data,
		.erasure_parity = (uint32_t)config->storage.erasure.parity,
		.format = config->storage.format,
		.protect = config->storage.protect_index ? STORE_PROTECT_ON : STORE_PROTECT_OFF,
		.discard_files = config->storage.discard.files,
		.move_bytes_per_s = config->storage.move.bytes_per_s,
		.volume_bytes_max = config->data.volume_bytes_max,
		.reserve_bytes = config->data.reserve_bytes,
		.cache_bytes_max = config_cache_bytes(config),
		.memory_buckets_bytes_max = config->memory.buckets_bytes,
		.record_table_bytes_max = config->memory.records_bytes,
		.index_cache_bytes = config->memory.index_cache_bytes,
		.list_table_bytes_max = config->memory.list_bytes,
		.inline_bytes_max = config->data.inline_bytes_max
					    ? (uint32_t)config->data.inline_bytes_max
					    : UINT32_MAX,
		.log_bytes = config->data.log_bytes == CONFIG_AUTO ? 0 : config->data.log_bytes,
	};
}

int volumes_own(const struct config *config, struct etcd **ret_etcd)
{
	const struct etcd_opts opts = {
		.endpoints = config->cluster.etcd,
		.prefix = config->cluster.etcd_prefix,
		.user_file = config->cluster.etcd_user_file,
		.ca_file = config->cluster.etcd_ca_file,
		.certificate = config->cluster.etcd_certificate,
		.key = config->cluster.etcd_key,
		.lease_s = (uint32_t)config->cluster.lease_s,
		.standby = config->cluster.standby,
		.lost = volume_lost,
	};

	*ret_etcd = NULL;
	return config->cluster.etcd[0] ? etcd_own(&opts, ret_etcd) : 0;
}

int volumes_remote_open(const struct config *config, struct rp_open_opts device, struct etcd *etcd,
	struct remote **ret_remote)
{
	struct remote_opts opts = {.device = device};
	char secret[REMOTE_SECRET_BYTES];
	int ret;

	*ret_remote = NULL;
	if (!config->storage.remote.secret_file[0])
		return 0;
	if (config->storage.remote.device_name[0])
		opts.device.device_name = config->storage.remote.device_name;
	ret = remote_secret_read(config->storage.remote.secret_file, secret);
	opts.secret = secret;
	if (etcd) {
		opts.epoch = etcd_epoch(etcd);
		opts.stale = etcd_look;
		opts.stale_arg = etcd;
	}
	if (!ret)
		ret = remote_initiator_open(&opts, ret_remote);
	secret_wipe(secret, sizeof(secret));
	return ret;
}
