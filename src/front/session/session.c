/* front/session/session.c: a session of the native front: its phases from accepted to reaped.
 * docs/spec/wire.md section 3. Slow path. */
#include "front/session/native_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

DEFINE_COUNTER(sessions_opened, "nebulaio_native_sessions_total", "result=\"opened\"",
	"Sessions of the native front by how set-up ended.");
DEFINE_COUNTER(sessions_refused, "nebulaio_native_sessions_total", "result=\"refused\"",
	"Sessions of the native front by how set-up ended.");
DEFINE_COUNTER(sessions_yielded, "nebulaio_native_sessions_total", "result=\"yielded\"",
	"Sessions of the native front by how set-up ended.");
DEFINE_COUNTER(sessions_now, "nebulaio_native_sessions", NULL,
	"Sessions of the native front now, those being set up included.");

/* ---- Beginning. ---- */

static int recv_lease(struct native_session *session, uint32_t bytes, struct region_span *ret_span)
{
	struct native_places *places = session->front->port->places;
	uint32_t frames = region_frames_for(bytes);
	int ret = -ENOBUFS;

	if (atomic_fetch_add(&places->recv_frames, frames) + frames <= places->recv_frames_max)
		ret = flow_lease_lasting(session->front->opts.core, frames, OWNER_RDMA, ret_span);
	if (ret)
		atomic_fetch_sub(&places->recv_frames, frames);
	return ret;
}

static void recv_give(struct native_session *session, struct native_recv *recv)
{
	uint32_t had = atomic_fetch_sub(
		&session->front->port->places->recv_frames, recv->span.frame_count);

	CHECK(had >= recv->span.frame_count);
	region_give(session->front->region, recv->span, OWNER_RDMA);
}

static int recvs_post(struct native_session *session, uint32_t from, uint32_t to, uint32_t bytes)
{
	for (uint32_t i = from; i < to; i++) {
		struct native_recv *recv = &session->recvs[i];
		int ret;

		recv->session = session;
		ret = recv_lease(session, bytes, &recv->span);
		if (ret == 0)
			ret = native_recv_post(recv);
		if (ret)
			return ret;
	}
	return 0;
}

static int session_qp_open(struct native_session *session)
{
	struct front_native *front = session->front;
	struct rp_qp_attr attr = {
		.type = RP_QP_RC,
		.send_cq = front->cq,
		.recv_cq = front->cq,
		.cap = {.max_send_wr = front->send_wrs,
			.max_recv_wr = session->recv_count,
			.max_send_sge = MAX(front->opts.max_sge, 1u),
			.max_recv_sge = MAX(front->opts.max_sge, 1u),
			.max_inline_data =
				MIN(front->opts.max_inline_data, front->attr.max_inline_data)},
		.retry_count = front->opts.retry_count,
		.rnr_retry_count = front->opts.rnr_retry_count,
		.timeout_us = front->opts.ack_timeout_us,
		.context = session,
	};
	struct rp_qp_cap cap;
	int ret = rp_qp_open(front->port->pd, &attr, &session->qp);

	if (ret)
		return ret;
	rp_qp_cap(session->qp, &cap);
	session->wr_inline_bytes = MIN(cap.max_inline_data, NATIVE_INLINE_WR_BYTES);
	session->unsignaled_max = cap.max_send_wr / NATIVE_UNSIGNALED_PART;
	return rp_qp_target(session->qp, front->region, &session->target);
}

/* Ring work on it that has not ended is cancelled, so that the fibers that wait for it continue. */
static void queue_pair_close(struct native_session *session)
{
	struct rp_qp *qp = session->qp;

	native_leases_close(session);
	pthread_mutex_lock(&session->front->port->lock);
	session->qp = NULL;
	rp_qp_close(qp);
	pthread_mutex_unlock(&session->front->port->lock);
}

static void session_free(struct native_session *session)
{
	struct front_native *front = session->front;
	struct list *link;

	native_session_check(session);
	CHECK(!session->in_flight && !session->proof_running);
	queue_pair_close(session);
	if (session->abandoned)
		region_target_free(front->region, session->target);
	while ((link = list_pop(&session->sends)) != NULL)
		native_send_give(front, CONTAINER_OF(link, struct native_send, link));
	for (uint32_t i = 0; session->recvs && i < session->recv_count; i++)
		if (session->recvs[i].span.data)
			recv_give(session, &session->recvs[i]);
	list_remove(&session->link);
	front->session_count--;
	if (session->proven)
		front->port->places->share_sessions[session->share]--;
	else
		front->unproven_count--;
	counter_sub(&sessions_now, 1);
	aead_close(session->in.aead);
	aead_close(session->out.aead);
	aead_stream_close(session->spare_in);
	aead_stream_close(session->spare_out);
	secret_wipe(&session->in, sizeof(session->in));
	secret_wipe(&session->out, sizeof(session->out));
	secret_wipe(session->payload_in, sizeof(session->payload_in));
	secret_wipe(session->payload_out, sizeof(session->payload_out));
	free(session->recvs);
	magic_clear(&session->magic);
	free(session);
}

static struct native_session *session_new(struct front_native *front, const char *peer)
{
	struct native_session *session = calloc(1, sizeof(*session));

	if (!session) {
		front->session_count--;
		front->unproven_count--;
		return NULL;
	}
	session->magic = NATIVE_SESSION_MAGIC;
	session->front = front;
	session->credits = front->opts.credits;
	session->recv_count = session->credits + CAPSULE_SPARE_RECEIVES;
	session->recvs = calloc(session->recv_count, sizeof(*session->recvs));
	session->last_ns = session->accepted_ns = reactor_now_ns(front->reactor);
	session->id = atomic_fetch_add(&front->port->places->next_id, 1) + 1;
	memcpy(session->peer, peer, sizeof(session->peer));
	session->peer[sizeof(session->peer) - 1] = '\0';
	list_init(&session->closing);
	list_init(&session->requests);
	list_init(&session->sends);
	list_push_back(&front->sessions, &session->link);
	counter_add(&sessions_now, 1);
	if (session->recvs)
		return session;
	session_free(session);
	return NULL;
}

int native_session_accept(struct front_native *front, const struct rp_cm_event *event)
{
	const struct capsule_private answer = {
		.magic = CAPSULE_MAGIC, .version_max = CAPSULE_VERSION};
	struct native_session *session = session_new(front, event->peer);
	int ret;

	if (!session)
		return -ENOMEM;
	ret = session_qp_open(session);
	if (ret == 0)
		ret = recvs_post(session, 0, CAPSULE_SPARE_RECEIVES, front->capsule_bytes);
	if (ret == 0)
		ret = rp_accept(event->request, session->qp, &answer, sizeof(answer));
	if (ret == 0)
		return 0;
	session_free(session);
	return ret;
}

/* ---- Set-up. ---- */

/* Uses a frame when the capsule does not fit inline in a work request. */
static void capsule_post(struct native_session *session, void *capsule, bool sealed)
{
	struct front_native *front = session->front;
	uint32_t bytes = ((const struct capsule_head *)capsule)->bytes;
	struct native_out out = {.capsule = capsule, .sealed = sealed, .wait = true};

	if (bytes > session->wr_inline_bytes) {
		if (region_lease(front->region, 1, OWNER_RDMA, &out.span) != 0) {
			native_session_fail(session, "no frame for a set-up capsule");
			return;
		}
		memcpy(out.span.data, capsule, bytes);
		out.capsule = out.span.data;
	}
	native_send_capsule(session, &out);
}

static void setup_send(struct native_session *session, void *capsule)
{
	capsule_post(session, capsule, false);
}

static void refuse(
	struct native_session *session, uint16_t status, const char *code, const char *message)
{
	uint8_t capsule[CAPSULE_BYTES_MIN] __attribute__((aligned(8)));

	log_limited(LOG_INFO, "rdma", "%s: session refused: %s", session->peer, code);
	counter_add(&sessions_refused, 1);
	capsule_refuse_encode(
		status, slice_str(code), slice_str(message), capsule, sizeof(capsule));
	/* Draining makes the send signaled: when the client has received it, the session ends. */
	session->phase = NATIVE_DRAINING;
	setup_send(session, capsule);
	native_session_settle(session);
}

/* The addresses that the session's client may be told, as many as are returned. */
static uint32_t addresses_of(const struct native_session *session,
	struct capsule_address ret_addresses[CAPSULE_ADDRESSES_MAX])
{
	const struct native_places *places = session->front->port->places;
	uint32_t count = 0;

	/* Loopback leads another host to itself. */
	for (uint32_t i = 0; i < places->address_count; i++) {
		const struct capsule_address *address = &places->addresses[i];

		if (capsule_address_is_loopback(address) && !session->front->attr.simulated)
			continue;
		if (ret_addresses)
			ret_addresses[count] = *address;
		count++;
	}
	return count;
}

/* PATHS, if CHALLENGE has announced it. */
static void addresses_send(struct native_session *session)
{
	struct capsule_address addresses[CAPSULE_ADDRESSES_MAX];
	uint8_t capsule[CAPSULE_PATHS_BYTES_MAX] __attribute__((aligned(8)));

	if (session->phase != NATIVE_OPEN || !(session->challenge.features & CAPSULE_FEATURE_PATHS))
		return;
	capsule_paths_encode(addresses, addresses_of(session, addresses), capsule);
	capsule_post(session, capsule, true);
}

static void on_hello(struct native_session *session, struct native_recv *recv)
{
	const struct front_native *front = session->front;
	const struct capsule_hello_wire *hello = (const void *)recv->span.data;
	struct slice access_key;
	uint32_t capsule_bytes, wanted;

	if (recv->bytes > sizeof(session->hello) ||
		capsule_hello_decode(hello, recv->bytes, &access_key) != 0) {
		native_session_fail(session, "HELLO is malformed");
		return;
	}
	if (hello->version_min > CAPSULE_VERSION || hello->version_max < CAPSULE_VERSION) {
		refuse(session, 400, "UnsupportedVersion", "This server speaks version 1.");
		return;
	}
	session->encrypted =
		front->opts.encryption_required || (hello->features & CAPSULE_FEATURE_DEMAND);
	if (session->encrypted && !(hello->features & CAPSULE_FEATURE_ENCRYPTION)) {
		refuse(session, 403, "EncryptionRequired", "This server requires encryption.");
		return;
	}
	/* Leased copies are not encrypted. */
	session->leases = !session->encrypted && front->opts.lease_bytes && front->attr.windows &&
			  (hello->features & CAPSULE_FEATURE_LEASES);
	session->looks = hello->features & CAPSULE_FEATURE_CLOCK;
	/* An encrypted body uses the nonce of its request, and a request has only one. */
	session->streams = !session->encrypted && (hello->features & CAPSULE_FEATURE_STREAMS);
	session->parts = session->encrypted && (hello->features & CAPSULE_FEATURE_PARTS);
	memcpy(session->hello, hello, recv->bytes);
	wanted = hello->features;
	capsule_bytes = MIN(hello->capsule_bytes, front->capsule_bytes);
	session->challenge = (struct capsule_challenge_wire){
		.version = CAPSULE_VERSION,
		.credits = (uint16_t)MIN((uint32_t)hello->credits, session->credits),
		.capsule_bytes = capsule_bytes,
		.inline_bytes = MIN(
			hello->inline_bytes, MIN(front->opts.inline_bytes_max, capsule_bytes / 2)),
		.features = (session->encrypted ? CAPSULE_FEATURE_ENCRYPTION : 0) |
			    (session->leases ? CAPSULE_FEATURE_LEASES : 0) |
			    (session->streams ? CAPSULE_FEATURE_STREAMS : 0) |
			    (session->parts ? CAPSULE_FEATURE_PARTS : 0) |
			    (addresses_of(session, NULL) ? wanted & CAPSULE_FEATURE_PATHS : 0) |
			    (wanted & CAPSULE_FEATURE_ONCE),
		.transfer_bytes_max = MIN(hello->transfer_bytes_max, LIMIT_PUT_BYTES_MAX),
		.session_id = session->id,
		.store_id = hello->features & CAPSULE_FEATURE_STORE ? front->opts.store_id : 0,
	};
	random_fill(session->challenge.nonce, sizeof(session->challenge.nonce));
	capsule_challenge_finish(&session->challenge);
	session->credits = session->challenge.credits;
	session->capsule_bytes = capsule_bytes;
	session->inline_bytes = session->challenge.inline_bytes;
	session->transfer_bytes_max = session->challenge.transfer_bytes_max;
	session->phase = NATIVE_PROVING;
	setup_send(session, &session->challenge);
}

/* -ENOMEM: no cipher. */
static int ciphers_open(struct native_session *session, const struct capsule_keys *keys)
{
	int ret;

	memcpy(session->in.key, keys->client_tag, sizeof(session->in.key));
	memcpy(session->out.key, keys->server_tag, sizeof(session->out.key));
	if (!session->encrypted)
		return 0;
	memcpy(session->payload_in, keys->client_payload, sizeof(session->payload_in));
	memcpy(session->payload_out, keys->server_payload, sizeof(session->payload_out));
	ret = aead_open(keys->client_capsule, &session->in.aead);
	return ret ? ret : aead_open(keys->server_capsule, &session->out.aead);
}

static void session_tell(const struct native_session *session)
{
	struct rp_qp_info info;
	char text[RP_QP_INFO_TEXT_BYTES];

	/* Asking the device is a system call. */
	if (log_level_now > LOG_DEBUG)
		return;
	rp_qp_info(session->qp, &info);
	rp_qp_info_text(&info, text, sizeof(text));
	log_debug("rdma", "%s: session %llu of %s, %s", session->peer,
		(unsigned long long)session->id, session->identity.access_key, text);
}

static void open_session(
	struct native_session *session, const uint8_t auth_key[32], const uint8_t transcript[32])
{
	struct capsule_proof_wire welcome;
	struct capsule_keys keys;
	int ret;

	if (recvs_post(session, CAPSULE_SPARE_RECEIVES, session->credits + CAPSULE_SPARE_RECEIVES,
		    session->capsule_bytes) != 0) {
		refuse(session, 503, "SlowDown", "The server has no buffers for another session.");
		return;
	}
	capsule_keys_derive(auth_key, transcript, &keys);
	ret = ciphers_open(session, &keys);
	secret_wipe(&keys, sizeof(keys));
	if (ret) {
		refuse(session, 503, "SlowDown", "The server has no memory for another session.");
		return;
	}
	capsule_proof(auth_key, true, welcome.proof);
	capsule_proof_finish(&welcome, CAPSULE_WELCOME);
	session->phase = NATIVE_OPEN;
	session->proven = true;
	session->front->unproven_count--;
	session->front->port->places->share_sessions[session->share]++;
	counter_add(&sessions_opened, 1);
	session_tell(session);
	setup_send(session, &welcome);
	addresses_send(session);
}

/* Whether the places that are left are for other keys: one client of many processes, or a hostile
 * one, must not keep all others out. */
static bool is_kept_for_others(const struct native_session *session)
{
	const struct native_places *places = session->front->port->places;
	uint32_t max = session->front->opts.sessions_max, part = max / NATIVE_LAST_PARTS;
	uint32_t total = native_places_taken(places);

	/* It is counted itself. */
	return part && total > max - part &&
	       places->share_sessions[session->share] > max - MIN(total, max);
}

static void prove(struct native_session *session, const struct capsule_proof_wire *proof)
{
	const struct capsule_hello_wire *hello = (const void *)session->hello;
	uint8_t transcript[32], auth_key[32], expected[CAPSULE_PROOF_BYTES];
	struct slice access_key;
	int ret = capsule_hello_decode(hello, hello->head.bytes, &access_key);

	CHECK(ret == 0); /* as at its arrival */
	capsule_transcript(hello, &session->challenge, transcript);
	ret = s3_session_key(session->front->opts.s3, access_key,
		slice_of(transcript, sizeof(transcript)), auth_key, &session->identity);
	native_session_check(session);
	if (session->phase != NATIVE_PROVING)
		return;
	if (ret) {
		refuse(session, 403, "InvalidAccessKeyId",
			"The AWS Access Key Id you provided does not exist in our records.");
	} else {
		capsule_proof(auth_key, false, expected);
		session->share = flow_share_of(session->front->opts.core->budget, access_key);
		if (!secret_equal(expected, proof->proof, sizeof(expected)))
			refuse(session, 403, "SignatureDoesNotMatch",
				"The proof does not fit the secret key of this access key.");
		else if (is_kept_for_others(session))
			refuse(session, 503, "SlowDown",
				"This access key has many sessions; the last ones are for others.");
		else
			open_session(session, auth_key, transcript);
	}
	secret_wipe(auth_key, sizeof(auth_key));
}

/* A key's look-up may wait, so a fiber checks the proof. The fiber keeps the session until its last
 * send is posted. */
static void prove_fiber(void *arg)
{
	struct native_recv *recv = arg;
	struct native_session *session = recv->session;
	struct capsule_proof_wire proof;

	native_session_check(session);
	memcpy(&proof, recv->span.data, sizeof(proof));
	if (session->phase == NATIVE_PROVING && native_recv_post(recv) != 0)
		native_session_fail(session, "a receive could not be posted");
	prove(session, &proof);
	session->proof_running = false;
	native_session_settle(session);
}

void native_session_setup(struct native_session *session, struct native_recv *recv, uint32_t bytes)
{
	const struct capsule_head *head = (const void *)recv->span.data;

	if (head->counter != 0) {
		native_session_fail(session, "a set-up capsule has a counter");
	} else if (head->kind == CAPSULE_HELLO && session->phase == NATIVE_ACCEPTED) {
		on_hello(session, recv);
		if (session->phase != NATIVE_FAILED && native_recv_post(recv) != 0)
			native_session_fail(session, "a receive could not be posted");
	} else if (head->kind == CAPSULE_PROOF && session->phase == NATIVE_PROVING &&
		   !session->proof_running && bytes == sizeof(struct capsule_proof_wire)) {
		session->proof_running = true;
		if (fiber_spawn(session->front->reactor, "native-proof", prove_fiber, recv) != 0) {
			session->proof_running = false;
			native_session_fail(session, "no fiber for a proof");
		}
	} else {
		native_session_fail(session, "a set-up capsule is malformed or out of turn");
	}
}

/* ---- Ending. ---- */

/* False: the send queue is full; the next completion tries again. */
static bool goodbye_send(struct native_session *session, uint32_t reason)
{
	struct front_native *front = session->front;
	uint8_t capsule[sizeof(struct capsule_goodbye_wire)] __attribute__((aligned(8)));
	struct native_out out = {.capsule = capsule, .sealed = true};

	if (sizeof(capsule) > session->wr_inline_bytes) {
		/* Without a frame, the client sees only the end of the connection. */
		if (region_lease(front->region, 1, OWNER_RDMA, &out.span))
			return true;
		out.capsule = out.span.data;
	}
	capsule_goodbye_finish(out.capsule, (enum capsule_goodbye_reason)reason);
	return native_send_capsule(session, &out) != -ENOMEM;
}

void native_session_settle(struct native_session *session)
{
	native_session_check(session);
	if (session->goodbye_owed && session->phase == NATIVE_DRAINING &&
		goodbye_send(session, session->goodbye_owed))
		session->goodbye_owed = 0;
	if (session->phase == NATIVE_DRAINING && session->in_flight == 0 &&
		session->sends_signaled == 0)
		native_session_fail(session, NULL);
	if (session->phase == NATIVE_FAILED && session->in_flight == 0 &&
		session->recvs_posted == 0 && session->sends_signaled == 0 &&
		!session->proof_running && list_empty(&session->closing))
		list_push_back(&session->front->closing, &session->closing);
}

void native_session_fail(struct native_session *session, const char *why)
{
	native_session_check(session);
	if (session->phase == NATIVE_FAILED)
		return;
	if (why && session->proven)
		log_info("rdma", "%s: session ends: %s", session->peer, why);
	else if (why)
		log_limited(LOG_INFO, "rdma", "%s: session ends: %s", session->peer, why);
	session->phase = NATIVE_FAILED;
	session->failed_ns = reactor_now_ns(session->front->reactor);
	rp_disconnect(session->qp);
	rp_qp_error(session->qp);
	native_send_wake(session);
	native_session_settle(session);
}

void native_session_abandon(struct native_session *session)
{
	struct list *link;

	CHECK(session->phase == NATIVE_FAILED);
	if (!session->qp)
		return;
	/* Else only a request that still runs keeps the session. */
	if (session->recvs_posted || session->sends_signaled)
		log_error("rdma",
			"%s: the device %s has not completed the work of a broken queue pair: %u "
			"receives, %u sends; the server destroys it nevertheless",
			session->peer, session->front->attr.name, session->recvs_posted,
			session->sends_signaled);
	/* A request that runs may still post to it. */
	region_target_keep(session->front->region, session->target);
	session->abandoned = true;
	queue_pair_close(session);
	while ((link = list_pop(&session->sends)) != NULL)
		native_send_give(session->front, CONTAINER_OF(link, struct native_send, link));
	session->recvs_posted = 0;
	session->sends_signaled = 0;
	native_session_settle(session);
}

bool native_session_yield(struct front_native *front)
{
	uint64_t now_ns = reactor_now_ns(front->reactor);

	/* Oldest first. */
	LIST_FOR_EACH (link, &front->sessions) {
		struct native_session *session = CONTAINER_OF(link, struct native_session, link);

		if (session->proven || session->phase == NATIVE_FAILED)
			continue;
		if (now_ns < session->accepted_ns + NATIVE_YIELD_NS)
			return false;
		counter_add(&sessions_yielded, 1);
		native_session_fail(session,
			"it has not yet proven a key, and another session needs its place");
		return true;
	}
	return false;
}

/* Clients come and go: only one that leaves unfinished requests is logged above debug level. */
void native_session_gone(struct native_session *session)
{
	if (session->phase == NATIVE_FAILED)
		return;
	if (session->in_flight == 0) {
		log_debug("rdma", "%s: the client closed its session", session->peer);
		native_session_fail(session, NULL);
	} else {
		native_session_fail(session, "the client is gone, with requests in flight");
	}
}

void native_session_broken(struct native_session *session, enum rp_status status)
{
	if (status == RP_WC_WR_FLUSH_ERR)
		native_session_gone(session);
	else
		native_session_fail(session, rp_status_str(status));
}

void native_session_drain(struct native_session *session, enum capsule_goodbye_reason reason)
{
	if (session->phase == NATIVE_FAILED || session->phase == NATIVE_DRAINING)
		return;
	if (session->phase != NATIVE_OPEN) {
		native_session_fail(session, NULL);
		return;
	}
	session->last_ns = reactor_now_ns(session->front->reactor);
	session->phase = NATIVE_DRAINING;
	if (reason != CAPSULE_BYE_CLIENT && !goodbye_send(session, reason))
		session->goodbye_owed = reason;
	native_session_settle(session);
}

uint32_t native_sessions_reap(struct front_native *front)
{
	struct list *closing;
	uint32_t count = 0;

	while ((closing = list_pop(&front->closing)) != NULL) {
		session_free(CONTAINER_OF(closing, struct native_session, closing));
		count++;
	}
	if (count && front->drain_waiter)
		fiber_wake(front->drain_waiter);
	return count;
}
