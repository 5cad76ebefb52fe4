/* gateway/pages.c: pages for operators on a gateway's admin.address. */
#include "gateway/gateway_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "s3/page.h"
#include "server/tell.h"

#define PLACES_BYTES 130u

/* A copy, so that nobody waits for a page. NULL: no memory. */
static struct cluster_view *view_copy(struct gateway *gateway)
{
	struct cluster_view *view = malloc(sizeof(*view));

	if (!view)
		return NULL;
	pthread_rwlock_rdlock(&gateway->routes.lock);
	*view = gateway->routes.view;
	pthread_rwlock_unlock(&gateway->routes.lock);
	return view;
}

/* ---- Metrics. ---- */

static void put_stores(struct gateway *gateway, const struct cluster_view *view, struct buf *out)
{
	static const char store_name[] = "nebulaio_cluster_store";
	static const char alive_name[] = "nebulaio_cluster_gateway_alive";
	static const char bytes_name[] = "nebulaio_cluster_store_bytes";

	buf_printf(out,
		"# HELP %s Each store with its owner and state; the value is 1.\n# TYPE %s gauge\n",
		store_name, store_name);
	for (uint32_t i = 0; i < view->store_count; i++)
		buf_printf(out, "%s{store=\"%u\",owner=\"%s\",state=\"%s\"} 1\n", store_name, i,
			view->stores[i].owner, cluster_state_name(view->stores[i].state));
	buf_printf(out, "# HELP %s Bytes of a store's volume in RADOS.\n# TYPE %s gauge\n",
		bytes_name, bytes_name);
	for (uint32_t i = 0; i < view->store_count; i++)
		buf_printf(out, "%s{store=\"%u\"} %llu\n", bytes_name, i,
			(unsigned long long)atomic_load(&gateway->routes.bytes[i]));
	buf_printf(out, "# HELP %s Whether a gateway of the cluster lives.\n# TYPE %s gauge\n",
		alive_name, alive_name);
	for (uint32_t i = 0; i < view->gateway_count; i++)
		buf_printf(out, "%s{gateway=\"%s\"} %d\n", alive_name, view->gateways[i].name,
			view->gateways[i].alive);
}

static void metrics_make(void *arg, struct buf *out)
{
	struct gateway *gateway = arg;
	struct cluster_view *view = view_copy(gateway);

	tell_counters(out);
	tell_reactors(gateway->reactors, gateway->core_count, out);
	if (view)
		put_stores(gateway, view, out);
	free(view);
}

/* ---- Readiness. ---- */

/* A gateway is ready when it knows where the stores are. Stores that are on their way to another
 * owner are waited for, and do not count; the text names them. */
static void answer_ready(
	struct gateway *gateway, const struct s3_request *request, struct s3_reply *reply)
{
	uint64_t lease_ns = gateway->config->storage.rados.lease_s * NS_PER_S;
	uint64_t heard_ns = atomic_load(&gateway->heard_ns);
	struct cluster_view *view = view_copy(gateway);
	struct buf out;

	buf_init(&out, 64 * KIB);
	if (gateway->draining_ns || gateway->leaving)
		buf_put_str(&out, "shutting down\n");
	else if (!view || !heard_ns || clock_now_ns() - heard_ns > lease_ns)
		buf_put_str(&out, "the cluster's map cannot be read\n");
	if (out.len || !view) {
		s3_page_answer(
			request, reply, 503, SLICE("text/plain; charset=utf-8"), buf_slice(&out));
	} else {
		buf_put_str(&out, "ready\n");
		for (uint32_t i = 0; i < view->store_count; i++)
			buf_printf(&out, "store %u: %s%s%s\n", i,
				cluster_state_name(view->stores[i].state),
				view->stores[i].owner[0] ? " at " : "", view->stores[i].owner);
		s3_page_answer(
			request, reply, 200, SLICE("text/plain; charset=utf-8"), buf_slice(&out));
	}
	buf_free(&out);
	free(view);
}

/* ---- For the root. ---- */

/* The address of the pages of a store's process, if this gateway has it; empty: it does not. */
static void admin_of(struct gateway *gateway, uint32_t store, char ret_admin[CLUSTER_ADDR_BYTES])
{
	pthread_rwlock_rdlock(&gateway->routes.lock);
	memcpy(ret_admin, gateway->routes.admins[store], CLUSTER_ADDR_BYTES);
	pthread_rwlock_unlock(&gateway->routes.lock);
}

static void put_cluster(struct gateway *gateway, const struct cluster_view *view, struct buf *out)
{
	char admin[CLUSTER_ADDR_BYTES];

	buf_printf(out, "{\"name\":\"%s\",\"gateway\":\"%s\",\"stores\":[",
		gateway->config->cluster.name, gateway->name);
	for (uint32_t i = 0; i < view->store_count; i++) {
		const struct cluster_store *store = &view->stores[i];

		admin_of(gateway, i, admin);
		buf_printf(out,
			"%s{\"store\":%u,\"state\":\"%s\",\"owner\":\"%s\",\"next\":\"%s\","
			"\"http\":\"%s\",\"rdma\":\"%s\",\"generation\":%llu,\"pinned\":%s,"
			"\"volume_bytes\":%llu,\"used_bytes\":%llu,\"admin\":\"%s\"}",
			i ? "," : "", i, cluster_state_name(store->state), store->owner,
			store->next, store->http, store->rdma,
			(unsigned long long)store->generation, store->pinned ? "true" : "false",
			(unsigned long long)atomic_load(&gateway->routes.bytes[i]),
			(unsigned long long)atomic_load(&gateway->routes.used[i]), admin);
	}
	buf_put_str(out, "],\"gateways\":[");
	for (uint32_t i = 0; i < view->gateway_count; i++)
		buf_printf(out, "%s{\"gateway\":\"%s\",\"alive\":%s,\"admin\":\"%s\"}",
			i ? "," : "", view->gateways[i].name,
			view->gateways[i].alive ? "true" : "false", view->gateways[i].admin);
	buf_put_str(out, "]}");
}

struct move {
	struct gateway *gateway;
	uint32_t store;
	char to[CLUSTER_NAME_LEN_MAX + 1];
	int ret;
};

static void move_run(void *arg)
{
	struct move *move = arg;

	move->ret = cluster_store_move(move->gateway->cluster, move->store, move->to);
}

/* "cluster/stores/NUMBER/move/GATEWAY" */
static int move_store(struct gateway *gateway, struct slice path, struct buf *out)
{
	struct move move = {.gateway = gateway};
	struct slice number;
	uint64_t value;

	path = slice_from(path, strlen("cluster/stores/"));
	number = slice_split(&path, '/');
	if (!slice_eq(slice_split(&path, '/'), SLICE("move")) || slice_to_u64(number, &value) ||
		value >= CLUSTER_STORES_MAX || !cluster_name_valid(path))
		return -ENOENT;
	move.store = (uint32_t)value;
	slice_copy_str(path, move.to, sizeof(move.to));
	fiber_offload_long(move_run, &move);
	if (!move.ret) {
		buf_printf(out, "{\"store\":%u,\"next\":\"%s\"}", move.store, move.to);
		return 0;
	}
	buf_printf(out, "store %u is not moved to %s: %s", move.store, move.to,
		move.ret == -EHOSTUNREACH ? "no gateway of that name lives"
		: move.ret == -EALREADY	  ? "it is there"
		: move.ret == -EBUSY	  ? "its owner does not serve it now: try again"
		: move.ret == -ENOENT	  ? "there is no such store"
					  : strerror(-move.ret));
	return -EINVAL;
}

/* All else is a store's, which has pages of its own. Clients keep 256 bytes of an error. */
static void put_elsewhere(struct gateway *gateway, struct buf *out)
{
	char admin[CLUSTER_ADDR_BYTES];

	buf_put_str(out, "a gateway has no store: ask the store's process, on its gateway's host");
	for (uint32_t i = 0; i < gw_stores(gateway) && out->len < PLACES_BYTES; i++) {
		admin_of(gateway, i, admin);
		if (admin[0])
			buf_printf(out, "; store %u is at http://%s", i, admin);
	}
	buf_put_str(out, "; see `nebulaio admin cluster` of each gateway");
}

static int tell(void *arg, enum s3_method method, struct slice path, struct buf *out)
{
	struct gateway *gateway = arg;
	struct cluster_view *view;
	int ret = -EINVAL;

	if (method == S3_POST && slice_starts(path, SLICE("cluster/stores/")))
		return move_store(gateway, path, out);
	view = view_copy(gateway);
	if (!view)
		return -ENOMEM;
	if (method == S3_GET && slice_eq(path, SLICE("cluster"))) {
		put_cluster(gateway, view, out);
		ret = 0;
	} else {
		put_elsewhere(gateway, out);
	}
	free(view);
	return ret;
}

void gw_page(void *arg, const struct s3_request *request, struct s3_reply *reply)
{
	struct gateway *gateway = arg;

	if (slice_starts(request->path, SLICE("/admin/v1/")))
		s3_admin_handle(gateway->s3, request, reply, tell, gateway);
	else if (request->method != S3_GET && request->method != S3_HEAD)
		s3_page_text(request, reply, 405, "only GET and HEAD here\n");
	else if (slice_eq(request->path, SLICE("/metrics")))
		s3_page_metrics(request, reply, metrics_make, gateway);
	else if (slice_eq(request->path, SLICE("/health/live")))
		s3_page_text(request, reply, 200, "live\n");
	else if (slice_eq(request->path, SLICE("/health/ready")))
		answer_ready(gateway, request, reply);
	else
		s3_page_text(request, reply, 404,
			"there are /metrics, /health/live, /health/ready and /admin/v1/cluster\n");
}
