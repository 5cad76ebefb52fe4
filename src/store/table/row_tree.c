/* store/table/row_tree.c: the ordered map: a root of branches, branches of leaves, leaves of rows.
 *
 * A leaf is one block: the places of its rows in order of their keys, growing up; the rows, growing
 * down from the end. A deleted row leaves a hole until the leaf is packed. No leaf is empty, no
 * branch either. */
#include "store/table/row_tree.h"

#include "base/base.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BRANCH_LEAVES_MAX 256u

struct row_head {
	uint16_t key_len;
	uint16_t value_len;
};

struct leaf {
	uint16_t count;
	uint16_t dead;	/* bytes of holes */
	uint16_t start; /* of the rows; they reach to the end */
	uint16_t at[];	/* of each row, in order of the keys */
};
#define LEAF_ROOM (ROW_TREE_LEAF_BYTES - sizeof(struct leaf))
_Static_assert(ROW_TREE_LEAF_BYTES <= UINT16_MAX, "places have 16 bits");
_Static_assert(
	3 * (ROW_TREE_ROW_BYTES_MAX + sizeof(struct row_head) + sizeof(uint16_t)) <= LEAF_ROOM,
	"a leaf without room for a row has two others");

struct branch {
	uint32_t count;
	struct leaf *leaves[BRANCH_LEAVES_MAX];
};

struct row_tree {
	struct branch **branches;
	uint32_t count, cap;
	uint32_t leaf_count;
	struct leaf *spare; /* a leaf is packed into it */
};

/* ---- A leaf. ---- */

static struct slice row_key(const struct leaf *leaf, uint32_t slot)
{
	const char *row = (const char *)leaf + leaf->at[slot];
	struct row_head head;

	memcpy(&head, row, sizeof(head));
	return slice_of(row + sizeof(head), head.key_len);
}

static struct slice row_value(const struct leaf *leaf, uint32_t slot)
{
	const char *row = (const char *)leaf + leaf->at[slot];
	struct row_head head;

	memcpy(&head, row, sizeof(head));
	return slice_of(row + sizeof(head) + head.key_len, head.value_len);
}

static size_t row_bytes(const struct leaf *leaf, uint32_t slot)
{
	return sizeof(struct row_head) + row_key(leaf, slot).len + row_value(leaf, slot).len;
}

static void leaf_reset(struct leaf *leaf)
{
	leaf->count = 0;
	leaf->dead = 0;
	leaf->start = ROW_TREE_LEAF_BYTES;
}

/* Bytes between places and rows. */
static size_t leaf_gap(const struct leaf *leaf)
{
	return leaf->start - sizeof(*leaf) - leaf->count * sizeof(leaf->at[0]);
}

/* Bytes that the rows take, holes left out. */
static size_t leaf_live(const struct leaf *leaf)
{
	return LEAF_ROOM - leaf_gap(leaf) - leaf->dead;
}

/* The first slot whose key is not below. */
static uint32_t leaf_find(const struct leaf *leaf, struct slice key)
{
	uint32_t from = 0, to = leaf->count;

	while (from < to) {
		uint32_t middle = (from + to) / 2;

		if (slice_cmp(row_key(leaf, middle), key) < 0)
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

static bool leaf_has(const struct leaf *leaf, uint32_t slot, struct slice key)
{
	return slot < leaf->count && slice_eq(row_key(leaf, slot), key);
}

/* There is room. */
static void leaf_insert(struct leaf *leaf, uint32_t slot, struct slice key, struct slice value)
{
	const struct row_head head = {
		.key_len = (uint16_t)key.len, .value_len = (uint16_t)value.len};
	char *row;

	leaf->start = (uint16_t)(leaf->start - sizeof(head) - key.len - value.len);
	row = (char *)leaf + leaf->start;
	memcpy(row, &head, sizeof(head));
	if (key.len)
		memcpy(row + sizeof(head), key.data, key.len);
	if (value.len)
		memcpy(row + sizeof(head) + key.len, value.data, value.len);
	memmove(&leaf->at[slot + 1], &leaf->at[slot], (leaf->count - slot) * sizeof(leaf->at[0]));
	leaf->at[slot] = leaf->start;
	leaf->count++;
}

static void leaf_remove(struct leaf *leaf, uint32_t slot)
{
	leaf->dead = (uint16_t)(leaf->dead + row_bytes(leaf, slot));
	leaf->count--;
	memmove(&leaf->at[slot], &leaf->at[slot + 1], (leaf->count - slot) * sizeof(leaf->at[0]));
}

/* Appends the slots [from, to) of another leaf. */
static void leaf_take(struct leaf *leaf, const struct leaf *other, uint32_t from, uint32_t to)
{
	for (uint32_t slot = from; slot < to; slot++)
		leaf_insert(leaf, leaf->count, row_key(other, slot), row_value(other, slot));
}

/* ---- Branches and leaves. ---- */

static struct leaf **leaf_at(const struct row_tree *tree, const struct row_cursor *at)
{
	return &tree->branches[at->branch]->leaves[at->leaf];
}

/* The leaf that has the key, or would have it; the tree is not empty. */
static void leaf_seek(const struct row_tree *tree, struct slice key, struct row_cursor *ret_at)
{
	uint32_t from = 0, to = tree->count;
	const struct branch *branch;

	*ret_at = (struct row_cursor){.tree = tree};
	/* The last one that does not begin above the key. */
	while (to - from > 1) {
		uint32_t middle = (from + to) / 2;

		if (slice_cmp(row_key(tree->branches[middle]->leaves[0], 0), key) <= 0)
			from = middle;
		else
			to = middle;
	}
	ret_at->branch = from;
	branch = tree->branches[from];
	for (from = 0, to = branch->count; to - from > 1;) {
		uint32_t middle = (from + to) / 2;

		if (slice_cmp(row_key(branch->leaves[middle], 0), key) <= 0)
			from = middle;
		else
			to = middle;
	}
	ret_at->leaf = from;
}

static int branch_insert(struct row_tree *tree, uint32_t at, struct branch *branch)
{
	if (tree->count == tree->cap) {
		uint32_t cap = MAX(tree->cap * 2, 8u);
		struct branch **grown =
			(struct branch **)realloc(tree->branches, cap * sizeof(struct branch *));

		if (!grown)
			return -ENOMEM;
		tree->branches = grown;
		tree->cap = cap;
	}
	memmove(&tree->branches[at + 1], &tree->branches[at],
		(tree->count - at) * sizeof(struct branch *));
	tree->branches[at] = branch;
	tree->count++;
	return 0;
}

/* Moves a full branch's upper half, or nothing of the last branch, into a new branch behind it, and
 * the place with it. */
static int branch_split(struct row_tree *tree, struct row_cursor *at)
{
	struct branch *full = tree->branches[at->branch];
	struct branch *branch = (struct branch *)malloc(sizeof(*branch));
	uint32_t keep = at->branch + 1 == tree->count && at->leaf == full->count ? full->count - 1
										 : full->count / 2;

	if (!branch)
		return -ENOMEM;
	if (branch_insert(tree, at->branch + 1, branch)) {
		free(branch);
		return -ENOMEM;
	}
	branch->count = full->count - keep;
	memcpy(branch->leaves, &full->leaves[keep], branch->count * sizeof(struct leaf *));
	full->count = keep;
	if (at->leaf > keep) {
		at->branch++;
		at->leaf -= keep;
	}
	return 0;
}

/* A new, empty leaf at that place, which must get a row; on success *at is where it is. */
static int leaf_open(struct row_tree *tree, struct row_cursor *at)
{
	struct leaf *leaf = (struct leaf *)malloc(ROW_TREE_LEAF_BYTES);
	struct branch *branch;

	if (!leaf)
		return -ENOMEM;
	if (tree->branches[at->branch]->count == BRANCH_LEAVES_MAX && branch_split(tree, at)) {
		free(leaf);
		return -ENOMEM;
	}
	branch = tree->branches[at->branch];
	memmove(&branch->leaves[at->leaf + 1], &branch->leaves[at->leaf],
		(branch->count - at->leaf) * sizeof(struct leaf *));
	branch->leaves[at->leaf] = leaf;
	branch->count++;
	tree->leaf_count++;
	leaf_reset(leaf);
	return 0;
}

/* Takes the leaf out and frees it; its branch, too, if it was the last one there. */
static void leaf_close(struct row_tree *tree, const struct row_cursor *at)
{
	struct branch *branch = tree->branches[at->branch];

	free(branch->leaves[at->leaf]);
	tree->leaf_count--;
	branch->count--;
	memmove(&branch->leaves[at->leaf], &branch->leaves[at->leaf + 1],
		(branch->count - at->leaf) * sizeof(struct leaf *));
	if (branch->count)
		return;
	free(branch);
	tree->count--;
	memmove(&tree->branches[at->branch], &tree->branches[at->branch + 1],
		(tree->count - at->branch) * sizeof(struct branch *));
}

static void leaf_pack(struct row_tree *tree, const struct row_cursor *at)
{
	struct leaf **place = leaf_at(tree, at), *holed = *place;

	leaf_reset(tree->spare);
	leaf_take(tree->spare, holed, 0, holed->count);
	*place = tree->spare;
	tree->spare = holed;
}

/* The leaf's upper half goes to a new leaf behind it. */
static int leaf_split(struct row_tree *tree, const struct row_cursor *at)
{
	struct leaf *full = *leaf_at(tree, at);
	struct row_cursor behind = *at;
	uint32_t keep = full->count / 2u;
	int ret;

	behind.leaf++;
	ret = leaf_open(tree, &behind);
	if (ret)
		return ret;
	leaf_take(*leaf_at(tree, &behind), full, keep, full->count);
	while (full->count > keep)
		leaf_remove(full, full->count - 1u);
	return 0;
}

/* Joins the leaf and the next one of its branch, if both fit into one with some room left. */
static bool leaf_join(struct row_tree *tree, const struct row_cursor *at)
{
	struct row_cursor behind = *at;
	const struct leaf *upper;

	behind.leaf++;
	if (behind.leaf == tree->branches[at->branch]->count)
		return false;
	upper = *leaf_at(tree, &behind);
	if (leaf_live(*leaf_at(tree, at)) + leaf_live(upper) > LEAF_ROOM / 4 * 3)
		return false;
	leaf_pack(tree, at);
	leaf_take(*leaf_at(tree, at), upper, 0, upper->count);
	leaf_close(tree, &behind);
	return true;
}

/* ---- The tree. ---- */

int row_tree_open(struct row_tree **ret_tree)
{
	struct row_tree *tree = (struct row_tree *)calloc(1, sizeof(*tree));

	if (!tree)
		return -ENOMEM;
	tree->spare = (struct leaf *)malloc(ROW_TREE_LEAF_BYTES);
	if (!tree->spare) {
		free(tree);
		return -ENOMEM;
	}
	*ret_tree = tree;
	return 0;
}

void row_tree_close(struct row_tree *tree)
{
	if (!tree)
		return;
	for (uint32_t i = 0; i < tree->count; i++) {
		for (uint32_t leaf = 0; leaf < tree->branches[i]->count; leaf++)
			free(tree->branches[i]->leaves[leaf]);
		free(tree->branches[i]);
	}
	free(tree->branches);
	free(tree->spare);
	free(tree);
}

/* A branch without a leaf, which must follow. */
static int branch_open(struct row_tree *tree)
{
	struct branch *branch = (struct branch *)malloc(sizeof(*branch));

	if (!branch)
		return -ENOMEM;
	branch->count = 0;
	if (branch_insert(tree, tree->count, branch)) {
		free(branch);
		return -ENOMEM;
	}
	return 0;
}

/* A row in a new leaf behind all others. */
static int row_append(struct row_tree *tree, struct slice key, struct slice value)
{
	struct row_cursor at = {.tree = tree};
	int ret = tree->count ? 0 : branch_open(tree);

	if (ret)
		return ret;
	at.branch = tree->count - 1;
	at.leaf = tree->branches[at.branch]->count;
	ret = leaf_open(tree, &at);
	if (!ret) {
		leaf_insert(*leaf_at(tree, &at), 0, key, value);
	} else if (!tree->branches[at.branch]->count) {
		free(tree->branches[at.branch]);
		tree->count--;
	}
	return ret;
}

static bool is_end(const struct row_cursor *at)
{
	const struct branch *branch = at->tree->branches[at->branch];

	return at->branch + 1 == at->tree->count && at->leaf + 1 == branch->count &&
	       at->slot == branch->leaves[at->leaf]->count;
}

int row_tree_put(struct row_tree *tree, struct slice key, struct slice value)
{
	size_t bytes = sizeof(struct row_head) + key.len + value.len;
	size_t needed = bytes + sizeof(uint16_t);

	if (key.len + value.len > ROW_TREE_ROW_BYTES_MAX)
		return -E2BIG;
	if (!tree->count)
		return row_append(tree, key, value);
	for (;;) {
		struct row_cursor at;
		struct leaf *leaf;
		size_t freed = 0;
		int ret;

		leaf_seek(tree, key, &at);
		leaf = *leaf_at(tree, &at);
		at.slot = leaf_find(leaf, key);
		if (leaf_has(leaf, at.slot, key))
			freed = row_bytes(leaf, at.slot) + sizeof(uint16_t);
		if (leaf_gap(leaf) + leaf->dead + freed >= needed) {
			if (freed)
				leaf_remove(leaf, at.slot);
			if (leaf_gap(leaf) < needed)
				leaf_pack(tree, &at);
			leaf_insert(*leaf_at(tree, &at), at.slot, key, value);
			return 0;
		}
		/* Rows that come in order fill their leaves. */
		if (is_end(&at))
			return row_append(tree, key, value);
		ret = leaf_split(tree, &at);
		if (ret)
			return ret;
	}
}

void row_tree_delete(struct row_tree *tree, struct slice key)
{
	struct row_cursor at;
	struct leaf *leaf;

	if (!tree->count)
		return;
	leaf_seek(tree, key, &at);
	leaf = *leaf_at(tree, &at);
	at.slot = leaf_find(leaf, key);
	if (!leaf_has(leaf, at.slot, key))
		return;
	leaf_remove(leaf, at.slot);
	if (!leaf->count) {
		leaf_close(tree, &at);
	} else if (leaf_live(leaf) < LEAF_ROOM / 4 && !leaf_join(tree, &at) && at.leaf) {
		at.leaf--;
		(void)leaf_join(tree, &at);
	}
}

bool row_tree_tail(const struct row_tree *tree, struct slice *ret_key)
{
	const struct branch *branch;

	if (!tree->count)
		return false;
	branch = tree->branches[tree->count - 1];
	*ret_key = row_key(branch->leaves[branch->count - 1], 0);
	return true;
}

void row_tree_cut(struct row_tree *tree)
{
	struct row_cursor at = {.tree = tree};

	if (!tree->count)
		return;
	at.branch = tree->count - 1;
	at.leaf = tree->branches[at.branch]->count - 1;
	leaf_close(tree, &at);
}

uint64_t row_tree_bytes(const struct row_tree *tree)
{
	return sizeof(*tree) + (tree->leaf_count + 1ull) * ROW_TREE_LEAF_BYTES +
	       tree->count * sizeof(struct branch) + tree->cap * sizeof(struct branch *);
}

/* ---- Walks. ---- */

/* From behind a leaf's last row to the next leaf's first one. */
static void cursor_settle(struct row_cursor *cursor)
{
	const struct branch *branch = cursor->tree->branches[cursor->branch];

	if (cursor->slot < branch->leaves[cursor->leaf]->count)
		return;
	cursor->slot = 0;
	if (++cursor->leaf < branch->count)
		return;
	cursor->leaf = 0;
	cursor->branch++;
}

void row_tree_seek(const struct row_tree *tree, struct slice key, struct row_cursor *ret_cursor)
{
	*ret_cursor = (struct row_cursor){.tree = tree};
	if (!tree->count)
		return;
	leaf_seek(tree, key, ret_cursor);
	ret_cursor->slot = leaf_find(*leaf_at(tree, ret_cursor), key);
	cursor_settle(ret_cursor);
}

bool row_cursor_get(const struct row_cursor *cursor, struct slice *ret_key, struct slice *ret_value)
{
	const struct leaf *leaf;

	if (cursor->branch >= cursor->tree->count)
		return false;
	leaf = *leaf_at(cursor->tree, cursor);
	*ret_key = row_key(leaf, cursor->slot);
	*ret_value = row_value(leaf, cursor->slot);
	return true;
}

void row_cursor_next(struct row_cursor *cursor)
{
	cursor->slot++;
	cursor_settle(cursor);
}

void row_cursor_end(struct row_cursor *cursor)
{
	cursor->branch = cursor->tree->count;
}

bool row_cursor_skip(struct row_cursor *cursor, uint32_t rows)
{
	while (rows && cursor->branch < cursor->tree->count) {
		uint32_t step = MIN(rows, (*leaf_at(cursor->tree, cursor))->count - cursor->slot);

		cursor->slot += step;
		rows -= step;
		cursor_settle(cursor);
	}
	return !rows;
}
