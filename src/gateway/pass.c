/* gateway/pass.c: a request is sent to the process of its store, and the answer comes back, both
 * streaming, on the fiber of the client's connection. */
#include "gateway/gateway_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "codec/token.h"

DEFINE_COUNTER(passed, "nebulaio_gateway_requests_total", NULL,
	"Requests that a gateway passed on to a store's process.");
DEFINE_COUNTER(repeated, "nebulaio_gateway_repeats_total", NULL,
	"Times that a gateway asked again, because a store's process was gone before it began.");
DEFINE_COUNTER(failed, "nebulaio_gateway_failures_total", NULL,
	"Requests that a gateway answered 503, because no process of the store answered.");

DEFINE_COUNTER(left, "nebulaio_gateway_left_total", NULL,
	"Requests whose client had left before a store's process answered.");

void gw_refuse(const struct s3_request *request, struct s3_reply *reply, uint32_t status,
	const char *code, const char *message)
{
	const struct s3_header headers[] = {{SLICE("Content-Type"), SLICE("application/xml")},
		{SLICE("Retry-After"), SLICE("1")}};
	char xml[512];
	int len = snprintf(xml, sizeof(xml),
		"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>%s</Code><Message>%s"
		"</Message><RequestId>%s</RequestId></Error>",
		code, message, request->request_id);

	CHECK(len > 0 && (size_t)len < sizeof(xml));
	if (!reply->ops->head(reply, status, headers, status == 503 ? 2 : 1, (uint64_t)len))
		reply->ops->text(reply, slice_of(xml, (size_t)len));
}

/* ---- One exchange. ---- */

static bool has_body(const struct s3_request *request)
{
	struct slice length = gw_header(request, SLICE("content-length"));

	return (length.len && !slice_eq(length, SLICE("0"))) ||
	       gw_header(request, SLICE("transfer-encoding")).data;
}

static int exchange_once(struct gw_core *core, const struct s3_request *request,
	const struct cluster_store *store, enum via_kind kind, struct gw_link **ret_link,
	bool *ret_begun)
{
	uint64_t stall_ns = core->gateway->config->http.stall_timeout_s * NS_PER_S;
	bool body = kind == VIA_SERVE ? has_body(request) : kind == VIA_TAKE;
	const struct gw_client client = gw_client_of(request);
	struct gw_link *link;
	int ret = gw_link_open(core, store, &client, &link);

	*ret_begun = false;
	if (ret)
		return ret;
	ret = gw_link_ask(link, request, kind, body, stall_ns);
	/* The body is sent only after 100 Continue, and without it nothing is done. */
	*ret_begun = !body && ret != -EMSGSIZE;
	if (!ret)
		ret = gw_link_hear(link);
	if (ret) {
		gw_link_end(link, false);
		return ret;
	}
	*ret_link = link;
	return 0;
}

int gw_exchange(struct gw_core *core, const struct s3_request *request, uint32_t store,
	enum via_kind kind, struct gw_link **ret_link)
{
	struct gateway *gateway = core->gateway;
	uint64_t deadline_ns = clock_now_ns() + gateway->config->cluster.wait_s * NS_PER_S;
	struct cluster_store now;
	bool begun = false;
	int ret;

	counter_add(&passed, 1);
	for (;;) {
		ret = gw_store_await(gateway, store, deadline_ns, &now);
		if (!ret)
			ret = exchange_once(core, request, &now, kind, ret_link, &begun);
		if (!ret)
			return 0;
		if (ret == -EMSGSIZE || ret == -EPROTO || ret == -ENOMEM || ret == -ENOBUFS ||
			ret == -ECONNABORTED ||
			(begun && kind == VIA_SERVE && !s3_method_harmless(request->method)) ||
			gateway->draining_ns || clock_now_ns() >= deadline_ns)
			break;
		counter_add(&repeated, 1);
		fiber_sleep_ns(GW_LOOK_NS);
	}
	if (ret == -ECONNABORTED)
		counter_add(&left, 1);
	else if (ret == -ENOBUFS)
		log_warn("gateway", "%s: too many requests of one client wait for store %u",
			request->peer, store);
	else
		log_warn("gateway", "%s: store %u did not answer: %s", request->peer, store,
			strerror(-ret));
	return begun && kind == VIA_SERVE ? -EINPROGRESS : ret;
}

/* ---- Bodies. ---- */

/* Sends the request's body, and waits for the answer. -EINPROGRESS: the process has all of it. */
static int body_send(struct gw_link *link, const struct s3_request *request, uint16_t share)
{
	struct flow_source *source;
	uint64_t bytes;
	int ret = request->body->ops->open(request->body, NULL, &source);

	if (ret)
		return ret;
	source->share = share;
	ret = flow_run(
		source, NULL, 0, gw_link_sink(link, source->bytes_total == UINT64_MAX), &bytes);
	/* A process that refuses a body in the middle says why. */
	if (ret)
		return net_wait_readable(link->stream, clock_now_ns() + NS_PER_S)
			       ? ret
			       : gw_link_hear(link);
	return gw_link_hear(link) ? -EINPROGRESS : 0;
}

/* The rest of a small body comes into the buffer of the head. */
static int body_gather(struct gw_link *link, struct slice *ret_body)
{
	uint64_t deadline_ns =
		clock_now_ns() + link->core->gateway->config->http.stall_timeout_s * NS_PER_S;
	uint64_t bytes = link->answer.bytes;
	size_t got;
	int ret;

	while (link->end - link->start < bytes) {
		ret = net_recv(link->stream, link->in + link->end, link->start + bytes - link->end,
			deadline_ns, &got);
		if (ret || !got)
			return ret ? ret : -EPIPE;
		link->end += (uint32_t)got;
	}
	*ret_body = slice_of(link->in + link->start, bytes);
	link->start += (uint32_t)bytes;
	return 0;
}

/* A native client asks where the store's owner listens for it (docs/spec/wire.md, "Owners"). Only a
 * caller whose request the store has granted, by its key, is told; so not with requests that the
 * store answers without a look at the key: preflights, forms, pages of websites. */
static void tell_owner(struct gw_link *link, const struct s3_request *request)
{
	struct gateway *gateway = link->core->gateway;
	struct gw_answer *answer = &link->answer;
	struct cluster_store store;

	if (!slice_eq(gw_header(request, SLICE("x-nebulaio-owner")), SLICE("?")) ||
		!gw_header(request, SLICE("authorization")).len || answer->status >= 400 ||
		request->method == S3_OPTIONS || request->method == S3_POST ||
		gw_host_bucket(gateway, request).len ||
		answer->header_count == GW_ANSWER_HEADERS_MAX ||
		!gw_store(gateway, link->store, &store) || !store.rdma[0])
		return;
	memcpy(link->rdma, store.rdma, sizeof(link->rdma));
	answer->headers[answer->header_count++] =
		(struct s3_header){SLICE("x-nebulaio-owner"), slice_str(link->rdma)};
}

/* The client needs another queue pair for a bucket of another store (docs/spec/token.md). */
static void tell_bucket(struct gw_link *link, const struct s3_request *request)
{
	struct slice bucket = gw_rdma_bucket(link->core->gateway, request);
	struct gw_answer *answer = &link->answer;

	if (bucket.len && answer->status == 200 && answer->header_count < GW_ANSWER_HEADERS_MAX)
		answer->headers[answer->header_count++] =
			(struct s3_header){token_header(TOKEN_HEADER_BUCKET), bucket};
}

/* Gives the store's answer to the client. False: the link cannot be used again. */
static bool relay(struct gw_link *link, const struct s3_request *request, struct s3_reply *reply)
{
	struct gw_answer *answer = &link->answer;
	bool small = answer->bytes <= sizeof(link->in) - link->start;
	bool bodyless = request->method == S3_HEAD || answer->status == 204 ||
			answer->status == 304 || !answer->bytes;
	struct slice text = SLICE_NONE;
	struct flow_sink *sink;
	uint64_t bytes;

	if (!bodyless && small && body_gather(link, &text)) {
		gw_gone(request, reply, link->answer.status < 300 ? -EINPROGRESS : -EPIPE);
		return false;
	}
	tell_owner(link, request);
	tell_bucket(link, request);
	if (reply->ops->head(
		    reply, answer->status, answer->headers, answer->header_count, answer->bytes))
		return false;
	if (bodyless)
		return true;
	if (small)
		return !reply->ops->text(reply, text);
	link->left = answer->bytes;
	if (reply->ops->sink(reply, &sink))
		return false;
	return !flow_run(gw_link_source(link), NULL, 0, sink, &bytes);
}

void gw_relay(struct gw_link *link, const struct s3_request *request, struct s3_reply *reply)
{
	gw_link_end(link, relay(link, request, reply));
}

void gw_gone(const struct s3_request *request, struct s3_reply *reply, int error)
{
	counter_add(&failed, 1);
	if (error == -EINPROGRESS && !s3_method_harmless(request->method))
		gw_refuse(request, reply, 503, "OutcomeUnknown",
			"The store's process does not answer now, and it is not known whether it "
			"did the request: look before you repeat it.");
	else
		gw_refuse(request, reply, 503, "SlowDown",
			"The store has no process that answers now. Try again.");
}

static void pass(struct gw_core *core, const struct s3_request *request, struct s3_reply *reply,
	uint32_t store)
{
	uint16_t share = flow_share_of_peer(core->flow.budget, slice_str(request->peer));
	struct gw_link *link;
	int ret = gw_exchange(core, request, store, VIA_SERVE, &link);

	if (ret) {
		gw_gone(request, reply, ret);
		return;
	}
	link->share = share;
	while (!ret && link->answer.status == 100)
		ret = body_send(link, request, share);
	if (ret) {
		gw_link_end(link, false);
		gw_gone(request, reply, ret);
		return;
	}
	gw_relay(link, request, reply);
}

/* ---- Which store. ---- */

/* PUT of a bucket without a parameter that names a part of it: CreateBucket. */
static bool creates_bucket(const struct s3_request *request, bool has_key)
{
	struct slice rest = request->query;

	while (rest.len) {
		struct slice name = slice_split(&rest, '&');

		if (!slice_starts(name, SLICE("x-id=")) &&
			!slice_eq_nocase(slice_to(name, 6), SLICE("X-Amz-")))
			return false;
	}
	return request->method == S3_PUT && !has_key;
}

static void map_gone(const struct s3_request *request, struct s3_reply *reply)
{
	gw_refuse(request, reply, 503, "SlowDown",
		"The cluster's map cannot be read now. Try again.");
}

static void handle_bucket(struct gw_core *core, const struct s3_request *request,
	struct s3_reply *reply, const char *bucket, bool has_key)
{
	struct gateway *gateway = core->gateway;
	uint32_t store = 0, source;
	int ret = -ENOENT;

	/* Names that no bucket can have are for store 0 to refuse. */
	if (s3_bucket_name_valid(slice_str(bucket)) ||
		slice_ends(slice_str(bucket), SLICE("-x-s3")))
		ret = gw_bucket_store(gateway, bucket, &store);
	if (ret == -ENOENT) {
		store = creates_bucket(request, has_key) ? gw_roomy_store(gateway) : 0;
		ret = 0;
	}
	source = store;
	if (!ret && has_key && request->method == S3_PUT)
		ret = gw_copy_store(gateway, request, &source);
	if (ret)
		map_gone(request, reply);
	else if (source != store)
		gw_copy(core, request, reply, store, source);
	else
		pass(core, request, reply, store);
}

void gw_handle(void *arg, const struct s3_request *request, struct s3_reply *reply)
{
	struct gw_core *core = arg;
	struct gateway *gateway = core->gateway;
	char bucket[LIMIT_BUCKET_LEN_MAX + 1] = "";
	uint32_t store;
	bool has_key;
	int ret;

	fiber_share_set(flow_share_of_peer(core->flow.budget, slice_str(request->peer)));
	if (gw_header(request, SLICE(VIA_HEADER)).data) {
		/* Of a gateway whose map is wrong, or of somebody who pretends to be one. */
		gw_refuse(request, reply, 400, "InvalidRequest",
			"The header " VIA_HEADER " is for the processes of stores only.");
	} else if ((ret = gw_rdma_store(gateway, request, &store)) != -ENODATA) {
		if (ret)
			map_gone(request, reply);
		else
			pass(core, request, reply, store);
	} else if (gw_of_account(request)) {
		pass(core, request, reply, 0);
	} else if (gw_bucket_of(gateway, request, bucket, &has_key).len) {
		handle_bucket(core, request, reply, bucket, has_key);
	} else if (gw_lists_buckets(request) && gw_stores(gateway) > 1) {
		gw_list_buckets(core, request, reply);
	} else {
		/* Store 0 has the accounts. */
		pass(core, request, reply, 0);
	}
}
