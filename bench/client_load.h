/* bench/client_load.h: a load through libnebulaio: N requests in flight on one client, bodies in
 * memory that the device knows. One thread that never sleeps. */
#ifndef BENCH_CLIENT_LOAD_H
#define BENCH_CLIENT_LOAD_H

#include "bench/load.h"
#include "nebulaio/nebulaio.h"

struct bench_client_opts {
	struct neb_client *client; /* borrowed until close, as all else here */
	/* More of them, among which requests are divided. */
	struct neb_client *const *others;
	uint32_t other_count;
	uint32_t fan_out; /* each GET is one of so many clients' (docs/design/fan-out.md); or 0 */
	bool mixed;	  /* op is PUT for the objects that bench_mixed_writes, else GET */
	enum neb_op op;
	enum neb_transport transport; /* by which answers must come; NEB_AUTO: any */
	const char *bucket;
	/* Objects by number: keys, and for PUT and GET the bodies. LIST: the keys listed, a page of
	 * them for each number. */
	const struct bench_data *data;
	uint32_t depth;
	uint64_t answer_bytes_max;
	bench_check_fn *check; /* for every Nth answer; or NULL */
	const void *check_arg;
};

struct bench_client_load;
/* -ENOMEM: the client's pool is too small for depth bodies. */
int bench_client_load_open(
	const struct bench_client_opts *opts, struct bench_client_load **ret_load);
void bench_client_load_close(struct bench_client_load *load); /* takes NULL */
/* As bench_http_load_run. */
uint64_t bench_client_load_run(struct bench_client_load *load, const struct bench_run_opts *opts,
	struct bench_result *result);

/* The query of a page of a listing: page pages of 1,000 keys in. Canonical, as signatures want it.
 */
#define BENCH_QUERY_BYTES 160
const char *bench_list_query(
	const struct bench_data *data, uint64_t page, char buf[BENCH_QUERY_BYTES]);

#endif
