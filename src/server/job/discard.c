/* server/job/discard.c: tells the volumes which space is free (DISCARD). */
#include "server/job/job.h"

static void discard_main(void *arg)
{
	const struct job_discard_opts *opts = (const struct job_discard_opts *)arg;

	store_discard_run(opts->store, opts->bytes_per_s);
}

int job_discard_start(struct reactor *reactor, const struct job_discard_opts *opts)
{
	/* The fiber only reads opts. */
	return opts->bytes_per_s
		       ? fiber_spawn(reactor, "discard", discard_main, (void *)(uintptr_t)opts)
		       : 0;
}
