/* rados/volume.c: the disk driver for volumes in RADOS: opening by a path, calls that block,
 * failures, and the thread that renews the owner's lease. A volume's bytes lie in objects of 4 MiB,
 * numbered from 0, in the namespace of the volume's name; an object that was never written counts
 * as zeros. */
#include "rados/rv_priv.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RENEWALS_PER_LEASE 3u
#define NO_OBJECT	   UINT64_MAX

/* ---- Losing the cluster, and finding it again. ---- */

static bool volume_gone(void *arg)
{
	struct rv_volume *volume = (struct rv_volume *)arg;

	return atomic_load(&volume->down) ||
	       (!volume->read_only && !rv_leased(volume) && !atomic_load(&volume->lost));
}

/* Writes nothing, but is done like a write. */
static int object_touch(struct rv_volume *volume, uint64_t object)
{
	char oid[RV_OID_BYTES];
	rados_write_op_t op = rados_create_write_op();
	int ret;

	rv_oid(object, oid);
	rados_write_op_create(op, LIBRADOS_CREATE_IDEMPOTENT, NULL);
	ret = rados_write_op_operate(op, rv_pool_of(volume, object), oid, NULL, 0);
	rados_release_write_op(op);
	return ret;
}

static void identity_say(const struct rv_volume *volume, struct disk_identity *ret_identity)
{
	uint64_t bytes = atomic_load(&volume->bytes);

	*ret_identity = (struct disk_identity){.bytes = bytes,
		.medium_bytes = bytes,
		.align = RV_ALIGN_BYTES,
		.can_grow = true,
		.can_discard = true};
	if (volume->body_pool[0])
		snprintf(ret_identity->what, sizeof(ret_identity->what),
			"in RADOS: pool %s for its log, pool %s for bodies, namespace %s",
			volume->pool, volume->body_pool, volume->name);
	else
		snprintf(ret_identity->what, sizeof(ret_identity->what),
			"in RADOS: pool %s, namespace %s", volume->pool, volume->name);
}

static int volume_revive(void *arg, struct disk_identity *ret_identity)
{
	struct rv_volume *volume = (struct rv_volume *)arg;
	uint64_t object = atomic_load(&volume->failed_object);
	int ret = 0;

	pthread_mutex_lock(&volume->lock);
	if (!rv_leased(volume))
		ret = rv_renew(volume);
	pthread_mutex_unlock(&volume->lock);
	if (!ret && object != NO_OBJECT)
		ret = object_touch(volume, object);
	if (ret == -ESHUTDOWN)
		rv_lost(volume);
	if (ret) {
		rv_health_tell(volume);
		return -ENOTCONN;
	}
	atomic_store(&volume->failed_object, NO_OBJECT);
	if (atomic_exchange(&volume->down, false))
		log_info("rados", "%s: Ceph takes writes again", volume->path);
	identity_say(volume, ret_identity);
	return 0;
}

/* ---- The lease. ---- */

static void *keeper_main(void *arg)
{
	struct rv_volume *volume = (struct rv_volume *)arg;
	uint64_t pause_ns = (uint64_t)volume->rv->opts.lease_s * NS_PER_S / RENEWALS_PER_LEASE;

	pthread_setname_np(pthread_self(), "rados-lease");
	pthread_mutex_lock(&volume->lock);
	while (!volume->ending && !atomic_load(&volume->lost)) {
		uint64_t until_ns = clock_now_ns() + pause_ns;
		const struct timespec until = {.tv_sec = (time_t)(until_ns / NS_PER_S),
			.tv_nsec = (long)(until_ns % NS_PER_S)};

		if (pthread_cond_timedwait(&volume->wake, &volume->lock, &until) == ETIMEDOUT &&
			!volume->ending)
			(void)rv_renew(volume);
	}
	pthread_mutex_unlock(&volume->lock);
	return NULL;
}

static int keeper_start(struct rv_volume *volume)
{
	sigset_t all, before;
	int ret;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ret = -pthread_create(&volume->keeper, NULL, keeper_main, volume);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	volume->keeping = !ret;
	return ret;
}

static void keeper_stop(struct rv_volume *volume)
{
	if (!volume->keeping)
		return;
	pthread_mutex_lock(&volume->lock);
	volume->ending = true;
	pthread_cond_signal(&volume->wake);
	pthread_mutex_unlock(&volume->lock);
	pthread_join(volume->keeper, NULL);
	volume->keeping = false;
}

/* ---- Calls that block. ---- */

static int piece_read(struct rv_volume *volume, uint64_t at, uint8_t *data, uint64_t bytes)
{
	char oid[RV_OID_BYTES];
	uint64_t object = at / RV_OBJECT_BYTES;
	int got;

	rv_oid(object, oid);
	got = rados_read(
		rv_pool_of(volume, object), oid, (char *)data, bytes, at % RV_OBJECT_BYTES);
	if (got == -ENOENT)
		got = 0;
	if (got < 0)
		return rv_failed(volume, object, got, false);
	memset(data + got, 0, bytes - (uint64_t)got);
	return 0;
}

static int piece_change(struct rv_volume *volume, enum disk_op kind, uint64_t at,
	const uint8_t *data, uint64_t bytes)
{
	char oid[RV_OID_BYTES];
	uint64_t object = at / RV_OBJECT_BYTES;
	rados_write_op_t op;
	int ret;

	if (atomic_load(&volume->lost))
		return -EIO;
	if (!rv_leased(volume))
		return -EHOSTDOWN;
	op = rados_create_write_op();
	rv_oid(object, oid);
	if (kind == DISK_WRITE)
		rados_write_op_write(op, (const char *)data, bytes, at % RV_OBJECT_BYTES);
	else if (bytes == RV_OBJECT_BYTES)
		rados_write_op_remove(op);
	else
		rados_write_op_zero(op, at % RV_OBJECT_BYTES, bytes);
	ret = rados_write_op_operate(op, rv_pool_of(volume, object), oid, NULL, 0);
	rados_release_write_op(op);
	if (ret == -ENOENT && kind != DISK_WRITE)
		ret = 0;
	return ret < 0 ? rv_failed(volume, object, ret, true) : 0;
}

static int volume_now(void *arg, enum disk_op op, void *data, uint64_t bytes, uint64_t offset)
{
	struct rv_volume *volume = (struct rv_volume *)arg;
	uint8_t *at = (uint8_t *)data;
	int ret = 0;

	if (op == DISK_FLUSH)
		return 0;
	if (offset + bytes > atomic_load(&volume->bytes))
		return -EIO;
	while (bytes && !ret) {
		uint64_t piece = MIN(bytes, RV_OBJECT_BYTES - offset % RV_OBJECT_BYTES);

		ret = op == DISK_READ ? piece_read(volume, offset, at, piece)
				      : piece_change(volume, op, offset, at, piece);
		if (at)
			at += piece;
		offset += piece;
		bytes -= piece;
	}
	return ret;
}

static int volume_grow(void *arg, uint64_t bytes_total, struct disk_identity *ret_identity)
{
	struct rv_volume *volume = (struct rv_volume *)arg;
	int ret;

	pthread_mutex_lock(&volume->lock);
	ret = rv_leased(volume) ? rv_head_grow(volume, ALIGN_UP(bytes_total, RV_OBJECT_BYTES))
				: -ETIMEDOUT;
	pthread_mutex_unlock(&volume->lock);
	if (ret == -ECANCELED)
		ret = -ESHUTDOWN;
	if (ret) {
		ret = rv_failed(volume, 0, ret, true);
		return ret == -EHOSTDOWN ? -ENOTCONN : ret;
	}
	identity_say(volume, ret_identity);
	return 0;
}

/* ---- Opening. ---- */

static bool name_valid(struct slice name)
{
	return name.len > 0 && name.len <= RV_NAME_MAX && name.data[0] != '-' &&
	       slice_is_word(name, "._-");
}

/* "rados://POOL/NAME", "rados://POOL/NAME?data=POOL" */
static int path_parse(struct rv_volume *volume, const char *path)
{
	const struct slice OPTION = SLICE("data=");
	struct slice rest = slice_from(slice_str(path), sizeof(RV_SCHEME) - 1);
	bool has_option = slice_find(rest, SLICE("?")) >= 0;
	struct slice place = slice_split(&rest, '?');
	struct slice pool = slice_split(&place, '/');

	if (slice_copy_str(slice_str(path), volume->path, sizeof(volume->path)) ||
		!name_valid(pool) || !name_valid(place) ||
		(has_option && (!slice_starts(rest, OPTION) ||
				       !name_valid(slice_from(rest, OPTION.len))))) {
		log_error("rados",
			"%s: not of the form rados://POOL/NAME or rados://POOL/NAME?data=POOL, "
			"with names of letters, digits, '.', '_' and '-', at most %u each",
			path, RV_NAME_MAX);
		return -EINVAL;
	}
	slice_copy_str(pool, volume->pool, sizeof(volume->pool));
	slice_copy_str(place, volume->name, sizeof(volume->name));
	if (has_option)
		slice_copy_str(
			slice_from(rest, OPTION.len), volume->body_pool, sizeof(volume->body_pool));
	if (strcmp(volume->pool, volume->body_pool) == 0)
		volume->body_pool[0] = '\0';
	return 0;
}

static void volume_close(void *arg)
{
	struct rv_volume *volume = (struct rv_volume *)arg;

	keeper_stop(volume);
	rv_disown(volume);
	life_end(&volume->life);
	rv_pools_close(volume);
	for (uint32_t i = 0; i < LIMIT_CORES_MAX; i++)
		free(volume->cores[i]);
	pthread_mutex_destroy(&volume->lock);
	pthread_cond_destroy(&volume->wake);
	free(volume);
}

/* Of the head and of the lock. The reasons of the first four are in the log, or are none. */
static int cannot_open(const struct rv_volume *volume, const struct disk_opts *opts, int ret)
{
	if (ret != -ENOENT && ret != -EINVAL && ret != -EUCLEAN && ret != -EBUSY &&
		ret != -ECANCELED && !opts->probe)
		log_error("rados", "%s: cannot be opened: %s", volume->path, strerror(-ret));
	return ret;
}

/* Reads the head, or makes it. */
static int head_find(struct rv_volume *volume, rados_t cluster, const struct disk_opts *opts)
{
	int ret = rv_head_read(volume);

	/* The pool of bodies comes from the head, or from the path for a head that is made. */
	if (ret == -ENOENT && !opts->read_only && opts->create) {
		ret = rv_pools_open(volume, cluster);
		if (ret)
			return ret;
		ret = rv_head_make(volume);
	}
	return ret ? cannot_open(volume, opts, ret) : rv_pools_open(volume, cluster);
}

static int own(struct rv_volume *volume, const struct disk_opts *opts)
{
	int ret = rv_own(volume, opts->lock_wait_ns);

	/* The former owner may have grown it meanwhile. */
	if (!ret)
		ret = rv_head_read(volume);
	if (!ret)
		ret = keeper_start(volume);
	return ret ? cannot_open(volume, opts, ret) : 0;
}

/* The log has the reason of a failure. */
static int volume_begin(struct rv_volume *volume, const struct disk_opts *opts)
{
	char body_pool[sizeof(volume->body_pool)];
	rados_t cluster;
	int ret = path_parse(volume, opts->path);

	memcpy(body_pool, volume->body_pool, sizeof(body_pool));
	if (!ret)
		ret = rv_cluster(volume->rv, opts->probe, &cluster);
	if (!ret) {
		volume->body_pool[0] = '\0';
		ret = rv_pools_open(volume, cluster);
		memcpy(volume->body_pool, body_pool, sizeof(body_pool));
	}
	if (!ret)
		ret = head_find(volume, cluster, opts);
	if (!ret && !opts->read_only)
		ret = own(volume, opts);
	return ret;
}

static int volume_open(void *arg, const struct disk_opts *opts, struct disk_identity *ret_identity,
	void **ret_volume)
{
	struct rv_volume *volume = (struct rv_volume *)calloc(1, sizeof(*volume));
	pthread_condattr_t monotonic;
	int ret;

	if (!volume)
		return -ENOMEM;
	volume->rv = (struct rv *)arg;
	volume->read_only = opts->read_only;
	atomic_store(&volume->failed_object, NO_OBJECT);
	pthread_mutex_init(&volume->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&volume->wake, &monotonic);
	pthread_condattr_destroy(&monotonic);
	ret = volume_begin(volume, opts);
	if (ret) {
		volume_close(volume);
		return ret == -ENOTCONN ? -ETIMEDOUT : ret;
	}
	identity_say(volume, ret_identity);
	*ret_volume = volume;
	return 0;
}

static int volume_attach(void *arg, struct reactor *reactor, struct region *region)
{
	struct rv_volume *volume = (struct rv_volume *)arg;
	struct rv_core *core = (struct rv_core *)calloc(1, sizeof(*core));

	(void)region;
	if (!core)
		return -ENOMEM;
	core->volume = volume;
	core->reactor = reactor;
	for (uint32_t i = 0; i < RV_PIECES; i++) {
		core->pieces[i].core = core;
		core->pieces[i].next_free = core->free;
		core->free = &core->pieces[i];
	}
	volume->cores[reactor_core_idx(reactor)] = core;
	return 0;
}

static void volume_start(void *arg, struct disk_io *io)
{
	struct rv_volume *volume = (struct rv_volume *)arg;

	rv_start(volume->cores[reactor_core_idx(reactor_self())], io);
}

/* ---- Of this process. ---- */

int rv_open(const struct rv_opts *opts, struct rv **ret_rv)
{
	struct rv *rv = (struct rv *)calloc(1, sizeof(*rv));

	if (!rv)
		return -ENOMEM;
	rv->opts = *opts;
	if (slice_copy_str(slice_str(opts->conf_file), rv->conf_file, sizeof(rv->conf_file)) ||
		slice_copy_str(slice_str(opts->user), rv->user, sizeof(rv->user))) {
		free(rv);
		return -ENAMETOOLONG;
	}
	rv->opts.timeout_s = opts->timeout_s ? opts->timeout_s : RV_TIMEOUT_S_DEFAULT;
	rv->opts.lease_s = opts->lease_s ? opts->lease_s : RV_LEASE_S_DEFAULT;
	rv->opts.front_bytes = opts->front_bytes ? opts->front_bytes : RV_FRONT_BYTES_DEFAULT;
	pthread_mutex_init(&rv->lock, NULL);
	rv->driver = (struct disk_driver){
		.scheme = RV_SCHEME,
		.name = "RADOS volume",
		.durable = true,
		.arg = rv,
		.open = volume_open,
		.close = volume_close,
		.attach = volume_attach,
		.start = volume_start,
		.now = volume_now,
		.grow = volume_grow,
		.revive = volume_revive,
		.gone = volume_gone,
	};
	disk_driver_add(&rv->driver);
	*ret_rv = rv;
	return 0;
}

void rv_close(struct rv *rv)
{
	if (!rv)
		return;
	disk_driver_remove(&rv->driver);
	if (rv->connected)
		rados_shutdown(rv->cluster);
	pthread_mutex_destroy(&rv->lock);
	free(rv);
}
