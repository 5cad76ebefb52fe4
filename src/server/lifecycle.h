/* server/lifecycle.h: connects the job that walks versions to S3's lifecycle rules. */
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
/* day_seconds: the length of a day in a rule; the job's interval depends on it. Before the reactor
 * runs, or on it. */
int lifecycle_open(struct lifecycle *lifecycle, struct store *store, uint64_t day_seconds);
/* Fiber call on its reactor. Does nothing when it was not opened. */
void lifecycle_close(struct lifecycle *lifecycle);

#endif
