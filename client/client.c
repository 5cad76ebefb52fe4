/* client/client.c: opens and closes a client, and checks its options and endpoints. */
#include "http_priv.h"
#include "session_priv.h"

#include "base/board.h"
#include "reg_cache.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void log_to_stderr(void *arg, enum neb_log_level level, const char *text)
{
	(void)arg;
	if (level >= NEB_LOG_WARN)
		fprintf(stderr, "nebulaio: %s\n", text);
}

/* ---- Options. ---- */

static int option_copy(struct neb_client *client, const char *name, struct slice value, char *buf,
	size_t buf_bytes)
{
	if (value.len && slice_copy_str(value, buf, buf_bytes) == 0)
		return 0;
	client_log(client, NEB_LOG_ERROR, "option %s is missing or too long", name);
	return -EINVAL;
}

static int session_token_take(struct neb_client *client, const char *token)
{
	if (!token)
		token = signing_session_token(client->access_key);
	if (!token || !*token)
		return 0;
	client->session_token = strdup(token);
	return client->session_token ? 0 : -ENOMEM;
}

/* A time of the environment, which is for those who cannot change a program: a slow disk, a busy
 * host. */
static int seconds_take(
	struct neb_client *client, const char *name, uint64_t preset_ns, uint64_t *ret_ns)
{
	const char *text = secure_getenv(name);
	unsigned long seconds;
	char *end;

	*ret_ns = preset_ns;
	if (!text || !*text)
		return 0;
	seconds = strtoul(text, &end, 10);
	if (*end || seconds < 1 || seconds > CLIENT_SECONDS_MAX) {
		client_log(client, NEB_LOG_ERROR, "%s: '%s' is not 1 to %u seconds", name, text,
			CLIENT_SECONDS_MAX);
		return -EINVAL;
	}
	*ret_ns = seconds * NS_PER_S;
	return 0;
}

static int timeouts_take(struct neb_client *client, const struct neb_options *options)
{
	uint64_t request_ns = MIN(options->request_timeout_ns, CLIENT_TIMEOUT_NS_MAX);
	uint64_t connect_ns = MIN(options->connect_timeout_ns, CLIENT_TIMEOUT_NS_MAX);
	int ret = 0;

	if (!request_ns)
		ret = seconds_take(
			client, "NEBULAIO_REQUEST_TIMEOUT_S", CLIENT_REQUEST_NS, &request_ns);
	if (!ret && !connect_ns)
		ret = seconds_take(client, "NEBULAIO_CONNECT_TIMEOUT_S",
			client->transport == NEB_AUTO ? CLIENT_CONNECT_NS : request_ns,
			&connect_ns);
	client->request_timeout_ns = request_ns;
	client->connect_timeout_ns = connect_ns;
	return ret;
}

static int options_take(struct neb_client *client, const struct neb_options *options)
{
	int ret;

	client->log = options->log ? options->log : log_to_stderr;
	client->log_arg = options->log_arg;
	if ((unsigned)options->transport > NEB_STRICT ||
		options->requests_max > LIMIT_SESSION_REQUESTS_MAX)
		return -EINVAL;
	client->transport = options->transport;
	client->require_encryption = options->require_encryption;
	client->requests_max = options->requests_max ? options->requests_max : 64;
	client->inline_bytes_max = options->inline_bytes_max ? options->inline_bytes_max : 256;
	if (client->inline_bytes_max == UINT32_MAX)
		client->inline_bytes_max = 0;
	client->inline_bytes_max =
		MIN(client->inline_bytes_max, (uint32_t)LIMIT_CAPSULE_INLINE_BYTES_MAX);
	ret = timeouts_take(client, options);
	if (ret)
		return ret;
	client->retries_max = options->retries_max ? options->retries_max : 4;
	if (client->retries_max == UINT32_MAX || client->transport == NEB_STRICT)
		client->retries_max = 0;
	client->spin_ns = options->spin_ns ? options->spin_ns : 50 * NS_PER_US;
	client->reg_cache_bytes = options->registration_cache_bytes;
	if (options->device_name) {
		client->device_wanted = strdup(options->device_name);
		if (!client->device_wanted)
			return -ENOMEM;
	}
	client->keepalive_ns = options->keepalive_ns ? options->keepalive_ns : CLIENT_KEEPALIVE_NS;
	ret = option_copy(client, "access_key", slice_str(options->access_key), client->access_key,
		sizeof(client->access_key));
	if (ret == 0)
		ret = option_copy(client, "secret_key", slice_str(options->secret_key),
			client->secret_key, sizeof(client->secret_key));
	if (ret == 0)
		ret = option_copy(client, "region",
			options->region ? slice_str(options->region) : SLICE("us-east-1"),
			client->region, sizeof(client->region));
	if (ret == 0)
		ret = session_token_take(client, options->session_token);
	return ret ? ret : client_endpoints_parse(client, options->endpoints);
}

/* ---- Opening and closing. ---- */

/* A session's set-up has no place for the token of temporary credentials. */
static int sessions_leave(struct neb_client *client)
{
	static const char WHY[] = "RDMA sessions do not take temporary credentials";
	bool goes_on = client->http_count > 0;

	if (!client->session_token || (!client->rdma_count && !client->owner_count))
		return 0;
	client_log(client, goes_on ? NEB_LOG_WARN : NEB_LOG_ERROR,
		"%s (a session token): %s; for bodies by RDMA give http://HOST:PORT?rdma or "
		"http://HOST:PORT?rdma=hipobj",
		WHY, goes_on ? "requests use HTTP" : "there is no HTTP endpoint");
	client->rdma_count = client->owner_count = 0;
	client->rdma_error = -EOPNOTSUPP;
	client->rdma_why = WHY;
	return goes_on ? 0 : -EOPNOTSUPP;
}

/* Says once what each request's fallback says. */
static void tell_unencrypted(struct neb_client *client)
{
	if (!client->require_encryption || !client->http_count)
		return;
	for (uint32_t i = 0; i < client->endpoint_count; i++) {
		const struct client_endpoint *endpoint = &client->endpoints[i];

		if (!endpoint->token && !endpoint->hipobj)
			continue;
		client_log(client, NEB_LOG_WARN, "%s://%s:%u%s: %s: requests use HTTP alone",
			endpoint->scheme == CLIENT_HTTPS ? "https" : "http", endpoint->host,
			endpoint->port, endpoint->token ? "?rdma" : "?rdma=hipobj",
			CLIENT_NOT_ENCRYPTED);
	}
}

/* Without a device, AUTO uses HTTP only; that has been logged. */
static int rdma_open(struct neb_client *client, const struct neb_options *options)
{
	int ret = sessions_leave(client);

	if (ret)
		return ret;
	tell_unencrypted(client);
	if (client->rdma_count || client->token_count || client->owner_count) {
		ret = client_device_open(client);
		if (ret && client->http_count) {
			client->rdma_count = 0;
			client->token_count = 0;
			client->owner_count = 0;
			ret = 0;
		}
	}
	if (ret == 0)
		ret = client_pool_open(
			client, options->pool_bytes ? options->pool_bytes : 64 * MIB);
	if (ret == 0)
		ret = client_reg_cache_open(client);
	if (ret == 0 && client->owner_count)
		ret = client_owners_open(client);
	if (ret == 0 && options->one_sided_reads && (client->rdma_count || client->owners))
		ret = client_leases_open(client);
	return ret;
}

static int strict_connect(struct neb_client *client)
{
	struct client_session *session = client_session_want(client);
	uint64_t spin_until_ns = clock_now_ns() + MIN(client->spin_ns, client->connect_timeout_ns);

	while (session && session->phase < SESSION_OPEN) {
		client_progress(client);
		session = client_session_want(client);
		if (session && session->phase < SESSION_OPEN && clock_now_ns() >= spin_until_ns)
			client_sleep(client, UINT64_MAX);
	}
	return session ? 0 : client->rdma_error;
}

int neb_client_open(const struct neb_options *options, struct neb_client **ret_client)
{
	return client_open(options, NULL, ret_client);
}

int client_open(const struct neb_options *options, _Atomic uint64_t *store_id,
	struct neb_client **ret_client)
{
	struct neb_client *client = calloc(1, sizeof(*client));
	int ret;

	if (!client)
		return -ENOMEM;
	list_init(&client->sessions);
	list_init(&client->lost_sessions);
	list_init(&client->queued);
	list_init(&client->running);
	list_init(&client->hipobjs);
	list_init(&client->done);
	list_init(&client->idle_calls);
	list_init(&client->numbered);
	random_fill(&client->once_id, sizeof(client->once_id));
	client_gpu_look();
	client->paths_up_shown = board_place("nebulaio_client_paths_up");
	client->paths_lost_shown = board_place("nebulaio_client_paths_lost_total");
	client->moved_shown = board_place("nebulaio_client_requests_moved_total");
	random_fill(&client->prng, sizeof(client->prng));
	client->pool.fd = -1;
	client->watch_fd = -1;
	client->store_id = store_id ? store_id : &client->own_store_id;
	client->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ret = client->wake_fd < 0 ? -errno : options_take(client, options);
	if (ret == 0)
		ret = rdma_open(client, options);
	if (ret == 0 && client->transport == NEB_STRICT)
		ret = strict_connect(client);
	if (ret) {
		neb_client_close(client);
		return ret;
	}
	*ret_client = client;
	return 0;
}

int client_thread_start(pthread_t *ret_thread, void *(*run)(void *arg), void *arg)
{
	sigset_t all, before;
	int ret;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ret = -pthread_create(ret_thread, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return ret;
}

static void calls_free(struct list *calls)
{
	struct list *link;

	while ((link = list_pop(calls)) != NULL) {
		struct client_call *call = CONTAINER_OF(link, struct client_call, link);

		free(call->more_text);
		free(call);
	}
}

void neb_client_close(struct neb_client *client)
{
	if (!client)
		return;
	/* No session, no second try: every call ends when its transport is closed. */
	client->transport = NEB_STRICT;
	client->rdma_count = 0;
	client->http_count = 0;
	client->owner_count = 0;
	LIST_FOR_EACH_SAFE (link, &client->sessions)
		client_session_lose(CONTAINER_OF(link, struct client_session, link), -ECANCELED,
			"the client is closing");
	client_sessions_reap(client);
	client_owners_close(client);
	client_hipobj_end(client);
	client_http_close(client);
	client_hipobj_free(client);
	client_tokens_close(client);
	calls_free(&client->queued);
	calls_free(&client->done);
	calls_free(&client->idle_calls);
	client_registrations_close(client);
	client_leases_close(client);
	client_pool_close(client);
	client_device_close(client);
	if (client->wake_fd >= 0)
		close(client->wake_fd);
	secret_wipe(client->secret_key, sizeof(client->secret_key));
	if (client->session_token)
		secret_wipe(client->session_token, strlen(client->session_token));
	free(client->session_token);
	free(client->device_wanted);
	free(client);
}

void neb_client_stats(const struct neb_client *client, struct neb_stats *ret_stats)
{
	struct reg_cache_stats cached = {0};

	*ret_stats = client->stats;
	ret_stats->paths = client_paths_now(client);
	for (uint32_t i = 0; i < client->path_count; i++)
		ret_stats->paths_up += client->paths[i] && client->paths[i]->phase == SESSION_OPEN;
	for (uint32_t i = 0; i < client->device_count && client->devices[i].reg_cache; i++) {
		reg_cache_stats(client->devices[i].reg_cache, &cached);
		ret_stats->registration_hits += cached.hits;
		ret_stats->registration_misses += cached.misses;
		ret_stats->registration_evictions += cached.evictions;
	}
}
