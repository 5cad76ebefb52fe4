/* server/server.c: opens the layers in start order, connects them, and closes them in reverse. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "console/console.h"
#include "etcd/etcd.h"
#include "remote/remote.h"
#include "server/hardware.h"
#include "server/server_priv.h"
#include "server/volumes.h"

/* The server runs even if discovery does not. */
static void open_discovery(struct server *server)
{
	const struct config *config = &server->config;
	const struct front_discovery_opts opts = {
		.device = server_device_opts(config),
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

/* Closes a partly opened server. The objects on its reactors must end there, so the reactors run
 * once more. */
static void server_abandon(struct server *server)
{
	for (uint32_t i = 0; i < server->core_count; i++) {
		if (server->cores[i].attached)
			reactor_thread_run(&server->cores[i].thread, server->cores[i].reactor);
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

static int open_threads(struct server *server)
{
	int ret = 0;

	for (uint32_t i = 0; i < server->core_count && !ret; i++)
		ret = reactor_thread_open(&server->cores[i].thread);
	return ret;
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
	ret = server_place(server);
	if (!ret)
		ret = open_threads(server);
	resources_files(config, server->core_count, 0, &server->files);
	if (!ret)
		ret = server_open_device(server);
	if (!ret)
		ret = volumes_own(&server->config, &server->etcd);
	if (!ret)
		ret = volumes_remote_open(&server->config, server_device_opts(&server->config),
			server->etcd, &server->remote);
	if (!ret)
		ret = names_open(&server->config, &server->rados, &server->names);
	if (!ret)
		ret = server_open_store(server);
	if (!ret)
		ret = server_open_s3(server);
	if (!ret && (config->https.address[0] || config->console.https))
		ret = https_open(config, &server->https);
	for (uint32_t i = 0; i < server->core_count && !ret; i++)
		ret = server_open_core(server, i);
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

uint16_t server_http_port(const struct server *server)
{
	return listen_port(server->cores[0].http);
}

uint16_t server_https_port(const struct server *server)
{
	return listen_port(server->cores[0].https);
}

uint16_t server_admin_port(const struct server *server)
{
	return listen_port(server->cores[0].admin);
}

void server_set_doctor(struct server *server, server_doctor_fn *doctor)
{
	server->tell.doctor = doctor;
}

uint16_t server_console_port(const struct server *server)
{
	return listen_port(server->cores[0].console);
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
		.dir = server->config.data.dir,
		.buffer_bytes_max = resources_replication_bytes(
			&server->config, &server->limits, resources_host_memory())};

	return replicate_open(&opts, &server->replicate);
}

static int start_origins(struct server *server)
{
	const struct origin_opts opts = {.s3 = server->s3,
		.store = server->store,
		.core = &server->cores[0].flow,
		.sender = server->sender,
		.buffer_bytes_max = resources_origin_bytes(
			&server->config, &server->limits, resources_host_memory())};

	return origin_open(&opts, &server->origin);
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
	if (!server->identities_error && server->sender)
		server->identities_error = start_origins(server);
	free(server->accounts_json);
	server->accounts_json = NULL;
	sem_post(&server->identities_done);
}

static int start_listening(struct core *core)
{
	struct listen *const listens[] = {core->http, core->https, core->admin, core->console};

	return listen_start_all(listens, ARRAY_LEN(listens));
}

/* All reactors run also after an error: what lives on them ends there. */
int server_start(struct server *server)
{
	int ret = fiber_spawn(server->cores[0].reactor, "identities", identities_main, server);

	if (ret)
		sem_post(&server->identities_done);
	for (uint32_t i = 0; i < server->core_count; i++) {
		if (!ret)
			ret = start_listening(&server->cores[i]);
		reactor_thread_run(&server->cores[i].thread, server->cores[i].reactor);
	}
	while (sem_wait(&server->identities_done))
		;
	if (ret)
		return ret;
	if (server->identities_error && server->identities_error != -ECANCELED)
		log_error("server", "cannot read accounts and users: %s",
			strerror(-server->identities_error));
	return server->identities_error;
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
