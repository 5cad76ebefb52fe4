/* store/index/merge.h: the mutations of many groups, the last of each key. */
#ifndef STORE_MERGE_H
#define STORE_MERGE_H

#include "store/api.h"

#include "store/log/journal.h"

/* ---- merge.c: the mutations of many groups, the last of each key. Empty when zeroed. ---- */
struct index_merge {
	struct mutation *rows; /* in log order; keys and values point into the groups */
	const struct mutation **order;
	uint32_t count;
	uint32_t cap;
	uint32_t settled_count; /* of order: the remaining mutations, by key */
};
void index_merge_close(struct index_merge *merge);
void index_merge_reset(struct index_merge *merge); /* empties it and keeps the memory */
/* Adds a group's `count` mutations, none of which is a deletion by prefix. The group must live
 * longer than the merge. -ENOMEM; -EUCLEAN: the group has fewer. */
int index_merge_add(struct index_merge *merge, struct slice group, uint32_t count);
void index_merge_settle(struct index_merge *merge);

#endif
