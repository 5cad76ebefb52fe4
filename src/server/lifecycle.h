/* server/lifecycle.h: joins the job that walks versions to what S3's rules say of them. */
#ifndef SERVER_LIFECYCLE_H
#define SERVER_LIFECYCLE_H

#include "flow/flow.h"
#include "server/job/job.h"
#include "s3/s3.h"

/* The argument of the job's functions, on its reactor. */
struct lifecycle {
	struct s3 *s3;
	struct flow_core *core;
	struct job_lifecycle *job;
};
/* day_seconds: how long a day of a rule is; how often the job walks follows. Before the reactor
 * runs, or on it. */
int lifecycle_open(struct lifecycle *lifecycle, struct store *store, uint64_t day_seconds);
/* Fiber call on its reactor. Nothing to do when it was not opened. */
void lifecycle_close(struct lifecycle *lifecycle);

#endif
