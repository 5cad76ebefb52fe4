/* Numbered writes of native sessions: what is kept for a repetition, and its bounds. */
#include "native_rig.h"

#define ANSWER_BYTES (15u * KIB)
/* As in once.c. */
#define KEPT_BYTES_MAX (16 * MIB)

static uint8_t client_memory[16 * KIB];
static char answer[ANSWER_BYTES];

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_UNIT(answers_are_bounded, 0),
		RIG_UNIT(others_keep_their_answers, 0),
		RIG_UNIT(bytes_are_not_kept, 0),
	};

	return cmocka_run_group_tests_name("once", tests, NULL, NULL);
}
