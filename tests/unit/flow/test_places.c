#include "rig.h"

#include <errno.h>

/* Places in the rings. ---- A device that keeps its entries until the test completes them. */

#define PLACES	    1024u /* of the rig's ring */
#define TARGETS	    60u	  /* more than can fill it */
#define ENTRIES_MAX 2048u

struct keeper {
	uint16_t target;
	struct region_ring *ring;
	uint32_t count, done;
	struct region_cqe kept[ENTRIES_MAX];
	uint64_t numbers[ENTRIES_MAX];
};

static struct keeper *keepers;

static void keep(struct keeper *keeper, const struct region_cqe *cqe, uint64_t number)
{
	CHECK(keeper->count < ENTRIES_MAX);
	keeper->numbers[keeper->count] = number;
	keeper->kept[keeper->count++] = *cqe;
}

static uint32_t keeper_submit(
	void *device, struct region_ring *ring, const struct region_sqe *entries, uint32_t count)
{
	struct keeper *keeper = device;

	keeper->ring = ring;
	for (uint32_t i = 0; i < count; i++) {
		const struct region_cqe cqe = region_sqe_done(&entries[i], 0);

		keep(keeper, &cqe, entries[i].offset);
	}
	return count;
}

static uint32_t keeper_submit_wr(
	void *device, struct region_ring *ring, const struct region_wr *entries, uint32_t count)
{
	struct keeper *keeper = device;

	keeper->ring = ring;
	for (uint32_t i = 0; i < count; i++) {
		const struct region_cqe cqe = region_wr_done(&entries[i], 0);

		keep(keeper, &cqe, entries[i].remote_addr);
	}
	return count;
}

static void keeper_bell(void *device, struct region_ring *ring)
{
	(void)device;
	(void)ring;
}

static const struct region_device_ops KEEPER_OPS = {.name = "keeper",
	.submit = keeper_submit,
	.submit_wr = keeper_submit_wr,
	.bell = keeper_bell};

static uint32_t keeper_held(const struct keeper *keeper)
{
	return keeper->count - keeper->done;
}

/* Completes the oldest entries, at most so many. */
static void keeper_go(struct keeper *keeper, uint32_t max, int32_t result)
{
	for (; keeper_held(keeper) && max; max--) {
		struct region_cqe *cqe = &keeper->kept[keeper->done++];

		cqe->result = result;
		region_complete(keeper->ring, cqe);
	}
}

static void keepers_open(void)
{
	keepers = calloc(TARGETS, sizeof(*keepers));
	assert_non_null(keepers);
	for (uint32_t i = 0; i < TARGETS; i++)
		assert_int_equal(region_target_add(region, &KEEPER_OPS, &keepers[i], "keeper",
					 &keepers[i].target),
			0);
}

static void keepers_close(void)
{
	for (uint32_t i = 0; i < TARGETS; i++)
		region_target_remove(region, keepers[i].target);
	free(keepers);
}

static uint32_t keepers_held(void)
{
	uint32_t held = 0;

	for (uint32_t i = 0; i < TARGETS; i++)
		held += keeper_held(&keepers[i]);
	return held;
}

/* Enough turns for everything that needs no completion. */
static void settle(void)
{
	for (int i = 0; i < 20; i++)
		fiber_yield();
}

/* ---- Fibers that post. ---- */

struct poster {
	struct keeper *keeper;
	uint64_t first;
	uint32_t count;
	bool base; /* to the ring of disks */
};
static uint32_t posters_running;
static int posters_error;

static void poster_main(void *arg)
{
	const struct poster *poster = arg;
	struct flow_io io = {0};
	int ret;

	for (uint32_t i = 0; i < poster->count; i++) {
		struct region_wr wr = {.opcode = REGION_OP_RDMA_WRITE,
			.target = poster->keeper->target,
			.remote_addr = poster->first + i};
		struct region_sqe sqe = {.opcode = REGION_OP_FLUSH,
			.target = poster->keeper->target,
			.offset = poster->first + i};

		if (poster->base)
			flow_io_start(&core, &io, &sqe);
		else
			flow_io_start_wr(&core, &io, &wr);
	}
	ret = flow_io_wait(&io);
	posters_error = posters_error ? posters_error : ret;
	posters_running--;
}

static void post(struct poster *poster)
{
	posters_running++;
	assert_int_equal(fiber_spawn(reactor, "poster", poster_main, poster), 0);
}

/* Completes everything until all posters have ended. */
static void posters_end(int32_t result)
{
	while (posters_running) {
		for (uint32_t i = 0; i < TARGETS; i++)
			keeper_go(&keepers[i], UINT32_MAX, result);
		fiber_yield();
	}
	assert_int_equal(core.lines, 0);
	assert_int_equal(core.in_flight, 0);
	keepers_close();
}

/* ---- Tests. ---- */

/* A peer that completes nothing holds its part; its fibers get what comes back in turn, and do not
 * delay those of another one. */
static void body_one_of_two(void)
{
	static struct poster greedy[200], other;

	keepers_open();
	for (uint32_t i = 0; i < 200; i++) {
		greedy[i] = (struct poster){.keeper = &keepers[0], .first = i, .count = 1};
		post(&greedy[i]);
	}
	settle();
	assert_int_equal(keeper_held(&keepers[0]), 114);
	assert_int_equal(core.lines, 1);
	other = (struct poster){.keeper = &keepers[1], .count = 500};
	post(&other);
	for (int i = 0; i < 20; i++) {
		settle();
		keeper_go(&keepers[1], UINT32_MAX, 0);
	}
	settle();
	assert_int_equal(keepers[1].done, 500);
	assert_int_equal(posters_running, 200);
	keeper_go(&keepers[0], 5, 0);
	settle();
	assert_int_equal(keeper_held(&keepers[0]), 114);
	posters_end(0);
	assert_int_equal(posters_error, 0);
}

static void test_one_of_two(void **state)
{
	(void)state;
	rig_run(16 * MIB, false, body_one_of_two);
}

static void body_in_turn(void)
{
	static struct poster first[120], last;

	keepers_open();
	for (uint32_t i = 0; i < 120; i++) {
		first[i] = (struct poster){.keeper = &keepers[0], .first = i, .count = 1};
		post(&first[i]);
	}
	settle();
	/* There is a place for it, but six are before it. */
	last = (struct poster){.keeper = &keepers[0], .first = 120, .count = 3};
	keeper_go(&keepers[0], 1, 0);
	post(&last);
	settle();
	while (keepers[0].done < 123) {
		keeper_go(&keepers[0], 1, 0);
		settle();
	}
	for (uint32_t i = 0; i < 123; i++)
		assert_int_equal(keepers[0].numbers[i], i);
	posters_end(0);
}

static void test_in_turn(void **state)
{
	(void)state;
	rig_run(16 * MIB, false, body_in_turn);
}

/* Many greedy peers fill the ring at last. Places that come back go to targets that hold least. */
static void body_many_fill_it(void)
{
	static struct poster greedy[TARGETS];

	keepers_open();
	for (uint32_t i = 0; i < TARGETS; i++) {
		greedy[i] = (struct poster){.keeper = &keepers[i], .count = 200};
		post(&greedy[i]);
		fiber_yield();
	}
	settle();
	assert_int_equal(keepers_held(), PLACES);
	assert_int_equal(keeper_held(&keepers[TARGETS - 1]), 0);
	assert_int_equal(core.lines, TARGETS);
	keeper_go(&keepers[0], TARGETS, 0);
	settle();
	/* The last places are for targets that hold none. */
	assert_in_range(keepers_held(), PLACES - 8, PLACES - 1);
	for (uint32_t i = 0; i < TARGETS; i++)
		assert_true(keeper_held(&keepers[i]) > 0);
	/* All end, with the error of their peers. */
	posters_error = 0;
	posters_end(-ECANCELED);
	assert_int_equal(posters_error, -ECANCELED);
	posters_error = 0;
}

static void test_many_fill_it(void **state)
{
	(void)state;
	rig_run(16 * MIB, false, body_many_fill_it);
}

/* The ring of disks: one that does not answer leaves half of it. */
static void body_disks(void)
{
	static struct poster dead, alive;

	keepers_open();
	dead = (struct poster){.keeper = &keepers[0], .count = 1000, .base = true};
	post(&dead);
	settle();
	assert_int_equal(keeper_held(&keepers[0]), PLACES / 2);
	alive = (struct poster){.keeper = &keepers[1], .count = 300, .base = true};
	post(&alive);
	for (int i = 0; i < 5; i++) {
		settle();
		keeper_go(&keepers[1], UINT32_MAX, 0);
	}
	settle();
	assert_int_equal(posters_running, 1);
	posters_end(0);
}

static void test_disks(void **state)
{
	(void)state;
	rig_run(16 * MIB, false, body_disks);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_of_two),
		cmocka_unit_test(test_in_turn),
		cmocka_unit_test(test_many_fill_it),
		cmocka_unit_test(test_disks),
	};

	return rig_main("places", tests, ARRAY_LEN(tests));
}
