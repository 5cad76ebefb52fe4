/* server/admin/admin.h: metrics and health for operators, over HTTP on a separate address. It has
 * the signature of s3_handle, so that the HTTP front can serve it. Metrics and health need no keys:
 * bind the address where only operators reach it. */
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
	const _Atomic bool *draining; /* when set, /health/ready answers 503 */
	bool minio_public;	      /* MinIO's scrape paths need no token */
	/* Where a browser that asks for "/" is sent; 0: there is no console. */
	uint16_t console_port;
	bool console_https;
	s3_admin_tell_fn *tell; /* paths below /admin/v1/ that are not s3's; or NULL */
	void *tell_arg;
};

/* Answers GET /metrics (Prometheus text format 0.0.4), /health/live, /health/ready, a browser's GET
 * of / by the console's address, and, for
 * requests that the server's root has signed, the paths below /admin/v1/. arg is a struct
 * admin_opts. In a fiber. */
void admin_handle(void *arg, const struct s3_request *request, struct s3_reply *reply);
/* The part of it that every process of this program has: its build, the kernel's figures, counters
 * and histograms. Any thread. */
void admin_counters(struct buf *out);
/* The part about these event loops. Any thread. */
void admin_reactors(struct reactor *const *reactors, uint32_t count, struct buf *out);
/* The text of /metrics; any thread that may call store_usage. */
void admin_metrics(const struct admin_opts *opts, struct buf *out);
/* Answers GET /minio/v2/metrics/cluster, .../node and .../bucket, with or without a bearer token,
 * as minio_public says; false: the request has another path. As front_http_opts.page; arg is a
 * struct admin_opts. In a fiber. */
bool admin_minio_handle(void *arg, const struct s3_request *request, struct s3_reply *reply);

#endif
