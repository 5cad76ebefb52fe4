/* server/job/expire.c: ends objects of memory buckets that are older than their bucket allows. */
#include "server/job/job.h"

static void expire_main(void *arg)
{
	store_memory_run((struct store *)arg);
}

int job_store_start(struct reactor *reactor, struct store *store)
{
	int ret = job_rebuild_start(reactor, store);

	return ret ? ret : fiber_spawn(reactor, "expire", expire_main, store);
}
