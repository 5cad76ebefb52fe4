/* cluster/entry.c: the text of the map's entries, and of the messages about them. */
#include "cluster/cluster.h"

#include <errno.h>
#include <stdio.h>

#define VERSION "1"
#define NONE	"-"

static const char *const STATES[] = {[CLUSTER_FREE] = "free",
	[CLUSTER_OPENING] = "opening",
	[CLUSTER_SERVING] = "serving",
	[CLUSTER_LEAVING] = "leaving"};

const char *cluster_state_name(enum cluster_state state)
{
	return STATES[state];
}

bool cluster_name_valid(struct slice name)
{
	return name.len && name.len <= CLUSTER_NAME_LEN_MAX && slice_is_word(name, "._-") &&
	       !slice_eq(name, SLICE(NONE));
}

/* "-" is none. */
static int name_take(struct slice text, char ret_name[CLUSTER_NAME_LEN_MAX + 1])
{
	ret_name[0] = '\0';
	if (slice_eq(text, SLICE(NONE)))
		return 0;
	return cluster_name_valid(text) ? slice_copy_str(text, ret_name, CLUSTER_NAME_LEN_MAX + 1)
					: -EINVAL;
}

/* "ADDR:PORT"; it goes into command lines and JSON of this program only. */
static int addr_take(struct slice text, char ret_addr[CLUSTER_ADDR_BYTES])
{
	const struct slice allowed =
		SLICE("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRST"
		      "UVWXYZ.-_:[]%");
	uint64_t port;
	const char *colon;

	ret_addr[0] = '\0';
	if (slice_eq(text, SLICE(NONE)))
		return 0;
	for (size_t i = 0; i < text.len; i++)
		if (!memchr(allowed.data, text.data[i], allowed.len))
			return -EINVAL;
	colon = text.len ? memrchr(text.data, ':', text.len) : NULL;
	if (!colon || slice_to_u64(slice_from(text, (size_t)(colon + 1 - text.data)), &port) ||
		!port || port > UINT16_MAX)
		return -EINVAL;
	return slice_copy_str(text, ret_addr, CLUSTER_ADDR_BYTES) ? -EINVAL : 0;
}

static int state_take(struct slice text, enum cluster_state *ret_state)
{
	for (uint32_t i = 0; i < ARRAY_LEN(STATES); i++) {
		if (slice_eq(text, slice_str(STATES[i]))) {
			*ret_state = (enum cluster_state)i;
			return 0;
		}
	}
	return -EINVAL;
}

int cluster_store_parse(struct slice text, struct cluster_store *ret_store)
{
	struct cluster_store store = {0};
	struct slice pinned;
	int ret = 0;

	if (text.len >= RV_TABLE_VALUE_BYTES || !slice_eq(slice_split(&text, ' '), SLICE(VERSION)))
		return -EINVAL;
	ret = slice_to_u64(slice_split(&text, ' '), &store.generation);
	if (!ret)
		ret = state_take(slice_split(&text, ' '), &store.state);
	pinned = slice_split(&text, ' ');
	store.pinned = slice_eq(pinned, SLICE("pinned"));
	if (!ret && !store.pinned && !slice_eq(pinned, SLICE(NONE)))
		ret = -EINVAL;
	if (!ret)
		ret = name_take(slice_split(&text, ' '), store.owner);
	if (!ret)
		ret = name_take(slice_split(&text, ' '), store.next);
	if (!ret)
		ret = addr_take(slice_split(&text, ' '), store.http);
	if (!ret)
		ret = addr_take(text, store.rdma);
	/* Only a free store has no owner, and one that serves does so somewhere. */
	if (!ret && ((store.state == CLUSTER_FREE) != !store.owner[0] ||
			    (store.state == CLUSTER_SERVING && !store.http[0])))
		ret = -EINVAL;
	if (ret)
		return -EINVAL;
	*ret_store = store;
	return 0;
}

static const char *or_none(const char *text)
{
	return text[0] ? text : NONE;
}

void cluster_store_text(const struct cluster_store *store, char ret_text[RV_TABLE_VALUE_BYTES])
{
	snprintf(ret_text, RV_TABLE_VALUE_BYTES, VERSION " %llu %s %s %s %s %s %s",
		(unsigned long long)store->generation, STATES[store->state],
		store->pinned ? "pinned" : NONE, or_none(store->owner), or_none(store->next),
		or_none(store->http), or_none(store->rdma));
}

int cluster_room_parse(struct slice text, struct cluster_room *ret_room)
{
	struct cluster_room room;

	if (slice_to_u64(slice_split(&text, ' '), &room.used_bytes) ||
		slice_to_u64(text, &room.limit_bytes))
		return -EINVAL;
	*ret_room = room;
	return 0;
}

void cluster_volume_name(const char *cluster, uint32_t number, char ret_name[64])
{
	snprintf(ret_name, 64, "%.48s.%u", cluster, number);
}

/* "s/NUMBER VALUE", "b/BUCKET", "accounts" */
enum cluster_news cluster_told(
	struct slice text, struct cluster_store *ret_store, struct slice *ret_bucket)
{
	struct slice number;
	uint64_t value;

	if (slice_starts(text, SLICE("b/"))) {
		*ret_bucket = slice_from(text, 2);
		return CLUSTER_NEWS_BUCKET;
	}
	if (slice_eq(text, SLICE("accounts")))
		return CLUSTER_NEWS_ACCOUNTS;
	if (!slice_starts(text, SLICE("s/")))
		return CLUSTER_NEWS_ALL;
	text = slice_from(text, 2);
	number = slice_split(&text, ' ');
	if (slice_to_u64(number, &value) || value >= CLUSTER_STORES_MAX ||
		cluster_store_parse(text, ret_store))
		return CLUSTER_NEWS_ALL;
	ret_store->number = (uint32_t)value;
	return CLUSTER_NEWS_STORE;
}
