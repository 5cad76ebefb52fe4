/* server/admin/admin_priv.h: shared by the files of this folder: how a metric is written. */
#ifndef SERVER_ADMIN_ADMIN_PRIV_H
#define SERVER_ADMIN_ADMIN_PRIV_H

#include "server/admin/admin.h"

/* Writes a metric's head, once, before its lines; a metric whose name ends in _total is a
 * counter. */
void metric_head(struct buf *out, const char *name, const char *help);
/* labels may be NULL. */
void metric_line(struct buf *out, const char *name, const char *labels, uint64_t value);

/* The kernel's statistics of this process; 0: unknown. Any thread; reads /proc. */
struct admin_process {
	double cpu_s, started_s; /* since 1970 */
	uint64_t virtual_bytes, resident_bytes, descriptors, descriptors_max;
};
void admin_process_read(struct admin_process *ret_process);
/* Writes them under the names that Prometheus' own clients use. Unknown values are left out. */
void admin_process_metrics(struct buf *out);

/* The use of buckets, at most LIMIT_METRIC_BUCKETS_MAX of them. */
struct admin_bucket {
	char name[LIMIT_BUCKET_LEN_MAX + 1];
	struct store_quota used, quota; /* used: noncurrent versions, too */
	bool versions;			/* it has, or had, versions */
};
struct admin_buckets {
	struct admin_bucket *list;
	uint32_t count, left_out;
};
/* -ENOMEM, or an error of store_bucket_list; to be freed in any case. */
int admin_buckets_read(const struct admin_opts *opts, struct admin_buckets *ret_buckets);
void admin_buckets_free(struct admin_buckets *buckets);
/* The use of each bucket, and its quota. */
void admin_bucket_metrics(const struct admin_opts *opts, struct buf *out);

/* The replications that wait for each target, and those that were sent. */
void admin_replication_metrics(const struct admin_opts *opts, struct buf *out);

/* Answers with the text of `make`. In a fiber, make runs on a helper thread, because the text is
 * long. In a fiber, or on any thread. */
typedef void admin_make_fn(const struct admin_opts *opts, struct buf *out);
void admin_answer_metrics(const struct admin_opts *opts, const struct s3_request *request,
	struct s3_reply *reply, admin_make_fn *make);

#endif
