/* client/session.c: an RDMA session's life: connecting, authenticating, open, lost.
 * docs/spec/wire.md section 3. No call here sleeps: set-up goes on while the client makes
 * progress. */
#include "base/board.h"
#include "session_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* It stands still, is too busy, or there is none and the network is silent. */
#define NOBODY_ANSWERED "no server answered there in time"

/* ---- Beginning. ---- */

/* Capsules live in separate memory, for which no peer has a key. */
static int session_memory(struct client_session *session)
{
	struct rp_mr_opts opts = {.access = RP_ACCESS_LOCAL_WRITE, .fd = -1};
	uint8_t *at;
	int ret;

	session->memory_bytes =
		(uint64_t)(session->recv_count + session->slot_count) * CLIENT_CAPSULE_BYTES;
	at = mmap(NULL, session->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		-1, 0);
	if (at == MAP_FAILED)
		return -ENOMEM;
	session->memory = at;
	opts.addr = at;
	opts.bytes = session->memory_bytes;
	ret = rp_mr_open(session->device->pd, &opts, &session->mr);
	if (ret)
		return ret;
	session->lkey = rp_mr_lkey(session->mr);
	for (uint32_t i = 0; i < session->recv_count; i++, at += CLIENT_CAPSULE_BYTES)
		session->recvs[i] = (struct client_recv){.session = session, .data = at};
	for (uint32_t i = 0; i < session->slot_count; i++, at += CLIENT_CAPSULE_BYTES)
		session->slots[i].data = at;
	return 0;
}

static int session_qp(struct client_session *session)
{
	struct rp_device_attr device;
	struct rp_qp_cap cap;
	struct rp_qp_attr attr = {
		.type = RP_QP_RC,
		.send_cq = session->device->cq,
		.recv_cq = session->device->cq,
		.cap = {.max_send_wr = session->slot_count + 32,
			.max_recv_wr = session->recv_count,
			.max_send_sge = session->client->leases ? 2 : 1,
			.max_recv_sge = 1},
		.retry_count = 7,
		.rnr_retry_count = 7,
		.context = session,
	};
	int ret;

	rp_device_attr(session->device->rp, &device);
	attr.cap.max_inline_data = MIN(CLIENT_SEND_INLINE_BYTES, device.max_inline_data);
	ret = rp_qp_open(session->device->pd, &attr, &session->qp);
	if (ret)
		return ret;
	rp_qp_cap(session->qp, &cap);
	session->wr_inline_bytes = cap.max_inline_data;
	session->unsignaled_max = cap.max_send_wr / 4;
	for (uint32_t i = 0; ret == 0 && i < session->recv_count; i++)
		ret = client_recv_post(&session->recvs[i]);
	return ret;
}

static void session_free(struct client_session *session)
{
	rp_qp_close(session->qp);
	if (session->mr)
		rp_mr_close(session->mr);
	if (session->memory)
		munmap(session->memory, session->memory_bytes);
	list_remove(&session->link);
	aead_close(session->in.aead);
	aead_close(session->out.aead);
	aead_stream_close(session->spare_in);
	aead_stream_close(session->spare_out);
	secret_wipe(session, sizeof(*session));
	free(session);
}

/* The client can do without it. */
static bool is_further(const struct client_session *session)
{
	const struct client_session *best = client_path_best(session->client);

	return session->endpoint->told && best && best->phase == SESSION_OPEN;
}

static int session_connect(struct client_session *session, const char **ret_why)
{
	const struct capsule_private private_data = {.magic = CAPSULE_MAGIC,
		.version_max = CAPSULE_VERSION,
		.flags = is_further(session) ? CAPSULE_PRIVATE_FURTHER : 0};
	char *address = session->endpoint->address;
	int ret = client_resolve(
		session->endpoint->host, address, sizeof(session->endpoint->address), ret_why);

	if (ret == 0)
		ret = session_memory(session);
	if (ret == 0)
		ret = session_qp(session);
	if (ret == 0)
		ret = rp_connect(session->qp, address, session->endpoint->port, &private_data,
			sizeof(private_data), session->deadline_ns);
	return ret;
}

void client_session_begin(
	struct neb_client *client, struct client_endpoint *endpoint, struct client_session **home)
{
	struct client_session *session = calloc(1, sizeof(*session));
	const char *why = NULL;
	int ret;

	if (!session)
		return;
	session->client = client;
	session->endpoint = endpoint;
	session->device = &client->devices[endpoint->device_idx];
	session->home = home;
	session->serial = ++client->next_serial;
	session->heard = UINT64_MAX; /* nothing yet */
	session->slot_count = client->requests_max;
	session->recv_count = client->requests_max + CAPSULE_SPARE_RECEIVES + CLIENT_MORE_RECEIVES;
	session->deadline_ns = clock_now_ns() + client->connect_timeout_ns;
	list_push_back(&client->sessions, &session->link);
	ret = session_connect(session, &why);
	if (ret == 0) {
		*home = session;
		return;
	}
	client_endpoint_failed(client, endpoint, ret, why ? why : strerror(-ret));
	session_free(session);
}

/* ---- Paths. ---- */

/* The more, the better for a new call. */
static uint32_t path_room(const struct client_session *session)
{
	return session->phase == SESSION_OPEN ? 1 + session->free_count : 0;
}

struct client_session *client_path_best(const struct neb_client *client)
{
	struct client_session *best = NULL;

	/* An idle client keeps to the first path, where its leases are. */
	for (uint32_t i = 0; i < client->path_count; i++) {
		struct client_session *session = client->paths[i];

		if (session && (!best || path_room(session) > path_room(best)))
			best = session;
	}
	return best;
}

struct client_session *client_session_of(const struct neb_client *client, uint32_t serial)
{
	for (uint32_t i = 0; i < client->path_count; i++)
		if (client->paths[i] && client->paths[i]->serial == serial)
			return client->paths[i];
	LIST_FOR_EACH (link, &client->sessions) {
		struct client_session *session = CONTAINER_OF(link, struct client_session, link);

		if (session->serial == serial)
			return session;
	}
	return NULL;
}

/* Begins sessions on all paths of the client's group that have none and are due. */
static void paths_begin(struct neb_client *client, uint64_t now_ns)
{
	uint32_t path = 0;

	for (uint32_t i = 0; i < client->endpoint_count; i++) {
		struct client_endpoint *endpoint = &client->endpoints[i];

		if (endpoint->scheme != CLIENT_RDMA || endpoint->group != client->group)
			continue;
		if (!client->paths[path] && endpoint->retry_ns <= now_ns &&
			(!endpoint->told || endpoint->store_id))
			client_session_begin(client, endpoint, &client->paths[path]);
		path++;
	}
	client->path_count = path;
}

struct client_session *client_session_want(struct neb_client *client)
{
	struct client_session *best = client_path_best(client);
	uint64_t now_ns;

	if (best || !client->rdma_count)
		return best;
	now_ns = clock_now_ns();
	for (client->group = 0; client->group < client->group_count && !best; client->group++) {
		paths_begin(client, now_ns);
		best = client_path_best(client);
	}
	client->group--;
	return best;
}

void client_paths_probe(struct neb_client *client, uint64_t now_ns)
{
	if (client->path_count > 1 && client_has_path(client))
		paths_begin(client, now_ns);
}

uint32_t client_paths_now(const struct neb_client *client)
{
	uint32_t path = 0, count = 0;

	for (uint32_t i = 0; i < client->endpoint_count; i++) {
		const struct client_endpoint *endpoint = &client->endpoints[i];

		if (endpoint->scheme != CLIENT_RDMA || endpoint->group != client->group)
			continue;
		if (path < client->path_count &&
			(client->paths[path] || !endpoint->told || endpoint->store_id))
			count++;
		path++;
	}
	return count;
}

void client_paths_told(struct client_session *session)
{
	struct neb_client *client = session->client;

	if (client->group == session->endpoint->group && client_has_path(client))
		paths_begin(client, clock_now_ns());
}

/* ---- Set-up. ---- */

static void send_hello(struct client_session *session)
{
	struct neb_client *client = session->client;
	struct capsule_hello_wire hello = {
		.version_min = CAPSULE_VERSION,
		.version_max = CAPSULE_VERSION,
		.credits = (uint16_t)session->slot_count,
		.capsule_bytes = CLIENT_CAPSULE_BYTES,
		.inline_bytes = client->inline_bytes_max,
		.features = CAPSULE_FEATURE_ENCRYPTION |
			    (client->require_encryption ? CAPSULE_FEATURE_DEMAND : 0) |
			    CAPSULE_FEATURE_STREAMS | CAPSULE_FEATURE_STORE | CAPSULE_FEATURE_ONCE |
			    CAPSULE_FEATURE_PARTS |
			    (client_wants_told(session) ? CAPSULE_FEATURE_PATHS : 0) |
			    (client->leases ? CAPSULE_FEATURE_LEASES | CAPSULE_FEATURE_CLOCK : 0),
		.transfer_bytes_max = LIMIT_OBJECT_BYTES_MAX,
	};

	random_fill(hello.nonce, sizeof(hello.nonce));
	capsule_hello_finish(&hello, slice_str(client->access_key), session->hello);
	session->phase = SESSION_GREETING;
	if (client_send(session, session->hello, session->slots[0].data) != 0)
		client_session_lose(session, -ECONNRESET, "HELLO could not be sent");
}

static void on_challenge(
	struct client_session *session, const struct capsule_challenge_wire *challenge)
{
	struct neb_client *client = session->client;
	struct capsule_proof_wire proof = {0};

	if (capsule_challenge_decode(challenge, challenge->head.bytes) != 0 ||
		challenge->version != CAPSULE_VERSION ||
		(challenge->features & ~(CAPSULE_FEATURE_ENCRYPTION | CAPSULE_FEATURE_LEASES |
					       CAPSULE_FEATURE_STREAMS | CAPSULE_FEATURE_ONCE |
					       CAPSULE_FEATURE_PARTS | CAPSULE_FEATURE_PATHS)) ||
		(!client->leases && challenge->features & CAPSULE_FEATURE_LEASES) ||
		(!client_wants_told(session) && challenge->features & CAPSULE_FEATURE_PATHS) ||
		challenge->credits > session->slot_count ||
		challenge->capsule_bytes > CLIENT_CAPSULE_BYTES ||
		challenge->inline_bytes > client->inline_bytes_max) {
		client_session_lose(session, -EPROTO, "the server's CHALLENGE is malformed");
		return;
	}
	session->encrypted = challenge->features & CAPSULE_FEATURE_ENCRYPTION;
	session->streams = challenge->features & CAPSULE_FEATURE_STREAMS;
	session->leases = challenge->features & CAPSULE_FEATURE_LEASES;
	session->once = challenge->features & CAPSULE_FEATURE_ONCE;
	session->parts = challenge->features & CAPSULE_FEATURE_PARTS;
	session->paths = challenge->features & CAPSULE_FEATURE_PATHS;
	if (client->require_encryption && !session->encrypted) {
		client_session_lose(session, -EACCES, "the server does not offer encryption");
		return;
	}
	session->store_id = challenge->store_id;
	session->slot_count = challenge->credits;
	session->capsule_bytes = challenge->capsule_bytes;
	session->inline_bytes = challenge->inline_bytes;
	session->transfer_bytes_max = challenge->transfer_bytes_max;
	capsule_transcript((const void *)session->hello, challenge, session->transcript);
	capsule_auth_key(slice_str(client->secret_key), session->transcript, session->auth_key);
	capsule_proof(session->auth_key, false, proof.proof);
	capsule_proof_finish(&proof, CAPSULE_PROOF);
	session->phase = SESSION_PROVING;
	if (client_send(session, &proof, session->slots[0].data) != 0)
		client_session_lose(session, -ECONNRESET, "PROOF could not be sent");
}

static int ciphers_open(struct client_session *session, const struct capsule_keys *keys)
{
	int ret;

	memcpy(session->out.key, keys->client_tag, sizeof(session->out.key));
	memcpy(session->in.key, keys->server_tag, sizeof(session->in.key));
	if (!session->encrypted)
		return 0;
	memcpy(session->payload_out, keys->client_payload, sizeof(session->payload_out));
	memcpy(session->payload_in, keys->server_payload, sizeof(session->payload_in));
	ret = aead_open(keys->server_capsule, &session->in.aead);
	return ret ? ret : aead_open(keys->client_capsule, &session->out.aead);
}

static void on_welcome(struct client_session *session, const struct capsule_proof_wire *welcome)
{
	struct neb_client *client = session->client;
	uint8_t expected[CAPSULE_PROOF_BYTES];
	struct capsule_keys keys;
	int ret;

	capsule_proof(session->auth_key, true, expected);
	if (welcome->head.bytes != sizeof(*welcome) ||
		!secret_equal(expected, welcome->proof, sizeof(expected))) {
		client_session_lose(session, -EPROTO,
			"the server could not prove that it knows the secret key");
		return;
	}
	/* Used only now that the proof, which covers it, has been verified. Owners have a store
	 * each. */
	ret = client->owners ? 0 : client_store_learn(client, session->endpoint, session->store_id);
	if (ret) {
		client_session_lose(session, ret, session->endpoint->why);
		return;
	}
	capsule_keys_derive(session->auth_key, session->transcript, &keys);
	ret = ciphers_open(session, &keys);
	secret_wipe(&keys, sizeof(keys));
	if (ret) {
		client_session_lose(session, ret, "no memory for a session");
		return;
	}
	for (uint32_t i = 0; i < session->slot_count; i++)
		session->free_slots[i] = (uint16_t)(session->slot_count - 1 - i);
	session->free_count = session->slot_count;
	session->phase = SESSION_OPEN;
	if (!session->paths)
		client_told_none(client, session->endpoint->group);
	client->stats.sessions_opened++;
	board_add(client->paths_up_shown, 1);
	if (session->endpoint->warned)
		client_log(client, NEB_LOG_WARN, "rdma://%s:%u: back", session->endpoint->host,
			session->endpoint->port);
	session->endpoint->warned = false;
	session->endpoint->proven = true;
	session->endpoint->backoff_ns = 0;
	session->endpoint->why[0] = '\0';
	client_calls_kick(client);
}

static void on_refuse(struct client_session *session, const void *capsule, uint32_t bytes)
{
	struct slice code, message;
	char why[128];
	uint16_t status;

	if (capsule_refuse_decode(capsule, bytes, &status, &code, &message) != 0) {
		client_session_lose(session, -EPROTO, "the server's REFUSE is malformed");
		return;
	}
	snprintf(why, sizeof(why), "refused: %.*s: %.*s", SLICE_FMT(code), SLICE_FMT(message));
	client_session_lose(session, client_status_error(status), why);
}

void client_session_setup(struct client_session *session, const void *capsule, uint32_t bytes)
{
	const struct capsule_head *head = capsule;

	if (head->kind == CAPSULE_REFUSE)
		on_refuse(session, capsule, bytes);
	else if (head->kind == CAPSULE_CHALLENGE && session->phase == SESSION_GREETING)
		on_challenge(session, capsule);
	else if (head->kind == CAPSULE_WELCOME && session->phase == SESSION_PROVING)
		on_welcome(session, capsule);
	else
		client_session_lose(session, -EPROTO, "a set-up capsule came out of turn");
}

/* ---- Ending. ---- */

/* Why a connection ended, in words. */
static __attribute__((cold)) const char *gone(
	const struct client_session *session, const char *otherwise)
{
	struct rp_device_attr device;

	rp_device_attr(session->device->rp, &device);
	return device.port_lost ? "the port of our RDMA device is down" : otherwise;
}

void client_session_lose(struct client_session *session, int error, const char *why)
{
	struct neb_client *client = session->client;
	bool was_open = session->phase == SESSION_OPEN || session->phase == SESSION_LEAVING;

	if (session->phase == SESSION_LOST)
		return;
	client_log(client, NEB_LOG_INFO, "rdma://%s:%u: %s", session->endpoint->host,
		session->endpoint->port, why);
	session->phase = SESSION_LOST;
	if (*session->home == session)
		*session->home = NULL;
	if (why != session->endpoint->why)
		snprintf(session->endpoint->why, sizeof(session->endpoint->why), "%s", why);
	client_endpoint_error(client, session->endpoint, error);
	if (was_open) {
		client->stats.sessions_lost++;
		board_add(client->paths_up_shown, UINT64_MAX); /* less 1 */
		board_add(client->paths_lost_shown, 1);
	} else if (error != -ECANCELED) {
		client_endpoint_failed(client, session->endpoint, error, session->endpoint->why);
	}
	rp_disconnect(session->qp);
	/* After the close the server can no longer touch the client's memory. */
	rp_qp_close(session->qp);
	session->qp = NULL;
	list_remove(&session->link);
	list_push_back(&client->lost_sessions, &session->link);
	for (uint32_t i = 0; i < ARRAY_LEN(session->slots); i++) {
		struct client_call *call = session->slots[i].call;

		session->slots[i].call = NULL;
		if (!call)
			continue;
		if (call->opener)
			client_opened_drop(call);
		call->left = session->endpoint;
		call->repeat = call->number != 0;
		client_call_retry(call, error, session->endpoint->why);
	}
	client_calls_kick(client);
}

void client_session_broken(struct client_session *session, enum rp_status status)
{
	struct client_endpoint *endpoint = session->endpoint;

	if (status == RP_WC_WR_FLUSH_ERR) {
		client_session_lose(session, -ECONNRESET, gone(session, "the server is gone"));
	} else if (status != RP_WC_RETRY_EXC_ERR || session->phase < SESSION_OPEN) {
		client_session_lose(session, -ECONNRESET, rp_status_str(status));
	} else if (session->phase != SESSION_LOST) {
		/* Waiting requests use another endpoint at once. */
		client_session_lose(session, -EHOSTUNREACH,
			gone(session, "the server's device no longer answers"));
		client_endpoint_failed(session->client, endpoint, -EHOSTUNREACH, endpoint->why);
	}
}

/* A card's queue pair may retry for minutes, and soft-RoCE's, with a retry count of 7, for ever. So
 * after twice the keepalive time the session no longer waits for an acknowledgement. On the
 * simulated device a send waits for the peer's process, and the end of that process is reported at
 * once. */
static void session_keep(struct client_session *session, uint64_t now_ns)
{
	struct neb_client *client = session->client;
	/* Another path may take its requests: then it is worth asking sooner. */
	uint64_t quiet_ns = client->path_count > 1 ? client->keepalive_ns / CLIENT_KEEPALIVE_PARTS
						   : client->keepalive_ns;

	if (session->free_count == session->slot_count || session->in.counter != session->heard) {
		session->heard = session->in.counter;
		session->heard_ns = now_ns;
	} else if (now_ns - session->heard_ns < quiet_ns) {
		return;
	} else if (!session->keeping) {
		session->heard_ns = now_ns;
		client_keepalive_send(session);
	} else if (!session->device->simulated) {
		client_session_broken(session, RP_WC_RETRY_EXC_ERR);
	}
}

void client_sessions_keep(struct neb_client *client, uint64_t now_ns)
{
	uint64_t late_ns = now_ns - client->kept_ns;

	client->kept_ns = now_ns;
	LIST_FOR_EACH_SAFE (link, &client->sessions) {
		struct client_session *session = CONTAINER_OF(link, struct client_session, link);

		/* If this thread did not poll for a while, the silence is not the peer's. */
		if (late_ns > CLIENT_LATE_NS)
			session->heard_ns = MIN(session->heard_ns + late_ns, now_ns);
		if (session->phase == SESSION_OPEN || session->phase == SESSION_LEAVING)
			session_keep(session, now_ns);
	}
}

void client_sessions_reap(struct neb_client *client)
{
	LIST_FOR_EACH_SAFE (link, &client->lost_sessions)
		session_free(CONTAINER_OF(link, struct client_session, link));
}

static void cm_events(struct client_device *device)
{
	struct rp_cm_event event;

	while (rp_cm_poll(device->rp, &event) > 0) {
		struct client_session *session = event.qp ? rp_qp_context(event.qp) : NULL;

		if (!session || session->phase == SESSION_LOST)
			continue;
		if (event.type == RP_CM_ESTABLISHED && session->phase == SESSION_CONNECTING)
			send_hello(session);
		else if (event.type == RP_CM_REJECTED)
			client_session_lose(session, event.why ? -EACCES : -ECONNREFUSED,
				event.why ? event.why : "the connection was rejected");
		else if (event.type == RP_CM_UNREACHABLE && event.late)
			client_session_lose(session, -ETIMEDOUT, NOBODY_ANSWERED);
		else if (event.type == RP_CM_UNREACHABLE)
			client_session_lose(session, -ECONNREFUSED,
				device->simulated
					? "no server listens there on this host's simulated device"
					: "no server listens there");
		else if (event.type != RP_CM_ESTABLISHED)
			client_session_lose(
				session, -ECONNRESET, gone(session, "the server is gone"));
	}
}

void client_cm_progress(struct neb_client *client, uint64_t now_ns)
{
	client->cm_polled_ns = now_ns;
	for (uint32_t i = 0; i < client->device_count; i++)
		cm_events(&client->devices[i]);
	LIST_FOR_EACH_SAFE (link, &client->sessions) {
		struct client_session *session = CONTAINER_OF(link, struct client_session, link);

		if (session->phase < SESSION_OPEN && session->deadline_ns <= now_ns)
			client_session_lose(session, -ETIMEDOUT, NOBODY_ANSWERED);
	}
}
