#include "native_rig.h"

static const struct capsule_request HEAD = {
	.opcode = CAPSULE_OP_HEAD, .bucket = SLICE("bucket"), .key = SLICE("key")};

static struct fiber *waiter;
static bool waiter_goes;

static void handle_waiting(const struct s3_request *request, struct s3_reply *reply)
{
	(void)request;
	waiter = fiber_self();
	while (!waiter_goes)
		fiber_park();
	fake_answer(reply, 200, SLICE_NONE);
}

static void waiter_hold(void)
{
	waiter = NULL;
	waiter_goes = false;
	fake_s3.handle = handle_waiting;
}

static void waiter_release(void)
{
	waiter_goes = true;
	fiber_wake(waiter);
}

/* ---- Opening. ---- */

static void opening_fails(int *error)
{
	struct front_native *front = NULL;

	*error = -EIO;
	assert_int_equal(front_native_open(&rig_front_opts, &front), -EIO);
	assert_null(front);
}

static void opening_can_fail_anywhere(void *arg)
{
	struct front_native_opts bad = rig_front_opts;
	struct front_native *front;

	(void)arg;
	opening_fails(&fake.pd_open_error);
	opening_fails(&fake.mr_open_error);
	opening_fails(&fake.cq_open_error);
	bad.credits = 0;
	assert_int_equal(front_native_open(&bad, &front), -EINVAL);
	bad.credits = LIMIT_SESSION_REQUESTS_MAX + 1;
	assert_int_equal(front_native_open(&bad, &front), -EINVAL);
	bad = rig_front_opts;
	bad.sessions_max = 0;
	assert_int_equal(front_native_open(&bad, &front), -EINVAL);
	bad.sessions_max = LIMIT_RDMA_SESSIONS_MAX + 1;
	assert_int_equal(front_native_open(&bad, &front), -EINVAL);
	bad = rig_front_opts;
	bad.inline_bytes_max = LIMIT_CAPSULE_INLINE_BYTES_MAX + 1;
	assert_int_equal(front_native_open(&bad, &front), -EINVAL);
	bad = rig_front_opts;
	bad.max_recv_wr = bad.credits + CAPSULE_SPARE_RECEIVES - 1;
	assert_int_equal(front_native_open(&bad, &front), -EINVAL);
	bad = rig_front_opts;
	bad.front_count = LIMIT_CORES_MAX + 1;
	assert_int_equal(front_native_open(&bad, &front), -EINVAL);
	rig_drain(0);
}
RIG_TEST(opening_can_fail_anywhere);

/* Receives are held as long as a session lives, so they get at most half of the region. */
static void receives_leave_the_bodies_their_part(void *arg)
{
	uint32_t each = CAPSULE_SPARE_RECEIVES * region_frames_for(rig_front->capsule_bytes);
	struct front_native_opts large = rig_front_opts;
	struct front_native *front;
	struct peer first, second, third;

	(void)arg;
	assert_int_equal(
		rig_front->port->places->recv_frames_max, RIG_REGION_BYTES / FRAME_BYTES / 2);
	/* No session would fit: the open fails. */
	large.credits = LIMIT_SESSION_REQUESTS_MAX;
	large.inline_bytes_max = LIMIT_CAPSULE_INLINE_BYTES_MAX;
	rig_front->port->places->recv_frames_max = (LIMIT_SESSION_REQUESTS_MAX + 2) * 4 - 1;
	large.first = rig_front;
	assert_int_equal(front_native_open(&large, &front), -EINVAL);
	/* Room for the set-up of one session, not of two. */
	rig_front->port->places->recv_frames_max = 2 * each - 1;
	peer_init(&first);
	assert_int_equal(peer_accept(&first), 0);
	peer_init(&second);
	assert_int_equal(peer_accept(&second), -ENOBUFS);
	assert_int_equal(rig_front->port->places->recv_frames, each);
	/* Room for the set-up of two, but for the receives of none. */
	rig_front->port->places->recv_frames_max = 2 * each;
	assert_int_equal(peer_accept(&second), 0);
	peer_challenge(&first);
	peer_prove(&first);
	peer_refused(&first, 503, "SlowDown");
	peer_close(&first);
	/* Room is free again. */
	RIG_UNTIL(rig_front->port->places->recv_frames == each);
	rig_front->port->places->recv_frames_max = 1024;
	peer_open(&third);
	peer_close(&third);
	peer_close(&second);
	rig_drain(0);
	assert_int_equal(rig_front->port->places->recv_frames, 0);
}
RIG_TEST(receives_leave_the_bodies_their_part);

/* The size of the completion queue limits the number of sessions, so that it never overflows. */
static void a_small_completion_queue(void *arg)
{
	struct front_native *front;
	uint32_t each = rig_front_opts.credits + CAPSULE_SPARE_RECEIVES + 32;

	(void)arg;
	fake.attr.max_cqe = 3 * each - 1;
	assert_int_equal(front_native_open(&rig_front_opts, &front), 0);
	assert_int_equal(front->sessions_max, 2);
	front_native_drain(front, 0);
	front_native_close(front);
	rig_drain(0);
}
RIG_TEST(a_small_completion_queue);

/* ---- Connections. ---- */

static const struct capsule_private PRIVATE = {
	.magic = CAPSULE_MAGIC, .version_max = CAPSULE_VERSION};

/* Four are being set up: in pages, by their ids. */
static void tells_its_sessions(void)
{
	struct front_session told[5];

	assert_int_equal(front_native_tell(rig_front, 0, told, 5), 4);
	for (int i = 0; i < 4; i++) {
		assert_string_equal(told[i].phase, "setup");
		assert_string_equal(told[i].identity.access_key, "");
		assert_true(!i || told[i].id > told[i - 1].id);
	}
	assert_int_equal(front_native_tell(rig_front, 0, told, 3), 3);
	assert_true(told[0].id < told[1].id && told[1].id < told[2].id);
	assert_int_equal(front_native_tell(rig_front, told[2].id, told, 3), 1);
	assert_int_equal(front_native_tell(rig_front, told[0].id, told, 3), 0);
}

static void connections_come_in(void *arg)
{
	struct capsule_private stranger = PRIVATE, further = PRIVATE;
	struct rp_conn_request requests[5], more[3];
	struct peer peer;

	(void)arg;
	fake.listen_error = -EADDRINUSE;
	assert_int_equal(front_native_listen(rig_front, "", 0), -EADDRINUSE);
	assert_int_equal(front_native_port(rig_front), 0);
	assert_int_equal(front_native_listen(rig_front, "", 9200), 0);
	assert_int_equal(front_native_port(rig_front), 9200);
	/* Events of another protocol. */
	stranger.magic++;
	fake_connect(&requests[0], &stranger, sizeof(stranger));
	fake_connect(&requests[1], &PRIVATE, sizeof(PRIVATE) - 1);
	RIG_UNTIL(requests[0].rejected && requests[1].rejected);
	/* Further sessions of clients that have one get half of the places. */
	further.flags = CAPSULE_PRIVATE_FURTHER;
	for (int i = 0; i < 3; i++)
		fake_connect(&more[i], &further, sizeof(further));
	RIG_UNTIL(more[2].rejected);
	assert_int_equal(front_native_sessions(rig_front), 2);
	for (int i = 0; i < 2; i++)
		fake_event(RP_CM_DISCONNECTED, more[i].qp);
	RIG_UNTIL(front_native_sessions(rig_front) == 0);
	/* As many connections as places, and one more. */
	for (int i = 0; i < 5; i++)
		fake_connect(&requests[i], &PRIVATE, sizeof(PRIVATE));
	RIG_UNTIL(requests[4].rejected);
	assert_int_equal(front_native_sessions(rig_front), 4);
	tells_its_sessions();
	/* A session that ends frees its place. */
	fake_event(RP_CM_ESTABLISHED, requests[0].qp);
	fake_event(RP_CM_DISCONNECTED, requests[0].qp);
	RIG_UNTIL(fake_closed(requests[0].qp));
	assert_int_equal(front_native_sessions(rig_front), 3);
	/* A failure on our side is answered, too, and uses no place. */
	fake.qp_open_error = -EMFILE;
	fake_connect(&requests[4], &PRIVATE, sizeof(PRIVATE));
	RIG_UNTIL(requests[4].rejected);
	assert_int_equal(front_native_sessions(rig_front), 3);
	/* The device fails: all end. */
	fake_event(RP_CM_DEVICE_FATAL, NULL);
	RIG_UNTIL(front_native_sessions(rig_front) == 0);
	/* A client that connects while the server drains is refused. */
	rig_front->drained = true;
	fake_connect(&requests[4], &PRIVATE, sizeof(PRIVATE));
	RIG_UNTIL(requests[4].rejected);
	assert_int_equal(front_native_sessions(rig_front), 0);
	peer_init(&peer);
	rig_drain(0);
	fake_connect(&requests[4], &PRIVATE, sizeof(PRIVATE));
	RIG_UNTIL(requests[4].rejected);
	front_native_unlisten(rig_front);
}
RIG_TEST(connections_come_in);

static struct native_session *session_of(const struct rp_conn_request *request)
{
	return rp_qp_context(request->qp);
}

/* A client that connects and proves nothing does not keep others out: the oldest such session
 * yields its place when no other is free, after it has had time for its proof. A session that has
 * proven a key stays. */
static void the_unproven_yield(void *arg)
{
	struct rp_conn_request requests[6];
	struct peer peer;

	(void)arg;
	assert_int_equal(front_native_listen(rig_front, "", 9200), 0);
	for (int i = 0; i < 4; i++)
		fake_connect(&requests[i], &PRIVATE, sizeof(PRIVATE));
	RIG_UNTIL(front_native_sessions(rig_front) == 4 && requests[3].qp);
	assert_int_equal(rig_front->unproven_count, 4);
	/* They have had no time yet, so the fifth connection is refused. */
	for (int i = 0; i < 4; i++)
		session_of(&requests[i])->accepted_ns = reactor_now_ns(rig) + NS_PER_S;
	fake_connect(&requests[4], &PRIVATE, sizeof(PRIVATE));
	RIG_UNTIL(requests[4].rejected);
	/* Now they have had time; one has proven its key. */
	peer_init(&peer);
	peer.qp = requests[0].qp;
	peer.session = session_of(&requests[0]);
	peer_challenge(&peer);
	peer_prove(&peer);
	assert_int_equal(((const struct capsule_head *)peer_take(&peer))->kind, CAPSULE_WELCOME);
	assert_int_equal(rig_front->unproven_count, 3);
	for (int i = 0; i < 4; i++)
		session_of(&requests[i])->accepted_ns = reactor_now_ns(rig) - NATIVE_YIELD_NS;
	fake_connect(&requests[5], &PRIVATE, sizeof(PRIVATE));
	RIG_UNTIL(fake_closed(requests[1].qp));
	assert_false(requests[5].rejected);
	assert_non_null(requests[5].qp);
	assert_int_equal(front_native_sessions(rig_front), 4);
	assert_false(fake_closed(requests[0].qp));
	rig_drain(0);
	peer_ended(&peer);
	assert_int_equal(rig_front->unproven_count, 0);
	front_native_unlisten(rig_front);
}
RIG_TEST(the_unproven_yield);

/* ---- The sweep. ---- */

static void set_up_takes_too_long(void *arg)
{
	struct peer peer;

	(void)arg;
	peer_init(&peer);
	assert_int_equal(peer_accept(&peer), 0);
	age(&peer.session->last_ns);
	peer_ended(&peer);
	peer_init(&peer);
	assert_int_equal(peer_accept(&peer), 0);
	peer_challenge(&peer);
	age(&peer.session->last_ns);
	peer_ended(&peer);
	rig_drain(0);
}
RIG_TEST(set_up_takes_too_long);

static void idle_sessions_end_in_order(void *arg)
{
	struct peer peer;

	(void)arg;
	rig_front->opts.idle_timeout_ns = 600 * NS_PER_S;
	peer_open(&peer);
	/* Not while a request runs. */
	waiter_hold();
	peer_request(&peer, &HEAD);
	RIG_UNTIL(waiter);
	age(&peer.session->last_ns);
	fiber_sleep_ns(3 * NATIVE_SWEEP_NS);
	assert_int_equal(peer.session->phase, NATIVE_OPEN);
	waiter_release();
	peer_response(&peer);
	peer_goodbye(&peer, CAPSULE_BYE_IDLE);
	peer_ended(&peer);
	rig_drain(0);
}
RIG_TEST(idle_sessions_end_in_order);

static void silent_clients_are_looked_after(void *arg)
{
	struct peer peer;

	(void)arg;
	rig_front->opts.keepalive_ns = 600 * NS_PER_S;
	peer_open(&peer);
	age(&peer.session->last_ns);
	/* An empty write, whose completion shows that the client's device is alive. */
	RIG_UNTIL(peer.session->kept_ns);
	rig_settle();
	assert_false(peer.session->keeping);
	assert_int_equal(peer.session->phase, NATIVE_OPEN);
	/* A full queue, or no memory for the write, does not end the session. */
	peer.session->kept_ns = 0;
	fake.post_send_error = -ENOMEM;
	RIG_UNTIL(peer.session->kept_ns);
	assert_false(peer.session->keeping);
	assert_int_equal(peer.session->phase, NATIVE_OPEN);
	/* The client's device is gone. */
	peer.session->kept_ns = 0;
	fake.hold_sends = true;
	RIG_UNTIL(peer.session->keeping);
	age(&peer.session->kept_ns);
	peer_ended(&peer);
	rig_drain(0);
}
RIG_TEST(silent_clients_are_looked_after);

static uint8_t client_memory[512 * KIB];
static int64_t body_came;

static void handle_put(const struct s3_request *request, struct s3_reply *reply)
{
	static uint8_t body[512 * KIB];

	body_came = fake_body(request, body, sizeof(body));
	fake_answer(reply, body_came < 0 ? 500 : 200, SLICE_NONE);
}

/* A transfer without progress ends its session; a slow store does not. */
static void transfers_stall(void *arg)
{
	struct capsule_run run = {.addr = (uint64_t)(uintptr_t)client_memory,
		.bytes = sizeof(client_memory),
		.rkey = FAKE_RKEY};
	struct capsule_request put = {.opcode = CAPSULE_OP_PUT,
		.bucket = SLICE("bucket"),
		.key = SLICE("key"),
		.body_bytes = sizeof(client_memory),
		.runs = &run,
		.run_count = 1};
	struct peer peer;

	(void)arg;
	fake_s3.handle = handle_put;
	peer_open(&peer);
	fake.hold_ring = true;
	peer_request(&peer, &put);
	RIG_UNTIL(fake_ring_held(peer.qp));
	assert_false(list_empty(&peer.session->requests));
	age(&peer.session->moved_ns);
	age(&peer.session->sent_ns);
	age(&CONTAINER_OF(peer.session->requests.next, struct native_request, link)->progress_ns);
	peer_ended(&peer);
	assert_int_equal(body_came, -ECANCELED);
	/* The request's own deadline is shorter. */
	peer_open(&peer);
	put.deadline_ms = 1;
	peer_request(&peer, &put);
	RIG_UNTIL(fake_ring_held(peer.qp));
	peer_ended(&peer);
	rig_drain(0);
}
RIG_TEST(transfers_stall);

/* ---- Answers that are not taken. ---- */

#define SMALL_BYTES (64u * KIB)

static void handle_small(const struct s3_request *request, struct s3_reply *reply)
{
	fake_send_bytes(request->core, reply, SMALL_BYTES, SMALL_BYTES, false);
}

static uint64_t rdma_frames(void)
{
	struct region_usage usage;

	region_usage(rig_region, &usage);
	return usage.frames_by_owner[OWNER_RDMA];
}

static void peer_asks(struct peer *peer)
{
	const struct capsule_run run = {.addr = (uint64_t)(uintptr_t)client_memory,
		.bytes = sizeof(client_memory),
		.rkey = FAKE_RKEY};
	const struct capsule_request get = {.opcode = CAPSULE_OP_GET,
		.bucket = SLICE("bucket"),
		.key = SLICE("key"),
		.runs = &run,
		.run_count = 1};

	peer_request(peer, &get);
}

/* The device has so many bodies, with their answers, and completes none. */
static void peer_takes_nothing(struct peer *peer, uint32_t count)
{
	fake_s3.handle = handle_small;
	peer_open(peer);
	fake.hold_sends = true;
	for (uint32_t i = 0; i < count; i++)
		peer_asks(peer);
	RIG_UNTIL(fake_sends(peer->qp) == 2 * count);
	assert_int_equal(peer->session->sends_signaled, count);
	assert_int_equal(peer->session->in_flight, 0);
}

/* Time for at least one sweep. */
static void rig_sweep(void)
{
	fiber_sleep_ns(3 * NATIVE_SWEEP_NS);
}

/* A client that stays and takes nothing does not hold the frames of its bodies for longer than the
 * limit. */
static void answers_are_not_taken(void *arg)
{
	uint64_t before;
	struct peer peer;

	(void)arg;
	peer_takes_nothing(&peer, 3);
	before = rdma_frames();
	assert_in_range(before, 3 * region_frames_for(SMALL_BYTES), UINT32_MAX);
	rig_sweep();
	assert_int_equal(peer.session->phase, NATIVE_OPEN);
	age(&peer.session->sent_ns);
	peer_ended(&peer);
	assert_int_equal(rdma_frames(), 0);
	rig_drain(0);
}
RIG_TEST(answers_are_not_taken);

/* Answers that find no room behind those end with their session. */
static void parked_answers_are_not_taken(void *arg)
{
	struct peer peer;

	(void)arg;
	peer_open(&peer);
	fake.hold_sends = true;
	for (uint32_t i = 0; i < 8; i++)
		peer_request(&peer, &RIG_PING);
	/* The WELCOME before them was not signaled: its place is not free. */
	RIG_UNTIL(fake_sends(peer.qp) == 3);
	rig_settle();
	assert_int_equal(peer.session->in_flight, 5);
	assert_true(peer.session->sends_signaled > 0);
	age(&peer.session->sent_ns);
	peer_ended(&peer);
	rig_drain(0);
}
RIG_TEST(parked_answers_are_not_taken);

/* A client that takes one answer in each two thirds of the limit stays. */
static void slow_answers_keep_the_session(void *arg)
{
	const uint64_t slow_ns = rig_front_opts.request_timeout_ns * 2 / 3;
	struct peer peer;

	(void)arg;
	peer_takes_nothing(&peer, 3);
	for (uint32_t i = 0; i < 3; i++) {
		peer.session->sent_ns -= slow_ns;
		rig_sweep();
		assert_int_equal(peer.session->phase, NATIVE_OPEN);
		fake_sends_go(peer.qp, 2);
		assert_int_equal(peer_response(&peer)->status, 200);
		RIG_UNTIL(peer.session->sends_signaled == 2 - i);
	}
	/* The time in which nothing was outstanding does not count. */
	age(&peer.session->sent_ns);
	peer_asks(&peer);
	RIG_UNTIL(peer.session->sends_signaled);
	rig_sweep();
	assert_int_equal(peer.session->phase, NATIVE_OPEN);
	/* Transfers before the answer move. */
	age(&peer.session->sent_ns);
	peer.session->moved_ns = reactor_now_ns(rig);
	rig_sweep();
	assert_int_equal(peer.session->phase, NATIVE_OPEN);
	age(&peer.session->moved_ns);
	peer_ended(&peer);
	rig_drain(0);
}
RIG_TEST(slow_answers_keep_the_session);

/* The simulated device takes an answer when the client's program calls it: the program has the time
 * that it has without requests. */
static void simulated_answers_have_the_idle_time(void *arg)
{
	struct peer peer;

	(void)arg;
	rig_front->attr.simulated = true;
	rig_front->opts.idle_timeout_ns = 600 * NS_PER_S;
	peer_takes_nothing(&peer, 1);
	peer.session->sent_ns -= 300 * NS_PER_S;
	rig_sweep();
	assert_int_equal(peer.session->phase, NATIVE_OPEN);
	age(&peer.session->sent_ns);
	peer_ended(&peer);
	rig_drain(0);
}
RIG_TEST(simulated_answers_have_the_idle_time);

/* If the process did not run for a while, the missing progress is not the client's fault. */
static void lost_time_is_forgiven_to_answers(void *arg)
{
	struct peer peer;

	(void)arg;
	peer_takes_nothing(&peer, 1);
	peer.session->sent_ns -= 3600 * NS_PER_S;
	rig_front->swept_ns -= 3600 * NS_PER_S;
	rig_sweep();
	assert_int_equal(peer.session->phase, NATIVE_OPEN);
	fake.hold_sends = false;
	fake_sends_go(peer.qp, UINT32_MAX);
	assert_int_equal(peer_response(&peer)->status, 200);
	peer_close(&peer);
	rig_drain(0);
}
RIG_TEST(lost_time_is_forgiven_to_answers);

/* If the process did not run for a while, the missing progress is not the client's fault. */
static void lost_time_is_forgiven(void *arg)
{
	struct peer peer;

	(void)arg;
	peer_init(&peer);
	assert_int_equal(peer_accept(&peer), 0);
	age(&peer.session->last_ns);
	rig_front->swept_ns = peer.session->last_ns;
	fiber_sleep_ns(3 * NATIVE_SWEEP_NS);
	assert_int_equal(peer.session->phase, NATIVE_ACCEPTED);
	fake_break(peer.qp, RP_WC_WR_FLUSH_ERR);
	peer_ended(&peer);
	rig_drain(0);
}
RIG_TEST(lost_time_is_forgiven);

/* ---- Goodbyes. ---- */

static void a_client_says_goodbye(void *arg)
{
	struct capsule_goodbye_wire goodbye;
	struct peer peer;

	(void)arg;
	/* Requests in flight are answered first; later ones are not begun. */
	peer_open(&peer);
	waiter_hold();
	peer_request(&peer, &HEAD);
	RIG_UNTIL(waiter);
	capsule_goodbye_finish(&goodbye, CAPSULE_BYE_CLIENT);
	capsule_seal(&peer.out, &goodbye);
	peer_deliver(&peer, &goodbye, sizeof(goodbye));
	RIG_UNTIL(peer.session->phase == NATIVE_DRAINING);
	peer_expect(&peer, &HEAD, 503, "ServiceUnavailable");
	waiter_release();
	assert_int_equal(peer_response(&peer)->status, 200);
	peer_ended(&peer);
	rig_drain(0);
}
RIG_TEST(a_client_says_goodbye);

/* The server does not wait for a client that does not take its last answers. */
static void last_answers_are_not_taken(void *arg)
{
	struct peer peer;

	(void)arg;
	peer_open(&peer);
	fake.hold_sends = true;
	native_session_drain(peer.session, CAPSULE_BYE_DRAINING);
	rig_settle();
	assert_int_equal(peer.session->phase, NATIVE_DRAINING);
	age(&peer.session->last_ns);
	peer_ended(&peer);
	rig_drain(0);
}
RIG_TEST(last_answers_are_not_taken);

/* ---- Draining. ---- */

/* A GOODBYE waits for room in a full send queue; no fiber waits for it, and the drain visits all
 * sessions, even if some end meanwhile. */
static void drain_with_full_queues(void *arg)
{
	struct peer peers[4];

	(void)arg;
	for (int i = 0; i < 4; i++)
		peer_open(&peers[i]);
	/* Each queue has one place, used by an answer. */
	fake.hold_sends = true;
	for (int i = 0; i < 4; i++) {
		peer_request(&peers[i], &RIG_PING);
		RIG_UNTIL(fake_sends(peers[i].qp) == 1);
	}
	/* While the first two would wait, the next two end. */
	fake_break(peers[1].qp, RP_WC_RETRY_EXC_ERR);
	fake_break(peers[2].qp, RP_WC_RETRY_EXC_ERR);
	for (int i = 0; i < 4; i++)
		native_session_drain(peers[i].session, CAPSULE_BYE_DRAINING);
	peer_ended(&peers[1]);
	peer_ended(&peers[2]);
	assert_int_equal(peers[0].session->phase, NATIVE_DRAINING);
	fake.hold_sends = false;
	fake_sends_go(peers[0].qp, UINT32_MAX);
	fake_sends_go(peers[3].qp, UINT32_MAX);
	rig_drain(60000);
	for (int i = 0; i < 4; i += 3) {
		peer_response(&peers[i]);
		peer_goodbye(&peers[i], CAPSULE_BYE_DRAINING);
		peer_ended(&peers[i]);
	}
}
RIG_TEST(drain_with_full_queues);

/* The drain itself, called while a queue is full: the session whose GOODBYE has no room ends during
 * it, and so does the next one. */
static struct peer drained[2];

static void break_both(void *arg)
{
	(void)arg;
	fake_break(drained[0].qp, RP_WC_RETRY_EXC_ERR);
	fake_break(drained[1].qp, RP_WC_RETRY_EXC_ERR);
}

static void sessions_end_during_the_drain(void *arg)
{
	(void)arg;
	for (int i = 0; i < 2; i++) {
		peer_open(&drained[i]);
		fake.hold_sends = true;
		peer_request(&drained[i], &RIG_PING);
		RIG_UNTIL(fake_sends(drained[i].qp) == 1);
		fake.hold_sends = false;
	}
	assert_int_equal(fiber_spawn(rig, "break", break_both, NULL), 0);
	rig_drain(60000);
	peer_ended(&drained[0]);
	peer_ended(&drained[1]);
}
RIG_TEST(sessions_end_during_the_drain);

static void drained_in_every_phase(void *arg)
{
	struct peer accepted, proving, proof, open;

	(void)arg;
	peer_init(&accepted);
	assert_int_equal(peer_accept(&accepted), 0);
	peer_init(&proving);
	assert_int_equal(peer_accept(&proving), 0);
	peer_challenge(&proving);
	peer_open(&open);
	fake_s3.hold_keys = true;
	peer_init(&proof);
	assert_int_equal(peer_accept(&proof), 0);
	peer_challenge(&proof);
	peer_prove(&proof);
	RIG_UNTIL(fake_s3.waiter);
	native_session_drain(proof.session, CAPSULE_BYE_DRAINING);
	assert_int_equal(proof.session->phase, NATIVE_FAILED);
	fake_s3_key_go();
	rig_drain(60000);
	peer_goodbye(&open, CAPSULE_BYE_DRAINING);
	peer_ended(&open);
	peer_ended(&accepted);
	peer_ended(&proving);
	peer_ended(&proof);
}
RIG_TEST(drained_in_every_phase);

static void release_late(void *arg)
{
	(void)arg;
	while (list_empty(&rig_front->sessions) ||
		CONTAINER_OF(rig_front->sessions.next, struct native_session, link)->phase !=
			NATIVE_FAILED)
		fiber_yield();
	waiter_release();
}

/* Past the deadline the session is cut off; its request still ends by itself. */
static void the_deadline_cuts_off(void *arg)
{
	struct peer peer;

	(void)arg;
	peer_open(&peer);
	waiter_hold();
	peer_request(&peer, &HEAD);
	RIG_UNTIL(waiter);
	assert_int_equal(fiber_spawn(rig, "late", release_late, NULL), 0);
	rig_drain(1);
	peer_goodbye(&peer, CAPSULE_BYE_DRAINING);
	peer_ended(&peer);
}
RIG_TEST(the_deadline_cuts_off);

static void age_failed(void *arg)
{
	struct native_session *session =
		CONTAINER_OF(rig_front->sessions.next, struct native_session, link);

	(void)arg;
	while (session->phase != NATIVE_FAILED)
		fiber_yield();
	age(&session->failed_ns);
}

/* A card that does not flush does not delay the drain: its queue pairs are destroyed, which ends
 * the transfer of a waiting request and gives back the frames of sends. */
static void a_broken_card_does_not_hold_up(void *arg)
{
	struct capsule_run run = {.addr = (uint64_t)(uintptr_t)client_memory,
		.bytes = sizeof(client_memory),
		.rkey = FAKE_RKEY};
	struct capsule_request put = {.opcode = CAPSULE_OP_PUT,
		.bucket = SLICE("bucket"),
		.key = SLICE("key"),
		.body_bytes = sizeof(client_memory),
		.runs = &run,
		.run_count = 1};
	struct peer peer;

	(void)arg;
	fake_s3.handle = handle_put;
	peer_open(&peer);
	fake.hold_ring = true;
	fake.hold_sends = true;
	fake.never_flushes = true;
	peer_request(&peer, &put);
	for (int i = 0; i < 4; i++)
		peer_request(&peer, &RIG_PING);
	RIG_UNTIL(fake_ring_held(peer.qp) && fake_sends(peer.qp) == 4);
	assert_int_equal(fiber_spawn(rig, "age", age_failed, NULL), 0);
	rig_drain(1);
	assert_int_equal(body_came, -ECANCELED);
	peer_ended(&peer);
}
RIG_TEST(a_broken_card_does_not_hold_up);

/* Nor does it keep the place of a session while the server continues. */
static void a_broken_card_keeps_no_place(void *arg)
{
	struct peer peer;

	(void)arg;
	peer_open(&peer);
	fake.never_flushes = true;
	native_session_fail(peer.session, "the test says so");
	rig_settle();
	assert_int_equal(front_native_sessions(rig_front), 1);
	age(&peer.session->failed_ns);
	RIG_UNTIL(front_native_sessions(rig_front) == 0);
	peer_ended(&peer);
	rig_drain(0);
}
RIG_TEST(a_broken_card_keeps_no_place);

/* Also when the session failed because its transfers stalled, which they go on to do. */
static void a_broken_card_keeps_no_stalled_session(void *arg)
{
	struct peer peer;

	(void)arg;
	peer_takes_nothing(&peer, 1);
	fake.never_flushes = true;
	age(&peer.session->sent_ns);
	RIG_UNTIL(peer.session->phase == NATIVE_FAILED);
	age(&peer.session->failed_ns);
	peer_ended(&peer);
	rig_drain(0);
}
RIG_TEST(a_broken_card_keeps_no_stalled_session);

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_UNIT(opening_can_fail_anywhere, 0),
		RIG_UNIT(receives_leave_the_bodies_their_part, 0),
		RIG_UNIT(a_small_completion_queue, 0),
		RIG_UNIT(connections_come_in, 0),
		RIG_UNIT(the_unproven_yield, 0),
		RIG_UNIT(set_up_takes_too_long, 0),
		RIG_UNIT(idle_sessions_end_in_order, 0),
		RIG_UNIT(silent_clients_are_looked_after, 0),
		RIG_UNIT(transfers_stall, 0),
		RIG_UNIT(answers_are_not_taken, 0),
		RIG_UNIT(parked_answers_are_not_taken, .send_room = 4),
		RIG_UNIT(slow_answers_keep_the_session, 0),
		RIG_UNIT(simulated_answers_have_the_idle_time, 0),
		RIG_UNIT(lost_time_is_forgiven_to_answers, 0),
		RIG_UNIT(lost_time_is_forgiven, 0),
		RIG_UNIT(a_client_says_goodbye, 0),
		RIG_UNIT(last_answers_are_not_taken, 0),
		RIG_UNIT(drain_with_full_queues, .send_room = 1),
		RIG_UNIT(sessions_end_during_the_drain, .send_room = 1),
		RIG_UNIT(drained_in_every_phase, 0),
		RIG_UNIT(the_deadline_cuts_off, 0),
		RIG_UNIT(a_broken_card_does_not_hold_up, 0),
		RIG_UNIT(a_broken_card_keeps_no_place, 0),
		RIG_UNIT(a_broken_card_keeps_no_stalled_session, 0),
	};

	return cmocka_run_group_tests_name("native", tests, NULL, NULL);
}
