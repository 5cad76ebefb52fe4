/* tests/unit/front/test_native_ring.c: a session whose client completes no transfer holds only a
 * part of its event loop's ring, and gives it back. */
#include "native_rig.h"

#define GREEDY_REQUESTS	 64u
#define GREEDY_RUN_BYTES 16u

#define GREEDY_BYTES (LIMIT_SGE_MAX * GREEDY_RUN_BYTES)
_Static_assert(GREEDY_REQUESTS *LIMIT_SGE_MAX >= 1024, "entries for all of the rig's ring");

static uint8_t client_memory[512 * KIB];
static int64_t body_came;

static struct capsule_run greedy_runs[LIMIT_SGE_MAX];
static const struct capsule_request GREEDY_PUT = {.opcode = CAPSULE_OP_PUT,
	.bucket = SLICE("bucket"),
	.key = SLICE("key"),
	.body_bytes = GREEDY_BYTES,
	.runs = greedy_runs,
	.run_count = LIMIT_SGE_MAX};
static const struct capsule_request GREEDY_GET = {.opcode = CAPSULE_OP_GET,
	.bucket = SLICE("bucket"),
	.key = SLICE("key"),
	.runs = greedy_runs,
	.run_count = LIMIT_SGE_MAX};
static uint64_t get_bytes;

static void handle_put(const struct s3_request *request, struct s3_reply *reply)
{
	static uint8_t body[512 * KIB];

	body_came = fake_body(request, body, sizeof(body));
	fake_answer(reply, body_came < 0 ? 500 : 200, SLICE_NONE);
}

static void handle_get_or_put(const struct s3_request *request, struct s3_reply *reply)
{
	if (request->method == S3_PUT)
		handle_put(request, reply);
	else
		fake_send_bytes(request->core, reply, get_bytes, 128 * KIB, false);
}

/* Its client completes no transfer, and its requests have an entry for each place of the ring. */
static void greedy_open(struct peer *peer, const struct capsule_request *request)
{
	fake_s3.handle = handle_get_or_put;
	peer_init(peer);
	peer->credits = GREEDY_REQUESTS;
	peer_open_as(peer);
	for (uint32_t i = 0; i < LIMIT_SGE_MAX; i++)
		greedy_runs[i] = (struct capsule_run){
			.addr = (uint64_t)(uintptr_t)client_memory + (uint64_t)i * GREEDY_RUN_BYTES,
			.bytes = GREEDY_RUN_BYTES,
			.rkey = FAKE_RKEY};
	get_bytes = GREEDY_BYTES;
	fake.hold_ring = true;
	fake.hold_only = peer->qp;
	for (uint32_t i = 0; i < GREEDY_REQUESTS; i++)
		peer_request(peer, request);
	rig_settle();
	assert_int_equal(peer->session->in_flight, GREEDY_REQUESTS);
}

static bool got_bytes(void)
{
	for (uint64_t i = 0; i < sizeof(client_memory); i++)
		if (client_memory[i] != fake_byte(i))
			return false;
	return true;
}

/* Requests wait until the session ends: only time that the device has an entry counts. */
static void greedy_times_out(struct peer *peer)
{
	struct list *requests = &peer->session->requests;
	struct native_request *stalls = CONTAINER_OF(requests->next, struct native_request, link);
	struct native_request *waits = CONTAINER_OF(requests->prev, struct native_request, link);
	uint64_t now_ns = reactor_now_ns(rig);

	/* A sweep that comes late forgives this to both, so that they may be equal. */
	RIG_UNTIL(waits->progress_ns > now_ns && stalls->progress_ns < waits->progress_ns);
	assert_int_equal(waits->progress.posted, 0);
	assert_int_equal(waits->progress_pending, 0);
	assert_int_equal(stalls->progress.posted, LIMIT_SGE_MAX);
	assert_int_equal(stalls->progress_pending, LIMIT_SGE_MAX);
	age(&peer->session->moved_ns);
	age(&peer->session->sent_ns);
	age(&stalls->progress_ns);
	peer_ended(peer);
}

/* A client that completes nothing does not stop the transfers of another one. */
static void a_greedy_client_stops_only_itself(void *arg)
{
	struct capsule_run halves[2] = {{.addr = (uint64_t)(uintptr_t)client_memory,
						.bytes = sizeof(client_memory) / 2,
						.rkey = FAKE_RKEY},
		{.addr = (uint64_t)(uintptr_t)client_memory + sizeof(client_memory) / 2,
			.bytes = sizeof(client_memory) / 2,
			.rkey = FAKE_RKEY}};
	struct capsule_request request = {.opcode = CAPSULE_OP_PUT,
		.bucket = SLICE("bucket"),
		.key = SLICE("key"),
		.body_bytes = sizeof(client_memory),
		.runs = halves,
		.run_count = 2};
	struct peer peer, other;

	(void)arg;
	greedy_open(&peer, &GREEDY_PUT);
	peer_open(&other);
	peer_request(&other, &request);
	rig_settle();
	assert_int_equal(other.session->in_flight, 0);
	assert_int_equal(peer_response(&other)->status, 200);
	assert_int_equal(body_came, sizeof(client_memory));
	request.opcode = CAPSULE_OP_GET;
	request.body_bytes = 0;
	get_bytes = sizeof(client_memory);
	peer_request(&other, &request);
	rig_settle();
	assert_int_equal(other.session->in_flight, 0);
	assert_int_equal(peer_response(&other)->status, 200);
	assert_true(got_bytes());
	peer_close(&other);
	greedy_times_out(&peer);
	assert_int_equal(body_came, -ECANCELED);
	rig_drain(0);
}
RIG_TEST(a_greedy_client_stops_only_itself);

/* Answers wait for places, too: their frames come back when the session ends. */
static void greedy_answers_end_with_their_session(void *arg)
{
	struct peer peer;

	(void)arg;
	greedy_open(&peer, &GREEDY_GET);
	greedy_times_out(&peer);
	rig_drain(0);
}
RIG_TEST(greedy_answers_end_with_their_session);

/* All requests that wait for places get them, and end. */
static void places_come_back(void *arg)
{
	struct peer peer;

	(void)arg;
	greedy_open(&peer, &GREEDY_PUT);
	fake.hold_ring = false;
	fake_ring_go(peer.qp);
	for (uint32_t i = 0; i < GREEDY_REQUESTS; i++)
		assert_int_equal(peer_response(&peer)->status, 200);
	assert_int_equal(body_came, GREEDY_BYTES);
	peer_close(&peer);
	rig_drain(0);
}
RIG_TEST(places_come_back);

/* A card that does not flush: when the queue pair is destroyed, what waits for its places ends. */
static void a_broken_card_ends_those_that_wait(void *arg)
{
	struct peer peer;

	(void)arg;
	greedy_open(&peer, &GREEDY_PUT);
	fake.never_flushes = true;
	native_session_fail(peer.session, "the test says so");
	rig_settle();
	assert_int_equal(peer.session->in_flight, GREEDY_REQUESTS);
	age(&peer.session->failed_ns);
	RIG_UNTIL(front_native_sessions(rig_front) == 0);
	assert_int_equal(body_came, -ENODEV);
	peer_ended(&peer);
	rig_drain(0);
}
RIG_TEST(a_broken_card_ends_those_that_wait);

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_UNIT(a_greedy_client_stops_only_itself, .credits = GREEDY_REQUESTS),
		RIG_UNIT(greedy_answers_end_with_their_session, .credits = GREEDY_REQUESTS),
		RIG_UNIT(places_come_back, .credits = GREEDY_REQUESTS),
		RIG_UNIT(a_broken_card_ends_those_that_wait, .credits = GREEDY_REQUESTS),
	};

	return cmocka_run_group_tests_name("native ring", tests, NULL, NULL);
}
