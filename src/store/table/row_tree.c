/* store/table/row_tree.c: the ordered map: a root of branches, branches of leaves, leaves of rows.
 *
 * A leaf is one block: slots of its rows in order of their keys, growing up; the rows, growing down
 * from the end. A deleted row leaves a hole until the leaf is packed. No leaf is empty, no branch
 * either.
 *
 * A search reads few keys, because each is a cache miss: beside each place is a head, the first
 * bytes of the key behind those that all keys here have in common. Only equal heads need keys. */
#include "store/table/row_tree.h"

#include "base/base.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BRANCH_LEAVES_MAX 256u

struct row_head {
	uint16_t key_len;
	uint16_t value_len;
};

/* A row's place in its leaf, and 6 bytes of its key above that. */
#define SLOT_AT(slot)	((slot)&UINT16_MAX)
#define SLOT_HEAD(slot) ((slot) >> 16)

struct leaf {
	uint16_t count;
	uint16_t dead;	/* bytes of holes */
	uint16_t start; /* of the rows; they reach to the end */
	uint16_t skip;	/* so many first bytes are the same in all keys */
	uint64_t slots[];
};
#define LEAF_ROOM (ROW_TREE_LEAF_BYTES - sizeof(struct leaf))
_Static_assert(ROW_TREE_LEAF_BYTES <= UINT16_MAX, "places have 16 bits");
_Static_assert(
	3 * (ROW_TREE_ROW_BYTES_MAX + sizeof(struct row_head) + sizeof(uint64_t)) <= LEAF_ROOM,
	"a leaf without room for a row has two others");

/* A leaf or a branch, and 8 bytes of its first key. */
struct child {
	uint64_t head;
	void *below;
};

/* The root, or a branch. */
struct node {
	uint32_t count, cap;
	uint32_t skip; /* so many first bytes are the same in all first keys */
	struct slice (*first)(const void *below); /* a child's first key */
	struct child *children;
};

struct branch {
	struct node node;
	struct child room[BRANCH_LEAVES_MAX];
};

struct row_tree {
	struct node root;
	uint32_t leaf_count;
	struct leaf *spare; /* a leaf is packed into it */
};

/* ---- Heads of keys. ---- */

/* Up to 8 bytes behind the skipped ones, the first one the most significant. A shorter key is
 * filled up with zeros, so its head may be that of a longer one. */
static uint64_t head_of(struct slice key, size_t skip)
{
	uint64_t head = 0;
	size_t bytes = key.len - MIN(key.len, skip);

	if (!bytes)
		return 0;
	memcpy(&head, key.data + skip, MIN(bytes, sizeof(head)));
	return be64toh(head);
}

/* How many first bytes two keys have in common. */
static size_t common(struct slice a, struct slice b)
{
	size_t bytes = MIN(a.len, b.len), at = 0;

	while (at < bytes && a.data[at] == b.data[at])
		at++;
	return at;
}

/* Whether a key is below all keys that begin with the skipped bytes of `one`, above all of them
 * (-1, 1), or begins with them, too (0). */
static int beside(struct slice key, struct slice one, size_t skip)
{
	size_t bytes = MIN(key.len, skip);
	int order = bytes ? memcmp(key.data, one.data, bytes) : 0;

	return order ? order : key.len < skip ? -1 : 0;
}

/* ---- A leaf. ---- */

static struct slice row_key(const struct leaf *leaf, uint32_t slot)
{
	const char *row = (const char *)leaf + SLOT_AT(leaf->slots[slot]);
	struct row_head head;

	memcpy(&head, row, sizeof(head));
	return slice_of(row + sizeof(head), head.key_len);
}

static struct slice row_value(const struct leaf *leaf, uint32_t slot)
{
	const char *row = (const char *)leaf + SLOT_AT(leaf->slots[slot]);
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
	leaf->skip = UINT16_MAX; /* as much as the first key has */
}

/* Bytes between slots and rows. */
static size_t leaf_gap(const struct leaf *leaf)
{
	return leaf->start - sizeof(*leaf) - leaf->count * sizeof(leaf->slots[0]);
}

/* Bytes that the rows take, holes left out. */
static size_t leaf_live(const struct leaf *leaf)
{
	return LEAF_ROOM - leaf_gap(leaf) - leaf->dead;
}

static uint64_t slot_of(const struct leaf *leaf, struct slice key, uint32_t at)
{
	return (head_of(key, leaf->skip) & ~(uint64_t)UINT16_MAX) | at;
}

/* The first slot whose head is not below. */
static uint32_t head_find(const struct leaf *leaf, uint64_t head)
{
	uint32_t from = 0, to = leaf->count;

	while (from < to) {
		uint32_t middle = (from + to) / 2;

		if (SLOT_HEAD(leaf->slots[middle]) < head)
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

/* The first slot whose key is not below. */
static uint32_t leaf_find(const struct leaf *leaf, struct slice key)
{
	uint64_t head;
	uint32_t from, to;
	int order;

	if (!leaf->count)
		return 0;
	order = beside(key, row_key(leaf, 0), leaf->skip);
	if (order)
		return order < 0 ? 0 : leaf->count;
	head = SLOT_HEAD(slot_of(leaf, key, 0));
	from = head_find(leaf, head);
	to = from < leaf->count && SLOT_HEAD(leaf->slots[from]) == head ? head_find(leaf, head + 1)
									: from;
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

static void leaf_skip(struct leaf *leaf, size_t skip)
{
	leaf->skip = (uint16_t)skip;
	for (uint32_t slot = 0; slot < leaf->count; slot++)
		leaf->slots[slot] = slot_of(leaf, row_key(leaf, slot), SLOT_AT(leaf->slots[slot]));
}

/* There is room. */
static void leaf_insert(struct leaf *leaf, uint32_t slot, struct slice key, struct slice value)
{
	const struct row_head head = {
		.key_len = (uint16_t)key.len, .value_len = (uint16_t)value.len};
	size_t skip = leaf->count ? common(key, slice_to(row_key(leaf, 0), leaf->skip))
				  : MIN(key.len, leaf->skip);
	char *row;

	if (skip != leaf->skip)
		leaf_skip(leaf, skip);
	leaf->start = (uint16_t)(leaf->start - sizeof(head) - key.len - value.len);
	row = (char *)leaf + leaf->start;
	memcpy(row, &head, sizeof(head));
	if (key.len)
		memcpy(row + sizeof(head), key.data, key.len);
	if (value.len)
		memcpy(row + sizeof(head) + key.len, value.data, value.len);
	memmove(&leaf->slots[slot + 1], &leaf->slots[slot],
		(leaf->count - slot) * sizeof(leaf->slots[0]));
	leaf->slots[slot] = slot_of(leaf, key, leaf->start);
	leaf->count++;
}

/* Another value, not a longer one, in the place of the slot's. */
static void leaf_replace(struct leaf *leaf, uint32_t slot, struct slice value)
{
	char *row = (char *)leaf + SLOT_AT(leaf->slots[slot]);
	struct row_head head;

	memcpy(&head, row, sizeof(head));
	leaf->dead = (uint16_t)(leaf->dead + head.value_len - value.len);
	head.value_len = (uint16_t)value.len;
	memcpy(row, &head, sizeof(head));
	if (value.len)
		memcpy(row + sizeof(head) + head.key_len, value.data, value.len);
}

static void leaf_remove(struct leaf *leaf, uint32_t slot)
{
	leaf->dead = (uint16_t)(leaf->dead + row_bytes(leaf, slot));
	leaf->count--;
	memmove(&leaf->slots[slot], &leaf->slots[slot + 1],
		(leaf->count - slot) * sizeof(leaf->slots[0]));
}

/* Appends the slots [from, to) of another leaf, at least one. */
static void leaf_take(struct leaf *leaf, const struct leaf *other, uint32_t from, uint32_t to)
{
	struct slice first = row_key(leaf->count ? leaf : other, leaf->count ? 0 : from);

	leaf_skip(leaf, common(first, row_key(other, to - 1)));
	for (uint32_t slot = from; slot < to; slot++)
		leaf_insert(leaf, leaf->count, row_key(other, slot), row_value(other, slot));
}

/* ---- The root and the branches. ---- */

static struct slice leaf_first(const void *leaf)
{
	return row_key((const struct leaf *)leaf, 0);
}

static struct slice branch_first(const void *branch)
{
	return leaf_first(((const struct branch *)branch)->node.children[0].below);
}

static struct slice node_first(const struct node *node, uint32_t child)
{
	return node->first(node->children[child].below);
}

/* After children have come or gone. */
static void node_heads(struct node *node)
{
	if (!node->count)
		return;
	node->skip = (uint32_t)common(node_first(node, 0), node_first(node, node->count - 1));
	for (uint32_t i = 0; i < node->count; i++)
		node->children[i].head = head_of(node_first(node, i), node->skip);
}

/* After the child's first key has changed, within the order. */
static void node_head(struct node *node, uint32_t child)
{
	struct slice key = node_first(node, child);
	struct slice other = node_first(node, child ? 0 : node->count - 1);

	if (node->count > 1 && common(key, other) >= node->skip)
		node->children[child].head = head_of(key, node->skip);
	else
		node_heads(node);
}

/* The last child that does not begin above the key, or the first one; there is one. */
static uint32_t node_find(const struct node *node, struct slice key)
{
	int order = beside(key, node_first(node, 0), node->skip);
	uint64_t head;
	uint32_t from = 0, to = node->count;

	if (order)
		return order < 0 ? 0 : node->count - 1;
	head = head_of(key, node->skip);
	while (to - from > 1) {
		uint32_t middle = (from + to) / 2;
		uint64_t there = node->children[middle].head;

		if (there < head ||
			(there == head && slice_cmp(node_first(node, middle), key) <= 0))
			from = middle;
		else
			to = middle;
	}
	return from;
}

/* There is room. */
static void node_insert(struct node *node, uint32_t at, void *below)
{
	memmove(&node->children[at + 1], &node->children[at],
		(node->count - at) * sizeof(struct child));
	node->children[at] = (struct child){.below = below};
	node->count++;
}

static void node_remove(struct node *node, uint32_t at)
{
	node->count--;
	memmove(&node->children[at], &node->children[at + 1],
		(node->count - at) * sizeof(struct child));
}

static struct node *branch_at(const struct row_tree *tree, uint32_t branch)
{
	return &((struct branch *)tree->root.children[branch].below)->node;
}

static struct leaf *leaf_at(const struct row_tree *tree, const struct row_cursor *at)
{
	return (struct leaf *)branch_at(tree, at->branch)->children[at->leaf].below;
}

/* The leaf that has the key, or would have it; the tree is not empty. */
static void leaf_seek(const struct row_tree *tree, struct slice key, struct row_cursor *ret_at)
{
	*ret_at = (struct row_cursor){.tree = tree};
	ret_at->branch = node_find(&tree->root, key);
	ret_at->leaf = node_find(branch_at(tree, ret_at->branch), key);
}

/* After the leaf's first key has changed. */
static void leaf_first_changed(struct row_tree *tree, const struct row_cursor *at)
{
	node_head(branch_at(tree, at->branch), at->leaf);
	if (!at->leaf)
		node_head(&tree->root, at->branch);
}

/* A new branch at that place, without a leaf. */
static int branch_open(struct row_tree *tree, uint32_t at)
{
	struct node *root = &tree->root;
	struct branch *branch;

	if (root->count == root->cap) {
		uint32_t cap = MAX(root->cap * 2, 8u);
		struct child *grown =
			(struct child *)realloc(root->children, cap * sizeof(struct child));

		if (!grown)
			return -ENOMEM;
		root->children = grown;
		root->cap = cap;
	}
	branch = (struct branch *)malloc(sizeof(*branch));
	if (!branch)
		return -ENOMEM;
	branch->node = (struct node){
		.cap = BRANCH_LEAVES_MAX, .first = leaf_first, .children = branch->room};
	node_insert(root, at, branch);
	return 0;
}

/* Takes an empty branch out. */
static void branch_close(struct row_tree *tree, uint32_t at)
{
	free(tree->root.children[at].below);
	node_remove(&tree->root, at);
}

/* Moves a full branch's upper half to a new branch behind it, and the place with it; of the last
 * branch only the last leaf, because rows may come in order. */
static int branch_split(struct row_tree *tree, struct row_cursor *at)
{
	struct node *full = branch_at(tree, at->branch), *behind;
	uint32_t keep = at->branch + 1 == tree->root.count && at->leaf == full->count
				? full->count - 1
				: full->count / 2;
	int ret = branch_open(tree, at->branch + 1);

	if (ret)
		return ret;
	behind = branch_at(tree, at->branch + 1);
	behind->count = full->count - keep;
	memcpy(behind->children, &full->children[keep], behind->count * sizeof(struct child));
	full->count = keep;
	node_heads(full);
	node_heads(behind);
	node_heads(&tree->root);
	if (at->leaf > keep) {
		at->branch++;
		at->leaf -= keep;
	}
	return 0;
}

/* A new leaf at that place, without a row: one must follow, and the branch's heads. On success *at
 * is where it is. */
static int leaf_open(struct row_tree *tree, struct row_cursor *at)
{
	struct leaf *leaf = (struct leaf *)malloc(ROW_TREE_LEAF_BYTES);

	if (!leaf)
		return -ENOMEM;
	if (branch_at(tree, at->branch)->count == BRANCH_LEAVES_MAX && branch_split(tree, at)) {
		free(leaf);
		return -ENOMEM;
	}
	leaf_reset(leaf);
	node_insert(branch_at(tree, at->branch), at->leaf, leaf);
	tree->leaf_count++;
	return 0;
}

/* Takes the leaf out and frees it; its branch, too, if it was the last one there. */
static void leaf_close(struct row_tree *tree, const struct row_cursor *at)
{
	struct node *branch = branch_at(tree, at->branch);

	free(leaf_at(tree, at));
	tree->leaf_count--;
	node_remove(branch, at->leaf);
	if (!branch->count)
		branch_close(tree, at->branch);
	else
		node_heads(branch);
	if (!at->leaf)
		node_heads(&tree->root);
}

static void leaf_pack(struct row_tree *tree, const struct row_cursor *at)
{
	struct child *place = &branch_at(tree, at->branch)->children[at->leaf];
	struct leaf *holed = (struct leaf *)place->below;

	leaf_reset(tree->spare);
	if (holed->count)
		leaf_take(tree->spare, holed, 0, holed->count);
	place->below = tree->spare;
	tree->spare = holed;
}

/* The leaf's upper half goes to a new leaf behind it. */
static int leaf_split(struct row_tree *tree, const struct row_cursor *at)
{
	struct leaf *full = leaf_at(tree, at);
	struct row_cursor behind = *at;
	uint32_t keep = full->count / 2u;
	int ret;

	behind.leaf++;
	ret = leaf_open(tree, &behind);
	if (ret)
		return ret;
	leaf_take(leaf_at(tree, &behind), full, keep, full->count);
	while (full->count > keep)
		leaf_remove(full, full->count - 1u);
	node_heads(branch_at(tree, behind.branch));
	return 0;
}

/* Joins the leaf and the next one of its branch, if both fit into one with some room left. */
static bool leaf_join(struct row_tree *tree, const struct row_cursor *at)
{
	struct row_cursor behind = *at;
	const struct leaf *upper;

	behind.leaf++;
	if (behind.leaf == branch_at(tree, at->branch)->count)
		return false;
	upper = leaf_at(tree, &behind);
	if (leaf_live(leaf_at(tree, at)) + leaf_live(upper) > LEAF_ROOM / 4 * 3)
		return false;
	leaf_pack(tree, at);
	leaf_take(leaf_at(tree, at), upper, 0, upper->count);
	leaf_close(tree, &behind);
	return true;
}

/* ---- The tree. ---- */

int row_tree_open(struct row_tree **ret_tree)
{
	struct row_tree *tree = (struct row_tree *)calloc(1, sizeof(*tree));

	if (!tree)
		return -ENOMEM;
	tree->root.first = branch_first;
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
	for (uint32_t i = 0; i < tree->root.count; i++) {
		const struct node *branch = branch_at(tree, i);

		for (uint32_t leaf = 0; leaf < branch->count; leaf++)
			free(branch->children[leaf].below);
		free(tree->root.children[i].below);
	}
	free(tree->root.children);
	free(tree->spare);
	free(tree);
}

/* A row in a new leaf behind all others. */
static int row_append(struct row_tree *tree, struct slice key, struct slice value)
{
	struct row_cursor at = {.tree = tree};
	int ret = tree->root.count ? 0 : branch_open(tree, 0);

	if (ret)
		return ret;
	at.branch = tree->root.count - 1;
	at.leaf = branch_at(tree, at.branch)->count;
	ret = leaf_open(tree, &at);
	if (!ret) {
		leaf_insert(leaf_at(tree, &at), 0, key, value);
		node_heads(branch_at(tree, at.branch));
		if (!at.leaf)
			node_heads(&tree->root);
	} else if (!branch_at(tree, at.branch)->count) {
		branch_close(tree, at.branch);
	}
	return ret;
}

static bool is_end(const struct row_cursor *at)
{
	return at->branch + 1 == at->tree->root.count &&
	       at->leaf + 1 == branch_at(at->tree, at->branch)->count &&
	       at->slot == leaf_at(at->tree, at)->count;
}

int row_tree_put(struct row_tree *tree, struct slice key, struct slice value)
{
	size_t bytes = sizeof(struct row_head) + key.len + value.len;
	size_t needed = bytes + sizeof(uint64_t);

	if (key.len + value.len > ROW_TREE_ROW_BYTES_MAX)
		return -E2BIG;
	if (!tree->root.count)
		return row_append(tree, key, value);
	for (;;) {
		struct row_cursor at;
		struct leaf *leaf;
		size_t freed = 0;
		int ret;

		leaf_seek(tree, key, &at);
		leaf = leaf_at(tree, &at);
		at.slot = leaf_find(leaf, key);
		if (leaf_has(leaf, at.slot, key)) {
			if (value.len <= row_value(leaf, at.slot).len) {
				leaf_replace(leaf, at.slot, value);
				return 0;
			}
			freed = row_bytes(leaf, at.slot) + sizeof(uint64_t);
		}
		if (leaf_gap(leaf) + leaf->dead + freed >= needed) {
			if (freed)
				leaf_remove(leaf, at.slot);
			if (leaf_gap(leaf) < needed)
				leaf_pack(tree, &at);
			leaf_insert(leaf_at(tree, &at), at.slot, key, value);
			if (!at.slot && !freed)
				leaf_first_changed(tree, &at);
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

	if (!tree->root.count)
		return;
	leaf_seek(tree, key, &at);
	leaf = leaf_at(tree, &at);
	at.slot = leaf_find(leaf, key);
	if (!leaf_has(leaf, at.slot, key))
		return;
	leaf_remove(leaf, at.slot);
	if (!leaf->count) {
		leaf_close(tree, &at);
		return;
	}
	if (!at.slot)
		leaf_first_changed(tree, &at);
	if (leaf_live(leaf) < LEAF_ROOM / 4 && !leaf_join(tree, &at) && at.leaf) {
		at.leaf--;
		(void)leaf_join(tree, &at);
	}
}

/* The last leaf of a tree that is not empty. */
static struct row_cursor leaf_last(const struct row_tree *tree)
{
	struct row_cursor at = {.tree = tree, .branch = tree->root.count - 1};

	at.leaf = branch_at(tree, at.branch)->count - 1;
	return at;
}

bool row_tree_tail(const struct row_tree *tree, struct slice *ret_key)
{
	struct row_cursor last;

	if (!tree->root.count)
		return false;
	last = leaf_last(tree);
	*ret_key = row_key(leaf_at(tree, &last), 0);
	return true;
}

void row_tree_cut(struct row_tree *tree)
{
	struct row_cursor last;

	if (!tree->root.count)
		return;
	last = leaf_last(tree);
	leaf_close(tree, &last);
}

uint64_t row_tree_bytes(const struct row_tree *tree)
{
	return sizeof(*tree) + (tree->leaf_count + 1ull) * ROW_TREE_LEAF_BYTES +
	       tree->root.count * sizeof(struct branch) + tree->root.cap * sizeof(struct child);
}

/* ---- Walks. ---- */

/* From behind a leaf's last row to the next leaf's first one. */
static void cursor_settle(struct row_cursor *cursor)
{
	if (cursor->slot < leaf_at(cursor->tree, cursor)->count)
		return;
	cursor->slot = 0;
	if (++cursor->leaf < branch_at(cursor->tree, cursor->branch)->count)
		return;
	cursor->leaf = 0;
	cursor->branch++;
}

void row_tree_seek(const struct row_tree *tree, struct slice key, struct row_cursor *ret_cursor)
{
	*ret_cursor = (struct row_cursor){.tree = tree};
	if (!tree->root.count)
		return;
	leaf_seek(tree, key, ret_cursor);
	ret_cursor->slot = leaf_find(leaf_at(tree, ret_cursor), key);
	cursor_settle(ret_cursor);
}

bool row_cursor_get(const struct row_cursor *cursor, struct slice *ret_key, struct slice *ret_value)
{
	const struct leaf *leaf;

	if (cursor->branch >= cursor->tree->root.count)
		return false;
	leaf = leaf_at(cursor->tree, cursor);
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
	cursor->branch = cursor->tree->root.count;
}

bool row_cursor_skip(struct row_cursor *cursor, uint32_t rows)
{
	while (rows && cursor->branch < cursor->tree->root.count) {
		uint32_t step = MIN(rows, leaf_at(cursor->tree, cursor)->count - cursor->slot);

		cursor->slot += step;
		rows -= step;
		cursor_settle(cursor);
	}
	return !rows;
}
