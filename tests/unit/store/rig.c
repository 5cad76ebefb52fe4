/* tests/unit/store/rig.c: see rig.h. */
#include "rig.h"
#include "../ring_poller.h"

#include "store/call/call.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Twice the cache. The pages are written at once, for each of many openings. */
#define REGION_BYTES (32 * MIB)

void rig_dir_make(struct rig *rig)
{
	const char *base = getenv("TMPDIR");
	char here[256];

	/* A path that a store takes while it is open must be absolute. */
	if (!base || base[0] != '/')
		base = getcwd(here, sizeof(here));
	assert_non_null(base);
	snprintf(rig->dir, sizeof(rig->dir), "%s/nebulaio-store-XXXXXX", base);
	assert_non_null(mkdtemp(rig->dir));
}

void rig_dir_remove(struct rig *rig)
{
	char command[600];

	snprintf(command, sizeof(command), "rm -rf '%s'", rig->dir);
	assert_int_equal(system(command), 0);
}

void rig_init(struct rig *rig, uint32_t core_count)
{
	memset(rig, 0, sizeof(*rig));
	rig->core_count = core_count;
	rig_dir_make(rig);
	rig->opts = (struct store_opts){
		.dir = rig->dir,
		.cache_bytes_max = 16 * MIB,
		.log_bytes = 4 * MIB,
		.step_bytes = 16 * MIB,
		.index_cache_bytes = 8 * MIB,
	};
}

/* ---- Rings: the part of flow in the server. ---- */

static int32_t io_run(struct rig *rig, uint8_t opcode, const struct store_run *run, void *data)
{
	struct region_ring *ring = region_ring(rig->region, reactor_core_idx(reactor_self()));
	struct io io = {.fiber = fiber_self()};
	struct region_sqe sqe = {
		.opcode = opcode,
		.target = run->target,
		.len = ALIGN_UP(run->bytes, FRAME_BYTES),
		.addr = (uint64_t)(uintptr_t)data,
		.offset = run->volume_offset,
		.user_data = (uint64_t)(uintptr_t)&io,
	};

	while (region_submit(ring, &sqe) == -EAGAIN)
		fiber_yield();
	while (!io.done)
		fiber_park();
	return io.result;
}

/* A chunk's transfers, one after the other, until the first that fails. */
struct runs_move {
	struct rig *rig;
	uint8_t *data; /* of the chunk */
	uint8_t opcode;
	int ret;
};

static void run_move(void *arg, const struct store_run *run, uint32_t at)
{
	struct runs_move *move = (struct runs_move *)arg;

	if (!move->ret)
		move->ret = MIN(io_run(move->rig, move->opcode, run, move->data + at), 0);
}

static void place_note(void *arg, const struct store_run *run, uint32_t at)
{
	assert_int_equal(at, 0);
	*(uint64_t *)arg = run->volume_offset;
}

int rig_place(struct store_get *get, uint64_t offset, uint64_t *ret_volume_offset)
{
	return local_get_chunk(get, offset, 1, place_note, ret_volume_offset);
}

void rig_no_run(void *arg, const struct store_run *run, uint32_t at)
{
	(void)arg;
	(void)run;
	(void)at;
}

/* ---- Running. ---- */

struct start {
	struct rig *rig;
	rig_fn *fn;
	void *arg;
	bool crash;
	uint32_t core_idx;
};

static void core_fiber(void *arg)
{
	struct start *start = (struct start *)arg;
	struct rig *rig = start->rig;

	if (start->fn)
		start->fn(rig, start->arg);
	if (__atomic_sub_fetch(&rig->fibers_left, 1, __ATOMIC_ACQ_REL) == 0) {
		for (uint32_t i = 1; i < rig->core_count; i++)
			reactor_stop(rig->reactors[i]);
		if (start->core_idx == 0)
			return;
	}
	if (start->core_idx != 0)
		return;
	while (__atomic_load_n(&rig->fibers_left, __ATOMIC_ACQUIRE))
		fiber_sleep_ns(NS_PER_MS);
}

/* The first core's fiber outlives the others: it ends the committer. */
static void first_fiber(void *arg)
{
	struct start *start = (struct start *)arg;

	core_fiber(arg);
	store_quiesce(start->rig->store);
	reactor_stop(start->rig->reactors[0]);
}

static void *reactor_thread(void *arg)
{
	reactor_run((struct reactor *)arg);
	return NULL;
}

static void cores_open(struct rig *rig)
{
	for (uint32_t i = 0; i < rig->core_count; i++) {
		struct reactor_opts opts = {.core_idx = i, .cpu = -1};

		assert_int_equal(reactor_open(&opts, &rig->reactors[i]), 0);
		assert_int_equal(store_attach(rig->store, rig->reactors[i]), 0);
		ring_poller_add(rig->reactors[i], &rig->pollers[i], region_ring(rig->region, i));
	}
}

void rig_run(struct rig *rig, rig_fn *fn, void *arg)
{
	struct region_opts region_opts = {
		.bytes = REGION_BYTES, .core_count = rig->core_count, .ring_entries = 256};
	struct start starts[RIG_CORES_MAX];
	struct region_usage usage;

	assert_int_equal(region_open(&region_opts, &rig->region), 0);
	rig->open_result = store_open(&rig->opts, rig->region, &rig->store);
	if (rig->open_result) {
		region_close(rig->region);
		return;
	}
	cores_open(rig);
	rig->fibers_left = rig->core_count;
	for (uint32_t i = 0; i < rig->core_count; i++) {
		starts[i] = (struct start){.rig = rig, .fn = fn, .arg = arg, .core_idx = i};
		assert_int_equal(fiber_spawn(rig->reactors[i], "test", i ? core_fiber : first_fiber,
					 &starts[i]),
			0);
	}
	for (uint32_t i = 1; i < rig->core_count; i++)
		assert_int_equal(
			pthread_create(&rig->threads[i], NULL, reactor_thread, rig->reactors[i]),
			0);
	reactor_run(rig->reactors[0]);
	for (uint32_t i = 1; i < rig->core_count; i++)
		pthread_join(rig->threads[i], NULL);
	for (uint32_t i = 0; i < rig->core_count; i++)
		ring_poller_close(rig->reactors[i], &rig->pollers[i]);
	store_close(rig->store);
	region_usage(rig->region, &usage);
	for (uint32_t owner = OWNER_FREE + 1; owner < OWNER_COUNT; owner++)
		assert_int_equal(usage.frames_by_owner[owner], 0);
	region_close(rig->region);
}

struct child {
	struct rig *rig;
	rig_fn *fn;
	void *arg;
	struct waiting {
		uint32_t left;
		struct fiber *parent;
	} * waiting;
};

static void child_fiber(void *arg)
{
	struct child *child = (struct child *)arg;

	child->fn(child->rig, child->arg);
	if (--child->waiting->left == 0)
		fiber_wake(child->waiting->parent);
}

void rig_fibers(struct rig *rig, uint32_t count, rig_fn *fn, void *args, size_t arg_bytes)
{
	struct waiting waiting = {.left = count, .parent = fiber_self()};
	struct child *children = (struct child *)calloc(count, sizeof(*children));

	for (uint32_t i = 0; i < count; i++) {
		children[i] = (struct child){.rig = rig,
			.fn = fn,
			.arg = (char *)args + i * arg_bytes,
			.waiting = &waiting};
		assert_int_equal(
			fiber_spawn(reactor_self(), "test child", child_fiber, &children[i]), 0);
	}
	while (waiting.left)
		fiber_park();
	free(children);
}

/* ---- Objects. ---- */

void body_fill(uint8_t *body, size_t bytes, uint64_t seed)
{
	struct prng prng;

	prng_seed(&prng, seed);
	prng_fill(&prng, body, bytes);
}

int bucket_make(struct store *store, const char *name)
{
	struct store_bucket bucket = {.owner = "root", .region = "us-east-1"};

	snprintf(bucket.name, sizeof(bucket.name), "%s", name);
	return store_bucket_create(store, &bucket);
}

static int versioning_edit(struct store_bucket *bucket, void *arg)
{
	bucket->versioning = *(const uint8_t *)arg;
	return 0;
}

int versioning_set(struct rig *rig, const char *bucket, uint8_t versioning)
{
	return store_bucket_edit(rig->store, slice_str(bucket), versioning_edit, &versioning);
}

struct store_usage rig_usage(struct rig *rig)
{
	struct store_usage usage;

	store_usage(rig->store, &usage);
	return usage;
}

static void ignore_entry(const struct store_list_entry *entry, void *arg)
{
	(void)entry;
	(void)arg;
}

void rig_index_wait(struct rig *rig)
{
	const struct store_list_opts opts = {.bucket = SLICE("b"), .entries_max = 1};
	bool more;

	assert_int_equal(store_list(rig->store, &opts, ignore_entry, NULL, &more), 0);
}

static void monitor_fiber(void *arg)
{
	store_array_monitor(((struct rig *)arg)->store);
}

void rig_monitor_start(struct rig *rig)
{
	assert_int_equal(fiber_spawn(reactor_self(), "monitor", monitor_fiber, rig), 0);
}

void rig_empty(struct rig *rig, void *arg)
{
	(void)arg;
	rig_index_wait(rig);
	assert_int_equal(rig_usage(rig).objects, 0);
	assert_int_equal(rig_usage(rig).used_bytes, 0);
}

void rig_fsck(const struct rig *rig)
{
	struct store_fsck_report report;
	struct buf out;
	int ret;

	buf_init(&out, 64 * KIB);
	ret = store_fsck(rig->dir, true, &report, &out);
	if (ret)
		print_message("%.*s\n", SLICE_FMT(buf_slice(&out)));
	assert_int_equal(ret, 0);
	buf_free(&out);
}

static void once(uint64_t log_bytes, rig_fn *fn, rig_fn *last)
{
	struct rig rig;

	rig_init(&rig, 1);
	if (log_bytes)
		rig.opts.log_bytes = log_bytes;
	rig_run(&rig, fn, NULL);
	rig_fsck(&rig);
	if (last)
		rig_run(&rig, last, NULL);
	rig_dir_remove(&rig);
}

void rig_once(rig_fn *fn, rig_fn *last)
{
	once(0, fn, last);
}

void rig_once_with_log(uint64_t log_bytes, rig_fn *fn)
{
	once(log_bytes, fn, NULL);
}

static void meta_fill(struct store_meta *meta, uint64_t bytes, uint64_t seed)
{
	memset(meta, 0, sizeof(*meta));
	meta->bytes = bytes;
	snprintf(meta->etag, sizeof(meta->etag), "%016llx", (unsigned long long)seed);
	meta->crc64 = seed;
}

static struct region_span frames_lease(struct rig *rig, uint64_t bytes)
{
	struct region_span span;
	uint32_t frames = MAX(region_frames_for(bytes), 1u);

	while (region_lease(rig->region, frames, OWNER_APP, &span) == -ENOBUFS)
		if (!store_cache_shrink(rig->store, frames, false))
			fiber_yield();
	return span;
}

/* Writes one chunk to the runs that the store grants. */
static int chunk_write(struct rig *rig, struct store_put *put, uint64_t offset,
	struct region_span span, uint32_t bytes)
{
	struct runs_move move = {.rig = rig, .opcode = REGION_OP_WRITE, .data = span.data};
	int ret;

	region_switch(rig->region, span, OWNER_APP, OWNER_DISK);
	ret = local_put_chunk(put, offset, slice_of(span.data, bytes), run_move, &move);
	ret = ret ? ret : move.ret;
	if (ret)
		region_give(rig->region, span, OWNER_DISK);
	else
		local_put_cache_take(put, offset, span, bytes);
	return ret;
}

int put_body(struct rig *rig, struct store_put *put, const uint8_t *body, uint64_t bytes)
{
	int ret = 0;

	if (bytes <= STORE_GROUPED_BYTES_MAX) {
		struct region_span span = frames_lease(rig, bytes);

		memcpy(span.data, body, bytes);
		local_put_frames_take(put, span, (uint32_t)bytes);
	}
	for (uint64_t at = 0; bytes > STORE_GROUPED_BYTES_MAX && at < bytes && !ret;) {
		uint32_t part = (uint32_t)MIN(bytes - at, (uint64_t)STORE_CHUNK_BYTES);
		struct region_span span = frames_lease(rig, part);

		memcpy(span.data, body + at, part);
		ret = chunk_write(rig, put, at, span, part);
		at += part;
	}
	return ret;
}

static int body_put(struct rig *rig, const struct store_put_opts *opts, const uint8_t *body,
	struct store_meta *meta, const struct put_how *how)
{
	struct store_put *put;
	int ret = store_put_open(rig->store, opts, &put);

	if (ret)
		return ret;
	ret = put_body(rig, put, body, meta->bytes);
	if (ret) {
		store_put_abort(put);
		return ret;
	}
	store_put_outbox_row(put, how ? how->outbox_row : NULL);
	ret = store_put_commit(put, meta, how ? how->check : NULL, how ? how->arg : NULL);
	if (!ret) {
		assert_true(meta->mtime_ns > 0);
		assert_true(meta->version_id[0]);
	}
	return ret;
}

int object_put_seeded(struct rig *rig, const char *bucket, struct slice key, uint64_t bytes,
	uint64_t seed, const struct put_how *how)
{
	struct store_put_opts opts = {.bucket = slice_str(bucket), .key = key, .bytes = bytes};
	uint8_t *body = (uint8_t *)malloc(bytes + 1);
	struct store_meta meta;
	int ret;

	meta_fill(&meta, bytes, seed);
	if (how) {
		if (how->length_unknown)
			opts.bytes = UINT64_MAX;
		opts.composable = how->composable;
		meta.headers = how->headers.data;
		meta.headers_len = (uint32_t)how->headers.len;
	}
	body_fill(body, bytes, seed);
	ret = body_put(rig, &opts, body, &meta, how);
	free(body);
	return ret;
}

/* Puts one part and adds it to the composed object. */
static int part_join(struct rig *rig, struct store_put *whole, struct slice name,
	const uint8_t *body, uint64_t bytes)
{
	const struct store_put_opts opts = {
		.bucket = SLICE("parts"), .key = name, .bytes = bytes, .composable = true};
	struct store_meta meta;
	struct store_get *get;
	bool exists;
	int ret;

	meta_fill(&meta, bytes, 1);
	ret = body_put(rig, &opts, body, &meta, NULL);
	if (!ret)
		ret = store_get_open(rig->store, opts.bucket, name, &get, &exists);
	if (ret)
		return ret;
	ret = store_put_compose(whole, opts.bucket, name, get);
	store_get_close(get);
	return ret;
}

int object_join_seeded(struct rig *rig, const char *bucket, struct slice key, uint64_t bytes,
	uint64_t seed, uint32_t part_count)
{
	const struct store_put_opts opts = {
		.bucket = slice_str(bucket), .key = key, .bytes = UINT64_MAX};
	uint8_t *body = (uint8_t *)malloc(bytes + 1);
	uint64_t each = bytes / part_count;
	struct store_meta meta;
	struct store_put *put;
	int ret = store_put_open(rig->store, &opts, &put);

	body_fill(body, bytes, seed);
	for (uint32_t i = 0; i < part_count && !ret; i++) {
		uint64_t part = i + 1 < part_count ? each : bytes - each * i;
		char name[80];

		snprintf(name, sizeof(name), "%.*s/%u", SLICE_FMT(key), i);
		ret = part_join(rig, put, slice_str(name), body + each * i, part);
		if (ret)
			store_put_abort(put);
	}
	meta_fill(&meta, bytes, seed);
	if (!ret)
		ret = store_put_commit(put, &meta, NULL, NULL);
	free(body);
	return ret;
}

int object_append(
	struct rig *rig, const char *bucket, struct slice key, const uint8_t *body, uint64_t bytes)
{
	const struct store_put_opts opts = {
		.bucket = slice_str(bucket), .key = key, .bytes = bytes};
	struct store_meta meta;
	struct store_put *put;
	struct store_get *get;
	bool exists;
	int ret = store_get_open(rig->store, opts.bucket, key, &get, &exists);

	if (ret)
		return ret;
	meta_fill(&meta, store_get_meta(get)->bytes + bytes, 1);
	ret = store_put_open(rig->store, &opts, &put);
	if (!ret) {
		ret = store_put_append(put, get);
		ret = ret ? ret : put_body(rig, put, body, bytes);
		if (ret)
			store_put_abort(put);
		else
			ret = store_put_commit(put, &meta, NULL, NULL);
	}
	store_get_close(get);
	return ret;
}

int object_grow_seeded(struct rig *rig, const char *bucket, struct slice key, uint64_t bytes,
	uint64_t seed, uint32_t piece_count)
{
	uint8_t *body = (uint8_t *)malloc(bytes + 1);
	uint64_t each = bytes / piece_count;
	const struct store_condition none = {0};
	struct store_name from = {.bucket = slice_str(bucket)};
	struct store_put_opts opts = {.bucket = from.bucket, .bytes = each};
	struct store_get *get;
	struct store_meta meta;
	char name[80];
	bool exists;
	int ret;

	snprintf(name, sizeof(name), "%.*s.grows", SLICE_FMT(key));
	opts.key = from.key = slice_str(name);
	body_fill(body, bytes, seed);
	meta_fill(&meta, each, seed);
	ret = body_put(rig, &opts, body, &meta, NULL);
	for (uint32_t i = 1; i < piece_count && !ret; i++)
		ret = object_append(rig, bucket, from.key, body + each * i,
			i + 1 < piece_count ? each : bytes - each * i);
	free(body);
	if (!ret)
		ret = store_get_open(rig->store, opts.bucket, from.key, &get, &exists);
	if (ret)
		return ret;
	ret = store_rename(rig->store, &from, get, key, SLICE_NONE, none);
	store_get_close(get);
	return ret;
}

static int chunk_read(
	struct rig *rig, struct store_get *get, uint64_t offset, uint32_t bytes, uint8_t *out)
{
	struct runs_move move = {.rig = rig, .opcode = REGION_OP_READ};
	struct region_span span;
	bool cached = false;
	int ret;

	if (local_get_cached(get, offset, &span)) {
		memcpy(out, span.data, bytes);
		region_put(rig->region, span, OWNER_CACHE);
		return 0;
	}
	span = frames_lease(rig, bytes);
	move.data = span.data;
	ret = local_get_chunk(get, offset, bytes, run_move, &move);
	if (!ret)
		ret = move.ret;
	if (!ret)
		ret = local_get_arrived(get, offset, bytes, span, &cached);
	if (!ret)
		memcpy(out, span.data, bytes);
	if (cached)
		region_put(rig->region, span, OWNER_CACHE);
	else
		region_give(rig->region, span, OWNER_APP);
	return ret;
}

static int get_read(struct rig *rig, struct store_get *get, uint8_t *out, uint64_t out_bytes)
{
	uint64_t bytes = store_get_meta(get)->bytes;
	struct slice body;
	int ret = 0;

	if (bytes > out_bytes)
		return -EMSGSIZE;
	if (local_get_inline(get, &body)) {
		assert_int_equal(body.len, bytes);
		memcpy(out, body.data, body.len);
		return 0;
	}
	for (uint64_t at = 0, chunk; at < bytes && !ret; at += chunk) {
		struct store_stretch stretch;

		store_get_stretch(get, at, &stretch);
		chunk = MIN(stretch.start + stretch.bytes - at, (uint64_t)STORE_CHUNK_BYTES);
		ret = chunk_read(rig, get, at, (uint32_t)chunk, out + at);
	}
	return ret;
}

int get_verify_seeded(struct rig *rig, struct store_get *get, uint64_t seed)
{
	uint64_t bytes = store_get_meta(get)->bytes;
	uint8_t *body = (uint8_t *)malloc(bytes + 1);
	uint8_t *out = (uint8_t *)malloc(bytes + 1);
	int ret = get_read(rig, get, out, bytes);

	body_fill(body, bytes, seed);
	if (!ret && memcmp(body, out, bytes) != 0)
		ret = -EBADMSG;
	free(body);
	free(out);
	return ret;
}

int object_read(struct rig *rig, const char *bucket, struct slice key, uint8_t *out,
	uint64_t out_bytes, uint64_t *ret_bytes)
{
	struct store_get *get;
	bool exists;
	int ret = store_get_open(rig->store, slice_str(bucket), key, &get, &exists);

	if (ret)
		return ret;
	*ret_bytes = store_get_meta(get)->bytes;
	ret = get_read(rig, get, out, out_bytes);
	store_get_close(get);
	return ret;
}

int object_verify_seeded(
	struct rig *rig, const char *bucket, struct slice key, uint64_t bytes, uint64_t seed)
{
	uint8_t *body = (uint8_t *)malloc(bytes + 1);
	uint8_t *out = (uint8_t *)malloc(bytes + 1);
	uint64_t got = 0;
	int ret = object_read(rig, bucket, key, out, bytes, &got);

	body_fill(body, bytes, seed);
	if (!ret && (got != bytes || memcmp(body, out, bytes) != 0))
		ret = -EBADMSG;
	free(body);
	free(out);
	return ret;
}
