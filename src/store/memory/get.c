/* store/memory/get.c: reading a store in memory: an open object is a reference, and pieces of a
 * body point into it. A page of a listing is copied under the lock and visited without it. */
#include "flow/end.h"
#include "store/memory/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- Open, close. ---- */

int memory_get_open(struct store *store, const struct store_name *name, struct store_get **ret_get,
	bool *ret_bucket_exists)
{
	struct store_get *get = (struct store_get *)malloc(sizeof(*get));
	const struct bucket *bucket;
	struct object *object = NULL;
	uint32_t at;

	if (!get)
		return -ENOMEM;
	memory_lock_fresh(store);
	bucket = memory_bucket_find_of(store, name->bucket, name->bucket_id);
	*ret_bucket_exists = bucket != NULL;
	if (bucket)
		object = memory_key_version(
			memory_key_find(bucket, name->key), name->version_id, &at);
	if (object) {
		object->refs++;
		memory_bound_used(store, object);
	}
	pthread_mutex_unlock(&store->lock);
	if (!object) {
		free(get);
		return -ENOENT;
	}
	*get = (struct store_get){
		.head = {.engine = store->head.engine,
			.magic = STORE_GET_MAGIC,
			.meta = &object->meta},
		.store = memory_store_get(store),
		.object = object,
	};
	*ret_get = get;
	return 0;
}

void memory_get_close(struct store_get *get)
{
	pthread_mutex_lock(&get->store->lock);
	memory_object_put(get->object);
	pthread_mutex_unlock(&get->store->lock);
	memory_store_put(get->store);
	magic_clear(&get->head.magic);
	free(get);
}

int memory_newest(struct store *store, struct slice bucket_name, struct slice name,
	struct store_meta *ret_meta)
{
	const struct bucket *bucket;
	const struct key *key;
	uint32_t at;
	int ret = -ENOENT;

	memory_lock_fresh(store);
	bucket = memory_bucket_find(store, bucket_name);
	key = bucket ? memory_key_find(bucket, name) : NULL;
	at = memory_key_current(key) ? 1 : 0;
	if (key && at < key->version_count) {
		*ret_meta = key->versions[at]->meta;
		ret_meta->headers = NULL;
		ret_meta->headers_len = 0;
		ret = 0;
	}
	pthread_mutex_unlock(&store->lock);
	return ret;
}

/* ---- Bytes. An open object does not change. ---- */

struct memory_source {
	struct flow_source source;
	const struct object *object;
	uint64_t start, offset, end;
};
_Static_assert(sizeof(struct memory_source) <= FLOW_END_BYTES, "of the pool");

/* The frames count as the piece's own, in case a slow client keeps the object: this source waits
 * while it holds none. */
static int share_take(const struct memory_source *self, struct flow_piece *piece)
{
	struct flow_core *core = self->source.core;
	const struct flow_want want = {.frame_count = piece->span.frame_count,
		.owner = OWNER_CACHE,
		.share = self->source.share,
		.begun = self->offset != self->start,
		.count_only = true,
		.deadline_ns = self->source.deadline_ns};
	struct region_span none;
	int ret;

	if (want.share == FLOW_SHARE_OWN)
		return 0;
	ret = flow_lease_spare(core, &want, &none);
	if (__builtin_expect(ret != 0, 0))
		ret = flow_lease(core, &want, &none);
	if (!ret)
		piece->share = want.share;
	return ret;
}

static int source_next(struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct memory_source *self = CONTAINER_OF(source, struct memory_source, source);
	const struct object_part *part = memory_object_part(self->object, self->offset);
	const struct body *body = part->body;
	uint64_t at = self->offset - part->start;
	uint64_t end =
		MIN(ALIGN_DOWN(at, (uint64_t)STORE_CHUNK_BYTES) + STORE_CHUNK_BYTES, body->bytes);
	int ret;

	if (self->offset == self->end)
		return 0;
	end = MIN(MIN(end, at + bytes_max), self->end - part->start);
	*ret_piece = (struct flow_piece){.span = body->spans[at / STORE_CHUNK_BYTES],
		.bytes = (uint32_t)(end - at),
		.offset = self->offset - self->start,
		.hold = FLOW_HOLD_CACHE};
	ret = share_take(self, ret_piece);
	if (ret)
		return ret;
	region_get(body->region, ret_piece->span);
	ret_piece->data = ret_piece->span.data + at % STORE_CHUNK_BYTES;
	self->offset += end - at;
	return 1;
}

static void source_close(struct flow_source *source)
{
	flow_end_give(source->core, CONTAINER_OF(source, struct memory_source, source));
}

static const struct flow_source_ops SOURCE_OPS = {
	.name = "memory",
	.next = source_next,
	.close = source_close,
};

int memory_get_source(struct store_get *get, struct flow_core *core, uint64_t offset,
	uint64_t bytes, struct flow_source **ret_source)
{
	struct memory_source *self;

	CHECK(offset <= get->object->meta.bytes && bytes <= get->object->meta.bytes - offset);
	self = (struct memory_source *)flow_end_lease(core);
	if (!self)
		return -ENOMEM;
	*self = (struct memory_source){
		.source = {.magic = FLOW_SOURCE_MAGIC,
			.ops = &SOURCE_OPS,
			.core = core,
			.bytes_total = bytes,
			.deadline_ns = DEADLINE_NONE},
		.object = get->object,
		.start = offset,
		.offset = offset,
		.end = offset + bytes,
	};
	*ret_source = &self->source;
	return 0;
}

bool memory_get_held(struct store_get *get, struct slice *ret_body, struct region_span *ret_span)
{
	const struct object *object = get->object;
	const struct body *body = object->parts[0].body;

	*ret_body = SLICE("");
	*ret_span = (struct region_span){.data = NULL};
	if (object->part_count > 1 || object->meta.bytes > STORE_CHUNK_BYTES)
		return false;
	if (!body->span_count)
		return true;
	region_get(body->region, body->first);
	*ret_span = body->first;
	*ret_body = slice_of(body->first.data, object->meta.bytes);
	return true;
}

void memory_get_stretch(
	const struct store_get *get, uint64_t offset, struct store_stretch *ret_stretch)
{
	const struct object_part *part = memory_object_part(get->object, offset);

	*ret_stretch = (struct store_stretch){.start = part->start,
		.bytes = part->body->bytes,
		.body_number = part->body->body_number};
}

int memory_get_tag(struct store_get *get, uint64_t offset, uint8_t ret_tag[STORE_TAG_BYTES])
{
	const struct object_part *part = memory_object_part(get->object, offset);
	uint64_t idx = (offset - part->start) / STORE_CHECK_BYTES;

	if (idx >= part->body->tag_count)
		return -ENOENT;
	memcpy(ret_tag, part->body->tags + idx * STORE_TAG_BYTES, STORE_TAG_BYTES);
	return 0;
}

/* ---- Listing. ---- */

struct row {
	char *key;
	size_t len;
	struct object *object; /* with a reference; NULL: a common prefix */
	bool latest;
};

struct page {
	const struct store_list_opts *opts;
	bool versions;
	struct row *rows;
	uint32_t count, cap;
	bool more;
	int ret;
};

/* Adds an entry. False: the page is full, or failed. */
static bool row_add(struct page *page, struct slice key, struct object *object, bool latest)
{
	struct row *row;

	page->more = page->count == page->opts->entries_max;
	if (page->more)
		return false;
	page->ret =
		memory_array_reserve((void **)&page->rows, page->count, &page->cap, sizeof(*row));
	if (page->ret)
		return false;
	row = &page->rows[page->count];
	*row = (struct row){
		.key = (char *)malloc(key.len), .len = key.len, .object = object, .latest = latest};
	if (!row->key) {
		page->ret = -ENOMEM;
		return false;
	}
	memcpy(row->key, key.data, key.len);
	if (object)
		object->refs++;
	page->count++;
	return true;
}

/* The index at which a listing continues within a key: after the version, or after its former
 * place. */
static uint32_t versions_from(const struct page *page, const struct key *key)
{
	struct slice behind = page->opts->version_after;
	uint64_t seq;
	uint32_t at;

	if (!behind.len || !slice_eq(memory_key_name(key), page->opts->after))
		return 0;
	if (memory_key_version(key, behind, &at))
		return at + 1;
	/* The null version's former place is unknown: list all versions again. */
	if (!store_version_seq_parse(behind, &seq))
		return 0;
	for (at = 0; at < key->version_count && key->versions[at]->seq >= seq; at++)
		;
	return at;
}

static bool key_add(struct page *page, const struct key *key)
{
	if (!page->versions)
		return !memory_key_current(key) ||
		       row_add(page, memory_key_name(key), key->versions[0], true);
	for (uint32_t i = versions_from(page, key); i < key->version_count; i++)
		if (!row_add(page, memory_key_name(key), key->versions[i], i == 0))
			return false;
	return true;
}

/* Whether the key is after `after`, which is a key that may have versions left, or a common
 * prefix. */
static bool is_behind(const struct page *page, struct slice key)
{
	struct slice after = page->opts->after;
	bool within = page->versions && page->opts->version_after.len;

	if (!after.len)
		return true;
	if (slice_cmp(key, after) < (within ? 0 : 1))
		return false;
	return within || store_list_prefix_len(page->opts, after) != after.len ||
	       !slice_starts(key, after);
}

static bool prefix_shows(const struct page *page, const struct bucket *bucket,
	struct key_place place, struct slice prefix)
{
	const struct key *key;

	for (; (key = memory_key_at(bucket, place)) != NULL &&
		slice_starts(memory_key_name(key), prefix);
		place = memory_key_next(bucket, place))
		if (page->versions || memory_key_current(key))
			return true;
	return false;
}

/* Where the page's walk starts: at the prefix, or at `after`, which may be a common prefix that was
 * told already. */
static struct key_place page_from(const struct page *page, const struct bucket *bucket)
{
	const struct store_list_opts *opts = page->opts;
	bool within = page->versions && opts->version_after.len;

	if (slice_cmp(opts->after, opts->prefix) < 0)
		return memory_key_place(bucket, opts->prefix);
	if (!within && opts->after.len &&
		store_list_prefix_len(opts, opts->after) == opts->after.len)
		return memory_key_behind(bucket, opts->after);
	return memory_key_place(bucket, opts->after);
}

static void page_fill(struct page *page, const struct bucket *bucket)
{
	const struct store_list_opts *opts = page->opts;
	struct key_place place = page_from(page, bucket);
	const struct key *key;

	while ((key = memory_key_at(bucket, place)) != NULL) {
		struct slice name = memory_key_name(key),
			     prefix = slice_to(name, store_list_prefix_len(opts, name));

		if (!slice_starts(name, opts->prefix))
			return;
		if (prefix.len && is_behind(page, name)) {
			if (prefix_shows(page, bucket, place, prefix) &&
				!row_add(page, prefix, NULL, false))
				return;
			place = memory_key_behind(bucket, prefix);
			continue;
		}
		if (!prefix.len && is_behind(page, name) && !key_add(page, key))
			return;
		place = memory_key_next(bucket, place);
	}
}

static void page_visit(const struct page *page, store_list_visit_fn *visit, void *arg)
{
	for (uint32_t i = 0; i < page->count; i++) {
		const struct row *row = &page->rows[i];
		struct store_meta meta;
		const struct store_list_entry entry = {
			.key = slice_of(row->key, row->len),
			.is_prefix = !row->object,
			.is_latest = row->latest,
			.meta = row->object ? &meta : NULL,
		};

		if (row->object) {
			meta = row->object->meta;
			meta.headers = NULL;
			meta.headers_len = 0;
		}
		visit(&entry, arg);
	}
}

int memory_list(struct store *store, const struct store_list_opts *opts, bool versions,
	store_list_visit_fn *visit, void *arg, bool *ret_more)
{
	struct page page = {.opts = opts, .versions = versions};
	const struct bucket *bucket;

	if (opts->entries_max > LIMIT_LIST_KEYS_MAX)
		return -EINVAL;
	memory_lock_fresh(store);
	bucket = memory_bucket_find(store, opts->bucket);
	if (bucket && opts->entries_max)
		page_fill(&page, bucket);
	else if (!bucket)
		page.ret = -ENOENT;
	pthread_mutex_unlock(&store->lock);
	if (!page.ret) {
		*ret_more = page.more;
		page_visit(&page, visit, arg);
	}
	pthread_mutex_lock(&store->lock);
	for (uint32_t i = 0; i < page.count; i++) {
		memory_object_put(page.rows[i].object);
		free(page.rows[i].key);
	}
	pthread_mutex_unlock(&store->lock);
	free(page.rows);
	return page.ret;
}
