/* server/admin/admin_priv.h: what the files of this folder share: how a metric is written. */
#ifndef SERVER_ADMIN_ADMIN_PRIV_H
#define SERVER_ADMIN_ADMIN_PRIV_H

#include "server/admin/admin.h"

/* A metric's head, once, before its lines; a name that ends in _total is a counter's. */
void metric_head(struct buf *out, const char *name, const char *help);
/* labels may be NULL. */
void metric_line(struct buf *out, const char *name, const char *labels, uint64_t value);

/* What the kernel says of this process, by the names that Prometheus' own clients use. Left out is
 * what it does not say. Any thread; reads /proc. */
void admin_process_metrics(struct buf *out);

#endif
