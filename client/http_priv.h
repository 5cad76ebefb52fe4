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
/* The call's answer, or its end without one, has come. True when the server declined the token and
 * the call must be sent again.
 */
bool client_token_finish(struct client_call *call, bool answered);
/* Reads a header of the answer. */
void client_token_header(struct client_call *call, struct slice name, struct slice value);
void client_tokens_close(struct neb_client *client);

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
