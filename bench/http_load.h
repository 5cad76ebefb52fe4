/* bench/http_load.h: a load of HTTP requests over N connections, one request at a time on each. One
 * thread, which never sleeps unless the options ask for it. Requests are built before the run, so
 * that the client spends little time outside its system calls. Works with any HTTP server. */
#ifndef BENCH_HTTP_LOAD_H
#define BENCH_HTTP_LOAD_H

#include "bench/http_text.h"
#include "bench/load.h"

struct bench_http_request {
	uint32_t head_offset; /* in the set's heads, in units of 8 bytes */
	uint32_t head_len;
	uint64_t object_idx;
	const void *body; /* borrowed */
};

/* Requests that a load goes through again and again. */
struct bench_http_set {
	struct buf heads;
	struct bench_http_request *requests;
	uint32_t count;
	uint32_t count_max;
	uint64_t body_bytes; /* of each request that has a body */

	unsigned status;	   /* that each answer must have */
	bool answers_without_body; /* HEAD: a length, and no body */
	uint64_t answer_bytes; /* length of each answer to a request without a body; UINT64_MAX: any
				*/
	uint64_t answer_bytes_max;
	bench_check_fn *check; /* for every Nth answer, but to requests with a body; or NULL */
	const void *check_arg;
};
int bench_http_set_open(struct bench_http_set *set, uint32_t count_max);
/* -ENOMEM, -ENOBUFS. body may be NULL. */
int bench_http_set_add(struct bench_http_set *set, const struct bench_signer *signer,
	const struct bench_http_line *line, uint64_t object_idx, const void *body);
void bench_http_set_close(struct bench_http_set *set);

struct bench_http_load;
/* Connects; set is borrowed until close. address is "HOST:PORT", numeric. */
int bench_http_load_open(const char *address, uint32_t connections,
	const struct bench_http_set *set, struct bench_http_load **ret_load);
void bench_http_load_close(struct bench_http_load *load); /* takes NULL */
/* Runs until its time is up or its operations are done, and the operations in flight have ended.
 * Adds to *result. Returns the turn after the last. */
uint64_t bench_http_load_run(struct bench_http_load *load, const struct bench_run_opts *opts,
	struct bench_result *result);

/* One request, its answer's body into buf and NUL behind it; sleeps while it waits. The status, or
 * -errno. */
int bench_http_once(const char *address, struct slice request, char *buf, size_t buf_bytes,
	size_t *ret_body_bytes);

#endif
