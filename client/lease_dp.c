/* client/lease_dp.c: objects that are asked for again and again are read from the server's memory,
 * by one RDMA READ of a slot: its generation and the body (docs/spec/wire.md section 8). The
 * granted generation proves that the key still held this object during the read; the checksum
 * proves that the bytes are the object's. If one of them does not match, the request goes to the
 * server. Data path.
 */
#include "base/life.h"
#include "session_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The table of objects: sets of four; names with the same hash bits share a set. */
#define SETS_LOG2 10u
#define SETS	  (1u << SETS_LOG2)
#define SET_WAYS  4u

/* An object that was asked for once, or (serial not 0) is leased. */
struct client_lease {
	uint64_t hash;	   /* 0: none */
	uint32_t serial;   /* of the session that has the lease */
	uint64_t until_ns; /* CLOCK_BOOTTIME */
	uint64_t stale_ns; /* the same by CLOCK_MONOTONIC: later, if the host slept */
	uint64_t bytes;
	struct capsule_lease grant;
	uint8_t etag_len;
	char etag[CAPSULE_ETAG_LEN_MAX];
	uint32_t name_len, name_room;
	char *name; /* bucket, '/', key; only of a leased object */
};

int client_leases_open(struct neb_client *client)
{
	client->leases = calloc((size_t)SETS * SET_WAYS, sizeof(*client->leases));
	return client->leases ? 0 : -ENOMEM;
}

void client_leases_close(struct neb_client *client)
{
	for (uint32_t i = 0; client->leases && i < SETS * SET_WAYS; i++)
		free(client->leases[i].name);
	free(client->leases);
	client->leases = NULL;
}

static uint64_t hash_of(const struct client_call *call)
{
	return slice_hash_fixed(call->key, slice_hash_fixed(call->bucket, 0)) | 1;
}

static bool is_plain(const struct client_call *call)
{
	return call->op == NEB_GET_OBJECT && !call->header_count && !call->version_id.len &&
	       !call->query.len && !call->range_bytes && !call->want_headers && !call->body_bytes &&
	       call->into_bytes && !call->internal;
}

static bool name_is(const struct client_lease *lease, const struct client_call *call)
{
	return lease->name_len == call->bucket.len + 1 + call->key.len &&
	       memcmp(lease->name, call->bucket.data, call->bucket.len) == 0 &&
	       memcmp(lease->name + call->bucket.len + 1, call->key.data, call->key.len) == 0;
}

/* Where the body goes: the caller's own memory if it is registered, else memory of the pool. */
static bool landing_find(struct client_call *call, uint32_t *ret_lkey)
{
	uint64_t bytes = call->landing_bytes;

	call->landing = call->into[0].data;
	if (call->into[0].bytes >= bytes &&
		client_memory_lkey(call, call->landing, bytes, ret_lkey))
		return true;
	call->bounce = client_pool_get(call->client, bytes);
	call->landing = call->bounce;
	return call->bounce && client_memory_lkey(call, call->landing, bytes, ret_lkey);
}

static bool read_post(struct client_session *session, struct client_call *call, uint32_t slot_idx)
{
	const struct client_lease *lease = call->lease;
	struct rp_sge sges[2] = {
		{.addr = (uint64_t)(uintptr_t)session->slots[slot_idx].data,
			.length = sizeof(struct capsule_slot),
			.lkey = session->lkey},
		{.length = (uint32_t)lease->bytes},
	};
	struct rp_send_wr wr = {
		.wr_id = (uint64_t)session->serial << 32 | CLIENT_WR_READ | slot_idx,
		.opcode = RP_READ,
		.flags = RP_SEND_SIGNALED,
		.sg_list = sges,
		.sge_count = 2,
		.remote_addr = lease->grant.addr,
		.rkey = lease->grant.rkey};
	uint32_t posted;

	/* Before the read ends, the lease may be renewed, or its place may go to another object. */
	call->grant = lease->grant;
	call->grant_until_ns = lease->until_ns;
	call->landing_bytes = lease->bytes;
	memcpy(call->result.etag, lease->etag, lease->etag_len);
	call->result.etag[lease->etag_len] = '\0';
	if (landing_find(call, &sges[1].lkey)) {
		sges[1].addr = (uint64_t)(uintptr_t)call->landing;
		if (rp_post_send(session->qp, &wr, 1, &posted) == 0)
			return true;
	}
	client_runs_end(call, 0);
	return false;
}

/* Finds the object's place, or a new one: an empty one, else one without a lease, else each in
 * turn. */
static struct client_lease *lease_find(struct client_call *call, uint64_t hash, bool *ret_known)
{
	struct client_lease *set = &call->client->leases[(hash >> (64 - SETS_LOG2)) * SET_WAYS];
	struct client_lease *victim = &set[call->client->next_id % SET_WAYS];

	*ret_known = true;
	for (uint32_t i = 0; i < SET_WAYS; i++) {
		if (set[i].hash == hash)
			return &set[i];
		if (!set[i].hash || (victim->serial && victim->hash &&
					    (!set[i].serial || set[i].stale_ns <= call->begun_ns)))
			victim = &set[i];
	}
	*ret_known = false;
	return victim;
}

/* The session that has the lease: it may be another path's, with keys of its own. */
static struct client_session *lease_session(
	const struct client_lease *lease, struct client_session *session)
{
	struct client_session *other;

	if (lease->serial == session->serial || !lease->serial)
		return session;
	other = client_session_of(session->client, lease->serial);
	return other && other->phase == SESSION_OPEN && other->free_count ? other : session;
}

bool client_lease_read(struct client_session *session, struct client_call *call)
{
	struct client_lease *lease;
	uint32_t slot_idx;
	uint64_t hash;
	bool known;

	call->lease = NULL;
	if (!is_plain(call))
		return false;
	hash = hash_of(call);
	lease = lease_find(call, hash, &known);
	if (!known) {
		/* If it is asked for again, it is worth a lease. */
		lease->hash = hash;
		lease->serial = 0;
		return false;
	}
	call->lease = lease;
	session = lease_session(lease, session);
	call->device_idx = session->endpoint->device_idx;
	if (lease->serial != session->serial || !name_is(lease, call) ||
		call->begun_ns >= lease->stale_ns || call->into_bytes < lease->bytes)
		return false;
	slot_idx = session->free_slots[session->free_count - 1];
	if (!read_post(session, call, slot_idx))
		return false;
	session->free_count--;
	session->slots[slot_idx].call = call;
	call->slot_idx = slot_idx;
	call->session = session;
	call->phase = CLIENT_ON_RDMA;
	list_remove(&call->link);
	list_push_back(&call->client->running, &call->link);
	return true;
}

static bool name_take(struct client_lease *lease, const struct client_call *call)
{
	uint32_t len = (uint32_t)(call->bucket.len + 1 + call->key.len);

	if (lease->name_room < len) {
		char *name = realloc(lease->name, len);

		if (!name)
			return false;
		lease->name = name;
		lease->name_room = len;
	}
	lease->name_len = len;
	memcpy(lease->name, call->bucket.data, call->bucket.len);
	lease->name[call->bucket.len] = '/';
	memcpy(lease->name + call->bucket.len + 1, call->key.data, call->key.len);
	return true;
}

void client_lease_take(struct client_session *session, struct client_call *call,
	const struct capsule_response *response)
{
	struct client_lease *lease = call->lease;

	/* Another object may have taken the place meanwhile. */
	if (!response->lease.len || lease->hash != hash_of(call) || response->status != 200 ||
		!response->bytes_total || response->etag.len > sizeof(lease->etag))
		return;
	lease->serial = 0;
	if (!name_take(lease, call))
		return;
	memcpy(&lease->grant, response->lease.data, sizeof(lease->grant));
	lease->bytes = response->bytes_total;
	lease->serial = session->serial;
	/* Counted from the request, so that it ends before the server's own time does. */
	lease->until_ns = call->lease_asked_ns + lease->grant.lease_ms * NS_PER_MS;
	lease->stale_ns = call->begun_ns + lease->grant.lease_ms * NS_PER_MS;
	lease->etag_len = (uint8_t)response->etag.len;
	memcpy(lease->etag, response->etag.data, response->etag.len);
	call->client->stats.leases++;
}

/* The clock comes after the read. While the lease lasts no other server can have the store, so the
 * generation was a word of the store's owner. After it, the server may have been stopped, and
 * another one have changed the object without clearing the generation here. */
static bool read_holds(const struct client_session *session, const struct client_call *call)
{
	const struct capsule_slot *slot = (const void *)session->slots[call->slot_idx].data;

	return slot->generation == call->grant.generation &&
	       clock_boot_ns() < call->grant_until_ns &&
	       crc64nvme_update(0, call->landing, call->landing_bytes) == call->grant.crc64nvme;
}

static void read_answer(struct client_call *call)
{
	struct neb_result *result = &call->result;

	result->status = 200;
	result->transport = NEB_RDMA;
	result->one_sided = true;
	result->bytes = call->landing_bytes;
	result->object_bytes = call->landing_bytes;
	call->client->stats.requests_rdma++;
	call->client->stats.one_sided_reads++;
	client_runs_end(call, call->landing_bytes);
	client_call_finish(call, 0);
}

void client_lease_landed(struct client_session *session, uint32_t slot_idx, const struct rp_wc *wc)
{
	struct client_slot *slot = &session->slots[slot_idx];
	struct client_call *call = slot->call;

	if (session->phase == SESSION_LOST || !call)
		return;
	if (wc->status != RP_WC_SUCCESS) {
		client_session_broken(session, wc->status);
		return;
	}
	slot->call = NULL;
	slot->generation++;
	session->free_slots[session->free_count++] = (uint16_t)slot_idx;
	if (read_holds(session, call)) {
		read_answer(call);
	} else {
		/* The request goes to the server, which may grant a new lease. */
		call->client->stats.one_sided_misses++;
		call->result.etag[0] = '\0';
		if (call->lease->grant.generation == call->grant.generation)
			call->lease->serial = 0;
		client_runs_end(call, 0);
		call->session = NULL;
		call->phase = CLIENT_QUEUED;
		list_remove(&call->link);
		list_push_front(&call->client->queued, &call->link);
	}
	if (!list_empty(&session->client->queued))
		client_calls_kick(session->client);
}
