/* server/names.c: asks the cluster's map for the names of buckets. */
#include "server/names.h"

#include <errno.h>
#include <stdlib.h>

#include "cluster/cluster.h"
#include "server/accounts.h"
#include "server/room.h"
#include "server/tenure.h"
#include "server/volumes.h"
#include "store/local.h"

struct names {
	struct cluster *cluster;
	struct accounts *accounts;
	struct tenure *tenure;
	struct room *room;
	uint64_t limit_bytes;
	uint32_t store;
	struct store *held;
	char volume[64];
	struct s3_names calls;
};

static int account_changed(void *arg, const char *number)
{
	struct names *names = arg;

	return accounts_changed(names->accounts, number);
}

static int claim(void *arg, const char *bucket)
{
	struct names *names = arg;

	return cluster_bucket_claim(names->cluster, bucket, names->store);
}

static int release(void *arg, const char *bucket)
{
	struct names *names = arg;

	/* A bucket whose making or deletion was cut off may be there at the next start. */
	if (store_cut_off(names->held))
		return -EROFS;
	return cluster_bucket_release(names->cluster, bucket, names->store);
}

int names_open(const struct config *config, struct rv **ret_rados, struct names **ret_names)
{
	struct cluster_opts opts = {.pool = config->cluster.pool, .name = config->cluster.name};
	struct names *names;
	int ret = volumes_rados_open(config, ret_rados);

	*ret_names = NULL;
	if (ret || !config->cluster.store)
		return ret;
	opts.rv = *ret_rados;
	names = calloc(1, sizeof(*names));
	if (!names)
		return -ENOMEM;
	names->store = (uint32_t)config->cluster.store - 1;
	names->limit_bytes = config->data.volume_bytes_max;
	names->calls = (struct s3_names){.claim = claim,
		.release = release,
		.follows = names->store != 0,
		.account_changed = names->store ? NULL : account_changed,
		.arg = names};
	cluster_volume_name(config->cluster.name, names->store, names->volume);
	ret = accounts_open(names->store != 0, (uint32_t)config->storage.rados.lease_s, &opts,
		&names->accounts);
	if (!ret)
		ret = cluster_open(&opts, &names->cluster);
	if (!ret)
		ret = tenure_begin(names->cluster, names->store, config->cluster.gateway,
			TENURE_END_MS, &names->tenure);
	if (ret) {
		names_close(names, NULL);
		return ret;
	}
	*ret_names = names;
	return 0;
}

int names_start(struct names *names, struct s3 *s3, struct store *store)
{
	struct room_opts room = {.store = store};
	int ret;

	if (!names)
		return 0;
	names->held = store;
	room.cluster = names->cluster;
	room.number = names->store;
	room.limit_bytes = names->limit_bytes;
	ret = accounts_start(names->accounts, names->cluster, s3);
	return ret ? ret : room_begin(&room, &names->room);
}

void names_stop(struct names *names)
{
	if (!names)
		return;
	room_end(names->room);
	names->room = NULL;
	accounts_stop(names->accounts);
}

void names_close(struct names *names, struct rv *rados)
{
	if (names) {
		accounts_stop(names->accounts);
		tenure_end(names->tenure);
		cluster_close(names->cluster);
		accounts_close(names->accounts);
	}
	free(names);
	rv_close(rados);
}

const struct s3_names *names_of(const struct names *names)
{
	return names ? &names->calls : NULL;
}

const uint8_t *names_secret(const struct names *names)
{
	return names ? cluster_secret(names->cluster) : NULL;
}

const char *names_store(const struct names *names)
{
	return names ? names->volume : NULL;
}

bool names_lost(const struct names *names)
{
	return names && tenure_lost(names->tenure);
}
