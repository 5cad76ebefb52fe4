/* server/core.c: opens one core: its reactor with the store on it, the RDMA fronts, and the
 * addresses that it serves; the first core also has the jobs and the operators' pages. */
#include <string.h>

#include "server/endpoint.h"
#include "server/server_priv.h"
#include "server/web.h"

/* As IBTA encodes it (volume 1, 9.9.1.6): 4.096 us * 2^timeout. */
static uint32_t ack_timeout_us(const struct config *config)
{
	return (uint32_t)((4096ull << config->rdma.timeout) / 1000);
}

static bool requires_encryption(const struct config *config)
{
	return strcmp(config->rdma.encryption, "required") == 0;
}

static int open_native(struct server *server, struct core *core)
{
	const struct config *config = &server->config;
	const struct front_native_opts opts = {
		.first = server->cores[0].native,
		.front_count = server->core_count,
		.s3 = server->s3,
		.store = server->store,
		.store_id = store_id(server->store),
		.core = &core->flow,
		.device = server->device,
		.sessions_max = (uint32_t)config->rdma.sessions_max,
		.credits = config_session_requests(config),
		.inline_bytes_max = LIMIT_CAPSULE_INLINE_BYTES_MAX,
		.cq_size = (uint32_t)config->rdma.cq_size,
		.max_send_wr = (uint32_t)config->rdma.max_send_wr,
		.max_recv_wr = (uint32_t)config->rdma.max_recv_wr,
		.max_sge = (uint32_t)config->rdma.max_sge,
		.max_inline_data = (uint32_t)config->rdma.max_inline_data,
		.retry_count = (uint8_t)config->rdma.retry_count,
		.rnr_retry_count = (uint8_t)config->rdma.rnr_retry,
		.ack_timeout_us = ack_timeout_us(config),
		.idle_timeout_ns = config->rdma.idle_timeout_s * NS_PER_S,
		.keepalive_ns = config->rdma.keepalive_s * NS_PER_S,
		.request_timeout_ns = config->rdma.request_timeout_s * NS_PER_S,
		.lease_bytes = config->rdma.lease_bytes,
		.lease_ns = config->rdma.lease_seconds * NS_PER_S,
		.encryption_required = requires_encryption(config),
		.draining = &server->draining,
	};
	int ret = front_native_open(&opts, &core->native);

	if (!ret)
		return paths_fronts_open(&server->paths, (uint32_t)(core - server->cores), &opts,
			server->cores[0].native);
	log_error("server", "RDMA sessions cannot be served: %s", strerror(-ret));
	return ret;
}

static enum front_token_checksum token_checksum(const char *text)
{
	if (strcmp(text, "always") == 0)
		return FRONT_CHECKSUM_ALWAYS;
	return strcmp(text, "asked") == 0 ? FRONT_CHECKSUM_ASKED : FRONT_CHECKSUM_OFF;
}

/* Uses the native front's registrations. */
static int open_token(struct server *server, struct core *core)
{
	const struct config *config = &server->config;
	const struct front_token_opts opts = {
		.first = server->cores[0].token,
		.s3 = server->s3,
		.core = &core->flow,
		.device = server->device,
		.pd = front_native_pd(core->native),
		.lkeys = front_native_lkeys(core->native),
		.queue_pairs_max = (uint32_t)config->rdma.token_queue_pairs,
		.idle_timeout_ns = config->rdma.idle_timeout_s * NS_PER_S,
		.transfer_timeout_ns = config->rdma.token_timeout_s * NS_PER_S,
		.strict = config->rdma.strict_token,
		.elbencho = config->rdma.token_elbencho,
		.checksum = token_checksum(config->rdma.token_checksum),
		.retry_count = (uint8_t)config->rdma.retry_count,
		.rnr_retry_count = (uint8_t)config->rdma.rnr_retry,
		.ack_timeout_us = ack_timeout_us(config),
		.dc_key = config->rdma.dc_key,
	};
	int ret = front_token_open(&opts, &core->token);

	if (ret)
		log_error("server", "RDMA tokens cannot be served: %s", strerror(-ret));
	return ret;
}

static int open_hipobj(struct server *server, struct core *core)
{
	const struct config *config = &server->config;
	const struct front_hipobj_opts opts = {
		.first = server->cores[0].hipobj,
		.s3 = server->s3,
		.core = &core->flow,
		.device = server->device,
		.pd = front_native_pd(core->native),
		.lkeys = front_native_lkeys(core->native),
		.sessions_max = (uint32_t)config->rdma.hipobj_sessions,
		.staging_bytes_max = config->rdma.hipobj_bytes,
		.store = (uint32_t)config->cluster.store,
		.timeout_ns = config->rdma.hipobj_timeout_s * NS_PER_S,
		.retry_count = (uint8_t)config->rdma.retry_count,
		.rnr_retry_count = (uint8_t)config->rdma.rnr_retry,
		.ack_timeout_us = ack_timeout_us(config),
	};
	int ret = config->rdma.hipobj ? front_hipobj_open(&opts, &core->hipobj) : 0;

	if (ret)
		log_error("server", "hipobj-rc-v2 cannot be served: %s", strerror(-ret));
	return ret;
}

/* Tokens and hipobj-rc-v2 do not encrypt the bodies that they move. */
static int open_rdma(struct server *server, struct core *core)
{
	const struct config *config = &server->config;
	int ret = open_native(server, core);

	if (!ret && !requires_encryption(config)) {
		ret = open_token(server, core);
		if (!ret)
			ret = open_hipobj(server, core);
	} else if (!ret && core == &server->cores[0]) {
		log_info("server",
			"rdma.encryption: required: RDMA tokens%s%s are off, because the bodies "
			"that they move are not encrypted; their clients are told to use HTTP",
			config->rdma.token_elbencho ? " (elbencho's too)" : "",
			config->rdma.hipobj ? " and hipobj-rc-v2" : "");
	}
	return ret;
}

/* One kind of HTTP and its address, on every core. */
struct endpoint {
	const char *transport; /* also the configuration's section */
	const char *address;
	const struct listen *first; /* the first core's; NULL: this is the first */
	struct net_tls *tls;
};

/* The pages for operators, on the admin listener and on MinIO's paths. */
static void fill_admin_opts(struct server *server)
{
	server->tell = (struct tell){
		.config = &server->config,
		.s3 = server->s3,
		.device = &server->device_attr,
		.paths = &server->paths,
		.reactors = server->reactors,
		.count = server->core_count,
		.draining = &server->draining,
		.memory = &server->memory,
	};
	server->admin_opts = (struct admin_opts){
		.region = server->region,
		.store = server->store,
		.s3 = server->s3,
		.reactors = server->reactors,
		.reactor_count = server->core_count,
		.draining = &server->draining,
		.minio_public = strcmp(server->config.admin.minio_metrics, "public") == 0,
		.tell = tell_run,
		.tell_arg = &server->tell,
	};
}

static int open_endpoint(
	struct core *core, const struct endpoint *endpoint, struct listen **ret_listen)
{
	struct server *server = core->server;
	const struct config *config = &server->config;
	bool pages = strcmp(config->admin.minio_metrics, "off") != 0;
	static const char WHY[] = "It requires encryption (rdma.encryption), and bytes that a "
				  "token moves are not encrypted.";
	const struct listen_opts opts = {
		.core = &core->flow,
		.http = {.s3 = server->s3,
			.token = core->token,
			.hipobj = core->hipobj,
			.declined = core->native && requires_encryption(config) ? WHY : NULL,
			.transport = endpoint->transport,
			.via_secret = names_secret(server->names),
			.via_store = names_store(server->names),
			.idle_timeout_ns = config->http.idle_timeout_s * NS_PER_S,
			.head_timeout_ns = config->http.head_timeout_s * NS_PER_S,
			.body_stall_timeout_ns = config->http.stall_timeout_s * NS_PER_S,
			.page = pages ? admin_minio_handle : NULL,
			.page_arg = &server->admin_opts},
		.connections_max = MAX(server->files.http / server->core_count, 1u),
		.tls = endpoint->tls,
		.handshake_timeout_ns = config->http.head_timeout_s * NS_PER_S,
		.beside = endpoint->first,
	};
	int ret = listen_open(&opts, endpoint->address, ret_listen);

	if (ret)
		endpoint_refused(endpoint->transport, endpoint->address, ret);
	return ret;
}

static int open_http(struct core *core)
{
	struct server *server = core->server;
	const struct core *first = &server->cores[0];
	const struct endpoint http = {"http", server->config.http.address, first->http, NULL};
	struct endpoint https = {"https", server->config.https.address, first->https, NULL};
	int ret = http.address[0] ? open_endpoint(core, &http, &core->http) : 0;

	if (ret || !https.address[0])
		return ret;
	https.tls = https_tls(server->https);
	return open_endpoint(core, &https, &core->https);
}

static int open_admin(struct server *server, struct core *core)
{
	const struct config *config = &server->config;
	const struct listen_opts opts = {
		.core = &core->flow,
		.http = {.s3 = server->s3,
			.transport = "admin",
			.idle_timeout_ns = config->http.idle_timeout_s * NS_PER_S,
			.head_timeout_ns = config->http.head_timeout_s * NS_PER_S,
			.body_stall_timeout_ns = config->http.stall_timeout_s * NS_PER_S,
			.handle = admin_handle,
			.handle_arg = &server->admin_opts},
		.connections_max = server->files.admin,
		.evict_serving = true,
	};
	int ret = listen_open(&opts, config->admin.address, &core->admin);

	if (ret)
		endpoint_refused("admin", config->admin.address, ret);
	return ret;
}

static int open_console(struct server *server, struct core *core)
{
	const struct web_opts opts = {
		.config = &server->config,
		.core = &core->flow,
		.s3 = server->s3,
		.tls = server->config.console.https ? https_tls(server->https) : NULL,
		.http_port = server_http_port(server),
		.https_port = server_https_port(server),
		.admin = &server->admin_opts,
		.connections_max = server->files.console,
	};
	int ret = web_open(&opts, &server->console, &core->console);

	if (ret)
		endpoint_refused("console", server->config.console.address, ret);
	return ret;
}

/* Frames are scarce: asks the store's cache to give some back. */
static void reclaim_cache(void *arg, uint32_t frame_count, bool lasting)
{
	store_cache_shrink((struct store *)arg, frame_count, lasting);
}

int server_open_core(struct server *server, uint32_t core_idx)
{
	const struct config *config = &server->config;
	struct core *core = &server->cores[core_idx];
	const struct reactor_opts opts = {
		.core_idx = core_idx,
		.cpu = config->cpu.pin ? numa_cpu(&server->numa, core_idx) : -1,
		.idle_spin_ns = config_idle_spin_ns(config),
		.idle_spin_follows = config_tunes_spin(config),
		.fibers_max = LIMIT_HTTP_CONNECTIONS_MAX / server->core_count + 8192,
	};
	int ret;

	core->server = server;
	ret = reactor_open(&opts, &core->reactor);
	if (ret)
		return ret;
	server->reactors[core_idx] = core->reactor;
	ret = flow_core_open(core->reactor, server->region, &core->flow);
	if (ret)
		return ret;
	core->flow.reclaim = reclaim_cache;
	core->flow.reclaim_arg = server->store;
	core->flow.budget = server->budget;
	memory_core_add(&server->memory, &core->flow);
	ret = store_attach(server->store, core->reactor);
	if (ret)
		return ret;
	core->attached = true;
	if (core_idx == 0) {
		server->scrub = (struct job_scrub_opts){.store = server->store,
			.scrub = {.interval_ns = config->storage.scrub.interval_s * NS_PER_S,
				.bytes_per_s = config->storage.scrub.bytes_per_s}};
		ret = job_scrub_start(core->reactor, &server->scrub);
		server->discard = (struct job_discard_opts){
			.store = server->store, .bytes_per_s = config->storage.discard.bytes_per_s};
		if (!ret)
			ret = job_discard_start(core->reactor, &server->discard);
		ret = ret ? ret : job_store_start(core->reactor, server->store);
		ret = ret ? ret : memory_start(&server->memory);
		if (ret)
			return ret;
	}
	/* Opened before HTTP, which hands it requests with tokens. */
	if (server->device)
		ret = open_rdma(server, core);
	if (core_idx == 0)
		fill_admin_opts(server);
	server->tell.fronts[core_idx] = core->native;
	if (!ret)
		ret = open_http(core);
	if (core_idx == 0 && config->admin.address[0] && !ret)
		ret = open_admin(server, core);
	if (core_idx == 0 && config->console.address[0] && !ret)
		ret = open_console(server, core);
	if (core_idx == 0 && !ret) {
		server->lifecycle.s3 = server->s3;
		server->lifecycle.core = &core->flow;
		ret = lifecycle_open(
			&server->lifecycle, server->store, config->lifecycle.day_seconds);
	}
	return ret;
}
