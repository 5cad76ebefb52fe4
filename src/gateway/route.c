/* gateway/route.c: which store a request is for, and where that store's process is. */
#include "gateway/gateway_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "codec/codec.h"

/* A key that is percent-encoded, its bucket and version, and the start of a URL. */
#define SOURCE_BYTES_MAX (4 * KIB)

void gw_routes_init(struct gw_routes *routes)
{
	pthread_rwlock_init(&routes->lock, NULL);
	pthread_mutex_init(&routes->buckets_lock, NULL);
}

/* ---- The view. ---- */

void gw_routes_set(struct gateway *gateway, const struct cluster_view *view)
{
	struct gw_routes *routes = &gateway->routes;

	pthread_rwlock_wrlock(&routes->lock);
	/* News that came while the view was read is newer than the view. */
	for (uint32_t i = 0; i < view->store_count; i++)
		if (i >= routes->view.store_count ||
			view->stores[i].generation >= routes->view.stores[i].generation)
			routes->view.stores[i] = view->stores[i];
	routes->view.store_count = MAX(view->store_count, routes->view.store_count);
	routes->view.gateway_count = view->gateway_count;
	memcpy(routes->view.gateways, view->gateways, sizeof(view->gateways));
	routes->known = true;
	pthread_rwlock_unlock(&routes->lock);
}

void gw_admins_set(struct gateway *gateway)
{
	struct gw_routes *routes = &gateway->routes;

	pthread_rwlock_wrlock(&routes->lock);
	for (uint32_t i = 0; i < CLUSTER_STORES_MAX; i++) {
		const struct gw_child *child = &gateway->children[i];

		snprintf(routes->admins[i], sizeof(routes->admins[i]), "%s",
			child->pid && child->ready ? child->admin : "");
	}
	pthread_rwlock_unlock(&routes->lock);
}

uint32_t gw_stores(struct gateway *gateway)
{
	uint32_t count;

	pthread_rwlock_rdlock(&gateway->routes.lock);
	count = gateway->routes.view.store_count;
	pthread_rwlock_unlock(&gateway->routes.lock);
	return count;
}

bool gw_store(struct gateway *gateway, uint32_t number, struct cluster_store *ret_store)
{
	bool known;

	pthread_rwlock_rdlock(&gateway->routes.lock);
	known = number < gateway->routes.view.store_count;
	if (known)
		*ret_store = gateway->routes.view.stores[number];
	pthread_rwlock_unlock(&gateway->routes.lock);
	return known;
}

int gw_store_await(struct gateway *gateway, uint32_t number, uint64_t deadline_ns,
	struct cluster_store *ret_store)
{
	while (!gw_store(gateway, number, ret_store) || ret_store->state != CLUSTER_SERVING) {
		if (clock_now_ns() >= deadline_ns || gateway->draining_ns)
			return -ETIMEDOUT;
		fiber_sleep_ns(GW_LOOK_NS);
	}
	return 0;
}

/* ---- Buckets. ---- */

static struct gw_bucket *slot_of(struct gw_routes *routes, struct slice name)
{
	return &routes->buckets[crc32c_update(0, name.data, name.len) % GW_BUCKETS_CACHED];
}

static void buckets_forget(struct gw_routes *routes, struct slice name)
{
	pthread_mutex_lock(&routes->buckets_lock);
	routes->forgets++;
	if (name.len)
		slot_of(routes, name)->name[0] = '\0';
	else
		memset(routes->buckets, 0, sizeof(routes->buckets));
	pthread_mutex_unlock(&routes->buckets_lock);
}

/* On a thread of librados: nothing here waits for another host. */
void gw_routes_told(void *arg, struct slice text)
{
	struct gateway *gateway = arg;
	struct gw_routes *routes = &gateway->routes;
	struct cluster_store store;
	struct slice bucket;

	switch (cluster_told(text, &store, &bucket)) {
	case CLUSTER_NEWS_BUCKET:
		buckets_forget(routes, bucket);
		return;
	case CLUSTER_NEWS_STORE:
		pthread_rwlock_wrlock(&routes->lock);
		if (store.number < routes->view.store_count &&
			store.generation > routes->view.stores[store.number].generation)
			routes->view.stores[store.number] = store;
		pthread_rwlock_unlock(&routes->lock);
		break;
	case CLUSTER_NEWS_ACCOUNTS:
		return; /* of the stores' processes */
	case CLUSTER_NEWS_ALL:
		buckets_forget(routes, SLICE_NONE);
		break;
	}
	gw_keeper_wake(gateway);
}

struct lookup {
	struct gateway *gateway;
	const char *bucket;
	uint32_t store;
	int ret;
};

static void lookup_run(void *arg)
{
	struct lookup *lookup = arg;

	lookup->ret = cluster_bucket(lookup->gateway->cluster, lookup->bucket, &lookup->store);
}

int gw_bucket_store(struct gateway *gateway, const char *bucket, uint32_t *ret_store)
{
	struct lookup lookup = {.gateway = gateway, .bucket = bucket};
	struct gw_routes *routes = &gateway->routes;
	struct gw_bucket *slot = slot_of(routes, slice_str(bucket));
	uint64_t now_ns = clock_now_ns(), forgets;
	bool found;

	pthread_mutex_lock(&routes->buckets_lock);
	found = strcmp(slot->name, bucket) == 0 && now_ns < slot->until_ns;
	if (found)
		*ret_store = slot->store;
	forgets = routes->forgets;
	pthread_mutex_unlock(&routes->buckets_lock);
	if (found)
		return 0;
	fiber_offload_long(lookup_run, &lookup);
	if (lookup.ret)
		return lookup.ret;
	*ret_store = lookup.store;
	pthread_mutex_lock(&routes->buckets_lock);
	if (forgets == routes->forgets) {
		*slot = (struct gw_bucket){
			.store = lookup.store, .until_ns = now_ns + GW_BUCKET_NS};
		snprintf(slot->name, sizeof(slot->name), "%s", bucket);
	}
	pthread_mutex_unlock(&routes->buckets_lock);
	return 0;
}

/* The text before the first slash, which may be percent-encoded. */
static struct slice before_slash(struct slice text)
{
	static const struct slice SLASHES[] = {SLICE("/"), SLICE("%2F"), SLICE("%2f")};

	for (size_t i = 0; i < ARRAY_LEN(SLASHES); i++) {
		ptrdiff_t at = slice_find(text, SLASHES[i]);

		if (at >= 0)
			text = slice_to(text, (size_t)at);
	}
	return text;
}

/* "bucket/key", "/bucket/key" or a URL with such a path. */
static struct slice bucket_part(struct slice source)
{
	if (slice_starts(source, SLICE("http://")) || slice_starts(source, SLICE("https://"))) {
		source = slice_from(source, (size_t)slice_find(source, SLICE("//")) + 2);
		slice_split(&source, '/');
	}
	if (slice_starts(source, SLICE("%2F")) || slice_starts(source, SLICE("%2f")))
		source = slice_from(source, 3);
	else if (slice_starts(source, SLICE("/")))
		source = slice_from(source, 1);
	return before_slash(source);
}

int gw_store_of_path(struct gateway *gateway, struct slice path, uint32_t *store)
{
	struct slice bucket = bucket_part(path);
	char text[LIMIT_BUCKET_LEN_MAX + 1];
	uint32_t found;
	size_t len;
	int ret;

	if (uri_decode(bucket, 0, text, sizeof(text) - 1, &len))
		return 0;
	bucket = slice_of(text, len);
	text[len] = '\0';
	/* The store refuses what is not a bucket, and says that there is none of the name. */
	if (!s3_bucket_name_valid(bucket) && !slice_ends(bucket, SLICE("-x-s3")))
		return 0;
	ret = gw_bucket_store(gateway, text, &found);
	if (!ret)
		*store = found;
	return ret == -ENOENT ? 0 : ret;
}

_Static_assert(CLUSTER_STORES_MAX <= 64, "a bit for each store");

/* Stores of one pool share its room: of those without a limit of their own the one that uses least
 * has the most. */
static uint64_t room_of(const struct cluster_room *room)
{
	uint64_t limit = room->limit_bytes ? room->limit_bytes : UINT64_MAX;

	return limit - MIN(room->used_bytes, limit);
}

void gw_rooms_set(struct gw_routes *routes, const struct cluster_view *view,
	const struct cluster_room rooms[CLUSTER_STORES_MAX])
{
	uint64_t most = 0, roomy = 0;

	for (uint32_t i = 0; i < view->store_count; i++) {
		atomic_store(&routes->used[i], rooms[i].used_bytes);
		if (view->stores[i].state == CLUSTER_SERVING)
			most = MAX(most, room_of(&rooms[i]));
	}
	for (uint32_t i = 0; i < view->store_count; i++)
		if (view->stores[i].state == CLUSTER_SERVING &&
			most - room_of(&rooms[i]) < GW_ROOM_BYTES)
			roomy |= 1ull << i;
	atomic_store(&routes->roomy, roomy);
}

uint32_t gw_roomy_store(struct gateway *gateway)
{
	uint64_t roomy = atomic_load(&gateway->routes.roomy);
	uint32_t count = (uint32_t)__builtin_popcountll(roomy), turn;

	if (!count)
		return 0;
	for (turn = atomic_fetch_add(&gateway->routes.turn, 1) % count; turn; turn--)
		roomy &= roomy - 1;
	return (uint32_t)__builtin_ctzll(roomy);
}

/* ---- Requests. ---- */

struct slice gw_header(const struct s3_request *request, struct slice name)
{
	for (uint32_t i = 0; i < request->header_count; i++)
		if (slice_eq_nocase(request->headers[i].name, name))
			return request->headers[i].value.data ? request->headers[i].value
							      : SLICE("");
	return SLICE_NONE;
}

/* As it stands in the query; NULL: it is not there. */
static struct slice param_of(const struct s3_request *request, struct slice name, bool any_case)
{
	struct slice rest = request->query;

	while (rest.len) {
		struct slice value = slice_split(&rest, '&'), found = slice_split(&value, '=');

		if (any_case ? slice_eq_nocase(found, name) : slice_eq(found, name))
			return value.data ? value : SLICE("");
	}
	return SLICE_NONE;
}

/* The same rule as s3's: otherwise a store takes no parameter as a header. */
static bool is_presigned(const struct s3_request *request)
{
	return !gw_header(request, SLICE("authorization")).data &&
	       (param_of(request, SLICE("X-Amz-Signature"), false).data ||
		       (param_of(request, SLICE("Signature"), false).data &&
			       param_of(request, SLICE("AWSAccessKeyId"), false).data));
}

int gw_copy_store(struct gateway *gateway, const struct s3_request *request, uint32_t *store)
{
	static const struct slice NAME = SLICE("x-amz-copy-source");
	struct slice source = gw_header(request, NAME);
	char text[SOURCE_BYTES_MAX];
	size_t len;

	if (!source.data && is_presigned(request)) {
		source = param_of(request, NAME, true);
		/* The store refuses what cannot be decoded, or is longer than any key. */
		if (uri_decode(source, URI_PLUS_IS_SPACE, text, sizeof(text), &len))
			return 0;
		source = slice_of(text, len);
	}
	return gw_store_of_path(gateway, source, store);
}

bool gw_of_account(const struct s3_request *request)
{
	return slice_starts(request->path, SLICE("/v20180820/")) &&
	       gw_header(request, SLICE("x-amz-account-id")).data;
}

/* The same rule as s3's: "bucket.DOMAIN". */
static struct slice host_bucket(const struct s3_request *request, struct slice domain)
{
	struct slice rest = gw_header(request, SLICE("host")), host = slice_split(&rest, ':');

	if (!domain.len || host.len < domain.len + 2 ||
		!slice_eq_nocase(slice_from(host, host.len - domain.len), domain) ||
		host.data[host.len - domain.len - 1] != '.')
		return SLICE_NONE;
	return slice_to(host, host.len - domain.len - 1);
}

struct slice gw_host_bucket(const struct gateway *gateway, const struct s3_request *request)
{
	const struct config *config = gateway->config;
	/* One domain may end in the other. */
	struct slice bucket = host_bucket(request, slice_str(config->s3.website_domain));

	return bucket.len ? bucket : host_bucket(request, slice_str(config->s3.domain));
}

struct slice gw_bucket_of(const struct gateway *gateway, const struct s3_request *request,
	char ret_text[LIMIT_BUCKET_LEN_MAX + 1], bool *ret_has_key)
{
	struct slice path = slice_from(request->path, 1);
	struct slice bucket = gw_host_bucket(gateway, request);
	size_t len;

	if (!bucket.len)
		bucket = slice_split(&path, '/');
	*ret_has_key = path.len > 0;
	if (uri_decode(bucket, 0, ret_text, LIMIT_BUCKET_LEN_MAX, &len) ||
		memchr(ret_text, '\0', len)) {
		*ret_has_key = true;
		return SLICE_NONE;
	}
	ret_text[len] = '\0';
	return slice_of(ret_text, len);
}
