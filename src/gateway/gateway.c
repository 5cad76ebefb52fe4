/* gateway/gateway.c: opens what a gateway needs, and closes it in reverse. */
#include "gateway/gateway_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/process.h"
#include "codec/codec.h"
#include "rados/rados.h"
#include "server/endpoint.h"
#include "server/recovery.h"
#include "store/memory.h"

#define RECOVERY_BYTES	   32u
#define LINK_PEM_BYTES_MAX (4 * KIB)

/* ---- Configuration. ---- */

static void complain(struct config_error *error, const char *text)
{
	size_t len = strlen(error->text);

	snprintf(error->text + len, sizeof(error->text) - len, "%s%s", len ? "\n  " : "", text);
}

int gateway_check(const struct config *config, struct config_error *ret_error)
{
	ret_error->text[0] = '\0';
	if (!config->cluster.pool[0])
		complain(
			ret_error, "cluster.enabled needs cluster.pool, a replicated pool of Ceph");
	if (!cluster_name_valid(slice_str(config->cluster.name)) ||
		(config->cluster.gateway[0] &&
			!cluster_name_valid(slice_str(config->cluster.gateway))))
		complain(ret_error,
			"cluster.name and cluster.gateway: at most 48 letters, digits, '.', '_' "
			"and '-'");
	if (!config->storage.recovery_key_file[0])
		complain(ret_error,
			"cluster.enabled needs storage.recovery_key_file, the same on each "
			"gateway: (umask 077; openssl rand -base64 32 > FILE)");
	if (config->storage.volume[0] || config->storage.volumes[0] || config->storage.log[0])
		complain(ret_error,
			"cluster.enabled: the stores' volumes are in cluster.pool; storage.volume, "
			"storage.volumes and storage.log must be empty");
	if (config->flow_count)
		complain(ret_error, "cluster.enabled: flows are for a server with one store");
	if (config->cluster.store)
		complain(ret_error, "cluster.store is set by a gateway only");
	return ret_error->text[0] ? -EINVAL : 0;
}

static void name_settle(struct gateway *gateway)
{
	char host[CLUSTER_NAME_LEN_MAX + 1] = "";

	if (gateway->config->cluster.gateway[0]) {
		/* gateway_check has seen it. */
		slice_copy_str(slice_str(gateway->config->cluster.gateway), gateway->name,
			sizeof(gateway->name));
		return;
	}
	gethostname(host, sizeof(host) - 1);
	snprintf(gateway->name, sizeof(gateway->name), "%s",
		cluster_name_valid(slice_str(host)) ? host : "gateway");
}

/* ---- Keys. ---- */

static void derive(const uint8_t key[RECOVERY_BYTES], const char *cluster, const char *what,
	uint8_t ret_key[RECOVERY_BYTES])
{
	int error = hkdf_sha256(slice_of(key, RECOVERY_BYTES), slice_str(cluster), slice_str(what),
		ret_key, RECOVERY_BYTES);

	CHECK(!error);
}

/* All stores of the cluster seal accounts by one key, which each gateway derives. */
static int secrets_write(struct gateway *gateway, const uint8_t key[RECOVERY_BYTES])
{
	uint8_t secrets[RECOVERY_BYTES];
	int ret;

	snprintf(gateway->secrets_file, sizeof(gateway->secrets_file), "%s/cluster.secrets.key",
		gateway->config->data.dir);
	if (mkdir(gateway->config->data.dir, 0700) && errno != EEXIST) {
		ret = -errno;
		log_error("gateway", "data.dir: %s cannot be made: %s", gateway->config->data.dir,
			strerror(-ret));
		return ret;
	}
	derive(key, gateway->config->cluster.name, "nebulaio cluster secrets", secrets);
	ret = gw_secrets_save(gateway->secrets_file, secrets, sizeof(secrets));
	secret_wipe(secrets, sizeof(secrets));
	return ret;
}

/* Links between gateways and stores: each gateway that has the recovery key has the certificate,
 * and no other is trusted. */
static int links_settle(struct gateway *gateway, const uint8_t key[RECOVERY_BYTES])
{
	const struct net_tls_opts opts = {.certificate = gateway->link_file,
		.key = gateway->link_file,
		.client_ca = gateway->link_file};
	uint8_t secret[NET_TLS_SHARED_BYTES];
	struct buf pem;
	int ret;

	_Static_assert(NET_TLS_SHARED_BYTES == RECOVERY_BYTES, "one derivation");
	if (!gateway->config->cluster.tls)
		return 0;
	snprintf(gateway->link_file, sizeof(gateway->link_file), "%s/cluster.link.pem",
		gateway->config->data.dir);
	derive(key, gateway->config->cluster.name, "nebulaio cluster links", secret);
	buf_init(&pem, LINK_PEM_BYTES_MAX);
	ret = net_tls_shared_pem(secret, gateway->config->cluster.name, &pem);
	secret_wipe(secret, sizeof(secret));
	if (ret)
		log_error("gateway", "no memory for the links' certificate");
	else
		ret = gw_secrets_save(gateway->link_file, pem.data, pem.len);
	if (pem.data)
		secret_wipe(pem.data, pem.len);
	buf_free(&pem);
	return ret ? ret : net_tls_open(&opts, &gateway->link_tls);
}

/* Gateways with other keys could not read each other's stores. */
static int keys_settle(struct gateway *gateway)
{
	uint8_t key[RECOVERY_BYTES], check[RECOVERY_BYTES];
	char digest[2 * RECOVERY_BYTES + 1] = "";
	int ret = recovery_key_read(gateway->config, key);

	if (ret <= 0)
		return ret ? ret : -EINVAL;
	derive(key, gateway->config->cluster.name, "nebulaio cluster check", check);
	hex_encode(check, sizeof(check), digest);
	ret = cluster_agree(gateway->cluster, "recovery-key", digest);
	if (ret)
		log_error("gateway",
			ret == -EPERM ? "storage.recovery_key_file: %s has another key than the "
					"cluster's: copy the file of another gateway"
				      : "%s cannot be compared with the cluster's key",
			gateway->config->storage.recovery_key_file);
	if (!ret)
		ret = secrets_write(gateway, key);
	if (!ret)
		ret = links_settle(gateway, key);
	secret_wipe(key, sizeof(key));
	return ret;
}

/* ---- The cluster. ---- */

/* A gateway that was killed is alive in the map until its lease is over. */
static int live_first(struct gateway *gateway)
{
	uint32_t lease_s = (uint32_t)gateway->config->storage.rados.lease_s;
	uint64_t deadline_ns = clock_now_ns() + 2 * lease_s * NS_PER_S;
	bool told = false;
	int ret;

	while ((ret = gw_live(gateway)) == -EBUSY && clock_now_ns() < deadline_ns) {
		if (!told)
			log_info("gateway",
				"a gateway of the name %s lives, or was killed just now: waiting "
				"for the end of its lease",
				gateway->name);
		told = true;
		if (process_asked_to_end()) {
			log_info("gateway", "a signal ends the wait for it");
			return ret;
		}
		nanosleep(&(struct timespec){.tv_nsec = 200 * NS_PER_MS}, NULL);
	}
	if (ret)
		log_error("gateway", "%s: %s", gateway->name,
			ret == -EBUSY
				? "another gateway of this name runs: give each a name of its "
				  "own, cluster.gateway"
				: strerror(-ret));
	return ret;
}

static int links_agree(struct gateway *gateway)
{
	bool tls = gateway->config->cluster.tls;
	int ret = cluster_links_agree(gateway->cluster, gateway->name, tls);

	if (ret)
		log_error("gateway",
			ret == -EPERM ? "cluster.tls: the other gateways speak with the stores %s; "
					"to change it, stop all gateways first"
				      : "cluster.tls: the cluster cannot be asked %s",
			ret != -EPERM ? strerror(-ret)
			: tls	      ? "without TLS"
				      : "by TLS");
	return ret;
}

static int open_cluster(struct gateway *gateway)
{
	const struct config *config = gateway->config;
	const struct rv_opts rados = {
		.conf_file = config->storage.rados.conf_file,
		.user = config->storage.rados.user,
		.timeout_s = (uint32_t)config->storage.rados.timeout_s,
		.lease_s = (uint32_t)config->storage.rados.lease_s,
	};
	const struct cluster_opts opts = {.pool = config->cluster.pool,
		.name = config->cluster.name,
		.told = gw_routes_told,
		.told_arg = gateway};
	struct cluster_opts full = opts;
	int ret = rv_open(&rados, &gateway->rados);

	if (ret)
		return ret;
	full.rv = gateway->rados;
	ret = cluster_open(&full, &gateway->cluster);
	if (!ret)
		ret = keys_settle(gateway);
	if (!ret)
		ret = cluster_stores_make(gateway->cluster, (uint32_t)config->cluster.stores);
	/* Before it lives, so that nobody gives it a store; and after, because another may have
	 * begun at the same time. */
	if (!ret)
		ret = links_agree(gateway);
	if (!ret)
		ret = live_first(gateway);
	if (ret)
		return ret;
	ret = links_agree(gateway);
	if (ret)
		cluster_leave(gateway->cluster, gateway->name);
	return ret;
}

/* ---- Memory, and the root for the pages. ---- */

static int open_memory(struct gateway *gateway)
{
	const struct config *config = gateway->config;
	const struct region_opts region = {.name = "nebulaio-gateway",
		.bytes = config->cluster.memory_bytes,
		.core_count = gateway->core_count,
		.huge_pages = config->memory.huge_pages};
	const struct s3_opts s3 = {.root_access_key = config->auth.root_user,
		.root_secret_key = config->auth.root_password,
		.region = config->s3.region};
	int ret = region_open(&region, &gateway->region);

	if (ret) {
		log_error("gateway", "no memory region of %llu MiB: %s; lower cluster.memory_bytes",
			(unsigned long long)(config->cluster.memory_bytes / MIB), strerror(-ret));
		return ret;
	}
	ret = flow_budget_open(gateway->region, &gateway->budget);
	if (!ret)
		ret = store_memory_open(
			&(struct store_memory_opts){.region = gateway->region}, &gateway->store);
	return ret ? ret : s3_open(&s3, gateway->store, &gateway->s3);
}

/* ---- Reactors. ---- */

static struct listen_opts listen_opts(struct gw_core *core, const char *transport)
{
	const struct config *config = core->gateway->config;

	return (struct listen_opts){
		.core = &core->flow,
		.http = {.transport = transport,
			.idle_timeout_ns = config->http.idle_timeout_s * NS_PER_S,
			.head_timeout_ns = config->http.head_timeout_s * NS_PER_S,
			.body_stall_timeout_ns = config->http.stall_timeout_s * NS_PER_S,
			.handle = gw_handle,
			.handle_arg = core},
		.connections_max = MAX(core->gateway->files.http / core->gateway->core_count, 1u),
		.handshake_timeout_ns = config->http.head_timeout_s * NS_PER_S,
	};
}

static int open_listener(struct gw_core *core, const struct listen_opts *opts, const char *section,
	const char *address, struct listen **ret_listen)
{
	int ret = address[0] ? listen_open(opts, address, ret_listen) : 0;

	if (ret)
		endpoint_refused(section, address, ret);
	(void)core;
	return ret;
}

static int open_listeners(struct gw_core *core)
{
	struct gateway *gateway = core->gateway;
	const struct config *config = gateway->config;
	bool first = core == &gateway->cores[0];
	struct listen_opts opts = listen_opts(core, "http");
	int ret;

	opts.beside = first ? NULL : gateway->cores[0].http;
	ret = open_listener(core, &opts, "http", config->http.address, &core->http);
	if (!ret && gateway->https) {
		opts = listen_opts(core, "https");
		opts.beside = first ? NULL : gateway->cores[0].https;
		opts.tls = https_tls(gateway->https);
		ret = open_listener(core, &opts, "https", config->https.address, &core->https);
	}
	if (!ret && first) {
		opts = listen_opts(core, "admin");
		opts.http.handle = gw_page;
		opts.http.handle_arg = gateway;
		opts.connections_max = gateway->files.admin;
		opts.evict_serving = true;
		ret = open_listener(core, &opts, "admin", config->admin.address, &core->admin);
	}
	return ret;
}

static int open_core(struct gateway *gateway, uint32_t core_idx)
{
	const struct config *config = gateway->config;
	struct gw_core *core = &gateway->cores[core_idx];
	const struct reactor_opts opts = {
		.core_idx = core_idx,
		.cpu = -1,
		.idle_spin_ns = config_idle_spin_ns(config),
		.idle_spin_follows = config_tunes_spin(config),
		.fibers_max = LIMIT_HTTP_CONNECTIONS_MAX / gateway->core_count + 1024,
	};
	int ret;

	core->gateway = gateway;
	for (uint32_t i = 0; i < CLUSTER_STORES_MAX; i++)
		list_init(&core->idle[i]);
	ret = reactor_thread_open(&core->thread);
	if (!ret)
		ret = reactor_open(&opts, &core->reactor);
	if (ret)
		return ret;
	gateway->reactors[core_idx] = core->reactor;
	ret = flow_core_open(core->reactor, gateway->region, &core->flow);
	if (ret)
		return ret;
	core->flow.budget = gateway->budget;
	return open_listeners(core);
}

int gateway_open(const struct gateway_opts *opts, struct gateway **ret_gateway)
{
	struct gateway *gateway = calloc(1, sizeof(*gateway));
	struct cgroup_limits limits;
	int ret;

	if (!gateway)
		return -ENOMEM;
	gateway->opts = *opts;
	gateway->config = opts->config;
	gw_routes_init(&gateway->routes);
	name_settle(gateway);
	resources_raise();
	cgroup_limits_read("", &limits);
	/* The stores' processes need the others. */
	gateway->core_count = (uint32_t)MIN(MAX(limits.cpus / 4, 1u), LIMIT_CORES_MAX);
	if (gateway->config->cpu.reactors)
		gateway->core_count = (uint32_t)gateway->config->cpu.reactors;
	/* A request takes a link to a store. */
	resources_files(gateway->config, gateway->core_count, 1, &gateway->files);
	gateway->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ret = gateway->wake_fd < 0 ? -errno : ticker_open(&gateway->pulse);
	if (!ret)
		ret = open_memory(gateway);
	if (!ret && gateway->config->https.address[0])
		ret = https_open(gateway->config, &gateway->https);
	for (uint32_t i = 0; i < gateway->core_count && !ret; i++)
		ret = open_core(gateway, i);
	if (!ret)
		ret = open_cluster(gateway);
	if (ret) {
		gateway_stop(gateway);
		gateway_close(gateway);
		return ret;
	}
	*ret_gateway = gateway;
	return 0;
}

/* ---- Running. ---- */

int gateway_start(struct gateway *gateway)
{
	int ret = 0;

	/* All reactors run also after an error: what lives on them ends there. */
	for (uint32_t i = 0; i < gateway->core_count; i++) {
		struct gw_core *core = &gateway->cores[i];
		struct listen *const listens[] = {core->http, core->https, core->admin};

		if (!ret)
			ret = listen_start_all(listens, ARRAY_LEN(listens));
		reactor_thread_run(&core->thread, core->reactor);
	}
	if (!ret)
		ret = ticker_start(&gateway->pulse, gw_pulse_main, gateway);
	if (!ret)
		ret = -pthread_create(&gateway->keeper, NULL, gw_keeper_main, gateway);
	gateway->keeping = !ret;
	if (ret)
		log_error("gateway", "no thread: %s", strerror(-ret));
	else
		log_info("gateway", "gateway %s of cluster %s", gateway->name,
			gateway->config->cluster.name);
	return ret;
}

uint16_t gateway_http_port(const struct gateway *gateway)
{
	return listen_port(gateway->cores[0].http);
}

uint16_t gateway_https_port(const struct gateway *gateway)
{
	return listen_port(gateway->cores[0].https);
}

uint16_t gateway_admin_port(const struct gateway *gateway)
{
	return listen_port(gateway->cores[0].admin);
}

int gateway_watch_fd(const struct gateway *gateway)
{
	return gateway->https ? https_watch_fd(gateway->https) : -1;
}

void gateway_reload(struct gateway *gateway, bool all)
{
	if (gateway->https)
		https_reload(gateway->https, all);
}

/* ---- The end. ---- */

static void drain_main(void *arg)
{
	struct gw_core *core = arg;
	struct listen *const listens[] = {core->http, core->https, core->admin};
	uint64_t deadline_ns =
		core->gateway->draining_ns + core->gateway->config->http.stall_timeout_s * NS_PER_S;

	listen_drain_all(listens, ARRAY_LEN(listens), deadline_ns);
	gw_links_close(core);
	reactor_stop(core->reactor);
}

static void drain_post(struct reactor_msg *msg)
{
	struct gw_core *core = CONTAINER_OF(msg, struct gw_core, drain_msg);

	/* Until then the connections go on, and the loop with them. */
	eventual_spawn(&core->drain, core->reactor, "drain", drain_main, core);
}

/* First the stores, while requests still find their way to the new owners; then the requests. */
void gateway_stop(struct gateway *gateway)
{
	if (gateway->keeping) {
		atomic_store(&gateway->leaving, true);
		gw_keeper_wake(gateway);
		pthread_join(gateway->keeper, NULL);
		gateway->keeping = false;
	}
	ticker_stop(&gateway->pulse);
	atomic_store(&gateway->draining_ns, clock_now_ns());
	for (uint32_t i = 0; i < gateway->core_count; i++) {
		struct gw_core *core = &gateway->cores[i];

		core->drain_msg.fn = drain_post;
		if (core->thread.running)
			reactor_post(core->reactor, &core->drain_msg);
	}
	for (uint32_t i = 0; i < gateway->core_count; i++)
		reactor_thread_close(&gateway->cores[i].thread);
}

void gateway_close(struct gateway *gateway)
{
	if (!gateway)
		return;
	cluster_close(gateway->cluster);
	rv_close(gateway->rados);
	for (uint32_t i = gateway->core_count; i-- > 0;) {
		struct gw_core *core = &gateway->cores[i];

		listen_close(core->admin);
		listen_close(core->https);
		listen_close(core->http);
		if (core->flow.region)
			flow_core_close(&core->flow);
	}
	https_close(gateway->https);
	net_tls_close(gateway->link_tls);
	s3_close(gateway->s3);
	store_memory_close(gateway->store);
	for (uint32_t i = gateway->core_count; i-- > 0;)
		if (gateway->cores[i].reactor)
			reactor_close(gateway->cores[i].reactor);
	flow_budget_close(gateway->budget);
	region_close(gateway->region);
	if (gateway->wake_fd >= 0)
		close(gateway->wake_fd);
	ticker_close(&gateway->pulse);
	free(gateway);
}
