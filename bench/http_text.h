/* bench/http_text.h: HTTP/1.1 as the load needs it: signed requests out, heads of answers in. */
#ifndef BENCH_HTTP_TEXT_H
#define BENCH_HTTP_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

/* ---- Requests. ---- */

/* One signer signs for a quarter of an hour: that is how long S3 takes a signature's date. */
struct bench_signer {
	const char *access_key; /* borrowed, as region and host */
	const char *region;
	const char *host; /* "127.0.0.1:9000" */
	char date[17];	  /* 20260102T030405Z */
	uint8_t key[32];  /* secret */
};
void bench_signer_init(struct bench_signer *signer, const char *access_key, const char *secret_key,
	const char *region, const char *host);

struct bench_http_line {
	const char *method;
	const char *path;  /* percent-encoded, from '/' */
	const char *query; /* canonical: sorted and percent-encoded; or "" */
	uint64_t body_bytes;
	bool has_body;
	bool encrypted; /* asks that it lies encrypted (SSE-S3) */
};
/* Appends the head of a request, signed by SigV4 (AWS: "Signature Version 4 for API requests")
 * with the payload unsigned; without any signature when signer->access_key is NULL. */
void bench_http_put_head(
	const struct bench_signer *signer, const struct bench_http_line *line, struct buf *out);

/* ---- Answers. ---- */
struct bench_http_answer {
	unsigned status;
	uint64_t body_bytes; /* by Content-Length; 0 without one */
	bool has_length;
	bool closes; /* Connection: close */
};
/* The head's length, -EAGAIN while it is not whole, -EPROTO when it is none, or the body comes in a
 * coding that this reader does not take (chunked). */
ptrdiff_t bench_http_read_head(const char *data, size_t len, struct bench_http_answer *ret_answer);

#endif
