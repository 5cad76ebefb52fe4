/* store/api.c: the calls of store/api.h: each checks its arguments and calls the store's engine. */
#include "store/engine.h"

#include <errno.h>
#include <stdlib.h>

/* Checks a put or get at the entry of each call. */
static inline struct store_put_head *put_head(const struct store_put *put)
{
	struct store_put_head *head = (struct store_put_head *)(uintptr_t)put;

	CHECK(head->magic == STORE_PUT_MAGIC);
	return head;
}

static inline const struct store_get_head *get_head(const struct store_get *get)
{
	const struct store_get_head *head = (const struct store_get_head *)get;

	CHECK(head->magic == STORE_GET_MAGIC);
	return head;
}

/* ---- Buckets. ---- */

uint64_t store_bucket_id_reserve(struct store *store)
{
	return store_engine_of(store)->bucket_id_reserve(store);
}

int store_bucket_create(struct store *store, const struct store_bucket *bucket)
{
	return store_engine_of(store)->bucket_create(store, bucket);
}

int store_bucket_get(struct store *store, struct slice name, struct store_bucket *ret_bucket)
{
	return store_engine_of(store)->bucket_get(store, name, ret_bucket);
}

int store_bucket_delete(struct store *store, struct slice name, uint64_t id)
{
	return store_engine_of(store)->bucket_delete(store, name, id);
}

int store_bucket_edit(struct store *store, struct slice name, store_bucket_edit_fn *edit, void *arg)
{
	return store_engine_of(store)->bucket_edit(store, name, edit, arg);
}

int store_bucket_list(
	struct store *store, struct slice after, store_bucket_visit_fn *visit, void *arg)
{
	return store_engine_of(store)->bucket_list(store, after, visit, arg);
}

int store_bucket_usage(struct store *store, struct slice name, struct store_quota *ret_used)
{
	return store_engine_of(store)->bucket_usage(store, name, ret_used);
}

int store_bucket_room(struct store *store, struct slice name, struct slice key, uint64_t bytes)
{
	return store_engine_of(store)->bucket_room(store, name, key, bytes);
}

/* ---- Writing. ---- */

int store_put_open(
	struct store *store, const struct store_put_opts *opts, struct store_put **ret_put)
{
	return store_engine_of(store)->put_open(store, opts, ret_put);
}

uint64_t store_put_body_number(const struct store_put *put)
{
	return put_head(put)->body_number;
}

int store_put_sink(struct store_put *put, struct flow_core *core, uint64_t bytes_total,
	struct flow_sink **ret_sink)
{
	return put_head(put)->engine->put_sink(put, core, bytes_total, ret_sink);
}

int store_put_tagged(struct store_put *put, uint64_t offset, const uint8_t tag[STORE_TAG_BYTES])
{
	return put_head(put)->engine->put_tagged(put, offset, tag);
}

/* A body stays in its engine: another one's cannot take it over. */
static bool same_engine(const struct store_put *put, const struct store_get *get)
{
	return put_head(put)->engine == get_head(get)->engine;
}

int store_put_compose(
	struct store_put *put, struct slice bucket, struct slice key, const struct store_get *get)
{
	if (!same_engine(put, get))
		return -EINVAL;
	return put_head(put)->engine->put_compose(put, bucket, key, get, false);
}

int store_put_drop(
	struct store_put *put, struct slice bucket, struct slice key, const struct store_get *get)
{
	if (!same_engine(put, get))
		return -EINVAL;
	return put_head(put)->engine->put_compose(put, bucket, key, get, true);
}

int store_put_append(struct store_put *put, const struct store_get *get)
{
	if (!same_engine(put, get))
		return -EINVAL;
	return put_head(put)->engine->put_append(put, get);
}

void store_put_outbox_row(struct store_put *put, struct store_outbox_row *outbox_row)
{
	put_head(put)->outbox_row = outbox_row;
}

int store_put_commit(
	struct store_put *put, struct store_meta *meta, store_check_fn *check, void *arg)
{
	return put_head(put)->engine->put_commit(put, meta, check, arg);
}

void store_put_abort(struct store_put *put)
{
	if (put)
		put_head(put)->engine->put_abort(put);
}

int store_rename(struct store *store, const struct store_name *from, const struct store_get *get,
	struct slice to, struct slice headers, struct store_condition condition)
{
	return store_engine_of(store)->rename(store, from, get, to, headers, condition);
}

int store_edit(struct store *store, const struct store_name *name, store_edit_fn *edit, void *arg,
	struct store_outbox_row *outbox_row)
{
	return store_engine_of(store)->edit(store, name, edit, arg, outbox_row);
}

int store_set_flags(struct store *store, const struct store_name *name, struct store_flags flags,
	struct store_condition condition, struct store_outbox_row *outbox_row)
{
	return store_engine_of(store)->set_flags(store, name, flags, condition, outbox_row);
}

/* ---- Reading. ---- */

int store_get_open(struct store *store, struct slice bucket, struct slice key,
	struct store_get **ret_get, bool *ret_bucket_exists)
{
	const struct store_name name = {.bucket = bucket, .key = key};

	return store_engine_of(store)->get_open(store, &name, ret_get, ret_bucket_exists);
}

int store_get_open_version(struct store *store, const struct store_name *name,
	struct store_get **ret_get, bool *ret_bucket_exists)
{
	return store_engine_of(store)->get_open(store, name, ret_get, ret_bucket_exists);
}

bool store_version_id_valid(struct slice version_id)
{
	uint64_t seq;

	return slice_eq(version_id, SLICE("null")) || store_version_seq_parse(version_id, &seq);
}

int store_newest(
	struct store *store, struct slice bucket, struct slice key, struct store_meta *ret_meta)
{
	return store_engine_of(store)->newest(store, bucket, key, ret_meta);
}

const struct store_meta *store_get_meta(const struct store_get *get)
{
	return get_head(get)->meta;
}

int store_get_source(struct store_get *get, struct flow_core *core, uint64_t offset, uint64_t bytes,
	struct flow_source **ret_source)
{
	return get_head(get)->engine->get_source(get, core, offset, bytes, ret_source);
}

bool store_get_held(struct store_get *get, struct slice *ret_body, struct region_span *ret_span)
{
	return get_head(get)->engine->get_held(get, ret_body, ret_span);
}

void store_get_stretch(
	const struct store_get *get, uint64_t offset, struct store_stretch *ret_stretch)
{
	get_head(get)->engine->get_stretch(get, offset, ret_stretch);
}

int store_get_tag(struct store_get *get, uint64_t offset, uint8_t ret_tag[STORE_TAG_BYTES])
{
	return get_head(get)->engine->get_tag(get, offset, ret_tag);
}

void store_get_close(struct store_get *get)
{
	if (get)
		get_head(get)->engine->get_close(get);
}

/* ---- Watching. ---- */

uint64_t store_rights_epoch(const struct store *store)
{
	return store_engine_of(store)->rights_epoch(store);
}

int store_object_watch_begin(
	struct store_get *get, struct store_object_watch *watch, uint64_t epoch)
{
	return get_head(get)->engine->object_watch_begin(get, watch, epoch);
}

void store_object_watch_end(struct store *store, struct store_object_watch *watch)
{
	store_engine_of(watch->store ? watch->store : store)->object_watch_end(store, watch);
}

void store_rights_changed(struct store *store)
{
	store_engine_of(store)->rights_changed(store);
}

/* ---- Deleting. ---- */

int store_delete_each(struct store *store, struct slice bucket, uint64_t bucket_id,
	struct store_deletion *list, uint32_t count)
{
	return store_engine_of(store)->delete_each(store, bucket, bucket_id, list, count);
}

int store_delete(struct store *store, struct slice bucket, struct slice key, store_check_fn *check,
	void *arg)
{
	struct store_deletion deletion = {.key = key, .check = check, .arg = arg};
	int ret = store_delete_each(store, bucket, 0, &deletion, 1);

	return ret ? ret : deletion.result;
}

int store_delete_many(struct store *store, struct slice bucket, const struct slice *keys,
	uint32_t key_count, int *results)
{
	struct store_deletion *list;
	int ret;

	if (key_count > LIMIT_DELETE_KEYS_MAX)
		return -EINVAL;
	list = (struct store_deletion *)calloc(key_count + 1, sizeof(*list));
	if (!list)
		return -ENOMEM;
	for (uint32_t i = 0; i < key_count; i++)
		list[i].key = keys[i];
	ret = store_delete_each(store, bucket, 0, list, key_count);
	for (uint32_t i = 0; i < key_count && !ret; i++)
		results[i] = list[i].result;
	free(list);
	return ret;
}

/* ---- The outbox, listing, usage. ---- */

int store_outbox_visit(struct store *store, uint64_t after, store_outbox_visit_fn *visit, void *arg)
{
	return store_engine_of(store)->outbox_visit(store, after, false, visit, arg);
}

int store_outbox_visit_all(
	struct store *store, uint64_t after, store_outbox_visit_fn *visit, void *arg)
{
	return store_engine_of(store)->outbox_visit(store, after, true, visit, arg);
}

int store_outbox_end(struct store *store, const uint64_t *numbers, uint32_t count)
{
	return store_engine_of(store)->outbox_end(store, numbers, count);
}

int store_list(struct store *store, const struct store_list_opts *opts, store_list_visit_fn *visit,
	void *arg, bool *ret_more)
{
	return store_engine_of(store)->list(store, opts, false, visit, arg, ret_more);
}

int store_list_versions(struct store *store, const struct store_list_opts *opts,
	store_list_visit_fn *visit, void *arg, bool *ret_more)
{
	return store_engine_of(store)->list(store, opts, true, visit, arg, ret_more);
}

void store_usage(struct store *store, struct store_usage *ret_usage)
{
	store_engine_of(store)->usage(store, ret_usage);
}
