/* client/bucket.c: where the owner of a bucket's store is, as a gateway told it last. */
#include "call_priv.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Sets of four; names with the same hash bits share a set. */
#define SETS_LOG2 6u
#define SETS	  (1u << SETS_LOG2)
#define SET_WAYS  4u

struct client_buckets {
	uint64_t told;
	struct client_bucket list[SETS * SET_WAYS];
};

int client_buckets_open(struct neb_client *client)
{
	client->buckets = calloc(1, sizeof(*client->buckets));
	return client->buckets ? 0 : -ENOMEM;
}

void client_buckets_close(struct neb_client *client)
{
	free(client->buckets);
	client->buckets = NULL;
}

uint64_t client_buckets_told(const struct neb_client *client)
{
	return client->buckets->told;
}

static struct client_bucket *set_of(struct client_buckets *buckets, struct slice name)
{
	/* The checksums of numbered names differ in few bits: the multiplication spreads them. */
	uint32_t set_idx = crc32c_update(0, name.data, name.len) * 0x9e3779b1u >> (32 - SETS_LOG2);

	return &buckets->list[set_idx * SET_WAYS];
}

static struct client_bucket *find(struct client_buckets *buckets, struct slice name)
{
	struct client_bucket *set = set_of(buckets, name);

	for (uint32_t i = 0; i < SET_WAYS; i++)
		if (set[i].owner[0] && slice_eq(slice_str(set[i].name), name))
			return &set[i];
	return NULL;
}

const struct client_bucket *client_bucket_find(const struct neb_client *client, struct slice name)
{
	return find(client->buckets, name);
}

/* An address in digits: a name would have to be looked up. */
static bool is_address(struct slice text)
{
	for (size_t i = 0; i < text.len; i++)
		if (!isxdigit((unsigned char)text.data[i]) && !strchr(".:[]", text.data[i]))
			return false;
	return text.len > 0;
}

void client_bucket_told(struct client_call *call, struct slice address)
{
	struct client_buckets *buckets = call->client->buckets;
	struct client_bucket *set = set_of(buckets, call->bucket);
	struct client_bucket *place = find(buckets, call->bucket);

	if (!is_address(address))
		return;
	for (uint32_t i = 0; i < SET_WAYS && !place; i++)
		if (!set[i].owner[0])
			place = &set[i];
	if (!place) /* each in turn */
		place = &set[buckets->told % SET_WAYS];
	place->told = ++buckets->told;
	if (slice_copy_str(call->bucket, place->name, sizeof(place->name)) ||
		slice_copy_str(address, place->owner, sizeof(place->owner)))
		place->owner[0] = '\0';
}

bool client_bucket_gone(const struct client_call *call)
{
	const struct neb_result *result = &call->result;
	bool gone = result->status == 404 && strcmp(result->code, "NoSuchBucket") == 0;
	struct client_bucket *bucket = find(call->client->buckets, call->bucket);

	if (result->transport != NEB_RDMA || (!gone && result->status != 503))
		return false;
	if (bucket)
		bucket->owner[0] = '\0';
	return gone && !(call->pages && call->pages->count);
}
