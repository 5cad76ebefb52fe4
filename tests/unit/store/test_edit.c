/* tests/unit/store/test_edit.c: stored headers are replaced in place: the bytes stay in place, and
 * no change is lost. */
#include "rig.h"

#include "store/call/call.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define BODIES 6u
static const uint64_t SIZES[BODIES] = {0, 100, 9000, 70000, 3 * MIB + 5, 66 * MIB};

struct edit {
	struct slice headers;
	int ret;
	uint64_t seen_bytes;
};

static int edit_to(const struct store_meta *current, struct slice *ret_headers, void *arg)
{
	struct edit *edit = (struct edit *)arg;

	edit->seen_bytes = current->bytes;
	*ret_headers = edit->headers;
	return edit->ret;
}

static int edit_key(struct rig *rig, struct slice key, const char *version_id, struct edit *edit)
{
	const struct store_name name = {
		.bucket = SLICE("b"), .key = key, .version_id = slice_str(version_id)};

	return store_edit(rig->store, &name, edit_to, edit, NULL);
}

static bool headers_are(struct rig *rig, struct slice key, struct slice headers)
{
	const struct store_meta *meta;
	struct store_get *get;
	bool exists, same;

	assert_int_equal(store_get_open(rig->store, SLICE("b"), key, &get, &exists), 0);
	meta = store_get_meta(get);
	same = slice_eq(slice_of(meta->headers, meta->headers_len), headers);
	store_get_close(get);
	return same;
}

static uint64_t mtime_of(struct rig *rig, struct slice key)
{
	struct store_get *get;
	uint64_t mtime;
	bool exists;

	assert_int_equal(store_get_open(rig->store, SLICE("b"), key, &get, &exists), 0);
	mtime = store_get_meta(get)->mtime_ns;
	store_get_close(get);
	return mtime;
}

/* ---- Every kind of body. ---- */

#define OLD_HEADERS SLICE("content-type\0text/plain\0")
#define NEW_HEADERS SLICE("content-type\0text/plain\0x-nebulaio-tags\0a=b\0")

static struct slice body_key(char buf[32], uint32_t kind, uint32_t i)
{
	static const char *const KINDS[] = {"plain", "composable", "joined"};

	snprintf(buf, 32, "%s/%u", KINDS[kind], i);
	return slice_str(buf);
}

static void bodies_edit(struct rig *rig, void *arg)
{
	const struct put_how plain = {.headers = OLD_HEADERS};
	const struct put_how composable = {.headers = OLD_HEADERS, .composable = true};
	char buf[32];

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(bucket_make(rig->store, "parts"), 0);
	for (uint32_t kind = 0; kind < 3; kind++)
		for (uint32_t i = 0; i < BODIES; i++) {
			struct edit edit = {.headers = NEW_HEADERS};
			struct slice key = body_key(buf, kind, i);
			uint64_t mtime, used;

			if (kind == 2)
				assert_int_equal(
					object_join_seeded(rig, "b", key, SIZES[i] + 4, i, 3), 0);
			else
				assert_int_equal(object_put_seeded(rig, "b", key, SIZES[i], i,
							 kind ? &composable : &plain),
					0);
			mtime = mtime_of(rig, key);
			used = rig_usage(rig).used_bytes;
			assert_int_equal(edit_key(rig, key, i % 2 ? "" : "null", &edit), 0);
			assert_int_equal(edit.seen_bytes, SIZES[i] + (kind == 2 ? 4 : 0));
			assert_int_equal(mtime_of(rig, key), mtime);
			assert_int_equal(rig_usage(rig).used_bytes, used);
		}
}

static void bodies_verify(struct rig *rig, void *arg)
{
	char buf[32];

	(void)arg;
	for (uint32_t kind = 0; kind < 3; kind++)
		for (uint32_t i = 0; i < BODIES; i++) {
			struct slice key = body_key(buf, kind, i);

			assert_true(headers_are(rig, key, NEW_HEADERS));
			assert_int_equal(object_verify_seeded(
						 rig, "b", key, SIZES[i] + (kind == 2 ? 4 : 0), i),
				0);
		}
}

static void bodies_delete(struct rig *rig, void *arg)
{
	char buf[32];

	bodies_verify(rig, arg);
	for (uint32_t kind = 0; kind < 3; kind++)
		for (uint32_t i = 0; i < BODIES; i++)
			assert_int_equal(store_delete(rig->store, SLICE("b"),
						 body_key(buf, kind, i), NULL, NULL),
				0);
	rig_index_wait(rig);
	assert_int_equal(rig_usage(rig).used_bytes, 0);
}

static void test_headers_change_and_bytes_stay(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig_run(&rig, bodies_edit, NULL);
	rig_fsck(&rig);
	rig_run(&rig, bodies_verify, NULL);
	rig_run(&rig, bodies_delete, NULL);
	rig_fsck(&rig);
	rig_dir_remove(&rig);
}

/* ---- Refusals. ---- */

static void refusals_run(struct rig *rig, void *arg)
{
	static char large[STORE_HEADERS_BYTES_MAX + 1];
	struct edit edit = {.headers = NEW_HEADERS};
	const struct store_name elsewhere = {.bucket = SLICE("none"), .key = SLICE("k")};

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("k"), 10, 1, NULL), 0);
	assert_int_equal(store_edit(rig->store, &elsewhere, edit_to, &edit, NULL), -ENOENT);
	assert_int_equal(edit_key(rig, SLICE("absent"), "", &edit), -ENOENT);
	assert_int_equal(edit_key(rig, SLICE("k"), "another", &edit), -ENOENT);
	assert_int_equal(edit_key(rig, SLICE_NONE, "", &edit), -EINVAL);
	edit.ret = -EACCES;
	assert_int_equal(edit_key(rig, SLICE("k"), "", &edit), -EACCES);
	edit.ret = 0;
	edit.headers = slice_of(large, sizeof(large));
	assert_int_equal(edit_key(rig, SLICE("k"), "", &edit), -EINVAL);
	assert_true(headers_are(rig, SLICE("k"), SLICE_NONE));
	edit.headers = slice_of(large, sizeof(large) - 1);
	assert_int_equal(edit_key(rig, SLICE("k"), "", &edit), 0);
	assert_true(headers_are(rig, SLICE("k"), edit.headers));
	edit.headers = SLICE_NONE;
	assert_int_equal(edit_key(rig, SLICE("k"), "", &edit), 0);
	assert_true(headers_are(rig, SLICE("k"), SLICE_NONE));
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("k"), 10, 1), 0);
}

static void test_refusals_change_nothing(void **state)
{
	(void)state;
	rig_once(refusals_run, NULL);
}

/* ---- A reader of the object, during very many edits and its deletion. ---- */

static void reader_run(struct rig *rig, void *arg)
{
	uint64_t before, after;
	struct store_get *get;
	char text[32];
	bool exists;

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("k"), 65000, 1, NULL), 0);
	assert_int_equal(store_get_open(rig->store, SLICE("b"), SLICE("k"), &get, &exists), 0);
	assert_int_equal(rig_place(get, 0, &before), 0);
	for (uint32_t i = 0; i < 3000; i++) {
		struct edit edit = {.headers = slice_of(text, sizeof(text))};

		memset(text, 0, sizeof(text));
		snprintf(text, sizeof(text), "n%u", i);
		assert_int_equal(edit_key(rig, SLICE("k"), "", &edit), 0);
	}
	assert_int_equal(store_delete(rig->store, SLICE("b"), SLICE("k"), NULL, NULL), 0);
	for (uint64_t i = 0; i < 20; i++)
		assert_int_equal(object_put_seeded(rig, "b", SLICE("o"), 65000, i, NULL), 0);
	assert_int_equal(rig_place(get, 0, &after), 0);
	assert_int_equal(before, after);
	assert_int_equal(store_get_meta(get)->headers_len, 0);
	rig_index_wait(rig);
	assert_int_equal(rig_usage(rig).used_bytes, 2 * ALIGN_UP(65000, 4096));
	store_get_close(get);
	assert_int_equal(rig_usage(rig).used_bytes, ALIGN_UP(65000, 4096));
}

static void test_a_reader_keeps_what_it_opened(void **state)
{
	(void)state;
	rig_once(reader_run, NULL);
}

/* ---- Counting in a header from both cores, amid overwrites: no count is lost. ---- */

#define COUNTERS 16u
#define STEPS	 40u

struct counting {
	_Atomic bool ready;
};

struct count {
	char text[24];
};

static int edit_count(const struct store_meta *current, struct slice *ret_headers, void *arg)
{
	struct count *count = (struct count *)arg;
	int value = current->headers_len ? atoi(current->headers + 2) : 0;
	int len = snprintf(count->text, sizeof(count->text), "n%c%d", 0, value + 1);

	*ret_headers = slice_of(count->text, (size_t)len + 1);
	return 0;
}

static void count_fiber(struct rig *rig, void *arg)
{
	const struct store_name name = {.bucket = SLICE("b"), .key = SLICE("n")};
	struct count count;

	(void)arg;
	for (uint32_t i = 0; i < STEPS; i++) {
		char buf[32];

		assert_int_equal(store_edit(rig->store, &name, edit_count, &count, NULL), 0);
		snprintf(buf, sizeof(buf), "other/%u", i % 7);
		assert_int_equal(object_put_seeded(rig, "b", slice_str(buf), 100 * i, i, NULL), 0);
	}
}

static void counting_run(struct rig *rig, void *arg)
{
	struct counting *counting = (struct counting *)arg;
	char none[COUNTERS];

	if (reactor_core_idx(reactor_self()) == 0) {
		assert_int_equal(bucket_make(rig->store, "b"), 0);
		assert_int_equal(object_put_seeded(rig, "b", SLICE("n"), 5000, 7, NULL), 0);
		atomic_store(&counting->ready, true);
	}
	while (!atomic_load(&counting->ready))
		fiber_yield();
	rig_fibers(rig, COUNTERS, count_fiber, none, 1);
}

static void counting_verify(struct rig *rig, void *arg)
{
	char text[24];
	int len = snprintf(text, sizeof(text), "n%c%u", 0, 2 * COUNTERS * STEPS);

	(void)arg;
	if (reactor_core_idx(reactor_self()) != 0)
		return;
	assert_true(headers_are(rig, SLICE("n"), slice_of(text, (size_t)len + 1)));
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("n"), 5000, 7), 0);
}

static void test_no_change_is_lost(void **state)
{
	struct counting counting = {.ready = false};
	struct rig rig;

	(void)state;
	rig_init(&rig, 2);
	rig_run(&rig, counting_run, &counting);
	rig_run(&rig, counting_verify, NULL);
	rig_fsck(&rig);
	rig_dir_remove(&rig);
}

/* ---- Put, edit, overwrite and delete of the same keys in parallel: all in one group. ---- */

struct mixer {
	uint32_t idx;
};

static void mix_fiber(struct rig *rig, void *arg)
{
	const struct mixer *mixer = (const struct mixer *)arg;
	struct prng prng;

	prng_seed(&prng, mixer->idx);
	for (uint32_t step = 0; step < 60; step++) {
		struct edit edit = {.headers = NEW_HEADERS};
		const struct put_how how = {.composable = prng_below(&prng, 2)};
		uint64_t size = prng_below(&prng, 12) * 1000;
		struct slice key = prng_below(&prng, 2) ? SLICE("k") : SLICE("l");
		int ret;

		switch (prng_below(&prng, 6)) {
		case 0:
			ret = store_delete(rig->store, SLICE("b"), key, NULL, NULL);
			assert_int_equal(ret, 0);
			break;
		case 1:
		case 2:
			ret = object_put_seeded(rig, "b", key, size, size, &how);
			assert_int_equal(ret, 0);
			break;
		default:
			ret = edit_key(rig, key, "", &edit);
			assert_true(ret == 0 || ret == -ENOENT);
		}
	}
}

static void whole_verify(struct rig *rig, struct slice key)
{
	struct store_get *get;
	uint64_t bytes;
	bool exists;
	int ret = store_get_open(rig->store, SLICE("b"), key, &get, &exists);

	if (ret) {
		assert_int_equal(ret, -ENOENT);
		return;
	}
	bytes = store_get_meta(get)->bytes;
	store_get_close(get);
	assert_int_equal(object_verify_seeded(rig, "b", key, bytes, bytes), 0);
}

static void mix_run(struct rig *rig, void *arg)
{
	struct mixer mixers[32];

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	for (uint32_t i = 0; i < ARRAY_LEN(mixers); i++)
		mixers[i].idx = i;
	rig_fibers(rig, ARRAY_LEN(mixers), mix_fiber, mixers, sizeof(mixers[0]));
	whole_verify(rig, SLICE("k"));
	whole_verify(rig, SLICE("l"));
}

static void empty_run(struct rig *rig, void *arg)
{
	(void)arg;
	whole_verify(rig, SLICE("k"));
	whole_verify(rig, SLICE("l"));
	assert_int_equal(store_delete(rig->store, SLICE("b"), SLICE("k"), NULL, NULL), 0);
	assert_int_equal(store_delete(rig->store, SLICE("b"), SLICE("l"), NULL, NULL), 0);
	rig_index_wait(rig);
	assert_int_equal(rig_usage(rig).used_bytes, 0);
}

static void test_edits_amid_overwrites(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 1);
	rig_run(&rig, mix_run, NULL);
	rig_fsck(&rig);
	rig_run(&rig, empty_run, NULL);
	rig_dir_remove(&rig);
}

/* ---- An edit whose object changes each time. ---- */

static int never_check(const struct store_meta *current, void *arg)
{
	(void)current;
	++*(uint32_t *)arg;
	return -ERESTART;
}

static int never_edit(const struct store_meta *current, struct slice *ret_headers, void *arg)
{
	(void)ret_headers;
	return never_check(current, arg);
}

static void never_run(struct rig *rig, void *arg)
{
	const struct store_name name = {.bucket = SLICE("b"), .key = SLICE("k")};
	uint32_t asked = 0;

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("k"), 100, 1, NULL), 0);
	assert_int_equal(store_edit(rig->store, &name, never_edit, &asked, NULL), -EAGAIN);
	assert_int_equal(asked, LIMIT_COMMIT_TURNS_MAX);
	asked = 0;
	assert_int_equal(
		store_delete(rig->store, SLICE("b"), SLICE("k"), never_check, &asked), -EAGAIN);
	assert_int_equal(asked, LIMIT_COMMIT_TURNS_MAX);
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("k"), 100, 1), 0);
}

static void test_looking_again_has_an_end(void **state)
{
	(void)state;
	rig_once(never_run, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_headers_change_and_bytes_stay),
		cmocka_unit_test(test_refusals_change_nothing),
		cmocka_unit_test(test_a_reader_keeps_what_it_opened),
		cmocka_unit_test(test_no_change_is_lost),
		cmocka_unit_test(test_edits_amid_overwrites),
		cmocka_unit_test(test_looking_again_has_an_end),
	};

	return cmocka_run_group_tests_name("edit", tests, NULL, NULL);
}
