/* origin/origin.c: opens and closes the fetcher, and deletes what an earlier run left of fetches,
 * other uploads and buckets. */
#include <errno.h>
#include <stdlib.h>

#include "origin/origin_priv.h"

static void sweep_main(void *arg)
{
	struct origin *origin = arg;
	int ret = s3_uploads_sweep(origin->opts.s3, origin->opts.core, &origin->ending);

	if (ret)
		log_warn("origin",
			"cannot delete what an earlier run left of fetches and other uploads: %s; "
			"the next start tries again",
			strerror(-ret));
	ret = s3_configs_sweep(origin->opts.s3, &origin->ending);
	if (ret)
		log_warn("origin",
			"cannot delete configurations that an earlier run left without their "
			"buckets: %s; the next start tries again",
			strerror(-ret));
	atomic_store(&origin->swept, true);
}

int origin_open(const struct origin_opts *opts, struct origin **ret_origin)
{
	struct origin *origin = calloc(1, sizeof(*origin));
	int ret;

	if (!origin)
		return -ENOMEM;
	origin->opts = *opts;
	origin->hook = (struct s3_origin_hook){&origin_ops, origin};
	pthread_mutex_init(&origin->lock, NULL);
	pthread_cond_init(&origin->work, NULL);
	list_init(&origin->fetches);
	list_init(&origin->jobs);
	ret = fiber_spawn(opts->core->reactor, "origin sweep", sweep_main, origin);
	if (ret) {
		free(origin);
		return ret;
	}
	s3_origin_on(opts->s3, &origin->hook);
	*ret_origin = origin;
	return 0;
}

void origin_stop(struct origin *origin)
{
	if (origin)
		atomic_store(&origin->ending, true);
}

static bool is_idle(struct origin *origin)
{
	bool idle;

	pthread_mutex_lock(&origin->lock);
	idle = !origin->running && !origin->waiting && !origin->direct &&
	       atomic_load(&origin->swept);
	pthread_mutex_unlock(&origin->lock);
	return idle;
}

void origin_close(struct origin *origin)
{
	if (!origin)
		return;
	s3_origin_on(origin->opts.s3, NULL);
	origin_stop(origin);
	while (!is_idle(origin))
		fiber_sleep_ns(10 * NS_PER_MS);
	pool_close(origin);
	pthread_cond_destroy(&origin->work);
	pthread_mutex_destroy(&origin->lock);
	free(origin);
}
