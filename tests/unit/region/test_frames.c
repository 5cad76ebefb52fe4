#include "region_test.h"

#include <errno.h>
#include <pthread.h>

#include "region/frames_priv.h"

#define REGION_BYTES (16 * MIB)

static void test_lease_and_give(void **state)
{
	struct region *region = region_test_open(REGION_BYTES);
	struct region_span a, b;
	struct region_usage usage;

	(void)state;
	assert_int_equal(region_lease(region, 0, OWNER_APP, &a), -EINVAL);
	assert_int_equal(region_lease(region, LIMIT_SPAN_FRAMES_MAX + 1, OWNER_APP, &a), -EINVAL);
	assert_int_equal(region_lease(region, 16, OWNER_APP, &a), 0);
	assert_int_equal(a.frame_count, 16);
	assert_int_equal((uintptr_t)a.data % (16 * FRAME_BYTES), 0);
	assert_int_equal(region_arena_of(region, a.data, region_span_bytes(a)), 0);
	memset(a.data, 0x5a, region_span_bytes(a));
	assert_int_equal(region_lease(region, 300, OWNER_NET, &b), 0);
	region_usage(region, &usage);
	assert_int_equal(usage.frames_total, REGION_BYTES / FRAME_BYTES);
	assert_int_equal(usage.frames_by_owner[OWNER_APP], 16);
	assert_int_equal(usage.frames_by_owner[OWNER_NET], 300);
	region_switch(region, b, OWNER_NET, OWNER_DISK);
	region_usage(region, &usage);
	assert_int_equal(usage.frames_by_owner[OWNER_NET], 0);
	assert_int_equal(usage.frames_by_owner[OWNER_DISK], 300);
	region_give(region, a, OWNER_APP);
	region_give(region, b, OWNER_DISK);
	region_usage(region, &usage);
	assert_int_equal(usage.frames_by_owner[OWNER_FREE], usage.frames_total);
	region_close(region);
}

/* A span from outside is accepted only if all its parts are consistent. */
static void test_a_span_from_outside_holds_together(void **state)
{
	struct region *region = region_test_open(REGION_BYTES);
	struct region_span a, b, wrong;
	enum region_owner owner;

	(void)state;
	assert_int_equal(region_lease(region, 2, OWNER_APP, &a), 0);
	assert_int_equal(region_lease(region, 2, OWNER_DISK, &b), 0);
	assert_int_equal(region_span_check(region, a, &owner), 0);
	assert_int_equal(owner, OWNER_APP);
	assert_int_equal(region_span_check(region, b, &owner), 0);
	assert_int_equal(owner, OWNER_DISK);
	/* The frames of one lease, with the memory of the other or of none. */
	wrong = a;
	wrong.data = b.data;
	assert_int_equal(region_span_check(region, wrong, &owner), -ESTALE);
	wrong.data = a.data + 1;
	assert_int_equal(region_span_check(region, wrong, &owner), -ESTALE);
	wrong.data = NULL;
	assert_int_equal(region_span_check(region, wrong, &owner), -ESTALE);
	wrong = a;
	wrong.frame_idx++;
	assert_int_equal(region_span_check(region, wrong, &owner), -ESTALE);
	wrong.data += FRAME_BYTES;
	assert_int_equal(region_span_check(region, wrong, &owner), -ESTALE);
	wrong = a;
	wrong.frame_count = 1;
	assert_int_equal(region_span_check(region, wrong, &owner), -ESTALE);
	wrong.frame_count = 0;
	assert_int_equal(region_span_check(region, wrong, &owner), -ESTALE);
	wrong = a;
	wrong.generation++;
	assert_int_equal(region_span_check(region, wrong, &owner), -ESTALE);
	/* Neither the region's tables nor the memory past its end are frames. */
	wrong = a;
	wrong.frame_idx = 0;
	wrong.data = region->base;
	assert_int_equal(region_span_check(region, wrong, &owner), -ESTALE);
	wrong.frame_idx = region->page_count;
	assert_int_equal(region_span_check(region, wrong, &owner), -ESTALE);
	region_give(region, a, OWNER_APP);
	assert_int_equal(region_span_check(region, a, &owner), -ESTALE);
	region_give(region, b, OWNER_DISK);
	region_close(region);
}

/* Under AddressSanitizer the bytes of free frames are out of bounds. */
static void test_free_frames_are_poisoned(void **state)
{
	(void)state;
#ifdef REGION_ASAN
	struct region *region = region_test_open(REGION_BYTES);
	struct region_span span;

	assert_int_equal(region_lease(region, 3, OWNER_APP, &span), 0);
	assert_null(__asan_region_is_poisoned(span.data, region_span_bytes(span)));
	assert_ptr_equal(__asan_region_is_poisoned(span.data, region_span_bytes(span) + 1),
		span.data + region_span_bytes(span));
	region_give(region, span, OWNER_APP);
	assert_ptr_equal(__asan_region_is_poisoned(span.data, 1), span.data);
	region_close(region);
#else
	skip();
#endif
}

/* In any order of leasing and giving, all memory is merged to the largest blocks again. */
static void test_coalesces(void **state)
{
	static struct region_span spans[REGION_BYTES / FRAME_BYTES];
	struct region *region = region_test_open(REGION_BYTES);
	struct region_span span;
	struct region_usage usage;
	uint32_t count = 0;
	struct prng prng;

	(void)state;
	prng_seed(&prng, 7);
	while (region_lease(region, 1, OWNER_APP, &spans[count]) == 0)
		count++;
	/* No frame stays behind, neither in caches nor by splitting. */
	assert_int_equal(count, ARRAY_LEN(spans));
	region_usage(region, &usage);
	assert_int_equal(usage.lease_failures, 1);
	assert_int_equal(usage.frames_by_owner[OWNER_FREE], 0);
	for (uint32_t left = count; left > 0; left--) {
		uint64_t pick = prng_below(&prng, left);

		region_give(region, spans[pick], OWNER_APP);
		spans[pick] = spans[left - 1];
	}
	for (count = 0; region_lease(region, LIMIT_SPAN_FRAMES_MAX, OWNER_XDP, &span) == 0; count++)
		spans[count] = span;
	assert_int_equal(count, REGION_BYTES / FRAME_BYTES / LIMIT_SPAN_FRAMES_MAX);
	while (count > 0)
		region_give(region, spans[--count], OWNER_XDP);
	region_close(region);
}

static void test_references(void **state)
{
	struct region *region = region_test_open(REGION_BYTES);
	struct region_span span, again;

	(void)state;
	assert_int_equal(region_lease(region, 1, OWNER_CACHE, &span), 0);
	region_get(region, span);
	region_get(region, span);
	assert_false(region_put(region, span, OWNER_CACHE));
	assert_false(region_put(region, span, OWNER_CACHE));
	assert_true(region_put(region, span, OWNER_CACHE));
	assert_int_equal(region_lease(region, 1, OWNER_APP, &again), 0);
	assert_int_equal(again.frame_idx, span.frame_idx);
	assert_int_equal(again.generation, span.generation + 1);
	region_give(region, again, OWNER_APP);
	region_close(region);
}

/* ---- Each thread leases, fills, checks, hands to the next thread or gives; no thread ever sees
 * another's bytes. ---- */

#define THREADS	    4u
#define STEPS	    20000u
#define HELD_MAX    24u
#define MAILBOX_MAX 8u

struct worker {
	struct region *region;
	uint64_t seed;
	pthread_t thread;
	struct worker *next;
	pthread_mutex_t lock;
	struct region_span mailbox[MAILBOX_MAX]; /* from the previous worker */
	uint32_t mailbox_count;
	struct region_span held[HELD_MAX];
	uint32_t held_count;
	uint64_t leases;
	uint64_t passed;
	uint64_t wrong;
};

static uint64_t stamp_of(struct region_span span)
{
	return (uint64_t)span.frame_idx << 32 | (span.generation & 0xffff) << 16 | span.frame_count;
}

static void stamp(struct region_span span)
{
	for (uint32_t i = 0; i < span.frame_count; i++)
		*(uint64_t *)(void *)(span.data + (size_t)i * FRAME_BYTES) = stamp_of(span) + i;
}

static bool stamped(struct region_span span)
{
	for (uint32_t i = 0; i < span.frame_count; i++) {
		if (*(uint64_t *)(void *)(span.data + (size_t)i * FRAME_BYTES) !=
			stamp_of(span) + i)
			return false;
	}
	return true;
}

static void worker_lease(struct worker *worker, struct prng *prng)
{
	static const uint32_t counts[] = {1, 1, 1, 2, 3, 7, 16, 16, 33, 64, 100, 256};
	struct region_span span;
	uint32_t count = counts[prng_below(prng, ARRAY_LEN(counts))];

	if (worker->held_count == HELD_MAX ||
		region_lease(worker->region, count, OWNER_APP, &span) != 0)
		return;
	stamp(span);
	worker->held[worker->held_count++] = span;
	worker->leases++;
}

static void worker_drop(struct worker *worker, struct prng *prng)
{
	uint64_t pick;
	struct region_span span;
	bool passed = false;

	if (worker->held_count == 0)
		return;
	pick = prng_below(prng, worker->held_count);
	span = worker->held[pick];
	worker->held[pick] = worker->held[--worker->held_count];
	worker->wrong += !stamped(span);
	if (prng_below(prng, 2) == 0) {
		pthread_mutex_lock(&worker->next->lock);
		if (worker->next->mailbox_count < MAILBOX_MAX) {
			worker->next->mailbox[worker->next->mailbox_count++] = span;
			passed = true;
		}
		pthread_mutex_unlock(&worker->next->lock);
	}
	worker->passed += passed;
	if (!passed)
		region_give(worker->region, span, OWNER_APP);
}

static void worker_receive(struct worker *worker)
{
	pthread_mutex_lock(&worker->lock);
	while (worker->mailbox_count > 0) {
		struct region_span span = worker->mailbox[--worker->mailbox_count];

		worker->wrong += !stamped(span);
		region_give(worker->region, span, OWNER_APP);
	}
	pthread_mutex_unlock(&worker->lock);
}

static void *worker_run(void *arg)
{
	struct worker *worker = arg;
	struct prng prng;

	prng_seed(&prng, worker->seed);
	for (uint32_t i = 0; i < STEPS; i++) {
		if (prng_below(&prng, 2) == 0)
			worker_lease(worker, &prng);
		else
			worker_drop(worker, &prng);
		if (prng_below(&prng, 4) == 0)
			worker_receive(worker);
	}
	while (worker->held_count > 0)
		worker_drop(worker, &prng);
	return NULL;
}

static void model_run(uint64_t seed)
{
	static struct worker workers[THREADS];
	struct region *region = region_test_open(REGION_BYTES);
	struct region_usage usage;
	struct region_span all[REGION_BYTES / FRAME_BYTES / LIMIT_SPAN_FRAMES_MAX];

	for (uint32_t i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){.region = region,
			.seed = seed * THREADS + i,
			.next = &workers[(i + 1) % THREADS],
			.lock = PTHREAD_MUTEX_INITIALIZER};
	}
	for (uint32_t i = 0; i < THREADS; i++)
		assert_int_equal(
			pthread_create(&workers[i].thread, NULL, worker_run, &workers[i]), 0);
	for (uint32_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
	for (uint32_t i = 0; i < THREADS; i++) {
		worker_receive(&workers[i]);
		assert_int_equal(workers[i].wrong, 0);
		assert_true(workers[i].leases > 0);
		assert_true(workers[i].passed > 0);
	}
	region_usage(region, &usage);
	assert_int_equal(usage.frames_by_owner[OWNER_APP], 0);
	assert_int_equal(usage.frames_by_owner[OWNER_FREE], usage.frames_total);
	for (uint32_t i = 0; i < ARRAY_LEN(all); i++)
		assert_int_equal(
			region_lease(region, LIMIT_SPAN_FRAMES_MAX, OWNER_APP, &all[i]), 0);
	for (uint32_t i = 0; i < ARRAY_LEN(all); i++)
		region_give(region, all[i], OWNER_APP);
	region_close(region);
}

static void test_threads_against_model(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 5; seed++)
		model_run(seed);
}

static void *give_and_end(void *arg)
{
	void **args = arg;

	region_give(args[0], *(struct region_span *)args[1], OWNER_APP);
	return NULL;
}

/* Other threads can lease the frames in an ended thread's cache, for more threads than there are
 * caches, and its usage stays counted. */
static void test_ended_threads_leave_nothing(void **state)
{
	struct region *region = region_test_open(REGION_BYTES);
	struct region_usage usage;

	(void)state;
	for (uint32_t i = 0; i < 300; i++) {
		struct region_span span;
		void *args[] = {region, &span};
		pthread_t thread;

		assert_int_equal(region_lease(region, 16, OWNER_APP, &span), 0);
		assert_int_equal(pthread_create(&thread, NULL, give_and_end, args), 0);
		assert_int_equal(pthread_join(thread, NULL), 0);
	}
	region_usage(region, &usage);
	assert_int_equal(usage.frames_by_owner[OWNER_FREE], usage.frames_total);
	assert_int_equal(usage.frames_by_owner[OWNER_APP], 0);
	region_close(region);
}

/* ---- Our own bugs abort with a message. ---- */

static struct region *bug_region;
static struct region_span bug_span;

static void bug_begin(void)
{
	const struct region_opts opts = {.bytes = REGION_BYTES, .core_count = 1, .ring_entries = 8};

	if (region_open(&opts, &bug_region) != 0 ||
		region_lease(bug_region, 16, OWNER_APP, &bug_span) != 0)
		_exit(1);
}

static void bug_double_give(void)
{
	bug_begin();
	region_give(bug_region, bug_span, OWNER_APP);
	region_give(bug_region, bug_span, OWNER_APP);
}

static void bug_wrong_owner(void)
{
	bug_begin();
	region_give(bug_region, bug_span, OWNER_RDMA);
}

static void bug_stale_generation(void)
{
	struct region_span again;

	bug_begin();
	region_give(bug_region, bug_span, OWNER_APP);
	if (region_lease(bug_region, 16, OWNER_APP, &again) != 0 ||
		again.frame_idx != bug_span.frame_idx)
		_exit(1);
	region_switch(bug_region, bug_span, OWNER_APP, OWNER_DISK);
}

static void bug_give_shared(void)
{
	bug_begin();
	region_get(bug_region, bug_span);
	region_give(bug_region, bug_span, OWNER_APP);
}

static void bug_no_frame(void)
{
	bug_begin();
	bug_span.frame_idx = 0;
	region_put(bug_region, bug_span, OWNER_APP);
}

static void bug_part_of_span(void)
{
	bug_begin();
	bug_span.frame_count = 8;
	region_give(bug_region, bug_span, OWNER_APP);
}

static void bug_get_after_give(void)
{
	bug_begin();
	region_give(bug_region, bug_span, OWNER_APP);
	region_get(bug_region, bug_span);
}

static void bug_leak(void)
{
	bug_begin();
	region_close(bug_region);
	abort();
}

static void test_misuse_aborts(void **state)
{
	(void)state;
	expect_abort(bug_double_give, "expected owner app, generation 0, 16 frames; found owner "
				      "free, generation 1, 16 frames, 0 references");
	expect_abort(bug_wrong_owner, "expected owner rdma, generation 0, 16 frames; found owner "
				      "app, generation 0, 16 frames, 1 references");
	expect_abort(bug_stale_generation, "region_switch: frame");
	expect_abort(bug_give_shared, "2 references");
	expect_abort(bug_no_frame, "frame 0 is not one of the region's");
	expect_abort(bug_part_of_span, "expected owner app, generation 0, 8 frames; found");
	expect_abort(bug_get_after_give, "region_get (any owner)");
	expect_abort(bug_leak, "16 frames, owner app, references 1, generation 0");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lease_and_give),
		cmocka_unit_test(test_a_span_from_outside_holds_together),
		cmocka_unit_test(test_free_frames_are_poisoned),
		cmocka_unit_test(test_coalesces),
		cmocka_unit_test(test_references),
		cmocka_unit_test(test_threads_against_model),
		cmocka_unit_test(test_ended_threads_leave_nothing),
		cmocka_unit_test(test_misuse_aborts),
	};

	return cmocka_run_group_tests_name("frames", tests, NULL, NULL);
}
