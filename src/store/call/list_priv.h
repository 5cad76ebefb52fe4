/* store/call/list_priv.h: what list.c and list_versions.c share. */
#ifndef STORE_LIST_PRIV_H
#define STORE_LIST_PRIV_H

#include "store/api.h"

#include <stdbool.h>

/* ---- list.c, list_versions.c: pages. ---- */
/* Key and record are adjacent in the page's bytes, so that a visit touches few pages of memory. */
struct list_row {
	uint32_t at;
	uint16_t key_len;
	uint16_t record_len; /* 0: a common prefix */
	bool latest;
};
/* One page: filled on a helper, read on the fiber. With opts->visit_anywhere it has no rows: they
 * are visited on the helper. A short page may be filled on the fiber. */
struct list_page {
	struct store *store;
	const struct store_list_opts *opts;
	store_list_visit_fn *visit;
	void *arg;
	uint64_t bucket_id;
	struct list_row *rows;
	uint32_t row_count; /* also of rows that were visited */
	uint32_t rows_here; /* on the fiber: keep at most so many; 0: on a helper */
	char *bytes;
	size_t bytes_len;
	size_t bytes_cap;
	bool more;
	int ret;
};
/* Adds, or visits, a key with the part of its record that lists need, or a common prefix (empty
 * record). -ENOMEM. */
int list_page_add(struct list_page *page, struct slice key, struct slice record, bool latest);
/* Fills a struct list_page with versions. Blocks. */
void list_versions_run(void *arg);

#endif
