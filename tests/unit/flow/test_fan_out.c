/* Groups of reads in step: their start, the waits of the fast ones, and those that are served
 * alone. */
#include "rig.h"

#include "flow/fan_out.h"
#include "store/ends/ends.h"

#include <errno.h>
#include <stdio.h>

#define CHUNK	 STORE_CHUNK_BYTES
#define CHUNKS	 12u
#define BYTES	 ((uint64_t)CHUNKS * CHUNK)
#define WINDOW	 (3 * CHUNK)
#define PATIENCE (200 * NS_PER_MS)
/* Where a group must outlive a silence: it ends after 30 patiences. */
#define KEPT_NS	 NS_PER_S
#define LONG_NS	 (3600 * NS_PER_S) /* too long for this test */
#define READERS	 4u
#define BLOCK	 4096u
#define CRAWL_NS (5 * NS_PER_MS)

static struct flow_fans *fans;
static uint32_t readers_done;
static uint64_t spread_max; /* between the readers, in bytes */

struct reader {
	struct flow_fan_ask ask;
	uint64_t bytes_max;   /* then it stands until released; 0: never */
	bool leaves;	      /* instead of standing */
	bool crawls;	      /* a block at a time, until released */
	uint64_t from, bytes; /* of the object */
	bool began;
	bool done;
	bool *released;
	uint64_t read;
	enum flow_fan_role role;
	uint32_t members;
	int ret;
};

static struct reader readers[READERS];

static void fans_begin(uint64_t patience_ns)
{
	const struct flow_fans_opts opts = {.window_bytes = WINDOW, .patience_ns = patience_ns};

	assert_int_equal(flow_fans_open(&opts, &fans), 0);
	fake_store_fill(&fake, content, BYTES);
	memset(readers, 0, sizeof(readers));
	readers_done = 0;
	spread_max = 0;
}

static void fans_end(void)
{
	flow_fans_close(fans);
}

static void spread_look(void)
{
	uint64_t low = UINT64_MAX, high = 0;

	for (uint32_t i = 0; i < READERS; i++) {
		if (!readers[i].began || readers[i].done)
			continue;
		low = MIN(low, readers[i].read);
		high = MAX(high, readers[i].read);
	}
	if (high > low)
		spread_max = MAX(spread_max, high - low);
}

/* The turns of the first one that crawls: a measure of time that stands while this thread does. */
static uint32_t turns;

static void read_pieces(struct reader *reader, struct flow_source *source)
{
	struct flow_piece piece;

	for (;;) {
		bool crawls = reader->crawls && !*reader->released;

		if (crawls) {
			fiber_sleep_ns((uint64_t)(reader - readers + 1) * CRAWL_NS);
			turns += reader == readers;
		}
		if (reader->bytes_max && reader->read >= reader->bytes_max && reader->released)
			while (!*reader->released)
				fiber_sleep_ns(NS_PER_MS);
		if (reader->leaves && reader->read >= reader->bytes_max)
			return;
		reader->ret = flow_source_next(source, crawls ? BLOCK : CHUNK, &piece);
		if (reader->ret != 1)
			return;
		assert_memory_equal(piece.data, content + reader->from + reader->read, piece.bytes);
		reader->read += piece.bytes;
		flow_piece_end(&core, &piece, OWNER_APP);
		spread_look();
		fiber_yield();
	}
}

static void reader_main(void *arg)
{
	struct reader *reader = (struct reader *)arg;
	struct flow_fan_read read;
	struct flow_source *source;

	reader->role = flow_fan_begin(fans, &reader->ask, &read);
	reader->members = read.members;
	reader->began = true;
	assert_int_equal(
		local_get_source(fake_get(&fake), &core, reader->from, reader->bytes, &source), 0);
	if (reader->role == FLOW_FAN_MEMBER)
		source = flow_fan_source(&read, source);
	read_pieces(reader, source);
	flow_source_close(source);
	if (reader->role == FLOW_FAN_MEMBER)
		flow_fan_end(&read, reader->read == reader->bytes);
	reader->done = true;
	readers_done++;
}

static void ask_fill(struct reader *reader, uint32_t count)
{
	reader->ask = (struct flow_fan_ask){.object = SLICE("bucket/weights 1"),
		.name = SLICE("job-7"),
		.object_bytes = BYTES,
		.count = count,
		.wait_ns = LONG_NS};
	reader->bytes = BYTES;
}

static void reader_start(struct reader *reader)
{
	assert_int_equal(fiber_spawn(reactor, "reader", reader_main, reader), 0);
}

static void readers_start(uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		if (!readers[i].ask.count)
			ask_fill(&readers[i], count);
		reader_start(&readers[i]);
	}
}

static void readers_wait(uint32_t count)
{
	while (readers_done < count)
		fiber_sleep_ns(NS_PER_MS);
}

static void reader_is_whole(const struct reader *reader, enum flow_fan_role role)
{
	assert_int_equal(reader->role, role);
	assert_int_equal(reader->ret, 0);
	assert_int_equal(reader->read, reader->bytes);
}

/* Nobody begins before the last is there, and then none is further ahead than the window. */
static void members_begin_together(void)
{
	fans_begin(LONG_NS);
	for (uint32_t i = 0; i < READERS; i++)
		ask_fill(&readers[i], READERS);
	for (uint32_t i = 0; i + 1 < READERS; i++)
		reader_start(&readers[i]);
	for (uint32_t i = 0; i < 50; i++) {
		fiber_sleep_ns(NS_PER_MS);
		assert_false(readers[0].began);
	}
	reader_start(&readers[READERS - 1]);
	readers_wait(READERS);
	for (uint32_t i = 0; i < READERS; i++) {
		reader_is_whole(&readers[i], FLOW_FAN_MEMBER);
		assert_int_equal(readers[i].members, READERS);
	}
	fans_end();
}

/* The first does not wait for ever for those who do not come. */
static void missing_members_are_not_waited_for(void)
{
	fans_begin(LONG_NS);
	ask_fill(&readers[0], READERS);
	readers[0].ask.wait_ns = 50 * NS_PER_MS;
	reader_start(&readers[0]);
	readers_wait(1);
	reader_is_whole(&readers[0], FLOW_FAN_MEMBER);
	assert_int_equal(readers[0].members, 1);
	fans_end();
}

/* Nor does one that would wait for long make another one do so. */
static void nobody_waits_longer_than_it_asked(void)
{
	fans_begin(LONG_NS);
	ask_fill(&readers[0], READERS);
	ask_fill(&readers[1], READERS);
	readers[1].ask.wait_ns = 50 * NS_PER_MS;
	reader_start(&readers[0]);
	fiber_sleep_ns(NS_PER_MS);
	assert_false(readers[0].began);
	reader_start(&readers[1]);
	readers_wait(2);
	for (uint32_t i = 0; i < 2; i++) {
		reader_is_whole(&readers[i], FLOW_FAN_MEMBER);
		assert_int_equal(readers[i].members, 2);
	}
	fans_end();
}

/* The others wait for one that takes its pieces slowly: they stay within its window. */
static void fast_ones_wait(void)
{
	bool released = false;

	fans_begin(LONG_NS);
	readers[0].bytes_max = CHUNK;
	readers[0].released = &released;
	readers_start(2);
	while (!readers[1].began || readers[1].read < WINDOW)
		fiber_sleep_ns(NS_PER_MS);
	assert_in_range(readers[1].read, WINDOW, CHUNK + WINDOW);
	released = true;
	readers_wait(2);
	reader_is_whole(&readers[0], FLOW_FAN_MEMBER);
	reader_is_whole(&readers[1], FLOW_FAN_MEMBER);
	assert_in_range(spread_max, 1, WINDOW + CHUNK);
	fans_end();
}

/* One that stands still falls out, and is served on alone, to its end. */
static void one_that_stands_falls_out(void)
{
	bool released = false;

	fans_begin(PATIENCE);
	readers[0].bytes_max = CHUNK;
	readers[0].released = &released;
	readers_start(READERS);
	readers_wait(READERS - 1);
	assert_false(readers[0].done);
	released = true;
	readers_wait(READERS);
	for (uint32_t i = 0; i < READERS; i++)
		reader_is_whole(&readers[i], FLOW_FAN_MEMBER);
	fans_end();
}

/* Two that stand cost the others the wait once. */
static void two_that_stand_fall_out_together(void)
{
	bool released = false;
	uint64_t start_ns = clock_now_ns();

	fans_begin(PATIENCE);
	readers[0].bytes_max = CHUNK;
	readers[0].released = &released;
	readers[1].bytes_max = 2 * CHUNK;
	readers[1].released = &released;
	readers_start(READERS);
	readers_wait(2);
	assert_true(clock_now_ns() - start_ns >= PATIENCE);
	assert_false(readers[0].done || readers[1].done);
	released = true;
	readers_wait(READERS);
	for (uint32_t i = 0; i < READERS; i++)
		reader_is_whole(&readers[i], FLOW_FAN_MEMBER);
	fans_end();
}

/* Members that crawl, each at a place of its own, cost the others their patience once, too. */
static void those_that_crawl_fall_out_together(void)
{
	bool released = false;

	fans_begin(PATIENCE);
	turns = 0;
	for (uint32_t i = 0; i < READERS; i++) {
		ask_fill(&readers[i], READERS);
		readers[i].crawls = i + 1 < READERS;
		readers[i].released = &released;
		reader_start(&readers[i]);
	}
	readers_wait(1);
	assert_true(readers[READERS - 1].done);
	assert_in_range(turns, 1, 2 * PATIENCE / CRAWL_NS);
	released = true;
	readers_wait(READERS);
	for (uint32_t i = 0; i < READERS; i++)
		reader_is_whole(&readers[i], FLOW_FAN_MEMBER);
	fans_end();
}

/* One that leaves holds nobody. */
static void one_that_leaves_holds_nobody(void)
{
	fans_begin(LONG_NS);
	readers[0].bytes_max = CHUNK;
	readers[0].leaves = true;
	readers_start(READERS);
	readers_wait(READERS);
	for (uint32_t i = 1; i < READERS; i++)
		reader_is_whole(&readers[i], FLOW_FAN_MEMBER);
	fans_end();
}

static bool gone(const void *arg)
{
	(void)arg;
	return true;
}

/* One whose client is gone before the start makes room for another. */
static void one_that_is_gone_does_not_count(void)
{
	fans_begin(LONG_NS);
	for (uint32_t i = 0; i < 3; i++)
		ask_fill(&readers[i], 2);
	readers[0].ask.left = gone;
	reader_start(&readers[0]);
	readers_wait(1);
	assert_int_equal(readers[0].role, FLOW_FAN_APART);
	reader_start(&readers[1]);
	for (uint32_t i = 0; i < 50; i++)
		fiber_sleep_ns(NS_PER_MS);
	assert_false(readers[1].began);
	reader_start(&readers[2]);
	readers_wait(3);
	assert_int_equal(readers[1].members, 2);
	fans_end();
}

/* Of a group that is far ahead, a newcomer is no member. */
static void late_one_is_alone(void)
{
	bool released = false;

	fans_begin(LONG_NS);
	for (uint32_t i = 0; i < 2; i++) {
		ask_fill(&readers[i], 1);
		readers[i].bytes_max = WINDOW + 2 * CHUNK;
		readers[i].released = &released;
	}
	reader_start(&readers[0]);
	while (readers[0].read < WINDOW + 2 * CHUNK)
		fiber_sleep_ns(NS_PER_MS);
	readers[1].bytes_max = 0;
	reader_start(&readers[1]);
	readers_wait(1);
	reader_is_whole(&readers[1], FLOW_FAN_LATE);
	released = true;
	readers_wait(2);
	reader_is_whole(&readers[0], FLOW_FAN_MEMBER);
	fans_end();
}

/* Another version of the object, or another name, is another group. */
static void other_bytes_are_another_group(void)
{
	fans_begin(LONG_NS);
	for (uint32_t i = 0; i < 3; i++) {
		ask_fill(&readers[i], 2);
		readers[i].ask.wait_ns = 50 * NS_PER_MS;
	}
	readers[1].ask.object = SLICE("bucket/weights 2");
	readers[2].ask.name = SLICE("job-8");
	readers_start(3);
	readers_wait(3);
	for (uint32_t i = 0; i < 3; i++) {
		reader_is_whole(&readers[i], FLOW_FAN_MEMBER);
		assert_int_equal(readers[i].members, 1);
	}
	fans_end();
}

static enum flow_fan_role range_read(uint64_t from, uint64_t bytes, uint64_t member)
{
	struct reader *reader = &readers[0];

	memset(reader, 0, sizeof(*reader));
	ask_fill(reader, 1);
	reader->ask.member = member;
	reader->ask.offset = from;
	reader->from = from;
	reader->bytes = bytes;
	reader_main(reader);
	assert_int_equal(reader->read, bytes);
	return reader->role;
}

/* A member that reads piecewise is one member; a range that nobody expects is served at once. */
static void ranges_of_one_member(void)
{
	fans_begin(LONG_NS);
	assert_int_equal(range_read(CHUNK, CHUNK, 5), FLOW_FAN_APART);
	assert_int_equal(range_read(0, 2 * CHUNK, 5), FLOW_FAN_MEMBER);
	assert_int_equal(range_read(2 * CHUNK, 2 * CHUNK, 5), FLOW_FAN_MEMBER);
	assert_int_equal(readers[0].members, 1);
	assert_int_equal(range_read(10 * CHUNK, CHUNK, 5), FLOW_FAN_APART);
	assert_int_equal(range_read(0, CHUNK, 5), FLOW_FAN_MEMBER);
	assert_int_equal(range_read(4 * CHUNK, CHUNK, 6), FLOW_FAN_APART);
	assert_int_equal(range_read(4 * CHUNK, BYTES - 4 * CHUNK, 5), FLOW_FAN_MEMBER);
	/* It has everything, so the group is over, and the name is free. */
	assert_int_equal(range_read(4 * CHUNK, CHUNK, 5), FLOW_FAN_APART);
	assert_int_equal(range_read(0, BYTES, 0), FLOW_FAN_MEMBER);
	assert_int_equal(range_read(0, BYTES, 0), FLOW_FAN_MEMBER);
	fans_end();
}

/* A job that died and is started again under its name begins a new group, once the old one has been
 * silent for a while. */
static void job_begins_again(void)
{
	fans_begin(PATIENCE);
	assert_int_equal(range_read(0, 8 * CHUNK, 5), FLOW_FAN_MEMBER);
	fiber_sleep_ns(PATIENCE);
	assert_int_equal(range_read(0, CHUNK, 6), FLOW_FAN_MEMBER);
	assert_int_equal(readers[0].members, 1);
	assert_int_equal(range_read(8 * CHUNK, CHUNK, 5), FLOW_FAN_APART);
	fans_end();
}

/* A piecewise member that comes back after it fell out is told so. */
static void slow_member_is_told(void)
{
	bool released = false;

	fans_begin(KEPT_NS);
	ask_fill(&readers[1], 2);
	ask_fill(&readers[2], 2);
	ask_fill(&readers[3], 2);
	readers[1].ask.member = 7;
	readers[1].bytes = CHUNK;
	readers[2].bytes_max = BYTES - CHUNK;
	readers[2].released = &released;
	reader_start(&readers[1]);
	reader_start(&readers[2]);
	readers_wait(1);
	while (readers[2].read < BYTES - CHUNK)
		fiber_sleep_ns(NS_PER_MS);
	readers[3].ask.member = 7;
	readers[3].ask.offset = readers[3].from = CHUNK;
	readers[3].bytes = BYTES - CHUNK;
	released = true;
	readers_wait(2);
	reader_is_whole(&readers[2], FLOW_FAN_MEMBER);
	reader_start(&readers[3]);
	readers_wait(3);
	reader_is_whole(&readers[3], FLOW_FAN_SLOW);
	fans_end();
}

/* A small object is read whole before anything could be dropped. */
static void small_object(void)
{
	fans_begin(LONG_NS);
	ask_fill(&readers[0], 9);
	readers[0].ask.object_bytes = WINDOW;
	reader_start(&readers[0]);
	readers_wait(1);
	assert_int_equal(readers[0].role, FLOW_FAN_SMALL);
	fans_end();
}

static struct flow_fan_read held[FLOW_FAN_GROUPS_MAX];

static enum flow_fan_role group_take(uint32_t i, uint16_t share)
{
	char name[16];
	struct flow_fan_ask ask;
	int len = snprintf(name, sizeof(name), "group-%u", i);

	ask_fill(&readers[0], 1);
	ask = readers[0].ask;
	ask.name = slice_of(name, (size_t)len);
	ask.share = share;
	return flow_fan_begin(fans, &ask, &held[i % FLOW_FAN_GROUPS_MAX]);
}

/* One principal has at most half of the groups, and all are bounded. */
static void groups_are_bounded(void)
{
	struct flow_fan_read none;

	fans_begin(LONG_NS);
	for (uint32_t i = 0; i < FLOW_FAN_GROUPS_MAX / 2; i++)
		assert_int_equal(group_take(i, 1), FLOW_FAN_MEMBER);
	none = held[0];
	assert_int_equal(group_take(FLOW_FAN_GROUPS_MAX, 1), FLOW_FAN_FULL);
	held[0] = none;
	for (uint32_t i = FLOW_FAN_GROUPS_MAX / 2; i < FLOW_FAN_GROUPS_MAX; i++)
		assert_int_equal(group_take(i, 2), FLOW_FAN_MEMBER);
	assert_int_equal(group_take(FLOW_FAN_GROUPS_MAX, 3), FLOW_FAN_FULL);
	held[0] = none;
	for (uint32_t i = 0; i < FLOW_FAN_GROUPS_MAX; i++)
		flow_fan_end(&held[i], true);
	assert_int_equal(group_take(1, 1), FLOW_FAN_MEMBER);
	flow_fan_end(&held[1], true);
	fans_end();
}

/* Requests that wait for a start: of one principal at most half, and of the last eighth no more
 * than are left. */
struct waiting {
	struct flow_fan_ask ask;
	enum flow_fan_role role;
	bool begun, done;
};
static struct waiting waiting[FLOW_FAN_WAITS_MAX + 8];
static uint32_t waiting_count;

static void waiting_main(void *arg)
{
	struct waiting *one = (struct waiting *)arg;
	struct flow_fan_read read;

	one->begun = true;
	one->role = flow_fan_begin(fans, &one->ask, &read);
	if (one->role == FLOW_FAN_MEMBER)
		flow_fan_end(&read, true);
	one->done = true;
}

/* How many of the principal wait before one more is refused. */
static uint32_t waits_of(uint16_t share, struct slice name)
{
	for (uint32_t count = 0;; count++) {
		struct waiting *one = &waiting[waiting_count++];

		assert_true(waiting_count <= ARRAY_LEN(waiting));
		ask_fill(&readers[0], FLOW_FAN_MEMBERS_MAX);
		*one = (struct waiting){.ask = readers[0].ask};
		one->ask.share = share;
		one->ask.name = name;
		if (count >= FLOW_FAN_MEMBERS_MAX / 2)
			one->ask.object = SLICE("bucket/weights 2");
		assert_int_equal(fiber_spawn(reactor, "waiting", waiting_main, one), 0);
		while (!one->begun)
			fiber_yield();
		if (!one->done)
			continue;
		assert_int_equal(one->role, FLOW_FAN_FULL);
		return count;
	}
}

static void waits_are_bounded(void)
{
	uint32_t count = 0, some;

	fans_begin(LONG_NS);
	waiting_count = 0;
	count += waits_of(1, SLICE("one"));
	assert_int_equal(count, FLOW_FAN_WAITS_MAX / 2);
	some = waits_of(2, SLICE("two"));
	count += some;
	assert_int_equal(some, FLOW_FAN_WAITS_MAX / 8 * 3);
	some = waits_of(3, SLICE("three"));
	count += some;
	assert_int_equal(some, FLOW_FAN_WAITS_MAX / 16);
	some = waits_of(4, SLICE("four"));
	assert_int_equal(some, FLOW_FAN_WAITS_MAX / 32);
	assert_true(count + some < FLOW_FAN_WAITS_MAX);
	flow_fans_stop(fans);
	for (uint32_t i = 0; i < waiting_count; i++)
		while (!waiting[i].done)
			fiber_sleep_ns(NS_PER_MS);
	fans_end();
}

/* At the server's end nobody waits any more. */
static void stop_ends_all_waits(void)
{
	fans_begin(LONG_NS);
	ask_fill(&readers[0], READERS);
	reader_start(&readers[0]);
	fiber_sleep_ns(NS_PER_MS);
	assert_false(readers[0].began);
	flow_fans_stop(fans);
	readers_wait(1);
	reader_is_whole(&readers[0], FLOW_FAN_MEMBER);
	fans_end();
}

static void run(body_fn *fn)
{
	rig_run(64 * MIB, true, fn);
}

static void test_start(void **state)
{
	(void)state;
	run(members_begin_together);
	run(missing_members_are_not_waited_for);
	run(nobody_waits_longer_than_it_asked);
	run(one_that_is_gone_does_not_count);
	run(other_bytes_are_another_group);
	run(stop_ends_all_waits);
}

static void test_pace(void **state)
{
	(void)state;
	run(fast_ones_wait);
	run(one_that_stands_falls_out);
	run(two_that_stand_fall_out_together);
	run(those_that_crawl_fall_out_together);
	run(one_that_leaves_holds_nobody);
}

static void test_alone(void **state)
{
	(void)state;
	run(late_one_is_alone);
	run(ranges_of_one_member);
	run(slow_member_is_told);
	run(job_begins_again);
	run(small_object);
	run(groups_are_bounded);
	run(waits_are_bounded);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_start),
		cmocka_unit_test(test_pace),
		cmocka_unit_test(test_alone),
	};

	return rig_main("fan_out", tests, ARRAY_LEN(tests));
}
