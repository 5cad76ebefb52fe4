/* server/server.c: opens the layers in start order, connects them, and closes them in reverse. */
#include "server/server.h"
#include "s3/vault.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "etcd/etcd.h"
#include "server/admin/admin.h"
#include "server/job/job.h"
#include "listen/listen.h"
#include "rdma/rdma.h"
#include "remote/remote.h"
#include "replicate/replicate.h"
#include "server/hardware.h"
#include "server/https.h"
#include "server/identities.h"
#include "server/keys.h"
#include "server/recovery.h"
#include "server/memory.h"
#include "server/volumes.h"
#include "server/lifecycle.h"
#include "server/names.h"
#include "server/numa.h"
#include "server/paths.h"
#include "server/resources.h"
#include "server/endpoint.h"
#include "server/tell.h"
#include "server/web.h"
#include "store/local.h"

#define ADMIN_CONNECTIONS_MAX 64u

/* One reactor with all that lives on it. Phases: opened → running → draining → drained → closed. */
struct core {
	struct server *server;
	struct reactor *reactor;
	struct flow_core flow;
	struct listen *http;
	struct listen *https;
	struct listen *admin;	     /* on the first core only */
	struct listen *console;	     /* on the first core only */
	struct front_native *native; /* the first core's accepts connections for all */
	struct front_token *token;
	struct front_hipobj *hipobj;
	pthread_t thread;
	bool attached; /* the store has a fiber here */
	bool running;
	struct reactor_msg drain_msg, end_msg;
};

struct server {
	struct config config;
	struct numa_plan numa;
	struct region *region;
	struct flow_budget *budget; /* of the region's frames */
	struct store *store;
	struct s3 *s3;
	struct lifecycle lifecycle;  /* on the first core */
	struct replicate *replicate; /* on the first core; NULL: off */
	const struct replicate_sender *sender;
	struct https *https; /* NULL: off */
	struct rp_device *device;
	struct etcd *etcd; /* NULL: the owner's lease is not there */
	struct remote *remote;
	struct rv *rados;
	struct names *names; /* NULL: the store is of no cluster */
	struct job_scrub_opts scrub;
	struct job_discard_opts discard;
	struct rp_device_attr device_attr;
	struct paths paths;		   /* the other addresses for sessions, and their devices */
	struct front_discovery *discovery; /* NULL: off */
	struct core cores[LIMIT_CORES_MAX];
	struct cgroup_limits limits; /* at the start */
	uint32_t core_count;
	struct reactor *reactors[LIMIT_CORES_MAX];
	struct admin_opts admin_opts;
	struct console *console; /* on the first core; NULL: off */
	struct tell tell;	 /* its callers are on the first core */
	struct memory memory;	 /* on the first core */
	char *accounts_json;	 /* until it has been read into the store */
	sem_t identities_done;
	int identities_error;
	_Atomic bool draining;
	_Atomic uint32_t
		cores_draining; /* first core: wait for the others before the last checkpoint */
	struct fiber *_Atomic last_drainer;
};

/* Chooses the server's NUMA node and the number of event loops. */
static int place(struct server *server)
{
	const struct config *config = &server->config;
	struct numa_plan *numa = &server->numa;
	int ret = numa_plan(config, "/sys", numa);
	uint32_t cpus;

	cgroup_limits_read("", &server->limits);
	resources_share(&server->config, &server->limits, resources_host_memory());
	cpus = MIN(numa->cpu_count, server->limits.cpus);
	if (cpus < numa->cpu_count)
		log_info("server",
			"the control group's quota is %u of %u processors: event loops and their "
			"spinning keep to it",
			cpus, numa->cpu_count);
	server->core_count = MIN(MAX(cpus, 2u) - 1, LIMIT_CORES_MAX);
	if (config->cpu.reactors)
		server->core_count = (uint32_t)config->cpu.reactors;
	if (ret) {
		log_error("server", "numa: %s", numa->why);
		return ret;
	}
	if (config->cpu.pin && server->core_count > numa->cpu_count) {
		log_error("server",
			"cpu.pin: %u event loops, but only %u processors are allowed: lower "
			"cpu.reactors or set cpu.pin: false",
			server->core_count, numa->cpu_count);
		return -EINVAL;
	}
	if (strcmp(config->numa.node, "auto") == 0) /* hardware_check reported a named node */
		log_info("server", "numa.node: %s", numa->why);
	numa_apply(numa);
	return 0;
}

static struct rp_open_opts device_opts(const struct config *config)
{
	return (struct rp_open_opts){
		.device_name = config->rdma.device_name,
		.ib_port = (uint8_t)config->rdma.ib_port,
		.gid_index = (int)config->rdma.gid_index,
		.traffic_class = (uint8_t)(config->rdma.traffic_class < 0
						   ? (int64_t)config->network.dscp << 2
						   : config->rdma.traffic_class),
		.service_level = (uint8_t)config->rdma.service_level,
		.path_mtu = (uint32_t)config->rdma.path_mtu,
	};
}

static int open_store(struct server *server)
{
	const struct config *config = &server->config;
	const struct region_opts region_opts = {
		.name = "nebulaio",
		.bytes = config->memory.bytes,
		.bytes_max = config->memory.bytes_max,
		.core_count = server->core_count,
		.huge_pages = config->memory.huge_pages,
		.numa_bind = server->numa.memory_node >= 0,
		.numa_node = (uint32_t)MAX(server->numa.memory_node, 0),
		.numa_only = config->numa.memory_only,
	};
	struct store_opts store_opts;
	int ret = region_open(&region_opts, &server->region);

	if (ret) {
		log_error("server", "no memory region of %llu MiB: %s; lower memory.bytes",
			(unsigned long long)(config->memory.bytes / MIB), strerror(-ret));
		return ret;
	}
	resources_compare(&server->config, &server->limits);
	ret = flow_budget_open(server->region, &server->budget);
	if (ret)
		return ret;
	volumes_store_opts(config, &store_opts);
	ret = store_open(&store_opts, server->region, &server->store);
	if (ret)
		log_error("server", "cannot open the store in %s: %s", config->data.dir,
			strerror(-ret));
	memory_init(&server->memory, &(struct memory_opts){.config = config,
					     .region = server->region,
					     .store = server->store,
					     .draining = &server->draining,
					     .root = ""});
	return ret;
}

/* The key files: made for a fresh store, or made again from their sealed copies. */
static int open_keys(const struct config *config, struct store *store,
	uint8_t ret_secrets_key[IDENTITIES_KEY_BYTES], char ret_keys[KEYS_BYTES_MAX])
{
	struct recovery_paths paths;
	struct config_error error;
	struct store_usage usage;
	bool fresh;
	int ret;

	recovery_paths(config, &paths);
	store_usage(store, &usage);
	fresh = !usage.buckets && !usage.objects;
	ret = recovery_restore(config, store, paths.files, ARRAY_LEN(paths.files));
	if (ret)
		return ret;
	ret = identities_key(paths.secrets, fresh, ret_secrets_key, &error);
	if (ret) {
		log_error("server", "%s", error.text);
		return ret;
	}
	ret = keys_read(config, fresh, ret_keys);
	return ret ? ret : recovery_keep(config, store, paths.files, ARRAY_LEN(paths.files));
}

static int open_s3(struct server *server)
{
	const struct config *config = &server->config;
	uint8_t secrets_key[IDENTITIES_KEY_BYTES];
	char keys[KEYS_BYTES_MAX];
	struct config_error error;
	int ret;
	const struct s3_vault_opts vault = {
		.address = config->encryption.kms.vault.address,
		.token_file = config->encryption.kms.vault.token_file,
		.mount = config->encryption.kms.vault.mount,
		.keys = config->encryption.kms.vault.keys,
		.ca_file = config->encryption.kms.vault.ca_file,
		.cache_s = (uint32_t)config->encryption.kms.vault.cache_seconds,
	};
	const struct s3_opts opts = {
		.store_id = store_id(server->store),
		.names = names_of(server->names),
		.vault = &vault,
		.secrets_key = secrets_key,
		.root_access_key = config->auth.root_user,
		.root_secret_key = config->auth.root_password,
		.region = config->s3.region,
		.express = config->s3_express.enabled,
		.host_domain = config->s3.domain[0] ? config->s3.domain : NULL,
		.website_domain = config->s3.website_domain,
		.access_log_flush_s = (uint32_t)config->logging.flush_seconds,
		.notify_targets = config->notification.targets,
		.notify_topics = config->notification.topics,
		.web_identity = config->auth.web_identity,
		.notify_log_file = config->notification.log_file,
		.notify_queue_events = (uint32_t)config->notification.queue_events,
		.notify_queue_bytes = config->notification.queue_bytes,
		.notify_retry_s = (uint32_t)config->notification.retry_seconds,
		.encryption_keys = keys,
		.kms_keys = config->encryption.kms.keys,
		.kms_default_key = config->encryption.kms.default_key,
		.lifecycle_day_s = (uint32_t)config->lifecycle.day_seconds,
		.signature_v2 = config->s3.signature_v2,
		.closed_buckets = strcmp(config->s3.new_buckets, "closed") == 0,
		.encrypted_buckets = config_encrypts_new_buckets(config),
		.decline_by_draft = strcmp(config->rdma.decline, "aws-draft") == 0,
	};

	ret = open_keys(config, server->store, secrets_key, keys);
	if (!ret && config->auth.accounts_file[0]) {
		ret = identities_load(config->auth.accounts_file, &server->accounts_json, &error);
		if (ret)
			log_error("server", "%s", error.text);
	}
	if (ret) {
		secret_wipe(keys, sizeof(keys));
		secret_wipe(secrets_key, sizeof(secrets_key));
		return ret;
	}
	ret = s3_open(&opts, server->store, &server->s3);
	if (ret == -EINVAL)
		log_error("server",
			"encryption: the key file or the names of KMS keys cannot be used");
	secret_wipe(keys, sizeof(keys));
	secret_wipe(secrets_key, sizeof(secrets_key));
	return ret;
}

/* As IBTA encodes it (volume 1, 9.9.1.6): 4.096 us * 2^timeout. */
static uint32_t ack_timeout_us(const struct config *config)
{
	return (uint32_t)((4096ull << config->rdma.timeout) / 1000);
}

static int open_device(struct server *server)
{
	const struct config *config = &server->config;
	const struct rp_open_opts opts = device_opts(config);
	int ret;

	if (!config->rdma.enabled)
		return 0;
	ret = rp_open(&opts, &server->device);
	if (ret) {
		log_error("server",
			"rdma.device_name: cannot open '%s': %s; name an existing device, or "
			"`simulated` to try without hardware, or set rdma.enabled: false",
			config->rdma.device_name, strerror(-ret));
		return ret;
	}
	rp_device_attr(server->device, &server->device_attr);
	return paths_open(config, &opts, &server->paths);
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
		.encryption_required = strcmp(config->rdma.encryption, "required") == 0,
		.draining = &server->draining,
	};
	int ret = front_native_open(&opts, &core->native);

	if (!ret)
		return paths_fronts_open(&server->paths, (uint32_t)(core - server->cores), &opts,
			server->cores[0].native);
	log_error("server", "RDMA sessions cannot be served: %s", strerror(-ret));
	return ret;
}

/* Uses the native front's registrations. */
static enum front_token_checksum token_checksum(const char *text)
{
	if (strcmp(text, "always") == 0)
		return FRONT_CHECKSUM_ALWAYS;
	return strcmp(text, "asked") == 0 ? FRONT_CHECKSUM_ASKED : FRONT_CHECKSUM_OFF;
}

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

/* The server runs even if discovery does not. */
static void open_discovery(struct server *server)
{
	const struct config *config = &server->config;
	const struct front_discovery_opts opts = {
		.device = device_opts(config),
		.group = config->rdma.discovery_group,
		.address = config->rdma.address,
		.rdma_port = server_rdma_port(server),
		.http_port = server_http_port(server),
		.release = NEBULAIO_VERSION,
		.zone = config->rdma.zone,
		.note = config->rdma.note,
	};
	int ret;

	if (!server->device || !config->rdma.discovery)
		return;
	ret = front_discovery_open(&opts, &server->discovery);
	if (ret)
		log_warn("server",
			"rdma.discovery: %s cannot answer on %s: %s; `nebulaio discover` will not "
			"find this server",
			config->rdma.device_name, opts.group, strerror(-ret));
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
	const struct listen_opts opts = {
		.core = &core->flow,
		.http = {.s3 = server->s3,
			.token = core->token,
			.hipobj = core->hipobj,
			.transport = endpoint->transport,
			.via_secret = names_secret(server->names),
			.via_store = names_store(server->names),
			.idle_timeout_ns = config->http.idle_timeout_s * NS_PER_S,
			.head_timeout_ns = config->http.head_timeout_s * NS_PER_S,
			.body_stall_timeout_ns = config->http.stall_timeout_s * NS_PER_S,
			.page = pages ? admin_minio_handle : NULL,
			.page_arg = &server->admin_opts},
		.connections_max = LIMIT_HTTP_CONNECTIONS_MAX / server->core_count,
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
		.connections_max = ADMIN_CONNECTIONS_MAX,
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

static int open_core(struct server *server, uint32_t core_idx)
{
	const struct config *config = &server->config;
	struct core *core = &server->cores[core_idx];
	const struct reactor_opts opts = {
		.core_idx = core_idx,
		.cpu = config->cpu.pin ? numa_cpu(&server->numa, core_idx) : -1,
		.idle_spin_ns = MAX(config->cpu.idle_spin_us * NS_PER_US, 1),
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
	if (server->device) {
		ret = open_native(server, core);
		if (!ret)
			ret = open_token(server, core);
		if (!ret)
			ret = open_hipobj(server, core);
	}
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

static void *core_main(void *arg)
{
	struct core *core = arg;

	reactor_run(core->reactor);
	return NULL;
}

static int start_thread(struct core *core)
{
	int ret = -pthread_create(&core->thread, NULL, core_main, core);

	if (ret)
		log_error("server", "no thread for a core: %s", strerror(-ret));
	core->running = ret == 0;
	return ret;
}

/* Closes a partly opened server. The objects on its reactors must end there, so the reactors run
 * once more. */
static void server_abandon(struct server *server)
{
	for (uint32_t i = 0; i < server->core_count; i++) {
		if (server->cores[i].attached && start_thread(&server->cores[i]))
			break;
	}
	server_stop(server);
	server_close(server);
}

static void log_hardware(void *arg, const struct hardware_finding *finding)
{
	(void)arg;
	if (finding->met)
		log_info("server", "%s: %s", finding->key, finding->what);
	else
		log_warn("server", "%s: %s%s%s", finding->key, finding->what,
			finding->fix[0] ? "; to change that: " : "", finding->fix);
}

static void settle_device(struct config *config)
{
	char why[256];

	if (!server_device_settle(config, why, sizeof(why)))
		return;
	/* With a loopback address nobody expects a card. */
	if (strcmp(config->rdma.device_name, "simulated") == 0 &&
		!config_is_loopback(config->rdma.address))
		log_warn("server", "rdma.device_name: auto: simulated: %s", why);
	else
		log_info("server", "rdma.device_name: auto: %s: %s", config->rdma.device_name, why);
}

int server_open(const struct config *config, struct server **ret_server)
{
	struct server *server = calloc(1, sizeof(*server));
	int ret;

	if (!server)
		return -ENOMEM;
	server->config = *config;
	sem_init(&server->identities_done, 0, 0);
	resources_raise();
	settle_device(&server->config);
	hardware_check(&server->config, "/sys", log_hardware, NULL);
	ret = place(server);
	if (!ret)
		ret = open_device(server);
	if (!ret)
		ret = volumes_own(&server->config, &server->etcd);
	if (!ret)
		ret = volumes_remote_open(&server->config, device_opts(&server->config),
			server->etcd, &server->remote);
	if (!ret)
		ret = names_open(&server->config, &server->rados, &server->names);
	if (!ret)
		ret = open_store(server);
	if (!ret)
		ret = open_s3(server);
	if (!ret && (config->https.address[0] || config->console.https))
		ret = https_open(config, &server->https);
	for (uint32_t i = 0; i < server->core_count && !ret; i++)
		ret = open_core(server, i);
	if (!ret && server->device)
		ret = paths_listen(&server->paths, config, server->cores[0].native);
	if (ret) {
		server_abandon(server);
		return ret;
	}
	open_discovery(server);
	*ret_server = server;
	return 0;
}

static uint16_t port_of(const struct listen *listen)
{
	return listen ? listen_port(listen) : 0;
}

uint16_t server_http_port(const struct server *server)
{
	return port_of(server->cores[0].http);
}

uint16_t server_https_port(const struct server *server)
{
	return port_of(server->cores[0].https);
}

uint16_t server_admin_port(const struct server *server)
{
	return port_of(server->cores[0].admin);
}

void server_set_doctor(struct server *server, server_doctor_fn *doctor)
{
	server->tell.doctor = doctor;
}

uint16_t server_console_port(const struct server *server)
{
	return port_of(server->cores[0].console);
}

const char *server_https_self_signed(const struct server *server)
{
	return https_self_signed(server->https);
}

void server_https_fingerprint(const struct server *server, char *buf, size_t buf_bytes)
{
	char text[NET_TLS_FINGERPRINT_LEN + 1];

	net_tls_fingerprint(https_tls(server->https), text);
	snprintf(buf, buf_bytes, "%s", text);
}

int server_watch_fd(const struct server *server)
{
	return server->https ? https_watch_fd(server->https) : -1;
}

void server_reload(struct server *server, bool all)
{
	if (server->https)
		https_reload(server->https, all);
}

void server_set_sender(struct server *server, const struct replicate_sender *sender)
{
	server->sender = sender;
}

uint16_t server_rdma_port(const struct server *server)
{
	return server->cores[0].native ? front_native_port(server->cores[0].native) : 0;
}

const char *server_rdma_device(const struct server *server)
{
	return server->device ? server->device_attr.name : "off";
}

static int start_replication(struct server *server)
{
	const struct replicate_opts opts = {.s3 = server->s3,
		.store = server->store,
		.core = &server->cores[0].flow,
		.sender = server->sender,
		.dir = server->config.data.dir};

	return replicate_open(&opts, &server->replicate);
}

static void identities_main(void *arg)
{
	struct server *server = arg;

	server->identities_error =
		s3_start(server->s3, &server->cores[0].flow, server->accounts_json);
	if (!server->identities_error)
		server->identities_error = names_start(server->names, server->s3, server->store);
	if (!server->identities_error)
		server->identities_error = s3_outbox_start(server->s3);
	if (!server->identities_error && server->sender)
		server->identities_error = start_replication(server);
	free(server->accounts_json);
	server->accounts_json = NULL;
	sem_post(&server->identities_done);
}

int server_start(struct server *server)
{
	int ret = fiber_spawn(server->cores[0].reactor, "identities", identities_main, server);

	if (ret)
		return ret;
	for (uint32_t i = 0; i < server->core_count; i++) {
		struct core *core = &server->cores[i];

		ret = core->http ? listen_start(core->http) : 0;
		if (!ret && core->https)
			ret = listen_start(core->https);
		if (!ret && core->admin)
			ret = listen_start(core->admin);
		if (!ret && core->console)
			ret = listen_start(core->console);
		if (!ret)
			ret = start_thread(core);
		if (ret)
			return ret;
	}
	while (sem_wait(&server->identities_done))
		;
	if (server->identities_error)
		log_error("server", "cannot read accounts and users: %s",
			strerror(-server->identities_error));
	return server->identities_error;
}

/* Runs after all requests that other cores have handed over. */
static void end_tokens(struct reactor_msg *msg)
{
	struct core *core = CONTAINER_OF(msg, struct core, end_msg);

	front_token_drain(core->token);
	if (core->hipobj)
		front_hipobj_drain(core->hipobj);
}

/* On the first core, when all have drained: ends the work that cores do for each other. */
static void end_fronts(struct server *server)
{
	if (server->cores[0].native)
		front_native_unlisten(server->cores[0].native);
	paths_unlisten(&server->paths);
	if (server->cores[0].token)
		front_token_drain(server->cores[0].token);
	if (server->cores[0].hipobj)
		front_hipobj_drain(server->cores[0].hipobj);
	for (uint32_t i = 1; i < server->core_count; i++) {
		struct core *core = &server->cores[i];

		core->end_msg.fn = end_tokens;
		if (core->running && core->token)
			reactor_post(core->reactor, &core->end_msg);
	}
}

/* For requests that run when the server ends. Those of a gateway that has lost the store, because
 * it was stopped, do not end by themselves, and the next owner waits. */
static uint64_t patience_ns(const struct server *server)
{
	uint64_t seconds = server->config.http.stall_timeout_s;

	if (names_lost(server->names))
		seconds = MIN(seconds, MAX(server->config.storage.rados.lease_s / 3, 1));
	return seconds * NS_PER_S;
}

/* Ends the fronts of a core. The first core then waits for the others, so that the store's last
 * checkpoint covers all changes. */
static void drain_main(void *arg)
{
	struct core *core = arg;
	struct listen *listens[] = {core->http, core->https, core->console};
	struct server *server = core->server;
	uint64_t deadline_ns = clock_now_ns() + patience_ns(server);

	for (size_t i = 0; i < ARRAY_LEN(listens); i++)
		if (listens[i])
			listen_drain_begin(listens[i]);
	for (size_t i = 0; i < ARRAY_LEN(listens); i++)
		if (listens[i])
			listen_drain(listens[i], deadline_ns);
	if (core->native)
		front_native_drain(core->native, deadline_ns);
	if (core->native)
		paths_drain(&server->paths, (uint32_t)(core - server->cores), deadline_ns);
	if (core->admin) {
		listen_drain_begin(core->admin);
		listen_drain(core->admin, deadline_ns);
	}
	if (core == &server->cores[0]) {
		server->last_drainer = fiber_self();
		if (atomic_fetch_sub(&server->cores_draining, 1) > 1) {
			while (atomic_load(&server->cores_draining))
				fiber_park();
		}
		memory_stop(&server->memory);
		end_fronts(server);
		lifecycle_close(&server->lifecycle);
		replicate_close(server->replicate);
		server->replicate = NULL;
		s3_outbox_stop(server->s3);
		store_quiesce(server->store);
		for (uint32_t i = 1; i < server->core_count; i++) {
			if (server->cores[i].running)
				reactor_stop(server->cores[i].reactor);
		}
		reactor_stop(core->reactor);
	} else if (atomic_fetch_sub(&server->cores_draining, 1) == 1 && server->last_drainer) {
		fiber_wake_remote(server->last_drainer);
	}
}

static void drain_post(struct reactor_msg *msg)
{
	struct core *core = CONTAINER_OF(msg, struct core, drain_msg);
	int ret = fiber_spawn(core->reactor, "drain", drain_main, core);

	if (ret) {
		log_error("server", "cannot start the orderly shutdown: %s; stopping at once",
			strerror(-ret));
		reactor_stop(core->reactor);
	}
}

void server_stop(struct server *server)
{
	server->draining = true;
	front_discovery_close(server->discovery);
	server->discovery = NULL;
	server->cores_draining = 0;
	for (uint32_t i = 0; i < server->core_count; i++)
		server->cores_draining += server->cores[i].running;
	for (uint32_t i = 0; i < server->core_count; i++) {
		struct core *core = &server->cores[i];

		core->drain_msg.fn = drain_post;
		if (core->running)
			reactor_post(core->reactor, &core->drain_msg);
	}
	for (uint32_t i = 0; i < server->core_count; i++) {
		struct core *core = &server->cores[i];

		if (core->running)
			pthread_join(core->thread, NULL);
		core->running = false;
	}
}

void server_close(struct server *server)
{
	if (!server)
		return;
	for (uint32_t i = server->core_count; i-- > 0;) {
		struct core *core = &server->cores[i];

		front_hipobj_close(core->hipobj);
		front_token_close(core->token);
		paths_fronts_close(&server->paths, i);
		front_native_close(core->native);
		listen_close(core->console);
		listen_close(core->admin);
		listen_close(core->https);
		listen_close(core->http);
		if (core->reactor)
			flow_core_close(&core->flow);
	}
	console_close(server->console);
	tell_free(&server->tell);
	https_close(server->https);
	names_stop(server->names);
	s3_close(server->s3);
	free(server->accounts_json);
	sem_destroy(&server->identities_done);
	store_close(server->store);
	remote_initiator_close(server->remote);
	etcd_close(server->etcd);
	names_close(server->names, server->rados);
	for (uint32_t i = server->core_count; i-- > 0;)
		reactor_close(server->cores[i].reactor);
	paths_close(&server->paths);
	rp_close(server->device);
	flow_budget_close(server->budget);
	region_close(server->region);
	free(server);
}
