/* A peer that knows the key and breaks the protocol: each breach has a typed answer or ends its
 * session, the server continues, and nothing stays leased. */
#include "../unit.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../fuzz.h"
#include "base/base.h"
#include "codec/capsule.h"
#include "codec/codec.h"
#include "rdma/rdma.h"
#include "rig.h"

#define SLOT_BYTES 8192u
#define SLOTS	   16u
#define DATA_BYTES 65536u
#define AREA_BYTES ((SLOTS + 1) * SLOT_BYTES + DATA_BYTES)

/* A bare connection. */
struct peer {
	struct rp_device *device;
	struct rp_pd *pd;
	struct rp_cq *cq;
	struct rp_qp *qp;
	struct rp_mr *mr, *data_mr;
	uint8_t *memory; /* receives, then one slot to send from, then data */
	uint8_t *data;	 /* the server may write here too */
	struct capsule_cipher in, out;
	struct capsule_challenge_wire challenge;
	bool encrypted;
	bool mute; /* without receives at first */
	uint8_t payload_out[AEAD_KEY_BYTES];
	uint8_t *received;
	uint32_t received_bytes;
	bool gone;
};

static void recv_post(struct peer *peer, uint64_t slot)
{
	struct rp_sge sge = {.addr = (uint64_t)(uintptr_t)(peer->memory + slot * SLOT_BYTES),
		.length = SLOT_BYTES,
		.lkey = rp_mr_lkey(peer->mr)};
	struct rp_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .sge_count = 1};
	uint32_t posted;

	rp_post_recv(peer->qp, &wr, 1, &posted);
}

static void peer_open(struct peer *peer, struct rig *rig, const void *private_data, uint32_t len)
{
	struct rp_open_opts opts = {.device_name = "simulated", .gid_index = -1};
	struct rp_qp_attr attr = {.type = RP_QP_RC,
		.cap = {.max_send_wr = 256,
			.max_recv_wr = 32,
			.max_send_sge = 1,
			.max_inline_data = 256,
			.max_recv_sge = 1}};
	struct rp_mr_opts mr = {.bytes = (SLOTS + 1) * SLOT_BYTES,
		.access = RP_ACCESS_LOCAL_WRITE | RP_ACCESS_REMOTE_READ,
		.fd = -1};
	struct rp_mr_opts data = {.bytes = DATA_BYTES,
		.access = RP_ACCESS_LOCAL_WRITE | RP_ACCESS_REMOTE_READ | RP_ACCESS_REMOTE_WRITE,
		.fd = -1};

	*peer = (struct peer){.encrypted = peer->encrypted, .mute = peer->mute};
	peer->memory =
		mmap(NULL, AREA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mr.addr = peer->memory;
	data.addr = peer->data = peer->memory + mr.bytes;
	assert_int_equal(rp_open(&opts, &peer->device), 0);
	assert_int_equal(rp_pd_open(peer->device, &peer->pd), 0);
	assert_int_equal(rp_cq_open(peer->device, 1024, &peer->cq), 0);
	assert_int_equal(rp_mr_open(peer->pd, &mr, &peer->mr), 0);
	assert_int_equal(rp_mr_open(peer->pd, &data, &peer->data_mr), 0);
	attr.send_cq = peer->cq;
	attr.recv_cq = peer->cq;
	assert_int_equal(rp_qp_open(peer->pd, &attr, &peer->qp), 0);
	for (uint64_t i = 0; i < SLOTS && !peer->mute; i++)
		recv_post(peer, i);
	assert_int_equal(rp_connect(peer->qp, "127.0.0.1", rig_port(rig), private_data, len,
				 clock_now_ns() + 60 * NS_PER_S),
		0);
}

static void peer_close(struct peer *peer)
{
	rp_qp_close(peer->qp);
	rp_mr_close(peer->mr);
	rp_mr_close(peer->data_mr);
	rp_cq_close(peer->cq);
	rp_pd_close(peer->pd);
	rp_close(peer->device);
	munmap(peer->memory, AREA_BYTES);
	aead_close(peer->in.aead);
	aead_close(peer->out.aead);
}

static enum rp_cm_type cm_event(struct peer *peer)
{
	struct rp_cm_event event;
	struct pollfd fd = {.fd = rp_cm_fd(peer->device), .events = POLLIN};
	uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;

	while (rp_cm_poll(peer->device, &event) != 1) {
		assert_true(clock_now_ns() < deadline_ns);
		poll(&fd, 1, 100);
	}
	return event.type;
}

/* Waits for a capsule (true) or for the connection's end (false). */
static bool peer_receive(struct peer *peer)
{
	uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
	struct rp_cm_event event;
	struct rp_wc wc;

	while (!peer->gone) {
		assert_true(clock_now_ns() < deadline_ns);
		if (rp_cm_poll(peer->device, &event) == 1 && event.type == RP_CM_DISCONNECTED)
			continue; /* earlier capsules can still be read: the flush reports the end
				   */
		if (rp_cq_poll(peer->cq, &wc, 1) != 1)
			continue;
		if (wc.status != RP_WC_SUCCESS)
			peer->gone = true;
		else if (wc.opcode == RP_RECV) {
			peer->received = peer->memory + wc.wr_id * SLOT_BYTES;
			peer->received_bytes = wc.byte_len;
			return true;
		}
	}
	return false;
}

static void peer_send(struct peer *peer, const void *data, uint32_t bytes)
{
	uint8_t *at = peer->memory + SLOTS * SLOT_BYTES;
	struct rp_sge sge = {
		.addr = (uint64_t)(uintptr_t)at, .length = bytes, .lkey = rp_mr_lkey(peer->mr)};
	struct rp_send_wr wr = {
		.opcode = RP_SEND, .flags = RP_SEND_SIGNALED, .sg_list = &sge, .sge_count = 1};
	uint32_t posted;

	memcpy(at, data, bytes);
	if (bytes <= 256)
		wr.flags |= RP_SEND_INLINE;
	assert_int_equal(rp_post_send(peer->qp, &wr, 1, &posted), 0);
}

static void peer_connect(struct peer *peer, struct rig *rig)
{
	const struct capsule_private hello = {.magic = CAPSULE_MAGIC, .version_max = 1};

	peer_open(peer, rig, &hello, sizeof(hello));
	assert_int_equal(cm_event(peer), RP_CM_ESTABLISHED);
}

static void peer_keys(struct peer *peer, const uint8_t key[32], const uint8_t transcript[32])
{
	struct capsule_keys keys;

	capsule_keys_derive(key, transcript, &keys);
	memcpy(peer->out.key, keys.client_tag, 16);
	memcpy(peer->in.key, keys.server_tag, 16);
	if (!peer->encrypted)
		return;
	assert_int_equal(aead_open(keys.client_capsule, &peer->out.aead), 0);
	assert_int_equal(aead_open(keys.server_capsule, &peer->in.aead), 0);
	memcpy(peer->payload_out, keys.client_payload, sizeof(peer->payload_out));
}

/* Goes through set-up with the right key. */
static void peer_prove(struct peer *peer, struct rig *rig)
{
	struct capsule_hello_wire hello = {.version_min = 1,
		.version_max = 1,
		.credits = 4,
		.capsule_bytes = SLOT_BYTES,
		.inline_bytes = 1000,
		.features = peer->encrypted ? CAPSULE_FEATURE_ENCRYPTION : 0,
		.transfer_bytes_max = MIB};
	uint8_t capsule[CAPSULE_HELLO_BYTES_MAX] __attribute__((aligned(8)));
	uint8_t transcript[32], key[32];
	struct capsule_proof_wire proof = {0};
	size_t bytes;

	peer_connect(peer, rig);
	bytes = capsule_hello_finish(&hello, SLICE(RIG_ACCESS_KEY), capsule);
	peer_send(peer, capsule, (uint32_t)bytes);
	assert_true(peer_receive(peer));
	assert_int_equal(peer->received_bytes, sizeof(peer->challenge));
	memcpy(&peer->challenge, peer->received, sizeof(peer->challenge));
	assert_int_equal(peer->challenge.credits, 4);
	assert_int_equal(peer->challenge.inline_bytes, 1000);
	assert_int_equal(peer->challenge.transfer_bytes_max, MIB);
	capsule_transcript((const void *)capsule, &peer->challenge, transcript);
	capsule_auth_key(SLICE(RIG_SECRET_KEY), transcript, key);
	capsule_proof(key, false, proof.proof);
	capsule_proof_finish(&proof, CAPSULE_PROOF);
	peer_send(peer, &proof, sizeof(proof));
	assert_true(peer_receive(peer));
	capsule_proof(key, true, proof.proof);
	assert_memory_equal(peer->received + 24, proof.proof, sizeof(proof.proof));
	assert_int_equal(
		peer->challenge.features, peer->encrypted ? CAPSULE_FEATURE_ENCRYPTION : 0);
	peer_keys(peer, key, transcript);
}

static size_t ping(uint8_t *capsule, uint64_t id)
{
	struct capsule_request request = {.request_id = id, .opcode = CAPSULE_OP_PING};

	return (size_t)capsule_request_encode(&request, capsule, SLOT_BYTES);
}

static void expect_response(struct peer *peer, uint64_t id, uint16_t status, const char *code)
{
	struct capsule_response response;

	assert_true(peer_receive(peer));
	assert_int_equal(capsule_unseal(&peer->in, peer->received, peer->received_bytes), 0);
	assert_int_equal(
		capsule_response_decode(peer->received, peer->received_bytes, &response), 0);
	assert_int_equal(response.request_id, id);
	assert_int_equal(response.status, status);
	assert_true(slice_eq(response.code, slice_str(code)));
}

static void expect_end(struct peer *peer, struct rig *rig)
{
	assert_false(peer_receive(peer));
	peer_close(peer);
	assert_true(rig_sessions_become(rig, 0));
	assert_int_equal(rig_frames_used(rig), 0);
}

static int setup(void **state)
{
	*state = rig_open(NULL);
	return 0;
}

static int teardown(void **state)
{
	struct neb_client *client = rig_client(*state, NEB_STRICT);

	assert_int_equal(neb_ping(client, NULL), 0); /* the server goes on */
	neb_client_close(client);
	rig_close(*state);
	return 0;
}

static void test_not_ours(void **state)
{
	struct peer peer = {0};

	peer_open(&peer, *state, "hello!!!", 8);
	assert_int_equal(cm_event(&peer), RP_CM_REJECTED);
	peer_close(&peer);
	peer_open(&peer, *state, NULL, 0);
	assert_int_equal(cm_event(&peer), RP_CM_REJECTED);
	peer_close(&peer);
}

static void test_noise(void **state)
{
	struct prng prng;
	uint8_t noise[300];
	struct peer peer = {0};

	prng_seed(&prng, 1);
	for (uint32_t i = 0; i < 8; i++) {
		prng_fill(&prng, noise, sizeof(noise));
		peer_connect(&peer, *state);
		peer_send(&peer, noise, i ? 1 + 40 * i : 300);
		expect_end(&peer, *state);
	}
}

static void test_request_before_proof(void **state)
{
	uint8_t capsule[256] __attribute__((aligned(8)));
	struct peer peer = {0};
	size_t bytes = ping(capsule, 1);

	peer_connect(&peer, *state);
	peer_send(&peer, capsule, (uint32_t)bytes);
	expect_end(&peer, *state);
}

static void sends_end(struct peer *peer, uint32_t count)
{
	struct rp_wc wc;

	while (count)
		count -= rp_cq_poll(peer->cq, &wc, 1) == 1 && wc.opcode != RP_RECV;
}

/* A refused peer has no keys: a capsule sealed with zeros ends the session and is not answered. The
 * refusal stays in flight until receives are posted. */
static void test_request_after_refusal(void **state)
{
	struct capsule_hello_wire hello = {.version_min = 1,
		.version_max = 1,
		.credits = 4,
		.capsule_bytes = SLOT_BYTES,
		.transfer_bytes_max = MIB};
	uint8_t capsule[CAPSULE_HELLO_BYTES_MAX] __attribute__((aligned(8)));
	struct capsule_proof_wire proof = {0};
	const struct capsule_head *head;
	struct peer peer = {.mute = true};
	size_t bytes;

	peer_connect(&peer, *state);
	bytes = capsule_hello_finish(&hello, SLICE(RIG_ACCESS_KEY), capsule);
	peer_send(&peer, capsule, (uint32_t)bytes);
	capsule_proof_finish(&proof, CAPSULE_PROOF);
	peer_send(&peer, &proof, sizeof(proof));
	sends_end(&peer, 2);
	/* Turns of the server, in which it checks the proof. */
	for (uint32_t turn = 0; turn < 8; turn++)
		assert_in_range(rig_sessions(*state), 0, 1);
	bytes = ping(capsule, 1);
	capsule_seal(&peer.out, capsule);
	peer_send(&peer, capsule, (uint32_t)bytes);
	sends_end(&peer, 1);
	for (uint64_t i = 0; i < SLOTS; i++)
		recv_post(&peer, i);
	while (peer_receive(&peer)) {
		head = (const void *)peer.received;
		assert_true(head->kind == CAPSULE_CHALLENGE || head->kind == CAPSULE_REFUSE);
	}
	expect_end(&peer, *state);
}

static void test_garbled(void **state)
{
	uint8_t capsule[256] __attribute__((aligned(8)));
	struct peer peer = {0};
	size_t bytes = ping(capsule, 1);

	peer_prove(&peer, *state);
	capsule_seal(&peer.out, capsule);
	peer_send(&peer, capsule, (uint32_t)bytes);
	expect_response(&peer, 1, 200, "");
	bytes = ping(capsule, 2);
	capsule_seal(&peer.out, capsule);
	capsule[26] ^= 1;
	peer_send(&peer, capsule, (uint32_t)bytes);
	expect_end(&peer, *state);
}

static void test_replayed(void **state)
{
	uint8_t capsule[256] __attribute__((aligned(8)));
	struct peer peer = {0};
	size_t bytes = ping(capsule, 1);

	peer_prove(&peer, *state);
	capsule_seal(&peer.out, capsule);
	peer_send(&peer, capsule, (uint32_t)bytes);
	expect_response(&peer, 1, 200, "");
	peer_send(&peer, capsule, (uint32_t)bytes);
	expect_end(&peer, *state);
}

static void test_cut_short(void **state)
{
	uint8_t capsule[256] __attribute__((aligned(8)));
	struct peer peer = {0};
	size_t bytes = ping(capsule, 1);

	peer_prove(&peer, *state);
	capsule_seal(&peer.out, capsule);
	peer_send(&peer, capsule, (uint32_t)bytes - 1);
	expect_end(&peer, *state);
}

/* An authentic but inconsistent request is answered, and the session continues. */
static void test_malformed_content(void **state)
{
	uint8_t capsule[256] __attribute__((aligned(8)));
	struct capsule_request_wire *wire = (void *)capsule;
	struct peer peer = {0};
	size_t bytes = ping(capsule, 5);

	peer_prove(&peer, *state);
	wire->key_len = 500;
	capsule_seal(&peer.out, capsule);
	peer_send(&peer, capsule, (uint32_t)bytes);
	expect_response(&peer, 5, 400, "MalformedCapsule");
	bytes = ping(capsule, 6);
	wire->opcode = CAPSULE_OP_STATISTICS;
	capsule_seal(&peer.out, capsule);
	peer_send(&peer, capsule, (uint32_t)bytes);
	expect_response(&peer, 6, 501, "NotImplemented");
	bytes = ping(capsule, 7);
	wire->opcode = 200;
	capsule_seal(&peer.out, capsule);
	peer_send(&peer, capsule, (uint32_t)bytes);
	expect_response(&peer, 7, 501, "NotImplemented");
	peer_close(&peer);
	assert_true(rig_sessions_become(*state, 0));
}

static void test_beyond_bounds(void **state)
{
	static uint8_t capsule[SLOT_BYTES] __attribute__((aligned(8)));
	static char body[1001];
	struct capsule_run run = {.addr = 4096, .bytes = 2 * MIB, .rkey = 1};
	struct capsule_request request = {.request_id = 1,
		.opcode = CAPSULE_OP_PUT,
		.bucket = SLICE("b"),
		.key = SLICE("k"),
		.body = {body, sizeof(body)},
		.body_bytes = sizeof(body)};
	struct peer peer = {0};
	ptrdiff_t bytes;

	peer_prove(&peer, *state);
	bytes = capsule_request_encode(&request, capsule, sizeof(capsule));
	capsule_seal(&peer.out, capsule);
	peer_send(&peer, capsule, (uint32_t)bytes);
	expect_response(&peer, 1, 400, "InlineTooLarge");
	request.body = SLICE_NONE;
	request.body_bytes = MIB + 1;
	request.runs = &run;
	request.run_count = 1;
	bytes = capsule_request_encode(&request, capsule, sizeof(capsule));
	capsule_seal(&peer.out, capsule);
	peer_send(&peer, capsule, (uint32_t)bytes);
	expect_response(&peer, 1, 400, "TransferTooLarge");
	peer_close(&peer);
	assert_true(rig_sessions_become(*state, 0));
}

/* A body in memory that the client never registered: the transfer fails, and with it the session.
 * Nothing is stored. */
static void test_bad_rkey(void **state)
{
	static uint8_t capsule[512] __attribute__((aligned(8)));
	struct capsule_run run = {.addr = 4096, .bytes = 100000, .rkey = 0x1234567};
	struct capsule_request request = {.request_id = 1,
		.opcode = CAPSULE_OP_PUT,
		.bucket = SLICE("b"),
		.key = SLICE("lent"),
		.body_bytes = 100000,
		.runs = &run,
		.run_count = 1};
	struct neb_client *client;
	struct peer peer = {0};
	ptrdiff_t bytes;

	peer_prove(&peer, *state);
	bytes = capsule_request_encode(&request, capsule, sizeof(capsule));
	capsule_seal(&peer.out, capsule);
	peer_send(&peer, capsule, (uint32_t)bytes);
	expect_end(&peer, *state);
	client = rig_client(*state, NEB_STRICT);
	assert_int_equal(neb_head(client, "b", "lent", NULL), -ENOENT);
	neb_client_close(client);
}

static void test_more_than_credits(void **state)
{
	static uint8_t capsule[512] __attribute__((aligned(8)));
	struct capsule_request request = {
		.opcode = CAPSULE_OP_GET, .bucket = SLICE("b"), .key = SLICE("held-x")};
	struct neb_client *client = rig_client(*state, NEB_STRICT);
	struct peer peer = {0};
	ptrdiff_t bytes;

	assert_int_equal(neb_put(client, "b", "held-x", "x", 1, NULL), 0);
	neb_client_close(client);
	assert_true(rig_sessions_become(*state, 0));
	peer_prove(&peer, *state);
	for (uint64_t i = 0; i < 5; i++) {
		request.request_id = i;
		bytes = capsule_request_encode(&request, capsule, sizeof(capsule));
		capsule_seal(&peer.out, capsule);
		peer_send(&peer, capsule, (uint32_t)bytes);
	}
	assert_false(peer_receive(&peer));
	peer_close(&peer);
	rig_release_held(*state); /* the four accepted requests end without an answer */
	assert_true(rig_sessions_become(*state, 0));
	assert_int_equal(rig_frames_used(*state), 0);
}

static void test_goodbye(void **state)
{
	struct capsule_goodbye_wire goodbye;
	struct peer peer = {0};

	peer_prove(&peer, *state);
	capsule_goodbye_finish(&goodbye, CAPSULE_BYE_CLIENT);
	capsule_seal(&peer.out, &goodbye);
	peer_send(&peer, &goodbye, sizeof(goodbye));
	expect_end(&peer, *state);
}

/* ---- Encrypted sessions. ---- */

static int setup_encrypted(void **state)
{
	const struct rig_opts opts = {.encrypted = true};

	*state = rig_open(&opts);
	return 0;
}

static void test_no_encryption_offered(void **state)
{
	struct capsule_hello_wire hello = {.version_min = 1,
		.version_max = 1,
		.credits = 4,
		.capsule_bytes = SLOT_BYTES,
		.transfer_bytes_max = MIB};
	uint8_t capsule[CAPSULE_HELLO_BYTES_MAX] __attribute__((aligned(8)));
	struct slice code, message;
	struct peer peer = {0};
	uint16_t status;
	size_t bytes;

	peer_connect(&peer, *state);
	bytes = capsule_hello_finish(&hello, SLICE(RIG_ACCESS_KEY), capsule);
	peer_send(&peer, capsule, (uint32_t)bytes);
	assert_true(peer_receive(&peer));
	assert_int_equal(
		capsule_refuse_decode(peer.received, peer.received_bytes, &status, &code, &message),
		0);
	assert_int_equal(status, 403);
	assert_true(slice_eq(code, SLICE("EncryptionRequired")));
	expect_end(&peer, *state);
}

/* A capsule that is only authenticated, on a session that encrypts. */
static void test_plain_capsule(void **state)
{
	uint8_t capsule[256] __attribute__((aligned(8)));
	struct peer peer = {.encrypted = true};
	struct capsule_cipher plain;
	size_t bytes = ping(capsule, 1);

	peer_prove(&peer, *state);
	plain = (struct capsule_cipher){.counter = peer.out.counter};
	memcpy(plain.key, peer.out.key, sizeof(plain.key));
	capsule_seal(&plain, capsule);
	peer_send(&peer, capsule, (uint32_t)bytes);
	expect_end(&peer, *state);
}

/* A PUT of 4,096 bytes from the last receive, encrypted with the counter of its request. */
static void put(struct peer *peer, uint64_t id, bool tagged, uint8_t damage)
{
	uint8_t capsule[512] __attribute__((aligned(8))), tag[AEAD_TAG_BYTES];
	uint8_t nonce[AEAD_NONCE_BYTES], *body = peer->memory + (SLOTS - 1) * SLOT_BYTES;
	struct capsule_run run = {
		.addr = (uint64_t)(uintptr_t)body, .bytes = 4096, .rkey = rp_mr_rkey(peer->mr)};
	struct capsule_request request = {.request_id = id,
		.opcode = CAPSULE_OP_PUT,
		.flags = tagged ? CAPSULE_REQUEST_TAG : 0,
		.bucket = SLICE("bucket"),
		.key = SLICE("key"),
		.body_bytes = 4096,
		.runs = &run,
		.run_count = 1,
		.payload_tag = slice_of(tag, tagged ? sizeof(tag) : 0)};
	struct aead_stream *stream;
	ptrdiff_t bytes;

	memset(body, 'x', 4096);
	capsule_payload_nonce(peer->out.counter + 1, nonce);
	assert_int_equal(aead_stream_open(peer->payload_out, nonce, true, &stream), 0);
	assert_int_equal(aead_stream_update(stream, body, body, 4096), 0);
	assert_int_equal(aead_stream_end(stream, tag), 0);
	aead_stream_close(stream);
	body[4095] ^= damage;
	bytes = capsule_request_encode(&request, capsule, sizeof(capsule));
	assert_true(bytes > 0);
	capsule_seal(&peer->out, capsule);
	peer_send(peer, capsule, (uint32_t)bytes);
}

static void test_tampered_payload(void **state)
{
	struct peer peer = {.encrypted = true};

	peer_prove(&peer, *state);
	put(&peer, 1, true, 0);
	expect_response(&peer, 1, 200, "");
	put(&peer, 2, true, 1);
	expect_response(&peer, 2, 400, "PayloadTagMismatch");
	put(&peer, 3, false, 0);
	expect_response(&peer, 3, 400, "MalformedCapsule");
	put(&peer, 4, true, 0);
	expect_response(&peer, 4, 200, "");
	peer_close(&peer);
	assert_true(rig_sessions_become(*state, 0));
}

/* A tag without encryption. */
static void test_tag_without_encryption(void **state)
{
	struct peer peer = {0};

	peer_prove(&peer, *state);
	put(&peer, 1, true, 0);
	expect_response(&peer, 1, 400, "MalformedCapsule");
	peer_close(&peer);
	assert_true(rig_sessions_become(*state, 0));
}

/* ---- Falsified set-up and requests, sealed after the change, several in flight. ---- */

#define BENT_SESSIONS 60u
#define BENT_BURSTS   24u
#define BENT_BODY     300u
#define BENT_RUNS     4u

struct bent {
	struct peer peer;
	struct prng prng;
	struct rig *rig;
	uint8_t capsule[SLOT_BYTES] __attribute__((aligned(8)));
	uint64_t ids[8]; /* of requests without a last answer */
	uint32_t id_count;
	uint64_t next_id;
};

static bool one_in(struct bent *bent, uint64_t count)
{
	return prng_below(&bent->prng, count) == 0;
}

static void byte_bend(struct bent *bent, uint64_t at)
{
	static const uint8_t edges[] = {0, 1, 2, 0x7f, 0x80, 0xff};

	bent->capsule[at] = one_in(bent, 2) ? edges[prng_below(&bent->prng, sizeof(edges))]
					    : (uint8_t)prng_next(&bent->prng);
}

/* Sends a capsule; now and then it is truncated, or has extra bytes. */
static void bent_send(struct bent *bent, size_t bytes, uint64_t whole)
{
	if (one_in(bent, whole))
		bytes = 1 + prng_below(&bent->prng, bytes + 8);
	peer_send(&bent->peer, bent->capsule, (uint32_t)bytes);
}

/* Waits for a capsule; its receive is posted again at once, because nothing overwrites it before
 * the next wait. */
static bool bent_receive(struct bent *bent)
{
	struct peer *peer = &bent->peer;
	static uint8_t kept[SLOT_BYTES] __attribute__((aligned(8)));
	uint64_t slot;

	if (!peer_receive(peer))
		return false;
	slot = (uint64_t)(peer->received - peer->memory) / SLOT_BYTES;
	memcpy(kept, peer->received, peer->received_bytes);
	peer->received = kept;
	recv_post(peer, slot);
	return true;
}

/* An unexpected capsule. If it needs keys, they are zeros. */
static void out_of_turn(struct bent *bent)
{
	struct capsule_cipher nobody = {.counter = 0};
	struct capsule_goodbye_wire *goodbye = (void *)bent->capsule;
	struct capsule_proof_wire *proof = (void *)bent->capsule;
	size_t bytes = sizeof(*goodbye);

	switch (prng_below(&bent->prng, 4)) {
	case 0:
		bytes = ping(bent->capsule, 1);
		capsule_seal(&nobody, bent->capsule);
		break;
	case 1:
		capsule_goodbye_finish(goodbye, CAPSULE_BYE_CLIENT);
		capsule_seal(&nobody, goodbye);
		break;
	case 2:
		bytes = sizeof(*proof);
		memset(proof, 0, bytes);
		capsule_proof_finish(proof, one_in(bent, 2) ? CAPSULE_PROOF : CAPSULE_WELCOME);
		break;
	default:
		bytes = 1 + prng_below(&bent->prng, 200);
		prng_fill(&bent->prng, bent->capsule, bytes);
		break;
	}
	peer_send(&bent->peer, bent->capsule, (uint32_t)bytes);
}

/* False: refused, or ended. */
static bool bent_heard(struct bent *bent, uint8_t kind)
{
	struct peer *peer = &bent->peer;
	const struct capsule_head *head;
	struct slice code, message;
	uint16_t status;

	if (!bent_receive(bent))
		return false;
	head = (const void *)peer->received;
	if (head->kind == kind)
		return true;
	assert_int_equal(capsule_refuse_decode(
				 peer->received, peer->received_bytes, &status, &code, &message),
		0);
	assert_in_range(status, 400, 503);
	return false;
}

static void bent_hello(struct bent *bent, struct capsule_hello_wire *ret_hello)
{
	struct capsule_hello_wire hello = {.version_min = 1,
		.version_max = 1,
		.credits = (uint16_t)(1 + prng_below(&bent->prng, 4)),
		.capsule_bytes = SLOT_BYTES,
		.inline_bytes = 1000,
		.features =
			CAPSULE_FEATURE_LEASES | CAPSULE_FEATURE_STREAMS | CAPSULE_FEATURE_STORE,
		.transfer_bytes_max = MIB};
	size_t bytes;

	if (one_in(bent, 3))
		hello.features |= CAPSULE_FEATURE_ENCRYPTION | CAPSULE_FEATURE_DEMAND;
	prng_fill(&bent->prng, hello.nonce, sizeof(hello.nonce));
	bytes = capsule_hello_finish(&hello, SLICE(RIG_ACCESS_KEY), bent->capsule);
	if (one_in(bent, 4))
		byte_bend(bent, prng_below(&bent->prng, bytes));
	memcpy(ret_hello, bent->capsule, bytes);
	bent_send(bent, bytes, 12);
}

/* True: the session is open. */
static bool bent_set_up(struct bent *bent)
{
	struct peer *peer = &bent->peer;
	struct capsule_proof_wire *proof = (void *)bent->capsule, welcome = {0};
	uint8_t hello[CAPSULE_HELLO_BYTES_MAX] __attribute__((aligned(8)));
	uint8_t transcript[32], key[32];

	peer_connect(peer, bent->rig);
	if (one_in(bent, 16))
		out_of_turn(bent);
	bent_hello(bent, (void *)hello);
	if (one_in(bent, 16))
		out_of_turn(bent);
	if (!bent_heard(bent, CAPSULE_CHALLENGE))
		return false;
	memcpy(&peer->challenge, peer->received, sizeof(peer->challenge));
	if (one_in(bent, 16))
		out_of_turn(bent);
	capsule_transcript((const void *)hello, &peer->challenge, transcript);
	capsule_auth_key(SLICE(RIG_SECRET_KEY), transcript, key);
	memset(proof, 0, sizeof(*proof));
	capsule_proof(key, false, proof->proof);
	capsule_proof_finish(proof, CAPSULE_PROOF);
	if (one_in(bent, 10))
		byte_bend(bent, prng_below(&bent->prng, sizeof(*proof)));
	bent_send(bent, sizeof(*proof), 12);
	if (one_in(bent, 16))
		peer_send(peer, proof, sizeof(*proof));
	if (!bent_heard(bent, CAPSULE_WELCOME))
		return false;
	capsule_proof(key, true, welcome.proof);
	assert_memory_equal(peer->received + 24, welcome.proof, sizeof(welcome.proof));
	peer->encrypted = peer->challenge.features & CAPSULE_FEATURE_ENCRYPTION;
	peer_keys(peer, key, transcript);
	return true;
}

/* The tag of a body of the session's data, right for the capsule that is sealed next. */
static void bent_tag(struct peer *peer, uint8_t ret_tag[AEAD_TAG_BYTES])
{
	uint8_t nonce[AEAD_NONCE_BYTES];
	struct aead_stream *stream;

	capsule_payload_nonce(peer->out.counter + 1, nonce);
	assert_int_equal(aead_stream_open(peer->payload_out, nonce, true, &stream), 0);
	assert_int_equal(aead_stream_update(stream, peer->data, peer->data, BENT_BODY), 0);
	assert_int_equal(aead_stream_end(stream, ret_tag), 0);
	aead_stream_close(stream);
}

/* Runs, flags and method of a request that fit its opcode and its session. */
static void bent_suit(struct bent *bent, struct capsule_request *request, struct capsule_run *runs)
{
	bool lists = request->opcode == 5, gets = request->opcode == 1;

	request->method =
		request->opcode == CAPSULE_OP_S3 ? (uint8_t)(1 + prng_below(&bent->prng, 5)) : 0;
	request->run_count = one_in(bent, lists || gets ? 2 : 4);
	if (lists && request->run_count)
		request->run_count = 1 + (uint32_t)prng_below(&bent->prng, BENT_RUNS);
	for (uint32_t i = 0; i < request->run_count; i++)
		runs[i] = (struct capsule_run){.addr = (uintptr_t)bent->peer.data + i * 8192ull,
			.bytes = 8192,
			.rkey = rp_mr_rkey(bent->peer.data_mr)};
	if (lists && one_in(bent, 2))
		request->flags |= CAPSULE_REQUEST_STREAM;
	if (gets && one_in(bent, 2)) {
		request->flags = CAPSULE_REQUEST_LEASE;
		request->query = SLICE_NONE;
		request->headers = SLICE_NONE;
		request->header_count = 0;
	}
	if (gets && one_in(bent, 2))
		request->flags |= CAPSULE_REQUEST_PARTS;
	if ((lists || gets) && !one_in(bent, 4)) {
		request->body = SLICE_NONE;
		request->body_bytes = 0;
	}
}

static size_t bent_request(struct bent *bent)
{
	static const uint8_t opcodes[] = {
		1, 1, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10, 11, 18, 19, 21, 32, 48};
	static const char body[BENT_BODY];
	static const char header[] = "\x11\0\x04\0x-amz-meta-colourblue";
	uint8_t tag[AEAD_TAG_BYTES];
	struct capsule_run runs[BENT_RUNS];
	bool headed = one_in(bent, 2);
	struct capsule_request request = {.request_id = bent->next_id++,
		.opcode = opcodes[prng_below(&bent->prng, ARRAY_LEN(opcodes))],
		.flags = one_in(bent, 2) ? CAPSULE_REQUEST_HEADERS : 0,
		.bucket = SLICE("b"),
		.key = SLICE("/b/k"),
		.query = SLICE("prefix=k&max-keys=3"),
		.headers = headed ? slice_of(header, sizeof(header) - 1) : SLICE_NONE,
		.header_count = headed,
		.runs = runs,
		.body = slice_of(body, sizeof(body)),
		.body_bytes = BENT_BODY};
	ptrdiff_t bytes;

	bent_suit(bent, &request, runs);
	if (request.run_count)
		request.body = SLICE_NONE;
	if (bent->peer.encrypted && request.run_count && request.body_bytes && !one_in(bent, 8)) {
		bent_tag(&bent->peer, tag);
		request.flags |= CAPSULE_REQUEST_TAG;
		request.payload_tag = slice_of(tag, sizeof(tag));
	}
	bytes = capsule_request_encode(&request, bent->capsule, SLOT_BYTES);
	assert_true(bytes > (ptrdiff_t)sizeof(struct capsule_request_wire));
	/* Mostly changes the fixed part, whose lengths locate everything else. */
	for (uint64_t i = prng_below(&bent->prng, 4); i > 0; i--) {
		uint64_t end = prng_below(&bent->prng, 3) ? sizeof(struct capsule_request_wire)
							  : (uint64_t)bytes - CAPSULE_TAG_BYTES;

		byte_bend(bent, 24 + prng_below(&bent->prng, end - 24));
	}
	return (size_t)bytes;
}

/* One answer to one of the requests in flight. */
static void bent_answer(struct bent *bent)
{
	struct peer *peer = &bent->peer;
	struct capsule_response response;
	uint32_t i = 0;

	assert_int_equal(capsule_unseal(&peer->in, peer->received, peer->received_bytes), 0);
	assert_int_equal(
		capsule_response_decode(peer->received, peer->received_bytes, &response), 0);
	assert_in_range(response.status, 200, 599);
	while (i < bent->id_count && bent->ids[i] != response.request_id)
		i++;
	assert_true(i < bent->id_count);
	if (!(response.flags & CAPSULE_RESPONSE_MORE))
		bent->ids[i] = bent->ids[--bent->id_count];
}

/* Sends as many requests as credits in parallel; now and then one too many, or a GOODBYE between
 * them, or the peer disconnects before the answers. Returns the number of answers; the session is
 * over if some are missing. */
static uint32_t bent_burst(struct bent *bent)
{
	uint32_t credits =
		MIN((uint32_t)bent->peer.challenge.credits, (uint32_t)ARRAY_LEN(bent->ids) - 1);
	uint32_t count = 1 + (uint32_t)prng_below(&bent->prng, credits) + one_in(bent, 120);

	bent->id_count = 0;
	for (uint32_t i = 0; i < count; i++) {
		size_t bytes = bent_request(bent);

		memcpy(&bent->ids[bent->id_count++], bent->capsule + 24, sizeof(bent->ids[0]));
		capsule_seal(&bent->peer.out, bent->capsule);
		if (one_in(bent, 300))
			bent->capsule[prng_below(&bent->prng, bytes)] ^= 1;
		bent_send(bent, bytes, 300);
	}
	if (one_in(bent, 120)) {
		capsule_goodbye_finish((void *)bent->capsule, CAPSULE_BYE_CLIENT);
		capsule_seal(&bent->peer.out, bent->capsule);
		peer_send(&bent->peer, bent->capsule, sizeof(struct capsule_goodbye_wire));
	}
	if (one_in(bent, 120))
		return 0;
	while (bent->id_count && bent_receive(bent))
		bent_answer(bent);
	return count - bent->id_count;
}

/* Each request is answered, or ends its session, like a transfer without a valid rkey. Afterwards
 * nothing of the session is left, and an object of another bucket is unchanged. */
static void test_bent_requests(void **state)
{
	static struct bent bent;
	uint32_t sessions = 0, opened = 0, answered = 0;
	char kept[64] = "kept as it was", now[64] = "";
	struct neb_client *client = rig_client(*state, NEB_STRICT);
	uint64_t until_ns = 0;

	bent.rig = *state;
	assert_int_equal(neb_put(client, "kept", "kept", kept, sizeof(kept), NULL), 0);
	neb_client_close(client);
	assert_true(rig_sessions_become(*state, 0));
	while (fuzz_next(&bent.prng, BENT_SESSIONS, &until_ns)) {
		bent.peer = (struct peer){0};
		bent.id_count = 0;
		sessions++;
		if (bent_set_up(&bent)) {
			opened++;
			for (uint32_t i = 0; i < BENT_BURSTS && !bent.id_count && !bent.peer.gone;
				i++)
				answered += bent_burst(&bent);
		}
		peer_close(&bent.peer);
		assert_true(rig_sessions_become(*state, 0));
		assert_int_equal(rig_frames_used(*state), 0);
	}
	print_message("# %u sessions, %u of them opened, %u requests answered\n", sessions, opened,
		answered);
	client = rig_client(*state, NEB_STRICT);
	assert_int_equal(neb_get(client, "kept", "kept", now, sizeof(now), NULL), 0);
	assert_memory_equal(now, kept, sizeof(kept));
	neb_client_close(client);
	assert_true(opened > sessions / 4 && answered > 5 * opened);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_not_ours, setup, teardown),
		cmocka_unit_test_setup_teardown(test_noise, setup, teardown),
		cmocka_unit_test_setup_teardown(test_request_before_proof, setup, teardown),
		cmocka_unit_test_setup_teardown(test_request_after_refusal, setup, teardown),
		cmocka_unit_test_setup_teardown(test_garbled, setup, teardown),
		cmocka_unit_test_setup_teardown(test_replayed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cut_short, setup, teardown),
		cmocka_unit_test_setup_teardown(test_malformed_content, setup, teardown),
		cmocka_unit_test_setup_teardown(test_beyond_bounds, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bad_rkey, setup, teardown),
		cmocka_unit_test_setup_teardown(test_more_than_credits, setup, teardown),
		cmocka_unit_test_setup_teardown(test_goodbye, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bent_requests, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_no_encryption_offered, setup_encrypted, teardown),
		cmocka_unit_test_setup_teardown(test_plain_capsule, setup_encrypted, teardown),
		cmocka_unit_test_setup_teardown(test_tampered_payload, setup_encrypted, teardown),
		cmocka_unit_test_setup_teardown(test_tag_without_encryption, setup, teardown),
	};

	return fuzz_done(cmocka_run_group_tests(tests, NULL, NULL));
}
