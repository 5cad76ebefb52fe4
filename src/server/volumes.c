/* server/volumes.c: the store's volumes, also those in Ceph RADOS, as the configuration has them.
 */
#include "server/volumes.h"

#include "rados/rados.h"
#include "store/local.h"

#include <unistd.h>

/* sysexits.h's EX_TEMPFAIL: a service manager starts it again. */
#define EXIT_VOLUME_LOST 75

/* The memory of this process may be out of date from now on, so it answers nothing more: its
 * connections and its memory region end with it. */
static void volume_lost(void *arg)
{
	(void)arg;
	log_error("server", "this server ends, because another one owns its volume now");
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

void volumes_store_opts(const struct config *config, struct store_opts *ret_opts)
{
	*ret_opts = (struct store_opts){
		.dir = config->data.dir,
		.volume = config->storage.volumes[0] ? config->storage.volumes
						     : config->storage.volume,
		.erasure_data = (uint32_t)config->storage.erasure.data,
		.erasure_parity = (uint32_t)config->storage.erasure.parity,
		.format = config->storage.format,
		.protect = config->storage.protect_index ? STORE_PROTECT_ON : STORE_PROTECT_OFF,
		.discard_files = config->storage.discard.files,
		.volume_bytes_max = config->data.volume_bytes_max,
		.reserve_bytes = config->data.reserve_bytes,
		.cache_bytes_max = config_cache_bytes(config),
		.memory_buckets_bytes_max = config->memory.buckets_bytes,
		.record_table_bytes_max = config->memory.records_bytes,
		.index_cache_bytes = config->memory.index_cache_bytes,
		.inline_bytes_max = (uint32_t)config->data.inline_bytes_max,
		.log_bytes = config->data.log_bytes == CONFIG_AUTO ? 0 : config->data.log_bytes,
	};
}
