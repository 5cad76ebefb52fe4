/* tests/unit/s3/fake.c: a reactor, a region and a store of either engine, whose opens and closes
 * are counted and can fail; and a front that keeps its answers. */
#include "fake.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "store/engine.h"
#include "store/local.h"
#include "store/memory.h"

#define REGION_BYTES (32 * MIB)
#define STACK_BYTES  (1 * MIB) /* of the fiber that the tests run on */

int fake_get_error, fake_put_error, fake_commit_error, fake_read_error, fake_edit_error;
char fake_edit_kind;
int fake_bucket_error;
uint32_t fake_read_fails, fake_delete_fails;
void (*fake_bucket_making)(void), (*fake_bucket_deleted)(void), (*fake_put_committed)(void);
void (*fake_get_opened)(void), (*fake_get_ended)(void), (*fake_deleted)(void);
int fake_open_gets, fake_open_puts, fake_open_sources;
struct store *fake_store;
struct s3 *fake_s3;
struct flow_core fake_core;
bool fake_walks_refused;
uint32_t fake_walks;
uint32_t fake_joins;
const struct s3_identity fake_root = {.access_key = "test", .root = true};

/* ---- The engine, and the wrappers of its calls. ---- */

static struct region *region;
static struct reactor *reactor;
static bool local;
static char dir[256];
static const struct store_engine *engine;
static struct store_engine counted;

static int counted_bucket_create(struct store *store, const struct store_bucket *bucket)
{
	if (fake_bucket_making)
		fake_bucket_making();
	return fake_bucket_error ? fake_bucket_error : engine->bucket_create(store, bucket);
}

static int counted_bucket_delete(struct store *store, struct slice name, uint64_t id)
{
	int ret = engine->bucket_delete(store, name, id);

	if (!ret && fake_bucket_deleted)
		fake_bucket_deleted();
	return ret;
}

static int counted_put_open(
	struct store *store, const struct store_put_opts *opts, struct store_put **ret_put)
{
	int ret = fake_put_error ? fake_put_error : engine->put_open(store, opts, ret_put);

	fake_open_puts += !ret;
	return ret;
}

static int counted_edit(struct store *store, const struct store_name *name, store_edit_fn *edit,
	void *arg, struct store_outbox_row *outbox_row)
{
	int ret;

	if (fake_edit_error && slice_eq(name->key, SLICE(FAKE_BAD_KEY)))
		return fake_edit_error;
	ret = fake_put_error ? fake_put_error : engine->edit(store, name, edit, arg, outbox_row);
	fake_edit_kind =
		!ret && outbox_row && outbox_row->text.len > 1 ? outbox_row->text.data[1] : '\0';
	return ret;
}

static int counted_delete_each(struct store *store, struct slice bucket, uint64_t bucket_id,
	struct store_deletion *list, uint32_t count)
{
	int ret;

	if (fake_delete_fails) {
		fake_delete_fails--;
		return -EIO;
	}
	ret = engine->delete_each(store, bucket, bucket_id, list, count);
	if (!ret && fake_deleted)
		fake_deleted();
	return ret;
}

static int counted_put_commit(
	struct store_put *put, struct store_meta *meta, store_check_fn *check, void *arg)
{
	int ret = fake_commit_error;

	fake_open_puts--;
	if (ret)
		engine->put_abort(put);
	else
		ret = engine->put_commit(put, meta, check, arg);
	if (!ret && fake_put_committed)
		fake_put_committed();
	return ret;
}

static void counted_put_abort(struct store_put *put)
{
	fake_open_puts--;
	engine->put_abort(put);
}

static int counted_get_open(struct store *store, const struct store_name *name,
	struct store_get **ret_get, bool *ret_bucket_exists)
{
	int ret = fake_get_error ? fake_get_error
				 : engine->get_open(store, name, ret_get, ret_bucket_exists);

	fake_open_gets += !ret;
	if (ret && fake_get_ended)
		fake_get_ended();
	else if (!ret && fake_get_opened)
		fake_get_opened();
	return ret;
}

static void counted_get_close(struct store_get *get)
{
	fake_open_gets--;
	engine->get_close(get);
	if (fake_get_ended)
		fake_get_ended();
}

static int counted_get_source(struct store_get *get, struct flow_core *core, uint64_t offset,
	uint64_t bytes, struct flow_source **ret_source);

static void engine_open(struct store **ret_store)
{
	const struct store_opts opts = {.dir = dir,
		.cache_bytes_max = 8 * MIB,
		.log_bytes = 4 * MIB,
		.step_bytes = 16 * MIB,
		.index_cache_bytes = 8 * MIB,
		.list_table_bytes_max = 8 * MIB,
		.memory_buckets_bytes_max = 2 * MIB};
	const char *base = getenv("TMPDIR");

	if (!local) {
		const struct store_memory_opts memory = {.region = region};

		CHECK(store_memory_open(&memory, ret_store) == 0);
		return;
	}
	snprintf(dir, sizeof(dir), "%s/nebulaio-s3-XXXXXX", base ? base : ".");
	CHECK(mkdtemp(dir));
	CHECK(store_open(&opts, region, ret_store) == 0);
	CHECK(store_attach(*ret_store, reactor) == 0);
}

struct store *fake_store_open(void)
{
	struct store *store;
	struct store_head *head;

	engine_open(&store);
	head = (struct store_head *)store;
	engine = head->engine;
	counted = *engine;
	counted.bucket_create = counted_bucket_create;
	counted.bucket_delete = counted_bucket_delete;
	counted.put_open = counted_put_open;
	counted.edit = counted_edit;
	counted.delete_each = counted_delete_each;
	counted.put_commit = counted_put_commit;
	counted.put_abort = counted_put_abort;
	counted.get_open = counted_get_open;
	counted.get_close = counted_get_close;
	counted.get_source = counted_get_source;
	head->engine = &counted;
	return store;
}

void fake_store_close(struct store *store)
{
	char command[300];

	((struct store_head *)store)->engine = engine;
	if (!local) {
		store_memory_close(store);
		return;
	}
	store_quiesce(store);
	store_close(store);
	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	CHECK(system(command) == 0);
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

	memory->source = (struct flow_source){.magic = FLOW_SOURCE_MAGIC,
		.ops = &memory_ops,
		.core = &fake_core,
		.bytes_total = bytes.len,
		.deadline_ns = DEADLINE_NONE};
	memory->rest = bytes;
	fake_open_sources++;
	return memory;
}

struct buf_sink {
	struct flow_sink sink;
	struct buf *to;
};

static int buf_push(struct flow_sink *sink, struct flow_piece *piece)
{
	buf_put(CONTAINER_OF(sink, struct buf_sink, sink)->to, piece->data, piece->bytes);
	flow_piece_end(sink->core, piece, OWNER_APP);
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

	sink->sink = (struct flow_sink){.magic = FLOW_SINK_MAGIC,
		.ops = &buf_sink_ops,
		.core = &fake_core,
		.deadline_ns = DEADLINE_NONE};
	sink->to = to;
	return &sink->sink;
}

/* A read that fails does so before its first byte. */
static int counted_get_source(struct store_get *get, struct flow_core *core, uint64_t offset,
	uint64_t bytes, struct flow_source **ret_source)
{
	struct memory_source *memory;

	if (!fake_read_error)
		return engine->get_source(get, core, offset, bytes, ret_source);
	memory = memory_open(SLICE_NONE);
	memory->error = fake_read_error;
	*ret_source = &memory->source;
	if (fake_read_fails && !--fake_read_fails)
		fake_read_error = 0;
	return 0;
}

/* ---- Calls that are refused or counted before the real ones. ---- */

int __real_fiber_spawn(struct reactor *on, const char *name, fiber_fn *fn, void *arg);
int __wrap_fiber_spawn(struct reactor *on, const char *name, fiber_fn *fn, void *arg);
bool __wrap_flow_walk_begin(struct flow_budget *budget, uint16_t share);
void __wrap_flow_walk_end(struct flow_budget *budget, uint16_t share);
void __wrap_fiber_share_set(uint16_t share);

bool fake_later_kept;
uint32_t fake_later_count;
static struct later {
	fiber_fn *fn;
	void *arg;
} later[16];
static uint32_t later_count;

void fake_later_run(void)
{
	while (later_count) {
		struct later next = later[0];

		memmove(later, later + 1, --later_count * sizeof(later[0]));
		next.fn(next.arg);
	}
}

int __wrap_fiber_spawn(struct reactor *on, const char *name, fiber_fn *fn, void *arg)
{
	if (strcmp(name, "access log") == 0 || strncmp(name, "event", 5) == 0) {
		fake_later_count++;
		if (!fake_later_kept)
			return -EAGAIN;
		CHECK(later_count < ARRAY_LEN(later));
		later[later_count++] = (struct later){fn, arg};
		return 0;
	}
	return __real_fiber_spawn(on, name, fn, arg);
}

bool __wrap_flow_walk_begin(struct flow_budget *budget, uint16_t share)
{
	(void)budget;
	(void)share;
	fake_walks += !fake_walks_refused;
	return !fake_walks_refused;
}

void __wrap_flow_walk_end(struct flow_budget *budget, uint16_t share)
{
	(void)budget;
	(void)share;
	CHECK(fake_walks > 0);
	fake_walks--;
}

void __wrap_fiber_share_set(uint16_t share)
{
	(void)share;
	fake_joins++;
}

/* ---- Running. ---- */

struct run {
	int (*tests)(void);
	int ret;
};

static void tests_fiber(void *arg)
{
	struct run *run = arg;

	run->ret = run->tests();
	reactor_stop(reactor);
}

int fake_main(int (*tests)(void))
{
	const struct region_opts region_opts = {
		.bytes = REGION_BYTES, .core_count = 1, .name = "s3test"};
	const struct reactor_opts reactor_opts = {.cpu = -1, .fiber_stack_bytes = STACK_BYTES};
	const char *name = getenv("STORE_ENGINE");
	struct run run = {.tests = tests};

	local = name && strcmp(name, "local") == 0;
	if (name && !local && strcmp(name, "memory") != 0) {
		fprintf(stderr, "STORE_ENGINE=%s: local or memory\n", name);
		return 2;
	}
	CHECK(region_open(&region_opts, &region) == 0);
	CHECK(reactor_open(&reactor_opts, &reactor) == 0);
	CHECK(flow_core_open(reactor, region, &fake_core) == 0);
	CHECK(fiber_spawn(reactor, "tests", tests_fiber, &run) == 0);
	reactor_run(reactor);
	flow_core_close(&fake_core);
	reactor_close(reactor);
	region_close(region);
	return run.ret;
}

/* ---- A test's store and S3. ---- */

int fake_open_with(const struct s3_opts *opts)
{
	struct s3_opts all = opts ? *opts : (struct s3_opts){.region = NULL};

	all.root_access_key = fake_root.access_key;
	all.root_secret_key = "secret";
	fake_store = fake_store_open();
	return s3_open(&all, fake_store, &fake_s3);
}

int fake_open(void **state)
{
	(void)state;
	return fake_open_with(NULL);
}

int fake_close(void **state)
{
	(void)state;
	s3_close(fake_s3);
	fake_store_close(fake_store);
	return fake_open_gets || fake_open_puts || fake_open_sources;
}

/* ---- The front. ---- */

static int body_open(struct s3_body *body, const struct s3_chunk_signing *signing,
	struct flow_source **ret_source)
{
	struct fake_call *call = CONTAINER_OF(body, struct fake_call, body);
	struct memory_source *memory;

	if (call->awaited)
		call->awaited();
	memory = memory_open(call->body_text);
	call->signing = *signing;
	memory->error = call->body_error;
	*ret_source = &memory->source;
	body->counts = call->counts;
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
	struct fake_call *call = CONTAINER_OF(reply, struct fake_call, reply);

	*ret_sink = buf_sink_open(&call->reply_body);
	reply->counts = call->counts;
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
