/* origin/evict.c: keeps a bucket within the bound that its origin has: the copies that were read
 * longest ago go. Of a bucket with more than a page of objects those of the page are compared, and
 * the next eviction goes on behind it. */
#include <errno.h>
#include <stdlib.h>

#include "origin/origin_priv.h"
#include "store/api.h"

#define PAGES_MAX 256u /* of one eviction */

DEFINE_COUNTER(evicted, "nebulaio_origin_evicted_total", NULL,
	"Copies that were deleted because their bucket was beyond its bound.");
DEFINE_COUNTER(evicted_bytes, "nebulaio_origin_evicted_bytes_total", NULL, "Bytes of them.");

struct candidate {
	uint64_t used_s, bytes;
	uint32_t at, len; /* its key, in the texts */
};

struct page {
	struct slice bucket;
	struct candidate list[LIMIT_LIST_KEYS_MAX];
	uint32_t count;
	struct buf texts;
};

static void visit(const struct store_list_entry *entry, void *arg)
{
	struct page *page = arg;
	uint64_t stored_s = entry->meta->mtime_ns / NS_PER_S;

	page->list[page->count++] = (struct candidate){
		.used_s = MAX(stored_s, s3_origin_used_s(page->bucket, entry->key)),
		.bytes = entry->meta->bytes,
		.at = (uint32_t)page->texts.len,
		.len = (uint32_t)entry->key.len};
	buf_put_slice(&page->texts, entry->key);
}

static int by_use(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	return x->used_s < y->used_s ? -1 : x->used_s > y->used_s;
}

/* -EBUSY: a client wrote it. */
static int check_copy(const struct store_meta *current, void *arg)
{
	(void)arg;
	return current && s3_origin_is_copy(current) ? 0 : -EBUSY;
}

/* Deletes the first ones until enough is free; *ret_freed: whether any went. */
static void page_evict(struct origin *origin, const struct page *page, uint32_t count,
	uint64_t *beyond, bool *ret_freed)
{
	for (uint32_t i = 0; i < count && *beyond; i++) {
		const struct candidate *one = &page->list[i];
		struct slice key = slice_of(page->texts.data + one->at, one->len);

		if (store_delete(origin->opts.store, page->bucket, key, check_copy, NULL))
			continue;
		*ret_freed = true;
		*beyond -= MIN(*beyond, one->bytes);
		counter_add(&evicted, 1);
		counter_add(&evicted_bytes, one->bytes);
	}
}

/* How many bytes have to go; 0: none. */
static uint64_t beyond_of(struct origin *origin, struct slice bucket, uint64_t bytes_max)
{
	struct store_quota used;

	if (store_bucket_usage(origin->opts.store, bucket, &used) || used.bytes <= bytes_max)
		return 0;
	return used.bytes - (bytes_max - bytes_max / 16);
}

/* One page behind the cursor. *ret_more: there are further ones. */
static int page_read(
	struct origin *origin, struct page *page, struct evict_cursor *cursor, bool *ret_more)
{
	const struct store_list_opts opts = {.bucket = page->bucket,
		.after = slice_of(cursor->key, cursor->len),
		.entries_max = LIMIT_LIST_KEYS_MAX};
	const struct candidate *last;
	int ret;

	page->count = 0;
	buf_reset(&page->texts);
	ret = store_list(origin->opts.store, &opts, visit, page, ret_more);
	if (ret || page->texts.failed)
		return ret ? ret : -ENOMEM;
	cursor->len = 0;
	if (!*ret_more || !page->count)
		return 0;
	last = &page->list[page->count - 1];
	cursor->len = last->len;
	memcpy(cursor->key, page->texts.data + last->at, last->len);
	return 0;
}

void origin_evict(
	struct origin *origin, struct slice bucket, uint64_t bucket_id, uint64_t bytes_max)
{
	struct evict_cursor *cursor = &origin->cursors[bucket_id % ARRAY_LEN(origin->cursors)];
	uint64_t beyond = beyond_of(origin, bucket, bytes_max);
	struct page *page;
	bool more = true, freed = false;
	int ret = 0;

	/* One eviction at a time: the next fetch looks again. */
	if (!beyond || atomic_exchange(&origin->evicting, true))
		return;
	page = malloc(sizeof(*page));
	if (page) {
		page->bucket = bucket;
		buf_init(&page->texts, (size_t)LIMIT_LIST_KEYS_MAX * LIMIT_KEY_LEN_MAX);
	}
	for (uint32_t i = 0; page && i < PAGES_MAX && beyond && !ret; i++) {
		bool whole = !cursor->len;

		if (atomic_load(&origin->ending))
			break;
		ret = page_read(origin, page, cursor, &more);
		if (ret)
			break;
		qsort(page->list, page->count, sizeof(page->list[0]), by_use);
		/* Of a part of the bucket the older half goes. */
		page_evict(origin, page, whole && !more ? page->count : (page->count + 1) / 2,
			&beyond, &freed);
		/* A walk to the end that freed nothing: the rest is of clients. */
		if (!more && !freed)
			break;
		freed &= more;
	}
	if (ret)
		log_warn("origin", "%.*s: cannot evict copies: %s", SLICE_FMT(bucket),
			strerror(-ret));
	if (page)
		buf_free(&page->texts);
	free(page);
	atomic_store(&origin->evicting, false);
}
