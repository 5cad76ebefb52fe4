/* store/call/list_versions.c: a page of a bucket's versions: three parallel walks, one over each
 * kind of row, merged by key and then from the newest to the oldest. */
#include "store/call/list_priv.h"
#include "store/commit/commit.h"
#include "store/index/index.h"
#include "store/log/key.h"
#include "store/object/record.h"
#include "store/state/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum cursor_kind { CURSOR_CURRENT, CURSOR_NULL, CURSOR_VERSIONS, CURSORS };

struct cursor {
	enum cursor_kind kind;
	struct index_walk *walk;
	bool ended;
	struct slice key;
	struct slice record;
	uint64_t seq;
	struct object_name name; /* of a version's row */
};

struct merge {
	struct list_page *page;
	struct cursor cursors[CURSORS];
	/* Continuing within a key: the remaining versions are older than this. */
	bool within;
	uint64_t within_seq;
	bool within_all; /* all versions of the key remain */
	/* The key of the last row. */
	bool has_last;
	size_t last_len;
	char last[LIMIT_KEY_LEN_MAX];
};

static void key_from(
	enum cursor_kind kind, struct key *key, uint64_t bucket_id, struct slice prefix)
{
	if (kind == CURSOR_CURRENT)
		key_object(key, bucket_id, prefix);
	else if (kind == CURSOR_NULL)
		key_null(key, bucket_id, prefix);
	else
		key_version_prefix(key, bucket_id, prefix);
}

/* The walk starts at the prefix, at the key that is continued, or behind `after`. */
static void cursor_from(const struct merge *merge, enum cursor_kind kind, struct key *from)
{
	const struct store_list_opts *opts = merge->page->opts;
	struct slice after = slice_to(opts->after, LIMIT_KEY_LEN_MAX);
	uint64_t bucket_id = merge->page->bucket_id;

	if (slice_cmp(after, opts->prefix) < 0 || !after.len) {
		key_from(kind, from, bucket_id, opts->prefix);
		return;
	}
	key_from(kind, from, bucket_id, after);
	if (merge->within)
		return;
	if (store_list_prefix_len(opts, after) == after.len)
		key_successor(from);
	else if (kind != CURSOR_VERSIONS)
		from->bytes[from->len++] = 0; /* the struct has room */
	else {
		key_versions(from, bucket_id, after);
		key_successor(from);
	}
}

static int cursor_load(struct cursor *cursor)
{
	struct slice row;

	cursor->ended = !index_walk_get(cursor->walk, &row, &cursor->record);
	if (cursor->ended)
		return index_walk_error(cursor->walk);
	cursor->key = slice_from(row, 1 + sizeof(uint64_t));
	cursor->seq = UINT64_MAX; /* the current version is the newest */
	if (cursor->kind == CURSOR_NULL)
		cursor->seq = record_seq(cursor->record);
	if (cursor->kind != CURSOR_VERSIONS)
		return 0;
	if (key_version_parse(row, &cursor->name)) {
		log_error("store", "list: a damaged version's key: run fsck");
		return -EIO;
	}
	cursor->key = slice_of(cursor->name.key, cursor->name.key_len);
	cursor->seq = cursor->name.seq;
	return 0;
}

static int cursor_next(struct cursor *cursor)
{
	index_walk_next(cursor->walk);
	return cursor_load(cursor);
}

static int cursors_open(struct merge *merge)
{
	struct index_walk *walks[CURSORS] = {NULL};
	struct list_page *page = merge->page;
	struct key from[CURSORS], to[CURSORS];
	struct index_range ranges[CURSORS];
	int ret;

	for (uint32_t i = 0; i < CURSORS; i++) {
		cursor_from(merge, (enum cursor_kind)i, &from[i]);
		key_from((enum cursor_kind)i, &to[i], page->bucket_id, page->opts->prefix);
		key_successor(&to[i]);
		ranges[i] = (struct index_range){.from = slice_of(from[i].bytes, from[i].len),
			.to = slice_of(to[i].bytes, to[i].len)};
	}
	ret = index_walks_open(page->store->index, ranges, CURSORS, walks);
	for (uint32_t i = 0; i < CURSORS; i++) {
		merge->cursors[i].kind = (enum cursor_kind)i;
		merge->cursors[i].walk = walks[i];
		if (!ret)
			ret = cursor_load(&merge->cursors[i]);
	}
	return ret;
}

static struct cursor *cursors_least(struct merge *merge)
{
	struct cursor *least = NULL;

	for (uint32_t i = 0; i < CURSORS; i++) {
		struct cursor *cursor = &merge->cursors[i];
		int order;

		if (cursor->ended)
			continue;
		order = least ? slice_cmp(cursor->key, least->key) : -1;
		if (order < 0 || (order == 0 && cursor->seq > least->seq))
			least = cursor;
	}
	return least;
}

/* Moves past all keys under a common prefix. */
static int cursors_skip(struct merge *merge, struct slice prefix)
{
	int ret = 0;

	for (uint32_t i = 0; i < CURSORS && !ret; i++) {
		struct cursor *cursor = &merge->cursors[i];
		struct key next;

		if (cursor->ended || !slice_starts(cursor->key, prefix))
			continue;
		key_from(cursor->kind, &next, merge->page->bucket_id, prefix);
		key_successor(&next);
		index_walk_seek(cursor->walk, slice_of(next.bytes, next.len));
		ret = cursor_load(cursor);
	}
	return ret;
}

/* The order of the current version among all versions of its key, past ones included. A null
 * version gets its number when another version follows it: before that it is newer than all. */
static uint64_t current_seq(struct slice record)
{
	uint64_t seq = record_seq(record);

	return seq ? seq : UINT64_MAX;
}

static bool is_null_record(struct slice record)
{
	struct store_meta meta;

	return record_parse_meta(record, &meta) == 0 &&
	       slice_eq(slice_str(meta.version_id), SLICE("null"));
}

/* The order of the null version of `after`, which may be current. 1: found; 0: it was deleted; or
 * -errno. */
static int null_seq(const struct list_page *page, struct slice after, uint64_t *ret_seq)
{
	struct key key;
	char *value = NULL;
	size_t len;
	int found;

	key_null(&key, page->bucket_id, after);
	found = index_get(page->store->index, &key, true, &value, &len);
	if (found > 0)
		*ret_seq = record_seq(slice_of(value, len));
	if (found == 0) {
		key_object(&key, page->bucket_id, after);
		found = index_get(page->store->index, &key, true, &value, &len);
		if (found > 0 && !is_null_record(slice_of(value, len)))
			found = 0;
		else if (found > 0)
			*ret_seq = current_seq(slice_of(value, len));
	}
	free(value);
	return found;
}

/* The order of the version that the page continues behind. If that version was deleted, the one
 * behind it may be current by now. The place of a deleted null version is lost, so all versions of
 * its key are listed, some of them again. */
static int within_find(struct merge *merge)
{
	const struct list_page *page = merge->page;
	struct slice after = slice_to(page->opts->after, LIMIT_KEY_LEN_MAX);
	int found = 1;

	merge->within = after.len && page->opts->version_after.len;
	if (merge->within &&
		!store_version_seq_parse(page->opts->version_after, &merge->within_seq))
		found = null_seq(page, after, &merge->within_seq);
	merge->within_all = found == 0;
	return found < 0 ? found : 0;
}

static bool was_told(const struct merge *merge, const struct cursor *cursor)
{
	if (!merge->within || merge->within_all || !slice_eq(cursor->key, merge->page->opts->after))
		return false;
	return (cursor->kind == CURSOR_CURRENT ? current_seq(cursor->record) : cursor->seq) >=
	       merge->within_seq;
}

/* Adds a version, or skips it because it was on an earlier page. */
static int version_add(struct merge *merge, const struct cursor *cursor)
{
	bool first =
		!merge->has_last || !slice_eq(cursor->key, slice_of(merge->last, merge->last_len));

	if (first) {
		merge->last_len = MIN(cursor->key.len, sizeof(merge->last));
		memcpy(merge->last, cursor->key.data, merge->last_len);
		merge->has_last = true;
	}
	if (was_told(merge, cursor))
		return 0;
	if (merge->page->row_count == merge->page->opts->entries_max) {
		merge->page->more = true;
		return 0;
	}
	return list_page_add(merge->page, cursor->key,
		slice_to(cursor->record, record_meta_bytes(cursor->record)), first);
}

static int merge_run(struct merge *merge)
{
	struct list_page *page = merge->page;
	int ret = within_find(merge);
	struct cursor *least;

	if (!ret)
		ret = cursors_open(merge);
	while (!ret && !page->more && (least = cursors_least(merge))) {
		size_t prefix_len = store_list_prefix_len(page->opts, least->key);

		if (!prefix_len) {
			ret = version_add(merge, least);
			if (!ret)
				ret = cursor_next(least);
		} else if (page->row_count == page->opts->entries_max) {
			page->more = true;
		} else {
			struct key prefix;

			key_object(&prefix, 0, slice_to(least->key, prefix_len));
			least->key = slice_of(prefix.bytes + prefix.len - prefix_len, prefix_len);
			ret = list_page_add(page, least->key, SLICE_NONE, false);
			if (!ret)
				ret = cursors_skip(merge, least->key);
		}
	}
	return ret;
}

void list_versions_run(void *arg)
{
	struct list_page *page = (struct list_page *)arg;
	struct merge merge = {.page = page};

	page->ret = merge_run(&merge);
	for (uint32_t i = 0; i < CURSORS; i++)
		if (merge.cursors[i].walk)
			index_walk_close(merge.cursors[i].walk);
}
