/* store/table/row_tree.h: an ordered map of byte strings in memory: a tree of three levels, whose
 * leaves hold whole rows side by side, so that a walk touches little memory. Not locked: one
 * writer, or any number of readers. */
#ifndef STORE_ROW_TREE_H
#define STORE_ROW_TREE_H

#include "base/slice.h"

#include <stdbool.h>
#include <stdint.h>

#define ROW_TREE_LEAF_BYTES (16u * 1024u)
/* The most that a key and its value have together: several rows fit into a leaf. */
#define ROW_TREE_ROW_BYTES_MAX (4u * 1024u)

struct row_tree;
/* -ENOMEM. */
int row_tree_open(struct row_tree **ret_tree);
void row_tree_close(struct row_tree *tree); /* takes NULL */
/* Puts a row, in the place of an earlier one of that key; copies both. -ENOMEM: the tree is as it
 * was; -E2BIG: the row has more than ROW_TREE_ROW_BYTES_MAX. */
int row_tree_put(struct row_tree *tree, struct slice key, struct slice value);
/* Deletes the row, if there is one. */
void row_tree_delete(struct row_tree *tree, struct slice key);
/* The first key of the last leaf, until the tree changes; false: the tree is empty. */
bool row_tree_tail(const struct row_tree *tree, struct slice *ret_key);
/* Deletes the rows of the last leaf. */
void row_tree_cut(struct row_tree *tree);
/* Memory of the whole tree, in bytes. */
uint64_t row_tree_bytes(const struct row_tree *tree);

/* A place between rows, valid until the tree changes. */
struct row_cursor {
	const struct row_tree *tree;
	uint32_t branch, leaf, slot;
};
/* The first row whose key is not below. */
void row_tree_seek(const struct row_tree *tree, struct slice key, struct row_cursor *ret_cursor);
/* The row at the cursor, until the tree changes; false: it is behind the last one. */
bool row_cursor_get(
	const struct row_cursor *cursor, struct slice *ret_key, struct slice *ret_value);
void row_cursor_next(struct row_cursor *cursor);
void row_cursor_end(struct row_cursor *cursor); /* to behind the last row */
/* Over so many rows, or to behind the last one, leaf by leaf; false: there are fewer. */
bool row_cursor_skip(struct row_cursor *cursor, uint32_t rows);

#endif
