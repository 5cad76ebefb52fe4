#include "../unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "flow/link_priv.h"

/* ---- The wire: everything in a hello and a control is checked. ---- */

static struct link_hello good_hello(void)
{
	return (struct link_hello){.magic = LINK_MAGIC,
		.version = LINK_VERSION,
		.role = LINK_RECEIVES,
		.record_bytes = LINK_RECORD_BYTES_MAX,
		.credits = 16,
		.unit = 512};
}

static void hellos_are_checked(void **state)
{
	struct link_hello hello = good_hello(), got;

	(void)state;
	assert_int_equal(link_hello_decode(&hello, sizeof(hello), &got), 0);
	assert_memory_equal(&got, &hello, sizeof(hello));
	assert_int_equal(link_hello_decode(&hello, sizeof(hello) - 1, &got), -EPROTO);
#define REFUSED(field, value)                                                              \
	do {                                                                               \
		hello = good_hello();                                                      \
		hello.field = value;                                                       \
		assert_int_equal(link_hello_decode(&hello, sizeof(hello), &got), -EPROTO); \
	} while (0)
	REFUSED(magic, 1);
	REFUSED(version, 2);
	REFUSED(role, 0);
	REFUSED(role, 3);
	REFUSED(reserved0, 1);
	REFUSED(reserved1, 1);
	REFUSED(record_bytes, 0);
	REFUSED(record_bytes, 4097);
	REFUSED(record_bytes, LINK_RECORD_BYTES_MAX + FRAME_BYTES);
	REFUSED(credits, 0);
	REFUSED(credits, LINK_CREDITS_MAX + 1);
	REFUSED(unit, 0);
	REFUSED(unit, 3);
	REFUSED(unit, 8192);
	REFUSED(bytes_total, 1);
	REFUSED(role, LINK_SENDS); /* with credits */
}

static void controls_are_checked(void **state)
{
	const struct link_control good = {
		.magic = LINK_MAGIC, .kind = LINK_END, .why = "\x01no \xff term"};
	struct link_control control = good, got;

	(void)state;
	assert_int_equal(link_control_decode(&control, sizeof(control), &got), 0);
	assert_string_equal(got.why, "?no ? term");
	memset(control.why, 'x', sizeof(control.why));
	assert_int_equal(link_control_decode(&control, sizeof(control), &got), 0);
	assert_int_equal(strlen(got.why), LINK_WHY_BYTES - 1);
	assert_int_equal(link_control_decode(&control, sizeof(control) - 1, &got), -EPROTO);
	control.kind = 0;
	assert_int_equal(link_control_decode(&control, sizeof(control), &got), -EPROTO);
	control.kind = LINK_DONE + 1;
	assert_int_equal(link_control_decode(&control, sizeof(control), &got), -EPROTO);
	control = good;
	control.status = LINK_STATUS_COUNT;
	assert_int_equal(link_control_decode(&control, sizeof(control), &got), -EPROTO);
	control = good;
	control.reserved = 1;
	assert_int_equal(link_control_decode(&control, sizeof(control), &got), -EPROTO);
	control = good;
	control.magic++;
	assert_int_equal(link_control_decode(&control, sizeof(control), &got), -EPROTO);
}

static void refusals_have_words(void **state)
{
	struct link_refusal refusal = {LINK_MAGIC, LINK_VERSION, LINK_BUSY};

	(void)state;
	assert_non_null(strstr(link_refusal_text(&refusal, sizeof(refusal)), "busy"));
	refusal.reason = LINK_SAME_ROLE;
	assert_non_null(strstr(link_refusal_text(&refusal, sizeof(refusal)), "both"));
	refusal.reason = LINK_UNFIT_UNIT;
	assert_non_null(strstr(link_refusal_text(&refusal, sizeof(refusal)), "multiples"));
	refusal.reason = LINK_MALFORMED;
	assert_non_null(strstr(link_refusal_text(&refusal, sizeof(refusal)), "hello"));
	assert_non_null(strstr(link_refusal_text(&refusal, 7), "no reason"));
	refusal.magic = 0;
	assert_non_null(strstr(link_refusal_text(&refusal, sizeof(refusal)), "no flow"));
}

/* ---- Links: both ends on one reactor, over the simulated device. ---- */

static struct region *region;
static struct reactor *reactor;
static struct flow_core core;
static struct flow_fabric *fabric;
static struct flow_listener *listener;
static struct flow_link *out, *in;
static struct flow_link_opts in_opts, out_opts;
static void (*body)(void);
static bool accepted;

static uint8_t byte_at(uint64_t offset)
{
	return (uint8_t)(offset * 131 + (offset >> 9));
}

static void accept_main(void *arg)
{
	(void)arg;
	assert_int_equal(flow_link_accept(listener, &in_opts, &in), 0);
	accepted = true;
}

static void body_main(void *arg)
{
	(void)arg;
	body();
	flow_link_listener_close(listener);
	flow_fabric_end(fabric);
	reactor_stop(reactor);
}

static void run(void (*fn)(void))
{
	const struct region_opts region_opts = {
		.bytes = 64 * MIB, .core_count = 1, .name = "linktest"};
	const struct reactor_opts reactor_opts = {.cpu = -1, .fibers_max = 16};
	struct region_usage usage;

	body = fn;
	accepted = false;
	in = out = NULL;
	in_opts = (struct flow_link_opts){0};
	out_opts = (struct flow_link_opts){.sends = true, .bytes_total = UINT64_MAX, .unit = 512};
	assert_int_equal(region_open(&region_opts, &region), 0);
	assert_int_equal(reactor_open(&reactor_opts, &reactor), 0);
	assert_int_equal(flow_core_open(reactor, region, &core), 0);
	assert_int_equal(flow_fabric_open(&core, "simulated", &fabric), 0);
	assert_int_equal(flow_link_listen(fabric, "127.0.0.1", 0, &listener), 0);
	assert_int_equal(fiber_spawn(reactor, "test", body_main, NULL), 0);
	reactor_run(reactor);
	region_usage(region, &usage);
	assert_int_equal(usage.frames_by_owner[OWNER_FREE], usage.frames_total);
	flow_fabric_close(fabric);
	flow_core_close(&core);
	reactor_close(reactor);
	region_close(region);
}

static void links_open(void)
{
	assert_int_equal(fiber_spawn(reactor, "accept", accept_main, NULL), 0);
	fiber_yield();
	assert_int_equal(
		flow_link_connect(fabric, &out_opts, "127.0.0.1", flow_link_port(listener), &out),
		0);
	while (!accepted)
		fiber_sleep_ns(NS_PER_MS);
}

static void links_close(void)
{
	flow_link_close(out);
	flow_link_close(in);
	out = in = NULL;
}

/* A piece of the pattern, in frames of its own. */
static struct flow_piece piece_at(uint64_t offset, uint32_t bytes)
{
	const struct flow_want want = {.frame_count = region_frames_for(bytes),
		.owner = OWNER_APP,
		.deadline_ns = DEADLINE_NONE};
	struct flow_piece piece = {.offset = offset, .bytes = bytes};

	assert_int_equal(flow_piece_lease(&core, &want, &piece), 0);
	for (uint32_t i = 0; i < bytes; i++)
		piece.data[i] = byte_at(offset + i);
	return piece;
}

static uint64_t sent_bytes;
static uint32_t send_piece_bytes;
static int sent_result;
static bool sent_over;

static void sender_main(void *arg)
{
	struct flow_sink *sink = flow_link_sink(out);
	uint64_t at = 0;
	int ret = 0;

	(void)arg;
	while (at < sent_bytes && !ret) {
		uint32_t bytes = (uint32_t)MIN(sent_bytes - at, (uint64_t)send_piece_bytes);
		struct flow_piece piece = piece_at(at, bytes);

		ret = flow_sink_push(sink, &piece);
		at += bytes;
	}
	sent_result = flow_sink_finish(sink, ret != 0);
	if (ret)
		sent_result = ret;
	sent_over = true;
}

static void send_all(uint64_t bytes, uint32_t piece_bytes)
{
	sent_bytes = bytes;
	send_piece_bytes = piece_bytes;
	sent_over = false;
	assert_int_equal(fiber_spawn(reactor, "sender", sender_main, NULL), 0);
}

static void sender_wait(void)
{
	while (!sent_over)
		fiber_sleep_ns(NS_PER_MS);
}

/* Receives everything; returns the last result of next. */
static int receive_all(uint64_t *ret_bytes)
{
	struct flow_source *source = flow_link_source(in);
	struct flow_piece piece;
	uint64_t at = 0;
	int ret;

	while ((ret = flow_source_next(source, FLOW_PIECE_BYTES_MAX, &piece)) == 1) {
		assert_int_equal(piece.offset, at);
		for (uint32_t i = 0; i < piece.bytes; i += 97)
			assert_int_equal(piece.data[i], byte_at(at + i));
		at += piece.bytes;
		flow_piece_end(&core, &piece, OWNER_APP);
	}
	flow_source_close(source);
	*ret_bytes = at;
	return ret;
}

static void whole_streams(void)
{
	static const struct {
		uint64_t bytes;
		uint32_t piece, record;
	} cases[] = {{0, 4096, 0}, {1, 4096, 0}, {3 * MIB + 5, 1 * MIB, 0}, {40 * MIB, 1 * MIB, 0},
		{600 * 512, 512, 16384}, {1 * MIB + 512 * 3, 1536, 8192}, {2 * MIB, 1 * MIB, 4096}};

	for (uint32_t i = 0; i < ARRAY_LEN(cases); i++) {
		uint64_t copied = region_copy_bytes_all(), bytes;
		struct flow_link_stats a, b;

		in_opts.record_bytes = cases[i].record;
		accepted = false;
		links_open();
		send_all(cases[i].bytes, cases[i].piece);
		assert_int_equal(receive_all(&bytes), 0);
		assert_int_equal(bytes, cases[i].bytes);
		flow_link_end(in, 0);
		sender_wait();
		assert_int_equal(sent_result, 0);
		flow_link_stats(out, &a);
		flow_link_stats(in, &b);
		assert_int_equal(a.bytes, b.bytes);
		assert_int_equal(a.records, b.records);
		assert_int_equal(a.crc64nvme, b.crc64nvme);
		assert_int_equal(a.acknowledged, bytes);
		assert_int_equal(region_copy_bytes_all() - copied, 0);
		links_close();
	}
}

static void test_whole_streams(void **state)
{
	(void)state;
	run(whole_streams);
}

static void short_pieces_share_records(void)
{
	struct flow_link_stats stats;
	uint64_t bytes;

	in_opts.record_bytes = 4096;
	links_open();
	send_all(4000 * 512, 512);
	assert_int_equal(receive_all(&bytes), 0);
	flow_link_end(in, 0);
	sender_wait();
	flow_link_stats(in, &stats);
	assert_in_range(stats.records, 1000, 3999);
	links_close();
}

static void test_short_pieces(void **state)
{
	(void)state;
	run(short_pieces_share_records);
}

static uint64_t acknowledged_last;
static void on_acknowledged(void *arg, uint64_t bytes)
{
	(void)arg;
	acknowledged_last = bytes;
}

static void acknowledgements_come_on_the_way(void)
{
	struct flow_source *source;
	struct flow_piece piece;

	acknowledged_last = 0;
	out_opts.acknowledged = on_acknowledged;
	links_open();
	send_all(64 * MIB, 1 * MIB);
	source = flow_link_source(in);
	assert_int_equal(flow_source_next(source, FLOW_PIECE_BYTES_MAX, &piece), 1);
	flow_piece_end(&core, &piece, OWNER_APP);
	flow_link_acknowledge(in, 512);
	while (acknowledged_last != 512)
		fiber_sleep_ns(NS_PER_MS);
	/* The receiver gives up: the sender learns of it, with the reason. */
	flow_link_end(in, -ENOSPC);
	sender_wait();
	assert_int_equal(sent_result, -EPIPE);
	assert_non_null(strstr(flow_link_why(out), "No space left"));
	links_close();
}

static void test_acknowledgements(void **state)
{
	(void)state;
	run(acknowledgements_come_on_the_way);
}

static void totals_that_differ(void)
{
	uint64_t bytes;

	links_open();
	in->crc = 1; /* as if a byte had changed on the way */
	send_all(10 * MIB, 1 * MIB);
	assert_int_equal(receive_all(&bytes), -EBADMSG);
	flow_link_end(in, -EBADMSG);
	sender_wait();
	assert_int_equal(sent_result, -EPIPE);
	assert_non_null(strstr(flow_link_why(in), "differ"));
	links_close();
}

static void test_totals_that_differ(void **state)
{
	(void)state;
	run(totals_that_differ);
}

static void a_sender_that_fails(void)
{
	struct flow_piece piece;
	uint64_t bytes;

	links_open();
	piece = piece_at(0, 4096);
	assert_int_equal(flow_sink_push(flow_link_sink(out), &piece), 0);
	send_piece_bytes = 0;
	sent_bytes = 0;
	out->end_queued = false;
	/* finish(failed) reports the failure, and waits for the answer. */
	assert_int_equal(fiber_spawn(reactor, "fail", sender_main, NULL), 0);
	out->crc ^= 1;
	assert_int_equal(receive_all(&bytes), -EBADMSG);
	assert_int_equal(bytes, 4096);
	flow_link_end(in, -EBADMSG);
	sender_wait();
	assert_true(sent_result < 0);
	links_close();
}

static void test_a_sender_that_fails(void **state)
{
	(void)state;
	run(a_sender_that_fails);
}

/* A record after one that must be the last; a control that only a receiver may send. */
static void a_peer_that_breaks_the_rules(void)
{
	struct flow_piece piece;
	uint64_t bytes;

	in_opts.unit = 512;
	links_open();
	piece = piece_at(0, 100);
	assert_int_equal(flow_sink_push(flow_link_sink(out), &piece), 0);
	while (out->completed == 0)
		fiber_sleep_ns(NS_PER_MS);
	piece = piece_at(100, 512);
	assert_int_equal(flow_sink_push(flow_link_sink(out), &piece), 0);
	assert_int_equal(receive_all(&bytes), -EPROTO);
	assert_int_equal(bytes, 100);
	assert_int_not_equal(flow_link_sink(out)->ops->finish(flow_link_sink(out), true), 0);
	links_close();
	accepted = false;
	links_open();
	assert_true(link_done_say(out, LINK_GOOD, ""));
	assert_int_equal(receive_all(&bytes), -EPROTO);
	assert_int_not_equal(flow_link_sink(out)->ops->finish(flow_link_sink(out), false), 0);
	links_close();
}

static void test_a_peer_that_breaks_the_rules(void **state)
{
	(void)state;
	run(a_peer_that_breaks_the_rules);
}

static void silence_ends_a_stream(void)
{
	out_opts.timeout_ns = 2 * NS_PER_S;
	links_open();
	in->note_out.posted = true; /* it sends no more controls */
	send_all(200 * MIB, 1 * MIB);
	sender_wait();
	assert_int_equal(sent_result, -ETIMEDOUT);
	assert_non_null(strstr(flow_link_why(out), "silent"));
	links_close();
}

static void test_silence(void **state)
{
	(void)state;
	run(silence_ends_a_stream);
}

static void a_receiver_can_be_interrupted_and_stopped(void)
{
	uint64_t bytes;

	links_open();
	flow_link_interrupt(in);
	assert_int_equal(receive_all(&bytes), -ECANCELED);
	send_all(0, 4096);
	flow_link_end(in, -ECANCELED);
	sender_wait();
	assert_int_equal(sent_result, -EPIPE);
	links_close();
	accepted = false;
	links_open();
	flow_link_stop(in);
	assert_int_equal(receive_all(&bytes), -ECANCELED);
	send_all(0, 4096);
	sender_wait();
	assert_int_equal(sent_result, -EPIPE);
	links_close();
}

static void test_interrupt(void **state)
{
	(void)state;
	run(a_receiver_can_be_interrupted_and_stopped);
}

static void meetings_that_are_refused(void)
{
	struct flow_link *link = NULL;

	/* No accept is waiting. */
	assert_int_equal(
		flow_link_connect(fabric, &out_opts, "127.0.0.1", flow_link_port(listener), &link),
		-EBUSY);
	assert_non_null(strstr(flow_fabric_why(fabric), "busy"));
	/* No listener. */
	assert_int_equal(
		flow_link_connect(fabric, &out_opts, "127.0.0.1", 1, &link), -ECONNREFUSED);
	/* The same role, and a unit that does not fit, while one waits. */
	in_opts.unit = 4096;
	assert_int_equal(fiber_spawn(reactor, "accept", accept_main, NULL), 0);
	fiber_yield();
	out_opts.sends = false;
	assert_int_equal(
		flow_link_connect(fabric, &out_opts, "127.0.0.1", flow_link_port(listener), &link),
		-ECONNREFUSED);
	assert_non_null(strstr(flow_fabric_why(fabric), "both"));
	out_opts.sends = true;
	assert_int_equal(
		flow_link_connect(fabric, &out_opts, "127.0.0.1", flow_link_port(listener), &link),
		-ECONNREFUSED);
	assert_non_null(strstr(flow_fabric_why(fabric), "multiples"));
	out_opts.unit = 4096;
	assert_int_equal(
		flow_link_connect(fabric, &out_opts, "127.0.0.1", flow_link_port(listener), &out),
		0);
	while (!accepted)
		fiber_sleep_ns(NS_PER_MS);
	links_close();
}

static void test_meetings(void **state)
{
	(void)state;
	run(meetings_that_are_refused);
}

static void no_such_device(void **state)
{
	struct flow_fabric *none = NULL;
	const struct region_opts region_opts = {
		.bytes = 16 * MIB, .core_count = 1, .name = "linktest"};
	const struct reactor_opts reactor_opts = {.cpu = -1, .fibers_max = 16};

	(void)state;
	assert_int_equal(region_open(&region_opts, &region), 0);
	assert_int_equal(reactor_open(&reactor_opts, &reactor), 0);
	assert_int_equal(flow_core_open(reactor, region, &core), 0);
	assert_int_equal(flow_fabric_open(&core, "none0", &none), -ENODEV);
	assert_null(none);
	flow_core_close(&core);
	reactor_close(reactor);
	region_close(region);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hellos_are_checked),
		cmocka_unit_test(controls_are_checked),
		cmocka_unit_test(refusals_have_words),
		cmocka_unit_test(test_whole_streams),
		cmocka_unit_test(test_short_pieces),
		cmocka_unit_test(test_acknowledgements),
		cmocka_unit_test(test_totals_that_differ),
		cmocka_unit_test(test_a_sender_that_fails),
		cmocka_unit_test(test_a_peer_that_breaks_the_rules),
		cmocka_unit_test(test_silence),
		cmocka_unit_test(test_interrupt),
		cmocka_unit_test(test_meetings),
		cmocka_unit_test(no_such_device),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
