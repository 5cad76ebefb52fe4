/* origin/origin.h: fetches objects of buckets that have an origin (s3/origin.h) from there, and
 * stores them: one fetch for all requests that wait for the key (docs/design/origin.md). */
#ifndef ORIGIN_ORIGIN_H
#define ORIGIN_ORIGIN_H

#include "replicate/replicate.h"
#include "s3/origin.h"

#define ORIGIN_BUFFER_BYTES_MIN (64 * MIB) /* the longest piece */
#define ORIGIN_BUFFER_BYTES_MAX (512 * MIB)
struct origin_opts {
	struct s3 *s3;
	struct store *store;
	struct flow_core *core;
	const struct replicate_sender *sender;
	uint64_t buffer_bytes_max; /* of pieces that come or wait to be stored; from MIN on */
};
struct origin;
/* Fiber call on the core's reactor, after s3_start: from now on requests fetch; and a fiber deletes
 * what an earlier run left of fetches that it did not end. -ENOMEM, -EAGAIN. */
int origin_open(const struct origin_opts *opts, struct origin **ret_origin);
/* From now on no fetch begins, and those that run end soon, without their object. Any thread; takes
 * NULL. */
void origin_stop(struct origin *origin);
/* Fiber call on the same reactor, when no request runs any more, and while the reactors still run.
 * Takes NULL. */
void origin_close(struct origin *origin);

#endif
