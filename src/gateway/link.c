/* gateway/link.c: a connection to the process of a store: heads both ways, and bodies as ends of
 * flow. The bytes of heads are the client's own, but for what belongs to one connection. */
#include "gateway/gateway_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

DEFINE_COUNTER_FULL(links_full, "gateway_links");

/* ---- Life. ---- */

static void link_close(struct gw_link *link)
{
	CHECK(link->core->links[link->store]);
	link->core->links[link->store]--;
	net_close(link->stream);
	free(link);
}

/* After a burst most of them are not used again, and their processes have closed them. */
static void idle_old_close(struct gw_core *core, uint32_t store)
{
	struct list *idle = &core->idle[store];
	uint64_t now_ns = clock_now_ns();

	for (uint32_t i = 0; i < 2 && !list_empty(idle); i++) {
		struct gw_link *link = CONTAINER_OF(idle->next, struct gw_link, link);

		if (now_ns - link->idle_since_ns < GW_IDLE_NS)
			return;
		list_remove(&link->link);
		link_close(link);
	}
}

void gw_link_end(struct gw_link *link, bool keep)
{
	gw_place_give(&link->core->busy[link->store], &link->client);
	link->request = NULL;
	/* A process may answer in the middle of a body, and then still waits for the rest of it: it
	 * would take the next request for that. */
	if (!keep || link->answer.close || link->owed || link->left || link->start != link->end) {
		link_close(link);
		return;
	}
	link->idle_since_ns = clock_now_ns();
	list_push_back(&link->core->idle[link->store], &link->link);
	idle_old_close(link->core, link->store);
}

void gw_links_close(struct gw_core *core)
{
	for (uint32_t i = 0; i < CLUSTER_STORES_MAX; i++) {
		while (core->idle[i].next && !list_empty(&core->idle[i])) {
			struct gw_link *link =
				CONTAINER_OF(core->idle[i].next, struct gw_link, link);

			list_remove(&link->link);
			link_close(link);
		}
	}
}

/* An idle one that the peer has not closed; the last that was used is the most likely to be good.
 */
static struct gw_link *idle_take(struct gw_core *core, const struct cluster_store *store)
{
	struct list *idle = &core->idle[store->number];

	while (!list_empty(idle)) {
		struct gw_link *link = CONTAINER_OF(idle->prev, struct gw_link, link);
		uint64_t now_ns = clock_now_ns();

		list_remove(&link->link);
		if (strcmp(link->addr, store->http) == 0 &&
			now_ns - link->idle_since_ns < GW_IDLE_NS &&
			net_wait_readable(link->stream, now_ns) == -ETIMEDOUT)
			return link;
		link_close(link);
	}
	return NULL;
}

/* -ECONNREFUSED: it is no process of this cluster, or does not speak TLS (yet): another may come in
 * its place. */
static int link_connect(struct gw_link *link)
{
	struct net_tls *tls = link->core->gateway->link_tls;
	uint64_t deadline_ns = clock_now_ns() + GW_CONNECT_NS;
	int ret = net_connect(link->addr, deadline_ns, &link->stream);

	if (ret)
		return ret;
	net_keepalive(link->stream, GW_KEEPALIVE_S);
	if (!tls)
		return 0;
	ret = net_tls_connect(tls, link->stream, deadline_ns);
	if (!ret)
		return 0;
	if (ret == -EPROTO)
		log_warn("gateway",
			"store %u: %s has not the cluster's certificate: cluster.tls must be the "
			"same on each gateway",
			link->store, link->addr);
	net_close(link->stream);
	return ret == -EPROTO ? -ECONNREFUSED : ret;
}

static int link_make(struct gw_core *core, const struct cluster_store *store, struct gw_link **ret)
{
	struct gw_link *link;
	int error;

	if (core->links[store->number] >= GW_LINKS_MAX)
		return -EAGAIN;
	link = malloc(sizeof(*link));
	if (!link)
		return -ENOMEM;
	memset(link, 0, offsetof(struct gw_link, in));
	link->core = core;
	link->store = store->number;
	memcpy(link->addr, store->http, sizeof(link->addr));
	core->links[store->number]++;
	error = link_connect(link);
	if (error) {
		core->links[store->number]--;
		free(link);
		return error;
	}
	*ret = link;
	return 0;
}

int gw_link_open(struct gw_core *core, const struct cluster_store *store,
	const struct gw_client *client, struct gw_link **ret_link)
{
	struct gw_places *busy = &core->busy[store->number];
	struct gw_link *link;
	int ret = 0;

	busy->max = GW_LINKS_MAX;
	if (!gw_place_take(busy, client)) {
		counter_add(&links_full, 1);
		return busy->busy == busy->max ? -EAGAIN : -ENOBUFS;
	}
	link = idle_take(core, store);
	if (!link)
		ret = link_make(core, store, &link);
	if (ret) {
		if (ret == -EAGAIN)
			counter_add(&links_full, 1);
		gw_place_give(busy, client);
		return ret;
	}
	link->client = *client;
	*ret_link = link;
	return 0;
}

/* ---- Asking. ---- */

struct writer {
	char *at, *end;
	bool failed;
};

static void put(struct writer *out, struct slice text)
{
	if (text.len > (size_t)(out->end - out->at)) {
		out->failed = true;
		return;
	}
	out->at = mempcpy(out->at, text.data, text.len);
}

static void put_header(struct writer *out, struct slice name, struct slice value)
{
	put(out, name);
	put(out, SLICE(": "));
	put(out, value);
	put(out, SLICE("\r\n"));
}

/* Headers that belong to the connection with the client (RFC 9110, 7.6.1). x-nebulaio-store says
 * that all endpoints are one store's: of gateways they are not. */
static bool of_connection(struct slice name)
{
	static const struct slice NAMES[] = {SLICE("connection"), SLICE("keep-alive"),
		SLICE("proxy-connection"), SLICE("te"), SLICE("upgrade"), SLICE("expect"),
		SLICE("x-nebulaio-store")};

	for (size_t i = 0; i < ARRAY_LEN(NAMES); i++)
		if (slice_eq_nocase(name, NAMES[i]))
			return true;
	return false;
}

/* The client's own headers. The length of a body that is not the client's takes another name. */
static void put_headers(struct writer *out, const struct s3_request *request, enum via_kind kind)
{
	for (uint32_t i = 0; i < request->header_count; i++) {
		struct s3_header header = request->headers[i];

		if (of_connection(header.name) ||
			(kind != VIA_SERVE &&
				(slice_eq_nocase(header.name, SLICE("transfer-encoding")) ||
					slice_eq_nocase(header.name, SLICE(CARRY_LENGTH)))))
			continue;
		if (kind != VIA_SERVE && slice_eq_nocase(header.name, SLICE("content-length")))
			header.name = SLICE(CARRY_LENGTH);
		put_header(out, header.name, header.value);
	}
}

int gw_link_ask(struct gw_link *link, const struct s3_request *request, enum via_kind kind,
	bool has_body, uint64_t stall_ns)
{
	struct writer out = {link->out, link->out + sizeof(link->out), false};
	struct gateway *gateway = link->core->gateway;
	char via_text[VIA_BYTES_MAX], volume[64];
	struct via via = {.peer = slice_str(request->peer),
		.transport = slice_str(request->transport),
		.id = slice_of(request->request_id, VIA_ID_LEN),
		.time_s = (int64_t)(clock_real_ns() / NS_PER_S),
		.kind = kind};
	struct slice target;
	struct iovec iov;
	int ret;

	link->request = request;
	cluster_volume_name(gateway->config->cluster.name, link->store, volume);
	via.store = slice_str(volume);
	put(&out, request->method_text);
	put(&out, SLICE(" "));
	target.data = out.at;
	put(&out, request->path);
	if (request->query.len) {
		put(&out, SLICE("?"));
		put(&out, request->query);
	}
	target.len = (size_t)(out.at - target.data);
	put(&out, SLICE(" HTTP/1.1\r\n"));
	ret = via_write(
		cluster_secret(gateway->cluster), &via, request->method_text, target, via_text);
	if (ret)
		return ret;
	if (!gw_header(request, SLICE("host")).data)
		put_header(&out, SLICE("Host"), SLICE("gateway"));
	put_headers(&out, request, kind);
	if (kind == VIA_TAKE)
		put_header(&out, SLICE("Transfer-Encoding"), SLICE("chunked"));
	put_header(&out, SLICE(VIA_HEADER), slice_str(via_text));
	/* Nothing of the body is sent before the store wants it: until then another process of the
	 * store may be asked. */
	if (has_body || (kind == VIA_SERVE && gw_header(request, SLICE("expect")).data))
		put_header(&out, SLICE("Expect"), SLICE("100-continue"));
	put(&out, SLICE("\r\n"));
	if (out.failed)
		return -EMSGSIZE;
	link->start = link->end = 0;
	link->left = 0;
	link->owed = false;
	iov = (struct iovec){link->out, (size_t)(out.at - link->out)};
	return net_sendv_stall(link->stream, &iov, 1, stall_ns, clock_now_ns() + 2 * stall_ns);
}

/* ---- Hearing. ---- */

static int header_take(struct slice line, struct gw_answer *answer, bool *has_bytes)
{
	struct slice name = slice_split(&line, ':'), value = slice_trim(line);

	if (!name.len || answer->header_count == GW_ANSWER_HEADERS_MAX)
		return -EPROTO;
	if (slice_eq_nocase(name, SLICE("content-length"))) {
		if (*has_bytes || slice_to_u64(value, &answer->bytes))
			return -EPROTO;
		*has_bytes = true;
		return 0;
	}
	if (slice_eq_nocase(name, SLICE("transfer-encoding")))
		return -EPROTO;
	if (slice_eq_nocase(name, SLICE("connection"))) {
		answer->close = answer->close || slice_eq_nocase(value, SLICE("close"));
		return 0;
	}
	/* The gateway's own answer has these. */
	if (slice_eq_nocase(name, SLICE("server")) || slice_eq_nocase(name, SLICE("date")) ||
		slice_eq_nocase(name, SLICE("x-amz-id-2")) ||
		slice_eq_nocase(name, SLICE("x-amz-request-id")))
		return 0;
	answer->headers[answer->header_count++] = (struct s3_header){name, value};
	return 0;
}

int gw_answer_parse(struct slice head, struct gw_answer *ret_answer)
{
	struct slice line = slice_split(&head, '\n');
	bool has_bytes = false;
	uint64_t status;
	int ret = 0;

	ret_answer->bytes = 0;
	ret_answer->close = false;
	ret_answer->header_count = 0;
	if (!slice_starts(line, SLICE("HTTP/1.1 ")) ||
		slice_to_u64(slice_to(slice_from(line, 9), 3), &status) || status < 100 ||
		status > 599)
		return -EPROTO;
	ret_answer->status = (uint32_t)status;
	while (!ret && head.len) {
		line = slice_split(&head, '\n');
		if (!slice_ends(line, SLICE("\r")))
			return -EPROTO;
		line = slice_to(line, line.len - 1);
		if (!line.len)
			return head.len ? -EPROTO : 0;
		ret = header_take(line, ret_answer, &has_bytes);
	}
	return ret ? ret : -EPROTO; /* no empty line */
}

/* Whether the process that was asked is still the store's. */
static bool still_there(const struct gw_link *link)
{
	struct cluster_store store;

	return gw_store(link->core->gateway, link->store, &store) &&
	       strcmp(store.http, link->addr) == 0;
}

/* The client is told before its connection is cut. */
static bool gives_up(const struct gw_link *link)
{
	struct gateway *gateway = link->core->gateway;
	uint64_t since_ns = atomic_load(&gateway->draining_ns);

	return since_ns && s3_method_harmless(link->request->method) &&
	       clock_now_ns() >=
		       since_ns + gateway->config->http.stall_timeout_s * NS_PER_S / 4 * 3;
}

static int hear_more(struct gw_link *link, uint64_t since_ns)
{
	uint64_t deadline_ns = since_ns + GW_ANSWER_NS;
	size_t got = 0;
	int ret = -ETIMEDOUT;

	if (link->end == sizeof(link->in))
		return -EPROTO;
	while (ret == -ETIMEDOUT) {
		uint64_t now_ns = clock_now_ns();

		if (now_ns >= deadline_ns)
			return -ETIMEDOUT;
		ret = net_recv(link->stream, link->in + link->end, sizeof(link->in) - link->end,
			MIN(deadline_ns, now_ns + NS_PER_S), &got);
		if (ret == -ETIMEDOUT && link->request->left &&
			link->request->left(link->request->left_arg))
			return -ECONNABORTED;
		if (ret == -ETIMEDOUT && !still_there(link))
			return -ESTALE;
		if (ret == -ETIMEDOUT && gives_up(link))
			return -ECANCELED;
		if (ret == -ETIMEDOUT && net_unheard(link->stream, since_ns, GW_SILENT_NS))
			return -ETIMEDOUT;
	}
	if (!ret && !got)
		ret = -ECONNRESET;
	link->end += (uint32_t)got;
	return ret;
}

int gw_link_hear(struct gw_link *link)
{
	uint64_t since_ns = clock_now_ns();
	struct slice have;
	ptrdiff_t len;
	int ret;

	/* A head's slices point into the buffer, from its start on. */
	memmove(link->in, link->in + link->start, link->end - link->start);
	link->end -= link->start;
	link->start = 0;
	for (;;) {
		have = slice_of(link->in, link->end);
		len = slice_find(have, SLICE("\r\n\r\n"));
		if (len >= 0)
			break;
		ret = hear_more(link, since_ns);
		if (ret)
			return ret;
	}
	link->start = (uint32_t)len + 4;
	ret = gw_answer_parse(slice_to(have, link->start), &link->answer);
	link->left = 0;
	return ret;
}

/* ---- The request's body. ---- */

static int sink_push(struct flow_sink *sink, struct flow_piece *piece)
{
	struct gw_link *link = CONTAINER_OF(sink, struct gw_link, sink);
	uint64_t stall_ns = link->core->gateway->config->http.stall_timeout_s * NS_PER_S;
	bool leased = piece->hold == FLOW_HOLD_LEASE;
	char head[24];
	struct iovec iov[3];
	uint32_t count = 0;
	int ret;

	if (link->chunked && piece->bytes)
		iov[count++] = (struct iovec){
			head, (size_t)snprintf(head, sizeof(head), "%x\r\n", piece->bytes)};
	if (leased)
		region_switch(sink->core->region, piece->span, OWNER_APP, OWNER_NET);
	if (piece->bytes)
		iov[count++] = (struct iovec){piece->data, piece->bytes};
	if (link->chunked && piece->bytes)
		iov[count++] = (struct iovec){(void *)(uintptr_t) "\r\n", 2};
	ret = count ? net_sendv_stall(
			      link->stream, iov, count, stall_ns, clock_now_ns() + 2 * stall_ns)
		    : 0;
	flow_piece_end(sink->core, piece, leased ? OWNER_NET : OWNER_CACHE);
	return ret;
}

static int sink_finish(struct flow_sink *sink, bool failed)
{
	struct gw_link *link = CONTAINER_OF(sink, struct gw_link, sink);
	struct iovec iov = {(void *)(uintptr_t) "0\r\n\r\n", 5};

	int ret = 0;

	if (failed)
		return 0;
	if (link->chunked)
		ret = net_sendv(link->stream, &iov, 1, clock_now_ns() + 10 * NS_PER_S);
	link->owed = ret;
	return ret;
}

static const struct flow_sink_ops sink_ops = {
	.name = "gateway",
	.push = sink_push,
	.finish = sink_finish,
};

struct flow_sink *gw_link_sink(struct gw_link *link, bool chunked)
{
	link->chunked = chunked;
	link->owed = true;
	link->sink = (struct flow_sink){.magic = FLOW_SINK_MAGIC,
		.ops = &sink_ops,
		.core = &link->core->flow,
		.deadline_ns = DEADLINE_NONE};
	return &link->sink;
}

/* ---- The answer's body. ---- */

/* Until bytes of it have come. A store that is silent holds no frames meanwhile. */
static int body_await(struct gw_link *link, uint64_t deadline_ns)
{
	int ret = link->start != link->end ? 0 : -ETIMEDOUT;

	while (ret == -ETIMEDOUT) {
		uint64_t now_ns = clock_now_ns();

		if (now_ns >= deadline_ns)
			return -ETIMEDOUT;
		ret = net_wait_readable(link->stream, MIN(deadline_ns, now_ns + NS_PER_S));
		if (ret == -ETIMEDOUT && !still_there(link))
			return -ESTALE;
	}
	return ret;
}

/* Fewer bytes than wanted, at least 1, if the others are long in coming. */
static int body_take(struct gw_link *link, uint8_t *data, uint32_t want, uint32_t *ret_have)
{
	uint32_t have = MIN(want, link->end - link->start);
	size_t got = 0;
	int ret = 0;

	if (have) {
		region_copy(data, link->in + link->start, have, COPY_INLINE_IN);
		link->start += have;
	}
	if (have < want)
		ret = net_recv_full(
			link->stream, data + have, want - have, clock_now_ns() + GW_FILL_NS, &got);
	have += (uint32_t)got;
	if (ret && !(ret == -ETIMEDOUT && have))
		return ret;
	*ret_have = have;
	return have ? 0 : -EPIPE;
}

static int source_next(struct flow_source *source, uint32_t bytes_max, struct flow_piece *ret_piece)
{
	struct gw_link *link = CONTAINER_OF(source, struct gw_link, source);
	uint64_t stall_ns = link->core->gateway->config->http.stall_timeout_s * NS_PER_S;
	uint32_t want = (uint32_t)MIN(link->left, bytes_max), have = 0;
	const struct flow_want terms = {.frame_count = region_frames_for(want),
		.owner = OWNER_NET,
		.share = source->share,
		.begun = true,
		.deadline_ns = clock_now_ns() + stall_ns};
	int ret;

	if (!want)
		return 0;
	*ret_piece = (struct flow_piece){.data = NULL};
	do {
		ret = body_await(link, terms.deadline_ns);
		if (!ret)
			ret = flow_piece_lease(source->core, &terms, ret_piece);
		if (ret)
			return ret;
		ret = body_take(link, ret_piece->data, want, &have);
		if (ret)
			flow_piece_end(source->core, ret_piece, OWNER_NET);
	} while (ret == -ETIMEDOUT); /* a part of a record of TLS had come */
	if (ret)
		return ret;
	region_switch(source->core->region, ret_piece->span, OWNER_NET, OWNER_APP);
	ret_piece->bytes = have;
	ret_piece->offset = link->answer.bytes - link->left;
	link->left -= have;
	return 1;
}

static void source_close(struct flow_source *source)
{
	(void)source; /* the link's bytes belong to this answer */
}

static const struct flow_source_ops source_ops = {
	.name = "gateway",
	.next = source_next,
	.close = source_close,
};

struct flow_source *gw_link_source(struct gw_link *link)
{
	link->source = (struct flow_source){.magic = FLOW_SOURCE_MAGIC,
		.ops = &source_ops,
		.core = &link->core->flow,
		.bytes_total = link->left,
		.share = link->share,
		.deadline_ns = DEADLINE_NONE};
	return &link->source;
}
