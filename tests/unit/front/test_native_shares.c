#include "native_rig.h"

#define SHARE	    1u
#define SMALL_BYTES (FLOW_FRAMES_SMALL * (uint32_t)FRAME_BYTES)
#define TEXT_BYTES  (200u * KIB)

static uint8_t client_memory[MIB];

static const struct capsule_run RUN = {.bytes = sizeof(client_memory), .rkey = FAKE_RKEY};
static const struct capsule_request GET = {.opcode = CAPSULE_OP_GET,
	.bucket = SLICE("bucket"),
	.key = SLICE("key"),
	.runs = &RUN,
	.run_count = 1};

static uint32_t held(void)
{
	return flow_share_held(rig_budget, SHARE);
}

/* ---- Handlers, which find their principal's share as s3 does. ---- */

static uint64_t answer_bytes;
static bool answer_cached; /* from memory that the device does not know, as it is if it is sealed */
static uint32_t answered;
static int answer_ret;

static void share_of(struct flow_sink *sink, bool counts)
{
	sink->share = counts ? SHARE : FLOW_SHARE_OWN;
}

static int answer_push(const struct s3_request *request, struct flow_sink *sink, uint64_t offset)
{
	static uint8_t elsewhere[256 * KIB];
	struct flow_piece piece = {.offset = offset,
		.hold = FLOW_HOLD_BORROWED,
		.data = elsewhere,
		.bytes = (uint32_t)MIN(answer_bytes - offset, (uint64_t)sizeof(elsewhere))};
	const struct flow_want want = {.frame_count = region_frames_for(piece.bytes),
		.owner = OWNER_APP,
		.share = sink->share,
		.deadline_ns = DEADLINE_NONE};
	int ret = answer_cached ? 0 : flow_piece_lease(request->core, &want, &piece);

	if (ret)
		return ret;
	for (uint32_t i = 0; i < piece.bytes; i++)
		piece.data[i] = fake_byte(offset + i);
	return flow_sink_push(sink, &piece);
}

static void handle_get(const struct s3_request *request, struct s3_reply *reply)
{
	struct flow_sink *sink;
	uint64_t offset = 0;
	int finished;

	fiber_share_set(SHARE);
	answer_ret = reply->ops->head(reply, 200, NULL, 0, answer_bytes);
	if (!answer_ret)
		answer_ret = reply->ops->sink(reply, &sink);
	if (answer_ret)
		return;
	share_of(sink, reply->counts);
	for (; !answer_ret && offset < answer_bytes; offset += 256 * KIB)
		answer_ret = answer_push(request, sink, offset);
	finished = flow_sink_finish(sink, answer_ret != 0);
	reply->broken |= answer_ret || finished;
	answered++;
}

static void handle_text(const struct s3_request *request, struct s3_reply *reply)
{
	static char text[TEXT_BYTES];

	(void)request;
	memset(text, 'x', sizeof(text));
	fiber_share_set(SHARE);
	fake_answer(reply, 200, slice_of(text, answer_bytes));
	answered++;
}

static bool put_counts;

static void handle_put(const struct s3_request *request, struct s3_reply *reply)
{
	static uint8_t body[SMALL_BYTES + 1];

	fiber_share_set(SHARE);
	assert_true(fake_body(request, body, sizeof(body)) > 0);
	put_counts = request->body->counts;
	fake_answer(reply, 200, SLICE_NONE);
}

/* ---- A client that takes nothing. ---- */

static void get(struct peer *peer)
{
	struct capsule_run run = RUN;
	struct capsule_request request = GET;

	run.addr = (uint64_t)(uintptr_t)client_memory;
	request.runs = &run;
	peer_request(peer, &request);
}

static void get_many(struct peer *peer, uint32_t count)
{
	uint32_t before = answered;

	for (uint32_t i = 0; i < count; i++)
		get(peer);
	RIG_UNTIL(answered == before + count);
	rig_settle();
}

static void take_all(struct peer *peer, uint32_t count)
{
	fake.hold_sends = false;
	fake_sends_go(peer->qp, UINT32_MAX);
	for (uint32_t i = 0; i < count; i++)
		assert_int_equal(peer_response(peer)->status, 200);
	RIG_UNTIL(!peer->session->sends_signaled);
	assert_int_equal(peer->session->uncounted_frames, 0);
	assert_int_equal(held(), 0);
}

/* As soon as the client does not take what it has, its small bodies count. */
static void small_bodies_count_when_not_taken(void *arg)
{
	const uint32_t free_count = NATIVE_UNCOUNTED_FRAMES_MAX / FLOW_FRAMES_SMALL;
	struct capsule_request small = GET;
	struct peer peer;

	(void)arg;
	fake_s3.handle = handle_get;
	answer_bytes = SMALL_BYTES;
	peer_open(&peer);
	/* One that is taken leaves nothing behind. */
	get_many(&peer, 2 * free_count);
	take_all(&peer, 2 * free_count);
	fake.hold_sends = true;
	get_many(&peer, free_count);
	assert_int_equal(held(), 0);
	assert_int_equal(peer.session->uncounted_frames, NATIVE_UNCOUNTED_FRAMES_MAX);
	get_many(&peer, 3);
	assert_int_equal(held(), 3 * FLOW_FRAMES_SMALL);
	/* An answer in its capsule, too. */
	small.run_count = 0;
	answer_bytes = 3000;
	peer_request(&peer, &small);
	RIG_UNTIL(held() == 3 * FLOW_FRAMES_SMALL + 1);
	assert_int_equal(peer.session->uncounted_frames, NATIVE_UNCOUNTED_FRAMES_MAX);
	take_all(&peer, free_count + 4);
	/* The session's end gives all back. */
	answer_bytes = SMALL_BYTES;
	fake.hold_sends = true;
	get_many(&peer, free_count + 1);
	assert_int_equal(held(), FLOW_FRAMES_SMALL);
	peer_close(&peer);
	assert_int_equal(held(), 0);
	rig_drain(0);
}
RIG_TEST(small_bodies_count_when_not_taken);

/* Nor does it matter in which direction they are delayed. */
static void small_uploads_count_when_answers_are_not_taken(void *arg)
{
	struct capsule_run run = {.addr = (uint64_t)(uintptr_t)client_memory,
		.bytes = SMALL_BYTES,
		.rkey = FAKE_RKEY};
	struct capsule_request put = {.opcode = CAPSULE_OP_PUT,
		.bucket = SLICE("bucket"),
		.key = SLICE("key"),
		.body_bytes = SMALL_BYTES,
		.runs = &run,
		.run_count = 1};
	struct peer peer;

	(void)arg;
	peer_open(&peer);
	fake_s3.handle = handle_put;
	peer_expect(&peer, &put, 200, "");
	assert_false(put_counts);
	assert_int_equal(peer.session->uncounted_frames, 0);
	fake_s3.handle = handle_get;
	answer_bytes = SMALL_BYTES;
	fake.hold_sends = true;
	get_many(&peer, NATIVE_UNCOUNTED_FRAMES_MAX / FLOW_FRAMES_SMALL);
	fake_s3.handle = handle_put;
	peer_request(&peer, &put);
	RIG_UNTIL(put_counts);
	take_all(&peer, NATIVE_UNCOUNTED_FRAMES_MAX / FLOW_FRAMES_SMALL + 1);
	peer_close(&peer);
	rig_drain(0);
}
RIG_TEST(small_uploads_count_when_answers_are_not_taken);

/* A document that the server has built. */
static void documents_count(void *arg)
{
	struct peer peer;

	(void)arg;
	fake_s3.handle = handle_text;
	peer_open(&peer);
	fake.hold_sends = true;
	answer_bytes = TEXT_BYTES;
	get_many(&peer, 3);
	assert_int_equal(held(), 3 * region_frames_for(TEXT_BYTES));
	take_all(&peer, 3);
	/* A small one does not, as long as small ones are taken. */
	fake.hold_sends = true;
	answer_bytes = 5000;
	get_many(&peer, 1);
	assert_int_equal(held(), 0);
	take_all(&peer, 1);
	peer_close(&peer);
	rig_drain(0);
}
RIG_TEST(documents_count);

/* ---- Sealed bodies. ---- */

static void sealed_open(struct peer *peer)
{
	peer_init(peer);
	peer->features = CAPSULE_FEATURE_ENCRYPTION | CAPSULE_FEATURE_DEMAND;
	assert_int_equal(peer_accept(peer), 0);
	peer_challenge(peer);
	peer_prove(peer);
	assert_int_equal(((struct capsule_head *)peer_take(peer))->kind, CAPSULE_WELCOME);
}

/* Each step of a body that is sealed while it moves is a small lease, and together they are not. */
static void sealed_steps_count(void *arg)
{
	struct peer peer;

	(void)arg;
	fake_s3.handle = handle_get;
	answer_cached = true;
	sealed_open(&peer);
	fake.hold_sends = true;
	answer_bytes = 512 * KIB;
	get_many(&peer, 2);
	assert_int_equal(held(), 2 * region_frames_for(512 * KIB));
	take_all(&peer, 2);
	peer_close(&peer);
	answer_cached = false;
	rig_drain(0);
}
RIG_TEST(sealed_steps_count);

/* A share that its principal's sessions hold all of: sealed bodies wait, without frames, and come
 * when the others have been taken. Others' requests are served meanwhile. */
static void sealed_bodies_wait_for_their_share(void *arg)
{
	struct flow_want mine = {.frame_count = 256,
		.owner = OWNER_APP,
		.share = SHARE,
		.deadline_ns = DEADLINE_NONE};
	const struct flow_want other = {.frame_count = FLOW_FRAMES_SMALL,
		.owner = OWNER_APP,
		.share = SHARE + 1,
		.deadline_ns = DEADLINE_NONE};
	struct region_span spans[64], span;
	uint32_t count = 0, before;
	struct peer peer;

	(void)arg;
	fake_s3.handle = handle_get;
	answer_cached = true;
	sealed_open(&peer);
	for (; mine.frame_count >= FLOW_FRAMES_SMALL; mine.frame_count /= 2)
		while (flow_lease_now(&rig_core, &mine, &spans[count]) == 0)
			count++;
	assert_in_range(count, 4, 63);
	before = answered;
	answer_bytes = MIB;
	get(&peer);
	get(&peer);
	RIG_UNTIL(rig_core.waiters == 2);
	assert_int_equal(answered, before);
	assert_int_equal(flow_lease_now(&rig_core, &other, &span), 0);
	region_give(rig_region, span, OWNER_APP);
	flow_share_give(&rig_core, SHARE + 1, FLOW_FRAMES_SMALL);
	while (count) {
		region_give(rig_region, spans[--count], OWNER_APP);
		flow_share_give(&rig_core, SHARE, spans[count].frame_count);
	}
	RIG_UNTIL(answered == before + 2);
	assert_int_equal(answer_ret, 0);
	take_all(&peer, 2);
	peer_close(&peer);
	answer_cached = false;
	rig_drain(0);
}
RIG_TEST(sealed_bodies_wait_for_their_share);

/* Bodies that together need more than their share has: each goes on when the device has done what
 * is in its way. */
static void bodies_larger_than_their_share_move(void *arg)
{
	struct region_span *others = calloc(RIG_REGION_BYTES / FRAME_BYTES, sizeof(*others));
	uint32_t other_count = 0;
	struct peer peer;

	(void)arg;
	fake_s3.handle = handle_get;
	answer_cached = true;
	sealed_open(&peer);
	/* The region has less left than two of the bodies need. */
	while (other_count < RIG_REGION_BYTES / FRAME_BYTES) {
		struct region_usage usage;

		region_usage(rig_region, &usage);
		if (usage.frames_by_owner[OWNER_FREE] <= 448 ||
			region_lease(rig_region, 64, OWNER_APP, &others[other_count]))
			break;
		other_count++;
	}
	fiber_sleep_ns(20 * NS_PER_MS); /* the budget is measured again */
	answer_bytes = MIB;
	for (uint32_t i = 0; i < 3; i++) {
		uint32_t before = answered;

		get(&peer);
		get(&peer);
		RIG_UNTIL(answered == before + 2);
		assert_int_equal(answer_ret, 0);
		for (uint32_t k = 0; k < 2; k++)
			assert_int_equal(peer_response(&peer)->status, 200);
	}
	RIG_UNTIL(!peer.session->sends_signaled);
	assert_int_equal(held(), 0);
	while (other_count)
		region_give(rig_region, others[--other_count], OWNER_APP);
	free(others);
	peer_close(&peer);
	answer_cached = false;
	rig_drain(0);
}
RIG_TEST(bodies_larger_than_their_share_move);

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_UNIT(small_bodies_count_when_not_taken, .shares = true),
		RIG_UNIT(small_uploads_count_when_answers_are_not_taken, .shares = true),
		RIG_UNIT(documents_count, .shares = true),
		RIG_UNIT(sealed_steps_count, .shares = true),
		RIG_UNIT(sealed_bodies_wait_for_their_share, .shares = true),
		RIG_UNIT(bodies_larger_than_their_share_move, .shares = true),
	};

	return cmocka_run_group_tests_name("native shares", tests, NULL, NULL);
}
