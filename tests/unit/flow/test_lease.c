#include <errno.h>
#include <stdlib.h>

#include "store/ends/ends.h"
#include "flow/reader.h"
#include "rig.h"

/* ---- The clock: it jumps when the process is stopped. ---- */

static _Atomic time_t stopped_s;

int __real_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
	int err = __real_clock_gettime(id, ret);

	ret->tv_sec += stopped_s;
	return err;
}

/* ---- The rig: a region of few frames, with a budget. ---- */

#define REGION_BYTES (16 * MIB)
#define CHUNK_FRAMES (STORE_CHUNK_BYTES / FRAME_BYTES)
#define SPANS_MAX    64u

static struct region_span spans[SPANS_MAX]; /* frames that a test takes away */
static uint32_t span_count;

static void run(body_fn *fn)
{
	rig_run(REGION_BYTES, true, fn);
}

static void take_all(uint32_t frame_count)
{
	while (span_count < SPANS_MAX &&
		region_lease(region, frame_count, OWNER_APP, &spans[span_count]) == 0)
		span_count++;
	assert_in_range(span_count, 1, SPANS_MAX - 1);
}

static void give_one(void)
{
	region_give(region, spans[--span_count], OWNER_APP);
}

static void give_all(void)
{
	while (span_count)
		give_one();
}

static struct flow_want want(uint32_t frame_count, uint16_t share)
{
	return (struct flow_want){.frame_count = frame_count,
		.owner = OWNER_APP,
		.share = share,
		.begun = true,
		.deadline_ns = DEADLINE_NONE};
}

/* ---- Waiting. ---- */

struct waiter {
	struct flow_want want;
	struct region_span span;
	int ret;
	bool started, done;
};

static void waiter_main(void *arg)
{
	struct waiter *waiter = arg;

	waiter->started = true;
	waiter->ret = flow_lease(&core, &waiter->want, &waiter->span);
	waiter->done = true;
}

static void waiter_start(struct waiter *waiter, struct flow_want terms)
{
	*waiter = (struct waiter){.want = terms};
	assert_int_equal(fiber_spawn(reactor, "waiter", waiter_main, waiter), 0);
	while (!waiter->started)
		fiber_yield();
}

static void waiter_end(struct waiter *waiter)
{
	while (!waiter->done)
		fiber_yield();
	assert_int_equal(waiter->ret, 0);
	region_give(region, waiter->span, OWNER_APP);
	flow_share_give(&core, waiter->want.share, waiter->want.frame_count);
}

static void small_passes_large(void)
{
	const struct flow_want small = want(1, FLOW_SHARE_OWN);
	struct region_span span;
	struct waiter large;

	take_all(CHUNK_FRAMES);
	take_all(1);
	waiter_start(&large, want(CHUNK_FRAMES, FLOW_SHARE_OWN));
	assert_int_equal(core.waiters, 1);
	/* The last span taken is one frame. */
	give_one();
	assert_int_equal(flow_lease(&core, &small, &span), 0);
	assert_false(large.done);
	region_give(region, span, OWNER_APP);
	give_all();
	waiter_end(&large);
}

/* A share at its limit waits for its own frames; another share gets frames at once. */
static void shares_wait_for_themselves(void)
{
	struct flow_want mine = want(CHUNK_FRAMES, 1), others = want(CHUNK_FRAMES, 2);
	struct region_span mine_spans[SPANS_MAX], span;
	struct waiter waiter;
	uint32_t count = 0;

	while (flow_lease_now(&core, &mine, &mine_spans[count]) == 0)
		count++;
	assert_in_range(count, 4, REGION_BYTES / STORE_CHUNK_BYTES - 2);
	assert_int_equal(flow_share_held(budget, 1), count * CHUNK_FRAMES);
	waiter_start(&waiter, mine);
	assert_int_equal(core.waiters, 1);
	assert_int_equal(flow_lease(&core, &others, &span), 0);
	assert_false(waiter.done);
	region_give(region, span, OWNER_APP);
	flow_share_give(&core, 2, CHUNK_FRAMES);
	while (count--) {
		region_give(region, mine_spans[count], OWNER_APP);
		flow_share_give(&core, 1, CHUNK_FRAMES);
	}
	waiter_end(&waiter);
	assert_int_equal(flow_share_held(budget, FLOW_SHARE_OWN), 0);
}

/* The reserve for small leases is not used for large ones, whatever the number of shares. */
static void reserve_is_for_small_ones(void)
{
	struct region_span large[SPANS_MAX], span;
	struct flow_want small = want(FLOW_FRAMES_SMALL, 63);
	uint16_t count = 0;

	for (;;) {
		struct flow_want next = want(CHUNK_FRAMES, (uint16_t)(count + 1));

		if (flow_lease_now(&core, &next, &large[count]))
			break;
		count++;
	}
	assert_in_range(count, 8, REGION_BYTES / STORE_CHUNK_BYTES - 2);
	assert_int_equal(flow_lease_now(&core, &small, &span), 0);
	region_give(region, span, OWNER_APP);
	flow_share_give(&core, 63, FLOW_FRAMES_SMALL);
	while (count) {
		region_give(region, large[--count], OWNER_APP);
		flow_share_give(&core, (uint16_t)(count + 1), CHUNK_FRAMES);
	}
}

/* Small pieces of a transfer whose share is known count like others, in whichever frames. */
static void small_pieces_count(void)
{
	struct flow_elsewhere elsewhere = {.core = &core, .share = 1};
	struct flow_piece piece, changed;
	struct flow_source *source;

	fake_store_fill(&fake, content, STORE_CHECK_BYTES);
	assert_int_equal(
		local_get_source(fake_get(&fake), &core, 0, STORE_CHECK_BYTES, &source), 0);
	source->share = 1;
	assert_int_equal(flow_source_next(source, STORE_CHUNK_BYTES, &piece), 1);
	assert_int_equal(piece.span.frame_count, FLOW_FRAMES_SMALL);
	assert_int_equal(flow_share_held(budget, 1), FLOW_FRAMES_SMALL);
	assert_int_equal(flow_elsewhere(&elsewhere, STORE_CHECK_BYTES, &changed), 0);
	assert_int_equal(changed.hold, FLOW_HOLD_LEASE);
	assert_int_equal(flow_share_held(budget, 1), 2 * FLOW_FRAMES_SMALL);
	flow_piece_end(&core, &changed, OWNER_APP);
	flow_piece_end(&core, &piece, OWNER_APP);
	assert_int_equal(flow_share_held(budget, 1), 0);
	flow_source_close(source);
	flow_elsewhere_close(&elsewhere);
}

struct reading {
	struct flow_source *source;
	struct flow_piece piece;
	int ret;
	bool done;
};

static void reading_main(void *arg)
{
	struct reading *reading = arg;

	reading->ret = flow_source_next(reading->source, STORE_CHUNK_BYTES, &reading->piece);
	reading->done = true;
}

/* One transfer of the share has memory outside the region already. */
static void asides_are_bounded(void)
{
	struct flow_elsewhere others[FLOW_SHARE_ASIDES] = {{.core = NULL}};
	struct flow_piece changed;

	for (uint32_t turns = 0; turns < 2; turns++) {
		for (uint32_t i = 1; i < FLOW_SHARE_ASIDES; i++) {
			others[i] = (struct flow_elsewhere){.core = &core, .share = 1};
			assert_int_equal(
				flow_elsewhere(&others[i], STORE_CHECK_BYTES, &changed), 0);
		}
		others[0] = (struct flow_elsewhere){.core = &core, .share = 1};
		assert_int_equal(flow_elsewhere(&others[0], STORE_CHECK_BYTES, &changed), -ENOBUFS);
		for (uint32_t i = 0; i < FLOW_SHARE_ASIDES; i++)
			flow_elsewhere_close(&others[i]);
	}
}

/* At its share's limit a small piece waits, while other shares have frames, and a change goes
 * outside the region. */
static void small_pieces_wait_for_their_share(void)
{
	struct flow_want mine = want(CHUNK_FRAMES, 1), others = want(FLOW_FRAMES_SMALL, 2);
	struct flow_elsewhere elsewhere = {.core = &core, .share = 1};
	struct region_span mine_spans[SPANS_MAX], span;
	struct reading reading = {.done = false};
	struct flow_piece changed;
	uint32_t count = 0;

	fake_store_fill(&fake, content, STORE_CHECK_BYTES);
	assert_int_equal(
		local_get_source(fake_get(&fake), &core, 0, STORE_CHECK_BYTES, &reading.source), 0);
	reading.source->share = 1;
	/* One that has not begun is refused where this thread stands for a while. */
	CONTAINER_OF(reading.source, struct flow_reader, source)->begun = true;
	for (; mine.frame_count >= FLOW_FRAMES_SMALL; mine.frame_count /= 2)
		while (count < SPANS_MAX && flow_lease_now(&core, &mine, &mine_spans[count]) == 0)
			count++;
	assert_in_range(count, 4, SPANS_MAX - 1);
	assert_int_equal(flow_elsewhere(&elsewhere, STORE_CHECK_BYTES, &changed), 0);
	assert_int_equal(changed.hold, FLOW_HOLD_BORROWED);
	flow_piece_end(&core, &changed, OWNER_APP);
	asides_are_bounded();
	assert_int_equal(fiber_spawn(reactor, "reading", reading_main, &reading), 0);
	while (!core.waiters && !reading.done)
		fiber_yield();
	assert_false(reading.done);
	assert_int_equal(flow_lease_now(&core, &others, &span), 0);
	region_give(region, span, OWNER_APP);
	flow_share_give(&core, 2, FLOW_FRAMES_SMALL);
	while (count) {
		region_give(region, mine_spans[--count], OWNER_APP);
		flow_share_give(&core, 1, mine_spans[count].frame_count);
	}
	while (!reading.done)
		fiber_yield();
	assert_int_equal(reading.ret, 1);
	assert_memory_equal(reading.piece.data, content, STORE_CHECK_BYTES);
	flow_piece_end(&core, &reading.piece, OWNER_APP);
	flow_source_close(reading.source);
	flow_elsewhere_close(&elsewhere);
	assert_int_equal(flow_share_held(budget, FLOW_SHARE_OWN), 0);
}

/* A transfer that has not begun is refused when its queue does not move; after that, new ones are
 * refused at once. */
static void queue_that_stands_refuses(void)
{
	struct flow_want fresh = want(CHUNK_FRAMES, 1), begun = want(CHUNK_FRAMES, 1);
	struct region_span span;
	struct waiter patient;

	fresh.begun = false;
	take_all(CHUNK_FRAMES);
	waiter_start(&patient, begun);
	assert_int_equal(flow_lease(&core, &fresh, &span), -ENOBUFS);
	assert_int_equal(core.waiters, 1);
	assert_int_equal(flow_lease(&core, &fresh, &span), -ENOBUFS);
	assert_false(patient.done);
	give_all();
	waiter_end(&patient);
}

/* A process that was stopped gave no frames back meanwhile: no waiter is refused for that time. */
static void stops_do_not_count(void)
{
	struct flow_want fresh = want(CHUNK_FRAMES, 1), begun = want(CHUNK_FRAMES, 1);
	struct waiter waiters[2];

	fresh.begun = false;
	take_all(CHUNK_FRAMES);
	waiter_start(&waiters[0], begun);
	waiter_start(&waiters[1], fresh);
	for (uint32_t i = 0; i < 3; i++) {
		stopped_s += 40;
		fiber_sleep_ns(10 * NS_PER_MS);
		assert_false(waiters[0].done || waiters[1].done);
	}
	give_all();
	waiter_end(&waiters[0]);
	waiter_end(&waiters[1]);
}

static void walks_are_bounded_by_share(void)
{
	for (uint32_t i = 0; i < FLOW_SHARE_WALKS; i++)
		assert_true(flow_walk_begin(budget, 1));
	assert_false(flow_walk_begin(budget, 1));
	assert_true(flow_walk_begin(budget, 2));
	flow_walk_end(budget, 2);
	flow_walk_end(budget, 1);
	assert_true(flow_walk_begin(budget, 1));
	for (uint32_t i = 0; i < FLOW_SHARE_WALKS; i++)
		flow_walk_end(budget, 1);
	for (uint32_t i = 0; i <= FLOW_SHARE_WALKS; i++)
		assert_true(flow_walk_begin(budget, FLOW_SHARE_OWN));
}

/* ---- Transfers whose fibers wait. ---- */

static struct flow_piece piece_of(uint64_t offset, uint32_t bytes, const uint8_t *data)
{
	struct flow_want terms = want(region_frames_for(bytes), 1);
	struct flow_piece piece = {.offset = offset, .bytes = bytes};

	assert_int_equal(flow_piece_lease(&core, &terms, &piece), 0);
	memcpy(piece.data, data, bytes);
	return piece;
}

static struct flow_sink *sink_open(uint64_t bytes)
{
	struct flow_sink *sink;

	assert_int_equal(local_put_sink(fake_put(&fake), &core, bytes, &sink), 0);
	sink->share = 1;
	return sink;
}

/* The frames of completed writes are given back while the sink's fiber waits for others. */
static void writes_give_their_frames_back(void)
{
	struct flow_sink *sink = sink_open(2 * STORE_CHUNK_BYTES);
	struct flow_want next = want(CHUNK_FRAMES, FLOW_SHARE_OWN);
	struct region_span span;
	struct flow_piece piece = piece_of(0, STORE_CHUNK_BYTES, content);

	take_all(CHUNK_FRAMES);
	assert_int_equal(flow_sink_push(sink, &piece), 0);
	/* Only the write can give frames back. */
	assert_int_equal(flow_lease(&core, &next, &span), 0);
	assert_int_equal(flow_share_held(budget, 1), 0);
	region_give(region, span, OWNER_APP);
	give_all();
	piece = piece_of(STORE_CHUNK_BYTES, STORE_CHUNK_BYTES, content + STORE_CHUNK_BYTES);
	assert_int_equal(flow_sink_push(sink, &piece), 0);
	assert_int_equal(flow_sink_finish(sink, false), 0);
	assert_memory_equal(fake.volume, content, 2 * STORE_CHUNK_BYTES);
}

/* Pieces read ahead are called in, and read again in their turn. */
static void read_ahead_is_called_in(void)
{
	const uint64_t bytes = 6 * STORE_CHUNK_BYTES;
	struct flow_want next = want(CHUNK_FRAMES, FLOW_SHARE_OWN);
	struct region_span span[2];
	struct flow_source *source;
	struct flow_piece piece;
	uint64_t offset = 0;

	fake_store_fill(&fake, content, bytes);
	assert_int_equal(local_get_source(fake_get(&fake), &core, 0, bytes, &source), 0);
	source->share = 1;
	while (offset < bytes) {
		assert_int_equal(flow_source_next(source, STORE_CHUNK_BYTES, &piece), 1);
		assert_int_equal(piece.offset, offset);
		assert_memory_equal(piece.data, content + offset, piece.bytes);
		offset += piece.bytes;
		flow_piece_end(&core, &piece, OWNER_APP);
		if (offset != STORE_CHUNK_BYTES)
			continue;
		take_all(CHUNK_FRAMES);
		assert_int_equal(flow_lease(&core, &next, &span[0]), 0);
		assert_int_equal(flow_lease(&core, &next, &span[1]), 0);
		region_give(region, span[0], OWNER_APP);
		region_give(region, span[1], OWNER_APP);
		give_all();
	}
	flow_source_close(source);
	assert_int_equal(flow_share_held(budget, 1), 0);
}

/* Odd pieces are gathered although no frames are free for it, and the body is complete. */
static void staging_goes_aside(void)
{
	const uint32_t odd = 300001, count = 12;
	struct flow_sink *sink = sink_open((uint64_t)odd * count);
	struct flow_want next = want(CHUNK_FRAMES, FLOW_SHARE_OWN);
	struct region_span span;

	for (uint32_t i = 0; i < count; i++) {
		struct flow_piece piece =
			piece_of((uint64_t)i * odd, odd, content + (uint64_t)i * odd);

		if (i == 1 || i == 5)
			take_all(CHUNK_FRAMES);
		assert_int_equal(flow_sink_push(sink, &piece), 0);
		if (i != 1 && i != 5)
			continue;
		/* Only the staging can be called in. */
		assert_int_equal(flow_lease(&core, &next, &span), 0);
		region_give(region, span, OWNER_APP);
		if (i == 5)
			give_all();
		else
			give_one(); /* enough for one piece at a time */
		if (i == 1)
			give_one();
	}
	give_all();
	assert_int_equal(flow_sink_finish(sink, false), 0);
	assert_memory_equal(fake.volume, content, (size_t)odd * count);
	assert_int_equal(flow_share_held(budget, 1), 0);
}

static void test_waiting(void **state)
{
	(void)state;
	run(small_passes_large);
	run(queue_that_stands_refuses);
	run(stops_do_not_count);
}

static void test_shares(void **state)
{
	(void)state;
	run(shares_wait_for_themselves);
	run(reserve_is_for_small_ones);
	run(small_pieces_count);
	run(small_pieces_wait_for_their_share);
	run(walks_are_bounded_by_share);
}

static void test_sinks(void **state)
{
	(void)state;
	run(writes_give_their_frames_back);
	run(staging_goes_aside);
}

static void test_sources(void **state)
{
	(void)state;
	run(read_ahead_is_called_in);
}

/* ---- Peers. ---- */

static void peer_is(const char *peer, const char *same, const char *other)
{
	char rooms[3][FLOW_PEER_BYTES];
	struct slice name = flow_peer_name(slice_str(peer), rooms[0]);

	assert_true(slice_eq(name, flow_peer_name(slice_str(same), rooms[1])));
	assert_false(slice_eq(name, flow_peer_name(slice_str(other), rooms[2])));
}

/* A host may have all addresses of an IPv6 network. */
static void test_peers(void **state)
{
	char room[FLOW_PEER_BYTES];

	(void)state;
	peer_is("192.0.2.1:40001", "192.0.2.1:40002", "192.0.2.10:40001");
	peer_is("[2001:db8::1]:1", "[2001:db8::a:b:c:d]:2", "[2001:db8:0:1::1]:1");
	peer_is("[2001:db8::a:b:c:d:e]:1", "[2001:db8:0:a::]:1", "[2001:db8::]:1");
	assert_true(slice_eq(flow_peer_name(SLICE("local"), room), SLICE("local")));
	assert_true(slice_eq(flow_peer_name(SLICE("[x]:1"), room), SLICE("[x]")));
	assert_int_equal(flow_peer_name(SLICE_NONE, room).len, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_waiting),
		cmocka_unit_test(test_shares),
		cmocka_unit_test(test_sinks),
		cmocka_unit_test(test_sources),
		cmocka_unit_test(test_peers),
	};

	return rig_main("lease", tests, ARRAY_LEN(tests));
}
