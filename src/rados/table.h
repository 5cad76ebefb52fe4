/* rados/table.h: one object in RADOS with entries of text, which several hosts change by
 * compare-and-write and watch; and leases with names beside it. The calls block. */
#ifndef RADOS_TABLE_H
#define RADOS_TABLE_H

#include "base/base.h"
#include "rados/rados.h"

#define RV_TABLE_KEY_BYTES   96u  /* with its end */
#define RV_TABLE_VALUE_BYTES 512u /* the same */
#define RV_TABLE_CHANGES_MAX 8u	  /* of one call */

struct rv_table;
struct rv_table_opts {
	struct rv *rv;
	const char *pool; /* a replicated one */
	const char *name; /* its namespace in the pool */
	/* A watcher told something, or (text empty) something may have been missed. On a thread of
	 * librados: it may not wait. NULL: the table is not watched. */
	void (*told)(void *arg, struct slice text);
	void *told_arg;
	/* The teller waits until this watcher has called rv_table_ack; false: told's return is
	 * enough. */
	bool acks;
	uint32_t watch_s; /* a silent watcher is forgotten after it; 0: 10 s */
};
/* Makes the object when it is missing. -EOPNOTSUPP, -ENOENT (the pool) and other errors of the
 * cluster, with a log line. */
int rv_table_open(const struct rv_table_opts *opts, struct rv_table **ret_table);
void rv_table_close(struct rv_table *table); /* takes NULL */

/* -ENOENT. */
int rv_table_get(struct rv_table *table, const char *key, char ret_value[RV_TABLE_VALUE_BYTES]);
/* Calls visit with each entry whose key begins with prefix, in order; entries that are too long
 * are left out. */
typedef void rv_table_visit_fn(void *arg, const char *key, const char *value);
int rv_table_list(struct rv_table *table, const char *prefix, rv_table_visit_fn *visit, void *arg);
/* If each of `expected` has that value, makes all of `changes`, at once. A value NULL: the entry is
 * not there. -ECANCELED: one has another value. */
struct rv_table_entry {
	const char *key, *value;
};
int rv_table_change(struct rv_table *table, const struct rv_table_entry *expected,
	uint32_t expected_count, const struct rv_table_entry *changes, uint32_t change_count);
/* Returns when each watcher has been told, or after the time: -ETIMEDOUT. */
int rv_table_tell(struct rv_table *table, const char *text, uint32_t timeout_s);
/* How many messages wait to be acknowledged; and acknowledges the first so many. By one thread. */
uint32_t rv_table_pending(struct rv_table *table);
void rv_table_ack(struct rv_table *table, uint32_t count);
/* Objects beside the table, which are made once and not changed. put: -EEXIST; get: -ENOENT,
 * -EFBIG: more than the buffer takes. */
int rv_table_blob_put(struct rv_table *table, const char *name, struct slice bytes);
int rv_table_blob_get(struct rv_table *table, const char *name, struct buf *out);
int rv_table_blob_remove(struct rv_table *table, const char *name);
/* Watches again after the cluster ended the watch. To be called now and then, by one thread. */
int rv_table_watch_check(struct rv_table *table);

/* A lease by its name, for so many seconds; a call by its holder renews it. -EBUSY: another process
 * has it. */
int rv_table_lease(struct rv_table *table, const char *name, uint32_t seconds);
void rv_table_lease_end(struct rv_table *table, const char *name);
/* 1: somebody has it; 0: nobody; -errno. */
int rv_table_leased(struct rv_table *table, const char *name);

/* The length of the volume of a name in the table's pool. -ENOENT. */
int rv_table_volume_bytes(struct rv_table *table, const char *name, uint64_t *ret_bytes);

#endif
