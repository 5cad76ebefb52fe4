/* client/token.c: bodies by RDMA tokens in HTTP requests (docs/spec/token.md): a queue pair
 * for each endpoint that asks for it, connected by the first request that wants one, and each
 * request's window of memory. A gateway connects a queue pair to the owner of the store of one
 * bucket, so through gateways there is one for each bucket in use. A request that cannot use a
 * token moves its body by HTTP, and its result has the reason. */
#include "http_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_NS (10 * NS_PER_S)
/* Queue pairs of an endpoint; the one unused for the longest time makes room. */
#define BUCKETS_MAX  8u
#define DECLINES_MAX 2u /* the first may mean that the server has forgotten our queue pair */

/*   CLOSED   -> ASKED   POST /?rdma-connect is on its way
 *   ASKED    -> JOINING the server's end is known
 *   JOINING  -> UP      both ends are ready
 *   any      -> CLOSED  declined, or a transfer of it failed */
enum token_phase { TOKEN_CLOSED, TOKEN_ASKED, TOKEN_JOINING, TOKEN_UP };

struct client_token {
	enum token_phase phase;
	struct rp_qp *qp;
	uint64_t retry_ns;    /* CLOSED: not tried before this */
	uint64_t deadline_ns; /* JOINING */
	char why[96];	      /* why it is CLOSED */
	char bucket[LIMIT_BUCKET_LEN_MAX + 1];
	uint32_t calls; /* that have a token of it, or ask for it */
	uint64_t used;	/* number of its last use */
};

struct client_tokens {
	bool by_bucket; /* the endpoint is a gateway: a queue pair is for its bucket only */
	uint64_t uses;
	struct client_token list[BUCKETS_MAX];
};

/* After the close the server can no longer touch the client's memory. */
static void lose(struct client_token *tokens, const char *why, uint64_t retry_ns)
{
	rp_qp_close(tokens->qp);
	tokens->qp = NULL;
	tokens->phase = TOKEN_CLOSED;
	tokens->retry_ns = retry_ns;
	snprintf(tokens->why, sizeof(tokens->why), "%s", why);
}

/* ---- Connecting. ---- */

void client_token_of(const struct rp_address *address, struct token *ret_token)
{
	*ret_token = (struct token){
		.lid = address->lid, .qpn = address->qpn, .has_gid = address->has_gid};
	memcpy(ret_token->gid, address->gid, sizeof(ret_token->gid));
}

static int qp_open(struct neb_client *client, struct client_token *tokens, struct rp_address *ours)
{
	const struct rp_qp_attr attr = {.type = RP_QP_RC,
		.send_cq = client->devices[0].cq,
		.recv_cq = client->devices[0].cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1},
		.retry_count = 7,
		.rnr_retry_count = 7};
	int ret = rp_qp_open(client->devices[0].pd, &attr, &tokens->qp);

	return ret ? ret : rp_qp_address(tokens->qp, ours);
}

static int header_number(const struct neb_result *result, enum token_header header, uint32_t *ret)
{
	const char *text = NULL;
	int len = neb_result_header(result, token_header(header).data, &text);
	uint64_t number;

	if (len < 0 || slice_to_u64(slice_of(text, (size_t)len), &number) || number > UINT32_MAX)
		return -EPROTO;
	*ret = (uint32_t)number;
	return 0;
}

int client_token_answer(const struct neb_result *result, struct rp_address *ret_theirs)
{
	const char *text = NULL, *why;
	struct rp_address theirs;
	struct token token;
	int len = neb_result_header(result, token_header(TOKEN_HEADER_TOKEN).data, &text);

	if (len < 0 || token_parse(slice_of(text, (size_t)len), true, &token, &why) ||
		header_number(result, TOKEN_HEADER_PSN, &theirs.psn) ||
		header_number(result, TOKEN_HEADER_MTU, &theirs.mtu))
		return -EPROTO;
	theirs.lid = token.lid;
	theirs.qpn = token.qpn;
	theirs.has_gid = token.has_gid;
	memcpy(theirs.gid, token.gid, sizeof(theirs.gid));
	*ret_theirs = theirs;
	return 0;
}

static int join(struct client_call *call, struct client_token *tokens)
{
	struct rp_address theirs;
	const char *text;
	int ret = client_token_answer(&call->result, &theirs);

	if (neb_result_header(&call->result, token_header(TOKEN_HEADER_BUCKET).data, &text) > 0)
		call->endpoint->tokens->by_bucket = true;
	return ret ? ret : rp_qp_join(tokens->qp, &theirs, false);
}

/* The server's answer to ?rdma-connect is in the call's result. */
static void connected(struct client_call *call)
{
	struct client_token *tokens = call->result.user_data;
	const struct neb_result *result = &call->result;
	uint64_t now_ns = clock_now_ns();
	char why[96];

	client_calls_kick(call->client);
	tokens->calls--;
	if (tokens->phase != TOKEN_ASKED)
		return;
	if (result->error || result->status != 200) {
		snprintf(why, sizeof(why), "no queue pair: %.64s",
			result->code[0] ? result->code : strerror(-result->error));
		lose(tokens, why, now_ns + RETRY_NS);
	} else if (join(call, tokens)) {
		lose(tokens, "cannot connect the queue pair", now_ns + RETRY_NS);
	} else {
		tokens->phase = TOKEN_JOINING;
		tokens->deadline_ns = now_ns + call->client->connect_timeout_ns;
	}
}

void client_token_ask(struct client_token_ask *ask, const char *method,
	const struct rp_address *ours, const char *bucket)
{
	struct token token;

	*ask = (struct client_token_ask){0};
	client_token_of(ours, &token);
	token_format(&token, ask->token);
	snprintf(ask->psn, sizeof(ask->psn), "%u", ours->psn);
	snprintf(ask->mtu, sizeof(ask->mtu), "%u", ours->mtu);
	ask->headers[0] = (struct neb_header){token_header(TOKEN_HEADER_TOKEN).data, ask->token};
	ask->headers[1] = (struct neb_header){token_header(TOKEN_HEADER_PSN).data, ask->psn};
	ask->headers[2] = (struct neb_header){token_header(TOKEN_HEADER_MTU).data, ask->mtu};
	ask->headers[3] = (struct neb_header){token_header(TOKEN_HEADER_BUCKET).data, bucket};
	ask->request = (struct neb_request){.op = NEB_S3,
		.method = method,
		.path = "/",
		.query = TOKEN_CONNECT_PARAM,
		.headers = ask->headers,
		.header_count = bucket && *bucket ? 4 : 3,
		.want_headers = true};
}

static int ask(
	struct neb_client *client, struct client_endpoint *endpoint, struct client_token *tokens)
{
	struct client_token_ask ask;
	struct rp_address ours;
	int ret = qp_open(client, tokens, &ours);

	if (ret)
		return ret;
	client_token_ask(&ask, "POST", &ours, tokens->bucket);
	ask.request.timeout_ns = client->connect_timeout_ns;
	ask.request.user_data = tokens;
	ret = client_call_internal(client, &ask.request, endpoint, false, connected);
	if (ret)
		return ret;
	tokens->phase = TOKEN_ASKED;
	tokens->calls++;
	return 0;
}

/* The queue pair for a bucket. NULL: others use all of them. */
static struct client_token *of_bucket(struct client_tokens *all, struct slice bucket)
{
	struct client_token *oldest = NULL;

	if (!all->by_bucket && all->list[0].bucket[0])
		return &all->list[0];
	for (uint32_t i = 0; i < BUCKETS_MAX; i++)
		if (slice_eq(slice_str(all->list[i].bucket), bucket))
			return &all->list[i];
	for (uint32_t i = 0; i < BUCKETS_MAX; i++)
		if (!all->list[i].calls && (!oldest || all->list[i].used < oldest->used))
			oldest = &all->list[i];
	if (!oldest)
		return NULL;
	lose(oldest, "", 0);
	return slice_copy_str(bucket, oldest->bucket, sizeof(oldest->bucket)) ? NULL : oldest;
}

/* 0: UP; -EAGAIN: the queue pair is connecting; other errors: it is not available now. */
static int want(
	struct neb_client *client, struct client_endpoint *endpoint, struct client_token *tokens)
{
	uint64_t now_ns = clock_now_ns();
	enum rp_qp_state state = tokens->qp ? rp_qp_state(tokens->qp) : RP_QPS_INIT;

	if (tokens->phase == TOKEN_JOINING && state == RP_QPS_RTS)
		tokens->phase = TOKEN_UP;
	if (tokens->phase == TOKEN_JOINING &&
		(state == RP_QPS_ERR || now_ns >= tokens->deadline_ns))
		lose(tokens, "the queue pair is not connected", now_ns + RETRY_NS);
	if (tokens->phase == TOKEN_UP && state != RP_QPS_RTS)
		lose(tokens, "the queue pair broke", 0);
	if (tokens->phase == TOKEN_CLOSED && now_ns >= tokens->retry_ns &&
		ask(client, endpoint, tokens))
		lose(tokens, "no queue pair", now_ns + RETRY_NS);
	if (tokens->phase == TOKEN_UP)
		return 0;
	return tokens->phase == TOKEN_CLOSED ? -ENETDOWN : -EAGAIN;
}

/* ---- A request. ---- */

static bool takes_token(const struct client_call *call)
{
	if (call->op == NEB_GET_OBJECT)
		return call->into_bytes > 0;
	return (call->op == NEB_PUT_OBJECT || call->op == NEB_UPLOAD_PART) && call->body_bytes > 0;
}

/* A token names one window. */
static bool is_one_window(const struct client_call *call)
{
	const struct neb_iov *iov = call->body_bytes ? call->body : call->into;
	uint32_t count = call->body_bytes ? call->body_count : call->into_count, used = 0;

	for (uint32_t i = 0; i < count; i++)
		used += iov[i].bytes > 0;
	return used == 1 && MAX(call->body_bytes, call->into_bytes) <= UINT32_MAX;
}

static int go_without(struct client_call *call, const char *why)
{
	call->client->stats.fallbacks++;
	snprintf(call->result.fallback, sizeof(call->result.fallback), "%s", why);
	return 0;
}

static int token_write(struct client_call *call, struct client_token *tokens)
{
	struct capsule_run runs[NEB_IOV_MAX];
	struct rp_address ours;
	struct token token;
	uint32_t run_count;
	int ret = rp_qp_address(tokens->qp, &ours);

	if (ret == 0)
		ret = client_runs(call, call->body_bytes > 0, runs, &run_count);
	if (ret)
		return go_without(call, strerror(-ret));
	client_token_of(&ours, &token);
	token.addr = runs[0].addr;
	token.bytes = runs[0].bytes;
	token.rkey = runs[0].rkey;
	token_format(&token, call->token);
	call->token_reply = 0;
	call->token_moved = 0;
	call->by_token = true;
	call->tokens = tokens;
	tokens->calls++;
	return 0;
}

int client_token_prepare(struct client_call *call, struct client_endpoint *endpoint)
{
	struct neb_client *client = call->client;
	struct client_token *tokens;
	int ret;

	call->by_token = false;
	call->endpoint = endpoint;
	if (!endpoint->token || !takes_token(call))
		return 0;
	if (client->require_encryption)
		return go_without(call, CLIENT_NOT_ENCRYPTED);
	if (!client->device_count)
		return go_without(call, "no RDMA device");
	if (call->declines >= DECLINES_MAX)
		return go_without(call, "the server declined the RDMA token");
	if (!is_one_window(call))
		return go_without(
			call, "a token describes one contiguous range of memory below 4 GiB");
	if (!endpoint->tokens)
		endpoint->tokens = calloc(1, sizeof(*endpoint->tokens));
	if (!endpoint->tokens)
		return go_without(call, "no memory");
	tokens = of_bucket(endpoint->tokens, call->bucket);
	if (!tokens)
		return go_without(call, "requests for other buckets use all queue pairs");
	tokens->used = ++endpoint->tokens->uses;
	ret = want(client, endpoint, tokens);
	if (ret == -EAGAIN)
		return ret;
	if (ret)
		return go_without(call, tokens->why);
	return token_write(call, tokens);
}

void client_token_header(struct client_call *call, struct slice name, struct slice value)
{
	uint64_t number;

	if (slice_eq_nocase(name, token_header(TOKEN_HEADER_REPLY)) &&
		slice_to_u64(value, &number) == 0)
		call->token_reply = (uint32_t)MIN(number, (uint64_t)UINT32_MAX);
	else if ((slice_eq_nocase(name, token_header(TOKEN_HEADER_BYTES)) ||
			 slice_eq_nocase(name, token_header(TOKEN_HEADER_BYTES_SHORT))) &&
		 slice_to_u64(value, &number) == 0)
		call->token_moved = MIN(number, call->into_bytes);
}

bool client_token_finish(struct client_call *call, bool answered)
{
	struct client_token *tokens = call->tokens;
	bool moved = answered && call->token_reply >= 200 && call->token_reply < 300;
	uint64_t bytes = moved && call->op == NEB_GET_OBJECT ? call->token_moved : 0;
	bool refused;
	long status = 0;

	tokens->calls--;
	curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
	/* The server refused before anything moved: the queue pair is good. In all other cases but
	 * success nothing may write to the window any more, so the queue pair is closed. */
	refused = answered && status >= 300 && status < 500;
	if (!moved && !refused)
		lose(tokens, "a transfer failed, or its token was declined", 0);
	if (bytes || (moved && call->op == NEB_GET_OBJECT)) {
		call->result.bytes = bytes;
		call->result.object_bytes = bytes;
	}
	client_runs_end(call, bytes);
	/* A GET's window is too small, most likely: by HTTP the call ends with what the caller
	 * expects then. */
	if (answered && status == 400 && call->op == NEB_GET_OBJECT) {
		call->declines = DECLINES_MAX;
		return true;
	}
	/* A success without a count of moved bytes comes from a server that ignored the token. */
	if (moved || !answered || (status >= 300 && call->token_reply != 501))
		return false;
	call->declines++;
	return true;
}

void client_tokens_close(struct neb_client *client)
{
	for (uint32_t i = 0; i < client->endpoint_count; i++) {
		struct client_tokens *tokens = client->endpoints[i].tokens;

		if (!tokens)
			continue;
		for (uint32_t j = 0; j < BUCKETS_MAX; j++)
			rp_qp_close(tokens->list[j].qp);
		free(tokens);
		client->endpoints[i].tokens = NULL;
	}
}
