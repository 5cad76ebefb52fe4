/* tests/unit/front/native_rig.h: a native front over the device of fake_rdma.h, and a client that
 * the test writes capsule by capsule. */
#ifndef TESTS_UNIT_FRONT_NATIVE_RIG_H
#define TESTS_UNIT_FRONT_NATIVE_RIG_H

#include "fiber_rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake_rdma.h"
#include "fake_s3.h"
#include "front/session/native_priv.h"

#define RIG_SPANS_MAX 4096u

struct rig_opts {
	uint32_t credits, sessions_max; /* 0: 8, 4 */
	uint32_t fibers_max;		/* of the reactor; 0: its own */
	uint32_t inline_bytes;		/* maximum in a work request; UINT32_MAX: none; 0: 512 */
	uint32_t send_room;		/* of a queue pair; 0: as asked */
	bool encryption_required;
	bool leases;
	bool shares; /* the core has a budget */
};

static struct front_native *rig_front;
static struct flow_budget *rig_budget;
static struct front_native_opts rig_front_opts;

static int rig_setup(void **state)
{
	static const struct rig_opts none;
	const struct rig_opts *opts = *state ? *state : &none;

	fake_open();
	fake_s3_reset();
	fake.send_room = opts->send_room;
	if (opts->inline_bytes)
		fake.inline_bytes = opts->inline_bytes == UINT32_MAX ? 0 : opts->inline_bytes;
	rig_begin(opts->fibers_max);
	assert_int_equal(flow_core_open(rig, rig_region, &rig_core), 0);
	if (opts->shares)
		assert_int_equal(flow_budget_open(rig_region, &rig_budget), 0);
	rig_core.budget = rig_budget;
	rig_front_opts = (struct front_native_opts){.core = &rig_core,
		.device = fake_device(),
		.sessions_max = opts->sessions_max ? opts->sessions_max : 4,
		.credits = opts->credits ? opts->credits : 8,
		.inline_bytes_max = 4096,
		.max_send_wr = 32,
		.max_inline_data = 512,
		.request_timeout_ns = 60 * NS_PER_S,
		.encryption_required = opts->encryption_required,
		.lease_bytes = opts->leases ? 64 * KIB : 0,
		.lease_ns = 60 * NS_PER_S};
	assert_int_equal(front_native_open(&rig_front_opts, &rig_front), 0);
	return 0;
}

/* Checks that sessions, queue pairs and frames are all given back. */
static int rig_teardown(void **state)
{
	(void)state;
	assert_int_equal(front_native_sessions(rig_front), 0);
	front_native_close(rig_front);
	assert_int_equal(fake.qps_open, 0);
	flow_core_close(&rig_core);
	flow_budget_close(rig_budget);
	rig_budget = NULL;
	rig_end();
	fake_close();
	return 0;
}

#define RIG_UNIT(fn, ...)                         \
	cmocka_unit_test_prestate_setup_teardown( \
		test_##fn, rig_setup, rig_teardown, &((struct rig_opts){__VA_ARGS__}))

/* Runs turns until the condition is true; an alarm ends it otherwise. */
#define RIG_UNTIL(fact)                \
	do {                           \
		while (!(fact))        \
			fiber_yield(); \
	} while (0)

/* Runs enough turns for everything that needs no outside event. */
static inline void rig_settle(void)
{
	for (int i = 0; i < 20; i++)
		fiber_yield();
}

/* ---- Taking all frames, so that none is free. ---- */

static struct region_span rig_spans[RIG_SPANS_MAX];
static uint32_t rig_span_count;

static inline void rig_frames_take(void)
{
	rig_span_count = 0;
	for (uint32_t frames = 1024; frames; frames /= 2)
		while (rig_span_count < RIG_SPANS_MAX && region_lease(rig_region, frames, OWNER_APP,
								 &rig_spans[rig_span_count]) == 0)
			rig_span_count++;
}

static inline void rig_frames_give(void)
{
	while (rig_span_count)
		region_give(rig_region, rig_spans[--rig_span_count], OWNER_APP);
}

/* ---- The client. ---- */

struct peer {
	struct rp_conn_request request;
	struct rp_qp *qp;
	struct native_session *session; /* the server's end of it */
	struct capsule_cipher in, out;
	bool encrypted;
	uint8_t payload_in[AEAD_KEY_BYTES], payload_out[AEAD_KEY_BYTES];
	uint16_t credits;
	uint32_t capsule_bytes, inline_bytes, features;
	uint64_t transfer_bytes_max;
	const char *access_key, *secret_key;
	char hello[CAPSULE_HELLO_BYTES_MAX] __attribute__((aligned(8)));
	uint32_t hello_bytes;
	struct capsule_challenge_wire challenge;
	/* The last message. */
	struct fake_message *message;
	struct capsule_response response;
	uint64_t next_id;
};

static inline void peer_init(struct peer *peer)
{
	*peer = (struct peer){.credits = 8,
		.capsule_bytes = 8192,
		.inline_bytes = 4096,
		.transfer_bytes_max = 64 * MIB,
		.access_key = FAKE_ACCESS_KEY,
		.secret_key = FAKE_SECRET_KEY,
		.features = CAPSULE_FEATURE_STREAMS | CAPSULE_FEATURE_LEASES};
}

/* Like the port's hand-over to the chosen front. */
static inline int peer_accept(struct peer *peer)
{
	struct rp_cm_event event = {.type = RP_CM_CONNECT_REQUEST, .request = &peer->request};
	int ret;

	strcpy(event.peer, "192.0.2.7:1");
	rig_front->session_count++;
	rig_front->unproven_count++;
	ret = native_session_accept(rig_front, &event);
	if (ret)
		return ret;
	peer->qp = peer->request.qp;
	peer->session = rp_qp_context(peer->qp);
	return 0;
}

static inline void peer_deliver(struct peer *peer, const void *data, uint32_t bytes)
{
	assert_true(fake_deliver(peer->qp, data, bytes));
}

/* The next message, which is valid until the following one. */
static inline void *peer_take(struct peer *peer)
{
	free(peer->message);
	RIG_UNTIL((peer->message = fake_sent(peer->qp)) != NULL);
	assert_int_equal(
		capsule_head_check(peer->message->data, peer->message->bytes, peer->capsule_bytes),
		peer->message->bytes);
	return peer->message->data;
}

static inline bool peer_has_mail(struct peer *peer)
{
	struct fake_message *message;

	rig_settle();
	message = fake_sent(peer->qp);
	free(message);
	return message != NULL;
}

static inline void peer_hello(struct peer *peer)
{
	struct capsule_hello_wire hello = {.version_min = 1,
		.version_max = 1,
		.credits = peer->credits,
		.capsule_bytes = peer->capsule_bytes,
		.inline_bytes = peer->inline_bytes,
		.features = peer->features,
		.transfer_bytes_max = peer->transfer_bytes_max};

	peer->hello_bytes =
		(uint32_t)capsule_hello_finish(&hello, slice_str(peer->access_key), peer->hello);
}

static inline void peer_challenge(struct peer *peer)
{
	peer_hello(peer);
	peer_deliver(peer, peer->hello, peer->hello_bytes);
	memcpy(&peer->challenge, peer_take(peer), sizeof(peer->challenge));
	assert_int_equal(peer->challenge.head.kind, CAPSULE_CHALLENGE);
	assert_int_equal(capsule_challenge_decode(&peer->challenge, sizeof(peer->challenge)), 0);
}

static inline void peer_prove(struct peer *peer)
{
	struct capsule_proof_wire proof;
	struct capsule_keys keys;
	uint8_t transcript[32], auth_key[32];

	capsule_transcript((const void *)peer->hello, &peer->challenge, transcript);
	capsule_auth_key(slice_str(peer->secret_key), transcript, auth_key);
	capsule_proof(auth_key, false, proof.proof);
	capsule_proof_finish(&proof, CAPSULE_PROOF);
	capsule_keys_derive(auth_key, transcript, &keys);
	memcpy(peer->in.key, keys.server_tag, sizeof(peer->in.key));
	memcpy(peer->out.key, keys.client_tag, sizeof(peer->out.key));
	peer->encrypted = peer->challenge.features & CAPSULE_FEATURE_ENCRYPTION;
	if (peer->encrypted) {
		memcpy(peer->payload_in, keys.server_payload, sizeof(peer->payload_in));
		memcpy(peer->payload_out, keys.client_payload, sizeof(peer->payload_out));
		assert_int_equal(aead_open(keys.server_capsule, &peer->in.aead), 0);
		assert_int_equal(aead_open(keys.client_capsule, &peer->out.aead), 0);
	}
	peer_deliver(peer, &proof, sizeof(proof));
}

/* Opens the session of a peer that was set up by peer_init. */
static inline void peer_open_as(struct peer *peer)
{
	const struct capsule_head *head;

	assert_int_equal(peer_accept(peer), 0);
	peer_challenge(peer);
	peer_prove(peer);
	head = peer_take(peer);
	assert_int_equal(head->kind, CAPSULE_WELCOME);
	assert_int_equal(peer->session->phase, NATIVE_OPEN);
}

static inline void peer_open(struct peer *peer)
{
	peer_init(peer);
	peer_open_as(peer);
}

static inline void peer_refused(struct peer *peer, uint16_t status, const char *code)
{
	const struct capsule_head *head = peer_take(peer);
	struct slice got, message;
	uint16_t got_status;

	assert_int_equal(head->kind, CAPSULE_REFUSE);
	assert_int_equal(capsule_refuse_decode(head, head->bytes, &got_status, &got, &message), 0);
	assert_int_equal(got_status, status);
	assert_true(slice_eq(got, slice_str(code)));
	assert_true(message.len > 0);
}

/* Encodes a request: sealed, with an id of its own. */
static inline uint32_t peer_make(
	struct peer *peer, const struct capsule_request *request, void *buf, size_t bytes)
{
	struct capsule_request numbered = *request;
	ptrdiff_t len;

	numbered.request_id = ++peer->next_id;
	len = capsule_request_encode(&numbered, buf, bytes);
	assert_true(len > 0);
	capsule_seal(&peer->out, buf);
	return (uint32_t)len;
}

static inline uint64_t peer_request(struct peer *peer, const struct capsule_request *request)
{
	static uint8_t buf[LIMIT_CAPSULE_BYTES_MAX] __attribute__((aligned(8)));
	uint32_t len = peer_make(peer, request, buf, sizeof(buf));

	peer_deliver(peer, buf, len);
	return peer->next_id;
}

/* Takes the next response; its parts live until the next message. */
static inline const struct capsule_response *peer_response(struct peer *peer)
{
	struct capsule_head *head = peer_take(peer);

	assert_int_equal(head->kind, CAPSULE_RESPONSE);
	assert_int_equal(capsule_unseal(&peer->in, head, head->bytes), 0);
	assert_int_equal(capsule_response_decode(head, head->bytes, &peer->response), 0);
	return &peer->response;
}

static inline const struct capsule_response *peer_ask(
	struct peer *peer, const struct capsule_request *request)
{
	uint64_t id = peer_request(peer, request);

	peer_response(peer);
	assert_int_equal(peer->response.request_id, id);
	return &peer->response;
}

static inline void peer_expect(
	struct peer *peer, const struct capsule_request *request, uint16_t status, const char *code)
{
	peer_ask(peer, request);
	assert_int_equal(peer->response.status, status);
	assert_true(slice_eq(peer->response.code, slice_str(code)));
}

static const struct capsule_request RIG_PING = {.opcode = CAPSULE_OP_PING};

static inline void peer_ping(struct peer *peer)
{
	peer_ask(peer, &RIG_PING);
	assert_int_equal(peer->response.status, 200);
}

static inline void peer_goodbye(struct peer *peer, uint32_t reason)
{
	struct capsule_goodbye_wire *goodbye = peer_take(peer);

	assert_int_equal(goodbye->head.kind, CAPSULE_GOODBYE);
	assert_int_equal(capsule_unseal(&peer->in, &goodbye->head, goodbye->head.bytes), 0);
	assert_int_equal(goodbye->reason, reason);
}

/* Sets a time so long ago that every limit is exceeded: before the machine's start, as only
 * differences count; and lets the next sweep come late, which forgives the lateness alone. */
static inline void age(uint64_t *moment_ns)
{
	*moment_ns -= reactor_now_ns(rig) + 3600 * NS_PER_S;
	rig_front->swept_ns -= 2 * NATIVE_SWEEP_LATE_NS;
}

/* Expects that the session ends and is freed. */
static inline void peer_ended(struct peer *peer)
{
	RIG_UNTIL(fake_closed(peer->qp));
	free(peer->message);
	aead_close(peer->in.aead);
	aead_close(peer->out.aead);
}

/* Disconnects the client. */
static inline void peer_close(struct peer *peer)
{
	fake_break(peer->qp, RP_WC_RETRY_EXC_ERR);
	peer_ended(peer);
}

static inline void rig_drain(uint64_t ms)
{
	front_native_drain(rig_front, clock_now_ns() + ms * NS_PER_MS);
}

#endif
