/* server/volumes.c: volumes in Ceph RADOS, as the configuration has them. */
#include "server/volumes.h"

#include "rados/rados.h"

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
