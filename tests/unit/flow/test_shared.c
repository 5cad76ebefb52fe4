/* Sources of one object that run at the same time: each chunk is read once from the volume, and a
 * reader that fails, leaves or stands still costs the others nothing. */
#include "rig.h"

#include "store/ends/ends.h"

#include <errno.h>

#define READERS 5u
#define CHUNKS	6u
#define BYTES	((uint64_t)(CHUNKS - 1) * STORE_CHUNK_BYTES + 300001)

struct reader {
	uint32_t pieces_max; /* then it leaves */
	uint32_t pieces;
	int ret;
	bool done;
};

static uint32_t readers_done;

static void run(body_fn *fn)
{
	rig_run(64 * MIB, true, fn);
}

static void flights_open(void)
{
	assert_int_equal(cache_open(region, 64 * MIB, &fake.flights), 0);
	fake_store_fill(&fake, content, BYTES);
	fake.reads = 0;
	readers_done = 0;
}

static void flights_close(void)
{
	assert_int_equal(flow_share_held(budget, FLOW_SHARE_OWN), 0);
	cache_close(fake.flights);
}

static struct flow_source *source_open(uint16_t share)
{
	struct flow_source *source;

	assert_int_equal(local_get_source(fake_get(&fake), &core, 0, BYTES, &source), 0);
	source->share = share;
	return source;
}

/* Takes up to pieces_max pieces. */
static void source_read(struct flow_source *source, uint64_t offset, struct reader *reader)
{
	while (reader->pieces < reader->pieces_max) {
		struct flow_piece piece;

		reader->ret = flow_source_next(source, FLOW_PIECE_BYTES_MAX, &piece);
		if (reader->ret != 1)
			break;
		assert_int_equal(piece.offset, offset);
		assert_memory_equal(piece.data, content + offset, piece.bytes);
		offset += piece.bytes;
		reader->pieces++;
		flow_piece_end(&core, &piece, OWNER_APP);
	}
}

static void reader_main(void *arg)
{
	static uint16_t share;
	struct reader *reader = (struct reader *)arg;
	struct flow_source *source = source_open(1 + share++ % 8);

	source_read(source, 0, reader);
	flow_source_close(source);
	reader->done = true;
	readers_done++;
}

static void readers_start(struct reader *readers, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		if (!readers[i].pieces_max)
			readers[i].pieces_max = UINT32_MAX;
		assert_int_equal(fiber_spawn(reactor, "reader", reader_main, &readers[i]), 0);
	}
}

static void readers_wait(uint32_t count)
{
	while (readers_done < count)
		fiber_yield();
}

static void readers_share_each_read(void)
{
	struct reader readers[READERS] = {0};

	flights_open();
	readers_start(readers, READERS);
	readers_wait(READERS);
	for (uint32_t i = 0; i < READERS; i++) {
		assert_int_equal(readers[i].ret, 0);
		assert_int_equal(readers[i].pieces, CHUNKS);
	}
	assert_int_equal(fake.reads, CHUNKS);
	flights_close();
}

/* It keeps its window, and takes nothing, while another one reads the whole object. */
static void reader_that_stands_holds_nobody(void)
{
	struct reader stands = {.pieces_max = 1}, other = {.pieces_max = UINT32_MAX};
	struct flow_source *source, *second;

	flights_open();
	source = source_open(1);
	second = source_open(2);
	source_read(source, 0, &stands);
	source_read(second, 0, &other);
	assert_int_equal(other.ret, 0);
	assert_int_equal(other.pieces, CHUNKS);
	stands.pieces_max = UINT32_MAX;
	source_read(source, STORE_CHUNK_BYTES, &stands);
	assert_int_equal(stands.ret, 0);
	assert_int_equal(stands.pieces, CHUNKS);
	assert_int_equal(fake.reads, CHUNKS);
	flow_source_close(source);
	flow_source_close(second);
	flights_close();
}

/* Its reads land for the others. */
static void reader_that_leaves_fails_nobody(void)
{
	struct reader readers[READERS] = {{.pieces_max = 1}, {.pieces_max = 2}};

	flights_open();
	readers_start(readers, READERS);
	readers_wait(READERS);
	for (uint32_t i = 2; i < READERS; i++) {
		assert_int_equal(readers[i].ret, 0);
		assert_int_equal(readers[i].pieces, CHUNKS);
	}
	assert_int_equal(fake.reads, CHUNKS);
	flights_close();
}

static void damage_fails_each_reader_once(void)
{
	struct reader readers[READERS] = {0};

	flights_open();
	fake.volume[STORE_CHUNK_BYTES + 70000] ^= 1;
	readers_start(readers, READERS);
	readers_wait(READERS);
	for (uint32_t i = 0; i < READERS; i++) {
		assert_int_equal(readers[i].ret, -EIO);
		assert_int_equal(readers[i].pieces, 1);
	}
	flights_close();
}

static void broken_medium_fails_each_reader_once(void)
{
	struct reader readers[READERS] = {0};

	flights_open();
	fake.fail_read_at = 2 * STORE_CHUNK_BYTES + 5;
	readers_start(readers, READERS);
	readers_wait(READERS);
	for (uint32_t i = 0; i < READERS; i++) {
		assert_int_equal(readers[i].ret, -EIO);
		assert_int_equal(readers[i].pieces, 2);
	}
	flights_close();
}

/* The read of the first one fails, and no other: the others read for themselves. */
static void failure_of_one_is_not_the_others(void)
{
	struct reader readers[READERS] = {0};

	flights_open();
	fake.fail_read_at = 5;
	readers_start(readers, READERS);
	while (!fake.reads)
		fiber_yield();
	fake.fail_read_at = -1;
	readers_wait(READERS);
	assert_int_equal(readers[0].ret, -EIO);
	for (uint32_t i = 1; i < READERS; i++) {
		assert_int_equal(readers[i].ret, 0);
		assert_int_equal(readers[i].pieces, CHUNKS);
	}
	flights_close();
}

static bool idle_end;

static void idle_main(void *arg)
{
	(void)arg;
	while (!idle_end)
		fiber_yield();
	readers_done++;
}

/* No fiber is left to land the first chunks: each reader reads and verifies its own. */
static void chunk_without_a_fiber(void)
{
	struct reader readers[2] = {0};
	uint32_t idle = 0;

	flights_open();
	idle_end = false;
	readers_start(readers, 2);
	while (!fiber_spawn(reactor, "idle", idle_main, NULL))
		idle++;
	assert_in_range(idle, 1, RIG_FIBERS_MAX);
	while (readers[0].pieces < 1 || readers[1].pieces < 1)
		fiber_yield();
	idle_end = true;
	readers_wait(idle + 2);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(readers[i].ret, 0);
		assert_int_equal(readers[i].pieces, CHUNKS);
	}
	assert_true(fake.reads > CHUNKS);
	flights_close();
}

static void test_one_read(void **state)
{
	(void)state;
	run(readers_share_each_read);
	run(reader_that_stands_holds_nobody);
	run(reader_that_leaves_fails_nobody);
}

static void test_failures(void **state)
{
	(void)state;
	run(damage_fails_each_reader_once);
	run(broken_medium_fails_each_reader_once);
	run(failure_of_one_is_not_the_others);
	run(chunk_without_a_fiber);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_read),
		cmocka_unit_test(test_failures),
	};

	return rig_main("shared", tests, ARRAY_LEN(tests));
}
