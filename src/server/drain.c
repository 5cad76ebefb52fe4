/* server/drain.c: the orderly end: fronts finish what runs, the first core waits for the others,
 * and the store's last checkpoint covers all changes. */
#include "server/server_priv.h"

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
		if (core->thread.running && core->token)
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
	struct listen *const listens[] = {core->http, core->https, core->console};
	struct server *server = core->server;
	uint64_t deadline_ns = clock_now_ns() + patience_ns(server);

	listen_drain_all(listens, ARRAY_LEN(listens), deadline_ns);
	if (core->native)
		front_native_drain(core->native, deadline_ns);
	if (core->native)
		paths_drain(&server->paths, (uint32_t)(core - server->cores), deadline_ns);
	listen_drain_all(&core->admin, 1, deadline_ns);
	if (core == &server->cores[0]) {
		server->last_drainer = fiber_self();
		if (atomic_fetch_sub(&server->cores_draining, 1) > 1) {
			while (atomic_load(&server->cores_draining))
				fiber_park();
		}
		memory_stop(&server->memory);
		end_fronts(server);
		lifecycle_close(&server->lifecycle);
		origin_close(server->origin);
		server->origin = NULL;
		replicate_close(server->replicate);
		server->replicate = NULL;
		s3_access_log_stop(server->s3, clock_now_ns() + patience_ns(server));
		s3_outbox_stop(server->s3);
		store_quiesce(server->store);
		for (uint32_t i = 1; i < server->core_count; i++) {
			if (server->cores[i].thread.running)
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

	/* The other cores wait for this one. */
	eventual_spawn(&core->drain, core->reactor, "drain", drain_main, core);
}

void server_stop(struct server *server)
{
	server->draining = true;
	if (server->s3)
		s3_fan_out_stop(server->s3);
	origin_stop(server->origin);
	front_discovery_close(server->discovery);
	server->discovery = NULL;
	server->cores_draining = 0;
	for (uint32_t i = 0; i < server->core_count; i++)
		server->cores_draining += server->cores[i].thread.running;
	for (uint32_t i = 0; i < server->core_count; i++) {
		struct core *core = &server->cores[i];

		core->drain_msg.fn = drain_post;
		if (core->thread.running)
			reactor_post(core->reactor, &core->drain_msg);
	}
	for (uint32_t i = 0; i < server->core_count; i++)
		reactor_thread_close(&server->cores[i].thread);
}
