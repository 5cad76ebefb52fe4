/* store/index/coalesce.h: the mutations of many groups, the last of each key. */
#ifndef STORE_COALESCE_H
#define STORE_COALESCE_H

#include "store/api.h"

#include "store/log/journal.h"

/* ---- coalesce.c: the mutations of many groups, the last of each key. Empty when zeroed. ---- */
struct coalesce {
	struct mutation *rows; /* in the log's order; keys and values lie in the groups */
	const struct mutation **order;
	uint32_t count;
	uint32_t cap;
	uint32_t settled_count; /* of order: what is left, by key */
};
void coalesce_close(struct coalesce *coalesce);
void coalesce_reset(struct coalesce *coalesce); /* empties it and keeps the memory */
/* Adds a group's `count` mutations, none of which is a deletion by prefix; the group must outlive
 * them. -ENOMEM; -EUCLEAN: it has fewer. */
int coalesce_add(struct coalesce *coalesce, struct slice group, uint32_t count);
void coalesce_settle(struct coalesce *coalesce);

#endif
