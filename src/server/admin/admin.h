/* server/admin/admin.h: what operators ask for: metrics and health, over HTTP on an address of its
 * own. Shaped like s3_handle, so that the HTTP front serves it too. No keys are asked for metrics
 * and health: bind it where only operators reach it. */
#ifndef SERVER_ADMIN_ADMIN_H
#define SERVER_ADMIN_ADMIN_H

#include <stdatomic.h>

#include "base/base.h"
#include "reactor/reactor.h"
#include "region/region.h"
#include "s3/s3.h"
#include "store/local.h"

struct admin_opts {
	struct region *region;
	struct store *store;
	struct s3 *s3;
	struct reactor *const *reactors; /* borrowed for the life of the server */
	uint32_t reactor_count;
	const _Atomic bool *draining; /* not ready any more */
	bool minio_public;	      /* MinIO's scrape paths ask for no token */
};

/* Answers GET /metrics (Prometheus text format 0.0.4), /health/live, /health/ready, and what is
 * below /admin/v1/ to who signs as the server's root. arg is a struct admin_opts. In a fiber. */
void admin_handle(void *arg, const struct s3_request *request, struct s3_reply *reply);
/* The text of /metrics; any thread that may call store_usage. */
void admin_metrics(const struct admin_opts *opts, struct buf *out);
/* Answers GET /minio/v2/metrics/cluster and .../node, by bearer token or without, as minio_public
 * says; false: the request is another one. As front_http_opts.page; arg is a struct admin_opts. In
 * a fiber. */
bool admin_minio_handle(void *arg, const struct s3_request *request, struct s3_reply *reply);

#endif
