/* server/job/scrub.c: reads bodies from time to time and compares them with their checksums. */
#include "server/job/job.h"

static void scrub_main(void *arg)
{
	const struct job_scrub_opts *opts = (const struct job_scrub_opts *)arg;

	store_scrub_run(opts->store, &opts->scrub);
}

int job_scrub_start(struct reactor *reactor, const struct job_scrub_opts *opts)
{
	/* The fiber only reads opts. */
	return fiber_spawn(reactor, "scrub", scrub_main, (void *)(uintptr_t)opts);
}
