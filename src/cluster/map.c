/* cluster/map.c: reads and changes the map. Every change compares what it replaces. */
#include "cluster/cluster_priv.h"
#include "codec/codec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A gateway believes what it knows of a bucket for 5 s, so after this time nobody does any more. */
#define TELL_S 7u
/* For news that a gateway which is not told finds out by itself. One that has died is not told. */
#define HINT_S	     1u
#define CHANGE_TRIES 8u
#define LEAVE_S	     10u
#define LEAVING	     "leaving" /* behind the address of a gateway's pages */

static void store_key(uint32_t number, char ret_key[RV_TABLE_KEY_BYTES])
{
	/* In the order of their numbers. */
	snprintf(ret_key, RV_TABLE_KEY_BYTES, "s/%02u", number);
}

/* Sets an entry unless it is there, and reads it. */
static int settle(struct cluster *cluster, const char *key, const char *value,
	char ret_value[RV_TABLE_VALUE_BYTES])
{
	const struct rv_table_entry none = {key, NULL}, entry = {key, value};
	int ret = rv_table_change(cluster->table, &none, 1, &entry, 1);

	if (ret && ret != -ECANCELED)
		return ret;
	return rv_table_get(cluster->table, key, ret_value);
}

static int secret_settle(struct cluster *cluster)
{
	char text[2 * CLUSTER_SECRET_BYTES + 1], found[RV_TABLE_VALUE_BYTES];
	int ret;

	random_fill(cluster->secret, sizeof(cluster->secret));
	for (uint32_t i = 0; i < CLUSTER_SECRET_BYTES; i++)
		snprintf(&text[2 * i], 3, "%02x", cluster->secret[i]);
	ret = settle(cluster, "secret", text, found);
	if (!ret && strlen(found) != 2 * CLUSTER_SECRET_BYTES)
		ret = -EUCLEAN;
	for (uint32_t i = 0; i < CLUSTER_SECRET_BYTES && !ret; i++) {
		unsigned int byte;

		if (sscanf(&found[2 * i], "%2x", &byte) != 1)
			ret = -EUCLEAN;
		else
			cluster->secret[i] = (uint8_t)byte;
	}
	secret_wipe(text, sizeof(text));
	secret_wipe(found, sizeof(found));
	return ret;
}

int cluster_open(const struct cluster_opts *opts, struct cluster **ret_cluster)
{
	struct cluster *cluster = calloc(1, sizeof(*cluster));
	char map[64], version[RV_TABLE_VALUE_BYTES];
	int ret;

	if (!cluster)
		return -ENOMEM;
	snprintf(cluster->name, sizeof(cluster->name), "%s", opts->name);
	snprintf(map, sizeof(map), "%s.map", cluster->name);
	ret = rv_table_open(&(struct rv_table_opts){.rv = opts->rv,
				    .pool = opts->pool,
				    .name = map,
				    .told = opts->told,
				    .told_arg = opts->told_arg,
				    .acks = opts->acks,
				    .watch_s = opts->watch_s},
		&cluster->table);
	if (!ret)
		ret = settle(cluster, "version", "1", version);
	if (!ret && strcmp(version, "1") != 0) {
		log_error("cluster", "the map in pool %s is of version %.20s; this program has 1",
			opts->pool, version);
		ret = -EPROTONOSUPPORT;
	} else if (!ret) {
		ret = secret_settle(cluster);
	}
	if (ret) {
		log_error("cluster", "pool %s: the map of cluster %s cannot be used: %s",
			opts->pool, opts->name, strerror(-ret));
		cluster_close(cluster);
		return ret;
	}
	*ret_cluster = cluster;
	return 0;
}

void cluster_close(struct cluster *cluster)
{
	if (!cluster)
		return;
	rv_table_close(cluster->table);
	secret_wipe(cluster, sizeof(*cluster));
	free(cluster);
}

const uint8_t *cluster_secret(const struct cluster *cluster)
{
	return cluster->secret;
}

int cluster_agree(struct cluster *cluster, const char *what, const char *digest)
{
	char found[RV_TABLE_VALUE_BYTES];
	int ret = settle(cluster, what, digest, found);

	return ret ? ret : strcmp(found, digest) == 0 ? 0 : -EPERM;
}

int cluster_watch_check(struct cluster *cluster)
{
	return rv_table_watch_check(cluster->table);
}

/* ---- Stores. ---- */

int cluster_stores_make(struct cluster *cluster, uint32_t count)
{
	const struct cluster_store fresh = {.generation = 1};
	char key[RV_TABLE_KEY_BYTES], value[RV_TABLE_VALUE_BYTES], found[RV_TABLE_VALUE_BYTES];
	int ret = 0;

	cluster_store_text(&fresh, value);
	for (uint32_t i = 0; i < count && !ret; i++) {
		store_key(i, key);
		ret = settle(cluster, key, value, found);
	}
	return ret;
}

static void store_visit(void *arg, const char *key, const char *value)
{
	struct cluster_view *view = arg;
	struct cluster_store store;
	uint64_t number;

	/* An entry that cannot be read ends the list: the stores after it have no place. */
	if (slice_to_u64(slice_from(slice_str(key), 2), &number) || number != view->store_count ||
		number >= CLUSTER_STORES_MAX)
		return;
	if (cluster_store_parse(slice_str(value), &store)) {
		log_error("cluster", "the map's entry of store %llu cannot be read: %.100s",
			(unsigned long long)number, value);
		return;
	}
	store.number = (uint32_t)number;
	view->stores[view->store_count++] = store;
}

/* Removes a gateway's entry unless it has changed since it was read. A gateway that lives after all
 * writes it again; an error is the next look's. */
static void gateway_forget(struct cluster *cluster, const char *name, const char *value)
{
	char key[RV_TABLE_KEY_BYTES];
	const struct rv_table_entry was = {key, value}, change = {key, NULL};

	snprintf(key, sizeof(key), "g/%s", name);
	(void)rv_table_change(cluster->table, &was, 1, &change, 1);
}

static void gateway_value(
	const struct cluster_gateway *gateway, char ret_value[RV_TABLE_VALUE_BYTES])
{
	snprintf(ret_value, RV_TABLE_VALUE_BYTES, "%s%s", gateway->admin[0] ? gateway->admin : "-",
		gateway->leaving ? " " LEAVING : "");
}

/* Forgets one that was read. */
static void gateway_pass(struct cluster *cluster, const struct cluster_gateway *gateway)
{
	char value[RV_TABLE_VALUE_BYTES];

	gateway_value(gateway, value);
	gateway_forget(cluster, gateway->name, value);
}

struct gateways {
	struct cluster *cluster;
	struct cluster_view *view;
	int error;
};

/* The places are for those that live; the others are shown as long as there is one left. */
static void gateway_visit(void *arg, const char *key, const char *value)
{
	struct gateways *gateways = arg;
	struct cluster_view *view = gateways->view;
	struct cluster_gateway gateway = {0}, *place = view->gateways;
	struct slice name = slice_from(slice_str(key), 2);
	struct slice rest = slice_str(value), admin = slice_split(&rest, ' ');
	uint32_t dead = 0;
	int alive;

	if (gateways->error || !cluster_name_valid(name) ||
		slice_copy_str(admin, gateway.admin, sizeof(gateway.admin)))
		return;
	gateway.leaving = slice_eq(rest, SLICE(LEAVING));
	slice_copy_str(name, gateway.name, sizeof(gateway.name));
	alive = rv_table_leased(gateways->cluster->table, gateway.name);
	gateways->error = MIN(alive, 0);
	gateway.alive = alive > 0;
	if (view->gateway_count == CLUSTER_GATEWAYS_MAX) {
		while (gateway.alive && dead < view->gateway_count && place[dead].alive)
			dead++;
		if (dead == view->gateway_count)
			return;
		if (!gateway.alive) {
			gateway_pass(gateways->cluster, &gateway);
			return;
		}
		gateway_pass(gateways->cluster, &place[dead]);
		view->gateway_count--;
		memmove(&place[dead], &place[dead + 1],
			(view->gateway_count - dead) * sizeof(*place));
	}
	view->gateways[view->gateway_count++] = gateway;
}

int cluster_view(struct cluster *cluster, struct cluster_view *ret_view)
{
	struct gateways gateways = {cluster, ret_view, 0};
	int ret;

	ret_view->store_count = ret_view->gateway_count = 0;
	ret = rv_table_list(cluster->table, "s/", store_visit, ret_view);
	if (!ret)
		ret = rv_table_list(cluster->table, "g/", gateway_visit, &gateways);
	return ret ? ret : gateways.error;
}

int cluster_store(struct cluster *cluster, uint32_t number, struct cluster_store *ret_store)
{
	char key[RV_TABLE_KEY_BYTES], value[RV_TABLE_VALUE_BYTES];
	int ret;

	store_key(number, key);
	ret = rv_table_get(cluster->table, key, value);
	if (!ret && cluster_store_parse(slice_str(value), ret_store))
		ret = -EUCLEAN;
	if (!ret)
		ret_store->number = number;
	return ret;
}

static int store_change(struct cluster *cluster, const struct cluster_store *was,
	struct cluster_store *store, char ret_told[CLUSTER_MESSAGE_BYTES])
{
	char key[RV_TABLE_KEY_BYTES], old[RV_TABLE_VALUE_BYTES], new[RV_TABLE_VALUE_BYTES];
	const struct rv_table_entry expected = {key, old}, change = {key, new};

	store->generation = was->generation + 1;
	store_key(was->number, key);
	cluster_store_text(was, old);
	cluster_store_text(store, new);
	snprintf(ret_told, CLUSTER_MESSAGE_BYTES, "s/%u %s", was->number, new);
	return rv_table_change(cluster->table, &expected, 1, &change, 1);
}

int cluster_store_change(
	struct cluster *cluster, const struct cluster_store *was, struct cluster_store *store)
{
	char told[CLUSTER_MESSAGE_BYTES];
	int ret = store_change(cluster, was, store, told);

	if (!ret)
		ret = rv_table_tell(
			cluster->table, told, store->state == CLUSTER_LEAVING ? TELL_S : HINT_S);
	return ret == -ETIMEDOUT ? 0 : ret;
}

int cluster_store_move(struct cluster *cluster, uint32_t number, const char *gateway)
{
	struct cluster_view *view = malloc(sizeof(*view));
	int ret = view ? -ECANCELED : -ENOMEM;
	bool alive = false;

	for (uint32_t tries = 0; ret == -ECANCELED && tries < CHANGE_TRIES; tries++) {
		struct cluster_store next;

		ret = cluster_view(cluster, view);
		if (ret)
			break;
		for (uint32_t i = 0; i < view->gateway_count; i++)
			alive = alive || (view->gateways[i].alive && !view->gateways[i].leaving &&
						 strcmp(view->gateways[i].name, gateway) == 0);
		if (number >= view->store_count)
			ret = -ENOENT;
		else if (!alive)
			ret = -EHOSTUNREACH;
		else if (strcmp(view->stores[number].owner, gateway) == 0)
			ret = -EALREADY;
		else if (view->stores[number].state != CLUSTER_SERVING)
			ret = -EBUSY;
		if (ret)
			break;
		next = view->stores[number];
		snprintf(next.next, sizeof(next.next), "%s", gateway);
		next.pinned = true;
		ret = cluster_store_change(cluster, &view->stores[number], &next);
	}
	free(view);
	return ret;
}

/* ---- Room. ---- */

int cluster_room_put(struct cluster *cluster, uint32_t number, const struct cluster_room *room)
{
	char key[RV_TABLE_KEY_BYTES], value[RV_TABLE_VALUE_BYTES];
	const struct rv_table_entry change = {key, value};

	snprintf(key, sizeof(key), "r/%02u", number);
	snprintf(value, sizeof(value), "%llu %llu", (unsigned long long)room->used_bytes,
		(unsigned long long)room->limit_bytes);
	return rv_table_change(cluster->table, NULL, 0, &change, 1);
}

static void room_visit(void *arg, const char *key, const char *value)
{
	struct cluster_room *rooms = arg;
	uint64_t number;

	/* It is a hint: what cannot be read says nothing. */
	if (slice_to_u64(slice_from(slice_str(key), 2), &number) == 0 &&
		number < CLUSTER_STORES_MAX)
		(void)cluster_room_parse(slice_str(value), &rooms[number]);
}

int cluster_rooms(struct cluster *cluster, struct cluster_room ret_rooms[CLUSTER_STORES_MAX])
{
	memset(ret_rooms, 0, CLUSTER_STORES_MAX * sizeof(*ret_rooms));
	return rv_table_list(cluster->table, "r/", room_visit, ret_rooms);
}

int cluster_store_bytes(struct cluster *cluster, uint32_t number, uint64_t *ret_bytes)
{
	char name[64];

	cluster_volume_name(cluster->name, number, name);
	return rv_table_volume_bytes(cluster->table, name, ret_bytes);
}

/* ---- Gateways. ---- */

int cluster_live(struct cluster *cluster, const struct cluster_gateway *gateway, uint32_t seconds)
{
	char key[RV_TABLE_KEY_BYTES], found[RV_TABLE_VALUE_BYTES], value[RV_TABLE_VALUE_BYTES];
	const struct rv_table_entry entry = {key, value};
	int ret = rv_table_lease(cluster->table, gateway->name, seconds);

	if (ret)
		return ret == -EEXIST ? -EBUSY : ret;
	snprintf(key, sizeof(key), "g/%s", gateway->name);
	gateway_value(gateway, value);
	ret = rv_table_get(cluster->table, key, found);
	if (ret == -ENOENT || (!ret && strcmp(found, entry.value) != 0))
		ret = rv_table_change(cluster->table, NULL, 0, &entry, 1);
	return ret;
}

void cluster_leave(struct cluster *cluster, const char *gateway)
{
	char key[RV_TABLE_KEY_BYTES], found[RV_TABLE_VALUE_BYTES];

	/* Under the lease: without it the entry may be another process's of this name. */
	snprintf(key, sizeof(key), "g/%s", gateway);
	if (!rv_table_lease(cluster->table, gateway, LEAVE_S) &&
		!rv_table_get(cluster->table, key, found))
		gateway_forget(cluster, gateway, found);
	rv_table_lease_end(cluster->table, gateway);
}

/* 1: another gateway than this lives; 0: none; -errno. */
static int others_live(struct cluster *cluster, const char *gateway)
{
	struct cluster_view *view = malloc(sizeof(*view));
	int ret = view ? cluster_view(cluster, view) : -ENOMEM;

	for (uint32_t i = 0; !ret && i < view->gateway_count; i++)
		if (view->gateways[i].alive && strcmp(view->gateways[i].name, gateway) != 0)
			ret = 1;
	free(view);
	return ret;
}

int cluster_links_agree(struct cluster *cluster, const char *gateway, bool tls)
{
	char found[RV_TABLE_VALUE_BYTES];
	const struct rv_table_entry want = {"links", tls ? "tls" : NULL}, had = {"links", found};
	const struct rv_table_entry none = {"links", NULL};
	int ret = rv_table_get(cluster->table, "links", found);
	bool missing = ret == -ENOENT;

	if ((ret && !missing) || !missing == tls)
		return missing ? 0 : ret;
	ret = others_live(cluster, gateway);
	if (ret)
		return ret < 0 ? ret : -EPERM;
	ret = rv_table_change(cluster->table, missing ? &none : &had, 1, &want, 1);
	return ret == -ECANCELED ? -EPERM : ret;
}

/* ---- Buckets. ---- */

static void bucket_key(const char *bucket, char ret_key[RV_TABLE_KEY_BYTES])
{
	snprintf(ret_key, RV_TABLE_KEY_BYTES, "b/%s", bucket);
}

int cluster_bucket(struct cluster *cluster, const char *bucket, uint32_t *ret_store)
{
	char key[RV_TABLE_KEY_BYTES], value[RV_TABLE_VALUE_BYTES];
	uint64_t number;
	int ret;

	bucket_key(bucket, key);
	ret = rv_table_get(cluster->table, key, value);
	if (ret)
		return ret;
	if (slice_to_u64(slice_str(value), &number) || number >= CLUSTER_STORES_MAX)
		return -EUCLEAN;
	*ret_store = (uint32_t)number;
	return 0;
}

int cluster_bucket_claim(struct cluster *cluster, const char *bucket, uint32_t store)
{
	char key[RV_TABLE_KEY_BYTES], value[16], found[RV_TABLE_VALUE_BYTES];
	int ret;

	bucket_key(bucket, key);
	snprintf(value, sizeof(value), "%u", store);
	ret = settle(cluster, key, value, found);
	return ret ? ret : strcmp(found, value) == 0 ? 0 : -EEXIST;
}

int cluster_bucket_release(struct cluster *cluster, const char *bucket, uint32_t store)
{
	char key[RV_TABLE_KEY_BYTES], value[16];
	const struct rv_table_entry expected = {key, value}, change = {key, NULL};
	int ret;

	bucket_key(bucket, key);
	snprintf(value, sizeof(value), "%u", store);
	ret = rv_table_change(cluster->table, &expected, 1, &change, 1);
	if (ret == -ECANCELED)
		return 0; /* it has no entry of this store */
	if (!ret)
		ret = rv_table_tell(cluster->table, key, TELL_S);
	return ret == -ETIMEDOUT ? 0 : ret;
}
