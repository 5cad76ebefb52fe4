/* rados/table_missing.c: in the place of table.c, in a program that was built without librados's
 * header. No table is ever open. */
#include "rados/table.h"

#include <errno.h>

int rv_table_open(const struct rv_table_opts *opts, struct rv_table **ret_table)
{
	(void)ret_table;
	log_error("rados",
		"pool %s: this program was built without librados: install librados-dev and build "
		"it again",
		opts->pool);
	return -EOPNOTSUPP;
}

void rv_table_close(struct rv_table *table)
{
	(void)table;
}

int rv_table_get(struct rv_table *table, const char *key, char ret_value[RV_TABLE_VALUE_BYTES])
{
	(void)table;
	(void)key;
	(void)ret_value;
	return -EOPNOTSUPP;
}

int rv_table_list(struct rv_table *table, const char *prefix, rv_table_visit_fn *visit, void *arg)
{
	(void)table;
	(void)prefix;
	(void)visit;
	(void)arg;
	return -EOPNOTSUPP;
}

int rv_table_change(struct rv_table *table, const struct rv_table_entry *expected,
	uint32_t expected_count, const struct rv_table_entry *changes, uint32_t change_count)
{
	(void)table;
	(void)expected;
	(void)expected_count;
	(void)changes;
	(void)change_count;
	return -EOPNOTSUPP;
}

int rv_table_tell(struct rv_table *table, const char *text, uint32_t timeout_s)
{
	(void)table;
	(void)text;
	(void)timeout_s;
	return -EOPNOTSUPP;
}

int rv_table_watch_check(struct rv_table *table)
{
	(void)table;
	return -EOPNOTSUPP;
}

int rv_table_lease(struct rv_table *table, const char *name, uint32_t seconds)
{
	(void)table;
	(void)name;
	(void)seconds;
	return -EOPNOTSUPP;
}

void rv_table_lease_end(struct rv_table *table, const char *name)
{
	(void)table;
	(void)name;
}

int rv_table_leased(struct rv_table *table, const char *name)
{
	(void)table;
	(void)name;
	return -EOPNOTSUPP;
}

int rv_table_volume_bytes(struct rv_table *table, const char *name, uint64_t *ret_bytes)
{
	(void)table;
	(void)name;
	(void)ret_bytes;
	return -EOPNOTSUPP;
}

uint32_t rv_table_pending(struct rv_table *table)
{
	(void)table;
	return 0;
}

void rv_table_ack(struct rv_table *table, uint32_t count)
{
	(void)table;
	(void)count;
}

int rv_table_blob_put(struct rv_table *table, const char *name, struct slice bytes)
{
	(void)table;
	(void)name;
	(void)bytes;
	return -EOPNOTSUPP;
}

int rv_table_blob_get(struct rv_table *table, const char *name, struct buf *out)
{
	(void)table;
	(void)name;
	(void)out;
	return -EOPNOTSUPP;
}

int rv_table_blob_remove(struct rv_table *table, const char *name)
{
	(void)table;
	(void)name;
	return -EOPNOTSUPP;
}
