#include "region_test.h"

#include <errno.h>

#define ENTRIES 8u /* as in region_test_open() */

/* A device that records its entries, and accepts only a given number of them. */
struct recorder {
	uint64_t seen[256];
	uint32_t seen_count;
	uint32_t batches[64];
	uint32_t batch_count;
	uint32_t bells;
	uint32_t room; /* entries it accepts in total */
	bool completes;
};

static uint32_t recorder_take(struct recorder *recorder, uint32_t count)
{
	uint32_t taken = MIN(count, recorder->room);

	recorder->room -= taken;
	recorder->batches[recorder->batch_count++] = taken;
	return taken;
}

static uint32_t recorder_submit(
	void *device, struct region_ring *ring, const struct region_sqe *entries, uint32_t count)
{
	struct recorder *recorder = device;
	uint32_t taken = recorder_take(recorder, count);

	for (uint32_t i = 0; i < taken; i++) {
		struct region_cqe cqe = region_sqe_done(&entries[i], (int32_t)entries[i].len);

		recorder->seen[recorder->seen_count++] = entries[i].user_data;
		if (recorder->completes)
			region_complete(ring, &cqe);
	}
	return taken;
}

static uint32_t recorder_submit_wr(
	void *device, struct region_ring *ring, const struct region_wr *entries, uint32_t count)
{
	struct recorder *recorder = device;
	uint32_t taken = recorder_take(recorder, count);

	for (uint32_t i = 0; i < taken; i++) {
		struct region_cqe cqe = region_wr_done(&entries[i], 0);

		recorder->seen[recorder->seen_count++] = entries[i].user_data;
		if (recorder->completes)
			region_complete(ring, &cqe);
	}
	return taken;
}

static void recorder_bell(void *device, struct region_ring *ring)
{
	(void)ring;
	((struct recorder *)device)->bells++;
}

static const struct region_device_ops recorder_ops = {.name = "recorder",
	.submit = recorder_submit,
	.submit_wr = recorder_submit_wr,
	.bell = recorder_bell};

static int submit(struct region_ring *ring, uint16_t target, uint64_t user_data)
{
	const struct region_sqe sqe = {
		.opcode = REGION_OP_FLUSH, .target = target, .user_data = user_data};

	return region_submit(ring, &sqe);
}

static void test_nop_on_both_pairs(void **state)
{
	struct region *region = region_test_open(4 * MIB);
	struct region_ring *ring = region_ring(region, 1);
	const struct region_sqe sqe = {.opcode = REGION_OP_NOP, .user_data = 1};
	const struct region_wr wr = {.opcode = REGION_OP_NOP, .user_data = 2};
	struct region_cqe cqes[4];

	(void)state;
	assert_true(region_ring_idle(ring));
	assert_int_equal(region_ring_turn(ring), 0);
	assert_int_equal(region_submit(ring, &sqe), 0);
	assert_int_equal(region_submit_wr(ring, &wr), 0);
	assert_false(region_ring_idle(ring));
	assert_int_equal(region_ring_turn(ring), 2);
	assert_false(region_ring_idle(ring));
	assert_int_equal(region_reap(ring, cqes, 4), 2);
	assert_int_equal(cqes[0].user_data, 1);
	assert_int_equal(cqes[1].user_data, 2);
	assert_int_equal(cqes[0].result, 0);
	assert_int_equal(cqes[0].latency_ns, 0);
	assert_true(region_ring_idle(ring));
	/* Without timing, completions have no latency; with timing, they have. */
	region_timed_set(region, true);
	assert_int_equal(region_submit(ring, &sqe), 0);
	region_ring_turn(ring);
	assert_int_equal(region_reap(ring, cqes, 4), 1);
	assert_true(cqes[0].latency_ns > 0);
	region_close(region);
}

/* Latencies in turns: the only clock is the time given to the ring. */
static void test_times_by_turn(void **state)
{
	struct region *region = region_test_open(4 * MIB);
	struct region_ring *ring = region_ring(region, 1);
	const struct region_sqe sqe = {.opcode = REGION_OP_NOP};
	static const struct {
		uint64_t latency_ns;
		uint32_t bucket;
	} CASES[] = {{0, 0}, {1, 0}, {1024, 0}, {1025, 1}, {4096, 1}, {4097, 2}, {1ull << 32, 11},
		{(1ull << 32) + 1, 12}, {1ull << 50, 12}};
	struct region_ring_stats stats;
	struct region_cqe cqe;
	uint64_t sum = 0;

	(void)state;
	for (uint32_t i = 0; i < ARRAY_LEN(CASES); i++) {
		struct region_ring_stats before;

		region_ring_stats(region, 1, false, &before);
		region_ring_now(ring, 5000);
		assert_int_equal(region_submit(ring, &sqe), 0);
		region_ring_now(ring, 5000 + CASES[i].latency_ns);
		region_ring_stats(region, 1, false, &stats);
		assert_int_equal(stats.submit_depth, 1);
		region_ring_turn(ring);
		region_ring_stats(region, 1, false, &stats);
		assert_int_equal(stats.complete_depth, 1);
		assert_int_equal(region_reap(ring, &cqe, 1), 1);
		assert_int_equal(cqe.latency_ns, MAX(CASES[i].latency_ns, 1));
		assert_int_equal(stats.latency_buckets[CASES[i].bucket],
			before.latency_buckets[CASES[i].bucket] + 1);
		sum += MAX(CASES[i].latency_ns, 1);
	}
	region_ring_stats(region, 1, false, &stats);
	assert_int_equal(stats.timed, ARRAY_LEN(CASES));
	assert_int_equal(stats.submitted, ARRAY_LEN(CASES));
	assert_int_equal(stats.completed, ARRAY_LEN(CASES));
	assert_int_equal(stats.latency_ns, sum);
	assert_int_equal(stats.errors, 0);
	/* An entry for a target that does not exist fails, and is counted. */
	assert_int_equal(submit(ring, 7, 1), 0);
	region_ring_turn(ring);
	region_ring_stats(region, 1, false, &stats);
	assert_int_equal(stats.errors, 1);
	region_ring_stats(region, 1, true, &stats);
	assert_int_equal(stats.submitted, 0);
	region_close(region);
}

struct counted {
	const char *name;
	uint64_t value;
};

static void count_ring(const struct counter *counter, void *arg)
{
	struct counted *counted = arg;

	if (!strcmp(counter->name, counted->name) && !strcmp(counter->labels, "what=\"ring\""))
		counted->value += counter_read(counter);
}

static uint64_t counted(const char *name)
{
	struct counted counted = {.name = name};

	counter_visit(count_ring, &counted);
	return counted.value;
}

static void test_full_until_reaped(void **state)
{
	struct region *region = region_test_open(4 * MIB);
	struct region_ring *ring = region_ring(region, 0);
	struct recorder recorder = {.room = UINT32_MAX, .completes = true};
	uint64_t full = counted(COUNTER_FULL), depth = counted(COUNTER_FULL_DEPTH);
	struct region_cqe cqes[ENTRIES];
	uint16_t target;

	(void)state;
	assert_int_equal(region_target_add(region, &recorder_ops, &recorder, "r", &target), 0);
	for (uint32_t round = 0; round < 5; round++) {
		for (uint32_t i = 0; i < ENTRIES; i++)
			assert_int_equal(submit(ring, target, i), 0);
		assert_int_equal(submit(ring, target, 99), -EAGAIN);
		assert_int_equal(region_ring_turn(ring), ENTRIES);
		/* Drained, but their completions still use the places. */
		assert_int_equal(submit(ring, target, 99), -EAGAIN);
		assert_int_equal(region_reap(ring, cqes, 3), 3);
		assert_int_equal(region_reap(ring, cqes + 3, ENTRIES), ENTRIES - 3);
		for (uint32_t i = 0; i < ENTRIES; i++)
			assert_int_equal(cqes[i].user_data, i);
	}
	assert_int_equal(recorder.bells, 5);
	assert_int_equal(recorder.batch_count, 5);
	/* Twice in each round, each time with all places taken. */
	assert_int_equal(counted(COUNTER_FULL) - full, 10);
	assert_int_equal(counted(COUNTER_FULL_DEPTH) - depth, 10 * ENTRIES);
	region_close(region);
}

/* A busy target keeps its entries, in order, and blocks no other target. */
static void test_busy_target_blocks_no_other(void **state)
{
	struct region *region = region_test_open(4 * MIB);
	struct region_ring *ring = region_ring(region, 0);
	struct recorder slow = {.room = 1}, fast = {.room = UINT32_MAX, .completes = true};
	struct region_cqe cqes[ENTRIES];
	uint16_t slow_target, fast_target;

	(void)state;
	assert_int_equal(region_target_add(region, &recorder_ops, &slow, "slow", &slow_target), 0);
	assert_int_equal(region_target_add(region, &recorder_ops, &fast, "fast", &fast_target), 0);
	for (uint64_t i = 0; i < ENTRIES; i++)
		assert_int_equal(submit(ring, i % 2 ? fast_target : slow_target, i), 0);
	assert_int_equal(region_ring_turn(ring), 1 + ENTRIES / 2);
	assert_int_equal(slow.seen_count, 1);
	/* One offer was accepted, one refused; then the target gets no more in this turn. */
	assert_int_equal(slow.batch_count, 2);
	assert_int_equal(slow.bells, 1);
	assert_int_equal(fast.seen_count, ENTRIES / 2);
	assert_int_equal(fast.bells, 1);
	assert_int_equal(region_reap(ring, cqes, ENTRIES), ENTRIES / 2);
	/* A turn without progress rings no bell. */
	assert_int_equal(region_ring_turn(ring), 0);
	assert_int_equal(slow.bells, 1);
	for (uint32_t round = 0; round < 3 * ENTRIES; round++) {
		assert_int_equal(submit(ring, fast_target, 100 + round), 0);
		assert_int_equal(region_ring_turn(ring), 1);
		assert_int_equal(region_reap(ring, cqes, ENTRIES), 1);
		assert_int_equal(cqes[0].user_data, 100 + round);
	}
	slow.room = UINT32_MAX;
	assert_int_equal(region_ring_turn(ring), 3);
	assert_int_equal(slow.seen_count, 4);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(slow.seen[i], 2 * i);
	region_close(region);
}

static void test_removed_target(void **state)
{
	struct region *region = region_test_open(4 * MIB);
	struct region_ring *ring = region_ring(region, 0);
	struct recorder recorder = {.room = 0};
	struct region_cqe cqes[2];
	uint16_t target, other;

	(void)state;
	assert_int_equal(region_target_add(region, &recorder_ops, &recorder, "r", &target), 0);
	assert_int_equal(submit(ring, target, 5), 0);
	assert_int_equal(region_ring_turn(ring), 0);
	region_target_remove(region, target);
	assert_int_equal(region_target_add(region, &recorder_ops, &recorder, "r", &other), 0);
	assert_int_not_equal(other, target);
	assert_int_equal(region_ring_turn(ring), 1);
	assert_int_equal(region_reap(ring, cqes, 2), 1);
	assert_int_equal(cqes[0].user_data, 5);
	assert_int_equal(cqes[0].result, -ENODEV);
	region_close(region);
}

static void test_memory_is_checked(void **state)
{
	struct region *region = region_test_open(4 * MIB);
	struct region_ring *ring = region_ring(region, 0);
	struct region_arena arena = region_arena(region, 0);
	struct region_sqe sqe = {.opcode = REGION_OP_READ, .len = FRAME_BYTES};

	(void)state;
	sqe.addr = (uintptr_t)&sqe;
	assert_int_equal(region_submit(ring, &sqe), -EFAULT);
	sqe.addr = (uintptr_t)arena.base + arena.bytes - FRAME_BYTES + 1;
	assert_int_equal(region_submit(ring, &sqe), -EFAULT);
	sqe.addr--;
	assert_int_equal(region_submit(ring, &sqe), 0);
	region_close(region);
}

/* Signaled entries that the ring takes for the target, of at most max; receives with receive. */
static uint32_t submit_all(struct region_ring *ring, uint16_t target, bool receive, uint32_t max)
{
	const struct region_wr wr = {
		.opcode = receive ? REGION_OP_RECV : REGION_OP_SEND, .target = target};
	uint32_t count = 0;

	while (count < max && region_submit_wr(ring, &wr) == 0)
		count++;
	assert_int_equal(region_admits_wr(ring, &wr), count == max);
	return count;
}

/* A target whose device completes nothing holds its part, and leaves places to the others. */
static void test_parts(void **state)
{
	const struct region_opts opts = {
		.bytes = 4 * MIB, .core_count = 1, .ring_entries = 64, .name = "parts"};
	struct region *region;
	struct region_ring *ring;
	struct recorder dead = {.room = UINT32_MAX},
			alive = {.room = UINT32_MAX, .completes = true};
	struct region_cqe cqes[64];
	uint16_t targets[3], others;

	(void)state;
	assert_int_equal(region_open(&opts, &region), 0);
	ring = region_ring(region, 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(
			region_target_add(region, &recorder_ops, &dead, "dead", &targets[i]), 0);
	assert_int_equal(region_target_add(region, &recorder_ops, &alive, "alive", &others), 0);
	region_ring_parts(ring, 1, 3);
	/* A third of what is left: of 64, of 48, of 36. */
	assert_int_equal(submit_all(ring, targets[0], false, 64), 16);
	assert_int_equal(submit_all(ring, targets[1], false, 64), 12);
	assert_int_equal(submit_all(ring, targets[2], false, 64), 9);
	/* They hold as much when the device has their entries. */
	assert_int_equal(region_ring_turn(ring), 37);
	assert_int_equal(submit_all(ring, targets[0], false, 64), 0);
	/* Another target's are served, and its places come back. */
	for (uint32_t round = 0; round < 10; round++) {
		assert_int_equal(submit_all(ring, others, false, 64), 7);
		assert_int_equal(region_ring_turn(ring), 7);
		assert_int_equal(region_reap(ring, cqes, 64), 7);
	}
	/* Receives have no part, and only take places. */
	assert_int_equal(submit_all(ring, others, true, 20), 20);
	assert_int_equal(submit_all(ring, others, false, 64), 2);
	assert_int_equal(region_ring_turn(ring), 22);
	assert_int_equal(region_reap(ring, cqes, 64), 22);
	assert_int_equal(submit_all(ring, others, false, 64), 7);
	assert_int_equal(region_ring_turn(ring), 7);
	assert_int_equal(region_reap(ring, cqes, 64), 7);
	/* The other pair of rings has places and a part of its own. */
	for (uint32_t i = 0; i < 32; i++)
		assert_int_equal(submit(ring, others, i), 0);
	assert_int_equal(submit(ring, others, 32), -EAGAIN);
	region_close(region);
}

/* Unsignaled entries take no places; their failures are all delivered, however many. */
static void test_unsignaled(void **state)
{
	struct region *region = region_test_open(4 * MIB);
	struct region_ring *ring = region_ring(region, 0);
	struct recorder recorder = {.room = UINT32_MAX};
	struct region_wr wr = {.opcode = REGION_OP_SEND, .flags = REGION_F_UNSIGNALED};
	struct region_cqe cqe = {.opcode = REGION_OP_SEND, .flags = REGION_F_UNSIGNALED};
	uint32_t reaped = 0;
	uint32_t count;

	(void)state;
	assert_int_equal(region_target_add(region, &recorder_ops, &recorder, "r", &wr.target), 0);
	for (uint32_t round = 0; round < 5; round++) {
		for (uint32_t i = 0; i < ENTRIES; i++)
			assert_int_equal(region_submit_wr(ring, &wr), 0);
		assert_int_equal(region_submit_wr(ring, &wr), -EAGAIN);
		assert_int_equal(region_ring_turn(ring), ENTRIES);
	}
	region_complete(ring, &cqe);
	assert_true(region_ring_idle(ring));
	cqe.result = -ECONNRESET;
	/* Some are reaped in between, which makes room in the ring but must not let others
	 * overtake. */
	for (cqe.user_data = 0; cqe.user_data < 5 * ENTRIES; cqe.user_data++) {
		struct region_cqe first;

		region_complete(ring, &cqe);
		if (cqe.user_data == 4 * ENTRIES) {
			assert_int_equal(region_reap(ring, &first, 1), 1);
			assert_int_equal(first.user_data, reaped++);
		}
	}
	do {
		struct region_cqe cqes[7];

		count = region_reap(ring, cqes, 7);
		for (uint32_t i = 0; i < count; i++) {
			assert_int_equal(cqes[i].user_data, reaped++);
			assert_int_equal(cqes[i].result, -ECONNRESET);
		}
	} while (count > 0);
	assert_int_equal(reaped, 5 * ENTRIES);
	assert_true(region_ring_idle(ring));
	region_close(region);
}

/* Random targets, random room: no entry is lost, duplicated, or out of its target's order. */
static void ring_model(uint64_t seed)
{
	struct region *region = region_test_open(4 * MIB);
	struct region_ring *ring = region_ring(region, 0);
	struct recorder recorders[3] = {
		{.completes = true}, {.completes = true}, {.completes = true}};
	uint64_t sent[3] = {0}, done[3] = {0};
	uint16_t targets[3];
	struct prng prng;

	prng_seed(&prng, seed);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(region_target_add(region, &recorder_ops, &recorders[i], "model",
					 &targets[i]),
			0);
	for (uint32_t step = 0; step < 2000; step++) {
		uint64_t pick = prng_below(&prng, 3);
		struct region_cqe cqes[ENTRIES];
		uint32_t count;

		for (uint64_t i = prng_below(&prng, 6); i > 0; i--) {
			if (submit(ring, targets[pick], pick << 32 | sent[pick]) == 0)
				sent[pick]++;
		}
		for (uint32_t i = 0; i < 3; i++) {
			recorders[i].room = (uint32_t)prng_below(&prng, 4);
			recorders[i].seen_count = recorders[i].batch_count = 0;
		}
		region_ring_turn(ring);
		count = region_reap(ring, cqes, (uint32_t)prng_below(&prng, ENTRIES + 1));
		for (uint32_t i = 0; i < count; i++) {
			uint64_t idx = cqes[i].user_data >> 32;

			assert_int_equal(cqes[i].user_data & UINT32_MAX, done[idx]);
			done[idx]++;
		}
	}
	for (uint32_t i = 0; i < 3; i++) {
		assert_true(done[i] > 100);
		assert_true(sent[i] - done[i] <= ENTRIES);
	}
	region_close(region);
}

static void test_random_against_model(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 10; seed++)
		ring_model(seed);
}

static void bug_submit_inside_turn_bell(void *device, struct region_ring *ring)
{
	(void)device;
	submit(ring, 0, 0);
}

static void bug_submit_inside_turn(void)
{
	static const struct region_device_ops ops = {.name = "bug",
		.submit = recorder_submit,
		.submit_wr = recorder_submit_wr,
		.bell = bug_submit_inside_turn_bell};
	const struct region_opts opts = {.bytes = 4 * MIB, .core_count = 1, .ring_entries = 8};
	struct recorder recorder = {.room = 8};
	struct region *region;
	uint16_t target;

	if (region_open(&opts, &region) != 0 ||
		region_target_add(region, &ops, &recorder, "bug", &target) != 0)
		_exit(1);
	submit(region_ring(region, 0), target, 1);
	region_ring_turn(region_ring(region, 0));
}

static void test_misuse_aborts(void **state)
{
	(void)state;
	expect_abort(bug_submit_inside_turn, "!ring->turning");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nop_on_both_pairs),
		cmocka_unit_test(test_times_by_turn),
		cmocka_unit_test(test_full_until_reaped),
		cmocka_unit_test(test_busy_target_blocks_no_other),
		cmocka_unit_test(test_removed_target),
		cmocka_unit_test(test_memory_is_checked),
		cmocka_unit_test(test_unsignaled),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_random_against_model),
		cmocka_unit_test(test_misuse_aborts),
	};

	return cmocka_run_group_tests_name("rings", tests, NULL, NULL);
}
