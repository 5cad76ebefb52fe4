/* tests/unit/store/test_commit.c: many committers on one and two cores; conditions are checked in
 * commit order; quiescing. */
#include "memory_disk.h"
#include "rig.h"

#include "store/call/call.h"
#include "store/commit/committer.h"
#include "store/commit/index_apply.h"
#include "store/space/space.h"
#include "store/store_priv.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define FIBERS 64u

/* ---- If-none-match: of many attempts one succeeds, in any order. ---- */

static int check_absent(const struct store_meta *current, void *arg)
{
	(void)arg;
	return current ? -EEXIST : 0;
}

struct racer {
	const char *key;
	uint64_t seed;
	int ret;
};

static void race_fiber(struct rig *rig, void *arg)
{
	struct racer *racer = (struct racer *)arg;
	struct put_how how = {.check = check_absent};

	racer->ret = object_put_seeded(
		rig, "b", slice_str(racer->key), 3000 + racer->seed, racer->seed, &how);
}

static void race_run(struct rig *rig, void *arg)
{
	struct racer racers[FIBERS];
	char key[32];

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	for (uint32_t round = 0; round < 20; round++) {
		struct racer *winner = NULL;

		snprintf(key, sizeof(key), "race/%u", round);
		for (uint32_t i = 0; i < FIBERS; i++)
			racers[i] = (struct racer){.key = key, .seed = i};
		rig_fibers(rig, FIBERS, race_fiber, racers, sizeof(racers[0]));
		for (uint32_t i = 0; i < FIBERS; i++) {
			assert_true(racers[i].ret == 0 || racers[i].ret == -EEXIST);
			if (racers[i].ret == 0) {
				assert_null(winner);
				winner = &racers[i];
			}
		}
		assert_non_null(winner);
		assert_int_equal(object_verify_seeded(rig, "b", slice_str(key), 3000 + winner->seed,
					 winner->seed),
			0);
	}
}

static void test_one_of_many_creates(void **state)
{
	(void)state;
	rig_once(race_run, NULL);
}

/* ---- If-match: a chain of increments loses none, from both cores. ---- */

struct chain {
	_Atomic uint64_t done;
	_Atomic uint64_t lost;
	_Atomic bool ready;
};

static int check_crc(const struct store_meta *current, void *arg)
{
	uint64_t wanted = *(uint64_t *)arg;

	return current && current->crc64 == wanted ? 0 : -EAGAIN;
}

static void chain_fiber(struct rig *rig, void *arg)
{
	struct chain *chain = *(struct chain **)arg;

	for (uint32_t i = 0; i < 30; i++) {
		struct store_get *get;
		uint64_t seen;
		bool exists;
		struct put_how how = {.check = check_crc, .arg = &seen};
		int ret;

		assert_int_equal(
			store_get_open(rig->store, SLICE("b"), SLICE("n"), &get, &exists), 0);
		seen = store_get_meta(get)->crc64;
		store_get_close(get);
		ret = object_put_seeded(rig, "b", SLICE("n"), 10 + seen % 5000, seen + 1, &how);
		assert_true(ret == 0 || ret == -EAGAIN);
		atomic_fetch_add(ret ? &chain->lost : &chain->done, 1);
	}
}

static void chain_run(struct rig *rig, void *arg)
{
	struct chain *chain = (struct chain *)arg;
	struct chain *args[16];

	if (reactor_core_idx(reactor_self()) == 0) {
		assert_int_equal(bucket_make(rig->store, "b"), 0);
		assert_int_equal(object_put_seeded(rig, "b", SLICE("n"), 10, 0, NULL), 0);
		atomic_store(&chain->ready, true);
	}
	while (!atomic_load(&chain->ready))
		fiber_yield();
	for (uint32_t i = 0; i < ARRAY_LEN(args); i++)
		args[i] = chain;
	rig_fibers(rig, ARRAY_LEN(args), chain_fiber, args, sizeof(args[0]));
}

static void chain_verify(struct rig *rig, void *arg)
{
	struct chain *chain = (struct chain *)arg;
	struct store_get *get;
	bool exists;

	if (reactor_core_idx(reactor_self()) != 0)
		return;
	assert_int_equal(store_get_open(rig->store, SLICE("b"), SLICE("n"), &get, &exists), 0);
	assert_int_equal(store_get_meta(get)->crc64, atomic_load(&chain->done));
	store_get_close(get);
}

static void test_conditions_hold_across_cores(void **state)
{
	struct chain chain = {.done = 0};
	struct rig rig;

	(void)state;
	rig_init(&rig, 2);
	rig_run(&rig, chain_run, &chain);
	assert_int_equal(atomic_load(&chain.done) + atomic_load(&chain.lost), 2 * 16 * 30);
	assert_true(atomic_load(&chain.done) >= 30);
	rig_run(&rig, chain_verify, &chain);
	rig_dir_remove(&rig);
}

/* ---- A random load on both cores against each fiber's own model. ---- */

#define OWN_KEYS 12u

struct owner {
	uint32_t idx;
	uint64_t seeds[OWN_KEYS]; /* 0: absent */
	uint64_t sizes[OWN_KEYS];
};

static struct slice own_key(char buf[32], const struct owner *owner, uint32_t k)
{
	snprintf(buf, 32, "o%02u/%02u", owner->idx, k);
	return slice_str(buf);
}

static void owner_check(struct rig *rig, const struct owner *owner, uint32_t k)
{
	char buf[32];
	int ret = object_verify_seeded(
		rig, "b", own_key(buf, owner, k), owner->sizes[k], owner->seeds[k]);

	assert_int_equal(ret, owner->seeds[k] ? 0 : -ENOENT);
}

static void owner_fiber(struct rig *rig, void *arg)
{
	struct owner *owner = (struct owner *)arg;
	struct prng prng;
	char buf[32];

	prng_seed(&prng, owner->idx + 1);
	for (uint32_t step = 0; step < 60; step++) {
		uint32_t k = (uint32_t)prng_below(&prng, OWN_KEYS);
		struct slice key = own_key(buf, owner, k);

		switch (prng_below(&prng, 4)) {
		case 0:
			assert_int_equal(store_delete(rig->store, SLICE("b"), key, NULL, NULL), 0);
			owner->seeds[k] = 0;
			break;
		case 1:
			owner_check(rig, owner, k);
			break;
		default:
			owner->seeds[k] = prng_next(&prng) | 1;
			owner->sizes[k] = prng_below(&prng, step % 10 ? 9000 : 200000);
			assert_int_equal(object_put_seeded(rig, "b", key, owner->sizes[k],
						 owner->seeds[k], NULL),
				0);
			owner_check(rig, owner, k);
		}
	}
}

struct load {
	_Atomic bool ready;
	struct owner owners[2 * FIBERS / 2];
};

static void load_run(struct rig *rig, void *arg)
{
	struct load *load = (struct load *)arg;
	uint32_t core = reactor_core_idx(reactor_self());
	struct owner *owners = &load->owners[core * FIBERS / 2];

	if (core == 0) {
		assert_int_equal(bucket_make(rig->store, "b"), 0);
		atomic_store(&load->ready, true);
	}
	while (!atomic_load(&load->ready))
		fiber_yield();
	for (uint32_t i = 0; i < FIBERS / 2; i++)
		owners[i].idx = core * FIBERS / 2 + i;
	rig_fibers(rig, FIBERS / 2, owner_fiber, owners, sizeof(owners[0]));
}

static void load_verify(struct rig *rig, void *arg)
{
	struct load *load = (struct load *)arg;
	struct store_usage usage;
	uint64_t present = 0;

	if (reactor_core_idx(reactor_self()) != 0)
		return;
	for (uint32_t i = 0; i < ARRAY_LEN(load->owners); i++)
		for (uint32_t k = 0; k < OWN_KEYS; k++) {
			owner_check(rig, &load->owners[i], k);
			present += load->owners[i].seeds[k] != 0;
		}
	store_usage(rig->store, &usage);
	assert_int_equal(usage.objects, present);
}

static void test_a_random_load_on_two_cores(void **state)
{
	struct load *load = (struct load *)calloc(1, sizeof(*load));
	struct store_fsck_report report;
	struct rig rig;
	struct buf out;

	(void)state;
	rig_init(&rig, 2);
	rig.opts.log_bytes = 512 * KIB; /* many laps, many checkpoints */
	rig.opts.cache_bytes_max = 4 * MIB;
	rig.opts.record_table_bytes_max = 256 * KIB;
	rig_run(&rig, load_run, load);
	rig_run(&rig, load_verify, load);
	buf_init(&out, 64 * KIB);
	assert_int_equal(store_fsck(rig.dir, true, &report, &out), 0);
	assert_int_equal(report.buckets, 1);
	assert_int_equal(report.lost_bytes, 0);
	buf_free(&out);
	rig_dir_remove(&rig);
	free(load);
}

/* ---- Many deletions at once. ---- */

static void many_run(struct rig *rig, void *arg)
{
	struct slice *keys = (struct slice *)calloc(LIMIT_DELETE_KEYS_MAX + 1, sizeof(*keys));
	char(*names)[16] = (char(*)[16])calloc(LIMIT_DELETE_KEYS_MAX + 1, 16);
	int results[LIMIT_DELETE_KEYS_MAX];
	struct store_usage usage;

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	for (uint32_t i = 0; i < LIMIT_DELETE_KEYS_MAX + 1; i++) {
		snprintf(names[i], 16, "%u", i / 2); /* every key twice */
		keys[i] = slice_str(names[i]);
		if (i % 2)
			assert_int_equal(
				object_put_seeded(rig, "b", keys[i], i % 4000, 1, NULL), 0);
	}
	assert_int_equal(
		store_delete_many(rig->store, SLICE("b"), keys, LIMIT_DELETE_KEYS_MAX + 1, results),
		-EINVAL);
	assert_int_equal(store_delete_many(rig->store, SLICE("x"), keys, 10, results), -ENOENT);
	assert_int_equal(store_delete_many(rig->store, SLICE("b"), keys, 0, results), 0);
	assert_int_equal(
		store_delete_many(rig->store, SLICE("b"), keys, LIMIT_DELETE_KEYS_MAX, results), 0);
	for (uint32_t i = 0; i < LIMIT_DELETE_KEYS_MAX; i++)
		assert_int_equal(results[i], 0);
	store_usage(rig->store, &usage);
	assert_int_equal(usage.objects, 0);
	assert_int_equal(store_bucket_delete(rig->store, SLICE("b"), 0), 0);
	free(names);
	free(keys);
}

static void test_many_keys_go_in_one_commit(void **state)
{
	(void)state;
	rig_once(many_run, NULL);
}

/* ---- Cold keys that many fibers want at once: one reads the index, the others wait for it.
 * ---- */

#define COLD_KEYS 60u

static void cold_put(struct rig *rig, void *arg)
{
	char key[32];

	(void)arg;
	if (reactor_core_idx(reactor_self()) != 0)
		return;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	for (uint32_t i = 0; i < COLD_KEYS; i++) {
		snprintf(key, sizeof(key), "%u", i);
		assert_int_equal(object_put_seeded(rig, "b", slice_str(key), i * 100, i, NULL), 0);
	}
}

static void cold_fiber(struct rig *rig, void *arg)
{
	uint32_t idx = *(uint32_t *)arg;
	char key[32];

	for (uint32_t i = 0; i < COLD_KEYS; i++) {
		snprintf(key, sizeof(key), "%u", i);
		if (i % 10 == 9 && idx == i) /* one of them changes meanwhile */
			assert_int_equal(
				object_put_seeded(rig, "b", slice_str(key), i * 100, i, NULL), 0);
		else
			assert_int_equal(
				object_verify_seeded(rig, "b", slice_str(key), i * 100, i), 0);
		snprintf(key, sizeof(key), "none/%u", i);
		assert_int_equal(object_verify_seeded(rig, "b", slice_str(key), 0, 0), -ENOENT);
	}
}

static void cold_run(struct rig *rig, void *arg)
{
	uint32_t idx[FIBERS / 2];

	(void)arg;
	for (uint32_t i = 0; i < ARRAY_LEN(idx); i++)
		idx[i] = i + reactor_core_idx(reactor_self()) * (FIBERS / 2);
	rig_fibers(rig, ARRAY_LEN(idx), cold_fiber, idx, sizeof(idx[0]));
}

static void test_many_want_the_same_cold_key(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, 2);
	rig_run(&rig, cold_put, NULL);
	for (uint32_t i = 0; i < 5; i++)
		rig_run(&rig, cold_run, NULL);
	rig_dir_remove(&rig);
}

/* ---- The condition of a deletion; a bucket that is deleted while a put is open. ---- */

static int check_refuse(const struct store_meta *current, void *arg)
{
	*(bool *)arg = current != NULL;
	return -EACCES;
}

static void edges_run(struct rig *rig, void *arg)
{
	struct store_put_opts opts = {.bucket = SLICE("b"), .key = SLICE("late"), .bytes = 10};
	struct store_meta meta = {.bytes = 10};
	struct region_span span;
	struct store_put *put;
	bool seen = false;

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("k"), 10, 1, NULL), 0);
	assert_int_equal(
		store_delete(rig->store, SLICE("b"), SLICE("k"), check_refuse, &seen), -EACCES);
	assert_true(seen);
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("k"), 10, 1), 0);
	assert_int_equal(
		store_delete(rig->store, SLICE("b"), SLICE("none"), check_refuse, &seen), -EACCES);
	assert_false(seen);
	assert_int_equal(store_delete(rig->store, SLICE("b"), SLICE("k"), NULL, NULL), 0);
	assert_int_equal(store_put_open(rig->store, &opts, &put), 0);
	assert_int_equal(region_lease(rig->region, 1, OWNER_APP, &span), 0);
	local_put_frames_take(put, span, 10);
	assert_int_equal(store_bucket_delete(rig->store, SLICE("b"), 0), 0);
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	/* The bucket of that name is a new one now. */
	assert_int_equal(store_put_commit(put, &meta, NULL, NULL), -ENOENT);
	assert_int_equal(object_verify_seeded(rig, "b", SLICE("late"), 10, 1), -ENOENT);
	store_quiesce(rig->store);
	assert_int_equal(object_put_seeded(rig, "b", SLICE("k"), 10, 1, NULL), -ESHUTDOWN);
	assert_int_equal(bucket_make(rig->store, "c"), -ESHUTDOWN);
}

static void test_edges(void **state)
{
	(void)state;
	rig_once(edges_run, NULL);
}

/* ---- A checkpoint that is asked for while one runs. ---- */

static void asked_run(struct rig *rig, void *arg)
{
	struct index_apply *apply = rig->store->apply;

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	assert_int_equal(index_apply_settle(rig->store), 0);
	assert_in_range(rig_usage(rig).log_bytes, 1, rig->opts.log_bytes - 1);
	/* As a commit does that still sees the old tail. The thread is not woken. */
	pthread_mutex_lock(&apply->lock);
	apply->checkpoint_wanted = true;
	pthread_mutex_unlock(&apply->lock);
	assert_int_equal(index_apply_checkpoint_now(rig->store), 0);
	pthread_mutex_lock(&apply->lock);
	assert_false(apply->checkpoint_wanted);
	pthread_mutex_unlock(&apply->lock);
	assert_int_equal(rig_usage(rig).log_bytes, 0);
}

/* Each flush of a little makes the index merge sooner. */
static void test_one_checkpoint_answers_all_who_asked(void **state)
{
	(void)state;
	rig_once(asked_run, NULL);
}

/* ---- On a fragmented volume, a group that waits for more commits gets no more pieces than it can
 * write. ---- */

#define WAVE_FIBERS 40u /* two waves of bodies, a piece for each block, are more than a group's */

static void wave_put(struct rig *rig, uint32_t idx)
{
	char key[32];

	snprintf(key, sizeof(key), "%u", idx);
	assert_int_equal(
		object_put_seeded(rig, "b", slice_str(key), STORE_GROUPED_BYTES_MAX, idx + 1, NULL),
		0);
}

struct wave_part {
	uint32_t idx; /* 0: the first commit; then the two waves; then what conducts them */
	bool *second_goes;
};

/* For a count that stays. */
static void callers_await(const struct rig *rig, uint32_t callers)
{
	while (atomic_load(&rig->store->committer->callers) != callers)
		fiber_yield();
}

static void hold_again(void)
{
	memory_disk_let_go(0);
	memory_disk(0)->hold = true;
}

static void waves_conduct(struct rig *rig, bool *second_goes)
{
	struct committer *committer = rig->store->committer;

	callers_await(rig, 1 + WAVE_FIBERS);
	hold_again();
	callers_await(rig, WAVE_FIBERS);
	memory_disk_await_held(0);
	*second_goes = true;
	callers_await(rig, 2 * WAVE_FIBERS);
	committer->write_ns = 1000 * NS_PER_S;
	committer->await_skips = 0;
	hold_again();
	memory_disk_await_held(0);
	committer->write_ns = 0;
	memory_disk_let_go(0);
}

/* While the first commit is being written, a small one of each fiber of the first wave waits. While
 * those are being written, the bodies of the second wave wait. The first wave's fibers then put
 * their bodies while the group of the second wave's waits for them. */
static void wave_fiber(struct rig *rig, void *arg)
{
	const struct wave_part *part = (const struct wave_part *)arg;

	if (part->idx == 0) {
		assert_int_equal(object_put_seeded(rig, "b", SLICE("first"), 10, 1, NULL), 0);
		return;
	}
	if (part->idx == 2 * WAVE_FIBERS + 1) {
		waves_conduct(rig, part->second_goes);
		return;
	}
	memory_disk_await_held(0);
	if (part->idx <= WAVE_FIBERS) {
		assert_int_equal(object_put_seeded(rig, "b", SLICE("small"), 10, 1, NULL), 0);
	} else {
		while (!*part->second_goes)
			fiber_yield();
	}
	wave_put(rig, part->idx);
}

/* Half of the space is free, and no two blocks of it touch. */
static void space_break_up(struct space *space)
{
	uint64_t block, first = UINT64_MAX, last = 0;

	while (space_lease(space, 1, &block)) {
		first = MIN(first, block);
		last = MAX(last, block);
	}
	for (block = first; block <= last; block += 2)
		space_give(space, block, 1);
}

static void waves_run(struct rig *rig, void *arg)
{
	struct wave_part parts[2 * WAVE_FIBERS + 2];
	bool second_goes = false;
	char key[32];

	(void)arg;
	assert_int_equal(bucket_make(rig->store, "b"), 0);
	space_break_up(rig->store->space);
	for (uint32_t i = 0; i < ARRAY_LEN(parts); i++)
		parts[i] = (struct wave_part){.idx = i, .second_goes = &second_goes};
	memory_disk(0)->hold = true;
	rig_fibers(rig, ARRAY_LEN(parts), wave_fiber, parts, sizeof(parts[0]));
	for (uint32_t i = 1; i <= 2 * WAVE_FIBERS; i++) {
		snprintf(key, sizeof(key), "%u", i);
		assert_int_equal(object_verify_seeded(
					 rig, "b", slice_str(key), STORE_GROUPED_BYTES_MAX, i + 1),
			0);
	}
}

static void test_a_group_that_waits_keeps_to_its_pieces(void **state)
{
	struct rig rig;

	(void)state;
	_Static_assert(2 * WAVE_FIBERS * (STORE_GROUPED_BYTES_MAX / BLOCK_BYTES) > GROUP_PIECES_MAX,
		"two waves do not fit");
	rig_init(&rig, 1);
	rig.opts.volume = "memory://0";
	rig.opts.volume_bytes_max = rig.opts.step_bytes;
	memory_disks_open();
	rig_run(&rig, waves_run, NULL);
	assert_int_equal(rig.open_result, 0);
	memory_disks_close();
	rig_dir_remove(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_of_many_creates),
		cmocka_unit_test(test_conditions_hold_across_cores),
		cmocka_unit_test(test_a_random_load_on_two_cores),
		cmocka_unit_test(test_many_keys_go_in_one_commit),
		cmocka_unit_test(test_many_want_the_same_cold_key),
		cmocka_unit_test(test_edges),
		cmocka_unit_test(test_one_checkpoint_answers_all_who_asked),
		cmocka_unit_test(test_a_group_that_waits_keeps_to_its_pieces),
	};

	log_set_level(LOG_WARN);
	return cmocka_run_group_tests_name("commit", tests, NULL, NULL);
}
