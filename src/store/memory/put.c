/* store/memory/put.c: changes to a store in memory: a put collects its bytes alone; the commit
 * decides and changes the maps under the lock. */
#include "flow/flow.h"
#include "store/memory/tree.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Another object that the commit deletes. */
struct ending {
	struct bucket *bucket; /* with a reference */
	struct object *object; /* with a reference */
	char *key;
	size_t key_len;
	bool drop;
};

struct store_put {
	struct store_put_head head;
	struct store *store;
	struct bucket *bucket;	  /* with a reference */
	struct bucket *bucket_of; /* the same, of one that must exist, too; or NULL */
	struct body *body;
	bool composable;
	struct object *base; /* for an append, with a reference; NULL: none */
	struct ending *endings;
	uint32_t ending_count, ending_cap, composed_count;
	struct flow_sink sink;
	struct flow_piece staging; /* frames that gather a chunk; data NULL: none */
	uint64_t bytes_total;	   /* that the sink expects */
	uint64_t bytes_max;
	size_t key_len;
	char key[];
};

/* The store's bounds and the bucket's quota, as far as the length is known: the commit decides. */
static int room_check(struct store_put *put, const struct store_put_opts *opts)
{
	const struct store_memory_opts *bounds = &put->store->opts;
	bool known = opts->bytes != UINT64_MAX;
	const struct object *old = memory_key_current(memory_key_find(put->bucket, opts->key));
	uint64_t frames = known ? (uint64_t)region_frames_for(opts->bytes) * FRAME_BYTES : 0;
	int ret = memory_quota_room(put->bucket, opts->key, known ? (int64_t)opts->bytes : 0);

	if (put->bucket->ending)
		return -ENOBUFS;
	put->bytes_max = bounds->bytes_max ? MIN(bounds->bytes_max, LIMIT_PUT_BYTES_MAX)
					   : LIMIT_PUT_BYTES_MAX;
	return ret ? ret
		   : memory_bound_check(put->store, frames, old ? old->charge : 0, 1, old ? 1 : 0);
}

int memory_put_open(
	struct store *store, const struct store_put_opts *opts, struct store_put **ret_put)
{
	struct store_put *put;
	int ret = 0;

	if (!store_key_valid(opts->key))
		return -EINVAL;
	if (opts->bytes != UINT64_MAX && opts->bytes > LIMIT_PUT_BYTES_MAX)
		return -EFBIG;
	put = (struct store_put *)calloc(1, sizeof(*put) + opts->key.len);
	if (put)
		put->body = memory_body_open(store);
	if (!put || !put->body) {
		free(put);
		return -ENOMEM;
	}
	put->store = memory_store_get(store);
	put->composable = opts->composable;
	put->key_len = opts->key.len;
	memcpy(put->key, opts->key.data, opts->key.len);
	put->body->body_number = atomic_fetch_add(store->opts.body_numbers, 1);
	put->head = (struct store_put_head){.engine = store->head.engine,
		.magic = STORE_PUT_MAGIC,
		.body_number = put->body->body_number};
	memory_lock_fresh(store);
	put->bucket = memory_bucket_find(store, opts->bucket);
	if (put->bucket)
		put->bucket->refs++;
	put->bucket_of = memory_bucket_find_id(store, opts->bucket_id);
	if (put->bucket_of)
		put->bucket_of->refs++;
	ret = put->bucket && !put->bucket->dead && (put->bucket_of || !opts->bucket_id)
		      ? room_check(put, opts)
		      : -ENOENT;
	pthread_mutex_unlock(&store->lock);
	if (ret)
		memory_put_abort(put);
	else
		*ret_put = put;
	return ret;
}

/* ---- The sink. ---- */

/* Adds the piece's frames, all of them, to the body. */
static int chunk_take(struct store_put *put, struct flow_piece *piece)
{
	struct region_span span = piece->span;
	int ret;

	flow_piece_pass(put->sink.core, piece);
	region_switch(put->body->region, span, OWNER_APP, OWNER_CACHE);
	pthread_mutex_lock(&put->store->lock);
	ret = put->bucket->dead
		      ? -ENOENT
		      : memory_bound_loose(put->store,
				(uint64_t)memory_frames_charged(span.frame_count) * FRAME_BYTES);
	if (ret)
		region_put(put->body->region, span, OWNER_CACHE);
	else
		ret = memory_body_add(put->body, span, piece->bytes);
	pthread_mutex_unlock(&put->store->lock);
	return ret;
}

/* Whether frames waste less than half of what they are. */
static bool is_snug(uint32_t frame_count, uint32_t bytes)
{
	return memory_frames_charged(frame_count) <=
	       2 * memory_frames_charged(region_frames_for(bytes));
}

/* Whether the piece's own frames may stay: those of an extension could keep it from going. */
static bool may_stay(const struct store_put *put, const struct flow_piece *piece)
{
	return !put->staging.data && piece->hold == FLOW_HOLD_LEASE &&
	       piece->data == piece->span.data && region_span_lasts(put->body->region, piece->span);
}

static bool fits_as_is(const struct store_put *put, const struct flow_piece *piece)
{
	return may_stay(put, piece) && piece->offset % STORE_CHUNK_BYTES == 0 &&
	       (piece->bytes == STORE_CHUNK_BYTES ||
		       piece->offset + piece->bytes == put->bytes_total) &&
	       is_snug(piece->span.frame_count, piece->bytes);
}

/* Whether the piece's own frames can gather the chunk that it begins. */
static bool becomes_staging(const struct store_put *put, const struct flow_piece *piece)
{
	return may_stay(put, piece) && piece->offset % STORE_CHUNK_BYTES == 0 &&
	       piece->bytes < STORE_CHUNK_BYTES &&
	       region_span_bytes(piece->span) >=
		       MIN(put->bytes_total - piece->offset, (uint64_t)STORE_CHUNK_BYTES);
}

/* The frames of a shorter body than was expected, or of one of unknown length, may be too many. */
static void staging_shrink(struct store_put *put)
{
	const struct flow_want want = {.frame_count = region_frames_for(put->staging.bytes),
		.owner = OWNER_APP,
		.share = FLOW_SHARE_OWN,
		.lasting = true,
		.deadline_ns = DEADLINE_NONE};
	struct flow_piece small = put->staging;

	if (is_snug(put->staging.span.frame_count, put->staging.bytes) ||
		flow_piece_lease_now(put->sink.core, &want, &small))
		return;
	region_copy(small.data, put->staging.data, small.bytes, COPY_ALIGN);
	flow_piece_end(put->sink.core, &put->staging, OWNER_APP);
	put->staging = small;
}

static int staging_take(struct store_put *put)
{
	struct flow_piece piece = put->staging;

	put->staging.data = NULL;
	return chunk_take(put, &piece);
}

static int staging_open(struct store_put *put, uint64_t offset)
{
	uint32_t frame_count =
		region_frames_for(MIN(put->bytes_total - offset, (uint64_t)STORE_CHUNK_BYTES));
	struct flow_want want = {.frame_count = frame_count,
		.owner = OWNER_APP,
		.share = frame_count > FLOW_FRAMES_SMALL ? put->sink.share : FLOW_SHARE_OWN,
		.begun = true,
		.lasting = true,
		.deadline_ns = put->sink.deadline_ns};
	int ret;

	put->staging = (struct flow_piece){.hold = FLOW_HOLD_LEASE, .offset = offset};
	ret = flow_piece_lease_now(put->sink.core, &want, &put->staging);
	if (ret != -ENOBUFS)
		return ret;
	/* An extension's frames are better than a refusal. */
	want.lasting = false;
	return flow_piece_lease_now(put->sink.core, &want, &put->staging);
}

/* Copies the piece's bytes into whole chunks. */
static int gather(struct store_put *put, const struct flow_piece *piece)
{
	uint32_t at = 0;
	int ret = 0;

	while (at < piece->bytes && !ret) {
		if (!put->staging.data)
			ret = staging_open(put, piece->offset + at);
		if (ret)
			break;
		at += flow_piece_append(&put->staging, STORE_CHUNK_BYTES, piece, at);
		if (put->staging.bytes == STORE_CHUNK_BYTES)
			ret = staging_take(put);
	}
	return ret;
}

static int sink_push(struct flow_sink *sink, struct flow_piece *piece)
{
	struct store_put *put = CONTAINER_OF(sink, struct store_put, sink);
	uint64_t held = put->body->bytes + put->staging.bytes * (put->staging.data != NULL);
	int ret = 0;

	CHECK(piece->offset == held);
	if (piece->bytes > put->bytes_total - held)
		ret = -EMSGSIZE;
	else if (held + piece->bytes > put->bytes_max)
		ret = -EFBIG;
	if (!ret && fits_as_is(put, piece))
		return chunk_take(put, piece);
	if (!ret && becomes_staging(put, piece)) {
		put->staging = *piece;
		piece->data = NULL;
		return 0;
	}
	if (!ret)
		ret = gather(put, piece);
	flow_piece_end(sink->core, piece, OWNER_APP);
	return ret;
}

static int sink_finish(struct flow_sink *sink, bool failed)
{
	struct store_put *put = CONTAINER_OF(sink, struct store_put, sink);
	uint64_t held = put->body->bytes + put->staging.bytes * (put->staging.data != NULL);

	bool cut = !failed && put->bytes_total != UINT64_MAX && held != put->bytes_total;

	if (put->staging.data && (failed || cut))
		flow_piece_end(sink->core, &put->staging, OWNER_APP);
	if (cut)
		return -EPIPE;
	if (!put->staging.data)
		return 0;
	staging_shrink(put);
	return staging_take(put);
}

static const struct flow_sink_ops SINK_OPS = {
	.name = "memory",
	.push = sink_push,
	.finish = sink_finish,
};

int memory_put_sink(struct store_put *put, struct flow_core *core, uint64_t bytes_total,
	struct flow_sink **ret_sink)
{
	put->sink = (struct flow_sink){.magic = FLOW_SINK_MAGIC,
		.ops = &SINK_OPS,
		.core = core,
		.deadline_ns = DEADLINE_NONE};
	put->bytes_total = bytes_total;
	*ret_sink = &put->sink;
	return 0;
}

int memory_put_tagged(struct store_put *put, uint64_t offset, const uint8_t tag[STORE_TAG_BYTES])
{
	struct body *body = put->body;

	if (offset != (uint64_t)body->tag_count * STORE_CHECK_BYTES)
		return -EINVAL;
	if (memory_array_reserve(
		    (void **)&body->tags, body->tag_count, &body->tag_cap, STORE_TAG_BYTES))
		return -ENOMEM;
	memcpy(body->tags + (size_t)body->tag_count++ * STORE_TAG_BYTES, tag, STORE_TAG_BYTES);
	return 0;
}

/* ---- The bodies of others. ---- */

int memory_put_compose(struct store_put *put, struct slice bucket_name, struct slice key,
	const struct store_get *get, bool drop)
{
	struct ending *ending;
	struct bucket *bucket;
	int ret = 0;

	if (put->body->bytes || put->base)
		return -EINVAL;
	if (put->composed_count + !drop > STORE_PARTS_MAX ||
		put->ending_count >= STORE_PARTS_MAX + 16)
		return -EFBIG;
	if (memory_array_reserve(
		    (void **)&put->endings, put->ending_count, &put->ending_cap, sizeof(*ending)))
		return -ENOMEM;
	ending = &put->endings[put->ending_count];
	*ending = (struct ending){.key = (char *)malloc(key.len), .key_len = key.len, .drop = drop};
	if (!ending->key)
		return -ENOMEM;
	memcpy(ending->key, key.data, key.len);
	pthread_mutex_lock(&put->store->lock);
	bucket = memory_bucket_find(put->store, bucket_name);
	if (!bucket)
		ret = -ENOENT;
	else if (bucket == put->bucket && slice_eq(key, slice_of(put->key, put->key_len)))
		ret = -EINVAL;
	else if (!drop && (get->object->part_count > 1 || !get->object->composable))
		ret = -EINVAL;
	else if (memory_key_current(memory_key_find(bucket, key)) != get->object)
		ret = -ESTALE;
	if (!ret) {
		bucket->refs++;
		get->object->refs++;
		ending->bucket = bucket;
		ending->object = get->object;
		put->ending_count++;
		put->composed_count += !drop;
	}
	pthread_mutex_unlock(&put->store->lock);
	if (ret)
		free(ending->key);
	return ret;
}

int memory_put_append(struct store_put *put, const struct store_get *get)
{
	int ret = 0;

	if (put->base || put->ending_count)
		return -EINVAL;
	if (get->object->part_count >= STORE_PARTS_MAX)
		return -E2BIG;
	/* Of a bucket of that name that was deleted: its lock is another one. */
	if (get->store != put->store)
		return -ESTALE;
	pthread_mutex_lock(&put->store->lock);
	if (put->bucket->info.versioning != STORE_VERSIONING_NEVER)
		ret = -EINVAL;
	else
		get->object->refs++;
	pthread_mutex_unlock(&put->store->lock);
	if (!ret)
		put->base = get->object;
	return ret;
}

void memory_put_abort(struct store_put *put)
{
	struct store *store = put->store;

	pthread_mutex_lock(&store->lock);
	for (uint32_t i = 0; i < put->ending_count; i++) {
		memory_object_put(put->endings[i].object);
		memory_bucket_put(store, put->endings[i].bucket);
		free(put->endings[i].key);
	}
	memory_object_put(put->base);
	memory_body_put(put->body);
	memory_bucket_put(store, put->bucket_of);
	memory_bucket_put(store, put->bucket);
	pthread_mutex_unlock(&store->lock);
	magic_clear(&put->head.magic);
	free(put->endings);
	free(put);
	memory_store_put(store);
}

/* ---- The commit. All under the lock. ---- */

/* This store keeps no rows, but numbers them as the interface says. */
static void row_number(struct store *store, struct store_outbox_row *row)
{
	for (; row; row = row->next)
		row->number = ++store->seq_last;
}

static void version_name(struct store *store, const struct bucket *bucket, struct object *object)
{
	object->seq = ++store->seq_last;
	if (bucket->info.versioning == STORE_VERSIONING_ENABLED)
		snprintf(object->meta.version_id, sizeof(object->meta.version_id), "%016llx",
			(unsigned long long)object->seq);
	else
		memcpy(object->meta.version_id, "null", sizeof("null"));
}

static void part_add(struct object *object, struct body *body)
{
	const struct object_part *last = &object->parts[object->part_count];

	object->parts[object->part_count].start =
		object->part_count ? last[-1].start + last[-1].body->bytes : 0;
	object->parts[object->part_count++].body = body;
	body->refs++;
}

/* The bodies of the append's base, the composed bodies, and the put's own. */
static struct object *put_object(const struct store_put *put, const struct store_meta *meta)
{
	uint32_t count = 1 + put->composed_count + (put->base ? put->base->part_count : 0);
	struct object *object =
		memory_object_open(meta, slice_of(meta->headers, meta->headers_len), count);

	if (!object)
		return NULL;
	object->part_count = 0;
	object->composable = put->composable;
	for (uint32_t i = 0; put->base && i < put->base->part_count; i++)
		part_add(object, put->base->parts[i].body);
	for (uint32_t i = 0; i < put->ending_count; i++)
		if (!put->endings[i].drop)
			part_add(object, put->endings[i].object->parts[0].body);
	if (!object->part_count || put->body->bytes)
		part_add(object, put->body);
	return object;
}

/* An object can be deleted only once: a put that names it twice is refused. */
static int endings_check(const struct store_put *put)
{
	uint32_t i;

	for (i = 0; i < put->ending_count; i++) {
		const struct ending *ending = &put->endings[i];
		struct slice key = slice_of(ending->key, ending->key_len);

		if (ending->bucket->dead || ending->object->ends ||
			memory_key_current(memory_key_find(ending->bucket, key)) != ending->object)
			break;
		ending->object->ends = true;
	}
	for (uint32_t seen = 0; seen < i; seen++)
		put->endings[seen].object->ends = false;
	return i == put->ending_count ? 0 : -ESTALE;
}

static int commit_check(const struct store_put *put, store_check_fn *check, void *arg)
{
	struct slice key = slice_of(put->key, put->key_len);
	const struct object *current = memory_key_current(memory_key_find(put->bucket, key));
	int ret = 0;

	if (put->bucket->dead || (put->bucket_of && put->bucket_of->dead))
		return -ENOENT;
	if (put->bucket->ending)
		return -ENOBUFS;
	if (put->base &&
		(put->base != current || put->bucket->info.versioning != STORE_VERSIONING_NEVER))
		return -ESTALE;
	if (check)
		ret = check(current ? &current->meta : NULL, arg);
	return ret ? ret : endings_check(put);
}

/* Whether all pieces have tags, or none has. */
static bool tags_cover(const struct body *body)
{
	uint64_t pieces = (body->bytes + STORE_CHECK_BYTES - 1) / STORE_CHECK_BYTES;

	return !body->tag_count || body->tag_count == pieces;
}

/* Of the objects of the put's own bucket that the commit deletes: they make room. */
static int64_t ending_bytes(const struct store_put *put)
{
	int64_t bytes = 0;

	for (uint32_t i = 0; i < put->ending_count; i++)
		if (put->endings[i].bucket == put->bucket)
			bytes += (int64_t)put->endings[i].object->meta.bytes;
	return bytes;
}

/* *ret_object: with a reference. */
static int commit_locked(struct store_put *put, struct store_meta *meta, store_check_fn *check,
	void *arg, struct object **ret_object)
{
	struct slice key = slice_of(put->key, put->key_len);
	const struct object *old;
	struct object *object;
	uint64_t bytes;
	int ret = commit_check(put, check, arg);

	if (!ret && !tags_cover(put->body))
		ret = -EINVAL;
	if (!ret)
		ret = memory_quota_room(put->bucket, key, (int64_t)meta->bytes - ending_bytes(put));
	if (ret)
		return ret;
	object = put_object(put, meta);
	if (!object)
		return -ENOMEM;
	bytes = object->parts[object->part_count - 1].start +
		object->parts[object->part_count - 1].body->bytes;
	old = memory_key_current(memory_key_find(put->bucket, key));
	ret = bytes != meta->bytes
		      ? -EINVAL
		      : memory_bound_check(put->store, memory_object_charge(object, key.len),
				old ? old->charge : 0, 1, old ? 1 : 0);
	if (ret) {
		memory_object_put(object);
		return ret;
	}
	version_name(put->store, put->bucket, object);
	object->meta.mtime_ns = clock_real_after_ns(&put->store->mtime_last_ns);
	meta->mtime_ns = object->meta.mtime_ns;
	memcpy(meta->version_id, object->meta.version_id, sizeof(meta->version_id));
	ret = memory_version_add(put->store, put->bucket, key, object);
	for (uint32_t i = 0; !ret && i < put->ending_count; i++) {
		const struct ending *ending = &put->endings[i];

		memory_version_replace(put->store,
			memory_key_find(ending->bucket, slice_of(ending->key, ending->key_len)), 0,
			NULL);
	}
	if (ret)
		return ret;
	row_number(put->store, put->head.outbox_row);
	object->refs++;
	*ret_object = object;
	return ret;
}

int memory_put_commit(
	struct store_put *put, struct store_meta *meta, store_check_fn *check, void *arg)
{
	struct object *object = NULL;
	int ret = -EINVAL;

	if (meta->checksum_len <= sizeof(meta->checksum) &&
		meta->headers_len <= STORE_HEADERS_BYTES_MAX) {
		memory_lock_fresh(put->store);
		ret = commit_locked(put, meta, check, arg, &object);
		if (!ret)
			memory_bound_keep_all(put->store, object);
		memory_object_put(object);
		pthread_mutex_unlock(&put->store->lock);
	}
	memory_put_abort(put);
	return ret;
}

/* ---- Changes in place. ---- */

static int rename_locked(struct bucket *bucket, const struct store_name *from,
	const struct store_get *get, const struct store_name *to, struct slice headers,
	struct store_condition condition)
{
	struct store *store = get->store;
	const struct object *held = memory_key_current(memory_key_find(bucket, to->key));
	struct object *object;
	int ret = 0;

	if (bucket->info.versioning != STORE_VERSIONING_NEVER)
		return -EINVAL;
	if (condition.check)
		ret = condition.check(held ? &held->meta : NULL, condition.arg);
	if (!ret && memory_key_current(memory_key_find(bucket, from->key)) != get->object)
		ret = -ESTALE;
	if (ret)
		return ret;
	object = memory_object_open_edited(get->object, headers);
	if (!object)
		return -ENOMEM;
	ret = memory_bound_check(store, memory_object_charge(object, to->key.len),
		get->object->charge + (held ? held->charge : 0), 1, held ? 2 : 1);
	if (ret) {
		memory_object_put(object);
		return ret;
	}
	object->refs++;
	ret = memory_version_add(store, bucket, to->key, object);
	if (!ret) {
		memory_version_replace(store, memory_key_find(bucket, from->key), 0, NULL);
		memory_bound_keep_all(store, object);
	}
	memory_object_put(object);
	return ret;
}

int memory_rename(struct store *store, const struct store_name *from, const struct store_get *get,
	struct slice to, struct slice headers, struct store_condition condition)
{
	const struct store_name name = {.key = to};
	struct bucket *bucket;
	int ret;

	if (!store_key_valid(to) || slice_eq(to, from->key) ||
		headers.len > STORE_HEADERS_BYTES_MAX)
		return -EINVAL;
	memory_lock_fresh(store);
	bucket = memory_bucket_find_of(store, from->bucket, from->bucket_id);
	ret = bucket ? rename_locked(bucket, from, get, &name, headers, condition) : -ENOENT;
	pthread_mutex_unlock(&store->lock);
	return ret;
}

struct change {
	store_edit_fn *edit; /* NULL: the headers stay */
	struct store_condition condition;
	struct store_flags flags;
	void *arg;
};

static int change_locked(
	struct store *store, const struct store_name *name, const struct change *change)
{
	struct bucket *bucket = memory_bucket_find_of(store, name->bucket, name->bucket_id);
	struct key *key = bucket ? memory_key_find(bucket, name->key) : NULL;
	struct object *object, *edited;
	struct slice headers;
	uint32_t at;
	int ret = 0;

	object = memory_key_version(key, name->version_id, &at);
	if (!object)
		return -ENOENT;
	headers = slice_of(object->meta.headers, object->meta.headers_len);
	if (change->edit)
		ret = change->edit(&object->meta, &headers, change->arg);
	else if (change->condition.check)
		ret = change->condition.check(&object->meta, change->condition.arg);
	if (!ret && headers.len > STORE_HEADERS_BYTES_MAX)
		ret = -EINVAL;
	if (ret)
		return ret;
	edited = memory_object_open_edited(object, headers);
	if (!edited)
		return -ENOMEM;
	edited->meta.checksum_flags &= (uint8_t)~change->flags.mask;
	edited->meta.checksum_flags |= change->flags.flags & change->flags.mask;
	ret = memory_bound_check(
		store, memory_object_charge(edited, key->len), object->charge, 1, 1);
	if (ret) {
		memory_object_put(edited);
		return ret;
	}
	edited->refs++;
	memory_version_replace(store, key, at, edited);
	memory_bound_keep_all(store, edited);
	memory_object_put(edited);
	return 0;
}

static int change_run(struct store *store, const struct store_name *name,
	const struct change *change, struct store_outbox_row *outbox_row)
{
	int ret;

	if (!store_key_valid(name->key))
		return -EINVAL;
	memory_lock_fresh(store);
	ret = change_locked(store, name, change);
	if (!ret)
		row_number(store, outbox_row);
	pthread_mutex_unlock(&store->lock);
	return ret;
}

int memory_edit(struct store *store, const struct store_name *name, store_edit_fn *edit, void *arg,
	struct store_outbox_row *outbox_row)
{
	const struct change change = {.edit = edit, .arg = arg};

	return change_run(store, name, &change, outbox_row);
}

int memory_set_flags(struct store *store, const struct store_name *name, struct store_flags flags,
	struct store_condition condition, struct store_outbox_row *outbox_row)
{
	const struct change change = {.condition = condition, .flags = flags};

	return change_run(store, name, &change, outbox_row);
}

/* ---- Deleting. ---- */

static int marker_add(struct store *store, struct bucket *bucket, struct store_deletion *deletion)
{
	const struct store_meta meta = {
		.delete_marker = true, .mtime_ns = clock_real_after_ns(&store->mtime_last_ns)};
	struct object *marker = memory_object_open(&meta, SLICE_NONE, 1);
	struct body *none = memory_body_open(store);

	if (!marker || !none) {
		memory_object_put(marker);
		memory_body_put(none);
		return -ENOMEM;
	}
	marker->parts[0].body = none;
	version_name(store, bucket, marker);
	deletion->delete_marker = true;
	memcpy(deletion->version_id_out, marker->meta.version_id, sizeof(deletion->version_id_out));
	return memory_version_add(store, bucket, deletion->key, marker);
}

static int delete_locked(
	struct store *store, struct bucket *bucket, struct store_deletion *deletion)
{
	struct key *key = memory_key_find(bucket, deletion->key);
	bool named = deletion->version_id.len;
	uint32_t at;
	struct object *object = memory_key_version(key, deletion->version_id, &at);
	int ret = 0;

	if (named && !object)
		return 0;
	if (named && !at && deletion->noncurrent)
		return -ECANCELED;
	if (deletion->check)
		ret = deletion->check(object ? &object->meta : NULL, deletion->arg);
	if (ret)
		return ret;
	if (named) {
		deletion->delete_marker = object->meta.delete_marker;
		memcpy(deletion->version_id_out, object->meta.version_id,
			sizeof(deletion->version_id_out));
	}
	if (!named && bucket->info.versioning != STORE_VERSIONING_NEVER)
		ret = marker_add(store, bucket, deletion);
	else if (object)
		memory_version_replace(store, key, at, NULL);
	if (!ret)
		row_number(store, deletion->outbox_row);
	return ret;
}

int memory_delete_each(struct store *store, struct slice bucket_name, uint64_t bucket_id,
	struct store_deletion *list, uint32_t count)
{
	struct bucket *bucket;

	if (count > LIMIT_DELETE_KEYS_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < count; i++)
		if (!store_key_valid(list[i].key))
			return -EINVAL;
	memory_lock_fresh(store);
	bucket = memory_bucket_find_of(store, bucket_name, bucket_id);
	for (uint32_t i = 0; bucket && i < count; i++) {
		list[i].delete_marker = false;
		list[i].version_id_out[0] = 0;
		for (struct store_outbox_row *row = list[i].outbox_row; row; row = row->next)
			row->number = 0;
		list[i].result = delete_locked(store, bucket, &list[i]);
	}
	pthread_mutex_unlock(&store->lock);
	return bucket ? 0 : -ENOENT;
}
