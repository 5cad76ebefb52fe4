/* tests/sim/http.h: a small S3 client over HTTP, which signs its requests and can disconnect in the
 * middle of one. */
#ifndef SIM_HTTP_H
#define SIM_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_client {
	uint16_t port;
	int fd;	       /* -1: not connected */
	char in[2048]; /* received, and not yet read from in_at on */
	size_t in_at, in_bytes;
};

#define HTTP_HEADERS_MAX 4u
struct http_header { /* the name in lower case */
	const char *name, *value;
};

struct http_request {
	const char *method;
	const char *path;			      /* from '/' */
	const char *query;			      /* sorted, encoded; "" for none */
	struct http_header headers[HTTP_HEADERS_MAX]; /* all are signed; name NULL: none */
	const void *body;
	size_t body_bytes;
	size_t send_bytes_max; /* the client disconnects after so many bytes of the body; 0: never
				*/
};

struct http_answer {
	int status;    /* 0: the connection ended: the outcome is unknown */
	size_t bytes;  /* of the body */
	char etag[84]; /* without quotes */
	char version_id[48];
};

void http_open(struct http_client *client, uint16_t port);
void http_close(struct http_client *client);
/* The status, with the answer's body in `into`. */
int http_perform(struct http_client *client, const struct http_request *request, void *into,
	size_t into_bytes, struct http_answer *ret_answer);

#endif
