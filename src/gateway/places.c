/* gateway/places.c: shares things among clients: no key and no address holds all of them. */
#include "gateway/gateway_priv.h"

/* A key may always have this part, and an address all but the other part. */
#define KEY_PART     64u
#define ADDRESS_PART 8u

static uint16_t number_of(struct slice text)
{
	return (uint16_t)(crc32c_update(0, text.data, text.len) % GW_CLIENTS);
}

/* The key that the request claims, until its date; empty: none. */
static struct slice key_of(const struct s3_request *request)
{
	struct slice who = gw_header(request, SLICE("authorization"));
	ptrdiff_t at = slice_find(who, SLICE("Credential="));

	if (at < 0) {
		who = request->query;
		at = slice_find(who, SLICE("X-Amz-Credential="));
	}
	if (at < 0)
		return SLICE_NONE;
	who = slice_from(who, (size_t)at);
	slice_split(&who, '=');
	if (slice_find(who, SLICE("%2F")) > 0)
		who = slice_to(who, (size_t)slice_find(who, SLICE("%2F")));
	return slice_split(&who, '/');
}

/* A client may claim another key in each request, or have many; so its address counts, too. Clients
 * behind one proxy have one address, so that may have more than a key. */
struct gw_client gw_client_of(const struct s3_request *request)
{
	struct slice key = key_of(request);
	char room[FLOW_PEER_BYTES];

	return (struct gw_client){
		.key = number_of(key),
		.has_key = key.len != 0,
		.address = number_of(flow_peer_name(slice_str(request->peer), room)),
	};
}

bool gw_place_take(struct gw_places *places, const struct gw_client *client)
{
	uint32_t max = places->max, left = max - places->busy;
	uint32_t of_key = client->has_key ? places->of_key[client->key] : 0;

	if (!left || places->of_address[client->address] >= max - max / ADDRESS_PART ||
		(of_key >= MAX(max / KEY_PART, 1u) && of_key >= left))
		return false;
	places->busy++;
	places->of_address[client->address]++;
	places->of_key[client->key] += client->has_key;
	return true;
}

void gw_place_give(struct gw_places *places, const struct gw_client *client)
{
	CHECK(places->busy && places->of_address[client->address]);
	CHECK(!client->has_key || places->of_key[client->key]);
	places->busy--;
	places->of_address[client->address]--;
	places->of_key[client->key] -= client->has_key;
}
