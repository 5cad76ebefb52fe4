/* client/progress.c: the rounds and waits that drive all calls: each call is routed by RDMA or HTTP
 * until it is done. Also the calls of nebulaio.h that submit and wait. */
#include "http_priv.h"
#include "session_priv.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* In the first rounds of waiting the answer may come within microseconds: a pause would delay
 * it. */
#define ROUNDS_UNRELAXED 256u
/* The client's own, the one that it watches, and two of each device. */
#define SLEEP_FDS (2u + 2u * CLIENT_DEVICES_MAX)

/* ---- Routing. ---- */

static struct client_endpoint *http_endpoint(struct client_call *call)
{
	struct neb_client *client = call->client;
	uint32_t skip = call->attempts;

	for (uint32_t round = 0; round <= CLIENT_ATTEMPTS_MAX; round++)
		for (uint32_t i = 0; i < client->endpoint_count; i++)
			if (client->endpoints[i].scheme != CLIENT_RDMA && skip-- == 0)
				return &client->endpoints[i];
	return NULL;
}

static void route_http(struct client_call *call)
{
	struct client_endpoint *endpoint = http_endpoint(call);
	int ret;

	call->device_idx = 0;
	if (endpoint && client_hipobj_start(call, endpoint))
		return;
	ret = endpoint ? client_token_prepare(call, endpoint) : -EHOSTUNREACH;
	if (ret == -EAGAIN)
		return;
	if (ret == 0)
		ret = client_http_start(call, endpoint);
	if (ret)
		client_call_finish(call, ret);
}

static void route_fallback(struct client_call *call, const char *why)
{
	call->client->stats.fallbacks++;
	snprintf(call->result.fallback, sizeof(call->result.fallback), "%.*s",
		(int)sizeof(call->result.fallback) - 1, why);
	route_http(call);
}

/* The endpoint whose error is reported, if there is one. */
static const struct client_endpoint *rdma_failed(const struct neb_client *client)
{
	const struct client_endpoint *failed = NULL;

	for (uint32_t i = 0; i < client->endpoint_count; i++) {
		const struct client_endpoint *endpoint = &client->endpoints[i];

		if (endpoint->scheme == CLIENT_RDMA && endpoint->why[0] &&
			(!failed || failed->error != client->rdma_error))
			failed = endpoint;
	}
	return failed;
}

static void finish_unsent(struct client_call *call, const struct client_endpoint *failed)
{
	int error = call->client->rdma_error;

	if (failed)
		snprintf(call->result.message, sizeof(call->result.message), "%s", failed->why);
	client_call_finish(call, error ? error : -ENETDOWN);
}

/* A server that refused the keys will refuse them again, and an endpoint of another store stays
 * one. A client that never had a session gets the error at once, because then a name or a port is
 * probably misspelt.
 */
static bool hopeless(const struct neb_client *client)
{
	return client->rdma_error == -EACCES || client->rdma_error == -EXDEV ||
	       !client->stats.sessions_opened;
}

static void finish_unknown(struct client_call *call)
{
	snprintf(call->result.message, sizeof(call->result.message),
		"the session was lost before the answer, and only the server that had the request "
		"knows whether it was done: look before you repeat it");
	client_call_finish(call, -EIO);
}

/* Only the server that had the request may get it again. */
static void route_bound(struct client_call *call)
{
	struct neb_client *client = call->client;
	struct client_session *session = NULL;
	const char *why = NULL;
	int ret = -ESTALE;

	if (client->owners) {
		if (!client_owner_route(call, &why))
			finish_unknown(call);
		return;
	}
	if (client->rdma_count)
		session = client_session_want(client);
	if (!session && client->rdma_count && client->transport != NEB_STRICT && !hopeless(client))
		return;
	if (session)
		ret = client_session_start(session, call);
	if (ret && ret != -EAGAIN)
		finish_unknown(call);
}

/* Finds a transport for the call, or leaves it queued. */
static void call_route(struct client_call *call)
{
	struct neb_client *client = call->client;
	struct client_session *session;
	const struct client_endpoint *failed;
	int ret;

	if (call->not_again_ns && clock_now_ns() < call->not_again_ns)
		return;
	if (call->internal) {
		ret = client_http_start(call, call->endpoint);
		if (ret)
			client_call_finish(call, ret);
		return;
	}
	if (__builtin_expect(client_call_bound(call), 0)) {
		route_bound(call);
		return;
	}
	if (client->owners) {
		const char *why = NULL;

		if (client_owner_route(call, &why))
			return;
		if (why)
			route_fallback(call, why);
		else
			route_http(call);
		return;
	}
	if (!client->rdma_count) {
		if (client->rdma_error)
			/* The caller asked for RDMA. */
			route_fallback(
				call, client->rdma_why ? client->rdma_why : client->device_why);
		else
			route_http(call);
		return;
	}
	session = client_session_want(client);
	if (session && session->phase != SESSION_OPEN)
		return;
	if (session) {
		ret = client_session_start(session, call);
		if (ret == 0 || ret == -EAGAIN)
			return;
		if (client->http_count)
			route_fallback(call, ret == -EMSGSIZE ? "the request does not fit a capsule"
							      : strerror(-ret));
		else
			client_call_finish(call, ret);
		return;
	}
	failed = rdma_failed(client);
	if (client->http_count)
		route_fallback(call, failed ? failed->why : "no RDMA session");
	else if (client->transport == NEB_STRICT || hopeless(client))
		finish_unsent(call, failed);
}

static int call_begin(
	struct neb_client *client, const struct neb_request *request, struct client_call **ret_call)
{
	int ret = client_call_make(client, request, ret_call);

	if (ret == 0)
		call_route(*ret_call);
	return ret;
}

/* ---- Rounds. ---- */

/* All sessions are full: a call that is queued waits for one of them. */
static bool is_full(const struct neb_client *client)
{
	const struct client_session *best = client_path_best(client);

	return best && best->phase == SESSION_OPEN && !best->free_count;
}

static void calls_route(struct neb_client *client)
{
	uint32_t count = client->undone_count;

	client->kick = false;
	/* Looks at each queued call once; calls that stay queued keep their order. */
	for (struct list *link = client->queued.next; link != &client->queued && count; count--) {
		struct list *next = link->next;
		struct client_call *call = CONTAINER_OF(link, struct client_call, link);

		call_route(call);
		if (call->phase == CLIENT_QUEUED && is_full(client))
			break;
		link = next;
	}
}

static void deadlines_check(struct neb_client *client, uint64_t now_ns)
{
	LIST_FOR_EACH_SAFE (link, &client->queued) {
		struct client_call *call = CONTAINER_OF(link, struct client_call, link);
		const struct client_endpoint *failed = rdma_failed(client);

		if (call->deadline_ns > now_ns)
			continue;
		if (failed)
			snprintf(call->result.message, sizeof(call->result.message), "%s",
				failed->why);
		client_call_finish(call, -ETIMEDOUT);
	}
	LIST_FOR_EACH_SAFE (link, &client->running) {
		struct client_call *call = CONTAINER_OF(link, struct client_call, link);

		if (call->phase == CLIENT_ON_HIPOBJ && now_ns >= call->deadline_ns)
			client_hipobj_late(call);
	}
	LIST_FOR_EACH (link, &client->running) {
		struct client_call *call = CONTAINER_OF(link, struct client_call, link);

		/* The server ends the request at the deadline. When even that answer does not come,
		 * the server may use the call's memory until the queue pair is closed. */
		if (call->phase == CLIENT_ON_RDMA &&
			now_ns >= call->deadline_ns + CLIENT_GRACE_NS) {
			client_session_lose(
				call->session, -ETIMEDOUT, "a request got no answer in time");
			break;
		}
	}
}

static void slow_round(struct neb_client *client)
{
	uint64_t now_ns = clock_now_ns();

	client->idle_rounds = 0;
	if (now_ns - client->cm_polled_ns < CLIENT_CM_POLL_NS)
		return;
	client->cm_polled_ns = now_ns;
	if (client->device_count)
		client_cm_progress(client, now_ns);
	client_sessions_keep(client, now_ns);
	client_paths_probe(client, now_ns);
	deadlines_check(client, now_ns);
	if (!list_empty(&client->queued))
		client->kick = true;
}

void client_progress(struct neb_client *client)
{
	if (__builtin_expect(!list_empty(&client->lost_sessions), 0))
		client_sessions_reap(client);
	if (client->device_count) {
		client_cq_progress(client);
		if (++client->idle_rounds < 64 && !client->kick && !client->http_running)
			return;
	}
	slow_round(client);
	if (!list_empty(&client->hipobjs))
		client_hipobj_progress(client);
	if (client->http_running)
		client_http_progress(client);
	if (client->kick)
		calls_route(client);
}

/* Asks all devices to wake the client. False: one of them has something to do. */
static bool devices_arm(struct neb_client *client)
{
	uint32_t armed = 0;

	while (armed < client->device_count && rp_cq_arm(client->devices[armed].cq))
		armed++;
	if (armed == client->device_count)
		return true;
	while (armed)
		rp_cq_disarm(client->devices[--armed].cq);
	return false;
}

/* Polls the first two, and the devices in the others: their completions and their connections. */
static void waits_poll(struct neb_client *client, struct pollfd waits[SLEEP_FDS], int timeout_ms)
{
	const uint32_t fd_count = 2 + 2 * client->device_count;

	for (uint32_t i = 2; i < fd_count; i++) {
		const struct client_device *device = &client->devices[(i - 2) / 2];

		/* poll passes over -1. */
		waits[i] = (struct pollfd){.fd = device->lost[i % 2] ? -1
						 : i % 2	     ? rp_cm_fd(device->rp)
								     : rp_cq_fd(device->cq),
			.events = POLLIN};
	}
	if (client->http_running) {
		struct curl_waitfd extra[SLEEP_FDS];
		uint32_t count = 0;

		for (uint32_t i = 0; i < fd_count; i++)
			if (waits[i].fd >= 0)
				extra[count++] = (struct curl_waitfd){
					.fd = waits[i].fd, .events = CURL_WAIT_POLLIN};
		curl_multi_poll(client->multi, extra, count, timeout_ms, NULL);
		/* curl tells no errors. */
		timeout_ms = 0;
	}
	poll(waits, fd_count, timeout_ms);
	for (uint32_t i = 2; i < fd_count; i++)
		if (client_fd_lost(&waits[i]))
			client->devices[(i - 2) / 2].lost[i % 2] = true;
}

void client_sleep(struct neb_client *client, uint64_t until_ns)
{
	uint64_t now_ns = clock_now_ns();
	/* Deadlines and back-offs are checked at least this often. */
	uint64_t ns = MIN(until_ns > now_ns ? until_ns - now_ns : 0, 20 * NS_PER_MS);
	int timeout_ms = (int)((ns + NS_PER_MS - 1) / NS_PER_MS);
	struct pollfd waits[SLEEP_FDS] = {{.fd = client->wake_fd, .events = POLLIN},
		{.fd = client->watch_fd, .events = POLLIN}};
	uint64_t rings;

	if (!devices_arm(client))
		return;
	client->stats.sleeps++;
	waits_poll(client, waits, timeout_ms);
	/* neb_wake sets woken before it writes; the caller looks at woken next. */
	while (waits[0].revents && read(client->wake_fd, &rings, sizeof(rings)) < 0 &&
		errno == EINTR)
		continue;
	client->watch_lost = client_fd_lost(&waits[1]);
	if (waits[1].revents && !client->watch_quiet)
		client->woken = true;
	for (uint32_t i = 0; i < client->device_count; i++)
		rp_cq_disarm(client->devices[i].cq);
	client->cm_polled_ns = 0;
	client->idle_rounds = 64;
}

/* Makes progress until *phase is DONE or the deadline. With phase NULL: until the list has a call,
 * neb_wake is called, or the deadline. */
static bool wait_until(struct neb_client *client, const enum client_phase *phase,
	const struct list *ended, uint64_t until_ns)
{
	uint64_t spin_until_ns = 0, yield_at_ns = UINT64_MAX, now_ns;

	for (uint32_t round = 0;; round++) {
		client_progress(client);
		if (phase ? *phase == CLIENT_DONE : !list_empty(ended))
			return true;
		if (!client->undone_count || (!phase && client->woken))
			return false;
		if (round >= ROUNDS_UNRELAXED)
			clock_relax();
		if (round & 63)
			continue;
		now_ns = clock_now_ns();
		if (now_ns >= until_ns)
			return false;
		if (!spin_until_ns)
			spin_until_ns = now_ns + MIN(client->spin_ns, UINT64_MAX - now_ns);
		if (now_ns >= yield_at_ns)
			sched_yield();
		if (now_ns >= yield_at_ns || !round)
			yield_at_ns = now_ns + CLOCK_YIELD_NS;
		if (now_ns < spin_until_ns)
			continue;
		client_sleep(client, until_ns);
		spin_until_ns = 0;
	}
}

/* ---- Public calls. ---- */

int neb_submit(struct neb_client *client, const struct neb_request *request, uint64_t *ret_id)
{
	struct client_call *call;
	int ret = call_begin(client, request, &call);

	if (ret == 0 && ret_id)
		*ret_id = call->result.id;
	return ret;
}

int client_submit(struct neb_client *client, const struct neb_request *request, struct list *ended)
{
	struct client_call *call;
	int ret = client_call_make(client, request, &call);

	if (ret)
		return ret;
	call->ended = ended;
	call_route(call);
	return 0;
}

void client_wait_list(struct neb_client *client, const struct list *ended, uint64_t until_ns)
{
	wait_until(client, NULL, ended, until_ns);
}

/* Takes the call off its list first: a call that the callback submits may end at once, and is
 * reported in the next round. */
static void call_tell(struct client_call *call)
{
	list_remove(&call->link);
	call->done(call->result.user_data, &call->result);
}

static int results_take(struct neb_client *client, struct neb_result *results, uint32_t max)
{
	uint32_t count = 0;

	LIST_FOR_EACH_SAFE (link, &client->done) {
		struct client_call *call = CONTAINER_OF(link, struct client_call, link);

		if (call->done)
			call_tell(call);
		else if (count < max)
			client_result_copy(&results[count++], &call->result);
		else
			continue;
		client_call_give(call);
	}
	return (int)count;
}

int neb_poll(struct neb_client *client, struct neb_result *results, uint32_t max)
{
	client_progress(client);
	return results_take(client, results, max);
}

int neb_wait(
	struct neb_client *client, struct neb_result *results, uint32_t max, uint64_t timeout_ns)
{
	uint64_t now_ns;
	bool done, woken;

	/* A read that the device has done at once needs no clock. */
	client_progress(client);
	done = !list_empty(&client->done);
	if (!done) {
		now_ns = clock_now_ns();
		done = wait_until(
			client, NULL, &client->done, now_ns + MIN(timeout_ns, UINT64_MAX - now_ns));
	}
	woken = client->woken && atomic_exchange(&client->woken, false);
	if (!done && client->undone_count)
		return woken ? -EINTR : -ETIMEDOUT;
	return results_take(client, results, max);
}

void neb_wake(struct neb_client *client)
{
	const uint64_t one = 1;

	if (atomic_exchange(&client->woken, true))
		return; /* the eventfd was written already */
	while (write(client->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		continue;
}

uint32_t neb_in_flight(const struct neb_client *client)
{
	return client->undone_count;
}

int client_perform(struct neb_client *client, const struct neb_request *request,
	struct client_pages *pages, struct neb_result *ret_result)
{
	struct client_call *call;
	int ret = request->done ? -EINVAL : client_call_make(client, request, &call);

	if (ret == 0) {
		call->pages = pages;
		call_route(call);
	}
	if (ret) {
		if (ret_result)
			client_result_init(ret_result, 0, request->user_data);
		if (ret_result)
			ret_result->error = ret;
		if (ret_result && ret == -EINVAL)
			client_request_why(
				request, ret_result->message, sizeof(ret_result->message));
		return ret;
	}
	wait_until(client, &call->phase, NULL, UINT64_MAX);
	ret = call->result.error;
	if (ret_result)
		client_result_copy(ret_result, &call->result);
	client_call_give(call);
	return ret;
}

int neb_perform(
	struct neb_client *client, const struct neb_request *request, struct neb_result *ret_result)
{
	return client_perform(client, request, NULL, ret_result);
}
