/* tests/unit/s3/test_engine_bounds.c: the bounds of the engine in memory, as memory buckets use it:
 * which objects end and which stay, against a model; what a full store refuses; age; watches; and
 * that all memory comes back. */
#include "../unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Its parameters have the name of a variable of engine.h. */
#include "store/memory/tree.h"

#include "engine.h"
#include "store/memory.h"

#define KEYS  60u
#define TURNS 4000u
#define HOUR  (3600 * NS_PER_S)

static uint64_t cached_frames(void)
{
	struct region_usage usage;

	region_usage(fake_core.region, &usage);
	return usage.frames_by_owner[OWNER_CACHE];
}

static void bounded_open(struct store_memory_opts opts)
{
	opts.region = fake_core.region;
	assert_int_equal(store_memory_open(&opts, &store), 0);
	assert_int_equal(bucket_make("b"), 0);
}

static struct store_memory_status status_of(void)
{
	struct store_memory_status status;

	store_memory_status(store, &status);
	return status;
}

static void bounded_close(void)
{
	store_memory_close(store);
	assert_int_equal(cached_frames(), 0);
}

/* ---- The model: keys by their last use. ---- */

struct model {
	uint32_t order[KEYS]; /* oldest first */
	uint32_t count, most;
	uint64_t seeds[KEYS], bytes[KEYS];
};

static int model_find(const struct model *model, uint32_t key)
{
	for (uint32_t i = 0; i < model->count; i++)
		if (model->order[i] == key)
			return (int)i;
	return -1;
}

static void model_remove(struct model *model, uint32_t key)
{
	int at = model_find(model, key);

	if (at < 0)
		return;
	model->count--;
	memmove(&model->order[at], &model->order[at + 1],
		(model->count - (uint32_t)at) * sizeof(model->order[0]));
}

static void model_use(struct model *model, uint32_t key)
{
	model_remove(model, key);
	model->order[model->count++] = key;
	if (model->count > model->most)
		model_remove(model, model->order[0]);
}

static const char *name_of(uint32_t key)
{
	static char name[32];

	snprintf(name, sizeof(name), "%c/key-%02u", 'a' + (char)(key % 3), key);
	return name;
}

static void count_entry(const struct store_list_entry *entry, void *arg)
{
	struct model *seen = (struct model *)arg;
	uint64_t key;

	assert_int_equal(slice_to_u64(slice_from(entry->key, 6), &key), 0);
	seen->order[seen->count] = (uint32_t)key;
	seen->bytes[seen->order[seen->count++]] = entry->meta->bytes;
}

static void assert_listed(const struct model *model)
{
	const struct store_list_opts opts = {.bucket = SLICE("b"), .entries_max = 1000};
	struct model seen = {.count = 0};
	uint64_t bytes = 0;
	bool more;

	assert_int_equal(store_list(store, &opts, count_entry, &seen, &more), 0);
	assert_false(more);
	assert_int_equal(seen.count, model->count);
	for (uint32_t i = 0; i < seen.count; i++) {
		assert_true(model_find(model, seen.order[i]) >= 0);
		assert_int_equal(seen.bytes[seen.order[i]], model->bytes[seen.order[i]]);
		bytes += seen.bytes[seen.order[i]];
	}
	assert_int_equal(status_of().objects, model->count);
	assert_int_equal(status_of().body_bytes, bytes);
}

static void test_least_recently_used(void **state)
{
	struct model model = {.most = 23};
	struct prng prng;

	(void)state;
	prng_seed(&prng, 7);
	bounded_open((struct store_memory_opts){.objects_max = model.most, .ttl_ns = HOUR});
	for (uint32_t turn = 0; turn < TURNS; turn++) {
		uint32_t key = (uint32_t)(prng_next(&prng) % KEYS), how = turn % 8;
		struct store_get *get;

		if (how < 4) {
			struct object_put what = {.key = name_of(key),
				.bytes = prng_next(&prng) % 20000,
				.seed = turn,
				.length_unknown = turn & 1};

			assert_int_equal(put_object(&what), 0);
			model.seeds[key] = turn;
			model.bytes[key] = what.bytes;
			model_use(&model, key);
		} else if (how < 7) {
			bool held = model_find(&model, key) >= 0;

			assert_int_equal(get_open(NULL, name_of(key), &get), held ? 0 : -ENOENT);
			if (!held)
				continue;
			assert_body(get, model.bytes[key], model.seeds[key]);
			store_get_close(get);
			model_use(&model, key);
		} else {
			assert_int_equal(key_delete(name_of(key)), 0);
			model_remove(&model, key);
		}
		if (turn % 50 == 0)
			assert_listed(&model);
	}
	assert_listed(&model);
	assert_true(status_of().evicted > 100);
	bounded_close();
}

static void test_bytes(void **state)
{
	const uint64_t most = 2 * MIB;
	struct prng prng;

	(void)state;
	prng_seed(&prng, 8);
	bounded_open((struct store_memory_opts){.bytes_max = most});
	for (uint32_t turn = 0; turn < 1000; turn++) {
		char key[32];
		struct object_put what = {
			.key = key, .bytes = prng_next(&prng) % 100000, .seed = turn};

		snprintf(key, sizeof(key), "%u", (uint32_t)(prng_next(&prng) % 500));
		assert_int_equal(put_object(&what), 0);
		assert_holds(key, what.bytes, what.seed);
		assert_true(status_of().bytes <= most);
		assert_true(cached_frames() * FRAME_BYTES <= most);
	}
	assert_true(status_of().bytes > most / 2);
	bounded_close();
}

static void test_full_refuses(void **state)
{
	struct object_put what = {.key = "more", .bytes = 40, .seed = 9};
	struct object_put large = {.key = "two", .seed = 3};

	(void)state;
	bounded_open((struct store_memory_opts){
		.objects_max = 2, .bytes_max = 1 * MIB, .refuses = true});
	put_small("one", 1);
	put_small("two", 2);
	assert_int_equal(put_object(&what), -ENOSPC);
	put_small("two", 3);
	assert_int_equal(key_delete("one"), 0);
	what.bytes = 2 * MIB;
	assert_int_equal(put_object(&what), -EFBIG);
	/* Whole frames count, in powers of two. */
	large.bytes = 300000;
	assert_int_equal(put_object(&large), 0);
	what.bytes = 500000;
	assert_int_equal(put_object(&what), -ENOSPC);
	large.bytes = 200000;
	assert_int_equal(put_object(&large), 0);
	assert_int_equal(put_object(&what), 0);
	assert_holds("two", 200000, 3);
	assert_holds("more", 500000, 9);
	assert_int_equal(status_of().refused, 2);
	assert_int_equal(status_of().evicted, 0);
	bounded_close();
	bounded_open((struct store_memory_opts){.closed = true});
	what.bytes = 40;
	assert_int_equal(put_object(&what), -ENOSPC);
	bounded_close();
}

static void test_age(void **state)
{
	const struct store_list_opts list = {.bucket = SLICE("b"), .entries_max = 10};
	struct model seen = {.count = 0};
	struct store_quota used;
	bool more;

	(void)state;
	bounded_open((struct store_memory_opts){.ttl_ns = 1});
	put_small("a/key-01", 1);
	assert_gone(NULL, "a/key-01");
	put_small("a/key-01", 2);
	assert_int_equal(store_list(store, &list, count_entry, &seen, &more), 0);
	assert_int_equal(seen.count, 0);
	put_small("a/key-01", 3);
	assert_int_equal(store_bucket_usage(store, SLICE("b"), &used), 0);
	assert_int_equal(used.objects + used.bytes, 0);
	put_small("a/key-01", 4);
	assert_int_equal(cached_frames(), 1);
	store_memory_expire(store);
	assert_int_equal(cached_frames(), 0);
	assert_int_equal(status_of().expired, 4);
	assert_int_equal(store_bucket_delete(store, SLICE("b"), 0), 0);
	bounded_close();
}

/* ---- What readers and puts keep beside the objects. ---- */

#define HELD 64u

/* Bytes of objects that ended stay as long as a reader has them: puts wait for the readers, and the
 * region's other users do not. */
static void test_readers_of_ended(void **state)
{
	const uint64_t most = 4 * MIB, whole = most + most / 8;
	struct store_get *gets[HELD];
	uint32_t held = 0;
	int ret = 0;

	(void)state;
	bounded_open((struct store_memory_opts){.bytes_max = most});
	while (!ret && held < HELD) {
		struct object_put what = {.key = "a", .bytes = 500000, .seed = held};

		ret = put_object(&what);
		if (!ret)
			gets[held++] = get_of("a");
		assert_true(cached_frames() * FRAME_BYTES <= whole);
	}
	assert_int_equal(ret, -ENOBUFS);
	assert_int_equal(held, 8);
	assert_body(gets[0], 500000, 0);
	while (held)
		store_get_close(gets[--held]);
	put_small("b", 1);
	bounded_close();
}

/* Objects make room for bodies that come, but not those that are being read. */
static void test_puts_on_their_way(void **state)
{
	const uint64_t most = 4 * MIB, whole = most + most / 8;
	uint8_t *body = body_of(1 * MIB, 1);
	struct object_put large = {.key = "old", .bytes = 1000000, .seed = 2};
	struct object_put read = {.key = "read", .bytes = 1000000, .seed = 3};
	struct store_put *puts[HELD];
	struct store_get *get;
	uint32_t open = 0;
	int ret = 0;

	(void)state;
	bounded_open((struct store_memory_opts){.bytes_max = most});
	assert_int_equal(put_object(&read), 0);
	get = get_of("read");
	assert_int_equal(put_object(&large), 0);
	while (!ret && open < HELD) {
		assert_int_equal(put_open("b", SLICE("c"), UINT64_MAX, &puts[open]), 0);
		ret = bytes_move(puts[open++], body, 1 * MIB, 1 * MIB);
		assert_true(cached_frames() * FRAME_BYTES <= whole);
	}
	assert_int_equal(ret, -ENOBUFS);
	assert_int_equal(open, 4);
	assert_gone(NULL, "old");
	assert_holds("read", 1000000, 3);
	while (open)
		store_put_abort(puts[--open]);
	store_get_close(get);
	free(body);
	bounded_close();
}

/* ---- Many objects that end at once. ---- */

#define MANY 5000u

static void many_put(void)
{
	for (uint32_t i = 0; i < MANY; i++) {
		char key[32];
		struct object_put what = {.key = key};

		snprintf(key, sizeof(key), "%u", i);
		assert_int_equal(put_object(&what), 0);
	}
}

struct other {
	bool stop, ended;
	uint32_t turns;
};

static void other_fiber(void *arg)
{
	struct other *other = (struct other *)arg;

	while (!other->stop) {
		other->turns++;
		fiber_yield();
	}
	other->ended = true;
}

static void other_begin(struct other *other)
{
	*other = (struct other){.stop = false};
	assert_int_equal(fiber_spawn(reactor_self(), "other", other_fiber, other), 0);
}

static uint32_t other_end(struct other *other)
{
	uint32_t turns = other->turns;

	other->stop = true;
	while (!other->ended)
		fiber_yield();
	return turns;
}

/* Other fibers run while many objects end: those that are too old, and those that make room for the
 * commit of a large one. No call sees one of them. */
static void test_many_end(void **state)
{
	const uint64_t most = 4 * MIB, bytes = 3 * MIB;
	uint8_t *body = body_of(bytes, 1);
	struct store_meta meta = {.bytes = bytes};
	struct store_put *put;
	struct other other;

	(void)state;
	bounded_open((struct store_memory_opts){.ttl_ns = HOUR});
	many_put();
	store->opts.ttl_ns = 1;
	other_begin(&other);
	assert_gone(NULL, "4999");
	assert_true(other_end(&other) >= 15);
	assert_int_equal(status_of().expired, MANY);
	store->opts.ttl_ns = HOUR;
	many_put();
	store->opts.ttl_ns = 1;
	assert_false(store_memory_expire(store));
	while (!store_memory_expire(store))
		;
	assert_int_equal(status_of().objects, 0);
	bounded_close();

	bounded_open((struct store_memory_opts){.bytes_max = most});
	many_put();
	assert_int_equal(put_open("b", SLICE("large"), bytes, &put), 0);
	assert_int_equal(bytes_move(put, body, bytes, bytes), 0);
	assert_true(status_of().bytes + bytes > most + most / 16);
	other_begin(&other);
	assert_int_equal(store_put_commit(put, &meta, NULL, NULL), 0);
	assert_true(other_end(&other) >= 2);
	assert_true(status_of().bytes <= most);
	assert_holds("large", bytes, 1);
	free(body);
	bounded_close();
}

/* A new name and new headers count, too. */
static void test_rename_is_bounded(void **state)
{
	const struct store_name from = {.bucket = SLICE("b"), .key = SLICE("a")};
	const struct store_condition none = {NULL, NULL};
	static char headers[STORE_HEADERS_BYTES_MAX];
	struct store_get *get;

	(void)state;
	for (int refuses = 0; refuses < 2; refuses++) {
		bounded_open((struct store_memory_opts){
			.bytes_max = 1 * MIB, .refuses = refuses, .ttl_ns = HOUR});
		put_small("a", 1);
		while (status_of().bytes < 1 * MIB - sizeof(headers) / 2) {
			char key[32];
			struct object_put what = {.key = key};

			snprintf(key, sizeof(key), "%llu", (unsigned long long)status_of().objects);
			assert_int_equal(put_object(&what), 0);
		}
		get = get_of("a");
		assert_int_equal(store_rename(store, &from, get, SLICE("b"),
					 slice_of(headers, sizeof(headers)), none),
			refuses ? -ENOSPC : 0);
		store_get_close(get);
		assert_true(status_of().bytes <= 1 * MIB);
		assert_holds(refuses ? "a" : "b", 40, 1);
		bounded_close();
	}
}

/* An object of another store, such as a bucket of the same name that was deleted, is no base. */
static void test_append_to_another_store(void **state)
{
	const struct store_memory_opts opts = {.bytes_max = 1 * MIB};
	struct store *first;
	struct store_get *get;
	struct store_put *put;

	(void)state;
	bounded_open(opts);
	put_small("a", 1);
	get = get_of("a");
	first = store;
	bounded_open(opts);
	assert_int_equal(put_open("b", SLICE("a"), 1, &put), 0);
	assert_int_equal(store_put_append(put, get), -ESTALE);
	store_put_abort(put);
	store_get_close(get);
	store_memory_close(first);
	bounded_close();
}

/* While its deletion is being committed, a bucket takes no object; if that fails, it goes on. */
static void test_ends_and_stays(void **state)
{
	struct object_put what = {.key = "a"};
	struct store_put *put;
	struct store_meta meta = {.bytes = 0};
	_Atomic uint64_t reserved = 1 * MIB;

	(void)state;
	bounded_open((struct store_memory_opts){.bytes_max = 1 * MIB});
	put_small("a", 1);
	assert_int_equal(store_memory_end(store), -ENOTEMPTY);
	assert_int_equal(key_delete("a"), 0);
	assert_int_equal(put_open("b", SLICE("a"), 0, &put), 0);
	assert_int_equal(store_memory_end(store), 0);
	assert_int_equal(store_memory_end(store), -ENOENT);
	assert_int_equal(put_object(&what), -ENOBUFS);
	assert_int_equal(store_put_commit(put, &meta, NULL, NULL), -ENOBUFS);
	store_memory_stay(store);
	put_small("a", 2);
	assert_holds("a", 40, 2);
	assert_int_equal(key_delete("a"), 0);
	assert_int_equal(store_memory_end(store), 0);
	store_memory_leave(store, &reserved, 1 * MIB);
	assert_int_equal(reserved, 0);
	assert_int_equal(put_object(&what), -ENOENT);
	bounded_close();
}

/* A deleted bucket has its memory as long as somebody reads what was in it. */
static void test_left(void **state)
{
	_Atomic uint64_t reserved = 5 * MIB;
	uint8_t *body = body_of(1 * MIB, 1);
	struct store_put *put;
	struct store_get *get;

	(void)state;
	bounded_open((struct store_memory_opts){.bytes_max = 4 * MIB});
	assert_int_equal(put_open("b", SLICE("c"), 1 * MIB, &put), 0);
	put_small("a", 1);
	get = get_of("a");
	assert_int_equal(key_delete("a"), 0);
	assert_int_equal(store_bucket_delete(store, SLICE("b"), 0), 0);
	store_memory_leave(store, &reserved, 4 * MIB);
	assert_int_equal(reserved, 5 * MIB);
	assert_int_equal(bytes_move(put, body, 1 * MIB, 1 * MIB), -ENOENT);
	store_get_close(get);
	assert_int_equal(reserved, 1 * MIB);
	store_put_abort(put);
	free(body);
	assert_int_equal(bucket_make("b"), 0);
	store_memory_leave(store, &reserved, 1 * MIB);
	assert_int_equal(reserved, 0);
	bounded_close();
}

/* ---- Watches: clients read such objects by themselves. ---- */

struct watching {
	struct store_object_watch watch;
	uint32_t ended;
};

static void watch_ended(struct store_object_watch *watch, bool rights)
{
	struct watching *watching = CONTAINER_OF(watch, struct watching, watch);

	assert_false(rights);
	watching->ended++;
}

static void test_watched(void **state)
{
	struct watching watching = {.watch.ended = watch_ended};
	struct store_get *get;

	(void)state;
	bounded_open((struct store_memory_opts){.objects_max = 2});
	put_small("read", 1);
	get = get_of("read");
	assert_int_equal(
		store_object_watch_begin(get, &watching.watch, store_rights_epoch(store)), 0);
	store_get_close(get);
	put_small("other", 2);
	put_small("third", 3);
	assert_int_equal(watching.ended, 0);
	assert_gone(NULL, "other");
	store_object_watch_end(store, &watching.watch);
	put_small("fourth", 4);
	put_small("fifth", 5);
	assert_gone(NULL, "read");
	get = get_of("fifth");
	assert_int_equal(
		store_object_watch_begin(get, &watching.watch, store_rights_epoch(store)), 0);
	assert_int_equal(key_delete("fifth"), 0);
	assert_int_equal(watching.ended, 1);
	store_object_watch_end(store, &watching.watch);
	/* An open object stays readable, and its memory comes back with it. */
	store_memory_close(store);
	assert_body(get, 40, 5);
	store_get_close(get);
	assert_int_equal(cached_frames(), 0);
}

/* ---- Many keys, in order. ---- */

struct names {
	uint32_t count, prefixes;
	char last[LIMIT_KEY_LEN_MAX + 1];
};

static void name_visit(const struct store_list_entry *entry, void *arg)
{
	struct names *names = (struct names *)arg;
	char name[LIMIT_KEY_LEN_MAX + 1];

	assert_int_equal(slice_copy_str(entry->key, name, sizeof(name)), 0);
	assert_true(strcmp(names->last, name) < 0);
	memcpy(names->last, name, sizeof(name));
	names->count += !entry->is_prefix;
	names->prefixes += entry->is_prefix;
}

static struct names list_all(struct slice delimiter, uint32_t page)
{
	struct names names = {.count = 0};
	bool more = true;

	while (more) {
		char after[LIMIT_KEY_LEN_MAX + 1];
		struct store_list_opts opts = {
			.bucket = SLICE("b"), .delimiter = delimiter, .entries_max = page};

		memcpy(after, names.last, sizeof(after));
		opts.after = slice_str(after);
		assert_int_equal(store_list(store, &opts, name_visit, &names, &more), 0);
	}
	return names;
}

static void test_many_keys(void **state)
{
	const uint32_t count = 3000;
	struct prng prng;

	(void)state;
	prng_seed(&prng, 9);
	bounded_open((struct store_memory_opts){.bytes_max = 0});
	for (uint32_t i = 0; i < count; i++) {
		char key[64];
		struct object_put what = {.key = key};

		/* 7 and count are relatively prime: every name once, in no order. */
		snprintf(key, sizeof(key), "%02u/%06u", i % 40, (i * 7) % count);
		assert_int_equal(put_object(&what), 0);
	}
	assert_int_equal(list_all(SLICE_NONE, 1000).count, count);
	assert_int_equal(list_all(SLICE_NONE, 7).count, count);
	assert_int_equal(list_all(SLICE("/"), 7).prefixes, 40);
	for (uint32_t i = 0; i < count; i++) {
		char key[64];

		snprintf(key, sizeof(key), "%02u/%06u", i % 40, (i * 7) % count);
		if (i % 40 >= 20 || i % 3)
			assert_int_equal(key_delete(key), 0);
	}
	assert_int_equal(list_all(SLICE_NONE, 100).count, status_of().objects);
	assert_int_equal(list_all(SLICE("/"), 3).prefixes, 20);
	assert_int_equal(status_of().objects, count / 3 / 2);
	bounded_close();
}

static int tests_run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_least_recently_used),
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_full_refuses),
		cmocka_unit_test(test_age),
		cmocka_unit_test(test_readers_of_ended),
		cmocka_unit_test(test_puts_on_their_way),
		cmocka_unit_test(test_many_end),
		cmocka_unit_test(test_rename_is_bounded),
		cmocka_unit_test(test_append_to_another_store),
		cmocka_unit_test(test_ends_and_stays),
		cmocka_unit_test(test_left),
		cmocka_unit_test(test_watched),
		cmocka_unit_test(test_many_keys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return fake_main(tests_run);
}
