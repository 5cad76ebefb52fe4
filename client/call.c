/* client/call.c: a request's life: copied from the caller, routed, tried again when its way is
 * lost, finished, handed out. Also the rounds and waits that drive everything. */
#include "client_priv.h"

#include <errno.h>
#include <sched.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct client_op OPS[] = {
	[NEB_GET_OBJECT] = {"GET", NULL, true},
	[NEB_PUT_OBJECT] = {"PUT", NULL, true},
	[NEB_DELETE_OBJECT] = {"DELETE", NULL, true},
	[NEB_HEAD_OBJECT] = {"HEAD", NULL, true},
	[NEB_LIST_OBJECTS] = {"GET", "list-type=2", true},
	[NEB_CREATE_MULTIPART] = {"POST", "uploads", false},
	[NEB_UPLOAD_PART] = {"PUT", NULL, true},
	[NEB_COMPLETE_MULTIPART] = {"POST", NULL, false},
	[NEB_ABORT_MULTIPART] = {"DELETE", NULL, false},
	[NEB_COPY_OBJECT] = {"PUT", NULL, true},
	[NEB_DELETE_OBJECTS] = {"POST", "delete", true},
	[NEB_LIST_MULTIPART] = {"GET", "uploads", true},
	[NEB_LIST_PARTS] = {"GET", NULL, true},
	[NEB_LIST_VERSIONS] = {"GET", "versions", true},
	[NEB_GET_TAGGING] = {"GET", "tagging", true},
	[NEB_PUT_TAGGING] = {"PUT", "tagging", true},
	[NEB_DELETE_TAGGING] = {"DELETE", "tagging", true},
	[NEB_LIST_BUCKETS] = {"GET", NULL, true},
	[NEB_CREATE_BUCKET] = {"PUT", NULL, false},
	[NEB_DELETE_BUCKET] = {"DELETE", NULL, false},
	[NEB_HEAD_BUCKET] = {"HEAD", NULL, true},
	[NEB_GET_BUCKET_LOCATION] = {"GET", "location", true},
	[NEB_PING] = {"GET", NULL, true},
};
static const struct client_op METHODS[] = {
	[CAPSULE_METHOD_GET] = {"GET", NULL, true},
	[CAPSULE_METHOD_HEAD] = {"HEAD", NULL, true},
	[CAPSULE_METHOD_PUT] = {"PUT", NULL, true},
	[CAPSULE_METHOD_POST] = {"POST", NULL, false},
	[CAPSULE_METHOD_DELETE] = {"DELETE", NULL, true},
};

const struct client_op *client_op_of(const struct client_call *call)
{
	if (call->op == NEB_S3)
		return &METHODS[call->method];
	return call->op < ARRAY_LEN(OPS) && OPS[call->op].method ? &OPS[call->op] : NULL;
}

int client_status_error(uint32_t status)
{
	if (status >= 200 && status < 300)
		return 0;
	switch (status) {
	case 401:
	case 403:
		return -EACCES;
	case 404:
		return -ENOENT;
	case 409:
		return -EEXIST;
	case 304:
	case 412:
		return -ESTALE;
	case 416:
		return -ERANGE;
	case 503:
		return -EAGAIN;
	default:
		return status >= 400 && status < 500 ? -EINVAL : -EIO;
	}
}

/* Rounds of waiting in which an answer may come within microseconds: a pause would delay it. */
#define ROUNDS_UNRELAXED 256u

/* ---- Made. ---- */

static size_t text_len(const char *text)
{
	return text ? strlen(text) : 0;
}

static int iov_take(const struct neb_iov *from, uint32_t count, struct neb_iov *to,
	uint32_t *ret_count, uint64_t *ret_bytes)
{
	uint64_t bytes = 0;

	if (count > NEB_IOV_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < count; i++) {
		if (!from[i].data && from[i].bytes)
			return -EINVAL;
		to[i] = from[i];
		bytes += from[i].bytes;
	}
	*ret_count = count;
	*ret_bytes = bytes;
	return 0;
}

static struct slice text_add(char **at, const char *text, size_t len)
{
	struct slice copy = slice_of(*at, len);

	if (len)
		memcpy(*at, text, len);
	*at += len;
	return copy;
}

static int method_take(struct client_call *call, const struct neb_request *request)
{
	call->op = (uint8_t)request->op;
	call->method = CAPSULE_METHOD_NONE;
	if (request->op != NEB_S3)
		return client_op_of(call) ? 0 : -EINVAL;
	for (uint32_t i = 1; request->method && request->path && i < ARRAY_LEN(METHODS); i++)
		if (strcmp(request->method, METHODS[i].method) == 0)
			call->method = (uint8_t)i;
	return call->method && request->path[0] == '/' ? 0 : -EINVAL;
}

/* Strings and headers, in the call's own text. */
static int text_take(struct client_call *call, const struct neb_request *request)
{
	const char *key = request->op == NEB_S3 ? request->path : request->key;
	size_t lens[4] = {text_len(request->bucket), text_len(key), text_len(request->version_id),
		text_len(request->query)};
	size_t headers_bytes = 0, len;
	char *at = call->text;

	if (request->header_count > NEB_HEADERS_MAX || lens[0] > LIMIT_BUCKET_LEN_MAX ||
		lens[1] > (request->op == NEB_S3 ? CAPSULE_PATH_LEN_MAX : LIMIT_KEY_LEN_MAX) ||
		lens[2] > CAPSULE_VERSION_ID_LEN_MAX || lens[3] > CAPSULE_QUERY_LEN_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < request->header_count; i++)
		headers_bytes += 4 + text_len(request->headers[i].name) +
				 text_len(request->headers[i].value);
	len = lens[0] + lens[1] + lens[2] + lens[3] + headers_bytes;
	if (len > sizeof(call->text)) {
		call->more_text = malloc(len);
		if (!call->more_text)
			return -ENOMEM;
		at = call->more_text;
	}
	call->bucket = text_add(&at, request->bucket, lens[0]);
	call->key = text_add(&at, key, lens[1]);
	call->version_id = text_add(&at, request->version_id, lens[2]);
	call->query = text_add(&at, request->query, lens[3]);
	len = 0;
	for (uint32_t i = 0; i < request->header_count; i++) {
		int ret = capsule_header_put((uint8_t *)at, headers_bytes, &len,
			slice_str(request->headers[i].name), slice_str(request->headers[i].value));

		if (ret)
			return -EINVAL;
	}
	call->headers = slice_of(at, len);
	call->header_count = request->header_count;
	return headers_bytes > CAPSULE_HEADERS_BYTES_MAX ? -EINVAL : 0;
}

static int request_take(struct client_call *call, const struct neb_request *request)
{
	int ret = method_take(call, request);

	if (ret == 0)
		ret = text_take(call, request);
	if (ret == 0)
		ret = iov_take(request->body, request->body_count, call->body, &call->body_count,
			&call->body_bytes);
	if (ret == 0)
		ret = iov_take(request->into, request->into_count, call->into, &call->into_count,
			&call->into_bytes);
	if (ret)
		return ret;
	if ((unsigned)request->checksum_kind > NEB_CHECKSUM_XXHASH128 ||
		(request->checksum_kind && !request->checksum) ||
		(request->range_bytes && request->range_bytes > UINT64_MAX - request->range_offset))
		return -EINVAL;
	call->checksum_kind = (uint8_t)request->checksum_kind;
	if (call->checksum_kind)
		memcpy(call->checksum, request->checksum,
			checksum_bytes((enum checksum_kind)call->checksum_kind));
	call->range_offset = request->range_offset;
	call->range_bytes = request->range_bytes;
	call->want_headers = request->want_headers || request->op == NEB_HEAD_OBJECT;
	call->idempotent = client_op_of(call)->idempotent;
	call->done = request->done;
	return 0;
}

static void result_init(struct neb_result *result, uint64_t id, void *user_data)
{
	result->error = 0;
	result->status = 0;
	result->transport = NEB_NONE;
	result->bytes = 0;
	result->object_bytes = 0;
	result->id = id;
	result->user_data = user_data;
	result->etag[0] = '\0';
	result->code[0] = '\0';
	result->message[0] = '\0';
	result->request_id[0] = '\0';
	result->fallback[0] = '\0';
	result->one_sided = false;
	result->headers[0] = '\0';
}

/* Headers are long and mostly empty. */
static void result_copy(struct neb_result *to, const struct neb_result *from)
{
	memcpy(to, from, offsetof(struct neb_result, headers));
	memcpy(to->headers, from->headers, strlen(from->headers) + 1);
}

static struct client_call *call_lease(struct neb_client *client)
{
	struct list *idle = list_pop(&client->idle_calls);
	struct client_call *call =
		idle ? CONTAINER_OF(idle, struct client_call, link) : malloc(sizeof(*call));

	if (!call)
		return NULL;
	list_init(&call->link);
	call->client = client;
	call->attempts = 0;
	call->retries = 0;
	call->not_again_ns = 0;
	call->session = NULL;
	call->bounce = NULL;
	call->lease = NULL;
	call->pages = NULL;
	call->sealed = NULL;
	call->endpoint = NULL;
	call->by_token = false;
	call->declines = 0;
	call->internal = false;
	call->mr_count = 0;
	call->cached_count = 0;
	call->easy = NULL;
	call->curl_headers = NULL;
	call->more_text = NULL;
	return call;
}

static void call_give(struct client_call *call)
{
	list_remove(&call->link);
	free(call->more_text);
	call->more_text = NULL;
	list_push_front(&call->client->idle_calls, &call->link);
}

static int call_make(
	struct neb_client *client, const struct neb_request *request, struct client_call **ret_call)
{
	struct client_call *call = call_lease(client);
	int ret;

	if (!call)
		return -ENOMEM;
	ret = request_take(call, request);
	if (ret) {
		call_give(call);
		return ret;
	}
	for (uint32_t i = 0; i < call->body_count; i++) {
		if (!client_gpu_owns(call->body[i].data))
			continue;
		ret = client_gpu_settle(call->body[i].data);
		if (ret) {
			call_give(call);
			return ret;
		}
		break;
	}
	result_init(&call->result, ++client->next_id, request->user_data);
	call->begun_ns = clock_now_ns();
	call->deadline_ns = call->begun_ns + (request->timeout_ns ? request->timeout_ns
								  : client->request_timeout_ns);
	call->phase = CLIENT_QUEUED;
	list_push_back(&client->queued, &call->link);
	client->undone_count++;
	*ret_call = call;
	return 0;
}

static void call_route(struct client_call *call);

static int call_begin(
	struct neb_client *client, const struct neb_request *request, struct client_call **ret_call)
{
	int ret = call_make(client, request, ret_call);

	if (ret == 0)
		call_route(*ret_call);
	return ret;
}

int client_call_internal(struct neb_client *client, const struct neb_request *request,
	struct client_endpoint *endpoint)
{
	struct client_call *call;
	int ret = call_make(client, request, &call);

	if (ret)
		return ret;
	call->internal = true;
	call->endpoint = endpoint;
	ret = client_http_start(call, endpoint);
	if (ret == 0)
		return 0;
	client->undone_count--;
	call_give(call);
	return ret;
}

/* ---- Routed. ---- */

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
	int ret = endpoint ? client_token_prepare(call, endpoint) : -EHOSTUNREACH;

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

/* The one whose error is told, if there is one. */
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

/* Keys that were refused will be refused again, and another store stays another; and who never had
 * a session is told at once that nobody is there, for that is where a name or a port was misspelt.
 */
static bool hopeless(const struct neb_client *client)
{
	return client->rdma_error == -EACCES || client->rdma_error == -EXDEV ||
	       !client->stats.sessions_opened;
}

/* Finds the call a way, or leaves it queued. */
static void call_route(struct client_call *call)
{
	struct neb_client *client = call->client;
	struct client_session *session;
	const struct client_endpoint *failed;
	int ret;

	if (call->not_again_ns && clock_now_ns() < call->not_again_ns)
		return;
	if (!client->rdma_count) {
		if (client->rdma_error)
			route_fallback(call, client->device_why); /* RDMA was wanted */
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

void client_call_retry(struct client_call *call, int error, const char *why)
{
	struct neb_client *client = call->client;

	client_runs_end(call, 0);
	call->session = NULL;
	call->attempts++;
	/* Pages that were told of are not told again: who lists goes on behind them. */
	if (client->transport == NEB_STRICT || !call->idempotent ||
		(call->pages && call->pages->count) || call->attempts >= CLIENT_ATTEMPTS_MAX ||
		clock_now_ns() >= call->deadline_ns) {
		snprintf(call->result.message, sizeof(call->result.message), "%s", why);
		client_call_finish(call, error);
		return;
	}
	call->phase = CLIENT_QUEUED;
	list_remove(&call->link);
	list_push_back(&client->queued, &call->link);
	client_calls_kick(client);
}

/* The server was busy: once more, later, where that harms nothing and there is time. */
static bool busy_again(struct client_call *call)
{
	struct neb_client *client = call->client;
	uint64_t now_ns = clock_now_ns();
	uint64_t wait_ns = CLIENT_BUSY_NS_MIN << MIN(call->retries, 10);

	wait_ns = wait_ns / 2 + prng_below(&client->prng, wait_ns / 2);
	if (!call->idempotent || call->retries >= client->retries_max ||
		now_ns + wait_ns >= call->deadline_ns)
		return false;
	call->retries++;
	client->stats.retries++;
	call->not_again_ns = now_ns + wait_ns;
	call->session = NULL;
	result_init(&call->result, call->result.id, call->result.user_data);
	call->phase = CLIENT_QUEUED;
	list_remove(&call->link);
	list_push_back(&client->queued, &call->link);
	return true;
}

void client_call_finish(struct client_call *call, int error)
{
	struct neb_result *result = &call->result;

	if (call->internal) {
		result->error = error;
		call->client->undone_count--;
		client_token_connected(call);
		call_give(call);
		return;
	}
	if (result->status == 503 && !(call->pages && call->pages->count) && busy_again(call))
		return;
	if (result->status == 400 && strcmp(result->code, "BufferTooSmall") == 0)
		error = -EMSGSIZE;
	if (call->client->gpu_failed) {
		call->client->gpu_failed = false;
		snprintf(result->message, sizeof(result->message),
			"copying to or from the GPU failed");
		error = -EIO;
	}
	result->error = error;
	call->phase = CLIENT_DONE;
	list_remove(&call->link);
	list_push_back(&call->client->done, &call->link);
	call->client->undone_count--;
}

/* ---- Rounds. ---- */

static void calls_route(struct neb_client *client)
{
	uint32_t count = client->undone_count;

	client->kick = false;
	/* Each queued call once: those that stay queued keep their order. */
	for (struct list *link = client->queued.next; link != &client->queued && count; count--) {
		struct list *next = link->next;
		struct client_call *call = CONTAINER_OF(link, struct client_call, link);

		call_route(call);
		if (call->phase == CLIENT_QUEUED && client->session &&
			client->session->phase == SESSION_OPEN && !client->session->free_count)
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
	LIST_FOR_EACH (link, &client->running) {
		struct client_call *call = CONTAINER_OF(link, struct client_call, link);

		/* The server gives up at the deadline; when even that does not come, our memory
		 * is only ours again once the queue pair is closed. */
		if (call->phase == CLIENT_ON_RDMA &&
			now_ns >= call->deadline_ns + CLIENT_GRACE_NS) {
			client_session_lose(
				call->session, -ETIMEDOUT, "a request was not answered in time");
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
	if (client->device)
		client_cm_progress(client, now_ns);
	client_sessions_keep(client, now_ns);
	deadlines_check(client, now_ns);
	if (!list_empty(&client->queued))
		client->kick = true;
}

void client_progress(struct neb_client *client)
{
	if (__builtin_expect(!list_empty(&client->lost_sessions), 0))
		client_sessions_bury(client);
	if (client->cq) {
		client_cq_progress(client);
		if (++client->idle_rounds < 64 && !client->kick && !client->http_running)
			return;
	}
	slow_round(client);
	if (client->http_running)
		client_http_progress(client);
	if (client->kick)
		calls_route(client);
}

/* Nothing came while we looked: until something can have. */
static void client_sleep(struct neb_client *client, uint64_t until_ns)
{
	uint64_t now_ns = clock_now_ns();
	/* Deadlines and back-offs are looked at this often. */
	uint64_t ns = MIN(until_ns > now_ns ? until_ns - now_ns : 0, 20 * NS_PER_MS);
	int timeout_ms = (int)((ns + NS_PER_MS - 1) / NS_PER_MS);
	int fds[3] = {client->wake_fd};
	uint32_t fd_count = 1;
	uint64_t rings;
	int rung;

	if (client->cq && !rp_cq_arm(client->cq))
		return;
	if (client->cq) {
		fds[fd_count++] = rp_cq_fd(client->cq);
		fds[fd_count++] = rp_cm_fd(client->device);
	}
	client->stats.sleeps++;
	if (client->http_running) {
		struct curl_waitfd waits[3];

		for (uint32_t i = 0; i < fd_count; i++)
			waits[i] = (struct curl_waitfd){.fd = fds[i], .events = CURL_WAIT_POLLIN};
		curl_multi_poll(client->multi, waits, fd_count, timeout_ms, NULL);
		rung = waits[0].revents;
	} else {
		struct pollfd waits[3];

		for (uint32_t i = 0; i < fd_count; i++)
			waits[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
		poll(waits, fd_count, timeout_ms);
		rung = waits[0].revents;
	}
	/* It is rung after woken is set, which the caller looks at next. */
	while (rung && read(client->wake_fd, &rings, sizeof(rings)) < 0 && errno == EINTR)
		continue;
	if (client->cq)
		rp_cq_disarm(client->cq);
	client->cm_polled_ns = 0;
	client->idle_rounds = 64;
}

/* Makes progress until *done, or something is done (done NULL), or the deadline, or with done NULL
 * until somebody wakes it. */
static bool wait_until(struct neb_client *client, const enum client_phase *phase, uint64_t until_ns)
{
	uint64_t spin_until_ns = 0, yield_at_ns = UINT64_MAX, now_ns;

	for (uint32_t round = 0;; round++) {
		client_progress(client);
		if (phase ? *phase == CLIENT_DONE : !list_empty(&client->done))
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

/* ---- The face. ---- */

int neb_submit(struct neb_client *client, const struct neb_request *request, uint64_t *ret_id)
{
	struct client_call *call;
	int ret = call_begin(client, request, &call);

	if (ret == 0 && ret_id)
		*ret_id = call->result.id;
	return ret;
}

/* Off its list first: what it submits may be done at once, and be told in the next round. */
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
			result_copy(&results[count++], &call->result);
		else
			continue;
		call_give(call);
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
	uint64_t now_ns = clock_now_ns();
	bool done = wait_until(client, NULL, now_ns + MIN(timeout_ns, UINT64_MAX - now_ns));
	bool woken = client->woken && atomic_exchange(&client->woken, false);

	if (!done && client->undone_count)
		return woken ? -EINTR : -ETIMEDOUT;
	return results_take(client, results, max);
}

void neb_wake(struct neb_client *client)
{
	const uint64_t one = 1;

	if (atomic_exchange(&client->woken, true))
		return; /* rung already */
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
	int ret = request->done ? -EINVAL : call_make(client, request, &call);

	if (ret == 0) {
		call->pages = pages;
		call_route(call);
	}
	if (ret) {
		if (ret_result)
			result_init(ret_result, 0, request->user_data);
		if (ret_result)
			ret_result->error = ret;
		if (ret_result && ret == -EINVAL)
			snprintf(ret_result->message, sizeof(ret_result->message),
				"the request is out of bounds: a key has at most %u bytes, a "
				"bucket's name %u, all headers %u",
				(unsigned)LIMIT_KEY_LEN_MAX, (unsigned)LIMIT_BUCKET_LEN_MAX,
				(unsigned)CAPSULE_HEADERS_BYTES_MAX);
		return ret;
	}
	wait_until(client, &call->phase, UINT64_MAX);
	ret = call->result.error;
	if (ret_result)
		result_copy(ret_result, &call->result);
	call_give(call);
	return ret;
}

int neb_perform(
	struct neb_client *client, const struct neb_request *request, struct neb_result *ret_result)
{
	return client_perform(client, request, NULL, ret_result);
}

int neb_result_header(const struct neb_result *result, const char *name, const char **ret_value)
{
	struct slice rest = slice_str(result->headers);

	while (rest.len) {
		struct slice line = slice_split(&rest, '\n');
		struct slice header = slice_split(&line, ':');

		if (!slice_eq_nocase(header, slice_str(name)))
			continue;
		line = slice_trim(line);
		*ret_value = line.data;
		return (int)line.len;
	}
	return -ENOENT;
}
