/* Numbered writes of native sessions: what is kept for a repetition, and its bounds. */
#include "native_rig.h"

#define ANSWER_BYTES (15u * KIB)
/* As in once.c. */
#define KEPT_BYTES_MAX (16 * MIB)
#define IN_ORDER       200u
#define IN_FLIGHT      90u

static uint8_t client_memory[16 * KIB];
static char answer[ANSWER_BYTES];

static uint32_t deadline_ms;
static uint64_t kept_bytes;

static void kept_read(const struct counter *counter, void *arg)
{
	(void)arg;
	if (!strcmp(counter->name, "nebulaio_native_repeats_bytes"))
		kept_bytes = counter_read(counter);
}

static uint64_t kept(void)
{
	kept_bytes = UINT64_MAX;
	counter_visit(kept_read, NULL);
	assert_true(kept_bytes != UINT64_MAX);
	return kept_bytes;
}

/* A numbered write whose answer has a document. */
static uint16_t write_numbered(
	struct peer *peer, uint64_t client, uint64_t number, uint64_t issued, uint16_t flags)
{
	const struct capsule_once once = {
		.client = client, .number = number, .issued = issued, .done_below = 0};
	struct capsule_run run = {.addr = (uint64_t)(uintptr_t)client_memory,
		.bytes = sizeof(client_memory),
		.rkey = FAKE_RKEY};
	const struct capsule_request request = {.opcode = CAPSULE_OP_S3,
		.method = CAPSULE_METHOD_POST,
		.key = SLICE("/bucket?delete"),
		.flags = (uint16_t)(CAPSULE_REQUEST_ONCE | flags),
		.once = slice_of(&once, sizeof(once)),
		.deadline_ms = deadline_ms,
		.runs = &run,
		.run_count = 1};

	return peer_ask(peer, &request)->status;
}

static void handle_long(const struct s3_request *request, struct s3_reply *reply)
{
	(void)request;
	fake_answer(reply, 200, slice_of(answer, sizeof(answer)));
}

/* A client that never says that it has its answers, and one with as many clients as it may have. */
static void answers_are_bounded(void *arg)
{
	uint64_t before = kept();
	struct peer peer;

	(void)arg;
	memset(answer, 'a', sizeof(answer));
	fake_s3.handle = handle_long;
	peer_open(&peer);
	for (uint64_t number = 1; number <= 1500; number++)
		assert_int_equal(write_numbered(&peer, 1, number, number, 0), 200);
	assert_true(kept() - before <= KEPT_BYTES_MAX);
	assert_true(kept() - before > KEPT_BYTES_MAX / 4);
	/* The first answers are there; for the last ones there was no room. */
	fake_s3.calls = 0;
	assert_int_equal(
		write_numbered(&peer, 1, 1, 1500, CAPSULE_REQUEST_REPEAT | CAPSULE_REQUEST_SURE),
		200);
	assert_int_equal(
		write_numbered(&peer, 1, 1500, 1500, CAPSULE_REQUEST_REPEAT | CAPSULE_REQUEST_SURE),
		500);
	assert_true(slice_eq(peer.response.code, SLICE("OutcomeUnknown")));
	assert_int_equal(fake_s3.calls, 0);
	/* Other records of the key make room. */
	for (uint64_t client = 2; client < 600; client++)
		for (uint64_t number = 1; number <= 4; number++)
			assert_int_equal(write_numbered(&peer, client, number, number, 0), 200);
	assert_true(kept() - before <= KEPT_BYTES_MAX);
	peer_close(&peer);
	rig_drain(0);
}
RIG_TEST(answers_are_bounded);

/* The answers of one key do not push out those of another. */
static void others_keep_their_answers(void *arg)
{
	struct peer other, peer;

	(void)arg;
	fake_s3.handle = handle_long;
	peer_open(&other);
	other.session->share = 1;
	strcpy(other.session->identity.access_key, "AKOTHER");
	assert_int_equal(write_numbered(&other, 7, 1, 1, 0), 200);
	peer_open(&peer);
	peer.session->share = 2;
	for (uint64_t client = 1000; client < 1400; client++)
		for (uint64_t number = 1; number <= 4; number++)
			assert_int_equal(write_numbered(&peer, client, number, number, 0), 200);
	fake_s3.calls = 0;
	assert_int_equal(
		write_numbered(&other, 7, 1, 1, CAPSULE_REQUEST_REPEAT | CAPSULE_REQUEST_SURE),
		200);
	assert_int_equal(fake_s3.calls, 0);
	/* There is room for a new write of it, too. */
	assert_int_equal(write_numbered(&other, 8, 1, 1, 0), 200);
	assert_int_equal(
		write_numbered(&other, 8, 1, 1, CAPSULE_REQUEST_REPEAT | CAPSULE_REQUEST_SURE),
		200);
	assert_int_equal(fake_s3.calls, 1);
	peer_close(&peer);
	peer_close(&other);
	rig_drain(0);
}
RIG_TEST(others_keep_their_answers);

static struct flow_core *stream_core;

static void handle_stream(const struct s3_request *request, struct s3_reply *reply)
{
	(void)request;
	assert_int_equal(fake_send_bytes(stream_core, reply, 4096, 1024, false), 0);
}

/* An answer of bytes that are not a document cannot be given again: its repetition does not get an
 * empty one. */
static void bytes_are_not_kept(void *arg)
{
	struct peer peer;

	(void)arg;
	stream_core = &rig_core;
	fake_s3.handle = handle_stream;
	peer_open(&peer);
	assert_int_equal(write_numbered(&peer, 1, 1, 1, 0), 200);
	assert_int_equal(
		write_numbered(&peer, 1, 1, 1, CAPSULE_REQUEST_REPEAT | CAPSULE_REQUEST_SURE), 500);
	assert_true(slice_eq(peer.response.code, SLICE("OutcomeUnknown")));
	peer_close(&peer);
	rig_drain(0);
}
RIG_TEST(bytes_are_not_kept);

/* A repetition whose document finds no frames is not answered without it. */
static void no_frames_for_a_document(void *arg)
{
	struct peer peer;

	(void)arg;
	memset(answer, 'a', sizeof(answer));
	fake_s3.handle = handle_long;
	peer_open(&peer);
	assert_int_equal(write_numbered(&peer, 1, 1, 1, 0), 200);
	deadline_ms = 500;
	rig_frames_take();
	assert_true(write_numbered(&peer, 1, 1, 1, CAPSULE_REQUEST_REPEAT | CAPSULE_REQUEST_SURE) >=
		    500);
	rig_frames_give();
	deadline_ms = 0;
	assert_int_equal(fake_s3.calls, 1);
	peer_close(&peer);
	rig_drain(0);
}
RIG_TEST(no_frames_for_a_document);

/* Each write that runs has its own ETag. */
static void handle_etag(const struct s3_request *request, struct s3_reply *reply)
{
	char etag[16];
	struct s3_header header = {.name = SLICE("ETag")};

	(void)request;
	snprintf(etag, sizeof(etag), "\"run-%u\"", fake_s3.calls);
	header.value = slice_str(etag);
	assert_int_equal(reply->ops->head(reply, 200, &header, 1, 0), 0);
}

static uint16_t write_known(struct peer *peer, uint64_t number, uint64_t done_below, uint16_t flags)
{
	const struct capsule_once once = {.client = 7,
		.number = number,
		.issued = MAX(number, IN_ORDER),
		.done_below = done_below};
	const struct capsule_request put = {.opcode = CAPSULE_OP_PUT,
		.bucket = SLICE("b"),
		.key = SLICE("k"),
		.flags = (uint16_t)(CAPSULE_REQUEST_ONCE | flags),
		.once = slice_of(&once, sizeof(once))};

	return peer_ask(peer, &put)->status;
}

static void expect_run(struct peer *peer, uint64_t number, uint64_t done_below)
{
	uint32_t calls = fake_s3.calls;

	assert_int_equal(write_known(peer, number, done_below, 0), 200);
	assert_int_equal(fake_s3.calls, calls + 1);
}

/* The answer of the run with this count. */
static void expect_answer(struct peer *peer, uint64_t number, uint64_t done_below, uint64_t run)
{
	uint32_t calls = fake_s3.calls;
	char etag[16];

	snprintf(etag, sizeof(etag), "run-%llu", (unsigned long long)run);
	assert_int_equal(write_known(peer, number, done_below,
				 CAPSULE_REQUEST_REPEAT | CAPSULE_REQUEST_SURE),
		200);
	assert_true(slice_eq(peer->response.etag, slice_str(etag)));
	assert_int_equal(fake_s3.calls, calls);
}

/* Numbers of several paths come in any order; each is done once, and forgotten when it is known. */
static void numbers_in_any_order(void *arg)
{
	static const uint64_t numbers[] = {5, 3, 9, 4, 1, 7};
	struct peer peer;

	(void)arg;
	fake_s3.handle = handle_etag;
	peer_open(&peer);
	for (uint32_t i = 0; i < ARRAY_LEN(numbers); i++)
		expect_run(&peer, numbers[i], 1);
	for (uint32_t i = 0; i < ARRAY_LEN(numbers); i++)
		assert_int_equal(write_known(&peer, numbers[i], 1, 0), 400);
	for (uint32_t i = 0; i < ARRAY_LEN(numbers); i++)
		expect_answer(&peer, numbers[i], 1, i + 1);
	expect_run(&peer, 2, 1);
	expect_answer(&peer, 5, 5, 1);
	assert_int_equal(write_known(&peer, 4, 4, CAPSULE_REQUEST_REPEAT), 400);
	expect_answer(&peer, 9, 5, 3);
	expect_answer(&peer, 7, 7, 6);
	expect_run(&peer, 8, 7);
	assert_int_equal(fake_s3.calls, ARRAY_LEN(numbers) + 2);
	peer_close(&peer);
	rig_drain(0);
}
RIG_TEST(numbers_in_any_order);

/* More writes in flight than entries that wait for the next ones. All memory is given back. */
static void many_in_flight(void *arg)
{
	uint64_t before = kept();
	struct peer peer;

	(void)arg;
	fake_s3.handle = handle_etag;
	peer_open(&peer);
	for (uint64_t i = 1; i <= IN_ORDER; i++)
		expect_run(&peer, i, i > IN_FLIGHT ? i - IN_FLIGHT : 1);
	for (uint64_t i = IN_ORDER - IN_FLIGHT; i <= IN_ORDER; i++)
		expect_answer(&peer, i, i, i);
	expect_run(&peer, IN_ORDER + 1, IN_ORDER + 1);
	/* The record keeps only some entries for its next writes. */
	assert_true(kept() - before <= 40 * 256);
	peer_close(&peer);
	rig_drain(0);
}
RIG_TEST(many_in_flight);

/* As on a server with several reactors, where records have a lock. */
static void with_locks(void *arg)
{
	native_once_join(rig_front->port->places->once, (const void *)&answer);
	numbers_in_any_order(arg);
}
RIG_TEST(with_locks);

/* The fronts of the tests before gave all of it back. */
static void test_nothing_is_left(void **state)
{
	(void)state;
	assert_int_equal(kept(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_UNIT(answers_are_bounded, 0),
		RIG_UNIT(others_keep_their_answers, 0),
		RIG_UNIT(bytes_are_not_kept, 0),
		RIG_UNIT(no_frames_for_a_document, 0),
		RIG_UNIT(numbers_in_any_order, 0),
		RIG_UNIT(many_in_flight, 0),
		RIG_UNIT(with_locks, 0),
		cmocka_unit_test(test_nothing_is_left),
	};

	return cmocka_run_group_tests_name("once", tests, NULL, NULL);
}
