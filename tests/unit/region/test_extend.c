#include "region_test.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "base/prng.h"

#define EXTENSIONS 3u
#define STEP	   (4 * MIB)
#define THREADS	   4u

static struct region *open_growing(uint64_t bytes)
{
	const struct region_opts opts = {.name = "test",
		.bytes = bytes,
		.bytes_max = bytes + EXTENSIONS * STEP + STEP / 2, /* of which the half is unused */
		.extension_bytes = STEP,
		.core_count = 2,
		.ring_entries = 8};
	struct region *region = NULL;

	assert_int_equal(region_open(&opts, &region), 0);
	return region;
}

static void commit(struct region *region, uint32_t arena_idx)
{
	char why[128];

	assert_int_equal(region_extension_commit(region, arena_idx, why, sizeof(why)), 0);
}

static void grow(struct region *region, uint32_t arena_idx)
{
	commit(region, arena_idx);
	region_extension_open(region, arena_idx);
}

static void shrink(struct region *region, uint32_t arena_idx)
{
	region_extension_retire(region, arena_idx);
	region_extension_detach(region, arena_idx);
	region_extension_park(region, arena_idx);
}

static bool is_in(const struct region *region, struct region_span span, uint32_t arena_idx)
{
	return region_arena_of(region, span.data, region_span_bytes(span)) == (int)arena_idx;
}

static uint64_t frames_total(const struct region *region)
{
	struct region_usage usage;

	region_usage(region, &usage);
	return usage.frames_total;
}

static void test_sizes(void **state)
{
	struct region *region = region_test_open(4 * MIB);
	struct region_opts opts = {.bytes = 4 * MIB, .core_count = 1};
	const uint64_t wrong[] = {2 * MIB, 12 * MIB, 2 * GIB};

	(void)state;
	assert_int_equal(region_extension_count(region), 0);
	assert_int_equal(region_extension_bytes(region), 0);
	assert_int_equal(region_extension_first(region), 1);
	region_close(region);
	/* The least step of which few enough suffice. */
	opts.bytes_max = 4 * MIB + 63 * 64 * MIB;
	assert_int_equal(region_open(&opts, &region), 0);
	assert_int_equal(region_extension_count(region), 63);
	assert_int_equal(region_extension_bytes(region), 64 * MIB);
	region_close(region);
	opts.bytes_max = 4 * MIB + 64 * 64 * MIB;
	assert_int_equal(region_open(&opts, &region), 0);
	assert_int_equal(region_extension_count(region), 32);
	assert_int_equal(region_extension_bytes(region), 128 * MIB);
	region_close(region);
	opts.bytes_max = 1000 * GIB;
	assert_int_equal(region_open(&opts, &region), 0);
	assert_int_equal(region_extension_count(region), 63);
	assert_int_equal(region_extension_bytes(region), 1 * GIB);
	region_close(region);
	for (uint32_t i = 0; i < ARRAY_LEN(wrong); i++) {
		opts.extension_bytes = wrong[i];
		assert_int_equal(region_open(&opts, &region), -EINVAL);
	}
}

static void test_comes_and_goes(void **state)
{
	struct region *region = open_growing(8 * MIB);
	uint32_t first = region_extension_first(region), base = (uint32_t)frames_total(region);
	struct region_span spans[3], lasting;

	(void)state;
	assert_int_equal(region_extension_count(region), EXTENSIONS);
	for (uint32_t round = 0; round < 3; round++) {
		struct region_arena arena = region_arena(region, first);

		assert_int_equal(region_extension_state(region, first), ARENA_PARKED);
		assert_int_equal(region_arena_of(region, arena.base, 1), -1);
		assert_false(region_arena_registers(region, first));
		commit(region, first);
		assert_true(region_arena_registers(region, first));
		assert_int_equal(frames_total(region), base);
		assert_int_equal(region_lease(region, 1024, OWNER_APP, &spans[0]), 0);
		assert_true(region_span_lasts(region, spans[0]));
		region_extension_open(region, first);
		assert_int_equal(frames_total(region), base + STEP / FRAME_BYTES);
		/* Extensions first; what lasts stays in the base. */
		assert_int_equal(region_lease_lasting(region, 3, OWNER_APP, &lasting), 0);
		assert_true(is_in(region, lasting, 0) && region_span_lasts(region, lasting));
		assert_int_equal(region_lease(region, 1024, OWNER_APP, &spans[1]), 0);
		assert_true(is_in(region, spans[1], first));
		assert_false(region_span_lasts(region, spans[1]));
		memset(spans[1].data, 0x5a, region_span_bytes(spans[1]));
		assert_int_equal(region_arena_of(region, spans[1].data, STEP + 1), -1);
		assert_int_equal(region_lease(region, 1023, OWNER_APP, &spans[2]), -ENOBUFS);
		region_extension_retire(region, first);
		assert_int_equal(region_extension_leased(region, first), 1024);
		assert_int_equal(frames_total(region), base + 1024);
		region_give(region, spans[1], OWNER_APP);
		assert_int_equal(region_extension_leased(region, first), 0);
		assert_int_equal(frames_total(region), base);
		/* It stays away, although nothing else is left. */
		assert_int_equal(region_lease(region, 1024, OWNER_APP, &spans[1]), -ENOBUFS);
		region_extension_detach(region, first);
		assert_false(region_arena_registers(region, first));
		region_extension_park(region, first);
		region_give(region, spans[0], OWNER_APP);
		region_give(region, lasting, OWNER_APP);
	}
	region_close(region);
}

/* Blocks in a thread's cache must not keep an extension, nor come out of the cache again. */
static void test_caches_are_emptied(void **state)
{
	struct region *region = open_growing(8 * MIB);
	uint32_t first = region_extension_first(region);
	struct region_span span, other, held[64];
	uint32_t count = 0;

	(void)state;
	grow(region, first);
	assert_int_equal(region_lease(region, 16, OWNER_APP, &span), 0);
	assert_int_equal(region_lease(region, 16, OWNER_APP, &other), 0);
	assert_true(is_in(region, span, first) && is_in(region, other, first));
	region_give(region, span, OWNER_APP);
	region_extension_retire(region, first);
	assert_int_equal(region_extension_leased(region, first), 16);
	region_give(region, other, OWNER_APP);
	assert_int_equal(region_lease(region, 16, OWNER_APP, &span), 0);
	assert_true(is_in(region, span, 0));
	region_give(region, span, OWNER_APP);
	assert_int_equal(region_extension_leased(region, first), 0);
	/* Taken back, it is used again. */
	region_extension_open(region, first);
	do {
		assert_true(count < ARRAY_LEN(held));
		assert_int_equal(region_lease(region, 16, OWNER_APP, &held[count]), 0);
	} while (!is_in(region, held[count++], first));
	while (count)
		region_give(region, held[--count], OWNER_APP);
	shrink(region, first);
	region_close(region);
}

static void test_no_file(void **state)
{
	struct region *region = open_growing(4 * MIB);
	uint32_t first = region_extension_first(region);
	struct rlimit limit, none;
	char why[128];

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){.rlim_cur = 3, .rlim_max = limit.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	assert_int_equal(region_extension_commit(region, first, why, sizeof(why)), -EMFILE);
	assert_non_null(strstr(why, "cannot allocate memory"));
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(region_extension_state(region, first), ARENA_PARKED);
	grow(region, first);
	shrink(region, first);
	region_close(region);
}

/* ---- Users. ---- */

struct user {
	struct region_watch watch;
	uint64_t attached;
	uint32_t ended;
	int refusal;
};

static int user_attach(struct region_watch *watch, uint32_t arena_idx)
{
	struct user *user = CONTAINER_OF(watch, struct user, watch);

	if (!user->refusal)
		user->attached |= 1ull << arena_idx;
	return user->refusal;
}

static void user_detach(struct region_watch *watch, uint32_t arena_idx)
{
	CONTAINER_OF(watch, struct user, watch)->attached &= ~(1ull << arena_idx);
}

static void user_ended(struct region_watch *watch)
{
	CONTAINER_OF(watch, struct user, watch)->ended++;
}

static void test_users(void **state)
{
	struct region *region = open_growing(4 * MIB);
	struct region_ring *ring = region_ring(region, 1);
	struct user users[3];

	(void)state;
	for (uint32_t i = 0; i < 3; i++) {
		users[i] = (struct user){
			.watch = {
				.attach = user_attach, .detach = user_detach, .ended = user_ended}};
		region_watch_add(ring, &users[i].watch);
	}
	assert_int_equal(region_watches_attach(region_ring(region, 0), 1), 0);
	assert_int_equal(region_watches_attach(ring, 1), 0);
	assert_int_equal(users[0].attached & users[1].attached & users[2].attached, 2);
	region_watches_detach(ring, 1);
	assert_int_equal(users[0].attached | users[1].attached | users[2].attached, 0);
	users[1].refusal = -ENOMEM;
	assert_int_equal(region_watches_attach(ring, 1), -ENOMEM);
	assert_int_equal(users[2].attached, 0);
	region_watches_detach(ring, 1);
	assert_int_equal(users[0].attached, 0);
	region_watch_remove(&users[1].watch);
	region_watch_remove(&users[1].watch);
	assert_int_equal(region_watches_attach(ring, 1), 0);
	region_watches_detach(ring, 1);
	region_close(region);
	assert_int_equal(users[0].ended, 1);
	assert_int_equal(users[1].ended, 0);
	assert_int_equal(users[2].ended, 1);
}

/* ---- Another process's view. ---- */

static void test_seen(void **state)
{
	struct region *region = open_growing(4 * MIB);
	uint32_t first = region_extension_first(region);
	uint64_t owners[OWNER_COUNT];
	struct region_view *view;
	struct buf out;

	(void)state;
	assert_int_equal(region_view_open(getpid(), &view), 0);
	assert_int_equal(region_view_frames(view, owners), 4 * MIB / FRAME_BYTES);
	grow(region, first + 1);
	assert_int_equal(region_view_frames(view, owners), (4 * MIB + STEP) / FRAME_BYTES);
	assert_int_equal(owners[OWNER_FREE], (4 * MIB + STEP) / FRAME_BYTES);
	buf_init(&out, MIB);
	region_view_dump(view, false, &out);
	buf_put(&out, "", 1);
	assert_non_null(strstr(out.data, "parked"));
	buf_free(&out);
	shrink(region, first + 1);
	assert_int_equal(region_view_frames(view, owners), 4 * MIB / FRAME_BYTES);
	region_view_close(view);
	region_close(region);
}

/* ---- Many threads lease while extensions come and go. ---- */

static struct region *shared;
static _Atomic bool over;
static _Atomic uint64_t leases_made;

/* Each lease is filled with a pattern of its own, and has it when it is given back. */
static void *leaser(void *arg)
{
	struct prng prng;
	struct region_span held[16] = {{0}};

	prng_seed(&prng, (uintptr_t)arg);
	while (!over) {
		uint32_t at = (uint32_t)prng_next(&prng) % 16;
		struct region_span *span = &held[at];
		uint64_t mark = (uint64_t)(uintptr_t)arg << 32 | at;

		if (span->data) {
			uint64_t *words = (uint64_t *)(void *)span->data;

			CHECK(words[0] == mark);
			CHECK(words[region_span_bytes(*span) / 8 - 1] == ~mark);
			region_give(shared, *span, OWNER_APP);
			span->data = NULL;
		} else if (region_lease(shared, 1u << prng_next(&prng) % 8, OWNER_APP, span) == 0) {
			uint64_t *words = (uint64_t *)(void *)span->data;

			words[0] = mark;
			words[region_span_bytes(*span) / 8 - 1] = ~mark;
			leases_made++;
		} else {
			span->data = NULL;
		}
	}
	for (uint32_t i = 0; i < 16; i++)
		if (held[i].data)
			region_give(shared, held[i], OWNER_APP);
	return NULL;
}

static void test_threads(void **state)
{
	pthread_t threads[THREADS];
	uint32_t first, opened = 0, parked = 0;
	uint64_t base;
	struct prng prng;

	(void)state;
	shared = open_growing(4 * MIB);
	first = region_extension_first(shared);
	base = frames_total(shared);
	over = false;
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, leaser, (void *)(i + 1)), 0);
	prng_seed(&prng, 7);
	for (uint64_t rounds = 0; rounds < 3000 || leases_made < 20000; rounds++) {
		uint32_t idx = first + (uint32_t)prng_next(&prng) % EXTENSIONS;

		switch (region_extension_state(shared, idx)) {
		case ARENA_PARKED:
			grow(shared, idx);
			opened++;
			break;
		case ARENA_OPEN:
			region_extension_retire(shared, idx);
			break;
		default:
			if (region_extension_leased(shared, idx) == 0) {
				region_extension_detach(shared, idx);
				region_extension_park(shared, idx);
				parked++;
			} else if (prng_next(&prng) % 8 == 0) {
				region_extension_open(shared, idx);
			}
		}
	}
	over = true;
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	print_message("%u opened, %u parked, %llu leases\n", opened, parked,
		(unsigned long long)leases_made);
	assert_true(opened > 0 && parked > 0);
	for (uint32_t i = first; i < first + EXTENSIONS; i++) {
		if (region_extension_state(shared, i) == ARENA_PARKED)
			continue;
		if (region_extension_state(shared, i) == ARENA_OPEN)
			region_extension_retire(shared, i);
		assert_int_equal(region_extension_leased(shared, i), 0);
		region_extension_detach(shared, i);
		region_extension_park(shared, i);
	}
	assert_int_equal(frames_total(shared), base);
	region_close(shared);
}

/* ---- Misuse. ---- */

static void park_leased(void)
{
	struct region *region = open_growing(4 * MIB);
	struct region_span span;

	grow(region, 1);
	region_lease(region, 1, OWNER_APP, &span);
	region_extension_retire(region, 1);
	region_extension_detach(region, 1);
}

static void test_a_leased_one_stays(void **state)
{
	(void)state;
	expect_abort(park_leased, "leased == 0");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_comes_and_goes),
		cmocka_unit_test(test_caches_are_emptied),
		cmocka_unit_test(test_no_file),
		cmocka_unit_test(test_users),
		cmocka_unit_test(test_seen),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_a_leased_one_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
