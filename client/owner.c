/* client/owner.c: the stores of a cluster: which process owns the store of a bucket, and one
 * session with each such process. A gateway tells it with an answer over HTTP; docs/spec/wire.md,
 * "Owners".
 *
 * An owner that ends or loses its store ends its sessions, and an address is tried once for each
 * time that a gateway has told it: so a client goes back to the gateway, which knows better. */
#include "session_priv.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct client_owner {
	char address[CLIENT_OWNER_ADDR_BYTES]; /* as a gateway tells it; empty: none */
	struct client_endpoint endpoint;
	struct client_session *session; /* for new calls */
	uint64_t told;			/* how often owners were told when it began */
	uint64_t used;			/* number of its last use */
};

struct client_owners {
	uint64_t uses;
	struct client_owner list[CLIENT_OWNERS_MAX];
};

int client_owners_open(struct neb_client *client)
{
	client->owners = calloc(1, sizeof(*client->owners));
	return client->owners ? client_buckets_open(client) : -ENOMEM;
}

void client_owners_close(struct neb_client *client)
{
	client_buckets_close(client);
	free(client->owners);
	client->owners = NULL;
}

/* The cluster decides which buckets there are, and a copy's source may be in another store: such
 * requests go to a gateway. */
static bool for_owner(const struct client_call *call)
{
	switch (call->op) {
	case NEB_S3:
	case NEB_PING:
	case NEB_COPY_OBJECT:
	case NEB_LIST_BUCKETS:
	case NEB_CREATE_BUCKET:
	case NEB_DELETE_BUCKET:
		return false;
	default:
		return call->bucket.len > 0;
	}
}

/* ---- Owners. ---- */

/* Whether a session still has calls, or its set-up goes on. */
static bool in_use(const struct neb_client *client, const struct client_owner *owner)
{
	LIST_FOR_EACH (link, &client->sessions) {
		const struct client_session *session =
			CONTAINER_OF(link, struct client_session, link);

		if (session->endpoint == &owner->endpoint &&
			(session->phase != SESSION_OPEN ||
				session->free_count < session->slot_count))
			return true;
	}
	return false;
}

/* The owner at this address; else a free one, or the one unused for the longest time. NULL: all are
 * in use. */
static struct client_owner *owner_at(struct neb_client *client, const char *address)
{
	struct client_owner *list = client->owners->list, *oldest = NULL;
	struct client_endpoint endpoint = {.scheme = CLIENT_RDMA};

	for (uint32_t i = 0; i < CLIENT_OWNERS_MAX; i++)
		if (strcmp(list[i].address, address) == 0)
			return &list[i];
	for (uint32_t i = 0; i < CLIENT_OWNERS_MAX; i++)
		if ((!oldest || list[i].used < oldest->used) && !in_use(client, &list[i]))
			oldest = &list[i];
	if (!oldest || client_endpoint_at(client, &endpoint, slice_str(address)) || !endpoint.port)
		return NULL;
	if (oldest->session)
		client_session_lose(
			oldest->session, -ECONNRESET, "closed in favour of another owner's");
	*oldest = (struct client_owner){.endpoint = endpoint};
	slice_copy_str(slice_str(address), oldest->address, sizeof(oldest->address));
	return oldest;
}

/* ---- Calls. ---- */

bool client_owner_route(struct client_call *call, const char **ret_why)
{
	struct neb_client *client = call->client;
	const struct client_bucket *bucket =
		for_owner(call) ? client_bucket_find(client, call->bucket) : NULL;
	struct client_owner *owner = bucket ? owner_at(client, bucket->owner) : NULL;
	int ret;

	if (!owner)
		return false;
	owner->used = ++client->owners->uses;
	if (!owner->session && bucket->told > owner->told &&
		owner->endpoint.retry_ns <= clock_now_ns()) {
		owner->told = client_buckets_told(client);
		client_session_begin(client, &owner->endpoint, &owner->session);
	}
	if (owner->session && owner->session->phase != SESSION_OPEN)
		return true;
	if (!owner->session) {
		*ret_why = owner->endpoint.why[0] ? owner->endpoint.why
						  : "the owner ended its session";
		return false;
	}
	ret = client_session_start(owner->session, call);
	if (ret == 0 || ret == -EAGAIN)
		return true;
	*ret_why = ret == -EMSGSIZE ? "the request does not fit a capsule" : strerror(-ret);
	return false;
}
