/* tests/sim/http.h: an S3 client over HTTP, small and simple, which signs its requests and goes
 * away in the middle of one when it is told to. */
#ifndef SIM_HTTP_H
#define SIM_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_client {
	uint16_t port;
	int fd; /* -1: not connected */
};

struct http_request {
	const char *method;
	const char *path;  /* from '/' */
	const char *query; /* sorted, encoded; "" for none */
	const void *body;
	size_t body_bytes;
	size_t send_bytes_max; /* the connection is closed after so much of the body; 0: never */
};

void http_open(struct http_client *client, uint16_t port);
void http_close(struct http_client *client);
/* The status, with the answer's body in `into`; 0: the connection ended, and nothing is known. */
int http_perform(struct http_client *client, const struct http_request *request, void *into,
	size_t into_bytes, size_t *ret_bytes);

#endif
