#include "../abort.h"
#include "native_rig.h"

/* ---- Handlers that wait for the test. ---- */

#define WAITERS_MAX 16u
static struct fiber *waiters[WAITERS_MAX];
static uint32_t waiter_count;
static bool waiters_go;

static void handle_waiting(const struct s3_request *request, struct s3_reply *reply)
{
	(void)request;
	assert_true(waiter_count < WAITERS_MAX);
	waiters[waiter_count++] = fiber_self();
	while (!waiters_go)
		fiber_park();
	fake_answer(reply, 200, SLICE_NONE);
}

static void waiters_hold(void)
{
	waiter_count = 0;
	waiters_go = false;
	fake_s3.handle = handle_waiting;
}

static void waiters_release(void)
{
	waiters_go = true;
	for (uint32_t i = 0; i < waiter_count; i++)
		fiber_wake(waiters[i]);
}

static const struct capsule_request HEAD = {
	.opcode = CAPSULE_OP_HEAD, .bucket = SLICE("bucket"), .key = SLICE("key")};

/* ---- Set-up. ---- */

static void opens_answers_and_ends(void *arg)
{
	struct peer peer;

	(void)arg;
	peer_open(&peer);
	assert_int_equal(peer.challenge.credits, 8);
	assert_int_equal(peer.challenge.capsule_bytes, 8192);
	assert_int_equal(peer.challenge.inline_bytes, 4096);
	assert_int_equal(peer.challenge.features, CAPSULE_FEATURE_STREAMS);
	assert_int_equal(fake_recvs(peer.qp), 8 + CAPSULE_SPARE_RECEIVES);
	for (int i = 0; i < 100; i++)
		peer_ping(&peer);
	assert_int_equal(peer.session->in_flight, 0);
	assert_int_equal(fake_recvs(peer.qp), 8 + CAPSULE_SPARE_RECEIVES);
	rig_drain(60000);
	peer_goodbye(&peer, CAPSULE_BYE_DRAINING);
	peer_ended(&peer);
}

RIG_TEST(opens_answers_and_ends);

/* A key that has its part of the places does not get the last ones, which another key gets. */
static void the_last_places_are_for_other_keys(void *arg)
{
	_Atomic uint32_t *counts = rig_front->port->places->share_sessions;
	struct peer peers[16], late, other;
	uint16_t share;

	(void)arg;
	for (int i = 0; i < 14; i++)
		peer_open(&peers[i]);
	share = peers[0].session->share;
	assert_int_equal(counts[share], 14);
	peer_init(&late);
	assert_int_equal(peer_accept(&late), 0);
	peer_challenge(&late);
	peer_prove(&late);
	assert_int_equal(((struct capsule_head *)peer_take(&late))->kind, CAPSULE_REFUSE);
	peer_close(&late);
	rig_settle();
	/* As if the fourteen were another's. */
	counts[share] -= 14;
	peer_open(&other);
	assert_int_equal(counts[share], 1);
	counts[share] += 14;
	peer_close(&other);
	for (int i = 0; i < 14; i++)
		peer_close(&peers[i]);
	rig_drain(0);
	for (uint32_t i = 0; i < FLOW_SHARES; i++)
		assert_int_equal(counts[i], 0);
}
RIG_TEST(the_last_places_are_for_other_keys);

/* The smaller limit of both ends is used. */
static void negotiates(void *arg)
{
	struct peer peer;

	(void)arg;
	peer_init(&peer);
	peer.credits = 3;
	peer.capsule_bytes = CAPSULE_BYTES_MIN;
	peer.inline_bytes = LIMIT_CAPSULE_INLINE_BYTES_MAX;
	peer.features = 0;
	peer.transfer_bytes_max = 1000;
	assert_int_equal(peer_accept(&peer), 0);
	peer_challenge(&peer);
	assert_int_equal(peer.challenge.credits, 3);
	assert_int_equal(peer.challenge.capsule_bytes, CAPSULE_BYTES_MIN);
	assert_int_equal(peer.challenge.inline_bytes, CAPSULE_BYTES_MIN / 2);
	assert_int_equal(peer.challenge.transfer_bytes_max, 1000);
	assert_int_equal(peer.challenge.features, 0);
	peer_prove(&peer);
	assert_int_equal(((struct capsule_head *)peer_take(&peer))->kind, CAPSULE_WELCOME);
	assert_int_equal(fake_recvs(peer.qp), 3 + CAPSULE_SPARE_RECEIVES);
	peer_close(&peer);
	rig_drain(0);
}
RIG_TEST(negotiates);

static void hello_that_is_none(struct peer *peer, const struct capsule_hello_wire *hello)
{
	peer_init(peer);
	assert_int_equal(peer_accept(peer), 0);
	peer_hello(peer);
	memcpy(peer->hello, hello, sizeof(*hello));
	peer_deliver(peer, peer->hello, peer->hello_bytes);
	peer_ended(peer);
}

static void malformed_hellos_end_the_session(void *arg)
{
	struct capsule_hello_wire good, bad;
	struct peer peer;

	(void)arg;
	peer_init(&peer);
	peer_hello(&peer);
	memcpy(&good, peer.hello, sizeof(good));
	bad = good;
	bad.credits = 0;
	hello_that_is_none(&peer, &bad);
	bad = good;
	bad.capsule_bytes = CAPSULE_BYTES_MIN - 1;
	hello_that_is_none(&peer, &bad);
	bad = good;
	bad.access_key_len = 0;
	hello_that_is_none(&peer, &bad);
	bad = good;
	bad.version_min = 2;
	bad.version_max = 1;
	hello_that_is_none(&peer, &bad);
	bad = good;
	bad.head.counter = 1;
	hello_that_is_none(&peer, &bad);
	bad = good;
	bad.head.kind = CAPSULE_WELCOME;
	hello_that_is_none(&peer, &bad);
	bad = good;
	bad.head.magic++;
	hello_that_is_none(&peer, &bad);
	bad = good;
	bad.head.bytes++;
	hello_that_is_none(&peer, &bad);
	rig_drain(0);
}
RIG_TEST(malformed_hellos_end_the_session);

static void versions_that_do_not_meet(void *arg)
{
	struct capsule_hello_wire *hello;
	struct peer peer;

	(void)arg;
	peer_init(&peer);
	assert_int_equal(peer_accept(&peer), 0);
	peer_hello(&peer);
	hello = (void *)peer.hello;
	hello->version_min = 2;
	hello->version_max = 3;
	peer_deliver(&peer, peer.hello, peer.hello_bytes);
	peer_refused(&peer, 400, "UnsupportedVersion");
	peer_ended(&peer);
	rig_drain(0);
}
RIG_TEST(versions_that_do_not_meet);

static void encryption_is_required(void *arg)
{
	struct peer peer;

	(void)arg;
	peer_init(&peer);
	assert_int_equal(peer_accept(&peer), 0);
	peer_hello(&peer);
	peer_deliver(&peer, peer.hello, peer.hello_bytes);
	peer_refused(&peer, 403, "EncryptionRequired");
	peer_ended(&peer);
	peer_init(&peer);
	peer.features = CAPSULE_FEATURE_ENCRYPTION | CAPSULE_FEATURE_STREAMS;
	assert_int_equal(peer_accept(&peer), 0);
	peer_challenge(&peer);
	/* Streams and leases are not available with encryption. */
	assert_int_equal(peer.challenge.features, CAPSULE_FEATURE_ENCRYPTION);
	peer_prove(&peer);
	assert_int_equal(((struct capsule_head *)peer_take(&peer))->kind, CAPSULE_WELCOME);
	peer_ping(&peer);
	peer_close(&peer);
	rig_drain(0);
}
RIG_TEST(encryption_is_required);

/* Behind WELCOME, sealed; loopback only on the simulated device; nothing to who does not ask. */
static void told_to(struct peer *peer, uint32_t wanted, uint32_t count, uint16_t port)
{
	const struct capsule_address *addresses;
	struct capsule_head *head;
	uint32_t got;

	peer_init(peer);
	peer->features = wanted;
	assert_int_equal(peer_accept(peer), 0);
	peer_challenge(peer);
	assert_int_equal(peer->challenge.features & CAPSULE_FEATURE_PATHS,
		count ? CAPSULE_FEATURE_PATHS : 0);
	peer_prove(peer);
	assert_int_equal(((struct capsule_head *)peer_take(peer))->kind, CAPSULE_WELCOME);
	if (count) {
		head = peer_take(peer);
		assert_int_equal(head->kind, CAPSULE_PATHS);
		assert_int_equal(capsule_unseal(&peer->in, head, head->bytes), 0);
		assert_int_equal(capsule_paths_decode(head, head->bytes, &addresses, &got), 0);
		assert_int_equal(got, count);
		assert_int_equal(addresses[0].port, port);
	}
	peer_ping(peer);
	peer_close(peer);
}

static void addresses_are_told(void *arg)
{
	struct peer peer;

	(void)arg;
	told_to(&peer, CAPSULE_FEATURE_PATHS, 0, 0);
	assert_int_equal(front_native_announce(rig_front, "", 9100), -EINVAL);
	assert_int_equal(front_native_announce(rig_front, "0.0.0.0", 9100), -EINVAL);
	assert_int_equal(front_native_announce(rig_front, "fe80::1", 9100), -EINVAL);
	assert_int_equal(front_native_announce(rig_front, "server-1", 9100), -EINVAL);
	assert_int_equal(front_native_announce(rig_front, "192.0.2.1", 0), -EINVAL);
	assert_int_equal(front_native_announce(rig_front, "127.0.0.1", 9101), 0);
	rig_front->attr.simulated = false;
	told_to(&peer, CAPSULE_FEATURE_PATHS, 0, 0);
	rig_front->attr.simulated = true;
	told_to(&peer, CAPSULE_FEATURE_PATHS, 1, 9101);
	assert_int_equal(front_native_announce(rig_front, "2001:db8::1", 9102), 0);
	told_to(&peer, CAPSULE_FEATURE_PATHS, 2, 9101);
	told_to(&peer, CAPSULE_FEATURE_PATHS | CAPSULE_FEATURE_ENCRYPTION | CAPSULE_FEATURE_DEMAND,
		2, 9101);
	told_to(&peer, CAPSULE_FEATURE_STREAMS, 0, 0);
	rig_front->attr.simulated = false;
	told_to(&peer, CAPSULE_FEATURE_PATHS, 1, 9102);
	for (uint32_t i = 2; i < CAPSULE_ADDRESSES_MAX; i++)
		assert_int_equal(front_native_announce(rig_front, "192.0.2.1", 9100), 0);
	assert_int_equal(front_native_announce(rig_front, "192.0.2.1", 9100), -ENOSPC);
	told_to(&peer, CAPSULE_FEATURE_PATHS, CAPSULE_ADDRESSES_MAX - 1, 9102);
	rig_drain(0);
}
RIG_TEST(addresses_are_told);

static void proofs_that_prove_nothing(void *arg)
{
	struct peer peer;

	(void)arg;
	peer_init(&peer);
	peer.access_key = "AKNOBODY";
	assert_int_equal(peer_accept(&peer), 0);
	peer_challenge(&peer);
	peer_prove(&peer);
	peer_refused(&peer, 403, "InvalidAccessKeyId");
	peer_ended(&peer);
	peer_init(&peer);
	peer.secret_key = "another secret";
	assert_int_equal(peer_accept(&peer), 0);
	peer_challenge(&peer);
	peer_prove(&peer);
	peer_refused(&peer, 403, "SignatureDoesNotMatch");
	peer_ended(&peer);
	rig_drain(0);
}
RIG_TEST(proofs_that_prove_nothing);

static void set_up_out_of_turn(void *arg)
{
	struct peer peer;

	(void)arg;
	/* An empty proof. */
	peer_init(&peer);
	assert_int_equal(peer_accept(&peer), 0);
	peer_hello(&peer);
	memset(&peer.challenge, 0, sizeof(peer.challenge));
	peer_prove(&peer);
	peer_ended(&peer);
	/* Two HELLOs. */
	peer_init(&peer);
	assert_int_equal(peer_accept(&peer), 0);
	peer_challenge(&peer);
	peer_deliver(&peer, peer.hello, peer.hello_bytes);
	peer_ended(&peer);
	/* A request instead of a proof. */
	peer_init(&peer);
	assert_int_equal(peer_accept(&peer), 0);
	peer_challenge(&peer);
	peer_request(&peer, &RIG_PING);
	peer_ended(&peer);
	/* A proof on an open session. */
	peer_open(&peer);
	peer_prove(&peer);
	peer_ended(&peer);
	rig_drain(0);
}
RIG_TEST(set_up_out_of_turn);

/* A key's look-up keeps the session, whatever its client does meanwhile. */
static void a_proof_keeps_the_session(void *arg)
{
	struct peer peer;

	(void)arg;
	fake_s3.hold_keys = true;
	peer_init(&peer);
	assert_int_equal(peer_accept(&peer), 0);
	peer_challenge(&peer);
	peer_prove(&peer);
	RIG_UNTIL(fake_s3.waiter);
	/* Another one, out of turn. */
	peer_prove(&peer);
	RIG_UNTIL(peer.session->phase == NATIVE_FAILED);
	rig_settle();
	assert_false(fake_closed(peer.qp));
	fake_s3_key_go();
	peer_ended(&peer);
	rig_drain(0);
}
RIG_TEST(a_proof_keeps_the_session);

/* So does its last send while the send queue is full. */
static void a_parked_welcome_keeps_the_session(void *arg)
{
	struct peer peer;

	(void)arg;
	for (int wrong = 0; wrong < 2; wrong++) {
		peer_init(&peer);
		if (wrong)
			peer.secret_key = "another secret";
		assert_int_equal(peer_accept(&peer), 0);
		peer_challenge(&peer);
		fake.post_send_error = -ENOMEM;
		peer_prove(&peer);
		RIG_UNTIL(!fake.post_send_error);
		assert_int_equal(peer.session->phase, wrong ? NATIVE_DRAINING : NATIVE_OPEN);
		/* All completions come before the fiber runs again. */
		fake_break(peer.qp, RP_WC_RETRY_EXC_ERR);
		peer_ended(&peer);
	}
	/* The WELCOME arrives when there is room. */
	peer_init(&peer);
	assert_int_equal(peer_accept(&peer), 0);
	peer_challenge(&peer);
	fake.post_send_error = -ENOMEM;
	peer_prove(&peer);
	RIG_UNTIL(!fake.post_send_error);
	native_send_wake(peer.session);
	assert_int_equal(((struct capsule_head *)peer_take(&peer))->kind, CAPSULE_WELCOME);
	peer_ping(&peer);
	peer_close(&peer);
	rig_drain(0);
}
RIG_TEST(a_parked_welcome_keeps_the_session);

/* ---- Failures on our side. ---- */

static void accept_fails(int *error)
{
	struct peer peer;

	peer_init(&peer);
	*error = -EMFILE;
	assert_int_equal(peer_accept(&peer), -EMFILE);
	assert_int_equal(front_native_sessions(rig_front), 0);
	assert_int_equal(fake.qps_open, 0);
}

static void accepting_can_fail_anywhere(void *arg)
{
	struct peer peer;

	(void)arg;
	accept_fails(&fake.qp_open_error);
	accept_fails(&fake.target_error);
	accept_fails(&fake.post_recv_error);
	fake.post_recvs = 1;
	accept_fails(&fake.post_recv_error);
	accept_fails(&fake.accept_error);
	rig_frames_take();
	peer_init(&peer);
	assert_int_equal(peer_accept(&peer), -ENOBUFS);
	assert_int_equal(front_native_sessions(rig_front), 0);
	rig_frames_give();
	rig_drain(0);
}
RIG_TEST(accepting_can_fail_anywhere);

static void no_buffers_for_a_session(void *arg)
{
	struct peer peer;

	(void)arg;
	peer_init(&peer);
	assert_int_equal(peer_accept(&peer), 0);
	peer_challenge(&peer);
	rig_frames_take();
	peer_prove(&peer);
	peer_refused(&peer, 503, "SlowDown");
	peer_ended(&peer);
	rig_frames_give();
	rig_drain(0);
}
RIG_TEST(no_buffers_for_a_session);

/* On a device without inline data, a challenge needs a frame. */
static void no_frame_for_a_challenge(void *arg)
{
	struct peer peer;

	(void)arg;
	peer_init(&peer);
	assert_int_equal(peer_accept(&peer), 0);
	rig_frames_take();
	peer_hello(&peer);
	peer_deliver(&peer, peer.hello, peer.hello_bytes);
	peer_ended(&peer);
	rig_frames_give();
	peer_open(&peer);
	peer_ping(&peer);
	rig_drain(60000);
	peer_goodbye(&peer, CAPSULE_BYE_DRAINING);
	peer_ended(&peer);
}
RIG_TEST(no_frame_for_a_challenge);

static void a_device_that_refuses(void *arg)
{
	struct peer peer;

	(void)arg;
	/* The challenge. */
	peer_init(&peer);
	assert_int_equal(peer_accept(&peer), 0);
	peer_hello(&peer);
	fake.post_send_error = -EINVAL;
	peer_deliver(&peer, peer.hello, peer.hello_bytes);
	peer_ended(&peer);
	/* The same with a full queue outside a fiber. */
	peer_init(&peer);
	assert_int_equal(peer_accept(&peer), 0);
	fake.post_send_error = -ENOMEM;
	peer_hello(&peer);
	peer_deliver(&peer, peer.hello, peer.hello_bytes);
	peer_ended(&peer);
	/* The receive of a HELLO, of a PROOF, of a request. */
	peer_init(&peer);
	assert_int_equal(peer_accept(&peer), 0);
	fake.post_recv_error = -EINVAL;
	peer_hello(&peer);
	peer_deliver(&peer, peer.hello, peer.hello_bytes);
	peer_ended(&peer);
	peer_init(&peer);
	assert_int_equal(peer_accept(&peer), 0);
	peer_challenge(&peer);
	fake.post_recv_error = -EINVAL;
	peer_prove(&peer);
	peer_ended(&peer);
	peer_open(&peer);
	fake.post_recv_error = -EINVAL;
	peer_request(&peer, &RIG_PING);
	peer_ended(&peer);
	/* An answer. */
	peer_open(&peer);
	fake.post_send_error = -EINVAL;
	peer_request(&peer, &RIG_PING);
	peer_ended(&peer);
	/* A send that fails later. */
	peer_open(&peer);
	fake.hold_sends = true;
	peer_request(&peer, &RIG_PING);
	RIG_UNTIL(fake_sends(peer.qp));
	fake.hold_sends = false;
	fake_break(peer.qp, RP_WC_REM_ACCESS_ERR);
	peer_ended(&peer);
	rig_drain(0);
}
RIG_TEST(a_device_that_refuses);

/* ---- Capsules that break the protocol. ---- */

static void deliver_and_end(const void *capsule, uint32_t bytes, struct peer *peer)
{
	peer_deliver(peer, capsule, bytes);
	peer_ended(peer);
}

static void capsules_that_end_the_session(void *arg)
{
	uint8_t buf[4096] __attribute__((aligned(8)));
	struct capsule_head *head = (void *)buf;
	struct capsule_goodbye_wire goodbye;
	struct peer peer;
	uint32_t len;

	(void)arg;
	/* Another tag; another counter; the same once more. */
	peer_open(&peer);
	len = peer_make(&peer, &RIG_PING, buf, sizeof(buf));
	buf[len - 1] ^= 1;
	deliver_and_end(buf, len, &peer);
	peer_open(&peer);
	peer.out.counter++;
	len = peer_make(&peer, &RIG_PING, buf, sizeof(buf));
	deliver_and_end(buf, len, &peer);
	peer_open(&peer);
	len = peer_make(&peer, &RIG_PING, buf, sizeof(buf));
	peer_deliver(&peer, buf, len);
	peer_response(&peer);
	deliver_and_end(buf, len, &peer);
	/* An empty message, half a capsule, and a capsule longer than its length field. */
	peer_open(&peer);
	deliver_and_end("hello", 5, &peer);
	peer_open(&peer);
	len = peer_make(&peer, &RIG_PING, buf, sizeof(buf));
	deliver_and_end(buf, len - 1, &peer);
	peer_open(&peer);
	len = peer_make(&peer, &RIG_PING, buf, sizeof(buf));
	deliver_and_end(buf, len + 1, &peer);
	/* More than a receive holds. */
	peer_open(&peer);
	peer_deliver(&peer, rig_front, 8192 + 1);
	peer_ended(&peer);
	/* Too short for a request; a kind that clients do not send. */
	peer_open(&peer);
	peer_make(&peer, &RIG_PING, buf, sizeof(buf));
	head->bytes = sizeof(*head) + CAPSULE_TAG_BYTES;
	peer.out.counter--;
	capsule_seal(&peer.out, buf);
	deliver_and_end(buf, head->bytes, &peer);
	peer_open(&peer);
	len = peer_make(&peer, &RIG_PING, buf, sizeof(buf));
	head->kind = CAPSULE_RESPONSE;
	peer.out.counter--;
	capsule_seal(&peer.out, buf);
	deliver_and_end(buf, len, &peer);
	/* A GOODBYE of another size. */
	peer_open(&peer);
	capsule_goodbye_finish(&goodbye, CAPSULE_BYE_CLIENT);
	memcpy(buf, &goodbye, sizeof(goodbye));
	head->bytes = sizeof(goodbye) + 8;
	capsule_seal(&peer.out, buf);
	deliver_and_end(buf, head->bytes, &peer);
	rig_drain(0);
}
RIG_TEST(capsules_that_end_the_session);

/* ---- Credits. ---- */

/* One request too many ends the session, which stays until the requests in flight have ended. */
static void more_requests_than_credits(void *arg)
{
	struct peer peer;

	(void)arg;
	peer_open(&peer);
	waiters_hold();
	for (uint32_t i = 0; i < 8; i++)
		peer_request(&peer, &HEAD);
	RIG_UNTIL(waiter_count == 8);
	assert_int_equal(peer.session->in_flight, 8);
	assert_int_equal(peer.session->phase, NATIVE_OPEN);
	peer_request(&peer, &HEAD);
	RIG_UNTIL(peer.session->phase == NATIVE_FAILED);
	rig_settle();
	assert_int_equal(waiter_count, 8);
	assert_false(fake_closed(peer.qp));
	waiters_release();
	peer_ended(&peer);
	rig_drain(0);
}
RIG_TEST(more_requests_than_credits);

/* A credit is free again with the answer, not before: a client that reuses it at once never has too
 * many requests. */
static void credits_come_back_with_answers(void *arg)
{
	struct peer peer;

	(void)arg;
	peer_open(&peer);
	waiters_hold();
	for (uint32_t i = 0; i < 8; i++)
		peer_request(&peer, &HEAD);
	RIG_UNTIL(waiter_count == 8);
	waiters_release();
	fake_s3.handle = NULL;
	for (uint32_t i = 0; i < 100; i++) {
		peer_response(&peer);
		peer_request(&peer, &HEAD);
	}
	for (uint32_t i = 0; i < 8; i++)
		peer_response(&peer);
	assert_int_equal(peer.session->in_flight, 0);
	peer_close(&peer);
	rig_drain(0);
}
RIG_TEST(credits_come_back_with_answers);

/* ---- A session that is abandoned while a request runs. ---- */

#define PUSHED_BYTES (NATIVE_DIRECT_BYTES_MAX + 64u * KIB)
static int pushed;

static void handle_pushing(const struct s3_request *request, struct s3_reply *reply)
{
	static uint8_t data[64 * KIB];
	struct flow_piece piece = {.hold = FLOW_HOLD_BORROWED, .data = data, .bytes = sizeof(data)};
	struct flow_sink *sink;

	(void)request;
	assert_int_equal(reply->ops->head(reply, 200, NULL, 0, PUSHED_BYTES), 0);
	assert_int_equal(reply->ops->sink(reply, &sink), 0);
	waiters[waiter_count++] = fiber_self();
	while (!waiters_go)
		fiber_park();
	assert_int_equal(flow_sink_push(sink, &piece), 0);
	pushed = flow_sink_finish(sink, false);
	reply->broken = true;
}

/* The next target has this number, if that is free. */
static void targets_go_round(uint16_t number)
{
	static const struct region_device_ops NOBODY = {.name = "nobody"};
	uint16_t target;

	do {
		assert_int_equal(region_target_add(rig_region, &NOBODY, NULL, NULL, &target), 0);
		region_target_remove(rig_region, target);
	} while ((target + 1u) % LIMIT_REGION_TARGETS_MAX != number);
}

/* Its requests may have an open sink: they post nothing to the queue pair of another client, which
 * has come since. */
static void an_abandoned_session_posts_nothing(void *arg)
{
	static uint8_t memory[PUSHED_BYTES];
	const struct capsule_run run = {
		.addr = (uint64_t)(uintptr_t)memory, .bytes = sizeof(memory), .rkey = FAKE_RKEY};
	struct capsule_request get = {.opcode = CAPSULE_OP_GET,
		.bucket = SLICE("bucket"),
		.key = SLICE("key"),
		.runs = &run,
		.run_count = 1};
	struct peer peer, other;
	uint16_t target;

	(void)arg;
	peer_open(&peer);
	target = peer.session->target;
	waiters_hold();
	fake_s3.handle = handle_pushing;
	peer_request(&peer, &get);
	RIG_UNTIL(waiter_count == 1);
	native_session_fail(peer.session, "the test says so");
	native_session_abandon(peer.session);
	targets_go_round(target);
	peer_open(&other);
	fake.hold_ring = true;
	waiters_release();
	RIG_UNTIL(pushed || fake_ring_held(other.qp));
	assert_false(fake_ring_held(other.qp));
	assert_int_equal(pushed, -ENODEV);
	peer_ended(&peer);
	/* Nobody names it any more. */
	rig_settle();
	targets_go_round(target);
	peer_close(&other);
	peer_open(&other);
	assert_int_equal(other.session->target, target);
	peer_close(&other);
	rig_drain(0);
}
RIG_TEST(an_abandoned_session_posts_nothing);

/* ---- Full send queues. ---- */

/* An answer that waits for room keeps its session: if its client disconnects and everything is
 * flushed, the session still exists when the fiber wakes. */
static void a_parked_answer_keeps_the_session(void *arg)
{
	struct peer peer;

	(void)arg;
	peer_open(&peer);
	waiters_hold();
	peer_request(&peer, &HEAD);
	RIG_UNTIL(waiter_count == 1);
	fake.post_send_error = -ENOMEM;
	waiters_release();
	RIG_UNTIL(!fake.post_send_error);
	assert_int_equal(peer.session->in_flight, 1);
	/* The session fails and its work is flushed before the fiber wakes. */
	fake.never_flushes = true;
	native_session_fail(peer.session, "the test says so");
	fake.never_flushes = false;
	fake_flush(peer.qp);
	native_poll(rig_front);
	assert_false(fake_closed(peer.qp));
	peer_ended(&peer);
	rig_drain(0);
}
RIG_TEST(a_parked_answer_keeps_the_session);

/* If no completion is outstanding, the session's end wakes the waiting fibers. */
static void the_end_wakes_parked_answers(void *arg)
{
	struct peer peer;

	(void)arg;
	peer_open(&peer);
	waiters_hold();
	peer_request(&peer, &HEAD);
	RIG_UNTIL(waiter_count == 1);
	fake.post_send_error = -ENOMEM;
	waiters_release();
	RIG_UNTIL(!fake.post_send_error);
	rig_settle();
	assert_int_equal(peer.session->in_flight, 1);
	fake.never_flushes = true;
	native_session_fail(peer.session, "the test says so");
	RIG_UNTIL(peer.session->in_flight == 0);
	fake.never_flushes = false;
	fake_flush(peer.qp);
	peer_ended(&peer);
	rig_drain(0);
}
RIG_TEST(the_end_wakes_parked_answers);

/* More answers than the queue holds: all arrive, in the order of their seals. */
static void a_full_queue_empties(void *arg)
{
	struct peer peer;

	(void)arg;
	peer_open(&peer);
	fake.hold_sends = true;
	for (uint32_t i = 0; i < 8; i++)
		peer_request(&peer, &RIG_PING);
	/* The WELCOME before them still has its place: it was not signaled. */
	RIG_UNTIL(fake_sends(peer.qp) == 3);
	rig_settle();
	assert_int_equal(fake_sends(peer.qp), 3);
	assert_int_equal(peer.session->in_flight, 5);
	fake.hold_sends = false;
	fake_sends_go(peer.qp, UINT32_MAX);
	for (uint32_t i = 0; i < 8; i++)
		peer_response(&peer);
	RIG_UNTIL(peer.session->in_flight == 0);
	peer_close(&peer);
	rig_drain(0);
}
RIG_TEST(a_full_queue_empties);

/* An answer that waited for room while its session began to drain is waited for. */
static void a_parked_answer_is_the_last(void *arg)
{
	struct peer peer;

	(void)arg;
	peer_open(&peer);
	fake.post_send_error = -ENOMEM;
	peer_request(&peer, &RIG_PING);
	RIG_UNTIL(!fake.post_send_error);
	native_session_drain(peer.session, CAPSULE_BYE_DRAINING);
	fake.hold_sends = true;
	peer_goodbye(&peer, CAPSULE_BYE_DRAINING);
	RIG_UNTIL(fake_sends(peer.qp) == 1);
	rig_settle();
	assert_int_equal(peer.session->phase, NATIVE_DRAINING);
	fake.hold_sends = false;
	fake_sends_go(peer.qp, 1);
	peer_response(&peer);
	peer_ended(&peer);
	rig_drain(0);
}
RIG_TEST(a_parked_answer_is_the_last);

/* ---- Messages without a session. ---- */

static void settles_one_that_is_gone(void *arg)
{
	struct native_session gone = {.phase = NATIVE_OPEN};

	(void)arg;
	native_session_settle(&gone);
}

static void answers_twice(void *arg)
{
	static struct native_session session = {
		.magic = NATIVE_SESSION_MAGIC, .phase = NATIVE_OPEN};
	static struct native_request request = {.session = &session};
	const struct capsule_response response = {.status = 200};

	(void)arg;
	native_respond(&request, &response);
}

static void test_what_is_gone_is_found(void **state)
{
	(void)state;
	abort_expected(settles_one_that_is_gone, NULL);
	abort_expected(answers_twice, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_UNIT(opens_answers_and_ends, 0),
		RIG_UNIT(the_last_places_are_for_other_keys, .sessions_max = 16),
		RIG_UNIT(negotiates, 0),
		RIG_UNIT(malformed_hellos_end_the_session, 0),
		RIG_UNIT(versions_that_do_not_meet, 0),
		RIG_UNIT(encryption_is_required, .encryption_required = true),
		RIG_UNIT(addresses_are_told, 0),
		RIG_UNIT(proofs_that_prove_nothing, 0),
		RIG_UNIT(set_up_out_of_turn, 0),
		RIG_UNIT(a_proof_keeps_the_session, 0),
		RIG_UNIT(a_parked_welcome_keeps_the_session, 0),
		RIG_UNIT(accepting_can_fail_anywhere, 0),
		RIG_UNIT(no_buffers_for_a_session, 0),
		RIG_UNIT(no_frame_for_a_challenge, .inline_bytes = UINT32_MAX),
		RIG_UNIT(a_device_that_refuses, 0),
		RIG_UNIT(capsules_that_end_the_session, 0),
		RIG_UNIT(more_requests_than_credits, 0),
		RIG_UNIT(credits_come_back_with_answers, 0),
		RIG_UNIT(an_abandoned_session_posts_nothing, 0),
		RIG_UNIT(a_parked_answer_keeps_the_session, 0),
		RIG_UNIT(the_end_wakes_parked_answers, 0),
		RIG_UNIT(a_full_queue_empties, .send_room = 4),
		RIG_UNIT(a_parked_answer_is_the_last, 0),
		cmocka_unit_test(test_what_is_gone_is_found),
	};

	return cmocka_run_group_tests_name("native session", tests, NULL, NULL);
}
