/* store/table/list_table.h: rows of buckets that are listed, in order and in memory, so that a list
 * need not walk the index. Of each such bucket it has all keys up to some end, with the part of the
 * record that lists need. docs/design/store.md, "Lists from memory". */
#ifndef STORE_LIST_TABLE_H
#define STORE_LIST_TABLE_H

#include "base/slice.h"

#include <stdbool.h>
#include <stdint.h>

#include "store/log/key.h"
#include "store/table/row_tree.h"

struct index;
struct list_table;
struct mutation;

/* bytes_max 0: the table stays empty. -ENOMEM. */
int list_table_open(uint64_t bytes_max, struct list_table **ret_table);
void list_table_close(struct list_table *table); /* takes NULL */
/* The memory that the rows take. Any thread. */
uint64_t list_table_bytes(const struct list_table *table);

/* ---- Walks: any thread. ---- */
struct list_walk {
	struct list_table *table;
	uint64_t bucket_id;
	struct row_cursor at;
	struct slice to; /* the first key behind the range; empty: none */
};
/* A walk over the objects from one key of the index to another, which must stay as they are; false:
 * the table lacks some of them. A walk without skips needs no more than `rows` of them; with skips
 * it needs all. On success the table cannot change until list_walk_close: the caller must not
 * wait. */
struct list_range {
	uint64_t bucket_id;
	const struct key *from, *to;
	uint32_t rows;
	bool skips;
	bool may_wait; /* for the index thread, which may change thousands of rows */
};
bool list_walk_open(
	struct list_table *table, const struct list_range *range, struct list_walk *ret_walk);
void list_walk_close(struct list_walk *walk);
/* Whether the rest of the range has so many rows, at least one. Takes no longer than a row for each
 * hundred. */
bool list_walk_has(const struct list_walk *walk, uint32_t rows);
/* The object's key, and of its record what record_meta_bytes() says; until the close. */
bool list_walk_get(const struct list_walk *walk, struct slice *ret_key, struct slice *ret_record);
void list_walk_next(struct list_walk *walk);
/* To the first object whose key in the index is not below; behind the last one of the bucket for a
 * key of another. */
void list_walk_seek(struct list_walk *walk, const struct key *key);
/* A list of so many rows of the bucket walked in the index instead. It earns the bucket as many in
 * the table, so that reading them costs no more than lists did. True: there is work for
 * list_table_fill(). */
bool list_table_missed(struct list_table *table, uint64_t bucket_id, uint32_t rows);

/* ---- The index thread, which alone changes index and rows. ---- */
/* Changes that the index got; a deletion by prefix is not one of objects. */
void list_table_change(
	struct list_table *table, const struct mutation *const *rows, uint32_t count);
void list_table_change_group(struct list_table *table, struct slice group);
/* Whether rows that were earned are to be read. Any thread. */
bool list_table_wants(const struct list_table *table);
/* Reads some of them from the index. Blocks. */
void list_table_fill(struct list_table *table, struct index *index);

#endif
