/* server/job/rebuild.c: looks after the store's volumes: those that come back or are replaced are
 * made whole again. */
#include "server/job/job.h"

static void rebuild_main(void *arg)
{
	store_array_monitor((struct store *)arg);
}

int job_rebuild_start(struct reactor *reactor, struct store *store)
{
	return fiber_spawn(reactor, "rebuild", rebuild_main, store);
}
