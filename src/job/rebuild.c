/* job/rebuild.c: makes volumes of the store whole again after a start that found them empty or
 * behind. */
#include "job/job.h"

#include <errno.h>

static void rebuild_main(void *arg)
{
	/* What stops it is in the log; the next start tries again. */
	(void)store_rebuild((struct store *)arg);
}

int job_rebuild_start(struct reactor *reactor, struct store *store)
{
	return fiber_spawn(reactor, "rebuild", rebuild_main, store);
}
