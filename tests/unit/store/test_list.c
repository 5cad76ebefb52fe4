/* tests/unit/store/test_list.c: pages of keys against a model, with random keys, prefixes,
 * delimiters and page sizes. */
#include "rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/commit/index_apply.h"
#include "store/index/index.h"
#include "store/state/state.h"

#define KEYS_MAX 700u
#define KEY_MAX	 24u

struct model {
	struct prng prng;
	uint32_t count;
	uint32_t len[KEYS_MAX];
	char keys[KEYS_MAX][KEY_MAX];
};

/* Keys of few different bytes, so that prefixes and delimiters collide; 0x00 and 0xff among them.
 */
static void key_random(struct prng *prng, char *key, uint32_t *len)
{
	static const char BYTES[] = {'a', 'b', '/', '/', '\xff', '\0', '-', '\xc3'};

	*len = 1 + (uint32_t)prng_below(prng, KEY_MAX - 1);
	for (uint32_t i = 0; i < *len; i++)
		key[i] = BYTES[prng_below(prng, sizeof(BYTES))];
}

static struct slice model_key(const struct model *model, uint32_t i)
{
	return slice_of(model->keys[i], model->len[i]);
}

static void model_fill(struct model *model)
{
	while (model->count < KEYS_MAX) {
		char key[KEY_MAX];
		uint32_t len, at = 0;

		key_random(&model->prng, key, &len);
		while (at < model->count && slice_cmp(model_key(model, at), slice_of(key, len)) < 0)
			at++;
		if (at < model->count && slice_eq(model_key(model, at), slice_of(key, len)))
			continue;
		memmove(&model->keys[at + 1], &model->keys[at],
			(model->count - at) * sizeof(model->keys[0]));
		memmove(&model->len[at + 1], &model->len[at],
			(model->count - at) * sizeof(model->len[0]));
		memcpy(model->keys[at], key, len);
		model->len[at] = len;
		model->count++;
	}
}

struct page {
	uint32_t count;
	bool is_prefix[LIMIT_LIST_KEYS_MAX];
	uint64_t bytes[LIMIT_LIST_KEYS_MAX];
	uint32_t len[LIMIT_LIST_KEYS_MAX];
	char keys[LIMIT_LIST_KEYS_MAX][KEY_MAX];
};

static void page_visit(const struct store_list_entry *entry, void *arg)
{
	struct page *page = (struct page *)arg;

	assert_true(page->count < LIMIT_LIST_KEYS_MAX);
	assert_true(entry->key.len <= KEY_MAX);
	memcpy(page->keys[page->count], entry->key.data, entry->key.len);
	page->len[page->count] = (uint32_t)entry->key.len;
	page->is_prefix[page->count] = entry->is_prefix;
	assert_int_equal(entry->meta == NULL, entry->is_prefix);
	page->bytes[page->count] = entry->meta ? entry->meta->bytes : 0;
	page->count++;
}

/* Computes the whole listing by the definition: S3 API, ListObjectsV2. */
static uint32_t model_list(
	const struct model *model, const struct store_list_opts *opts, struct page *ret_page)
{
	struct page *page = ret_page;

	page->count = 0;
	for (uint32_t i = 0; i < model->count; i++) {
		struct slice key = model_key(model, i);
		ptrdiff_t at = -1;

		if (!slice_starts(key, opts->prefix) ||
			(opts->after.len && slice_cmp(key, opts->after) <= 0))
			continue;
		if (opts->delimiter.len)
			at = slice_find(slice_from(key, opts->prefix.len), opts->delimiter);
		if (at >= 0) {
			key = slice_to(key, opts->prefix.len + (size_t)at + opts->delimiter.len);
			if (page->count && page->is_prefix[page->count - 1] &&
				slice_eq(slice_of(page->keys[page->count - 1],
						 page->len[page->count - 1]),
					key))
				continue;
			/* After a common prefix the listing continues with keys outside it. */
			if (slice_eq(key, opts->after))
				continue;
		}
		memcpy(page->keys[page->count], key.data, key.len);
		page->len[page->count] = (uint32_t)key.len;
		page->is_prefix[page->count] = at >= 0;
		page->bytes[page->count] = at >= 0 ? 0 : i % 50;
		page->count++;
	}
	return page->count;
}

static void pages_compare(struct rig *rig, const struct model *model, struct store_list_opts opts)
{
	struct page *wanted = (struct page *)calloc(1, sizeof(*wanted));
	struct page *got = (struct page *)calloc(1, sizeof(*got));
	uint32_t at = 0, count = model_list(model, &opts, wanted);
	char after[KEY_MAX];
	bool more = true;

	while (more) {
		got->count = 0;
		opts.visit_anywhere = !opts.visit_anywhere;
		assert_int_equal(store_list(rig->store, &opts, page_visit, got, &more), 0);
		assert_true(got->count <= opts.entries_max);
		assert_true(got->count == opts.entries_max || !more);
		for (uint32_t i = 0; i < got->count; i++, at++) {
			assert_true(at < count);
			assert_int_equal(got->is_prefix[i], wanted->is_prefix[at]);
			assert_int_equal(got->len[i], wanted->len[at]);
			assert_memory_equal(got->keys[i], wanted->keys[at], got->len[i]);
			assert_int_equal(got->bytes[i], wanted->bytes[at]);
		}
		if (got->count) {
			memcpy(after, got->keys[got->count - 1], got->len[got->count - 1]);
			opts.after = slice_of(after, got->len[got->count - 1]);
		}
	}
	assert_int_equal(at, count);
	free(wanted);
	free(got);
}

/* An object goes and comes back. */
static void object_anew(struct rig *rig, struct model *model)
{
	uint32_t i = (uint32_t)prng_below(&model->prng, model->count);

	assert_int_equal(store_delete(rig->store, SLICE("b"), model_key(model, i), NULL, NULL), 0);
	assert_int_equal(object_put_seeded(rig, "b", model_key(model, i), i % 50, i, NULL), 0);
}

static void list_run(struct rig *rig, void *arg)
{
	struct model *model = (struct model *)arg;
	struct store_list_opts bad = {.bucket = SLICE("nobody"), .entries_max = 1};
	struct page *page = (struct page *)calloc(1, sizeof(*page));
	bool more;

	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(bucket_make(rig->store, "other"), 0);
	for (uint32_t i = 0; i < model->count; i++) {
		assert_int_equal(
			object_put_seeded(rig, "b", model_key(model, i), i % 50, i, NULL), 0);
		assert_int_equal(
			object_put_seeded(rig, "other", model_key(model, i), 1, i, NULL), 0);
	}
	for (uint32_t i = 0; i < 400; i++) {
		char prefix[KEY_MAX], after[KEY_MAX];
		uint32_t prefix_len, after_len;
		struct store_list_opts opts = {.bucket = SLICE("b"),
			.entries_max = 1 + (uint32_t)prng_below(&model->prng, i % 3 ? 20 : 900)};

		key_random(&model->prng, prefix, &prefix_len);
		key_random(&model->prng, after, &after_len);
		opts.prefix = slice_of(prefix, prng_below(&model->prng, 3));
		if (i % 2)
			opts.delimiter = i % 4 == 1 ? SLICE("/") : SLICE("//");
		if (i % 5 == 0)
			opts.after = slice_of(after, after_len);
		pages_compare(rig, model, opts);
		object_anew(rig, model);
	}
	assert_true(store_list_bytes(rig->store) <= rig->opts.list_table_bytes_max);
	assert_true(!rig->opts.list_table_bytes_max == !store_list_bytes(rig->store));
	assert_int_equal(store_list(rig->store, &bad, page_visit, page, &more), -ENOENT);
	bad.bucket = SLICE("b");
	bad.entries_max = 0;
	assert_int_equal(store_list(rig->store, &bad, page_visit, page, &more), 0);
	assert_false(more);
	assert_int_equal(page->count, 0);
	bad.entries_max = LIMIT_LIST_KEYS_MAX + 1;
	assert_int_equal(store_list(rig->store, &bad, page_visit, page, &more), -EINVAL);
	free(page);
}

static void pages_test(uint64_t list_table_bytes)
{
	struct model *model = (struct model *)calloc(1, sizeof(*model));
	struct rig rig;

	prng_seed(&model->prng, 20);
	model_fill(model);
	rig_init(&rig, 1);
	rig.opts.list_table_bytes_max = list_table_bytes;
	rig_run(&rig, list_run, model);
	rig_dir_remove(&rig);
	free(model);
}

static void test_pages_are_as_the_model_says(void **state)
{
	(void)state;
	pages_test(0);
}

static void test_so_are_pages_from_memory(void **state)
{
	(void)state;
	pages_test(MIB);
}

/* ---- Keys that were overwritten. ---- */

#define OVERWRITTEN_KEYS   20u
#define OVERWRITTEN_ROUNDS 30u
#define PATIENCE_NS	   (120 * NS_PER_S)

static void nothing_visit(const struct store_list_entry *entry, void *arg)
{
	(void)entry;
	(void)arg;
}

/* How many entries it passed over; 0 when a flush began meanwhile. */
static uint64_t page_walk(struct rig *rig)
{
	const struct store_list_opts opts = {.bucket = SLICE("b"), .entries_max = 1000};
	uint64_t before = index_passed_over(rig->store->index), after;
	bool more;

	assert_int_equal(store_list(rig->store, &opts, nothing_visit, NULL, &more), 0);
	after = index_passed_over(rig->store->index);
	return after - MIN(before, after);
}

/* Each round is applied by itself, so that the index has an entry of each. */
static void overwritten_run(struct rig *rig, void *arg)
{
	const uint64_t tail = atomic_load(&rig->store->tail_pos);
	const uint64_t until_ns = clock_now_ns() + PATIENCE_NS;
	uint64_t hidden = 0;
	char key[16];

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	for (uint32_t i = 0; i < OVERWRITTEN_ROUNDS * OVERWRITTEN_KEYS; i++) {
		snprintf(key, sizeof(key), "key-%02u", i % OVERWRITTEN_KEYS);
		assert_int_equal(object_put_seeded(rig, "b", slice_str(key), 10, i, NULL), 0);
		if (i % OVERWRITTEN_KEYS < OVERWRITTEN_KEYS - 1)
			continue;
		assert_int_equal(index_apply_settle(rig->store), 0);
		hidden = MAX(hidden, page_walk(rig));
	}
	assert_true(hidden > 3 * OVERWRITTEN_KEYS);
	while (atomic_load(&rig->store->tail_pos) == tail) {
		assert_true(clock_now_ns() < until_ns);
		page_walk(rig);
	}
	/* RocksDB merges the files of several flushes when it has four of them. */
	while (page_walk(rig) >= hidden / 2)
		assert_true(clock_now_ns() < until_ns);
	/* A checkpoint tidies, and what was passed over before counts no more. */
	assert_int_equal(index_apply_checkpoint_now(rig->store), 0);
	assert_int_equal(index_passed_over(rig->store->index), 0);
}

static void test_lists_of_overwritten_keys_get_short_again(void **state)
{
	(void)state;
	rig_once(overwritten_run, NULL);
}

/* ---- Buckets. ---- */

struct names {
	uint32_t count;
	uint32_t max;
	char last[64];
};

static bool names_visit(const struct store_bucket *bucket, void *arg)
{
	struct names *names = (struct names *)arg;

	assert_true(strcmp(bucket->name, names->last) > 0);
	snprintf(names->last, sizeof(names->last), "%s", bucket->name);
	return ++names->count < names->max;
}

static void buckets_run(struct rig *rig, void *arg)
{
	struct names names = {.max = UINT32_MAX};
	char name[32];

	(void)arg;
	for (uint32_t i = 0; i < 50; i++) {
		snprintf(name, sizeof(name), "bucket-%02u", i * 7 % 50);
		assert_int_equal(bucket_make(rig->store, name), 0);
	}
	assert_int_equal(store_bucket_list(rig->store, SLICE_NONE, names_visit, &names), 0);
	assert_int_equal(names.count, 50);
	names = (struct names){.max = 3, .last = "bucket-10"};
	assert_int_equal(store_bucket_list(rig->store, SLICE("bucket-10"), names_visit, &names), 0);
	assert_int_equal(names.count, 3);
	assert_string_equal(names.last, "bucket-13");
}

static void test_buckets_are_listed_in_order(void **state)
{
	(void)state;
	rig_once(buckets_run, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pages_are_as_the_model_says),
		cmocka_unit_test(test_so_are_pages_from_memory),
		cmocka_unit_test(test_lists_of_overwritten_keys_get_short_again),
		cmocka_unit_test(test_buckets_are_listed_in_order),
	};

	return cmocka_run_group_tests_name("list", tests, NULL, NULL);
}
