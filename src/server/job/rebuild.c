/* server/job/rebuild.c: rebuilds the store's volumes that came back or were replaced. */
#include "server/job/job.h"

static void rebuild_main(void *arg)
{
	store_array_monitor((struct store *)arg);
}

int job_rebuild_start(struct reactor *reactor, struct store *store)
{
	return fiber_spawn(reactor, "rebuild", rebuild_main, store);
}
