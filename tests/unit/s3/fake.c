/* tests/unit/s3/fake.c: a store and a flow in plain memory, and a front that keeps what it is told.
 */
#include "fake.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

int fake_put_error, fake_commit_error, fake_read_error;
int fake_open_gets, fake_open_puts, fake_open_sources;
const struct s3_identity fake_root = {.access_key = "test", .root = true};

struct object {
	struct object *next; /* in key order */
	struct buf key, body, headers;
	struct store_meta meta;
	uint64_t stream;
	int references;
};
struct bucket {
	struct bucket *next;
	struct store_bucket info;
	struct object *objects;
};
struct store {
	struct bucket *buckets;
	uint64_t now_ns;
	uint64_t last_id;
	uint64_t last_outbox_row;
};
struct store_put {
	struct bucket *bucket;
	struct buf key, body;
	struct store *store;
	struct ending {
		struct bucket *bucket;
		struct object *object;
	} * endings; /* what was composed or dropped */
	uint32_t ending_count;
	struct object *base; /* what an append was opened of */
	struct store_outbox_row *outbox_row;
};
struct store_get {
	struct object *object;
};

static void object_put(struct object *object)
{
	if (--object->references)
		return;
	buf_free(&object->key);
	buf_free(&object->body);
	buf_free(&object->headers);
	free(object);
}

struct store *fake_store_open(void)
{
	struct store *store = calloc(1, sizeof(*store));

	store->now_ns = 1700000000ull * NS_PER_S;
	return store;
}

void fake_store_close(struct store *store)
{
	while (store->buckets) {
		struct bucket *bucket = store->buckets;

		store->buckets = bucket->next;
		while (bucket->objects) {
			struct object *object = bucket->objects;

			bucket->objects = object->next;
			object_put(object);
		}
		free(bucket);
	}
	free(store);
}

static struct bucket **find_bucket(struct store *store, struct slice name)
{
	struct bucket **at = &store->buckets;

	while (*at && slice_cmp(slice_str((*at)->info.name), name) < 0)
		at = &(*at)->next;
	return at;
}

static struct bucket *bucket_at(struct store *store, struct slice name)
{
	struct bucket *bucket = *find_bucket(store, name);

	return bucket && slice_eq(slice_str(bucket->info.name), name) ? bucket : NULL;
}

static struct object **find_object(struct bucket *bucket, struct slice key)
{
	struct object **at = &bucket->objects;

	while (*at && slice_cmp(buf_slice(&(*at)->key), key) < 0)
		at = &(*at)->next;
	return at;
}

static struct object *object_at(struct bucket *bucket, struct slice key)
{
	struct object *object = *find_object(bucket, key);

	return object && slice_eq(buf_slice(&object->key), key) ? object : NULL;
}

int store_bucket_create(struct store *store, const struct store_bucket *info)
{
	struct bucket **at = find_bucket(store, slice_str(info->name)), *bucket;

	if (bucket_at(store, slice_str(info->name)))
		return -EEXIST;
	bucket = calloc(1, sizeof(*bucket));
	bucket->info = *info;
	bucket->info.id = ++store->last_id;
	bucket->next = *at;
	*at = bucket;
	return 0;
}

int store_bucket_get(struct store *store, struct slice name, struct store_bucket *ret_bucket)
{
	struct bucket *bucket = bucket_at(store, name);

	if (!bucket)
		return -ENOENT;
	*ret_bucket = bucket->info;
	return 0;
}

int store_bucket_delete(struct store *store, struct slice name)
{
	struct bucket *bucket = bucket_at(store, name);

	if (!bucket)
		return -ENOENT;
	if (bucket->objects)
		return -ENOTEMPTY;
	*find_bucket(store, name) = bucket->next;
	free(bucket);
	return 0;
}

int store_bucket_list(
	struct store *store, struct slice after, store_bucket_visit_fn *visit, void *arg)
{
	for (struct bucket *bucket = store->buckets; bucket; bucket = bucket->next)
		if (slice_cmp(slice_str(bucket->info.name), after) > 0 &&
			!visit(&bucket->info, arg))
			break;
	return 0;
}

int store_put_open(
	struct store *store, const struct store_put_opts *opts, struct store_put **ret_put)
{
	struct bucket *bucket = bucket_at(store, opts->bucket);
	struct store_put *put;

	if (!bucket)
		return -ENOENT;
	if (fake_put_error)
		return fake_put_error;
	put = calloc(1, sizeof(*put));
	put->bucket = bucket;
	put->store = store;
	buf_init(&put->key, SIZE_MAX);
	buf_init(&put->body, SIZE_MAX);
	buf_put_slice(&put->key, opts->key);
	fake_open_puts++;
	*ret_put = put;
	return 0;
}

void store_put_abort(struct store_put *put)
{
	if (!put)
		return;
	buf_free(&put->key);
	buf_free(&put->body);
	free(put->endings);
	free(put);
	fake_open_puts--;
}

int store_put_drop(struct store_put *put, struct slice bucket_name, struct slice key,
	const struct store_get *get)
{
	struct bucket *bucket = bucket_at(put->store, bucket_name);

	if (!bucket || object_at(bucket, key) != get->object)
		return -ESTALE;
	put->endings = realloc(put->endings, (put->ending_count + 1) * sizeof(*put->endings));
	put->endings[put->ending_count++] = (struct ending){bucket, get->object};
	return 0;
}

int store_put_compose(
	struct store_put *put, struct slice bucket, struct slice key, const struct store_get *get)
{
	int ret = store_put_drop(put, bucket, key, get);

	if (!ret)
		buf_put_slice(&put->body, buf_slice(&get->object->body));
	return ret;
}

int store_put_append(struct store_put *put, const struct store_get *get)
{
	put->base = get->object;
	return 0;
}

void store_put_outbox_row(struct store_put *put, struct store_outbox_row *outbox_row)
{
	put->outbox_row = outbox_row;
}

/* This store keeps none. */
static void outbox_row_number(struct store *store, struct store_outbox_row *outbox_row)
{
	if (outbox_row)
		outbox_row->number = ++store->last_outbox_row;
}

static void remove_object(struct bucket *bucket, struct slice key)
{
	struct object *object = object_at(bucket, key);

	if (!object)
		return;
	*find_object(bucket, key) = object->next;
	object_put(object);
}

int store_put_commit(
	struct store_put *put, struct store_meta *meta, store_check_fn *check, void *arg)
{
	struct object *current = object_at(put->bucket, buf_slice(&put->key)), *object, **at;
	int ret = check ? check(current ? &current->meta : NULL, arg) : 0;

	ret = ret ? ret : fake_commit_error;
	if (!ret && put->base && put->base != current)
		ret = -ESTALE;
	if (ret) {
		store_put_abort(put);
		return ret;
	}
	if (put->base) {
		struct buf own = put->body;

		buf_init(&put->body, SIZE_MAX);
		buf_put_slice(&put->body, buf_slice(&put->base->body));
		buf_put_slice(&put->body, buf_slice(&own));
		buf_free(&own);
	}
	CHECK(meta->bytes == put->body.len);
	for (uint32_t i = 0; i < put->ending_count; i++)
		remove_object(put->endings[i].bucket, buf_slice(&put->endings[i].object->key));
	free(put->endings);
	outbox_row_number(put->store, put->outbox_row);
	put->store->now_ns += NS_PER_S;
	meta->mtime_ns = put->store->now_ns;
	memcpy(meta->version_id, "null", 5);
	object = calloc(1, sizeof(*object));
	object->references = 1;
	object->meta = *meta;
	object->stream = put->bucket->info.id;
	buf_init(&object->headers, SIZE_MAX);
	buf_put(&object->headers, meta->headers, meta->headers_len);
	object->meta.headers = object->headers.data;
	object->key = put->key;
	object->body = put->body;
	remove_object(put->bucket, buf_slice(&put->key));
	at = find_object(put->bucket, buf_slice(&object->key));
	object->next = *at;
	*at = object;
	free(put);
	fake_open_puts--;
	return 0;
}

int store_rename(struct store *store, const struct store_name *from, const struct store_get *get,
	struct slice to, struct slice headers, struct store_condition condition)
{
	struct bucket *bucket = bucket_at(store, from->bucket);
	struct object *object = object_at(bucket, from->key), *current = object_at(bucket, to);
	int ret = condition.check(current ? &current->meta : NULL, condition.arg);
	struct object **at;

	if (ret || object != get->object)
		return ret ? ret : -ESTALE;
	*find_object(bucket, from->key) = object->next;
	remove_object(bucket, to);
	buf_free(&object->key);
	buf_free(&object->headers);
	buf_init(&object->key, SIZE_MAX);
	buf_init(&object->headers, SIZE_MAX);
	buf_put_slice(&object->key, to);
	buf_put_slice(&object->headers, headers);
	object->meta.headers = object->headers.data;
	object->meta.headers_len = (uint32_t)object->headers.len;
	at = find_object(bucket, to);
	object->next = *at;
	*at = object;
	return 0;
}

int store_get_open(struct store *store, struct slice bucket_name, struct slice key,
	struct store_get **ret_get, bool *ret_bucket_exists)
{
	struct bucket *bucket = bucket_at(store, bucket_name);
	struct object *object = bucket ? object_at(bucket, key) : NULL;

	*ret_bucket_exists = bucket != NULL;
	if (!object)
		return -ENOENT;
	*ret_get = calloc(1, sizeof(**ret_get));
	(*ret_get)->object = object;
	object->references++;
	fake_open_gets++;
	return 0;
}

const struct store_meta *store_get_meta(const struct store_get *get)
{
	return &get->object->meta;
}

void store_get_close(struct store_get *get)
{
	object_put(get->object);
	free(get);
	fake_open_gets--;
}

/* This store keeps no versions: each object is its own null version. */
static bool is_named(struct slice version_id)
{
	return !version_id.len || slice_eq(version_id, SLICE("null"));
}

int store_edit(struct store *store, const struct store_name *name, store_edit_fn *edit, void *arg,
	struct store_outbox_row *outbox_row)
{
	struct bucket *bucket = bucket_at(store, name->bucket);
	struct object *object = bucket ? object_at(bucket, name->key) : NULL;
	struct slice headers;
	struct buf edited;
	int ret;

	if (!object || !is_named(name->version_id))
		return -ENOENT;
	if (fake_put_error)
		return fake_put_error;
	ret = edit(&object->meta, &headers, arg);
	if (ret)
		return ret;
	buf_init(&edited, SIZE_MAX);
	buf_put_slice(&edited, headers);
	buf_free(&object->headers);
	object->headers = edited;
	object->meta.headers = edited.data;
	object->meta.headers_len = (uint32_t)edited.len;
	outbox_row_number(store, outbox_row);
	return 0;
}

int store_set_flags(struct store *store, const struct store_name *name, struct store_flags flags,
	struct store_condition condition, struct store_outbox_row *outbox_row)
{
	struct bucket *bucket = bucket_at(store, name->bucket);
	struct object *object = bucket ? object_at(bucket, name->key) : NULL;
	int ret = object ? 0 : -ENOENT;

	if (!ret && condition.check)
		ret = condition.check(&object->meta, condition.arg);
	if (!ret)
		outbox_row_number(store, outbox_row);
	if (!ret)
		object->meta.checksum_flags =
			(uint8_t)((object->meta.checksum_flags & ~flags.mask) | flags.flags);
	return ret;
}

int store_delete(struct store *store, struct slice bucket_name, struct slice key,
	store_check_fn *check, void *arg)
{
	struct bucket *bucket = bucket_at(store, bucket_name);
	struct object *object = bucket ? object_at(bucket, key) : NULL;
	int ret;

	if (!bucket)
		return -ENOENT;
	ret = check ? check(object ? &object->meta : NULL, arg) : 0;
	if (!ret)
		remove_object(bucket, key);
	return ret;
}

bool store_version_id_valid(struct slice version_id)
{
	return version_id.len == 16 || slice_eq(version_id, SLICE("null"));
}

int store_get_open_version(struct store *store, const struct store_name *name,
	struct store_get **ret_get, bool *ret_bucket_exists)
{
	if (is_named(name->version_id))
		return store_get_open(store, name->bucket, name->key, ret_get, ret_bucket_exists);
	*ret_bucket_exists = bucket_at(store, name->bucket) != NULL;
	return -ENOENT;
}

int store_newest(
	struct store *store, struct slice bucket, struct slice key, struct store_meta *ret_meta)
{
	(void)store;
	(void)bucket;
	(void)key;
	(void)ret_meta;
	return -ENOENT;
}

int store_bucket_edit(struct store *store, struct slice name, store_bucket_edit_fn *edit, void *arg)
{
	struct bucket *bucket = bucket_at(store, name);

	return bucket ? edit(&bucket->info, arg) : -ENOENT;
}

int store_list_versions(struct store *store, const struct store_list_opts *opts,
	store_list_visit_fn *visit, void *arg, bool *ret_more)
{
	return store_list(store, opts, visit, arg, ret_more);
}

int store_delete_each(
	struct store *store, struct slice bucket, struct store_deletion *list, uint32_t count)
{
	if (!bucket_at(store, bucket))
		return -ENOENT;
	for (uint32_t i = 0; i < count; i++) {
		list[i].version_id_out[0] = 0;
		list[i].delete_marker = false;
		list[i].result = 0;
		if (is_named(list[i].version_id))
			list[i].result = store_delete(
				store, bucket, list[i].key, list[i].check, list[i].arg);
		if (!list[i].result)
			outbox_row_number(store, list[i].outbox_row);
	}
	return 0;
}

int store_delete_many(struct store *store, struct slice bucket_name, const struct slice *keys,
	uint32_t key_count, int *results)
{
	for (uint32_t i = 0; i < key_count; i++) {
		results[i] = store_delete(store, bucket_name, keys[i], NULL, NULL);
		if (results[i])
			return results[i];
	}
	return bucket_at(store, bucket_name) ? 0 : -ENOENT;
}

/* The common prefix that a key falls into, with its delimiter; empty when it stands for itself. */
static struct slice common_prefix(const struct store_list_opts *opts, struct slice key)
{
	struct slice rest = slice_from(key, opts->prefix.len);
	ptrdiff_t at = opts->delimiter.len ? slice_find(rest, opts->delimiter) : -1;

	return at < 0 ? SLICE_NONE
		      : slice_to(key, opts->prefix.len + (size_t)at + opts->delimiter.len);
}

int store_list(struct store *store, const struct store_list_opts *opts, store_list_visit_fn *visit,
	void *arg, bool *ret_more)
{
	struct bucket *bucket = bucket_at(store, opts->bucket);
	struct slice last = SLICE_NONE;
	uint32_t count = 0;

	*ret_more = false;
	if (!bucket)
		return -ENOENT;
	for (struct object *object = bucket->objects; object; object = object->next) {
		struct slice key = buf_slice(&object->key), prefix;
		struct store_meta meta = object->meta;

		if (!slice_starts(key, opts->prefix))
			continue;
		prefix = common_prefix(opts, key);
		if (slice_cmp(prefix.len ? prefix : key, opts->after) <= 0 ||
			(prefix.len && slice_eq(prefix, last)))
			continue;
		if (count++ == opts->entries_max) {
			*ret_more = true;
			return 0;
		}
		last = prefix;
		meta.headers = NULL;
		meta.headers_len = 0;
		visit(&(struct store_list_entry){.key = prefix.len ? prefix : key,
			      .is_prefix = prefix.len > 0,
			      .is_latest = true,
			      .meta = prefix.len ? NULL : &meta},
			arg);
	}
	return 0;
}

/* ---- Flow. ---- */

struct memory_source {
	struct flow_source source;
	struct slice rest;
	uint64_t offset;
	int error; /* at the end */
};

static int memory_next(struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct memory_source *memory = CONTAINER_OF(source, struct memory_source, source);
	size_t bytes = memory->rest.len < 100 ? memory->rest.len : 100;

	(void)bytes_max;
	if (!bytes)
		return memory->error;
	*ret_piece = (struct flow_piece){.data = (uint8_t *)(uintptr_t)memory->rest.data,
		.bytes = (uint32_t)bytes,
		.offset = memory->offset,
		.hold = FLOW_HOLD_BORROWED};
	memory->offset += bytes;
	memory->rest = slice_from(memory->rest, bytes);
	return 1;
}

static void memory_close(struct flow_source *source)
{
	free(CONTAINER_OF(source, struct memory_source, source));
	fake_open_sources--;
}

static const struct flow_source_ops memory_ops = {"memory", memory_next, memory_close};

static struct memory_source *memory_open(struct slice bytes)
{
	struct memory_source *memory = calloc(1, sizeof(*memory));

	memory->source = (struct flow_source){.magic = FLOW_SOURCE_MAGIC, .ops = &memory_ops};
	memory->rest = bytes;
	fake_open_sources++;
	return memory;
}

int flow_memory_source_open(
	struct flow_core *core, struct slice bytes, struct flow_source **ret_source)
{
	(void)core;
	*ret_source = &memory_open(bytes)->source;
	return 0;
}

int flow_object_source_open(struct flow_core *core, struct store_get *get, uint64_t offset,
	uint64_t bytes, struct flow_source **ret_source)
{
	struct memory_source *memory;

	(void)core;
	memory = memory_open(
		slice_of(get->object->body.data + offset, fake_read_error ? 0 : (size_t)bytes));
	memory->error = fake_read_error;
	*ret_source = &memory->source;
	return 0;
}

struct buf_sink {
	struct flow_sink sink;
	struct buf *to;
};

static int buf_push(struct flow_sink *sink, struct flow_piece *piece)
{
	buf_put(CONTAINER_OF(sink, struct buf_sink, sink)->to, piece->data, piece->bytes);
	return 0;
}

static int buf_finish(struct flow_sink *sink, bool failed)
{
	free(CONTAINER_OF(sink, struct buf_sink, sink));
	return failed ? -ECANCELED : 0;
}

static const struct flow_sink_ops buf_sink_ops = {"buf", buf_push, buf_finish};

static struct flow_sink *buf_sink_open(struct buf *to)
{
	struct buf_sink *sink = calloc(1, sizeof(*sink));

	sink->sink = (struct flow_sink){.magic = FLOW_SINK_MAGIC, .ops = &buf_sink_ops};
	sink->to = to;
	return &sink->sink;
}

int flow_object_sink_open(struct flow_core *core, struct store_put *put, uint64_t bytes_total,
	struct flow_sink **ret_sink)
{
	(void)core;
	(void)bytes_total;
	*ret_sink = buf_sink_open(&put->body);
	return 0;
}

uint64_t store_put_body_number(const struct store_put *put)
{
	return (uint64_t)put->bucket->info.id;
}

uint64_t store_get_body_number(const struct store_get *get, uint64_t offset)
{
	(void)offset;
	return get->object->stream;
}

/* One piece at a time, through a buffer of its own. */
static char crypted[100];

static int crypt_next(struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct flow_crypt_source *self = CONTAINER_OF(source, struct flow_crypt_source, source);
	int ret = flow_source_next(self->inner, bytes_max, ret_piece);

	if (ret <= 0)
		return ret;
	ctr_apply(self->ctr, self->get->object->stream, self->start + ret_piece->offset,
		ret_piece->data, crypted, ret_piece->bytes);
	ret_piece->data = (uint8_t *)crypted;
	return ret;
}

static void crypt_close(struct flow_source *source)
{
	struct flow_crypt_source *self = CONTAINER_OF(source, struct flow_crypt_source, source);

	flow_source_close(self->inner);
	ctr_close(self->ctr);
}

static const struct flow_source_ops crypt_source_ops = {"crypt", crypt_next, crypt_close};

int flow_crypt_source_init(struct flow_crypt_source *self, struct flow_crypt_key key,
	struct store_get *get, uint64_t offset, struct flow_source *inner)
{
	self->source.magic = FLOW_SOURCE_MAGIC;
	self->source.ops = &crypt_source_ops;
	self->inner = inner;
	self->get = get;
	self->start = offset;
	return ctr_open(key.key, &self->ctr);
}

static int crypt_push(struct flow_sink *sink, struct flow_piece *piece)
{
	struct flow_crypt_sink *self = CONTAINER_OF(sink, struct flow_crypt_sink, sink);
	struct flow_piece other = *piece;

	CHECK(piece->bytes <= sizeof(crypted));
	ctr_apply(self->ctr, self->stream, piece->offset, piece->data, crypted, piece->bytes);
	other.data = (uint8_t *)crypted;
	return flow_sink_push(self->inner, &other);
}

static int crypt_finish(struct flow_sink *sink, bool failed)
{
	struct flow_crypt_sink *self = CONTAINER_OF(sink, struct flow_crypt_sink, sink);

	ctr_close(self->ctr);
	return flow_sink_finish(self->inner, failed);
}

static const struct flow_sink_ops crypt_sink_ops = {"crypt", crypt_push, crypt_finish};

int flow_crypt_sink_init(struct flow_crypt_sink *self, struct flow_crypt_key key,
	struct store_put *put, struct flow_sink *inner)
{
	self->sink.magic = FLOW_SINK_MAGIC;
	self->sink.ops = &crypt_sink_ops;
	self->inner = inner;
	self->stream = store_put_body_number(put);
	return ctr_open(key.key, &self->ctr);
}

void flow_piece_end(struct flow_core *core, struct flow_piece *piece, enum region_owner owner)
{
	(void)core;
	(void)piece;
	(void)owner;
}

static int checksum_piece(struct flow_stage *stage, const struct flow_piece *piece)
{
	checksum_update(&CONTAINER_OF(stage, struct flow_checksum, stage)->checksum, piece->data,
		piece->bytes);
	return 0;
}

static const struct flow_stage_ops checksum_ops = {"checksum", checksum_piece};

int flow_checksum_init(struct flow_checksum *stage, enum checksum_kind kind)
{
	stage->stage.ops = &checksum_ops;
	checksum_init(&stage->checksum, kind);
	return 0;
}

int flow_run(struct flow_source *source, struct flow_stage *const *stages, uint32_t stage_count,
	struct flow_sink *sink, uint64_t *ret_bytes)
{
	struct flow_piece piece;
	uint64_t bytes = 0;
	int ret;

	while ((ret = flow_source_next(source, STORE_CHUNK_BYTES, &piece)) > 0) {
		for (uint32_t i = 0; i < stage_count; i++)
			stages[i]->ops->piece(stages[i], &piece);
		bytes += piece.bytes;
		flow_sink_push(sink, &piece);
	}
	flow_source_close(source);
	flow_sink_finish(sink, ret < 0);
	*ret_bytes = bytes;
	return ret;
}

/* ---- Fibers: there are none, and nothing runs later. ---- */

struct flow_core *flow_core_self(void)
{
	return NULL;
}

struct reactor *reactor_self(void)
{
	return NULL;
}

bool reactor_stopping(const struct reactor *reactor)
{
	(void)reactor;
	return true;
}

int fiber_spawn(struct reactor *reactor, const char *name, fiber_fn *fn, void *arg)
{
	(void)reactor;
	(void)name;
	(void)fn;
	(void)arg;
	return -EAGAIN;
}

void fiber_sleep_ns(uint64_t ns)
{
	(void)ns;
}

/* ---- The front. ---- */

static int body_open(struct s3_body *body, const struct s3_chunk_signing *signing,
	struct flow_source **ret_source)
{
	struct fake_call *call = CONTAINER_OF(body, struct fake_call, body);
	struct memory_source *memory = memory_open(call->body_text);

	call->signing = *signing;
	memory->error = call->body_error;
	*ret_source = &memory->source;
	return 0;
}

static struct slice body_trailer(struct s3_body *body, const char *name)
{
	(void)name;
	return CONTAINER_OF(body, struct fake_call, body)->trailer;
}

static const struct s3_body_ops body_ops = {body_open, body_trailer};

static int reply_head(struct s3_reply *reply, uint32_t status, const struct s3_header *headers,
	uint32_t header_count, uint64_t bytes)
{
	struct fake_call *call = CONTAINER_OF(reply, struct fake_call, reply);

	reply->status = status;
	call->reply_bytes = bytes;
	call->heads++;
	for (uint32_t i = 0; i < header_count; i++) {
		for (size_t at = 0; at < headers[i].name.len; at++)
			buf_printf(&call->reply_head, "%c",
				tolower((unsigned char)headers[i].name.data[at]));
		buf_printf(&call->reply_head, ": %.*s\n", SLICE_FMT(headers[i].value));
	}
	return 0;
}

static int reply_text(struct s3_reply *reply, struct slice text)
{
	buf_put_slice(&CONTAINER_OF(reply, struct fake_call, reply)->reply_body, text);
	return 0;
}

static int reply_sink(struct s3_reply *reply, struct flow_sink **ret_sink)
{
	*ret_sink = buf_sink_open(&CONTAINER_OF(reply, struct fake_call, reply)->reply_body);
	return 0;
}

static const struct s3_reply_ops reply_ops = {reply_head, reply_text, reply_sink};

static enum s3_method method_of(const char *name)
{
	static const char *const names[] = {"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(names[i], name) == 0)
			return (enum s3_method)i;
	return S3_METHOD_OTHER;
}

void fake_call_init(struct fake_call *call, const char *method, const char *path, const char *query)
{
	*call = (struct fake_call){
		.request = {.method = method_of(method),
			.method_text = slice_str(method),
			.path = slice_str(path),
			.query = slice_str(query),
			.session = &fake_root,
			.transport = "http",
			.core = &fake_core,
			.peer = "127.0.0.1:1",
			.request_id = "0123456789ABCDEF"},
		.reply.ops = &reply_ops,
		.body.ops = &body_ops,
	};
	buf_init(&call->reply_head, SIZE_MAX);
	buf_init(&call->reply_body, SIZE_MAX);
}

void fake_call_header(struct fake_call *call, const char *name, const char *value)
{
	call->headers[call->request.header_count++] =
		(struct s3_header){slice_str(name), slice_str(value)};
}

void fake_call_body(struct fake_call *call, struct slice text)
{
	call->body_text = text;
	call->body.bytes = text.len;
	call->request.body = &call->body;
}

void fake_call_run(struct s3 *s3, struct fake_call *call)
{
	call->request.headers = call->headers;
	s3_handle(s3, &call->request, &call->reply);
	CHECK(call->heads == 1);
}

void fake_call_free(struct fake_call *call)
{
	buf_free(&call->reply_head);
	buf_free(&call->reply_body);
}

struct slice fake_reply_header(const struct fake_call *call, const char *name)
{
	struct slice rest = buf_slice(&call->reply_head);

	while (rest.len) {
		struct slice value = slice_split(&rest, '\n');
		struct slice found = slice_split(&value, ':');

		if (slice_eq(found, slice_str(name)))
			return slice_trim(value);
	}
	return SLICE_NONE;
}

bool fake_reply_has(const struct fake_call *call, const char *text)
{
	return slice_find(buf_slice(&call->reply_body), slice_str(text)) >= 0;
}

void store_usage(struct store *store, struct store_usage *ret_usage)
{
	*ret_usage = (struct store_usage){0};
	for (const struct bucket *bucket = store->buckets; bucket; bucket = bucket->next)
		ret_usage->buckets++;
}

/* Nothing is leased here: tests/unit/store and tests/e2e/lease do that. */
bool store_get_inline(const struct store_get *get, struct slice *ret_body)
{
	(void)get;
	(void)ret_body;
	return false;
}

void store_get_stretch(
	const struct store_get *get, uint64_t offset, uint64_t *ret_start, uint64_t *ret_bytes)
{
	(void)get;
	*ret_start = offset;
	*ret_bytes = 0;
}

bool store_get_cached(struct store_get *get, uint64_t offset, struct region_span *ret_span)
{
	(void)get;
	(void)offset;
	(void)ret_span;
	return false;
}

bool region_put(struct region *region, struct region_span span, enum region_owner owner)
{
	(void)region;
	(void)span;
	(void)owner;
	return false;
}

uint64_t store_rights_epoch(const struct store *store)
{
	(void)store;
	return 0;
}

int store_object_watch_begin(
	struct store_get *get, struct store_object_watch *watch, uint64_t epoch)
{
	(void)get;
	(void)watch;
	(void)epoch;
	return -ESTALE;
}

void store_object_watch_end(struct store *store, struct store_object_watch *watch)
{
	(void)store;
	(void)watch;
}

void store_rights_changed(struct store *store)
{
	(void)store;
}

void fiber_offload(fiber_fn *fn, void *arg)
{
	fn(arg);
}

void fiber_offload_long(fiber_fn *fn, void *arg) __attribute__((alias("fiber_offload")));
