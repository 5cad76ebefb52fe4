/* s3/object/origin_list.c: one page of the origin's keys, merged with those that are here. The
 * origin's answer is outside input: keys that this server cannot have are left out. */
#include "s3/object/origin_list.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "s3/core/answer.h"
#include "s3/core/xml_in.h"
#include "s3/object/origin.h"

struct entry {
	struct slice key; /* or a common prefix */
	bool is_prefix;
	const struct s3_xml *node;
};

struct page {
	struct s3_list *list;
	store_list_visit_fn *visit;
	struct entry *entries; /* of the origin, in order */
	uint32_t count, next;
	bool truncated; /* the origin has more behind them */
	uint32_t entries_max;
	bool left; /* entries that are here did not fit */
};

bool s3_origin_lists(struct s3_call *call)
{
	struct s3_origin_ask ask;

	return s3_origin_ask_of(call, &ask) &&
	       !slice_eq(s3_call_header(call, SLICE("x-nebulaio-origin")), SLICE("local"));
}

/* ---- The origin's page. ---- */

static void param_put(struct buf *query, const char *name, struct slice prefix, struct slice value)
{
	buf_printf(query, "&%s=", name);
	uri_encode(prefix, 0, query);
	uri_encode(value, 0, query);
}

/* ListObjects skips a common prefix that is its marker; ListObjectsV2 lists it again. But behind a
 * key inside of one only ListObjectsV2 lists that prefix, as a list here does. */
static bool is_version1(const struct s3_list *list, struct slice after)
{
	return list->skips_prefix || (list->delimiter.len && slice_ends(after, list->delimiter));
}

static int query_put(const struct s3_list *list, struct slice prefix,
	const struct store_list_opts *opts, char ret_query[S3_ORIGIN_QUERY_BYTES])
{
	bool version1 = is_version1(list, opts->after);
	struct buf query;
	int ret;

	buf_init(&query, S3_ORIGIN_QUERY_BYTES);
	buf_put_str(&query, "encoding-type=url");
	if (!version1)
		buf_put_str(&query, "&list-type=2");
	param_put(&query, "prefix", prefix, list->prefix);
	if (list->delimiter.len)
		param_put(&query, "delimiter", SLICE_NONE, list->delimiter);
	if (opts->after.len)
		param_put(&query, version1 ? "marker" : "start-after", prefix, opts->after);
	ret = query.failed ? -EMSGSIZE
			   : slice_copy_str(buf_slice(&query), ret_query, S3_ORIGIN_QUERY_BYTES);
	buf_free(&query);
	return ret;
}

static bool key_read(struct s3_call *call, struct slice text, bool encoded, struct slice prefix,
	struct slice *ret_key)
{
	char *key = mem_arena_get(&call->arena, text.len + 1);
	size_t len = text.len;

	if (!key)
		return false;
	slice_copy(text, key);
	if (encoded && uri_decode(text, URI_PLUS_IS_SPACE, key, text.len, &len))
		return false;
	if (!slice_starts(slice_of(key, len), prefix))
		return false;
	*ret_key = slice_from(slice_of(key, len), prefix.len);
	return s3_key_valid(*ret_key);
}

static int by_key(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return slice_cmp(x->key, y->key);
}

/* False: there is no memory. */
static bool page_read(struct s3_call *call, const struct s3_xml *root, struct slice prefix,
	const struct store_list_opts *opts, struct page *page)
{
	bool encoded = slice_eq(s3_xml_text(root, "EncodingType"), SLICE("url"));
	uint32_t count = 0;

	for (const struct s3_xml *node = root->child; node; node = node->next)
		count++;
	page->entries = mem_arena_get(&call->arena, (count + 1) * sizeof(*page->entries));
	page->truncated = slice_eq(s3_xml_text(root, "IsTruncated"), SLICE("true"));
	for (const struct s3_xml *node = root->child; node && page->entries; node = node->next) {
		struct entry *entry = &page->entries[page->count];

		entry->node = node;
		entry->is_prefix = slice_eq(node->name, SLICE("CommonPrefixes"));
		if ((entry->is_prefix || slice_eq(node->name, SLICE("Contents"))) &&
			key_read(call, s3_xml_text(node, entry->is_prefix ? "Prefix" : "Key"),
				encoded, prefix, &entry->key) &&
			slice_cmp(entry->key, opts->after) > 0)
			page->count++;
	}
	if (page->entries)
		qsort(page->entries, page->count, sizeof(*page->entries), by_key);
	return page->entries != NULL;
}

/* ---- Merging. ---- */

static void etag_read(struct slice text, struct store_meta *meta)
{
	text = slice_trim(text);
	if (text.len > 2 && text.data[0] == '"' && text.data[text.len - 1] == '"')
		text = slice_of(text.data + 1, text.len - 2);
	if (slice_is_word(text, "-"))
		(void)slice_copy_str(text, meta->etag, sizeof(meta->etag));
}

static void entry_give(struct page *page, const struct entry *entry)
{
	struct store_meta meta = {0};
	int64_t mtime_ms;

	(void)slice_to_u64(s3_xml_text(entry->node, "Size"), &meta.bytes);
	if (!date_iso_parse(s3_xml_text(entry->node, "LastModified"), &mtime_ms) && mtime_ms > 0)
		meta.mtime_ns = (uint64_t)mtime_ms * NS_PER_MS;
	etag_read(s3_xml_text(entry->node, "ETag"), &meta);
	page->visit(&(struct store_list_entry){.key = entry->key,
			    .is_prefix = entry->is_prefix,
			    .is_latest = true,
			    .meta = &meta},
		page->list);
}

/* The origin's entries before that key; all of them without one. */
static void entries_give(struct page *page, struct slice key)
{
	while (page->next < page->count && page->list->count < page->entries_max &&
		(!key.data || slice_cmp(page->entries[page->next].key, key) < 0))
		entry_give(page, &page->entries[page->next++]);
}

static void visit_here(const struct store_list_entry *entry, void *arg)
{
	struct page *page = arg;

	entries_give(page, entry->key);
	/* Behind the origin's page there may be keys of the origin before this one. */
	if (page->list->count == page->entries_max ||
		(page->next == page->count && page->truncated &&
			slice_cmp(entry->key, page->entries[page->count - 1].key) > 0)) {
		page->left = true;
		return;
	}
	if (page->next < page->count && slice_eq(page->entries[page->next].key, entry->key))
		page->next++;
	page->visit(entry, page->list);
}

static const struct s3_error *merge(
	struct s3_call *call, struct page *page, const struct store_list_opts *opts)
{
	struct store_list_opts here = *opts;
	bool more = false;
	int ret;

	here.visit_anywhere = false;
	ret = store_list(call->s3->store, &here, visit_here, page, &more);
	if (ret)
		return ret == -ENOENT ? s3_error_at(S3_E_NO_SUCH_BUCKET) : s3_fail_errno(call, ret);
	entries_give(page, SLICE_NONE);
	page->list->more = more || page->left || page->truncated || page->next < page->count;
	return NULL;
}

static const struct s3_error *bad_list(struct s3_call *call, const struct s3_origin_ask *ask)
{
	return s3_fail(call, S3_E_ORIGIN_FAILED,
		"The bucket's origin, the target %.*s, answered with something that is no list.",
		SLICE_FMT(ask->origin->target));
}

static const struct s3_error *page_merge(struct s3_call *call, const struct s3_origin_ask *ask,
	struct page *page, const struct store_list_opts *opts, struct slice text)
{
	struct s3_xml *root;
	int ret = s3_xml_parse(text, &call->arena, &root);

	if (ret == -ENOMEM)
		return s3_error_at(S3_E_SLOW_DOWN);
	if (ret || !slice_eq(root->name, SLICE("ListBucketResult")))
		return bad_list(call, ask);
	if (!page_read(call, root, ask->origin->prefix, opts, page))
		return s3_error_at(S3_E_SLOW_DOWN);
	if (page->truncated && !page->count)
		return bad_list(call, ask);
	return merge(call, page, opts);
}

const struct s3_error *s3_origin_list(struct s3_call *call, struct s3_list *list,
	const struct store_list_opts *opts, store_list_visit_fn *visit)
{
	struct page page = {.list = list, .visit = visit, .entries_max = opts->entries_max};
	struct s3_origin_piece piece;
	char *query = mem_arena_get(&call->arena, S3_ORIGIN_QUERY_BYTES);
	struct s3_origin_told *told = mem_arena_get(&call->arena, sizeof(*told));
	const struct s3_origin_hook *hook;
	const struct s3_error *error;
	struct s3_origin_ask ask;

	if (!opts->entries_max)
		return NULL;
	if (!query || !told)
		return s3_error_at(S3_E_SLOW_DOWN);
	if (!s3_origin_ask_of(call, &ask))
		return NULL;
	error = s3_origin_hook_of(call, &ask, &hook);
	if (error)
		return error;
	if (query_put(list, ask.origin->prefix, opts, query))
		return s3_fail(call, S3_E_INVALID_ARGUMENT,
			"prefix, delimiter or marker is longer than a key.");
	hook->ops->list(hook->arg, &ask, query, opts->entries_max, &piece, told);
	error = s3_origin_error(call, told);
	if (error)
		return error == s3_error_at(S3_E_NO_SUCH_KEY) ? bad_list(call, &ask) : error;
	error = page_merge(
		call, &ask, &page, opts, slice_of((const char *)piece.data, piece.bytes));
	hook->ops->direct_free(&piece);
	return error;
}
