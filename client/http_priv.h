/* client/http_priv.h: requests over HTTP, and the RDMA tokens in them. */
#ifndef CLIENT_HTTP_PRIV_H
#define CLIENT_HTTP_PRIV_H

#include "call_priv.h"

/* ---- http.c ---- */
int client_http_start(struct client_call *call, struct client_endpoint *endpoint);
void client_http_progress(struct neb_client *client);
void client_http_close(struct neb_client *client);

/* ---- token.c ---- */
/* Prepares the call for RDMA tokens: 0: call->token is set, or the call goes without a token;
 * -EAGAIN: the queue pair is still connecting, and the call stays queued. */
int client_token_prepare(struct client_call *call, struct client_endpoint *endpoint);
/* Handles the call's answer, or its end without one. True when the server declined the token and
 * the call must be sent again. */
bool client_token_finish(struct client_call *call, bool answered);
/* Reads a header of the answer. */
void client_token_header(struct client_call *call, struct slice name, struct slice value);
void client_tokens_close(struct neb_client *client);

/* A token of no window, of the queue pair with that address. */
void client_token_of(const struct rp_address *address, struct token *ret_token);
/* The request that connects a queue pair (POST) or ends one (DELETE), with the texts that it points
 * at. */
struct client_token_ask {
	struct neb_request request;
	struct neb_header headers[4];
	char token[TOKEN_LEN + 1], psn[16], mtu[16];
};
/* bucket: the one that the queue pair is wanted for, which a gateway has to know; NULL, "": any. */
void client_token_ask(struct client_token_ask *ask, const char *method,
	const struct rp_address *ours, const char *bucket);
/* Reads the server's queue pair from its answer to POST. -EPROTO. */
int client_token_answer(const struct neb_result *result, struct rp_address *ret_theirs);

/* ---- hipobj.c ---- */
/* Starts the call by hipobj-rc-v2: true, and the call may even be done. False: it uses HTTP. */
bool client_hipobj_start(struct client_call *call, struct client_endpoint *endpoint);
/* Handles a completion of one of its queue pairs. */
void client_hipobj_wc(struct neb_client *client, const struct rp_wc *wc);
void client_hipobj_progress(struct neb_client *client);
/* Ends a call whose deadline has passed. */
void client_hipobj_late(struct client_call *call);
/* When the client closes: end ends the calls before HTTP closes, and free releases the rest after
 * it. */
void client_hipobj_end(struct neb_client *client);
void client_hipobj_free(struct neb_client *client);

/* ---- sigv4.c ---- */
/* Adds the signed headers of a request to list; NULL when memory ran out (list is freed then). */
struct client_signing {
	const char *method;
	struct slice host;
	struct slice path;  /* percent-encoded */
	struct slice query; /* percent-encoded */
	int64_t now_ms;
};
struct curl_slist *client_sign(
	struct client_call *call, const struct client_signing *signing, struct curl_slist *list);

#endif
