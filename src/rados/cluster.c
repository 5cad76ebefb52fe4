/* rados/cluster.c: the connection to the cluster, its pools, and its own words. Blocks. */
#include "rados/load.h"
#include "rados/rv_priv.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* librados has limits of its own, at which it blocks the calling thread; ours (RV_PIECES,
 * RV_FLIGHT_BYTES_MAX) hold before. */
static int conf_fill(const struct rv *rv, rados_t cluster)
{
	char seconds[16];
	const char *const settings[][2] = {
		{"rados_osd_op_timeout", seconds},
		{"rados_mon_op_timeout", seconds},
		{"client_mount_timeout", seconds},
		{"objecter_inflight_ops", "0"},
		{"objecter_inflight_op_bytes", "0"},
		{"log_to_stderr", "false"},
		{"err_to_stderr", "false"},
		{"log_file", ""},
		{"admin_socket", ""},
	};
	int ret = 0;

	snprintf(seconds, sizeof(seconds), "%u", rv->opts.timeout_s);
	for (uint32_t i = 0; i < ARRAY_LEN(settings) && !ret; i++)
		ret = rados_conf_set(cluster, settings[i][0], settings[i][1]);
	/* librados asks the monitors for a newer map only when an operation is older than
	 * objecter_timeout (10 s). If rados_osd_op_timeout cancels all operations before, a client
	 * that missed the map with the restarted osds never finds them again. */
	if (!ret && (rados_conf_set(cluster, "objecter_timeout", "1") ||
			    rados_conf_set(cluster, "objecter_tick_interval", "0.5")))
		log_warn("rados", "librados does not take the objecter's times: after a loss of "
				  "several osds this server may have to be started again");
	return ret;
}

/* librados's threads take no signal. */
static int connect_masked(rados_t cluster)
{
	sigset_t all, before;
	int ret;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ret = rados_connect(cluster);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return ret;
}

static int cluster_make(struct rv *rv, bool quiet)
{
	const char *conf = rv->conf_file[0] ? rv->conf_file : NULL;
	char user[80];
	const char *step = "making a client";
	int ret;

	snprintf(user, sizeof(user), "client.%s", rv->user[0] ? rv->user : "admin");
	ret = rados_create2(&rv->cluster, "ceph", user, 0);
	if (ret) {
		log_error("rados", "librados makes no client: %s", strerror(-ret));
		return ret;
	}
	ret = rados_conf_read_file(rv->cluster, conf);
	step = "reading its configuration";
	if (!ret) {
		step = "its settings";
		ret = conf_fill(rv, rv->cluster);
	}
	if (!ret) {
		step = "connecting";
		ret = connect_masked(rv->cluster);
	}
	if (!ret)
		return 0;
	rados_shutdown(rv->cluster);
	if (!quiet)
		log_error("rados",
			"the Ceph cluster of %s cannot be reached as %s: %s failed: %s: check the "
			"monitors' addresses there and the keyring of that user",
			conf ? conf : "the default ceph.conf", user, step, strerror(-ret));
	/* -ENOENT would say that the cluster has no such volume. */
	return ret == -ENOENT ? -ENODEV : ret;
}

int rv_cluster(struct rv *rv, bool quiet, rados_t *ret_cluster)
{
	int ret = 0;

	if (rv_lacking()) {
		log_error(
			"rados", "librados cannot be loaded (Debian: librados2): %s", rv_lacking());
		return -EOPNOTSUPP;
	}
	pthread_mutex_lock(&rv->lock);
	if (!rv->connected)
		ret = cluster_make(rv, quiet);
	rv->connected = rv->connected || !ret;
	*ret_cluster = rv->cluster;
	pthread_mutex_unlock(&rv->lock);
	return ret;
}

static int pool_open(
	const struct rv_volume *volume, rados_t cluster, const char *pool, rados_ioctx_t *ret_pool)
{
	int whole = 0;
	int ret = rados_ioctx_create(cluster, pool, ret_pool);

	if (ret) {
		log_error("rados", "%s: pool %s: %s", volume->path, pool,
			ret == -ENOENT ? "there is none of this name, or this user may not see it"
				       : strerror(-ret));
		return ret == -ENOENT ? -ENODEV : ret;
	}
	ret = rados_ioctx_pool_requires_alignment2(*ret_pool, &whole);
	if (ret) {
		log_error("rados", "%s: pool %s: %s", volume->path, pool, strerror(-ret));
	} else if (whole) {
		log_error("rados",
			"%s: pool %s is erasure coded and takes no overwrites: ceph osd pool set "
			"%s allow_ec_overwrites true",
			volume->path, pool, pool);
		ret = -EOPNOTSUPP;
	}
	rados_ioctx_set_namespace(*ret_pool, volume->name);
	if (ret)
		rados_ioctx_destroy(*ret_pool);
	return ret;
}

int rv_pools_open(struct rv_volume *volume, rados_t cluster)
{
	int ret;

	if (!volume->front_open) {
		ret = pool_open(volume, cluster, volume->pool, &volume->front);
		if (ret)
			return ret;
		volume->front_open = true;
	}
	if (!volume->body_pool[0]) {
		volume->body = volume->front;
		return 0;
	}
	ret = volume->body_open ? 0 : pool_open(volume, cluster, volume->body_pool, &volume->body);
	volume->body_open = volume->body_open || !ret;
	return ret;
}

void rv_pools_close(struct rv_volume *volume)
{
	if (volume->body_open)
		rados_ioctx_destroy(volume->body);
	if (volume->front_open)
		rados_ioctx_destroy(volume->front);
}

void rv_health_tell(struct rv_volume *volume)
{
	const char *command[] = {"{\"prefix\":\"health\",\"format\":\"plain\"}"};
	char *out = NULL, *status = NULL;
	size_t len = 0, status_len = 0;
	char text[sizeof(volume->health)];
	int ret = rados_mon_command(
		volume->rv->cluster, command, 1, "", 0, &out, &len, &status, &status_len);

	if (ret)
		snprintf(text, sizeof(text), "its monitors do not answer (%s)", strerror(-ret));
	else
		snprintf(text, sizeof(text), "%.*s", (int)MIN(len, sizeof(text) - 1), out);
	text[strcspn(text, "\n")] = '\0';
	if (!ret) {
		rados_buffer_free(out);
		rados_buffer_free(status);
	}
	pthread_mutex_lock(&volume->lock);
	if (strcmp(text, volume->health) != 0)
		log_warn("rados", "%s: the cluster says: %s", volume->path, text);
	memcpy(volume->health, text, sizeof(text));
	pthread_mutex_unlock(&volume->lock);
}
