/* store/call/list.c: a page of a bucket's keys in order. The walk runs on a helper thread, since
 * the index may have to read; everything under a common prefix costs one seek. */
#include "store/call/list_priv.h"
#include "store/call/call.h"
#include "store/commit/committer.h"
#include "store/commit/index_apply.h"
#include "store/index/index.h"
#include "store/log/key.h"
#include "store/object/record.h"
#include "store/state/state.h"
#include "store/table/list_table.h"
#include "store/table/table.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define OBJECT_KEY_AT	9u /* where the object's key starts in an index key */
#define ROW_BYTES_GUESS 128u

/* A page of so many entries is filled on the fiber: waking a helper takes longer. */
#define SHORT_ROWS 64u

DEFINE_COUNTER(lists_total, "nebulaio_store_lists_total", NULL, "Pages of keys listed.");
DEFINE_COUNTER(pages_total, "nebulaio_store_list_table_pages_total", NULL,
	"Pages of keys that came from memory.");

/* The walk starts at the prefix, or past `after`, which may itself be a common prefix. */
static void walk_from(const struct list_page *page, struct key *from)
{
	const struct store_list_opts *opts = page->opts;
	struct slice after = slice_to(opts->after, LIMIT_KEY_LEN_MAX);

	if (slice_cmp(after, opts->prefix) < 0 || !after.len) {
		key_object(from, page->bucket_id, opts->prefix);
		return;
	}
	key_object(from, page->bucket_id, after);
	if (store_list_prefix_len(opts, after) == after.len)
		key_successor(from);
	else
		from->bytes[from->len++] =
			0; /* the smallest possible next key; the struct has room */
}

static int page_reserve(struct list_page *page, size_t bytes)
{
	uint32_t rows = page->rows_here ? page->rows_here : page->opts->entries_max;
	size_t cap = MAX(page->bytes_cap * 2, (size_t)rows * ROW_BYTES_GUESS);
	void *grown;

	if (!page->rows) {
		page->rows = (struct list_row *)malloc(rows * sizeof(*page->rows));
		if (!page->rows)
			return -ENOMEM;
	}
	if (page->bytes_len + bytes <= page->bytes_cap)
		return 0;
	cap = MAX(cap, page->bytes_len + bytes);
	grown = realloc(page->bytes, cap);
	if (!grown)
		return -ENOMEM;
	page->bytes = (char *)grown;
	page->bytes_cap = cap;
	return 0;
}

static void row_visit(
	const struct list_page *page, struct slice key, struct slice record, bool latest)
{
	struct store_meta meta;
	const struct store_list_entry entry = {
		.key = key,
		.is_prefix = record.len == 0,
		.is_latest = latest,
		.meta = record.len ? &meta : NULL,
	};

	if (record.len && record_parse_meta(record, &meta))
		log_error("store", "list: skipped a damaged object record: run fsck");
	else
		page->visit(&entry, page->arg);
}

static int row_keep(struct list_page *page, struct slice key, struct slice record, bool latest)
{
	struct list_row *row;
	int ret;

	if (page->rows_here && page->row_count == page->rows_here)
		return -E2BIG;
	ret = page_reserve(page, key.len + record.len);
	if (ret)
		return ret;
	row = &page->rows[page->row_count];
	row->at = (uint32_t)page->bytes_len;
	row->key_len = (uint16_t)key.len;
	row->record_len = (uint16_t)record.len;
	row->latest = latest;
	memcpy(page->bytes + page->bytes_len, key.data, key.len);
	page->bytes_len += key.len;
	if (record.len)
		memcpy(page->bytes + page->bytes_len, record.data, record.len);
	page->bytes_len += record.len;
	return 0;
}

int list_page_add(struct list_page *page, struct slice key, struct slice record, bool latest)
{
	int ret = 0;

	if (page->opts->visit_anywhere && !page->rows_here)
		row_visit(page, key, record, latest);
	else
		ret = row_keep(page, key, record, latest);
	page->row_count += !ret;
	return ret;
}

/* The rows of a page: in memory, or in the index. */
struct page_walk {
	bool in_memory;
	struct list_walk memory;
	struct index_walk *index;
};

static int page_walk_open(
	const struct list_page *page, const struct list_range *range, struct page_walk *ret_walk)
{
	ret_walk->in_memory = list_walk_open(page->store->listed, range, &ret_walk->memory);
	if (ret_walk->in_memory)
		return 0;
	return index_walk_open(page->store->index, slice_of(range->from->bytes, range->from->len),
		slice_of(range->to->bytes, range->to->len), &ret_walk->index);
}

static void page_walk_close(const struct list_page *page, struct page_walk *walk)
{
	if (walk->in_memory) {
		list_walk_close(&walk->memory);
		counter_add(&pages_total, 1);
		return;
	}
	index_walk_close(walk->index);
	if (list_table_missed(page->store->listed, page->bucket_id, page->row_count))
		index_apply_wake(page->store);
}

/* An object's key, and of its record what lists need. */
static bool page_walk_get(
	const struct page_walk *walk, struct slice *ret_key, struct slice *ret_record)
{
	if (walk->in_memory)
		return list_walk_get(&walk->memory, ret_key, ret_record);
	if (!index_walk_get(walk->index, ret_key, ret_record))
		return false;
	*ret_key = slice_from(*ret_key, OBJECT_KEY_AT);
	*ret_record = slice_to(*ret_record, record_meta_bytes(*ret_record));
	return true;
}

static void page_walk_next(struct page_walk *walk)
{
	if (walk->in_memory)
		list_walk_next(&walk->memory);
	else
		index_walk_next(walk->index);
}

static void page_walk_seek(struct page_walk *walk, const struct key *key)
{
	if (walk->in_memory)
		list_walk_seek(&walk->memory, key);
	else
		index_walk_seek(walk->index, slice_of(key->bytes, key->len));
}

static int page_fill(struct list_page *page, struct page_walk *walk)
{
	struct slice key, record;

	while (page_walk_get(walk, &key, &record)) {
		size_t prefix_len = store_list_prefix_len(page->opts, key);
		int ret;

		if (page->row_count == page->opts->entries_max) {
			page->more = true;
			return 0;
		}
		if (prefix_len) {
			struct key next;

			key = slice_to(key, prefix_len);
			key_object(&next, page->bucket_id, key);
			ret = list_page_add(page, key, SLICE_NONE, false);
			if (ret || !key_successor(&next))
				return ret;
			page_walk_seek(walk, &next);
			continue;
		}
		ret = list_page_add(page, key, record, true);
		if (ret)
			return ret;
		page_walk_next(walk);
	}
	return walk->in_memory ? 0 : index_walk_error(walk->index);
}

struct page_range {
	struct key from, to;
	struct list_range range;
};

static void page_range(const struct list_page *page, struct page_range *ret_range)
{
	walk_from(page, &ret_range->from);
	key_object(&ret_range->to, page->bucket_id, page->opts->prefix);
	key_successor(&ret_range->to);
	ret_range->range = (struct list_range){
		.bucket_id = page->bucket_id,
		.from = &ret_range->from,
		.to = &ret_range->to,
		/* One more shows that there are more. */
		.rows = page->opts->entries_max + 1,
		.skips = page->opts->delimiter.len != 0,
		.may_wait = true,
	};
}

static void page_run(void *arg)
{
	struct list_page *page = (struct list_page *)arg;
	struct page_walk walk;
	struct page_range range;

	page_range(page, &range);
	page->ret = page_walk_open(page, &range.range, &walk);
	if (page->ret)
		return;
	page->ret = page_fill(page, &walk);
	page_walk_close(page, &walk);
}

/* As if nothing had been gathered. */
static void page_reset(struct list_page *page)
{
	free(page->rows);
	free(page->bytes);
	page->rows = NULL;
	page->bytes = NULL;
	page->row_count = 0;
	page->bytes_len = page->bytes_cap = 0;
	page->ret = 0;
}

/* Fills a short page that is in memory at once, on the fiber; false: a helper must do it. */
static bool page_short(struct list_page *page)
{
	struct page_walk walk = {.in_memory = true};
	struct page_range range;

	page_range(page, &range);
	range.range.may_wait = false;
	if (!list_walk_open(page->store->listed, &range.range, &walk.memory))
		return false;
	if (!range.range.skips && list_walk_has(&walk.memory, SHORT_ROWS + 1) &&
		page->opts->entries_max > SHORT_ROWS) {
		list_walk_close(&walk.memory);
		return false;
	}
	page->rows_here = SHORT_ROWS;
	page->ret = page_fill(page, &walk);
	page->rows_here = 0;
	if (page->ret == -E2BIG) {
		list_walk_close(&walk.memory);
		page_reset(page);
		return false;
	}
	page_walk_close(page, &walk);
	return true;
}

static void page_visit(const struct list_page *page)
{
	for (uint32_t i = 0; i < page->row_count; i++) {
		const struct list_row *row = &page->rows[i];
		const char *key = page->bytes + row->at;

		row_visit(page, slice_of(key, row->key_len),
			slice_of(key + row->key_len, row->record_len), row->latest);
	}
}

/* Fills a page, then visits its entries. */
static int page_list(struct store *store, struct list_page *page, bool versions)
{
	const struct store_list_opts *opts = page->opts;
	uint64_t seq = atomic_load(&store->committer->published_seq);
	int ret;

	page->store = store;
	page->bucket_id = buckets_find_id_of(store->buckets, opts->bucket);
	if (!page->bucket_id)
		return -ENOENT;
	if (opts->entries_max > LIMIT_LIST_KEYS_MAX)
		return -EINVAL;
	counter_add(&lists_total, 1);
	if (opts->entries_max && opts->prefix.len <= LIMIT_KEY_LEN_MAX) {
		ret = index_apply_wait_or_full(store, seq);
		if (ret)
			return ret;
		if (versions)
			fiber_offload_long(list_versions_run, page);
		else if (!page_short(page))
			fiber_offload_long(page_run, page);
		index_apply_tidy(store);
	}
	/* Entries that were kept; the others have been visited. */
	if (!page->ret && page->rows)
		page_visit(page);
	ret = page->ret;
	page_reset(page);
	return ret;
}

int local_list(struct store *store, const struct store_list_opts *opts, bool versions,
	store_list_visit_fn *visit, void *arg, bool *ret_more)
{
	struct list_page page = {.opts = opts, .visit = visit, .arg = arg};
	int ret = page_list(store, &page, versions);

	if (!ret)
		*ret_more = page.more;
	return ret;
}
